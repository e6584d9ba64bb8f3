"""The manifest: what a release states about itself, and about other releases of the same people."""

from __future__ import annotations

import json
import math
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from privsql.engine.sqlfiles import Field as Column
from privsql.engine.sqlfiles import Roles
from privsql.errors import EngineError
from privsql.keyed_random import Origin
from privsql.model.bins import Bins, fits_type
from privsql.model.parameters import WORDS, NullPolicy, Version, Wording
from privsql.model.records import Persons

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def _is_empty(value: object) -> bool:
    return not value


def _is_none(value: object) -> bool:
    return value is None


# Other releases -------------------------------------------------------------------------------------------------------
# What a release states about other releases of the same people: codes and figures only, so that it can't hide a text.

UNRECORDED: Final = "unrecorded"
BUDGET: Final = "budget"
Reason = Literal["unrecorded", "budget", "changed", "population", "persons", "assumed", "same", "presence", "value"]
REASONS: dict[Reason, str] = {
    "unrecorded": "published without a ledger: whether these subjects were published before, and what they may add up "
    "to, is unknown",
    "budget": "all releases of these people together spend epsilon {together:g}{delta}, {cap}",
    "changed": "records that it holds have been changed or deleted since",
    "population": "it is of another population, and holds these people",
    "persons": "it has one record of each person, and this one may have more",
    "assumed": "it is of the same population, and nothing tells that its people are others",
    "same": "it is of the same people, and no guarantee covers both",
    "presence": "of the two, one publishes exact counts of records, beside which epsilon does not bound what is learnt "
    "of somebody's presence",
    "value": "the odds of a value take twice the epsilon that protects presence, and presence is no longer promised, "
    "for one of the two publishes who is in the table",
}
BESIDE = {"releases", "release", "date"}  # fields of a statement about earlier releases
SPENT = {"together", "delta", "cap"}  # fields of a statement about a budget
DIGITS_OF_RELEASE = 16  # digits of the SHA-256 of a release that are stated


class Composed(BaseModel):
    """A statement about this release together with earlier releases of the same people.

    Attributes:
        reason: The kind of statement; ``REASONS`` has its words.
        releases: How many earlier releases it is about.
        release: The first 16 digits of the SHA-256 of the last of them.
        date: The date of the last of them.
        together: The epsilon that all releases spend together, rounded up, at ``delta``.
        delta: The delta of ``together``; None if it is 0.
        cap: The most epsilon that may be spent together; None if there is no limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    reason: Reason
    releases: int | None = Field(default=None, ge=1, exclude_if=_is_none)
    release: str | None = Field(default=None, pattern="^[0-9a-f]{16}$", exclude_if=_is_none)
    date: str | None = Field(default=None, pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$", exclude_if=_is_none)
    together: float | None = Field(default=None, gt=0, exclude_if=_is_none)
    delta: float | None = Field(default=None, gt=0, lt=1, exclude_if=_is_none)
    cap: float | None = Field(default=None, gt=0, exclude_if=_is_none)

    @model_validator(mode="after")
    def _require_own_fields(self) -> Self:
        needed = {UNRECORDED: set[str](), BUDGET: {"together"}}.get(self.reason, {"releases", "date"})
        allowed = {UNRECORDED: needed, BUDGET: SPENT}.get(self.reason, BESIDE)
        stated = {name for name in (*BESIDE, *SPENT) if getattr(self, name) is not None}
        if not needed <= stated <= allowed:
            raise ValueError(f"a statement of kind {self.reason!r} has other entries")
        return self

    def __str__(self) -> str:
        if self.reason not in (UNRECORDED, BUDGET):
            of = f"{self.releases} releases, the last of {self.date}" if self.releases != 1 else f"one of {self.date}"
            named = f" (SHA-256 {self.release}..)" if self.release is not None else ""
            return f"composition allowed by the publisher beside {of}{named}: {REASONS[self.reason]}"
        delta = "" if self.delta is None else f" at delta {self.delta:g}"
        cap = "no cap is set" if self.cap is None else f"of at most {self.cap:g}"
        return REASONS[self.reason].format(together=self.together, delta=delta, cap=cap)


# Manifest -------------------------------------------------------------------------------------------------------------


MANIFEST = "privsql_manifest"
COLUMNS = 1000  # most columns of a release
WHOLE = 2**63  # whole numbers must be below this
FORMAT: Final = 1  # the format of releases


Share = Annotated[float, Field(ge=0, le=1)]


MOST_BESIDE = 100  # most other releases that a release names


class OtherRelease(BaseModel):
    """Another release, which this one replaces, or with which it shares a few ids or persons.

    Attributes:
        made: The date of the other release; None if the publisher's ledger does not know it.
        relation: ``replaced``, or what both releases share: ``ids`` or ``persons``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    made: date | None
    relation: Literal["replaced", "ids", "persons"]

    def __str__(self) -> str:
        release = "a release that no ledger dates" if self.made is None else f"a release of {self.made}"
        if self.relation == "replaced":
            return f"replaces {release}, which may have been received"
        return f"a few of its {self.relation} are also in {release}, of another population"


class StatedFile(BaseModel):
    """The size in bytes and the digest of a file, in a release that is a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """What a release states about itself.

    Nothing in it is secret: it holds no key, and no value that is not published.

    Attributes:
        format: The format of the release.
        privsql: The version of privsql that made it.
        duckdb: The version of DuckDB that made it.
        name: The name of the table.
        mechanism: The kind of mechanism.
        algorithm: Its algorithm.
        parameters: What the publisher asked for.
        quasi_identifiers: The published quasi-identifiers.
        sensitive: The published sensitive columns.
        nulls: What happens to NULL, by column.
        records: The number of the source's records; None if it is secret.
        published: The number of published records; None if it is secret.
        suppressed: The number of records that are left out; None if it is secret.
        randomness: Where the key came from.
        composition: Statements about this release together with earlier ones.
        beside: Releases that this one replaces, or with which it shares ids or persons.
        orders: The order of the values of text columns, by column.
        own_columns: The names of privsql's own columns that had to be renamed, by table and usual name.
        bins: The rules of columns that are in bins.
        groups: The values of text columns that were grouped, by column.
        place: ``schema`` for a release that is a schema of a database.
        persons: What is stated about persons with several records.
        record: The column that names the record, if the source has a row for each of its items.
        wording: Texts that the publisher adds, by subject.
        sampling_rate: The share of the population that the source is, as the publisher says.
        facts: What the mechanism did.
        files: The files of a release that is a folder, by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1]
    privsql: Version
    duckdb: Version
    name: str = Field(min_length=1)
    mechanism: str
    algorithm: str
    parameters: dict[str, Any]
    quasi_identifiers: list[Column] = Field(max_length=COLUMNS)
    sensitive: list[Column] = Field(max_length=COLUMNS)
    nulls: dict[str, NullPolicy]
    records: int | None = Field(default=None, ge=0)
    published: int | None = Field(default=None, ge=1)
    suppressed: int | None = Field(default=None, ge=0)
    randomness: Origin
    composition: list[Composed] = Field(default_factory=list)
    beside: list[OtherRelease] = Field(default_factory=list, max_length=MOST_BESIDE, exclude_if=_is_empty)
    orders: dict[str, list[str]] = Field(default_factory=dict)
    own_columns: dict[str, dict[str, str]] = Field(default_factory=dict, exclude_if=_is_empty)
    bins: dict[str, Bins] = Field(default_factory=dict, exclude_if=_is_empty)
    groups: dict[str, list[str]] = Field(default_factory=dict, exclude_if=_is_empty)
    place: Literal["schema"] | None = Field(default=None, exclude_if=_is_empty)
    persons: Persons | None = Field(default=None, exclude_if=_is_empty)
    record: str | None = Field(default=None, exclude_if=_is_empty)
    wording: dict[Wording, Annotated[str, Field(max_length=WORDS)]] = Field(default_factory=dict, exclude_if=_is_empty)
    sampling_rate: float | None = Field(default=None, gt=0, le=1, exclude_if=_is_none)
    facts: dict[str, Any]
    files: dict[str, StatedFile] = Field(default_factory=dict, exclude_if=_is_empty)

    @property
    def published_records(self) -> int:
        """Return the stated number of published records; 0 if none is stated."""
        return self.published or 0

    @property
    def has_single_persons(self) -> bool:
        """Return whether the publisher declared that each record is a different person."""
        return self.persons is not None and self.persons.rule in ("refuse", "one", "first")

    @property
    def roles(self) -> Roles:
        """Return the published columns by role."""
        orders = {name: tuple(labels) for name, labels in self.orders.items()}
        return Roles(tuple(self.quasi_identifiers), tuple(self.sensitive), orders)

    @property
    def together(self) -> list[str]:
        """Return in sentences what the manifest states about this release together with others."""
        return [*map(str, self.composition), *map(str, self.beside)]

    @property
    def words(self) -> dict[str, str]:
        """Return all texts that the publisher chose freely, by subject; a reviewer should read them."""
        words = {"name": self.name, "columns": ", ".join(field.name for field in self.roles.columns)}
        if groups := self.parameters.get("groups"):
            words["groups of values"] = ", ".join(groups)
        return words | {str(name): text for name, text in self.wording.items()}

    def as_table(self) -> pa.Table:
        """Return the manifest as a table (key, value), with values as JSON."""
        entries = self.model_dump(mode="json")
        return pa.table({"key": list(entries), "value": [json.dumps(value) for value in entries.values()]})

    @staticmethod
    def from_rows(rows: Iterable[tuple[Any, ...]]) -> Manifest:
        """Read a manifest from the rows (key, value) of its table.

        Raises:
            EngineError: It is damaged, has another format, or was not written by privsql.
        """
        try:
            written = [tuple(row) for row in rows]
            entries = {key: json.loads(value, **_NUMBERS) for key, value in written}
            _require_format(entries)
            manifest = Manifest.model_validate(entries)
            manifest.model_dump_json()  # raises an error if a text is not valid Unicode
            if not _has_fitting_types(manifest):
                raise ValueError("its entries on a column do not fit the type of the column")
            if written != [tuple(row.values()) for row in manifest.as_table().to_pylist()]:
                raise ValueError("its entries are written in another way")
        except (ValidationError, ValueError, TypeError, RecursionError) as error:
            raise EngineError(
                "its manifest is damaged; if a development version of privsql wrote it, publish anew"
            ) from error
        return manifest


def _has_fitting_types(manifest: Manifest) -> bool:
    """Return whether all columns have types that can be published and that suit their order, bins or groups."""
    columns, kinds = manifest.roles.columns, {one.name: one.type for one in manifest.quasi_identifiers}
    texts = {one.name for one in columns if one.type == "VARCHAR"}
    texts_of_qi = {name for name, kind in kinds.items() if kind == "VARCHAR"}
    return (
        all(one.is_published for one in columns)
        and manifest.orders.keys() <= texts
        and all(len(set(labels)) == len(labels) for labels in manifest.orders.values())
        and all(fits_type(one, kinds.get(name, "")) for name, one in manifest.bins.items())
        and manifest.groups.keys() <= texts_of_qi - manifest.bins.keys()
        and len({one.reason for one in manifest.composition}) == len(manifest.composition)
        and manifest.beside == sorted(set(manifest.beside), key=str)
    )


def _require_format(entries: Mapping[str, Any]) -> None:
    """Raise ``EngineError`` if the manifest states another format than this version of privsql reads."""
    stated = entries.get("format")
    if isinstance(stated, int) and stated != FORMAT:
        raise EngineError(
            f"its manifest states format {stated}, and this version of privsql reads format {FORMAT}; publish anew"
        )


def _parse_whole(digits: str) -> int:
    value = int(digits)
    if abs(value) >= WHOLE:
        raise ValueError("a number is too large")
    return value


def _parse_finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


_NUMBERS: dict[str, Any] = {"parse_int": _parse_whole, "parse_float": _parse_finite, "parse_constant": _parse_finite}
