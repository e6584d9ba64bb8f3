"""A locked session is asked once what it has been told before, if that can't have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp

from privsql.engine.duck.connection import ResultCache
from privsql.engine.open import open_locked
from privsql.engine.sqlfiles import DIALECT, fill, temp_table
from support import statements
from support.commands import warehouse

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NUMBERS = "WITH q AS (SELECT i FROM t WHERE i < 3) SELECT i FROM q ORDER BY i"


def tree(sql: str) -> exp.Query:
    """A query as a tree."""
    found = sqlglot.parse_one(sql, dialect=DIALECT)
    assert isinstance(found, exp.Query)
    return found


def test_what_reads_the_file_alone_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As rows, as a table, and what its columns are; whoever changes what he was given changes nothing."""
    path = warehouse(tmp_path / "some.duckdb", "CREATE TABLE t AS SELECT i FROM range(10) r(i)")
    seen = statements.noted(monkeypatch)
    with open_locked({"home": path}, home="home") as db:
        for _ in range(3):
            rows = db.rows(tree(NUMBERS))
            assert rows == [(0,), (1,), (2,)]
            rows.append((99,))
            assert db.arrow(tree(NUMBERS))["i"].to_pylist() == [0, 1, 2]
            (field,) = db.list_fields(tree(NUMBERS))
            assert (field.name, field.type) == ("i", "BIGINT")
    assert len([sql for sql in seen if '"home"' in sql and "ATTACH" not in sql]) == 3


def test_what_can_change_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary relations, beside the file too, another database, settings, and one statement with several values."""
    path = warehouse(tmp_path / "some.duckdb", "CREATE TABLE t AS SELECT i FROM range(10) r(i)")
    with open_locked({"home": path, "other": None}, home="home") as db:
        for number in (1, 2):
            db.register_arrow("few", pa.table({"i": [number]}))
            assert db.rows(exp.select("i").from_(temp_table("few"))) == [(number,)]
            both = exp.select("a.i").from_(exp.to_table("t").as_("a")).join(temp_table("few").as_("b"), on="a.i = b.i")
            assert db.rows(both) == [(number,)]
            db.drop("few")
            db.create_table("made", tree(f"SELECT i FROM t WHERE i < {number}"), into="other")
            assert db.rows(tree("SELECT count(*) FROM other.main.made")) == [(number,)]
            assert db.list_fields(tree("SELECT * FROM other.main.made"))
            db.connection.run("DROP TABLE other.main.made")  # type: ignore[attr-defined]
            assert db.rows(tree("SELECT count(*) FROM t WHERE i < $most"), {"most": number}) == [(number,)]
        seen = statements.noted(monkeypatch)
        assert db.rows(fill("duckdb/memory", {})) == db.rows(fill("duckdb/memory", {}))
        assert len(seen) == 2


def test_a_database_in_memory_can_change() -> None:
    """Such as that of a release that is a folder."""
    with open_locked({"home": None}, home="home") as db:
        for number in (1, 2):
            db.create_table("made", tree(f"SELECT {number} AS i"), into="home")
            assert db.rows(tree("SELECT i FROM made")) == [(number,)]
            db.connection.run("DROP TABLE home.main.made")  # type: ignore[attr-defined]


def test_the_oldest_results_are_forgotten() -> None:
    """Those that were not asked for again; a large one is not kept at all."""
    memory, asked = ResultCache(400), []

    def ask(name: str, rows: int) -> list[int]:
        def found() -> list[int]:
            asked.append(name)
            return list(range(rows))

        assert memory.get(("rows", name), found) == list(range(rows))
        return asked

    for name in "abc" * 3:
        ask(name, 5)
    assert asked == ["a", "b", "c"]
    for _ in range(2):
        ask("large", 50)
    assert asked == ["a", "b", "c", "large", "large"]
    for number in range(30):
        ask(f"more {number}", 5)
        ask("a", 5)
    assert asked.count("a") == 1
    ask("b", 5)
    assert asked.count("b") == 2
