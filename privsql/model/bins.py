"""Bins of a quasi-identifier: what a publisher asks for, and what a release says of a column that is in bins.

A released value stands for its bin: it is the bin's first value, in the column's own type. ``origin + k width`` for
whole k, or the largest of ``edges`` that is not above the value, or the first moment of a month, quarter or year.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

if TYPE_CHECKING:
    from datetime import date, datetime

DIGITS = 34  # of the numbers that bins are of: two more are needed on the way
EDGES = 1000
MONTHS = {"month": 1, "quarter": 3, "year": 12}
Number = Annotated[Decimal, Field(max_digits=DIGITS, allow_inf_nan=False)]


class Bins(BaseModel):
    """Bins of one width, from ``origin``; or between ``edges``, the last one without end; or of a calendar."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: Number | None = Field(default=None, gt=0, description="The width of every bin.")
    origin: Number = Field(default=Decimal(0), description="Where a bin begins.")
    edges: tuple[Number, ...] = Field(
        default=(), max_length=EDGES, description="Where bins begin, rising; the last one has no end."
    )
    unit: Literal["month", "quarter", "year"] | None = Field(default=None, description="Of dates and timestamps.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """A number is a width, a text a unit."""
        if isinstance(given, str) and given in MONTHS:
            return {"unit": given}
        if isinstance(given, bool | dict | Bins):
            return given
        if isinstance(given, str) and not _is_decimal(given):
            raise ValueError(f"{given!r} is no width; give a decimal, edges, or one of {', '.join(MONTHS)}")
        return {"width": given}

    @model_validator(mode="after")
    def _one(self) -> Bins:
        if sum((self.width is not None, bool(self.edges), self.unit is not None)) != 1:
            raise ValueError("give a width, edges, or one of month, quarter, year")
        if self.origin and self.width is None:
            raise ValueError("origin goes with a width")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("edges must rise")
        return self

    @field_serializer("width", "origin", "edges", when_used="json")
    def _as_text(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [format(one, "f") for one in value]
        return None if value is None else format(value, "f")

    @property
    def numbers(self) -> tuple[Decimal, ...]:
        """All that it states: the column's type has to hold these."""
        return (self.origin, *self.edges, *([] if self.width is None else [self.width]))

    def begins(self, value: Fraction | Decimal | date | datetime) -> bool:
        """Whether a bin begins at a value."""
        if not isinstance(value, Fraction | Decimal):
            midnight = getattr(value, "hour", 0) == getattr(value, "minute", 0) == getattr(value, "second", 0) == 0
            first = value.day == 1 and midnight and getattr(value, "microsecond", 0) == 0
            return first and (value.month - 1) % MONTHS[self.unit or "month"] == 0
        if self.edges:
            return value in self.edges
        return self.width is not None and (Fraction(value) - Fraction(self.origin)) % Fraction(self.width) == 0

    def __str__(self) -> str:
        if self.unit is not None:
            return f"{self.unit}s"
        if self.edges:
            return f"bins that begin at {', '.join(format(one, 'f') for one in self.edges)}"
        return f"bins of {self.width:f}" + (f" from {self.origin:f}" if self.origin else "")


def _is_decimal(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def spread(kind: str) -> tuple[Fraction, Fraction, int]:
    """The least and the greatest number of a type, and its digits behind the point; ``ValueError`` for other types.

    >>> spread("TINYINT"), spread("DECIMAL(4,2)")[1]
    ((Fraction(-128, 1), Fraction(127, 1), 0), Fraction(9999, 100))
    """
    found = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    if found is not None and int(found[1]) <= DIGITS:
        most = Fraction(10 ** int(found[1]) - 1, 10 ** int(found[2]))
        return -most, most, int(found[2])
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}.get(kind.removeprefix("U"))
    if bits is None:
        raise ValueError(f"{kind} holds no exact numbers")
    if kind.startswith("U"):
        return Fraction(0), Fraction(2**bits - 1), 0
    return Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1), 0


def fits(bins: Bins, kind: str) -> bool:
    """Whether a column of a type can have these bins: all that they state are values of it."""
    if bins.unit is not None:
        return kind in ("DATE", "TIMESTAMP")
    try:
        least, most, scale = spread(kind)
    except ValueError:
        return False
    numbers = [Fraction(one) for one in bins.numbers]
    return all(least <= one <= most and (one * 10**scale).denominator == 1 for one in numbers)
