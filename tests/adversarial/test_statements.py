"""A thousand statements of an analyst who wants more than an answer, on releases of every mechanism.

Each is built of a form, in which something hostile takes the place of a table, an expression or the whole. It must be
refused in one line, or answered without a word of what lies around the release, and leave everything as it was.
"""

from __future__ import annotations

import random
import re
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

import privsql
from privsql.errors import PrivsqlError
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from privsql import Release

CANARY = "8d1f7f3a"
SECONDS = 60  # after which a statement is said never to end; what is answered takes some milliseconds
SEED = 1

SOURCES = """
'secret.csv' | "secret.csv" | 'raw.parquet' | read_csv('secret.csv') | read_text('secret.csv') | read_blob('*')
read_parquet('raw.parquet') | read_json_auto('secret.json') | glob('*') | glob('/etc/*') | sniff_csv('secret.csv')
parquet_schema('raw.parquet') | parquet_metadata('raw.parquet') | duckdb_settings() | duckdb_secrets()
duckdb_tables() | duckdb_databases() | pragma_table_info('qit') | pragma_database_list() | information_schema.tables
pg_catalog.pg_class | sqlite_master | privsql_manifest | qit | st | release.qit | release.main.st
system.main.duckdb_settings() | memory.main.qit | temp.qit | range(100000000000) | generate_series(1, 100000000000)
repeat('x', 1000000000) | (VALUES (1)) | unnest([1, 2]) | (SELECT * FROM read_text('secret.csv')) | (FROM {table})
{table} TABLESAMPLE 50% | {table} AT (VERSION => 1) | df | query('SELECT 1') | query_table('qit')
{table} POSITIONAL JOIN 'secret.csv' | {table}, 'secret.csv' | python_udf() | {table} CROSS JOIN range(1000000000)
{table} JOIN LATERAL (SELECT content FROM read_text('secret.csv')) ON TRUE | 'https://example.org/x.parquet'
's3://bucket/x' | '/dev/stdin' | '/proc/self/environ' | read_text('/proc/self/environ')
{table} NATURAL JOIN privsql_manifest | {table} PIVOT (COUNT(*) FOR {qi} IN (1)) | arrow_scan(1, 2, 3)
pandas_scan(1)
"""
VALUES = """
(SELECT content FROM read_text('secret.csv')) | getenv('PRIVSQL_SECRET') | current_setting('home_directory')
version() | (SELECT COUNT(*) FROM glob('*')) | current_database() | current_query() | random() | nextval('s')
txid_current() | now() | (WITH RECURSIVE r AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM r) SELECT COUNT(*) FROM r)
error(getenv('PRIVSQL_SECRET')) | list_sum(range(100000000000)) | repeat('x', 100000000000) | lambda x: x | ? | $1
$canary | :canary | @canary | canary | EXISTS (FROM 'secret.csv') | {qi} IN (FROM 'secret.csv')
{qi} = ANY (SELECT 1) | COLUMNS('.*') | bid | rowid | weight | "{table}".rowid | (FROM st LIMIT 1)
MAX({qi}) OVER () | regexp_matches('aaaaaaaaaaaaaaaaaaaaaaaa!', '(a+)+$') | 1/0 | CAST('x' AS INTEGER)
99999999999999999999999999999999999999999999 | 1e999 | 'NaN'::DOUBLE | '\\' OR TRUE -- | NULL | TRUE | hash({qi})
md5('x') | sleep_ms(100000) | pg_sleep(100) | system('id') | shell('id') | eval('1') | write_log('x') | [1][1]
array_agg({qi}) | string_agg({qi}, ',') | histogram({qi}) | json_serialize_sql('SELECT 1')
parse_path('secret.csv') | {{}} | approx_quantile({qi}, 0.5) | list({qi}) | first({qi}) | mode({qi})
any_value({qi}) | arg_max({qi}, {qi}) | stats({qi}) | replace({qi}::VARCHAR, '', repeat('x', 1000000000))
lpad({qi}::VARCHAR, 1000000000, 'x') | format('{{:>1000000000}}', {qi}) | printf('%1000000000d', {qi}) | today()
regexp_replace({qi}::VARCHAR, '.', '\\0\\0', 'g') | 'now'::TIMESTAMP | 'today'::DATE | age(DATE '2020-01-01') | uuid()
CURRENT_DATE | LOCALTIMESTAMP | get_current_time() | setseed(0.5) | current_user | session_user | pg_typeof({qi})
list_aggregate([{qi}], 'sum') | {qi}::VARCHAR[] | CAST({qi} AS STRUCT(a INTEGER)) | try(error('x')) | write_log({qi})
COUNT(*) FILTER (WHERE (FROM 'secret.csv')) | SUM((SELECT 1)) | COUNT(DISTINCT getenv('PRIVSQL_SECRET'))
CASE WHEN getenv('PRIVSQL_SECRET') > '' THEN 1 END | GROUPING({qi}) | CASE {qi} WHEN (FROM 'secret.csv') THEN 1 END
'x' || repeat('x', 100000000000) | coalesce({qi}, (SELECT content FROM read_text('secret.csv'))) | bit_count({qi})
"""
WHOLE = """
COPY {table} TO 'out.csv' | COPY (SELECT 1) TO 'out.parquet' | EXPORT DATABASE 'out' | IMPORT DATABASE 'out'
CHECKPOINT | ATTACH 'out.duckdb' | ATTACH ':memory:' AS m | DETACH release | USE memory | CREATE TABLE t AS SELECT 1
DROP TABLE qit | CREATE MACRO count(*) AS 1 | CREATE OR REPLACE VIEW {table} AS SELECT 1 | DELETE FROM st
UPDATE st SET bid = 1 | VACUUM | INSERT INTO qit SELECT * FROM qit | SET enable_external_access = true
SET lock_configuration = false | RESET ALL | SET memory_limit = '1TB' | SET SESSION search_path = 'memory'
PRAGMA enable_profiling | PRAGMA database_list | SHOW ALL | INSTALL httpfs | LOAD 'x.duckdb_extension'
FORCE INSTALL json | CALL pragma_version() | DESCRIBE {table} | SUMMARIZE {table}
EXPLAIN SELECT COUNT(*) FROM {table} | EXPLAIN ANALYZE FROM qit | BEGIN | COMMIT | PREPARE p AS SELECT 1 | EXECUTE p
FROM qit | SELECT COUNT(*) FROM {table}; DROP TABLE qit | FROM {table} SELECT COUNT(*) | TABLE qit | VALUES (1)
SELECT 1 | SELECT * FROM qit | WITH {table} AS (FROM 'secret.csv') SELECT COUNT(*) FROM {table}
SELECT COUNT(*) INTO out FROM {table} | .shell id | \\! id
SELECT COUNT(*) FROM {table} UNION ALL FROM read_text('secret.csv') | SELECT (SELECT COUNT(*) FROM {table})
MERGE INTO qit | CREATE SECRET s (TYPE s3) | COMMENT ON TABLE qit IS 'x' | ALTER TABLE qit ADD COLUMN x INT
TRUNCATE qit | SELECT | CREATE FUNCTION f() AS getenv('PRIVSQL_SECRET')
SELECT COUNT(*) FROM {table} WHERE {qi} = 1 -- | GRANT ALL | KILL 1
"""
FORMS = {
    "source": [
        "SELECT COUNT(*) FROM {hostile}",
        "SELECT * FROM {hostile}",
        "SELECT COUNT(*) FROM {table} JOIN {hostile} AS h ON TRUE",
        "SELECT COUNT(*) FROM {table} WHERE {qi} IN (SELECT 1 FROM {hostile})",
        "WITH c AS (SELECT * FROM {hostile}) SELECT COUNT(*) FROM {table} JOIN c ON TRUE",
    ],
    "value": [
        "SELECT COUNT(*) FROM {table} WHERE {qi} = {hostile}",
        "SELECT COUNT(*) FROM {table} WHERE {hostile}",
        "SELECT {hostile}, COUNT(*) FROM {table} GROUP BY 1",
        "SELECT {qi}, COUNT(*) FROM {table} GROUP BY {qi} ORDER BY {hostile}",
        "SELECT COUNT(*) FROM {table} HAVING COUNT(*) > {hostile}",
        "SELECT SUM({hostile}) FROM {table}",
        "SELECT COUNT(*) FROM {table} LIMIT {hostile}",
        "SELECT {qi} AS {hostile}, COUNT(*) FROM {table} GROUP BY {qi}",
        "SELECT {hostile} AS h, COUNT(*) AS n FROM {table} GROUP BY ALL ORDER BY ALL",
        "SELECT COUNT(*) FILTER (WHERE {hostile}) AS n, COUNT(*) / {hostile} AS m FROM {table}",
        "SELECT COUNT(*) FROM {table} GROUP BY ROLLUP ({qi}, {hostile})",
    ],
    "whole": ["{hostile}", "{hostile};", "/* */ {hostile}", "SELECT COUNT(*) FROM {table}; {hostile}", "({hostile})"],
}
DISGUISES: list[Callable[[str], str]] = [
    str,
    str,
    str.upper,
    str.lower,
    lambda sql: sql.replace(" ", "\n\t"),
    lambda sql: sql.replace(" ", "/**/"),
    lambda sql: sql.replace("'", "\u2019"),
    lambda sql: f"{sql} \0",
    lambda sql: f"\ufeff{sql}",
    lambda sql: sql * 2,
    lambda sql: sql[: len(sql) * 2 // 3],
]


class Place(NamedTuple):
    """A release, its name as a table, and a column without secrets."""

    release: Path
    table: str
    qi: str


@pytest.fixture(scope="module")
def places(ward: Path, hospital: Path, firm: Path, shop: Path, town: Path) -> dict[str, Place]:
    """One release of every mechanism."""
    return {
        "bucketize": Place(ward / "ill.duckdb", "ill", "age"),
        "folder": Place(ward / "ill", "ill", "age"),
        "randomize": Place(hospital / "pp.duckdb", "ill", "age"),
        "permute": Place(firm / "ill.duckdb", "ill", "age"),
        "setvalued": Place(shop / "shop.duckdb", "shop", "goods"),
        "contingency": Place(town / "people.duckdb", "people", "job"),
    }


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the analyst works, with files and a variable that are none of his business."""
    (tmp_path / "secret.csv").write_text(f"content\n{CANARY}\n", encoding="utf-8")
    (tmp_path / "secret.json").write_text(f'{{"content": "{CANARY}"}}', encoding="utf-8")
    (tmp_path / "raw.parquet").write_bytes(b"PAR1")
    monkeypatch.setenv("PRIVSQL_SECRET", CANARY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def statements(place: Place, number: int, seed: int) -> Iterator[str]:
    """So many statements, the same for a seed."""
    draw = random.Random(f"{seed} {place.table}")  # noqa: S311 (no secret)
    stock = {"source": SOURCES, "value": VALUES, "whole": WHOLE}
    items = {
        kind: [item.strip() for item in re.split(r" \| |\n", text) if item.strip()] for kind, text in stock.items()
    }
    names = {"table": place.table, "qi": place.qi}
    for _ in range(number):
        kind = draw.choice(list(items))
        hostile = draw.choice(items[kind]).format(**names)
        yield draw.choice(DISGUISES)(draw.choice(FORMS[kind]).format(hostile=hostile, **names))


@contextmanager
def ending() -> Iterator[None]:
    """What never ends fails, instead of the whole run."""

    def late(*_: object) -> None:
        raise TimeoutError(f"has not ended after {SECONDS} s")

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def told(release: Release, sql: str) -> str:
    """All that an analyst sees."""
    with ending():
        try:
            answer = release.query(sql)
        except PrivsqlError as error:
            refusal = error
        else:
            return f"{answer.columns} {answer.rows} {answer.formula}"
    assert refusal.exit_code in {2, 3, 4}, f"{sql!r} ends as if the release were false: {refusal}"
    assert len(str(refusal).splitlines()) <= 1, f"{sql!r} is refused in several lines: {refusal}"
    return str(refusal)


def seen(folder: Path) -> dict[str, bytes]:
    """What lies there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@each("name", ["bucketize", "folder", "randomize", "permute", "setvalued", "contingency"], few=6)
@pytest.mark.parametrize(
    "number", [pytest.param(25, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.soak(part="fuzz"))]
)
def test_hostile_statements_are_refused_or_answered_as_any_other(
    places: dict[str, Place], room: Path, name: str, number: int
) -> None:
    """1,200 in all; counted: what is refused and what is answered."""
    place, answered = places[name], 0
    before, around = seen(place.release.parent), seen(room)
    with privsql.open(place.release) as release:
        for sql in statements(place, number, SEED):
            text = told(release, sql)
            assert CANARY not in text, f"{sql!r} shows what is none of the analyst's business: {text}"
            answered += text.startswith("(")
        assert release.query(f"SELECT COUNT(*) FROM {place.table}").rows, "it answers still"
    assert answered < number / 3, "nearly all of them are refused"
    assert seen(place.release.parent) == before
    assert seen(room) == around
