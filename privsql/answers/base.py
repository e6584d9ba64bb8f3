"""An open release as one that reads an analyst's SQL and answers it: what mechanisms fill in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from privsql.answers import cuts, parse
from privsql.engine.sqlfiles import column, fill, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from privsql.answers.asked import Statement
    from privsql.answers.channel import Channel
    from privsql.answers.question import CountQuery
    from privsql.answers.sources import Lookups
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Holes
    from privsql.model.estimate import Estimate, RestsOn
    from privsql.model.manifest import Manifest

OURS, THEIRS = "reconstructed", "baseline"  # privsql's estimator, and the literature's formula


class Answers(ABC):
    """An open release; what it knows of itself is read once."""

    estimators: ClassVar[tuple[str, ...]] = (OURS, THEIRS)
    certain: ClassVar[frozenset[str]]
    """The estimators whose low and high bound the true count with certainty."""
    records: ClassVar[str]
    """The published table whose rows are records, or stand for some."""
    values: ClassVar[str] = "privsql_values"
    """The table of all that the sensitive columns can be."""
    measures: ClassVar[frozenset[str]]
    """Which of sum, avg, min and max of the sensitive column it tells, with certain bounds."""

    def __init__(self, db: Relations, manifest: Manifest) -> None:
        self._db, self._manifest, self._roles, self._facts = db, manifest, manifest.roles, manifest.facts

    @property
    def algorithm(self) -> str:
        """The algorithm that made the release."""
        return self._manifest.algorithm

    @property
    def in_bins(self) -> frozenset[str]:
        """The columns whose single values the release does not tell."""
        return frozenset()

    @property
    def labels(self) -> tuple[str, ...]:
        """Texts of the items that a record can hold; none of them where records hold no items."""
        return ()

    def shown(self, name: str, most: int) -> list[str | None]:
        """Texts of the values that a column has in the release, in the order of its type; that of NULL is None.

        A column whose values are in bins has those at which a bin begins.
        """
        of_records = any(field.name == name for field in self._roles.quasi_identifiers)
        place = table(self.records if of_records else self.values)
        holes: Holes = {"records": place, "column": column(name), "most": exp.Literal.number(most)}
        return [row[0] for row in self._db.rows(fill("query/shown", holes))]

    def read(self, sql: str, lookups: Lookups) -> Statement:
        """The analyst's SQL taken apart; ``UsageError`` for whatever is not supported, which is never answered."""
        asked, stated = parse.read(sql, self._roles, self._manifest.name, lookups, self.measures), self._manifest
        return cuts.refuse(asked, stated.bins, stated.groups, stated.quasi_identifiers)

    @property
    @abstractmethod
    def channel(self) -> Channel | None:
        """The channel through which the release is seen (``answers.channel``); None if there is none."""

    @abstractmethod
    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words; ``UsageError`` if unsupported."""

    @abstractmethod
    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""

    def holds(self, query: CountQuery) -> bool:
        """Whether the release holds the true answer."""
        return query.is_exact and bool(self._roles.quasi_identifiers)

    def seen_by(self, conditions: Sequence[exp.Expr]) -> tuple[str, ...]:  # noqa: ARG002
        """The columns by which questions under these conditions have to be seen alike, so that their errors compare.

        None of them where errors of all questions do.
        """
        return ()

    def rests_on(self, query: CountQuery, estimator: str) -> RestsOn:
        """What the figures of an answer rest on."""
        if self.holds(query):
            return "exact"
        return "certain" if estimator in self.certain or query.measure.side == "sa" else "interval"

    def known(self, estimator: str) -> None:
        """``UsageError`` for an estimator that there is not."""
        if estimator not in self.estimators:
            raise UsageError(f"estimator {estimator!r} is not one of {', '.join(self.estimators)}")

    def frequent(self, top: int, estimator: str) -> list[tuple[list[str], float]]:  # noqa: ARG002
        """The most frequent item sets with their numbers of records; ``UsageError`` where records hold no items."""
        raise UsageError(f"the release holds no item sets; it is made by {self._manifest.mechanism}")

    def synthetic(self) -> pa.Table:
        """Records that give about the release's estimates; ``UsageError`` where none can be made."""
        made_by = f"{self._manifest.mechanism}, {self._manifest.algorithm}"
        raise UsageError(f"no synthetic records are made of this release; it is made by {made_by}")
