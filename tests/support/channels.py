"""Channels to reconstruct through, questions that are seen through them, and what a textbook makes of these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privsql.answers.channel import STRENGTHS, Channel, Observation, Posterior, observe_counts

Floats = NDArray[np.float64]


def random_channel(rng: np.random.Generator, values: int, buckets: int = 400) -> Channel:
    """The channel of random buckets of two sizes."""
    shares = rng.dirichlet(np.full(values, 2.0))
    sizes = rng.choice([4, 7], buckets)
    table = np.array([rng.multinomial(size, shares) for size in sizes], dtype=float)
    table[rng.integers(0, buckets, values), np.arange(values)] += 1
    moment = (table / table.sum(axis=1)[:, None]).T @ table
    records = table.sum(axis=0)
    return Channel(moment / records[:, None], moment, records)


def questions(rng: np.random.Generator, through: Channel, sets: int, total: float | None = None) -> Observation:
    """e of sets that lean on some values, with noise."""
    totals = np.full(sets, total) if total else rng.integers(50, int(through.records.sum() // 3), sets).astype(float)
    lean = through.shares * np.exp(0.7 * rng.standard_normal((sets, len(through.records))))
    true = totals[:, None] * lean / lean.sum(axis=1)[:, None]
    observed = true @ through.mean
    observed *= 1 + 0.02 * rng.standard_normal(observed.shape)
    observed *= (totals / observed.sum(axis=1))[:, None]
    return observe_counts(observed, totals, float(through.records.sum()))


def spread_of(shares: Floats) -> Floats:
    """f^1.5 F as a matrix."""
    return np.diag(shares**1.5 * (shares**2).sum() / (shares**1.5).sum())


def textbook(
    through: Channel,
    seen: Observation,
    functionals: Floats,
    covariance: Floats | None = None,
    weighed: tuple[Floats, Floats] | None = None,
) -> Posterior:
    """The mixture over strengths, one set at a time, with inverses in the original coordinates.

    ``weighed``: strengths and their weights; without, every strength of the default grid alike.
    """
    mean, moment, records = through.mean, through.moment, through.records
    shares = records / records.sum()
    shape = spread_of(shares) if covariance is None else covariance
    strengths, chances = weighed or (STRENGTHS, np.ones(len(STRENGTHS)))
    values, errors = [], []
    for g in range(len(seen.total)):
        asked = functionals if functionals.ndim == 2 else functionals[g]
        noise = seen.weight[g] * (moment - mean.T @ np.diag(records) @ mean)
        centre = seen.total[g] * shares
        residual = seen.observed[g] - centre @ mean
        logs, posteriors, covariances = [], [], []
        for strength, chance in zip(strengths, chances, strict=True):
            prior = (strength * seen.scale[g]) ** 2 * shape + np.diag(seen.second[g] * shares)
            # The entries of e sum to the total: the one direction without noise keeps the inverse proper.
            spread = mean.T @ prior @ mean + noise
            inverse = np.linalg.inv(spread)
            gain = prior @ mean @ inverse
            # The total is known, so its variance, the sum of the prior's, is no part of the likelihood.
            fit = -np.linalg.slogdet(spread)[1] - residual @ inverse @ residual + np.log(prior.sum())
            logs.append(fit / 2 + np.log(chance))
            posteriors.append(centre + gain @ residual)
            covariances.append(prior - gain @ mean.T @ prior)
        weights = np.exp(np.array(logs) - max(logs))
        weights /= weights.sum()
        values.append(weights @ np.array(posteriors))
        between = [asked.T @ (posterior - values[-1]) for posterior in posteriors]
        variances = [np.einsum("mf,mk,kf->f", asked, covariance, asked) for covariance in covariances]
        errors.append(np.sqrt(weights @ (np.array(variances).clip(0) + np.array(between) ** 2)))
    return Posterior(np.array(values), np.array(errors))


def assert_same(found: Posterior, expected: Posterior, total: float, rtol: float = 1e-6) -> None:
    """Values to ``rtol`` of the total, errors relatively (those of a total are zero)."""
    np.testing.assert_allclose(found.values, expected.values, rtol=rtol, atol=rtol * total)
    np.testing.assert_allclose(found.std_error, expected.std_error, rtol=10 * rtol, atol=1e-4 * np.sqrt(total))
