"""Estimate counts from what buckets list: the channel of a release, and the linear estimator that follows from it.

The channel says, for records with each sensitive value, how often their buckets list each value on average. The linear
estimator solves it: weights of listed values add up to counts of true ones. Some listed values may be fake.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import fsum
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import scipy

from privsql.answers.channel import (
    JITTER,
    LARGE,
    TINY,
    Channel,
    LinearEstimator,
    expect_errors,
    own_share,
    singular_values,
)
from privsql.errors import EngineError
from privsql.mechanisms.bucketize.parameters import BeliefFacts, BucketFacts, ChannelFacts, Weighting
from privsql.model.arrays import bounded_zeros
from privsql.model.precision import ASKED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Floats, Matrix
    from privsql.mechanisms.bucketize.model import Ints

# Lists with fakes -----------------------------------------------------------------------------------------------------
# The channel from the values of records to what their buckets list, if some listed values are fake.
#
# Fakes are balanced (``hide_values``): each listing of value i in a bucket of size S is real with probability r_i S/(S
# + sigma), and o_i listings are real. So given all lists, a record of value i is in each of the L_i buckets that list i
# with nearly the same probability, and what a set of records sees needs no correction. Let w_g(x) = 1/(S + sigma) if g
# lists x, else 0. Let e be the sum of w over the records of a set Q that has n_i records of value i. Then
#
#     E[e] = M^T n,   M_ix = A_ix / sum_y A_iy,   A = sum_j S_j/(S_j + sigma)^2 G_j,
#
#     G_j(x, y) = in how many buckets of size S_j values x and y are both listed,
#
#     sum_i o_i E[w w^T | i] = sum_g S_g w_g w_g^T = A   (each bucket has S real values),
#
# The sum of e over all records is known, as without fakes. So Cov[e] has the weight |Q|/N (1 - |Q|/N). The release
# states o_i. With sigma = 0, this is the channel of a release without fakes.

FEWEST = 1e-6  # a value that is listed but has no records counts as so many, to avoid division by 0
ROUNDING = 1e-9
UNSTATED = "the release is damaged: it does not state how often each of its values is real"


@dataclass(frozen=True)
class FakeValueChannel:
    """The channel of a release: what the buckets of records with each sensitive value list on average.

    Some listed values may be fake.

    Attributes:
        channel: The linear channel: from the number of records of each value in a set of records, it gives what the
            buckets of these records list on average.
        scale: By bucket size, the weight of each listed value when the lists of a record's bucket are added up: 1 over
            the number of values that the bucket lists.
        most: The largest number of records that can have each value (m,).
        ratio: How likely a listing of each value is to be real, relative to the average value (m,); all 1 without
            fakes.
    """

    channel: Channel
    scale: dict[int, float]
    most: Floats
    ratio: Floats


@dataclass(frozen=True)
class ListedPairs:
    """How often two values are listed by the same bucket, over the buckets of a release or of a sample.

    The channel of a release follows from these counts.

    Attributes:
        moment: For each pair of values, in how many buckets they meet (m, m). A bucket of size S counts S / (S +
            fakes)^2.
        listed: How often these buckets list each value (m,). It is needed only if some listed values are fake; then no
            value stands twice in a bucket.
        sizes: The bucket sizes.
        fakes: The number of fake values in every bucket.
    """

    moment: Matrix
    listed: Floats
    sizes: Sequence[int]
    fakes: int = 0

    @staticmethod
    def read(parts: pa.Table, sizes: Sequence[int], fakes: int = 0) -> ListedPairs:
        """Read the pairs from table ``privsql_channel`` of a release.

        Args:
            parts: The table (size, first, second, pairs).
            sizes: The bucket sizes that the release states.
            fakes: The number of fake values in every bucket.

        Raises:
            EngineError: The table has other bucket sizes than stated.
        """
        size, first, second, pairs = (parts[name].to_numpy() for name in ("size", "first", "second", "pairs"))
        values = int(second.max()) + 1
        if set(np.unique(size).tolist()) != set(sizes):
            raise EngineError("the release is damaged: its channel is not one of its bucket sizes")
        rows = (size == one for one in sizes)
        by_size = [make_symmetric(values, first[chosen], second[chosen], pairs[chosen]) for chosen in rows]
        weighted = [met * (one / (one + fakes) ** 2) for one, met in zip(sizes, by_size, strict=True)]
        return ListedPairs(reduce(add, weighted), np.sum([met.diagonal() for met in by_size], axis=0), sizes, fakes)

    def make_channel(self, real: Sequence[int] | None, everywhere: Floats | None = None) -> FakeValueChannel:
        """Compute the channel of a release: how often the buckets of records with one value list each other value.

        Args:
            real: How often each listed value is real in the whole release (m,); None if no value is fake.
            everywhere: How often each value is listed in the whole release (m,); None if ``self`` counts all its
                buckets, not a sample.

        Raises:
            EngineError: ``real`` does not have an entry for every value.
        """
        covered = np.asarray(self.moment.sum(axis=1))
        records = covered
        if real is not None:
            if len(real) != len(covered):
                raise EngineError(UNSTATED)
            everywhere = np.maximum(self.listed if everywhere is None else everywhere, 1)
            records = np.array(real, dtype=np.float64) * self.listed / everywhere
        absent = (covered == 0).astype(np.float64)  # values that no bucket of a sample lists
        scale = 1 / (covered + absent)
        if isinstance(self.moment, np.ndarray):  # scipy takes long to import
            mean: Matrix = scale[:, None] * (self.moment + np.diag(absent))
        else:
            mean = scipy.sparse.diags_array(scale) @ (self.moment + scipy.sparse.diags_array(absent))
        return FakeValueChannel(
            Channel(mean, self.moment, np.maximum(records, FEWEST)),
            {size: 1 / (size + self.fakes) for size in self.sizes},
            records,
            records / np.maximum(covered, FEWEST),
        )


def make_symmetric(values: int, first: Ints, second: Ints, pairs: Ints) -> Matrix:
    """Make a symmetric matrix (m, m) from the entries of its upper triangle; it is sparse if m exceeds ``LARGE``.

    Args:
        values: The number of rows, m.
        first: The row of each entry.
        second: The column of each entry, not smaller than the row.
        pairs: The entries.
    """
    if values > LARGE:
        upper = scipy.sparse.coo_array((pairs.astype(np.float64), (first, second)), shape=(values, values)).tocsr()
        return (upper + scipy.sparse.triu(upper, 1).T).tocsr()
    square = bounded_zeros(values, values)
    square[first, second] = pairs
    return np.triu(square) + np.triu(square, 1).T


def make_channel(parts: pa.Table, facts: BucketFacts) -> FakeValueChannel:
    """Compute the channel of a release from its table ``privsql_channel`` (size, first, second, pairs).

    The table says how often two values are listed by the same bucket. The channel says what the buckets of records with
    one value list on average.
    """
    return ListedPairs.read(parts, [size for size, _ in facts.sizes], facts.fake_values).make_channel(facts.real)


def channel_facts(channel: Channel) -> BeliefFacts:
    """Return how much a release reveals of single records, and how much of the differences between groups it preserves.

    The first is the mean belief of all records in their own value. The second are the singular values of the channel
    (the matrix from true to listed values); with more than ``LARGE`` values they are left out.
    """
    mean = own_share(channel)
    if len(channel.records) > LARGE:
        return BeliefFacts(mean_belief=mean)
    return BeliefFacts(mean_belief=mean, channel=ChannelFacts(**singular_values(channel)))


def find_even_shares(channel: Channel) -> Floats:
    """Return for each value a number h that measures how precise counts of it are; a larger h is more precise (m,).

    Counts of the value are as precise as if each bucket either had the share h of it or lacked it. In such buckets a
    count of t records has the relative variance (1 - h) (1 - f) / ((h - f) t), where f is the value's frequency. So h
    is found by setting this equal to the variance that is expected with the actual buckets. With more than ``LARGE``
    values, h is the mean belief in the value over the records that have it.

    Args:
        channel: What the buckets of records with each value list on average.
    """
    if len(channel.records) > LARGE:
        return np.asarray(channel.mean.diagonal(), dtype=np.float64)
    f = channel.shares
    ratio = np.square(expect_errors(channel, ASKED)) * ASKED / np.maximum(1 - f, TINY)
    return np.asarray((1 + ratio * f) / (1 + ratio))


# Linear estimator -----------------------------------------------------------------------------------------------------
# Plain SQL can answer if a count is a sum of weights over records. So the gain of the reconstruction of
# ``answers.channel`` is fixed: it is computed for a typical question.
#
# Let e be the sum over the records of Q of w_g(x) = count(g, x)/|g|, and e_all its mean over all records. Then
#
#     n = |Q| f + K (e - |Q| e_all),   K = P M A^-1,   A = M^T P M + B / T,
#
# for a question that selects T = ``TYPICAL_SHARE`` N records, with association ``TYPICAL_STRENGTH``; P and B are those
# of the channel. So a record whose bucket lists x adds w_g(x) W_xv to the count of v, W_xv = f_v + K_vx - sum_y
# e_all(y) K_vy. Summed over v this is 1; summed over all records it is o_v. W is computed with +, -, *, / and square
# roots in a fixed order. IEEE 754 rounds these alike everywhere, so every machine finds the same numbers.
#
# Let u_rv = w_g W_.v be what record r adds to the count of v, and [r has v] be what it should add. If n of the N
# records are drawn at random without replacement, a sum of any x_r over them has the variance n (1 - n/N) Var(x), up to
# a factor N/(N - 1). So
#
#     Var(u_.v) = (W^T A W)_vv / N - f_v^2,   Var(u_.v - [. has v]) = (W^T A W)_vv / N - 2 f_v (M W)_vv + f_v
#
# are the variances of the estimate and of its error, per record; the second is that of ``answers.channel`` without
# association. Plain SQL gets the larger one. The first is larger if the release tells values apart; it also allows for
# sets of records that are not random. The second is larger if the release does not tell values apart: then every
# estimate is n f_v, and only the truth varies.

TYPICAL_SHARE, TYPICAL_STRENGTH = 0.05, 1.0
APART = 1e-6  # relative difference between deviations: no two values may have the same one (sql/clients/left.sql)
FEW_VALUES, RECORDS_PER_WEIGHT = 128, 8  # with more values, the estimator needs so many records for each weight


def choose_weighting(sizes: Sequence[tuple[int, int]], values: int) -> Weighting:
    """Choose how the view ``weighted`` of a release weighs the values that a record may have.

    ``linear`` takes the weights of the linear estimator, with which listed values add up to counts. ``share`` takes the
    value's share of the record's bucket. The linear estimator has a weight for each pair of values. It is chosen if the
    release has enough records for so many weights.

    Args:
        sizes: (size, number of buckets) for each bucket size.
        values: The number of sensitive values.
    """
    records = sum(size * buckets for size, buckets in sizes)
    fits = values**2 <= max(FEW_VALUES**2, records // RECORDS_PER_WEIGHT)
    return "linear" if fits and values <= LARGE else "share"


def find_linear_estimator(channel: Channel, facts: BucketFacts) -> LinearEstimator | None:
    """Return the weights with which listed values add up to counts, as a release publishes them.

    The result is None if the release weighs values by their shares of buckets instead.
    """
    return make_linear_estimator(channel.moment, facts.real) if facts.weighting == "linear" else None


def make_linear_estimator(moment: Floats, real: Sequence[int] | None = None) -> LinearEstimator:
    """Compute the weights with which listed values add up to counts, with the same rounding on every machine.

    Args:
        moment: For each pair of values, in how many buckets they meet (m, m). A bucket of S records with sigma fakes
            counts S / (S + sigma)^2.
        real: How often each listed value is real (m,); None if no value is fake.

    Raises:
        EngineError: ``real`` does not have an entry for every value, or all entries are 0.
    """
    listed = moment.sum(axis=0)  # rows are added in a fixed order, so rounding is the same everywhere
    records = np.rint(listed) if real is None else np.array(real, dtype=np.float64)
    if len(records) != len(listed) or not records.any():
        raise EngineError(UNSTATED)
    shares, seen = records / fsum(records), listed / fsum(listed)
    gain = _typical_gain(moment, moment / listed[:, None], records)
    gain += (1 - gain.T.copy().sum(axis=0))[:, None] * shares
    weights = gain + shares - (seen[:, None] * gain).sum(axis=0)
    product = _multiply(moment, weights)
    squares = (weights * product).sum(axis=0) / fsum(records)
    errors = squares - 2 * shares * product.diagonal() / listed + shares
    deviations = np.sqrt(np.maximum(squares - shares * shares, np.maximum(errors, 0)))
    return LinearEstimator(weights, deviations * (1 + APART * np.arange(len(deviations))))


def _typical_gain(moment: Floats, mean: Floats, records: Floats) -> Floats:
    """Return the matrix that turns what buckets list into counts: the transpose of K in a linear estimate (m, m).

    A question selects a set Q of records. Let e add up what their buckets list, e_all be the mean of this over all
    records, and f the frequencies of values. The estimated counts are n = |Q| f + K (e - |Q| e_all). K is that
    of a typical question, which selects the share ``TYPICAL_SHARE`` of the records.

    Args:
        moment: For each pair of values, in how many buckets they meet, weighted by bucket size (m, m).
        mean: What the buckets of records with each value (row) list on average (m, m).
        records: The number of records of each value (m,).
    """
    total = fsum(records)
    shares = records / total
    shape = shares * np.sqrt(shares)
    spread = shape * (TYPICAL_STRENGTH**2 * fsum(shares * shares) / fsum(shape))
    typical = TYPICAL_SHARE * total
    prior = (spread + shares / typical)[:, None] * mean
    system = _multiply(mean.T, prior)
    system += (moment / total - _multiply(mean.T, shares[:, None] * mean)) * ((1 - TYPICAL_SHARE) / typical)
    system[np.diag_indices(len(system))] += JITTER * fsum(system.diagonal()) / len(system) + TINY**0.5
    return _solve(system, prior.T)


def _multiply(left: Floats, right: Floats) -> Floats:
    """Return the product of two matrices. Terms are added in a fixed order, so it is the same on every machine."""
    total = np.zeros((len(left), right.shape[1]))
    for column_, row in zip(left.T, right, strict=True):
        total += np.multiply.outer(column_, row)
    return total


def _solve(system: Floats, right: Floats) -> Floats:
    """Solve ``system x = right`` for a positive definite system, with the same rounding on every machine.

    It is solved by elimination in a fixed order.
    """
    size = len(system)
    rows = np.hstack((system, right))
    for k in range(size - 1):
        rows[k + 1 :, k:] -= (rows[k + 1 :, k] / rows[k, k])[:, None] * rows[k, k:]
    solution = rows[:, size:]
    for k in range(size - 1, -1, -1):
        solution[k] -= (rows[k, k + 1 : size, None] * solution[k + 1 :]).sum(axis=0)
        solution[k] /= rows[k, k]
    return np.asarray(solution)


def estimator_table(estimator: LinearEstimator | None) -> pa.Table:
    """Return table ``privsql_estimator`` (listed, value, weight) of a release.

    A record whose bucket lists value ``listed`` adds ``weight`` to the count of ``value``. The table is empty if there
    is no estimator (None).
    """
    weights = estimator.weights if estimator else np.zeros((0, 0))
    listed, value = np.divmod(np.arange(weights.size, dtype=np.int32), np.int32(max(1, len(weights))))
    return pa.table({"listed": listed, "value": value, "weight": weights.ravel()})


def differ_from_channel(stated: pa.Table, deviations: pa.Table, estimator: LinearEstimator | None) -> list[str]:
    """Compare the published linear estimator with the one that follows from how often values share buckets.

    Args:
        stated: The published weights (listed, value, weight).
        deviations: The published standard deviations, column ``deviation``, by code of the value.
        estimator: The recomputed estimator; None if the release weighs values by their shares of buckets.

    Returns:
        The faults, one line each; empty if there are none.
    """
    if estimator is None:
        named = deviations.num_rows - deviations["deviation"].null_count
        more = stated.num_rows + named
        return [f"{more:,} weights and deviations, where weights are shares"] if more else []
    if any(stated[name].null_count for name in ("listed", "value", "weight")):
        return ["a weight without a value, or a value without a weight"]
    listed, value, weight = (stated[name].to_numpy() for name in ("listed", "value", "weight"))
    weights = estimator.weights.ravel()
    places = listed.astype(np.int64) * len(estimator.weights) + value
    if len(places) != weights.size or not np.array_equal(np.sort(places), np.arange(weights.size)):
        return ["not one weight for each pair of values"]
    wrong = {
        "weights": _count_different(weight, weights[places]),
        "deviations": _count_different(deviations["deviation"].to_numpy(), estimator.deviations),
    }
    return [f"{number:,} {what} are not those of the channel" for what, number in wrong.items() if number]


def _count_different(stated: Floats, expected: Floats) -> int:
    if len(stated) != len(expected):
        return max(len(stated), len(expected))
    return int(np.count_nonzero(~(np.abs(stated - expected) <= ROUNDING * np.maximum(1, np.abs(expected)))))
