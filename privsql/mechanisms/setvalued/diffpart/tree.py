"""DiffPart: top-down partitioning of set-valued records under a budget (paper, Algorithm 1 and Procedure 1).

All partitions that are not item sets yet take one expansion together, in arrays; the number of rounds is at most the
number of inner nodes. A round touches the occupied sub-partitions and the few empty ones that pass, never the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.mechanisms.noisytree import tree as noisytree
from privsql.mechanisms.noisytree.budget import Budgets
from privsql.mechanisms.noisytree.tree import expanded
from privsql.mechanisms.setvalued.diffpart.budget import threshold
from privsql.mechanisms.setvalued.diffpart.expand import Children, Front, Run, expand
from privsql.mechanisms.setvalued.diffpart.records import generalize

if TYPE_CHECKING:
    from privsql.dpnoise import CountNoise
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.mechanisms.setvalued.diffpart.records import Baskets
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.parameters import SetValued
    from privsql.noise import Chooser

LARGEST_TREE = 5_000_000  # partitions; thresholds that let more than that pass are a mistake
NONE, ZERO = np.array([-1], dtype=np.int64), np.array([0], dtype=np.int64)
COLUMNS = ("parent", "mask", "size", "spent", "leaf")  # of ``Children``
ROOT = Children(parent=NONE, mask=ZERO, size=ZERO, spent=NONE, leaf=np.array([False]))


@dataclass(frozen=True, kw_only=True)
class Tree(noisytree.Tree):
    """The hierarchy cut of a leaf holds items only. ``mask`` (T,): which children of the parent's ``next`` replaced it,
    as bits by place; rows of one parent are in the order of their masks. ``empty``: noisy number of records without
    items, counted with the whole budget; None if it is below its threshold.
    """

    mask: Ints
    empty: int | None


def partition(baskets: Baskets, taxonomy: Taxonomy, asked: SetValued, noise: CountNoise, choose: Chooser) -> Tree:
    """The noisy tree of a table of item sets; epsilon-differentially private for one record added or removed.

    A record lies in one partition of every round, so the counts of a round compose in parallel and a path spends the
    sum of its budgets, at most epsilon (``budget``). Thresholds, budgets and the order of expansion depend on no data,
    and an empty sub-partition is kept with the probability that it would have if it were counted.

    Raises ``InfeasibleError`` if the thresholds let millions of partitions pass.
    """
    budgets = Budgets()
    run = Run(baskets.weights, generalize(baskets, taxonomy), taxonomy, asked, budgets, noise, choose)
    front, kept, rows = Front.of_root(run), [ROOT], 1
    order: list[Ints] = []
    while len(front):
        order.append(front.node)
        children, moves = expand(front, run)
        kept.append(children)
        if rows + len(children) > LARGEST_TREE:
            raise InfeasibleError(
                f"more than {LARGEST_TREE:,} partitions pass their thresholds; raise c1 and c2, or lower tau"
            )
        front = front.following(children, moves, rows, taxonomy)
        rows += len(children)
    columns = {name: np.concatenate([getattr(part, name) for part in kept]) for name in COLUMNS}
    empty = without_items(baskets.empty, asked, noise)
    return Tree(next=expanded(columns["leaf"], order), budgets=tuple(budgets.values), empty=empty, **columns)


def without_items(number: int, asked: SetValued, noise: CountNoise) -> int | None:
    """Records without items are a partition of their own, disjoint from the root's: the whole budget is theirs."""
    least = threshold(asked, asked.epsilon, degree=1, height=1, last=True, nodes=1)
    noisy = int(noise.noisy(np.array([number], dtype=np.int64), asked.epsilon)[0])
    return noisy if noisy >= least else None


def item_sets(tree: Tree, rows: Ints, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """Items in the hierarchy cuts of some rows, as (index into ``rows``, item) pairs, sorted.

    Of a leaf these are its item set; of another row the items that all of its records are known to have.
    """
    which, items = [rows[:0]], [rows[:0]]
    of, at = np.arange(len(rows), dtype=np.int64), rows
    while len(at):
        above = tree.parent[at]
        of, at, above = of[above >= 0], at[above >= 0], above[above >= 0]
        place, item = taxonomy.named(tree.next[above], tree.mask[at], low=True)
        which.append(of[place])
        items.append(item)
        at = above
    first, second = np.concatenate(which), np.concatenate(items)
    order = np.lexsort((second, first))
    return first[order], second[order]
