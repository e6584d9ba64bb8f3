"""The dbt project of the examples: a release as a model in the warehouse's own file, with tests of dbt's.

Then the same in Postgres, by the commands of the page on pipelines.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import privsql
from support import postgres
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


IN_POSTGRES = """
clinic:
  target: dev
  outputs:
    dev: {{type: postgres, host: "{host}", port: 5432, user: privsql, password: "", dbname: postgres, schema: marts}}
"""
SOURCE = """
version: 2
sources:
  - name: released
    tables: [{name: people_weighted}]
models:
  - name: flu_by_sex
    columns:
      - name: sex
        data_tests: [unique, not_null]
"""


def copied_for_postgres(folder: Path, address: str) -> Path:
    """The project, with the release and its readers in a Postgres database, where dbt has SQL models only."""
    place = folder / "clinic"
    shutil.copytree(PROJECT, place, ignore=shutil.ignore_patterns(".venv", "tests", "*.py", "people.sql", "schema.yml"))
    text = (place / "release.toml").read_text(encoding="utf-8")
    source = f'postgres = {{ uri = "{address}", table = "people" }}'
    text = re.sub("database = .*\ntable = .*", source, re.sub("(to|schema) = .*\n", "", text))
    (place / "spec.toml").write_text(text, encoding="utf-8")
    (place / "profiles.yml").write_text(IN_POSTGRES.format(host=address.rpartition("=")[2]))
    (place / "models" / "schema.yml").write_text(SOURCE)
    reader = place / "models" / "flu_by_sex.sql"
    changed(reader, "-- depends_on: {{ ref('release') }}", "{{ config(materialized='table') }}")
    return place


def followed(place: Path, address: str) -> list[subprocess.CompletedProcess[str]]:
    """The commands of the page, until one of them fails."""
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    block = page.rpartition("has no Python models")[2].partition("```sh\n")[2].partition("```")[0]
    lines = block.replace("postgresql://me@host/clinic", address).splitlines()
    steps = [shlex.split(line, comments=True) for line in lines]
    assert [" ".join(step[:2]) for step in steps] == ["privsql publish", "dbt build", "privsql verify", "privsql test"]
    done = []
    for program, *arguments in steps:
        if program == "dbt":
            done.append(dbt(place, *arguments))
        else:
            command = [sys.executable, "-m", "privsql", *arguments]
            done.append(subprocess.run(command, cwd=place, capture_output=True, text=True, check=False))
        if done[-1].returncode:
            break
    return done


@pytest.mark.soak(part="services")
def test_models_in_postgres_read_a_release_there(tmp_path: Path) -> None:
    """The release is published, read and verified; a second run changes nothing; other people stop the first step."""
    address = postgres.address()
    people = (PROJECT / "models" / "people.sql").read_text(encoding="utf-8").rpartition("}}")[2]
    postgres.stored("people", people)
    place = copied_for_postgres(tmp_path, address)
    from privsql.engine.postgres import PostgresServer

    server = PostgresServer(address)
    found = []
    for _ in range(2):
        done = followed(place, address)
        assert [one.returncode for one in done] == [0] * 4, done[-1].stdout + done[-1].stderr
        assert "PASS unique_flu_by_sex_sex" in done[1].stdout
        found.append(server.arrow("SELECT * FROM marts.flu_by_sex ORDER BY sex").to_pylist())
    assert found[0] == found[1]
    assert [row["sex"] for row in found[0]] == ["F", "M"]
    assert sum(row["people_with_flu"] for row in found[0]) == pytest.approx(1428, rel=0.01)
    postgres.stored("people", people.replace("range(6000)", "range(6001)"))
    (stopped,) = followed(place, address)
    assert stopped.returncode == 1
    assert "no guarantee covers both" in stopped.stderr
    assert privsql.verify(f"{address}::released").ok
    view = "select distinct sex from {{ source('released', 'people_weighted') }}"
    (place / "models" / "flu_by_sex.sql").write_text(view)
    assert dbt(place).returncode == 0
    postgres.stored("people", people)
    (depended,) = followed(place, address)
    assert depended.returncode == 4
    assert "depend" in depended.stderr
    server.close()
