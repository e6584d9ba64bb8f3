"""Answer SQL from a release alone, or list its most frequent item sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from privsql.calls import as_whole_number
from privsql.errors import UsageError
from privsql.model.estimates import BEST
from privsql.outcomes import Outcome, Part, Table
from privsql.releases.opened import Release, explain_failures
from privsql.source.targets import as_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.answers.answer import Answer
    from privsql.calls import PathLike


@dataclass(frozen=True)
class FrequentItemSets(Outcome):
    """The most frequent item sets of a release, each with an estimate of how many records hold it."""

    rows: list[tuple[list[str], float]]
    estimator: str

    def __iter__(self) -> Iterator[tuple[list[str], float]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: a table of the sets and their numbers of records."""
        yield Table(("items", "records"), [(", ".join(items), support) for items, support in self.rows], (1,))

    def as_json(self) -> dict[str, Any]:
        """Return the sets as the object that ``--json`` prints."""
        rows = [{"items": items, "records": support} for items, support in self.rows]
        return {"itemsets": rows, "estimator": self.estimator}


@overload
def query(
    release: PathLike,
    sql: str,
    *,
    confidence: float = ...,
    estimator: str = ...,
    attach: Sequence[PathLike] | PathLike = ...,
    fit: bool = ...,
    connection: object | None = ...,
) -> Answer: ...


@overload
def query(
    release: PathLike, *, itemsets: int, estimator: str = ..., connection: object | None = ...
) -> FrequentItemSets: ...


def query(
    release: PathLike,
    sql: str | None = None,
    *,
    itemsets: int | None = None,
    confidence: float = 0.95,
    estimator: str = BEST,
    attach: Sequence[PathLike] | PathLike = (),
    fit: bool = True,
    connection: object | None = None,
) -> Answer | FrequentItemSets:
    """Answer one query from a release alone.

    Args:
        release: The release, or with ``connection`` the name of its schema.
        sql: The query. Anything that is not supported is refused.
        itemsets: How many of the most frequent item sets to list, in place of ``sql``.
        confidence: The confidence of the intervals.
        estimator: The name of the estimator; by default the most precise one that the release has.
        attach: Files whose tables the query may join.
        fit: Whether to fit a model first to a release without one, and store it in the user's cache. This is done only
            if it takes at most about 15 seconds.
        connection: An open connection of DuckDB, or a session of Spark.

    Raises:
        UsageError: The query is not supported, or item sets are asked of a release that has none.
    """
    if (sql is None) == (itemsets is None):
        raise UsageError("query takes SQL, or option itemsets, the number of item sets to list; give one of the two")
    target = as_target(release, connection)
    top = None if itemsets is None else as_whole_number(itemsets, "itemsets")
    with Release(target, attach, fit=fit) as opened:
        if sql is not None:
            return opened.query(sql, confidence=confidence, estimator=estimator)
        with explain_failures(target):
            frequent = opened.answers.list_frequent(top or 0, opened.answers.choose_estimator(estimator))
            return FrequentItemSets(frequent, estimator)
