"""Learn from a release's own records how the shares of sensitive values vary between sets of records.

Estimates of counts use this as their prior. The strength of association of a question says how far the shares among the
records that it selects deviate from those of all records.
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

ROUNDS = 3  # more rounds change neither errors nor coverage
START = 0.25  # share of the default covariance with which EM begins
PRIOR = 50.0  # questions that the default covariance counts for


def estimate_covariance(channel: Channel, observation: Observation) -> Floats:
    """Estimate by EM how the shares of m values vary together between sets of records: the covariance K (m, m).

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        observation: The published values of some sets, and their known totals. Without any set, the result is the
            default covariance, in which different values deviate independently.
    """
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
MOST_RECORDS = 500_000  # records of a sample


@dataclass(frozen=True)
class Sample:
    """Some records of a release, to learn how shares of sensitive values vary between sets of records.

    Attributes:
        places: The bucket, group or cell of each of n records (n,): a row of ``contributions``.
        contributions: What one record of each bucket, group or cell adds to the k published values, a sparse (p, k).
        columns: The columns that tell records apart, by name: one code for each record (n,).
    """

    places: Codes
    contributions: scipy.sparse.csr_array
    columns: dict[str, Codes]

    @property
    def record_count(self) -> int:
        """Return the number of records in the sample."""
        return len(self.places)

    def observe_sets(self, members: Sequence[NDArray[np.intp]]) -> tuple[Floats, Floats]:
        """Return the published values of R sets of records, added up (R, k), and the sizes of the sets (R,).

        Args:
            members: The indices of the records of each set.
        """
        number = self.contributions.shape[0]
        rows = [np.bincount(self.places[chosen], minlength=number) for chosen in members]
        placed = np.array(rows, dtype=np.float64).reshape(-1, number)
        return np.asarray(placed @ self.contributions), placed.sum(axis=1)

    def by_value(self, column: str, values: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return what is published of the sets of records that have each of R values of a column.

        Args:
            column: The name of the column.
            values: The codes of the values (R,).

        Returns:
            The published values of each set, added up (R, k), and the sizes of the sets (R,).
        """
        codes = self.columns[column]
        sets = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        return self.observe_sets([sets[value] for value in values])


def encode_values(column: pa.ChunkedArray) -> Codes:
    """Return a code for each value of a column, from 0 in order of appearance; NULL has a code, too."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int32)


def comparable_columns(roles: Roles) -> list[exp.Expr]:
    """Return SQL expressions that read the quasi-identifiers under internal names, to number their values later.

    Types that Arrow can't compare are cast to text.
    """
    fields = zip(roles.qi_keys, roles.quasi_identifiers, strict=True)
    return [
        alias_as(item if field.type.removeprefix("U") in PLAIN else exp.cast(item, "VARCHAR"), key)
        for key, field in fields
        for item in [column(field.name)]
    ]


def code_column(column: pa.ChunkedArray, field: Field) -> NDArray[Any]:
    """Turn a column of any type into numbers, for computations on arrays.

    Numbers and days stay as they are, with NaN for NULL. Other values become their ranks as texts, NULL last.
    """
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
ATTRIBUTES = 3  # the largest number of columns in a condition
SHARE = 0.002  # of the records that a condition must select
FEWEST_IN_SET = 8  # records that any set must have
TRIES = 20  # conditions drawn for one that selects enough
GROUPS = 150  # the largest number of values of a column


def draw_conditions(sample: Sample, channel: Channel, noise: np.random.Generator) -> Observation:
    """Draw random conditions like an analyst's, and return what the release shows of the records that meet each.

    A condition is equality on 1 to 3 columns with the values of a random record of the sample.
    """
    return _make_observation(channel, *sample.observe_sets(_draw_sets(sample, noise)))


def list_values(sample: Sample, channel: Channel, column: str, noise: np.random.Generator) -> Observation:
    """Return an observation for each value of a column: what the release shows of the records with that value.

    Values with few records are left out. Of more than ``GROUPS`` values some are drawn, in proportion to their records.
    """
    records = np.bincount(sample.columns[column]) if sample.record_count else np.zeros(0, dtype=np.int64)
    enough = np.flatnonzero(records >= FEWEST_IN_SET)
    if len(enough) > GROUPS:
        chances = records[enough] / records[enough].sum()
        enough = np.sort(noise.choice(enough, GROUPS, replace=False, p=chances))
    return _make_observation(channel, *sample.by_value(column, enough))


def _draw_sets(sample: Sample, noise: np.random.Generator) -> list[NDArray[np.intp]]:
    """Draw random conditions, and return the indices of the records that meet each; equal sets are returned once.

    From these sets it is learnt how shares of values vary. With few columns and values, the same condition is drawn
    often; its repetitions are no further evidence.
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
    """Return the observation of sets whose records were published independently of each other.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        observed: The published values added up over each set (R, k).
        total: The size of each set (R,).
    """
    return Observation(observed, total, total, total, np.minimum(total / channel.records.sum(), 1))


# Strengths ------------------------------------------------------------------------------------------------------------
# Weights of a grid of strengths, from the likelihoods of many questions.
#
# Question q has one of the strengths s, with probabilities w, which have a Dirichlet prior. The posterior mean of w is
# computed by Gibbs sampling: strengths of the questions given w and their likelihoods L_qs, then w given these. Maximum
# likelihood would be overconfident for few questions.

STRENGTHS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0])
CHAINS, STEPS, THROWN = 10, 30, 10  # the first steps of a chain depend on its start and are thrown away


def weigh_strengths(logs: Floats, prior: Floats, noise: np.random.Generator) -> Floats:
    """Return how frequent each strength of association is among some questions, by Gibbs sampling.

    A question's strength says how far the shares of sensitive values among its records deviate from those of all
    records.

    Args:
        logs: The log-likelihood of each of s strengths for each of R questions (s, R).
        prior: The parameters of a Dirichlet prior of the frequencies (s,).
        noise: The random generator.

    Returns:
        The posterior mean of the frequencies (s,); they sum to 1.
    """
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
# Neither covariance is known to hold: K is estimated from questions that share their records, and by the default form
# values deviate independently. The answer is the one by K. Its variance is the mean of those by both around it:
#
#     se^2 = 1/2 se_K^2 + 1/2 (se_D^2 + (x^T n_D - x^T n_K)^2).
#
# In directions of which hardly anything is published, apparent evidence on K must not be trusted. So the noise is taken
# to be larger than it is, by a share (``BLUR``) of that of each published value.

BLUR = 0.02  # share of each published value's noise that is added to it
EACH = 0.2  # questions that each strength counts for beforehand
OF_ONE_COLUMN = 0.5  # questions that the weights of all columns count for in those of one column
DEGREES = 12.0  # degrees of freedom of a standard error
FEWEST_RECORDS = 1000  # records


@dataclass(frozen=True)
class LearnedPrior:
    """What was learnt from a release about how shares of sensitive values vary between sets of records.

    Attributes:
        covariance: The covariance of the shares of the m sensitive values (m, m), up to a factor.
        weights: By column, how frequent each of s strengths of association is for questions on that column ("" for
            other questions). There are two arrays (s,): with this covariance, and with the default one.
    """

    covariance: Floats
    weights: Weights


@dataclass(frozen=True)
class TaughtPrior:
    """An estimator of counts with a prior learnt from the release: how sets of records differ in shares of values.

    Attributes:
        channel: How the release turns true counts into published values.
        learnt: The prior.
    """

    channel: Channel
    learnt: LearnedPrior

    @cached_property
    def learned_form(self) -> CovarianceForm:
        """Return the prior covariance of the sensitive values that was learnt."""
        return CovarianceForm(self.channel, self.learnt.covariance)

    def reconstruct(self, observation: Observation, functionals: Floats, columns: Iterable[str]) -> Posterior:
        """Estimate how many records of each of G sets have each of m sensitive values.

        Args:
            observation: The published values of the sets, and their known totals.
            functionals: Weights of values in the f sums whose standard errors are wanted, (m, f) or by set (G, m, f).
            columns: The columns by which the question selects records; the prior depends on them.
        """
        together, alone = self.choose_weights(columns)
        learned = reconstruct(self.channel, observation, functionals, Prior(self.learned_form, STRENGTHS, together))
        wide = reconstruct(self.channel, observation, functionals, Prior(self.channel.default_form, STRENGTHS, alone))
        difference = np.matmul((wide.values - learned.values)[:, None], functionals)[:, 0]
        variance = (learned.std_error**2 + wide.std_error**2 + difference**2) / 2
        return Posterior(learned.values, np.sqrt(variance))

    def choose_weights(self, columns: Iterable[str]) -> tuple[Floats, Floats]:
        """Return how likely each strength of association is beforehand, for a question on some columns.

        A strength says how far the shares of values among the selected records deviate from those of all records. Of
        the columns, the one that is associated with the sensitive value most strongly decides.

        Args:
            columns: The columns by which the question selects records.

        Returns:
            The weights of the strengths (s,) with the learnt covariance, and those with the default covariance.
        """
        weights = self.learnt.weights
        candidates = [weights[column] for column in sorted(set(columns)) if column in weights] or [weights[""]]
        learned, default = zip(*candidates, strict=True)
        return max(learned, key=_mean_square), max(default, key=_mean_square)


def _mean_square(weights: Floats) -> float:
    return float(weights @ STRENGTHS**2)


def can_teach(channel: Channel, records: int) -> bool:
    """Return whether a release can teach how the shares of sensitive values vary between sets of its records.

    That takes enough records, and not too many values.
    """
    return records >= FEWEST_RECORDS and max(channel.mean.shape) <= LARGE


def learn_from_release(channel: Channel, sample: Sample) -> TaughtPrior | None:
    """Learn a prior for estimates of counts: how shares of sensitive values vary between sets of records of a sample.

    The same sample always gives the same prior. The result is None if there are too few records, too many sensitive
    values or no quasi-identifiers.
    """
    if not (can_teach(channel, sample.record_count) and sample.columns):
        return None
    blurred = blur_channel(channel)
    return TaughtPrior(blurred, learn_prior(blurred, sample, seed_key(1).random_generator("learnt")))


def blur_channel(channel: Channel) -> Channel:
    """Return a channel that claims a little more noise than the release has.

    Otherwise a prior would be learnt even from published values that show hardly anything. The covariance of the added
    noise is BLUR (diag(d) - d d^T / sum d), where d is the diagonal of the channel's ``noise_moment``. The noise does
    not change the sum over all published values.
    """
    diagonal = np.diag(channel.noise_moment).clip(0)
    more = np.diag(diagonal) - np.outer(diagonal, diagonal) / max(diagonal.sum(), TINY)
    return replace(channel, moment=channel.moment + BLUR * more)


def learn_prior(channel: Channel, sample: Sample, noise: np.random.Generator) -> LearnedPrior:
    """Learn from records how far, and how together, the shares of sensitive values vary between sets of records.

    The sets are those that meet random conditions, or have one value of a column. Estimates of counts use the result.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        sample: The records to learn from.
        noise: The random generator.

    Returns:
        The covariance of the values' shares, and by column how frequent each strength of association is (how far shares
        deviate from those of all records).
    """
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
