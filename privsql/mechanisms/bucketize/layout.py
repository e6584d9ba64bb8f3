"""Lay records out in buckets: runs of values, blocks, pieces of the plan, and Anatomy's assignment."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from privsql.engine.remote import BATCH
from privsql.errors import GuaranteeError
from privsql.mechanisms.private import Segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.model import Bids, Ints, Plan, Setting

# Runs -----------------------------------------------------------------------------------------------------------------
# What the buckets of a release list, as runs: neighbouring buckets that list the same values are stored once.
#
# ST, the channel, how often values are listed and the peaks of beliefs follow from it, whatever the number of records.

COMPOSITION = pa.schema([("bid", pa.int32()), ("code", pa.int32()), ("records", pa.int32())])
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class SizeClass:
    """The buckets of one size: R runs of ``length`` (R,) buckets from ``first`` (R,) on; ``codes`` (R, t): the t values
    that each of them lists, sorted. t is ``size``, or more where some are fake.
    """

    size: int
    first: Ints
    length: Ints
    codes: Codes

    @cached_property
    def entries(self) -> tuple[Ints, Codes, NDArray[np.int32]]:
        """Run, value and how often, of every different value of every run; in that order."""
        runs, listed = self.codes.shape
        new = np.ones((runs, listed), dtype=bool)
        np.not_equal(self.codes[:, 1:], self.codes[:, :-1], out=new[:, 1:])
        at = np.flatnonzero(new)
        times = np.diff(np.append(at, new.size)).astype(np.int32)
        return at // max(1, listed), self.codes.ravel()[at], times


@dataclass(frozen=True)
class BucketRuns:
    """Classes by rising size; ``values`` = m."""

    values: int
    classes: tuple[SizeClass, ...]

    @cached_property
    def listed_counts(self) -> Ints:
        """How often each value is listed (m,)."""
        counts = np.zeros(self.values, dtype=np.int64)
        for one in self.classes:
            run, code, times = one.entries
            counts += np.bincount(code, one.length[run] * times, self.values).astype(np.int64)
        return counts

    @property
    def listed_pairs(self) -> tuple[Ints, Ints]:
        """Bucket and value of every listed value."""
        parts = [(_bucket_numbers(one), np.repeat(one.codes, one.length, axis=0)) for one in self.classes]
        bids = np.concatenate([np.repeat(bid, codes.shape[1]) for bid, codes in parts])
        return bids, np.concatenate([codes.ravel() for _, codes in parts]).astype(np.int64)

    def as_stream(self) -> pa.RecordBatchReader:
        """(bid, code, records): how often each value stands in each bucket, in that order; a stream."""
        return pa.RecordBatchReader.from_batches(COMPOSITION, self._make_batches())

    def _make_batches(self) -> Iterator[pa.RecordBatch]:
        for one in self.classes:
            run, code, times = one.entries
            starts = np.searchsorted(run, np.arange(len(one.first) + 1))
            rows = np.cumsum(np.diff(starts) * one.length)
            begin = 0
            while begin < len(one.first):
                before = int(rows[begin - 1]) if begin else 0
                end = max(begin + 1, int(np.searchsorted(rows, before + BATCH, side="right")))
                yield _make_rows(one, (starts, code, times), begin, end)
                begin = end

    @property
    def most_meetings(self) -> int:
        """No fewer than ``count_meetings`` has rows: pairs of values in runs, and of all values."""
        kinds = [np.bincount(one.entries[0]) for one in self.classes]
        return sum(min(int((k * (k + 1)).sum()), self.values * (self.values + 1)) // 2 for k in kinds)

    def count_meetings(self, fakes: int = 0) -> pa.Table:
        """(size, first, second, pairs): sum over buckets of one size of count(g, first) * count(g, second).

        ``fakes``: how many values of what counts here as the size are to be fake.

        Only first <= second and pairs > 0; codes are ranks of values. This is what the channel of a release is made
        of, and follows from ST alone.
        """
        parts = []
        for one in self.classes:
            first, second, pairs = _count_pairs(one, self.values)
            columns = [
                np.full(len(first), one.size - fakes, dtype=np.int32),
                first.astype(np.int32),
                second.astype(np.int32),
            ]
            parts.append(pa.table([*columns, pairs], names=["size", "first", "second", "pairs"]))
        return pa.concat_tables(parts)


def _bucket_numbers(one: SizeClass) -> Ints:
    """The numbers of the buckets, run by run."""
    ends = np.cumsum(one.length)
    return np.arange(int(one.length.sum())) + np.repeat(one.first - ends + one.length, one.length)


def _make_rows(one: SizeClass, entries: tuple[Ints, Codes, NDArray[np.int32]], begin: int, end: int) -> pa.RecordBatch:
    """ST's rows of the runs ``begin`` to ``end``."""
    starts, code, times = entries
    part = SizeClass(one.size, one.first[begin:end], one.length[begin:end], one.codes[:0])
    number = np.repeat(np.diff(starts)[begin:end], part.length)
    shift = np.repeat(starts[begin:end], part.length) - np.cumsum(number) + number
    at = np.arange(int(number.sum())) + np.repeat(shift, number)
    columns = [np.repeat(_bucket_numbers(part), number).astype(np.int32), code[at], times[at]]
    return pa.record_batch(columns, schema=COMPOSITION)


FEW = 2**22  # steps of a product that are counted without a sparse matrix


def _count_pairs(one: SizeClass, values: int) -> tuple[Ints, Ints, Ints]:
    """First, second and pairs, sorted, of the values that meet in the buckets of a class: C^T diag(length) C, C the
    counts of the runs.
    """
    run, code, times = one.entries
    if len(one.first) * values**2 <= FEW:  # scipy takes longer to import
        dense = np.zeros((len(one.first), values), dtype=np.int64)
        dense[run, code] = times
        square = np.triu(dense.T @ (dense * one.length[:, None]))
        first, second = np.nonzero(square)
        return first, second, square[first, second]
    counts = scipy.sparse.csr_array((times.astype(np.int64), (run, code)), shape=(len(one.first), values))
    weighted = scipy.sparse.csr_array((times * one.length[run], (run, code)), shape=counts.shape)
    product = scipy.sparse.triu(counts.T @ weighted, format="csr")
    product.sort_indices()
    first, second = product.tocoo().coords
    return first.astype(np.int64), second.astype(np.int64), product.data


def runs_from_intervals(begin: Ints, end: Ints, code: Ints, values: int, setting: Setting) -> BucketRuns:
    """Runs between the ends of intervals; ``GuaranteeError`` unless every bucket has its size.

    Neighbouring buckets ``begin`` to ``end``, exclusive, list ``code`` once more each (I,).
    """
    buckets = np.cumsum([0, *setting.buckets])
    ends = np.unique(np.concatenate((begin, end, buckets)))
    first, last = np.searchsorted(ends, begin), np.searchsorted(ends, end)
    number = last - first
    run = np.arange(int(number.sum())) + np.repeat(first - np.cumsum(number) + number, number)
    keys = np.sort(run << _code_bits(values) | np.repeat(code, number))
    return _make_runs((ends[:-1], np.diff(ends)), keys, values, setting.items)


def runs_from_entries(
    bids: Bids | Ints, codes: Codes | Ints, values: int, setting: Sequence[tuple[int, int]], fakes: int = 0
) -> BucketRuns:
    """A run for every bucket; ``bids``, ``codes`` (E,): what is listed. ``fakes``: how many values beyond the size."""
    buckets, bits = sum(number for _, number in setting), _code_bits(values)
    keys: NDArray[np.signedinteger] = bids.astype(np.int32 if buckets.bit_length() + bits < 32 else np.int64)
    np.left_shift(keys, bits, out=keys)
    np.bitwise_or(keys, codes, out=keys, casting="same_kind")
    keys.sort()
    first = np.arange(buckets)
    return _make_runs((first, np.ones_like(first)), keys, values, setting, fakes)


def _code_bits(values: int) -> int:
    """That a code needs."""
    return max(1, (values - 1).bit_length())


def _make_runs(
    runs: tuple[Ints, Ints],
    keys: NDArray[np.signedinteger],
    values: int,
    setting: Sequence[tuple[int, int]],
    fakes: int = 0,
) -> BucketRuns:
    """Classes of ``runs``, first bucket and length; ``keys``: rank of the run and code, sorted."""
    first, length = runs
    bits = _code_bits(values)
    held = np.bincount(keys >> bits, minlength=len(first))
    bounds = np.searchsorted(first, np.cumsum([0, *(number for _, number in setting)])).tolist()
    classes, start = [], 0
    for (size, _), begin, end in zip(setting, bounds[:-1], bounds[1:], strict=True):
        if (held[begin:end] != size + fakes).any():
            raise GuaranteeError(f"a layout gives a bucket of {size} another number of values")
        stop = start + (size + fakes) * (end - begin)
        codes = (keys[start:stop] & ((1 << bits) - 1)).astype(np.int32).reshape(end - begin, size + fakes)
        classes.append(SizeClass(size, first[begin:end], length[begin:end], codes))
        start = stop
    if start != len(keys):
        raise GuaranteeError("a layout places records beyond its last bucket")
    return BucketRuns(values, tuple(classes))


# Pieces ---------------------------------------------------------------------------------------------------------------
# Where the records of every value go: a small table, from which a release's composition follows without the data.
#
#     pieces(code, lo, hi, start, width, shift):
#     rank r in [lo, hi) of value ``code`` lies in bucket  start + (shift + r - lo) mod width
#
# Buckets are numbered by size, smallest first. The ranks of a value are given to its records in uniformly random order,
# so every order of a value's records over its places is equally likely given the pieces: the posterior of an adversary
# who knows the algorithm is count(g, x)/|g| exactly, and that is all the privacy argument needs of a layout.
#
# Layouts without such a form (Anatomy's own, or values in two families of bounded sets) are ``Singles``: one place
# each.

AT_ONCE = 2**17  # places that are written at a time, few enough for a cache


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

    def draw_places(self, noise: Shuffler) -> Bids:
        """For each value in turn, the buckets of its records in uniformly random order (n,)."""
        bids = self.rank_places()
        start = 0
        for records in self.counts.tolist():
            noise.shuffle(bids[start : start + records])
            start += records
        return bids

    def rank_places(self) -> Bids:
        """For each value in turn, the buckets of its ranks (n,)."""
        lengths = self.hi - self.lo
        ends = np.cumsum(lengths)
        bids = np.empty(int(lengths.sum()), dtype=np.int32)
        first = 0
        while first < len(lengths):
            begin = int(ends[first] - lengths[first])
            last = max(first + 1, int(np.searchsorted(ends, begin + AT_ONCE, side="right")))
            bids[begin : int(ends[last - 1])] = self._places_of(slice(first, last), begin, ends)
            first = last
        return bids

    def _places_of(self, part: slice, begin: int, ends: Ints) -> Bids:
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

    def make_segments(self) -> Segments:
        """The buckets of the ranks of every value, where something else puts records in uniformly random order.

        Pieces are cut where they begin again at their first bucket.
        """
        length, first = self.hi - self.lo, self.shift % self.width
        times = (first + length - 1) // self.width + 1
        piece = np.repeat(np.arange(len(times)), times)
        turn = np.arange(len(piece)) - np.repeat(np.cumsum(times) - times, times)
        ends = self.lo[piece] + (turn + 1) * self.width[piece] - first[piece]
        lo = np.maximum(ends - self.width[piece], self.lo[piece])
        number = self.start[piece] + (first[piece] + lo - self.lo[piece]) % self.width[piece]
        return Segments(self.code[piece], lo, np.minimum(ends, self.hi[piece]), number, step=1)

    def list_runs(self, setting: Setting) -> BucketRuns:
        """From the ends of arcs: a piece fills its buckets some whole times, and an arc of them once more."""
        full_turns, arc = np.divmod(self.hi - self.lo, self.width)
        begin = self.start + self.shift % self.width
        over = (begin + arc - self.start - self.width).clip(0)
        every = np.repeat(np.arange(len(full_turns)), full_turns)
        with_arc, wrapped = np.flatnonzero(arc), np.flatnonzero(over)
        begins = self.start[every], begin[with_arc], self.start[wrapped]
        ends = (self.start + self.width)[every], (begin + arc - over)[with_arc], (self.start + over)[wrapped]
        codes = self.code[every], self.code[with_arc], self.code[wrapped]
        begin, end, code = map(np.concatenate, (begins, ends, codes))
        return runs_from_intervals(begin, end, code, self.values, setting)


@dataclass(frozen=True)
class Singles:
    """``bids`` (n,): the buckets of the records of each value in turn; ``counts`` (m,)."""

    bids: Bids
    counts: Ints

    def draw_places(self, noise: Shuffler) -> Bids:
        """For each value in turn, the buckets of its records in uniformly random order (n,)."""
        for part in np.split(self.bids, np.cumsum(self.counts)[:-1]):
            noise.shuffle(part)
        return self.bids

    def make_segments(self) -> Segments:
        """Every rank by itself."""
        ends = np.cumsum(self.counts)
        rank = np.arange(len(self.bids)) - np.repeat(ends - self.counts, self.counts)
        return Segments(np.repeat(np.arange(len(self.counts)), self.counts), rank, rank + 1, self.bids, step=1)

    def list_runs(self, setting: Setting) -> BucketRuns:
        """Each bucket by itself."""
        codes = np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)
        return runs_from_entries(self.bids, codes, len(self.counts), setting.items)


BucketLayout = Pieces | Singles  # of n records of m values


def join_pieces(values: int, columns: Sequence[tuple[Ints, Ints, Ints, Ints, Ints]]) -> Pieces:
    """Pieces from (code, records, start, width, shift) in the order in which each value's ranks are given."""
    code, records, start, width, shift = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(code, kind="stable")
    order = order[records[order] > 0]
    code, records = code[order], records[order]
    hi = np.cumsum(records)
    before = np.bincount(code, records, values).cumsum().astype(np.int64)
    hi -= np.concatenate(([0], before))[code]
    return Pieces(values, code, hi - records, hi, start[order], width[order], shift[order])


# Anatomy --------------------------------------------------------------------------------------------------------------


def lay_out_largest_first(plan: Plan, noise: Shuffler) -> Singles | None:
    """Anatomy's own composition: each bucket draws one record from the values with most records left.

    What is left over at the end goes, one record at a time, to random smallest buckets that lack the value; None
    where there is no such bucket (tiny tables), so that the caller takes another layout. O(n log m).
    """
    counts = plan.allocation.sum(axis=1).tolist()
    buckets, size = sum(plan.setting.buckets), plan.setting.sizes[0]
    heap = [(-count, value) for value, count in enumerate(counts) if count]
    heapq.heapify(heap)
    members: list[list[int]] = [[] for _ in counts]
    for g in range(buckets):
        if len(heap) < size:
            return None
        for left, value in [heapq.heappop(heap) for _ in range(size)]:
            members[value].append(g)
            if left < -1:
                heapq.heappush(heap, (left + 1, value))
    extra = np.zeros(buckets, dtype=np.int64)
    for value in [v for left, v in sorted(heap) for _ in range(-left)]:
        open_buckets = np.setdiff1d(np.flatnonzero(extra == 0), members[value])
        if not len(open_buckets):
            return None
        chosen = int(noise.permutation(open_buckets)[0])
        members[value].append(chosen)
        extra[chosen] = 1
    return _number_by_size(members, extra, noise)


def _number_by_size(members: list[list[int]], extra: Ints, noise: Shuffler) -> Singles:
    """Number the buckets by size, at random within a size."""
    order = np.concatenate([noise.permutation(np.flatnonzero(extra == k)) for k in (0, 1)])
    number = np.empty(len(extra), dtype=np.int32)
    number[order] = np.arange(len(extra), dtype=np.int32)
    counts = np.array([len(held) for held in members], dtype=np.int64)
    return Singles(number[np.array([g for held in members for g in held], dtype=np.int64)], counts)


# Blocks ---------------------------------------------------------------------------------------------------------------
# Even layouts in blocks: in every bucket each value, and each bounded set of values, has the floor or the ceiling of
# its mean.
#
# A size class of b buckets is cut into blocks of neighbouring buckets. Inside a block of w buckets the values lie one
# after the other, in a random order of the block's own, on a line of S w places; place s is bucket s mod w. Values that
# follow each other on one line for all buckets partition these, so that what is seen of their sum is the same in every
# bucket, and the channel is singular there (round robin is this layout in one block). With many blocks any two values
# meet about as often as chance has it.
#
# Blocks share a value's records by rounding along the line (systematic sampling): of y left for B buckets a block of w
# gets the floor or the ceiling of y w/B, and so does every set of values that stand together. As that leaves the mean
# per bucket between the same two integers, a count per bucket is the floor or the ceiling of its mean in the whole
# class.

BLOCKS, WIDEST = 1024, 1200  # blocks of a size class, more where they would be wider


def lay_out_evenly(plan: Plan, classes: list[list[int]], noise: Shuffler, line: Callable[[], Ints]) -> Pieces:
    """Blocks of these widths for every size of ``classes``, whose values lie in the order that ``line`` draws."""
    columns, start = [], 0
    for j, blocks in enumerate(classes):
        left, rest = plan.allocation[:, j].copy(), sum(blocks)
        for width in blocks:
            order = line()
            order = order[left[order] > 0]
            offset = int(noise.integers(0, rest)) if width < rest else 0
            # Their sums over neighbours are the floor or the ceiling of what is due.
            share = np.diff((np.cumsum(left[order] * width) + offset) // rest, prepend=0)
            left[order] -= share
            columns.append(make_block_pieces(order, share, start, width))
            start, rest = start + width, rest - width
    return join_pieces(len(plan.allocation), columns)


def make_block_pieces(order: Ints, share: Ints, start: int, width: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """A block's pieces (code, records, start, width, shift): values one after the other, place s in bucket s mod w."""
    order, share = order[share > 0], share[share > 0]
    every = np.ones_like(order)
    return order, share, every * start, every * width, (np.cumsum(share) - share) % width


def block_widths(buckets: int, least: int | None = None, coarser: int = 1) -> list[int]:
    """Of the blocks of a class, as equal as can be, wider ones first; ``least``: how many, but for ``coarser`` ones."""
    blocks = min(buckets, max((BLOCKS if least is None else least) // coarser, -(-buckets // WIDEST)))
    each, over = divmod(buckets, blocks)
    return [each + (k < over) for k in range(blocks)]
