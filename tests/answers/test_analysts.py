"""Queries as tools and people write them: answered as the engine answers them where nothing is hidden, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from fuzz.checks import CLOSE, EMPTY, rows_alike, values
from privsql.errors import UsageError
from support.commands import by_keys, write

if TYPE_CHECKING:
    from collections.abc import Iterator

VISITS = """
SELECT CAST(17 + i * 7 % 53 AS INTEGER) AS age, ['f', 'm'][i * 5 % 7 % 2 + 1] AS sex,
  ['N', 'S', 'E', 'W'][i * 3 % 11 % 4 + 1] AS region,
  DATE '2019-12-01' + CAST(i * 13 % 360 AS INTEGER) AS day, CAST(i * i % 9 AS INTEGER) AS stay,
  ['flu', 'cold', 'gout', 'none'][i * 3 % 7 % 4 + 1] AS disease
FROM range(600) t(i)
"""
REGIONS = """
FROM (VALUES ('N', 'North', true, 700), ('S', 'South', false, 900), ('E', 'East', true, 300), ('W', 'West', false, 450))
  AS t(code, name, coast, population)
"""
FOLDER = Path(__file__).parent / "analysts"
ANSWERED = 80  # of 100 and more


def read_queries() -> dict[str, str]:
    """Return the queries by the tool and the title of each."""
    queries = {}
    for file in sorted(FOLDER.glob("*.sql")):
        for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
            title, sql = block.split("\n", 1)
            queries[f"{file.stem}: {title.removeprefix('-- ')}"] = sql
    return queries


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[privsql.Release, duckdb.DuckDBPyConnection]]:
    """A release in which nothing is hidden, with a lookup, and an engine that has both tables."""
    folder = tmp_path_factory.mktemp("analysts")
    visits, regions = write(folder / "visits.parquet", VISITS), write(folder / "regions.parquet", REGIONS)
    release = folder / "visits.duckdb"
    columns = {"qi": ["age", "sex", "region", "day", "stay"], "sensitive": "disease", "release.name": "visits"}
    privsql.publish(
        visits,
        threshold="1",
        to=release,
        seed=1,
        **by_keys({**columns, "mechanism.min_bucket_size": 1, "mechanism.allow_certain": True, "ledger.off": True}),
    )
    with duckdb.connect() as engine, privsql.open(release, attach=[regions]) as opened:
        engine.execute(f"CREATE TABLE visits AS FROM '{visits}'; CREATE TABLE regions AS FROM '{regions}'")
        for name in ("low", "high", "std_error"):
            engine.execute(f"CREATE MACRO {name}(x) AS {'0.0' if name == 'std_error' else 'x'}")
        yield opened, engine


@pytest.fixture(scope="module")
def ill(ward: Path) -> Iterator[privsql.Release]:
    with privsql.open(ward / "ill.duckdb") as opened:
        yield opened


def sort_rows(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: [str(round(one, 6) if isinstance(one, float) else one) for one in row])


def certain_rows(answer: privsql.Answer) -> list[tuple[Any, ...]]:
    """Return the rows without errors and bounds, but for groups of nobody, which the engine lacks."""
    _, rows = values(answer)
    empty = answer.may_be_empty or (False,) * len(rows)
    places = [answer.plain_columns.index(one.at) for one in answer.figures]
    return [
        row for row, mark in zip(rows, empty, strict=True)
        if not (mark and places and all(row[at] is None or abs(row[at]) < EMPTY for at in places))
    ]  # fmt: skip


@pytest.mark.slow
def test_most_queries_are_answered_as_the_engine_answers_them(
    clinic: tuple[privsql.Release, duckdb.DuckDBPyConnection],
) -> None:
    """The others are refused in one line, with a hint."""
    release, engine = clinic
    refused, queries = {}, read_queries()
    for title, sql in queries.items():
        true = engine.execute(sql).fetchall()
        try:
            answer = release.query(sql)
        except UsageError as refusal:
            refused[title] = str(refusal)
            continue
        if "NULL" in " ".join(answer.hints):  # a preview: which records come first is open
            assert len(answer.rows) == len(true), title
            assert answer.columns == tuple(one[0] for one in engine.description or ()), title
        else:
            assert rows_alike(sort_rows(certain_rows(answer)), sort_rows(true), CLOSE), title
    assert len(queries) >= 100
    assert len(queries) - len(refused) >= ANSWERED, refused
    assert all("; " in one and "\n" not in one for one in refused.values()), refused


@pytest.mark.slow
@pytest.mark.parametrize("sql", (Path(__file__).parent / "shapes.sql").read_text(encoding="utf-8").splitlines())
def test_shapes_mean_what_they_mean_to_the_engine(
    clinic: tuple[privsql.Release, duckdb.DuckDBPyConnection], sql: str
) -> None:
    """NULL in subqueries, empty results, names that hide others, positions, windows behind HAVING."""
    release, engine = clinic
    answer, true = release.query(sql.rstrip(";")), engine.execute(sql).fetchall()
    assert rows_alike(sort_rows(certain_rows(answer)), sort_rows(true), CLOSE)


@pytest.mark.slow
def test_a_preview_shows_no_sensitive_value(clinic: tuple[privsql.Release, duckdb.DuckDBPyConnection]) -> None:
    answer = clinic[0].query("SELECT disease, upper(disease) AS u, age FROM visits LIMIT 50")
    assert {row[:2] for row in answer.rows} == {(None, None)}
    assert len({row[2] for row in answer.rows}) > 1
    for sql in ("WHERE disease = 'flu' LIMIT 5", "ORDER BY disease LIMIT 5", "LIMIT 5 OFFSET 1000000"):
        if "disease" in sql:
            with pytest.raises(UsageError, match="not available for single records"):
                clinic[0].query(f"SELECT age FROM visits {sql}")
        else:
            assert clinic[0].query(f"SELECT age FROM visits {sql}").rows == []


@pytest.mark.slow
def test_functions_of_bounds_are_the_bounds_that_query_prints(ill: privsql.Release) -> None:
    plain = ill.query("SELECT sex, COUNT(*) AS n FROM ill WHERE disease = 'flu' GROUP BY sex ORDER BY sex")
    bounds = "low(COUNT(*)) AS a, high(COUNT(*)) AS b, std_error(COUNT(*)) AS c"
    sql = f"SELECT sex, {bounds} FROM ill WHERE disease = 'flu' GROUP BY sex HAVING high(COUNT(*)) > 0 ORDER BY sex"
    assert [(sex, low, high, error) for sex, _, error, low, high in plain.rows] == ill.query(sql).rows
    assert ill.query(sql).columns == ("sex", "a", "b", "c")
    shares = ill.query("SELECT low(100.0 * COUNT(*) FILTER (WHERE disease = 'flu') / COUNT(*)) FROM ill").rows
    assert 0 < shares[0][0] < 100


def test_windows_have_bounds_where_they_are_linear(ill: privsql.Release) -> None:
    """The running sum of all groups is at most as sure as their bounds, and holds the count of all records."""
    rows = ill.query(
        "SELECT sex, SUM(COUNT(*)) OVER (ORDER BY sex) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r "
        "FROM ill WHERE disease = 'flu' GROUP BY sex ORDER BY sex"
    )
    parts = ill.query("SELECT sex, COUNT(*) AS n FROM ill WHERE disease = 'flu' GROUP BY sex ORDER BY sex").rows
    estimate, error, low, high = rows.rows[-1][1:5]
    assert estimate == pytest.approx(sum(row[1] for row in parts))
    assert (error, low, high) == (None, sum(row[3] for row in parts), sum(row[4] for row in parts))
    assert rows.rows[0][6:9] == (None, None, None)
    part = "(SELECT COUNT(*) FROM ill WHERE disease = 'flu' AND age > 40)"
    with pytest.raises(UsageError, match=r"is an estimate.*FILTER"):
        ill.query(f"SELECT sex, COUNT(*) / {part} FROM ill GROUP BY sex")
    assert [one.rests_on for one in rows.figures] == ["interval", "point"]
    exact = ill.query("SELECT sex, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM ill GROUP BY sex")
    assert exact.rests_on == "exact"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT COUNT(*) FROM visits UNION SELECT COUNT(*) FROM visits", "UNION ALL"),
        ("SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT 1 FROM regions WHERE population > age)", "equality"),
        ("SELECT COUNT(*) FROM visits WHERE region IN (SELECT read_text(code) FROM regions)", "read_text|READ_TEXT"),
        (
            "SELECT COUNT(*) FROM visits WHERE region IN (SELECT code FROM duckdb_tables())",
            "no lookup|not supported|there is no",
        ),
        (
            "SELECT COUNT(*) FROM visits WHERE region IN (SELECT x FROM (SELECT getenv('HOME') AS x FROM regions))",
            "one table",
        ),
        ("SELECT COUNT(*) FROM visits WHERE region IN (SELECT code FROM regions GROUP BY repeat(code, 9))", "REPEAT"),
        ("SELECT COUNT(*) FROM visits WHERE region IN (SELECT code FROM regions ORDER BY getenv('HOME'))", "GETENV"),
        ("SELECT COUNT(*) FROM visits WHERE region IN (SELECT code FROM read_csv('/etc/passwd'))", "; "),
        ("SELECT COUNT(*) FROM visits WHERE region = (SELECT getenv('HOME'))", "; "),
        ("SELECT COUNT(*) FROM (SELECT *, getenv('HOME') AS x FROM visits) AS v WHERE x = 'a'", "GETENV"),
        ("SELECT COUNT(*) FROM visits WHERE region IN (SELECT region FROM qit)", "there is no"),
        ("SELECT age FROM visits", "LIMIT 100"),
        ("SELECT COUNT(*) OVER () AS n FROM visits LIMIT 3", "GROUP BY columns first"),
        (
            "SELECT COUNT(*) FROM visits JOIN (SELECT sex s, COUNT(*) FROM visits GROUP BY sex, age) t ON sex = s",
            "share a key",
        ),
        ("SELECT age, RANK() OVER (ORDER BY age) AS r FROM visits LIMIT 3", "GROUP BY columns first"),
        ("SELECT 'a' AS x FROM (SELECT COUNT(*) AS n FROM visits) LIMIT 5", "the subquery alone"),
        ("SELECT COUNT(*) FROM (SELECT COUNT(*) AS n FROM visits)", "the subquery alone"),
        ("SELECT MAX(n) FROM (SELECT COUNT(*) OVER () AS n FROM visits)", "; "),
        ("SELECT MAX(n) FROM (SELECT sex, COUNT(*) AS n FROM visits WHERE age > 200 GROUP BY sex)", "no rows"),
        ("SELECT COUNT(*) FROM visits FULL JOIN regions ON region = code", "not supported"),
        ("SELECT SUM(COUNT(*)) OVER (ORDER BY SUM(COUNT(*)) OVER ()) FROM visits GROUP BY sex", "OVER"),
        ("SELECT GROUPING(age) FROM visits GROUP BY sex", "GROUP BY"),
        ("SELECT low(age) FROM visits GROUP BY age", "aggregate"),
        ("SELECT STDDEV(disease) FROM visits", "quasi-identifiers"),
    ],
)
def test_what_is_refused_has_a_hint(
    clinic: tuple[privsql.Release, duckdb.DuckDBPyConnection], sql: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as refusal:
        clinic[0].query(sql)
    assert "\n" not in str(refusal.value)
