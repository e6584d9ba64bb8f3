"""One model of all columns that fits noisy tables: a graphical model, a mixture of products, and tables that agree."""

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
# The distribution of largest entropy of all columns with the tables of single columns and of some pairs:
#
#     p(x) = prod_i p_i(x_i) prod_ij f_ij(x_i, x_j).
#
# A table of some columns follows by eliminating all others, one after the other: the factors that hold a column are
# multiplied and summed over it, those first that leave the smallest tables (variable elimination). The factors f are
# found by iterative proportional fitting: each is scaled to its pair in turn, until all pairs are met. Along a tree one
# round is exact. As a table of many columns can't be held, pairs are taken from the strongest on (by their mutual
# information), as long as no elimination makes more than ``LARGEST`` cells. Where the columns that are asked for, which
# stay, would make it more than ``MOST_JOINED``, records are drawn from the model and counted.

LARGEST = 300_000  # cells of a table that elimination makes
MOST_JOINED, DRAWN = 10_000_000, 1_000_000  # cells of one beside columns that stay; records that are drawn instead
FIT, CLOSE = 8, 3e-3  # rounds at most; total variation of a pair
FARTHEST = 1e9  # of a factor: pairs that contradict each other would drive it to infinity
REFUSED = 30  # pairs in a row that are too large, after which no weaker one is tried
NO_CLASSES: Classes = MappingProxyType({})


def fixed_draw(purpose: str) -> np.random.Generator:
    """Return a random generator that depends on ``purpose`` alone, so that its draws are the same for everybody."""
    return seed_key(0).random_generator(purpose)


class JointModel:
    """A graphical model of all columns, fitted to tables over single columns and pairs.

    It holds as many of the ``pairs`` as elimination can handle, the strongest ones first.
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
        """Return the model's table over ``columns``, scaled to the number of records.

        Args:
            columns: The positions of the columns.
            classes: By column, how its values are merged into classes (see ``merge_values``).
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

        Columns are drawn one by one, in the reverse order of elimination.
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
        """Return the table over ``columns`` by counting records that are drawn from the model once.

        It stands in for tables that are too large for exact elimination.
        """
        drawn = self._drawn_records[:, list(columns)].T
        codes = [classes[i].argmax(axis=1)[one] if i in classes else one for i, one in zip(columns, drawn, strict=True)]
        shape = [classes[i].shape[1] if i in classes else len(self.singles[i]) for i in columns]
        table = np.bincount(np.ravel_multi_index(codes, shape), minlength=prod(shape))
        return np.asarray(table.reshape(shape) * (self.total / DRAWN), dtype=np.float64)

    def _find_core(self, columns: Clique) -> set[int]:
        """Return the columns that matter for the table over ``columns``, these included.

        Columns that hang on the rest of the graph as leaves sum up to 1, so they are left out.
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
        """Choose the strongest pairs for which no table made by elimination has more than ``largest`` cells.

        A table may always have as many cells as the largest pair.
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
    """Return a greedy order in which to eliminate the columns ``left``, and the cells of the largest table made.

    Each step takes the column whose elimination makes the smallest table.
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
    """Return the product of the factors as a table over the union of their columns, ascending."""
    columns = tuple(sorted({i for held, _ in factors for i in held}))
    result = np.ones((1,) * len(columns))
    for held, table in sorted(factors, key=lambda one: one[1].size):
        result = result * np.expand_dims(table, [axis for axis, i in enumerate(columns) if i not in held])
    return columns, result


def _eliminate_columns(
    factors: list[Factor], order: Sequence[int]
) -> tuple[list[Factor], list[tuple[int, list[Factor]]]]:
    """Sum columns out of the product of factors, in the given order.

    Returns:
        The factors over the remaining columns. For each eliminated column, in order, the factors that held it.
    """
    steps = []
    for column in order:
        held = [one for one in factors if column in one[0]]
        steps.append((column, held))
        factors = [one for one in factors if column not in one[0]] + [_eliminate_column(held, column)]
    return factors, steps


def _eliminate_column(factors: Sequence[Factor], column: int) -> Factor:
    """Multiply factors that all hold ``column``, and sum the product over that column.

    The largest factor and the product of all others are multiplied as matrices.
    """
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


AT_ONCE = 4_000_000  # numbers that are looked at together


def _draw_values(chances: Reals, rows: Ints, draw: np.random.Generator) -> Ints:
    """Draw one value for each entry of ``rows`` from the chances in that row of ``chances``; return codes."""
    sums = np.cumsum(chances, axis=1)
    uniform, step = draw.random(len(rows)) * sums[rows, -1], max(1, AT_ONCE // chances.shape[1])
    found = [
        (sums[rows[at : at + step]] <= uniform[at : at + step, None]).sum(axis=1) for at in range(0, len(rows), step)
    ]
    chosen: Ints = np.minimum(np.concatenate([rows[:0], *found]), chances.shape[1] - 1)
    return chosen


def mutual_information(table: Reals) -> float:
    """Return the mutual information of the two columns of a table, in nats; 0 for an empty table."""
    total = table.sum()
    if total <= 0:
        return 0.0
    joint = table / total
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    return float((joint[inside] * np.log(joint[inside] / independent[inside])).sum())


# Mixture --------------------------------------------------------------------------------------------------------------
# Another distribution of all columns, which errs in other places than the joint model: a mixture of products,
#
#     q(x) = sum_k w_k prod_i q_ki(x_i).
#
# It is fitted to the noisy tables as they are, each cell with the weight 1/variance, by Adam (Kingma & Ba, ICLR 2015).
# Products start near the columns by themselves, and are moved until the tables lie as far from the mixture as noise
# would: further steps fit noise. Where the noise is so small that the mixture stays farther away, it is believed less.

PRODUCTS, FITS = 100, 2  # products that are fitted together, and how often
APART = 0.25  # standard deviation of the logarithms that products start with
STEPS, STEP, MEANS = 80, 0.1, (0.8, 0.99)  # of Adam
MOST_FITTED, MOST_CELLS = 100, 500_000  # tables that are fitted to, and their cells
BELIEVED = 0.3  # share of the mixture in a table that it fits


@dataclass(frozen=True)
class Mixture:
    """A mixture of K products of distributions, scaled to ``total`` records.

    Attributes:
        total: The number of records.
        weights: The weight of each product (K,).
        values: For column i, the chances of its n_i values in each product (K, n_i).
        misfits: For each measured table, the mean of (table - mixture)^2 / variance over its cells. The key () has the
            mean over the cells of all tables.
    """

    total: float
    weights: Reals
    values: list[Reals]
    misfits: Mapping[Clique, float]

    def marginal_table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """Return the mixture's table over ``columns``, with values merged by ``classes`` (see ``merge_values``)."""
        parts = [self.values[i] @ classes[i] if i in classes else self.values[i] for i in columns]
        return self.total * _mix_products(self.weights, parts)

    def draw_records(self, number: int, draw: np.random.Generator) -> Ints:
        """Draw ``number`` records from the mixture, and return their codes (number, columns)."""
        products = draw.choice(len(self.weights), number, p=self.weights)
        return np.stack([_draw_values(chances, products, draw) for chances in self.values], axis=1)

    def believed_share(self, columns: Clique = ()) -> float:
        """Return the share that the mixture gets in a blended table: ``BELIEVED`` / misfit^2, at most ``BELIEVED``.

        The misfit is the larger one of the table's own and the mean over all tables.
        """
        return BELIEVED / max(1.0, self.misfits[()], self.misfits.get(columns, 1.0)) ** 2

    def blend_table(self, table: Reals, columns: Clique, share: float, classes: Classes = NO_CLASSES) -> Reals:
        """Return (1 - share) ``table`` + share times the mixture's table over the same columns."""
        return np.asarray(table + share * (self.marginal_table(columns, classes) - table))


def fit_mixture(tables: Sequence[NoisyTable], starts: Sequence[Reals], total: float) -> Mixture:
    """Fit ``FITS`` mixtures to noisy tables, and return their average.

    Args:
        tables: The noisy tables.
        starts: Positive counts of every column, from which the products start.
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
    """Fit one mixture by Adam; return its weights (K,), then the chances of every column's values (K, n_i)."""
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
    """Return the distributions whose logarithms are ``logs`` up to a constant for each distribution."""
    result = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.asarray(result / result.sum(axis=-1, keepdims=True))


def _mix_products(weights: Reals, parts: Sequence[Reals]) -> Reals:
    """Return the mixture's table over some columns, given the chances of their values in each product (K, n_i)."""
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
    """Return for each row all products of an entry of ``first`` (K, a) with one of ``second`` (K, b), as (K, a b)."""
    return (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)


def _table_slopes(weights: Reals, parts: Sequence[Reals], far: Reals) -> list[Reals]:
    """Return the derivatives of sum(far * table) by the mixture's weights, and by the chances of each column's values.

    Args:
        weights: The weights of the products (K,).
        parts: The chances of the values of each of the table's columns (K, n_i).
        far: The factor of each cell of the mixture's table.
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
# All tables that the noisy ones make likely: non-negative, and in agreement with each other.
#
# Singles are shrunk by themselves, measured pairs towards independence. The joint model of these is what a pair is
# expected to be that was measured but can't be held with the others: it is shrunk towards that. Larger tables that were
# measured are shrunk towards what the model makes of them. A share of all of these is the mixture's. Any other table is
# that of the joint model and the mixture, scaled to all that was measured within its columns.
RAKED = 10  # rounds of proportional fitting of a table


class Model:
    """One consistent estimate of all tables, fitted to the noisy ones.

    Args:
        tables: The noisy tables.
        sizes: The number of values of every column.
        nested: The columns that determine others; such pairs are known without being measured.
        mixed: Whether tables are blended with a fitted mixture. Fitting is quick without one.
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
        """Fit the mixture to the single columns, and to those larger tables that deviate most from independence."""
        starts = [np.maximum(one, self.squares.cell_variance((i,)) ** 0.5 / 2) for i, one in enumerate(self.singles)]
        fitted = [one for one in self.tables if len(one.columns) == 1]
        room = MOST_CELLS

        def signal(one: NoisyTable) -> float:
            """Return the sum of squared deviations from independence, less what noise adds to it."""
            far = one.counts - self.independent_table(one.columns)
            return float((far**2).sum()) - one.counts.size * one.variance

        for one in sorted((one for one in self.tables if len(one.columns) > 1), key=signal, reverse=True):
            if one.counts.size <= room and len(fitted) < MOST_FITTED:
                fitted.append(one)
                room -= one.counts.size
        return fit_mixture(fitted, starts, self.total)

    def _blend_table(self, table: Reals, columns: Clique) -> Reals:
        """Return a table over ``columns`` blended with the mixture; unchanged if there is no mixture."""
        if self.mixture is None:
            return table
        return self.mixture.blend_table(table, columns, self.mixture.believed_share(columns))

    @cached_property
    def _pairs(self) -> dict[Clique, Reals]:
        """Return the tables of all measured pairs, shrunk towards independence, and of the pairs in ``nested``."""
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
        """Return the graphical model, fitted to the pairs."""
        return JointModel(self.singles, self._pairs)

    @cached_property
    def known_tables(self) -> dict[Clique, Reals]:
        """Return the estimates of all measured or determined tables over two and more columns, small ones first."""
        others = [pair for pair in self._pairs if pair not in self.joint.edges and self.squares.is_measured(pair)]
        result = self._pairs | self._believe_pairs({pair: self.joint.marginal_table(pair) for pair in others})
        for clique in sorted((one for one in self.measured if len(one) > 2), key=lambda one: (len(one), one)):
            self.beliefs[clique] = self._believe_table(clique, self._expect_table(clique, result))
            result[clique] = self._possible_table(clique, result)
        return result

    @property
    def believed_tables(self) -> dict[Clique, Reals]:
        """Return the estimates of ``known_tables``, followed by those of all single columns."""
        return self.known_tables | {(i,): single for i, single in enumerate(self.singles)}

    def fitted_table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """Return the estimated table over ``columns``, with values merged by ``classes`` (see ``merge_values``).

        It is a measured table, a sum of a measured table's cells, or what the model expects.
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

        A share of them comes from the mixture, the others from the graphical model. Columns that follow from listed
        values of another column are set accordingly.
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
        """Return the table over ``columns`` that is expected where it was not measured itself.

        It is a blend of the graphical model and the mixture, raked to all known tables inside it.
        """
        table = self.joint.marginal_table(columns, classes) + POSSIBLE
        if self.mixture is not None:
            table = self.mixture.blend_table(table, columns, self.mixture.believed_share(), classes)
        return rake_table(table, self._margins_within(columns, known, classes), RAKED)

    def _margins_within(
        self, columns: Clique, known: Mapping[Clique, Reals], classes: Classes = NO_CLASSES
    ) -> list[Margin]:
        """Return the known tables over fewer of these columns, as margins for ``rake_table``, small ones first."""
        singles = {(i,): self.singles[i] for i in columns}
        inside = singles | {one: table for one, table in known.items() if set(one) < set(columns)}
        return [
            (tuple(columns.index(i) for i in clique), merge_values(table, clique, classes))
            for clique, table in inside.items()
        ]

    def table_kind(self, columns: Clique) -> int:
        """Return how a table is known, as a number.

        It is 0 for at most one column, 1 inside a measured table, and else the number of columns, at most 4.
        """
        if len(columns) < 2:
            return 0
        return 1 if self.squares.is_measured(columns) else min(len(columns), 4)

    def independent_table(self, columns: Clique) -> Reals:
        """Return the table over some columns that their single-column tables imply if the columns are independent."""
        _, table = _multiply_factors([((i,), self.singles[i] / max(self.total, 1.0)) for i in columns])
        return table * self.total

    def _believe_table(self, clique: Clique, expected: Reals) -> BelievedTable:
        """Shrink the least-squares estimate of a measured table towards an expected table."""
        return believe_table(self.squares.estimate_table(clique), expected, self.squares.cell_variance(clique))

    def _believe_pairs(self, expected: Mapping[Clique, Reals]) -> dict[Clique, Reals]:
        """Shrink measured pairs towards expected tables, and return tables that a population can have.

        The posteriors are kept in ``beliefs``.
        """
        self.beliefs |= {pair: self._believe_table(pair, table) for pair, table in expected.items()}
        return {pair: self._possible_table(pair, {}) for pair in expected}

    def _possible_table(self, clique: Clique, known: Mapping[Clique, Reals]) -> Reals:
        """Turn the posterior mean of a table into one that a population can have.

        It is made non-negative, blended with the mixture, and raked to the known tables inside it.
        """
        possible = self._blend_table(nearest_nonnegative(self.beliefs[clique].mean, self.total) + POSSIBLE, clique)
        return rake_table(possible, self._margins_within(clique, known), AGAIN)


def merge_values(table: Reals, columns: Clique, classes: Classes) -> Reals:
    """Sum the cells of a table whose values are in the same class.

    Args:
        table: The table.
        columns: The positions of its columns.
        classes: By column, a matrix (values, classes) that is 1 where a value is in a class. Other columns are
            unchanged.
    """
    for axis, column in enumerate(columns):
        if column in classes:
            table = np.moveaxis(np.tensordot(table, classes[column], axes=(axis, 0)), -1, axis)
    return table
