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
# For every group g the release tells the values of all |g| records, and how many of its records meet the condition on
# quasi-identifiers, n_g. It does not tell which n_g of the |g| values they have: that is a choice. So the true answer
# certainly lies between those of the best and of the worst choice. The estimate is the mean over all choices. Values
# that meet the condition on the sensitive column are called chosen values.
#
# SUM and AVG of a quasi-identifier exchange the two sides: the chosen values are the amounts of the records that meet
# the condition on quasi-identifiers, and n_g is the number of sensitive values that meet the other condition.
#
# There is no standard error. It would depend on how values go with quasi-identifiers inside a group, and nothing in a
# release shows that (docs/numbers.md states measured errors).

EXACT = 2.0**53  # doubles add up whole numbers below this without rounding
STEPS = 60  # limit of the iteration for an extreme average, which stops far earlier
Figures = tuple[Floats, Floats, Floats]  # estimate, low, high, each (S,)


@dataclass(frozen=True)
class ChosenValues:
    """The values of each group that meet the condition of a question on the sensitive column (the chosen values).

    There are R rows, one for each chosen value of each of B groups, by group and then by rising value.

    Attributes:
        group: The group of each row (R,).
        rank: The rank of the row's value among all m values (R,).
        records: How many records of the group have this value (R,).
        values: All values, by rank, rising (m,).
        sizes: The number of all records of each group (B,).
    """

    group: Ints
    rank: Ints
    records: Ints
    values: Floats
    sizes: Ints

    @cached_property
    def row_keys(self) -> Ints:
        """Return a key for every row, which rises with its group and rank, so that a binary search finds a row (R,)."""
        return np.asarray(self.group * (len(self.values) + 1) + self.rank)

    @cached_property
    def running_counts(self) -> Ints:
        """Return the number of records in all rows before each row, and last the number in all rows (R + 1,).

        A row is a chosen value of a group; it may be that of several records.
        """
        return np.concatenate(([0], np.cumsum(self.records)))

    @cached_property
    def running_sums(self) -> Floats:
        """Return the sum of values over all rows before each row, and last the sum over all rows (R + 1,).

        A row is a chosen value of a group; it counts once for each of its records.
        """
        return np.concatenate(([0.0], np.cumsum(self.records * self.values[self.rank])))

    @cached_property
    def first_rows(self) -> Ints:
        """Return the first row of every group, and last the number of rows (B + 1,).

        The rows of a group are its chosen values, rising.
        """
        return np.searchsorted(self.group, np.arange(len(self.sizes) + 1))

    @cached_property
    def chosen_counts(self) -> Ints:
        """Return how many records of every group have chosen values, which meet the condition of the question (B,)."""
        return np.diff(self.running_counts[self.first_rows])

    @cached_property
    def negated_values(self) -> ChosenValues:
        """Return the same records with all values negated, so that a maximum can be computed as a minimum."""
        back = np.lexsort((-self.rank, self.group))
        top = len(self.values) - 1
        return ChosenValues(self.group[back], top - self.rank[back], self.records[back], -self.values[::-1], self.sizes)

    def count_below(self, group: Ints, rank: Ints) -> Ints:
        """Return how many records of each given group have a chosen value (one that is asked for) below a given rank.

        Args:
            group: The groups.
            rank: One rank for each of them.
        """
        row = np.searchsorted(self.row_keys, group * (len(self.values) + 1) + rank)
        return np.asarray(self.running_counts[row] - self.running_counts[self.first_rows[group]])

    def sum_smallest(self, group: Ints, number: Ints) -> Floats:
        """Return the sum of the smallest chosen values (those the question asks for) of each given group.

        Args:
            group: The groups.
            number: How many values are summed in each of them; a value counts once for each of its records.
        """
        target = self.running_counts[self.first_rows[group]] + number
        row = np.searchsorted(self.running_counts, target, side="right") - 1
        extra = np.append(self.values[self.rank], 0.0)[row] * (target - self.running_counts[row])
        return np.asarray(self.running_sums[row] + extra - self.running_sums[self.first_rows[group]])

    def value_after(self, group: Ints, number: Ints) -> Floats:
        """Return a chosen value of each given group: the one at position ``number`` if they are sorted, counted from 0.

        Args:
            group: The groups.
            number: One position for each of them. A value counts once for each of its records.
        """
        target = self.running_counts[self.first_rows[group]] + number
        row = np.searchsorted(self.running_counts, target, side="right") - 1
        return np.append(self.values[self.rank], np.nan)[row]


@dataclass(frozen=True)
class MatchingRecords:
    """How many records of each group meet the condition of a question on quasi-identifiers, for S sets of records.

    A set has the records of one row of the answer, such as those with one value in GROUP BY. There is an entry for each
    pair of a set and a group that share records.

    Attributes:
        sets: The number of sets, S.
        set: The set of each pair.
        group: The group of each pair.
        n: The number of records of the group that belong to the set, at least 1.
    """

    sets: int
    set: Ints
    group: Ints
    n: Ints

    def sum_groups(self, parts: Floats | Ints) -> Floats:
        """Return for each set of records the sum of the given numbers over the groups in which it has records (S,).

        Args:
            parts: A number for each pair of a set and a group.
        """
        return np.bincount(self.set, parts, minlength=self.sets).astype(np.float64)

    def least_of_groups(self, parts: Floats, where: Flags) -> Floats:
        """Return for each set of records the smallest number of its groups, such as the least value it may have (S,).

        Args:
            parts: A number for each pair of a set and a group in which it has records.
            where: Whether the number of each pair is taken into account. A set without such a pair gets infinity.
        """
        result = np.full(self.sets, np.inf)
        np.minimum.at(result, self.set[where], parts[where])
        return result


def possible_records(held: ChosenValues, met: MatchingRecords) -> Floats:
    """Return the largest possible number of records that meet all conditions of a question, for each of S sets (S,).

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group meet the conditions on quasi-identifiers, for S sets of records.
    """
    return met.sum_groups(np.minimum(met.n, held.chosen_counts[met.group]))


def fewest_records(held: ChosenValues, met: MatchingRecords) -> Ints:
    """Return the smallest possible number of records that meet all conditions of a question, for each set and group.

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group meet the conditions on quasi-identifiers, for S sets of records.
    """
    return np.maximum(met.n - (held.sizes - held.chosen_counts)[met.group], 0)


def are_settled(held: ChosenValues, met: MatchingRecords) -> Flags:
    """Return for each of S sets whether the SUM and AVG of its chosen values are certain (S,).

    They are certain if the values are the same whichever records match: in each group all match, none has a chosen
    value, or all chosen values are equal and their number is certain.
    """
    chosen, sizes = held.chosen_counts[met.group], held.sizes[met.group]
    first, last = (held.value_after(met.group, at) for at in (np.zeros_like(chosen), np.maximum(chosen - 1, 0)))
    alike = (first == last) & (fewest_records(held, met) == np.minimum(met.n, chosen))
    is_open = ~((met.n == sizes) | (chosen == 0) | alike)
    return np.asarray(met.sum_groups(is_open.astype(np.int64)) == 0)


def estimate_sum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Estimate the SUM for each row of the answer; return (estimate, low, high), where the bounds are certain.

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group meet the conditions on quasi-identifiers, for each row of the answer.
    """
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    zero = np.full(met.sets, np.searchsorted(held.values, 0.0))
    low, _ = _least_sum(held, met, zero)
    other = held.negated_values
    high, _ = _least_sum(other, met, np.full(met.sets, np.searchsorted(other.values, 0.0)))
    slack = rounding_slack(held)
    return met.sum_groups(share * sums[met.group]), low - slack, slack - high


def rounding_slack(held: ChosenValues) -> float:
    """Return by how much rounding of doubles can change a sum of chosen values; certain bounds are widened by it.

    The result is 0 if all values are whole numbers and their sum is small enough to be exact. Else each value is
    rounded once. Each addition is rounded by at most the relative error of doubles times the sum of all magnitudes
    (Higham 2002, section 4.2).

    Args:
        held: The values of each group that meet the condition on the sensitive column (chosen values).
    """
    whole = float(np.abs(held.values[held.rank]) @ held.records)
    if whole < EXACT and bool((held.values == np.rint(held.values)).all()):
        return 0.0
    return whole * (len(held.records) + 2) * float(np.finfo(float).eps)


def _least_sum(held: ChosenValues, met: MatchingRecords, rank: Ints) -> tuple[Floats, Floats]:
    """Find the least possible sum of (v - x) over the chosen values v of matching records, for each set of records.

    Here x is 0 for a SUM, and a trial value for an AVG. The release tells how many records of each group match, but not
    which of the group's values they have. A negative term lowers the sum. So in the worst case matching records have
    chosen values below x first, then values that are not chosen and add nothing, and other chosen values last.

    Args:
        held: The values of each group that meet the condition on the sensitive column (chosen values).
        met: How many records of each group match (meet the conditions on quasi-identifiers), for S sets of records.
        rank: For each set, the rank of the smallest value that is not below x (S,).

    Returns:
        (the sum of the chosen values v in this worst case, their number) for each set (S,).
    """
    below = held.count_below(met.group, rank[met.set])
    unchosen = held.sizes[met.group] - held.chosen_counts[met.group]
    taken = np.minimum(met.n, below) + np.maximum(met.n - below - unchosen, 0)
    return met.sum_groups(held.sum_smallest(met.group, taken)), met.sum_groups(taken)


def estimate_mean(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Estimate the AVG for each row of the answer; return (estimate, low, high), where the bounds are certain.

    The figures are NaN for a row if its groups have no value that the question asks for.

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group meet the conditions on quasi-identifiers, for each row of the answer.
    """
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    number = met.sum_groups(share * held.chosen_counts[met.group])
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = met.sum_groups(share * sums[met.group]) / number
    return estimate, _least_mean(held, met, estimate), -_least_mean(held.negated_values, met, -estimate)


def _least_mean(held: ChosenValues, met: MatchingRecords, start: Floats) -> Floats:
    """Return the least possible average of the chosen values of matching records, for each of S sets of records (S,).

    The release tells how many records of each group match, but not which of the group's values they have. Dinkelbach's
    iteration finds the least average over all ways to assign values to them.

    Args:
        held: The values of each group that meet the condition on the sensitive column (chosen values).
        met: How many records of each group match: they meet the conditions on quasi-identifiers.
        start: A possible average, from which the iteration starts (S,).
    """
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
    """Estimate the MIN for each row of the answer; return (estimate, low, high), where the bounds are certain.

    The true minimum lies above the estimate with a probability of about 1/2.

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group meet the conditions on quasi-identifiers, for each row of the answer.
    """
    chosen = held.chosen_counts[met.group]
    any_chosen = chosen > 0
    low = met.least_of_groups(held.value_after(met.group, np.zeros_like(met.n)), any_chosen)
    fewest = fewest_records(held, met)
    highest = -met.least_of_groups(-held.value_after(met.group, np.maximum(chosen - 1, 0)), any_chosen)
    sure = met.least_of_groups(held.value_after(met.group, np.maximum(chosen - np.maximum(fewest, 1), 0)), fewest > 0)
    high = np.where(np.isfinite(sure), sure, highest)
    # The estimate is the least value that the minimum, if there is one, exceeds with probability 1/2 at most.
    target = (1 + _none_up_to(held, met, np.full(met.sets, len(held.values)))) / 2
    estimate = held.values[_least_rank(held, met, lambda rank: np.asarray(_none_up_to(held, met, rank + 1) <= target))]
    return np.clip(estimate, low, high), low, high


def estimate_maximum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Estimate the MAX for each row of the answer; return (estimate, low, high), where the bounds are certain.

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group meet the conditions on quasi-identifiers, for each row of the answer.
    """
    estimate, low, high = estimate_minimum(held.negated_values, met)
    return -estimate, -high, -low


def estimate_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Figures:
    """Estimate a quantile for each row of the answer; return (estimate, low, high), where the bounds are certain.

    As in SQL, the q-quantile of N values lies between those of ranks floor((N - 1) q) and ceil((N - 1) q), counted from
    0. The estimate is the quantile of all values, each weighted by the probability that a matching record has it.

    Args:
        held: The values of each group that meet the condition on the sensitive column.
        met: How many records of each group match: they meet the conditions on quasi-identifiers of a row of the answer.
        share: q, such as 1/2 for the median.
    """
    low = _least_quantile(held, met, share)
    high = -_least_quantile(held.negated_values, met, 1 - share)
    other = _mean_quantile(held.negated_values, met, float(1 - share))
    middle = (_mean_quantile(held, met, float(share)) - other) / 2
    return np.clip(middle, low, high), low, high


def _least_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Floats:
    """Return the least possible q-quantile of the chosen values of each of S sets of records (S,).

    The release tells how many records of each group match, but not which of the group's values they have. If matching
    records have N chosen values, the q-quantile is here the value of rank floor((N - 1) q). With b of these values up
    to x and a above x, the quantile is at most x if b > (a + b - 1) q. The best case for x gives matching records the
    values up to x first, then values that are not chosen, and then the others. All is computed in integers.

    Args:
        held: The values of each group that meet the condition on the sensitive column (chosen values).
        met: How many records of each group match: they meet the conditions on quasi-identifiers.
        share: q, exact.
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
    """Find for each of S sets of records the smallest value that passes a test, such as to be a possible quantile.

    Values are given by their ranks. The search is binary, so if a value passes, all larger values must pass.

    Args:
        held: The chosen values, which have ranks.
        met: The matching records, which say how many sets there are.
        is_enough: The test: given one rank for each set, it says for each whether it passes.

    Returns:
        The rank of that value for each set; the last rank if no value passes (S,).
    """
    low, high = np.zeros(met.sets, dtype=np.int64), np.full(met.sets, len(held.values) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = is_enough(middle)
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return low


def _mean_quantile(held: ChosenValues, met: MatchingRecords, share: float) -> Floats:
    """Return for each set of records the least value x up to which the share ``share`` of its chosen values lies (S,).

    The values are those that matching records are expected to have, if each value of a group is equally likely to
    match.
    """
    weight = met.n / held.sizes[met.group]
    total = met.sum_groups(weight * held.chosen_counts[met.group])

    def is_enough(rank: Ints) -> Flags:
        return np.asarray(met.sum_groups(weight * held.count_below(met.group, rank[met.set] + 1)) >= share * total)

    return np.asarray(held.values[_least_rank(held, met, is_enough)])


def _none_up_to(held: ChosenValues, met: MatchingRecords, rank: Ints) -> Floats:
    """Return for each set of records the probability that none of them has a chosen value below a given rank (S,).

    Args:
        held: The values of each group that meet the condition on the sensitive column (chosen values).
        met: How many records of each group match (meet the conditions on quasi-identifiers), for S sets of records.
        rank: The given rank for each set (S,).
    """
    sizes, below = held.sizes[met.group], held.count_below(met.group, rank[met.set])
    left = sizes - below
    free = left >= met.n
    log_choices = scipy.special.gammaln(left + 1) - scipy.special.gammaln(np.maximum(left - met.n, 0) + 1)
    logs = log_choices - scipy.special.gammaln(sizes + 1) + scipy.special.gammaln(sizes - met.n + 1)
    certain = met.sum_groups((~free).astype(np.int64)) > 0
    return np.where(certain, 0.0, np.exp(met.sum_groups(np.where(free, logs, 0.0))))


# Answers --------------------------------------------------------------------------------------------------------------
# COUNT is estimated by the papers' formula, est = sum_g n_g c_g / |g|. Here n_g records of group g meet the condition
# on quasi-identifiers, and c_g the one on the sensitive column. At least n_g + c_g - |g| and at most min(n_g, c_g) meet
# both. A group is certain if all or none of its values meet the condition.

COUNTED = "estimate = sum over groups g of n_g * c_g / |g|; low and high are certain"
SPREAD = (
    "estimate = the mean over all choices of n_g records in every group g, n_g those that meet the condition on "
    "quasi-identifiers (MIN, MAX, quantiles: the middle of these), or of c_g records that have a value that is asked "
    "for; low and high are the extreme choices, so they are certain"
)
AMOUNTS = {"sum": estimate_sum, "avg": estimate_mean, "min": estimate_minimum, "max": estimate_maximum}


def count_chosen(held: Contents, functionals: Floats) -> Iterator[Floats]:
    """Yield for each set of records how many records of each of B groups have a value that a question asks for (B, F).

    A question may ask for F counts with different conditions on the sensitive column at once.

    Args:
        held: The contents of the groups.
        functionals: For each of F counts, 1 for each value that it counts and else 0, (m, F) or one such array per set.
    """
    if functionals.ndim == 2:
        return itertools.repeat(np.asarray(held.sparse_table @ functionals))
    return (np.asarray(held.sparse_table @ own) for own in functionals)


def bound_counts(held: Contents, met: Floats, functionals: Floats) -> CountBounds:
    """Estimate the F counts that a question asks for in each of G sets of records, with bounds that are certain (G, F).

    A set has the records with the same values in GROUP BY. They match if they meet the conditions on quasi-identifiers.

    Args:
        held: The contents of all groups.
        met: The number of matching records by set and group (G, B).
        functionals: For each of F counts, 1 for each value that it counts and else 0, (m, F) or one such array per set.
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
    """An open release of permuted groups that answers questions: counts, and statistics such as the SUM of a column."""

    certain = frozenset({BASELINE})
    estimators = (BASELINE,)
    records = "qit"
    measures = frozenset((*AMOUNTS, "median"))
    channel = None

    @cached_property
    def group_contents(self) -> Contents:
        """Return which values every group holds."""
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
        if query.measure.kind == "count" and functionals.ndim > 2:  # sums of bounds of parts would be wider
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
        """Return the query that counts the matching records of every group.

        If the question asks for a statistic of a quasi-identifier, records are counted by its value, too.
        """
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
        """Prepare a statistic of the sensitive column: return (the values that it is about, the matching records).

        Args:
            sets: The number of records of each group that match: they meet the conditions on quasi-identifiers.
            cells: The rows of the answer, each with its values of GROUP BY.
            functionals: 1 for each value that meets the condition on the sensitive column, else 0, in the first column.
        """
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
        """Prepare a statistic of a quasi-identifier, such as its SUM, with a condition on the sensitive column.

        Here it is known which amounts the records of a group have, and open which of these records have a sensitive
        value that is asked for. So the roles of ``_choose_values`` are swapped: amounts are the chosen values, and
        sensitive values match. Each pair of a set and a group has its own amounts, so it counts as a group.

        Returns:
            (the amounts of matching records, how many sensitive values of each group are asked for).

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
    """Estimate SUM, AVG, MIN, MAX or a quantile of a column for each row of the answer, with bounds that are certain.

    If no record can match, the figures are those that SQL gives for no records.

    Args:
        query: The question, which says which statistic is asked for.
        cells: The rows of the answer, each with its values of GROUP BY.
        wanted: The values of each group that the statistic is computed from, if matching records have them.
        met: How many records of each group match, for each row of the answer.
    """
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
