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
        if ((middle == low) | (middle == high)).all():  # there is no number between them
            break
        above = np.clip(values - middle[:, None] * give, 0, caps).sum(axis=1) > total
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.clip(values - high[:, None] * give, 0, caps))


def interval(mean: float, std_error: float, confidence: float, degrees: float = np.inf) -> tuple[float, float]:
    """``intervals`` of one count."""
    low, high = intervals(np.array([mean], dtype=np.float64), np.array([std_error]), confidence, degrees)
    return float(low[0]), float(high[0])


def intervals(
    mean: Floats, std_error: Floats, confidence: float, degrees: float | Floats = np.inf
) -> tuple[Floats, Floats]:
    """Bounds for counts: mean -+ t s, the upper one at least the quantile of a gamma with that mean and spread.

    t is Student's quantile with ``degrees`` of freedom: the prior's strength is itself estimated, from as many
    deviations as there are values less one. A count can't be negative, so where the error is as large as the mean its
    distribution leans to the right; where the lower bound is 0, nothing is left out below it and twice as much above.
    """
    tail = (1 - confidence) / 2
    quantile = widened(tail, degrees)
    spread = np.where(std_error, std_error, 1.0) * quantile / -float(scipy.special.ndtri(tail))
    centre = np.maximum(mean, 1e-6)
    shape = np.clip((centre / spread) ** 2, 0.02, 1e7)
    above = np.where(mean > quantile * std_error, tail, 2 * tail)
    skewed = scipy.special.gammaincinv(shape, 1 - above) * centre / shape
    low, high = np.maximum(mean - quantile * std_error, 0.0), np.maximum(mean + quantile * std_error, skewed)
    return np.where(std_error, low, mean), np.where(std_error, high, mean)


def whole(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The least and the greatest count within bounds: each stands for all that is nearer to it than to another one.

    As many are left out as were: the interval from a to b holds what a density has between a - 1/2 and b + 1/2.
    """
    return np.ceil(low - 1 / 2), np.floor(high + 1 / 2)


def widened(tail: float, degrees: float | Floats) -> Floats:
    """Student's upper quantile for the probability ``tail``; the normal one for infinite ``degrees``."""
    known = np.isinf(degrees)
    return np.where(known, -scipy.special.ndtri(tail), scipy.special.stdtrit(np.where(known, 1.0, degrees), 1 - tail))
