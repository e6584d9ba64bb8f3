"""Answer questions from noisy marginals, with the errors that the noise causes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.estimate import count_intervals, student_quantile
from privsql.answers.sql.cuts import refuse_cuts
from privsql.answers.sql.question import CountQuery, Measure
from privsql.engine.sqlfiles import all_rows, column, is_null, table
from privsql.errors import UsageError
from privsql.mechanisms.dp.answers import refuse_damaged
from privsql.mechanisms.dp.noisy_tables import drop_parents
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.dp.sum_errors import SumEstimator
from privsql.mechanisms.dp.unlisted import SURE, ListedAnswers, UnlistedColumn, read_question
from privsql.mechanisms.marginals.domains import ADDED, UNITS
from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts
from privsql.mechanisms.marginals.questions import CELLS, KnownColumns, MarginalQuestion, refuse_joins, split_question
from privsql.mechanisms.marginals.tables import ROWS, PublishedMarginals
from privsql.model.arrays import round_copies
from privsql.model.bins import Bins
from privsql.model.estimates import Estimate, RestsOn
from privsql.model.universes import NO_BINS, find_unlisted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.sql.question import Lookups, Statement
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import CellSums, Reals
    from privsql.model.manifest import Manifest

# Answers --------------------------------------------------------------------------------------------------------------
# Two estimators answer counts: the model that fits all noisy tables, and the least-squares estimate of the tables.

BASELINE = (
    "estimate = sum over the cells that meet the condition of the least-squares estimate from all noisy tables; "
    "unbiased, with an exact variance, where one table has all columns of the question, else without an interval"
)
FORMULA = (
    "estimate = sum over the cells that meet the condition of the table of largest entropy that agrees with the noisy "
    "tables: combined by least squares, shrunk towards what smaller tables make likely, non-negative"
)
SUMMED = (
    "sum = lower end * number of values + the least-squares estimate, from noisy sums, of what values lie above it; "
    "mean = sum / number of values; values are clamped to the ends of the column's bins, and NULL is none"
)
DEGREES = 8.0  # degrees of freedom of intervals by the model, as the size of its errors is itself estimated
NOISE_DEGREES = 20.0  # degrees of freedom that make intervals wide enough for the Laplace noise of one count


class MarginalAnswers(ListedAnswers):
    """An open release of marginals, which answers counts, and SUM and AVG of measured columns (those with noisy sums).

    The model of the tables is fitted once, at the first answer that needs it.
    """

    records = values = ROWS
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest, database)
        self.measures = frozenset(("sum", "avg") if self.measured_columns else ())

    @property
    def in_bins(self) -> frozenset[str]:
        """Return the names of the columns published in bins or as first characters, without all their single values."""
        coarse = (self.known_columns.fields[place].name for place in self.known_columns.edges)
        return frozenset((*coarse, *self._prefixes))

    @cached_property
    def _prefixes(self) -> dict[str, Bins]:
        """Return the columns whose texts are published as first characters only, each with the number of characters."""
        known = {one.name: self._params.domain(one.name) for one in self._manifest.sensitive}
        return {name: Bins(prefix=one.prefix) for name, one in known.items() if one is not None and one.prefix}

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Parse the analyst's SQL.

        Raises:
            UsageError: It asks for SUM or AVG of a column without noisy sums, or for more characters of a text than are
                published.
        """
        return refuse_cuts(super().parse_sql(sql, lookups), self._prefixes, {}, self._manifest.sensitive)

    @cached_property
    def _params(self) -> Contingency:
        return Contingency.model_validate(self._manifest.parameters)

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Return the names of the columns for which SUM and AVG are answered."""
        return tuple(one.name for one in self._manifest.sensitive if self._params.is_measured(one.name))

    def rests_on(self, query: CountQuery, estimator: str) -> RestsOn:
        """Return ``interval``: every answer's bounds hold with a stated confidence, and are never certain or exact."""
        return "interval"

    @cached_property
    def published_marginals(self) -> PublishedMarginals:
        """Return the tables of the release; raise ``UsageError`` if they are damaged."""
        rows = {name: self._read_table(name, *keys) for name, keys in PublishedMarginals.ORDERS.items()}
        with refuse_damaged():
            return PublishedMarginals.read(self._params, self._manifest.sensitive, rows)

    @cached_property
    def known_columns(self) -> KnownColumns:
        """Return the columns' types, numbers of values, bins and unlisted values, to translate questions by them."""
        params, published = self._params, self.published_marginals
        sizes, edges, unlisted = published.rule.sizes, {}, {}
        for place, field in enumerate(self._manifest.sensitive):
            ends, labels, other = params.bin_edges(field.name), list[str](), sizes[place] - ADDED
            if params.is_coarse(field.name, field.type):
                edges[place] = ends
            else:
                labels = [text for text in self._list_labels(place, other) if text is not None]
            stand_in = find_unlisted(field.type, labels, (ends[0], ends[-1]) if ends else NO_BINS)
            if stand_in is not None:
                (alone,) = (one for one in published.tables if one.columns == (place,))
                occurs = bool(alone.counts[other] > SURE * alone.variance**0.5)
                unlisted[place] = UnlistedColumn(field, labels, stand_in, occurs)
        points = np.bincount(published.domains["place"].to_numpy(), minlength=len(sizes))
        return KnownColumns(tuple(self._manifest.sensitive), sizes, tuple(points.tolist()), edges, unlisted)

    def _list_labels(self, place: int, codes: int) -> list[str | None]:
        """Return the texts of a column's first values.

        Args:
            place: The position of the column.
            codes: How many values to list: those with the codes 0 to ``codes`` - 1.
        """
        domains = self.published_marginals.domains
        return [*domains.filter((pc.field("place") == place) & (pc.field("code") < codes))["value"].to_pylist()]

    @property
    def unlisted(self) -> list[UnlistedColumn]:
        """Return the columns that may have values outside their lists."""
        return [*self.known_columns.unlisted.values()]

    def list_values(self, name: str, most: int) -> list[str | None]:
        """Return the texts of at most ``most`` values of a column; the list is empty for a column in bins."""
        place = self.published_marginals.rule.names.index(name)
        if place in self.known_columns.edges:
            return []
        return [*dict.fromkeys(self._list_labels(place, self.known_columns.sizes[place]))][:most]

    @cached_property
    def sum_estimator(self) -> SumEstimator:
        """Return the estimator of counts, which uses the model that is fitted to the noisy tables."""
        with refuse_damaged():
            errors = MarginalFacts.model_validate(self._manifest.facts).errors
            return SumEstimator(self.published_marginals.model, errors)

    def _split_question(self, query: CountQuery) -> MarginalQuestion:
        refuse_joins(query)
        return split_question(query, self.known_columns, self._database)

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that finds which cells an answer adds up, and the formula of the estimate in words."""
        formula = self.formulas[estimator] if query.measure.kind == "count" else SUMMED
        return self._split_question(read_question(query, self.unlisted).query).statement(), formula

    def answer_reading(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate a question, with one row for each group that the columns' values allow.

        Unlisted values are treated as one stand-in value. If a condition holds for a part of a bin only, the interval
        covers the counts without any and with all of the bin's records.
        """
        if query.measure.kind != "count":
            return self._answer_amounts(query, confidence)
        groups, sums = self._split_question(query).read_sums(self._db)
        if len(sums.columns) > 1:
            degrees = np.inf if estimator == "baseline" else DEGREES
        else:
            degrees = np.inf if find_law(self._params).concentrated else NOISE_DEGREES

        def estimate(sums: CellSums) -> list[Estimate]:
            values, variances = self._estimate_sums(sums, estimator)
            return make_estimates(groups, values, variances, confidence, degrees)

        if sums.is_whole:
            return estimate(sums)
        # All records of a bin that is cut may lie on either side of the cut.
        low, high = (estimate(sums.round_weights(up=up)) for up in (False, True))
        return [
            replace(row, std_error=None, low=least.low, high=most.high)
            for row, least, most in zip(estimate(sums), low, high, strict=True)
        ]

    # Sums and means ---

    def _answer_amounts(self, query: CountQuery, confidence: float) -> list[Estimate]:
        """Estimate SUM or AVG of a measured column from its noisy sums.

        The lowest value is ``low``. With N values, and the sum S of what they exceed ``low`` by, the sum is low N + S
        and the mean is low + S / N. The errors of S and N are independent.

        Raises:
            UsageError: No table of noisy sums has the columns of the question, or a condition cuts a bin.
        """
        name = str(query.measure.column)
        groups, sums = self._split_question(query).read_sums(self._db)
        squares, rule = self.published_marginals.amounts[name], self.published_marginals.rule
        sums, *unlisted = drop_parents(sums, rule.nested, rule.sizes)
        if unlisted:
            parents = ", ".join(rule.names[one.parent] for one in rule.nested if one.parent in unlisted[0].columns)
            raise UsageError(f"SUM and AVG of {name}: leave out {parents}, which another column determines")
        if sums.classes or not sums.is_whole:
            raise UsageError(f"SUM and AVG of {name} are of listed values and whole bins; no part of a bin is added up")
        if not squares.is_measured(sums.columns):
            listed = ", ".join(repr(self._manifest.sensitive[i].name) for i in sums.columns)
            raise UsageError(
                f"SUM and AVG of {name} are measured by single columns and by the workload; ask by one column, or "
                f"publish with [{listed}] in mechanism.workload"
            )
        none = [is_null(column(name)), *(one.is_met for one in self.unlisted if one.field.name == name)]
        known = {**query.filters, "sa": [*query.filters["sa"], *map(exp.not_, none)]}
        counted = replace(query, measure=Measure(), filters=known)
        keys, counts = self._split_question(counted).read_sums(self._db)
        numbers = dict(zip(keys, map(Uncertain, *self.sum_estimator.estimate_sums(counts)), strict=True))
        amounts, variances = sums.sum_table(squares.estimate_table(sums.columns)), squares.sum_variances(sums)
        edges = self._params.bin_edges(name)
        low, high = float(edges[0]), float(edges[-1])
        scale, make = (high - low) / UNITS, estimate_sum if query.measure.kind == "sum" else estimate_mean
        result = []
        for group, amount, variance in zip(groups, amounts, variances, strict=True):
            excess = Uncertain(max(amount, 0.0) * scale, variance * scale**2)
            result.append(make(group, excess, numbers.get(group, Uncertain(0.0, 0.0)), low, high, confidence))
        return result

    def comparison_columns(self, conditions: Sequence[exp.Expr]) -> tuple[str, ...]:
        """Return the columns from whose common table two counts must be estimated to find how their errors correlate.

        These are all columns of both conditions. Counts from different noisy tables have different errors.

        Args:
            conditions: The conditions of both counts.
        """
        places = frozenset().union(*map(self.known_columns.column_places, conditions))
        return tuple(sorted(self.known_columns.fields[place].name for place in places))

    def make_synthetic(self) -> pa.Table:
        """Return the release's synthetic records: each weighted row is repeated about as often as its weight says."""
        rows = self._db.arrow(all_rows(table(ROWS, self._database)))
        weight = self._roles.by_sa.column_name("weight")
        whose = np.repeat(np.arange(len(rows)), round_copies(rows[weight].to_numpy()))
        return rows.drop_columns(weight).take(pa.array(whose))

    def _estimate_sums(self, sums: CellSums, estimator: str) -> tuple[Reals, Reals]:
        """Return the estimated counts of a question's groups, and the variances of their errors.

        The baseline estimator has infinite variances where no measured table has all columns of the question.

        Args:
            sums: For each group, the cells of a table over which its count is a sum.
            estimator: The estimator, ``baseline`` (least squares) or ``reconstructed`` (the model).
        """
        rule = self.published_marginals.rule
        parts = [self._estimate_part(one, estimator) for one in drop_parents(sums, rule.nested, rule.sizes)]
        values, variances = (np.sum(one, axis=0) for one in zip(*parts, strict=True))
        return values, variances

    def _estimate_part(self, sums: CellSums, estimator: str) -> tuple[Reals, Reals]:
        """Return the estimated counts of one part of a question, and the variances of their errors.

        ``_estimate_sums`` splits a question into parts, so that a part has no column that another of its columns
        determines, where that is possible.

        Args:
            sums: For each group, the cells of a table over which its count is a sum.
            estimator: The estimator, ``baseline`` (least squares) or ``reconstructed`` (the model).

        Raises:
            UsageError: The table has too many cells for the baseline estimator.
        """
        if estimator != "baseline":
            return self.sum_estimator.estimate_sums(sums)
        squares = self.sum_estimator.model.squares
        if sums.classes or np.prod([self.known_columns.sizes[i] for i in sums.columns]) > CELLS:
            raise UsageError("the baseline is not available for so many values; use fewer columns")
        return sums.sum_table(squares.estimate_table(sums.columns)), squares.sum_variances(sums)


@dataclass(frozen=True)
class Uncertain:
    """An estimate and the variance of its error.

    Attributes:
        mean: The estimate.
        variance: The variance of its error.
    """

    mean: float
    variance: float


def estimate_sum(
    group: tuple[Any, ...], excess: Uncertain, number: Uncertain, low: float, high: float, confidence: float
) -> Estimate:
    """Estimate the sum of values that lie between ``low`` and ``high``, with an interval for normal errors.

    Args:
        group: The group of the answer.
        excess: The sum of what the values exceed ``low`` by.
        number: The number of values.
        low: The lowest possible value.
        high: The highest possible value.
        confidence: The confidence of the interval.
    """
    value = low * number.mean + excess.mean
    error = math.sqrt(excess.variance + low**2 * number.variance)
    reach = float(student_quantile((1 - confidence) / 2, np.inf)) * error
    least, most = (0.0 if low >= 0 else -np.inf), (0.0 if high <= 0 else np.inf)
    return Estimate(group, min(value, most), error, max(value - reach, least), min(value + reach, most))


def estimate_mean(
    group: tuple[Any, ...], excess: Uncertain, number: Uncertain, low: float, high: float, confidence: float
) -> Estimate:
    """Estimate the mean of values that lie between ``low`` and ``high``, with an interval by the delta method.

    If the group may hold no value, the estimate is the middle of ``low`` and ``high``, and the interval reaches from
    one to the other.

    Args:
        group: The group of the answer.
        excess: The sum of what the values exceed ``low`` by.
        number: The number of values.
        low: The lowest possible value.
        high: The highest possible value.
        confidence: The confidence of the interval.
    """
    quantile = float(student_quantile((1 - confidence) / 2, np.inf))
    if number.mean - quantile * math.sqrt(number.variance) < 1:
        return Estimate(group, (low + high) / 2, None, low, high)
    mean = min(low + excess.mean / number.mean, high)
    error = math.sqrt(excess.variance + (mean - low) ** 2 * number.variance) / number.mean
    return Estimate(group, mean, error, max(mean - quantile * error, low), min(mean + quantile * error, high))


def make_estimates(
    groups: Sequence[tuple[Any, ...]], values: Reals, variances: Reals, confidence: float, degrees: float
) -> list[Estimate]:
    """Return an estimate with its interval for each of G groups.

    Args:
        groups: The groups of the answer (G,).
        values: The estimated counts (G,).
        variances: The variances of their errors (G,). If one is infinite, its estimate gets no interval.
        confidence: The confidence of the intervals.
        degrees: The degrees of freedom of Student's law; infinite for normal errors.
    """
    known = np.isfinite(variances)
    errors = np.sqrt(np.where(known, variances, 0.0))
    low, high = count_intervals(values, errors, confidence, degrees)
    figures = (errors, np.minimum(low, values), np.maximum(high, np.maximum(values, 0.0)))
    return [
        Estimate(group, value, *shown) if is_known else Estimate(group, value, None, None, None)
        for group, value, is_known, *shown in zip(
            groups, values.tolist(), known.tolist(), *(one.tolist() for one in figures), strict=True
        )
    ]
