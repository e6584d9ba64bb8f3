"""Answers from totals: sums of those that meet a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.answer import ESTIMATORS, Answers
from privsql.answers.estimate import count_interval
from privsql.answers.sql.question import select_terms
from privsql.dp_random import PURE
from privsql.engine.sqlfiles import all_of, table
from privsql.errors import UsageError
from privsql.model.estimates import Estimate
from support.totals.parameters import Totals

if TYPE_CHECKING:
    from privsql.answers.sql.question import CountQuery


class TotalsAnswers(Answers):
    """An open release of exact totals."""

    certain = frozenset(ESTIMATORS)
    records = values = "totals"
    measures = frozenset()
    variance = 0.0  # of the noise of one total

    @property
    def channel(self) -> None:
        """Return None: no record is published."""

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that adds up the totals, and how many these are."""
        if query.measure.kind != "count" or query.lookups:
            raise UsageError("the release answers COUNT(*) of its own columns only")
        added = [exp.Sum(this=self._roles.by_sa.as_column("records")), exp.Count(this=exp.Star())]
        groups = [f"g_{i}" for i in range(len(query.groups))]
        rows = exp.select(*select_terms(query, "sa"), *added).from_(table("totals"))
        return rows.where(all_of(query.filters["sa"])).group_by(*groups), "estimate = sum of the totals"

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Return the sums; without noise they are certain."""
        rows = self._db.rows(self.make_statement(query, estimator)[0])
        return [self._estimate(tuple(group), float(total or 0), number, confidence) for *group, total, number in rows]

    def _estimate(self, group: tuple[object, ...], total: float, number: int, confidence: float) -> Estimate:
        error = float(number * self.variance) ** 0.5
        return Estimate(group, total, error, *count_interval(total, error, confidence) if error else (total, total))


class NoisyTotalsAnswers(TotalsAnswers):
    """An open release of noisy totals."""

    certain = frozenset()

    @property
    def variance(self) -> float:  # type: ignore[override]
        """Return the variance of the noise of a total, whose budget is all of epsilon: a record has one value."""
        return PURE.variance(Totals.model_validate(self._manifest.parameters).epsilon)
