"""A publisher's source in DuckDB: a database, files, a table in memory, or a server's table by way of it."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql import extras
from privsql.engine.database import FRAME
from privsql.engine.duck.connection import name_file_in_errors, one_select
from privsql.engine.duck.container import DuckContainer, reader_call
from privsql.engine.duck.files import (
    ATTACHED,
    SQLITE,
    SQLiteFile,
    attach_server,
    is_sqlite,
    scan_call,
    scan_texts,
    type_columns,
)
from privsql.engine.files import redact_secrets
from privsql.engine.sqlfiles import DIALECT, PREFIX, alias_as, all_rows, column, render_sql, table, temp_table
from privsql.engine.sqlfiles import one_select as one_select_of
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.engine.database import Origin, Scan
    from privsql.engine.duck.connection import Connection
    from privsql.engine.postgres import PostgresRelations
    from privsql.engine.roles import Field

# Warehouse ------------------------------------------------------------------------------------------------------------
# ``Warehouse`` of ``privsql.engine.database``: a publisher's database, Parquet or CSV files, or a table in memory.

SPARK = "spark"  # a kind of origin
HOME = "warehouse"  # the publisher's database, once it is mounted
TEXTS = "texts"  # the rows of files in which no column has a type


class DuckSession(DuckContainer):
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
            self._forget_database(HOME)

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``; what lies in Spark is brought here as Parquet."""
        brought = self._brought if origin.kind == SPARK else None
        if brought is not None:
            self._create_source(reader_call("parquet", *brought(origin)))
        elif origin.kind in ATTACHED:
            attach_server(self.connection, origin.kind, origin.address or "", HOME)
            self._neighbours = HOME
        elif origin.scan is not None:
            self._open_files(origin.scan, origin)
        elif origin.data is not None:
            self.register_arrow(FRAME, origin.data)
            self._create_source(render_sql(self._in_types(table(PREFIX + FRAME), origin)))
        else:
            self._open_database(origin.path or Path())
        with name_file_in_errors(_source_label(origin), query=bool(origin.query)):
            if self._sqlite is not None:
                self._mount_sqlite(name, self._sqlite, origin)
            elif origin.query and brought is None:  # materialised: it might yield other rows when it is read again
                self.create_from_sql(name, origin.query)
            else:
                self.create_view(name, all_rows(_source_relation(origin)))

    def create_from_sql(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in the SQL of where the source lies, as temporary table ``name``."""
        if self._sqlite is None:
            super().create_from_sql(name, query)
        else:
            self._fetch_sqlite(name, one_select_of(query, SQLITE))

    def _create_source(self, call: str) -> None:
        """Let a publisher's query call files ``source``."""
        self.connection.run(f"CREATE TEMP VIEW source AS SELECT * FROM {call}")

    def _open_files(self, scan: Scan, origin: Origin) -> None:
        """Make files readable; a text is parsed once, and not by a view: that would read what the query expects."""
        typed = origin.kind == "csv" and origin.types is not None
        rows = f"({scan_texts(self.connection, scan)})" if typed else scan_call(self.connection, origin.kind, scan)
        with name_file_in_errors(_source_label(origin), whole=True):
            if origin.kind == "csv" and (typed or not origin.query):
                self.connection.start_step("Reading the source")
                self.connection.run(f"CREATE TEMP TABLE {PREFIX}{TEXTS} AS SELECT * FROM {rows}")
                rows = render_sql(temp_table(TEXTS))
            self._create_source(rows)
        if typed:
            self.connection.run("DROP VIEW source")
            self._create_source(render_sql(self._in_types(temp_table(TEXTS), origin)))

    def _in_types(self, rows: exp.Table, origin: Origin) -> exp.Subquery:
        """The rows of a source in the types that its specification determines."""
        if origin.types is None:
            return all_rows(rows).subquery()
        options = origin.scan.options if origin.scan is not None else {}
        return type_columns(self, rows, origin.types(self), options, texts=origin.data is None).subquery()

    def _mount_sqlite(self, name: str, file: SQLiteFile, origin: Origin) -> None:
        query = one_select_of(origin.query, SQLITE) if origin.query else file.table_query(origin.relation or "")
        if origin.types is None:
            self._fetch_sqlite(name, query)
            return
        self.register_arrow("fetched", file.stream_rows(query, as_text=True))
        self.create_table(TEXTS, all_rows(temp_table("fetched")))
        self.drop("fetched")
        self.create_view(name, self._in_types(temp_table(TEXTS), origin).this)

    def _open_database(self, path: Path) -> None:
        if not path.is_file():
            folder = "is a folder, and no database; of Parquet files give it as file, with reader = 'parquet'"
            raise EngineError(f"{path}: {folder if path.is_dir() else 'no such file'}")
        if is_sqlite(path):
            self._sqlite = SQLiteFile(path)
            return
        self.attach(path, HOME, read_only=True)
        self._neighbours = HOME

    def _fetch_sqlite(self, name: str, query: str) -> None:
        """What a query yields in a SQLite file, as a temporary table."""
        if self._sqlite is not None:
            self.register_arrow("fetched", self._sqlite.stream_rows(query))
            self.create_table(name, exp.select("*").from_(temp_table("fetched")))
            self.drop("fetched")

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """By column of a relation the collation that it has: no type names it, but the text of a table does."""
        probe = temp_table("collated")
        empty = exp.select(*map(column, columns)).from_(source).where(exp.false())
        self.connection.run(f"CREATE TEMP TABLE {render_sql(probe)} AS {render_sql(empty)}")
        text = next(sql for _, _, name, sql in self.list_relations("temp") if name == probe.name)
        self.drop("collated")
        definitions = sqlglot.parse_one(text, dialect=DIALECT).find_all(exp.ColumnDef)
        constraints = {one.name: one.find(exp.CollateColumnConstraint) for one in definitions}
        return {name: one.this.sql(dialect=DIALECT) for name, one in constraints.items() if one is not None}

    def publish_as(self, name: str, query: exp.Expr) -> None:
        """Create a temporary view under a name of the publisher's."""
        self.connection.run(f"CREATE TEMP VIEW {render_sql(table(name, 'temp'))} AS {render_sql(query)}")

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT of the publisher's own on the source."""
        return self.connection.rows(one_select(sql))


def _source_label(origin: Origin) -> str:
    """What messages call the source."""
    if origin.scan is not None:
        others = len(origin.scan.files) - 1
        return redact_secrets(origin.scan.files[0]) + (f" and {others} more" if others else "")
    if origin.data is not None:
        return "the table"
    return f"source.{origin.kind}" if origin.path is None else str(origin.path)


def _source_relation(origin: Origin) -> exp.Table:
    """A table of the warehouse by its dotted name, parts may be quoted; of files, all of them."""
    name = origin.relation
    if origin.scan is not None or origin.data is not None or origin.kind == SPARK:
        return table("source", "temp")
    try:
        parsed = exp.to_table(name or "", dialect=DIALECT)
    except SqlglotError as error:
        raise UsageError(f"table {name!r} is not a name; quote its parts") from error
    if origin.kind in ATTACHED and not parsed.db:
        return table(parsed.name, schema=HOME)
    return table(parsed.name, HOME, parsed.db or "main")


# Sources in a server --------------------------------------------------------------------------------------------------
# A workshop whose source may lie in a server: what reads nothing but the source is run there, in its order, and all
# else on the columns that it needs, brought here.
#
# Nothing is written there, and everything is read as it was when the source was mounted. Digests and keyed hashes are
# made here: no key leaves this machine.

POSTGRES, SOURCE = "postgres", "source"
ROWS = 2**17  # that come over at a time


class ServerSession(DuckSession):
    """A publisher's source, here or in a server, beside the releases that are made of it."""

    def __init__(self, connection: Connection, brought: Callable[[Origin], list[Path]] | None = None) -> None:
        super().__init__(connection, brought)
        self._far: PostgresRelations | None = None
        self._stream = ExitStack()  # what comes over just now
        self._numbers, self._brought_here = itertools.count(), dict[frozenset[str], exp.Table]()

    def close(self) -> None:
        """End the session, and that with the server."""
        super().close()
        self._stream.close()
        if self._far is not None:
            self._far.close()

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``."""
        if origin.kind != POSTGRES:
            super().mount(name, origin)
            return
        try:
            from privsql.engine.postgres import open_postgres  # noqa: PLC0415 (an extra)
        except ImportError as error:
            raise extras.POSTGRES.missing_error() from error
        self._far = open_postgres(origin.address or "", origin.relation, origin.query)

    def create_from_sql(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in the SQL of where the source lies, as temporary table ``name``."""
        if self._far is None:
            super().create_from_sql(name, query)
        else:
            self.create_table(name, self._fetch_query(self._far.with_source(query), all_rows(temp_table(SOURCE))))

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view; of what lies elsewhere, a table."""
        if into is None and self._reads_source(query):
            self.create_table(name, query)
        else:
            super().create_view(name, query, into=into, schema=schema)

    def list_fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        if self._far is not None and isinstance(source, exp.Table) and self._reads_source(source):
            return self._far.list_fields(source)
        return super().list_fields(source)

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Collations by which different texts are equal; those of a server that are deterministic only sort them."""
        return {} if self._far is not None else super().list_collations(source, columns)

    def _render_query(self, query: exp.Expr) -> str:
        return super()._render_query(self._bring_here(query) if self._reads_source(query) else query)

    def _reads_source(self, query: exp.Expr) -> bool:
        return self._far is not None and any(map(_is_source, query.find_all(exp.Table)))

    def _bring_here(self, query: exp.Expr) -> exp.Expr:
        """The same rows from relations that are here."""
        if self._far is None:
            return query
        within = {one.alias for one in query.find_all(exp.CTE)}
        if all(_is_source(one) or one.name in within for one in query.find_all(exp.Table)):
            try:
                return self._fetch_query(self._far, query)
            except EngineError:
                pass
        return self._pull_columns(self._far, query)

    def _fetch_query(self, far: PostgresRelations, query: exp.Expr) -> exp.Select:
        """What a query yields there, once, in its order and in the types that it has there."""
        columns, name = far.list_fields(query), f"far_{next(self._numbers)}"
        self._stream.close()
        rows = self._stream.enter_context(far.stream_batches(query, ROWS))

        def all_of_them() -> Iterator[pa.RecordBatch]:
            with self._stream:
                yield from rows

        self.register_arrow(name, pa.RecordBatchReader.from_batches(rows.schema, all_of_them()))
        return exp.select(*map(_cast_field, columns)).from_(temp_table(name))

    def _pull_columns(self, far: PostgresRelations, query: exp.Expr) -> exp.Expr:
        """The query over a table here that has the columns of the source that it names."""
        known = far.list_fields(temp_table(SOURCE))
        named_there = {one.name for one in query.find_all(exp.Column)}
        whole = any(isinstance(one, exp.Select) and one.is_star for one in query.find_all(exp.Select))
        needed = [one for one in known if whole or one.name in named_there] or known[:1]
        names = frozenset(one.name for one in needed)
        if names not in self._brought_here:
            name = f"brought_{len(self._brought_here)}"
            self.create_table(name, exp.select(*(column(one.name) for one in needed)).from_(temp_table(SOURCE)))
            self._brought_here[names] = temp_table(name)
        changed = query.copy()
        for one in list(changed.find_all(exp.Table)):
            if _is_source(one):
                here = self._brought_here[names].copy()
                here.set("alias", one.args.get("alias"))
                one.replace(here)
        return changed


def _is_source(one: exp.Table) -> bool:
    return one.name == PREFIX + SOURCE


def _cast_field(field: Field) -> exp.Expr:
    """A column in the type that it has there; a sum of whole numbers has no width."""
    value: exp.Expr = column(field.name)
    kind = "HUGEINT" if field.type == "numeric" else field.type
    if field.is_published or kind != field.type:
        value = exp.cast(value, exp.DataType.build(kind, dialect=DIALECT))
    return alias_as(value, field.name)
