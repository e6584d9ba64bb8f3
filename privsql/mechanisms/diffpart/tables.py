"""Write a partition tree and its taxonomy as tables, read them back, and describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.dp_random import deviation_of, noise_scale
from privsql.engine.sqlfiles import Field, all_rows, column, table
from privsql.exact import fraction_text
from privsql.mechanisms.diffpart.tree import Ints, PartitionTree, Taxonomy, make_taxonomy
from privsql.mechanisms.dp.tables import parse_budget, write_release_table
from privsql.mechanisms.views.tables import TABLES, UNIVERSE
from privsql.model.explanations import Structure, make_structure
from privsql.model.tables import SENSITIVE, SETS, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued

# Tables ---------------------------------------------------------------------------------------------------------------
# A tree is published as a table of partitions, one of taxonomy nodes, and one of leaves with their ``part`` and
# ``count``.

TREE, TAXONOMY = "privsql_tree", "privsql_taxonomy"
TREE_TABLES = {
    TREE: ReleaseTable(
        (
            *("part INTEGER", "parent INTEGER", "branch BIGINT", "node INTEGER", "choice VARCHAR", "size BIGINT"),
            *("budget VARCHAR", "scale DOUBLE", "threshold BIGINT"),
        )
    ),
    TAXONOMY: ReleaseTable(("node INTEGER", "attribute INTEGER", "parent INTEGER", "value VARCHAR")),
}
SET_TABLES = {
    "itemsets": ReleaseTable(("part INTEGER", SETS, "count BIGINT")),
    UNIVERSE: TABLES[UNIVERSE],
    **TREE_TABLES,
}
CELL_TABLES = {"cells": ReleaseTable(("part INTEGER", SENSITIVE, "count BIGINT")), **TREE_TABLES}
TREE_ORDERS = {"tree": ["part"], "taxonomy": ["node"]}


def write_tree(db: Relations, tree: PartitionTree, taxonomy: Taxonomy, names: Sequence[str | None]) -> None:
    """Write a partition tree into the release as ``privsql_tree``, and its taxonomy as ``privsql_taxonomy``.

    ``privsql_tree`` has every partition of the records with its noisy size, budget, scale of noise and threshold.
    ``branch`` says which part of its parent it is. ``node`` is the taxonomy node at which it is divided, NULL for a
    leaf. ``choice`` is the budget of choosing that node.

    Args:
        db: Where the release is made.
        tree: The tree.
        taxonomy: The taxonomy that divides its partitions.
        names: The name of every node; None for a node without one.
    """
    root, budgets = np.arange(len(tree)) == 0, [fraction_text(one) for one in tree.budgets]

    def by_code(codes: Ints, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(codes, mask=codes < 0))

    rows = {
        "part": pa.array(np.arange(len(tree)), pa.int32()),
        "parent": pa.array(tree.parent, pa.int32(), mask=root),
        "branch": pa.array(tree.branch, pa.int64(), mask=root),
        "node": pa.array(tree.next, pa.int32(), mask=tree.leaf),
        "choice": by_code(tree.choice, budgets, pa.string()),
        "size": pa.array(tree.size, pa.int64(), mask=root),
        "budget": by_code(tree.spent, budgets, pa.string()),
        "scale": by_code(tree.spent, [noise_scale(one) for one in tree.budgets], pa.float64()),
        "threshold": pa.array(tree.threshold, pa.int64(), mask=root),
    }
    write_release_table(db, TREE, pa.table(rows))
    write_release_table(db, TAXONOMY, list_nodes(taxonomy, names))


def read_tree(rows: pa.Table, taxonomy: Taxonomy) -> PartitionTree:
    """Read the tree of partitions from the rows of ``privsql_tree``, ordered by ``part`` (the number of the partition).

    Raises:
        ValueError: The rows do not make one tree over this taxonomy.
    """
    parent, branch, node = (as_integers(rows[name], -1) for name in ("parent", "branch", "node"))
    stated = [rows[name].to_pylist() for name in ("budget", "choice")]
    codes = {
        text: code for code, text in enumerate(dict.fromkeys(one for part in stated for one in part if one is not None))
    }
    spent, choice = (np.array([codes.get(one, -1) for one in part], dtype=np.int64) for part in stated)
    budgets = tuple(map(parse_budget, codes))
    tree = PartitionTree(
        parent=parent, branch=branch, next=node, size=as_integers(rows["size"], 0),
        threshold=as_integers(rows["threshold"], -1), spent=spent, choice=choice, budgets=budgets,
    )  # fmt: skip
    if not len(tree) or not np.array_equal(as_integers(rows["part"], -1), np.arange(len(tree))):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if tree.leaf[0] or parent[0] != -1 or (spent[1:] < 0).any() or spent[0] >= 0:
        raise ValueError("it has no root, or a part without a budget")
    above, inner = parent[1:], node[~tree.leaf]
    if (np.diff(parent) < 0).any() or (above < 0).any() or (above >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if (node < -1).any() or (inner >= len(taxonomy)).any() or (taxonomy.height[inner] == 0).any():
        raise ValueError("a part is divided at no node, or at a value")
    if tree.leaf[above].any() or ((np.diff(above) == 0) & (np.diff(branch[1:]) <= 0)).any():
        raise ValueError("a part lies below a leaf, stands twice, or is out of order")
    least = np.where(above == 0, 0, 1) if taxonomy.holds_sets else 1
    if (branch[1:] < least).any() or (branch[1:] > taxonomy.branches[node[above]]).any():
        raise ValueError("a branch names no children of its node")
    return tree


def list_nodes(taxonomy: Taxonomy, names: Sequence[str | None]) -> pa.Table:
    """Return the rows of ``privsql_taxonomy``: the nodes that group each column's values, children before parents."""
    return pa.table(
        {
            "node": pa.array(np.arange(len(taxonomy)), pa.int32()),
            "attribute": pa.array(taxonomy.column, pa.int32()),
            "parent": pa.array(taxonomy.parent, pa.int32(), mask=taxonomy.parent < 0),
            "value": pa.array(names, pa.string()),
        }
    )


def read_taxonomy(rows: pa.Table, *, sets: bool) -> Taxonomy:
    """Read a taxonomy from the rows of ``privsql_taxonomy``, ordered by ``node``; raise ``ValueError`` if invalid."""
    if not np.array_equal(as_integers(rows["node"], -1), np.arange(len(rows))):
        raise ValueError("nodes are not numbered 0, 1, ..")
    result = make_taxonomy(as_integers(rows["attribute"], -1), as_integers(rows["parent"], -1), sets=sets)
    if list_nodes(result, rows["value"].to_pylist()).to_pydict() != rows.to_pydict():
        raise ValueError("nodes are written down otherwise")
    return result


def as_integers(column: pa.ChunkedArray, missing: int) -> Ints:
    """Return a column as integers, ``missing`` where it is NULL."""
    result: Ints = column.fill_null(missing).to_numpy().astype(np.int64)
    return result


# Explanations ---------------------------------------------------------------------------------------------------------
# A tree for people: how many partitions were kept at every level, and how much noise their counts have.


def describe_tree(db: Relations) -> list[Structure]:
    """Return a table for people: how many partitions each level of the tree has, and the noise of their counts."""
    rows = db.arrow(all_rows(table(TREE)).order_by(column("part")))
    parent, scale = as_integers(rows["parent"], -1), pc.fill_null(rows["scale"], 0.0).to_numpy()
    level = partition_depths(parent)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    result = []
    for depth in range(1, int(level.max(initial=0)) + 1):
        at_depth = level == depth
        noise = deviation_of(scale[at_depth])
        least, most = float(noise.min()), float(noise.max())
        shown = f"{least:.3g}" if most - least < 0.005 * most else f"{least:.3g} to {most:.3g}"
        result.append((f"level {depth}", int(at_depth.sum()), int((at_depth & ~inner).sum()), shown))
    sentence = (
        f"All records are one partition, which is divided again and again; {len(parent) - 1:,} partitions were kept. "
        "Where the noisy count of one is small, it is dropped."
    )
    head = ("level of the tree", "partitions kept", "not divided further", "standard deviation of the noise")
    return [make_structure("The noisy tree", sentence, head, result, 1)]


def partition_depths(parent: Ints) -> Ints:
    """Return how many levels every partition lies below the root.

    Args:
        parent: The row of each partition's parent, -1 for the root in row 0; parents come before their children.

    >>> partition_depths(np.array([-1, 0, 0, 1, 3])).tolist()
    [0, 1, 1, 2, 3]
    """
    result = np.zeros(len(parent), dtype=np.int64)
    for row in range(1, len(parent)):
        result[row] = result[parent[row]] + 1
    return result


# Facts ----------------------------------------------------------------------------------------------------------------


def list_set_facts(params: SetValued, tree: PartitionTree, taxonomy: Taxonomy) -> dict[str, Any]:
    """Return those facts of the manifest that follow from a published tree of item sets."""
    return tree.facts | {
        "items": len(taxonomy.values(0)),
        "inner_nodes": int(taxonomy.inner[-1]),
        "item_sets": len(tree.leaves),
        "universe_is_public": not params.universe.data,
    }


def list_cell_facts(
    params: Contingency, fields: Sequence[Field], tree: PartitionTree, taxonomy: Taxonomy
) -> dict[str, Any]:
    """Return those facts of the manifest that follow from a published tree over the columns of a table."""
    return tree.facts | {
        "values": int((taxonomy.height == 0).sum()),
        "cells": len(tree.leaves),
        "not_covered": params.not_covered(field.name for field in fields),
    }
