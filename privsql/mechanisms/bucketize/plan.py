"""Plan a bucketization: run the algorithm that is named, validate a stated setting, leave records out where allowed."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import GuaranteeError, InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize import fakes, optimal
from privsql.mechanisms.bucketize.bounds import compute_bounds, compute_thresholds
from privsql.mechanisms.bucketize.fake_law import times_listed
from privsql.mechanisms.bucketize.fakes import find_even_plan
from privsql.mechanisms.bucketize.group_flows import Flags, allocate_values, find_violation
from privsql.mechanisms.bucketize.infeasible import explain_infeasible
from privsql.mechanisms.bucketize.model import Bids, BucketProblem, Ints, Plan, Setting, StoredPlan
from privsql.mechanisms.bucketize.optimal import search_optimum
from privsql.mechanisms.bucketize.search import (
    anatomy_setting,
    best_one_size,
    best_two_size,
    count_unplaced,
    divide_informative,
    find_informative,
    multi_size,
)
from privsql.model.records import Records, stale_setting_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.parameters import Bucketize, Proof

    PlanTest = Callable[[BucketProblem], bool]

# Search ---------------------------------------------------------------------------------------------------------------

ALGORITHMS = ("anatomy", "one-size", "two-size", "multi-size", "optimal", "informative")


def find_plan(problem: BucketProblem, algorithm: str, *, stated: Setting | None = None, proving: bool = True) -> Plan:
    """The plan of ``algorithm`` for ``problem``, with a certified lower bound of every plan's Loss.

    ``stated``: the setting itself, of ``setting``; ``proving``: else other algorithms than ``optimal`` have no bound,
    and that one does not close the gap to its own. Raises ``InfeasibleError`` with the violated Hall set and the
    nearest feasible threshold, ``UsageError`` for bounds that the algorithm does not keep, and ``GuaranteeError`` if
    the independent check rejects what a search found.
    """
    _refuse_unbounded(problem, algorithm)
    solve, clock = SOLVERS[algorithm], time.thread_time()
    if stated is not None:
        setting: Setting | None = require_valid_setting(problem, stated)
    else:
        setting = solve(problem) if len(problem.sizes) else None
    proof: Proof = "none"
    lower_bound, lasted = 0, time.thread_time() - clock
    if algorithm == "optimal" and len(problem.sizes):
        best = search_optimum(problem, setting, proving=proving)
        if best is not None:
            setting, lower_bound, proof = best.setting, best.lower_bound, best.proof
        lasted = time.thread_time() - clock
    elif setting is not None and proving:
        lower_bound = optimal.lower_bound(problem, setting.loss)
        proof = "certificate" if lower_bound == setting.loss else "none"
    if setting is None:
        informed = algorithm == "informative" and problem.records  # which is to place all records
        unplaced = count_unplaced(problem) if informed else None
        raise explain_infeasible(problem, algorithm, _make_plan_test(algorithm, solve), unplaced)
    allocation, most = _divide_records(problem, algorithm, setting)
    return require_valid_plan(problem, Plan(algorithm, setting, allocation, lower_bound, proof, most, lasted))


def _divide_records(problem: BucketProblem, algorithm: str, setting: Setting) -> tuple[Ints, Ints | None]:
    """Return the records by value and size (m, k) of a valid setting, and the most of each value in a bucket."""
    if algorithm == "informative":
        return divide_informative(problem, setting)
    return allocate_values(problem, setting).allocation, None


def restore_plan(problem: BucketProblem, algorithm: str, stored: Mapping[str, object]) -> Plan:
    """Return the plan that an earlier search by the same request found, whichever solver found it.

    ``GuaranteeError`` unless it passes the checks of a stated setting and of a search.
    """
    try:
        known = StoredPlan.model_validate(stored)
        setting = require_valid_setting(problem, Setting(known.buckets))
        allocation, most = _divide_records(problem, algorithm, setting)
        if known.allocation is not None:
            allocation = np.array(known.allocation, dtype=np.int64)
    except (InfeasibleError, ValueError) as error:
        raise stale_setting_error() from error
    plan = Plan(algorithm, setting, allocation, known.lower_bound, known.proof, most)
    if plan.lower_bound > plan.loss or (plan.proof == "certificate" and plan.lower_bound < plan.loss):
        raise stale_setting_error()
    return require_valid_plan(problem, plan)


def _refuse_unbounded(problem: BucketProblem, algorithm: str) -> None:
    """``UsageError`` unless the algorithm keeps the bounds on sets of values exactly."""
    keeping = {0: (*ALGORITHMS, "setting"), 1: (*ALGORITHMS[1:5], "setting"), 2: ("one-size", "two-size")}[
        len(problem.trees)
    ]
    if algorithm not in keeping:
        what = "groups that cross each other (of two columns, say)" if len(problem.trees) > 1 else "bounds on groups"
        names = ", ".join(map(repr, keeping))
        raise UsageError(f"mechanism.algorithm: {algorithm!r} does not keep {what}; take one of {names}")


def require_valid_plan(problem: BucketProblem, plan: Plan) -> Plan:
    """The plan itself if it passes the independent check in exact integers."""
    wrong = find_violation(problem, plan)
    if wrong:
        raise GuaranteeError(f"the {plan.algorithm} search found a plan that fails its check: {wrong}")
    return plan


SOLVERS: dict[str, Callable[[BucketProblem], Setting | None]] = {
    "anatomy": anatomy_setting,
    "one-size": best_one_size,
    "two-size": best_two_size,
    "multi-size": multi_size,
    "optimal": best_two_size,
    "setting": best_two_size,
    "informative": find_informative,
}


def _make_plan_test(algorithm: str, solve: Callable[[BucketProblem], Setting | None]) -> PlanTest:
    """Return whether a problem has any plan of this algorithm, quickly."""
    clock = time.monotonic()

    def has_plan(problem: BucketProblem) -> bool:
        if not len(problem.sizes) or time.monotonic() - clock > 20:
            return False
        if solve(problem) is not None:
            return True
        return algorithm == "optimal" and search_optimum(problem, None) is not None

    return has_plan


# Suppress -------------------------------------------------------------------------------------------------------------
# Leaving out records of values that are too frequent for l-diversity, as Chaytor and Wang do to run Anatomy (6.3).

LEFT_OUT = -1  # the bucket of a record that is left out


def counts_after_suppression(counts: Ints, threshold: Fraction) -> Ints:
    """The most records (m,) of which each value has at most 1/l, l = ceil(1/threshold): the largest fixed point of
    c = min(o, floor(sum c / l)). If there are fewer than l values nothing would be left, and ``counts`` is returned.
    """
    l_diversity, left = ceil(1 / threshold), counts
    while True:
        most = int(left.sum()) // l_diversity
        if most == 0:
            return counts
        fewer = np.minimum(counts, most)
        if (fewer == left).all():
            return fewer
        left = fewer


def refuse_observed(counts: Ints, left: Ints, labels: Sequence[str], threshold: Fraction) -> None:
    """``InfeasibleError`` if records are left out: who sees that they are missing learns their value.

    Names the most frequent value, and the threshold that leaves nobody out.
    """
    if (left == counts).all():
        return
    worst, number = int(np.argmax(counts)), int((counts - left).sum())
    share = Fraction(int(counts[worst]), int(counts.sum()))
    raise InfeasibleError(
        f"value {labels[worst]} has frequency {float(share):.6g} above its threshold {fraction_text(threshold)}; "
        f"if {number:,} records are left out, anyone who sees that they are missing learns their value; take "
        f"excess = 'refuse' with a threshold of {fraction_text(share)}, or absence = 'unobservable' if attackers do "
        "not know who is in the table",
        {
            "value": labels[worst],
            "frequency": fraction_text(share),
            "threshold": fraction_text(share),
            "left_out": number,
        },
    )


def spread_left_out(bids: Bids, left: Ints, counts: Ints, noise: Shuffler) -> Bids:
    """Buckets of all records, value by value, from those of the kept ones: which are left out is random."""
    if (left == counts).all():
        return bids
    everyone = np.full(int(counts.sum()), LEFT_OUT, dtype=bids.dtype)
    ends = zip(pairwise(np.cumsum([0, *left]).tolist()), pairwise(np.cumsum([0, *counts]).tolist()), strict=True)
    for (begin, end), (first, last) in ends:
        everyone[first : first + end - begin] = bids[begin:end]
        if end - begin < last - first:
            noise.shuffle(everyone[first:last])
    return everyone


# Request --------------------------------------------------------------------------------------------------------------


def plan_buckets(
    db: Relations,
    domain: Records,
    params: Bucketize,
    stored: Mapping[str, object] | None = None,
    *,
    proving: bool = True,
) -> tuple[Plan, BucketProblem]:
    """The setting and what it is for; raises ``InfeasibleError``, and ``UsageError`` for a wrong threshold.

    ``stored``: a ``StoredPlan`` of an earlier release by the same request, which takes the place of a search.
    ``proving``: as of ``find_plan``.
    """
    values = compute_thresholds(db, domain, params.threshold) if domain.counts else ()
    counts = np.array(domain.counts, dtype=np.int64)
    left = counts_after_suppression(counts, values[0]) if params.excess == "suppress" and values else counts
    if params.absence == "observable" and values:
        refuse_observed(counts, left, domain.labels, values[0])
    problem = BucketProblem(
        counts=left,
        thresholds=values,
        smallest=params.min_bucket_size,
        largest=_largest_size(params, len(counts)),
        labels=tuple(domain.labels),
        bounds=compute_bounds(db, domain, params) if domain.counts else (),
    )
    if len(problem.trees) > 1 and params.effective_layout != "blocks":
        raise UsageError(
            f"mechanism.layout: {params.effective_layout!r} does not support groups that overlap; use 'blocks'"
        )

    stated = Setting.from_counts(params.stated_buckets) if params.setting is not None else None

    def plan_of(problem: BucketProblem) -> Plan:
        if stored is not None:
            return restore_plan(problem, params.algorithm, stored)
        return find_plan(problem, params.algorithm, stated=stated, proving=proving)

    if not params.fake_values or params.uneven_fakes == "state":
        return plan_of(problem), problem
    plan = find_even_plan(problem, params.fake_values, plan_of)
    listed_ = times_listed(problem.counts, plan.setting.items, params.fake_values).sum(axis=1)
    fakes.refuse_certain(problem.counts, listed_, problem.labels)
    return plan, problem


def _largest_size(params: Bucketize, values: int) -> int:
    """The largest bucket that may be used: with fakes each value at most once."""
    if not params.fake_values or params.threshold.default is None:
        return params.max_bucket_size
    twice = ceil(2 / params.threshold.default.intercept)  # from this size on a value may stand twice
    largest = min(params.max_bucket_size, twice - 1, values - params.fake_values)
    smallest = max(params.min_bucket_size, ceil(1 / params.threshold.default.intercept))
    if largest < smallest:
        raise InfeasibleError(
            f"with {params.fake_values} fake values and each value at most once, buckets can hold {max(0, largest)} "
            f"records, fewer than the {smallest} required; lower fake_values",
            {"largest_bucket": largest},
        )
    return largest


# Stated settings ------------------------------------------------------------------------------------------------------
# Whether a publisher's own setting is valid: Theorem 4.17 for two sizes, Hall's condition for more.


def require_valid_setting(problem: BucketProblem, setting: Setting) -> Setting:
    """Return the setting; ``InfeasibleError`` names the condition that it breaks, and the values that break it.

    With a_ij = min(F_ij b_j, o_i): sum_j S_j b_j = n (CC), sum_j a_ij >= o_i for every value (PC), and for every size
    sum_i a_ij >= S_j b_j (FC). Two sizes need no more; for others, and for bounds on groups, all sets are checked.
    """
    if setting.records != problem.records:
        raise _invalid_setting(f"buckets hold {setting.records:,} records, the table {problem.records:,}", "CC")
    sizes, buckets = np.array(setting.sizes, dtype=np.int64), np.array(setting.buckets, dtype=np.int64)
    if not problem.smallest <= min(setting.sizes) <= max(setting.sizes) <= problem.largest:
        raise _invalid_setting(f"its sizes are not all from {problem.smallest} to {problem.largest}", "bucket sizes")
    capacity = problem.capacity_for(setting.sizes)
    limits = np.minimum(capacity * buckets, problem.counts[:, None])
    short = limits.sum(axis=1) < problem.counts
    if short.any():
        raise _crowded_setting(problem, short, int(limits[short].sum()), "PC")
    for size, number, most in zip(setting.sizes, setting.buckets, limits.sum(axis=0).tolist(), strict=True):
        if most < size * number:
            raise _invalid_setting(f"thresholds let {most:,} records into {number:,} buckets of {size}", "FC")
    flow = allocate_values(problem, setting)
    if flow.unplaced:
        held = np.where(flow.blocked[:, None], capacity, 0)
        room = int(problem.let_through(held, sizes) @ buckets)
        raise _crowded_setting(problem, flow.blocked, room, "Hall's condition")
    return setting


def _crowded_setting(problem: BucketProblem, values: Flags, room: int, condition: str) -> InfeasibleError:
    """Return the error for values that a setting has too little room for."""
    names, records = [problem.label(int(i)) for i in np.flatnonzero(values)], int(problem.counts[values].sum())
    reason = f"the values {{{fakes.list_names(names)}}} have {records:,} records, its buckets have room for {room:,}"
    return _invalid_setting(reason, condition, hall_set=names, records=records, room=room)


def _invalid_setting(reason: str, condition: str, **details: object) -> InfeasibleError:
    text = f"the setting is not valid: {reason} ({condition}); without setting, privsql searches for one"
    return InfeasibleError(text, {"condition": condition, **details})
