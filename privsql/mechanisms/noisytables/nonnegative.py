"""Tables that a population can have: nothing negative, a given total, given sums along some axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytables.measured import Reals

    Margin = tuple[tuple[int, ...], Reals]


def nearest(table: Reals, total: float) -> Reals:
    """The non-negative table with a total that is nearest to ``table``: max(table - t, 0) for the right t."""
    if total <= 0:
        return np.zeros_like(table)
    descending = np.sort(table, axis=None)[::-1]
    levels = (np.cumsum(descending) - total) / np.arange(1, table.size + 1)
    level = levels[np.flatnonzero(descending > levels)[-1]]
    found: Reals = np.maximum(table - level, 0.0)
    return found


def raked(table: Reals, margins: Sequence[Margin], rounds: int) -> Reals:
    """Iterative proportional fitting: the table, its cells scaled in turn to each margin, so many times.

    A margin is (axes, sums over all other axes, in the order of the table's). From a product of factors it leads to the
    table of largest entropy with these margins. Cells that are 0 stay so, and so do sums that no cell can make up for.
    """
    for _ in range(rounds):
        for axes, wanted in margins:
            others = tuple(axis for axis in range(table.ndim) if axis not in axes)
            now = table.sum(axis=others)
            scale = np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
            table = table * np.expand_dims(scale, others)
    return table
