"""Check and query releases in Spark, and write releases to schemas of its catalog."""

from __future__ import annotations

import socket
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp

from privsql.engine.database import ONE_MACHINE, Definition, Options, ViewDefinition
from privsql.engine.duck.container import STAGE, CopiedSchemas, Objects, RemoteSchemas
from privsql.engine.files import temporary_folder
from privsql.engine.remote import BATCH
from privsql.engine.spark import (
    ENGINE,
    FETCHED,
    INSIDE,
    RELEASE,
    SPARK,
    WRITTEN,
    SparkRelations,
    as_spark_types,
    file_address,
    refuse_more,
    require_trusted_session,
    shares_files,
    start_session,
    translate_spark_errors,
    type_name,
)
from privsql.engine.sqlfiles import BY_PLACE, Field, all_rows, column, table
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


# Release --------------------------------------------------------------------------------------------------------------
# The tables of a release, read by Spark, for queries and checks that are too large for one machine.

# The file and the number of a row.
PLACES = {"privsql: file": "_metadata.file_name", "privsql: row": "_metadata.row_index"}


class SparkRelease(SparkRelations):
    """A session of Spark that reads the tables of a release, and can hold temporary tables as well.

    A table name without a database refers to the release. Rows have the order of the release's files and of the rows in
    each file. Views of a single table keep that order, and window functions may depend on it.
    """

    def __init__(self, session: SparkSession, tables: Mapping[str, DataFrame], spill: Path | None = None) -> None:
        """Use a session.

        Args:
            session: The session.
            tables: The rows of each table by its name, read from Parquet files.
            spill: A folder that the workers share. None keeps temporary tables in Spark's memory.
        """
        super().__init__(session, spill)
        self.tables: frozenset[str] = frozenset()
        self._placed: set[str] = set()  # relations whose rows keep their file and number
        with translate_spark_errors():
            for name, frame in tables.items():
                self._register_table(name, frame)

    def _register_table(self, name: str, frame: DataFrame) -> None:
        placed = frame.selectExpr("*", *(f"{value} AS `{called}`" for called, value in PLACES.items()))
        self._register_view(f"{INSIDE}{name}", placed, None)
        self._placed.add(f"{INSIDE}{name}")
        self.tables |= {name}

    def create_view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        self._refuse_database(name, into)
        read = list(query.find_all(exp.Table))
        plain = isinstance(query, exp.Select) and not any(map(query.args.get, ("group", "distinct", "joins")))
        placed = plain and len(read) == 1 and self._name_relation(read[0]) in self._placed
        if placed and isinstance(query, exp.Select) and not query.is_star:
            query = query.select(*map(column, PLACES))
        with translate_spark_errors():
            self._register_view(name, super()._frame(query), None)
        (self._placed.add if placed else self._placed.discard)(name)

    def _frame(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> DataFrame:
        ordered = query.copy()
        for window in ordered.find_all(exp.Window):
            if isinstance(window.this, BY_PLACE) and not window.args.get("order"):
                window.set("order", exp.Order(expressions=[exp.Ordered(this=column(name)) for name in PLACES]))
        return super()._frame(ordered, values).drop(*PLACES)


def open_spark_release(session: object, tables: Mapping[str, Sequence[Path]]) -> SparkRelease:
    """Return a session that reads the tables of a release from Parquet files, which its workers must see.

    Args:
        session: A session that the caller has open.
        tables: The Parquet files of each table, by the table's name.
    """
    there = require_trusted_session(session)
    with translate_spark_errors():
        frames = {name: there.read.parquet(*map(file_address, parts)) for name, parts in tables.items()}
    return SparkRelease(there, frames)


# Catalog --------------------------------------------------------------------------------------------------------------
# ``CountingDatabase`` of ``privsql.engine.database``: schemas of the session's catalog, with tables in Parquet.
#
# A catalog has no transactions. Tables are made and checked in a schema of their own, the stage; only one process can
# create it. They are then copied into the target under provisional names, compared with the checked tables, and
# renamed, the manifest last. A killed publication leaves its stage, by which the next one knows what to remove.

DRAFT, NEW = "privsql_draft_", "privsql_new_"  # prefixes of a stage, and of tables to be renamed
SWITCHING = "privsql_switching"  # a marker in a stage whose tables are being renamed
ENDING, OWNER = ".parquet", "_owner"  # a table's folder ends in it; a file that has a stage's comment
DETAILS = "# Detailed Table Information"
HIVE = "[transient_lastDdlTime="  # a property that each table of a Hive metastore has


class SparkSchemas(RemoteSchemas):
    """A session of DuckDB that copies releases from and to the schemas of Spark's catalog.

    Spark's schemas appear as those of database ``STAGE``.
    """

    def __init__(self, session: SparkSession, *, rows: bool = True) -> None:
        """Use a session of Spark.

        Args:
            session: The session.
            rows: Whether a local copy of a release has the rows of all its tables; otherwise only those of its
                manifest.
        """
        super().__init__()
        self.session, self._rows = session, rows

    def run_statement(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement in Spark's SQL and return its rows."""
        with translate_spark_errors():
            return [tuple(row) for row in self.session.sql(sql).collect()]

    def write_frame(self, schema: str, name: str, frame: DataFrame) -> DataFrame:
        """Write rows in order as a new table, and return the rows that the table then holds."""
        with translate_spark_errors():
            frame.write.format("parquet").options(**WRITTEN).saveAsTable(_write_name(schema, name))
        return self.read_table(schema, name)

    def read_table(self, schema: str, name: str) -> DataFrame:
        """Return the rows of a table."""
        with translate_spark_errors():
            return self.session.table(_write_name(schema, name))

    def name_stage(self, schema: str) -> str:
        """Return the name of the stage: the schema in which a release is made before it is published in ``schema``."""
        return f"{DRAFT}{schema}"

    def make_schema(self, schema: str, comment: str | None = None) -> None:
        """Create a schema. With a comment the schema must be new; without one it may exist already."""
        if comment is None:
            self.run_statement(f"CREATE SCHEMA IF NOT EXISTS {_write_name(schema)}")
        else:
            self.run_statement(f"CREATE SCHEMA {_write_name(schema)} COMMENT {_write_text(comment)}")

    def read_comment(self, schema: str) -> str:
        """Return the comment of a schema; empty if it has none."""
        return dict(self.run_statement(f"DESCRIBE SCHEMA EXTENDED {_write_name(schema)}")).get("Comment") or ""

    def mark_switch(self, schema: str) -> None:
        """Note in a stage (the schema in which a release is made) that its tables are now being published by renaming.

        If the process is killed, the next one reads the note to clean up. The note is an empty table, because a Hive
        metastore does not let a comment change.
        """
        self.run_statement(f"CREATE TABLE {_write_name(schema, SWITCHING)} (a INT) USING parquet")

    def has_switched(self, schema: str) -> bool:
        """Return whether ``mark_switch`` has noted in a stage that its tables are being published by renaming."""
        return SWITCHING in self.list_tables(schema)

    def drop_schema(self, schema: str) -> None:
        """Remove a schema with its tables."""
        self.run_statement(f"DROP SCHEMA {_write_name(schema)} CASCADE")

    def drop_object(self, schema: str, kind: str, name: str) -> None:
        """Remove a table or view."""
        self.run_statement(f"DROP {kind} {_write_name(schema, name)}")

    def rename_table(self, schema: str, before: str, after: str) -> None:
        """Give a table another name in its schema."""
        self.run_statement(f"ALTER TABLE {_write_name(schema, before)} RENAME TO {_write_name(schema, after)}")

    def make_view(self, schema: str, view: ViewDefinition) -> None:
        """Create a view with its comment."""
        defined = f"COMMENT {_write_text(view.comment)} AS {ENGINE.write_view(view, schema)}"
        self.run_statement(f"CREATE VIEW {_write_name(schema, view.name)} {defined}")

    def name_schemas(self) -> list[str]:
        return [name.strip("`") for (name,) in self.run_statement("SHOW SCHEMAS")]  # Spark quotes names such as `1a`

    def describe_schema(self, schema: str) -> Objects:
        functions = self.run_statement(f"SHOW USER FUNCTIONS IN {_write_name(schema)}")
        described = [one for name in self.list_tables(schema) for one in self._describe_table(schema, name)]
        return [*(("user function", name, "") for (name,) in functions), *described]

    def list_tables(self, schema: str) -> list[str]:
        """Return the names of the tables and views in a schema, without temporary ones."""
        listed = self.run_statement(f"SHOW TABLES IN {_write_name(schema)}")
        return [name for _, name, is_temporary in listed if not is_temporary]

    def _describe_table(self, schema: str, name: str) -> Objects:
        """Return a table or view, its comments and its properties as a list of (kind, name, text)."""
        rows = self.run_statement(f"DESCRIBE TABLE EXTENDED {_write_name(schema, name)}")
        begin = max(place for place, row in enumerate(rows) if row[0] == DETAILS)
        details = {key: text for key, text, _ in rows[begin:]}
        kind, provider = details["Type"].lower(), details.get("Provider", "")
        if kind != "view":
            kind = "table" if provider.lower() == "parquet" else f"{provider} table"
        comments = {f"{name}.{key}": text for key, _, text in rows[:begin] if text}
        comments |= {name: details["Comment"]} if details.get("Comment") else {}
        stated = details.get("Table Properties", "[]")
        properties = [] if stated == "[]" or (stated.startswith(HIVE) and "," not in stated) else [stated]
        objects = [(kind, name, details.get("View Text", ""))]
        objects += [("comment", key, text) for key, text in comments.items()]
        return objects + [("property", name, text) for text in properties]

    def list_columns(self, schema: str, name: str) -> list[Field]:
        return [Field(one.name, type_name(one.dataType)) for one in self.read_table(schema, name).schema]

    def state_definition(self, schema: str, stated: Definition) -> dict[tuple[str, str], str]:
        """Return the text that Spark's catalog would store for a view of a release, by (kind, name).

        A stored view with another text is not the one that the release states. The result is empty for functions,
        because Spark's SQL can't define aggregate functions.
        """
        if self.has_views and isinstance(stated, ViewDefinition):
            return {("view", stated.name): ENGINE.write_view(stated, schema)}
        return {}

    def fetch_table(self, schema: str, name: str, columns: Sequence[Field], *, into: str) -> None:
        first = not super().list_objects(into, schema)  # the manifest comes first, and states the other tables
        self._copy_rows(self.read_table(schema, name), name, columns, into, schema, filled=self._rows or first)

    def _copy_rows(
        self, frame: DataFrame, name: str, columns: Sequence[Field], into: str, schema: str, *, filled: bool
    ) -> None:
        with (
            temporary_folder(masked=False) as folder,
            SparkRelease(self.session, {name: frame}, folder if shares_files(self.session, folder) else None) as there,
        ):
            rows = exp.select(*(column(one.name) for one in columns)).from_(table(name, RELEASE))
            if filled:
                refuse_more(name, frame, FETCHED if there.spill is None else ONE_MACHINE)
            query = rows.order_by(*map(column, PLACES)) if filled else rows.limit(0)
            with there.stream_batches(query, BATCH) as batches:
                self.store_rows(name, batches, columns, into=into, schema=schema)

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
        owner = next(path for path, called in self._attached.items() if called == database).parent
        with SparkStage(self, schema, tables[-1], owner) as stage:
            self.create_schema(schema, into=STAGE)
            for name in tables:
                data = as_spark_types(self.arrow(all_rows(table(name, database)).limit(FETCHED + 1)))
                if data.num_rows > FETCHED:
                    raise UsageError(f"{name} has more than {FETCHED:,} rows; read the source with Spark")
                with translate_spark_errors():
                    frame = self.session.createDataFrame(data, schema=from_arrow_schema(data.schema)).coalesce(1)
                columns, staged = self.list_fields(table(name, database)), stage.write_table(name, frame)
                self._copy_rows(staged, name, columns, into, schema, filled=True)
            yield
            stage.commit(definitions, former)


class SparkFolders(SparkSchemas):
    """Releases in folders of Parquet files, in a file system that Spark reaches.

    A folder stands for a schema and is named by its address. It can't hold views.
    """

    has_views = False

    def __init__(self, session: SparkSession, place: str, *, rows: bool = True) -> None:
        """Use a folder in a file system that the session reaches.

        Args:
            session: The session of Spark.
            place: The address of the folder.
            rows: Whether a local copy of a release has the rows of all its tables; otherwise only those of its
                manifest.

        Raises:
            EngineError: The session has no file system that reaches ``place``.
        """
        super().__init__(session, rows=rows)
        self._place, virtual = place, getattr(session, "_jvm", None)
        if virtual is None:
            raise EngineError(f"{place}: Spark Connect reaches no file system; give a session of pyspark's own")
        self._new_path = virtual.org.apache.hadoop.fs.Path
        try:
            with translate_spark_errors():
                system = self._new_path(place).getFileSystem(session._jsc.hadoopConfiguration())
                # The raw file system also shows checksum files.
                self._system = system.getRawFileSystem() if place.startswith("file:") else system
        except PrivsqlError as error:
            raise EngineError(f"{place}: no file system of Spark's reaches it: {error}") from error

    def _path(self, schema: str, name: str | None = None) -> Any:
        return self._new_path(schema if name is None else f"{schema}/{name}")

    def _list_names(self, schema: str, name: str | None = None) -> list[str]:
        with translate_spark_errors():
            return sorted(one.getPath().getName() for one in self._system.listStatus(self._path(schema, name)))

    def write_frame(self, schema: str, name: str, frame: DataFrame) -> DataFrame:
        stage, folder = self.name_stage(self._place), f"written-{name}"
        with translate_spark_errors():
            frame.write.options(**WRITTEN).parquet(f"{stage}/{folder}")
        names = self._list_names(stage, folder)
        parts = [one for one in names if one.startswith("part-")]
        for one in names:
            if one in parts:  # its name shows nothing but its order
                self._rename(f"{stage}/{folder}/{one}", f"{stage}/{folder}/part-{parts.index(one):05}{ENDING}")
            else:
                self._remove(f"{stage}/{folder}/{one}")
        self._rename(f"{stage}/{folder}", f"{schema}/{name}{ENDING}")  # a task that wakes up late writes where this was
        return self.read_table(schema, name)

    def read_table(self, schema: str, name: str) -> DataFrame:
        with translate_spark_errors():
            return self.session.read.parquet(f"{schema}/{name}{ENDING}")

    def name_schemas(self) -> list[str]:
        with translate_spark_errors():
            return [one for one in (self._place, self.name_stage(self._place)) if self._system.exists(self._path(one))]

    def describe_schema(self, schema: str) -> Objects:
        objects = []
        for name in self._list_names(schema):
            parts = self._list_names(schema, name) if name.endswith(ENDING) else []
            plain = parts and all(one.startswith("part-") and one.endswith(ENDING) for one in parts)
            objects.append(("table", name.removesuffix(ENDING), "") if plain else ("file", name, ""))
        return objects

    def list_tables(self, schema: str) -> list[str]:
        return [name for kind, name, _ in self.describe_schema(schema) if kind == "table"]

    def name_stage(self, schema: str) -> str:
        parent, _, name = schema.rpartition("/")
        return f"{parent}/.{name}.{DRAFT.strip('_')}"

    def make_schema(self, schema: str, comment: str | None = None) -> None:
        if comment is not None:
            self._write_text(schema, OWNER, comment)  # this also makes the folder
            return
        with translate_spark_errors():
            self._system.mkdirs(self._path(schema))

    def read_comment(self, schema: str) -> str:
        with translate_spark_errors():
            if not self._system.exists(self._path(schema, OWNER)):
                return ""
            stream = self._system.open(self._path(schema, OWNER))
            return bytes(stream.readAllBytes()).decode()

    def mark_switch(self, schema: str) -> None:
        self._write_text(schema, SWITCHING, "")

    def has_switched(self, schema: str) -> bool:
        return SWITCHING in self._list_names(schema)

    def _write_text(self, schema: str, name: str, comment: str) -> None:
        """Write a text into a new file ``name`` of a folder."""
        with translate_spark_errors():
            stream = self._system.create(self._path(schema, name), False)
            stream.write(bytearray(comment.encode()))
            stream.close()

    def drop_schema(self, schema: str) -> None:
        self._remove(schema)

    def drop_object(self, schema: str, kind: str, name: str) -> None:
        self._remove(f"{schema}/{name}{ENDING if kind == 'table' else ''}")

    def rename_table(self, schema: str, before: str, after: str) -> None:
        self._rename(f"{schema}/{before}{ENDING}", f"{schema}/{after}{ENDING}")

    def make_view(self, schema: str, view: ViewDefinition) -> None:
        """Do nothing: a folder can't hold views, and privsql creates them when it opens the folder."""

    def _rename(self, before: str, after: str) -> None:
        with translate_spark_errors():
            renamed = self._system.rename(self._path(before), self._path(after))
        if not renamed:
            raise EngineError(f"{before}: can't be renamed to {after}")

    def _remove(self, place: str) -> None:
        with translate_spark_errors():
            self._system.delete(self._path(place), True)


class SparkStage(SparkRelease):
    """A schema in which a release is prepared before it replaces the one in the target schema.

    Queries call it ``release``.
    """

    def __init__(self, schemas: SparkSchemas, target: str, last: str, owner: Path) -> None:
        """Describe a stage (the schema in which a release is made); a ``with`` block creates it at its beginning.

        Args:
            schemas: The schemas of the catalog.
            target: The schema that is to hold the release.
            last: The manifest table, which is published last and makes the schema a release.
            owner: A folder that exists as long as this process, so that other processes see whether it still runs.
        """
        super().__init__(schemas.session, {})
        self._schemas, self._target, self._last, self.schema = schemas, target, last, schemas.name_stage(target)
        self._owner = f"{socket.gethostname()} {owner}"
        self._written: list[str] = []

    def __enter__(self) -> Self:
        """Remove what a killed process left in the stage, and create its schema."""
        self.sweep()
        self._schemas.make_schema(self.schema, self._owner)
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        with suppress(PrivsqlError):  # the next publication removes what stays
            self._schemas.drop_schema(self.schema)

    def sweep(self) -> None:
        """Remove the stage (the schema in which a release is made) that a killed process left behind, if there is one.

        Raises:
            UsageError: Another process is publishing into the same target, or was killed on another machine.
        """
        if self._schemas.find_schema(STAGE, self.schema) is None:
            return
        host, _, folder = self._schemas.read_comment(self.schema).partition(" ")
        if host != socket.gethostname() or Path(folder).exists():
            why = "another publication is at work there, or was killed on another machine"
            raise UsageError(f"{why}; if none is, remove {self.schema}")
        if self._schemas.find_schema(STAGE, self._target) is not None:
            self._clear_target(switching=self._schemas.has_switched(self.schema))
        self._schemas.drop_schema(self.schema)

    def _clear_target(self, *, switching: bool) -> None:
        """Remove from the target schema the tables that a publication left there when it was killed.

        Args:
            switching: Whether tables were being renamed already. If so, and if the manifest is missing, the renamed
                tables are removed too.
        """
        present = {name: kind for kind, name, _ in self._schemas.list_objects(STAGE, self._target) if kind != "comment"}
        staged = self._schemas.list_tables(self.schema)
        names = [f"{NEW}{name}" for name in staged] + (staged if switching and self._last not in present else [])
        for name in [name for name in names if name in present]:
            self._schemas.drop_object(self._target, present[name], name)

    def create_table(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Store the result of a query as a temporary table or as a table of the release, with rows in order."""
        if into != RELEASE:
            super().create_table(name, query, into=into, title=title)
        else:
            self.write_table(name, self._frame(query))

    def write_table(self, name: str, frame: DataFrame) -> DataFrame:
        written = self._schemas.write_frame(self.schema, name, frame)
        self._written.append(name)
        with translate_spark_errors():
            self._register_table(name, written)
        return written

    def commit(self, definitions: Sequence[Definition], former: Sequence[tuple[str, str]]) -> None:
        schemas = self._schemas
        schemas.make_schema(self._target)
        # The name as views will write it.
        target = self._target = schemas.find_schema(STAGE, self._target) or self._target
        present = [(kind, name) for kind, name, _ in schemas.list_objects(STAGE, target) if kind != "comment"]
        for kind, name in present:
            if (kind, name) not in former:
                raise UsageError(f"there is {kind} {name!r}")
        views = [one for one in definitions if isinstance(one, ViewDefinition)]
        for view in views:  # Spark may refuse a view, before the target changes
            schemas.make_view(self.schema, view)
        switching = False
        try:
            for name in self._written:
                self._copy_table(name)
            switching = True
            schemas.mark_switch(self.schema)
            for kind, name in sorted(present, key=lambda one: (one[1] != self._last, one[0] != "view")):
                schemas.drop_object(target, kind, name)
            for name in [name for name in self._written if name != self._last]:
                schemas.rename_table(target, f"{NEW}{name}", name)
            for view in views:
                schemas.make_view(target, view)
            schemas.rename_table(target, f"{NEW}{self._last}", self._last)
        except BaseException:
            with suppress(PrivsqlError):
                self._clear_target(switching=switching)
            raise

    def _copy_table(self, name: str) -> None:
        """Copy a table of the new release from the stage into the target schema, under a provisional name.

        Raises:
            GuaranteeError: The copy does not hold the same rows as the table that was checked.
        """
        names = [one.name for one in self._schemas.list_columns(self.schema, name)]
        rows = exp.select(*map(column, names)).from_(table(name, RELEASE)).order_by(*map(column, PLACES))
        copy = self._schemas.write_frame(self._target, f"{NEW}{name}", self._frame(rows))
        with translate_spark_errors():
            sums = [one.selectExpr("count(*)", "sum(CAST(xxhash64(*) AS DECIMAL(38)))").collect()
                    for one in (copy, self._schemas.read_table(self.schema, name))]  # fmt: skip
        if sums[0] != sums[1]:
            raise GuaranteeError(f"the copy of {name} differs from what was checked; nothing written")


class SparkCatalog(CopiedSchemas):
    """Spark's catalog as a database whose schemas hold releases, or a folder that holds one release."""

    file: Path | None = None
    label, counts = SPARK, True

    def __init__(self, session: SparkSession | None, folder: str | None = None, *, rows: bool = True) -> None:
        """Use the catalog of a session, or a folder.

        Args:
            session: The session; None starts one on this machine when it is first needed.
            folder: The address of a folder that holds one release; None for the catalog.
            rows: Whether a local copy of a release has the rows of all its tables; otherwise only those of its
                manifest.
        """
        super().__init__()
        self._given, self._folder, self._rows = session, folder, rows

    @cached_property
    def _session(self) -> SparkSession:
        return self._given or start_session(Options())

    def renew(self) -> SparkCatalog:
        return SparkCatalog(self._given, self._folder)

    def without_rows(self) -> SparkCatalog:
        return SparkCatalog(self._given, self._folder, rows=False)

    @contextmanager
    def open_for_writing(self) -> Iterator[tuple[SparkSchemas, str]]:
        made = SparkSchemas if self._folder is None else partial(SparkFolders, place=self._folder)
        with made(self._session, rows=self._rows) as db:
            yield db, STAGE

    @contextmanager
    def open_tables(self, schema: str) -> Iterator[tuple[SparkRelease, list[str]]]:
        with self.open_for_writing() as (db, _):
            db.require_schema(STAGE, schema)
            stored = [name for kind, name, _ in db.describe_schema(schema) if kind == "table"]
            frames = {name: db.read_table(schema, name) for name in stored}
        with SparkRelease(self._session, frames) as there:
            yield there, stored

    @contextmanager
    def open_stage(self, schema: str, last: str, owner: Path) -> Iterator[SparkStage]:
        with self.open_for_writing() as (db, _), SparkStage(db, schema, last, owner) as stage:
            yield stage

    def sweep_stage(self, schema: str, last: str) -> None:
        with self.open_for_writing() as (db, _):
            SparkStage(db, schema, last, Path()).sweep()

    def is_large(self, schema: str) -> bool:
        with self.open_tables(schema) as (there, names):
            counts = [exp.select("count(*)").from_(table(name, RELEASE)) for name in names]
            return any(there.rows(one)[0][0] > FETCHED for one in counts)


def find_catalog(session: object, folder: str | None = None) -> SparkCatalog:
    """Return the catalog of a session of Spark, or a folder that holds one release.

    Args:
        session: The session; None starts one on this machine.
        folder: The address of the folder; None for the catalog.

    Raises:
        UsageError: The session's settings can't be trusted.
    """
    return SparkCatalog(None if session is None else require_trusted_session(session), folder)


def _write_text(text: str) -> str:
    return exp.Literal.string(text).sql(SPARK)


def _write_name(schema: str, name: str | None = None) -> str:
    """Return the name of a schema, or of a table in it, quoted for Spark's SQL."""
    return exp.table_(schema if name is None else name, None if name is None else schema, quoted=True).sql(SPARK)
