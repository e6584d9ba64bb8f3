"""What the buckets of a release list, as runs: neighbouring buckets that list the same values are told once.

ST, the channel, how often values are listed and the peaks of beliefs follow from it, whatever the number of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from privsql.engine.positions import BATCH
from privsql.errors import GuaranteeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.mechanisms.bucketize.model import Bids, Ints, Setting

COMPOSITION = pa.schema([("bid", pa.int32()), ("code", pa.int32()), ("records", pa.int32())])
Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Class:
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

    @property
    def listed(self) -> int:
        """How many values each bucket lists."""
        return int(self.codes.shape[1])


@dataclass(frozen=True)
class Runs:
    """Classes by rising size; ``values`` = m."""

    values: int
    classes: tuple[Class, ...]

    @cached_property
    def listed(self) -> Ints:
        """How often each value is listed (m,)."""
        found = np.zeros(self.values, dtype=np.int64)
        for one in self.classes:
            run, code, times = one.entries
            found += np.bincount(code, one.length[run] * times, self.values).astype(np.int64)
        return found

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """Bucket and value of every listed value."""
        parts = [(_buckets(one), np.repeat(one.codes, one.length, axis=0)) for one in self.classes]
        bids = np.concatenate([np.repeat(bid, codes.shape[1]) for bid, codes in parts])
        return bids, np.concatenate([codes.ravel() for _, codes in parts]).astype(np.int64)

    def table(self) -> pa.RecordBatchReader:
        """(bid, code, records): how often each value stands in each bucket, in that order; a stream."""
        return pa.RecordBatchReader.from_batches(COMPOSITION, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for one in self.classes:
            run, code, times = one.entries
            starts = np.searchsorted(run, np.arange(len(one.first) + 1))
            rows = np.cumsum(np.diff(starts) * one.length)
            begin = 0
            while begin < len(one.first):
                before = int(rows[begin - 1]) if begin else 0
                end = max(begin + 1, int(np.searchsorted(rows, before + BATCH, side="right")))
                yield _rows(one, (starts, code, times), begin, end)
                begin = end

    @property
    def most_meetings(self) -> int:
        """No fewer than ``meetings`` has rows: pairs of values in runs, and of all values."""
        kinds = [np.bincount(one.entries[0]) for one in self.classes]
        return sum(min(int((k * (k + 1)).sum()), self.values * (self.values + 1)) // 2 for k in kinds)

    def meetings(self, fakes: int = 0) -> pa.Table:
        """(size, first, second, pairs): sum over buckets of one size of count(g, first) * count(g, second).

        ``fakes``: how many values of what counts here as the size are to be fake.

        Only first <= second and pairs > 0; codes are ranks of values. This is what the channel of a release is made
        of, and follows from ST alone.
        """
        parts = []
        for one in self.classes:
            first, second, pairs = _met(one, self.values)
            columns = [
                np.full(len(first), one.size - fakes, dtype=np.int32),
                first.astype(np.int32),
                second.astype(np.int32),
            ]
            parts.append(pa.table([*columns, pairs], names=["size", "first", "second", "pairs"]))
        return pa.concat_tables(parts)


def _buckets(one: Class) -> Ints:
    """The numbers of the buckets, run by run."""
    ends = np.cumsum(one.length)
    return np.arange(int(one.length.sum())) + np.repeat(one.first - ends + one.length, one.length)


def _rows(one: Class, entries: tuple[Ints, Codes, NDArray[np.int32]], begin: int, end: int) -> pa.RecordBatch:
    """ST's rows of the runs ``begin`` to ``end``."""
    starts, code, times = entries
    part = Class(one.size, one.first[begin:end], one.length[begin:end], one.codes[:0])
    number = np.repeat(np.diff(starts)[begin:end], part.length)
    shift = np.repeat(starts[begin:end], part.length) - np.cumsum(number) + number
    at = np.arange(int(number.sum())) + np.repeat(shift, number)
    columns = [np.repeat(_buckets(part), number).astype(np.int32), code[at], times[at]]
    return pa.record_batch(columns, schema=COMPOSITION)


def _met(one: Class, values: int) -> tuple[Ints, Ints, Ints]:
    """First, second and pairs, sorted, of the values that meet in the buckets of a class: C^T diag(length) C, C the
    counts of the runs.
    """
    run, code, times = one.entries
    counts = scipy.sparse.csr_array((times.astype(np.int64), (run, code)), shape=(len(one.first), values))
    weighted = scipy.sparse.csr_array((times * one.length[run], (run, code)), shape=counts.shape)
    found = scipy.sparse.triu(counts.T @ weighted, format="csr")
    found.sort_indices()
    first, second = found.tocoo().coords
    return first.astype(np.int64), second.astype(np.int64), found.data


@dataclass(frozen=True)
class Intervals:
    """Neighbouring buckets ``begin`` to ``end``, exclusive, that list ``code`` once more each (I,)."""

    begin: Ints
    end: Ints
    code: Ints


def of_intervals(given: Intervals, values: int, setting: Setting) -> Runs:
    """Runs between the ends of intervals; ``GuaranteeError`` unless every bucket has its size."""
    buckets = np.cumsum([0, *setting.buckets])
    ends = np.unique(np.concatenate((given.begin, given.end, buckets)))
    first, last = np.searchsorted(ends, given.begin), np.searchsorted(ends, given.end)
    number = last - first
    run = np.arange(int(number.sum())) + np.repeat(first - np.cumsum(number) + number, number)
    keys = np.sort(run << _bits(values) | np.repeat(given.code, number))
    return _classes((ends[:-1], np.diff(ends)), keys, values, setting.items)


def of_entries(
    bids: Bids | Ints, codes: Codes | Ints, values: int, setting: Sequence[tuple[int, int]], fakes: int = 0
) -> Runs:
    """A run for every bucket; ``bids``, ``codes`` (E,): what is listed. ``fakes``: how many values beyond the size."""
    buckets, bits = sum(number for _, number in setting), _bits(values)
    keys: NDArray[np.signedinteger] = bids.astype(np.int32 if buckets.bit_length() + bits < 32 else np.int64)
    np.left_shift(keys, bits, out=keys)
    np.bitwise_or(keys, codes, out=keys, casting="same_kind")
    keys.sort()
    first = np.arange(buckets)
    return _classes((first, np.ones_like(first)), keys, values, setting, fakes)


def _bits(values: int) -> int:
    """That a code needs."""
    return max(1, (values - 1).bit_length())


def _classes(
    runs: tuple[Ints, Ints],
    keys: NDArray[np.signedinteger],
    values: int,
    setting: Sequence[tuple[int, int]],
    fakes: int = 0,
) -> Runs:
    """Classes of ``runs``, first bucket and length; ``keys``: rank of the run and code, sorted."""
    first, length = runs
    bits = _bits(values)
    held = np.bincount(keys >> bits, minlength=len(first))
    bounds = np.searchsorted(first, np.cumsum([0, *(number for _, number in setting)])).tolist()
    found, start = [], 0
    for (size, _), begin, end in zip(setting, bounds[:-1], bounds[1:], strict=True):
        if (held[begin:end] != size + fakes).any():
            raise GuaranteeError(f"a layout gives a bucket of {size} another number of values")
        stop = start + (size + fakes) * (end - begin)
        codes = (keys[start:stop] & ((1 << bits) - 1)).astype(np.int32).reshape(end - begin, size + fakes)
        found.append(Class(size, first[begin:end], length[begin:end], codes))
        start = stop
    if start != len(keys):
        raise GuaranteeError("a layout places records beyond its last bucket")
    return Runs(values, tuple(found))
