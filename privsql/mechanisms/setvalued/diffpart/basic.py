"""The baseline: noise on the count of every one of the 2^I - 1 item sets (paper, section 4.1). Tiny universes only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.mechanisms.setvalued.diffpart.records import generalize
from privsql.mechanisms.setvalued.diffpart.taxonomy import grow
from privsql.mechanisms.setvalued.diffpart.tree import Tree, without_items
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE

if TYPE_CHECKING:
    from privsql.dpnoise import CountNoise
    from privsql.mechanisms.setvalued.diffpart.records import Baskets
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.parameters import SetValued
    from privsql.noise import Shuffler


def flat(items: int, noise: Shuffler | None) -> Taxonomy:
    """The taxonomy of one inner node; ``InfeasibleError`` if the universe is not tiny."""
    if items > TINY_UNIVERSE:
        raise InfeasibleError(
            f"algorithm 'basic' counts every set of items, 2^{items} of them; "
            f"it takes at most {TINY_UNIVERSE} items, 'diffpart' takes any number"
        )
    return grow(items, max(items, 2), noise)


def count_all(baskets: Baskets, taxonomy: Taxonomy, asked: SetValued, noise: CountNoise) -> Tree:
    """A tree of the root and all item sets with their noisy counts, whatever these are; epsilon for each."""
    number = 2**taxonomy.items
    masks = generalize(baskets, taxonomy).masks
    counts = np.bincount(masks, weights=baskets.weights, minlength=number)[1:].astype(np.int64)
    row = np.arange(number, dtype=np.int64)
    return Tree(
        parent=np.where(row > 0, 0, -1),
        mask=row,
        size=np.append(np.int64(0), noise.noisy(counts, asked.epsilon)),
        spent=np.where(row > 0, 0, -1),
        leaf=row > 0,
        next=np.where(row > 0, -1, 0),
        budgets=(asked.epsilon,),
        empty=without_items(baskets.empty, asked, noise),
    )
