"""Expressions, several aggregate functions, arithmetic and grouping sets: the engine's own answers on the source."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import privsql as api
from support.loops import rest_slow
from support.unhidden import Beside, unhidden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.answer import Answer

ROWS = """
SELECT CAST(17 + i * 7 % 43 AS INTEGER) AS age, ['f', 'm', NULL, 'Ab c'][i % 4 + 1] AS sex,
  DATE '2019-11-25' + CAST(i * 5 % 90 AS INTEGER) AS day, CASE WHEN i % 5 = 0 THEN NULL ELSE i % 11 END AS hours,
  CAST(i % 7 * 1.25 AS DECIMAL(6, 2)) AS größe, ['flu', 'cold', 'Gout', 'none'][i * 3 % 7 % 4 + 1] AS ill
FROM range(420) t(i)
"""
ROLES = 'quasi_identifiers = ["age", "sex", "day", "hours", "größe"]\nsensitive = "ill"'


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """A release in which nothing is hidden, and an engine that has the source."""
    with unhidden(tmp_path_factory.mktemp("expressions"), ROWS, ROLES) as found:
        yield found


def values(answer: Answer) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names and values in the order of the columns, without errors and bounds."""
    hidden = {one.at + i for one in answer.figures for i in (1, 2, 3)}
    shown = [i for i in range(len(answer.columns)) if i not in hidden]
    return [answer.columns[i] for i in shown], [tuple(row[i] for i in shown) for row in answer.rows]


def alike(ours: Any, theirs: Any) -> bool:
    """Numbers to a millionth, anything else as it is, with its type."""
    if isinstance(theirs, int | float | Decimal) and not isinstance(theirs, bool) and ours is not None:
        return math.isclose(float(ours), float(theirs), rel_tol=1e-6, abs_tol=1e-6)
    return type(ours) is type(theirs) and bool(ours == theirs)


def compare(both: Beside, sql: str) -> Answer:
    """The answer, which is the engine's."""
    release, engine = both
    answer = release.query(sql)
    names, rows = values(answer)
    true = engine.execute(sql).fetchall()
    named = [column[0] for column in engine.description or ()]
    single = answer.figures[0].name == "estimate" and len(answer.figures) == 1
    assert names == named or (single and sorted(names[:-1]) == sorted(set(named) & set(names))), sql
    true = true if "ORDER BY" in sql else sorted(true, key=str)
    rows = rows if "ORDER BY" in sql else sorted(rows, key=str)
    assert len(rows) == len(true), sql
    assert all(alike(a, b) for row, other in zip(rows, true, strict=True) for a, b in zip(row, other, strict=True)), (
        sql,
        rows,
        true,
    )
    return answer


QUERIES = """
SELECT age // 10 AS band, COUNT(*) AS n FROM t GROUP BY band ORDER BY band
SELECT age // 10 AS band, COUNT(*) AS n FROM t WHERE ill = 'flu' GROUP BY band ORDER BY n DESC, band
SELECT CASE WHEN age < 30 THEN 'young' WHEN age < 45 THEN 'middle' ELSE 'old' END AS a, COUNT(*) AS n FROM t GROUP BY ALL ORDER BY ALL
SELECT year(day), month(day) AS m, COUNT(*) AS n FROM t WHERE ill <> 'none' GROUP BY ALL ORDER BY 1, 2
SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM t WHERE ill IN ('flu', 'cold') GROUP BY m ORDER BY m
SELECT day, COUNT(*) AS n FROM t WHERE ill = 'flu' GROUP BY day ORDER BY day DESC LIMIT 5
SELECT day + INTERVAL 1 DAY AS d, COUNT(*) AS n FROM t GROUP BY d ORDER BY d LIMIT 3
SELECT coalesce(sex, '?') AS s, COUNT(*) AS n FROM t WHERE regexp_matches(ill, '^[fc]') GROUP BY s ORDER BY s
SELECT upper(sex) AS s, COUNT(*) AS n FROM t WHERE length(sex) = 1 OR ill = 'Gout' GROUP BY s ORDER BY s
SELECT sex AS s, upper(sex) || '!' AS loud, COUNT(*) AS n FROM t GROUP BY sex ORDER BY 1
SELECT lower(ill) AS i, COUNT(*) AS n FROM t WHERE age % 2 = 0 GROUP BY i ORDER BY i
SELECT CASE WHEN ill IN ('flu', 'cold') THEN 'light' ELSE ill END AS i, COUNT(*) AS n FROM t GROUP BY i ORDER BY i
SELECT CAST(größe AS INTEGER) AS g, COUNT(*) AS n FROM t WHERE age < 99 OR ill = 'flu' GROUP BY g ORDER BY g
SELECT COUNT(1) AS a, COUNT(hours) AS b, COUNT(ill) AS c, COUNT(*) AS d FROM t
SELECT COUNT(hours) AS b, COUNT(*) AS d FROM t WHERE ill = 'flu'
SELECT COUNT(*) FILTER (WHERE ill = 'flu') AS f, COUNT(*) FILTER (WHERE age > 30 AND ill = 'cold') AS c, COUNT(*) AS n FROM t
SELECT sex, COUNT(*) FILTER (WHERE ill = 'flu') AS f, COUNT(*) AS n FROM t GROUP BY sex ORDER BY sex
SELECT sex, COUNT(*) FILTER (WHERE ill = 'nothing') AS f FROM t GROUP BY sex ORDER BY sex
SELECT sex, 100.0 * COUNT(*) FILTER (WHERE ill = 'flu') / COUNT(*) AS share FROM t GROUP BY sex ORDER BY share DESC, sex
SELECT AVG(CASE WHEN ill = 'flu' THEN 1.0 ELSE 0 END) AS share FROM t WHERE age > 30
SELECT AVG((ill = 'flu')::INTEGER) AS share, SUM(CASE WHEN ill = 'flu' THEN 2 ELSE 0 END) AS twice FROM t
SELECT AVG(CASE WHEN ill = 'flu' THEN 1 ELSE 0 END) AS share, SUM(CASE WHEN ill = 'flu' THEN 2 ELSE 0 END) AS s FROM t WHERE age > 300
SELECT COUNT_IF(ill = 'flu') AS a, COUNT_IF(age > 30) AS b FROM t
SELECT COUNT(*) - COUNT(*) FILTER (WHERE ill = 'flu') AS others, COUNT(*) AS n FROM t WHERE sex = 'f'
SELECT ROUND(100 * COUNT(*) FILTER (WHERE ill = 'flu') / COUNT(*) FILTER (WHERE ill <> 'none'), 1) AS share FROM t
SELECT sex, AVG(age) AS a, SUM(hours) AS h, COUNT(*) AS n FROM t WHERE ill = 'flu' GROUP BY sex ORDER BY sex
SELECT AVG(age * 2 + 1) AS a, SUM(hours // 2) AS h FROM t WHERE ill = 'flu'
SELECT MIN(day) AS a, MAX(day) AS b, MEDIAN(age) AS c, COUNT(DISTINCT sex) AS d, MIN(sex) AS e, MAX(age) - MIN(age) AS f FROM t
SELECT sex, MIN(day) AS first, COUNT(*) FILTER (WHERE ill = 'flu') AS n FROM t GROUP BY sex ORDER BY sex
SELECT MIN(age) AS a, MIN(day) AS b, COUNT(*) AS n FROM t WHERE age > 300
SELECT sex, COUNT(*) AS n FROM t GROUP BY sex HAVING COUNT(*) FILTER (WHERE ill = 'flu') > 20 AND AVG(age) < 100 ORDER BY ALL DESC
SELECT sex, COUNT(*) AS n FROM t GROUP BY sex HAVING n / 2 > 10 ORDER BY n * -1, sex
SELECT sex, COUNT(*) AS n FROM t GROUP BY sex ORDER BY COUNT(*) FILTER (WHERE ill = 'cold') DESC, upper(sex)
SELECT sex, ill, COUNT(*) AS n FROM t GROUP BY ROLLUP (sex, ill) ORDER BY ALL
SELECT sex, age // 20 AS b, COUNT(*) AS n, AVG(age) AS a FROM t WHERE ill <> 'none' GROUP BY CUBE (sex, b) ORDER BY ALL
SELECT sex, ill, COUNT(*) AS n FROM t WHERE sex IS NOT NULL GROUP BY GROUPING SETS ((sex), (ill), ()) ORDER BY 1, 2, 3
SELECT COUNT(*) AS n FROM t WHERE ill = 'flu' AND sex = 'x' GROUP BY ROLLUP (sex)
SELECT COUNT(*) AS n FROM t GROUP BY (sex, ill) ORDER BY n, sex, ill
SELECT 'all' AS which, COUNT(*) AS n FROM t WHERE ill = 'flu'
SELECT sex, COUNT(*) FROM t WHERE ill = 'flu' GROUP BY sex ORDER BY sex
SELECT COUNT(*), AVG(age) FROM t
SELECT COUNT(*), COUNT(*) / 4 FROM t WHERE ill = 'flu'
SELECT COUNT(*) FROM t WHERE age BETWEEN 20 AND 30 AND upper(ill) LIKE '%U%'
SELECT COUNT(*) AS n FROM t WHERE CASE WHEN age > 30 THEN sex = 'f' ELSE sex = 'm' END AND ill = 'flu'
WITH c AS (SELECT sex, COUNT(*) AS n FROM t WHERE ill = 'flu' GROUP BY sex) SELECT upper(sex) AS s, n, 2 * n AS m FROM c WHERE n > 10 ORDER BY n DESC, c.sex
SELECT * FROM (SELECT age // 10 AS band, COUNT(*) AS n, COUNT(*) FILTER (WHERE ill = 'flu') AS f FROM t GROUP BY band) AS c WHERE band > 1 AND f > 0 ORDER BY band LIMIT 3
WITH c AS (SELECT age // 10 AS band, COUNT(*) AS n, COUNT(*) FILTER (WHERE ill = 'flu') AS f FROM t GROUP BY ALL), d AS (SELECT band, n, 100.0 * f / n AS share FROM c WHERE n > 20) SELECT share, band FROM d WHERE band <> 3 ORDER BY share
WITH c AS (SELECT COUNT(*) AS n, AVG(age) AS a FROM t WHERE ill = 'flu') SELECT n, a, n * a AS s FROM c
FROM (SELECT sex, ill, COUNT(*) AS n FROM t GROUP BY ROLLUP (sex, ill) HAVING n > 3) ORDER BY n, sex, ill
SELECT 2 * SUM(age) AS double, SUM(age) / COUNT(*) AS mean FROM t WHERE ill = 'flu'
"""  # noqa: E501 (one query, one line)


@pytest.mark.parametrize("sql", rest_slow(QUERIES.strip().splitlines()))
def test_what_analysts_write(both: Beside, sql: str) -> None:
    """Where nothing is hidden, answers are the source's: the same rows, names, types and order."""
    answer = compare(both, sql)
    for one in answer.figures:
        for row in answer.rows:
            estimate, error, low, high = one.read_row(row)
            if estimate is not None and not isinstance(estimate, str | dt.date):
                assert low <= estimate <= high, (one, row)
                assert error is None or 0 <= error < 1e-3 + 1e-5 * abs(estimate), (one, row)


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT n FROM (SELECT COUNT(*) AS n FROM t GROUP BY sex LIMIT 2)", "LIMIT inside a subquery"),
        ("SELECT SUM(n) FROM (SELECT sex, COUNT(*) AS n FROM t GROUP BY sex LIMIT 2)", "put it at the end"),
        ("SELECT n, COUNT(*) AS m FROM (SELECT COUNT(*) AS n FROM t GROUP BY sex) GROUP BY ROLLUP (n)", "ROLLUP"),
        ("SELECT a.n FROM (SELECT COUNT(*) AS n FROM t) AS a JOIN t ON TRUE", "JOIN"),
        ("WITH RECURSIVE a AS (SELECT COUNT(*) AS n FROM t) SELECT n FROM a", "WITH"),
        ("WITH a(m) AS (SELECT COUNT(*) AS n FROM t) SELECT m FROM a", "WITH"),
        ("SELECT sex FROM (SELECT sex FROM t)", "can't be listed"),
        ("SELECT * FROM (SELECT sex, COUNT(*) FROM t GROUP BY sex)", "needs a name for each"),
        ("SELECT nothing FROM (SELECT COUNT(*) AS n FROM t) AS c", "'nothing'"),
        ("SELECT COUNT(*) // 2 AS n FROM t WHERE ill = 'flu'", "no interval is known"),
        ("SELECT MIN(age) AS n FROM t WHERE ill = 'flu'", "no sensitive column"),
        ("SELECT COUNT(*) AS n, age AS n_low FROM t GROUP BY age", "called 'n_low'"),
        ("SELECT COUNT(*), COUNT(*) FROM t", "give one an alias"),
        ("SELECT age || ill AS x, COUNT(*) AS n FROM t GROUP BY x", "quasi-identifiers and sensitive columns together"),
        ("SELECT 1 AS x, COUNT(*) AS n FROM t GROUP BY x", "a constant"),
        ("SELECT COUNT(*) AS n FROM t GROUP BY CUBE (age, sex, day, hours, größe, ill, age + 1)", "grouping sets"),
        ("SELECT COUNT(*) AS n, n * 2 AS m FROM t", "'n'"),
        ("WITH a AS (SELECT COUNT(*) AS n FROM t)"
         + "".join(f", a{i} AS (SELECT n + n AS n FROM a{i - 1 or ''})" for i in range(1, 30))
         + " SELECT n FROM a29", "too large"),
        ("SELECT " + ", ".join(f"COUNT_IF(age > {i}) AS n{i}" for i in range(70)) + " FROM t", "at most 64"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_by_name(both: Beside, sql: str, named: str) -> None:
    """In one line."""
    with pytest.raises(api.PrivsqlError, match=named) as caught:
        both[0].query(sql)
    assert len(str(caught.value).splitlines()) == 1
