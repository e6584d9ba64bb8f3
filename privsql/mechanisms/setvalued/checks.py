"""Check a release of item sets by DiffPart or by views.

The checks rest on the published tables alone: exact fractions, integers and SQL.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import noise_scale
from privsql.engine.sqlfiles import column
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.dp import checks
from privsql.mechanisms.setvalued import views, views_model
from privsql.mechanisms.setvalued.diffpart_answers import fit_estimator, read_taxonomy, read_tree
from privsql.mechanisms.setvalued.diffpart_tree import find_violations, item_sets
from privsql.mechanisms.setvalued.parameters import TINY_UNIVERSE, ItemSetTreeFacts, SetValued, ViewFacts
from privsql.mechanisms.setvalued.views import (
    ORDERS,
    PublishedViews,
    ViewBudgets,
    declared_sets,
    how_many,
    named_first,
    on_places,
    read_views,
)
from privsql.model.manifest import count_combinations, differing_combinations, in_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from sqlglot import exp

    from privsql.mechanisms.setvalued.diffpart_tree import ItemSetTree, ItemTaxonomy
    from privsql.mechanisms.setvalued.views import Layout
    from privsql.model.manifest import Check, CheckedRelease, Manifest

    TreeRelease = CheckedRelease[SetValued, ItemSetTreeFacts]
    ViewRelease = CheckedRelease[SetValued, ViewFacts]
    TreeCheck = Callable[[TreeRelease, ItemSetTree, ItemTaxonomy], list[str]]
    ViewCheck = Callable[[ViewRelease, PublishedViews], list[str]]

# DiffPart -------------------------------------------------------------------------------------------------------------
# The checks of a release of item sets. They rest on the published tables alone: exact fractions, integers and SQL.

SQL: tuple[str, ...] = ("core/", "sets/", "setvalued/", "verify/", "duckdb/")


def demand_items(manifest: Manifest, _params: SetValued) -> None:
    """``UsageError`` unless a release has one column of items."""
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")


def tree_checks(release: TreeRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    columns: list[exp.Expr] = [column("items"), column("count")]
    release.db.create_view("v_leaf_sets", release.fill_query("setvalued/leaf_sets"))
    published, leaves = (count_combinations(release.view(name), columns) for name in ("itemsets", "leaf_sets"))
    named: dict[str, TreeCheck] = {
        "every path of the tree spends at most epsilon": _wrong_paths,
        "sizes reach thresholds that depend on no data": _wrong_thresholds,
        "scales are those of the budgets": checks.wrong_tree_scales,
        "the taxonomy groups the universe by fan-out": _wrong_groups,
        "facts are those of the tree": _wrong_tree_facts,
        "item sets are the leaves of the tree": _wrong_leaves,
        "weights are those of the fitted tree": _wrong_weights,
    }
    return [
        *checks.check_published(release, "tree", _read_tree, named),
        *release.list_checks(
            {
                "counts are those of the tree": differing_combinations(columns, published, leaves),
                "every set is a leaf, or stands for a part": release.fill_query("setvalued/strangers"),
                "no item stands twice in a set": release.fill_query("duckdb/repeated"),
                "sets lie in order": in_order(release.view("sets"), ["part", "items", "weight"], strict=False),
            }
        ),
        *release.check_orders({"tree": ["part"], "taxonomy": ["node"], "universe": ["code"], "itemsets": ["items"]}),
        *release.list_checks({private.OPENDP_CHECK: private.unknown_opendp}),
    ]


def _read_tree(release: TreeRelease) -> tuple[ItemSetTree, ItemTaxonomy]:
    taxonomy = read_taxonomy(release.read_view("taxonomy"), release.read_view("universe"))
    return read_tree(release.read_view("tree"), taxonomy, release.facts.without_items), taxonomy


def _wrong_paths(release: TreeRelease, tree: ItemSetTree, taxonomy: ItemTaxonomy) -> list[str]:
    return [f"part {row} {what}" for row, what in find_violations(tree, taxonomy, release.params.epsilon)]


def _wrong_thresholds(release: TreeRelease, tree: ItemSetTree, taxonomy: ItemTaxonomy) -> list[str]:
    """Return rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""
    if release.params.algorithm == "basic":
        rows = enumerate(checks.read_published(release, "threshold"))
        return [f"part {row}: threshold {least}" for row, least in rows if least is not None]
    return checks.wrong_thresholds(release, tree, partial(_is_least, taxonomy, release.params))


def _is_least(taxonomy: ItemTaxonomy, params: SetValued, least: int, spent: Fraction, node: int, last: bool) -> bool:
    """Return whether ``least`` is the least integer >= 1 that meets its bound: exactly, or as ``is_cutoff`` has it."""
    if params.c1 is not None and params.c2 is not None:
        bound = 2 * ((params.c1 if last else params.c2 * int(taxonomy.height[node])) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    passing = (params.tau_sets if last else params.tau) / taxonomy.node_count
    return checks.is_cutoff(least, 2 ** int(taxonomy.degree[node]) - 1, passing, spent)


def _wrong_groups(release: TreeRelease, _tree: ItemSetTree, taxonomy: ItemTaxonomy) -> list[str]:
    """Return levels that do not group their members, in order, by the fan-out."""
    fan_out = max(taxonomy.item_count, 2) if release.params.algorithm == "basic" else release.params.fan_out
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


def _wrong_tree_facts(release: TreeRelease, tree: ItemSetTree, taxonomy: ItemTaxonomy) -> list[str]:
    computed = {
        "items": taxonomy.item_count,
        "inner_nodes": taxonomy.node_count,
        "item_sets": int(tree.leaf.sum()),
        "universe_is_public": not release.params.universe.data,
        "partitions": len(tree) - 1,
    }
    return private.wrong_facts(release, computed)


def _wrong_leaves(release: TreeRelease, tree: ItemSetTree, taxonomy: ItemTaxonomy) -> list[str]:
    """Return leaves whose published items are not those of their path, and items that are not in the universe."""
    pairs = release.db.arrow(release.fill_query("duckdb/coded"))
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


def _wrong_weights(release: TreeRelease, tree: ItemSetTree, taxonomy: ItemTaxonomy) -> list[str]:
    """Return parts whose sets do not weigh what the fitted tree has there."""
    rows = release.db.rows(release.fill_query("setvalued/weighed"))
    sizes = fit_estimator(tree, taxonomy, pruning=release.params.algorithm != "basic").fit.sizes
    return checks.wrong_weights(release, tree, sizes, rows, tree.empty or 0)


# Views ----------------------------------------------------------------------------------------------------------------
# The checks of a release of views: budgets in exact fractions, every cell, and what follows from them.

HALF = 0.5 + 1e-6  # a running total of whole numbers lies so near to that of the fitted table, which is of doubles


def view_checks(release: ViewRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, ViewCheck] = {
        "budgets of choices and tables add up to epsilon": _wrong_total_budget,
        "the measured items are as many as the rule says, declared ones first": _wrong_choice,
        "tables and their budgets follow from the specification and the choice": _wrong_layout,
        "scales are those of the budgets": _wrong_scales,
        "synthetic records are those of the fitted table": _wrong_population,
        "facts are those of the tables": _wrong_view_facts,
    }
    return [
        *checks.check_published(release, "tables", lambda one: (read_views(one.db, one.database),), named),
        *release.check_orders(ORDERS),
        *release.list_checks({private.OPENDP_CHECK: private.unknown_opendp}),
    ]


def _wrong_total_budget(release: ViewRelease, published: PublishedViews) -> list[str]:
    return checks.wrong_total_budget(release, published.noisy_tables, published.choice.total_budget)


def _wrong_choice(release: ViewRelease, published: PublishedViews) -> list[str]:
    """Return whether items were measured in another number or order than the rule has it, or at other budgets."""
    params = release.params
    codes, wanted = published.choice.codes.tolist(), named_first(declared_sets(params, published.labels))
    due: tuple[Fraction | None, ...]
    if published.universe_size <= TINY_UNIVERSE:
        number = published.universe_size
        first, due = list(range(number)), (None,) * number
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


def _wrong_layout(release: ViewRelease, published: PublishedViews) -> list[str]:
    """Return tables that are not those of the rule, in its order."""
    due = [(*one, None) for one in _due_layout(release.params, published)]
    return checks.differ_from_due(published.noisy_tables, due)


def _due_layout(params: SetValued, published: PublishedViews) -> Layout:
    choice = published.choice
    wanted = on_places(declared_sets(params, published.labels), choice.codes)
    if published.universe_size <= TINY_UNIVERSE:
        return views.lay_out_all(published.universe_size, params.epsilon, wanted)
    budgets = ViewBudgets.from_epsilon(params.epsilon, choosing=choice.total_budget > 0)
    return [((), budgets.total), *views.lay_out_chosen(len(choice.codes), budgets.tables, wanted)]


def _wrong_scales(release: ViewRelease, published: PublishedViews) -> list[str]:
    """Return scales that are not the least doubles which spend no more than the stated budgets."""
    pairs = zip(published.rows["chosen"]["scale"].to_pylist(), published.choice.budgets, strict=True)
    due = [(width, None if budget is None else noise_scale(budget)) for width, budget in pairs]
    wrong = [f"choice: scale {width}, due {right}" for width, right in due if width != right]
    return checks.wrong_table_scales(release, published.noisy_tables) + wrong


def _wrong_population(_: ViewRelease, published: PublishedViews) -> list[str]:
    """Return sets whose running totals are not those of the table that fits the published counts."""
    weight = published.set_patterns[1]
    wrong = [] if (weight > 0).all() else ["a set has no records"]
    deviation = np.abs(np.cumsum(published.population) - np.cumsum(views_model.fit_population(published.squares)))
    slack = HALF + 1e-9 * max(published.squares.total, 0.0)
    return wrong if (deviation <= slack).all() else [*wrong, f"a running total is off by {deviation.max():.1f}"]


def _wrong_view_facts(release: ViewRelease, published: PublishedViews) -> list[str]:
    computed = {
        "items": published.universe_size,
        "measured": len(published.choice.codes),
        "tables": len(published.noisy_tables),
        "cells": sum(one.counts.size for one in published.noisy_tables),
        "sets": published.rows["sets"].num_rows,
        "universe_is_public": not release.params.universe.data,
    }
    stated, total = release.facts.estimated_records, published.squares.total
    return private.wrong_facts(release, computed) + checks.wrong_amount("estimated records", stated, total)
