"""One model of a whole release in buckets: p(value | quasi-identifiers), fitted to what the buckets list."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from privsql.answers.softmax import Design, FeatureMap, Schedule, SoftmaxFit, Term, combine_rows, fit_softmax, start_fit
from privsql.errors import GuaranteeError
from privsql.keyed_random import seed_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.model.arrays import ReleaseArrays

Ints = NDArray[np.int64]
Limits = tuple[tuple[float, float], tuple[float, float]]

MODEL_VERSION = 2  # counts the changes by which the same release gets another model
MOST_VALUES, FEWEST_RECORDS = 500, 200
MOST_TWINS = 0.1  # of the records: values that no model tells apart, and its intervals say nothing of that
MOST_BYTES = 8 * 2**30
BATCH = 2**19  # records whose weights are made together
MOST_THETA = 1e6  # of a stranger's parameters
ENTRIES = 2**18  # of a batch of buckets: what stays in a processor's cache
CLOSE = 1e-10  # of sums of weights


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


# Buckets of one shape -------------------------------------------------------------------------------------------------
# Given the values of a bucket as a multiset, the probability of an assignment of its z slots to its z records is
# prod_i p_i(v_i)/perm, and q_iv the share of those in which record i has value v.
#
# Up to z = 8 sums over subsets of slots give the permanent and q (Ryser's order of work, O(z 2^z)). Beyond, with a the
# belief in one slot, a stationary point of
#
#     sum a log p - a log a + (1 - a) log(1 - a) - (z - 1 + a) log(1 + a/(z - 1)) + a
#
# over matrices a with sums of 1. Without the last two terms it is the Bethe approximation (Vontobel 2013), without
# (1 - a) log(1 - a) Sinkhorn's; these are too sure and not sure enough by about 1/z, and this is neither.

EXACT_SIZE = 8
COLD, WARM = 100, 8  # rounds of scaling at most
INFORMING, DRAWN = 60_000, 10  # records by which information is measured, and of the mean of a term
LEAST = 1e-30  # probability of a listed value


@dataclass(frozen=True)
class Shape:
    """Buckets with z records: ``records`` (b, z), the ``values`` (b, d) that they list, and ``counts`` (b, d) of these.

    An exact shape has one entry for each slot (d = z); any other ends in entries with a count of 0.
    """

    records: Ints
    values: Ints
    counts: Floats
    exact: bool

    def select_buckets(self, chosen: NDArray[np.bool_] | slice) -> Shape:
        """Return some of the buckets."""
        return Shape(self.records[chosen], self.values[chosen], self.counts[chosen], self.exact)

    def split(self) -> Iterator[slice]:
        """Yield what makes a batch of the buckets."""
        step = max(1, ENTRIES // (self.records.shape[1] * self.values.shape[1]))
        yield from (slice(start, start + step) for start in range(0, len(self.records), step))


@dataclass(frozen=True)
class Batch:
    """Buckets ``of`` a shape: ``places`` (b, z, d) of their probabilities, ``beliefs`` q (b, z, d), ``logs`` (b,)."""

    of: Shape
    places: Ints
    beliefs: Floats
    logs: Floats


def list_shapes(arrays: ReleaseArrays) -> list[Shape]:
    """Return all buckets by their size."""
    sizes = np.bincount(arrays.bucket)
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(arrays.listed_bucket, kind="stable")
    bucket, value, count = (part[order] for part in (arrays.listed_bucket, arrays.listed_value, arrays.listed_count))
    if not np.array_equal(np.bincount(bucket, count, len(sizes)), sizes):
        raise GuaranteeError("the release is damaged: a bucket does not list as many values as it has records")
    shapes = []
    for size in np.unique(sizes):
        chosen, exact = np.flatnonzero(sizes == size), bool(size <= EXACT_SIZE)
        entries = np.isin(bucket, chosen)
        repeats = count[entries] if exact else np.ones(int(entries.sum()), dtype=np.int64)
        member = np.repeat(np.searchsorted(chosen, bucket[entries]), repeats)
        place = np.arange(len(member)) - np.searchsorted(member, member)
        values = np.zeros((len(chosen), int(place.max()) + 1), dtype=np.int64)
        counts = np.zeros(values.shape)
        values[member, place] = np.repeat(value[entries], repeats)
        counts[member, place] = 1 if exact else count[entries]
        shapes.append(Shape(starts[chosen][:, None] + np.arange(size), values, counts, exact))
    return shapes


def exact_posterior(weights: Floats) -> tuple[Floats, Floats]:
    """Return q (b, z, z) and log permanents (b,) of ``weights`` (b, z, z), the probability of each slot's value."""
    size = weights.shape[1]
    scaled = np.ascontiguousarray(np.moveaxis(weights, 0, 2))  # (z, z, b)
    ahead, behind = (np.zeros((1 << size, scaled.shape[2])) for _ in range(2))
    ahead[0] = behind[-1] = 1
    steps = [(mask, slot) for mask in range(1 << size) for slot in range(size) if not mask >> slot & 1]
    term = np.empty(scaled.shape[2])
    for mask, slot in steps:
        ahead[mask | 1 << slot] += np.multiply(ahead[mask], scaled[mask.bit_count(), slot], out=term)
    for mask, slot in reversed(steps):
        behind[mask] += np.multiply(behind[mask | 1 << slot], scaled[mask.bit_count(), slot], out=term)
    beliefs = np.zeros(scaled.shape)
    for mask, slot in steps:
        beliefs[mask.bit_count(), slot] += np.multiply(ahead[mask], behind[mask | 1 << slot], out=term)
    beliefs *= scaled
    beliefs /= ahead[-1]
    return np.moveaxis(beliefs, 2, 0), np.log(ahead[-1])


def approximate_posterior(weights: Floats, counts: Floats, scale: Floats, rounds: int) -> tuple[Floats, Floats, Floats]:
    """Return q (b, z, d), approximate log permanents (b,) and the scale of slots (b, d) to begin with next time.

    ``weights`` (b, z, d): the probability of each value, ``counts`` (b, d): its slots; z > 2.
    """
    others = weights.shape[1] - 1
    slots = np.maximum(counts, 1)[:, None]
    factors = (counts * scale)[:, None]
    beliefs = weights * factors
    beliefs /= beliefs.sum(axis=2, keepdims=True)
    for _ in range(rounds):
        each = np.minimum(beliefs / slots, 1 - 1e-9)
        reach = weights / ((1 - each) * (1 + each / others))
        beliefs = reach * factors
        rows = beliefs.sum(axis=2, keepdims=True)
        beliefs /= rows
        totals = beliefs.sum(axis=1, keepdims=True)
        change = np.divide(counts[:, None], totals, out=np.ones_like(totals), where=totals > 0)
        factors *= change
        beliefs *= change
        if np.abs(change - 1).max() < CLOSE:
            break
    each = np.minimum(beliefs / slots, 1 - 1e-9)
    entropy = (1 - each) * np.log1p(-each) - (others + each) * np.log1p(each / others) + each
    # Lagrange's terms make the value right to second order where sums are not yet.
    free = beliefs * np.log(weights / np.maximum(each, LEAST) / rows) + counts[:, None] * entropy
    scale = np.divide(factors[:, 0], counts, out=np.ones_like(counts), where=counts > 0)
    return beliefs, free.sum(axis=(1, 2)) + np.log(rows).sum(axis=(1, 2)), scale


def assign_slots(weights: Floats, spare: int = 0) -> Floats:
    """Return q (b, r, t) for r records and t slots of ``weights`` (b, r, t), of which ``spare`` belong to nobody."""
    records, slots = weights.shape[1:]
    exact, found = slots <= EXACT_SIZE, np.empty_like(weights)
    counts = np.r_[np.ones(records), np.ones(spare) if exact else [spare][:spare]]
    step = max(1, ENTRIES // (slots * slots))
    for start in range(0, len(weights), step):
        part = weights[start : start + step]
        part = np.concatenate((part, np.full((len(part), len(counts) - records, slots), 1 / slots)), axis=1)
        if exact:
            beliefs, _ = exact_posterior(part)
        else:  # slots have the place of records there, and records that of values
            turned, each = np.swapaxes(part, 1, 2), np.broadcast_to(counts, part.shape[:2])
            beliefs = np.swapaxes(approximate_posterior(turned, each, np.ones_like(each), COLD)[0], 1, 2)
        found[start : start + step] = beliefs[:, :records]
    return found


def round_sums(beliefs: Floats) -> Floats:
    """Return q (b, z, d) with rows that sum to 1 and the sums of its columns: rows beyond 1 give to those below.

    Altschuler, Weed and Rigollet 2017, algorithm 2.
    """
    totals = beliefs.sum(axis=2, keepdims=True)
    reduced = beliefs / np.maximum(totals, 1)
    spare = (beliefs - reduced).sum(axis=1, keepdims=True)
    missing = np.maximum(1 - totals, 0)
    return np.asarray(reduced + missing * (spare / np.maximum(spare.sum(axis=2, keepdims=True), LEAST)))


class BucketLikelihood:
    """The likelihood of what buckets list, by the probabilities of rows: combinations of quasi-identifiers."""

    def __init__(self, shapes: Sequence[Shape], member: NDArray[np.intp], sizes: NDArray[np.intp]) -> None:
        """``member`` (n,): the row of each record; ``sizes`` (rows,): records of each row."""
        self.shapes, self.member, self.sizes = shapes, member, sizes
        self._scales = [np.ones_like(shape.counts) for shape in shapes]
        self._rounds = COLD

    def find_posteriors(self, probabilities: Floats, *, settled: bool = False) -> Iterator[Batch]:
        """Yield the batches of all buckets.

        ``settled``: sums add up, and nothing depends on what was evaluated before.
        """
        flat, values = probabilities.ravel(), probabilities.shape[1]
        for shape, scales in zip(self.shapes, self._scales, strict=True):
            for part in shape.split():
                one = shape.select_buckets(part)
                places = self.member[one.records][:, :, None] * values + one.values[:, None, :]
                weights = np.maximum(flat[places], LEAST)
                if one.exact:
                    beliefs, logs = exact_posterior(weights)
                elif settled:
                    beliefs, logs, _ = approximate_posterior(weights, one.counts, scales[part] ** 0, COLD)
                    beliefs = round_sums(beliefs)
                else:
                    beliefs, logs, scales[part] = approximate_posterior(weights, one.counts, scales[part], self._rounds)
                yield Batch(one, places, beliefs, logs)

    def evaluate(self, probabilities: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood of p (rows, K) and its derivative by the log-odds (rows, K)."""
        value, residuals = 0.0, -self.sizes[:, None] * probabilities
        for batch in self.find_posteriors(probabilities):
            value += float(batch.logs.sum())
            np.add.at(residuals.ravel(), batch.places.ravel(), batch.beliefs.ravel())
        self._rounds = WARM
        return value, residuals

    def measure_information(self, design: Design, probabilities: Floats) -> Floats:
        """Return sum over buckets of the squared score of each parameter (J, K), from some of many buckets.

        The mean of a record of each level, drawn a little to that of all records of its term.
        """
        step = -(-len(self.member) // INFORMING)
        shapes = [shape.select_buckets(slice(None, None, step)) for shape in self.shapes]
        parts: list[tuple[Ints, Ints, Floats]] = []
        number = 0
        for batch in BucketLikelihood(shapes, self.member, self.sizes).find_posteriors(probabilities):
            members = self.member[batch.of.records.ravel()]
            score = -probabilities[members]
            at = np.repeat(np.arange(len(members)), batch.of.values.shape[1])
            listed = np.repeat(batch.of.values, batch.of.records.shape[1], axis=0)
            np.add.at(score, (at, listed.ravel()), batch.beliefs.ravel())
            parts.append(
                (members, number + np.repeat(np.arange(len(batch.of.records)), batch.of.records.shape[1]), score)
            )
            number += len(batch.of.records)
        rows, buckets, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return np.concatenate([self._square_scores(term, rows, buckets, scores) for term in design.terms])

    def _square_scores(self, term: Term, row: Ints, bucket: Ints, score: Floats) -> Floats:
        """Return the information of one term's parameters (levels, K)."""
        codes = term.encode(row)
        (have,) = np.nonzero(codes >= 0)
        pairs, pair = np.unique(bucket[have] * term.levels + codes[have], return_inverse=True)
        sums = scipy.sparse.csr_array((np.ones(len(have)), (pair, have)), shape=(len(pairs), len(score))) @ score
        level, each = pairs % term.levels, np.arange(len(pairs))
        ones = (np.ones(len(pairs)), (level, each))
        squares = scipy.sparse.csr_array(ones, shape=(term.levels, len(pairs))) @ sums**2
        seen, every = np.bincount(codes[have], minlength=term.levels), term.encode()
        records = np.bincount(every[every >= 0], self.sizes[every >= 0], term.levels)
        mean = squares.sum(axis=0) / max(1, len(have))
        return np.asarray((squares + DRAWN * mean) * (records / (seen + DRAWN))[:, None])


# Model ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalScale:
    """How variances within buckets become standard errors, learnt by rehearsals.

    With t = n/N the question's share of the ``records``, S its estimated count, V_11 the variance of that within
    buckets, V_yy that of the question's sum and V_1y their covariance, all as sums over records,

        se^2 = (MISFIT (1 - t) C + MISFIT_OF_AMOUNTS (V_yy - C)) E,   C = V_1y^2/V_11,

    E = exp(quadratic in log S and log(V_11/(S (1 - S/n)))), at least 1: what the parameters add. C is what goes with
    the count. ``coefficients`` (6,) are learnt within ``limits`` (2, 2), the least and the largest of both logarithms,
    by ``fitted_share`` of the records.
    """

    records: int
    coefficients: tuple[float, ...]
    limits: Limits
    fitted_share: float

    def standard_error(
        self, members: Floats, count: Floats, variance: Floats, covariance: Floats, own_variance: Floats
    ) -> Floats:
        """Return standard errors of groups (G,).

        ``members``: records that meet the conditions on quasi-identifiers; ``count`` S = sum of the weights w of those
        and of the values that are meant. With s_i = sum of w over the values of record i, a_i the sum of w times the
        amount: ``variance`` V_11 = sum of s_i (1 - s_i), ``covariance`` V_1y = sum of a_i (1 - s_i), ``own_variance``
        V_yy = sum over records of (sum of w amount^2) - a_i^2. All three are alike for a count. A ratio R of two sums
        is the sum of the amounts (y - R x)/sum of x, whose variances follow from those of both.
        """
        joint = covariance * (covariance / np.maximum(variance, LEAST))
        within = MISFIT * (1 - members / self.records) * joint + MISFIT_OF_AMOUNTS * np.maximum(own_variance - joint, 0)
        members, count, variance = (self.fitted_share * part for part in (members, count, variance))
        features = _interval_features(members, count, variance, self.limits)
        excess = np.expm1(np.clip(features @ np.array(self.coefficients), 0, MOST_EXCESS)) / self.fitted_share
        return np.asarray(np.sqrt(within * (1 + excess)))

    @staticmethod
    def restore(records: int, fitted_share: float, parameters: Mapping[str, Any]) -> IntervalScale:
        """Return the scale that ``BucketModel.parameters`` states; ``GuaranteeError`` for other numbers."""
        coefficients = check_numbers(parameters.get("coefficients"), (6,))
        low, high = ((float(one), float(other)) for one, other in check_numbers(parameters.get("limits"), (2, 2)))
        return IntervalScale(records, tuple(map(float, coefficients)), (low, high), fitted_share)


def _interval_features(members: Floats, count: Floats, variance: Floats, limits: Limits) -> Floats:
    """Return the terms of the quadratic (G, 6)."""
    likely = np.maximum(np.maximum(count * (1 - count / np.maximum(members, 1)), variance), LEAST)
    logs = np.log([np.maximum(count, LEAST), np.maximum(variance, LEAST) / likely])
    size, open_ = np.clip(logs, *np.array(limits)[:, :, None])
    return np.stack((np.ones_like(size), size, open_, size**2, size * open_, open_**2), axis=1)


@dataclass(frozen=True)
class BucketModel:
    """The model of a release.

    ``theta`` (J, K) in single precision; ``converged``: the last step was small; ``interval``, and the attacker's mean
    ``belief`` in its best guess with the ``power`` of p behind it, are learnt from the release alone.
    """

    arrays: ReleaseArrays
    digest: str
    features: FeatureMap
    theta: NDArray[np.float32]
    interval: IntervalScale
    belief: float
    power: float
    converged: bool

    def weights(self) -> tuple[Ints, Ints, Floats]:
        """Return record, value code and weight of every record and every value that its bucket lists (entries,).

        By record and value. Weights of a record add up to 1, those of a value in a bucket to its count.
        """
        theta, starts = self.theta.astype(np.float64), np.cumsum(self.arrays.sizes) - 1
        parts: list[tuple[Ints, Ints, Floats]] = []
        for start in range(0, len(self.arrays.bucket), BATCH):
            part = self.arrays.select_buckets((starts >= start) & (starts < start + BATCH))
            prepared = prepare_release(part, self.features)
            found = list_weights(prepared.likelihood, prepared.design.probabilities(theta, self.arrays.log_shares))
            parts.append((found[0] + (parts[-1][0][-1] + 1 if parts else 0), *found[1:]))
        record, value, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        return record, value, weight

    def _believe(self, power: float = 1.0) -> tuple[PreparedRelease, Floats]:
        """Return the whole release and p (rows, K) to a power."""
        prepared = prepare_release(self.arrays, self.features)
        probabilities = prepared.design.probabilities(self.theta.astype(np.float64), self.arrays.log_shares)
        return prepared, raise_power(probabilities, power)

    def draw_values(self) -> Ints:
        """Return a value code for every record (n,), drawn from the posterior; the same for the same digest."""
        prepared, probabilities = self._believe()
        return draw_table(
            prepared.likelihood, probabilities, seed_key(int(self.digest[:16], 16)).random_generator("drawn")
        )

    def find_calibrated_beliefs(self) -> Iterator[Batch]:
        """Yield what the learning attacker believes, bucket by bucket: beliefs from p to the calibrated ``power``."""
        prepared, probabilities = self._believe(self.power)
        yield from prepared.likelihood.find_posteriors(probabilities, settled=True)

    def parameters(self) -> dict[str, Any]:
        """Return what ``restore_model`` needs: ``theta`` (J, K) and numbers."""
        return {
            "version": MODEL_VERSION,
            "digest": self.digest,
            "terms": self.features.description,
            "theta": self.theta,
            "coefficients": self.interval.coefficients,
            "limits": self.interval.limits,
            "belief": [self.belief, self.power],
            "fitted_share": self.interval.fitted_share,
            "converged": self.converged,
        }


@dataclass(frozen=True)
class PreparedRelease:
    """Rows of a release with their features, and its buckets."""

    arrays: ReleaseArrays
    features: FeatureMap
    design: Design
    likelihood: BucketLikelihood


def prepare_release(arrays: ReleaseArrays, features: FeatureMap | None = None) -> PreparedRelease:
    """Return a release's rows, its features or those that are stated, and its buckets."""
    first, member, sizes = combine_rows(list(arrays.columns.values()))
    columns = {name: column[first] for name, column in arrays.columns.items()}
    features = features or FeatureMap(columns, sizes)
    likelihood = BucketLikelihood(list_shapes(arrays), member, sizes)
    return PreparedRelease(arrays, features, features.make_design(columns, sizes), likelihood)


def list_weights(likelihood: BucketLikelihood, probabilities: Floats) -> tuple[Ints, Ints, Floats]:
    """Return record, value code and weight of every record and value that its bucket lists, in this order."""
    parts = []
    for batch in likelihood.find_posteriors(probabilities, settled=True):
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


def estimate_cost(arrays: ReleaseArrays) -> tuple[float, int]:
    """Return seconds of processor time and bytes that a fit takes, about, by what it took on tables of 200,000 rows."""
    rows = len(combine_rows(list(arrays.columns.values()))[0])
    cells = rows * (2 + len(arrays.columns) ** 2 // 6)
    size, columns = arrays.sizes, len(arrays.values) * rows
    exact = float((size * 2.0 ** np.minimum(size, EXACT_SIZE))[size <= EXACT_SIZE].sum())
    listed = float((size * size)[size > EXACT_SIZE].sum())
    seconds = 265 * 1e-9 * (10 * columns + 2 * len(arrays.values) * cells + 12 * exact + 60 * listed + 100 * size.sum())
    share = min(1.0, MOST_BYTES / _estimate_memory(arrays, rows))
    return seconds * share, int(_estimate_memory(arrays, rows) * share)


def _estimate_memory(arrays: ReleaseArrays, rows: int) -> float:
    return rows * (32 * len(arrays.values) + 8 * len(arrays.columns) ** 2) + 500.0 * len(arrays.bucket) + 2**27


def choose_buckets(arrays: ReleaseArrays) -> ReleaseArrays:
    """Return the release itself, or as many of its buckets, spread evenly, as ``MOST_BYTES`` hold."""
    rows = len(combine_rows(list(arrays.columns.values()))[0])
    share = MOST_BYTES / _estimate_memory(arrays, rows)
    steps = np.floor(np.arange(len(arrays.sizes) + 1) * share)
    return arrays if share >= 1 else arrays.select_buckets(np.diff(steps) > 0)


def fit_bucket_model(
    arrays: ReleaseArrays, digest: str, progress: Callable[[float], None] | None = None, *, intervals: bool = True
) -> BucketModel:
    """Return the model of a release without obstacles; ``progress`` is called with the share of the work done.

    The same for the same arrays, ``digest`` and ``MODEL_VERSION``, which seed what is drawn. Without ``intervals``,
    which attackers have no use for, nothing is rehearsed.
    """
    prepared, schedule = prepare_release(choose_buckets(arrays)), Schedule()
    steps, done = schedule.steps + (REHEARSALS * intervals + 1) * REFIT.last, 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(1.0, done / steps))

    offset = arrays.log_shares
    start = start_fit(prepared.design, len(offset))
    fit = fit_softmax(prepared.design, prepared.likelihood, offset, start, schedule, report)
    noise = seed_key(int(digest[:16], 16)).random_generator("bucket model", MODEL_VERSION)
    coefficients, limits = rehearse(prepared, fit, offset, noise, report) if intervals else UNREHEARSED
    share = len(prepared.arrays.bucket) / len(arrays.bucket)
    interval = IntervalScale(len(arrays.bucket), coefficients, limits, share)
    belief = calibrate_belief(prepared, fit, offset, noise, report)
    theta = fit.theta.astype(np.float32)
    return BucketModel(arrays, digest, prepared.features, theta, interval, *belief, fit.slope < CONVERGED)


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
    theta = check_numbers(parameters.get("theta"), (features.count, len(arrays.values)))
    belief, power = map(float, check_numbers(parameters.get("belief"), (2,), least=0))
    share = len(used.bucket) / len(arrays.bucket)
    interval = IntervalScale.restore(len(arrays.bucket), share, parameters)
    return BucketModel(arrays, digest, features, theta.astype(np.float32), interval, belief, power, converged=True)


def check_numbers(stated: Any, shape: tuple[int, ...], least: float = -np.inf) -> Floats:
    """Return numbers of a shape from ``least`` on, none very large; ``GuaranteeError`` for anything else."""
    try:
        numbers = np.asarray(stated, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape != shape or not ((np.abs(numbers) <= MOST_THETA) & (numbers >= least)).all():
        raise GuaranteeError("the model is damaged: its parameters are not those of the release's columns and values")
    return numbers


# Rehearsal ------------------------------------------------------------------------------------------------------------
# Parameters are drawn around those that were found, a table is drawn from the posterior that follows, its values are
# dealt to the same lists, and the model is fitted to that. Its errors, of which the drawn table knows the truth, show
# by how much they exceed the variance within buckets. Errors of parameters go together, which the variances
# 1/(I + lambda) leave out: the first rehearsal only shows them, and each one's draw the truth of the next.

REFIT = Schedule(rounds=0, last=30)
UNREHEARSED: tuple[tuple[float, ...], Limits] = (math.log(2), *[0.0] * 5), ((0.0, 0.0), (0.0, 0.0))
REHEARSALS, MOST_EXCESS = 3, 10.0
# By the true answers of real tables. The release does not show them: scores of conditions, the sums of q - p over their
# members, exceed those of rehearsals by a factor of .8 to 2 that does not go with the errors', and rehearsed truths
# with random effects of three columns raise the errors of sums and means alone.
MISFIT, MISFIT_OF_AMOUNTS = 1.5, 2.0
SWEEPS = 12  # steps of a draw for each record of a bucket
CONDITIONS, ATTRIBUTES, VALUE_SETS, LEAST_SHARE = 100, 3, 15, 0.002
CONVERGED = 50.0
HELD_OUT = 10  # one bucket of so many
POWERS = np.linspace(0.7, 1.2, 11)


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


def deal_table(shapes: Sequence[Shape], drawn: Ints, noise: np.random.Generator) -> NDArray[np.intp]:
    """Return the record of each place (n,): every value's records take its places in random order."""
    slots = np.empty(len(drawn), dtype=np.int64)
    for shape in shapes:
        slots[shape.records] = np.repeat(shape.values.ravel(), shape.counts.astype(np.int64).ravel()).reshape(
            shape.records.shape
        )
    shuffled = noise.permutation(len(drawn))
    dealt = np.empty(len(drawn), dtype=np.intp)
    dealt[np.argsort(slots, kind="stable")] = shuffled[np.argsort(drawn[shuffled], kind="stable")]
    return dealt


def rehearse(
    prepared: PreparedRelease, fit: SoftmaxFit, offset: Floats, noise: np.random.Generator, report: Callable[[], None]
) -> tuple[tuple[float, ...], Limits]:
    """Return coefficients and limits of ``IntervalScale``, from releases of drawn tables."""
    design, likelihood = prepared.design, prepared.likelihood
    spread = 1 / np.sqrt(fit.information + fit.penalties[design.groups][:, None])
    error, found = noise.standard_normal(fit.theta.shape) * spread, []
    for _ in range(REHEARSALS):
        theta = fit.theta - error
        drawn = draw_table(likelihood, design.probabilities(theta, offset), noise)
        dealt = deal_table(likelihood.shapes, drawn, noise)
        again = BucketLikelihood(likelihood.shapes, likelihood.member[dealt], likelihood.sizes)
        refit = fit_softmax(design, again, offset, fit, REFIT, report)
        error = refit.theta - theta
        weights = list_weights(again, design.probabilities(refit.theta, offset))
        columns = {name: column[dealt] for name, column in prepared.arrays.columns.items()}
        found.append(measure_errors(columns, weights, drawn[dealt], len(offset), noise))
    members, truth, count, variance = np.concatenate(found[1:]).T
    within = variance * (1 - members / len(likelihood.member))
    (use,) = np.nonzero((within > 0.1) & (count >= 1))
    if len(use) < FEWEST_RECORDS:
        return UNREHEARSED
    every = (-np.inf, -np.inf), (np.inf, np.inf)
    logs = _interval_features(members[use], count[use], variance[use], every)[:, 1:3]
    low, high = ((float(one), float(other)) for one, other in np.quantile(logs, (0.005, 0.995), axis=0))
    features = _interval_features(members[use], count[use], variance[use], (low, high))
    coefficients = fit_gamma(features, (count - truth)[use] ** 2 / within[use])
    return tuple(map(float, coefficients)), (low, high)


def fit_gamma(features: Floats, amounts: Floats) -> Floats:
    """Return beta (terms,) of the regression E[amounts] = exp(features beta), by the likelihood of gamma variables."""
    beta = np.zeros(features.shape[1])
    beta[0] = np.log(amounts.mean())
    ridge = 1e-3 * len(features) * np.eye(len(beta))
    for _ in range(30):
        score = features.T @ (amounts * np.exp(-features @ beta) - 1)
        beta += np.clip(np.linalg.solve(features.T @ features + ridge, score), -0.5, 0.5)
    return beta


def measure_errors(
    columns: Mapping[str, NDArray[Any]],
    weights: tuple[Ints, Ints, Floats],
    truth: Ints,
    values: int,
    noise: np.random.Generator,
) -> Floats:
    """Return members, true count, estimate and variance of a workload (questions, 4).

    Conditions take the values of a random record, or some of the values of a column; each is asked of every value and
    of sets and runs of values.
    """
    record, value, weight = weights
    ends = np.searchsorted(record, np.arange(len(truth) + 1))
    rows = scipy.sparse.csr_array((weight, value, ends), shape=(len(truth), values))
    codes = {name: np.unique(column, return_inverse=True)[1] for name, column in columns.items()}
    names, found = list(codes), []
    for number in range(CONDITIONS):
        chosen = noise.choice(names, noise.integers(1, min(ATTRIBUTES, len(names)) + 1), replace=False)
        at, share = noise.integers(len(truth)), noise.random() if number % 3 == 0 else 0
        levels = [noise.random(codes[name].max() + 1) < share for name in chosen]
        inside = np.logical_and.reduce(
            [(codes[name] == codes[name][at]) | any_[codes[name]] for name, any_ in zip(chosen, levels, strict=True)]
        )
        (members,) = np.nonzero(inside)
        if len(members) < LEAST_SHARE * len(truth):
            continue
        parts = noise.uniform(0.02, 0.6, VALUE_SETS)
        sets = noise.random((values, VALUE_SETS)) < parts
        runs = (np.arange(values)[:, None] - noise.integers(values, size=VALUE_SETS)) % values < parts * values
        asked: Floats = np.hstack((np.eye(values), sets, runs)).astype(np.float64)
        each: Floats = np.asarray(rows[members] @ asked)
        counts = np.bincount(truth[members], minlength=values) @ asked
        size = np.full(len(counts), len(members))
        found.append(np.stack((size, counts, each.sum(axis=0), (each * (1 - each)).sum(axis=0)), axis=1))
    return np.concatenate(found) if found else np.zeros((0, 4))


def calibrate_belief(
    prepared: PreparedRelease, fit: SoftmaxFit, offset: Floats, noise: np.random.Generator, report: Callable[[], None]
) -> tuple[float, float]:
    """Return the mean belief in the best guess, in buckets by which the model was not fitted, and the power of p.

    The power is that by which their lists are likeliest: below 1 where a fit is too sure of itself.
    """
    held = noise.permutation(len(prepared.arrays.sizes)) % HELD_OUT == 0
    used, held_out = (
        prepare_release(prepared.arrays.select_buckets(chosen), prepared.features) for chosen in (~held, held)
    )
    refit = fit_softmax(used.design, used.likelihood, offset, fit, REFIT, report)
    return calibrate_power(held_out.likelihood, held_out.design.probabilities(refit.theta, offset))


def calibrate_power(likelihood: BucketLikelihood, probabilities: Floats) -> tuple[float, float]:
    """Return the mean belief in the best guess by the power of p by which lists are likeliest, and that power."""
    found = []
    for power in POWERS.tolist():
        powered = raise_power(probabilities, power)
        batches = list(likelihood.find_posteriors(powered))
        value = sum(float(batch.logs.sum()) for batch in batches)
        best = np.concatenate([_best_beliefs(batch).ravel() for batch in batches])
        found.append((value, float(best.mean()), power))
    return max(found)[1:]


def raise_power(probabilities: Floats, power: float) -> Floats:
    """Return p (rows, K) to a power."""
    powered = probabilities**power
    return np.asarray(powered / powered.sum(axis=1, keepdims=True))


def _best_beliefs(batch: Batch) -> Floats:
    """Return the largest belief in a value for every record (b, z): a value may have several slots."""
    same = batch.of.values[:, :, None] == batch.of.values[:, None, :]
    return np.asarray((batch.beliefs @ (same & (batch.of.counts[:, None] > 0))).max(axis=2))
