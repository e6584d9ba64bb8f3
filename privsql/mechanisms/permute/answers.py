"""Estimate aggregates from permuted groups, with bounds that are certain: contents of groups, counts, and amounts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.channel import POWER, Channel, Floats
from privsql.engine.sqlfiles import Holes, Roles, fill, same_columns, table
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.mechanisms.permute.grouping import Ints

    Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

# Amounts --------------------------------------------------------------------------------------------------------------
# SUM, AVG, MIN, MAX, MEDIAN and quantiles of the sensitive column: an estimate, and bounds that are certain
# (Zhang et al., ICDE 2007).
#
# For every group g the release tells n_g, how many of its records meet the condition on quasi-identifiers, and the
# values of all |g| records. Which n_g of the |g| it are is not told, so an answer is certain between the best and the
# worst choice; the estimate is the mean over all choices. "Chosen" values are those that meet the condition on the
# sensitive column.
#
# SUM and AVG of a quasi-identifier are the same with the sides exchanged: the chosen values are those of the records
# that meet the condition on quasi-identifiers, and n_g is how many values of the group meet that on the sensitive one.
#
# There is no standard error. It would depend on how values go with quasi-identifiers inside a group, and nothing in a
# release shows that (docs/numbers.md has what was measured).

EXACT = 2.0**53  # below which doubles add up whole numbers without rounding
STEPS = 60  # at most, of the search for an extreme average; it halts far earlier
Figures = tuple[Floats, Floats, Floats]  # estimate, low, high, each (S,)


@dataclass(frozen=True)
class ChosenValues:
    """The chosen values of every group, rising: rows (group, rank of the value, records); the groups' sizes (B,)."""

    group: Ints
    rank: Ints
    records: Ints
    values: Floats  # (m,) by rank, rising
    sizes: Ints

    @cached_property
    def row_keys(self) -> Ints:
        """Group and rank in one number, rising."""
        return np.asarray(self.group * (len(self.values) + 1) + self.rank)

    @cached_property
    def running_counts(self) -> Ints:
        """Records before every row, and of all rows (R + 1,)."""
        return np.concatenate(([0], np.cumsum(self.records)))

    @cached_property
    def running_sums(self) -> Floats:
        """Return them for sums of values."""
        return np.concatenate(([0.0], np.cumsum(self.records * self.values[self.rank])))

    @cached_property
    def first_rows(self) -> Ints:
        """The first row of every group, and the number of rows (B + 1,)."""
        return np.searchsorted(self.group, np.arange(len(self.sizes) + 1))

    @cached_property
    def chosen_counts(self) -> Ints:
        """Chosen records of every group (B,)."""
        return np.diff(self.running_counts[self.first_rows])

    @cached_property
    def negated_values(self) -> ChosenValues:
        """Return the records with all values negated."""
        back = np.lexsort((-self.rank, self.group))
        top = len(self.values) - 1
        return ChosenValues(self.group[back], top - self.rank[back], self.records[back], -self.values[::-1], self.sizes)

    def count_below(self, group: Ints, rank: Ints) -> Ints:
        """Chosen records of a group whose rank is less."""
        row = np.searchsorted(self.row_keys, group * (len(self.values) + 1) + rank)
        return np.asarray(self.running_counts[row] - self.running_counts[self.first_rows[group]])

    def sum_smallest(self, group: Ints, number: Ints) -> Floats:
        """Sum of so many of the smallest chosen values of a group."""
        target = self.running_counts[self.first_rows[group]] + number
        row = np.searchsorted(self.running_counts, target, side="right") - 1
        extra = np.append(self.values[self.rank], 0.0)[row] * (target - self.running_counts[row])
        return np.asarray(self.running_sums[row] + extra - self.running_sums[self.first_rows[group]])

    def value_after(self, group: Ints, number: Ints) -> Floats:
        """The chosen value of a group that so many are before."""
        target = self.running_counts[self.first_rows[group]] + number
        row = np.searchsorted(self.running_counts, target, side="right") - 1
        return np.append(self.values[self.rank], np.nan)[row]


@dataclass(frozen=True)
class MatchingRecords:
    """For S sets of records: pairs (set, group) with n > 0 records that meet the condition."""

    sets: int
    set: Ints
    group: Ints
    n: Ints

    def sum_groups(self, parts: Floats | Ints) -> Floats:
        """Sums over the groups (S,)."""
        return np.bincount(self.set, parts, minlength=self.sets).astype(np.float64)

    def least_of_groups(self, parts: Floats, where: Flags) -> Floats:
        """Minima over some of the groups (S,), infinite for none."""
        result = np.full(self.sets, np.inf)
        np.minimum.at(result, self.set[where], parts[where])
        return result


def possible_records(held: ChosenValues, met: MatchingRecords) -> Floats:
    """The most chosen records that each set can have (S,)."""
    return met.sum_groups(np.minimum(met.n, held.chosen_counts[met.group]))


def fewest_records(held: ChosenValues, met: MatchingRecords) -> Ints:
    """Return the fewest chosen records that each pair of set and group can have."""
    return np.maximum(met.n - (held.sizes - held.chosen_counts)[met.group], 0)


def are_settled(held: ChosenValues, met: MatchingRecords) -> Flags:
    """Return for each set (S,) whether all choices take the same values, so that a sum is known."""
    chosen, sizes = held.chosen_counts[met.group], held.sizes[met.group]
    first, last = (held.value_after(met.group, at) for at in (np.zeros_like(chosen), np.maximum(chosen - 1, 0)))
    alike = (first == last) & (fewest_records(held, met) == np.minimum(met.n, chosen))
    is_open = ~((met.n == sizes) | (chosen == 0) | alike)
    return np.asarray(met.sum_groups(is_open.astype(np.int64)) == 0)


def estimate_sum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Return SUM over each set of records, with certain bounds."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    zero = np.full(met.sets, np.searchsorted(held.values, 0.0))
    low, _ = _least_sum(held, met, zero)
    other = held.negated_values
    high, _ = _least_sum(other, met, np.full(met.sets, np.searchsorted(other.values, 0.0)))
    slack = rounding_slack(held)
    return met.sum_groups(share * sums[met.group]), low - slack, slack - high


def rounding_slack(held: ChosenValues) -> float:
    """How far a sum of doubles may lie from that of the values that they stand for; 0 where all of them are whole.

    Each value is rounded once, and each of its additions by as much at most as the sum of all magnitudes (Higham 2002,
    section 4.2).
    """
    whole = float(np.abs(held.values[held.rank]) @ held.records)
    if whole < EXACT and bool((held.values == np.rint(held.values)).all()):
        return 0.0
    return whole * (len(held.records) + 2) * float(np.finfo(float).eps)


def _least_sum(held: ChosenValues, met: MatchingRecords, rank: Ints) -> tuple[Floats, Floats]:
    """The least sum of v - x over choices, for x just below the value of a rank (S,): (sum of v, number) taken (S,).

    Of every group: chosen values below x first, then those that are not chosen and count nothing, then the others.
    """
    below = held.count_below(met.group, rank[met.set])
    unchosen = held.sizes[met.group] - held.chosen_counts[met.group]
    taken = np.minimum(met.n, below) + np.maximum(met.n - below - unchosen, 0)
    return met.sum_groups(held.sum_smallest(met.group, taken)), met.sum_groups(taken)


def estimate_mean(held: ChosenValues, met: MatchingRecords) -> Figures:
    """AVG; of a set without chosen records there is none."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    number = met.sum_groups(share * held.chosen_counts[met.group])
    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = met.sum_groups(share * sums[met.group]) / number
    return estimate, _least_mean(held, met, estimate), -_least_mean(held.negated_values, met, -estimate)


def _least_mean(held: ChosenValues, met: MatchingRecords, start: Floats) -> Floats:
    """The least average of the chosen values over all choices that have any, by Dinkelbach's iteration."""
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
    """MIN: certain bounds, and the value that it is as likely to exceed as not."""
    chosen = held.chosen_counts[met.group]
    any_chosen = chosen > 0
    low = met.least_of_groups(held.value_after(met.group, np.zeros_like(met.n)), any_chosen)
    fewest = fewest_records(held, met)
    highest = -met.least_of_groups(-held.value_after(met.group, np.maximum(chosen - 1, 0)), any_chosen)
    sure = met.least_of_groups(held.value_after(met.group, np.maximum(chosen - np.maximum(fewest, 1), 0)), fewest > 0)
    high = np.where(np.isfinite(sure), sure, highest)
    # the least rank that the minimum, if there is one, does not exceed with a probability of at least one half
    target = (1 + _none_up_to(held, met, np.full(met.sets, len(held.values)))) / 2
    estimate = held.values[_least_rank(held, met, lambda rank: np.asarray(_none_up_to(held, met, rank + 1) <= target))]
    return np.clip(estimate, low, high), low, high


def estimate_maximum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """MAX, likewise."""
    estimate, low, high = estimate_minimum(held.negated_values, met)
    return -estimate, -high, -low


def estimate_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Figures:
    """Return a quantile as SQL interpolates it: certain bounds, and the quantile of the mean over all choices.

    Of N values it lies between those of ranks floor((N - 1) q) and ceil((N - 1) q) from 0.
    """
    low = _least_quantile(held, met, share)
    high = -_least_quantile(held.negated_values, met, 1 - share)
    other = _mean_quantile(held.negated_values, met, float(1 - share))
    middle = (_mean_quantile(held, met, float(share)) - other) / 2
    return np.clip(middle, low, high), low, high


def _least_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Floats:
    """Return the least value of rank floor((N - 1) q) over all choices (S,).

    It can be x or less if a choice has b values up to x and a above with b > (a + b - 1) q. The best choice takes
    values up to x of every group first, then what is not chosen, then the others. Whole numbers decide.
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
    """Return the least rank of each set (S,) that is enough, as all above it are, or the last one."""
    low, high = np.zeros(met.sets, dtype=np.int64), np.full(met.sets, len(held.values) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = is_enough(middle)
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return low


def _mean_quantile(held: ChosenValues, met: MatchingRecords, share: float) -> Floats:
    """Return the least value that holds the share of the expected records up to it (S,)."""
    weight = met.n / held.sizes[met.group]
    total = met.sum_groups(weight * held.chosen_counts[met.group])

    def is_enough(rank: Ints) -> Flags:
        return np.asarray(met.sum_groups(weight * held.count_below(met.group, rank[met.set] + 1)) >= share * total)

    return np.asarray(held.values[_least_rank(held, met, is_enough)])


def _none_up_to(held: ChosenValues, met: MatchingRecords, rank: Ints) -> Floats:
    """Probability that no chosen value of a lower rank is among the records that meet the condition (S,)."""
    sizes, below = held.sizes[met.group], held.count_below(met.group, rank[met.set])
    left = sizes - below
    free = left >= met.n
    log_choices = scipy.special.gammaln(left + 1) - scipy.special.gammaln(np.maximum(left - met.n, 0) + 1)
    logs = log_choices - scipy.special.gammaln(sizes + 1) + scipy.special.gammaln(sizes - met.n + 1)
    certain = met.sum_groups((~free).astype(np.int64)) > 0
    return np.where(certain, 0.0, np.exp(met.sum_groups(np.where(free, logs, 0.0))))


# Contents -------------------------------------------------------------------------------------------------------------

LARGE = 2**24  # numbers that the channel's matrix may hold
MOST_GROUPS = 2000  # beyond which nothing of groups^3 operations is done


@dataclass(frozen=True)
class Contents:
    """ST as rows (group, code, records), in order."""

    group: Ints
    code: Ints
    records: Ints
    groups: int
    values: int

    @property
    def group_sizes(self) -> Ints:
        """|g| (B,)."""
        return np.bincount(self.group, self.records, minlength=self.groups).astype(np.int64)

    @property
    def value_totals(self) -> Ints:
        """o_i (m,)."""
        return np.bincount(self.code, self.records, minlength=self.values).astype(np.int64)

    @property
    def sparse_table(self) -> scipy.sparse.csr_array:
        """Records by group and code (B, m)."""
        return scipy.sparse.csr_array(
            (self.records.astype(np.float64), (self.group, self.code)), shape=(self.groups, self.values)
        )

    @property
    def is_small(self) -> bool:
        """Return whether the channel's matrix can be held."""
        return self.groups * self.values <= LARGE and self.groups <= MOST_GROUPS


def read_contents(db: Relations, roles: Roles, database: str | None) -> Contents:
    """The contents of a release's groups, its tables in ``database``."""
    by_sa = roles.by_sa
    st = exp.select(*by_sa.select_columns("bid", "count"), *roles.sa_in()).from_(table("st", database)).subquery("st")
    listed = exp.select(*by_sa.select_columns("code"), *roles.sa_in()).from_(table("privsql_values", database))
    holes: Holes = {"st": st, "values": listed.subquery("v"), "same_value": same_columns("st", "v", roles.sa_keys)}
    rows = db.arrow(fill("permute/contents", holes))
    group, code, records = (rows[name].to_numpy().astype(np.int64) for name in ("bid", "code", "records"))
    return Contents(group, code, records, int(group.max()) + 1, int(code.max()) + 1)


class GroupChannel(Channel):
    """The channel of groups: a question's deviations are those of groups (powers as of values in ``Channel``).

    Within a group they are in proportion to the values' records: neighbours on the axis deviate together, so that a
    group's records are shared out as in the papers' formula.
    """

    @cached_property
    def prior_shape(self) -> Floats:
        """Shape of the prior's variance, f_i sum_g M_ig s_g^0.5 F, s_g the groups' shares, F = sum s^2 / sum s^1.5."""
        groups = self.shares @ self.mean
        shape = self.shares * (self.mean @ groups ** (POWER - 1))
        return np.asarray(shape * ((groups**2).sum() / shape.sum()))


def group_channel(held: Contents) -> Channel:
    """A question is seen as how many records of every group meet it: M_ig = share of value i that lies in g.

    ``UsageError`` for a release that is too large.
    """
    if not held.is_small:
        size = f"{held.groups:,} groups and {held.values:,} values"
        raise UsageError(f"a release of {size} is too large for this estimator")
    mean = held.sparse_table.toarray().T / np.maximum(held.value_totals, 1)[:, None]
    return GroupChannel(mean, np.diag(held.group_sizes.astype(np.float64)), held.value_totals.astype(np.float64))
