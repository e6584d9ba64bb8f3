"""``export`` writes records that a release stands for, for tools that read rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from privsql.calls import as_optional_path
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import temp_table
from privsql.errors import UsageError
from privsql.outcomes import Outcome, Part
from privsql.releases.opened import Release, explain_failures
from privsql.source.targets import as_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.calls import PathLike


@dataclass(frozen=True)
class Exported(Outcome):
    """A file that was written, and how many rows it has."""

    file: Path
    rows: int

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield which file was written."""
        yield f"wrote {self.rows:,} rows to {self.file}"


def export(release: PathLike, *, synthetic: PathLike | None = None, connection: object | None = None) -> Exported:
    """Write records that a release stands for as a Parquet file. They are made from the release alone.

    Args:
        release: A differentially private release, or with ``connection`` the name of its schema.
        synthetic: The file for synthetic records, which give about the release's estimates. A row of item sets is
            (record, item); a row of a table has the table's columns.
        connection: An open connection of DuckDB's, or a session of Spark.

    Raises:
        UsageError: The release is of another kind, no file is named, or the file exists.
    """
    target, file = as_target(release, connection), as_optional_path(synthetic, "synthetic")
    if file is None:
        raise UsageError("export has nothing to write; give option synthetic, a new file that ends in .parquet")
    if file.suffix != ".parquet" or file.exists():
        raise UsageError(f"{file}: synthetic records need a new file that ends in .parquet")
    with Release(target) as opened, explain_failures(target), open_scratch() as db:
        rows = opened.answers.make_synthetic()
        db.register_arrow("synthetic", rows)
        db.export_parquet(temp_table("synthetic"), file)
        return Exported(file, int(rows.num_rows))
