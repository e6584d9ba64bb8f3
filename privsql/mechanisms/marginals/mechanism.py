"""The mechanism of noisy marginals, and the base class of all differentially private contingency tables."""

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
    """The kind of source that marginals take: a table whose columns have the domains that the parameters state."""

    def domains(self, params: Contingency) -> Mapping[str, Universe]:
        """Return by column where its possible values come from."""
        return params.domains


class ContingencyMechanism(PresenceMechanism[Contingency, F]):
    """The base class of the differentially private mechanisms for contingency tables: marginals and partition trees."""

    kind = "contingency"
    parameters = Contingency
    shape = ColumnDomains()
    advice = ("a smaller epsilon", "public lists of values: those that occur tell of records that have a rare one")

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of 1 and, as domains, the values that occur; columns of many numbers are put into bins."""
        from privsql.mechanisms.marginals.proposal import propose_domains

        return propose_domains(db, source)

    def require_columns(self, manifest: Manifest, params: Contingency) -> None:
        """Raise ``UsageError`` unless the release has exactly the columns of ``domains``."""
        from privsql.mechanisms.marginals.checks import require_domains

        require_domains(manifest, params)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Return how far answers of a release are from its source, by class of questions and for whole tables."""
        from privsql.mechanisms.marginals.evaluation import evaluate_tables

        return evaluate_tables(context)


class Marginals(ContingencyMechanism[MarginalFacts]):
    """The mechanism of noisy marginals: noisy tables over a few columns each, and weighted rows that fit them all."""

    algorithms = ("marginals",)
    facts = MarginalFacts
    layout = TABLES

    def plan(self, db: Relations, source: Records, params: Contingency) -> MarginalPlan:
        """Return the tables, cells and budgets of a release, which follow from the specification; no record is read."""
        from privsql.mechanisms.marginals.plan import plan_marginals

        return plan_marginals(db, source, params)

    def publish(self, db: Relations, source: Records, params: Contingency, key: Key) -> MarginalFacts:
        """Count the marginals and add up measured columns with noise; publish them, and weighted rows that fit them."""
        from privsql.mechanisms.marginals.publish import publish_marginals

        return publish_marginals(db, source, params, key)

    def views(self, manifest: Manifest) -> Views:
        """Return the query of the view of published rows with their weights."""
        return {WEIGHTED: weigh_rows(manifest, ROWS, "weight")}

    def checks(self, release: CheckedRelease[Contingency, MarginalFacts]) -> list[Check]:
        """Return the checks of budgets, choices of tables, scales of noise, domains, stated facts and weighted rows."""
        from privsql.mechanisms.marginals.checks import check_marginals

        return check_marginals(release)

    def source_checks(
        self, release: CheckedRelease[Contingency, MarginalFacts], source: Records, params: Contingency
    ) -> list[Check]:
        """Return the check that the domains are those of the specification.

        A private release reveals nothing else of its source that could be checked.
        """
        from privsql.mechanisms.marginals.checks import compare_domains

        return compare_domains(release, source, params)

    def answers(self, db: Relations, manifest: Manifest) -> MarginalAnswers:
        """Return an object that answers questions from the noisy tables and the model fitted to them."""
        from privsql.mechanisms.marginals.answers import MarginalAnswers

        return MarginalAnswers(db, manifest)

    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Return how sure the attacker who knows all other records becomes that a record is in the counts and sums."""
        from privsql.mechanisms.marginals.attacks import attack_marginals

        return attack_marginals(learnt.view)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return the noisy tables of counts, and the noisy sums if there are any, as tables for people."""
        return describe_tables(db, manifest)
