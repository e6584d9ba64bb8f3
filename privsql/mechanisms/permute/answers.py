"""Answers from a (k,e)-anonymous release: exactly, or group by group, with certain bounds or intervals."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.answers import base, posterior
from privsql.answers.channel import Channel
from privsql.answers.counts import pooled
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement, group_terms, select_terms
from privsql.answers.seen import QuestionOn, chosen, sets
from privsql.engine.sqlfiles import Holes, column, every, fill, named, table
from privsql.errors import UsageError
from privsql.mechanisms.permute import amounts, baseline, sharing
from privsql.mechanisms.permute.contents import Contents, contents, through
from privsql.model.estimate import Estimate

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.answers.seen import Observed

FORMULA = (
    "estimate = sum over groups g of n_g * c_g / |g|; its variance is that of drawing n_g of |g| records, and of how "
    "unlike the values of one group are, judged by neighbouring groups"
)
AMOUNTS = {"sum": amounts.total, "avg": amounts.mean, "min": amounts.minimum, "max": amounts.maximum}
SPREAD = (
    "estimate = the mean over all choices of n_g records in every group g, n_g those that meet the condition on "
    "quasi-identifiers (MIN and MAX: the median); low and high are the extreme choices, so they are certain"
)


class Answers(base.Answers):
    """An open release that answers count queries; what its groups hold is read once."""

    certain = frozenset({"baseline"})
    records = "qit"
    measures = frozenset(AMOUNTS)

    @cached_property
    def contents(self) -> Contents:
        """What every group holds."""
        return contents(self._db, self._roles, None)

    @cached_property
    def channel(self) -> Channel | None:
        """A question is seen as how many records of every group meet it; None where that is too large to be told."""
        return through(self.contents) if self.contents.is_small else None

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.is_exact:
            return exact_statement(query, table("qit")), EXACT
        if query.measure.side == "sa":
            _refuse_mixtures(query)
            return self._observed(query), SPREAD
        if estimator == "baseline" and query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
        return self._observed(query), baseline.FORMULA if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("qit"))
        if query.measure.side == "sa":
            return self._amounts(query)
        asked = self._asked(query)
        seen = self._seen(asked)
        if estimator == "baseline":
            return baseline.estimate(asked, self.contents, seen)
        return self._estimated(asked, seen, confidence)

    def _asked(self, query: CountQuery) -> QuestionOn:
        """A question is seen as how many records of every group meet it."""
        nothing = np.zeros(0)
        groups = Channel(np.zeros((0, self.contents.groups)), nothing, nothing)
        return QuestionOn(self._db, query, table("qit"), groups, code=self._roles.by_sa.called("code"))

    def _estimated(self, asked: QuestionOn, seen: Observed, confidence: float) -> list[Estimate]:
        """COUNT, SUM and AVG of quasi-identifiers, with intervals."""
        held, query = self.contents, asked.query
        outputs, functionals = chosen(asked, seen, held.values)
        if not seen.keys or not outputs:
            return posterior.nothing(query)
        if functionals.ndim > 2 and query.measure.amount is None:
            seen, functionals = pooled(query, seen, functionals)
            if not seen.keys:
                return posterior.nothing(query)
        parts = baseline.parts(held, seen.observed, functionals)
        variance, judged = sharing.variances(held, seen.observed, functionals)
        parts = replace(parts, variance=variance, judged=judged)
        of, added = posterior.measured(asked, seen), None
        if of is not None:
            means = baseline.shared(held, of.deviations, functionals)
            variance = sharing.variances_of_amounts(held, seen.observed, functionals, of)
            added = posterior.Amounts(of, means, variance)
        level = posterior.Level(confidence, sharing.DEGREES)
        return posterior.collected(asked, seen, outputs, parts, level, added)

    def _seen(self, asked: QuestionOn) -> Observed:
        rows = self._db.arrow(self._observed(asked.query))
        return sets(asked, rows, np.ones(len(rows)))

    def _observed(self, query: CountQuery) -> exp.Query:
        """The statement: records of every group that meet the condition on quasi-identifiers."""
        amount = query.measure.amount
        holes: Holes = {
            "qit": query.records(table("qit")),
            "bid": self._roles.by_qi.column("bid"),
            "terms": select_terms(query, "qi"),
            "keys": [expression for _, expression in group_terms(query, "qi")],
            "filter": every(query.filters["qi"]),
            "totals": [named(exp.Sum(this=amount), "amounts")] if amount else [],
            "amount": [column("amounts")] if amount else [],
            "groups": [column(name) for name, _ in group_terms(query, "qi")],
        }
        return fill("permute/observed", holes)

    def _amounts(self, query: CountQuery) -> list[Estimate]:
        """SUM, AVG, MIN or MAX of the sensitive column."""
        held = self.contents
        asked = self._asked(query)
        seen = self._seen(asked)
        outputs, functionals = chosen(asked, seen, held.values)
        if not seen.keys or not outputs:
            return posterior.nothing(query)
        rows = functionals[held.code, 0] > 0
        wanted = amounts.Held(held.group[rows], held.code[rows], held.records[rows], self._values, held.sizes)
        met = _met(seen)
        figures = AMOUNTS[query.measure.kind](wanted, met)
        some, fewest = np.flatnonzero(amounts.possible(wanted, met) > 0).tolist(), amounts.forced(wanted, met)
        found = [Estimate(seen.keys[s], *(_figure(part[s]) for part in (*figures, fewest))) for s in some]
        return found or posterior.nothing(query)

    @cached_property
    def _values(self) -> Floats:
        """The sensitive values as doubles, rising (m,)."""
        value = exp.cast(column(self._roles.sensitive[0].name), "DOUBLE")
        by = self._roles.by_sa.column("code")
        listed = exp.select(value.as_("value")).from_(table("privsql_values")).order_by(by)
        return np.asarray(self._db.arrow(listed)["value"].to_numpy(), dtype=np.float64)


def _refuse_mixtures(query: CountQuery) -> None:
    kind, name = query.measure.kind.upper(), query.measure.column
    if query.predicate is not None:
        raise UsageError(f"{kind}({name}) with a condition that mixes {name} and quasi-identifiers is not supported")
    if any(group.side == "sa" for group in query.groups):
        raise UsageError(f"{kind}({name}) grouped by {name} is not supported; group by quasi-identifiers")


def _met(seen: Observed) -> amounts.Met:
    at = np.nonzero(seen.observed)
    return amounts.Met(len(seen.keys), at[0], at[1], seen.observed[at].astype(np.int64))


def _figure(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
