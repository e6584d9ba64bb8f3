"""The tables of a contingency table's release and its view: columns, a tree and its taxonomies as tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.engine.sqlfiles import column, fill, table
from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy, assembled
from privsql.mechanisms.contingency.diffpart.tree import Tree, threshold
from privsql.mechanisms.noisytree import tables as noisytree
from privsql.mechanisms.noisytree.tables import FIRST, LAST, ints
from privsql.mechanisms.noisytree.tree import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    fields, own = [(field.name, field.type) for field in manifest.sensitive], manifest.roles.by_sa
    return {
        "cells": [*fields, *own.typed(("count", "BIGINT"))],
        "privsql_cells": [*own.typed(("part", "INTEGER")), *fields, *own.typed(("weight", "DOUBLE"))],
        "privsql_tree": [*FIRST, ("node", "INTEGER"), ("expanded", "INTEGER"), ("choice", "VARCHAR"), *LAST],
        "privsql_taxonomy": [
            ("node", "INTEGER"), ("attribute", "INTEGER"), ("parent", "INTEGER"), ("value", "VARCHAR"),
        ],
    }  # fmt: skip


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the consistent estimates, pruned records included."""
    columns: list[exp.Expr] = [column(field.name, "cells") for field in manifest.sensitive]
    weight = manifest.roles.by_sa.column("weight", "cells")
    return fill("contingency/weighted", {"cells": table("privsql_cells"), "columns": columns, "weight": weight})


def tree_table(tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> pa.Table:
    """``privsql_tree``: ``node`` is the taxonomy node that distinguishes a part from its parent, ``expanded`` the one
    at which it was divided (NULL for a cell), ``choice`` the budget of choosing that.
    """
    own = {
        "node": pa.array(tree.node, pa.int32(), mask=np.arange(len(tree)) == 0),
        "expanded": pa.array(tree.next, pa.int32(), mask=tree.leaf),
        "choice": noisytree.texts(tree.choice, tree.budgets),
    }
    return noisytree.tree_table(tree, own, thresholds(tree, taxonomy, asked))


def thresholds(tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> list[int]:
    """The threshold of every row but the root."""
    degree = taxonomy.degree[tree.next[tree.parent[1:]]]
    different, kind = kinds(tree.spent[1:], degree, tree.leaf[1:])
    found = [threshold(asked, tree.budgets[s], d, last=bool(leaf)) for s, d, leaf in different]
    return [found[one] for one in kind.tolist()]


def read_tree(rows: pa.Table, taxonomy: Taxonomy) -> Tree:
    """A tree from ``privsql_tree``, by part; ``ValueError`` if it is not one over this taxonomy."""
    (spent, choice), budgets = noisytree.budgets(rows, "budget", "choice")
    common = noisytree.common(rows, expanded="expanded")
    tree = Tree(**common, node=ints(rows["node"], -1), spent=spent, choice=choice, budgets=budgets)
    noisytree.is_tree(tree, rows, len(taxonomy))
    parent, node = tree.parent[1:], tree.node[1:]
    if tree.node[0] != -1:
        raise ValueError("its root has a node")
    if (node < 0).any() or (node >= len(taxonomy)).any() or (taxonomy.parent[node] != tree.next[parent]).any():
        raise ValueError("a part's node is no child of the one at which its parent was expanded")
    if ((np.diff(parent) == 0) & (np.diff(node) <= 0)).any():
        raise ValueError("children of a part stand twice, or out of order")
    if (taxonomy.height[tree.next[~tree.leaf]] == 0).any():
        raise ValueError("a part is expanded at a value")
    return tree


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
    found = assembled(ints(rows["attribute"], -1), ints(rows["parent"], -1))
    if taxonomy_table(found, rows["value"].to_pylist()).to_pydict() != rows.to_pydict():
        raise ValueError("nodes are written down otherwise")
    return found
