"""The two mechanisms of DiffPart: for item sets, and for the columns of a table (Chen et al. 2011)."""

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
    """The base class of mechanisms that publish a partition tree.

    Records are partitioned again and again, and parts with small noisy counts are dropped. The leaves of the tree are
    published with noisy counts (Chen et al. 2011). Subclasses partition item sets, or the records of a table.
    """

    leaves: ClassVar[str]
    """A word for the leaves of the tree, in the plural."""

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Return by leaf how sure an attacker who knows all other records becomes that a record is in the source."""
        from privsql.mechanisms.diffpart.attacks import attack_leaves

        return attack_leaves(learnt.view, self.leaves)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the levels of the tree as a table for people: their partitions, leaves, and the noise of counts."""
        return describe_tree(db)


class ItemDiffPart(DiffPart["SetValued", ItemSetTreeFacts], ItemSetMechanism[ItemSetTreeFacts]):
    """DiffPart for item sets: records are partitioned by a taxonomy that groups the items by their order alone."""

    algorithms = ("diffpart",)
    facts = ItemSetTreeFacts
    layout = SET_TABLES
    leaves = "item sets"

    def plan(self, db: Relations, source: Records, params: SetValued) -> ItemSetTreePlan:
        """Return what is known of the tree before any record is read.

        That is how items are grouped, and with which budget and threshold the first parts of the records are counted.
        """
        from privsql.mechanisms.diffpart.plan import plan_sets

        return plan_sets(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ItemSetTreeFacts:
        """Grow the noisy tree, and publish it with the item sets of its leaves and their counts."""
        from privsql.mechanisms.diffpart.publish import publish_sets

        return publish_sets(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the query of the view of published item sets, with their noisy counts as weights."""
        return {WEIGHTED: weigh_sets(manifest, "itemsets", "count")}

    def checks(self, release: CheckedRelease[SetValued, ItemSetTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets from root to leaf, thresholds, noise, leaves and facts."""
        from privsql.mechanisms.diffpart.checks import check_sets

        return check_sets(release)

    def answers(self, db: Relations, manifest: Manifest) -> ItemSetTreeAnswers:
        """Return an object that answers questions by adding up the noisy counts of leaves."""
        from privsql.mechanisms.diffpart.answers import ItemSetTreeAnswers

        return ItemSetTreeAnswers(db, manifest)


class ColumnDiffPart(DiffPart["Contingency", CellTreeFacts], ContingencyMechanism[CellTreeFacts]):
    """DiffPart for contingency tables: records are partitioned by a taxonomy of each column's values.

    It is the extension to relational data of Chen et al. 2011.
    """

    algorithms = ("diffpart",)
    facts = CellTreeFacts
    layout = CELL_TABLES
    leaves = "cells"

    def plan(self, db: Relations, source: Records, params: Contingency) -> CellTreePlan:
        """Return what is known of the tree before any record is read.

        That is the columns' values, how often records are divided, and the budget of the first division.
        """
        from privsql.mechanisms.diffpart.plan import plan_columns

        return plan_columns(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> CellTreeFacts:
        """Grow the noisy tree, and publish it with the cells of its leaves and their counts."""
        from privsql.mechanisms.diffpart.publish import publish_columns

        return publish_columns(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the query of the view of published cells, with their noisy counts as weights."""
        return {WEIGHTED: weigh_rows(manifest, "cells", "count")}

    def checks(self, release: CheckedRelease[Contingency, CellTreeFacts]) -> list[Check]:
        """Return the checks of the tree: budgets from root to leaf, thresholds, noise, taxonomies, leaves and facts."""
        from privsql.mechanisms.diffpart.checks import check_columns

        return check_columns(release)

    def source_checks(
        self, release: CheckedRelease[Contingency, CellTreeFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that the taxonomies are those of the specification.

        A private release reveals nothing else of its source that could be checked.
        """
        from privsql.mechanisms.diffpart.checks import compare_taxonomies

        return compare_taxonomies(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> CellTreeAnswers:
        """Return an object that answers questions by adding up the noisy counts of leaves."""
        from privsql.mechanisms.diffpart.answers import CellTreeAnswers

        return CellTreeAnswers(db, manifest)
