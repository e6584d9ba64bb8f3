"""Which values meet in which bucket: from a plan to one bucket number for every record.

A layout returns ``bids`` (n,): for each value in turn, the buckets of its records in uniformly random order. Buckets
are numbered by size, smallest first. Every layout gives a bucket of size S at most F_iS records of x_i.

Given the published counts, every order of a value's records over its slots is equally likely, so the posterior of an
adversary who knows the algorithm is count(g, x)/|g| exactly; that is all the privacy argument needs of a layout.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.bucketize.groups.crossing import Pair
from privsql.mechanisms.bucketize.groups.dealing import BLOCKS, across, along_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.mechanisms.bucketize.groups.families import Tree
    from privsql.mechanisms.bucketize.model import Ints, Plan
    from privsql.noise import Shuffler

Bids = NDArray[np.int32]
Chunk = tuple[int, Bids]  # a value and the buckets of some of its records
LAYOUTS = ("well-mixed", "round-robin", "largest-first")


def arrange(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[Tree] = ()) -> Bids:
    """Bucket of every record (n,), values in the order of the plan's rows, records of a value in random order.

    ``trees``: sets of values that are bounded, of which every bucket gets the floor or the ceiling of their mean.
    """
    counts = plan.allocation.sum(axis=1)
    starts = np.cumsum(counts) - counts
    bids = np.empty(int(counts.sum()), dtype=np.int32)
    filled, chunks = starts.copy(), np.zeros(len(counts), dtype=np.int64)
    for value, chosen in _even(plan, layout, noise, trees) if trees else _slots(plan, layout, noise):
        bids[filled[value] : filled[value] + len(chosen)] = chosen
        filled[value] += len(chosen)
        chunks[value] += 1
    # A single chunk of a well-mixed layout is in uniformly random order already.
    mixed = np.flatnonzero(chunks > (1 if layout == "well-mixed" and not trees else 0))
    for value in mixed.tolist():
        noise.shuffle(bids[starts[value] : filled[value]])
    return bids


def _slots(plan: Plan, layout: str, noise: Shuffler) -> Iterator[Chunk]:
    """The buckets of every value's records, in chunks."""
    composition = _largest_first(plan, noise) if layout == "largest-first" else None
    if composition is not None:
        yield from composition
        return
    fill = _round_robin if layout == "round-robin" else _well_mixed
    base = 0
    for j, buckets in enumerate(plan.setting.buckets):
        for value, chosen in fill(plan.allocation[:, j], buckets, noise):
            if len(chosen):
                yield value, chosen + base
        base += buckets


def _even(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[Tree]) -> Iterator[Chunk]:
    """The same where sets of values are bounded (``dealing``); bucket numbers are random within a size."""
    base = 0
    for j, buckets in enumerate(plan.setting.buckets):
        records = plan.allocation[:, j]
        if len(trees) > 1:
            slots = across(records, buckets, Pair(*trees), noise)
        else:
            slots = along_lines(records, buckets, trees[0], noise, BLOCKS if layout == "well-mixed" else 1)
        number = (base + noise.permutation(buckets)).astype(np.int32)
        chosen = number[slots.buckets[np.argsort(slots.values, kind="stable")]]
        for value, part in enumerate(np.split(chosen, np.cumsum(records)[:-1])):
            if len(part):
                yield value, part
        base += buckets


def _round_robin(records: Ints, buckets: int, _noise: Shuffler) -> Iterator[Chunk]:
    """The paper's RRA: slot s of the class goes to bucket s mod b."""
    slot = 0
    for value in np.flatnonzero(records).tolist():
        end = slot + int(records[value])
        yield value, (np.arange(slot, end) % buckets).astype(np.int32)
        slot = end


def _well_mixed(records: Ints, buckets: int, noise: Shuffler) -> Iterator[Chunk]:
    """Rounds of b slots, each a fresh random permutation of the buckets; values in random order, one after the other.

    A value that crosses into the next round goes first to the buckets that hold fewest of it so far, so that its
    count per bucket is floor or ceil of its mean.
    """
    everyone = np.arange(buckets, dtype=np.int32)
    free = everyone[:0]
    for value in noise.permutation(np.flatnonzero(records)).tolist():
        left = int(records[value])
        held, free = free[:left], free[left:]  # held: the buckets with one record more of this value
        yield value, held
        left -= len(held)
        while left >= buckets:
            yield value, noise.permutation(everyone)
            left -= buckets
        if left:
            chosen = _fewest_first(everyone, held, left, noise)
            yield value, chosen
            free = noise.permutation(everyone[~_among(chosen, buckets)])


def _fewest_first(everyone: Bids, held: Bids, number: int, noise: Shuffler) -> Bids:
    """A uniformly random choice of buckets, those that are not ``held`` before those that are; in random order."""
    chosen = noise.permutation(everyone[~_among(held, len(everyone))])[:number]
    if len(chosen) < number:
        chosen = np.concatenate((chosen, noise.permutation(held)[: number - len(chosen)]))
    return chosen


def _among(members: Bids, buckets: int) -> NDArray[np.bool_]:
    flags = np.zeros(buckets, dtype=bool)
    flags[members] = True
    return flags


def _largest_first(plan: Plan, noise: Shuffler) -> Iterator[Chunk] | None:
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


def _renumbered(members: list[list[int]], extra: Ints, noise: Shuffler) -> Iterator[Chunk]:
    """Number the buckets by size, at random within a size."""
    order = np.concatenate([noise.permutation(np.flatnonzero(extra == k)) for k in (0, 1)])
    number = np.empty(len(extra), dtype=np.int32)
    number[order] = np.arange(len(extra), dtype=np.int32)
    for value, held in enumerate(members):
        if held:
            yield value, number[np.array(held)]
