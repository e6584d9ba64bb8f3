"""An answer: rows whose figures say what they rest on. Tables, JSON, CSV and Python show the same columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from privsql import markup
from privsql.engine.sqlfiles import render
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from sqlglot import exp

    from privsql.model.estimate import RestsOn


@dataclass(frozen=True)
class Figure:
    """What an answer says of one aggregate function, or of arithmetic of such.

    ``at``: the column of the value; ``std_error``, ``low`` and ``high`` are the next three. ``touching``: records of
    the source that are not in the release and could meet its question; ``if_any``: what it rests on where there is any
    record to measure.
    """

    name: str
    at: int
    rests_on: RestsOn
    touching: int
    if_any: RestsOn = "interval"

    def of(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Estimate, standard error, low and high in a row."""
        return row[self.at : self.at + 4]

    def explain(self, confidence: float) -> str:
        """Say what low and high mean."""
        if self.rests_on == "exact":
            return "exact: the release holds the true answer"
        if self.rests_on == "certain":
            return "low and high are certain: the true answer lies between them"
        if self.rests_on != self.if_any and self.if_any in ("exact", "certain"):
            return "low and high bound the true answer if any record meets the question; else it is NULL"
        if self.rests_on == "point":
            return "an estimate without an interval"
        return f"low and high: {confidence:.0%} interval"

    def missing(self, number: int) -> str:
        """What records that are not in the release do to it, in words; ``number``: of all of them."""
        left = f"{number:,} records of the source are not in the release"
        if not self.touching:
            return f"{left}; none of them can meet the question"
        at_most = "high counts" if self.rests_on != "point" else "the question could meet"
        return f"{left}; {at_most} {self.touching:,} of them, the estimate none"


@dataclass(frozen=True)
class Answer:
    """Column names and rows, in the query's order; each of ``figures`` takes four of the columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    figures: tuple[Figure, ...]
    confidence: float
    estimator: str
    explained: tuple[tuple[exp.Query, str], ...]
    """The statements that read the release, each with a formula in words."""
    missing: int | None = None  # records of the source that are not in the release; None where that is not stated
    may_be_empty: tuple[
        bool, ...
    ] = ()  # of every row: whether there may be no record that it, or a figure of it, is of
    hints: tuple[str, ...] = ()  # on values that the question names

    @cached_property
    def sql(self) -> str:
        """The SQL that reads the release."""
        return ";\n".join(dict.fromkeys(render(statement) for statement, _ in self.explained))

    @property
    def formula(self) -> str:
        """How the figures follow from it, in words."""
        return "\n".join(dict.fromkeys(formula for _, formula in self.explained))

    @property
    def rests_on(self) -> RestsOn:
        """What the weakest of its figures rests on."""
        return max((one.rests_on for one in self.figures), key=WEAKEST.index)

    @property
    def certain(self) -> bool:
        """Whether every low and high bound the true answer with certainty."""
        return self.rests_on in ("exact", "certain")

    @property
    def interval(self) -> str:
        """What low and high mean, in words; of each figure by its name where they differ."""
        meanings = {one.name: one.explain(self.confidence) for one in self.figures}
        if len(set(meanings.values())) == 1:
            return next(iter(meanings.values()))
        return "\n".join(f"{name}: {meaning}" for name, meaning in meanings.items())

    @property
    def notes(self) -> list[str]:
        """What else should be known of the answer, in words."""
        bare = sum(any(self._is_bare(one, row) for one in self.figures) for row in self.rows)
        partly = bare > 0 and self.rests_on != "point"
        without = [f"{bare:,} rows have no interval: no published count is about them"] if partly else []
        left = [one.missing(self.missing) for one in self.figures] if self.missing else []
        return [*self.hints, *self._of_nobody(), *without, *dict.fromkeys(left)]

    @property
    def marks(self) -> list[str]:
        """A text for each row that says whether it may be empty; none where all are alike."""
        alike = len(set(self.may_be_empty)) < 2
        return [] if alike else ["yes" if one else "" for one in self.may_be_empty]

    def _of_nobody(self) -> list[str]:
        """Say how many rows may be of no record at all."""
        bare, rows = sum(self.may_be_empty), len(self.rows)
        if not bare:
            return []
        which, whose = ("the answer", "its") if rows == 1 else (f"{bare:,} of {rows:,} rows", "their")
        return [f"{which} may be empty: the bounds of {whose} number of records reach below 1"]

    @staticmethod
    def _is_bare(one: Figure, row: tuple[Any, ...]) -> bool:
        estimate, _, low, high = one.of(row)
        return estimate is not None and low is None and high is None and one.rests_on != "point"

    def by_group(self) -> dict[tuple[Any, ...], tuple[Any, Any, Any]]:
        """Estimate, low and high of every group; ``UsageError`` where there are several figures."""
        if len(self.figures) != 1:
            raise UsageError("ask for one COUNT, SUM or AVG")
        one = self.figures[0]
        return {(*row[: one.at], *row[one.at + 4 :]): (row[one.at], *one.of(row)[2:]) for row in self.rows}

    def frame(self) -> pd.DataFrame:
        """The answer as a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415 (takes longer to import than most queries run)

        return pd.DataFrame(self.rows, columns=pd.Index(self.columns))

    def arrow(self) -> pa.Table:
        """The answer as an Arrow table; values that have no common type are text."""
        import pyarrow as pa  # noqa: PLC0415 (who prints an answer does not wait for it)

        by_column = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return pa.Table.from_arrays([_array(column) for column in by_column], names=list(self.columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The same for whatever reads Arrow: ``polars.DataFrame(answer)``, DuckDB, .."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def polars(self) -> pl.DataFrame:
        """The answer as a Polars DataFrame; ``EngineError`` where Polars is not installed."""
        try:
            import polars as pl  # noqa: PLC0415 (nothing else needs it)
        except ImportError as error:
            raise EngineError("polars is not installed; run: pip install polars") from error
        return pl.DataFrame(self)

    def scales(self, rows: Sequence[tuple[Any, ...]]) -> dict[int, tuple[float, float]]:
        """By the place of each figure the ends of a line that holds its estimates and intervals in some rows."""
        return {one.at: markup.ends(one.of(row)[part] for row in rows for part in (0, 2, 3)) for one in self.figures}

    def _repr_html_(self) -> str:
        """What a notebook shows: the rows, with a bar for each interval, and what they mean."""
        seen = self.rows[: markup.ROWS]
        scales = self.scales(seen)
        head: list[object] = []
        for at, name in enumerate(self.columns):
            head += [name, ""] if at - 3 in scales else [name]
        rows = (self._shown(row, scales) for row in self.rows)
        lines = [markup.line(text) for text in (*self.interval.splitlines(), *self.notes)]
        number = len(self.rows)
        title = f"{number:,} row{'s' * (number != 1)}"
        return markup.page(title, markup.table(head, rows, number), *lines)

    def _shown(self, row: tuple[Any, ...], scales: dict[int, tuple[float, float]]) -> list[object]:
        """The cells of a row, with a bar after each interval."""
        cells: list[object] = []
        for at, value in enumerate(row):
            cells.append(value)
            if at - 3 in scales:
                estimate, _, low, high = row[at - 3 : at + 1]
                cells.append(markup.bar((low, estimate, high), scales[at - 3]))
        return cells

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        figures = {at for one in self.figures for at in range(one.at, one.at + 4)}
        rows = [
            {c: _plain(v, is_figure=at in figures) for at, (c, v) in enumerate(zip(self.columns, row, strict=True))}
            for row in self.rows
        ]
        empty = self.may_be_empty or (False,) * len(rows)
        return {
            "rows": [row | ({"may_be_empty": True} if mark else {}) for row, mark in zip(rows, empty, strict=True)],
            "confidence": 1.0 if self.certain else self.confidence,
            "estimator": self.estimator,
            "rests_on": self.rests_on,
            "missing": self.missing,
            "figures": [self._told(one) for one in self.figures],
            "notes": self.notes,
        }

    def _told(self, one: Figure) -> dict[str, Any]:
        """What a figure rests on, why, and what it leaves out."""
        sure = one.rests_on in ("exact", "certain")
        return {
            "name": one.name,
            "rests_on": one.rests_on,
            "confidence": None if one.rests_on == "point" else 1.0 if sure else self.confidence,
            "reason": one.explain(self.confidence),
            "not_in_release": one.touching,
        }


WEAKEST: tuple[RestsOn, ...] = ("exact", "certain", "interval", "point")


def _array(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    for kind in (None, pa.uint64()):  # Arrow takes whole numbers for signed ones, unless it is told
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError):
            continue
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _plain(value: object, *, is_figure: bool) -> object:
    """A value that JSON knows; dates, decimals and the like as text, figures as numbers where they can be."""
    if is_figure and isinstance(value, Decimal) and Decimal(repr(float(value))) == value:
        return float(value)
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if value is None or (isinstance(value, bool | int | float | str) and finite) else str(value)
