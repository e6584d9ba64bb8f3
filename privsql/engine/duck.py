"""DuckDB: the only module that talks to it; owns all DDL, temporary tables, tracing and progress."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.database import FILE_KINDS
from privsql.engine.progress import Silent
from privsql.engine.roles import Field
from privsql.engine.sqlfiles import PREFIX, fill, render, table, temp
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from privsql.engine.progress import Reporter

MISTAKES = (
    duckdb.BinderException, duckdb.ConversionException, duckdb.ParserException, duckdb.CatalogException,
    duckdb.InvalidInputException, duckdb.SyntaxException, duckdb.OutOfRangeException,
)  # fmt: skip
POLL = 0.1  # seconds between two looks at a running statement
HARDENED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
READERS = {"parquet": "read_parquet", "csv": "read_csv"}


class Engine:
    """A connection and what was made in it. ``trace`` holds every statement that ran."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, report: Reporter | None = None) -> None:
        self._connection = connection
        self._report = report or Silent()
        self._home = "memory"
        self._registered: set[str] = set()
        self.trace: list[str] = []
        # Text of a timestamp must not depend on where it is written.
        connection.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        """Close the connection and forget all that is temporary."""
        with suppress(duckdb.Error):  # an interrupted statement may still be ending
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading ---

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""
        return self.execute(render(query), values).fetchall()

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""
        sql = render(query)
        self.trace.append(sql)
        with translated():
            return self._connection.sql(sql, params=dict(values) if values else None).to_arrow_table()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT of the publisher's own on the source."""
        return self.execute(self._checked(sql)).fetchall()

    def binds(self, sql: str) -> None:
        """``UsageError`` unless the text is one SELECT that the engine itself would run."""
        self.execute(f"EXPLAIN {self._checked(sql)}")

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        query = exp.select("*").from_(source) if isinstance(source, exp.Table) else source
        return [Field(row[0], row[1]) for row in self.execute(f"DESCRIBE {render(query)}").fetchall()]

    def objects(self, database: str | None) -> list[tuple[str, str, str]]:
        """Everything a user has put into a database (None: the current one): (kind, name, SQL), sorted."""
        name = exp.Literal.string(database) if database else exp.Anonymous(this="current_database")
        return self.rows(fill("duckdb/objects", {"database": name}))

    def version(self) -> str:
        """DuckDB's version."""
        return duckdb.__version__

    def position(self, table: str) -> exp.Expr:
        """Rows of a table made here are numbered 0, 1, .. in the order in which they were inserted."""
        return exp.column("rowid", table=table)

    def dealt(self, records: exp.Table, slots: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` and ``code`` from ``slots`` (pos, bid, code), by position."""
        return fill("duckdb/dealt", {"records": records, "slots": slots})

    def matched(self, records: exp.Table, slots: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` from ``slots`` (pos, bid), by position."""
        return fill("duckdb/matched", {"records": records, "slots": slots})

    # Making ---

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as a table: temporary, or in the attached database ``into``."""
        if title:
            self._report.step(title)
        kind, target = ("TABLE", table(name, into)) if into else ("TEMP TABLE", temp(name))
        self.execute(f"CREATE {kind} {render(target)} AS {render(query)}")

    def define(self, name: str, columns: list[Field]) -> None:
        """Create an empty table."""
        listed = ", ".join(f"{_name(field.name)} {field.type}" for field in columns)
        self.execute(f"CREATE TABLE {render(table(name))} ({listed})")

    def view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``."""
        if into is None:
            self.execute(f"CREATE OR REPLACE TEMP VIEW {render(temp(name))} AS {render(query)}")
            return
        # The view's own database must be current, so that its text names no database and survives a renamed file.
        self.execute(f"USE {_name(into)}")
        try:
            self.execute(f"CREATE VIEW {render(table(name))} AS {render(query)}")
        finally:
            self.execute(f"USE {_name(self._home)}")

    def own_view(self, name: str, query: exp.Expr) -> None:
        """Create a temporary view under a name of the publisher's."""
        self.execute(f"CREATE TEMP VIEW {render(table(name, 'temp'))} AS {render(query)}")

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable (a stream: once) under ``name``, without a copy."""
        self._connection.register(PREFIX + name, data)
        self._registered.add(name)

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""
        for name in names:
            if name in self._registered:
                self._connection.unregister(PREFIX + name)
                self._registered.discard(name)
            else:
                self.execute(f"DROP TABLE IF EXISTS {render(temp(name))}")

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is made inside is there as a whole or not at all; in one database only."""
        self.execute("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def attach(self, path: Path, name: str, *, read_only: bool) -> None:
        """Attach a database file under ``name``."""
        mode = " (READ_ONLY)" if read_only else ""
        with _about(path):
            self.execute(f"ATTACH {_text(path)} AS {_name(name)}{mode}")

    def detach(self, name: str) -> None:
        """Write everything to an attached file and let go of it."""
        self.execute(f"CHECKPOINT {_name(name)}")
        self.execute(f"DETACH {_name(name)}")

    def export(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, rows in order."""
        self.execute(f"COPY (SELECT * FROM {render(source)}) TO {_text(path)} (FORMAT parquet, COMPRESSION zstd)")

    def load(self, folder: Path, into: str | None) -> None:
        """Read every Parquet file of a folder as a table, into a new in-memory database if ``into`` names one."""
        if into:
            self.execute(f"ATTACH ':memory:' AS {_name(into)}")
        for file in sorted(folder.glob("*.parquet")):
            with _about(file):
                target = render(table(file.stem, into))
                self.execute(f"CREATE TABLE {target} AS SELECT * FROM {_reader('parquet', file)}")

    def lookups(self, path: Path) -> dict[str, list[str]]:
        """Copy an analyst's tables into memory: those of a DuckDB file, or a Parquet or CSV file named by its stem."""
        if not path.is_file():
            raise EngineError(f"{path}: no such file")
        kind = FILE_KINDS.get(path.suffix.lower())
        copied = {}
        with _about(path):
            if kind is None:
                self.attach(path, "attached", read_only=True)
                names = [name for sort, name, _ in self.objects("attached") if sort in ("table", "view")]
                sources = {name: f"{_name('attached')}.main.{_name(name)}" for name in names}
            else:
                sources = {path.stem: _reader(kind, path)}
            for name, source in sources.items():
                copy = table(name, "temp")
                self.execute(f"CREATE TEMP TABLE {render(copy)} AS SELECT * FROM {source}")
                copied[name] = [field.name for field in self.fields(copy)]
            if kind is None:
                self.execute(f"DETACH {_name('attached')}")
        return copied

    def lock(self) -> None:
        """From now on: no other file, no extension, no setting can be changed."""
        self.execute("SET enable_external_access = false")
        self.execute("SET python_enable_replacements = false")
        self.execute("SET lock_configuration = true")

    def mount(self, name: str, path: Path, kind: str, relation: str | None, query: str | None) -> None:
        """Make the publisher's table readable as view ``name``.

        ``kind`` is duckdb, parquet or csv; ``relation`` a table or view of a DuckDB file; ``query`` a SELECT over
        the file's tables, or over ``source`` where the file is Parquet or CSV.
        """
        if not path.exists():
            raise EngineError(f"{path}: no such file")
        if kind == "duckdb":
            self.attach(path, "warehouse", read_only=True)
            self._home = "warehouse"
            self.execute(f"USE {self._home}")
        else:
            with _about(path, whole=True):
                self.execute(f"CREATE TEMP VIEW source AS SELECT * FROM {_reader(kind, path)}")
        if query:  # materialised: it might yield other rows when it is read again
            with _about(path, query=True):
                self.own(name, query)
            return
        with _about(path):
            inner = render(exp.select("*").from_(_relation(relation)))
            self.execute(f"CREATE TEMP VIEW {render(temp(name))} AS {inner}")

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's as temporary table ``name``."""
        self.execute(f"CREATE TEMP TABLE {render(temp(name))} AS {self._checked(query)}")

    def _checked(self, query: str) -> str:
        """The text of a query if it is exactly one SELECT."""
        try:
            statements = duckdb.extract_statements(query)
        except duckdb.Error as error:
            raise UsageError(f"query: {_line(error)}") from error
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageError("query: must be one SELECT")
        return statements[0].query

    def execute(self, sql: str, values: Mapping[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run one statement, traced, with progress and translated errors."""
        self.trace.append(sql)
        with translated():
            if not self._report.watched:
                return self._connection.execute(sql, values or None)
            return self._watched(sql, values)

    def _watched(self, sql: str, values: Mapping[str, Any] | None) -> duckdb.DuckDBPyConnection:
        """Run in a thread and report progress meanwhile; Ctrl-C interrupts the statement."""
        failure: list[BaseException] = []

        def work() -> None:
            try:
                self._connection.execute(sql, values or None)
            except (duckdb.Error, RuntimeError) as error:
                failure.append(error)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            while worker.is_alive():
                worker.join(POLL)
                self._report.update(self._connection.query_progress())
        except KeyboardInterrupt:
            self._connection.interrupt()
            worker.join()
            raise
        if failure:
            raise failure[0]
        return self._connection


def workshop(
    spill: Path,
    *,
    memory_limit: str | None = None,
    threads: int | None = None,
    report: Reporter | None = None,
) -> Engine:
    """An empty in-memory engine that spills to ``spill``."""
    settings = HARDENED | {"temp_directory": str(spill)}
    if memory_limit:
        settings["memory_limit"] = memory_limit
    if threads:
        settings["threads"] = str(threads)
    with translated():
        return Engine(duckdb.connect(config=settings), report)


def scratch() -> Engine:
    """An empty in-memory engine for small things."""
    with translated():
        return Engine(duckdb.connect(config=HARDENED))


def unlocked(path: Path, report: Reporter | None = None) -> Engine:
    """A release opened read-only: a file, or a folder of Parquet files, which is read into memory.

    Call ``lock`` before anything of an analyst's runs.
    """
    if not path.exists():
        raise EngineError(f"{path}: no such release")
    inside = path.is_dir()
    with _about(path), translated():
        connection = duckdb.connect(":memory:" if inside else str(path), read_only=not inside, config=HARDENED)
    engine = Engine(connection, report)
    if inside:
        engine.load(path, None)
    return engine


def locked(path: Path, report: Reporter | None = None) -> Engine:
    """``unlocked`` and locked."""
    engine = unlocked(path, report)
    engine.lock()
    return engine


@contextmanager
def translated() -> Iterator[None]:
    """DuckDB's errors as privsql's, one line each."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except MISTAKES as error:
        raise UsageError(_line(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise EngineError(f"out of memory or disk space: {_line(error)}") from error
    except (duckdb.Error, RuntimeError) as error:
        if "nterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise EngineError(_line(error)) from error


@contextmanager
def _about(path: Path, *, query: bool = False, whole: bool = False) -> Iterator[None]:
    """Name the file in errors, and say what a lock means; ``whole``: any error is the file's."""
    try:
        yield
    except EngineError as error:
        if "set lock on file" in str(error) or "lock is held" in str(error):
            raise EngineError(f"{path}: is open for writing in another process; close it there") from error
        raise EngineError(f"{path}: can't be read: {error}") from error
    except UsageError as error:
        if whole:
            raise EngineError(f"{path}: can't be read: {error}") from error
        raise UsageError(f"{path}: {'source.query: ' if query else ''}{error}") from error


def _line(error: BaseException) -> str:
    """The first line of an error, without the class that DuckDB puts before it."""
    first = str(error).strip().split("\n")[0]
    return first.split(" Error: ", 1)[-1]


def _reader(kind: str, path: Path) -> str:
    """The call that reads exactly this file: its name is no pattern, its folders say nothing of columns."""
    literal = "".join(f"[{character}]" if character in "*?[" else character for character in str(path))
    return f"{READERS[kind]}({_text(literal)}, hive_partitioning = false)"


def _name(identifier: str) -> str:
    return render(exp.to_identifier(identifier, quoted=True))


def _text(path: object) -> str:
    return render(exp.Literal.string(str(path)))


def _relation(name: str | None) -> exp.Table:
    """A table of the warehouse by its dotted name, parts may be quoted; None: the file."""
    if not name:
        return table("source", "temp")
    try:
        given = exp.to_table(name, dialect="duckdb")
    except SqlglotError as error:
        raise UsageError(f"table {name!r} is not a name; quote its parts") from error
    return table(given.name, "warehouse", given.db or "main")
