"""Any number of sizes: the optimum with an exact certificate.

Validity is linear in the numbers of buckets b (Hall/Gale): for every set X of values
    sum_S min(S, sum_{i in X} F_iS) b_S >= sum_{i in X} o_i,       sum_S S b_S = n.
So the search is a program in at most M'-M+1 variables whatever n and m are. Cuts X are found by max flow
(``hall.transport``): first for the linear program, then for the integer program around its solution.

The certificate needs no trust in a solver: for any multipliers lambda_k >= 0
    LB = sum_k lambda_k o_k + n min_S ((S-1)^2 - sum_k lambda_k a_kS) / S
is a lower bound of every valid Loss, and is evaluated in ``Fraction``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from privsql.mechanisms.bucketize.hall import Flags, allocate, transport
from privsql.mechanisms.bucketize.model import Ints, Problem, Setting

Floats = NDArray[np.float64]

LEAST_SECONDS = 0.2  # that an integer program gets, however late it is
TINY = 3000  # records below which the whole integer program is solved: rounding can be far off there
SCALE = 2**40  # fixed point in which fractional settings are separated
TOLERANCE = 1e-9  # violations below this share of n are the linear solver's
PRECISION = 10**9  # dual multipliers are rounded to 1/PRECISION


@dataclass
class Relaxation:
    """The linear program over b / n, with the Hall cuts met so far."""

    problem: Problem
    rows: list[Ints] = field(default_factory=list)  # a_kS = min(S, sum_{i in X_k} F_iS), shape (K,)
    needs: list[int] = field(default_factory=list)  # o_k = sum_{i in X_k} o_i
    sets: list[NDArray[np.intp]] = field(default_factory=list)  # X_k
    solution: Floats | None = None  # b / n, shape (K,)
    lower_bound: int = 0
    reduced: tuple[Fraction, ...] = ()

    def add(self, values: Flags | NDArray[np.intp]) -> bool:
        """Add the cut of a set of values; False if it is there already."""
        row = np.minimum(self.problem.sizes, self.problem.capacity[values].sum(axis=0))
        need = int(self.problem.counts[values].sum())
        if any(need <= old and (row >= known).all() for known, old in zip(self.rows, self.needs, strict=True)):
            return False
        self.rows.append(row)
        self.needs.append(need)
        self.sets.append(np.flatnonzero(values) if values.dtype == np.bool_ else values.astype(np.intp))
        return True

    def __post_init__(self) -> None:
        """Start from single values (the largest of equal staircases) and prefixes in threshold order."""
        order = self.problem.by_threshold
        seen: set[bytes] = set()
        top = 0
        for i in order:
            key = self.problem.capacity[i].tobytes()
            if key not in seen and self.problem.counts[i] > top:
                self.add(np.array([i]))
                top = int(self.problem.counts[i])
            seen.add(key)
        for length in np.unique(np.geomspace(1, len(order), 24).astype(int)):
            self.add(order[:length])

    def solve(self) -> bool:
        """Solve with cuts until no set of values is violated; False if there is no solution at all."""
        sizes, n = self.problem.sizes.astype(float), self.problem.records
        while True:
            result = linprog(
                (sizes - 1) ** 2,
                A_ub=-np.array(self.rows, dtype=float),
                b_ub=-np.array(self.needs, dtype=float) / n,
                A_eq=sizes[None, :],
                b_eq=[1.0],
                method="highs",
            )
            if result.status != 0 or result.x is None:
                return False
            self.solution = result.x
            self._certify(-result.ineqlin.marginals)
            blocked = self._separate(result.x)
            if blocked is None or not self.add(blocked):
                return True

    def tightest(self) -> tuple[NDArray[np.intp], int] | None:
        """A set of values (indices) with more records than the closest fractional setting has room for, and that room.

        The closest setting minimises the largest shortage over all sets. None if some setting has no shortage.
        """
        sizes, n = self.problem.sizes.astype(float), self.problem.records
        while True:
            shortage = -np.ones((len(self.rows), 1))
            result = linprog(
                np.append(np.zeros_like(sizes), 1.0),
                A_ub=np.hstack([-np.array(self.rows, dtype=float), shortage]),
                b_ub=-np.array(self.needs, dtype=float) / n,
                A_eq=np.append(sizes, 0.0)[None, :],
                b_eq=[1.0],
                method="highs",
            )
            if result.status != 0 or result.x is None:
                return None
            blocked = self._separate(result.x[:-1], float(result.x[-1]) + TOLERANCE)
            if blocked is None or not self.add(blocked):
                break
        if result.x[-1] < TOLERANCE:
            return None
        worst = int(np.argmin(result.ineqlin.marginals))
        return self.sets[worst], int(float(self.rows[worst] @ result.x[:-1]) * n + 1e-6)

    def _separate(self, share: Floats, tolerance: float = TOLERANCE) -> Flags | None:
        """A set of values that the fractional setting ``share`` = b / n violates by more than ``tolerance`` * n."""
        used = share > 1e-12
        fixed = np.floor(share[used] * SCALE).astype(np.int64)
        supply = (self.problem.counts.astype(object) * SCALE // self.problem.records).astype(np.int64)
        # Limits are rounded up: a tight value that misses its place by rounding would hide a true violation.
        limits = self.problem.capacity[:, used] * (fixed + 1)
        flow = transport(supply, limits, self.problem.sizes[used] * fixed)
        if not flow.blocked.any():
            return None
        row = np.minimum(self.problem.sizes, self.problem.capacity[flow.blocked].sum(axis=0))
        short = int(self.problem.counts[flow.blocked].sum()) / self.problem.records - float(row @ share)
        return flow.blocked if short > tolerance else None

    def _certify(self, multipliers: Floats) -> None:
        """Exact lower bound from rounded duals; keeps the best one and its reduced costs."""
        weights = [(Fraction(round(max(0.0, v) * PRECISION), PRECISION), k) for k, v in enumerate(multipliers)]
        active = [(w, k) for w, k in weights if w]
        base = sum((w * self.needs[k] for w, k in active), Fraction(0))
        cost = [
            (int(s) - 1) ** 2 - sum((w * int(self.rows[k][j]) for w, k in active), Fraction(0))
            for j, s in enumerate(self.problem.sizes)
        ]
        level = min(c / int(s) for c, s in zip(cost, self.problem.sizes, strict=True))
        bound = ceil(base + self.problem.records * level)
        if bound >= self.lower_bound:
            self.lower_bound = bound
            self.reduced = tuple(c - level * int(s) for c, s in zip(cost, self.problem.sizes, strict=True))


@dataclass(frozen=True)
class Optimum:
    """The best setting found, its certified lower bound and how far optimality is shown.

    ``proof``: ``"certificate"`` (the exact bound equals the loss), ``"solver"`` (branch and bound closed the
    gap, in floating point) or ``"none"``.
    """

    setting: Setting
    lower_bound: int
    proof: str


def search(problem: Problem, start: Setting | None, seconds: float) -> Optimum | None:
    """Least-Loss setting over all usable sizes; None if none is found to exist.

    ``start`` is a valid setting to improve on (from two sizes, say); ``seconds`` bounds the time for proving.
    """
    clock = time.monotonic()
    if not len(problem.sizes):
        return None
    relaxation = Relaxation(problem)
    if not relaxation.solve() or relaxation.solution is None:
        return None
    best = min((s for s in (start, rounded(relaxation)) if s is not None), key=lambda s: s.loss, default=None)
    proved = False
    for width in (None,) if problem.records < TINY else (3, 12, None):
        left = seconds - (time.monotonic() - clock)
        if best is not None and (best.loss == relaxation.lower_bound or left <= 0):
            break
        share = left if width is None else left / 2  # a small box may be hard, or empty
        found, proved = _integer(relaxation, best, width, max(share, LEAST_SECONDS))
        if found is not None and (best is None or found.loss < best.loss):
            best = found
    if best is None:
        return None
    if best.loss == relaxation.lower_bound:
        return Optimum(best, relaxation.lower_bound, "certificate")
    return Optimum(best, relaxation.lower_bound, "solver" if proved else "none")


def lower_bound(problem: Problem) -> int:
    """Certified lower bound of the Loss of every valid setting; 0 if the relaxation can't be solved."""
    relaxation = Relaxation(problem)
    relaxation.solve()
    return relaxation.lower_bound


def rounded(relaxation: Relaxation) -> Setting | None:
    """A valid setting beside the relaxation, in a few steps; None if none of those tried is valid.

    Let C_j be the number of buckets of size S_j or larger. Hall's conditions are sum_j (a_j - a_(j-1)) C_j >= o with
    increments >= 0, so rounding every C_j up keeps them all. Then there are too many records, sum_j (S_j - S_(j-1)) C_j
    of them; the excess is taken off where it keeps the conditions.
    """
    if relaxation.solution is None:
        return None
    problem = relaxation.problem
    gaps = np.diff(problem.sizes, prepend=0)
    rows, needs = np.array(relaxation.rows), np.array(relaxation.needs)
    tails = np.cumsum((relaxation.solution * problem.records)[::-1])[::-1]
    for extra in range(6):
        above = np.ceil(tails - TOLERANCE).astype(np.int64) + extra
        for first in range(len(gaps)):
            buckets = _lowered(above, gaps, problem.records, rows, needs, first)
            if buckets is None:
                continue
            setting = Setting.of(dict(zip(problem.sizes.tolist(), buckets.tolist(), strict=True)))
            if not allocate(problem, setting).unplaced:
                return setting
    return None


def _lowered(above: Ints, gaps: Ints, records: int, rows: Ints, needs: Ints, first: int) -> Ints | None:
    """Lower tails one by one, cyclically from ``first``, where the known cuts allow it, until n is met; b (K,)."""
    buckets = above - np.append(above[1:], 0)
    excess = int(gaps @ above) - records
    slack = rows @ buckets - needs
    steps = np.diff(rows, axis=1, prepend=0)  # what one tail less takes from each cut
    order = np.roll(np.arange(len(gaps)), -first)
    moved = True
    while excess > 0 and moved:
        moved = False
        for j in order.tolist():
            if gaps[j] <= excess and buckets[j] > 0 and (slack >= steps[:, j]).all():
                buckets[j] -= 1
                if j:
                    buckets[j - 1] += 1
                slack -= steps[:, j]
                excess -= int(gaps[j])
                moved = True
    return buckets if excess == 0 else None


def _integer(
    relaxation: Relaxation, best: Setting | None, width: int | None, seconds: float
) -> tuple[Setting | None, bool]:
    """Integer program in a box of ``width`` around the relaxation (None: everywhere), with cuts as needed.

    Returns the best valid setting and whether the solver claims that there is none better anywhere. Variables are
    offsets from the lower corner of the box, so that the numbers stay small however large n is.
    """
    problem, deadline = relaxation.problem, time.monotonic() + seconds
    lower, upper = _box(relaxation, best, width)
    base = [int(v) for v in lower]
    rest = problem.records - sum(int(s) * b for s, b in zip(problem.sizes, base, strict=True))
    cost = (problem.sizes.astype(float) - 1) ** 2
    while (left := deadline - time.monotonic()) > 0:
        needs = [o - int(r @ lower) for r, o in zip(relaxation.rows, relaxation.needs, strict=True)]
        result = milp(
            cost,
            integrality=np.ones(len(cost), dtype=np.int64),
            bounds=Bounds(0, (upper - lower).astype(float)),
            constraints=[
                LinearConstraint(problem.sizes[None, :].astype(float), rest, rest),
                LinearConstraint(np.array(relaxation.rows, dtype=float), np.array(needs, dtype=float), np.inf),
            ],
            options={"time_limit": left, "mip_rel_gap": 0.0},
        )
        if result.x is None:
            return None, result.status == 2 and width is None
        offsets = np.rint(result.x).astype(np.int64)
        setting = Setting.of(dict(zip(problem.sizes.tolist(), (lower + offsets).tolist(), strict=True)))
        if setting.records != problem.records:
            return None, False
        flow = allocate(problem, setting)
        if not flow.unplaced:
            return setting, result.status == 0 and width is None
        if not relaxation.add(flow.blocked):
            return None, False
    return None, False


def _box(relaxation: Relaxation, best: Setting | None, width: int | None) -> tuple[Ints, Ints]:
    """Bounds on b (K,): around the relaxation, or those that reduced costs leave open under the best loss."""
    problem = relaxation.problem
    most = problem.records // problem.sizes
    if width is not None and relaxation.solution is not None:
        centre = np.floor(relaxation.solution * problem.records).astype(np.int64)
        return np.maximum(0, centre - width), np.minimum(most, centre + width + 1)
    if best is None:
        return np.zeros_like(most), most
    slack = best.loss - relaxation.lower_bound + 1
    room = [int(slack / r) if r > 0 else int(b) for r, b in zip(relaxation.reduced, most, strict=True)]
    return np.zeros_like(most), np.minimum(most, np.array(room, dtype=np.int64))
