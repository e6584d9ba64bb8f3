"""Check a contingency table by marginals or by DiffPart.

The checks rest on the published tables alone: exact fractions, integers and SQL.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import column, table
from privsql.errors import UsageError
from privsql.mechanisms.diffpart.tables import taxonomy_table
from privsql.mechanisms.diffpart.tree import TreeRule, context_free_parents, leaf_values
from privsql.mechanisms.dp import checks
from privsql.mechanisms.dp import mechanism as private
from privsql.mechanisms.dp.tables import TABLE_ORDERS, differ_in_scale
from privsql.mechanisms.marginals import domains
from privsql.mechanisms.marginals import plan as marginals
from privsql.mechanisms.marginals.domains import ADDED, UNITS
from privsql.mechanisms.marginals.plan import PublishedMarginals
from privsql.model.checks import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.attacks.scene import AttackView, Finding
    from privsql.attacks.suite import AttackContext
    from privsql.engine.sqlfiles import Field
    from privsql.mechanisms.diffpart.tree import PartitionTree, Taxonomy
    from privsql.mechanisms.dp.checks import TreeCheck
    from privsql.mechanisms.dp.joint_model import Model
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts, TreeFacts
    from privsql.mechanisms.marginals.plan import Rule
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    CellRelease = CheckedRelease[Contingency, TreeFacts]
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
        "tables and choices spend epsilon together": lambda release, found: checks.wrong_total_budget(
            release, found.tables, sum((one.table.budget for one in found.sums), start=Fraction(0))
        ),
        "tables are those of the public rule": lambda _, found: checks.differ_from_due(
            found.tables, found.rule.due_tables(found.tables)
        ),
        "scales are those of the budgets": lambda release, found: checks.wrong_table_scales(release, found.tables),
        "domains are those of the parameters": _wrong_domains,
        "facts are those of the tables": _wrong_facts,
        "rows fit the tables": _wrong_rows,
    }
    return [
        *checks.check_published(release, "tables", _read_marginals, named),
        *release.check_orders(TABLE_ORDERS | {"sums": ["number"]}),
        *release.list_checks(
            {
                "rows of domains lie in order": in_order(release.view("domains"), ["place", "code"], strict=False),
                "rows lie in order, once each": in_order(release.view("rows"), release.roles.sa_keys, strict=True),
                private.OPENDP_CHECK: private.unknown_opendp,
            }
        ),
    ]


def marginal_source_checks(release: MarginalRelease, source: Records, params: Contingency) -> list[Check]:
    """Return the checks against the source: of its records a private release tells nothing that could be checked."""

    def compare_domains(_: MarginalRelease) -> list[str]:
        due = marginals.domains_table(domains.read_columns(release.db, source, params))
        return checks.differ_from_specification(release.read_view("domains"), due)

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
            column_ = domains.ContingencyColumn(field, None, (), stated_domain.bins)
            due = [row | {"place": place} for row in marginals.domains_table([column_]).to_pylist()]
            wrong += [] if published_rows == due else [f"column {field.name}"]
            continue
        *values, other, null = (row["value"] for row in published_rows)
        items = None if stated_domain is None else stated_domain.items
        listed = values if stated_domain is None or items is None else list(stated_domain.shorten(items))
        same = values == listed and None not in values
        same = same and len(set(values)) == len(values) == published.rule.sizes[place] - ADDED
        if not same or (other, null) != domains.added_values(field.type, values):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_facts(release: MarginalRelease, published: PublishedMarginals) -> list[str]:
    """Return facts that are not those of the tables."""
    wrong = private.wrong_facts(release, marginal_facts(published.rule, published.tables, published.model))
    return wrong + differ_in_scale(published.model, release.facts.errors)


def _wrong_rows(release: MarginalRelease, published: PublishedMarginals) -> list[str]:
    """Return whether the rows hold what is in no domain, or fit the tables otherwise than the facts say."""
    rows, model, facts = release.read_view("rows"), published.model, release.facts
    weights = rows["weight"].to_numpy()
    if len(rows) != facts.synthetic or not np.isfinite(weights).all() or (weights < 0).any():
        return [f"{len(rows)} rows, stated {facts.synthetic}; or a weight that is none"]
    codes = marginals.codes_of(release.db, release.manifest, release.view("rows"), release.view("domains"))
    if (codes < 0).any():
        return ["a row holds a value that is in no domain"]
    wrong = []
    if abs(float(weights.sum()) - model.total) > max(CLOSE * model.total, CLOSE):
        wrong.append(f"the rows weigh {weights.sum():.1f}, the tables {model.total:.1f}")
    measured = marginals.mean_total_variation(model, codes, weights)
    if abs(measured - facts.distance) > CLOSE:
        wrong.append(f"distance: stated {facts.distance}, found {measured}")
    return wrong


def marginal_facts(rule: Rule, tables: Sequence[NoisyTable], model: Model) -> dict[str, Any]:
    """Return what the manifest states of the tables, and of the model that fits them."""
    return {
        "values": sum(rule.sizes),
        "cliques": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
        "estimated_records": round(model.total, 1),
        "not_covered": rule.params.not_covered(rule.names),
    }


def attack_marginals(learnt: AttackContext[AttackView]) -> list[Finding]:
    """Find the belief that a record is in the tables, by their counts and sums.

    The noise of a sum spends ``UNITS`` / scale on a record, or the square of that / 2 where it is Gaussian.
    """
    view = learnt.view
    scales = [float(one) for (one,) in view.db.rows(exp.select("scale").from_(table(marginals.SUMS, view.database)))]
    concentrated = Fraction(view.manifest.parameters.get("delta", "0")) > 0
    spent = sum((UNITS / one) ** 2 / 2 if concentrated else UNITS / one for one in scales)
    return checks.attack_noisy_tables(view, spent)


# DiffPart -------------------------------------------------------------------------------------------------------------


def make_rule(params: Contingency) -> TreeRule:
    """Return the public rule of a tree."""
    return TreeRule(
        private.total_budget(params),
        passing=params.tau,
        passing_leaves=params.tau_cells,
        choice=params.choice,
        score=params.score,
    )


def tree_checks(release: CellRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, TreeCheck] = {
        "taxonomies are stated, or group their values by fan-out": _wrong_taxonomies,
        "cells are the leaves of the tree": _wrong_cells,
    }
    facts = partial(tree_facts, release.params, release.manifest.sensitive)
    leaves = "cells", [*release.roles.sa_keys, "part"]
    return checks.check_tree(release, lambda _: make_rule(release.params), facts, named, leaves)


def tree_source_checks(release: CellRelease, source: Records, params: Contingency) -> list[Check]:
    """Return the checks against the source: of its records a private release tells nothing that could be checked."""

    def compare_taxonomies(_: CellRelease) -> list[str]:
        due = domains.read_tree_domains(release.db, source, params)
        return checks.differ_from_specification(release.read_view("taxonomy"), taxonomy_table(due.taxonomy, due.names))

    return release.list_checks({"taxonomies are the specification's": compare_taxonomies})


def _wrong_taxonomies(release: CellRelease, _tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return columns whose taxonomy has other groups or unnamed nodes; a stated one has a name for every node."""
    names, wrong = release.read_view("taxonomy")["value"].to_pylist(), []
    if len(taxonomy.roots) != len(release.manifest.sensitive):
        return ["there is not one taxonomy for each column"]
    for number, field in enumerate(release.manifest.sensitive):
        domain, nodes = release.params.domain(field.name), np.flatnonzero(taxonomy.column == number)
        values = taxonomy.values(number)
        texts, groups = (
            [names[node] for node in values.tolist()],
            [names[node] for node in nodes[len(values) :].tolist()],
        )
        *listed, other, null = texts
        if domain is not None and domain.taxonomy is not None:
            right = None not in groups
        else:
            expected = context_free_parents(len(values), release.params.fan_out)
            shifted = np.where(expected < 0, -1, expected + nodes[0])
            right = np.array_equal(shifted, taxonomy.parent[nodes]) and not any(groups)
        if domain is not None and domain.items is not None:
            right = right and listed == [*domain.shorten(domain.items)]
        right = right and None not in listed and len(set(listed)) == len(listed)
        if not right or (other, null) != domains.added_values(field.type, [text or "" for text in listed]):
            wrong.append(f"column {field.name}")
    return wrong


def tree_facts(params: Contingency, fields: Sequence[Field], tree: PartitionTree, taxonomy: Taxonomy) -> dict[str, Any]:
    """Return what the manifest states of a tree over some columns."""
    return tree.facts | {
        "values": int((taxonomy.height == 0).sum()),
        "cells": len(tree.leaves),
        "not_covered": params.not_covered(field.name for field in fields),
    }


def _wrong_cells(release: CellRelease, tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return cells whose values are not those of their leaf."""
    names = release.read_view("taxonomy")["value"].to_pylist()
    texts = [exp.cast(item, "VARCHAR") for item in release.roles.sa_columns()]
    rows = release.db.rows(exp.select(column("part"), *texts).from_(release.view("cells")))
    which, nodes = leaf_values(tree, taxonomy)
    due: dict[int, list[str | None]] = {}
    for part, node in zip(tree.leaves[which].tolist(), nodes.tolist(), strict=True):
        due.setdefault(part, []).append(names[node])
    stated = {part: values for part, *values in rows}
    if len(stated) < len(rows):
        return ["a part stands twice"]
    return [f"part {part}" for part in stated.keys() | due.keys() if stated.get(part) != due.get(part)]
