"""Add up privacy budgets: what releases spend together at one delta, and whether one more fits under every cap."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from privsql.dp_random import concentrated_epsilon
from privsql.errors import InfeasibleError
from privsql.exact import fraction_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

NOTHING = Fraction(0)


@dataclass(frozen=True)
class Spending:
    """What one release spends: epsilon, delta, and rho.

    ``rho`` is None for pure epsilon. A release with a delta is zero-concentrated differentially private and has a rho.
    """

    epsilon: Fraction
    delta: Fraction = NOTHING
    rho: Fraction | None = None

    def convert(self, delta: Fraction) -> Fraction:
        """Return the epsilon that the release spends at a delta above 0."""
        if self.rho is None or self.delta == delta:
            return self.epsilon
        return max(concentrated_epsilon(self.rho, delta), NOTHING)


@dataclass(frozen=True)
class Cap:
    """The most that the releases of a population may spend together, converted at the cap's delta.

    ``stated`` tells whether the specification of the new release sets or lowers the cap.
    """

    population: str
    epsilon: Fraction
    delta: Fraction = NOTHING
    stated: bool = False


def sum_spending(parts: Sequence[Spending], delta: Fraction) -> Fraction:
    """Return the epsilon that releases spend together at one delta, which is above 0 if any has a rho.

    Pure epsilons add up. So do rhos, whose sum is converted once. The sum never falls when a release is added: every
    term grows with the set of releases, because the delta stays.
    """
    pure = sum((one.epsilon for one in parts if one.rho is None), NOTHING)
    joint = max((one.convert(delta) for one in parts if one.rho is not None), default=NOTHING)
    rhos = [one.rho for one in parts if one.rho is not None]
    return pure + (max(joint, concentrated_epsilon(sum(rhos, NOTHING), delta)) if len(rhos) > 1 else joint)


def choose_delta(parts: Iterable[Spending]) -> Fraction:
    """Return the delta at which releases without a cap are added up: the smallest above 0, or 0 if all are pure.

    At the largest one the sum would fall when a release with a larger delta is added.
    """
    return min((one.delta for one in parts if one.delta), default=NOTHING)


@dataclass(frozen=True)
class Budget:
    """The budget of some people: what earlier releases and a new one spend, and the caps on their sum.

    Attributes:
        earlier: What each earlier release has spent.
        caps: All caps that hold for the sum.
        new: What the new release would spend.
        note: Why that differs from the epsilon of the new release, for messages.
    """

    earlier: tuple[Spending, ...]
    caps: tuple[Cap, ...] = ()
    new: Spending = Spending(NOTHING)
    note: str = ""

    @property
    def cap(self) -> Cap | None:
        """Return the cap with the least epsilon left; None if there is no cap."""
        return min(self.caps, key=lambda one: one.epsilon - self._add_up(self.earlier, one.delta), default=None)

    @property
    def delta(self) -> Fraction:
        """Return the delta at which totals are stated."""
        return choose_delta([*self.earlier, self.new]) if self.cap is None else self.cap.delta

    @property
    def spent(self) -> Fraction:
        """Return what the earlier releases spend."""
        return self._add_up(self.earlier, self.delta)

    @property
    def total(self) -> Fraction:
        """Return what the earlier releases and the new one spend."""
        return self._add_up([*self.earlier, self.new], self.delta)

    @staticmethod
    def _add_up(parts: Sequence[Spending], delta: Fraction) -> Fraction:
        """Return the epsilon that releases spend together at a delta; 0 stands for the smallest delta of the parts."""
        return sum_spending(parts, delta or choose_delta(parts))

    def require_fitting(self, spell: Callable[..., str]) -> None:
        """Raise ``InfeasibleError`` if the new release exceeds a cap; the message has the command that allows it.

        ``spell`` returns a command on the ledger from its words.
        """
        for cap in self.caps:
            needed = self.new.delta if cap.delta else max(one.delta for one in (*self.earlier, self.new))
            if needed > cap.delta:
                raise InfeasibleError(
                    f"delta {fraction_text(needed)} can't be spent: the budget is epsilon {fraction_text(cap.epsilon)} "
                    f"at delta {fraction_text(cap.delta)}, and at a larger delta earlier releases count for less; "
                    f"{_spell_remedy(spell, cap, cap.epsilon, needed)} allows that"
                )
            spent, total = (self._add_up(parts, cap.delta) for parts in (self.earlier, [*self.earlier, self.new]))
            if total > cap.epsilon:
                left, budget = max(cap.epsilon - spent, NOTHING), fraction_text(cap.epsilon)
                details = {"left": fraction_text(left), "spent": fraction_text(spent), "budget": budget}
                raise InfeasibleError(
                    f"epsilon {fraction_text(self.new.epsilon)}{self.note} can't be spent: {details['left']} is left "
                    f"of the budget {budget}{f' at delta {fraction_text(cap.delta)}' if cap.delta else ''}: "
                    f"{len(self.earlier)} releases have spent {details['spent']}; "
                    f"{_spell_remedy(spell, cap, total, cap.delta)} allows that",
                    dict(details),
                )


def _spell_remedy(spell: Callable[..., str], cap: Cap, epsilon: Fraction, delta: Fraction) -> str:
    """Return the command that raises a cap to ``epsilon``, with the specification's epsilon if that is lower."""
    at = ("--delta", fraction_text(delta)) if delta else ()
    lowers = cap.stated and epsilon > cap.epsilon
    return spell("cap", cap.population, fraction_text(epsilon), *at) + (
        f" with ledger.epsilon = {fraction_text(epsilon)}" if lowers else ""
    )


def describe_cap(cap: str | None, delta: str) -> str:
    """Return the most that may be spent at a delta, in words."""
    most = "no cap is set" if cap is None else f"of at most {cap}"
    return most if delta == "0" else f"{most} (at delta {delta})"
