"""Put the questions of a SELECT to a release, and evaluate its expressions.

All aggregate functions that the release holds exactly are one statement of the engine. Every other function is a
question of its own, so it has the same answer in any query. The covariance of two estimated counts follows from three
more questions. With A and B the records that each counts, and X those that only one of them counts,

    2 Cov(A, B) = Var A + Var B + Var X - 2 Var(A but not B) - 2 Var(B but not A).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.arithmetic import AggregateEstimate
from privsql.answers.missing import count_touching, weaken_grounds, widen_rows
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
from privsql.engine.sqlfiles import DIALECT, alias_as, all_of, any_of, column, is_null, table
from privsql.errors import UsageError
from privsql.model.estimates import (
    CERTAIN,
    Estimate,
    as_decimal,
    as_number,
    as_whole_count,
    decimal_scale,
    exact_estimate,
    same_nan,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from privsql.answers.answer import Answers
    from privsql.answers.sql.question import Side
    from privsql.engine.database import Relations
    from privsql.model.bins import Bins
    from privsql.model.estimates import Number, RestsOn
    from privsql.model.manifest import Manifest

Key = tuple[Any, ...]
EVERYONE = AggregateCall(Measure(), None, "COUNT(*)")


@dataclass(frozen=True)
class AggregateColumn:
    """The results of one aggregate function.

    Attributes:
        values: Its value for each group.
        estimates: The value with standard error and bounds for each group.
        if_any: How reliable the bounds are, on condition that there is a record to aggregate.
        touching: The number of records that the release leaves out and that could meet the conditions of the query.
        kind: The SQL type of exact values; empty for estimates.
    """

    values: dict[Key, Any]
    estimates: dict[Key, Estimate]
    if_any: RestsOn
    touching: int
    kind: str = ""

    @cached_property
    def rests_on(self) -> RestsOn:
        """Return how reliable the bounds are.

        They are not certain if a group may have no record to aggregate, since its sum would be NULL.
        """
        sure = self.if_any not in CERTAIN or all(one.is_of_some for one in self.estimates.values())
        return self.if_any if sure else "interval"


@dataclass(frozen=True)
class SelectEvaluation:
    """A SELECT that is put to an open release.

    Attributes:
        db: The engine in which the release is open.
        answers: The open release.
        manifest: What the release states about itself.
        statement: The SELECT.
        estimator: The name of the estimator.
        confidence: The confidence of the intervals.
    """

    db: Relations
    answers: Answers
    manifest: Manifest
    statement: Statement
    estimator: str
    confidence: float

    @cached_property
    def calls(self) -> dict[int, AggregateCall]:
        """Return the aggregate functions, by number from 0, and the window functions, by number from ``WINDOWS``."""
        windows = [AggregateCall(Measure("window"), None, one.sql(DIALECT)) for one in self.statement.windows]
        return {**dict(enumerate(self.statement.calls)), **dict(enumerate(windows, WINDOWS))}

    @cached_property
    def typed_scope(self) -> Scope:
        """Return the conditions and groups of the SELECT, with the SQL types that the engine gives the groups."""
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
        """Return one question for each aggregate function, grouped by all expressions of GROUP BY.

        Raises:
            UsageError: The release neither holds nor estimates an aggregate function.
        """
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
        """Return the aggregate functions for one grouping set: the GROUP BY expressions at the indices ``chosen``."""
        return GroupedBy(self, self.typed_scope.select_groups(chosen))


@dataclass(frozen=True)
class GroupedBy:
    """The aggregate functions of a SELECT, computed for one grouping set.

    Attributes:
        asking: The SELECT.
        scope: The conditions on records, and the groups of this grouping set alone.
    """

    asking: SelectEvaluation
    scope: Scope
    _variances: dict[tuple[exp.Expr | None, tuple[str, ...]], dict[Key, float | None]] = field(default_factory=dict)

    @cached_property
    def questions(self) -> list[CountQuery]:
        """Return the question of each aggregate function, grouped by this grouping set."""
        if self.scope.groups == self.asking.typed_scope.groups:
            return self.asking.grouped_questions
        return [one.as_question(self.scope) for one in self.asking.statement.calls]

    @cached_property
    def columns(self) -> dict[int, AggregateColumn]:
        """Return the results of each aggregate function, by its number."""
        put = dict(enumerate(zip(self.asking.statement.calls, self.questions, strict=True)))
        exact = {i: pair for i, pair in put.items() if self.asking.answers.holds_exactly(pair[1])}
        read = dict(zip(exact, self._read_exact(list(exact.values())) if exact else (), strict=True))
        return {i: read.get(i) or self._estimate_column(*pair) for i, pair in put.items()}

    @cached_property
    def _records_column(self) -> AggregateColumn:
        """Return the number of records in each group, to list the groups and find those that may be empty.

        If the query calls an aggregate function without FILTER, a count if possible, that result is returned in place
        of the number: it has the same groups.
        """
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
        """Return the groups of the answer; those that certainly hold no record are left out."""
        counts = self.scope.groups and not self._records_column.kind
        estimates = self._records_column.estimates.items()
        return [key for key, one in estimates if not (counts and one.least is None and one.is_fixed and one.high == 0)]

    def may_be_empty(self, key: Key) -> bool:
        """Return whether the bounds of a group's number of records allow that it holds none."""
        one = self._records_column.estimates[key]
        least = one.low if one.least is None else one.least
        return bool(self.scope.groups) and not self._records_column.kind and (least is None or least < 1)

    @property
    def existence_rests_on(self) -> RestsOn:
        """Return how reliable it is that the groups of the answer exist, that is, have a record.

        Groups that the answer marks as possibly empty do not count. It is ``exact`` if the release holds the groups
        exactly, or if all of them are so marked.
        """
        column = self._records_column
        sure = not self.scope.groups or column.kind or all(map(self.may_be_empty, self.group_keys))
        return "exact" if sure else column.if_any

    def _read_exact(self, put: Sequence[tuple[AggregateCall, CountQuery]]) -> list[AggregateColumn]:
        """Compute the aggregate functions that the release holds exactly.

        Args:
            put: The functions, each with its question.
        """
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
        """Estimate an aggregate function.

        Args:
            one: The function.
            question: Its question.
        """
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
        """Return for each group how many records an aggregate function certainly aggregates.

        If it is at least one, the function's value is not NULL. A group is left out if the number is not known.
        """
        known = [] if one.measure.operand is None else [exp.not_(is_null(exp.paren(one.measure.operand)))]
        among = all_of([part for part in (one.among, *known) if part is not None])
        asking, question = self.asking, self.scope.make_question(Measure(), among)
        certain = [name for name in asking.answers.estimators if name in asking.answers.certain]
        rows = asking.answers.answer_query(question, (*certain, asking.estimator)[0], asking.confidence)
        return {row.group: row.low for row in rows if row.low is not None and (certain or row.is_fixed)}

    def _bound_column(
        self, question: CountQuery, rows: list[Estimate], values: dict[Key, Any], kind: str = ""
    ) -> AggregateColumn:
        """Return the results of an aggregate function, with bounds widened so that they hold for the source.

        Suppressed records and rounded columns make the source differ from the release.

        Args:
            question: The question that asks for the function.
            rows: The estimates, with bounds for the release.
            values: The values of the function, by group.
            kind: The SQL type of exact values; empty for estimates.
        """
        missing = count_touching(question, self.asking.manifest)
        rows = widen_rows(question, rows, missing)
        rounded = question.measure.list_rounded(self.asking.manifest.bins)
        if rounded:
            rows = self._widen_rounded(question, rounded, rows)
        rests = weaken_grounds(self.asking.answers.rests_on(question, self.asking.estimator), rows, missing)
        rows = [replace(row, std_error=None) if row.is_fixed and not row.is_of_some else row for row in rows]
        return AggregateColumn(values, {row.group: row for row in rows}, rests, missing, kind)

    def _widen_rounded(
        self, question: CountQuery, rounded: Mapping[str | None, Bins], rows: list[Estimate]
    ) -> list[Estimate]:
        """Widen the bounds of a function of rounded or cut columns so that they hold for the source.

        A rounded number differs by half a step at most. A number that was cut, that is, published as an end, may lie
        anywhere beyond it. So an estimate that depends on it has no bound on that side. For an expression of several
        columns the bounds are dropped, unless none of the aggregated numbers was rounded or cut.

        Args:
            question: The question that asks for the function.
            rounded: The bins of the columns, by name.
            rows: The estimates, with bounds for the release.
        """
        asking, kind = self.asking, question.measure.kind
        places = [i for i, group in enumerate(question.groups) if group.side == "qi"]
        ends = {name: self._count_ends(question, name, bins) for name, bins in rounded.items() if name is not None}

        def find_ends(name: str, key: Key) -> tuple[int, int, int]:
            """Return how many records of a group are at a column's lower end, at its upper end, and have any number.

            Numbers beyond an end were published as that end. If the counts are unknown, the result is (1, 1, 1), so
            that both bounds are dropped.
            """
            return (1, 1, 1) if ends[name] is None else (ends[name] or {}).get(tuple(key[i] for i in places), (0, 0, 0))

        bins = rounded.get(question.measure.column)
        if bins is None:
            plain = all(one.only_cuts for one in rounded.values())
            kept = [plain and not any(any(find_ends(name, one.group)[:2]) for name in ends) for one in rows]
            return [
                one if as_it_is else replace(one, low=None, high=None, std_error=one.std_error or None)
                for one, as_it_is in zip(rows, kept, strict=True)
            ]
        half = float(bins.half)
        steps: dict[Key, float] = {}
        if kind == "sum" and half:
            counted = replace(question, measure=Measure())
            numbers = asking.answers.answer_query(counted, asking.estimator, asking.confidence)
            steps = {row.group: half * float(row.high or 0) for row in numbers}
        wide = []
        for one in rows:
            lowest, highest, everyone = find_ends(question.measure.column or "", one.group)
            if kind == "median":  # the middle is moved by an end that half of the records have
                lowest, highest = (count if 2 * count >= everyone else 0 for count in (lowest, highest))
            open_low = lowest > 0 and kind != "max"
            open_high = highest > 0 and kind != "min"
            if not (half or open_low or open_high):
                wide.append(one)
                continue
            step = steps.get(one.group, half)
            low, high = (
                None if end is None else float(end) + way * step for end, way in ((one.low, -1), (one.high, 1))
            )
            low, high = None if open_low else low, None if open_high else high
            wide.append(replace(one, low=low, high=high, std_error=one.std_error or None))
        return wide

    def _count_ends(self, question: CountQuery, name: str, bins: Bins) -> dict[Key, tuple[int, int, int]] | None:
        """Return for each group how many records lie at the ends at which a column was cut.

        Numbers beyond an end were published as that end. Conditions on sensitive columns are left out, so the counts
        may be too large, but never too small. They decide which bounds must be dropped.

        Args:
            question: The question.
            name: The column.
            bins: Its bins, with the ends.

        Returns:
            By the group's quasi-identifiers: the records at the lowest number, those at the highest one, and all
            records with a number. None if the release does not hold these columns exactly.
        """
        groups = tuple(group for group in question.groups if group.side == "qi")
        filters: dict[Side, list[exp.Expr]] = {"qi": question.filters["qi"], "sa": []}
        terms: dict[Side, list[tuple[str, exp.Expr]]] = {"qi": [], "sa": []}
        counted = replace(question, groups=groups, filters=filters, terms=terms, predicate=None, measure=Measure())
        if not self.asking.answers.holds_exactly(counted):
            return None
        kind = next(field.type for field in self.asking.manifest.quasi_identifiers if field.name == name)

        def count_if(compare: type[exp.Binary], end: Decimal | None) -> exp.Expr:
            if end is None:
                return exp.Literal.number(0)
            number = exp.cast(exp.Literal.string(format(end, "f")), kind, dialect=DIALECT)
            met = exp.Case(ifs=[exp.If(this=compare(this=column(name), expression=number), true=exp.Literal.number(1))])
            return exp.Count(this=met)

        functions = [count_if(exp.LTE, bins.bottom), count_if(exp.GTE, bins.top), exp.Count(this=column(name))]
        rows = self.asking.db.rows(exact_statement(counted, table(self.asking.answers.records), functions))
        return {tuple(map(same_nan, row[:-3])): (int(row[-3]), int(row[-2]), int(row[-1])) for row in rows}

    @cached_property
    def open_rounded(self) -> list[tuple[AggregateCall, str]]:
        """Return the aggregate functions that lack a bound because their column is cut, each with the column's name.

        In a cut column, numbers beyond an end are published as that end.
        """
        found = []
        for i, one in enumerate(self.asking.statement.calls):
            names = one.measure.list_rounded(self.asking.manifest.bins)
            figures = self.columns[i].estimates.values()
            if any(row.estimate is not None and None in (row.low, row.high) for row in figures):
                found += [(one, name) for name in names if name is not None]
        return found

    def find_estimate(self, number: int, key: Key) -> Estimate:
        """Return value, standard error and bounds of an aggregate function for a group.

        Args:
            number: The number of the function.
            key: The group.
        """
        known = self.columns[number].estimates.get(key)
        return known or Estimate(key, *self.asking.calls[number].measure.empty_figures)

    def aggregate_estimate(self, number: int, key: Key) -> AggregateEstimate:
        """Return an aggregate function's value and errors for a group, to compute errors of arithmetic with it."""
        one, column = self.find_estimate(number, key), self.columns[number]
        counted = self.asking.calls[number].measure.kind in COUNTS
        certain = column.if_any in CERTAIN and one.is_of_some
        left = column.touching if counted and one.high is not None and key in column.estimates else 0
        low, high = (None if end is None else float(end) for end in (one.low, one.high))
        null = not column.kind and not one.is_of_some
        return AggregateEstimate(float(one.estimate or 0), one.std_error, low, high, certain, left, null)

    # How two of them vary together ---

    def _count_variance(self, among: exp.Expr | None, columns: tuple[str, ...], key: Key) -> float | None:
        """Return the error variance of a count of records that also meet a condition; None if it is unknown.

        Args:
            among: The condition; None for all records of the query.
            columns: The columns whose noisy table the count is estimated from, so that its error is correlated with
                that of another count (``Answers.comparison_columns``); empty where errors do not differ by table.
            key: The group.
        """
        known = (among, columns)
        if known not in self._variances:
            question = replace(self.scope.make_question(Measure(), among), comparison_columns=columns)
            rows = self.asking.answers.answer_query(question, self.asking.estimator, self.asking.confidence)
            errors = {row.group: row.std_error for row in rows}
            self._variances[known] = {key: one if one is None else one**2 for key, one in errors.items()}
        return self._variances[known].get(key, 0.0)

    def correlation(self, j: int, k: int, key: Key) -> float | None:
        """Return the correlation of the errors of two aggregate functions; None if it is unknown.

        Args:
            j: The number of the first function.
            k: The number of the second function.
            key: The group of the answer.
        """
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
        """Return (part, whole) if one of two counts counts only records that the other one counts; None otherwise.

        Args:
            chosen: The numbers of two aggregate functions.
        """
        calls = [self.asking.calls[i] for i in chosen]
        if len(calls) != 2 or any(one.measure.kind != "count" for one in calls):
            return None
        for part, whole in ((0, 1), (1, 0)):
            if _implies(calls[part].among, calls[whole].among):
                return chosen[part], chosen[whole]
        return None


def _implies(one: exp.Expr | None, other: exp.Expr | None) -> bool:
    """Return whether all records that meet condition ``one`` provably meet ``other``; None is met by all records.

    Both are compared as conditions joined by AND. Each one in ``other`` must also stand in ``one``; of an OR in
    ``other``, one branch suffices.
    """
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
    """Return the condition ``one AND NOT other``; None if no record can meet it.

    Args:
        one: A condition; None if all records meet it.
        other: Another condition; None if all records meet it.
    """
    if other is None or one == other:
        return None
    outside = exp.not_(exp.Is(this=exp.paren(other), expression=exp.true()))
    return outside if one is None else exp.and_(one, outside)
