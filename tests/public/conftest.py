"""The shelf of releases, which all tests of this folder and all workers of a run share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from public.made import Shelf

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Return the folder of releases; a case is published when a test first asks for it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "public"
    folder.mkdir(exist_ok=True)
    return Shelf(folder)


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the ledger and the models of every test to itself, whoever runs it."""
    monkeypatch.setenv("PRIVSQL_LEDGER", str(tmp_path / "state" / "ledger.duckdb"))
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path / "cache"))
