"""The house rules that tools can hold: formatting, lint, types, examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import linecache
import pkgutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

import privsql
import privsql.source.spec
from support.places import ROOT

EXTRAS = {"privsql.engine.spark": "pyspark", "privsql.engine.postgres": "adbc_driver_postgresql"}
LACKING = tuple(package for package, extra in EXTRAS.items() if find_spec(extra) is None)
FOUND = [
    module.name for module in pkgutil.walk_packages(privsql.__path__, "privsql.") if not module.name.startswith(LACKING)
]
TOOLS = [["ruff", "check", "."], ["ruff", "format", "--check", "."], pytest.param(["mypy"], marks=pytest.mark.slow)]


@pytest.mark.parametrize("command", TOOLS)
def test_tools_are_content(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_examples_in_docstrings() -> None:
    linecache.clearcache()  # doctest asks whether any of these files has changed, before every docstring
    modules = ["support.loops", *(name for name in FOUND if "__main__" not in name)]
    assert [name for name in modules if doctest.testmod(importlib.import_module(name)).failed] == []


def test_the_shipped_schema_is_the_models() -> None:
    shipped = (ROOT / "privsql" / "spec.schema.json").read_text(encoding="utf-8")
    assert shipped == privsql.source.spec.schema()
