"""Answers from a randomized release: exactly, by the papers' formula, or through the channel (``answers.channel``)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers import base, posterior
from privsql.answers.learnt.prior import can_teach, taught
from privsql.answers.learnt.sample import MOST, Sample, comparable, encoded
from privsql.answers.question import EXACT, CountQuery, exact_answer, exact_statement, group_terms, select_terms
from privsql.answers.seen import QuestionOn, sets
from privsql.engine.sqlfiles import Holes, column, every, fill, named, same, table
from privsql.errors import UsageError
from privsql.mechanisms.randomize import baseline
from privsql.mechanisms.randomize.public import Public, public

if TYPE_CHECKING:
    from privsql.answers.channel import Channel
    from privsql.answers.learnt.prior import Taught
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

    @cached_property
    def _taught(self) -> Taught | None:
        """The prior that the release teaches; none of a release that is too large to be read as a whole."""
        records = self._manifest.published_records
        if records > MOST or not can_teach(self.channel, records):
            return None
        own = self._roles.by_all.read("sub_table")
        named_so = exp.select(*own, *comparable(self._roles), *self._roles.sa_in())
        holes: Holes = {
            "perturbed": named_so.from_(table("perturbed")).subquery(),
            "cells": self._cells(),
            "columns": self._roles.qi("q"),
            "keys": self._roles.qi(),
            "same_value": same("q", "c", self._roles.sa_keys),
        }
        rows = self._db.arrow(fill("randomize/placed", holes))
        names = [field.name for field in self._roles.quasi_identifiers]
        columns = {name: encoded(rows[key]) for name, key in zip(names, self._roles.qi_keys, strict=True)}
        shown = scipy.sparse.eye_array(self.channel.mean.shape[1], format="csr")
        places = rows["cell"].to_numpy().astype(np.int32)
        return taught(self.channel, Sample(places, shown, columns, independent=True))

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
            taught=self._taught if estimator != "baseline" else None,
            code=self._roles.by_sa.called("code"),
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
        holes: Holes = {
            "perturbed": query.records(table("perturbed")),
            "cells": self._cells(),
            "part": roles.by_all.column("sub_table"),
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

    def _cells(self) -> exp.Subquery:
        """The cells with their sub-tables and values."""
        roles = self._roles
        values = exp.select(*roles.by_sa.read("code"), *roles.sa_in()).from_(table("privsql_values")).subquery("v")
        cells = exp.select(column("cell", "d"), column("sub_table", "d"), *roles.sa("v"))
        return cells.from_(table("privsql_domains").as_("d")).join(values, on="d.code = v.code").subquery()
