"""Plan a bucketization: search by the named algorithm, or validate a stated setting; leave records out if allowed."""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import GuaranteeError, InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize import search
from privsql.mechanisms.bucketize.bounds import compute_bounds, compute_thresholds
from privsql.mechanisms.bucketize.estimator import choose_weighting
from privsql.mechanisms.bucketize.fake_law import times_listed
from privsql.mechanisms.bucketize.fakes import certainty_facts, find_even_plan, list_names
from privsql.mechanisms.bucketize.group_flows import Flags, allocate_values
from privsql.mechanisms.bucketize.infeasible import explain_infeasible
from privsql.mechanisms.bucketize.model import Bids, BucketProblem, Ints, Plan, Setting, StoredPlan
from privsql.mechanisms.bucketize.optimal import lower_bound, search_optimum
from privsql.mechanisms.bucketize.parameters import BucketFacts, GroupBoundFacts
from privsql.model.records import Records, StaleSettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.parameters import Bucketize

# A request ------------------------------------------------------------------------------------------------------------


def plan_buckets(
    db: Relations,
    domain: Records,
    params: Bucketize,
    stored: Mapping[str, object] | None = None,
    *,
    proving: bool = True,
) -> tuple[Plan, BucketProblem]:
    """Return the plan of the release that parameters ask for, and the counts and bounds that it satisfies.

    A plan says how many buckets there are of each size, and how many records of each value go to each size.

    Args:
        db: The engine that holds the source's values.
        domain: The source.
        params: The parameters.
        stored: The ``StoredPlan`` of an earlier release by the same request, which saves the search; None to search.
        proving: If False, the search is shorter, and proves less about the loss (see ``find_plan``).

    Raises:
        InfeasibleError: There is no plan.
        UsageError: A threshold or a bound is wrong.
    """
    thresholds = compute_thresholds(db, domain, params.threshold) if domain.counts else ()
    counts, sigma = np.array(domain.counts, dtype=np.int64), params.fake_values
    left = counts_after_suppression(counts, thresholds[0]) if params.excess == "suppress" and thresholds else counts
    if params.absence == "observable" and (left != counts).any():
        refuse_observed(counts, left, domain.labels, thresholds[0])
    largest = params.max_bucket_size
    if sigma and params.threshold.default is not None:  # a bucket lists each value once at most
        constant = params.threshold.default.intercept
        largest = min(largest, ceil(2 / constant) - 1, len(counts) - sigma)
        smallest = max(params.min_bucket_size, ceil(1 / constant))
        if largest < smallest:
            raise InfeasibleError(
                f"with {sigma} fake values and each value at most once, buckets can hold {max(0, largest)} "
                f"records, fewer than the {smallest} required; lower fake_values",
                {"largest_bucket": largest},
            )
    problem = BucketProblem(
        counts=left,
        thresholds=thresholds,
        smallest=params.min_bucket_size,
        largest=largest,
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

    if not sigma or params.uneven_fakes == "state":
        return plan_of(problem), problem
    plan = find_even_plan(problem, sigma, plan_of)
    listed = times_listed(left, plan.setting.items, sigma).sum(axis=1)
    certain = [problem.label(x) for x in np.flatnonzero((left > 0) & (listed <= left)).tolist()]
    if certain:
        raise InfeasibleError(
            f"value {certain[0]} would be listed only where it is real: too few records for fake values to "
            "hide all values evenly; mechanism.uneven_fakes = 'state' publishes how certain each is",
            {"certain": certain},
        )
    return plan, problem


def plan_facts(plan: Plan, problem: BucketProblem, params: Bucketize, records: int) -> BucketFacts:
    """Return the facts that a release by this plan states before fake values are drawn.

    Args:
        plan: The plan.
        problem: The counts and bounds that it satisfies.
        params: The parameters.
        records: The number of the source's records, including those that are left out.
    """
    bounds = [GroupBoundFacts(name=b.name, codes=list(b.members), threshold=str(b.threshold)) for b in problem.bounds]
    facts = BucketFacts(
        loss=plan.loss,
        mse=plan.mse,
        lower_bound=plan.lower_bound,
        gap=plan.gap,
        setting={str(size): buckets for size, buckets in plan.setting.items},
        weighting=choose_weighting(plan.setting.items, len(problem.counts)),
        left_out=records - problem.records,
        bounds=bounds,
    )
    if not params.fake_values:
        return facts
    return BucketFacts.join_parts(facts, certainty_facts(problem, plan.setting, params.fake_values))


# A plan ---------------------------------------------------------------------------------------------------------------

ALGORITHMS = ("anatomy", "one-size", "two-size", "multi-size", "optimal", "informative")
SOLVERS: dict[str, Callable[[BucketProblem], Setting | None]] = {
    "anatomy": search.anatomy_setting,
    "one-size": search.best_one_size,
    "two-size": search.best_two_size,
    "multi-size": search.multi_size,
    "optimal": search.best_two_size,  # the start of the search for the optimum
    "informative": search.find_informative,
    "setting": search.best_two_size,  # used only to explain what would work
}


def find_plan(problem: BucketProblem, algorithm: str, *, stated: Setting | None = None, proving: bool = True) -> Plan:
    """Search for a plan with an algorithm, and certify a lower bound for the loss of every plan.

    A plan says how many buckets there are of each size, and how many records of each value go to each size. The loss is
    the sum of (size - 1)^2 over all buckets.

    Args:
        problem: The counts and bounds.
        algorithm: One of ``ALGORITHMS``, or ``setting``.
        stated: The publisher's own setting, for ``setting``; None for other algorithms.
        proving: If False, ``optimal`` stops before its result is proved best, and other algorithms certify no bound.

    Raises:
        InfeasibleError: There is no plan; the error names values with too little room, and the nearest feasible
            threshold.
        UsageError: The algorithm can't keep the bounds on groups.
        GuaranteeError: The plan that was found fails its independent check.
    """
    keeping = {0: (*ALGORITHMS, "setting"), 1: (*ALGORITHMS[1:5], "setting"), 2: ("one-size", "two-size")}
    crossing = len(problem.trees) > 1
    if algorithm not in keeping[len(problem.trees)]:
        what = "groups that cross each other (of two columns, say)" if crossing else "bounds on groups"
        names = ", ".join(map(repr, keeping[len(problem.trees)]))
        raise UsageError(f"mechanism.algorithm: {algorithm!r} does not keep {what}; take one of {names}")
    solve, clock = SOLVERS[algorithm], time.thread_time()
    if stated is not None:
        setting: Setting | None = require_valid_setting(problem, stated)
    else:
        setting = solve(problem) if len(problem.sizes) else None
    bound, lasted = 0, time.thread_time() - clock
    if algorithm == "optimal" and len(problem.sizes):
        best = search_optimum(problem, setting, proving=proving)
        if best is not None:
            setting, bound = best.setting, best.lower_bound
        lasted = time.thread_time() - clock
    elif setting is not None and proving:
        bound = lower_bound(problem, setting.loss)
    if setting is None:
        began = time.monotonic()

        def has_plan(other: BucketProblem) -> bool:
            if not len(other.sizes) or time.monotonic() - began > 20:
                return False
            if solve(other) is not None:
                return True
            return algorithm == "optimal" and search_optimum(other, None, proving=False) is not None

        informed = algorithm == "informative" and problem.records
        raise explain_infeasible(problem, algorithm, has_plan, search.count_unplaced(problem) if informed else None)
    allocation, most = _divide_records(problem, algorithm, setting)
    return require_valid_plan(problem, Plan(algorithm, setting, allocation, bound, most, lasted))


def restore_plan(problem: BucketProblem, algorithm: str, stored: Mapping[str, object]) -> Plan:
    """Return the plan that the ledger stores for an earlier release by the same request, so that no search is needed.

    A plan says how many buckets there are of each size, and how many records of each value go to each size.

    Raises:
        GuaranteeError: The stored plan does not fit the problem, or fails the independent check.
    """
    try:
        known = StoredPlan.model_validate(stored)
        setting = require_valid_setting(problem, Setting(known.buckets))
        allocation, most = _divide_records(problem, algorithm, setting)
        if known.allocation is not None:
            allocation = np.array(known.allocation, dtype=np.int64)
    except (InfeasibleError, ValueError) as error:
        raise StaleSettingError() from error
    plan = Plan(algorithm, setting, allocation, known.lower_bound, most)
    if plan.lower_bound > plan.loss:
        raise StaleSettingError()
    return require_valid_plan(problem, plan)


def _divide_records(problem: BucketProblem, algorithm: str, setting: Setting) -> tuple[Ints, Ints | None]:
    """Divide the records of each value among the bucket sizes of a valid setting.

    Returns:
        (the records by value and size (m, k), the most records of each value in one bucket (m, k)). The second is None
        for algorithms that set no such limit.
    """
    if algorithm == "informative":
        return search.divide_informative(problem, setting)
    return allocate_values(problem, setting).allocation, None


# Checks of plans ------------------------------------------------------------------------------------------------------


def require_valid_plan(problem: BucketProblem, plan: Plan) -> Plan:
    """Return a plan (buckets by size, and records of each value by size) if it passes an independent exact check.

    Raises:
        GuaranteeError: It fails the check, which uses nothing that a search has computed.
    """
    wrong = find_violation(problem, plan)
    if wrong:
        raise GuaranteeError(f"the {plan.algorithm} search found a plan that fails its check: {wrong}")
    return plan


def find_violation(problem: BucketProblem, plan: Plan) -> str | None:
    """Return the first fault of a plan in words; None if it has none.

    A plan says how many buckets there are of each size, and how many records of each value go to each size. The check
    starts from the exact thresholds, and uses nothing that a search has computed.
    """
    setting, allocation = plan.setting, plan.allocation
    if allocation.shape != (len(problem.counts), len(setting.items)) or (allocation < 0).any():
        return "the allocation has the wrong shape or a negative entry"
    if not all(problem.smallest <= size <= max(problem.largest, problem.smallest) for size in setting.sizes):
        return f"a bucket size lies outside {problem.smallest}..{problem.largest}"
    if (allocation.sum(axis=1) != problem.counts).any():
        return "a value's records are not all placed"
    for j, (size, buckets) in enumerate(setting.items):
        if int(allocation[:, j].sum()) != size * buckets:
            return f"the buckets of size {size} are not filled exactly"
    for j, (size, buckets) in enumerate(setting.items):
        held = allocation[:, j].tolist()
        for i, threshold in enumerate(problem.thresholds):
            if held[i] > threshold * size // 1 * buckets:
                return f"value {i} has more records in the buckets of size {size} than its threshold allows"
            most = 0 if plan.most is None else int(plan.most[i, j])
            if plan.most is not None and not held[i] <= most * buckets <= threshold * size * buckets:
                return f"value {i} may not stand {most} times in a bucket of {size}"
        for one in problem.bounds:
            if sum(held[i] for i in one.members) > one.threshold * size // 1 * buckets:
                return f"{one.name} has more records in the buckets of size {size} than its bound allows"
    return None


def require_valid_setting(problem: BucketProblem, setting: Setting) -> Setting:
    """Return the publisher's own setting if the records fit into its buckets within all thresholds.

    Let bucket size S_j have b_j buckets, F_ij be the most records of value i in one of them, and o_i the records of
    value i. With a_ij = min(F_ij b_j, o_i), Theorem 4.17 requires

    * CC: sum_j S_j b_j is the number of records,
    * PC: sum_j a_ij >= o_i for every value,
    * FC: sum_i a_ij >= S_j b_j for every size.

    This suffices for two sizes. For more sizes, and for bounds on groups, Hall's condition is checked: the buckets have
    room for all records of every set of values.

    Raises:
        InfeasibleError: One of these conditions fails; the error names the condition, and the values that break it.
    """

    def refuse(reason: str, condition: str, **details: object) -> InfeasibleError:
        text = f"the setting is not valid: {reason} ({condition}); without setting, privsql searches for one"
        return InfeasibleError(text, {"condition": condition, **details})

    def refuse_crowded(values: Flags, room: int, condition: str) -> InfeasibleError:
        names, records = [problem.label(int(i)) for i in np.flatnonzero(values)], int(problem.counts[values].sum())
        reason = f"the values {{{list_names(names)}}} have {records:,} records, its buckets have room for {room:,}"
        return refuse(reason, condition, hall_set=names, records=records, room=room)

    if setting.records != problem.records:
        raise refuse(f"buckets hold {setting.records:,} records, the table {problem.records:,}", "CC")
    sizes, buckets = np.array(setting.sizes, dtype=np.int64), np.array(setting.buckets, dtype=np.int64)
    if not problem.smallest <= min(setting.sizes) <= max(setting.sizes) <= problem.largest:
        raise refuse(f"its sizes are not all from {problem.smallest} to {problem.largest}", "bucket sizes")
    capacity = problem.capacity_for(setting.sizes)
    limits = np.minimum(capacity * buckets, problem.counts[:, None])
    short = limits.sum(axis=1) < problem.counts
    if short.any():
        raise refuse_crowded(short, int(limits[short].sum()), "PC")
    for (size, number), most in zip(setting.items, limits.sum(axis=0).tolist(), strict=True):
        if most < size * number:
            raise refuse(f"thresholds let {most:,} records into {number:,} buckets of {size}", "FC")
    flow = allocate_values(problem, setting)
    if flow.unplaced:
        held = np.where(flow.blocked[:, None], capacity, 0)
        raise refuse_crowded(flow.blocked, int(problem.let_through(held, sizes) @ buckets), "Hall's condition")
    return setting


# Records that are left out --------------------------------------------------------------------------------------------
# Records of values that are too frequent for l-diversity can be left out, as Chaytor and Wang do for Anatomy (6.3).

LEFT_OUT = -1  # the bucket of a record that is left out


def counts_after_suppression(counts: Ints, threshold: Fraction) -> Ints:
    """Reduce the counts until no value has more than 1/l of the records that are left, where l = ceil(1/threshold).

    As few records as possible are left out. The result c is the largest solution of c = min(counts, floor(sum c / l)).

    Returns:
        The records of each value that are kept (m,). With fewer than l values nothing could be kept; then ``counts``.
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
    """Raise the error for records that would have to be left out, if attackers may know who is in the table.

    Anybody who sees that a record is missing would learn its value.

    Args:
        counts: The number of records of each value (m,).
        left: How many of them would be kept (m,).
        labels: The values as text.
        threshold: The threshold of all values.

    Raises:
        InfeasibleError: Always. It names the most frequent value, and the threshold that leaves nobody out.
    """
    worst, number = int(np.argmax(counts)), int((counts - left).sum())
    share = Fraction(int(counts[worst]), int(counts.sum()))
    text = fraction_text(share)
    raise InfeasibleError(
        f"value {labels[worst]} has frequency {float(share):.6g} above its threshold {fraction_text(threshold)}; "
        f"if {number:,} records are left out, anyone who sees that they are missing learns their value; take "
        f"mechanism.excess = 'refuse' with a threshold of {text}, or mechanism.absence = 'unobservable' if attackers "
        "do not know who is in the table",
        {"value": labels[worst], "frequency": text, "threshold": text, "left_out": number},
    )


def spread_left_out(bids: Bids, left: Ints, counts: Ints, noise: Shuffler) -> Bids:
    """Draw at random which records are left out, and return the bucket of every record, value by value.

    Args:
        bids: The buckets of the kept records, value by value.
        left: How many records of each value are kept (m,).
        counts: How many records each value has (m,).
        noise: The random numbers.

    Returns:
        The bucket of each record (n,), ``LEFT_OUT`` for those without one.
    """
    if (left == counts).all():
        return bids
    everyone = np.full(int(counts.sum()), LEFT_OUT, dtype=bids.dtype)
    ends = zip(pairwise(np.cumsum([0, *left]).tolist()), pairwise(np.cumsum([0, *counts]).tolist()), strict=True)
    for (begin, end), (first, last) in ends:
        everyone[first : first + end - begin] = bids[begin:end]
        if end - begin < last - first:
            noise.shuffle(everyone[first:last])
    return everyone
