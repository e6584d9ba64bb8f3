"""What the command line imports before it is needed: nothing that is heavy, and no mechanism but the one at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from privsql.cli.app import app
from privsql.mechanisms.registry import KINDS
from privsql.releases.opened import read_manifest
from support.commands import PEOPLE, specification, succeeded, write
from support.loops import rest_slow
from support.shelf import release_of

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {"pandas", "scipy", "pyarrow", "altair", "opendp", "numpy", "duckdb", "sqlglot", "randomgen", "tomlkit"}
OTHERS = {"adbc_driver_manager", "py4j", "pyspark"}  # engines that nothing loads but a source that lies in them
PACKAGES = {kind: next(iter(classes)).rsplit(".", 2)[0] for kind, classes in KINDS.items()}
UNUSED = {"pandas", "opendp", "altair", *(f"scipy.{one}" for one in ("fft", "linalg", "optimize", "sparse", "special"))}
# Modules of the package that a command imports at most, with its ledger.
MOST = {"publish": 105, "verify": 70, "query": 84, "verify --source": 110, "ledger": 60}
VERBS = sorted(str(info.name or info.callback.__name__) for info in app.registered_commands if info.callback)
PROGRAM = """
import contextlib, io, json, sys
from privsql.__main__ import main
loaded = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["privsql", *line]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()
    loaded.append(sorted(sys.modules))
print(json.dumps(loaded))
"""


def loaded(*lines: list[str]) -> list[set[str]]:
    """The modules that one process has imported after each of several commands."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [set(modules) for modules in json.loads(done.stdout)]


@pytest.mark.slow
def test_help_imports_nothing_that_is_heavy() -> None:
    lines = [["--version"], ["--help"], *([verb, "--help"] for verb in VERBS), ["verify", "--no-such"]]
    for line, modules in zip(lines, loaded(*lines), strict=True):
        assert modules & (HEAVY | OTHERS | {"pydantic", "rich.console", "privsql.source.spec"}) == set(), line
        assert not any(name.startswith(tuple(PACKAGES.values())) for name in modules), line


def test_the_models_import_nothing_that_is_heavy() -> None:
    lines = [["plan", "people.parquet", "--rho1", "1"]]  # which looks for the key of that name
    for line, modules in zip(lines, loaded(*lines), strict=True):
        assert modules & (HEAVY | OTHERS | {"rich.console"}) == set(), line
        assert modules.issuperset(f"{package}.parameters" for package in PACKAGES.values())
        assert not any(f"{package}.mechanism" in modules for package in PACKAGES.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_slow(PACKAGES))
def test_a_query_imports_its_own_mechanism_alone(shelf: Path, kind: str) -> None:
    release = release_of(shelf, kind)
    name = read_manifest(release).name
    (modules,) = loaded(["query", str(release), f"SELECT COUNT(*) FROM {name}", "--json"])
    others = [package for other, package in PACKAGES.items() if other != kind]
    assert [one for one in modules if one.startswith(tuple(others))] == []
    assert f"{PACKAGES[kind]}.mechanism" in modules
    assert modules & OTHERS == set()
    assert (
        modules & {"pandas", "altair", "narwhals", "opendp", "tomlkit", "scipy.optimize", "privsql.source.spec"}
        == set()
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", MOST)
def test_a_command_imports_what_it_runs_and_no_more(tmp_path: Path, command: str) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=200))
    spec, release = specification(tmp_path), str(tmp_path / "ill.duckdb")
    succeeded("publish", spec)
    (modules,) = loaded(
        {
            "publish": ["publish", str(spec), "--replace"],
            "verify": ["verify", release],
            "query": ["query", release, "SELECT count(*) FROM ill"],
            "verify --source": ["verify", release, "--source", str(spec)],
            "ledger": ["ledger", "list"],
        }[command]
    )
    own = {name for name in modules if name.startswith("privsql.")}
    others = tuple(package for kind, package in PACKAGES.items() if kind != "bucketize")
    assert modules & UNUSED == set()
    assert [name for name in own if name.startswith(others)] == []
    assert len(own) <= MOST[command], sorted(own)


def test_reading_a_source_from_python_imports_no_pandas() -> None:
    program = "import sys, privsql.source.records; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
