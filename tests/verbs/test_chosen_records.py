"""Which record of each person is published: by whose key, whether it is found again, and what is checked without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import privsql
from privsql.keyed_random import key_file, seed_key
from privsql.releases import statements
from privsql.source.table import PersonChoice
from privsql.verbs import evaluate
from support.commands import rows, write

if TYPE_CHECKING:
    from pathlib import Path

VISITS = """
SELECT i % 60 AS patient, CAST(20 + i * 7 % 31 AS INTEGER) AS age, 'd' || (i * i + i // 7) % 5 AS ill, i AS visit
FROM range(240) t(i)
"""


def asked(folder: Path, to: str = "r", **parts: dict[str, Any]) -> privsql.Spec:
    """A specification of one record of each person."""
    raw: dict[str, Any] = {
        "source": {"file": str(folder / "v.parquet"), "person": "patient", "persons": "one"},
        "columns": {"quasi_identifiers": ["age"], "sensitive": "ill"},
        "mechanism": {"threshold": "0.6", "algorithm": "one-size"},
        "release": {"to": str(folder / f"{to}.duckdb"), "name": "r"},
    }
    return privsql.build({key: raw.get(key, {}) | parts.get(key, {}) for key in {*raw, *parts}})


def published(release: Path) -> list[tuple[Any, ...]]:
    """The quasi-identifiers of a release, in no order of their own."""
    return rows(release, "SELECT age FROM qit ORDER BY ALL")


@pytest.mark.slow
def test_the_ledger_s_key_chooses_and_is_found_again(tmp_path: Path) -> None:
    write(tmp_path / "v.parquet", VISITS)
    spec = asked(tmp_path)
    privsql.publish(spec)
    verified = privsql.verify(tmp_path / "r.duckdb", spec)
    assert verified.ok
    assert not any("not checked" in note for note in verified.notes)
    assert "quasi-identifiers are the source's" in {check.name for check in verified.checks}
    assert privsql.evaluate(tmp_path / "r.duckdb", spec, queries=5).scores
    other = asked(tmp_path, "other", mechanism={"threshold": "0.7"})
    privsql.publish(other, allow_composition=True)
    assert published(tmp_path / "r.duckdb") == published(tmp_path / "other.duckdb")


@pytest.mark.slow
def test_without_the_key_persons_are_matched_and_the_rest_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "v.parquet", VISITS)
    spec, own = asked(tmp_path, ledger={"off": True}), tmp_path / "own.key"
    release = tmp_path / "r.duckdb"
    privsql.publish(spec, key_file=own)
    assert privsql.verify(release, spec, key_file=own).ok
    assert not any("not checked" in note for note in privsql.verify(release, spec, key_file=own).notes)
    alone = privsql.verify(release, spec)
    assert alone.ok
    assert any("was not checked" in note for note in alone.notes)
    assert {check.name for check in alone.checks} >= {
        "every person can have one of the published quasi-identifiers",
        "every person can have one of the published sensitive values",
    }
    with pytest.raises(privsql.UsageError, match="the key that chose one record of each person is missing"):
        privsql.evaluate(release, spec, queries=5)
    assert privsql.evaluate(release, spec, queries=5, key_file=own).scores
    with pytest.raises(privsql.EngineError, match="No such file"):
        privsql.verify(release, spec, key_file=tmp_path / "none.key")
    write(tmp_path / "v.parquet", VISITS.replace("20 + i * 7 % 31", "70 + i * 7 % 31"))
    failed = [check.name for check in privsql.verify(release, spec).checks if not check.ok]
    assert "every person can have one of the published quasi-identifiers" in failed


@pytest.mark.slow
def test_another_key_chooses_other_records_and_the_same_one_the_same(tmp_path: Path) -> None:
    write(tmp_path / "v.parquet", VISITS)
    found = []
    for number, key in enumerate((seed_key(1), seed_key(2), seed_key(1))):
        privsql.publish(asked(tmp_path, f"r{number}", ledger={"off": True}), key=key)
        found.append(published(tmp_path / f"r{number}.duckdb"))
    assert found[0] == found[2] != found[1]


def test_the_key_follows_from_no_record_and_from_nothing_that_is_published(tmp_path: Path) -> None:
    own = PersonChoice.from_key(key_file(tmp_path / "a.key"), "r")
    assert own.key.secret not in (
        key_file(tmp_path / "a.key").secret,
        key_file(tmp_path / "a.key").derive_key("word").secret,
    )
    assert PersonChoice.from_key(key_file(tmp_path / "a.key"), "r").reference == own.reference
    assert PersonChoice.from_key(key_file(tmp_path / "a.key"), "s").reference != own.reference
    assert PersonChoice.from_key(key_file(tmp_path / "b.key"), "r").reference != own.reference
    assert own.key.secret.hex() not in own.reference


NULLS = "SELECT i AS p, 0 AS q, CASE WHEN j = 0 THEN NULL ELSE '' END AS s FROM range(2000) t(i), range(2) u(j)"
COPIES = "SELECT i AS p, 0 AS q, CASE WHEN j = 0 THEN 'x' ELSE 'y' END AS s FROM range(2000) t(i), range(4) u(j)"


@pytest.mark.parametrize(
    ("query", "value", "share"), [(NULLS, "", 1 / 2), pytest.param(COPIES, "y", 3 / 4, marks=pytest.mark.slow)]
)
def test_null_is_no_empty_text_and_copies_are_records_of_their_own(
    tmp_path: Path, query: str, value: str, share: float
) -> None:
    """Each of a person's records is as likely as the others (6 standard deviations of 2,000 persons)."""
    write(tmp_path / "v.parquet", query)
    spec = asked(
        tmp_path,
        source={"person": "p"},
        columns={"quasi_identifiers": ["q"], "sensitive": "s", "nulls": {"s": "value"}},
        mechanism={"threshold": "1", "allow_certain": True},
        ledger={"off": True},
    )
    privsql.publish(spec, key=seed_key(5))
    counted = dict(rows(tmp_path / "r.duckdb", "SELECT s, CAST(sum(count) AS INTEGER) FROM st GROUP BY s"))
    assert sum(counted.values()) == 2000
    assert abs(counted[value] - 2000 * share) < 6 * (2000 * share * (1 - share)) ** 0.5


@pytest.mark.soak(part="long")
def test_a_comparison_measures_the_records_that_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the ledger's key, or that of a file; by the seed where there is neither."""
    write(tmp_path / "v.parquet", VISITS)
    chosen: list[Any] = []

    def note_rows(path: Path, *rest: Any) -> Any:
        chosen.append(published(path))
        return measured(path, *rest)

    measured = evaluate.measure_answers
    monkeypatch.setattr(evaluate, "measure_answers", note_rows)
    own, spec, apart = tmp_path / "own.key", asked(tmp_path), asked(tmp_path, "off", ledger={"off": True})
    for seed in (1, 1, 2):
        privsql.evaluate([apart], queries=2, seed=seed)
    privsql.publish(spec)
    privsql.publish(apart, key_file=own)
    for seed in (1, 2):
        privsql.evaluate([spec], queries=2, seed=seed)
    privsql.evaluate([apart], queries=2, key_file=own)
    by_ledger, by_file = published(tmp_path / "r.duckdb"), published(tmp_path / "off.duckdb")
    assert chosen[0] == chosen[1] != chosen[2]
    assert chosen[3:] == [by_ledger, by_ledger, by_file]
    assert by_ledger != by_file
    with pytest.raises(privsql.EngineError, match="No such file"):
        privsql.evaluate([spec], queries=2, key_file=tmp_path / "none.key")


def test_a_plan_makes_no_secret(tmp_path: Path) -> None:
    write(tmp_path / "v.parquet", VISITS)
    place = tmp_path / "mine.duckdb"
    privsql.plan(asked(tmp_path, ledger={"database": str(place)}))
    assert not place.with_suffix(".key").exists()


@pytest.mark.parametrize(
    ("pairs", "records", "missing"),
    [
        ([(0, 0), (1, 0), (1, 1)], [1, 1], 0),
        ([(0, 0), (1, 0)], [1, 1], 1),
        ([(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)], [1, 1, 1], 0),
        ([(0, 0), (0, 1)], [1, 1], 1),  # one record of each
        ([(0, -1), (1, 0)], [1], 0),  # who is held back
        ([(0, -1)], [2], 2),
        ([], [], 0),
    ],
)
def test_persons_are_matched(pairs: list[tuple[int, int]], records: list[int], missing: int) -> None:
    persons, options = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert statements.count_unfilled(persons, options, np.array(records, dtype=np.int64)) == missing
