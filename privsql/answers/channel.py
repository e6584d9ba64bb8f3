"""A release as a linear channel, counts reconstructed through it, and the error to expect of them."""

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
    """``mean`` = M (m, k), ``moment`` = S (k, k), ``records`` = o (m,)."""

    mean: Matrix
    moment: Matrix
    records: Floats

    @cached_property
    def shares(self) -> Floats:
        """Overall shares f = o / N."""
        return np.asarray(self.records / self.records.sum())

    @cached_property
    def expected_total(self) -> Floats:
        """Return E of all records together, M^T o (k,)."""
        return np.asarray(self.records @ self.mean)

    @cached_property
    def squared_mean(self) -> Matrix:
        """M, entry by entry squared."""
        return self.mean * self.mean  # entry by entry, of sparse arrays too

    @cached_property
    def prior_shape(self) -> Floats:
        """Shape of the prior's variance, f^1.5 F."""
        shape = self.shares**POWER
        return np.asarray(shape * ((self.shares**2).sum() / shape.sum()))

    @cached_property
    def sampling_moment(self) -> Floats:
        """M^T diag(f) M (k, k)."""
        return np.asarray(self.mean.T @ (self.shares[:, None] * self.mean))

    @cached_property
    def noise_moment(self) -> Floats:
        """S - M^T diag(o) M (k, k)."""
        return np.asarray(self.moment - self.records.sum() * self.sampling_moment)

    @cached_property
    def default_form(self) -> CovarianceForm:
        """Return the form where nothing else is known: values deviate independently of each other."""
        return CovarianceForm(self, self.prior_shape)

    def noise_covariance(self, level: float) -> Floats:
        """B (k, k); ``level`` = weight N / second."""
        covariance = self.sampling_moment * (1 - level) + self.moment * (level / self.records.sum())
        covariance[np.diag_indices(len(covariance))] += JITTER * np.trace(covariance) / len(covariance) + TINY**0.5
        return np.asarray(covariance)

    def whitening_matrix(self, level: float) -> Floats:
        """W (k, k) with W^T B W = I: the directions of e in which the noise is of one size."""
        lower = scipy.linalg.cholesky(self.noise_covariance(level), lower=True)
        return np.asarray(scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T)


@dataclass(frozen=True)
class CovarianceForm:
    """K, the form of the prior's covariance: (m, m), or its diagonal (m,) where it has no more."""

    channel: Channel
    covariance: Floats

    def multiply_vectors(self, vectors: Floats) -> Floats:
        """Return K times vectors (m, ..)."""
        if self.covariance.ndim > 1:
            return np.asarray(self.covariance @ vectors)
        return np.asarray(self.covariance.reshape(-1, *[1] * (vectors.ndim - 1)) * vectors)

    @property
    def diagonal(self) -> Floats:
        """Return the variances (m,)."""
        return np.diag(self.covariance) if self.covariance.ndim > 1 else self.covariance

    @cached_property
    def observed_covariance(self) -> Floats:
        """C = M^T K M (k, k)."""
        return np.asarray(self.channel.mean.T @ self.multiply_vectors(self.channel.mean))

    def eigen_basis(self, level: float) -> tuple[Floats, Floats]:
        """Eigenvalues (k,) of C v = lambda B v and vectors (k, k) with v^T B v = 1; ``level`` = weight N / second."""
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
        """Return the latest bases by level: many questions share one."""
        return {}


@dataclass(frozen=True)
class Observation:
    """Observed counts of G sets of records.

    ``observed`` = e (G, k); ``total`` = sum of n (G,), known; ``scale``, ``second`` of the prior and ``weight`` of the
    noise (G,). For a count of |Q| records total = scale = second = |Q|. For a sum over records of values a_r, n_i is
    the sum over value i: total = sum a, scale = sqrt(|Q| sum a^2), second = sum a^2.
    """

    observed: Floats
    total: Floats
    scale: Floats
    second: Floats
    weight: Floats

    def select_sets(self, part: NDArray[np.intp]) -> Observation:
        """Return some of the sets."""
        parts = (self.observed, self.total, self.scale, self.second, self.weight)
        return Observation(*(array[part] for array in parts))


def observe_counts(observed: Floats, total: Floats, records: float) -> Observation:
    """Observation for counts of ``total`` (G,) of ``records`` records that took their places without replacement."""
    share = total / records
    return Observation(observed, total, total, total, share * (1 - share))


def own_share(channel: Channel) -> float:
    """sum_i f_i M_ii: the mean over all records of the share that their own value has of what each one adds to e."""
    return float(channel.shares @ channel.mean.diagonal())


def singular_values(channel: Channel) -> dict[str, float]:
    """Return the ``second``, ``median`` and ``smallest`` singular value of M in the metric of the records.

    The largest is 1: totals are known. The others say how much of a direction gets through; 0 tells nothing of it.
    """
    scale = np.sqrt(channel.records)[:, None] / np.sqrt(np.maximum(channel.expected_total, TINY))
    values = np.linalg.svd(channel.mean * scale, compute_uv=False)
    return {
        "second": float(values[min(1, len(values) - 1)]),
        "median": float(np.median(values)),
        "smallest": float(values[-1]),
    }


def measure_quality(channel: Channel) -> dict[str, float]:
    """Return how much a channel reveals, to compare layouts.

    ``second``, ``median``, ``smallest``: see ``singular_values``; ``left``: see ``remaining_variance``.
    """
    return {**singular_values(channel), "left": remaining_variance(channel)}


def remaining_variance(channel: Channel, share: float = 0.01, strength: float = 0.6) -> float:
    """Return the share of variance left by a question on ``share`` of the records, associated with ``strength``.

    The sum of posterior over the sum of prior variances: 0 if everything gets through, 1 if nothing does.
    """
    prior, explained = _split_variance(channel, share, strength)
    return float(1 - explained.sum() / prior.sum())


def _split_variance(channel: Channel, share: float, strength: float) -> tuple[Floats, Floats]:
    """Return for each value the prior variance of its count, and the part that an answer explains."""
    total = share * float(channel.records.sum())
    drive = (strength * total) ** 2
    eigenvalues, vectors = channel.default_form.eigen_basis(1 - share)
    prior = drive * channel.prior_shape + total * channel.shares
    gains = (channel.mean @ vectors) * prior[:, None]
    return prior, (gains**2 / (1 + drive / total * eigenvalues)).sum(axis=1) / total


# Expected errors ------------------------------------------------------------------------------------------------------


def relative_error(channel: Channel, share: float, count: float, strength: float = 0.6) -> float | None:
    """E|estimate - n|/n of a question that selects ``share`` of the records and finds n = ``count`` of some value.

    With mean mu_i = T f_i, prior variance P_i and posterior variance k_i P_i of the count of value i, an estimate given
    n is normal with mean n - k_i (n - mu_i) and variance (1 - k_i) k_i P_i. The mean over the values, weighted by how
    likely each is to have n; None where none is (beyond three standard deviations).
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
    """Return the relative standard errors (m,) of counts of so many records of each value.

    Each is asked of ``count`` / f records, few beside the table, that are associated with ``strength``.
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
    """``values`` (G, m): the mean; ``std_error`` (G, f): of the functionals asked for.

    ``judged`` (G, f): the part of its square that is itself judged by what was seen; None for all of it.
    """

    values: Floats
    std_error: Floats
    judged: Floats | None = None


@dataclass(frozen=True)
class Prior:
    """Differences of the sets that questions select: a form, and how often each strength c (s,) is met: ``weights``."""

    form: CovarianceForm
    strengths: Floats
    weights: Floats


def reconstruct(
    channel: Channel, observation: Observation, functionals: Floats, prior: Prior | None = None
) -> Posterior:
    """Posterior of n for each set, and standard errors of ``functionals`` (m, f) or (G, m, f) of it."""
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
    """Noise levels weight N / second of the sets (G,), rounded up to a few where there are many."""
    levels = observation.weight * channel.records.sum() / np.maximum(observation.second, TINY)
    level = np.round(levels, 9)  # equal ones stay equal
    if len(np.unique(level)) <= 8:
        return np.asarray(level)
    steps = np.floor(-np.log(np.clip(level, 1e-6, None)) / np.log(LEVEL))
    return np.asarray(np.where(level > 0, LEVEL**-steps, 0.0))


def _split_batches(channel: Channel, observation: Observation, functionals: int) -> Iterator[NDArray[np.intp]]:
    """Sets that are solved together: of one level, and no more than memory wants."""
    m = len(channel.records)
    step = 1 if m > LARGE else max(1, CHUNK // (m * (functionals + len(STRENGTHS))))
    levels = _noise_levels(channel, observation)
    for level in np.unique(levels):
        members = np.flatnonzero(levels == level)
        for start in range(0, len(members), step):
            yield members[start : start + step]


def strength_likelihoods(form: CovarianceForm, observation: Observation, strengths: Floats) -> Floats:
    """Log-likelihood of every strength for every set (c, G), up to a constant of the set."""
    logs = np.zeros((len(strengths), len(observation.total)))
    for members in _split_batches(form.channel, observation, 1):
        rotated = _RotatedSets.from_observation(form, observation.select_sets(members))
        logs[:, members] = _log_likelihoods(rotated, strengths)
    return logs


@dataclass(frozen=True)
class _RotatedSets:
    """Sets of one level in the basis in which everything is diagonal: what was seen beyond the prior's mean (G, k)."""

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
        """Return (c scale)^2 (G, 1)."""
        return np.asarray(((strength * self.scale) ** 2)[:, None])

    def damping_factors(self, strength: float) -> Floats:
        """1 / (1 + rho lambda) (G, k)."""
        return np.asarray(1 / (1 + self.squared_drive(strength) / self.second[:, None] * self.eigenvalues))


def _log_likelihoods(rotated: _RotatedSets, strengths: Floats) -> Floats:
    """Return log-likelihoods (c, G); the total is known, so that its direction is no evidence."""
    logs, variance = [], float(rotated.form.covariance.sum())  # of the sum over all values
    for strength in strengths:
        damped = rotated.damping_factors(strength)
        fit = (np.log(damped) - rotated.data**2 * damped / rotated.second[:, None]).sum(axis=1)
        whole = rotated.squared_drive(strength)[:, 0] * variance + rotated.second
        logs.append((fit + np.log(np.maximum(whole, TINY))) / 2)
    return np.array(logs)


def _reconstruct_small(prior: Prior, observation: Observation, functionals: Floats) -> tuple[Floats, Floats]:
    """Return all strengths of the prior, weighted by likelihood, in the basis in which everything is diagonal.

    Everything but the sums over strengths is done once: means and variances are polynomials in the strength's square
    with sums over the directions told for coefficients.
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
    """Sums over directions (G, k) times (k, f) or (G, k, f)."""
    return np.asarray(np.matmul(sets[:, None], directions)[:, 0] if directions.ndim > 2 else sets @ directions)


def _quadratic_form(form: CovarianceForm, functionals: Floats) -> Floats:
    """x^T K x, (f,) or (G, f)."""
    if form.covariance.ndim == 1:
        return np.asarray((functionals**2).swapaxes(-1, -2) @ form.covariance)
    return np.asarray((functionals * np.matmul(form.covariance, functionals)).sum(axis=-2))


def _are_single(functionals: Floats) -> bool:
    """Return whether they are the values one by one, an identity matrix."""
    m = functionals.shape[-1]
    square = functionals.shape == (m, m) and bool((functionals.diagonal() == 1).all())
    return square and np.count_nonzero(functionals) == m


def _reconstruct_large(
    channel: Channel, observation: Observation, functionals: Floats, *, single: bool
) -> tuple[Floats, Floats]:
    """Reconstruct one set at one strength that matches the spread of e - M^T mu, by conjugate gradients.

    ``single``: the functionals are the values one by one, so that no product with them is needed.

    With many functionals their errors are bounded from above by what the column of e that tells most of each tells.
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
    """``weights`` (k, m): W; ``deviations`` (m,): of what a record adds to the count of v, or of its error."""

    weights: Floats
    deviations: Floats

    def estimate_sets(self, channel: Channel, observation: Observation, functionals: Floats) -> Posterior:
        """Return e W for each set, and standard errors of ``functionals`` (m, f) or (G, m, f) of it."""
        turned = self.weights @ functionals  # (k, f), or (G, k, f)
        noise = channel.noise_moment
        spread = (turned * np.matmul(noise, turned)).sum(axis=-2).clip(0)
        missed = (np.matmul(channel.mean, turned) - functionals) ** 2
        weight = observation.weight[:, None]
        variance = weight * (spread + channel.records.sum() * np.matmul(channel.shares, missed))
        judged = _estimate_drive(channel, observation)[:, None] * np.matmul(channel.prior_shape, missed)
        return Posterior(observation.observed @ self.weights, np.sqrt((variance + judged).clip(0)), judged)


def _spread_deviations(channel: Channel, variances: Floats) -> Floats:
    """Return the variances (k,) of d^T M for deviations d of such ``variances`` (m,) that sum to 0."""
    common = (variances @ channel.mean) ** 2 / variances.sum()  # of M, which such deviations do not show
    return np.asarray((variances @ channel.squared_mean - common).clip(0))


def _estimate_drive(channel: Channel, observation: Observation) -> Floats:
    """Return (c scale)^2 of each set (G,), which vanishes where a set is everyone.

    It is the largest where not even that would stand out of chance: such a channel does not show how sets deviate.
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
