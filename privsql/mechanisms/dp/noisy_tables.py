"""Noisy tables over some columns, their least-squares estimates, and how these are shrunk towards likely values."""

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
# Noisy counts of all cells of a table over some columns. Such a set of columns is called a clique.

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Clique = tuple[int, ...]
Classes = Mapping[int, Reals]


@dataclass(frozen=True)
class NoisyTable:
    """The noisy counts of one table over a few columns.

    Adding or removing a record changes one true count by one. So the whole table spends its budget once.

    Attributes:
        columns: The positions of the k columns, ascending.
        budget: The budget of the counts: an epsilon under Laplace noise, a rho under Gaussian noise.
        counts: The noisy counts, an array with one axis for each column.
        choice: The budget that was spent on choosing privately which table to publish; None if the table was not
            chosen.
        law: The law of the noise.
    """

    columns: Clique
    budget: Fraction
    counts: Ints
    choice: Fraction | None = None
    law: NoiseLaw = PURE

    @property
    def variance(self) -> float:
        """Return the variance of the noise in each count."""
        return self.law.variance(self.budget)


@dataclass(frozen=True)
class Nested:
    """A column (the child) whose listed values determine another column (the parent), as cities determine states.

    This dependence is public. A record whose child value is unlisted or NULL may have any value of the parent.

    Attributes:
        parent: The position of the parent column.
        child: The position of the child column.
        above: The parent's code for each listed value of the child, in the order of the child's codes.
    """

    parent: int
    child: int
    above: Ints

    @property
    def pair(self) -> Clique:
        """Return the positions of both columns, ascending; a table over them has its axes in this order."""
        return min(self.parent, self.child), max(self.parent, self.child)

    def spread_child(self, singles: Sequence[Reals]) -> Reals:
        """Return the table over parent and child that follows from the counts of the two single columns.

        A cell that contradicts the dependence is 0. The parent has fewer values, so its counts have less noise; the
        child's counts are scaled to them. If a parent's value has more records than its listed child values, the
        difference goes to the child's unlisted values and NULL.

        Args:
            singles: The estimated counts of every column, by position.

        Returns:
            The expected records of each cell, with axes in the order of ``pair``.
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
        """Return the variances of those cells, in the table over parent and child, whose child value is not listed.

        Not listed are unlisted values and NULL. ``spread_child`` counts their records as the parent's count less those
        of its listed child values. So the variances of all these counts add up. For other cells the result is 0.

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
    """Add noise to the true counts of a table.

    Args:
        columns: The positions of the table's columns.
        counts: The true counts, with one axis for each column.
        budget: The budget of the counts.
        noise: The generator of noise; the noise of all cells is drawn at once.
        choice: The budget that was spent on choosing privately which table to publish; None if the table was not
            chosen.
        law: The law of the noise.
    """
    noisy = noise.add_noise(counts.reshape(-1), law.unit_budget(budget)).reshape(counts.shape)
    return NoisyTable(columns, budget, noisy, choice, law)


def flat_cells(codes: Ints, columns: Clique, sizes: Sequence[int]) -> Ints:
    """Return the cell of a table in which each of n records lies, as a row-major index (n,).

    Args:
        codes: The codes of the records in all d columns (n, d).
        columns: The positions of the table's columns.
        sizes: The number of values of every column (d,).
    """
    if not columns:
        return np.zeros(len(codes), dtype=np.int64)
    return np.ravel_multi_index(tuple(codes[:, i] for i in columns), [sizes[i] for i in columns])


def sum_cells(codes: Ints, weights: Ints | Reals, columns: Clique, sizes: Sequence[int]) -> Reals:
    """Return the table in which each cell holds the sum of its records' weights.

    Sums of whole numbers below 2^53 are exact.

    Args:
        codes: The codes of the n records in all d columns (n, d).
        weights: The weights of the records (n,).
        columns: The positions of the table's columns.
        sizes: The number of values of every column (d,).
    """
    shape = [sizes[i] for i in columns]
    table = np.bincount(flat_cells(codes, columns, sizes), weights, prod(shape))
    return np.asarray(table, dtype=np.float64).reshape(shape)


def divide_budget(total: Fraction, weights: Sequence[int]) -> list[Fraction]:
    """Divide a budget in proportion to whole-number weights, into exact fractions that add up to it."""
    return [total * weight / sum(weights) for weight in weights]


def budget_weight(cells: int) -> int:
    """Return the weight of a table with so many cells when a budget is divided: floor(1,000 sqrt(cells)).

    With budget e, the errors of a table add up to cells/e. The total over several tables is least if each budget is
    proportional to the square root of the table's number of cells.
    """
    return isqrt(cells * 10**6)


# Sums over cells ------------------------------------------------------------------------------------------------------
# Questions become weighted sums over the cells of one table.

DENSE = 2_000_000  # largest array of sums by group and cell


@dataclass(frozen=True)
class CellSums:
    """G weighted sums over the cells of one table: one for each of the G groups in an analyst's question.

    The sums are stored as n terms; each term is one cell with a weight. A weight is a fraction if a condition cuts
    through a bin of numbers.

    Attributes:
        columns: The positions of the table's columns.
        cell: The cell of each term, as a row-major index (n,).
        group: The sum to which each term belongs, 0 to G - 1 (n,).
        weight: The weight of each term, from 0 to 1 (n,).
        number: G, the number of sums.
        classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value is
            in a class. Columns whose values are not merged are missing.
    """

    columns: Clique
    cell: Ints
    group: Ints
    weight: Reals
    number: int
    classes: Classes = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Return whether every cell counts fully or not at all: all weights are 0 or 1."""
        return bool(((self.weight == 0) | (self.weight == 1)).all())

    def round_weights(self, *, up: bool) -> CellSums:
        """Return these sums with every fractional weight rounded up to 1 (``up``) or down to 0.

        They bound a question in which a condition cuts through a bin: all or none of its records may meet the
        condition.
        """
        return replace(self, weight=(self.weight > 0 if up else self.weight >= 1).astype(np.float64))

    def take_cells(self, taken: NDArray[np.bool_]) -> CellSums:
        """Return these sums over only some of their n terms.

        Args:
            taken: Whether each term is kept (n,).
        """
        return replace(self, cell=self.cell[taken], group=self.group[taken], weight=self.weight[taken])

    def sum_table(self, table: Reals) -> Reals:
        """Return the G weighted sums over the cells of the given table (G,)."""
        return self.add_up(table.reshape(-1)[self.cell] * self.weight)

    def add_up(self, values: Reals) -> Reals:
        """Return for each of the G sums the total of some values of its terms (G,).

        Args:
            values: A value for each of the n terms of all sums (n,).
        """
        return np.asarray(np.bincount(self.group, values, self.number), dtype=np.float64)


def sum_places(keys: Ints, size: int, *values: Reals) -> tuple[Ints, list[Reals]]:
    """Add up values that share a key, such as a group and a cell of a table.

    Args:
        keys: The keys, whole numbers from 0 to ``size`` - 1 (n,).
        size: The number of possible keys.
        values: Arrays of n values each.

    Returns:
        The distinct keys, ascending. For each array, the sum of its values at each of these keys.
    """
    if size <= DENSE:
        places = np.flatnonzero(np.bincount(keys, minlength=size))
        return places, [np.asarray(np.bincount(keys, one, size)[places], dtype=np.float64) for one in values]
    places, at = np.unique(keys, return_inverse=True)
    return places, [np.asarray(np.bincount(at, one), dtype=np.float64) for one in values]


def drop_parents(sums: CellSums, nested: Sequence[Nested], sizes: Sequence[int]) -> list[CellSums]:
    """Split sums so that, where possible, no part has both a column and another column that it determines.

    A listed value of a child column, such as a city, determines that of its parent, such as a state. So terms with
    listed values need no parent column, and a table with fewer columns answers them. Terms with other child values stay
    in a part over all columns. Cells in which no record can lie are dropped.

    Args:
        sums: The sums.
        nested: The columns whose values determine those of another column.
        sizes: The number of values of every column.

    Returns:
        Parts that together add up to ``sums``. Sums over merged values are returned unchanged.
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
# Tables that a population can have: no negative counts, a given total, and given sums along some axes.


AGAIN = 5  # rounds of proportional fitting for a table that is nearly right
POSSIBLE = 1e-6  # records added to every cell, so that any margin can be reached


def nearest_nonnegative(table: Reals, total: float) -> Reals:
    """Return the non-negative table that is nearest to ``table`` and whose cells add up to ``total``.

    It is max(table - t, 0), where t is chosen to reach the total. If ``total`` is not positive, all cells are 0.
    """
    if total <= 0:
        return np.zeros_like(table)
    descending = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, table.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    result: Reals = np.maximum(table - level, 0.0)
    return result


def rake_table(table: Reals, margins: Sequence[Margin], rounds: int) -> Reals:
    """Scale a table's cells until its sums over some axes have given values (iterative proportional fitting).

    Cells that are 0 stay 0. So a sum over such cells only is not reached. If the table is a product of factors, the
    result is the table of largest entropy with these sums.

    Args:
        table: The table.
        margins: Pairs of some axes and the wanted sums over all other axes, in the order of the table's axes.
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
# A noisy table is shrunk towards what simpler tables make likely.
#
# A cell of the least-squares table is g = x + noise of variance s^2, where x is the true count. Simpler tables make mu
# likely for x.
#
# For a pair of columns a better centre than mu can be found. The dependence of two columns has few dimensions, noise
# has all of them. So the singular values of g - mu are shrunk in the optimal way (Gavish & Donoho, IEEE Trans. Inf.
# Theory 2017), and the result is added to mu.
#
# All cells together tell how far x lies from its centre: with variance a mu, where a fits the squared distances less
# s^2. The posterior mean is centre + S (g - centre), S = a mu / (a mu + s^2).
#
# The counts of a single column may be smooth, as those of ages are. Then the variance of coefficient k falls as k^-b;
# if they are not smooth, b = 0. The scale and b are chosen by likelihood.

LEAST = 1e-9  # variance of a cell in which no record can be
FALLING, SCALES = (0, 1, 2, 3, 4), np.geomspace(1e-2, 10, 20)  # candidates for b, and for the scale
ESTIMATED = 3  # number of parameters of a column's prior
LARGEST_SIDE = 500  # singular values are computed if the smaller column has at most so many values


@dataclass(frozen=True)
class BelievedTable:
    """A noisy table after shrinkage: its cells are averaged with what simpler tables make likely.

    Attributes:
        mean: The posterior mean of every cell.
        variance: The posterior variance of every cell.
    """

    mean: Reals
    variance: Reals


def believe_table(table: Reals, expected: Reals, noise: float) -> BelievedTable:
    """Shrink a noisy table towards what simpler tables make likely; return the posterior mean and variance of cells.

    A priori a cell is normal around a centre (see ``find_centre``). Its variance is a mu, where a is fitted to the
    squared distances from the centre less the noise. The posterior mean is centre + S (g - centre), with S = a mu / (a
    mu + s^2).

    Args:
        table: g, the least-squares estimate of the table.
        expected: mu, the table that simpler tables make likely, such as that of independent columns.
        noise: s^2, the variance of the noise in each cell of g.
    """
    centre = find_centre(table, expected, noise)
    far = table - centre
    spread = max(float(((far**2 - noise) * expected).sum()), 0.0) / max(float((expected**2).sum()), LEAST)
    prior = spread * expected + LEAST
    part = prior / (prior + noise)
    return BelievedTable(centre + part * far, part * noise)


def find_centre(table: Reals, expected: Reals, noise: float) -> Reals:
    """Return the table towards which a noisy table is shrunk to reduce its noise.

    For a pair of columns it is mu + D, where D is g - mu with shrunk singular values (Gavish & Donoho 2017): D keeps
    the strong dependence of the columns, and drops what noise explains. For other tables, and for pairs of two columns
    with very many values, it is mu.

    Args:
        table: g, the least-squares estimate of the table.
        expected: mu, the table that simpler tables make likely, such as that of independent columns.
        noise: s^2, the variance of the noise in each cell of g.
    """
    shape, deviation = table.shape, max(noise, LEAST) ** 0.5
    if len(shape) != 2 or min(shape) > LARGEST_SIDE:
        return expected
    left, values, right = np.linalg.svd((table - expected) / deviation, full_matrices=False)
    square = np.maximum((values**2 - sum(shape)) ** 2 - 4 * prod(shape), 0.0)
    kept = np.where(values > shape[0] ** 0.5 + shape[1] ** 0.5, np.sqrt(square) / np.maximum(values, LEAST), 0.0)
    return np.asarray(expected + (left * kept) @ right * deviation)


def believe_column(table: Reals, variance: float) -> BelievedTable:
    """Shrink the noisy counts of a single column, and return their posterior means and variances.

    Of several priors, from rough to smooth sequences of counts, the likeliest is used. As few cells give a poor
    estimate of the prior's variance, it is taken to be at least one standard error of that estimate. For the same
    reason, the posterior variance of m cells is at least sqrt(3/m) times the noise.

    Args:
        table: The least-squares estimate of the column's counts (m,).
        variance: The variance of the noise in them.
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
    """Return the factors a, b >= 0 for which a ``first`` + b ``second`` is nearest to ``wanted`` (least squares).

    It fits the two components of a variance to squared deviations.
    """
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
# Along every axis a table is written in an orthonormal basis whose first element is constant: the discrete cosine
# transform, which for two values is that of Walsh and Hadamard. Take the coefficients whose basis elements are constant
# along all axes but those of a set of columns, tau. They are the interaction of tau; different interactions never mix.
#
# Noise of variance s^2 in every cell of a clique gamma is noise of variance s^2 in every coefficient. Let a be the
# columns of the wanted table. If gamma is summed over its columns outside of a, P cells each, the noise has the
# variance s^2 P. In the table over a, each of these sums is spread over Q cells, and a coefficient is smaller by
# sqrt(Q). So gamma gives the coefficients of an interaction in both gamma and a with variance s^2 P / Q.
#
# The least-squares estimate is the average over all cliques with weights 1/variance, and its variance is
# 1/(sum of weights). Tables made from these estimates are consistent by construction. Every answer from them is
# unbiased and has an exact variance.

ZERO, ROUNDED = 1e-9, 1e-12  # relative size up to which a coefficient, or a square, is rounding error


class LeastSquares:
    """The least-squares estimates of all tables that follow from some noisy tables, with exact variances.

    A table is split into interactions of its columns. The interaction of some columns is the part of their table that
    tables over fewer of them do not explain. Each is estimated from all noisy tables that have these columns.
    """

    def __init__(self, tables: Iterable[NoisyTable], sizes: Sequence[int]) -> None:
        self.tables, self.sizes = tuple(tables), tuple(sizes)
        self.coefficients: Callable[[Clique], tuple[Reals, Reals]] = lru_cache(maxsize=64)(self._combine_tables)
        self._project: Callable[[int, Clique], tuple[Reals, float]] = cache(self._project_table)

    def is_measured(self, columns: Clique) -> bool:
        """Return whether some noisy table has all of these columns."""
        return any(set(columns) <= set(one.columns) for one in self.tables)

    def estimate_table(self, columns: Clique) -> Reals:
        """Return the least-squares estimate of the table over some columns.

        If no noisy table has several of these columns together, their interaction (the part of the table that smaller
        tables do not explain) is taken to be 0.
        """
        return restore_table(self.coefficients(columns)[0])

    def sum_variance(self, columns: Clique, weights: Reals) -> float:
        """Return the exact variance of the estimate of a weighted sum over a table's cells.

        It is infinite if no noisy table has columns together whose interaction matters for the sum. An interaction is
        the part of a table that tables over fewer of its columns do not explain.

        Args:
            columns: The positions of the table's columns.
            weights: The weight of each cell, in the shape of the table.
        """
        precision, square = self.coefficients(columns)[1], np.square(question_coefficients(weights))
        if square[precision == 0].any():
            return inf
        return float(np.divide(square, precision, out=np.zeros_like(square), where=precision > 0).sum())

    def sum_variances(self, sums: CellSums) -> Reals:
        """Return the exact variance of the estimate of each of G sums over a table's cells (G,).

        A variance is infinite if no noisy table has columns together whose interaction matters for the sum. An
        interaction is the part of a table that tables over fewer of its columns do not explain.

        To find the part of a sum in an interaction, add up its weights over all other columns and square the results.
        Divide them by the number of cells in each, and subtract the parts of all smaller interactions.
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
        """Return the most by which the estimate of a weighted sum changes if one noisy count changes by one.

        A bound on the estimate's error follows from it.

        Args:
            columns: The positions of the table's columns.
            weights: The weight of each cell, in the shape of the table.
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
        """Return the mean variance of the noise in the estimated cells of the table over some columns.

        Columns that no noisy table has together add no noise, because their interaction is taken to be 0.
        """
        precision = self.coefficients(columns)[1]
        return float(np.divide(1, precision, out=np.zeros_like(precision), where=precision > 0).mean())

    @property
    def total(self) -> float:
        """Return the estimated number of all records."""
        return self._count_total[0]

    @property
    def total_variance(self) -> float:
        """Return the variance of the estimated number of all records."""
        return 1 / self._count_total[1]

    @cached_property
    def _count_total(self) -> tuple[float, float]:
        """Return the estimated number of all records, and the precision of this estimate, which is 1/variance."""
        parts = [self._project(at, ()) for at in range(len(self.tables))]
        precision = sum(one for _, one in parts)
        return sum(float(result) * one for result, one in parts) / precision, precision

    @cached_property
    def _tables_by_column(self) -> list[list[int]]:
        return [[at for at, one in enumerate(self.tables) if i in one.columns] for i in range(len(self.sizes))]

    def _combine_tables(self, columns: Clique) -> tuple[Reals, Reals]:
        """Return the coefficients of the estimated table over some columns, and the precision of each.

        Coefficients are those of a discrete cosine transform (``transform_table``), in which noise is independent. The
        precision is 1/variance; it is 0 for coefficients about which no noisy table says anything.
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
        """Sum one noisy table to fewer columns, and return its discrete cosine transform and the precision of that.

        All coefficients of the transform have the same precision, which is 1/variance.

        Args:
            at: The number of the noisy table.
            columns: The columns that are left.
        """
        one = self.tables[at]
        others = tuple(axis for axis, i in enumerate(one.columns) if i not in columns)
        summed = prod(self.sizes[one.columns[axis]] for axis in others)
        return transform_table(one.counts.sum(axis=others).astype(np.float64)), 1 / (one.variance * summed)


def transform_table(table: Reals) -> Reals:
    """Return the coefficients of a table in an orthonormal basis, by the discrete cosine transform along all axes.

    Each coefficient belongs to one interaction of columns, so least squares can average tables coefficient by
    coefficient.
    """
    from scipy.fft import dctn

    return np.asarray(dctn(table, norm="ortho")) if table.ndim else table


def restore_table(coefficients: Reals) -> Reals:
    """Return the table whose discrete cosine transform has these coefficients; it inverts ``transform_table``."""
    from scipy.fft import idctn

    return np.asarray(idctn(coefficients, norm="ortho")) if coefficients.ndim else coefficients


def question_coefficients(weights: Reals) -> Reals:
    """Return the discrete cosine transform of the weights with which a sum takes the cells of a table.

    The variance of the sum follows from it. Coefficients that are 0 but for rounding errors are set to 0.
    """
    result = transform_table(weights)
    return np.where(np.abs(result) <= ZERO * np.abs(result).max(), 0.0, result)
