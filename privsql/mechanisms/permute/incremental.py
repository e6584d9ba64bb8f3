"""Group the records of a growing table so that no two releases breach (k,e)-anonymity together."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.permute.grouping import (
    Arrivals,
    Spans,
    cheapest_segments,
    find_costly_joins,
    find_ends,
    static_optimum,
    trace_left_ends,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.permute.grouping import Axis, Ints
    from privsql.mechanisms.permute.parameters import Algorithm

# History --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupingHistory:
    """Records with their groups in earlier releases.

    The n records are in rising order of the sensitive value. There are m earlier releases, oldest first. A table only
    gains records, so a record of one release is in all later ones.
    """

    axis: Axis
    ranks: Ints  # (n,) rank of every record's value, rising
    groups: Ints  # (m, n) group in every earlier release; -1 where the record was not in it


def arrange_records(ranks: Ints, groups: Ints) -> Ints:
    """Return an order of the records (n,), ``ranks`` rising, in which groups that were intervals are intervals.

    Among equal values the order is free. Records of earlier releases lie by their groups, the last release first: where
    groups of every release were intervals of one order of its records, they still are. New records lie before the
    first group that begins at their value, so that groups before and after can both have them, or after all others.
    """
    if not len(groups):
        return np.argsort(ranks, kind="stable")
    last = groups[-1]
    after = 2 * (int(last.max(initial=0)) + 1)
    old = last >= 0
    begins, _ = find_ends(last[old], ranks[old], after // 2)
    first = np.full(int(ranks.max(initial=-1)) + 1, after)
    opening = old & (begins[np.maximum(last, 0)] == ranks)
    np.minimum.at(first, ranks[opening], 2 * last[opening])
    place = np.where(old, 2 * last, first[ranks] - 1)
    return np.lexsort((*groups[:-1], place, ranks))


def label_records(starts: Sequence[int], records: int) -> Ints:
    """Return the group of every record (n,) from the left ends of the groups."""
    marks = np.zeros(records, dtype=np.int64)
    marks[list(starts)] = 1
    return np.asarray(np.cumsum(marks) - 1)


# Nested ---------------------------------------------------------------------------------------------------------------
# Releases closed under combination: every group is a union of last groups plus a fine set of new records.
#
# Then every atom of the common refinement of all releases is fine (by induction: an atom is one of the last release's,
# or the new records of one group), so every Boolean combination of groups is fine or empty, and only the last release
# is needed.
#
# The optimum. If two groups' ranges meet in more than a point, their union costs less and is allowed, so the groups of
# an optimum lie side by side on the axis. Each old group is one element, with the new values inside its range, and
# each other new value is one more. The static program runs over these elements. A segment is feasible if its new
# records are fine, or if it is one old group. New values are counted, never records: O(groups + new values).
#
# With that sum alone, a handful of new records spread over the axis would merge all old groups into one. So
# ``find_costly_joins`` takes some segments apart again. Old groups that overlap through that stay as they are, but for
# a heaviest disjoint set.


@dataclass(frozen=True)
class Grouping:
    """The next release's groups, numbered by lowest, then highest value.

    Attributes:
        old: The new group of every old group (G,).
        new: The new group of every new value (N,).
    """

    old: Ints
    new: Ints


def group_nested(axis: Axis, old: Spans, new: Arrivals, *, restrained: bool = True) -> Grouping:
    """Group the next release from groups of the last one and new values.

    The new records as a whole must be fine, because nobody can publish them otherwise.

    Args:
        axis: The sensitive values.
        old: The groups of the last release.
        new: The new values.
        restrained: If True, joins that widen groups too much are taken apart; else only the sum of (max - min) counts.

    Raises:
        ValueError: The new records are not fine as a whole.
    """
    base = _disjoint_groups(old)
    held = Spans(old.low[base], old.high[base], old.records[base])
    # Elements: old groups with the new values inside them, and the other new values, side by side in rising order.
    within = np.searchsorted(held.low, new.ranks, side="right") - 1
    inside = (within >= 0) & (new.ranks <= held.high[np.maximum(within, 0)])
    lone = new.ranks[~inside]
    order = np.argsort(np.concatenate((held.low, lone)), kind="stable")
    low, high = (np.concatenate((ends, lone))[order] for ends in (held.low, held.high))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    of_old = place[: len(held.low)]
    of_new = np.empty(len(new.ranks), dtype=np.int64)
    of_new[inside], of_new[~inside] = of_old[within[inside]], place[len(held.low) :]
    # The segments of least sum.
    left = axis.left_ends(new.ranks)
    last_new = np.searchsorted(of_new, np.arange(len(low)), side="right") - 1
    least = np.where(last_new >= 0, left[np.maximum(last_new, 0)], -1)
    reach = np.where(least >= 0, of_new[np.maximum(least, 0)], -1)
    low_units, high_units = ([axis.units[rank] for rank in ends.tolist()] for ends in (low, high))
    untouched = np.bincount(of_new, minlength=len(low)) == 0
    starts = cheapest_segments(low_units, high_units, reach.tolist(), untouched.tolist())
    if starts is None:
        raise ValueError("the new records are not fine as a whole")
    segment = label_records(starts, len(low))
    group_held, group_new, count = segment[of_old], segment[of_new], len(starts)
    if restrained:  # take apart what would widen groups too much
        olds, news = (
            [slice(a, b) for a, b in pairwise(np.searchsorted(numbers, np.arange(count + 1)).tolist())]
            for numbers in (group_held, group_new)
        )
        for join in find_costly_joins(axis, held, new, olds, news):
            group_held[join.olds] = count + np.arange(join.olds.stop - join.olds.start)
            count += join.olds.stop - join.olds.start
            group_new[join.news] = count + label_records(join.starts, join.news.stop - join.news.start)
            count += len(join.starts)
    group_old = np.arange(len(old.low)) + 2 * (len(base) + len(new.ranks))  # numbers of their own
    group_old[base] = group_held
    # Numbers 0, 1, .. by lowest, then highest value, then the first of the old groups.
    every = np.concatenate((group_old, group_new))
    _, first, group = np.unique(every, return_index=True, return_inverse=True)
    lowest, _ = find_ends(group, np.concatenate((old.low, new.ranks)), len(first))
    _, highest = find_ends(group, np.concatenate((old.high, new.ranks)), len(first))
    number = np.empty(len(first), dtype=np.int64)
    number[np.lexsort((first, highest, lowest))] = np.arange(len(first))
    return Grouping(number[group[: len(group_old)]], number[group[len(group_old) :]])


def _disjoint_groups(old: Spans) -> Ints:
    """Return a set of groups with disjoint ranges that hold the most records, in rising order.

    These are all groups, unless some were taken apart in an earlier release.
    """
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


# Reapply --------------------------------------------------------------------------------------------------------------
# The thesis' re-applying algorithm to the letter: every segment against every group of the releases that are given.
#
# Against all earlier releases it is the optimum by Definition 5 (``reapply-all``, O(m n^3)). Against the last one alone
# it misses breaches against older ones (``reapply-last``). It is a baseline and a reference: ``exact`` finds the same
# much faster.

MOST = 400  # with more records it takes minutes


def reapply(history: GroupingHistory) -> list[int] | None:
    """Return the left ends of segments that breach nothing, with the least sum of (max - min), then the most groups.

    The result is None if there is no such partition.
    """
    n = len(history.ranks)
    units = [history.axis.units[rank] for rank in history.ranks.tolist()]
    cost: list[tuple[int, int] | None] = [(0, 0)]
    back: list[int] = []
    for i in range(n):
        best, arg = None, -1
        for j in range(i + 1):
            before = cost[j]
            if before is None or not is_safe(history, j, i):
                continue
            result = (before[0] + units[i] - units[j], before[1] - 1)
            if best is None or result < best:
                best, arg = result, j
        cost.append(best)
        back.append(arg)
    return trace_left_ends(back)


def is_safe(history: GroupingHistory, first: int, last: int) -> bool:
    """Return whether the records first..last are fine and breach no group of any given release (Definition 5)."""
    axis, ranks = history.axis, history.ranks
    inside = np.zeros(len(ranks), dtype=bool)
    inside[first : last + 1] = True
    if not axis.is_fine(ranks[inside]):
        return False
    met = (groups == a for groups in history.groups for a in np.unique(groups[inside]).tolist() if a >= 0)
    parts = (part for group in met for part in (group & inside, group & ~inside, inside & ~group))
    return all(not part.any() or axis.is_fine(ranks[part]) for part in parts)


# Windows --------------------------------------------------------------------------------------------------------------
# Which left ends a segment may have beside every earlier release (Definition 5), as windows; vectorised by release.
#
# Records lie in sorted order and the groups of a release are intervals of its records. Take a segment [j..i] and a
# release r, "members" being its records. Every piece a∩b must be fine; a\b then is, for if it is not empty it holds
# another segment's piece of a; and b\a is, once b meets two groups of r. What remains, with p the group of r of the
# first member at or after j and q that of the last member up to i:
#
# * no member in [j..i]: nothing to hold;
# * p before q: the members of p from j on are fine (on j alone) and those of q up to i are fine (on i alone);
# * p = q: the members in [j..i] are fine (j <= A(i)), and its non-members, new since r, are none or fine (j > N(i), the
#   last non-member up to i, or j <= B(i)).
#
# For one i and r that is an upper bound on j, if i is a member, and one interval (x, y] that j must avoid.


@dataclass(frozen=True)
class LeftEndBounds:
    """What one earlier release demands of the left end j of a segment that ends at i.

    The conditions are j <= cap[i], and j not in (avoid[i], until[i]]. If ``dead``[j], no member may follow j in the
    segment.
    """

    cap: Ints  # (n,)
    avoid: Ints  # (n,)
    until: Ints  # (n,) equal to avoid where there is nothing to avoid
    dead: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # (n,)
    last: Ints  # (n,) position of the last member up to i, or -1


def left_end_bounds(axis: Axis, ranks: Ints, groups: Ints) -> LeftEndBounds:
    """Return what one release demands of left ends, in O(n).

    Args:
        axis: The sensitive values.
        ranks: The ranks of the records in sorted order (n,).
        groups: The group of each record in the release, -1 if it does not hold the record (n,).

    Raises:
        ValueError: A group is no interval of the release's records.
    """
    member = groups >= 0
    at, other = np.flatnonzero(member), np.flatnonzero(~member)
    if not len(at):
        none = np.full(len(ranks), -1)
        return LeftEndBounds(np.arange(len(ranks)), none, none, np.zeros(len(ranks), dtype=bool), none)
    here = groups[at]  # of every member, whose group begins and ends where
    steps = here[1:] != here[:-1]
    starts = np.concatenate(([0], np.flatnonzero(steps) + 1))
    if len(starts) != len(np.unique(here)):
        raise ValueError("a group of an earlier release is no interval of the sensitive value")
    ends = np.append(starts[1:], len(here)) - 1
    number = np.concatenate(([0], np.cumsum(steps)))
    begin, end = starts[number], ends[number]
    left = axis.left_ends(ranks[at])
    left = np.where(left >= begin, left, -1)  # fine within its own group
    last_member = np.cumsum(member) - 1  # the last member up to i, by number
    far = _place_among_all(at, left, last_member)
    spans = _place_among_all(at, begin - 1, last_member)  # j up to here meets an earlier group of the release
    fresh = np.cumsum(~member) - 1
    enough = np.maximum(spans, _place_among_all(other, axis.left_ends(ranks[other]), fresh))
    last = _place_among_all(at, np.arange(len(at)), last_member)
    last_other = _place_among_all(other, np.arange(len(other)), fresh)
    avoid = np.where(member, enough, np.minimum(far, enough))
    until = np.where(member, last_other, last)
    following = np.minimum(last_member + ~member, len(at) - 1)  # the first member at or after j
    dead = (left[end[following]] < following) & (last_member + ~member < len(at))
    cap = np.where(member, far, np.arange(len(ranks)))
    return LeftEndBounds(cap, avoid, np.maximum(until, avoid), dead, last)


def _place_among_all(at: Ints, number: Ints, indices: Ints) -> Ints:
    """Return the position of ``number[indices]`` among all records; -1 where either is -1."""
    if not len(at):
        return np.full(len(indices), -1)
    result = np.where(number >= 0, at[np.maximum(number, 0)], -1)
    return np.where(indices >= 0, result[np.maximum(indices, 0)], -1)


@dataclass(frozen=True)
class Windows:
    """The left ends that are allowed for every right end, as intervals of left ends of one level.

    ``level`` (n,) is 0 for a left end that is allowed for any right end. It is r + 1 if release r is the last one for
    which the left end may only be used before the release's next member. The intervals of right end i are
    ``at[i]..at[i+1]-1``; interval w is ``first[w]..last[w]``, numbered within its level.
    """

    level: Ints  # (n,)
    at: Ints  # (n + 1,)
    levels: Ints  # (w,)
    first: Ints  # (w,)
    last: Ints  # (w,)


def allowed_windows(history: GroupingHistory) -> Windows:
    """Return all allowed left ends of all right ends.

    It takes O(m n), apart from sorting what several releases forbid together.
    """
    release_bounds = [left_end_bounds(history.axis, history.ranks, groups) for groups in history.groups]
    cap = history.axis.left_ends(history.ranks)
    level = np.zeros(len(cap), dtype=np.int64)
    for r, release in enumerate(release_bounds):
        cap = np.minimum(cap, release.cap)
        level[release.dead] = r + 1
    changed = True
    while changed:  # a cap in a forbidden interval moves to the place before that interval
        changed = False
        for release in release_bounds:
            inside = (release.until >= cap) & (release.avoid < cap)
            if inside.any():
                cap[inside] = release.avoid[inside]
                changed = True
    ends, first, last = _allowed_pieces(cap, release_bounds)
    # Split pieces by the level of their left ends, which are numbered within it; leave out pieces without any.
    result = [np.zeros((4, 0), dtype=np.int64)]
    for number in np.unique(level).tolist():
        counted = np.concatenate(([0], np.cumsum(level == number)))
        begin = first if number == 0 else np.maximum(first, release_bounds[number - 1].last[ends] + 1)
        begin = np.minimum(begin, last + 1)
        some = np.flatnonzero(counted[last + 1] > counted[begin])
        pieces = ends[some], np.full(len(some), number), counted[begin[some]], counted[last[some] + 1] - 1
        result.append(np.stack(pieces))
    owner, levels, firsts, lasts = np.hstack(result)
    order = np.argsort(owner, kind="stable")
    at = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(level)))))
    return Windows(level, at, levels[order], firsts[order], lasts[order])


def _allowed_pieces(cap: Ints, release_bounds: list[LeftEndBounds]) -> tuple[Ints, Ints, Ints]:
    """Return the intervals of 0..cap that no release forbids, as arrays (right end, first, last), by right end."""
    n = len(cap)
    open_ends = np.flatnonzero(cap >= 0)
    none = np.full(len(open_ends), -1)
    forbidden = [(open_ends, none, none)]  # right end, and the points before and at the end of what is forbidden
    for release in release_bounds:
        holes = np.flatnonzero((release.avoid < release.until) & (release.until < cap))
        forbidden.append((holes, release.avoid[holes], release.until[holes]))
    forbidden.append((open_ends, cap[open_ends], cap[open_ends]))
    ends, before, after = (np.concatenate(parts) for parts in zip(*forbidden, strict=True))
    halves = np.arange(2 * len(open_ends)).reshape(2, -1).T.ravel()  # interleaved
    order = np.lexsort((before, ends)) if len(ends) > len(halves) else halves
    ends, before, after = ends[order], before[order], after[order]
    # The furthest point forbidden so far, by right end: keys of one right end lie above those of all earlier ones.
    reached = np.maximum.accumulate(ends * (n + 1) + after + 1) - ends * (n + 1)
    first, last = reached[:-1], before[1:]
    is_allowed = (ends[:-1] == ends[1:]) & (first <= last)
    return ends[1:][is_allowed], first[is_allowed], last[is_allowed]


# Exact ----------------------------------------------------------------------------------------------------------------

BLOCK = 64


class RangeMinimum:
    """The minimum over any range of a list of numbers that grows by appending.

    A prefix takes one step, any other range a few slices.
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.prefixes: list[int] = []
        self.blocks: list[int] = []
        self.large: list[int] = []

    def append(self, value: int) -> None:
        """Append a number."""
        self.values.append(value)
        self.prefixes.append(min(value, self.prefixes[-1]) if self.prefixes else value)
        if not len(self.values) % BLOCK:
            self.blocks.append(min(self.values[-BLOCK:]))
            if not len(self.blocks) % BLOCK:
                self.large.append(min(self.blocks[-BLOCK:]))

    def least_between(self, first: int, last: int) -> int:
        """Return the least of the numbers ``first..last``; the range must not be empty."""
        if first == 0:
            return self.prefixes[last]
        a, b = -(-first // BLOCK), (last + 1) // BLOCK
        if a >= b:
            return min(self.values[first : last + 1])
        parts = self.values[first : a * BLOCK] + self.values[b * BLOCK : last + 1]
        c, d = -(-a // BLOCK), b // BLOCK
        if c >= d:
            return min(parts + self.blocks[a:b])
        return min(parts + self.blocks[a : c * BLOCK] + self.large[c:d] + self.blocks[d * BLOCK : b])


def group_exactly(history: GroupingHistory) -> list[int] | None:
    """Return the left ends of segments that breach nothing, with the least sum of (max - min), then the most groups.

    The result equals that of ``reapply`` against all releases, and is None if there is no partition. Every segment is
    fine. With every group of every earlier release, both differences and the intersection are empty or fine. The
    optimum is that of the given order of equal values.

    Raises:
        ValueError: A group of an earlier release is no interval of its records.
    """
    allowed = allowed_windows(history)
    units = history.axis.units
    n = len(history.ranks)
    scale, zero = n + 1, units[0] if units else 0
    infinite = (units[-1] - zero + 2) * scale if units else 0
    hopeless = 2 * infinite * scale
    # A candidate is (cost before j - u_j) and j in one integer, so that the minimum brings its argument.
    values = [(units[rank] - zero) * scale for rank in history.ranks.tolist()]
    levels = [RangeMinimum() for _ in range(len(history.groups) + 1)]
    pieces = list(zip(allowed.levels.tolist(), allowed.first.tolist(), allowed.last.tolist(), strict=True))
    at = allowed.at.tolist()
    cost, back = 0, []
    for i, (value, level) in enumerate(zip(values, allowed.level.tolist(), strict=True)):
        levels[level].append((cost - value) * scale + i if cost < infinite else hopeless)
        result = [levels[which].least_between(first, last) for which, first, last in pieces[at[i] : at[i + 1]]]
        least, left = divmod(min(result, default=hopeless), scale)
        cost = min(least + value - 1, infinite)
        back.append(left if cost < infinite else -1)
    return trace_left_ends(back)


# Incremental ----------------------------------------------------------------------------------------------------------


def group_release(history: GroupingHistory, algorithm: Algorithm) -> Ints:
    """Return the group of every record (n,) in the next release, or -1 for new records that are held back.

    The records lie in an order of ``arrange_records``. New records that are not fine as a whole are held back, whatever
    the algorithm: the difference of the whole releases would show them. They are also held back if ``exact`` or a
    reapplying algorithm finds no partition. The groups of the last release then remain, as they do if nothing is new.
    The first release is the static optimum.

    Raises:
        InfeasibleError: All records together are not fine.
        UsageError: The algorithm can't serve.
    """
    if not len(history.groups):
        starts = static_optimum(history.axis)
        if starts is None:
            raise InfeasibleError("all records together do not have k distinct sensitive values with max - min >= e")
        return np.asarray(label_records(starts, len(history.axis.units))[history.ranks])
    last, ranks = history.groups[-1], history.ranks
    fresh = last < 0
    if not history.axis.is_fine(ranks[fresh]):
        return np.asarray(last)
    if algorithm == "nested":
        low, high = find_ends(last[~fresh], ranks[~fresh], int(last.max()) + 1)
        values, records = np.unique(ranks[fresh], return_counts=True)
        spans = Spans(low, high, np.bincount(last[~fresh], minlength=len(low)))
        result = group_nested(history.axis, spans, Arrivals(values, records))
        group = np.empty(len(ranks), dtype=np.int64)
        group[~fresh] = result.old[last[~fresh]]
        group[fresh] = result.new[np.searchsorted(values, ranks[fresh])]
        return group
    if algorithm == "reapply-all":
        if len(ranks) > MOST:
            raise UsageError(
                f"algorithm 'reapply-all' compares all releases with each other and takes at most {MOST} "
                f"records, not {len(ranks)}; 'exact' finds the same groups"
            )
        starts = reapply(history)
    else:
        seen = replace(history, groups=history.groups[-1:]) if algorithm == "reapply-last" else history
        try:
            starts = group_exactly(seen)
        except ValueError as error:
            raise UsageError(f"algorithm {algorithm!r}: {error}; use 'nested'") from error
    return last if starts is None else label_records(starts, len(ranks))
