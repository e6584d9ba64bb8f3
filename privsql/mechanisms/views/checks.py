"""Check a release of views, and what all releases of item sets must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.errors import UsageError
from privsql.mechanisms.dp.checks import (
    OPENDP_CHECK,
    check_published,
    differ_from_due,
    unknown_opendp,
    wrong_facts,
    wrong_table_scales,
    wrong_total_budget,
)
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.views.model import fit_population
from privsql.mechanisms.views.parameters import TINY_UNIVERSE, SetValued, ViewFacts
from privsql.mechanisms.views.plan import declared_sets, due_choices, due_tables, named_first
from privsql.mechanisms.views.tables import (
    ORDERS,
    PublishedViews,
    choice_scale,
    list_view_facts,
    read_labels,
    read_views,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    ViewRelease = CheckedRelease[SetValued, ViewFacts]
    ViewCheck = Callable[[ViewRelease, PublishedViews], list[str]]


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


# Checks against the source --------------------------------------------------------------------------------------------
# A release of item sets against its source, whatever algorithm made it.


def set_source_checks(release: CheckedRelease[SetValued, Any], source: Records) -> list[Check]:
    """Return the checks against the source: of its records a private release tells nothing that could be checked."""

    def compare_universe(_: CheckedRelease[SetValued, Any]) -> list[str]:
        stated = read_labels(release.db, release.view("universe"))
        wrong = stated != tuple(source.labels)
        return [f"stated {len(stated)} items, the source has {len(source.labels)}"] if wrong else []

    return release.list_checks({"the universe is the specification's": compare_universe})


# Views ----------------------------------------------------------------------------------------------------------------

HALF = 0.5 + 1e-6  # a running total of whole numbers lies so near to that of the fitted table, which is of doubles


def view_checks(release: ViewRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, ViewCheck] = {
        "budgets of choices and tables add up to epsilon": lambda release, found: wrong_total_budget(
            release, found.noisy_tables, found.choice.total_budget
        ),
        "the measured items are as many as the rule says, declared ones first": _wrong_choice,
        "tables and their budgets follow from the specification and the choice": _wrong_layout,
        "scales are those of the budgets": _wrong_scales,
        "synthetic records are those of the fitted table": _wrong_population,
        "facts are those of the tables": _wrong_view_facts,
    }
    return [
        *check_published(release, "tables", _read_published, named),
        *release.list_checks(OF_UNIVERSE),
        *release.check_orders(ORDERS),
        *release.list_checks({OPENDP_CHECK: unknown_opendp}),
    ]


def _read_published(one: ViewRelease) -> tuple[PublishedViews]:
    return (read_views(one.db, one.database, find_law(one.params), one.roles),)


def _wrong_choice(release: ViewRelease, published: PublishedViews) -> list[str]:
    """Return whether items were measured in another number or order than the rule has it, or at other budgets."""
    codes, universe = published.choice.codes.tolist(), len(published.labels)
    first: list[int] = list(range(universe))
    due: tuple[Fraction | None, ...] = (None,) * universe
    if universe > TINY_UNIVERSE:
        first = named_first(declared_sets(release.params, published.labels))
        records = int(published.noisy_tables[0].counts.reshape(-1)[0])
        due = due_choices(release.params, universe, len(first), records)
    if len(set(codes)) != len(due) or len(codes) != len(due):
        return [f"{len(codes)} items are measured, the rule has {len(due)}"]
    wrong = [] if codes[: len(first)] == first else ["declared items do not come first, in their order"]
    return wrong if published.choice.budgets == due else [*wrong, "budgets of the choice are not the rule's"]


def _wrong_layout(release: ViewRelease, published: PublishedViews) -> list[str]:
    """Return tables that are not those of the rule, in its order."""
    wanted = declared_sets(release.params, published.labels)
    due = due_tables(release.params, len(published.labels), published.choice, wanted)
    return differ_from_due(published.noisy_tables, [(*one, None) for one in due])


def _wrong_scales(release: ViewRelease, published: PublishedViews) -> list[str]:
    """Return scales that are not the least doubles which spend no more than the stated budgets."""
    pairs = zip(published.rows["chosen"]["scale"].to_pylist(), published.choice.budgets, strict=True)
    due = [(width, None if budget is None else choice_scale(budget, published.law)) for width, budget in pairs]
    wrong = [f"choice: scale {width}, due {right}" for width, right in due if width != right]
    return wrong_table_scales(release, published.noisy_tables) + wrong


def _wrong_population(_: ViewRelease, published: PublishedViews) -> list[str]:
    """Return sets whose running totals are not those of the table that fits the published counts."""
    wrong = [] if (published.synthetic_sets.weights > 0).all() else ["a set has no records"]
    squares, population = published.model.squares, published.model.population
    deviation = np.abs(np.cumsum(population) - np.cumsum(fit_population(squares)))
    slack = HALF + 1e-9 * max(squares.total, 0.0)
    return wrong if (deviation <= slack).all() else [*wrong, f"a running total is off by {deviation.max():.1f}"]


def _wrong_view_facts(release: ViewRelease, published: PublishedViews) -> list[str]:
    counted = len(published.labels), published.rows["sets"].num_rows
    return wrong_facts(release, list_view_facts(release.params, published.model.squares, *counted))
