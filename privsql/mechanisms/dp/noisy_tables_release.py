"""Publish noisy tables, and estimate figures of sums over their cells."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

from privsql.dp_random import PURE, NoiseLaw, deviation_of
from privsql.engine.sqlfiles import all_rows, column, table
from privsql.exact import fraction_text
from privsql.keyed_random import seed_key
from privsql.mechanisms.dp.noisy_tables import NO_CLASSES, POSSIBLE, NoisyTable, merge_values
from privsql.mechanisms.private import write_release_table
from privsql.model.manifest import ReleaseTable, Structure
from privsql.model.manifest import make_structure as part
from privsql.model.parameters import LARGEST_EPSILON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import Classes, Clique, Ints, Model, Reals
    from privsql.model.manifest import Manifest

# Figures --------------------------------------------------------------------------------------------------------------
# Sums over cells of a model's tables, each with the variance of its error.

MANY, ALL = 48, 200  # tables that are drawn; sums up to which each is worked out by itself
CELLS = 800_000  # of drawn tables that are held at once
TOGETHER, BEYOND = 0.8, 1.4  # of pairs, and of more columns: from 0, where cells deviate independently, to 2, where all
# do so in one direction; fitted to census tables


@dataclass(frozen=True)
class CellSums:
    """G sums over cells of one table: sum ``group`` takes ``weight`` of cell ``cell`` (row-major), (n,) each.

    ``classes``: of columns whose values the table has summed up (``model.merged``).
    """

    columns: Clique
    cell: Ints
    group: Ints
    weight: Reals
    number: int
    classes: Classes = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Return whether no cell is met in part."""
        return bool(((self.weight == 0) | (self.weight == 1)).all())

    def round_weights(self, *, up: bool) -> CellSums:
        """The sums with every cell that is met in part met as a whole, or not at all."""
        return replace(self, weight=(self.weight > 0 if up else self.weight >= 1).astype(np.float64))

    def sum_table(self, table: Reals) -> Reals:
        """The sums, (G,)."""
        flat = table.reshape(-1)[self.cell]
        return sum_by_group(self, flat * self.weight)

    def weight_arrays(self, sizes: Sequence[int]) -> Iterator[Reals]:
        """The weights of each sum, an array of the table's shape."""
        shape, order = [sizes[i] for i in self.columns], np.argsort(self.group, kind="stable")
        edges = np.searchsorted(self.group[order], np.arange(self.number + 1))
        for first, end in pairwise(edges.tolist()):
            members = order[first:end]
            flat = np.bincount(self.cell[members], weights=self.weight[members], minlength=prod(shape))
            yield flat.astype(np.float64).reshape(shape)


def sum_by_group(sums: CellSums, values: Reals) -> Reals:
    """Values of the cells by sum, (G,)."""
    result: Reals = np.bincount(sums.group, weights=values, minlength=sums.number).astype(np.float64)
    return result


def error_above_zero(mean: Reals, error: Reals) -> Reals:
    """How far max(x, 0) lies from ``mean`` >= 0, by the root of the mean square, where x is N(mean, error^2).

    With u = mean / error it is error^2 (Phi(u) - u phi(u) + u^2 Phi(-u)): half of error^2 at 0.
    """
    u = np.divide(mean, error, out=np.full_like(mean, np.inf), where=error > 0)
    near = np.where(np.isfinite(u), u, 0.0)
    density = np.exp(-(near**2) / 2) / np.sqrt(2 * np.pi)
    square = ndtr(near) - near * density + near**2 * ndtr(-near)
    return np.asarray(error * np.sqrt(np.where(np.isfinite(u), square, 1.0)))


class SumEstimator:
    """Estimates from a model. Errors are drawn once for each set of columns, from a fixed seed: answers don't vary."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._whole: Callable[[Clique], Reals] = lru_cache(maxsize=64)(model.fitted_table)
        self._drawn: Callable[[Clique], Reals] = lru_cache(maxsize=4)(self._draws)

    def estimate_sums(self, sums: CellSums) -> tuple[Reals, Reals]:
        """The sums and the variances of their errors, (G,) each."""
        table = self.model.fitted_table(sums.columns, sums.classes) if sums.classes else self._whole(sums.columns)
        return sums.sum_table(table), self._sum_variances(sums, table)

    def _sum_variances(self, sums: CellSums, table: Reals) -> Reals:
        if len(sums.columns) <= 2 and sums.number <= ALL and not sums.classes:
            return np.array(
                [self._exact_variance(sums.columns, weights) for weights in sums.weight_arrays(self.model.sizes)]
            )
        errors = self._draws(sums.columns, sums.classes) if sums.classes else self._drawn(sums.columns)
        drawn = np.stack([sums.sum_table(one) for one in errors])
        result: Reals = ((drawn - sums.sum_table(table)) ** 2).mean(axis=0)
        if len(sums.columns) > 2:
            result = np.maximum(result, self._of_pairs(sums, table)) + self._of_nobody(sums, table)
            result += self._variance_beyond_pairs(sums, table)
        return result

    def _exact_variance(self, columns: Clique, weights: Reals) -> float:
        """Variance of one sum over a table of at most two columns.

        Of a pair the sums along its columns are those of the singles, of a column that of all values the total; what
        remains of the weights meets the noise as far as it was believed, and the doubt: between that of cells that
        deviate each for itself and that of cells that do so together, as neighbours do.
        """
        squares, belief = self.model.squares, self.model.table_belief(columns)
        if belief is None:
            return squares.sum_variance(columns, weights)
        shares = [self.model.singles[i] / max(self.model.total, 1.0) for i in columns]
        if len(columns) == 1:
            mean = float(weights @ shares[0])
            smaller, rest = mean**2 * squares.interactions[()][1], weights - mean
        else:
            rows, among = weights @ shares[1], shares[0] @ weights
            mean = float(shares[0] @ rows)
            smaller = self._exact_variance(columns[:1], rows) + self._exact_variance(columns[1:], among - mean)
            rest = weights - rows[:, None] - among + mean
        each = np.abs(rest) * np.sqrt(belief.doubt)
        doubt = float(np.linalg.norm(each) ** (2 - TOGETHER) * each.sum() ** TOGETHER)
        noise = squares.sum_variance(columns, belief.factor * rest) if belief.factor.any() else 0.0
        return smaller + noise + doubt

    def _draws(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        noise = seed_key(0).random_generator("errors", *columns)  # nothing is secret: everything here is published
        first = self.model.draw_replicate(columns, noise, classes)
        number = max(8, min(MANY, CELLS // max(1, first.size)))
        return np.stack([first, *(self.model.draw_replicate(columns, noise, classes) for _ in range(number - 1))])

    def _of_pairs(self, sums: CellSums, table: Reals) -> Reals:
        """Return the variance that pairs of columns add to sums over tables of more, each cell by that of its pair.

        Tables that are drawn are few, and of a cell that a pair has next to nobody in most of them say nothing.
        """
        mass = sums.weight * table.reshape(-1)[sums.cell]
        codes = np.unravel_index(sums.cell, table.shape)
        result = np.zeros(sums.number)
        for first, second in combinations(range(len(sums.columns)), 2):
            pair = sums.columns[first], sums.columns[second]
            axes = tuple(axis for axis in range(table.ndim) if axis not in (first, second))
            within = np.ravel_multi_index((codes[first], codes[second]), (table.shape[first], table.shape[second]))
            own = table.sum(axis=axes).reshape(-1)[within]
            error = np.sqrt(merge_values(self._cell_variances(pair), pair, sums.classes)).reshape(-1)[within]
            part = np.divide(mass * error_above_zero(own, error), own, out=np.zeros_like(mass), where=own > 0)
            place, at = np.unique(sums.group * (table.shape[first] * table.shape[second]) + within, return_inverse=True)
            each = np.bincount(at, weights=part)
            of = place // (table.shape[first] * table.shape[second])
            alone, whole = (np.bincount(of, weights=one, minlength=sums.number) for one in (each**2, each))
            steep = np.sqrt(alone) ** (2 - TOGETHER) * whole**TOGETHER
            result += steep * self._share_left_out(sums, codes, (first, second))
        return result

    def _of_nobody(self, sums: CellSums, table: Reals) -> Reals:
        """Return the variance of values that are estimated to be nobody's, shared out by the other columns alone."""
        codes, result = np.unravel_index(sums.cell, table.shape), np.zeros(sums.number)
        total = max(self.model.total, 1.0)
        singles = [
            merge_values(self.model.singles[each_column], (each_column,), sums.classes) for each_column in sums.columns
        ]
        shares = np.array([single[code] / total for single, code in zip(singles, codes, strict=True)])
        for place, each_column in enumerate(sums.columns):
            size = self.model.sizes[each_column]
            noise = self.model.squares.sum_variance((each_column,), np.eye(1, size)[0])
            error = np.sqrt(merge_values(np.full(size, noise), (each_column,), sums.classes))
            nobody = np.where(singles[place] <= POSSIBLE, error_above_zero(np.zeros_like(error), error), 0.0)[
                codes[place]
            ]
            part = sum_by_group(sums, sums.weight * nobody * np.delete(shares, place, axis=0).prod(axis=0))
            result += part**2
        return result

    def _cell_variances(self, pair: Clique) -> Reals:
        """Variance of every cell of a pair: noise as far as it was believed, and doubt."""
        belief, shape = self.model.table_belief(pair), tuple(self.model.sizes[i] for i in pair)
        cell = np.zeros(shape)
        cell[0, 0] = 1.0
        noise = self.model.squares.sum_variance(pair, cell)
        return np.full(shape, noise) if belief is None else belief.factor**2 * noise + belief.doubt

    def _share_left_out(self, sums: CellSums, codes: Sequence[Ints], axes: Sequence[int]) -> Reals:
        """A sum over all values of a column does not deviate: the product over columns of what is left out of each."""
        result = np.ones(sums.number)
        for place in axes:
            column = sums.columns[place]
            met = np.unique(np.stack([sums.group, codes[place]]), axis=1)
            single = merge_values(self.model.singles[column], (column,), sums.classes)
            share = single[met[1]] / max(self.model.total, 1.0)
            result *= np.maximum(1 - np.bincount(met[0], weights=share, minlength=sums.number), 0.0)
        return result

    def _variance_beyond_pairs(self, sums: CellSums, table: Reals) -> Reals:
        """Return what three columns and more deviate from their pairs, whose own sums don't change by it.

        mu, as a sample does, and ``Model.beyond`` of mu^2, where neighbouring cells deviate together to a part: between
        the sum of squares and the square of the sum. A sum over all values of a column does not deviate, so each column
        takes off the share of the records that the sum's values of it have.
        """
        mass = sums.weight * table.reshape(-1)[sums.cell]
        steep = self.model.variance_beyond_pairs(len(sums.columns))
        alone, whole = np.sqrt(sum_by_group(sums, mass**2)), sum_by_group(sums, mass)
        result = sum_by_group(sums, sums.weight * mass) + steep * alone ** (2 - BEYOND) * whole**BEYOND
        codes = np.unravel_index(sums.cell, table.shape)
        return result * self._share_left_out(sums, codes, range(len(sums.columns)))


# Tables ---------------------------------------------------------------------------------------------------------------
# The two tables in which noisy tables are published, and back: what was measured, and every cell of it.
#
# ``privsql_cliques``: ``clique`` 0, 1, .. in the order in which they were measured, the names of its ``columns``, what
# it spent (``budget``, a fraction: of epsilon, or of rho), the ``scale`` of its noise, and what choosing it spent
# (``choice``; NULL where nothing was chosen). ``privsql_marginals``: the ``count`` of each ``cell`` of a clique,
# numbered row by row over its columns.

CLIQUES, MARGINALS = "privsql_cliques", "privsql_marginals"
NOISY_TABLES = {
    CLIQUES: ReleaseTable(("clique INTEGER", "columns VARCHAR[]", "budget VARCHAR", "scale DOUBLE", "choice VARCHAR")),
    MARGINALS: ReleaseTable(("clique INTEGER", "cell BIGINT", "count BIGINT")),
}
CELL_COLUMNS = ("clique", "cell", "count")
TABLE_ORDERS = {"cliques": ["clique"], "marginals": ["clique", "cell"]}  # by view the columns that order its rows
SMALLEST_BUDGET = Fraction(1, 10**15)
MOST_CELLS = 50_000_000  # that are read


def write_noisy_tables(db: Relations, tables: Sequence[NoisyTable], names: Sequence[str]) -> None:
    """Write both tables into the release; ``names``: of all columns."""
    numbers = np.arange(len(tables))
    columns = [[names[i] for i in one.columns] for one in tables]
    cliques = {
        "clique": pa.array(numbers, pa.int32()),
        "columns": pa.array(columns, pa.list_(pa.string())),
        "budget": pa.array([fraction_text(one.budget) for one in tables], pa.string()),
        "scale": pa.array([one.law.scale(one.budget) for one in tables], pa.float64()),
        "choice": pa.array([None if one.choice is None else fraction_text(one.choice) for one in tables], pa.string()),
    }
    sizes = [one.counts.size for one in tables]
    marginals = {
        "clique": pa.array(np.repeat(numbers, sizes), pa.int32()),
        "cell": pa.array(np.concatenate([np.arange(size) for size in sizes]), pa.int64()),
        "count": pa.array(np.concatenate([one.counts.reshape(-1) for one in tables]), pa.int64()),
    }
    write_release_table(db, CLIQUES, pa.table(cliques))
    write_release_table(db, MARGINALS, pa.table(marginals), title="Writing the tables")


def read_noisy_tables(
    cliques: pa.Table, marginals: pa.Table, names: Sequence[str], sizes: Sequence[int], law: NoiseLaw = PURE
) -> list[NoisyTable]:
    """Return what was measured; ``ValueError`` unless every cell of every clique is there once, in order."""
    if cliques["clique"].to_pylist() != list(range(len(cliques))):
        raise ValueError("cliques are not numbered 0, 1, ..")
    places = {name: place for place, name in enumerate(names)}
    columns = [tuple(places[name] for name in row) for row in cliques["columns"].to_pylist()]
    if any(list(one) != sorted(set(one)) for one in columns):
        raise ValueError("the columns of a clique are out of order")
    shapes = [tuple(sizes[i] for i in one) for one in columns]
    cells = [prod(shape) for shape in shapes]
    if sum(cells) != len(marginals) or sum(cells) > MOST_CELLS:
        raise ValueError(f"{len(marginals):,} cells are published, the cliques have {sum(cells):,}")
    if any(marginals[name].null_count for name in CELL_COLUMNS):
        raise ValueError("a count is missing")
    edges = np.cumsum([0, *cells])
    clique, cell, count = (marginals[name].to_numpy().astype(np.int64) for name in CELL_COLUMNS)
    whose = np.repeat(np.arange(len(cells)), cells)
    if not np.array_equal(clique, whose) or not np.array_equal(cell, np.arange(len(cell)) - edges[whose]):
        raise ValueError("cells are missing, or out of order")
    budgets = [_parse_budget(one) for one in cliques["budget"].to_pylist()]
    choices = [None if one is None else _parse_budget(one) for one in cliques["choice"].to_pylist()]
    counts = [count[edges[k] : edges[k + 1]].reshape(shape) for k, shape in enumerate(shapes)]
    return [NoisyTable(*one, law) for one in zip(columns, budgets, counts, choices, strict=True)]


def _parse_budget(value: str) -> Fraction:
    result = Fraction(value)
    if not SMALLEST_BUDGET <= result <= LARGEST_EPSILON:
        raise ValueError("a budget is no positive number")
    return result


# Explanations ---------------------------------------------------------------------------------------------------------
# Noisy tables for people: what was counted, in how many cells, and with how much noise.

NAMED = 4  # columns of a table that are named


def tables_structure(db: Relations, manifest: Manifest) -> list[Structure]:
    """Every table that was counted."""
    cliques = db.arrow(all_rows(table(CLIQUES)).order_by(column("clique"))).to_pylist()
    cells = np.bincount(db.arrow(all_rows(table(MARGINALS)))["clique"].to_numpy(), minlength=len(cliques))
    scales = np.array([one["scale"] for one in cliques], dtype=np.float64)
    concentrated = Fraction(manifest.parameters.get("delta", "0")) > 0
    rows = [
        (_table_name(one["columns"]), int(number), one["budget"], float(f"{noise:.4g}"))
        for one, number, noise in zip(cliques, cells, scales if concentrated else deviation_of(scales), strict=True)
    ]
    sentence = (
        f"{len(rows):,} tables with {int(cells.sum()):,} counts were made of the records, and noise was added to every "
        "count. All else that is answered follows from these counts."
    )
    return [
        part(
            "The noisy tables",
            sentence,
            ("table by", "counts", "rho" if concentrated else "epsilon", "standard deviation of the noise"),
            rows,
        )
    ]


def _table_name(columns: list[str]) -> str:
    more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
    return (" \u00d7 ".join(columns[:NAMED]) or "all records") + more
