"""What the pruned sub-partitions hold: a model of how each taxonomy node is expanded, pooled over all its expansions.

In every expansion of node u a record's mask is taken to have the same distribution pi_u, so the records that a row lost
fall on the masks that it did not keep, in proportion to pi_u. Masks that one row pruned are known from rows that kept
them (quasi-independence in a table of rows x masks with the pruned cells missing; fitted by expectation maximization).
Everything here is computed from the published tree, so it spends no budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.setvalued.consistent import Consistent, Remainder, consistent, noise_variance
from privsql.mechanisms.setvalued.selection import squared_error

if TYPE_CHECKING:
    from privsql.mechanisms.setvalued.taxonomy import Ints, Taxonomy
    from privsql.mechanisms.setvalued.tree import Tree

Reals = NDArray[np.float64]
ITERATIONS = 20
DOUBT = 1.0  # standard deviation of a remainder's prior, as a part of its mean
NEGLIGIBLE = 1e-9
ANYWHERE = 1.0  # records per node that the product of the children's frequencies spreads over its candidate masks


@dataclass(frozen=True)
class Masks:
    """Candidate masks, by node: those that some row kept, and all of one or two children.

    ``node``, ``mask`` (M,), sorted; ``starts`` (K+1,): the first of each node. ``of_row`` (T,): the candidate that a
    row is, -1 for the root.
    """

    node: Ints
    mask: Ints
    starts: Ints
    of_row: Ints


@dataclass(frozen=True)
class Fit:
    """Consistent sizes and the model: ``frequency`` (M,), expected records by candidate over all rows of its node."""

    masks: Masks
    frequency: Reals
    sizes: Consistent


def candidates(tree: Tree, taxonomy: Taxonomy) -> Masks:
    """All masks that the model knows of."""
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
    return Masks(node, keys & 0xFFFFFFFF, np.searchsorted(node, np.arange(taxonomy.nodes + 1)), of_row)


def fit(tree: Tree, taxonomy: Taxonomy) -> Fit:
    """Sizes and model, each improved by the other."""
    masks, own = candidates(tree, taxonomy), noise_variance(tree)
    size = np.maximum(tree.size, 0).astype(np.float64)
    size[0] = size[tree.parent == 0].sum()
    frequency = _kept(masks, size)
    for _ in range(ITERATIONS):
        frequency = frequency + ANYWHERE * _product(masks, frequency, taxonomy)
        error = np.maximum(own, _selected(tree, masks, frequency, size))
        sizes = consistent(tree, error, expected(tree, masks, frequency, size))
        size = np.maximum(sizes.size, 0)
        frequency = _kept(masks, size) + _lost(tree, masks, frequency, np.maximum(sizes.remainder, 0))
    return Fit(masks, frequency, sizes)


def unkept(tree: Tree, masks: Masks, frequency: Reals) -> tuple[Reals, Reals]:
    """By row: frequency of the masks that it did not keep, and of all masks of its node."""
    of_node = np.add.reduceat(np.append(frequency, 0.0), masks.starts[:-1])
    everything = np.where(tree.leaf, 0.0, of_node[tree.next])
    kept = np.bincount(tree.parent[1:], weights=frequency[masks.of_row[1:]], minlength=len(tree))
    return np.maximum(everything - kept, 0.0), everything


def expected(tree: Tree, masks: Masks, frequency: Reals, size: Reals) -> Remainder:
    """Prior of what each row lost: its size times the share of the masks that it did not keep."""
    missing, everything = unkept(tree, masks, frequency)
    mean = np.divide(size * missing, everything, out=np.zeros(len(tree)), where=everything > 0)
    return Remainder(mean, (DOUBT * mean) ** 2 + mean + 1)


def _selected(tree: Tree, masks: Masks, frequency: Reals, size: Reals) -> Reals:
    """Squared error of the leaves' noisy sizes, (T,), as ``selection`` has it; 0 for other rows."""
    leaf = np.flatnonzero(tree.leaf)
    _, everything = unkept(tree, masks, frequency)
    above, own = tree.parent[leaf], frequency[masks.of_row[leaf]]
    # Without what the leaf itself has brought into the model.
    others = np.maximum(own - np.maximum(tree.size[leaf], 0), 0.0)
    scale = size[above] * others / np.maximum(everything[above], 1.0)
    budget = np.array([float(one) for one in tree.budgets])[tree.spent[leaf]]
    found = np.zeros(len(tree))
    found[leaf] = squared_error(tree.size[leaf], budget, scale)
    return found


def _kept(masks: Masks, size: Reals) -> Reals:
    """Records by candidate, over all rows that kept it."""
    return np.bincount(masks.of_row[1:], weights=size[1:], minlength=len(masks.mask)).astype(np.float64)


def _lost(tree: Tree, masks: Masks, frequency: Reals, lost: Reals) -> Reals:
    """Expected records by candidate, over all rows that did not keep it and lost ``lost`` (T,) together."""
    missing, _ = unkept(tree, masks, frequency)
    rate = np.divide(lost, missing, out=np.zeros(len(tree)), where=missing > NEGLIGIBLE)
    inner = np.flatnonzero(~tree.leaf)
    of_node = np.bincount(tree.next[inner], weights=rate[inner], minlength=len(masks.starts) - 1)
    kept = np.bincount(masks.of_row[1:], weights=rate[tree.parent[1:]], minlength=len(masks.mask))
    found: Reals = frequency * np.maximum(of_node[masks.node] - kept, 0.0)
    return found


def _product(masks: Masks, frequency: Reals, taxonomy: Taxonomy) -> Reals:
    """Distribution over each node's candidates if its children came independently of each other."""
    number = taxonomy.nodes
    total = np.bincount(masks.node, weights=frequency, minlength=number) + 2.0
    weight = np.ones(len(masks.mask))
    for place in range(int(taxonomy.degree.max())):
        has = masks.mask >> place & 1 == 1
        among = np.bincount(masks.node[has], weights=frequency[has], minlength=number)
        chance = ((among + 1.0) / total)[masks.node]
        weight *= np.where(has, chance, np.where(taxonomy.degree[masks.node] > place, 1 - chance, 1.0))
    found: Reals = weight / np.bincount(masks.node, weights=weight, minlength=number)[masks.node]
    return found
