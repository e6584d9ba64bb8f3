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
from privsql.dp_random import noise_for
from privsql.engine.sqlfiles import Holes, column, every, fill, is_null, table, temp
from privsql.errors import InfeasibleError, UsageError
from privsql.exact import text
from privsql.mechanisms.contingency.checks import (
    SQL,
    estimated,
    facts,
    marginal_bounds,
    marginal_checks,
    marginal_source_checks,
    read_marginal_parameters,
    read_tree_parameters,
    tree_bounds,
    tree_checks,
    tree_source_checks,
)
from privsql.mechanisms.contingency.diffpart_tree import (
    estimator,
    imputed,
    partition,
    positions,
    read_cells,
    read_taxonomy,
    read_tree,
    read_tree_domains,
    shares,
    taxonomy_table,
    tree_table,
    tree_tables,
    tree_view,
)
from privsql.mechanisms.contingency.domains import coded, evaluate, read
from privsql.mechanisms.contingency.marginals import (
    DOMAINS,
    NOISE,
    ROWS,
    Due,
    Rule,
    distance,
    domains_table,
    marginal_tables,
    marginal_view,
    measure,
    propose_marginals,
    rows,
    write_rows,
)
from privsql.mechanisms.contingency.marginals_answers import MarginalAnswers
from privsql.mechanisms.contingency.parameters import Contingency
from privsql.mechanisms.contract import Budget, Categories, Mechanism, Proposal, joined
from privsql.mechanisms.dp import noisy_tree, noisy_tree_release
from privsql.mechanisms.dp.checks import noisy_tables_adversary
from privsql.mechanisms.dp.noisy_tables import Model
from privsql.mechanisms.dp.noisy_tables_release import CLIQUES, MARGINALS, tables_structure, write_noisy_tables
from privsql.mechanisms.dp.noisy_tree_release import tree_structure
from privsql.mechanisms.private import DAMAGED, NOT_PLANNED, RECORD, figure, made_with, promise, whole, words, write
from privsql.model.manifest import nothing_longer, same_nan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.answers.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.keyed_random import Key
    from privsql.mechanisms.contingency.diffpart_tree import Domains, StandIns, Tree
    from privsql.mechanisms.contingency.domains import Column
    from privsql.mechanisms.contract import Profiled
    from privsql.mechanisms.dp.noisy_tables import Measured
    from privsql.mechanisms.dp.noisy_tree import Estimator, Ints
    from privsql.model.manifest import Estimate
    from privsql.model.records import Records

# Marginals ------------------------------------------------------------------------------------------------------------
# Differentially private marginals of a table as a mechanism (``contract``).


def plan_marginals(db: Relations, source: Records, asked: Contingency) -> dict[str, Any]:
    """What is known without looking at the records: tables, cells and budgets."""
    columns = read(db, source, asked)
    rule = _rule(columns, asked)
    fixed = rule.fixed()
    return {
        "epsilon": text(asked.epsilon),
        "values": sum(rule.sizes),
        "columns": len(rule.sizes),
        "workload": len(rule.workload),
        "pairs": len(rule.pairs),
        "cells": sum(map(rule.cells, [*(clique for clique, _, _ in fixed), *rule.pairs])),
        "columns_budget": text(_spent(fixed, 1)),
        "workload_budget": text(_spent(fixed, 2)),
        "noise_of_columns": float(rule.alone),
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
    }


def publish_marginals(db: Relations, source: Records, asked: Contingency, key: Key) -> dict[str, Any]:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    columns = read(db, source, asked)
    rule = _rule(columns, asked)
    measured = measure(*coded(db, source, columns), rule, noise)
    _tell_something(rule, measured)
    model = Model(measured, rule.sizes)
    made = rows(model, key.stream("marginals", text(asked.epsilon)))
    write_noisy_tables(db, measured, rule.names)
    write(db, DOMAINS, domains_table(columns))
    write_rows(db, source.roles.sensitive, columns, made)
    return {
        **facts(rule, measured),
        "synthetic": len(made[1]),
        "distance": round(distance(model, *made), 6),
        "estimated_records": estimated(model),
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
        **made_with(noise),
    }


def _tell_something(rule: Rule, tables: Sequence[Measured]) -> None:
    """``InfeasibleError`` where the columns' own tables hold more noise than records, unless that is wanted."""
    noise = rule.noise(tables)
    if noise > 1 and not rule.asked.allow_empty:
        raise InfeasibleError(
            f"the tables would be noise: on average {float(noise):.3g} times as much as there are records (about "
            f"{float(rule.total(tables)):,.0f}); a larger epsilon, fewer values or wider bins would help, and "
            f"--allow-empty (allow_empty = true) publishes it all the same; epsilon {text(rule.asked.epsilon)} was "
            "drawn and is spent"
        )


def _spent(fixed: Sequence[Due], columns: int) -> Fraction:
    """What tables of one column, or of more, spend together."""
    return sum((spent for clique, spent, _ in fixed if min(len(clique), 2) == columns), start=Fraction(0))


def _rule(columns: Sequence[Column], asked: Contingency) -> Rule:
    return Rule(asked, tuple(one.field.name for one in columns), tuple(map(len, columns)))


def marginal_figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What a plan or a release says of itself."""
    leak = ", ".join(facts["not_covered"])
    covered = f"those that occur (not covered by the guarantee) in {leak}" if leak else "public"
    shown = [("values", f"{facts['values']:,}, {covered}")]
    if "cliques" not in facts:
        asked = f"{facts['columns']} columns for {facts['columns_budget']}, {facts['pairs']} pairs of them"
        more = f", {facts['workload']} declared for {facts['workload_budget']}" if facts["workload"] else ""
        rule = f"pairs are chosen where their noise is above {text(NOISE)} of the records"
        noise = f"about {facts['noise_of_columns']:,.0f} records in a column's own table; refused where there are fewer"
        return [*shown, ("tables", f"{asked}{more}; {facts['cells']:,} cells"), ("rule", rule), ("noise", noise)]
    chosen = f", {facts['chosen']} of them chosen" if facts["chosen"] else ""
    made = f"{facts['cliques']:,} of {facts['cells']:,} cells{chosen}"
    synthetic = f"{facts['synthetic']:,} synthetic ones, {facts['distance']:.2%} from the tables of two columns"
    return [*shown, ("tables", made), ("rows", synthetic), figure(facts)]


MARGINAL_MECHANISM = Mechanism(
    parameters=Contingency,
    shape=Categories(lambda asked: asked.domains),
    composition=Budget(lambda asked: asked.epsilon),
    sql=SQL,
    relations=(CLIQUES, MARGINALS, DOMAINS, ROWS),
    read=read_marginal_parameters,
    plan=plan_marginals,
    algorithms=NOT_PLANNED,
    publish=publish_marginals,
    tables=marginal_tables,
    view=marginal_view,
    checks=marginal_checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=marginal_bounds,
    source_checks=marginal_source_checks,
    answers=MarginalAnswers,
    evaluate=evaluate,
    adversaries=Suite(scene=None, adversaries=(noisy_tables_adversary(),), combining=(), quick=None),
    promise=promise,
    words=words,
    structure=tables_structure,
    advice=("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one"),
    propose=propose_marginals,
    warnings=lambda _facts: [],
    figures=marginal_figures,
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


class TreeAnswers(noisy_tree_release.NoisyTreeAnswers):
    """An open release that answers count queries over its columns; its tree is fitted once."""

    records = values = "privsql_cells"
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @cached_property
    def fitted(self) -> Estimator:
        """The tree with consistent sizes."""
        tree, nodes = self._rows("tree", "part"), self._rows("taxonomy", "node")
        with whole():
            taxonomy = read_taxonomy(nodes)
            return estimator(read_tree(tree, taxonomy), taxonomy)

    @cached_property
    def _number(self) -> NDArray[np.float64]:
        """Cells of each part, at least 1."""
        own = exp.select(*self._roles.by_sa.read("part", "weight"))
        cells = own.from_(table("privsql_cells", self._database)).subquery("cells")
        rows = self._db.rows(fill("contingency/numbers", {"cells": cells}))
        found = np.ones(len(self.fitted.tree))
        for part, cells, _ in rows:
            if part is None or not 0 <= part < len(found):
                raise UsageError(f"{DAMAGED}: a cell belongs to no part of the tree")
            found[part] = cells
        return found

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        if query.lookups:
            raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")
        return super().statement(query, estimator)

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a published cell, or one that stands for others, has."""
        number = self._number
        shares: dict[tuple[Any, ...], NDArray[np.float64]] = {} if query.groups else {(): np.zeros(len(number))}
        for *group, part, met in self._db.rows(self._met(query)):
            key = tuple(same_nan(value) for value in group)
            shares.setdefault(key, np.zeros(len(number)))[part] += met / number[part]
        return [
            self._estimate(group, share, estimator, confidence, everything=query.is_total)
            for group, share in shares.items()
        ]

    def _met(self, query: CountQuery) -> exp.Query:
        return fill(
            "contingency/met",
            {
                "cells": table("privsql_cells", self._database),
                "part": self._roles.by_sa.column("part"),
                "terms": select_terms(query, "sa"),
                "keys": [expression for _, expression in group_terms(query, "sa")],
                "condition": every([*query.filters["qi"], *query.filters["sa"]]),
            },
        )


# DiffPart -------------------------------------------------------------------------------------------------------------
# Differentially private contingency tables as a mechanism (``contract``): DiffPart's relational extension.

LEAVES = noisy_tree_release.Leaves("cells", is_null(column("expanded")), column("choice"))


def plan_tree(db: Relations, source: Records, asked: Contingency) -> dict[str, Any]:
    """What is known without looking at the records: values, expansions and the budget of the first one."""
    domains = read_tree_domains(db, source, asked)
    height = domains.taxonomy.height[domains.taxonomy.roots]
    first = shares(asked, asked.epsilon / 2, int(height.sum()), several=len(height) > 1)
    return {
        "epsilon": text(asked.epsilon),
        "values": sum(len(one.labels) for one in domains.columns),
        "expansions": int(height.sum()),
        "first_choice": text(first.choice),
        "first_budget": text(first.inner),
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
    }


def propose(db: Relations, source: Profiled) -> Proposal:  # noqa: ARG001 (all mechanisms take it)
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


def publish_tree(db: Relations, source: Records, asked: Contingency, key: Key) -> dict[str, Any]:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    domains = read_tree_domains(db, source, asked)
    tree = partition(read_cells(db, source, domains), domains.taxonomy, asked, noise)
    fitted = estimator(tree, domains.taxonomy)
    stated = noisy_tree.enough_remaining(fitted, asked, "cell", "coarser domains")
    stand_ins = imputed(tree, domains.taxonomy, fitted.fit, key.stream("contingency", text(asked.epsilon)))
    _write_cells(db, source.roles, domains, (tree, fitted.fit.sizes.size, stand_ins))
    write(db, "privsql_tree", tree_table(tree, domains.taxonomy, asked))
    write(db, "privsql_taxonomy", taxonomy_table(domains.taxonomy, domains.names))
    return {
        "values": sum(len(one.labels) for one in domains.columns),
        "partitions": len(tree) - 1,
        "cells": int(tree.leaf.sum()),
        "imputed": len(stand_ins.row),
        "estimated_records": round(float(fitted.fit.sizes.size[0]), 1),
        **stated,
        "not_covered": asked.not_covered(field.name for field in source.roles.sensitive),
        **made_with(noise),
    }


def _write_cells(
    db: Relations, roles: Roles, domains: Domains, made: tuple[Tree, NDArray[np.float64], StandIns]
) -> None:
    """The tables ``cells`` and ``privsql_cells``; ``made``: tree, fitted sizes, what stands for the pruned."""
    tree, size, stand_ins = made
    leaves = np.flatnonzero(tree.leaf)
    nodes = positions(tree, domains.taxonomy)[leaves]
    keys = list(roles.sa_keys)
    holes: Holes = {"given": temp("given"), "columns": roles.sa_out("g"), "order": roles.sa("g")}
    counted = _typed(domains, keys, nodes) | {"count": pa.array(tree.size[leaves], pa.int64())}
    weights = np.concatenate((size[leaves], stand_ins.weight))
    parts = {"part": pa.array(np.concatenate((leaves, stand_ins.row)), pa.int32())}
    weighted = parts | _typed(domains, keys, np.concatenate((nodes, stand_ins.nodes))) | {"weight": pa.array(weights)}
    made_so = (("cells", "cells", counted, ["count"]), ("privsql_cells", "stand_ins", weighted, ["part", "weight"]))
    for name, file, given, own in made_so:
        query = fill(f"contingency/{file}", {**holes, **roles.by_sa.names(*own)})
        write(db, name, pa.table(given), query, title="Writing the cells")


def _typed(domains: Domains, keys: list[str], nodes: Ints) -> dict[str, pa.Array]:
    """The values of nodes (n, d) in the columns' own types; a column's values are its first nodes."""
    taxonomy = domains.taxonomy
    first = [int(taxonomy.values(number)[0]) for number in range(len(keys))]
    return {
        name: pc.take(one.values, pa.array(nodes[:, number] - first[number]))
        for number, (name, one) in enumerate(zip(keys, domains.columns, strict=True))
    }


def tree_figures(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What a plan or a release says of itself."""
    leak = ", ".join(facts["not_covered"])
    covered = f"those that occur (not covered by the guarantee) in {leak}" if leak else "public"
    shown = [("values", f"{facts['values']:,}, {covered}")]
    if "partitions" not in facts:
        first = f"choice {facts['first_choice']}, counts {facts['first_budget']} of at most {facts['expansions']}"
        return [*shown, ("first expansion", first)]
    made = f"{facts['cells']:,} in {facts['partitions']:,} partitions; {facts['imputed']:,} stand for pruned ones"
    return [*shown, ("cells", made), figure(facts)]


DIFFPART = Mechanism(
    parameters=Contingency,
    shape=Categories(lambda asked: asked.domains),
    composition=Budget(lambda asked: asked.epsilon),
    sql=SQL,
    relations=("cells", "privsql_cells", "privsql_tree", "privsql_taxonomy"),
    read=read_tree_parameters,
    plan=plan_tree,
    algorithms=NOT_PLANNED,
    publish=publish_tree,
    tables=tree_tables,
    view=tree_view,
    checks=tree_checks,
    long_checks=nothing_longer,
    measured=lambda _db, _manifest: {},
    bounds=tree_bounds,
    source_checks=tree_source_checks,
    answers=TreeAnswers,
    evaluate=evaluate,
    adversaries=Suite(
        scene=None, adversaries=(noisy_tree_release.membership_adversary(LEAVES),), combining=(), quick=None
    ),
    promise=promise,
    words=words,
    structure=tree_structure,
    advice=("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one"),
    propose=propose,
    warnings=lambda facts: noisy_tree.warn_remaining(facts, facts["cells"], "cell"),
    figures=tree_figures,
)


# The mechanism --------------------------------------------------------------------------------------------------------
# Differentially private contingency tables as a mechanism (``contract``): its algorithms, joined.

MECHANISM = joined({"marginals": MARGINAL_MECHANISM, "diffpart": DIFFPART})
