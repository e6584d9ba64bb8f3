"""Anatomy's own composition (Xiao and Tao 2006): every bucket takes the values of which most records are left."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.layout.pieces import Singles

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.model import Ints, Plan
    from privsql.noise import Shuffler


def largest_first(plan: Plan, noise: Shuffler) -> Singles | None:
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
    return _renumbered(members, extra, noise)


def _renumbered(members: list[list[int]], extra: Ints, noise: Shuffler) -> Singles:
    """Number the buckets by size, at random within a size."""
    order = np.concatenate([noise.permutation(np.flatnonzero(extra == k)) for k in (0, 1)])
    number = np.empty(len(extra), dtype=np.int32)
    number[order] = np.arange(len(extra), dtype=np.int32)
    counts = np.array([len(held) for held in members], dtype=np.int64)
    return Singles(number[np.array([g for held in members for g in held], dtype=np.int64)], counts)
