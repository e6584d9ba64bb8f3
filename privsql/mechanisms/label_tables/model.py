"""Fit a model of sensitive values given quasi-identifiers to noisy tables, and draw its parameters.

A row is a combination of quasi-identifiers. The model gives the probability of each value in each row. Its parameters
(effects) belong to features of rows, such as having a given value of a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from privsql.answers.answer import DRAWS
from privsql.answers.effect_fit import ROUNDS, EffectSearch, solve
from privsql.answers.softmax import Term, join_blocks, renumber_levels, split_range, split_rows
from privsql.mechanisms.dp.joint_model import fixed_draw
from privsql.mechanisms.label_tables.rule import MOST_COARSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from privsql.answers.channel import Floats
    from privsql.answers.effect_fit import EffectPrior
    from privsql.answers.softmax import Design
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.label_tables.rule import PublicCodes, TablesRule

# Model ----------------------------------------------------------------------------------------------------------------
# The probability p(v | x) of value v for combination x of quasi-identifiers is the softmax of ``answers.softmax``. Its
# parameters (effects) belong to levels and bins of columns, to a slope of each column of numbers, and to the cells of
# measured pairs. The feature of a slope is the normal score of a level. Without slopes, a trend would need effects of
# one sign in all bins, which is improbable if they are independent; so means by a value would be pulled too far towards
# the mean of all records.
#
# A noisy count of a cell with T records, of which a share f has the value, is taken for normal. Its mean is the sum of
# p over the cell. Its variance is s^2 + T f (1 - f)/10, where s^2 is that of its noise. So the effects describe the
# records at hand, and the chance variation of records is left to their prior. The second term keeps the mode from being
# too sharp where noise is small.

FEWEST, CHANCE = 30, 0.1  # fewest records of a level with an effect; share of the sampling variance that is added
TINY = 1e-9  # records; prevents division by 0
MOST_ROWS = 20_000  # the information matrix is computed from at most so many combinations
NEWTON, GUIDED, ENOUGH = 8, 0.1, 1.0  # most steps to a mode, residual of each system, smallest gain of a further step
SHORTER, SHORTENED = 0.4, 6  # a step without gain is shortened by this factor, so many times


@dataclass(frozen=True)
class TablesLikelihood:
    """The normal likelihood of noisy counts: C cells of quasi-identifiers by K sensitive values.

    Attributes:
        design: Which combinations of quasi-identifiers lie in each cell, and how many records each combination has.
        observed: The noisy count of each value in each cell (C, K).
        precision: One over the variance of each count; 0 where nothing was measured (C, K).
    """

    design: Design
    observed: Floats
    precision: Floats

    def evaluate(self, probabilities: Floats) -> tuple[float, Floats]:
        """Return (the log-likelihood of given probabilities, its derivative by their log-odds (rows, K)).

        Args:
            probabilities: The probability of each value in each combination of quasi-identifiers, which is a row (rows,
                K).
        """
        expected = sum_cells(self.design, probabilities)
        pull = self.precision * (self.observed - expected)
        score, slope = pull.astype(probabilities.dtype), np.empty_like(probabilities)
        for rows, cells in self.design.parts:
            slope[rows] = cells @ score
        slope -= (probabilities * slope).sum(axis=1, keepdims=True)
        slope *= probabilities * self.design.sizes[:, None]
        return -float((pull * (self.observed - expected)).sum()) / 2, slope


def sum_cells(design: Design, probabilities: Floats) -> Floats:
    """Return the expected count of each value in each cell of the tables (C, K).

    Args:
        design: Which combinations of quasi-identifiers lie in each cell, and how many records each has.
        probabilities: The probability of each value in each combination (rows, K).
    """
    sums = np.zeros((design.cells.shape[1], probabilities.shape[1]))
    sizes = design.sizes[:, None].astype(probabilities.dtype)
    for rows, cells in design.parts:
        sums += cells.T @ (probabilities[rows] * sizes[rows])
    return sums


class TablesInformation:
    """The Fisher information matrix H of the model's parameters: an effect of each of J features on each of K values.

    A search and draws of the parameters need products with H, which is never stored itself. If there are very many
    combinations of quasi-identifiers, it is computed from a sample of them.
    """

    def __init__(self, likelihood: TablesLikelihood, probabilities: Floats) -> None:
        design, single = likelihood.design, np.float32
        rows = slice(None, None, -(-len(probabilities) // MOST_ROWS))
        sizes = design.sizes[rows] * (design.sizes.sum() / design.sizes[rows].sum())
        self._features, self._parts = design.features, split_rows(design.cells[rows])
        self._p = probabilities[rows].astype(single)
        self._weights = self._p * sizes[:, None].astype(single)
        self._precision, self._root = likelihood.precision, np.sqrt(likelihood.precision)
        self.shape = self._precision.shape

    def multiply(self, theta: Floats) -> Floats:
        """Return H (the information matrix) times parameters ``theta``: effects of J features on K values (J, K)."""
        return self._sum_features(self._precision * self._move_counts(self._features @ theta))

    def draw_score(self, noise: Floats) -> Floats:
        """Turn standard normal numbers (C, K), one for each noisy count, into a random vector with covariance H (J, K).

        Parameters are drawn from their posterior by solving linear systems with such vectors.
        """
        return self._sum_features(self._root * noise)

    def _sum_features(self, pull: Floats) -> Floats:
        return np.asarray(self._features.T @ self._move_counts(pull))

    def _move_counts(self, effects: Floats) -> Floats:
        """Return by how much expected counts change if log-odds of values change a little (C, K).

        Args:
            effects: The change of the log-odds of each of K values in each of C cells of the tables (C, K).
        """
        effects, moved = effects.astype(np.float32), np.zeros(self.shape)
        for rows, cells in self._parts:
            each = cells @ effects
            each -= (self._p[rows] * each).sum(axis=1, keepdims=True)
            each *= self._weights[rows]
            moved += cells.T @ each
        return moved


class TablesFit(EffectSearch):
    """The search for the most probable parameters (the posterior mode), given noisy tables.

    It also draws parameters from their posterior. If noise is large, the prior alone determines much of the posterior,
    so the linear systems whose solutions are draws are solved with high accuracy.
    """

    start: ClassVar[float] = 100.0
    start_of_pairs: ClassVar[float] = 400.0
    close: ClassVar[float] = 0.05
    closer: ClassVar[float] = 0.03
    longest: ClassVar[int] = 100

    def __init__(self, likelihood: TablesLikelihood, offset: Floats) -> None:
        """Prepare a fit.

        Args:
            likelihood: The likelihood of the noisy tables.
            offset: The log-odds of each value over all records (K,).
        """
        super().__init__(likelihood.design, likelihood, offset, fixed_draw("tables of values"))
        self._tables = likelihood

    def _climb(self, theta: Floats, prior: EffectPrior, steps: int, report: Callable[[], None]) -> tuple[Floats, float]:
        """Move parameters ``theta`` towards the most probable ones by Gauss-Newton steps.

        If noise is small, other methods would need many more steps.

        Args:
            theta: The effects of J features of quasi-identifiers on K values (J, K).
            prior: The normal prior of the effects.
            steps: The most steps.
            report: Is called after each step to show progress.

        Returns:
            (the new parameters, the scaled length of the gradient before the last step).
        """
        (value, slope), length = self._score(theta, prior), np.inf
        for _ in range(min(steps, NEWTON)):
            information, squares = self._measure(theta, prior)
            right, nearly = prior.pull(slope) - prior.whiten(theta), 1 / (1 + squares)
            length = float(np.linalg.norm(right * np.sqrt(nearly)))
            curve = partial(self._curve, prior, information)
            way = prior.color(solve(curve, right, nearly, GUIDED, self.longest))
            tried = ((theta + SHORTER**number * way) for number in range(SHORTENED))
            scored = ((one, *self._score(one, prior)) for one in tried)
            found = next((one for one in scored if one[1] > value), None)
            report()
            if found is None:
                break
            before, (theta, value, slope) = value, found
            if value - before < ENOUGH:
                break
        return theta, length

    def _score(self, theta: Floats, prior: EffectPrior) -> tuple[float, Floats]:
        """Evaluate parameters ``theta``, the effects of J features on K values (J, K), under their prior.

        Returns:
            (the log posterior density up to a constant, the gradient of the log-likelihood (J, K)).
        """
        value, slope = self._evaluate(theta)
        return value - float((prior.whiten(theta) ** 2).sum()) / 2, slope

    def _inform(self, theta: Floats, prior: EffectPrior) -> TablesInformation:
        return TablesInformation(self._tables, self._design.probabilities(theta, self._offset))


@dataclass(frozen=True)
class MeasuredDesign:
    """The features of the model, and the cells of the measured tables, for every combination of quasi-identifiers.

    Tables are numbered as in ``PublicCodes.tables``: single columns first, then pairs of columns.

    Attributes:
        design: Which features each combination has, and in which cells it lies.
        places: The position of the first cell of each measured table, by the number of the table.
        offset: The log-odds of each of K values over all records (K,).
        columns: The number of quasi-identifiers, which is the number of tables over single columns.
    """

    design: Design
    places: dict[int, int]
    offset: Floats
    columns: int

    @staticmethod
    def from_tables(tables: Sequence[NoisyTable], rule: TablesRule) -> MeasuredDesign:
        """Make the design of the model for the tables that were measured.

        It says for each combination of quasi-identifiers by which features values are predicted, and in which cells of
        the tables it is counted. The log-odds of values over all records come from the noisy totals of the tables.

        Args:
            tables: The noisy tables.
            rule: The public rule, which says which tables the release has.
        """
        combined = combine_tables(tables, rule.values)
        design, places = make_design(rule.codes, [k for k in combined if k >= rule.columns])
        total = sum(counts.sum(axis=0) for k, (counts, _) in combined.items() if k < rule.columns) / rule.columns
        total = np.maximum(total, 1.0)
        return MeasuredDesign(design, places, np.log(total / total.sum()), rule.columns)

    def make_likelihood(self, tables: Sequence[NoisyTable], values: int) -> TablesLikelihood:
        """Return the likelihood of noisy tables, as a function of the probabilities of sensitive values.

        Args:
            tables: The noisy tables.
            values: The number of sensitive values.
        """
        observed, precision = np.zeros((2, self.design.cells.shape[1], values))
        shares = np.exp(self.offset)
        records = np.asarray(self.design.cells.T @ self.design.sizes)
        for k, (counts, variance) in combine_tables(tables, values).items():
            place = slice(self.places[k], self.places[k] + len(counts))
            chance = records[place, None] * shares * (1 - shares)
            observed[place], precision[place] = counts, 1 / (variance + CHANCE * chance)
        return TablesLikelihood(self.design, observed, precision)

    def list_weights(self, effects: NDArray[np.float32]) -> Iterator[Floats]:
        """Yield the probability of each value in each combination (rows, K), for each of D draws of the parameters.

        Args:
            effects: The draws of the parameters: effects of J features on K values (D, J, K).
        """
        for theta in effects:
            yield self.design.probabilities(theta.astype(np.float64), self.offset)


@dataclass(frozen=True)
class TablesModel:
    """A model that is fitted to noisy tables.

    Attributes:
        rule: The public rule, which says which tables are measured, and with which budget.
        weights: The probability of each of K values in each combination of quasi-identifiers (rows, K).
        effects: D draws of the model's parameters from their posterior: effects of J features on K values (D, J, K).
    """

    rule: TablesRule
    weights: Floats
    effects: NDArray[np.float32]

    def expect_table(self, k: int) -> Floats:
        """Return the counts that the fitted probabilities predict for table ``k``, by cell and value (size * K,)."""
        return self.rule.codes.sum_cells(k, self.weights, self.rule.codes.sizes).ravel()

    def stream_weights(self) -> pa.RecordBatchReader:
        """Return the fitted probabilities as a stream of rows (combination, code, weight), by combination and code."""
        kind = pa.from_numpy_dtype(self.weights.dtype)
        schema = pa.schema({"combination": pa.int32(), "code": pa.int32(), "weight": kind})
        rows, codes = (np.arange(number, dtype=np.int32) for number in self.weights.shape)

        def make_batch(part: slice) -> pa.RecordBatch:
            columns = np.repeat(rows[part], len(codes)), np.tile(codes, len(rows[part])), self.weights[part].ravel()
            return pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, map(make_batch, split_range(len(rows))))

    def list_effects(self) -> pa.Table:
        """Return the draws of the parameters as a table (draw, feature, code, effect), in that order.

        An effect says how much a feature of a record's quasi-identifiers changes the log-odds of the value with that
        code.
        """
        names = ("draw", "feature", "code")
        places = (one.ravel().astype(np.int32) for one in np.indices(self.effects.shape))
        return pa.table({**dict(zip(names, places, strict=True)), "effect": self.effects.ravel()})


def combine_tables(tables: Sequence[NoisyTable], values: int) -> dict[int, tuple[Floats, float]]:
    """Return (counts (size, K), variance of their noise) of each measured table, by the number of the table.

    If a table was measured twice, its counts are the mean, weighted by precision.

    Args:
        tables: The noisy tables.
        values: The number of sensitive values, K.
    """
    combined: dict[int, tuple[Floats, float]] = {}
    for one in tables:
        counts, variance = one.counts.reshape(-1, values).astype(np.float64), one.variance
        if one.columns[0] in combined:
            before, other = combined[one.columns[0]]
            counts = (counts / variance + before / other) / (1 / variance + 1 / other)
            variance = 1 / (1 / variance + 1 / other)
        combined[one.columns[0]] = counts, variance
    return combined


def fit_tables(tables: Sequence[NoisyTable], rule: TablesRule, rounds: int = ROUNDS, draws: int = DRAWS) -> TablesModel:
    """Fit the model to noisy tables, and draw its parameters from their posterior.

    Args:
        tables: The noisy tables.
        rule: The public rule, which says which tables the release has.
        rounds: How often the variances of the parameters' prior are estimated anew; with 0 the initial prior is kept.
        draws: The number of draws.
    """
    measured = MeasuredDesign.from_tables(tables, rule)
    search = TablesFit(measured.make_likelihood(tables, rule.values), measured.offset)
    found = search.find_effects(rounds=rounds)
    drawn = [one.astype(np.float32) for one in search.draw_effects(found.theta, found.prior, draws)]
    weights = measured.design.probabilities(found.theta, measured.offset)
    return TablesModel(rule, weights, np.array(drawn, dtype=np.float32).reshape(draws, *found.theta.shape))


def make_design(codes: PublicCodes, pairs: Sequence[int]) -> tuple[Design, dict[int, int]]:
    """Make the features and cells of a model for the tables over all single columns and over some pairs.

    In the model, the features of a combination of quasi-identifiers, such as its value of a column, decide how probable
    the sensitive values are. A cell of a table has the combinations that are counted together.

    Args:
        codes: The combinations of quasi-identifiers.
        pairs: The numbers of the tables over two columns that were measured.

    Returns:
        (which features each combination has and in which cells it lies, the position of each table's first cell).
    """
    nothing = np.zeros(len(codes.sizes), dtype=np.int32)
    blocks: list[tuple[list[Term], list[Any]]] = [
        ([Term("intercept", np.zeros(1, dtype=np.int32), 1, (nothing,))], [nothing])
    ]
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
        if len(table.columns) == 1 and codes.scores[k].any():
            one = np.zeros(table.size, dtype=np.int32)
            terms.append(Term(f"{name} as a slope", one, 1, (cells,), codes.scores[k]))
        blocks.append(([term for term in terms if term.levels], [cells]))
        places[k], begin = begin, begin + table.size
    return join_blocks(blocks, codes.sizes, np.float32), places


# Completed tables -----------------------------------------------------------------------------------------------------
# Where tables are noisy, draws of effects lie far apart. As the softmax is not linear, the totals of values in a draw
# are biased: they are nearer to each other than the fitted totals. So each draw gets the fitted totals plus a random
# deviation as large as the noise of all columns. Its weights are multiplied by factors of values and combinations until
# they have these totals.

MULTIPLIED = 5  # rounds of multiplication
SPREAD = 1.5  # factor by which deviations of effects from their mean are widened


def complete_records(
    measured: MeasuredDesign, tables: Sequence[NoisyTable], weights: Floats, effects: NDArray[np.float32]
) -> Iterator[NDArray[np.int64]]:
    """Yield for each draw of the parameters a random completed table: the code of a value for every record (n,).

    Records are sorted by their combinations of quasi-identifiers.

    Args:
        measured: The design of the measured tables.
        tables: The noisy tables. The larger their noise is, the more the totals of values vary between completed
            tables.
        weights: The fitted probability of each value in each combination (rows, K).
        effects: The draws of the parameters: effects of J features on K values (D, J, K).
    """
    draw, sizes, values = fixed_draw("completed tables"), measured.design.sizes, weights.shape[1]
    single = {k: one for k, one in combine_tables(tables, values).items() if k < measured.columns}
    deviation = sum(1 / (len(counts) * variance) for counts, variance in single.values()) ** -0.5
    codes = np.tile(np.arange(values), len(sizes))
    middle = effects.mean(axis=0)
    for part in measured.list_weights(middle + SPREAD * (effects - middle)):
        totals = np.maximum(sizes @ weights + deviation * draw.standard_normal(values), 1.0)
        totals *= sizes.sum() / totals.sum()
        each = part.astype(np.float64)
        for _ in range(MULTIPLIED):
            each *= totals / np.maximum(sizes @ each, TINY)
            each /= each.sum(axis=1, keepdims=True)
        yield np.repeat(codes, draw.multinomial(sizes, each).ravel())
