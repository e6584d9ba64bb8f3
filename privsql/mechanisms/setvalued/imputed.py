"""Item sets that stand for the records of pruned partitions, drawn from the model of ``pruned``.

They are made from the published tree alone, so they spend no budget, and give every question about items, however it
is put, an answer that includes the mass lost by pruning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.noisytree.consistent import rounds
from privsql.mechanisms.noisytree.pruned import any_of, copies, unkept_at
from privsql.mechanisms.setvalued.tree import item_sets

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.pruned import Fit
    from privsql.mechanisms.setvalued.taxonomy import Ints, Taxonomy
    from privsql.mechanisms.setvalued.tree import Tree

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Imputed:
    """G sets: ``row`` (G,): the expanded row that each stands for, ascending; items as sorted (set, item) pairs.

    A row's remainder is shared equally among its sets: ``weight`` (G,), which may be negative where the noise is.
    """

    row: Ints
    weight: Reals
    which: Ints
    item: Ints


@dataclass
class _Drawing:
    """Sets in the making: inner nodes that are still to be replaced, (G, K), and the items so far."""

    pending: NDArray[np.bool_]
    which: list[Ints]
    item: list[Ints]

    def take(self, at: Ints, node: Ints, mask: Ints, taxonomy: Taxonomy) -> None:
        """Replace a node of each set in ``at`` by children."""
        self.pending[at, node] = False
        place, item = taxonomy.named(node, mask, low=True)
        self.which.append(at[place])
        self.item.append(item)
        place, inner = taxonomy.named(node, mask, low=False)
        self.pending[at[place], inner] = True


def impute(tree: Tree, taxonomy: Taxonomy, found: Fit, draw: np.random.Generator) -> Imputed:
    """At least one set for every expanded row that may have lost records, more for those that lost more."""
    rows, number, missing = copies(tree, found)
    row = np.repeat(rows, number)
    owner = np.repeat(np.arange(len(rows)), number)
    sets = _Drawing(pending(tree, taxonomy)[row], *_repeated(*item_sets(tree, rows, taxonomy), owner))
    first = unkept_at(tree, found, row, draw.random(len(row)) * missing[row])
    sets.take(np.arange(len(row)), tree.next[row], found.candidates.sub[first], taxonomy)
    for node in range(taxonomy.nodes):
        at = np.flatnonzero(sets.pending[:, node])
        chosen = any_of(found, node, draw.random(len(at)))
        sets.take(at, np.full(len(at), node), found.candidates.sub[chosen], taxonomy)
    which, item = np.concatenate(sets.which), np.concatenate(sets.item)
    order = np.lexsort((item, which))
    return Imputed(row, found.sizes.remainder[row] / number[owner], which[order], item[order])


def pending(tree: Tree, taxonomy: Taxonomy) -> NDArray[np.bool_]:
    """Inner nodes of every row's hierarchy cut, (T, K)."""
    found = np.zeros((len(tree), taxonomy.nodes), dtype=bool)
    found[0, 0] = True
    for depth in rounds(tree)[1:]:
        rows = depth[~tree.leaf[depth]]
        above = tree.parent[rows]
        found[rows] = found[above]
        found[rows, tree.next[above]] = False
        place, inner = taxonomy.named(tree.next[above], tree.mask[rows], low=False)
        found[rows[place], inner] = True
    return found


def _repeated(which: Ints, item: Ints, owner: Ints) -> tuple[list[Ints], list[Ints]]:
    """The items of sets ``owner``, as pairs with the position in ``owner``; ``which`` is sorted."""
    first, end = np.searchsorted(which, owner), np.searchsorted(which, owner + 1)
    length = end - first
    start = np.repeat(first - (np.cumsum(length) - length), length)
    return [np.repeat(np.arange(len(owner)), length)], [item[start + np.arange(int(length.sum()))]]
