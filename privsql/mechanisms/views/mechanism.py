"""The mechanism of noisy views of item sets, and the base class of all differentially private ones for item sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.mechanisms.base import WEIGHTED, F, ItemSetShape, ProfiledSource, Proposal, Views
from privsql.mechanisms.dp.mechanism import RECORD, PresenceMechanism
from privsql.mechanisms.dp.parameters import find_law
from privsql.mechanisms.dp.tables import describe_noisy_tables
from privsql.mechanisms.views.parameters import SetValued, ViewFacts, ViewPlan
from privsql.mechanisms.views.tables import SETS, TABLES, weigh_sets

if TYPE_CHECKING:
    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import AttackView, Finding
    from privsql.attacks.suite import AttackContext
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.views.answers import ViewAnswers
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.model.universes import Universe


class ItemUniverse(ItemSetShape[SetValued]):
    """The kind of source that mechanisms for item sets take: item sets over the universe that the parameters state."""

    def universe(self, params: SetValued) -> Universe:
        """Return the universe of items that the parameters state."""
        return params.universe


class ItemSetMechanism(PresenceMechanism[SetValued, F]):
    """The base class of the differentially private mechanisms for item sets: noisy views, and partition trees."""

    kind = "setvalued"
    parameters = SetValued
    shape = ItemUniverse()
    advice = ("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one")

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1 and, as the universe, the items that occur."""
        return Proposal(
            {"kind": "setvalued", "epsilon": "1", "universe": "data"},
            remarks=(
                RECORD,
                "Better than 'data' is a public list, or { query = ... }: the items that occur are not protected.",
            ),
        )

    def require_columns(self, manifest: Manifest, params: SetValued) -> None:
        """Raise ``UsageError`` unless the release has one column of item sets, and no other column."""
        from privsql.mechanisms.views.checks import require_items

        require_items(manifest)

    def source_checks(self, release: CheckedRelease[SetValued, F], source: Records, params: SetValued) -> list[Check]:
        """Return the check that the universe is the one of the specification.

        A private release reveals nothing else of its source that could be checked.
        """
        from privsql.mechanisms.views.checks import compare_universe

        return compare_universe(release, source)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return how far answers of a release are from its source, by class of questions and for frequent items."""
        from privsql.mechanisms.views.evaluation import evaluate_sets

        return evaluate_sets(context)


class ItemViews(ItemSetMechanism[ViewFacts]):
    """The mechanism of noisy views: noisy tables of which of a few items records have, and synthetic item sets."""

    algorithms = ("views", "basic")
    facts = ViewFacts
    layout = TABLES

    def plan(self, db: Relations, source: Records, params: SetValued) -> ViewPlan:
        """Return how many items and counts a release has at most, and its budgets; no record is read."""
        from privsql.mechanisms.views.plan import plan_views

        return plan_views(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
        """Count in noisy tables which of a few items records have, and publish them with synthetic item sets."""
        from privsql.mechanisms.views.publish import publish_views

        return publish_views(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the query of the SQL view of synthetic item sets with their weights."""
        return {WEIGHTED: weigh_sets(manifest, SETS, "weight")}

    def checks(self, release: CheckedRelease[SetValued, ViewFacts]) -> list[Check]:
        """Return the checks of budgets, tables, scales of noise, and synthetic sets."""
        from privsql.mechanisms.views.checks import check_views

        return check_views(release)

    def answers(self, db: Relations, manifest: Manifest) -> ViewAnswers:
        """Return an object that answers questions from the noisy tables and the population fitted to them."""
        from privsql.mechanisms.views.answers import ViewAnswers

        return ViewAnswers(db, manifest)

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Return how sure an attacker who knows all other records becomes that a record is in the counts.

        Args:
            learnt: The release under attack.
        """
        from privsql.mechanisms.views.attacks import attack_views

        return attack_views(learnt.view)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return a table for the report that lists the noisy tables: their items, numbers of counts, and noise."""
        law = find_law(SetValued.model_validate(manifest.parameters))
        return describe_noisy_tables(db, concentrated=law.concentrated)
