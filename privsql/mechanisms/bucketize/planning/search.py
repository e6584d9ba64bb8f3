"""From a problem to a checked plan, or to an explanation of why there is none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.bucketize.model import Plan, Problem, Setting
from privsql.mechanisms.bucketize.planning import heuristics, informative, optimal, pruning, relaxation, twosize
from privsql.mechanisms.bucketize.planning.hall import allocate, violation
from privsql.mechanisms.bucketize.planning.infeasible import explain

if TYPE_CHECKING:
    from collections.abc import Callable

ALGORITHMS = ("anatomy", "one-size", "two-size", "multi-size", "optimal", "informative")


def find(problem: Problem, algorithm: str, *, prune: str = "closed-form", seconds: float = 1.0) -> Plan:
    """The plan of ``algorithm`` for ``problem``, with a certified lower bound of every plan's Loss.

    ``prune`` chooses the search for two sizes, ``seconds`` bounds the time ``optimal`` spends on proving.
    Raises ``InfeasibleError`` with the violated Hall set and the nearest feasible threshold, ``UsageError`` for bounds
    that the algorithm does not keep, and ``GuaranteeError`` if the independent check rejects what a search found.
    """
    _refuse_unbounded(problem, algorithm)
    solve, clock = _solver(algorithm, prune), time.thread_time()
    setting = solve(problem) if len(problem.sizes) else None
    lower_bound, proof, lasted = 0, "none", time.thread_time() - clock
    if algorithm == "optimal" and len(problem.sizes):
        best = optimal.search(problem, setting, seconds)
        if best is not None:
            setting, lower_bound, proof = best.setting, best.lower_bound, best.proof
        lasted = time.thread_time() - clock
    elif setting is not None:
        lower_bound = relaxation.lower_bound(problem)
        proof = "certificate" if lower_bound == setting.loss else "none"
    if setting is None:
        raise explain(problem, algorithm, _exists(algorithm, solve), _unplaced(problem, algorithm))
    if algorithm == "informative":
        allocation, most = informative.divided(problem, setting)
        return checked(problem, Plan(algorithm, setting, allocation, lower_bound, proof, most, lasted))
    allocation = allocate(problem, setting).allocation
    return checked(problem, Plan(algorithm, setting, allocation, lower_bound, proof, seconds=lasted))


def _unplaced(problem: Problem, algorithm: str) -> int | None:
    """Records that an algorithm, which is to place all of them, finds no place for."""
    return informative.unplaced(problem) if algorithm == "informative" and problem.records else None


def _refuse_unbounded(problem: Problem, algorithm: str) -> None:
    """``UsageError`` unless the algorithm keeps the bounds on sets of values exactly."""
    keeping = {0: ALGORITHMS, 1: ALGORITHMS[1:5], 2: ("one-size", "two-size")}[len(problem.trees)]
    if algorithm not in keeping:
        what = "groups that cross each other (of two columns, say)" if len(problem.trees) > 1 else "bounds on groups"
        names = ", ".join(map(repr, keeping))
        raise UsageError(f"mechanism.algorithm: {algorithm!r} does not keep {what}; take one of {names}")


def checked(problem: Problem, plan: Plan) -> Plan:
    """The plan itself if it passes the independent check in exact integers."""
    wrong = violation(problem, plan)
    if wrong:
        raise GuaranteeError(f"the {plan.algorithm} search found a plan that fails its check: {wrong}")
    return plan


def _solver(algorithm: str, prune: str) -> Callable[[Problem], Setting | None]:
    if algorithm == "two-size" and prune != "closed-form":
        return lambda problem: pruning.search(problem, prune)
    return {
        "anatomy": heuristics.anatomy,
        "one-size": twosize.best_one_size,
        "two-size": twosize.best_two_size,
        "multi-size": heuristics.multi_size,
        "optimal": twosize.best_two_size,
        "informative": informative.setting,
    }[algorithm]


def _exists(algorithm: str, solve: Callable[[Problem], Setting | None]) -> Callable[[Problem], bool]:
    """Whether a problem has any plan of this algorithm, quickly."""
    clock = time.monotonic()

    def exists(problem: Problem) -> bool:
        if not len(problem.sizes) or time.monotonic() - clock > 20:
            return False
        if solve(problem) is not None:
            return True
        return algorithm == "optimal" and optimal.search(problem, None, 0.5) is not None

    return exists
