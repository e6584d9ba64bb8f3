"""One model of a whole release in buckets: p(value | quasi-identifiers), fitted to what the buckets list."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from privsql.answers.softmax import (
    FeatureMap,
    Schedule,
    SoftmaxFit,
    combine_rows,
    fit_softmax,
    start_fit,
)
from privsql.errors import GuaranteeError
from privsql.keyed_random import seed_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.answers.softmax import Design, Term

Ints = NDArray[np.int64]

MODEL_VERSION = 1  # counts the changes by which the same release gets another model
MOST_VALUES, FEWEST_RECORDS = 500, 200
MOST_BYTES = 8 * 2**30
ENTRIES = 2**18  # of a batch of buckets: what stays in a processor's cache
CLOSE = 1e-10  # of sums of weights


@dataclass(frozen=True)
class ReleaseArrays:
    """A release's tables: n records bucket by bucket, and K values by their codes.

    ``columns``: each quasi-identifier (n,), a column of numbers as floats with NaN for NULL, any other as whole codes.
    ``bucket`` (n,): the number of each record's bucket, 0, 1, .. in order. ``listed_bucket``, ``listed_value`` and
    ``listed_count`` (entries,): what the buckets list, by bucket. ``values`` (K,): labels.
    """

    columns: dict[str, NDArray[Any]]
    bucket: Ints
    listed_bucket: Ints
    listed_value: Ints
    listed_count: Ints
    values: list[str | None]

    def select_buckets(self, chosen: NDArray[np.bool_]) -> ReleaseArrays:
        """Return the records and lists of some buckets (buckets,), numbered anew."""
        number = np.cumsum(chosen) - 1
        records, entries = chosen[self.bucket], chosen[self.listed_bucket]
        return ReleaseArrays(
            {name: column[records] for name, column in self.columns.items()},
            number[self.bucket[records]],
            number[self.listed_bucket[entries]],
            self.listed_value[entries],
            self.listed_count[entries],
            self.values,
        )

    @property
    def bucket_count(self) -> int:
        """Return the number of buckets."""
        return int(self.bucket[-1]) + 1 if len(self.bucket) else 0

    @cached_property
    def value_counts(self) -> Floats:
        """Return how many records have each value (K,)."""
        counts = np.bincount(self.listed_value, self.listed_count, len(self.values))
        return counts.astype(np.float64)


def find_obstacle(arrays: ReleaseArrays) -> str | None:
    """Return why a release gets no model; None where it gets one."""
    if len(arrays.values) > MOST_VALUES:
        return f"more than {MOST_VALUES} values"
    if len(arrays.bucket) < FEWEST_RECORDS:
        return f"fewer than {FEWEST_RECORDS} records"
    return None if arrays.columns else "no quasi-identifiers"


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
class Batch:
    """Some buckets: ``records`` (b, z), ``values`` and ``counts`` (b, d), ``places`` (b, z, d) of their probabilities
    among those of all rows, ``beliefs`` q (b, z, d) and ``logs`` of permanents (b,).
    """

    records: Ints
    values: Ints
    counts: Floats
    places: Ints
    beliefs: Floats
    logs: Floats


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
        """Return batches of the buckets."""
        step = max(1, ENTRIES // (self.records.shape[1] * self.values.shape[1]))
        yield from (slice(start, start + step) for start in range(0, len(self.records), step))


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
                records, listed = shape.records[part], shape.values[part]
                places = self.member[records][:, :, None] * values + listed[:, None, :]
                weights = np.maximum(flat[places], LEAST)
                if shape.exact:
                    beliefs, logs = exact_posterior(weights)
                elif settled:
                    beliefs, logs, _ = approximate_posterior(weights, shape.counts[part], scales[part] ** 0, COLD)
                    beliefs = round_sums(beliefs)
                else:
                    beliefs, logs, scales[part] = approximate_posterior(
                        weights, shape.counts[part], scales[part], self._rounds
                    )
                yield Batch(records, listed, shape.counts[part], places, beliefs, logs)

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
        rows: list[Ints] = []
        buckets: list[Ints] = []
        scores: list[Floats] = []
        number = 0
        for batch in BucketLikelihood(shapes, self.member, self.sizes).find_posteriors(probabilities):
            members = self.member[batch.records.ravel()]
            score = -probabilities[members]
            at = np.repeat(np.arange(len(members)), batch.values.shape[1])
            listed = np.repeat(batch.values, batch.records.shape[1], axis=0)
            np.add.at(score, (at, listed.ravel()), batch.beliefs.ravel())
            rows.append(members)
            buckets.append(number + np.repeat(np.arange(len(batch.records)), batch.records.shape[1]))
            scores.append(score)
            number += len(batch.records)
        row, bucket, score = np.concatenate(rows), np.concatenate(buckets), np.concatenate(scores)
        return np.concatenate([self._square_scores(term, row, bucket, score) for term in design.terms])

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
    """How variances within buckets become standard errors, learnt by a rehearsal.

    With t = n/N the question's share of the ``records``, S its estimated count, V_11 the variance of that within
    buckets, V_yy that of the question's sum and V_1y their covariance, all as sums over records,

        se^2 = (V_yy - t V_1y^2/V_11) (within + between V_11/(S (1 - S/n))).
    """

    records: int
    within: float
    between: float

    def standard_error(
        self, members: Floats, count: Floats, variance: Floats, covariance: Floats, own_variance: Floats
    ) -> Floats:
        """Return standard errors of groups (G,).

        ``members``: records that meet the conditions on quasi-identifiers; ``count`` S = sum of the weights w of those
        and of the values that are meant. With s_i = sum of w over the values of record i, a_i the sum of w times the
        amount: ``variance`` V_11 = sum of s_i (1 - s_i), ``covariance`` V_1y = sum of a_i (1 - s_i), ``own_variance``
        V_yy = sum over records of (sum of w amount^2) - a_i^2. All three are alike for a count.
        """
        known = np.maximum(variance, np.finfo(float).tiny)
        shared = np.maximum(own_variance - members / self.records * covariance**2 / known, 0)
        likely = np.maximum(count * (1 - count / np.maximum(members, 1)), variance)
        factor = self.within + self.between * variance / np.maximum(likely, np.finfo(float).tiny)
        return np.asarray(np.sqrt(shared * factor))


@dataclass(frozen=True)
class CalibratedBelief:
    """``mean`` belief of the learning attacker in its best guess; ``temperature``: the power of p by which buckets that
    were held out are likeliest.
    """

    mean: float
    temperature: float


@dataclass(frozen=True)
class BucketModel:
    """The model of a release.

    ``theta`` (J, K) single precision; ``fitted_share`` of the records by which it was fitted; ``converged``: its last
    step was small; ``interval``, ``belief``.
    """

    arrays: ReleaseArrays
    digest: str
    theta: NDArray[np.float32]
    penalties: Floats
    interval: IntervalScale
    belief: CalibratedBelief
    fitted_share: float
    converged: bool

    @cached_property
    def _prepared(self) -> PreparedRelease:
        return prepare_release(self.arrays)

    @property
    def exact_share(self) -> float:
        """Return the share of the records in buckets whose posterior is exact, not approximate."""
        sizes = np.bincount(self.arrays.bucket)
        return float(sizes[sizes <= EXACT_SIZE].sum() / sizes.sum())

    def calibrated_belief(self) -> float:
        """Return the learning attacker's mean belief in its best guess, from QIT and ST alone."""
        return self.belief.mean

    def weights(self) -> tuple[Ints, Ints, Floats]:
        """Return record, value code and weight of every record and every value that its bucket lists (entries,).

        By record and value. Weights of a record add up to 1, those of a value in a bucket to its count.
        """
        return self._prepared.find_weights(self.theta.astype(np.float64))

    def draw_values(self) -> Ints:
        """Return a value code for every record (n,), drawn from the posterior; the same for the same digest."""
        prepared = self._prepared
        probabilities = prepared.design.probabilities(self.theta.astype(np.float64), prepared.offset)
        noise = seed_key(int(self.digest[:16], 16)).random_generator("drawn rows", MODEL_VERSION)
        return draw_table(prepared.likelihood, probabilities, noise)

    def find_calibrated_beliefs(self) -> Iterator[Batch]:
        """Yield what the learning attacker believes, bucket by bucket: beliefs from p to the power ``temperature``."""
        prepared = self._prepared
        powered = prepared.design.probabilities(self.theta.astype(np.float64), prepared.offset)
        powered **= self.belief.temperature
        powered /= powered.sum(axis=1, keepdims=True)
        yield from prepared.likelihood.find_posteriors(powered, settled=True)

    def best_guesses(self) -> tuple[Ints, Floats]:
        """Return for every record (n,) the value with the largest weight, and that weight, not calibrated."""
        record, value, weight = self.weights()
        order = np.lexsort((weight, record))
        last = order[np.flatnonzero(np.diff(record[order], append=-1))]
        return value[last], weight[last]

    def parameters(self) -> dict[str, Any]:
        """Return what ``restore_model`` needs: ``theta`` (J, K), ``penalties`` by term, and numbers."""
        return {
            "version": MODEL_VERSION,
            "digest": self.digest,
            "terms": self._prepared.design.description,
            "theta": self.theta,
            "penalties": self.penalties,
            "interval": [self.interval.within, self.interval.between],
            "belief": [self.belief.mean, self.belief.temperature],
            "fitted_share": self.fitted_share,
            "converged": self.converged,
        }


@dataclass(frozen=True)
class PreparedRelease:
    """Rows of a release, its features and its buckets; ``used``: the records by which a model is fitted."""

    arrays: ReleaseArrays
    features: FeatureMap
    design: Design
    likelihood: BucketLikelihood
    offset: Floats

    @property
    def value_count(self) -> int:
        """Return the number of values, K."""
        return len(self.arrays.values)

    def find_weights(self, theta: Floats) -> tuple[Ints, Ints, Floats]:
        """Return record, value code and weight."""
        return list_weights(self.likelihood, self.design.probabilities(theta, self.offset))


def prepare_release(arrays: ReleaseArrays) -> PreparedRelease:
    """Return a release's rows, features and buckets."""
    first, member, sizes = combine_rows(list(arrays.columns.values()))
    columns = {name: column[first] for name, column in arrays.columns.items()}
    features = FeatureMap(columns, sizes)
    likelihood = BucketLikelihood(list_shapes(arrays), member, sizes)
    shares = arrays.value_counts / arrays.value_counts.sum()
    return PreparedRelease(arrays, features, features.make_design(columns, sizes), likelihood, np.log(shares))


def list_weights(likelihood: BucketLikelihood, probabilities: Floats) -> tuple[Ints, Ints, Floats]:
    """Return record, value code and weight of every record and value that its bucket lists, in this order."""
    parts = []
    for batch in likelihood.find_posteriors(probabilities, settled=True):
        shape = batch.beliefs.shape
        record = np.broadcast_to(batch.records[:, :, None], shape).ravel()
        value = np.broadcast_to(batch.values[:, None, :], shape).ravel()
        real = np.broadcast_to(batch.counts[:, None, :] > 0, shape).ravel()
        parts.append((record[real], value[real], batch.beliefs.ravel()[real]))
    record, value, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(record, kind="stable")
    record, value, weight = record[order], value[order], weight[order]
    (starts,) = np.nonzero((np.diff(record, prepend=-1) != 0) | (np.diff(value, prepend=-1) != 0))
    return record[starts], value[starts], np.add.reduceat(weight, starts)


def estimate_cost(arrays: ReleaseArrays) -> tuple[float, int]:
    """Return seconds of processor time and bytes that a fit takes, about."""
    records, values = len(arrays.bucket), len(arrays.values)
    rows = len(combine_rows(list(arrays.columns.values()))[0])
    sizes = np.bincount(arrays.bucket)
    cells = 2 + len(arrays.columns) * (len(arrays.columns) + 5) // 8
    per_step = 1e-9 * (rows * values * (9 + 2.0 * cells) + 5e1 * float((sizes * np.minimum(sizes, EXACT_SIZE)).sum()))
    return 300 * per_step, rows * (40 * values + 20 * cells) + 400 * records + 2**27


def fit_bucket_model(
    arrays: ReleaseArrays, digest: str, progress: Callable[[float], None] | None = None
) -> BucketModel:
    """Return the model of a release without obstacles; ``progress`` is called with the share of the work done.

    The same for the same arrays, ``digest`` and ``MODEL_VERSION``, which seed what is drawn.
    """
    prepared = prepare_release(arrays)
    schedule = Schedule()
    steps = schedule.steps + 2 * REFIT.last
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(1.0, done / steps))

    start = start_fit(prepared.design, prepared.value_count)
    fit = fit_softmax(prepared.design, prepared.likelihood, prepared.offset, start, schedule, report)
    theta = fit.theta.astype(np.float32)
    noise = seed_key(int(digest[:16], 16)).random_generator("bucket model", MODEL_VERSION)
    interval = rehearse(prepared, fit, noise, report)
    belief = calibrate_belief(prepared, fit, noise, report)
    return BucketModel(arrays, digest, theta, fit.penalties, interval, belief, 1.0, fit.slope < CONVERGED)


def restore_model(arrays: ReleaseArrays, parameters: Mapping[str, Any], digest: str) -> BucketModel:
    """Return the model of ``parameters``, a stranger's; ``GuaranteeError`` unless they are of this release."""
    prepared = prepare_release(arrays)
    design = prepared.design
    stated = {"version": MODEL_VERSION, "digest": digest, "terms": design.description}
    if any(parameters.get(name) != value for name, value in stated.items()):
        raise GuaranteeError("the model is damaged or another release's: fit it again")
    theta = check_numbers(parameters.get("theta"), (len(design.groups), prepared.value_count))
    penalties = check_numbers(parameters.get("penalties"), (len(design.terms),), least=0)
    within, between = check_numbers(parameters.get("interval"), (2,), least=0)
    mean, temperature = check_numbers(parameters.get("belief"), (2,), least=0)
    (share,) = check_numbers([parameters.get("fitted_share")], (1,), least=0)
    interval = IntervalScale(len(arrays.bucket), float(within), float(between))
    belief = CalibratedBelief(float(mean), float(temperature))
    single = theta.astype(np.float32)
    return BucketModel(
        arrays, digest, single, penalties, interval, belief, float(share), parameters.get("converged") is True
    )


def check_numbers(stated: Any, shape: tuple[int, ...], least: float = -np.inf) -> Floats:
    """Return finite numbers of a shape; ``GuaranteeError`` for anything else."""
    try:
        numbers = np.asarray(stated, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape != shape or not np.isfinite(numbers).all() or numbers.min(initial=np.inf) < least:
        raise GuaranteeError("the model is damaged: its parameters are not those of the release's columns and values")
    return numbers


# Rehearsal ------------------------------------------------------------------------------------------------------------
# One table is drawn from the posterior and its values are dealt to the same lists; the model is fitted to that. Errors
# of a fixed workload of questions, of which the drawn table knows the truth, show how errors grow with the variance.

REFIT = Schedule(rounds=0, last=30)
SWEEPS = 12  # steps of a draw for each record of a bucket
QUESTIONS, ATTRIBUTES, LEAST_SHARE = 400, 3, 0.002
CONVERGED = 50.0
HELD_OUT = 10  # one bucket of so many
TEMPERATURES = np.linspace(0.5, 1.5, 21)


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
    prepared: PreparedRelease, fit: SoftmaxFit, noise: np.random.Generator, report: Callable[[], None]
) -> IntervalScale:
    """Return the scale of standard errors, from a release of a drawn table."""
    design, likelihood = prepared.design, prepared.likelihood
    probabilities = design.probabilities(fit.theta, prepared.offset)
    drawn = draw_table(likelihood, probabilities, noise)
    dealt = deal_table(likelihood.shapes, drawn, noise)
    again = BucketLikelihood(likelihood.shapes, likelihood.member[dealt], likelihood.sizes)
    refit = fit_softmax(design, again, prepared.offset, fit, REFIT, report)
    weights = list_weights(again, design.probabilities(refit.theta, prepared.offset))
    rows = _draw_workload(prepared, weights, drawn[dealt], dealt, noise)
    members, truth, count, variance = rows.T
    total = len(dealt)
    corrected = variance * (1 - members / total)
    ratio = variance / np.maximum(np.maximum(count * (1 - count / members), variance), LEAST)
    use = (corrected > 1) & (count > 1)
    features = np.stack((np.ones(use.sum()), ratio[use]), axis=1)
    found, _ = scipy.optimize.nnls(features, (count - truth)[use] ** 2 / corrected[use])
    return IntervalScale(total, float(found[0]), float(found[1]))


def _draw_workload(
    prepared: PreparedRelease,
    weights: tuple[Ints, Ints, Floats],
    truth: Ints,
    dealt: NDArray[np.intp],
    noise: np.random.Generator,
) -> Floats:
    """Return members, true count, estimate and variance of every value of random conditions (questions, 4)."""
    record, value, weight = weights
    columns, values = prepared.arrays.columns, prepared.value_count
    codes = {name: np.unique(column, return_inverse=True)[1][dealt] for name, column in columns.items()}
    names, rows = list(codes), []
    for _ in range(QUESTIONS):
        at = noise.integers(len(truth))
        chosen = noise.choice(len(names), noise.integers(1, min(ATTRIBUTES, len(names)) + 1), replace=False)
        members = np.logical_and.reduce([codes[names[i]] == codes[names[i]][at] for i in chosen])
        if members.mean() < LEAST_SHARE:
            continue
        inside = members[record]
        each = weight[inside]
        rows.append(
            np.stack(
                (
                    np.full(values, members.sum()),
                    np.bincount(truth[members], minlength=values),
                    np.bincount(value[inside], each, values),
                    np.bincount(value[inside], each * (1 - each), values),
                ),
                axis=1,
            )
        )
    return np.concatenate(rows)


def calibrate_belief(
    prepared: PreparedRelease, fit: SoftmaxFit, noise: np.random.Generator, report: Callable[[], None]
) -> CalibratedBelief:
    """Return the mean belief in buckets by which the model was not fitted, at the temperature that fits them best."""
    design, likelihood = prepared.design, prepared.likelihood
    shapes: list[list[Shape]] = [[], []]
    sizes = np.zeros((2, len(likelihood.sizes)), dtype=np.int64)
    for shape in likelihood.shapes:
        held = noise.permutation(len(shape.records)) % HELD_OUT == 0
        for part, chosen in enumerate((~held, held)):
            if chosen.any():
                one = shape.select_buckets(chosen)
                shapes[part].append(one)
                sizes[part] += np.bincount(likelihood.member[one.records].ravel(), minlength=sizes.shape[1])
    used, held_out = (BucketLikelihood(part, likelihood.member, size) for part, size in zip(shapes, sizes, strict=True))
    refit = fit_softmax(design, used, prepared.offset, fit, REFIT, report)
    probabilities = design.probabilities(refit.theta, prepared.offset)
    best = (-np.inf, 1.0, 0.0)
    for temperature in TEMPERATURES:
        powered = probabilities**temperature
        powered /= powered.sum(axis=1, keepdims=True)
        batches = list(held_out.find_posteriors(powered))
        value = sum(float(batch.logs.sum()) for batch in batches)
        beliefs = [_best_beliefs(batch).ravel() for batch in batches]
        best = max(best, (value, float(temperature), float(np.concatenate(beliefs).mean())))
    return CalibratedBelief(best[2], best[1])


def _best_beliefs(batch: Batch) -> Floats:
    """Return the largest belief in a value for every record (b, z)."""
    same = batch.values[:, :, None] == batch.values[:, None, :]
    return (
        np.asarray((batch.beliefs @ same).max(axis=2))
        if batch.beliefs.shape[1] <= EXACT_SIZE
        else np.asarray(batch.beliefs.max(axis=2))
    )
