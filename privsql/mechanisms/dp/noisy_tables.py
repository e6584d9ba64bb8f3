"""Noisy tables over parts of the columns: least squares, shrinkage, and one model that fits all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import combinations
from math import inf, isqrt, prod, sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

from privsql.dp_random import PURE, NoiseLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from fractions import Fraction

    from privsql.dp_random import TableNoise

# Measured -------------------------------------------------------------------------------------------------------------
# Tables of counts with noise: one of each clique of columns, every cell of its domain.

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Clique = tuple[int, ...]


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
        """Of each count's noise."""
        return self.law.variance(self.budget)


def measure_table(
    columns: Clique,
    counts: Ints,
    budget: Fraction,
    noise: TableNoise,
    choice: Fraction | None = None,
    law: NoiseLaw = PURE,
) -> NoisyTable:
    """The table of true ``counts`` with noise, drawn as one vector."""
    noisy = noise.add_noise(counts.reshape(-1), law.unit_budget(budget)).reshape(counts.shape)
    return NoisyTable(columns, budget, noisy, choice, law)


def divide_budget(total: Fraction, weights: Sequence[int]) -> list[Fraction]:
    """Parts of a budget in proportion to whole numbers; their sum is ``total``, exactly."""
    return [total * weight / sum(weights) for weight in weights]


def budget_weight(cells: int) -> int:
    """Return the share of a budget for a table of so many cells: 1,000 times the square root, rounded down.

    With a budget of e its counts err by cells/e in all; over several tables that sum is least for the square root.
    """
    return isqrt(cells * 10**6)


# Nonnegative ----------------------------------------------------------------------------------------------------------
# Tables that a population can have: nothing negative, a given total, given sums along some axes.


def nearest_nonnegative(table: Reals, total: float) -> Reals:
    """The non-negative table with a total that is nearest to ``table``: max(table - t, 0) for the right t."""
    if total <= 0:
        return np.zeros_like(table)
    descending = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, table.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    result: Reals = np.maximum(table - level, 0.0)
    return result


def rake_table(table: Reals, margins: Sequence[Margin], rounds: int) -> Reals:
    """Iterative proportional fitting: the table, its cells scaled in turn to each margin, so many times.

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
# A cell of the least-squares table is g = x + noise of variance s^2, and simpler tables make mu of x likely. How far x
# lies from mu is told by all cells together: x - mu is normal with variance c V, V = a mu + b mu^2, where (a, b) fit
# the squares (g - mu)^2 - s^2 by weighted least squares, and c is one of ``GRID``, each with a share that expectation
# maximization finds, over all tables and then for each table with the shares of all as its prior. Some cells lie far
# from mu in any real table, and a mixture lets these be believed while all others are shrunk (adaptive shrinkage:
# Stephens, Biostatistics 2017). The posterior mean is mu + S (g - mu).

GRID = np.array([0.0, 0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
STRENGTH = 30.0  # cells that the shares of all tables count for beside those of one
ROUNDS, MOMENTS = 30, 5
MOST_SHARED_CELLS = 20_000  # cells of all tables that the common shares are fitted to
LEAST = 1e-9  # records: the variance of an impossible cell


@dataclass(frozen=True)
class ObservedTable:
    """A table of least squares, what is expected of it, and the variance s^2 of a cell's noise."""

    table: Reals
    expected: Reals
    variance: float


@dataclass(frozen=True)
class BelievedTable:
    """A table after shrinkage: ``mean``; ``factor`` S, which the noise of the cells is multiplied with; ``doubt``, the
    variance of what noise does not explain. All have the table's shape.
    """

    mean: Reals
    factor: Reals
    doubt: Reals


@dataclass(frozen=True)
class TablePrior:
    """V = a mu + b mu^2 (``moments``), and the ``shares`` of ``GRID`` over all tables."""

    moments: Reals
    shares: Reals

    def cell_variance(self, expected: Reals) -> Reals:
        """V of every cell."""
        result: Reals = self.moments[0] * expected + self.moments[1] * expected**2 + LEAST
        return result

    def believe_unmeasured(self, expected: Reals) -> BelievedTable:
        """Return the belief in a table of which nothing is known: what is expected, and all of the prior's doubt."""
        doubt = float(self.shares @ GRID) * self.cell_variance(expected)
        return BelievedTable(expected, np.zeros_like(expected), doubt)

    def posterior_table(self, observed: ObservedTable) -> BelievedTable:
        """Return the posterior of a table's cells."""
        far, spread = (
            (observed.table - observed.expected).reshape(-1),
            self.cell_variance(observed.expected).reshape(-1),
        )
        _, chances = _fit_mixture(far, spread, np.full(far.shape, observed.variance), self.shares, STRENGTH)
        factor = GRID[:, None] * spread / (GRID[:, None] * spread + observed.variance)
        mean = (chances * factor).sum(axis=0)
        square = (chances * (factor * observed.variance + (factor * far) ** 2)).sum(axis=0) - (mean * far) ** 2
        doubt = np.maximum(square - mean**2 * observed.variance, 0.0)
        shape = observed.table.shape
        return BelievedTable(observed.expected + (mean * far).reshape(shape), mean.reshape(shape), doubt.reshape(shape))


def fit_prior(tables: Sequence[ObservedTable]) -> TablePrior:
    """Return what all tables together tell of how far cells lie from what is expected of them."""
    expected = np.concatenate([one.expected.reshape(-1) for one in tables])
    far = np.concatenate([(one.table - one.expected).reshape(-1) for one in tables])
    variance = np.concatenate([np.full(one.table.size, one.variance) for one in tables])
    terms, result = np.stack([expected, expected**2], axis=1), np.array([1.0, 0.01])
    for _ in range(MOMENTS):
        weight = 1 / (variance + terms @ result)
        result = np.array(fit_moments(expected * weight, expected**2 * weight, (far**2 - variance) * weight))
    step = -(-len(far) // MOST_SHARED_CELLS)
    spread = (terms @ result)[::step] + LEAST
    even = np.full(len(GRID), 1 / len(GRID))
    shares, _ = _fit_mixture(far[::step], spread, variance[::step], even, 1.0)
    return TablePrior(result, shares)


def fit_even_prior(observed: ObservedTable) -> TablePrior:
    """Return what one table tells of how far its cells lie from what is expected, the same of all.

    Few cells don't tell that they lie near it: the variance is taken to be one standard error of its estimate at least.
    """
    far, expected = observed.table - observed.expected, max(float(observed.expected.flat[0]), LEAST)
    square = float((far**2).mean())
    spread = max(square - observed.variance, square * sqrt(2 / far.size), LEAST)
    even = np.full(len(GRID), 1 / len(GRID))
    noise = np.full(far.size, observed.variance)
    shares, _ = _fit_mixture(far.reshape(-1), np.full(far.size, spread), noise, even, 1.0)
    return TablePrior(np.array([spread / expected, 0.0]), shares)


def fit_moments(first: Reals, second: Reals, wanted: Reals) -> tuple[float, float]:
    """The a, b >= 0 with which a first + b second is nearest to ``wanted``."""
    one, both, other = float(first @ first), float(first @ second), float(second @ second)
    left, right = float(first @ wanted), float(second @ wanted)
    determinant = one * other - both**2
    if determinant > 0:
        a, b = (left * other - right * both) / determinant, (right * one - left * both) / determinant
        if a >= 0 and b >= 0:
            return a, b
    alone = (max(left, 0.0) / one if one else 0.0, 0.0), (0.0, max(right, 0.0) / other if other else 0.0)
    return min(alone, key=lambda ab: float(((ab[0] * first + ab[1] * second - wanted) ** 2).sum()))


def _fit_mixture(far: Reals, spread: Reals, noise: Reals, prior: Reals, strength: float) -> tuple[Reals, Reals]:
    """Shares of ``GRID`` (K,) by expectation maximization, and of every cell (n,) the chances of each, (K, n)."""
    variance = GRID[:, None] * spread + noise
    likely = -0.5 * (np.log(variance) + far**2 / variance)
    likely = np.exp(likely - likely.max(axis=0))
    shares = prior
    for _ in range(ROUNDS):
        chances = shares[:, None] * likely
        chances /= chances.sum(axis=0)
        shares = chances.sum(axis=1) + strength * prior
        shares = shares / shares.sum()
    return shares, chances


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

ZERO = 1e-9  # of a coefficient of a question, relative to the largest: doubles


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
        """The least-squares table of some columns; an interaction that no clique holds is taken to be 0."""
        return restore_table(self.coefficients(columns)[0])

    def sum_variance(self, columns: Clique, weights: Reals) -> float:
        """Variance of the sum of the table's cells times ``weights``, an array of the table's shape: exact.

        Infinite where that needs an interaction that no clique holds.
        """
        precision, square = self.coefficients(columns)[1], np.square(question_coefficients(weights))
        if square[precision == 0].any():
            return inf
        return float(np.divide(square, precision, out=np.zeros_like(square), where=precision > 0).sum())

    def largest_step(self, columns: Clique, weights: Reals) -> float:
        """The largest weight of one count in the estimate of the sum of cells times ``weights``."""
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
        """Variance of a cell of the table; an interaction that no clique holds has no noise."""
        precision = self.coefficients(columns)[1]
        return float(np.divide(1, precision, out=np.zeros_like(precision), where=precision > 0).mean())

    def shape(self, columns: Clique) -> tuple[int, ...]:
        """Shape of the table of some columns."""
        return tuple(self.sizes[i] for i in columns)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return self._count_total[0]

    @cached_property
    def _count_total(self) -> tuple[float, float]:
        """The number of records, and its precision."""
        parts = [self._project(at, ()) for at in range(len(self.tables))]
        precision = sum(one for _, one in parts)
        return sum(float(result) * one for result, one in parts) / precision, precision

    @cached_property
    def _tables_by_column(self) -> list[list[int]]:
        return [[at for at, one in enumerate(self.tables) if i in one.columns] for i in range(len(self.sizes))]

    def _combine_tables(self, columns: Clique) -> tuple[Reals, Reals]:
        """Coefficients of the table of some columns and their precisions, 0 for those that no clique holds."""
        shape = self.shape(columns)
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
        """Coefficients of a noisy table, summed to some of its columns, and the precision of each."""
        one = self.tables[at]
        others = tuple(axis for axis, i in enumerate(one.columns) if i not in columns)
        summed = prod(self.sizes[one.columns[axis]] for axis in others)
        return transform_table(one.counts.sum(axis=others).astype(np.float64)), 1 / (one.variance * summed)


def transform_table(table: Reals) -> Reals:
    """Return the coefficients of a table in the orthonormal basis."""
    return np.asarray(dctn(table, norm="ortho")) if table.ndim else table


def restore_table(coefficients: Reals) -> Reals:
    """Return the table of coefficients."""
    return np.asarray(idctn(coefficients, norm="ortho")) if coefficients.ndim else coefficients


def question_coefficients(weights: Reals) -> Reals:
    """Return the coefficients of a question's weights; those that are 0 but for rounding are 0."""
    result = transform_table(weights)
    return np.where(np.abs(result) <= ZERO * np.abs(result).max(), 0.0, result)


# Model ----------------------------------------------------------------------------------------------------------------
# All tables that the noisy ones make likely: non-negative, in agreement with each other, and how far they may be off.
#
# Singles are the nearest possible tables to those of least squares. A pair is expected to be what the strongest pairs
# make of it, along the tree of those with most mutual information (for these themselves, independence); the table of
# least squares is shrunk towards that (``shrinkage``), a pair that was never measured is just that. Larger tables that
# were measured are shrunk towards what their pairs make of them. Any other table has the largest entropy among those
# that agree with all of these.

FIT, AGAIN = 10, 5  # rounds of proportional fitting: of a table, and of one that is nearly right
LARGE = 4_000_000  # cells of a pair, beyond which nothing is made of others
MOST_PAIR_CELLS = 20_000_000  # cells of all pairs, of which those that were not measured are left out beyond
POSSIBLE = 1e-6  # records that no cell is without, so that every sum can be made up for


NO_CLASSES: Classes = MappingProxyType({})


@dataclass(frozen=True)
class Tables:
    """Tables that agree with each other, of the columns and of cliques of two and more."""

    singles: Sequence[Reals]
    larger: Mapping[Clique, Reals]


class Model:
    """Tables that are estimated from the noisy ones. ``sizes``: the number of values of every column."""

    def __init__(self, tables: Sequence[NoisyTable], sizes: Sequence[int]) -> None:
        self.sizes, self.tables = tuple(sizes), tuple(tables)
        self.squares = LeastSquares(tables, sizes)
        self.total = max(self.squares.total, 0.0)
        self.measured = {one.columns for one in tables}
        self.beliefs: dict[Clique, BelievedTable] = {}
        self.singles = [self._believed_column(i) for i in range(len(sizes))]
        self.prior = TablePrior(np.zeros(2), np.ones(len(GRID)) / len(GRID))

    @cached_property
    def agreeing_tables(self) -> Tables:
        """All pairs of columns, and what was measured of more."""
        pairs = self._affordable_pairs()
        known = [pair for pair in pairs if self.squares.is_measured(pair)]
        expected = {pair: self._independent_table(pair) for pair in pairs}
        result: dict[Clique, Reals] = {}
        if known:
            self.prior = self._fit_beliefs(known, expected)
            result = {pair: self._agreeing_pair(pair) for pair in known}
            expected |= {pair: table for pair, table in self.chain_pairs(result).items() if pair in expected}
            self.prior = self._fit_beliefs(known, expected)
            result = {pair: self._agreeing_pair(pair) for pair in known}
        return self._with_larger(Tables(self.singles, {pair: result.get(pair, expected[pair]) for pair in pairs}))

    @property
    def pair_tables(self) -> dict[Clique, Reals]:
        """The tables of all pairs of columns."""
        return {clique: table for clique, table in self.agreeing_tables.larger.items() if len(clique) == 2}

    def fitted_table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """The table of some columns, of some of these by ``classes`` of their values."""
        return self._table_from(self.agreeing_tables, columns, classes)

    def _table_from(self, agreeing: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        if len(columns) <= 1:
            return merge_values(agreeing.singles[columns[0]], columns, classes) if columns else np.array(self.total)
        for clique, table in agreeing.larger.items():
            if set(columns) <= set(clique):
                others = tuple(k for k, i in enumerate(clique) if i not in columns)
                return merge_values(np.asarray(table.sum(axis=others)), columns, classes)
        return self._largest_entropy(agreeing, columns, classes)

    def _largest_entropy(self, agreeing: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        shape = [classes[i].shape[1] if i in classes else self.sizes[i] for i in columns]
        return rake_table(
            np.full(shape, self.total / prod(shape)), self._known_margins(agreeing, columns, classes), FIT
        )

    def _known_margins(self, agreeing: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> list[Margin]:
        """All that is known within some columns, small tables first."""
        inside = sorted((clique for clique in agreeing.larger if set(clique) < set(columns)), key=len)
        return [
            (tuple(columns.index(i) for i in clique), merge_values(agreeing.larger[clique], clique, classes))
            for clique in inside
        ]

    def table_belief(self, clique: Clique) -> BelievedTable | None:
        """How far a table is to be believed; None for what no table of the model is."""
        table = self.agreeing_tables.larger.get(clique)
        if clique in self.beliefs or table is None:
            return self.beliefs.get(clique)
        return self.prior.believe_unmeasured(table)

    def table_kind(self, columns: Clique) -> int:
        """Return what is known of a table: 0 of one column, 1 inside a measured one, else its columns, at most 4."""
        if len(columns) < 2:
            return 0
        return 1 if any(set(columns) <= set(one) for one in self.measured) else min(len(columns), 4)

    def _believed_column(self, place: int) -> Reals:
        """The table of a column, shrunk towards equally many records of every value, as far as it is noise."""
        observed = self._observe_table((place,), np.full(self.sizes[place], self.total / self.sizes[place]))
        self.beliefs[place,] = fit_even_prior(observed).posterior_table(observed)
        return nearest_nonnegative(self.beliefs[place,].mean, self.total)

    # The pairs ---

    def _affordable_pairs(self) -> list[Clique]:
        """All pairs, but for the largest of those that were not measured where all would be too much to hold."""
        pairs: list[Clique] = list(combinations(range(len(self.sizes)), 2))
        cells = {pair: self.sizes[pair[0]] * self.sizes[pair[1]] for pair in pairs}
        left, result = MOST_PAIR_CELLS - sum(cells[pair] for pair in pairs if self.squares.is_measured(pair)), set()
        for pair in sorted(pairs, key=lambda one: (cells[one], one)):
            if not self.squares.is_measured(pair) and cells[pair] <= left:
                left -= cells[pair]
                result.add(pair)
        return [pair for pair in pairs if pair in result or self.squares.is_measured(pair)]

    def _independent_table(self, pair: Clique) -> Reals:
        first, second = (self.singles[i] for i in pair)
        return np.outer(first, second) / max(self.total, 1.0)

    def _observe_table(self, clique: Clique, expected: Reals) -> ObservedTable:
        return ObservedTable(self.squares.estimate_table(clique), expected, self.squares.cell_variance(clique))

    def _fit_beliefs(self, cliques: Sequence[Clique], expected: Mapping[Clique, Reals]) -> TablePrior:
        observed = {clique: self._observe_table(clique, expected[clique]) for clique in cliques}
        common = fit_prior(list(observed.values()))
        self.beliefs |= {clique: common.posterior_table(one) for clique, one in observed.items()}
        return common

    def _agreeing_pair(self, pair: Clique) -> Reals:
        """The believed table of a pair as one that can be, with the sums that its columns have."""
        return self._to_singles(
            nearest_nonnegative(self.beliefs[pair].mean, self.total), [self.singles[i] for i in pair]
        )

    def _to_singles(self, table: Reals, singles: Sequence[Reals]) -> Reals:
        return rake_table(table + POSSIBLE, [((axis,), one) for axis, one in enumerate(singles)], AGAIN)

    def chain_pairs(self, pairs: Mapping[Clique, Reals]) -> dict[Clique, Reals]:
        """Return what the tree of the strongest pairs makes of all others."""
        tree = strongest_pairs(pairs, len(self.sizes))
        result: dict[Clique, Reals] = {}
        for start in range(len(self.sizes)):
            reached: dict[int, Reals] = {}
            edge = [start]
            while edge:
                here = edge.pop()
                for there in tree[here] - set(reached) - {start}:
                    if self.sizes[start] * self.sizes[there] > LARGE:
                        continue
                    table = pairs[here, there] if here < there else pairs[there, here].T
                    row_sums = np.maximum(table.sum(axis=1, keepdims=True), POSSIBLE)
                    reached[there] = table if here == start else reached[here] @ (table / row_sums)
                    edge.append(there)
            result |= {(start, there): table for there, table in reached.items() if there > start}
        return {pair: table for pair, table in result.items() if pair[1] not in tree[pair[0]]}

    # Larger tables that were measured ---

    def _with_larger(self, agreeing: Tables) -> Tables:
        larger = dict(agreeing.larger)
        for clique in sorted((one for one in self.measured if len(one) > 2), key=lambda one: (len(one), one)):
            expected = self._largest_entropy(Tables(agreeing.singles, larger), clique)
            self._fit_beliefs([clique], {clique: expected})
            possible = nearest_nonnegative(self.beliefs[clique].mean, self.total) + POSSIBLE
            larger[clique] = rake_table(possible, self._known_margins(Tables(agreeing.singles, larger), clique), AGAIN)
        return Tables(agreeing.singles, larger)


def merge_values(table: Reals, columns: Clique, classes: Classes) -> Reals:
    """A table whose values are summed up by class: ``classes`` has for a column 1 where a value (row) is of a class."""
    for axis, column in enumerate(columns):
        if column in classes:
            table = np.moveaxis(np.tensordot(table, classes[column], axes=(axis, 0)), -1, axis)
    return table


def strongest_pairs(pairs: Mapping[Clique, Reals], columns: int) -> list[set[int]]:
    """Neighbours of every column in the tree (or trees) of pairs with the largest sum of mutual information."""
    edges = sorted(pairs, key=lambda pair: (-_mutual_information(pairs[pair]), pair))
    tree: list[set[int]] = [set() for _ in range(columns)]
    part = list(range(columns))
    for first, second in edges:
        if part[first] != part[second]:
            tree[first].add(second)
            tree[second].add(first)
            old, new = part[first], part[second]
            part = [new if one == old else one for one in part]
    return tree


def _mutual_information(table: Reals) -> float:
    """Mutual information of the two columns of a table."""
    total = table.sum()
    if total <= 0:
        return 0.0
    joint = table / total
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    return float((joint[inside] * np.log(joint[inside] / independent[inside])).sum())


if TYPE_CHECKING:
    Classes = Mapping[int, Reals]
