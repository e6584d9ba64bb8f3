"""Tables of counts with noise: one of each clique of columns, every cell of its domain."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.dpnoise import variance_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from privsql.dpnoise import CountNoise

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Clique = tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """The counts of a clique, each with discrete Laplace noise of scale 1/epsilon.

    ``columns``: places of the k columns, ascending; ``counts``: an array of k axes, one value of a column each. A
    record added or removed changes one true count by one, so the table spends epsilon. ``choice``: what choosing it
    among others spent; None where it was not chosen.
    """

    columns: Clique
    epsilon: Fraction
    counts: Ints
    choice: Fraction | None = None

    @property
    def variance(self) -> float:
        """Of each count's noise."""
        return variance_of(self.epsilon)


def measured(
    columns: Clique, counts: Ints, epsilon: Fraction, noise: CountNoise, choice: Fraction | None = None
) -> Measured:
    """The table of true ``counts`` with noise, drawn as one vector."""
    return Measured(columns, epsilon, noise.noisy(counts.reshape(-1), epsilon).reshape(counts.shape), choice)


def divided(total: Fraction, weights: Sequence[int]) -> list[Fraction]:
    """Parts of a budget in proportion to whole numbers; their sum is ``total``, exactly."""
    return [total * weight / sum(weights) for weight in weights]


def share(cells: int) -> int:
    """What a table of so many cells is given of a budget, beside others: 1,000 times the square root, rounded down.

    With a budget of e its counts err by cells/e in all; over several tables that sum is least for the square root.
    """
    return isqrt(cells * 10**6)
