"""Statements that reach for more than the release, or never end, are refused or stopped in time."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import pytest

import privsql as api
from privsql.answers import completed
from privsql.answers.present import QuestionLimits
from privsql.errors import LateError, PrivsqlError, UsageError
from support.fitted import copy_fitted

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 2.0
MOST_BYTES = 2_500_000_000  # that the process may have taken, with its session's limit of about 1 GB
FILES = [
    "SELECT MEDIAN(job) FROM '/etc/passwd'",
    "SELECT MEDIAN(job) FROM 't.duckdb'",
    "SELECT MEDIAN(job) FROM t, 'people.parquet'",
    "SELECT MEDIAN(job) FROM t, read_csv('/etc/passwd')",
    "SELECT MEDIAN(job) FROM t, read_text('/etc/passwd')",
    "SELECT MEDIAN(job) FROM t, read_parquet('people.parquet')",
    "SELECT MEDIAN(job) FROM t, read_json_auto('https://example.org/x.json')",
    "SELECT MEDIAN(job) FROM t, glob('*')",
    "SELECT MEDIAN(job) FROM t WHERE job IN (SELECT size FROM read_blob('/etc/passwd'))",
    "SELECT (SELECT content FROM read_text('/etc/hostname')) AS a, MEDIAN(job) FROM t",
    "SELECT MEDIAN(job) FROM t, sniff_csv('/etc/passwd')",
    "SELECT MEDIAN(job) FROM t, parquet_metadata('people.parquet')",
]
TABLES = [
    "SELECT MEDIAN(job) FROM release.main.qit",
    "SELECT MEDIAN(job) FROM qit",
    "SELECT MEDIAN(weight) FROM model.weights",
    "SELECT MEDIAN(drawn_0) FROM model.completed",
    "SELECT MEDIAN(drawn_0) FROM privsql_with_draws",
    "SELECT MEDIAN(job) FROM privsql_completed_drawn_0",
    "SELECT MEDIAN(job) FROM temp.main.privsql_completed_drawn_3",
    "SELECT MEDIAN(job) FROM memory.main.t",
    "SELECT MEDIAN(job) FROM t, information_schema.tables",
    "SELECT MEDIAN(job) FROM t, duckdb_settings()",
    "SELECT MEDIAN(job) FROM t, duckdb_secrets()",
    "SELECT MEDIAN(job) FROM t, duckdb_tables()",
    "SELECT MEDIAN(job) FROM t, pg_catalog.pg_tables",
    "SELECT MEDIAN(job) FROM t, sqlite_master",
    "SELECT MEDIAN(job) FROM query('SELECT 1 AS job')",
    "SELECT MEDIAN(job) FROM query_table('qit')",
    "SELECT MEDIAN(job) FROM t, pragma_database_list()",
    "SUMMARIZE t",
]
SETTINGS = [
    "SELECT current_setting('allowed_paths') AS a, MEDIAN(job) FROM t",
    "SELECT getvariable('x') AS a, MEDIAN(job) FROM t",
    "SELECT version() AS a, MEDIAN(job) FROM t",
    "SELECT current_database() AS a, MEDIAN(job) FROM t",
    "SELECT current_schema AS a, MEDIAN(job) FROM t",
    "SELECT current_query() AS a, MEDIAN(job) FROM t",
    "SELECT getenv('HOME') AS a, MEDIAN(job) FROM t",
    "SELECT get_block_size('release') AS a, MEDIAN(job) FROM t",
    "SELECT pg_get_viewdef(1) AS a, MEDIAN(job) FROM t",
    "SET memory_limit = '100GB'",
    "PRAGMA database_list",
    "ATTACH ':memory:' AS x",
    "COPY t TO 'out.csv'",
    "INSTALL httpfs",
    "CREATE TABLE x AS SELECT 1",
    "SELECT MEDIAN(job) FROM t; DROP TABLE t",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT MEDIAN(job) FROM t",
]
CHANCE = [
    "SELECT MEDIAN(job) FROM t WHERE random() < 0.5",
    "SELECT uuid() AS u, MEDIAN(job) FROM t",
    "SELECT now() AS u, MEDIAN(job) FROM t",
    "SELECT current_date AS u, MEDIAN(job) FROM t",
    "SELECT current_timestamp AS u, MEDIAN(job) FROM t",
    "SELECT localtime AS u, MEDIAN(job) FROM t",
    "SELECT today() - DATE '2000-01-01' AS u, MEDIAN(job) FROM t",
    "SELECT age(DATE '2000-01-01') AS u, MEDIAN(job) FROM t",
    "SELECT ago(INTERVAL 1 DAY) AS u, MEDIAN(job) FROM t",
    "SELECT nextval('s') AS u, MEDIAN(job) FROM t",
    "SELECT setseed(0.5) AS u, MEDIAN(job) FROM t",
    "SELECT MEDIAN(job) FROM t TABLESAMPLE 10%",
    "SELECT MEDIAN(job) FROM t USING SAMPLE 10",
    "SELECT RESERVOIR_QUANTILE(job, 0.5) FROM t",
    "SELECT MEDIAN(job) FROM t WHERE sleep_ms(1000) IS NULL",
    "SELECT write_log('x') AS u, MEDIAN(job) FROM t",
]
ENDLESS = [
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT MEDIAN(n) FROM r, t",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r WHERE n < 10) SELECT MEDIAN(n + job) FROM r, t",
    "SELECT MEDIAN(a.job) FROM t a, t b, t c, t d",
    "SELECT COUNT(DISTINCT a.job + b.age + c.age + d.age) FROM t a, t b, t c, t d",
    "SELECT a.age, b.age, c.age, d.age, MEDIAN(a.job) FROM t a, t b, t c, t d GROUP BY ALL",
    "SELECT MEDIAN(r) FROM (SELECT ROW_NUMBER() OVER (ORDER BY a.job, b.job, c.age) AS r FROM t a, t b, t c)",
    "SELECT MEDIAN(job) FROM t, range(1000000000)",
    "SELECT MEDIAN(job) FROM t, generate_series(1, 1000000000)",
    "SELECT MEDIAN(u) FROM (SELECT unnest(range(1000000000)) AS u, job FROM t)",
    "SELECT MEDIAN(job) FROM t WHERE list_sum(range(1000000000)) > job",
    "SELECT LEN(LIST(a.job)) AS n FROM t a, t b, t c, t d",
    "SELECT LENGTH(STRING_AGG(a.sex, '')) AS n FROM t a, t b, t c, t d",
]
LONG = [
    "SELECT MAX(length(repeat(sex, 1000000000))) AS n, MEDIAN(job) FROM t",
    "SELECT MAX(length(lpad(sex, 1000000000, 'x'))) AS n, MEDIAN(job) FROM t",
    "SELECT MAX(length(format('{:>1000000000}', sex))) AS n, MEDIAN(job) FROM t",
    "SELECT MAX(length(printf('%1000000000d', age))) AS n, MEDIAN(job) FROM t",
    "SELECT MAX(length(bar(age, 0, 1, 1000000000))) AS n, MEDIAN(job) FROM t",
    "SELECT MAX(length(replace(sex, 'F', '" + "x" * 40_000 + "'))) AS n, MEDIAN(job) FROM t",
    "SELECT MAX(len(list_resize([age], 1000000000))) AS n, MEDIAN(job) FROM t",
    "SELECT MEDIAN(len(l)) FROM (SELECT LIST(age) OVER (ORDER BY job) AS l FROM t)",
    "SELECT MAX(NULL::INT[100000]) AS n, MEDIAN(job) FROM t",
    "SELECT MEDIAN(len(list_transform([age], x -> x))) FROM t WHERE job > 1",
    "SELECT MEDIAN(job + " + "+".join(["age"] * 3_000) + ") FROM t",
    "SELECT MEDIAN(job) FROM t WHERE " + "(" * 5_000 + "job = 1" + ")" * 5_000,
]


def doubled(join: str, times: int) -> str:
    """Return a query in which a text or list becomes twice as long some times over."""
    inner = "(SELECT sex AS s, [age] AS l, job FROM t)"
    for _ in range(times):
        inner = f"(SELECT {join}, job FROM {inner})"
    return f"SELECT MAX(length(s)) AS n, MEDIAN(job) FROM {inner}"


def nested(levels: int) -> str:
    """Return a query whose every level names the one inside it several times."""
    inner = "SELECT MEDIAN(job) FROM t"
    for _ in range(levels):
        inner = f"SELECT ({inner}) AS x ORDER BY 1 LIMIT 1"
    return f"SELECT MEDIAN(job) + ({inner}) AS x FROM t ORDER BY 1 LIMIT 1"


def chained(levels: int) -> str:
    """Return a query of WITH queries, each of which joins the one before it with itself."""
    parts = ["c0 AS (SELECT job AS x FROM t)"]
    parts += [f"c{at} AS (SELECT a.x + b.x AS x FROM c{at - 1} a, c{at - 1} b)" for at in range(1, levels)]
    return f"WITH {', '.join(parts)} SELECT MEDIAN(x) FROM c{levels - 1}"


GROWING = [
    doubled("s, [l, l] AS l", 30).replace("length(s)", "len(l)"),
    doubled("s, ARRAY[l, l] AS l", 30).replace("length(s)", "len(l)"),
    doubled("{'a': s, 'b': s} AS s, l", 30).replace("length(s)", "hash(s)"),
    doubled("row(s, s) AS s, l", 30).replace("length(s)", "hash(s)"),
    doubled("s, list_zip(l, l) AS l", 30).replace("length(s)", "len(l)"),
    doubled("s || s AS s, l", 30),
    doubled("concat(s, s, s) AS s, l", 20),
    doubled("s, l + l AS l", 30).replace("length(s)", "len(l)"),
    doubled("s, list_concat(l, l) AS l", 30).replace("length(s)", "len(l)"),
    doubled("replace(s, 'F', 'FF') AS s, l", 30),
]
named = ", ".join(f"a{at} + a{at} AS a{at + 1}" for at in range(30))
GROWING += [chained(30), chained(12), f"SELECT MEDIAN(job) AS a0, {named} FROM t"]
HOSTILE = [*FILES, *TABLES, *SETTINGS, *CHANCE, *LONG, *GROWING]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[api.Release]:
    """Open, with its model; each worker has a copy."""
    with copy_fitted(tmp_path_factory) as place, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        with api.open(place / "t.duckdb") as opened:
            yield opened


def test_there_are_enough_of_them() -> None:
    assert len({*HOSTILE, *ENDLESS}) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("sql", HOSTILE)
def test_a_hostile_statement_is_refused(release: api.Release, sql: str) -> None:
    """At once, in one line; the next question is answered."""
    begun = time.monotonic()
    with pytest.raises(UsageError) as refusal:
        release.query(sql)
    assert time.monotonic() - begun < 5 * SECONDS
    assert len(str(refusal.value).splitlines()) == 1
    assert release.query("SELECT COUNT(*) FROM t").rows[0][0] == 1600


@pytest.mark.slow
@pytest.mark.parametrize("sql", ENDLESS)
def test_an_endless_statement_is_stopped(release: api.Release, sql: str) -> None:
    """The limit is for all tables together, and memory has one, too."""
    begun = time.monotonic()
    with pytest.raises(PrivsqlError):
        release.query(sql, limits=QuestionLimits(SECONDS, 10_000))
    assert time.monotonic() - begun < 5 * SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MOST_BYTES
    assert release.query("SELECT COUNT(*) FROM t").rows[0][0] == 1600


@pytest.mark.slow
def test_there_is_a_limit_that_nobody_sets(release: api.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completed, "SECONDS", 0.5)
    with pytest.raises(LateError, match="longer than"):
        release.query(ENDLESS[3])


HARMLESS = [
    nested(40),
    "SELECT " + ", ".join(f"MEDIAN(age + {at} + job) AS m{at}" for at in range(20)) + " FROM t WHERE job = 1",
    "SELECT sex || ' of ' || job AS who, MEDIAN(age) FROM t GROUP BY who",
    "SELECT MEDIAN(len(string_split(sex || 'a,b', ','))) AS n FROM t WHERE job = 1",
    "SELECT QUANTILE_DISC(age, [0.25, 0.75])[1] AS q FROM t WHERE job = 2",
    "SELECT strftime(DATE '2000-01-01' + age, '%Y-%m') AS m, AVG(job) FROM t GROUP BY m",
    "SELECT WEIGHTED_AVG(job, age) AS w FROM t",
    "SELECT replace(sex, 'F', 'women') AS s, AVG(job) FROM t GROUP BY s",
    "SELECT if(job > 3, 'high', 'low') AS part, MEDIAN(age) FROM t GROUP BY part",
    "SELECT nullif(job, 3) AS j, MEDIAN(age) FROM t GROUP BY j",
    "SELECT job, ENTROPY(age) AS e, KURTOSIS(points) AS k FROM t GROUP BY job",
    "SELECT BOOL_OR(job = 7) AS any7, MEDIAN(age) FROM t",
    "SELECT split_part(sex || '-x', '-', 1) AS s, MAX(job) FROM t GROUP BY s",
    "SELECT greatest(job, 3) AS g, round(AVG(age), 1) AS a FROM t GROUP BY g",
]


@pytest.mark.slow
@pytest.mark.parametrize("sql", HARMLESS)
def test_what_only_looks_hostile_is_answered(release: api.Release, sql: str) -> None:
    assert release.query(sql).rows
