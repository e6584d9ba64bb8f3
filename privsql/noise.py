"""The only source of randomness.

Randomness comes from a 256-bit key: fresh from the operating system, from the publisher's key file, or from a
seed (tests only; a release made with one says so). The key drives ChaCha20, one independent stream per purpose,
so the same key and the same input give the same release on any engine. Keys never leave this module as text.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import stat
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from randomgen import ChaCha

from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    Bits = NDArray[np.uint64]

Origin = Literal["system", "key-file", "seed"]
KEY_BYTES = 32
LARGEST_MEAN = 100  # of one binomial draw by inversion
DOUBT = 1e-9  # nearer to a step of the distribution function than this, doubles do not decide


class Shuffler(Protocol):
    """What the mechanisms draw: uniform permutations and integers. Tests put an enumerating one in its place."""

    def integers(self, low: int, high: int, size: int) -> NDArray[Any]:
        """``size`` independent integers, uniform on low..high-1, exactly."""

    def permutation(self, items: int | NDArray[Any]) -> NDArray[Any]:
        """Return ``items`` (or 0..items-1) in uniformly random order."""

    def shuffle(self, items: NDArray[Any]) -> None:
        """Put ``items`` into uniformly random order in place."""


@dataclass(frozen=True)
class Key:
    """A secret key and where it came from; its bytes do not show in ``repr``."""

    origin: Origin
    secret: bytes = field(repr=False)

    @property
    def reference(self) -> str:
        """Where the key comes from and a one-way digest, to tell keys apart in the publisher's ledger."""
        told = hashlib.blake2b(b"reference", key=self.secret, digest_size=8, person=b"privsql").hexdigest()
        return f"{self.origin}:{told}"

    def stream(self, *purpose: object) -> np.random.Generator:
        """ChaCha20 generator for one purpose; different purposes are independent.

        The stream's key is BLAKE2b keyed with the secret over the purpose. Two tables with the same purpose (the same
        sensitive values and counts) share their random choices: use a key file for one table only.
        """
        label = "\x1f".join(str(part) for part in purpose).encode()
        derived = hashlib.blake2b(label, key=self.secret, digest_size=KEY_BYTES, person=b"privsql").digest()
        return np.random.Generator(ChaCha(key=int.from_bytes(derived, "little"), rounds=20))


def system_key() -> Key:
    """Fresh key from the operating system."""
    return Key("system", secrets.token_bytes(KEY_BYTES))


def seed_key(seed: int) -> Key:
    """Key for tests: anyone who knows the seed can repeat every random choice."""
    return Key("seed", hashlib.blake2b(str(seed).encode(), digest_size=KEY_BYTES, person=b"privsql-seed").digest())


def key_file(path: Path) -> Key:
    """Read the key in ``path`` (64 hexadecimal digits); create it with mode 0600 if it is not there.

    Raises ``UsageError`` if the file can be read by others or does not hold a key, ``EngineError`` if it
    can't be read or written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return Key("key-file", _read_key(path))
    except OSError as error:
        raise EngineError(f"key file {path}: {error.strerror}") from error
    secret = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return Key("key-file", secret)


def _read_key(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise EngineError(f"key file {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"key file {path} can be read by others; run: chmod 600 {path}")
    try:
        secret = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise UsageError(f"key file {path} does not hold a key of {2 * KEY_BYTES} hexadecimal digits")
    return secret


def laplace(scale: float, draws: int) -> NDArray[np.float64]:
    """Laplace noise from OpenDP, in one vector call; it can't be repeated.

    OpenDP draws what a double allows exactly, so the draws are those of a real differentially private answer.
    """
    import opendp.prelude as dp  # noqa: PLC0415 (takes long to import, and is seldom needed)

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    return np.asarray(dp.m.make_laplace(*space, scale=scale)([0.0] * draws), dtype=np.float64)


class Chooser(Protocol):
    """Uniform choices without replacement; a numpy ``Generator`` is one."""

    def permutation(self, items: int | NDArray[Any]) -> NDArray[Any]:
        """Return ``items`` (or 0..items-1) in uniformly random order."""

    def choice(self, number: int, size: int, *, replace: bool, shuffle: bool) -> NDArray[np.int64]:
        """``size`` different numbers below ``number``, every set of them equally likely."""


class CountNoise(Protocol):
    """Integer noise for counts of sensitivity 1: Pr[noise = x] is proportional to exp(-epsilon * |x|).

    Tests put an enumerating one in its place.
    """

    origin: Literal["opendp", "seed"]

    def noisy(self, counts: Counts, epsilon: Fraction) -> Counts:
        """The counts, each with noise of its own."""

    def passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        """For each number of zero counts, how many of them reach ``least`` (>= 1) once they have noise."""

    def above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        """Noisy zero counts, given that they reach ``least`` (>= 1)."""


class SelectionNoise(CountNoise, Protocol):
    """Noise for counts, and the private choice of the best of several."""

    def best(self, scores: Counts, epsilon: Fraction) -> int:
        """The place of a high score; scores must be monotonic, all up or all down by at most 1 for one record.

        Permute-and-flip: places in uniformly random order, each taken with probability exp(epsilon (score - highest)).
        """


def scale(epsilon: Fraction) -> float:
    """The least double not below 1/epsilon: noise of this scale spends at most epsilon, exactly."""
    nearest = float(1 / epsilon)
    return nearest if Fraction(nearest) * epsilon >= 1 else math.nextafter(nearest, math.inf)


class OpenDPNoise:
    """The discrete Laplace mechanism of OpenDP on vectors of 64-bit integers.

    ``noisy`` is OpenDP's own mechanism, whose sampler is exact for the rational value of the scale, a double rounded so
    that no more than epsilon is spent. It draws from the operating system and can't be seeded: a release with this
    noise is never repeated, not even with the same key. ``above`` is exact: given that discrete Laplace noise is >= 0
    it is geometric, and a geometric variable given that it is >= t is itself plus t. ``passing`` inverts the binomial
    distribution function at 64 uniform bits of the operating system; where these come within 1e-9 of a
    step of the function, which is a million times the error of doubles here, the decision is taken in decimals with as
    many digits and bits as it needs. So it is exact, too.
    """

    origin: Literal["opendp", "seed"] = "opendp"

    def __init__(self) -> None:
        self._mechanisms: dict[float, Callable[[list[int]], list[int]]] = {}
        self._choices: dict[float, Callable[[list[int]], int]] = {}

    def noisy(self, counts: Counts, epsilon: Fraction) -> Counts:
        """As in ``CountNoise``."""
        if not len(counts):
            return counts
        width = scale(epsilon)
        if width not in self._mechanisms:
            self._mechanisms[width] = _laplace(width)
        return np.array(self._mechanisms[width](counts.tolist()), dtype=np.int64)

    def passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        """As in ``CountNoise``."""
        return binomial(empty, least, Fraction(scale(epsilon)), _system_bits)

    def above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        """As in ``CountNoise``."""
        found = np.empty(0, dtype=np.int64)
        while len(found) < number:
            drawn = self.noisy(np.zeros(2 * (number - len(found)) + 8, dtype=np.int64), epsilon)
            found = np.concatenate((found, drawn[drawn >= 0]))
        return found[:number] + least

    def best(self, scores: Counts, epsilon: Fraction) -> int:
        """As in ``SelectionNoise``: OpenDP's noisy maximum of integers, exact for the rational value of the scale."""
        width = scale(epsilon)
        if width not in self._choices:
            self._choices[width] = _noisy_max(width)
        return int(self._choices[width](scores.tolist()))


class SeededNoise:
    """The same distributions in double precision from a seeded generator. For tests: not private."""

    origin: Literal["opendp", "seed"] = "seed"

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw

    def noisy(self, counts: Counts, epsilon: Fraction) -> Counts:
        """As in ``CountNoise``."""
        stop = -math.expm1(-1 / scale(epsilon))
        return counts + self._draw.geometric(stop, len(counts)) - self._draw.geometric(stop, len(counts))

    def passing(self, empty: Counts, least: int, epsilon: Fraction) -> Counts:
        """As in ``CountNoise``."""
        width = scale(epsilon)
        return self._draw.binomial(empty, math.exp(-least / width) / (1 + math.exp(-1 / width)))

    def above(self, number: int, least: int, epsilon: Fraction) -> Counts:
        """As in ``CountNoise``."""
        return self._draw.geometric(-math.expm1(-1 / scale(epsilon)), number) - 1 + least

    def best(self, scores: Counts, epsilon: Fraction) -> int:
        """As in ``SelectionNoise``: the maximum with exponential noise has the distribution of permute-and-flip."""
        return int(np.argmax(scores + self._draw.exponential(scale(epsilon), len(scores))))


def _laplace(width: float) -> Callable[[list[int]], list[int]]:
    import opendp.prelude as dp  # noqa: PLC0415 (takes long to import, and only this mechanism needs it)

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return dp.m.make_laplace(*space, scale=width)


def _noisy_max(width: float) -> Callable[[list[int]], int]:
    """Permute-and-flip (McKenna, Sheldon, NeurIPS 2020), never worse than the exponential mechanism.

    For monotonic scores a scale of 1/epsilon spends epsilon.
    """
    import opendp.prelude as dp  # noqa: PLC0415 (takes long to import, and only this mechanism needs it)

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=True)
    return dp.m.make_noisy_max(*space, dp.max_divergence(), scale=width)


def _system_bits(number: int) -> Bits:
    """Uniform 64-bit integers from the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * number), dtype=np.uint64)


def binomial(trials: Counts, least: int, width: Fraction, bits: Callable[[int], Bits]) -> Counts:
    """Exact binomial draws: of each number of trials, how many have discrete Laplace noise of at least ``least``.

    q = p^least/(1+p), p = exp(-1/width). ``bits`` gives uniform 64-bit integers.
    """
    chance = math.exp(-float(least / width)) / (1 + math.exp(-float(1 / width)))
    parts = np.maximum(1, np.ceil(trials * chance / LARGEST_MEAN)).astype(np.int64)
    if parts.max(initial=1) > 1:  # a sum of binomials: a mean of hundreds would underflow
        owner = np.repeat(np.arange(len(trials)), parts)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(parts) - parts, parts)
        share = trials[owner] // parts[owner] + (place < trials[owner] % parts[owner])
        drawn = _inverted(share, chance, least, width, bits)
        return np.bincount(owner, weights=drawn, minlength=len(trials)).astype(np.int64)
    return _inverted(trials, chance, least, width, bits)


def _inverted(trials: Counts, chance: float, least: int, width: Fraction, bits: Callable[[int], Bits]) -> Counts:
    drawn = bits(len(trials))
    uniform = drawn / 2.0**64
    mass = np.exp(trials * math.log1p(-chance))
    below, found = mass.copy(), np.zeros(len(trials), dtype=np.int64)
    doubtful = np.abs(uniform - below) < DOUBT
    rising = np.flatnonzero(uniform >= below)
    odds, k = chance / (1 - chance), 0
    while len(rising):
        mass[rising] *= (trials[rising] - k) / (k + 1) * odds
        k += 1
        below[rising] += mass[rising]
        found[rising] = k
        doubtful[rising] |= np.abs(uniform[rising] - below[rising]) < DOUBT
        rising = rising[(uniform[rising] >= below[rising]) & (k < trials[rising])]
    for place in np.flatnonzero(doubtful & (trials > 0)).tolist():
        found[place] = _decided(int(trials[place]), least, width, int(drawn[place]), bits)
    return found


def _decided(trials: int, least: int, width: Fraction, drawn: int, bits: Callable[[int], Bits]) -> int:
    """The binomial draw for a uniform number that begins with the bits ``drawn``, in decimals of growing precision."""
    words = 1
    while True:
        words += 1
        drawn = drawn << 64 | int(bits(1)[0])
        with localcontext() as context:
            context.prec = 20 * words + 60
            found = [_step(trials, least, width, Decimal(drawn + end) / Decimal(2) ** (64 * words)) for end in (0, 1)]
        if found[0] == found[1]:
            return found[0]


def _step(trials: int, least: int, width: Fraction, uniform: Decimal) -> int:
    """Number of steps of the binomial distribution function at or below ``uniform``."""
    inverse = Decimal(width.denominator) / Decimal(width.numerator)
    chance = (-inverse * least).exp() / (1 + (-inverse).exp())
    mass = (1 - chance) ** trials
    below, k = mass, 0
    while uniform >= below and k < trials:
        mass *= Decimal(trials - k) / (k + 1) * chance / (1 - chance)
        below += mass
        k += 1
    return k
