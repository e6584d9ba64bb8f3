"""One and two bucket sizes: the best setting in closed form (paper, sections 4.1, 4.2 and 5.1).

For sizes S1 < S2 the list Gamma(S1, S2) of all (b1, b2) with S1 b1 + S2 b2 = n is
(b1 - t d1, b2 + t d2), t = 0, 1, .. (Lemma 5.21), and Loss rises with t (Lemma 5.24). Theorem 4.17 becomes bounds on t:

* PC for value i, F_i1 b1 + F_i2 b2 >= o_i, is linear in t: a lower bound, an upper bound or a constant;
* FC for size S, sum_i min(F_iS b, o_i) >= S b, is a cap on b that depends on S alone, because the difference of the
  two sides is concave in b and 0 at b = 0.

So the first valid pair has a closed form: O(pairs * m) integer operations, whatever n is. Where sets of values are
bounded, further conditions of the same form are found as they are broken (``_broken``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.groups import crossing
from privsql.mechanisms.bucketize.groups.crossing import Cut
from privsql.mechanisms.bucketize.model import Ints, Problem, Setting
from privsql.mechanisms.bucketize.planning.hall import allocate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

FAR = np.int64(2**62)


@dataclass(frozen=True)
class Gammas:
    """The lists Gamma of several size pairs, each as an arithmetic progression; all arrays (P,).

    ``first``, ``second``: positions of S1 and S2 in the problem's sizes; ``b1``, ``b2``: the first pair;
    ``d1``, ``d2``: the steps; ``last``: the last position t.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    b1: Ints
    b2: Ints
    d1: Ints
    d2: Ints
    last: Ints


def gammas(problem: Problem) -> Gammas:
    """All non-empty lists Gamma of the problem's usable sizes (paper, eq. 7-10).

    Eq. 7 has no solution when gcd(S1, S2) does not divide n or when S2 b2 > n; those pairs are left out.
    """
    sizes, n = problem.sizes, problem.records
    first, second = np.triu_indices(len(sizes), 1)
    divisor, inverse = _inverses(tuple(sizes.tolist()))
    d1, d2 = sizes[second] // divisor, sizes[first] // divisor
    b2 = ((n // divisor) % d2 * inverse) % d2
    rest = n - b2 * sizes[second]
    some = (n % divisor == 0) & (rest >= 0)
    b1 = rest // sizes[first]
    kept = (a[some] for a in (first, second, b1, b2, d1, d2, b1 // d1))
    return Gammas(*kept)


@lru_cache(maxsize=64)
def _inverses(sizes: tuple[int, ...]) -> tuple[Ints, Ints]:
    """G = gcd(S1, S2) and (S2/g)^-1 mod S1/g for every pair S1 < S2, in the order of ``triu_indices``."""
    pairs = [(a, b, gcd(a, b)) for k, a in enumerate(sizes) for b in sizes[k + 1 :]]
    divisor = np.array([g for _, _, g in pairs], dtype=np.int64)
    inverse = np.array([pow(b // g, -1, a // g) if a > g else 0 for a, b, g in pairs], dtype=np.int64)
    return divisor, inverse


def frontier(problem: Problem) -> tuple[Ints, Ints]:
    """Counts (r,) and staircases (r, K) of the values whose privacy constraints imply all others.

    Staircases are ordered like the thresholds; a value with a lower threshold and more records implies one with
    a higher threshold and fewer.
    """
    order = problem.by_threshold
    counts = problem.counts[order]
    record = np.maximum.accumulate(np.concatenate(([0], counts[:-1])))
    chosen = order[counts > record]
    return problem.counts[chosen], problem.capacity[chosen]


def fill_caps(problem: Problem) -> Ints:
    """For each size (K,) the largest b with sum_i min(F_iS b, o_i) >= S b (the fill constraint FC).

    Newton's method from the right on a concave, piecewise linear function: exact, monotone, few steps.
    """
    caps = [_fill_cap(problem.capacity[:, j], problem.counts, int(s)) for j, s in enumerate(problem.sizes)]
    return np.array(caps, dtype=np.int64)


def _fill_cap(capacity: Ints, counts: Ints, size: int) -> int:
    buckets = int(counts.sum()) // size
    while True:
        filled = capacity * buckets
        short = filled < counts
        excess = int(np.where(short, filled, counts).sum()) - size * buckets
        if excess >= 0:
            return buckets
        slope = size - int(capacity[short].sum())
        buckets = int(counts[~short].sum()) // slope


def best_one_size(problem: Problem) -> Setting | None:
    """Smallest S with S | n and o_i <= F_iS n/S for all i (Lemma 4.13); None if there is none."""
    n = problem.records
    for j, size in enumerate(problem.sizes.tolist()):
        if n % size or (problem.counts > problem.capacity[:, j] * (n // size)).any():
            continue
        sets = ((tree.sums(problem.counts), problem.floors(tree.bounds, problem.sizes[[j]])) for tree in problem.trees)
        if all((records <= room[:, 0] * (n // size)).all() for records, room in sets):
            return Setting.of({size: n // size})
    return None


def best_two_size(problem: Problem) -> Setting | None:
    """The valid setting of at most two sizes with the least Loss; None if there is none."""
    lists = gammas(problem)
    caps = fill_caps(problem)
    low = np.maximum(0, -((caps[lists.first] - lists.b1) // lists.d1))
    high = np.minimum(lists.last, (caps[lists.second] - lists.b2) // lists.d2)
    counts, capacity = frontier(problem)
    needed = [(capacity, capacity, counts)]
    for tree in problem.trees:
        room = problem.floors(tree.bounds, problem.sizes)
        needed.append((room, room, tree.sums(problem.counts)))
    if len(problem.sizes) == 1:
        return best_one_size(problem)
    while True:
        for first, second, needs in needed:
            for lower, upper in _positions(first, second, needs, lists):
                low, high = np.maximum(low, lower), np.minimum(high, upper)
        valid = np.flatnonzero(low <= high)
        best = _cheapest(problem, lists, low, valid) if len(valid) else None
        cut = _broken(problem, best) if best is not None and problem.trees else None
        if cut is None:
            return best
        rows, needs = np.stack([cut.first, cut.second]), np.full(2, cut.need)
        needed = [(rows, rows[::-1], needs)]  # either size may be the first


def _broken(problem: Problem, setting: Setting) -> Cut | None:
    """A condition on pairs of sizes that a setting fails where sets of values are bounded; None if it is valid.

    Each one holds for all pairs and is linear in t, so that the cheapest setting that keeps those met so far is a lower
    bound, and the first that is valid the best one.
    """
    if len(problem.trees) > 1:
        found = crossing.allocate(problem, setting)
        return found if isinstance(found, Cut) else None
    flow = allocate(problem, setting)
    if not flow.unplaced:
        return None
    room = problem.room(flow.blocked)
    return Cut(room, room, int(problem.counts[flow.blocked].sum()))


def _positions(first: Ints, second: Ints, needs: Ints, lists: Gammas) -> Iterator[tuple[Ints, Ints]]:
    """Bounds on t from conditions first . b1 + second . b2 >= need, coefficients (r, K), such as PC for every value.

    A slice of conditions at a time: the product is conditions x pairs.
    """
    for start in range(0, len(needs), 64):
        part = slice(start, start + 64)
        f1, f2 = first[part][:, lists.first], second[part][:, lists.second]
        slack = f1 * lists.b1 + f2 * lists.b2 - needs[part, None]
        slope = f2 * lists.d2 - f1 * lists.d1
        bound = slack // np.where(slope == 0, 1, -slope)  # floor(slack / -slope)
        # slope > 0: t >= ceil(-slack / slope) = -floor(slack / slope); slope < 0: t <= floor(slack / -slope)
        lower = np.where(slope > 0, -(slack // np.where(slope > 0, slope, 1)), 0)
        upper = np.where(slope < 0, bound, np.where((slope == 0) & (slack < 0), -1, FAR))
        yield lower.max(axis=0, initial=0), upper.min(axis=0, initial=FAR)


def _cheapest(problem: Problem, lists: Gammas, position: Ints, valid: NDArray[np.intp]) -> Setting:
    s1, s2 = problem.sizes[lists.first[valid]], problem.sizes[lists.second[valid]]
    b1 = lists.b1[valid] - position[valid] * lists.d1[valid]
    b2 = lists.b2[valid] + position[valid] * lists.d2[valid]
    best = int(np.argmin(b1 * (s1 - 1) ** 2 + b2 * (s2 - 1) ** 2))
    return Setting.of({int(s1[best]): int(b1[best]), int(s2[best]): int(b2[best])})
