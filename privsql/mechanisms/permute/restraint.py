"""Which joins of old groups with new records are not worth their saving.

A join is one segment of ``nested``: old groups and new records become one group. It saves part of the sum of (max -
min), but it hides the values of all its records in a wider range, and a few new records can do that to very many old
ones. Apart, the old groups stay and the new records make the groups of their own static optimum. By the width of a
record, that of its group, summed over records:

* a join is kept if it widens its records by at most three quarters;
* of the others, those that save most for the width they add are kept, while they widen the release as a whole by at
  most the share of new records in it, so that many small releases do not add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.permute.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.mechanisms.permute.axis import Axis, Ints

LOCAL = Fraction(7, 4)  # a join may widen its own records by this factor


@dataclass(frozen=True)
class Spans:
    """G groups of the last release: ranks of their ends and numbers of records."""

    low: Ints
    high: Ints
    records: Ints


@dataclass(frozen=True)
class Arrivals:
    """N distinct values among the new records: rising ranks and numbers of records."""

    ranks: Ints
    records: Ints


@dataclass(frozen=True)
class Join:
    """A segment: its old groups and new values, and where groups of the new values alone would begin."""

    olds: slice
    news: slice
    starts: list[int]
    joined: int  # width summed over records, as one group
    apart: int  # the same with the old groups as they are
    saved: int  # sum of (max - min) that the join saves

    @property
    def price(self) -> Fraction:
        """Width added for every unit saved."""
        return Fraction(self.joined - self.apart, self.saved) if self.saved > 0 else Fraction(self.joined)


def taken_apart(axis: Axis, old: Spans, new: Arrivals, olds: Sequence[slice], news: Sequence[slice]) -> Iterator[Join]:
    """The joins that are not kept; ``olds`` and ``news`` are the old groups and new values of every segment."""
    costly, whole = [], 0
    for held, met in zip(olds, news, strict=True):
        apart = _old_width(axis, old, held)
        if held.start == held.stop or met.start == met.stop:
            whole += apart
            continue
        joined = _joined_width(axis, old, new, held, met)
        if joined <= LOCAL * apart:
            whole += joined
            continue
        join = _join(axis, old, new, held, met)
        whole += join.apart
        if join.joined > LOCAL * join.apart:
            costly.append(join)
    arrived, stayed = int(new.records.sum()), int(old.records.sum())
    budget = Fraction(whole * arrived, arrived + stayed)
    for join in sorted(costly, key=lambda join: join.price):
        budget -= join.joined - join.apart
        if budget < 0:
            yield join


def _old_width(axis: Axis, old: Spans, held: slice) -> int:
    parts = (part[held].tolist() for part in (old.low, old.high, old.records))
    return sum(axis.width(a, b) * records for a, b, records in zip(*parts, strict=True))


def _joined_width(axis: Axis, old: Spans, new: Arrivals, held: slice, met: slice) -> int:
    low = min(int(old.low[held.start]), int(new.ranks[met.start]))
    high = max(int(old.high[held.stop - 1]), int(new.ranks[met.stop - 1]))
    return axis.width(low, high) * int(old.records[held].sum() + new.records[met].sum())


def _join(axis: Axis, old: Spans, new: Arrivals, held: slice, met: slice) -> Join:
    ranks = new.ranks[met]
    units = [axis.units[rank] for rank in ranks.tolist()]
    starts = sweep(units, units, axis.left_ends(ranks).tolist()) or []
    before = np.concatenate(([0], np.cumsum(new.records[met]))).tolist()
    parts = [(units[b - 1] - units[a], before[b] - before[a]) for a, b in pairwise([*starts, len(units)])]
    joined = _joined_width(axis, old, new, held, met)
    records = int(old.records[held].sum()) + before[-1]
    widths = [axis.width(a, b) for a, b in zip(old.low[held].tolist(), old.high[held].tolist(), strict=True)]
    return Join(
        held,
        met,
        starts,
        joined,
        _old_width(axis, old, held) + sum(width * number for width, number in parts),
        sum(widths) + sum(width for width, _ in parts) - joined // records,
    )
