"""Why there is no plan: the violated Hall set of values, and the nearest thresholds that work."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.exact import text
from privsql.mechanisms.bucketize.optimal import search
from privsql.mechanisms.bucketize.relaxation import Relaxation

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.bucketize.model import Problem

STEP = 10**4  # nearest thresholds are sought on a grid of 1/STEP
SHOWN = 8  # values that a message names


def explain(problem: Problem, algorithm: str, exists: Callable[[Problem], bool]) -> InfeasibleError:
    """The error for a problem without a plan: which values, which bound, and what would work."""
    n = problem.records
    if n == 0:
        return InfeasibleError("the source has no records to publish")
    details: dict[str, object] = {}
    reason = _rare_threshold(problem, details) or _hall(problem, details) or _shape(problem, algorithm)
    return InfeasibleError(f"{reason}; {_remedy(problem, algorithm, exists, details)}", details)


def _rare_threshold(problem: Problem, details: dict[str, object]) -> str | None:
    """f'_i < f_i for some value: no bucketization at all (Lemma 3.7)."""
    n = problem.records
    worst = max(range(len(problem.counts)), key=lambda i: Fraction(int(problem.counts[i]), n) / problem.thresholds[i])
    frequency, threshold = Fraction(int(problem.counts[worst]), n), problem.thresholds[worst]
    if frequency <= threshold:
        return None
    details |= {
        "hall_set": [problem.label(worst)],
        "records": int(problem.counts[worst]),
        "room": int(n * threshold),
    }
    return (
        f"value {problem.label(worst)} has frequency {float(frequency):.6g} above its threshold {float(threshold):.6g}"
    )


def _hall(problem: Problem, details: dict[str, object]) -> str | None:
    """A set of values with more records than any setting of these sizes has room for."""
    if not len(problem.sizes):
        return None
    found = Relaxation(problem).tightest()
    if found is None:
        return None
    values, room = found
    records = int(problem.counts[values].sum())
    names = [problem.label(int(i)) for i in values]
    details |= {"hall_set": names, "records": records, "room": room}
    listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    sizes = f"{int(problem.sizes[0])}..{int(problem.sizes[-1])}"
    held = problem.capacity[values].sum(axis=0).tolist()
    shares = (Fraction(min(s, c), s) for s, c in zip(problem.sizes.tolist(), held, strict=True))
    best = int(problem.records * max(shares))
    if best < records:
        details["room"] = best
        return (
            f"the values {{{listed}}} have {records} records, but buckets of sizes {sizes} have room for {best} of them"
        )
    closest = f"the closest have room for {room} of {records} records of {{{listed}}}"
    return f"no buckets of sizes {sizes} suit all values: {closest}"


def _shape(problem: Problem, algorithm: str) -> str:
    """Neither: sizes that do not add up, or an algorithm that is narrower than the problem."""
    if not len(problem.sizes):
        need = min(ceil(1 / f) for f in problem.thresholds)
        return (
            f"no bucket size from {max(need, problem.smallest)} to {min(problem.largest, problem.records)} can be "
            f"filled ({problem.records} records, thresholds need at least {need})"
        )
    span = f"{int(problem.sizes[0])}..{int(problem.sizes[-1])}"
    return f"no {algorithm} setting of sizes {span} fits {problem.records} records"


def _remedy(problem: Problem, algorithm: str, exists: Callable[[Problem], bool], details: dict[str, object]) -> str:
    """What would work: a wider threshold, larger buckets, another algorithm."""
    offers = []
    shift = _nearest_shift(problem, exists)
    if shift is not None:
        details["nearest_shift"] = text(shift)
        details["nearest"] = {problem.label(i): text(min(Fraction(1), f + shift)) for i, f in _first(problem)}
        offers.append(f"thresholds higher by {text(shift)}")
    wider = _nearest_largest(problem, exists)
    if wider is not None:
        details["nearest_max_bucket_size"] = wider
        offers.append(f"max_bucket_size = {wider}")
    enough = all(
        Fraction(int(o), problem.records) <= f for o, f in zip(problem.counts, problem.thresholds, strict=True)
    )
    if algorithm != "optimal" and not offers and enough and search(problem, None, 0.5) is not None:
        offers.append("algorithm = 'optimal'")
    return "what works: " + " or ".join(offers) if offers else f"no other threshold makes {algorithm} feasible"


def _first(problem: Problem) -> list[tuple[int, Fraction]]:
    return list(enumerate(problem.thresholds))[:SHOWN]


def _nearest_shift(problem: Problem, exists: Callable[[Problem], bool]) -> Fraction | None:
    """Smallest d on the grid such that thresholds min(1, f' + d) have a plan; feasibility only grows with d."""

    def feasible(step: int) -> bool:
        shifted = tuple(min(Fraction(1), f + Fraction(step, STEP)) for f in problem.thresholds)
        return exists(replace(problem, thresholds=shifted))

    low, high = 0, STEP
    if not feasible(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return Fraction(high, STEP)


def _nearest_largest(problem: Problem, exists: Callable[[Problem], bool]) -> int | None:
    """The first of a few larger M' that has a plan."""
    n = problem.records
    if any(Fraction(int(o), n) > f for o, f in zip(problem.counts, problem.thresholds, strict=True)):
        return None
    wider = np.unique(np.array([problem.largest * k // 4 for k in (5, 6, 8, 12, 16)]))
    return next((int(w) for w in wider if w > problem.largest and exists(replace(problem, largest=int(w)))), None)
