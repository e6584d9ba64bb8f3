"""The thesis' re-applying algorithm to the letter: every segment against every group of the releases that are given.

Against all earlier releases it is the optimum by Definition 5 (``reapply-all``, O(m n^3)); against the last one alone
it misses breaches against older ones (``reapply-last``). A baseline and a reference: ``exact`` finds the same much
faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.permute.sweep import traced

if TYPE_CHECKING:
    from privsql.mechanisms.permute.axis import Axis, Ints
    from privsql.mechanisms.permute.history import History

MOST = 400  # records; beyond them it takes minutes


def reapply(history: History) -> list[int] | None:
    """Left ends of the segments of least sum (max - min), then most groups, that no given release breaches; or None."""
    n = len(history.ranks)
    units = [history.axis.units[rank] for rank in history.ranks.tolist()]
    cost: list[tuple[int, int] | None] = [(0, 0)]
    back: list[int] = []
    for i in range(n):
        best, arg = None, -1
        for j in range(i + 1):
            before = cost[j]
            if before is None or not safe(history, j, i):
                continue
            found = (before[0] + units[i] - units[j], before[1] - 1)
            if best is None or found < best:
                best, arg = found, j
        cost.append(best)
        back.append(arg)
    return traced(back)


def safe(history: History, first: int, last: int) -> bool:
    """Whether the records first..last are fine and breach no group of any given release (Definition 5)."""
    axis, ranks = history.axis, history.ranks
    inside = np.zeros(len(ranks), dtype=bool)
    inside[first : last + 1] = True
    if not axis.fine(ranks[inside]):
        return False
    return all(
        _unbreached(axis, ranks, inside, groups == a)
        for groups in history.groups
        for a in np.unique(groups[inside]).tolist()
        if a >= 0
    )


def _unbreached(axis: Axis, ranks: Ints, b: np.ndarray, a: np.ndarray) -> bool:
    return all(not members.any() or axis.fine(ranks[members]) for members in (a & b, a & ~b, b & ~a))
