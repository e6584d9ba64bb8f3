"""Count through what buckets list: the channel of a release, also with fakes, and its linear estimator."""

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
# How records are seen through what their buckets list, by the law of the fakes.
#
# Fakes are balanced (``hide_values``): given all lists, a record of value i is in each of the L_i buckets that list i
# with nearly the same probability, as each of these entries is real with r_i S/(S + sigma) and o_i of them are: an
# entry that is fake is a slot that stays empty. So what a set of records sees needs no correction. With w_g(x) = 1/(S +
# sigma) where g lists x, and e = sum of w over the records of Q, n of them by value,
#
#     E[e] = M^T n,   M_ix = A_ix / sum_y A_iy,   A = sum_j S_j/(S_j + sigma)^2 G_j,
#
#     G_j = how often two values are listed together in buckets of size S_j,
#
#     sum_i o_i E[w w^T | i] = sum_g S_g w_g w_g^T = A   (each bucket has S real values),
#
# and the sum of e over all records is known, as in the release without fakes: Cov[e] has the weight |Q|/N (1 - |Q|/N).
# With sigma = 0 this is that release. o_i is stated.

FEWEST = 1e-6  # records of a value that is listed and has none
ROUNDING = 1e-9
UNSTATED = "the release is damaged: it does not state how often each of its values is real"


@dataclass(frozen=True)
class FakeValueChannel:
    """The channel of a release whose buckets may list fake values.

    Attributes:
        channel: The channel from the records' values to what their buckets list.
        scale: By size of a bucket, what every listed value adds to e.
        most: The largest number of records that can have each value (m,).
        ratio: r, how much more often than others a listed value is real (m,).
    """

    channel: Channel
    scale: dict[int, float]
    most: Floats
    ratio: Floats


@dataclass(frozen=True)
class ListedPairs:
    """How often buckets list two values together, summed over buckets of some sizes.

    Attributes:
        moment: A, the weighted sum over buckets (m, m).
        listed: How often these buckets list each value, if each stands at most once in a bucket (m,).
        sizes: The sizes of the buckets.
        fakes: The number of fake values in every bucket.
    """

    moment: Matrix
    listed: Floats
    sizes: Sequence[int]
    fakes: int = 0

    @staticmethod
    def read(parts: pa.Table, sizes: Sequence[int], fakes: int = 0) -> ListedPairs:
        """Read the pairs from table ``privsql_channel``.

        Every value is listed in some bucket, so the table has all codes.

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
        """Return the channel.

        Args:
            real: How often each listed value is real (m,); None if all listed values are.
            everywhere: How often each value is listed in the whole release (m,); None if these are all of its buckets.

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
        absent = (covered == 0).astype(np.float64)  # in no bucket of a sample
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
    """Make a symmetric matrix (m, m) from its upper triangle; it is sparse if there are very many values."""
    if values > LARGE:
        upper = scipy.sparse.coo_array((pairs.astype(np.float64), (first, second)), shape=(values, values)).tocsr()
        return (upper + scipy.sparse.triu(upper, 1).T).tocsr()
    square = bounded_zeros(values, values)
    square[first, second] = pairs
    return np.triu(square) + np.triu(square, 1).T


def make_channel(parts: pa.Table, facts: BucketFacts) -> FakeValueChannel:
    """Return the channel that table ``privsql_channel`` describes."""
    return ListedPairs.read(parts, [size for size, _ in facts.sizes], facts.fake_values).make_channel(facts.real)


def channel_facts(channel: Channel) -> BeliefFacts:
    """Return the mean belief of all records in their own value, and the singular values of the channel.

    The belief in a listed value is its share of the list. More than ``LARGE`` values have no singular values.
    """
    mean = own_share(channel)
    if len(channel.records) > LARGE:
        return BeliefFacts(mean_belief=mean)
    return BeliefFacts(mean_belief=mean, channel=ChannelFacts(**singular_values(channel)))


def find_even_shares(channel: Channel) -> Floats:
    """Return for each value the share h that would make simple buckets as precise as these (m,).

    In simple buckets a value either has share h or does not occur. A count of t then has the relative variance (1 - h)
    (1 - f) / ((h - f) t); the one of these buckets is that of ``expect_errors``. For more than ``LARGE`` values the
    result is the mean belief of the records that have each value.
    """
    if len(channel.records) > LARGE:
        return np.asarray(channel.mean.diagonal(), dtype=np.float64)
    f = channel.shares
    ratio = np.square(expect_errors(channel, ASKED)) * ASKED / np.maximum(1 - f, TINY)
    return np.asarray((1 + ratio * f) / (1 + ratio))


# Linear estimator -----------------------------------------------------------------------------------------------------
# Counts as sums over records, so that plain SQL can answer: the reconstruction of ``answers.channel`` with its gain
# fixed at a typical question.
#
# With e the sum over the records of Q of w_g(x) = count(g, x)/|g| and e_all its mean over all records,
#
#     n = |Q| f + K (e - |Q| e_all),   K = P M A^-1,   A = M^T P M + B / T,
#
# for T = ``TYPICAL_SHARE`` N records that are associated with ``TYPICAL_STRENGTH``; P and B are those of the channel.
# So a record whose bucket lists x adds w_g(x) W_xv to the count of v, W_xv = f_v + K_vx - sum_y e_all(y) K_vy: over v
# these add up to 1, over all records to o_v. Only +, -, *, / and square roots in a fixed order make W. IEEE 754 rounds
# them alike everywhere, so every machine finds the same numbers.
#
# Let u_rv = w_g W_.v be what record r adds to the count of v, and [r has v] be what it should add. Over n of the N
# records, drawn at random without replacement, a sum of any x_r has the variance n (1 - n/N) Var(x), but for a factor
# N/(N - 1). So
#
#     Var(u_.v) = (W^T A W)_vv / N - f_v^2,   Var(u_.v - [. has v]) = (W^T A W)_vv / N - 2 f_v (M W)_vv + f_v
#
# are the variances of the estimate and of its error, per record; the second is that of ``answers.channel`` at drive 0.
# Plain SQL gets the larger one. The first is larger where the release tells values apart, and leaves room for sets of
# records that are no random ones. The second is larger where it does not: then every estimate is n f_v, and only the
# truth varies.

TYPICAL_SHARE, TYPICAL_STRENGTH = 0.05, 1.0
APART = 1e-6  # relative to each other, so that no two values have the same deviation (sql/clients/left.sql)
FEW_VALUES, RECORDS_PER_WEIGHT = 128, 8  # beyond so many values a release must have so many records for each weight


def choose_weighting(sizes: Sequence[tuple[int, int]], values: int) -> Weighting:
    """Return ``linear`` if a release with so many values can hold the estimator's matrix, else ``share``.

    Args:
        sizes: (size, buckets) for each size of a bucket.
        values: The number of sensitive values.
    """
    records = sum(size * buckets for size, buckets in sizes)
    fits = values**2 <= max(FEW_VALUES**2, records // RECORDS_PER_WEIGHT)
    return "linear" if fits and values <= LARGE else "share"


def find_linear_estimator(channel: Channel, facts: BucketFacts) -> LinearEstimator | None:
    """Return the linear estimator of a release; None if the release weighs values by their shares of the bucket."""
    return make_linear_estimator(channel.moment, facts.real) if facts.weighting == "linear" else None


def make_linear_estimator(moment: Floats, real: Sequence[int] | None = None) -> LinearEstimator:
    """Return the linear estimator that belongs to the second moment A of the channel.

    Args:
        moment: A (m, m).
        real: How often each listed value is real (m,); None if all listed values are.

    Raises:
        EngineError: The numbers do not fit together.
    """
    listed = moment.sum(axis=0)  # by rows, in their order
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
    """Return the gain matrix K^T (k, m) of the estimator for a typical question."""
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
    """Return the product of two matrices, with terms added in order, so that it is the same on every machine."""
    total = np.zeros((len(left), right.shape[1]))
    for column_, row in zip(left.T, right, strict=True):
        total += np.multiply.outer(column_, row)
    return total


def _solve(system: Floats, right: Floats) -> Floats:
    """Solve system x = right for a positive definite system, by elimination in a fixed order."""
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
    """Return the table ``privsql_estimator`` (listed, value, weight) of the linear estimator.

    A record whose bucket lists value ``listed`` adds ``weight`` to the count of ``value``. The table is empty for None,
    where a release weighs values by their shares of the bucket.
    """
    weights = estimator.weights if estimator else np.zeros((0, 0))
    listed, value = np.divmod(np.arange(weights.size, dtype=np.int32), np.int32(max(1, len(weights))))
    return pa.table({"listed": listed, "value": value, "weight": weights.ravel()})


def differ_from_channel(stated: pa.Table, deviations: pa.Table, estimator: LinearEstimator | None) -> list[str]:
    """Return how the published estimator and deviations differ from those that follow from the channel."""
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
