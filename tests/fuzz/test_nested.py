"""Aggregates over the result of other aggregates: all pairs, grouped or not, over WITH and over subqueries."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql as api
from privsql.errors import PrivsqlError
from support.commands import by_keys, write

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE = """
SELECT 20 + i * 7 % 50 AS age, ['f', 'm', NULL][i % 3 + 1] AS sex, CASE WHEN i % 5 > 0 THEN i % 11 END AS hours,
  DATE '2020-01-01' + CAST(i % 9 AS INTEGER) AS day, ['flu', 'cold', 'none', 'gout', 'a', 'b'][i * 5 % 6 + 1] AS ill,
  i * 31 % 97 AS pay
FROM range(210) t(i)
"""
MECHANISMS: dict[str, dict[str, Any]] = {
    "ill = 'flu'": {"sensitive": "ill", "threshold": "1/2", "algorithm": "two-size"},
    "pay > 40": {"sensitive": "pay", "mechanism": "permute", "k": 3, "e": 5},
}
INNER = (
    "COUNT(*)", "COUNT(hours)", "SUM(hours)", "AVG(hours)", "MIN(hours)", "MAX(sex)", "MEDIAN(hours)", "MIN(day)",
    "COUNT(DISTINCT hours)", "STDDEV(hours)", "quantile_cont(hours, 0.3)", "COUNT_IF(hours > 3)", "2 * SUM(hours) + 1",
    "COUNT(*) FILTER (WHERE {})", "SUM(hours) FILTER (WHERE {})", "1.0 * COUNT(*) FILTER (WHERE {}) / COUNT(*)",
)  # fmt: skip
OUTER = (
    "COUNT(*)", "COUNT(m)", "SUM(m)", "AVG(m)", "MIN(m)", "MAX(m)", "MEDIAN(m)", "COUNT(DISTINCT m)", "STDDEV(m)",
    "quantile_cont(m, 0.5)", "SUM(m) / COUNT(*)", "COUNT_IF(m > 3)", "SUM(m) FILTER (WHERE m > 3)", "SUM(m * 2)",
    "SUM(m) + SUM(m)", "MAX(sex)", "SUM(m) OVER ()", "FIRST(m)", "SUM(DISTINCT m)", "STRING_AGG(sex, ',')", "LIST(m)",
)  # fmt: skip
GROUPS = ("GROUP BY sex", "GROUP BY sex, age", "GROUP BY ROLLUP (sex, age)", "")


@pytest.fixture(scope="module", params=MECHANISMS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, str]]:
    """A release, an engine with its source, and a condition on the sensitive column."""
    folder = tmp_path_factory.mktemp("nested")
    source = write(folder / "t.parquet", TABLE)
    columns = ["age", "sex", "hours", "day"]
    api.publish(
        source, qi=columns, to=folder / "t.duckdb", **by_keys({**MECHANISMS[request.param], "ledger.off": True})
    )
    with api.open(folder / "t.duckdb") as release, duckdb.connect() as engine:
        engine.execute(f"CREATE TABLE t AS FROM '{source}'")
        yield release, engine, request.param


def written(condition: str) -> Iterator[str]:
    """All of them: every pair of functions in every form."""
    for inner, outer, by, is_named, is_grouped, has_where in itertools.product(
        INNER, OUTER, GROUPS, (True, False), (True, False), (True, False)
    ):
        shown = "'x' AS sex" if not by else "sex, age" if "age" in by else "sex"
        where = f"WHERE {condition}" if has_where else ""
        below = f"SELECT {shown}, {inner.format(condition)} AS m FROM t {where} {by}"
        first, source = (f"WITH q AS ({below}) ", "q") if is_named else ("", f"({below}) AS q")
        keys, last = ("sex, ", " GROUP BY sex") if is_grouped else ("", "")
        yield f"{first}SELECT {keys}{outer} AS z FROM {source}{last}"


def check(release: Any, engine: Any, sql: str) -> bool:
    """Whether a query is answered: then as the engine does, where the answer is called exact."""
    try:
        answer = release.query(sql)
    except PrivsqlError as refusal:
        assert len(str(refusal).splitlines()) == 1, sql
        return False
    true = engine.execute(sql).fetchall()
    if answer.rests_on == "exact":
        ours, theirs = (sorted(rows, key=str) for rows in (answer.plain_rows, true))
        assert len(ours) == len(theirs), sql
        for row, other in zip(ours, theirs, strict=True):
            assert row[:-1] == other[:-1], sql
            same = row[-1] == other[-1]
            with suppress(TypeError):
                same = same or math.isclose(row[-1], other[-1], rel_tol=1e-9)
            assert same, (sql, row, other)
    return True


@pytest.mark.slow
def test_a_sum_over_sums_and_counts(opened: tuple[Any, Any, str]) -> None:
    """A sum of what groups have is that of all, whatever column it adds up: the name of one was looked for outside."""
    release, engine, condition = opened
    for inner, by, where in itertools.product(
        ("SUM(hours)", "COUNT(hours)", "COUNT(*)", "SUM(hours + age)"), ("sex", "sex, age"), ("", f"WHERE {condition}")
    ):
        sql = f"SELECT SUM(m) FROM (SELECT {by}, {inner} AS m FROM t {where} GROUP BY {by})"
        assert check(release, engine, sql), sql
        (row,) = release.query(sql).rows
        (alone,) = release.query(f"SELECT {inner} FROM t {where}").rows
        assert row == pytest.approx(alone), sql


@pytest.mark.slow
def test_some_pairs_of_aggregates(opened: tuple[Any, Any, str]) -> None:
    """Every 97th of them: no traceback, and what is called exact is."""
    release, engine, condition = opened
    counted = [check(release, engine, sql) for sql in itertools.islice(written(condition), 5, None, 97)]
    assert sum(counted) > len(counted) / 5


@pytest.mark.soak(part="fuzz")
def test_all_pairs_of_aggregates(opened: tuple[Any, Any, str]) -> None:
    """All of them."""
    release, engine, condition = opened
    for sql in written(condition):
        check(release, engine, sql)
