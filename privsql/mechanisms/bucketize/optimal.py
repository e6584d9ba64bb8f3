"""Search for the setting of least loss among all bucket sizes, with a certified lower bound."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, lcm
from typing import TYPE_CHECKING

import highspy
import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.bucketize.group_flows import Flags, allocate_values, send_records, transport_records
from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Setting

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.parameters import Proof

# Programs -------------------------------------------------------------------------------------------------------------
# Linear and integer programs by HiGHS itself: scipy.optimize has it too, and takes longer to import than to solve.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ProgramSolution:
    """What HiGHS found: the best x (K,), or None, and the duals (rows,) of ``rows x >= needs``."""

    x: Floats | None
    duals: Floats
    optimal: bool
    infeasible: bool
    nodes: int  # that branch and bound took


def solve_program(
    cost: Floats,
    rows: Floats,
    needs: Floats,
    sizes: Floats,
    records: float,
    most: Floats | None = None,
    nodes: int = 0,
) -> ProgramSolution:
    """Minimise ``cost x`` under ``rows x >= needs`` (R, K), ``sizes x = records`` and ``0 <= x <= most``.

    If ``nodes`` is above 0, x is in integers, and branch and bound takes at most as many nodes.
    """
    matrix, free = np.vstack([rows, sizes]), np.inf
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
    program.col_cost_, program.col_lower_ = cost, np.zeros_like(cost)
    program.col_upper_ = np.full_like(cost, free) if most is None else most
    program.row_lower_, program.row_upper_ = np.append(needs, records), np.append(np.full_like(needs, free), records)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(len(matrix) + 1, dtype=np.int32) * len(cost)
    program.a_matrix_.index_ = np.tile(np.arange(len(cost), dtype=np.int32), len(matrix))
    program.a_matrix_.value_ = matrix.ravel()
    if nodes:
        program.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in {"output_flag": False, "threads": 1, "mip_max_nodes": nodes, "mip_rel_gap": 0.0}.items():
        solver.setOptionValue(option, value)
    solver.passModel(program)
    solver.run()
    status, found, info = solver.getModelStatus(), solver.getSolution(), solver.getInfo()
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return ProgramSolution(
        x=np.array(found.col_value) if feasible else None,
        duals=np.array(found.row_dual[:-1]),
        optimal=status == highspy.HighsModelStatus.kOptimal,
        infeasible=status == highspy.HighsModelStatus.kInfeasible,
        nodes=max(0, info.mip_node_count),
    )


# Relaxation -----------------------------------------------------------------------------------------------------------
# The linear program over the numbers of buckets: Hall's cuts as they are needed, and a bound that is exact.
#
# Validity is linear in the numbers of buckets b (Hall/Gale): for every set X of values
#     sum_S rho_S(X) b_S >= sum_{i in X} o_i,       sum_S S b_S = n,
# rho_S(X) = min(S, sum_{i in X} F_iS), or less where sets of values are bounded (``BucketProblem.room_for``).
# So the program has at most M'-M+1 variables whatever n and m are. Cuts X are found by max flow
# (``send_records``); of two trees by one after the other, which is necessary for both together, so enough for a bound.
#
# The bound needs no trust in a solver: for any multipliers lambda_k >= 0
#     LB = sum_k lambda_k o_k + n min_S ((S-1)^2 - sum_k lambda_k a_kS) / S
# is a lower bound of every valid Loss, and is evaluated in ``Fraction``.

SCALE = 2**40  # fixed point in which fractional settings are separated
TOLERANCE = 1e-9  # violations below this share of n are the linear solver's
PRECISION = 10**9  # dual multipliers are rounded to 1/PRECISION


@dataclass
class Relaxation:
    """The linear program over b / n, with the Hall cuts met so far."""

    problem: BucketProblem
    rows: list[Ints] = field(default_factory=list)  # a_kS = rho_S(X_k), shape (K,)
    needs: list[int] = field(default_factory=list)  # o_k = sum_{i in X_k} o_i
    sets: list[NDArray[np.intp]] = field(default_factory=list)  # X_k
    solution: Floats = field(default_factory=lambda: np.zeros(0))  # b / n, shape (K,), once it is solved
    lower_bound: int = 0
    reduced: tuple[Fraction, ...] = ()

    def add_cut(self, values: Flags | NDArray[np.intp]) -> bool:
        """Add the cut of a set of values; False if it is there already."""
        row = self.problem.room_for(values)
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
        staircases: set[bytes] = set()
        top = 0
        for i in order:
            key = self.problem.capacity[i].tobytes()
            if key not in staircases and self.problem.counts[i] > top:
                self.add_cut(np.array([i]))
                top = int(self.problem.counts[i])
            staircases.add(key)
        for length in np.unique(np.geomspace(1, len(order), 24).astype(int)):
            self.add_cut(order[:length])
        for tree in self.problem.trees:
            for one in tree.bounds:
                self.add_cut(np.array(one.members))

    def solve(self) -> bool:
        """Solve with cuts until no set of values is violated; False if there is no solution at all."""
        sizes = self.problem.sizes.astype(float)
        while True:
            result = self._solve_cuts((sizes - 1) ** 2, np.array(self.rows, dtype=float), sizes)
            if result.x is None:
                return False
            self.solution = result.x
            self._certify_bound(result.duals)
            blocked = self._separate_cut(result.x)
            if blocked is None or not self.add_cut(blocked):
                return True

    def _solve_cuts(self, cost: Floats, rows: Floats, sizes: Floats) -> ProgramSolution:
        """Return the solution of a linear program under the cuts met so far; without x where there is none."""
        needs = np.array(self.needs, dtype=float) / self.problem.records
        result = solve_program(cost, rows, needs, sizes, 1.0)
        return result if result.optimal else replace(result, x=None)

    def find_tightest(self) -> tuple[NDArray[np.intp], int] | None:
        """Return a set of values (indices) with more records than any fractional setting has room for, and that room.

        The room is that of the closest setting, which minimises the largest shortage over all sets. The result is None
        if some setting has no shortage.
        """
        sizes, n = self.problem.sizes.astype(float), self.problem.records
        while True:
            rows = np.hstack([np.array(self.rows, dtype=float), np.ones((len(self.rows), 1))])  # and the shortage
            result = self._solve_cuts(np.append(np.zeros_like(sizes), 1.0), rows, np.append(sizes, 0.0))
            if result.x is None:
                return None
            blocked = self._separate_cut(result.x[:-1], float(result.x[-1]) + TOLERANCE)
            if blocked is None or not self.add_cut(blocked):
                break
        if result.x[-1] < TOLERANCE:
            return None
        worst = int(np.argmax(result.duals))
        return self.sets[worst], int(float(self.rows[worst] @ result.x[:-1]) * n + 1e-6)

    def _separate_cut(self, share: Floats, tolerance: float = TOLERANCE) -> Flags | None:
        """Return a set of values that the fractional setting ``share`` = b / n violates by above ``tolerance`` * n."""
        problem, used = self.problem, share > 1e-12
        sizes, fixed = problem.sizes[used], np.floor(share[used] * SCALE).astype(np.int64)
        supply, demand = (problem.counts.astype(object) * SCALE // problem.records).astype(np.int64), sizes * fixed
        # Limits are rounded up: a tight value that misses its place by rounding would hide a true violation.
        limits = problem.capacity[:, used] * (fixed + 1)
        flows = (
            send_records(tree, supply, limits, problem.bound_floors(tree.bounds, sizes) * (fixed + 1), demand)
            for tree in problem.trees
        )
        for flow in flows if problem.trees else [transport_records(supply, limits, demand)]:
            short = int(problem.counts[flow.blocked].sum()) / problem.records
            if flow.blocked.any() and short - float(problem.room_for(flow.blocked) @ share) > tolerance:
                return flow.blocked
        return None

    def _certify_bound(self, multipliers: Floats) -> None:
        """Compute an exact lower bound from rounded duals; keep the best one and its reduced costs."""
        weights = [round(max(0.0, v) * PRECISION) for v in multipliers]  # in 1/PRECISION
        active = [(w, need, row.tolist()) for w, need, row in zip(weights, self.needs, self.rows, strict=True) if w]
        base = sum(w * need for w, need, _ in active)
        sizes = self.problem.sizes.tolist()
        cost = [(size - 1) ** 2 * PRECISION - sum(w * row[j] for w, _, row in active) for j, size in enumerate(sizes)]
        level = min(Fraction(c, size) for c, size in zip(cost, sizes, strict=True))
        bound = ceil((base + self.problem.records * level) / PRECISION)
        if bound >= self.lower_bound:
            self.lower_bound = bound
            self.reduced = tuple((c - level * size) / PRECISION for c, size in zip(cost, sizes, strict=True))


def bound_by_size(problem: BucketProblem) -> int:
    """Return the Loss of the most buckets that sizes allow, as equal as can be: no setting has less.

    (S - 1)^2 is convex, so that equal buckets have the least sum of as many, and more buckets have less.
    """
    buckets = problem.records // int(problem.sizes[0])
    size, larger = divmod(problem.records, buckets)
    return larger * size**2 + (buckets - larger) * (size - 1) ** 2


def lower_bound(problem: BucketProblem, loss: int | None = None) -> int:
    """Return a certified lower bound of the Loss of every valid setting; 0 if the relaxation can't be solved.

    ``loss`` is that of a valid setting. If it is the least that sizes allow, no relaxation is solved.
    """
    if loss == bound_by_size(problem):
        return loss
    relaxation = Relaxation(problem)
    relaxation.solve()
    return relaxation.lower_bound


# Optimal --------------------------------------------------------------------------------------------------------------
# Any number of sizes: the optimum with an exact certificate.
#
# The linear program (``Relaxation``) is rounded, and then solved in integers around its solution, with further cuts
# where its settings turn out not to be valid.

MOST_NODES = 1_000  # of branch and bound, in all integer programs of one box, each with one more cut
LEAST_NODES = 20  # that an integer program counts for, however few it takes
MOST_STEPS = 100_000  # of an exact enumeration
TINY = 3000  # records below which the whole integer program is solved: rounding can be far off there


@dataclass(frozen=True)
class Optimum:
    """The best setting found, its certified lower bound and how far optimality is shown.

    The ``proof`` is a certificate if the exact bound equals the loss, and the solver's if branch and bound closed the
    gap in floating point.
    """

    setting: Setting
    lower_bound: int
    proof: Proof


def search_optimum(problem: BucketProblem, start: Setting | None, *, proving: bool = True) -> Optimum | None:
    """Return the setting of least Loss over all usable sizes; None if none is found to exist.

    Nodes are counted, never seconds, so that the same problem has the same setting on any machine and at any load.

    Args:
        problem: The counts and bounds.
        start: A valid setting to improve on, such as the best one of two sizes.
        proving: If False, a setting beside the relaxation will do, if there is one and records are many.
    """
    if not len(problem.sizes):
        return None
    if start is not None and start.loss == bound_by_size(problem):
        return Optimum(start, start.loss, "certificate")
    relaxation = Relaxation(problem)
    if not relaxation.solve():
        return None
    best = min((s for s in (start, round_relaxation(relaxation)) if s is not None), key=lambda s: s.loss, default=None)
    proved = False
    near = best is not None and not proving
    for width in (None,) if problem.records < TINY else () if near else (3, 12, None):
        if best is not None and best.loss == relaxation.lower_bound:
            break
        candidate, proved = _solve_integer(relaxation, best, width)
        if candidate is not None and (best is None or candidate.loss < best.loss):
            best = candidate
    if best is None:
        return None
    if best.loss > relaxation.lower_bound and relaxation.reduced and problem.records < TINY:
        best, exact = _enumerate_better(relaxation, best)
        relaxation.lower_bound = best.loss if exact else relaxation.lower_bound
    if best.loss == relaxation.lower_bound:
        return Optimum(best, relaxation.lower_bound, "certificate")
    return Optimum(best, relaxation.lower_bound, "solver" if proved else "none")


def _enumerate_better(relaxation: Relaxation, best: Setting) -> tuple[Setting, bool]:
    """Return the best setting, and whether no other has less loss, in exact integers.

    All settings that could have less are looked at. A valid b has Loss >= LB + sum_S r_S b_S, r_S the reduced costs of
    the certificate. So sum_S r_S b_S < best - LB, which leaves few b if the gap is small. After ``MOST_STEPS`` steps it
    is undecided.
    """
    problem, steps = relaxation.problem, 0
    scale = lcm(*(r.denominator for r in relaxation.reduced))
    order = sorted(range(len(problem.sizes)), key=lambda j: -relaxation.reduced[j])
    sizes = [int(problem.sizes[j]) for j in order]
    costs = [int(relaxation.reduced[j] * scale) for j in order]
    stack: list[tuple[int, int, int, tuple[tuple[int, int], ...]]] = [(0, problem.records, 0, ())]
    while stack:
        at, rest, cost, chosen = stack.pop()
        steps += 1
        if steps > MOST_STEPS:
            return best, False
        if rest == 0:
            setting = Setting.from_counts(dict(chosen))
            if setting.loss < best.loss and not allocate_values(problem, setting).unplaced:
                best = setting
            continue
        slack = (best.loss - relaxation.lower_bound) * scale - cost
        for j in range(at, len(sizes)):
            most = rest // sizes[j] if not costs[j] else min(rest // sizes[j], (slack - 1) // costs[j])
            for number in range(1, most + 1):
                more = (*chosen, (sizes[j], number))
                stack.append((j + 1, rest - number * sizes[j], cost + number * costs[j], more))
    return best, True


def round_relaxation(relaxation: Relaxation) -> Setting | None:
    """Return a valid setting beside the relaxation, in a few steps; None if none of those tried is valid.

    Let C_j be the number of buckets of size S_j or larger. Hall's conditions are sum_j (a_j - a_(j-1)) C_j >= o with
    increments >= 0, so rounding every C_j up keeps them all. Then there are too many records, sum_j (S_j - S_(j-1)) C_j
    of them; the excess is taken off where it keeps the conditions.
    """
    problem = relaxation.problem
    gaps = np.diff(problem.sizes, prepend=0)
    rows, needs = np.array(relaxation.rows), np.array(relaxation.needs)
    tails = np.cumsum((relaxation.solution * problem.records)[::-1])[::-1]
    for extra in range(6):
        above = np.ceil(tails - TOLERANCE).astype(np.int64) + extra
        for first in range(len(gaps)):
            buckets = _lower_tails(above, gaps, problem.records, rows, needs, first)
            if buckets is None:
                continue
            setting = Setting.from_counts(dict(zip(problem.sizes.tolist(), buckets.tolist(), strict=True)))
            if not allocate_values(problem, setting).unplaced:
                return setting
    return None


def _lower_tails(above: Ints, gaps: Ints, records: int, rows: Ints, needs: Ints, first: int) -> Ints | None:
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


def _solve_integer(relaxation: Relaxation, best: Setting | None, width: int | None) -> tuple[Setting | None, bool]:
    """Solve the integer program in a box of ``width`` around the relaxation (None: everywhere), with cuts as needed.

    Variables are offsets from the lower corner of the box, so that the numbers stay small however large n is. Without a
    width, the box is what reduced costs leave open under the best loss.

    Returns:
        The best valid setting, and whether the solver claims that there is none better anywhere.
    """
    problem = relaxation.problem
    upper = problem.records // problem.sizes
    lower = np.zeros_like(upper)
    if width is not None:
        centre = np.floor(relaxation.solution * problem.records).astype(np.int64)
        lower, upper = np.maximum(0, centre - width), np.minimum(upper, centre + width + 1)
    elif best is not None:
        slack = best.loss - relaxation.lower_bound + 1
        room = [int(slack / r) if r > 0 else b for r, b in zip(relaxation.reduced, upper.tolist(), strict=True)]
        upper = np.minimum(upper, np.array(room, dtype=np.int64))
    sizes, rest = problem.sizes.astype(float), problem.records - int(problem.sizes @ lower)
    left = MOST_NODES
    while left > 0:
        needs = [o - int(r @ lower) for r, o in zip(relaxation.rows, relaxation.needs, strict=True)]
        result = solve_program(
            (sizes - 1) ** 2,
            np.array(relaxation.rows, dtype=float),
            np.array(needs, dtype=float),
            sizes,
            float(rest),
            (upper - lower).astype(float),
            left,
        )
        left -= max(LEAST_NODES, result.nodes)
        if result.x is None:
            return None, result.infeasible and width is None
        offsets = np.rint(result.x).astype(np.int64)
        setting = Setting.from_counts(dict(zip(problem.sizes.tolist(), (lower + offsets).tolist(), strict=True)))
        if setting.records != problem.records:
            return None, False
        flow = allocate_values(problem, setting)
        if not flow.unplaced:
            return setting, result.optimal and width is None
        if not relaxation.add_cut(flow.blocked):
            return None, False
    return None, False
