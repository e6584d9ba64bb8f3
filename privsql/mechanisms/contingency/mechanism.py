"""Contingency tables as a ``Mechanism``: marginals and DiffPart, joined."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.question import group_terms, select_terms
from privsql.attacks.suite import Suite
from privsql.dp_random import noise_for, opendp_version
from privsql.engine.sqlfiles import Holes, all_of, column, fill, is_null, table, temp_table
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.contingency import diffpart_tree, marginals
from privsql.mechanisms.contingency.checks import (
    SQL,
    count_tables,
    demand_domains,
    marginal_checks,
    marginal_source_checks,
    rounded_total,
    tree_checks,
    tree_source_checks,
)
from privsql.mechanisms.contingency.diffpart_tree import (
    budget_shares,
    fit_estimator,
    grow_tree,
    impute_cells,
    partition_nodes,
    read_cells,
    read_taxonomy,
    read_tree,
    read_tree_domains,
    taxonomy_table,
    tree_table,
    tree_view,
)
from privsql.mechanisms.contingency.domains import evaluate_answers, read_coded_cells, read_columns
from privsql.mechanisms.contingency.marginals import (
    DOMAINS,
    Due,
    Rule,
    domains_table,
    marginal_view,
    mean_total_variation,
    measure_marginals,
    propose_marginals,
    synthesize_rows,
    write_rows,
)
from privsql.mechanisms.contingency.marginals_answers import MarginalAnswers
from privsql.mechanisms.contingency.parameters import (
    CellTreePlan,
    Contingency,
    MarginalFacts,
    MarginalPlan,
    TreeFacts,
)
from privsql.mechanisms.contract import CategoricalShape, Proposal, join_variants, weighted_only
from privsql.mechanisms.dp import noisy_tree, noisy_tree_release
from privsql.mechanisms.dp.checks import noisy_tables_adversary
from privsql.mechanisms.dp.noisy_tables import Model
from privsql.mechanisms.dp.noisy_tables_release import tables_structure, write_noisy_tables
from privsql.mechanisms.dp.noisy_tree_release import tree_structure
from privsql.mechanisms.private import (
    DAMAGED,
    RECORD,
    PrivateMechanism,
    refuse_damaged,
    write_release_table,
)
from privsql.model.manifest import same_nan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.keyed_random import Key
    from privsql.mechanisms.contingency.diffpart_tree import CellTree, Domains, StandIns
    from privsql.mechanisms.contingency.domains import ContingencyColumn
    from privsql.mechanisms.contract import ProfiledSource
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.dp.noisy_tree import Estimator, Ints
    from privsql.model.manifest import Estimate
    from privsql.model.records import Records

# Marginals ------------------------------------------------------------------------------------------------------------
# Differentially private marginals of a table as a mechanism (``contract``).


def plan_marginals(db: Relations, source: Records, params: Contingency) -> MarginalPlan:
    """Return what is known without looking at the records: tables, cells and budgets."""
    columns = read_columns(db, source, params)
    rule = _make_rule(columns, params)
    fixed = rule.fixed_tables()
    return MarginalPlan(
        epsilon=fraction_text(params.epsilon),
        values=sum(rule.sizes),
        columns=len(rule.sizes),
        workload=len(rule.workload_cliques),
        pairs=len(rule.candidate_pairs),
        cells=sum(map(rule.count_cells, [*(clique for clique, _, _ in fixed), *rule.candidate_pairs])),
        columns_budget=fraction_text(_sum_budgets(fixed, 1)),
        workload_budget=fraction_text(_sum_budgets(fixed, 2)),
        noise_of_columns=float(rule.column_noise),
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
    )


def publish_marginals(db: Relations, source: Records, params: Contingency, key: Key) -> MarginalFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    columns = read_columns(db, source, params)
    rule = _make_rule(columns, params)
    measured = measure_marginals(*read_coded_cells(db, source, columns), rule, noise)
    _require_information(rule, measured)
    model = Model(measured, rule.sizes)
    synthetic = synthesize_rows(model, key.random_generator("marginals", fraction_text(params.epsilon)))
    write_noisy_tables(db, measured, rule.names)
    write_release_table(db, DOMAINS, domains_table(columns))
    write_rows(db, source.roles.sensitive, columns, synthetic)
    return MarginalFacts(
        **count_tables(rule, measured),
        synthetic=len(synthetic[1]),
        distance=round(mean_total_variation(model, *synthetic), 6),
        estimated_records=rounded_total(model),
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
        noise=noise.origin,
        opendp=opendp_version(),
    )


def _require_information(rule: Rule, tables: Sequence[NoisyTable]) -> None:
    """``InfeasibleError`` where the columns' own tables hold more noise than records, unless that is wanted."""
    noise = rule.relative_noise(tables)
    if noise > 1 and not rule.params.allow_empty:
        raise InfeasibleError(
            f"the tables would be noise: on average {float(noise):.3g} times as much as there are records (about "
            f"{float(rule.noisy_total(tables)):,.0f}); a larger epsilon, fewer values or wider bins would help, and "
            "--allow-empty (allow_empty = true) publishes it all the same; epsilon "
            f"{fraction_text(rule.params.epsilon)} was "
            "drawn and is spent"
        )


def _sum_budgets(fixed: Sequence[Due], columns: int) -> Fraction:
    """Return what tables of one column, or of more, spend together."""
    return sum((spent for clique, spent, _ in fixed if min(len(clique), 2) == columns), start=Fraction(0))


def _make_rule(columns: Sequence[ContingencyColumn], params: Contingency) -> Rule:
    return Rule(params, tuple(one.field.name for one in columns), tuple(map(len, columns)))


MARGINAL_MECHANISM = PrivateMechanism(
    parameters=Contingency,
    facts=MarginalFacts,
    shape=CategoricalShape(lambda params: params.domains),
    sql=SQL,
    demand=demand_domains,
    plan=plan_marginals,
    publish=publish_marginals,
    layout=marginals.TABLES,
    views=weighted_only(marginal_view),
    checks=marginal_checks,
    source_checks=marginal_source_checks,
    answers=MarginalAnswers,
    evaluate=evaluate_answers,
    adversaries=Suite(adversaries=(noisy_tables_adversary(),)),
    structure=tables_structure,
    advice=("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one"),
    propose=propose_marginals,
)


# Answers of DiffPart --------------------------------------------------------------------------------------------------
# Answers from a noisy contingency table: by the sum of its counts, or from the tree with what was pruned.

BASELINE = (
    "estimate = sum of the counts of the published cells that meet the condition; it does not know of what was pruned, "
    "so it has no interval"
)
FORMULA = (
    "estimate = sum of the sizes of the cells that meet the condition, made consistent with all noisy sizes of the "
    "tree by least squares, and of the records of pruned partitions, as far as the cells that stand for them meet it"
)


class CellTreeAnswers(noisy_tree_release.NoisyTreeAnswers):
    """An open release that answers count queries over its columns; its tree is fitted once."""

    records = values = "privsql_cells"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @cached_property
    def fitted_estimator(self) -> Estimator:
        """The tree with consistent sizes."""
        tree, nodes = self._read_table("tree", "part"), self._read_table("taxonomy", "node")
        with refuse_damaged():
            taxonomy = read_taxonomy(nodes)
            return fit_estimator(read_tree(tree, taxonomy), taxonomy)

    @cached_property
    def _cells_by_part(self) -> NDArray[np.float64]:
        """Cells of each part, at least 1."""
        part_rows = exp.select(*self._roles.by_sa.select_columns("part", "weight"))
        cells = part_rows.from_(table("privsql_cells", self._database)).subquery("cells")
        rows = self._db.rows(fill("contingency/numbers", {"cells": cells}))
        result = np.ones(len(self.fitted_estimator.tree))
        for part, cells, _ in rows:
            if part is None or not 0 <= part < len(result):
                raise UsageError(f"{DAMAGED}: a cell belongs to no part of the tree")
            result[part] = cells
        return result

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        if query.lookups:
            raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")
        return super().make_statement(query, estimator)

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a published cell, or one that stands for others, has."""
        number = self._cells_by_part
        shares: dict[tuple[Any, ...], NDArray[np.float64]] = {} if query.groups else {(): np.zeros(len(number))}
        for *group, part, met in self._db.rows(self._matching_query(query)):
            key = tuple(same_nan(value) for value in group)
            shares.setdefault(key, np.zeros(len(number)))[part] += met / number[part]
        return [
            self._make_estimate(group, share, estimator, confidence, everything=query.is_total)
            for group, share in shares.items()
        ]

    def _matching_query(self, query: CountQuery) -> exp.Query:
        return fill(
            "contingency/met",
            {
                "cells": table("privsql_cells", self._database),
                "part": self._roles.by_sa.as_column("part"),
                "terms": select_terms(query, "sa"),
                "keys": [expression for _, expression in group_terms(query, "sa")],
                "condition": all_of([*query.filters["qi"], *query.filters["sa"]]),
            },
        )


# DiffPart -------------------------------------------------------------------------------------------------------------
# Differentially private contingency tables as a mechanism (``contract``): DiffPart's relational extension.

LEAVES = noisy_tree_release.Leaves("cells", is_null(column("expanded")), column("choice"))


def plan_tree(db: Relations, source: Records, params: Contingency) -> CellTreePlan:
    """Return what is known without looking at the records: values, expansions and the budget of the first one."""
    domains = read_tree_domains(db, source, params)
    height = domains.taxonomy.height[domains.taxonomy.roots]
    first = budget_shares(params, params.epsilon / 2, int(height.sum()), several=len(height) > 1)
    return CellTreePlan(
        epsilon=fraction_text(params.epsilon),
        values=sum(len(one.labels) for one in domains.columns),
        expansions=int(height.sum()),
        first_choice=fraction_text(first.choice),
        first_budget=fraction_text(first.inner),
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
    )


def propose_parameters(_: Relations, source: ProfiledSource) -> Proposal:
    """An epsilon of 1, the values that occur as the domains."""
    return Proposal(
        {
            "kind": "contingency",
            "algorithm": "diffpart",
            "epsilon": "1",
            "domains": {one.name: "data" for one in source.columns},
        },
        (RECORD, "Better than 'data' are public lists of values: those that occur are not protected."),
    )


def publish_tree(db: Relations, source: Records, params: Contingency, key: Key) -> TreeFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    domains = read_tree_domains(db, source, params)
    tree = grow_tree(read_cells(db, source, domains), domains.taxonomy, params, noise)
    fitted = fit_estimator(tree, domains.taxonomy)
    remaining = noisy_tree.require_remaining(fitted, params, "cell", "coarser domains")
    stand_ins = impute_cells(
        tree, domains.taxonomy, fitted.fit, key.random_generator("contingency", fraction_text(params.epsilon))
    )
    _write_cells(db, source.roles, domains, (tree, fitted.fit.sizes.size, stand_ins))
    write_release_table(db, "privsql_tree", tree_table(tree, domains.taxonomy, params))
    write_release_table(db, "privsql_taxonomy", taxonomy_table(domains.taxonomy, domains.names))
    return TreeFacts(
        values=sum(len(one.labels) for one in domains.columns),
        partitions=len(tree) - 1,
        cells=int(tree.leaf.sum()),
        imputed=len(stand_ins.row),
        estimated_records=round(float(fitted.fit.sizes.size[0]), 1),
        kept_records=remaining,
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
        noise=noise.origin,
        opendp=opendp_version(),
    )


def _write_cells(
    db: Relations, roles: Roles, domains: Domains, fitted_tree: tuple[CellTree, NDArray[np.float64], StandIns]
) -> None:
    """The tables ``cells`` and ``privsql_cells``; ``fitted_tree``: tree, fitted sizes, what stands for the pruned."""
    tree, size, stand_ins = fitted_tree
    leaves = np.flatnonzero(tree.leaf)
    nodes = partition_nodes(tree, domains.taxonomy)[leaves]
    keys = list(roles.sa_keys)
    holes: Holes = {"given": temp_table("given"), "columns": roles.sa_out("g"), "order": roles.sa_columns("g")}
    counted = _typed_values(domains, keys, nodes) | {"count": pa.array(tree.size[leaves], pa.int64())}
    weights = np.concatenate((size[leaves], stand_ins.weight))
    parts = {"part": pa.array(np.concatenate((leaves, stand_ins.row)), pa.int32())}
    weighted = (
        parts | _typed_values(domains, keys, np.concatenate((nodes, stand_ins.nodes))) | {"weight": pa.array(weights)}
    )
    made_so = (("cells", "cells", counted, ["count"]), ("privsql_cells", "stand_ins", weighted, ["part", "weight"]))
    for name, file, given, own in made_so:
        query = fill(f"contingency/{file}", {**holes, **roles.by_sa.alias_holes(*own)})
        write_release_table(db, name, pa.table(given), query, title="Writing the cells")


def _typed_values(domains: Domains, keys: list[str], nodes: Ints) -> dict[str, pa.Array]:
    """The values of nodes (n, d) in the columns' own types; a column's values are its first nodes."""
    taxonomy = domains.taxonomy
    first = [int(taxonomy.values(number)[0]) for number in range(len(keys))]
    return {
        name: pc.take(one.values, pa.array(nodes[:, number] - first[number]))
        for number, (name, one) in enumerate(zip(keys, domains.columns, strict=True))
    }


DIFFPART = PrivateMechanism(
    parameters=Contingency,
    facts=TreeFacts,
    shape=CategoricalShape(lambda params: params.domains),
    sql=SQL,
    demand=demand_domains,
    plan=plan_tree,
    publish=publish_tree,
    layout=diffpart_tree.TABLES,
    views=weighted_only(tree_view),
    checks=tree_checks,
    source_checks=tree_source_checks,
    answers=CellTreeAnswers,
    evaluate=evaluate_answers,
    adversaries=Suite(adversaries=(noisy_tree_release.membership_adversary(LEAVES),)),
    structure=tree_structure,
    advice=("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one"),
    propose=propose_parameters,
)


# The mechanism --------------------------------------------------------------------------------------------------------
# Differentially private contingency tables as a mechanism (``contract``): its algorithms, joined.

MECHANISM = join_variants({"marginals": MARGINAL_MECHANISM, "diffpart": DIFFPART})
