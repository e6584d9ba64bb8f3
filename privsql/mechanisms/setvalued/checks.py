"""The checks of a release of item sets. They rest on the published tables alone: exact fractions, integers and SQL."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.sqlfiles import all_rows, column, fill, table, temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import stated
from privsql.mechanisms.noisytree.checks import is_cutoff, known_opendp, wrong_scales
from privsql.mechanisms.setvalued.model import estimator
from privsql.mechanisms.setvalued.parameters import Facts, SetValued
from privsql.mechanisms.setvalued.paths import violations
from privsql.mechanisms.setvalued.tables import TAXONOMY, TREE, read_taxonomy, read_tree
from privsql.mechanisms.setvalued.tree import item_sets
from privsql.model.checks import Check, as_asked, differ, in_order, tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Columns
    from privsql.mechanisms.setvalued.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.tree import Tree
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    TreeCheck = Callable[[Tree, Taxonomy, SetValued], list[str]]

SQL: tuple[str, ...] = ("core/", "sets/", "setvalued/", "verify/", "duckdb/")
SAME = 1e-4  # records: sizes are fitted in doubles


def read(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, Facts, SetValued, "tree")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return found


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    kind = manifest.sensitive[0].type
    return {
        "itemsets": [("items", kind), ("count", "BIGINT")],
        "privsql_tree": TREE,
        "privsql_taxonomy": TAXONOMY,
        "privsql_universe": [("code", "INTEGER"), ("item", kind[:-2]), ("node", "INTEGER"), ("place", "INTEGER")],
        "privsql_sets": [("part", "INTEGER"), ("items", kind), ("weight", "DOUBLE")],
    }


def checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    for name in ("itemsets", "privsql_tree", "privsql_taxonomy", "privsql_universe", "privsql_sets"):
        db.view(f"v_{name.removeprefix('privsql_')}", all_rows(table(name, database)))
    of_tree: dict[str, TreeCheck] = {
        "every path of the tree spends at most epsilon": _paths,
        "sizes reach thresholds that depend on no data": partial(_thresholds, db=db),
        "scales are those of the budgets": partial(_scales, db),
        "the taxonomy groups the universe by fan-out": _grouped,
        "facts are those of the tree": partial(_facts, manifest),
        "item sets are the leaves of the tree": partial(_leaves, db),
        "weights are those of the fitted tree": partial(_weights, db, manifest),
    }
    sets, tree = temp("v_sets"), temp("v_tree")
    columns: list[exp.Expr] = [column("items"), column("count")]
    db.view("v_leaf_sets", fill("setvalued/leaf_sets", {"sets": sets, "tree": tree}))
    published, leaves = tally(temp("v_itemsets"), columns), tally(temp("v_leaf_sets"), columns)
    orders = {"tree": "part", "taxonomy": "node", "universe": "code", "itemsets": "items"}
    return [
        *(Check(name, partial(_with_tree, db, manifest, check)) for name, check in of_tree.items()),
        Check("counts are those of the tree", differ(columns, published, leaves)),
        Check("every set is a leaf, or stands for a part", fill("setvalued/strangers", {"sets": sets, "tree": tree})),
        Check("no item stands twice in a set", fill("duckdb/repeated", {"sets": sets})),
        Check("sets lie in order", in_order(sets, ["part", "items", "weight"], strict=False)),
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp(f"v_{name}"), [key], strict=True))
            for name, key in orders.items()
        ),
        Check("made with a known version of OpenDP", partial(known_opendp, manifest)),
    ]


def long_checks(manifest: Manifest) -> list[Check]:  # noqa: ARG001 (all mechanisms take it)
    """Nothing takes longer than what publishing checks."""
    return []


def source_checks(db: Relations, manifest: Manifest, source: Records, asked: SetValued) -> list[Check]:
    """The checks against the source: of its records a private release tells nothing that could be checked."""
    return [
        Check("parameters are those of the specification", partial(as_asked, read(manifest), asked)),
        Check("the universe is the specification's", partial(_same_universe, db, source)),
    ]


def _with_tree(db: Relations, manifest: Manifest, check: TreeCheck) -> list[str]:
    try:
        return check(*_parts(db, manifest), read(manifest))
    except (ValueError, IndexError, ZeroDivisionError) as error:
        return [f"the tree can't be read: {error}"]


def _parts(db: Relations, manifest: Manifest) -> tuple[Tree, Taxonomy]:
    rows = {name: db.arrow(all_rows(temp(f"v_{name}"))) for name in ("tree", "taxonomy", "universe")}
    taxonomy = read_taxonomy(rows["taxonomy"], rows["universe"])
    return read_tree(rows["tree"], taxonomy, manifest.facts["without_items"]), taxonomy


def _paths(tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    return [f"part {row} {what}" for row, what in violations(tree, taxonomy, asked.epsilon)]


def _thresholds(tree: Tree, taxonomy: Taxonomy, asked: SetValued, db: Relations) -> list[str]:
    """Rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""
    stated = db.arrow(all_rows(temp("v_tree")))["threshold"].to_pylist()
    wrong = [] if stated[0] is None else ["part 0 was never counted"]
    known: dict[tuple[int, int, bool, int], bool] = {}
    nodes = tree.next[tree.parent[1:]].tolist()
    for row, (node, least) in enumerate(zip(nodes, stated[1:], strict=True), start=1):
        last = bool(tree.leaf[row])
        if asked.algorithm == "basic" or least is None:
            if (asked.algorithm == "basic") != (least is None):
                wrong.append(f"part {row}: threshold {least}")
            continue
        kind = (int(tree.spent[row]), node, last, least)
        if kind not in known:
            known[kind] = _is_least(least, tree.budgets[kind[0]], (taxonomy, node), asked, last=last)
        if not known[kind] or tree.size[row] < least:
            wrong.append(f"part {row}: threshold {least}, size {tree.size[row]}")
    return wrong


def _is_least(least: int, spent: Fraction, at: tuple[Taxonomy, int], asked: SetValued, *, last: bool) -> bool:
    """Whether ``least`` is the least integer >= 1 that meets its bound: exactly, or as ``is_cutoff`` has it."""
    taxonomy, node = at
    if asked.c1 is not None and asked.c2 is not None:
        bound = 2 * ((asked.c1 if last else asked.c2 * int(taxonomy.height[node])) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    passing = (asked.tau_sets if last else asked.tau) / taxonomy.nodes
    return is_cutoff(least, 2 ** int(taxonomy.degree[node]) - 1, passing, spent)


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
    facts = manifest.facts
    found = {
        "items": taxonomy.items,
        "inner_nodes": taxonomy.nodes,
        "partitions": len(tree) - 1,
        "item_sets": int(tree.leaf.sum()),
        "universe_is_public": not asked.universe.data,
        "noise": "seed" if manifest.randomness == "seed" else "opendp",
    }
    wrong = [f"{name}: stated {facts[name]}, found {value}" for name, value in found.items() if facts[name] != value]
    return wrong if manifest.algorithm == asked.algorithm else [*wrong, f"algorithm {manifest.algorithm}"]


def _scales(db: Relations, tree: Tree, _taxonomy: Taxonomy, _asked: SetValued) -> list[str]:
    return wrong_scales(tree, db.arrow(all_rows(temp("v_tree")))["scale"].to_pylist())


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
    published = set(zip(part[inside].tolist(), code[inside].tolist(), strict=True))
    differing = published ^ set(zip(leaves[which].tolist(), item.tolist(), strict=True))
    return [*wrong, *(f"part {row}" for row in sorted({row for row, _ in differing}))]


def _weights(db: Relations, manifest: Manifest, tree: Tree, taxonomy: Taxonomy, _asked: SetValued) -> list[str]:
    """Parts whose sets do not weigh what the fitted tree has there."""
    rows = db.rows(fill("setvalued/weighed", {"sets": temp("v_sets")}))
    sizes = estimator(tree, taxonomy).fit.sizes
    target = np.where(tree.leaf, sizes.size, sizes.remainder)
    records = manifest.facts["estimated_records"]
    estimated = float(sizes.size[0]) + (tree.empty or 0)
    wrong = [] if abs(estimated - records) < 0.1 else [f"estimated records: stated {records}, found {estimated:.1f}"]
    for part, weight in rows:
        if not -1 <= part < len(tree):
            continue  # another check's
        stated = float(target[part]) if part >= 0 else float(tree.empty or 0)
        if not math.isclose(weight, stated, rel_tol=SAME, abs_tol=SAME):
            wrong.append(f"part {part} weighs {weight}, fitted {stated}")
    return wrong


def _same_universe(db: Relations, source: Records) -> list[str]:
    labels = [exp.cast(column("item"), "VARCHAR")]
    rows = db.rows(fill("core/labels", {"domain": temp("v_universe"), "labels": labels}))
    stated = [row[0] for row in rows]
    return [] if stated == list(source.labels) else [f"stated {len(stated)} items, the source has {len(source.labels)}"]
