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
    """The noisy counts of one table over a few columns (a clique).

    A record that is added or removed changes one true count by one, so the table spends its budget once.

    Attributes:
        columns: The positions of the k columns, ascending.
        budget: What the table spends: an epsilon under pure noise, a rho under Gaussian noise.
        counts: The noisy counts, an array with one axis for each column.
        choice: The budget that was spent on choosing this table among others; None if it was not chosen.
        law: The law of the noise.
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
    """A column ``child`` whose listed values determine the value of another column ``parent``.

    This dependence is public. A record whose child value is not listed, or is NULL, may have any value of the parent.

    Attributes:
        parent: The position of the determined column.
        child: The position of the determining column.
        above: The parent's code for each listed value of the child, in the order of the child's codes.
    """

    parent: int
    child: int
    above: Ints

    @property
    def pair(self) -> Clique:
        """Return the positions of both columns, ascending, as a table over them has its axes."""
        return min(self.parent, self.child), max(self.parent, self.child)

    def spread_child(self, singles: Sequence[Reals]) -> Reals:
        """Return the table over the pair that follows from the tables of the two single columns.

        Cells that contradict the dependence hold no record. The parent has fewer values, so its counts have less noise
        than sums of the child's counts; the child's counts are scaled to them. Where the parent has more records than
        its listed child values have, the difference goes to the child's unlisted values and NULL.

        Args:
            singles: The estimated counts of every column.

        Returns:
            The expected records of each cell, with the axes in the order of ``pair``.
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
        """Return the variances of the cells of ``spread_child`` that the child's own variances do not contain.

        The count of unlisted child values is the parent's count less the counts of its listed values, so the variances
        of all of these add up. The other cells have only the errors of the child's counts; for them the result is 0.

        Args:
            above: The variance of each count of the parent.
            below: The variance of each count of the child.
            size: The number of values of the child.
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
    """Add noise to the true ``counts`` of a table, drawn as one vector, and return the noisy table."""
    noisy = noise.add_noise(counts.reshape(-1), law.unit_budget(budget)).reshape(counts.shape)
    return NoisyTable(columns, budget, noisy, choice, law)


def flat_cells(codes: Ints, columns: Clique, sizes: Sequence[int]) -> Ints:
    """Return the cell in which each record lies, as a row-major index into the table over ``columns`` (n,).

    Args:
        codes: The codes of the records in all d columns (n, d).
        columns: The positions of the table's columns.
        sizes: The number of values of every column (d,).
    """
    if not columns:
        return np.zeros(len(codes), dtype=np.int64)
    return np.ravel_multi_index(tuple(codes[:, i] for i in columns), [sizes[i] for i in columns])


def sum_cells(codes: Ints, weights: Ints | Reals, columns: Clique, sizes: Sequence[int]) -> Reals:
    """Return the table over ``columns`` in which each cell holds the sum of its records' weights.

    Sums of whole numbers are exact below 2^53. The arguments are those of ``flat_cells``, with one weight per record.
    """
    shape = [sizes[i] for i in columns]
    table = np.bincount(flat_cells(codes, columns, sizes), weights, prod(shape))
    return np.asarray(table, dtype=np.float64).reshape(shape)


def divide_budget(total: Fraction, weights: Sequence[int]) -> list[Fraction]:
    """Divide a budget in proportion to whole numbers, in exact fractions whose sum is ``total``."""
    return [total * weight / sum(weights) for weight in weights]


def budget_weight(cells: int) -> int:
    """Return the weight by which a table with so many cells shares in a budget: floor(1,000 sqrt(cells)).

    With budget e, the errors of a table's counts sum up to cells/e. The total over several tables is least when each
    budget is proportional to the square root of the table's cells.
    """
    return isqrt(cells * 10**6)


# Sums over cells ------------------------------------------------------------------------------------------------------
# What is asked of tables: sums over their cells.

DENSE = 2_000_000  # sums by group and cell that are made in one array


@dataclass(frozen=True)
class CellSums:
    """G weighted sums over the cells of one table, stored as n terms.

    Attributes:
        columns: The positions of the table's columns.
        cell: The cell of each term, a row-major index (n,).
        group: The sum to which each term belongs, 0 to G - 1 (n,).
        weight: The factor of each term's cell, from 0 to 1 (n,).
        number: G, the number of sums.
        classes: By column, how its values are merged into classes in this table (see ``merge_values``). Columns that
            are missing here keep their values.
    """

    columns: Clique
    cell: Ints
    group: Ints
    weight: Reals
    number: int
    classes: Classes = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Return whether all weights are 0 or 1, so that each cell counts fully or not at all."""
        return bool(((self.weight == 0) | (self.weight == 1)).all())

    def round_weights(self, *, up: bool) -> CellSums:
        """Return the same sums with every fractional weight rounded to 1 (``up``) or to 0."""
        return replace(self, weight=(self.weight > 0 if up else self.weight >= 1).astype(np.float64))

    def take_cells(self, taken: NDArray[np.bool_]) -> CellSums:
        """Return the sums over only those terms that ``taken`` marks (n,)."""
        return replace(self, cell=self.cell[taken], group=self.group[taken], weight=self.weight[taken])

    def sum_table(self, table: Reals) -> Reals:
        """Return the weighted sums over the cells of ``table``, (G,)."""
        return self.add_up(table.reshape(-1)[self.cell] * self.weight)

    def add_up(self, values: Reals) -> Reals:
        """Add up ``values`` of the terms (n,) by the sum to which they belong, (G,)."""
        return np.asarray(np.bincount(self.group, values, self.number), dtype=np.float64)


def sum_places(keys: Ints, size: int, *values: Reals) -> tuple[Ints, list[Reals]]:
    """Return the distinct keys, ascending, and for each array of ``values`` its sum at each of these keys.

    Keys are integers from 0 to ``size`` - 1.
    """
    if size <= DENSE:
        places = np.flatnonzero(np.bincount(keys, minlength=size))
        return places, [np.asarray(np.bincount(keys, one, size)[places], dtype=np.float64) for one in values]
    places, at = np.unique(keys, return_inverse=True)
    return places, [np.asarray(np.bincount(at, one), dtype=np.float64) for one in values]


def drop_parents(sums: CellSums, nested: Sequence[Nested], sizes: Sequence[int]) -> list[CellSums]:
    """Split sums so that no part mentions a column that follows from another column of the part.

    A part with listed child values needs no parent column, because the child determines it. Records with other child
    values stay in a part over all columns. Cells that can hold no record are dropped.

    Args:
        sums: The sums.
        nested: The columns that determine others.
        sizes: The number of values of every column.

    Returns:
        Parts whose sums add up to ``sums``. Sums over classes of values are returned unchanged.
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
    """Return the non-negative table that is nearest to ``table`` and whose cells add up to ``total``.

    It is max(table - t, 0), with t chosen so that the total fits. It is all zeros if ``total`` is not positive.
    """
    if total <= 0:
        return np.zeros_like(table)
    descending = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, table.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    result: Reals = np.maximum(table - level, 0.0)
    return result


def rake_table(table: Reals, margins: Sequence[Margin], rounds: int) -> Reals:
    """Scale a table's cells to each margin in turn, ``rounds`` times (iterative proportional fitting).

    A product of factors becomes the table of largest entropy with these margins. Cells that are 0 stay 0, so a margin
    that only such cells could supply is not reached.

    Args:
        table: The table.
        margins: Pairs of axes and the wanted sums over all other axes, in the order of the table's axes.
        rounds: How often all margins are taken in turn.
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
    """Shrink a noisy table towards a centre, and return the posterior of its cells.

    A cell's prior is normal around the centre (``find_centre``) with variance a mu, where a is fitted to the squared
    distances less the noise. The posterior mean is centre + S (g - centre), with S = a mu / (a mu + s^2).

    Args:
        table: The least-squares estimate of the table, g.
        expected: What simpler tables make of it, mu.
        noise: The variance of the noise in each cell of g, s^2.
    """
    centre = find_centre(table, expected, noise)
    far = table - centre
    spread = max(float(((far**2 - noise) * expected).sum()), 0.0) / max(float((expected**2).sum()), LEAST)
    prior = spread * expected + LEAST
    part = prior / (prior + noise)
    return BelievedTable(centre + part * far, part * noise)


def find_centre(table: Reals, expected: Reals, noise: float) -> Reals:
    """Return the table towards which a noisy table is shrunk.

    For a pair of columns it is mu plus the shrunk singular values of g - mu (Gavish & Donoho 2017). For other tables,
    and for pairs of two very long columns, it is mu. The arguments are those of ``believe_table``.
    """
    shape, deviation = table.shape, max(noise, LEAST) ** 0.5
    if len(shape) != 2 or min(shape) > LARGEST_SIDE:
        return expected
    left, values, right = np.linalg.svd((table - expected) / deviation, full_matrices=False)
    square = np.maximum((values**2 - sum(shape)) ** 2 - 4 * prod(shape), 0.0)
    kept = np.where(values > shape[0] ** 0.5 + shape[1] ** 0.5, np.sqrt(square) / np.maximum(values, LEAST), 0.0)
    return np.asarray(expected + (left * kept) @ right * deviation)


def believe_column(table: Reals, variance: float) -> BelievedTable:
    """Shrink the table of a single column, under the likeliest of several priors from rough to smooth.

    Few cells give a poor estimate of the prior's variance, so the prior's variance is at least one standard error of
    that estimate. For the same reason the posterior variance of m cells is at least sqrt(3/m) times the noise.

    Args:
        table: The least-squares estimate of the column's counts (m,).
        variance: The variance of its noise.
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
    """Return the a, b >= 0 for which a ``first`` + b ``second`` is nearest to ``wanted`` by least squares."""
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
    """The least-squares estimate of all tables from noisy ``tables``, over columns with ``sizes`` values."""

    def __init__(self, tables: Iterable[NoisyTable], sizes: Sequence[int]) -> None:
        self.tables, self.sizes = tuple(tables), tuple(sizes)
        self.coefficients: Callable[[Clique], tuple[Reals, Reals]] = lru_cache(maxsize=64)(self._combine_tables)
        self._project: Callable[[int, Clique], tuple[Reals, float]] = cache(self._project_table)

    def is_measured(self, columns: Clique) -> bool:
        """Return whether some measured table holds all of these columns."""
        return any(set(columns) <= set(one.columns) for one in self.tables)

    def estimate_table(self, columns: Clique) -> Reals:
        """Return the least-squares estimate of the table over ``columns``.

        An interaction of columns that no measured table holds is taken to be 0.
        """
        return restore_table(self.coefficients(columns)[0])

    def sum_variance(self, columns: Clique, weights: Reals) -> float:
        """Return the exact variance of a weighted sum of the table's cells.

        The result is infinite if the sum depends on an interaction of columns that no measured table holds.

        Args:
            columns: The positions of the table's columns.
            weights: The weight of each cell, in the shape of the table.
        """
        precision, square = self.coefficients(columns)[1], np.square(question_coefficients(weights))
        if square[precision == 0].any():
            return inf
        return float(np.divide(square, precision, out=np.zeros_like(square), where=precision > 0).sum())

    def sum_variances(self, sums: CellSums) -> Reals:
        """Return the variance of each of several sums, (G,), each as ``sum_variance`` defines it.

        The part of a sum in one interaction of columns needs no transform. Add up the sum's weights over all other
        columns, square the results, divide by the number of cells in each, and subtract the parts of all smaller
        interactions.
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
        """Return how much the estimate of a weighted sum changes at most when one noisy count changes by one.

        The arguments are those of ``sum_variance``.
        """
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
        """Return the mean variance of the noise in the estimated cells of the table over ``columns``.

        An interaction that no measured table holds is estimated as 0 and adds no noise.
        """
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
        """Return the estimated number of records and its precision, which is 1/variance."""
        parts = [self._project(at, ()) for at in range(len(self.tables))]
        precision = sum(one for _, one in parts)
        return sum(float(result) * one for result, one in parts) / precision, precision

    @cached_property
    def _tables_by_column(self) -> list[list[int]]:
        return [[at for at, one in enumerate(self.tables) if i in one.columns] for i in range(len(self.sizes))]

    def _combine_tables(self, columns: Clique) -> tuple[Reals, Reals]:
        """Return the coefficients of the table over ``columns``, and the precision (1/variance) of each.

        The precision is 0 for coefficients that no measured table holds.
        """
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
        """Return the coefficients of measured table number ``at``, summed to ``columns``, and the precision of each."""
        one = self.tables[at]
        others = tuple(axis for axis, i in enumerate(one.columns) if i not in columns)
        summed = prod(self.sizes[one.columns[axis]] for axis in others)
        return transform_table(one.counts.sum(axis=others).astype(np.float64)), 1 / (one.variance * summed)


def transform_table(table: Reals) -> Reals:
    """Return the coefficients of a table in the orthonormal basis of the discrete cosine transform."""
    from scipy.fft import dctn

    return np.asarray(dctn(table, norm="ortho")) if table.ndim else table


def restore_table(coefficients: Reals) -> Reals:
    """Return the table that has these coefficients; the inverse of ``transform_table``."""
    from scipy.fft import idctn

    return np.asarray(idctn(coefficients, norm="ortho")) if coefficients.ndim else coefficients


def question_coefficients(weights: Reals) -> Reals:
    """Return the coefficients of a question's weights, with those set to 0 that differ from 0 only by rounding."""
    result = transform_table(weights)
    return np.where(np.abs(result) <= ZERO * np.abs(result).max(), 0.0, result)
