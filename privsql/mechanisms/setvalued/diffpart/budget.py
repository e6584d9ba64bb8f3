"""Budgets and thresholds of DiffPart, in exact fractions (paper, section 4.1).

A partition that has ``rest`` of the tree's half of the budget unspent, and N inner nodes below its hierarchy cut,
spends alpha = rest/N on its next expansion. The expansion of the last inner node spends nothing of its own: its
children are item sets, each counted once with all that is left, epsilon/2 + rest. So every path from the root to an
item set spends epsilon: the sum of its alphas is epsilon/2 - rest.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

from privsql.mechanisms.noisytree.budget import cutoff

if TYPE_CHECKING:
    from fractions import Fraction

    from privsql.mechanisms.setvalued.parameters import SetValued


def portion(epsilon: Fraction, rest: Fraction, inner: int) -> Fraction:
    """What one expansion spends: rest/N, or for the last one epsilon/2 + rest."""
    return rest / inner if inner > 1 else epsilon / 2 + rest


def threshold(asked: SetValued, spent: Fraction, *, degree: int, height: int, last: bool, nodes: int) -> int:
    """The least noisy size, at least 1, with which a sub-partition is kept. Depends on no data.

    With c1 and c2: ceil(sqrt(2)*c1/spent) for item sets (``last``), ceil(sqrt(2)*c2*height/spent) for others. Else the
    least t with (2^degree - 1) * Pr[noise >= t] <= tau/nodes, or tau_sets/nodes for item sets: the expected number of
    empty sub-partitions that pass. From one that passed at most (tau/nodes)^nodes <= e^(tau/e) others descend.
    """
    if asked.c1 is not None and asked.c2 is not None:
        factor = asked.c1 if last else asked.c2 * height
        return max(1, _ceil_root(2 * (factor / spent) ** 2))
    return cutoff(2**degree - 1, (asked.tau_sets if last else asked.tau) / nodes, spent)


def _ceil_root(square: Fraction) -> int:
    """Least integer t with t^2 >= square."""
    root = isqrt(square.numerator // square.denominator)
    return root if root * root >= square else root + 1
