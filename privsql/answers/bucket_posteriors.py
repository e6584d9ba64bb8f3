"""Compute which record of a bucket has which of its listed values, and the likelihood of all lists.

In shapes b is a number of buckets, z the records of each, and d the entries of each bucket's list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.answers.softmax import Design, FeatureMap, combine_rows
from privsql.errors import GuaranteeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.answers.channel import Floats
    from privsql.model.arrays import ReleaseArrays

Ints = NDArray[np.int64]

ENTRIES = 2**18  # of a batch of buckets: what stays in a processor's cache
CLOSE = 1e-10  # of sums of weights

# Buckets of one shape -------------------------------------------------------------------------------------------------
# A bucket lists z values for its z records. An assignment of values v_i to the records i has the probability prod_i
# p_i(v_i)/perm, where perm is the sum of these products over all assignments (a permanent). q_iv is the probability
# that record i has value v.
#
# Up to z = 8, sums over subsets of the listed values give perm and q in O(z 2^z) steps (as Ryser's formula does). For
# larger z, with a the belief in one entry of the list, q is a stationary point of
#
#     sum a log p - a log a + (1 - a) log(1 - a) - (z - 1 + a) log(1 + a/(z - 1)) + a
#
# over matrices a whose rows and columns sum to 1. Without the last two terms it is the Bethe approximation (Vontobel
# 2013), which is too sure by about 1/z. Without (1 - a) log(1 - a) it is Sinkhorn's, which is not sure enough by about
# 1/z. With all terms it is neither.

EXACT_SIZE = 8
COLD, WARM = 100, 8  # rounds of scaling at most
LEAST = 1e-30  # probability of a listed value


@dataclass(frozen=True)
class Shape:
    """b buckets of the same size: z records, and a list with d entries.

    Attributes:
        records: The numbers of the records of each bucket (b, z).
        values: The codes of the values that each bucket lists (b, d).
        counts: How often each value is listed (b, d); entries beyond the end of a list have 0.
        exact: Whether the probability of each value for each record is computed exactly, by all assignments. The list
            then has one entry for each record (d = z).
    """

    records: Ints
    values: Ints
    counts: Floats
    exact: bool

    def select_buckets(self, chosen: NDArray[np.bool_] | slice) -> Shape:
        """Return only the ``chosen`` ones of these buckets, all of one size."""
        return Shape(self.records[chosen], self.values[chosen], self.counts[chosen], self.exact)

    def split(self) -> Iterator[slice]:
        """Yield slices of the buckets; the buckets of one slice are computed together in little memory."""
        step = max(1, ENTRIES // (self.records.shape[1] * self.values.shape[1]))
        yield from (slice(start, start + step) for start in range(0, len(self.records), step))


@dataclass(frozen=True)
class Batch:
    """The probability of each listed value for each record of some buckets, once their lists are known.

    There are b buckets with z records each, and d entries in each list. An entry has a value, and how often the bucket
    lists it.

    Attributes:
        of: The buckets.
        places: For each record and list entry (b, z, d), where the probability that was given before the list was known
            lies: the index in the flattened array of probabilities (rows, K).
        beliefs: The probability that a record has the value of a list entry (b, z, d).
        logs: The log-likelihood of each bucket's list (b,).
    """

    of: Shape
    places: Ints
    beliefs: Floats
    logs: Floats


def list_shapes(arrays: ReleaseArrays) -> list[Shape]:
    """Group the buckets of a release by size.

    Raises:
        GuaranteeError: A bucket does not list as many values as it has records.
    """
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
    """Compute how likely each record of b buckets has each listed value, by summing over all z! assignments.

    Args:
        weights: The probability that each record has each listed value (b, z, z), before the list is known.

    Returns:
        The posterior probability of each record and list entry (b, z, z), and the log of the sum over all assignments,
        a permanent (b,).
    """
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
    """Compute approximately how likely each record of large buckets has each listed value.

    Each of b buckets has a matrix of beliefs, with a row for each of z records and a column for each of d values. Rows
    and columns are scaled in turn, until rows sum to 1 and columns to the counts of the values.

    Args:
        weights: The probability that each record has each listed value (b, z, d), with z > 2, before the list is known.
        counts: How often each value is listed (b, d).
        scale: The factors by which columns are scaled at first (b, d); 1, or the result of an earlier call.
        rounds: The largest number of repetitions.

    Returns:
        The posterior (b, z, d), the approximate log-likelihood of each list (b,), and the last factors of the columns,
        with which the next call can begin (b, d).
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
    """Return an attacker's belief that each of r records has each of t values that its bucket lists.

    Each listed value belongs to at most one record, so beliefs about one record change those about the others.

    Args:
        weights: The probability of each value for each record before the list is known (b, r, t), for b buckets.
        spare: The number of listed values that belong to no record.

    Returns:
        The beliefs (b, r, t).
    """
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
    """Correct approximate probabilities of values (b, z, d) so that those of each record sum to exactly 1.

    There are b buckets with z records and d listed values each. The sum of each value's probabilities stays as it
    is. What records have beyond 1 goes to records with less (Altschuler, Weed and Rigollet 2017, algorithm 2).
    """
    totals = beliefs.sum(axis=2, keepdims=True)
    reduced = beliefs / np.maximum(totals, 1)
    spare = (beliefs - reduced).sum(axis=1, keepdims=True)
    missing = np.maximum(1 - totals, 0)
    return np.asarray(reduced + missing * (spare / np.maximum(spare.sum(axis=2, keepdims=True), LEAST)))


class BucketLikelihood:
    """The likelihood of the values that all buckets list, given the probability of each value for each row.

    A row is a combination of quasi-identifiers, and K the number of sensitive values.
    """

    def __init__(self, shapes: Sequence[Shape], member: NDArray[np.intp], sizes: NDArray[np.intp]) -> None:
        """Prepare the buckets.

        Args:
            shapes: The buckets, by size.
            member: For each record the number of its row, a combination of quasi-identifiers (n,).
            sizes: The number of records of each row (rows,).
        """
        self.shapes, self.member, self.sizes = shapes, member, sizes
        self._scales = [np.ones_like(shape.counts) for shape in shapes]
        self._rounds = COLD

    def find_posteriors(self, probabilities: Floats, *, settled: bool = False) -> Iterator[Batch]:
        """Yield the probability that each record has each value that its bucket lists, in batches of buckets.

        Args:
            probabilities: The probability of each value for each row (rows, K).
            settled: Large buckets are computed approximately, in repeated rounds. True begins anew, takes many rounds
                and makes the sums exact. False begins with the results of the last call, which needs fewer rounds.
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
        self._rounds = WARM

    def start_anew(self) -> BucketLikelihood:
        """Return a likelihood of the same buckets whose results do not depend on earlier calls."""
        return BucketLikelihood(self.shapes, self.member, self.sizes)

    def evaluate(self, probabilities: Floats) -> tuple[float, Floats]:
        """Return the log-likelihood of the buckets' lists, and its derivative by the log-odds of values (rows, K).

        Args:
            probabilities: The probability of each of the K values for each row (rows, K).
        """
        value, residuals = 0.0, -self.sizes[:, None] * probabilities
        for batch in self.find_posteriors(probabilities):
            value += float(batch.logs.sum())
            np.add.at(residuals.ravel(), batch.places.ravel(), batch.beliefs.ravel())
        return value, residuals


@dataclass(frozen=True)
class PreparedRelease:
    """A release with all that a softmax regression of its sensitive value on the quasi-identifiers needs.

    Attributes:
        arrays: The release.
        features: How the quasi-identifiers are coded as features, such as indicators of values.
        design: The features of each row, a combination of quasi-identifiers.
        likelihood: The likelihood of the buckets' lists.
    """

    arrays: ReleaseArrays
    features: FeatureMap
    design: Design
    likelihood: BucketLikelihood


def prepare_release(arrays: ReleaseArrays, features: FeatureMap | None = None) -> PreparedRelease:
    """Prepare a release for the softmax regression of its sensitive value on the quasi-identifiers.

    Args:
        arrays: The release.
        features: The features to use; None to choose them from the release.
    """
    first, member, sizes = combine_rows(list(arrays.columns.values()))
    columns = {name: column[first] for name, column in arrays.columns.items()}
    features = features or FeatureMap(columns, sizes)
    likelihood = BucketLikelihood(list_shapes(arrays), member, sizes)
    return PreparedRelease(arrays, features, features.make_design(columns, sizes), likelihood)
