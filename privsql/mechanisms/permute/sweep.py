"""The program of Zhang et al. (ICDE 2007) as one sweep with a moving minimum.

f[t] = hi_t + min over feasible s of (f[s-1] - lo_s): the least sum of (max - min) that covers the first elements. The
conditions are monotone in the left end, so every s enters the minimum once. Among the optima the most groups: a group's
cost is counted in units of T + 1 and each group takes one off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.permute.axis import Axis


def sweep(
    low: Sequence[int], high: Sequence[int], reach: Sequence[int], alone: Sequence[bool] | None = None
) -> list[int] | None:
    """Left ends of the cheapest segments over T elements, rising, or None if no partition is feasible. O(T).

    ``low``, ``high`` (T,): exact ends of every element, both rising; ``reach`` (T,), non-decreasing: the largest left
    end of a feasible segment that ends here, or -1; ``alone``: whether the element may also be a segment by itself.
    """
    if not low:
        return []
    scale, zero = len(low) + 1, low[0]
    infinite = (high[-1] - zero + 2) * scale
    cost, back = [0], []
    best, arg, entered = infinite, -1, 0
    low, high = ([(u - zero) * scale for u in ends] for ends in (low, high))
    singles = alone or [False] * len(low)
    for t, (end, least, single) in enumerate(zip(high, reach, singles, strict=True)):
        while entered <= least:
            if cost[entered] < infinite and (found := cost[entered] - low[entered]) < best:
                best, arg = found, entered
            entered += 1
        total, left = (best + end - 1, arg) if arg >= 0 else (infinite, -1)
        if single and cost[t] < infinite and (lone := cost[t] + end - low[t] - 1) < total:
            total, left = lone, t
        cost.append(total)
        back.append(left)
    return traced(back)


def traced(back: Sequence[int]) -> list[int] | None:
    """Left ends of the segments, rising, from ``back`` (T,): that of the best segment up to each element, or -1."""
    found: list[int] = []
    end = len(back)
    while end:
        end = back[end - 1]
        if end < 0:
            return None
        found.append(end)
    return found[::-1]


def static(axis: Axis) -> list[int] | None:
    """The ranks at which the groups of the static optimum begin, or None if even all records together are not fine.

    Minimises the sum over groups of (max - min) over all partitions into fine sets, of any shape: overlapping groups
    cost no less than their union, and a cut inside a run of equal values saves nothing.
    """
    ranks = np.arange(len(axis.units), dtype=np.int64)
    return sweep(axis.units, axis.units, axis.left_ends(ranks).tolist())
