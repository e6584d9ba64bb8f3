"""The context-free taxonomy: items grouped by fan-out, level upon level, to one root (paper, section 3.1).

Nodes are numbers. Items are 0..I-1 in the order of the universe. Inner nodes are 0..K-1 **in the order in which they
are expanded**: greater height first; within a height those with fewer children first, because the last expansion has
the whole of the leaves' budget; and among equals in random order, the same for all partitions. So the next node of any
hierarchy cut is its lowest number, chosen among those of greatest height without looking at the data (section 4.1),
the root is 0, and a parent's number is below its children's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytree.tree import levels

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.noise import Shuffler


@dataclass(frozen=True)
class Taxonomy:
    """K inner nodes over I items; all arrays are int64.

    ``item_parent``, ``item_bit`` (I,): an item's node and its place among the node's children. ``parent``, ``bit``
    (K,): the same for inner nodes, -1 for the root. ``height``, ``degree`` (K,): 1 above items; number of children.
    ``inner`` (K,): inner nodes of the sub-tree, itself included: the expansions that it can take. ``starts`` (K+1,),
    ``children``: the children of node k by place, at ``children[starts[k]:starts[k+1]]``; items where the height is 1.
    """

    item_parent: Ints
    item_bit: Ints
    parent: Ints
    bit: Ints
    height: Ints
    degree: Ints
    inner: Ints
    starts: Ints
    children: Ints

    @property
    def items(self) -> int:
        """Number of items."""
        return len(self.item_parent)

    @property
    def nodes(self) -> int:
        """Number of inner nodes, at least 1."""
        return len(self.parent)

    def named(self, node: Ints, mask: Ints, *, low: bool) -> tuple[Ints, Ints]:
        """The children that masks name, as (index into ``node``, child): items if ``low``, else inner nodes."""
        which, child = [], []
        for place in range(int(self.degree.max())):
            has = np.flatnonzero((mask >> place & 1 == 1) & ((self.height[node] == 1) == low))
            which.append(has)
            child.append(self.children[self.starts[node[has]] + place])
        return np.concatenate(which), np.concatenate(child)


def grow(items: int, fan_out: int, noise: Shuffler | None) -> Taxonomy:
    """Group ``items`` by ``fan_out`` to a root; the last group of a level takes what is left.

    ``noise`` draws the order of expansion among nodes of equal height and degree; None leaves it as it is.
    """
    groups = levels(items, fan_out)
    ranks = [_ranks(np.bincount(group), noise) for group in groups]
    first = np.cumsum([0, *[len(rank) for rank in ranks[::-1]]])[::-1][1:]  # first number of each level, lowest last
    numbers = [start + rank for start, rank in zip(first, ranks, strict=True)]
    total = sum(len(rank) for rank in ranks)
    parent, bit = np.full(total, -1, dtype=np.int64), np.full(total, -1, dtype=np.int64)
    height, inner = np.ones(total, dtype=np.int64), np.ones(total, dtype=np.int64)
    for level, (below, group) in enumerate(zip(numbers, groups[1:], strict=False)):
        above = numbers[level + 1]
        parent[below], bit[below] = above[group], _places(group)
        height[above] = level + 2
        np.add.at(inner, above[group], inner[below])
    return _with_children(numbers[0][groups[0]], _places(groups[0]), parent, bit, height, inner)


def rebuilt(items: tuple[Ints, Ints], nodes: tuple[Ints, Ints], height: Ints) -> Taxonomy:
    """A taxonomy from parents and places of items and of inner nodes; ``ValueError`` if it is not one."""
    (item_parent, item_bit), (parent, bit) = items, nodes
    number = len(parent)
    below = [*item_parent.tolist(), *parent[1:].tolist()]
    if not number or parent[0] != -1 or any(not 0 <= p < number for p in below):
        raise ValueError("a node's parent is missing")
    if (parent[1:] >= np.arange(1, number)).any() or (height[parent[1:]] != height[1:] + 1).any():
        raise ValueError("nodes do not come before what lies below them")
    if (height[item_parent] != 1).any():
        raise ValueError("an item lies below a node of another height than 1")
    inner = np.ones(number, dtype=np.int64)
    for node in range(number - 1, 0, -1):
        inner[parent[node]] += inner[node]
    found = _with_children(item_parent, item_bit, parent, bit, height, inner)
    places = np.concatenate((item_bit, bit[1:]))
    counted = np.bincount(below, weights=places, minlength=number)
    if (found.degree == 0).any() or (counted != found.degree * (found.degree - 1) // 2).any():
        raise ValueError("the children of a node are not numbered 0, 1, ..")
    return found


def _ranks(degrees: Ints, noise: Shuffler | None) -> Ints:
    """Places of a level's nodes in the order of expansion: by degree, at random among equals."""
    mixed = noise.permutation(len(degrees)) if noise is not None else np.arange(len(degrees))
    order = mixed[np.argsort(degrees[mixed], kind="stable")]
    ranks = np.empty(len(degrees), dtype=np.int64)
    ranks[order] = np.arange(len(degrees))
    return ranks


def _places(group: Ints) -> Ints:
    """The place of each member in its group; groups are runs."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group), dtype=np.int64) - starts[group]


def _with_children(item_parent: Ints, item_bit: Ints, parent: Ints, bit: Ints, height: Ints, inner: Ints) -> Taxonomy:
    parents = np.concatenate((item_parent, parent[1:]))
    bits = np.concatenate((item_bit, bit[1:]))
    names = np.concatenate((np.arange(len(item_parent)), np.arange(1, len(parent))))
    named = parents >= 0
    order = np.lexsort((bits[named], parents[named]))
    degree = np.bincount(parents[named], minlength=len(parent)).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(degree)))
    return Taxonomy(item_parent, item_bit, parent, bit, height, degree, inner, starts, names[named][order])
