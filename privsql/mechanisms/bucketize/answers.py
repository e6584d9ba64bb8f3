"""Which way a question to a bucketized release is answered: exactly, by the papers' formula, or through the channel."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.errors import UsageError
from privsql.estimates import Estimate, exactly
from privsql.mechanisms.bucketize import baseline, reconstruct
from privsql.question import CountQuery, group_terms, select_terms
from privsql.sqlfiles import every, fill, named, table

if TYPE_CHECKING:
    from privsql.channel import Channel
    from privsql.database import Database
    from privsql.roles import Roles

ESTIMATORS = ("reconstructed", "baseline")
EXACT = "the release holds the exact answer"


class Answers:
    """An open release that answers count queries; its channel is read once."""

    def __init__(self, db: Database, roles: Roles, facts: dict[str, Any]) -> None:
        self._db, self._roles, self._facts = db, roles, facts

    @cached_property
    def channel(self) -> Channel:
        """The release's channel."""
        return reconstruct.channel(self._db)

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        if estimator not in ESTIMATORS:
            raise UsageError(f"estimator {estimator!r} is not one of {', '.join(ESTIMATORS)}")
        if query.is_exact:
            return _exact(query), EXACT
        if estimator == "baseline":
            return baseline.statement(query, self._facts), baseline.FORMULA
        return reconstruct.statement(query, self._roles, self._facts), reconstruct.FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            rows = self._db.rows(_exact(query))
            return [exactly(tuple(row[:-1]), None if row[-1] is None else float(row[-1])) for row in rows]
        if estimator == "baseline":
            return baseline.estimate(self._db, query, self._facts)
        return reconstruct.estimate(self._db, query, self._roles, self._facts, self.channel, confidence)


def _exact(query: CountQuery) -> exp.Query:
    amount = query.measure.amount
    kinds: dict[str, type[exp.AggFunc]] = {"count": exp.Count, "sum": exp.Sum, "avg": exp.Avg}
    measure = kinds[query.measure.kind](this=exp.Star() if amount is None else amount)
    condition = [*query.filters["qi"], *([query.predicate] if query.predicate is not None else [])]
    return fill(
        "query/exact",
        {
            "qit": query.records(table("qit")),
            "terms": select_terms(query, "qi"),
            "keys": [expression for _, expression in group_terms(query, "qi")],
            "filter": every(condition),
            "measure": [named(measure, "n")],
        },
    )
