"""The mechanisms for contingency tables: marginals and DiffPart."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.answer import ESTIMATORS
from privsql.answers.sql.question import select_terms
from privsql.attacks.suite import Adversary
from privsql.dp_random import noise_for, opendp_version, table_noise_for
from privsql.engine.sqlfiles import Holes, alias_as, all_of, column, fill, table, temp_table
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.base import WEIGHTED, CategoricalShape, Views
from privsql.mechanisms.diffpart import tables as diffpart_release
from privsql.mechanisms.diffpart import tree as diffpart
from privsql.mechanisms.diffpart.tables import DiffPart
from privsql.mechanisms.dp import tables as noisy_tables_release
from privsql.mechanisms.dp.joint_model import Model
from privsql.mechanisms.dp.mechanism import KNOWS, MEMBERSHIP, PrivateMechanism, write_release_table
from privsql.mechanisms.dp.unlisted import ListedAnswers, UnlistedColumn, read_question
from privsql.mechanisms.marginals import checks, domains
from privsql.mechanisms.marginals import plan as marginals
from privsql.mechanisms.marginals.answers import MarginalAnswers, refuse_joins
from privsql.mechanisms.marginals.parameters import (
    CellTreePlan,
    Contingency,
    MarginalFacts,
    MarginalPlan,
    TreeFacts,
)
from privsql.model.explanations import make_structure
from privsql.model.tables import SENSITIVE, ReleaseTable
from privsql.model.universes import find_unlisted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.sql.question import CountQuery
    from privsql.attacks.scene import AttackView
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import ProfiledSource, Proposal
    from privsql.mechanisms.diffpart.tree import PartitionTree
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.marginals.domains import ContingencyColumn, TreeDomains
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.model.universes import Universe

# Contingency tables ---------------------------------------------------------------------------------------------------


class ColumnDomains(CategoricalShape[Contingency]):
    """Columns with the domains that the parameters state."""

    def domains(self, params: Contingency) -> Mapping[str, Universe]:
        """Return by column where its values are listed."""
        return params.domains


COLUMNS = ColumnDomains()
ADVICE = ("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one")


# Marginals ------------------------------------------------------------------------------------------------------------


def plan_marginals(db: Relations, source: Records, params: Contingency) -> MarginalPlan:
    """Return what is known without looking at the records: tables, cells and budgets."""
    columns = domains.read_columns(db, source, params)
    rule = _make_rule(columns, params)
    fixed = rule.fixed_tables(Fraction(1))
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
    columns = domains.read_columns(db, source, params)
    rule = _make_rule(columns, params)
    noise = table_noise_for(key, rule.law)
    codes, records, units = domains.read_coded_cells(db, source, columns)
    measured = marginals.measure_marginals(codes, records, rule, noise)
    sums = marginals.measure_sums(codes, records, units, rule, noise)
    _require_information(rule, measured)
    model = Model(measured, rule.sizes)
    rows = marginals.synthesize_rows(model, key.random_generator("marginals", fraction_text(params.epsilon)))
    synthetic = marginals.show_codes(columns, *rows)
    noisy_tables_release.write_noisy_tables(db, measured, rule.names)
    marginals.write_sums(db, sums, rule.names)
    write_release_table(db, marginals.DOMAINS, marginals.domains_table(columns))
    marginals.write_rows(db, source.roles.sensitive, columns, synthetic)
    return MarginalFacts(
        **checks.marginal_facts(rule, measured, model),
        synthetic=len(synthetic[1]),
        distance=round(marginals.mean_total_variation(model, *synthetic), 6),
        errors=noisy_tables_release.rehearse_sums(model),
        noise=noise.origin,
        opendp=opendp_version(),
    )


def _require_information(rule: marginals.Rule, tables: Sequence[NoisyTable]) -> None:
    """``InfeasibleError`` where the columns' own tables hold more noise than records, unless that is wanted.

    How many records there are is not guessed: where there are few, the noisy total is noise, too.
    """
    noise = rule.mean_noise((one.columns, one.budget) for one in tables)
    if noise > rule.noisy_total(tables) and not rule.params.allow_empty:
        most, values = max(zip(rule.sizes, rule.names, strict=True))
        raise InfeasibleError(
            f"the tables would be noise: a column's own table errs by about {float(noise):,.0f} records on average, "
            f"too many for the records that there are; {values} has {most:,} values. A larger epsilon, fewer values "
            f"or wider bins{rule.advice} would help, and mechanism.allow_empty = true publishes it anyway; epsilon "
            f"{fraction_text(rule.params.epsilon)} was drawn and is spent"
        )


def _sum_budgets(fixed: Sequence[marginals.Due], columns: int) -> Fraction:
    """Return what tables of one column, or of more, spend together."""
    return sum((spent for clique, spent, _ in fixed if min(len(clique), 2) == columns), start=Fraction(0))


def _make_rule(columns: Sequence[ContingencyColumn], params: Contingency) -> marginals.Rule:
    largest = max(columns, key=len)
    line = domains.propose_coarser(largest, params.domain(largest.field.name))
    advice = f" (such as {line} in [mechanism.domains])" if line else ""
    return marginals.Rule(params, tuple(one.field.name for one in columns), tuple(map(len, columns)), advice)


def _describe_tables(db: Relations, manifest: Manifest) -> list[Structure]:
    """Every table of counts, and what was added up."""
    result = noisy_tables_release.tables_structure(db, manifest)
    params = Contingency.model_validate(manifest.parameters)
    ends = {name: params.bin_edges(name) for name in params.measures}
    rows = db.rows(exp.select("measure", "columns", "budget", "scale").from_(table(marginals.SUMS)).order_by("number"))
    lines = [
        (measure, " \u00d7 ".join(columns) or "all records", budget, float(f"{noise:.4g}"))
        for measure, columns, budget, scale in rows
        for edges in [params.bin_edges(measure)]
        for noise in [float(scale) / domains.UNITS * (1 if params.delta else 2**0.5) * float(edges[-1] - edges[0])]
    ]
    clamped = "; ".join(f"{name} to [{float(edges[0]):g}, {float(edges[-1]):g}]" for name, edges in ends.items())
    sentence = f"Values were clamped, {clamped}, and added up; noise was added to every sum."
    head = ("sum of", "by", "rho" if params.delta else "epsilon", "standard deviation of the noise")
    return [*result, make_structure("The noisy sums", sentence, head, lines)] if lines else result


class Marginals(PrivateMechanism[Contingency, MarginalFacts]):
    """Noisy marginals: tables over few columns each, and weighted rows that fit all of them."""

    kind = "contingency"
    algorithms = ("marginals",)
    parameters = Contingency
    facts = MarginalFacts
    shape = COLUMNS
    layout = marginals.TABLES
    advice = ADVICE

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1, and the values that occur as the domains, in bins where they are many."""
        return marginals.propose_marginals(db, source)

    def plan(self, db: Relations, source: Records, params: Contingency) -> MarginalPlan:
        """Return tables, cells and budgets, which the specification and its domains tell."""
        return plan_marginals(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> MarginalFacts:
        """Measure the marginals and sums, and publish them with weighted rows that fit them."""
        return publish_marginals(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Contingency) -> None:
        """Raise ``UsageError`` unless a release has the columns of its domains, and no other."""
        checks.require_domains(manifest, params)

    def views(self, manifest: Manifest) -> Views:
        """Return the published rows with their weights."""
        return {WEIGHTED: marginals.marginal_view(manifest)}

    def checks(self, release: CheckedRelease[Contingency, MarginalFacts]) -> list[Check]:
        """Return the checks of the tables: their budgets, rule, scales and domains, and the rows that fit them."""
        return checks.marginal_checks(release)

    def long_checks(self, release: CheckedRelease[Contingency, MarginalFacts]) -> list[Check]:
        """Return no further checks: ``checks`` fits the model again."""
        return []

    def source_checks(
        self, release: CheckedRelease[Contingency, MarginalFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that domains are the specification's; a private release tells no more of its source."""
        return checks.marginal_source_checks(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> MarginalAnswers:
        """Return the release as one that answers from the tables and the model that fits them."""
        return MarginalAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of whole tables."""
        return domains.evaluate_answers(context)

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows every other record and asks whether the last one is in the table."""
        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=checks.attack_marginals),)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables, and the noisy sums where there are any."""
        return _describe_tables(db, manifest)


# DiffPart -------------------------------------------------------------------------------------------------------------

TABLES = {"cells": ReleaseTable(("part INTEGER", SENSITIVE, "count BIGINT")), **diffpart_release.TREE_TABLES}


def plan_tree(db: Relations, source: Records, params: Contingency) -> CellTreePlan:
    """Return what is known without looking at the records: values, expansions and the budget of the first one."""
    space = domains.read_tree_domains(db, source, params)
    first = diffpart.first_expansion(checks.make_rule(params), space.taxonomy)
    return CellTreePlan(
        epsilon=fraction_text(params.epsilon),
        values=sum(len(one.labels) for one in space.columns),
        expansions=int(space.taxonomy.expansions[space.taxonomy.roots].sum()),
        first_choice=fraction_text(first.choice),
        first_budget=fraction_text(first.inner),
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
    )


def publish_tree(db: Relations, source: Records, params: Contingency, key: Key) -> TreeFacts:
    """Make the tables of a release in database ``release``; returns the facts."""
    noise = noise_for(key)
    space, rule = domains.read_tree_domains(db, source, params), checks.make_rule(params)
    codes, records, _ = domains.read_coded_cells(db, source, space.columns)
    nodes = codes + space.first_nodes
    owners = np.repeat(np.arange(len(nodes)), nodes.shape[1])
    cells = diffpart.PartitionedRecords.generalize(owners, nodes.reshape(-1), records, space.taxonomy)
    choose = key.random_generator("contingency", fraction_text(params.epsilon))
    tree = diffpart.grow_tree(cells, space.taxonomy, rule, noise, choose)
    diffpart.require_remaining(tree, params, "cell", "coarser domains")
    _write_cells(db, source.roles, space, tree)
    diffpart_release.write_tree(db, tree, space.taxonomy, space.names)
    facts = checks.tree_facts(params, source.roles.sensitive, tree, space.taxonomy)
    return TreeFacts(**facts, noise=noise.origin, opendp=opendp_version())


def _write_cells(db: Relations, roles: Roles, space: TreeDomains, tree: PartitionTree) -> None:
    """The table ``cells``; a column's values are the first nodes of its taxonomy."""
    nodes = diffpart.leaf_values(tree, space.taxonomy)[1].reshape(-1, len(space.columns))
    codes = nodes - space.first_nodes
    values = {
        name: pc.take(one.values, pa.array(codes[:, number]))
        for number, (name, one) in enumerate(zip(roles.sa_keys, space.columns, strict=True))
    }
    parts, counts = pa.array(tree.leaves, pa.int32()), pa.array(tree.size[tree.leaves], pa.int64())
    holes: Holes = {
        "given": temp_table("given"),
        "columns": roles.sa_out("g"),
        "order": [*roles.sa_columns("g"), column("part", "g")],
    }
    query = fill("contingency/cells", {**holes, **roles.by_sa.alias_holes("part", "count")})
    write_release_table(
        db, "cells", pa.table({"part": parts, **values, "count": counts}), query, title="Writing the cells"
    )


def tree_view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the paper's answers."""
    columns: list[exp.Expr] = [column(field.name) for field in manifest.sensitive]
    count, weight = (manifest.roles.by_sa.column_name(name) for name in ("count", "weight"))
    holes: Holes = {"rows": table("cells"), "columns": columns, "weight": alias_as(column(count), weight)}
    return fill("contingency/synthetic", holes)


class CellTreeAnswers(ListedAnswers, diffpart_release.TreeAnswers):
    """An open release that answers count queries over its columns."""

    answer_reading = diffpart_release.TreeAnswers.answer

    def make_statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """Return the SQL that reads the release for an answer, and the formula in words."""
        return super().make_statement(read_question(query, self.unlisted).query, estimator)

    records = values = "cells"
    formulas: ClassVar[Mapping[str, str]] = dict.fromkeys(ESTIMATORS, diffpart_release.FORMULA.format(leaves="cells"))

    @cached_property
    def _unlisted_parts(self) -> list[tuple[UnlistedColumn, list[int]]]:
        """Return what stands for a column's values that are not listed, and the parts whose records hold some."""
        (taxonomy, names), tree, found = self.release_taxonomy, self.release_tree, []
        which, nodes = diffpart.leaf_values(tree, taxonomy)
        for place, field in enumerate(self._manifest.sensitive):
            values = taxonomy.values(place)
            *labels, _, _ = (names[node] for node in values.tolist())
            parts = tree.leaves[which[nodes == values[-domains.ADDED]]].tolist()
            stand_in = find_unlisted(field.type, labels)
            if stand_in is not None:
                found.append((UnlistedColumn(field, labels, stand_in, bool(parts)), parts))
        return found

    @property
    def unlisted(self) -> list[UnlistedColumn]:
        """Return what stands for the values that are not listed; they occur where a part of them was kept."""
        return [one for one, _ in self._unlisted_parts]

    @property
    def _cells(self) -> exp.Expr:
        """Return the cells, with what stands for the values that are not listed."""
        held: dict[str, exp.Expr] = {field.name: column(field.name) for field in self._manifest.sensitive}
        for one, parts in self._unlisted_parts:
            if parts:
                is_unlisted = self._roles.by_sa.as_column("part").isin(*map(exp.Literal.number, parts))
                held[one.field.name] = one.name_value(held[one.field.name], is_unlisted)
        others = [column(self._roles.by_sa.column_name(name)) for name in ("part", "count")]
        named = [alias_as(value, name) for name, value in held.items()]
        return exp.select(*others, *named).from_(table("cells", self._database)).subquery("cells")

    def _matching_query(self, query: CountQuery) -> exp.Query:
        refuse_joins(query)
        holes: Holes = {
            "cells": self._cells,
            "terms": select_terms(query, "sa"),
            "condition": all_of([*query.filters["qi"], *query.filters["sa"]]),
        }
        return fill(
            "contingency/met", {**holes, **{name: self._roles.by_sa.as_column(name) for name in ("part", "count")}}
        )


class ColumnDiffPart(DiffPart[Contingency, TreeFacts]):
    """DiffPart for contingency tables: cuts of a taxonomy for each column partition the records.

    It is the extension to relational data of Chen et al. 2011.
    """

    kind = "contingency"
    algorithms = ("diffpart",)
    parameters = Contingency
    facts = TreeFacts
    shape = COLUMNS
    layout = TABLES
    advice = ADVICE
    leaves = "cells"

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose what the kind's default algorithm does."""
        return marginals.propose_marginals(db, source)

    def plan(self, db: Relations, source: Records, params: Contingency) -> CellTreePlan:
        """Return values, expansions and the budget of the first one, which the specification and its domains tell."""
        return plan_tree(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> TreeFacts:
        """Grow the tree, and publish it with the cells of its leaves and their noisy counts."""
        return publish_tree(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Contingency) -> None:
        """Raise ``UsageError`` unless a release has the columns of its domains, and no other."""
        checks.require_domains(manifest, params)

    def views(self, manifest: Manifest) -> Views:
        """Return the published cells with their counts as weights."""
        return {WEIGHTED: tree_view(manifest)}

    def checks(self, release: CheckedRelease[Contingency, TreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets of every path, thresholds, scales, taxonomies, leaves and facts."""
        return checks.tree_checks(release)

    def source_checks(
        self, release: CheckedRelease[Contingency, TreeFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that taxonomies are the specification's; a private release tells no more of its source."""
        return checks.tree_source_checks(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> CellTreeAnswers:
        """Return the release as one that adds up the counts of its leaves."""
        return CellTreeAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of whole tables."""
        return domains.evaluate_answers(context)
