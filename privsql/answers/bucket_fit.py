"""Fit a softmax regression of the sensitive value on quasi-identifiers to a release in buckets.

theta (J, K) has the effects of J features of the quasi-identifiers on the log-odds of K sensitive values. This module
measures how much the lists of values in the buckets tell about theta; ``effect_fit`` searches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from privsql.answers.effect_fit import EffectPrior, EffectSearch

if TYPE_CHECKING:
    from privsql.answers.bucket_posteriors import BucketLikelihood, PreparedRelease
    from privsql.answers.channel import Floats

# Information ----------------------------------------------------------------------------------------------------------
# A bucket lists c values where m = sum of p are expected. To first order the belief in a value is q = p (1 + e - p'e),
# e = (c - m)/m, and the bucket's score is the sum of phi_i (q_i - p_i). The layout chooses which values a bucket lists;
# chance chooses who is in it. So the mean square of r = (c - m)/m^(1/2) over all buckets is taken as it is, not as
# independent values would have it. The information is
#
#     H = sum over buckets of X_g mean(r r') X_g',   X_g' theta = m^(-1/2) sum over i in g of p_i (eta_i - p_i'eta_i),
#
# eta_i = phi_i theta. Squared scores have one direction for each bucket, which is too few; H has K of them. Far from
# p = c/z the first order is too small, by about the same factor in all directions. So H is multiplied by the curvature
# of the likelihood in a random direction over what H says of that direction.

LEAST_EXPECTED = 1e-3  # records
STEP = 0.01  # of the direction
CALIBRATED = (0.5, 4.0)


class ListInformation:
    """How much the buckets' lists of values tell about the effects theta (J, K), as an information matrix H.

    theta has the effects of J features of the quasi-identifiers on the log-odds of K sensitive values. The search for
    theta scales its steps by H, and draws from the posterior by it. H itself is not stored, only its products are
    computed. The comment under "Information" in this module has its formula.

    Args:
        prepared: The release, with its features.
        probabilities: The probability of each value for each combination of quasi-identifiers (rows, K), near which H
            holds.
    """

    def __init__(self, prepared: PreparedRelease, probabilities: Floats) -> None:
        arrays, values = prepared.arrays, probabilities.shape[1]
        single, records = np.float32, len(arrays.bucket)
        self._design, self._p = prepared.design, probabilities.astype(single)
        self._parts = [(rows, cells.astype(single)) for rows, cells in self._design.parts]
        entries = np.ones(records, single), (arrays.bucket, prepared.likelihood.member)
        self._members = scipy.sparse.csr_array(entries, shape=(len(arrays.sizes), len(probabilities)))
        self._buckets = self._members.T.tocsr()
        expected = np.maximum(self._members @ self._p, LEAST_EXPECTED)
        listed = np.zeros_like(expected)
        listed[arrays.listed_bucket, arrays.listed_value] = arrays.listed_count
        self._scale = 1 / np.sqrt(expected)
        residuals = ((listed - expected) * self._scale).astype(np.float64)
        self.shape = residuals.shape
        squares, vectors = np.linalg.eigh(residuals.T @ residuals / len(residuals))
        self._root = (vectors * np.sqrt(np.maximum(squares, 0))).astype(single)
        self._values = values

    def multiply(self, theta: Floats) -> Floats:
        """Return the product of the information matrix H with ``theta`` (J, K), to solve linear systems with H."""
        effects, moved = (self._design.features @ theta).astype(np.float32), np.empty_like(self._p)
        for rows, cells in self._parts:
            moved[rows] = cells @ effects
        moved *= self._p
        moved -= self._p * moved.sum(axis=1, keepdims=True)
        return self.draw_score(((self._members @ moved) * self._scale) @ self._root)

    def draw_score(self, noise: Floats) -> Floats:
        """Return a random array (J, K) whose covariance is the information matrix H, for draws of the effects.

        It is distributed about as the derivative of the log-likelihood by the effects.

        Args:
            noise: Independent standard normal numbers (buckets, K).
        """
        residuals = (noise.astype(np.float32, copy=False) @ self._root.T) * self._scale
        each = self._p * (self._buckets @ residuals)
        each -= self._p * each.sum(axis=1, keepdims=True)
        sums = np.zeros((self._design.cells.shape[1], self._values))
        for rows, cells in self._parts:
            sums += cells.T @ each[rows]
        return np.asarray(self._design.features.T @ sums)

    def calibrate(self, theta: Floats, offset: Floats, likelihood: BucketLikelihood, way: Floats) -> None:
        """Multiply the information matrix H by a number, so that it agrees with the log-likelihood in one direction.

        The formula of H is an approximation, too small by about the same factor in all directions. The number is the
        curvature of the log-likelihood in the direction ``way``, divided by what H says of it, within limits.

        Args:
            theta: The effects at which to compare (J, K).
            offset: The log-odds of the values for a record without features (K,).
            likelihood: The likelihood of the lists.
            way: A direction in which theta may change (J, K).
        """
        slopes = [
            self._design.sum_features(likelihood.evaluate(self._design.probabilities(theta + step * way, offset))[1])
            for step in (STEP, -STEP)
        ]
        curvature = -float((way * (slopes[0] - slopes[1])).sum()) / (2 * STEP)
        factor = curvature / max(float((way * self.multiply(way)).sum()), 1e-9)
        self._root *= np.sqrt(np.clip(factor, *CALIBRATED))


class BucketFit(EffectSearch):
    """The search for the effects of quasi-identifiers on the sensitive value that best explain the buckets' lists."""

    def __init__(self, prepared: PreparedRelease, offset: Floats, noise: np.random.Generator) -> None:
        """Set up the search for the effects.

        Args:
            prepared: The release, with its features.
            offset: The log-odds of the K values for a record without features (K,).
            noise: The random generator.
        """
        super().__init__(prepared.design, prepared.likelihood, offset, noise)
        self._prepared = prepared

    def _inform(self, theta: Floats, prior: EffectPrior) -> ListInformation:
        information = ListInformation(self._prepared, self._design.probabilities(theta, self._offset))
        way = prior.color(self._noise.standard_normal(theta.shape))
        way[0] = -self._shares[1:] @ way[1:]  # what all records have in common is the layout's
        information.calibrate(theta, self._offset, self._prepared.likelihood, way)
        return information
