"""Evaluate a SELECT: ask the questions behind it, calculate with their estimates, add the missing records."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.sql.grammar import COMPARISONS, shorten_sql
from privsql.answers.sql.question import (
    COUNTS,
    EXACT_ONLY,
    WINDOWS,
    AggregateCall,
    CountQuery,
    Measure,
    Scope,
    Statement,
    as_text,
    exact_statement,
    is_number,
    sides_of,
    split_parts,
)
from privsql.engine.sqlfiles import DIALECT, alias_as, all_of, any_of, is_null, table
from privsql.errors import UsageError
from privsql.model.estimates import (
    Estimate,
    are_equal,
    as_decimal,
    as_number,
    as_whole_count,
    decimal_scale,
    exact_estimate,
    same_nan,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from privsql.answers.answer import Answers
    from privsql.engine.database import Relations
    from privsql.model.estimates import Number, RestsOn
    from privsql.model.manifest import Manifest

# Arithmetic -----------------------------------------------------------------------------------------------------------
# Arithmetic of aggregate functions: errors and bounds of an expression from those of its parts.
#
# For f(a) with slopes d_j = df/da_j at the estimates (the delta method), correlations r_jk and signs s_j of the slopes,
#
#   Var f = sum_jk r_jk d_j d_k se_j se_k,
#   low = f - (sum_jk r_jk s_j s_k l_j l_k)^(1/2),   l_j = |d_j| (a_j - low_j),  or |d_j| (high_j - a_j) where s_j < 0,
#
# and likewise above (MOVER: Zou & Donner 2008), which keeps intervals lopsided that are. Of two parts whose errors
# cancel (r s_1 s_2 < 0), a part |r| moves together, both below their estimates or both above: with l and u how far f
# goes below and above by each,
#
#     low = f - ((1 - |r|) (l_1^2 + l_2^2) + |r| max(l_1 - u_2, l_2 - u_1, 0)^2)^(1/2).
#
# An unknown correlation is taken as the worst one. If all parts have certain bounds, those of f are certain (interval
# arithmetic). A share of which one part counts some of the other's records stays within [0, 1], scaled as f is: its
# estimate and its bounds are moved there, and its error is half of that range at most.

Range = tuple[float, float]
NOWHERE = (-math.inf, math.inf)
NUMBERS = {exp.DataType.Type[name] for name in ("DOUBLE", "FLOAT", "DECIMAL")}


@dataclass(frozen=True)
class AggregateEstimate:
    """Bounds of an aggregate function for a group; ``high`` counts ``missing`` records more than the release.

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
        """Return whether the figure is the true answer."""
        return self.std_error == 0 and are_equal(self.low, self.high)

    @property
    def sure_range(self) -> Range:
        """Return where it lies, as far as its bounds are sure."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    @property
    def side_widths(self) -> Range:
        """Return how far the bounds lie below and above the estimate, without missing records."""
        low, high = self.low or 0.0, (self.high or 0.0) - self.missing
        return max(self.estimate - low, 0.0), max(high - self.estimate, 0.0)


def check_arithmetic(expression: exp.Expr, written: str) -> None:
    """Raise ``UsageError`` for what has no known error: all but + - * /, ROUND, NULLIF and COALESCE with constants."""
    unknown = find_unknown_error(expression)
    if unknown is not None:
        works = "+ - * / and ROUND of aggregate functions work"
        raise UsageError(f"{written}: no interval is known of {shorten_sql(unknown)}; {works}")


def find_unknown_error(expression: exp.Expr) -> exp.Expr | None:
    """Return the part whose error is not known; None where all are."""
    rest = [expression]
    while rest:
        node = rest.pop()
        parts = _list_operands(node)
        if parts is None:
            return node
        rest += parts
    return None


def _list_operands(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the operands of a node; None for one that is not understood."""
    match node:
        case exp.Column():
            return [] if node.name.startswith("a_") else None
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
    """Return the value of an expression and its slopes in the aggregates, by their numbers."""
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


def compute_range(node: exp.Expr, values: Mapping[int, Range]) -> Range:
    """Return the range of an expression over all values of the aggregates in their ranges."""
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
    """Return whether an expression may be NULL, or what COALESCE puts there, for aggregates in their ranges.

    NULL comes of a divisor of 0, of NULLIF, of the condition that a count is 0, and of an aggregate that is NULL.
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
    """Return the root of the sum of r_jk s_j s_k t_j t_k over terms (j, s_j, t_j >= 0, t_j the other way)."""
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
    """Return estimate, standard error, low and high of an expression; None for what is not known.

    ``value``: of the expression at the estimates; one that is not finite, as the share of nobody, is none. ``among``:
    the first of these aggregates counts some of the records that the second counts.
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
    """Return standard error, low and high of what is linear in one aggregate, without rounding; None for others."""
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
    """Return the range of an expression of one share: a part of the second aggregate; None for others.

    One that names each of them once is a quotient of linear functions of either: it rises or falls with the share.
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
    """Return the figures by the delta method; a missing record may count in one part and not in another."""
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


# Missing records ------------------------------------------------------------------------------------------------------
# Records of the source that are not in the release: how many could meet a question, and their effect on an answer.
#
# Bounds and intervals are of the source. A record that was left out adds at most one to a count; its part of a sum or a
# mean is unknown. It was left out for a NULL, so it can't meet a question that excludes NULL in those columns.

REFUSES = (*COMPARISONS, exp.In, exp.Between, exp.Like, exp.ILike)


def count_touching(query: CountQuery, manifest: Manifest) -> int:
    """Return how many records that are not in the release could meet a question; 0 where none is stated."""
    suppressed, left_out = manifest.suppressed or 0, int(manifest.facts.get("left_out", 0))
    empty = [name for name, policy in manifest.nulls.items() if policy == "suppress"]
    refused = bool(empty) and all(_lets_no_null_through(query, name) for name in empty)
    return left_out if refused else suppressed


def _lets_no_null_through(query: CountQuery, name: str) -> bool:
    """Return whether a record whose column ``name`` is NULL meets no row of the answer, or adds nothing to it.

    No group of the answer has NULL there, since the release has none. No comparison of NULL is true.
    """
    if query.measure.column == name or any(group.column == name for group in query.groups):
        return True
    if any(ours == name for lookup in query.lookups if not lookup.keeps_unmatched for _, ours in lookup.keys):
        return True
    for part in (part.unnest() for side in query.filters.values() for part in side):
        compared: list[exp.Expr | None] = []
        if isinstance(part, exp.Not) and isinstance(part.this.unnest(), exp.Is):
            inner = part.this.unnest()
            compared = [inner.this] if isinstance(inner.expression, exp.Null) else []
        elif isinstance(part, REFUSES) and not isinstance(part, exp.NullSafeEQ | exp.NullSafeNEQ):
            compared = [part.this, part.args.get("expression")]
        if any(isinstance(one, exp.Column) and one.name == name for one in compared):
            return True
    return False


def widen_rows(query: CountQuery, rows: list[Estimate], missing: int) -> list[Estimate]:
    """Return the rows with bounds of the source, of which ``missing`` more records could meet each of them."""
    wide = []
    for one in rows if missing else ():
        low, high = one.low, one.high
        if query.measure.kind in COUNTS:
            high = None if high is None else high + missing
        else:  # one record more makes a minimum smaller only, and a maximum larger
            low = low if query.measure.kind == "max" else None
            high = high if query.measure.kind == "min" else None
        wide.append(replace(one, low=low, high=high, std_error=one.std_error or None))
    return wide if missing else rows


def rests_on(before: RestsOn, rows: list[Estimate], missing: int) -> RestsOn:
    """Return what an answer rests on where there is any record to measure, with bounds of the source.

    ``before``: what it rests on by the release.
    """
    known = [one for one in rows if one.estimate is not None]
    if known and all(one.low is None and one.high is None for one in known):
        return "point"
    if known and before != "point" and all(one.is_fixed for one in known):
        before = "exact"  # whatever else it was asked with, the release holds it
    rounded = any(one.std_error is None for one in known)
    return "certain" if before == "exact" and (missing or rounded) else before


# Evaluation -----------------------------------------------------------------------------------------------------------
# Answer the questions of a SELECT and evaluate its expressions.
#
# Exact aggregate functions are one statement of the engine. Every other one is a question of its own, with the same
# answer in any query. The covariance of two of them follows from three more questions: with A and B the records that
# each counts, and X those of one but not of both,
#
#     2 Cov(A, B) = Var A + Var B + Var X - 2 Var(A but not B) - 2 Var(B but not A).

Key = tuple[Any, ...]
EVERYONE = AggregateCall(Measure(), None, "COUNT(*)")
CERTAIN: tuple[RestsOn, ...] = ("exact", "certain")


@dataclass(frozen=True)
class AggregateColumn:
    """Result of an aggregate function: its value and its figures by group; ``if_any``: what these rest on where there
    is any record to measure; records of the source that are not in the release and could meet its question; ``kind``:
    the value's type, empty for an estimate.
    """

    values: dict[Key, Any]
    estimates: dict[Key, Estimate]
    if_any: RestsOn
    touching: int
    kind: str = ""

    @cached_property
    def rests_on(self) -> RestsOn:
        """Return what its figures rest on: of nobody a sum is NULL, so one that may be of nobody is not certain."""
        sure = self.if_any not in CERTAIN or all(one.is_of_some for one in self.estimates.values())
        return self.if_any if sure else "interval"


@dataclass(frozen=True)
class SelectEvaluation:
    """A SELECT put to an open release."""

    db: Relations
    answers: Answers
    manifest: Manifest
    statement: Statement
    estimator: str
    confidence: float

    @cached_property
    def calls(self) -> dict[int, AggregateCall]:
        """Return the aggregate functions, and the window functions over their answers, by number."""
        windows = [AggregateCall(Measure("window"), None, one.sql(DIALECT)) for one in self.statement.windows]
        return {**dict(enumerate(self.statement.calls)), **dict(enumerate(windows, WINDOWS))}

    @cached_property
    def typed_scope(self) -> Scope:
        """Return the scope with the types of the groups in the engine."""
        scope = self.statement.scope
        types: dict[int, str] = {}
        for side, place in (("qi", self.answers.records), ("sa", self.answers.values)):
            expressions = [(i, group.term) for i, group in enumerate(scope.groups) if group.side == side]
            if expressions:
                records = scope.make_question().join_lookups(table(place)) if side == "qi" else table(place)
                groups = (alias_as(one.copy(), f"g_{i}") for i, one in expressions)
                fields = self.db.list_fields(exp.select(*groups).from_(records))
                types |= {i: one.type for (i, _), one in zip(expressions, fields, strict=True)}
        return replace(scope, groups=tuple(replace(one, type=types[i]) for i, one in enumerate(scope.groups)))

    @cached_property
    def grouped_questions(self) -> list[CountQuery]:
        """Return the questions by all groups; ``UsageError`` for aggregates that can't be estimated."""
        questions = [one.as_question(self.typed_scope) for one in self.statement.calls]
        for one, question in zip(self.statement.calls, questions, strict=True):
            if not self.answers.holds_exactly(question) and one.measure.side == "qi" and one.measure.kind in EXACT_ONLY:
                raise UsageError(
                    f"{one.written} is only available where the query uses no sensitive column; COUNT, SUM and AVG can "
                    "be estimated"
                )
            amount = one.measure.amount
            if amount is not None and not self.answers.holds_exactly(question):
                joined = question.join_lookups(table(self.answers.records))
                (field,) = self.db.list_fields(exp.select(amount.copy()).from_(joined))
                if not is_number(field.type):
                    raise UsageError(f"{one.written}: it is {field.type}, not a number")
        return questions

    def group_by(self, chosen: Sequence[int]) -> GroupedBy:
        """Return the answers by some of the groups."""
        return GroupedBy(self, self.typed_scope.select_groups(chosen))


@dataclass(frozen=True)
class GroupedBy:
    """A SELECT's aggregate functions by one set of groups; ``group_keys``: of the rows that the answer has."""

    asking: SelectEvaluation
    scope: Scope

    @cached_property
    def questions(self) -> list[CountQuery]:
        """Return the question of each aggregate function."""
        if self.scope.groups == self.asking.typed_scope.groups:
            return self.asking.grouped_questions
        return [one.as_question(self.scope) for one in self.asking.statement.calls]

    @cached_property
    def columns(self) -> dict[int, AggregateColumn]:
        """Return the column of each aggregate function, by its number."""
        put = dict(enumerate(zip(self.asking.statement.calls, self.questions, strict=True)))
        exact = {i: pair for i, pair in put.items() if self.asking.answers.holds_exactly(pair[1])}
        read = dict(zip(exact, self._read_exact(list(exact.values())) if exact else (), strict=True))
        return {i: read.get(i) or self._estimate_column(*pair) for i, pair in put.items()}

    @cached_property
    def _records_column(self) -> AggregateColumn:
        """Return the number of records by group, or else another figure of all of them."""
        plain = [
            (one.measure.kind != "count", i) for i, one in enumerate(self.asking.statement.calls) if one.among is None
        ]
        if plain:
            return self.columns[min(plain)[1]]
        question = EVERYONE.as_question(self.scope)
        is_exact = self.asking.answers.holds_exactly(question)
        return self._read_exact([(EVERYONE, question)])[0] if is_exact else self._estimate_column(EVERYONE, question)

    @property
    def group_keys(self) -> list[Key]:
        """Return all groups, as the number of their records has them, but for those that certainly have none."""
        counts = self.scope.groups and not self._records_column.kind
        estimates = self._records_column.estimates.items()
        return [key for key, one in estimates if not (counts and one.least is None and one.is_fixed and one.high == 0)]

    def may_be_empty(self, key: Key) -> bool:
        """Return whether a group may have no record, as far as the bounds of its number of records are sure."""
        one = self._records_column.estimates[key]
        least = one.low if one.least is None else one.least
        return bool(self.scope.groups) and not self._records_column.kind and (least is None or least < 1)

    @property
    def existence_rests_on(self) -> RestsOn:
        """Return what the existence of the groups rests on; that of groups that may be empty is not stated."""
        column = self._records_column
        sure = not self.scope.groups or column.kind or all(map(self.may_be_empty, self.group_keys))
        return "exact" if sure else column.if_any

    def _read_exact(self, put: Sequence[tuple[AggregateCall, CountQuery]]) -> list[AggregateColumn]:
        """Return the columns of functions that the release holds exactly."""
        db, records = self.asking.db, table(self.asking.answers.records)
        functions, everyone = [one.function.copy() for one, _ in put], self.scope.make_question()
        group_count, types = len(self.scope.groups), ["BIGINT"] * len(put)
        if any(one.measure.kind not in COUNTS for one, _ in put):
            fields = db.list_fields(exact_statement(everyone, records, functions))
            types = [field.type for field in fields[group_count:]]
        texts = [exp.cast(f, "VARCHAR") if as_text(t) else f for f, t in zip(functions, types, strict=True)]
        rows = db.rows(exact_statement(everyone, records, texts))
        pairs = [(tuple(map(same_nan, row[:group_count])), row[group_count:]) for row in rows]
        columns = []
        for i, ((_, question), kind) in enumerate(zip(put, types, strict=True)):
            values = {key: figures[i] for key, figures in pairs}
            known = [
                (key, as_number(one) if is_number(kind) and one is not None else one) for key, one in values.items()
            ]
            columns.append(self._bound_column(question, [exact_estimate(*pair) for pair in known], values, kind))
        return columns

    def _estimate_column(self, one: AggregateCall, question: CountQuery) -> AggregateColumn:
        """Return the column of a function that has to be estimated."""
        asking = self.asking
        rows = asking.answers.answer_query(question, asking.estimator, asking.confidence)
        if question.measure.kind in COUNTS:
            rows = [as_whole_count(row) for row in rows]
        elif any(row.is_fixed for row in rows):
            least = self.least_records(one)
            rows = [replace(row, least=least.get(row.group, 0)) if row.is_fixed else row for row in rows]
        measure, types = question.measure, {field.name: field.type for field in asking.manifest.roles.columns}
        scale = decimal_scale(types.get(measure.column or "", ""))
        if measure.kind not in ("min", "max") and (measure.kind != "sum" or not all(row.is_fixed for row in rows)):
            scale = None  # a column would hold two types
        if scale is not None:
            figures = [[None if one is None else as_decimal(one, scale) for one in (row.estimate, row.low, row.high)]
                       for row in rows]  # fmt: skip
            rows = [replace(row, estimate=middle, low=low, high=high)
                    for row, (middle, low, high) in zip(rows, figures, strict=True)]  # fmt: skip
        return self._bound_column(question, rows, {row.group: row.estimate for row in rows})

    def least_records(self, one: AggregateCall) -> dict[Key, Number]:
        """Return the records by group that an aggregate function is certainly of; none where any may be missing."""
        known = [] if one.measure.operand is None else [exp.not_(is_null(exp.paren(one.measure.operand)))]
        among = all_of([part for part in (one.among, *known) if part is not None])
        asking, question = self.asking, self.scope.make_question(Measure(), among)
        certain = [name for name in asking.answers.estimators if name in asking.answers.certain]
        rows = asking.answers.answer_query(question, (*certain, asking.estimator)[0], asking.confidence)
        return {row.group: row.low for row in rows if row.low is not None and (certain or row.is_fixed)}

    def _bound_column(
        self, question: CountQuery, rows: list[Estimate], values: dict[Key, Any], kind: str = ""
    ) -> AggregateColumn:
        """Return a column with bounds of the source."""
        missing = count_touching(question, self.asking.manifest)
        rows = widen_rows(question, rows, missing)
        rests = rests_on(self.asking.answers.rests_on(question, self.asking.estimator), rows, missing)
        rows = [replace(row, std_error=None) if row.is_fixed and not row.is_of_some else row for row in rows]
        return AggregateColumn(values, {row.group: row for row in rows}, rests, missing, kind)

    def find_estimate(self, number: int, key: Key) -> Estimate:
        """Return the figures of an aggregate function for a group."""
        known = self.columns[number].estimates.get(key)
        return known or Estimate(key, *self.asking.calls[number].measure.empty_figures)

    def aggregate_estimate(self, number: int, key: Key) -> AggregateEstimate:
        """Return the figures of an aggregate function for arithmetic."""
        one, column = self.find_estimate(number, key), self.columns[number]
        counted = self.asking.calls[number].measure.kind in COUNTS
        certain = column.if_any in CERTAIN and one.is_of_some
        left = column.touching if counted and one.high is not None and key in column.estimates else 0
        low, high = (None if end is None else float(end) for end in (one.low, one.high))
        null = not column.kind and not one.is_of_some
        return AggregateEstimate(float(one.estimate or 0), one.std_error, low, high, certain, left, null)

    # How two of them vary together ---

    @cached_property
    def _known_variances(self) -> dict[tuple[exp.Expr | None, tuple[str, ...]], dict[Key, float | None]]:
        return {}

    def _count_variance(self, among: exp.Expr | None, columns: tuple[str, ...], key: Key) -> float | None:
        """Return the variance of a count under one more condition, compared by some columns."""
        known = (among, columns)
        if known not in self._known_variances:
            question = replace(self.scope.make_question(Measure(), among), comparison_columns=columns)
            rows = self.asking.answers.answer_query(question, self.asking.estimator, self.asking.confidence)
            errors = {row.group: row.std_error for row in rows}
            self._known_variances[known] = {key: one if one is None else one**2 for key, one in errors.items()}
        return self._known_variances[known].get(key, 0.0)

    def correlation(self, j: int, k: int, key: Key) -> float | None:
        """Return the correlation of two aggregate functions; None where it is not known."""
        one, other = (self.asking.calls[i] for i in (j, k))
        errors = [self.find_estimate(i, key).std_error for i in (j, k)]
        if not all(errors):
            return 0.0 if 0 in errors else None
        if any(part.measure.kind != "count" for part in (one, other)):
            return None
        conditions = [part.among for part in (one, other) if part.among is not None]
        if any(len(sides_of(part, self.scope.sides)) == 2 for part in conditions):
            return None
        columns = self.asking.answers.comparison_columns(conditions)
        variances: list[float | None] = [(error or 0.0) ** 2 for error in errors]
        if columns:
            variances = [self._count_variance(part.among, columns, key) for part in (one, other)]
        left, right = _difference_condition(one.among, other.among), _difference_condition(other.among, one.among)
        both = any_of([part for part in (left, right) if part is not None])
        parts = [0.0 if part is None else self._count_variance(part, columns, key) for part in (left, right, both)]
        if None in parts or not all(variances):
            return None
        first, last, exclusive = (float(part or 0.0) for part in parts)
        known_variances = [float(part or 0.0) for part in variances]
        covariance = (sum(known_variances) + exclusive) / 2 - first - last
        return min(max(covariance / math.sqrt(math.prod(known_variances)), -1.0), 1.0)

    def find_nested(self, chosen: Sequence[int]) -> tuple[int, int] | None:
        """Return (part, whole) of two counts, one of some of the other's records; None for others."""
        calls = [self.asking.calls[i] for i in chosen]
        if len(calls) != 2 or any(one.measure.kind != "count" for one in calls):
            return None
        for part, whole in ((0, 1), (1, 0)):
            if _implies(calls[part].among, calls[whole].among):
                return chosen[part], chosen[whole]
        return None


def _implies(one: exp.Expr | None, other: exp.Expr | None) -> bool:
    """Return whether the conditions that ``one`` joins by AND include those of ``other``, or a branch of each OR."""
    if other is None:
        return True
    held = set() if one is None else set(split_parts(one))

    def is_met(part: exp.Expr) -> bool:
        part = part.unnest()
        either = isinstance(part, exp.Or) and (is_met(part.this) or is_met(part.expression))
        return (
            part in held
            or part == exp.true()
            or either
            or (isinstance(part, exp.And) and is_met(part.this) and is_met(part.expression))
        )

    return all(map(is_met, split_parts(other)))


def _difference_condition(one: exp.Expr | None, other: exp.Expr | None) -> exp.Expr | None:
    """Return SQL for ``one AND NOT other``, where None is met by all; None if it is provably empty."""
    if other is None or one == other:
        return None
    outside = exp.not_(exp.Is(this=exp.paren(other), expression=exp.true()))
    return outside if one is None else exp.and_(one, outside)
