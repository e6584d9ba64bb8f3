"""Layouts that keep bounds on two families of sets that cross: in every bucket each set has the floor or the ceiling of
its mean. (One family of nested or disjoint sets lies along lines, ``layout.blocks``.)

Blocks of 2^k buckets are halved k times. What is odd in number is paired, within the smallest
set of each family in which two are left over; partners go to different halves. Every record has at most one partner in
each family, so they form paths and cycles that alternate between the families and can be told in two; every set is
halved to within one. (A balanced edge colouring of a bipartite multigraph, de Werra 1971, of which buckets are the
colours, by Euler splits.) Buckets beyond a power of two are parted by a circulation (``crossing.Pair.share``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.mechanisms.bucketize.groups.crossing import Pair
    from privsql.mechanisms.bucketize.groups.families import Tree
    from privsql.mechanisms.bucketize.model import Ints
    from privsql.noise import Shuffler


@dataclass(frozen=True)
class Slots:
    """A value and a bucket for every record of a size class (n,), in no order that means anything."""

    values: Ints
    buckets: Ints


def across(records: Ints, buckets: int, pair: Pair, noise: Shuffler) -> Slots:
    """``records`` (m,) dealt evenly to ``buckets`` in both families."""
    left, values, bids, start = records.copy(), [], [], 0
    while start < buckets:
        width = 1 << ((buckets - start).bit_length() - 1)
        share = pair.share(left, width, buckets - start)
        left = left - share
        dealt = _halved(share, width, (pair.first, pair.second), noise)
        values.append(dealt.values)
        bids.append(start + dealt.buckets)
        start += width
    return Slots(np.concatenate(values), np.concatenate(bids))


def _halved(records: Ints, width: int, trees: Sequence[Tree], noise: Shuffler) -> Slots:
    """``records`` (m,) dealt evenly to ``width`` buckets, a power of two."""
    values = np.flatnonzero(records)
    parts, counts = np.zeros_like(values), records[values]
    while width > 1:
        odd = counts % 2 == 1
        upper = np.zeros_like(counts)
        upper[odd] = _told_in_two(parts[odd], values[odd], trees, noise)
        halves = np.stack([counts // 2 + odd - upper, counts // 2 + upper])
        some = halves > 0
        parts = np.stack([2 * parts, 2 * parts + 1])[some]
        values, counts = np.broadcast_to(values, halves.shape)[some], halves[some]
        width //= 2
    return Slots(np.repeat(values, counts), np.repeat(parts, counts))


def _told_in_two(parts: Ints, values: Ints, trees: Sequence[Tree], noise: Shuffler) -> Ints:
    """0 or 1 for each of some records (e,), so that partners differ."""
    number = len(parts)
    pairs = np.concatenate([_partners(parts, values, tree, noise) for tree in trees], axis=1)
    # Each record stands for two nodes, itself and its opposite; partners are tied to each other's opposites.
    rows, columns = np.concatenate((pairs[0], pairs[0] + number)), np.concatenate((pairs[1] + number, pairs[1]))
    graph = scipy.sparse.coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(2 * number, 2 * number))
    label = scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
    one, opposite = label[:number], label[number:]
    coin = noise.integers(0, 2, 2 * number)[np.minimum(one, opposite)]
    return np.where(one < opposite, coin, 1 - coin)


def _partners(parts: Ints, values: Ints, tree: Tree, noise: Shuffler) -> Ints:
    """Pairs of records (2, p) of the same part: within the smallest set of the tree first, then within larger ones.

    Of the records of one part in one set at most one is left without a partner in it.
    """
    left = np.arange(len(parts))
    found: list[NDArray[np.int64]] = []
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
        found.append(np.stack([left[first], left[second]]))
        left = left[~(first | second)]
    return np.concatenate(found, axis=1)
