"""The mechanism of noisy marginals, and what all differentially private ones for contingency tables share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.mechanisms.base import WEIGHTED, CategoricalShape, F, ProfiledSource, Proposal, Views
from privsql.mechanisms.dp.mechanism import PresenceMechanism
from privsql.mechanisms.marginals.parameters import Contingency, MarginalFacts, MarginalPlan
from privsql.mechanisms.marginals.tables import ROWS, TABLES, describe_tables, weigh_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.attacks.scene import AttackView, Finding
    from privsql.attacks.suite import AttackContext
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.marginals.answers import MarginalAnswers
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.model.universes import Universe


class ColumnDomains(CategoricalShape[Contingency]):
    """Columns with the domains that the parameters state."""

    def domains(self, params: Contingency) -> Mapping[str, Universe]:
        """Return what lists the values of each column, by its name."""
        return params.domains


class ContingencyMechanism(PresenceMechanism[Contingency, F]):
    """A differentially private mechanism for contingency tables: the base class of marginals and of trees."""

    kind = "contingency"
    parameters = Contingency
    shape = ColumnDomains()
    advice = ("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one")

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1 and the occurring values as domains; where these are many they are put into bins."""
        from privsql.mechanisms.marginals.proposal import propose_domains

        return propose_domains(db, source)

    def require_columns(self, manifest: Manifest, params: Contingency) -> None:
        """Raise ``UsageError`` unless a release has the columns of its domains, and no other."""
        from privsql.mechanisms.marginals.checks import require_domains

        require_domains(manifest, params)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return errors by class of questions, and of whole tables."""
        from privsql.mechanisms.marginals.evaluation import evaluate_tables

        return evaluate_tables(context)


class Marginals(ContingencyMechanism[MarginalFacts]):
    """Noisy marginals: noisy tables over a few columns each, and weighted rows that fit all of them."""

    algorithms = ("marginals",)
    facts = MarginalFacts
    layout = TABLES

    def plan(self, db: Relations, source: Records, params: Contingency) -> MarginalPlan:
        """Return the tables, their cells and their budgets, which follow from the specification and its domains."""
        from privsql.mechanisms.marginals.plan import plan_marginals

        return plan_marginals(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> MarginalFacts:
        """Measure the marginals and sums, and publish them with weighted rows that fit them."""
        from privsql.mechanisms.marginals.publish import publish_marginals

        return publish_marginals(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the published rows with their weights."""
        return {WEIGHTED: weigh_rows(manifest, ROWS, "weight")}

    def checks(self, release: CheckedRelease[Contingency, MarginalFacts]) -> list[Check]:
        """Return the checks of the tables: their budgets, rule, scales and domains, and the rows that fit them."""
        from privsql.mechanisms.marginals.checks import check_marginals

        return check_marginals(release)

    def source_checks(
        self, release: CheckedRelease[Contingency, MarginalFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that domains are the specification's; a private release tells no more of its source."""
        from privsql.mechanisms.marginals.checks import compare_domains

        return compare_domains(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> MarginalAnswers:
        """Return the open release, which answers from the noisy tables and the model that fits them."""
        from privsql.mechanisms.marginals.answers import MarginalAnswers

        return MarginalAnswers(db, manifest)

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Find the belief that a record is in the tables, by their counts and sums."""
        from privsql.mechanisms.marginals.attacks import attack_marginals

        return attack_marginals(learnt.view)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables, and the noisy sums where there are any."""
        return describe_tables(db, manifest)
