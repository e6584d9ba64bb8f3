"""What an address asks: read from its parameters, and refused wherever it is not understood."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from privsql.answers.base import OURS, THEIRS
from privsql.calls import between
from privsql.errors import UsageError
from privsql.serving.form import COUNT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.serving.form import Column, Form

CONFIDENCE = 0.95
MOST_FIELDS = 1_000  # of an address
MOST_GROUPS = 2
SETS = ("all", "any", "none")
NULLS = ("too", "only", "not")
KEY = re.compile(r"c([0-9]{1,5})(?:\.(from|to|null))?")
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Condition:
    """What is said of one column: some values of it, or a range; ``nulls``: one of ``NULLS``, or nothing."""

    values: tuple[str, ...] = ()
    low: str = ""
    high: str = ""
    nulls: str = ""


@dataclass(frozen=True)
class Asked:
    """A question as it was chosen; ``sql`` takes its place where somebody wrote it. ``items`` by ``SETS``."""

    measure: str = COUNT
    conditions: dict[int, Condition] = field(default_factory=dict)
    groups: tuple[int, ...] = ()
    items: dict[str, tuple[str, ...]] = field(default_factory=dict)
    length: Condition = field(default_factory=Condition)
    confidence: float = CONFIDENCE
    estimator: str = OURS
    sql: str = ""

    def on(self, column: Column) -> Condition:
        """What is said of a column."""
        return self.conditions.get(column.number, Condition())


def parameters(query: bytes) -> Pairs:
    """The parameters of an address that say something; ``UsageError`` for what is no text, or for too many."""
    try:
        found = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except (UnicodeDecodeError, ValueError) as error:
        raise UsageError("the address can't be read: it is not valid UTF-8, or has too many fields") from error
    if any("\0" in part for pair in found for part in pair):
        raise UsageError("the address holds a NUL")
    pairs = ((name, value.replace("\r\n", "\n")) for name, value in found)
    return [(name, value) for name, value in pairs if value.strip()]


def address(pairs: Iterable[tuple[str, str]]) -> str:
    """Parameters as the end of an address."""
    return urlencode(list(pairs))


def read(pairs: Pairs, form: Form) -> Asked:
    """What parameters ask of a release; ``UsageError`` for one that is unknown, or stands twice and may not."""
    rest: dict[str, list[str]] = {}
    for name, value in pairs:
        rest.setdefault(name, []).append(value)
    confidence = between(_one(rest, "confidence") or CONFIDENCE)  # type: ignore[arg-type]
    estimator = _one(rest, "estimator") or OURS
    if estimator not in (OURS, THEIRS):
        raise UsageError(f"the estimator is {OURS} or {THEIRS}, not {estimator!r}")
    sql = _one(rest, "sql")
    if sql:
        _nothing_else(rest)
        return Asked(sql=sql, confidence=confidence, estimator=estimator)
    measure = _one(rest, "measure") or COUNT
    if measure not in [one.key for one in form.measures]:
        raise UsageError(f"there is no {measure!r} to ask for")
    groups = tuple(form.column(number).number for number in dict.fromkeys(rest.pop("by", [])))
    if len(groups) > MOST_GROUPS:
        raise UsageError(f"an answer can be split by {MOST_GROUPS} columns here; write SQL for more")
    if form.items is not None:
        items = {name: tuple(dict.fromkeys(rest.pop(name, []))) for name in SETS}
        length = Condition(low=_one(rest, "len.from"), high=_one(rest, "len.to"))
        _nothing_else(rest)
        if groups:
            raise UsageError("an answer about item sets can't be split")
        return Asked(measure, items=items, length=length, confidence=confidence, estimator=estimator)
    return Asked(measure, _conditions(rest, form), groups, confidence=confidence, estimator=estimator)


def _conditions(rest: dict[str, list[str]], form: Form) -> dict[int, Condition]:
    found = {}
    for name in list(rest):
        met = KEY.fullmatch(name)
        if met is None:
            continue
        column = form.column(met[1])
        values = tuple(dict.fromkeys(rest.pop(column.key, [])))
        ends = [_one(rest, f"{column.key}.{part}") for part in ("from", "to", "null")]
        if values or any(ends[:2]) or ends[2] not in ("", "too"):  # who says nothing means those without a value, too
            found[column.number] = _checked(Condition(values, *ends), column)
    _nothing_else(rest)
    return found


def _checked(condition: Condition, column: Column) -> Condition:
    if condition.values and (condition.low or condition.high):
        raise UsageError(f"{column.name}: give values or a range, not both")
    if condition.nulls and condition.nulls not in NULLS:
        raise UsageError(f"{column.name}: NULL can be asked for by {', '.join(NULLS)}, not {condition.nulls!r}")
    if condition.nulls == "only" and (condition.values or condition.low or condition.high):
        raise UsageError(f"{column.name}: give values, or ask for NULL only, not both")
    return condition


def _one(rest: dict[str, list[str]], name: str) -> str:
    """A parameter that stands at most once; taken out."""
    found = rest.pop(name, [""])
    if len(found) > 1:
        raise UsageError(f"the address names {name!r} twice")
    return found[0].strip() if name != "sql" else found[0]


def _nothing_else(rest: dict[str, list[str]]) -> None:
    if rest:
        raise UsageError(f"the address names {next(iter(rest))!r}, which can't be chosen here")
