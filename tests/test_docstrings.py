"""Examples in docstrings give what they show, and the shipped schema is that of the models."""

from __future__ import annotations

import doctest
import importlib
import linecache
import pkgutil
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


@pytest.mark.slow
def test_examples_in_docstrings() -> None:
    linecache.clearcache()  # doctest asks whether any of these files has changed, before every docstring
    modules = ["support.loops", *(name for name in FOUND if "__main__" not in name)]
    assert [name for name in modules if doctest.testmod(importlib.import_module(name)).failed] == []


def test_the_shipped_schema_is_the_models() -> None:
    shipped = (ROOT / "privsql" / "spec.schema.json").read_text(encoding="utf-8")
    assert shipped == privsql.source.spec.schema()
