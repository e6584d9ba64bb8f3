"""Check a release of item sets by DiffPart or by views.

The checks rest on the published tables alone: exact fractions, integers and SQL.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import noise_scale
from privsql.engine.sqlfiles import all_rows, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contract import read_stated_parameters
from privsql.mechanisms.dp import checks
from privsql.mechanisms.setvalued import views, views_model
from privsql.mechanisms.setvalued.diffpart_answers import fit_estimator, read_taxonomy, read_tree
from privsql.mechanisms.setvalued.diffpart_tree import find_violations, item_sets
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE, ItemSetTreeFacts, SetValued, ViewFacts
from privsql.mechanisms.setvalued.questions import set_source_checks
from privsql.mechanisms.setvalued.views import (
    CHOSEN,
    SETS,
    UNIVERSE,
    PublishedViews,
    ViewBudgets,
    declared_sets,
    how_many,
    named_first,
    on_places,
    read_views,
)
from privsql.model.manifest import Check, VerifiedBound, count_combinations, differing_combinations, in_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from sqlglot import exp

    from privsql.engine.database import Relations
    from privsql.mechanisms.setvalued.diffpart_tree import ItemSetTree, ItemTaxonomy
    from privsql.mechanisms.setvalued.views import Layout
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    TreeCheck = Callable[[ItemSetTree, ItemTaxonomy, SetValued], list[str]]

# DiffPart -------------------------------------------------------------------------------------------------------------
# The checks of a release of item sets. They rest on the published tables alone: exact fractions, integers and SQL.

SQL: tuple[str, ...] = ("core/", "sets/", "setvalued/", "verify/", "duckdb/")


def read_tree_parameters(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    params = read_stated_parameters(manifest, ItemSetTreeFacts, SetValued, "tree")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return params


def tree_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    for name in ("itemsets", "privsql_tree", "privsql_taxonomy", "privsql_universe", "privsql_sets"):
        db.create_view(f"v_{name.removeprefix('privsql_')}", all_rows(table(name, database)))
    named: dict[str, TreeCheck] = {
        "every path of the tree spends at most epsilon": _wrong_paths,
        "sizes reach thresholds that depend on no data": partial(_wrong_thresholds, db),
        "scales are those of the budgets": partial(checks.wrong_tree_scales, db),
        "the taxonomy groups the universe by fan-out": _wrong_groups,
        "facts are those of the tree": partial(_wrong_tree_facts, manifest),
        "item sets are the leaves of the tree": partial(_wrong_leaves, db),
        "weights are those of the fitted tree": partial(_wrong_weights, db, manifest),
    }
    sets, tree = temp_table("v_sets"), temp_table("v_tree")
    columns: list[exp.Expr] = [column("items"), column("count")]
    db.create_view("v_leaf_sets", fill("setvalued/leaf_sets", {"sets": sets, "tree": tree}))
    counts = differing_combinations(
        columns,
        count_combinations(temp_table("v_itemsets"), columns),
        count_combinations(temp_table("v_leaf_sets"), columns),
    )
    extra_checks = [
        Check("every set is a leaf, or stands for a part", fill("setvalued/strangers", {"sets": sets, "tree": tree})),
        Check("no item stands twice in a set", fill("duckdb/repeated", {"sets": sets})),
        Check("sets lie in order", in_order(sets, ["part", "items", "weight"], strict=False)),
    ]
    orders = {"tree": ["part"], "taxonomy": ["node"], "universe": ["code"], "itemsets": ["items"]}
    return [
        *checks.check_tree(partial(_read_tree, db, manifest), named),
        *checks.check_tree_tables(manifest, counts, extra_checks, orders),
    ]


def tree_bounds(_db: Relations, manifest: Manifest) -> list[VerifiedBound]:
    """What a path of the tree spends."""
    return private.list_epsilon_bound(read_tree_parameters(manifest).epsilon)


def tree_source_checks(db: Relations, manifest: Manifest, source: Records, params: SetValued) -> list[Check]:
    """The checks against the source."""
    return set_source_checks(db, read_tree_parameters(manifest), source, params)


def _read_tree(db: Relations, manifest: Manifest) -> tuple[ItemSetTree, ItemTaxonomy, SetValued]:
    rows = {name: db.arrow(all_rows(temp_table(f"v_{name}"))) for name in ("tree", "taxonomy", "universe")}
    taxonomy = read_taxonomy(rows["taxonomy"], rows["universe"])
    return read_tree(rows["tree"], taxonomy, manifest.facts["without_items"]), taxonomy, read_tree_parameters(manifest)


def _wrong_paths(tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued) -> list[str]:
    return [f"part {row} {what}" for row, what in find_violations(tree, taxonomy, params.epsilon)]


def _wrong_thresholds(db: Relations, tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued) -> list[str]:
    """Rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""
    if params.algorithm == "basic":
        rows = enumerate(checks.read_published(db, "threshold"))
        return [f"part {row}: threshold {least}" for row, least in rows if least is not None]
    return checks.wrong_thresholds(db, tree, partial(_is_least, taxonomy, params))


def _is_least(taxonomy: ItemTaxonomy, params: SetValued, least: int, spent: Fraction, node: int, last: bool) -> bool:
    """Whether ``least`` is the least integer >= 1 that meets its bound: exactly, or as ``is_cutoff`` has it."""
    if params.c1 is not None and params.c2 is not None:
        bound = 2 * ((params.c1 if last else params.c2 * int(taxonomy.height[node])) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    passing = (params.tau_sets if last else params.tau) / taxonomy.node_count
    return checks.is_cutoff(least, 2 ** int(taxonomy.degree[node]) - 1, passing, spent)


def _wrong_groups(_tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued) -> list[str]:
    """Levels that do not group their members, in order, by the fan-out."""
    fan_out = max(taxonomy.item_count, 2) if params.algorithm == "basic" else params.fan_out
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


def _wrong_tree_facts(manifest: Manifest, tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued) -> list[str]:
    extra = {
        "items": taxonomy.item_count,
        "inner_nodes": taxonomy.node_count,
        "item_sets": int(tree.leaf.sum()),
        "universe_is_public": not params.universe.data,
    }
    return checks.wrong_facts(manifest, tree, params.algorithm, extra)


def _wrong_leaves(db: Relations, tree: ItemSetTree, taxonomy: ItemTaxonomy, _asked: SetValued) -> list[str]:
    """Leaves whose published items are not those of their path, and items that are not in the universe."""
    pairs = db.arrow(fill("duckdb/coded", {"sets": temp_table("v_sets"), "universe": temp_table("v_universe")}))
    part, code = (pairs[name].fill_null(-1).to_numpy() for name in ("part", "code"))
    if (part >= len(tree)).any():
        return [f"part {int(part.max())} is not in the tree"]
    wrong = [f"part {row}: an item that is not in the universe" for row in set(part[code < 0].tolist())]
    inside = (part >= 0) & tree.leaf[np.maximum(part, 0)]
    leaves = np.flatnonzero(tree.leaf)
    which, item = item_sets(tree, leaves, taxonomy)
    published, due = part[inside] * taxonomy.item_count + code[inside], leaves[which] * taxonomy.item_count + item
    if np.array_equal(np.sort(published), np.sort(due)):  # much faster than a difference
        return wrong
    differing = np.setxor1d(published[code[inside] >= 0], due) // taxonomy.item_count
    return [*wrong, *(f"part {row}" for row in np.unique(differing).tolist())]


def _wrong_weights(
    db: Relations, manifest: Manifest, tree: ItemSetTree, taxonomy: ItemTaxonomy, params: SetValued
) -> list[str]:
    """Parts whose sets do not weigh what the fitted tree has there."""
    rows = db.rows(fill("setvalued/weighed", {"sets": temp_table("v_sets")}))
    sizes = fit_estimator(tree, taxonomy, pruning=params.algorithm != "basic").fit.sizes
    return checks.wrong_weights(manifest, tree, sizes, rows, tree.empty or 0)


# Views ----------------------------------------------------------------------------------------------------------------
# The checks of a release of views: budgets in exact fractions, every cell, and what follows from them.

HALF = 0.5 + 1e-6  # a running total of whole numbers lies so near to that of the fitted table, which is of doubles


def read_view_parameters(manifest: Manifest) -> SetValued:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    params = read_stated_parameters(manifest, ViewFacts, SetValued, "release of views")
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")
    return params


def view_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    params = read_view_parameters(manifest)
    checks.name_views(db, database, UNIVERSE, CHOSEN, SETS)
    named: dict[str, Callable[[PublishedViews], list[str]]] = {
        "budgets of choices and tables add up to epsilon": partial(_wrong_total_budget, params),
        "the measured items are as many as the rule says, declared ones first": partial(_wrong_choice, params),
        "tables and their budgets follow from the specification and the choice": partial(_wrong_layout, params),
        "scales are those of the budgets": partial(_wrong_scales, db),
        "synthetic records are those of the fitted table": _wrong_population,
        "facts are those of the tables": partial(_wrong_view_facts, manifest, params),
    }
    orders = {"universe": ["code"], "chosen": ["place"], "sets": ["items"]}
    return [
        *checks.check_tables(partial(read_views, db, database), named),
        *(
            Check(f"rows of {name} lie in order, once each", in_order(temp_table(f"v_{name}"), keys, strict=True))
            for name, keys in orders.items()
        ),
        private.known_opendp(manifest),
    ]


def view_bounds(_db: Relations, manifest: Manifest) -> list[VerifiedBound]:
    """What choices and tables spend together."""
    return private.list_epsilon_bound(read_view_parameters(manifest).epsilon)


def view_source_checks(db: Relations, manifest: Manifest, source: Records, params: SetValued) -> list[Check]:
    """The checks against the source."""
    return set_source_checks(db, read_view_parameters(manifest), source, params)


def _wrong_total_budget(params: SetValued, published: PublishedViews) -> list[str]:
    total = published.choice.total_budget + checks.sum_budgets(published.noisy_tables)
    return [] if total == params.epsilon else [f"spent {total}, not {params.epsilon}"]


def _wrong_choice(params: SetValued, published: PublishedViews) -> list[str]:
    """Items that were measured in another number or order than the rule has it, or at other budgets."""
    codes, wanted = published.choice.codes.tolist(), named_first(declared_sets(params, published.labels))
    due: tuple[Fraction | None, ...]
    if published.universe_size <= TINY_UNIVERSE:
        first, number, due = (
            list(range(published.universe_size)),
            published.universe_size,
            (None,) * published.universe_size,
        )
    else:
        first, total = wanted, int(published.noisy_tables[0].counts.reshape(-1)[0])
        number = how_many(params.epsilon, published.universe_size, total, len(first))
        chosen_number = number - len(first)
        each = ViewBudgets.from_epsilon(params.epsilon, choosing=chosen_number > 0).choice / max(chosen_number, 1)
        due = (*(None,) * len(first), *(each,) * chosen_number)
    if len(set(codes)) != number or len(codes) != number:
        return [f"{len(codes)} items are measured, the rule has {number}"]
    wrong = [] if codes[: len(first)] == first else ["declared items do not come first, in their order"]
    return wrong if published.choice.budgets == due else [*wrong, "budgets of the choice are not the rule's"]


def _wrong_layout(params: SetValued, published: PublishedViews) -> list[str]:
    """Tables that are not those of the rule, in its order."""
    return checks.differ_from_due(published.noisy_tables, [(*one, None) for one in _due_layout(params, published)])


def _due_layout(params: SetValued, published: PublishedViews) -> Layout:
    choice = published.choice
    wanted = on_places(declared_sets(params, published.labels), choice.codes)
    if published.universe_size <= TINY_UNIVERSE:
        return views.lay_out_all(published.universe_size, params.epsilon, wanted)
    budgets = ViewBudgets.from_epsilon(params.epsilon, choosing=choice.total_budget > 0)
    return [((), budgets.total), *views.lay_out_chosen(len(choice.codes), budgets.tables, wanted)]


def _wrong_scales(db: Relations, published: PublishedViews) -> list[str]:
    """Scales that are not the least doubles which spend no more than the stated budgets."""
    pairs = zip(published.rows["chosen"]["scale"].to_pylist(), published.choice.budgets, strict=True)
    due = [(width, None if budget is None else noise_scale(budget)) for width, budget in pairs]
    wrong = [f"choice: scale {width}, due {right}" for width, right in due if width != right]
    return checks.wrong_table_scales(db, published.noisy_tables) + wrong


def _wrong_population(published: PublishedViews) -> list[str]:
    """Sets whose running totals are not those of the table that fits the published counts."""
    weight = published.set_patterns[1]
    wrong = [] if (weight > 0).all() else ["a set has no records"]
    deviation = np.abs(np.cumsum(published.population) - np.cumsum(views_model.fit_population(published.squares)))
    slack = HALF + 1e-9 * max(published.squares.total, 0.0)
    return wrong if (deviation <= slack).all() else [*wrong, f"a running total is off by {deviation.max():.1f}"]


def _wrong_view_facts(manifest: Manifest, params: SetValued, published: PublishedViews) -> list[str]:
    result = {
        "items": published.universe_size,
        "measured": len(published.choice.codes),
        "tables": len(published.noisy_tables),
        "cells": sum(one.counts.size for one in published.noisy_tables),
        "sets": published.rows["sets"].num_rows,
        "universe_is_public": not params.universe.data,
    }
    wrong = private.wrong_facts(manifest, result)
    if abs(manifest.facts["estimated_records"] - published.squares.total) > 0.1:
        wrong.append(
            f"estimated records: stated {manifest.facts['estimated_records']}, found {published.squares.total:.1f}"
        )
    return wrong if manifest.algorithm == params.algorithm == "views" else [*wrong, f"algorithm {manifest.algorithm}"]
