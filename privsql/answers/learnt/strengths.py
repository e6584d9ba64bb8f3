"""How often a strength is met: weights of a grid of strengths, from the likelihoods of many questions.

Question q has one of the strengths s, with probabilities w, which have a Dirichlet prior. The posterior mean of w is
taken by Gibbs sampling: strengths of the questions given w and their likelihoods L_qs, then w given these. The largest
likelihood would leave no doubt where few questions speak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.answers.channel import TINY

if TYPE_CHECKING:
    from privsql.answers.channel import Floats

STRENGTHS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0])
CHAINS, STEPS, THROWN = 10, 30, 10  # the first steps of a chain still know where it began


def weights(logs: Floats, prior: Floats, noise: np.random.Generator) -> Floats:
    """Posterior mean of w (s,) for log-likelihoods (s, R) under a Dirichlet ``prior`` (s,)."""
    chances = np.exp(logs - logs.max(axis=0, initial=-np.inf))
    drawn, total = np.tile(prior / prior.sum(), (CHAINS, 1)), np.zeros(len(prior))
    first = np.arange(CHAINS)[:, None] * len(prior)
    for step in range(STEPS):
        ends = np.cumsum(drawn[:, :, None] * chances, axis=1)
        chosen = (noise.random((CHAINS, 1, chances.shape[1])) * ends[:, -1:] > ends).sum(axis=1)
        counts = np.bincount((first + chosen).ravel(), minlength=drawn.size).reshape(drawn.shape)
        drawn = noise.standard_gamma(counts + prior)
        drawn /= np.maximum(drawn.sum(axis=1, keepdims=True), TINY)
        if step >= THROWN:
            total += drawn.sum(axis=0)
    return np.asarray(total / total.sum())
