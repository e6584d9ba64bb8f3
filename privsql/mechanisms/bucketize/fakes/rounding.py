"""Dependent rounding: a random choice of entries with exact chances, exactly so many in every row and of every kind.

An entry is a place in a row (bucket) with a kind (value). Each entry e has a chance w_e / 2^BITS, w_e an integer, that
sum to an integer over every row and over every kind. ``rounded`` chooses entries such that

    P(e is chosen) = w_e / 2^BITS exactly,  and every row and every kind has as many as its chances sum to, always.

From the lowest bit up, the weights that are odd in that bit are moved by one bit, half of them up and half down in
every row and of every kind: there is an even number of them in each. They are paired within rows; two pairs of the
same two kinds move oppositely, by a fair coin; what is left, at most one pair of any two kinds, forms closed trails
through the kinds, each walked in the one or in the other direction by a fair coin. Up is as likely as down for every
entry at every bit, whatever happened before, so chances are kept. (Gandhi, Khuller, Parthasarathy, Srinivasan 2006
round along paths one after the other; halving is for arrays, as Alon 2003 halves regular bipartite graphs.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from privsql.mechanisms.bucketize.fakes.chances import scaled

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.fakes.chances import Entries, Floats
    from privsql.mechanisms.bucketize.model import Ints
    from privsql.noise import Shuffler

Flags = NDArray[np.bool_]

BITS = 24
ONE = 1 << BITS
ENOUGH = 1e-5  # how far off a sum may be that integers make good


def weights(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Ints | None:
    """Integers w (E,) within 0 and 2^BITS, near ``chances`` (E,) times 2^BITS, whose sums over rows and kinds are
    exactly ``of_rows`` and ``of_kinds`` times 2^BITS; None if there are none near. A kind of which all or none is
    chosen is fixed.
    """
    lengths = entries.lengths[1]
    found = np.where((of_kinds == lengths)[entries.kinds], ONE, 0)
    free = np.flatnonzero(((of_kinds > 0) & (of_kinds < lengths))[entries.kinds])
    rest, part = of_rows - entries.sums(found)[0].astype(np.int64) // ONE, entries.part(free)
    if ((rest < 0) | (rest > part.lengths[0])).any() or ((of_kinds < 0) | (of_kinds > lengths)).any():
        return None
    if len(free):
        of_free = np.where(of_kinds < lengths, of_kinds, 0)
        near = scaled(part, chances[free], rest, of_free)
        if np.abs(part.sums(near)[1] - of_free).max() > ENOUGH:
            return None
        found[free] = _exact(part, near, rest, of_free)
    over_rows, over_kinds = entries.sums(found)
    exact = (over_rows == of_rows * ONE).all() and (over_kinds == of_kinds * ONE).all()
    return found if exact and (found >= 0).all() and (found <= ONE).all() else None


def _exact(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Ints:
    """Integers near ``chances`` times 2^BITS with exact sums.

    What rounding leaves open in a row is spread over its entries; what it leaves open of a kind goes to another kind
    within a row, along a tree of kinds that stand next to each other somewhere.
    """
    found = np.floor(chances * ONE).astype(np.int64)
    lengths = entries.lengths[0]
    place = np.arange(len(found)) - (np.cumsum(lengths) - lengths)[entries.rows]
    each, more = np.divmod(of_rows * ONE - entries.sums(found)[0].astype(np.int64), np.maximum(lengths, 1))
    found += each[entries.rows] + (place < more[entries.rows])
    left = of_kinds * ONE - entries.sums(found)[1].astype(np.int64)
    for kind, other, at, there in _tree(entries):
        found[at] += left[kind]
        found[there] -= left[kind]
        left[other] += left[kind]
        left[kind] = 0
    return found


def _tree(entries: Entries) -> list[tuple[int, int, int, int]]:
    """(kind, its parent, an entry of each in one row), leaves first."""
    number = entries.shape[1]
    beside = np.flatnonzero(entries.rows[1:] == entries.rows[:-1])
    one, two = entries.kinds[beside], entries.kinds[beside + 1]
    keys, first = np.unique(np.minimum(one, two) * number + np.maximum(one, two), return_index=True)
    low, high = np.divmod(keys, number)
    graph = csr_array((np.ones(len(keys)), (low, high)), shape=(number, number))
    meets = {(a, b): int(beside[at]) for a, b, at in zip(low.tolist(), high.tolist(), first.tolist(), strict=True)}
    _, component = connected_components(graph, directed=False)
    found = []
    for root in np.unique(component, return_index=True)[1].tolist():
        order, parents = breadth_first_order(graph, root, directed=False)
        for kind in order[:0:-1].tolist():
            other = int(parents[kind])
            at = meets[min(kind, other), max(kind, other)]
            pair = (at, at + 1) if entries.kinds[at] == kind else (at + 1, at)
            found.append((kind, other, *pair))
    return found


def rounded(entries: Entries, weights: Ints, noise: Shuffler) -> Flags:
    """Which entries are chosen (E,): each with its chance, and in every row and of every kind what the chances sum to.

    The order of a row's entries, whatever it is, decides who is paired with whom: give them in random order.
    """
    left = weights.copy()
    for bit in range(BITS):
        odd = np.flatnonzero((left >> bit) & 1)
        if len(odd):
            one, two = odd[0::2], odd[1::2]
            step = np.where(
                _rises(entries.kinds[one], entries.kinds[two], entries.shape[1], noise), 1 << bit, -1 << bit
            )
            left[one] += step
            left[two] -= step
    return np.asarray(left == ONE)


def _rises(one: Ints, two: Ints, number: int, noise: Shuffler) -> Flags:
    """For pairs of kinds, which of the two rises (True: the first), such that every kind rises as often as it falls."""
    turned = one > two
    keys = np.where(turned, two * number + one, one * number + two)
    order = noise.permutation(len(keys))
    order = order[np.argsort(keys[order], kind="stable")]
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate((np.ones(1, dtype=bool), keys[1:] != keys[:-1])))
    lengths = np.diff(np.append(starts, len(keys)))
    second = (np.arange(len(keys)) - np.repeat(starts, lengths)) % 2 == 1
    rises = noise.integers(0, 2, len(keys)).astype(bool)
    rises[second] = ~rises[np.flatnonzero(second) - 1]
    alone = (starts + lengths - 1)[lengths % 2 == 1]
    if len(alone):
        rises[alone] = _walked(keys[alone] // number, keys[alone] % number, noise)
    found = np.empty_like(rises)
    found[order] = rises
    return np.asarray(found ^ turned)


def _walked(one: Ints, two: Ints, noise: Shuffler) -> Flags:
    """Closed trails through kinds that each have an even number of ends of pairs: whether a pair's first end rises.

    The ends at a kind are joined two by two at random. From an end to the other one of its pair, and on to the one
    joined with that, is a permutation of the ends whose cycles come in twos: those that rise and those that fall.
    """
    kinds = np.stack((one, two), axis=1).ravel()
    order = noise.permutation(len(kinds))
    order = order[np.argsort(kinds[order], kind="stable")]
    joined = np.empty(len(kinds), dtype=np.int64)
    joined[order[0::2]], joined[order[1::2]] = order[1::2], order[0::2]
    across = np.arange(len(kinds)) ^ 1
    follow = csr_array((np.ones(len(kinds)), joined[across], np.arange(len(kinds) + 1)))
    number, cycle = connected_components(follow)
    coins = noise.integers(0, 2, number).astype(bool)
    other = cycle[across]
    return np.asarray(np.where(cycle < other, coins[cycle], ~coins[other]))[0::2]
