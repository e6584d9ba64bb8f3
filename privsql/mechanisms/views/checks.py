"""Check a release of views, and what all releases of item sets have in common."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
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
from privsql.mechanisms.views.model import fit_population
from privsql.mechanisms.views.plan import choose_items, declared_sets, due_tables, named_first
from privsql.mechanisms.views.tables import ORDERS, PublishedViews, list_facts, read_labels, read_views

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.views.parameters import SetValued, ViewFacts
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    ViewRelease = CheckedRelease[SetValued, ViewFacts]


# Item sets ------------------------------------------------------------------------------------------------------------
# Checks of every release of item sets, whatever mechanism made it.


def require_items(manifest: Manifest) -> None:
    """Raise ``UsageError`` unless the release has one column of item sets and no other column."""
    if len(manifest.sensitive) != 1 or not manifest.roles.hold_sets or manifest.quasi_identifiers:
        raise UsageError("its manifest states other columns than one of items")


def check_universe(release: CheckedRelease[SetValued, Any]) -> list[Check]:
    """Return the check that the published items are those that the parameters list; it passes if they list none."""

    def wrong_items(_: CheckedRelease[SetValued, Any]) -> list[str]:
        stated = release.params.universe.items
        same = stated in (None, read_labels(release.db, release.view("universe")))
        return [] if same else ["the parameters list other items"]

    return release.list_checks({"the universe is that of the parameters": wrong_items})


def compare_universe(release: CheckedRelease[SetValued, Any], source: Records) -> list[Check]:
    """Return the check that the published items are those of the specification and its source.

    A private release reveals nothing of single records that could be checked.
    """

    def other_items(_: CheckedRelease[SetValued, Any]) -> list[str]:
        stated = read_labels(release.db, release.view("universe"))
        wrong = stated != tuple(source.labels)
        return [f"stated {len(stated)} items, the source has {len(source.labels)}"] if wrong else []

    return release.list_checks({"the universe is the specification's": other_items})


# Views ----------------------------------------------------------------------------------------------------------------

HALF = 0.5 + 1e-6  # most that a running total of rounded counts may differ from that of the fitted table


def check_views(release: ViewRelease) -> list[Check]:
    """Return the checks that read nothing but the release: budgets, tables, items, facts and synthetic sets."""
    params = release.params
    named: dict[str, Callable[[PublishedViews], list[str]]] = {
        "budgets of items and tables add up to epsilon": lambda found: wrong_total_budget(
            release, found.noisy_tables, found.counts.rule.budget if found.counts else Fraction(0)
        ),
        "views are of the declared items and of those with the largest counts": lambda found: wrong_items(
            params, found
        ),
        "tables and their budgets follow from the specification and the published lengths": lambda found: (
            differ_from_due(
                found.noisy_tables,
                due_tables(
                    params,
                    len(found.labels),
                    found.codes.tolist(),
                    declared_sets(params, found.labels),
                    found.counts,
                ),
            )
        ),
        "scales are those of the budgets": lambda found: wrong_table_scales(release, found.noisy_tables),
        "synthetic records are those of the fitted table": wrong_population,
        "facts are those of the tables": lambda found: wrong_facts(
            release,
            list_facts(
                params,
                found.model.squares,
                found.counts,
                len(found.labels),
                len(found.codes),
                found.rows["sets"].num_rows,
            ),
        ),
    }
    read = partial(read_views, release.db, release.database, params, release.roles)
    return [
        *check_published(release, "tables", read, named),
        *check_universe(release),
        *release.check_orders(ORDERS),
        *release.list_checks({OPENDP_CHECK: unknown_opendp}),
    ]


def wrong_items(params: SetValued, published: PublishedViews) -> list[str]:
    """Return a fault unless the noisy tables have the items that they must have.

    These are the declared items, and then those with the largest published counts.
    """
    due = list(range(len(published.labels)))
    if published.counts is not None:
        due = choose_items(published.counts, params, named_first(declared_sets(params, published.labels)))
    return [] if published.codes.tolist() == due else ["the items of views are not those that are due"]


def wrong_population(published: PublishedViews) -> list[str]:
    """Return a fault unless the synthetic sets are, up to rounding, what ``fit_population`` makes of the tables."""
    wrong = [] if (published.synthetic_sets.weights > 0).all() else ["a set has no records"]
    squares, population = published.model.squares, published.model.population
    deviation = np.abs(np.cumsum(population) - np.cumsum(fit_population(squares, population.ndim)))
    slack = HALF + 1e-9 * max(squares.total, 0.0)
    return wrong if (deviation <= slack).all() else [*wrong, f"a running total is off by {deviation.max():.1f}"]
