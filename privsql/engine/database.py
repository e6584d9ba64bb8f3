"""The protocols of engines, all that other rooms may call, and how a verb runs and reports progress.

``privsql.engine.open`` opens sessions.

Nothing of an engine's own crosses this border: queries go in as sqlglot trees (or, of a publisher's own, as text),
tables as Arrow, files as paths; rows come back as tuples of Python's own values, tables as Arrow, columns as ``Field``
with the type names of ``privsql.engine.sqlfiles.SCALAR``, errors as those of ``privsql.errors``.

Three of the protocols, because three things can lie in different places:

* ``Relations``  what every step of a mechanism, an answer or an attack works with, on every engine;
* ``Warehouse``  the publisher's source as well;
* ``Container``  the files that releases and ledgers are, which are always DuckDB's.

A ``Sink`` is a database that takes releases as schemas. A ``ReleaseDatabase`` is one that is no file of its own: a
server's, a catalog of Spark's, or one that a caller has open.

``OrderedRelations`` are those of DuckDB, whose rows have numbers: its fast order of records needs them.

``EngineSession`` is all three over one session: where a verb works. ``LockedSession`` is for files that others made.

Members are described here; the classes that provide them add only what differs.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from threading import Timer
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, TypeVar, cast

from privsql.calls import as_whole_number, refuse_unknown_keywords
from privsql.errors import EngineError, UsageError
from privsql.outcomes import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from threading import Event

    import pyarrow as pa
    from sqlglot import exp

    from privsql.engine.sqlfiles import Field

    FindTypes = Callable[["Relations"], Mapping[str, str | None]]
    """The type of each column by its folded name; None: that which all of its values have."""
    ReadContents = Callable[
        ["Container", str, str], tuple[Mapping[str, Sequence[tuple[str, str]]], Sequence["Definition"]]
    ]
    """The tables (columns with their types) and views that a manifest states, by its database and schema."""
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.progress import Progress


LOOKUPS = "lookups"  # the database of an analyst's own tables

FRAME = "frame"  # the kind of what lies in memory
HERE, SPARK, POSTGRES = "duckdb", "spark", "postgres"
SERVERS = (POSTGRES, "mysql", "ducklake")  # kinds of sources that have an address
ONE_MACHINE = 300_000_000  # records that one machine sorts in memory: 24 bytes for each (``packing.PACKED``) are 7.2 GB


@dataclass(frozen=True)
class EngineTraits:
    """The differences between engines that packages above need to know, for the engine that holds a source.

    Attributes:
        title: The engine's name in messages.
        dialect: Its SQL dialect, by sqlglot's name.
        own_schema: The schema of tables that name none.
        counts: Whether records are counted in that engine.
        assigns: Whether records also get their buckets there, without an order of rows. The tables of a release are
            then written there as folders of Parquet.
        schemes: The schemes of its addresses.
    """

    title: str = "DuckDB"
    dialect: str = HERE
    own_schema: str = "main"
    counts: bool = False
    assigns: bool = False
    schemes: tuple[str, ...] = ()


TRAITS = {
    SPARK: EngineTraits("Spark", SPARK, "default", counts=True, assigns=True),
    POSTGRES: EngineTraits("Postgres", POSTGRES, "public", counts=True, schemes=("postgresql", "postgres")),
}  # by kinds of sources; DuckDB reads all others


@dataclass(frozen=True)
class Scan:
    """Files that are read as one table.

    Attributes:
        files: Their names, patterns, folders or addresses.
        by_name: Whether a column that a file lacks is NULL there.
        partitioned: Whether folders called column=value are columns.
        options: The options of CSV files, by DuckDB's names.
    """

    files: tuple[str, ...] = field(repr=False)
    by_name: bool = False
    partitioned: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a publisher's records lie.

    Attributes:
        kind: duckdb, parquet, csv, frame, or the engine that holds them.
        path: The database, or the file that an engine beside DuckDB reads.
        relation: A table or view.
        query: A SELECT in place of the relation, which calls files ``source``.
        address: The address of an engine elsewhere; None for one of this machine's own.
        scan: The files, if it is no database.
        data: The rows of a table in memory, or a DataFrame of Spark, which a query calls ``source`` as well.
        texts: The folded names of its columns whose texts stand for values of any type.
        opened: The database, where a caller has it open.
        types: Finds the types of columns that the specification determines, by folded name. None where records may
            decide the types.
    """

    kind: str
    path: Path | None = None
    relation: str | None = None
    query: str | None = None
    address: str | None = field(default=None, repr=False)
    scan: Scan | None = None
    data: Any = field(default=None, repr=False, compare=False)
    texts: frozenset[str] = frozenset()
    opened: ReleaseDatabase | None = field(default=None, repr=False, compare=False)
    types: FindTypes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ViewDefinition:
    """A view of a release, with the comment that a database stores beside it."""

    name: str
    query: exp.Query
    comment: str


@dataclass(frozen=True)
class IntervalFunctions:
    """The functions n, low and high of a release, with which readers count rows of its weighted view with an interval.

    privsql only defines them for readers, and never calls them itself.

    Attributes:
        records: The number of records in the release, if the counted records are drawn from them without replacement.
            None if the errors of records are independent of each other.
        skew: How much the variance of a count grows with each record that it counts (sql/clients/interval.sql).
    """

    records: int | None = None
    skew: float = 0.0


FUNCTIONS = {"n": ("weight",), "low": ("weight", "variance"), "high": ("weight", "variance")}  # with their parameters
Definition = ViewDefinition | IntervalFunctions  # what a release stores beside its tables


class Relations(Protocol):
    """Named relations that are made from queries or arrays, and can be read back."""

    keeps_order: bool
    """True if the rows of a relation that is made have the order of its query."""

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Store the result of a query as table ``name``: temporary, or in the attached database ``into``.

        If ``keeps_order`` is true, the rows keep the order of the query.

        Args:
            name: The name of the table.
            query: The query.
            into: The attached database; None makes a temporary table.
            title: The name of the step for the progress bar; empty for no step.
        """

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into`` if that is not None."""

    def register_arrow(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make Arrow data readable under ``name``; a stream can be read only once."""

    def create_from_sql(self, name: str, query: str) -> None:
        """Store the result of a publisher's SELECT, which can read the tables beside the source, as ``name``."""

    def drop(self, *names: str) -> None:
        """Remove temporary relations."""

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and return all of its rows; ``values`` are its parameters by name."""

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and return an Arrow table; ``values`` are its parameters by name."""

    def stream_batches(self, query: exp.Expr, rows: int) -> AbstractContextManager[pa.RecordBatchReader]:
        """Yield a stream of a query's rows in order, ``rows`` at a time.

        Until it is closed, only sessions from ``open_sibling`` can run other queries.
        """

    def open_sibling(self) -> AbstractContextManager[Relations]:
        """Return another session with its own temporary relations and the same attached databases."""

    def list_fields(self, source: exp.Expr) -> list[Field]:
        """Return the columns of a table or query."""

    def reserve_memory(self, size: int, what: str) -> None:
        """Reserve ``size`` bytes of the memory limit for arrays beside the engine.

        Nothing happens if the engine does not share this process's memory.

        Raises:
            EngineError: Too little memory would be left; the message calls the arrays ``what``.
        """

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return the expression for 63 bits that stand for these texts in their order.

        They are the same in every version and on every engine.
        """

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return the expression for the first 60 bits of the SHA-256 of these texts, joined, as an integer.

        They are the same on every engine.
        """


class OrderedRelations(Relations, Protocol):
    """An engine that keeps the order of stored rows, and numbers them."""

    def row_number(self, table: str) -> exp.Expr:
        """Return the expression for the number (0, 1, ..) of a row in ``table``, which was made in this session."""

    def with_bid_and_code(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """Return the rows of a table made here, with ``bid`` and ``code`` added from ``positions`` (pos, bid, code)."""

    def with_bid(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """Return the rows of a table made here, with column ``bid`` added from ``positions`` (pos, bid)."""


def require_ordered(db: Relations) -> OrderedRelations:
    """Return the engine, which must number its rows.

    Raises:
        EngineError: The engine does not keep the order of rows.
    """
    if not db.keeps_order:
        raise EngineError(
            "this engine does not number rows; publish with release.order = 'portable' and without source.id"
        )
    return cast("OrderedRelations", db)


class Warehouse(Relations, Protocol):
    """A publisher's source, with the relations of counts and records that are made from it."""

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``."""

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Return the collation of each column of a relation that has one."""

    def publish_as(self, name: str, query: exp.Expr) -> None:
        """Make a query readable by ``run_select`` under a name that the publisher knows."""

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT of the publisher and return all rows."""


class TextWarehouse(Warehouse, Protocol):
    """A warehouse that reads CSV files."""

    def mount_texts(self, name: str, origin: Origin) -> None:
        """Make the values of CSV files readable as ``name``, every value as a text."""


class DetachedWarehouse(Warehouse, Protocol):
    """A warehouse to which no release can be attached, so that the tables of a release are written as files."""

    def set_release_folder(self, folder: Path) -> None:
        """Write each table of database ``release`` from now on as a folder of Parquet files inside ``folder``."""

    def set_release_stage(self, stage: Stage) -> None:
        """Write each table of database ``release`` from now on into a stage of the same engine."""

    def require_unchanged(self) -> None:
        """Raise ``GuaranteeError`` if files of the source have changed since they were mounted."""

    def write_parquet_files(self, origin: Origin) -> list[Path]:
        """Write a source as Parquet files on this machine, and return the files.

        Raises:
            EngineError: The source has more than ``ONE_MACHINE`` records.
        """


class Container(OrderedRelations, Protocol):
    """Database files that are attached under a name: releases that grow, ledgers and caches."""

    def attach(self, path: Path, name: str, *, read_only: bool, strange: bool = False) -> None:
        """Attach a database file under ``name``.

        Args:
            path: The file.
            name: The name under which it is attached.
            read_only: Whether nothing may be written to it.
            strange: Whether somebody else made the file; its statistics of columns are then not believed.
        """

    def distrust_statistics(self) -> None:
        """Plan queries without the statistics of columns that files state, since they may be wrong."""

    def create_database(self, name: str) -> None:
        """Attach a new, empty database in memory under ``name``."""

    def detach(self, name: str) -> None:
        """Write all changes to an attached file and detach it."""

    def find_leftovers(self, name: str) -> list[str]:
        """Return a line for each part of an attached file that belongs to no row of its tables."""

    def attached_name(self, path: Path) -> str | None:
        """Return the name under which a file is attached; None if it is not attached."""

    def list_objects(self, database: str, schema: str | None = None) -> list[tuple[str, str, str]]:
        """Return all objects of an attached database or of one ``schema``: (kind, name, definition), sorted.

        The names of a schema's objects stand without the schema.
        """

    def find_schema(self, database: str, name: str) -> str | None:
        """Return the schema of an attached database that the engine finds under ``name``; None if there is none.

        The result is spelled as in the database.
        """

    def require_schema(self, database: str, name: str, having: str | None = None) -> str:
        """Return the schema that ``find_schema`` finds.

        Raises:
            UsageError: There is no such schema, or it has no table ``having``.
        """

    def create_schema(self, name: str, *, into: str) -> None:
        """Create a schema in an attached database, unless it exists."""

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view: temporary if ``into`` is None, else in that attached database.

        Without ``schema`` it is made in the first schema of the database.
        """

    def define_objects(self, definitions: Sequence[Definition], *, into: str, schema: str | None = None) -> None:
        """Create views with their comments, and functions, in an attached database.

        Without ``schema`` they are made in its first schema.
        """

    def replace_tables(
        self,
        database: str,
        tables: Sequence[str],
        definitions: Sequence[Definition],
        *,
        into: str,
        schema: str,
        former: Sequence[tuple[str, str]] = (),
    ) -> AbstractContextManager[None]:
        """Copy tables of ``database`` into a schema and define views and functions there, as a whole or not at all.

        If an error is raised inside the block, nothing is changed.

        Args:
            database: The database to copy from.
            tables: The tables to copy.
            definitions: The views and functions to define.
            into: The database to copy to.
            schema: The schema to copy to.
            former: The objects (kind, name) of an earlier release, which are dropped first.

        Raises:
            UsageError: The schema holds any other object.
        """

    def list_relations(self, database: str) -> list[tuple[str, str, str, str]]:
        """Return the tables and views of an attached database: (kind, schema, name, definition), by schema and name."""

    def append_rows(self, name: str, query: exp.Expr, *, into: str) -> None:
        """Append the rows of a query to a table in the attached database ``into``."""

    def define_table(self, name: str, columns: Sequence[Field], *, into: str, schema: str | None = None) -> None:
        """Create an empty table in an attached database."""

    def scan_files(self, paths: Sequence[Path], kind: str) -> exp.Select:
        """Return the query for the rows of Parquet or CSV files with the same columns, one file after another."""

    def list_statistics(self, paths: Sequence[Path]) -> list[tuple[str | None, str]]:
        """Return the texts that the footers of Parquet files state as statistics.

        Each is (column, text) for a bound of a column of texts, and (None, text) for any other entry.
        """

    def export_parquet(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, rows in order."""

    def in_transaction(self) -> AbstractContextManager[None]:
        """Make all changes to one database inside the block together; if an error is raised, none of them is made."""

    def engine_version(self) -> str:
        """Return the version of the engine that writes database files."""


class Sink(Protocol):
    """A database that takes releases as schemas.

    Each release is written in one transaction, with its manifest last, or not at all.
    """

    def open_for_writing(self) -> AbstractContextManager[tuple[Container, str]]:
        """Yield a session, and the name under which the database is attached in it."""


class ReleaseDatabase(Sink, Protocol):
    """A database that is not reached by attaching a file.

    Uncommitted rows and temporary tables of a caller's connection are not visible here.

    Attributes:
        file: The file of a database that a caller has open; None for a database in memory or of a server.
        label: The name of the database in messages.
        counts: Whether it is a ``CountingDatabase``.
    """

    file: Path | None
    label: str
    counts: bool

    def renew(self) -> Self:
        """Return the database without the copies that were made so far, so that it is read again."""

    def copy_schema(self, name: str, having: str, read: ReadContents) -> tuple[Path, list[tuple[str, str, str]]]:
        """Copy the tables of a schema into a file, or return the copy that an earlier call made.

        The file is removed together with this object.

        Args:
            name: The schema.
            having: The table with the manifest, which the schema must have.
            read: Reads the manifest from the copy, and returns the tables and views that the copy is to have.

        Returns:
            The file, and (kind, name, definition) of all objects in the schema.

        Raises:
            UsageError: There is no such schema or table.
        """


class Stage(Relations, Protocol):
    """A private schema in which the tables of a release are made and checked, as those of database ``release``."""

    def commit(self, definitions: Sequence[Definition], former: Sequence[tuple[str, str]]) -> None:
        """Publish the staged tables and views in place of the objects ``former``; the last table is published last.

        If this fails, the target holds nothing that opens as a release, or it holds the former release.

        Raises:
            UsageError: The target holds other objects.
        """


class CountingDatabase(ReleaseDatabase, Protocol):
    """A database whose engine makes the tables of releases, and checks and counts them without copying."""

    def without_rows(self) -> Self:
        """Return the same database, but its copies contain the rows of the manifest only."""

    def open_tables(self, schema: str) -> AbstractContextManager[tuple[Relations, list[str]]]:
        """Yield the tables of a schema, which appear as those of database ``release``, and their names."""

    def open_stage(self, schema: str, last: str, owner: Path) -> AbstractContextManager[Stage]:
        """Yield a stage for a schema.

        Args:
            schema: The schema that becomes the release.
            last: The table that makes it a release.
            owner: A folder that goes with this process.

        Raises:
            UsageError: Another publication is at work there.
        """

    def sweep_stage(self, schema: str, last: str) -> None:
        """Remove what a killed publication into a schema has left behind.

        Raises:
            UsageError: Another publication is running there.
        """

    def is_large(self, schema: str) -> bool:
        """Return whether any table has too many rows to be copied for a few questions."""


class EngineSession(Warehouse, Container, Protocol):
    """A session for the duration of one command; leaving it as a context manager removes all temporary relations."""

    def let_go(self) -> None:
        """Detach the publisher's database file; relations that were made from it stay."""

    def close(self) -> None:
        """End the session."""

    def __enter__(self) -> Self:
        """Return the session."""

    def __exit__(self, *_: object) -> None:
        """Close the session."""


class LockedSession(Container, Protocol):
    """A session for files that other people made, which are attached read-only.

    It can read nothing else and can't change any setting. Tables in a query that name no database belong to the
    database for which the session was opened.
    """

    def describe_select(self, sql: str) -> list[Field]:
        """Return the columns of the result of a SELECT.

        Raises:
            UsageError: The text is not one SELECT that the engine would run.
        """

    def parse_select(self, sql: str) -> dict[str, Any]:
        """Return the engine's own syntax tree of a SELECT.

        Raises:
            UsageError: The text is not exactly one SELECT.
        """

    def write_select(self, tree: dict[str, Any]) -> str:
        """Return the SQL text of a tree from ``parse_select``."""

    def list_functions(self) -> Sequence[tuple[str, str, str, str, str]]:
        """Return the engine's functions as (name, kind, stability, returned type, tree of a macro's body)."""

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT, which the caller must have examined before."""

    def stand_in(self, names: Sequence[str], query: exp.Expr) -> None:
        """Let an analyst's SQL read a query under a table's name, given as [[database,] schema,] table."""

    def limit_time(self, seconds: float | None = None, stop: Event | None = None) -> AbstractContextManager[None]:
        """Stop the statements in the block if they take too long, or once ``stop`` is set.

        Args:
            seconds: The limit; None for the default limit of views that other people wrote, which might never end.
            stop: Set by another thread to stop the statements.

        Raises:
            LateError: The statements were stopped.
        """


Item = TypeVar("Item")
PATIENCE = 1.0  # seconds before a bar appears
READING, COMPARING = "Reading the source", "Comparing with earlier releases"  # steps of several verbs


class Reporter:
    """Receive the steps of a command and their progress; this base class ignores them.

    ``watched`` tells whether anybody sees the progress, and ``traces`` whether every statement is recorded.
    """

    watched = False
    traces = False

    def start_step(self, title: str) -> None:
        """Begin a step, whose progress starts at zero."""

    def update(self, percent: float) -> None:
        """Record that the step is ``percent`` done; progress of statements is then ignored until the next step."""

    def update_statement(self, percent: float) -> None:
        """Record that the running statement of the step is ``percent`` done; a negative number means unknown."""

    def note_statement(self, statement: TracedStatement) -> None:
        """Record a statement that has run."""


@dataclass(frozen=True)
class TracedStatement(JsonObject):
    """A statement that an engine has run.

    Attributes:
        step: The step of the command.
        relation: The table or view that the statement made; empty if its rows were read.
        file: The file of ``sql/`` that it was made from; empty if there is none.
        rows: The number of rows that it made or read; None for a view or a stream.
        seconds: Its duration.
    """

    json_keys = ("step", "relation", "file", "rows", "seconds")

    step: str
    relation: str
    file: str
    rows: int | None
    seconds: float


SILENT = Reporter()


@dataclass(frozen=True)
class Options:
    """Settings of how a command runs, which do not change its result.

    ``session`` is a session of Spark that is used in place of a new one.
    """

    memory_limit: str | None = None
    threads: int | None = None
    report: Reporter = SILENT
    session: object | None = None

    def engine_settings(self, spill: Path) -> dict[str, str]:
        """Return the options as settings of DuckDB.

        What does not fit into memory is written to the folder ``spill``.
        """
        chosen = {"temp_directory": spill, "memory_limit": self.memory_limit, "threads": self.threads}
        return {name: str(value) for name, value in chosen.items() if value}


class RunKeywords(TypedDict, total=False):
    """The keywords of every public function that works for a while: ``options``, or their parts.

    ``memory_limit`` is the largest amount of memory, such as "2GB", and ``threads`` the number of the engine's threads.
    ``progress`` shows a bar on stderr for work of more than a second. ``connection`` is an open connection to DuckDB or
    a session of Spark, through which its databases are reached.
    """

    options: Options | None
    memory_limit: str | None
    threads: int | None
    progress: bool
    connection: object | None


RUNNING = tuple(RunKeywords.__annotations__)


def is_spark_session(connection: object) -> bool:
    """Return whether a caller's connection is a session of pyspark."""
    return type(connection).__module__.startswith("pyspark.sql.")


@contextmanager
def options_from(keywords: Mapping[str, Any], verb: str | Callable[..., Any]) -> Iterator[Options]:
    """Yield the options that the keywords of a public function state.

    Args:
        keywords: The keywords that were given.
        verb: The function, or its name, for messages.

    Raises:
        UsageError: A keyword is unknown or has a value that can't be used.
    """
    refuse_unknown_keywords(keywords, RUNNING, verb)
    options = keywords.get("options") or Options()
    limit, threads = keywords.get("memory_limit"), keywords.get("threads")
    if not isinstance(options, Options):
        raise UsageError(f"options: {type(options).__name__} is not a privsql.Options")
    if is_spark_session(keywords.get("connection")):
        options = replace(options, session=keywords.get("connection"))
    if limit is not None:
        options = replace(options, memory_limit=str(limit))
    if threads is not None:
        options = replace(options, threads=as_whole_number(threads, "threads", most=1024))
    if not keywords.get("progress"):
        yield options
        return
    with open_reporter(enabled=True) as report:
        yield replace(options, report=report)


class PartReporter(Reporter):
    """Report the steps of one part of a larger task, with the name of the part before their titles."""

    def __init__(self, whole: Reporter, name: str) -> None:
        self._whole, self._name, self.watched = whole, name, whole.watched

    def start_step(self, title: str) -> None:
        self._whole.start_step(f"{self._name}: {title}")

    def update(self, percent: float) -> None:
        self._whole.update(percent)

    def update_statement(self, percent: float) -> None:
        self._whole.update_statement(percent)


class TraceReporter(Reporter):
    """Record the statements that run, and pass steps on to another reporter."""

    traces = True

    def __init__(self, shown: Reporter) -> None:
        self._shown, self._step, self.watched = shown, "", shown.watched
        self.statements: list[TracedStatement] = []

    def start_step(self, title: str) -> None:
        self._step = title
        self._shown.start_step(title)

    def update(self, percent: float) -> None:
        self._shown.update(percent)

    def update_statement(self, percent: float) -> None:
        self._shown.update_statement(percent)

    def note_statement(self, statement: TracedStatement) -> None:
        self.statements.append(replace(statement, step=self._step))


class BarReporter(Reporter):
    """Show the current step as a progress bar."""

    watched = True

    def __init__(self, progress: Progress) -> None:
        self._progress, self._counted = progress, False

    def start_step(self, title: str) -> None:
        self._progress.reset(self._progress.tasks[0].id, total=None, description=title)
        self._counted = False
        self.update_statement(-1)

    def update(self, percent: float) -> None:
        self._counted = True
        self._move_bar(percent)

    def update_statement(self, percent: float) -> None:
        self._move_bar(None if self._counted or percent < 0 else percent)

    def _move_bar(self, percent: float | None) -> None:
        if percent is not None:
            self._progress.update(self._progress.tasks[0].id, total=100, completed=percent)


def report_steps(report: Reporter, items: Iterable[Item], number: int) -> Iterator[Item]:
    """Yield the ``number`` items, and report how many of them are finished."""
    report.update(0)
    for done, item in enumerate(items):
        yield item
        report.update(100 * (done + 1) / number)


@contextmanager
def open_reporter(*, enabled: bool | None = None) -> Iterator[Reporter]:
    """Yield a progress bar on stderr, or a reporter that shows nothing.

    ``enabled`` says whether to use the bar; if it is None, the bar is used where stderr is a terminal. The bar appears
    after ``PATIENCE`` seconds.
    """
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = TimeRemainingColumn(), TextColumn("left")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), *left)
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task("Starting", total=None)
    showing = Timer(PATIENCE, progress.start)
    showing.daemon = True
    showing.start()
    try:
        yield BarReporter(progress)
    finally:
        showing.cancel()
        showing.join()
        progress.stop()
