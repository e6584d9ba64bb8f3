"""The facts of noisy tables of sensitive values; their parameters are in ``perturb.parameters``."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from privsql.model.parameters import Facts, NoiseOrigin, Version, describe_noise
from privsql.model.universes import OTHER

WEAK = Fraction(1, 5)  # with a smaller epsilon, counts of hundreds drown in noise
TYPICAL = (Fraction(1, 100), Fraction(1, 10))  # frequencies for which the promise is shown if none is declared


def reach_of(prior: Fraction | float, epsilon: Fraction | float) -> float:
    """Return the belief to which a prior f grows if its odds grow by e^epsilon: e^epsilon f/(1 - f + e^epsilon f).

    >>> round(reach_of(0.134, 0.77), 2)
    0.25
    """
    odds = math.exp(float(epsilon)) * float(prior)
    return odds / (1 - float(prior) + odds)


class TablesPlan(Facts):
    """The facts of a plan, which follow from the specification and the quasi-identifiers.

    Attributes:
        epsilon: The budget, as an exact text.
        values: The number of listed values.
        null_is_value: Whether NULL is one more value.
        columns: The number of tables over single columns.
        cells: The number of counts in these tables.
        pairs: The number of tables over pairs of columns that may be chosen.
        rounds: How often a pair is chosen: each private choice picks the best pair with noise, and spends part of
            epsilon.
        scale: The scale of the noise on a count of a single column.
        reached: For each value, (its declared frequency, the highest belief that anybody can reach).
        threshold: The threshold from which epsilon follows; None if it does not.
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
    details: ClassVar = frozenset({"promise"})  # shown with --verbose only, because the summary states it

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines that a report shows on values, tables, noise and promise."""
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
        """Return a warning if the threshold is so near to the largest declared frequency that epsilon is useless."""
        return [self.explain_weakness()] if self.threshold and Fraction(self.epsilon) < WEAK else []

    def explain_weakness(self) -> str:
        """Return a sentence that says why epsilon is too small for useful counts.

        The threshold lies too near to a value's frequency. The sentence names another mechanism that can keep it.
        """
        name, (prior, most) = max(self.reached.items(), key=lambda one: one[1][0])
        return (
            f"epsilon {self.epsilon} is too small to be of use: threshold {self.threshold} lets belief in {name!r} "
            f"grow from {prior:.3g} to {most:.3g} only, and noise has a scale of {self.scale:,.0f} a count; buckets "
            "keep the same threshold for attackers who find a record, and do not protect against learning"
        )


class TablesFacts(Facts):
    """The facts of a release; all of them follow from its published tables.

    Attributes:
        epsilon: The budget, as an exact text.
        combinations: The number of different combinations of quasi-identifiers.
        tables: The number of noisy tables.
        chosen: How many of them are over chosen pairs of columns.
        cells: The number of counts in all tables.
        noise: Where the random numbers of the noise came from.
        opendp: The version of OpenDP that drew the noise.
    """

    title: ClassVar = "noisy tables"

    epsilon: str
    combinations: int = Field(ge=1)
    tables: int = Field(ge=1)
    chosen: int = Field(ge=0)
    cells: int = Field(ge=1)
    noise: NoiseOrigin
    opendp: Version

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines that a report shows on tables, combinations and noise."""
        pairs = f"{self.chosen} pairs of columns chosen" if self.chosen else "no pair of columns is worth its noise"
        return [
            ("tables", f"{self.tables:,} of {self.cells:,} counts; {pairs}"),
            ("combinations", f"{self.combinations:,} of quasi-identifiers, published as they are"),
            describe_noise(self.noise, self.opendp),
        ]
