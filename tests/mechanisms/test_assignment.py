"""The portable order: every order of a part's records is equally likely, equal ones included, and contents decide."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sqlglot import exp

import privsql
from privsql.engine.duck.container import DuckRelations
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import all_rows, column, temp_table
from privsql.errors import GuaranteeError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.assignment import RankAssignment, RecordParts, Segments, cut_segments
from privsql.source.records import prepare_records
from support.commands import write
from support.enumeration import FALSE_ALARM

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.database import EngineSession
    from privsql.model.records import Records

TINY = [("x", 1), ("x", 1), ("x", 2), ("y", 1)]  # value x: two equal records and another one
SINGLE = Segments(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 0]), np.array([1, 2, 3, 1]), np.array([5, 6, 7, 9]), 1)


def spec(folder: Path, rows: str, **more: Any) -> privsql.Spec:
    """A request for a bucketization of some rows (s, q..)."""
    write(folder / "t.parquet", rows)
    found = {
        "source": {"file": folder / "t.parquet"},
        "columns": {"quasi_identifiers": more.pop("qi", ["q"]), "sensitive": "s"},
        "release": {"to": folder / "r.duckdb", "order": "portable"},
        "mechanism": {"threshold": "1"},
        "ledger": {"off": True},
    }
    return privsql.build(found | more)


def values(rows: list[tuple[Any, ...]]) -> str:
    """These rows as a query."""
    return f"SELECT * FROM (VALUES {', '.join(map(str, rows))}) AS v(s, q)"


@pytest.fixture
def db() -> Iterator[EngineSession]:
    with open_scratch() as made:
        yield made


def dealt(db: EngineSession, source: Records, key: int, segments: Segments) -> list[tuple[Any, ...]]:
    """Sensitive value, quasi-identifiers and number of every record."""
    bound = source.bind_key(seed_key(key))
    dealing = RankAssignment(db, source, bound, RecordParts(np.array(source.counts)), [*source.roles.qi_keys, "code"])
    found = db.rows(dealing.query_assigned(segments, [column("code", "r"), *source.roles.qi_columns("r")]))
    dealing.drop_relations()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("bits", [60, *(pytest.param(bits, marks=pytest.mark.slow) for bits in (1, 0))])
def test_every_order_is_equally_likely(
    db: EngineSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """Places are drawn in every order that they can have; all ways to deal come out equally often.

    With 1 and 0 bits of the first hash, records that differ have the same: their places are independent all the same.
    """
    real = DuckRelations.hashed
    short = exp.Literal.number(2**bits)
    monkeypatch.setattr(DuckRelations, "hashed", lambda self, texts: exp.Mod(this=real(self, texts), expression=short))
    source = prepare_records(db, spec(tmp_path, values(TINY)))
    bound = source.bind_key(seed_key(1))
    db.create_table("kept", all_rows(temp_table("hashed")))
    db.drop("hashed")
    hashes = Counter(row[0] for row in db.rows(exp.select("h").from_(temp_table("kept"))))
    pairs = [(h, copy) for h, number in hashes.items() for copy in range(number)]
    drawn = exp.select(column("u", "c")).from_(exp.alias_(temp_table("chances"), "c", table=True))
    same = [column(name, "c").eq(column(name, "r")) for name in ("h", "copy")]
    monkeypatch.setattr(RankAssignment, "make_hash", lambda _self, _tag: drawn.where(*same).subquery())
    outcomes: Counter[tuple[tuple[Any, ...], ...]] = Counter()
    for order in itertools.permutations(range(4)):
        h, copy = zip(*pairs, strict=True)
        db.register_arrow("chances", pa.table({"h": h, "copy": copy, "u": order}))
        db.create_table("hashed", all_rows(temp_table("kept")))
        dealing = RankAssignment(db, source, bound, RecordParts(np.array(source.counts)), ["q0", "code"])
        rows = db.rows(dealing.query_assigned(SINGLE, [column("code", "r"), column("q0", "r")]))
        dealing.drop_relations()
        db.drop("chances")
        outcomes[tuple(sorted(rows))] += 1
    expected: Counter[tuple[tuple[Any, ...], ...]] = Counter()
    for order in itertools.permutations([5, 6, 7]):
        expected[tuple(sorted((*((0, q, n) for q, n in zip([1, 1, 2], order, strict=True)), (1, 1, 9))))] += 1
    assert {rows: number / 24 for rows, number in outcomes.items()} == {r: n / 6 for r, n in expected.items()}


def test_equal_records_lie_anywhere(db: EngineSession, tmp_path: Path) -> None:
    """20,000 records of three contents: ranks of each are spread evenly, and neighbours have nothing in common.

    Chi-square over 40 stretches and a normal test on runs, each with a false alarm in a million.
    """
    source = prepare_records(db, spec(tmp_path, "SELECT 'x' AS s, i * i % 7 % 3 AS q FROM range(20000) t(i)"))
    one = Segments(np.array([0]), np.array([0]), np.array([20000]), np.array([0]), step=1)
    found = dealt(db, source, 3, one)
    assert sorted(number for *_, number in found) == list(range(20000))
    contents = np.array([q for _, q, number in sorted(found, key=lambda row: row[-1])])
    table = np.array([np.bincount(part, minlength=3) for part in np.split(contents, 40)])
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM
    shares = np.bincount(contents) / 20000
    alike, expected = int((contents[1:] == contents[:-1]).sum()), 19999 * float((shares**2).sum())
    assert abs(alike - expected) < 5 * np.sqrt(expected)


@pytest.mark.slow
def test_contents_decide_and_not_the_order_of_rows(db: EngineSession, tmp_path: Path) -> None:
    """Rows in another order are dealt the same; another key, or another record, changes the places of most."""
    rows = "SELECT 'x' AS s, i // 2 AS q FROM range(3000) t(i) ORDER BY {}"
    one = Segments(np.array([0]), np.array([0]), np.array([3000]), np.array([0]), step=1)
    found = []
    for order, key in (("i", 1), ("hash(i)", 1), ("i", 2), ("i LIMIT 2999", 1)):
        (tmp_path / "t.parquet").unlink(missing_ok=True)
        asked = rows.format(order) if "LIMIT" not in order else f"({rows.format(order)}) UNION ALL SELECT 'x', 9999"
        with open_scratch() as own:
            found.append(dict.fromkeys(dealt(own, prepare_records(own, spec(tmp_path, asked)), key, one)))
    assert found[0] == found[1]
    assert all(len(found[0].keys() & other.keys()) < 30 for other in found[2:])


def test_known_hash(db: EngineSession, tmp_path: Path) -> None:
    """SHA-256 of the subkey and the texts, between U+001F, to 60 bits."""
    rows = "SELECT 'Zoë' AS s, 7 AS q, NULL::DATE AS d, 1.50 AS m, TIMESTAMP '2020-01-02 03:04:05.5' AS t, true AS b"
    asked = spec(tmp_path, rows, qi=["q", "d", "m", "t", "b"])
    source = prepare_records(db, asked)
    source.bind_key(seed_key(1))
    word = seed_key(1).word("records")["word"][0].as_py()
    text = f"{word}|7|-|1.50|2020-01-02 03:04:05.5|true|3:Zoë".replace("|", "\x1f")
    expected = int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)
    assert db.rows(exp.select("h").from_(temp_table("hashed"))) == [(expected,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a\x1f1:b", "c"), ("a", "b\x1f1:c")),
        (("a", "1:b"), ("a1:", "b")),
        (("-", None), (None, "-")),
        (("", None), (None, "")),
        (("1:a", ""), ("a", "1:")),
    ],
)
def test_texts_are_injective(db: EngineSession, tmp_path: Path, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Records that differ have different texts, whatever stands in them."""
    table = pa.table({"s": ["x", "x"], "q": [one[0], other[0]], "r": [one[1], other[1]]})
    with duckdb.connect() as writer:
        writer.register("given", table)
        writer.execute(f"COPY given TO '{tmp_path / 'g.parquet'}'")
    source = prepare_records(db, spec(tmp_path, f"SELECT * FROM '{tmp_path / 'g.parquet'}'", qi=["q", "r"]))
    source.bind_key(seed_key(1))
    assert len(set(db.rows(exp.select("h").from_(temp_table("hashed"))))) == 2


def test_another_source_is_noticed(db: EngineSession, tmp_path: Path) -> None:
    """Counts that are not those of the records are refused."""
    source = prepare_records(db, spec(tmp_path, values(TINY)))
    bound = source.bind_key(seed_key(1))
    with pytest.raises(GuaranteeError, match="changed"):
        RankAssignment(db, source, bound, RecordParts(np.array([2, 2])))


@pytest.mark.slow
def test_doubles_are_refused_by_name(tmp_path: Path) -> None:
    """Their texts are not the same everywhere; in the engine's own order they can be published, by a key too."""
    rows = "SELECT 'v' || i % 4 AS s, CAST(i AS DOUBLE) AS q FROM range(40) t(i)"
    asked = spec(tmp_path, rows, mechanism={"threshold": "1/2"})
    with pytest.raises(UsageError, match=r"column 'q' is DOUBLE.*cast to DECIMAL in source\.query"):
        privsql.publish(asked, key=seed_key(1))
    assert not asked.target.path.exists()
    streamed = asked.model_copy(update={"release": asked.release.model_copy(update={"order": "stream"})})
    assert privsql.publish(streamed, key=seed_key(1)).release == asked.target.path


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150)
def test_segments_are_cut_along_units(data: st.DataObject) -> None:
    """Every rank keeps its number, in the unit in which it lies."""
    step = data.draw(st.sampled_from([0, 1]))
    units, segments, expected = [], [], {}
    for part in range(data.draw(st.integers(1, 4))):
        sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
        places = [(part, 8 * at, rank) for at, size in enumerate(sizes) for rank in range(size)]
        units += [(part, 8 * at, size) for at, size in enumerate(sizes)]
        lo = 0
        while lo < len(places):
            hi, number = data.draw(st.integers(lo + 1, len(places))), data.draw(st.integers(0, 50))
            if data.draw(st.booleans()):
                segments.append((part, lo, hi, number))
                expected |= {places[rank]: number + step * (rank - lo) for rank in range(lo, hi)}
            lo = hi
    assume(segments)
    names = ("part", "bin", "records")
    told = pa.table({name: pa.array([unit[i] for unit in units], pa.int64()) for i, name in enumerate(names)})
    columns = np.array(segments, dtype=np.int64).reshape(-1, 4).T
    found = cut_segments(Segments(*columns, step=step), told).to_pylist()
    dealt = [
        ((one["part"], one["bin"], rank), one["number"] + one["step"] * (rank - one["lo"]))
        for one in found
        for rank in range(one["lo"], one["hi"])
    ]
    assert len(dealt) == len(dict(dealt))
    assert dict(dealt) == expected
