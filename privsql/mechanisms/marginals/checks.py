"""Check a release of marginals by exact fractions, integers and SQL."""

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
    list_facts,
    list_points,
    mean_total_variation,
    read_codes,
)
from privsql.model.checks import Check, CheckedRelease, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.mechanisms.dp.joint_model import Model
    from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    MarginalRelease = CheckedRelease[Contingency, MarginalFacts]


CLOSE = 1e-6  # largest difference between two computations of the same figure in doubles


def require_domains(manifest: Manifest, params: Contingency) -> None:
    """Raise ``UsageError`` unless the release has exactly the columns of ``domains``."""
    names, domains = {fold_name(field.name) for field in manifest.sensitive}, set(map(fold_name, params.domains))
    strange = manifest.roles.hold_sets or manifest.quasi_identifiers
    if not names or strange or names != domains:
        wrong = ", ".join(sorted(names ^ domains)) or "quasi-identifiers or item sets"
        raise UsageError(
            f"its manifest states {wrong} beside or without parameters.domains, which has to name each column of a "
            "table of categories; the release was changed or is none of privsql, so ask its publisher for it again"
        )


def check_marginals(release: MarginalRelease) -> list[Check]:
    """Return the checks that read nothing but the release: its budgets, tables, domains, facts and weighted rows."""

    def read() -> PublishedMarginals:
        rows = {name: release.read_view(name.removeprefix("privsql_")) for name in PublishedMarginals.ORDERS}
        return PublishedMarginals.read(release.params, release.manifest.sensitive, rows)

    named: dict[str, Callable[[PublishedMarginals], list[str]]] = {
        "tables and choices spend epsilon together": lambda found: wrong_total_budget(
            release, found.tables, sum((one.table.budget for one in found.sums), start=Fraction(0))
        ),
        "tables are those of the public rule": lambda found: differ_from_due(
            found.tables, found.rule.due_tables(found.tables)
        ),
        "scales are those of the budgets": lambda found: wrong_table_scales(release, found.tables),
        "domains are those of the parameters": lambda found: _wrong_domains(release, found.rule.sizes),
        "facts are those of the tables": lambda found: [
            *wrong_facts(release, list_facts(found.rule, found.tables, found.model)),
            *differ_in_scale(found.model, release.facts.errors),
        ],
        "rows fit the tables": lambda found: _wrong_rows(release, found.model),
    }
    orders = {
        "rows of domains lie in order": in_order(release.view("domains"), ["place", "code"], strict=False),
        "rows lie in order, once each": in_order(release.view("rows"), release.roles.sa_keys, strict=True),
    }
    return [
        *check_published(release, "tables", read, named),
        *release.check_orders(TABLE_ORDERS | {"sums": ["number"]}),
        *release.list_checks({**orders, OPENDP_CHECK: unknown_opendp}),
    ]


def compare_domains(release: MarginalRelease, source: Records, params: Contingency) -> list[Check]:
    """Return the check that the published domains are those of the specification and its source.

    A private release reveals nothing of single records that could be checked.
    """

    def other_values(_: MarginalRelease) -> list[str]:
        due = list_points(read_columns(release.db, source, params))
        return differ_from_specification(release.read_view("domains"), due)

    return release.list_checks({"domains are the specification's": other_values})


def _wrong_domains(release: MarginalRelease, sizes: Sequence[int]) -> list[str]:
    """Return the columns whose published values are not those that the parameters list.

    If the values of a column come from a query, only the form of the published list is checked.
    """
    rows, wrong = release.read_view("domains").to_pylist(), []
    for place, field in enumerate(release.manifest.sensitive):
        domain = release.params.domain(field.name)
        own = [row for row in rows if row["place"] == place]
        if domain is not None and domain.bins is not None:
            due = list_points([ContingencyColumn(field, None, (), domain.bins)]).to_pylist()
            right = own == [row | {"place": place} for row in due]
        else:
            *values, other, null = (row["value"] for row in own)
            right = len(set(values)) == len(values) == sizes[place] - ADDED and None not in values
            right = right and (other, null) == added_values(field.type, values)
            if domain is not None and domain.items is not None:
                right = right and values == [*domain.shorten(domain.items)]
        wrong += [] if right else [f"column {field.name}"]
    return wrong


def _wrong_rows(release: MarginalRelease, model: Model) -> list[str]:
    """Return what is wrong with the published weighted rows, one line each.

    Each of their values must be in its column's domain. Their distance from the tables that the model estimates must be
    the one that the manifest states.
    """
    rows, facts = release.read_view("rows"), release.facts
    weights = rows["weight"].to_numpy()
    if len(rows) != facts.synthetic or not np.isfinite(weights).all() or (weights < 0).any():
        return [f"{len(rows)} rows, stated {facts.synthetic}; or a weight that is none"]
    codes = read_codes(release.db, release.manifest, release.view("rows"), release.view("domains"))
    if (codes < 0).any():
        return ["a row holds a value that is in no domain"]
    wrong = []
    if abs(float(weights.sum()) - model.total) > max(CLOSE * model.total, CLOSE):
        wrong.append(f"the rows weigh {weights.sum():.1f}, the tables {model.total:.1f}")
    measured = mean_total_variation(model, codes, weights)
    if abs(measured - facts.distance) > CLOSE:
        wrong.append(f"distance: stated {facts.distance}, found {measured}")
    return wrong
