"""The parameters of (k,e)-anonymity that a publisher sets, and the facts that its plans and releases state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from privsql.exact import as_fraction, fraction_text, readable_text
from privsql.model.parameters import Facts, Parameters

SECONDS = {"microsecond": Fraction(1, 10**6), "millisecond": Fraction(1, 10**3), "second": Fraction(1)} | {
    name: Fraction(length) for name, length in (("minute", 60), ("hour", 3600), ("day", 86400), ("week", 604800))
}
PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=[\s\d]|$)")
EXAMPLE = "write a number in the column's unit, or for dates and times an interval such as '30 days'"


@dataclass(frozen=True)
class Extent:
    """The smallest range of values in a group (e).

    Attributes:
        amount: A number in the column's own unit, or a length of time in seconds.
        is_time: Whether it is a length of time.
    """

    amount: Fraction
    is_time: bool = False

    def __str__(self) -> str:
        if not self.is_time:
            return fraction_text(self.amount)
        parts, rest = [], self.amount
        for unit in ("day", "hour", "minute"):
            number, rest = divmod(rest, SECONDS[unit])
            parts += [f"{number} {unit}{'s' * (number != 1)}"] if number else []
        parts += [f"{fraction_text(rest)} second{'s' * (rest != 1)}"] if rest or not parts else []
        return " ".join(parts)


def parse_extent(value: object) -> Extent:
    """Read ``e``: an exact number >= 0, or a length of time such as ``"30 days"`` or ``"1 day 12 hours"``.

    Raises:
        ValueError: The text is neither. Months and years have no fixed length, so they are refused.

    >>> parse_extent("1 day 12 hours").amount, parse_extent("0.50").amount
    (Fraction(129600, 1), Fraction(1, 2))
    """
    if isinstance(value, Extent):
        return value
    if (
        isinstance(value, str)
        and re.search("[a-z]", low := value.strip().lower())
        and not re.fullmatch(r"[\d.e+-]+", low)
    ):
        return Extent(_parse_seconds(low, value), is_time=True)
    try:
        amount = as_fraction(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is not a range; {EXAMPLE}") from error
    if amount < 0:
        raise ValueError(f"{fraction_text(amount)} is negative; a range is 0 or more")
    return Extent(amount)


def _parse_seconds(low: str, source: str) -> Fraction:
    parts = PART.findall(low)
    if PART.sub("", low).strip() or not all(unit in SECONDS for _, unit in parts):
        raise ValueError(
            f"{source!r} is not a length of time; weeks, days, hours, minutes and seconds are, as in '30 days'"
        )
    return as_fraction(sum((as_fraction(number) * SECONDS[unit] for number, unit in parts), Fraction(0)))


RANGE = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}], "description": EXAMPLE}
Range = Annotated[Extent, BeforeValidator(parse_extent), PlainSerializer(str), WithJsonSchema(RANGE)]
Algorithm = Literal["nested", "exact", "reapply-last", "reapply-all", "cells"]
CELL = 4  # a cell has at least CELL * k records


class Permute(Parameters):
    """(k,e)-anonymity: every group has at least k distinct sensitive values, over a range of at least e."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    kind: Literal["permute"] = "permute"
    algorithm: Algorithm = "nested"
    k: int = Field(ge=1, strict=True, description="Fewest different values in a group.")
    e: Range = Field(description="Smallest range of a group: 5000, or '30 days'.")


MOST_GROUPS = 1000  # the most groups that a plan lists


class PlannedGroup(Facts):
    """A group of a plan.

    Attributes:
        records: Its number of records.
        low: Its smallest value, as text.
        high: Its largest value, as text.
        error: The difference of these two, as text with its unit.
    """

    records: int
    low: str
    high: str
    error: str


class GroupFacts(Facts):
    """The facts on the groups of a plan or release.

    Attributes:
        loss: The sum of (max - min) over all groups.
        error: The same sum as an exact text with its unit.
        groups: The number of groups.
        smallest: The number of records of the smallest group.
        largest: The number of records of the largest group.
        mean_width: The mean over all records of max - min of their group.
        by_group: The first groups of a plan; empty in a release.
        known: How precisely values are known, in words; no release states it.
    """

    title: ClassVar = "groups"
    details: ClassVar = frozenset({"error"})

    loss: float = Field(ge=0)
    error: str
    groups: int = Field(ge=1)
    smallest: int = Field(ge=1)
    largest: int = Field(ge=1)
    mean_width: float = Field(ge=0)
    by_group: list[PlannedGroup] = Field(default_factory=list, max_length=MOST_GROUPS)
    known: str = Field(default="", exclude=True)

    def describe_precision(self) -> str:
        """Return in words how much the ranges of groups tell a reader of the release about how large values are."""
        return self.known

    def tabulate(self) -> list[tuple[object, ...]]:
        """Return a table of the groups with a row of titles first: range of values, records, max - min."""
        rows = [(f"{one.low} to {one.high}", f"{one.records:,}", readable_text(one.error)) for one in self.by_group]
        return [("values", "records", "max - min"), *rows] if rows else []

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines that are shown on groups and widths; widths of dates are in days."""
        unit = self.error.partition(" ")[2]
        mean = self.mean_width / SECONDS["day"] if unit == "days" else self.mean_width
        return [
            ("groups", f"{self.groups:,}  (of {self.smallest:,} to {self.largest:,} records)"),
            ("width", f"max - min of a record's group is {mean:.6g} {unit}".rstrip() + " on average"),
            ("error", f"{readable_text(self.error)}  (sum of max - min over the groups)"),
        ]


class PermuteFacts(GroupFacts):
    """The facts of a release.

    Attributes:
        held_back: The number of new records that wait for a later release.
        left_out: The number of records that are not published; these are the same.
    """

    held_back: int = Field(ge=0)
    left_out: int = Field(ge=0)

    def describe(self) -> list[tuple[str, str]]:
        """Return (title, text) of the lines that are shown on groups, widths and records that are held back."""
        held = [("held back", f"{self.held_back:,} new records")] if self.held_back else []
        return [*super().describe(), *held]

    def count_left_out(self) -> int:
        """Return the number of records that are not published."""
        return self.left_out

    def count_waiting(self) -> int:
        """Return the number of records that wait for a later release."""
        return self.held_back


PARAMETERS = Permute
