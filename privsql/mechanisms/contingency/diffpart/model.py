"""What stands for pruned records: cells drawn from the published tree, at no cost in budget.

A record that a partition lost lies in one of the children that were not kept, in proportion to how records fall on
them wherever their parent is expanded; below that, columns are taken to be independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.contingency.diffpart.tree import positions
from privsql.mechanisms.noisytree import pruned
from privsql.mechanisms.noisytree.estimate import Estimator

if TYPE_CHECKING:
    from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.contingency.diffpart.tree import Tree
    from privsql.mechanisms.noisytree.pruned import Fit
    from privsql.mechanisms.noisytree.tree import Ints, Reals

MODEL_ERROR = 0.5  # as in ``privsql.mechanisms.noisytree.estimate``; larger, as the same marginals serve at every node


@dataclass(frozen=True)
class StandIns:
    """G cells: ``row`` (G,): the expanded row that each stands for; ``nodes`` (G, d); ``weight`` (G,)."""

    row: Ints
    nodes: Ints
    weight: Reals


def estimator(tree: Tree, taxonomy: Taxonomy) -> Estimator:
    """Sizes and model fitted to a tree."""
    above = taxonomy.parent[taxonomy.children]
    spread = taxonomy.below[taxonomy.children] / taxonomy.below[above]
    position = np.empty(len(taxonomy), dtype=np.int64)
    position[taxonomy.children] = np.arange(len(above))
    of_row = np.where(tree.node >= 0, position[tree.node], -1)
    candidates = pruned.Candidates(above, taxonomy.children, taxonomy.starts, of_row)
    return Estimator(tree, pruned.fit(tree, candidates, lambda _: spread), len(taxonomy), MODEL_ERROR)


def imputed(tree: Tree, taxonomy: Taxonomy, found: Fit, draw: np.random.Generator) -> StandIns:
    """At least one cell for every expanded row that may have lost records, more for those that lost more."""
    made = pruned.lost(tree, found, draw)
    nodes = positions(tree, taxonomy)[made.row]
    nodes[np.arange(len(nodes)), taxonomy.column[tree.next[made.row]]] = found.candidates.sub[made.candidate]
    for node in np.flatnonzero(taxonomy.height > 0)[::-1].tolist():  # parents first
        column = int(taxonomy.column[node])
        at = np.flatnonzero(nodes[:, column] == node)
        nodes[at, column] = found.candidates.sub[pruned.any_of(found, node, draw.random(len(at)))]
    return StandIns(made.row, nodes, made.weight)
