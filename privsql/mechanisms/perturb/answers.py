"""Answer questions from perturbed values, by an unbiased formula or by reconstructing true counts.

The formula is equation 7 of the papers. It subtracts the records that show an asked value by chance, and divides by the
probability that a value is retained.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers import answer, estimate
from privsql.answers.estimate import (
    ConfidenceLevel,
    CountBounds,
    ReleaseQuestion,
    choose_functionals,
    collect_estimates,
    empty_estimates,
    read_sets,
)
from privsql.answers.learned_prior import (
    MOST_RECORDS,
    Sample,
    can_teach,
    comparable_columns,
    encode_values,
    learn_from_release,
)
from privsql.answers.sql.question import CountQuery, observation_holes
from privsql.engine.sqlfiles import Holes, column, fill, same_columns, table
from privsql.errors import UsageError
from privsql.mechanisms.perturb.tables import PublicParameters, read_public

if TYPE_CHECKING:
    from privsql.answers.channel import Channel, Floats
    from privsql.answers.estimate import RecordSets
    from privsql.answers.learned_prior import TaughtPrior
    from privsql.model.estimates import Estimate

# Baseline -------------------------------------------------------------------------------------------------------------
# In sub-table j, |Res_j| records meet the condition on quasi-identifiers. The question asks for s_j of its values, and
# o_j of these records show one of them. This is equation 7, with its variance for a true count f if every record is
# perturbed independently:
#
#     f* = (o_j - |Res_j| s_j q_j)/p_j,
#     Var f* = [f (p + s q)(1 - p - s q) + (|Res_j| - f) s q (1 - s q)]/p^2,
#
# summed over the sub-tables. It uses only the records asked about, so it is unbiased, and it can be negative.

BASELINE_FORMULA = (
    "estimate = sum over sub-tables of (o - |Res| s q)/p (equation 7), s values asked for, o records with them"
)


def estimate_baseline(
    question: ReleaseQuestion, observed: RecordSets, public: PublicParameters, confidence: float
) -> list[Estimate]:
    """Estimate the counts in each row of an answer by the unbiased formula of the papers (equation 7).

    Args:
        question: The question.
        observed: For each set of records, such as one for each value in GROUP BY, the number of published records in
            every cell (a value of a sub-table).
        public: The public parameters of the sub-tables.
        confidence: The confidence of the intervals.
    """
    outputs, functionals = choose_functionals(question, observed, len(public.protected))
    if not observed.keys or not outputs:
        return empty_estimates(question.query)
    mean, variance, room = np.zeros((3, len(observed.keys), len(outputs)))
    for j in range(len(public.records)):
        cells = np.flatnonzero(public.sub_tables == j)
        wanted = functionals[..., public.code[cells], :]
        p, q = float(public.retention[j]), float(public.replacement[j])
        estimated, its_variance, s = estimate_subtable(observed.observed[:, cells], wanted, p, q)
        mean, variance, room = mean + estimated, variance + its_variance, room + s
    unbounded = np.full_like(mean, np.inf)
    parts = CountBounds(mean, variance, -unbounded, np.where(room > 0, unbounded, 0))
    return collect_estimates(question.query, observed, outputs, parts, ConfidenceLevel(confidence))


def estimate_subtable(observed: Floats, wanted: Floats, p: float, q: float) -> tuple[Floats, Floats, Floats]:
    """Estimate counts in one sub-table by the unbiased formula of the papers (equation 7).

    A cell is a value of the sub-table. The formula subtracts the records that show an asked value by chance, and
    divides by ``p``.

    Args:
        observed: The number of records in each of c cells of the sub-table, for each of G sets of records (G, c).
        wanted: The weight of each cell's value in each of F counts that a question asks for (c, F), or (G, c, F) if
            sets differ.
        p: The probability that a value is retained.
        q: The probability that a record gets any given other value.

    Returns:
        (the estimate, its variance, the number of values asked for in this sub-table), each (G, F).
    """
    result = np.asarray(np.einsum("gc,gcf->gf", observed, np.broadcast_to(wanted, (len(observed), *wanted.shape[-2:]))))
    totals = observed.sum(axis=1)[:, None]
    s = np.broadcast_to(wanted.sum(axis=-2), result.shape)
    estimate = (result - totals * s * q) / p
    f = np.clip(estimate, 0, totals)
    inside, outside = p + s * q, s * q
    variance = (f * inside * (1 - inside) + (totals - f) * outside * (1 - outside)) / p**2
    none = s == 0
    return np.where(none, 0, estimate), np.where(none, 0, variance), np.where(none, 0, s)


# Answers --------------------------------------------------------------------------------------------------------------

FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given the published records by sub-table "
    "and perturbed value; their expectation is M^T n, M the stacked perturbation matrices (see privsql.channel)"
)


class RandomizeAnswers(answer.Answers):
    """An open perturbed release that answers questions."""

    certain = frozenset()
    records = "perturbed"
    measures = frozenset()
    counts_values = True

    @cached_property
    def public_parameters(self) -> PublicParameters:
        """Return the public parameters, with the number of published records of every cell (a value of a sub-table)."""
        everyone = CountQuery((), {"qi": [], "sa": []}, {"qi": [], "sa": []})
        return read_public(self._db).with_totals(self._db.arrow(self._observation_query(everyone)))

    @property
    def channel(self) -> Channel:
        return self.public_parameters.channel

    @cached_property
    def _learned_prior(self) -> TaughtPrior | None:
        """Return a prior of values given quasi-identifiers, learnt from the release, that makes estimates more precise.

        The result is None if the release has too few records to learn from, too many to be read at once, or too many
        values.
        """
        records = self._manifest.published_records
        if records > MOST_RECORDS or not can_teach(self.channel, records):
            return None
        own = self._roles.by_all.select_columns("sub_table")
        named_so = exp.select(*own, *comparable_columns(self._roles), *self._roles.sa_in())
        holes: Holes = {
            "perturbed": named_so.from_(table("perturbed")).subquery(),
            "cells": self._cells_query(),
            "columns": self._roles.qi_columns("q"),
            "keys": self._roles.qi_columns(),
            "same_value": same_columns("q", "c", self._roles.sa_keys),
        }
        rows = self._db.arrow(fill("randomize/placed", holes))
        names = [field.name for field in self._roles.quasi_identifiers]
        columns = {name: encode_values(rows[key]) for name, key in zip(names, self._roles.qi_keys, strict=True)}
        shown = scipy.sparse.eye_array(self.channel.mean.shape[1], format="csr")
        places = rows["cell"].to_numpy().astype(np.int32)
        return learn_from_release(self.channel, Sample(places, shown, columns))

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        if estimator == "baseline" and query.measure.kind != "count":
            raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
        return self._observation_query(query), BASELINE_FORMULA if estimator == "baseline" else FORMULA

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        question = ReleaseQuestion(
            self._db,
            query,
            table("perturbed"),
            self.channel,
            independent=True,
            most=self.public_parameters.by_value(self.public_parameters.most_records),
            uncertain=self.public_parameters.by_value(self.public_parameters.estimated[1] ** 2),
            taught=self._learned_prior if estimator != "baseline" else None,
            code=self._roles.by_sa.column_name("code"),
        )
        rows = self._db.arrow(self._observation_query(query))
        observed = read_sets(question, rows, np.ones(len(rows)))
        if estimator == "baseline":
            return estimate_baseline(question, observed, self.public_parameters, confidence)
        return estimate.estimate_rows(question, observed, confidence)

    def _observation_query(self, query: CountQuery) -> exp.Query:
        """Return the query that counts by published value the records that meet the condition on quasi-identifiers."""
        roles = self._roles
        holes: Holes = {
            "perturbed": query.join_lookups(table("perturbed")),
            "cells": self._cells_query(),
            "part": roles.by_all.as_column("sub_table"),
            "sa": roles.sa_in(),
            "sa_keys": [column(field.name) for field in roles.sensitive],
            "same_value": same_columns("q", "c", roles.sa_keys),
        }
        return fill("randomize/observed", holes | observation_holes(query))

    def _cells_query(self) -> exp.Subquery:
        """Return the query for all cells: pairs of a sub-table and one of its values."""
        roles = self._roles
        values = exp.select(*roles.by_sa.select_columns("code"), *roles.sa_in()).from_(table("privsql_values"))
        cells = exp.select(column("cell", "d"), column("sub_table", "d"), *roles.sa_columns("v"))
        listed = cells.from_(table("privsql_domains").as_("d")).join(values.subquery("v"), on="d.code = v.code")
        return listed.subquery()
