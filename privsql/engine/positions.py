"""What every record is given, as a stream that SQL takes: positions of the sorted records and one number for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

POSITIONS = pa.schema([("pos", pa.int64()), ("bid", pa.int32())])
BATCH = 2**20  # rows that are handed over at a time, so that nothing of n rows is copied


def positions(bids: NDArray[Any]) -> pa.RecordBatchReader:
    """(pos, bid) for every position, as a stream."""

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(bids), BATCH):
            part = bids[begin : begin + BATCH]
            yield pa.record_batch([np.arange(begin, begin + len(part)), part], schema=POSITIONS)

    return pa.RecordBatchReader.from_batches(POSITIONS, batches())
