"""Explain a release to readers who do not know its mechanism: promises in sentences, and its structure as tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from privsql.outcomes import JsonObject

if TYPE_CHECKING:
    from privsql.model.manifest import Manifest

LEARNT = (
    "An attacker can learn from the whole release how its columns go with the sensitive value, and apply that to one "
    "record, as with any statistics."
)
LINKED = "If several records belong to one person, an attacker who knows which ones learns more."
SEVERAL = "An attacker can combine several releases of the same people."


@dataclass(frozen=True)
class ReleasePromises(JsonObject):
    """What a release promises and what it does not, in complete sentences."""

    promised: tuple[str, ...]
    not_promised: tuple[str, ...]


@dataclass(frozen=True)
class Structure:
    """A table for people that shows how a release is built, such as its buckets by size.

    Attributes:
        title: The title.
        said: A sentence that says what the table shows.
        head: The names of the columns.
        rows: The rows; the first cell of each is its name.
        drawn: The position of the column of numbers that a chart shows; None for no chart.
        more: How many rows were left out.
    """

    title: str
    said: str
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    drawn: int | None = None
    more: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the table as a JSON object, in which each row is an object by the names of the columns."""
        rows = [dict(zip(self.head, row, strict=True)) for row in self.rows]
        return {"title": self.title, "said": self.said, "rows": rows, "more": self.more}


MOST_STRUCTURE_ROWS = 60  # most rows of a structure that are shown


def make_structure(
    title: str, sentence: str, head: tuple[str, ...], rows: list[tuple[Any, ...]], drawn: int | None = None
) -> Structure:
    """Return a ``Structure`` that keeps at most ``MOST_STRUCTURE_ROWS`` of the rows."""
    return Structure(
        title, sentence, head, tuple(rows[:MOST_STRUCTURE_ROWS]), drawn, max(0, len(rows) - MOST_STRUCTURE_ROWS)
    )


def by_range(numbers: list[int], parts: int = 8) -> list[tuple[str, int]]:
    """Count numbers in at most ``parts`` ranges, about equally long on a logarithmic scale: (range, count).

    >>> by_range([1, 2, 2, 3])
    [('1', 1), ('2', 2), ('3', 1)]
    >>> by_range([1, 9, 10, 11, 1000], 3)
    [('1 to 9', 2), ('10 to 99', 2), ('100 to 1,000', 1)]
    """
    different = sorted(set(numbers))
    if len(different) <= parts:
        return [(f"{one:,}", numbers.count(one)) for one in different]
    low, high = different[0], different[-1]
    base = max(low, 1)
    ends = sorted({low, high + 1, *(round(base * (high / base) ** (k / parts)) for k in range(1, parts))})
    ranges = []
    for first, last in pairwise(ends):
        inside = sum(first <= one < last for one in numbers)
        name = f"{first:,} to {last - 1:,}" if last - 1 > first else f"{first:,}"
        if inside:
            ranges.append((name, inside))
    return ranges


# Absence --------------------------------------------------------------------------------------------------------------
# Records can be missing from a release because of their value. ``attacks.adversaries`` measures what that reveals.


@dataclass(frozen=True)
class MissingRecords:
    """Records that are missing from a release because of their sensitive value.

    Attributes:
        records: The number of these records.
        why: Why they are missing.
        tells: What somebody learns who sees that they are missing.
        certain: Whether that reveals the sensitive value with certainty.
    """

    records: int
    why: str
    tells: str
    certain: bool = False


def list_missing(manifest: Manifest) -> list[MissingRecords]:
    """Return the records that are missing from a release because of their sensitive value, by reason."""
    waiting = int(manifest.facts.get("held_back", 0))
    left_out = int(manifest.facts.get("left_out", 0)) - waiting
    nulls = [field.name for field in manifest.sensitive if manifest.nulls.get(field.name) == "suppress"]
    empty = (manifest.suppressed or 0) - left_out - waiting if nulls else 0
    name = " or ".join(nulls)
    reasons = (
        MissingRecords(left_out, "their value is too frequent", "anyone who sees that they are missing learns it"),
        MissingRecords(empty, f"{name} is NULL", "anyone who sees that they are missing learns this", certain=True),
        MissingRecords(
            waiting, "their group as a whole waits", "anyone who sees this learns that its values are few or near"
        ),
    )
    return [one for one in reasons if one.records > 0]


def explain_absence(manifest: Manifest) -> list[str]:
    """Return a sentence for each reason why records are missing, with what their absence reveals."""
    return [
        f"{one.records:,} records are missing because {one.why}: {one.tells}; no promise covers them"
        for one in list_missing(manifest)
    ]
