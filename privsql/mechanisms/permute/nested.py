"""Releases closed under combination: every group is a union of last groups plus a fine set of new records.

Then every atom of the common refinement of all releases is fine (by induction: an atom is one of the last release's,
or the new records of one group), so every Boolean combination of groups is fine or empty, and only the last release
is needed.

The optimum. If two groups' ranges meet in more than a point, their union costs less and is allowed, so the groups of
an optimum lie side by side on the axis. Each old group, with the new values inside its range, is one element, each
other new value one more, and the static program runs over these elements; a segment is feasible if the new records in
it are fine, or if it is one old group. New values are counted, never records: O(groups + new values).

Taken alone, that sum wants a handful of new records spread over the axis to melt all old groups into one, so
``restraint`` takes some segments apart again. Old groups that overlap through that stay as they are, but for a
heaviest disjoint set.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.permute.history import labels
from privsql.mechanisms.permute.restraint import Arrivals, Spans, taken_apart
from privsql.mechanisms.permute.sweep import sweep

if TYPE_CHECKING:
    from privsql.mechanisms.permute.axis import Axis, Ints


@dataclass(frozen=True)
class Grouping:
    """The new group of every old group (G,) and of every new value (N,): 0, 1, .. by lowest, then highest value."""

    old: Ints
    new: Ints


def nested(axis: Axis, old: Spans, new: Arrivals, *, restrained: bool = True) -> Grouping:
    """The grouping of the next release; not ``restrained``, of the least sum (max - min) alone.

    The new records as a whole must be fine, or none: they can't be published otherwise by anyone.
    """
    if not len(new.ranks):
        return _numbered(old, new, np.arange(len(old.low)), np.zeros(0, dtype=np.int64))
    base = _disjoint(old)
    elements = _Elements(axis, Spans(old.low[base], old.high[base], old.records[base]), new)
    joined = _joined(axis, elements, restrained)
    kept = np.arange(len(old.low)) + 2 * (len(base) + len(new.ranks))  # numbers of their own
    kept[base] = joined.old
    return _numbered(old, new, kept, joined.new)


def _disjoint(old: Spans) -> Ints:
    """A set of groups with disjoint ranges that holds most records, rising: all, unless some were taken apart."""
    order = np.lexsort((old.low, old.high))
    low, high = old.low[order], old.high[order]
    if (high[:-1] < low[1:]).all():
        return order
    highs, held, taken = high.tolist(), [0], []
    for i, (begin, records) in enumerate(zip(low.tolist(), old.records[order].tolist(), strict=True)):
        before = bisect_left(highs, begin, 0, i)
        taken.append(before if held[before] + records > held[i] else -1)
        held.append(max(held[i], held[before] + records))
    chosen, i = [], len(taken)
    while i:
        if taken[i - 1] >= 0:
            chosen.append(i - 1)
            i = taken[i - 1]
        else:
            i -= 1
    return np.asarray(order[chosen[::-1]])


class _Elements:
    """Old groups with the new values inside them, and the other new values, side by side in rising order."""

    def __init__(self, axis: Axis, old: Spans, new: Arrivals) -> None:
        self.old, self.new = old, new
        within = np.searchsorted(old.low, new.ranks, side="right") - 1
        inside = (within >= 0) & (new.ranks <= old.high[np.maximum(within, 0)]) if len(old.low) else within >= 0
        lone = new.ranks[~inside]
        order = np.argsort(np.concatenate((old.low, lone)), kind="stable")
        self.low = np.concatenate((old.low, lone))[order]
        self.high = np.concatenate((old.high, lone))[order]
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        self.of_old = place[: len(old.low)]
        self.of_new = np.empty(len(new.ranks), dtype=np.int64)
        self.of_new[inside], self.of_new[~inside] = self.of_old[within[inside]], place[len(old.low) :]
        self.reach = self._reach(axis)

    def _reach(self, axis: Axis) -> Ints:
        """The largest element from which on the new records up to here are fine, or -1; (T,)."""
        left = axis.left_ends(self.new.ranks)
        seen = np.searchsorted(self.of_new, np.arange(len(self.low)), side="right") - 1
        least = np.where(seen >= 0, left[np.maximum(seen, 0)], -1)
        return np.where(least >= 0, self.of_new[np.maximum(least, 0)], -1)

    def segments(self, axis: Axis) -> Ints:
        """Segment of every element in the optimum (T,)."""
        low, high = ([axis.units[rank] for rank in ends.tolist()] for ends in (self.low, self.high))
        untouched = np.bincount(self.of_new, minlength=len(low)) == 0
        starts = sweep(low, high, self.reach.tolist(), untouched.tolist())
        if starts is None:
            raise ValueError("the new records are not fine as a whole")
        marks = np.zeros(len(low), dtype=np.int64)
        marks[starts] = 1
        return np.asarray(np.cumsum(marks) - 1)


def _joined(axis: Axis, elements: _Elements, restrained: bool) -> Grouping:
    """The optimum's segments, those that would widen groups too much taken apart; numbered in no particular order."""
    segment = elements.segments(axis)
    old, new = segment[elements.of_old], segment[elements.of_new]
    count = int(segment[-1]) + 1
    if restrained:
        for join in taken_apart(axis, elements.old, elements.new, _runs(old, count), _runs(new, count)):
            old[join.olds] = count + np.arange(join.olds.stop - join.olds.start)
            count += join.olds.stop - join.olds.start
            new[join.news] = count + labels(join.starts, join.news.stop - join.news.start)
            count += len(join.starts)
    return Grouping(old, new)


def _runs(numbers: Ints, count: int) -> list[slice]:
    """Where every number 0..count-1 lies in a rising sequence."""
    edges = np.searchsorted(numbers, np.arange(count + 1)).tolist()
    return [slice(a, b) for a, b in pairwise(edges)]


def _numbered(old: Spans, new: Arrivals, group_old: Ints, group_new: Ints) -> Grouping:
    """The same groups, numbered 0, 1, .. by lowest, then highest value, then the first of their old groups."""
    every = np.concatenate((group_old, group_new))
    _, first, group = np.unique(every, return_index=True, return_inverse=True)
    low, high = np.full(len(first), np.iinfo(np.int64).max), np.full(len(first), -1)
    np.minimum.at(low, group, np.concatenate((old.low, new.ranks)))
    np.maximum.at(high, group, np.concatenate((old.high, new.ranks)))
    number = np.empty(len(first), dtype=np.int64)
    number[np.lexsort((first, high, low))] = np.arange(len(first))
    return Grouping(number[group[: len(group_old)]], number[group[len(group_old) :]])
