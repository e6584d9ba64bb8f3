"""What can be asked of a release by choosing: its columns, each with what a person may say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from privsql.answers.aggregates import is_number
from privsql.answers.base import THEIRS
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.engine.roles import Field
    from privsql.releases.opened import Release

Kind = Literal["text", "number", "moment", "truth", "other"]
LISTED = 60  # values of a column that are shown one by one
NUMBERS = 16  # the same of a column of numbers or dates, of which a range can be asked
SUGGESTED = 1_000  # values that a field suggests while somebody types
WIDEST = 200  # characters of a value that can be chosen
COUNT = "count"
AMOUNTS = {"avg": "Average", "sum": "Sum"}


@dataclass(frozen=True)
class Column:
    """A column of a release: ``values`` are those that it shows, in order; none where there are too many.

    ``whole``: it has bins or groups of values, which are asked for as a whole; ``by_value``: whether an answer can have
    a line for each value; ``left_out``: values that no field can hold (empty, very long, or with control characters),
    which can be asked for in SQL.
    """

    number: int
    name: str
    type: str
    kind: Kind
    values: tuple[str, ...]
    sensitive: bool = False
    nulls: bool = False
    note: str = ""
    whole: bool = False
    by_value: bool = True
    left_out: int = 0

    @property
    def key(self) -> str:
        """What its values are called in an address."""
        return f"c{self.number}"

    @property
    def listed(self) -> bool:
        """Whether its values are shown one by one, to be ticked."""
        ranged = self.kind in ("number", "moment") and not (self.whole or self.sensitive)
        return 0 < len(self.values) <= (NUMBERS if ranged else LISTED)

    @property
    def ranged(self) -> bool:
        """Whether a range can be asked for."""
        return self.kind in ("number", "moment") and not self.listed


@dataclass(frozen=True)
class Measure:
    """What is counted or added up: its key in an address, and how a person calls it."""

    key: str
    label: str


@dataclass(frozen=True)
class Form:
    """All that can be chosen. ``items``: of a release of item sets, whose one column holds them.

    ``certain``: whether the bounds of the literature's formula hold the true count for sure.
    """

    name: str
    columns: tuple[Column, ...]
    measures: tuple[Measure, ...]
    items: tuple[str, ...] | None = None
    certain: bool = False

    def column(self, number: str) -> Column:
        """A column by its number as an address has it; ``UsageError`` for none."""
        found = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else -1
        if not 0 <= found < len(self.columns):
            raise UsageError(f"there is no column {number!r} to choose")
        return self.columns[found]


def form(release: Release) -> Form:
    """What an open release lets people choose."""
    manifest, certain = release.manifest, THEIRS in release.answers.certain
    if manifest.roles.hold_sets:
        (field,) = manifest.sensitive
        kind = field.type.removesuffix("[]")
        own = Column(0, field.name, kind, _kind(kind), ())
        return Form(manifest.name, (own,), (Measure(COUNT, "How many records"),), release.answers.labels, certain)
    sensitive = {field.name for field in manifest.sensitive} if manifest.quasi_identifiers else set()
    fields = (*manifest.quasi_identifiers, *manifest.sensitive)
    columns = tuple(_column(release, k, field, field.name in sensitive) for k, field in enumerate(fields))
    measures = (Measure(COUNT, "How many records"), *_amounts(release, columns))
    return Form(manifest.name, columns, measures, certain=certain)


def _amounts(release: Release, columns: tuple[Column, ...]) -> list[Measure]:
    """What can be added up: quasi-identifiers that are numbers, and what else the release says that it can tell."""
    published = release.manifest.quasi_identifiers
    own = {field.name for field in published if is_number(field.type) and field.type != "BOOLEAN"}
    coarse = {*release.manifest.bins, *release.manifest.groups}
    found = []
    for column in columns:
        for kind, title in AMOUNTS.items():
            told = column.name in own - coarse or (
                column.sensitive and column.kind == "number" and kind in release.answers.measures
            )
            found += [Measure(f"{kind}.{column.number}", f"{title} of {column.name}")] if told else []
    return found


def _column(release: Release, number: int, field: Field, sensitive: bool) -> Column:
    manifest = release.manifest
    found = release.shown(field.name, SUGGESTED + 2)
    values = [one for one in found if one is not None]
    labels = manifest.orders.get(field.name)
    if labels is not None:
        values = sorted(values, key=labels.index)
    shown = [one for one in values if one.strip() and one.isprintable() and len(one) <= WIDEST]
    bins = manifest.bins.get(field.name)
    note = f"in {bins}; a value is the first of its bin" if bins else ""
    return Column(
        number,
        field.name,
        field.type,
        _kind(field.type),
        tuple(shown) if len(values) <= SUGGESTED else (),
        sensitive=sensitive,
        nulls=len(values) < len(found) or len(values) > SUGGESTED,
        note="in groups of values" if field.name in manifest.groups else note,
        whole=bool(note) or field.name in manifest.groups,
        by_value=field.name not in release.answers.in_bins,
        left_out=len(values) - len(shown),
    )


def _kind(kind: str) -> Kind:
    if kind == "BOOLEAN":
        return "truth"
    if kind == "VARCHAR":
        return "text"
    if kind == "DATE" or kind.startswith("TIME"):
        return "moment"
    return "number" if is_number(kind) else "other"
