"""The class of perturbation: every record keeps its sensitive value with a known probability, or shows a random one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.database import IntervalFunctions
from privsql.errors import UsageError
from privsql.mechanisms.base import NO_CURVE, WEIGHTED, Mechanism, NoComposition, TableShape
from privsql.mechanisms.perturb import tables
from privsql.mechanisms.perturb.parameters import Randomize, RandomizeFacts, RandomizePlan
from privsql.model.explanations import LEARNT, LINKED, SEVERAL, ReleasePromises, make_structure
from privsql.model.parameters import Facts

if TYPE_CHECKING:
    from privsql.answers.accuracy import Evaluated, EvaluationContext
    from privsql.answers.answer import Answers
    from privsql.attacks.scene import AttackView, Finding, ReleaseView
    from privsql.attacks.suite import Adversary, JointAttack
    from privsql.engine.database import Relations
    from privsql.keyed_random import Key
    from privsql.mechanisms.base import Alternatives, Curve, ProfiledSource, Proposal, Views
    from privsql.mechanisms.perturb import attacks
    from privsql.mechanisms.perturb.checks import PerturbedRelease
    from privsql.model.checks import Check, VerifiedBound
    from privsql.model.explanations import Structure
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

MADE = (
    "Records are put into sub-tables. Every record keeps its sensitive value with a known probability, and otherwise "
    "shows one drawn at random from its sub-table. So everyone can deny the value that is published."
)
NOT = (
    "Values that are too frequent to be protected have no bound.",
    "An attacker who knows the values of nearly all others of a sub-table, or how many have each, learns more.",
    LINKED,
    LEARNT,
    "The belief in one of several values together has no bound.",
    SEVERAL,
    "The release does not hide who is in the table, and in which sub-table.",
)


class Perturbation(Mechanism[Randomize, RandomizeFacts]):
    """Perturbation: a published sensitive value may be false, with known probabilities.

    ``up`` draws false values from all values. ``pp`` and ``pp-paper`` divide records into sub-tables with fewer values.
    """

    kind = "randomize"
    algorithms = ("pp", "up", "pp-paper")
    parameters = Randomize
    facts = RandomizeFacts
    shape = TableShape(numeric=False, most_numbers=None)
    composition = NoComposition()
    layout = tables.TABLES
    advice = (
        "a lower rho2, which keeps less of every value",
        "algorithm = 'up': sub-tables with few values leave few to choose among",
        "fewer or coarser quasi-identifiers, such as age in bands, or regions for places",
    )

    def propose(self, db: Relations, source: ProfiledSource) -> Proposal:
        """Propose rho1 and rho2 that protect all values which at most a third of the records have."""
        from privsql.mechanisms.perturb import plan

        return plan.propose_parameters(source)

    def plan(self, db: Relations, source: Records, params: Randomize) -> RandomizePlan:
        """Return the division into sub-tables, with its error bound and retention."""
        from privsql.mechanisms.perturb import plan

        return plan.plan_release(source, params)

    def compare_algorithms(self, db: Relations, source: Records, params: Randomize) -> Alternatives:
        """Compare perturbing the whole table (``up``) and two divisions into sub-tables (``pp`` and ``pp-paper``).

        The figures are the sub-tables, the share of values that are kept, the error bound and the expected error.
        """
        from privsql.mechanisms.perturb import plan

        return plan.compare_algorithms(source, params)

    def predict_curve(self, db: Relations, source: Records, params: Randomize) -> Curve:
        """Raise ``UsageError``, because perturbation has no threshold that could be varied."""
        raise UsageError(NO_CURVE)

    def publish(self, db: Relations, source: Records, params: Randomize, key: Key) -> RandomizeFacts:
        """Draw a new value for each record within its sub-table, write the tables, and return the facts."""
        from privsql.mechanisms.perturb import publish

        return publish.publish_release(db, source, params, key)

    def require_columns(self, manifest: Manifest, params: Randomize) -> None:
        """Accept all columns, because values of any type can be perturbed."""

    def views(self, manifest: Manifest) -> Views:
        """Return the view of every record with each value it may have; weights correct for the perturbation."""
        return {WEIGHTED: tables.weighted_view(manifest)}

    def functions(self, manifest: Manifest) -> IntervalFunctions:
        """Return the SQL functions that turn sums over the view of weighted records into counts with intervals.

        This view has every record with each value it may have, and a weight that corrects for the perturbation.
        """
        return IntervalFunctions(skew=self.read_facts(manifest).skew)

    def checks(self, release: PerturbedRelease) -> list[Check]:
        """Return the checks of sub-tables, retention probabilities, bounds and facts that need the release alone."""
        from privsql.mechanisms.perturb import checks

        return checks.release_checks(release)

    def long_checks(self, release: PerturbedRelease) -> list[Check]:
        """Return an empty list, because all checks are quick."""
        return []

    def source_checks(self, release: PerturbedRelease, source: Records, params: Randomize) -> list[Check]:
        """Return the checks that quasi-identifiers, values and sub-tables are those of the source."""
        from privsql.mechanisms.perturb import checks

        return checks.source_checks(release, source, params)

    def measured(self, release: PerturbedRelease) -> Facts:
        """Return no facts for ``verify`` to compare, because ``checks`` compares everything that is stated."""
        return Facts()

    def bounds(self, release: PerturbedRelease) -> list[VerifiedBound]:
        """Return for each protected value rho2 and the highest posterior belief that its sub-tables allow."""
        from privsql.mechanisms.perturb import checks

        return checks.posterior_bounds(release)

    def answers(self, db: Relations, manifest: Manifest) -> Answers:
        """Return the object that answers questions on an open release."""
        from privsql.mechanisms.perturb import answers

        return answers.RandomizeAnswers(db, manifest)

    def evaluate(self, context: EvaluationContext) -> Evaluated:
        """Compare answers with the source over a workload of questions."""
        from privsql.answers.accuracy import by_questions

        return by_questions(context)

    def attack_view(self) -> type[attacks.PerturbedView]:
        """Return the class that reads a perturbed release for adversaries."""
        from privsql.mechanisms.perturb import attacks

        return attacks.PerturbedView

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the adversaries: those who read published values, and those who learn from the release as a whole."""
        from privsql.mechanisms.perturb import attacks

        return attacks.ADVERSARIES

    def joint_attacks(self) -> tuple[JointAttack, ...]:
        """Return an empty tuple, because no attack on two perturbed releases is implemented."""
        return ()

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None, because no model of a learning attacker exists for perturbed values."""
        return None

    def promise(self, params: Randomize) -> str:
        """Return rho2, and the frequency rho1 up to which values are protected, in a few words."""
        return f"<= {params.rho2} if f <= {params.rho1}"

    def words(self, params: Randomize) -> ReleasePromises:
        """Return in sentences what restricted (rho1, rho2)-privacy promises, and what it does not."""
        rho1, rho2 = map(float, params.odds_bounds)
        bound = (
            f"Take a value that at most {rho1:.3g} of the records have. An attacker who believes it of a record with "
            f"at most its frequency in the sub-table believes it with at most {rho2:.3g} after seeing the published "
            "record."
        )
        return ReleasePromises((MADE, bound), NOT)

    def structure(self, db: Relations, manifest: Manifest) -> list[Structure]:
        """Return a table of the sub-tables for the report: records, values, and the share of values that are kept."""
        public = tables.read_public(db)
        columns = (public.records.tolist(), public.domain_sizes.tolist(), public.retention.tolist())
        rows = [
            (f"sub-table {j}", records, size, round(retained, 4))
            for j, (records, size, retained) in enumerate(zip(*columns, strict=True))
        ]
        kept = float(public.retention @ public.records / public.records.sum())
        sentence = (
            f"On average {kept:.1%} of the values are kept; the others are drawn at random from those of the sub-table."
        )
        return [
            make_structure("Sub-tables", sentence, ("sub-table", "records", "different values", "share kept"), rows, 1)
        ]
