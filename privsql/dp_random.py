"""Draw all noise for differential privacy, with OpenDP or, in tests, with a seeded generator.

OpenDP is imported only when noise is drawn.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from privsql.errors import UsageError
from privsql.system import NOISE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from privsql.keyed_random import Key

    Counts = NDArray[np.int64]
    Bits = NDArray[np.uint64]

LARGEST_MEAN = 100  # largest mean of one binomial draw by inversion
NEWEST = "0.16"  # the newest version of OpenDP that this version of privsql knows
DOUBT = 1e-9  # closer than this to a step of the distribution function, doubles do not decide


class TableNoise(Protocol):
    """Adds integer noise to counts, and chooses the best of several candidates privately.

    A budget is an epsilon or, under zero-concentrated privacy, a rho. Tests replace this class by one that enumerates
    all possible noise.

    Attributes:
        origin: "opendp" for private noise, "seed" for noise that a seed repeats, which is not private.
    """

    origin: Literal["opendp", "seed"]

    def add_noise(self, counts: Counts, budget: Fraction, /) -> Counts:
        """Return the counts with independent noise added to each; ``budget`` is what one count spends."""

    def choose_best(self, scores: Counts, budget: Fraction, /, *, monotonic: bool) -> int:
        """Return the index of a candidate with a high score, chosen privately.

        One record changes each score by at most 1. The algorithm is permute-and-flip: it visits the candidates in
        uniformly random order and takes each with probability exp(epsilon (score - highest)). The exponent is half of
        that if scores are not monotonic. Under zero-concentrated privacy, the exponential mechanism is used instead.

        Args:
            scores: The score of each candidate.
            budget: The budget that the choice spends.
            monotonic: Whether one record changes all scores in the same direction.
        """


class SelectionNoise(TableNoise, Protocol):
    """Adds noise to counts; the noise is x with a probability proportional to exp(-epsilon |x|), as in the Laplace law.

    It can also draw how many of many counts of 0 reach a threshold, without drawing noise for each of them. So a
    mechanism that publishes only counts above a threshold need not list the millions of combinations that do not occur.
    """

    def count_passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        """Draw how many counts of 0 reach a threshold once noise is added to each of them.

        Args:
            empty: The number of counts of 0 in each of several groups; the result has one draw for each group.
            least: The threshold, at least 1.
            epsilon: The budget of each count.
        """

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        """Draw the noisy values of those counts of 0 that reach a threshold, after ``count_passing`` drew how many do.

        Args:
            number: How many values are drawn.
            least: The threshold, at least 1.
            epsilon: The budget of each count.
        """


# Budgets --------------------------------------------------------------------------------------------------------------
# A budget is pure or zero-concentrated. With a pure one, a count spends epsilon by discrete Laplace noise of scale
# 1/epsilon. With the other, it spends rho by discrete Gaussian noise of variance 1/(2 rho). Budgets of both kinds add
# up.
#
# A release that is rho-zero-concentrated differentially private is (epsilon, delta)-differentially private for any
# alpha > 1 with
#
#     ln delta = (alpha - 1)(alpha rho - epsilon) + alpha ln(1 - 1/alpha) - ln(alpha - 1)
#
# (Canonne, Kamath, Steinke, NeurIPS 2020, proposition 12). Solved for rho or epsilon, every alpha gives a valid answer.
# The best alpha is searched in decimals of 50 digits, and the result is rounded to the safe side.

PRECISION = 50  # decimal digits when budgets are converted
RHO_DIGITS, EPSILON_DIGITS = 9, 6  # significant digits of a rho; decimals of a total epsilon
SEARCH = 120  # steps of the search for alpha
SMOOTH = 4  # from this sigma on, sums over whole numbers equal integrals to the precision of doubles


@dataclass(frozen=True)
class NoiseLaw:
    """The kind of noise in tables of counts or sums and in private choices, and its scale for a privacy budget.

    The budget is an epsilon, spent by Laplace noise, or a rho of zero-concentrated differential privacy, spent by
    Gaussian noise. Each table spends its own budget. In a choice, one record changes the score of each candidate by at
    most 1.

    Attributes:
        concentrated: Whether noise is Gaussian and budgets are rhos; otherwise it is Laplace noise and they are
            epsilons.
        moved: The most that one record can change all cells of a table together. For counts it is 1 if data sets differ
            by a record that is added or removed, and 2 if they differ by a replaced value. For sums it is the largest
            amount.
    """

    concentrated: bool
    moved: int = 1

    def scale(self, budget: Fraction) -> float:
        """Return the smallest scale of noise, as a double, with which a table spends at most the budget.

        For counts it is 1/epsilon (Laplace) or sigma = 1/sqrt(2 rho) (Gaussian).
        """
        part = self.unit_budget(budget)
        return _sigma_of(part) if self.concentrated else noise_scale(part)

    def variance(self, budget: Fraction) -> float:
        """Return the variance of the noise in one count of a table that spends ``budget``.

        For Gaussian noise it is sigma^2, or slightly less if sigma is small, because the noise is discrete.
        """
        if not self.concentrated:
            return variance_of(self.unit_budget(budget))
        sigma = self.scale(budget)
        if sigma > SMOOTH:
            return sigma**2
        steps = np.arange(1, 12 * SMOOTH)
        weights = np.exp(-(steps**2) / (2 * sigma**2))
        return float(2 * (steps**2 * weights).sum() / (1 + 2 * weights.sum()))

    def unit_budget(self, budget: Fraction) -> Fraction:
        """Return the budget of a table, divided by what one record can change: the budget for a change by 1.

        Noise of scale 1/epsilon (Laplace) or 1/sqrt(2 rho) (Gaussian) spends epsilon or rho if a record changes the
        cells by 1 together. If it changes them by ``moved``, the budget is divided by ``moved`` (epsilon) or
        ``moved``^2 (rho).
        """
        return budget / (self.moved**2 if self.concentrated else self.moved)

    def mean_noise(self, budget: Fraction) -> Fraction:
        """Return the approximate mean absolute noise of a count in a table that spends ``budget``.

        It is the scale of Laplace noise, or sqrt(2/pi) times the standard deviation of Gaussian noise.
        """
        return Fraction(self.scale(budget) * math.sqrt(2 / math.pi)) if self.concentrated else self.moved / budget

    def choice_epsilon(self, budget: Fraction) -> Fraction:
        """Return the epsilon with which a private choice among candidates spends the budget.

        If the budget is a rho (zero-concentrated privacy), it is sqrt(8 rho), because the exponential mechanism with
        epsilon spends rho = epsilon^2/8.
        """
        return Fraction(math.sqrt(8 * budget)) if self.concentrated else budget


PURE, CONCENTRATED = NoiseLaw(concentrated=False), NoiseLaw(concentrated=True)
SUBSTITUTION = NoiseLaw(concentrated=False, moved=2)


@cache
def concentrated_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the rho that a release may spend for a promised (epsilon, delta), rounded down.

    It is the largest rho such that rho-zero-concentrated privacy implies (epsilon, delta)-differential privacy.

    >>> float(concentrated_rho(Fraction(1), Fraction(1, 10**9)))
    0.0149730576
    """
    with localcontext() as context:
        context.prec = PRECISION
        most = _best_alpha(lambda alpha: (as_decimal(epsilon) + _log_terms(alpha, delta)) / alpha)
        rounded = most.scaleb(RHO_DIGITS - 1 - most.adjusted()).to_integral_value(rounding="ROUND_FLOOR")
        return Fraction(rounded.scaleb(most.adjusted() + 1 - RHO_DIGITS))


@cache
def concentrated_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the epsilon that can be promised for a spent rho and a given delta, rounded up.

    It is the smallest epsilon such that rho-zero-concentrated privacy implies (epsilon, delta)-differential privacy.
    """
    with localcontext() as context:
        context.prec = PRECISION
        least = -_best_alpha(lambda alpha: _log_terms(alpha, delta) - alpha * as_decimal(rho))
        return Fraction(math.ceil(Fraction(least) * 10**EPSILON_DIGITS), 10**EPSILON_DIGITS)


def _log_terms(alpha: Decimal, delta: Fraction) -> Decimal:
    """Return (ln delta + ln(alpha - 1) - alpha ln(1 - 1/alpha)) / (alpha - 1), to convert rho and epsilon.

    This equals alpha rho - epsilon for every number alpha > 1 (the formula is under "Budgets" in this module). So rho
    follows from epsilon and delta, or epsilon from rho and delta.
    """
    return (as_decimal(delta).ln() + (alpha - 1).ln() - alpha * (1 - 1 / alpha).ln()) / (alpha - 1)


def _best_alpha(value: Callable[[Decimal], Decimal]) -> Decimal:
    """Return the largest value of a function of a number alpha > 1, found by ternary search.

    A conversion between budgets holds for every alpha > 1, and the alpha with the largest value gives the best one. So
    an inexact search costs precision, but not privacy. With alpha = 1 + e^t, the search runs over t from -20 to 40.
    """
    low, high = Decimal(-20), Decimal(40)
    for _ in range(SEARCH):
        third = (high - low) / 3
        one, other = low + third, high - third
        low, high = (one, high) if value(1 + one.exp()) < value(1 + other.exp()) else (low, other)
    return value(1 + low.exp())


def as_decimal(value: Fraction) -> Decimal:
    """Return the decimal nearest to a fraction, at the precision of the current decimal context."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def _sigma_of(rho: Fraction) -> float:
    """Return the standard deviation of Gaussian noise that spends rho: 1/sqrt(2 rho), rounded up to a double."""
    result = math.sqrt(1 / (2 * rho))
    while Fraction(result) ** 2 * 2 * rho < 1:
        result = math.nextafter(result, math.inf)
    return result


# Noise ----------------------------------------------------------------------------------------------------------------


def noise_scale(epsilon: Fraction) -> float:
    """Return the smallest double that is not below 1/epsilon, so that noise of this scale spends at most epsilon."""
    nearest = float(1 / epsilon)
    return nearest if Fraction(nearest) * epsilon >= 1 else math.nextafter(nearest, math.inf)


def variance_of(budget: Fraction) -> float:
    """Return the variance of discrete Laplace noise of scale 1/budget: 2p/(1-p)^2 with p = exp(-budget)."""
    return 1 / (2 * math.sinh(float(budget) / 2) ** 2)


def deviation_of(scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviations of discrete Laplace noise of these scales.

    They are sqrt(2p)/(1-p) with p = exp(-1/scale), and 0 for scale 0.

    >>> deviation_of(np.array([0.0, 0.2, 100.0])).round(3).tolist()
    [0.0, 0.117, 141.421]
    """
    p = np.exp(-1 / np.maximum(scales, np.finfo(float).tiny ** 0.5))
    return np.asarray(np.sqrt(2 * p) / (1 - p))


class OpenDPNoise:
    """Private noise, drawn by OpenDP: discrete Laplace or Gaussian noise on integers, and private choices.

    ``add_noise`` and ``choose_best`` are OpenDP's own mechanisms. Their samplers are exact for the rational value of
    the scale, which is rounded so that no more than the budget is spent. They use the operating system's random numbers
    and can't be seeded. So a release with this noise is never repeated, not even with the same key. A choice that
    spends rho is the exponential mechanism with epsilon = sqrt(8 rho), by Gumbel noise (Cesar, Rogers, AISTATS 2021).

    ``draw_above`` is exact. Discrete Laplace noise that is >= 0 is geometric, and a geometric variable that is >= t is
    distributed as t plus a geometric variable.

    ``count_passing`` is exact, too. It looks up a uniform random number of 64 bits in the binomial distribution
    function. If the number lies within 1e-9 of a value of that function, doubles can't decide. (Their error here is a
    million times smaller.) More random bits and decimals of enough digits then decide.
    """

    origin: Literal["opendp", "seed"] = "opendp"

    def __init__(self, law: NoiseLaw = PURE) -> None:
        self._concentrated = law.concentrated

    def add_noise(self, counts: Counts, budget: Fraction) -> Counts:
        if not len(counts):
            return counts
        scale = CONCENTRATED.scale(budget) if self._concentrated else noise_scale(budget)
        return np.array(_make_mechanism(scale, gaussian=self._concentrated)(counts.tolist()), dtype=np.int64)

    def choose_best(self, scores: Counts, budget: Fraction, *, monotonic: bool) -> int:
        choose = _choice_scale if self._concentrated else _flip_scale
        scale = choose(budget, monotonic=monotonic)
        return int(noisy_max(scale, monotonic=monotonic, gumbel=self._concentrated)(scores.tolist()))

    def count_passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        def bits(number: int) -> Bits:
            return np.frombuffer(secrets.token_bytes(8 * number), dtype=np.uint64)

        return draw_binomial(empty, least, Fraction(noise_scale(epsilon)), bits)

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        noise = np.empty(0, dtype=np.int64)
        while len(noise) < number:
            drawn = self.add_noise(np.zeros(2 * (number - len(noise)) + 8, dtype=np.int64), epsilon)
            noise = np.concatenate((noise, drawn[drawn >= 0]))
        return noise[:number] + least


class SeededNoise:
    """Laplace noise by a seeded generator, in double precision. It is for tests, and not private."""

    origin: Literal["opendp", "seed"] = "seed"

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw

    def add_noise(self, counts: Counts, epsilon: Fraction) -> Counts:
        stop = -math.expm1(-1 / noise_scale(epsilon))
        return counts + self._draw.geometric(stop, len(counts)) - self._draw.geometric(stop, len(counts))

    def count_passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        width = noise_scale(epsilon)
        return self._draw.binomial(empty, math.exp(-least / width) / (1 + math.exp(-1 / width)))

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        return self._draw.geometric(-math.expm1(-1 / noise_scale(epsilon)), number) - 1 + least

    def choose_best(self, scores: Counts, epsilon: Fraction, *, monotonic: bool) -> int:
        # choosing the maximum after exponential noise is the same as permute-and-flip
        scale = _flip_scale(epsilon, monotonic=monotonic)
        return int(np.argmax(scores + self._draw.exponential(scale, len(scores))))


class SeededGaussian:
    """Gaussian noise by a seeded generator, in double precision. It is for tests, and not private."""

    origin: Literal["opendp", "seed"] = "seed"

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw

    def add_noise(self, counts: Counts, budget: Fraction) -> Counts:
        # draw discrete Laplace noise and reject some of it (Canonne, Kamath, Steinke 2020)
        sigma, result = CONCENTRATED.scale(budget), np.empty(0, dtype=np.int64)
        width = math.floor(sigma) + 1
        while len(result) < len(counts):
            number, stop = 2 * (len(counts) - len(result)) + 8, -math.expm1(-1 / width)
            drawn = self._draw.geometric(stop, number) - self._draw.geometric(stop, number)
            chance = np.exp(-((np.abs(drawn) - sigma**2 / width) ** 2) / (2 * sigma**2))
            result = np.concatenate((result, drawn[self._draw.random(number) < chance]))
        return counts + result[: len(counts)]

    def choose_best(self, scores: Counts, budget: Fraction, *, monotonic: bool) -> int:
        return int(np.argmax(scores + self._draw.gumbel(0, _choice_scale(budget, monotonic=monotonic), len(scores))))


def _flip_scale(epsilon: Fraction, *, monotonic: bool) -> float:
    """Return the scale of noise with which a private choice among candidates spends epsilon.

    It is for the algorithm permute-and-flip (see ``choose_best``). The scale is 1/epsilon, or 2/epsilon if one record
    may raise some scores and lower others (not monotonic).
    """
    return noise_scale(epsilon if monotonic else epsilon / 2)


def _choice_scale(rho: Fraction, *, monotonic: bool) -> float:
    """Return the scale of Gumbel noise for a private choice that spends rho (zero-concentrated privacy).

    With epsilon = sqrt(8 rho) it is 1/epsilon, or 2/epsilon if one record may raise some scores and lower others (not
    monotonic).
    """
    return _sigma_of(4 * rho if monotonic else rho)


def table_noise_for(key: Key, law: NoiseLaw) -> TableNoise:
    """Return the generator of noise for tables: OpenDP's for a new random key, a seeded one if the key is from a seed.

    Args:
        key: The key of the release.
        law: Whether the noise is Laplace or Gaussian.

    Raises:
        UsageError: The key is from a key file, which promises that a release can be repeated; a private one can't.
        EngineError: OpenDP is not installed.
    """
    if not law.concentrated:
        return noise_for(key)
    return SeededGaussian(key.random_generator("noise")) if noise_for(key).origin == "seed" else OpenDPNoise(law)


def noise_for(key: Key) -> SelectionNoise:
    """Return the generator of Laplace noise: OpenDP's for a new random key, a seeded one if the key is from a seed.

    OpenDP's noise can't be repeated with any key. Seeded noise is for tests and is not private. The errors below are
    raised before any record is read.

    Raises:
        UsageError: The key is from a key file, which promises that a release can be repeated; a private one can't.
        EngineError: OpenDP is not installed.
    """
    opendp_version()
    if key.origin == "key-file":
        raise UsageError("a differentially private release can't be repeated; leave out option key_file")
    return SeededNoise(key.random_generator("noise")) if key.origin == "seed" else OpenDPNoise()


def laplace(scale: float, draws: int) -> NDArray[np.float64]:
    """Return ``draws`` values of Laplace noise with this scale, drawn by OpenDP; they can't be repeated.

    A simulated attack on noisy answers uses them. OpenDP samples exactly, up to the precision of doubles, so they have
    the distribution of the noise in a real answer.
    """
    dp = _import_opendp()
    domain, metric = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    return np.asarray(dp.m.make_laplace(domain, metric, scale=scale)([0.0] * draws), dtype=np.float64)


def opendp_version() -> str:
    """Return the version of the installed OpenDP.

    Raises:
        EngineError: OpenDP is not installed.
    """
    try:
        return version("opendp")
    except PackageNotFoundError as error:
        raise NOISE.missing_error() from error


def _import_opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise NOISE.missing_error() from error
    dp.enable_features("contrib")
    return dp


@cache
def _make_mechanism(scale: float, *, gaussian: bool) -> Callable[[list[int]], list[int]]:
    dp = _import_opendp()
    metric, make = (dp.l2_distance, dp.m.make_gaussian) if gaussian else (dp.l1_distance, dp.m.make_laplace)
    mechanism: Callable[[list[int]], list[int]] = make(
        dp.vector_domain(dp.atom_domain(T="i64")), metric(T="i64"), scale=scale
    )
    return mechanism


@cache
def noisy_max(width: float, *, monotonic: bool, gumbel: bool = False) -> Any:
    """Return OpenDP's mechanism that chooses the index of the highest noisy score.

    It is permute-and-flip (McKenna, Sheldon, NeurIPS 2020), which is never worse than the exponential mechanism. For
    monotonic scores a scale of 1/epsilon spends epsilon; for other scores a scale of 2/epsilon does.

    Args:
        width: The scale of the noise.
        monotonic: Whether one record changes all scores in the same direction.
        gumbel: Whether to use the exponential mechanism instead, which spends rho = epsilon^2/8.
    """
    dp = _import_opendp()
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=monotonic)
    measure = dp.zero_concentrated_divergence() if gumbel else dp.max_divergence()
    return dp.m.make_noisy_max(domain, metric, measure, scale=width)


def draw_binomial(trials: Counts, least: int, width: Fraction, bits: Callable[[int], Bits]) -> Counts:
    """Draw how many of several draws of discrete Laplace noise are at least ``least``, exactly.

    The result is binomial with probability p^least/(1+p), p = exp(-1/width). It is drawn by inverting the binomial
    distribution function at uniform random bits.

    Args:
        trials: Numbers of draws of noise; the result has one count for each entry.
        least: The threshold that the noise has to reach.
        width: The scale of the noise.
        bits: A function that returns the given number of uniform 64-bit integers.
    """
    chance = math.exp(-float(least / width)) / (1 + math.exp(-float(1 / width)))
    parts = np.maximum(1, np.ceil(trials * chance / LARGEST_MEAN)).astype(np.int64)
    owner = np.repeat(
        np.arange(len(trials)), parts
    )  # add up several binomials, because one with a mean of hundreds would underflow
    place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
    numbers = trials[owner] // parts[owner] + (place < trials[owner] % parts[owner])
    drawn = bits(len(numbers))
    uniform = drawn / 2.0**64
    mass = np.exp(numbers * math.log1p(-chance))
    below, draws = mass.copy(), np.zeros(len(numbers), dtype=np.int64)
    doubtful = np.abs(uniform - below) < DOUBT
    rising = np.flatnonzero(uniform >= below)
    odds, k = chance / (1 - chance), 0
    while len(rising):
        mass[rising] *= (numbers[rising] - k) / (k + 1) * odds
        k += 1
        below[rising] += mass[rising]
        draws[rising] = k
        doubtful[rising] |= np.abs(uniform[rising] - below[rising]) < DOUBT
        rising = rising[(uniform[rising] >= below[rising]) & (k < numbers[rising])]
    for at in np.flatnonzero(doubtful & (numbers > 0)).tolist():
        draws[at] = _decide_exactly(int(numbers[at]), least, width, int(drawn[at]), bits)
    return np.bincount(owner, weights=draws, minlength=len(trials)).astype(np.int64)


def _decide_exactly(trials: int, least: int, width: Fraction, drawn: int, bits: Callable[[int], Bits]) -> int:
    """Return a binomial draw exactly: how many of ``trials`` draws of Laplace noise reach a threshold.

    ``draw_binomial`` calls it if doubles do not decide which draw belongs to a uniform random number. Random bits are
    added to that number until the draw is certain.

    Args:
        trials: The number of draws of noise.
        least: The threshold that the noise has to reach.
        width: The scale of the noise.
        drawn: The first 64 bits of the uniform number.
        bits: A function that returns the given number of uniform 64-bit integers.
    """

    def count_steps(uniform: Decimal) -> int:
        """Return the binomial draw for a uniform number: how many values of the distribution function it reaches."""
        inverse = Decimal(width.denominator) / Decimal(width.numerator)
        chance = (-inverse * least).exp() / (1 + (-inverse).exp())
        mass = (1 - chance) ** trials
        below, k = mass, 0
        while uniform >= below and k < trials:
            mass *= Decimal(trials - k) / (k + 1) * chance / (1 - chance)
            below += mass
            k += 1
        return k

    words = 1
    while True:
        words += 1
        drawn = drawn << 64 | int(bits(1)[0])
        with localcontext() as context:
            context.prec = 20 * words + 60
            low, high = (count_steps(Decimal(drawn + end) / Decimal(2) ** (64 * words)) for end in (0, 1))
        if low == high:
            return low
