"""``itemsets``: the most frequent item sets of a release, and synthetic records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.open import scratch
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.releases.opened import Release, explained

if TYPE_CHECKING:
    from pathlib import Path


def itemsets(path: Path, *, top: int = 20, estimator: str = "reconstructed") -> list[tuple[list[str], float]]:
    """The ``top`` most frequent item sets of a release, each with its estimated number of records.

    Raises ``UsageError`` for a release of another kind.
    """
    if top < 1:
        raise UsageError(f"--top {top} must be at least 1")
    with Release(path) as release, explained(path):
        return release.answers.frequent(top, estimator)


def synthesize(path: Path, to: Path) -> int:
    """Write synthetic records that give about a release's estimates, as Parquet; how many rows.

    Of item sets a row is (record, item), of a table it has the table's columns.

    They are made from the release alone. Raises ``UsageError`` for a release of another kind, or if ``to`` exists.
    """
    if to.suffix != ".parquet" or to.exists():
        raise UsageError(f"{to}: synthetic records need a new file that ends in .parquet")
    with Release(path) as release, explained(path), scratch() as db:
        made = release.answers.synthetic()
        db.put("synthetic", made)
        db.export(temp("synthetic"), to)
        return int(made.num_rows)
