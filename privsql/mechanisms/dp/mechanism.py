"""The base classes of differentially private mechanisms: what they promise, and what they spend."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from math import exp as e_to
from typing import TYPE_CHECKING, Any, ClassVar

from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.base import NO_CURVE, Alternatives, BudgetComposition, Composition, Curve, F, Mechanism, P
from privsql.mechanisms.dp.parameters import find_law, max_records, person_budget, protected_unit
from privsql.model.checks import Check, CheckedRelease, VerifiedBound
from privsql.model.explanations import ReleasePromises
from privsql.model.parameters import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.scene import AttackView, Finding, ReleaseView
    from privsql.attacks.suite import Adversary, AttackContext, JointAttack
    from privsql.engine.database import Relations
    from privsql.model.records import Records


RECORD = "Privacy is for one record, added or removed."
NOT_PLANNED = (
    "algorithms: what its algorithms tell depends on the noise that is drawn, not on a plan; "
    "compare with privsql evaluate"
)
NOISE = (
    "Records were counted, and random noise was added to every count. The release is made of these noisy counts alone. "
    "It holds no record of the source."
)
BOUND = (
    "One {unit} more or less changes the probability of any release by a factor of at most e^epsilon, whatever an "
    "attacker knows of all other {unit}s. Here epsilon = {epsilon}, and the factor is {factor:.3g}. An attacker who "
    "gives even odds that the {unit} is in the table becomes at most {most:.1%} sure."
)
SHARED = (
    " A secret key chose at most {records} records of each person, whatever they hold. Noise is scaled by {records}: "
    "each of them spends {share}."
)
UNLESS = (
    " That may fail with a probability of {delta:g} at most (delta). The noise is discrete Gaussian: the release is "
    "zero-concentrated differentially private with rho = {rho:.6g}."
)
MANY_RECORDS = "A person with several records has that many times epsilon, unless one record of each was taken."
NOT = (
    "The release shows what is true of records in general, and that says something about each of them.",
    "The epsilons of several releases of the same records add up.",
    "The names of columns, and of values where these were taken from the records, are not protected by the noise.",
)


class RecordBudget(BudgetComposition[Any]):
    """The budget that a release spends for each record or person whose presence in the source it hides.

    The budgets of several releases add up in the ledger. A budget is epsilon, or (epsilon, delta) under Gaussian noise.
    """

    unit = "presence"

    def epsilon(self, params: Any) -> Fraction:
        """Return the epsilon that a release spends on a record, or on a person with several records."""
        epsilon: Fraction = params.epsilon
        return epsilon

    def delta(self, params: Any) -> Fraction:
        """Return the delta that a release spends; 0 under Laplace noise."""
        return params.delta if find_law(params).concentrated else Fraction(0)

    def rho(self, params: Any) -> Fraction | None:
        """Return the rho that a release spends under Gaussian noise; None under Laplace noise."""
        return person_budget(params) if find_law(params).concentrated else None


class PrivateMechanism(Mechanism[P, F]):
    """The base class of differentially private mechanisms, whose promise and budget follow from epsilon.

    Plans can't be compared, because the errors depend on noise that is not drawn yet. Checks recompute every fact that
    a release states. There is no bound on an attacker's belief in a value, as no record is published with a value.
    """

    composition: ClassVar[Composition] = RecordBudget()

    def attack_view(self) -> None:
        """Return None: no attack reads the release as arrays of records, as no record is published with a value."""

    def compare_algorithms(self, db: Relations, source: Records, params: P) -> Alternatives:
        """Raise ``UsageError``: algorithms can't be compared before publishing, when no noise has been drawn yet."""
        raise UsageError(NOT_PLANNED)

    def predict_curve(self, db: Relations, source: Records, params: P) -> Curve:
        """Raise ``UsageError``: beliefs and errors can't be predicted by threshold, as there are no thresholds."""
        raise UsageError(NO_CURVE)

    def measured(self, release: CheckedRelease[P, F]) -> Facts:
        """Return no further facts to compare with stated ones, because ``checks`` recomputes every stated fact."""
        return Facts()

    def bounds(self, release: CheckedRelease[P, F]) -> list[VerifiedBound]:
        """Return the spent budget, as beliefs have no bounds: epsilon, and under Gaussian noise also delta and rho."""
        params: Any = release.params
        unit = f"one {protected_unit(params)}".removesuffix(",")
        spent = {"epsilon": params.epsilon}
        if find_law(params).concentrated:
            spent |= {"delta": params.delta, "rho": person_budget(params)}
        texts = {name: fraction_text(one) for name, one in spent.items()}
        return [
            VerifiedBound(f"{unit}, added or removed: {name}", one, one, belief=False) for name, one in texts.items()
        ]

    def joint_attacks(self) -> Sequence[JointAttack]:
        """Return no attacks that combine two releases of the same people.

        Their noise is independent, so together they keep the promise for the sum of their epsilons.
        """
        return ()

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None, because what a release teaches about everybody is no secret of one record."""
        return None

    def promise(self, params: Any) -> str:
        """Return the promise in a few words: epsilon, delta under Gaussian noise, and the most records of a person."""
        more = f", delta = {float(params.delta):g}" if find_law(params).concentrated else ""
        persons = f" for persons of at most {max_records(params)} records" if max_records(params) > 1 else ""
        return f"epsilon = {fraction_text(params.epsilon)}{more}{persons}"

    def words(self, params: Any) -> ReleasePromises:
        """Return sentences on what epsilon promises (a factor, and the highest belief), and on what it does not."""
        records, concentrated = max_records(params), find_law(params).concentrated
        factor = e_to(float(params.epsilon))
        bound = BOUND.format(
            unit="record" if records == 1 else "person",
            epsilon=fraction_text(params.epsilon),
            factor=factor,
            most=factor / (1 + factor),
        )
        if concentrated:
            bound += UNLESS.format(delta=float(params.delta), rho=float(person_budget(params)))
        if records == 1:
            return ReleasePromises((NOISE, bound), (MANY_RECORDS, *NOT))
        share = f"1/{records**2} of rho" if concentrated else f"1/{records} of epsilon"
        return ReleasePromises((NOISE, bound + SHARED.format(records=records, share=share)), NOT)


class PresenceMechanism(PrivateMechanism[P, F]):
    """The base class of private mechanisms that hide whether a record is in the source."""

    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return no slow checks, because ``checks`` already recomputes all that follows from the noisy counts."""
        return []

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the one adversary: it knows all other records, and asks whether the last one is in the table."""
        from privsql.attacks.suite import Adversary
        from privsql.mechanisms.dp.attacks import KNOWS, MEMBERSHIP

        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=self.attack_membership),)

    @abstractmethod
    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Return how sure an attacker who knows all other records becomes that a record is in the source.

        The noise is taken to be the most revealing one, by which the attacker becomes surest. Under Gaussian noise it
        is so revealing that only one of 1,000 releases reveals more.

        Args:
            learnt: The release that is attacked.
        """
