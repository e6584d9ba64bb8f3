"""A tree and its taxonomy as the tables of a release, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.mechanisms.noisytree.tables import coded, ints, scales, texts
from privsql.mechanisms.noisytree.tree import kinds
from privsql.mechanisms.setvalued.budget import threshold
from privsql.mechanisms.setvalued.taxonomy import Taxonomy, rebuilt
from privsql.mechanisms.setvalued.tree import Tree

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.mechanisms.setvalued.parameters import SetValued

WITHOUT = -1  # the part of the records without items, which lie outside the tree
TREE = [
    ("part", "INTEGER"), ("parent", "INTEGER"), ("mask", "BIGINT"), ("node", "INTEGER"), ("size", "BIGINT"),
    ("budget", "VARCHAR"), ("scale", "DOUBLE"), ("threshold", "BIGINT"),
]  # fmt: skip
TAXONOMY = [("node", "INTEGER"), ("parent", "INTEGER"), ("place", "INTEGER"), ("height", "INTEGER")]


def tree_table(tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> pa.Table:
    """``privsql_tree``: every partition with its noisy size, budget, scale and threshold.

    ``node`` is where it is expanded (NULL for an item set), ``mask`` which children of its parent's node it has. The
    root was not counted.
    """
    counted = np.arange(len(tree)) > 0
    return pa.table(
        {
            "part": pa.array(np.arange(len(tree)), pa.int32()),
            "parent": pa.array(tree.parent, pa.int32(), mask=~counted),
            "mask": pa.array(tree.mask, pa.int64()),
            "node": pa.array(tree.next, pa.int32(), mask=tree.leaf),
            "size": pa.array(tree.size, pa.int64(), mask=~counted),
            "budget": texts(tree.spent, tree.budgets),
            "scale": scales(tree.spent, tree.budgets),
            "threshold": pa.array([None, *thresholds(tree, taxonomy, asked)], pa.int64()),
        }
    )


def thresholds(tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[int | None]:
    """The threshold of every row but the root; None where every count is published."""
    if asked.algorithm == "basic":
        return [None] * (len(tree) - 1)
    node = tree.next[tree.parent[1:]]
    different, kind = kinds(tree.spent[1:], taxonomy.degree[node], taxonomy.height[node], tree.leaf[1:])
    found = [
        threshold(asked, tree.budgets[s], degree=d, height=h, last=bool(leaf), nodes=taxonomy.nodes)
        for s, d, h, leaf in different
    ]
    return [found[one] for one in kind.tolist()]


def read_tree(rows: pa.Table, taxonomy: Taxonomy, empty: int | None) -> Tree:
    """A tree from ``privsql_tree``, by part; ``ValueError`` if it is not one over this taxonomy."""
    spent, budgets = coded(rows["budget"].to_pylist())
    tree = Tree(
        parent=ints(rows["parent"], -1),
        mask=ints(rows["mask"], 0),
        size=ints(rows["size"], 0),
        spent=spent,
        leaf=rows["node"].is_null().to_numpy(zero_copy_only=False),
        next=ints(rows["node"], -1),
        budgets=budgets,
        empty=empty,
    )
    if not np.array_equal(ints(rows["part"], -1), np.arange(len(tree))):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if not len(tree) or tree.leaf[0] or tree.next[0] != 0 or tree.parent[0] != -1 or (tree.spent[1:] < 0).any():
        raise ValueError("it has no root, or a part without a budget")
    _grown(tree, taxonomy)
    return tree


def _grown(tree: Tree, taxonomy: Taxonomy) -> None:
    """``ValueError`` unless every part is a child of one that was expanded, parents in order."""
    parent = tree.parent[1:]
    if (np.diff(tree.parent) < 0).any() or (parent < 0).any() or (parent >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if tree.leaf[parent].any() or (tree.next >= taxonomy.nodes).any() or (tree.next[~tree.leaf] < 0).any():
        raise ValueError("a part lies below an item set, or is expanded at no node")
    if (tree.mask[1:] < 1).any() or (tree.mask[1:] >> taxonomy.degree[tree.next[parent]] > 0).any():
        raise ValueError("a mask names no children of its node")


def taxonomy_table(taxonomy: Taxonomy) -> pa.Table:
    """``privsql_taxonomy``: the inner nodes in the order of expansion."""
    is_root = np.arange(taxonomy.nodes) == 0
    return pa.table(
        {
            "node": pa.array(np.arange(taxonomy.nodes), pa.int32()),
            "parent": pa.array(taxonomy.parent, pa.int32(), mask=is_root),
            "place": pa.array(taxonomy.bit, pa.int32(), mask=is_root),
            "height": pa.array(taxonomy.height, pa.int32()),
        }
    )


def read_taxonomy(nodes: pa.Table, items: pa.Table) -> Taxonomy:
    """A taxonomy from ``privsql_taxonomy`` and ``privsql_universe``; ``ValueError`` if it is not one."""
    return rebuilt(
        (ints(items["node"], -1), ints(items["place"], -1)),
        (ints(nodes["parent"], -1), ints(nodes["place"], -1)),
        ints(nodes["height"], 0),
    )


def lists(which: Ints, codes: Ints, number: int, items: pa.Array) -> pa.ListArray:
    """Sets as lists of items: pairs (set, code), sorted, of ``number`` sets."""
    offsets = np.searchsorted(which, np.arange(number + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(codes)))
