"""Arithmetic of aggregate functions: what errors and bounds of the parts say of the whole.

For f(a) with slopes d_j = df/da_j at the estimates (the delta method), correlations r_jk and signs s_j of the slopes,

    Var f = sum_jk r_jk d_j d_k se_j se_k,
    low = f - (sum_jk r_jk s_j s_k l_j l_k)^(1/2),   l_j = |d_j| (a_j - low_j),  or |d_j| (high_j - a_j) where s_j < 0,

and likewise above (MOVER: Zou & Donner 2008), which keeps intervals lopsided that are. What is not known of a
correlation is taken as the worst. Where all parts have certain bounds, those of f are certain: interval arithmetic.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.functions import short
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from privsql.model.estimate import Estimate

Range = tuple[float, float]
NOWHERE = (-math.inf, math.inf)
NUMBERS = {exp.DataType.Type[name] for name in ("DOUBLE", "FLOAT", "DECIMAL")}


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


def spread(terms: Iterable[tuple[int, float, float]], correlation: Callable[[int, int], float | None]) -> float:
    """The root of the sum of r_jk s_j s_k t_j t_k over terms (j, s_j, t_j >= 0)."""
    some = [term for term in terms if term[2]]
    total = 0.0
    for j, sign, size in some:
        for k, other, length in some:
            known = 1.0 if j == k else correlation(j, k)
            total += size * length * (1.0 if known is None else sign * other * known)
    return math.sqrt(max(total, 0.0))


def figures(
    expression: exp.Expr,
    value: float,
    parts: Mapping[int, Estimate],
    certain: bool,
    correlation: Callable[[int, int], float | None],
) -> tuple[float | None, float | None, float | None]:
    """Standard error, low and high of an expression whose ``value`` at the estimates is known; None for what is not."""
    if not math.isfinite(value):
        return None, None, None
    if all(one.std_error == 0 for one in parts.values()):
        return 0.0, value, value
    known = {j: (one.estimate, one.low, one.high) for j, one in parts.items()}
    if any(figure is None for one in known.values() for figure in one):
        return None, None, None
    bounds = {j: (float(low or 0), float(high or 0)) for j, (_, low, high) in known.items()}
    if certain:
        low, high = (end if math.isfinite(end) else None for end in ranges(expression, bounds))
        return None, low, high
    return _delta(expression, value, parts, bounds, correlation)


def _delta(
    expression: exp.Expr,
    value: float,
    parts: Mapping[int, Estimate],
    bounds: Mapping[int, Range],
    correlation: Callable[[int, int], float | None],
) -> tuple[float | None, float | None, float | None]:
    """The same by the delta method."""
    estimates = {j: float(one.estimate or 0) for j, one in parts.items()}
    _, by = slopes(expression, estimates)
    if not all(map(math.isfinite, by.values())):
        return None, None, None
    down, up = [], []
    for j, slope in by.items():
        sign, below, above = math.copysign(1.0, slope), *_sides(estimates[j], bounds[j])
        first, last = (below, above) if slope > 0 else (above, below)
        down.append((j, sign, abs(slope) * first))
        up.append((j, sign, abs(slope) * last))
    errors = [(j, math.copysign(1.0, d), abs(d) * (parts[j].std_error or 0.0)) for j, d in by.items()]
    error = None if any(parts[j].std_error is None for j in by) else spread(errors, correlation)
    return error, value - spread(down, correlation), value + spread(up, correlation)


def _sides(estimate: float, bounds: Range) -> Range:
    return max(estimate - bounds[0], 0.0), max(bounds[1] - estimate, 0.0)
