"""Group sorted numbers so that every group has k values over a range of e, with the least sum of (max - min)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Axis -----------------------------------------------------------------------------------------------------------------
# Sensitive values are integers u_i in a common unit. All decisions compare their ranks i. ``reach[i]`` is the largest j
# with u_i - u_j >= e, found once in exact integers. A set of records is fine if it has at least k distinct ranks, and
# its least rank is at most reach[its largest rank].

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Axis:
    """The D distinct sensitive values as exact integers, and the condition (k,e).

    A set of records is fine if it has at least k distinct values, and max - min >= e.

    Attributes:
        units: The values, rising, as integers in the column's smallest unit (D,).
        reach: For each value, the rank of the largest value that is at least e below it; -1 if there is none (D,).
        k: The fewest distinct values.
    """

    units: list[int]
    reach: Ints
    k: int

    def is_fine(self, ranks: Ints) -> bool:
        """Return whether records, given by the ranks of their values, have at least k values and max - min >= e."""
        if not len(ranks):
            return False
        return len(np.unique(ranks)) >= self.k and int(self.reach[ranks.max()]) >= int(ranks.min())

    def left_ends(self, ranks: Ints) -> Ints:
        """Return for every record t the last record s such that the records s to t satisfy (k,e); -1 if there is none.

        They satisfy it if they have at least k different values over a range of at least e.

        Args:
            ranks: The rank of every record's value, rising (n,).
        """
        if not len(ranks):
            return np.zeros(0, dtype=np.int64)
        steps = ranks[1:] != ranks[:-1]
        ends = np.flatnonzero(np.append(steps, True))
        number = np.concatenate(([0], np.cumsum(steps)))
        values = ranks[ends]
        far = np.searchsorted(values, self.reach[values], side="right") - 1
        least = np.minimum(far, np.arange(len(ends)) - self.k + 1)
        result = np.where(least >= 0, ends[np.maximum(least, 0)], -1)
        return np.minimum(result[number], np.arange(len(ranks)))

    def width(self, low: int, high: int) -> int:
        """Return the exact difference of two values, given by their ranks."""
        return self.units[high] - self.units[low]


def make_axis(units: Sequence[int], k: int, e: int) -> Axis:
    """Return the axis of distinct values ``units``, rising, under the condition (k,e), with ``e`` in the same unit."""
    reach = [bisect_right(units, u - e) - 1 for u in units]
    return Axis(list(units), np.array(reach, dtype=np.int64), k)


def find_ends(groups: Ints, ranks: Ints, number: int) -> tuple[Ints, Ints]:
    """Return (the lowest rank, the highest rank) of each group.

    Args:
        groups: The group of every record (n,).
        ranks: The rank of every record's value (n,).
        number: The number of groups.
    """
    low, high = np.full(number, np.iinfo(np.int64).max), np.full(number, -1)
    np.minimum.at(low, groups, ranks)
    np.maximum.at(high, groups, ranks)
    return low, high


# Sweep ----------------------------------------------------------------------------------------------------------------
# The program of Zhang et al. (ICDE 2007) as one sweep with a moving minimum.
#
# f[t] = hi_t + min over feasible s of (f[s-1] - lo_s) is the least sum of (max - min) that covers elements up to t. The
# conditions are monotone in s, so every s enters the minimum once. Among the optima, one with the most groups is taken:
# costs are counted in units of T + 1, and each group takes 1 off.


def cheapest_segments(
    low: Sequence[int], high: Sequence[int], reach: Sequence[int], alone: Sequence[bool] | None = None
) -> list[int] | None:
    """Divide T elements into segments with the least sum of (max - min); among these, into the most segments. O(T).

    An element is a value or a range of values that stays together; a segment of neighbours becomes a group.

    Args:
        low: The lowest value of every element, exact, rising.
        high: The highest value of every element, exact, rising.
        reach: For each element, the last element at which a feasible segment that ends with this element may start; -1
            if there is none. It never falls.
        alone: Whether each element may also be a segment by itself.

    Returns:
        The elements at which segments start, rising; None if no division is feasible.
    """
    if not low:
        return []
    scale, zero = len(low) + 1, low[0]
    infinite = (high[-1] - zero + 2) * scale
    cost, back = [0], []
    best, arg, entered = infinite, -1, 0
    low, high = ([(u - zero) * scale for u in ends] for ends in (low, high))
    singles = alone or [False] * len(low)
    for t, (end, least, single) in enumerate(zip(high, reach, singles, strict=True)):
        while entered <= least:
            if cost[entered] < infinite and (result := cost[entered] - low[entered]) < best:
                best, arg = result, entered
            entered += 1
        total, left = (best + end - 1, arg) if arg >= 0 else (infinite, -1)
        if single and cost[t] < infinite and (lone := cost[t] + end - low[t] - 1) < total:
            total, left = lone, t
        cost.append(total)
        back.append(left)
    return trace_left_ends(back)


def trace_left_ends(back: Sequence[int]) -> list[int] | None:
    """Return where the segments of the best division of T elements start, rising; None if no division is feasible.

    Elements are sorted values or records, and each segment of neighbours becomes a group. The division is read from its
    end.

    Args:
        back: For each element, the start of the last segment in the best division up to it; -1 if there is none (T,).
    """
    result: list[int] = []
    end = len(back)
    while end:
        end = back[end - 1]
        if end < 0:
            return None
        result.append(end)
    return result[::-1]


def static_optimum(axis: Axis) -> list[int] | None:
    """Return the ranks of values at which the best groups of a first release begin.

    They have the least sum of (max - min) of all ways to divide the records into (k,e)-anonymous groups. Groups whose
    ranges overlap cost at least as much as their union, and splitting records with equal values saves nothing. So only
    groups that lie side by side are compared.

    Args:
        axis: The sensitive values, with k and e.

    Returns:
        The ranks; None if the records can't be divided, as all together are not (k,e)-anonymous.
    """
    ranks = np.arange(len(axis.units), dtype=np.int64)
    return cheapest_segments(axis.units, axis.units, axis.left_ends(ranks).tolist())


# Restraint ------------------------------------------------------------------------------------------------------------
# Some joins of old groups with new records are not worth what they save.
#
# A join is one segment of ``group_nested``: old groups and new records become one group. It lowers the sum of (max -
# min), but it widens the group of each of its records. A few new records can do that to very many old ones. Without the
# join, old groups stay, and the new records form the best groups of their own. The width of a record is that of its
# group. Widths are summed over records.
#
# * A join is kept if it raises the width of its records by at most three quarters.
# * Of the others, those are kept that save most for the width they add, as long as the width of the whole release grows
#   by at most the share of new records in it. So many small releases do not add up to very wide groups.

LOCAL = Fraction(7, 4)  # a join is kept if it widens its records by this factor at most


@dataclass(frozen=True)
class Spans:
    """The G groups of the last release.

    Attributes:
        low: The rank of each group's least value (G,).
        high: The rank of its largest value (G,).
        records: Its number of records (G,).
    """

    low: Ints
    high: Ints
    records: Ints


@dataclass(frozen=True)
class Arrivals:
    """The N distinct values of the new records.

    Attributes:
        ranks: The rank of each value, rising (N,).
        records: The number of new records with it (N,).
    """

    ranks: Ints
    records: Ints


@dataclass(frozen=True)
class Join:
    """A group of the next release that unites groups of the last release (old groups) with values of new records.

    Attributes:
        olds: The old groups.
        news: The new values.
        starts: The new values at which groups would begin if new values were grouped without the old groups.
        added: By how much the union widens (max - min) of the groups that records are in, summed over records.
        price: The added width, divided by how much the union lowers the sum of (max - min) over groups.
    """

    olds: slice
    news: slice
    starts: list[int]
    added: int
    price: Fraction


def find_costly_joins(
    axis: Axis, old: Spans, new: Arrivals, olds: Sequence[slice], news: Sequence[slice]
) -> Iterator[Join]:
    """Yield the unions of old groups and new values that should be undone, because they widen groups too much.

    A union lowers the sum of (max - min), but it makes the values of all its records less precise. Those that save most
    for the width they add are kept.

    Args:
        axis: The sensitive values.
        old: The groups of the last release.
        new: The values of the new records.
        olds: For each group of the next release, the old groups in it.
        news: For each group of the next release, the new values in it.
    """
    costly, whole = [], 0
    for held, met in zip(olds, news, strict=True):
        widths = [axis.width(a, b) for a, b in zip(old.low[held].tolist(), old.high[held].tolist(), strict=True)]
        apart = sum(width * records for width, records in zip(widths, old.records[held].tolist(), strict=True))
        if held.start == held.stop or met.start == met.stop:
            whole += apart
            continue
        ranks = new.ranks[met]
        low, high = min(int(old.low[held.start]), int(ranks[0])), max(int(old.high[held.stop - 1]), int(ranks[-1]))
        joined_width = axis.width(low, high)
        joined = joined_width * int(old.records[held].sum() + new.records[met].sum())
        if joined <= LOCAL * apart:
            whole += joined
            continue
        units = [axis.units[rank] for rank in ranks.tolist()]
        starts = cheapest_segments(units, units, axis.left_ends(ranks).tolist()) or []
        before = np.concatenate(([0], np.cumsum(new.records[met]))).tolist()
        for a, b in pairwise([*starts, len(units)]):
            widths.append(units[b - 1] - units[a])
            apart += widths[-1] * (before[b] - before[a])
        whole += apart
        if joined > LOCAL * apart:
            saved = sum(widths) - joined_width
            price = Fraction(joined - apart, saved) if saved > 0 else Fraction(joined)
            costly.append(Join(held, met, starts, joined - apart, price))
    arrived, stayed = int(new.records.sum()), int(old.records.sum())
    budget = Fraction(whole * arrived, arrived + stayed)
    for join in sorted(costly, key=lambda join: join.price):
        budget -= join.added
        if budget < 0:
            yield join
