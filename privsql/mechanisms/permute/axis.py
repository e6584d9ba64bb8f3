"""The sensitive values on an exact axis: integers in a common unit, ranks, and the condition (k,e).

All decisions compare ranks: ``reach[i]``, the largest j with u_i - u_j >= e, is found once in exact integers, and a
set of records is fine if it has >= k distinct ranks and its least rank is <= reach[its largest rank].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
SAFE = 2**62  # differences of integers below this fit into 64 bits
MANTISSA = 53


@dataclass(frozen=True)
class Axis:
    """The D distinct sensitive values, rising, and which sets of them are fine."""

    units: list[int]  # (D,) exact, in the column's smallest unit
    reach: Ints  # (D,) the largest j with u_i - u_j >= e, or -1
    k: int

    def fine(self, ranks: Ints) -> bool:
        """Whether records with these ranks (any order, with repeats) have >= k values and max - min >= e."""
        if not len(ranks):
            return False
        return len(np.unique(ranks)) >= self.k and int(self.reach[ranks.max()]) >= int(ranks.min())

    def left_ends(self, ranks: Ints) -> Ints:
        """For rising ``ranks`` (n,): the largest s such that the records s..t are fine, for every t, or -1. O(n)."""
        if not len(ranks):
            return np.zeros(0, dtype=np.int64)
        steps = ranks[1:] != ranks[:-1]
        ends = np.flatnonzero(np.append(steps, True))
        number = np.concatenate(([0], np.cumsum(steps)))
        values = ranks[ends]
        far = np.searchsorted(values, self.reach[values], side="right") - 1
        least = np.minimum(far, np.arange(len(ends)) - self.k + 1)
        found = np.where(least >= 0, ends[np.maximum(least, 0)], -1)
        return np.minimum(found[number], np.arange(len(ranks)))

    def width(self, low: int, high: int) -> int:
        """u_high - u_low, exact."""
        return self.units[high] - self.units[low]


def axis(units: Sequence[int], k: int, e: int) -> Axis:
    """The axis of rising distinct integers ``units`` (D,) under (k,e), ``e`` in the same unit."""
    exact = [int(u) for u in units]
    if exact and max(abs(exact[0]), abs(exact[-1]), e) < SAFE:
        array = np.array(exact, dtype=np.int64)
        reach = np.searchsorted(array, array - e, side="right") - 1
    else:
        reach = _walked(exact, e)
    return Axis(exact, np.asarray(reach, dtype=np.int64), k)


def _walked(units: list[int], e: int) -> Ints:
    """``reach`` of integers of any length, by two pointers."""
    reach = np.empty(len(units), dtype=np.int64)
    j = -1
    for i, u in enumerate(units):
        while j + 1 <= i and u - units[j + 1] >= e:
            j += 1
        reach[i] = j
    return reach


def whole(e: Fraction, unit: Fraction) -> int:
    """The least whole number of units that is at least ``e``: differences of whole units compare with it exactly."""
    return math.ceil(e / unit)


def doubles(values: NDArray[np.float64], e: Fraction) -> tuple[list[int], int]:
    """Finite doubles as integers in a common power of two, and ``e``, rounded up to a double, in the same unit.

    A double is the binary fraction that it is; nothing is rounded, so max - min >= e means just that.
    """
    both = np.append(values, float_above(e))
    mantissas, exponents = np.frexp(both)
    whole_mantissas = np.ldexp(mantissas, MANTISSA).astype(np.int64)
    shifts = exponents.astype(np.int64) - MANTISSA
    zeros = _trailing_zeros(whole_mantissas)
    used = whole_mantissas != 0
    least = int((shifts + zeros)[used].min()) if used.any() else 0
    found = [
        m << s if s >= 0 else m >> -s  # the bits shifted out are zeros
        for m, s in zip(whole_mantissas.tolist(), (shifts - least).tolist(), strict=True)
    ]
    return found[:-1], found[-1]


def float_above(e: Fraction) -> float:
    """The smallest double that is not below ``e``."""
    near = float(e)
    return near if Fraction(near) >= e else math.nextafter(near, math.inf)


def _trailing_zeros(integers: Ints) -> Ints:
    lowest = integers & -integers
    return np.asarray(np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1)
