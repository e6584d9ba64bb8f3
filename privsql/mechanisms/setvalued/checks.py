"""Check a release of item sets by DiffPart or by views.

The checks rest on the published tables alone: exact fractions, integers and SQL.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import scale
from privsql.engine.sqlfiles import all_rows, column, fill, table, temp
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contract import stated
from privsql.mechanisms.dp import checks
from privsql.mechanisms.setvalued import views, views_model
from privsql.mechanisms.setvalued.diffpart_answers import estimator, read_taxonomy, read_tree
from privsql.mechanisms.setvalued.diffpart_tree import item_sets, violations
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE, Facts, SetValued, ViewFacts
from privsql.mechanisms.setvalued.questions import set_source_checks
from privsql.mechanisms.setvalued.views import (
    CHOSEN,
    SETS,
    UNIVERSE,
    Budgets,
    Published,
    declared_sets,
    how_many,
    named_first,
    on_places,
    read_views,
)
from privsql.model.manifest import Check, Promised, differ, in_order, tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.mechanisms.setvalued.diffpart_tree import Taxonomy, Tree
    from privsql.mechanisms.setvalued.views import Layout
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    TreeCheck = Callable[[Tree, Taxonomy, SetValued], list[str]]

# DiffPart -------------------------------------------------------------------------------------------------------------
# The checks of a release of item sets. They rest on the published tables alone: exact fractions, integers and SQL.

SQL: tuple[str, ...] = ("core/", "sets/", "setvalued/", "verify/", "duckdb/")


def read_tree_parameters(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, Facts, SetValued, "tree")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return found


def tree_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    for name in ("itemsets", "privsql_tree", "privsql_taxonomy", "privsql_universe", "privsql_sets"):
        db.view(f"v_{name.removeprefix('privsql_')}", all_rows(table(name, database)))
    named: dict[str, TreeCheck] = {
        "every path of the tree spends at most epsilon": _paths,
        "sizes reach thresholds that depend on no data": partial(_thresholds, db),
        "scales are those of the budgets": partial(checks.wrong_tree_scales, db),
        "the taxonomy groups the universe by fan-out": _grouped,
        "facts are those of the tree": partial(_wrong_tree_facts, manifest),
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
        *checks.check_tree(partial(_read, db, manifest), named),
        *checks.check_tree_tables(manifest, counts, own, orders),
    ]


def tree_bounds(_db: Relations, manifest: Manifest) -> list[Promised]:
    """What a path of the tree spends."""
    return private.bounds(read_tree_parameters(manifest).epsilon)


def tree_source_checks(db: Relations, manifest: Manifest, source: Records, asked: SetValued) -> list[Check]:
    """The checks against the source."""
    return set_source_checks(db, read_tree_parameters(manifest), source, asked)


def _read(db: Relations, manifest: Manifest) -> tuple[Tree, Taxonomy, SetValued]:
    rows = {name: db.arrow(all_rows(temp(f"v_{name}"))) for name in ("tree", "taxonomy", "universe")}
    taxonomy = read_taxonomy(rows["taxonomy"], rows["universe"])
    return read_tree(rows["tree"], taxonomy, manifest.facts["without_items"]), taxonomy, read_tree_parameters(manifest)


def _paths(tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    return [f"part {row} {what}" for row, what in violations(tree, taxonomy, asked.epsilon)]


def _thresholds(db: Relations, tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    """Rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""
    if asked.algorithm == "basic":
        rows = enumerate(checks.read_published(db, "threshold"))
        return [f"part {row}: threshold {least}" for row, least in rows if least is not None]
    return checks.wrong_thresholds(db, tree, partial(_is_least, taxonomy, asked))


def _is_least(taxonomy: Taxonomy, asked: SetValued, least: int, spent: Fraction, node: int, last: bool) -> bool:
    """Whether ``least`` is the least integer >= 1 that meets its bound: exactly, or as ``is_cutoff`` has it."""
    if asked.c1 is not None and asked.c2 is not None:
        bound = 2 * ((asked.c1 if last else asked.c2 * int(taxonomy.height[node])) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    passing = (asked.tau_sets if last else asked.tau) / taxonomy.nodes
    return checks.is_cutoff(least, 2 ** int(taxonomy.degree[node]) - 1, passing, spent)


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


def _wrong_tree_facts(manifest: Manifest, tree: Tree, taxonomy: Taxonomy, asked: SetValued) -> list[str]:
    own = {
        "items": taxonomy.items,
        "inner_nodes": taxonomy.nodes,
        "item_sets": int(tree.leaf.sum()),
        "universe_is_public": not asked.universe.data,
    }
    return checks.wrong_facts(manifest, tree, asked.algorithm, own)


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
    return checks.wrong_weights(manifest, tree, sizes, rows, tree.empty or 0)


# Views ----------------------------------------------------------------------------------------------------------------
# The checks of a release of views: budgets in exact fractions, every cell, and what follows from them.

HALF = 0.5 + 1e-6  # a running total of whole numbers lies so near to that of the fitted table, which is of doubles


def read_view_parameters(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    found = stated(manifest, ViewFacts, SetValued, "release of views")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return found


def view_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    asked = read_view_parameters(manifest)
    checks.name_views(db, database, UNIVERSE, CHOSEN, SETS)
    named: dict[str, Callable[[Published], list[str]]] = {
        "budgets of choices and tables add up to epsilon": partial(_spent, asked),
        "the measured items are as many as the rule says, declared ones first": partial(_chosen, asked),
        "tables and their budgets follow from the specification and the choice": partial(_laid_out, asked),
        "scales are those of the budgets": partial(_scales, db),
        "synthetic records are those of the fitted table": _fitted,
        "facts are those of the tables": partial(_wrong_view_facts, manifest, asked),
    }
    orders = {"universe": ["code"], "chosen": ["place"], "sets": ["items"]}
    return [
        *checks.check_tables(partial(read_views, db, database), named),
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp(f"v_{name}"), keys, strict=True))
            for name, keys in orders.items()
        ),
        private.known_opendp(manifest),
    ]


def view_bounds(_db: Relations, manifest: Manifest) -> list[Promised]:
    """What choices and tables spend together."""
    return private.bounds(read_view_parameters(manifest).epsilon)


def view_source_checks(db: Relations, manifest: Manifest, source: Records, asked: SetValued) -> list[Check]:
    """The checks against the source."""
    return set_source_checks(db, read_view_parameters(manifest), source, asked)


def _spent(asked: SetValued, given: Published) -> list[str]:
    total = given.choice.spent + checks.sum_budgets(given.measured)
    return [] if total == asked.epsilon else [f"spent {total}, not {asked.epsilon}"]


def _chosen(asked: SetValued, given: Published) -> list[str]:
    """Items that were measured in another number or order than the rule has it, or at other budgets."""
    codes, wanted = given.choice.codes.tolist(), named_first(declared_sets(asked, given.labels))
    due: tuple[Fraction | None, ...]
    if given.universe <= TINY_UNIVERSE:
        first, number, due = list(range(given.universe)), given.universe, (None,) * given.universe
    else:
        first, total = wanted, int(given.measured[0].counts.reshape(-1)[0])
        number = how_many(asked.epsilon, given.universe, total, len(first))
        own = number - len(first)
        each = Budgets.of(asked.epsilon, choosing=own > 0).choice / max(own, 1)
        due = (*(None,) * len(first), *(each,) * own)
    if len(set(codes)) != number or len(codes) != number:
        return [f"{len(codes)} items are measured, the rule has {number}"]
    wrong = [] if codes[: len(first)] == first else ["declared items do not come first, in their order"]
    return wrong if given.choice.budgets == due else [*wrong, "budgets of the choice are not the rule's"]


def _laid_out(asked: SetValued, given: Published) -> list[str]:
    """Tables that are not those of the rule, in its order."""
    return checks.differ_from_due(given.measured, [(*one, None) for one in _due(asked, given)])


def _due(asked: SetValued, given: Published) -> Layout:
    choice = given.choice
    wanted = on_places(declared_sets(asked, given.labels), choice.codes)
    if given.universe <= TINY_UNIVERSE:
        return views.lay_out_all(given.universe, asked.epsilon, wanted)
    budgets = Budgets.of(asked.epsilon, choosing=choice.spent > 0)
    return [((), budgets.total), *views.lay_out_chosen(len(choice.codes), budgets.tables, wanted)]


def _scales(db: Relations, given: Published) -> list[str]:
    """Scales that are not the least doubles which spend no more than the stated budgets."""
    pairs = zip(given.rows["chosen"]["scale"].to_pylist(), given.choice.budgets, strict=True)
    due = [(width, None if budget is None else scale(budget)) for width, budget in pairs]
    wrong = [f"choice: scale {width}, due {right}" for width, right in due if width != right]
    return checks.wrong_table_scales(db, given.measured) + wrong


def _fitted(given: Published) -> list[str]:
    """Sets whose running totals are not those of the table that fits the published counts."""
    weight = given.patterns[1]
    wrong = [] if (weight > 0).all() else ["a set has no records"]
    apart = np.abs(np.cumsum(given.population) - np.cumsum(views_model.fit_population(given.squares)))
    slack = HALF + 1e-9 * max(given.squares.total, 0.0)
    return wrong if (apart <= slack).all() else [*wrong, f"a running total is off by {apart.max():.1f}"]


def _wrong_view_facts(manifest: Manifest, asked: SetValued, given: Published) -> list[str]:
    found = {
        "items": given.universe,
        "measured": len(given.choice.codes),
        "tables": len(given.measured),
        "cells": sum(one.counts.size for one in given.measured),
        "sets": given.rows["sets"].num_rows,
        "universe_is_public": not asked.universe.data,
    }
    wrong = private.wrong_facts(manifest, found)
    if abs(manifest.facts["estimated_records"] - given.squares.total) > 0.1:
        wrong.append(
            f"estimated records: stated {manifest.facts['estimated_records']}, found {given.squares.total:.1f}"
        )
    return wrong if manifest.algorithm == asked.algorithm == "views" else [*wrong, f"algorithm {manifest.algorithm}"]
