"""Convert a sensitive column's values to exact integers, and write exact SQL for differences of values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.model.arrays import as_doubles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.engine.sqlfiles import Field
    from privsql.mechanisms.permute.parameters import Extent

# Scale ----------------------------------------------------------------------------------------------------------------

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
    """The type of a sensitive column of numbers, dates or timestamps.

    Attributes:
        field: The column.
        step: The smallest difference between values, in seconds for dates and timestamps; None for floats.
        is_time: Whether values are dates or timestamps.
    """

    field: Field
    step: Fraction | None
    is_time: bool

    @property
    def sql_step(self) -> Fraction:
        """Return the size of one step of ``width_expression`` (differences of values in SQL) in the column's unit.

        The unit is a second for dates and timestamps.
        """
        if self.step is None or DECIMAL.fullmatch(self.field.type):
            return Fraction(1)
        return Fraction(1, 10**6) if self.field.type == "TIMESTAMP_S" else self.step

    def format_width(self, width: Fraction) -> str:
        """Return a width, or a sum of widths, as text with the column's unit."""
        if not self.is_time:
            return fraction_text(width)
        return f"{fraction_text(width / DAY)} days" if self.field.type == "DATE" else f"{fraction_text(width)} seconds"


def find_scale(fields: Sequence[Field], e: Extent) -> Scale:
    """Return the type of the sensitive column with its smallest step, so that ranges of groups can be compared with e.

    Args:
        fields: The sensitive columns.
        e: The least range of values that a group must have.

    Raises:
        UsageError: The type is neither a number nor a date, ``e`` is not in its unit, or there are several columns.
    """
    if len(fields) != 1:
        raise UsageError(f"columns {', '.join(f.name for f in fields)}: (k,e)-anonymity has one sensitive column")
    field = fields[0]
    scale = _scale_of_type(field)
    if scale.is_time and not e.is_time and e.amount:
        example = 'e = "30 days"'
        raise UsageError(f"mechanism.e = {e}: column {field.name!r} is {field.type}; write an interval: {example}")
    if e.is_time and not scale.is_time:
        raise UsageError(f"mechanism.e = {str(e)!r}: column {field.name!r} is {field.type}; write a number in its unit")
    return scale


def _scale_of_type(field: Field) -> Scale:
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


# Exact integers -------------------------------------------------------------------------------------------------------

MANTISSA = 53


def on_axis(values: pa.Array, scale: Scale, e: Extent) -> tuple[list[int], int, Fraction]:
    """Convert sensitive values to exact integers, as multiples of a common unit, so that ranges are computed exactly.

    Args:
        values: The values, rising.
        scale: The type of the sensitive column.
        e: The least range of values that a group must have.

    Returns:
        (the integers, ``e`` as a multiple of the unit, rounded up, the size of the unit as a number of the column).

    Raises:
        UsageError: A value is NaN or infinite.
    """
    name = scale.field.name
    if scale.step is None:
        array = as_doubles(values)
        if not np.isfinite(array).all():
            raise UsageError(f"column {name!r} holds NaN or infinity, which have no distance; leave them out")
        units, least = as_integers(array, e.amount)
        at = next((i for i, u in enumerate(units) if u), None)
        return units, least, (Fraction(1) if at is None else Fraction(float(array[at])) / units[at])
    if scale.is_time:
        moments = values.cast(pa.int32() if scale.field.type == "DATE" else pa.int64())
        units = moments.to_pylist()
        infinity = 2 ** (moments.type.bit_width - 1) - 1  # how the engine stores infinity
        if units and (units[0] <= -infinity or units[-1] >= infinity):
            raise UsageError(f"column {name!r} holds infinity, which has no distance; leave it out")
    elif INTEGERS.fullmatch(scale.field.type):
        units = [int(value) for value in values.to_pylist()]
    else:  # decimals, which may not fit into 64 bits
        units = [int(Fraction(value) / scale.step) for value in values.to_pylist()]
    return units, math.ceil(e.amount / scale.step), scale.step  # widths are multiples of the step


def as_integers(values: NDArray[np.float64], e: Fraction) -> tuple[list[int], int]:
    """Convert finite doubles to exact integers, as multiples of a common unit, which is a power of two.

    Doubles are binary fractions, so they are not rounded. ``e`` is rounded up to a double first.

    Returns:
        (the integers, ``e`` as a multiple of the same unit).
    """
    mantissas, exponents = np.frexp(np.append(values, float_above(e)))
    whole_mantissas = np.ldexp(mantissas, MANTISSA).astype(np.int64)
    shifts = exponents.astype(np.int64) - MANTISSA
    lowest = whole_mantissas & -whole_mantissas
    zeros = np.asarray(np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1)
    used = whole_mantissas != 0
    least = int((shifts + zeros)[used].min()) if used.any() else 0
    result = [
        m << s if s >= 0 else m >> -s  # the bits shifted out are zeros
        for m, s in zip(whole_mantissas.tolist(), (shifts - least).tolist(), strict=True)
    ]
    return result[:-1], result[-1]


def float_above(e: Fraction) -> float:
    """Return the smallest double that is at least ``e``."""
    near = float(e)
    return near if Fraction(near) >= e else math.nextafter(near, math.inf)


# SQL ------------------------------------------------------------------------------------------------------------------


def width_expression(field: Field, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """Return SQL for high - low, to compute ranges of groups.

    It is exact, in whole steps of the column's type such as days; differences of floats are rounded by the engine.
    """
    if field.type in FLOATS:
        return exp.Sub(this=exp.cast(high, "DOUBLE"), expression=exp.cast(low, "DOUBLE"))
    decimal = DECIMAL.fullmatch(field.type)
    kind = f"DECIMAL(38,{decimal[2]})" if decimal else "HUGEINT"
    if not decimal and not INTEGERS.fullmatch(field.type):
        low, high = (_time_as_integer(field, end) for end in (low, high))
    return exp.Sub(this=_cast(high, kind), expression=_cast(low, kind))


def _time_as_integer(field: Field, moment: exp.Expr) -> exp.Expr:
    """Return SQL for a date as days, or for a timestamp as fractions of a second, since 1970."""
    if field.type == "DATE":
        epoch = exp.cast(exp.Literal.string("1970-01-01"), "DATE")
        return exp.paren(exp.Sub(this=moment.copy(), expression=epoch))
    ticks = {"TIMESTAMP_NS": "epoch_ns", "TIMESTAMP_MS": "epoch_ms"}.get(field.type, "epoch_us")
    return exp.Anonymous(this=ticks, expressions=[moment.copy()])


def narrow_condition(field: Field, e: Extent, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """Return SQL for the condition high - low < e, by which groups with too small a range are found. It is exact.

    For doubles, let s be high - low as it is rounded. If s differs from e, comparing s decides, because rounding is
    monotone. If s = e, the sign of the rounding error decides; that error is itself a double (Dekker).
    """
    scale = _scale_of_type(field)
    if scale.step is None:
        low, high = exp.cast(low, "DOUBLE"), exp.cast(high, "DOUBLE")
        least = _cast(exp.Literal.string(repr(float_above(e.amount))), "DOUBLE")
        rounded = exp.paren(exp.Sub(this=high.copy(), expression=low.copy()))
        back = exp.paren(exp.Sub(this=rounded.copy(), expression=high.copy()))
        first = exp.Sub(this=high.copy(), expression=exp.paren(exp.Sub(this=rounded.copy(), expression=back.copy())))
        second = exp.Add(this=low.copy(), expression=back.copy())
        error = exp.Sub(this=exp.paren(first), expression=exp.paren(second))
        is_less = exp.LT(this=rounded.copy(), expression=least)
        is_equal = exp.EQ(this=rounded.copy(), expression=least.copy())
        return exp.or_(is_less, exp.and_(is_equal, exp.LT(this=error, expression=exp.Literal.number(0))))
    # Widths are whole steps, so they are compared with e rounded up to a whole step.
    steps, decimal = math.ceil(e.amount / scale.step), DECIMAL.fullmatch(field.type)
    if decimal:
        least = _cast(exp.Literal.string(fraction_text(steps * scale.step)), f"DECIMAL(38,{decimal[2]})")
    else:
        text = str(steps * 10**6 if field.type == "TIMESTAMP_S" else steps)
        least = _cast(exp.Literal.string(text), "HUGEINT")
    return exp.LT(this=width_expression(field, low, high), expression=least)


def _cast(value: exp.Expr, kind: str) -> exp.Expr:
    return exp.cast(value, exp.DataType.build(kind, dialect="duckdb"))
