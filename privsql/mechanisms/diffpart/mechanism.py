"""The two mechanisms of DiffPart: for item sets, and for the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from privsql.attacks.suite import Adversary, AttackContext
from privsql.mechanisms.base import WEIGHTED, F, P, ProfiledSource, Proposal, Views
from privsql.mechanisms.diffpart.answers import CellTreeAnswers, ItemSetTreeAnswers
from privsql.mechanisms.diffpart.attacks import attack_leaves
from privsql.mechanisms.diffpart.checks import check_columns, check_sets, check_taxonomies
from privsql.mechanisms.diffpart.parameters import CellTreeFacts, CellTreePlan, ItemSetTreeFacts, ItemSetTreePlan
from privsql.mechanisms.diffpart.plan import plan_columns, plan_sets
from privsql.mechanisms.diffpart.publish import publish_columns, publish_sets
from privsql.mechanisms.diffpart.tables import CELL_TABLES, SET_TABLES, tree_structure, weigh_cells
from privsql.mechanisms.dp.attacks import KNOWS, MEMBERSHIP
from privsql.mechanisms.dp.mechanism import PrivateMechanism
from privsql.mechanisms.marginals.checks import require_domains
from privsql.mechanisms.marginals.evaluation import evaluate_tables
from privsql.mechanisms.marginals.mechanism import COLUMNS, TABLE_ADVICE
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.proposal import propose_marginals
from privsql.mechanisms.views.checks import require_items, set_source_checks
from privsql.mechanisms.views.evaluation import evaluate_sets
from privsql.mechanisms.views.mechanism import ITEM_ADVICE, ITEMS, propose_items
from privsql.mechanisms.views.parameters import SetValued
from privsql.mechanisms.views.tables import weighted_sets

if TYPE_CHECKING:
    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import AttackView, Finding
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# The mechanism --------------------------------------------------------------------------------------------------------


class DiffPart(PrivateMechanism[P, F]):
    """DiffPart: records are partitioned again and again, and parts with small noisy counts are dropped.

    Chen et al. 2011. The parts make a tree. Subclasses partition item sets, or the records of a table.
    """

    leaves: ClassVar[str]
    """What the parts that are divided no further are called, in the plural."""

    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return no further checks: ``checks`` goes through every part of the tree."""
        return []

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows every other record and asks whether the last one is in the table."""
        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=self.attack_membership),)

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Find the belief in a record of each published leaf, by the counts and choices on its path of the tree."""
        return attack_leaves(learnt.view, self.leaves)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the levels of the tree: the parts kept, those not divided further, and the noise of their counts."""
        return tree_structure(db, manifest)


class ItemDiffPart(DiffPart[SetValued, ItemSetTreeFacts]):
    """DiffPart for item sets: the cuts of a context-free taxonomy of the items partition the records."""

    kind = "setvalued"
    algorithms = ("diffpart",)
    parameters = SetValued
    facts = ItemSetTreeFacts
    shape = ITEMS
    layout = SET_TABLES
    advice = ITEM_ADVICE
    leaves = "item sets"

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1, and the items that occur as the universe."""
        return propose_items()

    def plan(self, db: Relations, source: Records, params: SetValued) -> ItemSetTreePlan:
        """Return the taxonomy of the items, and budget and threshold of the first counts; no record is looked at."""
        return plan_sets(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
        """Grow the tree, and publish it with the item sets of its leaves and their noisy counts."""
        return publish_sets(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: SetValued) -> None:
        """Raise ``UsageError`` unless a release has one column of items, and no other."""
        require_items(manifest)

    def views(self, manifest: Manifest) -> Views:
        """Return the published sets with their counts as weights."""
        return {WEIGHTED: weighted_sets(manifest, "itemsets", "count")}

    def checks(self, release: CheckedRelease[SetValued, ItemSetTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets of every path, thresholds, scales, leaves and facts."""
        return check_sets(release)

    def source_checks(
        self, release: CheckedRelease[SetValued, ItemSetTreeFacts], source: Records, params: SetValued
    ) -> list[Check]:
        """Return the check that the universe is the specification's; a private release tells no more of its source."""
        return set_source_checks(release, source)

    def answers(self, db: Relations, manifest: Manifest) -> ItemSetTreeAnswers:
        """Return the release as one that adds up the counts of its leaves."""
        return ItemSetTreeAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of the most frequent items and item sets."""
        return evaluate_sets(context)


class ColumnDiffPart(DiffPart[Contingency, CellTreeFacts]):
    """DiffPart for contingency tables: cuts of a taxonomy for each column partition the records.

    It is the extension to relational data of Chen et al. 2011.
    """

    kind = "contingency"
    algorithms = ("diffpart",)
    parameters = Contingency
    facts = CellTreeFacts
    shape = COLUMNS
    layout = CELL_TABLES
    advice = TABLE_ADVICE
    leaves = "cells"

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose what the kind's default algorithm does."""
        return propose_marginals(db, source)

    def plan(self, db: Relations, source: Records, params: Contingency) -> CellTreePlan:
        """Return values, expansions and the budget of the first one, which the specification and its domains tell."""
        return plan_columns(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> CellTreeFacts:
        """Grow the tree, and publish it with the cells of its leaves and their noisy counts."""
        return publish_columns(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Contingency) -> None:
        """Raise ``UsageError`` unless a release has the columns of its domains, and no other."""
        require_domains(manifest, params)

    def views(self, manifest: Manifest) -> Views:
        """Return the published cells with their counts as weights."""
        return {WEIGHTED: weigh_cells(manifest)}

    def checks(self, release: CheckedRelease[Contingency, CellTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets of every path, thresholds, scales, taxonomies, leaves and facts."""
        return check_columns(release)

    def source_checks(
        self, release: CheckedRelease[Contingency, CellTreeFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that taxonomies are the specification's; a private release tells no more of its source."""
        return check_taxonomies(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> CellTreeAnswers:
        """Return the release as one that adds up the counts of its leaves."""
        return CellTreeAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of whole tables."""
        return evaluate_tables(context)
