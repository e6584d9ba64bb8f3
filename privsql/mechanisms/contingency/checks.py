"""Check a contingency table by marginals or by DiffPart.

The checks rest on the published tables alone: exact fractions, integers and SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import all_rows, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contingency import diffpart_tree, domains
from privsql.mechanisms.contingency.diffpart_tree import (
    context_free_parents,
    find_violations,
    fit_estimator,
    partition_nodes,
    read_taxonomy,
    read_tree,
    taxonomy_table,
)
from privsql.mechanisms.contingency.domains import other_value
from privsql.mechanisms.contingency.marginals import (
    DOMAINS,
    ROWS,
    Rule,
    codes_of,
    domains_table,
    mean_total_variation,
    read_domains,
)
from privsql.mechanisms.contingency.parameters import Contingency, MarginalFacts, TreeFacts
from privsql.mechanisms.contract import read_stated_parameters
from privsql.mechanisms.dp import checks
from privsql.mechanisms.dp.noisy_tables import Model
from privsql.mechanisms.dp.noisy_tables_release import read_noisy_tables
from privsql.model.manifest import Check, VerifiedBound, count_combinations, differing_combinations, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from privsql.engine.database import Relations
    from privsql.mechanisms.contingency.diffpart_tree import CellTree, ColumnTaxonomy
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.dp.noisy_tree import Ints
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

    TreeCheck = Callable[[CellTree, ColumnTaxonomy, Contingency], list[str]]

# Marginals ------------------------------------------------------------------------------------------------------------
# The checks of marginals: exact fractions and integers of the published tables, and rows that fit them.

SQL: tuple[str, ...] = ("core/", "contingency/", "verify/")
CLOSE = 1e-6  # of figures that doubles come to


@dataclass(frozen=True)
class PublishedMarginals:
    """What a release holds: its parameters, its rule, its noisy tables and its model."""

    params: Contingency
    rule: Rule
    tables: list[NoisyTable]

    @cached_property
    def model(self) -> Model:
        """Fitted anew."""
        return Model(self.tables, self.rule.sizes)


def read_marginal_parameters(manifest: Manifest) -> Contingency:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    params = read_stated_parameters(manifest, MarginalFacts, Contingency, "marginals")
    names = {fold_name(field.name) for field in manifest.sensitive}
    if (
        not names
        or manifest.roles.hold_sets
        or manifest.quasi_identifiers
        or names != set(map(fold_name, params.domains))
    ):
        raise UsageError("its manifest states other columns than those of its domains")
    if params.algorithm != manifest.algorithm:
        raise UsageError("its manifest states two algorithms")
    return params


def marginal_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles = manifest.roles
    checks.name_views(db, database, DOMAINS)
    db.create_view(
        "v_rows", exp.select(*roles.sa_in(), *roles.by_sa.select_columns("weight")).from_(table(ROWS, database))
    )
    named: dict[str, Callable[[PublishedMarginals], list[str]]] = {
        "tables and choices spend epsilon together": _wrong_total_budget,
        "tables are those of the public rule": lambda found: checks.differ_from_due(
            found.tables, found.rule.due_tables(found.tables)
        ),
        "scales are those of the budgets": lambda found: checks.wrong_table_scales(db, found.tables),
        "domains are those of the parameters": partial(_wrong_domains, db, manifest),
        "facts are those of the tables": partial(_wrong_facts, manifest),
        "rows fit the tables": partial(_wrong_rows, db, manifest),
    }
    return [
        *checks.check_tables(partial(_read_marginals, db, manifest), named),
        Check("rows of domains lie in order", in_order(temp_table("v_domains"), ["place", "code"], strict=False)),
        Check("rows lie in order, once each", in_order(temp_table("v_rows"), roles.sa_keys, strict=True)),
        private.known_opendp(manifest),
    ]


def marginal_bounds(_db: Relations, manifest: Manifest) -> list[VerifiedBound]:
    """What all tables spend."""
    return private.list_epsilon_bound(read_marginal_parameters(manifest).epsilon)


def marginal_source_checks(db: Relations, manifest: Manifest, source: Records, params: Contingency) -> list[Check]:
    """The checks against the source: of its records a private release tells nothing that could be checked."""
    return [
        Check(
            "parameters are those of the specification",
            partial(private.differ_from_spec, read_marginal_parameters(manifest), params),
        ),
        Check("domains are the specification's", partial(_other_domains, db, source, params)),
    ]


def _wrong_total_budget(published: PublishedMarginals) -> list[str]:
    return checks.wrong_total_budget(published.tables, published.params.epsilon)


def _read_marginals(db: Relations, manifest: Manifest) -> PublishedMarginals:
    params, names = read_marginal_parameters(manifest), tuple(field.name for field in manifest.sensitive)
    sizes = read_domains(db.arrow(all_rows(temp_table("v_domains"))), len(names))
    tables = read_noisy_tables(
        db.arrow(all_rows(temp_table("v_cliques"))), db.arrow(all_rows(temp_table("v_marginals"))), names, sizes
    )
    return PublishedMarginals(params, Rule(params, names, sizes), tables)


def _wrong_domains(db: Relations, manifest: Manifest, published: PublishedMarginals) -> list[str]:
    """Columns whose published values are not those that the parameters list, if they do."""
    rows, wrong = db.arrow(all_rows(temp_table("v_domains"))).to_pylist(), []
    for place, field in enumerate(manifest.sensitive):
        stated_domain = published.params.domain(field.name)
        published_rows = [row for row in rows if row["place"] == place]
        if stated_domain is not None and stated_domain.bins is not None:
            column_ = domains.ContingencyColumn(field, None, (), stated_domain.bins)
            due = [row | {"place": place} for row in domains_table([column_]).to_pylist()]
            wrong += [] if published_rows == due else [f"column {field.name}"]
            continue
        *values, other = (row["value"] for row in published_rows)
        listed = values if stated_domain is None or stated_domain.items is None else list(stated_domain.items)
        same = values == listed if field.type == "VARCHAR" else len(values) == len(listed)
        same = same and None not in values and len(set(values)) == len(values) == published.rule.sizes[place] - 1
        if not same or other != domains.other_value(field.type, values):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_facts(manifest: Manifest, published: PublishedMarginals) -> list[str]:
    """Facts that are not those of the tables."""
    extra = {
        "not_covered": published.params.not_covered(field.name for field in manifest.sensitive),
        "estimated_records": rounded_total(published.model),
    }
    return private.wrong_facts(manifest, state_marginal_facts(published.rule, published.tables) | extra)


def _wrong_rows(db: Relations, manifest: Manifest, published: PublishedMarginals) -> list[str]:
    """Whether the rows hold what is in no domain, or fit the tables otherwise than the facts say."""
    rows, model = db.arrow(all_rows(temp_table("v_rows"))), published.model
    weights = rows["weight"].to_numpy()
    if len(rows) != manifest.facts["synthetic"] or not np.isfinite(weights).all() or (weights < 0).any():
        return [f"{len(rows)} rows, stated {manifest.facts['synthetic']}; or a weight that is none"]
    codes = codes_of(db, manifest, temp_table("v_rows"), temp_table("v_domains"))
    if (codes < 0).any():
        return ["a row holds a value that is in no domain"]
    wrong = []
    if abs(float(weights.sum()) - model.total) > max(CLOSE * model.total, CLOSE):
        wrong.append(f"the rows weigh {weights.sum():.1f}, the tables {model.total:.1f}")
    measured_distance, stated_distance = mean_total_variation(model, codes, weights), manifest.facts["distance"]
    return (
        wrong
        if abs(measured_distance - stated_distance) <= CLOSE
        else [*wrong, f"distance: stated {stated_distance}, found {measured_distance}"]
    )


def state_marginal_facts(rule: Rule, tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """What the manifest states of the tables."""
    return {
        "values": sum(rule.sizes),
        "cliques": len(tables),
        "chosen": sum(one.choice is not None for one in tables),
        "cells": sum(one.counts.size for one in tables),
    }


def rounded_total(model: Model) -> float:
    """The number of records, as the manifest states it."""
    return round(model.total, 1)


def _other_domains(db: Relations, source: Records, params: Contingency) -> list[str]:
    columns = domains.read_columns(db, source, params)
    expected = domains_table(columns).to_pylist()
    result = db.arrow(all_rows(temp_table("v_domains"))).to_pylist()
    return [] if result == expected else [f"stated {len(result)} values, the specification has {len(expected)}"]


# DiffPart -------------------------------------------------------------------------------------------------------------
# The checks of a contingency table. They rest on the published tables alone: exact fractions, integers and SQL.


def read_tree_parameters(manifest: Manifest) -> Contingency:
    """The parameters of a release; ``UsageError`` if these or its facts are not what such a release states."""
    params = read_stated_parameters(manifest, TreeFacts, Contingency, "tree")
    names = {fold_name(field.name) for field in manifest.sensitive}
    if (
        not names
        or manifest.roles.hold_sets
        or manifest.quasi_identifiers
        or names != set(map(fold_name, params.domains))
    ):
        raise UsageError("its manifest states other columns than those of its domains")
    return params


def tree_checks(db: Relations, manifest: Manifest, database: str | None) -> list[Check]:
    """The checks that need the release alone; its tables are read from ``database``."""
    roles, keys = manifest.roles, manifest.roles.sa_keys
    for view, name, own in (("counts", "cells", ["count"]), ("cells", "privsql_cells", ["part", "weight"])):
        rows = exp.select(*roles.sa_in(), *roles.by_sa.select_columns(*own))
        db.create_view(f"v_{view}", rows.from_(table(name, database)))
    for name in ("tree", "taxonomy"):
        db.create_view(f"v_{name}", all_rows(table(f"privsql_{name}", database)))
    named: dict[str, TreeCheck] = {
        "choices and counts of every path spend at most epsilon": _wrong_paths,
        "sizes reach thresholds that depend on no data": partial(_wrong_thresholds, db),
        "scales are those of the budgets": partial(checks.wrong_tree_scales, db),
        "taxonomies are stated, or group their values by fan-out": partial(_wrong_taxonomies, db, manifest),
        "facts are those of the tree": partial(_wrong_tree_facts, manifest),
        "cells are leaves of the tree, or stand for what a part lost": partial(_wrong_cells, db, manifest),
        "weights are those of the fitted tree": partial(_wrong_weights, db, manifest),
    }
    cells, leaf = temp_table("v_cells"), roles.sa_columns("c")
    db.create_view(
        "v_leaf_cells", fill("contingency/leaf_cells", {"cells": cells, "tree": temp_table("v_tree"), "columns": leaf})
    )
    columns = [*roles.sa_columns(), column("count")]
    counts = differing_combinations(
        columns,
        count_combinations(temp_table("v_counts"), columns),
        count_combinations(temp_table("v_leaf_cells"), columns),
    )
    lie = [Check("cells lie in order", in_order(cells, ["part", *keys, "weight"], strict=False))]
    orders = {"tree": ["part"], "taxonomy": ["node"], "counts": list(keys)}
    return [
        *checks.check_tree(partial(_read_tree, db, manifest), named),
        *checks.check_tree_tables(manifest, counts, lie, orders),
    ]


def tree_bounds(_db: Relations, manifest: Manifest) -> list[VerifiedBound]:
    """What a path of the tree spends."""
    return private.list_epsilon_bound(read_tree_parameters(manifest).epsilon)


def tree_source_checks(db: Relations, manifest: Manifest, source: Records, params: Contingency) -> list[Check]:
    """The checks against the source: of its records a private release tells nothing that could be checked."""
    return [
        Check(
            "parameters are those of the specification",
            partial(private.differ_from_spec, read_tree_parameters(manifest), params),
        ),
        Check("taxonomies are the specification's", partial(_same_taxonomies, db, source, params)),
    ]


def _read_tree(db: Relations, manifest: Manifest) -> tuple[CellTree, ColumnTaxonomy, Contingency]:
    taxonomy = read_taxonomy(db.arrow(all_rows(temp_table("v_taxonomy"))))
    if len(taxonomy.roots) != len(manifest.sensitive):
        raise ValueError("there is not one taxonomy for each column")
    return read_tree(db.arrow(all_rows(temp_table("v_tree"))), taxonomy), taxonomy, read_tree_parameters(manifest)


def _wrong_paths(tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency) -> list[str]:
    return [f"part {row} {what}" for row, what in find_violations(tree, taxonomy, params)]


def _wrong_thresholds(db: Relations, tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency) -> list[str]:
    """Rows whose threshold is not what parameters, budget and taxonomy make it, or whose size is below it."""

    def is_least(least: int, spent: Fraction, node: int, last: bool) -> bool:
        return checks.is_cutoff(least, int(taxonomy.degree[node]), params.tau_cells if last else params.tau, spent)

    return checks.wrong_thresholds(db, tree, is_least)


def _wrong_taxonomies(
    db: Relations, manifest: Manifest, _tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency
) -> list[str]:
    """Columns whose taxonomy has other groups or unnamed nodes; a stated one has a name for every node."""
    names, wrong = checks.read_published(db, "value", "v_taxonomy"), []
    for number, field in enumerate(manifest.sensitive):
        domain, nodes = params.domain(field.name), np.flatnonzero(taxonomy.column == number)
        values = taxonomy.values(number)
        named = [names[node] is not None for node in nodes.tolist()]
        texts = [names[node] for node in values.tolist()]
        named[len(values) - 1] = texts[-1] == other_value(field.type, [text or "" for text in texts[:-1]])
        if domain is not None and domain.taxonomy is not None:
            right = all(named)
        else:
            expected = context_free_parents(len(values), params.fan_out)
            shifted = np.where(expected < 0, -1, expected + nodes[0])
            right = np.array_equal(shifted, taxonomy.parent[nodes]) and sum(named) == len(values)
        if not right or None in texts[:-1] or len(set(texts)) < len(texts):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_tree_facts(manifest: Manifest, tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency) -> list[str]:
    extra = {
        "values": int((taxonomy.height == 0).sum()),
        "cells": int(tree.leaf.sum()),
        "not_covered": params.not_covered(field.name for field in manifest.sensitive),
    }
    return checks.wrong_facts(manifest, tree, params.algorithm, extra)


def _read_cell_nodes(db: Relations, manifest: Manifest, taxonomy: ColumnTaxonomy) -> tuple[Ints, Ints]:
    """Part and value nodes of every row of ``privsql_cells``: (n,), (n, d); ``KeyError`` for a value without a node."""
    names = checks.read_published(db, "value", "v_taxonomy")
    texts = [exp.cast(item, "VARCHAR") for item in manifest.roles.sa_columns()]
    rows = db.rows(exp.select(column("part"), *texts).from_(temp_table("v_cells")))
    known = [{names[node]: node for node in taxonomy.values(n).tolist()} for n in range(len(texts))]
    nodes = [[one[value] for one, value in zip(known, row[1:], strict=True)] for row in rows]
    part = np.array([-1 if row[0] is None else row[0] for row in rows], dtype=np.int64)
    return part, np.array(nodes, dtype=np.int64).reshape(-1, len(texts))


def _wrong_cells(
    db: Relations, manifest: Manifest, tree: CellTree, taxonomy: ColumnTaxonomy, _asked: Contingency
) -> list[str]:
    """Cells that are not their leaf's, or lie outside of the part for which they stand, or in one that it kept."""
    part, nodes = _read_cell_nodes(db, manifest, taxonomy)
    at = partition_nodes(tree, taxonomy)
    if len(part) and not 0 <= part.min() <= part.max() < len(tree):
        return ["a cell belongs to no part of the tree"]
    inside = (taxonomy.path[nodes, taxonomy.depth[at[part]]] == at[part]).all(axis=1)
    present = set(zip(tree.parent.tolist(), tree.node.tolist(), strict=True))
    expanded = np.maximum(tree.next[part], 0)
    value_nodes = nodes[np.arange(len(part)), taxonomy.column[expanded]]
    child = taxonomy.path[value_nodes, taxonomy.depth[expanded] + 1]
    again = np.array([pair in present for pair in zip(part.tolist(), child.tolist(), strict=True)], dtype=bool)
    wrong = ~inside | (again & ~tree.leaf[part])
    number = np.bincount(part, minlength=len(tree))
    return [
        *(f"a cell of part {row}" for row in sorted(set(part[wrong].tolist()))),
        *(f"part {row}: {number[row]} cells" for row in np.flatnonzero(tree.leaf & (number != 1)).tolist()),
    ]


def _wrong_weights(
    db: Relations, manifest: Manifest, tree: CellTree, taxonomy: ColumnTaxonomy, _asked: Contingency
) -> list[str]:
    """Parts whose cells do not weigh what the fitted tree has there."""
    rows = db.rows(fill("contingency/numbers", {"cells": temp_table("v_cells")}))
    return checks.wrong_weights(manifest, tree, fit_estimator(tree, taxonomy).fit.sizes, rows)


def _same_taxonomies(db: Relations, source: Records, params: Contingency) -> list[str]:
    result = diffpart_tree.read_tree_domains(db, source, params)
    expected = taxonomy_table(result.taxonomy, result.names).to_pylist()
    stated = db.arrow(all_rows(temp_table("v_taxonomy"))).to_pylist()
    return [] if stated == expected else [f"stated {len(stated)} nodes, the specification has {len(expected)}"]
