"""One model of a whole release in buckets: p(value | quasi-identifiers), fitted to what the buckets list."""

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
MOST_TWINS = 0.1  # of the records: values that no model tells apart, and its intervals say nothing of that
MOST_BYTES = 8 * 2**30
BATCH = 2**19  # records whose weights are made together
MOST_THETA = 1e6  # of a stranger's parameters
LEAST_ROOT = 1e-6  # of a stranger's prior
MISFIT = 1.5  # measured on tables of several kinds: real ones are no draws of a model, and effects vary more


def find_obstacle(records: int, values: int) -> str | None:
    """Return why a release of so many records and values gets no model; None where it gets one."""
    if values > MOST_VALUES:
        return f"more than {MOST_VALUES} values"
    return f"fewer than {FEWEST_RECORDS} records" if records < FEWEST_RECORDS else None


def find_twins(arrays: ReleaseArrays) -> str | None:
    """Return why a release gets no model of which too many values lie in the same buckets as another, as often.

    A model takes such values for alike, though a set of people may have only one of them.
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
    """What a model believes: ``record``, ``value`` code and ``weight`` (entries,) by record and value.

    ``drawn`` (entries, D): whether the record has the value in each of the completed tables that the model draws.
    """

    record: Ints
    value: Ints
    weight: Floats
    drawn: NDArray[np.bool_]

    @property
    def best_guess(self) -> float:
        """Return the mean belief in the likeliest value of a record."""
        return float(np.maximum.reduceat(self.weight, np.searchsorted(self.record, np.unique(self.record))).mean())


@dataclass(frozen=True)
class BucketModel:
    """The model of a release.

    ``theta`` (J, K) and the ``roots`` (terms, K, K) of its prior in single precision; ``converged``: the last step was
    small; ``fitted_share``: of the records, by which they were found. All else follows from these and ``digest``.
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
        """Draw theta (J, K) from its posterior, given the release; its deviations are larger by ``MISFIT``."""
        prepared = prepare_release(choose_buckets(self.arrays), self.features)
        prior = EffectPrior(EffectPrior.list_parts(prepared.design), self.roots.astype(np.float64))
        fit = BucketFit(prepared, self.arrays.log_shares, self._noise("effects"))
        mode = self.theta.astype(np.float64)
        drawn = fit.draw_effects(mode, prior, DRAWS)
        return [(mode + MISFIT * (one - mode)).astype(np.float32) for one in drawn]

    def _noise(self, *purpose: str | int) -> np.random.Generator:
        return seed_key(int(self.digest[:16], 16)).random_generator("bucket model", MODEL_VERSION, *purpose)

    def find_beliefs(self) -> Beliefs:
        """Return the weights, which are means over the draws of theta, and one completed table by each of these.

        Weights of a record add up to 1, those of a value in a bucket to its count.
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
        """Return what is believed in all buckets, or in those of a part: means over the draws of theta."""
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
        """Return what ``restore_model`` needs: ``theta`` (J, K), ``roots`` (terms, K, K) and numbers."""
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
    """Return record, value code and weight of every record and value that its bucket lists, in this order."""
    parts = []
    for batch in batches:
        shape = batch.beliefs.shape
        record = np.broadcast_to(batch.of.records[:, :, None], shape).ravel()
        value = np.broadcast_to(batch.of.values[:, None, :], shape).ravel()
        real = np.broadcast_to(batch.of.counts[:, None, :] > 0, shape).ravel()
        parts.append((record[real], value[real], batch.beliefs.ravel()[real]))
    record, value, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(record, kind="stable")  # sizes alternate
    record, value, weight = record[order], value[order], weight[order]
    (starts,) = np.nonzero((np.diff(record, prepend=-1) != 0) | (np.diff(value, prepend=-1) != 0))
    return record[starts], value[starts], np.add.reduceat(weight, starts)


def predict_seconds(records: int, columns: int, values: int, sizes: Iterable[tuple[int, int]]) -> float:
    """Return the seconds of a processor that a model takes, about, with its draws, by what 20 releases took.

    Args:
        records: The records of the release.
        columns: Its quasi-identifiers.
        values: Its sensitive values.
        sizes: The sizes of buckets, and how many have each.
    """
    listed = sum(size * size * number for size, number in sizes if size > EXACT_SIZE)  # entries of long lists
    return 1e-6 * (records * (0.16 * values * columns**2 + 0.65 * columns**2 + 27) + 2.5 * listed)


def _estimate_memory(arrays: ReleaseArrays) -> float:
    rows = len(combine_rows(list(arrays.columns.values()))[0])
    return rows * (32 * len(arrays.values) + 8 * len(arrays.columns) ** 2) + 500.0 * len(arrays.bucket) + 2**27


def choose_buckets(arrays: ReleaseArrays) -> ReleaseArrays:
    """Return the release itself, or as many of its buckets, spread evenly, as ``MOST_BYTES`` hold."""
    share = MOST_BYTES / _estimate_memory(arrays)
    steps = np.floor(np.arange(len(arrays.sizes) + 1) * share)
    return arrays if share >= 1 else arrays.select_buckets(np.diff(steps) > 0)


def fit_bucket_model(
    arrays: ReleaseArrays, digest: str, progress: Callable[[float], None] | None = None
) -> BucketModel:
    """Return the model of a release without obstacles; ``progress`` is called with the share of the work done.

    The same for the same arrays, ``digest`` and ``MODEL_VERSION``, which seed what is drawn.
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
    """Return the model of ``parameters``, a stranger's.

    Raises ``GuaranteeError`` unless they are of this release, by a fit that converged.
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
    """Return numbers of a shape from ``least`` on, none very large; ``GuaranteeError`` for anything else."""
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
    """Return a value for every record (n,), drawn from the posterior by swaps within buckets (Gibbs)."""
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
