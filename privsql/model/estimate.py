"""One row of an answer, whatever mechanism it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

RestsOn = Literal["exact", "certain", "interval", "point"]
"""The true answer; bounds that hold with certainty; an interval at a confidence; an estimate without an interval."""
ROUNDING = 1e-6  # records
Number = int | float | Decimal
FIGURES = ("estimate", "std_error", "low", "high")  # the last columns of every answer


@dataclass(frozen=True)
class Estimate:
    """The group's values and the estimate; ``std_error`` is None where it is not known.

    ``low`` and ``high`` bound the true answer: with certainty where the baseline formula is used, else with the
    confidence that was asked for. All four are None where SQL would answer NULL.
    """

    group: tuple[Any, ...]
    estimate: Number | None
    std_error: float | None
    low: Number | None
    high: Number | None


def exactly(group: tuple[Any, ...], value: Number | None) -> Estimate:
    """An estimate that is the true answer."""
    return Estimate(group, value, None if value is None else 0.0, value, value)


def counted(one: Estimate) -> Estimate:
    """A count of which there is no doubt as the whole number that it is, whatever was made of it by adding doubles."""
    if one.estimate is None or one.std_error != 0 or one.low != one.high:
        return one
    value = float(one.estimate)
    return exactly(one.group, round(value)) if abs(value - round(value)) <= ROUNDING else one


def number(value: Any) -> Number:
    """A number of the engine's as it is: whole ones as such, however large, decimals where no double is written alike.

    >>> number(2**80 + 1), number(Decimal("0.10")), number(Decimal("12345678901234567890.1"))
    (1208925819614629174706177, 0.1, Decimal('12345678901234567890.1'))
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = float(value)
    return value if isinstance(value, Decimal) and Decimal(repr(found)) != value else found


def same_nan(value: Any) -> Any:
    """The value, with every NaN the same object: groups are told apart by equality, and SQL has one NaN."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value
