"""The prior that a release teaches, learnt from its own records and from nothing else.

Questions are put to the release (``questions``). From conditions like an analyst's follow K, how the shares of values
deviate together (``covariance``), and how often each strength is met (``strengths``); from the records of each value of
a column, how often in questions on that column: columns differ more than the questions on one of them. A question on
several columns has the weights of the one with the largest strengths.

Neither K, an estimate from questions that share their records, nor the default form, by which values deviate
independently of each other, is known to hold. The estimate is K's; its spread is that of both accounts around it, half
each:

    se^2 = 1/2 se_K^2 + 1/2 (se_D^2 + (x^T n_D - x^T n_K)^2).

Directions of which hardly anything gets through (earlier layouts lose some altogether) say nothing of K, and what
little they seem to say must not be believed: the noise is taken to be larger by a part of each place's own (``BLUR``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy

from privsql._version import __version__
from privsql.answers.channel import TINY, Form
from privsql.answers.learnt import store
from privsql.answers.learnt.covariance import covariance
from privsql.answers.learnt.questions import conditions, values
from privsql.answers.learnt.strengths import STRENGTHS, weights
from privsql.answers.reconstruct import LARGE, Posterior, Prior, likelihoods, reconstruct
from privsql.noise import seed_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from privsql.answers.channel import Channel, Floats, Observation
    from privsql.answers.learnt.sample import Sample

BLUR = 0.02  # of the noise of each place
EACH = 0.2  # questions that every strength is given
OWN = 0.5  # questions that the weights of all columns are worth for one of them
DEGREES = 12.0  # of freedom behind a standard error
FEWEST = 1000  # records
RULES = 2  # counts the changes of what is learnt from the same release: what was stored by others is not read


@dataclass(frozen=True)
class Learnt:
    """``covariance`` K (m, m); by column ("" for all) the weights (s,) of strengths with K and with the default
    form.
    """

    covariance: Floats
    weights: store.Weights


@dataclass(frozen=True)
class Taught:
    """A channel with what its release teaches."""

    channel: Channel
    learnt: Learnt

    @cached_property
    def form(self) -> Form:
        """K."""
        return Form(self.channel, self.learnt.covariance)

    def reconstruct(self, seen: Observation, functionals: Floats, columns: Iterable[str]) -> Posterior:
        """The posterior of sets that a question selects by ``columns``."""
        together, alone = self.weights(columns)
        found = reconstruct(self.channel, seen, functionals, Prior(self.form, STRENGTHS, together))
        wide = reconstruct(self.channel, seen, functionals, Prior(self.channel.default, STRENGTHS, alone))
        apart = np.matmul((wide.values - found.values)[:, None], functionals)[:, 0]
        variance = (found.std_error**2 + wide.std_error**2 + apart**2) / 2
        return Posterior(found.values, np.sqrt(variance))

    def weights(self, columns: Iterable[str]) -> tuple[Floats, Floats]:
        """Of each form those of the column in which strengths are largest."""
        weights = self.learnt.weights
        own = [weights[column] for column in sorted(set(columns)) if column in weights] or [weights[""]]
        first, second = (max(parts, key=lambda one: float(one @ STRENGTHS**2)) for parts in zip(*own, strict=True))
        return first, second


def can_teach(channel: Channel, records: int) -> bool:
    """Whether a release of so many records is enough to learn from, and its values not too many."""
    return records >= FEWEST and max(channel.mean.shape) <= LARGE


def taught(channel: Channel, sample: Sample) -> Taught | None:
    """By the user's cache, or by the sample; None where there is too little to learn from."""
    if not (can_teach(channel, sample.records) and sample.columns):
        return None
    name = _name(channel, sample)
    found = store.kept(name, len(channel.records), list(sample.columns))
    learnt, channel = Learnt(*found) if found is not None else None, blurred(channel)
    if learnt is None:
        learnt = learn(channel, sample, seed_key(int(name[:16], 16)).stream("learnt"))
        store.keep(name, learnt.covariance, learnt.weights)
    return Taught(channel, learnt)


def blurred(channel: Channel) -> Channel:
    """With BLUR (diag(d) - d d^T / sum d) more noise, d its diagonal: none of it in the sum over all places."""
    own = np.diag(channel.moment - channel.records.sum() * channel.sampled).clip(0)
    more = np.diag(own) - np.outer(own, own) / max(own.sum(), TINY)
    return replace(channel, moment=channel.moment + BLUR * more)


def _name(channel: Channel, sample: Sample) -> str:
    """What stands for all that learning depends on, the versions of what computes included."""
    told = hashlib.blake2b(digest_size=20, person=b"privsql-learnt")
    told.update(f"{__version__} {RULES} {np.__version__} {scipy.__version__} {sample.digest}".encode())
    for array in (channel.mean, channel.moment, channel.records):
        told.update(np.ascontiguousarray(array).data)
    return told.hexdigest()


def learn(channel: Channel, sample: Sample, noise: np.random.Generator) -> Learnt:
    """K and the weights."""
    asked = conditions(sample, channel, noise)
    found = covariance(channel, asked)
    forms = Form(channel, found), channel.default
    few = np.full(len(STRENGTHS), EACH)
    every = [weights(likelihoods(form, asked, STRENGTHS), few, noise) for form in forms]
    learnt = {"": (every[0], every[1])}
    for column in sample.columns:
        seen = values(sample, channel, column, noise)
        own = [
            weights(likelihoods(form, seen, STRENGTHS), OWN * w, noise) for form, w in zip(forms, every, strict=True)
        ]
        learnt[column] = own[0], own[1]
    return Learnt(found, learnt)
