"""Tables of answers that fit each other: cells, what their columns say alone, and the question without any group.

Answers grouped by several columns are moved half way to what each of these columns alone says.

The records of one value of a grouping column are many more than those of one cell, so that their estimate n is better
than the sum of their cells' estimates x, each of which was drawn to the overall shares by itself. In ``ROUNDS`` rounds
over the columns

    x <- x + 1/2 (V / sum V) (n - sum x),    sums over the cells of one value, V their variances:

the least squares that bring the sums to n, but half way, because n and the x share their evidence. (Deming & Stephan
1940 adjust to margins that are known; here both sides are estimates.)

At last the cells of every table are moved all the way to the answer without the groups, which is exact where all
records are asked: a table adds up. Of what is missing each cell takes a part in proportion to its variance, within its
bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.channel import TINY
from privsql.answers.interval import within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.answers.channel import Floats

ROUNDS = 3
PART = 0.5  # of the way


@dataclass(frozen=True)
class Margin:
    """``member`` (G,): which of the margin's rows each cell is in; ``wanted`` (P, f): what these are by themselves."""

    member: NDArray[np.intp]
    wanted: Floats

    def summed(self, cells: Floats) -> Floats:
        """Sums of cells (G, f) over each row (P, f)."""
        found = np.zeros_like(self.wanted)
        np.add.at(found, self.member, cells)
        return found


def adding_up(cells: Floats, wanted: Floats, bounds: tuple[Floats, Floats], variance: Floats) -> Floats:
    """The cells (G, f) with the sums ``wanted`` (f,), as far as ``bounds`` allow it, the least and the most of each."""
    least, most = bounds
    beyond, room = (wanted - least.sum(axis=0)).clip(0), (most - least).clip(0)
    return np.asarray(within((cells - least).T, beyond, room.T, variance.T + TINY).T + least)


def raked(cells: Floats, variance: Floats, margins: Sequence[Margin]) -> Floats:
    """The cells (G, f) moved towards their margins; one without variance stays."""
    for _ in range(ROUNDS):
        for margin in margins:
            whole = margin.summed(variance)[margin.member]
            part = np.divide(variance, whole, out=np.zeros_like(variance), where=whole > 0)
            cells = cells + PART * part * (margin.wanted - margin.summed(cells))[margin.member]
    return cells
