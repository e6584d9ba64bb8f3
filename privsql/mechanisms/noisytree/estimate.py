"""Answers to counting questions from a published tree, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytree.consistent import functional, noise_variance

if TYPE_CHECKING:
    from privsql.mechanisms.noisytree.pruned import Fit
    from privsql.mechanisms.noisytree.tree import Reals, Tree

MODEL_ERROR = 0.35  # standard error of a share p of a node's pruned records, as a part of sqrt(p(1 - p))
RARE = 1 / 2_000  # no share is known to be smaller


@dataclass(frozen=True)
class Estimator:
    """A tree with the sizes fitted to it.

    A question is an array of ``shares`` (T,): of a leaf 1 if its records meet the condition, else 0; of a row that
    was expanded the share of its pruned records that do, as what stands for them has it.
    """

    tree: Tree
    fit: Fit
    nodes: int
    model_error: float = MODEL_ERROR

    @cached_property
    def kept(self) -> float:
        """Records that were kept: the sizes of the leaves."""
        return float(self.fit.sizes.size[self.tree.leaf].sum())

    @cached_property
    def lost(self) -> float:
        """Records that were pruned: the remainders."""
        return float(self.fit.sizes.remainder[~self.tree.leaf].sum())

    @property
    def is_mostly_lost(self) -> bool:
        """Whether nothing was kept, or less than was pruned. It is told from the noisy tree alone."""
        return not self.tree.leaf.any() or self.lost > self.kept

    def baseline(self, shares: Reals) -> tuple[float, float]:
        """The paper's answer, the sum of the noisy sizes of the item sets in question; and the noise's error."""
        leaves = self.tree.leaf & (shares > 0)
        return float(self.tree.size[leaves].sum()), float(np.sqrt(noise_variance(self.tree)[leaves].sum()))

    def answer(self, shares: Reals) -> tuple[float, float]:
        """Estimate and standard error of the number of records that meet a condition.

        The error is that of the noise, carried through the least squares, and that of the model of what was pruned: of
        the records R_u that were lost at taxonomy node u a share p_u meets the condition, known to
        model_error * sqrt(p_u (1 - p_u)). That is no theorem: tests measure the coverage.
        """
        leaf = self.tree.leaf
        estimate, variance = functional(self.tree, self.fit.sizes, np.where(leaf, shares, 0), np.where(leaf, 0, shares))
        return estimate, float(np.sqrt(variance + self._model_variance(shares)))

    def _model_variance(self, shares: Reals) -> float:
        rows = np.flatnonzero(~self.tree.leaf)
        node, lost = self.tree.next[rows], np.maximum(self.fit.sizes.remainder[rows], 0)
        total = np.bincount(node, weights=lost, minlength=self.nodes)
        met = np.bincount(node, weights=lost * shares[rows], minlength=self.nodes)
        share = np.divide(met, total, out=np.zeros(self.nodes), where=total > 0)
        least = RARE if met.any() else RARE / 10
        share = share if shares.all() else np.clip(share, least, 1 - least)
        return float(((self.model_error * total) ** 2 * share * (1 - share)).sum())
