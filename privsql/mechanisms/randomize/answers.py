"""Answers from a randomized release: exactly, by the papers' formula, or through the channel (``answers.channel``)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.answers import base, posterior
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement, group_terms, select_terms
from privsql.answers.seen import QuestionOn, sets
from privsql.engine.sqlfiles import Holes, column, every, fill, named, same, table
from privsql.errors import UsageError
from privsql.mechanisms.randomize import baseline
from privsql.mechanisms.randomize.public import Public, public

if TYPE_CHECKING:
    from privsql.answers.channel import Channel
    from privsql.model.estimate import Estimate

FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given the published records by sub-table "
    "and perturbed value; their expectation is M^T n, M the stacked perturbation matrices (see privsql.channel)"
)


class Answers(base.Answers):
    """An open release that answers count queries; its public parameters are read once."""

    certain = frozenset()
    records = "perturbed"
    measures = frozenset()

    @cached_property
    def public(self) -> Public:
        """The public parameters, and the records of every cell."""
        everyone = CountQuery((), {"qi": [], "sa": []}, {"qi": [], "sa": []})
        stated = public(self._db)
        return stated.seen(self._db.arrow(self._observed(everyone)))

    @property
    def channel(self) -> Channel:
        """The release's channel."""
        return self.public.channel

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        if query.is_exact:
            return exact_statement(query, table("perturbed")), EXACT
        if estimator == "baseline" and query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
        return self._observed(query), baseline.FORMULA if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
        if query.is_exact:
            return exact_answer(self._db, query, table("perturbed"))
        asked = QuestionOn(
            self._db,
            query,
            table("perturbed"),
            self.channel,
            independent=True,
            most=self.public.by_value(self.public.most),
            uncertain=self.public.by_value(self.public.estimated[1] ** 2),
        )
        rows = self._db.arrow(self._observed(query))
        seen = sets(asked, rows, np.ones(len(rows)))
        if estimator == "baseline":
            return baseline.estimate(asked, seen, self.public, confidence)
        return posterior.estimate(asked, seen, confidence)

    def _observed(self, query: CountQuery) -> exp.Query:
        """The statement: perturbed values of the records that meet the condition on quasi-identifiers."""
        roles, keys = self._roles, [name for name, _ in group_terms(query, "qi")]
        amount = query.measure.amount
        values = exp.select("code", *roles.sa_in()).from_(table("privsql_values")).subquery("v")
        cells = exp.select(column("cell", "d"), column("sub_table", "d"), *roles.sa("v"))
        cells = cells.from_(table("privsql_domains").as_("d")).join(values, on="d.code = v.code")
        holes: Holes = {
            "perturbed": query.records(table("perturbed")),
            "cells": cells.subquery(),
            "terms": select_terms(query, "qi"),
            "keys": [expression for _, expression in group_terms(query, "qi")],
            "filter": every(query.filters["qi"]),
            "sa": roles.sa_in(),
            "sa_keys": [column(field.name) for field in roles.sensitive],
            "totals": [named(exp.Sum(this=amount), "t")] if amount else [],
            "amounts": [named(exp.column("t", "q"), "amounts")] if amount else [],
            "groups": [column(key) for key in keys],
            "same_value": same("q", "c", roles.sa_keys),
        }
        return fill("randomize/observed", holes)
