"""Group the records of a growing table so that its releases keep (k,e)-anonymity even if they are combined."""

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
    """All n records, with their groups in the m earlier releases of a growing table.

    A table only gains records, so a record of one release is in all later ones.

    Attributes:
        axis: The sensitive values as exact numbers, with k and e.
        ranks: The rank of every record's sensitive value, rising (n,).
        groups: The group of every record in every earlier release, oldest first (m, n); -1 if the record was not in it.
    """

    axis: Axis
    ranks: Ints
    groups: Ints


def arrange_records(ranks: Ints, groups: Ints) -> Ints:
    """Order records by rising value so that every group of an earlier release is an interval, if possible.

    The groups of the next release are intervals of this order. Records with equal values may stand in any order. Those
    of earlier releases are ordered by their groups, the last release first. New records come before the first group
    that begins at their value, or after all old records with that value. So they can join the group before or the group
    after them.

    Args:
        ranks: The rank of every record's value (n,).
        groups: The group of every record in every earlier release (m, n); -1 if the record was not in it.

    Returns:
        The records in that order, by position (n,).
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
    """Return the group number of every record (n,), given the positions at which groups start."""
    marks = np.zeros(records, dtype=np.int64)
    marks[list(starts)] = 1
    return np.asarray(np.cumsum(marks) - 1)


# Nested ---------------------------------------------------------------------------------------------------------------
# A set of records is *fine* if it is (k,e)-anonymous: it has k distinct values or more, over a range of e or more.
#
# Every new group is a union of groups of the last release and a fine set of new records. Then every atom of the common
# refinement of all releases is fine (by induction: it is an atom of the last release, or the new records of one group).
# So every Boolean combination of groups is fine or empty, and only the last release has to be known.
#
# The optimum. If the ranges of two groups overlap in more than a point, their union costs less and is allowed. So the
# groups of an optimum lie side by side on the axis. Each old group is one element, with the new values inside its
# range. Each other new value is an element, too. The static program runs over these elements. A segment of elements is
# feasible if its new records are fine, or if it is one old group. It takes O(groups + new values), however many records
# there are.
#
# By that sum alone, a few new records spread over the axis would merge all old groups into one. So some segments are
# taken apart again (``find_costly_joins``). Old groups may overlap after that. Then the disjoint ones with the most
# records are elements of the next program, and the others stay as they are.


@dataclass(frozen=True)
class Grouping:
    """The groups of the next release, numbered by their lowest and then by their highest value.

    Attributes:
        old: The new group into which every group of the last release goes (G,).
        new: The new group of every distinct value among the new records (N,).
    """

    old: Ints
    new: Ints


def group_nested(axis: Axis, old: Spans, new: Arrivals, *, restrained: bool = True) -> Grouping:
    """Group the next release: every group is a union of groups of the last release and of new values.

    Args:
        axis: The sensitive values, with k and e.
        old: The groups of the last release.
        new: The distinct values of the new records.
        restrained: If True, unions that make groups much wider are undone; else only the sum of (max - min) counts.

    Raises:
        ValueError: The new records together are not (k,e)-anonymous.
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
    # Find the segments with the least sum of (max - min).
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
    if restrained:
        olds, news = (
            [slice(a, b) for a, b in pairwise(np.searchsorted(numbers, np.arange(count + 1)).tolist())]
            for numbers in (group_held, group_new)
        )
        for join in find_costly_joins(axis, held, new, olds, news):
            group_held[join.olds] = count + np.arange(join.olds.stop - join.olds.start)
            count += join.olds.stop - join.olds.start
            group_new[join.news] = count + label_records(join.starts, join.news.stop - join.news.start)
            count += len(join.starts)
    group_old = np.arange(len(old.low)) + 2 * (len(base) + len(new.ranks))  # groups outside the base stay alone
    group_old[base] = group_held
    # Number the groups by lowest value, then by highest value, then by their first old group.
    every = np.concatenate((group_old, group_new))
    _, first, group = np.unique(every, return_index=True, return_inverse=True)
    lowest, _ = find_ends(group, np.concatenate((old.low, new.ranks)), len(first))
    _, highest = find_ends(group, np.concatenate((old.high, new.ranks)), len(first))
    number = np.empty(len(first), dtype=np.int64)
    number[np.lexsort((first, highest, lowest))] = np.arange(len(first))
    return Grouping(number[group[: len(group_old)]], number[group[len(group_old) :]])


def _disjoint_groups(old: Spans) -> Ints:
    """Return old groups (of the last release) whose ranges of values do not overlap, in rising order.

    New values can be added to them. Groups overlap only if an earlier release kept new values apart from old groups
    whose ranges they meet. Then the disjoint groups that have the most records together are returned; else all groups.
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
# The re-applying algorithm of the thesis, word for word: it compares every segment with every group of given releases.
#
# With all earlier releases it finds the optimum by Definition 5 (``reapply-all``, O(m n^3)). With the last one alone it
# misses breaches against older ones (``reapply-last``). It is a baseline and a reference; ``exact`` finds the same much
# faster.

MOST = 400  # with more records it would take minutes


def reapply(history: GroupingHistory) -> list[int] | None:
    """Divide sorted records into the groups of the next release of a growing table, by a slow but simple algorithm.

    It is that of the thesis on incremental (k,e)-anonymity. The groups have the least sum of (max - min). No group,
    combined with a group of an earlier release in ``history``, may break (k,e)-anonymity (``is_safe``). Of several best
    divisions, one with the most groups is taken.

    Args:
        history: The records, with their groups in earlier releases.

    Returns:
        The positions at which groups start; None if there is no such division.
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
    """Return whether records ``first`` to ``last`` may form a group of the next release of a growing table.

    The group must be (k,e)-anonymous. Its intersection with each group of an earlier release, and both differences,
    must be empty or (k,e)-anonymous (thesis on incremental (k,e)-anonymity, Definition 5).
    """
    axis, ranks = history.axis, history.ranks
    inside = np.zeros(len(ranks), dtype=bool)
    inside[first : last + 1] = True
    if not axis.is_fine(ranks[inside]):
        return False
    met = (groups == a for groups in history.groups for a in np.unique(groups[inside]).tolist() if a >= 0)
    parts = (part for group in met for part in (group & inside, group & ~inside, inside & ~group))
    return all(not part.any() or axis.is_fine(ranks[part]) for part in parts)


# Windows --------------------------------------------------------------------------------------------------------------
# Where a segment may start beside every earlier release (Definition 5), computed for all ends at once.
#
# Records are sorted, and the groups of a release are intervals of its records. Take a segment b = [j..i], and a release
# r whose records are called members. For a group a of r, the intersection of a and b must be fine. Then a\b is fine as
# well, because it is empty or holds the intersection of a with another segment. And b\a is fine if b meets another
# group of r. So the following is left to check, where p is the group of the first member from j on, and q that of the
# last member up to i:
#
# * no member in [j..i]: nothing;
# * p before q: the members of p from j on are fine (on j alone) and those of q up to i are fine (on i alone);
# * p = q: the members in [j..i] are fine (j <= A(i)), and its non-members, new since r, are none or fine (j > N(i), the
#   last non-member up to i, or j <= B(i)).
#
# For one i and r that is an upper bound on j, if i is a member, and one interval (x, y] that j must avoid.


@dataclass(frozen=True)
class LeftEndBounds:
    """Where a group of the next release may start, for each record where it ends, to be safe with an earlier release.

    Safe means that the two releases, combined, do not break (k,e)-anonymity. Records are sorted by value. A group that
    ends at record i may start at record j if j <= cap[i], but not if avoid[i] < j <= until[i]. If dead[j], it must also
    have j > last[i]. All arrays have shape (n,).

    Attributes:
        cap: The last possible start.
        avoid: The position before the forbidden starts.
        until: The last forbidden start; equal to ``avoid`` if none is forbidden.
        dead: Whether a group that starts at record j must not contain any record of the earlier release.
        last: The position of the last record up to i that was in the earlier release; -1 if there is none.
    """

    cap: Ints
    avoid: Ints
    until: Ints
    dead: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    last: Ints


def left_end_bounds(axis: Axis, ranks: Ints, groups: Ints) -> LeftEndBounds:
    """Compute for each record i where a group that ends at i may start, to be safe together with one earlier release.

    Safe means that its intersection with each group of that release, and both differences, are empty or
    (k,e)-anonymous. The computation takes O(n) steps.

    Args:
        axis: The sensitive values, with k and e.
        ranks: The rank of every record's value, rising (n,).
        groups: The group of every record in the earlier release; -1 if the record was not in it (n,).

    Raises:
        ValueError: A group is not an interval of the release's records.
    """
    member = groups >= 0
    at, other = np.flatnonzero(member), np.flatnonzero(~member)
    if not len(at):
        none = np.full(len(ranks), -1)
        return LeftEndBounds(np.arange(len(ranks)), none, none, np.zeros(len(ranks), dtype=bool), none)
    here = groups[at]
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
    spans = _place_among_all(at, begin - 1, last_member)  # a segment that starts here or before meets another group
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
    """Turn positions among some records, such as those of an earlier release, into positions among all records.

    The result is ``at[number[indices]]``, but -1 (none) stays -1.

    Args:
        at: The position among all records of each record of the subset.
        number: For each record of the subset, a position in the subset; -1 for none.
        indices: For each result, the record of the subset that is looked up in ``number``; -1 for none.
    """
    if not len(at):
        return np.full(len(indices), -1)
    result = np.where(number >= 0, at[np.maximum(number, 0)], -1)
    return np.where(indices >= 0, result[np.maximum(indices, 0)], -1)


@dataclass(frozen=True)
class Windows:
    """At which records a group of the next release may start, for every record at which it may end.

    Each of the n records has a level, which says what must hold for groups that start with it. At level 0 nothing must
    hold. At level r + 1 such a group must not contain any record of earlier release r. The records of each level are
    numbered from 0, and w intervals of these numbers say where groups may start. The intervals from at[i] to at[i + 1]
    - 1 are for groups that end at record i.

    Attributes:
        level: The level of every record (n,).
        at: The position of the first interval for every end (n + 1,).
        levels: The level of every interval (w,).
        first: The number of the interval's first record within its level (w,).
        last: The number of its last record (w,).
    """

    level: Ints
    at: Ints
    levels: Ints
    first: Ints
    last: Ints


def allowed_windows(history: GroupingHistory) -> Windows:
    """Compute for each record i where a group that ends at i may start, to be safe together with all earlier releases.

    Safe means that its intersection with each of their groups, and both differences, are empty or (k,e)-anonymous. The
    computation takes O(m n) steps for m releases and n records, apart from sorting.
    """
    release_bounds = [left_end_bounds(history.axis, history.ranks, groups) for groups in history.groups]
    cap = history.axis.left_ends(history.ranks)
    level = np.zeros(len(cap), dtype=np.int64)
    for r, release in enumerate(release_bounds):
        cap = np.minimum(cap, release.cap)
        level[release.dead] = r + 1
    changed = True
    while changed:  # a cap inside a forbidden interval moves to just before it
        changed = False
        for release in release_bounds:
            inside = (release.until >= cap) & (release.avoid < cap)
            if inside.any():
                cap[inside] = release.avoid[inside]
                changed = True
    ends, first, last = _allowed_pieces(cap, release_bounds)
    # Split the intervals by level, and number starts within their level; leave out intervals without a start.
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
    """List where a new group may start, for each record where it ends, as intervals of records that nothing forbids.

    Args:
        cap: The last record at which a group may start, for each record where it ends (n,).
        release_bounds: The starts that each earlier release forbids, as groups of both could be combined to break
            (k,e).

    Returns:
        (the record where a group ends, the first record where it may start, the last one), an entry for each interval.
    """
    n = len(cap)
    open_ends = np.flatnonzero(cap >= 0)
    none = np.full(len(open_ends), -1)
    forbidden = [(open_ends, none, none)]  # (end, the point before the forbidden starts, the last forbidden start)
    for release in release_bounds:
        holes = np.flatnonzero((release.avoid < release.until) & (release.until < cap))
        forbidden.append((holes, release.avoid[holes], release.until[holes]))
    forbidden.append((open_ends, cap[open_ends], cap[open_ends]))
    ends, before, after = (np.concatenate(parts) for parts in zip(*forbidden, strict=True))
    halves = np.arange(2 * len(open_ends)).reshape(2, -1).T.ravel()  # interleaved
    order = np.lexsort((before, ends)) if len(ends) > len(halves) else halves
    ends, before, after = ends[order], before[order], after[order]
    # For each end, the furthest start forbidden so far. Keys of an end are larger than those of all earlier ends.
    reached = np.maximum.accumulate(ends * (n + 1) + after + 1) - ends * (n + 1)
    first, last = reached[:-1], before[1:]
    is_allowed = (ends[:-1] == ends[1:]) & (first <= last)
    return ends[1:][is_allowed], first[is_allowed], last[is_allowed]


# Exact ----------------------------------------------------------------------------------------------------------------

BLOCK = 64


class RangeMinimum:
    """A growing list of numbers that can give the minimum of any range quickly.

    ``group_exactly`` keeps in it, for every record, the cost of the best groups before the record less its value.
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.prefixes: list[int] = []
        self.blocks: list[int] = []
        self.large: list[int] = []

    def append(self, value: int) -> None:
        """Add a number at the end."""
        self.values.append(value)
        self.prefixes.append(min(value, self.prefixes[-1]) if self.prefixes else value)
        if not len(self.values) % BLOCK:
            self.blocks.append(min(self.values[-BLOCK:]))
            if not len(self.blocks) % BLOCK:
                self.large.append(min(self.blocks[-BLOCK:]))

    def least_between(self, first: int, last: int) -> int:
        """Return the minimum of the numbers at positions ``first`` to ``last``, both included."""
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
    """Divide sorted records into the groups of the next release of a growing table, with the least sum of (max - min).

    No group, combined with a group of any earlier release, may break (k,e)-anonymity (``is_safe``). Records with equal
    values keep their order. The algorithm is fast; ``reapply`` finds the same division slowly.

    Args:
        history: The records, with their groups in earlier releases.

    Returns:
        The positions at which groups start; None if there is no such division.

    Raises:
        ValueError: A group of an earlier release does not have neighbouring records of that release.
    """
    allowed = allowed_windows(history)
    units = history.axis.units
    n = len(history.ranks)
    scale, zero = n + 1, units[0] if units else 0
    infinite = (units[-1] - zero + 2) * scale if units else 0
    hopeless = 2 * infinite * scale
    # An integer encodes both (cost before j - u_j) and j, so the minimum tells j as well.
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
    """Return the group of every record (n,) in the next release; -1 for new records that are held back.

    New records are held back if they are not (k,e)-anonymous together, because the difference of two releases shows
    them. They are also held back if the algorithm finds no division. Then the groups of the last release remain. A
    first release has the groups with the least sum of (max - min).

    Args:
        history: The records, in an order of ``arrange_records``, with their earlier groups.
        algorithm: The algorithm.

    Raises:
        InfeasibleError: All records together are not (k,e)-anonymous.
        UsageError: There are too many records for the algorithm, or it can't continue the earlier releases.
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
