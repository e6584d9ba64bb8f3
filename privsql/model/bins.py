"""Bins of a quasi-identifier: the rule that a publisher asks for, and that a release states.

A published value stands for its bin. It is the first value of the bin, in the column's own type: ``origin`` plus a
multiple of ``width``, one of the ``edges``, or the first moment of a month, quarter or year. A rounded value r is the
middle of its bin, which reaches from r - round/2 up to, but not including, r + round/2. Numbers above ``top`` count as
``top``, and numbers below ``bottom`` as ``bottom``.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
    model_validator,
)

if TYPE_CHECKING:
    from datetime import date, datetime

DIGITS = 34  # most digits of numbers in bins; computing with them needs two more
EDGES = 1000
MONTHS = {"month": 1, "quarter": 3, "year": 12}
DOUBLE = "DOUBLE"
WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER")  # types of whole numbers
Number = Annotated[Decimal, Field(max_digits=DIGITS, allow_inf_nan=False)]


def _is_none(value: object) -> bool:
    return value is None


class Bins(BaseModel):
    """A rule that puts the values of a column into bins. Exactly one of five kinds of rules is set.

    * ``width``: bins of one width, one of which starts at ``origin``.
    * ``edges``: bins between these numbers; the last one has no end.
    * ``unit``: the months, quarters or years of dates.
    * ``prefix``: the first characters of a code.
    * ``round``, ``top``, ``bottom``: numbers are rounded, or cut at the ends of a range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: Number | None = Field(default=None, gt=0, description="The width of every bin.")
    origin: Number = Field(default=Decimal(0), description="Where a bin begins.")
    edges: tuple[Number, ...] = Field(
        default=(), max_length=EDGES, description="Where bins begin, rising; the last one has no end."
    )
    unit: Literal["month", "quarter", "year"] | None = Field(default=None, description="Of dates and timestamps.")
    prefix: int | None = Field(
        default=None,
        ge=1,
        le=100,
        exclude_if=_is_none,
        description="First characters of a text, such as 3 of a ZIP code.",
    )

    round: Number | None = Field(
        default=None, gt=0, exclude_if=_is_none, description="Round numbers to multiples, such as 1000."
    )
    top: Number | None = Field(default=None, exclude_if=_is_none, description="Larger numbers count as this one.")
    bottom: Number | None = Field(default=None, exclude_if=_is_none, description="Smaller numbers count as this one.")

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        """Return the full form of a rule that is given as a number (a width) or as a text (a unit)."""
        if isinstance(value, str) and value in MONTHS:
            return {"unit": value}
        if isinstance(value, bool | dict | Bins):
            return value
        if isinstance(value, str) and not is_decimal(value):
            raise ValueError(
                f"{value!r} is not a width; give a decimal, edges such as {{ edges = [0, 18, 65] }}, or one of "
                f"{', '.join(MONTHS)}"
            )
        return {"width": value}

    @model_validator(mode="after")
    def _require_one_kind(self) -> Bins:
        kinds = (self.width is not None, bool(self.edges), self.unit is not None, self.prefix is not None, self.rounds)
        if sum(kinds) != 1:
            raise ValueError(
                "give a width, edges, { prefix = N }, { round = N }, { bottom = N, top = N }, or one of month, quarter "
                "and year"
            )
        if self.top is not None and self.bottom is not None and self.bottom >= self.top:
            raise ValueError("bottom must be below top")
        if self.origin and self.width is None:
            raise ValueError("origin needs a width")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("edges must rise")
        return self

    @property
    def rounds(self) -> bool:
        """Return whether numbers are rounded or cut at the ends of a range; sums then stay nearly right."""
        return self.round is not None or self.top is not None or self.bottom is not None

    @property
    def only_cuts(self) -> bool:
        """Return whether numbers are only cut at the ends of a range, so that those within the range are unchanged."""
        return self.rounds and self.round is None

    @property
    def half(self) -> Fraction:
        """Return half of the step to which numbers are rounded: the most by which rounding changes a number."""
        return Fraction(self.round or 0) / 2

    def cut(self, value: Fraction) -> Fraction:
        """Return the number itself, or ``top`` if it is larger, or ``bottom`` if it is smaller."""
        value = value if self.top is None else min(value, Fraction(self.top))
        return value if self.bottom is None else max(value, Fraction(self.bottom))

    def round_number(self, value: Fraction) -> Fraction:
        """Return the number after it is cut and rounded."""
        step, value = Fraction(self.round or 0), self.cut(value)
        return (value + step / 2) // step * step if step else value

    @field_serializer("width", "origin", "edges", "round", "top", "bottom", when_used="json")
    def _as_text(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [format(one, "f") for one in value]
        return None if value is None else format(value, "f")

    @property
    def stated_numbers(self) -> tuple[Decimal, ...]:
        """Return all numbers in the rule, which must be values of the column's type."""
        stated = (self.width, self.round, self.top, self.bottom)
        return (self.origin, *self.edges, *(one for one in stated if one is not None))

    def holds(self, value: Fraction | Decimal | date | datetime) -> bool:
        """Return whether a value is one of the published values, each of which stands for a bin."""
        if self.rounds and isinstance(value, Fraction | Decimal):
            return self.round_number(Fraction(value)) == Fraction(value)
        return self.begins_at(value)

    def begins_at(self, value: Fraction | Decimal | date | datetime) -> bool:
        """Return whether some bin begins at this value, so that a comparison with it cuts no bin in two."""
        if not isinstance(value, Fraction | Decimal):
            midnight = getattr(value, "hour", 0) == getattr(value, "minute", 0) == getattr(value, "second", 0) == 0
            first = value.day == 1 and midnight and getattr(value, "microsecond", 0) == 0
            return first and (value.month - 1) % MONTHS[self.unit or "month"] == 0
        if self.edges:
            return value in self.edges
        if self.rounds:
            inside = self.cut(Fraction(value)) == value and (self.bottom is None or value > self.bottom)
            begins = not self.half or (Fraction(value) - self.half) % Fraction(self.round or 1) == 0
            return inside and begins
        return self.width is not None and (Fraction(value) - Fraction(self.origin)) % Fraction(self.width) == 0

    def __str__(self) -> str:
        if self.unit is not None:
            return f"{self.unit}s"
        if self.prefix is not None:
            return f"bins by the first {self.prefix} characters"
        if self.rounds:
            ends = [format(one, "f") for one in (self.bottom, self.top) if one is not None]
            parts = [] if self.round is None else [f"rounded to {self.round:f}"]
            parts += [f"cut at {' and '.join(ends)}"] if ends else []
            return f"numbers {', '.join(parts)}"
        if self.edges:
            return f"bins that begin at {', '.join(format(one, 'f') for one in self.edges)}"
        return f"bins of {self.width:f}" + (f" from {self.origin:f}" if self.origin else "")


def is_decimal(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def is_whole_type(kind: str) -> bool:
    """Return whether an SQL type holds whole numbers only."""
    return WHOLE.fullmatch(kind) is not None


def is_number_type(kind: str) -> bool:
    """Return whether an SQL type holds numbers, whole or not; dates and timestamps do not count."""
    return is_whole_type(kind) or kind.startswith(("FLOAT", "DOUBLE", "DECIMAL"))


def number_range(kind: str) -> tuple[Fraction, Fraction, int]:
    """Return (the least number, the greatest number, the decimal places) of an SQL type.

    Raises:
        ValueError: The type holds no exact numbers, or numbers with too many digits.

    >>> number_range("TINYINT"), number_range("DECIMAL(4,2)")[1]
    ((Fraction(-128, 1), Fraction(127, 1), 0), Fraction(9999, 100))
    """
    match = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    if match is not None and int(match[1]) <= DIGITS:
        most = Fraction(10 ** int(match[1]) - 1, 10 ** int(match[2]))
        return -most, most, int(match[2])
    bits = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}.get(kind.removeprefix("U"))
    if bits is None:
        raise ValueError(f"{kind} can't hold exact numbers")
    if kind.startswith("U"):
        return Fraction(0), Fraction(2**bits - 1), 0
    return Fraction(-(2 ** (bits - 1))), Fraction(2 ** (bits - 1) - 1), 0


def fits_type(bins: Bins, kind: str) -> bool:
    """Return whether a rule suits a column's type, and all numbers in the rule are values of this type."""
    if bins.unit is not None:
        return kind in ("DATE", "TIMESTAMP")
    if bins.prefix is not None:
        return kind == "VARCHAR"
    if kind == DOUBLE:
        return bins.rounds or bins.width is not None or bool(bins.edges)
    try:
        least, most, scale = number_range(kind)
    except ValueError:
        return False
    numbers = [Fraction(one) for one in bins.stated_numbers]
    return all(least <= one <= most and (one * 10**scale).denominator == 1 for one in numbers)
