"""Sizes that agree with each other: every noisy size of the tree and a prior for what was pruned, by least squares.

Of each partition that was expanded the unknowns are the sizes of the children that were kept and one more, the records
of all pruned children together. Children and remainder add up to their parent. With independent noise of known variance
the least-squares estimate is found in two passes (Hay, Rastogi, Miklau, Suciu, PVLDB 2010, for unequal variances):
upwards every row combines its own noisy size with the sum of what lies below it, downwards the difference between a
parent and that sum is shared among children and remainder in proportion to their variances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.dpnoise import variance_of
from privsql.mechanisms.noisytree.tree import rounds

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.tree import Ints, Reals, Tree

UNKNOWN = 1e18  # variance of a size that was not counted


@dataclass(frozen=True)
class Remainder:
    """Prior for the records of the pruned children of each row, (T,): mean and variance; of no meaning for leaves."""

    mean: Reals
    variance: Reals


@dataclass(frozen=True)
class Consistent:
    """Estimated sizes (T,) and remainders (T,) that add up, and what the variance of a sum of them takes.

    ``below``: variance of a row's size from what lies below it alone (its own count for a leaf); ``total``: sum of the
    variances of children and remainder of an expanded row; ``left``: variance of its remainder's prior;
    ``size_variance``: of the root's size.
    """

    size: Reals
    remainder: Reals
    below: Reals
    total: Reals
    left: Reals
    root_variance: float


def noise_variance(tree: Tree) -> Reals:
    """Variance of each row's noisy size, (T,); ``UNKNOWN`` for the root, which spent nothing: its code is -1."""
    found: Reals = np.array([*(variance_of(budget) for budget in tree.budgets), UNKNOWN])[tree.spent]
    return found


def consistent(tree: Tree, own: Reals, prior: Remainder) -> Consistent:
    """Both passes; O(T). ``own`` is ``noise_variance``."""
    size, below = tree.size.astype(np.float64), own.copy()
    sums = np.where(tree.leaf, 0.0, prior.mean)
    total = np.where(tree.leaf, 0.0, prior.variance)
    levels = rounds(tree)
    for rows in reversed(levels):
        inner = rows[~tree.leaf[rows]]
        weight = own[inner] / (own[inner] + total[inner])  # of the sum
        size[inner] += weight * (sums[inner] - size[inner])
        below[inner] = total[inner] * weight
        np.add.at(sums, tree.parent[rows[rows > 0]], size[rows[rows > 0]])
        np.add.at(total, tree.parent[rows[rows > 0]], below[rows[rows > 0]])
    remainder, share = np.zeros(len(tree)), np.zeros(len(tree))
    for rows in levels:
        inner = rows[~tree.leaf[rows]]
        gap = (size[inner] - sums[inner]) / total[inner]
        remainder[inner] = prior.mean[inner] + prior.variance[inner] * gap
        share[inner] = gap
        following = _children(tree, rows)
        size[following] += below[following] * share[tree.parent[following]]
    return Consistent(size, remainder, below, total, np.where(tree.leaf, 0.0, prior.variance), float(below[0]))


def _children(tree: Tree, rows: Ints) -> Ints:
    first, end = np.searchsorted(tree.parent, [rows[0], rows[-1] + 1])
    return np.arange(first, end)


def functional(tree: Tree, found: Consistent, leaf: Reals, pruned: Reals) -> tuple[float, float]:
    """Estimate and variance of a sum: of leaves with share ``leaf``, of remainders with share ``pruned``, both (T,).

    Given the size S of a row, the sum below it is a + b*S with variance w; upwards, over children and remainder,
    b = sum v_i b_i / sum v_i, and w gains sum v_i b_i^2 - (sum v_i b_i)^2 / sum v_i.
    """
    slope, spread = np.where(tree.leaf, leaf, 0.0), np.zeros(len(tree))
    first = np.where(tree.leaf, 0.0, found.left * pruned)
    second = first * pruned
    for rows in reversed(rounds(tree)):
        inner = rows[~tree.leaf[rows]]
        slope[inner] = first[inner] / found.total[inner]
        spread[inner] += second[inner] - first[inner] * slope[inner]
        up = rows[rows > 0]
        above = tree.parent[up]
        np.add.at(first, above, found.below[up] * slope[up])
        np.add.at(second, above, found.below[up] * slope[up] ** 2)
        np.add.at(spread, above, spread[up])
    estimate = float(leaf[tree.leaf] @ found.size[tree.leaf] + pruned[~tree.leaf] @ found.remainder[~tree.leaf])
    return estimate, float(spread[0] + slope[0] ** 2 * found.root_variance)
