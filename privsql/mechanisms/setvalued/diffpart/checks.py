"""The checks of a release of item sets. They rest on the published tables alone: exact fractions, integers and SQL."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.engine.sqlfiles import all_rows, column, fill, table, temp
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contract import stated
from privsql.mechanisms.noisytree import checks as noisytree
from privsql.mechanisms.setvalued.diffpart.model import estimator
from privsql.mechanisms.setvalued.diffpart.paths import violations
from privsql.mechanisms.setvalued.diffpart.tables import read_taxonomy, read_tree
from privsql.mechanisms.setvalued.diffpart.tree import item_sets
from privsql.mechanisms.setvalued.parameters import Facts, SetValued
from privsql.mechanisms.setvalued.source import source_checks as against
from privsql.model.checks import Check, Promised, differ, in_order, tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.diffpart.tree import Tree
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    TreeCheck = Callable[[Tree, Taxonomy, SetValued], list[str]]

SQL: tuple[str, ...] = ("core/", "sets/", "setvalued/", "verify/", "duckdb/")


def read(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, Facts, SetValued, "tree")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return found


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    for name in ("itemsets", "privsql_tree", "privsql_taxonomy", "privsql_universe", "privsql_sets"):
        db.view(f"v_{name.removeprefix('privsql_')}", all_rows(table(name, database)))
    named: dict[str, TreeCheck] = {
        "every path of the tree spends at most epsilon": _paths,
        "sizes reach thresholds that depend on no data": partial(_thresholds, db),
        "scales are those of the budgets": partial(noisytree.wrong_scales, db),
        "the taxonomy groups the universe by fan-out": _grouped,
        "facts are those of the tree": partial(_facts, manifest),
        "item sets are the leaves of the tree": partial(_leaves, db),
        "weights are those of the fitted tree": partial(_weights, db, manifest),
    }
    sets, tree = temp("v_sets"), temp("v_tree")
    columns: list[exp.Expr] = [column("items"), column("count")]
    db.view("v_leaf_sets", fill("setvalued/leaf_sets", {"sets": sets, "tree": tree}))
    counts = differ(columns, tally(temp("v_itemsets"), columns), tally(temp("v_leaf_sets"), columns))
    own = [
        Check("every set is a leaf, or stands for a part", fill("setvalued/strangers", {"sets": sets, "tree": tree})),
        Check("no item stands twice in a set", fill("duckdb/repeated", {"sets": sets})),
        Check("sets lie in order", in_order(sets, ["part", "items", "weight"], strict=False)),
    ]
    orders = {"tree": ["part"], "taxonomy": ["node"], "universe": ["code"], "itemsets": ["items"]}
    return [
        *noisytree.of_tree(partial(_read, db, manifest), named),
        *noisytree.of_tables(manifest, counts, own, orders),
    ]


def bounds(_db: Relations, manifest: Manifest) -> list[Promised]:
    """What a path of the tree spends."""
    return private.bounds(read(manifest).epsilon)


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: SetValued) -> list[Check]:
    """The checks against the source."""
    return against(db, read(manifest), source, asked)


def _read(db: Relations, manifest: Manifest) -> tuple[Tree, Taxonomy, SetValued]:
    rows = {name: db.arrow(all_rows(temp(f"v_{name}"))) for name in ("tree", "taxonomy", "universe")}
    taxonomy = read_taxonomy(rows["taxonomy"], rows["universe"])
    return read_tree(rows["tree"], taxonomy, manifest.facts["without_items"]), taxonomy, read(manifest)


def _paths(tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    return [f"part {row} {what}" for row, what in violations(tree, taxonomy, asked.epsilon)]


def _thresholds(db: Relations, tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    """Rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""
    if asked.algorithm == "basic":
        rows = enumerate(noisytree.published(db, "threshold"))
        return [f"part {row}: threshold {least}" for row, least in rows if least is not None]
    return noisytree.wrong_thresholds(db, tree, partial(_is_least, taxonomy, asked))


def _is_least(taxonomy: Taxonomy, asked: SetValued, least: int, spent: Fraction, node: int, last: bool) -> bool:
    """Whether ``least`` is the least integer >= 1 that meets its bound: exactly, or as ``is_cutoff`` has it."""
    if asked.c1 is not None and asked.c2 is not None:
        bound = 2 * ((asked.c1 if last else asked.c2 * int(taxonomy.height[node])) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    passing = (asked.tau_sets if last else asked.tau) / taxonomy.nodes
    return noisytree.is_cutoff(least, 2 ** int(taxonomy.degree[node]) - 1, passing, spent)


def _grouped(_tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    """Levels that do not group their members, in order, by the fan-out."""
    fan_out = max(taxonomy.items, 2) if asked.algorithm == "basic" else asked.fan_out
    parents, wrong = taxonomy.item_parent, []
    for height in range(1, int(taxonomy.height.max()) + 1):
        blocks = parents[::fan_out]
        regular = (
            len(set(blocks.tolist())) == len(blocks) and (np.repeat(blocks, fan_out)[: len(parents)] == parents).all()
        )
        if not regular or len(blocks) != int((taxonomy.height == height).sum()):
            wrong.append(f"height {height}")
        parents = taxonomy.parent[blocks]
    return wrong


def _facts(manifest: Manifest, tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    own = {
        "items": taxonomy.items,
        "inner_nodes": taxonomy.nodes,
        "item_sets": int(tree.leaf.sum()),
        "universe_is_public": not asked.universe.data,
    }
    return noisytree.wrong_facts(manifest, tree, asked.algorithm, own)


def _leaves(db: Relations, tree: Tree, taxonomy: Taxonomy, _asked: SetValued) -> list[str]:
    """Leaves whose published items are not those of their path, and items that are not in the universe."""
    pairs = db.arrow(fill("duckdb/coded", {"sets": temp("v_sets"), "universe": temp("v_universe")}))
    part, code = (pairs[name].fill_null(-1).to_numpy() for name in ("part", "code"))
    if (part >= len(tree)).any():
        return [f"part {int(part.max())} is not in the tree"]
    wrong = [f"part {row}: an item that is not in the universe" for row in set(part[code < 0].tolist())]
    inside = (part >= 0) & tree.leaf[np.maximum(part, 0)]
    leaves = np.flatnonzero(tree.leaf)
    which, item = item_sets(tree, leaves, taxonomy)
    published, due = part[inside] * taxonomy.items + code[inside], leaves[which] * taxonomy.items + item
    if np.array_equal(np.sort(published), np.sort(due)):  # much faster than a difference
        return wrong
    differing = np.setxor1d(published[code[inside] >= 0], due) // taxonomy.items
    return [*wrong, *(f"part {row}" for row in np.unique(differing).tolist())]


def _weights(db: Relations, manifest: Manifest, tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    """Parts whose sets do not weigh what the fitted tree has there."""
    rows = db.rows(fill("setvalued/weighed", {"sets": temp("v_sets")}))
    sizes = estimator(tree, taxonomy, pruning=asked.algorithm != "basic").fit.sizes
    return noisytree.wrong_weights(manifest, tree, sizes, rows, tree.empty or 0)
