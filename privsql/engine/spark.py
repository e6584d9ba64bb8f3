"""Run privsql in Spark: sessions whose settings are safe, its SQL dialect, tables and sources.

It needs pyspark 4 or later and Java 17 (the extra ``privsql[spark]``). Tables are exchanged as Arrow and never as
pandas, which would turn NULL into NaN.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import re
import shutil
import tempfile
import warnings
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp

from privsql import system
from privsql.engine.database import ONE_MACHINE, Options, Origin, Stage
from privsql.engine.files import ROOM, Folder
from privsql.engine.remote import RemoteDialect, as_tuples, call_function, temporary_name, widen_types
from privsql.engine.sqlfiles import DIGITS, Field, all_rows, concat_texts, first_characters, one_select, temp_table
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError, hide_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


# Dialect --------------------------------------------------------------------------------------------------------------
# Trees of ``sql/`` as Spark's SQL, and Spark's types by privsql's names.
#
# A tree is checked once its holes are filled: nodes that Spark might read otherwise than DuckDB are refused.

SPARK = "spark"
RELEASE = "release"  # the database whose tables are written as files
INSIDE = "release_"  # prefix of these tables' names in a session
PLAIN = "UTF8_BINARY"  # the collation that compares bytes
HASH_FUNCTIONS = frozenset({"concat", "concat_ws", "conv", "md5", "sha2", "shiftrightunsigned", "substring"})
TYPES: dict[type[spark.DataType], str] = {
    spark.ByteType: "TINYINT",
    spark.ShortType: "SMALLINT",
    spark.IntegerType: "INTEGER",
    spark.LongType: "BIGINT",
    spark.FloatType: "FLOAT",
    spark.DoubleType: "DOUBLE",
    spark.BooleanType: "BOOLEAN",
    spark.StringType: "VARCHAR",
    spark.DateType: "DATE",
    spark.TimestampNTZType: "TIMESTAMP",
    spark.TimestampType: "TIMESTAMP WITH TIME ZONE",
}
MISSING = (exp.DType.UUID, exp.DType.TIME, exp.DType.UTINYINT, exp.DType.USMALLINT, exp.DType.UINT, exp.DType.UBIGINT)


class SparkDialect(RemoteDialect):
    """Translates queries to Spark's SQL."""

    def translate_node(self, node: exp.Expr) -> exp.Expr:
        match node:
            case exp.DataType(this=kind) if kind in MISSING:
                kind_there = node.sql(dialect="duckdb")
                raise EngineError(f"Spark has no type {kind_there}; cast the column in the source's query")
            case exp.Anonymous() if node.name.lower() == "regexp_replace":
                *arguments, replacement = node.expressions
                node.set("expressions", [*arguments, exp.Literal.string(replacement.name.replace("\\", "$"))])
        return super().translate_node(node)


ENGINE = SparkDialect("Spark", SPARK, HASH_FUNCTIONS, exp.var(PLAIN))


def type_name(kind: spark.DataType) -> str:
    """Return privsql's name for a Spark type; Spark's own name if privsql has none.

    >>> type_name(spark.DecimalType(10, 2)), type_name(spark.ArrayType(spark.IntegerType()))
    ('DECIMAL(10,2)', 'INTEGER[]')
    """
    if isinstance(kind, spark.DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, spark.ArrayType):
        return f"{type_name(kind.elementType)}[]"
    return TYPES.get(type(kind), str(kind.simpleString()))


def as_spark_types(data: pa.Table) -> pa.Table:
    """Return an Arrow table with its columns converted to types that Spark has.

    Raises:
        EngineError: A column has a type without a counterpart in Spark; the message names the column.
    """
    for field in data.schema:
        if pa.types.is_time(field.type):
            raise EngineError(f"Spark has no type for column {field.name!r}: {field.type}")
    return widen_types(data)


# Session --------------------------------------------------------------------------------------------------------------
# A session of Spark that privsql can trust: ANSI mode, texts in UTC, and privsql's own errors, one line each.
#
# Without ANSI mode a product that overflows is NULL, and no comparison with it is true. A check of a bound would then
# find no violation in any table. privsql sets the mode in its own sessions, demands it in those of callers, and tests
# it in both.

MISTAKES = (AnalysisException, ArithmeticException, DateTimeException, NumberFormatException)
DEMANDED = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
LOG = Path(__file__).with_name("log4j2.properties")
STARTED = {
    "spark.ui.enabled": "false",  # the UI would show query plans to all who can reach its port
    "spark.ui.showConsoleProgress": "false",
    "spark.io.encryption.enabled": "true",  # encrypts shuffled, spilled and broadcast data
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG.as_uri()}",
}
CALLED = re.compile(r'<_\w*RpcError.*?details = "([^"]*)"', re.DOTALL)
CALLS = 5  # attempts to connect; their pauses of 50 ms to 13 s take 17 s
TRIED = 64  # tasks that test whether workers see a folder, several per machine
PER_CORE = 8  # partitions of a shuffle; Spark's default of 200 is for many machines
TALKER = "SQLQueryContextLogger"  # pyspark also logs the errors that it raises, with values

# Rows are exchanged as Arrow, never as pandas.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def start_session(options: Options, settings: dict[str, str] | None = None) -> SparkSession:
    """Return a session of Spark that runs on this machine.

    Java is started once per process and ends with it. So memory, threads and ``settings`` only take effect for the
    first session of a process.

    Args:
        options: How the command runs: memory, threads and progress.
        settings: Further settings of Spark.

    Raises:
        EngineError: Java 17 is missing.
    """
    cores = options.threads or os.cpu_count() or 1
    chosen = STARTED | DEMANDED
    half = f"{system.total_memory() // 2**21}m"  # half of the machine's memory, if no limit is given
    memory = (options.memory_limit or half).upper().removesuffix("IB").removesuffix("B")
    chosen |= {"spark.sql.shuffle.partitions": str(PER_CORE * cores), "spark.driver.memory": memory}
    chosen |= settings or {}
    with translate_spark_errors():
        first = SparkSession.getActiveSession()
        if first is None:
            folder = str(_java_folder())
            chosen |= {"spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
            builder = SparkSession.builder.master(f"local[{options.threads or '*'}]").appName("privsql")
            first = builder.config(map=dict(chosen)).getOrCreate()
        return _configure_session(first.newSession())


@cache
def _java_folder() -> Path:
    """Return a private folder for Java's temporary files; it is removed when the process ends.

    It lies beside privsql's other temporary folders, so that it is cleaned up with them. It is also Spark's folder for
    tables, which would otherwise appear in the working directory.
    """
    folder = Folder(ROOM, Path(tempfile.gettempdir()), masked=False)
    atexit.register(folder.remove)
    return folder.path


@contextmanager
def connect_session(address: str) -> Iterator[SparkSession]:
    """Yield a new session at a Spark Connect address ``sc://host:port``, and end it after the block.

    Otherwise pyspark would try to end it together with the process, for ten minutes if the server is gone. The rest of
    the address may be secret and is shown nowhere.

    Raises:
        EngineError: The server does not answer within 15 seconds.
    """
    place = address.partition("/;")[0]
    try:
        with warnings.catch_warnings(), translate_spark_errors():
            warnings.simplefilter("ignore")  # pyspark also raises what it warns about
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as Distant

            # pyspark's common class would make every later session a remote one
            session = cast("SparkSession", Distant.builder.remote(address).create())
            session.client.set_retry_policies([DefaultPolicy(max_retries=CALLS)])
            try:
                _configure_session(session)
            except BaseException:
                session.client.close()
                raise
    except (ImportError, PrivsqlError) as error:
        why = "pyspark[connect] is not installed" if isinstance(error, ImportError) else str(error)
        raise EngineError(f"{place}: {why}") from error
    try:
        yield session
    finally:
        session.stop()


def require_trusted_session(session: object) -> SparkSession:
    """Return a session that a caller opened, if its settings do not change results.

    Raises:
        UsageError: A failed cast gives NULL instead of an error (ANSI mode is off), or texts of times are not in UTC.
    """
    if not all(hasattr(session, name) for name in ("sql", "conf", "createDataFrame", "catalog")):
        raise UsageError(f"{type(session).__name__} is not a Spark session")
    known = cast("SparkSession", session)  # Spark Connect has a class of its own
    with translate_spark_errors():
        for name, wanted in DEMANDED.items():
            current = known.conf.get(name)
            if str(current).lower() not in {wanted.lower(), f"etc/{wanted.lower()}"}:
                raise UsageError(f"the Spark session has {name} = {current}; privsql needs {wanted}")
        return require_ansi_mode(known)


def require_ansi_mode(session: SparkSession) -> SparkSession:
    """Return the session, in which a failed cast must raise an error (ANSI mode).

    Raises:
        EngineError: ANSI mode is off, so a failed cast gives NULL.
    """
    try:
        session.range(1).selectExpr("CAST('x' AS INT) AS number").toArrow()
    except NumberFormatException:
        return session
    raise EngineError("Spark's ANSI mode is off: overflows would become NULL, and checks would miss them")


def shares_files(session: SparkSession, folder: Path) -> bool:
    """Return whether this machine sees the files that the session's workers write into a folder.

    A small table is written to find out. Workers that can't reach the folder write nothing there, or fail.
    """
    if is_local(session):
        return True
    probe = folder / "probe"
    try:
        session.range(0, TRIED, 1, TRIED).write.parquet(file_address(probe))
        return count_written(probe) == TRIED
    except (PySparkException, Py4JError, OSError):
        return False
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def is_local(session: SparkSession) -> bool:
    """Return whether the session's workers are threads on this machine."""
    try:
        return str(session.sparkContext.master).startswith("local[")
    except (PySparkException, AttributeError):  # Spark Connect has no context
        return False


def count_written(folder: Path) -> int:
    """Return the number of rows in the Parquet files that this machine sees in a folder."""
    return sum(int(pq.read_metadata(part).num_rows) for part in folder.glob("part-*.parquet"))


def write_counted(frame: DataFrame, folder: Path, **options: str) -> None:
    """Write rows as a folder of Parquet files, and check that this machine sees all of them.

    A worker that joins later may not reach the folder, and its rows would be missing.

    Args:
        frame: The rows.
        folder: The folder.
        options: Options of Spark's writer.

    Raises:
        EngineError: Rows are missing.
    """
    if is_local(frame.sparkSession):
        frame.write.options(**options).parquet(file_address(folder))
        return
    home = "pyspark.sql.connect" if ".connect." in type(frame).__module__ else "pyspark.sql"
    functions, observed = import_module(f"{home}.functions"), import_module(f"{home}.observation").Observation()
    frame = frame.observe(observed, functions.expr("count(1)").alias("rows"))
    frame.write.options(**options).parquet(file_address(folder))
    if count_written(folder) != observed.get.get("rows", 0):
        raise EngineError(f"{folder.parent}: some of Spark's workers do not see this folder; nothing written")


def file_address(path: Path) -> str:
    """Return the ``file://`` address of a path; without it Spark would look in its default file system."""
    return f"file://{path.absolute()}"


def _configure_session(session: SparkSession) -> SparkSession:
    for name, value in DEMANDED.items():
        session.conf.set(name, value)
    return require_ansi_mode(session)


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Turn Spark's errors in the block into privsql's errors with a message of one line."""
    logging.getLogger(TALKER).disabled = True
    try:
        yield
    except MISTAKES as error:
        raise UsageError(_error_line(error)) from error
    except PySparkException as error:
        if "JAVA_GATEWAY_EXITED" in str(error) or "JAVA_HOME" in str(error):
            raise EngineError("Spark does not start: it needs Java 17 or later") from error
        raise EngineError(_error_line(error)) from error
    except Py4JError as error:
        cause = getattr(error, "java_exception", None)
        # The first cause is the clearest, such as memory that ran out.
        while cause is not None and cause.getCause() is not None:
            cause = cause.getCause()
        why = _error_line(error) if cause is None else str(cause.toString()).split("\n")[0]
        raise EngineError(f"Spark: {why}") from error


def _error_line(error: BaseException) -> str:
    """Return the first line of an error, without the name of Spark's error class and the SQL state."""
    text = str(error).strip()
    called = CALLED.search(text)  # the error comes from another process
    lines = [called[1]] if called else text.splitlines() or [""]
    first = f"{lines[0]} {lines[-1]}" if lines[0].endswith(":") else lines[0]  # an error of Python in a worker
    return first.split("] ", 1)[-1].split(" SQLSTATE:")[0]


# Relations ------------------------------------------------------------------------------------------------------------
# ``Relations`` of ``privsql.engine.database`` over a session of Spark.
#
# Tables are stored, because a query that is read twice would run twice and might give other rows. They are folders of
# Parquet in the spill folder if the workers see it. Otherwise they lie in the workers' memory and on their disks, and
# losing a worker is an error. Rows of a stored table have no order.


_NUMBERS = itertools.count()  # numbers the objects of this class, which may share a session


class SparkRelations:
    """Tables and views in a session of Spark, which are made from queries or Arrow data.

    Tables are stored in the folder ``spill``, which the session's workers share. If it is None, they are kept in
    Spark's memory.

    Attributes:
        tables: The names of a release's tables. A query may call them without the database name ``release``.
    """

    keeps_order = False
    tables: Collection[str] = ()  # tables of a release, which need no database name

    def __init__(self, session: SparkSession, spill: Path | None, options: Options | None = None) -> None:
        self.session, self.number = session, next(_NUMBERS)
        self.spill, self._options = spill, options or Options()
        self._report = self._options.report
        self._folders = itertools.count()
        self._made: dict[str, Path | None] = {}  # the folder of each relation, by name; None if it has none

    def close(self) -> None:
        """Drop all tables and views that were made; the session stays open."""
        self.drop(*reversed(self._made))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return an SQL expression for 63 bits of the MD5 digest of texts, equal to DuckDB's result.

        The first 8 bytes of the digest are read as a little-endian number; the result is its upper 63 bits.
        """
        hexadecimal = call_function("md5", concat_texts(texts))
        numbers = [exp.Literal.number(place) for place in range(31, 16, -2)]
        turned = call_function(
            "concat", *(call_function("substring", hexadecimal.copy(), n, exp.Literal.number(2)) for n in numbers)
        )
        signed = call_function("conv", turned, exp.Literal.number(16), exp.Neg(this=exp.Literal.number(10)))
        return call_function("shiftrightunsigned", exp.cast(signed, "BIGINT"), exp.Literal.number(1))

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        digits = first_characters(call_function("sha2", concat_texts(texts), exp.Literal.number(256)), DIGITS)
        return exp.cast(call_function("conv", digits, exp.Literal.number(16), exp.Literal.number(10)), "BIGINT")

    # Reading ---

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return as_tuples(self.arrow(query, values))

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        with translate_spark_errors():
            return self._frame(query, values).toArrow()

    @contextmanager
    def stream_batches(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """Run a query and yield a stream of its rows in order. Without a spill folder all rows are held in memory."""
        with translate_spark_errors():
            frame = self._frame(query)
            if self.spill is None:
                folder, reader = None, frame.toArrow().to_reader(rows)
            else:
                folder, schema = self._write_frame(frame, self.spill), frame.limit(0).toArrow().schema

                def batches(folder: Path) -> Iterator[pa.RecordBatch]:
                    # The files are numbered in the order of the query.
                    for path in sorted(folder.glob("part-*.parquet")):
                        with pq.ParquetFile(path) as file:
                            for batch in file.iter_batches(rows):
                                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

                reader = pa.RecordBatchReader.from_batches(schema, batches(folder))
        try:
            yield reader
        finally:
            self._forget(folder)

    def open_sibling(self) -> SparkRelations:
        return SparkRelations(self.session, self.spill, self._options)

    def list_fields(self, source: exp.Expr) -> list[Field]:
        with translate_spark_errors():
            schema = self._frame(all_rows(source) if isinstance(source, exp.Table) else source).schema
        return [Field(field.name, type_name(field.dataType)) for field in schema]

    def reserve_memory(self, size: int, what: str) -> None:
        """Do nothing, because Spark does not use the memory of this process."""

    # Making ---

    def _session_name(self, name: str) -> str:
        """Return the name that privsql's table or view ``name`` has in the session."""
        return f"privsql_{self.number}_{name}"

    def _name_relation(self, one: exp.Table) -> str | None:
        """Return the session's name for a table of a query, if privsql made it; None for any other table.

        Such a table is temporary or belongs to a release.
        """
        is_released = one.catalog == RELEASE or (not one.db and one.name in self.tables)
        return f"{INSIDE}{one.name}" if is_released else temporary_name(one)

    def _refuse_database(self, name: str, into: str | None) -> None:
        if into is not None:
            raise EngineError(
                f"table {name!r} can't be made in {into!r}, as Spark attaches no database; give a folder of Parquet "
                "files as release.to, or a schema of Spark's catalog"
            )

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        self._refuse_database(name, into)
        if title:
            self._report.start_step(title)
        with translate_spark_errors():
            self._store_frame(name, self._frame(query))

    def create_from_sql(self, name: str, query: str) -> None:
        """Run a publisher's SELECT in Spark's SQL, and store the result as a temporary table."""
        with translate_spark_errors():
            self._store_frame(name, self.session.sql(one_select(query, SPARK)))

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        self._refuse_database(name, into)
        with translate_spark_errors():
            self._register_view(name, self._frame(query), None)

    def register_arrow(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable under ``name``; a stream is read completely first."""
        table = as_spark_types(data.read_all() if isinstance(data, pa.RecordBatchReader) else data)
        with translate_spark_errors():
            frame = self.session.createDataFrame(table, schema=from_arrow_schema(table.schema))
            self._register_view(name, frame, None)

    def drop(self, *names: str) -> None:
        for name in names:
            if name in self._made:
                with suppress(UsageError), translate_spark_errors():
                    self.session.catalog.dropTempView(self._session_name(name))
                self._forget(self._made.pop(name))

    def _store_frame(self, name: str, frame: DataFrame) -> None:
        if self.spill is None:
            # ``toDF`` makes new columns, apart from those of the query.
            self._register_view(name, frame.localCheckpoint().toDF(*frame.columns), None)
            return
        folder = self._write_frame(frame, self.spill)
        self._register_view(name, self._read_folder(folder, frame), folder)

    def _read_folder(self, folder: Path, frame: DataFrame) -> DataFrame:
        """Return the rows of a folder that ``frame`` was written to, with the same column types."""
        return self.session.read.schema(frame.schema).parquet(file_address(folder))

    def _write_frame(self, frame: DataFrame, spill: Path) -> Path:
        """Write rows to a new folder inside ``spill`` and return that folder.

        Its files, sorted by name, hold the rows in order.
        """
        folder = spill / f"spark-{self.number}-{next(self._folders)}"
        write_counted(frame, folder)
        return folder

    def _register_view(self, name: str, frame: DataFrame, folder: Path | None) -> None:
        before = self._made.get(name)
        frame.createOrReplaceTempView(self._session_name(name))
        self._made[name] = folder
        self._forget(before)

    def _forget(self, folder: Path | None) -> None:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _frame(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> DataFrame:
        sql = ENGINE.render_sql(query, lambda one: (name := self._name_relation(one)) and self._session_name(name))
        return self.session.sql(sql, args=dict(values) if values else None)


# Warehouse ------------------------------------------------------------------------------------------------------------
# A publisher's source in Spark, and the tables of a release as Spark writes them: folders of Parquet, in order.

FETCHED = 5_000_000  # records in one message to the driver, 1 GB at 200 bytes each, Spark's default limit
COPIED = "this copies them to one machine"
UNSEEN = "its workers do not see the release's folder, so the rows pass this machine's memory"
FIRST = "part-00000.parquet"
WRITTEN = {"compression": "zstd"}


class SparkWarehouse(SparkRelations):
    """A session of Spark that reads the publisher's source, with tables that are made from it."""

    def __init__(self, session: SparkSession, here: Path, options: Options | None = None) -> None:
        """Work in a session of Spark.

        Args:
            session: The session.
            here: A folder on this machine for files that ``write_parquet_files`` makes. If the session's workers share
                it, stored tables also go there.
            options: How the command runs.
        """
        super().__init__(session, here if shares_files(session, here) else None, options)
        self._here = here
        self._write: Callable[[str, DataFrame], DataFrame] | None = None  # writes a table of the release
        self._shown: list[str] = []  # views of the session that have no prefix
        self._files: dict[Path, set[tuple[str, int, int]]] = {}  # the source's files as they were when it was mounted

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's records readable as the table ``name``.

        Records of tables and queries are copied, because these might change in the meantime. Files are read in place.
        """
        frame = self._open_origin(origin)
        with translate_spark_errors():
            if origin.path is not None and origin.query is None:
                self._register_view(name, frame, None)
            else:
                self._store_frame(name, frame)

    def _open_origin(self, origin: Origin) -> DataFrame:
        frame: DataFrame | None = origin.data
        with translate_spark_errors():
            if origin.path is not None:
                self._files = {origin.path: list_files(origin.path)}
                frame = self.session.read.parquet(file_address(origin.path))
            if origin.query is not None:
                text = one_select(origin.query, SPARK)
                if frame is not None:
                    if self.session.catalog.tableExists("source"):
                        raise UsageError("the Spark session has a table 'source', which the query could mean; drop it")
                    frame.createTempView("source")
                    self._shown.append("source")
                return self.session.sql(text)
            return self.session.table(origin.relation or "") if frame is None else frame

    def require_unchanged(self) -> None:
        for path, known in self._files.items():
            changed = sorted(name for name, _, _ in known ^ list_files(path))
            if changed:
                raise GuaranteeError(f"{changed[0]} changed while it was read; nothing written")

    def close(self) -> None:
        """Drop all tables and views that were made, including views that the publisher's own queries could read."""
        for name in self._shown:
            with translate_spark_errors():
                self.session.catalog.dropTempView(name)
        self._shown.clear()
        super().close()

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Return the collations of those columns that do not compare texts byte by byte, by the column's name."""
        with translate_spark_errors():
            schema = self._frame(all_rows(source)).schema
        collations = {field.name: getattr(field.dataType, "collation", PLAIN) for field in schema}
        return {name: collations[name] for name in columns if collations.get(name, PLAIN) != PLAIN}

    def publish_as(self, name: str, query: exp.Expr) -> None:
        with translate_spark_errors():
            self._frame(query).createTempView(name)
            self._shown.append(name)

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        with translate_spark_errors():
            return as_tuples(self.session.sql(one_select(sql, SPARK)).toArrow())

    # A release ---

    def set_release_folder(self, folder: Path) -> None:
        self._write = partial(self._write_folder, folder)
        if self.spill is None:
            refuse_more("the source", self._frame(all_rows(temp_table("source"))), FETCHED, UNSEEN)

    def set_release_stage(self, stage: Stage) -> None:
        self._write = cast("Any", stage).write_table

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Store the result of a query as a temporary table or as a table of the release, with its rows in order."""
        if into != RELEASE or self._write is None:
            super().create_table(name, query, into=into, title=title)
            return
        if title:
            self._report.start_step(title)
        with translate_spark_errors():
            self._register_view(f"{INSIDE}{name}", self._write(name, self._frame(query)), None)

    def _write_folder(self, folder: Path, name: str, frame: DataFrame) -> DataFrame:
        """Write a table of the release as a folder of Parquet files inside ``folder``, and return the rows that were
        written.
        """
        target = folder / f"{name}.parquet"
        if self.spill is None:
            frame = frame.localCheckpoint()
        self._write_parts(frame, target)
        return frame if self.spill is None else self._read_folder(target, frame)

    def write_parquet_files(self, origin: Origin) -> list[Path]:
        folder, frame = self._here / "brought", self._open_origin(origin)
        with hide_values(origin.types is not None):
            refuse_more("the source", frame, ONE_MACHINE if self.spill else FETCHED, COPIED if self.spill else UNSEEN)
            with translate_spark_errors():
                self._write_parts(frame, folder)
        return sorted(folder.iterdir())

    def _write_parts(self, frame: DataFrame, folder: Path) -> None:
        """Write rows in order as a folder of Parquet files on this machine.

        If the workers do not share this machine's files, all rows pass through this process as one Arrow table.
        """
        if self.spill is not None:
            written = self.spill / f"written-{self.number}-{next(self._folders)}"
            write_counted(frame, written, **WRITTEN)
            only_parts(written)
            shutil.move(written, folder)  # a late task then writes to the old place
            return
        folder.mkdir()
        rows = frame.toArrow().replace_schema_metadata(None)
        pq.write_table(rows, folder / FIRST, store_schema=False, **WRITTEN)


def refuse_more(what: str, frame: DataFrame, most: int, why: str = COPIED) -> None:
    """Refuse a result with too many rows before it is copied to this machine.

    Args:
        what: What the message calls the result.
        frame: The result.
        most: The largest number of rows.
        why: The clause of the message that says what limits the number.

    Raises:
        EngineError: The result has more than ``most`` rows.
    """
    with translate_spark_errors():
        rows = frame.count()
    if rows > most:
        raise EngineError(f"{what} has {rows:,} rows, and {why}, which works for up to {most:,}")


def list_files(path: Path) -> set[tuple[str, int, int]]:
    """Return a file, or all files below a folder, as (name, size, time of the last change).

    Two such lists tell whether a source changed while it was read.

    Raises:
        EngineError: The path does not exist.
    """
    if not path.exists():
        raise EngineError(f"{path}: no such file")
    stats = [(one, one.stat()) for one in (path.rglob("*") if path.is_dir() else (path,)) if one.is_file()]
    return {(str(one), stat.st_size, stat.st_mtime_ns) for one, stat in stats}


def only_parts(folder: Path) -> None:
    """Leave only the data files in a folder that Spark has written, and number them by their order.

    The new names, such as ``part-00000.parquet``, reveal nothing but the order.
    """
    parts = sorted(folder.glob("part-*.parquet"))
    for entry in folder.iterdir():
        if entry not in parts:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for number, part in enumerate(parts):
        part.rename(folder / f"part-{number:05}.parquet")


@contextmanager
def open_warehouse(
    spill: Path, options: Options, session: object | None, remote: str | None
) -> Iterator[SparkWarehouse]:
    """Yield a warehouse in a session of Spark: the given one, a new one at an address, or one on this machine.

    Args:
        spill: A folder for stored tables.
        options: How the command runs.
        session: A session that the caller has open; None if there is none.
        remote: The address of a Spark Connect server; None for this machine.
    """
    with (
        connect_session(remote) if remote and session is None else nullcontext(session) as there,
        SparkWarehouse(
            start_session(options) if there is None else require_trusted_session(there), spill, options
        ) as warehouse,
    ):
        yield warehouse
