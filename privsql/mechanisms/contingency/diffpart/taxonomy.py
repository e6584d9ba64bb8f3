"""The taxonomies of all columns in one numbering: children before their parents, column after column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytree.tree import levels

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.tree import Ints


@dataclass(frozen=True)
class Taxonomy:
    """K nodes over d columns; all arrays are int64.

    ``column``, ``parent`` (K,): -1 above a root. ``height``, ``depth`` (K,): longest way down to a value, way up to the
    root. ``place`` (K,): number among its siblings. ``starts`` (K+1,), ``children``: the children of node k by place,
    at ``children[starts[k]:starts[k+1]]``. ``roots`` (d,). ``path`` (K, deepest + 2): a node's ancestor at each depth,
    itself from its own depth on. ``below`` (K,): values below it, 1 for a value.
    """

    column: Ints
    parent: Ints
    height: Ints
    depth: Ints
    place: Ints
    starts: Ints
    children: Ints
    roots: Ints
    path: Ints
    below: Ints

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def degree(self) -> Ints:
        """Number of children, (K,)."""
        return np.diff(self.starts)

    def values(self, column: int) -> Ints:
        """The nodes of a column's values, in their order."""
        return np.flatnonzero((self.column == column) & (self.height == 0))


def assembled(column: Ints, parent: Ints) -> Taxonomy:
    """A taxonomy from the column and the parent of every node; ``ValueError`` if these make none."""
    number, is_root = len(parent), parent < 0
    if not number or (np.diff(column, prepend=0) < 0).any() or not _counts_up(column[is_root]):
        raise ValueError("every column needs one root, and columns lie in order")
    inner = np.flatnonzero(~is_root)
    if (parent[inner] <= inner).any() or (parent >= number).any() or (column[parent[inner]] != column[inner]).any():
        raise ValueError("a node lies after its parent, or in another column")
    height, depth = np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.int64)
    below = np.zeros(number, dtype=np.int64)
    for node in range(number):
        below[node] = max(below[node], 1)
        if parent[node] >= 0:
            height[parent[node]] = max(height[parent[node]], height[node] + 1)
            below[parent[node]] += below[node]
    for node in inner[::-1]:
        depth[node] = depth[parent[node]] + 1
    if not height[is_root].all():
        raise ValueError("a column has no values below its root")
    children = inner[np.lexsort((inner, parent[inner]))]
    starts = np.searchsorted(parent[children], np.arange(number + 1))
    place = np.zeros(number, dtype=np.int64)
    place[children] = np.arange(len(children)) - starts[parent[children]]
    path = np.repeat(np.arange(number)[:, None], int(depth.max()) + 2, axis=1)
    for node in inner[::-1]:
        path[node, : depth[node]] = path[parent[node], : depth[node]]
    return Taxonomy(column, parent, height, depth, place, starts, children, np.flatnonzero(is_root), path, below)


def grouped(values: int, fan_out: int) -> Ints:
    """The parents of a context-free taxonomy: the values first, then level upon level."""
    parents, first = [], 0
    for group in levels(values, fan_out):
        first += len(group)
        parents.append(first + group)
    return np.concatenate([*parents, [-1]]).astype(np.int64)


def _counts_up(found: Ints) -> bool:
    return len(found) > 0 and np.array_equal(found, np.arange(len(found)))
