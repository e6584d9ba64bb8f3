"""``Warehouse`` of ``privsql.engine.database``: a publisher's database, Parquet or CSV files, or a table in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.database import FRAME
from privsql.engine.duck.connection import about, one_select
from privsql.engine.duck.container import DuckContainer, reader
from privsql.engine.duck.extensions import ATTACHED, attach
from privsql.engine.duck.files import scanned
from privsql.engine.duck.sqlite import SQLITE, SQLiteFile, is_sqlite
from privsql.engine.files import shown
from privsql.engine.portable import one_select as one_select_of
from privsql.engine.sqlfiles import DIALECT, PREFIX, column, render, table, temp
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
        self._sqlite: SQLiteFile | None = None

    def close(self) -> None:
        """End the session."""
        super().close()
        if self._sqlite is not None:
            self._sqlite.close()

    def let_go(self) -> None:
        """Close the publisher's database file; what was made of it here stays."""
        if HOME in self._attached.values():
            self.connection.run(f"DETACH {HOME}")
            self._forget(HOME)

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``; what lies in Spark is brought here as Parquet."""
        brought = self._brought if origin.kind == SPARK else None
        if brought is not None:
            self._called(reader("parquet", *brought(origin)))
        elif origin.kind in ATTACHED:
            attach(self.connection, origin.kind, origin.address or "", HOME)
            self._neighbours = HOME
        elif origin.scan is not None:
            call = scanned(self.connection, origin.kind, origin.scan)
            with about(_shown(origin), whole=True):
                self._called(call, once=origin.kind == "csv" and not origin.query)
        elif origin.data is not None:
            self.put(FRAME, origin.data)
            self._called(render(table(PREFIX + FRAME)))
        else:
            self._database(origin.path or Path())
        if origin.query and brought is None:  # materialised: it might yield other rows when it is read again
            with about(_shown(origin), query=True):
                self.own(name, origin.query)
            return
        with about(_shown(origin)):
            if self._sqlite is not None:
                self._fetch(name, self._sqlite.whole(origin.relation or ""))
                return
            inner = render(exp.select("*").from_(_relation(origin)))
            self.connection.run(f"CREATE TEMP VIEW {render(temp(name))} AS {inner}")

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in the SQL of where the source lies, as temporary table ``name``."""
        if self._sqlite is None:
            super().own(name, query)
        else:
            self._fetch(name, one_select_of(query, SQLITE))

    def _called(self, call: str, *, once: bool = False) -> None:
        """Let a publisher's query call files ``source``; ``once``: a text is parsed anew whenever it is read."""
        if once:
            self.connection.step("Reading the source")
        self.connection.run(f"CREATE TEMP {'TABLE' if once else 'VIEW'} source AS SELECT * FROM {call}")

    def _database(self, path: Path) -> None:
        if not path.is_file():
            folder = "is a folder, and no database; of Parquet files give it as file, with reader = 'parquet'"
            raise EngineError(f"{path}: {folder if path.is_dir() else 'no such file'}")
        if is_sqlite(path):
            self._sqlite = SQLiteFile(path)
            return
        self.attach(path, HOME, read_only=True)
        self._neighbours = HOME

    def _fetch(self, name: str, query: str) -> None:
        """What a query yields in a SQLite file, as a temporary table."""
        if self._sqlite is not None:
            self.put("fetched", self._sqlite.stream(query))
            self.make(name, exp.select("*").from_(temp("fetched")))
            self.drop("fetched")

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


def _shown(origin: Origin) -> str:
    """What messages call the source."""
    if origin.scan is not None:
        others = len(origin.scan.files) - 1
        return shown(origin.scan.files[0]) + (f" and {others} more" if others else "")
    if origin.data is not None:
        return "the table"
    return f"source.{origin.kind}" if origin.path is None else str(origin.path)


def _relation(origin: Origin) -> exp.Table:
    """A table of the warehouse by its dotted name, parts may be quoted; of files, all of them."""
    name = origin.relation
    if origin.scan is not None or origin.data is not None or origin.kind == SPARK:
        return table("source", "temp")
    try:
        given = exp.to_table(name or "", dialect=DIALECT)
    except SqlglotError as error:
        raise UsageError(f"table {name!r} is not a name; quote its parts") from error
    if origin.kind in ATTACHED and not given.db:
        return table(given.name, schema=HOME)
    return table(given.name, HOME, given.db or "main")
