"""The balancing phase: initial groups in which no protected value is more frequent than in the whole table.

Chaytor and Wang, section 5.1 and figure 1; appendix 10.7 where only some values are protected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from privsql.mechanisms.randomize.model import Ints, Mask


def initial_groups(counts: Ints, protected: Mask) -> Ints:
    """Groups (t, m) that sum to ``counts`` (m,); equal counts are taken in the order of the values.

    The records of protected values are balanced first; the others are spread over the groups in proportion.
    """
    inner = np.where(protected, counts, 0)
    groups = balanced(inner, int(inner.sum()) // int(inner.max()))
    rest = counts - inner
    return groups + _spread(groups.sum(axis=1), rest) if rest.any() else groups


def balanced(counts: Ints, theta: int) -> Ints:
    """theta-balanced groups (t, m): each value has at most 1/theta of each group, and of what is left after it."""
    left, groups = counts.copy(), []
    while left.any():
        order = np.argsort(-left, kind="stable")
        chosen = order[:theta]
        height = _height(left[order[: theta + 1]], int(left.sum()), theta)
        group = left.copy()
        if height:
            group = np.zeros_like(left)
            group[chosen] = height
        groups.append(group)
        left = left - group
    return np.array(groups)


def _height(frequencies: Ints, total: int, theta: int) -> int:
    """h: the most records of each of the theta most frequent values whose removal leaves the rest theta-balanced.

    ``frequencies``: mu_1 >= .. >= mu_(theta+1). With sigma(v) = total/theta - max(mu_1 - v, mu_(theta+1)):
    h = mu_theta if sigma(mu_theta) >= mu_theta, else floor(total/theta - mu_(theta+1)); all in integers.
    """
    first, last = int(frequencies[0]), int(frequencies[theta - 1])
    beyond = int(frequencies[theta]) if len(frequencies) > theta else 0
    if total - theta * max(first - last, beyond) >= theta * last:
        return last
    return total // theta - beyond


def _spread(sizes: Ints, rest: Ints) -> Ints:
    """The other records: floor(|g_j|/|T'| |T''|) to group j, the most frequent values first, the residue to the last.

    Products of sizes are Python integers: they can exceed 64 bits.
    """
    others, inner = int(rest.sum()), int(sizes.sum())
    shares = [size * others // inner for size in sizes.tolist()]
    shares[-1] += others - sum(shares)
    spread = np.zeros((len(shares), len(rest)), dtype=np.int64)
    order = np.argsort(-rest, kind="stable")
    ends = np.cumsum(rest[order])
    starts = ends - rest[order]
    begin = 0
    for j, share in enumerate(shares):
        taken = np.minimum(ends, begin + share) - np.maximum(starts, begin)
        spread[j, order] = taken.clip(0)
        begin += share
    return spread
