"""``itemsets``: the most frequent item sets of a release, and synthetic records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.calls import as_path, whole
from privsql.engine.open import scratch
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.releases.opened import Release, explained

if TYPE_CHECKING:
    from privsql.calls import PathLike


def itemsets(release: PathLike, *, top: int = 20, estimator: str = "reconstructed") -> list[tuple[list[str], float]]:
    """The ``top`` most frequent item sets of a release, each with its estimated number of records.

    Raises ``UsageError`` for a release of another kind.
    """
    top = whole(top, "--top")
    path = as_path(release, "release")
    with Release(path) as found, explained(path):
        return found.answers.frequent(top, estimator)


def synthesize(release: PathLike, to: PathLike) -> int:
    """Write synthetic records that give about a release's estimates, as Parquet; how many rows.

    Of item sets a row is (record, item), of a table it has the table's columns.

    They are made from the release alone. Raises ``UsageError`` for a release of another kind, or if ``to`` exists.
    """
    path, file = as_path(release, "release"), as_path(to, "to")
    if file.suffix != ".parquet" or file.exists():
        raise UsageError(f"{file}: synthetic records need a new file that ends in .parquet")
    with Release(path) as found, explained(path), scratch() as db:
        made = found.answers.synthetic()
        db.put("synthetic", made)
        db.export(temp("synthetic"), file)
        return int(made.num_rows)
