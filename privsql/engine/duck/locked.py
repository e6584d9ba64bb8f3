"""``Locked`` of ``privsql.engine.database``: files that others made, in a session that can reach nothing else.

The session's own database lies in memory, is locked before a file is opened, and attaches files read-only under names
of privsql's own. So what a file holds never stands in the way when a name is looked up: a macro ``max`` that somebody
stored is another function than ``max``, and nothing runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp

from privsql import system
from privsql.engine.duck.connection import Connection, one_select
from privsql.engine.duck.container import DuckContainer, exactly, log_of
from privsql.engine.duck.memory import MOST, Memory
from privsql.engine.duck.relations import identifier, text
from privsql.engine.roles import Field
from privsql.engine.sqlfiles import render, table, within
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Sized
    from contextlib import AbstractContextManager
    from pathlib import Path
    from threading import Event

    import pyarrow as pa

    from privsql.engine.duck.connection import Settings
    from privsql.engine.progress import Options

    Told = TypeVar("Told", bound=Sized)

BASE, PER_BYTE = 2**30, 32  # bytes of memory that reading may take: so many, and so many for each byte of the files
SHARE = 0.8  # of the machine's memory, which no session exceeds
SPILL = 4  # times the memory that may be spilled to disk
SECONDS = 30.0  # that a copy of what may be a view may take


class DuckLocked(DuckContainer):
    """What others made. Trees whose tables name no database mean those of database ``home``.

    Where that is a file (``read_only``), what reads nothing else has the same answer again, and is asked once.
    """

    def __init__(self, connection: Connection, home: str, *, read_only: bool) -> None:
        super().__init__(connection)
        self._home, self._memory = home, Memory(MOST if read_only else 0)

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""
        return list(self._told("rows", query, lambda sql: self.connection.rows(sql, values), values))

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""
        return self._told("arrow", query, lambda sql: self.connection.arrow(sql, values), values)

    def _columns(self, query: exp.Expr) -> list[Field]:
        return list(self._told("columns", query, self._described))

    def _told(
        self, kind: str, query: exp.Expr, ask: Callable[[str], Told], values: Mapping[str, Any] | None = None
    ) -> Told:
        """What a query gives, from memory where it reads nothing but the database ``home``."""
        tree = within(query, self._home)
        read = list(tree.find_all(exp.Table))
        places = {one.catalog for one in read if isinstance(one.this, exp.Identifier)} - {""}  # those of WITH have none
        plain = not values and places == {self._home} and all(isinstance(one.this, exp.Identifier) for one in read)
        sql = render(tree, copy=False)
        return self._memory.get((kind, sql), lambda: ask(sql)) if plain else ask(sql)

    def _sql(self, query: exp.Expr) -> str:
        return render(within(query, self._home), copy=False)

    def binds(self, sql: str) -> list[Field]:
        """Names and types of what a text gives; ``UsageError`` unless it is one SELECT that the engine would run."""
        return [Field(row[0], row[1]) for row in self.connection.rows(f"DESCRIBE {one_select(sql)}")]

    def stand_in(self, names: Sequence[str], query: exp.Expr) -> None:
        """Let ``binds`` find a query under a name of an analyst's: [[database,] schema,] table."""
        database, schema, name = (["memory", "main"][: max(0, 3 - len(names))] + list(names))[-3:]
        if database != "memory":
            self.connection.run(f"ATTACH IF NOT EXISTS ':memory:' AS {identifier(database)}")
        self.connection.run(f"CREATE SCHEMA IF NOT EXISTS {identifier(database)}.{identifier(schema)}")
        self.connection.run(f"CREATE OR REPLACE VIEW {render(table(name, database, schema))} AS {self._sql(query)}")

    def limited(self, seconds: float | None = None, stop: Event | None = None) -> AbstractContextManager[None]:
        """End what takes too long: a view of somebody else's may never end."""
        return self.connection.limited(SECONDS if seconds is None else seconds, stop)


def session(
    attached: Mapping[str, Path | None], readable: Sequence[Path], home: str, spill: Path, options: Options
) -> DuckLocked:
    """A locked session: database files attached by name (None: an empty one in memory), and files that may be read."""
    files = [path for path in (*attached.values(), *readable) if path is not None]
    connection = Connection(_settings(files, spill, options), options.report)
    made = DuckLocked(connection, home, read_only=attached.get(home) is not None)
    try:
        made.distrust()
        _lock(made.connection, [str(one) for path in files for one in (path, log_of(path))])
        for name, path in attached.items():
            made.attach(path, name, read_only=True) if path is not None else made.create(name)
    except BaseException:
        made.close()
        raise
    return made


def _settings(files: Sequence[Path], spill: Path, options: Options) -> Settings:
    """Memory and disk in proportion to the files, so that a small one can't ask for much; or as the caller says."""
    memory = min(int(SHARE * system.memory()), BASE + PER_BYTE * sum(map(_size, files)))
    settings: Settings = {
        "temp_directory": str(spill),
        "memory_limit": options.memory_limit or f"{memory}B",
        "max_temp_directory_size": f"{SPILL * memory}B",
    }
    if options.threads:
        settings["threads"] = str(options.threads)
    return settings


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error


def _lock(connection: Connection, allowed: Sequence[str]) -> None:
    """From now on: no other file, no extension, no setting can be changed."""
    both = dict.fromkeys([*allowed, *map(exactly, allowed)])  # a reader is given a pattern, and opens what it meets
    connection.run(f"SET allowed_paths = [{', '.join(map(text, both))}]")
    connection.run("SET enable_external_access = false")
    connection.run("SET python_enable_replacements = false")
    connection.run("SET lock_configuration = true")
