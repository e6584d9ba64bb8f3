"""Plan how records are perturbed: divide them into sub-tables that retain as many values as their bound allows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from privsql.errors import GuaranteeError, InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.base import Alternative, AlternativeMeasure, Alternatives, Proposal
from privsql.mechanisms.perturb.parameters import PlannedSubTable, RandomizeFacts, RandomizePlan
from privsql.model.records import StaleSettingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.mechanisms.base import Figure, ProfiledSource
    from privsql.mechanisms.perturb.parameters import Randomize
    from privsql.model.records import Records

# Model ----------------------------------------------------------------------------------------------------------------
# A sub-table T_j with counts c (m,) over the values of the whole table has the domain SA_j = {x : c_x > 0} of size m_j.
# The highest frequency of a protected value is rho1_j = max over protected x of c_x/|T_j|. The amplification is
#
#     gamma_j = rho2 (1 - rho1_j) / (rho1_j (1 - rho2)).
#
# A value stays with probability gamma_j q_j and becomes any given other value of SA_j with q_j = 1/(m_j - 1 + gamma_j)
# (Chaytor and Wang, equations 4, 9 and 10). Its error bound is
#
#     eps_j = a/sqrt(|T_j|) (m_j/(gamma_j - 1) + 1),   a = 2 sqrt(ln(2/delta))   (equation 11),
#
# and a partition is judged by sum_j (|T_j|/n) eps_j (equation 12).

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_WEIGHT = 2**62  # outcomes are numbered by 64-bit integers
CLOSE = 1e-12  # a smaller rho2 - rho1_j may be a rounding error
GRID = 2**20  # an amplification with too many digits is rounded down to a multiple of 1/GRID


@dataclass(frozen=True)
class PartitionProblem:
    """The problem of dividing records into sub-tables, each of which is perturbed by itself.

    In a sub-table, the amplification gamma says how many times likelier a record keeps its value than it gets any given
    other one. It is as large as the highest allowed posterior belief ``rho2`` permits.

    Attributes:
        counts: The number of records of each of m values (m,).
        protected: Whether each value is protected, so that beliefs in it stay within ``rho2`` (m,).
        rho2: The highest posterior belief in a protected value.
        delta: The probability with which the error bound may be exceeded.
        declared: The prior belief rho1 from which the amplification gamma is computed; None to compute it from the most
            frequent protected value of each sub-table.
    """

    counts: Ints
    protected: Mask
    rho2: Fraction
    delta: Fraction = Fraction(1, 20)
    declared: Fraction | None = None

    @property
    def records(self) -> int:
        """Return the number of records."""
        return int(self.counts.sum())

    def bound_terms(self, sizes: Ints, domains: Ints, highest: Ints) -> Floats:
        """Return what each sub-table adds to the error bound of estimates, which the search minimizes (equation 12).

        It is infinite if beliefs in the sub-table can exceed ``rho2``. The formula is written with counts in place of
        the amplification, so that no two nearly equal numbers are subtracted.

        Args:
            sizes: The number of records of each sub-table.
            domains: The number of different values of each sub-table.
            highest: The count of the most frequent protected value in each sub-table.
        """
        room = self._posterior_room(sizes, highest)
        scale = 2 * sqrt(log(2 / float(self.delta))) / self.records
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = scale * np.sqrt(sizes) * (domains * (highest * float(1 - self.rho2)) / room + 1)
        return np.asarray(np.where(room > 0, cost, np.inf))

    def _posterior_room(self, sizes: Ints, highest: Ints) -> Floats:
        """Return by how many records each sub-table's most frequent protected value stays below the share ``rho2``.

        The result is 0 if it does not, or if rounding leaves that open. Such a sub-table can't keep ``rho2``.
        """
        room = float(self.rho2) * sizes - highest
        return np.asarray(np.where(room > CLOSE * sizes, room, 0.0))

    def costs_of(self, parts: Ints) -> Floats:
        """Return for each of k sub-tables what it adds to the error bound, and to the variance of estimates (k, 2).

        The variance is that of frequencies by the papers' estimator (equation 7), summed over the values and taken for
        small frequencies. For a sub-table that has T of n records, m values and the amplification gamma, it is T m (m -
        2 + gamma)/(gamma - 1)^2 / n^2.

        Args:
            parts: The number of records of each value in each sub-table (k, m).
        """
        sizes, domains = parts.sum(axis=1), (parts > 0).sum(axis=1)
        highest = np.where(self.protected, parts, 0).max(axis=1, initial=0)
        room = self._posterior_room(sizes, highest)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = room / (highest * float(1 - self.rho2))  # gamma - 1
            variance = sizes * domains * (domains - 1 + excess) / excess**2 / self.records**2
        return np.stack((self.bound_terms(sizes, domains, highest), np.where(room > 0, variance, np.inf)), axis=1)


@dataclass(frozen=True)
class SubTable:
    """The public parameters of a sub-table: of a part of the records that is perturbed over the part's own values.

    Attributes:
        records: The number of its records.
        size: The number of different values in it.
        rho1: The highest frequency of a protected value in it.
        gamma: The amplification: how many times likelier a record keeps its value than it gets any given other one.
    """

    records: int
    size: int
    rho1: Fraction
    gamma: Fraction

    @property
    def weight(self) -> int:
        """Return the number of equally likely outcomes from which one is drawn for each record.

        For gamma = a/b and m values these are (m - 1) b + a; in a of them the record keeps its value.
        """
        return (self.size - 1) * self.gamma.denominator + self.gamma.numerator

    def error_bound(self, n: int, delta: Fraction) -> float:
        """Return what this sub-table adds to the error bound of the whole partition (equation 12).

        For T records with m values and the amplification gamma, this is 2 sqrt(ln(2/delta)) sqrt(T)/n (m/(gamma - 1) +
        1).

        Args:
            n: The number of all records.
            delta: The probability with which the error bound may be exceeded, in (0, 1).
        """
        scale = 2 * sqrt(log(2 / float(delta)))
        return scale * sqrt(self.records) / n * float(self.size / (self.gamma - 1) + 1)

    @property
    def estimate_variance(self) -> Fraction:
        """Return the variance of counts estimated by the papers' formula (equation 7), summed over values.

        It is that of values with few records in the sub-table.
        """
        return self.records * self.size * (self.size - 2 + self.gamma) / (self.gamma - 1) ** 2

    @property
    def skew(self) -> Fraction:
        """Return by how much more a record adds to the variance of its own value's count than to that of another value.

        Counts are estimated from published values. The result is (m - 2)/(gamma - 1) for the m values of the sub-table,
        or 0 for one value. gamma says how many times likelier a record keeps its value than it gets any given other
        one.
        """
        return max(self.size - 2, 0) / (self.gamma - 1)

    @property
    def retention(self) -> Fraction:
        """Return the probability that a value is retained, and not drawn anew: (gamma - 1)/(size - 1 + gamma).

        gamma says how many times likelier a record keeps its value than it gets any given other one.
        """
        return (self.gamma - 1) / (self.size - 1 + self.gamma)

    @property
    def replacement(self) -> Fraction:
        """Return the probability that a record gets any given other value: 1/(size - 1 + gamma).

        gamma says how many times likelier a record keeps its value than it gets any given other one.
        """
        return 1 / (self.size - 1 + self.gamma)


@dataclass(frozen=True)
class Partition:
    """A division of a table into k sub-tables, each of which unites some of t initial groups of records.

    Attributes:
        parts: The number of records of every value in each sub-table (k, m).
        bound: The error bound of the division.
        groups: The number of initial groups, t (see ``initial_groups``).
        optimal: Whether it is proved that no other union of the initial groups has a smaller ``bound``.
        united: For each sub-table, the number of records of each value in every group that it unites (groups, m); empty
            for the whole table.
        labels: The sub-table of each initial group (t,); empty for the whole table.
    """

    parts: Ints
    bound: float
    groups: int
    optimal: bool
    united: tuple[Ints, ...] = ()
    labels: tuple[int, ...] = ()


def amplification(rho1: Fraction, rho2: Fraction) -> Fraction:
    """Return the largest amplification with which a prior of at most rho1 leads to a posterior of at most rho2.

    The amplification (gamma in the paper, equation 6) says how many times likelier a record keeps its value than it
    gets any given other one.
    """
    return rho2 * (1 - rho1) / (rho1 * (1 - rho2))


def make_subtable(problem: PartitionProblem, part: Ints) -> SubTable:
    """Return the exact public parameters of a sub-table, given its number of records of each value (m,).

    If the amplification has too many digits to be drawn exactly, it is rounded down, which only adds privacy.

    Raises:
        ValueError: A protected value is too frequent in the sub-table, or none occurs in it.
        InfeasibleError: Rounding leaves no amplification above 1.
    """
    records, size = int(part.sum()), int((part > 0).sum())
    rho1 = problem.declared or Fraction(int(part[problem.protected].max(initial=0)), records)
    if not 0 < rho1 < problem.rho2:
        raise ValueError(f"a sub-table has rho1 = {rho1}, which is not between 0 and rho2 = {problem.rho2}")
    gamma = amplification(rho1, problem.rho2)
    result = SubTable(records, size, rho1, gamma)
    if result.weight >= MOST_WEIGHT:
        result = SubTable(records, size, rho1, Fraction(int(gamma * GRID), GRID))
    if result.gamma <= 1 or result.weight >= MOST_WEIGHT:
        raise InfeasibleError(
            f"rho2 = {problem.rho2} leaves an amplification of {float(gamma):g} over a prior of {float(rho1):g}, which "
            "can't be drawn exactly; choose another rho2, with fewer digits"
        )
    return result


# Balance --------------------------------------------------------------------------------------------------------------
# The balancing phase makes initial groups in which no protected value is more frequent than in the whole table (Chaytor
# and Wang, section 5.1 and figure 1; appendix 10.7 if only some values are protected).


def initial_groups(counts: Ints, protected: Mask) -> Ints:
    """Divide records into groups in which no protected value is more frequent than in the whole table.

    A search then unites these groups into sub-tables, so that every union keeps the bound on beliefs. The records of
    protected values are balanced first. The others are spread over these groups in proportion to their sizes, the most
    frequent values first.

    Args:
        counts: The number of records of each value (m,).
        protected: Whether each value is protected (m,).

    Returns:
        The number of records of each value in each of t groups (t, m).
    """
    inner = np.where(protected, counts, 0)
    groups, rest = balanced_groups(inner, int(inner.sum()) // int(inner.max())), counts - inner
    if not rest.any():
        return groups
    # Products of sizes are Python integers: they can exceed 64 bits.
    shares = [size * int(rest.sum()) // int(inner.sum()) for size in groups.sum(axis=1).tolist()]
    shares[-1] += int(rest.sum()) - sum(shares)
    order = np.argsort(-rest, kind="stable")
    ends = np.cumsum(rest[order])
    begin = 0
    for group, share in zip(groups, shares, strict=True):
        taken = np.minimum(ends, begin + share) - np.maximum(ends - rest[order], begin)
        group[order] += taken.clip(0)
        begin += share
    return groups


def balanced_groups(counts: Ints, theta: int) -> Ints:
    """Divide records into groups in which no value has more than 1/theta of the records, by taking one group at a time.

    Args:
        counts: The number of records of each value (m,). No value may have more than 1/theta of them.
        theta: How many different values a group takes; only the last one may have more.

    Returns:
        The number of records of each value in each of t groups (t, m).
    """
    left, groups = counts.copy(), []
    while left.any():
        order = np.argsort(-left, kind="stable")
        height = _group_height(left[order[: theta + 1]], int(left.sum()), theta)
        group = left.copy()
        if height:
            group = np.zeros_like(left)
            group[order[:theta]] = height
        groups.append(group)
        left = left - group
    return np.array(groups)


def _group_height(frequencies: Ints, total: int, theta: int) -> int:
    """Return h, the most records that the next group can take of each of the theta most frequent values.

    After it is taken, no value may have more than 1/theta of the records that are left, so that they can be divided,
    too. Let mu_1 >= .. >= mu_(theta+1) be the counts, and sigma(v) = total/theta - max(mu_1 - v, mu_(theta+1)). Then h
    = mu_theta if sigma(mu_theta) >= mu_theta, else floor(total/theta - mu_(theta+1)) (Chaytor and Wang, figure 1).

    Args:
        frequencies: The counts mu of the theta + 1 most frequent values, falling.
        total: The number of all records that are left.
        theta: The number of values that a group takes.
    """
    first, last = int(frequencies[0]), int(frequencies[theta - 1])
    beyond = int(frequencies[theta]) if len(frequencies) > theta else 0
    if total - theta * max(first - last, beyond) >= theta * last:
        return last
    return total // theta - beyond


# Merge ----------------------------------------------------------------------------------------------------------------
# The merging phase unites initial groups so that the error bound is smallest.
#
# The paper's procedure is one order (reverse Cuthill-McKee) and a dynamic program over it. Here several orders compete,
# and the best result is improved by moving groups between sub-tables. With up to ``MOST_EXACT`` groups, all unions are
# searched. Searches are limited by steps, never by seconds.

MOST_EXACT = 12  # up to so many groups, every partition is searched: 3^12 steps
FEW = 64  # up to so many groups, the result of every order is improved, else only the best one
SMALL = 1e-12  # a smaller relative gain counts as a rounding error
MOST_WORK = 3 * 10**6  # improvement stops after reading so many counts

Labels = np.ndarray[tuple[int], np.dtype[np.int64]]  # (t,) the sub-table of every initial group


@dataclass(frozen=True)
class Goal:
    """What a search minimizes, under a limit on the error bound.

    Attributes:
        column: The cost that is minimized: 0 for the error bound, 1 for the variance (see ``costs_of``).
        most: The largest error bound that is allowed.
    """

    column: int
    most: float = np.inf

    def best_change(self, changes: Floats, total: Floats) -> int | None:
        """Return which of k possible steps of a search lowers the cost most; None if none lowers it within the limit.

        Args:
            changes: The change of both costs (error bound and variance) by each step (k, 2).
            total: Both costs before the step (2,).
        """
        allowed = total[0] + changes[:, 0] <= self.most
        gains = np.where(allowed, changes[:, self.column], np.inf)
        at = int(np.argmin(gains))
        return at if gains[at] < -SMALL * max(1.0, total[self.column]) else None


BOUND = Goal(0)


def merge_groups(problem: PartitionProblem, groups: Ints, objective: str = "bound") -> tuple[Labels, bool]:
    """Search for the best way to unite initial groups into sub-tables.

    Args:
        problem: The counts, the protected values and the bounds.
        groups: The number of records of each value in each of t initial groups (t, m).
        objective: ``bound`` minimizes the error bound. ``error`` minimizes the expected squared error, among partitions
            whose bound exceeds neither that of the paper's procedure (``paper_order`` and ``best_runs``) nor that of
            the whole table.

    Returns:
        (the sub-table of every group (t,), whether it is proved that no union of groups has a smaller bound).
    """
    paper = best_runs(problem, groups, paper_order(groups))
    whole = np.zeros(len(groups), dtype=np.int64)
    optimal = len(groups) <= MOST_EXACT
    if optimal:
        least = best_unions(problem, groups)
    else:
        found = [paper, whole, *(best_runs(problem, groups, order) for order in group_orders(groups))]
        found.sort(key=lambda labels: partition_bound(problem, groups, labels))
        starts = found if len(groups) <= FEW else found[:1]
        ends = [improve_labels(problem, groups, labels) for labels in starts]
        least = min(ends, key=lambda labels: partition_bound(problem, groups, labels))
    if objective == "bound":
        return least, optimal
    goal = Goal(1, min(partition_bound(problem, groups, labels) for labels in (paper, whole)))
    ends = [
        improve_labels(problem, groups, labels, goal)
        for labels in (least, np.arange(len(groups)), paper, whole)
        if partition_bound(problem, groups, labels) <= goal.most
    ]
    return min(ends, key=lambda labels: float(problem.costs_of(unite_groups(groups, labels))[:, 1].sum())), False


def partition_bound(problem: PartitionProblem, groups: Ints, labels: Labels) -> float:
    """Return the error bound of a division in which initial group i goes to sub-table ``labels[i]``.

    Args:
        problem: The problem, which says what a sub-table adds to the error bound.
        groups: The number of records of each value in each of t initial groups (t, m).
        labels: The sub-table of each group (t,).
    """
    return float(problem.costs_of(unite_groups(groups, labels))[:, 0].sum())


def unite_groups(groups: Ints, labels: Labels) -> Ints:
    """Return the number of records of each value in each sub-table, which unites some initial groups (k, m).

    Args:
        groups: The number of records of each value in each of t initial groups (t, m).
        labels: The sub-table of each group (t,).
    """
    parts = np.zeros((int(labels.max()) + 1, groups.shape[1]), dtype=np.int64)
    np.add.at(parts, labels, groups)
    return parts


def group_orders(groups: Ints) -> Iterator[Ints]:
    """Yield orders of initial groups (records that stay together) in which neighbours tend to have equal values.

    Uniting neighbours makes sub-tables with few different values, in which more values can be retained.

    Args:
        groups: The number of records of each value in each of t initial groups (t, m).
    """
    held = groups > 0
    yield np.arange(len(groups))
    values = np.arange(groups.shape[1])
    yield np.argsort((held * values).sum(axis=1) / held.sum(axis=1), kind="stable")
    yield np.argsort(groups @ values / groups.sum(axis=1), kind="stable")
    # Start with the first group, and go on to the group that shares most values with the current one.
    shared = held.astype(np.int32) @ held.T.astype(np.int32)
    left = np.ones(len(held), dtype=bool)
    path = [0]
    left[0] = False
    while left.any():
        path.append(int(np.argmax(np.where(left, shared[path[-1]], -1))))
        left[path[-1]] = False
    yield np.array(path)


def paper_order(groups: Ints) -> Ints:
    """Order groups of records as Chaytor and Wang do (section 5.2), so that neighbours tend to have the same values.

    Sub-tables that unite neighbours then have few different values. The order is reverse Cuthill-McKee on A A^T, where
    A are the counts of the groups. The paper does not say how ties are broken. Passing the groups last first reproduces
    the sub-tables of its Example 4.

    Args:
        groups: The number of records of each value in each of t initial groups (t, m).

    Returns:
        The groups in that order (t,).
    """
    counts = scipy.sparse.csr_array(groups[::-1].astype(np.float64))
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(scipy.sparse.csr_array(counts @ counts.T), symmetric_mode=True)
    return len(groups) - 1 - np.asarray(order, dtype=np.int64)


def best_runs(problem: PartitionProblem, groups: Ints, order: Ints) -> Labels:
    """Find the best sub-tables that unite neighbouring initial groups in a given order, in O(t^2).

    They have the least error bound. This is the dynamic program of the paper (equation 14).

    Args:
        problem: The counts, the protected values and the bounds.
        groups: The number of records of each value in each of t initial groups (t, m).
        order: The order of the groups (t,).

    Returns:
        The sub-table of each group (t,).
    """
    t, m = groups.shape
    counts = np.zeros((t, m), dtype=np.int64)  # row s: the counts of the groups from s to the current end
    domains, highest = np.zeros(t, dtype=np.int64), np.zeros(t, dtype=np.int64)
    sizes = np.zeros(t, dtype=np.int64)
    best, cut = np.zeros(t + 1), np.zeros(t, dtype=np.int64)
    for end, group in enumerate(order.tolist()):
        values = np.flatnonzero(groups[group])
        runs = counts[: end + 1, values]
        domains[: end + 1] += (runs == 0).sum(axis=1)
        runs += groups[group, values]
        counts[: end + 1, values] = runs
        inner = runs[:, problem.protected[values]]
        np.maximum(highest[: end + 1], inner.max(axis=1, initial=0), out=highest[: end + 1])
        sizes[: end + 1] += groups[group].sum()
        totals = best[: end + 1] + problem.bound_terms(sizes[: end + 1], domains[: end + 1], highest[: end + 1])
        cut[end] = int(np.argmin(totals))
        best[end + 1] = totals[cut[end]]
    ends = [t]
    while ends[-1]:
        ends.append(int(cut[ends[-1] - 1]))
    labels = np.zeros(t, dtype=np.int64)
    for label, (begin, end) in enumerate(pairwise(ends[::-1])):
        labels[order[begin:end]] = label
    return labels


def best_unions(problem: PartitionProblem, groups: Ints) -> Labels:
    """Find the sub-tables that unite initial groups (records that stay together) with the least error bound.

    Every division is looked at, so there may be at most ``MOST_EXACT`` groups. For every set S of groups, best(S) is
    the least bound with which S can be divided. It is the minimum of cost(U) + best(S - U) over the sub-tables U that
    contain the last group of S.

    Args:
        problem: The problem, which says what a sub-table adds to the error bound.
        groups: The number of records of each value in each of t initial groups (t, m).

    Returns:
        The sub-table of each group (t,).
    """
    t = len(groups)
    sets = np.arange(2**t)
    members = (sets[:, None] >> np.arange(t)) & 1
    costs = problem.costs_of(members @ groups)[:, 0]
    best, choice = np.zeros(2**t), np.zeros(2**t, dtype=np.int64)
    for last in range(t):
        inside = sets[: 2**last]  # the sets of earlier groups that U may contain as well
        for rest in inside:
            parts = inside[inside & ~rest == 0]
            totals = costs[parts | 2**last] + best[rest & ~parts]
            at = int(np.argmin(totals))
            best[rest | 2**last], choice[rest | 2**last] = totals[at], parts[at] | 2**last
    labels, left, label = np.zeros(t, dtype=np.int64), 2**t - 1, 0
    while left:
        labels[members[choice[left]] > 0] = label
        left, label = left & ~int(choice[left]), label + 1
    return labels


def improve_labels(problem: PartitionProblem, groups: Ints, labels: Labels, goal: Goal = BOUND) -> Labels:
    """Improve a division into sub-tables by moving single groups and by joining sub-tables, while that lowers the cost.

    It stops earlier if it has taken ``MOST_WORK`` steps.

    Args:
        problem: The problem, which says what a sub-table costs.
        groups: The number of records of each value in each of t initial groups, which stay together (t, m).
        labels: The sub-table of each group (t,).
        goal: What is minimized.

    Returns:
        The improved sub-table of each group (t,).
    """
    labels, work, better = labels.copy(), 0, True
    while better and work < MOST_WORK:
        better = False
        for group in range(len(groups)):
            parts = np.vstack((unite_groups(groups, labels), np.zeros((1, groups.shape[1]), dtype=np.int64)))
            work += parts.size
            target = _best_move(problem, parts, groups[group], int(labels[group]), goal)
            if target is not None:
                labels[group], better = target, True
                labels = _renumber_labels(labels)
            if work >= MOST_WORK:
                break
        parts = unite_groups(groups, labels)
        costs = problem.costs_of(parts)
        for first in range(len(parts) - 1):
            rest = slice(first + 1, None)
            changes = problem.costs_of(parts[first] + parts[rest]) - costs[first] - costs[rest]
            at = goal.best_change(changes, costs.sum(axis=0))
            if at is not None:
                labels[labels == first + 1 + at], better = first, True
                labels = _renumber_labels(labels)
                break
    return labels


def _best_move(problem: PartitionProblem, parts: Ints, group: Ints, current: int, goal: Goal) -> int | None:
    """Return the sub-table to which a group of records should move; None if it should stay.

    Args:
        problem: The problem, which says what a sub-table costs.
        parts: The number of records of each value in each sub-table (k + 1, m). The last sub-table is empty, so that
            the group can get one of its own.
        group: The number of records of each value in the group (m,).
        current: The sub-table of the group.
        goal: What is minimized.
    """
    costs = np.vstack((problem.costs_of(parts[:-1]), np.zeros(2)))
    without = parts[current] - group
    left = problem.costs_of(without[None])[0] if without.any() else np.zeros(2)
    changes = problem.costs_of(parts + group) - costs + left - costs[current]
    changes[current] = np.inf
    return goal.best_change(changes, costs.sum(axis=0))


def _renumber_labels(labels: Labels) -> Labels:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


# Search ---------------------------------------------------------------------------------------------------------------


def state_problem(counts: Sequence[int], labels: Sequence[str], params: Randomize) -> PartitionProblem:
    """Return the problem of dividing a source into sub-tables.

    Raises:
        InfeasibleError: There are fewer than two values, or all are more frequent than rho1, so that none is protected.
    """
    n = sum(counts)
    if len(counts) < 2:
        raise InfeasibleError("randomization needs at least 2 sensitive values", {"values": len(counts)})
    rho1, rho2 = params.odds_bounds
    protected = [Fraction(count, n) <= rho1 for count in counts]
    if not any(protected):
        rarest = min(range(len(counts)), key=lambda i: counts[i])
        least = Fraction(counts[rarest], n)
        raise InfeasibleError(
            f"no sensitive value has a frequency of at most rho1 = {rho1}, so nothing would be protected; "
            f"the rarest, {labels[rarest]}, has {float(least):.4f}: choose rho1 >= {least}",
            {"rho1": str(rho1), "nearest_rho1": str(least), "value": labels[rarest]},
        )
    counted = np.array(counts, dtype=np.int64)
    return PartitionProblem(counted, np.array(protected), rho2, params.delta, params.declared_rho1)


def find_partition(
    problem: PartitionProblem, algorithm: str, objective: str = "bound", stored: Mapping[str, Any] | None = None
) -> Partition:
    """Divide the records into sub-tables by an algorithm; the largest sub-table comes first.

    Args:
        problem: The records and their bounds.
        algorithm: ``up`` (the whole table), ``pp`` or ``pp-paper``.
        objective: What ``pp`` minimizes, ``bound`` or ``error`` (see ``merge_groups``).
        stored: The partition of an earlier release by the same request, which saves the search: ``labels`` (the
            sub-table of each initial group) and ``optimal``. None to search.

    Raises:
        StaleSettingError: ``stored`` does not fit the problem.
    """
    if algorithm == "up":
        whole = problem.counts[None]
        return Partition(whole, _published_bound(problem, whole), 1, optimal=True)
    groups = initial_groups(problem.counts, problem.protected)
    if stored is not None:
        labels, optimal = _restore_labels(groups, stored)
    elif algorithm == "pp-paper":
        labels, optimal = best_runs(problem, groups, paper_order(groups)), False
    else:
        labels, optimal = merge_groups(problem, groups, objective)
    parts = unite_groups(groups, labels)
    order = sorted(range(len(parts)), key=lambda j: (-int(parts[j].sum()), *(-parts[j]).tolist()))
    united = tuple(groups[labels == j] for j in order)
    return Partition(
        parts[order], _published_bound(problem, parts), len(groups), optimal, united, tuple(labels.tolist())
    )


def _restore_labels(groups: Ints, stored: Mapping[str, Any]) -> tuple[Labels, bool]:
    """Read a division into sub-tables that was stored with an earlier release, to save the search.

    Args:
        groups: The number of records of each value in each of t initial groups (t, m).
        stored: ``labels`` (the sub-table of each group) and ``optimal`` (whether no division has a smaller error
            bound).

    Returns:
        (the sub-table of each group (t,), whether the division is optimal).

    Raises:
        StaleSettingError: The labels do not fit the groups, or leave a sub-table empty.
    """
    try:
        labels, optimal = np.array(stored["labels"], dtype=np.int64), bool(stored["optimal"])
    except (KeyError, TypeError, ValueError) as error:
        raise StaleSettingError() from error
    if labels.shape != (len(groups),) or labels.min() < 0 or len(np.unique(labels)) != labels.max() + 1:
        raise StaleSettingError()
    return labels, optimal


def _published_bound(problem: PartitionProblem, parts: Ints) -> float:
    """Return the error bound (equation 12) of the sub-tables with the exact parameters that will be published.

    It is infinite if beliefs in some sub-table can exceed rho2.
    """
    try:
        return sum(make_subtable(problem, part).error_bound(problem.records, problem.delta) for part in parts)
    except ValueError:
        return float("inf")


def check_partition(problem: PartitionProblem, found: Partition) -> list[SubTable]:
    """Return the exact public parameters of every sub-table, and refuse a division that is not sound.

    Raises:
        GuaranteeError: The sub-tables do not add up to the table, or beliefs in one of them can exceed rho2.
    """
    if (found.parts.sum(axis=0) != problem.counts).any() or (found.parts < 0).any():
        raise GuaranteeError("the sub-tables do not add up to the table")
    try:
        return [make_subtable(problem, part) for part in found.parts]
    except ValueError as error:
        raise GuaranteeError(str(error)) from error


# Plan -----------------------------------------------------------------------------------------------------------------

MEASURES = (
    AlternativeMeasure("subtables", "sub-tables", ",.0f", lowest=False),
    AlternativeMeasure("values", "values of a sub-table, mean m_j", ".1f"),
    AlternativeMeasure("gamma", "gamma_j, mean", ".2f", lowest=False),
    AlternativeMeasure("retention", "retention, mean over records", ".1%", lowest=False),
    AlternativeMeasure("bound", "error bound (equation 12)", ".4f"),
    AlternativeMeasure("error", "expected error of a frequency", ".2%"),
)


def plan_release(source: Records, params: Randomize) -> RandomizePlan:
    """Return the facts of a planned release with its partition, which only the publisher may see."""
    problem = state_problem(source.counts, source.labels, params)
    found = find_partition(problem, params.algorithm, params.objective, source.history.setting)
    subtables, labels = check_partition(problem, found), source.labels
    partition = [
        PlannedSubTable(
            records=one.records,
            values=one.size,
            rho1=fraction_text(one.rho1),
            gamma=fraction_text(one.gamma),
            retention=float(one.retention),
            groups=[{labels[code]: int(group[code]) for code in np.flatnonzero(group).tolist()} for group in united],
        )
        for one, united in zip(subtables, found.united or found.parts[:, None], strict=True)
    ]
    return RandomizePlan.join_parts(state_facts(problem, found, subtables), partition=partition)


def state_facts(problem: PartitionProblem, found: Partition, subtables: Sequence[SubTable]) -> RandomizeFacts:
    """Return the facts of a division into sub-tables, for the manifest.

    Its error bound and the mean probability that a value is kept are stated beside those of the whole table as one
    sub-table, for comparison.
    """
    whole, n = check_partition(problem, find_partition(problem, "up")), problem.records
    return RandomizeFacts(
        subtables=len(subtables),
        groups=found.groups,
        bound=sum(subtable.error_bound(n, problem.delta) for subtable in subtables),
        bound_up=sum(subtable.error_bound(n, problem.delta) for subtable in whole),
        retention=average_retention(subtables),
        retention_up=average_retention(whole),
        skew=float(sum(one.skew * one.records for one in subtables) / n),
        optimal=found.optimal,
    )


def average_retention(subtables: Sequence[SubTable]) -> float:
    """Return the mean over all records of the probability that a value is retained, and not drawn anew."""
    retained = sum((t.retention * t.records for t in subtables), Fraction(0))
    return float(retained / sum(t.records for t in subtables))


def compare_algorithms(source: Records, params: Randomize) -> Alternatives:
    """Compare the partitions of ``up``, ``pp`` and ``pp-paper``.

    The expected error of a frequency is sqrt(V) / n, for n records. V is the mean variance of counts of values by the
    papers' estimator (equation 7).
    """
    problem, rows = state_problem(source.counts, source.labels, params), []
    by_frequency = replace(problem, declared=None)
    for name, its_problem in (("up", problem), ("pp", by_frequency), ("pp-paper", by_frequency)):
        found = find_partition(its_problem, name, params.objective)
        subtables = check_partition(its_problem, found)
        variance = float(sum(one.estimate_variance for one in subtables))
        figures: dict[str, Figure] = {
            "subtables": len(subtables),
            "values": float(np.mean([one.size for one in subtables])),
            "gamma": float(np.mean([float(one.gamma) for one in subtables])),
            "retention": average_retention(subtables),
            "bound": found.bound,
            "error": sqrt(variance / len(problem.counts)) / problem.records,
        }
        rows.append(Alternative(name, figures))
    best = min(rows, key=lambda row: row.figures["error"] or 0.0).algorithm
    return Alternatives(MEASURES, rows, f"least expected error: {best}")


def propose_parameters(source: ProfiledSource) -> Proposal:
    """Propose rho1 and rho2: a prior belief of at most rho1 in a protected value becomes at most rho2.

    The values that at most a third of the records have are protected. rho1 is the largest frequency of these values, or
    the smallest of all values if there are none. rho2 is three times rho1, but at most (1 + rho1)/2.
    """
    counts = source.records().counts
    n = sum(counts)
    shares = [Fraction(count, n) for count in counts]
    rho1 = max((share for share in shares if share <= Fraction(1, 3)), default=min(shares))
    rounded = Fraction(-(-rho1.numerator * 1000 // rho1.denominator), 1000)
    rho2 = min(3 * rounded, (1 + rounded) / 2)
    return Proposal({"kind": "randomize", "algorithm": "pp", "rho1": str(rounded), "rho2": str(rho2)})
