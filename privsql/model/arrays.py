"""Arrays whose size depends on what a release states, and the tables of a bucketized release as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.errors import EngineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    HashedRecords = tuple[NDArray[np.uint64], Ints | None]
    Reals = NDArray[np.float64]

MOST = 2**30  # most bytes of an array


def bounded_zeros(*shape: int) -> NDArray[np.float64]:
    """Return an array of zeros; raise ``EngineError`` if it would take more than ``MOST`` bytes.

    A damaged release can state any size, and too large an array might end the process.
    """
    size = prod(max(length, 0) for length in shape) * np.dtype(np.float64).itemsize
    if size > MOST:
        raise EngineError(f"an array of {' x '.join(f'{length:,}' for length in shape)} numbers is too large")
    return np.zeros(shape)


def as_doubles(numbers: pa.Array | pa.ChunkedArray, null: float = np.nan) -> Reals:
    """Return numbers, or texts of numbers, as doubles, with ``null`` in place of NULL.

    Whole numbers beyond 2^53 become the nearest double, which Arrow refuses by default.
    """
    return np.asarray(numbers.cast(pa.float64(), safe=False).fill_null(null).to_numpy(), dtype=np.float64)


def round_copies(weights: Reals) -> Ints:
    """Round weights to whole numbers, so that each row of a weighted table can be repeated so often.

    No sum of the first weights is off by more than 1/2. Negative weights, which noise can cause, count as 0.
    """
    totals = np.floor(np.cumsum(np.maximum(weights, 0)) + 0.5).astype(np.int64)
    return np.diff(totals, prepend=0)


def largest_transport(supply: Ints, demand: Ints, ways: tuple[Ints, Ints], room: Ints) -> int:
    """Return the size of a maximum flow in integers from n sources to m sinks.

    It tells how many records can be assigned to rows or groups within given limits.

    Args:
        supply: The supply of each source (n,).
        demand: The demand of each sink (m,).
        ways: The source and the sink of each edge, as two arrays.
        room: The capacity of each edge.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    starts, ends = len(supply), len(demand)
    source, sink = starts + ends, starts + ends + 1
    tails = np.concatenate((np.full(starts, source), ways[0], starts + np.arange(ends))).astype(np.int32)
    heads = np.concatenate((np.arange(starts), starts + ways[1], np.full(ends, sink))).astype(np.int32)
    limits = np.concatenate((supply, room, demand)).astype(np.int32)
    graph = csr_array((limits, (tails, heads)), shape=(sink + 1, sink + 1))
    return int(maximum_flow(graph, source, sink).flow_value)


@dataclass(frozen=True)
class ReleaseArrays:
    """The tables QIT and ST of a bucketized release as arrays: n records bucket by bucket, and K values by code.

    Attributes:
        columns: Each quasi-identifier by name (n,): numbers as floats with NaN for NULL, all others as codes.
        bucket: The number of each record's bucket (n,), rising from 0.
        listed_bucket: The bucket of each row of ST (entries,), rising.
        listed_value: The code of its value (entries,).
        listed_count: How often the bucket lists this value (entries,).
        values: The values as text (K,).
    """

    columns: dict[str, NDArray[Any]]
    bucket: Ints
    listed_bucket: Ints
    listed_value: Ints
    listed_count: Ints
    values: list[str | None]

    def select_buckets(self, chosen: NDArray[np.bool_]) -> ReleaseArrays:
        """Return the records and lists of some buckets, which are numbered anew from 0.

        Args:
            chosen: Whether each bucket is kept (buckets,).
        """
        number = np.cumsum(chosen) - 1
        records, entries = chosen[self.bucket], chosen[self.listed_bucket]
        return ReleaseArrays(
            {name: column[records] for name, column in self.columns.items()},
            number[self.bucket[records]],
            number[self.listed_bucket[entries]],
            self.listed_value[entries],
            self.listed_count[entries],
            self.values,
        )

    @property
    def sizes(self) -> Ints:
        """Return the number of records of every bucket (buckets,)."""
        return np.asarray(np.bincount(self.bucket))

    @property
    def log_shares(self) -> Reals:
        """Return the logarithm of each value's share of all listed values (K,), to which a regression adds effects.

        A value that is not listed counts as half a record.
        """
        counts = np.maximum(np.bincount(self.listed_value, self.listed_count, len(self.values)), 0.5)
        return np.asarray(np.log(counts / counts.sum()))
