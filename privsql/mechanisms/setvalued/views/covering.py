"""Views: few sets of places that together hold every pair, found by a public rule."""

from __future__ import annotations

from functools import cache

import numpy as np

STARTS = 60  # orders of the places from which a covering is built; the smallest one is taken


@cache
def covering(items: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Sets of ``size`` of the places 0..items-1 that together hold every pair: a small covering design.

    Greedy: a set grows by the place that makes most new pairs with those in it, ties by how many pairs of a place are
    left and then by an order of the places; once for each of ``STARTS`` orders, which are fixed. The first covering
    with the fewest sets is taken. Depends on the two numbers alone.
    """
    if items <= size:
        return (tuple(range(items)),)
    tried = (_greedy(items, size, _order(items, start)) for start in range(STARTS))
    return min(tried, key=len)


def _order(items: int, start: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers below 1, one for each place, by which ties are broken: multiples of a fixed fraction."""
    return np.array([((place + 1) * (start + 1) * 0.6180339887498949) % 1.0 for place in range(items)])


def _greedy(items: int, size: int, order: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[tuple[int, ...], ...]:
    left = ~np.eye(items, dtype=bool)
    found = []
    while left.any():
        degree = left.sum(axis=1)
        chosen: list[int] = []
        for _ in range(size):
            score = left[chosen].sum(axis=0) * items + degree + order
            score[chosen] = -1
            chosen.append(int(np.argmax(score)))
        left[np.ix_(chosen, chosen)] = False
        found.append(tuple(sorted(chosen)))
    return tuple(found)
