"""Which records go to which bucket size: a transportation problem, solved in exact integers.

A setting b is valid iff records can be sent to sizes with at most F_iS * b_S of value i to size S (Gale 1957; a
refinement of Theorem 4.17 of the paper, which is right for two sizes only). When they can't, the residual graph
names a Hall set X of values with  sum_{i in X} o_i > sum_S min(S, sum_{i in X} F_iS) * b_S.

There are few sizes and many values, so paths are searched on the graph of sizes alone: the arc S -> T has
capacity sum_i min(y_iS, U_iT - y_iT), the records that may move from S to T whatever their value.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.groups import crossing, flow

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.groups.families import Tree
    from privsql.mechanisms.bucketize.groups.flow import Flags
    from privsql.mechanisms.bucketize.model import Ints, Plan, Problem, Setting


@dataclass(frozen=True)
class Flow:
    """The outcome of ``transport``: the allocation y (m, k), and where it got stuck.

    ``unplaced`` is the number of records that fit nowhere; ``blocked`` (m,) flags the values of a violated
    Hall set, all False if everything was placed.
    """

    allocation: Ints
    unplaced: int
    blocked: Flags


def transport(supply: Ints, limits: Ints, demand: Ints) -> Flow:
    """Send ``supply`` (m,) to sizes with ``demand`` (k,), at most ``limits`` (m, k) of each value to each size."""
    order = np.argsort(limits.sum(axis=1), kind="stable")
    allocation = np.zeros_like(limits)
    allocation[order] = _spread(supply[order], limits[order], demand)
    unplaced = supply - allocation.sum(axis=1)
    if unplaced.any():
        return Flow(allocation, int(unplaced.sum()), unplaced > 0)
    while True:
        excess = allocation.sum(axis=0) - demand
        path = _path(allocation, limits, excess)
        if not isinstance(path, list):
            stuck = int(excess.clip(0).sum())
            holders = np.asarray((allocation[:, path] > 0).any(axis=1))
            return Flow(allocation, stuck, holders if stuck else np.zeros_like(holders))
        _push(allocation, limits, path, excess)


def allocate(problem: Problem, setting: Setting) -> Flow:
    """Transport the records of ``problem`` to the buckets of ``setting``; with two trees, of at most two sizes."""
    sizes = np.array(setting.sizes, dtype=np.int64)
    buckets = np.array(setting.buckets, dtype=np.int64)
    if len(problem.trees) < 2:
        limits = problem.columns(setting.sizes) * buckets
        sets = [(tree, problem.floors(tree.bounds, sizes) * buckets) for tree in problem.trees]
        return send(problem.counts, limits, sizes * buckets, *sets)
    found = crossing.allocate(problem, setting)
    none = np.zeros(len(problem.counts), dtype=bool)
    if isinstance(found, crossing.Cut):
        return Flow(np.zeros((len(none), len(sizes)), dtype=np.int64), problem.records, none)
    return Flow(found, 0, none)


def send(supply: Ints, limits: Ints, demand: Ints, sets: tuple[Tree, Ints] | None = None) -> Flow:
    """``transport``, or where there is a tree of bounded sets (N, k) the same through that."""
    if sets is None:
        return transport(supply, limits, demand)
    allocation, blocked = flow.tree_transport(sets[0], supply, limits, sets[1], demand)
    left = int(supply.sum() - allocation.sum())
    return Flow(allocation, left, blocked if left else np.zeros_like(blocked))


def violation(problem: Problem, plan: Plan) -> str | None:
    """Independent check of a plan in exact integers; the first thing that is wrong, or None.

    It recomputes floors from the rational thresholds and trusts nothing that a search has cached.
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
        for i, threshold in enumerate(problem.thresholds):
            if int(allocation[i, j]) > threshold.numerator * size // threshold.denominator * buckets:
                return f"value {i} has more records in the buckets of size {size} than its threshold allows"
    return _beyond_bounds(problem, plan) or _beyond_limits(problem, plan)


def _beyond_limits(problem: Problem, plan: Plan) -> str | None:
    """The same for what a layout may put into one bucket."""
    if plan.most is None:
        return None
    for j, (size, buckets) in enumerate(plan.setting.items):
        for i, threshold in enumerate(problem.thresholds):
            most = int(plan.most[i, j])
            if not plan.allocation[i, j] <= most * buckets <= threshold * size * buckets:
                return f"value {i} may not stand {most} times in a bucket of {size}"
    return None


def _beyond_bounds(problem: Problem, plan: Plan) -> str | None:
    """The same for sets of values."""
    for j, (size, buckets) in enumerate(plan.setting.items):
        for one in problem.bounds:
            held = sum(int(plan.allocation[i, j]) for i in one.members)
            if held > one.threshold.numerator * size // one.threshold.denominator * buckets:
                return f"{one.name} has more records in the buckets of size {size} than its bound allows"
    return None


def _spread(supply: Ints, limits: Ints, demand: Ints) -> Ints:
    """Greedy start: values in row order; each fills the sizes left to right, first up to the demand, then beyond."""
    allocation = np.zeros_like(limits)
    left, room = supply.copy(), demand.copy()
    for j in range(limits.shape[1]):
        offer = np.minimum(limits[:, j], left)
        before = np.cumsum(offer) - offer
        allocation[:, j] = np.clip(room[j] - before, 0, offer)
        left -= allocation[:, j]
    for j in range(limits.shape[1]):
        more = np.minimum(limits[:, j] - allocation[:, j], left)
        allocation[:, j] += more
        left -= more
    return allocation


def _movable(allocation: Ints, limits: Ints, size: int) -> Ints:
    """Records in ``size`` that may move to each other size (k,)."""
    return np.asarray(np.minimum(allocation[:, [size]], limits - allocation).sum(axis=0))


def _path(allocation: Ints, limits: Ints, excess: Ints) -> list[int] | Flags:
    """Shortest path of sizes from one with too many records to one with too few, or the sizes reached."""
    parent = {int(size): -1 for size in np.flatnonzero(excess > 0)}
    queue = deque(parent)
    while queue:
        size = queue.popleft()
        if excess[size] < 0:
            path = [size]
            while parent[path[-1]] >= 0:
                path.append(parent[path[-1]])
            return path[::-1]
        for target in np.flatnonzero(_movable(allocation, limits, size)):
            if int(target) not in parent:
                parent[int(target)] = size
                queue.append(int(target))
    return np.isin(np.arange(len(excess)), list(parent))


def _push(allocation: Ints, limits: Ints, path: list[int], excess: Ints) -> None:
    """Move as many records as the path allows, in place."""
    arcs = list(itertools.pairwise(path))
    free = [np.minimum(allocation[:, a], limits[:, b] - allocation[:, b]) for a, b in arcs]
    amount = min(int(excess[path[0]]), -int(excess[path[-1]]), *(int(room.sum()) for room in free))
    for (source, target), room in zip(arcs, free, strict=True):
        before = np.cumsum(room) - room
        moved = np.clip(amount - before, 0, room)
        allocation[:, source] -= moved
        allocation[:, target] += moved
