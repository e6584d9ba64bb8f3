"""A release in which nothing is hidden beside an engine that has its source: whatever is asked of both is the same."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import duckdb

import privsql as api
from support.commands import specification, succeeded, warehouse, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Beside = tuple[api.Release, duckdb.DuckDBPyConnection]


@contextmanager
def unhidden(folder: Path, rows: str, roles: str, *lookups: str) -> Iterator[Beside]:
    """Release and source as ``t``; ``lookups``: statements that make the tables of both beside it."""
    write(folder / "people.parquet", rows)
    asked = {"columns": roles, "mechanism": 'threshold = "1"\nmin_bucket_size = 1'}
    succeeded("publish", specification(folder, release='name = "t"\nto = "t.duckdb"', **asked), "--seed", 1)
    attached = [warehouse(folder / "beside.duckdb", *lookups)] if lookups else []
    with closing(duckdb.connect()) as engine, api.open(folder / "t.duckdb", attach=attached) as release:
        engine.execute(f"CREATE VIEW t AS FROM '{folder / 'people.parquet'}'")
        for statement in lookups:
            engine.execute(statement)
        yield release, engine
