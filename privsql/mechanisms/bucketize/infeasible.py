"""Explain why a problem has no plan: which values and which bound prevent it, and what would work."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize.fakes import MOST_NAMED, list_names
from privsql.mechanisms.bucketize.optimal import Relaxation, search_optimum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.mechanisms.bucketize.bounds import GroupBound
    from privsql.mechanisms.bucketize.model import BucketProblem

    PlanTest = Callable[[BucketProblem], bool]

STEP = 10**4  # feasible thresholds are searched in steps of 1/STEP


def explain_infeasible(
    problem: BucketProblem, algorithm: str, exists: PlanTest, unplaced: int | None = None
) -> InfeasibleError:
    """Return the error for counts and bounds without a plan; it names the cause, and changes of parameters that work.

    Args:
        problem: The counts and bounds.
        algorithm: The algorithm that found no plan.
        exists: Takes other counts and bounds, and returns whether the algorithm finds a plan for them.
        unplaced: How many records fit into no bucket; None if unknown.
    """
    if problem.records == 0:
        return InfeasibleError("the source has no records to publish")
    details: dict[str, object] = {}
    frequent = _find_too_frequent(problem, problem.single_bounds)
    worst = frequent or _find_too_frequent(problem, problem.bounds)
    tightest = Relaxation(problem).find_tightest() if worst is None and len(problem.sizes) else None
    if worst is not None:  # a frequency above its bound: no bucketization exists (Lemma 3.7)
        details |= {"hall_set": [worst.name]} if frequent else {"group": worst.name}
        details |= {"records": problem.count_records(worst), "room": int(problem.records * worst.threshold)}
        name, limit = (f"value {worst.name}", "threshold") if frequent else (repr(worst.name), "bound")
        frequency = float(problem.find_frequency(worst))
        reason = f"{name} has frequency {frequency:.6g} above its {limit} {float(worst.threshold):.6g}"
    elif not len(problem.sizes):
        need = min(ceil(1 / f) for f in problem.thresholds)
        reason = (
            f"no bucket size from {max(need, problem.smallest)} to {min(problem.largest, problem.records)} can be "
            f"filled ({problem.records} records, thresholds need at least {need})"
        )
    else:
        sizes = f"{int(problem.sizes[0])}..{int(problem.sizes[-1])}"
        reason = f"no {algorithm} setting of sizes {sizes} fits {problem.records} records"
        if tightest is not None:  # no setting of these sizes has room for all records of a set of values
            values, room = tightest
            records, names = int(problem.counts[values].sum()), [problem.label(int(i)) for i in values]
            shares = map(Fraction, problem.room_for(values).tolist(), problem.sizes.tolist())
            best = int(problem.records * max(shares))
            if best < records:
                room, buckets = best, f"buckets of sizes {sizes} have room for {best} of them"
                reason = f"the values {{{list_names(names)}}} have {records} records, but {buckets}"
            else:
                closest = f"the closest have room for {room} of {records} records of {{{list_names(names)}}}"
                reason = f"no buckets of sizes {sizes} suit all values: {closest}"
            details |= {"hall_set": names, "records": records, "room": room}
    if unplaced:
        details["unplaced"] = unplaced
        reason += f"; {unplaced:,} records find no place in buckets of nearly one size"

    # What would work: wider bounds or thresholds, larger buckets, another algorithm.
    offers = []
    limits = _offer_limits(problem, exists)
    if limits is not None:
        offers.append(limits[0])
        details |= limits[1]
    if worst is None:
        wider = np.unique(np.array([problem.largest * k // 4 for k in (5, 6, 8, 12, 16)])).tolist()
        usable = (replace(problem, largest=one) for one in wider if one > problem.largest)
        larger = next((one.largest for one in usable if exists(one)), None)
        if larger is not None:
            details["nearest_max_bucket_size"] = larger
            offers.append(f"mechanism.max_bucket_size = {larger}")
    crossing = len(problem.trees) > 1
    if (
        not offers
        and algorithm != "optimal"
        and not crossing
        and frequent is None
        and search_optimum(problem, None, proving=False)
    ):
        offers.append("mechanism.algorithm = 'optimal'")
    remedy = "what works: " + " or ".join(offers) if offers else f"no other threshold makes {algorithm} feasible"
    return InfeasibleError(f"{reason}; {remedy}", details)


def _find_too_frequent(problem: BucketProblem, bounds: Sequence[GroupBound]) -> GroupBound | None:
    """Return the bounded set of values whose frequency exceeds its bound by the largest factor; None if none does."""
    worst = max(bounds, key=lambda one: problem.find_frequency(one) / one.threshold, default=None)
    return worst if worst is not None and problem.find_frequency(worst) > worst.threshold else None


def _offer_limits(problem: BucketProblem, exists: PlanTest) -> tuple[str, dict[str, object]] | None:
    """Search for the smallest increase of bounds with which a plan exists, to offer it in an error message.

    First the bound of one set of values is raised alone, then all bounds on sets, then all thresholds as well.

    Args:
        problem: The counts and bounds for which the algorithm found no plan.
        exists: Takes other counts and bounds, and returns whether the algorithm finds a plan for them.

    Returns:
        (the offer in words, its parts by name for the error); None if nothing helps.
    """

    def exists_with(bound: GroupBound, threshold: Fraction) -> bool:
        changed = replace(bound, threshold=threshold)
        bounds = tuple(changed if one is bound else one for one in problem.bounds)
        return exists(replace(problem, bounds=bounds))

    least = Fraction(1, 10**9)
    tightest = sorted(problem.bounds, key=lambda one: one.threshold / max(problem.find_frequency(one), least))
    for one in tightest[:MOST_NAMED]:
        wider = _nearest_feasible(partial(exists_with, one), one.threshold)
        if wider is not None:
            text = fraction_text(wider)
            return f"{text} for {one.name!r}", {"group": one.name, "nearest_group": {one.name: text}}
    if tightest:
        shift = _nearest_feasible(lambda by: exists(problem.raise_limits(by, values=False)), Fraction(0))
        if shift is not None:
            text = fraction_text(shift)
            return f"raise bounds of groups by {text}", {"nearest_group_shift": text}
    shift = _nearest_feasible(lambda by: exists(problem.raise_limits(by)), Fraction(0))
    if shift is None:
        return None
    text = fraction_text(shift)
    raised = (fraction_text(min(Fraction(1), f + shift)) for f in problem.thresholds[:MOST_NAMED])
    nearest = {problem.label(i): value for i, value in enumerate(raised)}
    return f"raise thresholds by {text}", {"nearest_shift": text, "nearest": nearest}


def _nearest_feasible(feasible: Callable[[Fraction], bool], start: Fraction) -> Fraction | None:
    """Return the smallest threshold above ``start`` with which a plan exists, as a multiple of 1/``STEP``.

    Args:
        feasible: Takes a threshold (or by how much thresholds are raised), and returns whether a plan exists with it.
        start: A threshold without a plan (or 0).

    Returns:
        The threshold (or the increase); None if no plan exists with 1 either.
    """
    low, high = int(start * STEP), STEP
    if not feasible(Fraction(1)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(Fraction(middle, STEP)) else (middle, high)
    return Fraction(high, STEP)
