"""Reconstruction through a known linear channel: the algebra that all mechanisms share. It knows no SQL.

A question selects a set Q of records. Unknown: n (m,), how many of them have each sensitive value; known: their total.
Seen: e (k,) with E[e] = M^T n over the publisher's random choices, M (m, k) public with rows that sum to one.

    Cov[e] = weight (S - M^T diag(o) M),   S = sum_i o_i E[w w^T | i]   (k, k),

where w is what one record of value i adds to e, o_i the records of value i in the whole release, N their sum, and
``weight`` stands for |Q|/N (1 - |Q|/N) (drawing without replacement) or |Q|/N (independent draws).

Prior: n has mean mu = total * f and covariance P = diag(p), f = o / N, with

    p_i = (c scale)^2 f_i^1.5 F + second f_i,   F = sum f^2 / sum f^1.5.

``second`` f_i is sampling noise, c the strength of association between the question and the sensitive value; values
that are rare deviate more in proportion, hence 1.5. Nobody tunes c: each c of a grid is weighted by the likelihood of
the very e that was seen (empirical Bayes), and mean and covariance are those of the mixture. With
A = M^T P M + Cov[e] the posterior given c has

    mean = mu + P M A^-1 (e - M^T mu),     covariance = P - P M A^-1 M^T P.

The entries of e sum to the total without noise, so the mean sums to the total and the covariance knows it. A direction
in which the release holds no information has no gain and keeps its prior width.

A = second (B + rho C) with B = M^T diag(f) M + (weight N / second) (S/N - M^T diag(f) M), C = M^T diag(f^1.5 F) M and
rho = (c scale)^2 / second. One generalized eigenproblem C v = lambda B v therefore serves all c and all sets with the
same weight N / second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import gammaincinv, ndtri, stdtrit

if TYPE_CHECKING:
    from collections.abc import Iterator

Floats = NDArray[np.float64]

STRENGTHS = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0])
POWER = 1.5
JITTER = 1e-9  # relative to the mean variance: keeps a singular channel solvable, far below any real noise
LEVEL = 1.02  # many sets share an eigenproblem where their noise agrees within this factor; it is rounded up
LARGE = 1000  # values beyond which nothing of m^3 operations is done
FEW = 32  # functionals that a large channel solves for one by one
CHUNK = 2**22  # numbers that one batch of arrays may hold
KEPT = 8  # eigenproblems that a channel remembers
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Channel:
    """``mean`` = M (m, k), ``moment`` = S (k, k), ``records`` = o (m,)."""

    mean: Floats
    moment: Floats
    records: Floats

    @cached_property
    def shares(self) -> Floats:
        """Overall shares f = o / N."""
        return np.asarray(self.records / self.records.sum())

    @cached_property
    def seen(self) -> Floats:
        """E of all records together, M^T o (k,)."""
        return np.asarray(self.records @ self.mean)

    @cached_property
    def spread(self) -> Floats:
        """Shape of the prior's variance, f^1.5 F."""
        shape = self.shares**POWER
        return np.asarray(shape * ((self.shares**2).sum() / shape.sum()))

    @cached_property
    def sampled(self) -> Floats:
        """M^T diag(f) M (k, k)."""
        return np.asarray(self.mean.T @ (self.shares[:, None] * self.mean))

    @cached_property
    def driven(self) -> Floats:
        """C = M^T diag(f^1.5 F) M (k, k)."""
        return np.asarray(self.mean.T @ (self.spread[:, None] * self.mean))

    def basis(self, level: float) -> tuple[Floats, Floats]:
        """Eigenvalues (k,) of C v = lambda B v and vectors (k, k) with v^T B v = 1; ``level`` = weight N / second."""
        if level not in self._bases:
            if len(self._bases) >= KEPT:
                self._bases.clear()
            self._bases[level] = self._basis(level)
        return self._bases[level]

    @cached_property
    def _bases(self) -> dict[float, tuple[Floats, Floats]]:
        """The latest bases by level: many questions share one."""
        return {}

    def _basis(self, level: float) -> tuple[Floats, Floats]:
        own = self.sampled * (1 - level) + self.moment * (level / self.records.sum())
        own[np.diag_indices(len(own))] += JITTER * np.trace(own) / len(own) + TINY**0.5
        values, vectors = eigh(self.driven, own)
        return values.clip(0), vectors


@dataclass(frozen=True)
class Observation:
    """What was seen for G sets of records.

    ``observed`` = e (G, k); ``total`` = sum of n (G,), known; ``scale``, ``second`` of the prior and ``weight`` of the
    noise (G,). For a count of |Q| records total = scale = second = |Q|. For a sum over records of values a_r, n_i is
    the sum over value i: total = sum a, scale = sqrt(|Q| sum a^2), second = sum a^2.
    """

    observed: Floats
    total: Floats
    scale: Floats
    second: Floats
    weight: Floats

    def rows(self, part: NDArray[np.intp]) -> Observation:
        """Some of the sets."""
        parts = (self.observed, self.total, self.scale, self.second, self.weight)
        return Observation(*(array[part] for array in parts))


@dataclass(frozen=True)
class Posterior:
    """``values`` (G, m): the mean; ``std_error`` (G, f): of the functionals asked for."""

    values: Floats
    std_error: Floats


def counting(observed: Floats, total: Floats, records: float) -> Observation:
    """Observation for counts of ``total`` (G,) of ``records`` records that took their places without replacement."""
    share = total / records
    return Observation(observed, total, total, total, share * (1 - share))


def reconstruct(channel: Channel, seen: Observation, functionals: Floats) -> Posterior:
    """Posterior of n for each set, and standard errors of ``functionals`` (m, f) or (G, m, f) of it."""
    sets, m = seen.observed.shape[0], len(channel.records)
    values, errors = np.zeros((sets, m)), np.zeros((sets, functionals.shape[-1]))
    for members in _batches(channel, seen, functionals.shape[-1]):
        solve = _large if m > LARGE else _small
        asked = functionals if functionals.ndim == 2 else functionals[members]
        values[members], errors[members] = solve(channel, seen.rows(members), asked)
    return Posterior(values, errors)


def _levels(channel: Channel, seen: Observation) -> Floats:
    """Noise levels weight N / second of the sets (G,), rounded up to a few where there are many."""
    level = np.round(seen.weight * channel.records.sum() / np.maximum(seen.second, TINY), 9)  # equal ones stay equal
    if len(np.unique(level)) <= 8:
        return np.asarray(level)
    steps = np.floor(-np.log(np.clip(level, 1e-6, None)) / np.log(LEVEL))
    return np.asarray(np.where(level > 0, LEVEL**-steps, 0.0))


def _batches(channel: Channel, seen: Observation, functionals: int) -> Iterator[NDArray[np.intp]]:
    """Sets that are solved together: of one level, and no more than memory wants."""
    m = len(channel.records)
    step = 1 if m > LARGE else max(1, CHUNK // (m * (functionals + len(STRENGTHS))))
    levels = _levels(channel, seen)
    for level in np.unique(levels):
        members = np.flatnonzero(levels == level)
        for start in range(0, len(members), step):
            yield members[start : start + step]


def _small(channel: Channel, seen: Observation, functionals: Floats) -> tuple[Floats, Floats]:
    """All strengths of the grid, weighted by likelihood, in the basis in which everything is diagonal."""
    second = np.maximum(seen.second, TINY**0.5)
    level = float((_levels(channel, seen)).max(initial=0.0))
    eigenvalues, vectors = channel.basis(level)
    through = channel.mean @ vectors  # (m, k)
    mean = seen.total[:, None] * channel.shares
    data = (seen.observed - mean @ channel.mean) @ vectors  # (G, k)
    wide = _seen_by(through, channel.spread, functionals)
    narrow = _seen_by(through, channel.shares, functionals)
    square_wide, square_narrow = ((functionals**2).swapaxes(-1, -2) @ v for v in (channel.spread, channel.shares))
    logs, means, variances = [], [], []
    for strength in STRENGTHS:
        drive = ((strength * seen.scale) ** 2)[:, None]
        damped = 1 / (1 + drive / second[:, None] * eigenvalues)  # (G, k)
        prior = drive * channel.spread + second[:, None] * channel.shares
        fit = (np.log(damped) - data**2 * damped / second[:, None]).sum(axis=1)
        logs.append((fit + np.log(np.maximum(prior.sum(axis=1), TINY))) / 2)
        means.append(mean + prior * ((data * damped / second[:, None]) @ through.T))
        gains = drive[:, :, None] * wide + second[:, None, None] * narrow  # (G, k, f)
        told = np.einsum("gkf,gk->gf", gains**2, damped / second[:, None])
        variances.append(drive * square_wide + second[:, None] * square_narrow - told)
    return _mixture(np.array(logs), np.array(means), np.array(variances), functionals)


def _seen_by(through: Floats, variances: Floats, functionals: Floats) -> Floats:
    """V^T M^T diag(variances) x: (1, k, f), or (G, k, f) where each set has its own functionals."""
    weighted = variances[:, None] * functionals
    product = through.T @ weighted
    return np.asarray(product[None] if product.ndim == 2 else product)


def _mixture(logs: Floats, means: Floats, variances: Floats, functionals: Floats) -> tuple[Floats, Floats]:
    """Mean and standard errors of the mixture over strengths (first axis)."""
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    mean = np.einsum("cg,cgm->gm", weights, means)
    centres = _apply(functionals, means)
    centre = np.einsum("cg,cgf->gf", weights, centres)
    variance = np.einsum("cg,cgf->gf", weights, variances.clip(0) + (centres - centre) ** 2)
    return mean, np.sqrt(variance)


def _large(channel: Channel, seen: Observation, functionals: Floats) -> tuple[Floats, Floats]:
    """One set; one strength, by matching the spread of e - M^T mu; conjugate gradients instead of factors.

    With many functionals their errors are bounded from above by what the column of e that tells most of each tells.
    """
    weight, second, records = float(seen.weight[0]), float(seen.second[0]), channel.records
    mean = seen.total[0] * channel.shares
    residual = seen.observed[0] - mean @ channel.mean
    squares = channel.mean**2
    noise = weight * (np.diag(channel.moment) - records @ squares)
    scale = 1 / np.maximum(channel.seen, TINY)
    unexplained = ((residual**2 - second * (channel.shares @ squares) - noise) * scale).sum()
    drive = float(unexplained / ((channel.spread @ squares) * scale).sum())
    drive = float(np.clip(drive, *(seen.scale[0] * STRENGTHS[[0, -1]]) ** 2))
    prior = drive * channel.spread + second * channel.shares
    diagonal = prior @ squares + noise
    ridge = JITTER * float(diagonal.mean()) + TINY**0.5
    diagonal += ridge

    def apply(vector: Floats) -> Floats:
        inner = channel.mean @ vector
        back = channel.mean.T @ ((prior - weight * records) * inner)
        return np.asarray(back + weight * (channel.moment @ vector) + ridge * vector)

    size = (len(residual), len(residual))
    operator = LinearOperator(size, matvec=apply, dtype=np.float64)
    precondition = LinearOperator(size, matvec=lambda vector: vector / diagonal, dtype=np.float64)

    def solved(right: Floats) -> Floats:
        return np.asarray(cg(operator, right, rtol=1e-8, maxiter=500, M=precondition)[0])

    weights = functionals if functionals.ndim == 2 else functionals[0]
    mean = mean + prior * (channel.mean @ solved(residual))
    seen_gains = channel.mean.T @ (prior[:, None] * weights)
    variance = prior @ weights**2
    if weights.shape[1] <= FEW:
        variance = variance - np.array([column @ solved(column) for column in seen_gains.T])
    else:
        variance = variance - (seen_gains**2 / diagonal[:, None]).max(axis=0)
    return mean[None], np.sqrt(variance.clip(0))[None]


def quality(channel: Channel, share: float = 0.01, strength: float = 0.6) -> dict[str, float]:
    """What a channel can tell: to compare layouts.

    ``smallest``, ``median``: singular values of M in the metric of the records (1 is the largest; 0 tells nothing).
    ``left``: what an answer leaves open of a question about ``share`` of the records, associated with ``strength``: the
    sum of posterior over the sum of prior variances (0 all told, 1 nothing).
    """
    scale = np.sqrt(channel.records)[:, None] / np.sqrt(np.maximum(channel.seen, TINY))
    singular = np.linalg.svd(channel.mean * scale, compute_uv=False)
    records = channel.records.sum()
    total = np.array([share * records])
    seen = Observation(
        (total[:, None] * channel.shares) @ channel.mean, total, total, total, total / records * (1 - share)
    )
    drive = (strength * total[0]) ** 2
    eigenvalues, vectors = channel.basis(float(seen.weight[0] * records / total[0]))
    prior = drive * channel.spread + total[0] * channel.shares
    gains = (channel.mean @ vectors) * prior[:, None]
    told = (gains**2 / (1 + drive / total[0] * eigenvalues)).sum() / total[0]
    return {
        "smallest": float(singular[-1]),
        "median": float(np.median(singular)),
        "left": float(1 - told / prior.sum()),
    }


def within(values: Floats, total: Floats, caps: Floats, give: Floats) -> Floats:
    """The values (G, m) moved into [0, caps] such that they sum to ``total`` (G,); ``give`` (m,) says how easily.

    Each is clip(v - t give, 0, cap) with the t at which the sum is right: the nearest such point where distances are
    measured in ``give``. Bisection on t.
    """
    low = ((values - caps) / give).min(axis=1) - 1
    high = (values / give).max(axis=1) + 1
    for _ in range(100):
        middle = (low + high) / 2
        above = np.clip(values - middle[:, None] * give, 0, caps).sum(axis=1) > total
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.clip(values - high[:, None] * give, 0, caps))


def interval(mean: float, std_error: float, confidence: float, degrees: float = np.inf) -> tuple[float, float]:
    """Bounds for a count: mean -+ t s, the upper one at least the quantile of a gamma with that mean and spread.

    t is Student's quantile with ``degrees`` of freedom: the prior's strength is itself estimated, from as many
    deviations as there are values less one. A count can't be negative, so where the error is as large as the mean its
    distribution leans to the right.
    """
    if not std_error:
        return mean, mean
    tail = (1 - confidence) / 2
    quantile = widened(tail, degrees)
    spread = std_error * quantile / -float(ndtri(tail))
    centre = max(mean, 1e-6)
    shape = min(max((centre / spread) ** 2, 0.02), 1e7)
    skewed = float(gammaincinv(shape, 1 - tail)) * centre / shape
    return max(mean - quantile * std_error, 0.0), max(mean + quantile * std_error, skewed)


def widened(tail: float, degrees: float) -> float:
    """Student's upper quantile for the probability ``tail``; the normal one for infinite ``degrees``."""
    return -float(ndtri(tail)) if np.isinf(degrees) else float(stdtrit(degrees, 1 - tail))


def _apply(functionals: Floats, means: Floats) -> Floats:
    """x^T n for means (c, G, m): (c, G, f)."""
    if functionals.ndim == 2:
        return np.asarray(means @ functionals)
    return np.asarray(np.einsum("gmf,cgm->cgf", functionals, means))
