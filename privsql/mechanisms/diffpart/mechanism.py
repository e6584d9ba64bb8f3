"""The two mechanisms of DiffPart: for item sets, and for the columns of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from privsql.mechanisms.base import WEIGHTED, F, P, Views
from privsql.mechanisms.diffpart.parameters import CellTreeFacts, CellTreePlan, ItemSetTreeFacts, ItemSetTreePlan
from privsql.mechanisms.diffpart.tables import CELL_TABLES, SET_TABLES, describe_tree
from privsql.mechanisms.dp.mechanism import PresenceMechanism
from privsql.mechanisms.marginals.mechanism import ContingencyMechanism
from privsql.mechanisms.marginals.tables import weigh_rows
from privsql.mechanisms.views.mechanism import ItemSetMechanism
from privsql.mechanisms.views.tables import weigh_sets

if TYPE_CHECKING:
    from privsql.attacks.scene import AttackView, Finding
    from privsql.attacks.suite import AttackContext
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.diffpart.answers import CellTreeAnswers, ItemSetTreeAnswers
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records


class DiffPart(PresenceMechanism[P, F]):
    """DiffPart: records are partitioned again and again, and parts with small noisy counts are dropped.

    The parts make a tree, whose leaves are published with noisy counts (Chen et al. 2011). Subclasses partition item
    sets, or the records of a table.
    """

    leaves: ClassVar[str]
    """What the parts that are divided no further are called, in the plural."""

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Find the belief in a record of each published leaf, by the counts and choices on its path of the tree."""
        from privsql.mechanisms.diffpart.attacks import attack_leaves

        return attack_leaves(learnt.view, self.leaves)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the levels of the tree: the parts kept, those not divided further, and the noise of their counts."""
        return describe_tree(db)


class ItemDiffPart(DiffPart["SetValued", ItemSetTreeFacts], ItemSetMechanism[ItemSetTreeFacts]):
    """DiffPart for item sets: the cuts of a context-free taxonomy of the items partition the records."""

    algorithms = ("diffpart",)
    facts = ItemSetTreeFacts
    layout = SET_TABLES
    leaves = "item sets"

    def plan(self, db: Relations, source: Records, params: SetValued) -> ItemSetTreePlan:
        """Return the taxonomy of the items, and the budget and threshold of the first counts.

        No record is looked at.
        """
        from privsql.mechanisms.diffpart.plan import plan_sets

        return plan_sets(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
        """Grow the tree, and publish it with the item sets of its leaves and their noisy counts."""
        from privsql.mechanisms.diffpart.publish import publish_sets

        return publish_sets(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the published sets, with their noisy counts as weights."""
        return {WEIGHTED: weigh_sets(manifest, "itemsets", "count")}

    def checks(self, release: CheckedRelease[SetValued, ItemSetTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets of every path, thresholds, scales, leaves and facts."""
        from privsql.mechanisms.diffpart.checks import check_sets

        return check_sets(release)

    def answers(self, db: Relations, manifest: Manifest) -> ItemSetTreeAnswers:
        """Return the open release, which answers questions by adding up the noisy counts of the tree's leaves."""
        from privsql.mechanisms.diffpart.answers import ItemSetTreeAnswers

        return ItemSetTreeAnswers(db, manifest)


class ColumnDiffPart(DiffPart["Contingency", CellTreeFacts], ContingencyMechanism[CellTreeFacts]):
    """DiffPart for contingency tables: cuts of a taxonomy for each column partition the records.

    It is the extension to relational data of Chen et al. 2011.
    """

    algorithms = ("diffpart",)
    facts = CellTreeFacts
    layout = CELL_TABLES
    leaves = "cells"

    def plan(self, db: Relations, source: Records, params: Contingency) -> CellTreePlan:
        """Return the values of each column, the expansions, and the budget of the first one.

        They follow from the specification and its domains; no record is looked at.
        """
        from privsql.mechanisms.diffpart.plan import plan_columns

        return plan_columns(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> CellTreeFacts:
        """Grow the tree, and publish it with the cells of its leaves and their noisy counts."""
        from privsql.mechanisms.diffpart.publish import publish_columns

        return publish_columns(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the published cells, with their noisy counts as weights."""
        return {WEIGHTED: weigh_rows(manifest, "cells", "count")}

    def checks(self, release: CheckedRelease[Contingency, CellTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets of every path, thresholds, scales, taxonomies, leaves and facts."""
        from privsql.mechanisms.diffpart.checks import check_columns

        return check_columns(release)

    def source_checks(
        self, release: CheckedRelease[Contingency, CellTreeFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that taxonomies are the specification's; a private release tells no more of its source."""
        from privsql.mechanisms.diffpart.checks import compare_taxonomies

        return compare_taxonomies(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> CellTreeAnswers:
        """Return the open release, which answers questions by adding up the noisy counts of the tree's leaves."""
        from privsql.mechanisms.diffpart.answers import CellTreeAnswers

        return CellTreeAnswers(db, manifest)
