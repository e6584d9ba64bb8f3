"""Releases that are a schema of a database: nothing else of it is read, replaced or lost, and nothing is half there."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from privsql import EngineError, GuaranteeError, UsageError
from privsql.releases.contents import LEFTOVERS, digest_release
from privsql.releases.draft import is_occupied
from privsql.releases.opened import read_manifest
from privsql.releases.statements import SCHEMA_NOTE
from privsql.source.targets import Target
from support.commands import MANIFEST, by_keys, held_open, left_over, refused, run, succeeded, write
from support.statements import command, counted
from support.tampering import failed

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY sex"
SPECS = {"ward": "spec.toml", "hospital": "pp.toml", "firm": "spec.toml", "shop": "spec.toml", "town": "spec.toml"}
KILLS = 12


@pytest.fixture(scope="module")
def built(ward: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that holds its source, a table in another schema, and a release in schema 'Released to'."""
    tmp_path = tmp_path_factory.mktemp("house")
    for name in ("people.parquet", "spec.toml"):
        shutil.copy(ward / name, tmp_path / name)
    file = tmp_path / "house.duckdb"
    with duckdb.connect(str(file)) as db:
        db.execute(f"CREATE TABLE people AS FROM '{tmp_path / 'people.parquet'}'")
        db.execute("CREATE SCHEMA other")
        db.execute("CREATE TABLE other.things AS SELECT 1 AS a")
        db.execute("CREATE MACRO count(x) AS 0")
    spec = (tmp_path / "spec.toml").read_text()
    spec = spec.replace('file = "people.parquet"', 'database = "house.duckdb"\ntable = "people"')
    spec = spec.replace("[release]\n", '[release]\nschema = "Released to"\n').replace('"ill.duckdb"', '"house.duckdb"')
    (tmp_path / "spec.toml").write_text(spec)
    succeeded("publish", tmp_path / "spec.toml", "--seed", 1)
    return tmp_path


@pytest.fixture
def house(built: Path, tmp_path: Path) -> Path:
    """A copy of it, of whose release the test's ledger knows nothing."""
    for name in ("people.parquet", "spec.toml", "house.duckdb"):
        shutil.copy(built / name, tmp_path / name)
    return tmp_path


def there(folder: Path, schema: str = "Released to") -> Path:
    return Target(folder / "house.duckdb", schema).path


def told(file: Path, schema: str = "main") -> dict[str, list[tuple[Any, ...]]]:
    """The tables of a release but its manifest, in the order in which they are stored."""
    with duckdb.connect(str(file), read_only=True) as db:
        names = db.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = ?", [schema]).fetchall()
        found = {name: db.execute(f'SELECT * FROM "{schema}"."{name}"').fetchall() for (name,) in names}
    return {name: rows for name, rows in found.items() if name != MANIFEST}


def held(folder: Path) -> list[tuple[str, str]]:
    with duckdb.connect(str(folder / "house.duckdb"), read_only=True) as db:
        return db.execute("SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL").fetchall()


# Every verb ---


@pytest.mark.soak(part="long")
def test_it_is_the_release_that_a_file_would_be(house: Path, ward: Path) -> None:
    """The same key gives the same tables; every verb takes the address, in any case of letters."""
    assert told(house / "house.duckdb", "Released to") == told(ward / "ill.duckdb")
    asked = [succeeded("query", one, QUESTION, "--json").out for one in (there(house), ward / "ill.duckdb")]
    assert asked[0] == asked[1]
    assert succeeded("query", there(house, "RELEASED TO"), QUESTION, "--json").out == asked[0]
    assert succeeded("verify", there(house)).code == 0
    succeeded("verify", there(house), "--source", house / "spec.toml")
    succeeded("evaluate", there(house), "--source", house / "spec.toml", "--queries", 20)
    succeeded("attack", there(house), "--source", house / "spec.toml", "--seed", 1)
    assert held(house)[:3] == [("Released to", name) for name in ("ill_pairs", "ill_weighted", "privsql_channel")]
    assert left_over(house) == []


@pytest.mark.soak(part="long")
def test_it_says_that_the_rest_is_no_part_of_it(house: Path) -> None:
    assert read_manifest(there(house)).place == "schema"
    assert "nothing else in the database was checked or is promised" in succeeded("verify", there(house)).out
    assert SCHEMA_NOTE in privsql.open(there(house))._repr_html_()
    again = succeeded("publish", house / "spec.toml", "--seed", 1, "--replace")
    assert "do not hand that file out" in again.err
    assert "also holds the source" in again.err


@pytest.mark.slow
def test_a_plain_view_of_sql_reads_it(house: Path) -> None:
    with duckdb.connect(str(house / "house.duckdb"), read_only=True) as db:
        (number,) = db.execute('SELECT sum(p) FROM (SELECT 1 AS p FROM "Released to".ill_pairs LIMIT 3)').fetchall()[0]
    assert number == 3


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("made", SPECS)
def test_every_mechanism(request: pytest.FixtureRequest, made: str, tmp_path: Path) -> None:
    """Two releases beside each other in one database are the same, and are verified apart."""
    folder = request.getfixturevalue(made)
    for file in folder.iterdir():
        if file.suffix in {".parquet", ".toml"} and file.is_file():
            shutil.copy(file, tmp_path / file.name)
    spec = tmp_path / SPECS[made]
    asked = ["publish", spec, "--seed", 1, "--to", tmp_path / "all.duckdb", "--allow-composition", "--set"]
    for schema in ("one", "two"):
        succeeded(*asked, f"release.schema={schema}")
    one, two = (Target(tmp_path / "all.duckdb", schema).path for schema in ("one", "two"))
    assert told(tmp_path / "all.duckdb", "one") == told(tmp_path / "all.duckdb", "two") != {}
    for release in (one, two):
        assert succeeded("verify", release, "--json").json["ok"]
    assert succeeded("verify", one, "--source", spec, "--json").json["ok"]


@pytest.mark.soak(part="long")
@pytest.mark.parametrize(("made", "verb"), [("firm", "verify"), ("ward", "attack")])
def test_two_of_one_database(request: pytest.FixtureRequest, made: str, verb: str, tmp_path: Path) -> None:
    """What an adversary tells who has both is what it would be of two files."""
    spec = tmp_path / SPECS[made]
    for file in request.getfixturevalue(made).iterdir():
        if file.suffix in {".parquet", ".toml"} and file.is_file():
            shutil.copy(file, tmp_path / file.name)
    spec.write_text(f"{spec.read_text()}\n[ledger]\noff = true\n")
    asked = ["publish", spec, "--to"]
    files = [tmp_path / "one.duckdb", tmp_path / "two.duckdb"]
    schemas = [Target(tmp_path / "all.duckdb", one.stem).path for one in files]
    for seed, one in enumerate(files):
        succeeded(*asked, one, "--seed", seed)
        succeeded(*asked, tmp_path / "all.duckdb", "--seed", seed, "--set", f"release.schema={one.stem}")
    told = [run(verb, one, "--against", two, "--json") for one, two in (files, schemas)]
    alone, within = (json.loads(one.out.replace("all.duckdb::", "").replace(".duckdb", "")) for one in told)
    assert "error" not in alone
    for one in (alone, within):  # the file of a schema holds what else is in the database
        one["checks"] = [check for check in one.get("checks", []) if check["name"] != LEFTOVERS]
    assert {**alone, "seconds": 0, "notes": []} == {**within, "seconds": 0, "notes": []}


# What else is there, and who else ---


@pytest.mark.soak(part="long")
def test_nothing_else_is_replaced_or_read(house: Path) -> None:
    before = held(house)
    assert ("main", "people") in before
    succeeded("publish", house / "spec.toml", "--seed", 3, "--replace")
    assert held(house) == before
    refused(run("publish", house / "spec.toml", "--seed", 4), 2, "exists; option replace")
    refused(
        run("publish", house / "spec.toml", "--seed", 4, "--replace", "--set", "release.schema=other"),
        2,
        "not a release",
    )
    refused(
        run("publish", house / "spec.toml", "--seed", 4, "--replace", "--set", "release.schema=main"),
        2,
        "every database",
    )
    refused(run("publish", house / "spec.toml", "--seed", 4, "--set", "release.schema=a/b"), 2, "can't be a schema")
    refused(run("publish", house / "spec.toml", "--seed", 4, "--format", "parquet", "--replace"), 2, "has none")
    refused(run("query", there(house, "nowhere"), QUESTION), 2, "there is no schema")
    refused(run("query", there(house, "other"), QUESTION), 2, "not a release")
    assert held(house) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "check"),
    [
        (
            'CREATE TABLE "Released to".raw AS FROM people',
            "holds the stated tables and no other table, view or metadata",
        ),
        ('CREATE MACRO "Released to".count(x) AS 0', "holds the stated tables and no other table, view or metadata"),
        ('CREATE SEQUENCE "Released to".s', "holds the stated tables and no other table, view or metadata"),
        (
            "COMMENT ON TABLE \"Released to\".qit IS 'Alice'",
            "holds the stated tables and no other table, view or metadata",
        ),
        ('UPDATE "Released to".st SET count = count + 1 WHERE bid = 0', None),
        (
            "DELETE FROM \"Released to\".privsql_manifest WHERE key = 'place'",
            "it is of the kind that it states",
        ),
    ],
)
def test_what_is_changed_there_is_found(house: Path, statement: str, check: str | None) -> None:
    with duckdb.connect(str(house / "house.duckdb")) as db:
        db.execute(statement)
    found = failed(run("verify", there(house), "--json"))
    assert check is None or check in found


@pytest.mark.slow
def test_a_place_that_is_written_in_another_way_is_refused(house: Path) -> None:
    with duckdb.connect(str(house / "house.duckdb")) as db:
        db.execute("UPDATE \"Released to\".privsql_manifest SET value = 'null' WHERE key = 'place'")
    refused(run("verify", there(house)), 4, "its manifest is damaged")


@pytest.mark.slow
def test_a_file_that_says_it_is_a_schema(house: Path, tmp_path: Path) -> None:
    """Its tables copied into a file of their own are no release: the manifest says where they lay."""
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as db:
        db.execute(f"ATTACH '{house / 'house.duckdb'}' AS h (READ_ONLY)")
        for schema, name in held(house):
            if schema == "Released to" and not name.startswith("ill_"):
                db.execute(f'CREATE TABLE {name} AS FROM h."Released to".{name}')
        views = "SELECT view_name, sql, comment FROM duckdb_views() WHERE view_name LIKE 'ill_%'"
        for name, text, comment in db.execute(views).fetchall():
            db.execute(text.replace('"Released to".', ""))
            db.execute(f"COMMENT ON VIEW {name} IS '{comment.replace(chr(39), chr(39) * 2)}'")
    assert "it is of the kind that it states" in failed(run("verify", tmp_path / "copy.duckdb", "--json"))


@pytest.mark.slow
def test_open_elsewhere(house: Path) -> None:
    """Said before anything is read or written down."""
    with held_open(house / "house.duckdb"):
        refused(
            run("publish", house / "spec.toml", "--seed", 5, "--replace"), 4, "is open for writing in another process"
        )
    with pytest.raises(UsageError, match="no ledger yet"):
        privsql.ledger()
    succeeded("publish", house / "spec.toml", "--seed", 5, "--replace")


@pytest.mark.slow
def test_what_came_meanwhile_stays(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody puts a table there while a release is made: nothing is written, and the ledger says so."""
    from privsql.releases.opened import SchemaDraft

    commit = SchemaDraft.commit

    def late(self: SchemaDraft, made: Path) -> None:
        with duckdb.connect(str(house / "house.duckdb")) as db:
            db.execute("CREATE SCHEMA late")
            db.execute("CREATE TABLE late.mine AS SELECT 1 AS a")
        commit(self, made)

    monkeypatch.setattr(SchemaDraft, "commit", late)
    with pytest.raises(UsageError, match="there is table 'mine'; nothing written"):
        privsql.publish(house / "spec.toml", seed=6, allow_composition=True, set={"release": {"schema": "late"}})
    assert ("late", "mine") in held(house)
    assert [one.withdrawn for one in privsql.ledger()] == [True]


@pytest.mark.slow
def test_a_copy_that_is_not_what_was_checked(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privsql.releases.opened.digest_schema", lambda _, database, __: database)
    before = held(house)
    with pytest.raises(GuaranteeError, match="differs from what was checked"):
        privsql.publish(house / "spec.toml", seed=6, replace=True)
    assert held(house) == before
    assert privsql.verify(there(house)).ok


def test_what_is_no_database(tmp_path: Path, ward: Path) -> None:
    write(tmp_path / "x.parquet", "SELECT 1 AS a")
    with pytest.raises(EngineError):
        privsql.publish(ward / "spec.toml", seed=1, to=tmp_path / "x.parquet", set={"release": {"schema": "released"}})
    with pytest.raises(EngineError, match="folders have no schemas"):
        read_manifest(Target(ward / "ill", "released"))
    with pytest.raises(EngineError, match="no such release"):
        read_manifest(tmp_path / "nothing.duckdb::released")


def test_a_file_may_be_called_so(ward: Path, tmp_path: Path) -> None:
    """Only what is no file is an address."""
    shutil.copy(ward / "ill.duckdb", tmp_path / "a::b")
    assert privsql.verify(tmp_path / "a::b").ok
    assert Target.parse(tmp_path / "c::b") == Target(tmp_path / "c", "b")
    assert not is_occupied(Target(tmp_path / "c", "b"))


@pytest.mark.slow
def test_a_link_to_the_database_is_followed(house: Path) -> None:
    """It stays a link, and a schema may be called anything but a path."""
    (house / "link.duckdb").symlink_to(house / "house.duckdb")
    name = 'it\'s "ü"; --'
    succeeded(
        "publish",
        house / "spec.toml",
        "--seed",
        2,
        "--to",
        house / "link.duckdb",
        "--set",
        f"release.schema={name}",
        "--replace",
    )
    assert (house / "link.duckdb").is_symlink()
    assert privsql.verify(there(house, name)).ok
    assert digest_release(Target(house / "link.duckdb", name)) == digest_release(Target.parse(there(house, name)))


@pytest.mark.slow
def test_the_ledger_knows_it_by_its_address(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house)
    succeeded("publish", "spec.toml", "--replace", "--seed", 2)
    entry = privsql.ledger()[0]
    assert entry.target == str(there(house).resolve())
    assert entry.digest == digest_release(Target.parse(there(house)))
    succeeded("ledger", "withdraw", "house.duckdb::Released to")
    assert privsql.ledger()[0].withdrawn


@pytest.mark.slow
def test_a_new_database_and_a_release_in_python(ward: Path, tmp_path: Path) -> None:
    """A table in Python into a database that is made for it, and again into another schema of it."""
    import pandas as pd

    people = pd.read_parquet(ward / "people.parquet")
    how = {"sensitive": "disease", "qi": ["age", "sex"], "threshold": 0.5, "seed": 1, "ledger.off": True}
    done = [
        privsql.publish(
            people, to=tmp_path / "new.duckdb", **by_keys({**how, "release.schema": one, "release.name": "ill"})
        )
        for one in ("a", "b")
    ]
    assert [privsql.verify(one).ok for one in done] == [True, True]
    with privsql.open(done[0]) as release:
        assert release.query(QUESTION).rows == privsql.query(done[1], QUESTION).rows
    assert (tmp_path / "new.duckdb").stat().st_mode & 0o777 == 0o644


@pytest.mark.soak(part="kills")
def test_killed_at_any_moment(house: Path) -> None:
    """The old release or the new one, whole; the rest of the database as it was."""
    asked = ["publish", house / "spec.toml", "--replace", "--seed"]
    seen: list[int] = []
    succeeded(*asked, 100)
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, seen.append)
        succeeded(*asked, 0)
    before, draw, known, changed = held(house), random.Random(9), digest_release(Target.parse(there(house))), 0  # noqa: S311 (no secret)
    for i in range(1, KILLS + 1):
        late = len(seen) + draw.randint(-40, 160)  # what is written last; the ledger asks what killed ones have left
        given = command("kill", late, draw.uniform(0, 0.1), *asked, i)
        done = subprocess.run(**given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        assert done.returncode in {-signal.SIGKILL, 0}
        with duckdb.connect(str(house / "house.duckdb")):  # its owner opens and closes it
            pass
        assert held(house) == before
        if digest_release(Target.parse(there(house))) != known:
            assert succeeded("verify", there(house), "--json").json["ok"]
            known, changed = digest_release(Target.parse(there(house))), changed + 1
        assert succeeded("ledger", "--json").json
    assert 0 < changed < KILLS
    succeeded(*asked, KILLS + 1)
    assert left_over(house) == []
    assert read_manifest(there(house)).place == "schema"
