"""Releases in Spark's catalog: written by workers, checked and counted there, and never half there."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

import privsql
from privsql import EngineError, GuaranteeError, UsageError
from privsql.releases.contents import digest_release
from privsql.releases.opened import SchemaDraft
from privsql.source.targets import as_target
from support import engines
from support.commands import MANIFEST, write
from support.mixed import PEOPLE
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets that pyspark leaves open
]
REPEATED = pytest.mark.soak(part="spark")
QUESTION = "SELECT sex, COUNT(*) FROM r WHERE salary < 300 AND age > 30 GROUP BY sex ORDER BY sex"
PERMUTE: dict[str, Any] = {"sensitive": "salary", "kind": "permute", "k": 4, "e": 20}
ROLES: dict[str, Any] = {"quasi_identifiers": ["age", "sex", "odd"], "name": "r", "seed": 7}
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def session() -> SparkSession:
    if reason := engines.without_spark():
        pytest.skip(reason)
    return engines.session()


@pytest.fixture
def schema(session: SparkSession) -> Iterator[str]:
    """The name of a schema that nothing is in."""
    name = f"released_{next(NUMBERS)}"
    yield name
    for one in (name, f"privsql_draft_{name}"):
        session.sql(f"DROP SCHEMA IF EXISTS {one} CASCADE")


def list_all(session: SparkSession, schema: str) -> list[str]:
    """The tables and views of a schema; none where there is no such schema."""
    if not session.catalog.databaseExists(schema):
        return []
    return sorted(one.name for one in session.catalog.listTables(schema) if not one.isTemporary)


def put(session: SparkSession, file: Path, schema: str, *, replace: bool = False) -> None:
    """Commit a release that is a file into a schema of the catalog."""
    with SchemaDraft(as_target(schema, session), replace=replace) as draft:
        draft.commit(file)


def test_a_release_in_the_catalog(session: SparkSession, schema: str, tmp_path: Path) -> None:
    """Made and checked by Spark; every verb opens it by the name of its schema; a changed value is found."""
    people = session.read.parquet(str(write(tmp_path / "people.parquet", PEOPLE)))
    ledger = tmp_path / "ledger.duckdb"
    done = privsql.publish(people, connection=session, schema=schema, ledger_database=ledger, **ROLES, **PERMUTE)
    assert list_all(session, schema) == [MANIFEST, "privsql_values", "qit", "r_weighted", "st"]
    assert not session.catalog.databaseExists(f"privsql_draft_{schema}")
    assert str(done.target) == f"spark::{schema}"
    assert privsql.ledger(database=ledger)[0].digest == digest_release(done.target)
    found = privsql.verify(schema, connection=session)
    assert found.ok, [one for one in found.checks if not one.ok]
    how = {"order": "portable", "ledger_off": True, **ROLES, **PERMUTE}
    privsql.publish(tmp_path / "people.parquet", to=tmp_path / "here.duckdb", **how)
    assert (
        privsql.query(schema, QUESTION, connection=session).rows
        == privsql.query(tmp_path / "here.duckdb", QUESTION).rows
    )
    weights = session.sql(f"SELECT sum(weight) FROM {schema}.r_weighted").collect()
    assert weights[0][0] == pytest.approx(1200)
    with pytest.raises(UsageError, match="exists; give replace=True"):
        privsql.publish(people, connection=session, schema=schema, ledger_off=True, **ROLES, **PERMUTE)
    st = session.table(f"{schema}.st")
    first, *others = st.collect()
    changed = session.createDataFrame([(*first[:-1], first[-1] + 1), *others], st.schema)
    changed.write.format("parquet").mode("overwrite").saveAsTable(f"{schema}.st")
    assert not privsql.verify(done).ok
    session.sql(f"COMMENT ON TABLE {schema}.st IS 'Alice'")
    with pytest.raises(GuaranteeError, match="does not belong here"):
        privsql.inspect(schema, connection=session)


def test_a_release_that_duckdb_has_made(ward: Path, session: SparkSession, schema: str) -> None:
    """A file goes through this machine; a schema that holds anything is refused, and stays."""
    put(session, ward / "ill.duckdb", schema)
    question = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY sex"
    assert privsql.query(schema, question, connection=session).rows == privsql.query(ward / "ill.duckdb", question).rows
    before = list_all(session, schema)
    with pytest.raises(UsageError, match="there is table 'privsql_channel'"):
        put(session, ward / "ill.duckdb", schema)
    assert list_all(session, schema) == before
    with pytest.raises(UsageError, match="connection does not have this file open"):
        privsql.inspect(f"{ward}/ill.duckdb::released", connection=session)
    with pytest.raises(UsageError, match="there is no schema 'nowhere'"):
        privsql.query("nowhere", question, connection=session)


def count_statements(patch: pytest.MonkeyPatch, fail_at: int, *, for_good: bool) -> list[str]:
    """The statements and writes of catalogs from now on: each is 2 numbers, one at which it does not happen, one after it.

    One of that number fails; ``for_good``: all that follow, too, as if the process were gone.
    """
    from privsql.engine.spark_release import SparkSchemas

    seen: list[str] = []
    for name in ("run_statement", "write_frame"):
        real = getattr(SparkSchemas, name)

        def counted(self: SparkSchemas, *arguments: Any, real: Any = real) -> Any:
            seen.append(" ".join(map(str, arguments[:2])))
            at = 2 * len(seen)
            if at - 1 == fail_at or (for_good and at - 1 > fail_at):
                raise EngineError("no more")
            done = real(self, *arguments)
            if at == fail_at:
                raise EngineError("no more")
            return done

        patch.setattr(SparkSchemas, name, counted)
    return seen


@REPEATED
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_failure_at_any_statement(session: SparkSession, schema: str, *, replaced: bool, killed: bool) -> None:
    """By enumeration of all statements of a stage and its commit: what opens is the last release, the new one or none.

    Two small tables stand for those of a release. Of one that is killed the next publication removes what is left.
    """
    from privsql.engine.database import ViewDefinition
    from privsql.engine.spark_release import SparkCatalog

    catalog, ended = SparkCatalog(session), {"old": 0, "new": 0, "none": 0}
    view = ViewDefinition("both", engines.tree("SELECT a FROM qit"), "a view")
    holding = [("table", "qit"), ("table", MANIFEST), ("view", "both")]

    def commit(number: int, former: list[tuple[str, str]]) -> None:
        with catalog.open_stage(schema, MANIFEST, ROOT / "no such folder") as stage:
            for name in ("qit", MANIFEST):
                stage.write_table(name, session.sql(f"SELECT {number} AS a"))
            stage.commit([view], former)

    def list_state(number: int, *, swept: bool = True) -> str:
        """What opens as a release: it is whole; where nothing does, nothing is there."""
        listed = [one for one in list_all(session, schema) if swept or not one.startswith("privsql_new_")]
        if MANIFEST not in listed:
            assert listed == []
            return "none"
        values = {session.table(f"{schema}.{name}").collect()[0][0] for _, name in holding}
        assert (listed, len(values)) == (sorted(name for _, name in holding), 1)
        return "new" if values == {number} else "old"

    if replaced:
        commit(0, [])
    for number in range(1, 400):
        before, failed = list_all(session, schema), False
        with pytest.MonkeyPatch.context() as patch:
            seen = count_statements(patch, number, for_good=killed)
            try:
                commit(number, holding if before else [])
            except EngineError:
                failed = True
        if killed:
            assert MANIFEST not in list_all(session, schema) or list_state(number, swept=False)
            catalog.sweep_stage(schema, MANIFEST)
        ended[list_state(number)] += failed
        if len(seen) < (number + 1) // 2:
            break
        if not replaced and list_all(session, schema):
            session.sql(f"DROP SCHEMA {schema} CASCADE")
    assert list_state(number) == "new"
    assert ended["none"] > 0
    assert (ended["old"] > 0) == replaced
