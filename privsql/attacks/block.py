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

STEPS, AFTER = 30, 5  # of the scaling at most, before and after the correction by minors
EXACT = 1e-4  # sums of slots that are near enough to 1
LEAST = 1e-30  # no slot is impossible by rounding
NEARLY = 1 - 1e-9  # nor certain


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

        Where slots are exclusive, it is the sum over all assignments of records to slots, each with the product of its
        likelihoods, approximately (``assigned``); fakes are further records to which all slots are alike.
        """
        weights = np.maximum(self.prior * likelihood, LEAST)
        weights /= weights.sum(axis=2, keepdims=True)
        if not self.exclusive:
            return np.asarray(weights)
        records, copies = weights.shape[1], np.ones(weights.shape[1])
        if self.spare:
            weights = np.concatenate((weights, np.full_like(weights[:, :1], 1 / weights.shape[2])), axis=1)
            copies = np.append(copies, self.spare)
        return assigned(weights, copies)[:, :records]

    def of_values(self, slots: Floats) -> Floats:
        """Posterior of the slots' values (b, r, t): a value that is listed twice has the slots of both."""
        return np.asarray(slots * self.times[:, None, :])


def assigned(weights: Floats, copies: Floats) -> Floats:
    """Probability that a row has a column (b, r, t), over all assignments by the products of their weights (b, r, t).

    ``copies`` (r,): how many rows each row stands for; they sum to t. P_rs = A_rs perm(A without r, s)/perm(A), where A
    is ``weights`` scaled to row and column sums of 1 (Sinkhorn and Knopp 1967), which leaves P as it is. The permanent
    of a minor is taken for that of the matrix with the minor's row sums 1 - A_is, column sums 1 - A_rj and total
    t - 2 + A_rs in which rows and columns are independent:

        P_rs ~ A_rs prod_{i != r} (1 - A_is) prod_{j != s} (1 - A_rj) / (t - 2 + A_rs)^(t - 1).

    Exact for t = 2; the scaled matrix itself would be far less certain.
    """
    scaled = _scaled(weights, copies, STEPS)
    size = scaled.shape[2]
    missing = np.log1p(-np.minimum(scaled, NEARLY))
    total = np.log(np.maximum(size - 2 + scaled, LEAST))
    minors = (missing * copies[:, None]).sum(axis=1, keepdims=True) + missing.sum(axis=2, keepdims=True)
    minors -= 2 * missing + (size - 1) * total
    found = scaled * np.exp(minors - minors.max(axis=2, keepdims=True))
    return _scaled(found / found.sum(axis=2, keepdims=True), copies, AFTER)


def _scaled(weights: Floats, copies: Floats, steps: int) -> Floats:
    """Rows that sum to 1, scaled in turns until the columns do, too."""
    for _ in range(steps):
        taken = (weights * copies[:, None]).sum(axis=1, keepdims=True)
        if np.abs(taken - 1).max(initial=0) < EXACT:
            break
        weights = weights / taken
        weights /= weights.sum(axis=2, keepdims=True)
    return weights
