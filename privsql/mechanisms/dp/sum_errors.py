"""Estimate the counts that questions ask for from a model of noisy tables, and the variances of their errors.

A question about some columns counts the records in some cells of the table over these columns. So its answer is a sum
over cells of that table (``CellSums``), which the model estimates from the published noisy tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from privsql.dp_random import SeededGaussian, SeededNoise
from privsql.mechanisms.dp.joint_model import JointModel, Model, fixed_draw, merge_values
from privsql.mechanisms.dp.noisy_tables import (
    POSSIBLE,
    CellSums,
    Clique,
    Ints,
    NoisyTable,
    Reals,
    measure_table,
    sum_cells,
    sum_places,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    ErrorScale = list[list[float]]


# Figures --------------------------------------------------------------------------------------------------------------
# Sums over cells of a model's tables, each with the variance of its error.
#
# Before anything is rehearsed, the following is known of an error. The estimate is made of smaller tables. Let u be the
# share of a cell that a sum takes, and s^2 the posterior variance of that cell. Then a table adds sum (u s)^2 (the
# delta method). Near values of a smooth column err together: the sum of n such values has n times that variance, up to
# what noise alone would add. A sum over all values of a column does not deviate from smaller tables. So each column
# takes off the share of the records (in a single column, of the values) that the sum has. For three columns and more,
# the deviation of a random sample is added.
#
# An estimate that follows from one measured table may differ from the least-squares one, of variance s^2, by as much as
# noise does. A larger difference, beyond ``NOISE`` sqrt(s^2 - v), is added to the estimate's own variance v. This
# matters for sums over many empty cells of a table, whose shrunk estimates are all a little too high.

FLOOR = 1e-3, 1e-6  # least variance: in records, and as a share of all records
NOISE = 2.0  # standard deviations of a difference that noise explains


@dataclass(frozen=True)
class SumErrors:
    """Estimates of G sums over cells of a table, with what predicts the sizes of their errors.

    Attributes:
        sums: S, the estimates (G,).
        variance: V, the variances of their errors as the model predicts them, mainly from the noise (G,).
        features: Five variables by which a regression corrects V (G, 5): 1, log S, log^2 S / 10, log(V/S), and log(L).
            Here L is the share of all records with values outside of the sum in every column, if columns were
            independent.
    """

    sums: Reals
    variance: Reals
    features: Reals


class SumEstimator:
    """Estimates the counts that questions ask for, as sums over cells of tables that a fitted model estimates.

    Args:
        model: The model that is fitted to the noisy tables.
        scales: The corrections of error variances that ``rehearse_sums`` found, by kind of table. The kind says whether
            the table's columns were measured together, and else how many they are. None to correct nothing.
    """

    def __init__(self, model: Model, scales: Mapping[str, ErrorScale] | None = None) -> None:
        self.model, self.scales = model, scales or {}
        self._whole: Callable[[Clique], Reals] = lru_cache(maxsize=64)(model.fitted_table)

    def estimate_sums(self, sums: CellSums) -> tuple[Reals, Reals]:
        """Return the estimated counts of a question's G groups (G,), and the variances of their errors (G,).

        Args:
            sums: For each group, the cells of a table over which its count is a sum.
        """
        errors, kind, squares = self.expect_errors(sums), self.model.table_kind(sums.columns), self.model.squares
        scale = self.scales.get(str(kind)) if kind else None
        variance = errors.variance if scale is None else scale_variance(errors, scale)
        if kind == 1 and not sums.classes:  # add the distance from least squares that noise does not explain
            far = errors.sums - sums.sum_table(squares.estimate_table(sums.columns))
            noise = np.maximum(squares.sum_variances(sums) - variance, 0.0)
            variance = variance + np.maximum(far**2 - NOISE**2 * noise, 0.0)
        return errors.sums, variance

    def expect_errors(self, sums: CellSums) -> SumErrors:
        """Estimate a question's counts, and predict the variances of their errors from the model, mainly from noise.

        ``scale_variance`` then corrects these variances for what the model does not explain.

        Args:
            sums: For each group of the question, the cells of a table over which its count is a sum.
        """
        table = self.model.fitted_table(sums.columns, sums.classes) if sums.classes else self._whole(sums.columns)
        codes, total = np.unravel_index(sums.cell, table.shape), max(self.model.total, 1.0)
        mass = sums.weight * table.reshape(-1)[sums.cell]
        shares = [merge_values(self.model.singles[i], (i,), sums.classes) / total for i in sums.columns]
        left = [_share_left_out(sums, one, code) for one, code in zip(shares, codes, strict=True)]
        result, variance = sums.add_up(mass), np.zeros(sums.number)
        for axes in chain.from_iterable(combinations(range(table.ndim), k + 1) for k in range(table.ndim)):
            own = table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in axes))
            within = np.ravel_multi_index(tuple(codes[axis] for axis in axes), own.shape)
            inside = own.reshape(-1)[within]
            others = [shares[axis][codes[axis]] for axis in range(table.ndim) if axis not in axes]
            part = np.divide(mass, inside, out=sums.weight * np.prod(others, axis=0), where=inside > 0)
            added = self._variance_within(sums, tuple(sums.columns[axis] for axis in axes), within, part)
            variance = variance + added * (np.prod([left[axis] for axis in axes], axis=0) if len(axes) > 1 else 1)
        rest = np.prod(left, axis=0)
        variance += (result * rest if table.ndim > 2 else 0.0) + FLOOR[0] + FLOOR[1] * self.model.total
        size = np.log(np.maximum(result, 1.0))
        features = (np.ones_like(size), size, size**2 / 10, np.log(variance) - size, np.log(np.maximum(rest, 1e-3)))
        return SumErrors(result, variance, np.stack(features, axis=1))

    def _variance_within(self, sums: CellSums, columns: Clique, within: Ints, part: Reals) -> Reals:
        """Return how much the uncertainty of one measured table adds to the variance of each of G sums (G,).

        The result is 0 if the model states no variances for the cells of that table.

        Args:
            sums: The sums, stored as n terms: each term is a cell of a table with a weight.
            columns: The columns of the measured table, which are some or all of the columns of the sums.
            within: The cell of the measured table in which each term's cell lies (n,).
            part: The share of the records in that cell of the measured table that the term counts (n,).
        """
        belief = self.model.beliefs.get(columns)
        if belief is None:
            return np.zeros(sums.number)
        variance = merge_values(belief.variance, columns, sums.classes).reshape(-1)
        places, (taken,) = sum_places(sums.group * len(variance) + within, sums.number * len(variance), part)
        group, cell = np.divmod(places, len(variance))
        if len(columns) > 1:
            return np.asarray(np.bincount(group, taken**2 * variance[cell], sums.number), dtype=np.float64)
        number, total = len(variance), self.model.squares.total_variance
        alone, amount = np.maximum(variance - total / number**2, 0.0), np.bincount(group, taken, sums.number)
        square = np.bincount(group, taken**2, sums.number)
        together = np.divide(
            amount**2, square, out=np.ones(sums.number), where=square > 0
        )  # effective number of values in each sum
        growth = np.clip(together, 1.0, self.model.squares.cell_variance(columns) / variance.mean())
        apart = growth * np.bincount(group, taken**2 * alone[cell], sums.number)
        share = amount / number
        return np.asarray(apart * np.maximum(1 - share, 0.0) / max(1 - 1 / number, FLOOR[1]) + total * share**2)


def _share_left_out(sums: CellSums, shares: Reals, codes: Ints) -> Reals:
    """Return for each of G sums the share of records whose value of one column occurs in none of its cells (G,).

    A sum over nearly all values of a column has a small error. So errors are predicted from these shares.

    Args:
        sums: The sums, stored as n terms: each term is a cell with a weight.
        shares: The share of the records that has each value of the column.
        codes: The value of the column in the cell of each term (n,).
    """
    places, _ = sum_places(sums.group * len(shares) + codes, sums.number * len(shares))
    group, code = np.divmod(places, len(shares))
    return np.maximum(1 - np.bincount(group, shares[code], sums.number), 0.0)


# Rehearsal ------------------------------------------------------------------------------------------------------------
# A rehearsal simulates a table that fits the release, measures it again with noise of the same laws, and fits a model
# to the result. The errors of its answers are regressed on what is known of them, for each kind of table: inside a
# measured table, a pair that was not measured, three columns, more. No record is read.
#
# Records are drawn from the model, and deviate from it by
# - the posterior of every measured table: each cell is drawn anew, normal with its posterior variance;
# - random effects of bins of pairs that were not measured. Few pairs have most of the dependence, in census tables too.
#   The weakest quarter of the measured pairs tells its average size, as those were chosen that deviate most. One pair
#   of ``USUAL`` strength is added to them, as noise may hide theirs;
# - random effects of triples, with an eighth of that variance. (On three census tables, triples deviate from their
#   pairs by 1/50 to 1/10 of it.) Nothing that is published says how triples deviate: this ratio is an assumption.
# Half of the effects are cumulative sums along all columns, so that neighbouring values have similar effects.

DRAWN_TABLES, SUBSETS, ASKED = (
    4,
    5,
    25,
)  # simulated tables; sets of columns of each kind; questions about each set, twice
MOST_DRAWN = 100_000  # most different records of a simulated table
BINS, MOST_ASKED_CELLS, LARGEST, UNEVEN = 11, 4_000, 200_000, 1.5
USUAL, OF_THREES, TYPICAL, MOST_EFFECT = 0.2, 1 / 8, (0.05, 0.3), 3.0
KURTOSIS = 5.0  # of Laplace noise: the variance of squared noise, divided by the square of its variance
SMOOTH = 0.5  # share of the effects in which near bins go together
BANDS, CONFIDENCE, QUANTILE = (1, 50, 200, 1_000, 5_000), 0.95, 1.96
FEWEST_IN_BAND, TRIMMED = 100, 0.998
DOUBT = 2.6  # standard error of that quantile: 1.86, and more as answers of one simulated table err together
SAME = 1e-10  # relative size up to which a feature is rounding error
LEAST_SCALE = 0.5  # least correction of a variance, as the few rehearsed tables may all be lucky
STATED_DIGITS = 4  # digits of the corrections that a release states
SAME_SCALE = 2.0  # largest ratio of standard errors by two rehearsals; other seeds give 1.1 to 1.7


def scale_variance(errors: SumErrors, scale: ErrorScale) -> Reals:
    """Return the corrected variances of G errors (G,): V max(exp(features beta), ``LEAST_SCALE``).

    The correction accounts for errors that the noise does not explain. Its coefficients beta were fitted to the errors
    of answers about simulated tables (the rehearsal, see ``rehearse_sums``).

    Args:
        errors: The sums with their variances V and features. Features are clipped to the range of the rehearsal.
        scale: The coefficients beta, then the lowest and the highest value of each feature in the rehearsal.
    """
    beta, *limits = np.array(scale)
    return np.asarray(errors.variance * np.maximum(np.exp(np.clip(errors.features, *limits) @ beta), LEAST_SCALE))


def fit_gamma(features: Reals, amounts: Reals) -> Reals:
    """Fit the regression E[amounts] = exp(features beta), as if the amounts were gamma distributed.

    It predicts squared errors, which are positive and vary in proportion to their mean.

    Args:
        features: The p features of each of n observations (n, p).
        amounts: The positive amounts that were observed (n,).

    Returns:
        beta, the p coefficients of the features (p,).
    """
    beta = np.zeros(features.shape[1])
    beta[0] = np.log(amounts.mean())
    ridge = 1e-3 * len(features) * np.eye(len(beta))
    for _ in range(30):
        score = features.T @ (amounts * np.exp(-features @ beta) - 1)
        beta += np.clip(np.linalg.solve(features.T @ features + ridge, score), -0.5, 0.5)
    return beta


def regress_errors(features: Reals, amounts: Reals, truth: Reals, fewest: int, doubt: float = 0.0) -> Reals:
    """Fit the sizes of simulated errors to features, so that intervals by these sizes cover the truth often enough.

    The regression is E[amounts] = exp(features beta) (``fit_gamma``). Then its constant is raised until 95 % intervals
    cover 95 % of the small, of the middle and of the large true answers. A feature that depends linearly on earlier
    ones gets the coefficient 0.

    Args:
        features: The p features of n errors (n, p); the first one is 1.
        amounts: The squared errors, each divided by its variance V (n,).
        truth: The true answers, by whose size the errors are put into bands (n,).
        fewest: A band with fewer answers is ignored.
        doubt: A band's 95 % quantile of errors is lowered by ``doubt`` / sqrt(its answers) before it raises the
            constant. So chance alone does not raise it.

    Returns:
        beta, the coefficients of the features (p,).
    """
    basis, change = np.linalg.qr(features)  # linearly dependent features would stop the regression
    kept = np.abs(np.diag(change)) > SAME * abs(change[0, 0])
    if not kept.all():
        basis, change = np.linalg.qr(features[:, kept])
    scale = np.sign(change[0, 0]) * len(features) ** 0.5
    basis, change = basis * scale, change / scale
    beta = np.zeros(features.shape[1])
    beta[kept] = np.linalg.solve(change, fit_gamma(basis, amounts))
    z, band = np.sqrt(amounts / np.exp(features @ beta)), np.searchsorted(BANDS, truth, side="right")
    bands = [z[band == one] for one in range(6) if (band == one).sum() >= fewest]
    widest = max((np.quantile(one, CONFIDENCE) - doubt / len(one) ** 0.5 for one in bands), default=0)
    beta[0] += 2 * np.log(max(1.0, widest / QUANTILE))
    return np.asarray(beta)


def measure_again(
    tables: Sequence[NoisyTable], count: Callable[[Clique], Reals], draw: np.random.Generator
) -> list[NoisyTable]:
    """Simulate a release: add new noise to the counts of a simulated source, over the columns of published tables.

    The noise is seeded and known to everybody. That is safe, because the simulated source follows from published
    figures.

    Args:
        tables: The published noisy tables, whose columns, budgets and laws of noise are used again.
        count: Returns the counts of the simulated source over some columns.
        draw: The generator of noise.
    """
    result = []
    for one in tables:
        noise = SeededGaussian(draw) if one.law.concentrated else SeededNoise(draw)
        counts = np.rint(count(one.columns)).astype(np.int64)
        result.append(measure_table(one.columns, counts, one.budget, noise, one.choice, one.law))
    return result


def rehearse_sums(model: Model) -> dict[str, ErrorScale]:
    """Find by simulation how much the variances of errors have to be corrected for what the noise does not explain.

    Simulated sources that fit the release are published with new noise, and random questions about them are answered.
    The known errors of these answers determine the correction.

    Returns:
        The correction for each kind of table, as ``scale_variance`` takes it. The kind, as text, says whether the
        columns of a question were measured together (1), and else how many they are (``Model.table_kind``).
    """
    return {kind: _fit_scale(answers) for kind, answers in _rehearse_answers(model).items()}


def differ_in_scale(model: Model, stated: Mapping[str, ErrorScale]) -> list[str]:
    """Check the corrections of error variances that a release states, by simulating them again on this machine.

    Another machine's arithmetic may draw other tables. So standard errors may differ by a factor of up to 2
    (``SAME_SCALE``), as a geometric mean over the simulated answers.

    Args:
        model: The model that is fitted to the noisy tables.
        stated: The stated correction for each kind of table, as ``rehearse_sums`` gives it.

    Returns:
        A line for each kind of table whose stated correction gives other standard errors.
    """
    answers, wrong = _rehearse_answers(model), []
    if stated.keys() != answers.keys():
        return [f"errors: of kinds {sorted(stated)}, found {sorted(answers)}"]
    for kind, found in answers.items():
        again = _fit_scale(found)
        logs = [np.log(scale_variance(one, stated[kind]) / scale_variance(one, again)) / 2 for one, _ in found]
        ratio = float(np.exp(np.abs(np.concatenate(logs)).mean()))
        wrong += [] if ratio <= SAME_SCALE else [f"errors: of kind {kind} off by a factor of {ratio:.2f}"]
    return wrong


def _rehearse_answers(model: Model) -> dict[str, list[tuple[SumErrors, Reals]]]:
    """Answer random questions about simulated sources, from noisy tables of these sources.

    Returns:
        By kind of table (``Model.table_kind``), pairs of the estimated counts with features of their errors, and the
        true counts.
    """
    draw = fixed_draw("rehearsal")
    found: dict[str, list[tuple[SumErrors, Reals]]] = {}
    for _ in range(DRAWN_TABLES if model.total >= 1 else 0):
        asked = _draw_subsets(model, draw)
        codes = model.draw_records(min(round(model.total), MOST_DRAWN), draw)
        weights = _draw_weights(model, codes, asked, draw)

        def count(clique: Clique, codes: Ints = codes, weights: Reals = weights) -> Reals:
            return sum_cells(codes, weights, clique, model.sizes)

        again = SumEstimator(Model(measure_again(model.tables, count, draw), model.sizes, model.nested))
        for columns in asked:
            at = codes[draw.choice(len(codes), ASKED, p=weights / weights.sum())]
            sums = _draw_questions(columns, model.sizes, at, draw)
            pair = again.expect_errors(sums), sums.sum_table(count(columns))
            found.setdefault(str(model.table_kind(columns)), []).append(pair)
    return dict(sorted(found.items()))


def _fit_scale(answers: Sequence[tuple[SumErrors, Reals]]) -> ErrorScale:
    features = np.concatenate([one.features for one, _ in answers])
    truth = np.concatenate([true for _, true in answers])
    amounts = np.concatenate([(one.sums - true) ** 2 / one.variance for one, true in answers])
    amounts = np.minimum(amounts, np.quantile(amounts, TRIMMED)) + np.finfo(float).tiny
    limits = np.quantile(features, [1 - TRIMMED, TRIMMED], axis=0)
    beta = regress_errors(np.clip(features, *limits), amounts, truth, FEWEST_IN_BAND, DOUBT)
    scale: ErrorScale = np.round([beta, *limits], STATED_DIGITS).tolist()
    return scale


def _draw_weights(model: Model, codes: Ints, subsets: Sequence[Clique], draw: np.random.Generator) -> Reals:
    """Draw how often each simulated record occurs, so that the source deviates from the model as real ones do.

    Args:
        model: The model from which the records were drawn.
        codes: The codes of the n drawn records in all columns (n, columns).
        subsets: The sets of columns that questions will ask about. Each three columns of one set get random effects of
            their own, unless they were measured together.
        draw: The random generator.

    Returns:
        The number of records for each drawn record (n,).
    """
    bins = np.stack([_bin_values(one)[codes[:, i]] for i, one in enumerate(model.singles)], axis=1)
    far = np.zeros(len(codes))
    for clique, mean in model.believed_tables.items():
        drawn = np.maximum(draw.normal(mean, np.sqrt(model.beliefs[clique].variance)), 0.0)
        moved = np.log(np.maximum(drawn, POSSIBLE) / np.maximum(mean, POSSIBLE))
        far += np.clip(moved, -MOST_EFFECT, MOST_EFFECT)[tuple(codes[:, i] for i in clique)]
    pairs: list[Clique] = [one for one in combinations(range(len(model.sizes)), 2) if one not in model.beliefs]
    threes = sorted({three for one in subsets for three in combinations(one, 3) if model.table_kind(three) != 1})
    unmeasured, beyond = unmeasured_strength(model), float(np.clip(pair_deviation(model), *TYPICAL))
    variances = {pair: min(unmeasured * draw.lognormal(-(UNEVEN**2) / 2, UNEVEN), MOST_EFFECT) for pair in pairs}
    variances |= dict.fromkeys(threes, OF_THREES * beyond)
    for clique, variance in variances.items():
        effects: Reals = draw.normal(0, 1, (BINS,) * len(clique))
        if draw.random() < SMOOTH:  # near bins go together, as those of ages or incomes do
            for axis in range(len(clique)):
                effects = np.cumsum(effects, axis=axis)
                effects -= effects.mean(axis=axis, keepdims=True)
            effects /= effects.std()
        far += (effects * variance**0.5)[tuple(bins[:, i] for i in clique)]
    chances = np.exp(np.clip(far, -2 * MOST_EFFECT, 2 * MOST_EFFECT))
    weights = np.asarray(draw.poisson(chances * (model.total / chances.sum())), dtype=np.float64)
    return weights if weights.any() else np.ones_like(weights)  # if there are only a few records, all may be 0


def _bin_values(single: Reals) -> Ints:
    """Put the values of a column into at most ``BINS`` bins of about equally many records.

    A simulated source deviates from the model by random factors: one for each combination of bins of some columns.

    Args:
        single: The estimated number of records with each value (values,).

    Returns:
        The bin of each value (values,).
    """
    middle = (np.cumsum(single) - single / 2) / max(float(single.sum()), POSSIBLE)
    return np.minimum((middle * BINS).astype(np.int64), BINS - 1) if len(single) > BINS else np.arange(len(single))


def pair_deviation(model: Model) -> float:
    """Return how far the measured tables of column pairs lie from a tree model, as a mean squared relative difference.

    The tree joins the most dependent pairs of columns, and predicts all other pairs from these. The result says how
    strongly simulated triples of columns should deviate from a model of pairs. Pairs of the tree itself are left out.
    """
    pairs: dict[Clique, Reals] = {one: table for one, table in model.known_tables.items() if len(one) == 2}
    nested = [one.pair for one in model.nested]
    tree = JointModel(model.singles, pairs, largest=0)
    parts = [_deviation(model, one, tree.marginal_table(one)) for one in pairs if one not in (*tree.edges, *nested)]
    return sum(above for above, _, _ in parts) / max(sum(below for _, below, _ in parts), POSSIBLE)


def unmeasured_strength(model: Model) -> float:
    """Return how far unmeasured pairs of columns probably are from independent, as a mean squared relative difference.

    It is an average over the least dependent quarter of the measured pairs, and one assumed pair with the squared
    difference ``USUAL``. Simulated sources deviate that much in the pairs that were not measured.
    """
    pairs = [one for one in model.known_tables if len(one) == 2 and model.squares.is_measured(one)]
    parts = [_deviation(model, one, model.independent_table(one)) for one in pairs]
    each = sorted((above / below, noise / below**2) for above, below, noise in parts if below > 0)
    known = [(USUAL, 0.0), *each[: ceil(len(each) / 4)]]
    weights = [1 / (variance + USUAL**2) for _, variance in known]
    return max(sum(weight * strength for weight, (strength, _) in zip(weights, known, strict=True)), 0.0) / sum(weights)


def _deviation(model: Model, pair: Clique, expected: Reals) -> tuple[float, float, float]:
    """Measure how far the noisy table y of a pair of columns lies from the table mu that a model expects.

    The distances say how strongly simulated sources should deviate from a model.

    Args:
        model: The model that is fitted to the noisy tables.
        pair: The positions of both columns.
        expected: mu, the expected counts.

    Returns:
        Three sums over the cells, weighted by the precision of y: of (y - mu)^2 less its expected noise; of mu^2; and
        the variance that noise gives to the first sum. The first by the second is the mean squared relative difference.
    """
    noise = model.squares.cell_variance(pair)
    weight = (expected / (noise + expected + (0.1 * expected) ** 2 + POSSIBLE)) ** 2
    square = (model.squares.estimate_table(pair) - expected) ** 2 - noise - expected
    spread = KURTOSIS * noise**2 * (weight**2).sum()
    return float((weight * square).sum()), float((weight * expected**2).sum()), float(spread)


def _draw_subsets(model: Model, draw: np.random.Generator) -> list[Clique]:
    """Draw the sets of columns that random questions about simulated sources ask about.

    These are some measured tables, some pairs that were not measured, and some sets of three and four columns.
    """
    number = len(model.sizes)
    result: set[Clique] = set()
    measured = sorted(one for one in model.measured if len(one) > 1)
    others = [one for one in combinations(range(number), 2) if one not in model.measured]
    for known in (measured, others):
        small = [one for one in known if prod(model.sizes[i] for i in one) <= LARGEST]
        result |= {small[k] for k in draw.permutation(len(small))[:SUBSETS].tolist()}
    for wide in (3, 4):
        for _ in range(4 * SUBSETS if number >= wide else 0):
            one = tuple(sorted(draw.choice(number, wide, replace=False).tolist()))
            if sum(len(each) == wide for each in result) < SUBSETS and prod(model.sizes[i] for i in one) <= LARGEST:
                result.add(one)
    return sorted(result, key=lambda one: (len(one), one))


def _draw_questions(columns: Clique, sizes: Sequence[int], at: Ints, draw: np.random.Generator) -> CellSums:
    """Draw questions about a table: counts of n given cells, and counts of up to n random ranges of its columns.

    Ranges with too many cells (``MOST_ASKED_CELLS``) are left out.

    Args:
        columns: The positions of the table's columns.
        sizes: The number of values of every column.
        at: The codes of n simulated records in all columns (n, all columns); the cell of each one is asked for.
        draw: The random generator.
    """
    cells = [np.array([np.ravel_multi_index(tuple(row[list(columns)]), [sizes[i] for i in columns])]) for row in at]
    for _ in at:
        ends = [np.sort(draw.integers(0, sizes[i], 2)) for i in columns]
        grid = np.ix_(*(np.arange(low, high + 1) for low, high in ends))
        if prod(len(one.reshape(-1)) for one in grid) <= MOST_ASKED_CELLS:
            cells.append(np.ravel_multi_index(grid, [sizes[i] for i in columns]).reshape(-1))
    group = np.repeat(np.arange(len(cells)), [len(one) for one in cells])
    return CellSums(columns, np.concatenate(cells), group, np.ones(len(group)), len(cells))
