"""Postgres 15 or later, through ADBC (the extra ``privsql[postgres]``): its dialect, relations and sessions."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from sqlglot import exp

from privsql.engine.remote import (
    RemoteDialect,
    RemoteRelations,
    as_arrow_table,
    as_plain_batches,
    call_function,
    parse_numbers,
    temporary_name,
    widen_types,
)
from privsql.engine.sqlfiles import DIGITS, Field, all_rows, concat_texts, first_characters, one_select, table
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

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

MISTAKES = (adbc_driver_manager.ProgrammingError, adbc_driver_manager.DataError)


class PostgresServer:
    """One session, with texts in UTC."""

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        """Connect; ``read_only``: all is read as it was at one moment, and nothing can be written."""
        try:
            self._connection = dbapi.connect(address, autocommit=True)
        except adbc_driver_manager.Error as error:
            why = str(error).partition("FATAL:")[2].strip().split("\n")[0] or "no server answers at source.postgres.uri"
            raise EngineError(f"Postgres: {why}") from None  # the text may quote the address
        self.run_statement("SET TimeZone = 'UTC'")
        self.run_statement("SET standard_conforming_strings = on")
        if read_only:
            self.run_statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        """End the session, and with it all that is temporary."""
        with suppress(RuntimeError), translate_postgres_errors():  # a stream that nobody has read to its end
            self._connection.close()

    def run_statement(self, sql: str) -> None:
        """Run a statement that yields nothing."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    def ingest_table(self, name: str, data: pa.Table, place: str) -> None:
        """Make a temporary table ``name``, written ``place`` in SQL; decimals keep their width."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, data, mode="create", temporary=True)
            for number, kind in enumerate(data.schema.types):
                if pa.types.is_decimal(kind):
                    column = exp.to_identifier(data.column_names[number], quoted=True).sql(POSTGRES)
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
    return PostgresRelations(PostgresServer(address, read_only=True), source)
