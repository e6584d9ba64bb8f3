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
    """The functions n, low and high of a release, by which readers count rows of its weighted view; privsql calls none.

    Attributes:
        records: All records of the release, where those of a question are drawn from them without replacement. None
            where the errors of records are independent of each other.
        skew: By how much the variance of a count grows with each record that it counts (sql/clients/interval.sql).
    """

    records: int | None = None
    skew: float = 0.0


FUNCTIONS = {"n": ("weight",), "low": ("weight", "variance"), "high": ("weight", "variance")}  # with their parameters
Definition = ViewDefinition | IntervalFunctions  # what a release stores beside its tables


class Relations(Protocol):
    """Named relations, made from trees of ``sql/`` or put from arrays, and read back."""

    keeps_order: bool
    """True if the rows of a relation that is made have the order of its query."""

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as table ``name``: temporary, or in the attached database ``into``.

        The rows keep the order of the query if ``keeps_order``. ``title`` names the step for the progress bar.
        """

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``."""

    def register_arrow(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable (a stream: once) under ``name``."""

    def create_from_sql(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, which reads the mounted source's neighbours, as ``name``."""

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""

    def stream_batches(self, query: exp.Expr, rows: int) -> AbstractContextManager[pa.RecordBatchReader]:
        """Yield the rows of a query in its order, so many at a time; only ``open_sibling`` works meanwhile."""

    def open_sibling(self) -> AbstractContextManager[Relations]:
        """Return a session with temporary relations of its own over the same attached databases."""

    def list_fields(self, source: exp.Expr) -> list[Field]:
        """Return columns of a table or query."""

    def reserve_memory(self, size: int, what: str) -> None:
        """Leave so many bytes of the memory limit to arrays beside the engine; ``EngineError`` for too many.

        Nothing where the engine does not share the process's memory.
        """

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return 63 bits that stand for these texts in their order, in every version and on any engine."""

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return the first 60 bits of SHA-256 of these texts side by side, as an integer: the same on any engine."""


class OrderedRelations(Relations, Protocol):
    """An engine that keeps stored rows in their order, and numbers them."""

    def row_number(self, table: str) -> exp.Expr:
        """Return the engine's number (0, 1, ..) of a row of ``table``, which was made here, in its order."""

    def with_bid_and_code(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """Return the rows of a table made here with ``bid`` and ``code`` from ``positions`` (pos, bid, code)."""

    def with_bid(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """Return the rows of a table made here with ``bid`` from ``positions`` (pos, bid)."""


def require_ordered(db: Relations) -> OrderedRelations:
    """Return the engine as one in which rows have numbers; ``EngineError`` for one in which they have none."""
    if not db.keeps_order:
        raise EngineError(
            "this engine does not number rows; publish with release.order = 'portable' and without source.id"
        )
    return cast("OrderedRelations", db)


class Warehouse(Relations, Protocol):
    """A publisher's source. Counts and records are made from it with ``create_table``, records in canonical order."""

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``."""

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Return the collation of each column of a relation that has one."""

    def publish_as(self, name: str, query: exp.Expr) -> None:
        """Make a query readable by ``run_select`` under a name of the publisher's."""

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT of the publisher's own, and fetch all rows."""


class TextWarehouse(Warehouse, Protocol):
    """A warehouse that reads CSV files."""

    def mount_texts(self, name: str, origin: Origin) -> None:
        """Make the values of CSV files readable as texts, as ``name``."""


class DetachedWarehouse(Warehouse, Protocol):
    """A warehouse that no release can be attached to: the tables of one are written as files."""

    def set_release_folder(self, folder: Path) -> None:
        """Write each table of database ``release`` from now on as a folder of Parquet files in ``folder``."""

    def set_release_stage(self, stage: Stage) -> None:
        """Write each table of database ``release`` from now on into a stage of the same engine."""

    def require_unchanged(self) -> None:
        """Raise ``GuaranteeError`` if files of the source are no longer those that were mounted."""

    def write_parquet_files(self, origin: Origin) -> list[Path]:
        """Return a source as Parquet files on this machine; ``EngineError`` for more than ``ONE_MACHINE`` records."""


class Container(OrderedRelations, Protocol):
    """Database files that are attached under a name: releases that grow, ledgers and caches."""

    def attach(self, path: Path, name: str, *, read_only: bool, strange: bool = False) -> None:
        """Attach a database file under ``name``; of a ``strange`` one the statistics of columns are not believed."""

    def distrust_statistics(self) -> None:
        """Plan no query by what files say of their columns."""

    def create_database(self, name: str) -> None:
        """Attach a new, empty database in memory under ``name``."""

    def detach(self, name: str) -> None:
        """Write everything to an attached file and let go of it."""

    def find_leftovers(self, name: str) -> list[str]:
        """Return a line for each part of an attached file that belongs to no row of its tables."""

    def attached_name(self, path: Path) -> str | None:
        """Return the name under which a file is attached, which can be once; None for one that is not."""

    def list_objects(self, database: str, schema: str | None = None) -> list[tuple[str, str, str]]:
        """Return all objects of an attached database or of one ``schema``: (kind, name, definition), sorted.

        The names of a schema's objects stand without the schema.
        """

    def find_schema(self, database: str, name: str) -> str | None:
        """Return the schema of an attached database that the engine takes ``name`` for; None if there is none."""

    def require_schema(self, database: str, name: str, having: str | None = None) -> str:
        """Return that schema; ``UsageError`` if there is none, or it has no table ``having``."""

    def create_schema(self, name: str, *, into: str) -> None:
        """Create a schema in an attached database, if there is none of that name."""

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``, in its first schema or another."""

    def define_objects(self, definitions: Sequence[Definition], *, into: str, schema: str | None = None) -> None:
        """Create views with their comments, and functions, in an attached database, in its first schema or another."""

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
        """Copy tables of database ``database`` into a schema, with views and functions, as a whole or not at all.

        Nothing of it happens if an error is raised inside.

        Args:
            database: The database to copy from.
            tables: The tables to copy.
            definitions: The views and functions to make there.
            into: The database to copy to.
            schema: The schema to copy to.
            former: The objects (kind, name) that are dropped first.

        Raises:
            UsageError: The schema holds any other object.
        """

    def list_relations(self, database: str) -> list[tuple[str, str, str, str]]:
        """Return tables and views of an attached database: (kind, schema, name, definition), by schema and name."""

    def append_rows(self, name: str, query: exp.Expr, *, into: str) -> None:
        """Add the rows of a query to a table of the attached database ``into``."""

    def define_table(self, name: str, columns: Sequence[Field], *, into: str, schema: str | None = None) -> None:
        """Create an empty table in an attached database."""

    def scan_files(self, paths: Sequence[Path], kind: str) -> exp.Select:
        """Return the rows of Parquet or CSV files with the same columns, one after the other."""

    def list_statistics(self, paths: Sequence[Path]) -> list[tuple[str | None, str]]:
        """Return (column, text) of each bound of texts in the footers of Parquet files, (None, text) of the rest."""

    def export_parquet(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, rows in order."""

    def in_transaction(self) -> AbstractContextManager[None]:
        """Make all changes inside in one database, or none of them."""

    def engine_version(self) -> str:
        """Return the version of the engine that writes the file."""


class Sink(Protocol):
    """A database that takes releases as schemas, each in one transaction, its manifest last, or not at all."""

    def open_for_writing(self) -> AbstractContextManager[tuple[Container, str]]:
        """Yield a session, and the name under which the database is attached to it."""


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
        """Return the database without the copies that were made of it."""

    def copy_schema(self, name: str, having: str, read: ReadContents) -> tuple[Path, list[tuple[str, str, str]]]:
        """Return a copy of the tables of a schema, made at the first call, and (kind, name, definition) of all objects.

        The file goes with this object.

        Args:
            name: The schema.
            having: A table that it must have.
            read: Reads the manifest in table ``having`` of the copy, which states the types and views of the copy.

        Raises:
            UsageError: There is no such schema or table.
        """


class Stage(Relations, Protocol):
    """A private schema in which the tables of a release are made and checked, as those of database ``release``."""

    def commit(self, definitions: Sequence[Definition], former: Sequence[tuple[str, str]]) -> None:
        """Let the tables and views become the release, the last table at last, in place of ``former``.

        A failure leaves nothing that opens as a release, or the old release.

        Raises:
            UsageError: The target holds anything else.
        """


class CountingDatabase(ReleaseDatabase, Protocol):
    """A database whose engine makes the tables of releases, and checks and counts them where they lie."""

    def without_rows(self) -> Self:
        """Return the database; its copies have rows in the manifest alone."""

    def open_tables(self, schema: str) -> AbstractContextManager[tuple[Relations, list[str]]]:
        """Yield the tables of a schema as those of database ``release``, and their names."""

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
        """Remove what a killed publication into a schema has left; ``UsageError`` while one is at work there."""

    def is_large(self, schema: str) -> bool:
        """Return whether a table has more rows than should be copied for a few questions."""


class EngineSession(Warehouse, Container, Protocol):
    """A session for the time of a verb; a context manager that forgets all that is temporary."""

    def let_go(self) -> None:
        """Close the publisher's database file; relations that were made of it stay."""

    def close(self) -> None:
        """End the session."""

    def __enter__(self) -> Self:
        """Return the session."""

    def __exit__(self, *_: object) -> None:
        """Close the session."""


class LockedSession(Container, Protocol):
    """Files that others made, attached read-only to a session that can reach nothing else and changes no setting.

    A tree's tables that name no database are those of the database that the session was opened for.
    """

    def describe_select(self, sql: str) -> list[Field]:
        """Return the columns of a text's result; ``UsageError`` unless it is one SELECT that the engine would run."""

    def parse_select(self, sql: str) -> dict[str, Any]:
        """Return the engine's own tree of a text; ``UsageError`` unless it is one SELECT."""

    def write_select(self, tree: dict[str, Any]) -> str:
        """Return the text of such a tree."""

    def list_functions(self) -> Sequence[tuple[str, str, str, str, str]]:
        """Return name, kind, stability, returned type and the tree of a macro's body of the engine's functions."""

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT that was examined before."""

    def stand_in(self, names: Sequence[str], query: exp.Expr) -> None:
        """Let an analyst's SQL find a query under a name: [[database,] schema,] table."""

    def limit_time(self, seconds: float | None = None, stop: Event | None = None) -> AbstractContextManager[None]:
        """Raise ``LateError`` if the statements inside take too long, or once ``stop`` is set.

        Args:
            seconds: The limit; None for the limit of a stranger's view, which may never end.
            stop: Set by another thread to end the statements.
        """


Item = TypeVar("Item")
PATIENCE = 1.0  # seconds before a bar appears
READING, COMPARING = "Reading the source", "Comparing with earlier releases"  # steps of several verbs


class Reporter:
    """Receives the titles of steps and how far they are. This one ignores them; ``watched`` tells whether one looks.

    ``traces`` tells whether it takes note of every statement.
    """

    watched = False
    traces = False

    def start_step(self, title: str) -> None:
        """Begin a step with a time of its own."""

    def update(self, percent: float) -> None:
        """Take note that the step is ``percent`` done, as counted; until the next step no statement moves it."""

    def update_statement(self, percent: float) -> None:
        """Take note that a statement of the step is ``percent`` done; negative if unknown."""

    def note_statement(self, statement: TracedStatement) -> None:
        """Take note of a statement that has run."""


@dataclass(frozen=True)
class TracedStatement(JsonObject):
    """A statement that an engine has run.

    Attributes:
        step: The step of the verb.
        relation: The table or view that it makes; empty where its rows are read.
        file: The file of ``sql/`` that it is made of; empty if it has none.
        rows: How many rows it made or read; None of a view, or of rows that are streamed.
        seconds: How long it took.
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
    """How a verb runs, not what it does. ``session``: one of Spark's, in place of one of privsql's own."""

    memory_limit: str | None = None
    threads: int | None = None
    report: Reporter = SILENT
    session: object | None = None

    def engine_settings(self, spill: Path) -> dict[str, str]:
        """Return them as settings of DuckDB, which spills to ``spill``."""
        chosen = {"temp_directory": spill, "memory_limit": self.memory_limit, "threads": self.threads}
        return {name: str(value) for name, value in chosen.items() if value}


class RunKeywords(TypedDict, total=False):
    """Keywords of every verb that works for a while: ``options``, or what they consist of.

    ``memory_limit``: how much memory may be taken, such as "2GB"; ``threads``: the engine's; ``progress``: a bar on
    stderr for whatever takes over a second; ``connection``: an open one of DuckDB's, or a session of Spark, through
    which its databases are reached.
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
    """Yield the options that the keywords of a verb say; ``UsageError`` for keywords that it does not have."""
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
    """Reports one of several parts of a piece of work, with its name before the titles of its steps."""

    def __init__(self, whole: Reporter, name: str) -> None:
        self._whole, self._name, self.watched = whole, name, whole.watched

    def start_step(self, title: str) -> None:
        self._whole.start_step(f"{self._name}: {title}")

    def update(self, percent: float) -> None:
        self._whole.update(percent)

    def update_statement(self, percent: float) -> None:
        self._whole.update_statement(percent)


class TraceReporter(Reporter):
    """Collects the statements that run, and hands steps on to another reporter."""

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
    """One rich progress bar that shows the current step."""

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
    """Yield ``number`` items, and report how many are finished."""
    report.update(0)
    for done, item in enumerate(items):
        yield item
        report.update(100 * (done + 1) / number)


@contextmanager
def open_reporter(*, enabled: bool | None = None) -> Iterator[Reporter]:
    """Yield a bar on stderr if that is a terminal (or ``enabled`` says so), else silence.

    It appears after ``PATIENCE`` seconds, whatever the verb does then.
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
