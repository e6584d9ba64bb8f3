"""Search for the bucket setting with the least loss among all bucket sizes, with a certified lower bound."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import floor

import highspy
import numpy as np
from numpy.typing import NDArray

from privsql.mechanisms.bucketize.group_flows import Flags, allocate_values, send_records, transport_records
from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Setting

# Programs -------------------------------------------------------------------------------------------------------------
# HiGHS is called directly: scipy.optimize has it too, but takes longer to import than HiGHS takes to solve.

Floats = NDArray[np.float64]


def load_program(cost: Floats, rows: Floats, low: Floats, high: Floats) -> highspy.Highs:
    """Load a linear program into HiGHS: minimize ``cost x`` under ``low <= rows x <= high`` and x >= 0.

    Args:
        cost: The cost of each of K variables (K,).
        rows: The coefficients of R conditions (R, K).
        low: The lower bound of each condition (R,).
        high: The upper bound of each condition (R,).
    """
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = rows.shape
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, np.zeros_like(cost), np.full_like(cost, np.inf)
    program.row_lower_, program.row_upper_ = low, high
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(len(rows) + 1, dtype=np.int32) * len(cost)
    program.a_matrix_.index_ = np.tile(np.arange(len(cost), dtype=np.int32), len(rows))
    program.a_matrix_.value_ = rows.ravel()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(program)
    return solver


def solve_program(solver: highspy.Highs) -> tuple[Floats, Floats] | None:
    """Solve a linear program.

    Returns:
        (the best solution, the dual multiplier of each condition); None if HiGHS finds no optimum. The dual multiplier
        says how much the least cost rises for each unit by which the condition is tightened.
    """
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    found = solver.getSolution()
    return np.array(found.col_value), np.array(found.row_dual)


# Relaxation -----------------------------------------------------------------------------------------------------------
# A setting with b_S buckets of each size S is valid if and only if (Hall/Gale) for every set X of values
#     sum_S rho_S(X) b_S >= sum_{i in X} o_i,       sum_S S b_S = n.
# Here n is the number of records, o_i of them have value i, and rho_S(X) is the most records with values in X in a
# bucket of size S: min(S, sum_{i in X} F_iS), or less if sets of values are bounded (``BucketProblem.room_for``). These
# conditions are linear in b, so the linear program has one variable for each size, however many records and values
# there are. Violated sets X (cuts) are found by maximum flow (``send_records``). With two trees of bounded sets, each
# tree is treated alone. That gives necessary conditions only, which is enough for a lower bound.
#
# The bound needs no trust in a solver: for any multipliers lambda_k >= 0, any mu and l_S <= b_S <= u_S
#     LB = sum_k lambda_k o_k + mu n + sum_S min(r_S l_S, r_S u_S),     r_S = (S-1)^2 - sum_k lambda_k a_kS - mu S
# is a lower bound of every valid Loss, and is evaluated in integers. Cut k has a_kS = rho_S(X_k), and o_k records.

SCALE = 2**40  # fractional settings are written as integers times 1/SCALE
WHOLE = 1e-6  # a number so near to an integer is taken for it
TOLERANCE = 1e-9  # smaller violations, as a share of n, are rounding errors of the linear solver
PRECISION = 2**40  # dual multipliers are rounded to 1/PRECISION


@dataclass
class Relaxation:
    """A linear program that relaxes the search for the best setting: numbers of buckets may be fractions.

    It has K variables, the number of buckets of each usable size divided by the number of records. Its conditions are
    Hall cuts: for a set X of values, the buckets must have room for all records of X. Cuts are added as they turn out
    to be needed. Its solution gives a lower bound for the Loss, the sum of (size - 1)^2 over all buckets.

    Attributes:
        problem: The counts and bounds; they decide which bucket sizes are usable.
        rows: For each cut, how many records of its set fit into one bucket of each usable size (K,).
        needs: For each cut, the number of records of its set.
        sets: For each cut, the codes of the values in its set.
        solution: The number of buckets of each size per record, once the program is solved (K,).
        lower_bound: The certified lower bound for the Loss of every valid setting, as far as it is known.
    """

    problem: BucketProblem
    rows: list[Ints] = field(default_factory=list)  # a_kS = rho_S(X_k), shape (K,)
    needs: list[int] = field(default_factory=list)  # o_k = sum_{i in X_k} o_i
    sets: list[NDArray[np.intp]] = field(default_factory=list)  # X_k
    solution: Floats = field(default_factory=lambda: np.zeros(0))  # b / n, shape (K,), once it is solved
    lower_bound: int = 0

    def add_cut(self, values: Flags | NDArray[np.intp]) -> bool:
        """Add the condition (cut) that buckets have room for all records of a set of values.

        Args:
            values: The set, as flags (m,) or as codes.

        Returns:
            Whether it was added; False if it follows from a known cut.
        """
        row = self.problem.room_for(values)
        need = int(self.problem.counts[values].sum())
        if any(need <= old and (row >= known).all() for known, old in zip(self.rows, self.needs, strict=True)):
            return False
        self.rows.append(row)
        self.needs.append(need)
        self.sets.append(np.flatnonzero(values) if values.dtype == np.bool_ else values.astype(np.intp))
        return True

    def __post_init__(self) -> None:
        """Start with the conditions (cuts) that buckets have room for some sets of values.

        These are single values, the values with the lowest thresholds, and the bounded sets. Among single values with
        the same thresholds in all sizes, the most frequent one is enough.
        """
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
        """Solve the linear program, adding violated conditions (cuts) until none is left.

        Returns:
            Whether it has a solution.
        """
        sizes, none = self.problem.sizes.astype(float), np.zeros_like(self.problem.sizes)
        while True:
            result = self._solve_cuts((sizes - 1) ** 2, np.array(self.rows, dtype=float), sizes)
            if result is None:
                return False
            self.solution, duals = result
            bound, _ = self.certify_bound(duals[:-1], duals[-1], none, self.problem.records // self.problem.sizes)
            self.lower_bound = max(self.lower_bound, -(-bound // PRECISION))
            blocked = self._separate_cut(self.solution)
            if blocked is None or not self.add_cut(blocked):
                return True

    def _solve_cuts(self, cost: Floats, rows: Floats, sizes: Floats) -> tuple[Floats, Floats] | None:
        """Minimize a linear cost under the conditions found so far.

        They are that buckets have room for sets of values (cuts), and that they hold all records.

        Args:
            cost: The cost of each variable.
            rows: The coefficients of the cuts.
            sizes: The coefficients of the last condition.

        Returns:
            (the solution, the dual multipliers); None if there is no optimum.
        """
        needs = np.append(np.array(self.needs, dtype=float) / self.problem.records, 1.0)
        high = np.append(np.full(len(rows), np.inf), 1.0)
        return solve_program(load_program(cost, np.vstack([rows, sizes]), needs, high))

    def find_tightest(self) -> tuple[NDArray[np.intp], int] | None:
        """Find a set of values for which even fractional numbers of buckets have too little room.

        Messages name these values if no valid setting exists.

        Returns:
            (the codes of the values, how many of their records have room). The room is that of the setting in which the
            largest shortage of any set is as small as possible. None if some setting has room for all records.
        """
        sizes, n = self.problem.sizes.astype(float), self.problem.records
        while True:
            rows = np.hstack([np.array(self.rows, dtype=float), np.ones((len(self.rows), 1))])  # last: the shortage
            result = self._solve_cuts(np.append(np.zeros_like(sizes), 1.0), rows, np.append(sizes, 0.0))
            if result is None:
                return None
            share, shortage = result[0][:-1], float(result[0][-1])
            blocked = self._separate_cut(share, shortage + TOLERANCE)
            if blocked is None or not self.add_cut(blocked):
                break
        if shortage < TOLERANCE:
            return None
        worst = int(np.argmax(result[1][:-1]))
        return self.sets[worst], int(float(self.rows[worst] @ share) * n + 1e-6)

    def _separate_cut(self, share: Floats, tolerance: float = TOLERANCE) -> Flags | None:
        """Find a set of values for which a setting with fractional numbers of buckets has too little room.

        Args:
            share: The setting: the number of buckets of each size per record (K,).
            tolerance: The shortage, as a share of all records, that is ignored.

        Returns:
            The set as flags (m,); None if no set has a larger shortage.
        """
        problem, used = self.problem, share > 1e-12
        sizes, fixed = problem.sizes[used], np.floor(share[used] * SCALE).astype(np.int64)
        supply, demand = (problem.counts.astype(object) * SCALE // problem.records).astype(np.int64), sizes * fixed
        # Limits are rounded up: a value that missed its place by rounding would hide a true violation.
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

    def certify_bound(self, multipliers: Floats, price: float, low: Ints, high: Ints) -> tuple[int, list[int]]:
        """Compute an exact lower bound for the Loss, from dual multipliers of the linear program.

        A condition's dual multiplier says how much the least Loss rises for each unit by which it is tightened. The
        multipliers need not be exact, because any multipliers give a valid bound.

        Args:
            multipliers: The dual multiplier of each cut.
            price: The dual multiplier of the condition that buckets hold all records.
            low: The least number of buckets of each size (K,).
            high: The greatest number of buckets of each size (K,).

        Returns:
            (the lower bound, the reduced cost of each size (K,)), both as integers times ``PRECISION``. The reduced
            cost is by how much one more bucket of the size raises the bound.
        """
        weights = [round(max(0.0, v) * PRECISION) for v in multipliers]
        mu, sizes = round(price * PRECISION), self.problem.sizes.tolist()
        bound, reduced = mu * self.problem.records, [(size - 1) ** 2 * PRECISION - mu * size for size in sizes]
        for weight, need, row in zip(weights, self.needs, self.rows, strict=True):
            if weight:
                bound += weight * need
                reduced = [r - weight * a for r, a in zip(reduced, row.tolist(), strict=True)]
        ends = zip(reduced, low.tolist(), high.tolist(), strict=True)
        return bound + sum(r * (least if r > 0 else most) for r, least, most in ends), reduced


def bound_by_size(problem: BucketProblem) -> int:
    """Return a lower bound for the Loss that follows from the usable bucket sizes alone.

    The Loss is the sum of (size - 1)^2 over buckets. The bound is that of as many buckets as possible, of sizes as
    equal as possible. No setting has less: the square is convex, so equal buckets have the least sum, and more buckets
    have a smaller one.
    """
    buckets = problem.records // int(problem.sizes[0])
    size, larger = divmod(problem.records, buckets)
    return larger * size**2 + (buckets - larger) * (size - 1) ** 2


def lower_bound(problem: BucketProblem, loss: int | None = None) -> int:
    """Return a certified lower bound for the Loss of every valid setting; 0 if the linear program can't be solved.

    The Loss is the sum of (size - 1)^2 over all buckets.

    Args:
        problem: The counts and bounds.
        loss: The Loss of a known valid setting, or None. If it is the least that bucket sizes alone allow, it is
            returned, and no linear program is solved.
    """
    if loss == bound_by_size(problem):
        return loss
    relaxation = Relaxation(problem)
    relaxation.solve()
    return relaxation.lower_bound


# Optimal --------------------------------------------------------------------------------------------------------------
# The best setting of any number of sizes, with an exact certificate.
#
# The solution of the linear program (``Relaxation``) is rounded. Branch and bound then splits ranges of the numbers of
# buckets, and adds a cut if a setting in whole numbers turns out to be invalid. Every range gets the exact lower bound
# described above. So if the search ends, the optimum is proved in integers.

MOST_NODES = 4_000  # nodes of branch and bound at most
ROUNDED = 100  # the first ten nodes and then every 100th are rounded to a setting
TINY = 3000  # with fewer records, branch and bound always runs, because rounding can be far off


@dataclass(frozen=True)
class Optimum:
    """The best setting (number of buckets of each size) that was found, and a certified lower bound for the Loss.

    The Loss is the sum of (size - 1)^2 over all buckets. No valid setting has one below the bound.
    """

    setting: Setting
    lower_bound: int


def search_optimum(problem: BucketProblem, start: Setting | None, *, proving: bool = True) -> Optimum | None:
    """Search for the valid setting with the least Loss over all usable sizes; None if no valid setting was found.

    The Loss is the sum of (size - 1)^2 over all buckets. The search is limited by steps, never by seconds, so it gives
    the same setting on every machine.

    Args:
        problem: The counts and bounds.
        start: A valid setting to improve on, such as the best one of two sizes; None if none is known.
        proving: If False and there are many records, the search stops at the first good setting.
    """
    if not len(problem.sizes):
        return None
    if start is not None and start.loss == bound_by_size(problem):
        return Optimum(start, start.loss)
    relaxation = Relaxation(problem)
    if not relaxation.solve():
        return None
    rounded = round_relaxation(relaxation, relaxation.solution)
    best = min((s for s in (start, rounded) if s is not None), key=lambda s: s.loss, default=None)
    if proving or best is None or problem.records < TINY:
        best = _branch_and_bound(relaxation, best)
    return None if best is None else Optimum(best, relaxation.lower_bound)


def _branch_and_bound(relaxation: Relaxation, best: Setting | None) -> Setting | None:
    """Return the best setting found by branch and bound, and raise the relaxation's lower bound to what is proved.

    A range is a least and a greatest number of buckets of each size. The search splits ranges, and continues with the
    one that has the least lower bound for the Loss, the sum of (size - 1)^2 over all buckets. A linear program gives
    this bound. It may violate conditions at a high cost, so it always has a solution. A range without a valid setting
    therefore gets a bound above the Loss of ``best``, and is dropped.

    Args:
        relaxation: The linear program that allows fractional numbers of buckets, solved.
        best: The best valid setting known; None if none is known.
    """
    problem, records, sizes = relaxation.problem, relaxation.problem.records, relaxation.problem.sizes
    columns, price = np.arange(len(sizes) + 2, dtype=np.int32), 10.0 * float(sizes[-1]) ** 2
    rows = np.pad(np.vstack([sizes, *relaxation.rows]).astype(float), ((0, 0), (0, 2)), constant_values=1.0)
    rows[:, -1] = np.where(np.arange(len(rows)) == 0, -1.0, 0.0)
    solver = load_program(
        np.append((sizes - 1.0) ** 2, [price, price]),
        rows,
        np.array([records, *relaxation.needs], dtype=float),
        np.append(float(records), np.full(len(relaxation.needs), np.inf)),
    )
    nodes, pushed = 0, 0
    ranges = [(relaxation.lower_bound, 0, np.zeros_like(sizes), records // sizes)]
    while ranges and nodes < MOST_NODES and (best is None or ranges[0][0] < best.loss):
        bound, _, low, high = heapq.heappop(ranges)
        nodes += 1
        solver.changeColsBounds(len(sizes), columns[:-2], low.astype(float), high.astype(float))
        result = solve_program(solver)
        if result is None:  # a warm start can fail with large numbers
            solver.clearSolver()
            result = solve_program(solver)
        if result is None:  # without duals nothing is proved, so the range stays open
            heapq.heappush(ranges, (bound, pushed - 1, low, high))
            break
        buckets = result[0][:-2]
        scaled, reduced = relaxation.certify_bound(result[1][1:], result[1][0], low, high)
        bound = max(bound, -(-scaled // PRECISION))
        rounded = round_relaxation(relaxation, buckets / records) if nodes < 10 or nodes % ROUNDED == 0 else None
        whole = Setting.from_counts(dict(zip(sizes.tolist(), np.rint(buckets).astype(np.int64).tolist(), strict=True)))
        is_whole = bool((np.abs(buckets - np.rint(buckets)) < WHOLE).all()) and whole.records == records
        flow = allocate_values(problem, whole) if is_whole else None
        for one in (rounded, whole if flow is not None and not flow.unplaced else None):
            if one is not None and (best is None or one.loss < best.loss):
                best = one
        if flow is not None and flow.unplaced and relaxation.add_cut(flow.blocked):
            row = np.append(relaxation.rows[-1], [1.0, 0.0]).astype(float)
            solver.addRow(float(relaxation.needs[-1]), np.inf, len(columns), columns, row)
            parts = [(low, high)]
        else:
            if best is not None:  # reduced costs limit where a better setting can lie
                room = [(best.loss * PRECISION - scaled - 1) // abs(r) if r else records for r in reduced]
                sign = np.sign(np.array(reduced, dtype=object).astype(float))
                width = np.minimum(room, high - low).astype(np.int64)
                low, high = np.where(sign < 0, high - width, low), np.where(sign > 0, low + width, high)
            parts = _split_range(buckets, low, high)
        for least, most in parts:
            pushed -= 1
            heapq.heappush(ranges, (bound, pushed, least, most))
    if best is not None:
        relaxation.lower_bound = min([best.loss, *(bound for bound, *_ in ranges)])
    return best


def _split_range(buckets: Floats, low: Ints, high: Ints) -> list[tuple[Ints, Ints]]:
    """Split a range in two, for branch and bound; a range is a least and a greatest number of buckets of each size.

    It is split at the size whose number of buckets in a fractional solution is furthest from an integer.

    Args:
        buckets: The fractional solution, the number of buckets of each size (K,).
        low: The least number of buckets of each size (K,).
        high: The greatest number of buckets of each size (K,).

    Returns:
        Both parts as (low, high); empty if the range is a single point.
    """
    if not (low < high).any():
        return []
    at = int(np.argmax(np.where(low < high, np.abs(buckets - np.rint(buckets)), -1.0)))
    middle = min(max(floor(buckets[at]), int(low[at])), int(high[at]) - 1)
    below, above = high.copy(), low.copy()
    below[at], above[at] = middle, middle + 1
    return [(low, below), (above, high)]


def round_relaxation(relaxation: Relaxation, share: Floats) -> Setting | None:
    """Round a setting with fractional numbers of buckets to a valid one; None if none of those tried is valid.

    For each size, the number of buckets of this size or larger is rounded up. That keeps all cuts (room for sets of
    values), as each of them grows with these numbers. Then buckets hold too many records, and some numbers are lowered
    where the cuts allow it.

    Args:
        relaxation: The relaxation with its cuts.
        share: The number of buckets of each usable size per record (sizes,).
    """
    problem = relaxation.problem
    gaps = np.diff(problem.sizes, prepend=0)
    rows, needs = np.array(relaxation.rows), np.array(relaxation.needs)
    tails = np.cumsum((share * problem.records)[::-1])[::-1]
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
    """Make buckets smaller until they hold exactly n records; numbers that were rounded up made them hold more.

    In each step, one bucket gets the next smaller size, or is dropped if it has the smallest one. A step must leave
    room for all records of each known set of values (the cuts).

    Args:
        above: The number of buckets of each size or larger, rounded up (K,).
        gaps: The difference of each size to the next smaller one (K,).
        records: The number of records, n.
        rows: How many records of each cut's values fit into a bucket of each size.
        needs: The number of records of each cut's values.
        first: The position of the size to start with.

    Returns:
        The number of buckets of each size (K,); None if n can't be reached within the cuts.
    """
    buckets = above - np.append(above[1:], 0)
    excess = int(gaps @ above) - records
    slack = rows @ buckets - needs
    steps = np.diff(rows, axis=1, prepend=0)  # the room that each cut loses if a tail is lowered by one
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
