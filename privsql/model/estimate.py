"""One row of an answer, whatever mechanism it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

RestsOn = Literal["exact", "certain", "interval", "point"]
"""The true answer; bounds that hold with certainty; an interval at a confidence; an estimate without an interval."""
WHOLE = 2**53  # up to which doubles are all whole numbers
FIGURES = ("estimate", "std_error", "low", "high")  # the last columns of every answer


@dataclass(frozen=True)
class Estimate:
    """The group's values and the estimate; ``std_error`` is None where it is not known.

    ``low`` and ``high`` bound the true answer: with certainty where the baseline formula is used, else with the
    confidence that was asked for. All four are None where SQL would answer NULL.
    """

    group: tuple[Any, ...]
    estimate: float | None
    std_error: float | None
    low: float | None
    high: float | None


def exactly(group: tuple[Any, ...], value: float | None) -> Estimate:
    """An estimate that is the true answer."""
    return Estimate(group, value, None if value is None else 0.0, value, value)


def nearest(group: tuple[Any, ...], value: Any) -> Estimate:
    """The true answer, or where no double is that number the nearest one between its neighbours."""
    if value is None:
        return exactly(group, None)
    found = float(value)
    if not isinstance(value, int | Decimal) or abs(found) <= WHOLE or Fraction(value) == Fraction(found):
        return exactly(group, found)
    return Estimate(group, found, None, math.nextafter(found, -math.inf), math.nextafter(found, math.inf))


def same_nan(value: Any) -> Any:
    """The value, with every NaN the same object: groups are told apart by equality, and SQL has one NaN."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value
