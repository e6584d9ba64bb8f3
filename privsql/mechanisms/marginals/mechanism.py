"""The mechanism of noisy marginals of a contingency table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.attacks.suite import Adversary
from privsql.mechanisms.base import WEIGHTED, CategoricalShape, ProfiledSource, Proposal, Views
from privsql.mechanisms.dp.attacks import KNOWS, MEMBERSHIP
from privsql.mechanisms.dp.mechanism import PrivateMechanism
from privsql.mechanisms.marginals.answers import MarginalAnswers
from privsql.mechanisms.marginals.attacks import attack_marginals
from privsql.mechanisms.marginals.checks import marginal_checks, marginal_source_checks, require_domains
from privsql.mechanisms.marginals.evaluation import evaluate_tables
from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts, MarginalPlan
from privsql.mechanisms.marginals.plan import plan_marginals
from privsql.mechanisms.marginals.proposal import propose_marginals
from privsql.mechanisms.marginals.publish import publish_marginals
from privsql.mechanisms.marginals.tables import TABLES, describe_tables, marginal_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import AttackView
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
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
TABLE_ADVICE = ("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one")


class Marginals(PrivateMechanism[Contingency, MarginalFacts]):
    """Noisy marginals: tables over few columns each, and weighted rows that fit all of them."""

    kind = "contingency"
    algorithms = ("marginals",)
    parameters = Contingency
    facts = MarginalFacts
    shape = COLUMNS
    layout = TABLES
    advice = TABLE_ADVICE

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1, and the values that occur as the domains, in bins where they are many."""
        return propose_marginals(db, source)

    def plan(self, db: Relations, source: Records, params: Contingency) -> MarginalPlan:
        """Return tables, cells and budgets, which the specification and its domains tell."""
        return plan_marginals(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> MarginalFacts:
        """Measure the marginals and sums, and publish them with weighted rows that fit them."""
        return publish_marginals(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Contingency) -> None:
        """Raise ``UsageError`` unless a release has the columns of its domains, and no other."""
        require_domains(manifest, params)

    def views(self, manifest: Manifest) -> Views:
        """Return the published rows with their weights."""
        return {WEIGHTED: marginal_view(manifest)}

    def checks(self, release: CheckedRelease[Contingency, MarginalFacts]) -> list[Check]:
        """Return the checks of the tables: their budgets, rule, scales and domains, and the rows that fit them."""
        return marginal_checks(release)

    def long_checks(self, release: CheckedRelease[Contingency, MarginalFacts]) -> list[Check]:
        """Return no further checks: ``checks`` fits the model again."""
        return []

    def source_checks(
        self, release: CheckedRelease[Contingency, MarginalFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that domains are the specification's; a private release tells no more of its source."""
        return marginal_source_checks(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> MarginalAnswers:
        """Return the release as one that answers from the tables and the model that fits them."""
        return MarginalAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of whole tables."""
        return evaluate_tables(context)

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows every other record and asks whether the last one is in the table."""
        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=attack_marginals),)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables, and the noisy sums where there are any."""
        return describe_tables(db, manifest)
