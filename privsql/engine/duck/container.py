"""``Container`` of ``privsql.engine.database``: database files attached beside the session's own relations."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from privsql.engine.duck.connection import VERSION, about
from privsql.engine.duck.relations import DuckRelations, identifier, text
from privsql.engine.files import scheme
from privsql.engine.sqlfiles import DIALECT, all_rows, fill, render, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.engine.duck.connection import Connection
    from privsql.engine.roles import Field
    from privsql.engine.sqlfiles import Holes

# What plans a query by the least and greatest values that a file states of its own columns. A file whose statement is
# false would hide rows from a check, or let DuckDB write behind the end of an array.
BELIEVING = (
    "statistics_propagation", "filter_pushdown", "join_filter_pushdown", "cte_filter_pusher", "row_group_pruner",
    "top_n", "late_materialization", "compressed_materialization", "partitioned_execution",
    "partial_aggregate_pushdown", "type_pushdown",
)  # fmt: skip
HEADERS, HEADER = 3, 4096  # pages at the beginning of a file, and the bytes of each
HEAD = 256  # bytes of a header that may hold something; DuckDB fills 140
READERS = {"parquet": "read_parquet", "csv": "read_csv"}


class DuckContainer(DuckRelations):
    """Files that the session has attached."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._attached: dict[Path, str] = {}  # each once

    def attach(self, path: Path, name: str, *, read_only: bool, strange: bool = False) -> None:
        """Attach a database file under ``name``; ``strange``: what it says of its own columns is not believed."""
        mode = " (READ_ONLY, TYPE duckdb)" if read_only else ""
        if strange:
            self.distrust()
        with about(path):
            self.connection.run(f"ATTACH {text(path)} AS {identifier(name)}{mode}")
        self._attached[path.resolve()] = name

    def attached(self, path: Path) -> str | None:
        """The name under which a file is attached, which can be once; None for one that is not."""
        return self._attached.get(path.resolve())

    def leftovers(self, name: str) -> list[str]:
        """What the file of an attached database holds beside the rows of its tables, a line for each find."""
        path = next(path for path, called in self._attached.items() if called == name)
        holes: Holes = {"database": exp.Literal.string(name)}
        block, total, free = map(int, self.rows(fill("duckdb/blocks", holes))[0])
        wrong = [f"{free:,} free blocks, which may hold rows that were dropped"] if free else []
        length = HEADERS * HEADER + total * block
        with about(path), path.open("rb") as file:
            pages = [file.read(HEADER)[HEAD:] for _ in range(HEADERS)]
            size = file.seek(0, 2)
        if size != length and not (free and size < length):  # the engine may cut what is free off its end
            wrong.append(f"{size:,} bytes, of which {length:,} are its headers and blocks")
        if any(page.strip(b"\0") for page in pages):
            wrong.append("bytes behind the entries of its headers")
        for kind, schema, table_name, _ in self.listed(name):
            if kind == "table":
                deleted = self._deleted(table(table_name, name, schema))
                wrong += [f"{deleted:,} deleted rows of {table_name!r}"] if deleted else []
        return wrong

    def _deleted(self, stored: exp.Table) -> int:
        """How many rows of a stored table are deleted and still lie in the file."""
        holes: Holes = {"table": stored, "called": exp.Literal.string(render(stored))}
        return int(self.rows(fill("duckdb/deleted", holes))[0][0])

    def detach(self, name: str) -> None:
        """Write everything to an attached file and let go of it."""
        self.connection.run(f"CHECKPOINT {identifier(name)}")
        self.connection.run(f"DETACH {identifier(name)}")
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._attached = {path: called for path, called in self._attached.items() if called != name}

    def distrust(self) -> None:
        """Plan no query by what files say of their columns."""
        self.connection.run(f"SET disabled_optimizers = {text(','.join(BELIEVING))}")

    def create(self, name: str) -> None:
        """Attach a new, empty database in memory under ``name``."""
        self.connection.run(f"ATTACH ':memory:' AS {identifier(name)}")

    def scanned(self, paths: Sequence[Path], kind: str) -> exp.Select:
        """The rows of Parquet or CSV files with the same columns, one after the other."""
        return exp.select("*").from_(sqlglot.parse_one(reader(kind, *paths), into=exp.Table, dialect=DIALECT))

    def define(self, name: str, columns: Sequence[Field], *, into: str, schema: str | None = None) -> None:
        """Create an empty table in an attached database."""
        listed = ", ".join(f"{identifier(field.name)} {field.type}" for field in columns)
        self.connection.run(f"CREATE TABLE {render(table(name, into, schema or ''))} ({listed})")

    def export(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, rows in order."""
        written = f"TO {text(path)} (FORMAT parquet, COMPRESSION zstd, WRITE_BLOOM_FILTER false)"
        self.connection.run(f"COPY (SELECT * FROM {render(source)}) {written}")

    def objects(self, database: str, schema: str | None = None) -> list[tuple[str, str, str]]:
        """Everything that somebody has put into an attached database: (kind, name, SQL), sorted.

        ``schema``: what lies in that one alone, by names without it.
        """
        rows = self.rows(fill("duckdb/objects", {"database": exp.Literal.string(database)}))
        if schema is None:
            return [(kind, name, sql) for kind, name, sql, _ in rows]
        own = [(kind, name.removeprefix(f"{schema}."), sql) for kind, name, sql, place in rows if place == schema]
        return [one for one in own if one[:2] != ("schema", schema)]

    def schemas(self, database: str) -> list[str]:
        """The schemas of an attached database but its first, main."""
        rows = self.rows(fill("duckdb/objects", {"database": exp.Literal.string(database)}))
        return [name for kind, name, _, _ in rows if kind == "schema"]

    def schema(self, name: str, *, into: str) -> None:
        """Create a schema in an attached database, if there is none of that name."""
        self.connection.run(f"CREATE SCHEMA IF NOT EXISTS {identifier(into)}.{identifier(name)}")

    @contextmanager
    def housed(
        self,
        made: str,
        place: tuple[str, str],
        tables: Sequence[str],
        view: tuple[str, exp.Query],
        former: Sequence[tuple[str, str]] = (),
    ) -> Iterator[None]:
        """Copy tables of database ``made`` into ``place``, (database, schema), with a view of them.

        ``former``: (kind, name) of what goes before. ``UsageError`` if there is anything else. All of it happens if
        nothing is raised inside, and else nothing.
        """
        into, schema = place
        with self.together():
            self.schema(schema, into=into)
            for kind, name in sorted(former, reverse=True):  # views before their tables
                self.connection.run(f"DROP {kind} {render(table(name, into, schema))}")
            other = [f"{kind} {name!r}" for kind, name, _ in self.objects(into, schema)]
            if other:
                raise UsageError(f"there is {other[0]}")
            for name in tables:
                rows = render(all_rows(table(name, made)))
                self.connection.run(f"CREATE TABLE {render(table(name, into, schema))} AS {rows}")
            self.view(*view, into=into, schema=schema)
            yield

    def listed(self, database: str) -> list[tuple[str, str, str, str]]:
        """The tables and views of an attached database: (kind, schema, name, SQL), sorted by schema and name."""
        rows = self.rows(fill("duckdb/listed", {"database": exp.Literal.string(database)}))
        return [(kind, schema, name, sql) for kind, schema, name, sql in rows]

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is made inside is there as a whole or not at all; in one database only."""
        self.connection.run("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            self.connection.run("ROLLBACK")
            raise
        self.connection.run("COMMIT")

    def version(self) -> str:
        """DuckDB's version."""
        return VERSION


def log_of(path: Path) -> Path:
    """The write-ahead file of a database file, as DuckDB names it: what follows a ``?`` stays at the end."""
    head, mark, tail = str(path).partition("?")
    return Path(f"{head}.wal{mark}{tail}")


def reader(kind: str, *paths: Path | str, hive_partitioning: bool = False, **options: Any) -> str:
    """The call that reads exactly these files: their names are no pattern, their folders say nothing of columns."""
    names = ", ".join(text(literal(str(path))) for path in paths)
    options = {"hive_partitioning": hive_partitioning, **options}
    return called(READERS[kind], f"[{names}]", options)


def called(function: str, given: str, options: Mapping[str, Any]) -> str:
    """The call of a function with options by their names."""
    return f"{function}({', '.join([given, *(f'{name} = {_constant(value)}' for name, value in options.items())])})"


def _constant(value: Any) -> str:
    """A value as a constant of SQL."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(key)}: {_constant(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_constant, value)) + "]"
    return text(value) if isinstance(value, str) else str(value).lower()


def literal(name: str) -> str:
    """What a reader is given for one file; an address is no pattern here, and may ask with ``?``."""
    return name if scheme(name) else exactly(name)


def exactly(path: str) -> str:
    """The pattern that this path alone meets."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)
