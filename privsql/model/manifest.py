"""The manifest of a release, the checks that recompute it, estimates, and explanations for readers."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from sqlglot import exp

from privsql.engine.files import label_value
from privsql.engine.sqlfiles import Field as Column
from privsql.engine.sqlfiles import (
    Hole,
    Holes,
    ReservedColumns,
    Roles,
    alias_as,
    all_rows,
    column,
    fill,
    list_holes,
    same_columns,
    table,
    temp_table,
)
from privsql.errors import EngineError, PrivsqlError, UsageError
from privsql.keyed_random import Origin
from privsql.model.parameters import WORDS, Bins, Facts, NullPolicy, Parameters, Version, Wording, fits_type
from privsql.model.records import Persons, Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from privsql.engine.database import Relations

# Estimates ------------------------------------------------------------------------------------------------------------
# One row of an answer, whatever mechanism it comes from.

RestsOn = Literal["exact", "certain", "interval", "point"]
"""The true answer; bounds that hold with certainty; an interval at a confidence; an estimate without an interval."""
ROUNDING = 1e-6  # records
ROUNDED = 1e-12  # relative, of doubles that were divided
DIGITS = 15  # of a decimal that a double holds
Number = int | float | Decimal
FIGURES = ("estimate", "std_error", "low", "high")  # the last columns of every answer


@dataclass(frozen=True)
class Estimate:
    """The group's values and the estimate; ``std_error`` is None where it is not known.

    ``low`` and ``high`` bound the true answer: with certainty where the baseline formula is used, else with the
    confidence that was asked for. All four are None where SQL would answer NULL. ``least``: the fewest records that a
    sum, a mean or the like is of, as sure as its bounds are; None for a count, whose ``low`` it is.
    """

    group: tuple[Any, ...]
    estimate: Number | None
    std_error: float | None
    low: Number | None
    high: Number | None
    least: Number | None = None

    @property
    def is_fixed(self) -> bool:
        """Return True where nothing is open but whether any record qualifies; bounds may differ by rounding."""
        return self.std_error == 0 and are_equal(self.low, self.high)

    @property
    def is_of_some(self) -> bool:
        """Return True if it is a count, or of at least one record, as far as its bounds are sure."""
        return self.least is None or self.least >= 1


def are_equal(low: Number | None, high: Number | None) -> bool:
    """Return True for two bounds that differ at most by what the division of doubles leaves; texts have bounds, too."""
    if isinstance(low, Number) and isinstance(high, Number):
        return math.isclose(low, high, rel_tol=ROUNDED)
    return low == high


def exact_estimate(group: tuple[Any, ...], value: Number | None) -> Estimate:
    """An estimate that is the true answer."""
    return Estimate(group, value, None if value is None else 0.0, value, value)


def as_whole_count(one: Estimate) -> Estimate:
    """A count of which there is no doubt as the whole number that it is, whatever was made of it by adding doubles."""
    if one.estimate is None or not one.is_fixed:
        return one
    value = float(one.estimate)
    return exact_estimate(one.group, round(value)) if abs(value - round(value)) <= ROUNDING else one


def as_number(value: Any) -> Number:
    """A number of the engine's as it is: whole ones as such, however large, and decimals with all their digits.

    >>> as_number(2**80 + 1), as_number(Decimal("12.50")), as_number(True)
    (1208925819614629174706177, Decimal('12.50'), 1.0)
    """
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else float(value)


def decimal_scale(kind: str) -> int | None:
    """Return the digits behind the point of a DECIMAL whose values doubles hold; None for any other type.

    >>> decimal_scale("DECIMAL(8,2)"), decimal_scale("DECIMAL(38,2)"), decimal_scale("DOUBLE")
    (2, None, None)
    """
    match = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    return int(match[2]) if match and int(match[1]) <= DIGITS else None


def as_decimal(value: Number, scale: int) -> Decimal:
    """A number as the decimal with so many digits behind the point that is next to it.

    >>> as_decimal(12.5, 2), as_decimal(0.1 + 0.2, 2)
    (Decimal('12.50'), Decimal('0.30'))
    """
    return Decimal(repr(value) if isinstance(value, float) else value).quantize(Decimal(1).scaleb(-scale))


def same_nan(value: Any) -> Any:
    """The value, with every NaN the same object: groups are told apart by equality, and SQL has one NaN."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _is_empty(value: object) -> bool:
    return not value


def _is_none(value: object) -> bool:
    return value is None


# Other releases -------------------------------------------------------------------------------------------------------
# What a release states of other releases of the same people: codes and figures, so that no text finds room in it.

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
BESIDE = {"releases", "release", "date"}  # what is stated of earlier releases
SPENT = {"together", "delta", "cap"}  # what is stated of a budget
DIGITS_OF_RELEASE = 16  # of its SHA-256


class Composed(BaseModel):
    """A statement on other releases of the same people.

    ``releases``: how many earlier ones it is about; ``release`` and ``date``: the first digits of the SHA-256 of the
    last of them, and when it was made; ``together``: the epsilon of all releases, rounded up, at ``delta``.
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
# The manifest: what a release says of itself.

MANIFEST = "privsql_manifest"
COLUMNS = 1000  # that a release may have
WHOLE = 2**63  # what whole numbers stay below
FORMAT: Final = 1  # the format of releases; development code wrote others, which are not read


Share = Annotated[float, Field(ge=0, le=1)]


class StatedRisk(BaseModel):
    """The quick estimate of what learning from a release leads to: shares of the records that were attacked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    above: Share
    twice: Share
    attacked: int = Field(ge=0)


MOST_BESIDE = 100  # other releases that one names


class OtherRelease(BaseModel):
    """Another release: when it was made, as far as the publisher's ledger knows, and what this one has to do with it.

    This one replaces it, or has a few ids or persons in common with it.
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
    """A file of a release that is a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(BaseModel):
    """The statements of a release about itself. Nothing in it is secret: no key, no raw value that is not published."""

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
    learning_risk: StatedRisk | None = None
    orders: dict[str, list[str]] = Field(default_factory=dict)
    own_columns: dict[str, dict[str, str]] = Field(default_factory=dict, exclude_if=_is_empty)
    bins: dict[str, Bins] = Field(default_factory=dict, exclude_if=_is_empty)
    groups: dict[str, list[str]] = Field(default_factory=dict, exclude_if=_is_empty)
    place: Literal["schema"] | None = Field(default=None, exclude_if=_is_empty)
    persons: Persons | None = Field(default=None, exclude_if=_is_empty)
    wording: dict[Wording, Annotated[str, Field(max_length=WORDS)]] = Field(default_factory=dict, exclude_if=_is_empty)
    facts: dict[str, Any]
    files: dict[str, StatedFile] = Field(default_factory=dict, exclude_if=_is_empty)

    @property
    def published_records(self) -> int:
        """The stated number; 0 where none is stated."""
        return self.published or 0

    @property
    def roles(self) -> Roles:
        """The published columns."""
        orders = {name: tuple(labels) for name, labels in self.orders.items()}
        return Roles(tuple(self.quasi_identifiers), tuple(self.sensitive), orders)

    @property
    def together(self) -> list[str]:
        """What is stated of this release and others together, in words."""
        return [*map(str, self.composition), *map(str, self.beside)]

    @property
    def words(self) -> dict[str, str]:
        """The publisher's own words, by what they are: all texts of a release that nothing else in it determines."""
        words = {"name": self.name, "columns": ", ".join(field.name for field in self.roles.columns)}
        if groups := self.parameters.get("groups"):
            words["groups of values"] = ", ".join(groups)
        return words | {str(name): text for name, text in self.wording.items()}

    def as_table(self) -> pa.Table:
        """(key, value): one row per entry, values as JSON."""
        entries = self.model_dump(mode="json")
        return pa.table({"key": list(entries), "value": [json.dumps(value) for value in entries.values()]})

    @staticmethod
    def from_rows(rows: Iterable[tuple[Any, ...]]) -> Manifest:
        """The manifest from its table; ``EngineError`` if it is not one, or written in another way than by privsql."""
        try:
            written = [tuple(row) for row in rows]
            entries = {key: json.loads(value, **_NUMBERS) for key, value in written}
            _require_format(entries)
            manifest = Manifest.model_validate(entries)
            manifest.model_dump_json()  # whatever it says is text of Unicode
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
    """Return whether every column has a type that is published, and can have its order, bins or groups."""
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
    """``EngineError`` for a manifest of another format than that of this version."""
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


# Checks ---------------------------------------------------------------------------------------------------------------
# A check is a query that returns the offending rows; no rows means that it holds.

MOST_OFFENDING_ROWS = 1000  # offending rows that are counted
SHOWN = 10  # offending rows that are shown
WIDTH = 400  # characters of each
ALLOWANCES = {"allow_certain", "allow_empty"}  # parameters by which a flag lets publish what would be refused
# What arithmetic comes to on tables that hold something else than they should.
BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Check:
    """A named check: a query for offending rows, or a function that lists what is wrong, or makes the query.

    Once it has run, ``compared`` says what was compared, and ``limit`` what it can't tell, which everyone should know.
    """

    name: str
    query: exp.Query | Callable[[], list[str] | exp.Query]
    compared: Callable[[], str] = str
    limit: Callable[[], str] = str


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check; ``violations`` is counted up to ``MOST_OFFENDING_ROWS``."""

    name: str
    violations: int
    offending: tuple[str, ...] = field(default=())
    compared: str = ""
    limit: str = ""

    @property
    def ok(self) -> bool:
        """Return whether no row violates the check."""
        return self.violations == 0

    def as_json(self) -> dict[str, Any]:
        """Return name, ok, violations, and if stated a few offending rows, what was compared, and the limit."""
        details: dict[str, Any] = {"offending": list(self.offending)} if self.offending else {}
        details |= {name: text for name in ("compared", "limit") if (text := getattr(self, name))}
        return {"name": self.name, "ok": self.ok, "violations": self.violations, **details}


NO_BELIEF = "-"  # found of a value that has no bound


@dataclass(frozen=True)
class VerifiedBound:
    """A bound that was verified: what of, the bound, and how far the release goes, as its tables say; exact texts.

    ``records``: how many published records have the value, where the release states that; ``belief``: whether bound and
    found are probabilities.
    """

    value: str
    bound: str
    found: str
    records: int | None = None
    belief: bool = True

    @property
    def protects(self) -> bool:
        """Return whether it keeps a belief below 1, so that the value is protected."""
        return self.belief and self.found != NO_BELIEF and Fraction(self.bound) < 1

    def as_json(self) -> dict[str, Any]:
        """Return value, bound, found, and records if they are stated."""
        stated = {} if self.records is None else {"records": self.records}
        return {"value": self.value, "bound": self.bound, "found": self.found, **stated}


def run_checks(db: Relations | None, checks: Iterable[Check]) -> list[CheckResult]:
    """Run checks in order. A check whose query can't run on what was found has failed."""
    return [_run_check(db, check) for check in checks]


def _run_check(db: Relations | None, check: Check) -> CheckResult:
    if db is None or not isinstance(check.query, exp.Expr):
        try:
            wrong = check.query() if callable(check.query) else ["no database"]
            if isinstance(wrong, exp.Query):
                return _run_check(db, replace(check, query=wrong))
        except PrivsqlError as error:
            wrong = [f"can't be evaluated: {error}"]
        except BROKEN as error:
            wrong = [f"can't be evaluated: {type(error).__name__} on what the release holds"]
        else:
            return replace(_make_result(check, wrong), compared=check.compared(), limit=check.limit())
        return _make_result(check, wrong)
    columns = [projection.alias_or_name for projection in check.query.selects]
    try:
        offending_rows = exp.select("*", copy=False).from_(check.query.subquery("offending", copy=False), copy=False)
        rows = db.rows(offending_rows.limit(MOST_OFFENDING_ROWS, copy=False))
    except (UsageError, EngineError) as error:
        return _make_result(check, [f"can't be evaluated: {error}"])
    offending = [", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=False)) for row in rows[:SHOWN]]
    return replace(_make_result(check, offending), violations=len(rows))


def _make_result(check: Check, wrong: Sequence[str]) -> CheckResult:
    lines = [line if len(line) <= WIDTH else f"{line[:WIDTH]}.." for line in wrong[:SHOWN]]
    return CheckResult(check.name, len(wrong), tuple(lines))


def differ_from_spec(stated: Parameters, params: Parameters) -> list[str]:
    """Return parameters of a release that are not those of the specification, but for ``ALLOWANCES``."""
    one, other = stated.as_stated(), params.as_stated()
    names = sorted((one.keys() | other.keys()) - ALLOWANCES)
    return [
        f"{name}: stated {one.get(name)}, asked for {other.get(name)}"
        for name in names
        if one.get(name) != other.get(name)
    ]


# Queries that several mechanisms check with ---

WeightedRows = tuple[exp.Expr, exp.Expr]  # a relation, and how many rows each of its rows stands for
ONE = exp.Literal.number(1)


def in_order(relation: exp.Table, columns: Sequence[str], *, strict: bool) -> exp.Query:
    """Rows of a published table that lie out of canonical order; ``strict``: equal rows are a fault too.

    NULL is the largest. The first column that differs tells, which is three times as fast as rows as values; a CASE of
    many columns is no deeper than that of one.
    """
    numbers = range(len(columns))
    keys = [(column(f"c_{k}"), column(f"p_{k}")) for k in numbers]
    differing = []
    for current, before in keys:
        smaller = exp.or_(before.is_(exp.null()), exp.LT(this=current, expression=before))
        behind = exp.and_(exp.not_(current.is_(exp.null())), smaller)
        differing.append(exp.If(this=exp.NullSafeNEQ(this=current, expression=before), true=behind))
    lagged = [exp.Window(this=exp.Lag(this=column(name))) for name in columns]
    holes: Holes = {
        "table": relation,
        "columns": [alias_as(column(name), f"c_{k}") for k, name in zip(numbers, columns, strict=True)],
        "previous": [alias_as(one, f"p_{k}") for k, one in zip(numbers, lagged, strict=True)],
        "stored": [],
        "keys": [one for pair in keys for one in pair],
        "behind": exp.Case(ifs=differing, default=exp.Boolean(this=strict)),
    }
    return fill("verify/rows_in_order", holes)


def compare_rows(
    columns: Sequence[exp.Expr], first: WeightedRows, second: WeightedRows, *, fewer: bool = False
) -> exp.Query:
    """Return the query for combinations of columns that two relations do not hold equally often.

    ``fewer``: the first may hold them more often.
    """
    total, none = exp.Sum(this=column("n")), exp.Literal.number(0)
    holes: Holes = {"columns": columns, "first": first[0], "first_weight": first[1]}
    holes |= {"second": second[0], "second_weight": second[1]}
    fault = exp.LT(this=total, expression=none) if fewer else exp.NEQ(this=total, expression=none)
    return fill("verify/surplus", holes | {"fault": fault})


# The release that is checked ----------------------------------------------------------------------------------------
# The tables of a release as data, and the views under which its checks see them.

P = TypeVar("P", bound=Parameters)
F = TypeVar("F", bound=Facts)
QUASI, SENSITIVE, SETS = "quasi-identifiers", "sensitive columns", "items LIST"  # the publisher's columns of a table


@dataclass(frozen=True)
class ReleaseTable:
    """A table of a release: its columns in order, privsql's as ``name TYPE``, the publisher's as ``QUASI`` and
    ``SENSITIVE``; of item sets LIST and ITEM are the types of a set and of an item, and a set's column has the
    publisher's name. ``view``: what checks call it.
    """

    columns: tuple[str, ...]
    view: str | None = None

    def place_columns(self, roles: Roles) -> list[tuple[str, str, str]]:
        """Return (name inside, name in the table, type) of every column."""
        groups = {
            QUASI: zip(roles.qi_keys, roles.quasi_identifiers, strict=True),
            SENSITIVE: zip(roles.sa_keys, roles.sensitive, strict=True),
            SETS: [("items", one) for one in roles.sensitive[:1]],
        }
        publishers = {text: list(groups[text]) for text in self.columns if text in groups}
        reserved = ReservedColumns(tuple(one for pairs in publishers.values() for _, one in pairs))
        kind = roles.sensitive[0].type if roles.sensitive else ""
        placed = []
        for text in self.columns:
            if text in publishers:
                placed += [(key, one.name, one.type) for key, one in publishers[text]]
            else:
                name, own = text.split(" ", 1)
                placed.append((name, reserved.column_name(name), kind[:-2] if own == "ITEM" else own))
        return placed

    def list_reserved(self, roles: Roles) -> list[tuple[str, str, str]]:
        """Return those of privsql's own columns."""
        keys = {*roles.qi_keys, *roles.sa_keys, "items"}
        return [one for one in self.place_columns(roles) if one[0] not in keys]

    def select_inside(self, roles: Roles, rows: exp.Table) -> exp.Select:
        """Return the rows of a table with its columns under their names inside."""
        return exp.select(*(alias_as(column(name), inside) for inside, name, _ in self.place_columns(roles))).from_(
            rows
        )


Tables = dict[str, ReleaseTable]


@dataclass(frozen=True)
class CheckedRelease(Generic[P, F]):
    """A release for its checks: ``params`` is what it states, and its tables, which lie in ``database`` (None: the
    current one), are views ``v_<name>`` with names inside.
    """

    db: Relations
    manifest: Manifest
    params: P
    facts: F
    database: str | None
    tables: Tables

    @property
    def roles(self) -> Roles:
        """The published columns."""
        return self.manifest.roles

    @property
    def algorithm(self) -> str:
        """The algorithm that the release states."""
        return self.manifest.algorithm

    def name_tables(self) -> None:
        """Make the views of its tables."""
        for name, one in self.tables.items():
            rows = one.select_inside(self.roles, table(name, self.database))
            self.db.create_view(f"v_{one.view or name.removeprefix('privsql_')}", rows)

    def view(self, name: str) -> exp.Table:
        """Return the view of a table."""
        return temp_table(f"v_{name}")

    def read_view(self, name: str) -> pa.Table:
        """Return all rows of a table."""
        return self.db.arrow(all_rows(self.view(name)))

    def list_values(self, *columns: str) -> list[tuple[Any, ...]]:
        """Return the text of every listed value, by code, with some columns of ``values``."""
        labels = [exp.cast(item, "VARCHAR") for item in self.roles.sa_columns()]
        listed = exp.select(*labels, *map(column, columns)).from_(self.view("values")).order_by("code")
        return [(label_value(row[: len(labels)]), *row[len(labels) :]) for row in self.db.rows(listed)]

    def fill_query(self, file: str, **holes: Hole | str) -> exp.Query:
        """Return a query of ``sql/`` with its holes filled, those that ``holes`` leaves out by their names.

        ``sa`` and ``qi`` hold columns, behind ``_`` of the table of that alias; any other hole the view of its name. A
        text names two aliases whose values are compared, ``same_value="st v"``.
        """
        filled: dict[str, Hole] = {hole: self._fill_by_name(hole) for hole in list_holes(file) - holes.keys()}
        for hole, filling in holes.items():
            if isinstance(filling, str):
                left, right = filling.split()
                filled[hole] = same_columns(
                    left, right, self.roles.qi_keys if hole == "same_qi" else self.roles.sa_keys
                )
            else:
                filled[hole] = filling
        return fill(file, filled)

    def _fill_by_name(self, hole: str) -> Hole:
        kind, _, alias = hole.partition("_")
        if kind in ("sa", "qi"):
            return self.roles.sa_columns(alias or None) if kind == "sa" else self.roles.qi_columns(alias or None)
        return self.view(hole)

    def compare_values(self, weight: exp.Expr, *, fewer: bool = False) -> exp.Query:
        """Return the query for sensitive values of which ST and the source have not equally many; ``fewer``: of which
        ST has more.
        """
        source = temp_table("domain"), column("records")
        return compare_rows(self.roles.sa_columns(), source, (self.view("st"), weight), fewer=fewer)

    def compare_people(
        self, source: Records, view: str, *, fewer: bool = False, number: str = "0"
    ) -> Callable[..., list[str] | exp.Query]:
        """Return what compares quasi-identifiers of a table in the same way: equal as integers, else by a query.

        ``number``: a column of the table with which another check reads them, too.
        """
        columns = self.roles.qi_columns()
        rows = [exp.select(*columns, one).from_(self.view(view)) for one in dict.fromkeys((number, "0"))]

        def find_differences(_: object) -> list[str] | exp.Query:
            packed = source.packed
            read = (packed.pair_rows(self.db, one) for one in rows if packed is not None)
            pairs = next((one for one in read if one is not None), None)
            if packed is not None and pairs is not None:
                room = np.uint64(packed.room)
                if np.array_equal(pairs >> room, packed.pairs >> room):
                    return []
            source.sort_records()
            return compare_rows(columns, (temp_table("records"), ONE), (self.view(view), ONE), fewer=fewer)

        return find_differences

    def list_checks(
        self, named: Mapping[str, exp.Query | Callable[[CheckedRelease[P, F]], list[str] | exp.Query]]
    ) -> list[Check]:
        """Return checks by name: of a query for offending rows, or of a function that lists what is wrong."""
        return [Check(name, one if isinstance(one, exp.Query) else partial(one, self)) for name, one in named.items()]

    def compare_facts(self, recomputed: Mapping[str, Any]) -> list[str]:
        """Return the stated facts that differ from recomputed ones."""
        pairs = [(name, getattr(self.facts, name), value) for name, value in recomputed.items()]
        return [f"{name}: stated {stated}, found {value}" for name, stated, value in pairs if stated != value]

    def compare_records(self, published: int) -> list[str]:
        """Return what the manifest states of records, if the tables hold other numbers."""
        stated = self.manifest.published, self.manifest.records
        found = published, published + (self.manifest.suppressed or 0)
        pairs = zip(("published", "records"), stated, found, strict=True)
        return [f"{name}: stated {one}, found {other}" for name, one, other in pairs if one != other]

    def check_orders(self, orders: Mapping[str, Sequence[str]]) -> list[Check]:
        """Return the checks that rows of tables lie in order of some columns, once each."""
        queries = {name: in_order(self.view(name), keys, strict=True) for name, keys in orders.items()}
        return self.list_checks({f"rows of {name} lie in order, once each": one for name, one in queries.items()})


# Explanations ---------------------------------------------------------------------------------------------------------
# What a reader who knows nothing of a mechanism is told of a release: sentences, and what it is made of.

LEARNT = (
    "An attacker can learn from the whole release how its columns go with the sensitive value, and apply that to one "
    "record, as with any statistics."
)
LINKED = "If several records belong to one person, an attacker who knows which ones learns more."
SEVERAL = "An attacker can combine several releases of the same people."


@dataclass(frozen=True)
class ReleasePromises:
    """Promises of a release and their limits, in whole sentences."""

    promised: tuple[str, ...]
    not_promised: tuple[str, ...]

    def as_json(self) -> dict[str, list[str]]:
        """Return what is promised and what is not."""
        return {"promised": list(self.promised), "not_promised": list(self.not_promised)}


@dataclass(frozen=True)
class Structure:
    """A part of what a release is made of, such as its buckets by size.

    ``rows``: texts and numbers under ``head``, the first of each its name; ``drawn``: the column of numbers that a
    picture shows, None where that tells nothing; ``more``: rows that were left out.
    """

    title: str
    said: str
    head: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    drawn: int | None = None
    more: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return title, said, rows by the names of the head, and how many rows are left out."""
        rows = [dict(zip(self.head, row, strict=True)) for row in self.rows]
        return {"title": self.title, "said": self.said, "rows": rows, "more": self.more}


MOST_STRUCTURE_ROWS = 60  # rows of a structure that are shown


def make_structure(
    title: str, sentence: str, head: tuple[str, ...], rows: list[tuple[Any, ...]], drawn: int | None = None
) -> Structure:
    """A part with as many rows as a reader can use."""
    return Structure(
        title, sentence, head, tuple(rows[:MOST_STRUCTURE_ROWS]), drawn, max(0, len(rows) - MOST_STRUCTURE_ROWS)
    )


def by_range(numbers: list[int], parts: int = 8) -> list[tuple[str, int]]:
    """Numbers counted in at most so many ranges of about one length on a logarithmic scale, (range, how many).

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
