"""Releases in a schema of a database that is open in this process: written, read, verified, and never half there."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from privsql import EngineError, GuaranteeError, UsageError
from privsql.engine.duck.connection import Connection
from privsql.engine.duck.warehouse import DuckOpenDatabase
from privsql.releases.contents import digest_release
from privsql.releases.draft import is_occupied
from privsql.releases.opened import SchemaDraft, read_manifest
from privsql.source.targets import Target, as_target
from support.commands import MANIFEST, by_keys
from support.drafts import commit_at_once
from support.loops import slow_but
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUESTION = "SELECT sex, COUNT(*) FROM people WHERE disease = 'flu' GROUP BY sex"
ROLES: dict[str, Any] = {"qi": ["age", "sex"], "sensitive": "disease", "threshold": 0.5}
PEOPLE = """
    SELECT i AS person, 20 + i % 50 AS age, ['F', 'M'][1 + i % 2] AS sex, i::HUGEINT AS wide,
      ['flu', 'cold', 'asthma', 'gout'][1 + (i * i + i // 7) % 4]::ENUM ('flu', 'cold', 'gout', 'asthma') AS disease
    FROM range(600) AS t(i)
"""


def make_house(con: duckdb.DuckDBPyConnection) -> None:
    """A source, a table in another schema, a macro that is called as a function of DuckDB's, and a zone."""
    con.execute(f"CREATE TABLE people AS {PEOPLE}")
    con.execute("CREATE SCHEMA other")
    con.execute("CREATE TABLE other.things AS SELECT 1 AS a")
    for macro in ("count(x) AS 0", "sha256(x) AS 'x'", "min(x) AS 0"):
        con.execute(f"CREATE MACRO {macro}")
    con.execute("SET TimeZone = 'Asia/Tokyo'")


@pytest.fixture(params=slow_but(["file", "memory"], "file"))
def con(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(tmp_path / "house.duckdb") if request.param == "file" else ":memory:") as con:
        make_house(con)
        yield con


@pytest.fixture
def memory() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        make_house(con)
        yield con


def list_all(con: duckdb.DuckDBPyConnection) -> list[Any]:
    """Everything that the caller can see: databases, tables, views, and its own settings."""
    queries = (
        "SELECT database_name FROM duckdb_databases() ORDER BY ALL",
        "SELECT database_name, schema_name, table_name FROM duckdb_tables() ORDER BY ALL",
        "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
        "SELECT current_database(), current_schema(), current_setting('TimeZone')",
    )
    return [con.execute(query).fetchall() for query in queries]


def publish(con: duckdb.DuckDBPyConnection, schema: str = "released", **more: Any) -> privsql.Published:
    how = {"source.table": "people", "seed": 1, "ledger.off": True, **ROLES, **more}
    return privsql.publish(connection=con, **by_keys({**how, "release.schema": schema}))


def read_tables(con: duckdb.DuckDBPyConnection, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """The tables of a release but its manifest, in the order in which they are stored."""
    names = con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = ?", [schema]).fetchall()
    return {name: con.execute(f'FROM "{schema}"."{name}"').fetchall() for (name,) in names if name != MANIFEST}


@pytest.mark.slow
def test_it_is_the_release_that_a_file_would_be(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The same tables, of the same source in a closed file; nothing else changes for the caller."""
    before, closed = list_all(con), tmp_path / "closed.duckdb"
    con.execute("BEGIN")  # the caller's own transaction goes on
    done = publish(con)
    con.execute("COMMIT")
    assert privsql.verify(done, done.spec).ok
    after = list_all(con)
    assert (after[0], after[3]) == (before[0], before[3])
    assert [one for one in after[1] if one[1] != "released"] == before[1]
    with duckdb.connect(str(closed)) as other:
        make_house(other)
    how = {"source.table": "people", "seed": 1, "ledger.off": True, **ROLES}
    privsql.publish(closed, to=tmp_path / "release.duckdb", **by_keys(how))
    with duckdb.connect(str(tmp_path / "release.duckdb"), read_only=True) as other:
        assert read_tables(other, "main") == read_tables(con, "released") != {}
    assert con.execute("SELECT round(sum(weight)) FROM released.people_weighted").fetchall() == [(600,)]
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.soak(part="long")
def test_every_verb_takes_it(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """By the name of its schema and the connection, and by what publish and open return."""
    done = publish(con)
    rows = privsql.query("released", QUESTION, connection=con).rows
    assert rows == privsql.query(done, QUESTION).rows
    with privsql.open("RELEASED", connection=con) as release:
        assert release.query(QUESTION).rows == rows
        assert privsql.verify(release).ok
        con.execute("DROP SCHEMA released CASCADE")  # it answers from the copy that it opened
        assert release.query(QUESTION).rows == rows
    with pytest.raises(UsageError, match="there is no schema 'released'"):
        read_manifest("released", connection=con)
    publish(con)
    assert privsql.verify("released", done.spec, connection=con).ok
    assert privsql.attack("released", done.spec, connection=con, seed=1).ok
    assert privsql.evaluate("released", done.spec, queries=20, connection=con).scores
    assert privsql.report("released", done.spec, to=tmp_path / "page.html", connection=con).checks
    assert privsql.summarize("released", connection=con)


@pytest.mark.slow
def test_a_page_and_a_file_of_a_specification(tmp_path: Path) -> None:
    """A specification names the file that the caller has open: source and release are reached through it."""
    file = tmp_path / "house.duckdb"
    spec = tmp_path / "spec.toml"
    spec.write_text(
        '[source]\ndatabase = "house.duckdb"\ntable = "people"\n[columns]\nquasi_identifiers = ["age", "sex"]\n'
        'sensitive = "disease"\n[release]\nto = "house.duckdb"\nschema = "released"\n[mechanism]\nthreshold = 0.5\n'
    )
    with duckdb.connect(str(file)) as con:
        make_house(con)
        with pytest.raises(EngineError, match="is open for writing in this process"):
            privsql.publish(spec, seed=1)
        done = privsql.publish(spec, seed=1, connection=con)
        assert privsql.verify(f"{file}::released", spec, connection=con).ok
        assert [one.target for one in privsql.ledger()] == [f"{file}::released"]
        with duckdb.connect() as other:
            with pytest.raises(UsageError, match="neither the source nor the release lies in it"):
                privsql.publish(spec, seed=1, connection=other)
            with pytest.raises(UsageError, match="does not have this file open"):
                read_manifest(f"{file}::released", connection=other)
            other.execute("CREATE TABLE mine AS SELECT 1 AS a")
        from privsql.serving.guard import open_pools

        with open_pools([as_target("released", con)], [], privsql.Options(), fit=False) as pools:
            assert list(pools) == ["house-released"]
    assert privsql.verify(f"{file}::released", spec).ok  # closed: the same notation, without a connection
    assert digest_release(Target(file, "released")) == privsql.ledger()[0].digest
    with pytest.raises(UsageError, match="exists; option replace"):
        privsql.publish(spec, seed=2)
    assert str(done.release) == f"{file}::released"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"source.table": None}, "publish needs a source"),
        ({"source.table": "nowhere"}, "there is no table 'nowhere'.* hand over con.table"),
        ({"source.query": "SELECT 1; DROP TABLE people", "source.table": None}, "must be one SELECT"),
        ({"release.schema": "main"}, "exists in every database"),
        ({"release.schema": "other"}, "exists; option replace"),
        ({"release.schema": "other", "replace": True}, "not a release of privsql"),
        ({"sensitive": "wide"}, "cast it in source.query"),
        ({"connection": "warehouse.duckdb"}, "is no connection of DuckDB's"),
        ({"release.schema": "released", "format": "parquet"}, "has none"),
    ],
)
def test_what_is_refused(memory: duckdb.DuckDBPyConnection, how: dict[str, Any], message: str) -> None:
    before = list_all(memory)
    given = {
        "connection": memory,
        "source.table": "people",
        "release.schema": "released",
        "seed": 1,
        "ledger.off": True,
        **ROLES,
    }
    with pytest.raises(UsageError, match=message):
        privsql.publish(**by_keys(given | how))
    assert list_all(memory) == before


def test_a_closed_connection_and_one_without_files(memory: duckdb.DuckDBPyConnection) -> None:
    memory.execute("SET enable_external_access = false")
    with pytest.raises(EngineError, match="file system operations are disabled"):
        publish(memory)
    closed = duckdb.connect()
    closed.close()
    with pytest.raises(UsageError, match="it is closed"):
        publish(closed)


@pytest.mark.slow
def test_names_mean_what_they_mean_to_the_caller(memory: duckdb.DuckDBPyConnection) -> None:
    """Tables of the current schema, of another one and of another database; schemas called as databases are."""
    memory.execute("CREATE SCHEMA s; CREATE TABLE s.half AS FROM people LIMIT 500; ATTACH ':memory:' AS d; USE s")
    memory.execute("CREATE TABLE d.few AS FROM people LIMIT 400; CREATE SCHEMA d.x; CREATE TABLE d.x.t AS FROM d.few")
    named = {"memory": ("half", 500), "r": ("people", 600), "Main2": ("main.people", 600), "d": ("d.few", 400)}
    for schema, (name, records) in (named | {"d.x": ("d.x.t", 400)}).items():
        assert publish(memory, schema, **{"source.table": name}).facts["records"] == records
    assert publish(memory, "q", **{"source.table": None, "source.query": "FROM half"}).facts["records"] == 500
    with pytest.raises(UsageError, match="exists; option replace"):
        publish(memory, "D", **{"source.table": "half"})


@pytest.mark.slow
def test_a_connection_that_only_reads(tmp_path: Path) -> None:
    """It is a source, and what lies in it is verified; nothing is written there."""
    file = tmp_path / "house.duckdb"
    with duckdb.connect(str(file)) as con:
        make_house(con)
        publish(con)
    with duckdb.connect(str(file), read_only=True) as con:
        before = list_all(con)
        assert privsql.verify("released", connection=con).ok
        how = {"source.table": "people", "ledger.off": True, **ROLES}
        privsql.publish(connection=con, to=tmp_path / "release.duckdb", **by_keys(how))
        with pytest.raises(UsageError, match="read-only mode!; nothing written"):
            publish(con, "other_release", sensitive="nowhere")  # before the source is read
        assert list_all(con) == before


def test_a_transaction_and_a_result_of_the_caller(memory: duckdb.DuckDBPyConnection) -> None:
    memory.execute("BEGIN; CREATE SCHEMA released")
    with pytest.raises(EngineError, match="another transaction changes the same; commit it or roll it back"):
        publish(memory)
    memory.execute("ROLLBACK")
    memory.execute("FROM people")
    with pytest.raises(UsageError, match="has a result that is not fetched"):
        publish(memory)


def test_what_the_caller_has_not_committed_is_not_read(memory: duckdb.DuckDBPyConnection) -> None:
    memory.execute("BEGIN")
    memory.execute("DELETE FROM people WHERE age > 40")
    assert publish(memory).facts["records"] == 600
    memory.execute("ROLLBACK")


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE released.raw AS FROM people",
        "CREATE VIEW released.raw AS FROM people",
        "CREATE MACRO released.count(x) AS 0",
        "CREATE SEQUENCE released.s",
        "COMMENT ON TABLE released.qit IS 'Alice'",
        "CREATE OR REPLACE VIEW released.people_pairs AS SELECT *, 1 AS weight FROM people",
    ],
)
def test_what_is_changed_there_is_found(memory: duckdb.DuckDBPyConnection, statement: str) -> None:
    """In the caller's database itself, not in what is copied of it."""
    done = publish(memory)
    memory.execute(statement)
    found = privsql.verify(done)
    assert [one.name for one in found.checks if not one.ok] == [
        "holds the stated tables and no other table, view or metadata"
    ]
    with pytest.raises(GuaranteeError, match="verify it"):
        privsql.query("released", QUESTION, connection=memory)


@pytest.mark.slow
def test_a_changed_count_is_found(memory: duckdb.DuckDBPyConnection) -> None:
    done = publish(memory)
    memory.execute("UPDATE released.st SET count = count + 1 WHERE bid = 0")
    assert not privsql.verify(done).ok


def draft_of(con: duckdb.DuckDBPyConnection, *, replace: bool = False) -> SchemaDraft:
    return SchemaDraft(as_target("released", con), replace=replace)


def count_statements(patch: pytest.MonkeyPatch, fail_at: int) -> list[str]:
    """The statements that sessions in a caller's instance run from now on; the one of that number fails."""
    seen: list[str] = []
    execute = Connection._execute

    def counted(self: Connection, sql: str, values: Any) -> None:
        if getattr(self, "borrowed", False):
            seen.append(sql)
            if len(seen) == fail_at:
                raise EngineError(f"no more: {sql}")
        execute(self, sql, values)

    start = DuckOpenDatabase.open_for_writing

    def marked(self: DuckOpenDatabase) -> Any:
        session = start(self)
        enter = session.__enter__

        class Marked:
            def __enter__(self) -> Any:
                db, name = enter()
                db.connection.borrowed = True
                return db, name

            def __exit__(self, *error: object) -> Any:
                return session.__exit__(*error)

        return Marked()

    patch.setattr(Connection, "_execute", counted)
    patch.setattr(DuckOpenDatabase, "open_for_writing", marked)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, pytest.param(True, marks=pytest.mark.soak(part="kills"))])
def test_a_failure_at_any_statement_leaves_what_was_there(ward: Path, *, replaced: bool) -> None:
    """By enumeration of all statements of a commit; nothing of a draft stays attached."""
    failures = 0
    for number in range(1, 200):
        with duckdb.connect() as con, pytest.MonkeyPatch.context() as patch:
            if replaced:
                with draft_of(con) as draft:
                    draft.commit(ward / "ill.duckdb")
            before = list_all(con)
            seen = count_statements(patch, number)
            with draft_of(con, replace=replaced) as draft:
                try:
                    draft.commit(ward / "ill.duckdb")
                except EngineError:
                    failures += 1
            patch.undo()
            tidying = seen[min(number, len(seen)) - 1].startswith(("USE", "DETACH", "ROLLBACK"))
            if number <= len(seen) and not tidying:
                assert list_all(con) == before, seen[number - 1]
                assert is_occupied(as_target("released", con)) == replaced
            if len(seen) < number:
                break
    assert failures > 15


@pytest.mark.slow
def test_two_at_once(ward: Path) -> None:
    """One wins; the other is refused in one line, and what stands there is whole."""
    for _ in range(3):
        with duckdb.connect() as con:

            @contextmanager
            def open_draft(con: Any = con) -> Iterator[SchemaDraft]:
                with con.cursor() as own, draft_of(own) as draft:
                    yield draft

            errors = commit_at_once(open_draft, ward / "ill.duckdb")
            assert len(errors) == 1
            assert "\n" not in str(errors[0])
            found = privsql.verify("released", connection=con)
            assert {one.name for one in found.checks if not one.ok} == {
                "it is of the kind that it states"
            }  # made as a file
            assert len(list_all(con)[0]) == 3


PROGRAM = """
import os, signal, sys
from pathlib import Path
import duckdb
from privsql.engine.duck.connection import Connection
from privsql.releases.opened import SchemaDraft
from privsql.source.targets import as_target
execute, seen = Connection._execute, []
def counted(self, sql, values):
    execute(self, sql, values)
    if "CREATE" in sql and "released" in sql:
        seen.append(sql)
        if len(seen) == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
Connection._execute = counted
con = duckdb.connect(sys.argv[1])
with SchemaDraft(as_target("released", con), replace=True) as draft:
    draft.commit(Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 4, 6])
def test_killed_while_it_writes(ward: Path, tmp_path: Path, number: int) -> None:
    """Nothing that opens as a release; the rest of the database is as it was."""
    file = tmp_path / "house.duckdb"
    with duckdb.connect(str(file)) as con:
        con.execute("CREATE TABLE mine AS SELECT 1 AS a")
    command = [sys.executable, "-c", PROGRAM, str(file), str(ward / "ill.duckdb"), str(number)]
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode < 0, done.stderr
    with duckdb.connect(str(file)) as con:
        assert con.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall() == [("main", "mine")]
        with pytest.raises(UsageError, match="there is no schema"):
            read_manifest("released", connection=con)
