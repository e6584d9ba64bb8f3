"""Build the rows of an answer from the results of its aggregate functions: expressions, HAVING, ORDER BY and LIMIT."""

from __future__ import annotations

import datetime as dt
import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql.answers import arithmetic
from privsql.answers.answer import Answer, Figure
from privsql.answers.evaluate_select import AggregateColumn
from privsql.answers.sql.grammar import MONOTONE, list_items
from privsql.answers.sql.question import WINDOWS, Group, Output, as_text, is_number, list_aggregate_numbers, sides_of
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, Field, alias_as, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.model.estimates import (
    FIGURES,
    WEAKEST,
    Estimate,
    RestsOn,
    are_equal,
    as_number,
    exact_estimate,
    find_weakest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from threading import Event

    from privsql.answers.evaluate_select import GroupedBy, SelectEvaluation
    from privsql.answers.sql.compiler import ItemGroups, UnionParts
    from privsql.answers.sql.question import AggregateCall

# Limits ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuestionLimits:
    """The limits on the cost of one query.

    Attributes:
        seconds: The longest time that the engine may take.
        rows: The largest number of estimates: the number of rows, times that of aggregate functions in a row.
        stop: An event that ends the query at once, when nobody waits for it any more; None without one.
    """

    seconds: float
    rows: int
    stop: Event | None = None

    def refuse_large(self, asking: SelectEvaluation) -> None:
        """Refuse a query that could have too many rows, before anything is estimated.

        Raises:
            UsageError: The groups could give more than ``rows``.
        """
        total = 0
        for chosen in asking.statement.sets:  # no more groups than those of the records, times the sensitive values
            groups = asking.statement.scope.select_groups(chosen).groups
            bound = _count_distinct(asking, [one for one in groups if one.side == "qi"])
            for one in groups:
                bound *= _count_distinct(asking, [one]) if one.side == "sa" else 1
            total += bound
        figures = max(1, len(asking.statement.calls))
        if total * figures > self.rows:
            each = f" of {figures} figures" if figures > 1 else ""
            raise UsageError(
                f"the answer could have {total:,} rows{each}, more than {self.rows:,}; group by fewer columns, or by "
                "ranges"
            )


def _count_distinct(asking: SelectEvaluation, groups: Sequence[Group]) -> int:
    """Return how many groups some GROUP BY expressions make.

    All of them are over quasi-identifiers, or all sensitive.
    """
    if not groups:
        return 1
    of_records = groups[0].side == "qi"
    place = table(asking.answers.records if of_records else asking.answers.values)
    records = asking.statement.scope.make_question().join_lookups(place) if of_records else place
    keys: list[exp.Expr] = [exp.paren(one.term.copy()) for one in groups]
    return int(asking.db.rows(fill("query/groups", {"records": records, "keys": keys}))[0][0])


# Present --------------------------------------------------------------------------------------------------------------
# The rows of an answer: expressions over groups and aggregate functions, HAVING, ORDER BY and LIMIT.
#
# The engine evaluates, filters and sorts, so that values compare as they do in the data.

READERS: dict[str, Callable[[str], Any]] = {
    "DATE": dt.date.fromisoformat,
    "TIME": dt.time.fromisoformat,
    "TIMESTAMP": dt.datetime.fromisoformat,
    "TIMESTAMP WITH TIME ZONE": dt.datetime.fromisoformat,
}
EXACT = 2.0**53  # below which doubles are all whole numbers
MOST_VARYING = 8  # aggregate functions of an expression of which it is asked how they vary together
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Cell:
    """The figures of one estimated column in one row.

    Attributes:
        figures: Estimate, standard error, low and high.
        rests_on: How reliable the bounds are.
        if_any: How reliable they are on condition that there is a record to aggregate.
        may_be_null: Whether there may be no record to aggregate, so that the true value is NULL.
    """

    figures: tuple[Any, ...]
    rests_on: RestsOn
    if_any: RestsOn
    may_be_null: bool = False


class AnswerBuilder:
    """A builder of the answer to a SELECT.

    Args:
        asking: The SELECT, put to the release.
        fields: The names and types that the engine gives the columns of the answer if it runs the SELECT on the source.
    """

    def __init__(self, asking: SelectEvaluation, fields: Sequence[Field]) -> None:
        self._asking, self._fields = asking, fields
        self._outputs = asking.statement.outputs
        for output in self._outputs:
            holds = asking.answers.holds_exactly
            numbers = output.aggregate_numbers if output.single_aggregate is None else ()
            if any(i >= WINDOWS or not holds(asking.grouped_questions[i]) for i in numbers):
                arithmetic.check_arithmetic(output.expression, output.written)
        self._sets = [asking.group_by(chosen) for chosen in asking.statement.sets]
        self._listed = [(one, key) for one in self._sets for key in one.group_keys]
        self._types = self._type_columns()
        if asking.statement.windows:
            self._add_windows()
            self._types = self._type_columns()

    @property
    def open_rounded(self) -> list[tuple[AggregateCall, str]]:
        """Return the aggregate functions that lack a bound because their column is cut, each with the column's name.

        In a cut column, numbers beyond an end are published as that end.
        """
        return [pair for one in self._sets for pair in one.open_rounded]

    # Columns ---

    def name_columns(self) -> tuple[tuple[str, ...], tuple[Figure, ...]]:
        """Return the names of the answer's columns, and the estimated columns among them.

        Raises:
            UsageError: Two columns have the same name.
        """
        names: list[str] = []
        figures = []
        shown = [output for output in self._outputs if output.aggregate_numbers and not output.bound]
        is_unnamed = len(shown) == 1 and not shown[0].alias
        for k, output in enumerate(self._outputs):
            name = output.alias or (output.written if output.bound else self._fields[k].name)
            if output.aggregate_numbers and not output.bound:
                figures.append(self._make_figure(k, "estimate" if is_unnamed else name, len(names)))
                names += FIGURES if is_unnamed else [name, *(f"{name}_{part}" for part in FIGURES[1:])]
            else:
                names.append(name)
        folded = [fold_name(name) for name in names]
        for name in names:
            if folded.count(fold_name(name)) > 1:
                raise UsageError(f"two columns of the answer are called {name!r}; give one an alias")
        return tuple(names), tuple(figures)

    def _make_figure(self, k: int, name: str, at: int) -> Figure:
        output = self._outputs[k]
        columns = [one.columns[i] for one in self._sets for i in output.aggregate_numbers]
        cells = columns if output.single_aggregate is not None or not self._cells[k] else self._cells[k]
        rests, if_any = (find_weakest(one.rests_on for one in cells), find_weakest(one.if_any for one in cells))
        if any(one.least is None for column in columns for one in column.estimates.values()):
            rests = find_weakest((rests, *(one.existence_rests_on for one in self._sets)))
        if rests == "exact" and any(self._empty_groups):
            rests = "certain"  # 0 is true of a group that the source lacks, but the row is not in its answer
        return Figure(name, at, rests, max(one.touching for one in columns), if_any)

    def bounds_rest_on(self) -> RestsOn:
        """Return how reliable the bounds are that the query selects as columns of their own, such as ``low(..)``."""
        rests = [one.rests_on for k, output in enumerate(self._outputs) if output.bound for one in self._cells[k]]
        return find_weakest(rests)

    def rows_rest_on(self) -> RestsOn:
        """Return how reliable the choice of rows is.

        HAVING, QUALIFY, and ORDER BY with LIMIT may choose rows by estimates.
        """
        statement = self._asking.statement
        limited = statement.limit is not None or statement.offset is not None
        chosen = [statement.having, statement.qualify, *(one.this for one in statement.order if limited)]
        numbers = {i for one in chosen if one is not None for i in list_aggregate_numbers(one)}
        return find_weakest(one.columns[i].rests_on for one in self._sets for i in numbers)

    # Rows ---

    def build_rows(self) -> Rows:
        """Return the rows of the answer, in which an estimate is followed by standard error, low and high."""
        parts: list[Sequence[Any]] = []
        for k, output in enumerate(self._outputs):
            if output.bound:
                place = FIGURES.index(output.bound)
                parts.append([one.figures[place] for one in self._cells[k]])
            elif output.aggregate_numbers:
                parts += zip(*(one.figures for one in self._cells[k]), strict=True) if self._cells[k] else [()] * 4
            else:
                parts.append(self._values_of(k))
        return list(zip(*parts, strict=True))

    def may_be_empty(self) -> tuple[bool, ...]:
        """Return for each row whether its group, or what one of its figures aggregates, may hold no record."""
        open_ones = [[one.may_be_null for one in cells] for cells in self._cells.values()]
        return tuple(any(row) for row in zip(self._empty_groups, *open_ones, strict=True))

    @cached_property
    def _empty_groups(self) -> list[bool]:
        """Return for each row whether its group may hold no record."""
        return [by.may_be_empty(key) for by, key in (self._listed[rank] for rank, *_ in self._evaluated_rows)]

    def _values_of(self, k: int) -> list[Any]:
        return _read_moments(self._output_type(k), [row[k + 1] for row in self._evaluated_rows])

    @cached_property
    def _cells(self) -> dict[int, list[Cell]]:
        """Return the figures in each row of every estimated column, by the index of the column."""
        rows = self._evaluated_rows
        return {
            k: [self._make_cell(k, row[0], value) for row, value in zip(rows, self._values_of(k), strict=True)]
            for k, output in enumerate(self._outputs)
            if output.aggregate_numbers
        }

    def _name_constants(self, by: GroupedBy, key: tuple[Any, ...]) -> dict[str, Any]:
        """Return the values of GROUP BY in a row, by the names ``g_0``, .. that stand for them in expressions."""
        chosen = next(groups for one, groups in zip(self._sets, self._asking.statement.sets, strict=True) if one is by)
        return {f"g_{g}": value for g, value in zip(chosen, key, strict=True)}

    def _make_cell(self, k: int, rank: int, value: Any) -> Cell:
        output, (by, key) = self._outputs[k], self._listed[rank]
        if output.single_aggregate is None:
            constants = self._name_constants(by, key)
            cell = _combine_cell(
                replace(output, expression=_put_constants(output.expression, constants)), by, key, value
            )
            return _as_whole(cell) if self._fields[k].type.endswith("INT") else cell
        column, one = by.columns[output.single_aggregate], by.find_estimate(output.single_aggregate, key)
        null = not column.kind and not one.is_of_some
        if is_number(self._types[f"a_{output.single_aggregate}"]):
            figures = (one.estimate, one.std_error, one.low, one.high)
        else:
            low, high = (value if end is not None else None for end in (one.low, one.high))
            figures = (value, one.std_error, low, high)
        return Cell(figures, column.rests_on, column.if_any, null)

    @cached_property
    def _evaluated_rows(self) -> Rows:
        """Return the rows that HAVING, QUALIFY and LIMIT keep, in order: a number of the row, then its outputs."""
        db, statement = self._asking.db, self._asking.statement
        groups = [f"g_{i}" for i in range(len(statement.scope.groups))]
        with self._store_rows() as stored:
            inner, conditions = stored, [one for one in (statement.having, statement.qualify) if one is not None]
            if statement.unique is not None:
                order = exp.Order(expressions=[exp.Ordered(this=column("rank"), nulls_first=False)])
                first = exp.Window(this=exp.RowNumber(), partition_by=list(statement.unique), order=order)
                numbered = exp.select("*", alias_as(first, "nth")).from_(stored)
                inner = numbered.where(*conditions).subquery("found")
                conditions = [column("nth").eq(exp.Literal.number(1))]
            outputs = []
            for k, output in enumerate(self._outputs):
                value = output.expression.copy()
                value = exp.cast(value, "VARCHAR") if as_text(self._output_type(k)) else value
                outputs.append(alias_as(value, f"o_{k}"))
            chosen = exp.select(column("rank"), *outputs).from_(inner).where(*conditions)
            last = [exp.Ordered(this=column(name), nulls_first=False) for name in (*groups, "rank")]
            chosen = chosen.order_by(*statement.order, *last)
            chosen = chosen.limit(statement.limit) if statement.limit is not None else chosen
            chosen = chosen.offset(statement.offset) if statement.offset is not None else chosen
            rows = db.rows(self._divide_by_some(chosen))
        if statement.unique == () and not rows and not (statement.limit == 0 or statement.offset):
            raise UsageError("the subquery has no rows to aggregate; run it alone")
        return rows

    @contextmanager
    def _store_rows(self) -> Iterator[exp.Subquery]:
        """Give the engine a table of the rows before HAVING, within a ``with``, to compute outputs from.

        Its columns are the groups, the aggregate functions and their bounds.
        """
        data: dict[str, Any] = {"rank": pa.array(range(len(self._listed)), pa.int64())}
        data |= {name: _as_array(values) for name, values in self._list_columns().items()}
        self._asking.db.register_arrow("found", pa.table(data))
        items = [alias_as(exp.cast(column(name), _build_type(kind)), name) for name, kind in self._types.items()]
        yield exp.select(column("rank"), *items).from_(temp_table("found")).subquery("found")
        self._asking.db.drop("found")

    def _add_windows(self) -> None:
        """Evaluate the window functions over the rows that HAVING keeps, and add them to the aggregate functions.

        If a window function increases with its argument, such as a sum, its bounds are its values at the argument's
        bounds.
        """
        statement, db = self._asking.statement, self._asking.db
        bounds = [(_of_bound(one, "l"), _of_bound(one, "h")) for one in statement.windows]
        outputs = [alias_as(one.copy(), f"{end}_{k}")
                   for k, (window, (low, high)) in enumerate(zip(statement.windows, bounds, strict=True))
                   for end, one in zip("vlh", (window, low, high), strict=True)]  # fmt: skip
        with self._store_rows() as inner:
            query = exp.select(column("rank"), *outputs).from_(inner)
            query = query.where(statement.having) if statement.having is not None else query
            query = self._divide_by_some(query)
            fields, rows = db.list_fields(query), db.rows(query)
        sure = all(one.existence_rests_on == "exact" for one in self._sets)
        sure = sure and not any(by.may_be_empty(key) for by, key in self._listed)
        for k, window in enumerate(statement.windows):
            columns = [one.columns[i] for one in self._sets for i in list_aggregate_numbers(window)]
            touching = max((one.touching for one in columns), default=0)
            if_any = find_weakest(one.rests_on for one in columns)
            exact = sure and if_any == "exact"
            if isinstance(bounds[k][0], exp.Null) and not exact:
                if_any = "point"
            elif not sure:
                if_any = "interval"
            kind = fields[3 * k + 1].type if exact else ""
            placed = [AggregateColumn({}, {}, if_any, touching, kind) for _ in self._sets]
            for one, to in zip(self._sets, placed, strict=True):
                one.columns[WINDOWS + k] = to
            for rank, *figures in rows:
                by, key = self._listed[rank]
                value, low, high = figures[3 * k : 3 * k + 3]
                to = by.columns[WINDOWS + k]
                to.values[key] = value
                to.estimates[key] = exact_estimate(key, value) if exact else Estimate(key, value, None, low, high)

    def _divide_by_some(self, query: exp.Select) -> exp.Select:
        """Rewrite a query so that division by an estimate of 0 gives NULL, since a share of no records is undefined."""
        estimated = {f"a_{i}" for one in self._sets for i, column in one.columns.items() if not column.kind}
        for node in list(query.find_all(exp.Div)):
            if any(item.name in estimated for item in node.expression.find_all(exp.Column)):
                divisor = exp.paren(node.expression.copy())
                node.set("expression", exp.Nullif(this=divisor, expression=exp.Literal.number(0)))
        return query

    def _output_type(self, k: int) -> str:
        """Return the SQL type of the output with index ``k``; a numeric figure is a double."""
        number = self._outputs[k].single_aggregate
        return self._fields[k].type if number is None else self._types[f"a_{number}"]

    def _type_columns(self) -> dict[str, str]:
        """Return the SQL types of groups and aggregate functions by name; estimates are doubles."""
        groups = self._asking.typed_scope.groups
        types = {f"g_{i}": group.type for i, group in enumerate(groups)}
        types |= {f"k_{i}": "BIGINT" for i in range(len(groups))}
        for i in self._sets[0].columns:
            kinds = {one.columns[i].kind for one in self._sets}
            types[f"a_{i}"] = kinds.pop() if len(kinds) == 1 and "" not in kinds else "DOUBLE"
            types |= {f"{end}_{i}": "DOUBLE" for end in "lhs"} if is_number(types[f"a_{i}"]) else {}
        return types

    def _list_columns(self) -> dict[str, list[Any]]:
        """Return the columns from which the engine computes outputs, HAVING and ORDER BY, by name.

        They are the values of groups (``g_0``, ..) and aggregate functions (``a_0``, ..), and the latter's bounds and
        standard errors. A group outside of the row's grouping set is NULL.
        """
        statement, columns = self._asking.statement, dict[str, list[Any]]()
        chosen = {id(one): groups for one, groups in zip(self._sets, statement.sets, strict=True)}
        for g in range(len(statement.scope.groups)):
            rows = [(chosen[id(one)], key) for one, key in self._listed]
            columns[f"g_{g}"] = [key[groups.index(g)] if g in groups else None for groups, key in rows]
            columns[f"k_{g}"] = [int(g not in groups) for groups, _ in rows]
        for i in self._sets[0].columns:
            nothing = self._asking.calls[i].measure.empty_figures[0]
            columns[f"a_{i}"] = [one.columns[i].values.get(key, nothing) for one, key in self._listed]
            if f"l_{i}" in self._types:
                found = [one.find_estimate(i, key) for one, key in self._listed]
                columns[f"l_{i}"] = [_as_double(one.low) for one in found]
                columns[f"h_{i}"] = [_as_double(one.high) for one in found]
                columns[f"s_{i}"] = [one.std_error for one in found]
        return columns


def list_records(asking: SelectEvaluation, fields: Sequence[Field]) -> Rows:
    """Return some records of a release, in the columns of a query that aggregates nothing; sensitive columns are NULL.

    Args:
        asking: The query, put to the release.
        fields: The columns of the query.
    """
    statement, db = asking.statement, asking.db
    question = statement.scope.make_question()
    outputs = []
    for output, one in zip(statement.outputs, fields, strict=True):
        known = "sa" not in sides_of(output.expression, statement.scope.sides)
        value = output.expression.copy() if known else exp.cast(exp.null(), _build_type(one.type))
        outputs.append(exp.cast(value, "VARCHAR") if as_text(one.type) else value)
    named = [alias_as(value, f"o_{k}") for k, value in enumerate(outputs)]
    records = exp.select(*named).from_(question.join_lookups(table(asking.answers.records)))
    records = records.where(statement.scope.where.copy()) if statement.scope.where is not None else records
    records = records.order_by(*(one.copy() for one in statement.order)) if statement.order else records
    records = records.offset(statement.offset) if statement.offset else records
    rows = db.rows(records.limit(0 if statement.limit is None else statement.limit))
    columns = [_read_moments(one.type, [row[k] for row in rows]) for k, one in enumerate(fields)]
    return list(zip(*columns, strict=True))


def join_answers(parts: UnionParts, answers: Sequence[Answer]) -> Answer:
    """Join the answers to the parts of a UNION ALL into one.

    Args:
        parts: The UNION, with its ORDER BY, LIMIT and OFFSET.
        answers: The answer to each part.

    Raises:
        UsageError: The parts have different columns.
    """
    first = answers[0]
    if any(
        len(one.columns) != len(first.columns) or [f.at for f in one.figures] != [f.at for f in first.figures]
        for one in answers
    ):
        raise UsageError("UNION ALL needs queries with the same groups and figures, in the same order")
    rows = [(row, mark) for one in answers for row, mark in zip(one.rows, one.may_be_empty or (), strict=False)]
    for place, descending in reversed(parts.order):
        at = first.plain_columns[place]
        known = [pair for pair in rows if pair[0][at] is not None]
        known.sort(key=lambda pair: pair[0][at], reverse=descending)
        rows = [*known, *(pair for pair in rows if pair[0][at] is None)]  # NULL comes last
    rows = rows[parts.offset :][: parts.limit]
    limited = bool(parts.order) and (parts.limit is not None or parts.offset > 0)
    chosen = find_weakest(one.rests_on if limited else one.rows_rest_on for one in answers)
    weakest = [max((one.figures[k] for one in answers), key=lambda figure: WEAKEST.index(figure.rests_on))
               for k in range(len(first.figures))]  # fmt: skip
    figures = [replace(one, name=named.name) for one, named in zip(weakest, first.figures, strict=True)]
    return replace(
        first,
        rows=[row for row, _ in rows],
        figures=tuple(figures),
        rows_rest_on=chosen,
        explained=tuple(pair for one in answers for pair in one.explained),
        may_be_empty=tuple(mark for _, mark in rows),
        hints=tuple(dict.fromkeys(hint for one in answers for hint in one.hints)),
    )


def join_items(
    items: ItemGroups,
    fields: Sequence[Field],
    labels: Sequence[object],
    answers: Sequence[Answer],
    known: Sequence[Estimate] | None = None,
) -> Answer:
    """Return one answer with a row for each item, which counts the records that hold it.

    Args:
        items: The query, with its ORDER BY and LIMIT.
        fields: The columns of the query.
        labels: The items.
        answers: The answers to the count of each item.
        known: The counts of all items if they were estimated in one step. ``answers`` then has the answer about one
            item only, for its SQL and the reliability of its bounds.
    """
    first = items.item_first
    label_field, count_field = fields if first else fields[::-1]
    counts = [one.read_row(answer.rows[0]) for answer in answers for one in answer.figures]
    if known is not None:
        counts = [(one.estimate, one.std_error, one.low, one.high) for one in known]
    weakest = max((one for answer in answers for one in answer.figures), key=lambda one: WEAKEST.index(one.rests_on))
    named = count_field.name
    figures = (named, *(f"{named}_{part}" for part in FIGURES[1:]))
    return join_answers(items.rows, [replace(
        answers[0],
        columns=(label_field.name, *figures) if first else (*figures, label_field.name),
        rows=[(label, *count) if first else (*count, label) for label, count in zip(labels, counts, strict=True)],
        figures=(replace(weakest, name=named, at=1 if first else 0),),
        explained=tuple(pair for one in answers for pair in one.explained),
        may_be_empty=tuple(count[2] is None or count[2] < 1 for count in counts),
    )])  # fmt: skip


def _put_constants(expression: exp.Expr, constants: dict[str, Any]) -> exp.Expr:
    """Return an expression with the values of a row's groups in place of their names ``g_0``, .."""

    def put(node: exp.Expr) -> exp.Expr:
        value = constants.get(node.name) if isinstance(node, exp.Column) else None
        if value is None or isinstance(value, str | bool):
            return node
        number = exp.Literal.number(abs(value))
        return exp.paren(exp.Neg(this=number)) if value < 0 else number

    return expression.copy().transform(put)


def _combine_cell(output: Output, by: GroupedBy, key: tuple[Any, ...], value: Any) -> Cell:
    """Return the figures of an output that computes with several aggregate functions, for one row.

    Args:
        output: The output.
        by: The aggregate functions by the grouping set of the row.
        key: The group of the row.
        value: The value of the output.
    """
    columns = [by.columns[i] for i in output.aggregate_numbers]
    rests = find_weakest(one.rests_on for one in columns)
    unknown = arithmetic.find_unknown_error(output.expression) is not None
    if rests == "certain" and unknown:
        rests = "point"
    if value is None:
        return Cell((None, None, None, None), rests, rests)
    if rests == "exact":
        sure = not isinstance(value, float) or math.isfinite(value)
        value = as_number(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
        return Cell((value, 0.0, value, value) if sure else (value, None, None, None), rests, rests)
    if unknown:
        known = not isinstance(value, float) or math.isfinite(value)
        return Cell((value if known else None, None, None, None), rests, rests)
    few = len(output.aggregate_numbers) <= MOST_VARYING
    parts = {i: by.aggregate_estimate(i, key) for i in output.aggregate_numbers}
    middle, *ends = arithmetic.combine_figures(
        output.expression,
        float(value),
        parts,
        lambda j, k: by.correlation(j, k, key) if few else None,
        by.find_nested(output.aggregate_numbers),
    )
    null = arithmetic.may_be_null(output.expression, parts)
    fixed = ends[1] is not None and are_equal(ends[1], ends[2]) and not ends[0]
    certain = all(one.certain for one in parts.values())
    if not fixed and not certain:
        return Cell((middle, *ends), rests, rests, null)
    if fixed and not certain:  # whatever the counts are, if only there is somebody
        calls = by.asking.statement.calls
        sure_of = {i: by.least_records(calls[i]).get(key, 0) if i < WINDOWS else 0 for i in parts}
        parts = {i: replace(one, low=float(sure_of[i]), high=None) for i, one in parts.items()}
    if_any: RestsOn = "exact" if fixed else "certain"
    if arithmetic.may_be_null(output.expression, parts):
        return Cell((middle, None if fixed else ends[0], *ends[1:]), "interval", if_any, null)
    return Cell((middle, 0.0 if fixed else ends[0], *ends[1:]), if_any, if_any, null)


def _as_whole(cell: Cell) -> Cell:
    """Turn exact figures that are whole numbers into integers, since arithmetic of counts gives doubles."""
    value, _, *ends = cell.figures
    doubt = not isinstance(value, float) or not value.is_integer() or abs(value) >= EXACT or ends != [value, value]
    return cell if doubt else replace(cell, figures=(int(value), cell.figures[1], int(value), int(value)))


def _of_bound(window: exp.Window, end: str) -> exp.Expr:
    """Return a window function over the bounds of its argument; NULL if they do not bound the function's values.

    Args:
        window: The window function.
        end: ``l`` for the lower bounds, ``h`` for the upper ones.
    """
    others = [one for key in ("partition_by", "order") for one in list_items(window.args.get(key))]
    argument = window.this.this.unnest() if isinstance(window.this, MONOTONE) else None
    if any(map(list_aggregate_numbers, others)) or not isinstance(argument, exp.Column) or argument.name[:2] != "a_":
        return exp.null()
    bound = window.copy()
    bound.this.set("this", column(f"{end}_{argument.name[2:]}"))
    return bound


def _as_double(value: Any) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)


def _build_type(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect=DIALECT)


def _as_array(values: list[Any]) -> pa.Array:
    """Return the values of a column as an Arrow array; integers beyond 64 bits become decimals."""
    try:
        return pa.array(values)
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([None if value is None else Decimal(value) for value in values])


def _read_moments(kind: str, values: list[Any]) -> list[Any]:
    """Turn the texts of a column of dates or times into Python values; return other columns as they are.

    The texts remain if Python can't represent one of the values.

    Args:
        kind: The SQL type of the column.
        values: The values, as the engine returned them.
    """
    reader = READERS.get(kind)
    if reader is None:
        return values
    try:
        return [None if value is None else reader(value) for value in values]
    except ValueError:
        return values
