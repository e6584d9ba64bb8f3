"""Releases of earlier formats, unpacked, and changed copies of them."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING, Any

import duckdb

from support.commands import Outcome, run
from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = sorted((ROOT / "tests" / "fixtures").glob("format*"))
NEWEST = FORMATS[-1].name
MECHANISMS = ("bucketize", "fakes", "randomize", "permute", "setvalued", "contingency")
KEPT_APART = {"setvalued": "visits"}  # what a release calls itself, if not people


def unpack(shelf: Path) -> Path:
    """The releases of every format, beside their sources and specifications."""
    for form in FORMATS:
        shutil.copytree(form, shelf / form.name)
        for packed in (shelf / form.name).glob("*.gz"):
            with gzip.open(packed) as content, packed.with_suffix("").open("wb") as file:
                shutil.copyfileobj(content, file)
    return shelf


def release_of(folder: Path, name: str) -> Path:
    """A DuckDB file, or a folder of Parquet files."""
    return folder / name if (folder / name).is_dir() else folder / f"{name}.duckdb"


def taken(shelf: Path, to: Path, name: str = "bucketize") -> Path:
    """A copy of a release of the newest format, to change."""
    release, copy = release_of(shelf / NEWEST, name), to / release_of(shelf / NEWEST, name).name
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
    spec = shelf / NEWEST / f"{name}.toml"
    count = f"SELECT COUNT(*) FROM {KEPT_APART.get(name, 'people')}"
    commands = {
        "verify": ["verify", release],
        "verify --source": ["verify", release, "--source", spec],
        "inspect": ["inspect", release],
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
