"""Draw all noise for differential privacy, by OpenDP or seeded for tests; OpenDP is loaded when noise is drawn."""

from __future__ import annotations

import math
import secrets
from decimal import Decimal, localcontext
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from privsql.errors import UsageError
from privsql.extras import NOISE

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from privsql.keyed_random import Key

    Counts = NDArray[np.int64]
    Bits = NDArray[np.uint64]

LARGEST_MEAN = 100  # of one binomial draw by inversion
NEWEST = "0.16"  # the version of OpenDP whose releases this version of privsql knows, and those before it
DOUBT = 1e-9  # nearer to a step of the distribution function than this, doubles do not decide


class CountNoise(Protocol):
    """Integer noise for counts of sensitivity 1: Pr[noise = x] is proportional to exp(-epsilon * |x|).

    Tests put an enumerating one in its place.
    """

    origin: Literal["opendp", "seed"]

    def add_noise(self, counts: Counts, epsilon: Fraction) -> Counts:
        """Return the counts, each with noise of its own."""

    def count_passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        """For each number of zero counts, how many of them reach ``least`` (>= 1) once they have noise."""

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        """Return noisy zero counts, given that they reach ``least`` (>= 1)."""


class SelectionNoise(CountNoise, Protocol):
    """Noise for counts, and the private choice of the best of several."""

    def choose_best(self, scores: Counts, epsilon: Fraction, *, monotonic: bool = True) -> int:
        """Return the place of a high score; one record changes scores by at most 1.

        ``monotonic``: it changes them all up or all down. Permute-and-flip: places in uniformly random order, each
        taken with probability exp(epsilon (score - highest)), or of half that exponent where scores are not monotonic.
        """


def noise_scale(epsilon: Fraction) -> float:
    """Return the least double not below 1/epsilon: noise of this scale spends at most epsilon, exactly."""
    nearest = float(1 / epsilon)
    return nearest if Fraction(nearest) * epsilon >= 1 else math.nextafter(nearest, math.inf)


def variance_of(budget: Fraction) -> float:
    """Variance of discrete Laplace noise, 2p/(1-p)^2 with p = exp(-budget)."""
    return 1 / (2 * math.sinh(float(budget) / 2) ** 2)


def deviation_of(scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return standard deviations of discrete Laplace noise, sqrt(2p)/(1-p), p = exp(-1/scale); 0 for scale 0.

    >>> deviation_of(np.array([0.0, 0.2, 100.0])).round(3).tolist()
    [0.0, 0.117, 141.421]
    """
    p = np.exp(-1 / np.maximum(scales, np.finfo(float).tiny ** 0.5))
    return np.asarray(np.sqrt(2 * p) / (1 - p))


class OpenDPNoise:
    """The discrete Laplace mechanism of OpenDP on vectors of 64-bit integers.

    ``add_noise`` is OpenDP's own mechanism, whose sampler is exact for the rational value of the scale, a double
    rounded so that no more than epsilon is spent. It draws from the operating system and can't be seeded: a release
    with this noise is never repeated, not even with the same key. ``draw_above`` is exact: given that discrete Laplace
    noise is >= 0 it is geometric, and a geometric variable given that it is >= t is itself plus t. ``count_passing``
    inverts the binomial distribution function at 64 uniform bits of the operating system; where these come within 1e-9
    of a step of the function, which is a million times the error of doubles here, the decision is taken in decimals
    with as many digits and bits as it needs. So it is exact, too.
    """

    origin: Literal["opendp", "seed"] = "opendp"

    def __init__(self) -> None:
        self._mechanisms: dict[float, Callable[[list[int]], list[int]]] = {}
        self._choices: dict[tuple[float, bool], Callable[[list[int]], int]] = {}

    def add_noise(self, counts: Counts, epsilon: Fraction) -> Counts:
        if not len(counts):
            return counts
        width = noise_scale(epsilon)
        if width not in self._mechanisms:
            self._mechanisms[width] = _make_laplace(width)
        return np.array(self._mechanisms[width](counts.tolist()), dtype=np.int64)

    def count_passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        return draw_binomial(empty, least, Fraction(noise_scale(epsilon)), _system_bits)

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        noise = np.empty(0, dtype=np.int64)
        while len(noise) < number:
            drawn = self.add_noise(np.zeros(2 * (number - len(noise)) + 8, dtype=np.int64), epsilon)
            noise = np.concatenate((noise, drawn[drawn >= 0]))
        return noise[:number] + least

    def choose_best(self, scores: Counts, epsilon: Fraction, *, monotonic: bool = True) -> int:
        """As in ``SelectionNoise``: OpenDP's noisy maximum of integers, exact for the rational value of the scale."""
        kind = noise_scale(epsilon if monotonic else epsilon / 2), monotonic
        if kind not in self._choices:
            self._choices[kind] = noisy_max(kind[0], monotonic=monotonic)
        return int(self._choices[kind](scores.tolist()))


class SeededNoise:
    """Draws from the same distributions, in double precision, by a seeded generator. For tests: not private."""

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

    def choose_best(self, scores: Counts, epsilon: Fraction, *, monotonic: bool = True) -> int:
        """As in ``SelectionNoise``: the maximum with exponential noise has the distribution of permute-and-flip."""
        width = noise_scale(epsilon if monotonic else epsilon / 2)
        return int(np.argmax(scores + self._draw.exponential(width, len(scores))))


def noise_for(key: Key) -> SelectionNoise:
    """Return OpenDP's noise, which no key repeats; for a seed that of tests, which is not private.

    Raises ``UsageError`` for a key file, ``EngineError`` where OpenDP is not installed: before a record is read.
    """
    opendp_version()
    if key.origin == "key-file":
        raise UsageError("--key-file: a differentially private release can't be repeated; leave the key out")
    return SeededNoise(key.random_generator("noise")) if key.origin == "seed" else OpenDPNoise()


def laplace(scale: float, draws: int) -> NDArray[np.float64]:
    """Laplace noise from OpenDP, in one vector call; it can't be repeated.

    OpenDP draws what a double allows exactly, so the draws are those of a real differentially private answer.
    """
    dp = _import_opendp()
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    return np.asarray(dp.m.make_laplace(*space, scale=scale)([0.0] * draws), dtype=np.float64)


def opendp_version() -> str:
    """Return the version of OpenDP that draws; ``EngineError`` if there is none."""
    try:
        return version("opendp")
    except PackageNotFoundError as error:
        raise NOISE.missing_error() from error


def _import_opendp() -> Any:
    try:
        import opendp.prelude as dp  # noqa: PLC0415 (takes long to import, and is an extra)
    except ImportError as error:
        raise NOISE.missing_error() from error
    dp.enable_features("contrib")
    return dp


def _make_laplace(width: float) -> Callable[[list[int]], list[int]]:
    dp = _import_opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    mechanism: Callable[[list[int]], list[int]] = dp.m.make_laplace(*space, scale=width)
    return mechanism


def noisy_max(width: float, monotonic: bool) -> Any:
    """Return permute-and-flip (McKenna, Sheldon, NeurIPS 2020), never worse than the exponential mechanism.

    For monotonic scores a scale of 1/epsilon spends epsilon, for others one of 2/epsilon.
    """
    dp = _import_opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=monotonic)
    return dp.m.make_noisy_max(*space, dp.max_divergence(), scale=width)


def _system_bits(number: int) -> Bits:
    """Return uniform 64-bit integers from the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * number), dtype=np.uint64)


def draw_binomial(trials: Counts, least: int, width: Fraction, bits: Callable[[int], Bits]) -> Counts:
    """Draw exactly how many of each number of trials have discrete Laplace noise of at least ``least``.

    q = p^least/(1+p), p = exp(-1/width). ``bits`` gives uniform 64-bit integers.
    """
    chance = math.exp(-float(least / width)) / (1 + math.exp(-float(1 / width)))
    parts = np.maximum(1, np.ceil(trials * chance / LARGEST_MEAN)).astype(np.int64)
    if parts.max(initial=1) > 1:  # a sum of binomials: a mean of hundreds would underflow
        owner = np.repeat(np.arange(len(trials)), parts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
        share = trials[owner] // parts[owner] + (place < trials[owner] % parts[owner])
        drawn = _invert_binomial(share, chance, least, width, bits)
        return np.bincount(owner, weights=drawn, minlength=len(trials)).astype(np.int64)
    return _invert_binomial(trials, chance, least, width, bits)


def _invert_binomial(trials: Counts, chance: float, least: int, width: Fraction, bits: Callable[[int], Bits]) -> Counts:
    drawn = bits(len(trials))
    uniform = drawn / 2.0**64
    mass = np.exp(trials * math.log1p(-chance))
    below, draws = mass.copy(), np.zeros(len(trials), dtype=np.int64)
    doubtful = np.abs(uniform - below) < DOUBT
    rising = np.flatnonzero(uniform >= below)
    odds, k = chance / (1 - chance), 0
    while len(rising):
        mass[rising] *= (trials[rising] - k) / (k + 1) * odds
        k += 1
        below[rising] += mass[rising]
        draws[rising] = k
        doubtful[rising] |= np.abs(uniform[rising] - below[rising]) < DOUBT
        rising = rising[(uniform[rising] >= below[rising]) & (k < trials[rising])]
    for place in np.flatnonzero(doubtful & (trials > 0)).tolist():
        draws[place] = _decide_exactly(int(trials[place]), least, width, int(drawn[place]), bits)
    return draws


def _decide_exactly(trials: int, least: int, width: Fraction, drawn: int, bits: Callable[[int], Bits]) -> int:
    """Return the binomial draw for a uniform number that begins with the bits ``drawn``, as precisely as needed."""
    words = 1
    while True:
        words += 1
        drawn = drawn << 64 | int(bits(1)[0])
        with localcontext() as context:
            context.prec = 20 * words + 60
            bounds = [
                _count_steps(trials, least, width, Decimal(drawn + end) / Decimal(2) ** (64 * words)) for end in (0, 1)
            ]
        if bounds[0] == bounds[1]:
            return bounds[0]


def _count_steps(trials: int, least: int, width: Fraction, uniform: Decimal) -> int:
    """Return number of steps of the binomial distribution function at or below ``uniform``."""
    inverse = Decimal(width.denominator) / Decimal(width.numerator)
    chance = (-inverse * least).exp() / (1 + (-inverse).exp())
    mass = (1 - chance) ** trials
    below, k = mass, 0
    while uniform >= below and k < trials:
        mass *= Decimal(trials - k) / (k + 1) * chance / (1 - chance)
        below += mass
        k += 1
    return k
