"""Any number of sizes: the optimum with an exact certificate.

The linear program (``relaxation``) is rounded, and then solved in integers around its solution, with further cuts where
its settings turn out not to be valid.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy

from privsql.mechanisms.bucketize.model import Ints, Problem, Setting
from privsql.mechanisms.bucketize.planning.hall import allocate
from privsql.mechanisms.bucketize.planning.relaxation import TOLERANCE, Relaxation

LEAST_SECONDS = 0.2  # that an integer program gets, however late it is
TINY = 3000  # records below which the whole integer program is solved: rounding can be far off there


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
        result = scipy.optimize.milp(
            cost,
            integrality=np.ones(len(cost), dtype=np.int64),
            bounds=scipy.optimize.Bounds(0, (upper - lower).astype(float)),
            constraints=[
                scipy.optimize.LinearConstraint(problem.sizes[None, :].astype(float), rest, rest),
                scipy.optimize.LinearConstraint(
                    np.array(relaxation.rows, dtype=float), np.array(needs, dtype=float), np.inf
                ),
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
