"""Budgets of a noisy tree in exact fractions, and thresholds that let few empty partitions pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

PRECISION = 50  # decimal digits of the logarithm in a threshold; correctly rounded, so the same everywhere


@dataclass
class Budgets:
    """The distinct budgets of a run: ``values[code]`` is a fraction; equal fractions have one code."""

    values: list[Fraction] = field(default_factory=list)
    codes: dict[Fraction, int] = field(default_factory=dict)

    def code(self, value: Fraction) -> int:
        """The code of a fraction, new or known."""
        if value not in self.codes:
            self.codes[value] = len(self.values)
            self.values.append(value)
        return self.codes[value]


def cutoff(empty: int, passing: Fraction, spent: Fraction) -> int:
    """The least t >= 1 with empty * Pr[noise >= t] <= passing; Pr[noise >= t] = p^t/(1+p), p = exp(-spent)."""
    with localcontext() as context:
        context.prec = PRECISION
        alpha = _decimal(spent)
        ratio = empty / (_decimal(passing) * (1 + (-alpha).exp()))
        return max(1, int((ratio.ln() / alpha).to_integral_value(rounding="ROUND_CEILING")))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
