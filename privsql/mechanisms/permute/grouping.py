"""Group sorted numbers so that every group spans k values and a range of e with the least summation error."""

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
# The sensitive values on an exact axis: integers in a common unit, ranks, and the condition (k,e).
#
# All decisions compare ranks. ``reach[i]`` is the largest j with u_i - u_j >= e, found once in exact integers. A set of
# records is fine if it has >= k distinct ranks and its least rank is <= reach[its largest rank].

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Axis:
    """The D distinct sensitive values, rising, and the condition that makes a set of them fine."""

    units: list[int]  # (D,) exact, in the column's smallest unit
    reach: Ints  # (D,) the largest j with u_i - u_j >= e, or -1
    k: int

    def is_fine(self, ranks: Ints) -> bool:
        """Return whether records with these ranks (any order, with repeats) have >= k values and max - min >= e."""
        if not len(ranks):
            return False
        return len(np.unique(ranks)) >= self.k and int(self.reach[ranks.max()]) >= int(ranks.min())

    def left_ends(self, ranks: Ints) -> Ints:
        """Return for every t the largest s such that the records s..t are fine, or -1; ``ranks`` (n,) rise. O(n)."""
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
        """Return u_high - u_low, exact."""
        return self.units[high] - self.units[low]


def make_axis(units: Sequence[int], k: int, e: int) -> Axis:
    """Return the axis of rising distinct integers ``units`` (D,) under (k,e), with ``e`` in the same unit."""
    reach = [bisect_right(units, u - e) - 1 for u in units]
    return Axis(list(units), np.array(reach, dtype=np.int64), k)


def find_ends(groups: Ints, ranks: Ints, number: int) -> tuple[Ints, Ints]:
    """Return the lowest and the highest rank in each of ``number`` groups, given group and rank of every record."""
    low, high = np.full(number, np.iinfo(np.int64).max), np.full(number, -1)
    np.minimum.at(low, groups, ranks)
    np.maximum.at(high, groups, ranks)
    return low, high


# Sweep ----------------------------------------------------------------------------------------------------------------
# The program of Zhang et al. (ICDE 2007) as one sweep with a moving minimum.
#
# f[t] = hi_t + min over feasible s of (f[s-1] - lo_s) is the least sum of (max - min) that covers the first elements.
# The conditions are monotone in the left end, so every s enters the minimum once. Among the optima it takes one with
# the most groups: a group's cost is counted in units of T + 1, and each group takes one off.


def cheapest_segments(
    low: Sequence[int], high: Sequence[int], reach: Sequence[int], alone: Sequence[bool] | None = None
) -> list[int] | None:
    """Return the left ends of the cheapest segments over T elements, rising; None if no partition is feasible. O(T).

    Args:
        low: The exact low end of every element, rising.
        high: The exact high end of every element, rising.
        reach: The largest left end of a feasible segment that ends at each element, or -1; it never falls.
        alone: Whether each element may also be a segment by itself.
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
    """Return the left ends of segments, rising, from ``back`` (T,): the best left end up to each element, or -1."""
    result: list[int] = []
    end = len(back)
    while end:
        end = back[end - 1]
        if end < 0:
            return None
        result.append(end)
    return result[::-1]


def static_optimum(axis: Axis) -> list[int] | None:
    """Return the ranks at which the groups of the static optimum begin; None if even all records together are not fine.

    It has the least sum over groups of (max - min) of all partitions into fine sets, of any shape: overlapping groups
    cost no less than their union, and a cut inside a run of equal values saves nothing.
    """
    ranks = np.arange(len(axis.units), dtype=np.int64)
    return cheapest_segments(axis.units, axis.units, axis.left_ends(ranks).tolist())


# Restraint ------------------------------------------------------------------------------------------------------------
# Which joins of old groups with new records are not worth their saving.
#
# A join is one segment of ``group_nested``: old groups and new records become one group. It saves part of the sum of
# (max - min), but it hides the values of all its records in a wider range, and a few new records can do that to very
# many old ones. Apart, the old groups stay and the new records make the groups of their own static optimum. The width
# of a record is that of its group; widths are summed over records.
#
# * A join is kept if it widens its records by at most three quarters.
# * Of the others, those that save most for the width they add are kept, while they widen the release as a whole by at
#   most the share of new records in it, so that many small releases do not add up.

LOCAL = Fraction(7, 4)  # a join may widen its own records by this factor


@dataclass(frozen=True)
class Spans:
    """G groups of the last release.

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
    """N distinct values among the new records.

    Attributes:
        ranks: The rank of each value, rising (N,).
        records: The number of new records with it (N,).
    """

    ranks: Ints
    records: Ints


@dataclass(frozen=True)
class Join:
    """A segment that joins old groups with new values.

    Attributes:
        olds: The old groups.
        news: The new values.
        starts: Where groups of the new values alone would begin.
        added: The width that the join adds.
        price: The width that the join adds for every unit of (max - min) that it saves.
    """

    olds: slice
    news: slice
    starts: list[int]
    added: int
    price: Fraction


def find_costly_joins(
    axis: Axis, old: Spans, new: Arrivals, olds: Sequence[slice], news: Sequence[slice]
) -> Iterator[Join]:
    """Yield the joins that are too costly to be kept.

    Args:
        axis: The sensitive values.
        old: The groups of the last release.
        new: The new values.
        olds: The old groups of every segment.
        news: The new values of every segment.
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
