"""How far a noisy table is to be believed: it is shrunk towards what simpler tables make likely.

A cell of the least-squares table is g = x + noise of variance s^2, and simpler tables make mu of x likely. How far x
lies from mu is told by all cells together: x - mu is normal with variance c V, V = a mu + b mu^2, where (a, b) fit the
squares (g - mu)^2 - s^2 by weighted least squares, and c is one of ``GRID``, each with a share that expectation
maximization finds, over all tables and then for each table with the shares of all as its prior. Some cells lie far
from mu in any real table, and a mixture lets these be believed while all others are shrunk (adaptive shrinkage:
Stephens, Biostatistics 2017). The posterior mean is mu + S (g - mu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Reals

GRID = np.array([0.0, 0.02, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
STRENGTH = 30.0  # cells that the shares of all tables count for beside those of one
ROUNDS, MOMENTS = 30, 5
MOST = 20_000  # cells of all tables that the common shares are fitted to
LEAST = 1e-9  # records: the variance of an impossible cell


@dataclass(frozen=True)
class Seen:
    """A table of least squares, what is expected of it, and the variance s^2 of a cell's noise."""

    table: Reals
    expected: Reals
    variance: float


@dataclass(frozen=True)
class Believed:
    """A table after shrinkage: ``mean``; ``factor`` S, which the noise of the cells is multiplied with; ``doubt``, the
    variance of what noise does not explain. All have the table's shape.
    """

    mean: Reals
    factor: Reals
    doubt: Reals


@dataclass(frozen=True)
class Prior:
    """V = a mu + b mu^2 (``moments``), and the ``shares`` of ``GRID`` over all tables."""

    moments: Reals
    shares: Reals

    def spread(self, expected: Reals) -> Reals:
        """V of every cell."""
        found: Reals = self.moments[0] * expected + self.moments[1] * expected**2 + LEAST
        return found

    def unseen(self, expected: Reals) -> Believed:
        """What is believed of a table that nothing was told of: what is expected, and all of the prior's doubt."""
        doubt = float(self.shares @ GRID) * self.spread(expected)
        return Believed(expected, np.zeros_like(expected), doubt)

    def believed(self, seen: Seen) -> Believed:
        """The posterior of a table."""
        far, spread = (seen.table - seen.expected).reshape(-1), self.spread(seen.expected).reshape(-1)
        _, chances = _mixture(far, spread, np.full(far.shape, seen.variance), self.shares, STRENGTH)
        factor = GRID[:, None] * spread / (GRID[:, None] * spread + seen.variance)
        mean = (chances * factor).sum(axis=0)
        square = (chances * (factor * seen.variance + (factor * far) ** 2)).sum(axis=0) - (mean * far) ** 2
        doubt = np.maximum(square - mean**2 * seen.variance, 0.0)
        shape = seen.table.shape
        return Believed(seen.expected + (mean * far).reshape(shape), mean.reshape(shape), doubt.reshape(shape))


def prior(tables: Sequence[Seen]) -> Prior:
    """What all tables together tell of how far cells lie from what is expected of them."""
    expected = np.concatenate([one.expected.reshape(-1) for one in tables])
    far = np.concatenate([(one.table - one.expected).reshape(-1) for one in tables])
    variance = np.concatenate([np.full(one.table.size, one.variance) for one in tables])
    terms, found = np.stack([expected, expected**2], axis=1), np.array([1.0, 0.01])
    for _ in range(MOMENTS):
        weight = 1 / (variance + terms @ found)
        found = np.array(moments(expected * weight, expected**2 * weight, (far**2 - variance) * weight))
    step = -(-len(far) // MOST)
    spread = (terms @ found)[::step] + LEAST
    even = np.full(len(GRID), 1 / len(GRID))
    shares, _ = _mixture(far[::step], spread, variance[::step], even, 1.0)
    return Prior(found, shares)


def moments(first: Reals, second: Reals, wanted: Reals) -> tuple[float, float]:
    """The a, b >= 0 with which a first + b second is nearest to ``wanted``."""
    one, both, other = float(first @ first), float(first @ second), float(second @ second)
    left, right = float(first @ wanted), float(second @ wanted)
    determinant = one * other - both**2
    if determinant > 0:
        a, b = (left * other - right * both) / determinant, (right * one - left * both) / determinant
        if a >= 0 and b >= 0:
            return a, b
    alone = (max(left, 0.0) / one if one else 0.0, 0.0), (0.0, max(right, 0.0) / other if other else 0.0)
    return min(alone, key=lambda ab: float(((ab[0] * first + ab[1] * second - wanted) ** 2).sum()))


def _mixture(far: Reals, spread: Reals, noise: Reals, prior: Reals, strength: float) -> tuple[Reals, Reals]:
    """Shares of ``GRID`` (K,) by expectation maximization, and of every cell (n,) the chances of each, (K, n)."""
    variance = GRID[:, None] * spread + noise
    likely = -0.5 * (np.log(variance) + far**2 / variance)
    likely = np.exp(likely - likely.max(axis=0))
    shares = prior
    for _ in range(ROUNDS):
        chances = shares[:, None] * likely
        chances /= chances.sum(axis=0)
        shares = chances.sum(axis=1) + strength * prior
        shares = shares / shares.sum()
    return shares, chances
