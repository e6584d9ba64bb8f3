"""The SQL that a question stands for: what anybody may give to ``privsql query``."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import TokenType, exp

from privsql.engine.roles import FLOATS
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import UsageError
from privsql.serving.form import COUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.serving.asked import Asked, Condition
    from privsql.serving.form import Column, Form

NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CALLS = {"if"}  # words that the parser takes for calls, which are no keywords
ENDLESS = {"nan", "inf", "-inf"}
AGGREGATES: dict[str, type[exp.AggFunc]] = {"avg": exp.Avg, "sum": exp.Sum}
MOMENTS: dict[str, Callable[[str], object]] = {"DATE": date.fromisoformat, "TIME": time.fromisoformat}
TRUTHS = {"true": exp.true, "false": exp.false}


def statement(asked: Asked, form: Form) -> exp.Select:
    """The query of a question that was chosen; ``UsageError`` for a value that its column can't have."""
    groups = [_name(form.columns[number].name) for number in asked.groups]
    made = exp.select(*groups, _measure(asked.measure, form)).from_(exp.Table(this=_identifier(form.name)))
    conditions = _of_items(asked, form) if form.items is not None else _of_columns(asked, form)
    if conditions:
        made = made.where(*conditions)
    for group in groups:
        made = made.group_by(group.copy()).order_by(group.copy())
    return made


def text(made: exp.Select, *, lines: bool = True) -> str:
    """A query as it is shown, or (without ``lines``) on one line, for a shell."""
    return made.sql(dialect=DIALECT, pretty=lines, comments=False)


def _name(name: str) -> exp.Column:
    """A column, quoted where it has to be."""
    return exp.column(_identifier(name))


def _identifier(name: str) -> exp.Identifier:
    """A name, quoted unless it is one word that means nothing else; what the engine reserves is quoted when written."""
    tokens = sqlglot.tokenize(name, dialect=DIALECT) if PLAIN.fullmatch(name) else []
    plain = len(tokens) == 1 and tokens[0].token_type == TokenType.VAR and name.lower() not in CALLS
    return exp.to_identifier(name, quoted=not plain)


def _measure(key: str, form: Form) -> exp.Expr:
    if key == COUNT:
        return exp.Count(this=exp.Star())
    kind, _, number = key.partition(".")
    return AGGREGATES[kind](this=_name(form.column(number).name))


# Conditions ---


def _of_columns(asked: Asked, form: Form) -> list[exp.Expr]:
    return [_on(form.columns[number], condition) for number, condition in sorted(asked.conditions.items())]


def _on(column: Column, condition: Condition) -> exp.Expr:
    name = _name(column.name)
    null = exp.Is(this=name.copy(), expression=exp.null())
    met = _among(name, [_literal(one, column) for one in condition.values]) or _ranged(name, column, condition)
    if met is None:
        return null if condition.nulls == "only" else exp.not_(null)
    if condition.nulls == "too":
        return exp.paren(exp.or_(met, null))
    return exp.and_(met, exp.not_(null)) if condition.nulls == "not" else met


def _among(name: exp.Expr, values: Sequence[exp.Expr]) -> exp.Expr | None:
    if not values:
        return None
    return exp.EQ(this=name.copy(), expression=values[0]) if len(values) == 1 else name.copy().isin(*values)


def _ranged(name: exp.Expr, column: Column, condition: Condition) -> exp.Expr | None:
    """From one end to the other, both included; a day, of a column of moments, with all of its hours."""
    low, high = (_literal(end, column) if end else None for end in (condition.low, condition.high))
    after = _day_after(condition.high) if column.type.startswith("TIMESTAMP") else None
    if low is not None and high is not None and _is_turned(condition.low, after or condition.high, column):
        raise UsageError(f"{column.name}: nothing lies from {condition.low} to {condition.high}; exchange the two")
    if after is None:
        return _between(name, low, high)
    before = exp.LT(this=name.copy(), expression=_literal(after, column))
    return before if low is None else exp.and_(exp.GTE(this=name, expression=low), before)


def _is_turned(low: str, high: str, column: Column) -> bool:
    """Whether a range ends before it begins: whoever mistook its ends would be told 0, exactly."""
    value: Callable[[str], Any] = (
        Decimal if column.kind == "number" else MOMENTS.get(column.type, datetime.fromisoformat)
    )
    try:
        return bool(value(low) > value(high))
    except (ValueError, ArithmeticError, TypeError):  # what the engine alone can read
        return False


def _day_after(end: str) -> str | None:
    """The day after a day; None for what is none, and for the last one that there is."""
    try:
        return (date.fromisoformat(end) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return None


def _between(name: exp.Expr, low: exp.Expr | None, high: exp.Expr | None) -> exp.Expr | None:
    if low is not None and high is not None:
        return exp.EQ(this=name, expression=low) if low == high else exp.Between(this=name, low=low, high=high)
    if low is not None:
        return exp.GTE(this=name, expression=low)
    return exp.LTE(this=name, expression=high) if high is not None else None


def _of_items(asked: Asked, form: Form) -> list[exp.Expr]:
    (column,) = form.columns
    name = _name(column.name)

    def has(function: str, chosen: tuple[str, ...]) -> exp.Expr:
        if len(chosen) == 1:
            return exp.Anonymous(this="list_contains", expressions=[name.copy(), _item(chosen[0], form)])
        listed = exp.Array(expressions=[_item(one, form) for one in chosen])
        return exp.Anonymous(this=function, expressions=[name.copy(), listed])

    found = [has("list_has_all", asked.items["all"])] if asked.items.get("all") else []
    found += [has("list_has_any", asked.items["any"])] if asked.items.get("any") else []
    found += [exp.not_(has("list_has_any", asked.items["none"]))] if asked.items.get("none") else []
    ends = (_whole(end) if end else None for end in (asked.length.low, asked.length.high))
    length = _between(exp.Anonymous(this="len", expressions=[name.copy()]), *ends)
    return found + ([length] if length is not None else [])


def _item(value: str, form: Form) -> exp.Expr:
    (column,) = form.columns
    if value not in (form.items or ()):
        raise UsageError(f"{column.name}: there is no item {value!r}")
    return _literal(value, column)


def _whole(value: str) -> exp.Expr:
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise UsageError(f"the number of items: {value!r} is no whole number")
    return exp.Literal.number(value)


# Values ---


def _literal(value: str, column: Column) -> exp.Expr:
    """A value as SQL has it; ``UsageError`` if the column can't have it."""
    if column.type == "VARCHAR":
        return exp.Literal.string(value)
    value = value.strip()
    if column.kind == "truth" and value.lower() in TRUTHS:
        return TRUTHS[value.lower()]()
    if column.kind == "number" and NUMBER.fullmatch(value):
        return exp.Neg(this=exp.Literal.number(value[1:])) if value[0] == "-" else exp.Literal.number(value.lstrip("+"))
    of_type = exp.cast(exp.Literal.string(value), exp.DataType.build(column.type, dialect=DIALECT))
    if column.kind == "number" and column.type in FLOATS and value in ENDLESS:
        return of_type
    if column.kind in ("moment", "other") and _is_moment(value, column):
        return of_type
    raise UsageError(f"{column.name}: {value!r} is no {_called(column)}")


def _is_moment(value: str, column: Column) -> bool:
    if column.kind == "other":
        return True  # the engine knows
    try:
        MOMENTS.get(column.type, datetime.fromisoformat)(value)
    except ValueError:
        return value in column.values
    return True


def _called(column: Column) -> str:
    return {"number": "number", "moment": "date or time", "truth": "truth value"}.get(column.kind, column.type)
