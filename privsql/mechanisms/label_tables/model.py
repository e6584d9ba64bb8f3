"""Fit one model of a value, given quasi-identifiers, to noisy tables, and rehearse how far its answers lie off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import pi
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy

from privsql.answers.softmax import (
    Term,
    estimate_penalties,
    join_blocks,
    renumber_levels,
    split_range,
    start_fit,
)
from privsql.dp_random import SUBSTITUTION
from privsql.mechanisms.dp.joint_model import fixed_draw
from privsql.mechanisms.dp.sum_errors import measure_again, regress_errors
from privsql.mechanisms.label_tables.rule import MOST_COARSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.answers.softmax import Design, SoftmaxFit
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.rule import Ints, PublicCodes, TablesRule

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
WORTH = 0.25  # share of its noise that a pair has to show: a model takes what it can from noisy counts


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
