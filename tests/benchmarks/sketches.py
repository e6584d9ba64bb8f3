"""How often two releases without ids are found to share records: by size, overlap, and how alike records are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.model.hashing import scatter_bits
from privsql.releases.ledger.evidence import CommonRecords, RecordSketch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

UNLIKE = (0.99, 0.6, 0.15)  # records that are unlike all others of their table
OVERLAPS = (1.0, 0.2, 0.05, 0.02, 0.01, 0.0)
BATCH = 2**20


def sketch(records: NDArray[np.uint64]) -> RecordSketch:
    """Of records by their numbers."""
    parts = (scatter_bits(records[begin : begin + BATCH]) for begin in range(0, len(records), BATCH))
    return RecordSketch.collect((part, None) for part in parts)


def found(ours: RecordSketch, theirs: RecordSketch) -> bool:
    """Whether the records of two tables are the same people's."""
    common = len(np.intersect1d(ours.hashes, theirs.hashes, assume_unique=True))
    sides = ours.sample_below(theirs.summary.limit), theirs.sample_below(ours.summary.limit)
    return CommonRecords(*sides, common, are_equal=ours.summary == theirs.summary).exceed_chance


def power(most: int, runs: int) -> Iterator[list[object]]:
    """Records, records unlike all others, and by overlap the share of pairs that are found."""
    for records in [10**power for power in range(3, 9) if 10**power <= most]:
        for unlike in UNLIKE:
            population = -records / np.log(unlike)
            times = max(1, min(runs, 3 * 10**7 // records))
            hits = dict.fromkeys(OVERLAPS, 0)
            for run in range(times):
                rng = np.random.default_rng((records, run))
                one, two = rng.integers(0, max(int(population), 1), (2, records)).astype(np.uint64)
                ours = sketch(one)
                for overlap in OVERLAPS:
                    mixed = np.concatenate([one[: int(overlap * records)], two[int(overlap * records) :]])
                    hits[overlap] += found(ours, sketch(mixed))
            yield [f"{records:,}", unlike, times, *(one / times for one in hits.values())]
