"""From a sensitive column to the exact axis: its type, its unit, and its distinct values as integers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import column, fill, temp
from privsql.errors import UsageError
from privsql.exact import text
from privsql.mechanisms.permute.axis import axis, doubles, float_above, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.mechanisms.permute.axis import Axis
    from privsql.mechanisms.permute.parameters import Extent
    from privsql.model.records import Records

INTEGERS = re.compile(r"U?(TINY|SMALL|BIG)INT|U?INTEGER")
DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
FLOATS = ("FLOAT", "DOUBLE")
DAY = 86400
STEPS = {
    "DATE": Fraction(DAY), "TIMESTAMP": Fraction(1, 10**6), "TIMESTAMP WITH TIME ZONE": Fraction(1, 10**6),
    "TIMESTAMP_S": Fraction(1), "TIMESTAMP_MS": Fraction(1, 10**3), "TIMESTAMP_NS": Fraction(1, 10**9),
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """The type of a sensitive column: ``step`` is its smallest unit, for points in time in seconds; None for floats."""

    field: Field
    step: Fraction | None
    is_time: bool

    def least(self, e: Extent) -> int:
        """E in whole steps, rounded up: widths are whole steps, so comparing with it is exact."""
        if self.step is None:
            raise ValueError("floats have no step")
        return whole(e.amount, self.step)

    @property
    def sql_step(self) -> Fraction:
        """What a width of 1 in SQL (``width``) stands for."""
        if self.step is None or DECIMAL.fullmatch(self.field.type):
            return Fraction(1)
        return Fraction(1, 10**6) if self.field.type == "TIMESTAMP_S" else self.step

    def shown(self, width: Fraction) -> str:
        """A width (or a sum of widths) in the column's unit, as text."""
        if not self.is_time:
            return text(width)
        return f"{text(width / DAY)} days" if self.field.type == "DATE" else f"{text(width)} seconds"


def scale(fields: Sequence[Field], e: Extent) -> Scale:
    """The scale of the sensitive column; ``UsageError`` if it is none, or ``e`` is not in its unit."""
    if len(fields) != 1:
        raise UsageError(f"columns {', '.join(f.name for f in fields)}: (k,e)-anonymity has one sensitive column")
    field = fields[0]
    found = _scale(field)
    if found.is_time and not e.is_time and e.amount:
        example = 'e = "30 days"'
        raise UsageError(f"mechanism.e = {e}: column {field.name!r} is {field.type}; write an interval: {example}")
    if e.is_time and not found.is_time:
        raise UsageError(f"mechanism.e = {str(e)!r}: column {field.name!r} is {field.type}; write a number in its unit")
    return found


def _scale(field: Field) -> Scale:
    if INTEGERS.fullmatch(field.type):
        return Scale(field, Fraction(1), is_time=False)
    if field.type in FLOATS:
        return Scale(field, None, is_time=False)
    if decimal := DECIMAL.fullmatch(field.type):
        return Scale(field, Fraction(1, 10 ** int(decimal[2])), is_time=False)
    if field.type in STEPS:
        return Scale(field, STEPS[field.type], is_time=True)
    raise UsageError(
        f"column {field.name!r} is {field.type}; (k,e)-anonymity needs a number, a date or a timestamp; "
        "cast it in source.query"
    )


@dataclass(frozen=True)
class Measured:
    """The axis of a source, and a way back from its integers: ``unit`` of one integer."""

    axis: Axis
    scale: Scale
    unit: Fraction

    def shown(self, width: int) -> str:
        """A width on the axis in the column's unit."""
        return self.scale.shown(width * self.unit)


def measured(db: Relations, source: Records, k: int, e: Extent) -> Measured:
    """The distinct sensitive values of a prepared source on their axis; ``UsageError`` for what has no place there."""
    found = scale(source.roles.sensitive, e)
    key = source.roles.sa_keys[0]
    values = db.arrow(fill("permute/axis", {"domain": temp("domain"), "value": column(key)}))["value"].combine_chunks()
    name = found.field.name
    if values.null_count:
        raise UsageError(f"column {name!r}: NULL is no number; set nulls.{name} to 'suppress' (leave the records out)")
    units, least, unit = on_axis(values, found, e)
    return Measured(axis(units, k, least), found, unit)


def on_axis(values: pa.Array, found: Scale, e: Extent) -> tuple[list[int], int, Fraction]:
    """Values as exact integers in a common unit, ``e`` rounded up to that, and what one of it stands for."""
    if found.step is not None:
        return _integers(values, found), found.least(e), found.step
    array = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    if not np.isfinite(array).all():
        name = found.field.name
        raise UsageError(f"column {name!r} holds NaN or infinity, which have no place on an axis; leave them out")
    units, least = doubles(array, e.amount)
    return units, least, _unit(array, units)


def _integers(values: pa.Array, found: Scale) -> list[int]:
    """Exact integers in steps of the type, by way of text for what does not fit into 64 bits."""
    if found.is_time:
        array = values.cast(pa.int32() if found.field.type == "DATE" else pa.int64())
        units: list[int] = array.to_pylist()
        if units and (units[0] <= -_endless(array) or units[-1] >= _endless(array)):
            raise UsageError(f"column {found.field.name!r} holds infinity, which has no place on an axis; leave it out")
        return units
    if INTEGERS.fullmatch(found.field.type):
        return [int(value) for value in values.to_pylist()]
    step = found.step or Fraction(1)
    return [int(Fraction(value) / step) for value in values.to_pylist()]


def _endless(array: pa.Array) -> int:
    """The integer by which the engine writes infinity."""
    return int(2 ** (array.type.bit_width - 1) - 1)


def _unit(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], units: list[int]) -> Fraction:
    """What one integer of ``doubles`` stands for."""
    at = next((i for i, u in enumerate(units) if u), None)
    return Fraction(1) if at is None else Fraction(float(values[at])) / units[at]


def width(field: Field, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """High - low in SQL, exact, in steps of the type; for floats as the engine rounds it."""
    if field.type in FLOATS:
        return exp.Sub(this=exp.cast(high, "DOUBLE"), expression=exp.cast(low, "DOUBLE"))
    if decimal := DECIMAL.fullmatch(field.type):
        kind = f"DECIMAL(38,{decimal[2]})"
    elif INTEGERS.fullmatch(field.type):
        kind = "HUGEINT"
    else:
        kind = "HUGEINT"
        low, high = (_ticks(field, end) for end in (low, high))
    return exp.Sub(this=_cast(high, kind), expression=_cast(low, kind))


def _ticks(field: Field, moment: exp.Expr) -> exp.Expr:
    """A point in time as an integer: days, or the type's fractions of a second."""
    if field.type == "DATE":
        epoch = exp.cast(exp.Literal.string("1970-01-01"), "DATE")
        return exp.paren(exp.Sub(this=moment.copy(), expression=epoch))
    ticks = {"TIMESTAMP_NS": "epoch_ns", "TIMESTAMP_MS": "epoch_ms"}.get(field.type, "epoch_us")
    return exp.Anonymous(this=ticks, expressions=[moment.copy()])


def narrow(field: Field, e: Extent, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """Whether high - low < e, in exact SQL.

    Doubles: with s = fl(high - low), s <> e decides, for rounding is monotone; if s = e, the error of the
    subtraction, which is itself a double (Dekker), does.
    """
    found = _scale(field)
    if found.step is None:
        return _narrow_doubles(e, exp.cast(low, "DOUBLE"), exp.cast(high, "DOUBLE"))
    least = _cast(exp.Literal.string(str(_least_text(found, e))), _kind(field))
    return exp.LT(this=width(field, low, high), expression=least)


def _kind(field: Field) -> str:
    decimal = DECIMAL.fullmatch(field.type)
    return f"DECIMAL(38,{decimal[2]})" if decimal else "HUGEINT"


def _least_text(found: Scale, e: Extent) -> str:
    """The least width as the type of ``width`` writes it."""
    steps = found.least(e)
    if found.field.type == "TIMESTAMP_S":
        return str(steps * 10**6)
    return text(steps * (found.step or Fraction(1))) if DECIMAL.fullmatch(found.field.type) else str(steps)


def _narrow_doubles(e: Extent, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    least = _cast(exp.Literal.string(repr(float_above(e.amount))), "DOUBLE")
    rounded = exp.paren(exp.Sub(this=high.copy(), expression=low.copy()))
    back = exp.paren(exp.Sub(this=rounded.copy(), expression=high.copy()))
    first = exp.Sub(this=high.copy(), expression=exp.paren(exp.Sub(this=rounded.copy(), expression=back.copy())))
    second = exp.Add(this=low.copy(), expression=back.copy())
    error = exp.Sub(this=exp.paren(first), expression=exp.paren(second))
    return exp.or_(
        exp.LT(this=rounded.copy(), expression=least),
        exp.and_(
            exp.EQ(this=rounded.copy(), expression=least.copy()), exp.LT(this=error, expression=exp.Literal.number(0))
        ),
    )


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    return exp.cast(value, exp.DataType.build(kind, dialect="duckdb"))
