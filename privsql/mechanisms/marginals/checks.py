"""Check a release of marginals from its tables alone: exact fractions, integers and SQL."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.engine.files import fold_name
from privsql.errors import UsageError
from privsql.mechanisms.dp.checks import (
    OPENDP_CHECK,
    check_published,
    differ_from_due,
    differ_from_specification,
    unknown_opendp,
    wrong_facts,
    wrong_table_scales,
    wrong_total_budget,
)
from privsql.mechanisms.dp.sum_errors import differ_in_scale
from privsql.mechanisms.dp.tables import TABLE_ORDERS
from privsql.mechanisms.marginals.domains import ADDED, ContingencyColumn, added_values, read_columns
from privsql.mechanisms.marginals.tables import (
    PublishedMarginals,
    codes_of,
    domains_table,
    list_marginal_facts,
    mean_total_variation,
)
from privsql.model.checks import Check, CheckedRelease, in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    MarginalRelease = CheckedRelease[Contingency, MarginalFacts]
    MarginalCheck = Callable[[MarginalRelease, "PublishedMarginals"], list[str]]


# Marginals ------------------------------------------------------------------------------------------------------------

CLOSE = 1e-6  # of figures that doubles come to


def require_domains(manifest: Manifest, params: Contingency) -> None:
    """Raise ``UsageError`` unless a release has the columns of its domains."""
    names = {fold_name(field.name) for field in manifest.sensitive}
    strange = manifest.roles.hold_sets or manifest.quasi_identifiers
    if not names or strange or names != set(map(fold_name, params.domains)):
        raise UsageError("its manifest states other columns than those of its domains")


def marginal_checks(release: MarginalRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, MarginalCheck] = {
        "tables and choices spend epsilon together": lambda release, found: wrong_total_budget(
            release, found.tables, sum((one.table.budget for one in found.sums), start=Fraction(0))
        ),
        "tables are those of the public rule": lambda _, found: differ_from_due(
            found.tables, found.rule.due_tables(found.tables)
        ),
        "scales are those of the budgets": lambda release, found: wrong_table_scales(release, found.tables),
        "domains are those of the parameters": _wrong_domains,
        "facts are those of the tables": _wrong_facts,
        "rows fit the tables": _wrong_rows,
    }
    return [
        *check_published(release, "tables", _read_marginals, named),
        *release.check_orders(TABLE_ORDERS | {"sums": ["number"]}),
        *release.list_checks(
            {
                "rows of domains lie in order": in_order(release.view("domains"), ["place", "code"], strict=False),
                "rows lie in order, once each": in_order(release.view("rows"), release.roles.sa_keys, strict=True),
                OPENDP_CHECK: unknown_opendp,
            }
        ),
    ]


def marginal_source_checks(release: MarginalRelease, source: Records, params: Contingency) -> list[Check]:
    """Return the checks against the source: of its records a private release tells nothing that could be checked."""

    def compare_domains(_: MarginalRelease) -> list[str]:
        due = domains_table(read_columns(release.db, source, params))
        return differ_from_specification(release.read_view("domains"), due)

    return release.list_checks({"domains are the specification's": compare_domains})


def _read_marginals(release: MarginalRelease) -> tuple[PublishedMarginals]:
    rows = {name: release.read_view(name.removeprefix("privsql_")) for name in PublishedMarginals.ORDERS}
    return (PublishedMarginals.read(release.params, release.manifest.sensitive, rows),)


def _wrong_domains(release: MarginalRelease, published: PublishedMarginals) -> list[str]:
    """Return columns whose published values are not those that the parameters list, if they do."""
    rows, wrong = release.read_view("domains").to_pylist(), []
    for place, field in enumerate(release.manifest.sensitive):
        stated_domain = release.params.domain(field.name)
        published_rows = [row for row in rows if row["place"] == place]
        if stated_domain is not None and stated_domain.bins is not None:
            column_ = ContingencyColumn(field, None, (), stated_domain.bins)
            due = [row | {"place": place} for row in domains_table([column_]).to_pylist()]
            wrong += [] if published_rows == due else [f"column {field.name}"]
            continue
        *values, other, null = (row["value"] for row in published_rows)
        items = None if stated_domain is None else stated_domain.items
        listed = values if stated_domain is None or items is None else list(stated_domain.shorten(items))
        same = values == listed and None not in values
        same = same and len(set(values)) == len(values) == published.rule.sizes[place] - ADDED
        if not same or (other, null) != added_values(field.type, values):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_facts(release: MarginalRelease, published: PublishedMarginals) -> list[str]:
    """Return facts that are not those of the tables."""
    wrong = wrong_facts(release, list_marginal_facts(published.rule, published.tables, published.model))
    return wrong + differ_in_scale(published.model, release.facts.errors)


def _wrong_rows(release: MarginalRelease, published: PublishedMarginals) -> list[str]:
    """Return whether the rows hold what is in no domain, or fit the tables otherwise than the facts say."""
    rows, model, facts = release.read_view("rows"), published.model, release.facts
    weights = rows["weight"].to_numpy()
    if len(rows) != facts.synthetic or not np.isfinite(weights).all() or (weights < 0).any():
        return [f"{len(rows)} rows, stated {facts.synthetic}; or a weight that is none"]
    codes = codes_of(release.db, release.manifest, release.view("rows"), release.view("domains"))
    if (codes < 0).any():
        return ["a row holds a value that is in no domain"]
    wrong = []
    if abs(float(weights.sum()) - model.total) > max(CLOSE * model.total, CLOSE):
        wrong.append(f"the rows weigh {weights.sum():.1f}, the tables {model.total:.1f}")
    measured = mean_total_variation(model, codes, weights)
    if abs(measured - facts.distance) > CLOSE:
        wrong.append(f"distance: stated {facts.distance}, found {measured}")
    return wrong
