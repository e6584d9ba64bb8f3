"""Measure sensitive values in noisy tables by public quasi-identifiers, and fit one model of a value to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations
from math import floor, pi
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from privsql.answers.softmax import (
    Term,
    estimate_penalties,
    join_blocks,
    renumber_levels,
    split_range,
    start_fit,
)
from privsql.dp_random import SUBSTITUTION, SelectionNoise
from privsql.mechanisms.dp.joint_model import fixed_draw
from privsql.mechanisms.dp.noisy_tables import NoisyTable, measure_table
from privsql.mechanisms.dp.tables import measure_again, regress_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.answers.softmax import Design, SoftmaxFit
    from privsql.model.estimates import Estimate

# Public codes ---------------------------------------------------------------------------------------------------------
# Quasi-identifiers are public, and so is whatever follows from them: levels, bins, and the cells that anybody is in.

MOST_LEVELS, MOST_COARSE = 256, 11  # of a column's own table, and in pairs
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PublicTable:
    """A table of quasi-identifiers by values: ``cells`` (rows,) says in which of ``size`` cells each combination is.

    ``columns``: the places of its columns.
    """

    columns: tuple[int, ...]
    cells: Ints
    size: int

    def find_unions(self, sizes: Ints, group: Ints, combination: Ints) -> dict[int, Ints]:
        """Return the cells of each group of combinations that is a union of cells; ``sizes``: records of each."""
        inside: Any = scipy.sparse.csr_array((sizes[combination], (group, self.cells[combination])))
        whole = np.bincount(self.cells, sizes)
        broken = {*inside.tocoo().coords[0][inside.data < whole[inside.indices]].tolist()}
        ends = zip(inside.indptr[:-1], inside.indptr[1:], strict=True)
        return {k: inside.indices[begin:end] for k, (begin, end) in enumerate(ends) if k not in broken}


@dataclass(frozen=True)
class PublicCodes:
    """The different combinations of quasi-identifiers: how many records have each, ``sizes`` (rows,), and codes.

    ``levels``: by column the code of each combination (rows,), 0, 1, .. in order; ``bins``: fewer of the same, which
    ``levels`` nest in; ``whole``: whether each level is one value.
    """

    names: tuple[str, ...]
    sizes: Ints
    levels: tuple[Ints, ...]
    bins: tuple[Ints, ...]
    whole: tuple[bool, ...]

    @staticmethod
    def from_columns(columns: Mapping[str, NDArray[Any]], sizes: Ints) -> PublicCodes:
        """Return the codes of combinations: floats are numbers, NULL is NaN; whole ones are codes of texts."""
        levels, bins, whole = [], [], []
        for column in columns.values():
            values, codes = np.unique(column, return_inverse=True)
            numeric = np.issubdtype(column.dtype, np.floating)
            levels.append(reduce_levels(codes, sizes, MOST_LEVELS, numeric=numeric))
            bins.append(reduce_levels(levels[-1], sizes, MOST_COARSE, numeric=numeric))
            whole.append(len(values) <= MOST_LEVELS)
        return PublicCodes(tuple(columns), sizes, tuple(levels), tuple(bins), tuple(whole))

    @cached_property
    def tables(self) -> list[PublicTable]:
        """Return the tables that may be measured: every column, then every pair of columns in bins."""
        alone = [PublicTable((j,), codes, int(codes.max()) + 1) for j, codes in enumerate(self.levels)]
        pairs = []
        for i, j in combinations(range(len(self.names)), 2):
            cells, member = np.unique(self.bins[i] * MOST_COARSE + self.bins[j], return_inverse=True)
            pairs.append(PublicTable((i, j), member, len(cells)))
        return [*alone, *pairs]

    def sum_cells(self, k: int, each: Floats, sizes: Ints) -> Floats:
        """Return sums in the cells of a table (size, K): of numbers of combinations (rows, K), times ``sizes``."""
        table, sums = self.tables[k], np.zeros((self.tables[k].size, each.shape[1]))
        for rows in split_range(len(sizes)):
            entries = sizes[rows].astype(each.dtype), table.cells[rows], np.arange(len(sizes[rows]) + 1)
            member = scipy.sparse.csr_array(entries, shape=(len(sizes[rows]), table.size))
            sums += np.asarray(member.T @ each[rows])
        return sums

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the names under which the tables are published."""
        return tuple(" \u00d7 ".join(self.names[j] for j in one.columns) for one in self.tables)


def reduce_levels(codes: Ints, sizes: Ints, most: int, *, numeric: bool) -> Ints:
    """Return at most so many codes in order: quantile bins of numbers, or the most frequent levels and the rest."""
    records = np.bincount(codes, sizes)
    if len(records) <= most:
        return codes
    if numeric:
        middle = (np.cumsum(records) - records / 2) / records.sum()
        return np.unique(np.floor(middle * (most - 1)), return_inverse=True)[1][codes]
    frequent = np.sort(np.argsort(-records, kind="stable")[: most - 1])
    place = np.full(len(records), most - 1, dtype=np.int64)
    place[frequent] = np.arange(most - 1)
    return np.asarray(place[codes])


# Rule -----------------------------------------------------------------------------------------------------------------
# Half of epsilon measures every column, in equal shares. A twentieth pays for choosing pairs of columns: in each round
# one fresh choice among the pairs that are left and "none", whose score is 0. A pair's score is how far its true table
# lies from what the columns' tables make likely, less what sampling and noise would come to, so that the choice is also
# the test whether a pair is worth it. What is left measures the pairs that were chosen, in equal shares, or all columns
# once more. One substituted value moves two counts of a table by one: noise has the scale 2/epsilon, and scores change
# by at most 2.

COLUMNS, CHOOSING = Fraction(1, 2), Fraction(1, 20)
ROUNDS = 12
Due = tuple[tuple[int, ...], Fraction, Fraction | None]  # table, epsilon, what choosing it spent
Entries = tuple[Ints, Ints]  # combination and value of every record: the private part of a source


@dataclass(frozen=True)
class TablesRule:
    """The rule of a specification: what is measured of so many ``values`` by combinations of public ``codes``."""

    epsilon: Fraction
    values: int
    codes: PublicCodes

    @property
    def columns(self) -> int:
        """Return the number of columns, whose tables come first."""
        return len(self.codes.names)

    @property
    def rounds(self) -> int:
        """Return how many choices are made."""
        return min(ROUNDS, len(self.codes.tables) - self.columns)

    @property
    def choice_budget(self) -> Fraction:
        """Return what each of these spends."""
        return CHOOSING * self.epsilon / max(1, self.rounds)

    @property
    def remaining_budget(self) -> Fraction:
        """Return what is left for pairs, or for the columns once more."""
        return self.epsilon * (1 - COLUMNS) - self.rounds * self.choice_budget

    @property
    def cell_counts(self) -> list[int]:
        """Return the number of counts of every table."""
        return [one.size * self.values for one in self.codes.tables]

    def first_tables(self) -> list[Due]:
        """Return what is measured first."""
        return [((j,), COLUMNS * self.epsilon / self.columns, None) for j in range(self.columns)]

    def later_tables(self, chosen: Sequence[int]) -> list[Due]:
        """Return what is measured once pairs were chosen."""
        if chosen:
            return [((k,), self.remaining_budget / len(chosen), self.choice_budget) for k in chosen]
        return [((j,), self.remaining_budget / self.columns, None) for j in range(self.columns)]

    def due_tables(self, tables: Sequence[NoisyTable]) -> list[Due]:
        """Return what should have been measured: the choices are the release's, all else follows from the rule."""
        chosen = [one.columns[0] for one in tables if one.choice is not None]
        if len(set(chosen)) < len(chosen) or len(chosen) > self.rounds or any(k < self.columns for k in chosen):
            raise ValueError("a pair is unknown, or was chosen twice")
        return [*self.first_tables(), *self.later_tables(chosen)]

    def sum_budgets(self, tables: Sequence[NoisyTable]) -> Fraction:
        """Return what tables and all choices spend together; a choice of none is one, too."""
        return sum((one.budget for one in tables), start=self.rounds * self.choice_budget)


def measure_tables(entries: Entries, rule: TablesRule, noise: SelectionNoise) -> tuple[list[NoisyTable], TablesModel]:
    """Return all tables of a source, and the model of them: epsilon-differentially private for one value substituted.

    Nothing else looks at ``entries``.
    """
    combination, value = entries

    def count_exactly(k: int) -> Ints:
        flat = rule.codes.tables[k].cells[combination] * rule.values + value
        return np.bincount(flat, minlength=rule.cell_counts[k])

    def measure(due: Sequence[Due]) -> list[NoisyTable]:
        return [measure_table(k, count_exactly(*k), spent, noise, choice, SUBSTITUTION) for k, spent, choice in due]

    tables = measure(rule.first_tables())
    model = fit_tables(tables, rule)
    pairs = {k: count_exactly(k) for k in range(rule.columns, len(rule.codes.tables))}
    tables += measure(rule.later_tables(choose_pairs(pairs, rule, model, noise)))
    return tables, fit_tables(tables, rule, model)


def choose_pairs(pairs: Mapping[int, Ints], rule: TablesRule, model: TablesModel, noise: SelectionNoise) -> list[int]:
    """Return the pairs that are worth their noise, by one private choice in each round; ``pairs``: true tables."""
    if not rule.rounds:
        return []
    cell_noise = float(SUBSTITUTION.mean_noise(rule.remaining_budget / rule.rounds))
    scores = {k: _score_pair(counts, model.expect_table(k), cell_noise) for k, counts in pairs.items()}
    left, chosen = [-1, *scores], []
    for _ in range(rule.rounds):
        each = np.array([scores.get(k, 0) for k in left], dtype=np.int64)
        place = noise.choose_best(each, rule.choice_budget / SUBSTITUTION.moved, monotonic=False)
        if left[place] >= 0:
            chosen.append(left.pop(place))
    return chosen


def _score_pair(counts: Ints, expected: Floats, cell_noise: float) -> int:
    """Return by how much counts lie otherwise than expected, less sampling and noise; one value moves it by 2."""
    cost = floor(float(np.minimum(np.sqrt(2 / pi * expected) + WORTH * cell_noise, 2 * expected + cell_noise).sum()))
    return int(np.abs(counts - np.rint(expected).astype(np.int64)).sum()) - cost


WORTH = 0.25  # of its noise that a pair has to show: a model takes what it can from noisy counts


# Model ----------------------------------------------------------------------------------------------------------------
# p(v | x) is the softmax of ``answers.softmax`` over combinations x of quasi-identifiers: effects of levels, bins
# of columns of numbers, and of the cells of measured pairs. With T records in a cell of a table, a share f of the value
# v, and noise of variance s^2, its count y is taken for normal around the sum mu of p, with variance s^2 + T f (1 - f).
#
# Steps of Gauss and Newton find the effects. If an effect z is added in cell d, the count
# of cell c changes by about f r_c r_d G_cd (z - mean of z by p): G are the records that both cells have, r = mu/(T f).
# For c = d it is exactly mu (z - mean). Each step is solved by conjugate gradients. A few of these are enough: more of
# them only follow the noise. The ridge of a column or pair is estimated after each step, but for the first ones.

FIRST, LAST, AGAIN = 8, 12, 5  # steps
SETTLING, CONJUGATES, LONGEST = 2, 10, 1.0  # steps before ridges are estimated; of the gradients; of log-odds in one
FEWEST, TINY, ENOUGH = 30, 1e-9, 1e-9
TYPICAL_INTERACTION, MOST_INTERACTION = 0.1, 0.3


@dataclass(frozen=True)
class CellRegression:
    """Counts ``observed`` (C, K) in the cells of a design, and their ``precision``, 0 where nothing was measured."""

    design: Design
    observed: Floats
    precision: Floats

    @cached_property
    def shared(self) -> Floats:
        """Return how many records two cells have in common (C, C)."""
        sizes, total = self.design.sizes[:, None], self.design.cells.shape[1]
        shared = np.zeros((total, total), dtype=np.float32)
        for rows, cells in self.design.parts:
            shared += (cells.T @ cells.multiply(sizes[rows]).tocsr()).toarray()
        return shared

    def expect_counts(self, probabilities: Floats) -> Floats:
        """Return the sums of p (rows, K) in all cells (C, K)."""
        sizes, sums = self.design.sizes[:, None].astype(probabilities.dtype), np.zeros_like(self.observed)
        for rows, cells in self.design.parts:
            sums += cells.T @ (probabilities[rows] * sizes[rows])
        return sums

    def linearize(self, expected: Floats) -> Callable[[Floats], Floats]:
        """Return by how much counts (C, K) change with small effects of cells (C, K); a symmetric function."""
        shares = expected.sum(axis=0) / expected.sum()
        likely = self.shared.diagonal()[:, None] * shares
        ratio = expected / np.maximum(likely, TINY)
        inside = expected - likely * ratio**2
        of_cell = expected / np.maximum(expected.sum(axis=1, keepdims=True), TINY)

        def move_counts(effects: Floats) -> Floats:
            effects = effects - (of_cell * effects).sum(axis=1, keepdims=True)
            moved = shares * ratio * (self.shared @ (ratio * effects).astype(np.float32)) + inside * effects
            return np.asarray(moved - of_cell * moved.sum(axis=1, keepdims=True))

        return move_counts

    def improve(self, fit: SoftmaxFit, offset: Floats) -> SoftmaxFit:
        """Return the fit after one step, with the information of every parameter in the table that it belongs to."""
        expected = self.expect_counts(self.design.probabilities(fit.theta, offset))
        move_counts, features = self.linearize(expected), self.design.features
        penalties = fit.penalties[self.design.groups][:, None]
        known = expected**2 * self.precision
        known[0] = known.sum(axis=0)  # everybody is in the first cell, which is of no table
        information = features.T @ known
        slope = features.T @ move_counts(self.precision * (self.observed - expected)) - penalties * fit.theta

        def curve(change: Floats) -> Floats:
            each = change.reshape(slope.shape)
            moved = features.T @ move_counts(self.precision * move_counts(features @ each))
            return np.asarray(moved + penalties * each).ravel()

        system = scipy.sparse.linalg.LinearOperator((slope.size, slope.size), curve, dtype=slope.dtype)
        nearly = scipy.sparse.diags_array(1 / (information + penalties).ravel())
        change, _ = scipy.sparse.linalg.cg(system, slope.ravel(), rtol=ENOUGH, maxiter=CONJUGATES, M=nearly)
        theta = fit.theta + np.clip(change.reshape(slope.shape), -LONGEST, LONGEST)
        return replace(fit, theta=theta, information=information)


@dataclass(frozen=True)
class TablesModel:
    """The model of measured tables: its ``fit``, and ``weights`` (rows, K); those of a combination add up to 1.

    ``interaction``: by what share of itself a count of a pair of columns lies from what the columns alone make likely.
    """

    rule: TablesRule
    fit: SoftmaxFit
    weights: Floats
    interaction: float = 0.0

    def expect_table(self, k: int) -> Floats:
        """Return the counts of a table that the weights make likely (size * K,)."""
        return self.rule.codes.sum_cells(k, self.weights, self.rule.codes.sizes).ravel()

    def stream_weights(self) -> pa.RecordBatchReader:
        """Return (combination, code, weight), in this order."""
        kind = pa.from_numpy_dtype(self.weights.dtype)
        schema = pa.schema({"combination": pa.int32(), "code": pa.int32(), "weight": kind})
        rows, codes = (np.arange(number, dtype=np.int32) for number in self.weights.shape)

        def make_batch(part: slice) -> pa.RecordBatch:
            columns = np.repeat(rows[part], len(codes)), np.tile(codes, len(rows[part])), self.weights[part].ravel()
            return pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, map(make_batch, split_range(len(rows))))


def combine_tables(tables: Sequence[NoisyTable], values: int) -> dict[int, tuple[Floats, float]]:
    """Return by table the counts (size, K) and their noise's variance; of a table that was measured twice the mean."""
    combined: dict[int, tuple[Floats, float]] = {}
    for one in tables:
        counts, variance = one.counts.reshape(-1, values).astype(np.float64), one.variance
        if one.columns[0] in combined:
            before, other = combined[one.columns[0]]
            counts = (counts / variance + before / other) / (1 / variance + 1 / other)
            variance = 1 / (1 / variance + 1 / other)
        combined[one.columns[0]] = counts, variance
    return combined


def fit_tables(
    tables: Sequence[NoisyTable], rule: TablesRule, start: TablesModel | None = None, steps: int = LAST
) -> TablesModel:
    """Return the model of tables; ``start``: one of the same tables, or of those of the columns alone."""
    combined = combine_tables(tables, rule.values)
    codes = rule.codes
    design, places = make_design(codes, [k for k in combined if k >= rule.columns])
    total = sum(counts.sum(axis=0) for k, (counts, _) in combined.items() if k < rule.columns) / rule.columns
    shares = np.maximum(total, 1.0) / np.maximum(total, 1.0).sum()
    observed, precision = np.zeros((2, design.cells.shape[1], rule.values))
    for k, (counts, variance) in combined.items():
        records = np.bincount(codes.tables[k].cells, codes.sizes)[:, None]
        place = slice(places[k], places[k] + len(counts))
        observed[place], precision[place] = counts, 1 / (variance + records * shares * (1 - shares))
    regression, offset = CellRegression(design, observed, precision), np.log(shares)
    fit = start_fit(design, rule.values)
    if start is not None:  # the parameters of pairs come last
        theta = np.concatenate((start.fit.theta, fit.theta[len(start.fit.theta) :]))
        penalties = np.concatenate((start.fit.penalties, fit.penalties[len(start.fit.penalties) :]))
        fit = replace(fit, theta=theta, penalties=penalties)
    for number in range(FIRST if start is None else steps):
        fit = regression.improve(fit, offset)
        if number >= SETTLING:
            fit = replace(fit, penalties=estimate_penalties(design, fit, fit.information))
    weights = design.probabilities(fit.theta, offset)
    interaction = 0.0 if start is None else estimate_interaction(start, combined)
    return TablesModel(rule, fit, weights, interaction)


def refit_tables(tables: Sequence[NoisyTable], rule: TablesRule) -> TablesModel:
    """Return the model of published tables, as ``measure_tables`` fits it."""
    first = [one for one in tables if one.choice is None][: rule.columns]
    return fit_tables(tables, rule, fit_tables(first, rule))


def estimate_interaction(columns: TablesModel, combined: Mapping[int, tuple[Floats, float]]) -> float:
    """Return how far pairs lie from a model of the ``columns`` alone, by the moments of measured ones.

    With mu expected, noise of variance s^2 and counts y = mu (1 + u): the mean of (y - mu)^2 - s^2 - mu by mu^2, plus
    its standard error. Where no pair was worth its noise, the largest u with which none would have been.
    """
    rule, above, below = columns.rule, 0.0, 0.0
    for k, (counts, variance) in combined.items():
        if k >= rule.columns:
            expected = columns.expect_table(k)
            share = expected**2 / (variance + expected + (TYPICAL_INTERACTION * expected) ** 2) ** 2
            above += float(share @ ((counts.ravel() - expected) ** 2 - variance - expected))
            below += float(share @ expected**2)
    if below:
        return float((max(above / below, 0.0) + (2 / below) ** 0.5) ** 0.5)
    noise = float(SUBSTITUTION.mean_noise(rule.remaining_budget / max(1, rule.rounds)))
    grid, bounds = np.linspace(0, MOST_INTERACTION, 51), []
    for k in range(rule.columns, len(rule.codes.tables)):
        expected = columns.expect_table(k)[:, None]
        beyond = ((expected + (grid * expected) ** 2) ** 0.5 - expected**0.5).sum(axis=0) * (2 / pi) ** 0.5
        bounds.append(float(grid[beyond <= WORTH * noise * len(expected)].max()))
    return min(bounds, default=0.0)


def make_design(codes: PublicCodes, pairs: Sequence[int]) -> tuple[Design, dict[int, int]]:
    """Return the design of all columns and some pairs, and where the cells of each of these tables begin."""
    nothing = np.zeros(len(codes.sizes), dtype=np.int32)
    blocks = [([Term("intercept", np.zeros(1, dtype=np.int32), 1, (nothing,))], [nothing])]
    places, begin = {}, 1
    for k, table in enumerate(codes.tables):
        if len(table.columns) > 1 and k not in pairs:
            continue
        cells = table.cells.astype(np.int32)
        records = np.bincount(table.cells, codes.sizes)
        name = " x ".join(codes.names[j] for j in table.columns)
        terms = [Term(name, renumber_levels(np.flatnonzero(records >= FEWEST), table.size), 1, (cells,))]
        if len(table.columns) == 1 and table.size > MOST_COARSE:
            bins = codes.bins[k].astype(np.int32)
            terms.append(Term(f"{name} in bins", np.arange(bins.max() + 1, dtype=np.int32), 1, (bins,)))
        blocks.append(([term for term in terms if term.levels], [cells]))
        places[k], begin = begin, begin + table.size
    return join_blocks(blocks, codes.sizes, np.float32), places


# Intervals ------------------------------------------------------------------------------------------------------------
# A table of values is drawn, measured with noise of the same scales, and the model is fitted to that. It is drawn from
# the weights, moved by random effects of every pair of columns that was not measured and of all threes, as large as
# measured pairs have them: real tables have interactions that the model lacks. That threes have effects as large as
# pairs is an assumption, chosen (of 0, 1/2 and 1) by coverage on one census table. How far answers lie from the drawn
# table's is regressed on what is known of questions: with T of n records that meet the quasi-identifiers, S the
# estimate and V = sum of s (1 - s), s a record's weight in its values,
#
#     log(se^2/V) = beta (1, log S, log^2 S, log(T/n), log(V/S)),
#
# one beta for sums of measured cells and one for all else, which makes the interval of the worst band of true answers
# hold in the drawn table what it should.

CONDITIONS, ATTRIBUTES, SETS, LEAST_SHARE = 150, 3, 10, 0.002
MOST_EXCESS = 4.0


def interval_features(members: Floats, count: Floats, variance: Floats, records: int) -> Floats:
    """Return the terms of the regression (G, 5)."""
    size, share = np.log(np.maximum(count, 1)), np.log(np.maximum(members, 1) / records)
    open_ = np.log(np.clip(variance / np.maximum(count, TINY), 1e-4, 1))
    return np.stack((np.ones_like(size), size, size**2, share, open_), axis=1)


def rehearse(model: TablesModel, tables: Sequence[NoisyTable]) -> list[list[float]]:
    """Return the coefficients of intervals, of sums of measured cells and of others, from one release of a drawn table.

    Nothing but what is published is used.
    """
    draw = fixed_draw("rehearsal")
    rule, codes = model.rule, model.rule.codes
    drawn = draw_values(model, {k for one in tables for k in one.columns}, draw)
    ones = np.ones_like(codes.sizes)
    again = measure_again(tables, lambda table: codes.sum_cells(table[0], drawn, ones).ravel(), draw)
    weights = fit_tables(again, rule, model, AGAIN).weights
    sets = (draw.random((rule.values, SETS)) < draw.uniform(0.02, 0.6, SETS)).astype(drawn.dtype)
    found: tuple[list[Floats], list[Floats]] = ([], [])
    asked = (weights, drawn), (weights @ sets, drawn @ sets)
    for rows, columns in draw_conditions(codes, draw):
        size = codes.sizes[rows].astype(drawn.dtype)
        for each, true in asked:
            count, truth = size @ each[rows], true[rows].sum(axis=0)
            members = np.full(len(truth), size.sum())
            found[columns > 1].append(np.stack((members, truth, count, count - size @ each[rows] ** 2)))
    return [_regress_errors(answers, int(codes.sizes.sum())) for answers in found]


def draw_conditions(codes: PublicCodes, draw: np.random.Generator) -> Iterator[tuple[Ints, int]]:
    """Yield the combinations that meet a random condition on so many columns; of few records none."""
    for _ in range(CONDITIONS):
        chosen = draw.choice(len(codes.names), draw.integers(1, min(ATTRIBUTES, len(codes.names)) + 1), replace=False)
        at = draw.integers(len(codes.sizes))
        (rows,) = np.nonzero(np.logical_and.reduce([codes.levels[j] == codes.levels[j][at] for j in chosen]))
        if codes.sizes[rows].sum() >= LEAST_SHARE * codes.sizes.sum():
            yield rows, len(chosen)


def draw_values(model: TablesModel, measured: set[int], draw: np.random.Generator) -> Floats:
    """Return a table of values (rows, K), drawn from the weights with random effects of what was not ``measured``."""
    codes, weights = model.rule.codes, model.weights
    pairs = [codes.tables[k].columns for k in range(model.rule.columns, len(codes.tables)) if k not in measured]
    together = [*pairs, *combinations(range(len(codes.names)), 3)]
    shape = MOST_COARSE, weights.shape[1]
    effects = [np.exp(draw.normal(0, model.interaction, (MOST_COARSE ** (len(one) - 1), *shape))) for one in together]
    drawn = np.empty_like(weights)
    for rows in split_range(len(weights)):
        part = weights[rows].astype(np.float64)
        for columns, effect in zip(together, effects, strict=True):
            *first, last = (codes.bins[j][rows] for j in columns)
            part *= effect[np.ravel_multi_index(first, (MOST_COARSE,) * len(first)), last]
        drawn[rows] = draw.multinomial(codes.sizes[rows], part / part.sum(axis=1, keepdims=True))
    return drawn


def _regress_errors(answers: Sequence[Floats], records: int) -> list[float]:
    """Return coefficients by answers: members, truth, estimate and V of each (4, G)."""
    members, truth, count, variance = np.hstack([np.zeros((4, 0)), *answers])
    (use,) = np.nonzero((variance > 0.1) & (count >= 1))
    if len(use) < FEWEST:
        return [0.0] * 5
    features = interval_features(members[use], count[use], variance[use], records)
    amounts = (count - truth)[use] ** 2 / variance[use]
    beta = regress_errors(features, amounts, truth[use], FEWEST)
    return [round(float(one), 6) for one in beta]


def standard_errors(
    coefficients: Sequence[Sequence[float]],
    measured: Any,
    members: Floats,
    count: Floats,
    variance: Floats,
    records: int,
) -> Floats:
    """Return standard errors of counts (G,); ``measured`` (G,): whether each is a sum of measured cells."""
    logs = np.where(measured, *(interval_features(members, count, variance, records) @ np.array(coefficients).T).T)
    return np.asarray(np.sqrt(np.maximum(variance, 0) * np.exp(np.clip(logs, -MOST_EXCESS, MOST_EXCESS))))


# Measured cells -------------------------------------------------------------------------------------------------------
# A sum of n counts of one table has the sum of n independent discrete Laplace variables as its noise, whose
# characteristic function is ((1 - p)^2/(1 - 2 p cos t + p^2))^n with p = e^(-1/scale).

FEW_CELLS, ROUNDING = 20, 1e-4  # of a sum whose interval follows from the noise alone; of counts
FINEST, FARTHEST_NOISE = 2_000.0, 26  # scale in steps of the lattice; standard deviations that are looked at


@cache
def noise_reach(budgets: tuple[Fraction, ...], cells: int, confidence: float) -> float:
    """Return the least q that the noise of a sum of ``cells`` counts exceeds with at most 1 - ``confidence``.

    ``budgets``: of one or two measurements of the table, of which the counts are the mean by precision.
    """
    variances = np.array([SUBSTITUTION.variance(one) for one in budgets])
    scales = [SUBSTITUTION.scale(one) for one in budgets]
    step, shares, laws = max(1.0, max(scales) / FINEST), 1 / variances / (1 / variances).sum(), []
    for scale, variance in zip(scales, variances.tolist(), strict=True):
        p, reach = np.exp(-step / scale), int(FARTHEST_NOISE * (cells * variance) ** 0.5 / step) + 40
        angles = pi * np.arange(reach + 1) / reach
        law = np.fft.irfft(((1 - p) ** 2 / (1 - 2 * p * np.cos(angles) + p**2)) ** cells)
        laws.append((np.arange(-reach, reach), np.roll(law, reach)))
    (places, chances), *others = laws
    if not others:
        return step * float(np.searchsorted(np.cumsum(np.bincount(np.abs(places), chances)), confidence))
    (steps, law), least, most = others[0], 0.0, float(len(places) + len(others[0][0]))
    below = np.concatenate(([0.0], np.cumsum(law)))
    while most - least > 1e-3 * most:
        q = (least + most) / 2
        low, high = (np.sign(side) * q - shares[0] * places for side in (-1, 1))
        first = np.searchsorted(shares[1] * steps, low, side="left")
        last = np.searchsorted(shares[1] * steps, high, side="right")
        least, most = (least, q) if chances @ (below[last] - below[first]) >= confidence else (q, most)
    return step * most


@dataclass(frozen=True)
class MeasuredCount:
    """A noisy sum of ``cells`` counts of a table, each of a ``variance``, over so many ``records``.

    ``budgets``: of the measurements of the table.
    """

    count: float
    records: float
    cells: int
    variance: float
    budgets: tuple[Fraction, ...]

    @property
    def deviation(self) -> float:
        """Return the standard deviation of its noise."""
        return float(np.sqrt(self.cells * self.variance))

    def set_interval(self, one: Estimate, confidence: float) -> Estimate:
        """Return an estimate with the interval by the exact law of the noise, if few cells are summed.

        The estimate of the fitted tables may lie apart from the noisy count: that adds to its standard error.
        """
        if one.estimate is None or not one.std_error or not 1 <= self.cells <= FEW_CELLS:
            return one
        reach = noise_reach(self.budgets, self.cells, confidence)
        estimate = float(one.estimate)
        low = min(max(np.ceil(self.count - reach - ROUNDING), 0.0), estimate)
        high = max(min(np.floor(self.count + reach + ROUNDING), self.records), estimate)
        error = float(np.hypot(self.deviation, estimate - self.count))
        return replace(one, std_error=error, low=float(low), high=float(high))
