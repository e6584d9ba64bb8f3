"""Read sources and write releases in Postgres 15 or later, through ADBC (the extra ``privsql[postgres]``)."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING

import adbc_driver_manager
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from adbc_driver_postgresql import dbapi
from sqlglot import exp

from privsql.engine.database import IntervalFunctions
from privsql.engine.duck.container import STAGE, CopiedSchemas, Objects, RemoteSchemas
from privsql.engine.remote import BATCH, RemoteDialect, as_tuples, call_function, temporary_name
from privsql.engine.sqlfiles import Field, all_rows, cast_as, column, one_select, write_intervals
from privsql.engine.values import numeric_digits
from privsql.errors import HIDDEN, EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from privsql.engine.database import Definition

# Dialect --------------------------------------------------------------------------------------------------------------
# The SQL dialect of Postgres, and privsql's names for its types.

POSTGRES = "postgres"
TYPES = {
    "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN",
    "text": "VARCHAR", "varchar": "VARCHAR", "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE", "uuid": "UUID",
}  # fmt: skip
ENGINE = RemoteDialect("Postgres", POSTGRES, frozenset({"Bracket", "Collate"}), exp.to_identifier("C", quoted=True))


def read_fields(schema: pa.Schema) -> list[Field]:
    """Return the columns of an Arrow schema, with privsql's names for their types.

    A type that privsql has no name for keeps the server's name.
    """
    known = TYPES | {f"_{kind}": f"{name}[]" for kind, name in TYPES.items()}
    fields = []
    for one in schema:
        kind = (one.metadata or {}).get(b"POSTGRESQL:type", str(one.type).encode()).decode()
        digits = numeric_digits(one) if kind == "numeric" else None
        fields.append(Field(one.name, f"DECIMAL({digits[0]},{digits[1]})" if digits else known.get(kind, kind)))
    return fields


# Server ---------------------------------------------------------------------------------------------------------------
# A connection to a Postgres server: statements one by one, tables as Arrow, privsql's own errors of one line.
#
# An address may hold a password. It is given to libpq only, and of libpq's errors only the server's part is shown.

SOURCE_URI = "source.postgres.uri"
MISTAKES = (adbc_driver_manager.ProgrammingError, adbc_driver_manager.DataError)
# The year 4714 BC, by the bits of the type.
EARLIEST = {32: (pa.int32(), -2_440_588), 64: (pa.int64(), -2_440_588 * 24 * 60 * 60 * 10**6)}


class PostgresServer:
    """A session with a Postgres server, in time zone UTC.

    If ``private`` is true, no error message shows a value, and values that can't be read become NULL instead of errors.
    """

    private = False

    def __init__(self, address: str, label: str = SOURCE_URI, *begin: str) -> None:
        """Connect to a server.

        Args:
            address: The address, which may hold a password.
            label: What error messages call the address.
            begin: SQL statements to run first.

        Raises:
            EngineError: The server does not answer or refuses the connection.
        """
        try:
            self._connection = dbapi.connect(address, autocommit=True)
        except adbc_driver_manager.Error as error:
            why = str(error).partition("FATAL:")[2].strip().split("\n")[0] or f"no server answers at {label}"
            raise EngineError(f"Postgres: {why}") from None  # the original error's text may quote the address
        try:
            for statement in ("SET TimeZone = 'UTC'", "SET standard_conforming_strings = on", *begin):
                self.run_statement(statement)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session, which also removes its temporary tables."""
        # A stream may be unread, or the server gone.
        with suppress(RuntimeError, EngineError), translate_postgres_errors():
            self._connection.close()

    def run_statement(self, sql: str) -> None:
        """Run a statement that returns no rows."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    @contextmanager
    def in_transaction(self, mode: str = "", end: str = "COMMIT") -> Iterator[None]:
        """Run the block in a transaction, which is rolled back if an error is raised.

        Args:
            mode: The options of the transaction, as BEGIN takes them.
            end: The statement at the end; ROLLBACK undoes all changes.
        """
        self.run_statement(f"BEGIN {mode}")
        try:
            yield
        except BaseException:
            with suppress(EngineError, UsageError):  # without a connection the server rolls back itself
                self.run_statement("ROLLBACK")
            raise
        self.run_statement(end)

    def ingest_table(
        self, name: str, data: pa.Table | pa.RecordBatchReader, place: str, schema: str | None = None
    ) -> None:
        """Create a table from Arrow data; decimal columns keep their precision and scale.

        Args:
            name: The name of the table.
            data: The rows.
            place: The quoted name of the table with its schema, as SQL writes it.
            schema: The schema; None makes a temporary table.
        """
        fields = data.schema
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, data, mode="create", db_schema_name=schema, temporary=schema is None)
            for number, kind in enumerate(fields.types):
                if pa.types.is_decimal(kind):
                    column = exp.to_identifier(fields.names[number], quoted=True).sql(POSTGRES)
                    cursor.execute(f"ALTER TABLE {place} ALTER {column} TYPE numeric({kind.precision}, {kind.scale})")

    def fetch_schema(self, sql: str) -> pa.Schema:
        """Return the Arrow schema of a query's result without running the query."""
        with translate_postgres_errors(), self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(sql)

    def arrow(self, sql: str) -> pa.Table:
        """Run a query and return all rows as an Arrow table."""
        with self.stream_batches(sql) as batches:
            return batches.read_all()

    @contextmanager
    def stream_batches(self, sql: str, rows: int = BATCH) -> Iterator[pa.RecordBatchReader]:
        """Run a query and yield a stream of its rows, in batches of at most ``rows`` rows.

        A column whose type Arrow lacks gets the type in which the driver ADBC returns it. No other statement can run in
        this session until the stream is closed.
        """
        with translate_postgres_errors(discreet=self.private), self._connection.cursor() as cursor:
            cursor.execute(sql)
            batches = cursor.fetch_record_batch()
            kinds = [(one.name, one.type) for one in batches.schema]
            schema = pa.schema(
                [(name, one.storage_type if isinstance(one, pa.OpaqueType) else one) for name, one in kinds]
            )

            def pieces() -> Iterator[pa.RecordBatch]:
                with translate_postgres_errors(discreet=self.private):
                    for batch in batches:
                        columns = []
                        for field, values in zip(schema, batch.columns, strict=True):
                            plain = values.storage if isinstance(values.type, pa.OpaqueType) else values
                            columns.append(_read_finite(field, plain, private=self.private))
                        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                        yield from (whole.slice(at, rows) for at in range(0, len(whole), rows))

            yield pa.RecordBatchReader.from_batches(schema, pieces())


def _read_finite(field: pa.Field, values: pa.Array, *, private: bool) -> pa.Array:
    """Return the values of a column without infinities and without times that Arrow can't hold.

    The driver would read such times wrongly, as times that are too early.

    Args:
        field: The column.
        values: Its values as the driver returns them.
        private: Whether the release spends a privacy budget. These values then become NULL.

    Raises:
        UsageError: ``private`` is false, and the column has such a value.
    """
    if not pa.types.is_temporal(field.type) or pa.types.is_time(field.type):
        return values
    kind, earliest = EARLIEST[field.type.bit_width]
    numbers = values.cast(kind)
    if (pc.min(numbers).as_py() or 0) >= earliest:
        return values
    if not private:
        wrong = f"column {field.name!r} holds infinity, or a time that is too late"
        raise UsageError(f"{wrong}; query NULLIF({field.name}, 'infinity') in its place")
    return pc.if_else(pc.greater_equal(numbers, earliest), numbers, pa.scalar(None, kind)).cast(field.type)


@contextmanager
def translate_postgres_errors(*, discreet: bool = False) -> Iterator[None]:
    """Turn errors of the driver ADBC in the block into privsql's errors with a message of one line.

    If ``discreet`` is true, messages do not show the server's text, which may quote a value.
    """
    try:
        yield
    except MISTAKES as error:
        raise UsageError(HIDDEN if discreet else _error_line(error)) from error
    except (adbc_driver_manager.Error, OSError) as error:  # a stream that has begun raises OSError
        raise EngineError(HIDDEN if discreet else _error_line(error)) from error


def _error_line(error: BaseException) -> str:
    """Return the server's error message in one line, without the statement that caused it."""
    return "Postgres: " + str(error).split("\n\nQuery was:")[0].rpartition("ERROR:")[2].strip().splitlines()[0]


# Source ---------------------------------------------------------------------------------------------------------------
# A publisher's table on a server, which counts its rows. DuckDB sends it the queries that read only this table.


class PostgresSource:
    """The publisher's table or query on a server, which is read as of one moment and never written.

    Queries call it ``source``.
    """

    def __init__(self, server: PostgresServer, source: str) -> None:
        """Use an open session; ``source`` is the SELECT that yields the publisher's records."""
        self._server, self._source = server, source

    def close(self) -> None:
        """End the session."""
        self._server.close()

    def with_source(self, query: str) -> PostgresSource:
        """Return a source in the same session whose records are those of the publisher's SELECT ``query``."""
        return PostgresSource(self._server, one_select(query, POSTGRES))

    def list_fields(self, query: exp.Expr) -> list[Field]:
        """Return the columns of a query's result.

        Raises:
            EngineError: The query uses SQL that privsql does not translate to other engines.
        """
        return read_fields(self._server.fetch_schema(self._render_sql(query)))

    def stream_batches(self, query: exp.Expr, rows: int) -> AbstractContextManager[pa.RecordBatchReader]:
        """Run a query and yield a stream of its rows in order, at most ``rows`` in a batch, with decimals as text."""
        return self._server.stream_batches(self._render_sql(query), rows)

    def _render_sql(self, query: exp.Expr) -> str:
        sql = ENGINE.render_sql(query, temporary_name)
        return " ".join(("WITH", "source", "AS", f"({self._source}\n)", "SELECT", "*", "FROM", f"({sql})", "AS", "q"))


def open_postgres(address: str, relation: str | None, query: str | None, *, private: bool = False) -> PostgresSource:
    """Open a new session with a server, and return it as the source of the publisher's records.

    Args:
        address: The address of the server.
        relation: The dotted name of a table or view; None if there is a query.
        query: A SELECT in place of a table; None if there is a table.
        private: Whether the release spends a privacy budget. No value may then change messages or cause errors.
    """
    named = all_rows(exp.to_table(relation, dialect=POSTGRES)).sql(POSTGRES) if relation else ""
    source = named or one_select(query or "", POSTGRES)
    # All statements see one moment.
    server = PostgresServer(address, SOURCE_URI, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    server.private = private
    return PostgresSource(server, source)


# Releases -------------------------------------------------------------------------------------------------------------
# ``ReleaseDatabase`` of ``privsql.engine.database``: schemas of a server, each written in one transaction.
#
# Written tables are read again and compared before the transaction ends. A release is opened by copying its tables, as
# they are at one moment, into a local file. Postgres lacks some types, so a copy gets the types that the manifest
# states. Rows are read in their stored order, which is the order in which they were written.

STATED = "privsql_stated"  # the name of a temporary view
TEMPORARY = "pg_temp"  # the schema of temporary functions
PARTS = ("pg_constraint", "pg_trigger", "pg_policy", "pg_attrdef", "pg_rewrite")  # catalogs of a table's other parts
SNAPSHOT = "ISOLATION LEVEL REPEATABLE READ READ WRITE"  # the temporary view needs it where read-only is the default
PLAINLY = ("SET search_path = pg_catalog", "SET row_security = off")  # a policy would silently hide rows
LONGEST_NAME = 63  # bytes; the server cuts longer names
STORED = {
    "TINYINT": "SMALLINT", "UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20,0)", "HUGEINT": "DECIMAL(38,0)", "TIMESTAMP_S": "TIMESTAMP", "TIMESTAMP_MS": "TIMESTAMP",
    "UUID": "VARCHAR",
}  # fmt: skip
FUNCTION_NAME = "p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'"
# A query for the stored properties of a function as text; names of its parts are given without its schema.
FUNCTION_TEXT = """
    CAST(
        to_jsonb(p) - ARRAY['oid', 'proname', 'pronamespace', 'proowner', 'proacl', 'prosqlbody']
        || jsonb_build_object('body', pg_get_function_sqlbody(p.oid), 'comment', obj_description(p.oid, 'pg_proc'))
        || coalesce(to_jsonb(a) - ARRAY['aggfnoid', 'aggfinalfn'], '{}')
        || jsonb_build_object('final', replace(CAST(a.aggfinalfn AS TEXT), quote_ident(n.nspname) || '.', ''))
        AS TEXT
    )
"""
# The state of ``float8_regr_accum``: number, sum and squared deviations of variances, sum of weights. The deviations of
# equal numbers are 0 but for rounding; variances of several values differ by a part in 10^6 at least.
STATE_SUMS = {
    name: sqlglot.parse_one(sql, dialect=POSTGRES)
    for name, sql in {
        "weight": "CASE WHEN sums[1] > 0 THEN sums[4] END",
        "variance": "sums[2]",
        "number": "sums[1]",
        "alike": "sums[3] * sums[1] <= 1e-15 * sums[2] * sums[2]",
    }.items()
}
FINAL = "privsql_"  # prefix of the function that computes an aggregate's result
AS_TEXT = re.compile(r"DECIMAL|UUID|UBIGINT|HUGEINT")  # types whose values the driver returns as text
NANOSECONDS = "TIMESTAMP_NS"


class PostgresSchemas(RemoteSchemas):
    """A session of DuckDB that copies releases from and to the schemas of a Postgres server.

    The server's schemas appear as those of database ``STAGE``.
    """

    def __init__(self, server: PostgresServer) -> None:
        super().__init__()
        self.server = server

    def close(self) -> None:
        super().close()
        self.server.close()

    def name_schemas(self) -> list[str]:
        named = exp.select("CAST(nspname AS TEXT)").from_("pg_namespace")
        return [name for (name,) in as_tuples(self.server.arrow(named.sql(POSTGRES)))]

    def describe_schema(self, schema: str) -> Objects:
        holder = exp.EQ(this=exp.column("nspname", "n"), expression=exp.Literal.string(schema))
        held = "d.refclassid = n.tableoid AND d.refobjid = n.oid"  # objects in the schema itself
        parts = f"d.classid IN ({', '.join(f'{name!r}::regclass' for name in PARTS)})"  # parts of its tables and views
        inside = (
            exp.select(
                "coalesce(CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END, i.type) AS kind",
                f"coalesce(CAST(c.relname AS TEXT), {FUNCTION_NAME}, i.identity) AS name",
                f"coalesce(CASE c.relkind WHEN 'v' THEN pg_get_viewdef(c.oid) END, {FUNCTION_TEXT}, '') AS text",
                dialect=POSTGRES,
            )
            .distinct()
            .from_("pg_depend AS d")
            .join("pg_class AS h", on="d.refclassid = h.tableoid AND d.refobjid = h.oid", join_type="left")
            .join("pg_namespace AS n", on=f"{held} OR (h.relnamespace = n.oid AND {parts})", dialect=POSTGRES)
            .join(
                "LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS i", join_type="cross", dialect=POSTGRES
            )
            .join("pg_class AS c", on="d.classid = c.tableoid AND d.objid = c.oid", join_type="left")
            .join("pg_proc AS p", on="d.classid = p.tableoid AND d.objid = p.oid", join_type="left")
            .join("pg_aggregate AS a", on="CAST(a.aggfnoid AS OID) = p.oid", join_type="left")
            .where(holder.copy(), "i.type <> 'default acl'", "i.identity NOT LIKE '\"_RETURN\" on %'")
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
        return [(kind, name, text) for kind, name, text in as_tuples(rows)]

    def at_one_moment(self) -> AbstractContextManager[None]:
        return self.server.in_transaction(SNAPSHOT, "ROLLBACK")

    @contextmanager
    def _replacing(self, schema: str) -> Iterator[None]:
        with self.server.in_transaction("ISOLATION LEVEL READ COMMITTED"):
            lock = call_function("pg_advisory_xact_lock", call_function("hashtext", exp.Literal.string(schema)))
            self.server.arrow(exp.select(exp.cast(lock, "TEXT")).sql(POSTGRES))  # a second publication waits here
            yield

    def create_schema(self, name: str, *, into: str) -> None:
        if into == STAGE and name not in self.name_schemas():
            _require_short([name])
            self.server.run_statement(f"CREATE SCHEMA {exp.to_identifier(name, quoted=True).sql(POSTGRES)}")
        super().create_schema(name, into=into)

    def _drop_object(self, kind: str, name: str, *, into: str, schema: str) -> None:
        if kind != "function":
            self.server.run_statement(f"DROP {kind} {_write_name(name, schema)}")
            return
        for routine in (name, f"{FINAL}{name}"):  # the second function belongs to the first
            self.server.run_statement(f"DROP ROUTINE IF EXISTS {_write_name(routine, schema)}")

    def _copy_table(self, rows: exp.Table, *, into: str, schema: str) -> None:
        """Copy a table into a schema of the server, then copy the result back into DuckDB's database ``into``.

        So the caller can check that the server holds the rows that it was sent.
        """
        name, columns, written = rows.name, self.list_fields(rows), _write_name(rows.name, schema)
        _require_short([name, *(one.name for one in columns)])
        if any(NANOSECONDS in one.type for one in columns):
            raise UsageError(f"Postgres has no type for {NANOSECONDS} in table {name!r}; cast it in source.query")
        with self.stream_batches(exp.select(*map(_send_column, columns)).from_(rows), BATCH) as batches:
            self.server.ingest_table(name, batches, written, schema)
        for one in columns:
            if "UUID" in one.type:
                shown, kind = column(one.name).sql(POSTGRES), one.type.lower()
                self.server.run_statement(f"ALTER TABLE {written} ALTER {shown} TYPE {kind} USING {shown}::{kind}")
        self.fetch_table(schema, name, columns, into=into)

    def define_objects(self, definitions: Sequence[Definition], *, into: str, schema: str | None = None) -> None:
        if into != STAGE or schema is None:
            super().define_objects(definitions, into=into, schema=schema)
            return
        for one in definitions:
            if isinstance(one, IntervalFunctions):
                self._define_functions(one, schema)
                continue
            _require_short([one.name])
            place, comment = _write_name(one.name, schema), exp.Literal.string(one.comment).sql(POSTGRES)
            self.server.run_statement(f"CREATE VIEW {place} AS {ENGINE.write_view(one, schema)}")
            self.server.run_statement(f"COMMENT ON VIEW {place} IS {comment}")

    def fetch_table(self, schema: str, name: str, columns: Sequence[Field], *, into: str) -> None:
        sent = []
        for one in columns:  # the driver returns types that Arrow lacks as text
            as_text = Field(one.name, "VARCHAR[]" if one.is_list else "VARCHAR")
            sent.append(cast_as(column(one.name), as_text) if AS_TEXT.match(one.type) else column(one.name))
        read = exp.select(*sent).from_(exp.table_(name, schema, quoted=True)).order_by("ctid")
        with self.server.stream_batches(read.sql(POSTGRES)) as batches:
            self.store_rows(name, batches, columns, into=into, schema=schema)

    def list_columns(self, schema: str, name: str) -> list[Field]:
        return read_fields(self.server.fetch_schema(all_rows(exp.table_(name, schema, quoted=True)).sql(POSTGRES)))

    def _define_functions(self, functions: IntervalFunctions, schema: str) -> None:
        """Create the functions n, low and high of a release as aggregate functions of the server.

        The server's built-in functions add up the rows, because they are fast and run in parallel.
        """
        self.server.run_statement(
            f"CREATE AGGREGATE {_write_name('n', schema)} (weight float8) "
            "(SFUNC = float8pl, COMBINEFUNC = float8pl, STYPE = float8, INITCOND = 0, PARALLEL = SAFE)"
        )
        state = exp.select("agginitval").from_("pg_aggregate").where("aggfnoid = CAST('regr_sxx' AS regproc)")
        begin = exp.Literal.string(self._read_value(state)).sql(POSTGRES)  # the state is longer on some servers
        bodies = write_intervals(functions.records, functions.skew, **STATE_SUMS)
        for name in ("low", "high"):
            final, body = _write_name(f"{FINAL}{name}", schema), ENGINE.render_sql(bodies[name])
            self.server.run_statement(
                f"CREATE FUNCTION {final} (sums float8[]) RETURNS float8 "
                f"LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN {body}"
            )
            self.server.run_statement(
                f"CREATE AGGREGATE {_write_name(name, schema)} (weight float8, variance float8) "
                f"(SFUNC = float8_regr_accum, COMBINEFUNC = float8_regr_combine, STYPE = float8[], "
                f"INITCOND = {begin}, FINALFUNC = {final}, PARALLEL = SAFE)"
            )

    def _read_value(self, query: exp.Select) -> str:
        return str(as_tuples(self.server.arrow(query.sql(POSTGRES)))[0][0])

    def state_definition(self, schema: str, stated: Definition) -> dict[tuple[str, str], str]:
        """Return the texts that the server would store for a view or for functions of a release, by (kind, name).

        A stored view with another text is not the one that the release states. To find the texts, temporary objects are
        created in a transaction that the caller rolls back.
        """
        if isinstance(stated, IntervalFunctions):
            self._define_functions(stated, TEMPORARY)
            holder = exp.select("CAST(nspname AS TEXT)").from_("pg_namespace").where("oid = pg_my_temp_schema()")
            objects = self.describe_schema(self._read_value(holder))
            return {(kind, name): text for kind, name, text in objects if kind in ("aggregate", "function")}
        self.server.run_statement(f"CREATE TEMP VIEW {STATED} AS {ENGINE.write_view(stated, schema)}")
        view = exp.cast(exp.Literal.string(STATED), exp.DataType.build("regclass", udt=True))
        text = self._read_value(exp.select(call_function("pg_get_viewdef", view)))
        self.server.run_statement(f"DROP VIEW {STATED}")
        return {("view", stated.name): text}


class PostgresDatabase(CopiedSchemas):
    """A database on a Postgres server that takes releases as schemas; each call opens its own connection."""

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


def _require_short(names: Iterable[str]) -> None:
    """Raise ``UsageError`` if a name is too long for Postgres, which would cut it without saying so."""
    for name in names:
        if len(name.encode()) > LONGEST_NAME:
            raise UsageError(f"Postgres takes names of at most {LONGEST_NAME} bytes, and {name!r} is longer")


def _write_name(name: str, schema: str) -> str:
    return exp.table_(name, schema, quoted=True).sql(POSTGRES)


def _send_column(one: Field) -> exp.Expr:
    """Return a column for a query to Postgres; it is cast if Postgres does not have its type."""
    kind = one.type.removesuffix("[]")
    stored = STORED.get(kind, kind) + one.type[len(kind) :]
    return column(one.name) if stored == one.type else cast_as(column(one.name), Field(one.name, stored))
