"""Measure sensitive values in noisy tables by public quasi-identifiers, and fit one model of a value to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import floor, pi
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privsql.answers.bucket_model import fit_gamma
from privsql.answers.softmax import Schedule, Term, fit_softmax, join_blocks, renumber_levels, start_fit
from privsql.dp_random import SUBSTITUTION, SeededNoise
from privsql.keyed_random import seed_key
from privsql.mechanisms.dp.noisy_tables import NoisyTable, fit_moments, measure_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.answers.softmax import Design, SoftmaxFit
    from privsql.dp_random import SelectionNoise

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
Entries = tuple[Ints, Ints, Ints]  # combination, value and number of records: the private part of a source


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
            raise ValueError("a pair was chosen twice, or is none")
        return [*self.first_tables(), *self.later_tables(chosen)]

    def sum_budgets(self, tables: Sequence[NoisyTable]) -> Fraction:
        """Return what tables and all choices spend together; a choice of none is one, too."""
        return sum((one.budget for one in tables), start=self.rounds * self.choice_budget)


def measure_tables(entries: Entries, rule: TablesRule, noise: SelectionNoise) -> tuple[list[NoisyTable], TablesModel]:
    """Return all tables of a source, and the model of them: epsilon-differentially private for one value substituted.

    Nothing else looks at ``entries``.
    """
    combination, value, records = entries

    def count_exactly(k: int) -> Ints:
        flat = rule.codes.tables[k].cells[combination] * rule.values + value
        counted = np.bincount(flat, records, rule.cell_counts[k])  # exact: below 2^53
        return counted.astype(np.int64)

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
# v, and noise of variance s^2, its count y is taken for normal around the sum of p with variance s^2 + T f (1 - f).
# Weights are p raked to the tables, shrunk to the model by how far these lie from it beyond their noise.

FIRST = Schedule(first=8, rounds=1, last=8)
LAST = Schedule(first=6, rounds=2, each=6, last=12)
AGAIN = Schedule(rounds=0, last=16)
FEWEST, RAKING, FARTHEST, TINY = 30, 3, 10.0, 1e-9


@dataclass(frozen=True)
class TableLikelihood:
    """Counts ``observed`` (C, K) in the cells of a design, and their ``precision``, 0 where nothing was measured."""

    design: Design
    observed: Floats
    precision: Floats

    def evaluate(self, probabilities: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood of p (rows, K) and its derivative by the log-odds (rows, K)."""
        weights = probabilities * self.design.sizes[:, None]
        far = self.observed - self.design.cells.T @ weights
        back = self.design.cells @ (far * self.precision)
        back -= np.einsum("rk,rk->r", probabilities, back)[:, None]
        back *= weights
        return float(-(far**2 * self.precision).sum() / 2), back

    def measure_information(self, design: Design, probabilities: Floats) -> Floats:
        """Return the information of every parameter (J, K) in the table that it belongs to."""
        spread = design.cells.T @ (probabilities * (1 - probabilities) * design.sizes[:, None])
        return np.asarray(design.features.T @ (spread**2 * self.precision))


@dataclass(frozen=True)
class TablesModel:
    """The model of measured tables: ``design`` and ``fit``, ``offset`` (K,), ``places``: where the cells of each table
    begin in the design, and ``weights`` (rows, K), of which those of a combination add up to 1.
    """

    rule: TablesRule
    design: Design
    fit: SoftmaxFit
    offset: Floats
    places: dict[int, int]
    weights: Floats

    def expect_table(self, k: int) -> Floats:
        """Return the counts of a table that the weights make likely (size * K,)."""
        table, weights = self.rule.codes.tables[k], self.weights * self.rule.codes.sizes[:, None]
        order = np.argsort(table.cells, kind="stable")
        starts = np.searchsorted(table.cells[order], np.arange(table.size))
        return np.add.reduceat(weights[order], starts, axis=0).ravel()


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
    tables: Sequence[NoisyTable], rule: TablesRule, start: TablesModel | None = None, schedule: Schedule = LAST
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
    likelihood, offset = TableLikelihood(design, observed, precision), np.log(shares)
    fit = start_fit(design, rule.values)
    if start is not None:  # the parameters of pairs come last
        theta, penalties = start.fit.theta, start.fit.penalties
        more = np.zeros((len(fit.theta) - len(theta), rule.values))
        penalties = np.concatenate((penalties, fit.penalties[len(penalties) :]))
        fit = replace(fit, theta=np.concatenate((theta, more)), penalties=penalties)
    fit = fit_softmax(design, likelihood, offset, fit, FIRST if start is None else schedule)
    weights = design.probabilities(fit.theta, offset)
    rake_weights(weights, codes, combined)
    return TablesModel(rule, design, fit, offset, places, weights)


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
    return join_blocks(blocks, codes.sizes), places


def rake_weights(weights: Floats, codes: PublicCodes, combined: Mapping[int, tuple[Floats, float]]) -> None:
    """Move weights (rows, K) in place towards measured tables, whose counts are shrunk by their noise.

    Beyond it they lie a mu + b mu^2 from the model's mu, by the mean square.
    """
    wanted: dict[int, Floats] = {}
    for _ in range(RAKING):
        for k, (counts, variance) in combined.items():
            cells = codes.tables[k].cells
            now = _sum_cells(weights, codes.sizes, cells, len(counts))
            if k not in wanted:
                first, second = fit_moments(now.ravel(), now.ravel() ** 2, ((counts - now) ** 2 - variance).ravel())
                beyond = first * now + second * now**2
                wanted[k] = now + beyond / (beyond + variance) * (counts - now)
            ratio = np.clip(wanted[k] / np.maximum(now, TINY), 1 / FARTHEST, FARTHEST)
            weights *= ratio[cells]
            weights /= weights.sum(axis=1, keepdims=True)


def _sum_cells(weights: Floats, sizes: Ints, cells: Ints, size: int) -> Floats:
    import scipy  # noqa: PLC0415 (takes long)

    member = scipy.sparse.csr_array((sizes.astype(np.float64), (cells, np.arange(len(cells)))), (size, len(cells)))
    return np.asarray(member @ weights)


# Intervals ------------------------------------------------------------------------------------------------------------
# A table of values is drawn from the weights, measured with noise of the same scales, and the model is fitted to that.
# How far its answers lie from the drawn table's is regressed on what is known of a question: with T records of n that
# meet its conditions on quasi-identifiers, S the estimate and V = sum of s (1 - s), s a record's weight in its values,
#
#     log(se^2/V) = beta (1, log S, log^2 S, log(T/n), log(V/S)).
#
# Real tables are not drawn from the model: MISFIT is how much more they miss.

CONDITIONS, ATTRIBUTES, SETS, LEAST_SHARE, MISFIT = 150, 3, 10, 0.002, 2.0
MOST_EXCESS = 4.0


def interval_features(members: Floats, count: Floats, variance: Floats, records: int) -> Floats:
    """Return the terms of the regression (G, 5)."""
    size, share = np.log(np.maximum(count, 1)), np.log(np.maximum(members, 1) / records)
    open_ = np.log(np.clip(variance / np.maximum(count, TINY), 1e-4, 1))
    return np.stack((np.ones_like(size), size, size**2, share, open_), axis=1)


def rehearse(model: TablesModel, tables: Sequence[NoisyTable]) -> list[float]:
    """Return the coefficients of intervals, from one release of a drawn table; nothing but public counts is used."""
    draw = seed_key(0).random_generator("rehearsal")
    rule, codes = model.rule, model.rule.codes
    drawn = draw.multinomial(codes.sizes, model.weights)
    noise, again = SeededNoise(draw), []
    for one in tables:
        (k,) = one.columns
        counts = _sum_cells(drawn / codes.sizes[:, None], codes.sizes, codes.tables[k].cells, codes.tables[k].size)
        exact = np.rint(counts).astype(np.int64).ravel()
        again.append(measure_table(one.columns, exact, one.budget, noise, one.choice, one.law))
    weights = fit_tables(again, rule, model, AGAIN).weights
    found = []
    for _ in range(CONDITIONS):
        chosen = draw.choice(len(codes.names), draw.integers(1, min(ATTRIBUTES, len(codes.names)) + 1), replace=False)
        at, inside = draw.integers(len(codes.sizes)), np.ones(len(codes.sizes), dtype=bool)
        for j in chosen:
            inside &= codes.levels[j] == codes.levels[j][at]
        (rows,) = np.nonzero(inside)
        if codes.sizes[rows].sum() < LEAST_SHARE * codes.sizes.sum():
            continue
        sets = draw.random((rule.values, SETS)) < draw.uniform(0.02, 0.6, SETS)
        wanted: Floats = np.hstack((np.eye(rule.values), sets))
        each, size = weights[rows] @ wanted, codes.sizes[rows]
        truth = drawn[rows].sum(axis=0) @ wanted
        members = np.full(len(truth), float(size.sum()))
        found.append(np.stack((members, truth, size @ each, size @ (each * (1 - each))), axis=1))
    members, truth, count, variance = np.concatenate(found).T if found else np.zeros((4, 0))
    (use,) = np.nonzero((variance > 0.1) & (count >= 1))
    if len(use) < FEWEST:
        return [0.0] * 5
    features = interval_features(members[use], count[use], variance[use], int(codes.sizes.sum()))
    basis, change = np.linalg.qr(features)  # terms that go together would hold up the regression
    basis, change = basis * np.sign(change[0, 0]) * len(use) ** 0.5, change * np.sign(change[0, 0]) / len(use) ** 0.5
    beta = np.linalg.solve(change, fit_gamma(basis, (count - truth)[use] ** 2 / variance[use]))
    return [round(float(one), 6) for one in beta]


def standard_errors(
    coefficients: Sequence[float], members: Floats, count: Floats, variance: Floats, records: int
) -> Floats:
    """Return standard errors of counts (G,)."""
    logs = interval_features(members, count, variance, records) @ np.array(coefficients)
    return np.asarray(np.sqrt(MISFIT * np.maximum(variance, 0) * np.exp(np.clip(logs, -MOST_EXCESS, MOST_EXCESS))))
