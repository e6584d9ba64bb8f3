"""Questions that cut through a bin: a release tells of whole bins only, so they are refused and never answered.

A value of a column in bins stands for its whole bin. A condition is answered where every bin meets it as a whole or not
at all: a comparison with constants at which bins begin (between values of the column: ``age <= 44`` is ``age < 45``),
equality with a published value, which means its bin, and ``IS NULL``. Of a column of groups it is equality with groups.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.functions import text
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError
from privsql.model.bins import MONTHS, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.answers.asked import Statement
    from privsql.engine.roles import Field
    from privsql.model.bins import Bins

EQUALITY = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
FIRST = (exp.LT, exp.GTE)  # whose constant is the first value of what is asked for, or of the rest
LAST = (exp.LTE, exp.GT)  # whose constant is the last one
CALENDAR: dict[type[exp.Expr], str] = {exp.Year: "year", exp.Quarter: "quarter", exp.Month: "month"}
MOMENTS = {  # of a cast; DuckDB's TIMESTAMP is one without a time zone
    exp.DType.DATE: "DATE", exp.DType.TIMESTAMP: "TIMESTAMP", exp.DType.TIMESTAMPNTZ: "TIMESTAMP"
}  # fmt: skip
NUMBER = re.compile(r"[0-9]{1,40}(\.[0-9]{0,40})?")
SIGNED = re.compile(f"-?{NUMBER.pattern}")
TURNED = {exp.LT: exp.GT, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.GTE: exp.LTE}


def refuse(
    asked: Statement, bins: Mapping[str, Bins], groups: Mapping[str, Sequence[str]], columns: Sequence[Field]
) -> Statement:
    """The statement; ``UsageError`` if it asks for a part of a bin, or of a group of values."""
    if not bins and not groups:
        return asked
    kinds = {field.name: field.type for field in columns}
    _refuse_keys(asked, bins)
    for one in asked.asked:
        measured = one.measure.of
        for item in measured.find_all(exp.Column) if measured is not None else ():
            if item.name in bins or item.name in groups:
                raise _refused(item.name, one.written, bins.get(item.name))
    for root, alone in _parts(asked):
        for item in root.find_all(exp.Column):
            node = _around(item, root)
            if (alone and node.unnest() is item) or _is_null(node):
                continue
            if item.name in bins and not _whole(item, node, bins[item.name], kinds[item.name]):
                raise _refused(item.name, text(node), bins[item.name])
            if item.name in groups and not _of_groups(item, node, groups[item.name]):
                known = ", ".join(groups[item.name])
                raise UsageError(f"{text(node)}: column {item.name!r} holds groups of values: {known}")
    return asked


def _refuse_keys(asked: Statement, bins: Mapping[str, Bins]) -> None:
    """``UsageError`` for a lookup by a column in bins: no row of it stands for a bin."""
    for lookup in asked.scope.lookups:
        own = next((own for _, own in lookup.keys if own in bins), None)
        if own is not None:
            raise UsageError(f"JOIN {lookup.alias}: column {own!r} is in {bins[own]}, which no row of it stands for")


def _refused(name: str, written: str, bins: Bins | None) -> UsageError:
    what = f"in {bins}; compare it with values at which a bin begins" if bins else "in groups of values"
    return UsageError(f"{written}: column {name!r} is {what}, or group by it")


def _parts(asked: Statement) -> Iterator[tuple[exp.Expr, bool]]:
    """Conditions, groups, and what is made of groups in the answer; whether a column may stand there alone."""
    groups = {f"g_{i}": group.own for i, group in enumerate(asked.scope.groups)}

    def written_out(node: exp.Expr) -> exp.Expr:
        return groups[node.name].copy() if isinstance(node, exp.Column) and node.name in groups else node

    yield from ((part, False) for part in (asked.scope.where, *(one.among for one in asked.asked)) if part is not None)
    made = [*(one.expression for one in asked.outputs), *(one.this for one in asked.order)]
    yield from ((part.copy().transform(written_out), True) for part in (*groups.values(), *made))
    if asked.having is not None:
        yield asked.having.copy().transform(written_out), False


def _around(item: exp.Expr, root: exp.Expr) -> exp.Expr:
    """What a column is directly part of; itself, if it is all that there is."""
    node = item
    while node is not root and isinstance(node.parent, exp.Paren):
        node = node.parent
    return node if node is root or node.parent is None else node.parent


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)


def _whole(item: exp.Column, node: exp.Expr, bins: Bins, kind: str) -> bool:
    """Whether a comparison of a column, or the part of the calendar that it lies in, leaves bins whole."""
    if isinstance(node, tuple(CALENDAR)):
        return bins.unit is not None and MONTHS[CALENDAR[type(node)]] % MONTHS[bins.unit] == 0
    if isinstance(node, exp.Between):
        ends = constant(node.args["low"], kind), constant(node.args["high"], kind)
        own = node.this.unnest() is item
        return own and _begins(bins, ends[0], kind, last=False) and _begins(bins, ends[1], kind, last=True)
    if isinstance(node, exp.In):
        own = node.this.unnest() is item and not node.args.get("query") and bool(node.expressions)
        return own and all(_is_label(bins, constant(one, kind)) for one in node.expressions)
    if not isinstance(node, (*EQUALITY, *FIRST, *LAST)):
        return False
    turned = node.expression.unnest() is item
    value = constant(node.this if turned else node.expression, kind)
    if isinstance(node, EQUALITY):
        return _is_label(bins, value)
    return _begins(bins, value, kind, last=TURNED.get(type(node), type(node)) in LAST if turned else type(node) in LAST)


def _is_label(bins: Bins, value: Decimal | date | None) -> bool:
    return value is not None and bins.begins(value)


def _begins(bins: Bins, value: Decimal | date | None, kind: str, *, last: bool) -> bool:
    """Whether a bin begins at a value, or (``last``) right behind it, among the values that the column can have."""
    if value is None:
        return False
    if isinstance(value, Decimal):
        step = Fraction(1, 10 ** spread(kind)[2])
        steps = Fraction(value) / step
        first = (math.floor(steps) + 1 if last else math.ceil(steps)) * step
        return (bool(bins.edges) and first <= Fraction(bins.edges[0])) or bins.begins(first)
    later = timedelta(microseconds=1) if isinstance(value, datetime) else timedelta(days=1)
    try:
        return bins.begins(value + later if last else value)
    except OverflowError:
        return False


def constant(node: exp.Expr, kind: str) -> Decimal | date | None:
    """A constant as a value of the column; None for what is none, or no value of that type."""
    node = node.unnest()
    if kind in ("DATE", "TIMESTAMP"):
        written = kind
        if isinstance(node, exp.Cast) and node.to.this in MOMENTS:
            written, node = MOMENTS[node.to.this], node.this
        if written != kind and kind == "DATE":
            return None
        return _moment(node.name, written, kind) if isinstance(node, exp.Literal) and node.is_string else None
    if isinstance(node, exp.Cast) and node.to == exp.DataType.build(kind, dialect=DIALECT):
        return Decimal(node.this.name) if SIGNED.fullmatch(node.this.name) else None  # a value as it is published
    negative = isinstance(node, exp.Neg)
    node = node.this.unnest() if negative else node
    if not isinstance(node, exp.Literal) or node.is_string or not NUMBER.fullmatch(node.name):
        return None  # what the engine would round, or read as a double
    return Decimal(f"-{node.name}" if negative else node.name)


def _moment(text: str, written: str, kind: str) -> date | None:
    """What a text that was written as one type is as a value of another: a day as a moment is its midnight."""
    try:
        found = date.fromisoformat(text) if written == "DATE" else datetime.fromisoformat(text)
    except ValueError:
        return None
    if kind == "TIMESTAMP" and not isinstance(found, datetime):
        return datetime(found.year, found.month, found.day)  # noqa: DTZ001 (of a column without a time zone)
    return None if getattr(found, "tzinfo", None) else found


def _of_groups(item: exp.Column, node: exp.Expr, groups: Sequence[str]) -> bool:
    """Whether a column of groups is compared with groups for equality."""
    if isinstance(node, exp.In):
        return not node.args.get("query") and all(_is_group(one, groups) for one in node.expressions)
    if not isinstance(node, EQUALITY):
        return False
    return _is_group(node.expression if node.this.unnest() is item else node.this, groups)


def _is_group(node: exp.Expr, groups: Sequence[str]) -> bool:
    node = node.unnest()
    node = node.this if isinstance(node, exp.Cast) and node.to.this == exp.DType.TEXT else node
    return isinstance(node, exp.Literal) and node.is_string and node.name in groups
