"""The rows of an answer: expressions over groups and aggregate functions, HAVING, ORDER BY and LIMIT.

The engine evaluates, filters and sorts, so that values are and compare as they do in the data.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql.answers import arithmetic
from privsql.answers.aggregates import is_number
from privsql.answers.answer import WEAKEST, Figure
from privsql.answers.question import as_text
from privsql.engine.names import fold
from privsql.engine.sqlfiles import DIALECT, column, named, temp
from privsql.errors import UsageError
from privsql.model.estimate import FIGURES, number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.answers.asked import Output
    from privsql.answers.evaluation import Asking, GroupedBy
    from privsql.engine.roles import Field

READERS: dict[str, Callable[[str], Any]] = {
    "DATE": dt.date.fromisoformat,
    "TIME": dt.time.fromisoformat,
    "TIMESTAMP": dt.datetime.fromisoformat,
    "TIMESTAMP WITH TIME ZONE": dt.datetime.fromisoformat,
}
MOST_VARYING = 8  # aggregate functions of an expression of which it is asked how they vary together
Rows = list[tuple[Any, ...]]


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
            arithmetic.check(output.expression, output.written)

    # Columns ---

    @property
    def _alone(self) -> bool:
        """Whether there is one figure, and it has no name."""
        found = [output for output in self._outputs if output.aggregates]
        return len(found) == 1 and not found[0].alias

    def _shown(self) -> list[tuple[int, Output]]:
        """The outputs in order; one figure without a name comes last."""
        listed = list(enumerate(self._outputs))
        return sorted(listed, key=lambda one: bool(one[1].aggregates)) if self._alone else listed

    def columns(self) -> tuple[tuple[str, ...], tuple[Figure, ...]]:
        """Names of the columns, and the figures among them; ``UsageError`` for two of one name."""
        names: list[str] = []
        figures = []
        for k, output in self._shown():
            name = output.alias or self._fields[k].name
            if output.aggregates:
                figures.append(self._figure(output, "estimate" if self._alone else name, len(names)))
                names += FIGURES if self._alone else [name, *(f"{name}_{part}" for part in FIGURES[1:])]
            else:
                names.append(name)
        folded = [fold(name) for name in names]
        for name in names:
            if folded.count(fold(name)) > 1:
                raise UsageError(f"two columns of the answer are called {name!r}; give one an alias")
        return tuple(names), tuple(figures)

    def _figure(self, output: Output, name: str, at: int) -> Figure:
        columns = [one.columns[i] for one in self._sets for i in output.aggregates]
        rests = max((one.rests_on for one in columns), key=WEAKEST.index)
        if rests == "certain" and output.single is None and arithmetic.reason(output.expression) is not None:
            rests = "point"
        return Figure(name, at, rests, max(one.touching for one in columns))

    # Rows ---

    def rows(self) -> Rows:
        """The rows, each with the four columns of every figure."""
        found = self._evaluated()
        values = [list(part) for part in zip(*found, strict=True)] or [[] for _ in range(len(self._outputs) + 1)]
        ranks = values[0]
        parts: list[list[Any]] = []
        for k, output in self._shown():
            own = _read(self._type(k, output), values[k + 1])
            if not output.aggregates:
                parts.append(own)
                continue
            four = [self._four(output, rank, value) for rank, value in zip(ranks, own, strict=True)]
            parts += [[one[i] for one in four] for i in range(4)]
        return list(zip(*parts, strict=True))

    def _four(self, output: Output, rank: int, value: Any) -> tuple[Any, ...]:
        by, key = self._listed[rank]
        if output.single is not None:
            found = by.at(output.single, key)
            if is_number(self._types[f"a_{output.single}"]):
                return found.estimate, found.std_error, found.low, found.high
            low, high = (value if end is not None else None for end in (found.low, found.high))
            return value, found.std_error, low, high
        return self._arithmetic(output, by, key, value)

    def _arithmetic(self, output: Output, by: GroupedBy, key: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
        if value is None:
            return None, None, None, None
        if all(by.columns[i].rests_on == "exact" for i in output.aggregates):
            known = number(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value
            sure = not isinstance(known, float) or math.isfinite(known)
            return (known, 0.0, known, known) if sure else (known, None, None, None)
        if arithmetic.reason(output.expression) is not None:
            return value, None, None, None
        few = len(output.aggregates) <= MOST_VARYING
        parts = {i: by.figures(i, key) for i in output.aggregates}
        ends = arithmetic.figures(
            output.expression,
            float(value),
            parts,
            lambda j, k: by.correlation(j, k, key) if few else None,
            by.among(output.aggregates),
        )
        return float(value), *ends

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
