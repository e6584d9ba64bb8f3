"""Quasi-identifiers made coarser where they are read: bins of numbers and dates, and groups of texts.

What is published is the first value of a bin, in the column's own type, so it sorts and compares as the column does.
All of it is exact: whole numbers and decimals, never doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.engine.sqlfiles import DIALECT, is_null
from privsql.errors import UsageError
from privsql.model.bins import DIGITS, fits, spread

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from privsql.engine.roles import Field
    from privsql.model.bins import Bins
    from privsql.source.columns import Columns

MORE = 2  # digits that are needed on the way to a bin


@dataclass(frozen=True)
class Coarse:
    """How a column is read, and which of its values have no bin or group: ``why`` says so, and what would help."""

    name: str
    value: exp.Expr
    misfit: exp.Expr | None = None
    why: str = ""


def binned(field: Field, columns: Columns, value: exp.Expr) -> Coarse | None:
    """How a column of the source is read if it has bins or levels; ``UsageError`` for a type that can't have them."""
    bins, levels, other = columns.coarser(field.name)
    if levels:
        return _grouped(field, value, levels, other)
    return None if bins is None else in_bins(field, value, bins)


def in_bins(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """The first value of the bin of ``value``, a column's; ``UsageError`` for a type that can't have these bins."""
    if not fits(bins, field.type):
        raise UsageError(f"columns.bins: column {field.name!r} is {field.type}; {_remedy(field.type, bins)}")
    if bins.unit is not None:
        start = exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(bins.unit), value.copy()])
        return Coarse(field.name, _cast(start, field.type))
    return _of_edges(field, value, bins) if bins.edges else _of_width(field, value, bins)


def coarser(quasi_identifiers: Iterable[Field], columns: Columns) -> dict[str, dict[str, Any]]:
    """What a manifest says of it: the ``bins``, and the names of the ``groups``, by column."""
    found: dict[str, dict[str, Any]] = {"bins": {}, "groups": {}}
    for field in quasi_identifiers:
        bins, levels, other = columns.coarser(field.name)
        if bins is not None:
            found["bins"][field.name] = bins
        elif levels:
            found["groups"][field.name] = sorted({*levels.values(), *([] if other is None else [other])})
    return found


def _remedy(kind: str, bins: Bins) -> str:
    if kind in ("FLOAT", "DOUBLE"):
        return "bins are exact: cast it to DECIMAL or INTEGER in source.query"
    if bins.unit is not None:
        return f"{bins.unit}s are of DATE and TIMESTAMP; cast it in source.query"
    if kind == "VARCHAR":
        return "give the groups of its values in columns.levels"
    return (
        f"bins are of whole numbers and of DECIMAL up to {DIGITS} digits, and their numbers have to be values of the "
        "column; dates take 'month', 'quarter' or 'year'"
    )


def _of_width(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """X - (x - origin mod width), the remainder never negative; nothing on the way is larger than x or 2 width."""
    least, most, scale = spread(field.type)
    width, origin = Fraction(bins.width or 1), Fraction(bins.origin)
    wide = f"DECIMAL({len(str(int(most * 10**scale))) + MORE},{scale})"
    x, w, o = _cast(value.copy(), wide), _number(width, wide), _number(origin % width, wide)

    def mod(left: exp.Expr) -> exp.Expr:
        return exp.paren(exp.Mod(this=exp.paren(left), expression=w.copy()))

    rest = mod(exp.Add(this=mod(exp.Sub(this=mod(x.copy()), expression=o)), expression=w.copy()))
    lowest = least + (origin - least) % width
    return Coarse(
        field.name,
        _cast(exp.paren(exp.Sub(this=x, expression=rest)), field.type),
        exp.LT(this=value.copy(), expression=_number(lowest, field.type)),
        f"values below {lowest}, whose bin begins where {field.type} ends; cast the column in source.query",
    )


def _of_edges(field: Field, value: exp.Expr, bins: Bins) -> Coarse:
    """The largest edge that is not above the value."""
    edges = [_number(Fraction(edge), field.type) for edge in bins.edges]
    case = exp.Case().when(is_null(value.copy()), _cast(exp.null(), field.type))
    for begin, end in pairwise(edges):
        case = case.when(exp.LT(this=value.copy(), expression=end.copy()), begin.copy())
    return Coarse(
        field.name,
        case.else_(edges[-1].copy()),
        exp.LT(this=value.copy(), expression=edges[0].copy()),
        f"values below {bins.edges[0]:f}, the first edge; begin columns.bins lower",
    )


def _grouped(field: Field, value: exp.Expr, levels: dict[str, str], other: str | None) -> Coarse:
    """The group of each value."""
    if field.type != "VARCHAR":
        raise UsageError(f"columns.levels: column {field.name!r} is {field.type}, not text; give columns.bins")
    case = exp.Case().when(is_null(value.copy()), _cast(exp.null(), field.type))
    members: dict[str, list[exp.Expr]] = {}
    for label, group in levels.items():
        members.setdefault(group, []).append(exp.Literal.string(label))
    for group, labels in members.items():
        case = case.when(value.copy().isin(*labels), exp.Literal.string(group))
    if other is not None:
        return Coarse(field.name, case.else_(exp.Literal.string(other)))
    known = value.copy().isin(*map(exp.Literal.string, levels))
    why = "values that columns.levels does not name; name them, or give columns.others a group for them"
    return Coarse(field.name, case, exp.not_(known), why)


def _number(number: Fraction | Decimal, kind: str) -> exp.Expr:
    """A number of a type; ``fits`` said that the type holds it."""
    found = Fraction(number)
    scale = 0
    while (found * 10**scale).denominator != 1:
        scale += 1
    digits = str(abs(int(found * 10**scale))).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return _cast(exp.Literal.string(f"{'-' if found < 0 else ''}{text}"), kind)


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    return exp.cast(value, exp.DataType.build(kind, dialect=DIALECT))
