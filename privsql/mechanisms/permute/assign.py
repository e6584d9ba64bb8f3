"""From the group of every record to what is published: the contents of the groups, and a shuffle within each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.engine.positions import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from privsql.mechanisms.permute.axis import Ints
    from privsql.noise import Shuffler

DEALT = pa.schema([("pos", pa.int64()), ("bid", pa.int32()), ("code", pa.int32())])
TABLE = 2**26  # numbers beyond which groups x values are not counted in one table


def contents(groups: Ints, codes: Ints) -> pa.Table:
    """(bid, code, records) by group and code, from the group and the value of every record (n,)."""
    values = int(codes.max(initial=-1)) + 1
    cells = groups * values + codes
    if (int(groups.max(initial=-1)) + 1) * values <= TABLE:
        counted = np.bincount(cells)
        found = np.flatnonzero(counted)
        records = counted[found]
    else:
        found, records = np.unique(cells, return_counts=True)
    columns = {"bid": found // values, "code": found % values, "records": records}
    return pa.table({name: column.astype(np.int32) for name, column in columns.items()})


def shuffled(groups: Ints, codes: Ints, noise: Shuffler) -> NDArray[np.int32]:
    """The values (n,) in uniformly random order within every group (thesis, Definition 4)."""
    dealt = codes.astype(np.int32)
    rising = bool((groups[1:] >= groups[:-1]).all())
    order = None if rising else np.argsort(groups, kind="stable")
    run = dealt if order is None else dealt[order]
    ends = np.cumsum(np.bincount(groups)).tolist()
    begin = 0
    for end in ends:
        noise.shuffle(run[begin:end])
        begin = end
    if order is not None:
        dealt[order] = run
    return dealt


def dealt(groups: Ints, codes: NDArray[np.int32]) -> pa.RecordBatchReader:
    """(pos, bid, code) for every position, as a stream."""

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(groups), BATCH):
            part = groups[begin : begin + BATCH]
            columns = [np.arange(begin, begin + len(part)), part.astype(np.int32), codes[begin : begin + BATCH]]
            yield pa.record_batch(columns, schema=DEALT)

    return pa.RecordBatchReader.from_batches(DEALT, batches())
