"""Noisy tables over parts of the columns: least squares, shrinkage, and one model that fits all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import chain, combinations
from math import inf, isqrt, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.dp_random import PURE, NoiseLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from fractions import Fraction

    from privsql.dp_random import TableNoise

# Measured -------------------------------------------------------------------------------------------------------------
# Tables of counts with noise: one of each clique of columns, every cell of its domain.

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Clique = tuple[int, ...]
Classes = Mapping[int, Reals]


@dataclass(frozen=True)
class NoisyTable:
    """The counts of a clique, each with noise of its ``law`` that spends the ``budget``.

    ``columns``: places of the k columns, ascending; ``counts``: an array of k axes, one value of a column each. A
    record added or removed changes one true count by one, so the table spends its budget once. ``choice``: what
    choosing it among others spent; None where it was not chosen.
    """

    columns: Clique
    budget: Fraction
    counts: Ints
    choice: Fraction | None = None
    law: NoiseLaw = PURE

    @property
    def variance(self) -> float:
        """Return the variance of each count's noise."""
        return self.law.variance(self.budget)


@dataclass(frozen=True)
class Nested:
    """A column ``child`` whose listed values determine those of ``parent``: ``above`` has their codes, in order.

    That is public. What is not listed of the child, and NULL, may stand beside any value of the parent.
    """

    parent: int
    child: int
    above: Ints

    @property
    def pair(self) -> Clique:
        """Return the two columns, as a table has them."""
        return min(self.parent, self.child), max(self.parent, self.child)

    def spread_child(self, singles: Sequence[Reals]) -> Reals:
        """Return the table of the pair, in its order: no record in cells that can hold none, and the parent's counts.

        The parent has fewer values, whose counts so have less noise than sums of the child's: these are scaled to them.
        What is not listed of the child stands where the parent has more records than its listed values.
        """
        counts, child, listed = singles[self.parent], singles[self.child], len(self.above)
        inside = np.bincount(self.above, child[:listed], len(counts))
        beside = nearest_nonnegative(counts - inside, float(child[listed:].sum()))
        scale = np.maximum(counts - beside, 0) / np.maximum(inside, POSSIBLE)
        table = np.zeros((len(counts), len(child)))
        table[self.above, np.arange(listed)] = child[:listed] * scale[self.above]
        table[:, listed:] = np.outer(beside, child[listed:] / max(float(child[listed:].sum()), POSSIBLE))
        return table if self.parent < self.child else table.T

    def spread_variance(self, above: Reals, below: float, size: int) -> Reals:
        """Return what is added to the variances of the pair's cells: ``above`` by the parent's, ``below`` by a child's.

        What is not listed of the child is the parent's count less those of its listed values, whose errors may go
        together. The cells of listed values have the errors of the child's counts alone. ``size``: the child's values.
        """
        listed = len(self.above)
        table = np.zeros((len(above), size))
        table[:, listed:] = (above + below * np.bincount(self.above, minlength=len(above)))[:, None]
        return table if self.parent < self.child else table.T


def measure_table(
    columns: Clique,
    counts: Ints,
    budget: Fraction,
    noise: TableNoise,
    choice: Fraction | None = None,
    law: NoiseLaw = PURE,
) -> NoisyTable:
    """Return the table of true ``counts`` with noise, drawn as one vector."""
    noisy = noise.add_noise(counts.reshape(-1), law.unit_budget(budget)).reshape(counts.shape)
    return NoisyTable(columns, budget, noisy, choice, law)


def flat_cells(codes: Ints, columns: Clique, sizes: Sequence[int]) -> Ints:
    """Return the cell of the table of some columns, row by row, that each record of ``codes`` (n, d) lies in."""
    if not columns:
        return np.zeros(len(codes), dtype=np.int64)
    return np.ravel_multi_index(tuple(codes[:, i] for i in columns), [sizes[i] for i in columns])


def sum_cells(codes: Ints, weights: Ints | Reals, columns: Clique, sizes: Sequence[int]) -> Reals:
    """Return the table of some columns: what the records in each cell weigh; whole numbers are exact below 2^53."""
    shape = [sizes[i] for i in columns]
    table = np.bincount(flat_cells(codes, columns, sizes), weights, prod(shape))
    return np.asarray(table, dtype=np.float64).reshape(shape)


def divide_budget(total: Fraction, weights: Sequence[int]) -> list[Fraction]:
    """Return parts of a budget in proportion to whole numbers; their sum is ``total``, exactly."""
    return [total * weight / sum(weights) for weight in weights]


def budget_weight(cells: int) -> int:
    """Return the share of a budget for a table of so many cells: 1,000 times the square root, rounded down.

    With a budget of e its counts err by cells/e in all; over several tables that sum is least for the square root.
    """
    return isqrt(cells * 10**6)


# Sums over cells ------------------------------------------------------------------------------------------------------
# What is asked of tables: sums over their cells.

DENSE = 2_000_000  # sums by group and cell that are made in one array


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
        """Return the sums with every cell that is met in part met as a whole, or not at all."""
        return replace(self, weight=(self.weight > 0 if up else self.weight >= 1).astype(np.float64))

    def take_cells(self, taken: NDArray[np.bool_]) -> CellSums:
        """Return the sums over some of the cells."""
        return replace(self, cell=self.cell[taken], group=self.group[taken], weight=self.weight[taken])

    def sum_table(self, table: Reals) -> Reals:
        """Return the sums, (G,)."""
        return self.add_up(table.reshape(-1)[self.cell] * self.weight)

    def add_up(self, values: Reals) -> Reals:
        """Add up values of the cells by sum, (G,)."""
        return np.asarray(np.bincount(self.group, values, self.number), dtype=np.float64)


def sum_places(keys: Ints, size: int, *values: Reals) -> tuple[Ints, list[Reals]]:
    """Return the different keys below ``size``, ascending, and the sums of values by key."""
    if size <= DENSE:
        places = np.flatnonzero(np.bincount(keys, minlength=size))
        return places, [np.asarray(np.bincount(keys, one, size)[places], dtype=np.float64) for one in values]
    places, at = np.unique(keys, return_inverse=True)
    return places, [np.asarray(np.bincount(at, one), dtype=np.float64) for one in values]


def drop_parents(sums: CellSums, nested: Sequence[Nested], sizes: Sequence[int]) -> list[CellSums]:
    """Return parts that add up to the sums, none over a column that another one in it determines by listed values.

    Cells that can hold no record are in no part. Where values were taken together by class, nothing is changed.
    """
    for one in nested:
        if not set(one.pair) <= set(sums.columns) or sums.classes:
            continue
        codes = np.unravel_index(sums.cell, [sizes[i] for i in sums.columns])
        child, parent = (codes[sums.columns.index(i)] for i in (one.child, one.parent))
        listed = child < len(one.above)
        right = listed & (one.above[np.minimum(child, len(one.above) - 1)] == parent)
        left = tuple(i for i in sums.columns if i != one.parent)
        cell = np.ravel_multi_index([codes[sums.columns.index(i)] for i in left], [sizes[i] for i in left])
        result = drop_parents(replace(sums.take_cells(right), columns=left, cell=cell[right]), nested, sizes)
        return result if listed.all() else [*result, sums.take_cells(~listed)]
    return [sums]


# Nonnegative ----------------------------------------------------------------------------------------------------------
# Tables that a population can have: nothing negative, a given total, given sums along some axes.


AGAIN = 5  # rounds of proportional fitting of a table that is nearly right
POSSIBLE = 1e-6  # records that no cell is without, so that every sum can be made up for


def nearest_nonnegative(table: Reals, total: float) -> Reals:
    """Return the non-negative table with a total that is nearest to ``table``: max(table - t, 0) for the right t."""
    if total <= 0:
        return np.zeros_like(table)
    descending = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, table.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    result: Reals = np.maximum(table - level, 0.0)
    return result


def rake_table(table: Reals, margins: Sequence[Margin], rounds: int) -> Reals:
    """Scale the cells of a table in turn to each margin, so many times: iterative proportional fitting.

    A margin is (axes, sums over all other axes, in the order of the table's). From a product of factors it leads to the
    table of largest entropy with these margins. Cells that are 0 stay so, and so do sums that no cell can make up for.
    """
    for _ in range(rounds):
        for axes, wanted in margins:
            others = tuple(axis for axis in range(table.ndim) if axis not in axes)
            now = table.sum(axis=others)
            scale = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
            table = table * np.expand_dims(scale, others)
    return table


if TYPE_CHECKING:
    Margin = tuple[tuple[int, ...], Reals]


# Shrinkage ------------------------------------------------------------------------------------------------------------
# How far a noisy table is to be believed: it is shrunk towards what simpler tables make likely.
#
# A cell of the least-squares table is g = x + noise of variance s^2, and simpler tables make mu of x likely.
#
# Pairs of columns first: what makes them dependent is mostly of few dimensions, noise is of all. So the singular values
# of g - mu are shrunk as is best for such a sum (Gavish & Donoho, IEEE Trans. Inf. Theory 2017), and added to mu.
#
# How far x lies from that centre is told by all cells together: with variance a mu, where a fits the squares less s^2.
# The posterior mean is the centre + S (g - centre), S = a mu / (a mu + s^2).
#
# A single column may be smooth, as ages are: then the variance of its coefficient k falls as k^-b, with b = 0 if it is
# not. Scale and b are the likeliest.

LEAST = 1e-9  # records: the variance of an impossible cell
FALLING, SCALES = (0, 1, 2, 3, 4), np.geomspace(1e-2, 10, 20)  # b, and scales beside the mean square
ESTIMATED = 3  # parameters of the prior of a column
LARGEST_SIDE = 500  # values of the smaller column of a pair whose singular values are computed


@dataclass(frozen=True)
class BelievedTable:
    """A table after shrinkage: the posterior ``mean`` and ``variance`` of every cell."""

    mean: Reals
    variance: Reals


def believe_table(table: Reals, expected: Reals, noise: float) -> BelievedTable:
    """Return the posterior of a table: cells lie apart from a centre with a variance that goes with what is expected.

    Args:
        table: That of least squares, g.
        expected: What simpler tables make likely of it, mu.
        noise: The variance of its noise, s^2.
    """
    centre = find_centre(table, expected, noise)
    far = table - centre
    spread = max(float(((far**2 - noise) * expected).sum()), 0.0) / max(float((expected**2).sum()), LEAST)
    prior = spread * expected + LEAST
    part = prior / (prior + noise)
    return BelievedTable(centre + part * far, part * noise)


def find_centre(table: Reals, expected: Reals, noise: float) -> Reals:
    """Return mu and, of a pair of columns, what the strongest singular values of g - mu add to it."""
    shape, deviation = table.shape, max(noise, LEAST) ** 0.5
    if len(shape) != 2 or min(shape) > LARGEST_SIDE:
        return expected
    left, values, right = np.linalg.svd((table - expected) / deviation, full_matrices=False)
    square = np.maximum((values**2 - sum(shape)) ** 2 - 4 * prod(shape), 0.0)
    kept = np.where(values > shape[0] ** 0.5 + shape[1] ** 0.5, np.sqrt(square) / np.maximum(values, LEAST), 0.0)
    return np.asarray(expected + (left * kept) @ right * deviation)


def believe_column(table: Reals, variance: float) -> BelievedTable:
    """Return the likeliest posterior of a column, smooth or not.

    Few cells don't tell that they lie near it: the variance is taken to be one standard error of its estimate at least,
    and as the prior is an estimate of m cells, sqrt(3/m) of the noise stays in the posterior at least.
    """
    coefficients, best, part = transform_table(table), -inf, np.ones(1)
    values, squares, order = coefficients[1:], coefficients[1:] ** 2, np.arange(1, len(table))
    square = float(squares.mean()) if len(values) else 0.0
    scales = np.maximum(SCALES * max(square, LEAST), square * sqrt(2 / max(len(values), 1)))[:, None]
    for shape in (order ** -float(falling) for falling in (FALLING if len(values) else ())):
        for prior in scales * shape / shape.mean():
            likely = -0.5 * float((np.log(prior + variance) + squares / (prior + variance)).sum())
            if likely > best:
                best, part = likely, prior / (prior + variance)
    mean = restore_table(np.concatenate([coefficients[:1], part * values]))
    least = variance * min(1.0, sqrt(ESTIMATED / len(table)))
    return BelievedTable(mean, np.full(len(table), max(float((part * variance).mean()), least)))


def fit_moments(first: Reals, second: Reals, wanted: Reals) -> tuple[float, float]:
    """Return the a, b >= 0 with which a first + b second is nearest to ``wanted``."""
    one, both, other = float(first @ first), float(first @ second), float(second @ second)
    left, right = float(first @ wanted), float(second @ wanted)
    determinant = one * other - both**2
    if determinant > 0:
        a, b = (left * other - right * both) / determinant, (right * one - left * both) / determinant
        if a >= 0 and b >= 0:
            return a, b
    alone = (max(left, 0.0) / one if one else 0.0, 0.0), (0.0, max(right, 0.0) / other if other else 0.0)
    return min(alone, key=lambda ab: float(((ab[0] * first + ab[1] * second - wanted) ** 2).sum()))


# Squares --------------------------------------------------------------------------------------------------------------
# Least squares over noisy tables, in closed form.
#
# Along every axis a table is written in an orthonormal basis whose first element is constant (the discrete cosine
# transform; for two values it is that of Walsh and Hadamard). The coefficients whose axes tau are not constant are the
# interaction of the columns tau, and different interactions never mix. Noise of variance s^2 in every cell of a clique
# gamma is noise of variance s^2 in every coefficient. Summed over the columns of gamma that are not in a, P cells each,
# it has the variance s^2 P; in the table of the columns a, which has Q cells for each of these sums, a coefficient is
# smaller by sqrt(Q). So gamma tells the coefficients of tau, in gamma and a, with variance s^2 P / Q. The average over
# all cliques with weights 1/variance is the least-squares estimate, and 1/(sum of weights) its variance. What is made
# of these is consistent by construction, and whatever is asked, its answer has no bias and an exact variance.

ZERO, ROUNDED = 1e-9, 1e-12  # of a coefficient of a question, relative to the largest, or of a square: doubles


class LeastSquares:
    """The least-squares estimate from noisy ``tables`` over columns with ``sizes`` values."""

    def __init__(self, tables: Iterable[NoisyTable], sizes: Sequence[int]) -> None:
        self.tables, self.sizes = tuple(tables), tuple(sizes)
        self.coefficients: Callable[[Clique], tuple[Reals, Reals]] = lru_cache(maxsize=64)(self._combine_tables)
        self._project: Callable[[int, Clique], tuple[Reals, float]] = cache(self._project_table)

    def is_measured(self, columns: Clique) -> bool:
        """Return whether some table told of all interactions among the columns."""
        return any(set(columns) <= set(one.columns) for one in self.tables)

    def estimate_table(self, columns: Clique) -> Reals:
        """Return the least-squares table of some columns; an interaction that no clique holds is taken to be 0."""
        return restore_table(self.coefficients(columns)[0])

    def sum_variance(self, columns: Clique, weights: Reals) -> float:
        """Return the variance of the sum of the table's cells times ``weights``, an array of the table's shape: exact.

        Infinite where that needs an interaction that no clique holds.
        """
        precision, square = self.coefficients(columns)[1], np.square(question_coefficients(weights))
        if square[precision == 0].any():
            return inf
        return float(np.divide(square, precision, out=np.zeros_like(square), where=precision > 0).sum())

    def sum_variances(self, sums: CellSums) -> Reals:
        """Return the variances of sums over cells, (G,), as of ``sum_variance``.

        The square of a question's part in the interaction of some columns is that of its sums by these, beside the
        number of cells in each, less those of all interactions within.
        """
        shape, precision = [self.sizes[i] for i in sums.columns], self.coefficients(sums.columns)[1]
        codes, result = np.unravel_index(sums.cell, shape), np.zeros(sums.number)
        parts: dict[Clique, Reals] = {}
        for axes in chain.from_iterable(combinations(range(len(shape)), k) for k in range(len(shape) + 1)):
            sizes = [shape[axis] for axis in axes]
            within = np.ravel_multi_index([codes[axis] for axis in axes], sizes) if axes else np.zeros_like(sums.cell)
            places, (added,) = sum_places(sums.group * prod(sizes) + within, sums.number * prod(sizes), sums.weight)
            square = np.bincount(places // prod(sizes), added**2, sums.number) * prod(sizes) / prod(shape)
            inside = sum(part for smaller, part in parts.items() if set(smaller) < set(axes))
            parts[axes] = np.where(square - inside > ROUNDED * square, square - inside, 0.0)
            known = precision[tuple(min(int(axis in axes), size - 1) for axis, size in enumerate(shape))]
            result += parts[axes] / known if known else np.where(parts[axes] > 0, inf, 0.0)
        return result

    def largest_step(self, columns: Clique, weights: Reals) -> float:
        """Return the largest weight of one count in the estimate of the sum of cells times ``weights``."""
        precision, steps = self.coefficients(columns)[1], [0.0]
        each = question_coefficients(weights)
        each = np.divide(each, precision, out=np.zeros_like(each), where=precision > 0)
        for at, one in enumerate(self.tables):
            inside = tuple(i for i in columns if i in one.columns)
            others = prod(self.sizes[i] for i in columns if i not in inside)
            block = each[tuple(slice(None) if i in inside else 0 for i in columns)]
            steps.append(float(np.abs(restore_table(block)).max()) * self._project(at, inside)[1] * sqrt(others))
        return max(steps)

    def cell_variance(self, columns: Clique) -> float:
        """Return the variance of a cell of the table; an interaction that no clique holds has no noise."""
        precision = self.coefficients(columns)[1]
        return float(np.divide(1, precision, out=np.zeros_like(precision), where=precision > 0).mean())

    @property
    def total(self) -> float:
        """Return the estimated number of records."""
        return self._count_total[0]

    @property
    def total_variance(self) -> float:
        """Return the variance of the estimated number of records."""
        return 1 / self._count_total[1]

    @cached_property
    def _count_total(self) -> tuple[float, float]:
        """Return the number of records, and its precision."""
        parts = [self._project(at, ()) for at in range(len(self.tables))]
        precision = sum(one for _, one in parts)
        return sum(float(result) * one for result, one in parts) / precision, precision

    @cached_property
    def _tables_by_column(self) -> list[list[int]]:
        return [[at for at, one in enumerate(self.tables) if i in one.columns] for i in range(len(self.sizes))]

    def _combine_tables(self, columns: Clique) -> tuple[Reals, Reals]:
        """Return coefficients of the table of some columns and their precisions, 0 for those that no clique holds."""
        shape = [self.sizes[i] for i in columns]
        sums, precision = np.zeros(shape), np.zeros(shape)
        for at in sorted({at for i in columns for at in self._tables_by_column[i]}):
            inside = tuple(i for i in columns if i in self.tables[at].columns)
            result, known = self._project(at, inside)
            others = prod(self.sizes[i] for i in columns if i not in inside)
            block = tuple(slice(None) if i in inside else 0 for i in columns)
            sums[block] += known * sqrt(others) * result
            precision[block] += known * others
        total, known = self._count_total
        sums[(0,) * len(columns)], precision[(0,) * len(columns)] = (
            total * known * sqrt(prod(shape)),
            known * prod(shape),
        )
        return np.divide(sums, precision, out=np.zeros(shape), where=precision > 0), precision

    def _project_table(self, at: int, columns: Clique) -> tuple[Reals, float]:
        """Return coefficients of a noisy table, summed to some of its columns, and the precision of each."""
        one = self.tables[at]
        others = tuple(axis for axis, i in enumerate(one.columns) if i not in columns)
        summed = prod(self.sizes[one.columns[axis]] for axis in others)
        return transform_table(one.counts.sum(axis=others).astype(np.float64)), 1 / (one.variance * summed)


def transform_table(table: Reals) -> Reals:
    """Return the coefficients of a table in the orthonormal basis."""
    from scipy.fft import dctn

    return np.asarray(dctn(table, norm="ortho")) if table.ndim else table


def restore_table(coefficients: Reals) -> Reals:
    """Return the table of coefficients."""
    from scipy.fft import idctn

    return np.asarray(idctn(coefficients, norm="ortho")) if coefficients.ndim else coefficients


def question_coefficients(weights: Reals) -> Reals:
    """Return the coefficients of a question's weights; those that are 0 but for rounding are 0."""
    result = transform_table(weights)
    return np.where(np.abs(result) <= ZERO * np.abs(result).max(), 0.0, result)
