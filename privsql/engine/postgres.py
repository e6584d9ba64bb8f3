"""Postgres 15 or later, through ADBC (the extra ``privsql[postgres]``): its dialect, relations and sessions."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from sqlglot import exp

from privsql.engine.remote import Engine, RelationsApart, call, numbers, plain, temporary, whole, widened
from privsql.engine.roles import DIGITS, Field, beside_each_other, first
from privsql.engine.sqlfiles import all_rows, one_select, table
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

# Dialect --------------------------------------------------------------------------------------------------------------
# What Postgres says otherwise, hashes as it makes them, and its types by privsql's names.

POSTGRES = "postgres"
OWN = frozenset({"Collate", "concat", "concat_ws", "convert_to", "md5", "sha256"})  # of hashes
TYPES = {
    "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN",
    "text": "VARCHAR", "varchar": "VARCHAR", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE", "uuid": "UUID",
}  # fmt: skip
HEADER = 4  # added to precision and scale of a numeric type, as the server keeps them


def _digest(texts: Sequence[exp.Expr]) -> exp.Expr:
    """63 bits of the MD5 of texts, as DuckDB has them: the upper half of a number whose first byte is the lowest."""
    shown = call("md5", beside_each_other(texts))
    numbers = [exp.Literal.number(place) for place in range(31, 16, -2)]
    pieces = [exp.Substring(this=shown.copy(), start=n, length=exp.Literal.number(2)) for n in numbers]
    return _bits(call("concat", *pieces), 64, 63)


def _hashed(texts: Sequence[exp.Expr]) -> exp.Expr:
    """The first 60 bits of SHA-256 of texts."""
    octets = call("sha256", call("convert_to", beside_each_other(texts), exp.Literal.string("UTF8")))
    return _bits(first(call("encode", octets, exp.Literal.string("hex")), DIGITS), 4 * DIGITS, 4 * DIGITS)


def _bits(hexadecimal: exp.Expr, given: int, kept: int) -> exp.Expr:
    """The first ``kept`` bits of ``given`` in hexadecimal, as an integer."""
    marked = exp.DPipe(this=exp.Literal.string("x"), expression=hexadecimal)
    text = first(exp.cast(exp.cast(marked, f"BIT({given})", dialect=POSTGRES), "TEXT"), kept)
    padded = exp.DPipe(this=exp.Literal.string("0" * (64 - kept)), expression=text)
    return exp.cast(exp.cast(padded, "BIT(64)", dialect=POSTGRES), "BIGINT")


ENGINE = Engine("Postgres", POSTGRES, OWN, lambda node: node, exp.to_identifier("C", quoted=True), _digest, _hashed)


def read_fields(schema: pa.Schema) -> list[Field]:
    """Columns, with types by privsql's names; as the server says them where there is none."""
    return [Field(field.name, _type(field)) for field in schema]


def _type(field: pa.Field) -> str:
    told = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind: str = told.get("POSTGRESQL:type", str(field.type))
    modifier = int(told.get("POSTGRESQL:typmod", -1))
    if kind == "numeric" and modifier >= HEADER:
        precision, scale = divmod(modifier - HEADER, 2**16)
        return f"DECIMAL({precision},{scale})" if precision <= 38 and scale <= precision else kind
    if kind.startswith("_") and kind[1:] in TYPES:
        return f"{TYPES[kind[1:]]}[]"
    return TYPES.get(kind, kind)


# Server ---------------------------------------------------------------------------------------------------------------
# A connection to a Postgres server: statements one by one, tables as Arrow, privsql's own errors of one line.
#
# An address may hold a password. It is handed to libpq and told to nobody: of what libpq says when no connection can be
# had only what the server answered is passed on.

MISTAKES = (adbc_driver_manager.ProgrammingError, adbc_driver_manager.DataError)


class Server:
    """One session, with texts in UTC."""

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        """``read_only``: all is read as it was at one moment, and nothing can be written."""
        try:
            self._connection = dbapi.connect(address, autocommit=True)
        except adbc_driver_manager.Error as error:
            why = str(error).partition("FATAL:")[2].strip().split("\n")[0] or "no server answers at source.postgres.uri"
            raise EngineError(f"Postgres: {why}") from None  # the text may quote the address
        self.run("SET TimeZone = 'UTC'")
        self.run("SET standard_conforming_strings = on")
        if read_only:
            self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        """End the session, and with it all that is temporary."""
        with suppress(RuntimeError), translated():  # a stream that nobody has read to its end
            self._connection.close()

    def run(self, sql: str) -> None:
        """Run a statement that yields nothing."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    def put(self, name: str, data: pa.Table, place: str) -> None:
        """Make a temporary table ``name``, written ``place`` in SQL; decimals keep their width."""
        with translated(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, data, mode="create", temporary=True)
            for number, kind in enumerate(data.schema.types):
                if pa.types.is_decimal(kind):
                    column = exp.to_identifier(data.column_names[number], quoted=True).sql(POSTGRES)
                    cursor.execute(f"ALTER TABLE {place} ALTER {column} TYPE numeric({kind.precision}, {kind.scale})")

    def schema(self, sql: str) -> pa.Schema:
        """What a query yields."""
        with translated(), self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(sql)

    def arrow(self, sql: str) -> pa.Table:
        """Run a query and fetch all."""
        with self.batches(sql) as found:
            return found.read_all()

    @contextmanager
    def batches(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """Run a query and fetch it piece by piece; nothing else can run here meanwhile."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            yield cursor.fetch_record_batch()


@contextmanager
def translated() -> Iterator[None]:
    """ADBC's errors as privsql's, one line each."""
    try:
        yield
    except MISTAKES as error:
        raise UsageError(_line(error)) from error
    except (adbc_driver_manager.Error, OSError) as error:  # of a stream that has begun it is the latter
        raise EngineError(_line(error)) from error


def _line(error: BaseException) -> str:
    """What the server says, without the statement that it says it of."""
    return "Postgres: " + str(error).split("\n\nQuery was:")[0].rpartition("ERROR:")[2].strip().splitlines()[0]


# Relations ------------------------------------------------------------------------------------------------------------
# ``Relations`` of ``privsql.engine.database`` in a Postgres server: temporary tables of one session.


class PostgresRelations(RelationsApart):
    """What was made in one session; what a publisher has there, as it was at one moment, if that is all."""

    engine = ENGINE

    def __init__(self, server: Server, source: str = "") -> None:
        """``source``: a SELECT that is read as relation ``source``."""
        super().__init__()
        self._server, self._source = server, source
        self._made: dict[str, str] = {}

    def close(self) -> None:
        """End the session."""
        self._server.close()

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table; numbers without a declared width are read one by one."""
        if values:
            raise EngineError("Postgres: no values are bound here")
        found = self._server.arrow(self._sql(query))
        kinds = [field.type for field in read_fields(found.schema)]
        return pa.table(list(map(numbers, found.columns, kinds)), names=found.column_names)

    @contextmanager
    def streamed(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query, so many at a time at most and in its order, decimals as text."""
        with self._server.batches(self._sql(query)) as batches:
            yield plain(batches, rows, translated)

    def beside(self) -> AbstractContextManager[PostgresRelations]:
        """Relations of their own in the same session, as long as that."""
        return nullcontext(PostgresRelations(self._server, self._source))

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        query = all_rows(source) if isinstance(source, exp.Table) else source
        return read_fields(self._server.schema(self._sql(query)))

    def reading(self, query: str) -> PostgresRelations:
        """The same session, in which ``source`` is what another SELECT yields."""
        return PostgresRelations(self._server, one_select(query, POSTGRES))

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:  # noqa: ARG002
        """Materialise a query as a temporary table."""
        self._create("TABLE", name, self._sql(query), into)

    def view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a temporary view."""
        self.drop(name)
        self._create("VIEW", name, self._sql(query), into)

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in Postgres' SQL, as a temporary table."""
        self._create("TABLE", name, one_select(query, POSTGRES), None)

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Copy an Arrow table to a temporary one."""
        self.drop(name)
        self._server.put(self._place(name), widened(whole(data)), self._quoted(name))
        self._made[name] = "TABLE"

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""
        for name in [name for name in names if name in self._made]:
            self._server.run(f"DROP {self._made.pop(name)} {self._quoted(name)}")

    def _create(self, kind: str, name: str, sql: str, into: str | None) -> None:
        self._only_own(name, into)
        self._server.run(f"CREATE TEMP {kind} {self._quoted(name)} AS {sql}")
        self._made[name] = kind

    def _place(self, name: str) -> str:
        return name if name == "source" and self._source else self._own(name)

    def _quoted(self, name: str) -> str:
        return table(self._place(name)).sql(POSTGRES)

    def _sql(self, query: exp.Expr) -> str:
        sql = self.engine.render(query, lambda one: (name := temporary(one)) and self._place(name))
        within = ("WITH", "source", "AS", f"({self._source}\n)", "SELECT", "*", "FROM", f"({sql})", "AS", "q")
        return " ".join(within) if self._source else sql


def opened(address: str, relation: str | None, query: str | None) -> PostgresRelations:
    """A publisher's table or view by its dotted name, or what a SELECT yields; the session writes nothing."""
    named = all_rows(exp.to_table(relation, dialect=POSTGRES)).sql(POSTGRES) if relation else ""
    source = named or one_select(query or "", POSTGRES)
    return PostgresRelations(Server(address, read_only=True), source)
