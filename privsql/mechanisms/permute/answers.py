"""Estimate aggregates from permuted groups: contents of groups, amounts, and variances of sums."""

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

    from privsql.answers.estimate import AmountMoments
    from privsql.engine.database import Relations
    from privsql.mechanisms.permute.grouping import Ints

    Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    Sizes = tuple[Ints, Ints]
    Differences = tuple[Floats, Floats, Floats]  # squares, of N(0, t^2 spread + noise), spread, noise; each (R, P)

# Amounts --------------------------------------------------------------------------------------------------------------
# SUM, AVG, MIN, MAX, MEDIAN and quantiles of the sensitive column: an estimate, and bounds that are certain
# (Zhang et al., ICDE 2007).
#
# For every group g the release tells n_g, how many of its records meet the condition on quasi-identifiers, and the
# values of all |g| records. Which n_g of the |g| it are is not told, so an answer is certain between the best and the
# worst choice; the estimate is the mean over all choices. "Chosen" values are those that meet the condition on the
# sensitive column.

EXACT = 2.0**53  # below which doubles add up whole numbers without rounding
STEPS = 60  # at most, of the search for an extreme average; it halts far earlier
Figures = tuple[Floats, Floats, Floats, Floats]  # estimate, standard error (NaN: none), low, high, each (S,)


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


def estimate_sum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """Return SUM over each set of records, with its standard error and certain bounds."""
    share = met.n / held.sizes[met.group]
    sums = np.diff(held.running_sums[held.first_rows])
    zero = np.full(met.sets, np.searchsorted(held.values, 0.0))
    low, _ = _least_sum(held, met, zero)
    other = held.negated_values
    high, _ = _least_sum(other, met, np.full(met.sets, np.searchsorted(other.values, 0.0)))
    slack = rounding_slack(held)
    return met.sum_groups(share * sums[met.group]), _sum_error(held, met), low - slack, slack - high


def rounding_slack(held: ChosenValues) -> float:
    """How far a sum of doubles may lie from that of the values that they stand for; 0 where all of them are whole.

    Each value is rounded once, and each of its additions by as much at most as the sum of all magnitudes (Higham 2002,
    section 4.2).
    """
    whole = float(np.abs(held.values[held.rank]) @ held.records)
    if whole < EXACT and bool((held.values == np.rint(held.values)).all()):
        return 0.0
    return whole * (len(held.records) + 2) * float(np.finfo(float).eps)


def _sum_error(held: ChosenValues, met: MatchingRecords, centre: Floats | None = None) -> Floats:
    """Of the sum of chosen values less ``centre`` (S,): drawing n of |g| without replacement in every group."""
    values = held.values[held.rank]
    squares = np.bincount(held.group, held.records * values**2, minlength=len(held.sizes))[met.group]
    sums = np.diff(held.running_sums[held.first_rows])[met.group]
    chosen, sizes = held.chosen_counts[met.group], held.sizes[met.group]
    shift = np.zeros(len(met.n)) if centre is None else centre[met.set]
    second, first = (squares - 2 * shift * sums + shift**2 * chosen) / sizes, (sums - shift * chosen) / sizes
    variance = met.n * (second - first**2).clip(0) * (sizes - met.n) / np.maximum(sizes - 1, 1)
    return np.asarray(np.sqrt(met.sum_groups(variance)))


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
        error = _sum_error(held, met, np.nan_to_num(estimate)) / number
    low = _least_mean(held, met, estimate)
    return estimate, error, low, -_least_mean(held.negated_values, met, -estimate)


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
    """MIN: certain bounds, and the value that it is as likely to exceed as not; no standard error."""
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
    return np.clip(estimate, low, high), np.full(met.sets, np.nan), low, high


def estimate_maximum(held: ChosenValues, met: MatchingRecords) -> Figures:
    """MAX, likewise."""
    estimate, error, low, high = estimate_minimum(held.negated_values, met)
    return -estimate, error, -high, -low


def estimate_quantile(held: ChosenValues, met: MatchingRecords, share: Fraction) -> Figures:
    """Return a quantile as SQL interpolates it: certain bounds, and the quantile of the mean over all choices.

    Of N values it lies between those of ranks floor((N - 1) q) and ceil((N - 1) q) from 0.
    """
    low = _least_quantile(held, met, share)
    high = -_least_quantile(held.negated_values, met, 1 - share)
    other = _mean_quantile(held.negated_values, met, float(1 - share))
    middle = (_mean_quantile(held, met, float(share)) - other) / 2
    return np.clip(middle, low, high), np.full(met.sets, np.nan), low, high


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


# Sharing --------------------------------------------------------------------------------------------------------------
# How many of the records that are asked about have a value that is asked for, group by group.
#
# Of the |g| records of a group s are asked about, by quasi-identifiers, and c = f |g| have a value that is asked for.
# The release does not tell which: over all choices s f of them have both, the papers' estimate, with the variance of
# the hypergeometric distribution. In real tables quasi-identifiers go with values inside of a group, too: where the
# log-odds of being asked about differ by d between the records with these values and the others of the group,
#
#     E = s f + d s (1 - s/|g|) f (1 - f),
#     Var = s (|g| - s)/(|g| - 1) f (1 - f) + E[d^2] (s (1 - s/|g|) f (1 - f))^2.
#
# No release tells anything of d. Between neighbouring groups g, h of the axis it tells the differences of s/|g|, about
#
#     N(0, v (q (1 - q))^2 + q (1 - q) (1/|g| + 1/|h|)),     q = (s_g + s_h) / (|g| + |h|),
#
# v_1, and v_2 between those that are two apart, being the posterior means over all pairs. Where each value is what it
# is by itself, v_2 = v_1, and d is of variance v_1 / (2 f (1 - f)). Where all there is is a trend that wanders along
# the axis, v_1 and v_2 are 2/3 and 5/3 of what it wanders over a group, and d of a third of it. So
#
#     E[d^2] = n / (f (1 - f)) + b/3,     b = v_2 - v_1,     n = (v_1 - 2/3 b)/2,     none below 0.
#
# What is added up, less its mean over all who are asked about, is treated alike: its means in groups differ by N(0, t^2
# v + v (1/s_g + 1/s_h)) between neighbours, v its variance, and by N(0, E[d^2] v) inside.

DEGREES = 8  # of freedom behind a standard error: groups differ in how much their values do
STRENGTHS = np.geomspace(0.02, 5.0, 24)  # t
USUAL, SPREAD = 0.2, 1.0  # median of t before anything is seen, and standard deviation of its logarithm
CHUNK = 2**20  # numbers that one array may hold


def neighbouring_groups(held: Contents) -> tuple[Ints, Ints]:
    """Groups g and, of each, the one h that begins next after all of its values; none for the last ones."""
    first = np.full(held.groups, held.values)
    last = np.full(held.groups, -1)
    np.minimum.at(first, held.group, held.code)
    np.maximum.at(last, held.group, held.code)
    order = np.argsort(first, kind="stable")
    place = np.searchsorted(first[order], last, side="right")
    some = np.flatnonzero(place < held.groups)
    return some, order[place[some]]


@dataclass(frozen=True)
class GroupDifference:
    """E[d^2] = ``rough`` / (f (1 - f)) + ``smooth``, each (R,), of R sets of records."""

    rough: Floats
    smooth: Floats

    @staticmethod
    def from_differences(near: Floats, far: Floats) -> GroupDifference:
        """Return both parts by v_1 (``near``) and v_2 (``far``), the variances between groups one and two apart."""
        wandered = np.maximum(far - near, 0)
        return GroupDifference(np.maximum(near - 2 / 3 * wandered, 0) / 2, wandered / 3)


def unlike(held: Contents, met: Floats) -> GroupDifference:
    """Return how the share of a set differs between the values of a group; ``met`` (R, B): its records by group."""

    def squared_differences(sizes: Sizes, here: Floats, there: Floats) -> Differences:
        one, other = sizes
        q = (here + there) / (one + other)
        spread = q * (1 - q)  # 0 where all are asked about, or nobody: nothing is learnt
        return (here / one - there / other) ** 2, spread**2, spread * (1 / one + 1 / other)

    return _judge_differences(held, squared_differences, met)


def unlike_amounts(held: Contents, met: Floats, deviations: Floats, variance: Floats) -> GroupDifference:
    """Return the variances of sums ``deviations`` (R, B) of what is added up, less its mean, with ``variance`` (R,)."""

    def squared_differences(
        _: Sizes, here: Floats, there: Floats, sum_here: Floats, sum_there: Floats, v: Floats, __: Floats
    ) -> Differences:
        v = np.where((here > 0) & (there > 0), v, 0.0)
        here, there = np.maximum(here, 1), np.maximum(there, 1)
        return (sum_here / here - sum_there / there) ** 2, v, v * (1 / here + 1 / there)

    return _judge_differences(held, squared_differences, met, deviations, np.broadcast_to(variance[:, None], met.shape))


def _judge_differences(held: Contents, differences: Callable[..., Differences], *parts: Floats) -> GroupDifference:
    """Add up ``differences`` of ``parts`` (R, B) of both groups, for some sets at a time."""
    one, other = neighbouring_groups(held)
    following = np.full(held.groups, -1)
    following[one] = other
    beyond = following[other]
    result = []
    for pairs in ((one, other), (one[beyond >= 0], beyond[beyond >= 0])):
        step, strengths = max(1, CHUNK // max(len(pairs[0]), 1)), [np.zeros(0)]
        sizes = tuple(held.group_sizes[side] for side in pairs)
        for start in range(0, len(parts[0]), step):
            both = (part[start : start + step][:, side] for part in parts for side in pairs)
            strengths.append(_expected_strength(*differences(sizes, *both)))
        result.append(np.concatenate(strengths))
    return GroupDifference.from_differences(*result)


def _expected_strength(squares: Floats, spread: Floats, noise: Floats) -> Floats:
    """E[t^2 | squares of N(0, t^2 spread + noise)] of every row; where ``spread`` is 0 nothing is learnt."""
    logs = -((np.log(STRENGTHS / USUAL) / SPREAD) ** 2)[:, None] * np.ones(len(squares))
    for i, strength in enumerate(STRENGTHS):
        variance = np.where(spread > 0, strength**2 * spread + noise, 1.0)
        logs[i] -= (np.log(variance) + np.where(spread > 0, squares, 0) / variance).sum(axis=1)
    weights = np.exp((logs - logs.max(axis=0)) / 2)
    return np.asarray((STRENGTHS**2 @ weights) / weights.sum(axis=0))


def sharing_variances(held: Contents, met: Floats, functionals: Floats) -> tuple[Floats, Floats]:
    """Of how many records have the values that ``functionals`` (m, F), or (R, m, F), name: per set (R, F), and the part
    of it that is judged by neighbouring groups.
    """
    sizes = held.group_sizes.astype(np.float64)
    choices = met * (sizes - met) / np.maximum(sizes - 1, 1)
    known = _sum_variances(held, functionals, choices, np.zeros_like(choices))
    difference, moved = unlike(held, met), (met * (1 - met / sizes)) ** 2
    judged = _sum_variances(held, functionals, difference.rough[:, None] * moved, difference.smooth[:, None] * moved)
    return known + judged, judged


def amount_variances(held: Contents, met: Floats, functionals: Floats, added: AmountMoments) -> Floats:
    """Return the variances (R, F) of sums over these records of what is ``added`` up, less its mean."""
    variance = added.second / np.maximum(met.sum(axis=1), 1)
    difference, v = unlike_amounts(held, met, added.deviations, variance), variance[:, None]
    rough, smooth = (part[:, None] * v * met**2 for part in (difference.rough, difference.smooth))
    return _sum_variances(held, functionals, v * met + rough, smooth)


def _sum_variances(held: Contents, functionals: Floats, choices: Floats, deviating: Floats) -> Floats:
    """Sums over groups of ``choices`` f (1 - f) and ``deviating`` (f (1 - f))^2, both (R, B)."""
    if functionals.ndim > 2:
        rows = [_group_variance(held, one) for one in functionals]
        parts = [choices[i] @ row + deviating[i] @ row**2 for i, row in enumerate(rows)]
        return np.array(parts).reshape(len(choices), functionals.shape[-1])
    over = _group_variance(held, functionals)
    return np.asarray(choices @ over + deviating @ over**2)


def _group_variance(held: Contents, functionals: Floats) -> Floats:
    """F (1 - f) of every group (B, F)."""
    share = np.asarray(held.sparse_table @ functionals) / held.group_sizes[:, None]
    return np.asarray(share * (1 - share))
