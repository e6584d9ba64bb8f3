"""Lay records out in buckets: decide which bucket each record goes to, and list the values of each bucket."""

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
from privsql.mechanisms.assignment import Segments
from privsql.mechanisms.bucketize.group_flows import TreePair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.model import Bids, GroupTree, Ints, Plan, Setting

# Runs -----------------------------------------------------------------------------------------------------------------
# Neighbouring buckets that list the same values are stored once, as a run. ST, the channel and the largest beliefs are
# computed from runs, in a time that does not depend on the number of records.

COMPOSITION = pa.schema([("bid", pa.int32()), ("code", pa.int32()), ("records", pa.int32())])
Codes = NDArray[np.int32]


FEW = 2**22  # up to so many multiplications, a dense product is quicker than importing scipy


@dataclass(frozen=True)
class SizeClass:
    """All buckets of one size, as R runs; a run is a range of neighbouring buckets that list the same values.

    Attributes:
        size: The number of records in each bucket.
        first: The number of the first bucket of each run (R,).
        length: The number of buckets of each run (R,).
        codes: The values that each bucket of a run lists, sorted (R, t); t is ``size`` plus the fake values of a
            bucket.
    """

    size: int
    first: Ints
    length: Ints
    codes: Codes

    @cached_property
    def entries(self) -> tuple[Ints, Codes, NDArray[np.int32]]:
        """Return (run, value, how often a bucket of the run lists it), one entry for each different value of each run.

        A run is a range of neighbouring buckets that list the same values. Entries are sorted by run, then by value.
        """
        runs, listed = self.codes.shape
        new = np.ones((runs, listed), dtype=bool)
        np.not_equal(self.codes[:, 1:], self.codes[:, :-1], out=new[:, 1:])
        at = np.flatnonzero(new)
        times = np.diff(np.append(at, new.size)).astype(np.int32)
        return at // max(1, listed), self.codes.ravel()[at], times

    @property
    def numbers(self) -> Ints:
        """Return the numbers of all buckets of this size, run by run."""
        ends = np.cumsum(self.length)
        return np.arange(int(self.length.sum())) + np.repeat(self.first - ends + self.length, self.length)

    def count_pairs(self, values: int) -> tuple[Ints, Ints, Ints]:
        """Count for each pair of values how often they stand in the same bucket.

        In a bucket that lists one value c times and another d times, they meet c d times.

        Args:
            values: The number of sensitive values.

        Returns:
            (first value, second value, meetings) for the pairs that meet, with first <= second; sorted.
        """
        run, code, times = self.entries
        if len(self.first) * values**2 <= FEW:
            dense = np.zeros((len(self.first), values), dtype=np.int64)
            dense[run, code] = times
            square = np.triu(dense.T @ (dense * self.length[:, None]))
            first, second = np.nonzero(square)
            return first, second, square[first, second]
        counts = scipy.sparse.csr_array((times.astype(np.int64), (run, code)), shape=(len(self.first), values))
        weighted = scipy.sparse.csr_array((times * self.length[run], (run, code)), shape=counts.shape)
        product = scipy.sparse.triu(counts.T @ weighted, format="csr")
        product.sort_indices()
        first, second = product.tocoo().coords
        return first.astype(np.int64), second.astype(np.int64), product.data


@dataclass(frozen=True)
class BucketRuns:
    """What all buckets of a release list. Neighbouring buckets that list the same values are stored once, as a run.

    Attributes:
        values: The number of sensitive values, m.
        classes: The buckets of each size, smallest size first.
    """

    values: int
    classes: tuple[SizeClass, ...]

    @cached_property
    def listed_counts(self) -> Ints:
        """Return how often each value is listed (m,)."""
        counts = np.zeros(self.values, dtype=np.int64)
        for one in self.classes:
            run, code, times = one.entries
            counts += np.bincount(code, one.length[run] * times, self.values).astype(np.int64)
        return counts

    @property
    def listed_pairs(self) -> tuple[Ints, Ints]:
        """Return what every bucket lists, as two arrays (bucket, value); a value listed twice has two entries."""
        bids = [np.repeat(one.numbers, one.codes.shape[1]) for one in self.classes]
        codes = [np.repeat(one.codes, one.length, axis=0).ravel() for one in self.classes]
        return np.concatenate(bids), np.concatenate(codes).astype(np.int64)

    def as_stream(self) -> pa.RecordBatchReader:
        """Return a stream of rows (bid, code, records): how often each bucket lists each value, by bucket and value."""

        def make_batches() -> Iterator[pa.RecordBatch]:
            for one in self.classes:
                run, code, times = one.entries
                starts = np.searchsorted(run, np.arange(len(one.first) + 1))
                rows = np.cumsum(np.diff(starts) * one.length)
                begin = 0
                while begin < len(one.first):
                    before = int(rows[begin - 1]) if begin else 0
                    end = max(begin + 1, int(np.searchsorted(rows, before + BATCH, side="right")))
                    part = SizeClass(one.size, one.first[begin:end], one.length[begin:end], one.codes[:0])
                    number = np.repeat(np.diff(starts)[begin:end], part.length)
                    shift = np.repeat(starts[begin:end], part.length) - np.cumsum(number) + number
                    at = np.arange(int(number.sum())) + np.repeat(shift, number)
                    columns = [np.repeat(part.numbers, number).astype(np.int32), code[at], times[at]]
                    yield pa.record_batch(columns, schema=COMPOSITION)
                    begin = end

        return pa.RecordBatchReader.from_batches(COMPOSITION, make_batches())

    @property
    def most_meetings(self) -> int:
        """Return how many rows the table of pairs of values that share a bucket (``count_meetings``) has at most.

        Publishing estimates from it how much memory is needed.
        """
        kinds = [np.bincount(one.entries[0]) for one in self.classes]
        return sum(min(int((k * (k + 1)).sum()), self.values * (self.values + 1)) // 2 for k in kinds)

    def count_meetings(self, fakes: int = 0) -> pa.Table:
        """Count how often each pair of values meets in buckets of each size.

        Estimators need these counts to solve for true counts, and they follow from ST alone.

        Args:
            fakes: How much to subtract from bucket sizes: the number of fake values, if ``size`` in ``classes`` counts
                them; else 0.

        Returns:
            The table (size, first, second, pairs) for pairs of values with first <= second that meet. A bucket that
            lists one value c times and another d times adds c d to ``pairs``.
        """
        parts = []
        for one in self.classes:
            first, second, pairs = one.count_pairs(self.values)
            size = np.full(len(first), one.size - fakes, dtype=np.int32)
            columns = [size, first.astype(np.int32), second.astype(np.int32), pairs]
            parts.append(pa.table(columns, names=["size", "first", "second", "pairs"]))
        return pa.concat_tables(parts)


def runs_from_intervals(begin: Ints, end: Ints, code: Ints, values: int, setting: Setting) -> BucketRuns:
    """Make runs from intervals: the buckets from ``begin`` up to, but not including, ``end`` list ``code`` once more.

    A run is a range of neighbouring buckets that list the same values.

    Args:
        begin: The first bucket of each interval (I,).
        end: The bucket after the last one of each interval (I,).
        code: The value of each interval (I,).
        values: The number of sensitive values.
        setting: The bucket sizes and the number of buckets of each.

    Raises:
        GuaranteeError: Some bucket gets another number of values than its size.
    """
    buckets = np.cumsum([0, *setting.buckets])
    ends = np.unique(np.concatenate((begin, end, buckets)))
    first, last = np.searchsorted(ends, begin), np.searchsorted(ends, end)
    number = last - first
    run = np.arange(int(number.sum())) + np.repeat(first - np.cumsum(number) + number, number)
    keys = np.sort(run << _code_bits(values) | np.repeat(code, number))
    return _make_runs(ends[:-1], np.diff(ends), keys, values, setting.items)


def runs_from_entries(
    bids: Bids | Ints, codes: Codes | Ints, values: int, setting: Sequence[tuple[int, int]], fakes: int = 0
) -> BucketRuns:
    """Make runs from single entries, each of which says that a bucket lists a value.

    A run is a range of neighbouring buckets that list the same values; here each bucket is a run of its own.

    Args:
        bids: The bucket of each entry (E,).
        codes: The value that the entry lists (E,).
        values: The number of sensitive values.
        setting: (size, number of buckets), by rising size.
        fakes: How many values a bucket lists beyond its size.

    Raises:
        GuaranteeError: Some bucket gets another number of values than its size and fakes.
    """
    buckets, bits = sum(number for _, number in setting), _code_bits(values)
    keys: NDArray[np.signedinteger] = bids.astype(np.int32 if buckets.bit_length() + bits < 32 else np.int64)
    np.left_shift(keys, bits, out=keys)
    np.bitwise_or(keys, codes, out=keys, casting="same_kind")
    keys.sort()
    first = np.arange(buckets)
    return _make_runs(first, np.ones_like(first), keys, values, setting, fakes)


def _code_bits(values: int) -> int:
    return max(1, (values - 1).bit_length())


def _make_runs(
    first: Ints,
    length: Ints,
    keys: NDArray[np.signedinteger],
    values: int,
    setting: Sequence[tuple[int, int]],
    fakes: int = 0,
) -> BucketRuns:
    """Return what all buckets list, from the runs of buckets that list the same values.

    Args:
        first: The first bucket of each run (R,).
        length: The number of buckets of each run (R,).
        keys: What the runs list, sorted: the position of the run in the high bits, the value in the low bits.
        values: The number of sensitive values.
        setting: (size, number of buckets), by rising size.
        fakes: How many values a bucket lists beyond its size.

    Raises:
        GuaranteeError: Some bucket gets another number of values than its size and fakes.
    """
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
# A small table says where the records of every value go. What buckets list follows from it without the data.
#
#     pieces(code, lo, hi, start, width, shift):
#     rank r in [lo, hi) of value ``code`` lies in bucket  start + (shift + r - lo) mod width
#
# Buckets are numbered by size, smallest first. A value's ranks are given to its records in uniformly random order. So
# given the pieces, every assignment of a value's records to its places is equally likely. The posterior belief of an
# adversary who knows the algorithm is therefore count(g, x)/|g| exactly. The privacy argument needs no more of a
# layout.
#
# Layouts without such a form (Anatomy's, or with two families of bounded sets) have a piece for each record.

AT_ONCE = 2**17  # records that are placed at a time, few enough for the processor's cache


@dataclass(frozen=True)
class Pieces:
    """A table of P rows that says in which bucket each record of each value goes.

    The records of a value are numbered by ranks 0, 1, .. in random order. A row (a piece) places consecutive ranks
    ``lo`` to ``hi - 1`` of value ``code`` in consecutive buckets: rank r goes to bucket ``start + (shift + r - lo) %
    width``.

    All arrays have shape (P,) and are sorted by ``code`` and ``lo``. Every rank of each value has exactly one row.

    Attributes:
        values: The number of sensitive values, m.
        code: The value of each row.
        lo: The first rank.
        hi: The rank after the last one.
        start: The first of the buckets that the ranks go round.
        width: The number of these buckets.
        shift: Where in these buckets the first rank goes.
    """

    values: int
    code: Ints
    lo: Ints
    hi: Ints
    start: Ints
    width: Ints
    shift: Ints

    @property
    def counts(self) -> Ints:
        """Return the number of records of each value (m,)."""
        return np.bincount(self.code, self.hi - self.lo, self.values).astype(np.int64)

    def draw_places(self, noise: Shuffler) -> Bids:
        """Return the bucket of every record, value by value; within a value in uniformly random order (n,)."""
        bids = self.rank_places()
        start = 0
        for records in self.counts.tolist():
            noise.shuffle(bids[start : start + records])
            start += records
        return bids

    def rank_places(self) -> Bids:
        """Return the buckets that the plan gives to the records of each value, value by value (n,).

        The i-th record of a value, in an order that the caller chooses, belongs into the i-th bucket of that value.
        """
        ends = np.cumsum(self.hi - self.lo)
        bids = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
        at = 0
        while at < len(ends):
            begin = int(ends[at] - self.hi[at] + self.lo[at])
            last = max(at + 1, int(np.searchsorted(ends, begin + AT_ONCE, side="right")))
            part = slice(at, last)
            lengths, width = self.hi[part] - self.lo[part], self.width[part]
            first = self.shift[part] % width
            within = np.arange(int(ends[last - 1]) - begin, dtype=np.int32)
            within -= np.repeat((ends[part] - lengths - begin - first).astype(np.int32), lengths)
            within %= np.repeat(width.astype(np.int32), lengths)
            within += np.repeat(self.start[part].astype(np.int32), lengths)
            bids[begin : int(ends[last - 1])] = within
            at = last
        return bids

    def make_segments(self) -> Segments:
        """Return the same layout in simpler rows, for engines that put a value's records in random order themselves.

        In a simpler row, each next record of the value goes to the next bucket. So a piece is cut where it goes back to
        its first bucket.
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
        """Return which values each bucket lists.

        Raises:
            GuaranteeError: Some bucket gets another number of values than its size.
        """
        if len(self.code) == self.counts.sum():  # a piece for each record
            return runs_from_entries(self.start + self.shift % self.width, self.code, self.values, setting.items)
        full_turns, arc = np.divmod(self.hi - self.lo, self.width)
        begin = self.start + self.shift % self.width
        over = (begin + arc - self.start - self.width).clip(0)
        every = np.repeat(np.arange(len(full_turns)), full_turns)
        with_arc, wrapped = np.flatnonzero(arc), np.flatnonzero(over)
        ends = (self.start + self.width)[every], (begin + arc - over)[with_arc], (self.start + over)[wrapped]
        return runs_from_intervals(
            np.concatenate((self.start[every], begin[with_arc], self.start[wrapped])),
            np.concatenate(ends),
            self.code[np.concatenate((every, with_arc, wrapped))],
            self.values,
            setting,
        )


def place_singly(bids: Bids | Ints, counts: Ints) -> Pieces:
    """Make a layout from the bucket of each single record.

    Args:
        bids: The bucket of every record, value by value (n,).
        counts: The number of records of each value (m,).
    """
    code = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(bids)) - (np.cumsum(counts) - counts)[code]
    return Pieces(len(counts), code, rank, rank + 1, bids.astype(np.int64), np.ones_like(rank), np.zeros_like(rank))


def join_pieces(values: int, columns: Sequence[tuple[Ints, Ints, Ints, Ints, Ints]]) -> Pieces:
    """Join pieces, each of which says where some records of one value go, into one layout of all records.

    A piece deals its records in turn to ``width`` neighbouring buckets, the first of which is ``start``. The first
    record goes to bucket ``start + shift``; after the last bucket, the first is next. The records of a value are
    numbered in the order of its pieces.

    Args:
        values: The number of sensitive values.
        columns: Tuples of arrays that have one entry for each piece: (code of the value, number of records, start,
            width, shift).
    """
    code, records, start, width, shift = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(code, kind="stable")
    order = order[records[order] > 0]
    code, records = code[order], records[order]
    hi = np.cumsum(records)
    before = np.bincount(code, records, values).cumsum().astype(np.int64)
    hi -= np.concatenate(([0], before))[code]
    return Pieces(values, code, hi - records, hi, start[order], width[order], shift[order])


# Anatomy --------------------------------------------------------------------------------------------------------------


def lay_out_largest_first(plan: Plan, noise: Shuffler) -> Pieces | None:
    """Let each bucket take one record from each of the values with most records left, as Anatomy does, in O(n log m).

    Each record that is left over at the end goes to a random bucket of the smallest size that lacks its value.

    Args:
        plan: How many buckets there are of each size, and how many records of each value go to each size.
        noise: The random numbers.

    Returns:
        The layout; None if a left-over record fits nowhere, as can happen in tiny tables.
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
    order = np.concatenate([noise.permutation(np.flatnonzero(extra == k)) for k in (0, 1)])  # by size, else at random
    number = np.argsort(order)
    held = np.array([len(one) for one in members], dtype=np.int64)
    return place_singly(number[np.array([g for one in members for g in one], dtype=np.int64)], held)


# Blocks ---------------------------------------------------------------------------------------------------------------
# In every bucket each value, and each bounded set of values, has its mean number of records, rounded down or up.
#
# The b buckets of one size S are cut into blocks of neighbouring buckets. In a block of w buckets, the values lie one
# after the other on a line of S w places, in a random order that each block draws; place s is bucket s mod w. With one
# line for all buckets (round robin), neighbours on the line would always fill the same buckets together. Their sum
# would be the same in every bucket, and the channel would be singular. With many blocks, any two values meet about as
# often as by chance.
#
# Blocks share a value's records by rounding along the line (systematic sampling). If y records are left for B buckets,
# a block of w buckets gets y w/B records, rounded down or up. The same holds for every set of values that are
# neighbours on the line. This leaves the mean per bucket between the same two integers, so every bucket gets one of
# these two.

BLOCKS, WIDEST = 1024, 1200  # number of blocks of one size; more if a block would have over WIDEST buckets


def lay_out_evenly(plan: Plan, classes: list[list[int]], noise: Shuffler, line: Callable[[], Ints]) -> Pieces:
    """Deal records to buckets so that each value is spread evenly over the buckets of a block.

    A block is a range of neighbouring buckets of one size. It gets its proportional share of every value's records,
    rounded at random. Its records are dealt to its buckets in turn.

    Args:
        plan: How many buckets there are of each size, and how many records of each value go to each size.
        classes: For each bucket size, the number of buckets in each block.
        noise: The random numbers, which decide how a value's records are rounded to whole numbers per block.
        line: Draws the order of the values in a block.
    """
    columns, start = [], 0
    for j, blocks in enumerate(classes):
        left, rest = plan.allocation[:, j].copy(), sum(blocks)
        for width in blocks:
            order = line()
            order = order[left[order] > 0]
            offset = int(noise.integers(0, rest)) if width < rest else 0
            # Differences of rounded running sums: the share of neighbours together is rounded by less than 1, too.
            share = np.diff((np.cumsum(left[order] * width) + offset) // rest, prepend=0)
            left[order] -= share
            columns.append(make_block_pieces(order, share, start, width))
            start, rest = start + width, rest - width
    return join_pieces(len(plan.allocation), columns)


def make_block_pieces(order: Ints, share: Ints, start: int, width: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Deal the records of a block (range of neighbouring buckets) to its buckets in turn.

    The block's s-th record goes to its bucket s mod width. The result has one row (a piece) for each value.

    Args:
        order: The values in the order in which their records are dealt.
        share: How many records of each of these values the block gets.
        start: The number of the block's first bucket.
        width: The number of buckets in the block.

    Returns:
        An array each of code, number of records, start, width and shift; shift is the bucket of the value's first
        record, counted from start. Values without records are left out.
    """
    order, share = order[share > 0], share[share > 0]
    every = np.ones_like(order)
    return order, share, every * start, every * width, (np.cumsum(share) - share) % width


def block_widths(buckets: int, least: int | None = None) -> list[int]:
    """Divide the buckets of one size into blocks of neighbours, because layouts deal records block by block.

    A block has at most ``WIDEST`` buckets, so there may be more than ``least`` blocks.

    Args:
        buckets: The number of buckets.
        least: The least number of blocks, if there are enough buckets; None for ``BLOCKS``.

    Returns:
        The number of buckets in each block. Two of them differ by at most 1; larger blocks come first.
    """
    blocks = min(buckets, max(BLOCKS if least is None else least, -(-buckets // WIDEST)))
    each, over = divmod(buckets, blocks)
    return [each + (k < over) for k in range(blocks)]


# Clustered buckets ----------------------------------------------------------------------------------------------------
# The informative layout: in each block of buckets some values stand as often as they may, and the others hardly ever.
#
# The buckets of one size S are cut into blocks of w neighbouring buckets. Value i may stand F_i times in a bucket. If
# rem_i records of it are left for B buckets, a block gets a_i of them, with sum_i a_i = S w and
#
#     L_i = max(0, rem_i - F_i (B - w))  <=  a_i  <=  U_i = min(rem_i, F_i w),
#
# Each a_i starts at L_i. Then values are drawn one after the other and filled up to U_i until the block is full. The
# next value is drawn with a probability proportional to pi_i/(1 - pi_i), where pi_i = rem_i/(F_i B); so a value's
# records last about until the last block. All but one of the drawn values stand F_i times in each of the w buckets.
#
# *It never gets stuck.* Let rem_i <= F_i B and sum rem = S B, as in a valid plan. The even share rem_i w/B lies between
# L_i and U_i, as rem_i - F_i (B - w) <= rem_i - (rem_i/B)(B - w), and these shares sum to S w: so sum L <= S w <= sum
# U, and filling ends at S w. By a_i >= L_i what is left has rem_i <= F_i (B - w), and its sum is S (B - w).
#
# *Sizes and thresholds are kept.* Inside a block values lie one after the other on a line of S w places, and place s is
# bucket s mod w, as in even layouts. So each bucket has S records, and a_i/w <= F_i of value i, rounded down or up.
#
# Blocks that are drawn late may differ from those drawn early. So blocks of one width are put in random order, and the
# number of a block tells nothing (``split_by_block``).

LUMPS = 4096  # number of blocks of one size; more than in even layouts, as each block fills one value only partly
FINE, MOST = 2**16, 2**40  # weights are integers: the unit, and the largest weight


def lay_out_clustered(plan: Plan, noise: Shuffler) -> Pieces:
    """Deal records as layout ``lumps``: in a block of buckets some values are as frequent as allowed, others very rare.

    A block is a range of neighbouring buckets. Beliefs come near their thresholds in this way, so counts are more
    precise.

    Args:
        plan: How many buckets there are of each size, and how many records of each value go to each size.
        noise: The random numbers.

    Raises:
        GuaranteeError: The plan does not say how often a value may stand in a bucket of each size.
    """
    if plan.most is None:
        raise GuaranteeError(f"a plan by {plan.algorithm!r} does not say how often values may stand in a bucket")
    columns, start = [], 0
    for j, (size, buckets) in enumerate(plan.setting.items):
        wide = np.array(block_widths(buckets, LUMPS))
        starts = start + np.cumsum(wide) - wide
        left, rest, shares = plan.allocation[:, j], buckets, []
        for width in wide.tolist():
            share = _fill_block(left, plan.most[:, j], size, width, rest, noise)
            held = np.flatnonzero(share)
            shares.append((held, share[held]))
            left, rest = left - share, rest - width
        # Blocks of the same width are put in random order; wider ones come first.
        wider = int((wide == wide[0]).sum())
        places = np.concatenate((noise.permutation(wider), wider + noise.permutation(len(wide) - wider)))
        for place, drawn in enumerate(np.argsort(places).tolist()):
            values, records = shares[drawn]
            width, order = int(wide[place]), np.arange(len(values))
            order = np.asarray(noise.permutation(order)) if width > 1 else order
            columns.append(make_block_pieces(values[order], records[order], int(starts[place]), width))
        start += buckets
    return join_pieces(len(plan.allocation), columns)


def split_by_block(rows: Ints) -> list[Ints]:
    """Group the records of all buckets of one size by block: neighbouring buckets that layout ``lumps`` filled alike.

    Args:
        rows: The records of each bucket (buckets, size).

    Returns:
        One array for each width of blocks (at most two): a row holds all records of a block (blocks, width * size).
    """
    buckets, size = rows.shape
    wide = np.array(block_widths(buckets, LUMPS))
    first = int((wide == wide[0]).sum())
    parts = np.split(rows, [first * int(wide[0])])
    return [part.reshape(-1, width * size) for part, width in zip(parts, (wide[0], wide[-1]), strict=True) if len(part)]


def _fill_block(left: Ints, most: Ints, size: int, width: int, rest: int, noise: Shuffler) -> Ints:
    """Draw how many records of each value a block (range of neighbouring buckets) gets in layout ``lumps`` (m,).

    Values are drawn one by one, and each fills the block as far as it may, until the block is full.

    Args:
        left: The records of each value that are not placed yet (m,).
        most: The most records of each value in one bucket (m,).
        size: The number of records in each bucket.
        width: The number of buckets of the block.
        rest: The number of buckets that are not filled yet, those of the block included.
        noise: The random numbers.
    """
    share = (left - most * (rest - width)).clip(0)
    free = np.minimum(left, most * width) - share
    weights = (left * FINE // np.maximum(most * rest - left, 1)).clip(1, MOST)
    weights[free == 0] = 0
    short = size * width - int(share.sum())
    ends = np.cumsum(weights)
    while short:
        value = int(ends.searchsorted(noise.integers(0, int(ends[-1])), side="right"))
        if not weights[value]:  # drawn before, so draw again among those that are left
            ends = np.cumsum(weights)
            continue
        more = min(short, int(free[value]))
        share[value] += more
        weights[value] = 0
        short -= more
    return share


# Crossing groups ------------------------------------------------------------------------------------------------------
# Layouts that keep bounds on two families of sets, where sets of different families overlap. In every bucket each set
# has its mean number of records, rounded down or up. (``lay_out_evenly`` serves a single family of nested or disjoint
# sets.)
#
# Blocks of 2^k buckets are halved k times. A value with an odd number of records leaves one over. Left-over records are
# paired in each family, within the smallest set that has two of them, and partners go to different halves. A record has
# at most one partner in each family. So partners form paths and cycles that alternate between the families and can be
# coloured with two colours, and every set is halved to within one record. (This is a balanced edge colouring of a
# bipartite multigraph by Euler splits, de Werra 1971; buckets are the colours.) If the number of buckets is not a power
# of two, a circulation divides the records among blocks (``TreePair.share_records``).


def assign_across(records: Ints, buckets: int, pair: TreePair, noise: Shuffler) -> tuple[Ints, Ints]:
    """Deal records to buckets so that each value, and each bounded set of values, is spread evenly over the buckets.

    Evenly means that numbers in two buckets differ by at most one. Sets may overlap if they make two trees: within a
    tree, two sets are disjoint or one holds the other.

    Args:
        records: The number of records of each value (m,).
        buckets: The number of buckets, all of one size.
        pair: The two trees of bounded sets of values.
        noise: The random numbers.

    Returns:
        (value of each record, bucket of each record), in no particular order (n,).
    """
    left, values, bids, start = records.copy(), [], [], 0
    while start < buckets:
        width = 1 << ((buckets - start).bit_length() - 1)
        share = pair.share_records(left, width, buckets - start)
        left = left - share
        held = np.flatnonzero(share)
        parts, counts = np.zeros_like(held), share[held]
        for _ in range(width.bit_length() - 1):  # halve the block
            odd = counts % 2 == 1
            upper = np.zeros_like(counts)
            upper[odd] = _split_partners(parts[odd], held[odd], pair, noise)
            halves = np.stack([counts // 2 + odd - upper, counts // 2 + upper])
            some = halves > 0
            parts = np.stack([2 * parts, 2 * parts + 1])[some]
            held, counts = np.broadcast_to(held, halves.shape)[some], halves[some]
        values.append(np.repeat(held, counts))
        bids.append(start + np.repeat(parts, counts))
        start += width
    return np.concatenate(values), np.concatenate(bids)


def _split_partners(parts: Ints, values: Ints, pair: TreePair, noise: Shuffler) -> Ints:
    """Draw for each record in which half of its part (range of buckets) it goes, so that every bounded set is halved.

    Records of a part are paired within the smallest sets of each tree, and the two of a pair go to different halves. So
    both halves get the same number of records of a set, or one of them gets one more.

    Args:
        parts: The part (range of buckets) of each record; records of different parts are not paired.
        values: The value of each record.
        pair: The two trees of bounded sets; within a tree, two sets are disjoint or one holds the other.
        noise: The random numbers.

    Returns:
        The half of each record, 0 or 1.
    """
    number = len(parts)
    pairs = np.concatenate([_pair_partners(parts, values, tree, noise) for tree in (pair.first, pair.second)], axis=1)
    # Each record has two nodes, itself and its opposite. An edge joins a record to the opposite of its partner.
    rows, columns = np.concatenate((pairs[0], pairs[0] + number)), np.concatenate((pairs[1] + number, pairs[1]))
    graph = scipy.sparse.coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(2 * number, 2 * number))
    label = scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
    one, opposite = label[:number], label[number:]
    coin: Ints = noise.integers(0, 2, 2 * number)[np.minimum(one, opposite)]
    return np.where(one < opposite, coin, 1 - coin)


def _pair_partners(parts: Ints, values: Ints, tree: GroupTree, noise: Shuffler) -> Ints:
    """Pair records of the same part (range of buckets) at random; the two of a pair will go to different halves of it.

    Records are paired within the smallest bounded set of values first, then within larger ones. In each set at most one
    record of a part has no partner from the set. So the halves get the same number of records of a set, or one more.

    Args:
        parts: The part of each record.
        values: The value of each record.
        tree: The bounded sets, of which two are disjoint or one holds the other.
        noise: The random numbers.

    Returns:
        The positions of both records of each of the p pairs (2, p).
    """
    left = np.arange(len(parts))
    pairs: list[NDArray[np.int64]] = []
    for sets in [*tree.chains[-2::-1], np.full(len(tree.owner), -1)]:
        left = noise.permutation(left)
        key = parts[left] * (len(tree.bounds) + len(tree.owner) + 1) + sets[values[left]]
        order = np.argsort(key, kind="stable")
        left, key = left[order], key[order]
        new = np.ones(len(key), dtype=bool)
        new[1:] = key[1:] != key[:-1]
        begin = np.maximum.accumulate(np.where(new, np.arange(len(key)), 0))
        second = (np.arange(len(key)) - begin) % 2 == 1
        first = np.zeros_like(second)
        first[:-1] = second[1:]
        pairs.append(np.stack([left[first], left[second]]))
        left = left[~(first | second)]
    return np.concatenate(pairs, axis=1)


def lay_out_across(plan: Plan, pair: TreePair, noise: Shuffler) -> Pieces:
    """Decide which bucket each record goes to, where bounded sets of values overlap; spread every set evenly.

    Args:
        plan: How many buckets there are of each size, and how many records of each value go to each size.
        pair: The bounded sets as two trees; within a tree, two sets are disjoint or one holds the other.
        noise: The random numbers.
    """
    values, bids, base = [], [], 0
    for j, buckets in enumerate(plan.setting.buckets):
        dealt, places = assign_across(plan.allocation[:, j], buckets, pair, noise)
        values.append(dealt)
        bids.append(places + base)
        base += buckets
    order = np.argsort(np.concatenate(values), kind="stable")
    return place_singly(np.concatenate(bids)[order], plan.allocation.sum(axis=1))


# Arrangement ----------------------------------------------------------------------------------------------------------


def make_layout(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[GroupTree] = ()) -> Pieces:
    """Lay out a plan: decide which bucket each record goes to, within the plan's limits on values per bucket.

    Args:
        plan: How many buckets there are of each size, and how many records of each value go to each size.
        layout: The name of the way in which records are dealt to buckets, such as ``blocks``.
        noise: The random numbers.
        trees: The bounded sets of values as at most two trees; within a tree, two sets are disjoint or one holds the
            other. In every bucket the number of a set's records is its mean, rounded down or up.
    """
    anatomy_layout = lay_out_largest_first(plan, noise) if layout == "largest-first" else None
    if anatomy_layout is not None:
        return anatomy_layout
    if len(trees) > 1:
        return lay_out_across(plan, TreePair(*trees), noise)
    if layout == "lumps":
        return lay_out_clustered(plan, noise)
    in_one = layout == "round-robin"  # the paper's RRA: all buckets of a size are one block
    values = len(plan.allocation)

    def draw_line() -> Ints:
        if trees:
            return trees[0].draw_line(noise)
        return np.arange(values) if in_one else np.asarray(noise.permutation(values))

    widths = [[buckets] if in_one else block_widths(buckets) for buckets in plan.setting.buckets]
    return lay_out_evenly(plan, widths, noise, draw_line)
