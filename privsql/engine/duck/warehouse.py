"""``Warehouse`` of ``privsql.engine.database``: a publisher's DuckDB, Parquet or CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.duck.connection import about, one_select
from privsql.engine.duck.container import DuckContainer, reader
from privsql.engine.sqlfiles import DIALECT, column, render, table, temp
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.engine.database import Origin
    from privsql.engine.duck.connection import Connection

SPARK = "spark"  # a kind of origin
HOME = "warehouse"  # the publisher's database, once it is mounted


class DuckWorkshop(DuckContainer):
    """A publisher's source beside the releases that are made of it."""

    def __init__(self, connection: Connection, brought: Callable[[Origin], list[Path]] | None = None) -> None:
        """``brought``: makes Parquet files of a table that lies in another engine."""
        super().__init__(connection)
        self._brought = brought

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as view ``name``; what lies in Spark is brought here as Parquet."""
        path, kind, query = origin.path or Path(), origin.kind, origin.query
        if kind == SPARK and self._brought is not None:
            files, kind, query = self._brought(origin), "parquet", None
        elif not path.exists():
            raise EngineError(f"{path}: no such file")
        else:
            files = [path]
        if kind == "duckdb":
            self.attach(path, HOME, read_only=True)
            self._neighbours = HOME
        else:
            with about(path, whole=True):
                self.connection.run(f"CREATE TEMP VIEW source AS SELECT * FROM {reader(kind, *files)}")
        if query:  # materialised: it might yield other rows when it is read again
            with about(path, query=True):
                self.own(name, query)
            return
        with about(path):
            inner = render(exp.select("*").from_(_relation(origin.relation if kind == "duckdb" else None)))
            self.connection.run(f"CREATE TEMP VIEW {render(temp(name))} AS {inner}")

    def collated(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """By column of a relation the collation that it has: no type names it, but the text of a table does."""
        probe = temp("collated")
        empty = exp.select(*map(column, columns)).from_(source).where(exp.false())
        self.connection.run(f"CREATE TEMP TABLE {render(probe)} AS {render(empty)}")
        text = next(sql for _, _, name, sql in self.listed("temp") if name == probe.name)
        self.drop("collated")
        made = sqlglot.parse_one(text, dialect=DIALECT).find_all(exp.ColumnDef)
        found = {one.name: one.find(exp.CollateColumnConstraint) for one in made}
        return {name: one.this.sql(dialect=DIALECT) for name, one in found.items() if one is not None}

    def publish_as(self, name: str, query: exp.Expr) -> None:
        """Create a temporary view under a name of the publisher's."""
        self.connection.run(f"CREATE TEMP VIEW {render(table(name, 'temp'))} AS {render(query)}")

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT of the publisher's own on the source."""
        return self.connection.rows(one_select(sql))


def _relation(name: str | None) -> exp.Table:
    """A table of the warehouse by its dotted name, parts may be quoted; None: the file."""
    if not name:
        return table("source", "temp")
    try:
        given = exp.to_table(name, dialect=DIALECT)
    except SqlglotError as error:
        raise UsageError(f"table {name!r} is not a name; quote its parts") from error
    return table(given.name, HOME, given.db or "main")
