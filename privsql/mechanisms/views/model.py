"""Fit a synthetic population to noisy counts of item sets, and estimate how many records have which items.

A pattern says for each of m items whether a record has it. A view is a noisy table of the patterns of a few items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.dp.noisy_tables import (
    POSSIBLE,
    fit_moments,
    nearest_nonnegative,
    question_coefficients,
    rake_table,
    restore_table,
    transform_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.dp.noisy_tables import Clique, Ints, LeastSquares, Reals

# Patterns -------------------------------------------------------------------------------------------------------------
# A pattern says which of m measured items a record has. A table over all patterns has m axes of two values: 0 without
# the item and 1 with it. The coefficients of such a table in the basis of ``LeastSquares`` are its parities. The parity
# of a set of items is the number of records with an even number of these items, less that of the others, over
# sqrt(2^m).


def count_items(items: int) -> Ints:
    """Return the number of items in each of the 2^m patterns of m items.

    The result has m axes of length 2; index 1 on an axis means that the pattern has that item.

    Args:
        items: m, the number of items.

    >>> count_items(2).tolist()
    [[0, 1], [1, 2]]
    """
    result = np.zeros((), dtype=np.int64)
    for _ in range(items):
        result = np.stack((result, result + 1))
    return result


def sum_supersets(table: Reals) -> Reals:
    """Return for every set of items the sum of ``table`` over all patterns that have these items and perhaps others.

    Table and result have one axis of length 2 for each item.
    """
    for axis in range(table.ndim):
        table = np.flip(np.cumsum(np.flip(table, axis), axis), axis)
    return table


def sum_subsets(table: Reals) -> Reals:
    """Return for every set of items the sum of ``table`` over all patterns that have none but these items.

    Table and result have one axis of length 2 for each item.
    """
    for axis in range(table.ndim):
        table = np.cumsum(table, axis)
    return table


# Population -----------------------------------------------------------------------------------------------------------
# A table of all patterns without negative cells that fits the noisy tables. Only published tables are read.
#
# 1. Take the table of largest entropy whose views are those of least squares, moved to the nearest ones without
#    negative cells. It is found by iterative proportional fitting from a table of equal cells.
# 2. If all patterns were counted, move each cell mu of that table towards its own count y by V/(V + s^2), with
#    V = a mu + b mu^2. This adds what the counts say and the views do not. (a, b) are the moments of (y - mu)^2 - s^2
#    over all cells, by non-negative least squares. Then fit the result to the views again, and at last to the
#    numbers of records with each item, because removing negative cells adds records to rare items.

ROUNDS = 4  # rounds of proportional fitting to views
LAST_ROUNDS = 2  # rounds of proportional fitting to single items
LEAST = 0.01  # least share of a cell of the first table that stays, whatever its count says
OVER = 0.1  # weights of cells assume V = mu + OVER mu^2


def fit_population(squares: LeastSquares, items: int) -> Reals:
    """Fit a synthetic population to noisy tables of items: the number of records with each pattern, never negative.

    A pattern says for each of m items whether a record has it.

    Args:
        squares: The least-squares estimates from the noisy tables.
        items: m, the number of measured items, whose columns come first.

    Returns:
        The numbers of records, with m axes of length 2.
    """
    total = max(squares.total, 0.0)
    everything = tuple(range(items))
    views = [one.columns for one in squares.tables if 0 < len(one.columns) < items and max(one.columns) < items]
    if not views:
        return nearest_nonnegative(squares.estimate_table(everything), total)
    margins = [(view, _possible_table(squares, view)) for view in maximal_sets(views)]
    result = rake_table(np.full((2,) * items, total / (1 << items)), margins, ROUNDS)
    for counted in (one for one in squares.tables if one.columns == everything):
        counts, noise = counted.counts.astype(np.float64), counted.variance
        moved = counts
        if noise:  # move each cell from the first table towards its count
            weight = 1 / (noise + result + OVER * result**2)
            first, second = (weight * result).reshape(-1), (weight * result**2).reshape(-1)
            a, b = fit_moments(first, second, (weight * ((counts - result) ** 2 - noise)).reshape(-1))
            variance = a * result + b * result**2
            moved = result + variance / (variance + noise) * (counts - result)
        result = rake_table(np.maximum(moved, LEAST * result), margins, ROUNDS)
    return rake_table(result, [((i,), _possible_table(squares, (i,))) for i in everything], LAST_ROUNDS)


def maximal_sets(sets: Sequence[Clique]) -> list[Clique]:
    """Return those of the given sets that are not a proper subset of another one, each once."""
    return [one for one in dict.fromkeys(sets) if not any(set(one) < set(other) for other in sets)]


def _possible_table(squares: LeastSquares, chosen: Clique) -> Reals:
    """Return the table of counts over some columns that a population is fitted to, without negative cells.

    It is the nearest one to the least-squares estimate, which noise can make negative.
    """
    return nearest_nonnegative(squares.estimate_table(chosen), max(squares.total, 0.0))


# Model ----------------------------------------------------------------------------------------------------------------
# Estimates that lean on the synthetic population, and their intervals.
#
# An estimate takes each coefficient between the population's and that of least squares, with weight r = V_k/(V_k + v)
# for the latter. V_k is how much coefficients of k items vary beyond their noise of variance v. So a coefficient that
# was measured well stays, and one that was not is the population's. Every answer is a sum over one table, so answers
# add up. That ends where the limit applies: no estimate lies further than ``LIMIT`` standard errors from that of least
# squares. What many answers share may be far off in a single one that differs (limited translation: Efron & Morris,
# JASA 1972).
#
# If the noisy tables determine the answer, the interval is that of least squares, and rests on no model. The standard
# error is that of the estimate. Let s^2 be the variance of least squares, and c the part of it that the estimate keeps.
# Its squared distance from least squares is expected to be s^2 - c; a larger one is added to c.
#
# A question over items A that no table holds together is bounded by questions over one view's items. For each pattern
# of the view, its weight lies between the least and the greatest weight when the items outside of the view are left
# open. Both bounds have exact errors. The best bounds over all views hold together at the stated confidence; each gets
# an equal part of the doubt (Bonferroni). The estimate takes coefficients that no table holds from the population.
#
# How far these may be off is learnt from sets of three and four items that tables do hold. Let mu be the mean of an
# item, coded 1 and -1, and sigma = sqrt(1 - mu^2). The coefficients of k items deviate from those of the table of
# largest entropy with the same pairs by tau times scale = n prod sigma / 2^(k/2), where
#
#     tau^2 = sum w ((z - expected)^2 - v) / sum w scale^2,  w = 1/(v + (scale / 10)^2)^2.
#
# The population knows all tables, so it is off by less. Larger sets are taken to deviate as sets of four do.

LIMIT = 1.5  # most standard errors between an estimate and that of least squares
SAMPLED, UNTOLD_ORDERS, PAIR_ROUNDS = 200, (3, 4), 10
TINY = 1e-300


Counted = Mapping[
    int, tuple[float, float]
]  # by axis of a question, the noisy number of records with that item, and its variance
NOTHING: Counted = {}


@dataclass(frozen=True)
class ModelAnswer:
    """An estimated number of records.

    Attributes:
        estimate: The estimate.
        error: Its standard error; None if it is not known.
        low: The lower end of its interval.
        high: The upper end of its interval.
    """

    estimate: float
    error: float | None
    low: float
    high: float


@dataclass(frozen=True)
class ViewModel:
    """A model that estimates how many records have which patterns of items.

    A pattern says for each item whether a record has it. Least squares combine the noisy tables into unbiased
    estimates. An estimate that leans on the synthetic population lies between that of least squares and that of this
    population.

    Attributes:
        squares: The least-squares estimates from the noisy tables.
        population: The synthetic population: the number of records with each pattern (see ``fit_population``).
    """

    squares: LeastSquares
    population: Reals

    def answer(
        self, chosen: Clique, question: Reals, doubt: float, *, leaning: bool = True, counted: Counted = NOTHING
    ) -> ModelAnswer:
        """Estimate how many records have certain items, or another weighted sum over patterns, with an interval.

        A pattern says for each of some items whether a record has it. The synthetic population is a number of records
        with each pattern, none negative, which was fitted to the noisy tables.

        Args:
            chosen: The columns of the items.
            question: The weight of each pattern of these items, such as 1 for the patterns that meet a condition.
            doubt: The probability with which the truth may lie outside of the interval.
            leaning: Whether the estimate is drawn towards the synthetic population. If not, it is that of least
                squares, and it has no standard error if the tables do not determine it.
            counted: For some axes of ``question``, another noisy count of records with that item, and its variance.
        """
        from scipy.special import ndtri

        value, precision = self.squares.coefficients(chosen)
        wanted, is_told = question_coefficients(question), precision > 0
        estimate, deviation = float((wanted * value).sum()), float(np.sqrt(self.squares.sum_variance(chosen, question)))
        error, is_known = (deviation, True) if np.isfinite(deviation) else (None, False)
        shift, kept = self._learn_from_counts(chosen, question, counted) if is_known else (0.0, 1.0)
        if is_known:
            low, high = self._noise_interval(chosen, question, doubt / 2, counted)
        else:
            low, high = self.bound_between(chosen, question, question, doubt / (2 if leaning else 1), counted)
        if leaning:
            spectrum, part = self._coefficients_among(chosen)
            variance = np.divide(wanted**2, precision, out=np.zeros_like(wanted), where=is_told)
            far = float((wanted * (spectrum - value))[is_told].sum())
            far, error = lean_estimate(far, float(variance.sum()), float((variance * part).sum()))
            estimate += far + float((wanted * spectrum)[~is_told].sum())
            if not is_known:
                error = float(np.hypot(error, np.linalg.norm((wanted * self._untold_deviations(chosen))[~is_told])))
                reach = error * float(-ndtri(doubt / 4))
                low, high = max(low, min(estimate - reach, high)), min(high, max(estimate + reach, low))
        if is_known:
            estimate, error = estimate + shift, None if error is None else error * kept
        return ModelAnswer(estimate if is_known else min(max(estimate, low), high), error, low, high)

    def bound_between(
        self, chosen: Sequence[int | None], least: Reals, most: Reals, doubt: float, counted: Counted = NOTHING
    ) -> tuple[float, float]:
        """Return an interval for a weighted sum over patterns whose weights are known only to lie between two tables.

        A pattern says for each item whether a record has it. The sum is the number of records that meet a condition if
        a weight is 1 where a pattern meets it. A weight lies between 0 and 1 where that depends on something else.

        Args:
            chosen: For each axis of the weights (an item, or lengths), its column in the noisy tables; None if they
                lack it.
            least: The least weight of each pattern.
            most: The greatest weight of each pattern.
            doubt: The probability with which the truth may lie outside of the interval.
            counted: For some axes, by number, a noisy count of the records with that item, and its variance. Such
                counts are published beside the noisy tables.
        """
        held = [tuple(axis for axis, i in enumerate(chosen) if i in one.columns) for one in self.squares.tables]
        parts, low, high = maximal_sets(held), 0.0, np.inf
        share, every = doubt / (2 * (len(parts) + len(counted))), range(len(chosen))
        for part in parts:
            axes, columns = tuple(axis for axis in every if axis not in part), [chosen[axis] for axis in part]
            places = tuple(i for i in columns if i is not None)
            low = max(low, self._noise_interval(places, least.min(axis=axes), share)[0])
            high = min(high, self._noise_interval(places, most.max(axis=axes), share)[1])
        for single, count in counted.items():
            axes = tuple(axis for axis in every if axis != single)
            low = max(low, self._count_interval(least.min(axis=axes), count, share)[0])
            high = min(high, self._count_interval(most.max(axis=axes), count, share)[1])
        return low, max(low, high)

    def answer_by_count(self, question: Reals, count: tuple[float, float], doubt: float) -> ModelAnswer:
        """Estimate a question about an item that no noisy table has, from its noisy count and that of all records.

        Args:
            question: The weights of records without the item and of records with it.
            count: The item's noisy count, and its variance.
            doubt: The probability with which the truth may lie outside of the interval.
        """
        without, having = question.tolist()
        estimate = without * self.squares.total + (having - without) * count[0]
        variance = without**2 * self.squares.total_variance + (having - without) ** 2 * count[1]
        return ModelAnswer(estimate, float(np.sqrt(variance)), *self._count_interval(question, count, doubt / 2))

    def _count_interval(self, question: Reals, count: tuple[float, float], doubt: float) -> tuple[float, float]:
        """Return an interval for a question about an item without a noisy table, from two noisy counts.

        They are the item's, and that of all records.

        Args:
            question: The weights of records without the item and of records with it.
            count: The item's noisy count, and its variance.
            doubt: The probability with which the truth may lie beyond each end.
        """
        without, having = question.tolist()
        estimate = without * self.squares.total + (having - without) * count[0]
        variance = without**2 * self.squares.total_variance + (having - without) ** 2 * count[1]
        far = half_width(float(np.sqrt(variance)), 1.0, doubt)
        return max(estimate - far, 0.0), max(estimate + far, 0.0)

    def _noise_interval(
        self, chosen: Clique, question: Reals, doubt: float, counted: Counted = NOTHING
    ) -> tuple[float, float]:
        """Return an interval for a weighted sum over the patterns of some items, by least squares.

        A pattern says for each item whether a record has it. The interval allows for noise, and for nothing else.

        Args:
            chosen: The columns of the items.
            question: The weight of each pattern of these items, such as 1 for the patterns that meet a condition.
            doubt: The probability with which the truth may lie beyond each end.
            counted: For some axes of ``question``, another noisy count of records with that item, and its variance.
        """
        error = float(np.sqrt(self.squares.sum_variance(chosen, question)))
        estimate = float((self.squares.estimate_table(chosen) * question).sum())
        shift, kept = self._learn_from_counts(chosen, question, counted)
        far = half_width(error * kept, self.squares.largest_step(chosen, question), doubt)
        return max(estimate + shift - far, 0.0), max(estimate + shift + far, 0.0)

    def _learn_from_counts(self, chosen: Clique, question: Reals, counted: Counted) -> tuple[float, float]:
        """Return how noisy counts of single items improve a least-squares estimate from the noisy tables.

        The estimate is a weighted sum over the patterns of some items: which of them a record has. The noise of the
        counts is independent of that of the tables, so this is the best linear update (Kalman's).

        Args:
            chosen: The columns of the items.
            question: The weight of each pattern of these items.
            counted: For some axes of ``question``, a noisy count of records with that item, and its variance.

        Returns:
            The change of the estimate, and the factor by which its standard error shrinks.
        """
        error = self.squares.sum_variance(chosen, question)
        if not counted or not error:
            return 0.0, 1.0
        value, precision = self.squares.coefficients(chosen)
        variance = np.divide(1.0, precision, out=np.zeros_like(precision), where=precision > 0)
        grid = np.indices(question.shape)
        items = np.array([question_coefficients(grid[axis].astype(np.float64)).reshape(-1) for axis in counted])
        with_question = items @ (question_coefficients(question) * variance).reshape(-1)
        count, noise = np.array(list(counted.values())).T
        gain = np.linalg.solve((items * variance.reshape(-1)) @ items.T + np.diag(noise), with_question)
        left = max(1 - float(gain @ with_question) / error, 0.0)
        return float(gain @ (count - items @ value.reshape(-1))), float(np.sqrt(left))

    @cached_property
    def spectrum(self) -> tuple[Reals, Reals]:
        """Return for every set of items an estimate of its coefficient, by which answers are computed, with its noise.

        The coefficient of a set is its parity: the number of records with an even number of its items, less that of the
        others, over sqrt(2^m) for m items. Least squares measure it as z, with noise of variance v. The estimate lies
        between z and the coefficient of the synthetic population, so it keeps only a share of v. If no table tells z,
        the estimate is the population's coefficient. The share is 1 - (z - estimate)^2/v, averaged over all sets of as
        many items. This holds for projections and for the best shrinkage, where the squared error and the squared
        change add up to the noise variance.

        Returns:
            The estimated coefficients and these shares, each with one axis of length 2 for each item.
        """
        items = self.population.ndim
        (value, precision), model = self.squares.coefficients(tuple(range(items))), transform_table(self.population)
        order, is_told = count_items(items), precision > 0
        weights = precision[is_told] ** 2

        def weighted_mean(parts: Reals) -> Reals:
            sums, of_all = (np.bincount(order[is_told], one, items + 1) for one in (parts * weights, weights))
            return np.asarray(np.divide(sums, of_all, out=np.zeros(items + 1), where=of_all > 0))

        variance, far = 1 / precision[is_told], (value - model)[is_told] ** 2
        ratio = np.maximum(weighted_mean(far - variance), 0.0)[order] * precision
        part = ratio / (ratio + 1)
        left = weighted_mean((1 - part[is_told]) ** 2 * far) / np.maximum(weighted_mean(variance), TINY)
        return model + part * (value - model), np.clip(1 - left, 0.0, 1.0)[order]

    def _coefficients_among(self, chosen: Clique) -> tuple[Reals, Reals]:
        """Return for every set of the chosen items an estimate of its coefficient, and the share of noise left.

        The coefficient of a set is its parity in the table of the chosen items' patterns (see the comment above
        ``count_items``). ``spectrum`` has these figures for all items.

        Args:
            chosen: The columns of the items.

        Returns:
            The coefficients, and the shares of their noise variance that they keep, with one axis of length 2 for each
            item.
        """
        items = self.population.ndim
        block = tuple(slice(None) if i in chosen else 0 for i in range(items))
        return self.spectrum[0][block] * 2.0 ** ((items - len(chosen)) / 2), self.spectrum[1][block]

    def superset_counts(self, *, leaning: bool = True) -> tuple[Reals, Reals, Reals]:
        """Estimate for every set of items how many records have all of them.

        Args:
            leaning: Whether the estimates are drawn towards the synthetic population; else they are those of least
                squares.

        Returns:
            The estimates, those of least squares, and the variances of the latter, each with one axis of length 2 for
            each item. A variance is infinite if no table has all items of the set.
        """
        everything = tuple(range(self.population.ndim))
        precision = self.squares.coefficients(everything)[1] / self.population.size
        counted = sum_supersets(self.squares.estimate_table(everything))
        variance = np.divide(1.0, precision, out=np.full_like(precision, np.inf), where=precision > 0)
        variance = sum_subsets(variance) * 0.25 ** count_items(self.population.ndim)
        if not leaning:
            return counted, counted, variance
        far = sum_supersets(restore_table(self.spectrum[0])) - counted
        return counted + limit_distance(far, np.sqrt(variance)), counted, variance

    # Coefficients that no table holds ---

    @cached_property
    def strengths(self) -> tuple[float, ...]:
        """Return how far counts of three and of four items deviate from what the counts of their pairs make likely.

        These two numbers tell how wrong an estimate may be if no noisy table holds all of its items. They are learnt
        from item sets that some table does hold. What is compared is the parity of a set: the number of records with an
        even number of its items, less that of the others. The deviation is given as a share of its typical size
        (``_item_scales``).
        """
        result = [0.0]
        for order in UNTOLD_ORDERS:
            told = {one for table in self.squares.tables for one in combinations(table.columns, order)}
            sets = sorted(told)[:: -(-len(told) // SAMPLED) or 1]
            if not sets:
                result.append(result[-1])
                continue
            last = (1,) * order
            known = [[one[last] for one in self.squares.coefficients(each)] for each in sets]
            value, precision = np.array(known).T
            expected = np.array([transform_table(self._expect_table(one))[last] for one in sets])
            scale = np.array([self._item_scales(one)[last] for one in sets])
            weight = 1 / (1 / precision + (scale / 10) ** 2) ** 2
            square = (weight * ((value - expected) ** 2 - 1 / precision)).sum() / (weight * scale**2).sum()
            result.append(min(max(float(square), 0.0), 1.0) ** 0.5)
        return tuple(result[1:])

    def _expect_table(self, chosen: Clique) -> Reals:
        """Return the table of patterns of some items that is the most likely one if only their pairs are known.

        It has the largest entropy of all tables that agree with the least-squares tables of all pairs of the items.
        """
        pairs = combinations(range(len(chosen)), 2)
        tables = {axes: _possible_table(self.squares, (chosen[axes[0]], chosen[axes[1]])) for axes in pairs}
        margins = [(axes, table + POSSIBLE) for axes, table in tables.items()]
        start = np.full((2,) * len(chosen), max(self.squares.total, 1.0) / 2 ** len(chosen))
        return rake_table(start, margins, PAIR_ROUNDS)

    def _item_scales(self, chosen: Clique) -> Reals:
        """Return a typical size of the coefficient of every set of k chosen items, to judge deviations by it.

        The coefficient of a set is its parity: the number of records with an even number of its items, less that of the
        others, over sqrt(2^k). The typical size is n prod sigma / 2^(k/2), where n is the number of records. The
        product is over the items of the set. sigma is the standard deviation of an item that is coded 1 (a record has
        it) and -1.

        Args:
            chosen: The columns of the items.

        Returns:
            The sizes, with one axis of length 2 for each item.
        """
        total = max(self.squares.total, 1.0)
        result = np.array(total / 2 ** (len(chosen) / 2))
        for i in chosen:
            without, with_it = self.squares.estimate_table((i,))
            mean = np.clip((without - with_it) / total, -1, 1)
            result = np.multiply.outer(result, [1.0, max(1 - mean**2, 1 / total) ** 0.5])
        return result

    def _untold_deviations(self, chosen: Clique) -> Reals:
        """Return for each set of the chosen items how wrong the population may be if no noisy table holds the set.

        It is a standard deviation of the synthetic population's coefficient of the set (its parity): the relative
        deviation in ``strengths`` times the typical size in ``_item_scales``. It matters only for sets of three items
        or more, because the tables hold all pairs.
        """
        place = np.clip(count_items(len(chosen)) - UNTOLD_ORDERS[0], 0, len(self.strengths) - 1)
        return np.array(self.strengths)[place] * self._item_scales(chosen)


def half_width(deviation: float, step: float, doubt: float) -> float:
    """Return how far the truth may lie above an estimate, or below it, except with probability ``doubt``.

    The noise of an estimate is a sum of draws of Laplace noise. The quantile of a single draw is -ln(2 doubt)/sqrt(2)
    standard deviations, and that of a sum of many is the normal one. The larger one is used. Noise is in whole numbers,
    so estimates take only values at a distance of ``step``; half of it is added.

    Args:
        deviation: The standard deviation of the estimate; if it is 0, the result is 0.
        step: The distance between neighbouring values of the estimate.
        doubt: The probability.
    """
    from scipy.special import ndtri

    quantile = max(float(-ndtri(doubt)), -float(np.log(2 * doubt)) / np.sqrt(2))
    return float(deviation * quantile + step / 2) if deviation else 0.0


def limit_distance(far: Reals | float, deviation: Reals | float) -> Reals:
    """Limit how far a least-squares estimate is moved towards the synthetic population: to 1.5 standard deviations.

    So the synthetic population can't make an estimate much worse than what was measured (``LIMIT``).

    Args:
        far: The distance without a limit, with its sign.
        deviation: The standard deviation of the estimate of least squares.
    """
    return np.clip(far, -LIMIT * np.asarray(deviation), LIMIT * np.asarray(deviation))


def lean_estimate(far: float, variance: float, remaining: float) -> tuple[float, float]:
    """Return (by how much a least-squares estimate is moved towards the synthetic population, the standard error then).

    ``limit_distance`` limits the distance. If the limit applies, the squared standard error is ``variance`` plus the
    square of the limited distance.

    Args:
        far: The distance without a limit, with its sign.
        variance: The variance of the estimate of least squares.
        remaining: The part of this variance that the estimate still has after it was moved.
    """
    most = float(limit_distance(far, np.sqrt(variance)))
    if most != far:
        return most, float(np.hypot(np.sqrt(variance), most))
    return far, float(np.sqrt(remaining + max(far**2 - (variance - remaining), 0.0)))
