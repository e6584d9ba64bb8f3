"""How the shares of values deviate together, from the questions of ``answers.learnt.questions``, by EM.

A question q about T_q records sees d_q = (e_q - T_q M^T f) / T_q, which is N(0, M^T K M + B_q / T_q) where its shares
deviate from the overall ones by N(0, K), and B_q is the noise of ``answers.channel``. E step, with A_q the inverse of
that covariance: mean mu_q = K M A_q d_q, covariance K - K M A_q M^T K. M step with an inverse Wishart prior of
``PRIOR`` questions around the default form D = diag(spread), which is scaled by what was found:

    a = tr(acc) / (R tr D),  K <- (acc + PRIOR a D) / (R + PRIOR),  acc = sum of mu mu^T + covariance.

With W^T B W = I and W^T M^T K M W = V diag(lambda) V^T, A_q = W V diag(1 / (lambda + 1/T_q)) V^T W^T: a round costs one
eigenproblem for all questions of one level of noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from privsql.answers.channel import Channel, Floats, Observation

ROUNDS = 3  # more change neither errors nor coverage
START = 0.25  # of the default form
PRIOR = 50.0  # questions


def covariance(channel: Channel, seen: Observation) -> Floats:
    """K (m, m); the default form where nothing was asked."""
    default, number = np.diag(channel.spread), len(seen.total)
    if not number:
        return default
    found, levels = START * default, _by_level(channel, seen)
    for _ in range(ROUNDS):
        added, across = number * found, found @ channel.mean
        for white, pulled, inverse in levels:
            shown = across @ white
            values, vectors = np.linalg.eigh(white.T @ (channel.mean.T @ shown))
            weights = 1 / (values.clip(0) + inverse[:, None])  # (R, k)
            means = (pulled @ vectors) * weights
            inner = means.T @ means
            inner[np.diag_indices(len(inner))] -= weights.sum(axis=0)
            turned = shown @ vectors
            added = added + turned @ inner @ turned.T
        scale = np.trace(added) / (number * channel.spread.sum())
        found = (added + PRIOR * scale * default) / (number + PRIOR)
        found = (found + found.T) / 2
    return np.asarray(found)


def _by_level(channel: Channel, seen: Observation) -> list[tuple[Floats, Floats, Floats]]:
    """For each level of noise W with W^T B W = I, the deviations d^T W of its questions, and their 1/T."""
    level = np.round(seen.weight * channel.records.sum() / seen.second, 9)
    deviations = seen.observed / seen.total[:, None] - channel.shares @ channel.mean
    found = []
    for one in np.unique(level).tolist():
        white = channel.white(one)
        found.append((white, deviations[level == one] @ white, 1 / seen.total[level == one]))
    return found
