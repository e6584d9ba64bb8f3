"""Patterns: which of m measured items a record has, as a number, and sums over all 2^m of them.

The item at place i is present in pattern x if bit m - 1 - i of x is 1, so that patterns count the cells of a table of m
axes (0: absent, 1: present) in row-major order. A set of places is written as the pattern in which just these are
present.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Ints, Reals

Codes = NDArray[np.int16]
LARGEST_CODE = 15


def pattern(places: Sequence[int], items: int) -> int:
    """The pattern in which just the items at ``places`` are present.

    >>> [pattern([0], 3), pattern([1, 2], 3)]
    [4, 3]
    """
    return sum(1 << (items - 1 - place) for place in places)


def places(found: int, items: int) -> tuple[int, ...]:
    """The places of the items that a pattern has, ascending."""
    return tuple(place for place in range(items) if found >> (items - 1 - place) & 1)


def among(chosen: Sequence[int], items: int) -> Ints:
    """For every pattern of the items at ``chosen`` (2^k,) the pattern of all in which no other item is present."""
    found = np.zeros(1, dtype=np.int64)
    for place in chosen:
        found = np.stack((found, found | 1 << (items - 1 - place)), axis=1).reshape(-1)
    return found


def restricted(patterns: Ints, chosen: Sequence[int], items: int) -> Ints:
    """What patterns of all items are as patterns of those at ``chosen`` alone."""
    found = np.zeros_like(patterns)
    for place in chosen:
        found = found << 1 | patterns >> (items - 1 - place) & 1
    return found


def cells(chosen: Sequence[int], items: int) -> Codes:
    """``restricted`` of all patterns, in order (2^m,), in few bytes; ``ValueError`` for more than 15 items."""
    if len(chosen) > LARGEST_CODE:
        raise ValueError(f"a table of {len(chosen)} items is too large to be fitted to")
    found = np.zeros(1, dtype=np.int16)
    for place in range(items):
        own = 2 * found if place in chosen else found
        found = np.stack((own, own + 1 if place in chosen else own), axis=1).reshape(-1)
    return found


def sizes(items: int) -> Ints:
    """Number of items in every pattern (2^m,)."""
    found = np.zeros(1, dtype=np.int64)
    for _ in range(items):
        found = np.concatenate((found, found + 1))
    return found


def transformed(table: Reals) -> Reals:
    """The transform of Walsh and Hadamard, not normalised: of parity q the sum over x of (-1)^|x and q| table[x].

    Applied twice it gives the table 2^m times.

    >>> transformed(np.array([5.0, 2.0])).tolist()
    [7.0, 3.0]
    """
    one, other, width = table.astype(np.float64), np.empty(len(table)), 1
    while width < len(table):
        halves, ends = one.reshape(-1, 2, width), other.reshape(-1, 2, width)
        np.add(halves[:, 0], halves[:, 1], out=ends[:, 0])
        np.subtract(halves[:, 0], halves[:, 1], out=ends[:, 1])
        one, other, width = other, one, 2 * width
    return one


def containing(table: Reals) -> Reals:
    """Of every set of places the sum over the patterns that have all of them."""
    return _added(table, to=0)


def inside(table: Reals) -> Reals:
    """Of every set of places the sum over its subsets."""
    return _added(table, to=1)


def _added(table: Reals, *, to: int) -> Reals:
    """Place by place, what patterns without it (0) and with it (1) hold: to one of these the other is added."""
    found, width = table.astype(np.float64), 1
    while width < len(table):
        halves = found.reshape(-1, 2, width)
        halves[:, to] += halves[:, 1 - to]
        width *= 2
    return found
