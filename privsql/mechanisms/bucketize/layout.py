"""Lay records out in buckets: runs of values, blocks, clusters, pieces of the plan, and Anatomy's assignment."""

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
# What the buckets of a release list, as runs: neighbouring buckets that list the same values are stored once.
#
# ST, the channel, how often values are listed and the peaks of beliefs follow from it, whatever the number of records.

COMPOSITION = pa.schema([("bid", pa.int32()), ("code", pa.int32()), ("records", pa.int32())])
Codes = NDArray[np.int32]


FEW = 2**22  # steps of a product that are counted without a sparse matrix


@dataclass(frozen=True)
class SizeClass:
    """The buckets of one size, in R runs.

    Attributes:
        size: The records of a bucket.
        first: The first bucket of each run (R,).
        length: The number of buckets of each run (R,).
        codes: The values that each bucket of a run lists, sorted (R, t); t is above ``size`` where some are fake.
    """

    size: int
    first: Ints
    length: Ints
    codes: Codes

    @cached_property
    def entries(self) -> tuple[Ints, Codes, NDArray[np.int32]]:
        """Return the run, the value and its count, of every different value of every run, in that order."""
        runs, listed = self.codes.shape
        new = np.ones((runs, listed), dtype=bool)
        np.not_equal(self.codes[:, 1:], self.codes[:, :-1], out=new[:, 1:])
        at = np.flatnonzero(new)
        times = np.diff(np.append(at, new.size)).astype(np.int32)
        return at // max(1, listed), self.codes.ravel()[at], times

    @property
    def numbers(self) -> Ints:
        """Return the numbers of the buckets, run by run."""
        ends = np.cumsum(self.length)
        return np.arange(int(self.length.sum())) + np.repeat(self.first - ends + self.length, self.length)

    def count_pairs(self, values: int) -> tuple[Ints, Ints, Ints]:
        """Count how often values meet in buckets: C^T diag(length) C, where C are the counts of the runs.

        Returns:
            The first value, the second one, which is no smaller, and the count, if that is above 0; sorted.
        """
        run, code, times = self.entries
        if len(self.first) * values**2 <= FEW:  # scipy takes longer to import
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
    """The lists of all buckets, as runs of neighbouring buckets that list the same, by rising size.

    ``values`` is the number of sensitive values, m.
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
        """Return the bucket and the value of every listed value."""
        bids = [np.repeat(one.numbers, one.codes.shape[1]) for one in self.classes]
        codes = [np.repeat(one.codes, one.length, axis=0).ravel() for one in self.classes]
        return np.concatenate(bids), np.concatenate(codes).astype(np.int64)

    def as_stream(self) -> pa.RecordBatchReader:
        """Return a stream of (bid, code, records), in that order: how often each value stands in each bucket."""

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
        """Return an upper bound of the rows of ``count_meetings``: pairs of values in runs, or pairs of all values."""
        kinds = [np.bincount(one.entries[0]) for one in self.classes]
        return sum(min(int((k * (k + 1)).sum()), self.values * (self.values + 1)) // 2 for k in kinds)

    def count_meetings(self, fakes: int = 0) -> pa.Table:
        """Count how often values meet in buckets; this is the channel of a release, and follows from ST alone.

        Args:
            fakes: The number of listed values per bucket that are fake; sizes here count them.

        Returns:
            The table (size, first, second, pairs): the sum over buckets of one size of count(g, first) * count(g,
            second). It has first <= second and pairs > 0 only; codes are ranks of values.
        """
        parts = []
        for one in self.classes:
            first, second, pairs = one.count_pairs(self.values)
            size = np.full(len(first), one.size - fakes, dtype=np.int32)
            columns = [size, first.astype(np.int32), second.astype(np.int32), pairs]
            parts.append(pa.table(columns, names=["size", "first", "second", "pairs"]))
        return pa.concat_tables(parts)


def runs_from_intervals(begin: Ints, end: Ints, code: Ints, values: int, setting: Setting) -> BucketRuns:
    """Make runs from intervals of buckets that list a value.

    Each of the neighbouring buckets ``begin`` to ``end``, exclusive, lists ``code`` once more (I,).

    Raises:
        GuaranteeError: Some bucket does not have its size.
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
    """Return a run for every bucket.

    Args:
        bids: The bucket of every entry (E,).
        codes: The value that the entry lists (E,).
        values: The number of sensitive values, m.
        setting: The size and the number of buckets, by rising size.
        fakes: The number of values that a bucket lists beyond its size.
    """
    buckets, bits = sum(number for _, number in setting), _code_bits(values)
    keys: NDArray[np.signedinteger] = bids.astype(np.int32 if buckets.bit_length() + bits < 32 else np.int64)
    np.left_shift(keys, bits, out=keys)
    np.bitwise_or(keys, codes, out=keys, casting="same_kind")
    keys.sort()
    first = np.arange(buckets)
    return _make_runs(first, np.ones_like(first), keys, values, setting, fakes)


def _code_bits(values: int) -> int:
    """Return the number of bits that a code needs."""
    return max(1, (values - 1).bit_length())


def _make_runs(
    first: Ints,
    length: Ints,
    keys: NDArray[np.signedinteger],
    values: int,
    setting: Sequence[tuple[int, int]],
    fakes: int = 0,
) -> BucketRuns:
    """Return the runs by their first buckets and lengths (R,); a key is the rank of a run, then a code, sorted."""
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
# Layouts without such a form (Anatomy's own, or values in two families of bounded sets) have a piece for each record.

AT_ONCE = 2**17  # places that are written at a time, few enough for a cache


@dataclass(frozen=True)
class Pieces:
    """A layout, as P pieces of consecutive ranks of a value that go round a range of buckets.

    The arrays are columns of a table (P,), sorted by ``code`` and ``lo``. The ranks of each of the ``values`` values
    have no gaps.
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
        """Return the records of each value (m,)."""
        return np.bincount(self.code, self.hi - self.lo, self.values).astype(np.int64)

    def draw_places(self, noise: Shuffler) -> Bids:
        """Return for each value in turn the buckets of its records, in uniformly random order (n,)."""
        bids = self.rank_places()
        start = 0
        for records in self.counts.tolist():
            noise.shuffle(bids[start : start + records])
            start += records
        return bids

    def rank_places(self) -> Bids:
        """Return for each value in turn the bucket of each of its ranks (n,)."""
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
        """Return the bucket of every rank of each value, for records that are put in uniformly random order elsewhere.

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
        """Return what the buckets list, as runs.

        A piece fills each of its buckets as often as it goes round, and the buckets of the remaining arc once more.
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
    """Return a piece for each record.

    Args:
        bids: The buckets of each value's records, value by value (n,).
        counts: The records of each value (m,).
    """
    code = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(bids)) - (np.cumsum(counts) - counts)[code]
    return Pieces(len(counts), code, rank, rank + 1, bids.astype(np.int64), np.ones_like(rank), np.zeros_like(rank))


def join_pieces(values: int, columns: Sequence[tuple[Ints, Ints, Ints, Ints, Ints]]) -> Pieces:
    """Join pieces into a layout, where each value's ranks follow the order of its pieces.

    Args:
        values: The number of values.
        columns: The arrays code, records, start, width and shift of each part.
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
    """Let each bucket draw one record from each of the values with most records left, as Anatomy does, in O(n log m).

    What is left over at the end goes, one record at a time, to random smallest buckets that lack the value. The result
    is None if there is no such bucket (in tiny tables); the caller then takes another layout.
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
    """Lay values out in blocks of buckets, each value spread evenly over the buckets of a block.

    Args:
        plan: The plan.
        classes: The widths of the blocks of every size.
        noise: What draws where a block's share begins.
        line: Draws the order of the values in a block.
    """
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
    """Deal a block's records to its buckets: place s on the line of records goes to bucket s mod width.

    Args:
        order: The codes of the values in their order on the line.
        share: How many records of each of these values the block gets.
        start: The index of the block's first bucket.
        width: The number of buckets in the block.

    Returns:
        An array each of code, number of records, start, width and shift; shift is the bucket of the value's first
        record, counted from start. Values without records are left out.
    """
    order, share = order[share > 0], share[share > 0]
    every = np.ones_like(order)
    return order, share, every * start, every * width, (np.cumsum(share) - share) % width


def block_widths(buckets: int, least: int | None = None) -> list[int]:
    """Return the widths of at least ``least`` blocks of a size class, as equal as can be, wider ones first."""
    blocks = min(buckets, max(BLOCKS if least is None else least, -(-buckets // WIDEST)))
    each, over = divmod(buckets, blocks)
    return [each + (k < over) for k in range(blocks)]


# Clustered buckets ----------------------------------------------------------------------------------------------------
# The informative layout: in each block of buckets some values stand as often as they may, and the others hardly.
#
# A size class of b buckets of S is cut into blocks of w neighbouring buckets. Of rem_i records that are left for B
# buckets a block gets a_i, sum_i a_i = S w, with
#
#     L_i = max(0, rem_i - F_i (B - w))  <=  a_i  <=  U_i = min(rem_i, F_i w),
#
# starting from L_i and filling one value after the other up to U_i until the block is full, in random order: each next
# one with a probability proportional to pi_i/(1 - pi_i), pi_i = rem_i/(F_i B), so that a value is in a block about as
# often as it must be to come out even. All but one of the values that are drawn are at F_i in each of the w buckets.
#
# *It never gets stuck.* Let rem_i <= F_i B and sum rem = S B, as in a valid plan. The even share rem_i w/B lies between
# L_i and U_i, as rem_i - F_i (B - w) <= rem_i - (rem_i/B)(B - w), and these shares sum to S w: so sum L <= S w <= sum
# U, and filling ends at S w. By a_i >= L_i what is left has rem_i <= F_i (B - w), and its sum is S (B - w).
#
# *Sizes and thresholds are kept.* Inside a block values lie one after the other on a line of S w places, and place s is
# bucket s mod w, as in ``blocks``: each bucket has S of them, and floor or ceil of a_i/w <= F_i of value i.
#
# A block that is drawn late is only about as those that are drawn early, so their places are drawn at random among
# blocks that are as wide: which number a block has means nothing (``split_by_block``).

LUMPS = 4096  # blocks of a size class: more than of even layouts, as each cuts a value
FINE, MOST = 2**16, 2**40  # of weights: their unit, and the largest


def lay_out_clustered(plan: Plan, noise: Shuffler) -> Pieces:
    """Lay out a plan that says how often a value may stand in a bucket of each size.

    Raises:
        GuaranteeError: The plan does not say so.
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
        # Blocks as wide as each other change places at random; wider ones come first.
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
    """Group the rows (b, S) of all buckets of a size by block, as arrays (blocks, w S) of blocks with one width w."""
    buckets, size = rows.shape
    wide = np.array(block_widths(buckets, LUMPS))
    first = int((wide == wide[0]).sum())
    parts = np.split(rows, [first * int(wide[0])])
    return [part.reshape(-1, width * size) for part, width in zip(parts, (wide[0], wide[-1]), strict=True) if len(part)]


def _fill_block(left: Ints, most: Ints, size: int, width: int, rest: int, noise: Shuffler) -> Ints:
    """Choose how many records of each value (m,) a block gets.

    Args:
        left: The records of each value that are left (m,).
        most: The most records of each value in one bucket (m,).
        size: The size of the buckets.
        width: The number of buckets of the block.
        rest: The number of buckets that are left, with those of the block.
        noise: What draws values.
    """
    share = (left - most * (rest - width)).clip(0)
    free = np.minimum(left, most * width) - share
    weights = (left * FINE // np.maximum(most * rest - left, 1)).clip(1, MOST)
    weights[free == 0] = 0
    short = size * width - int(share.sum())
    ends = np.cumsum(weights)
    while short:
        value = int(ends.searchsorted(noise.integers(0, int(ends[-1])), side="right"))
        if not weights[value]:  # it was drawn before: another draw, among those that are left
            ends = np.cumsum(weights)
            continue
        more = min(short, int(free[value]))
        share[value] += more
        weights[value] = 0
        short -= more
    return share


# Crossing groups ------------------------------------------------------------------------------------------------------
# Layouts that keep bounds on two families of sets that cross: in every bucket each set has the floor or the ceiling of
# its mean. (One family of nested or disjoint sets lies along lines, as in ``lay_out_evenly``.)
#
# Blocks of 2^k buckets are halved k times. What is odd in number is paired, within the smallest set of each family in
# which two are left over; partners go to different halves. Every record has at most one partner in each family, so they
# form paths and cycles that alternate between the families and can be told in two; every set is halved to within one.
# (A balanced edge colouring of a bipartite multigraph, de Werra 1971, of which buckets are the colours, by Euler
# splits.) Buckets beyond a power of two are parted by a circulation (``TreePair.share_records``).


def assign_across(records: Ints, buckets: int, pair: TreePair, noise: Shuffler) -> tuple[Ints, Ints]:
    """Deal ``records`` (m,) evenly to ``buckets``, so that every set of both trees is spread evenly, too.

    Returns:
        The value and the bucket of each record (n,), in an order without meaning.
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
    """Assign 0 or 1 to each of e records, so that partners get different numbers."""
    number = len(parts)
    pairs = np.concatenate([_pair_partners(parts, values, tree, noise) for tree in (pair.first, pair.second)], axis=1)
    # Each record stands for two nodes, itself and its opposite; partners are tied to each other's opposites.
    rows, columns = np.concatenate((pairs[0], pairs[0] + number)), np.concatenate((pairs[1] + number, pairs[1]))
    graph = scipy.sparse.coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(2 * number, 2 * number))
    label = scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
    one, opposite = label[:number], label[number:]
    coin: Ints = noise.integers(0, 2, 2 * number)[np.minimum(one, opposite)]
    return np.where(one < opposite, coin, 1 - coin)


def _pair_partners(parts: Ints, values: Ints, tree: GroupTree, noise: Shuffler) -> Ints:
    """Pair records of the same part (2, p), within the smallest set of the tree first, then within larger ones.

    In each set at most one record of a part is left without a partner in the set.
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
    """Lay out a plan whose bounded sets cross each other."""
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
    """Lay out a plan, so that a bucket of size S gets at most F_iS records of x_i.

    Args:
        plan: The plan.
        layout: The name of the layout.
        noise: What draws.
        trees: The bounded sets of values; every bucket gets the floor or the ceiling of a set's mean.
    """
    anatomy_layout = lay_out_largest_first(plan, noise) if layout == "largest-first" else None
    if anatomy_layout is not None:
        return anatomy_layout
    if len(trees) > 1:
        return lay_out_across(plan, TreePair(*trees), noise)
    if layout == "lumps":
        return lay_out_clustered(plan, noise)
    in_one = layout == "round-robin"  # the paper's RRA: place s of a class is bucket s mod b
    values = len(plan.allocation)

    def draw_line() -> Ints:
        if trees:
            return trees[0].draw_line(noise)
        return np.arange(values) if in_one else np.asarray(noise.permutation(values))

    widths = [[buckets] if in_one else block_widths(buckets) for buckets in plan.setting.buckets]
    return lay_out_evenly(plan, widths, noise, draw_line)
