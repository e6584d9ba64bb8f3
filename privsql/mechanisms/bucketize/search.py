"""Plan a bucketization: read the request, run the algorithm that it names, suppress records where that is allowed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import GuaranteeError, InfeasibleError, UsageError
from privsql.exact import fraction_text
from privsql.mechanisms.bucketize import fakes, informative, optimal
from privsql.mechanisms.bucketize.beliefs import compute_bounds, compute_thresholds
from privsql.mechanisms.bucketize.fake_chances import times_listed
from privsql.mechanisms.bucketize.fakes import find_even_plan
from privsql.mechanisms.bucketize.feasibility import explain_infeasible, require_valid_setting
from privsql.mechanisms.bucketize.group_flows import allocate_values, find_violation
from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan, Setting
from privsql.mechanisms.bucketize.optimal import best_two_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.model import Bids
    from privsql.mechanisms.bucketize.parameters import Bucketize, Proof
    from privsql.model.records import Records

# Heuristics -----------------------------------------------------------------------------------------------------------
# Anatomy's setting (the baseline) and the paper's Algorithm 2 for several sizes.


def smallest_diversity(problem: BucketProblem) -> int:
    """The smallest l such that l-diversity implies F'-privacy: max_i ceil(1/f'_i), at least M."""
    return max(problem.smallest, *(-(-f.denominator // f.numerator) for f in problem.thresholds))


def anatomy_setting(problem: BucketProblem) -> Setting | None:
    """Setting of Anatomy (Xiao & Tao, VLDB 2006): floor(n/l) buckets of l or l+1 different values.

    None unless every value has at most n/l records (eligibility) and the sizes lie within M'.
    """
    l_diversity, n = smallest_diversity(problem), problem.records
    buckets = n // l_diversity
    if buckets == 0 or int(problem.counts.max()) > buckets:
        return None
    size, larger = divmod(n, buckets)
    if size + (larger > 0) > max(problem.largest, problem.smallest):
        return None
    return Setting.from_counts({size: buckets - larger, size + 1: larger})


def partition_records(problem: BucketProblem, setting: Setting) -> Ints:
    """Record partition between two sizes (paper, section 4.3); shape (m, 2).

    T1 first gets a_i1 = min(u_i1, o_i); what is too much moves to T2, the most sensitive values first (the paper
    leaves the order open). Where sets of values are bounded, any partition that keeps the bounds.
    """
    if problem.trees:
        return allocate_values(problem, setting).allocation
    (size1, b1), (size2, b2) = setting.items
    limits = problem.capacity_for([size1, size2]) * np.array([b1, b2], dtype=np.int64)
    first = np.minimum(limits[:, 0], problem.counts)
    room = np.minimum(limits[:, 1], problem.counts) - (problem.counts - first)
    order = problem.by_threshold
    free = np.minimum(room, first)[order]
    moved = np.clip(int(first.sum()) - size1 * b1 - (np.cumsum(free) - free), 0, free)
    first[order] -= moved
    return np.stack([first, problem.counts - first], axis=1)


def multi_size(problem: BucketProblem) -> Setting | None:
    """Algorithm 2: split by the best two-size setting, and again within each part while Loss falls.

    The first B has infinite loss; a part without a valid split keeps its B; equal sizes are merged; thresholds stay
    those of the whole table.
    """
    first_split = best_two_size(problem)
    if first_split is None:
        return None
    total: Counter[int] = Counter()
    parts = [(problem, first_split)]
    while parts:
        part, setting = parts.pop()
        if len(setting.items) == 1:
            split = best_two_size(part)
            if split is None or split.loss >= setting.loss:
                total.update(dict(setting.items))
                continue
            setting = split
        columns = partition_records(part, setting) if len(setting.items) == 2 else part.counts[:, None]
        for j, item in enumerate(setting.items):
            below = replace(part, counts=columns[:, j])
            parts.append((below, Setting((item,))))
    return Setting.from_counts(total)


# Search ---------------------------------------------------------------------------------------------------------------
# From a problem to a checked plan, or to an explanation of why there is none.

ALGORITHMS = ("anatomy", "one-size", "two-size", "multi-size", "optimal", "informative")


def find_plan(problem: BucketProblem, algorithm: str, *, seconds: float = 1.0, stated: Setting | None = None) -> Plan:
    """The plan of ``algorithm`` for ``problem``, with a certified lower bound of every plan's Loss.

    ``seconds`` bounds the time ``optimal`` spends on proving. ``stated``: the setting itself, of ``setting``. Raises
    ``InfeasibleError`` with the violated Hall set and the nearest feasible threshold, ``UsageError`` for bounds that
    the algorithm does not keep, and ``GuaranteeError`` if the independent check rejects what a search found.
    """
    _refuse_unbounded(problem, algorithm)
    solve, clock = _choose_solver(algorithm), time.thread_time()
    if stated is not None:
        setting: Setting | None = require_valid_setting(problem, stated)
    else:
        setting = solve(problem) if len(problem.sizes) else None
    proof: Proof = "none"
    lower_bound, lasted = 0, time.thread_time() - clock
    if algorithm == "optimal" and len(problem.sizes):
        best = optimal.search_optimum(problem, setting, seconds)
        if best is not None:
            setting, lower_bound, proof = best.setting, best.lower_bound, best.proof
        lasted = time.thread_time() - clock
    elif setting is not None:
        lower_bound = optimal.lower_bound(problem)
        proof = "certificate" if lower_bound == setting.loss else "none"
    if setting is None:
        raise explain_infeasible(
            problem, algorithm, _make_plan_test(algorithm, solve), _count_unplaced(problem, algorithm)
        )
    if algorithm == "informative":
        allocation, most = informative.divide_records(problem, setting)
        return require_valid_plan(problem, Plan(algorithm, setting, allocation, lower_bound, proof, most, lasted))
    allocation = allocate_values(problem, setting).allocation
    return require_valid_plan(problem, Plan(algorithm, setting, allocation, lower_bound, proof, seconds=lasted))


def _count_unplaced(problem: BucketProblem, algorithm: str) -> int | None:
    """Records that an algorithm, which is to place all of them, finds no place for."""
    return informative.count_unplaced(problem) if algorithm == "informative" and problem.records else None


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


def _choose_solver(algorithm: str) -> Callable[[BucketProblem], Setting | None]:
    return {
        "anatomy": anatomy_setting,
        "one-size": optimal.best_one_size,
        "two-size": optimal.best_two_size,
        "multi-size": multi_size,
        "optimal": optimal.best_two_size,
        "setting": optimal.best_two_size,
        "informative": informative.find_setting,
    }[algorithm]


def _make_plan_test(
    algorithm: str, solve: Callable[[BucketProblem], Setting | None]
) -> Callable[[BucketProblem], bool]:
    """Return whether a problem has any plan of this algorithm, quickly."""
    clock = time.monotonic()

    def has_plan(problem: BucketProblem) -> bool:
        if not len(problem.sizes) or time.monotonic() - clock > 20:
            return False
        if solve(problem) is not None:
            return True
        return algorithm == "optimal" and optimal.search_optimum(problem, None, 0.5) is not None

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
        "leaving "
        f"{number:,} records out reveals their value to anybody who sees that they are missing; take "
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
# From what a specification asks for to the plan and the problem that it solves.


def search(db: Relations, domain: Records, params: Bucketize) -> tuple[Plan, BucketProblem]:
    """The setting and what it is for; raises ``InfeasibleError``, and ``UsageError`` for a wrong threshold."""
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
        return find_plan(problem, params.algorithm, seconds=params.proof_seconds, stated=stated)

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
