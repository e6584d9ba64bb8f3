"""Model a release in buckets: estimate p(sensitive value | quasi-identifiers) from the values that the buckets list.

From this regression follow the probability that each record has each value of its bucket, and completed tables. A
completed table is a copy of the release in which each record has one value, drawn by these probabilities. Values are
numbered by codes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.answer import DRAWS, MODEL_VERSION
from privsql.answers.bucket_fit import BucketFit
from privsql.answers.bucket_posteriors import (
    EXACT_SIZE,
    LEAST,
    Batch,
    BucketLikelihood,
    Ints,
    PreparedRelease,
    prepare_release,
    round_sums,
)
from privsql.answers.effect_fit import STEPS, EffectPrior
from privsql.answers.softmax import FeatureMap, combine_rows
from privsql.errors import GuaranteeError
from privsql.keyed_random import seed_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from privsql.answers.channel import Floats
    from privsql.model.arrays import ReleaseArrays

MOST_VALUES, FEWEST_RECORDS = 500, 200
MOST_TWINS = 0.1  # share of the records with values that no model can tell apart
MOST_BYTES = 8 * 2**30
BATCH = 2**19  # records whose weights are made together
MOST_THETA = 1e6  # the largest number in a stranger's parameters
LEAST_ROOT = 1e-6  # the least number on the diagonal of a stranger's prior
MISFIT = 1.5  # measured on tables of several kinds: real effects vary more than those of a fitted model


def find_obstacle(records: int, values: int) -> str | None:
    """Return why no model of the sensitive values is fitted to a release of this size; None if one is.

    Args:
        records: The number of records.
        values: The number of sensitive values.
    """
    if values > MOST_VALUES:
        return f"more than {MOST_VALUES} values"
    return f"fewer than {FEWEST_RECORDS} records" if records < FEWEST_RECORDS else None


def find_twins(arrays: ReleaseArrays) -> str | None:
    """Return why no model is fitted to a release with too many twin values; None if one is.

    Twins are values that are listed by the same buckets, equally often. A model can't tell them apart, so it would be
    wrong about a set of people who have only one of them.
    """
    order = np.argsort(arrays.listed_value, kind="stable")  # entries lie by bucket
    listed = np.stack([arrays.listed_bucket, arrays.listed_count], axis=1)[order]
    sizes = np.bincount(arrays.listed_value, minlength=len(arrays.values))
    records = np.bincount(arrays.listed_value, arrays.listed_count, len(arrays.values))
    kinds = [part.tobytes() for part in np.split(listed, np.cumsum(sizes)[:-1])]
    times = Counter(kinds)
    alike = sum(number for kind, number in zip(kinds, records, strict=True) if times[kind] > 1)
    return "values that are always in the same buckets" if alike > MOST_TWINS * records.sum() else None


# Model ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beliefs:
    """What a model believes about the sensitive values of records: one entry for each record and value of its bucket.

    Attributes:
        record: The number of the record (entries,).
        value: The code of the value (entries,).
        weight: The probability that the record has the value (entries,).
        drawn: Whether the record has the value in each of D completed tables, in which every record has one drawn value
            (entries, D).
    """

    record: Ints
    value: Ints
    weight: Floats
    drawn: NDArray[np.bool_]

    @property
    def best_guess(self) -> float:
        """Return the mean over all records of the probability of the likeliest value."""
        return float(np.maximum.reduceat(self.weight, np.searchsorted(self.record, np.unique(self.record))).mean())


@dataclass(frozen=True)
class BucketModel:
    """The fitted model of a release in buckets: a regression of the sensitive value on quasi-identifiers.

    Attributes:
        arrays: The release.
        digest: The digest of the release, which seeds all random numbers.
        features: The J features of the quasi-identifiers, such as indicators of their values.
        theta: The effects of the features on the log-odds of the K sensitive values (J, K): the mode of their
            posterior.
        roots: The prior of the effects. For each term (a column or pair of columns) it has the triangular root of the
            covariance of a feature's effects (terms, K, K).
        converged: Whether the fit ended close to the mode.
        fitted_share: The share of the records to which the model was fitted.
    """

    arrays: ReleaseArrays
    digest: str
    features: FeatureMap
    theta: NDArray[np.float32]
    roots: NDArray[np.float32]
    converged: bool
    fitted_share: float = 1.0

    @cached_property
    def effects(self) -> list[NDArray[np.float32]]:
        """Return several draws of the effects of J features on K sensitive values from their posterior, each (J, K).

        Their deviations from the mode are enlarged by ``MISFIT``, since the model does not fit exactly.
        """
        prepared = prepare_release(choose_buckets(self.arrays), self.features)
        prior = EffectPrior(EffectPrior.list_parts(prepared.design), self.roots.astype(np.float64))
        fit = BucketFit(prepared, self.arrays.log_shares, self._noise("effects"))
        mode = self.theta.astype(np.float64)
        drawn = fit.draw_effects(mode, prior, DRAWS)
        return [(mode + MISFIT * (one - mode)).astype(np.float32) for one in drawn]

    def _noise(self, *purpose: str | int) -> np.random.Generator:
        return seed_key(int(self.digest[:16], 16)).random_generator("bucket model", MODEL_VERSION, *purpose)

    def find_beliefs(self) -> Beliefs:
        """Return the probability of each value for each record, and completed tables (one drawn value per record).

        Probabilities are averaged over the draws of ``effects``. From each draw follows one completed table. The
        probabilities of a record sum to 1; those of a value in a bucket sum to the number of times that the bucket
        lists it.
        """
        starts = np.cumsum(self.arrays.sizes) - 1
        parts: list[Beliefs] = []
        for start in range(0, len(self.arrays.bucket), BATCH):
            chosen = (starts >= start) & (starts < start + BATCH)
            if chosen.any():
                part = self._complete(self.arrays.select_buckets(chosen), self._noise("tables", start))
                first = parts[-1].record[-1] + 1 if parts else 0
                parts.append(replace(part, record=part.record + first))
        return Beliefs(*(np.concatenate([getattr(one, name) for one in parts]) for name in Beliefs.__annotations__))

    def _complete(self, arrays: ReleaseArrays, noise: np.random.Generator) -> Beliefs:
        prepared = prepare_release(arrays, self.features)
        drawn = [draw_table(prepared.likelihood, one, noise) for one in self._list_probabilities(prepared)]
        record, value, weight = list_weights(self.average_posteriors(prepared))
        return Beliefs(record, value, weight, np.stack([table[record] == value for table in drawn], axis=1))

    def _list_probabilities(self, prepared: PreparedRelease) -> Iterator[Floats]:
        for theta in self.effects:
            yield prepared.design.probabilities(theta.astype(np.float64), self.arrays.log_shares)

    def average_posteriors(self, prepared: PreparedRelease | None = None) -> list[Batch]:
        """Return the probability that each record has each value that its bucket lists, in batches of buckets.

        It is averaged over the draws of the regression's effects (``effects``).

        Args:
            prepared: The part of the release to consider; None for the whole release.
        """
        prepared = prepared or prepare_release(self.arrays, self.features)
        likelihood = prepared.likelihood.start_anew()
        batches: list[Batch] = []
        for probabilities in self._list_probabilities(prepared):
            found = likelihood.find_posteriors(probabilities)
            batches = [_add_beliefs(*pair) for pair in zip(batches, found, strict=True)] if batches else list(found)
        return [
            replace(batch, beliefs=mean if batch.of.exact else round_sums(mean))
            for batch in batches
            for mean in [batch.beliefs / len(self.effects)]
        ]

    def parameters(self) -> dict[str, Any]:
        """Return all that ``restore_model`` needs, for JSON: among it the attributes ``theta`` and ``roots``."""
        return {
            "version": MODEL_VERSION,
            "digest": self.digest,
            "terms": self.features.description,
            "theta": self.theta,
            "roots": self.roots,
            "converged": self.converged,
        }


def _add_beliefs(batch: Batch, more: Batch) -> Batch:
    np.add(batch.beliefs, more.beliefs, out=batch.beliefs)
    return batch


def list_weights(batches: Iterable[Batch]) -> tuple[Ints, Ints, Floats]:
    """Return three arrays with an entry for each record and each value that its bucket lists.

    They are the record, the code of the value, and the probability that the record has it.
    """
    parts = []
    for batch in batches:
        shape = batch.beliefs.shape
        record = np.broadcast_to(batch.of.records[:, :, None], shape).ravel()
        value = np.broadcast_to(batch.of.values[:, None, :], shape).ravel()
        real = np.broadcast_to(batch.of.counts[:, None, :] > 0, shape).ravel()
        parts.append((record[real], value[real], batch.beliefs.ravel()[real]))
    record, value, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(record, kind="stable")  # batches come by size of the bucket
    record, value, weight = record[order], value[order], weight[order]
    (starts,) = np.nonzero((np.diff(record, prepend=-1) != 0) | (np.diff(value, prepend=-1) != 0))
    return record[starts], value[starts], np.add.reduceat(weight, starts)


def predict_seconds(records: int, columns: int, values: int, sizes: Iterable[tuple[int, int]]) -> float:
    """Predict the CPU seconds to fit a model of the sensitive values and to draw completed tables from it.

    The formula was measured on 20 releases.

    Args:
        records: The number of records of the release.
        columns: The number of quasi-identifiers.
        values: The number of sensitive values.
        sizes: Pairs of a size of buckets and the number of buckets of that size.
    """
    listed = sum(size * size * number for size, number in sizes if size > EXACT_SIZE)  # entries of long lists
    return 1e-6 * (records * (0.16 * values * columns**2 + 0.65 * columns**2 + 27) + 2.5 * listed)


def _estimate_memory(arrays: ReleaseArrays) -> float:
    rows = len(combine_rows(list(arrays.columns.values()))[0])
    return rows * (32 * len(arrays.values) + 8 * len(arrays.columns) ** 2) + 500.0 * len(arrays.bucket) + 2**27


def choose_buckets(arrays: ReleaseArrays) -> ReleaseArrays:
    """Return the part of a release to which a model is fitted.

    It has all buckets if fitting takes at most ``MOST_BYTES`` of memory, otherwise as many as that permits, spread
    evenly.
    """
    share = MOST_BYTES / _estimate_memory(arrays)
    steps = np.floor(np.arange(len(arrays.sizes) + 1) * share)
    return arrays if share >= 1 else arrays.select_buckets(np.diff(steps) > 0)


def fit_bucket_model(
    arrays: ReleaseArrays, digest: str, progress: Callable[[float], None] | None = None
) -> BucketModel:
    """Fit a model that predicts each record's sensitive value to a release in buckets.

    The release must suit a model: it has enough records and not too many values (``find_obstacle``), and these can be
    told apart (``find_twins``). The result is the same for the same arrays, ``digest`` and ``MODEL_VERSION``.

    Args:
        arrays: The release.
        digest: The digest of the release, which seeds all random numbers.
        progress: Called with the share of the work that is done.
    """
    prepared, done = prepare_release(choose_buckets(arrays)), 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(1.0, done / STEPS))

    noise = seed_key(int(digest[:16], 16)).random_generator("bucket model", MODEL_VERSION)
    found = BucketFit(prepared, arrays.log_shares, noise).find_effects(report)
    theta, roots = found.theta.astype(np.float32), found.prior.roots.astype(np.float32)
    share = len(prepared.arrays.bucket) / len(arrays.bucket)
    return BucketModel(arrays, digest, prepared.features, theta, roots, found.converged, share)


def restore_model(arrays: ReleaseArrays, parameters: Mapping[str, Any], digest: str) -> BucketModel:
    """Return a model from ``parameters`` that a stranger may have written.

    Args:
        arrays: The release.
        parameters: The parameters, as ``BucketModel.parameters`` returns them.
        digest: The digest of the release.

    Raises:
        GuaranteeError: They have a wrong shape, do not belong to this release, or come from a fit that did not
            converge.
    """
    used = choose_buckets(arrays)
    first, _, sizes = combine_rows(list(used.columns.values()))
    features = FeatureMap({name: column[first] for name, column in used.columns.items()}, sizes)
    stated = {"version": MODEL_VERSION, "digest": digest, "terms": features.description, "converged": True}
    if any(parameters.get(name) != value for name, value in stated.items()):
        raise GuaranteeError("the model is damaged or another release's: fit it again")
    values = len(arrays.values)
    theta = check_numbers(parameters.get("theta"), (features.count, values))
    terms = len(features.make_design({name: column[first] for name, column in used.columns.items()}, sizes).terms)
    roots = check_numbers(parameters.get("roots"), (terms, values, values))
    if not (np.diagonal(roots, axis1=1, axis2=2) > LEAST_ROOT).all() or np.triu(roots, 1).any():
        raise GuaranteeError("the model is damaged: it has no prior")
    share = len(used.bucket) / len(arrays.bucket)
    return BucketModel(arrays, digest, features, theta.astype(np.float32), roots.astype(np.float32), True, share)


def check_numbers(stated: Any, shape: tuple[int, ...], least: float = -np.inf) -> Floats:
    """Return numbers that a model's file states as an array, after checking them.

    Args:
        stated: The numbers, which a stranger may have written.
        shape: The shape that the array must have.
        least: The smallest number that is permitted.

    Raises:
        GuaranteeError: They have another shape, or a number is missing, too small or very large.
    """
    try:
        numbers = np.asarray(stated, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape != shape or not ((np.abs(numbers) <= MOST_THETA) & (numbers >= least)).all():
        raise GuaranteeError("the model is damaged: its parameters are not those of the release's columns and values")
    return numbers


# Completed tables -----------------------------------------------------------------------------------------------------

SWEEPS = 12  # steps of a draw for each record of a bucket


def draw_table(likelihood: BucketLikelihood, probabilities: Floats, noise: np.random.Generator) -> Ints:
    """Draw a sensitive value for every record out of the values that its bucket lists.

    Gibbs sampling draws from the posterior: it starts with a random assignment in each bucket, and swaps the values of
    two records many times.

    Args:
        likelihood: The buckets.
        probabilities: The probability of each of the K values for each combination of quasi-identifiers (rows, K).
        noise: The random generator.

    Returns:
        The code of the value of each record (n,).
    """
    logs = np.log(np.maximum(probabilities, LEAST))
    drawn = np.empty(len(likelihood.member), dtype=np.int64)
    for shape in likelihood.shapes:
        buckets, size = shape.records.shape
        repeats = shape.counts.astype(np.int64).ravel()
        values = np.repeat(shape.values.ravel(), repeats).reshape(buckets, size)
        values = noise.permuted(values, axis=1)
        rows, each = likelihood.member[shape.records], np.arange(buckets)
        for _ in range(SWEEPS * size if size > 1 else 0):
            first = noise.integers(size, size=buckets)
            second = (first + noise.integers(1, size, size=buckets)) % size
            one, two = rows[each, first], rows[each, second]
            mine, other = values[each, first], values[each, second]
            gain = logs[one, other] + logs[two, mine] - logs[one, mine] - logs[two, other]
            swap = noise.random(buckets) < 1 / (1 + np.exp(-gain))
            values[each, first], values[each, second] = np.where(swap, other, mine), np.where(swap, mine, other)
        drawn[shape.records] = values
    return drawn
