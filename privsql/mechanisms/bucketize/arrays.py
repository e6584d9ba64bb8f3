"""From bucket numbers to the arrays that SQL takes: the composition of buckets, and how values meet in them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.engine.positions import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.mechanisms.bucketize.layout import Bids
    from privsql.mechanisms.bucketize.model import Ints, Setting

COMPOSITION = pa.schema([("bid", pa.int32()), ("code", pa.int32()), ("records", pa.int32())])


class Composition:
    """Which values stand in which bucket; n sorted integers (bucket, code)."""

    def __init__(self, bids: Bids, counts: Ints) -> None:
        """``bids`` (n,): buckets of the records, value by value; ``counts`` (m,): records of each value."""
        self.values = len(counts)
        self._bits = max(1, (len(counts) - 1).bit_length())
        width = np.uint32 if int(bids.max(initial=0)).bit_length() + self._bits <= 32 else np.uint64
        keys: NDArray[Any] = bids.astype(width)
        np.left_shift(keys, width(self._bits), out=keys)
        start = 0
        for code, records in enumerate(counts.tolist()):
            part = keys[start : start + records]
            np.bitwise_or(part, width(code), out=part)
            start += records
        keys.sort()
        self._keys = keys

    def beside(self, bids: Ints, codes: Ints) -> Composition:
        """These values and one more of each of ``codes`` in each of ``bids``."""
        more = Composition(np.empty(0, dtype=np.int32), np.zeros(self.values, dtype=np.int64))
        width = self._keys.dtype.type
        added = (bids.astype(width) << width(self._bits)) | codes.astype(width)
        more._keys = np.sort(np.concatenate((self._keys, added)))
        return more

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """Bucket and value of every entry."""
        return (self._keys >> self._bits).astype(np.int64), self.codes(self._keys)

    @property
    def listed(self) -> Ints:
        """How often each value is listed (m,)."""
        return np.bincount(self.codes(self._keys), minlength=self.values)

    @cached_property
    def table(self) -> pa.Table:
        """(bid, code, records): how often each value stands in each bucket, in that order."""
        return pa.Table.from_batches(self._counted(), schema=COMPOSITION)

    def _counted(self) -> Iterator[pa.RecordBatch]:
        """Run lengths, a batch at a time; a run that crosses the end of a batch belongs to it whole."""
        begin, n = 0, len(self._keys)
        while begin < n:
            end = min(n, begin + BATCH)
            end = n if end == n else int(np.searchsorted(self._keys, self._keys[end - 1], side="right"))
            part = self._keys[begin:end]
            starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=bool), part[1:] != part[:-1])))
            records = np.diff(np.append(starts, len(part))).astype(np.int32)
            first = part[starts]
            columns = [(first >> self._bits).astype(np.int32), self.codes(first).astype(np.int32), records]
            yield pa.record_batch(columns, schema=COMPOSITION)
            begin = end

    def classes(self, setting: Setting, extra: int = 0) -> Iterator[tuple[int, NDArray[Any]]]:
        """(bucket size, keys (buckets, size + extra)) for every size; ``extra``: values beyond the records."""
        start = 0
        for size, buckets in setting.items:
            end = start + (size + extra) * buckets
            yield size, self._keys[start:end].reshape(buckets, size + extra)
            start = end

    def meetings(self, setting: Setting, extra: int = 0) -> pa.Table:
        """(size, first, second, pairs): sum over buckets of one size of count(g, first) * count(g, second).

        Only first <= second and pairs > 0; codes are ranks of values. This is what the channel of a release is made
        of, and follows from ST alone.
        """
        parts = []
        for size, keys in self.classes(setting, extra):
            total = self._meetings(keys)
            first, second = np.nonzero(np.triu(total))
            columns = [np.full(len(first), size, dtype=np.int32), first.astype(np.int32), second.astype(np.int32)]
            parts.append(pa.table([*columns, total[first, second]], names=["size", "first", "second", "pairs"]))
        return pa.concat_tables(parts)

    def _meetings(self, keys: NDArray[Any]) -> Ints:
        """Sum over buckets (rows) of c c^T, c the counts of a bucket (m,)."""
        buckets, size = keys.shape
        m = self.values
        total = np.zeros(m * m, dtype=np.int64)
        left, right = np.triu_indices(size, 1)
        step = max(1, 4 * BATCH // max(1, len(left)))
        for begin in range(0, buckets, step):
            part = self.codes(keys[begin : begin + step])
            total += np.bincount((part[:, left] * m + part[:, right]).ravel(), minlength=m * m)
        square = total.reshape(m, m)
        square = square + square.T
        square[np.diag_indices(m)] += np.bincount(self.codes(keys).ravel(), minlength=m)
        return square

    def codes(self, keys: NDArray[Any]) -> Ints:
        """The values of some keys."""
        return np.asarray(keys & keys.dtype.type((1 << self._bits) - 1)).astype(np.int64)
