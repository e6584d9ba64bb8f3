"""Releases in schemas of a Postgres server: written as a whole or not at all, opened as they were, counted there."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from golden.releases import FEW, publish_recipes
from golden.releases import RECIPES as RECIPES_OF_ALL
from privsql import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.releases.contents import digest_release
from privsql.releases.draft import is_occupied
from privsql.releases.opened import SchemaDraft, read_manifest
from privsql.source.targets import Address, Target, as_target
from support import large, postgres
from support.commands import LARGE_TABLE, MANIFEST, ROLES, by_keys, refused, run, specification, succeeded, write
from support.drafts import commit_at_once
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.postgres import PostgresServer

pytestmark = pytest.mark.slow  # a server starts
SECRET = "sesame"  # noqa: S105
QUESTION = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY sex"
RECIPES = (*FEW, "fakes", "permute", "up", "views")  # every kind of view
NUMBERS = itertools.count()
RULE = ["--threshold", "2*f + 0.1", "--set", "release.name=ill", "--seed", 1]


def address(user: str = "privsql") -> str:
    """The address of the server, with a password that it does not ask for."""
    return postgres.address().replace("privsql@", f"{user}:{SECRET}@")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    place = postgres.address()  # first: it skips the test where there is no driver to import
    from privsql.engine.postgres import PostgresServer

    made = PostgresServer(place)
    yield made
    made.close()


@pytest.fixture
def schema(server: PostgresServer) -> Iterator[str]:
    """The name of a schema that needs quotes, and that nothing is in."""
    name = f'Odd "{next(NUMBERS)}"'
    yield name
    server.run_statement(f"DROP SCHEMA IF EXISTS {quote(name)} CASCADE")


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def at(schema: str) -> str:
    return f"{address()}::{schema}"


def put(file: Path, schema: str, *, replace: bool = False) -> Target:
    """Commit a release that is a file into a schema of the server."""
    with SchemaDraft(as_target(at(schema)), replace=replace) as draft:
        draft.commit(file)
    return as_target(at(schema))


def count_in(server: PostgresServer, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in server.arrow(sql).to_pylist()]


def list_all(server: PostgresServer, schema: str) -> list[tuple[Any, ...]]:
    """The tables and views of a schema, by what the server lists."""
    named = schema.replace("'", "''")
    return count_in(server, f"SELECT relname::text FROM pg_class WHERE relnamespace::regnamespace::text = '{named}'")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return publish_recipes(tmp_path_factory.mktemp("recipes"), RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_every_mechanism_and_its_views(made: dict[str, Path], server: PostgresServer, schema: str, name: str) -> None:
    """Its tables pass all checks there; sums of weights, and intervals, that plain SQL counts are those of a file."""
    recipe = RECIPES_OF_ALL[name]
    file = "baskets" if "items" in recipe.columns else f"people{recipe.records}"
    release = {"name": "t", "to": address(), "schema": schema, **(recipe.release or {})}
    source = {"file": made[name].with_name(f"{file}.parquet")}
    spec = {"source": source, "columns": recipe.columns, "mechanism": recipe.mechanism, "release": release}
    done = privsql.publish({**spec, "ledger": {"off": True}}, seed=7, threads=1)
    found = privsql.verify(done)
    assert found.ok, [one for one in found.checks if not one.ok]
    with duckdb.connect(str(made[name]), read_only=True) as here:
        views = here.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall()
        assert views
        for (view,) in views:
            columns = [column[0] for column in here.execute(f"FROM {view} LIMIT 0").description]
            own = [one for one in columns if one in ("weight", "count", "variance")]
            others = ", ".join(one for one in columns if one not in own)
            sums = ", ".join(f"sum({one}) AS all_{one}" for one in own)
            if "variance" in own:
                sums += ", {at}n(weight) AS n, {at}low(weight, variance) AS low, {at}high(weight, variance) AS high"
            counts = f"SELECT {others}, {sums} FROM {{at}}{view} GROUP BY {others}"
            expected = here.execute(counts.format(at="")).fetchall()
            there = count_in(server, counts.format(at=f"{quote(schema)}."))
            assert len(there) == len(expected) > 0
            numbers = len(own) + (3 if "variance" in own else 0)
            found = {str(row[:-numbers]): [*map(float, row[-numbers:])] for row in there}
            for row in expected:
                assert found[str(row[:-numbers])] == pytest.approx([*map(float, row[-numbers:])], 1e-9, 1e-9)


KINDS = """
    SELECT i AS id, 20 + i % 50 AS age, (i % 7)::UTINYINT AS tiny, (i % 3)::UBIGINT AS big,
      (i % 4)::DECIMAL(9, 2) AS deci,
      DATE '2020-01-01' + (i % 5)::INT AS day, ('00000000-0000-0000-0000-00000000000' || i % 2)::UUID AS mark,
      (i % 2)::UINTEGER AS u, i % 3 = 0 AS odd, TIMESTAMP_S '2020-01-01 00:00:01' AS second, 0.1::FLOAT AS f,
      TIMESTAMPTZ '2020-01-01 00:00:00+02' AS zone, TIME '01:02:03' AS clock, 'it''s "ä" \\' AS text,
      ['flu', 'cold', 'asthma', 'gout'][1 + (i * i + i // 7) % 4]::ENUM ('flu', 'cold', 'gout', 'asthma') AS disease
    FROM range(600) AS t(i)
"""


def test_types_that_the_server_lacks(server: PostgresServer, schema: str, tmp_path: Path) -> None:
    """They come back as they were; the server has the nearest that holds all values."""
    people = tmp_path / "people.duckdb"
    with duckdb.connect(str(people)) as db:
        db.execute(f"CREATE TABLE people AS {KINDS}")
        known = [column[0] for column in db.sql("FROM people").description if column[0] not in ("id", "disease")]
    how: dict[str, Any] = {
        "source.table": "people",
        "release.name": "ill",
        "sensitive": "disease",
        "threshold": 0.5,
        "seed": 1,
    }
    how |= {"qi": known, "ledger.off": True}
    done = privsql.publish(people, to=address(), **by_keys({**how, "release.schema": schema}))
    assert str(done.target) == f"{postgres.address()}::{schema}"
    privsql.publish(people, to=tmp_path / "ill.duckdb", **by_keys(how))
    assert privsql.verify(done).ok
    assert privsql.verify(done, done.spec).ok
    question = "SELECT disease, COUNT(*) FROM ill WHERE big = 1 AND text LIKE 'it%' GROUP BY disease ORDER BY disease"
    assert privsql.query(done, question).rows == privsql.query(tmp_path / "ill.duckdb", question).rows
    types = count_in(
        server,
        "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
        f"WHERE attrelid = '{quote(schema)}.qit'::regclass AND attnum > 0",
    )
    assert dict(types) == {
        "age": "bigint", "tiny": "smallint", "big": "numeric(20,0)", "deci": "numeric(9,2)", "day": "date",
        "mark": "uuid", "u": "bigint", "odd": "boolean", "second": "timestamp without time zone", "f": "real",
        "zone": "timestamp with time zone", "clock": "time without time zone", "text": "text", "bid": "integer",
    }  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
def test_many_records_come_over_in_other_pieces(schema: str, tmp_path: Path, threads: int) -> None:
    """DuckDB cuts them where its row groups end, and the server where its driver likes."""
    people, place = write(tmp_path / "people.parquet", LARGE_TABLE), {"to": address(), "release.schema": schema}
    how: dict[str, Any] = {"qi": ["age", "sex", "place"], "sensitive": "disease", "threshold": "2*f + 0.1"}
    privsql.publish(people, algorithm="two-size", threads=threads, **by_keys({**how, **place}))
    again = privsql.publish(people, algorithm="two-size", threads=3 - threads, repeat=True, **by_keys({**how, **place}))
    assert read_manifest(again).published == 600_000


def test_the_command_line(ward: Path, tmp_path: Path, schema: str) -> None:
    """Every command takes the address with the schema; no output, ledger or page holds the password."""
    ledger, place = tmp_path / "ledger.duckdb", f"{postgres.address()}::{schema}"
    where = ["--to", address(), "--set", f"release.schema={schema}", "--ledger", ledger]
    publishing = ["publish", ward / "people.parquet", *ROLES, *RULE, *where]
    outcomes = [succeeded(*publishing, "--json"), succeeded("verify", at(schema))]
    assert outcomes[0].json["release"] == place
    outcomes.append(succeeded("query", at(schema), QUESTION, "--json"))
    with privsql.open(at(schema)) as release:
        assert [tuple(row.values()) for row in outcomes[-1].json["rows"]] == release.query(QUESTION).rows
    outcomes += [
        succeeded("verify", at(schema), "--verbose", "--json"),
        succeeded("verify", at(schema), "--source", ward / "people.parquet"),
        succeeded("attack", at(schema), "--json"),
        succeeded("evaluate", at(schema), "--source", ward / "people.parquet", "--queries", 10, "--json"),
        succeeded("report", at(schema), "--to", tmp_path / "page.html"),
        run(*publishing),
        run("verify", address()),
        run("verify", at(schema), at(schema)),
        run("query", at("nowhere"), QUESTION),
        succeeded("ledger", "--ledger", ledger, "--json"),
    ]
    refused(outcomes[-5], 2, f"{place} exists; option replace publishes over it")
    refused(outcomes[-4], 2, "write the schema behind the address")
    refused(outcomes[-3], 2, "takes one release")
    refused(outcomes[-2], 2, "there is no schema 'nowhere'")
    assert [one["target"] for one in outcomes[-1].json["releases"]] == [place]
    outcomes.append(succeeded(*publishing, "--replace"))
    outcomes.append(succeeded("ledger", "withdraw", at(schema), "--ledger", ledger))
    outcomes.append(run("ledger", "withdraw", at(schema), "--ledger", ledger))
    refused(outcomes[-1], 2, "is not a current release")
    assert all(SECRET not in one.out + one.err for one in outcomes)
    for file in (ledger, tmp_path / "page.html"):
        assert SECRET.encode() not in file.read_bytes()


def test_a_specification_keeps_its_address(ward: Path, tmp_path: Path, schema: str) -> None:
    """Keys that flags change leave the password where it is, and no text of a specification has it."""
    escaped = schema.replace('"', '\\"')
    release = f'name = "ill"\nto = "{address()}"\nschema = "{escaped}"\npurpose = "a trial"'
    spec = specification(tmp_path, source=f'file = "{ward}/people.parquet"', release=release)
    read = privsql.load(spec)
    changed = privsql.publish(spec, seed=1, set={"ledger": {"off": True}, "release": {"contact": "me"}}).spec
    for one in (read, changed):
        assert isinstance(one.release.to, Address)
        assert one.release.to.secret == address()
        assert SECRET not in repr(one) + one.model_dump_json() + str(one.target)
    assert privsql.verify(at(schema), spec).ok
    spec.write_text(spec.read_text("utf-8").replace(f'schema = "{escaped}"\n', ""), "utf-8")
    done = run("publish", spec)
    refused(done, 2, "release.schema: a release in a Postgres database is a schema of it")
    assert SECRET not in done.err


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("postgresql://me:pw@host:1/db", "postgresql://me@host:1/db"),
        ("postgres://host/db?password=pw&port=1&sslmode=require", "postgresql://host/db?port=1"),
        ("postgresql:/me:p@w@host/db", "postgresql://me@host/db"),
        ("postgresql://me:pw@[::1]:1/db?passfile=/x&host=/tmp/y", "postgresql://me@[::1]:1/db?host=/tmp/y"),
    ],
)
def test_what_an_address_shows(text: str, label: str) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    target = as_target(f"{text}::released")
    assert (str(target), target.schema) == (f"{label}::released", "released")
    assert "pw" not in repr(target)
    assert str(as_target(target.path)) == str(target)


CHANGES = [
    "CREATE TABLE {}.raw AS SELECT 'Alice' AS name",
    "CREATE VIEW {}.raw AS SELECT 'Alice' AS name",
    "CREATE MATERIALIZED VIEW {}.raw AS SELECT 'Alice' AS name",
    "CREATE FUNCTION {}.raw() RETURNS text LANGUAGE sql AS $$ SELECT 'Alice' $$",
    "CREATE SEQUENCE {}.raw",
    "CREATE TYPE {}.raw AS ENUM ('Alice')",
    "COMMENT ON TABLE {}.qit IS 'Alice'",
    "COMMENT ON COLUMN {}.qit.age IS 'Alice'",
    "COMMENT ON VIEW {}.ill_pairs IS 'Alice'",
    "ALTER TABLE {}.qit ADD CHECK (sex <> 'Alice')",
    "ALTER TABLE {}.qit ALTER sex SET DEFAULT 'Alice'",
    "CREATE POLICY alice ON {}.qit",
    "CREATE RULE alice AS ON DELETE TO {}.qit DO INSTEAD NOTHING",
    "CREATE TRIGGER alice BEFORE UPDATE ON {}.qit EXECUTE FUNCTION suppress_redundant_updates_trigger('Alice')",
    "ALTER TABLE {}.qit ADD COLUMN name text",
    "ALTER TABLE {}.qit DROP COLUMN zip CASCADE",
    "CREATE OR REPLACE VIEW {0}.ill_pairs AS SELECT age, sex, zip, disease, 1::float8 AS weight FROM {0}.qit, {0}.st",
    "DROP VIEW {}.ill_pairs",
    "DROP TABLE {}.st CASCADE",
    "DROP TABLE {}.privsql_manifest",
    "DELETE FROM {}.privsql_manifest",
    "ALTER TABLE {}.privsql_manifest ALTER value TYPE bytea USING value::bytea",
    "UPDATE {}.qit SET bid = 100000",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_there_is_found(ward: Path, server: PostgresServer, schema: str, change: str) -> None:
    put(ward / "ill.duckdb", schema)
    read_manifest(at(schema))
    server.run_statement(change.format(quote(schema)))
    with pytest.raises((GuaranteeError, UsageError, EngineError)) as refusal:
        privsql.query(at(schema), QUESTION)
    assert len(str(refusal.value).splitlines()) == 1
    assert SECRET not in str(refusal.value)


def test_a_changed_count_is_found(ward: Path, server: PostgresServer, schema: str) -> None:
    """By verify, as in a file."""
    publishing = ["publish", ward / "people.parquet", *ROLES, *RULE, "--set", "ledger.off=true"]
    succeeded(*publishing, "--to", address(), "--set", f"release.schema={schema}")
    server.run_statement(f"UPDATE {quote(schema)}.st SET count = count + 1 WHERE bid = 0")
    assert not privsql.verify(at(schema)).ok


def test_intervals_of_a_large_table_are_those_of_a_file(server: PostgresServer, schema: str, tmp_path: Path) -> None:
    """The same 20 x 40 intervals, of which ``test_interval_functions.py`` counts how many hold the truth."""
    people, how = large.make_people(1), {**large.PUBLISHED, "threshold": "3*f + 0.05", "seed": 1}
    privsql.publish(people, to=tmp_path / "file.duckdb", **by_keys(how))
    privsql.publish(people, to=address(), **by_keys({**how, "release.schema": schema}))
    asked = """SELECT disease, {0}n(weight) AS n, {0}low(weight, variance) AS low, {0}high(weight, variance) AS high
      FROM {0}people_weighted WHERE {1} GROUP BY disease"""
    with duckdb.connect(str(tmp_path / "file.duckdb"), read_only=True) as here:
        for condition in large.CONDITIONS[::8]:
            expected = {one: rest for one, *rest in here.execute(asked.format("", condition)).fetchall()}
            found = {one: rest for one, *rest in count_in(server, asked.format(f"{quote(schema)}.", condition))}
            assert found.keys() == expected.keys()
            assert all(found[one] == pytest.approx(expected[one], 1e-9, 1e-9) for one in expected), condition


ARGUMENTS = "FUNCTION {}.privsql_low(float8[])"
BODY = "LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN sums[4]"
OTHERWISE = {  # statements about a schema, and what is refused then
    f"CREATE OR REPLACE FUNCTION {{}}.privsql_low(sums float8[]) RETURNS float8 {BODY}": "function 'privsql_low",
    f"COMMENT ON {ARGUMENTS} IS 'Alice has HIV'": "function 'privsql_low",
    f"ALTER {ARGUMENTS} SECURITY DEFINER": "function 'privsql_low",
    "CREATE OR REPLACE AGGREGATE {}.n (weight float8) (SFUNC = float8mi, STYPE = float8, INITCOND = 0)": "aggregate 'n",
    "CREATE FUNCTION {}.low(int) RETURNS int LANGUAGE sql RETURN 1": "function 'low(integer)' does not belong here",
    "DROP AGGREGATE {}.n(float8)": "is missing",
}


@pytest.mark.parametrize("change", OTHERWISE)
def test_functions_that_are_defined_otherwise_are_refused(
    ward: Path, server: PostgresServer, schema: str, change: str
) -> None:
    put(ward / "ill.duckdb", schema)
    server.run_statement(change.format(quote(schema)))
    with pytest.raises(GuaranteeError, match="verify it") as refusal:
        privsql.query(at(schema), QUESTION)
    assert OTHERWISE[change] in str(refusal.value)


def test_functions_go_with_the_release_that_they_belong_to(
    ward: Path, firm: Path, server: PostgresServer, schema: str
) -> None:
    put(ward / "ill.duckdb", schema)
    put(ward / "ill.duckdb", schema, replace=True)
    listed = "SELECT proname::text FROM pg_proc WHERE pronamespace::regnamespace::text = '{}' ORDER BY 1"
    named = [("high",), ("low",), ("n",), ("privsql_high",), ("privsql_low",)]
    assert count_in(server, listed.format(quote(schema))) == named
    put(next(firm.glob("*.duckdb")), schema, replace=True)  # its view has no variance
    assert count_in(server, listed.format(quote(schema))) == []


def test_what_is_allowed_there(ward: Path, server: PostgresServer, schema: str) -> None:
    """Indexes, rights and default rights; a reader needs no others than SELECT, and hidden rows are an error."""
    put(ward / "ill.duckdb", schema)
    expected = privsql.query(at(schema), QUESTION).rows
    named = quote(schema)
    server.run_statement("DROP ROLE IF EXISTS reader")
    server.run_statement("CREATE ROLE reader LOGIN")
    try:
        with pytest.raises(UsageError, match="permission denied for schema"):
            privsql.query(f"{address('reader')}::{schema}", QUESTION)
        server.run_statement(f"GRANT USAGE ON SCHEMA {named} TO reader")
        server.run_statement(f"ALTER DEFAULT PRIVILEGES IN SCHEMA {named} GRANT SELECT ON TABLES TO reader")
        server.run_statement(f"CREATE INDEX ON {named}.qit (age)")
        put(ward / "ill.duckdb", schema, replace=True)
        assert privsql.query(f"{address('reader')}::{schema}", QUESTION).rows == expected
        with (
            SchemaDraft(as_target(f"{address('reader')}::another"), replace=False) as draft,
            pytest.raises(UsageError, match="permission denied for database"),
        ):
            draft.commit(ward / "ill.duckdb")
        how: dict[str, Any] = {"sensitive": "nowhere", "qi": ["age"], "threshold": 0.5}
        how |= {"ledger.off": True, "release.schema": "another"}
        with pytest.raises(UsageError, match="permission denied for database"):  # before the source is read
            privsql.publish(ward / "people.parquet", to=address("reader"), **by_keys(how))
        server.run_statement("CREATE SCHEMA another")
        with pytest.raises(UsageError, match="permission denied for schema"):
            privsql.publish(ward / "people.parquet", to=address("reader"), **by_keys(how))
        server.run_statement("DROP SCHEMA another")
        server.run_statement("ALTER ROLE reader SET default_transaction_read_only = on")
        assert privsql.query(f"{address('reader')}::{schema}", QUESTION).rows == expected
        server.run_statement(f"ALTER TABLE {named}.qit ENABLE ROW LEVEL SECURITY")
        with pytest.raises(UsageError, match="row-level security"):
            privsql.query(f"{address('reader')}::{schema}", QUESTION)
    finally:
        server.run_statement("DROP OWNED BY reader")
        server.run_statement("DROP ROLE reader")


def test_what_is_refused(ward: Path, tmp_path: Path, server: PostgresServer, schema: str) -> None:
    """In one line without the password; nothing is written, and what is there stays."""
    named = quote(schema)
    publishing = ["publish", ward / "people.parquet", *ROLES, *RULE, "--set", "ledger.off=true"]
    for place, code, message in (
        (f"postgresql://me:{SECRET}@localhost:1/db", 4, "no server answers at postgresql://me@localhost:1/db"),
        (address("nobody"), 4, 'role "nobody" does not exist'),
        (f"mysql://me:{SECRET}@host/db", 2, "can't keep a release at mysql://"),
    ):
        done = run(*publishing, "--to", place, "--set", f"release.schema={schema}")
        refused(done, code, message)
        assert SECRET not in done.err
    refused(run(*publishing, "--to", address(), "--set", "release.schema=" + str("x" * 64)), 2, "at most 63 bytes")
    refused(run(*publishing, "--to", address(), "--set", "release.schema=pg_mine"), 2, "unacceptable schema name")
    refused(run(*publishing, "--to", address(), "--set", "release.schema=main"), 2, "exists in every database")
    refused(
        run(*publishing, "--to", address(), "--set", f"release.schema={schema}", "--format", "parquet"), 2, "has none"
    )
    assert list_all(server, named) == []
    server.run_statement(f"CREATE SCHEMA {named}")
    server.run_statement(f"CREATE FUNCTION {named}.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    done = run(*publishing, "--to", address(), "--set", f"release.schema={schema}", "--replace")
    refused(done, 2, "is not a release of privsql; it is not replaced")
    server.run_statement(f"DROP FUNCTION {named}.mine()")
    succeeded(*publishing, "--to", address(), "--set", f"release.schema={schema}")  # an empty one is as good as none
    server.run_statement(f"CREATE VIEW public.mine AS SELECT * FROM {named}.qit")
    try:
        done = run(*publishing, "--to", address(), "--set", f"release.schema={schema}", "--replace")
        refused(done, 4, "other objects depend on it")
        assert privsql.verify(at(schema)).ok
    finally:
        server.run_statement("DROP VIEW public.mine")


@pytest.mark.parametrize(
    ("value", "message"), [("TIMESTAMP_NS '2020-01-01'", "TIMESTAMP_NS"), ("'a' || chr(0)", "0x00")]
)
def test_values_that_the_server_can_not_hold(tmp_path: Path, schema: str, value: str, message: str) -> None:
    people = tmp_path / "people.duckdb"
    with duckdb.connect(str(people)) as db:
        db.execute(
            f"CREATE TABLE people AS SELECT i % 5 AS age, {value} AS odd, 'd' || i % 4 AS ill FROM range(40) t(i)"
        )
    how: dict[str, Any] = {"sensitive": "ill", "qi": ["age", "odd"], "threshold": 0.5}
    with pytest.raises(PrivsqlError, match=message):
        privsql.publish(
            people,
            to=address(),
            **by_keys({**how, "source.table": "people", "release.schema": schema, "ledger.off": True}),
        )
    assert not is_occupied(as_target(at(schema)))


def count_statements(patch: pytest.MonkeyPatch, act: Any) -> list[str]:
    """The statements that this process runs in servers from now on; ``act(number)`` comes before each of them."""
    from privsql.engine.postgres import PostgresServer

    seen: list[str] = []
    for name in ("run_statement", "ingest_table"):
        real = getattr(PostgresServer, name)

        def counted(self: PostgresServer, text: str, *rest: Any, real: Any = real) -> Any:
            seen.append(text)
            act(self, len(seen))
            return real(self, text, *rest)

        patch.setattr(PostgresServer, name, counted)
    return seen


@pytest.mark.parametrize(
    ("replaced", "step"), [(False, 1), (True, 3), pytest.param(True, 1, marks=pytest.mark.soak(part="services"))]
)
def test_a_connection_that_ends_leaves_what_was_there(
    ward: Path, server: PostgresServer, schema: str, step: int, *, replaced: bool
) -> None:
    """By enumeration of the statements of a commit: the server ends the session before each ``step``-th of them."""
    target, failures = as_target(at(schema)), 0
    before = digest_release(put(ward / "ill.duckdb", schema)) if replaced else None
    for number in range(1, 100, step):
        with pytest.MonkeyPatch.context() as patch, SchemaDraft(target, replace=replaced) as draft:

            def end(own: PostgresServer, count: int, number: int = number) -> None:
                if count == number:
                    pid = own.arrow("SELECT pg_backend_pid() AS pid")["pid"][0].as_py()
                    server.arrow(f"SELECT pg_terminate_backend({pid}, 10000)")

            seen = count_statements(patch, end)
            try:
                draft.commit(ward / "ill.duckdb")
            except EngineError as error:
                failures += "\n" not in str(error)
        if len(seen) < number:
            break
        if replaced:
            assert digest_release(target) == before, seen[number - 1]
        else:
            assert not is_occupied(target), seen[number - 1]
    assert failures > 15 // step
    assert is_occupied(target)


PROGRAM = """
import os, signal, sys
from pathlib import Path
from privsql.engine.postgres import PostgresServer
from privsql.releases.opened import SchemaDraft
from privsql.source.targets import as_target
seen = []
for name in ("run_statement", "ingest_table"):
    def counted(self, text, *rest, real=getattr(PostgresServer, name)):
        done = real(self, text, *rest)
        seen.append(text)
        if text == sys.argv[3]:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(PostgresServer, name, counted)
with SchemaDraft(as_target(sys.argv[1]), replace=True) as draft:
    draft.commit(Path(sys.argv[2]))
"""


@pytest.mark.parametrize("statement", ["qit", MANIFEST])
def test_killed_while_it_writes(ward: Path, server: PostgresServer, schema: str, statement: str) -> None:
    """After some tables, and after the manifest: nothing that opens as a release."""
    command = [sys.executable, "-c", PROGRAM, at(schema), str(ward / "ill.duckdb"), statement]
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode < 0, done.stderr
    with pytest.raises(UsageError, match="there is no schema"):
        read_manifest(at(schema))
    put(ward / "ill.duckdb", schema)  # which waits until the server has noticed
    assert list_all(server, quote(schema))


def test_two_at_once(ward: Path, schema: str) -> None:
    """One wins; the other is refused in one line, and what stands there is whole."""
    errors = commit_at_once(lambda: SchemaDraft(as_target(at(schema)), replace=False), ward / "ill.duckdb")
    assert [str(one).count("\n") for one in errors] == [0]
    found = privsql.verify(at(schema))
    assert {one.name for one in found.checks if not one.ok} == {"it is of the kind that it states"}


def test_a_release_that_is_open_stays_as_it_was(ward: Path, server: PostgresServer, schema: str) -> None:
    """It answers from the copy that it opened; a page serves it by the name of the schema."""
    put(ward / "ill.duckdb", schema)
    with privsql.open(at(schema)) as release:
        rows = release.query(QUESTION).rows
        server.run_statement(f"DROP SCHEMA {quote(schema)} CASCADE")
        assert release.query(QUESTION).rows == rows
    put(ward / "ill.duckdb", schema)
    from privsql.serving.guard import open_pools

    with open_pools([as_target(at(schema))], [], privsql.Options(), fit=False) as pools:
        assert len(pools) == 1
