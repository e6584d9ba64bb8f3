"""DuckDB's relations, attached database files, and locked sessions for files that others made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
import sqlglot
from sqlglot import exp

from privsql import system
from privsql.engine.duck.connection import MOST, VERSION, Connection, Memory, about, one_select
from privsql.engine.files import scheme
from privsql.engine.roles import DIGITS, Field, beside_each_other, first
from privsql.engine.sqlfiles import DIALECT, PREFIX, all_rows, fill, render, table, temp, within
from privsql.errors import EngineError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Sized
    from contextlib import AbstractContextManager
    from threading import Event

    from privsql.engine.duck.connection import Settings
    from privsql.engine.progress import Options
    from privsql.engine.sqlfiles import Holes

    Told = TypeVar("Told", bound=Sized)

# Relations ------------------------------------------------------------------------------------------------------------
# ``Relations`` of ``privsql.engine.database``: named relations of a session, made from trees or put from arrays.

PROCESS_BASE, LEAST = (
    200 * 2**20,
    60 * 2**20,
)  # bytes that the process takes before it does anything, and the engine at least
UNITS = {unit: 1024**power for power, unit in enumerate(("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"))}


class DuckRelations:
    """What was made in one connection."""

    keeps_order = True

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._neighbours = "memory"  # the database whose tables a publisher's own SELECT reads
        self._registered: set[str] = set()
        self._limit: int | None = None  # bytes that the process may take
        self._fault: BaseException | None = None  # of a stream of ours while a statement read it

    def close(self) -> None:
        """End the session and forget all that is temporary."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading ---

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""
        return self.connection.rows(self._sql(query), values)

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""
        return self.connection.arrow(self._sql(query), values)

    @contextmanager
    def streamed(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query, so many at a time and in its order; meanwhile only sessions ``beside`` can be asked."""
        with self.connection.streamed(self._sql(query), rows) as reader:
            yield reader

    @contextmanager
    def beside(self) -> Iterator[DuckRelations]:
        """A session with temporary relations of its own over the same attached databases."""
        other = DuckRelations(self.connection.beside())
        try:
            yield other
        finally:
            other.close()

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        query = all_rows(source) if isinstance(source, exp.Table) else source
        return self._columns(query)

    def _columns(self, query: exp.Expr) -> list[Field]:
        return self._described(self._sql(query))

    def _described(self, sql: str) -> list[Field]:
        return [Field(row[0], row[1]) for row in self.connection.rows(f"DESCRIBE {sql}")]

    def reserve(self, size: int, what: str) -> None:
        """Leave so many bytes of the memory limit to arrays beside the engine; ``EngineError`` for too many.

        Without a limit it is the engine's own, four fifths of the machine's memory.
        """
        if self._limit is None:
            self._limit = _bytes(self.rows(fill("duckdb/memory", {}))[0][0])
        left = self._limit - PROCESS_BASE - size
        if left < LEAST:
            raise EngineError(
                f"{what} takes about {size / 1e9:.2f} GB beside the engine and "
                f"{(PROCESS_BASE + LEAST) / 1e9:.2f} GB for all "
                f"else; the memory limit is {self._limit / 1e9:.2f} GB"
            )
        self.connection.run(f"SET memory_limit = '{left}B'")

    def position(self, table: str) -> exp.Expr:
        """Rows of a table made here are numbered 0, 1, .. in the order in which they were inserted."""
        return exp.column("rowid", table=table)

    def dealt(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` and ``code`` from ``positions`` (pos, bid, code)."""
        self.view("dealt", fill("duckdb/dealt", {"records": records, "positions": positions}))
        return all_rows(temp("dealt"))

    def matched(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` from ``positions`` (pos, bid)."""
        self.view("matched", fill("duckdb/matched", {"records": records, "positions": positions}))
        return all_rows(temp("matched"))

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """63 bits of the MD5 of texts, side by side: the same in every version, unlike the engine's own hash."""
        number = exp.Anonymous(this="md5_number", expressions=[beside_each_other(texts)])
        return exp.cast(exp.BitwiseRightShift(this=number, expression=exp.Literal.number(65)), "BIGINT")

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """The first 60 bits of SHA-256 of these texts side by side."""
        hexadecimal = exp.Anonymous(this="sha256", expressions=[beside_each_other(texts)])
        return exp.cast(exp.DPipe(this=exp.Literal.string("0x"), expression=first(hexadecimal, DIGITS)), "BIGINT")

    # Making ---

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as a table: temporary, or in the attached database ``into``."""
        if title:
            self.connection.step(title)
        kind, target = ("TABLE", table(name, into)) if into else ("TEMP TABLE", temp(name))
        try:
            self.connection.run(f"CREATE {kind} {render(target)} AS {self._sql(query)}")
        except PrivsqlError as error:
            fault, self._fault = self._fault, None
            raise fault or error from None

    def append(self, name: str, query: exp.Expr, *, into: str) -> None:
        """Add the rows of a query to a table of the attached database ``into``."""
        self.connection.run(render(exp.insert(query, table(name, into))))

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's as temporary table ``name``."""
        with self._at(self._neighbours):
            self.connection.run(f"CREATE TEMP TABLE {render(temp(name))} AS {one_select(query)}")

    def view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``, in its first schema or another."""
        if into is None:
            self.connection.run(f"CREATE OR REPLACE TEMP VIEW {render(temp(name))} AS {self._sql(query)}")
            return
        with self._at(into, schema):  # so that its text names no database and survives a renamed file
            self.connection.run(f"CREATE VIEW {render(table(name))} AS {render(query)}")

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable (a stream: once) under ``name``, without a copy."""
        if isinstance(data, pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_batches(data.schema, self._heard(data))
        self.connection.register(PREFIX + name, data)
        self._registered.add(name)

    def _heard(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The batches; of our own errors, and of Ctrl-C, the engine would tell the text in a line of its own."""
        try:
            yield from stream
        except GeneratorExit:  # nobody reads on
            raise
        except BaseException as error:
            self._fault = error
            raise

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""
        for name in names:
            if name in self._registered:
                self.connection.unregister(PREFIX + name)
                self._registered.discard(name)
            else:
                self.connection.run(f"DROP TABLE IF EXISTS {render(temp(name))}")

    def _sql(self, query: exp.Expr) -> str:
        """The text of a tree, as it is run here."""
        return render(query)

    @contextmanager
    def _at(self, database: str, schema: str | None = None) -> Iterator[None]:
        """Let names that say no database mean those of ``database``. Else none is current but the session's own."""
        self.connection.run(f"USE {identifier(database)}" + (f".{identifier(schema)}" if schema else ""))
        try:
            yield
        finally:
            self.connection.run(f"USE {identifier('memory')}")


def _bytes(shown: str) -> int:
    """A size as the engine shows it."""
    number, unit = shown.split()
    return int(float(number) * UNITS[unit])


def identifier(name: str) -> str:
    """A name as SQL writes it."""
    return render(exp.to_identifier(name, quoted=True))


def text(value: object) -> str:
    """A value as a text constant of SQL."""
    return render(exp.Literal.string(str(value)))


# Container ------------------------------------------------------------------------------------------------------------
# ``Container`` of ``privsql.engine.database``: database files attached beside the session's own relations.

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


# Locked ---------------------------------------------------------------------------------------------------------------
# ``Locked`` of ``privsql.engine.database``: files that others made, in a session that can reach nothing else.
#
# The session's own database lies in memory, is locked before a file is opened, and attaches files read-only under names
# of privsql's own. So what a file holds never stands in the way when a name is looked up: a macro ``max`` that somebody
# stored is another function than ``max``, and nothing runs it.

READING_BASE, PER_BYTE = (
    2**30,
    32,
)  # bytes of memory that reading may take: so many, and so many for each byte of the files
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
    memory = min(int(SHARE * system.memory()), READING_BASE + PER_BYTE * sum(map(_size, files)))
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
