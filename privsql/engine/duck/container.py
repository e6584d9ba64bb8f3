"""Keep tables and views, attached database files, and locked sessions in DuckDB."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp

from privsql import system
from privsql.engine.database import FUNCTIONS, IntervalFunctions
from privsql.engine.duck.connection import VERSION, Connection, name_file_in_errors, one_select
from privsql.engine.files import ROOM, Folder, fold_name, url_scheme
from privsql.engine.sqlfiles import (
    DIALECT,
    DIGITS,
    PREFIX,
    Field,
    all_rows,
    cast_as,
    column,
    concat_texts,
    fill,
    find_file,
    first_characters,
    qualify_tables,
    render_sql,
    table,
    temp_table,
    union_all,
    write_intervals,
)
from privsql.errors import EngineError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from threading import Event

    from privsql.engine.database import Definition, Options, ReadContents
    from privsql.engine.duck.connection import Settings
    from privsql.engine.sqlfiles import Holes

# Relations ------------------------------------------------------------------------------------------------------------
# ``Relations`` of ``privsql.engine.database``: tables and views of a session, made from syntax trees or Arrow data.

PROCESS_BASE = 200 * 2**20  # bytes that the process takes at its start
LEAST = 60 * 2**20  # bytes that the engine needs
UNITS = {unit: 1024**power for power, unit in enumerate(("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"))}


class DuckRelations:
    """Tables and views that are made and read over one connection to DuckDB."""

    keeps_order = True

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._home_database = "memory"  # the session's own
        self._neighbours = "memory"  # the database whose tables a publisher's own SELECT reads
        self._registered: set[str] = set()
        self._limit: int | None = None  # bytes that the process may take
        self._fault: BaseException | None = None  # the error of a stream that a statement was reading

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading ---

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        begun = time.perf_counter()
        found = self.connection.rows(self._render_query(query), values)
        if self.connection.traces:
            self.connection.note_statement("", find_file(query), len(found), begun)
        return found

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        begun = time.perf_counter()
        found = self.connection.arrow(self._render_query(query), values)
        if self.connection.traces:
            self.connection.note_statement("", find_file(query), found.num_rows, begun)
        return found

    @contextmanager
    def stream_batches(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        begun = time.perf_counter()
        with self.connection.stream_batches(self._render_query(query), rows) as batches:
            yield batches
        if self.connection.traces:
            self.connection.note_statement("", find_file(query), None, begun)

    def open_sibling(self) -> DuckRelations:
        return DuckRelations(self.connection.open_sibling())

    def list_fields(self, source: exp.Expr) -> list[Field]:
        return self._describe_sql(self._render_query(all_rows(source) if isinstance(source, exp.Table) else source))

    def _describe_sql(self, sql: str) -> list[Field]:
        return [Field(row[0], row[1]) for row in self.connection.rows(f"DESCRIBE {sql}")]

    def reserve_memory(self, size: int, what: str) -> None:
        """Lower DuckDB's memory limit to leave ``size`` bytes for arrays outside DuckDB.

        Without a limit, DuckDB would use up to four fifths of the machine's memory; this default is then lowered.

        Raises:
            EngineError: Too little memory would be left for DuckDB. The message names the arrays by ``what``.
        """
        if self._limit is None:
            number, unit = self.rows(fill("duckdb/memory", {}))[0][0].split()
            self._limit = int(float(number) * UNITS[unit])
        left = self._limit - PROCESS_BASE - size
        if left < LEAST:
            sizes = [f"{one / 1e9:.2f} GB" for one in (size, PROCESS_BASE + LEAST, self._limit)]
            needed = f"takes about {sizes[0]} beside the engine and {sizes[1]} for all else"
            raise EngineError(f"{what} {needed}; the memory limit is {sizes[2]}")
        self.connection.run(f"SET memory_limit = '{left}B'")

    def row_number(self, table: str) -> exp.Expr:
        return exp.column("rowid", table=table)

    def with_bid_and_code(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        self.create_view("dealt", fill("duckdb/dealt", {"records": records, "positions": positions}))
        return all_rows(temp_table("dealt"))

    def with_bid(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        self.create_view("matched", fill("duckdb/matched", {"records": records, "positions": positions}))
        return all_rows(temp_table("matched"))

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return an SQL expression for 63 bits of the MD5 digest of a list of texts.

        MD5 never changes. DuckDB's own hash differs between its versions.
        """
        number = exp.Anonymous(this="md5_number", expressions=[concat_texts(texts)])
        return exp.cast(exp.BitwiseRightShift(this=number, expression=exp.Literal.number(65)), "BIGINT")

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        hexadecimal = exp.Anonymous(this="sha256", expressions=[concat_texts(texts)])
        digits = exp.DPipe(this=exp.Literal.string("0x"), expression=first_characters(hexadecimal, DIGITS))
        return exp.cast(digits, "BIGINT")

    # Making ---

    def create_table(
        self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None, title: str = ""
    ) -> None:
        if title:
            self.connection.start_step(title)
        kind, target = ("TABLE", table(name, into, schema)) if into else ("TEMP TABLE", temp_table(name))
        begun = time.perf_counter()
        try:
            made = self.connection.rows(f"CREATE {kind} {render_sql(target)} AS {self._render_query(query)}")
        except PrivsqlError as error:
            fault, self._fault = self._fault, None
            raise fault or error from None
        if self.connection.traces:
            self.connection.note_statement(name, find_file(query), int(made[0][0]), begun)

    def store_rows(
        self,
        name: str,
        rows: pa.RecordBatchReader,
        columns: Sequence[Field] = (),
        *,
        into: str | None = None,
        schema: str | None = None,
        title: str = "",
    ) -> None:
        """Store a stream of rows as a table.

        Args:
            name: The name of the table.
            rows: The rows.
            columns: The names and types of the stored columns; empty stores the columns of the stream as they are.
            into: The attached database; None makes a temporary table.
            schema: The schema in that database; None for the first one.
            title: The name of this step in the progress bar; empty if it is not a step of its own.
        """
        self.register_arrow("fetched", rows)
        values = [cast_as(column(one.name), one) for one in columns] or [exp.Star()]
        typed = exp.select(*values).from_(temp_table("fetched"))
        self.create_table(name, typed, into=into, schema=schema, title=title)
        self.drop("fetched")

    def append_rows(self, name: str, query: exp.Expr, *, into: str) -> None:
        self.connection.run(render_sql(exp.insert(query, table(name, into))))

    def create_from_sql(self, name: str, query: str) -> None:
        with self._use_database(self._neighbours):
            self.connection.run(f"CREATE TEMP TABLE {render_sql(temp_table(name))} AS {one_select(query)}")

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        if self.connection.traces:
            self.connection.note_statement(name, find_file(query), None, time.perf_counter())
        if into is None:
            view = render_sql(temp_table(name))
            self.connection.run(f"CREATE OR REPLACE TEMP VIEW {view} AS {self._render_query(query)}")
            return
        with self._use_database(into, schema):  # so that its text names no database and survives a renamed file
            self.connection.run(f"CREATE VIEW {render_sql(table(name))} AS {render_sql(query)}")

    def register_arrow(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        if isinstance(data, pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_batches(data.schema, self._note_fault(data))
        self.connection.register_table(PREFIX + name, data)
        self._registered.add(name)

    def _note_fault(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a stream, and remember an error that the stream raises.

        The session raises the remembered error later, because DuckDB would only pass on its text.
        """
        try:
            yield from stream
        except GeneratorExit:  # the reader has stopped
            raise
        except BaseException as error:
            self._fault = error
            raise

    def drop(self, *names: str) -> None:
        for name in names:
            if name in self._registered:
                self.connection.unregister_table(PREFIX + name)
                self._registered.discard(name)
            else:
                self.connection.run(f"DROP TABLE IF EXISTS {render_sql(temp_table(name))}")

    def _render_query(self, query: exp.Expr) -> str:
        """Return the SQL text that this session runs for a query."""
        return render_sql(query)

    @contextmanager
    def _use_database(self, database: str, schema: str | None = None) -> Iterator[None]:
        """Let table names without a database refer to this database and schema inside the block.

        Afterwards they refer to the session's own database again. If ``schema`` is None, it is the database's first
        schema.
        """
        self.connection.run(f"USE {quote_identifier(database)}" + (f".{quote_identifier(schema)}" if schema else ""))
        try:
            yield
        finally:
            # "main" is needed, because a schema may have the database's name.
            self.connection.run(f"USE {quote_identifier(self._home_database)}.main")


def quote_identifier(name: str) -> str:
    """Return a name in double quotes, as SQL writes it."""
    return render_sql(exp.to_identifier(name, quoted=True))


def quote_text(value: object) -> str:
    """Return a value as a text constant of SQL, in single quotes."""
    return render_sql(exp.Literal.string(str(value)))


# Container ------------------------------------------------------------------------------------------------------------
# ``Container`` of ``privsql.engine.database``: database files attached beside the session's own relations.

# DuckDB's optimizers that rely on the least and greatest values which a file states for its columns. A file that states
# false ones would hide rows from a check, or let DuckDB write beyond the end of an array.
BELIEVING = (
    "statistics_propagation", "filter_pushdown", "join_filter_pushdown", "cte_filter_pusher", "row_group_pruner",
    "top_n", "late_materialization", "compressed_materialization", "partitioned_execution",
    "partial_aggregate_pushdown", "type_pushdown",
)  # fmt: skip
STORAGE = "v1.0.0"  # of new files; DuckDB 1.1 and later can open them (1.0 lacks the block size)
BLOCK = 2**16  # bytes of a block in new files; most of the default 2**18 would be empty in a small release
HEADERS, HEADER = 3, 4096  # pages at the beginning of a file, and the bytes of each
HEAD = 256  # bytes of a header that may be filled; DuckDB fills 140
READERS = {"parquet": "read_parquet", "csv": "read_csv"}
MAIN = "main"  # the first schema of a database
WEIGHT, VARIANCE = column("weight"), column("variance")
MACRO_SUMS = {  # the sums from which the macros of a release are computed
    "weight": exp.Sum(this=WEIGHT), "variance": exp.Sum(this=VARIANCE), "number": exp.Count(this=VARIANCE),
    "alike": exp.EQ(this=exp.Min(this=VARIANCE), expression=exp.Max(this=VARIANCE)),
}  # fmt: skip
Objects = list[tuple[str, str, str]]  # (kind, name, definition)


class DuckContainer(DuckRelations):
    """A session of DuckDB with attached database files."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._attached: dict[Path, str] = {}  # each file is attached at most once

    def attach(self, path: Path, name: str, *, read_only: bool, strange: bool = False) -> None:
        is_new = not read_only and not path.exists()
        created = f" (READ_WRITE, BLOCK_SIZE {BLOCK}, STORAGE_VERSION '{STORAGE}')" if is_new else ""
        mode = " (READ_ONLY, TYPE duckdb)" if read_only else created
        if strange:
            self.distrust_statistics()
        with name_file_in_errors(path):
            self.connection.run(f"ATTACH {quote_text(path)} AS {quote_identifier(name)}{mode}")
        self._attached[path.resolve()] = name

    def attached_name(self, path: Path) -> str | None:
        return self._attached.get(path.resolve())

    def find_leftovers(self, name: str) -> list[str]:
        path = next(path for path, called in self._attached.items() if called == name)
        holes: Holes = {"database": exp.Literal.string(name)}
        block, total, free = map(int, self.rows(fill("duckdb/blocks", holes))[0])
        wrong = [f"{free:,} free blocks, which may hold rows that were dropped"] if free else []
        length = HEADERS * HEADER + total * block
        with name_file_in_errors(path), path.open("rb") as file:
            pages = [file.read(HEADER)[HEAD:] for _ in range(HEADERS)]
            size = file.seek(0, 2)
        if size != length and not (free and size < length):  # DuckDB may cut free blocks off the end of the file
            wrong.append(f"{size:,} bytes, of which {length:,} are its headers and blocks")
        if any(page.strip(b"\0") for page in pages):
            wrong.append("bytes behind the entries of its headers")
        queries = []
        for kind, schema, one, _ in self.list_relations(name):
            stored = table(one, name, schema)
            texts = {"called": exp.Literal.string(render_sql(stored)), "name": exp.Literal.string(one)}
            queries += [fill("duckdb/deleted", {"table": stored, **texts})] if kind == "table" else []
        counted = self.rows(union_all(queries)) if queries else []
        return wrong + [f"{deleted:,} deleted rows of {one!r}" for one, deleted in counted if deleted]

    def detach(self, name: str) -> None:
        self.connection.run(f"CHECKPOINT {quote_identifier(name)}")
        self.connection.run(f"DETACH {quote_identifier(name)}")
        self._forget_database(name)

    def _forget_database(self, name: str) -> None:
        self._attached = {path: called for path, called in self._attached.items() if called != name}

    def distrust_statistics(self) -> None:
        self.connection.run(f"SET disabled_optimizers = {quote_text(','.join(BELIEVING))}")

    def create_database(self, name: str) -> None:
        # The caller's connection may be read-only.
        self.connection.run(f"ATTACH ':memory:' AS {quote_identifier(name)} (READ_WRITE)")

    def scan_files(self, paths: Sequence[Path], kind: str) -> exp.Select:
        return exp.select("*").from_(sqlglot.parse_one(reader_call(kind, *paths), into=exp.Table, dialect=DIALECT))

    def define_table(self, name: str, columns: Sequence[Field], *, into: str, schema: str | None = None) -> None:
        listed = ", ".join(f"{quote_identifier(field.name)} {field.type}" for field in columns)
        self.connection.run(f"CREATE TABLE {render_sql(table(name, into, schema or ''))} ({listed})")

    def list_statistics(self, paths: Sequence[Path]) -> list[tuple[str | None, str]]:
        files = f"[{', '.join(quote_text(escape_pattern(str(path))) for path in paths)}]"
        read = {hole: f"parquet_{name}({files})" for hole, name in (("chunks", "metadata"), ("entries", "kv_metadata"))}
        calls: Holes = {hole: sqlglot.parse_one(sql, into=exp.Table, dialect=DIALECT) for hole, sql in read.items()}
        return [(name, text) for name, text in self.rows(fill("duckdb/statistics", calls))]

    def export_parquet(self, source: exp.Table, path: Path) -> None:
        written = f"TO {quote_text(path)} (FORMAT parquet, COMPRESSION zstd, WRITE_BLOOM_FILTER false)"
        self.connection.run(f"COPY (SELECT * FROM {render_sql(source)}) {written}")

    def list_objects(self, database: str, schema: str | None = None) -> Objects:
        objects = []
        for kind, name, text, place in self.rows(fill("duckdb/objects", {"database": exp.Literal.string(database)})):
            if schema is not None:
                name = name.removeprefix(f"{schema}.")
            if schema is not None and (place != schema or (kind, name) == ("schema", schema)):
                continue
            if kind == "function":
                # The catalog leaves out the defaults of parameters. A call with too many arguments is refused before
                # the function's body is examined, and the refusal lists all forms of the function with their defaults.
                nulls, called = ["NULL"] * (int(text.split()[0]) + 1), render_sql(table(name, database, place))
                call = f"DESCRIBE SELECT {called}({', '.join(nulls)})"
                text += self.connection.refusal_of(call).split("LINE 1")[0]
            objects.append((kind, name, text))
        return objects

    def list_schemas(self, database: str) -> list[str]:
        """Return the schemas of an attached database, without its first schema ``main``."""
        objects = self.rows(fill("duckdb/objects", {"database": exp.Literal.string(database)}))
        return [name for kind, name, *_ in objects if kind == "schema"]

    def find_schema(self, database: str, name: str) -> str | None:
        listed = ["main", *self.list_schemas(database)]
        return name if name in listed else next((one for one in listed if fold_name(one) == fold_name(name)), None)

    def require_schema(self, database: str, name: str, having: str | None = None) -> str:
        found = self.find_schema(database, name)
        if found is None:
            raise UsageError(f"there is no schema {name!r}")
        if having is not None and ("table", having) not in [one[:2] for one in self.list_objects(database, found)]:
            raise UsageError(f"schema {name!r} has no table {having!r}")
        return found

    def create_schema(self, name: str, *, into: str) -> None:
        self.connection.run(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(into)}.{quote_identifier(name)}")

    def define_objects(self, definitions: Sequence[Definition], *, into: str, schema: str | None = None) -> None:
        for one in definitions:
            if isinstance(one, IntervalFunctions):
                for name, body in write_intervals(one.records, one.skew, **MACRO_SUMS).items():
                    macro = f"{render_sql(table(name, into, schema or MAIN))}({', '.join(FUNCTIONS[name])})"
                    self.connection.run(f"CREATE MACRO {macro} AS {render_sql(body)}")
                continue
            self.create_view(one.name, one.query, into=into, schema=schema)
            target = render_sql(table(one.name, into, schema))
            self.connection.run(f"COMMENT ON VIEW {target} IS {quote_text(one.comment)}")

    @contextmanager
    def replace_tables(
        self,
        database: str,
        tables: Sequence[str],
        definitions: Sequence[Definition],
        *,
        into: str,
        schema: str,
        former: Sequence[tuple[str, str]] = (),
    ) -> Iterator[None]:
        with self._replacing(schema):
            self.create_schema(schema, into=into)
            for kind, name in sorted(former, reverse=True):  # views before their tables
                self._drop_object(kind, name, into=into, schema=schema)
            for kind, name, _ in self.list_objects(into, schema):
                raise UsageError(f"there is {kind} {name!r}")
            for name in tables:
                self._copy_table(table(name, database), into=into, schema=schema)
            self.define_objects(definitions, into=into, schema=schema)
            yield

    def _replacing(self, schema: str) -> AbstractContextManager[None]:
        """Open a transaction in which a schema is replaced as a whole or not at all."""
        return self.in_transaction()

    def _drop_object(self, kind: str, name: str, *, into: str, schema: str) -> None:
        self.connection.run(f"DROP {kind} {render_sql(table(name, into, schema))}")

    def _copy_table(self, rows: exp.Table, *, into: str, schema: str) -> None:
        """Copy a table into a schema of the attached database ``into``."""
        self.create_table(rows.name, all_rows(rows), into=into, schema=schema)

    def list_relations(self, database: str) -> list[tuple[str, str, str, str]]:
        rows = self.rows(fill("duckdb/listed", {"database": exp.Literal.string(database)}))
        return [(kind, schema, name, sql) for kind, schema, name, sql in rows]

    @contextmanager
    def in_transaction(self) -> Iterator[None]:
        self.connection.run("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            self.connection.run("ROLLBACK")
            raise
        self.connection.run("COMMIT")

    def engine_version(self) -> str:
        return VERSION


STAGE = "server"  # the database that shows the other database's schemas


class RemoteSchemas(DuckContainer, ABC):
    """A session of DuckDB that copies releases from and to the schemas of another database, such as Postgres.

    The schemas of the other database appear as those of a database ``STAGE`` in this session.

    Attributes:
        has_views: Whether the other database can hold views. If not, copies of a release still get its views.
    """

    has_views = True

    def __init__(self) -> None:
        super().__init__(Connection())
        self.create_database(STAGE)

    @abstractmethod
    def name_schemas(self) -> list[str]:
        """Return the names of all schemas in the other database."""

    @abstractmethod
    def describe_schema(self, schema: str) -> Objects:
        """Return the tables, views and other objects in a schema of the other database, as (kind, name, definition)."""

    @abstractmethod
    def list_columns(self, schema: str, name: str) -> list[Field]:
        """Return the columns of a table in the other database."""

    @abstractmethod
    def fetch_table(self, schema: str, name: str, columns: Sequence[Field], *, into: str) -> None:
        """Copy a table from the other database into the schema of the same name in the attached database ``into``.

        Args:
            schema: The schema in both databases.
            name: The table.
            columns: The columns of the copy with their types.
            into: The attached database.
        """

    @abstractmethod
    def state_definition(self, schema: str, stated: Definition) -> dict[tuple[str, str], str]:
        """Return the texts that the other database would store for a view or for functions of a release.

        A stored view with another text is not the one that the release states.

        Returns:
            The text of each definition by (kind, name). It is empty if the other database can't hold such objects.
        """

    def at_one_moment(self) -> AbstractContextManager[None]:
        """Read everything inside the block from one snapshot, if the other database supports snapshots."""
        return nullcontext()

    def list_schemas(self, database: str) -> list[str]:
        return self.name_schemas() if database == STAGE else super().list_schemas(database)

    def list_objects(self, database: str, schema: str | None = None) -> Objects:
        if database != STAGE or schema is None:
            return super().list_objects(database, schema)
        return sorted(self.describe_schema(schema))

    def copy_release(self, database: str, schema: str, having: str, read: ReadContents, into: str) -> Objects:
        """Copy a release from the other database: the tables that its manifest states, its views and its functions.

        A view or function is copied only if the other database defines it as the release states.

        Args:
            database: The name of the other database in this session.
            schema: The schema that holds the release.
            having: The table with the manifest.
            read: Called once the manifest's table is copied. It returns the tables, views and functions that the
                manifest states.
            into: The attached database to copy to.

        Returns:
            All objects of the schema as (kind, name, definition). Objects that were copied have the copy's definition.
        """
        present = {(kind, name): text for kind, name, text in self.list_objects(database, schema)}
        columns = self.list_columns(schema, having)
        if not all(one.is_published for one in columns):
            raise UsageError(f"table {having!r} has a column of another type")
        self.fetch_table(schema, having, columns, into=into)
        tables, definitions = read(self, into, schema)
        for name in [name for name in tables if name != having and ("table", name) in present]:
            stated = [Field(*one) for one in tables[name]]
            strange = {one.name for one in self.list_columns(schema, name)} - {one.name for one in stated}
            present |= {("column", f"{name}.{one}"): "" for one in strange}
            self.fetch_table(schema, name, stated, into=into)
        if all(("table", name) in present for name in tables):  # the views read all of these tables
            for definition in definitions:
                objects = self.state_definition(schema, definition).items()
                if objects <= present.items():
                    self.define_objects([definition], into=into, schema=schema)
                # What is left differs from the stated objects, or was not stated.
                present = dict(present.items() - objects)
        made = self.list_objects(into, schema)
        copied = {(kind, name): text for kind, name, text in made if kind != "comment" or not self.has_views}
        return sorted((*key, text) for key, text in (present | copied).items())


class CopiedSchemas(ABC):
    """A database that can't be attached as a file, whose schemas are read through local copies.

    Each schema is copied once.
    """

    label, counts = "memory", False

    def __init__(self) -> None:
        self._copies: dict[str, tuple[Path, Objects]] = {}

    def copy_schema(self, name: str, having: str, read: ReadContents) -> tuple[Path, Objects]:
        if name not in self._copies:
            folder = Folder(ROOM, Path(tempfile.gettempdir()), masked=False)
            weakref.finalize(self, folder.remove)
            file, copy = folder.path / "copy.duckdb", unique_name("copy")
            with self.open_for_writing() as (db, database):
                db.attach(file, copy, read_only=False)
                with db.at_one_moment():
                    schema = db.require_schema(database, name, having)
                    db.create_schema(schema, into=copy)
                    objects = db.copy_release(database, schema, having, read, copy)
                db.detach(copy)
            self._copies[name] = file, objects
        return self._copies[name]

    @abstractmethod
    def open_for_writing(self) -> AbstractContextManager[tuple[Any, str]]:
        """Yield a session that can copy releases, and the name as which the database is attached in it."""


NUMBERS = itertools.count(1)


def unique_name(what: str) -> str:
    """Return a database name that contains ``what`` and was never used in this process."""
    return f"{PREFIX}{what}_{next(NUMBERS)}"


def log_of(path: Path) -> Path:
    """Return the path of the write-ahead log that DuckDB keeps beside a database file.

    For an address with a query part, ``.wal`` is put before the ``?``.
    """
    head, mark, tail = str(path).partition("?")
    return Path(f"{head}.wal{mark}{tail}")


def reader_call(kind: str, *paths: Path | str, hive_partitioning: bool = False, **options: Any) -> str:
    """Return the SQL call that reads exactly these files as one table.

    Special characters in the files' names are not taken for patterns.

    Args:
        kind: The kind of the files: "parquet" or "csv".
        paths: The files.
        hive_partitioning: Whether a folder such as ``year=2020`` adds a column ``year``.
        options: Further options of DuckDB's reader.
    """
    names = ", ".join(quote_text(file_pattern(str(path))) for path in paths)
    options = {"hive_partitioning": hive_partitioning, **options}
    return call_with_options(READERS[kind], f"[{names}]", options)


def call_with_options(function: str, argument: str, options: Mapping[str, Any]) -> str:
    """Return the SQL call of a function: ``argument`` is SQL text, ``options`` become named arguments."""
    named = (f"{name} = {_as_constant(value)}" for name, value in options.items())
    return f"{function}({', '.join([argument, *named])})"


def _as_constant(value: Any) -> str:
    """Return a Python value as a constant in SQL; lists and dictionaries become SQL lists and structs."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quote_text(key)}: {_as_constant(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_as_constant, value)) + "]"
    return quote_text(value) if isinstance(value, str) else str(value).lower()


def file_pattern(name: str) -> str:
    """Return the pattern with which DuckDB reads exactly one file; an address is returned as it is."""
    return name if url_scheme(name) else escape_pattern(name)


def escape_pattern(path: str) -> str:
    """Return a pattern that matches exactly this path: ``*``, ``?`` and ``[`` are put into brackets."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)


# Locked ---------------------------------------------------------------------------------------------------------------
# ``LockedSession`` of ``privsql.engine.database``: files that others made, in a session that can reach nothing else.
#
# The session's own database lies in memory. It is locked before a file is opened, and attaches files read-only under
# names that privsql chooses. So names are never looked up in a file: if somebody stored a macro ``max`` in it, queries
# still call DuckDB's ``max``.

READING_BASE, PER_BYTE = 2**30, 32  # bytes of memory for reading, and more for each byte of the files
SHARE = 0.8  # the largest share of the machine's memory for a session
SPILL = 4  # disk space for spilling, in multiples of the memory
SECONDS = 30.0  # the default time limit; a view in a stranger's file might never end


class DuckLockedSession(DuckContainer):
    """A session for files that other people made; table names without a database refer to database ``home``."""

    def __init__(self, connection: Connection, home: str) -> None:
        super().__init__(connection)
        self._home = home

    def _render_query(self, query: exp.Expr) -> str:
        return render_sql(qualify_tables(query, self._home))

    def describe_select(self, sql: str) -> list[Field]:
        return self._describe_sql(one_select(sql))

    def parse_select(self, sql: str) -> dict[str, Any]:
        try:
            tree = json.loads(self.rows(fill("duckdb/parsed", {"sql": exp.Literal.string(sql)}))[0][0])
        except RecursionError as error:
            raise UsageError("the query is nested too deeply") from error
        if tree["error"] or len(tree["statements"]) != 1:
            raise UsageError(f"the query can't be answered: {tree.get('error_message', 'it is several statements')}")
        return cast("dict[str, Any]", tree)

    def write_select(self, tree: dict[str, Any]) -> str:
        return str(self.rows(fill("duckdb/written", {"tree": exp.Literal.string(json.dumps(tree))}))[0][0])

    def list_functions(self) -> Sequence[tuple[str, str, str, str, str]]:
        return list_engine_functions()

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.rows(one_select(sql))

    def stand_in(self, names: Sequence[str], query: exp.Expr) -> None:
        database, schema, name = (["memory", "main"][: max(0, 3 - len(names))] + list(names))[-3:]
        if database != "memory":
            self.connection.run(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_identifier(database)}")
        self.connection.run(f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(database)}.{quote_identifier(schema)}")
        view = render_sql(table(name, database, schema))
        self.connection.run(f"CREATE OR REPLACE VIEW {view} AS {self._render_query(query)}")

    def limit_time(self, seconds: float | None = None, stop: Event | None = None) -> AbstractContextManager[None]:
        return self.connection.limit_time(SECONDS if seconds is None else seconds, stop)


@cache
def list_engine_functions() -> list[tuple[str, str, str, str, str]]:
    """Return DuckDB's built-in functions, by which the functions in an analyst's SELECT are examined.

    Returns:
        A list of (name, kind, stability, returned type, syntax tree of a macro's body). The listing takes about 60 ms.
    """
    with closing(Connection()) as connection:
        rows = connection.rows(render_sql(fill("duckdb/functions", {})))
    return [(name, kind, stability, returned, body) for name, kind, stability, returned, body in rows]


def open_locked_session(
    attached: Mapping[str, Path | None], readable: Sequence[Path], home: str, spill: Path, options: Options
) -> DuckLockedSession:
    """Open a locked session, which can read the given files and nothing else.

    Args:
        attached: Database files by the name as which they are attached; None makes an empty database in memory.
        readable: Further files that queries may read.
        home: The attached database that is meant by table names without a database.
        spill: A folder for what does not fit into memory.
        options: How the command runs.
    """
    files = [path for path in (*attached.values(), *readable) if path is not None]
    size = 0
    for path in files:
        try:
            size += path.stat().st_size
        except OSError as error:
            raise EngineError(f"{path}: {error.strerror}") from error
    memory = min(int(SHARE * system.total_memory()), READING_BASE + PER_BYTE * size)
    limits: Settings = {"memory_limit": f"{memory}B", "max_temp_directory_size": f"{SPILL * memory}B"}
    connection = Connection(limits | options.engine_settings(spill), options.report)
    db = DuckLockedSession(connection, home)
    allowed = [str(one) for path in files for one in (path, log_of(path))]
    both = dict.fromkeys([*allowed, *map(escape_pattern, allowed)])  # a reader may pass a path or its escaped pattern
    try:
        db.distrust_statistics()
        connection.run(f"SET allowed_paths = [{', '.join(map(quote_text, both))}]")
        connection.run("SET enable_external_access = false")
        connection.run("SET python_enable_replacements = false")
        connection.run("SET lock_configuration = true")
        for name, file in attached.items():
            db.attach(file, name, read_only=True) if file is not None else db.create_database(name)
    except BaseException:
        db.close()
        raise
    return db
