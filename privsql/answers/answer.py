"""An answer: a table of estimates with HAVING, ORDER BY and LIMIT applied."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql.answers.question import COUNT, CountQuery, Group
from privsql.engine.sqlfiles import DIALECT, column, temp
from privsql.model.estimate import FIGURES

if TYPE_CHECKING:
    import pandas as pd

    from privsql.engine.database import Relations
    from privsql.model.estimate import Estimate, RestsOn


@dataclass(frozen=True)
class Answer:
    """Column names and rows, in the query's order; the last four columns are the figures."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    confidence: float
    rests_on: RestsOn
    estimator: str
    sql: str
    formula: str
    missing: int | None = None  # records of the source that are not in the release; None where that is not stated
    touching: int = 0  # of these, those that could meet the question

    @property
    def certain(self) -> bool:
        """Whether low and high bound the true answer with certainty."""
        return self.rests_on in ("exact", "certain")

    @property
    def interval(self) -> str:
        """What low and high mean, in words."""
        if self.rests_on == "exact" or (self.rows and all(row[-3] == 0 for row in self.rows)):
            return "exact: the release holds the true answer"
        if self.certain:
            return "low and high are certain: the true answer lies between them"
        if self.rests_on == "point":
            return "an estimate without an interval"
        return f"low and high: {self.confidence:.0%} interval"

    @property
    def notes(self) -> list[str]:
        """What else should be known of the answer, in words."""
        figures = [row[-4:] for row in self.rows]
        bare = sum(low is None and high is None and estimate is not None for estimate, _, low, high in figures)
        without = (
            [f"{bare:,} rows have no interval: no published count is about them"]
            if bare < len(figures) and bare
            else []
        )
        return [*without, *self._left_out()]

    def _left_out(self) -> list[str]:
        if not self.missing:
            return []
        left = f"{self.missing:,} records of the source are not in the release"
        if not self.touching:
            return [f"{left}; none of them can meet the question"]
        at_most = "high counts" if self.rests_on != "point" else "the question could meet"
        return [f"{left}; {at_most} {self.touching:,} of them, the estimate none"]

    def frame(self) -> pd.DataFrame:
        """The answer as a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415 (takes longer to import than most queries run)

        return pd.DataFrame(self.rows, columns=pd.Index(self.columns))

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        rows = [{c: _plain(v) for c, v in zip(self.columns, row, strict=True)} for row in self.rows]
        return {
            "rows": rows,
            "confidence": 1.0 if self.certain else self.confidence,
            "estimator": self.estimator,
            "rests_on": self.rests_on,
            "missing": self.missing,
        }


def present(db: Relations, query: CountQuery, found: list[Estimate]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and rows of the answer; the engine filters and sorts, so that values compare as they do in the data."""
    data: dict[str, Any] = {
        "rank": pa.array(range(len(found)), pa.int64()),
        COUNT: pa.array([e.estimate for e in found], pa.float64()),
    }
    for i in range(len(query.groups)):
        data[f"g_{i}"] = _sortable([e.group[i] for e in found])
    db.put("found", pa.table(data))
    typed = [_typed(i, group).as_(f"g_{i}", quoted=True) for i, group in enumerate(query.groups)]
    listed = exp.select(column("rank"), column(COUNT), *typed).from_(temp("found"))
    chosen = exp.select(column("rank")).from_(listed.subquery("typed"))
    if query.having is not None:
        chosen = chosen.where(query.having)
    last = [*(column(f"g_{i}") for i in range(len(query.groups))), column("rank")]
    chosen = chosen.order_by(*query.order, *(exp.Ordered(this=item, nulls_first=False) for item in last))
    if query.limit is not None:
        chosen = chosen.limit(query.limit)
    if query.offset is not None:
        chosen = chosen.offset(query.offset)
    order = [int(row[0]) for row in db.rows(chosen)]
    db.drop("found")
    return _table(query, [found[i] for i in order])


def _typed(i: int, group: Group) -> exp.Expr:
    """A column of the answer as it compares: points in time come as text, and not all of them sort as text."""
    own = column(f"g_{i}")
    if not group.type.startswith(("DATE", "TIME")):
        return own
    return exp.cast(own, exp.DataType.build(group.type, dialect=DIALECT))


def _sortable(values: list[Any]) -> pa.Array:
    """Values of one column as an Arrow array; integers beyond 64 bits as decimals."""
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
        values = [None if value is None else Decimal(value) for value in values]
    return pa.array(values)


def _table(query: CountQuery, found: list[Estimate]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    position = {group.column: i for i, group in enumerate(query.groups)}
    shown = [group for group, _ in query.shown if group is not None]
    columns = (*(name for group, name in query.shown if group is not None), *FIGURES)
    return columns, [
        (*(e.group[position[g.column]] for g in shown), e.estimate, e.std_error, e.low, e.high) for e in found
    ]


def _plain(value: object) -> object:
    """A value that JSON knows; dates, decimals and the like as text."""
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is None or (isinstance(value, bool | int | float | str) and finite) else str(value)
