"""Estimates: one row of an answer, whichever mechanism it comes from."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

RestsOn = Literal["exact", "certain", "interval", "point"]
"""The true answer; bounds that hold with certainty; an interval at a confidence; an estimate without an interval."""
WEAKEST: tuple[RestsOn, ...] = ("exact", "certain", "interval", "point")  # from the strongest to the weakest
CERTAIN: tuple[RestsOn, ...] = WEAKEST[:2]
ROUNDING = 1e-6  # largest rounding error of a count, in records
ROUNDED = 1e-12  # relative rounding error of a quotient of doubles
DIGITS = 15  # a double holds decimals with so many digits
Number = int | float | Decimal
BEST = "best"  # the estimator that a question has unless it names one
BASELINE = "baseline"  # the literature's formula
MODEL = "model"  # a fitted model, or the draws of a release
FIGURES = ("estimate", "std_error", "low", "high")  # the last columns of every answer


def find_weakest(grounds: Iterable[RestsOn]) -> RestsOn:
    """Return the weakest of several grades of reliability, which is that of all figures together.

    From the strongest to the weakest, a figure is ``exact``, has ``certain`` bounds, has an ``interval`` at some
    confidence, or is a mere ``point`` estimate. The result is ``exact`` if there are no figures.
    """
    return max(grounds, key=WEAKEST.index, default="exact")


@dataclass(frozen=True)
class Estimate:
    """One row of an answer: a group, and the figure that is estimated for it.

    The figures estimate, std_error, low and high are None if SQL answers NULL.

    Attributes:
        group: The values of the columns in GROUP BY.
        estimate: The estimate.
        std_error: Its standard error; None if it is not known.
        low: The lower bound of the true answer, either certain or at the confidence that was asked for.
        high: The upper bound.
        least: The fewest records over which a sum or mean is taken, as certain as the bounds; None for a count.
    """

    group: tuple[Any, ...]
    estimate: Number | None
    std_error: float | None
    low: Number | None
    high: Number | None
    least: Number | None = None

    @property
    def is_fixed(self) -> bool:
        """Return whether both bounds are equal up to rounding, so that the true figure is known.

        A sum or mean can still be NULL if no record qualifies (see ``is_of_some``).
        """
        return self.std_error == 0 and are_equal(self.low, self.high)

    @property
    def is_of_some(self) -> bool:
        """Return whether the figure can't be NULL: it is a count, or at least one record certainly qualifies."""
        return self.least is None or self.least >= 1


def are_equal(low: Number | None, high: Number | None) -> bool:
    """Return whether two bounds are equal up to rounding; bounds that are not numbers must be exactly equal."""
    if isinstance(low, Number) and isinstance(high, Number):
        return math.isclose(low, high, rel_tol=ROUNDED)
    return low == high


def exact_estimate(group: tuple[Any, ...], value: Number | None) -> Estimate:
    """Return an estimate whose value and bounds are the true answer, with standard error 0."""
    return Estimate(group, value, None if value is None else 0.0, value, value)


def as_whole_count(one: Estimate) -> Estimate:
    """Round a count to a whole number if it is known up to rounding errors; else return it unchanged."""
    if one.estimate is None or not one.is_fixed:
        return one
    value = float(one.estimate)
    return exact_estimate(one.group, round(value)) if abs(value - round(value)) <= ROUNDING else one


def as_number(value: Any) -> Number:
    """Return a number from the engine without loss: large integers and decimals keep all digits; others become floats.

    >>> as_number(2**80 + 1), as_number(Decimal("12.50")), as_number(True)
    (1208925819614629174706177, Decimal('12.50'), 1.0)
    """
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else float(value)


def decimal_scale(kind: str) -> int | None:
    """Return the decimal places of a DECIMAL type; None for other types, or if doubles can't hold its values.

    >>> decimal_scale("DECIMAL(8,2)"), decimal_scale("DECIMAL(38,2)"), decimal_scale("DOUBLE")
    (2, None, None)
    """
    match = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    return int(match[2]) if match and int(match[1]) <= DIGITS else None


def as_decimal(value: Number, scale: int) -> Decimal:
    """Round a number to a decimal with ``scale`` decimal places.

    >>> as_decimal(12.5, 2), as_decimal(0.1 + 0.2, 2)
    (Decimal('12.50'), Decimal('0.30'))
    """
    return Decimal(repr(value) if isinstance(value, float) else value).quantize(Decimal(1).scaleb(-scale))


def same_nan(value: Any) -> Any:
    """Return ``math.nan`` for any NaN, and any other value unchanged, so that equal groups have equal keys."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value
