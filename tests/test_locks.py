"""The lock files hold what the package asks for, pinned and with hashes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import pairwise

import pytest
from packaging.requirements import Requirement

from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
TESTS = [*PROJECT["dependencies"], *EXTRAS["docs"], *EXTRAS["dp"], *EXTRAS["plot"], *EXTRAS["test"]]
LOCKS = {
    "requirements.lock": PROJECT["dependencies"],
    "tests/requirements.lock": TESTS,
    "tests/engines.lock": [*TESTS, *EXTRAS["spark"], *EXTRAS["postgres"], *EXTRAS["lake"]],
}
APART = {  # environments of their own
    "examples/dbt/requirements.lock": ["dbt-core<1.12", "dbt-duckdb<1.12", "dbt-postgres<1.12"],
    "tests/schedulers.lock": ["apache-airflow>=3.3,<3.4", "dagster>=1.13,<1.14"],
}


def pinned(name: str) -> dict[str, set[str]]:
    """Versions by package; fails where one has no hash."""
    found: dict[str, set[str]] = {}
    text = re.sub(r"\\\n", " ", (ROOT / name).read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            exact = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", line)
            assert exact, f"{name}: {line[:80]} is not pinned"
            assert "--hash=sha256:" in line, f"{name}: {exact[1]} has no hash"
            found.setdefault(exact[1].lower().replace("_", "-"), set()).add(exact[2])
    return found


@pytest.mark.parametrize("name", [*LOCKS, *APART])
def test_locks_fit_the_project(name: str) -> None:
    held = pinned(name)
    asked = [Requirement(text) for text in LOCKS.get(name) or [*PROJECT["dependencies"], *APART[name]]]
    wrong = [
        f"{one.name}: {held.get(one.name.lower(), 'missing')}"
        for one in asked
        if not held.get(one.name.lower()) or not all(one.specifier.contains(v) for v in held[one.name.lower()])
    ]
    assert not wrong, wrong
    assert "hatchling" in held  # what builds the package, without an isolated environment of its own


def test_each_lock_agrees_with_the_next() -> None:
    for first, second in pairwise(map(pinned, LOCKS)):
        assert {name: second.get(name) for name in first} == first


def test_the_clients_are_pinned_as_elsewhere() -> None:
    """Their environment finds what else it needs in that of the tests."""
    held, elsewhere = pinned("tests/clients.lock"), pinned("tests/engines.lock")
    assert {"adbc-driver-postgresql", "duckdb-engine", "psycopg", "sqlalchemy"} <= held.keys()
    assert all(elsewhere.get(name, versions) == versions for name, versions in held.items())


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("platform", ["windows", "macos"])
def test_wheels_are_there_for_the_newest_python_on(platform: str) -> None:
    """Of the package and the extras that have any; pyspark comes as source, for all platforms alike."""
    extras = [part for name in ("dp", "plot", "postgres") for part in ("--extra", name)]
    version = f"3.{max(int(one.split('3.')[1]) for one in PROJECT['classifiers'] if 'Python :: 3.' in one)}"
    target = ["--python-platform", platform, "--python-version", version, "--only-binary", ":all:"]
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "pyproject.toml", *extras, *target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "Failed to fetch" in done.stderr or "dns error" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^duckdb==2\.0", done.stdout, flags=re.MULTILINE)
    assert ("pywin32==" in done.stdout) == (platform == "windows")
