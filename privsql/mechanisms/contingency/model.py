"""What stands for pruned records: cells drawn from the published tree, at no cost in budget.

A record that a partition lost lies in one of the children that were not kept, in proportion to how records fall on
them wherever their parent is expanded; below that, columns are taken to be independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.contingency.tree import positions
from privsql.mechanisms.noisytree import pruned
from privsql.mechanisms.noisytree.estimate import Estimator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.mechanisms.contingency.taxonomy import Ints, Taxonomy
    from privsql.mechanisms.contingency.tree import Tree
    from privsql.mechanisms.noisytree.pruned import Fit

MODEL_ERROR = 0.5  # as in ``privsql.mechanisms.noisytree.estimate``; larger, as the same marginals serve at every node


@dataclass(frozen=True)
class StandIns:
    """G cells: ``row`` (G,): the expanded row that each stands for, ascending; ``nodes`` (G, d); ``weight`` (G,)."""

    row: Ints
    nodes: Ints
    weight: NDArray[np.float64]


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
    rows, number, missing = pruned.copies(tree, found)
    row = np.repeat(rows, number)
    nodes = positions(tree, taxonomy)[row]
    each = np.arange(len(row))
    first = pruned.unkept_at(tree, found, row, draw.random(len(row)) * missing[row])
    nodes[each, taxonomy.column[tree.next[row]]] = found.candidates.sub[first]
    for node in np.flatnonzero(taxonomy.height > 0)[::-1].tolist():  # parents first
        column = int(taxonomy.column[node])
        at = np.flatnonzero(nodes[:, column] == node)
        nodes[at, column] = found.candidates.sub[pruned.any_of(found, node, draw.random(len(at)))]
    weight = found.sizes.remainder[row] / np.repeat(number, number)
    return StandIns(row, nodes, weight)
