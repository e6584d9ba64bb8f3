"""The tables of a release of item sets and its view: their columns, and a tree and its taxonomy as tables, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.engine.sqlfiles import Holes, column, fill, named, table
from privsql.mechanisms.noisytree import tables as noisytree
from privsql.mechanisms.noisytree.tables import FIRST, LAST, ints
from privsql.mechanisms.noisytree.tree import kinds
from privsql.mechanisms.setvalued.diffpart.budget import threshold
from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy, rebuilt
from privsql.mechanisms.setvalued.diffpart.tree import Tree
from privsql.mechanisms.setvalued.weights import weight_of

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.mechanisms.contract import Columns
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.mechanisms.setvalued.parameters import SetValued
    from privsql.model.manifest import Manifest

WITHOUT = -1  # the part of the records without items, which lie outside the tree


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    kind = manifest.sensitive[0].type
    return {
        "itemsets": [("items", kind), ("count", "BIGINT")],
        "privsql_tree": [*FIRST, ("mask", "BIGINT"), ("node", "INTEGER"), *LAST],
        "privsql_taxonomy": [("node", "INTEGER"), ("parent", "INTEGER"), ("place", "INTEGER"), ("height", "INTEGER")],
        "privsql_universe": [("code", "INTEGER"), ("item", kind[:-2]), ("node", "INTEGER"), ("place", "INTEGER")],
        "privsql_sets": [("part", "INTEGER"), ("items", kind), ("weight", "DOUBLE")],
    }


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the consistent estimates, pruned records included."""
    own = named(column("items", "sets"), manifest.sensitive[0].name)
    holes: Holes = {"sets": table("privsql_sets"), "items": [own], "weight": weight_of(manifest)}
    return fill("setvalued/weighted", holes)


def tree_table(tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> pa.Table:
    """``privsql_tree``: ``node`` is where a part is expanded (NULL for an item set), ``mask`` which children of its
    parent's node it has.
    """
    own = {"mask": pa.array(tree.mask, pa.int64()), "node": pa.array(tree.next, pa.int32(), mask=tree.leaf)}
    return noisytree.tree_table(tree, own, thresholds(tree, taxonomy, asked))


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
    (spent,), budgets = noisytree.budgets(rows, "budget")
    common = noisytree.common(rows, expanded="node")
    tree = Tree(**common, mask=ints(rows["mask"], 0), spent=spent, budgets=budgets, empty=empty)
    noisytree.is_tree(tree, rows, taxonomy.nodes)
    if tree.next[0] != 0:
        raise ValueError("its root is not that of the taxonomy")
    if (tree.mask[1:] < 1).any() or (tree.mask[1:] >> taxonomy.degree[tree.next[tree.parent[1:]]] > 0).any():
        raise ValueError("a mask names no children of its node")
    return tree


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
    found = rebuilt(
        (ints(items["node"], -1), ints(items["place"], -1)),
        (ints(nodes["parent"], -1), ints(nodes["place"], -1)),
        ints(nodes["height"], 0),
    )
    if taxonomy_table(found).to_pydict() != nodes.to_pydict():
        raise ValueError("nodes are written down otherwise")
    return found


def lists(which: Ints, codes: Ints, number: int, items: pa.Array) -> pa.ListArray:
    """Sets as lists of items: pairs (set, code), sorted, of ``number`` sets."""
    offsets = np.searchsorted(which, np.arange(number + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(codes)))
