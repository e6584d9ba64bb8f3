"""Fit a population to noisy views: patterns of items, least squares over parities, intervals of answers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privsql.mechanisms.dp.noisy_tables import POSSIBLE, fit_moments, nearest_nonnegative, rake_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.dp.noisy_tables import Ints, NoisyTable, Reals

# Patterns -------------------------------------------------------------------------------------------------------------
# Patterns: which of m measured items a record has, as a number, and sums over all 2^m of them.
#
# The item at place i is present in pattern x if bit m - 1 - i of x is 1, so that patterns count the cells of a table of
# m axes (0: absent, 1: present) in row-major order. A set of places is written as the pattern in which just these are
# present.

Codes = NDArray[np.int16]
LARGEST_CODE = 15


def pattern_of(places: Sequence[int], items: int) -> int:
    """The pattern in which just the items at ``places`` are present.

    >>> [pattern_of([0], 3), pattern_of([1, 2], 3)]
    [4, 3]
    """
    return sum(1 << (items - 1 - place) for place in places)


def pattern_places(pattern: int, items: int) -> tuple[int, ...]:
    """The places of the items that a pattern has, ascending."""
    return tuple(place for place in range(items) if pattern >> (items - 1 - place) & 1)


def patterns_among(chosen: Sequence[int], items: int) -> Ints:
    """For every pattern of the items at ``chosen`` (2^k,) the pattern of all in which no other item is present."""
    result = np.zeros(1, dtype=np.int64)
    for place in chosen:
        result = np.stack((result, result | 1 << (items - 1 - place)), axis=1).reshape(-1)
    return result


def restrict_patterns(patterns: Ints, chosen: Sequence[int], items: int) -> Ints:
    """Return what patterns of all items are as patterns of those at ``chosen`` alone."""
    result = np.zeros_like(patterns)
    for place in chosen:
        result = result << 1 | patterns >> (items - 1 - place) & 1
    return result


def view_cells(chosen: Sequence[int], items: int) -> Codes:
    """``restrict_patterns`` of all patterns, in order (2^m,), in few bytes; ``ValueError`` for more than 15 items."""
    if len(chosen) > LARGEST_CODE:
        raise ValueError(f"a table of {len(chosen)} items is too large to be fitted to")
    result = np.zeros(1, dtype=np.int16)
    for place in range(items):
        own = 2 * result if place in chosen else result
        result = np.stack((own, own + 1 if place in chosen else own), axis=1).reshape(-1)
    return result


def pattern_sizes(items: int) -> Ints:
    """Number of items in every pattern (2^m,)."""
    result = np.zeros(1, dtype=np.int64)
    for _ in range(items):
        result = np.concatenate((result, result + 1))
    return result


def walsh_transform(table: Reals) -> Reals:
    """The transform of Walsh and Hadamard, not normalised: of parity q the sum over x of (-1)^|x and q| table[x].

    Applied twice it gives the table 2^m times.

    >>> walsh_transform(np.array([5.0, 2.0])).tolist()
    [7.0, 3.0]
    """
    one, other, width = table.astype(np.float64), np.empty(len(table)), 1
    while width < len(table):
        halves, ends = one.reshape(-1, 2, width), other.reshape(-1, 2, width)
        np.add(halves[:, 0], halves[:, 1], out=ends[:, 0])
        np.subtract(halves[:, 0], halves[:, 1], out=ends[:, 1])
        one, other, width = other, one, 2 * width
    return one


def sum_supersets(table: Reals) -> Reals:
    """Of every set of places the sum over the patterns that have all of them."""
    return _add_halves(table, to=0)


def sum_subsets(table: Reals) -> Reals:
    """Of every set of places the sum over its subsets."""
    return _add_halves(table, to=1)


def _add_halves(table: Reals, *, to: int) -> Reals:
    """Place by place, what patterns without it (0) and with it (1) hold: to one of these the other is added."""
    result, width = table.astype(np.float64), 1
    while width < len(table):
        halves = result.reshape(-1, 2, width)
        halves[:, to] += halves[:, 1 - to]
        width *= 2
    return result


# Squares --------------------------------------------------------------------------------------------------------------
# Least squares over tables of patterns, in the space of parities.
#
# Of a table of k items with noise of variance s^2 in each of its 2^k cells the parity of q, a set of these items, is
# sum over x of (-1)^|x and q| y_x: it has variance 2^k s^2, and the parities of a table have uncorrelated errors. So
# every parity follows from the tables that hold all of q, and the least-squares estimate is their average with weights
# 1/variance; v_q = 1/(sum of these). A question is a table f over the patterns of k items, and its answer
#
#     sum over q of F_q z_q / 2^k,  with variance  sum over q of (F_q / 2^k)^2 v_q,
#
# F the transform of f: without bias and exact, whatever is asked, where all q with F_q != 0 were told.

ZERO = 1e-9  # of a coefficient of a question, relative to the largest: doubles


@dataclass(frozen=True)
class NoiseError:
    """The error of an answer by noise: its standard deviation, and the largest weight of one count.

    Both are infinite where a parity that is needed was not told.
    """

    deviation: float
    step: float


UNTOLD = NoiseError(np.inf, np.inf)


@dataclass(frozen=True)
class ParitySquares:
    """``value``, ``precision`` (2^m,): z_q and 1/v_q of every parity; 0 where no table told it."""

    items: int
    value: Reals
    precision: Reals
    tables: tuple[NoisyTable, ...]

    @property
    def variance(self) -> Reals:
        """v_q (2^m,): infinite where no table told it."""
        result: Reals = np.full(len(self.precision), np.inf)
        return np.divide(1.0, self.precision, out=result, where=self.precision > 0)

    @property
    def total(self) -> float:
        """The estimated number of records."""
        return float(self.value[0])

    def answer_error(self, chosen: Sequence[int], question: Reals) -> NoiseError:
        """Of the answer to a question over the patterns of the items at ``chosen``."""
        wanted, at = walsh_transform(question) / len(question), patterns_among(chosen, self.items)
        wanted[np.abs(wanted) <= ZERO * max(np.abs(wanted).max(), 1e-300)] = 0
        precision = self.precision[at]
        if (wanted != 0)[precision == 0].any():
            return UNTOLD
        weight = np.divide(wanted, precision, out=np.zeros_like(wanted), where=precision > 0)
        step = 0.0
        for one in self.tables:
            inner = patterns_among([at for at, place in enumerate(chosen) if place in one.columns], len(chosen))
            step = max(step, float(np.abs(walsh_transform(weight[inner])).max()) * precision_of(one))
        return NoiseError(float(np.sqrt((weight * wanted).sum())), step)

    def superset_counts(self) -> tuple[Reals, Reals]:
        """Of every set of places the number of records that have all of them, and its variance (2^m,) each."""
        result = sum_supersets(walsh_transform(self.value) / len(self.value))
        return result, sum_subsets(self.variance) * 0.25 ** pattern_sizes(self.items)


def precision_of(one: NoisyTable) -> float:
    """1/variance of every parity of a table."""
    return 1 / (one.variance * one.counts.size)


def fit_squares(tables: Sequence[NoisyTable], items: int) -> ParitySquares:
    """The least-squares estimate of all parities that some table holds."""
    sums, known = np.zeros(1 << items), np.zeros(1 << items)
    for one in tables:
        at, precision = patterns_among(one.columns, items), precision_of(one)
        sums[at] += precision * walsh_transform(one.counts.reshape(-1).astype(np.float64))
        known[at] += precision
    value = np.divide(sums, known, out=np.zeros_like(sums), where=known > 0)
    return ParitySquares(items, value, known, tuple(tables))


# Bounds ---------------------------------------------------------------------------------------------------------------
# Intervals of answers: from the exact error of least squares, or bounds where no table tells all that is asked.
#
# A question over the items A that no table holds together lies, pattern by pattern, between what it is at least and at
# most when the items outside of a view are left open; both are questions over the view's own items, with exact errors.
# The best of these bounds over all views hold together at the stated confidence, each at an equal part of what is left
# of 1 (Bonferroni). Of an item that was not chosen it is known that at most ``beyond`` records have it.

LIMIT = 1.5  # standard errors


def normal_quantile(confidence: float) -> float:
    """The quantile of the normal distribution that is exceeded on either side with what is left of 1.

    >>> round(normal_quantile(0.95), 2)
    1.96
    """
    return -float(ndtri((1 - confidence) / 2))


def half_width(error: NoiseError, doubt: float) -> float:
    """How far an answer may lie from the truth on one side, but for a chance of ``doubt``.

    A sum of Laplace noise lies between one count, whose quantile is -ln(2 doubt)/sqrt(2) standard deviations, and very
    many, whose quantile is the normal one: the larger of both, and half a step of the grid on which sums of few whole
    numbers lie.
    """
    if not error.deviation:
        return 0.0
    quantile = max(-float(ndtri(doubt)), -float(np.log(2 * doubt)) / np.sqrt(2))
    return float(error.deviation * quantile + error.step / 2)


def direct_interval(
    squares: ParitySquares, chosen: Sequence[int], question: Reals, doubt: float
) -> tuple[float, float, float] | None:
    """Standard error, low and high of a question that the tables tell; None for any other.

    ``doubt``: the chance that the truth lies beyond low, and that it lies beyond high.
    """
    error = squares.answer_error(chosen, question)
    if not np.isfinite(error.deviation):
        return None
    result, far = answer_from_spectrum(squares.value, squares.items, chosen, question), half_width(error, doubt)
    return error.deviation, max(result - far, 0.0), max(result + far, 0.0)


def answer_from_spectrum(spectrum: Reals, items: int, chosen: Sequence[int], question: Reals) -> float:
    """The answer to a question over the patterns of the items at ``chosen`` from a spectrum of parities (2^m,)."""
    return float(spectrum[patterns_among(chosen, items)] @ walsh_transform(question)) / len(question)


def limit_distance(far: Reals | float, deviation: Reals | float) -> Reals:
    """How far an estimate may lie from that of least squares, of which this is the standard ``deviation``.

    An estimate that leans on what many answers share may be far off in a single one that differs: no estimate is moved
    by more than ``LIMIT`` of what noise makes of it (limited translation: Efron & Morris, JASA 1972).
    """
    return np.clip(far, -LIMIT * np.asarray(deviation), LIMIT * np.asarray(deviation))


def lean_estimate(
    squares: ParitySquares, part: Reals, chosen: Sequence[int], question: Reals, far: float
) -> tuple[float, float]:
    """How far an estimate that would lie ``far`` from that of least squares does lie from it, and its standard error.

    With s^2 = sum of F_q^2 v_q / 4^k, and c the same with the ``part`` of v_q that estimates keep (``model.spectrum``),
    far^2 is expected to be s^2 - c and the estimate's variance c; what is beyond that is added. Where it has to be
    ``limit_distance`` nothing but s and the limit is known of its error.
    """
    wanted, at = walsh_transform(question) / len(question), patterns_among(chosen, squares.items)
    variance = np.divide(wanted**2, squares.precision[at], out=np.zeros_like(wanted), where=squares.precision[at] > 0)
    whole, kept_variance = float(variance.sum()), float((variance * part[at]).sum())
    most = float(limit_distance(far, np.sqrt(whole)))
    if most != far:
        return most, float(np.hypot(np.sqrt(whole), most))
    return far, float(np.sqrt(kept_variance + max(far**2 - (whole - kept_variance), 0.0)))


def bound_between(
    squares: ParitySquares, chosen: Sequence[int], least: Reals, most: Reals, doubt: float
) -> tuple[float, float]:
    """Bounds of a question that lies between two others, pattern by pattern, but for a chance of ``doubt``."""
    parts = dict.fromkeys(tuple(place for place in chosen if place in one.columns) for one in squares.tables)
    maximal = [one for one in parts if not any(set(one) < set(other) for other in parts)]
    low, high = 0.0, np.inf
    for part in maximal:
        axes = tuple(axis for axis, place in enumerate(chosen) if place not in part)
        shape = (2,) * len(chosen)
        for question, lower in (
            (least.reshape(shape).min(axis=axes), True),
            (most.reshape(shape).max(axis=axes), False),
        ):
            result = direct_interval(squares, part, question.reshape(-1), doubt / (2 * len(maximal)))
            if result is not None and lower:
                low = max(low, result[1])
            elif result is not None:
                high = min(high, result[2])
    return low, max(low, high)


# Untold parities ------------------------------------------------------------------------------------------------------
# Sets of items that no table holds: how far their parities lie from what pairs make of them.
#
# With x = 1 or -1 for an item that a record has or not, of mean mu and deviation sigma = sqrt(1 - mu^2), parities of a
# set q deviate from those of the table of largest entropy with q's pairs by tau n prod sigma, where
#
#     tau^2 = sum w ((z - expected)^2 - v) / sum w (n prod sigma)^2,  w = 1/(v + (n prod sigma / 10)^2)^2,
#
# over the sets of as many items that tables do tell: what views tell of threes and fours says how far the others may
# be off. The model knows of all tables, so it is off by less. Larger sets are taken to deviate as fours do.

SAMPLED, UNTOLD_ORDERS, PAIR_ROUNDS = 200, (3, 4), 10


def parity_scales(squares: ParitySquares, sets: Ints) -> Reals:
    """N times the product of the deviations of the items of each set."""
    total = max(squares.total, 1.0)
    result = np.full(len(sets), total)
    for place in range(squares.items):
        item = 1 << (squares.items - 1 - place)
        mean = np.clip(squares.value[item] / total, -1, 1)
        result[sets & item > 0] *= max(1 - mean**2, 1 / total) ** 0.5
    return result


def interaction_strengths(squares: ParitySquares) -> tuple[float, ...]:
    """Return tau of sets of 3 items and of 4, by the told ones, of which ``SAMPLED`` are looked at."""
    orders, result = pattern_sizes(squares.items), [0.0]
    for order in UNTOLD_ORDERS:
        sets = np.flatnonzero((orders == order) & (squares.precision > 0))
        sets = sets[:: -(-len(sets) // SAMPLED) or 1]
        if not len(sets):
            result.append(result[-1])
            continue
        expected = np.array([_expect_parity(squares, pattern_places(one, squares.items)) for one in sets.tolist()])
        noise, scale = 1 / squares.precision[sets], parity_scales(squares, sets)
        weight = 1 / (noise + (scale / 10) ** 2) ** 2
        square = float((weight * ((squares.value[sets] - expected) ** 2 - noise)).sum() / (weight * scale**2).sum())
        result.append(min(max(square, 0.0), 1.0) ** 0.5)
    return tuple(result[1:])


def _expect_parity(squares: ParitySquares, chosen: Sequence[int]) -> float:
    """The parity of a set in the table of largest entropy with the set's pairs."""
    margins = [
        (axes, _view_margin(squares, tuple(chosen[axis] for axis in axes)).reshape(2, 2) + POSSIBLE)
        for axes in combinations(range(len(chosen)), 2)
    ]
    shape = (2,) * len(chosen)
    table = rake_table(np.full(shape, max(squares.total, 1.0) / 2 ** len(chosen)), margins, PAIR_ROUNDS)
    return float(walsh_transform(table.reshape(-1))[-1])


def untold_interval(
    squares: ParitySquares,
    fitted: tuple[Reals, Reals],
    strengths: Sequence[float],
    chosen: Sequence[int],
    question: Reals,
) -> tuple[float, float]:
    """Estimate and standard error of a question that needs parities which no table told; ``fitted``: see step 3.

    The parities that were told are as in ``lean_estimate``, the others those of the model, tau n prod sigma off.
    """
    spectrum, part = fitted
    at = patterns_among(chosen, squares.items)
    wanted = walsh_transform(question) / len(question)
    told = squares.precision[at] > 0
    least_squares = float(squares.value[at[told]] @ wanted[told])
    far = float(spectrum[at[told]] @ wanted[told]) - least_squares
    most, error = lean_estimate(squares, part, chosen, question, far)
    orders = np.clip(pattern_sizes(len(chosen))[~told] - UNTOLD_ORDERS[0], 0, len(strengths) - 1)
    doubt = wanted[~told] * np.array(strengths)[orders] * parity_scales(squares, at[~told])
    return least_squares + most + float(spectrum[at[~told]] @ wanted[~told]), float(
        np.hypot(error, np.linalg.norm(doubt))
    )


# Model ----------------------------------------------------------------------------------------------------------------
# A table of all patterns that a population can have and that fits what was measured, and estimates that lean on it.
#
# 1. The table of largest entropy whose views are those of least squares, moved to the nearest without negative cells:
#    iterative proportional fitting from a table of equal cells.
# 2. Where all patterns were counted, each cell x of that table mu moves towards its own count y, by V/(V + s^2) with V
#    = a mu + b mu^2: what a count says that the views do not. (a, b) are the moments of (y - mu)^2 - s^2 over all
#    cells, by non-negative least squares. The result is fitted to the views once more, and at the end to the numbers of
#    records with each item: to have no negative cells a view adds to rare items.
# 3. An estimate takes each parity between that table's and the least-squares one, by r_q = V_k/(V_k + v_q), where V_k
#    is by how much parities of k items differ beyond their noise. So what was measured well stays as it was, what was
#    not is the model's, and as every answer is a sum over one table, answers add up, as long as each lies no further
#    than ``bounds.LIMIT`` standard errors from that of least squares.
#
# Nothing here looks at anything but the published tables. Intervals do not rest on it: they are those of least squares.

ROUNDS = 4  # of proportional fitting to views
LAST_ROUNDS = 2  # to single items
LEAST = 0.01  # of a cell of the views' table stays, whatever its count says
OVER = 0.1  # a cell's error is weighed as if V were mu + OVER mu^2
TINY = 1e-300
Margins = list[tuple["Codes", "Reals"]]


def fit_population(squares: ParitySquares) -> Reals:
    """The population's table (2^m,), non-negative."""
    items, total = squares.items, max(squares.total, 0.0)
    whole = [one for one in squares.tables if len(one.columns) == items]
    views = [one.columns for one in squares.tables if 0 < len(one.columns) < items]
    if not views:
        return nearest_nonnegative(walsh_transform(squares.value) / (1 << items), total)
    margins = _view_margins(squares, _maximal_views(views))
    result = _rake_population(np.full(1 << items, total / (1 << items)), margins, ROUNDS)
    if whole:
        result = _rake_population(np.maximum(_shrink_to_counts(result, whole[0]), LEAST * result), margins, ROUNDS)
    return _fit_items(result, squares)


def fit_spectrum(squares: ParitySquares, population: Reals) -> tuple[Reals, Reals]:
    """Parities (2^m,) between those of least squares and those of the population's table (step 3), and what they keep.

    What they keep of the variance v_q of least squares: 1 - (z - found)^2/v_q on average over the parities of k items.
    For whatever is fitted to noisy values, by a projection or by the best shrinkage, what it is off and what it leaves
    of them add up to their noise.
    """
    model, order = walsh_transform(population), pattern_sizes(squares.items)
    is_measured = squares.precision > 0
    weights, number = squares.precision[is_measured] ** 2, squares.items + 1

    def weighted_mean(parts: Reals) -> Reals:
        sums, of_all = (
            np.bincount(order[is_measured], weights=one, minlength=number) for one in (parts * weights, weights)
        )
        return np.divide(sums, of_all, out=np.zeros(number), where=of_all > 0)

    variance, far = 1 / squares.precision[is_measured], (squares.value - model)[is_measured] ** 2
    ratio = np.maximum(weighted_mean(far - variance), 0.0)[order] * squares.precision
    part = ratio / (ratio + 1)
    left = weighted_mean((1 - part[is_measured]) ** 2 * far) / np.maximum(weighted_mean(variance), TINY)
    return model + part * (squares.value - model), np.clip(1 - left, 0.0, 1.0)[order]


def _maximal_views(views: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The views that are not inside another one."""
    return [one for one in dict.fromkeys(views) if not any(set(one) < set(other) for other in views)]


def _view_margins(squares: ParitySquares, views: Sequence[tuple[int, ...]]) -> Margins:
    """The cells of each view that all patterns lie in, and the nearest table without negative cells to its own."""
    return [(view_cells(view, squares.items), _view_margin(squares, view)) for view in views]


def _view_margin(squares: ParitySquares, view: tuple[int, ...]) -> Reals:
    parities = squares.value[patterns_among(view, squares.items)]
    return nearest_nonnegative(walsh_transform(parities) / len(parities), max(squares.total, 0.0))


def _rake_population(start: Reals, margins: Margins, rounds: int) -> Reals:
    result = start.copy()
    for _ in range(rounds):
        for cell_codes, wanted in margins:
            now = np.bincount(cell_codes, weights=result, minlength=len(wanted))
            result *= np.divide(wanted, now, out=np.zeros_like(wanted), where=now > 0)[cell_codes]
    return result


def _fit_items(start: Reals, squares: ParitySquares) -> Reals:
    """Return what noise does to the number of records with each item."""
    result = start.copy()
    for _ in range(LAST_ROUNDS):
        for place in range(squares.items):
            halves = result.reshape(1 << place, 2, -1)  # without the item, and with it
            now, wanted = halves.sum(axis=(0, 2)), _view_margin(squares, (place,))
            halves *= np.divide(wanted, now, out=np.zeros(2), where=now > 0)[None, :, None]
    return result


def _shrink_to_counts(mean: Reals, counted: NoisyTable) -> Reals:
    """The cells, each between its ``mean`` and its count."""
    counts, noise = counted.counts.reshape(-1).astype(np.float64), counted.variance
    weight = 1 / (noise + mean + OVER * mean**2)
    a, b = fit_moments(weight * mean, weight * mean**2, weight * ((counts - mean) ** 2 - noise))
    model_variance = a * mean + b * mean**2
    return mean + model_variance / (model_variance + noise) * (counts - mean) if noise else counts
