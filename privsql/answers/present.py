"""Build the rows of an answer: expressions, HAVING, ORDER BY and LIMIT, within the limits of one question."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql.answers import evaluate_select
from privsql.answers.aggregates import is_number
from privsql.answers.answer import WEAKEST, Figure
from privsql.answers.question import as_text
from privsql.engine.files import fold_name
from privsql.engine.sqlfiles import DIALECT, alias_as, column, fill, table, temp_table
from privsql.errors import UsageError
from privsql.model.manifest import FIGURES, are_equal, as_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from privsql.answers.aggregates import Output
    from privsql.answers.evaluate_select import GroupedBy, SelectEvaluation
    from privsql.answers.question import Group
    from privsql.engine.roles import Field
    from privsql.model.manifest import RestsOn

# Limits ---------------------------------------------------------------------------------------------------------------
# Limits of one question: seconds of the engine, and rows of the answer.


@dataclass(frozen=True)
class QuestionLimits:
    """``seconds`` that the engine may take for a question, and ``rows`` that its groups could give.

    Where a row has several aggregate functions each counts as a row: it is a question of its own.
    ``stop`` ends a question at once: nobody waits for it any more.
    """

    seconds: float
    rows: int
    stop: Event | None = None

    def refuse_large(self, asking: SelectEvaluation) -> None:
        """Raise ``UsageError`` for a question whose groups could give more rows, before any of them is estimated."""
        total = sum(_bound_groups(asking, chosen) for chosen in asking.statement.sets)
        figures = max(1, len(asking.statement.calls))
        if total * figures > self.rows:
            each = f" of {figures} figures" if figures > 1 else ""
            raise UsageError(
                f"the answer could have {total:,} rows{each}, more than {self.rows:,}; group by fewer columns, or by "
                "ranges"
            )


def _bound_groups(asking: SelectEvaluation, chosen: Sequence[int]) -> int:
    """Return a number that is not exceeded by that of the groups: those of the records, times the sensitive values."""
    groups = asking.statement.scope.select_groups(chosen).groups
    bound = _count_distinct(asking, [one for one in groups if one.side == "qi"])
    for one in groups:
        if one.side == "sa":
            bound *= _count_distinct(asking, [one])
    return bound


def _count_distinct(asking: SelectEvaluation, groups: Sequence[Group]) -> int:
    """Return how many groups some expressions of one side make."""
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
    """Estimate, standard error, low and high in a row; what they rest on, and would if there were surely any record to
    measure; ``may_be_null``: whether there may be none.
    """

    figures: tuple[Any, ...]
    rests_on: RestsOn
    if_any: RestsOn
    may_be_null: bool = False


class AnswerBuilder:
    """A SELECT's answer; ``fields``: names and types of its columns, as the engine would have them on the source."""

    def __init__(self, asking: SelectEvaluation, fields: Sequence[Field]) -> None:
        self._asking, self._fields = asking, fields
        self._outputs = asking.statement.outputs
        for output in self._outputs:
            self._check_output(output)
        self._sets = [asking.group_by(chosen) for chosen in asking.statement.sets]
        self._listed = [(one, key) for one in self._sets for key in one.group_keys]

    def _check_output(self, output: Output) -> None:
        """Raise ``UsageError`` for arithmetic of estimates that has no known error."""
        estimated = [
            i
            for i in output.aggregate_numbers
            if not self._asking.answers.holds_exactly(self._asking.grouped_questions[i])
        ]
        if estimated and output.single_aggregate is None:
            evaluate_select.check_arithmetic(output.expression, output.written)

    # Columns ---

    @property
    def _is_alone(self) -> bool:
        """Return whether there is one figure, and it has no name."""
        outputs = [output for output in self._outputs if output.aggregate_numbers]
        return len(outputs) == 1 and not outputs[0].alias

    def name_columns(self) -> tuple[tuple[str, ...], tuple[Figure, ...]]:
        """Names of the columns, and the figures among them; ``UsageError`` for two of one name."""
        names: list[str] = []
        figures = []
        for k, output in enumerate(self._outputs):
            name = output.alias or self._fields[k].name
            if output.aggregate_numbers:
                figures.append(self._make_figure(k, "estimate" if self._is_alone else name, len(names)))
                names += FIGURES if self._is_alone else [name, *(f"{name}_{part}" for part in FIGURES[1:])]
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
        if output.single_aggregate is not None or not self._cells[k]:
            known = [(one.rests_on, one.if_any) for one in columns]
        else:
            known = [(one.rests_on, one.if_any) for one in self._cells[k]]
        rests, if_any = (max(part, key=WEAKEST.index) for part in zip(*known, strict=True))
        if any(one.least is None for column in columns for one in column.estimates.values()):
            rests = max(rests, *(one.existence_rests_on for one in self._sets), key=WEAKEST.index)
        if rests == "exact" and any(self._empty_groups):
            rests = "certain"  # 0 is true of a group that the source lacks, but the row is not in its answer
        return Figure(name, at, rests, max(one.touching for one in columns), if_any)

    # Rows ---

    def build_rows(self) -> Rows:
        """Return the rows, each with the four columns of every figure."""
        parts: list[Sequence[Any]] = []
        for k, output in enumerate(self._outputs):
            if output.aggregate_numbers:
                parts += zip(*(one.figures for one in self._cells[k]), strict=True) if self._cells[k] else [()] * 4
            else:
                parts.append(self._values_of(k))
        return list(zip(*parts, strict=True))

    def may_be_empty(self) -> tuple[bool, ...]:
        """Return for every row whether it, or a figure of it, may be of no record."""
        open_ones = [[one.may_be_null for one in cells] for cells in self._cells.values()]
        return tuple(any(row) for row in zip(self._empty_groups, *open_ones, strict=True))

    @cached_property
    def _empty_groups(self) -> list[bool]:
        """Return for every row whether its group may have no record."""
        return [by.may_be_empty(key) for by, key in (self._listed[rank] for rank in self._row_ranks)]

    @property
    def _row_ranks(self) -> list[int]:
        return [row[0] for row in self._evaluated_rows]

    def _values_of(self, k: int) -> list[Any]:
        return _read_moments(self._output_type(k, self._outputs[k]), [row[k + 1] for row in self._evaluated_rows])

    @cached_property
    def _cells(self) -> dict[int, list[Cell]]:
        """Return the cells of every output with aggregate functions, by the output's place."""
        return {
            k: [self._make_cell(k, *one) for one in zip(self._row_ranks, self._values_of(k), strict=True)]
            for k, output in enumerate(self._outputs)
            if output.aggregate_numbers
        }

    def _make_cell(self, k: int, rank: int, value: Any) -> Cell:
        output, (by, key) = self._outputs[k], self._listed[rank]
        if output.single_aggregate is None:
            cell = _combine_cell(output, by, key, value)
            return _as_whole(cell) if self._fields[k].type.endswith("INT") else cell
        column, one = by.columns[output.single_aggregate], by.find_estimate(output.single_aggregate, key)
        null = not column.kind and not one.is_of_some
        if is_number(self._column_types[f"a_{output.single_aggregate}"]):
            figures = (one.estimate, one.std_error, one.low, one.high)
        else:
            low, high = (value if end is not None else None for end in (one.low, one.high))
            figures = (value, one.std_error, low, high)
        return Cell(figures, column.rests_on, column.if_any, null)

    @cached_property
    def _evaluated_rows(self) -> Rows:
        """Rank, and the value of every output, of the rows that remain, in order."""
        db, statement = self._asking.db, self._asking.statement
        groups = [f"g_{i}" for i in range(len(statement.scope.groups))]
        data: dict[str, Any] = {"rank": pa.array(range(len(self._listed)), pa.int64())}
        data |= {name: _as_array(values) for name, values in self._list_columns()}
        db.register_arrow("found", pa.table(data))
        items = [alias_as(exp.cast(column(name), _build_type(kind)), name) for name, kind in self._column_types.items()]
        inner = exp.select(column("rank"), *items).from_(temp_table("found")).subquery("found")
        outputs = [self._select_output(k, output) for k, output in enumerate(self._outputs)]
        chosen = exp.select(column("rank"), *outputs).from_(inner)
        if statement.having is not None:
            chosen = chosen.where(statement.having)
        last = [exp.Ordered(this=column(name), nulls_first=False) for name in (*groups, "rank")]
        chosen = chosen.order_by(*statement.order, *last)
        chosen = chosen.limit(statement.limit) if statement.limit is not None else chosen
        chosen = chosen.offset(statement.offset) if statement.offset is not None else chosen
        rows = db.rows(chosen)
        db.drop("found")
        return rows

    def _select_output(self, k: int, output: Output) -> exp.Expr:
        expression = output.expression.copy()
        return alias_as(
            exp.cast(expression, "VARCHAR") if as_text(self._output_type(k, output)) else expression, f"o_{k}"
        )

    def _output_type(self, k: int, output: Output) -> str:
        """Return the engine's type of an output; figures that are numbers are doubles."""
        return (
            self._column_types[f"a_{output.single_aggregate}"]
            if output.single_aggregate is not None
            else self._fields[k].type
        )

    @cached_property
    def _column_types(self) -> dict[str, str]:
        """Types of groups and aggregate functions; what is estimated is a double."""
        groups = self._asking.typed_scope.groups
        types = {f"g_{i}": group.type for i, group in enumerate(groups)}
        for i in range(len(self._asking.statement.calls)):
            kinds = {one.columns[i].kind for one in self._sets}
            types[f"a_{i}"] = kinds.pop() if len(kinds) == 1 and "" not in kinds else "DOUBLE"
        return types

    def _list_columns(self) -> list[tuple[str, list[Any]]]:
        """Values of groups and aggregate functions, row by row; groups that are not in a row's set are NULL."""
        statement = self._asking.statement
        places = {
            id(one): {g: at for at, g in enumerate(chosen)}
            for one, chosen in zip(self._sets, statement.sets, strict=True)
        }
        columns = []
        for g in range(len(statement.scope.groups)):
            at = [(places[id(one)].get(g), key) for one, key in self._listed]
            columns.append((f"g_{g}", [None if place is None else key[place] for place, key in at]))
        for i, call in enumerate(statement.calls):
            nothing = call.measure.empty_figures[0]
            columns.append((f"a_{i}", [one.columns[i].values.get(key, nothing) for one, key in self._listed]))
        return columns


def _combine_cell(output: Output, by: GroupedBy, key: tuple[Any, ...], value: Any) -> Cell:
    """Arithmetic of aggregate functions in a group, which is ``value`` there."""
    columns = [by.columns[i] for i in output.aggregate_numbers]
    rests = max((one.rests_on for one in columns), key=WEAKEST.index)
    unknown = evaluate_select.find_unknown_error(output.expression) is not None
    if rests == "certain" and unknown:
        rests = "point"
    if value is None:
        return Cell((None, None, None, None), rests, rests)
    if rests == "exact":
        sure = not isinstance(value, float) or math.isfinite(value)
        value = as_number(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
        return Cell((value, 0.0, value, value) if sure else (value, None, None, None), rests, rests)
    if unknown:
        return Cell((value, None, None, None), rests, rests)
    few = len(output.aggregate_numbers) <= MOST_VARYING
    parts = {i: by.aggregate_estimate(i, key) for i in output.aggregate_numbers}
    ends = evaluate_select.combine_figures(
        output.expression,
        float(value),
        parts,
        lambda j, k: by.correlation(j, k, key) if few else None,
        by.find_nested(output.aggregate_numbers),
    )
    null = evaluate_select.may_be_null(output.expression, parts)
    fixed = ends[1] is not None and are_equal(ends[1], ends[2]) and not ends[0]
    certain = all(one.certain for one in parts.values())
    if not fixed and not certain:
        return Cell((float(value), *ends), rests, rests, null)
    if fixed and not certain:  # whatever the counts are, if only there is somebody
        sure_of = {i: by.least_records(by.asking.statement.calls[i]).get(key, 0) for i in parts}
        parts = {i: replace(one, low=float(sure_of[i]), high=None) for i, one in parts.items()}
    if_any: RestsOn = "exact" if fixed else "certain"
    if evaluate_select.may_be_null(output.expression, parts):
        return Cell((float(value), None if fixed else ends[0], *ends[1:]), "interval", if_any, null)
    return Cell((float(value), 0.0 if fixed else ends[0], *ends[1:]), if_any, if_any, null)


def _as_whole(cell: Cell) -> Cell:
    """Figures of a whole number of which there is no doubt as such: what is made of counts is a double before."""
    value, _, *ends = cell.figures
    doubt = not isinstance(value, float) or not value.is_integer() or abs(value) >= EXACT or ends != [value, value]
    return cell if doubt else replace(cell, figures=(int(value), cell.figures[1], int(value), int(value)))


def _build_type(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect=DIALECT)


def _as_array(values: list[Any]) -> pa.Array:
    """Values of one column as an Arrow array; integers beyond 64 bits as decimals."""
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        values = [None if value is None else Decimal(value) for value in values]
    return pa.array(values)


def _read_moments(kind: str, values: list[Any]) -> list[Any]:
    """Points in time as Python's own where it knows all of them, else as text."""
    reader = READERS.get(kind)
    if reader is None:
        return values
    try:
        return [None if value is None else reader(value) for value in values]
    except ValueError:
        return values
