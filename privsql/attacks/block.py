"""Records that are attacked together, and the arithmetic of beliefs about them, in arrays.

A block has b groups of r records and t slots each. Slots are places in the sensitive table: for a bucket, its listed
values, each as often as it is counted, sigma of them fake; for a perturbed sub-table, its domain, where a value can be
had by any number of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

STEPS = 30  # of the scaling at most
EXACT = 1e-4  # sums of slots that are near enough to 1
LEAST = 1e-30  # no slot is impossible by rounding


@dataclass(frozen=True)
class Block:
    """``rows`` (b, r): positions of the records; ``codes`` (b, t): values of the slots; ``prior`` (b, r or 1, t): the
    probability of each slot for a record before anything is learnt.

    ``exclusive``: each slot belongs to one record, or, for ``spare`` of each group's slots, to none.
    """

    rows: Ints
    codes: Ints
    prior: Floats
    exclusive: bool = False
    spare: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """(b, r, t)."""
        return (*self.rows.shape, self.codes.shape[1])

    @cached_property
    def times(self) -> Ints:
        """How many slots of the group have the same value (b, t)."""
        if not self.exclusive:
            return np.ones(self.codes.shape, dtype=np.int64)
        return np.asarray((self.codes[:, :, None] == self.codes[:, None, :]).sum(axis=2))

    def believe(self, likelihood: Floats) -> Floats:
        """Posterior of the slots (b, r, t) from the likelihoods of their values (b, r, t), at any scale per record.

        Where slots are exclusive, the matrix of a group is scaled until every record has one slot and every slot at
        most one record (Sinkhorn and Knopp 1967), the fakes being one more record that takes ``spare`` slots: the
        mean-field approximation of a sum over all assignments.
        """
        weights = np.maximum(self.prior * likelihood, LEAST)
        weights /= weights.sum(axis=2, keepdims=True)
        return self._scaled(weights) if self.exclusive else weights

    def _scaled(self, weights: Floats) -> Floats:
        others = np.ones((len(weights), 1, weights.shape[2])) if self.spare else weights[:, :0]
        for _ in range(STEPS):
            taken = weights.sum(axis=1, keepdims=True) + others.sum(axis=1, keepdims=True)
            if np.abs(taken - 1).max(initial=0) < EXACT:
                break
            weights, others = weights / taken, others / taken
            weights /= weights.sum(axis=2, keepdims=True)
            others = others * (self.spare / others.sum(axis=2, keepdims=True))
        return weights

    def of_values(self, slots: Floats) -> Floats:
        """Posterior of the slots' values (b, r, t): a value that is listed twice has the slots of both."""
        return np.asarray(slots * self.times[:, None, :])
