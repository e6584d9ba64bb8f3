"""Answer questions from noisy tables of sensitive values, with intervals from the noise or from draws of a model.

The model is fitted to the noisy tables. It gives the probability (weight) of each sensitive value in each combination
of quasi-identifiers. An estimated count is a sum of these weights over records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import pi
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers import answer
from privsql.answers.answer import DRAWN_COLUMNS, AttachedModel
from privsql.answers.estimate import (
    ConfidenceLevel,
    CountBounds,
    WeightedSums,
    as_sums,
    count_groups,
    empty_estimates,
)
from privsql.answers.sql.question import group_terms, select_terms, side_holes
from privsql.dp_random import SUBSTITUTION
from privsql.engine.files import unused_name
from privsql.engine.sqlfiles import Holes, alias_as, all_of, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms.dp.answers import refuse_damaged
from privsql.mechanisms.dp.unlisted import SURE, ListedAnswers, UnlistedColumn, read_question
from privsql.mechanisms.label_tables.model import MeasuredDesign, combine_tables, complete_records
from privsql.mechanisms.label_tables.tables import PEOPLE, VALUES, WEIGHTS, read_effects, read_published, read_weights
from privsql.mechanisms.perturb.parameters import Randomize
from privsql.model.estimates import Estimate, same_nan
from privsql.model.universes import find_unlisted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from privsql.answers.sql.question import CountQuery, Side
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.rule import Ints, TablesRule

# Measured cells -------------------------------------------------------------------------------------------------------
# The noise of a sum of n counts of one table is a sum of n independent discrete Laplace variables. Its characteristic
# function is ((1 - p)^2/(1 - 2 p cos t + p^2))^n with p = e^(-1/scale).

FEW_CELLS = 20  # sums of more counts get their intervals from the draws of the model
ROUNDING = 1e-4  # largest rounding error of a count
FINEST, FARTHEST_NOISE = 2_000.0, 26  # lattice of the noise: steps in one scale, and its width in standard deviations


@cache
def noise_reach(budgets: tuple[Fraction, ...], cells: int, confidence: float) -> float:
    """Return the smallest q such that the noise of a sum of counts lies in -q .. q with probability ``confidence``.

    Args:
        budgets: The epsilon of one or two measurements of the table. Two are averaged, weighted by precision.
        cells: The number of counts that are summed.
        confidence: The confidence of the interval.
    """
    variances = np.array([SUBSTITUTION.variance(one) for one in budgets])
    scales = [SUBSTITUTION.scale(one) for one in budgets]
    step, shares, laws = max(1.0, max(scales) / FINEST), 1 / variances / (1 / variances).sum(), []
    for scale, variance in zip(scales, variances.tolist(), strict=True):
        p, reach = np.exp(-step / scale), int(FARTHEST_NOISE * (cells * variance) ** 0.5 / step) + 40
        angles = pi * np.arange(reach + 1) / reach
        law = np.fft.irfft(((1 - p) ** 2 / (1 - 2 * p * np.cos(angles) + p**2)) ** cells)
        laws.append((np.arange(-reach, reach), np.roll(law, reach)))
    (places, chances), *others = laws
    if not others:
        return step * float(np.searchsorted(np.cumsum(np.bincount(np.abs(places), chances)), confidence))
    (steps, law), least, most = others[0], 0.0, float(len(places) + len(others[0][0]))
    below = np.concatenate(([0.0], np.cumsum(law)))
    while most - least > 1e-3 * most:
        q = (least + most) / 2
        low, high = (np.sign(side) * q - shares[0] * places for side in (-1, 1))
        first = np.searchsorted(shares[1] * steps, low, side="left")
        last = np.searchsorted(shares[1] * steps, high, side="right")
        least, most = (least, q) if chances @ (below[last] - below[first]) >= confidence else (q, most)
    return step * most


@dataclass(frozen=True)
class MeasuredCount:
    """A noisy count that is a sum over cells of one published table, so that the law of its noise is known exactly.

    Attributes:
        count: The noisy count.
        records: The number of records among which it counts, which is its largest possible value.
        cells: The number of noisy counts that are summed.
        variance: The variance of the noise of each of them.
        budgets: The epsilon of each measurement of the table.
    """

    count: float
    records: float
    cells: int
    variance: float
    budgets: tuple[Fraction, ...]

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the noise of the count."""
        return float(np.sqrt(self.cells * self.variance))

    def set_interval(self, one: Estimate, confidence: float) -> Estimate:
        """Give a model's estimate of the same count an interval that follows from the exact law of the noise.

        Its standard error combines the deviation of the noise and the estimate's distance from the noisy count, but is
        no larger than an error can be. If more than ``FEW_CELLS`` noisy counts are summed, the estimate is returned
        unchanged.
        """
        if one.estimate is None or not one.std_error or not 1 <= self.cells <= FEW_CELLS:
            return one
        reach = noise_reach(self.budgets, self.cells, confidence)
        estimate = float(one.estimate)
        low = min(max(np.ceil(self.count - reach - ROUNDING), 0.0), estimate)
        high = max(min(np.floor(self.count + reach + ROUNDING), self.records), estimate)
        largest = max(estimate, self.records - estimate)  # the truth lies between 0 and the number of records
        error = min(float(np.hypot(self.deviation, estimate - self.count)), largest)
        return replace(one, std_error=error, low=float(low), high=float(high))


# Answers --------------------------------------------------------------------------------------------------------------
# An answer is a sum of weights. Its variance has two parts: how the sum varies between the published draws of the
# model's parameters, and how records vary by chance around their weights. Intervals of sums and means are widened by a
# measured factor, because real tables deviate from the model.

MISFIT_OF_AMOUNTS = 1.5
COMPLETED, NUMBERED = "completed_codes", "numbered_people"  # names of relations
MOST_NUMBERS = 2**29  # most weights of all draws in memory; of large releases fewer draws are used
FEWEST_DRAWS = 5

FORMULA = (
    "estimate = sum over the matching records and values of w, the weight of a value for a record's combination of "
    "quasi-identifiers (privsql_weights, fitted to the noisy tables)"
)


def _selects_listed(condition: exp.Expr, values: Sequence[str]) -> bool:
    """Return whether a condition restricts its column to some of ``values``, such as ``column IN ('a', 'b')``.

    If so, a sum over the column includes no unlisted values, whose numbers are unknown.
    """
    part = condition.unnest()
    wanted = part.expressions if isinstance(part, exp.In) else [part.args.get("expression")]
    plain = isinstance(part, exp.In | exp.EQ) and isinstance(part.this, exp.Column)
    return plain and all(isinstance(one, exp.Literal) and one.name in values for one in wanted)


class TablesAnswers(ListedAnswers):
    """An open release of noisy tables.

    It answers by weights: the fitted probability of each sensitive value in each combination of quasi-identifiers.
    Questions on quasi-identifiers alone are answered exactly.
    """

    records, formulas = PEOPLE, {"reconstructed": FORMULA}
    estimators: ClassVar[tuple[str, ...]] = ("reconstructed",)
    counts_values = draws_tables = True

    parse_sql = answer.Answers.parse_sql

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        return self._sums_query(read_question(query, self.unlisted).query), FORMULA

    @cached_property
    def unlisted(self) -> list[UnlistedColumn]:
        """Return the sensitive column if its type has values outside the public list; else an empty list."""
        rule, tables = self._published
        params, (field,) = Randomize.model_validate(self._manifest.parameters), self._roles.sensitive
        stand_in, other = find_unlisted(field.type, params.values), len(params.values)
        if stand_in is None:
            return []
        measured = [one for k, one in combine_tables(tables, rule.values).items() if k < rule.columns]
        occurs = any(counts[:, other].sum() > SURE * (len(counts) * variance) ** 0.5 for counts, variance in measured)
        return [UnlistedColumn(field, params.values, stand_in, occurs, not params.null_is_value)]

    def require_numbers(self, query: CountQuery, estimator: str) -> None:
        """Raise ``UsageError`` if a sum or mean may include unlisted values, whose numbers are unknown."""
        super().require_numbers(query, estimator)
        (field,), params = self._roles.sensitive, Randomize.model_validate(self._manifest.parameters)
        if self._has_unlisted and not any(_selects_listed(one, params.values) for one in query.filters["sa"]):
            raise UsageError(
                f"{query.measure.kind.upper()}({field.name}): some records have values that are not listed, whose "
                f"numbers are unknown; ask of listed ones alone, by WHERE {field.name} IN (..)"
            )

    @property
    def can_complete(self) -> bool:
        """Return whether completed tables (records with one drawn sensitive value each) can be drawn.

        That is so if no record has an unlisted value.
        """
        return not self._has_unlisted

    def complete_tables(self) -> AttachedModel:
        """Draw completed tables: in each, every record has one sensitive value, drawn from the fitted model.

        A release gives the same tables each time.

        Raises:
            UsageError: Some records have unlisted values, or the release is damaged.
        """
        rule, tables = self._published
        if self._has_unlisted:
            raise UsageError("some records have values that are not listed, which completed tables do not tell")
        with refuse_damaged():
            measured = MeasuredDesign.from_tables(tables, rule)
            effects = read_effects(self._db, measured, self._database)
            weights = read_weights(self._db, rule, self._database)
        kind = np.uint8 if rule.values <= np.iinfo(np.uint8).max else np.uint16
        drawn = complete_records(measured, tables, weights, effects)
        codes = {name: one.astype(kind) for name, one in zip(DRAWN_COLUMNS, drawn, strict=True)}
        records = np.arange(rule.codes.sizes.sum(), dtype=np.int32)
        self._db.register_arrow(COMPLETED, pa.table({"record": records, **codes}))
        number = unused_name("record", [field.name for field in self._db.list_fields(table(PEOPLE))])
        # Number the records combination by combination. Records of one combination are interchangeable.
        order = exp.Order(expressions=[self._roles.by_qi.as_column("combination", "r")])
        place = exp.Window(this=exp.RowNumber(), order=order) - exp.Literal.number(1)
        star = exp.Column(this=exp.Star(), table=exp.to_identifier("r"))
        self._db.create_table(NUMBERED, exp.select(alias_as(place, number), star).from_(table(PEOPLE).as_("r")))
        return AttachedModel(table(WEIGHTS), temp_table(COMPLETED), NUMBERED, number)

    @cached_property
    def _has_unlisted(self) -> bool:
        """Return whether the noisy tables show with near certainty that some records have unlisted values."""
        rule, tables = self._published
        other, columns = len(Randomize.model_validate(self._manifest.parameters).values), range(rule.columns)
        measured = [one for k, one in combine_tables(tables, rule.values).items() if k in columns]
        sums = [(float(counts[:, other].sum()), len(counts) * variance) for counts, variance in measured]
        precision = sum(1 / variance for _, variance in sums)
        return bool(sum(number / variance for number, variance in sums) > SURE * precision**0.5)

    @property
    def _values(self) -> exp.Expr:
        """Return SQL for the table of sensitive values, in which unlisted values get one value of the column's type."""
        if not self.unlisted or self.unlisted[0].is_text:
            return table(VALUES)
        (one,), code = self.unlisted, self._roles.by_sa.column_name("code")
        held = one.name_value(column(one.field.name), column(code).eq(exp.Literal.number(len(one.labels))))
        return exp.select(column(code), alias_as(held, one.field.name)).from_(table(VALUES)).subquery("listed")

    def answer_reading(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """Estimate each group of an answer, as if all unlisted values were one stand-in value.

        A count is a sum of weights, which are the fitted probabilities that records have the values asked for.
        """
        rows = self._db.arrow(self._sums_query(query, temp_table("drawn"), self._draws))
        names = [f"g_{i}" for i in range(len(query.groups))]
        keys = rows.select(names).to_pylist() if names else [{}] * len(rows)
        groups = [tuple(same_nan(key[name]) for name in names) for key in keys]
        sums = WeightedSums.read(rows)
        if not groups or not sums.known.any():
            return empty_estimates(query)
        sums = self._add_spread(sums, rows)
        level = ConfidenceLevel(confidence, len(self._draws) - 1)
        of_count = (sums.n, sums.nn, np.zeros_like(sums.n), sums.known)
        counts = CountBounds(*(part[:, None] for part in of_count))
        if query.measure.amount is None:
            measured = self._measured_counts(query)
            counted = count_groups(groups, counts, level)
            return [
                measured[one.group].set_interval(one, confidence) if one.group in measured else one for one in counted
            ]
        value, _, variance = sums.measure_amounts(query.measure.kind)
        figures = sums.bound_amounts(query, value, MISFIT_OF_AMOUNTS**2 * variance, counts, level)
        return [Estimate(group, *row) for group, row in zip(groups, figures, strict=True)]

    @cached_property
    def _draws(self) -> list[str]:
        """Create relation ``drawn``: the weights (probabilities of values) by the fitted model and each draw of it.

        A draw is one random choice of the model's parameters from their posterior. The relation has the columns
        combination, code, weight, and one column for each draw.

        Returns:
            The names of the columns for the draws.
        """
        rule, tables = self._published
        with refuse_damaged():
            measured = MeasuredDesign.from_tables(tables, rule)
            effects = read_effects(self._db, measured, self._database)
            weights = read_weights(self._db, rule, self._database)
        effects = effects[: max(FEWEST_DRAWS, MOST_NUMBERS // weights.size)]
        codes = np.arange(rule.values, dtype=np.int32)
        columns = {
            "combination": np.repeat(np.arange(len(weights), dtype=np.int32), rule.values),
            "code": np.tile(codes, len(weights)),
            "weight": weights.ravel(),
        }
        drawn = zip(DRAWN_COLUMNS, measured.list_weights(effects), strict=False)
        named = {name: one.ravel() for name, one in drawn}
        self._db.register_arrow("drawn", pa.table(columns | named))
        return list(named)

    def _add_spread(self, sums: WeightedSums, rows: pa.Table) -> WeightedSums:
        """Add to the variances of sums how much the sums differ between draws of the model's parameters.

        Args:
            sums: The sums of weights for each group of an answer, with the variances that they have by chance.
            rows: For each group, a row with the sums of weights under every draw (columns n_DRAW and a_DRAW).
        """
        share = (1 + 1 / len(self._draws)) / (len(self._draws) - 1)
        drawn = [np.stack([as_sums(rows[f"{part}_{name}"]) for name in self._draws]) for part in ("n", "a")]
        count, amount = (one - one.mean(axis=0) for one in drawn)
        return replace(
            sums,
            nn=np.maximum(sums.nn, 0.0) + share * (count**2).sum(axis=0),
            na=sums.na + share * (count * amount).sum(axis=0),
            aa=np.maximum(sums.aa, 0.0) + share * (amount**2).sum(axis=0),
        )

    @cached_property
    def _published(self) -> tuple[TablesRule, list[NoisyTable]]:
        with refuse_damaged():
            return read_published(self._db, self._manifest, self._database)

    def _measured_counts(self, query: CountQuery) -> dict[tuple[Any, ...], MeasuredCount]:
        """Return for each group of an answer an estimate of its count that is a sum of noisy counts of one table.

        If several tables have such a sum, the one with the least noise is taken. Groups that consist of whole cells of
        no table are missing.
        """
        if query.predicate is not None or query.lookups:
            return {}
        rule, tables = self._published
        roles, sides = self._roles, [group.side for group in query.groups]
        people, member, combination = self._read_side(query, "qi", table(PEOPLE), roles.by_qi.as_column("combination"))
        listed, group, code = self._read_side(query, "sa", self._values, roles.by_sa.as_column("code"))
        wanted, found = np.zeros((len(listed), rule.values)), dict[tuple[Any, ...], MeasuredCount]()
        wanted[group, code] = 1
        more = 2 * wanted.sum(axis=1, keepdims=True) > rule.values  # then count the other values, and subtract
        few = np.where(more, 1 - wanted, wanted)
        for k, (counts, variance) in combine_tables(tables, rule.values).items():
            budgets = tuple(one.budget for one in tables if one.columns == (k,))
            whole = np.bincount(rule.codes.tables[k].cells, rule.codes.sizes)
            for at, cells in rule.codes.tables[k].find_unions(rule.codes.sizes, member, combination).items():
                records, sums = float(whole[cells].sum()), few @ counts[cells].sum(axis=0)
                noisy = np.where(more[:, 0], records - sums, sums).tolist()
                for key, count, number in zip(listed, noisy, few.sum(axis=1).tolist(), strict=True):
                    left, right = iter(people[at]), iter(key)
                    both = tuple(next(left) if side == "qi" else next(right) for side in sides)
                    one = MeasuredCount(count, records, int(number) * len(cells), variance, budgets)
                    if both not in found or one.deviation < found[both].deviation:
                        found[both] = one
        return found

    def _read_side(
        self, query: CountQuery, side: Side, relation: exp.Expr, code: exp.Expr
    ) -> tuple[list[tuple[Any, ...]], Ints, Ints]:
        """Read which combinations of quasi-identifiers, or which sensitive values, a question selects.

        Args:
            query: The question.
            side: ``qi`` to read what conditions and groups by quasi-identifiers select, ``sa`` for sensitive values.
            relation: The relation with the records or the list of values.
            code: SQL for the number of a row's combination or value.

        Returns:
            (the values in GROUP BY of each group, and two arrays with an entry for each number that a group selects:
            the group, the number).
        """
        names = [name for name, _ in group_terms(query, side)]
        chosen = exp.select(*select_terms(query, side), alias_as(code, "code")).distinct().from_(relation)
        rows = self._db.arrow(chosen.where(all_of(query.filters[side])))
        keys = [tuple(same_nan(row[name]) for name in names) for row in rows.select(names).to_pylist()]
        places: dict[tuple[Any, ...], int] = {}
        at = np.array([places.setdefault(key, len(places)) for key in keys or [()] * len(rows)], dtype=np.int64)
        return list(places), at, rows["code"].to_numpy().astype(np.int64)

    def _sums_query(self, query: CountQuery, weights: exp.Table | None = None, drawn: Sequence[str] = ()) -> exp.Query:
        """Return the query that sums weights (probabilities of values) over the records that a question selects.

        Args:
            query: The question.
            weights: The relation of weights; None for that of the release.
            drawn: Columns of ``weights`` that hold the weights by single draws of the model; they are summed as well.
        """
        amount, roles = query.measure.amount, self._roles
        one = exp.case().when(column("t").is_(exp.null()), exp.Literal.number(0)).else_(exp.Literal.number(1))
        holes: Holes = {
            "people": query.join_lookups(table(PEOPLE)),
            "weights": weights or table(WEIGHTS),
            "values": self._values,
            "combination": roles.by_qi.as_column("combination"),
            "code": roles.by_sa.as_column("code"),
            "names": [column(name) for name, _ in group_terms(query, "qi")],
            "groups": [column(f"g_{i}") for i in range(len(query.groups))],
            "predicate": query.predicate or exp.true(),
            "amount": exp.cast(amount, "DOUBLE") if amount is not None else exp.cast(exp.Literal.number(1), "DOUBLE"),
            "drawn": [alias_as(exp.Sum(this=exp.cast(column(name, "w"), "DOUBLE")), name) for name in drawn],
            "sums": [
                alias_as(exp.Sum(this=part * column("m") * column(name)), f"{prefix}_{name}")
                for prefix, part in (("n", one), ("a", column("t")))
                for name in drawn
            ],
        }
        return fill("randomize/believed", holes | side_holes(query))
