"""Where the records of every value go: a small table, from which a release's composition follows without the data.

    pieces(code, lo, hi, start, width, shift):
    rank r in [lo, hi) of value ``code`` lies in bucket  start + (shift + r - lo) mod width

Buckets are numbered by size, smallest first. The ranks of a value are given to its records in uniformly random order,
so every order of a value's records over its places is equally likely given the pieces: the posterior of an adversary
who knows the algorithm is count(g, x)/|g| exactly, and that is all the privacy argument needs of a layout.

Layouts without such a form (Anatomy's own, or values in two families of bounded sets) are ``Singles``: one place each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from privsql.mechanisms.bucketize.layout.runs import Intervals, Runs, of_entries, of_intervals
from privsql.mechanisms.dealing import Segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.model import Bids, Ints, Setting
    from privsql.noise import Shuffler

AT_ONCE = 2**21  # places that are written at a time


class Layout(Protocol):
    """A layout of n records of m values."""

    def places(self, noise: Shuffler) -> Bids:
        """For each value in turn, the buckets of its records in uniformly random order (n,)."""

    def segments(self) -> Segments:
        """The buckets of the ranks of every value, where something else puts records in uniformly random order."""

    def runs(self, setting: Setting) -> Runs:
        """Which values the buckets list."""


@dataclass(frozen=True)
class Pieces:
    """The table, columns (P,), sorted by ``code`` and ``lo``; the ranks of each of ``values`` values have no gaps."""

    values: int
    code: Ints
    lo: Ints
    hi: Ints
    start: Ints
    width: Ints
    shift: Ints

    @property
    def counts(self) -> Ints:
        """Records of each value (m,)."""
        return np.bincount(self.code, self.hi - self.lo, self.values).astype(np.int64)

    def places(self, noise: Shuffler) -> Bids:
        """For each value in turn, the buckets of its records in uniformly random order (n,)."""
        bids = self.ranked()
        start = 0
        for records in self.counts.tolist():
            noise.shuffle(bids[start : start + records])
            start += records
        return bids

    def ranked(self) -> Bids:
        """For each value in turn, the buckets of its ranks (n,)."""
        lengths = self.hi - self.lo
        ends = np.cumsum(lengths)
        bids = np.empty(int(lengths.sum()), dtype=np.int32)
        first = 0
        while first < len(lengths):
            begin = int(ends[first] - lengths[first])
            last = max(first + 1, int(np.searchsorted(ends, begin + AT_ONCE, side="right")))
            bids[begin : int(ends[last - 1])] = self._places(slice(first, last), begin, ends)
            first = last
        return bids

    def _places(self, part: slice, begin: int, ends: Ints) -> Bids:
        """In 32 bits, and almost always without a division: few pieces fill their buckets more than twice."""
        lengths, width = self.hi[part] - self.lo[part], self.width[part]
        first = self.shift[part] % width
        within = np.arange(int(ends[part][-1]) - begin, dtype=np.int32)
        within -= np.repeat((ends[part] - lengths - begin - first).astype(np.int32), lengths)
        widths = np.repeat(width.astype(np.int32), lengths)
        np.subtract(within, widths, out=within, where=within >= widths)
        if (lengths + first > 2 * width).any():
            within %= widths
        within += np.repeat(self.start[part].astype(np.int32), lengths)
        return within

    def segments(self) -> Segments:
        """Pieces, cut where they begin again at their first bucket."""
        length, first = self.hi - self.lo, self.shift % self.width
        times = (first + length - 1) // self.width + 1
        piece = np.repeat(np.arange(len(times)), times)
        turn = np.arange(len(piece)) - np.repeat(np.cumsum(times) - times, times)
        ends = self.lo[piece] + (turn + 1) * self.width[piece] - first[piece]
        lo = np.maximum(ends - self.width[piece], self.lo[piece])
        number = self.start[piece] + (first[piece] + lo - self.lo[piece]) % self.width[piece]
        return Segments(self.code[piece], lo, np.minimum(ends, self.hi[piece]), number, step=1)

    def runs(self, setting: Setting) -> Runs:
        """From the ends of arcs: a piece fills its buckets some whole times, and an arc of them once more."""
        whole, arc = np.divmod(self.hi - self.lo, self.width)
        begin = self.start + self.shift % self.width
        over = (begin + arc - self.start - self.width).clip(0)
        every = np.repeat(np.arange(len(whole)), whole)
        kept, wrapped = np.flatnonzero(arc), np.flatnonzero(over)
        intervals = Intervals(
            np.concatenate((self.start[every], begin[kept], self.start[wrapped])),
            np.concatenate(
                ((self.start + self.width)[every], (begin + arc - over)[kept], (self.start + over)[wrapped])
            ),
            np.concatenate((self.code[every], self.code[kept], self.code[wrapped])),
        )
        return of_intervals(intervals, self.values, setting)


@dataclass(frozen=True)
class Singles:
    """``bids`` (n,): the buckets of the records of each value in turn; ``counts`` (m,)."""

    bids: Bids
    counts: Ints

    def places(self, noise: Shuffler) -> Bids:
        """For each value in turn, the buckets of its records in uniformly random order (n,)."""
        for part in np.split(self.bids, np.cumsum(self.counts)[:-1]):
            noise.shuffle(part)
        return self.bids

    def segments(self) -> Segments:
        """Every rank by itself."""
        ends = np.cumsum(self.counts)
        rank = np.arange(len(self.bids)) - np.repeat(ends - self.counts, self.counts)
        return Segments(np.repeat(np.arange(len(self.counts)), self.counts), rank, rank + 1, self.bids, step=1)

    def runs(self, setting: Setting) -> Runs:
        """Each bucket by itself."""
        codes = np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)
        return of_entries(self.bids, codes, len(self.counts), setting.items)


def joined(values: int, columns: Sequence[tuple[Ints, Ints, Ints, Ints, Ints]]) -> Pieces:
    """Pieces from (code, records, start, width, shift) in the order in which each value's ranks are given."""
    code, records, start, width, shift = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(code, kind="stable")
    order = order[records[order] > 0]
    code, records = code[order], records[order]
    hi = np.cumsum(records)
    before = np.bincount(code, records, values).cumsum().astype(np.int64)
    hi -= np.concatenate(([0], before))[code]
    return Pieces(values, code, hi - records, hi, start[order], width[order], shift[order])
