"""The dbt project of the examples: a release as a model in the warehouse's own file, with tests of dbt's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import privsql
from support.places import ROOT

PROJECT = ROOT / "examples" / "dbt"
RELEASED = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'released' AND table_name <> 'privsql_manifest'"


def dbt(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of dbt in a folder that holds the project; its environment is made once, and kept."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "NO_COLOR": "1", "PROJECT": str(place)}
    command = ["sh", str(PROJECT / "run.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def copied(folder: Path) -> Path:
    """The project, in a folder of that."""
    place = folder / "clinic"
    shutil.copytree(PROJECT, place, ignore=shutil.ignore_patterns(".venv", "target", "logs", "*.duckdb"))
    return place


def changed(file: Path, old: str, new: str) -> None:
    """The file with another text."""
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")


def released(place: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The tables of the release in the warehouse, but its manifest."""
    with duckdb.connect(str(place / "clinic.duckdb"), read_only=True) as db:
        return {name: db.execute(f'FROM released."{name}"').fetchall() for (name,) in db.execute(RELEASED).fetchall()}


def told(folder: Path, word: bytes) -> list[str]:
    """The files of a folder that hold a word."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and word in path.read_bytes()]


def test_the_lock_names_the_extra_that_old_pip_asks_for() -> None:
    assert "\nmashumaro[msgpack]==" in (PROJECT / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.soak(part="services")
def test_the_release_is_a_model_that_others_read_and_tests_verify(tmp_path: Path) -> None:
    """What can't be met fails the build with privsql's line; a second run gives the same release, or stops."""
    place = copied(tmp_path)
    changed(place / "release.toml", '"1/4"', '"1/20"')
    refused = dbt(place)
    assert refused.returncode == 1
    assert "value flu has frequency 0.238 above its threshold 0.05; what works" in refused.stdout
    assert "SKIP test release_is_verified" in refused.stdout.replace("  ", " ")
    changed(place / "release.toml", '"1/20"', '"1/4"')
    done = dbt(place)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("release_is_verified", "readers_get_their_answers", "unique_flu_by_sex_sex"):
        assert f"PASS {name}" in done.stdout
    first = released(place)
    assert privsql.verify(place / "clinic.duckdb::released", place / "release.toml").ok
    assert dbt(place).returncode == 0
    assert released(place) == first != {}
    changed(place / "models" / "people.sql", "range(6000)", "range(6001)")
    stopped = dbt(place)
    assert stopped.returncode == 1
    assert "no guarantee covers both" in stopped.stdout
    assert released(place) == first
    with duckdb.connect(str(place / "clinic.duckdb"), read_only=True) as db:
        ((name,),) = db.execute("SELECT name FROM people WHERE person_id = 4711").fetchall()
    shutil.move(place / "clinic.duckdb", tmp_path / "clinic.duckdb")
    assert told(tmp_path, name.encode()) == [str(tmp_path / "clinic.duckdb")]
    assert list(place.rglob("*.parquet")) == []


@pytest.mark.soak(part="services")
def test_tests_of_dbt_find_a_changed_release_and_another_answer(tmp_path: Path) -> None:
    place = copied(tmp_path)
    assert dbt(place).returncode == 0
    changed(place / "counts.test", "F\t3000", "F\t2000")
    with duckdb.connect(str(place / "clinic.duckdb")) as db:
        db.execute("UPDATE released.qit SET age = age + 1 WHERE bid = 1")
    done = dbt(place, "test")
    assert done.returncode == 1
    for name in ("release_is_verified", "readers_get_their_answers"):
        assert f"in test {name}" in done.stdout


@pytest.mark.soak(part="services")
def test_an_external_materialization_would_leave_the_raw_table(tmp_path: Path) -> None:
    """What the page on pipelines warns of."""
    place = copied(tmp_path)
    changed(place / "models" / "people.sql", 'materialized="table"', 'materialized="external"')
    done = dbt(place)
    assert done.returncode == 0, done.stdout + done.stderr
    (left,) = place.rglob("*.parquet")
    assert b"patient-" in left.read_bytes()
