"""One release opened many times in one process: from threads, and beside connections of the user's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql as api
from privsql.errors import EngineError
from privsql.releases.opened import read_manifest
from support.commands import rows
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ASKED = "SELECT sex, COUNT(*) FROM ill WHERE disease = 'flu' AND age > {} GROUP BY sex"
DOORS: dict[str, Callable[[Path], Any]] = {
    "query": lambda path: api.query(path, ASKED.format(40)).rows,
    "manifest": lambda path: read_manifest(path).published,
    "verify": lambda path: [check.ok for check in api.verify(path).checks],
}


@pytest.mark.slow
def test_a_release_is_opened_while_it_is_open(ward: Path) -> None:
    """Each answers on its own, whichever is closed first."""
    path = ward / "ill.duckdb"
    alone = api.query(path, ASKED.format(40)).rows
    first, second = api.open(path), api.open(path)
    assert first.query(ASKED.format(40)).rows == alone
    assert {name: door(path) for name, door in DOORS.items()}["query"] == alone
    first.close()
    assert second.query(ASKED.format(40)).rows == alone
    second.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(DOORS))
def test_every_door_from_several_threads(ward: Path, name: str) -> None:
    """The first call and the eighth say the same."""
    path, door = ward / "ill.duckdb", DOORS[name]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: door(path), range(8)))
    assert found == [door(path)] * 8


@pytest.mark.soak(part="long")
def test_threads_share_an_open_release(ward: Path) -> None:
    """They take turns: three of four were told that the connection is busy."""
    path = ward / "ill.duckdb"
    ages = [20, 30, 40, 50] * 4
    with api.open(path) as release, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda age: release.query(ASKED.format(age)).rows, ages))
        assert found == [release.query(ASKED.format(age)).rows for age in ages]


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(DOORS))
def test_beside_a_connection_of_the_user(ward: Path, name: str) -> None:
    """Read-only, with settings of its own, made before and made after; neither disturbs the other."""
    path, door = ward / "ill.duckdb", DOORS[name]
    alone, counted = door(path), rows(path, "SELECT COUNT(*) FROM qit")
    with closing(duckdb.connect(str(path), read_only=True, config={"threads": 1})) as before:
        assert door(path) == alone
        assert before.execute("SELECT COUNT(*) FROM qit").fetchall() == counted
    with api.open(path) as release, closing(duckdb.connect(str(path), read_only=True)) as after:
        assert door(path) == alone
        assert after.execute("SELECT COUNT(*) FROM qit").fetchall() == counted
        assert release.query(ASKED.format(40)).rows == DOORS["query"](path)


def test_open_for_writing_here(ward: Path, tmp_path: Path) -> None:
    """A connection that could write the file is named, as one of another process is."""
    path = tmp_path / "ill.duckdb"
    path.write_bytes((ward / "ill.duckdb").read_bytes())
    with closing(duckdb.connect(str(path))), pytest.raises(EngineError, match=r"open for writing in this process"):
        api.query(path, ASKED.format(40))
    assert api.query(path, ASKED.format(40)).rows
