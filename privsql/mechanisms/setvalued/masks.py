"""The model of pruned records for item sets: which masks it knows of (``privsql.mechanisms.noisytree.pruned``)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.noisytree import pruned
from privsql.mechanisms.noisytree.estimate import Estimator
from privsql.mechanisms.noisytree.pruned import Candidates

if TYPE_CHECKING:
    from privsql.mechanisms.setvalued.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.tree import Tree

Reals = NDArray[np.float64]


def estimator(tree: Tree, taxonomy: Taxonomy) -> Estimator:
    """Sizes and model fitted to a tree."""
    masks = candidates(tree, taxonomy)
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
