"""Where counts can lie: estimates moved to the nearest possible ones, and intervals around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from privsql.answers.channel import Floats


def within(values: Floats, total: Floats, caps: Floats, give: Floats) -> Floats:
    """The values (G, m) moved into [0, caps] such that they sum to ``total`` (G,); ``give`` (m,) says how easily.

    Each is clip(v - t give, 0, cap) with the t at which the sum is right: the nearest such point where distances are
    measured in ``give``. Bisection on t.
    """
    low = ((values - caps) / give).min(axis=1) - 1
    high = (values / give).max(axis=1) + 1
    for _ in range(100):
        middle = (low + high) / 2
        above = np.clip(values - middle[:, None] * give, 0, caps).sum(axis=1) > total
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.clip(values - high[:, None] * give, 0, caps))


def interval(mean: float, std_error: float, confidence: float, degrees: float = np.inf) -> tuple[float, float]:
    """Bounds for a count: mean -+ t s, the upper one at least the quantile of a gamma with that mean and spread.

    t is Student's quantile with ``degrees`` of freedom: the prior's strength is itself estimated, from as many
    deviations as there are values less one. A count can't be negative, so where the error is as large as the mean its
    distribution leans to the right; where the lower bound is 0, nothing is left out below it and twice as much above.
    """
    if not std_error:
        return mean, mean
    tail = (1 - confidence) / 2
    quantile = widened(tail, degrees)
    spread = std_error * quantile / -float(scipy.special.ndtri(tail))
    centre = max(mean, 1e-6)
    shape = min(max((centre / spread) ** 2, 0.02), 1e7)
    above = tail if mean > quantile * std_error else 2 * tail
    skewed = float(scipy.special.gammaincinv(shape, 1 - above)) * centre / shape
    return max(mean - quantile * std_error, 0.0), max(mean + quantile * std_error, skewed)


def widened(tail: float, degrees: float) -> float:
    """Student's upper quantile for the probability ``tail``; the normal one for infinite ``degrees``."""
    return -float(scipy.special.ndtri(tail)) if np.isinf(degrees) else float(scipy.special.stdtrit(degrees, 1 - tail))
