"""The dbt project of the examples: it publishes, a test of dbt's verifies, and nothing raw stays behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import privsql
from support.places import ROOT

PROJECT = ROOT / "examples" / "dbt"


def built(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of ``dbt build`` in a folder that holds the project; its environment is made once, and kept."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "NO_COLOR": "1", "PROJECT": str(place)}
    command = ["sh", str(PROJECT / "run.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def copied(folder: Path) -> Path:
    """The project, in a folder of that."""
    place = folder / "clinic"
    shutil.copytree(PROJECT, place, ignore=shutil.ignore_patterns(".venv", "target", "logs", "*.duckdb"))
    return place


def told(folder: Path, word: bytes) -> list[str]:
    """The files of a folder that hold a word."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and word in path.read_bytes()]


def test_the_lock_names_the_extra_that_old_pip_asks_for() -> None:
    assert "\nmashumaro[msgpack]==" in (PROJECT / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.soak(part="services")
def test_dbt_publishes_verifies_and_leaves_nothing_raw(tmp_path: Path) -> None:
    """An infeasible threshold fails the build with privsql's message, and the last release stays."""
    place = copied(tmp_path)
    done = built(place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS every_check_holds" in done.stdout
    assert "3 of 3 queries are answered as expected" in done.stdout
    release = place / "clinic_release.duckdb"
    assert privsql.verify(release).ok
    refused = built(place, "--vars", "{threshold: 1/20}")
    assert refused.returncode == 1
    assert "value flu has frequency 0.238 above its threshold 0.05; what works" in refused.stdout
    assert "every_check_holds" in next(line for line in refused.stdout.splitlines() if "SKIP test" in line)
    assert privsql.verify(release).ok
    with duckdb.connect(str(place / "clinic.duckdb"), read_only=True) as db:
        ((name,),) = db.execute("SELECT name FROM people WHERE person_id = 4711").fetchall()
    shutil.move(place / "clinic.duckdb", tmp_path / "clinic.duckdb")
    assert told(tmp_path, name.encode()) == [str(tmp_path / "clinic.duckdb")]
    assert list(place.rglob("*.parquet")) == []


@pytest.mark.soak(part="services")
def test_an_external_materialization_would_leave_the_raw_table(tmp_path: Path) -> None:
    """What the page on pipelines warns of."""
    place = copied(tmp_path)
    model = place / "models" / "people.sql"
    text = model.read_text(encoding="utf-8")
    assert 'materialized="table"' in text
    model.write_text(text.replace('materialized="table"', 'materialized="external"'), encoding="utf-8")
    done = built(place)
    assert done.returncode == 0, done.stdout + done.stderr
    (left,) = place.rglob("*.parquet")
    assert b"patient-" in left.read_bytes()
