"""Leaving out records of values that are too frequent for l-diversity, as Chaytor and Wang do to run Anatomy (6.3)."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.exact import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.model import Bids, Ints
    from privsql.noise import Shuffler

LEFT_OUT = -1  # the bucket of a record that is left out


def kept(counts: Ints, threshold: Fraction) -> Ints:
    """The most records (m,) of which each value has at most 1/l, l = ceil(1/threshold): the largest fixed point of
    c = min(o, floor(sum c / l)). If there are fewer than l values nothing would be left, and ``counts`` is returned.
    """
    ways, left = ceil(1 / threshold), counts
    while True:
        most = int(left.sum()) // ways
        if most == 0:
            return counts
        fewer = np.minimum(counts, most)
        if (fewer == left).all():
            return fewer
        left = fewer


def refuse_observed(counts: Ints, left: Ints, labels: Sequence[str], threshold: Fraction) -> None:
    """``InfeasibleError`` if records are left out: who sees that they are missing learns their value.

    Names the most frequent value, and the threshold that leaves nobody out.
    """
    if (left == counts).all():
        return
    worst, number = int(np.argmax(counts)), int((counts - left).sum())
    share = Fraction(int(counts[worst]), int(counts.sum()))
    raise InfeasibleError(
        f"value {labels[worst]} has frequency {float(share):.6g} above its threshold {text(threshold)}; leaving "
        f"{number:,} records out tells their value to whoever sees that they are missing: what works is "
        f"excess = 'refuse' with a threshold of {text(share)}, or absence = 'unobservable', which states that "
        "adversaries do not know who is in the table",
        {"value": labels[worst], "frequency": text(share), "threshold": text(share), "left_out": number},
    )


def spread(bids: Bids, left: Ints, counts: Ints, noise: Shuffler) -> Bids:
    """Buckets of all records, value by value, from those of the kept ones: which are left out is random."""
    if (left == counts).all():
        return bids
    everyone = np.full(int(counts.sum()), LEFT_OUT, dtype=bids.dtype)
    ends = zip(pairwise(np.cumsum([0, *left]).tolist()), pairwise(np.cumsum([0, *counts]).tolist()), strict=True)
    for (begin, end), (first, last) in ends:
        everyone[first : first + end - begin] = bids[begin:end]
        if end - begin < last - first:
            noise.shuffle(everyone[first:last])
    return everyone
