"""Write records that stand for a release into a file or schema, for tools that read rows."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.answer import DRAWS
from privsql.calls import as_optional_path, as_whole_number
from privsql.engine.files import temporary_folder
from privsql.engine.open import open_scratch, unique_name
from privsql.engine.sqlfiles import DIALECT, alias_as, column, fill, table, temp_table
from privsql.errors import EngineError, UsageError
from privsql.outcomes import Outcome, Part
from privsql.releases.contents import digest_release
from privsql.releases.draft import MAIN
from privsql.releases.opened import Release, explain_failures
from privsql.source.targets import Target, as_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from privsql.answers.completed import CompletedTables
    from privsql.calls import PathLike

PARQUET, DUCKDB = ".parquet", ".duckdb"
BATCH = 100_000  # rows at a time
DRAWN_FROM = "privsql_drawn_from"  # the table beside completed tables, and their metadata in Parquet
NOTE = "drawn from release {}; nobody can verify it"
PLACES = "a new file that ends in .parquet or .duckdb, or a schema: FILE.duckdb::SCHEMA, or postgresql://HOST/DATABASE::SCHEMA"


@dataclass(frozen=True)
class Exported(Outcome):
    """What ``export`` has written.

    Attributes:
        file: The file or schema.
        rows: How many rows it has.
        note: What the rows are, in words.
    """

    file: Path
    rows: int
    note: str = ""

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: a line that says what was written, and the note."""
        yield f"wrote {self.rows:,} rows to {self.file}"
        if self.note:
            yield self.note


def export(
    release: PathLike,
    *,
    synthetic: PathLike | None = None,
    completed: PathLike | None = None,
    draw: int | None = None,
    connection: object | None = None,
) -> Exported:
    """Write records that stand for a release into a file or schema. They are made from the release alone.

    The result is not a release: it makes no promise of its own, and nobody can verify it.

    Args:
        release: The release, or with ``connection`` the name of its schema.
        synthetic: The Parquet file for synthetic records of a differentially private release. Counts of these records
            are about equal to the release's estimates. For item sets a row is (record, item); for a table it has the
            table's columns.
        completed: The place for the completed tables of a bucketized release: copies in which a fitted model has drawn
            a sensitive value for each record. It is a Parquet or DuckDB file, or a schema of a DuckDB or Postgres
            database. It receives one long table with the columns ``draw`` (the number of the copy), ``record``, and
            those of the source. Packages for multiple imputation read this form.
        draw: The number of a single completed table to write, with the name and columns of the source; None to write
            all. Counts of a single table do not show how wrong they may be.
        connection: An open connection of DuckDB, or a session of Spark.

    Raises:
        UsageError: The release is of another kind or has no model, no place is given, or the place is taken.
    """
    target = as_target(release, connection)
    if (synthetic is None) == (completed is None) or (draw is not None and completed is None):
        raise UsageError("export writes to one place; give option synthetic, or completed, which draw may follow")
    if completed is not None:
        number = None if draw is None else as_whole_number(draw, "draw", 1)
        if number is not None and number > DRAWS:
            raise UsageError(f"draw: there are {DRAWS} completed tables; give a number from 1 to {DRAWS}")
        return _export_completed(target, as_target(completed), number)
    file = as_optional_path(synthetic, "synthetic")
    if file is None or file.suffix != PARQUET or file.exists():
        raise UsageError(f"{file}: synthetic records need a new file that ends in .parquet")
    with Release(target) as opened, explain_failures(target), open_scratch() as db:
        rows = opened.answers.make_synthetic()
        db.register_arrow("synthetic", rows)
        db.export_parquet(temp_table("synthetic"), file)
        return Exported(file, int(rows.num_rows))


# Completed tables -----------------------------------------------------------------------------------------------------


def _export_completed(target: Target, to: Target, draw: int | None) -> Exported:
    """Write the completed tables of a release: copies in which each record has one drawn sensitive value.

    Args:
        target: The place of the release.
        to: The new file or schema.
        draw: The number of the only copy to write; None for all.
    """
    is_file = not to.is_schema
    if is_file and (to.address is not None or to.file.suffix not in (PARQUET, DUCKDB) or to.file.exists()):
        raise UsageError(f"{to}: completed tables need {PLACES}")
    with Release(target) as opened, explain_failures(target):
        tables, note = opened.require_completed(), NOTE.format(digest_release(target))
        if is_file and to.file.suffix == PARQUET:
            rows = _write_parquet(tables, draw, to.file, note)
        else:
            name = f"{opened.manifest.name}{'_completed' * (draw is None)}"
            rows = _write_tables(tables, draw, to, name, note)
    return Exported(Path(str(to)), rows, note)


@contextmanager
def _name_place(to: Target) -> Iterator[None]:
    """Turn an error of the operating system in the block into an ``EngineError`` that names the place."""
    try:
        yield
    except OSError as error:
        raise EngineError(f"{to}: {error.strerror or error}") from error


def _write_parquet(tables: CompletedTables, draw: int | None, file: Path, note: str) -> int:
    """Write completed tables as a Parquet file, with metadata that say what its rows are.

    Args:
        tables: The completed tables: copies of a release in which each record has one drawn sensitive value.
        draw: The number of the only table to write; None for all.
        file: The file.
        note: What the rows are, in words.

    Returns:
        The number of rows.
    """
    import pyarrow.parquet as pq

    with _name_place(Target(file)), tables.stream(draw, BATCH) as batches:
        schema: pa.Schema = batches.schema.with_metadata({DRAWN_FROM: note})
        rows = 0
        with pq.ParquetWriter(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return rows


def _write_tables(tables: CompletedTables, draw: int | None, to: Target, name: str, note: str) -> int:
    """Write completed tables into a new database file or a schema, with a table that says what their rows are.

    Either both are written or nothing.

    Args:
        tables: The completed tables: copies of a release in which each record has one drawn sensitive value.
        draw: The number of the only table to write; None for all.
        to: The file or schema.
        name: The name of the table with the rows.
        note: What the rows are, in words.

    Returns:
        The number of rows.
    """
    with _name_place(to), temporary_folder() as folder:
        file, made = folder / "made.duckdb", unique_name("made")
        with open_scratch() as db:
            db.attach(file, made, read_only=False)
            with tables.stream(draw, BATCH) as batches:
                db.register_arrow("exported", batches)
                fields = tables.list_exported(draw)
                typed = [alias_as(exp.cast(column(one.name), one.type, dialect=DIALECT), one.name) for one in fields]
                db.create_table(name, exp.select(*typed).from_(temp_table("exported")), into=made)
            rows = int(db.rows(fill("core/size", {"table": table(name, made)}))[0][0])
            db.create_table(DRAWN_FROM, exp.select(alias_as(exp.Literal.string(note), "note")), into=made)
            db.detach(made)
        if not to.is_schema:
            file.replace(to.file)
            return rows
        with to.sink.open_for_writing() as (db, database):
            db.attach(file, made, read_only=True)
            schema = db.find_schema(database, to.schema or MAIN) or to.schema or MAIN
            try:
                with db.replace_tables(made, [name, DRAWN_FROM], [], into=database, schema=schema):
                    pass
            except UsageError as error:
                raise UsageError(f"{to}: {error}; nothing written, choose a new schema") from error
        return rows
