"""Facts of noisy tables of sensitive values. The parameters are those of the kind, which ``perturb`` has."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from privsql.model.parameters import Facts, NoiseOrigin, Version, describe_noise
from privsql.model.universes import OTHER

WEAK = Fraction(1, 5)  # a smaller epsilon leaves next to nothing of counts of hundreds
TYPICAL = (Fraction(1, 100), Fraction(1, 10))  # frequencies whose reach is shown where none is declared


def reach_of(prior: Fraction | float, epsilon: Fraction | float) -> float:
    """Return the belief e^epsilon f/(1 - f + e^epsilon f): that of a prior f whose odds grow by e^epsilon.

    >>> round(reach_of(0.134, 0.77), 2)
    0.25
    """
    odds = math.exp(float(epsilon)) * float(prior)
    return odds / (1 - float(prior) + odds)


class TablesPlan(Facts):
    """The facts of noisy tables that follow from the specification and the quasi-identifiers.

    ``scale`` is that of the noise on a column's counts. ``reached`` has by value the declared frequency, and the belief
    that nobody exceeds.
    """

    epsilon: str
    values: int
    null_is_value: bool
    columns: int
    cells: int
    pairs: int
    rounds: int
    scale: float
    reached: dict[str, tuple[float, float]]
    threshold: str | None = None
    details: ClassVar = frozenset({"promise"})  # the summary states it

    def describe(self) -> list[tuple[str, str]]:
        """Return tables, noise, and both directions of the promise."""
        cells = f"{self.columns:,} of {self.cells:,} counts, and {self.rounds} choices among {self.pairs:,} pairs"
        ends = sorted(self.reached.values())
        moves = [f"from {prior:.3g} to more than {most:.3g}" for prior, most in dict.fromkeys((ends[0], ends[-1]))]
        return [
            ("values", f"{self.values:,}, {'NULL, ' * self.null_is_value}and {OTHER!r} for all else; public"),
            ("tables", cells),
            ("noise", f"of scale {self.scale:,.1f} or less on each count"),
            ("promise", f"epsilon {self.epsilon}: nobody who knows everything else can move {' nor '.join(moves)}"),
        ]

    def list_warnings(self) -> list[str]:
        """Warn of a threshold that lies too near to the largest declared frequency."""
        return [self.explain_weakness()] if self.threshold and Fraction(self.epsilon) < WEAK else []

    def explain_weakness(self) -> str:
        """Explain why epsilon is useless, and what another mechanism would do."""
        name, (prior, most) = max(self.reached.items(), key=lambda one: one[1][0])
        return (
            f"epsilon {self.epsilon} is too small to be of use: threshold {self.threshold} lets belief in {name!r} "
            f"grow from {prior:.3g} to {most:.3g} only, and noise has a scale of {self.scale:,.0f} a count; buckets "
            "keep the same threshold for attackers who find a record, and do not protect against learning"
        )


class TablesFacts(Facts):
    """The facts of noisy tables; all of them follow from the published tables."""

    title: ClassVar = "noisy tables"

    epsilon: str
    combinations: int = Field(ge=1)
    tables: int = Field(ge=1)
    chosen: int = Field(ge=0)
    cells: int = Field(ge=1)
    noise: NoiseOrigin
    opendp: Version

    def describe(self) -> list[tuple[str, str]]:
        """Return tables and noise."""
        pairs = f"{self.chosen} pairs of columns chosen" if self.chosen else "no pair of columns is worth its noise"
        return [
            ("tables", f"{self.tables:,} of {self.cells:,} counts; {pairs}"),
            ("combinations", f"{self.combinations:,} of quasi-identifiers, published as they are"),
            describe_noise(self.noise, self.opendp),
        ]
