"""Define what every engine provides to the rest of privsql, and how a command's progress is reported.

Other packages use engines only through the protocols of this module; ``privsql.engine.open`` opens their sessions.

Queries go in as sqlglot trees, or as text if a publisher wrote them. Tables go in and come back as Arrow, rows come
back as tuples of Python values. Columns are ``Field`` objects with the type names of
``privsql.engine.sqlfiles.SCALAR``. Errors are those of ``privsql.errors``.

The main protocols:

* ``Relations``: a session's tables and views, with which mechanisms, answers and attacks work on every engine
* ``OrderedRelations``: the same in DuckDB, where stored rows have numbers (a fast way to join buckets to records)
* ``Warehouse``: the publisher's source, and the tables and views that are made from it
* ``Container``: attached database files, such as releases and ledgers, which are always DuckDB's
* ``EngineSession``: all of these in one session, in which a command works
* ``LockedSession``: a session for files that other people made
* ``Sink``: a database that takes releases as schemas
* ``ReleaseDatabase``: a sink without a file of its own, such as a server, Spark's catalog, or a connection of the
  caller

Methods are described here. The classes that implement them describe only what differs.
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

FRAME = "frame"  # the kind of a source that is a table in memory
HERE, SPARK, POSTGRES = "duckdb", "spark", "postgres"
SERVERS = (POSTGRES, "mysql", "ducklake")  # kinds of sources that have an address
ONE_MACHINE = 300_000_000  # records that one machine sorts in memory: 24 bytes for each (``packing.PACKED``) are 7.2 GB


@dataclass(frozen=True)
class EngineTraits:
    """What other packages need to know about the engine that holds a source.

    Attributes:
        title: The engine's name in messages.
        dialect: The name of its SQL dialect in sqlglot.
        own_schema: The schema that is meant by a table name without a schema, such as "public" in Postgres.
        counts: Whether that engine runs the queries that count the source's records. If not, DuckDB reads the records
            and counts them.
        assigns: Whether that engine also assigns buckets to records, without using the order of rows. It then also
            writes the tables of a release.
        schemes: The schemes of addresses that lead to it, such as "postgresql" in postgresql://host.
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
}  # by the kind of source; DuckDB reads all other kinds


@dataclass(frozen=True)
class Scan:
    """Files that are read as one table.

    Attributes:
        files: Paths, patterns such as ``*.csv``, folders or addresses.
        by_name: Whether files may lack columns of other files; the missing values are then NULL.
        partitioned: Whether a folder such as ``year=2020`` adds a column ``year`` to its files.
        options: Options of CSV files, under the names that DuckDB gives them.
    """

    files: tuple[str, ...] = field(repr=False)
    by_name: bool = False
    partitioned: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a publisher's records lie, and how to read them.

    Attributes:
        kind: "duckdb", "parquet", "csv", "frame" for a table in memory, or the engine that holds the records.
        path: The database file, or the file that an engine other than DuckDB reads.
        relation: The name of the table or view in a database.
        query: The publisher's SELECT in place of a table or view. It calls the records of files and frames ``source``.
        address: The address of a server; None if the records lie on this machine.
        scan: The files; None if the records do not lie in files.
        data: A table in memory, or a DataFrame of Spark.
        texts: Columns whose texts stand for values of other types, such as "1" for 1. Their names have letters in one
            case (``fold_name``).
        opened: The database that the caller has open; None if privsql opens it.
        types: A function that returns the types that the specification determines, by the column's name in one case
            (``fold_name``). None if the records may decide the types.
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
    """A view of a release: its name, its SELECT, and the comment that a database stores with it."""

    name: str
    query: exp.Query
    comment: str


@dataclass(frozen=True)
class IntervalFunctions:
    """The SQL functions n, low and high of a release, with which its readers estimate counts.

    ``n`` estimates how many source records satisfy a condition; ``low`` and ``high`` are the ends of a 95 % interval.
    They aggregate the rows of the release's view NAME_weighted that meet the condition. Each row has a weight and a
    variance. privsql defines the functions for readers and never calls them itself.

    Attributes:
        records: The number of records N of a release in buckets. The errors of all N records add up to a
            constant. So a count of n rows with one value has only the share 1 - n/N of their summed variances. None if
            the errors of records are independent.
        skew: By how much the variance of a count grows with each record that it counts (sql/clients/interval.sql). It
            is 0 for buckets.
    """

    records: int | None = None
    skew: float = 0.0


# The interval functions and their parameters.
FUNCTIONS = {"n": ("weight",), "low": ("weight", "variance"), "high": ("weight", "variance")}
Definition = ViewDefinition | IntervalFunctions  # what a release stores in addition to its tables


class Relations(Protocol):
    """Tables and views of a session, which are made from queries or Arrow data and can be read by name."""

    keeps_order: bool
    """True if the rows of a relation that is made have the order of its query."""

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Store the result of a query as a table.

        If ``keeps_order`` is true, the rows keep the order of the query.

        Args:
            name: The name of the table.
            query: The query.
            into: The attached database; None makes a temporary table.
            title: The name of this step in the progress bar; empty if it is not a step of its own.
        """

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a view in the attached database ``into``; None makes a temporary view."""

    def register_arrow(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make Arrow data readable under ``name``; a stream can be read only once."""

    def create_from_sql(self, name: str, query: str) -> None:
        """Run a publisher's SELECT in the source's database, and store the result as a temporary table."""

    def drop(self, *names: str) -> None:
        """Remove temporary tables and views."""

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and return all of its rows; ``values`` are the query's parameters by name."""

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and return an Arrow table; ``values`` are the query's parameters by name."""

    def stream_batches(self, query: exp.Expr, rows: int) -> AbstractContextManager[pa.RecordBatchReader]:
        """Run a query and yield a stream of its rows in order, in batches of ``rows`` rows.

        Until the stream is closed, only sessions from ``open_sibling`` can run other queries.
        """

    def open_sibling(self) -> AbstractContextManager[Relations]:
        """Open another session with the same attached databases and its own temporary tables and views.

        It can run queries while this session is reading a stream.
        """

    def list_fields(self, source: exp.Expr) -> list[Field]:
        """Return the columns of a table or query."""

    def reserve_memory(self, size: int, what: str) -> None:
        """Lower the engine's memory limit to leave ``size`` bytes for arrays outside the engine.

        Nothing happens if the engine does not share this process's memory.

        Raises:
            EngineError: Too little memory would be left for the engine. The message names the arrays by ``what``.
        """

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return an SQL expression for a 63-bit hash of a list of texts, which depends on their order.

        Every engine, and every version of it, computes the same hash. The ledger stores such hashes of records, which
        must be found again years later.
        """

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """Return an SQL expression for the first 60 bits of the SHA-256 of the joined texts, as an integer.

        Every engine computes the same number. If one of the texts is secret, the numbers serve as random draws that
        only its owner can repeat, such as the order of records.
        """


class OrderedRelations(Relations, Protocol):
    """Relations of an engine that keeps the order in which rows were stored, and can number them."""

    def row_number(self, table: str) -> exp.Expr:
        """Return an SQL expression for a row's number (0, 1, ..) in ``table``, which this session must have created."""

    def with_bid_and_code(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """Return the query that adds a bucket id and the code of a sensitive value to every record.

        Args:
            records: A table that this session created.
            positions: A table of (pos, bid, code), where ``pos`` is the number of the record's row.
        """

    def with_bid(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """Return the query that adds a bucket id to every record.

        Args:
            records: A table that this session created.
            positions: A table of (pos, bid), where ``pos`` is the number of the record's row.
        """


def require_ordered(db: Relations) -> OrderedRelations:
    """Return the same session, if its engine numbers rows.

    Raises:
        EngineError: The engine does not keep the order of rows.
    """
    if not db.keeps_order:
        raise EngineError(
            "this engine does not number rows; publish with release.order = 'portable' and without source.id"
        )
    return cast("OrderedRelations", db)


class Warehouse(Relations, Protocol):
    """A session that reads the publisher's source, and holds tables and views that are made from it."""

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's records readable as the table ``name``."""

    def list_collations(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Return the collations of those ``columns`` that have one, by the column's name.

        By a collation, different texts may be equal in the source; a release compares plain text.
        """

    def publish_as(self, name: str, query: exp.Expr) -> None:
        """Create a view ``name`` of the records, which SELECTs that the publisher wrote (``run_select``) can read."""

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a SELECT that the publisher wrote, such as one whose true answer is wanted, and return all its rows."""


class TextWarehouse(Warehouse, Protocol):
    """A warehouse (a session that reads the publisher's source) that can read CSV files with all columns as text."""

    def mount_texts(self, name: str, origin: Origin) -> None:
        """Make the publisher's CSV files readable as the table ``name``, with every column as text.

        ``init`` looks at the texts for values that DuckDB may read wrongly, such as codes with a leading zero.
        """


class DetachedWarehouse(Warehouse, Protocol):
    """A warehouse whose engine, such as Spark, can't attach the DuckDB file in which a release is made.

    It writes the tables of the release elsewhere: ``set_release_folder`` chooses a folder of Parquet files,
    ``set_release_stage`` a private schema of the engine.
    """

    def set_release_folder(self, folder: Path) -> None:
        """Choose a folder for the release: each table of it that is made later becomes a subfolder of Parquet files.

        These are the tables that ``create_table`` makes in database ``release``.
        """

    def set_release_stage(self, stage: Stage) -> None:
        """Choose a private schema of the same engine for the tables of the release that are made later.

        These are the tables that ``create_table`` makes in database ``release``.
        """

    def require_unchanged(self) -> None:
        """Check that the source's files are as they were when they were mounted.

        Raises:
            GuaranteeError: A file has changed.
        """

    def write_parquet_files(self, origin: Origin) -> list[Path]:
        """Write a source as Parquet files on this machine, from which DuckDB can read it, and return their paths.

        Raises:
            EngineError: The source has more than ``ONE_MACHINE`` records.
        """


class Container(OrderedRelations, Protocol):
    """A session of DuckDB with attached database files: releases, ledgers and caches."""

    def attach(self, path: Path, name: str, *, read_only: bool, strange: bool = False) -> None:
        """Attach a database file; it is created if it does not exist and may be written.

        Args:
            path: The file.
            name: The name by which queries call the database.
            read_only: Whether nothing may be written to the file.
            strange: Whether somebody else made the file. Its statistics may then be wrong, and queries do not use them.
        """

    def distrust_statistics(self) -> None:
        """Run later queries without the column statistics that files state, because these may be wrong."""

    def create_database(self, name: str) -> None:
        """Attach a new, empty database in memory as ``name``."""

    def detach(self, name: str) -> None:
        """Write all changes of the database ``name`` to its file, and detach it."""

    def find_leftovers(self, name: str) -> list[str]:
        """Find data in an attached file that belongs to no row of its tables, such as deleted rows.

        A release file must have none, as they could be values that nobody meant to publish.

        Returns:
            A line of text for each finding.
        """

    def attached_name(self, path: Path) -> str | None:
        """Return the name of the database that a file is attached as; None if it is not attached."""

    def list_objects(self, database: str, schema: str | None = None) -> list[tuple[str, str, str]]:
        """Return all tables, views, functions, comments and so on in an attached database, or in one of its schemas.

        Returns:
            A sorted list of (kind, name, definition). Without ``schema``, names in other schemas than the first one
            begin with the schema.
        """

    def find_schema(self, database: str, name: str) -> str | None:
        """Return the schema of an attached database that DuckDB finds under ``name``, whatever its case.

        Returns:
            The name as the database spells it; None if there is no such schema.
        """

    def require_schema(self, database: str, name: str, having: str | None = None) -> str:
        """Return the schema that DuckDB finds under ``name``, spelled as in the database.

        Args:
            database: The attached database.
            name: The schema, in any case.
            having: A table that must be in the schema; None for no such demand.

        Raises:
            UsageError: There is no such schema, or the table is missing.
        """

    def create_schema(self, name: str, *, into: str) -> None:
        """Create a schema in an attached database, unless it exists."""

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view.

        Args:
            name: The name of the view.
            query: The query.
            into: The attached database; None makes a temporary view.
            schema: The schema in that database; None for its first schema.
        """

    def define_objects(self, definitions: Sequence[Definition], *, into: str, schema: str | None = None) -> None:
        """Create views with their comments, and SQL functions, in an attached database.

        Args:
            definitions: The views and functions.
            into: The database.
            schema: The schema in it; None for its first schema.
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
        """Copy tables into a schema and define views and functions in it, before the block of a ``with`` runs.

        The block can check the copy. Everything is one transaction: if the block raises an error, the schema stays as
        it was.

        Args:
            database: The database to copy from.
            tables: The tables to copy.
            definitions: The views and functions to define.
            into: The database to copy to.
            schema: The schema to copy to.
            former: The objects (kind, name) of an earlier release, which are dropped first.

        Raises:
            UsageError: The schema holds an object that ``former`` does not list.
        """

    def list_relations(self, database: str) -> list[tuple[str, str, str, str]]:
        """Return the tables and views of an attached database.

        Returns:
            A list of (kind, schema, name, definition), ordered by schema and name.
        """

    def append_rows(self, name: str, query: exp.Expr, *, into: str) -> None:
        """Append the rows of a query to the table ``name`` in the attached database ``into``."""

    def define_table(self, name: str, columns: Sequence[Field], *, into: str, schema: str | None = None) -> None:
        """Create an empty table in the attached database ``into``; ``schema`` None means its first schema."""

    def scan_files(self, paths: Sequence[Path], kind: str) -> exp.Select:
        """Return a query that reads Parquet or CSV files with equal columns, one file after another.

        Args:
            paths: The files.
            kind: "parquet" or "csv".
        """

    def list_statistics(self, paths: Sequence[Path]) -> list[tuple[str | None, str]]:
        """Return the texts in the footers of Parquet files that state statistics, such as the least value of a column.

        Statistics could name values that no row has, and a check of releases looks for these.

        Returns:
            A list of (column, text) for bounds of text columns, and of (None, text) for all other statistics.
        """

    def export_parquet(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, with its rows in the order in which they are stored."""

    def in_transaction(self) -> AbstractContextManager[None]:
        """Run the block in a transaction of one database; if it raises an error, none of its changes are made."""

    def engine_version(self) -> str:
        """Return the version of DuckDB, which writes the database files."""


class Sink(Protocol):
    """A database that takes releases as schemas.

    Each release is written in one transaction, with its manifest last, or not at all.
    """

    def open_for_writing(self) -> AbstractContextManager[tuple[Container, str]]:
        """Yield a session, and the name as which the database is attached in it."""


class ReleaseDatabase(Sink, Protocol):
    """A database that holds releases as schemas and can't be attached as a file.

    It may be a server, Spark's catalog, or a database that the caller has open. Uncommitted rows and temporary tables
    of the caller are not visible.

    Attributes:
        file: The file of a database that the caller has open; None for a database in memory or on a server.
        label: The name of the database in messages.
        counts: Whether its engine can check and query releases without copying their rows (``CountingDatabase``).
    """

    file: Path | None
    label: str
    counts: bool

    def renew(self) -> Self:
        """Return the same database without its earlier copies, so that its schemas are copied again."""

    def copy_schema(self, name: str, having: str, read: ReadContents) -> tuple[Path, list[tuple[str, str, str]]]:
        """Copy the release in a schema into a local file; later calls return the same copy.

        The file is removed together with this object.

        Args:
            name: The schema.
            having: The table with the manifest, which the schema must have.
            read: Called once the manifest's table is copied. It returns what else to copy: the tables and views that
                the manifest states.

        Returns:
            The file, and all objects of the schema as (kind, name, definition).

        Raises:
            UsageError: There is no such schema or table.
        """


class Stage(Relations, Protocol):
    """A private schema in which the tables of a release are made and checked before they are published.

    Queries call the schema ``release``.
    """

    def commit(self, definitions: Sequence[Definition], former: Sequence[tuple[str, str]]) -> None:
        """Publish the tables of the stage, with these views, in the target schema in place of an earlier release.

        The manifest's table is published last. If something fails before, the target schema holds the former release or
        nothing that opens as a release.

        Args:
            definitions: The views and functions of the release.
            former: The objects (kind, name) of the earlier release.

        Raises:
            UsageError: The target holds other objects.
        """


class CountingDatabase(ReleaseDatabase, Protocol):
    """A database whose engine makes releases, and checks and queries them, without copying their rows."""

    def without_rows(self) -> Self:
        """Return the same database, whose copies of schemas have rows in the manifest's table only.

        They show what a large release states, while the database itself counts the rows.
        """

    def open_tables(self, schema: str) -> AbstractContextManager[tuple[Relations, list[str]]]:
        """Yield a session that reads the release in a schema, and the names of the release's tables.

        Queries call the schema ``release``.
        """

    def open_stage(self, schema: str, last: str, owner: Path) -> AbstractContextManager[Stage]:
        """Yield a stage (a private schema) in which a release can be made before it is published in ``schema``.

        Args:
            schema: The schema that is to hold the release.
            last: The table that is published last and makes the schema a release.
            owner: A folder that exists as long as this process, so that other processes see whether it still runs.

        Raises:
            UsageError: Another process is publishing into the schema.
        """

    def sweep_stage(self, schema: str, last: str) -> None:
        """Remove the tables that a process left behind when it was killed while publishing into a schema.

        Args:
            schema: The schema.
            last: The table that is published last and makes the schema a release.

        Raises:
            UsageError: Another process is still publishing into the schema.
        """

    def is_large(self, schema: str) -> bool:
        """Return whether a table of the release is too large to be copied for a few questions."""


class EngineSession(Warehouse, Container, Protocol):
    """A session in which one command works; leaving it as a context manager removes all temporary tables and views."""

    def let_go(self) -> None:
        """Detach the publisher's database file, once nothing is read from it any more; tables made from it stay."""

    def close(self) -> None:
        """End the session."""

    def __enter__(self) -> Self:
        """Return the session."""

    def __exit__(self, *_: object) -> None:
        """Close the session."""


class LockedSession(Container, Protocol):
    """A session for files that other people made, which are attached read-only.

    It can read nothing else and can't change any setting. A table without a database name belongs to the home database,
    which is chosen when the session is opened.
    """

    def describe_select(self, sql: str) -> list[Field]:
        """Return the columns that the result of an analyst's SELECT has, without running it.

        Raises:
            UsageError: The text is not exactly one SELECT, or the engine refuses it.
        """

    def parse_select(self, sql: str) -> dict[str, Any]:
        """Return the engine's own syntax tree of an analyst's SELECT, as a JSON object.

        privsql examines and changes the tree before the query may run.

        Raises:
            UsageError: The text is not exactly one SELECT.
        """

    def write_select(self, tree: dict[str, Any]) -> str:
        """Return the SQL text of a syntax tree that ``parse_select`` returned, with any changes made to it."""

    def list_functions(self) -> Sequence[tuple[str, str, str, str, str]]:
        """Return the engine's functions, including those that the attached files define.

        privsql looks up the functions that an analyst's SELECT calls, to decide whether it may run the SELECT.

        Returns:
            A list of (name, kind, stability, returned type, syntax tree of a macro's body).
        """

    def run_select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT; the caller must have examined its text, which may come from a stranger."""

    def stand_in(self, names: Sequence[str], query: exp.Expr) -> None:
        """Let the analyst's later SELECTs read a query's rows where they name a table.

        Args:
            names: The table as [table], [schema, table] or [database, schema, table].
            query: The query that is read in its place.
        """

    def limit_time(self, seconds: float | None = None, stop: Event | None = None) -> AbstractContextManager[None]:
        """Stop the statements of the block if they take too long, or once ``stop`` is set.

        Args:
            seconds: The limit; None for the default limit, since a view that somebody else wrote might never end.
            stop: An event that another thread sets to stop the statements.

        Raises:
            LateError: The statements were stopped.
        """


Item = TypeVar("Item")
PATIENCE = 1.0  # seconds before a bar appears
READING, COMPARING = "Reading the source", "Comparing with earlier releases"  # steps of several verbs


class Reporter:
    """Receives the steps of a command and their progress; this base class ignores them.

    ``watched`` tells whether anybody sees the progress, ``traces`` whether every SQL statement is recorded.
    """

    watched = False
    traces = False

    def start_step(self, title: str) -> None:
        """Report that the next step begins; its progress is zero."""

    def update(self, percent: float) -> None:
        """Report that the step is ``percent`` done.

        From then on, ``update_statement`` has no effect until the next step begins.
        """

    def update_statement(self, percent: float) -> None:
        """Report that the step's running SQL statement is ``percent`` done; a negative number means unknown."""

    def note_statement(self, statement: TracedStatement) -> None:
        """Record an SQL statement that has run."""


@dataclass(frozen=True)
class TracedStatement(JsonObject):
    """An SQL statement that an engine has run.

    Attributes:
        step: The step of the command, such as "Reading the source".
        relation: The table or view that the statement made; empty if its rows were read.
        file: The file of ``sql/`` that holds the statement; empty if there is none.
        rows: The number of rows that it stored or returned; None for a view or a stream.
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
    """Settings of how a command runs, which do not change its result.

    Attributes:
        memory_limit: The largest amount of memory that the engine uses, such as "2GB"; None for the engine's default.
        threads: The number of the engine's threads; None for the engine's default.
        report: Receives the progress of the command.
        session: An open session of Spark to use; None starts a new one if Spark is needed.
    """

    memory_limit: str | None = None
    threads: int | None = None
    report: Reporter = SILENT
    session: object | None = None

    def engine_settings(self, spill: Path) -> dict[str, str]:
        """Return DuckDB's settings for these options.

        Args:
            spill: The folder to which DuckDB writes what does not fit into memory.
        """
        chosen = {"temp_directory": spill, "memory_limit": self.memory_limit, "threads": self.threads}
        return {name: str(value) for name, value in chosen.items() if value}


class RunKeywords(TypedDict, total=False):
    """The keywords of public functions that say how they run: an ``Options`` object, or single settings.

    Attributes:
        options: The settings as one object; the other keywords override its values.
        memory_limit: The largest amount of memory that the engine uses, such as "2GB".
        threads: The number of the engine's threads.
        progress: Whether work of more than a second shows a bar on stderr.
        connection: An open connection to DuckDB or a session of Spark, through which its databases are reached.
    """

    options: Options | None
    memory_limit: str | None
    threads: int | None
    progress: bool
    connection: object | None


RUNNING = tuple(RunKeywords.__annotations__)


def is_spark_session(connection: object) -> bool:
    """Return whether an object is a session of pyspark."""
    return type(connection).__module__.startswith("pyspark.sql.")


@contextmanager
def options_from(keywords: Mapping[str, Any], verb: str | Callable[..., Any]) -> Iterator[Options]:
    """Yield the options that a caller gave to a public function as keywords.

    Args:
        keywords: The keywords: ``options``, or single settings such as ``threads`` (``RunKeywords``).
        verb: The public function, or its name, for error messages.

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
    """Reports the steps of one part of a larger task, with the part's name before each title."""

    def __init__(self, whole: Reporter, name: str) -> None:
        self._whole, self._name, self.watched = whole, name, whole.watched

    def start_step(self, title: str) -> None:
        self._whole.start_step(f"{self._name}: {title}")

    def update(self, percent: float) -> None:
        self._whole.update(percent)

    def update_statement(self, percent: float) -> None:
        self._whole.update_statement(percent)


class TraceReporter(Reporter):
    """Records the SQL statements that run, and passes the steps on to another reporter."""

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
    """Shows the current step as a progress bar."""

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
    """Yield the items, and report after each one how much of their ``number`` is finished."""
    report.update(0)
    for done, item in enumerate(items):
        yield item
        report.update(100 * (done + 1) / number)


@contextmanager
def open_reporter(*, enabled: bool | None = None) -> Iterator[Reporter]:
    """Yield a reporter that shows a progress bar on stderr, or one that shows nothing.

    Args:
        enabled: Whether to show the bar. None shows it if stderr is a terminal. It appears after ``PATIENCE`` seconds.
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
