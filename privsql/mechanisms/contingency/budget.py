"""How a partition's expansion shares out its budget, in exact fractions (paper, section 4.1 and appendix D).

A partition that has ``rest`` of the tree's half of epsilon unspent, and at most N expansions before it (the sum over
columns of the height of its node), spends alpha = rest/N on its next one. If several columns can be expanded, the
choice among them takes a share of alpha. A sub-partition that is not a cell is counted with what remains of alpha; a
cell is counted once, with everything that is left, epsilon/2 + rest less the choice. Sub-partitions are disjoint, so
every path from the root to a cell spends epsilon: choices and counts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from privsql.mechanisms.contingency.parameters import Contingency


@dataclass(frozen=True)
class Shares:
    """Of one expansion: what the choice of the column, an inner sub-partition's count, and a cell's count spend.

    ``choice`` is 0 where there is nothing to choose; ``rest`` is what an inner sub-partition has left.
    """

    choice: Fraction
    inner: Fraction
    cell: Fraction
    rest: Fraction


def shares(asked: Contingency, rest: Fraction, expansions: int, *, several: bool) -> Shares:
    """The shares of an expansion."""
    alpha = rest / expansions
    choice = alpha * asked.choice if several else Fraction(0)
    return Shares(choice, alpha - choice, asked.epsilon / 2 + rest - choice, rest - alpha)
