"""Folders whose tables lie in parts, as engines write them that have several workers."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import duckdb
import pytest

from support.commands import run, succeeded
from support.tampering import seal

if TYPE_CHECKING:
    from pathlib import Path

QUESTION = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY sex"


@pytest.fixture
def parted(ward: Path, tmp_path: Path) -> Path:
    """A release whose QIT lies in seven parts."""
    release = tmp_path / "ill"
    shutil.copytree(ward / "ill", release)
    (release / "qit.parquet").rename(tmp_path / "whole.parquet")
    (release / "qit.parquet").mkdir()
    with duckdb.connect() as db:
        (rows,) = db.execute(f"SELECT count(*) FROM '{tmp_path / 'whole.parquet'}'").fetchall()[0]
        size = -(-rows // 7)
        for part in range(7):
            some = f"SELECT * FROM '{tmp_path / 'whole.parquet'}' LIMIT {size} OFFSET {part * size}"
            db.execute(
                f"COPY ({some}) TO '{release / 'qit.parquet' / f'part-{part:05}.parquet'}' (WRITE_BLOOM_FILTER false)"
            )
    return seal(release)


@pytest.mark.slow
def test_parts_are_one_table(ward: Path, parted: Path) -> None:
    assert (
        succeeded("query", parted, QUESTION, "--json").out == succeeded("query", ward / "ill", QUESTION, "--json").out
    )
    succeeded("verify", parted)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["order", "missing", "stranger", "link", "folder", "empty"])
@pytest.mark.parametrize("sealed", [False, True])
def test_parts_that_do_not_belong_there(parted: Path, what: str, sealed: bool) -> None:
    """Out of order, gone, a file of another kind, a link, a folder in it, no part at all: verify says so."""
    table = parted / "qit.parquet"
    first, second = table / "part-00000.parquet", table / "part-00001.parquet"
    match what:
        case "order":
            first.rename(table / "part-99999.parquet")
        case "missing":
            second.unlink()
        case "stranger":
            (table / "_SUCCESS").touch()
        case "link":
            second.rename(parted.parent / "elsewhere.parquet")
            second.symlink_to(parted.parent / "elsewhere.parquet")
        case "folder":
            (table / "more.parquet").mkdir()
        case "empty":
            shutil.rmtree(table)
            table.mkdir()
    done = run("verify", seal(parted) if sealed and what != "link" else parted)
    assert done.crash is None
    assert done.code == 1, done.err
