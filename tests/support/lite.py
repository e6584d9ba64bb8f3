"""SQLite files for tests."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def lite(path: Path, *statements: str) -> Path:
    """A file made by statements."""
    with closing(sqlite3.connect(path)) as file:
        for statement in statements:
            file.execute(statement)
        file.commit()
    return path


def filled(path: Path, table: str, names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> Path:
    """A file with a table of these columns and rows."""
    listed = list(names)
    lite(path, f"CREATE TABLE {table} ({', '.join(listed)})")
    with closing(sqlite3.connect(path)) as file:
        file.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(listed))})", rows)
        file.commit()
    return path


def copied(path: Path, table: str, query: str) -> Path:
    """A file with the rows of a query of DuckDB's."""
    with duckdb.connect() as db:
        asked = db.execute(query)
        return filled(path, table, [column[0] for column in asked.description or ()], asked.fetchall())
