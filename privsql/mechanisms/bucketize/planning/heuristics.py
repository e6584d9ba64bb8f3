"""Anatomy's setting (the baseline) and the paper's Algorithm 2 for several sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from privsql.mechanisms.bucketize.model import Ints, Problem, Setting
from privsql.mechanisms.bucketize.planning.hall import allocate
from privsql.mechanisms.bucketize.planning.twosize import best_two_size


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
        return allocate(problem, setting).allocation
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
