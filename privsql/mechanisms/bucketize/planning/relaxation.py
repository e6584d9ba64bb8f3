"""The linear program over the numbers of buckets: Hall's cuts as they are needed, and a bound that is exact.

Validity is linear in the numbers of buckets b (Hall/Gale): for every set X of values
    sum_S rho_S(X) b_S >= sum_{i in X} o_i,       sum_S S b_S = n,
rho_S(X) = min(S, sum_{i in X} F_iS), or less where sets of values are bounded (``Problem.room``).
So the program has at most M'-M+1 variables whatever n and m are. Cuts X are found by max flow
(``hall.send``); of two trees by one after the other, which is necessary for both together and so enough for a bound.

The bound needs no trust in a solver: for any multipliers lambda_k >= 0
    LB = sum_k lambda_k o_k + n min_S ((S-1)^2 - sum_k lambda_k a_kS) / S
is a lower bound of every valid Loss, and is evaluated in ``Fraction``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from privsql.mechanisms.bucketize.planning.hall import send

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.groups.flow import Flags
    from privsql.mechanisms.bucketize.model import Ints, Problem

Floats = NDArray[np.float64]

SCALE = 2**40  # fixed point in which fractional settings are separated
TOLERANCE = 1e-9  # violations below this share of n are the linear solver's
PRECISION = 10**9  # dual multipliers are rounded to 1/PRECISION


@dataclass
class Relaxation:
    """The linear program over b / n, with the Hall cuts met so far."""

    problem: Problem
    rows: list[Ints] = field(default_factory=list)  # a_kS = rho_S(X_k), shape (K,)
    needs: list[int] = field(default_factory=list)  # o_k = sum_{i in X_k} o_i
    sets: list[NDArray[np.intp]] = field(default_factory=list)  # X_k
    solution: Floats | None = None  # b / n, shape (K,)
    lower_bound: int = 0
    reduced: tuple[Fraction, ...] = ()

    def add(self, values: Flags | NDArray[np.intp]) -> bool:
        """Add the cut of a set of values; False if it is there already."""
        row = self.problem.room(values)
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
        for tree in self.problem.trees:
            for one in tree.bounds:
                self.add(np.array(one.members))

    def solve(self) -> bool:
        """Solve with cuts until no set of values is violated; False if there is no solution at all."""
        sizes, n = self.problem.sizes.astype(float), self.problem.records
        while True:
            result = scipy.optimize.linprog(
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
            result = scipy.optimize.linprog(
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
        sizes = self.problem.sizes[used]
        for tree in self.problem.trees or (None,):
            sets = (tree, self.problem.floors(tree.bounds, sizes) * (fixed + 1)) if tree is not None else None
            blocked = send(supply, limits, sizes * fixed, sets).blocked
            if not blocked.any():
                continue
            short = int(self.problem.counts[blocked].sum()) / self.problem.records
            if short - float(self.problem.room(blocked) @ share) > tolerance:
                return blocked
        return None

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


def lower_bound(problem: Problem) -> int:
    """Certified lower bound of the Loss of every valid setting; 0 if the relaxation can't be solved."""
    relaxation = Relaxation(problem)
    relaxation.solve()
    return relaxation.lower_bound
