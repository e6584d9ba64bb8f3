"""Every command of the README runs, in order, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.commands import write
from support.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
SETUP = ["sh examples/quickstart.sh", "sh tests/run.sh"]


def commands() -> list[str]:
    """The shell commands, one per line, without comments."""
    lines = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    return [" ".join(shlex.split(line, comments=True, posix=False)) for line in lines if line.strip()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table that the README's commands speak of."""
    folder = tmp_path_factory.mktemp("readme")
    query = (
        "SELECT 20 + i % 60 AS age, 1 + i % 2 AS sex, 1000 + i % 17 AS zip, "
        "['flu', 'cold', 'HIV', 'asthma', 'angina', 'none'][1 + (i * i + i // 7) % 6] AS disease, "
        "(i * 37 % 900 * 50)::INTEGER AS income, i AS person_id FROM range(6000) t(i)"
    )
    write(folder / "people.parquet", query)
    goods = "list_filter(['ale', 'bread', 'figs'], lambda good, k: (i + k) % (k + 1) = 0)"
    write(folder / "baskets.parquet", f"SELECT {goods} AS goods FROM range(6000) t(i)")
    return folder


def test_the_first_commands_are_the_two_that_set_up_everything() -> None:
    assert commands()[:2] == SETUP
    assert "sh tests/run.sh" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "sh examples/quickstart.sh" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_command_and_the_python_example_run(place: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    for command in commands()[2:]:
        steps = ["sh", "-c", command]
        done = subprocess.run(steps, cwd=place, env=environment, capture_output=True, text=True, check=False)
        if command.startswith("privsql init"):
            spec = place / "spec.toml"
            spec.write_text(spec.read_text(encoding="utf-8").replace('name = "disease"', 'name = "people"'))
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        ran += 1
    assert ran >= 6
    assert (place / "error.png").stat().st_size > 10_000
    _python_runs(place)


def test_the_specification_is_valid() -> None:
    from privsql import build

    text = next(text for kind, text in BLOCKS if kind == "toml")
    spec = build(tomllib.loads(text, parse_float=str))
    assert spec.mechanism.algorithm == "optimal"


@pytest.mark.slow
def test_the_columns_and_groups_make_a_release(tmp_path: Path) -> None:
    """The keys as they stand, over a table with such diseases."""
    from privsql import build, publish, verify

    query = (
        "SELECT 20 + i % 60 AS age, 1 + (i // 21) % 3 AS stage, ['flu', 'cold', 'HIV', 'asthma', 'angina', 'leukemia', "
        "'gout', 'lymphoma', 'flu', 'cold', 'lung', 'asthma', 'angina', 'skin', 'gout', 'ulcer', 'ulcer', 'mumps', "
        "'mumps', 'none', 'none'][1 + i % 21] AS disease FROM range(6300) t(i)"
    )
    write(tmp_path / "people.parquet", query)
    block = next(text for kind, text in BLOCKS if kind == "toml" and "[mechanism.groups" in text)
    asked = tomllib.loads(block, parse_float=str)
    asked["columns"]["quasi_identifiers"] = ["age"]
    to = {"name": "groups", "to": tmp_path / "groups.duckdb"}
    spec = build(asked | {"source": {"file": tmp_path / "people.parquet"}, "release": to})
    done = publish(spec)
    assert {"cancer", "cancer.1", "disease = HIV"} <= {one["name"] for one in done.facts["bounds"]}
    assert verify(tmp_path / "groups.duckdb", spec).ok


def _python_runs(place: Path) -> None:
    """The example in Python, in the folder where the commands have run."""
    text = next(text for kind, text in BLOCKS if kind == "python")
    done = subprocess.run([sys.executable, "-c", text], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_quickstart_prints_an_answer(tmp_path: Path) -> None:
    """The steps of the quickstart after its set-up, here with the environment that runs the tests."""
    script = (ROOT / "examples" / "quickstart.sh").read_text(encoding="utf-8")
    steps = script[script.index("set -x") :].replace('"$PWD', "")
    copied = tmp_path / "examples"
    copied.mkdir()
    for name in ("make_census.py", "census.toml"):
        (copied / name).write_text((ROOT / "examples" / name).read_text(encoding="utf-8"), encoding="utf-8")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-eu", "-c", steps], cwd=copied, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "95% interval" in done.stdout
    assert "verified" in done.stdout


@pytest.mark.slow
def test_the_walk_through_prints_a_table_and_draws_a_picture(tmp_path: Path) -> None:
    """Five releases of a smaller table than the one that the README speaks of."""
    for name in ("make_census.py", "five_ways.py"):
        (tmp_path / name).write_text((ROOT / "examples" / name).read_text(encoding="utf-8"), encoding="utf-8")
    subprocess.run([sys.executable, "make_census.py", "--rows", "6000"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "five_ways.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for way in ("anatomy", "optimal", "with fakes", "randomized", "(k,e) on income"):
        assert way in done.stdout
    assert (tmp_path / "five_ways.png").stat().st_size > 10_000
