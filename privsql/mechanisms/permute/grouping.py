"""Group sorted numbers so that every group spans k values and a range of e with the least summation error."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import Field, Holes, column, fill, temp_table
from privsql.errors import UsageError
from privsql.exact import fraction_text
from privsql.model.records import as_doubles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from privsql.engine.database import Relations
    from privsql.mechanisms.permute.parameters import Extent
    from privsql.model.records import Records

# Axis -----------------------------------------------------------------------------------------------------------------
# The sensitive values on an exact axis: integers in a common unit, ranks, and the condition (k,e).
#
# All decisions compare ranks: ``reach[i]``, the largest j with u_i - u_j >= e, is found once in exact integers, and a
# set of records is fine if it has >= k distinct ranks and its least rank is <= reach[its largest rank].

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
SAFE = 2**62  # differences of integers below this fit into 64 bits
MANTISSA = 53


@dataclass(frozen=True)
class Axis:
    """The D distinct sensitive values, rising, and which sets of them are fine."""

    units: list[int]  # (D,) exact, in the column's smallest unit
    reach: Ints  # (D,) the largest j with u_i - u_j >= e, or -1
    k: int

    def is_fine(self, ranks: Ints) -> bool:
        """Return whether records with these ranks (any order, with repeats) have >= k values and max - min >= e."""
        if not len(ranks):
            return False
        return len(np.unique(ranks)) >= self.k and int(self.reach[ranks.max()]) >= int(ranks.min())

    def left_ends(self, ranks: Ints) -> Ints:
        """For rising ``ranks`` (n,): the largest s such that the records s..t are fine, for every t, or -1. O(n)."""
        if not len(ranks):
            return np.zeros(0, dtype=np.int64)
        steps = ranks[1:] != ranks[:-1]
        ends = np.flatnonzero(np.append(steps, True))
        number = np.concatenate(([0], np.cumsum(steps)))
        values = ranks[ends]
        far = np.searchsorted(values, self.reach[values], side="right") - 1
        least = np.minimum(far, np.arange(len(ends)) - self.k + 1)
        result = np.where(least >= 0, ends[np.maximum(least, 0)], -1)
        return np.minimum(result[number], np.arange(len(ranks)))

    def width(self, low: int, high: int) -> int:
        """u_high - u_low, exact."""
        return self.units[high] - self.units[low]


def make_axis(units: Sequence[int], k: int, e: int) -> Axis:
    """The axis of rising distinct integers ``units`` (D,) under (k,e), ``e`` in the same unit."""
    exact = [int(u) for u in units]
    if exact and max(abs(exact[0]), abs(exact[-1]), e) < SAFE:
        array = np.array(exact, dtype=np.int64)
        reach = np.searchsorted(array, array - e, side="right") - 1
    else:
        reach = _walk_reach(exact, e)
    return Axis(exact, np.asarray(reach, dtype=np.int64), k)


def _walk_reach(units: list[int], e: int) -> Ints:
    """``reach`` of integers of any length, by two pointers."""
    reach = np.empty(len(units), dtype=np.int64)
    j = -1
    for i, u in enumerate(units):
        while j + 1 <= i and u - units[j + 1] >= e:
            j += 1
        reach[i] = j
    return reach


def whole_units(e: Fraction, unit: Fraction) -> int:
    """The least whole number of units that is at least ``e``: differences of whole units compare with it exactly."""
    return math.ceil(e / unit)


def as_integers(values: NDArray[np.float64], e: Fraction) -> tuple[list[int], int]:
    """Finite doubles as integers in a common power of two, and ``e``, rounded up to a double, in the same unit.

    A double is the binary fraction that it is; nothing is rounded, so max - min >= e means just that.
    """
    both = np.append(values, float_above(e))
    mantissas, exponents = np.frexp(both)
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
    """The smallest double that is not below ``e``."""
    near = float(e)
    return near if Fraction(near) >= e else math.nextafter(near, math.inf)


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
    """The type of a sensitive column: ``step`` is its smallest unit, for points in time in seconds; None for floats."""

    field: Field
    step: Fraction | None
    is_time: bool

    def whole_steps(self, e: Extent) -> int:
        """E in whole steps, rounded up: widths are whole steps, so comparing with it is exact."""
        if self.step is None:
            raise ValueError("floats have no step")
        return whole_units(e.amount, self.step)

    @property
    def sql_step(self) -> Fraction:
        """Return what a width of 1 in SQL (``width_expression``) stands for."""
        if self.step is None or DECIMAL.fullmatch(self.field.type):
            return Fraction(1)
        return Fraction(1, 10**6) if self.field.type == "TIMESTAMP_S" else self.step

    def format_width(self, width: Fraction) -> str:
        """A width (or a sum of widths) in the column's unit, as text."""
        if not self.is_time:
            return fraction_text(width)
        return f"{fraction_text(width / DAY)} days" if self.field.type == "DATE" else f"{fraction_text(width)} seconds"


def find_scale(fields: Sequence[Field], e: Extent) -> Scale:
    """The scale of the sensitive column; ``UsageError`` if it is none, or ``e`` is not in its unit."""
    if len(fields) != 1:
        raise UsageError(f"columns {', '.join(f.name for f in fields)}: (k,e)-anonymity has one sensitive column")
    field = fields[0]
    column_scale = _scale_of_type(field)
    if column_scale.is_time and not e.is_time and e.amount:
        example = 'e = "30 days"'
        raise UsageError(f"mechanism.e = {e}: column {field.name!r} is {field.type}; write an interval: {example}")
    if e.is_time and not column_scale.is_time:
        raise UsageError(f"mechanism.e = {str(e)!r}: column {field.name!r} is {field.type}; write a number in its unit")
    return column_scale


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


@dataclass(frozen=True)
class MeasuredAxis:
    """The axis of a source, and a way back from its integers: ``unit`` of one integer."""

    axis: Axis
    scale: Scale
    unit: Fraction

    def format_width(self, width: int) -> str:
        """A width on the axis in the column's unit."""
        return self.scale.format_width(width * self.unit)


def measure_axis(db: Relations, source: Records, k: int, e: Extent) -> MeasuredAxis:
    """The distinct sensitive values of a prepared source on their axis; ``UsageError`` for what has no place there."""
    column_scale = find_scale(source.roles.sensitive, e)
    holes: Holes = {"domain": temp_table("domain"), "value": column(source.roles.sa_keys[0])}
    values = db.arrow(fill("permute/axis", holes))["value"].combine_chunks()
    name = column_scale.field.name
    if values.null_count:
        raise UsageError(
            f"column {name!r}: NULL is not a number; set nulls.{name} to 'suppress' (leave the records out)"
        )
    units, least, unit = on_axis(values, column_scale, e)
    return MeasuredAxis(make_axis(units, k, least), column_scale, unit)


def on_axis(values: pa.Array, column_scale: Scale, e: Extent) -> tuple[list[int], int, Fraction]:
    """Values as exact integers in a common unit, ``e`` rounded up to that, and what one of it stands for."""
    if column_scale.step is not None:
        return _as_steps(values, column_scale), column_scale.whole_steps(e), column_scale.step
    array = as_doubles(values)
    if not np.isfinite(array).all():
        name = column_scale.field.name
        raise UsageError(f"column {name!r} holds NaN or infinity, which have no distance; leave them out")
    units, least = as_integers(array, e.amount)
    at = next((i for i, u in enumerate(units) if u), None)
    return units, least, (Fraction(1) if at is None else Fraction(float(array[at])) / units[at])


def _as_steps(values: pa.Array, column_scale: Scale) -> list[int]:
    """Exact integers in steps of the type, by way of text for what does not fit into 64 bits."""
    if column_scale.is_time:
        array = values.cast(pa.int32() if column_scale.field.type == "DATE" else pa.int64())
        units: list[int] = array.to_pylist()
        infinity = 2 ** (array.type.bit_width - 1) - 1  # as the engine writes it
        if units and (units[0] <= -infinity or units[-1] >= infinity):
            raise UsageError(f"column {column_scale.field.name!r} holds infinity, which has no distance; leave it out")
        return units
    if INTEGERS.fullmatch(column_scale.field.type):
        return [int(value) for value in values.to_pylist()]
    step = column_scale.step or Fraction(1)
    return [int(Fraction(value) / step) for value in values.to_pylist()]


def width_expression(field: Field, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """High - low in SQL, exact, in steps of the type; for floats as the engine rounds it."""
    if field.type in FLOATS:
        return exp.Sub(this=exp.cast(high, "DOUBLE"), expression=exp.cast(low, "DOUBLE"))
    decimal = DECIMAL.fullmatch(field.type)
    kind = f"DECIMAL(38,{decimal[2]})" if decimal else "HUGEINT"
    if not decimal and not INTEGERS.fullmatch(field.type):
        low, high = (_time_as_integer(field, end) for end in (low, high))
    return exp.Sub(this=_cast(high, kind), expression=_cast(low, kind))


def _time_as_integer(field: Field, moment: exp.Expr) -> exp.Expr:
    """A point in time as an integer: days, or the type's fractions of a second."""
    if field.type == "DATE":
        epoch = exp.cast(exp.Literal.string("1970-01-01"), "DATE")
        return exp.paren(exp.Sub(this=moment.copy(), expression=epoch))
    ticks = {"TIMESTAMP_NS": "epoch_ns", "TIMESTAMP_MS": "epoch_ms"}.get(field.type, "epoch_us")
    return exp.Anonymous(this=ticks, expressions=[moment.copy()])


def narrow_condition(field: Field, e: Extent, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """Return whether high - low < e, in exact SQL.

    Doubles: with s = fl(high - low), s <> e decides, for rounding is monotone; if s = e, the error of the
    subtraction, which is itself a double (Dekker), does.
    """
    column_scale = _scale_of_type(field)
    if column_scale.step is None:
        return _narrow_doubles(e, exp.cast(low, "DOUBLE"), exp.cast(high, "DOUBLE"))
    steps, decimal = column_scale.whole_steps(e), DECIMAL.fullmatch(field.type)  # as ``width_expression`` writes them
    if decimal:
        least = _cast(exp.Literal.string(fraction_text(steps * column_scale.step)), f"DECIMAL(38,{decimal[2]})")
    else:
        text = str(steps * 10**6 if field.type == "TIMESTAMP_S" else steps)
        least = _cast(exp.Literal.string(text), "HUGEINT")
    return exp.LT(this=width_expression(field, low, high), expression=least)


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


# Sweep ----------------------------------------------------------------------------------------------------------------
# The program of Zhang et al. (ICDE 2007) as one sweep with a moving minimum.
#
# f[t] = hi_t + min over feasible s of (f[s-1] - lo_s): the least sum of (max - min) that covers the first elements. The
# conditions are monotone in the left end, so every s enters the minimum once. Among the optima the most groups: a
# group's cost is counted in units of T + 1 and each group takes one off.


def cheapest_segments(
    low: Sequence[int], high: Sequence[int], reach: Sequence[int], alone: Sequence[bool] | None = None
) -> list[int] | None:
    """Left ends of the cheapest segments over T elements, rising, or None if no partition is feasible. O(T).

    ``low``, ``high`` (T,): exact ends of every element, both rising; ``reach`` (T,), non-decreasing: the largest left
    end of a feasible segment that ends here, or -1; ``alone``: whether the element may also be a segment by itself.
    """
    if not low:
        return []
    scale, zero = len(low) + 1, low[0]
    infinite = (high[-1] - zero + 2) * scale
    cost, back = [0], []
    best, arg, entered = infinite, -1, 0
    low, high = ([(u - zero) * scale for u in ends] for ends in (low, high))
    singles = alone or [False] * len(low)
    for t, (end, least, single) in enumerate(zip(high, reach, singles, strict=True)):
        while entered <= least:
            if cost[entered] < infinite and (result := cost[entered] - low[entered]) < best:
                best, arg = result, entered
            entered += 1
        total, left = (best + end - 1, arg) if arg >= 0 else (infinite, -1)
        if single and cost[t] < infinite and (lone := cost[t] + end - low[t] - 1) < total:
            total, left = lone, t
        cost.append(total)
        back.append(left)
    return trace_left_ends(back)


def trace_left_ends(back: Sequence[int]) -> list[int] | None:
    """Left ends of the segments, rising, from ``back`` (T,): that of the best segment up to each element, or -1."""
    result: list[int] = []
    end = len(back)
    while end:
        end = back[end - 1]
        if end < 0:
            return None
        result.append(end)
    return result[::-1]


def static_optimum(axis: Axis) -> list[int] | None:
    """The ranks at which the groups of the static optimum begin, or None if even all records together are not fine.

    Minimises the sum over groups of (max - min) over all partitions into fine sets, of any shape: overlapping groups
    cost no less than their union, and a cut inside a run of equal values saves nothing.
    """
    ranks = np.arange(len(axis.units), dtype=np.int64)
    return cheapest_segments(axis.units, axis.units, axis.left_ends(ranks).tolist())


# Restraint ------------------------------------------------------------------------------------------------------------
# Which joins of old groups with new records are not worth their saving.
#
# A join is one segment of ``nested``: old groups and new records become one group. It saves part of the sum of (max -
# min), but it hides the values of all its records in a wider range, and a few new records can do that to very many old
# ones. Apart, the old groups stay and the new records make the groups of their own static optimum. By the width of a
# record, that of its group, summed over records:
#
# * a join is kept if it widens its records by at most three quarters;
# * of the others, those that save most for the width they add are kept, while they widen the release as a whole by at
#   most the share of new records in it, so that many small releases do not add up.

LOCAL = Fraction(7, 4)  # a join may widen its own records by this factor


@dataclass(frozen=True)
class Spans:
    """G groups of the last release: ranks of their ends and numbers of records."""

    low: Ints
    high: Ints
    records: Ints


@dataclass(frozen=True)
class Arrivals:
    """N distinct values among the new records: rising ranks and numbers of records."""

    ranks: Ints
    records: Ints


@dataclass(frozen=True)
class Join:
    """A segment: its old groups and new values, and where groups of the new values alone would begin."""

    olds: slice
    news: slice
    starts: list[int]
    joined: int  # width summed over records, as one group
    separate_width: int  # the same with the old groups as they are
    saved: int  # sum of (max - min) that the join saves

    @property
    def price(self) -> Fraction:
        """Width added for every unit saved."""
        return Fraction(self.joined - self.separate_width, self.saved) if self.saved > 0 else Fraction(self.joined)


def find_costly_joins(
    axis: Axis, old: Spans, new: Arrivals, olds: Sequence[slice], news: Sequence[slice]
) -> Iterator[Join]:
    """The joins that are not kept; ``olds`` and ``news`` are the old groups and new values of every segment."""
    costly, whole = [], 0
    for held, met in zip(olds, news, strict=True):
        old_width = _old_width(axis, old, held)
        if held.start == held.stop or met.start == met.stop:
            whole += old_width
            continue
        joined = _joined_width(axis, old, new, held, met)
        if joined <= LOCAL * old_width:
            whole += joined
            continue
        join = _make_join(axis, old, new, held, met)
        whole += join.separate_width
        if join.joined > LOCAL * join.separate_width:
            costly.append(join)
    arrived, stayed = int(new.records.sum()), int(old.records.sum())
    budget = Fraction(whole * arrived, arrived + stayed)
    for join in sorted(costly, key=lambda join: join.price):
        budget -= join.joined - join.separate_width
        if budget < 0:
            yield join


def _old_width(axis: Axis, old: Spans, held: slice) -> int:
    parts = (part[held].tolist() for part in (old.low, old.high, old.records))
    return sum(axis.width(a, b) * records for a, b, records in zip(*parts, strict=True))


def _joined_width(axis: Axis, old: Spans, new: Arrivals, held: slice, met: slice) -> int:
    low = min(int(old.low[held.start]), int(new.ranks[met.start]))
    high = max(int(old.high[held.stop - 1]), int(new.ranks[met.stop - 1]))
    return axis.width(low, high) * int(old.records[held].sum() + new.records[met].sum())


def _make_join(axis: Axis, old: Spans, new: Arrivals, held: slice, met: slice) -> Join:
    ranks = new.ranks[met]
    units = [axis.units[rank] for rank in ranks.tolist()]
    starts = cheapest_segments(units, units, axis.left_ends(ranks).tolist()) or []
    before = np.concatenate(([0], np.cumsum(new.records[met]))).tolist()
    parts = [(units[b - 1] - units[a], before[b] - before[a]) for a, b in pairwise([*starts, len(units)])]
    joined = _joined_width(axis, old, new, held, met)
    records = int(old.records[held].sum()) + before[-1]
    widths = [axis.width(a, b) for a, b in zip(old.low[held].tolist(), old.high[held].tolist(), strict=True)]
    return Join(
        held,
        met,
        starts,
        joined,
        _old_width(axis, old, held) + sum(width * number for width, number in parts),
        sum(widths) + sum(width for width, _ in parts) - joined // records,
    )
