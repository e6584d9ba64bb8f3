"""Show what noisy counts still reveal about the people in a table (differential inference).

x records meet a condition, and y of them a sensitive condition as well. Both counts are answered with Laplace noise of
scale b = 1/epsilon: X = x + xi_1, Y = y + xi_2. By theorem 2 of Wang et al., if |xi_1| < x, up to the second order,

    E[Y/X] ~ (y/x) (1 + 2 b^2/x^2),    Var[Y/X] ~ (2 b^2/x^2) (1 + (y/x)^2).

So the larger x is, the closer an adversary comes to y/x, whatever epsilon is. Noise protects whether somebody is in the
table, not what is true of the people in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.outcomes import JsonObject

if TYPE_CHECKING:
    from privsql.attacks.scene import Floats

NEAR = 0.05  # a noisy ratio that is this close to y/x reveals it
SURE_SHARE = 0.9  # share of simulations that must be so close to reveal the ratio
SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)
LEAST = 1.0  # smaller noisy sizes are left out by adversary and simulation, as nothing is divided by them


def expected_ratio(x: float, y: float, scale: float) -> float:
    """Return the approximate mean of the ratio Y/X of two noisy counts, (y/x)(1 + 2 b^2/x^2).

    Args:
        x: The true number of records that a query counts.
        y: The true number of its records that meet the sensitive condition.
        scale: b, the scale of the Laplace noise of both counts.

    >>> round(expected_ratio(100, 100, 10), 6), round(expected_ratio(1000, 1000, 10), 6)
    (1.02, 1.0002)
    """
    return y / x * (1 + 2 * scale**2 / x**2)


def ratio_variance(x: float, y: float, scale: float) -> float:
    """Return the approximate variance of the ratio Y/X of two noisy counts, (2 b^2/x^2)(1 + (y/x)^2).

    Args:
        x: The true number of records that a query counts.
        y: The true number of its records that meet the sensitive condition.
        scale: b, the scale of the Laplace noise of both counts.

    >>> round(ratio_variance(100, 100, 10), 6)
    0.04
    """
    return 2 * scale**2 / x**2 * (1 + (y / x) ** 2)


@dataclass(frozen=True)
class Inference(JsonObject):
    """What two noisy counts X and Y reveal about the ratio y/x of the true counts.

    x is the number of records that a query counts, y that of those which also meet a sensitive condition.

    Attributes:
        x: The number of records that the query counts.
        y: How many of these records meet the sensitive condition.
        mean: The mean of Y/X by a formula that approximates it.
        deviation: The standard deviation of Y/X by a formula that approximates it.
        simulated_mean: The mean of Y/X over simulated noise.
        simulated_deviation: The standard deviation of Y/X over simulated noise.
        near: The share of simulations in which Y/X differs from y/x by at most 0.05 (``NEAR``).
        dropped: The share of simulations that are left out because X is below 1 (``LEAST``), too small to divide by.
        asked: Whether this is the query that was asked. Others have the same ratio y/x, and count another number of
            records.
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
        """Return the true ratio y/x."""
        return self.y / self.x

    @property
    def discloses(self) -> bool:
        """Return True if the noisy counts reveal y/x: Y/X is within 0.05 of it in at least 90 % of simulations."""
        return self.near >= SURE_SHARE


def infer_counts(x: int, y: int, scale: float, noise_of_x: Floats, noise_of_y: Floats) -> list[Inference]:
    """Return how well noisy counts reveal the ratio y/x, for the given query and for smaller and larger ones.

    Queries that count other numbers of records (``SIZES``) with the same ratio show that noise hides it only if few
    records are counted. Results are sorted by the number of records.

    Args:
        x: The true number of records that the query counts.
        y: How many of its records meet the sensitive condition.
        scale: The scale of the Laplace noise.
        noise_of_x: Simulated noise of x, used for the queries of all sizes.
        noise_of_y: Simulated noise of y, used for the queries of all sizes.
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
