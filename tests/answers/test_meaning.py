"""Joins, sorting and sums of an analyst's SQL mean what they mean to the engine on the source."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

import privsql as api
from privsql.cli.printing import write_csv
from support.unhidden import Beside, unhidden

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = """
SELECT CAST(i % 5 AS INTEGER) AS age, ['20', '020', '30', NULL, 'x'][i % 5 + 1] AS code,
  CAST(i % 3 * 10 AS INTEGER) AS zip,
  ['0044-03-15 (BC)', '0900-01-01', '2020-01-09', '12020-01-10', 'infinity'][i % 5 + 1]::DATE AS day,
  CAST(9007199254740993 + i % 2 AS BIGINT) AS big, 'd' || (i * 7 % 6) AS job
FROM range(300) t(i)
"""
ROLES = 'quasi_identifiers = ["age", "code", "zip", "day", "big"]\nsensitive = "job"'
LOOKUPS = (
    """CREATE TABLE codes AS FROM (VALUES ('20', 'a', 1), ('020', 'b', 2), ('30', 'c', 3), (NULL, 'n', 4),
      (NULL, 'm', 5)) v(code, label, age)""",
    "CREATE TABLE zips AS FROM (VALUES ('10', 'x'), ('010', 'y'), ('20', 'z')) v(code, label)",
    "CREATE TABLE others AS FROM (VALUES ('10', 'x'), ('7', 'y'), ('07', 'y'), ('20', 'z')) v(code, label)",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """A release in which nothing is hidden, with lookups, and an engine that has the source and the same tables."""
    with unhidden(tmp_path_factory.mktemp("meaning"), ROWS, ROLES, *LOOKUPS) as found:
        yield found


def shown(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Groups as text, counts as numbers to a millionth; groups of next to nothing are none."""
    figures = [(*(str(value) for value in row[:-1]), round(float(row[-1]), 6)) for row in rows]
    return [row for row in figures if row[-1]]


def answered(both: Beside, sql: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What the release says, and what the engine says of the source."""
    release, engine = both
    return shown([row[:-3] for row in release.query(sql).rows]), shown(engine.execute(sql).fetchall())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM t JOIN codes ON t.code = codes.code WHERE job = 'd1'",
        "SELECT codes.label, COUNT(*) FROM t JOIN codes ON t.code = codes.code WHERE t.age > 0 GROUP BY codes.label",
        "SELECT c.age, COUNT(*) FROM t JOIN codes c ON t.code = c.code WHERE t.age < 3 AND job <> 'd1' GROUP BY c.age",
        "SELECT label, COUNT(*) FROM t JOIN codes USING (code) WHERE job = 'd1' GROUP BY label",
        "SELECT code, COUNT(*) FROM t JOIN codes USING (code) GROUP BY code",
        "FROM t JOIN codes USING (code) SELECT label, COUNT(*) WHERE job = 'd2' GROUP BY label",
        "FROM t JOIN codes ON t.code = codes.code SELECT COUNT(*)",
        "SELECT label, COUNT(*) FROM t JOIN others ON t.zip = others.code GROUP BY label",
        "SELECT label, COUNT(*) FROM t LEFT JOIN codes ON t.code = codes.code GROUP BY label",
        "SELECT coalesce(label, '?') AS l, COUNT(*) FROM t LEFT JOIN codes USING (code) WHERE job = 'd1' GROUP BY l",
        "SELECT COUNT(*) FROM t LEFT OUTER JOIN codes c ON t.code = c.code WHERE c.label IS NULL AND job <> 'd2'",
    ],
)
def test_joins(both: Beside, sql: str) -> None:
    """Shared names, USING, NULL among the keys, keys that equal each other and nothing of the release, FROM first."""
    found, true = answered(both, sql)
    assert sorted(found) == sorted(true)


def test_text_keys_that_are_one_number_to_the_engine(both: Beside) -> None:
    """'10' and '010' are different texts, and both equal 10: records would count twice, in bounds called certain."""
    release, engine = both
    sql = "SELECT COUNT(*) FROM t JOIN zips ON t.zip = zips.code WHERE job = 'd1'"
    assert (
        engine.execute(sql).fetchall()
        > engine.execute(sql.split(" JOIN", maxsplit=1)[0] + " WHERE job = 'd1'").fetchall()
    )
    for estimator in ("baseline", "best"):
        with pytest.raises(api.PrivsqlError, match=r"it has 2 rows with the key \(10,\)"):
            release.query(sql, estimator=estimator)


@pytest.mark.parametrize("way", ["ASC", "DESC", "ASC NULLS FIRST"])
def test_dates_sort_as_dates(both: Beside, way: str) -> None:
    """Before Christ, beyond the year 9999 and infinity: as text they are in another order."""
    release, engine = both
    grouped = f"SELECT day, COUNT(*) AS n FROM t GROUP BY day ORDER BY day {way}"
    found = [row[:2] for row in release.query(grouped).rows]
    assert found == engine.execute(f"SELECT day::VARCHAR, n FROM ({grouped}) ORDER BY day {way}").fetchall()
    assert [row[0] for row in found] != sorted((row[0] for row in found), reverse=way == "DESC")


def test_a_sum_that_no_double_holds_is_exact(both: Beside) -> None:
    """Whole numbers stay such, whatever is printed; of decimals no digit is lost."""
    release, engine = both
    sql = "SELECT SUM(big) FROM t WHERE age = 1"
    ((true,),) = engine.execute(sql).fetchall()
    assert float(true) != true
    answer = release.query(sql)
    assert answer.rows == [(true, 0.0, true, true)]
    assert isinstance(answer.rows[0][0], int)
    assert answer.rests_on == "exact"
    assert json.loads(json.dumps(answer.as_json()))["rows"][0]["estimate"] == true
    assert answer.frame()["estimate"].tolist() == [true]
    shown = io.StringIO()
    write_csv(shown, answer)
    assert shown.getvalue().splitlines()[1] == f"{true},0.0,{true},{true}"
    for expression in ("SUM(big) + 1", "SUM(big) - SUM(age)", "SUM(CAST(big AS DECIMAL(30, 1)) + 0.1)", "MAX(big)"):
        sql = f"SELECT {expression} AS x FROM t WHERE age = 1"
        answer = release.query(sql)
        ((known,),) = engine.execute(sql).fetchall()
        assert answer.rows == [(known, 0.0, known, known)], expression
        assert answer.rests_on == "exact"


def test_what_is_known_of_a_count_is_exact_however_it_was_asked(both: Beside) -> None:
    """Of all records the values' numbers are known."""
    release, engine = both
    sql = "SELECT COUNT(*) AS n FROM t WHERE job IN ('d1', 'd2')"
    ((true,),) = engine.execute(sql).fetchall()
    for estimator in ("baseline", "best"):
        answer = release.query(sql, estimator=estimator)
        assert answer.rows == [(true, 0.0, true, true)]
        assert isinstance(answer.rows[0][0], int)
        assert answer.rests_on in ("exact", "certain")
        assert answer.as_json()["figures"][0]["confidence"] == 1.0
    assert answer.rests_on == "exact"


@pytest.mark.parametrize("condition", ["age < 1e300", "age = 1e300", "big > -1e300", "age > " + "- " * 400 + "1"])
def test_absurd_numbers_are_answered_or_refused_in_one_line(both: Beside, condition: str) -> None:
    """No traceback."""
    release, engine = both
    sql = f"SELECT COUNT(*) FROM t WHERE {condition}"
    if condition.count("-") > 200:
        with pytest.raises(api.PrivsqlError, match="nested too deeply"):
            release.query(sql)
    else:
        assert release.query(sql).rows[0][0] == engine.execute(sql).fetchall()[0][0]


@pytest.mark.parametrize("sql", [None, 5, b"SELECT 1", ""])
def test_what_is_no_text_is_refused(both: Beside, sql: Any) -> None:
    """By name."""
    with pytest.raises(api.PrivsqlError):
        both[0].sql(sql)
