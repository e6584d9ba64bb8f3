"""Compute sums and means of a sensitive number from the counts of its values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.answers.estimate import FEWEST_DEGREES, ROUNDING, student_quantile
from privsql.answers.sql.question import Group, Measure
from privsql.engine.sqlfiles import is_null
from privsql.model.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from privsql.answers.sql.question import CountQuery

# Counts n_v of the values v have errors s_v, which are independent but for their total. So the mean m = sum v n_v / N
# has the variance sum (v - m)^2 s_v^2 / N^2: what all counts have too much or too little moves no mean. A sum is the
# mean times the number of records N, which has an error of its own where the question selects by sensitive values.

ADDED = frozenset(("sum", "avg"))
ADDED_FORMULA = "sums of the values v times their estimated counts n_v; means are sum v n_v / sum n_v"


@dataclass(frozen=True)
class ValueCounts:
    """The estimated counts of the values of a sensitive number in one group.

    Attributes:
        values: The numbers.
        counts: The estimated number of records that have each.
        errors: The standard errors of the counts.
    """

    values: list[float]
    counts: list[float]
    errors: list[float]

    def find_mean(self) -> tuple[float, float]:
        """Return the mean of the values, and its standard error."""
        values, counts, errors = (np.array(one) for one in (self.values, self.counts, self.errors))
        number = max(float(counts.sum()), ROUNDING)
        mean = float(values @ counts) / number
        return mean, float(np.sqrt(np.square((values - mean) * errors).sum())) / number


def count_by_value(query: CountQuery) -> CountQuery:
    """Return the question that asks how many records have each value of the column that ``query`` sums or averages."""
    operand = query.measure.operand
    if operand is None:
        raise TypeError(query.measure.kind)
    return replace(query, groups=(*query.groups, Group("sa", operand, "DOUBLE")), measure=Measure())


def add_values(query: CountQuery, count: Callable[[CountQuery], list[Estimate]], confidence: float) -> list[Estimate]:
    """Answer a sum or mean of a sensitive number from the counts of its values.

    Args:
        query: The question.
        count: A function that answers a question for counts.
        confidence: The confidence of the intervals.
    """
    by_value = count_by_value(query)
    grouped: dict[tuple[Any, ...], ValueCounts] = {}
    for row in count(by_value):
        *key, value = row.group
        if value is not None and row.estimate is not None and not isnan(float(value)):
            known = grouped.setdefault(tuple(key), ValueCounts([], [], []))
            known.values.append(float(value))
            known.counts.append(float(row.estimate))
            known.errors.append(row.std_error or 0.0)
    filters = query.filters | {"sa": [*query.filters["sa"], exp.not_(is_null(by_value.groups[-1].term.copy()))]}
    numbers = {row.group: row for row in count(replace(query, filters=filters, measure=Measure()))}
    rows = [_add_group(query, key, one, numbers.get(key), confidence) for key, one in grouped.items()]
    return rows or ([] if query.groups else [Estimate((), *query.measure.empty_figures)])


def _add_group(
    query: CountQuery, key: tuple[Any, ...], held: ValueCounts, number: Estimate | None, confidence: float
) -> Estimate:
    if number is None or not number.estimate or sum(held.counts) <= ROUNDING:
        return Estimate(key, *query.measure.empty_figures, 0.0)
    mean, error = held.find_mean()
    low, high = min(held.values), max(held.values)
    if query.measure.kind == "sum":
        records, spread = float(number.estimate), number.std_error or 0.0
        error = sqrt((error * records) ** 2 + (mean * spread) ** 2)
        most = float(records if number.high is None else number.high)
        mean, low, high = mean * records, min(low * most, 0.0), max(high * most, 0.0)
    reach = float(student_quantile((1 - confidence) / 2, max(len(held.values) - 1, FEWEST_DEGREES)))
    error = min(error, (high - low) / 2)
    return Estimate(key, mean, error, max(mean - reach * error, low), min(mean + reach * error, high), number.low)
