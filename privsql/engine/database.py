"""The protocols of engines: all that other rooms may call. ``privsql.engine.open`` opens sessions.

Nothing of an engine's own crosses this border: queries go in as sqlglot trees (or, of a publisher's own, as text),
tables as Arrow, files as paths; rows come back as tuples of Python's own values, tables as Arrow, columns as ``Field``
with the type names of ``privsql.engine.roles.SCALAR``, errors as those of ``privsql.errors``.

Three of the protocols, because three things can lie in different places:

* ``Relations``  what every step of a mechanism, an answer or an attack works with, on every engine;
* ``Warehouse``  the publisher's source as well;
* ``Container``  the files that releases and ledgers are, which are always DuckDB's.

``OrderedRelations`` are those of DuckDB, whose rows have numbers: its fast order of records needs them.

``EngineSession`` is all three over one session: where a verb works. ``LockedSession`` is for files that others made.

Members are described here; the classes that provide them add only what differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from threading import Event
    from typing import Self

    import pyarrow as pa
    from sqlglot import exp

    from privsql.engine.roles import Field

    FindTypes = Callable[["Relations"], Mapping[str, str | None]]
    """The type of each column by its folded name; None: that which all of its values have."""

FRAME = "frame"  # the kind of what lies in memory


@dataclass(frozen=True)
class Scan:
    """Files that are read as one table: their names, patterns, folders or addresses, and how.

    ``by_name``: columns that some of them lack are NULL there; ``partitioned``: folders called column=value are
    columns; ``options``: of CSV, by DuckDB's names.
    """

    files: tuple[str, ...] = field(repr=False)
    by_name: bool = False
    partitioned: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Origin:
    """Where a publisher's records lie.

    ``kind``: duckdb, parquet, csv, frame, or the engine that holds them; ``path``: the database, or what an engine
    beside DuckDB reads; ``relation``: a table or view; ``query``: a SELECT in its place, which calls files ``source``;
    ``address``: of an engine elsewhere, None for one of this machine's own; ``scan``: the files, if it is no database;
    ``data``: the rows of what lies in memory, which a query calls ``source`` as well; ``types``: where no record may
    decide the type of a column, finds by folded name those that the specification determines.
    """

    kind: str
    path: Path | None = None
    relation: str | None = None
    query: str | None = None
    address: str | None = field(default=None, repr=False)
    scan: Scan | None = None
    data: pa.Table | None = field(default=None, repr=False, compare=False)
    types: FindTypes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class ViewDefinition:
    """A view of a release, with the comment that a database stores beside it."""

    name: str
    query: exp.Query
    comment: str


class Relations(Protocol):
    """Named relations, made from trees of ``sql/`` or put from arrays, and read back."""

    keeps_order: bool
    """Whether the rows of a relation that is made keep the order of its query."""

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as table ``name``: temporary, or in the attached database ``into``.

        Its rows keep the order of the query where ``keeps_order``. ``title``: of the step, for the progress bar.
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
        raise EngineError("this engine does not number rows; publish with order = 'portable' and without source.id")
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


class DetachedWarehouse(Warehouse, Protocol):
    """A warehouse that no release can be attached to: the tables of one are written as files."""

    def set_release_folder(self, folder: Path) -> None:
        """Write each table of database ``release`` from now on as a folder of Parquet files in ``folder``."""

    def write_parquet_files(self, name: str) -> list[Path]:
        """Return the rows of a relation as Parquet files on this machine."""


class Container(OrderedRelations, Protocol):
    """Database files that are attached under a name: releases that grow, and what is kept between two runs."""

    def attach(self, path: Path, name: str, *, read_only: bool, strange: bool = False) -> None:
        """Attach a database file under ``name``; ``strange``: what it says of its own columns is not believed."""

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
        """Return all objects of an attached database: (kind, name, definition), sorted.

        ``schema``: what lies in that one alone, by names without it.
        """

    def list_schemas(self, database: str) -> list[str]:
        """Return the schemas of an attached database but its first, main."""

    def create_schema(self, name: str, *, into: str) -> None:
        """Create a schema in an attached database, if there is none of that name."""

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``, in its first schema or another."""

    def define_views(self, views: Sequence[ViewDefinition], *, into: str, schema: str | None = None) -> None:
        """Create views in an attached database, in its first schema or another, with their comments."""

    def replace_tables(
        self,
        database: str,
        place: tuple[str, str],
        tables: Sequence[str],
        views: Sequence[ViewDefinition],
        former: Sequence[tuple[str, str]] = (),
    ) -> AbstractContextManager[None]:
        """Copy tables of database ``database`` into ``place``, (database, schema), with views of them.

        ``former``: (kind, name) of what goes before. ``UsageError`` if there is anything else. All of it happens if
        nothing is raised inside, and else nothing.
        """

    def list_relations(self, database: str) -> list[tuple[str, str, str, str]]:
        """Return tables and views of an attached database: (kind, schema, name, definition), by schema and name."""

    def append_rows(self, name: str, query: exp.Expr, *, into: str) -> None:
        """Add the rows of a query to a table of the attached database ``into``."""

    def define_table(self, name: str, columns: Sequence[Field], *, into: str, schema: str | None = None) -> None:
        """Create an empty table in an attached database."""

    def scan_files(self, paths: Sequence[Path], kind: str) -> exp.Select:
        """Return the rows of Parquet or CSV files with the same columns, one after the other."""

    def export_parquet(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, rows in order."""

    def in_transaction(self) -> AbstractContextManager[None]:
        """Make all changes inside in one database, or none of them."""

    def engine_version(self) -> str:
        """Return the version of what writes the file."""


class EngineSession(Warehouse, Container, Protocol):
    """A session for the time of a verb; a context manager that forgets all that is temporary."""

    def let_go(self) -> None:
        """Close the publisher's database file; what was made of it here stays."""

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

    def stand_in(self, names: Sequence[str], query: exp.Expr) -> None:
        """Let ``describe_select`` find a query under a name of an analyst's: [[database,] schema,] table."""

    def limit_time(self, seconds: float | None = None, stop: Event | None = None) -> AbstractContextManager[None]:
        """Raise ``LateError`` for what takes too long inside, or once ``stop`` is set.

        Without ``seconds`` what is enough for a view of somebody else's, which may never end.
        """
