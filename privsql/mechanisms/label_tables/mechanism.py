"""The class of noisy tables: values are counted with noise by quasi-identifiers, which are published unchanged."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.exact import fraction_text
from privsql.mechanisms.base import WEIGHTED, BudgetComposition, TableShape
from privsql.mechanisms.dp.mechanism import PrivateMechanism
from privsql.mechanisms.dp.tables import describe_noisy_tables
from privsql.mechanisms.label_tables import tables
from privsql.mechanisms.label_tables.parameters import TYPICAL, TablesFacts, reach_of
from privsql.mechanisms.perturb.parameters import Randomize
from privsql.model.checks import VerifiedBound
from privsql.model.explanations import LEARNT, ReleasePromises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.answer import Answers
    from privsql.attacks.scene import AttackView
    from privsql.attacks.suite import Adversary, JointAttack
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import ProfiledSource, Proposal, Views
    from privsql.mechanisms.label_tables.checks import TablesRelease
    from privsql.mechanisms.label_tables.parameters import TablesPlan
    from privsql.model.checks import Check
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.precision import Precision
    from privsql.model.records import Records
    from privsql.model.universes import ListedValues

MADE = (
    "Quasi-identifiers are published as they are. Sensitive values are counted by one or two quasi-identifiers, with "
    "random noise on every count. All else that is published of values follows from these counts."
)
NOT = (
    LEARNT,
    "The release shows who is in the table, with which quasi-identifiers.",
    "An attacker whose knowledge ties records together, such as that two of them have the same value, learns more.",
    "A person with several records has that many times epsilon. The epsilons of several releases add up.",
    "Nothing is promised beside a release of the same people with exact frequencies, or with values in groups.",
)


class ListedShape(TableShape):
    """A source that is a table whose sensitive values are limited to a public list in the parameters."""

    def listed(self, params: Randomize) -> ListedValues:
        """Return the public list of values, with the value that stands for all others."""
        return params.listed


class ValueBudget(BudgetComposition[Randomize]):
    """The differential-privacy budget for the sensitive value of one record; who is in the table is published."""

    unit = "value"

    def epsilon(self, params: Randomize) -> Fraction:
        """Return the epsilon that a release spends."""
        return params.spent_epsilon

    def delta(self, params: Randomize) -> Fraction:
        """Return 0, because the promise is pure epsilon-differential privacy."""
        return Fraction(0)

    def rho(self, params: Randomize) -> None:
        """Return None, because the promise is not zero-concentrated differential privacy."""


class LabelTables(PrivateMechanism[Randomize, TablesFacts]):
    """Noisy tables of sensitive values by quasi-identifiers, which are published unchanged."""

    kind = "randomize"
    algorithms = ("tables",)
    parameters = Randomize
    facts = TablesFacts
    shape = ListedShape(numeric=False, most_numbers=None)
    composition = ValueBudget()
    layout = tables.TABLES
    advice = ("a smaller epsilon", "fewer or coarser quasi-identifiers")

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose an epsilon of ln 4, and a list of values that the publisher has to confirm."""
        from privsql.mechanisms.label_tables import proposal

        return proposal.propose_tables(db, source)

    def plan(self, db: Relations, source: Records, params: Randomize) -> TablesPlan:
        """Return the tables, counts and noise of the release. No sensitive value is read."""
        from privsql.mechanisms.label_tables import plan

        return plan.plan_tables(db, source, params)

    def foresee_precision(self, params: Randomize, bounds: Sequence[VerifiedBound], columns: int) -> Precision | None:
        """Predict the errors of counts of records with a given sensitive value and a condition on one quasi-identifier.

        The prediction follows from epsilon and the number of quasi-identifiers. It is None if there are none.

        Args:
            params: The parameters.
            bounds: Not used, because the prediction reads public figures only.
            columns: The number of quasi-identifiers.
        """
        from privsql.mechanisms.label_tables import rule

        return rule.foresee_precision(params.spent_epsilon, columns)

    def publish(self, db: Relations, source: Records, params: Randomize, key: Key) -> TablesFacts:
        """Write quasi-identifiers, noisy tables and fitted weights (probabilities of values), and return the facts."""
        from privsql.mechanisms.label_tables import publish

        return publish.publish_tables(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Randomize) -> None:
        """Accept all columns, because any type can be counted."""

    def views(self, manifest: Manifest) -> Views:
        """Return the view with a row for each record and value, and the probability (weight) that the record has it."""
        return {WEIGHTED: tables.weighted_view(manifest)}

    def checks(self, release: TablesRelease) -> list[Check]:
        """Return the checks that need the release alone: budgets, tables, noise, values, fitted weights and facts."""
        from privsql.mechanisms.label_tables import checks

        return checks.check_tables(release)

    def long_checks(self, release: TablesRelease) -> list[Check]:
        """Return the check that fits the probabilities of values to the noisy tables again, and compares them."""
        from privsql.mechanisms.label_tables import checks

        return checks.refit_checks(release)

    def source_checks(self, release: TablesRelease, source: Records, params: Randomize) -> list[Check]:
        """Return the check that quasi-identifiers are the source's; sensitive values can't be compared with it."""
        return release.list_checks(
            {"quasi-identifiers are those of the source": release.compare_people(source, tables.PEOPLE)}
        )

    def bounds(self, release: TablesRelease) -> list[VerifiedBound]:
        """Return the verified bound: the epsilon that is promised, of which a release spends all."""
        epsilon = fraction_text(release.params.spent_epsilon)
        return [VerifiedBound("one value, substituted: epsilon", epsilon, epsilon, belief=False)]

    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """Return the object that answers questions on an open release."""
        from privsql.mechanisms.label_tables import answers

        return answers.TablesAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Compare answers with the source over a workload of questions."""
        from privsql.answers.accuracy import by_questions

        return by_questions(context)

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows all values but one, and the attacker who learns from the fitted model."""
        from privsql.mechanisms.label_tables import attacks

        return attacks.ADVERSARIES

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return the attack on two releases of the same people by someone who knows all sensitive values but one."""
        from privsql.mechanisms.label_tables import attacks

        return (attacks.attack_together,)

    def promise(self, params: Randomize) -> str:
        """Return in a few words the factor by which the odds of a value can change."""
        return f"odds of a value times at most e^{fraction_text(params.spent_epsilon)}"

    def words(self, params: Randomize) -> ReleasePromises:
        """Return in sentences how far beliefs can move from declared frequencies, and what is not promised."""
        epsilon = params.spent_epsilon
        priors = [*params.declared_shares.values()] or TYPICAL
        ends = dict.fromkeys((min(priors), max(priors)))
        moves = ", ".join(f"from {float(f):.3g} to at most {reach_of(f, epsilon):.3g}" for f in ends)
        bound = (
            "An attacker who knows the quasi-identifiers of all records and the values of all others, or takes records "
            "to be independent, can move the odds of a record's value, or set of values, by a factor of at most "
            f"e^{fraction_text(epsilon)}. Belief moves {moves}."
        )
        return ReleasePromises((MADE, bound), NOT)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return a list of the noisy tables for the report: columns, number of counts and noise."""
        return describe_noisy_tables(db, concentrated=False)
