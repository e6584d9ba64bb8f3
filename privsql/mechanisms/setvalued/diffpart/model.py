"""What was pruned (``privsql.mechanisms.noisytree.pruned``): the masks that the model knows of, and what stands for it.

Item sets drawn from the model stand for the records of pruned partitions. They are made from the published tree alone,
so they spend no budget, and give every question about items, however it is put, an answer that includes the mass lost
by pruning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytree import pruned
from privsql.mechanisms.noisytree.estimate import Estimator
from privsql.mechanisms.noisytree.pruned import Candidates
from privsql.mechanisms.noisytree.tree import rounds
from privsql.mechanisms.setvalued.diffpart.tree import item_sets
from privsql.model.arrays import zeros

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.pruned import Fit
    from privsql.mechanisms.noisytree.tree import Flags, Ints, Reals
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.diffpart.tree import Tree


def estimator(tree: Tree, taxonomy: Taxonomy, *, pruning: bool = True) -> Estimator:
    """Sizes and model fitted to a tree; without ``pruning`` every set is in it, whatever its count was."""
    masks = candidates(tree, taxonomy)
    if not pruning:
        return Estimator(tree, pruned.fit_of_all(tree, masks), taxonomy.nodes)
    return Estimator(tree, pruned.fit(tree, masks, partial(_product, masks, taxonomy)), taxonomy.nodes)


def candidates(tree: Tree, taxonomy: Taxonomy) -> Candidates:
    """The masks that some row kept, and all of one or two children."""
    wide = np.int64(32)
    rows = np.arange(1, len(tree))
    kept = tree.next[tree.parent[rows]] << wide | tree.mask[rows]
    extra = [kept]
    for degree in np.unique(taxonomy.degree).tolist():
        nodes = np.flatnonzero(taxonomy.degree == degree)
        ones = np.int64(1) << np.arange(degree, dtype=np.int64)
        few = np.unique(ones[:, None] | ones[None, :])
        extra.append((nodes[:, None] << wide | few[None, :]).reshape(-1))
    keys = np.unique(np.concatenate(extra))
    of_row = np.full(len(tree), -1, dtype=np.int64)
    of_row[rows] = np.searchsorted(keys, kept)
    node = keys >> wide
    return Candidates(node, keys & 0xFFFFFFFF, np.searchsorted(node, np.arange(taxonomy.nodes + 1)), of_row)


def _product(masks: Candidates, taxonomy: Taxonomy, frequency: Reals) -> Reals:
    """Distribution over each node's candidates if its children came independently of each other."""
    number = taxonomy.nodes
    total = np.bincount(masks.node, weights=frequency, minlength=number) + 2.0
    weight = np.ones(len(masks.sub))
    for place in range(int(taxonomy.degree.max())):
        has = masks.sub >> place & 1 == 1
        among = np.bincount(masks.node[has], weights=frequency[has], minlength=number)
        chance = ((among + 1.0) / total)[masks.node]
        weight *= np.where(has, chance, np.where(taxonomy.degree[masks.node] > place, 1 - chance, 1.0))
    found: Reals = weight / np.bincount(masks.node, weights=weight, minlength=number)[masks.node]
    return found


@dataclass(frozen=True)
class Imputed:
    """G sets: ``row`` (G,): the expanded row that each stands for, ascending; items as sorted (set, item) pairs.

    ``weight`` (G,): as of ``Lost``.
    """

    row: Ints
    weight: Reals
    which: Ints
    item: Ints


@dataclass
class _Drawing:
    """Sets in the making: inner nodes that are still to be replaced, (G, K), and the items so far."""

    pending: Flags
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
    made = pruned.lost(tree, found, draw)
    rows, owner = np.unique(made.row, return_inverse=True)
    sets = _Drawing(_pending(tree, taxonomy)[made.row], *_repeated(*item_sets(tree, rows, taxonomy), owner))
    sets.take(np.arange(len(owner)), tree.next[made.row], found.candidates.sub[made.candidate], taxonomy)
    for node in range(taxonomy.nodes):
        at = np.flatnonzero(sets.pending[:, node])
        chosen = pruned.any_of(found, node, draw.random(len(at)))
        sets.take(at, np.full(len(at), node), found.candidates.sub[chosen], taxonomy)
    which, item = np.concatenate(sets.which), np.concatenate(sets.item)
    order = np.lexsort((item, which))
    return Imputed(made.row, made.weight, which[order], item[order])


def _pending(tree: Tree, taxonomy: Taxonomy) -> Flags:
    """Inner nodes of every row's hierarchy cut, (T, K)."""
    found = zeros(len(tree), taxonomy.nodes, dtype=bool)
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
