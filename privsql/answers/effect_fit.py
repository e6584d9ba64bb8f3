"""Fit effects to any likelihood: their mode, how they vary, and draws of what they may be."""

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
        """Return the prior whose penalties lambda are larger by ``factors`` (terms, 1), or (terms, K) by value."""
        return EffectPrior(self.parts, self.roots / np.sqrt(factors)[:, :, None])

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
    """The mode ``theta`` (J, K), its prior, and whether the last step was small."""

    theta: Floats
    prior: EffectPrior
    converged: bool


class Likelihood(Protocol):
    """How likely what is published is, by the probabilities of its rows."""

    def evaluate(self, probabilities: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood of p (rows, K) and its derivative by the log-odds (rows, K)."""


class Information(Protocol):
    """The information H = S'S about theta, whose scores S have independent parts of the shape ``shape``."""

    shape: tuple[int, ...]

    def multiply(self, theta: Floats) -> Floats:
        """Return H theta (J, K)."""

    def draw_score(self, noise: Floats) -> Floats:
        """Return a score (J, K) with covariance H from independent normal ``noise``."""


class EffectSearch(ABC):
    """A fit by ``offset``, the log-odds of a record without features (K,).

    ``start``, ``start_of_pairs``: penalties to begin with; ``close``, ``closer``: residuals of draws in rounds, and of
    the last ones; ``longest``: products for each.
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
        """Return H at theta."""

    def find_effects(self, report: Callable[[], None] = lambda: None, rounds: int = ROUNDS) -> EffectFit:
        """Return the mode with its prior; ``report`` is called after every step.

        Without ``rounds`` the prior is the one to start with.
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
        """Yield a number of draws of theta (J, K) from the posterior around the mode."""
        yield from (drawn for drawn, _ in self._draw(theta, prior, number, self.closer))

    def _measure(self, theta: Floats, prior: EffectPrior) -> tuple[Information, Floats]:
        """Return H, and about its diagonal by standard effects (J, K), centred by the intercept's score."""
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
        """Return penalties (terms, K), drawn given theta, as factors of those of the prior."""
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
    """Return x with A x = ``right`` by conjugate gradients; ``nearly``: about the inverse of A's diagonal.

    The residual falls to the share ``close``, unless ``longest`` products are too few for that.
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
