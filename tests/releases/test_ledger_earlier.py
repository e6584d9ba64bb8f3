"""What version 0.1 wrote down beside a source is taken over: neither its chains nor its spendings are forgotten."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from support.commands import refused, rows, run, specification, succeeded, write
from support.loops import rest_slow
from support.office import SALARIES, Office
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = ROOT / "tests" / "fixtures" / "ledger1"
BEFORE = (
    'kind = "contingency"\nepsilon = {}\nallow_empty = true\ndomains = {{ sex = ["f", "m"], job = ["a", "b", "c"] }}'
)


def written(folder: Path, name: str) -> Path:
    """A ledger of version 0.1: an office with two releases, and a shop that has spent 2 of 2.5."""
    path = folder / f"{name}.ledger.duckdb"
    path.write_bytes(gzip.decompress((FIXTURES / f"{name}.ledger.duckdb.gz").read_bytes()))
    return path


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """The office of the thesis after two releases, in the order of D0 and D1."""
    made = Office(tmp_path)
    for people in SALARIES[:2]:
        made.hire(people)
    return made


@pytest.mark.slow
def test_a_chain_goes_on(office: Office) -> None:
    before = written(office.folder, "office").read_bytes()
    office.hire(SALARIES[2])
    planned = succeeded("plan", office.spec(), "--json").json
    office.publish()
    groups = rows(office.made[0], "SELECT list(salary ORDER BY salary) FROM st GROUP BY bid ORDER BY bid")
    assert groups == [([80, 81, 82, 83, 84, 85],), ([88, 89, 90, 91],), ([94, 95, 96],)]
    assert planned["groups"] == 3
    assert [(entry["number"], entry["fresh"], entry["records"]) for entry in office.entries()] == [
        (1, 7, 7),
        (2, 3, 10),
        (3, 3, 13),
    ]
    assert office.entries()[2]["composes"].startswith("every Boolean combination")
    assert (office.folder / "office.ledger.duckdb").read_bytes() == before


@pytest.mark.slow
def test_records_may_not_change_since(office: Office) -> None:
    written(office.folder, "office")
    office.sql("UPDATE people SET salary = 99 WHERE id = 9")
    office.sql("UPDATE people SET age = 22 WHERE id = 2")
    refused(run(*office.arguments()), 1, "may not change", "id 2 (changed), 9 (changed)")


@pytest.mark.slow
def test_other_mechanisms_know_these_people(office: Office) -> None:
    written(office.folder, "office")
    refused(run(*office.arguments(mechanism='kind = "bucketize"\nthreshold = 0.5')), 1, "release 2", "no guarantee")


@pytest.mark.slow
def test_a_copy_of_the_source_is_noticed(office: Office) -> None:
    written(office.folder, "office")
    succeeded("ledger", office.spec())
    with duckdb.connect(str(office.folder / "copy.duckdb")) as db:
        db.execute(f"ATTACH '{office.folder / 'office.duckdb'}' AS o; CREATE TABLE people AS FROM o.people")
    copied = {"source": 'database = "copy.duckdb"\ntable = "people"\nid = "id"'}
    refused(run(*office.arguments(**copied)), 1, "another name", "office.duckdb:people")


def _shop(folder: Path, epsilon: object, ledger: str) -> Path:
    write(folder / "shop.parquet", "SELECT 'f' AS sex, ['a', 'b', 'c'][1 + i % 3] AS job FROM range(90) t(i)")
    return specification(
        folder,
        source='file = "shop.parquet"',
        columns='categories = ["sex", "job"]',
        release='name = "jobs"\nto = "jobs.duckdb"',
        mechanism=f"{BEFORE.format(epsilon)}\n{ledger}",
    )


def beside(folder: Path) -> str:
    """Where version 0.1 put it by itself."""
    written(folder, "shop")
    return ""


def named(folder: Path) -> str:
    """Where a specification said so."""
    written(folder, "shop").rename(folder / "own.db")
    return '\ndatabase = "own.db"'


@pytest.mark.slow
@pytest.mark.parametrize("where", rest_slow([beside, named]))
def test_what_was_spent_is_spent(where: Callable[[Path], str], tmp_path: Path) -> None:
    place = where(tmp_path)
    refused(run("publish", _shop(tmp_path, 1, f"[ledger]\nepsilon = 2.5{place}")), 3, "0.5 is left", "spent 2")
    spec = _shop(tmp_path, "0.25", f"[ledger]{place}")
    succeeded("publish", spec)
    listed = succeeded("ledger", spec, "--json").json
    assert listed["spent"] == "2.25"
    assert [entry["epsilon"] for entry in listed["releases"]] == ["1", "1", "0.25"]


@pytest.mark.slow
def test_what_an_earlier_version_adds_is_taken_over_too(tmp_path: Path) -> None:
    path, spec = written(tmp_path, "shop"), _shop(tmp_path, "0.25", "")
    with duckdb.connect(str(path)) as db:
        second = db.execute("FROM release_2").fetchall()
        db.execute("DROP TABLE release_2")
    succeeded("publish", spec)
    with duckdb.connect(str(path)) as db:
        db.execute("CREATE TABLE release_2 (key VARCHAR, value VARCHAR)")
        db.executemany("INSERT INTO release_2 VALUES (?, ?)", second)
    for _ in range(2):
        assert succeeded("ledger", spec, "--json").json["spent"] == "2.25"


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["UPDATE release_1 SET value = '{'", "DELETE FROM release_1 WHERE key = 'number'"])
def test_one_that_is_damaged_stops_the_release(wrong: str, tmp_path: Path) -> None:
    with duckdb.connect(str(written(tmp_path, "shop"))) as db:
        db.execute(wrong)
    refused(run("publish", _shop(tmp_path, 1, "")), 4, "shop.ledger.duckdb", "damaged")
    (tmp_path / "shop.ledger.duckdb").write_bytes(b"nothing")
    refused(run("publish", _shop(tmp_path, 1, "")), 4, "shop.ledger.duckdb")
    assert not (tmp_path / "jobs.duckdb").exists()


def test_it_stays_private(tmp_path: Path) -> None:
    written(tmp_path, "shop").chmod(0o644)
    succeeded("ledger", _shop(tmp_path, 1, ""))
    assert Path(os.environ["PRIVSQL_LEDGER"]).stat().st_mode & 0o077 == 0
