"""Postgres 15 or later, through ADBC (the extra ``privsql[postgres]``): its dialect, relations, and releases in it."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from sqlglot import exp

from privsql.engine.duck.container import COPY, STAGE, CopiedSchemas, Objects, RemoteSchemas
from privsql.engine.remote import (
    BATCH,
    RemoteDialect,
    RemoteRelations,
    as_arrow_table,
    as_plain_batches,
    as_tuples,
    call_function,
    parse_numbers,
    temporary_name,
    widen_types,
    write_view,
)
from privsql.engine.sqlfiles import (
    DIALECT,
    DIGITS,
    Field,
    alias_as,
    all_rows,
    column,
    concat_texts,
    first_characters,
    one_select,
    table,
)
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from privsql.engine.database import ReadContents, ViewDefinition

# Dialect --------------------------------------------------------------------------------------------------------------
# Postgres' own SQL, its hashes, and its types by privsql's names.

POSTGRES = "postgres"
HASH_FUNCTIONS = frozenset({"Collate", "concat", "concat_ws", "convert_to", "md5", "sha256"})  # of hashes
TYPES = {
    "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN",
    "text": "VARCHAR", "varchar": "VARCHAR", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE", "uuid": "UUID",
}  # fmt: skip
HEADER = 4  # added to precision and scale of a numeric type, as the server keeps them


def _md5_digest(texts: Sequence[exp.Expr]) -> exp.Expr:
    """Return 63 bits of the MD5 of texts as DuckDB does: the upper half of a number in little-endian order."""
    hexadecimal = call_function("md5", concat_texts(texts))
    numbers = [exp.Literal.number(place) for place in range(31, 16, -2)]
    pieces = [exp.Substring(this=hexadecimal.copy(), start=n, length=exp.Literal.number(2)) for n in numbers]
    return _first_bits(call_function("concat", *pieces), 64, 63)


def _sha256_hash(texts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the first 60 bits of SHA-256 of texts."""
    octets = call_function("sha256", call_function("convert_to", concat_texts(texts), exp.Literal.string("UTF8")))
    return _first_bits(
        first_characters(call_function("encode", octets, exp.Literal.string("hex")), DIGITS), 4 * DIGITS, 4 * DIGITS
    )


def _first_bits(hexadecimal: exp.Expr, width: int, count: int) -> exp.Expr:
    """Return the first ``count`` bits of ``width`` in hexadecimal, as an integer."""
    marked = exp.DPipe(this=exp.Literal.string("x"), expression=hexadecimal)
    text = first_characters(exp.cast(exp.cast(marked, f"BIT({width})", dialect=POSTGRES), "TEXT"), count)
    padded = exp.DPipe(this=exp.Literal.string("0" * (64 - count)), expression=text)
    return exp.cast(exp.cast(padded, "BIT(64)", dialect=POSTGRES), "BIGINT")


COLLATION = exp.to_identifier("C", quoted=True)
ENGINE = RemoteDialect("Postgres", POSTGRES, HASH_FUNCTIONS, lambda node: node, COLLATION, _md5_digest, _sha256_hash)


def read_fields(schema: pa.Schema) -> list[Field]:
    """Return columns, with privsql's names of types, or the server's where there is none."""
    return [Field(field.name, _type_name(field)) for field in schema]


def _type_name(field: pa.Field) -> str:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind: str = metadata.get("POSTGRESQL:type", str(field.type))
    modifier = int(metadata.get("POSTGRESQL:typmod", -1))
    if kind == "numeric" and modifier >= HEADER:
        precision, scale = divmod(modifier - HEADER, 2**16)
        return f"DECIMAL({precision},{scale})" if precision <= 38 and scale <= precision else kind
    if kind.startswith("_") and kind[1:] in TYPES:
        return f"{TYPES[kind[1:]]}[]"
    return TYPES.get(kind, kind)


# Server ---------------------------------------------------------------------------------------------------------------
# A connection to a Postgres server: statements one by one, tables as Arrow, privsql's own errors of one line.
#
# An address may hold a password. Only libpq gets it, and of libpq's errors only the server's own answer is passed on.

SOURCE_URI = "source.postgres.uri"
MISTAKES = (adbc_driver_manager.ProgrammingError, adbc_driver_manager.DataError)


class PostgresServer:
    """One session, with texts in UTC."""

    def __init__(self, address: str, label: str = SOURCE_URI, *begin: str) -> None:
        """Connect; ``label``: of the address in messages; ``begin``: statements that come first."""
        try:
            self._connection = dbapi.connect(address, autocommit=True)
        except adbc_driver_manager.Error as error:
            why = str(error).partition("FATAL:")[2].strip().split("\n")[0] or f"no server answers at {label}"
            raise EngineError(f"Postgres: {why}") from None  # the text may quote the address
        try:
            for statement in ("SET TimeZone = 'UTC'", "SET standard_conforming_strings = on", *begin):
                self.run_statement(statement)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session, and with it all that is temporary."""
        with (
            suppress(RuntimeError, EngineError),
            translate_postgres_errors(),
        ):  # a stream that is not read, or no server
            self._connection.close()

    def run_statement(self, sql: str) -> None:
        """Run a statement that yields nothing."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    @contextmanager
    def in_transaction(self, mode: str = "", end: str = "COMMIT") -> Iterator[None]:
        """Make all changes inside or none; ``mode``: of the transaction; ``end``: COMMIT, or ROLLBACK to make none."""
        self.run_statement(f"BEGIN {mode}")
        try:
            yield
        except BaseException:
            with suppress(EngineError, UsageError):  # there may be no connection to roll back, and the server then does
                self.run_statement("ROLLBACK")
            raise
        self.run_statement(end)

    def ingest_table(
        self, name: str, data: pa.Table | pa.RecordBatchReader, place: str, schema: str | None = None
    ) -> None:
        """Make a table ``name``, written ``place`` in SQL; decimals keep their width.

        ``schema``: in which it is made; None for a temporary one.
        """
        fields = data.schema
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, data, mode="create", db_schema_name=schema, temporary=schema is None)
            for number, kind in enumerate(fields.types):
                if pa.types.is_decimal(kind):
                    column = exp.to_identifier(fields.names[number], quoted=True).sql(POSTGRES)
                    cursor.execute(f"ALTER TABLE {place} ALTER {column} TYPE numeric({kind.precision}, {kind.scale})")

    def fetch_schema(self, sql: str) -> pa.Schema:
        """Return the schema of a query's result."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(sql)

    def arrow(self, sql: str) -> pa.Table:
        """Run a query and fetch all."""
        with self.stream_batches(sql) as batches:
            return batches.read_all()

    @contextmanager
    def stream_batches(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """Run a query and fetch it piece by piece; nothing else can run here meanwhile."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            yield cursor.fetch_record_batch()


@contextmanager
def translate_postgres_errors() -> Iterator[None]:
    """Raise ADBC's errors as privsql's, one line each."""
    try:
        yield
    except MISTAKES as error:
        raise UsageError(_error_line(error)) from error
    except (adbc_driver_manager.Error, OSError) as error:  # of a stream that has begun it is the latter
        raise EngineError(_error_line(error)) from error


def _error_line(error: BaseException) -> str:
    """Return the server's message, without the statement."""
    return "Postgres: " + str(error).split("\n\nQuery was:")[0].rpartition("ERROR:")[2].strip().splitlines()[0]


# Relations ------------------------------------------------------------------------------------------------------------
# ``Relations`` of ``privsql.engine.database`` in a Postgres server: temporary tables of one session.


class PostgresRelations(RemoteRelations):
    """Relations of one session; a read-only session sees the server as it was at one moment."""

    engine = ENGINE

    def __init__(self, server: PostgresServer, source: str = "") -> None:
        """Use a session; ``source``: a SELECT that is read as relation ``source``."""
        super().__init__()
        self._server, self._source = server, source
        self._made: dict[str, str] = {}

    def close(self) -> None:
        self._server.close()

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table; numbers without a declared width are read one by one."""
        if values:
            raise EngineError("Postgres: parameters are not supported here")
        data = self._server.arrow(self._render_sql(query))
        kinds = [field.type for field in read_fields(data.schema)]
        return pa.table(list(map(parse_numbers, data.columns, kinds)), names=data.column_names)

    @contextmanager
    def stream_batches(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows of a query, so many at a time at most and in its order, decimals as text."""
        with self._server.stream_batches(self._render_sql(query)) as batches:
            yield as_plain_batches(batches, rows, translate_postgres_errors)

    def open_sibling(self) -> AbstractContextManager[PostgresRelations]:
        """Return further relations of this session."""
        return nullcontext(PostgresRelations(self._server, self._source))

    def _describe_query(self, query: exp.Expr) -> list[Field]:
        return read_fields(self._server.fetch_schema(self._render_sql(query)))

    def with_source(self, query: str) -> PostgresRelations:
        """Return relations of this session in which ``source`` is another SELECT."""
        return PostgresRelations(self._server, one_select(query, POSTGRES))

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:  # noqa: ARG002
        self._create_relation("TABLE", name, self._render_sql(query), into)

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        self.drop(name)
        self._create_relation("VIEW", name, self._render_sql(query), into)

    def create_from_sql(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in Postgres' SQL, as a temporary table."""
        self._create_relation("TABLE", name, one_select(query, POSTGRES), None)

    def register_arrow(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        self.drop(name)
        self._server.ingest_table(self._stored_name(name), widen_types(as_arrow_table(data)), self._quoted_name(name))
        self._made[name] = "TABLE"

    def drop(self, *names: str) -> None:
        for name in [name for name in names if name in self._made]:
            self._server.run_statement(f"DROP {self._made.pop(name)} {self._quoted_name(name)}")

    def _create_relation(self, kind: str, name: str, sql: str, into: str | None) -> None:
        self._refuse_database(name, into)
        self._server.run_statement(f"CREATE TEMP {kind} {self._quoted_name(name)} AS {sql}")
        self._made[name] = kind

    def _stored_name(self, name: str) -> str:
        return name if name == "source" and self._source else self._session_name(name)

    def _quoted_name(self, name: str) -> str:
        return table(self._stored_name(name)).sql(POSTGRES)

    def _render_sql(self, query: exp.Expr) -> str:
        sql = self.engine.render_sql(query, lambda one: (name := temporary_name(one)) and self._stored_name(name))
        within = ("WITH", "source", "AS", f"({self._source}\n)", "SELECT", "*", "FROM", f"({sql})", "AS", "q")
        return " ".join(within) if self._source else sql


def open_postgres(address: str, relation: str | None, query: str | None) -> PostgresRelations:
    """Return a publisher's table or view by its dotted name, or what a SELECT yields; the session writes nothing."""
    named = all_rows(exp.to_table(relation, dialect=POSTGRES)).sql(POSTGRES) if relation else ""
    source = named or one_select(query or "", POSTGRES)
    server = PostgresServer(address, SOURCE_URI, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")  # of one moment
    return PostgresRelations(server, source)


# Releases -------------------------------------------------------------------------------------------------------------
# ``ReleaseDatabase`` of ``privsql.engine.database``: schemas of a server, each written in one transaction.
#
# What is written is read again and compared before the transaction ends. To open a release is to copy its tables, as
# they are at one moment, into a file of this machine. Postgres lacks some types: those of a copy are the ones that the
# manifest states. Rows are read in the order in which they lie, which is that in which they were written.

STATED = "privsql_stated"  # a temporary view
SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ WRITE"  # for the temporary view, also where reading is the default
PLAINLY = ("SET search_path = pg_catalog", "SET row_security = off")  # a policy would hide rows without a word
LONGEST_NAME = 63  # bytes; the server cuts the rest off
STORED = {
    "TINYINT": "SMALLINT", "UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)", "HUGEINT": "DECIMAL(38,0)", "TIMESTAMP_S": "TIMESTAMP", "TIMESTAMP_MS": "TIMESTAMP",
    "UUID": "VARCHAR",
}  # fmt: skip
AS_TEXT = re.compile(r"DECIMAL|UUID|UBIGINT|HUGEINT")  # types whose values come as text
NANOSECONDS = "TIMESTAMP_NS"


class PostgresSchemas(RemoteSchemas):
    """A session of DuckDB beside one of a server, whose schemas are those of database ``STAGE``."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self.server = server

    def close(self) -> None:
        super().close()
        self.server.close()

    def list_schemas(self, database: str) -> list[str]:
        if database != STAGE:
            return super().list_schemas(database)
        named = exp.select("CAST(nspname AS TEXT)").from_("pg_namespace")
        return [name for (name,) in as_tuples(self.server.arrow(named.sql(POSTGRES)))]

    def list_objects(self, database: str, schema: str | None = None) -> Objects:
        if database != STAGE or schema is None:
            return super().list_objects(database, schema)
        holder = exp.EQ(this=exp.column("nspname", "n"), expression=exp.Literal.string(schema))
        inside = (
            exp.select(
                "coalesce(CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END, i.type) AS kind",
                "coalesce(CAST(c.relname AS TEXT), i.identity) AS name",
                "CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) ELSE '' END AS text",
            )
            .from_("pg_depend AS d")
            .join("pg_namespace AS n", on="d.refclassid = n.tableoid AND d.refobjid = n.oid")
            .join(
                "LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS i", join_type="cross", dialect=POSTGRES
            )
            .join("pg_class AS c", on="d.classid = c.tableoid AND d.objid = c.oid", join_type="left")
            .where(holder.copy(), "i.type <> 'default acl'")
        )
        comments = (
            exp.select("'comment'", "CAST(c.relname AS TEXT) || coalesce('.' || a.attname, '')", "description")
            .from_("pg_description AS d")
            .join("pg_class AS c", on="d.classoid = c.tableoid AND d.objoid = c.oid")
            .join("pg_namespace AS n", on="c.relnamespace = n.oid")
            .join(
                "pg_attribute AS a", on="a.attrelid = c.oid AND a.attnum = objsubid AND objsubid > 0", join_type="left"
            )
            .where(holder)
        )
        rows = self.server.arrow(exp.union(inside, comments, distinct=False).sql(POSTGRES))
        return sorted((kind, name, text) for kind, name, text in as_tuples(rows))

    @contextmanager
    def replace_tables(
        self,
        database: str,
        place: tuple[str, str],
        tables: Sequence[str],
        views: Sequence[ViewDefinition],
        former: Sequence[tuple[str, str]] = (),
    ) -> Iterator[None]:
        schema, server = place[1], self.server
        fields = {name: self.list_fields(table(name, database)) for name in tables}
        _require_short(
            [schema, *tables, *(view.name for view in views), *(f.name for one in fields.values() for f in one)]
        )
        with server.in_transaction("ISOLATION LEVEL READ COMMITTED"):
            lock = call_function("pg_advisory_xact_lock", call_function("hashtext", exp.Literal.string(schema)))
            server.arrow(exp.select(exp.cast(lock, "TEXT")).sql(POSTGRES))  # of two at once the second one looks later
            if schema not in self.list_schemas(STAGE):
                server.run_statement(f"CREATE SCHEMA {exp.to_identifier(schema, quoted=True).sql(POSTGRES)}")
            for kind, name in sorted(former, reverse=True):  # views before their tables
                server.run_statement(f"DROP {kind} {_write_name(name, schema)}")
            for kind, name, _ in self.list_objects(STAGE, schema):
                raise UsageError(f"there is {kind} {name!r}")
            self.create_schema(schema, into=STAGE)
            for name, columns in fields.items():
                self._send_table(database, schema, name, columns)
                self.fetch_table(schema, name, columns, into=STAGE)
            for view in views:
                server.run_statement(
                    f"CREATE VIEW {_write_name(view.name, schema)} AS {write_view(ENGINE, view, schema)}"
                )
                comment = exp.Literal.string(view.comment).sql(POSTGRES)
                server.run_statement(f"COMMENT ON VIEW {_write_name(view.name, schema)} IS {comment}")
            yield

    def _send_table(self, database: str, schema: str, name: str, columns: Sequence[Field]) -> None:
        """Copy a table into a schema of the server."""
        if any(NANOSECONDS in one.type for one in columns):
            raise UsageError(f"Postgres has no type for {NANOSECONDS} in table {name!r}; cast it in source.query")
        query, place = exp.select(*map(_send_column, columns)).from_(table(name, database)), _write_name(name, schema)
        with self.stream_batches(query, BATCH) as rows:
            self.server.ingest_table(name, rows, place, schema)
        for one in columns:
            if "UUID" in one.type:
                shown, kind = column(one.name).sql(POSTGRES), one.type.lower()
                self.server.run_statement(f"ALTER TABLE {place} ALTER {shown} TYPE {kind} USING {shown}::{kind}")

    def fetch_table(self, schema: str, name: str, columns: Sequence[Field], *, into: str) -> None:
        read = exp.select(*map(_fetch_column, columns)).from_(exp.table_(name, schema, quoted=True)).order_by("ctid")
        with self.server.stream_batches(read.sql(POSTGRES)) as batches:
            plain = as_plain_batches(batches, BATCH, translate_postgres_errors)
            self.store_rows(plain, columns, table(name, into, schema))

    def list_columns(self, schema: str, name: str) -> list[Field]:
        return read_fields(self.server.fetch_schema(all_rows(exp.table_(name, schema, quoted=True)).sql(POSTGRES)))

    def state_view(self, schema: str, view: ViewDefinition) -> str:
        """Return the definition as the server writes it down, in a transaction that is rolled back."""
        self.server.run_statement(f"CREATE TEMP VIEW {STATED} AS {write_view(ENGINE, view, schema)}")
        written = call_function(
            "pg_get_viewdef", exp.cast(exp.Literal.string(STATED), exp.DataType.build("regclass", udt=True))
        )
        text = as_tuples(self.server.arrow(exp.select(written).sql(POSTGRES)))[0][0]
        self.server.run_statement(f"DROP VIEW {STATED}")
        return str(text)


class PostgresDatabase(CopiedSchemas):
    """A database of a server; each call connects on its own."""

    file: Path | None = None

    def __init__(self, address: str, label: str) -> None:
        super().__init__()
        self._address, self._label = address, label

    def renew(self) -> PostgresDatabase:
        return PostgresDatabase(self._address, self._label)

    @contextmanager
    def open_for_writing(self) -> Iterator[tuple[PostgresSchemas, str]]:
        with PostgresSchemas(PostgresServer(self._address, self._label, *PLAINLY)) as db:
            yield db, STAGE

    def _copy_tables(self, schema: str, having: str, read: ReadContents, file: Path) -> Objects:
        with self.open_for_writing() as (db, _):
            db.attach(file, COPY, read_only=False)
            with db.server.in_transaction(SNAPSHOT, "ROLLBACK"):
                objects = db.copy_release(schema, having, read)
            db.detach(COPY)
        return objects


def _require_short(names: Iterable[str]) -> None:
    """Raise ``UsageError`` for a name that the server would cut."""
    for name in names:
        if len(name.encode()) > LONGEST_NAME:
            raise UsageError(f"Postgres takes names of at most {LONGEST_NAME} bytes, and {name!r} is longer")


def _write_name(name: str, schema: str) -> str:
    return exp.table_(name, schema, quoted=True).sql(POSTGRES)


def _send_column(one: Field) -> exp.Expr:
    """Return a column in a type of the server's."""
    kind = one.type.removesuffix("[]")
    stored = STORED.get(kind, kind) + one.type[len(kind) :]
    value = column(one.name)
    return (
        value
        if stored == one.type
        else alias_as(exp.cast(value, exp.DataType.build(stored, dialect=DIALECT)), one.name)
    )


def _fetch_column(one: Field) -> exp.Expr:
    """Return a column as it comes over: what Arrow has no type for, as text."""
    kind = "TEXT[]" if one.is_list else "TEXT"
    return alias_as(exp.cast(column(one.name), kind), one.name) if AS_TEXT.match(one.type) else column(one.name)
