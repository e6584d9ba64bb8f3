"""Releases in Spark's catalog: written by workers, checked and counted there, and never half there."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import privsql
from privsql import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.engine.database import ViewDefinition
from privsql.engine.open import open_locked
from privsql.releases.contents import digest_release
from privsql.releases.draft import digest_tables
from privsql.releases.opened import SchemaDraft, read_manifest
from privsql.source.targets import as_target
from support import engines
from support.commands import MANIFEST, by_keys, write
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
PERMUTE: dict[str, Any] = {"sensitive": "salary", "mechanism": "permute", "k": 4, "e": 20}
ROLES: dict[str, Any] = {"qi": ["age", "sex", "odd"], "release.name": "r", "seed": 7}
MECHANISMS: dict[str, dict[str, Any]] = {
    "bucketize": {"sensitive": "disease", "threshold": "2*f + 0.1", "algorithm": "multi-size"},
    "randomize": {"sensitive": "disease", "algorithm": "pp", "mechanism.rho1": "1/5", "mechanism.rho2": "1/2"},
    "permute": PERMUTE,
}
ORDERED = [["ST rows lie in canonical order, once each"], ["perturbed rows lie in canonical order"]]
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def session() -> SparkSession:
    if reason := engines.without_spark():
        pytest.skip(reason)
    return engines.session()


@pytest.fixture
def schema(session: SparkSession) -> Iterator[str]:
    """The name of a schema that nothing is in; it needs quotes, and the catalog writes it in small letters."""
    name = f"1Released_{next(NUMBERS)}"
    yield name
    for one in (name, f"privsql_draft_{name}"):
        session.sql(f"DROP SCHEMA IF EXISTS `{one}` CASCADE")


def list_all(session: SparkSession, schema: str) -> list[str]:
    """The tables and views of a schema; none where there is no such schema."""
    if not session.catalog.databaseExists(f"`{schema}`"):
        return []
    return sorted(one.name for one in session.catalog.listTables(f"`{schema}`") if not one.isTemporary)


def put(session: SparkSession, file: Path, schema: str, *, replace: bool = False) -> None:
    """Commit a release that is a file into a schema of the catalog."""
    with SchemaDraft(as_target(schema, session), replace=replace) as draft:
        draft.commit(file)


def test_a_release_in_the_catalog(session: SparkSession, schema: str, tmp_path: Path) -> None:
    """Made and checked by Spark, and opened by the name of its schema; nothing else stays there."""
    people = session.read.parquet(str(write(tmp_path / "people.parquet", PEOPLE)))
    ledger = tmp_path / "ledger.duckdb"
    how: dict[str, Any] = {"source.population": "people", "ledger": ledger, **ROLES, **PERMUTE}
    done = privsql.publish(people, connection=session, **by_keys({**how, "release.schema": schema}))
    assert list_all(session, schema) == [MANIFEST, "privsql_values", "qit", "r_weighted", "st"]
    assert not session.catalog.databaseExists(f"privsql_draft_{schema}")
    assert str(done.target) == f"spark::{schema}"
    assert privsql.ledger(ledger=ledger)[0].digest == digest_release(done.target)
    found = privsql.verify(schema, connection=session)
    assert found.ok, [one for one in found.checks if not one.ok]


@REPEATED
def test_questions_and_limits(
    session: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are those of DuckDB's release, from a copy or counted in Spark; what needs a large copy is refused."""
    people = session.read.parquet(str(write(tmp_path / "people.parquet", PEOPLE)))
    how = {"ledger.off": True, **ROLES, **PERMUTE}
    privsql.publish(people, connection=session, **by_keys({**how, "release.schema": schema}))
    privsql.publish(
        tmp_path / "people.parquet", to=tmp_path / "here.duckdb", **by_keys({**how, "release.order": "portable"})
    )
    expected = privsql.query(tmp_path / "here.duckdb", QUESTION).rows
    assert privsql.query(schema, QUESTION, connection=session).rows == expected
    assert privsql.report(schema, to=tmp_path / "page.html", connection=session).checks
    weights = session.sql(f"SELECT sum(weight) FROM `{schema}`.r_weighted").collect()
    assert weights[0][0] == pytest.approx(1200)
    for limit in ("FETCHED", "ONE_MACHINE"):
        monkeypatch.setattr(f"privsql.engine.spark_release.{limit}", 1000)
    assert privsql.query(schema, QUESTION, connection=session).rows == expected
    for refused in (privsql.attack, privsql.verify, privsql.report):
        with pytest.raises(EngineError, match="qit has 1,200 rows, and this copies them to one machine"):
            refused(schema, people, connection=session)
    with pytest.raises(UsageError, match="exists; option replace"):
        privsql.publish(people, connection=session, **by_keys({**how, "release.schema": schema}))
    session.sql(f"COMMENT ON TABLE `{schema}`.st IS 'Alice'")
    with pytest.raises(GuaranteeError, match="does not belong here"):
        read_manifest(schema, connection=session)


@REPEATED
@pytest.mark.parametrize("kind", ["bucketize", "randomize", "permute"])
def test_every_check_runs_in_spark(session: SparkSession, schema: str, tmp_path: Path, kind: str) -> None:
    """The facts are those that DuckDB finds; a repeat is the same release, and a row in another place is found."""
    session.read.parquet(str(write(tmp_path / "people.parquet", PEOPLE))).createOrReplaceTempView("people")
    ledger = {"ledger": tmp_path / "ledger.duckdb"}
    how: dict[str, Any] = {
        "source.table": "people",
        "connection": session,
        "release.schema": schema,
        **ROLES,
        **MECHANISMS[kind],
    }
    done = privsql.publish(**by_keys({**how, **ledger}))
    here = {"release.order": "portable", "ledger.off": True, **ROLES, **MECHANISMS[kind]}
    facts = privsql.publish(tmp_path / "people.parquet", to=tmp_path / "here.duckdb", **by_keys(here)).facts
    assert done.facts == facts
    found = privsql.verify(done)
    assert found.ok, [one for one in found.checks if not one.ok]
    assert found.recomputed is not None
    digest = digest_release(done.target)
    privsql.publish(repeat=True, **by_keys({**how, **ledger}))
    assert digest_release(done.target) == digest
    name = "perturbed" if kind == "randomize" else "st"
    rows = session.table(f"`{schema}`.{name}")
    first, *others = rows.collect()
    changed = session.createDataFrame([*others, first], rows.schema)
    changed.coalesce(1).write.format("parquet").mode("overwrite").saveAsTable(f"`{schema}`.{name}")
    assert [one.name for one in privsql.verify(done).checks if not one.ok] in ORDERED


@REPEATED
def test_a_release_that_duckdb_has_made(ward: Path, session: SparkSession, schema: str) -> None:
    """A file goes through this machine; a schema that holds anything is refused, and stays."""
    from privsql.engine.spark_release import SparkCatalog

    put(session, ward / "ill.duckdb", schema)
    question = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY sex"
    assert privsql.query(schema, question, connection=session).rows == privsql.query(ward / "ill.duckdb", question).rows
    held = open_locked({"file": ward / "ill.duckdb"}, home="file")
    with held as db, SparkCatalog(session).open_tables(schema) as (there, names):
        assert digest_tables(db, names, "file", ordered=False) == digest_tables(there, names, "release", ordered=False)
    before = list_all(session, schema)
    with pytest.raises(UsageError, match="there is table 'privsql_channel'"):
        put(session, ward / "ill.duckdb", schema)
    assert list_all(session, schema) == before
    with pytest.raises(UsageError, match="connection does not have this file open"):
        read_manifest(f"{ward}/ill.duckdb::released", connection=session)
    with pytest.raises(UsageError, match="there is no schema 'nowhere'"):
        privsql.query("nowhere", question, connection=session)


STEPS = {
    "SparkSchemas": ("run_statement", "write_frame"),
    "SparkFolders": ("write_frame", "make_schema", "_rename", "_remove", "_write_text"),
}  # what changes a catalog, or folders


def count_steps(patch: pytest.MonkeyPatch, fail_at: int, *, for_good: bool) -> list[str]:
    """The steps of catalogs and folders from now on. Numbers 2k - 1 and 2k: the k-th fails before or after it.

    ``for_good``: all that follow fail, too, as if the process were gone.
    """
    from privsql.engine import spark_release

    seen: list[str] = []
    for owner, names in STEPS.items():
        for name in names:
            real = vars(getattr(spark_release, owner))[name]

            def counted(self: Any, *arguments: Any, real: Any = real, **how: Any) -> Any:
                seen.append(" ".join(map(str, arguments[:2])))
                at = 2 * len(seen)
                if at - 1 == fail_at or (for_good and at - 1 > fail_at):
                    raise EngineError("no more")
                done = real(self, *arguments, **how)
                if at == fail_at:
                    raise EngineError("no more")
                return done

            patch.setattr(getattr(spark_release, owner), name, counted)
    return seen


class Trials:
    """Commits of two small tables, which stand for those of a release, and a view: into a schema, or ``folder``."""

    def __init__(self, session: SparkSession, schema: str, folder: Path | None = None) -> None:
        from privsql.engine.spark_release import SparkCatalog

        self.session, self.folder = session, folder
        self.schema = schema if folder is None else folder.as_uri()
        self.catalog = SparkCatalog(session, None if folder is None else self.schema)
        view = (("view", "both"),) if folder is None else ()
        self.holding = (("table", "qit"), ("table", MANIFEST), *view)

    def list_all(self) -> list[str]:
        """The tables and views that lie there; a file that is none of them under its own name."""
        if self.folder is None:
            return list_all(self.session, self.schema)
        return sorted(path.name.removesuffix(".parquet") for path in self.folder.glob("*"))

    def read(self, name: str) -> Any:
        """The one value of a table or view."""
        there = self.session.read.parquet(f"{self.schema}/{name}.parquet") if self.folder is not None else None
        return (there or self.session.table(f"`{self.schema}`.{name}")).collect()[0][0]

    def clear(self) -> None:
        """Remove all that lies there."""
        if self.folder is None:
            self.session.sql(f"DROP SCHEMA IF EXISTS `{self.schema}` CASCADE")
        elif self.folder.exists():
            shutil.rmtree(self.folder)

    def commit(self, number: int) -> None:
        """Let tables that hold a number become the release; its owner's folder is gone at once."""
        views = [ViewDefinition(name, engines.tree("SELECT a FROM qit"), "a view") for _, name in self.holding[2:]]
        former = self.holding if self.list_all() else ()
        with self.catalog.open_stage(self.schema, MANIFEST, ROOT / "no such folder") as stage:
            for name in ("qit", MANIFEST):
                stage.write_table(name, self.session.sql(f"SELECT {number} AS a"))  # type: ignore[attr-defined]
            stage.commit(views, former)

    def list_state(self, number: int) -> str:
        """What opens as a release, all of which is of one commit; where nothing does, nothing is left."""
        listed = self.list_all()
        if MANIFEST not in listed:
            assert listed == []
            return "none"
        values = {self.read(name) for _, name in self.holding}
        assert (listed, len(values)) == (sorted(name for _, name in self.holding), 1)
        return "new" if values == {number} else "old"

    def fail_at(self, number: int, *, killed: bool) -> tuple[str, bool]:
        """Return the state after a commit in which step ``number`` fails, and whether there was one."""
        with pytest.MonkeyPatch.context() as patch:
            seen = count_steps(patch, number, for_good=killed)
            with suppress(EngineError):
                self.commit(number)
        if killed:
            self.catalog.sweep_stage(self.schema, MANIFEST)
        return self.list_state(number), len(seen) >= (number + 1) // 2


@REPEATED
@pytest.mark.parametrize("at_address", [False, True])
@pytest.mark.parametrize(("replaced", "killed"), [(False, False), (True, True)])
def test_a_failure_at_any_step(
    session: SparkSession, schema: str, tmp_path: Path, *, at_address: bool, replaced: bool, killed: bool
) -> None:
    """By enumeration of all steps of a stage and its commit: what opens is the last release, the new one or none.

    Of one that is killed the next publication removes what is left.
    """
    trials, ended = Trials(session, schema, tmp_path / "r" if at_address else None), []
    for number in itertools.count(1):
        if replaced and not trials.list_all():
            trials.commit(0)
        if not replaced:
            trials.clear()
        state, failed = trials.fail_at(number, killed=killed)
        if not failed:
            break
        ended.append(state)
    assert len(ended) >= 30
    assert state == "new"
    assert {"none", "new"} <= set(ended)
    assert ("old" in ended) == replaced
    assert [path.name for path in tmp_path.iterdir()] == (["r"] if at_address else [])


PROGRAM = """
import os, shutil, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from privsql.engine.spark_release import SparkSchemas
from privsql.releases.draft import digest_tables
from privsql.releases.opened import SchemaDraft
from privsql.source.targets import as_target
folder = sys.argv[1]
session = SparkSession.builder.master("local[1]").config(map={
    "spark.sql.catalogImplementation": "hive", "spark.sql.warehouse.dir": folder + "/warehouse",
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    "spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
}).getOrCreate()
real = SparkSchemas.run_statement
def run(self, sql):
    done = real(self, sql)
    if sys.argv[3] and sql.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
SparkSchemas.run_statement = run
target = as_target("released", session)
def commit():
    with SchemaDraft(target, replace=False) as draft:
        draft.commit(Path(shutil.copy(sys.argv[2], draft.folder)))
if sys.argv[3]:
    commit()
import privsql
from privsql.releases.opened import replay_target_wal
print(sorted(one.name for one in session.catalog.listTables("released")))
try:
    read_manifest(target)
except privsql.UsageError as error:
    print(error)
replay_target_wal(target)
print(sorted(one.name for one in session.catalog.listTables("released")))
commit()
print(read_manifest(target).name, len(session.catalog.listDatabases()))
"""


@REPEATED
def test_killed_while_it_renames(ward: Path, tmp_path: Path) -> None:
    """In a Hive metastore: what is left opens as no release, and the next publication removes it."""
    environment = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(ward / "ill.duckdb")]
    done = subprocess.run([*command, "ALTER TABLE"], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode < 0, done.stderr
    for lock in (tmp_path / "metastore").glob("*.lck"):
        lock.unlink()
    done = subprocess.run([*command, ""], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    left, refusal, swept, opened = done.stdout.splitlines()
    assert "'privsql_new_" in left
    assert "has no table 'privsql_manifest'" in refusal
    assert swept == "[]"
    assert opened == "ill 2"


@REPEATED
def test_a_folder_at_an_address(session: SparkSession, tmp_path: Path) -> None:
    """Written by way of Hadoop's file systems, opened again by its address, and also as a folder of this machine."""
    people = session.read.parquet(str(write(tmp_path / "people.parquet", PEOPLE)))
    how = {"ledger.off": True, **ROLES, **PERMUTE}
    for place, why in (
        ("s3a://bucket/r", "no file system of Spark's reaches it"),
        ("gs://bucket/r", "holds no release"),
    ):
        with pytest.raises(PrivsqlError, match=why) as refusal:
            privsql.publish(people, to=place, **by_keys(how))
        assert len(str(refusal.value).splitlines()) == 1
    with pytest.raises(UsageError, match="only Spark writes there, of sources"):
        privsql.publish(tmp_path / "people.parquet", to=f"file://{tmp_path}/r", **by_keys(how))
    done = privsql.publish(people, to=f"file://{tmp_path}/r", **by_keys(how))
    assert str(done.target) == f"file://{tmp_path}/r"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.parquet", "r"]
    assert {path.name[:5] for path in (tmp_path / "r").rglob("*.parquet") if path.is_file()} == {"part-"}
    with privsql.open(f"file://{tmp_path}/r", connection=session) as there, privsql.open(tmp_path / "r") as here:
        assert there.query(QUESTION).rows == here.query(QUESTION).rows
    (tmp_path / "r" / "qit.parquet" / "note.txt").write_text("Alice")
    with pytest.raises(GuaranteeError, match="does not belong here"):
        read_manifest(done)
