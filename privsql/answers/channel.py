"""A release as a known linear channel: what is seen of a set of records, given its counts. It knows no SQL.

A question selects a set Q of records. Unknown: n (m,), how many of them have each sensitive value; known: their total.
Seen: e (k,) with E[e] = M^T n over the publisher's random choices, M (m, k) public with rows that sum to one.

    Cov[e] = weight (S - M^T diag(o) M),   S = sum_i o_i E[w w^T | i]   (k, k),

where w is what one record of value i adds to e, o_i the records of value i in the whole release, N their sum, and
``weight`` stands for |Q|/N (1 - |Q|/N) (drawing without replacement) or |Q|/N (independent draws).

Prior: n has mean mu = total * f and covariance P = diag(p), f = o / N, with

    p_i = (c scale)^2 f_i^1.5 F + second f_i,   F = sum f^2 / sum f^1.5.

``second`` f_i is sampling noise, c the strength of association between the question and the sensitive value; values
that are rare deviate more in proportion, hence 1.5.

A = M^T P M + Cov[e] = second (B + rho C) with B = M^T diag(f) M + (weight N / second) (S/N - M^T diag(f) M),
C = M^T diag(f^1.5 F) M and rho = (c scale)^2 / second. One generalized eigenproblem C v = lambda B v therefore serves
all c and all sets with the same weight N / second. A full covariance K may stand in the place of diag(f^1.5 F).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Matrix = Any  # Floats, or a sparse array where there are very many values, of which few meet

POWER = 1.5
JITTER = 1e-9  # relative to the mean variance: keeps a singular channel solvable, far below any real noise
KEPT = 8  # eigenproblems that a channel remembers
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Channel:
    """``mean`` = M (m, k), ``moment`` = S (k, k), ``records`` = o (m,)."""

    mean: Matrix
    moment: Matrix
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
    def squares(self) -> Matrix:
        """M, entry by entry squared."""
        return self.mean * self.mean  # entry by entry, of sparse arrays too

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
    def default(self) -> Form:
        """The form where nothing else is known: values deviate independently of each other."""
        return Form(self, self.spread)

    def noise(self, level: float) -> Floats:
        """B (k, k); ``level`` = weight N / second."""
        own = self.sampled * (1 - level) + self.moment * (level / self.records.sum())
        own[np.diag_indices(len(own))] += JITTER * np.trace(own) / len(own) + TINY**0.5
        return np.asarray(own)

    def white(self, level: float) -> Floats:
        """W (k, k) with W^T B W = I: the directions of e in which the noise is of one size."""
        lower = scipy.linalg.cholesky(self.noise(level), lower=True)
        return np.asarray(scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T)


@dataclass(frozen=True)
class Form:
    """K, the form of the prior's covariance: (m, m), or its diagonal (m,) where it has no more."""

    channel: Channel
    covariance: Floats

    def times(self, vectors: Floats) -> Floats:
        """K times vectors (m, ..)."""
        if self.covariance.ndim > 1:
            return np.asarray(self.covariance @ vectors)
        return np.asarray(self.covariance.reshape(-1, *[1] * (vectors.ndim - 1)) * vectors)

    @property
    def diagonal(self) -> Floats:
        """The variances (m,)."""
        return np.diag(self.covariance) if self.covariance.ndim > 1 else self.covariance

    @property
    def whole(self) -> float:
        """Variance of the sum over all values."""
        return float(self.covariance.sum())

    @cached_property
    def driven(self) -> Floats:
        """C = M^T K M (k, k)."""
        return np.asarray(self.channel.mean.T @ self.times(self.channel.mean))

    def basis(self, level: float) -> tuple[Floats, Floats]:
        """Eigenvalues (k,) of C v = lambda B v and vectors (k, k) with v^T B v = 1; ``level`` = weight N / second."""
        if level not in self._bases:
            if len(self._bases) >= KEPT:
                self._bases.clear()
            values, vectors = scipy.linalg.eigh(self.driven, self.channel.noise(level))
            self._bases[level] = values.clip(0), vectors
        return self._bases[level]

    @cached_property
    def _bases(self) -> dict[float, tuple[Floats, Floats]]:
        """The latest bases by level: many questions share one."""
        return {}


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


def counting(observed: Floats, total: Floats, records: float) -> Observation:
    """Observation for counts of ``total`` (G,) of ``records`` records that took their places without replacement."""
    share = total / records
    return Observation(observed, total, total, total, share * (1 - share))


def own_share(channel: Channel) -> float:
    """sum_i f_i M_ii: the mean over all records of the share that their own value has of what each one adds to e."""
    return float(channel.shares @ channel.mean.diagonal())


def singular(channel: Channel) -> dict[str, float]:
    """``second``, ``median`` and ``smallest`` singular value of M in the metric of the records.

    The largest is 1: totals are known. The others say how much of a direction gets through; 0 tells nothing of it.
    """
    scale = np.sqrt(channel.records)[:, None] / np.sqrt(np.maximum(channel.seen, TINY))
    values = np.linalg.svd(channel.mean * scale, compute_uv=False)
    return {
        "second": float(values[min(1, len(values) - 1)]),
        "median": float(np.median(values)),
        "smallest": float(values[-1]),
    }


def quality(channel: Channel, share: float = 0.01, strength: float = 0.6) -> dict[str, float]:
    """What a channel can tell: to compare layouts.

    ``second``, ``median``, ``smallest``: see ``singular``.
    ``left``: what an answer leaves open of a question about ``share`` of the records, associated with ``strength``: the
    sum of posterior over the sum of prior variances (0 all told, 1 nothing).
    """
    records = channel.records.sum()
    total = np.array([share * records])
    seen = Observation(
        (total[:, None] * channel.shares) @ channel.mean, total, total, total, total / records * (1 - share)
    )
    drive = (strength * total[0]) ** 2
    eigenvalues, vectors = channel.default.basis(float(seen.weight[0] * records / total[0]))
    prior = drive * channel.spread + total[0] * channel.shares
    gains = (channel.mean @ vectors) * prior[:, None]
    told = (gains**2 / (1 + drive / total[0] * eigenvalues)).sum() / total[0]
    return {**singular(channel), "left": float(1 - told / prior.sum())}
