"""The merging phase: unions of initial groups with the smallest weighted error bound.

The paper's procedure is one order (reverse Cuthill-McKee) and a dynamic program over it. Here several orders compete,
the best is improved by moving groups between sub-tables, and up to ``MOST_EXACT`` groups all unions are searched.
Nothing depends on the clock.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.mechanisms.randomize.model import Ints, Problem

MOST_EXACT = 12  # groups up to which every union is looked at: 3^12 pairs
FEW = 64  # groups up to which every order's result is improved, not the best alone
MOST_WORK = 3 * 10**6  # counts that improvement may touch

Labels = np.ndarray[tuple[int], np.dtype[np.int64]]  # (t,) the sub-table of every initial group


def merged(problem: Problem, groups: Ints) -> tuple[Labels, bool]:
    """The sub-table of every group (t, m), and whether no other union of groups has a smaller bound."""
    if len(groups) <= MOST_EXACT:
        return exact(problem, groups), True
    found = [along(problem, groups, order) for order in orders(groups)]
    found.append(np.zeros(len(groups), dtype=np.int64))
    found.sort(key=lambda labels: bound(problem, groups, labels))
    starts = found if len(groups) <= FEW else found[:1]
    ends = [improved(problem, groups, labels) for labels in starts]
    return min(ends, key=lambda labels: bound(problem, groups, labels)), False


def bound(problem: Problem, groups: Ints, labels: Labels) -> float:
    """sum_j (|T_j|/n) eps_j."""
    return float(problem.cost(union(groups, labels)).sum())


def union(groups: Ints, labels: Labels) -> Ints:
    """Counts (k, m) of the sub-tables."""
    parts = np.zeros((int(labels.max()) + 1, groups.shape[1]), dtype=np.int64)
    np.add.at(parts, labels, groups)
    return parts


def orders(groups: Ints) -> Iterator[Ints]:
    """Orders of the groups in which neighbours share values: the paper's, and others that are as cheap."""
    yield paper_order(groups)
    held = groups > 0
    yield np.arange(len(groups))
    values = np.arange(groups.shape[1])
    yield np.argsort((held * values).sum(axis=1) / held.sum(axis=1), kind="stable")
    yield np.argsort(groups @ values / groups.sum(axis=1), kind="stable")
    yield _nearest(held)


def paper_order(groups: Ints) -> Ints:
    """Reverse Cuthill-McKee on A A^T, A (t, m) the counts of the groups (Chaytor and Wang, section 5.2)."""
    counts = csr_array(groups.astype(np.float64))
    return np.asarray(reverse_cuthill_mckee(csr_array(counts @ counts.T), symmetric_mode=True), dtype=np.int64)


def _nearest(held: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Ints:
    """From the first group on, always to the one that shares most of its values."""
    shared = held.astype(np.int32) @ held.T.astype(np.int32)
    left = np.ones(len(held), dtype=bool)
    path = [0]
    left[0] = False
    while left.any():
        path.append(int(np.argmax(np.where(left, shared[path[-1]], -1))))
        left[path[-1]] = False
    return np.array(path)


def along(problem: Problem, groups: Ints, order: Ints) -> Labels:
    """The best sub-tables that are runs of neighbours in ``order`` (t,): dynamic program (equation 14), O(t^2).

    For every start of a run its counts, size and largest protected count grow with the end of the run.
    """
    t, m = groups.shape
    counts = np.zeros((t, m), dtype=np.int64)  # of the run from each start
    domains, highest = np.zeros(t, dtype=np.int64), np.zeros(t, dtype=np.int64)
    sizes = np.zeros(t, dtype=np.int64)
    best, cut = np.zeros(t + 1), np.zeros(t, dtype=np.int64)
    for end, group in enumerate(order.tolist()):
        values = np.flatnonzero(groups[group])
        runs = counts[: end + 1, values]
        domains[: end + 1] += (runs == 0).sum(axis=1)
        runs += groups[group, values]
        counts[: end + 1, values] = runs
        inner = runs[:, problem.protected[values]]
        np.maximum(highest[: end + 1], inner.max(axis=1, initial=0), out=highest[: end + 1])
        sizes[: end + 1] += groups[group].sum()
        totals = best[: end + 1] + problem.costs(sizes[: end + 1], domains[: end + 1], highest[: end + 1])
        cut[end] = int(np.argmin(totals))
        best[end + 1] = totals[cut[end]]
    return _cut(order, cut)


def _cut(order: Ints, cut: Ints) -> Labels:
    ends = [len(order)]
    while ends[-1]:
        ends.append(int(cut[ends[-1] - 1]))
    labels = np.zeros(len(order), dtype=np.int64)
    for label, (begin, end) in enumerate(pairwise(ends[::-1])):
        labels[order[begin:end]] = label
    return labels


def exact(problem: Problem, groups: Ints) -> Labels:
    """The best unions of at most ``MOST_EXACT`` groups: over all sets S, best(S) = min cost(U) + best(S - U).

    U holds the last group of S, so every partition is looked at once: 3^t/2 pairs in all.
    """
    t = len(groups)
    sets = np.arange(2**t)
    members = (sets[:, None] >> np.arange(t)) & 1
    costs = problem.cost(members @ groups)
    best, choice = np.zeros(2**t), np.zeros(2**t, dtype=np.int64)
    for last in range(t):
        inside = sets[: 2**last]  # what U may hold besides the last group
        for rest in inside:
            parts = inside[inside & ~rest == 0]
            totals = costs[parts | 2**last] + best[rest & ~parts]
            at = int(np.argmin(totals))
            best[rest | 2**last], choice[rest | 2**last] = totals[at], parts[at] | 2**last
    labels, left, label = np.zeros(t, dtype=np.int64), 2**t - 1, 0
    while left:
        labels[members[choice[left]] > 0] = label
        left, label = left & ~int(choice[left]), label + 1
    return labels


def improved(problem: Problem, groups: Ints, labels: Labels) -> Labels:
    """Move single groups to other sub-tables, or to new ones, and join sub-tables, while that lowers the bound."""
    labels, work, better = labels.copy(), 0, True
    while better and work < MOST_WORK:
        better = False
        for group in range(len(groups)):
            parts = np.vstack((union(groups, labels), np.zeros((1, groups.shape[1]), dtype=np.int64)))
            work += parts.size
            target = _best_move(problem, parts, groups[group], int(labels[group]))
            if target is not None:
                labels[group], better = target, True
                labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
            if work >= MOST_WORK:
                break
        joined = _joined(problem, union(groups, labels))
        if joined is not None:
            labels[labels == joined[1]] = joined[0]
            labels, better = np.unique(labels, return_inverse=True)[1].astype(np.int64), True
    return labels


def _best_move(problem: Problem, parts: Ints, group: Ints, own: int) -> int | None:
    """The sub-table that a group should move to, or None; the last of ``parts`` is empty."""
    costs = problem.cost(parts[:-1])
    without = parts[own] - group
    freed = costs[own] - (_one(problem, without) if without.any() else 0.0)
    added = problem.cost(parts + group) - np.append(costs, 0.0)
    added[own] = np.inf
    target = int(np.argmin(added))
    return target if added[target] < freed - 1e-12 else None


def _joined(problem: Problem, parts: Ints) -> tuple[int, int] | None:
    """Two sub-tables that are better joined, or None."""
    costs = problem.cost(parts)
    for first in range(len(parts) - 1):
        gains = costs[first] + costs[first + 1 :] - problem.cost(parts[first] + parts[first + 1 :])
        at = int(np.argmax(gains))
        if gains[at] > 1e-12:
            return first, first + 1 + at
    return None


def _one(problem: Problem, part: Ints) -> float:
    return float(problem.cost(part[None])[0])
