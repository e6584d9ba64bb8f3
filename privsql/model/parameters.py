"""Exact numbers as fields of parameters, bins of columns, universes of values, and facts of noise."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from itertools import chain, pairwise
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    WithJsonSchema,
    field_serializer,
    model_validator,
)

from privsql.engine.files import unused_name
from privsql.exact import Linear, as_fraction, fraction_text, parse_linear

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

# Bins -----------------------------------------------------------------------------------------------------------------
# Bins of a quasi-identifier: what a publisher asks for, and what a release says of a column that is in bins.
#
# A released value stands for its bin: it is the bin's first value, in the column's own type. ``origin + k width`` for
# whole k, or the largest of ``edges`` that is not above the value, or the first moment of a month, quarter or year.

DIGITS = 34  # of the numbers that bins are of: two more are needed on the way
EDGES = 1000
WORDS = 1000  # characters of what the publisher says of a release
Wording = Literal["purpose", "recipient", "contact"]  # what that may be about
MONTHS = {"month": 1, "quarter": 3, "year": 12}
Number = Annotated[Decimal, Field(max_digits=DIGITS, allow_inf_nan=False)]


def _is_none(value: object) -> bool:
    return value is None


class Bins(BaseModel):
    """Bins of one width, from ``origin``; or between ``edges``, the last one without end; of a calendar; of codes."""

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

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        """A number is a width, a text a unit."""
        if isinstance(value, str) and value in MONTHS:
            return {"unit": value}
        if isinstance(value, bool | dict | Bins):
            return value
        if isinstance(value, str) and not _is_decimal(value):
            raise ValueError(f"{value!r} is not a width; give a decimal, edges, or one of {', '.join(MONTHS)}")
        return {"width": value}

    @model_validator(mode="after")
    def _require_one_kind(self) -> Bins:
        kinds = (self.width is not None, bool(self.edges), self.unit is not None, self.prefix is not None)
        if sum(kinds) != 1:
            raise ValueError("give a width, edges, { prefix = N }, or one of month, quarter, year")
        if self.origin and self.width is None:
            raise ValueError("origin needs a width")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("edges must rise")
        return self

    @field_serializer("width", "origin", "edges", when_used="json")
    def _as_text(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return [format(one, "f") for one in value]
        return None if value is None else format(value, "f")

    @property
    def stated_numbers(self) -> tuple[Decimal, ...]:
        """All that it states: the column's type has to hold these."""
        return (self.origin, *self.edges, *([] if self.width is None else [self.width]))

    def begins_at(self, value: Fraction | Decimal | date | datetime) -> bool:
        """Return whether a bin begins at a value."""
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
        if self.prefix is not None:
            return f"bins by the first {self.prefix} characters"
        if self.edges:
            return f"bins that begin at {', '.join(format(one, 'f') for one in self.edges)}"
        return f"bins of {self.width:f}" + (f" from {self.origin:f}" if self.origin else "")


def _is_decimal(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def number_range(kind: str) -> tuple[Fraction, Fraction, int]:
    """The least and the greatest number of a type, and its digits behind the point; ``ValueError`` for other types.

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
    """Return whether all numbers that the bins state are values of a column's type."""
    if bins.unit is not None:
        return kind in ("DATE", "TIMESTAMP")
    if bins.prefix is not None:
        return kind == "VARCHAR"
    try:
        least, most, scale = number_range(kind)
    except ValueError:
        return False
    numbers = [Fraction(one) for one in bins.stated_numbers]
    return all(least <= one <= most and (one * 10**scale).denominator == 1 for one in numbers)


# Queries --------------------------------------------------------------------------------------------------------------
# A publisher's own SQL may name anything. A release states its digest, by which the publisher knows it again.

STATED = {"stated": True}  # the context in which parameters are written into a manifest
QUERY_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def _state_query(sql: str, info: SerializationInfo) -> str:
    if not info.context or QUERY_DIGEST.fullmatch(sql):
        return sql
    return f"sha256:{hashlib.sha256(sql.encode()).hexdigest()}"


Query = Annotated[str, PlainSerializer(_state_query)]
"""A SELECT of the publisher's."""


# Exact numbers --------------------------------------------------------------------------------------------------------
# What parameters of mechanisms have in common, and exact numbers as their fields: read and kept as fractions.

VERSION = r"^[0-9]{1,9}(\.[0-9]{1,9}){1,3}([-+.]?(a|b|rc|dev|post|alpha|beta)[0-9A-Za-z.+-]{0,30})?$"


Order = Literal["stream", "portable"]  # how records take places: as the key's stream deals them, or by keyed hashes
NullPolicy = Literal["value", "suppress", "refuse"]  # what becomes of NULL in a column
Version = Annotated[str, Field(pattern=VERSION)]


class Parameters(BaseModel):
    """Base of what a publisher asks of a mechanism; a mechanism narrows both fields to literals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    algorithm: str

    def as_stated(self) -> dict[str, Any]:
        """Return what a manifest states of them: every parameter that is set, and the digests of queries."""
        return self.model_dump(mode="json", exclude_none=True, context=STATED)

    @property
    def learning_limit(self) -> float | None:
        """Return the mean belief that a learning attacker may reach; None where the publisher sets no limit."""
        return None


class Facts(BaseModel):
    """Base of what a plan foresees and a release states of what its mechanism did: ``facts`` of a manifest."""

    title: ClassVar[str] = "facts"  # what they are the facts of
    details: ClassVar[frozenset[str]] = frozenset()  # names of the lines that only --verbose shows

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def join_parts(cls, *parts: Facts, **more: Any) -> Self:
        """Return what several parts state together, and ``more``; the last one that sets a field is right."""
        return cls(**{name: getattr(part, name) for part in parts for name in part.model_fields_set} | more)

    def as_json(self) -> dict[str, Any]:
        """Return what is stated; fields that have their default are left out."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def describe(self) -> list[tuple[str, str]]:
        """Return what a person wants to see: (name, text)."""
        return []

    def list_bounds(self) -> list[tuple[str, str, str]]:
        """Return (value, bound, highest belief) as exact texts, where a plan foresees them."""
        return []

    def tabulate(self) -> list[tuple[object, ...]]:
        """Return a table for people, its head first; empty where there is none."""
        return []

    def list_warnings(self) -> list[str]:
        """Return what the publisher should know before anybody relies on the release."""
        return []

    def count_left_out(self) -> int:
        """Return the number of the source's records that the mechanism did not publish."""
        return 0

    def count_waiting(self) -> int:
        """Return how many of these wait for a later release."""
        return 0

    def count_search_seconds(self) -> float | None:
        """Return the seconds of a processor that a plan's search took; None where there was none."""
        return None


NoiseOrigin = Literal["opendp", "seed"]


def _read_exact(holds: Callable[[Fraction], bool], wrong: str) -> BeforeValidator:
    """Return what reads an exact number; ``wrong``: what is said of one for which ``holds`` is not true."""

    def read(value: object) -> Fraction:
        number = as_fraction(value)
        if not holds(number):
            raise ValueError(wrong.format(value))
        return number

    return BeforeValidator(read)


AS_TEXT = PlainSerializer(fraction_text)
NUMBER = {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, {"type": "string"}]}
POSITIVE = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}
NUMBERS = {"anyOf": [{"type": "number"}, {"type": "string"}]}
LARGEST_EPSILON = 100  # beyond it nothing is protected, and noise of scale 0 would not be noise
SMALLEST_EPSILON = Fraction(1, 10**6)
SMALLEST_DELTA, LARGEST_DELTA = Fraction(1, 10**18), Fraction(1, 10**5)
_SHARE = _read_exact(lambda one: 0 < one <= 1, "{} lies outside (0, 1]")
_EPSILON = _read_exact(
    lambda one: SMALLEST_EPSILON <= one <= LARGEST_EPSILON,
    f"epsilon {{}} lies outside [{fraction_text(SMALLEST_EPSILON)}, {LARGEST_EPSILON}]",
)
_DELTA = _read_exact(
    lambda one: not one or SMALLEST_DELTA <= one <= LARGEST_DELTA, "delta {} is neither 0 nor in [1e-18, 1e-5]"
)
_POSITIVE = _read_exact(lambda one: one > 0, "{} must be above 0")

Exact = Annotated[Fraction, BeforeValidator(as_fraction), AS_TEXT, WithJsonSchema(NUMBERS)]
"""Any exact number."""
Share = Annotated[Fraction, _SHARE, AS_TEXT, WithJsonSchema(NUMBER)]
"""An exact number in (0, 1]: a threshold, a probability."""
Positive = Annotated[Fraction, _POSITIVE, AS_TEXT, WithJsonSchema(POSITIVE)]
"""An exact number above 0."""
Epsilon = Annotated[Fraction, _EPSILON, AS_TEXT, WithJsonSchema(POSITIVE)]
"""The budget of a differentially private release."""
Delta = Annotated[Fraction, _DELTA, AS_TEXT, WithJsonSchema(NUMBER)]
"""How improbable what epsilon does not bound is; 0: nothing is."""
DELTA = (
    "0: pure differential privacy. Above: (epsilon, delta) by zero-concentrated privacy, with discrete Gaussian noise. "
    "Choose it far below 1/records, such as 1e-9."
)
Rule = Annotated[
    Linear,
    BeforeValidator(lambda v: v if isinstance(v, Linear) else parse_linear(v)),
    PlainSerializer(str),
    WithJsonSchema(NUMBER | {"description": "a constant, or linear in the frequency f: '8*f + 0.02'"}),
]
"""A threshold: a constant, or linear in a frequency."""


# Universes ------------------------------------------------------------------------------------------------------------
# The values that there can be: a public list or query, or those that occur.


class Universe(BaseModel):
    """The items that a record may hold, in the order in which the taxonomy groups them.

    A public list of ``items``, or a ``query`` whose first column lists them; or ``data``: those that occur, which tells
    of an item in a single record that it occurs, and is no part of the guarantee.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: tuple[str, ...] | None = None
    query: Query | None = None
    data: bool = False

    @property
    def source_count(self) -> int:
        """How many sources are given; one is needed."""
        return (self.items is not None) + (self.query is not None) + self.data

    @property
    def listed_type(self) -> str | None:
        """The type of the values that are listed here; None where a query or the records list them."""
        from privsql.engine.sqlfiles import infer_type

        return None if self.items is None else infer_type(self.items)

    @property
    def listing(self) -> tuple[str, bool] | None:
        """The query that lists the values, if one does; and whether those that its second column names are none."""
        return None if self.query is None else (self.query, False)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return {"items": tuple(str(item) for item in value)}
        if value == "data":
            return {"data": True}
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Universe:
        if self.source_count != 1:
            raise ValueError("give a list of items, { query = ... }, or 'data' (which the guarantee does not cover)")
        if self.items is not None and (not self.items or len(set(self.items)) < len(self.items)):
            raise ValueError("the list of items is empty" if not self.items else "an item appears twice in the list")
        return self


OTHER = "other"  # the text that stands for all values that are not listed
SECOND = timedelta(seconds=1)


NO_BINS = Fraction(0), Fraction(0)


def find_unlisted(kind: str, known: Collection[str], bins: tuple[Fraction, Fraction] = NO_BINS) -> str | None:
    """Return the text of a value of a type that is not among those ``known``; None where these are all that there are.

    ``bins``: where those of a number begin and end, which are known, too.

    >>> find_unlisted("TINYINT", ["0", "1"]), find_unlisted("DECIMAL(3,2)", ["0.00"]), find_unlisted("DATE", [])
    ('2', '0.01', '0001-01-01')
    >>> find_unlisted("BOOLEAN", ["true"]), find_unlisted("BOOLEAN", ["true", "false"]), find_unlisted("VARCHAR", ["a"])
    ('false', None, 'other')
    """
    if kind == "VARCHAR":
        return unused_name(OTHER, known)
    if kind == "BOOLEAN":
        candidates: Iterable[str] = ("true", "false")
    elif kind == "UUID":
        candidates = (f"00000000-0000-0000-0000-{number:012x}" for number in range(len(known) + 1))
    elif kind == "TIME":
        candidates = ((datetime.min + number * SECOND).time().isoformat() for number in range(len(known) + 1))
    elif kind.startswith(("DATE", "TIMESTAMP")):
        known = {text[:10] for text in known}
        candidates = (date.fromordinal(number + 1).isoformat() for number in range(len(known) + 1))
    else:
        return _find_unlisted_number(kind, {Decimal(text) for text in known if _is_decimal(text)}, bins)
    return next((one for one in candidates if one not in known), None)


def _find_unlisted_number(kind: str, known: Collection[Decimal], bins: tuple[Fraction, Fraction]) -> str | None:
    try:
        least, most, scale = number_range(kind)
    except ValueError:
        least, most, scale = Fraction(-(10**15)), Fraction(10**15), 0
    low, high, last, lowest = (ceil(one * 10**scale) for one in (*bins, most, least))
    numbers = (Decimal(one).scaleb(-scale) for one in chain(range(high, last + 1), range(low - 1, lowest - 1, -1)))
    return next((f"{one:f}" for one in numbers if one not in known), None)


@dataclass(frozen=True)
class ListedValues:
    """A public list of values, each with a code: its place.

    Behind them stands ``other``, for all that are not listed (as text; in a column of another type it is published as
    NULL), and behind that NULL, where ``holds_null`` is true. Where it is not, NULL counts as other.
    """

    values: tuple[str, ...]
    other: str
    holds_null: bool

    def __len__(self) -> int:
        """Return how many codes there are."""
        return len(self.values) + 1 + self.holds_null

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values)}

    def find_code(self, text: str | None) -> int:
        """Return the code of a value by its text, None for NULL."""
        return len(self) - 1 if text is None else self._codes.get(text, len(self.values))

    def list_texts(self, kind: str) -> list[str | None]:
        """Return what is published for each code in a column of a type, as text; None for NULL."""
        return [*self.values, self.other if kind == "VARCHAR" else None, *[None] * self.holds_null]


ALLOW_EMPTY = "Publish even if most is noise: uninformative tables, or a tree with more pruned than kept."


MOST_RECORDS = 1_000


def _is_one(value: object) -> bool:
    return value == 1


MaxRecords = Annotated[int, Field(ge=1, le=MOST_RECORDS, exclude_if=_is_one)]
"""How many records of a person are taken at most, k: the budget is that of a person, and k records share it."""
MAX_RECORDS = "Most records of a person (source.person), which share the budget: noise grows in proportion."


def describe_noise(origin: NoiseOrigin, opendp: str) -> tuple[str, str]:
    """Return where the noise is from, for a person; ``opendp``: the version of OpenDP."""
    return "noise", f"OpenDP {opendp}" if origin == "opendp" else "seeded: NOT private, for tests only"


def warn_remaining(number: int, remaining: float, total: float, what: str) -> list[str]:
    """Return warnings of a tree; ``number``: of ``what`` was kept, ``remaining`` of the ``total`` records are in it."""
    if not number:
        return [f"no {what} was kept: every count is 0; a larger epsilon keeps more"]
    message = f"more was pruned (about {total - remaining:,.0f} records) than kept ({remaining:,.0f})"
    return [f"{message}: sums of counts are too small; a larger epsilon keeps more"] if 2 * remaining < total else []
