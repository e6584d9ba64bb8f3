"""Releases that are folders of Parquet, whose tables may lie in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from pathlib import Path


def tables(release: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The tables of a folder but its manifest, rows in their stored order."""
    found = {}
    for table in sorted(release.glob("*.parquet")):
        parts = [str(part) for part in (sorted(table.iterdir()) if table.is_dir() else [table])]
        if table.stem != "privsql_manifest":
            found[table.stem] = duckdb.execute(f"FROM read_parquet({parts})").fetchall()
    return found
