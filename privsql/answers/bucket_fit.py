"""Fit the model of a release in buckets: effects, how they vary, and draws of what they may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy

from privsql.answers.softmax import MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.answers.bucket_posteriors import BucketLikelihood, PreparedRelease
    from privsql.answers.channel import Floats
    from privsql.answers.softmax import Design

# Priors ---------------------------------------------------------------------------------------------------------------
# The effects theta_j (K,) of the features j of term t are N(0, Sigma_t/lambda_t). Effects of ordered
# values move together. So Sigma_t, whose mean variance is 1, is learnt by term and drawn towards that of all terms.


@dataclass(frozen=True)
class EffectPrior:
    """The prior of theta: ``parts`` are the features of each term, ``roots`` (terms, K, K) triangular with
    R R' = Sigma/lambda.
    """

    parts: list[slice]
    roots: Floats

    @staticmethod
    def list_parts(design: Design) -> list[slice]:
        """Return the features of each term."""
        ends = np.cumsum([0, *(term.levels for term in design.terms)])
        return [slice(*pair) for pair in pairwise(ends.tolist())]

    def scale_penalties(self, factors: Floats) -> EffectPrior:
        """Return the prior whose penalties lambda are larger by ``factors`` (terms,)."""
        return EffectPrior(self.parts, self.roots / np.sqrt(factors)[:, None, None])

    def color(self, white: Floats) -> Floats:
        """Return effects (J, K) for independent standard ones."""
        return self._multiply(white, np.swapaxes(self.roots, 1, 2))

    def pull(self, slope: Floats) -> Floats:
        """Return derivatives by standard effects for those by effects (J, K)."""
        return self._multiply(slope, self.roots)

    def whiten(self, theta: Floats) -> Floats:
        """Return the standard effects (J, K) for effects."""
        return self._multiply(theta, np.swapaxes(np.linalg.inv(self.roots), 1, 2))

    def sum_squares(self, white: Floats) -> Floats:
        """Return the sum of the squares of standard effects, by term."""
        return np.array([(white[part] ** 2).sum() for part in self.parts])

    def _multiply(self, each: Floats, matrices: Floats) -> Floats:
        found = np.empty_like(each)
        for part, matrix in zip(self.parts, matrices, strict=True):
            found[part] = each[part] @ matrix
        return found


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
    """The information H about theta in the lists of buckets, at certain probabilities (rows, K)."""

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
        """Return H theta (J, K)."""
        effects, moved = (self._design.features @ theta).astype(np.float32), np.empty_like(self._p)
        for rows, cells in self._parts:
            moved[rows] = cells @ effects
        moved *= self._p
        moved -= self._p * moved.sum(axis=1, keepdims=True)
        return self.draw_score(((self._members @ moved) * self._scale) @ self._root)

    def draw_score(self, noise: Floats) -> Floats:
        """Return a score (J, K) with covariance H from independent normal ``noise``, of the shape ``shape``."""
        residuals = (noise.astype(np.float32, copy=False) @ self._root.T) * self._scale
        each = self._p * (self._buckets @ residuals)
        each -= self._p * each.sum(axis=1, keepdims=True)
        sums = np.zeros((self._design.cells.shape[1], self._values))
        for rows, cells in self._parts:
            sums += cells.T @ each[rows]
        return np.asarray(self._design.features.T @ sums)

    def calibrate(self, theta: Floats, offset: Floats, likelihood: BucketLikelihood, way: Floats) -> None:
        """Multiply H by the curvature of the likelihood in a direction, divided by what H says of it."""
        slopes = [
            self._design.sum_features(likelihood.evaluate(self._design.probabilities(theta + step * way, offset))[1])
            for step in (STEP, -STEP)
        ]
        curvature = -float((way * (slopes[0] - slopes[1])).sum()) / (2 * STEP)
        factor = curvature / max(float((way * self.multiply(way)).sum()), 1e-9)
        self._root *= np.sqrt(np.clip(factor, *CALIBRATED))


# Fit ------------------------------------------------------------------------------------------------------------------
# In rounds: some steps of L-BFGS (Liu and Nocedal 1989) to the mode; draws around it, each by its penalties, and each
# with penalties drawn after it; from their mean squares new Sigma and lambda. Around the mode theta_0 the posterior is
# taken for normal, so that with standard normal noise z_1 and z_2 a draw solves (conjugate gradients)
#
#     (Lambda + H) (theta - theta_0) = H^(1/2) z_1 + Lambda^(1/2) z_2 + (gradient at theta_0),
#
#     lambda_t ~ Gamma(N_t/2, sum of theta_t' Sigma_t^-1 theta_t/2)   for N_t effects of term t.
#
# Penalties of terms of which little is known hardly move. Real tables have pairs of 100 to 1,000.

FIRST, EACH, LAST = 15, 12, 30  # steps of the first round, of others, and after the last one
ROUNDS, TRIED = 4, 6  # and draws in each
START, START_OF_PAIRS = 40.0, 200.0
LEAST, MOST = 0.3, 3_000.0
POOLED, RIDGE = 2.0, 1e-3  # features that the covariance of all terms counts for, by value; of variances
PROBES = 6
CLOSE, CLOSER, LONGEST = 0.15, 0.1, 40  # residuals of draws in rounds, and of the last ones; products
CONVERGED = 50.0
STEPS = FIRST + (ROUNDS - 1) * EACH + LAST + ROUNDS * TRIED


@dataclass(frozen=True)
class EffectFit:
    """The mode ``theta`` (J, K), its prior, and whether the last step was small."""

    theta: Floats
    prior: EffectPrior
    converged: bool


class BucketFit:
    """A fit to a release by ``offset``, the log-odds of a record without features (K,)."""

    def __init__(self, prepared: PreparedRelease, offset: Floats, noise: np.random.Generator) -> None:
        self._prepared, self._offset, self._noise = prepared, offset, noise
        self._design, self._likelihood = prepared.design, prepared.likelihood
        sizes = self._design.sizes[:, None].astype(np.float64)
        self._shares = self._design.sum_features(sizes / sizes.sum())[:, 0]  # of the features
        self._levels = np.array([term.levels for term in self._design.terms])

    def find_effects(self, report: Callable[[], None] = lambda: None) -> EffectFit:
        """Return the mode with its prior; ``report`` is called after every step."""
        design, values = self._design, len(self._offset)
        penalties = np.array([START_OF_PAIRS if " x " in term.name else START for term in design.terms])
        covariances = np.broadcast_to(np.eye(values), (len(penalties), values, values))
        theta, slope = np.zeros((len(design.groups), values)), np.inf
        for number in range(ROUNDS + 1):
            roots = np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
            prior = EffectPrior(EffectPrior.list_parts(design), roots).scale_penalties(penalties)
            steps = FIRST if not number else EACH if number < ROUNDS else LAST
            theta, slope = self._climb(theta, prior, steps, report)
            if number < ROUNDS:
                draws = list(self._draw(theta, prior, TRIED, CLOSE, report))
                covariances, penalties = self._learn(draws, covariances, penalties)
        return EffectFit(theta, prior, slope < CONVERGED)

    def draw_effects(self, theta: Floats, prior: EffectPrior, number: int) -> Iterator[Floats]:
        """Yield a number of draws of theta (J, K) from the posterior around the mode."""
        yield from (drawn for drawn, _ in self._draw(theta, prior, number, CLOSER))

    def _measure(self, theta: Floats, prior: EffectPrior) -> tuple[ListInformation, Floats]:
        """Return H, and about its diagonal by standard effects (J, K), centred by the intercept's score."""
        information = ListInformation(self._prepared, self._design.probabilities(theta, self._offset))
        way = prior.color(self._noise.standard_normal(theta.shape))
        way[0] = -self._shares[1:] @ way[1:]  # what all records have in common is the layout's
        information.calibrate(theta, self._offset, self._likelihood, way)
        squares = np.zeros_like(theta)
        for _ in range(PROBES):
            score = information.draw_score(self._noise.standard_normal(information.shape))
            squares += prior.pull(score - self._shares[:, None] * score[0]) ** 2 / PROBES
        for part in prior.parts:  # a few squares are rough: half of what levels and values have on average
            each = squares[part]
            means = each.mean(axis=1, keepdims=True) * each.mean(axis=0) / max(each.mean(), RIDGE)
            squares[part] = (each + means) / 2
        return information, squares

    def _climb(self, theta: Floats, prior: EffectPrior, steps: int, report: Callable[[], None]) -> tuple[Floats, float]:
        """Return theta nearer to the mode, and the length of the gradient in standard errors."""
        _, squares = self._measure(theta, prior)
        scale = 1 / np.sqrt(1 + squares)

        def evaluate(scaled: Floats) -> tuple[float, Floats]:
            white = scaled.reshape(theta.shape) * scale
            value, slope = self._evaluate(prior.color(white))
            return float((white**2).sum() / 2 - value), ((white - prior.pull(slope)) * scale).ravel()

        found = scipy.optimize.minimize(
            evaluate,
            (prior.whiten(theta) / scale).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": steps, "maxcor": MEMORY, "ftol": 0, "gtol": 1e-3},
            callback=lambda _: report(),
        )
        return prior.color(found.x.reshape(theta.shape) * scale), float(np.linalg.norm(found.jac))

    def _evaluate(self, theta: Floats) -> tuple[float, Floats]:
        value, residuals = self._likelihood.evaluate(self._design.probabilities(theta, self._offset))
        return value, self._design.sum_features(residuals)

    def _draw(
        self, theta: Floats, prior: EffectPrior, number: int, close: float, report: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield draws of theta and the penalties drawn before each, as factors of those of the prior."""
        information, squares = self._measure(theta, prior)
        slope, groups = self._evaluate(theta)[1], self._design.groups
        factors = np.ones(len(self._levels))
        for _ in range(number):
            own = prior.scale_penalties(factors)
            score = slope + information.draw_score(self._noise.standard_normal(information.shape))
            right = own.pull(score) + self._noise.standard_normal(theta.shape) - own.whiten(theta)
            nearly = 1 / (1 + squares / factors[groups][:, None])
            curve = partial(self._curve, own, information)
            moved = theta + own.color(solve(curve, right, nearly, close))
            yield moved, factors
            amounts = prior.sum_squares(prior.whiten(moved))
            factors = self._noise.gamma(self._levels * theta.shape[1] / 2 + 1) / (amounts / 2 + 1)
            report()

    @staticmethod
    def _curve(prior: EffectPrior, information: ListInformation, white: Floats) -> Floats:
        """Return (1 + R' H R) times standard effects."""
        return white + prior.pull(information.multiply(prior.color(white)))

    def _learn(
        self, draws: Sequence[tuple[Floats, Floats]], covariances: Floats, penalties: Floats
    ) -> tuple[Floats, Floats]:
        """Return Sigma and lambda by term from the last two thirds of the draws."""
        kept, parts = draws[len(draws) // 3 :], EffectPrior.list_parts(self._design)
        values = covariances.shape[1]
        squares = np.zeros(covariances.shape)
        for theta, factors in kept:
            for at, part in enumerate(parts):
                squares[at] += penalties[at] * factors[at] * (theta[part].T @ theta[part]) / len(kept)
        pooled = squares.sum(axis=0)
        pooled *= values / np.trace(pooled)
        own = np.trace(squares, axis1=1, axis2=2)[:, None, None] / values
        levels, more = self._levels[:, None, None], POOLED * values
        learnt = (levels * squares / own + more * pooled) / (levels + more)
        learnt *= values / np.trace(learnt, axis1=1, axis2=2)[:, None, None]
        wanted = penalties * np.exp(np.mean([np.log(factors) for _, factors in kept], axis=0))
        wanted *= self._levels / own[:, 0, 0]
        return learnt + RIDGE * np.eye(values), np.clip(wanted, LEAST, MOST)


def solve(multiply: Callable[[Floats], Floats], right: Floats, nearly: Floats, close: float) -> Floats:
    """Return x with A x = ``right`` by conjugate gradients; ``nearly``: about the inverse of A's diagonal."""
    found, residual = np.zeros_like(right), right.copy()
    way = nearly * residual
    size = first = float((residual * way).sum())
    for _ in range(LONGEST):
        moved = multiply(way)
        step = size / float((way * moved).sum())
        found += step * way
        residual -= step * moved
        scaled = nearly * residual
        size, before = float((residual * scaled).sum()), size
        if size < close**2 * first:
            break
        way = scaled + size / before * way
    return found
