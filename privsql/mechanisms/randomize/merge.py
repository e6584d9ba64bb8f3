"""The merging phase: unions of initial groups with the smallest weighted error bound.

The paper's procedure is one order (reverse Cuthill-McKee) and a dynamic program over it. Here several orders compete,
the best is improved by moving groups between sub-tables, and up to ``MOST_EXACT`` groups all unions are searched.
Nothing depends on the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.mechanisms.randomize.model import Floats, Ints, Problem

MOST_EXACT = 12  # groups up to which every union is looked at: 3^12 pairs
FEW = 64  # groups up to which every order's result is improved, not the best alone
SMALL = 1e-12  # relative gain that is none
MOST_WORK = 3 * 10**6  # counts that improvement may touch

Labels = np.ndarray[tuple[int], np.dtype[np.int64]]  # (t,) the sub-table of every initial group


@dataclass(frozen=True)
class Goal:
    """To make column 0 (the bound) or 1 (the variance) of the costs small; the bound stays within ``most``."""

    column: int
    most: float = np.inf

    def best(self, changes: Floats, total: Floats) -> int | None:
        """The change (rows) that lowers the cost most within the limit, or None."""
        allowed = total[0] + changes[:, 0] <= self.most
        gains = np.where(allowed, changes[:, self.column], np.inf)
        at = int(np.argmin(gains))
        return at if gains[at] < -SMALL * max(1.0, total[self.column]) else None


BOUND = Goal(0)


def merged(problem: Problem, groups: Ints, objective: str = "bound") -> tuple[Labels, bool]:
    """The sub-table of every group (t, m), and whether no union of groups has a smaller bound.

    ``bound``: the smallest bound that is found. ``error``: the smallest expected squared error among partitions whose
    bound exceeds neither that of the paper's procedure nor that of the whole table.
    """
    paper = along(problem, groups, paper_order(groups))
    whole = np.zeros(len(groups), dtype=np.int64)
    least, optimal = _least_bound(problem, groups, [paper, whole])
    if objective == "bound":
        return least, optimal
    goal = Goal(1, min(bound(problem, groups, labels) for labels in (paper, whole)))
    starts = [least, np.arange(len(groups)), paper, whole]
    ends = [improved(problem, groups, labels, goal) for labels in starts if bound(problem, groups, labels) <= goal.most]
    return min(ends, key=lambda labels: float(problem.costs_of(union(groups, labels))[:, 1].sum())), False


def _least_bound(problem: Problem, groups: Ints, known: list[Labels]) -> tuple[Labels, bool]:
    if len(groups) <= MOST_EXACT:
        return exact(problem, groups), True
    found = [*known, *(along(problem, groups, order) for order in orders(groups))]
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
    """Orders of the groups in which neighbours share values, as cheap as the paper's."""
    held = groups > 0
    yield np.arange(len(groups))
    values = np.arange(groups.shape[1])
    yield np.argsort((held * values).sum(axis=1) / held.sum(axis=1), kind="stable")
    yield np.argsort(groups @ values / groups.sum(axis=1), kind="stable")
    yield _nearest(held)


def paper_order(groups: Ints) -> Ints:
    """Reverse Cuthill-McKee on A A^T, A (t, m) the counts of the groups (Chaytor and Wang, section 5.2)."""
    counts = scipy.sparse.csr_array(groups.astype(np.float64))
    return np.asarray(
        scipy.sparse.csgraph.reverse_cuthill_mckee(scipy.sparse.csr_array(counts @ counts.T), symmetric_mode=True),
        dtype=np.int64,
    )


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


def improved(problem: Problem, groups: Ints, labels: Labels, goal: Goal = BOUND) -> Labels:
    """Move single groups to other sub-tables, or to new ones, and join sub-tables, while that serves the goal."""
    labels, work, better = labels.copy(), 0, True
    while better and work < MOST_WORK:
        better = False
        for group in range(len(groups)):
            parts = np.vstack((union(groups, labels), np.zeros((1, groups.shape[1]), dtype=np.int64)))
            work += parts.size
            target = _best_move(problem, parts, groups[group], int(labels[group]), goal)
            if target is not None:
                labels[group], better = target, True
                labels = _renumbered(labels)
            if work >= MOST_WORK:
                break
        joined = _joined(problem, union(groups, labels), goal)
        if joined is not None:
            labels[labels == joined[1]] = joined[0]
            labels, better = _renumbered(labels), True
    return labels


def _best_move(problem: Problem, parts: Ints, group: Ints, own: int, goal: Goal) -> int | None:
    """The sub-table that a group should move to, or None; the last of ``parts`` is empty."""
    costs = np.vstack((problem.costs_of(parts[:-1]), np.zeros(2)))
    without = parts[own] - group
    left = problem.costs_of(without[None])[0] if without.any() else np.zeros(2)
    changes = problem.costs_of(parts + group) - costs + left - costs[own]
    changes[own] = np.inf
    return goal.best(changes, costs.sum(axis=0))


def _joined(problem: Problem, parts: Ints, goal: Goal) -> tuple[int, int] | None:
    """Two sub-tables that are better joined, or None."""
    costs = problem.costs_of(parts)
    for first in range(len(parts) - 1):
        rest = slice(first + 1, None)
        changes = problem.costs_of(parts[first] + parts[rest]) - costs[first] - costs[rest]
        at = goal.best(changes, costs.sum(axis=0))
        if at is not None:
            return first, first + 1 + at
    return None


def _renumbered(labels: Labels) -> Labels:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)
