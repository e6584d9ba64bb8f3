"""How far a kept size may be from the true one, given that only sizes above a threshold are kept.

Noise that happens to be large makes an empty partition pass, so a small kept size is more often noise than its
variance says. The true size c of a partition is given a prior with a heavy tail, Pr[c >= k] = 1/(1 + k/m), whose scale
m is what the model of ``pruned`` expects there; the error of the published size y is then E[(c - y)^2 | y].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.consistent import Ints

Reals = NDArray[np.float64]
TAIL = 1.0  # exponent of the prior's tail
LEAST = 0.05  # records: the least scale
REACH, STEPS = 16.0, 32  # how far from y true sizes are looked at, in units of 1/budget; points on either side


def squared_error(size: Ints, budget: Reals, scale: Reals) -> Reals:
    """E[(c - y)^2 | y] for sizes (n,), each with its budget and the scale of its prior."""
    step = np.maximum(1.0, REACH / budget / STEPS)[:, None]
    true = np.round(size[:, None] + np.arange(-STEPS, STEPS + 1) * step)
    possible, prior = np.maximum(true, 0), np.maximum(scale, LEAST)[:, None]
    weight = (1 + possible / prior) ** -TAIL - (1 + (possible + step) / prior) ** -TAIL
    distance = np.abs(size[:, None] - possible)
    weight *= (true >= 0) * np.exp(-budget[:, None] * distance)
    total = weight.sum(axis=1)
    found: Reals = np.divide((weight * distance**2).sum(axis=1), total, out=np.zeros(len(size)), where=total > 0)
    return found
