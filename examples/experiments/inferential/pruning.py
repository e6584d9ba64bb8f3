"""The paper's own searches for two sizes, to compare with the closed form (paper, section 5.1).

``none`` validates every pair of every list Gamma, ``loss`` only the prefix that can beat the best loss so far (Lemma
5.25), ``full`` also finds the first valid pair by binary search (Theorem 5.30). All return what
``search.best_two_size`` returns; only the time differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privsql.exact import parse_linear
from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Setting
from privsql.mechanisms.bucketize.search import best_one_size, make_gammas

if TYPE_CHECKING:
    from pathlib import Path

PRUNINGS = ("none", "loss", "full")
CHUNK = 4096
Condition = Callable[[Ints], NDArray[np.bool_]]


@dataclass(frozen=True)
class _Gamma:
    """One list Gamma(S1, S2) with what is needed to validate its pairs."""

    counts: Ints
    f1: Ints
    f2: Ints
    sizes: tuple[int, int]
    start: tuple[int, int]
    step: tuple[int, int]
    last: int

    def pair_at(self, t: int) -> tuple[int, int]:
        return self.start[0] - t * self.step[0], self.start[1] + t * self.step[1]

    def loss_at(self, t: int) -> int:
        b1, b2 = self.pair_at(t)
        return int(b1 * (self.sizes[0] - 1) ** 2 + b2 * (self.sizes[1] - 1) ** 2)

    def is_private(self, positions: Ints) -> NDArray[np.bool_]:
        """PC for each value and position (m, t)."""
        u1, u2 = self._limits_at(positions)
        o = self.counts[:, None]
        return np.minimum(u1, o) + np.minimum(u2, o) >= o

    def is_filled(self, positions: Ints) -> NDArray[np.bool_]:
        """FC for each of the two sizes and each position (2, t)."""
        o = self.counts[:, None]
        pairs = zip(self._limits_at(positions), self._buckets_at(positions), self.sizes, strict=True)
        return np.array([np.minimum(u, o).sum(axis=0) >= size * b for u, b, size in pairs])

    def _buckets_at(self, t: Ints) -> tuple[Ints, Ints]:
        return self.start[0] - t * self.step[0], self.start[1] + t * self.step[1]

    def _limits_at(self, t: Ints) -> tuple[Ints, Ints]:
        b1, b2 = self._buckets_at(t)
        return self.f1[:, None] * b1, self.f2[:, None] * b2

    def last_below(self, best: int) -> int:
        """The last position whose loss is below ``best`` (eq. 11); -1 if there is none."""
        low, high = -1, self.last
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.loss_at(middle) < best else (low, middle - 1)
        return low


def search_pruned(problem: BucketProblem, prune: str) -> Setting | None:
    """Best setting of at most two sizes by the paper's search ``prune`` = none | loss | full."""
    best = best_one_size(problem) if len(problem.sizes) == 1 else None
    for gamma in _make_lists(problem):
        limit = best.loss if best else None
        last = gamma.last if prune == "none" or limit is None else gamma.last_below(limit)
        first = _first_by_bisection(gamma, last) if prune == "full" else _first_by_scan(gamma, last, prune)
        if first is not None and (limit is None or gamma.loss_at(first) < limit):
            best = Setting.from_counts(dict(zip(gamma.sizes, gamma.pair_at(first), strict=True)))
    return best


def _make_lists(problem: BucketProblem) -> list[_Gamma]:
    lists, sizes, capacity = make_gammas(problem), problem.sizes.tolist(), problem.capacity
    return [
        _Gamma(
            problem.counts,
            capacity[:, i],
            capacity[:, j],
            (sizes[i], sizes[j]),
            (int(lists.b1[p]), int(lists.b2[p])),
            (int(lists.d1[p]), int(lists.d2[p])),
            int(lists.last[p]),
        )
        for p, (i, j) in enumerate(zip(lists.first.tolist(), lists.second.tolist(), strict=True))
    ]


def _first_by_scan(gamma: _Gamma, last: int, prune: str) -> int | None:
    """First valid position up to ``last``; without pruning all positions are validated all the same."""
    first = None
    for start in range(0, last + 1, CHUNK):
        positions = np.arange(start, min(last + 1, start + CHUNK), dtype=np.int64)
        valid = np.flatnonzero(gamma.is_private(positions).all(axis=0) & gamma.is_filled(positions).all(axis=0))
        if len(valid) and first is None:
            first = start + int(valid[0])
            if prune == "loss":
                break
    return first


def _first_by_bisection(gamma: _Gamma, last: int) -> int | None:
    """Intersect the sublists on which each condition holds, each found by binary search (Theorem 5.30).

    Every condition is monotone or anti-monotone in t (Lemmas 5.26 and 5.28), so it holds on a prefix, on a suffix,
    everywhere or nowhere; a concave one is decided by its two ends.
    """
    if last < 0:
        return None
    ends = np.array([0, last], dtype=np.int64)
    conditions: list[tuple[NDArray[np.bool_], Condition]] = [
        (gamma.is_private(ends), gamma.is_private),
        (gamma.is_filled(ends), gamma.is_filled),
    ]
    low, high = 0, last
    for at_ends, holds in conditions:
        if (~at_ends).all(axis=1).any():
            return None
        rising, falling = ~at_ends[:, 0], ~at_ends[:, 1]
        low = max(low, _first_position(holds, rising, last))
        high = min(high, last - _first_position(_reverse_condition(holds, last), falling, last))
    return low if low <= high else None


def _reverse_condition(holds: Condition, last: int) -> Condition:
    return lambda positions: holds(last - positions)


def _first_position(holds: Condition, chosen: NDArray[np.bool_], last: int) -> int:
    """First position at which the chosen conditions hold; they are monotone and hold at ``last``."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        met = bool(holds(np.array([middle], dtype=np.int64))[chosen].all())
        low, high = (low, middle) if met else (middle + 1, high)
    return low


def read_problem(path: Path, column: str, rule: str, largest: int = 50) -> BucketProblem:
    """Return the problem of a table's sensitive column, whose thresholds follow a rule in the frequency."""
    values = pq.read_table(path, columns=[column])[column].combine_chunks()
    counts = values.value_counts().field("counts").to_numpy()
    line, records = parse_linear(rule), int(counts.sum())
    thresholds = tuple(line.threshold_at(Fraction(int(count), records)) for count in counts)
    return BucketProblem(counts.astype(np.int64), thresholds, 1, largest)


def pruned_search_seconds(problem: BucketProblem, pruning: str) -> float:
    """Return the seconds of a processor that a search takes."""
    clock = time.thread_time()
    search_pruned(problem, pruning)
    return time.thread_time() - clock
