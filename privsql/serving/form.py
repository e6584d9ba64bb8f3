"""Build the HTML form on which a release is queried, and read the question that an address asks on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, urlencode

from privsql.answers.sql.question import is_number
from privsql.calls import as_confidence
from privsql.errors import UsageError
from privsql.model.estimates import BASELINE, BEST

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.engine.sqlfiles import Field
    from privsql.releases.opened import Release

# Form -----------------------------------------------------------------------------------------------------------------

Kind = Literal["text", "number", "moment", "truth", "other"]
LISTED = 60  # the most values of a column that are listed one by one
NUMBERS = 16  # the same for numbers or dates, which can also be asked for by range
SUGGESTED = 1_000  # the most values that a field suggests while somebody types
WIDEST = 200  # the most characters of a value that can be chosen
COUNT = "count"
AMOUNTS = {"avg": "Average", "sum": "Sum"}


@dataclass(frozen=True)
class FormColumn:
    """A column of a release, as the form shows it.

    Attributes:
        number: Its index among the columns.
        name: Its name.
        type: Its SQL type.
        kind: The kind of field in which its values are entered.
        values: The values that the form lists, in order; empty if there are too many.
        sensitive: Whether it is a sensitive column.
        nulls: Whether it may hold NULL.
        note: A remark on its values.
        whole: Whether its values are bins or groups, of which no part can be asked for.
        by_value: Whether the form offers to group by the column, with a line of the answer for each value.
        left_out: How many values no form field can hold, because they are empty, very long, or have control characters.
            SQL can ask for them.
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
        """Return the name of the column's parameter in an address of the page, such as c2; it holds chosen values."""
        return f"c{self.number}"

    @property
    def listed(self) -> bool:
        """Return whether the form lists the column's values one by one, to be ticked."""
        ranged = self.kind in ("number", "moment") and not (self.whole or self.sensitive)
        return 0 < len(self.values) <= (NUMBERS if ranged else LISTED)

    @property
    def ranged(self) -> bool:
        """Return whether the form asks for a range of the column's values."""
        return self.kind in ("number", "moment") and not self.listed


@dataclass(frozen=True)
class FormMeasure:
    """A figure that the form can ask for, such as COUNT: its name in an address, and its label."""

    key: str
    label: str


RECORDS = FormMeasure(COUNT, "How many records")


@dataclass(frozen=True)
class ReleaseForm:
    """Everything that can be chosen on the form of a release.

    Attributes:
        name: The name of the release.
        columns: Its columns; for item sets the single column of the items.
        measures: The figures that can be asked for.
        items: The items of a release of item sets; None for other releases.
        certain: Whether the estimator ``baseline``, the formula of the literature, gives bounds between which the true
            count certainly lies.
        estimators: The estimators that can be chosen.
    """

    name: str
    columns: tuple[FormColumn, ...]
    measures: tuple[FormMeasure, ...]
    items: tuple[str, ...] | None = None
    certain: bool = False
    estimators: tuple[str, ...] = ()

    def find_column(self, number: str) -> FormColumn:
        """Return the column with a number that an address has as text.

        Raises:
            UsageError: There is no such column.
        """
        place = int(number) if number.isascii() and number.isdigit() and len(number) < 6 else -1
        if not 0 <= place < len(self.columns):
            raise UsageError(f"there is no column {number!r}")
        return self.columns[place]


def make_form(release: Release) -> ReleaseForm:
    """Return the form on which an open release is queried."""
    manifest, estimators = release.manifest, release.answers.estimators
    certain = BASELINE in release.answers.certain
    if manifest.roles.hold_sets:
        (field,) = manifest.sensitive
        kind = field.type.removesuffix("[]")
        items_column = FormColumn(0, field.name, kind, _column_kind(kind), ())
        return ReleaseForm(manifest.name, (items_column,), (RECORDS,), release.answers.item_labels, certain, estimators)
    sensitive = {field.name for field in manifest.sensitive} if manifest.quasi_identifiers else set()
    fields = manifest.roles.columns
    columns = tuple(_make_column(release, k, field, field.name in sensitive) for k, field in enumerate(fields))
    numbers = {one.name for one in manifest.quasi_identifiers if is_number(one.type) and one.type != "BOOLEAN"}
    numbers -= {*manifest.bins, *manifest.groups}
    measures = [RECORDS]
    for column in columns:
        measured = release.answers.measures if column.sensitive and column.kind == "number" else ()
        for kind, title in AMOUNTS.items():
            if column.name in numbers or kind in measured:
                measures.append(FormMeasure(f"{kind}.{column.number}", f"{title} of {column.name}"))
    return ReleaseForm(manifest.name, columns, tuple(measures), certain=certain, estimators=estimators)


def _make_column(release: Release, number: int, field: Field, sensitive: bool) -> FormColumn:
    manifest = release.manifest
    published = release.list_values(field.name, SUGGESTED + 2)
    values = [one for one in published if one is not None]
    labels = manifest.orders.get(field.name)
    if labels is not None:
        values = sorted(values, key=labels.index)
    choosable = [one for one in values if one.strip() and one.isprintable() and len(one) <= WIDEST]
    bins = manifest.bins.get(field.name)
    note = f"in {bins}; a value is the first of its bin" if bins else ""
    return FormColumn(
        number,
        field.name,
        field.type,
        _column_kind(field.type),
        tuple(choosable) if len(values) <= SUGGESTED else (),
        sensitive=sensitive,
        nulls=len(values) < len(published) or len(values) > SUGGESTED,
        note="in groups of values" if field.name in manifest.groups else note,
        whole=bool(note) or field.name in manifest.groups,
        by_value=field.name not in release.answers.in_bins,
        left_out=len(values) - len(choosable),
    )


def _column_kind(kind: str) -> Kind:
    if kind == "BOOLEAN":
        return "truth"
    if kind == "VARCHAR":
        return "text"
    if kind == "DATE" or kind.startswith("TIME"):
        return "moment"
    return "number" if is_number(kind) else "other"


# Addresses ------------------------------------------------------------------------------------------------------------
# The question of an address, read from its parameters; anything that is not understood is refused.

CONFIDENCE = 0.95
MOST_FIELDS = 1_000  # the most parameters of an address
MOST_GROUPS = 2
SETS = ("all", "any", "none")
NULLS = ("too", "only", "not")
KEY = re.compile(r"c([0-9]{1,5})(?:\.(from|to|null))?")
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class ColumnCondition:
    """The condition that a question has on one column: values, or a range.

    Attributes:
        values: The accepted values; empty for a range, or for no condition.
        low: The smallest accepted value as text; empty for none.
        high: The largest accepted value as text; empty for none.
        nulls: Whether NULL is accepted: "too" (with the accepted values), "only", "not", or empty for the default.
    """

    values: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    nulls: str = ""


@dataclass(frozen=True)
class FormQuestion:
    """A question that was asked on the form.

    Attributes:
        measure: The aggregate function, such as COUNT.
        conditions: The condition on each column, by the column's number.
        groups: The numbers of the columns of GROUP BY.
        items: For a release of item sets, the items that a record must hold, by how many of them: "all", "any" or
            "none".
        length: The condition on the number of items of a record.
        confidence: The confidence of the intervals.
        estimator: The estimator.
        sql: SQL that the reader wrote; if it is not empty, it replaces all of the above.
    """

    measure: str = COUNT
    conditions: dict[int, ColumnCondition] = field(default_factory=dict)
    groups: tuple[int, ...] = ()
    items: dict[str, tuple[str, ...]] = field(default_factory=dict)
    length: ColumnCondition = field(default_factory=ColumnCondition)
    confidence: float = CONFIDENCE
    estimator: str = BEST
    sql: str = ""

    def on(self, column: FormColumn) -> ColumnCondition:
        """Return the question's condition on a column; without one, an empty condition."""
        return self.conditions.get(column.number, ColumnCondition())


def parse_parameters(query: bytes) -> Pairs:
    """Return the parameters in the query part of an address as pairs (name, value), without empty values.

    Raises:
        UsageError: The parameters are not text, or there are too many.
    """
    try:
        fields = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError("the address can't be read: it is not valid UTF-8, or has too many fields") from error
    if any("\0" in part for pair in fields for part in pair):
        raise UsageError("the address holds a NUL")
    pairs = ((name, value.replace("\r\n", "\n")) for name, value in fields)
    return [(name, value) for name, value in pairs if value.strip()]


def join_parameters(pairs: Iterable[tuple[str, str]]) -> str:
    """Return pairs (name, value) as the query part of an address."""
    return urlencode(list(pairs))


def read_question(pairs: Pairs, form: ReleaseForm) -> FormQuestion:
    """Return the question that the parameters of an address ask on a form.

    Raises:
        UsageError: A parameter is unknown, or is repeated although it may not be.
    """
    rest: dict[str, list[str]] = {}
    for name, value in pairs:
        rest.setdefault(name, []).append(value)
    confidence = as_confidence(_take_parameter(rest, "confidence") or CONFIDENCE)  # type: ignore[arg-type]
    estimator = _take_parameter(rest, "estimator") or BEST
    if estimator not in (BEST, *form.estimators):
        raise UsageError(f"the estimator is {BEST} or one of {', '.join(form.estimators)}, not {estimator!r}")
    sql = _take_parameter(rest, "sql")
    if sql:
        _require_nothing_else(rest)
        return FormQuestion(sql=sql, confidence=confidence, estimator=estimator)
    measure = _take_parameter(rest, "measure") or COUNT
    if measure not in [one.key for one in form.measures]:
        raise UsageError(f"there is no measure {measure!r}")
    groups = tuple(form.find_column(number).number for number in dict.fromkeys(rest.pop("by", [])))
    if len(groups) > MOST_GROUPS:
        raise UsageError(f"the page splits an answer by at most {MOST_GROUPS} columns; write SQL for more")
    if form.items is not None:
        items = {name: tuple(dict.fromkeys(rest.pop(name, []))) for name in SETS}
        length = ColumnCondition(low=_take_parameter(rest, "len.from"), high=_take_parameter(rest, "len.to"))
        _require_nothing_else(rest)
        if groups:
            raise UsageError("an answer about item sets can't be split")
        return FormQuestion(measure, items=items, length=length, confidence=confidence, estimator=estimator)
    conditions = {}
    for name in list(rest):
        met = KEY.fullmatch(name)
        if met is None:
            continue
        column = form.find_column(met[1])
        values = tuple(dict.fromkeys(rest.pop(column.key, [])))
        low, high, nulls = (_take_parameter(rest, f"{column.key}.{part}") for part in ("from", "to", "null"))
        if values or low or high or nulls not in ("", "too"):  # an empty field includes NULL
            if values and (low or high):
                raise UsageError(f"{column.name}: give values or a range, not both")
            if nulls and nulls not in NULLS:
                raise UsageError(f"{column.name}: NULL takes {', '.join(NULLS)}, not {nulls!r}")
            if nulls == "only" and (values or low or high):
                raise UsageError(f"{column.name}: give values or NULL only, not both")
            conditions[column.number] = ColumnCondition(values, low, high, nulls)
    _require_nothing_else(rest)
    return FormQuestion(measure, conditions, groups, confidence=confidence, estimator=estimator)


def _take_parameter(rest: dict[str, list[str]], name: str) -> str:
    """Remove a parameter from ``rest`` and return its value; empty if it is absent.

    Args:
        rest: The values of each parameter that was not read yet.
        name: The parameter.

    Raises:
        UsageError: The parameter occurs several times.
    """
    values = rest.pop(name, [""])
    if len(values) > 1:
        raise UsageError(f"the address names {name!r} twice")
    return values[0].strip() if name != "sql" else values[0]


def _require_nothing_else(rest: dict[str, list[str]]) -> None:
    if rest:
        raise UsageError(f"the address names {next(iter(rest))!r}, which is not a field of this page")
