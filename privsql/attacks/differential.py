"""Show what two noisy counts still tell: differential inference.

x records meet a condition, y of them a sensitive one too. Each count is answered with Laplace noise of scale b =
1/epsilon: X = x + xi_1, Y = y + xi_2. Theorem 2 of Wang et al.: for |xi_1| < x, to the second order,

    E[Y/X] ~ (y/x) (1 + 2 b^2/x^2),    Var[Y/X] ~ (2 b^2/x^2) (1 + (y/x)^2).

So the larger the query, the closer the noisy answers bring an adversary to y/x, whatever epsilon: the noise protects
whether somebody is in the table, not what is true of the people in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.outcomes import JsonObject

if TYPE_CHECKING:
    from privsql.attacks.scene import Floats

NEAR = 0.05  # distance from y/x within which a noisy ratio gives it away
SURE_SHARE = 0.9  # share of draws that must be so near
SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)
LEAST = 1.0  # noisy sizes below are thrown away, by the adversary as by the simulation: they can't be divided by


def expected_ratio(x: float, y: float, scale: float) -> float:
    """Return the approximate mean of the ratio Y/X of two noisy counts, (y/x)(1 + 2 b^2/x^2).

    Args:
        x: The true size of a query.
        y: The true number of its records that meet the sensitive condition.
        scale: b, the scale of the Laplace noise of both counts.

    >>> round(expected_ratio(100, 100, 10), 6), round(expected_ratio(1000, 1000, 10), 6)
    (1.02, 1.0002)
    """
    return y / x * (1 + 2 * scale**2 / x**2)


def ratio_variance(x: float, y: float, scale: float) -> float:
    """Return the approximate variance of the ratio Y/X of two noisy counts, (2 b^2/x^2)(1 + (y/x)^2).

    The arguments are those of ``expected_ratio``.

    >>> round(ratio_variance(100, 100, 10), 6)
    0.04
    """
    return 2 * scale**2 / x**2 * (1 + (y / x) ** 2)


@dataclass(frozen=True)
class Inference(JsonObject):
    """What noisy answers X and Y tell of a ratio.

    X counts the records of a query, Y those of them that meet the sensitive condition.

    Attributes:
        x: The size of the query.
        y: How many of its records meet the sensitive condition.
        mean: The mean of Y/X, by the theorem.
        deviation: The standard deviation of Y/X, by the theorem.
        simulated_mean: The mean of Y/X over the draws.
        simulated_deviation: The standard deviation of Y/X over the draws.
        near: The share of draws within ``NEAR`` of y/x.
        dropped: The share of draws with a noisy size below ``LEAST``.
        asked: Whether it is the query that was asked.
    """

    x: float
    y: float
    mean: float
    deviation: float
    simulated_mean: float
    simulated_deviation: float
    near: float
    dropped: float
    asked: bool = False
    json_keys = ("*", "ratio", "discloses")

    @property
    def ratio(self) -> float:
        """Return y/x."""
        return self.y / self.x

    @property
    def discloses(self) -> bool:
        """Return True if the noisy answers still give the ratio away."""
        return self.near >= SURE_SHARE


def infer_counts(x: int, y: int, scale: float, noise_of_x: Floats, noise_of_y: Floats) -> list[Inference]:
    """Return what noisy answers tell, for the query that was asked and for other sizes with the same ratio y/x.

    The results are sorted by size.

    Args:
        x: The size of the query that was asked.
        y: How many of its records meet the sensitive condition.
        scale: The scale of the Laplace noise.
        noise_of_x: Draws of the noise of the size, used for every size.
        noise_of_y: Draws of the noise of y, used for every size.
    """
    found = []
    for size in sorted({*map(float, SIZES), float(x)}):
        part = y / x * size
        noisy = size + noise_of_x
        usable = noisy >= LEAST
        ratios = (part + noise_of_y[usable]) / noisy[usable]
        found.append(
            Inference(
                x=size,
                y=part,
                mean=expected_ratio(size, part, scale),
                deviation=float(np.sqrt(ratio_variance(size, part, scale))),
                simulated_mean=float(ratios.mean()),
                simulated_deviation=float(ratios.std()),
                near=float((np.abs(ratios - part / size) <= NEAR).sum() / len(noisy)),
                dropped=float(1 - usable.mean()),
                asked=size == x,
            )
        )
    return found
