"""The mechanism of noisy views of item sets, and what all differentially private ones for item sets share."""

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
    """Item sets over the universe that the parameters state."""

    def universe(self, params: SetValued) -> Universe:
        """Return where the items are listed."""
        return params.universe


class ItemSetMechanism(PresenceMechanism[SetValued, F]):
    """A differentially private mechanism for item sets: the base class of views and of trees."""

    kind = "setvalued"
    parameters = SetValued
    shape = ItemUniverse()
    advice = ("a smaller epsilon", "a public universe of items: those that occur tell of records that hold a rare one")

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1, and the items that occur as the universe."""
        return Proposal(
            {"kind": "setvalued", "epsilon": "1", "universe": "data"},
            remarks=(
                RECORD,
                "Better than 'data' is a public list, or { query = ... }: the items that occur are not protected.",
            ),
        )

    def require_columns(self, manifest: Manifest, params: SetValued) -> None:
        """Raise ``UsageError`` unless a release has one column of items, and no other."""
        from privsql.mechanisms.views.checks import require_items

        require_items(manifest)

    def source_checks(self, release: CheckedRelease[SetValued, F], source: Records, params: SetValued) -> list[Check]:
        """Return the check that the universe is the specification's.

        Nothing else is checked against the source, since a private release tells no more of it.
        """
        from privsql.mechanisms.views.checks import compare_universe

        return compare_universe(release, source)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of the most frequent items and item sets."""
        from privsql.mechanisms.views.evaluation import evaluate_sets

        return evaluate_sets(context)


class ItemViews(ItemSetMechanism[ViewFacts]):
    """Noisy views of item sets: noisy tables over a few items each, and synthetic sets that fit all of them."""

    algorithms = ("views", "basic")
    facts = ViewFacts
    layout = TABLES

    def plan(self, db: Relations, source: Records, params: SetValued) -> ViewPlan:
        """Return what is measured, at most, and with which budgets; no record is looked at."""
        from privsql.mechanisms.views.plan import plan_views

        return plan_views(source, params)

    def publish(self, db: Relations, source: Records, params: SetValued, key: Key) -> ViewFacts:
        """Measure the views, and publish them with the sets of a population that fits them."""
        from privsql.mechanisms.views.publish import publish_views

        return publish_views(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the published sets with their weights."""
        return {WEIGHTED: weigh_sets(manifest, SETS, "weight")}

    def checks(self, release: CheckedRelease[SetValued, ViewFacts]) -> list[Check]:
        """Return the checks of the views: their budgets, rule and scales, and the sets that fit them."""
        from privsql.mechanisms.views.checks import check_views

        return check_views(release)

    def answers(self, db: Relations, manifest: Manifest) -> ViewAnswers:
        """Return the open release, which answers questions from the noisy tables and the population that fits them."""
        from privsql.mechanisms.views.answers import ViewAnswers

        return ViewAnswers(db, manifest)

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Find the belief that a record is in the tables, by their counts and the choices of items."""
        from privsql.mechanisms.views.attacks import attack_views

        return attack_views(learnt.view)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables: by which items, how many counts, and their noise."""
        law = find_law(SetValued.model_validate(manifest.parameters))
        return describe_noisy_tables(db, concentrated=law.concentrated)
