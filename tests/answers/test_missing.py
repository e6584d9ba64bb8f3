"""Records that are not in a release: an answer says how many, and its bounds are those of the source."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql as api
from privsql.answers.missing import count_touching
from privsql.answers.sql.compiler import parse_query
from privsql.engine.sqlfiles import Field, Roles
from privsql.model.manifest import Manifest
from privsql.releases.opened import read_manifest
from support.commands import specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

# 'often' is the disease of more than half of the records, of those of age 1 nearly always; pay has NULLs.
PEOPLE = """
SELECT CAST(i % 4 AS INTEGER) AS age, CASE WHEN i % 9 > 0 THEN CAST(i % 13 AS INTEGER) END AS pay,
  CASE WHEN i % 5 < 2 OR i % 4 = 1 THEN 'often' ELSE 'd' || i % 7 END AS disease
FROM range(400) t(i)
"""
EXCESS = 'threshold = "0.25"\nexcess = "suppress"\nabsence = "unobservable"'
ASKED = [
    "SELECT {} FROM t",
    "SELECT {} FROM t WHERE age = 1",
    "SELECT {} FROM t WHERE age = 77",
    "SELECT {} FROM t WHERE pay < 5",
    "SELECT {} FROM t WHERE disease = 'often'",
    "SELECT {} FROM t WHERE age > 1 AND disease IN ('d1', 'often')",
    "SELECT age, {} FROM t GROUP BY age",
    "SELECT age, {} FROM t WHERE disease <> 'd2' GROUP BY age",
]


@pytest.fixture(scope="module")
def excess(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release without the records of a value that is too frequent."""
    folder = tmp_path_factory.mktemp("excess")
    write(folder / "people.parquet", PEOPLE)
    columns = 'quasi_identifiers = ["age", "pay"]\nsensitive = "disease"'
    release = 'name = "t"\nto = "t.duckdb"'
    succeeded(
        "publish",
        specification(folder, columns=columns, release=release, mechanism=EXCESS),
        "--seed",
        1,
        "--set",
        "ledger.off=true",
    )
    return folder


def truth(folder: Path, sql: str) -> dict[tuple[Any, ...], Any]:
    """The answer of the source."""
    with closing(duckdb.connect()) as db:
        db.execute(f"CREATE VIEW t AS FROM '{folder / 'people.parquet'}'")
        return {row[:-1]: row[-1] for row in db.execute(sql).fetchall()}


@pytest.mark.slow
def test_bounds_that_are_certain_are_the_source_s(excess: Path) -> None:
    """By brute force: 33 was said to be exact where 75 was true."""
    with api.open(excess / "t.duckdb") as release:
        assert release.manifest.suppressed
        for sql in (one.format("COUNT(*)") for one in ASKED):
            answer = release.query(sql, estimator="baseline")
            assert answer.rests_on == "certain", sql
            true = truth(excess, sql)
            for *group, _, _, low, high in answer.rows:
                assert low <= true[tuple(group)] <= high, (sql, group)


@pytest.mark.slow
def test_an_exact_count_is_no_longer_called_exact(excess: Path) -> None:
    """Neither in words, nor in JSON, nor by its figures."""
    done = succeeded("query", excess / "t.duckdb", "SELECT COUNT(*) FROM t WHERE age = 1")
    missing = read_manifest(excess / "t.duckdb").suppressed
    assert "exact" not in done.out
    share = missing / read_manifest(excess / "t.duckdb").records
    assert f"note: {missing:,} records of the source ({share:.1%}) are not in the release; high counts" in done.out
    shown = succeeded("query", excess / "t.duckdb", "SELECT COUNT(*) FROM t WHERE age = 1", "--json").json
    (row,) = shown["rows"]
    assert (shown["rests_on"], shown["missing"], row["std_error"]) == ("certain", missing, None)
    assert row["high"] - row["low"] == missing
    assert row["estimate"] == row["low"]


def test_bounds_of_arithmetic_are_the_source_s(excess: Path) -> None:
    """Shares and differences reach as far as those could who are missing; what has no bounds has none."""
    share, others = "COUNT(*) FILTER (WHERE pay < 5) / COUNT(*)", "COUNT(*) - COUNT(*) FILTER (WHERE pay < 5)"
    sql = f"SELECT {share} AS a, {others} AS b, COUNT(*) // 2 AS c FROM t WHERE age = 1"
    with closing(duckdb.connect()) as db, api.open(excess / "t.duckdb") as release:
        db.execute(f"CREATE VIEW t AS FROM '{excess / 'people.parquet'}'")
        (true,), answer = db.execute(sql).fetchall(), release.query(sql)
    (row,) = answer.rows
    for one, value in list(zip(answer.figures, true, strict=True))[:2]:
        estimate, error, low, high = one.read_row(row)
        assert (one.rests_on, error) == ("certain", None)
        assert low <= value <= high
        assert low < estimate < high
    assert answer.figures[2].rests_on == "point"
    assert answer.figures[2].read_row(row)[1:] == (None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["SUM(pay)", "AVG(pay)"])
def test_a_sum_without_some_of_its_records_has_no_bounds(excess: Path, measure: str) -> None:
    """What those add who are missing is not known, so nothing is said of it."""
    with api.open(excess / "t.duckdb") as release:
        for sql in (one.format(measure) for one in ASKED):
            answer = release.query(sql)
            assert answer.rests_on == ("point" if any(row[-4] is not None for row in answer.rows) else "certain"), sql
            assert answer.rests_on == "certain" or answer.interval == "an estimate without an interval", sql
            assert all(row[-2:] == (None, None) and row[-3] != 0 for row in answer.rows)


def test_nothing_is_missing_where_nothing_was_left_out(ward: Path) -> None:
    """An exact count stays exact, and says that nothing is missing."""
    shown = succeeded("query", ward / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE age < 40", "--json").json
    assert (shown["rests_on"], shown["missing"]) == ("exact", 0)
    assert shown["rows"][0]["low"] == shown["rows"][0]["high"]


@pytest.mark.slow
def test_a_release_by_budget_states_no_count(town: Path) -> None:
    """How many records it has is no figure of it."""
    shown = succeeded("query", town / "people.duckdb", "SELECT COUNT(*) FROM people WHERE sex = 'F'", "--json").json
    assert shown["missing"] is None


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT COUNT(*) FROM t", 9),
        ("SELECT COUNT(*) FROM t WHERE pay > 3", 0),
        ("SELECT COUNT(*) FROM t WHERE (3 < pay) AND job = 'a'", 0),
        ("SELECT COUNT(*) FROM t WHERE pay IN (1, 2) AND age = 3", 0),
        ("SELECT COUNT(*) FROM t WHERE pay BETWEEN 1 AND 2", 0),
        ("SELECT COUNT(*) FROM t WHERE pay IS NOT NULL", 0),
        ("SELECT COUNT(*) FROM t WHERE pay IS NULL", 9),
        ("SELECT COUNT(*) FROM t WHERE pay IS DISTINCT FROM 3", 9),
        ("SELECT COUNT(*) FROM t WHERE pay > 3 OR age = 3", 9),
        ("SELECT COUNT(*) FROM t WHERE age > 3", 9),
        ("SELECT pay, COUNT(*) FROM t GROUP BY pay", 0),
        ("SELECT AVG(pay) FROM t WHERE job = 'a'", 0),
        ("SELECT AVG(age) FROM t WHERE job = 'a'", 9),
    ],
)
def test_who_is_missing_for_a_null_meets_nothing_that_refuses_null(sql: str, expected: int) -> None:
    """And whoever is missing for another reason meets everything."""
    roles = Roles((Field("age", "INTEGER"), Field("pay", "INTEGER")), (Field("job", "VARCHAR"),))
    asked = parse_query(sql, roles, "t").questions[0]
    given = Manifest.model_construct(nulls={"pay": "suppress", "age": "value"}, suppressed=9, facts={"left_out": 0})
    assert count_touching(asked, given) == expected
    others = given.model_copy(update={"facts": {"left_out": 4}})
    assert count_touching(asked, others) == (expected or 4)
    both = given.model_copy(update={"nulls": {"pay": "suppress", "age": "suppress"}})
    assert count_touching(asked, both) == (0 if "pay IN" in sql or "AVG(pay) FROM t WHERE age" in sql else 9)
