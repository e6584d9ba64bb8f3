"""Families of bounded sets of values: one or two trees of sets that are nested or disjoint.

A bound on a set G of values is  sum over x in G of count(g, x) <= floor(f'_G |g|)  in every bucket g. It can be kept
exactly, with counts per bucket that are the floor or the ceiling of their mean, if the sets are nested or disjoint
(a laminar family), or if they are two such families, as are the values of two columns of a compound attribute. Three
families that cross each other can't: then even the existence of a rounding is not assured.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.groups.bounds import Bound
    from privsql.noise import Shuffler

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """A laminar family over m values, larger sets before the smaller ones inside them.

    ``parent`` (N,): the smallest larger set around each set, -1 for none; ``owner`` (m,): the smallest set that holds
    each value, -1 for none.
    """

    bounds: tuple[Bound, ...]
    parent: Ints
    owner: Ints

    @cached_property
    def incidence(self) -> scipy.sparse.csr_array:
        """Which set holds which value (N, m)."""
        return incidence(self.bounds, len(self.owner))

    def sums(self, amounts: Ints) -> Ints:
        """Sums over each set (N, ..) of amounts per value (m, ..)."""
        return np.asarray(self.incidence @ amounts)

    def rank(self, amounts: Ints, limits: Ints) -> Ints:
        """The most (K,) of ``amounts`` (m, K) that the sets let through, each at most its ``limits`` (N, K)."""
        total = np.zeros((len(self.bounds) + 1, amounts.shape[1]), dtype=np.int64)
        np.add.at(total, self.owner, amounts)  # -1, the last row: whatever is in no set
        for i in range(len(self.bounds) - 1, -1, -1):
            total[self.parent[i]] += np.minimum(total[i], limits[i])
        return np.asarray(total[-1])

    @cached_property
    def chains(self) -> Ints:
        """The sets around each value from the outermost on, and then the value itself, as N + i; (depth + 1, m)."""
        sets = len(self.bounds)
        above: list[list[int]] = []
        for i in range(sets):
            above.append([*(above[self.parent[i]] if self.parent[i] >= 0 else []), i])
        paths = [above[owner] if owner >= 0 else [] for owner in self.owner.tolist()]
        depth = max(map(len, paths), default=0) + 1
        return np.array([[*path, *[sets + i] * (depth - len(path))] for i, path in enumerate(paths)], np.int64).T

    def line(self, noise: Shuffler) -> Ints:
        """All values in a random order (m,) in which those of every set stand together: in the order of the tree."""
        rank = noise.permutation(len(self.bounds) + len(self.owner))
        return np.lexsort(rank[self.chains][::-1]).astype(np.int64)


def incidence(bounds: Sequence[Bound], values: int) -> scipy.sparse.csr_array:
    """Which set holds which value (N, m), as integers."""
    rows = np.repeat(np.arange(len(bounds)), [len(one.members) for one in bounds])
    columns = np.array([i for one in bounds for i in one.members], dtype=np.int64)
    return scipy.sparse.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=(len(bounds), values))


def families(bounds: Sequence[Bound], values: int) -> tuple[Tree, ...]:
    """One tree, or two, that hold all sets; none if nothing is bounded. ``UsageError`` names sets that need a third."""
    binding = sorted((one for one in bounds if one.threshold < 1), key=lambda one: -len(one.members))
    side = _sides(binding, _crossings(binding, values))
    parts = [[one for one, own in zip(binding, side, strict=True) if own == k] for k in (0, 1)]
    return tuple(_tree(part, values) for part in parts if part)


def _crossings(bounds: Sequence[Bound], values: int) -> list[list[int]]:
    """For each set those that share some of its values, and neither holds the other."""
    holds = incidence(bounds, values)
    shared = (holds @ holds.T).tocoo()
    sizes = np.array([len(one.members) for one in bounds], dtype=np.int64)
    first, second = shared.coords
    across = shared.data < np.minimum(sizes[first], sizes[second])
    found: list[list[int]] = [[] for _ in bounds]
    for i, j in zip(first[across].tolist(), second[across].tolist(), strict=True):
        found[i].append(j)
    return found


def _sides(bounds: Sequence[Bound], crossing: list[list[int]]) -> list[int]:
    """0 or 1 for each set, so that no two of one side cross."""
    side, before = [-1] * len(bounds), [-1] * len(bounds)
    for start in range(len(bounds)):
        if side[start] >= 0:
            continue
        side[start] = 0
        queue = deque([start])
        while queue:
            i = queue.popleft()
            for j in crossing[i]:
                if side[j] < 0:
                    side[j], before[j] = 1 - side[i], i
                    queue.append(j)
                elif side[j] == side[i]:
                    raise UsageError(_third(bounds, _cycle(before, i, j)))
    return side


def _cycle(before: list[int], i: int, j: int) -> list[int]:
    """An odd number of sets, each of which crosses the next: from i and from j back to where they meet."""
    paths = []
    for at in (i, j):
        path = [at]
        while before[path[-1]] >= 0:
            path.append(before[path[-1]])
        paths.append(path)
    common = next(at for at in paths[0] if at in paths[1])
    return paths[0][: paths[0].index(common) + 1] + paths[1][: paths[1].index(common)][::-1]


def _third(bounds: Sequence[Bound], cycle: list[int]) -> str:
    names = ", ".join(repr(bounds[i].name) for i in cycle)
    return (
        f"mechanism: the groups {names} cross each other; bounds are kept on two families of nested or disjoint groups "
        "(two columns, say), not on three: leave one out"
    )


def _tree(bounds: Sequence[Bound], values: int) -> Tree:
    owner, parent = np.full(values, -1, dtype=np.int64), np.full(len(bounds), -1, dtype=np.int64)
    for i, one in enumerate(bounds):
        own = np.array(one.members, dtype=np.int64)
        parent[i] = owner[own[0]]
        owner[own] = i
    return Tree(tuple(bounds), parent, owner)
