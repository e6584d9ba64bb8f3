"""A release of every mechanism, made once from ``tests/fixtures/shelf``, and changed copies of them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import duckdb
import portalocker

import privsql
from privsql.source.spec import Ledger
from support.commands import Outcome, run
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

SPECS = ROOT / "tests" / "fixtures" / "shelf"
MECHANISMS = ("bucketize", "fakes", "randomize", "permute", "setvalued", "contingency")
KEPT_APART = {"setvalued": "visits"}  # what a release calls itself, if not people


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder that ``make`` fills: once in a run, whichever of its workers comes first."""
    workers = "PYTEST_XDIST_WORKER" in os.environ
    folder = (factory.getbasetemp().parent if workers else factory.getbasetemp()) / f"shared-{name}"
    with portalocker.Lock(folder.with_suffix(".lock"), timeout=600):
        if not folder.with_suffix(".made").exists():
            folder.mkdir()
            make(folder)
            folder.with_suffix(".made").touch()
    return folder


def publish_shelf(shelf: Path) -> Path:
    """Publish every specification beside a copy of it and of its source; returns the folder."""
    shutil.copytree(SPECS, shelf, dirs_exist_ok=True)
    for spec in sorted(shelf.glob("*.toml")):
        without_ledger = privsql.load(spec).model_copy(update={"ledger": Ledger(off=True)})
        privsql.publish(without_ledger, seed=1, threads=1)
    return shelf


def release_of(folder: Path, name: str) -> Path:
    """A DuckDB file, or a folder of Parquet files."""
    return folder / name if (folder / name).is_dir() else folder / f"{name}.duckdb"


def taken(shelf: Path, to: Path, name: str = "bucketize") -> Path:
    """A copy of a release, to change."""
    release, copy = release_of(shelf, name), to / release_of(shelf, name).name
    shutil.copytree(release, copy) if release.is_dir() else shutil.copy(release, copy)
    return copy


def altered(shelf: Path, to: Path, *changes: Any, name: str = "bucketize") -> Path:
    """A copy of a release after some statements, or calls with its connection."""
    release = taken(shelf, to, name)
    with duckdb.connect(str(release)) as db:
        for change in changes:
            change(db) if callable(change) else db.execute(change)
    return release


def uses(release: Path, shelf: Path, name: str = "bucketize", *, few: bool = False) -> dict[str, Outcome]:
    """Every command that opens a release, by name; ``few``: those that differ most."""
    spec = shelf / f"{name}.toml"
    count = f"SELECT COUNT(*) FROM {KEPT_APART.get(name, 'people')}"
    commands = {
        "verify": ["verify", release],
        "verify --source": ["verify", release, "--source", spec],
        "query": ["query", release, count],
        "attack": ["attack", release],
        "attack --source": ["attack", release, "--source", spec],
        "evaluate": ["evaluate", release, "--source", spec, "--queries", 8],
    }
    chosen = ["verify", "query"] if few else list(commands)
    return {use: run(*commands[use]) for use in chosen}


def all_refuse(release: Path, shelf: Path, *codes: int, name: str = "bucketize", few: bool = False) -> None:
    """Every command ends with one of the codes, in one line but for the report of ``verify``."""
    for use, done in uses(release, shelf, name, few=few).items():
        assert done.crash is None, f"{use}: {done.crash!r}"
        assert done.code in codes, f"{use} ends with {done.code}: {done.out}{done.err}"
        if not use.startswith("verify") or done.code != 1:
            assert len(done.err.strip().splitlines()) == 1, f"{use}: {done.err}"
