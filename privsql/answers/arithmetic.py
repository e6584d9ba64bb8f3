"""Arithmetic of aggregate functions: what errors and bounds of the parts say of the whole.

For f(a) with slopes d_j = df/da_j at the estimates (the delta method), correlations r_jk and signs s_j of the slopes,

    Var f = sum_jk r_jk d_j d_k se_j se_k,
    low = f - (sum_jk r_jk s_j s_k l_j l_k)^(1/2),   l_j = |d_j| (a_j - low_j),  or |d_j| (high_j - a_j) where s_j < 0,

and likewise above (MOVER: Zou & Donner 2008), which keeps intervals lopsided that are. Of two parts whose errors cancel
(r s_1 s_2 < 0), a part |r| moves together, both below their estimates or both above: with l and u how far f goes below
and above by each,

    low = f - ((1 - |r|) (l_1^2 + l_2^2) + |r| max(l_1 - u_2, l_2 - u_1, 0)^2)^(1/2).

What is not known of a correlation is taken as the worst. Where all parts have certain bounds, those of f are certain:
interval arithmetic. A share, whose one part counts some of the records of the other, stays among the shares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.functions import short
from privsql.errors import UsageError
from privsql.model.estimate import are_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Range = tuple[float, float]
NOWHERE = (-math.inf, math.inf)
NUMBERS = {exp.DataType.Type[name] for name in ("DOUBLE", "FLOAT", "DECIMAL")}


@dataclass(frozen=True)
class Figures:
    """What is known of an aggregate function for a group; ``high`` counts ``missing`` records more than the release.

    ``null``: whether it may be NULL, since there may be no record that it is of.
    """

    estimate: float
    std_error: float | None
    low: float | None
    high: float | None
    certain: bool = False
    missing: int = 0
    null: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it is the true answer."""
        return self.std_error == 0 and are_equal(self.low, self.high)

    @property
    def range(self) -> Range:
        """Where it lies, as far as its bounds are sure."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    @property
    def sides(self) -> Range:
        """How far it reaches below and above the estimate, among those who are in the release."""
        low, high = self.low or 0.0, (self.high or 0.0) - self.missing
        return max(self.estimate - low, 0.0), max(high - self.estimate, 0.0)


def check(expression: exp.Expr, written: str) -> None:
    """``UsageError`` for what has no known error: all but + - * /, ROUND, NULLIF and COALESCE with constants."""
    found = reason(expression)
    if found is not None:
        raise UsageError(
            f"{written}: no interval is known of {short(found)}; + - * / and ROUND of aggregate functions work"
        )


def reason(expression: exp.Expr) -> exp.Expr | None:
    """The part whose error is not known; None where all are."""
    rest = [expression]
    while rest:
        node = rest.pop()
        parts = _parts(node)
        if parts is None:
            return node
        rest += parts
    return None


def _parts(node: exp.Expr) -> list[exp.Expr] | None:
    """What a node's value comes from; None for one that is not understood."""
    found: list[exp.Expr] | None = None
    match node:
        case exp.Column():
            found = [] if node.name.startswith("a_") else None
        case exp.Literal():
            found = None if node.is_string else []
        case exp.Null():
            found = []
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            found = [node.this, node.expression]
        case exp.Paren() | exp.Neg():
            found = [node.this]
        case exp.Cast():
            found = [node.this] if node.to.this in NUMBERS else None
        case exp.Coalesce() | exp.Nullif() | exp.Round():
            found = [node.this] if all(isinstance(one, exp.Literal) for one in _others(node)) else None
        case exp.Case():
            found = _unless(node)
    return found


def _others(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a function but for the first."""
    return [part for part in node.iter_expressions() if part is not node.this]


def _unless(node: exp.Case) -> list[exp.Expr] | None:
    """What is behind CASE WHEN .. THEN NULL ELSE x END, which is x wherever it is known."""
    branches, default = node.args["ifs"], node.args.get("default")
    plain = node.this is None and len(branches) == 1 and isinstance(branches[0].args["true"], exp.Null)
    return [default] if plain and default is not None else None


def slopes(node: exp.Expr, values: Mapping[int, float]) -> tuple[float, dict[int, float]]:
    """The value of an expression and its slopes in the aggregates, by their numbers."""
    if isinstance(node, exp.Column):
        number = int(node.name[2:])
        return values[number], {number: 1.0}
    if isinstance(node, exp.Literal):
        return float(node.this), {}
    found = [slopes(part, values) for part in _parts(node) or ()]
    if len(found) == 1:
        sign = -1.0 if isinstance(node, exp.Neg) else 1.0
        return sign * found[0][0], {j: sign * d for j, d in found[0][1].items()}
    (left, of_left), (right, of_right) = found
    value, by_left, by_right = _operation(node, left, right)
    return value, {j: by_left * of_left.get(j, 0.0) + by_right * of_right.get(j, 0.0) for j in of_left | of_right}


def _operation(node: exp.Expr, left: float, right: float) -> tuple[float, float, float]:
    """Value and slopes in both operands."""
    if isinstance(node, exp.Add):
        return left + right, 1.0, 1.0
    if isinstance(node, exp.Sub):
        return left - right, 1.0, -1.0
    if isinstance(node, exp.Mul):
        return left * right, right, left
    if not right:
        return math.nan, math.nan, math.nan
    return left / right, 1 / right, -left / right**2


def ranges(node: exp.Expr, values: Mapping[int, Range]) -> Range:
    """The range of an expression over all values of the aggregates in their ranges."""
    if isinstance(node, exp.Column):
        return values[int(node.name[2:])]
    if isinstance(node, exp.Literal):
        return float(node.this), float(node.this)
    if isinstance(node, exp.Null):
        return NOWHERE
    found = [ranges(part, values) for part in _parts(node) or ()]
    if len(found) == 1:
        low, high = found[0]
        return (-high, -low) if isinstance(node, exp.Neg) else (low, high)
    return _joined(node, *found)


def _joined(node: exp.Expr, left: Range, right: Range) -> Range:
    if isinstance(node, exp.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(node, exp.Sub):
        return left[0] - right[1], left[1] - right[0]
    ends = [_operation(node, a, b)[0] for a in left for b in right]
    unbounded = isinstance(node, exp.Div) and right[0] <= 0 <= right[1]
    return NOWHERE if unbounded or any(map(math.isnan, ends)) else (min(ends), max(ends))


def may_be_null(node: exp.Expr, parts: Mapping[int, Figures]) -> bool:
    """Whether an expression is NULL, or what COALESCE puts there, for some values of the aggregates in their ranges."""
    if isinstance(node, exp.Column):
        return parts[int(node.name[2:])].null
    inner = _parts(node)
    if inner is None or isinstance(node, exp.Null):
        return True
    return _makes_null(node, parts) or any(may_be_null(part, parts) for part in inner)


def _makes_null(node: exp.Expr, parts: Mapping[int, Figures]) -> bool:
    """Whether a node can make NULL of what is none: by a divisor of 0, NULLIF, or the condition that a count is 0."""
    known = {j: one.range for j, one in parts.items()}
    if isinstance(node, exp.Div | exp.Nullif):
        divides = isinstance(node, exp.Div)
        low, high = ranges(node.expression if divides else node.this, known)
        return low <= (0.0 if divides else float(node.expression.name)) <= high
    if not isinstance(node, exp.Case):
        return False
    condition = node.args["ifs"][0].this.unnest()
    if not isinstance(condition, exp.EQ) or not isinstance(condition.this, exp.Column):
        return True
    return condition.expression != exp.Literal.number(0) or known[int(condition.this.name[2:])][0] <= 0


Term = tuple[int, float, float, float]  # of an aggregate: its number, the slope's sign, and how far it goes either way


def spread(terms: Iterable[Term], correlation: Callable[[int, int], float | None]) -> float:
    """How far f goes: the root of the sum of r_jk s_j s_k t_j t_k over terms (j, s_j, t_j >= 0, t_j the other way)."""
    some = [term for term in terms if term[2] or term[3]]
    if len(some) == 2:
        (j, sign, one, back), (k, other, two, forth) = some
        known = correlation(j, k)
        r = 1.0 if known is None else sign * other * known
        if r < 0:
            return math.sqrt((1 + r) * (one**2 + two**2) - r * max(one - forth, two - back, 0.0) ** 2)
    total = 0.0
    for j, sign, size, _ in some:
        for k, other, length, _ in some:
            known = 1.0 if j == k else correlation(j, k)
            total += size * length * (1.0 if known is None else sign * other * known)
    return math.sqrt(max(total, 0.0))


def figures(
    expression: exp.Expr,
    value: float,
    parts: Mapping[int, Figures],
    correlation: Callable[[int, int], float | None],
    among: tuple[int, int] | None = None,
) -> tuple[float | None, float | None, float | None]:
    """Standard error, low and high of an expression whose ``value`` at the estimates is known; None for what is not.

    ``among``: the first of these aggregates counts some of the records that the second counts.
    """
    unknown = not math.isfinite(value) or any(one.low is None or one.high is None for one in parts.values())
    if math.isfinite(value) and all(one.is_exact for one in parts.values()):
        return 0.0, value, value
    if unknown:
        return None, None, None
    if len(parts) == 1 and _is_linear(expression, *parts):
        return _along(expression, *parts.items())
    if all(one.certain for one in parts.values()):
        low, high = ranges(expression, {j: one.range for j, one in parts.items()})
        return None, low if math.isfinite(low) else None, high if math.isfinite(high) else None
    error, below, above = _delta(expression, value, parts, correlation)
    limits = shares(expression, among) if among else None
    if limits is None or below is None or above is None:
        return error, below, above
    return error, min(max(below, limits[0]), value), max(min(above, limits[1]), value)


def _is_linear(expression: exp.Expr, number: int) -> bool:
    """Whether an expression is linear in the one aggregate that it is of."""
    values = [slopes(expression, {number: at})[0] for at in (1.0, 2.0, 4.0)]
    return all(map(math.isfinite, values)) and math.isclose(values[2] - values[1], 2 * (values[1] - values[0]))


def _along(expression: exp.Expr, part: tuple[int, Figures]) -> tuple[float | None, float, float]:
    """Standard error, low and high of what is linear in one aggregate: as far as that goes, without rounding."""
    number, one = part
    ends = [slopes(expression, {number: end})[0] for end in (one.low or 0.0, one.high or 0.0)]
    slope = slopes(expression, {number: one.estimate})[1].get(number, 0.0)
    error = 0.0 if not slope else None if one.std_error is None else abs(slope) * one.std_error
    return error, min(ends), max(ends)


def shares(expression: exp.Expr, among: tuple[int, int]) -> Range | None:
    """The range of an expression that is of a share alone, of a part of the second aggregate in it; None for others.

    One that names each of them once is a quotient of linear functions of either: it rises or falls with the share.
    """
    part, whole = among
    named = [node.name for node in expression.find_all(exp.Column)]
    if sorted(named) != sorted((f"a_{part}", f"a_{whole}")):
        return None
    (once, _), (twice, _) = (slopes(expression, {part: 0.3 * size, whole: 1.0 * size}) for size in (1, 2))
    ends = [slopes(expression, {part: share, whole: 1.0})[0] for share in (0.0, 0.5, 1.0)]
    if not all(map(math.isfinite, (once, twice, *ends))) or not math.isclose(once, twice, rel_tol=1e-9, abs_tol=1e-12):
        return None
    low, high = min(ends[0], ends[2]), max(ends[0], ends[2])
    return (low, high) if low <= ends[1] <= high else None


def _delta(
    expression: exp.Expr,
    value: float,
    parts: Mapping[int, Figures],
    correlation: Callable[[int, int], float | None],
) -> tuple[float | None, float | None, float | None]:
    """The same by the delta method; whoever is not in the release could count in one figure and not in another."""
    _, by = slopes(expression, {j: one.estimate for j, one in parts.items()})
    if not all(map(math.isfinite, by.values())):
        return None, None, None
    down, up, errors = [], [], []
    for j, slope in by.items():
        sign, size = math.copysign(1.0, slope), abs(slope)
        first, last = (size * side for side in (parts[j].sides if slope > 0 else parts[j].sides[::-1]))
        down.append((j, sign, first, last))
        up.append((j, sign, last, first))
        own = size * (parts[j].std_error or 0.0)
        errors.append((j, sign, own, own))
    known = all(parts[j].std_error is not None for j in by)
    error = spread(errors, correlation) if known else None
    less = sum(-slope * parts[j].missing for j, slope in by.items() if slope < 0)
    more = sum(slope * parts[j].missing for j, slope in by.items() if slope > 0)
    return error, value - spread(down, correlation) - less, value + spread(up, correlation) + more
