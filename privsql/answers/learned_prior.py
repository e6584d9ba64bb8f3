"""Learn from a release how the shares of values vary together, and weigh the strength of the prior by that.

Nothing but the release's own records teaches it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.answers.channel import (
    LARGE,
    TINY,
    CovarianceForm,
    Observation,
    Posterior,
    Prior,
    reconstruct,
    strength_likelihoods,
)
from privsql.answers.sql.question import is_number
from privsql.engine.sqlfiles import Field, Roles, alias_as, column
from privsql.keyed_random import seed_key
from privsql.model.arrays import as_doubles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import scipy

    from privsql.answers.channel import Channel, Floats

# Covariance -----------------------------------------------------------------------------------------------------------
# The covariance of the shares of values over the questions below, estimated by EM.
#
# A question q about T_q records sees d_q = (e_q - T_q M^T f) / T_q, which is N(0, M^T K M + B_q / T_q) where its shares
# deviate from the overall ones by N(0, K), and B_q is the noise of ``answers.channel``. E step, with A_q the inverse of
# that covariance: mean mu_q = K M A_q d_q, covariance K - K M A_q M^T K. M step with an inverse Wishart prior of
# ``PRIOR`` questions around the default form D = diag(spread), which is scaled by what was found:
#
#     a = tr(acc) / (R tr D),  K <- (acc + PRIOR a D) / (R + PRIOR),  acc = sum of mu mu^T + covariance.
#
# With W^T B W = I and W^T M^T K M W = V diag(lambda) V^T, A_q = W V diag(1 / (lambda + 1/T_q)) V^T W^T: a round costs
# one eigenproblem for all questions, whose noise is that of independent records.

ROUNDS = 3  # more change neither errors nor coverage
START = 0.25  # of the default form
PRIOR = 50.0  # questions


def estimate_covariance(channel: Channel, observation: Observation) -> Floats:
    """Return K (m, m); the default form where there is no question."""
    default, number = np.diag(channel.prior_shape), len(observation.total)
    if not number:
        return default
    estimate, white = START * default, channel.whitening_matrix(1.0)  # W^T B W = I
    pulled = (observation.observed / observation.total[:, None] - channel.shares @ channel.mean) @ white
    for _ in range(ROUNDS):
        whitened = estimate @ channel.mean @ white
        values, vectors = np.linalg.eigh(white.T @ (channel.mean.T @ whitened))
        weights = 1 / (values.clip(0) + 1 / observation.total[:, None])  # (R, k)
        means = (pulled @ vectors) * weights
        inner = means.T @ means
        inner[np.diag_indices(len(inner))] -= weights.sum(axis=0)
        turned = whitened @ vectors
        added = number * estimate + turned @ inner @ turned.T
        scale = np.trace(added) / (number * channel.prior_shape.sum())
        estimate = (added + PRIOR * scale * default) / (number + PRIOR)
        estimate = (estimate + estimate.T) / 2
    return np.asarray(estimate)


# Sample ---------------------------------------------------------------------------------------------------------------

Codes = NDArray[np.int32]
PLAIN = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT", "VARCHAR", "BOOLEAN", "FLOAT", "DOUBLE", "DATE")
MOST_RECORDS = 500_000  # records that are looked at


@dataclass(frozen=True)
class Sample:
    """``places`` (n,): the bucket, group or cell in which each record is seen, a row of ``shown``; ``shown`` (p, k):
    what a record that is seen there adds to e; ``columns``: what tells the records apart, one code per value (n,).
    """

    places: Codes
    contributions: scipy.sparse.csr_array
    columns: dict[str, Codes]

    @property
    def record_count(self) -> int:
        """Return the number n of records."""
        return len(self.places)

    def observe_sets(self, members: Sequence[NDArray[np.intp]]) -> tuple[Floats, Floats]:
        """Return E (R, k) and the number of records (R,) of some sets of records."""
        number = self.contributions.shape[0]
        rows = [np.bincount(self.places[chosen], minlength=number) for chosen in members]
        placed = np.array(rows, dtype=np.float64).reshape(-1, number)
        return np.asarray(placed @ self.contributions), placed.sum(axis=1)

    def by_value(self, column: str, values: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return E and the number of records for each of some ``values`` of a column."""
        codes = self.columns[column]
        sets = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        return self.observe_sets([sets[value] for value in values])


def encode_values(column: pa.ChunkedArray) -> Codes:
    """Return the values of a column as 0, 1, .. in order of appearance; NULL is one of them."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int32)


def comparable_columns(roles: Roles) -> list[exp.Expr]:
    """Return the quasi-identifiers under internal names, rare types as text, which Arrow can compare."""
    fields = zip(roles.qi_keys, roles.quasi_identifiers, strict=True)
    return [
        alias_as(item if field.type.removeprefix("U") in PLAIN else exp.cast(item, "VARCHAR"), key)
        for key, field in fields
        for item in [column(field.name)]
    ]


def code_column(column: pa.ChunkedArray, field: Field) -> NDArray[Any]:
    """Return numbers and days, NULL as NaN, or the ranks of texts, NULL last."""
    if field.type == "DATE":
        column = column.cast(pa.int32())
    if field.type == "DATE" or (is_number(field.type) and field.type != "BOOLEAN"):
        return as_doubles(column)
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    texts = coded.dictionary.cast(pa.string()).to_pylist()
    rank = np.empty(len(texts), dtype=np.int64)
    rank[sorted(range(len(texts)), key=lambda i: (texts[i] is None, texts[i] or ""))] = np.arange(len(texts))
    return np.asarray(rank[coded.indices.to_numpy(zero_copy_only=False)])


# Questions ------------------------------------------------------------------------------------------------------------

NUMBER = 250  # conditions
ATTRIBUTES = 3  # of a condition, at most
SHARE = 0.002  # of the records that a condition must select
FEWEST_IN_SET = 8  # records that any set must have
TRIES = 20  # conditions drawn for one that selects enough
GROUPS = 150  # values of a column, at most


def draw_conditions(sample: Sample, channel: Channel, noise: np.random.Generator) -> Observation:
    """Equality on 1 to 3 columns with the values of a random record."""
    return _make_observation(channel, *sample.observe_sets(_draw_sets(sample, noise)))


def list_values(sample: Sample, channel: Channel, column: str, noise: np.random.Generator) -> Observation:
    """Return the records of each value of a column; of many values some, in proportion to their records."""
    records = np.bincount(sample.columns[column]) if sample.record_count else np.zeros(0, dtype=np.int64)
    enough = np.flatnonzero(records >= FEWEST_IN_SET)
    if len(enough) > GROUPS:
        chances = records[enough] / records[enough].sum()
        enough = np.sort(noise.choice(enough, GROUPS, replace=False, p=chances))
    return _make_observation(channel, *sample.by_value(column, enough))


def _draw_sets(sample: Sample, noise: np.random.Generator) -> list[NDArray[np.intp]]:
    """Return the records of each condition that was drawn, once: asked again it tells nothing more.

    Where columns and values are few the same conditions are drawn over and over. What one of them says of the strengths
    would count as often, until chance was taken for certainty.
    """
    drawn: list[NDArray[np.intp]] = []
    columns = list(sample.columns.values())
    if not columns or not sample.record_count:
        return drawn
    least = max(SHARE * sample.record_count, FEWEST_IN_SET - 1)
    for row in noise.integers(0, sample.record_count, NUMBER * TRIES).tolist():
        number = int(noise.integers(1, min(ATTRIBUTES, len(columns)) + 1))
        chosen = noise.choice(len(columns), number, replace=False).tolist()
        members = np.flatnonzero(columns[chosen[0]] == columns[chosen[0]][row])
        for i in chosen[1:]:
            members = members[columns[i][members] == columns[i][row]]
        if len(members) > least:
            drawn.append(members)
            if len(drawn) == NUMBER:
                break
    return list({members.tobytes(): members for members in drawn}.values())


def _make_observation(channel: Channel, observed: Floats, total: Floats) -> Observation:
    """Return the observation of sets with so many records, which are perturbed independently."""
    return Observation(observed, total, total, total, np.minimum(total / channel.records.sum(), 1))


# Strengths ------------------------------------------------------------------------------------------------------------
# Weights of a grid of strengths, from the likelihoods of many questions.
#
# Question q has one of the strengths s, with probabilities w, which have a Dirichlet prior. The posterior mean of w is
# computed by Gibbs sampling: strengths of the questions given w and their likelihoods L_qs, then w given these. Maximum
# likelihood would be overconfident for few questions.

STRENGTHS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0])
CHAINS, STEPS, THROWN = 10, 30, 10  # the first steps of a chain still know where it began


def weigh_strengths(logs: Floats, prior: Floats, noise: np.random.Generator) -> Floats:
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


Weights = dict[str, tuple["Floats", "Floats"]]


# Prior ----------------------------------------------------------------------------------------------------------------
# The prior of a release, learned from its own records alone.
#
# Conditions like an analyst's give the covariance K of the shares of values, and the weights of the strengths. The
# records of each value of a column give the weights for questions on that column, since columns differ more than the
# questions on one column. A question on several columns has the weights of the one with the largest strengths.
#
# Neither K, an estimate from questions that share their records, nor the default form, by which values deviate
# independently, is known to hold. The estimate is that of K; its variance is that of both around it, half each:
#
#     se^2 = 1/2 se_K^2 + 1/2 (se_D^2 + (x^T n_D - x^T n_K)^2).
#
# Directions of which hardly anything is published say nothing of K, and what they seem to say must not be believed: the
# noise is taken to be larger by a part of each place's own (``BLUR``).

BLUR = 0.02  # of the noise of each place
EACH = 0.2  # questions that every strength is given
OF_ONE_COLUMN = 0.5  # questions that the weights of all columns are worth for one of them
DEGREES = 12.0  # of freedom behind a standard error
FEWEST_RECORDS = 1000  # records


@dataclass(frozen=True)
class LearnedPrior:
    """``covariance`` K (m, m); by column ("" for all) the weights (s,) of strengths with K and with the default
    form.
    """

    covariance: Floats
    weights: Weights


@dataclass(frozen=True)
class TaughtPrior:
    """A channel with what its release teaches."""

    channel: Channel
    learnt: LearnedPrior

    @cached_property
    def learned_form(self) -> CovarianceForm:
        """Return the covariances of values in the prior, K, as the channel sees them."""
        return CovarianceForm(self.channel, self.learnt.covariance)

    def reconstruct(self, observation: Observation, functionals: Floats, columns: Iterable[str]) -> Posterior:
        """Return the posterior of sets that a question selects by ``columns``."""
        together, alone = self.choose_weights(columns)
        learned = reconstruct(self.channel, observation, functionals, Prior(self.learned_form, STRENGTHS, together))
        wide = reconstruct(self.channel, observation, functionals, Prior(self.channel.default_form, STRENGTHS, alone))
        difference = np.matmul((wide.values - learned.values)[:, None], functionals)[:, 0]
        variance = (learned.std_error**2 + wide.std_error**2 + difference**2) / 2
        return Posterior(learned.values, np.sqrt(variance))

    def choose_weights(self, columns: Iterable[str]) -> tuple[Floats, Floats]:
        """Return for each form the weights of the column with the largest strengths."""
        weights = self.learnt.weights
        candidates = [weights[column] for column in sorted(set(columns)) if column in weights] or [weights[""]]
        learned, default = zip(*candidates, strict=True)
        return max(learned, key=_mean_square), max(default, key=_mean_square)


def _mean_square(weights: Floats) -> float:
    return float(weights @ STRENGTHS**2)


def can_teach(channel: Channel, records: int) -> bool:
    """Return whether a release of so many records is enough to learn from, and its values not too many."""
    return records >= FEWEST_RECORDS and max(channel.mean.shape) <= LARGE


def learn_from_release(channel: Channel, sample: Sample) -> TaughtPrior | None:
    """Return the prior that the sample teaches, the same for the same sample; None where there is too little."""
    if not (can_teach(channel, sample.record_count) and sample.columns):
        return None
    blurred = blur_channel(channel)
    return TaughtPrior(blurred, learn_prior(blurred, sample, seed_key(1).random_generator("learnt")))


def blur_channel(channel: Channel) -> Channel:
    """Add BLUR (diag(d) - d d^T / sum d) of noise, d its diagonal: none in the sum over all places."""
    diagonal = np.diag(channel.noise_moment).clip(0)
    more = np.diag(diagonal) - np.outer(diagonal, diagonal) / max(diagonal.sum(), TINY)
    return replace(channel, moment=channel.moment + BLUR * more)


def learn_prior(channel: Channel, sample: Sample, noise: np.random.Generator) -> LearnedPrior:
    """Return K and the weights."""
    observation = draw_conditions(sample, channel, noise)
    estimate = estimate_covariance(channel, observation)
    forms = CovarianceForm(channel, estimate), channel.default_form
    few = np.full(len(STRENGTHS), EACH)
    every = [weigh_strengths(strength_likelihoods(form, observation, STRENGTHS), few, noise) for form in forms]
    learnt = {"": (every[0], every[1])}
    for each_column in sample.columns:
        sets = list_values(sample, channel, each_column, noise)
        logs = [strength_likelihoods(form, sets, STRENGTHS) for form in forms]
        one, other = (weigh_strengths(*each, noise) for each in zip(logs, OF_ONE_COLUMN * np.array(every), strict=True))
        learnt[each_column] = one, other
    return LearnedPrior(estimate, learnt)
