"""``export`` writes records that a release stands for, for tools that read rows."""

from __future__ import annotations

from privsql.answers.answer import BEST
from privsql.calls import PathLike, as_path, as_whole_number
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import temp_table
from privsql.errors import UsageError
from privsql.releases.opened import Release, explain_failures
from privsql.source.targets import as_target


def itemsets(release: PathLike, *, top: int = 20, estimator: str = BEST) -> list[tuple[list[str], float]]:
    """Return the ``top`` most frequent item sets of a release, each with its estimated number of records.

    Raises ``UsageError`` for a release of another kind.
    """
    top, target = as_whole_number(top, "top"), as_target(release)
    with Release(target) as opened, explain_failures(target):
        return opened.answers.list_frequent(top, opened.answers.choose_estimator(estimator))


def synthesize(release: PathLike, to: PathLike) -> int:
    """Write synthetic records that give about a release's estimates, as Parquet; how many rows.

    Of item sets a row is (record, item), of a table it has the table's columns.

    They are made from the release alone. Raises ``UsageError`` for a release of another kind, or if ``to`` exists.
    """
    target, file = as_target(release), as_path(to, "to")
    if file.suffix != ".parquet" or file.exists():
        raise UsageError(f"{file}: synthetic records need a new file that ends in .parquet")
    with Release(target) as opened, explain_failures(target), open_scratch() as db:
        rows = opened.answers.make_synthetic()
        db.register_arrow("synthetic", rows)
        db.export_parquet(temp_table("synthetic"), file)
        return int(rows.num_rows)
