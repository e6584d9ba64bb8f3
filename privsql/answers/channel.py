"""Describe a release as a linear channel from true counts to published values, and estimate counts through it.

The channel is the matrix that gives the expected published values of a set of records from the set's counts of
sensitive values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

# Channel --------------------------------------------------------------------------------------------------------------
# A release as a known linear channel from the counts of a set of records to the published values.
#
# A question selects a set Q of records. Unknown: n (m,), how many of them have each sensitive value; known: their
# total. Observed: e (k,), E[e] = M^T n over the publisher's random choices, M (m, k) public with rows that sum to one.
#
#     Cov[e] = weight (S - M^T diag(o) M),   S = sum_i o_i E[w w^T | i]   (k, k),
#
# where w is what one record of value i adds to e, o_i the records of value i in the whole release, N their sum, and
# ``weight`` stands for |Q|/N (1 - |Q|/N) (drawing without replacement) or |Q|/N (independent draws).
#
# Prior: n has mean mu = total * f and covariance P = diag(p), f = o / N, with
#
#     p_i = (c scale)^2 f_i^1.5 F + second f_i,   F = sum f^2 / sum f^1.5.
#
# ``second`` f_i is sampling noise, c the strength of association between the question and the sensitive value; values
# that are rare deviate more in proportion, hence 1.5.
#
# A = M^T P M + Cov[e] = second (B + rho C) with B = M^T diag(f) M + (weight N / second) (S/N - M^T diag(f) M), C = M^T
# diag(f^1.5 F) M and rho = (c scale)^2 / second. One generalized eigenproblem C v = lambda B v therefore serves all c
# and all sets with the same weight N / second. A full covariance K may stand in the place of diag(f^1.5 F).

Floats = NDArray[np.float64]
Matrix = Any  # Floats, or a sparse array where there are very many values, of which few meet

POWER = 1.5
JITTER = 1e-9  # relative to the mean variance: keeps a singular channel solvable, far below any real noise
MOST_BASES = 8  # eigenproblems that a channel remembers
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Channel:
    """How a release turns the counts of sensitive values into published values, on average and with which variance.

    m is the number of sensitive values, k the number of published values, N the number of all records. The comment
    above this class has the formulas.

    Attributes:
        mean: M (m, k). Row i is the mean of what one record of value i adds to the published values; rows sum to 1.
        moment: S (k, k) = sum_i o_i E[w w^T | i], where w is what one record of value i adds to the published values.
        records: o (m,), the number of records of each value in the whole release.
    """

    mean: Matrix
    moment: Matrix
    records: Floats

    @cached_property
    def shares(self) -> Floats:
        """Return the share of each sensitive value among all records (m,)."""
        return np.asarray(self.records / self.records.sum())

    @cached_property
    def expected_total(self) -> Floats:
        """Return the expected published values of all records together (k,)."""
        return np.asarray(self.records @ self.mean)

    @cached_property
    def squared_mean(self) -> Matrix:
        """Return the matrix ``mean`` with every entry squared (m, k), to compute variances of published values."""
        return self.mean * self.mean  # entry by entry, of sparse arrays too

    @cached_property
    def prior_shape(self) -> Floats:
        """Return the prior variances of the m counts up to a common factor (m,).

        A value of share f has the variance f^1.5 times a constant, since rare values deviate more in proportion.
        """
        shape = self.shares**POWER
        return np.asarray(shape * ((self.shares**2).sum() / shape.sum()))

    @cached_property
    def sampling_moment(self) -> Floats:
        """Return the covariance of the published values of a random sample of records, per record (k, k).

        It is the part that comes from the sample's counts of sensitive values, not from the publisher's noise.
        """
        return np.asarray(self.mean.T @ (self.shares[:, None] * self.mean))

    @cached_property
    def noise_moment(self) -> Floats:
        """Return the covariance of published values that the publisher's random choices cause (k, k).

        It must be multiplied by the ``weight`` of the set of records (see ``Observation``).
        """
        return np.asarray(self.moment - self.records.sum() * self.sampling_moment)

    @cached_property
    def default_form(self) -> CovarianceForm:
        """Return the default prior covariance: the counts of different values deviate independently of each other."""
        return CovarianceForm(self, self.prior_shape)

    def noise_covariance(self, level: float) -> Floats:
        """Return the covariance B of the published values of a set that was drawn at random, per record (k, k).

        B = M^T diag(f) M + level (S/N - M^T diag(f) M), where M is ``mean``, S is ``moment``, f are the shares of the
        values and N is the number of all records. A tiny multiple of the identity is added so that B can be inverted.

        Args:
            level: The strength of the publisher's noise for the set: N times ``weight`` / ``second`` of
                ``Observation``.
        """
        covariance = self.sampling_moment * (1 - level) + self.moment * (level / self.records.sum())
        covariance[np.diag_indices(len(covariance))] += JITTER * np.trace(covariance) / len(covariance) + TINY**0.5
        return np.asarray(covariance)

    def whitening_matrix(self, level: float) -> Floats:
        """Return a matrix W (k, k) with W^T B W = I, where B is the ``noise_covariance``.

        The published values of a random set, multiplied by W, are independent and have equal variances.

        Args:
            level: The strength of the publisher's noise, as for ``noise_covariance``.
        """
        lower = scipy.linalg.cholesky(self.noise_covariance(level), lower=True)
        return np.asarray(scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T)


@dataclass(frozen=True)
class CovarianceForm:
    """The prior covariance K of the counts of m sensitive values, up to a factor for each set of records.

    The factor is (c scale)^2. c is the strength of association: how far the set's shares of values deviate from those
    of all records. ``scale`` grows with the set (see ``Observation``).

    Attributes:
        channel: How the release turns counts of these values into published values.
        covariance: K (m, m); or its diagonal (m,) if all other entries are 0.
    """

    channel: Channel
    covariance: Floats

    def multiply_vectors(self, vectors: Floats) -> Floats:
        """Return the prior covariance K (m, m) times the columns of ``vectors`` (m, ..), in the same shape."""
        if self.covariance.ndim > 1:
            return np.asarray(self.covariance @ vectors)
        return np.asarray(self.covariance.reshape(-1, *[1] * (vectors.ndim - 1)) * vectors)

    @property
    def diagonal(self) -> Floats:
        """Return the prior variances of the counts of m values, up to a factor for each set of records (m,)."""
        return np.diag(self.covariance) if self.covariance.ndim > 1 else self.covariance

    @cached_property
    def observed_covariance(self) -> Floats:
        """Return the covariance C of the published values (k, k) that this prior covariance of the counts causes."""
        return np.asarray(self.channel.mean.T @ self.multiply_vectors(self.channel.mean))

    def eigen_basis(self, level: float) -> tuple[Floats, Floats]:
        """Find a basis of the published values in which both the prior covariance C and the noise B are diagonal.

        Estimates then treat its directions one by one. C is ``observed_covariance``, B is ``Channel.noise_covariance``.
        The basis solves C v = lambda B v.

        Args:
            level: The strength of the publisher's noise, as for ``Channel.noise_covariance``.

        Returns:
            The eigenvalues lambda (k,), none negative, and the eigenvectors as columns (k, k), with v^T B v = 1.
        """
        if level not in self._stored_bases:
            if len(self._stored_bases) >= MOST_BASES:
                self._stored_bases.clear()
            root = np.linalg.cholesky(self.channel.noise_covariance(level))  # scipy takes long to import
            reduced = np.linalg.solve(root, np.linalg.solve(root, self.observed_covariance).T)
            values, vectors = np.linalg.eigh((reduced + reduced.T) / 2)
            self._stored_bases[level] = values.clip(0), np.linalg.solve(root.T, vectors)
        return self._stored_bases[level]

    @cached_property
    def _stored_bases(self) -> dict[float, tuple[Floats, Floats]]:
        return {}


@dataclass(frozen=True)
class Observation:
    """What the release shows of G sets of records, whose counts of sensitive values are to be estimated.

    To estimate counts, ``total``, ``scale`` and ``second`` are the number of records in the set. To estimate the sums
    of an amount a over the records of each value, total = sum a, second = sum a^2 and scale = sqrt(records sum a^2).

    Attributes:
        observed: The k published values, added up over each set (G, k).
        total: The known sum of all counts of a set (G,).
        scale: How far the prior lets a set's counts deviate because its shares differ from those of all records (G,).
            It adds (c scale)^2 K to the prior covariance of the counts, as in ``CovarianceForm``.
        second: How far the prior lets a set's counts deviate as those of a random sample do (G,). It adds ``second``
            f_i to the prior variance of the count of value i, whose share of all records is f_i.
        weight: The factor of the publisher's noise (G,). For a set that is the share s of all records it is s (1 - s)
            if records took places without replacement, and s if they were drawn independently.
    """

    observed: Floats
    total: Floats
    scale: Floats
    second: Floats
    weight: Floats

    def select_sets(self, part: NDArray[np.intp]) -> Observation:
        """Return the observation of the sets at the indices ``part``."""
        parts = (self.observed, self.total, self.scale, self.second, self.weight)
        return Observation(*(array[part] for array in parts))


def observe_counts(observed: Floats, total: Floats, records: float) -> Observation:
    """Return the observation of sets whose records were placed in buckets without replacement, to estimate counts.

    Args:
        observed: The published values, added up over each set (G, k).
        total: The number of records in each set (G,).
        records: The number of all records.
    """
    share = total / records
    return Observation(observed, total, total, total, share * (1 - share))


def own_share(channel: Channel) -> float:
    """Return how much of what a record adds to the published values falls on its own sensitive value, on average.

    It is 1 if the release shows every record's value. Published and sensitive values must be the same.
    """
    return float(channel.shares @ channel.mean.diagonal())


def singular_values(channel: Channel) -> dict[str, float]:
    """Return the ``second``, ``median`` and ``smallest`` singular value of the channel, scaled by the values' counts.

    They say how well a release shows differences between sets of records: 1 fully, 0 not at all. Each singular value
    stands for one direction of differences. The largest is 1, because totals are known. The scaled matrix is
    diag(o)^1/2 M diag(M^T o)^-1/2, where M is ``mean`` and o is ``records`` of the channel.
    """
    scale = np.sqrt(channel.records)[:, None] / np.sqrt(np.maximum(channel.expected_total, TINY))
    values = np.linalg.svd(channel.mean * scale, compute_uv=False)
    return {
        "second": float(values[min(1, len(values) - 1)]),
        "median": float(np.median(values)),
        "smallest": float(values[-1]),
    }


def measure_quality(channel: Channel) -> dict[str, float]:
    """Return figures that say how much a release reveals of counts, to compare ways of publishing the same source.

    Returns:
        ``second``, ``median`` and ``smallest``: how well the release shows differences between sets of records, from 0
        (not at all) to 1 (fully), as singular values of the channel. ``left``: the share of the prior variance of
        counts that remains after an answer, 0 for an exact one.
    """
    return {**singular_values(channel), "left": remaining_variance(channel)}


def remaining_variance(channel: Channel, share: float = 0.01, strength: float = 0.6) -> float:
    """Return the share of the prior variance of counts that remains after an answer; it is 0 for an exact answer.

    It is the sum of the posterior variances of all values' counts, divided by the sum of their prior variances.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        share: The share of all records that the question selects.
        strength: How far the shares of values among the selected records are expected to deviate from those of all
            records; 0 for not at all.
    """
    prior, explained = _split_variance(channel, share, strength)
    return float(1 - explained.sum() / prior.sum())


def _split_variance(channel: Channel, share: float, strength: float) -> tuple[Floats, Floats]:
    """Return the prior variance of each value's count (m,), and the part of it that an answer explains (m,).

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        share: The share of all records that the question selects.
        strength: How far the shares of values among the selected records are expected to deviate from those of all
            records; 0 for not at all.
    """
    total = share * float(channel.records.sum())
    drive = (strength * total) ** 2
    eigenvalues, vectors = channel.default_form.eigen_basis(1 - share)
    prior = drive * channel.prior_shape + total * channel.shares
    gains = (channel.mean @ vectors) * prior[:, None]
    return prior, (gains**2 / (1 + drive / total * eigenvalues)).sum(axis=1) / total


# Expected errors ------------------------------------------------------------------------------------------------------


def relative_error(channel: Channel, share: float, count: float, strength: float = 0.6) -> float | None:
    """Return the expected relative error of the answer to a question that finds ``count`` records of some value.

    It is E|estimate - n|/n for n = ``count``. Before the answer, the count of value i is normal with mean mu_i and
    variance P_i; after it, its variance is k_i P_i. Given n, the estimate is normal with mean n - k_i (n - mu_i) and
    variance (1 - k_i) k_i P_i. The result is the mean over the values, weighted by how likely each value is to have n
    records.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        share: The share of all records that the question selects.
        count: n, above 0.
        strength: How far the shares of values among the selected records are expected to deviate from those of all
            records; 0 for not at all.

    Returns:
        The error as a share of n; None if n lies more than three prior standard deviations from mu_i for every value.
    """
    prior, explained = _split_variance(channel, share, strength)
    left = (1 - explained / prior).clip(0, 1)
    away = count - share * float(channel.records.sum()) * channel.shares
    logs = -(away**2 / prior + np.log(prior)) / 2
    if (np.abs(away) / np.sqrt(prior)).min() > 3:
        return None
    weights = np.exp(logs - logs.max())
    spread = np.sqrt(np.maximum((1 - left) * left * prior, TINY))
    short = left * away / spread
    errors = spread * (np.sqrt(2 / np.pi) * np.exp(-(short**2) / 2) + short * scipy.special.erf(short / np.sqrt(2)))
    return float((weights @ errors) / weights.sum() / count)


def expect_errors(channel: Channel, count: float, strength: float = 0.6) -> Floats:
    """Return for each sensitive value the relative standard error of an answer that finds ``count`` records of it (m,).

    It predicts how precise answers will be. For a value with the share f of all records, the question selects
    ``count`` / f records, which are taken for a small part of the table.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        count: The number of records.
        strength: How far the shares of values among the selected records are expected to deviate from those of all
            records; 0 for not at all.
    """
    total = count / np.maximum(channel.shares, TINY)
    drive = (strength * total) ** 2
    # As ``eigen_basis(1.0)``, by numpy alone: what publishes loads no solvers.
    half = np.linalg.inv(np.linalg.cholesky(channel.noise_covariance(1.0)))
    eigenvalues, turned = np.linalg.eigh(half @ channel.default_form.observed_covariance @ half.T)
    eigenvalues, vectors = eigenvalues.clip(0), half.T @ turned
    prior = drive * channel.prior_shape + total * channel.shares
    gains = (channel.mean @ vectors) * prior[:, None]
    explained = (gains**2 / (1 + (drive / total)[:, None] * eigenvalues)).sum(axis=1) / total
    return np.asarray(np.sqrt((prior - explained).clip(0)) / count)


# Reconstruct ----------------------------------------------------------------------------------------------------------
# Reconstruction through a channel: the algebra that all mechanisms share. Notation as in ``privsql.answers.channel``.
#
# The strength c is not tuned: each c of a grid is weighted by the likelihood of the observed e (empirical Bayes), and
# mean and covariance are those of the mixture. The posterior given c has
#
#     mean = mu + P M A^-1 (e - M^T mu),     covariance = P - P M A^-1 M^T P.
#
# The entries of e sum to the total without noise, so the mean sums to the total and the covariance knows it. A
# direction in which the release holds no information has no gain and keeps its prior width.

STRENGTHS = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0])
LEVEL = 1.02  # many sets share an eigenproblem where their noise agrees within this factor; it is rounded up
LARGE = 1000  # values beyond which nothing of m^3 operations is done
FEW = 32  # functionals that a large channel solves for one by one
CHUNK = 2**22  # numbers that one batch of arrays may hold


@dataclass(frozen=True)
class Posterior:
    """The estimated counts of G sets, with errors.

    Attributes:
        values: The estimated number of records of each value in each set (G, m).
        std_error: The standard error of each of f weighted sums of these counts (G, f).
        judged: The part of the squared standard errors that rests on an estimate of how far each set's shares of values
            deviate from those of all records, and is itself uncertain (G, f); None if all of it is.
    """

    values: Floats
    std_error: Floats
    judged: Floats | None = None


@dataclass(frozen=True)
class Prior:
    """The prior of the counts of sensitive values in a set of records: a mixture over strengths of association.

    A strength says how far the set's shares of values deviate from those of all records.

    Attributes:
        form: The covariance of the counts, up to a factor that depends on the strength and the set.
        strengths: The possible strengths of association (s,).
        weights: The prior probability of each strength (s,).
    """

    form: CovarianceForm
    strengths: Floats
    weights: Floats


def reconstruct(
    channel: Channel, observation: Observation, functionals: Floats, prior: Prior | None = None
) -> Posterior:
    """Estimate how many records of each of G sets have each of m sensitive values.

    The estimate is the posterior mean over all strengths of association in the prior. A strength says how far a set's
    shares of values deviate from those of all records. If there are more than ``LARGE`` values, one strength is chosen.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        observation: The published values of G sets of records, and their known totals.
        functionals: Weights of values in the f sums whose standard errors are wanted, (m, f) or by set (G, m, f).
        prior: The prior; None for the default covariance with all ``STRENGTHS`` equally likely.

    Returns:
        The counts (G, m), and the standard errors of the sums (G, f).
    """
    alike = np.full(len(STRENGTHS), 1 / len(STRENGTHS))
    prior = prior or Prior(channel.default_form, STRENGTHS, alike)  # without knowledge of the release
    sets, m = observation.observed.shape[0], len(channel.records)
    values, errors = np.zeros((sets, m)), np.zeros((sets, functionals.shape[-1]))
    single = m > LARGE and _are_single(functionals)
    for members in _split_batches(channel, observation, functionals.shape[-1]):
        part, wanted = observation.select_sets(members), functionals if functionals.ndim == 2 else functionals[members]
        if m > LARGE:
            found = _reconstruct_large(channel, part, wanted, single=single)
        else:
            found = _reconstruct_small(prior, part, wanted)
        values[members], errors[members] = found
    return Posterior(values, errors)


def _noise_levels(channel: Channel, observation: Observation) -> Floats:
    """Return for each set how strong the publisher's noise is (G,), so that sets of one strength are solved together.

    It is N times ``weight`` / ``second`` of ``Observation``, where N is the number of all records. Many different
    strengths are rounded up to a few.
    """
    levels = observation.weight * channel.records.sum() / np.maximum(observation.second, TINY)
    level = np.round(levels, 9)  # equal ones stay equal
    if len(np.unique(level)) <= 8:
        return np.asarray(level)
    steps = np.floor(-np.log(np.clip(level, 1e-6, None)) / np.log(LEVEL))
    return np.asarray(np.where(level > 0, LEVEL**-steps, 0.0))


def _split_batches(channel: Channel, observation: Observation, functionals: int) -> Iterator[NDArray[np.intp]]:
    """Yield the indices of sets that are solved together: they have one noise level and fit into memory.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        observation: The published values of all sets, and their known totals.
        functionals: The number of sums whose errors are wanted.
    """
    m = len(channel.records)
    step = 1 if m > LARGE else max(1, CHUNK // (m * (functionals + len(STRENGTHS))))
    levels = _noise_levels(channel, observation)
    for level in np.unique(levels):
        members = np.flatnonzero(levels == level)
        for start in range(0, len(members), step):
            yield members[start : start + step]


def strength_likelihoods(form: CovarianceForm, observation: Observation, strengths: Floats) -> Floats:
    """Return the log-likelihood of each strength of association for each of G sets (strengths, G).

    A strength says how far a set's shares of values deviate from those of all records. A constant for each set is left
    out.

    Args:
        form: The prior covariance.
        observation: The published values of the sets, and their known totals.
        strengths: The strengths.
    """
    logs = np.zeros((len(strengths), len(observation.total)))
    for members in _split_batches(form.channel, observation, 1):
        rotated = _RotatedSets.from_observation(form, observation.select_sets(members))
        logs[:, members] = _log_likelihoods(rotated, strengths)
    return logs


@dataclass(frozen=True)
class _RotatedSets:
    """Sets of records with the same level of noise, in a basis in which published values are independent.

    Directions of the basis (``CovarianceForm.eigen_basis``) can be treated one by one: neither noise nor prior makes
    them depend on each other. So counts and log-likelihoods of a set are sums over directions.

    Attributes:
        form: The prior covariance.
        eigenvalues: How much association adds to the variance of each direction, relative to chance (k,).
        vectors: The basis (k, k).
        data: The published values of each set minus their prior mean, in this basis (G, k).
        scale: How far the prior lets a set's counts deviate because its shares differ from those of all records (G,).
        second: How far the prior lets a set's counts deviate as those of a random sample do (G,).
    """

    form: CovarianceForm
    eigenvalues: Floats
    vectors: Floats
    data: Floats
    scale: Floats
    second: Floats

    @staticmethod
    def from_observation(form: CovarianceForm, observation: Observation) -> _RotatedSets:
        channel = form.channel
        level = float((_noise_levels(channel, observation)).max(initial=0.0))
        eigenvalues, vectors = form.eigen_basis(level)
        data = (observation.observed - (observation.total[:, None] * channel.shares) @ channel.mean) @ vectors
        second = np.maximum(observation.second, TINY**0.5)
        return _RotatedSets(form, eigenvalues, vectors, data, observation.scale, second)

    def squared_drive(self, strength: float) -> Floats:
        """Return the factor of the counts' prior covariance for each set, (strength * scale)^2 (G, 1).

        Args:
            strength: The strength of association: how far a set's shares of values deviate from those of all records.
        """
        return np.asarray(((strength * self.scale) ** 2)[:, None])

    def damping_factors(self, strength: float) -> Floats:
        """Return the share of the published values' variance that chance causes, by set and direction (G, k).

        Chance is sampling and the publisher's noise; an association of the given strength causes the rest. The larger
        the share, the less an estimate follows the published values.

        Args:
            strength: The strength of association: how far a set's shares of values deviate from those of all records.
        """
        return np.asarray(1 / (1 + self.squared_drive(strength) / self.second[:, None] * self.eigenvalues))


def _log_likelihoods(rotated: _RotatedSets, strengths: Floats) -> Floats:
    """Return the log-likelihood of each strength of association for each set of records (strengths, G).

    The sum of the published values is left out: it is known, and tells nothing about the strength.

    Args:
        rotated: The published values of the sets, in a basis in which they are independent.
        strengths: The strengths: how far a set's shares of values deviate from those of all records.
    """
    logs, variance = [], float(rotated.form.covariance.sum())  # of the sum over all values
    for strength in strengths:
        damped = rotated.damping_factors(strength)
        fit = (np.log(damped) - rotated.data**2 * damped / rotated.second[:, None]).sum(axis=1)
        whole = rotated.squared_drive(strength)[:, 0] * variance + rotated.second
        logs.append((fit + np.log(np.maximum(whole, TINY))) / 2)
    return np.array(logs)


def _reconstruct_small(prior: Prior, observation: Observation, functionals: Floats) -> tuple[Floats, Floats]:
    """Return the counts (G, m) and standard errors (G, f) of sets with the same noise level.

    They are averages over the prior's strengths (how far shares of values deviate from those of all records). For each
    strength they are sums over the directions of a basis in which published values are independent. What does not
    depend on the strength is computed once.

    Args:
        prior: The prior.
        observation: The published values of the sets, and their known totals.
        functionals: Weights of values in the f sums whose standard errors are wanted, (m, f) or by set (G, m, f).
    """
    form, channel = prior.form, prior.form.channel
    rotated = _RotatedSets.from_observation(form, observation)
    second = rotated.second[:, None]
    projected = channel.mean @ rotated.vectors  # (m, k)
    driven, sampled = form.multiply_vectors(projected), channel.shares[:, None] * projected
    wide, narrow = driven.T @ functionals, sampled.T @ functionals  # (k, f), or (G, k, f)
    square_wide, square_narrow = _quadratic_form(form, functionals), (functionals**2).swapaxes(-1, -2) @ channel.shares
    centres, variances, explained = [], [], []
    for strength in prior.strengths:
        drive, damped = rotated.squared_drive(strength), rotated.damping_factors(strength) / second
        explained.append(rotated.data * damped)
        centres.append(drive * _sum_directions(explained[-1], wide) + second * _sum_directions(explained[-1], narrow))
        known = drive**2 * _sum_directions(damped, wide**2) + second**2 * _sum_directions(damped, narrow**2)
        known += 2 * drive * second * _sum_directions(damped, wide * narrow)
        variances.append(drive * square_wide + second * square_narrow - known)
    logs = _log_likelihoods(rotated, prior.strengths) + np.log(np.maximum(prior.weights, TINY))[:, None]
    weights = np.exp(logs - logs.max(axis=0))
    weights /= weights.sum(axis=0)
    drives = np.array([rotated.squared_drive(strength)[:, 0] for strength in prior.strengths])
    pulled = np.einsum("cg,cgk->gk", weights * drives, explained) @ driven.T
    drawn = second * (np.einsum("cg,cgk->gk", weights, explained) @ sampled.T)
    mean = observation.total[:, None] * channel.shares + pulled + drawn
    centre = np.einsum("cg,cgf->gf", weights, centres)
    deviations = (np.array(centres) - centre) ** 2
    return mean, np.sqrt(np.einsum("cg,cgf->gf", weights, np.array(variances).clip(0) + deviations))


def _sum_directions(sets: Floats, directions: Floats) -> Floats:
    """Return f weighted sums over the k directions of a basis, for each of G sets (G, f).

    Args:
        sets: A number for each set and direction (G, k).
        directions: The weights of the directions in each sum, (k, f) or by set (G, k, f).
    """
    return np.asarray(np.matmul(sets[:, None], directions)[:, 0] if directions.ndim > 2 else sets @ directions)


def _quadratic_form(form: CovarianceForm, functionals: Floats) -> Floats:
    """Return the prior variance x^T K x of weighted sums of counts, up to a factor for each set of records.

    Args:
        form: The prior covariance K.
        functionals: The weights x of f sums, (m, f) or by set (G, m, f).

    Returns:
        The variances (f,), or by set (G, f).
    """
    if form.covariance.ndim == 1:
        return np.asarray((functionals**2).swapaxes(-1, -2) @ form.covariance)
    return np.asarray((functionals * np.matmul(form.covariance, functionals)).sum(axis=-2))


def _are_single(functionals: Floats) -> bool:
    """Return whether each of the weighted sums (m, f) is the count of one sensitive value: the identity matrix."""
    m = functionals.shape[-1]
    square = functionals.shape == (m, m) and bool((functionals.diagonal() == 1).all())
    return square and np.count_nonzero(functionals) == m


def _reconstruct_large(
    channel: Channel, observation: Observation, functionals: Floats, *, single: bool
) -> tuple[Floats, Floats]:
    """Return counts (1, m) and standard errors (1, f) of one set with many values, by conjugate gradients.

    A single strength is used: the one that explains how far the published values deviate from their prior mean. The
    errors of more than ``FEW`` weighted sums are bounded from above: for each, only the published value that tells most
    about it is used.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        observation: The published values of the set, and its known total.
        functionals: The weights of values in the f sums (m, f).
        single: Whether the functionals are the identity, so that no product with them is needed.
    """
    weight, second, records = float(observation.weight[0]), float(observation.second[0]), channel.records
    mean = observation.total[0] * channel.shares
    residual = observation.observed[0] - mean @ channel.mean
    squares = channel.squared_mean
    noise = weight * (channel.moment.diagonal() - records @ squares)
    scale = 1 / np.maximum(channel.expected_total, TINY)
    unexplained = ((residual**2 - second * (channel.shares @ squares) - noise) * scale).sum()
    drive = float(unexplained / ((channel.prior_shape @ squares) * scale).sum())
    drive = float(np.clip(drive, *(observation.scale[0] * STRENGTHS[[0, -1]]) ** 2))
    prior = drive * channel.prior_shape + second * channel.shares
    diagonal = prior @ squares + noise
    ridge = JITTER * float(diagonal.mean()) + TINY**0.5
    diagonal += ridge

    def apply(vector: Floats) -> Floats:
        inner = channel.mean @ vector
        back = channel.mean.T @ ((prior - weight * records) * inner)
        return np.asarray(back + weight * (channel.moment @ vector) + ridge * vector)

    size = (len(residual), len(residual))
    operator = scipy.sparse.linalg.LinearOperator(size, matvec=apply, dtype=np.float64)
    precondition = scipy.sparse.linalg.LinearOperator(size, matvec=lambda vector: vector / diagonal, dtype=np.float64)

    def solved(right: Floats) -> Floats:
        return np.asarray(scipy.sparse.linalg.cg(operator, right, rtol=1e-8, maxiter=500, M=precondition)[0])

    weights = functionals if functionals.ndim == 2 else functionals[0]
    mean = mean + prior * (channel.mean @ solved(residual))
    if single:
        gains: Matrix = channel.mean.T * prior
        seen_gains, variance = gains.toarray() if scipy.sparse.issparse(channel.mean) else gains, prior
    else:
        seen_gains, variance = channel.mean.T @ (prior[:, None] * weights), prior @ weights**2
    if weights.shape[1] <= FEW:
        variance = variance - np.array([column @ solved(column) for column in seen_gains.T])
    else:
        variance = variance - (seen_gains**2 / diagonal[:, None]).max(axis=0)
    return mean[None], np.sqrt(variance.clip(0))[None]


# Linear estimator -----------------------------------------------------------------------------------------------------
# Counts as sums over records: each one in whose bucket x is listed adds W_xv to the count of v.
#
# With n = T f + d the estimate e W has the mean T f + d^T M W, as f^T M W = f. So the variance of x^T (W^T e - n) is
#
#     weight x^T W^T (S - M^T diag(o) M) W x + sum_i p_i ((M W - I) x)_i^2,    p = drive f^1.5 F + weight N f,
#
# where p are the variances of d. How far a set deviates, ``drive``, shows in e itself: by the excess of its squared
# deviations over what chance explains, plus one standard error of that.


@dataclass(frozen=True)
class LinearEstimator:
    """An estimator that adds up a weight for each record, which depends on what is published of the record.

    Attributes:
        weights: For each published value what it adds to the count of each sensitive value (k, m).
        deviations: For each sensitive value the larger of two standard deviations (m,): that of what a record adds to
            the estimated count, and that of the error that a record adds.
    """

    weights: Floats
    deviations: Floats

    def estimate_sets(self, channel: Channel, observation: Observation, functionals: Floats) -> Posterior:
        """Return the estimated counts of each set, and the standard errors of weighted sums of them.

        Args:
            channel: How the release turns true counts of values into published values: their means and noise.
            observation: The published values of G sets of records, and their known totals.
            functionals: Weights of values in the sums, (m, f), or (G, m, f) if they differ by set.
        """
        turned = self.weights @ functionals  # (k, f), or (G, k, f)
        noise = channel.noise_moment
        spread = (turned * np.matmul(noise, turned)).sum(axis=-2).clip(0)
        missed = (np.matmul(channel.mean, turned) - functionals) ** 2
        weight = observation.weight[:, None]
        variance = weight * (spread + channel.records.sum() * np.matmul(channel.shares, missed))
        judged = _estimate_drive(channel, observation)[:, None] * np.matmul(channel.prior_shape, missed)
        return Posterior(observation.observed @ self.weights, np.sqrt((variance + judged).clip(0)), judged)


def _spread_deviations(channel: Channel, variances: Floats) -> Floats:
    """Return the variances of the k published values (k,) that given variances of a set's m counts cause.

    Observed deviations of published values are compared with them.

    Args:
        channel: How the release turns true counts of values into published values: their means and noise.
        variances: The variances of the deviations of the counts (m,). The deviations sum to 0, and are otherwise
            independent.
    """
    common = (variances @ channel.mean) ** 2 / variances.sum()  # of M, which such deviations do not show
    return np.asarray((variances @ channel.squared_mean - common).clip(0))


def _estimate_drive(channel: Channel, observation: Observation) -> Floats:
    """Estimate by which factor the counts of each set deviate more from the overall shares than the prior expects.

    If even the largest possible factor would not stand out from noise, that factor is returned, since such a channel
    does not show how sets deviate.

    Returns:
        The factor by which the prior covariance of the counts is multiplied for each set (G,); 0 for a set of all
        records.
    """
    level = observation.weight * channel.records.sum() / np.maximum(observation.second, TINY)
    residual = observation.observed - observation.total[:, None] * (channel.shares @ channel.mean)
    scale = 1 / np.maximum(channel.expected_total, TINY)
    chance = np.outer(observation.weight, channel.noise_moment.diagonal())
    chance += np.outer(observation.weight * channel.records.sum(), _spread_deviations(channel, channel.shares))
    chance *= scale
    shape = float(_spread_deviations(channel, channel.prior_shape) @ scale)
    rounding = JITTER * float(channel.prior_shape @ channel.squared_mean @ scale)
    excess = (residual**2 * scale - chance).sum(axis=1) + np.sqrt(2 * (chance**2).sum(axis=1))
    least, most = np.outer(STRENGTHS[[0, -1]], observation.scale * level) ** 2
    is_shown = most * (shape - rounding) > chance.sum(axis=1)
    return np.asarray(np.where(is_shown, np.clip(excess / max(shape, TINY), least, most), most))
