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
    """The budget that one release spends.

    Attributes:
        epsilon: Its epsilon.
        delta: Its delta.
        rho: Its budget of zero-concentrated differential privacy, if delta is above 0; None for pure
            epsilon-differential privacy, where delta is 0.
    """

    epsilon: Fraction
    delta: Fraction = NOTHING
    rho: Fraction | None = None

    def convert(self, delta: Fraction) -> Fraction:
        """Return the epsilon that the release spends if it is stated at another delta, above 0."""
        if self.rho is None or self.delta == delta:
            return self.epsilon
        return max(concentrated_epsilon(self.rho, delta), NOTHING)


@dataclass(frozen=True)
class Cap:
    """A limit on what the releases of a population may spend together.

    Attributes:
        population: The name of the population.
        epsilon: The largest epsilon that the releases may spend together.
        delta: The delta at which their spending is converted to an epsilon.
        stated: Whether the specification of the new release sets or lowers this cap.
    """

    population: str
    epsilon: Fraction
    delta: Fraction = NOTHING
    stated: bool = False


def sum_spending(parts: Sequence[Spending], delta: Fraction) -> Fraction:
    """Return the epsilon that several releases spend together at one delta.

    Pure epsilons are added up. The rhos are added up too, and their sum is converted to an epsilon once. Adding a
    release never lowers the result, because delta stays the same and every term grows.

    Args:
        parts: What each release spends.
        delta: The delta; above 0 if any release has a rho.
    """
    pure = sum((one.epsilon for one in parts if one.rho is None), NOTHING)
    joint = max((one.convert(delta) for one in parts if one.rho is not None), default=NOTHING)
    rhos = [one.rho for one in parts if one.rho is not None]
    return pure + (max(joint, concentrated_epsilon(sum(rhos, NOTHING), delta)) if len(rhos) > 1 else joint)


def choose_delta(parts: Iterable[Spending]) -> Fraction:
    """Return the delta at which to add up releases that have no cap.

    It is their smallest delta above 0; or 0 if all of them have delta 0. With the largest delta instead, adding a
    release with an even larger one could lower the sum.
    """
    return min((one.delta for one in parts if one.delta), default=NOTHING)


@dataclass(frozen=True)
class Budget:
    """The budget of some people: what earlier releases and a new one spend, and the caps on the sum.

    Attributes:
        earlier: What each earlier release has spent.
        caps: All caps on the sum.
        new: What the new release would spend; nothing if there is no new release.
        note: For messages: why ``new`` differs from the epsilon that the new release states.
    """

    earlier: tuple[Spending, ...]
    caps: tuple[Cap, ...] = ()
    new: Spending = Spending(NOTHING)
    note: str = ""

    @property
    def cap(self) -> Cap | None:
        """Return the cap under which the least epsilon is left; None if there is no cap."""
        return min(self.caps, key=lambda one: one.epsilon - self._add_up(self.earlier, one.delta), default=None)

    @property
    def delta(self) -> Fraction:
        """Return the delta at which all sums are stated."""
        return choose_delta([*self.earlier, self.new]) if self.cap is None else self.cap.delta

    @property
    def spent(self) -> Fraction:
        """Return the epsilon that the earlier releases spend together."""
        return self._add_up(self.earlier, self.delta)

    @property
    def total(self) -> Fraction:
        """Return the epsilon that the earlier releases and the new one spend together."""
        return self._add_up([*self.earlier, self.new], self.delta)

    @staticmethod
    def _add_up(parts: Sequence[Spending], delta: Fraction) -> Fraction:
        """Return the epsilon that releases spend together.

        Args:
            parts: What each release spends.
            delta: The delta at which to add up; 0 means the smallest delta of these releases.
        """
        return sum_spending(parts, delta or choose_delta(parts))

    def require_fitting(self, spell: Callable[..., str]) -> None:
        """Check that the new release fits under every cap.

        Args:
            spell: Makes the text of a ledger command from its words, for the message.

        Raises:
            InfeasibleError: A cap is exceeded. The message has the command that raises the cap far enough.
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
    """Return the command that raises a cap to ``epsilon``.

    If the specification itself limits epsilon to less, the text also says how to change the specification.

    Args:
        spell: Makes the text of a ledger command from its words.
        cap: The cap.
        epsilon: The epsilon that is needed.
        delta: The delta at which it is stated.
    """
    at = ("--delta", fraction_text(delta)) if delta else ()
    lowers = cap.stated and epsilon > cap.epsilon
    return spell("cap", cap.population, fraction_text(epsilon), *at) + (
        f" with ledger.epsilon = {fraction_text(epsilon)}" if lowers else ""
    )


def describe_cap(cap: str | None, delta: str) -> str:
    """Return a cap in words, with its delta unless that is 0.

    Args:
        cap: The epsilon; None if no cap is set.
        delta: The delta.
    """
    most = "no cap is set" if cap is None else f"of at most {cap}"
    return most if delta == "0" else f"{most} (at delta {delta})"
