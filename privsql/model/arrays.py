"""Arrays whose size a release states, which may be anything."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.errors import EngineError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

MOST = 2**30  # bytes


def zeros(*shape: int, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """``np.zeros``; ``EngineError`` for more than ``MOST`` bytes, where the machine would rather end the process."""
    size = prod(max(length, 0) for length in shape) * np.dtype(dtype).itemsize
    if size > MOST:
        raise EngineError(f"an array of {' x '.join(f'{length:,}' for length in shape)} numbers is too large")
    return np.zeros(shape, dtype)
