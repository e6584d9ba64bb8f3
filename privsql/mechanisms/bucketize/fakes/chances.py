"""The chance of every listed value to be fake, given all lists: what a release with fakes is drawn by and checked by.

It is near what the law of the fakes says of its value and its bucket's size, and sums to what is certain: the fakes of
every bucket, and how often each value is fake. Odds are multiplied by one factor for each bucket and one for each value
until both are right (iterative proportional fitting), so of all chances with these sums it is the nearest in entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.model import Ints

Floats = NDArray[np.float64]

ROUNDS, NEAR = 500, 1e-7  # of the scaling of chances to their sums; how near is near enough
LEAST, TINY = 1e-3, 1e-30  # no chance starts at 0 or 1; no division by 0


@dataclass(frozen=True)
class Entries:
    """``rows`` (E,): the row of each entry, rising; ``kinds`` (E,): its kind; no kind stands twice in a row. ``shape``:
    numbers of rows and of kinds.
    """

    rows: Ints
    kinds: Ints
    shape: tuple[int, int]

    def sums(self, amounts: NDArray[Any]) -> tuple[Floats, Floats]:
        """Sums of ``amounts`` (E,) over rows and over kinds, in doubles: integers below 2^53 stay exact."""
        rows, kinds = self.shape
        of_rows, of_kinds = np.bincount(self.rows, amounts, rows), np.bincount(self.kinds, amounts, kinds)
        return of_rows.astype(float), of_kinds.astype(float)

    @property
    def lengths(self) -> tuple[Ints, Ints]:
        """Entries of every row, and of every kind."""
        rows, kinds = self.shape
        return np.bincount(self.rows, minlength=rows).astype(int), np.bincount(self.kinds, minlength=kinds).astype(int)

    def part(self, chosen: Ints) -> Entries:
        """Some of the entries."""
        return Entries(self.rows[chosen], self.kinds[chosen], self.shape)


def scaled(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Floats:
    """``chances`` (E,) with their odds times a factor for each row and each kind, such that they sum to what is given.

    They lie near that already. One kind after the other, then one row after the other, is brought to its mean odds,
    until all sums are within ``NEAR``, or after ``ROUNDS``.
    """
    odds = chances.clip(LEAST, 1 - LEAST)
    odds /= 1 - odds
    of_row, of_kind = entries.lengths
    sides = [(entries.kinds, of_kinds, of_kind), (entries.rows, of_rows, of_row)]
    for _ in range(ROUNDS):
        furthest = 0.0
        for index, wanted, lengths in sides:
            sums = np.bincount(index, odds / (1 + odds), minlength=len(wanted))
            furthest = max(furthest, float(np.abs(sums - wanted).max()))
            factor = (wanted + TINY) / (sums + TINY) * (lengths - sums + TINY) / (lengths - wanted + TINY)
            odds *= factor[index]
        if furthest <= NEAR:
            break
    return np.asarray(odds / (1 + odds))
