"""Read a publisher's source through DuckDB: files, tables of a server, or a database that the caller has open."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql import system
from privsql.engine.database import FRAME, POSTGRES, SPARK, Scan
from privsql.engine.duck.connection import Connection, name_file_in_errors, one_select, translate_duck_errors
from privsql.engine.duck.container import CopiedSchemas, DuckContainer, quote_identifier, reader_call, unique_name
from privsql.engine.duck.files import (
    ATTACHED,
    OF_TYPES,
    SQLITE,
    SQLiteFile,
    attach_server,
    fit_parquet,
    scan_call,
    scan_texts,
    type_columns,
)
from privsql.engine.files import redact_secrets, sniff_kind, temporary_folder
from privsql.engine.sqlfiles import (
    DIALECT,
    PREFIX,
    Field,
    all_rows,
    cast_as,
    column,
    fill,
    render_sql,
    table,
    temp_table,
)
from privsql.engine.sqlfiles import one_select as one_select_of
from privsql.errors import EngineError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from privsql.engine.database import Origin, ReadContents
    from privsql.engine.duck.container import Objects
    from privsql.engine.postgres import PostgresSource

HOME = "warehouse"  # the publisher's database, once it is mounted
TEXTS = "texts"  # the table with the rows of files, in which every column is text
SOURCE = "source"
ROWS = 2**17  # rows that a server sends at a time


class DuckSession(DuckContainer):
    """A session of DuckDB for a command that has a publisher's source, or releases that are made from it.

    The source lies in files, in a database file or on a server.
    """

    def __init__(self, connection: Connection, write_parquet: Callable[[Origin], list[Path]] | None = None) -> None:
        """Work over a connection.

        Args:
            connection: The connection to DuckDB.
            write_parquet: Writes a source that lies in Spark as Parquet files on this machine; None if there is no such
                source.
        """
        super().__init__(connection)
        self._write_parquet = write_parquet
        self._sqlite: SQLiteFile | None = None
        self._server: PostgresSource | None = None
        self._stream = ExitStack()  # closes the rows that the server is sending
        self._numbers, self._copies = itertools.count(), dict[frozenset[str], exp.Table]()

    def close(self) -> None:
        super().close()
        self._stream.close()
        for other in (self._sqlite, self._server):
            if other is not None:
                other.close()

    def let_go(self) -> None:
        if HOME in self._attached.values():
            self.connection.run(f"DETACH {HOME}")
            self._forget_database(HOME)

    def mount(self, name: str, origin: Origin) -> None:
        private = self.connection.discreet = origin.types is not None
        if origin.kind == POSTGRES:
            try:
                from privsql.engine.postgres import open_postgres
            except ImportError as error:
                raise system.POSTGRES.missing_error() from error
            self._server = open_postgres(origin.address or "", origin.relation, origin.query, private=private)
            return
        if origin.opened is not None:
            opened = cast("DuckOpenDatabase", origin.opened)
            with name_file_in_errors(_source_label(origin)), opened.stream_rows(origin) as (rows, columns):
                self.store_rows(name, rows, columns, title="Reading the source")
            return
        if origin.kind == SPARK and self._write_parquet is not None:
            files = tuple(map(str, self._write_parquet(origin)))
            self._open_files(Scan(files), replace(origin, kind="parquet"), reader_call("parquet", *files))
        elif origin.kind in ATTACHED:
            attach_server(self.connection, origin.kind, origin.address or "", HOME)
            self._neighbours = HOME
        elif origin.scan is not None:
            self._open_files(origin.scan, origin)
        elif origin.data is not None:
            self.register_arrow(FRAME, origin.data)
            self._create_source(render_sql(self._in_types(table(PREFIX + FRAME), origin)))
        else:
            path = origin.path or Path()
            if not path.is_file():
                what = "is a folder, and no database; give it as source.file, with source.reader = 'parquet'"
                raise EngineError(f"{path}: {what if path.is_dir() else 'no such file'}")
            if sniff_kind(path) == "sqlite":
                self._sqlite = SQLiteFile(path)
            else:
                self.attach(path, HOME, read_only=True)
                self._neighbours = HOME
        with name_file_in_errors(_source_label(origin), query=bool(origin.query)):
            if self._sqlite is not None:
                file, query = self._sqlite, origin.query
                sql = one_select_of(query, SQLITE) if query else file.table_query(origin.relation or "")
                if origin.types is None:
                    self.store_rows(name, file.stream_rows(sql))
                else:
                    self.store_rows(TEXTS, file.stream_rows(sql, as_text=True))
                    self.create_view(name, self._in_types(temp_table(TEXTS), origin).this)
            elif origin.query and origin.kind != SPARK:  # stored, as a second reading may give other rows
                self.create_from_sql(name, origin.query)
            elif origin.scan is not None or origin.data is not None or origin.kind == SPARK:
                self.create_view(name, all_rows(table("source", "temp")))
            else:
                parsed = _parse_name(origin.relation)
                in_server = origin.kind in ATTACHED and not parsed.db
                place = (None, HOME) if in_server else (HOME, parsed.db or "main")
                self.create_view(name, all_rows(table(parsed.name, *place)))

    def create_from_sql(self, name: str, query: str) -> None:
        """Run a SELECT in the SQL of the database that holds the source, and store its result as table ``name``."""
        if self._server is not None:
            self.create_table(name, self._fetch_query(self._server.with_source(query), all_rows(temp_table(SOURCE))))
        elif self._sqlite is not None:
            self.store_rows(name, self._sqlite.stream_rows(one_select_of(query, SQLITE)))
        else:
            super().create_from_sql(name, query)

    def _create_source(self, call: str) -> None:
        """Create the view ``source``, by which a publisher's query calls the files.

        Args:
            call: The SQL call that reads the files.
        """
        self.connection.run(f"CREATE TEMP VIEW source AS SELECT * FROM {call}")

    def _open_files(self, scan: Scan, origin: Origin, call: str = "") -> None:
        """Make files readable as ``source``: Parquet files through a view, CSV files as a table.

        A view of a CSV file would only parse the columns that a query needs, and so miss errors in the others.

        Args:
            scan: The files.
            origin: The source.
            call: The SQL call that reads the files; empty if it has to be found.
        """
        private = origin.types is not None
        typed = origin.kind == "csv" and private
        with temporary_folder(masked=False) as room:
            texts = scan_texts(self.connection, scan, room) if typed else ""
            rows = call = call or (f"({texts})" if typed else scan_call(self.connection, origin.kind, scan))
            if origin.kind == "parquet" and private:
                rows = fit_parquet(self.connection, scan, call, room)
            with name_file_in_errors(_source_label(origin), whole=True):
                # DuckDB reads a column of a file in the type of TRY_CAST, and fails where TRY_CAST should give NULL.
                stored = typed or not origin.query or "try_cast" in origin.query.lower()
                if (origin.kind == "csv" and stored) or rows != call:
                    self.connection.start_step("Reading the source")
                    self.connection.run(f"CREATE TEMP TABLE {PREFIX}{TEXTS} AS SELECT * FROM {rows}")
                    rows = render_sql(temp_table(TEXTS))
                self._create_source(rows)
        if typed:
            self.connection.run("DROP VIEW source")
            self._create_source(render_sql(self._in_types(temp_table(TEXTS), origin)))

    def mount_texts(self, name: str, origin: Origin) -> None:
        scan = origin.scan or Scan(())
        kept = {key: value for key, value in scan.options.items() if key not in OF_TYPES}
        with name_file_in_errors(_source_label(origin), whole=True):
            call = scan_call(self.connection, "csv", replace(scan, options=kept | {"all_varchar": True}))
            self.connection.run(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {call}")

    def _in_types(self, rows: exp.Table, origin: Origin) -> exp.Subquery:
        """Return the query that casts the columns of a source to the types that the specification determines."""
        if origin.types is None:
            return all_rows(rows).subquery()
        options = origin.scan.options if origin.scan is not None else {}
        texts = origin.texts if origin.data is not None else None
        return type_columns(self, rows, origin.types(self), options, texts).subquery()

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Return the collations of those ``columns`` that have one, by the column's name.

        A collation is a rule by which different texts may be equal. The collations are read from the definition of a
        table made for this purpose, because DuckDB's type names do not show them. The result is empty for a server,
        because by its collations different texts stay different.
        """
        if self._server is not None:
            return {}
        probe = temp_table("collated")
        empty = exp.select(*map(column, columns)).from_(source).where(exp.false())
        self.connection.run(f"CREATE TEMP TABLE {render_sql(probe)} AS {render_sql(empty)}")
        text = next(sql for _, _, name, sql in self.list_relations("temp") if name == probe.name)
        self.drop("collated")
        definitions = sqlglot.parse_one(text, dialect=DIALECT).find_all(exp.ColumnDef)
        constraints = {one.name: one.find(exp.CollateColumnConstraint) for one in definitions}
        return {name: one.this.sql(dialect=DIALECT) for name, one in constraints.items() if one is not None}

    def publish_as(self, name: str, query: exp.Expr) -> None:
        self.connection.run(f"CREATE TEMP VIEW {render_sql(table(name, 'temp'))} AS {render_sql(query)}")

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.rows(one_select(sql))

    # A source in a server ---
    #
    # A query that reads only the source runs on the server, with the server's order. Any other query runs here, on a
    # copy of the columns that it needs. Nothing is written to the server, and everything is read as it was when the
    # source was mounted. Digests and keyed hashes are computed here, so that no key leaves this machine.

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view; if the query reads a server's table, create a local table with its result instead."""
        if into is None and self._reads_server(query):
            self.create_table(name, query)
        else:
            super().create_view(name, query, into=into, schema=schema)

    def list_fields(self, source: exp.Expr) -> list[Field]:
        if self._server is not None and isinstance(source, exp.Table) and _is_source(source):
            return self._server.list_fields(all_rows(source))
        return super().list_fields(source)

    def _render_query(self, query: exp.Expr) -> str:
        if not self._reads_server(query):
            return super()._render_query(query)
        server = cast("PostgresSource", self._server)
        within = {one.alias for one in query.find_all(exp.CTE)}
        if all(_is_source(one) or one.name in within for one in query.find_all(exp.Table)):
            with suppress(EngineError):
                return super()._render_query(self._fetch_query(server, query))
        return super()._render_query(self._copy_columns(server, query))

    def _reads_server(self, query: exp.Expr) -> bool:
        return self._server is not None and any(map(_is_source, query.find_all(exp.Table)))

    def _fetch_query(self, server: PostgresSource, query: exp.Expr) -> exp.Select:
        """Start a query on the server, and return a local query for its rows, which can be read only once.

        The rows have the server's order and types.
        """
        columns, name = server.list_fields(query), f"far_{next(self._numbers)}"
        self._stream.close()
        rows = self._stream.enter_context(server.stream_batches(query, ROWS))

        def batches() -> Iterator[pa.RecordBatch]:
            with self._stream:
                yield from rows

        self.register_arrow(name, pa.RecordBatchReader.from_batches(rows.schema, batches()))
        outputs = []
        for one in columns:
            # The sum of whole numbers has neither precision nor scale.
            wanted = Field(one.name, "HUGEINT") if one.type == "numeric" else one
            known = one.is_published or wanted != one
            outputs.append(cast_as(column(one.name), wanted) if known else column(one.name))
        return exp.select(*outputs).from_(temp_table(name))

    def _copy_columns(self, server: PostgresSource, query: exp.Expr) -> exp.Expr:
        """Replace the server's table in a query by a local copy of the columns that the query reads.

        Each set of columns is copied once.
        """
        known = server.list_fields(all_rows(temp_table(SOURCE)))
        named = {one.name for one in query.find_all(exp.Column)}
        whole = any(isinstance(one, exp.Select) and one.is_star for one in query.find_all(exp.Select))
        needed = [one for one in known if whole or one.name in named] or known[:1]
        names = frozenset(one.name for one in needed)
        if names not in self._copies:
            copy = f"brought_{len(self._copies)}"
            self.create_table(copy, exp.select(*(column(one.name) for one in needed)).from_(temp_table(SOURCE)))
            self._copies[names] = temp_table(copy)
        changed = query.copy()
        for one in filter(_is_source, list(changed.find_all(exp.Table))):
            here = self._copies[names].copy()
            here.set("alias", one.args.get("alias"))
            one.replace(here)
        return changed


def _source_label(origin: Origin) -> str:
    """Return the name by which error messages call the source."""
    if origin.scan is not None:
        others = len(origin.scan.files) - 1
        return redact_secrets(origin.scan.files[0]) + (f" and {others} more" if others else "")
    if origin.data is not None:
        return "the table"
    return f"source.{origin.kind}" if origin.path is None else str(origin.path)


def _parse_name(name: str | None) -> exp.Table:
    """Parse a dotted name, such as ``schema.table``, as a table of a query."""
    try:
        parsed = exp.to_table(name or "", dialect=DIALECT)
    except SqlglotError as error:
        raise UsageError(f"table {name!r} is not a name; quote its parts") from error
    return table(parsed.name, parsed.catalog, parsed.db)


def _is_source(one: exp.Table) -> bool:
    return one.name == PREFIX + SOURCE


# Open databases -------------------------------------------------------------------------------------------------------
# ``ReleaseDatabase`` of ``privsql.engine.database``: a database that a caller has open, such as a notebook or dbt.
#
# privsql runs its statements on another connection to the caller's instance. The current database of this connection
# is empty, so that no stored macro can take the place of one of DuckDB's functions. No global setting is changed.


class DuckBorrowed(DuckContainer):
    """A session in a DuckDB instance that the caller has open, such as that of a notebook.

    The session adds an empty database in memory to the instance, and removes it at the end.
    """

    def __init__(self, caller: duckdb.DuckDBPyConnection) -> None:
        with translate_duck_errors():
            cursor = caller.cursor()
        super().__init__(Connection(ducks=(cursor,)))
        self._former = next(name for name, _, _, schema in self.rows(fill("duckdb/databases", {})) if schema)
        self._home_database = unique_name("home")
        self.create_database(self._home_database)
        self.connection.run(f"USE {quote_identifier(self._home_database)}")

    def at_one_moment(self) -> AbstractContextManager[None]:
        """Read everything inside the block from one snapshot."""
        return self.in_transaction()

    def copy_release(self, database: str, schema: str, having: str, read: ReadContents, into: str) -> Objects:
        """Copy all tables of a schema of the caller's database into another database.

        All its tables are copied, whatever the manifest states. Other objects are listed, but not copied.

        Args:
            database: The caller's database.
            schema: The schema, in both databases.
            having: The table with the manifest; not used.
            read: Would tell what the manifest states; not used.
            into: The attached database to copy to.

        Returns:
            All objects of the schema as (kind, name, definition).
        """
        objects = self.list_objects(database, schema)
        for name in [name for kind, name, _ in objects if kind == "table"]:
            self._copy_table(table(name, database, schema), into=into, schema=schema)
        return objects

    def close(self) -> None:
        names = (*self._attached.values(), self._home_database)
        detached = (f"DETACH {quote_identifier(name)}" for name in names)
        for statement in ("ROLLBACK", f"USE {quote_identifier(self._former)}", *detached):
            with suppress(PrivsqlError):  # fails if no transaction is open, as is usual
                self.connection.run(statement)
        super().close()


class DuckOpenDatabase(CopiedSchemas):
    """A database that a caller has open over a connection to DuckDB.

    A table name without a schema is looked up in ``schema`` first.
    """

    def __init__(self, caller: duckdb.DuckDBPyConnection, name: str, file: Path | None, schema: str) -> None:
        super().__init__()
        self._caller, self._name, self.file, self._schema = caller, name, file, schema

    def renew(self) -> DuckOpenDatabase:
        return DuckOpenDatabase(self._caller, self._name, self.file, self._schema)

    @contextmanager
    def open_for_writing(self) -> Iterator[tuple[DuckContainer, str]]:
        with DuckBorrowed(self._caller) as db:
            yield db, self._name

    @contextmanager
    def stream_rows(self, origin: Origin) -> Iterator[tuple[pa.RecordBatchReader, list[Field]]]:
        """Yield a stream of the rows of the caller's table or query, and its columns.

        A column of a type that Arrow lacks becomes text.
        """
        rows = one_select(origin.query) if origin.query else render_sql(all_rows(_parse_name(origin.relation)))
        with DuckBorrowed(self._caller) as db:
            db.connection.run(f"USE {quote_identifier(self._name)}.{quote_identifier(self._schema)}")
            try:
                db.connection.run(f"CREATE TEMP VIEW {render_sql(temp_table(SOURCE))} AS {rows}")
            except UsageError as error:
                hint = "; of a temporary table or DataFrame hand over con.table(..)" if "no table" in str(error) else ""
                raise UsageError(f"{error}{hint}") from error
            columns = db.list_fields(temp_table(SOURCE))
            sent = [column(one.name) if one.is_published and "UUID" not in one.type
                    else cast_as(column(one.name), Field(one.name, "VARCHAR")) for one in columns]  # fmt: skip
            with db.stream_batches(exp.select(*sent).from_(temp_table(SOURCE)), ROWS) as reader:
                yield reader, columns


def find_open_database(caller: object, file: Path | None = None) -> DuckOpenDatabase | None:
    """Return a database that a caller's connection to DuckDB has open.

    Args:
        caller: The connection.
        file: The file of the database; None for the connection's current database.

    Returns:
        The database, or None if the connection does not have ``file`` open.

    Raises:
        UsageError: ``caller`` is not an open connection to DuckDB.
    """
    if not isinstance(caller, duckdb.DuckDBPyConnection):
        raise UsageError(f"connection: {type(caller).__name__} is no connection of DuckDB's; give duckdb.connect(..)")
    try:
        listed = caller.sql(render_sql(fill("duckdb/databases", {}))).fetchall()
    except duckdb.Error as error:
        wrong = "it is closed, has a result that is not fetched, or a statement of it has failed: roll that back"
        raise UsageError(f"connection: {wrong}") from error
    if file is not None:
        place = os.path.realpath(file)
        there = next((name for name, path, *_ in listed if path and os.path.realpath(path) == place), None)
        return None if there is None else DuckOpenDatabase(caller, there, file, "main")
    current, path, kind, schema = next(one for one in listed if one[-1])
    if kind != "duckdb":
        raise UsageError(f"connection: database {current!r} is of {kind}; USE one of DuckDB's own")
    return DuckOpenDatabase(caller, current, Path(path) if path else None, schema)
