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
from privsql.engine.files import fold
from privsql.engine.sqlfiles import DIALECT, column, fill, named, table, temp
from privsql.errors import UsageError
from privsql.model.manifest import FIGURES, are_equal, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from privsql.answers.aggregates import Output
    from privsql.answers.evaluate_select import Asking, GroupedBy
    from privsql.answers.question import Group
    from privsql.engine.roles import Field
    from privsql.model.manifest import RestsOn

# Limits ---------------------------------------------------------------------------------------------------------------
# How much one question may take: time of the engine's, and rows of its answer.


@dataclass(frozen=True)
class Limits:
    """``seconds`` that the engine may take for a question, and ``rows`` that its groups could give.

    Where a row has several aggregate functions each counts as a row: it is a question of its own.
    ``stop`` ends a question at once: nobody waits for it any more.
    """

    seconds: float
    rows: int
    stop: Event | None = None

    def refuse(self, asking: Asking) -> None:
        """``UsageError`` for a question whose groups could give more rows, before any of them is estimated."""
        found = sum(_groups(asking, chosen) for chosen in asking.statement.sets)
        figures = max(1, len(asking.statement.asked))
        if found * figures > self.rows:
            each = f" of {figures} figures" if figures > 1 else ""
            raise UsageError(
                f"the answer could have {found:,} rows{each}, more than {self.rows:,}; group by fewer columns, or by "
                "ranges"
            )


def _groups(asking: Asking, chosen: Sequence[int]) -> int:
    """A number that is not exceeded by that of the groups: those of the records, times the sensitive values."""
    groups = asking.statement.scope.by(chosen).groups
    found = _different(asking, [one for one in groups if one.side == "qi"])
    for one in groups:
        if one.side == "sa":
            found *= _different(asking, [one])
    return found


def _different(asking: Asking, groups: Sequence[Group]) -> int:
    """How many groups some expressions of one side make."""
    if not groups:
        return 1
    of_records = groups[0].side == "qi"
    place = table(asking.answers.records if of_records else asking.answers.values)
    records = asking.statement.scope.question().records(place) if of_records else place
    keys: list[exp.Expr] = [exp.paren(one.own.copy()) for one in groups]
    return int(asking.db.rows(fill("query/groups", {"records": records, "keys": keys}))[0][0])


# Present --------------------------------------------------------------------------------------------------------------
# The rows of an answer: expressions over groups and aggregate functions, HAVING, ORDER BY and LIMIT.
#
# The engine evaluates, filters and sorts, so that values are and compare as they do in the data.

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


class Presented:
    """A SELECT's answer; ``fields``: names and types of its columns, as the engine would have them on the source."""

    def __init__(self, asking: Asking, fields: Sequence[Field]) -> None:
        self._asking, self._fields = asking, fields
        self._outputs = asking.statement.outputs
        for output in self._outputs:
            self._check(output)
        self._sets = [asking.by(chosen) for chosen in asking.statement.sets]
        self._listed = [(one, key) for one in self._sets for key in one.keys]

    def _check(self, output: Output) -> None:
        """``UsageError`` for arithmetic of estimates that has no known error."""
        estimated = [i for i in output.aggregates if not self._asking.answers.holds(self._asking.asked[i])]
        if estimated and output.single is None:
            evaluate_select.check_arithmetic(output.expression, output.written)

    # Columns ---

    @property
    def _alone(self) -> bool:
        """Whether there is one figure, and it has no name."""
        found = [output for output in self._outputs if output.aggregates]
        return len(found) == 1 and not found[0].alias

    def columns(self) -> tuple[tuple[str, ...], tuple[Figure, ...]]:
        """Names of the columns, and the figures among them; ``UsageError`` for two of one name."""
        names: list[str] = []
        figures = []
        for k, output in enumerate(self._outputs):
            name = output.alias or self._fields[k].name
            if output.aggregates:
                figures.append(self._figure(k, "estimate" if self._alone else name, len(names)))
                names += FIGURES if self._alone else [name, *(f"{name}_{part}" for part in FIGURES[1:])]
            else:
                names.append(name)
        folded = [fold(name) for name in names]
        for name in names:
            if folded.count(fold(name)) > 1:
                raise UsageError(f"two columns of the answer are called {name!r}; give one an alias")
        return tuple(names), tuple(figures)

    def _figure(self, k: int, name: str, at: int) -> Figure:
        output = self._outputs[k]
        columns = [one.columns[i] for one in self._sets for i in output.aggregates]
        if output.single is not None or not self._cells[k]:
            known = [(one.rests_on, one.if_any) for one in columns]
        else:
            known = [(one.rests_on, one.if_any) for one in self._cells[k]]
        rests, if_any = (max(part, key=WEAKEST.index) for part in zip(*known, strict=True))
        if rests == "exact" and any(self._empty_groups):
            rests = "certain"  # 0 is true of a group that the source lacks, but the row is not in its answer
        return Figure(name, at, rests, max(one.touching for one in columns), if_any)

    # Rows ---

    def rows(self) -> Rows:
        """The rows, each with the four columns of every figure."""
        parts: list[Sequence[Any]] = []
        for k, output in enumerate(self._outputs):
            if output.aggregates:
                parts += zip(*(one.figures for one in self._cells[k]), strict=True) if self._cells[k] else [()] * 4
            else:
                parts.append(self._values_of(k))
        return list(zip(*parts, strict=True))

    def may_be_empty(self) -> tuple[bool, ...]:
        """Of every row, whether there may be no record that it, or a figure of it, is of."""
        open_ones = [[one.may_be_null for one in cells] for cells in self._cells.values()]
        return tuple(any(row) for row in zip(self._empty_groups, *open_ones, strict=True))

    @cached_property
    def _empty_groups(self) -> list[bool]:
        """Of every row, whether its group may have no record."""
        return [by.may_be_empty(key) for by, key in (self._listed[rank] for rank in self._ranks)]

    @property
    def _ranks(self) -> list[int]:
        return [row[0] for row in self._evaluated]

    def _values_of(self, k: int) -> list[Any]:
        return _read(self._type(k, self._outputs[k]), [row[k + 1] for row in self._evaluated])

    @cached_property
    def _cells(self) -> dict[int, list[Cell]]:
        """What every output with aggregate functions says in every row, by the output's place."""
        return {
            k: [self._cell(k, *one) for one in zip(self._ranks, self._values_of(k), strict=True)]
            for k, output in enumerate(self._outputs)
            if output.aggregates
        }

    def _cell(self, k: int, rank: int, value: Any) -> Cell:
        output, (by, key) = self._outputs[k], self._listed[rank]
        if output.single is None:
            found = _arithmetic(output, by, key, value)
            return _as_whole(found) if self._fields[k].type.endswith("INT") else found
        column, one = by.columns[output.single], by.at(output.single, key)
        null = not column.kind and not one.is_of_some
        if is_number(self._types[f"a_{output.single}"]):
            figures = (one.estimate, one.std_error, one.low, one.high)
        else:
            low, high = (value if end is not None else None for end in (one.low, one.high))
            figures = (value, one.std_error, low, high)
        return Cell(figures, column.rests_on, column.if_any, null)

    @cached_property
    def _evaluated(self) -> Rows:
        """Rank, and the value of every output, of the rows that remain, in order."""
        db, statement = self._asking.db, self._asking.statement
        groups = [f"g_{i}" for i in range(len(statement.scope.groups))]
        data: dict[str, Any] = {"rank": pa.array(range(len(self._listed)), pa.int64())}
        data |= {name: _array(values) for name, values in self._values()}
        db.put("found", pa.table(data))
        own = [named(exp.cast(column(name), _built(kind)), name) for name, kind in self._types.items()]
        inner = exp.select(column("rank"), *own).from_(temp("found")).subquery("found")
        outputs = [self._output(k, output) for k, output in enumerate(self._outputs)]
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

    def _output(self, k: int, output: Output) -> exp.Expr:
        own = output.expression.copy()
        return named(exp.cast(own, "VARCHAR") if as_text(self._type(k, output)) else own, f"o_{k}")

    def _type(self, k: int, output: Output) -> str:
        """The engine's type of an output; figures that are numbers are doubles."""
        return self._types[f"a_{output.single}"] if output.single is not None else self._fields[k].type

    @cached_property
    def _types(self) -> dict[str, str]:
        """Types of groups and aggregate functions; what is estimated is a double."""
        groups = self._asking.scope.groups
        found = {f"g_{i}": group.type for i, group in enumerate(groups)}
        for i in range(len(self._asking.statement.asked)):
            kinds = {one.columns[i].kind for one in self._sets}
            found[f"a_{i}"] = kinds.pop() if len(kinds) == 1 and "" not in kinds else "DOUBLE"
        return found

    def _values(self) -> list[tuple[str, list[Any]]]:
        """Values of groups and aggregate functions, row by row; groups that are not in a row's set are NULL."""
        statement = self._asking.statement
        places = {
            id(one): {g: at for at, g in enumerate(chosen)}
            for one, chosen in zip(self._sets, statement.sets, strict=True)
        }
        found = []
        for g in range(len(statement.scope.groups)):
            at = [(places[id(one)].get(g), key) for one, key in self._listed]
            found.append((f"g_{g}", [None if place is None else key[place] for place, key in at]))
        for i, asked in enumerate(statement.asked):
            nothing = asked.measure.nothing[0]
            found.append((f"a_{i}", [one.columns[i].values.get(key, nothing) for one, key in self._listed]))
        return found


def _arithmetic(output: Output, by: GroupedBy, key: tuple[Any, ...], value: Any) -> Cell:
    """Arithmetic of aggregate functions in a group, which is ``value`` there."""
    columns = [by.columns[i] for i in output.aggregates]
    rests = max((one.rests_on for one in columns), key=WEAKEST.index)
    unknown = evaluate_select.find_unknown_error(output.expression) is not None
    if rests == "certain" and unknown:
        rests = "point"
    if value is None:
        return Cell((None, None, None, None), rests, rests)
    if rests == "exact":
        sure = not isinstance(value, float) or math.isfinite(value)
        value = number(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
        return Cell((value, 0.0, value, value) if sure else (value, None, None, None), rests, rests)
    if unknown:
        return Cell((value, None, None, None), rests, rests)
    few = len(output.aggregates) <= MOST_VARYING
    parts = {i: by.figures(i, key) for i in output.aggregates}
    ends = evaluate_select.combine_figures(
        output.expression,
        float(value),
        parts,
        lambda j, k: by.correlation(j, k, key) if few else None,
        by.among(output.aggregates),
    )
    null = evaluate_select.may_be_null(output.expression, parts)
    fixed = ends[1] is not None and are_equal(ends[1], ends[2]) and not ends[0]
    certain = all(one.certain for one in parts.values())
    if not fixed and not certain:
        return Cell((float(value), *ends), rests, rests, null)
    if fixed and not certain:  # whatever the counts are, if only there is somebody
        sure_of = {i: by.fewest(by.asking.statement.asked[i]).get(key, 0) for i in parts}
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


def _built(kind: str) -> exp.DataType:
    return exp.DataType.build(kind, dialect=DIALECT)


def _array(values: list[Any]) -> pa.Array:
    """Values of one column as an Arrow array; integers beyond 64 bits as decimals."""
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        values = [None if value is None else Decimal(value) for value in values]
    return pa.array(values)


def _read(kind: str, values: list[Any]) -> list[Any]:
    """Points in time as Python's own where it knows all of them, else as text."""
    reader = READERS.get(kind)
    if reader is None:
        return values
    try:
        return [None if value is None else reader(value) for value in values]
    except ValueError:
        return values
