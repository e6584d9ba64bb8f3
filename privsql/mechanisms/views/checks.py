"""Check a release of item sets by DiffPart or by views.

The checks rest on the published tables alone: exact fractions, integers and SQL.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.errors import UsageError
from privsql.mechanisms.diffpart.tree import TreeRule, context_free_parents
from privsql.mechanisms.dp import checks
from privsql.mechanisms.dp import mechanism as private
from privsql.mechanisms.views import model as views_model
from privsql.mechanisms.views import plan as views
from privsql.mechanisms.views.evaluation import read_labels
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, ItemSetTreeFacts, SetValued, ViewFacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from privsql.mechanisms.diffpart.tree import PartitionTree, Taxonomy
    from privsql.mechanisms.dp.checks import TreeCheck
    from privsql.mechanisms.dp.noisy_tables import LeastSquares
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.manifest import Manifest

    TreeRelease = CheckedRelease[SetValued, ItemSetTreeFacts]
    ViewRelease = CheckedRelease[SetValued, ViewFacts]
    ViewCheck = Callable[[ViewRelease, views.PublishedViews], list[str]]

# DiffPart -------------------------------------------------------------------------------------------------------------


def _wrong_universe(release: CheckedRelease[SetValued, Any]) -> list[str]:
    """Return whether the items are not those that the parameters list, if they do."""
    stated, labels = release.params.universe.items, read_labels(release.db, release.view("universe"))
    return [] if stated in (None, labels) else ["the parameters list other items"]


OF_UNIVERSE = {"the universe is that of the parameters": _wrong_universe}


def require_items(manifest: Manifest) -> None:
    """Raise ``UsageError`` unless a release has one column of items."""
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")


def make_rule(params: SetValued, taxonomy: Taxonomy) -> TreeRule:
    """Return the public rule of a tree; ``tau`` is shared among the nodes, as each is expanded once on a path.

    From an empty sub-partition that passed at most (tau/nodes)^nodes <= e^(tau/e) others descend.
    """
    nodes = int(taxonomy.inner[-1])
    return TreeRule(
        private.total_budget(params), passing=params.tau / nodes,
        passing_leaves=params.tau_sets / nodes, c1=params.c1, c2=params.c2,
    )  # fmt: skip


def tree_checks(release: TreeRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, TreeCheck] = {
        "the taxonomy groups the universe by fan-out": _wrong_groups,
        "item sets are the leaves of the tree": _wrong_leaves,
    }
    rule, facts = partial(make_rule, release.params), partial(tree_facts, release.params)
    checked = checks.check_tree(release, rule, facts, named, ("itemsets", ["items"]))
    return [*checked, *release.list_checks(OF_UNIVERSE), *release.check_orders({"universe": ["code"]})]


def tree_facts(params: SetValued, tree: PartitionTree, taxonomy: Taxonomy) -> dict[str, Any]:
    """Return what the manifest states of a tree."""
    return tree.facts | {
        "items": len(taxonomy.values(0)),
        "inner_nodes": int(taxonomy.inner[-1]),
        "item_sets": len(tree.leaves),
        "universe_is_public": not params.universe.data,
    }


def _wrong_groups(release: TreeRelease, _tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return whether groups are not those of the fan-out, or items not those of the universe."""
    universe = read_labels(release.db, release.view("universe"))
    named = release.read_view("taxonomy")["value"].to_pylist()
    wrong = [] if named[: len(universe)] == [*universe] else ["items have other names"]
    due = context_free_parents(len(universe), release.params.fan_out)
    return wrong if np.array_equal(taxonomy.parent, due) else [*wrong, "nodes are not grouped by the fan-out"]


def _wrong_leaves(release: TreeRelease, tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return leaves whose published items are not those of their path."""
    pairs = release.db.arrow(release.fill_query("duckdb/coded", sets=release.view("itemsets")))
    part, code = (pairs[name].fill_null(-1).to_numpy().astype(np.int64) for name in ("part", "code"))
    return checks.wrong_leaf_values(tree, taxonomy, part, code)


# Views ----------------------------------------------------------------------------------------------------------------

HALF = 0.5 + 1e-6  # a running total of whole numbers lies so near to that of the fitted table, which is of doubles


def view_checks(release: ViewRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, ViewCheck] = {
        "budgets of choices and tables add up to epsilon": lambda release, found: checks.wrong_total_budget(
            release, found.noisy_tables, found.choice.total_budget
        ),
        "the measured items are as many as the rule says, declared ones first": _wrong_choice,
        "tables and their budgets follow from the specification and the choice": _wrong_layout,
        "scales are those of the budgets": _wrong_scales,
        "synthetic records are those of the fitted table": _wrong_population,
        "facts are those of the tables": _wrong_view_facts,
    }
    return [
        *checks.check_published(release, "tables", _read_published, named),
        *release.list_checks(OF_UNIVERSE),
        *release.check_orders(views.ORDERS),
        *release.list_checks({private.OPENDP_CHECK: private.unknown_opendp}),
    ]


def _read_published(one: ViewRelease) -> tuple[views.PublishedViews]:
    return (views.read_views(one.db, one.database, private.find_law(one.params), one.roles),)


def _wrong_choice(release: ViewRelease, published: views.PublishedViews) -> list[str]:
    """Return whether items were measured in another number or order than the rule has it, or at other budgets."""
    codes, universe = published.choice.codes.tolist(), len(published.labels)
    first: list[int] = list(range(universe))
    due: tuple[Fraction | None, ...] = (None,) * universe
    if universe > TINY_UNIVERSE:
        first = views.named_first(views.declared_sets(release.params, published.labels))
        records = int(published.noisy_tables[0].counts.reshape(-1)[0])
        due = views.due_choices(release.params, universe, len(first), records)
    if len(set(codes)) != len(due) or len(codes) != len(due):
        return [f"{len(codes)} items are measured, the rule has {len(due)}"]
    wrong = [] if codes[: len(first)] == first else ["declared items do not come first, in their order"]
    return wrong if published.choice.budgets == due else [*wrong, "budgets of the choice are not the rule's"]


def _wrong_layout(release: ViewRelease, published: views.PublishedViews) -> list[str]:
    """Return tables that are not those of the rule, in its order."""
    wanted = views.declared_sets(release.params, published.labels)
    due = views.due_tables(release.params, len(published.labels), published.choice, wanted)
    return checks.differ_from_due(published.noisy_tables, [(*one, None) for one in due])


def _wrong_scales(release: ViewRelease, published: views.PublishedViews) -> list[str]:
    """Return scales that are not the least doubles which spend no more than the stated budgets."""
    pairs = zip(published.rows["chosen"]["scale"].to_pylist(), published.choice.budgets, strict=True)
    due = [(width, None if budget is None else views.choice_scale(budget, published.law)) for width, budget in pairs]
    wrong = [f"choice: scale {width}, due {right}" for width, right in due if width != right]
    return checks.wrong_table_scales(release, published.noisy_tables) + wrong


def _wrong_population(_: ViewRelease, published: views.PublishedViews) -> list[str]:
    """Return sets whose running totals are not those of the table that fits the published counts."""
    wrong = [] if (published.synthetic_sets.weights > 0).all() else ["a set has no records"]
    squares, population = published.model.squares, published.model.population
    deviation = np.abs(np.cumsum(population) - np.cumsum(views_model.fit_population(squares)))
    slack = HALF + 1e-9 * max(squares.total, 0.0)
    return wrong if (deviation <= slack).all() else [*wrong, f"a running total is off by {deviation.max():.1f}"]


def _wrong_view_facts(release: ViewRelease, published: views.PublishedViews) -> list[str]:
    counted = len(published.labels), published.rows["sets"].num_rows
    return private.wrong_facts(release, view_facts(release.params, published.model.squares, *counted))


def view_facts(params: SetValued, fitted: LeastSquares, items: int, sets: int) -> dict[str, Any]:
    """Return what the manifest states of views that a table was ``fitted`` to."""
    return {
        "items": items,
        "measured": len(fitted.sizes),
        "tables": len(fitted.tables),
        "cells": sum(one.counts.size for one in fitted.tables),
        "sets": sets,
        "estimated_records": round(fitted.total, 1),
        "universe_is_public": not params.universe.data,
    }
