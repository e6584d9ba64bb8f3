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
# A bucket of S records lists S + sigma different values, sigma of them fake: no record of the bucket has them. Each
# listed value shall be real with probability S/(S + sigma), whichever value it is. Then value x with o_x records is
# listed
#
#     L_x = o_x (S + sigma)/S times in b buckets of size S,   at most b times, so  f_x <= 1/(S + sigma).
#
# With b_j buckets of size S_j: sum_j L_xj S_j/(S_j + sigma) = o_x with L_xj <= b_j and sum_x L_xj = (S_j + sigma) b_j.
# A value that is too frequent for that (``find_too_frequent``) is listed in every bucket, and is real more often.
#
# L_x are integers, so the real share of a value's listings, o_x/L_x, is not exactly S/(S + sigma). Quotients are
# rounded up (Adams): among all integers with the right sum, these have the smallest maximum of o_x/L_x. With one size,
# p = S/(S + sigma) and m values in n records, it is at most p/(1 - p m/n), and o_x > p (L_x - 1).


def times_listed(counts: Ints, sizes: Sequence[tuple[int, int]], sigma: int) -> Ints:
    """Decide how often each value is listed in the buckets of each size, fakes included.

    A listed value in a bucket of S records is real with probability S/(S + sigma). So a value with o records should be
    listed o (S + sigma)/S times. Sizes are treated from the largest down, and each size makes up for the rounding of
    the sizes before.

    Args:
        counts: The records of each value (m,).
        sizes: (size, number of buckets), by rising size.
        sigma: The number of fake values in every bucket.

    Returns:
        The numbers of listings by value and size (m, k).
    """
    unit = lcm(*(size + sigma for size, _ in sizes))
    left = [int(count) * unit for count in counts]
    by_size = np.zeros((len(left), len(sizes)), dtype=np.int64)
    for j, (size, buckets) in reversed(list(enumerate(sizes))):
        total = (size + sigma) * buckets
        times = apportion_times([max(0, have) for have in left], total, buckets)
        missing = total - sum(times)
        if missing:  # the other listings go to values that have enough already, by their counts
            rest = [0 if have > 0 else int(count) for have, count in zip(left, counts, strict=True)]
            times = [a + b for a, b in zip(times, apportion_times(rest, missing, buckets), strict=True)]
        by_size[:, j] = times
        left = [have - number * (size * unit // (size + sigma)) for have, number in zip(left, times, strict=True)]
    return by_size


def apportion_times(weights: list[int], total: int, most: int) -> list[int]:
    """Decide how often buckets of one size list each value, nearly in proportion to weights.

    The numbers L_x are found by Adams' divisor method. Among all integers with the same sum and L_x <= ``most``, they
    have the smallest maximum of w_x/L_x, where w_x is the weight of value x.

    Args:
        weights: The weight of each value, not negative.
        total: How many values all these buckets list together.
        most: The most buckets that may list the same value.

    Returns:
        How often each value is listed. The sum is below ``total`` if every value with a positive weight has ``most``.
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

    # Add 1 for the value with the largest w_x/L_x until the sum is right; values with L_x = 0 come first.
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
# The chance of every listed value to be fake, given all lists. Fakes are drawn with these chances, and a release is
# checked against them.
#
# Two sums of chances are known: the number of fakes in every bucket, and how often each value is fake. Starting from
# the chances that follow from value and bucket size, odds are multiplied by one factor for each bucket and one for each
# value until both sums are right (iterative proportional fitting). Of all chances with these sums, the result has the
# least relative entropy to the start.

ROUNDS, NEAR = 500, 1e-7  # rounds of scaling at most; the error of a sum that is allowed
LEAST, TINY = 1e-3, 1e-30  # chances start at least so far from 0 and 1; prevents division by 0


@dataclass(frozen=True)
class Entries:
    """E listed values as (bucket, value) pairs; no value stands twice in a bucket.

    Attributes:
        rows: The bucket of each entry, rising (E,).
        kinds: The value of each entry (E,).
        shape: (number of buckets, number of values).
    """

    rows: Ints
    kinds: Ints
    shape: tuple[int, int]

    def sum_amounts(self, amounts: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return (the sum over the entries of each bucket, the sum over the entries of each value) as doubles.

        Integers below 2^53 are summed exactly.

        Args:
            amounts: What is summed, by entry (E,).
        """
        rows, kinds = self.shape
        of_rows, of_kinds = np.bincount(self.rows, amounts, rows), np.bincount(self.kinds, amounts, kinds)
        return of_rows.astype(float), of_kinds.astype(float)

    @property
    def lengths(self) -> tuple[Ints, Ints]:
        """Return (the number of entries of each bucket, the number of entries of each value)."""
        rows, kinds = self.shape
        return np.bincount(self.rows, minlength=rows).astype(int), np.bincount(self.kinds, minlength=kinds).astype(int)


def scale_chances(entries: Entries, chances: Floats, of_rows: Ints, of_kinds: Ints) -> Floats:
    """Adjust the chances of listed values to be fake, so that they have given sums in every bucket and for every value.

    The odds of an entry are multiplied by a factor of its bucket and a factor of its value. Buckets and values are
    adjusted in turn until all sums are within ``NEAR``, for ``ROUNDS`` rounds at most.

    Args:
        entries: The listed values.
        chances: The chance of each entry to be fake (E,), near the result.
        of_rows: The number of fakes in each bucket, which is the sum of its chances.
        of_kinds: How often each value is fake, which is the sum of its chances.

    Returns:
        The adjusted chances (E,).
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
