"""Item sets with weights as bits: which of them hold some items, and which sets of items weigh most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.model.arrays import copies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytree.tree import Ints

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Holdings:
    """N sets: the items of set s are ``codes[starts[s]:starts[s+1]]``, of a universe of ``items``; ``weights`` (N,)."""

    starts: Ints
    codes: Ints
    weights: Reals
    items: int

    @property
    def longest(self) -> int:
        """Items of the largest set."""
        return int(np.diff(self.starts).max(initial=0))

    @cached_property
    def _owner(self) -> Ints:
        return np.repeat(np.arange(len(self.weights), dtype=np.int64), np.diff(self.starts))

    @cached_property
    def singles(self) -> Reals:
        """Weight of every item alone, (items,)."""
        return self._by_item(self.weights, self.codes >= 0)

    @cached_property
    def _bits(self) -> NDArray[np.uint8]:
        """For every item the sets that hold it, as bits: (items, N/8)."""
        found = np.zeros((self.items, (len(self.weights) + 7) // 8), dtype=np.uint8)
        owner = self._owner
        np.bitwise_or.at(found, (self.codes, owner >> 3), (128 >> (owner & 7)).astype(np.uint8))
        return found

    def holding(self, codes: Sequence[int]) -> Flags:
        """Which sets hold all of some items, (N,)."""
        packed = np.bitwise_and.reduce(self._bits[list(codes)], axis=0)
        return np.unpackbits(packed, count=len(self.weights)).astype(bool)

    def copies(self) -> Ints:
        """How many records stand for each set, (N,)."""
        return copies(self.weights)

    def top(self, number: int, counted: Reals | None = None) -> list[tuple[tuple[int, ...], float]]:
        """The ``number`` item sets with most weight, each with its weight; ties by size and then by codes.

        ``counted`` (N,): what of the weights was measured. Item sets of which that is not half are left out.

        Best first: a set is extended by items after its last one, all of whose weights are had in one pass over the
        sets that hold it. Where all weights are positive no extension weighs more than what it extends, so what comes
        out is exact; negative weights, from noise, may put a set somewhat later.
        """
        known = self.singles if counted is None else self._by_item(np.maximum(counted, 0), self.codes >= 0)
        queue: list[tuple[float, int, tuple[int, ...]]] = [
            (-weight, 1, (code,)) for code, weight in enumerate(self.singles.tolist()) if weight > 0 and known[code] > 0
        ]
        heapq.heapify(queue)
        found: list[tuple[tuple[int, ...], float]] = []
        while queue and len(found) < number:
            weight, size, chosen = heapq.heappop(queue)
            held = self.holding(chosen)
            if counted is None or 2 * float(counted[held].sum()) >= -weight:
                found.append((chosen, -weight))
            for code, more in self._extensions(held, chosen[-1], counted):
                heapq.heappush(queue, (-more, size + 1, (*chosen, code)))
        return found

    def _extensions(self, held: Flags, last: int, counted: Reals | None) -> list[tuple[int, float]]:
        """Items after the last one with their weights in some sets; those of which nothing was measured are left out,
        for nothing is of what they extend to.
        """
        inside = held[self._owner] & (self.codes > last)
        weights = self._by_item(self.weights, inside)
        known = weights if counted is None else self._by_item(np.maximum(counted, 0), inside)
        return [(code, float(weights[code])) for code in np.flatnonzero((weights > 0) & (known > 0)).tolist()]

    def _by_item(self, weights: Reals, inside: Flags) -> Reals:
        """Weights by item, over some of the pairs of set and item, (items,)."""
        found = np.bincount(self.codes[inside], weights=weights[self._owner[inside]], minlength=self.items)
        return found.astype(np.float64)


def utility(
    true: Sequence[tuple[tuple[int, ...], float]], found: Sequence[tuple[tuple[int, ...], float]], number: int
) -> float:
    """1 - mean relative difference of the supports of the true top sets; one that was not found has support 0.

    Source: Chen et al. 2011, appendix E.
    """
    known = dict(found[:number])
    missed = [abs(known.get(chosen, 0.0) - support) / support for chosen, support in true[:number]]
    return 1 - sum(missed) / max(1, len(missed))
