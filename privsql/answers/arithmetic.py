"""Compute errors and bounds of an arithmetic expression from those of the aggregate functions in it.

For f(a) with slopes d_j = df/da_j at the estimates (the delta method), correlations r_jk and signs s_j of the slopes,

  Var f = sum_jk r_jk d_j d_k se_j se_k,
  low = f - (sum_jk r_jk s_j s_k l_j l_k)^(1/2),   l_j = |d_j| (a_j - low_j),  or |d_j| (high_j - a_j) where s_j < 0,

and likewise above (MOVER: Zou & Donner 2008), so asymmetric intervals stay asymmetric. If the errors of two parts
cancel (r s_1 s_2 < 0), a share |r| of both moves together, both below their estimates or both above. With l and u, how
far f goes below and above by each,

    low = f - ((1 - |r|) (l_1^2 + l_2^2) + |r| max(l_1 - u_2, l_2 - u_1, 0)^2)^(1/2).

An unknown correlation is taken as the worst one. If all parts have certain bounds, those of f are certain (interval
arithmetic). If one count is a part of another, their quotient lies in [0, 1], so that f lies in a known range. The
estimate and the bounds of f are moved into that range, and the error is at most half of its length.

Each aggregate function has a number j, and is named ``a_j`` in the expression.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.sql.grammar import shorten_sql
from privsql.errors import UsageError
from privsql.model.estimates import are_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


Range = tuple[float, float]
NOWHERE = (-math.inf, math.inf)
NUMBERS = {exp.DataType.Type[name] for name in ("DOUBLE", "FLOAT", "DECIMAL")}


@dataclass(frozen=True)
class AggregateEstimate:
    """An aggregate function's value and errors for one group.

    Attributes:
        estimate: The estimate, from the release.
        std_error: Its standard error; None if it is unknown.
        low: The lower bound.
        high: The upper bound; it includes the ``missing`` records.
        certain: Whether the bounds are certain.
        missing: The number of records outside of the release that could count.
        null: Whether the true value may be NULL, because there may be no record to aggregate.
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
        """Return whether the estimate is the true answer: its standard error is 0 and its bounds are equal."""
        return self.std_error == 0 and are_equal(self.low, self.high)

    @property
    def sure_range(self) -> Range:
        """Return the range in which the true value lies with certainty.

        It is infinite on a side without a certain bound.
        """
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    @property
    def side_widths(self) -> Range:
        """Return how far the bounds lie below and above the estimate, without what missing records add to the upper."""
        low, high = self.low or 0.0, (self.high or 0.0) - self.missing
        return max(self.estimate - low, 0.0), max(high - self.estimate, 0.0)


def check_arithmetic(expression: exp.Expr, written: str) -> None:
    """Refuse an expression whose error can't be computed.

    Permitted are + - * /, ROUND, and NULLIF and COALESCE with constants.

    Args:
        expression: The expression over aggregate functions.
        written: Its text in the query.

    Raises:
        UsageError: The expression contains anything else.
    """
    unknown = find_unknown_error(expression)
    if unknown is not None:
        works = "+ - * / and ROUND of aggregate functions work"
        raise UsageError(f"{written}: no interval is known of {shorten_sql(unknown)}; {works}")


def find_unknown_error(expression: exp.Expr) -> exp.Expr | None:
    """Return a part of an expression whose error can't be computed; None if there is no such part."""
    rest = [expression]
    while rest:
        node = rest.pop()
        parts = _list_operands(node)
        if parts is None:
            return node
        rest += parts
    return None


def _list_operands(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the operands of a node; None for a node whose error can't be computed."""
    match node:
        case exp.Column():
            return [] if node.name[:2] in ("a_", "g_") else None  # a group is a constant of its row
        case exp.Literal():
            return None if node.is_string else []
        case exp.Null():
            return []
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div():
            return [node.this, node.expression]
        case exp.Paren() | exp.Neg():
            return [node.this]
        case exp.Cast():
            return [node.this] if node.to.this in NUMBERS else None
        case exp.Coalesce() | exp.Nullif() | exp.Round():
            others = [part for part in node.iter_expressions() if part is not node.this]
            return [node.this] if all(isinstance(one, exp.Literal) for one in others) else None
        case exp.Case():
            branches, default = node.args["ifs"], node.args.get("default")
            plain = node.this is None and len(branches) == 1 and isinstance(branches[0].args["true"], exp.Null)
            return [default] if plain and default is not None else None
    return None


def compute_slopes(node: exp.Expr, values: Mapping[int, float]) -> tuple[float, dict[int, float]]:
    """Return the value of an expression, and its derivative by each aggregate function in it.

    Args:
        node: The expression, in which aggregate function j is named ``a_j``.
        values: The value of each aggregate function, by its number j.
    """
    if isinstance(node, exp.Column):
        number = int(node.name[2:])
        return values[number], {number: 1.0}
    if isinstance(node, exp.Literal):
        return float(node.this), {}
    operands = [compute_slopes(part, values) for part in _list_operands(node) or ()]
    if len(operands) == 1:
        sign = -1.0 if isinstance(node, exp.Neg) else 1.0
        return sign * operands[0][0], {j: sign * d for j, d in operands[0][1].items()}
    (left, of_left), (right, of_right) = operands
    value, by_left, by_right = _apply_operator(node, left, right)
    return value, {j: by_left * of_left.get(j, 0.0) + by_right * of_right.get(j, 0.0) for j in of_left | of_right}


def _apply_operator(node: exp.Expr, left: float, right: float) -> tuple[float, float, float]:
    """Return the value of an operator such as ``/``, and its derivatives by both operands."""
    if isinstance(node, exp.Add):
        return left + right, 1.0, 1.0
    if isinstance(node, exp.Sub):
        return left - right, 1.0, -1.0
    if isinstance(node, exp.Mul):
        return left * right, right, left
    if not right:
        return math.nan, math.nan, math.nan
    return left / right, 1 / right, -left / right**2


def compute_range(node: exp.Expr, values: Mapping[int, Range]) -> Range:
    """Return the range of an expression when each aggregate function takes any value in its own range.

    Args:
        node: The expression, in which aggregate function j is named ``a_j``.
        values: The range of each aggregate function, by its number j.
    """
    if isinstance(node, exp.Column):
        return values[int(node.name[2:])]
    if isinstance(node, exp.Literal):
        return float(node.this), float(node.this)
    if isinstance(node, exp.Null):
        return NOWHERE
    operands = [compute_range(part, values) for part in _list_operands(node) or ()]
    if len(operands) == 1:
        low, high = operands[0]
        return (-high, -low) if isinstance(node, exp.Neg) else (low, high)
    left, right = operands
    if isinstance(node, exp.Add | exp.Sub):
        low, high = right if isinstance(node, exp.Add) else (-right[1], -right[0])
        return left[0] + low, left[1] + high
    ends = [_apply_operator(node, a, b)[0] for a in left for b in right]
    unbounded = isinstance(node, exp.Div) and right[0] <= 0 <= right[1]
    return NOWHERE if unbounded or any(map(math.isnan, ends)) else (min(ends), max(ends))


def may_be_null(node: exp.Expr, parts: Mapping[int, AggregateEstimate]) -> bool:
    """Return whether an expression may be NULL, or may have the value that COALESCE puts in the place of NULL.

    NULL comes from a divisor of 0, from NULLIF, and from an aggregate function that is NULL.

    Args:
        node: The expression.
        parts: The aggregate functions, by number, each with its range.
    """
    if isinstance(node, exp.Column):
        return parts[int(node.name[2:])].null
    inner = _list_operands(node)
    if inner is None or isinstance(node, exp.Null) or any(may_be_null(part, parts) for part in inner):
        return True
    known = {j: one.sure_range for j, one in parts.items()}
    if isinstance(node, exp.Div | exp.Nullif):
        divides = isinstance(node, exp.Div)
        low, high = compute_range(node.expression if divides else node.this, known)
        return low <= (0.0 if divides else float(node.expression.name)) <= high
    if isinstance(node, exp.Case):
        condition = node.args["ifs"][0].this.unnest()
        if not isinstance(condition, exp.EQ) or not isinstance(condition.this, exp.Column):
            return True
        return condition.expression != exp.Literal.number(0) or known[int(condition.this.name[2:])][0] <= 0
    return False


Term = tuple[int, float, float, float]  # of an aggregate: its number, the slope's sign, and how far it goes either way


def combine_spread(terms: Iterable[Term], correlation: Callable[[int, int], float | None]) -> float:
    """Return how far an expression deviates to one side, up or down, by the errors of its aggregate functions.

    It is the root of the sum of r_jk s_j s_k t_j t_k over all pairs. If the errors of two functions cancel, another
    formula is used; the docstring of this module has it.

    Args:
        terms: A tuple for each aggregate function: its number j, the sign s_j of the expression's derivative by it, how
            far its error moves the expression to this side (t_j), and how far to the other side.
        correlation: Returns the correlation r_jk of the errors of functions j and k; None if it is unknown.
    """
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


def combine_figures(
    expression: exp.Expr,
    value: float,
    parts: Mapping[int, AggregateEstimate],
    correlation: Callable[[int, int], float | None],
    among: tuple[int, int] | None = None,
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return estimate, standard error, low and high of an expression; None for what is unknown.

    Args:
        expression: The expression, in which aggregate function j is named ``a_j``.
        value: Its value at the estimates; a value that is not finite means that there is none.
        parts: The value and errors of each aggregate function, by its number j.
        correlation: Returns the correlation of two aggregate functions' errors; None if it is unknown.
        among: The numbers of two counts, of which the first is a part of the second; None if there are none.
    """
    if not math.isfinite(value):
        return None, None, None, None
    if all(one.is_exact for one in parts.values()):
        return value, 0.0, value, value
    if any(one.low is None or one.high is None for one in parts.values()):
        return value, None, None, None
    linear = _bound_linear(expression, *next(iter(parts.items()))) if len(parts) == 1 else None
    if linear is not None:
        return value, *linear
    limits = (share_range(expression, among) if among else None) or NOWHERE
    value = min(max(value, limits[0]), limits[1])
    if all(one.certain for one in parts.values()):
        low, high = compute_range(expression, {j: one.sure_range for j, one in parts.items()})
        low, high = max(low, limits[0]), min(high, limits[1])
        return value, None, low if math.isfinite(low) else None, high if math.isfinite(high) else None
    error, below, above = _delta_method(expression, value, parts, correlation)
    if below is None or above is None or limits == NOWHERE:
        return value, error, below, above
    ends = max(below, limits[0]), min(above, limits[1])
    if error and ends[1] - ends[0] < error:  # the errors of its parts are taken to cancel, and its range hides the rest
        _, below, above = _delta_method(expression, value, parts, lambda *_: 0.0)
        ends = max(below or 0.0, limits[0]), min(above or 0.0, limits[1])
        error = min(error, ends[1] - ends[0])
    return value, None if error is None else min(error, (limits[1] - limits[0]) / 2), *ends


def _bound_linear(
    expression: exp.Expr, number: int, one: AggregateEstimate
) -> tuple[float | None, float, float] | None:
    """Return standard error, low and high of an expression that is linear in a single aggregate function.

    The result is None if the expression is not linear, or rounds.

    Args:
        expression: The expression.
        number: The number of the aggregate function.
        one: The aggregate function's value and errors.
    """
    at_one, at_two, at_four = (compute_slopes(expression, {number: at})[0] for at in (1.0, 2.0, 4.0))
    slope = at_two - at_one
    if not all(map(math.isfinite, (at_one, at_two, at_four))) or not math.isclose(at_four - at_two, 2 * slope):
        return None
    known = (one.low or 0.0, one.high or 0.0)
    ends = [compute_slopes(expression, {number: end})[0] for end in known]
    if not all(map(math.isfinite, ends)):  # n / n is 1, also where n is 0
        ends = [at_one + (end - 1) * slope for end in known]
    error = 0.0 if not slope else None if one.std_error is None else abs(slope) * one.std_error
    return error, min(ends), max(ends)


def share_range(expression: exp.Expr, among: tuple[int, int]) -> Range | None:
    """Return the range of an expression of two counts, of which one is a part of the other; None if it is not known.

    It is known if the expression depends on the share alone (the part divided by the whole), and rises or falls with
    it. The share lies between 0 and 1, so the ends of the range are the values at 0 and 1.

    Args:
        expression: The expression.
        among: The numbers of the part and of the whole.
    """
    part, whole = among
    named = [node.name for node in expression.find_all(exp.Column)]
    if sorted(named) != sorted((f"a_{part}", f"a_{whole}")):
        return None
    (once, _), (twice, _) = (compute_slopes(expression, {part: 0.3 * size, whole: 1.0 * size}) for size in (1, 2))
    ends = [compute_slopes(expression, {part: share, whole: 1.0})[0] for share in (0.0, 0.5, 1.0)]
    if not all(map(math.isfinite, (once, twice, *ends))) or not math.isclose(once, twice, rel_tol=1e-9, abs_tol=1e-12):
        return None
    low, high = min(ends[0], ends[2]), max(ends[0], ends[2])
    return (low, high) if low <= ends[1] <= high else None


def _delta_method(
    expression: exp.Expr,
    value: float,
    parts: Mapping[int, AggregateEstimate],
    correlation: Callable[[int, int], float | None],
) -> tuple[float | None, float | None, float | None]:
    """Return standard error, low and high of an expression by the delta method.

    The method takes the expression for linear near the estimates. The bounds also allow for records that the release
    leaves out: each of these may count in one aggregate function and not in another.

    Args:
        expression: The expression.
        value: Its value at the estimates.
        parts: The aggregate functions, by number.
        correlation: Returns the correlation of two aggregate functions' errors; None if it is unknown.
    """
    _, by = compute_slopes(expression, {j: one.estimate for j, one in parts.items()})
    if not all(map(math.isfinite, by.values())):
        return None, None, None
    down, up, errors = [], [], []
    for j, slope in by.items():
        sign, size = math.copysign(1.0, slope), abs(slope)
        first, last = (size * side for side in (parts[j].side_widths if slope > 0 else parts[j].side_widths[::-1]))
        down.append((j, sign, first, last))
        up.append((j, sign, last, first))
        deviation = size * (parts[j].std_error or 0.0)
        errors.append((j, sign, deviation, deviation))
    known = all(parts[j].std_error is not None for j in by)
    error = combine_spread(errors, correlation) if known else None
    less = sum(-slope * parts[j].missing for j, slope in by.items() if slope < 0)
    more = sum(slope * parts[j].missing for j, slope in by.items() if slope > 0)
    return error, value - combine_spread(down, correlation) - less, value + combine_spread(up, correlation) + more
