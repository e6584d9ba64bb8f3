"""The records of a growing table and the groups that earlier releases put them in, as arrays in sorted order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.permute.axis import Axis, Ints


@dataclass(frozen=True)
class History:
    """n records in rising order of the sensitive value and the groups of m earlier releases, oldest first.

    A table only gains records, so a record of one release is in all later ones.
    """

    axis: Axis
    ranks: Ints  # (n,) rank of every record's value, rising
    groups: Ints  # (m, n) group in every earlier release; -1 where the record was not in it

    @property
    def is_new(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """(n,) whether a record is in no earlier release."""
        return np.asarray(self.groups[-1] < 0) if len(self.groups) else np.ones(len(self.ranks), dtype=bool)

    def last(self, releases: int) -> History:
        """The same records with the last so many releases alone."""
        return History(self.axis, self.ranks, self.groups[max(len(self.groups) - releases, 0) :])


def arranged(ranks: Ints, groups: Ints) -> Ints:
    """An order of the records (n,), ``ranks`` rising, in which groups that were intervals are intervals.

    Among equal values the order is free. Records of earlier releases lie by their groups, the last release first: where
    groups of every release were intervals of one order of its records, they still are. New records lie before the
    first group that begins at their value, so that groups before and after can both have them, or after all others.
    """
    if not len(groups):
        return np.argsort(ranks, kind="stable")
    last = groups[-1]
    after = 2 * (int(last.max(initial=0)) + 1)
    begins = np.full(after // 2, np.iinfo(np.int64).max)
    old = last >= 0
    np.minimum.at(begins, last[old], ranks[old])
    first = np.full(int(ranks.max(initial=-1)) + 1, after)
    opening = old & (begins[np.maximum(last, 0)] == ranks)
    np.minimum.at(first, ranks[opening], 2 * last[opening])
    place = np.where(old, 2 * last, first[ranks] - 1)
    return np.lexsort((*groups[:-1], place, ranks))


def labels(starts: Sequence[int], records: int) -> Ints:
    """Group of every record (n,) from the left ends of the groups."""
    marks = np.zeros(records, dtype=np.int64)
    marks[list(starts)] = 1
    return np.asarray(np.cumsum(marks) - 1)
