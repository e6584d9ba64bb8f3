"""Show what two noisy counts still tell: differential inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from privsql.attacks.scene import Floats

#
# x records meet a condition, y of them a sensitive one too. Each count is answered with Laplace noise of scale b =
# 1/epsilon: X = x + xi_1, Y = y + xi_2. Theorem 2 of Wang et al.: for |xi_1| < x, to the second order,
#
#     E[Y/X] ~ (y/x) (1 + 2 b^2/x^2),    Var[Y/X] ~ (2 b^2/x^2) (1 + (y/x)^2).
#
# So the larger the query, the closer the noisy answers bring an adversary to y/x, whatever epsilon: the noise protects
# whether somebody is in the table, not what is true of the people in it.

NEAR = 0.05  # distance from y/x within which a noisy ratio gives it away
SURE_SHARE = 0.9  # share of draws that must be so near
SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000)
LEAST = 1.0  # noisy sizes below are thrown away, by the adversary as by the simulation: they can't be divided by


def expected_ratio(x: float, y: float, scale: float) -> float:
    """(y/x)(1 + 2 b^2/x^2).

    >>> round(expected_ratio(100, 100, 10), 6), round(expected_ratio(1000, 1000, 10), 6)
    (1.02, 1.0002)
    """
    return y / x * (1 + 2 * scale**2 / x**2)


def ratio_variance(x: float, y: float, scale: float) -> float:
    """(2 b^2/x^2)(1 + (y/x)^2).

    >>> round(ratio_variance(100, 100, 10), 6)
    0.04
    """
    return 2 * scale**2 / x**2 * (1 + (y / x) ** 2)


@dataclass(frozen=True)
class Inference:
    """One size of query: ``mean``, ``deviation`` of Y/X in theory and simulated; ``near``: share of draws within
    ``NEAR`` of y/x; ``dropped``: share with a noisy size below ``LEAST``; ``asked``: whether it is the query asked.
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

    @property
    def ratio(self) -> float:
        """Return y/x."""
        return self.y / self.x

    @property
    def discloses(self) -> bool:
        """Return True if the noisy answers still give the ratio away."""
        return self.near >= SURE_SHARE

    def as_json(self) -> dict[str, Any]:
        """An entry of ``--json``."""
        return {**self.__dict__, "ratio": self.ratio, "discloses": self.discloses}


def infer_counts(x: int, y: int, scale: float, noise: tuple[Floats, Floats]) -> list[Inference]:
    """The query that was asked, and queries of other sizes with the same ratio, by size.

    ``noise``: draws of the Laplace noise of X and of Y, the same for every size.
    """
    sizes = {float(size): False for size in SIZES} | {float(x): True}
    return [
        _simulate_query(size, y / x * size, scale, noise, is_query=is_query) for size, is_query in sorted(sizes.items())
    ]


def _simulate_query(x: float, y: float, scale: float, noise: tuple[Floats, Floats], *, is_query: bool) -> Inference:
    noisy = x + noise[0]
    usable = noisy >= LEAST
    ratios = (y + noise[1][usable]) / noisy[usable]
    return Inference(
        x,
        y,
        expected_ratio(x, y, scale),
        float(np.sqrt(ratio_variance(x, y, scale))),
        float(ratios.mean()),
        float(ratios.std()),
        float((np.abs(ratios - y / x) <= NEAR).sum() / len(noisy)),
        float(1 - usable.mean()),
        is_query,
    )
