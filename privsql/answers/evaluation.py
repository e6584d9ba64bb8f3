"""From a SELECT taken apart to the rows of its answer: the questions behind it, and what is made of them.

What the release holds exactly is one statement of the engine's. Every other aggregate function is a question of its
own, whose answer is the same whatever stands beside it; how far two of them vary together follows from three more:
with A and B the records that each counts, and X those of one but not of both,

    2 Cov(A, B) = Var A + Var B + Var X - 2 Var(A but not B) - 2 Var(B but not A).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from privsql.answers.aggregates import EXACT_ONLY, is_number
from privsql.answers.arithmetic import Figures
from privsql.answers.asked import Asked, Scope, Statement
from privsql.answers.conditions import sides_of
from privsql.answers.missing import rests_on, touching, widened
from privsql.answers.question import COUNTS, Measure, as_text, exact_statement
from privsql.engine.sqlfiles import every, is_null, named, some, table
from privsql.errors import UsageError
from privsql.model.estimate import Estimate, counted, decimal_scale, exactly, number, rounded, same_nan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.base import Answers
    from privsql.answers.question import CountQuery
    from privsql.engine.database import Relations
    from privsql.model.estimate import Number, RestsOn
    from privsql.model.manifest import Manifest

Key = tuple[Any, ...]
EVERYONE = Asked(Measure(), None, "COUNT(*)")
CERTAIN: tuple[RestsOn, ...] = ("exact", "certain")


@dataclass(frozen=True)
class Column:
    """What an aggregate function gives: its value and its figures by group; ``if_any``: what these rest on where there
    is any record to measure; records of the source that are not in the release and could meet its question; ``kind``:
    the value's type, empty for an estimate.
    """

    values: dict[Key, Any]
    found: dict[Key, Estimate]
    if_any: RestsOn
    touching: int
    kind: str = ""

    @property
    def rests_on(self) -> RestsOn:
        """What its figures rest on: of nobody a sum is NULL, so one that may be of nobody is not certain."""
        sure = self.if_any not in CERTAIN or all(one.is_of_some for one in self.found.values())
        return self.if_any if sure else "interval"


@dataclass(frozen=True)
class Asking:
    """A SELECT put to an open release."""

    db: Relations
    answers: Answers
    manifest: Manifest
    statement: Statement
    estimator: str
    confidence: float

    @cached_property
    def scope(self) -> Scope:
        """The records asked about, with the types of the groups as the engine has them."""
        scope = self.statement.scope
        types: dict[int, str] = {}
        for side, place in (("qi", self.answers.records), ("sa", self.answers.values)):
            own = [(i, group.own) for i, group in enumerate(scope.groups) if group.side == side]
            if own:
                records = scope.question().records(table(place)) if side == "qi" else table(place)
                fields = self.db.fields(exp.select(*(named(one.copy(), f"g_{i}") for i, one in own)).from_(records))
                types |= {i: one.type for (i, _), one in zip(own, fields, strict=True)}
        return replace(scope, groups=tuple(replace(one, type=types[i]) for i, one in enumerate(scope.groups)))

    @cached_property
    def asked(self) -> list[CountQuery]:
        """The questions by all groups; ``UsageError`` for what can't be told of them."""
        questions = [one.of(self.scope) for one in self.statement.asked]
        for one, question in zip(self.statement.asked, questions, strict=True):
            if not self.answers.holds(question) and one.measure.side == "qi" and one.measure.kind in EXACT_ONLY:
                raise UsageError(
                    f"{one.written}: it can be told only where no sensitive column is in the question; COUNT, SUM and "
                    "AVG can be estimated"
                )
            amount = one.measure.amount
            if amount is not None and not self.answers.holds(question):
                (field,) = self.db.fields(
                    exp.select(amount.copy()).from_(question.records(table(self.answers.records)))
                )
                if not is_number(field.type):
                    raise UsageError(f"{one.written}: it is {field.type}, not a number")
        return questions

    def by(self, chosen: Sequence[int]) -> GroupedBy:
        """The answers by some of the groups."""
        return GroupedBy(self, self.scope.by(chosen))


@dataclass(frozen=True)
class GroupedBy:
    """A SELECT's aggregate functions by one set of groups; ``keys``: of the rows that the answer has."""

    asking: Asking
    scope: Scope

    @cached_property
    def questions(self) -> list[CountQuery]:
        """What each aggregate function asks."""
        if self.scope.groups == self.asking.scope.groups:
            return self.asking.asked
        return [one.of(self.scope) for one in self.asking.statement.asked]

    @cached_property
    def columns(self) -> list[Column]:
        """What each aggregate function gives."""
        put = list(zip(self.asking.statement.asked, self.questions, strict=True))
        held = [i for i, (_, question) in enumerate(put) if self.asking.answers.holds(question)]
        exact = dict(zip(held, self._held([put[i] for i in held]), strict=True)) if held else {}
        return [exact.get(i) or self._estimated(*one) for i, one in enumerate(put)]

    @cached_property
    def _everyone(self) -> Column:
        """The number of records by group, or else another figure of all of them."""
        plain = [i for i, one in enumerate(self.asking.statement.asked) if one.among is None]
        whole = [i for i in plain if self.asking.statement.asked[i].measure.kind == "count"]
        if whole or plain:
            return self.columns[(whole or plain)[0]]
        question = EVERYONE.of(self.scope)
        held = self.asking.answers.holds(question)
        return self._held([(EVERYONE, question)])[0] if held else self._estimated(EVERYONE, question)

    @property
    def keys(self) -> list[Key]:
        """All groups, as the number of their records has them, but for those that certainly have none."""
        counts = self.scope.groups and not self._everyone.kind
        found = self._everyone.found.items()
        return [key for key, one in found if not (counts and one.least is None and one.is_fixed and one.high == 0)]

    def may_be_empty(self, key: Key) -> bool:
        """Whether a group may have no record, as far as the bounds of its number of records are sure."""
        one = self._everyone.found[key]
        least = one.low if one.least is None else one.least
        return bool(self.scope.groups) and not self._everyone.kind and (least is None or least < 1)

    def _held(self, put: Sequence[tuple[Asked, CountQuery]]) -> list[Column]:
        """Of functions that the release holds exactly."""
        db, records = self.asking.db, table(self.asking.answers.records)
        functions, everyone = [one.function.copy() for one, _ in put], self.scope.question()
        own, types = len(self.scope.groups), ["BIGINT"] * len(put)
        if any(one.measure.kind not in COUNTS for one, _ in put):
            types = [field.type for field in db.fields(exact_statement(everyone, records, functions))][own:]
        texts = [exp.cast(f, "VARCHAR") if as_text(t) else f for f, t in zip(functions, types, strict=True)]
        rows = db.rows(exact_statement(everyone, records, texts))
        keys = [tuple(map(same_nan, row[:own])) for row in rows]
        return [
            self._column(question, {key: row[own + i] for key, row in zip(keys, rows, strict=True)}, types[i])
            for i, (_, question) in enumerate(put)
        ]

    def _column(self, question: CountQuery, values: dict[Key, Any], kind: str) -> Column:
        shown = number if is_number(kind) else lambda value: value
        found = [exactly(key, None if value is None else shown(value)) for key, value in values.items()]
        return self._bounded(question, found, values, kind)

    def _estimated(self, one: Asked, question: CountQuery) -> Column:
        """Of one that has to be estimated."""
        asking = self.asking
        found = asking.answers.answer(question, asking.estimator, asking.confidence)
        if question.measure.kind in COUNTS:
            found = [counted(row) for row in found]
        elif any(row.is_fixed for row in found):
            least = self.fewest(one)
            found = [replace(row, least=least.get(row.group, 0)) if row.is_fixed else row for row in found]
        found = [self._decimal(question.measure, row) for row in found]
        return self._bounded(question, found, {row.group: row.estimate for row in found})

    def _decimal(self, measure: Measure, row: Estimate) -> Estimate:
        """The row with values of a DECIMAL column as such: what MIN and MAX can be, and sums that are certain."""
        roles = self.asking.manifest.roles
        types = {field.name: field.type for field in (*roles.quasi_identifiers, *roles.sensitive)}
        scale = decimal_scale(types.get(measure.column or "", ""))
        if scale is None or not (measure.kind in ("min", "max") or (measure.kind == "sum" and row.is_fixed)):
            return row
        middle, low, high = (None if one is None else rounded(one, scale) for one in (row.estimate, row.low, row.high))
        return replace(row, estimate=middle, low=low, high=high)

    def fewest(self, one: Asked) -> dict[Key, Number]:
        """The records by group that an aggregate function is of with certainty, at least; none where any may be."""
        known = [] if one.measure.of is None else [exp.not_(is_null(exp.paren(one.measure.of)))]
        among = every([part for part in (one.among, *known) if part is not None])
        asking, question = self.asking, self.scope.question(Measure(), among)
        certain = [name for name in asking.answers.estimators if name in asking.answers.certain]
        rows = asking.answers.answer(question, (*certain, asking.estimator)[0], asking.confidence)
        return {row.group: row.low for row in rows if row.low is not None and (certain or row.is_fixed)}

    def _bounded(self, question: CountQuery, found: list[Estimate], values: dict[Key, Any], kind: str = "") -> Column:
        """The same with bounds of the source."""
        missing = touching(question, self.asking.manifest)
        found = widened(question, found, missing)
        rests = rests_on(self.asking.answers.rests_on(question, self.asking.estimator), found, missing)
        found = [replace(row, std_error=None) if row.is_fixed and not row.is_of_some else row for row in found]
        return Column(values, {row.group: row for row in found}, rests, missing, kind)

    def at(self, number: int, key: Key) -> Estimate:
        """The figures of an aggregate function for a group."""
        nothing = self.asking.statement.asked[number].measure.nothing
        return self.columns[number].found.get(key) or Estimate(key, *nothing)

    def figures(self, number: int, key: Key) -> Figures:
        """The same for arithmetic."""
        one, column = self.at(number, key), self.columns[number]
        counted = self.asking.statement.asked[number].measure.kind in COUNTS
        certain = column.if_any in CERTAIN and one.is_of_some
        left = column.touching if counted and one.high is not None and key in column.found else 0
        low, high = (None if end is None else float(end) for end in (one.low, one.high))
        null = not column.kind and not one.is_of_some
        return Figures(float(one.estimate or 0), one.std_error, low, high, certain, left, null)

    # How two of them vary together ---

    @cached_property
    def _variances(self) -> dict[tuple[exp.Expr | None, tuple[str, ...]], dict[Key, float | None]]:
        return {}

    def _variance(self, among: exp.Expr | None, beside: tuple[str, ...], key: Key) -> float | None:
        """Of a count under one more condition, seen by some columns besides."""
        known = (among, beside)
        if known not in self._variances:
            asking, question = self.asking, replace(self.scope.question(Measure(), among), beside=beside)
            rows = asking.answers.answer(question, asking.estimator, asking.confidence)
            self._variances[known] = {row.group: None if row.std_error is None else row.std_error**2 for row in rows}
        return self._variances[known].get(key, 0.0)

    def correlation(self, j: int, k: int, key: Key) -> float | None:
        """Of two aggregate functions; None where it is not known."""
        one, other = (self.asking.statement.asked[i] for i in (j, k))
        errors = [self.at(i, key).std_error for i in (j, k)]
        if not all(errors):
            return 0.0 if 0 in errors else None
        if one.measure.kind != "count" or other.measure.kind != "count" or self._mixes(one) or self._mixes(other):
            return None
        beside = self.asking.answers.seen_by([part.among for part in (one, other) if part.among is not None])
        variances: list[float | None] = [(error or 0.0) ** 2 for error in errors]
        if beside:
            variances = [self._variance(part.among, beside, key) for part in (one, other)]
        left, right = _but(one.among, other.among), _but(other.among, one.among)
        both = some([part for part in (left, right) if part is not None])
        parts = [0.0 if part is None else self._variance(part, beside, key) for part in (left, right, both)]
        if None in parts or not all(variances):
            return None
        first, last, apart = (float(part or 0.0) for part in parts)
        own = [float(part or 0.0) for part in variances]
        found = (sum(own) + apart) / 2 - first - last
        return min(max(found / math.sqrt(math.prod(own)), -1.0), 1.0)

    def among(self, chosen: Sequence[int]) -> tuple[int, int] | None:
        """Of two counts of records the one that counts some of the other's first; None for any others."""
        asked = [self.asking.statement.asked[i] for i in chosen]
        if len(asked) != 2 or any(one.measure.kind != "count" for one in asked):
            return None
        whole = [i for i, one in zip(chosen, asked, strict=True) if one.among is None]
        return (sum(chosen) - whole[0], whole[0]) if len(whole) == 1 else None

    def _mixes(self, one: Asked) -> bool:
        return one.among is not None and len(sides_of(one.among, self.scope.sides)) == 2


def _but(one: exp.Expr | None, other: exp.Expr | None) -> exp.Expr | None:
    """The condition of those who meet one but not the other, where there can be any; None is the condition of all."""
    if other is None or one == other:
        return None
    outside = exp.not_(exp.Is(this=exp.paren(other), expression=exp.true()))
    return outside if one is None else exp.and_(one, outside)
