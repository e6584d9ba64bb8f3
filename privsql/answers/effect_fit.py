"""Fit the effects theta of a softmax regression to any likelihood: the mode, the prior, and draws from the posterior.

theta (J, K) has the effect of each of J features on the log-odds of each of K values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import scipy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.answers.channel import Floats
    from privsql.answers.softmax import Design

# Priors ---------------------------------------------------------------------------------------------------------------
# The effects theta_j (K,) of the features j of term t are N(0, Sigma_t/lambda_t). Effects of ordered
# values move together. So Sigma_t, whose mean variance is 1, is learnt by term and drawn towards that of all terms.
# A slope is a term of one feature, which teaches no covariance. Its effect on each value has a penalty of its own,
#
#     lambda_v ~ Gamma((D + 1)/2, (D/S + theta_v^2)/2),   D = DEGREES, S = SLOPE,
#
# so that a strong slope of a rare value is hardly shrunk: before anything is seen it has Student's t distribution.


@dataclass(frozen=True)
class EffectPrior:
    """A normal prior of the effects theta (J, K) of J features on the log-odds of K values.

    A term is a group of features, such as the indicators of one column. Their effects are independent of each other,
    and each feature's K effects have the covariance Sigma / lambda (K, K). The penalty lambda of the term holds them
    close to 0. "Standard effects" are the effects, transformed to be independent with variance 1 in the prior.

    Attributes:
        parts: The range of the features' indices of each term, as a slice.
        roots: For each term the triangular R with R R' = Sigma / lambda (terms, K, K).
    """

    parts: list[slice]
    roots: Floats

    @staticmethod
    def list_parts(design: Design) -> list[slice]:
        """Return for each term (a column or pair of columns) the range of its features' indices, as a slice."""
        ends = np.cumsum([0, *(term.levels for term in design.terms)])
        return [slice(*pair) for pair in pairwise(ends.tolist())]

    def scale_penalties(self, factors: Floats) -> EffectPrior:
        """Return the prior with each penalty multiplied by a factor, which holds the effects closer to 0.

        Args:
            factors: The factor of each term (terms, 1), or of each term and value (terms, K).
        """
        return EffectPrior(self.parts, self.roots / np.sqrt(factors)[:, :, None])

    def color(self, white: Floats) -> Floats:
        """Turn standard effects, which are independent with variance 1 in the prior, into effects, both (J, K)."""
        return self._multiply(white, np.swapaxes(self.roots, 1, 2))

    def pull(self, slope: Floats) -> Floats:
        """Turn a function's derivatives by the effects into its derivatives by the standard effects, both (J, K).

        Standard effects are the effects, transformed to be independent with variance 1 in the prior. Searches and draws
        compute in them.
        """
        return self._multiply(slope, self.roots)

    def whiten(self, theta: Floats) -> Floats:
        """Turn effects into standard effects, which are independent with variance 1 in the prior, both (J, K).

        Searches and draws compute in standard effects.
        """
        return self._multiply(theta, np.swapaxes(np.linalg.inv(self.roots), 1, 2))

    def sum_squares(self, white: Floats) -> Floats:
        """Return for each term the sum of the squared standard effects of its features (terms,), to draw penalties.

        Args:
            white: The standard effects (J, K), which are independent with variance 1 in the prior, from ``whiten``.
        """
        return np.array([(white[part] ** 2).sum() for part in self.parts])

    def _multiply(self, each: Floats, matrices: Floats) -> Floats:
        found = np.empty_like(each)
        for part, matrix in zip(self.parts, matrices, strict=True):
            found[part] = each[part] @ matrix
        return found


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
MEMORY = 8  # steps that L-BFGS remembers
LEAST, MOST = 0.3, 3_000.0
POOLED, RIDGE = 2.0, 1e-3  # features that the covariance of all terms counts for, by value; of variances
PROBES = 6
CONVERGED = 50.0
SLOPE, DEGREES = 4.0, 2.0  # penalty of slopes, and degrees of freedom
STEPS = FIRST + (ROUNDS - 1) * EACH + LAST + ROUNDS * TRIED


@dataclass(frozen=True)
class EffectFit:
    """Fitted effects of a softmax regression.

    Attributes:
        theta: The effects of J features on the log-odds of K values (J, K): the mode of their posterior.
        prior: The prior, whose penalties were learnt from the same data.
        converged: Whether the search ended close to the mode.
    """

    theta: Floats
    prior: EffectPrior
    converged: bool


class Likelihood(Protocol):
    """The likelihood of the published data, given the probability of each value for each row.

    A row is a combination of quasi-identifiers.
    """

    def evaluate(self, probabilities: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood of the data, and its derivative by the log-odds of values (rows, K).

        Args:
            probabilities: The probability of each of K values for each row (rows, K).
        """


class Information(Protocol):
    """How much the data tell about the effects theta (J, K), as an information matrix H.

    theta has the effects of J features on the log-odds of K values. To find and draw effects, two things about
    H = S'S suffice: its products with arrays, and random arrays S'z of covariance H, for standard normal numbers z.

    Attributes:
        shape: The shape of z.
    """

    shape: tuple[int, ...]

    def multiply(self, theta: Floats) -> Floats:
        """Return the product of the information matrix H with ``theta`` (J, K), to solve linear systems with H."""

    def draw_score(self, noise: Floats) -> Floats:
        """Return a random array S'z (J, K) whose covariance is the information matrix H, for draws of the effects.

        It is distributed about as the derivative of the log-likelihood by the effects.

        Args:
            noise: Independent standard normal numbers z, in the shape that the attribute ``shape`` states.
        """


class EffectSearch(ABC):
    """A search for the effects of a softmax regression of the sensitive value on features of other columns.

    A subclass says how much its data, such as the buckets' lists, tell about the effects. The prior has a penalty for
    each term (the features of a column or of a pair of columns). The larger it is, the closer to 0 the effects of these
    features are held.

    Attributes:
        start: The penalty of the features of single columns at the start of the search.
        start_of_pairs: The penalty of the features of pairs of columns at the start.
        close: The relative residual at which a draw's linear system counts as solved, while the prior is learnt.
        closer: The same for the final draws.
        longest: The largest number of matrix products for one such solution.
    """

    start: ClassVar[float] = 40.0
    start_of_pairs: ClassVar[float] = 200.0
    close: ClassVar[float] = 0.15
    closer: ClassVar[float] = 0.1
    longest: ClassVar[int] = 40

    def __init__(self, design: Design, likelihood: Likelihood, offset: Floats, noise: np.random.Generator) -> None:
        self._offset, self._noise = offset, noise
        self._design, self._likelihood = design, likelihood
        sizes = self._design.sizes[:, None].astype(np.float64)
        self._shares = self._design.sum_features(sizes / sizes.sum())[:, 0]  # of the features
        self._levels = np.array([term.levels for term in self._design.terms])
        self._slopes = [at for at, term in enumerate(self._design.terms) if term.weights is not None]

    @abstractmethod
    def _inform(self, theta: Floats, prior: EffectPrior) -> Information:
        """Return how much the data tell about the effects near theta, as an information matrix.

        Args:
            theta: The effects of J features on K values (J, K).
            prior: The prior of the effects.
        """

    def find_effects(self, report: Callable[[], None] = lambda: None, rounds: int = ROUNDS) -> EffectFit:
        """Search the mode, the likeliest effects given the data and the prior; learn the prior from draws around it.

        Args:
            report: Called after every step.
            rounds: How often the prior is learnt; 0 keeps the first one.
        """
        design, values = self._design, len(self._offset)
        penalties = np.array([self.start_of_pairs if " x " in term.name else self.start for term in design.terms])
        penalties[self._slopes] = SLOPE
        covariances = np.broadcast_to(np.eye(values), (len(penalties), values, values))
        theta, slope = np.zeros((len(design.groups), values)), np.inf
        for number in range(rounds + 1):
            roots = np.asarray(np.linalg.cholesky(covariances), dtype=np.float64)
            prior = EffectPrior(EffectPrior.list_parts(design), roots).scale_penalties(penalties[:, None])
            steps = LAST if number == rounds else EACH if number else FIRST
            theta, slope = self._climb(theta, prior, steps, report)
            if number < rounds:
                draws = list(self._draw(theta, prior, TRIED, self.close, report))
                covariances, penalties = self._learn(draws, covariances, penalties)
        return EffectFit(theta, prior, slope < CONVERGED)

    def draw_effects(self, theta: Floats, prior: EffectPrior, number: int) -> Iterator[Floats]:
        """Yield draws of the effects from their posterior, which is taken for normal around its mode.

        Args:
            theta: The mode, the likeliest effects of J features on K values (J, K).
            prior: The prior, which holds effects close to 0.
            number: The number of draws.
        """
        yield from (drawn for drawn, _ in self._draw(theta, prior, number, self.closer))

    def _measure(self, theta: Floats, prior: EffectPrior) -> tuple[Information, Floats]:
        """Return how much the data tell about the effects near theta, to scale the steps of search and draws.

        Args:
            theta: The effects of J features on K values (J, K).
            prior: The prior, which turns effects into standard effects (independent, with variance 1).

        Returns:
            The information matrix H, and roughly its diagonal for standard effects (J, K). The diagonal is estimated by
            the mean square of some random arrays with covariance H. From each, what the intercept explains is
            subtracted first.
        """
        information, squares = self._inform(theta, prior), np.zeros_like(theta)
        for _ in range(PROBES):
            score = information.draw_score(self._noise.standard_normal(information.shape))
            squares += prior.pull(score - self._shares[:, None] * score[0]) ** 2 / PROBES
        for part in prior.parts:  # a few squares are rough: half of what levels and values have on average
            each = squares[part]
            means = each.mean(axis=1, keepdims=True) * each.mean(axis=0) / max(each.mean(), RIDGE)
            squares[part] = (each + means) / 2
        return information, squares

    def _climb(self, theta: Floats, prior: EffectPrior, steps: int, report: Callable[[], None]) -> tuple[Floats, float]:
        """Take some steps of L-BFGS towards the mode, the likeliest effects given the data and the prior.

        Args:
            theta: The effects of J features on K values to begin with (J, K).
            prior: The prior, which holds effects close to 0.
            steps: The number of steps.
            report: Called after every step.

        Returns:
            The new theta, and the length of the gradient at it, by the standard effects of ``EffectPrior``. It is short
            near the mode.
        """
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
        """Yield draws of the effects theta (J, K) from their posterior, each with the penalties that it was drawn with.

        Penalties are drawn in turn with the effects. They are given as factors of the prior's penalties, by term and
        value (terms, K).

        Args:
            theta: The mode of the posterior, around which it is taken for normal.
            prior: The prior, which holds effects close to 0.
            number: The number of draws.
            close: The relative residual at which a linear system counts as solved.
            report: Called after every draw.
        """
        information, squares = self._measure(theta, prior)
        slope, groups = self._evaluate(theta)[1], self._design.groups
        factors = np.ones((len(self._levels), theta.shape[1]))
        for _ in range(number):
            own = prior.scale_penalties(factors)
            score = slope + information.draw_score(self._noise.standard_normal(information.shape))
            right = own.pull(score) + self._noise.standard_normal(theta.shape) - own.whiten(theta)
            nearly = 1 / (1 + squares / factors[groups])
            curve = partial(self._curve, own, information)
            moved = theta + own.color(solve(curve, right, nearly, close, self.longest))
            yield moved, factors
            factors = self._draw_factors(moved, prior)
            report()

    def _draw_factors(self, theta: Floats, prior: EffectPrior) -> Floats:
        """Draw new penalties, which hold the effects of each term close to 0, given drawn effects.

        Args:
            theta: The drawn effects of J features on K values (J, K).
            prior: The prior, with the penalties to be multiplied.

        Returns:
            For each term and value the factor by which the prior's penalty is multiplied (terms, K).
        """
        amounts, values = prior.sum_squares(prior.whiten(theta)), theta.shape[1]
        factors = self._noise.gamma(self._levels * values / 2 + 1) / (amounts / 2 + 1)
        factors = np.repeat(factors[:, None], values, axis=1)
        for at in self._slopes:
            rate = (DEGREES / SLOPE + theta[prior.parts[at]][0] ** 2) / 2
            drawn = self._noise.gamma((DEGREES + 1) / 2, size=values) / rate
            factors[at] = drawn * np.diagonal(prior.roots[at]) ** 2
        return factors

    @staticmethod
    def _curve(prior: EffectPrior, information: Information, white: Floats) -> Floats:
        """Multiply standard effects (see ``EffectPrior``) by the precision matrix of their posterior, 1 + R' H R.

        Each draw of the effects solves a linear system with this matrix.

        Args:
            prior: The prior, which has R (``roots``).
            information: The information matrix H of the data.
            white: The standard effects (J, K).
        """
        return white + prior.pull(information.multiply(prior.color(white)))

    def _learn(
        self, draws: Sequence[tuple[Floats, Floats]], covariances: Floats, penalties: Floats
    ) -> tuple[Floats, Floats]:
        """Learn the prior, a covariance Sigma and a penalty lambda for each term, from draws of the effects.

        The first third of the draws is left out, because it depends on the start.

        Args:
            draws: Pairs of drawn effects theta (J, K), and the factors (terms, K) by which penalties were multiplied
                for this draw.
            covariances: The current Sigma of each term (terms, K, K).
            penalties: The current lambda of each term (terms,).

        Returns:
            The new Sigma and lambda.
        """
        kept, parts = draws[len(draws) // 3 :], EffectPrior.list_parts(self._design)
        values = covariances.shape[1]
        squares = np.zeros(covariances.shape)
        for theta, factors in kept:
            for at, part in enumerate(parts):
                squares[at] += penalties[at] * factors[at].mean() * (theta[part].T @ theta[part]) / len(kept)
        pooled = np.delete(squares, self._slopes, axis=0).sum(axis=0)
        pooled *= values / np.trace(pooled)
        own = np.trace(squares, axis1=1, axis2=2)[:, None, None] / values
        levels, more = self._levels[:, None, None], POOLED * values
        learnt = (levels * squares / own + more * pooled) / (levels + more)
        learnt *= values / np.trace(learnt, axis1=1, axis2=2)[:, None, None]
        factors = np.exp(np.mean([np.log(factors) for _, factors in kept], axis=0))
        wanted = np.clip(penalties * factors[:, 0] * self._levels / own[:, 0, 0], LEAST, MOST)
        learnt += RIDGE * np.eye(values)
        for at in self._slopes:
            learnt[at] = np.diag(np.diagonal(covariances[at]) / factors[at])
            wanted[at] = penalties[at]
        return learnt, wanted


def solve(multiply: Callable[[Floats], Floats], right: Floats, nearly: Floats, close: float, longest: int) -> Floats:
    """Solve A x = ``right`` by conjugate gradients.

    Args:
        multiply: Returns A times a vector.
        right: The right side.
        nearly: About the inverse of A's diagonal, as preconditioner.
        close: The search ends when the residual has fallen to this share.
        longest: The search ends after this number of products with A.
    """
    found, residual = np.zeros_like(right), right.copy()
    way = nearly * residual
    size = first = float((residual * way).sum())
    for _ in range(longest):
        moved = multiply(way)
        curved = float((way * moved).sum())
        if curved == 0:  # nothing is left to solve
            break
        step = size / curved
        found += step * way
        residual -= step * moved
        scaled = nearly * residual
        size, before = float((residual * scaled).sum()), size
        if size < close**2 * first:
            break
        way = scaled + size / before * way
    return found
