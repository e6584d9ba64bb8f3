"""Answer questions from permuted groups, with bounds that are certain: counts and amounts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
import scipy
from sqlglot import exp

from privsql.answers import answer
from privsql.answers.channel import Channel, Floats
from privsql.answers.estimate import (
    CountBounds,
    ReleaseQuestion,
    choose_functionals,
    empty_estimates,
    locate_cells,
    pool_sets,
    read_sets,
)
from privsql.answers.sql.question import CountQuery, group_terms, observation_holes, select_terms
from privsql.engine.sqlfiles import Holes, alias_as, column, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.permute.tables import Contents, read_contents
from privsql.model.estimates import BASELINE, Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from fractions import Fraction

    import pyarrow as pa

    from privsql.answers.estimate import AnswerCells, RecordSets
    from privsql.mechanisms.permute.tables import Ints

    Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

# Amounts --------------------------------------------------------------------------------------------------------------
# SUM, AVG, MIN, MAX, MEDIAN and quantiles of the sensitive column: an estimate, and bounds that are certain
# (Zhang et al., ICDE 2007).
#
# For every group g the release tells n_g, how many of its records meet the condition on quasi-identifiers, and the
# values of all |g| records. It does not tell which n_g of the |g| they are. So an answer is certain between the best
# and the worst choice; the estimate is the mean over all choices. "Chosen" values are those that meet the condition on
# the sensitive column.
#
# SUM and AVG of a quasi-identifier are the same with the sides exchanged: the chosen values are those of the records
# that meet the condition on quasi-identifiers, and n_g is how many values of the group meet that on the sensitive one.
#
# There is no standard error. It would depend on how values go with quasi-identifiers inside a group, and nothing in a
# release shows that (docs/numbers.md has what was measured).

EXACT = 2.0**53  # below which doubles add up whole numbers without rounding
STEPS = 60  # the search for an extreme average takes no more; it halts far earlier
Figures = tuple[Floats, Floats, Floats]  # estimate, low, high, each (S,)


@dataclass(frozen=True)
class ChosenValues:
    """The chosen values of every group, in rising order.

    Attributes:
        group: The group of each row, rising (R,).
        rank: The rank of the row's value (R,).
        records: The records of the group with this value (R,).
        values: The value of each rank, rising (m,).
        sizes: The records of each group, chosen or not (B,).
    """

    group: Ints
    rank: Ints
    records: Ints
    values: Floats  # (m,) by rank, rising
    sizes: Ints

    @cached_property
    def row_keys(self) -> Ints:
        """Return a number for every row that combines group and rank; the numbers rise (R,)."""
        return np.asarray(self.group * (len(self.values) + 1) + self.rank)

    @cached_property
    def running_counts(self) -> Ints:
        """Return the number of records before every row, and then that of all rows (R + 1,)."""
        return np.concatenate(([0], np.cumsum(self.records)))

    @cached_property
    def running_sums(self) -> Floats:
        """Return the sum of values before every row, and then that of all rows (R + 1,)."""
        return np.concatenate(([0.0], np.cumsum(self.records * self.values[self.rank])))

    @cached_property
    def first_rows(self) -> Ints:
        """Return the first row of every group, and then the number of rows (B + 1,)."""
        return np.searchsorted(self.group, np.arange(len(self.sizes) + 1))

    @cached_property
    def chosen_counts(self) -> Ints:
        """Return the chosen records of every group (B,)."""
        return np.diff(self.running_counts[self.first_rows])

    @cached_property
    def negated_values(self) -> ChosenValues:
        """Return the same records with all values negated."""
        back = np.lexsort((-self.rank, self.group))
        top = len(self.values) - 1
        return ChosenValues(self.group[back], top - self.rank[back], self.records[back], -self.values[::-1], self.sizes)

    def count_below(self, group: Ints, rank: Ints) -> Ints:
        """Return how many chosen records of each given group have a lower rank than the one given with it."""
        row = np.searchsorted(self.row_keys, group * (len(self.values) + 1) + rank)
        return np.asarray(self.running_counts[row] - self.running_counts[self.first_rows[group]])

    def sum_smallest(self, group: Ints, number: Ints) -> Floats:
        """Return the sum of the ``number`` smallest chosen values of each given group."""
        target = self.running_counts[self.first_rows[group]] + number
        row = np.searchsorted(self.running_counts, target, side="right") - 1
        extra = np.append(self.values[self.rank], 0.0)[row] * (target - self.running_counts[row])
        return np.asarray(self.running_sums[row] + extra - self.running_sums[self.first_rows[group]])

    def value_after(self, group: Ints, number: Ints) -> Floats:
        """Return the chosen value of each given group that exactly ``number`` others precede."""
        target = self.running_counts[self.first_rows[group]] + number
        row = np.searchsorted(self.running_counts, target, side="right") - 1
        return np.append(self.values[self.rank], np.nan)[row]


@dataclass(frozen=True)
class MatchingRecords:
    """The pairs of a set and a group with n > 0 records that meet the condition, for S sets of records."""

    sets: int
    set: Ints
    group: Ints
    n: Ints

    def sum_groups(self, parts: Floats | Ints) -> Floats:
        """Sum an array over the pairs by set (S,)."""
        return np.bincount(self.set, parts, minlength=self.sets).astype(np.float64)

    def least_of_groups(self, parts: Floats, where: Flags) -> Floats:
        """Return the minimum over those pairs of each set that ``where`` marks (S,); infinite if none is marked."""
        result = np.full(self.sets, np.inf)
        np.minimum.at(result, self.set[where], parts[where])
        return result


def possible_records(held: ChosenValues, met: MatchingRecords) -> Floats:
    """Return the largest number of chosen records that each set can have (S,)."""
    return met.sum_groups(np.minimum(met.n, held.chosen_counts[met.group]))


def fewest_records(held: ChosenValues, met: MatchingRecords) -> Ints:
    """Return the smallest number of chosen records that each pair of a set and a group can have."""
    return np.maximum(met.n - (held.sizes - held.chosen_counts)[met.group], 0)


def are_settled(held: ChosenValues, met: MatchingRecords) -> Flags:
    """Return whether every choice in a set takes the same values, so that its sum is known (S,)."""
    chosen, sizes = held.chosen_counts[met.group], held.sizes[met.group]
    first, last = (held.value_after(met.group, at) for at in (np.zeros_like(chosen), np.maximum(chosen - 1, 0)))
    alike = (first == last) & (fewest_records(held, met) == np.minimum(met.n, chosen))
    is_open = ~((met.n == sizes) | (chosen == 0) | alike)
    return np.asarray(met.sum_groups(is_open.astype(np.int64)) == 0)


def estimate_sum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Return the estimated SUM of each set of records, with certain bounds."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    zero = np.full(met.sets, np.searchsorted(held.values, 0.0))
    low, _ = _least_sum(held, met, zero)
    other = held.negated_values
    high, _ = _least_sum(other, met, np.full(met.sets, np.searchsorted(other.values, 0.0)))
    slack = rounding_slack(held)
    return met.sum_groups(share * sums[met.group]), low - slack, slack - high


def rounding_slack(held: ChosenValues) -> float:
    """Return how far a sum of doubles may lie from the sum of the values that they stand for; 0 for whole numbers.

    Each value is rounded once. Each of its additions is rounded by at most as much as the sum of all magnitudes is
    (Higham 2002, section 4.2).
    """
    whole = float(np.abs(held.values[held.rank]) @ held.records)
    if whole < EXACT and bool((held.values == np.rint(held.values)).all()):
        return 0.0
    return whole * (len(held.records) + 2) * float(np.finfo(float).eps)


def _least_sum(held: ChosenValues, met: MatchingRecords, rank: Ints) -> tuple[Floats, Floats]:
    """Find the choice with the least sum of v - x in each set, where x lies just below the value of a rank (S,).

    A choice first takes chosen values below x, then records that are not chosen and count nothing, then other chosen
    values.

    Returns:
        The sum of its values, and the number of chosen values that it takes, each (S,).
    """
    below = held.count_below(met.group, rank[met.set])
    unchosen = held.sizes[met.group] - held.chosen_counts[met.group]
    taken = np.minimum(met.n, below) + np.maximum(met.n - below - unchosen, 0)
    return met.sum_groups(held.sum_smallest(met.group, taken)), met.sum_groups(taken)


def estimate_mean(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Return the estimated AVG of each set of records, with certain bounds; NaN for a set without chosen records."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    number = met.sum_groups(share * held.chosen_counts[met.group])
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = met.sum_groups(share * sums[met.group]) / number
    return estimate, _least_mean(held, met, estimate), -_least_mean(held.negated_values, met, -estimate)


def _least_mean(held: ChosenValues, met: MatchingRecords, start: Floats) -> Floats:
    """Return the least average of chosen values over all choices that take any (S,), by Dinkelbach's iteration."""
    least = start.copy()
    for _ in range(STEPS):
        sums, number = _least_sum(held, met, np.searchsorted(held.values, least))
        with np.errstate(invalid="ignore", divide="ignore"):
            lower = np.where(number > 0, sums / number, least)
        if not (lower < least).any():
            break
        least = np.fmin(least, lower)
    return least


def estimate_minimum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Return the MIN of each set with certain bounds; it exceeds the estimate with a probability of about 1/2."""
    chosen = held.chosen_counts[met.group]
    any_chosen = chosen > 0
    low = met.least_of_groups(held.value_after(met.group, np.zeros_like(met.n)), any_chosen)
    fewest = fewest_records(held, met)
    highest = -met.least_of_groups(-held.value_after(met.group, np.maximum(chosen - 1, 0)), any_chosen)
    sure = met.least_of_groups(held.value_after(met.group, np.maximum(chosen - np.maximum(fewest, 1), 0)), fewest > 0)
    high = np.where(np.isfinite(sure), sure, highest)
    # The estimate is the least rank that a minimum, if there is one, exceeds with probability 1/2 at most.
    target = (1 + _none_up_to(held, met, np.full(met.sets, len(held.values)))) / 2
    estimate = held.values[_least_rank(held, met, lambda rank: np.asarray(_none_up_to(held, met, rank + 1) <= target))]
    return np.clip(estimate, low, high), low, high


def estimate_maximum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Return the MAX of each set with certain bounds; the estimate is made as that of ``estimate_minimum``."""
    estimate, low, high = estimate_minimum(held.negated_values, met)
    return -estimate, -high, -low


def estimate_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Figures:
    """Return a quantile of each set as SQL interpolates it, with certain bounds.

    Of N values it lies between those of ranks floor((N - 1) q) and ceil((N - 1) q), counted from 0. The estimate is the
    quantile of the mean over all choices.
    """
    low = _least_quantile(held, met, share)
    high = -_least_quantile(held.negated_values, met, 1 - share)
    other = _mean_quantile(held.negated_values, met, float(1 - share))
    middle = (_mean_quantile(held, met, float(share)) - other) / 2
    return np.clip(middle, low, high), low, high


def _least_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Floats:
    """Return the least value that can have rank floor((N - 1) q), over all choices (S,).

    The value can be x or less if a choice has b values up to x and a above with b > (a + b - 1) q. The best choice
    takes values up to x of every group first, then records that are not chosen, then the others. Whole numbers decide.
    """
    part, whole = share.numerator, share.denominator
    unchosen = held.sizes[met.group] - held.chosen_counts[met.group]

    def is_enough(rank: Ints) -> Flags:
        below = held.count_below(met.group, rank[met.set] + 1)
        taken, above = np.minimum(met.n, below), np.maximum(met.n - below - unchosen, 0)
        balance = met.sum_groups((whole - part) * taken - part * above) + part
        return np.asarray((balance > 0) & (met.sum_groups(taken) > 0))

    return np.asarray(held.values[_least_rank(held, met, is_enough)])


def _least_rank(held: ChosenValues, met: MatchingRecords, is_enough: Callable[[Ints], Flags]) -> Ints:
    """Return the least rank of each set for which ``is_enough`` holds, or the last rank (S,).

    If a rank is enough, all higher ones must be enough, too.
    """
    low, high = np.zeros(met.sets, dtype=np.int64), np.full(met.sets, len(held.values) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = is_enough(middle)
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return low


def _mean_quantile(held: ChosenValues, met: MatchingRecords, share: float) -> Floats:
    """Return the least value up to which the expected number of records reaches the given share (S,)."""
    weight = met.n / held.sizes[met.group]
    total = met.sum_groups(weight * held.chosen_counts[met.group])

    def is_enough(rank: Ints) -> Flags:
        return np.asarray(met.sum_groups(weight * held.count_below(met.group, rank[met.set] + 1)) >= share * total)

    return np.asarray(held.values[_least_rank(held, met, is_enough)])


def _none_up_to(held: ChosenValues, met: MatchingRecords, rank: Ints) -> Floats:
    """Return the probability that no record that meets the condition has a chosen value of a lower rank (S,)."""
    sizes, below = held.sizes[met.group], held.count_below(met.group, rank[met.set])
    left = sizes - below
    free = left >= met.n
    log_choices = scipy.special.gammaln(left + 1) - scipy.special.gammaln(np.maximum(left - met.n, 0) + 1)
    logs = log_choices - scipy.special.gammaln(sizes + 1) + scipy.special.gammaln(sizes - met.n + 1)
    certain = met.sum_groups((~free).astype(np.int64)) > 0
    return np.where(certain, 0.0, np.exp(met.sum_groups(np.where(free, logs, 0.0))))


# Answers --------------------------------------------------------------------------------------------------------------
# COUNT by the papers' formula, and amounts, with bounds that hold with certainty.
#
# est = sum_g n_g c_g / |g|: n_g records of the group meet the condition on quasi-identifiers, c_g that on the sensitive
# column. At least n_g + c_g - |g| and at most min(n_g, c_g) meet both. If the condition holds for all of a group's
# values or for none, nothing is uncertain about the group.

COUNTED = "estimate = sum over groups g of n_g * c_g / |g|; low and high are certain"
SPREAD = (
    "estimate = the mean over all choices of n_g records in every group g, n_g those that meet the condition on "
    "quasi-identifiers (MIN, MAX, quantiles: the middle of these), or of c_g records that have a value that is asked "
    "for; low and high are the extreme choices, so they are certain"
)
AMOUNTS = {"sum": estimate_sum, "avg": estimate_mean, "min": estimate_minimum, "max": estimate_maximum}


def count_chosen(held: Contents, functionals: Floats) -> Iterator[Floats]:
    """Yield for every set the records of each group that have the values each functional asks for (B, F)."""
    if functionals.ndim == 2:
        return itertools.repeat(np.asarray(held.sparse_table @ functionals))
    return (np.asarray(held.sparse_table @ own) for own in functionals)


def bound_counts(held: Contents, met: Floats, functionals: Floats) -> CountBounds:
    """Return estimated counts with certain bounds for each set and functional (G, F).

    ``met`` has the matching records by set and group (G, B).
    """
    sizes = held.group_sizes.astype(np.float64)
    mean, least, most = (np.zeros((len(met), functionals.shape[-1])) for _ in range(3))
    for i, (own, chosen) in enumerate(zip(met, count_chosen(held, functionals), strict=False)):
        at = np.flatnonzero(own)
        n, c, size = own[at, None], chosen[at], sizes[at, None]
        mean[i] = (n * c / size).sum(axis=0)
        least[i] = np.maximum(n + c - size, 0).sum(axis=0)
        most[i] = np.minimum(n, c).sum(axis=0)
    return CountBounds(mean, np.zeros_like(least), least, most)


class PermuteAnswers(answer.Answers):
    """An open release that answers questions; the contents of its groups are read once."""

    certain = frozenset({BASELINE})
    estimators = (BASELINE,)
    records = "qit"
    measures = frozenset((*AMOUNTS, "median"))
    channel = None

    @cached_property
    def group_contents(self) -> Contents:
        """Return the values that every group holds, which are read once."""
        return read_contents(self._db, self._roles, None)

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        kind, name = query.measure.kind.upper(), query.measure.column
        if query.measure.side == "sa" and query.predicate is not None:
            mixed = f"a condition that mixes {name} and quasi-identifiers"
            raise UsageError(f"{kind}({name}) with {mixed} is not supported")
        if query.measure.side == "sa" and any(group.side == "sa" for group in query.groups):
            raise UsageError(f"{kind}({name}) grouped by {name} is not supported; group by quasi-identifiers")
        return self._observation_query(query), COUNTED if query.measure.kind == "count" else SPREAD

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        held, nothing = self.group_contents, np.zeros(0)
        groups = Channel(np.zeros((0, held.groups)), nothing, nothing)
        question = ReleaseQuestion(self._db, query, table("qit"), groups, code=self._roles.by_sa.column_name("code"))
        rows = self._db.arrow(self._observation_query(query))
        sets = read_sets(question, rows, np.ones(len(rows)))
        outputs, functionals = choose_functionals(question, sets, held.values)
        if not sets.keys or not outputs:
            return empty_estimates(query)
        if query.measure.kind == "count" and functionals.ndim > 2:  # bounds of parts would add up to wider ones
            sets, functionals = pool_sets(query, sets, functionals)
        counts = bound_counts(held, sets.observed, functionals)
        cells = locate_cells(query, sets, outputs, counts.most)
        if query.measure.kind == "count":
            parts = (cells.sum_by_group(part).tolist() for part in (counts.mean, counts.least, counts.most))
            result = [
                Estimate(group, mean, 0.0 if low == high else None, low, high)
                for group, mean, low, high in zip(cells.groups, *parts, strict=True)
            ]
        elif query.measure.side == "sa":
            wanted, met = self._choose_values(sets, cells, functionals)
            result = _estimate_amounts(query, cells, wanted, met)
        else:
            wanted, met = self._choose_amounts(query, rows, sets, cells, functionals)
            result = _estimate_amounts(query, cells, wanted, met)
        return result or empty_estimates(query)

    def _observation_query(self, query: CountQuery) -> exp.Query:
        """Return the query that counts the matching records of every group; if an amount is measured, by its value."""
        holes: Holes = {"qit": query.join_lookups(table("qit")), "bid": self._roles.by_qi.as_column("bid")}
        holes |= observation_holes(query)
        if query.measure.amount is not None:
            amount = exp.cast(query.measure.amount, "DOUBLE")
            holes["terms"] = [*select_terms(query, "qi"), alias_as(amount, "amounts")]
            holes["keys"] = [*(one for _, one in group_terms(query, "qi")), amount]
            holes["totals"] = []
        return fill("permute/observed", holes)

    def _choose_values(
        self, sets: RecordSets, cells: AnswerCells, functionals: Floats
    ) -> tuple[ChosenValues, MatchingRecords]:
        """Return the sensitive values that the question asks for, and the matching records of each group."""
        held = self.group_contents
        chosen = functionals[held.code, 0] > 0
        entries = (held.group[chosen], held.code[chosen], held.records[chosen])
        wanted = ChosenValues(*entries, self._sensitive_values, held.group_sizes)
        observed = sets.observed[cells.at[0]].astype(np.int64)
        at, group = np.nonzero(observed)
        return wanted, MatchingRecords(len(cells.groups), cells.member[at], group, observed[at, group])

    def _choose_amounts(
        self, query: CountQuery, rows: pa.Table, sets: RecordSets, cells: AnswerCells, functionals: Floats
    ) -> tuple[ChosenValues, MatchingRecords]:
        """Return the amounts of matching records as chosen values, with the number of values asked for in each group.

        Each pair of a set and a group has its own amounts, so it counts as a group of its own here.

        Raises:
            UsageError: An amount is infinite or NaN.
        """
        held, known = self.group_contents, rows.filter(pc.is_valid(rows["amounts"]))
        ranks, places, records = (known[name].to_numpy().astype(np.int64) for name in ("set", "place", "pairs"))
        amounts, rank = np.unique(known["amounts"].to_numpy(), return_inverse=True)
        if not np.isfinite(amounts).all():
            raise UsageError(f"{query.measure.column} is not finite everywhere; see WHERE")
        pairs, pair = np.unique(ranks * held.groups + places, return_inverse=True)
        order = np.lexsort((rank, pair))
        place = pairs % held.groups
        wanted = ChosenValues(pair[order], rank[order], records[order], amounts, held.group_sizes[place])
        member = np.full((len(sets.keys), functionals.shape[-1]), -1)
        member[cells.at] = cells.member
        number = np.zeros((len(pairs), functionals.shape[-1]), dtype=np.int64)
        ends = np.searchsorted(pairs, np.arange(len(sets.keys) + 1) * held.groups)
        for (first, last), chosen in zip(
            itertools.pairwise(ends.tolist()), count_chosen(held, functionals), strict=False
        ):
            number[first:last] = chosen[place[first:last]]
        belongs = member[pairs // held.groups]
        at, functional = np.nonzero((number > 0) & (belongs >= 0))
        return wanted, MatchingRecords(len(cells.groups), belongs[at, functional], at, number[at, functional])

    @cached_property
    def _sensitive_values(self) -> Floats:
        """Return the sensitive values as doubles, rising (m,)."""
        value = exp.cast(column(self._roles.sensitive[0].name), "DOUBLE")
        by = self._roles.by_sa.as_column("code")
        listed = exp.select(value.as_("value")).from_(table("privsql_values")).order_by(by)
        return np.asarray(self._db.arrow(listed)["value"].to_numpy(), dtype=np.float64)


def _estimate_amounts(
    query: CountQuery, cells: AnswerCells, wanted: ChosenValues, met: MatchingRecords
) -> list[Estimate]:
    """Return SUM, AVG, MIN, MAX or a quantile for each group; the figures are empty where no record has an amount."""
    if query.measure.kind == "median":
        figures = estimate_quantile(wanted, met, query.measure.share)
    else:
        figures = AMOUNTS[query.measure.kind](wanted, met)
    some = possible_records(wanted, met) > 0
    settled = are_settled(wanted, met) & np.isin(query.measure.kind, ("sum", "avg"))
    fewest = met.sum_groups(fewest_records(wanted, met))
    parts = zip(cells.groups, some, settled, *(part.tolist() for part in (*figures, fewest)), strict=True)
    return [
        Estimate(group, middle, 0.0 if known else None, low, high, least)
        if any_
        else Estimate(group, *query.measure.empty_figures)
        for group, any_, known, middle, low, high, least in parts
    ]
