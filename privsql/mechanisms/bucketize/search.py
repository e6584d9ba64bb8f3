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
from privsql.exact import text
from privsql.mechanisms.bucketize import fakes, informative, optimal
from privsql.mechanisms.bucketize.beliefs import bounds_of, thresholds
from privsql.mechanisms.bucketize.fake_chances import times_listed
from privsql.mechanisms.bucketize.fakes import even
from privsql.mechanisms.bucketize.feasibility import explain
from privsql.mechanisms.bucketize.group_flows import allocate_values, violation
from privsql.mechanisms.bucketize.model import Ints, Plan, Problem, Setting
from privsql.mechanisms.bucketize.optimal import best_two_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from privsql.engine.database import Relations
    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.model import Bids
    from privsql.mechanisms.bucketize.parameters import Bucketize
    from privsql.model.records import Records

# Heuristics -----------------------------------------------------------------------------------------------------------
# Anatomy's setting (the baseline) and the paper's Algorithm 2 for several sizes.


def diversity(problem: Problem) -> int:
    """The smallest l such that l-diversity implies F'-privacy: max_i ceil(1/f'_i), at least M."""
    return max(problem.smallest, *(-(-f.denominator // f.numerator) for f in problem.thresholds))


def anatomy(problem: Problem) -> Setting | None:
    """Setting of Anatomy (Xiao & Tao, VLDB 2006): floor(n/l) buckets of l or l+1 different values.

    None unless every value has at most n/l records (eligibility) and the sizes lie within M'.
    """
    l_diversity, n = diversity(problem), problem.records
    buckets = n // l_diversity
    if buckets == 0 or int(problem.counts.max()) > buckets:
        return None
    size, larger = divmod(n, buckets)
    if size + (larger > 0) > max(problem.largest, problem.smallest):
        return None
    return Setting.of({size: buckets - larger, size + 1: larger})


def partition(problem: Problem, setting: Setting) -> Ints:
    """Record partition between two sizes (paper, section 4.3); shape (m, 2).

    T1 first gets a_i1 = min(u_i1, o_i); what is too much moves to T2, the most sensitive values first (the paper
    leaves the order open). Where sets of values are bounded, any partition that keeps the bounds.
    """
    if problem.trees:
        return allocate_values(problem, setting).allocation
    (size1, b1), (size2, b2) = setting.items
    limits = problem.columns([size1, size2]) * np.array([b1, b2], dtype=np.int64)
    first = np.minimum(limits[:, 0], problem.counts)
    room = np.minimum(limits[:, 1], problem.counts) - (problem.counts - first)
    order = problem.by_threshold
    free = np.minimum(room, first)[order]
    moved = np.clip(int(first.sum()) - size1 * b1 - (np.cumsum(free) - free), 0, free)
    first[order] -= moved
    return np.stack([first, problem.counts - first], axis=1)


def multi_size(problem: Problem) -> Setting | None:
    """Algorithm 2: split by the best two-size setting, and again within each part while Loss falls.

    The first B has infinite loss; a part without a valid split keeps its B; equal sizes are merged; thresholds stay
    those of the whole table.
    """
    whole = best_two_size(problem)
    if whole is None:
        return None
    total: Counter[int] = Counter()
    parts = [(problem, whole)]
    while parts:
        part, setting = parts.pop()
        if len(setting.items) == 1:
            split = best_two_size(part)
            if split is None or split.loss >= setting.loss:
                total.update(dict(setting.items))
                continue
            setting = split
        columns = partition(part, setting) if len(setting.items) == 2 else part.counts[:, None]
        for j, item in enumerate(setting.items):
            below = replace(part, counts=columns[:, j])
            parts.append((below, Setting((item,))))
    return Setting.of(total)


# Search ---------------------------------------------------------------------------------------------------------------
# From a problem to a checked plan, or to an explanation of why there is none.

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
        lower_bound = optimal.lower_bound(problem)
        proof = "certificate" if lower_bound == setting.loss else "none"
    if setting is None:
        raise explain(problem, algorithm, _exists(algorithm, solve), _unplaced(problem, algorithm))
    if algorithm == "informative":
        allocation, most = informative.divided(problem, setting)
        return checked(problem, Plan(algorithm, setting, allocation, lower_bound, proof, most, lasted))
    allocation = allocate_values(problem, setting).allocation
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
        return lambda problem: informative.search_pruned(problem, prune)
    return {
        "anatomy": anatomy,
        "one-size": optimal.best_one_size,
        "two-size": optimal.best_two_size,
        "multi-size": multi_size,
        "optimal": optimal.best_two_size,
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


# Suppress -------------------------------------------------------------------------------------------------------------
# Leaving out records of values that are too frequent for l-diversity, as Chaytor and Wang do to run Anatomy (6.3).

LEFT_OUT = -1  # the bucket of a record that is left out


def kept(counts: Ints, threshold: Fraction) -> Ints:
    """The most records (m,) of which each value has at most 1/l, l = ceil(1/threshold): the largest fixed point of
    c = min(o, floor(sum c / l)). If there are fewer than l values nothing would be left, and ``counts`` is returned.
    """
    ways, left = ceil(1 / threshold), counts
    while True:
        most = int(left.sum()) // ways
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
        f"value {labels[worst]} has frequency {float(share):.6g} above its threshold {text(threshold)}; leaving "
        f"{number:,} records out tells their value to whoever sees that they are missing: what works is "
        f"excess = 'refuse' with a threshold of {text(share)}, or absence = 'unobservable', which states that "
        "adversaries do not know who is in the table",
        {"value": labels[worst], "frequency": text(share), "threshold": text(share), "left_out": number},
    )


def spread(bids: Bids, left: Ints, counts: Ints, noise: Shuffler) -> Bids:
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


def search(db: Relations, domain: Records, asked: Bucketize) -> tuple[Plan, Problem]:
    """The setting and what it is for; raises ``InfeasibleError``, and ``UsageError`` for a wrong threshold."""
    values = thresholds(db, domain, asked.threshold) if domain.counts else ()
    counts = np.array(domain.counts, dtype=np.int64)
    left = kept(counts, values[0]) if asked.excess == "suppress" and values else counts
    if asked.absence == "observable" and values:
        refuse_observed(counts, left, domain.labels, values[0])
    problem = Problem(
        counts=left,
        thresholds=values,
        smallest=asked.min_bucket_size,
        largest=_largest(asked, len(counts)),
        labels=tuple(domain.labels),
        bounds=bounds_of(db, domain, asked) if domain.counts else (),
    )
    if len(problem.trees) > 1 and asked.composition != "blocks":
        raise UsageError(f"mechanism.layout: {asked.composition!r} does not keep groups that cross; take 'blocks'")

    def plan_of(problem: Problem) -> Plan:
        return find(problem, asked.algorithm, prune=asked.prune, seconds=asked.proof_seconds)

    if not asked.fake_values or asked.uneven_fakes == "state":
        return plan_of(problem), problem
    found = even(problem, asked.fake_values, plan_of)
    listed_ = times_listed(problem.counts, found.setting.items, asked.fake_values).sum(axis=1)
    fakes.refuse_certain(problem.counts, listed_, problem.labels)
    return found, problem


def _largest(asked: Bucketize, values: int) -> int:
    """The largest bucket that may be used: with fakes each value at most once."""
    if not asked.fake_values or asked.threshold.default is None:
        return asked.max_bucket_size
    twice = ceil(2 / asked.threshold.default.intercept)  # from this size on a value may stand twice
    largest = min(asked.max_bucket_size, twice - 1, values - asked.fake_values)
    smallest = max(asked.min_bucket_size, ceil(1 / asked.threshold.default.intercept))
    if largest < smallest:
        raise InfeasibleError(
            f"with {asked.fake_values} fake values and each value at most once, buckets can hold {max(0, largest)} "
            f"records, fewer than the {smallest} that are asked for; ask for fewer fakes",
            {"largest_bucket": largest},
        )
    return largest
