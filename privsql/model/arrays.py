"""Arrays whose size a release states, which may be anything."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.errors import EngineError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    Ints = NDArray[np.int64]
    Reals = NDArray[np.float64]

MOST = 2**30  # bytes


def zeros(*shape: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """``np.zeros``; ``EngineError`` for more than ``MOST`` bytes, where the machine would rather end the process."""
    size = prod(max(length, 0) for length in shape) * np.dtype(dtype).itemsize
    if size > MOST:
        raise EngineError(f"an array of {' x '.join(f'{length:,}' for length in shape)} numbers is too large")
    return np.zeros(shape, dtype)


def copies(weights: Reals) -> Ints:
    """How many records stand for each weight: rounded so that no running total is off by more than 1/2.

    Negative weights, which noise makes, count as 0.
    """
    totals = np.floor(np.cumsum(np.maximum(weights, 0)) + 0.5).astype(np.int64)
    return np.diff(totals, prepend=0)
