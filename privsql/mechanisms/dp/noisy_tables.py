"""Noisy tables over parts of the columns: least squares, shrinkage, and one model that fits all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import comb, isqrt, prod, sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

from privsql.dp_random import variance_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

    from privsql.dp_random import CountNoise

# Measured -------------------------------------------------------------------------------------------------------------
# Tables of counts with noise: one of each clique of columns, every cell of its domain.

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Clique = tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """The counts of a clique, each with discrete Laplace noise of scale 1/epsilon.

    ``columns``: places of the k columns, ascending; ``counts``: an array of k axes, one value of a column each. A
    record added or removed changes one true count by one, so the table spends epsilon. ``choice``: what choosing it
    among others spent; None where it was not chosen.
    """

    columns: Clique
    epsilon: Fraction
    counts: Ints
    choice: Fraction | None = None

    @property
    def variance(self) -> float:
        """Of each count's noise."""
        return variance_of(self.epsilon)


def measured(
    columns: Clique, counts: Ints, epsilon: Fraction, noise: CountNoise, choice: Fraction | None = None
) -> Measured:
    """The table of true ``counts`` with noise, drawn as one vector."""
    return Measured(columns, epsilon, noise.noisy(counts.reshape(-1), epsilon).reshape(counts.shape), choice)


def divided(total: Fraction, weights: Sequence[int]) -> list[Fraction]:
    """Parts of a budget in proportion to whole numbers; their sum is ``total``, exactly."""
    return [total * weight / sum(weights) for weight in weights]


def share(cells: int) -> int:
    """What a table of so many cells is given of a budget, beside others: 1,000 times the square root, rounded down.

    With a budget of e its counts err by cells/e in all; over several tables that sum is least for the square root.
    """
    return isqrt(cells * 10**6)


# Nonnegative ----------------------------------------------------------------------------------------------------------
# Tables that a population can have: nothing negative, a given total, given sums along some axes.


def nearest(table: Reals, total: float) -> Reals:
    """The non-negative table with a total that is nearest to ``table``: max(table - t, 0) for the right t."""
    if total <= 0:
        return np.zeros_like(table)
    descending = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, table.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    found: Reals = np.maximum(table - level, 0.0)
    return found


def raked(table: Reals, margins: Sequence[Margin], rounds: int) -> Reals:
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
class Seen:
    """A table of least squares, what is expected of it, and the variance s^2 of a cell's noise."""

    table: Reals
    expected: Reals
    variance: float


@dataclass(frozen=True)
class Believed:
    """A table after shrinkage: ``mean``; ``factor`` S, which the noise of the cells is multiplied with; ``doubt``, the
    variance of what noise does not explain. All have the table's shape.
    """

    mean: Reals
    factor: Reals
    doubt: Reals


@dataclass(frozen=True)
class Prior:
    """V = a mu + b mu^2 (``moments``), and the ``shares`` of ``GRID`` over all tables."""

    moments: Reals
    shares: Reals

    def spread(self, expected: Reals) -> Reals:
        """V of every cell."""
        found: Reals = self.moments[0] * expected + self.moments[1] * expected**2 + LEAST
        return found

    def unseen(self, expected: Reals) -> Believed:
        """What is believed of a table that nothing was told of: what is expected, and all of the prior's doubt."""
        doubt = float(self.shares @ GRID) * self.spread(expected)
        return Believed(expected, np.zeros_like(expected), doubt)

    def believed(self, seen: Seen) -> Believed:
        """The posterior of a table."""
        far, spread = (seen.table - seen.expected).reshape(-1), self.spread(seen.expected).reshape(-1)
        _, chances = _mixture(far, spread, np.full(far.shape, seen.variance), self.shares, STRENGTH)
        factor = GRID[:, None] * spread / (GRID[:, None] * spread + seen.variance)
        mean = (chances * factor).sum(axis=0)
        square = (chances * (factor * seen.variance + (factor * far) ** 2)).sum(axis=0) - (mean * far) ** 2
        doubt = np.maximum(square - mean**2 * seen.variance, 0.0)
        shape = seen.table.shape
        return Believed(seen.expected + (mean * far).reshape(shape), mean.reshape(shape), doubt.reshape(shape))


def prior(tables: Sequence[Seen]) -> Prior:
    """What all tables together tell of how far cells lie from what is expected of them."""
    expected = np.concatenate([one.expected.reshape(-1) for one in tables])
    far = np.concatenate([(one.table - one.expected).reshape(-1) for one in tables])
    variance = np.concatenate([np.full(one.table.size, one.variance) for one in tables])
    terms, found = np.stack([expected, expected**2], axis=1), np.array([1.0, 0.01])
    for _ in range(MOMENTS):
        weight = 1 / (variance + terms @ found)
        found = np.array(moments(expected * weight, expected**2 * weight, (far**2 - variance) * weight))
    step = -(-len(far) // MOST_SHARED_CELLS)
    spread = (terms @ found)[::step] + LEAST
    even = np.full(len(GRID), 1 / len(GRID))
    shares, _ = _mixture(far[::step], spread, variance[::step], even, 1.0)
    return Prior(found, shares)


def moments(first: Reals, second: Reals, wanted: Reals) -> tuple[float, float]:
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


def _mixture(far: Reals, spread: Reals, noise: Reals, prior: Reals, strength: float) -> tuple[Reals, Reals]:
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
# gamma is noise of variance s^2 in every coefficient. Summed over the columns of gamma that are not in tau, a table's
# coefficient of tau grows by the square root of the number of cells that are summed, P, so a clique tells the one of
# tau's own table with variance s^2 P. All cliques that hold tau tell the same coefficient: the average with weights
# 1/variance is the least-squares estimate, and v_tau = 1/(sum of weights) its variance. What is made of these is
# consistent by construction.


@dataclass(frozen=True)
class Squares:
    """``told``: by interaction tau its coefficients, an array of n_i - 1 along each axis, and their variance v_tau.

    ``sizes``: how many values each column has.
    """

    sizes: tuple[int, ...]
    told: Mapping[Clique, tuple[Reals, float]]

    def knows(self, columns: Clique) -> bool:
        """Whether some table told of all interactions among the columns."""
        return columns in self.told

    def table(self, columns: Clique) -> Reals:
        """The least-squares table of some columns; an interaction that no clique holds is taken to be 0."""
        coefficients = np.zeros(self._shape(columns))
        for tau, block, others in self._blocks(columns):
            if tau in self.told:
                coefficients[block] = self.told[tau][0].reshape(coefficients[block].shape) / sqrt(others)
        return np.asarray(idctn(coefficients, norm="ortho"))

    def variance(self, columns: Clique, weights: Reals) -> float:
        """Variance of the sum of the table's cells times ``weights``, an array of the table's shape.

        sum_tau v_tau |weights in tau|^2 / P: exact. An interaction that no clique holds adds nothing: it has no noise.
        """
        spectrum = np.square(dctn(weights, norm="ortho"))
        parts = ((tau, float(spectrum[block].sum()), others) for tau, block, others in self._blocks(columns))
        return sum(self.told[tau][1] * own / others for tau, own, others in parts if tau in self.told)

    def errors(self, columns: Clique, noise: np.random.Generator) -> Squares:
        """What the noise may have done to some columns and all interactions among them, as the variances have it."""
        among = [tau for tau, _, _ in self._blocks(columns) if tau in self.told]
        drawn = {
            tau: (sqrt(self.told[tau][1]) * noise.standard_normal(self.told[tau][0].shape), self.told[tau][1])
            for tau in among
        }
        return Squares(self.sizes, drawn)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.told[()][0])

    def _shape(self, columns: Clique) -> tuple[int, ...]:
        return tuple(self.sizes[i] for i in columns)

    def _blocks(self, columns: Clique) -> Iterator[tuple[Clique, tuple[slice | int, ...], int]]:
        return blocks(columns, self.sizes)


def blocks(columns: Clique, sizes: Sequence[int]) -> Iterator[tuple[Clique, tuple[slice | int, ...], int]]:
    """For each interaction tau of some columns where its coefficients lie, and over how many cells its table sums."""
    for tau in chain.from_iterable(combinations(columns, k) for k in range(len(columns) + 1)):
        block = tuple(slice(1, None) if i in tau else 0 for i in columns)
        yield tau, block, prod(sizes[i] for i in columns if i not in tau)


def fitted(tables: Iterable[Measured], sizes: Sequence[int]) -> Squares:
    """The least-squares estimate of all interactions that the tables hold."""
    sums: dict[Clique, tuple[Reals, float]] = {}
    for one in tables:
        coefficients = dctn(one.counts.astype(np.float64), norm="ortho")
        for tau, block, others in blocks(one.columns, sizes):
            found, precision = np.asarray(coefficients[block]) * sqrt(others), 1 / (one.variance * others)
            before, known = sums.get(tau, (np.zeros(found.shape), 0.0))
            sums[tau] = before + precision * found, known + precision
    return Squares(tuple(sizes), {tau: (total / known, 1 / known) for tau, (total, known) in sums.items()})


# Model ----------------------------------------------------------------------------------------------------------------
# All tables that the noisy ones make likely: non-negative, in agreement with each other, and how far they may be off.
#
# Singles are the nearest possible tables to those of least squares. A pair is expected to be what the strongest pairs
# make of it, along the tree of those with most mutual information (for these themselves, independence); the table of
# least squares is shrunk towards that (``shrinkage``), a pair that was never measured is just that. Larger tables that
# were measured are shrunk towards what their pairs make of them. Any other table has the largest entropy among those
# that agree with all of these. Errors are drawn, too: tables as the published ones might have come out as well.

FIT, AGAIN = 10, 5  # rounds of proportional fitting: of a table, and of one that is nearly right
LARGE = 4_000_000  # cells of a pair, beyond which nothing is made of others
MOST_PAIR_CELLS = 20_000_000  # cells of all pairs, of which those that were not measured are left out beyond
POSSIBLE = 1e-6  # records that no cell is without, so that every sum can be made up for
BEYOND, STEEP = 1 / 2, (0.03, 0.06)  # of the pairs' b: what three columns deviate from their pairs; b itself


NO_CLASSES: Classes = MappingProxyType({})


@dataclass(frozen=True)
class Tables:
    """Tables that agree with each other, of the columns and of cliques of two and more."""

    singles: Sequence[Reals]
    larger: Mapping[Clique, Reals]


class Model:
    """What noisy tables tell of all others. ``sizes``: the number of values of every column."""

    def __init__(self, tables: Sequence[Measured], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.squares = fitted(tables, sizes)
        self.total = max(self.squares.total, 0.0)
        self.measured = {one.columns for one in tables}
        self.singles = [nearest(self.squares.table((i,)), self.total) for i in range(len(sizes))]
        self.beliefs: dict[Clique, Believed] = {}
        self.prior = Prior(np.zeros(2), np.ones(len(GRID)) / len(GRID))

    @cached_property
    def tables(self) -> Tables:
        """All pairs of columns, and what was measured of more."""
        pairs = self._held()
        known = [pair for pair in pairs if self.squares.knows(pair)]
        expected = {pair: self._independent(pair) for pair in pairs}
        found: dict[Clique, Reals] = {}
        if known:
            self.prior = self._believe(known, expected)
            found = {pair: self._agreeing(pair) for pair in known}
            expected |= {pair: table for pair, table in self._chained(found).items() if pair in expected}
            self.prior = self._believe(known, expected)
            found = {pair: self._agreeing(pair) for pair in known}
        return self._with_larger(Tables(self.singles, {pair: found.get(pair, expected[pair]) for pair in pairs}))

    @property
    def pairs(self) -> dict[Clique, Reals]:
        """The tables of all pairs of columns."""
        return {clique: table for clique, table in self.tables.larger.items() if len(clique) == 2}

    def table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """The table of some columns, of some of these by ``classes`` of their values."""
        return self._of(self.tables, columns, classes)

    def _of(self, given: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        if len(columns) <= 1:
            return merged(given.singles[columns[0]], columns, classes) if columns else np.array(self.total)
        for clique, table in given.larger.items():
            if set(columns) <= set(clique):
                others = tuple(k for k, i in enumerate(clique) if i not in columns)
                return merged(np.asarray(table.sum(axis=others)), columns, classes)
        return self._largest_entropy(given, columns, classes)

    def _largest_entropy(self, given: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        shape = [classes[i].shape[1] if i in classes else self.sizes[i] for i in columns]
        return raked(np.full(shape, self.total / prod(shape)), self._margins(given, columns, classes), FIT)

    def _margins(self, given: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> list[Margin]:
        """All that is known within some columns, small tables first."""
        inside = sorted((clique for clique in given.larger if set(clique) < set(columns)), key=len)
        return [
            (tuple(columns.index(i) for i in clique), merged(given.larger[clique], clique, classes))
            for clique in inside
        ]

    def belief(self, clique: Clique) -> Believed | None:
        """How far a table is to be believed; None for singles, and where no table tells of any pair."""
        table = self.tables.larger.get(clique)
        if clique in self.beliefs or table is None or not self.beliefs:
            return self.beliefs.get(clique)
        return self.prior.unseen(table)

    # The pairs ---

    def _held(self) -> list[Clique]:
        """All pairs, but for the largest of those that were not measured where all would be too much to hold."""
        pairs: list[Clique] = list(combinations(range(len(self.sizes)), 2))
        cells = {pair: self.sizes[pair[0]] * self.sizes[pair[1]] for pair in pairs}
        left, found = MOST_PAIR_CELLS - sum(cells[pair] for pair in pairs if self.squares.knows(pair)), set()
        for pair in sorted(pairs, key=lambda one: (cells[one], one)):
            if not self.squares.knows(pair) and cells[pair] <= left:
                left -= cells[pair]
                found.add(pair)
        return [pair for pair in pairs if pair in found or self.squares.knows(pair)]

    def _independent(self, pair: Clique) -> Reals:
        first, second = (self.singles[i] for i in pair)
        return np.outer(first, second) / max(self.total, 1.0)

    def _seen(self, clique: Clique, expected: Reals) -> Seen:
        cell = np.zeros(expected.shape)
        cell[(0,) * cell.ndim] = 1.0
        return Seen(self.squares.table(clique), expected, self.squares.variance(clique, cell))

    def _believe(self, cliques: Sequence[Clique], expected: Mapping[Clique, Reals]) -> Prior:
        seen = {clique: self._seen(clique, expected[clique]) for clique in cliques}
        common = prior(list(seen.values()))
        self.beliefs |= {clique: common.believed(one) for clique, one in seen.items()}
        return common

    def _agreeing(self, pair: Clique) -> Reals:
        """The believed table of a pair as one that can be, with the sums that its columns have."""
        return self._to_singles(nearest(self.beliefs[pair].mean, self.total), [self.singles[i] for i in pair])

    def _to_singles(self, table: Reals, singles: Sequence[Reals]) -> Reals:
        return raked(table + POSSIBLE, [((axis,), one) for axis, one in enumerate(singles)], AGAIN)

    def _chained(self, pairs: Mapping[Clique, Reals]) -> dict[Clique, Reals]:
        """What the tree of the strongest pairs makes of all others."""
        tree = strongest(pairs, len(self.sizes))
        found: dict[Clique, Reals] = {}
        for start in range(len(self.sizes)):
            reached: dict[int, Reals] = {}
            edge = [start]
            while edge:
                here = edge.pop()
                for there in tree[here] - set(reached) - {start}:
                    if self.sizes[start] * self.sizes[there] > LARGE:
                        continue
                    table = pairs[here, there] if here < there else pairs[there, here].T
                    given = np.maximum(table.sum(axis=1, keepdims=True), POSSIBLE)
                    reached[there] = table if here == start else reached[here] @ (table / given)
                    edge.append(there)
            found |= {(start, there): table for there, table in reached.items() if there > start}
        return {pair: table for pair, table in found.items() if pair[1] not in tree[pair[0]]}

    # Larger tables that were measured ---

    def _with_larger(self, given: Tables) -> Tables:
        larger = dict(given.larger)
        for clique in sorted((one for one in self.measured if len(one) > 2), key=lambda one: (len(one), one)):
            expected = self._largest_entropy(Tables(given.singles, larger), clique)
            self._believe([clique], {clique: expected})
            possible = nearest(self.beliefs[clique].mean, self.total) + POSSIBLE
            larger[clique] = raked(possible, self._margins(Tables(given.singles, larger), clique), AGAIN)
        return Tables(given.singles, larger)

    # Errors ---

    def replicate(self, columns: Clique, noise: np.random.Generator, classes: Classes = NO_CLASSES) -> Reals:
        """The table of some columns as it might be: drawn from what is believed of those inside it."""
        errors, published = self.squares.errors(columns, noise), self.tables
        singles = {i: np.maximum(self.singles[i] + errors.table((i,)), 0.0) for i in columns}
        if len(columns) == 1:
            return merged(singles[columns[0]], columns, classes)
        drawn: dict[Clique, Reals] = {}
        for clique in sorted((one for one in published.larger if set(one) <= set(columns)), key=len):
            table, belief = published.larger[clique], self.belief(clique)
            if belief is not None:
                doubt = np.sqrt(belief.doubt) * noise.standard_normal(table.shape)
                known = belief.factor * errors.table(clique) if belief.factor.any() else 0.0
                table = np.maximum(table + known + doubt, 0.0) + POSSIBLE
            if len(clique) == 2:
                drawn[clique] = self._to_singles(table, [singles[i] for i in clique])
            else:
                drawn[clique] = raked(table, self._margins(Tables((), drawn), clique), AGAIN)
        return self._of(Tables((), drawn), columns, classes)

    def beyond(self, columns: int) -> float:
        """Relative variance of cells of three columns and more around what their pairs make of them.

        b/2 of three columns: what real tables deviate, beyond a sample around a smooth table (measured on census
        tables: a quarter of what pairs deviate from independence, in ranges a half; where noise hides what pairs do, or
        few of them decide it, b is what it is in most). Of more columns all triples among them may deviate in the same
        direction, so the standard deviation grows with their number.
        """
        steep = float(np.clip(self.prior.moments[1], *STEEP)) if self.tables.larger else 0.0
        return BEYOND * steep * comb(columns, 3) ** 2


def merged(table: Reals, columns: Clique, classes: Classes) -> Reals:
    """A table whose values are summed up by class: ``classes`` has for a column 1 where a value (row) is of a class."""
    for axis, column in enumerate(columns):
        if column in classes:
            table = np.moveaxis(np.tensordot(table, classes[column], axes=(axis, 0)), -1, axis)
    return table


def strongest(pairs: Mapping[Clique, Reals], columns: int) -> list[set[int]]:
    """Neighbours of every column in the tree (or trees) of pairs with the largest sum of mutual information."""
    edges = sorted(pairs, key=lambda pair: (-_information(pairs[pair]), pair))
    tree: list[set[int]] = [set() for _ in range(columns)]
    part = list(range(columns))
    for first, second in edges:
        if part[first] != part[second]:
            tree[first].add(second)
            tree[second].add(first)
            old, new = part[first], part[second]
            part = [new if one == old else one for one in part]
    return tree


def _information(table: Reals) -> float:
    """Mutual information of the two columns of a table."""
    total = table.sum()
    if total <= 0:
        return 0.0
    joint = table / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    return float((joint[inside] * np.log(joint[inside] / apart[inside])).sum())


if TYPE_CHECKING:
    Classes = Mapping[int, Reals]
