"""Fit one model of all columns to noisy tables: a graphical model, blended with a mixture of independent columns.

The graphical model has one factor (a table that others are multiplied with) for each column, and for each of some pairs
of columns. In the mixture, columns are independent within each of its distributions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from privsql.keyed_random import seed_key
from privsql.mechanisms.dp.noisy_tables import (
    AGAIN,
    POSSIBLE,
    BelievedTable,
    LeastSquares,
    believe_column,
    believe_table,
    nearest_nonnegative,
    rake_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from privsql.mechanisms.dp.noisy_tables import Classes, Clique, Ints, Margin, Nested, NoisyTable, Reals

    Factor = tuple[Clique, Reals]

# Joint model ----------------------------------------------------------------------------------------------------------
# The joint model has the largest entropy among all distributions with the given tables of single columns and pairs:
#
#     p(x) = prod_i p_i(x_i) prod_ij f_ij(x_i, x_j).
#
# A table over some columns follows by eliminating all others, one after the other (variable elimination): the factors
# that have a column are multiplied, and the product is summed over that column. Columns that leave the smallest tables
# come first. The factors f are found by iterative proportional fitting: each is scaled to its pair in turn, until all
# pairs are met. For a tree of pairs one round is exact.
#
# A table of many columns does not fit into memory. So pairs are taken by falling mutual information, as long as no
# elimination makes a table of more than ``LARGEST`` cells. The columns of the wanted table stay, and may make a table
# larger than ``MOST_JOINED``. Then records are drawn from the model and counted.

LARGEST = 300_000  # most cells of a table during elimination when pairs are selected
MOST_JOINED, DRAWN = 10_000_000, 1_000_000  # most cells when a table is computed; records that are drawn instead
FIT, CLOSE = 8, 3e-3  # most rounds; total variation at which a pair is met
FARTHEST = 1e9  # largest factor: contradicting pairs would drive it to infinity
REFUSED = 30  # refused pairs in a row after which no weaker one is tried
NO_CLASSES: Classes = MappingProxyType({})


def fixed_draw(purpose: str) -> np.random.Generator:
    """Return a random generator that depends on ``purpose`` alone.

    So everybody who fits a model to the same release gets the same model.
    """
    return seed_key(0).random_generator(purpose)


class JointModel:
    """A graphical model of all columns: a probability is a product of factors over single columns and pairs.

    It is fitted to estimated tables of single columns and pairs. It uses as many of the pairs as can be computed, the
    most dependent ones first.
    """

    def __init__(self, singles: Sequence[Reals], pairs: Mapping[Clique, Reals], largest: int = LARGEST) -> None:
        self.total = max(float(singles[0].sum()), POSSIBLE)
        self.singles = [one / self.total for one in singles]
        self.edges = self._select_pairs(pairs, largest)
        self.factors = {pair: np.ones_like(pairs[pair]) for pair in self.edges}
        for _ in range(FIT):
            far = 0.0
            for pair in self.edges:
                table, wanted = self.marginal_table(pair), pairs[pair]
                far = max(far, float(np.abs(table - wanted).sum()) / 2 / self.total)
                scale = np.divide(wanted, table, out=np.zeros_like(table), where=table > 0)
                self.factors[pair] = np.clip(self.factors[pair] * scale, 1 / FARTHEST, FARTHEST)
            if far < CLOSE:
                break

    def marginal_table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """Return the model's table of expected counts over some columns.

        Args:
            columns: The positions of the columns.
            classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value
                is in a class.
        """
        number = len(self.singles)
        asked = tuple(number + i if i in classes else i for i in columns)
        factors = self._factors_among(self._find_core(columns))
        factors += [((i, number + i), classes[i]) for i in columns if i in classes]
        order, largest = _plan_elimination(factors, {i for held, _ in factors for i in held} - set(asked))
        if largest > MOST_JOINED:
            return self._count_drawn(columns, classes)
        left, _ = _eliminate_columns(factors, order)
        inside, table = _multiply_factors(left)
        table = np.transpose(table, [inside.index(i) for i in asked])
        return np.asarray(table * (self.total / max(float(table.sum()), np.finfo(float).tiny)))

    def draw_records(self, number: int, draw: np.random.Generator) -> Ints:
        """Draw ``number`` records from the model, and return their codes (number, columns).

        Columns are drawn one by one, each given those that were drawn before it.
        """
        codes = np.full((number, len(self.singles)), -1, dtype=np.int64)
        factors = self._factors_among(range(len(self.singles)))
        _, steps = _eliminate_columns(factors, _plan_elimination(factors, set(range(len(self.singles))))[0])
        for column, held in reversed(steps):
            columns, table = _multiply_factors(held)
            known = tuple(i for i in columns if i != column)
            chances = np.moveaxis(table, columns.index(column), -1).reshape(-1, table.shape[columns.index(column)])
            shape, row = [len(self.singles[i]) for i in known], np.zeros(number, dtype=np.int64)
            row = np.ravel_multi_index(tuple(codes[:, i] for i in known), shape) if known else row
            codes[:, column] = _draw_values(chances, row, draw)
        return codes

    @cached_property
    def _drawn_records(self) -> Ints:
        return self.draw_records(DRAWN, fixed_draw("joint model"))

    def _count_drawn(self, columns: Clique, classes: Classes) -> Reals:
        """Return the table over some columns by counting records that were drawn from the model.

        It stands in for tables that are too large to compute exactly. The records are drawn only once.
        """
        drawn = self._drawn_records[:, list(columns)].T
        codes = [classes[i].argmax(axis=1)[one] if i in classes else one for i, one in zip(columns, drawn, strict=True)]
        shape = [classes[i].shape[1] if i in classes else len(self.singles[i]) for i in columns]
        table = np.bincount(np.ravel_multi_index(codes, shape), minlength=prod(shape))
        return np.asarray(table.reshape(shape) * (self.total / DRAWN), dtype=np.float64)

    def _find_core(self, columns: Clique) -> set[int]:
        """Return the columns that are needed to compute the model's table over some columns, these included.

        The pairs of the model make a graph of columns. If a column that is not asked for has a single neighbour, its
        probabilities sum up to 1 whatever the neighbour's value is. So it is left out, and then perhaps its neighbour.
        """
        near: dict[int, set[int]] = {i: set() for edge in self.edges for i in edge}
        for one, other in self.edges:
            near[one].add(other)
            near[other].add(one)
        leaves = [i for i, others in near.items() if len(others) == 1 and i not in columns]
        while leaves:
            first = leaves.pop()
            for i in near.pop(first):
                near[i].discard(first)
                leaves += [i] if len(near[i]) == 1 and i not in columns else []
        reached, edge = set(columns), list(columns)
        while edge:
            more = near.get(edge.pop(), set()) - reached
            reached |= more
            edge += more
        return reached

    def _factors_among(self, columns: Iterable[int]) -> list[Factor]:
        core = set(columns)
        pairs = [(edge, self.factors[edge]) for edge in self.edges if set(edge) <= core]
        return [((i,), self.singles[i]) for i in sorted(core)] + pairs

    def _select_pairs(self, pairs: Mapping[Clique, Reals], largest: int) -> list[Clique]:
        """Choose the pairs of columns that the model uses, the most dependent ones first.

        The model's tables are computed by multiplying tables of pairs and summing columns out. A pair is refused if
        that would make a table of more than ``largest`` cells. A table may always have as many cells as the largest
        pair.
        """
        chosen: list[Clique] = []
        refused = 0
        for pair in sorted(pairs, key=lambda one: (-mutual_information(pairs[one]), one)):
            factors = [(one, pairs[one]) for one in (*chosen, pair)]
            made = _plan_elimination(factors, {i for one, _ in factors for i in one})[1]
            if made <= max([largest, *(table.size for _, table in factors)]):
                chosen.append(pair)
                refused = 0
            elif (refused := refused + 1) == REFUSED:
                break
        return chosen


def _plan_elimination(factors: Sequence[Factor], left: set[int]) -> tuple[list[int], int]:
    """Return an order in which to sum columns out of a product of tables, and the size of the largest table on the way.

    Each step takes the column that leaves the smallest table (a greedy order).

    Args:
        factors: The tables that are multiplied (factors), each with its columns.
        left: The columns to be summed out.
    """
    sizes = {i: size for held, table in factors for i, size in zip(held, table.shape, strict=True)}
    near = {i: set().union(*(held for held, _ in factors if i in held)) for i in sizes}
    cells = {i: prod(sizes[j] for j in near[i]) for i in left}
    order, largest = [], 1
    while cells:
        first = min(cells, key=lambda i: (cells[i], i))
        largest = max(largest, cells.pop(first))
        order.append(first)
        others = near.pop(first) - {first}
        for i in others:
            near[i] = (near[i] | others) - {first}
            if i in cells:
                cells[i] = prod(sizes[j] for j in near[i])
    return order, largest


def _multiply_factors(factors: Sequence[Factor]) -> Factor:
    """Return the product of tables over several columns (factors): its columns, ascending, and its table."""
    columns = tuple(sorted({i for held, _ in factors for i in held}))
    result = np.ones((1,) * len(columns))
    for held, table in sorted(factors, key=lambda one: one[1].size):
        result = result * np.expand_dims(table, [axis for axis, i in enumerate(columns) if i not in held])
    return columns, result


def _eliminate_columns(
    factors: list[Factor], order: Sequence[int]
) -> tuple[list[Factor], list[tuple[int, list[Factor]]]]:
    """Sum columns out of a product of tables (factors), one after the other in the given order.

    Returns:
        The factors over the remaining columns. Then, for each column in the given order, the column and the factors
        that had it when it was summed out. Records are drawn from these, the last column first.
    """
    steps = []
    for column in order:
        held = [one for one in factors if column in one[0]]
        steps.append((column, held))
        factors = [one for one in factors if column not in one[0]] + [_eliminate_column(held, column)]
    return factors, steps


def _eliminate_column(factors: Sequence[Factor], column: int) -> Factor:
    """Multiply tables (factors) that all have the given column, and sum the product over that column."""
    *others, (held, table) = sorted(factors, key=lambda one: one[1].size)
    if not others:
        return tuple(i for i in held if i != column), table.sum(axis=held.index(column))
    known, product = _multiply_factors(others)
    both = [i for i in known if i in held and i != column]
    first, second = [i for i in known if i not in held], [i for i in held if i not in known]
    sizes = dict(zip((*known, *held), (*product.shape, *table.shape), strict=True))
    shape = [prod(sizes[i] for i in part) for part in (both, first, [column], second)]
    left = np.transpose(product, [known.index(i) for i in (*both, *first, column)]).reshape(*shape[:3])
    right = np.transpose(table, [held.index(i) for i in (*both, column, *second)]).reshape(shape[0], *shape[2:])
    order = [*both, *first, *second]
    summed = (left @ right).reshape([sizes[i] for i in order])
    return tuple(sorted(order)), np.transpose(summed, np.argsort(order))


AT_ONCE = 4_000_000  # size of an array of comparisons


def _draw_values(chances: Reals, rows: Ints, draw: np.random.Generator) -> Ints:
    """Draw a code for each of n records, each from one of several distributions.

    Args:
        chances: The distributions, one in each row (rows, codes); they need not add up to 1.
        rows: The row with the distribution of each record (n,).
        draw: The random generator.
    """
    sums = np.cumsum(chances, axis=1)
    uniform, step = draw.random(len(rows)) * sums[rows, -1], max(1, AT_ONCE // chances.shape[1])
    found = [
        (sums[rows[at : at + step]] <= uniform[at : at + step, None]).sum(axis=1) for at in range(0, len(rows), step)
    ]
    chosen: Ints = np.minimum(np.concatenate([rows[:0], *found]), chances.shape[1] - 1)
    return chosen


def mutual_information(table: Reals) -> float:
    """Return the mutual information of the two columns of a table of counts, in nats; 0 for an empty table."""
    total = table.sum()
    if total <= 0:
        return 0.0
    joint = table / total
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    return float((joint[inside] * np.log(joint[inside] / independent[inside])).sum())


# Mixture --------------------------------------------------------------------------------------------------------------
# The mixture is a second distribution of all columns, which errs elsewhere than the joint model. It mixes products of
# independent columns:
#
#     q(x) = sum_k w_k prod_i q_ki(x_i).
#
# It is fitted to the noisy tables themselves, each cell with the weight 1/variance, by Adam (Kingma & Ba, ICLR 2015).
# Products start near the tables of single columns. The fit stops when the noisy tables lie as far from the mixture as
# noise explains, because further steps would fit noise. If the mixture stays farther away, it gets a smaller share.

PRODUCTS, FITS = 100, 2  # products of a mixture, and mixtures that are averaged
APART = 0.25  # standard deviation by which the logarithms of starting points differ
STEPS, STEP, MEANS = 80, 0.1, (0.8, 0.99)  # most steps, step size and decay rates of Adam
MOST_FITTED, MOST_CELLS = 100, 500_000  # most tables that are fitted, and their most cells together
BELIEVED = 0.3  # share of a well-fitting mixture in a table


@dataclass(frozen=True)
class Mixture:
    """A mixture of K distributions, in each of which all columns are independent, as a model of a table.

    Attributes:
        total: The number of records of the table.
        weights: The share of each distribution in the mixture (K,).
        values: For column i, the chances of its n_i values in each distribution (K, n_i).
        misfits: For each noisy table, the mean of (table - mixture)^2 / variance over its cells, which is about 1 for a
            good fit. The key () has the mean over the cells of all tables.
    """

    total: float
    weights: Reals
    values: list[Reals]
    misfits: Mapping[Clique, float]

    def marginal_table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """Return the mixture's table of expected counts over some columns.

        Args:
            columns: The positions of the columns.
            classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value
                is in a class.
        """
        parts = [self.values[i] @ classes[i] if i in classes else self.values[i] for i in columns]
        return self.total * _mix_products(self.weights, parts)

    def draw_records(self, number: int, draw: np.random.Generator) -> Ints:
        """Draw ``number`` records from the mixture, and return their codes (number, columns)."""
        products = draw.choice(len(self.weights), number, p=self.weights)
        return np.stack([_draw_values(chances, products, draw) for chances in self.values], axis=1)

    def believed_share(self, columns: Clique = ()) -> float:
        """Return the share that the mixture gets when its table is averaged with another estimate of the same table.

        It is ``BELIEVED`` / misfit^2, and at most ``BELIEVED``. The misfit is how far the mixture lies from the noisy
        table, or from all noisy tables on average if that is farther, relative to the noise.
        """
        return BELIEVED / max(1.0, self.misfits[()], self.misfits.get(columns, 1.0)) ** 2

    def blend_table(self, table: Reals, columns: Clique, share: float, classes: Classes = NO_CLASSES) -> Reals:
        """Return a weighted mean of a table and the mixture's table over the same columns.

        Args:
            table: The other estimate.
            columns: The positions of the columns.
            share: The weight of the mixture, from 0 to 1.
            classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value
                is in a class.
        """
        return np.asarray(table + share * (self.marginal_table(columns, classes) - table))


def fit_mixture(tables: Sequence[NoisyTable], starts: Sequence[Reals], total: float) -> Mixture:
    """Fit a few mixtures of distributions with independent columns to noisy tables, and return their average.

    Args:
        tables: The noisy tables.
        starts: For every column, positive counts of its values; each fit starts near them.
        total: The number of records.
    """
    draw = fixed_draw("mixture")
    fits = [_fit_products(tables, starts, total, draw) for _ in range(FITS)]
    weights = np.concatenate([one[0] for one in fits]) / FITS
    values = [np.concatenate(parts) for parts in zip(*(one[1:] for one in fits), strict=True)]
    misfits: dict[Clique, float] = {}
    mixture = Mixture(total, weights, values, misfits)
    for one in tables:
        misfits[one.columns] = float(((one.counts - mixture.marginal_table(one.columns)) ** 2).mean()) / one.variance
    cells = [one.counts.size for one in tables]
    misfits[()] = float(np.average([misfits[one.columns] for one in tables], weights=cells))
    return mixture


def _fit_products(
    tables: Sequence[NoisyTable], starts: Sequence[Reals], total: float, draw: np.random.Generator
) -> list[Reals]:
    """Fit one mixture of distributions with independent columns to noisy tables by Adam, a gradient method.

    Args:
        tables: The noisy tables.
        starts: For every column, positive counts of its values; the fit starts near them.
        total: The number of records.
        draw: The random generator for the starting points.

    Returns:
        The shares of its K distributions (K,). Then, for each column i, the chances of its n_i values (K, n_i).
    """
    logs = [np.zeros(PRODUCTS), *(np.log(one) + APART * draw.normal(size=(PRODUCTS, len(one))) for one in starts)]
    means, squares = [np.zeros_like(one) for one in logs], [np.zeros_like(one) for one in logs]
    cells, products = sum(one.counts.size for one in tables), list(map(_exponentiate, logs))
    for step in range(1, STEPS + 1):
        slopes, misfit = [np.zeros_like(one) for one in logs], 0.0
        for one in tables:
            weights, *parts = products[0], *(products[1 + i] for i in one.columns)
            far = total * _mix_products(weights, parts) - one.counts
            misfit += float((far**2).sum()) / one.variance
            found = _table_slopes(weights, parts, far / one.variance)
            for place, slope in zip((0, *(1 + i for i in one.columns)), found, strict=True):
                slopes[place] += slope
        if misfit <= cells:
            break
        for place, (now, slope) in enumerate(zip(products, slopes, strict=True)):
            change = now * (slope - (now * slope).sum(axis=-1, keepdims=True))
            means[place] += (1 - MEANS[0]) * (change - means[place])
            squares[place] += (1 - MEANS[1]) * (change**2 - squares[place])
            usual = np.sqrt(squares[place] / (1 - MEANS[1] ** step)) + np.finfo(float).tiny
            logs[place] -= STEP * means[place] / (1 - MEANS[0] ** step) / usual
        products = list(map(_exponentiate, logs))
    return products


def _exponentiate(logs: Reals) -> Reals:
    """Turn rows of logarithms into distributions that add up to 1 in each row."""
    result = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(result / result.sum(axis=-1, keepdims=True))


def _mix_products(weights: Reals, parts: Sequence[Reals]) -> Reals:
    """Return the table of probabilities over some columns that a mixture of independent columns implies.

    Args:
        weights: The shares of the K distributions (K,).
        parts: For each of the columns, the chances of its n_i values in each distribution (K, n_i).
    """
    if not parts:
        return np.array(1.0)
    shape = [one.shape[1] for one in parts]
    rows = prod(shape[:-1])
    result, step = np.zeros((rows, shape[-1])), max(1, AT_ONCE // rows)
    for at in range(0, len(weights), step):
        left = weights[at : at + step, None]
        for one in parts[:-1]:
            left = _multiply_rows(left, one[at : at + step])
        result += left.T @ parts[-1][at : at + step]
    return result.reshape(shape)


def _multiply_rows(first: Reals, second: Reals) -> Reals:
    """Return in each of K rows the products of all entries of ``first`` with all of ``second``.

    For two independent columns these are the probabilities of pairs of values.

    Args:
        first: a numbers in each row (K, a).
        second: b numbers in each row (K, b).

    Returns:
        The products (K, a b): those with the first entry of ``first``, then those with the second one, and so on.
    """
    return (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)


def _table_slopes(weights: Reals, parts: Sequence[Reals], far: Reals) -> list[Reals]:
    """Return the derivatives of sum(far * table) by a mixture's parameters, where ``table`` is the mixture's table.

    Gradient descent on the distance to a noisy table needs them.

    Args:
        weights: The shares of the K distributions (K,).
        parts: For each of the table's columns, the chances of its n_i values in each distribution (K, n_i).
        far: For each cell of the table, how far the mixture lies from the noisy count, over the variance.

    Returns:
        The derivatives by the shares (K,). Then, for each column, those by the chances of its values (K, n_i).
    """
    before = [np.ones((len(weights), 1))]
    for one in parts[:-1]:
        before.append(_multiply_rows(before[-1], one))
    far = far.reshape(-1, parts[-1].shape[1])
    after, result = parts[-1] @ far.T, [weights[:, None] * (before[-1] @ far)]
    for one, left in zip(parts[-2::-1], before[-2::-1], strict=True):
        block = after.reshape(len(weights), left.shape[1], one.shape[1])
        result.append(weights[:, None] * np.matmul(left[:, None, :], block)[:, 0])
        after = np.matmul(block, one[:, :, None])[:, :, 0]
    return [after[:, 0], *reversed(result)]


# Model ----------------------------------------------------------------------------------------------------------------
# The model estimates all tables; its tables are non-negative and agree with each other.
#
# Single columns are shrunk by themselves, and measured pairs towards independence. The joint model of these predicts
# the measured pairs that it could not use, and these are shrunk towards its prediction. Larger measured tables are
# shrunk in the same way. A share of the mixture is blended into all of them. Any other table is that of the joint model
# and the mixture, scaled to all tables that were measured within its columns.
RAKED = 10  # rounds of proportional fitting for an expected table


class Model:
    """One consistent estimate of all tables over any columns, fitted to noisy tables.

    Measured tables (those with noisy counts) are shrunk towards what simpler tables make likely. All others come from a
    graphical model and a mixture of distributions with independent columns.

    Args:
        tables: The noisy tables.
        sizes: The number of values of every column.
        nested: The columns whose values determine those of another column; such pairs are known without noise.
        mixed: Whether tables are blended with a fitted mixture. Without one, fitting is quick.
    """

    def __init__(
        self,
        tables: Sequence[NoisyTable],
        sizes: Sequence[int],
        nested: Sequence[Nested] = (),
        *,
        mixed: bool = True,
    ) -> None:
        self.sizes, self.tables, self.nested = tuple(sizes), tuple(tables), tuple(nested)
        self.squares = LeastSquares(tables, sizes)
        self.total = max(self.squares.total, 0.0)
        self.measured = {one.columns for one in tables}
        self.beliefs: dict[Clique, BelievedTable] = {}
        self.mixture: Mixture | None = None
        self.singles = []
        for i in range(len(sizes)):
            self.beliefs[i,] = believe_column(self.squares.estimate_table((i,)), self.squares.cell_variance((i,)))
            self.singles.append(nearest_nonnegative(self.beliefs[i,].mean, self.total))
        if mixed and self.total > 0 and any(len(one) > 1 for one in self.measured):
            self.mixture = self._fit_mixture()
            self.singles = [self._blend_table(one, (i,)) for i, one in enumerate(self.singles)]
        for one in self.nested:
            table = one.spread_child(self.singles)
            self.singles[one.child] = table.sum(axis=one.pair.index(one.parent))

    def _fit_mixture(self) -> Mixture:
        """Fit a mixture of distributions with independent columns to some of the noisy tables.

        These are the single columns, and the larger tables in which columns depend on each other most.
        """
        starts = [np.maximum(one, self.squares.cell_variance((i,)) ** 0.5 / 2) for i, one in enumerate(self.singles)]
        fitted = [one for one in self.tables if len(one.columns) == 1]
        room = MOST_CELLS

        def signal(one: NoisyTable) -> float:
            """Return how strongly a table's columns depend on each other, which decides whether it is used for the fit.

            It is the sum of squared deviations from independence, less what noise adds to it.
            """
            far = one.counts - self.independent_table(one.columns)
            return float((far**2).sum()) - one.counts.size * one.variance

        for one in sorted((one for one in self.tables if len(one.columns) > 1), key=signal, reverse=True):
            if one.counts.size <= room and len(fitted) < MOST_FITTED:
                fitted.append(one)
                room -= one.counts.size
        return fit_mixture(fitted, starts, self.total)

    def _blend_table(self, table: Reals, columns: Clique) -> Reals:
        """Return the weighted mean of a table and the mixture's table over the same columns.

        The table is returned unchanged if the model has no mixture.
        """
        if self.mixture is None:
            return table
        return self.mixture.blend_table(table, columns, self.mixture.believed_share(columns))

    @cached_property
    def _pairs(self) -> dict[Clique, Reals]:
        """Return the estimated tables of pairs of columns, to which the graphical model is fitted.

        Those with noisy counts are shrunk towards independence. Those of a column that determines another one need no
        noise.
        """
        pairs = [one for one in combinations(range(len(self.sizes)), 2) if self.squares.is_measured(one)]
        known = {one.pair: one.spread_child(self.singles) for one in self.nested}
        for one in self.nested:
            variances = (
                self.beliefs[one.parent,].variance,
                self.squares.cell_variance((one.child,)),
                self.sizes[one.child],
            )
            self.beliefs[one.pair] = BelievedTable(known[one.pair], one.spread_variance(*variances))
        return known | self._believe_pairs({pair: self.independent_table(pair) for pair in pairs})

    @cached_property
    def joint(self) -> JointModel:
        """Return the graphical model that is fitted to the tables of pairs."""
        return JointModel(self.singles, self._pairs)

    @cached_property
    def known_tables(self) -> dict[Clique, Reals]:
        """Return the estimated tables over two and more columns about which more is known than of single columns.

        They have noisy counts, or are pairs of columns of which one determines the other, as cities determine states.
        Tables with few columns come first.
        """
        others = [pair for pair in self._pairs if pair not in self.joint.edges and self.squares.is_measured(pair)]
        result = self._pairs | self._believe_pairs({pair: self.joint.marginal_table(pair) for pair in others})
        for clique in sorted((one for one in self.measured if len(one) > 2), key=lambda one: (len(one), one)):
            self.beliefs[clique] = self._believe_table(clique, self._expect_table(clique, result))
            result[clique] = self._possible_table(clique, result)
        return result

    @property
    def believed_tables(self) -> dict[Clique, Reals]:
        """Return all estimated tables that rest on noisy counts of their own, or on public knowledge, by their columns.

        Tables over several columns come first (``known_tables``), then those of all single columns. All other tables
        follow from the fitted model.
        """
        return self.known_tables | {(i,): single for i, single in enumerate(self.singles)}

    def fitted_table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """Return the estimated table over some columns.

        It is an estimated table over these columns if they have noisy counts together, or the sum of one over more
        columns. Otherwise it is the table that the graphical model and the mixture expect.

        Args:
            columns: The positions of the columns.
            classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value
                is in a class.
        """
        if len(columns) <= 1:
            return merge_values(self.singles[columns[0]], columns, classes) if columns else np.array(self.total)
        for clique, table in self.known_tables.items():
            if set(columns) <= set(clique):
                others = tuple(axis for axis, i in enumerate(clique) if i not in columns)
                return merge_values(np.asarray(table.sum(axis=others)), columns, classes)
        return self._expect_table(columns, self.known_tables, classes)

    def draw_records(self, number: int, draw: np.random.Generator) -> Ints:
        """Draw ``number`` records, and return their codes (number, columns).

        A share of them comes from the mixture, the others from the graphical model. Columns that follow from another
        column are set accordingly.
        """
        mixed = round(self.mixture.believed_share() * number) if self.mixture is not None else 0
        codes = self.joint.draw_records(number - mixed, draw)
        if self.mixture is not None:
            codes = np.concatenate([codes, self.mixture.draw_records(mixed, draw)])
        for one in self.nested:
            child = codes[:, one.child]
            above = one.above[np.minimum(child, len(one.above) - 1)]
            codes[:, one.parent] = np.where(child < len(one.above), above, codes[:, one.parent])
        return codes

    def _expect_table(self, columns: Clique, known: Mapping[Clique, Reals], classes: Classes = NO_CLASSES) -> Reals:
        """Return the expected table over columns that have no noisy counts together.

        Two fitted models predict it: the graphical model and the mixture. Their weighted mean is scaled until its sums
        agree with estimated tables over fewer of these columns.

        Args:
            columns: The positions of the columns.
            known: The estimated tables over two and more columns.
            classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value
                is in a class.
        """
        table = self.joint.marginal_table(columns, classes) + POSSIBLE
        if self.mixture is not None:
            table = self.mixture.blend_table(table, columns, self.mixture.believed_share(), classes)
        return rake_table(table, self._margins_within(columns, known, classes), RAKED)

    def _margins_within(
        self, columns: Clique, known: Mapping[Clique, Reals], classes: Classes = NO_CLASSES
    ) -> list[Margin]:
        """Return the sums to which a table over some columns is to be scaled, so that it agrees with smaller tables.

        The sums are the estimated tables over single columns, and those in ``known`` over several, but not all, of the
        columns.

        Args:
            columns: The positions of the columns.
            known: The estimated tables over two and more columns.
            classes: By column whose values are merged into classes, a matrix (values, classes) that is 1 where a value
                is in a class.
        """
        singles = {(i,): self.singles[i] for i in columns}
        inside = singles | {one: table for one, table in known.items() if set(one) < set(columns)}
        return [
            (tuple(columns.index(i) for i in clique), merge_values(table, clique, classes))
            for clique, table in inside.items()
        ]

    def table_kind(self, columns: Clique) -> int:
        """Return how directly a table over some columns was measured, on which the error of its estimate depends.

        It is 0 for at most one column, and 1 for columns with noisy counts of all combinations. Otherwise it is the
        number of columns, at most 4.
        """
        if len(columns) < 2:
            return 0
        return 1 if self.squares.is_measured(columns) else min(len(columns), 4)

    def independent_table(self, columns: Clique) -> Reals:
        """Return the table over some columns that would follow from the single columns if they were independent."""
        _, table = _multiply_factors([((i,), self.singles[i] / max(self.total, 1.0)) for i in columns])
        return table * self.total

    def _believe_table(self, clique: Clique, expected: Reals) -> BelievedTable:
        """Shrink a noisy table towards the table that simpler ones make likely, and return the result."""
        return believe_table(self.squares.estimate_table(clique), expected, self.squares.cell_variance(clique))

    def _believe_pairs(self, expected: Mapping[Clique, Reals]) -> dict[Clique, Reals]:
        """Shrink the noisy tables of pairs of columns towards expected tables, and return them without negative cells.

        The sums of their rows and columns agree with the tables of single columns. The posterior means and variances
        are kept in ``self.beliefs``.
        """
        self.beliefs |= {pair: self._believe_table(pair, table) for pair, table in expected.items()}
        return {pair: self._possible_table(pair, {}) for pair in expected}

    def _possible_table(self, clique: Clique, known: Mapping[Clique, Reals]) -> Reals:
        """Return the estimate of a measured table, made possible: without negative cells, and with agreeing sums.

        The posterior mean of the table in ``self.beliefs`` is averaged with the table of the mixture, a model of
        independent columns in each of a few groups. The result is scaled to estimated tables over fewer of its columns.

        Args:
            clique: The positions of the table's columns.
            known: The estimated tables over two and more columns.
        """
        possible = self._blend_table(nearest_nonnegative(self.beliefs[clique].mean, self.total) + POSSIBLE, clique)
        return rake_table(possible, self._margins_within(clique, known), AGAIN)


def merge_values(table: Reals, columns: Clique, classes: Classes) -> Reals:
    """Merge the values of columns into classes: add up the cells of a table whose values are in the same class.

    Args:
        table: The table.
        columns: The positions of its columns.
        classes: By column whose values are merged, a matrix (values, classes) that is 1 where a value is in a class.
    """
    for axis, column in enumerate(columns):
        if column in classes:
            table = np.moveaxis(np.tensordot(table, classes[column], axes=(axis, 0)), -1, axis)
    return table
