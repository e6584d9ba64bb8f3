"""The base class of differentially private mechanisms: what they promise and spend."""

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
    """The budget of a record, or of a person with several records: epsilon, or (epsilon, delta) with Gaussian noise."""

    unit = "presence"

    def epsilon(self, params: Any) -> Fraction:
        """Return the epsilon that a release spends."""
        epsilon: Fraction = params.epsilon
        return epsilon

    def delta(self, params: Any) -> Fraction:
        """Return the delta that a release spends; 0 where its noise is pure."""
        return params.delta if find_law(params).concentrated else Fraction(0)

    def rho(self, params: Any) -> Fraction | None:
        """Return the rho that (epsilon, delta) allows; None where delta is 0."""
        return person_budget(params) if find_law(params).concentrated else None


class PrivateMechanism(Mechanism[P, F]):
    """A differentially private mechanism: what it promises and spends follows from epsilon.

    Plans are not compared, because their errors depend on noise that is not yet drawn. The checks recompute every fact
    that the release states. Beliefs in a value have no bound, and no record is published with a value.
    """

    composition: ClassVar[Composition] = RecordBudget()

    def attack_view(self) -> None:
        """Return None: no adversary learns from quasi-identifiers."""

    def compare_algorithms(self, db: Relations, source: Records, params: P) -> Alternatives:
        """Raise ``UsageError``: a plan does not tell what the noise will be."""
        raise UsageError(NOT_PLANNED)

    def predict_curve(self, db: Relations, source: Records, params: P) -> Curve:
        """Raise ``UsageError``: there is no threshold of beliefs."""
        raise UsageError(NO_CURVE)

    def measured(self, release: CheckedRelease[P, F]) -> Facts:
        """Return no facts: the checks of a private release compare all of them."""
        return Facts()

    def bounds(self, release: CheckedRelease[P, F]) -> list[VerifiedBound]:
        """Return epsilon, with delta and rho where the noise is Gaussian: all of the budget is spent."""
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
        """Return no attack: the epsilons of two releases add up, and their noise is independent."""
        return ()

    def measure_learning(self, view: ReleaseView) -> Finding | None:
        """Return None: what a release teaches about everybody is not counted as a secret of one record."""
        return None

    def promise(self, params: Any) -> str:
        """Return epsilon, delta, and the number of records of a person, in a few words."""
        more = f", delta = {float(params.delta):g}" if find_law(params).concentrated else ""
        persons = f" for persons of at most {max_records(params)} records" if max_records(params) > 1 else ""
        return f"epsilon = {fraction_text(params.epsilon)}{more}{persons}"

    def words(self, params: Any) -> ReleasePromises:
        """Return what epsilon promises, by the factor and the belief that it allows, and what it does not."""
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
    """A private mechanism that hides whether a record is present, and whose quick checks are the whole proof."""

    def long_checks(self, release: CheckedRelease[P, F]) -> list[Check]:
        """Return no further checks: ``checks`` recomputes all that ``publish`` made of the noisy counts."""
        return []

    def adversaries(self) -> tuple[Adversary[AttackView], ...]:
        """Return the attacker who knows every other record and asks whether the last one is in the table."""
        from privsql.attacks.suite import Adversary
        from privsql.mechanisms.dp.attacks import KNOWS, MEMBERSHIP

        return (Adversary(MEMBERSHIP, KNOWS, promised=True, attack=self.attack_membership),)

    @abstractmethod
    def attack_membership(self, learnt: AttackContext[AttackView]) -> list[Finding]:
        """Return the belief that this attacker reaches if all noise happens to point the same way."""
