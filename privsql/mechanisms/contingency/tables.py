"""A tree and its taxonomies as the tables of a release, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.mechanisms.contingency.taxonomy import Taxonomy, assembled
from privsql.mechanisms.contingency.tree import Tree, threshold
from privsql.mechanisms.noisytree.tables import coded, ints, scales, texts
from privsql.mechanisms.noisytree.tree import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.contingency.parameters import Contingency

TREE = [
    ("part", "INTEGER"), ("parent", "INTEGER"), ("node", "INTEGER"), ("expanded", "INTEGER"), ("choice", "VARCHAR"),
    ("size", "BIGINT"), ("budget", "VARCHAR"), ("scale", "DOUBLE"), ("threshold", "BIGINT"),
]  # fmt: skip
TAXONOMY = [("node", "INTEGER"), ("attribute", "INTEGER"), ("parent", "INTEGER"), ("value", "VARCHAR")]


def tree_table(tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> pa.Table:
    """``privsql_tree``: every partition with its noisy size, budgets, scale and threshold.

    ``node`` is the taxonomy node that distinguishes it from its parent, ``expanded`` the one at which it was divided
    (NULL for a cell), ``choice`` the budget of choosing that. The root was not counted.
    """
    root = np.arange(len(tree)) == 0
    return pa.table(
        {
            "part": pa.array(np.arange(len(tree)), pa.int32()),
            "parent": pa.array(tree.parent, pa.int32(), mask=root),
            "node": pa.array(tree.node, pa.int32(), mask=root),
            "expanded": pa.array(tree.next, pa.int32(), mask=tree.leaf),
            "choice": texts(tree.choice, tree.budgets),
            "size": pa.array(tree.size, pa.int64(), mask=root),
            "budget": texts(tree.spent, tree.budgets),
            "scale": scales(tree.spent, tree.budgets),
            "threshold": pa.array([None, *thresholds(tree, taxonomy, asked)], pa.int64()),
        }
    )


def thresholds(tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> list[int]:
    """The threshold of every row but the root."""
    degree = taxonomy.degree[tree.next[tree.parent[1:]]]
    different, kind = kinds(tree.spent[1:], degree, tree.leaf[1:])
    found = [threshold(asked, tree.budgets[s], d, last=bool(leaf)) for s, d, leaf in different]
    return [found[one] for one in kind.tolist()]


def read_tree(rows: pa.Table, taxonomy: Taxonomy) -> Tree:
    """A tree from ``privsql_tree``, by part; ``ValueError`` if it is not one over this taxonomy."""
    number = len(rows)
    codes, budgets = coded([*rows["budget"].to_pylist(), *rows["choice"].to_pylist()])
    tree = Tree(
        parent=ints(rows["parent"], -1),
        node=ints(rows["node"], -1),
        next=ints(rows["expanded"], -1),
        size=ints(rows["size"], 0),
        spent=codes[:number],
        choice=codes[number:],
        leaf=rows["expanded"].is_null().to_numpy(zero_copy_only=False),
        budgets=budgets,
    )
    if not number or not np.array_equal(ints(rows["part"], -1), np.arange(number)):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if tree.leaf[0] or tree.parent[0] != -1 or tree.node[0] != -1 or (tree.spent[1:] < 0).any():
        raise ValueError("it has no root, or a part without a budget")
    _grown(tree, taxonomy)
    return tree


def _grown(tree: Tree, taxonomy: Taxonomy) -> None:
    """``ValueError`` unless every part is a child of one that was expanded, parents in order."""
    parent, node = tree.parent[1:], tree.node[1:]
    if (np.diff(tree.parent) < 0).any() or (parent < 0).any() or (parent >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if tree.leaf[parent].any() or (tree.next >= len(taxonomy)).any() or (tree.next[~tree.leaf] < 0).any():
        raise ValueError("a part lies below a cell, or is expanded at no node")
    if (node < 0).any() or (node >= len(taxonomy)).any() or (taxonomy.parent[node] != tree.next[parent]).any():
        raise ValueError("a part's node is no child of the one at which its parent was expanded")
    if ((np.diff(parent) == 0) & (np.diff(node) <= 0)).any():
        raise ValueError("children of a part stand twice, or out of order")
    if (taxonomy.height[tree.next[~tree.leaf]] == 0).any():
        raise ValueError("a part is expanded at a value")


def taxonomy_table(taxonomy: Taxonomy, names: Sequence[str | None]) -> pa.Table:
    """``privsql_taxonomy``: nodes by column, children before parents; ``attribute`` is the column's number."""
    return pa.table(
        {
            "node": pa.array(np.arange(len(taxonomy)), pa.int32()),
            "attribute": pa.array(taxonomy.column, pa.int32()),
            "parent": pa.array(taxonomy.parent, pa.int32(), mask=taxonomy.parent < 0),
            "value": pa.array(names, pa.string()),
        }
    )


def read_taxonomy(rows: pa.Table) -> Taxonomy:
    """A taxonomy from ``privsql_taxonomy``, by node; ``ValueError`` if it is none."""
    if not np.array_equal(ints(rows["node"], -1), np.arange(len(rows))):
        raise ValueError("nodes are not numbered 0, 1, ..")
    return assembled(ints(rows["attribute"], -1), ints(rows["parent"], -1))
