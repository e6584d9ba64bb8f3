r"""Which left ends a segment may have beside every earlier release (Definition 5), as windows; vectorised by release.

Records lie in sorted order and the groups of a release are intervals of its records. Take a segment [j..i] and a
release r, "members" being its records. Every piece a∩b must be fine; a\b then is, for if it is not empty it holds
another segment's piece of a; and b\a is, once b meets two groups of r. What remains, with p the group of r of the
first member at or after j and q that of the last member up to i:

* no member in [j..i]: nothing to hold;
* p before q: the members of p from j on are fine (on j alone) and those of q up to i are fine (on i alone);
* p = q: the members in [j..i] are fine (j <= A(i)), and its non-members, new since r, are none or fine
  (j > N(i), the last non-member up to i, or j <= B(i)).

For one i and r that is an upper bound on j, if i is a member, and one interval (x, y] that j must avoid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from privsql.mechanisms.permute.axis import Axis, Ints
    from privsql.mechanisms.permute.history import History


@dataclass(frozen=True)
class Bounds:
    """What one release asks: j <= cap[i], j not in (avoid[i], until[i]], a ``dead`` j only while no member follows."""

    cap: Ints  # (n,)
    avoid: Ints  # (n,)
    until: Ints  # (n,) equal to avoid where there is nothing to avoid
    dead: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # (n,)
    last: Ints  # (n,) position of the last member up to i, or -1


def bounds(axis: Axis, ranks: Ints, groups: Ints) -> Bounds:
    """The bounds of one release; ``groups`` (n,) in sorted order, -1 for records that it does not hold. O(n).

    Raises ``ValueError`` if a group is no interval of the release's records.
    """
    member = groups >= 0
    at, other = np.flatnonzero(member), np.flatnonzero(~member)
    if not len(at):
        return _unbounded(len(ranks))
    begin, end = _group_ends(groups[at])
    left = axis.left_ends(ranks[at])
    left = np.where(left >= begin, left, -1)  # fine within its own group
    seen = np.cumsum(member) - 1  # the last member up to i, by number
    far = _place(at, left, seen)
    spans = _place(at, begin - 1, seen)  # j up to here meets an earlier group of the release
    fresh = np.cumsum(~member) - 1
    enough = np.maximum(spans, _place(other, axis.left_ends(ranks[other]), fresh))
    last, last_other = _place(at, np.arange(len(at)), seen), _place(other, np.arange(len(other)), fresh)
    avoid = np.where(member, enough, np.minimum(far, enough))
    until = np.where(member, last_other, last)
    following = np.minimum(seen + ~member, len(at) - 1)  # the first member at or after j
    dead = (left[end[following]] < following) & (seen + ~member < len(at))
    cap = np.where(member, far, np.arange(len(ranks)))
    return Bounds(cap, avoid, np.maximum(until, avoid), dead, last)


def _unbounded(records: int) -> Bounds:
    none = np.full(records, -1)
    return Bounds(np.arange(records), none, none, np.zeros(records, dtype=bool), none)


def _group_ends(groups: Ints) -> tuple[Ints, Ints]:
    """First and last member of every member's group."""
    steps = groups[1:] != groups[:-1]
    starts = np.concatenate(([0], np.flatnonzero(steps) + 1))
    if len(starts) != len(np.unique(groups)):
        raise ValueError("a group of an earlier release is no interval of the sensitive value")
    ends = np.append(starts[1:], len(groups)) - 1
    number = np.concatenate(([0], np.cumsum(steps)))
    return starts[number], ends[number]


def _place(at: Ints, number: Ints, seen: Ints) -> Ints:
    """Position of ``number[seen]`` among all records; -1 where either is -1."""
    if not len(at):
        return np.full(len(seen), -1)
    found = np.where(number >= 0, at[np.maximum(number, 0)], -1)
    return np.where(seen >= 0, found[np.maximum(seen, 0)], -1)


@dataclass(frozen=True)
class Windows:
    """The left ends that are allowed for every right end: pieces ``first[w]..last[w]`` of one level.

    ``level`` (n,) is 0 for a left end that is good for all right ends, r + 1 if release r is the last one that
    it can only serve before its next member. Pieces of right end i are ``at[i]..at[i+1]-1``.
    """

    level: Ints  # (n,)
    at: Ints  # (n + 1,)
    levels: Ints  # (w,)
    first: Ints  # (w,)
    last: Ints  # (w,)


def windows(history: History) -> Windows:
    """All allowed left ends of all right ends. O(m n) but for the sorting of what several releases forbid at once."""
    asked = [bounds(history.axis, history.ranks, groups) for groups in history.groups]
    cap = history.axis.left_ends(history.ranks)
    level = np.zeros(len(cap), dtype=np.int64)
    for r, release in enumerate(asked):
        cap = np.minimum(cap, release.cap)
        level[release.dead] = r + 1
    cap = _lowered(cap, asked)
    ends, first, last = _pieces(cap, asked)
    return _by_level(level, asked, ends, first, last)


def _lowered(cap: Ints, asked: list[Bounds]) -> Ints:
    """``cap`` below every forbidden interval that it lies in."""
    changed = True
    while changed:
        changed = False
        for release in asked:
            inside = (release.until >= cap) & (release.avoid < cap)
            if inside.any():
                cap[inside] = release.avoid[inside]
                changed = True
    return cap


def _pieces(cap: Ints, asked: list[Bounds]) -> tuple[Ints, Ints, Ints]:
    """(right end, first, last) of the intervals of 0..cap that no release forbids, by right end."""
    n = len(cap)
    open_ends = np.flatnonzero(cap >= 0)
    owner, avoid, until = [open_ends], [np.full(len(open_ends), -1)], [np.full(len(open_ends), -1)]
    for release in asked:
        holes = np.flatnonzero((release.avoid < release.until) & (release.until < cap))
        owner.append(holes)
        avoid.append(release.avoid[holes])
        until.append(release.until[holes])
    owner.append(open_ends)
    avoid.append(cap[open_ends])
    until.append(cap[open_ends])
    ends, before, after = np.concatenate(owner), np.concatenate(avoid), np.concatenate(until)
    order = np.lexsort((before, ends)) if len(ends) > 2 * len(open_ends) else _interleaved(len(open_ends))
    ends, before, after = ends[order], before[order], after[order]
    # The furthest point forbidden so far, by right end: keys of one right end lie above those of all earlier ones.
    reached = np.maximum.accumulate(ends * (n + 1) + after + 1) - ends * (n + 1)
    first, last = reached[:-1], before[1:]
    kept = (ends[:-1] == ends[1:]) & (first <= last)
    return ends[1:][kept], first[kept], last[kept]


def _interleaved(number: int) -> Ints:
    return np.arange(2 * number).reshape(2, number).T.ravel()


def _by_level(level: Ints, asked: list[Bounds], ends: Ints, first: Ints, last: Ints) -> Windows:
    """The pieces split by the level of the left ends; those without any are left out."""
    found = []
    for number in np.unique(level).tolist():
        counted = np.concatenate(([0], np.cumsum(level == number)))
        begin = first if number == 0 else np.maximum(first, asked[number - 1].last[ends] + 1)
        begin = np.minimum(begin, last + 1)
        some = np.flatnonzero(counted[last + 1] > counted[begin])
        # Left ends are numbered within their level.
        pieces = (ends[some], np.full(len(some), number), counted[begin[some]], counted[last[some] + 1] - 1)
        found.append(pieces)
    if not found:
        return Windows(level, np.zeros(1, dtype=np.int64), *(np.zeros(0, dtype=np.int64),) * 3)
    owner, levels, begin, end = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(owner, kind="stable")
    at = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=len(level)))))
    return Windows(level, at, levels[order], begin[order], end[order])
