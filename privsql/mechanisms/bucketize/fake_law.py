"""Compute how often each value is listed among fake values, and how certain each listed value is to be real."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Lists ----------------------------------------------------------------------------------------------------------------
# How often each value is listed where buckets list values that nobody there has.
#
# A bucket of S records lists S + sigma different values, sigma of them fake. If a listed value is to be real with
# probability S/(S + sigma) whichever value it is, value x with o_x records is listed
#
#     L_x = o_x (S + sigma)/S times in b buckets of size S,   at most b times, so  f_x <= 1/(S + sigma).
#
# With several sizes S_j of b_j buckets: sum_j L_xj S_j/(S_j + sigma) = o_x with L_xj <= b_j and sum_x L_xj = (S_j +
# sigma) b_j. Where that can't be (``find_too_frequent``), a value is in every bucket and real more often: o_x of all.
#
# L_x are integers, so what is real of a value, o_x/L_x, is not quite S/(S + sigma). Divisors are rounded up (Adams):
# among all integers with the right sum these have the least largest o_x/L_x. With one size, p = S/(S + sigma) and m
# values in n records it is at most p/(1 - p m/n), and o_x > p (L_x - 1).


def times_listed(counts: Ints, sizes: Sequence[tuple[int, int]], sigma: int) -> Ints:
    """Return how often each value is listed in buckets of each size, L (m, k).

    The largest buckets come first, in proportion to the records that are not yet covered. An entry in a bucket of size
    S covers S/(S + sigma) of a record, so the next size makes good what was rounded for this one.

    Args:
        counts: The records of each value (m,).
        sizes: The setting, (size, number of buckets), by rising size.
        sigma: The number of fake values in every bucket.
    """
    unit = lcm(*(size + sigma for size, _ in sizes))
    left = [int(count) * unit for count in counts]
    by_size = np.zeros((len(left), len(sizes)), dtype=np.int64)
    for j, (size, buckets) in reversed(list(enumerate(sizes))):
        total = (size + sigma) * buckets
        times = apportion_times([max(0, have) for have in left], total, buckets)
        missing = total - sum(times)
        if missing:  # the rest is listed by counts, of values that are covered
            rest = [0 if have > 0 else int(count) for have, count in zip(left, counts, strict=True)]
            times = [a + b for a, b in zip(times, apportion_times(rest, missing, buckets), strict=True)]
        by_size[:, j] = times
        left = [have - number * (size * unit // (size + sigma)) for have, number in zip(left, times, strict=True)]
    return by_size


def apportion_times(weights: list[int], total: int, most: int) -> list[int]:
    """Return integers L_x <= ``most`` of the sum ``total`` with the least largest w_x/L_x (Adams' divisor method).

    The sum is less than ``total`` if every positive weight has ``most`` already.
    """
    times, open_ = [0] * len(weights), {x for x, weight in enumerate(weights) if weight > 0}
    while open_:
        weight, free = sum(weights[x] for x in open_), total - most * sum(number == most for number in times)
        start = free - len(open_)  # rounding up adds less than one each
        rounded = {x: -(-weights[x] * start // weight) if start > 0 else 0 for x in open_}
        full = {x for x, number in rounded.items() if number >= most}
        for x in full:
            times[x] = most
        open_ -= full
        if not full:
            for x, number in rounded.items():
                times[x] = number
            break

    def heap_entry(x: int) -> tuple[bool, Fraction, int]:
        return times[x] > 0, -Fraction(weights[x], max(1, times[x])), x

    # One more for the value with the largest w_x/L_x, until the sum is right; values without any come first.
    heap = [heap_entry(x) for x in open_]
    heapq.heapify(heap)
    for _ in range(total - sum(times)):
        if not heap:
            break
        x = heapq.heappop(heap)[2]
        times[x] += 1
        if times[x] < most:
            heapq.heappush(heap, heap_entry(x))
    return times


# Chances --------------------------------------------------------------------------------------------------------------
# The chance of every listed value to be fake, given all lists. Fakes are drawn by these chances, and checked by them.
#
# A chance is near what the law of the fakes says of its value and its bucket's size. Chances sum to what is certain:
# the fakes of every bucket, and how often each value is fake. Odds are multiplied by one factor for each bucket and one
# for each value until both are right (iterative proportional fitting). Of all chances with these sums, these are the
# nearest in entropy.

ROUNDS, NEAR = 500, 1e-7  # of the scaling of chances to their sums; how near is near enough
LEAST, TINY = 1e-3, 1e-30  # no chance starts at 0 or 1; no division by 0


@dataclass(frozen=True)
class Entries:
    """Entries of rows (buckets), each of a kind (value); no kind stands twice in a row.

    Attributes:
        rows: The row of each entry (E,), rising.
        kinds: The kind of each entry (E,).
        shape: The numbers of rows and of kinds.
    """

    rows: Ints
    kinds: Ints
    shape: tuple[int, int]

    def sum_amounts(self, amounts: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return the sums of ``amounts`` (E,) over rows and over kinds, in doubles: integers below 2^53 stay exact."""
        rows, kinds = self.shape
        of_rows, of_kinds = np.bincount(self.rows, amounts, rows), np.bincount(self.kinds, amounts, kinds)
        return of_rows.astype(float), of_kinds.astype(float)

    @property
    def lengths(self) -> tuple[Ints, Ints]:
        """Return the numbers of entries of every row, and of every kind."""
        rows, kinds = self.shape
        return np.bincount(self.rows, minlength=rows).astype(int), np.bincount(self.kinds, minlength=kinds).astype(int)


def scale_chances(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Floats:
    """Scale the odds of ``chances`` (E,) by a factor for each row and each kind, until sums are as given.

    The chances lie near the result already. Kinds and rows are brought to their sums in turn, until all sums are within
    ``NEAR``, or after ``ROUNDS``.
    """
    odds = chances.clip(LEAST, 1 - LEAST)
    odds /= 1 - odds
    of_row, of_kind = entries.lengths
    for _ in range(ROUNDS):
        furthest = 0.0
        for index, wanted, lengths in ((entries.kinds, of_kinds, of_kind), (entries.rows, of_rows, of_row)):
            sums = np.bincount(index, odds / (1 + odds), minlength=len(wanted))
            furthest = max(furthest, float(np.abs(sums - wanted).max()))
            factor = (wanted + TINY) / (sums + TINY) * (lengths - sums + TINY) / (lengths - wanted + TINY)
            odds *= factor[index]
        if furthest <= NEAR:
            break
    return np.asarray(odds / (1 + odds))
