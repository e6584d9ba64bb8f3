"""Records as integers: in canonical order, with hashes that follow from values and not from ranks."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from privsql.engine.sqlfiles import alias_as, column, temp_table
from privsql.errors import GuaranteeError
from privsql.keyed_random import seed_key
from privsql.model import hashing, packing
from privsql.source.keywords import as_spec
from privsql.source.records import prepare_table
from privsql.verbs.sessions import open_session
from support.commands import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.database import Warehouse
    from privsql.source.table import TableRecords

KEY = seed_key(1)
ROWS = """SELECT (i * 7) % 11 - 5 AS a, CASE WHEN i % 5 > 0 THEN 'x' || i % 4 END AS b, (i % 3 / 2)::DOUBLE AS c,
    DATE '2020-01-01' + (i % 6)::INTEGER AS e, i % 2 = 0 AS f, (i % 4)::DECIMAL(9, 2) AS g,
    CASE WHEN i % 7 = 0 THEN 'NaN'::DOUBLE ELSE i % 2 END AS h, 'd' || i % 3 AS d FROM range(60) t(i)"""


@contextmanager
def prepared(folder: Path, rows: str, columns: str = "abcefgh") -> Iterator[TableRecords]:
    """The records of a query."""
    write(folder / "x.parquet", rows)
    spec = as_spec({
        "source": {"file": str(folder / "x.parquet")}, "release": {"name": "r", "to": str(folder / "r.duckdb")},
        "columns": {"quasi_identifiers": list(columns), "sensitive": "d"}, "mechanism": {"threshold": "1/2"},
    }, {}, verb="publish")  # fmt: skip
    with open_session() as db:
        yield prepare_table(cast("Warehouse", db), spec.source, spec.columns)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableRecords]:
    """Records of many types."""
    with prepared(tmp_path_factory.mktemp("packed"), ROWS) as made:
        yield made


def hashes_of(records: TableRecords, key: int = 1) -> Counter[int]:
    """The hashes of records."""
    return Counter(np.concatenate([one for one, _ in records.hash_records(seed_key(key))]).tolist())


def test_integers_are_in_canonical_order(records: TableRecords) -> None:
    packed = records.packed
    assert packed is not None
    columns = packed.columns[:-1]
    ranks = [packing.extract_bits(packed.words, one.shift, 2**one.bits) for one in columns]
    texts = [[one.texts[0][rank] for rank in part] for one, part in zip(columns, ranks, strict=True)]
    records.sort_records()
    names = [alias_as(exp.cast(column(f"q{i}"), "VARCHAR"), f"q{i}") for i in range(7)]
    rows = records.db.rows(exp.select(*names).from_(temp_table("records")))
    assert [row[0] for row in rows] == texts[0]
    assert [row[1] or "" for row in rows] == texts[1]
    assert list(zip(*(row[3:5] for row in rows), strict=True)) == [tuple(texts[3]), tuple(texts[4])]


def test_people_are_the_same_only_if_each_is_there_equally_often(records: TableRecords) -> None:
    packed, names = records.packed, [column(f"q{i}") for i in range(7)]
    assert packed is not None

    def compare(*columns: exp.Expr, most: int = -1) -> bool:
        rows = exp.select(*columns).from_(records.coded_records(ordered=False).subquery("r"))
        return packed.has_same_people(records.db, rows if most < 0 else rows.limit(most))

    assert compare(*names)
    assert not compare(*names, most=len(packed.words) - 1)
    first = records.db.rows(exp.select("q0").from_(records.coded_records(ordered=False).subquery("r")).limit(1))[0][0]
    for one in (first, 99):  # a value that others have, and one that no record has
        assert not compare(alias_as(exp.cast(exp.Literal.number(one), "BIGINT"), "q0"), *names[1:])


def test_integers_and_the_engine_give_the_same_hashes(records: TableRecords) -> None:
    read = temp_table("source"), records.keep_predicate, KEY
    by_engine = hashing.hash_columns(records.db, records.published_values, *read)
    assert Counter(np.concatenate(list(by_engine)).tolist()) == hashes_of(records)
    assert not hashes_of(records).keys() & hashes_of(records, key=2).keys()


def test_hashes_are_the_same_in_any_order_of_the_columns(records: TableRecords, tmp_path: Path) -> None:
    with prepared(tmp_path, ROWS, "gfecbah") as others:
        assert hashes_of(others) == hashes_of(records)


def test_a_hash_is_that_of_the_engine() -> None:
    word = hashing.secret_word(KEY)
    with open_session() as db:
        db.register_arrow(hashing.SECRET, word)
        rows = [(db.rows(exp.select(hashing.keyed_digest(db, exp.Literal.string(one))))[0][0]) for one in ("", "ä 1")]
    assert hashing.hash_texts(["", "ä 1"], hashing.key_word(KEY)).tolist() == rows


@pytest.mark.parametrize(
    "other",
    [
        "SELECT a + 1 AS a, * EXCLUDE (a) FROM ({})",  # the same ranks
        "SELECT a.* EXCLUDE (b), b.b FROM ({}) a POSITIONAL JOIN (SELECT b FROM ({}) ORDER BY b NULLS FIRST) b",
        "SELECT * REPLACE (coalesce(b, 'none') AS b) FROM ({})",
    ],
)
def test_recoded_and_shuffled_columns_have_other_hashes(tmp_path: Path, records: TableRecords, other: str) -> None:
    with prepared(tmp_path, other.format(ROWS, ROWS)) as changed:
        assert changed.counts == records.counts
        assert hashes_of(changed) != hashes_of(records)


def test_what_does_not_fit_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert packing.fits_word([2**17, 2**17, 2**17, 2**13])
    assert not packing.fits_word([2**17, 2**17, 2**17, 2**14])
    monkeypatch.setattr(packing, "MOST_VALUES", 10)
    with prepared(tmp_path, ROWS) as wide:
        assert wide.packed is None
        assert sum(hashes_of(wide).values()) == 60


def test_records_beyond_an_integer_have_the_same_hashes_and_key(
    tmp_path: Path, records: TableRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "fits_word", lambda _: False)
    with prepared(tmp_path, ROWS) as wide:
        assert wide.packed is None
        assert isinstance(wide._ranked, packing.RankedRecords)
        assert hashes_of(wide) == hashes_of(records)
        assert wide.bind_key(KEY) == records.bind_key(KEY)


def make_column(values: list[Any], kind: pa.DataType, shift: int = 0) -> packing.PackedColumn:
    texts = (tuple(map(str, values)),)
    return packing.PackedColumn(pa.array(values, kind), texts, texts, np.ones(len(values), np.int64), shift)


def test_a_value_that_was_not_there_is_refused() -> None:
    one = make_column([3, 5, None], pa.int64(), 4)
    assert one.place_values(pa.array([None, 3, 5])).tolist() == [32, 0, 16]
    assert one.place_values(pa.array([5, 3])).tolist() == [16, 0]
    with pytest.raises(GuaranteeError, match="changed"):
        one.place_values(pa.array([4, None]))


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "int64", "uint64", "date32", "string"])
def test_values_of_any_type_get_their_ranks_and_no_other_does(name: str) -> None:
    kind = getattr(pa, name)()
    numbers = np.iinfo(name) if "int" in name else None
    low, high = (int(numbers.min), int(numbers.max)) if numbers else (0, 99)
    every = [low, low + 1, low + 3, high // 2, high - 1, high]
    ends = [[low, low + 1, high] if high - low < packing.MOST_VALUES else [low, low + 1, low + 3], [high - 1, high]]
    for known in ([every[0]], *ends, every, [high // 2]):
        values = [str(value) for value in known] if name == "string" else known
        one = make_column(values, kind, 3)
        assert one.place_values(pa.array(values[::-1], kind)).tolist() == [8 * i for i in range(len(values))][::-1]
        assert one.place_values(pa.array([], kind)).tolist() == []
        for other in {*every} - {*known}:
            absent = pa.array([str(other) if name == "string" else other], kind)
            with pytest.raises(GuaranteeError, match="changed"):
                one.place_values(absent)
