"""Which values meet in which bucket: from a plan to a layout, by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.groups.crossing import Pair
from privsql.mechanisms.bucketize.groups.dealing import across
from privsql.mechanisms.bucketize.layout.anatomy import largest_first
from privsql.mechanisms.bucketize.layout.blocks import in_blocks, in_one_block
from privsql.mechanisms.bucketize.layout.lumps import in_lumps
from privsql.mechanisms.bucketize.layout.pieces import Singles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.groups.families import Tree
    from privsql.mechanisms.bucketize.layout.pieces import Layout
    from privsql.mechanisms.bucketize.model import Bids, Ints, Plan
    from privsql.noise import Shuffler

LAYOUTS = ("blocks", "round-robin", "largest-first", "lumps")


def arrange(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[Tree] = ()) -> Layout:
    """The layout of a plan: a bucket of size S gets at most F_iS records of x_i.

    ``trees``: sets of values that are bounded, of which every bucket gets the floor or the ceiling of their mean.
    """
    found = largest_first(plan, noise) if layout == "largest-first" else None
    if found is not None:
        return found
    if len(trees) > 1:
        return _across(plan, Pair(*trees), noise)
    if layout == "lumps":
        return in_lumps(plan, noise)
    if layout == "round-robin":
        return in_one_block(plan, noise, lambda: _in_order(plan, trees, noise))
    return in_blocks(plan, noise, lambda: _at_random(plan, trees, noise))


def placed(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[Tree] = ()) -> Bids:
    """For each value in turn, the buckets of its records in uniformly random order (n,)."""
    return arrange(plan, layout, noise, trees).places(noise)


def _at_random(plan: Plan, trees: Sequence[Tree], noise: Shuffler) -> Ints:
    return trees[0].line(noise) if trees else np.asarray(noise.permutation(len(plan.allocation)))


def _in_order(plan: Plan, trees: Sequence[Tree], noise: Shuffler) -> Ints:
    return trees[0].line(noise) if trees else np.arange(len(plan.allocation))


def _across(plan: Plan, pair: Pair, noise: Shuffler) -> Singles:
    """The same where bounded sets cross each other."""
    values, bids, base = [], [], 0
    for j, buckets in enumerate(plan.setting.buckets):
        dealt = across(plan.allocation[:, j], buckets, pair, noise)
        values.append(dealt.values)
        bids.append(dealt.buckets + base)
        base += buckets
    order = np.argsort(np.concatenate(values), kind="stable")
    return Singles(np.concatenate(bids)[order].astype(np.int32), plan.allocation.sum(axis=1))
