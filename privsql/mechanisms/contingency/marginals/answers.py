"""Answers from marginals: the model that fits all noisy tables, or their least-squares estimate alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.answers.interval import interval
from privsql.engine.names import fold
from privsql.engine.sqlfiles import all_rows, column, table
from privsql.errors import UsageError
from privsql.mechanisms import private
from privsql.mechanisms.contingency.marginals.asked import CELLS, Known, taken_apart
from privsql.mechanisms.contingency.marginals.tables import DOMAINS, ROWS, read_domains
from privsql.mechanisms.contingency.parameters import Contingency
from privsql.mechanisms.noisytables.figures import Figures
from privsql.mechanisms.noisytables.model import Model
from privsql.mechanisms.noisytables.tables import CLIQUES, MARGINALS, read
from privsql.mechanisms.private import whole
from privsql.model.arrays import copies
from privsql.model.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.question import CountQuery
    from privsql.mechanisms.contingency.marginals.asked import Asked
    from privsql.mechanisms.noisytables.figures import Sums
    from privsql.mechanisms.noisytables.measured import Reals

BASELINE = (
    "estimate = sum over the cells that meet the condition of the least-squares estimate from all noisy tables; "
    "unbiased, with an exact variance, where one table has all columns of the question, else without an interval"
)
FORMULA = (
    "estimate = sum over the cells that meet the condition of the table of largest entropy that agrees with the noisy "
    "tables: combined by least squares, shrunk towards what smaller tables make likely, non-negative"
)
DEGREES = 8.0  # of freedom of an interval that rests on the model: how much to doubt is itself estimated


class Answers(private.Answers):
    """An open release that answers count queries over its columns; its model is fitted once."""

    records = values = ROWS
    formulas: ClassVar[Mapping[str, str]] = {"baseline": BASELINE, "reconstructed": FORMULA}

    @property
    def in_bins(self) -> frozenset[str]:
        """The columns that are published in bins of more values than stand for them."""
        return frozenset(self.columns.fields[place].name for place in self.columns.coarse)

    @cached_property
    def columns(self) -> Known:
        """The columns of the release."""
        rows = self._read(DOMAINS, "place", "code")
        asked, fields = Contingency.model_validate(self._manifest.parameters), self._manifest.sensitive
        with whole():
            sizes = read_domains(rows, len(fields))
        points = np.bincount(rows["place"].to_numpy(), minlength=len(fields))
        edges = {
            place: values.bins
            for place, field in enumerate(fields)
            if asked.is_coarse(field.name, field.type) and (values := asked.domain(field.name)) and values.bins
        }
        return Known(tuple(fields), sizes, tuple(points.tolist()), edges)

    def shown(self, name: str, most: int) -> list[str | None]:
        """Texts of all values that a column can have; none of one in bins of many, of which no single one is told."""
        places = {field.name: place for place, field in enumerate(self.columns.fields)}
        if places[name] in self.columns.coarse:
            return []
        rows = self._read(DOMAINS, "place", "code").filter(pc.field("place") == places[name])
        return [*rows["value"].to_pylist()[:most]]

    @cached_property
    def figures(self) -> Figures:
        """The model of the release."""
        cliques, marginals = self._read(CLIQUES, "clique"), self._read(MARGINALS, "clique", "cell")
        names, sizes = [field.name for field in self._manifest.sensitive], self.columns.sizes
        with whole():
            return Figures(Model(read(cliques, marginals, names, sizes), sizes))

    def _read(self, name: str, *order: str) -> pa.Table:
        rows = all_rows(table(name, self._database))
        return self._db.arrow(rows.order_by(*(column(one) for one in order)))

    def _asked(self, query: CountQuery) -> Asked:
        if query.lookups:
            raise UsageError("JOIN is not supported for a contingency table; name the values in WHERE")
        return taken_apart(query, self.columns, self._database)

    def statement(self, query: CountQuery, estimator: str) -> tuple[exp.Query, str]:
        """The SQL that reads the release for an answer, and the formula in words."""
        self.known(estimator)
        return self._asked(query).statement(), self.formulas[estimator]

    def answer(self, query: CountQuery, estimator: str, confidence: float) -> list[Estimate]:
        """The answer's rows, one per group that a value of the columns can have."""
        self.known(estimator)
        groups, sums = self._asked(query).answers(self._db)
        degrees = DEGREES if len(sums.columns) > 1 and estimator != "baseline" else np.inf
        told = self._told(sums, estimator)
        rows = [_estimate(*one, confidence, degrees) for one in zip(groups, *told, strict=True)]
        if sums.is_whole:
            return rows
        ends = (zip(*self._told(sums.rounded(up=up), estimator), strict=True) for up in (False, True))
        bounded = zip(rows, *ends, strict=True)
        return [_between(row, low, high, confidence, degrees) for row, low, high in bounded]

    def seen_by(self, conditions: Sequence[exp.Expr]) -> tuple[str, ...]:
        """Errors of different tables are drawn and bounded in ways of their own."""
        names = {fold(field.name): field.name for field in self.columns.fields}
        found = (names[fold(node.name)] for one in conditions for node in one.find_all(exp.Column))
        return tuple(sorted(dict.fromkeys(found)))

    def synthetic(self) -> pa.Table:
        """The release's synthetic rows, each as often as it weighs."""
        rows = self._db.arrow(all_rows(table(ROWS, self._database)))
        weight = self._roles.by_sa.called("weight")
        whose = np.repeat(np.arange(len(rows)), copies(rows[weight].to_numpy()))
        return rows.drop_columns(weight).take(pa.array(whose))

    def _told(self, sums: Sums, estimator: str) -> tuple[list[float], list[float]]:
        """Sums and the variances of their errors."""
        found, variance = self._least_squares(sums) if estimator == "baseline" else self.figures.estimates(sums)
        return found.tolist(), variance.tolist()

    def _least_squares(self, sums: Sums) -> tuple[Reals, Reals]:
        """Sums of the least-squares table and their variances; these are infinite where no table holds all columns."""
        squares = self.figures.model.squares
        if sums.classes or np.prod([self.columns.sizes[i] for i in sums.columns]) > CELLS:
            raise UsageError("the baseline can't be told for so many values; ask for fewer columns at once")
        found = sums.of(squares.table(sums.columns))
        if not squares.knows(sums.columns):
            return found, np.full(sums.number, np.inf)
        return found, np.array([squares.variance(sums.columns, one) for one in sums.weights(squares.sizes)])


def _estimate(group: tuple[Any, ...], value: float, variance: float, confidence: float, degrees: float) -> Estimate:
    if not np.isfinite(variance):
        return Estimate(group, value, None, None, None)
    low, high = interval(value, float(np.sqrt(variance)), confidence, degrees)
    return Estimate(group, value, float(np.sqrt(variance)), min(low, value), max(high, value, 0.0))


def _between(
    row: Estimate, least: tuple[float, float], most: tuple[float, float], confidence: float, degrees: float
) -> Estimate:
    """An estimate of what cuts bins: all that lies within one may be on either side of the cut."""
    low, high = (_estimate(row.group, *one, confidence, degrees) for one in (least, most))
    return replace(row, std_error=None, low=low.low, high=high.high)
