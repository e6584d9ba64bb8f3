"""Estimate counts from a bucketized release: through its channel, also with fakes, or by the papers' formula."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from math import fsum
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy
from sqlglot import exp

from privsql.answers.channel import JITTER, LARGE, TINY, Channel, LinearEstimator, own_share, singular_values
from privsql.answers.estimate import (
    ConfidenceLevel,
    CountBounds,
    RecordSets,
    ReleaseQuestion,
    WeightedSums,
    count_groups,
    project_within,
    read_sets,
)
from privsql.answers.learned_prior import code_column, comparable_columns
from privsql.answers.question import CountQuery, Measure, exact_answer, group_terms, select_terms, side_holes
from privsql.engine.files import label_value
from privsql.engine.sqlfiles import (
    Holes,
    alias_as,
    all_of,
    column,
    fill,
    qualify_tables,
    same_columns,
    table,
    temp_table,
)
from privsql.errors import EngineError
from privsql.mechanisms.bucketize.beliefs import fill_lists, list_values, size_of_bucket
from privsql.mechanisms.bucketize.parameters import BeliefFacts, BucketFacts, ChannelFacts, Weighting
from privsql.model.manifest import Estimate, exact_estimate, same_nan
from privsql.model.records import ReleaseArrays, bounded_zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.answers.answer import AttachedModel
    from privsql.answers.channel import Floats, Matrix
    from privsql.engine.database import Relations
    from privsql.engine.sqlfiles import Roles
    from privsql.mechanisms.bucketize.model import Ints

# Lists with fakes -----------------------------------------------------------------------------------------------------
# How records are seen through what their buckets list, by the law of the fakes.
#
# Fakes are balanced (``fakes``): given all lists, a record of value i is in each of the L_i buckets that list i with
# nearly the same probability, as each of these entries is real with r_i S/(S + sigma) and o_i of them are: an entry
# that is fake is a slot that stays empty. So what a set of records sees needs no correction. With w_g(x) = 1/(S +
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


@dataclass(frozen=True)
class ListedPairs:
    """Buckets of one ``size``: ``pairs`` (m, m) how often two values are listed together, and the ``fakes`` in each."""

    size: int
    pairs: Matrix
    fakes: int


@dataclass(frozen=True)
class FakeValueChannel:
    """``channel``; by size of bucket, what every listed value adds to e; ``most`` (m,): records that each value has at
    most; ``ratio`` (m,): r, how much more often than others a listed value is real.
    """

    channel: Channel
    scale: dict[int, float]
    most: Floats
    ratio: Floats


def make_fake_value_channel(
    classes: Sequence[ListedPairs], real: Sequence[int] | None, listed: Floats | None = None
) -> FakeValueChannel:
    """Return the channel; ``real`` (m,): how often each listed value is real, None where all are.

    ``listed`` (m,): how often each value is listed in the whole release, where ``classes`` are but some of its buckets.
    """
    listed_here = np.sum([one.pairs.diagonal() for one in classes], axis=0)
    matrix = reduce(add, [one.pairs * (one.size / (one.size + one.fakes) ** 2) for one in classes])
    covered = np.asarray(matrix.sum(axis=1))
    records = covered
    if real is not None:
        if len(real) != len(listed_here):
            raise EngineError("the release is damaged: it does not state how often each of its values is real")
        everywhere = np.maximum(listed_here if listed is None else listed, 1)
        records = np.array(real, dtype=np.float64) * listed_here / everywhere
    absent = (covered == 0).astype(np.float64)  # in no bucket of a sample
    scale = 1 / (covered + absent)
    if isinstance(matrix, np.ndarray):  # scipy takes long to import
        mean: Matrix = scale[:, None] * (matrix + np.diag(absent))
    else:
        mean = scipy.sparse.diags_array(scale) @ (matrix + scipy.sparse.diags_array(absent))
    return FakeValueChannel(
        Channel(mean, matrix, np.maximum(records, FEWEST)),
        {one.size: 1 / (one.size + one.fakes) for one in classes},
        records,
        records / np.maximum(covered, FEWEST),
    )


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

TYPICAL_SHARE, TYPICAL_STRENGTH = 0.05, 1.0
FEW_VALUES, RECORDS_PER_WEIGHT = 128, 8  # beyond so many values a release must have so many records for each weight


def choose_weighting(sizes: Sequence[tuple[int, int]], values: int) -> Weighting:
    """Return ``linear`` where a release of so many values holds the estimator's matrix, else ``share``.

    ``sizes``: (size, buckets) of each size.
    """
    records = sum(size * buckets for size, buckets in sizes)
    fits = values**2 <= max(FEW_VALUES**2, records // RECORDS_PER_WEIGHT)
    return "linear" if fits and values <= LARGE else "share"


def find_linear_estimator(parts: pa.Table, facts: BucketFacts) -> LinearEstimator | None:
    """Return the estimator of ``privsql_channel``; None where the release weighs by shares."""
    if facts.weighting == "share":
        return None
    return make_linear_estimator(read_channel_pairs(parts, facts), facts.real)


def make_linear_estimator(classes: Sequence[ListedPairs], real: Sequence[int] | None = None) -> LinearEstimator:
    """Return the estimator; ``real`` (m,): how often each listed value is real, None where all are."""
    moment = reduce(add, [one.pairs * (one.size / (one.size + one.fakes) ** 2) for one in classes])
    listed = moment.sum(axis=0)  # by rows, in their order
    records = np.rint(listed) if real is None else np.array(real, dtype=np.float64)
    if len(records) != len(listed) or not records.any():
        raise EngineError("the release is damaged: it does not state how often each of its values is real")
    shares, seen = records / fsum(records), listed / fsum(listed)
    gain = _typical_gain(moment, moment / listed[:, None], records)
    gain += (1 - gain.T.copy().sum(axis=0))[:, None] * shares
    weights = gain + shares - (seen[:, None] * gain).sum(axis=0)
    squares = (weights * _multiply(moment, weights)).sum(axis=0) / fsum(records)
    deviations = np.sqrt(np.maximum(squares - shares * shares, 0))
    return LinearEstimator(weights, deviations)


def _typical_gain(moment: Floats, mean: Floats, records: Floats) -> Floats:
    """Return K^T (k, m) at a typical question."""
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
    """Return the product of two matrices, whose terms are added in their order."""
    total = np.zeros((len(left), right.shape[1]))
    for column_, row in zip(left.T, right, strict=True):
        total += np.multiply.outer(column_, row)
    return total


def _solve(system: Floats, right: Floats) -> Floats:
    """Return system^-1 right for a positive definite system, by elimination in a fixed order."""
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
    """Return ``privsql_estimator`` (listed, value, weight); empty where a release weighs by shares."""
    weights = estimator.weights if estimator else np.zeros((0, 0))
    listed, value = np.divmod(np.arange(weights.size, dtype=np.int32), np.int32(max(1, len(weights))))
    return pa.table({"listed": listed, "value": value, "weight": weights.ravel()})


def differ_from_channel(stated: pa.Table, deviations: pa.Table, estimator: LinearEstimator | None) -> list[str]:
    """Return how ``privsql_estimator`` and the deviations (code, deviation) differ from what the channel gives."""
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


# Baseline -------------------------------------------------------------------------------------------------------------
# Answers from a bucketized release by the papers' formula, with bounds that hold with certainty.
#
# Baseline: est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|. It treats the condition and the sensitive value as
# independent within a bucket, so it is biased towards independence and has no honest standard error. What is certain
# are Frechet's bounds: of n matching rows and c matching values in a bucket of size |g|, at least n + c - |g| and at
# most min(n, c) meet.

BucketTerm = tuple[int, Fraction, int, int]  # size, pairs, certain, possible
EXPECTED = "privsql_expected"
BASELINE_FORMULA = (
    "estimate = sum over buckets g of c_QIT(g, condition) * c_ST(g, values) / |g|; low and high are certain"
)


def baseline_statement(query: CountQuery, roles: Roles, facts: BucketFacts) -> exp.Query:
    """Return the SQL statement that an answer needs."""
    fakes = facts.fake_values
    holes: Holes = {
        "qit": query.join_lookups(table("qit")),
        "st": _with_expected(roles) if fakes else table("st"),
        "expected": column(EXPECTED) if fakes else roles.by_sa.as_column("count"),
        "qit_bid": roles.by_qi.as_column("bid"),
        "st_bid": roles.by_sa.as_column("bid"),
        "count": roles.by_sa.as_column("count"),
        "size": size_of_bucket(facts.sizes, exp.column("bid", table="s")),
        "groups": [column(f"g_{i}") for i in range(len(query.groups))],
        "predicate": query.predicate or exp.true(),
        "fakes": exp.Literal.number(fakes),
        "qi_keys": [expression for _, expression in group_terms(query, "qi")],
        "sa_keys": [expression for _, expression in group_terms(query, "sa")],
    }
    return fill("query/pairs", holes | side_holes(query))


def _with_expected(roles: Roles) -> exp.Subquery:
    """ST with the relation of ``expected_records`` beside it."""
    sa_names, names = roles.by_sa, [field.name for field in roles.sensitive]
    listed = exp.Column(this=exp.Star(), table=exp.to_identifier("l"))
    joined = exp.select(listed, alias_as(column("expected", "e"), EXPECTED)).from_(table("st").as_("l"))
    joined = joined.join(table("privsql_values").as_("v"), on=same_columns("l", "v", names))
    met = exp.and_(
        sa_names.as_column("bid", "l").eq(column("bid", "e")), sa_names.as_column("code", "v").eq(column("code", "e"))
    )
    return joined.join(temp_table("expected").as_("e"), on=met).subquery()


def estimate_baseline(db: Relations, query: CountQuery, roles: Roles, facts: BucketFacts) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
    groups: dict[tuple[Any, ...], list[BucketTerm]] = defaultdict(list)
    for size, *group, pairs, certain, possible in db.rows(baseline_statement(query, roles, facts)):
        groups[tuple(map(same_nan, group))].append((int(size), Fraction(pairs), int(certain), int(possible)))
    estimates = [_sum_group(group, parts) for group, parts in groups.items()]
    return estimates if estimates or query.groups else [exact_estimate((), 0.0)]


def expected_records(db: Relations, roles: Roles, facts: BucketFacts, law: FakeValueChannel) -> pa.Table:
    """Return how many records of a bucket have each value that it lists, on average over what may be fake.

    By the law of the fakes, moved so that a bucket's values add up to its size and none has more records than places:
    then estimates lie within their bounds, and those of groups add up.
    """
    rows = db.arrow(fill_lists(roles, exp.true()))
    bid, code, places = (rows[name].to_numpy() for name in ("bid", "code", "records"))
    sizes, numbers = np.array(facts.sizes).T
    ends = np.cumsum(numbers)
    bids, member = np.unique(bid, return_inverse=True)
    order = np.argsort(member, kind="stable")
    rank = np.empty(len(bid), dtype=np.int64)
    rank[order] = np.arange(len(bid)) - np.searchsorted(member[order], np.arange(len(bids)))[member[order]]
    size = sizes[np.searchsorted(ends, bids, side="right")]
    scale = np.array([law.scale[int(own_size)] for own_size in size])[member] * size[member]
    values, caps = (np.zeros((len(bids), int(rank.max(initial=-1)) + 1)) for _ in range(2))
    caps[member, rank] = places
    values[member, rank] = places * scale * law.ratio[code]
    moved = project_within(values, size.astype(np.float64), caps, np.ones(values.shape[1]))
    return pa.table({"bid": rows["bid"], "code": rows["code"], "expected": moved[member, rank]})


def _sum_group(group: tuple[Any, ...], parts: list[BucketTerm]) -> Estimate:
    estimate = sum((pairs / size for size, pairs, _, _ in parts), Fraction(0))
    low, high = sum(part[2] for part in parts), sum(part[3] for part in parts)
    middle = min(max(float(estimate), low), high)  # but for rounding it is there
    return Estimate(group, middle, 0.0 if low == high else None, float(low), float(high))


# Sums over records ----------------------------------------------------------------------------------------------------
# What a release tells of sets of records: e = sum over the matching records of count(g, .)/|g|, and from it the counts.

LINEAR_FORMULA = (
    "estimate = sum over the values v asked for of (e W)_v, e = sum over the matching records of count(g, .)/|g|, W in "
    "privsql_estimator; about the SUM(weight) of the weighted view"
)


def read_channel_pairs(parts: pa.Table, facts: BucketFacts) -> list[ListedPairs]:
    """Return ``listed_values`` of a release's own setting."""
    return listed_values(parts, [size for size, _ in facts.sizes], facts.fake_values)


def listed_values(parts: pa.Table, sizes: Sequence[int], fakes: int = 0) -> list[ListedPairs]:
    """Return ``privsql_channel`` by bucket size; every value is listed somewhere, so all codes are there."""
    size, first, second, pairs = (parts[name].to_numpy() for name in ("size", "first", "second", "pairs"))
    values = int(second.max()) + 1
    if set(np.unique(size).tolist()) != set(sizes):
        raise EngineError("the release is damaged: its channel is not one of its bucket sizes")
    by_size = []
    for bucket_size in sizes:
        rows = size == bucket_size
        by_size.append(ListedPairs(bucket_size, make_symmetric(values, first[rows], second[rows], pairs[rows]), fakes))
    return by_size


def make_symmetric(values: int, first: Ints, second: Ints, pairs: Ints) -> Matrix:
    """A symmetric matrix (m, m) from its upper triangle; sparse where there are very many values."""
    if values > LARGE:
        upper = scipy.sparse.coo_array((pairs.astype(np.float64), (first, second)), shape=(values, values)).tocsr()
        return (upper + scipy.sparse.triu(upper, 1).T).tocsr()
    square = bounded_zeros(values, values)
    square[first, second] = pairs
    return np.triu(square) + np.triu(square, 1).T


def make_channel(parts: pa.Table, facts: BucketFacts) -> FakeValueChannel:
    """Return the channel of ``privsql_channel``."""
    return make_fake_value_channel(read_channel_pairs(parts, facts), facts.real)


def channel_facts(channel: Channel) -> BeliefFacts:
    """Return ``mean_belief``, of all records in their own value, and ``channel``; not where values are very many.

    The belief in a listed value is its share of the list.
    """
    mean = own_share(channel)
    if len(channel.records) > LARGE:
        return BeliefFacts(mean_belief=mean)
    return BeliefFacts(mean_belief=mean, channel=ChannelFacts(**singular_values(channel)))


def channel_statement(query: CountQuery, roles: Roles, facts: BucketFacts) -> exp.Query:
    """Return the SQL statement that reads the release for an answer."""
    keys = [name for name, _ in group_terms(query, "qi")]
    amount, sa_names = query.measure.amount, roles.by_sa
    holes: Holes = {
        "qit": query.join_lookups(table("qit")),
        "bid": roles.by_qi.as_column("bid"),
        "st": exp.select(*sa_names.select_columns("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": list_values(roles, table("privsql_values")),
        "terms": select_terms(query, "qi"),
        "keys": [expression for _, expression in group_terms(query, "qi")],
        "filter": all_of(query.filters["qi"]),
        "totals": [alias_as(exp.Sum(this=amount), "t")] if amount else [],
        "amounts": [alias_as(exp.Sum(this=exp.column("t", "q") * column("count", "s")), "amounts")] if amount else [],
        "amount": [exp.column("amounts", "sums")] if amount else [],
        "groups": [column(key) for key in keys],
        "sa": roles.sa_columns("s"),
        "size": size_of_bucket(facts.sizes, exp.column("bid", table="s")),
        "same_value": same_columns("sums", "v", roles.sa_keys),
    }
    return fill("query/observed", holes)


def observe_sets(
    question: ReleaseQuestion, roles: Roles, facts: BucketFacts, law: FakeValueChannel, lists: BucketLists | None
) -> RecordSets:
    """Return e of every set: what the buckets of its records list, by the law of the fakes; ``lists``: of them all."""
    if lists is not None and question.query.measure.amount is None:
        return lists.observe_sets(question, roles, law)
    rows = question.db.arrow(channel_statement(question.query, roles, facts))
    by_size = np.zeros(max(law.scale) + 1)
    by_size[list(law.scale)] = list(law.scale.values())
    return read_sets(question, rows, by_size[rows["size"].to_numpy()])


RECORDS_AT_ONCE = 2**16  # whose lists a processor's cache holds


@dataclass(frozen=True)
class BucketLists:
    """Lists of the buckets, in their order: values by code, as many for each bucket of a size."""

    classes: tuple[ListedClass, ...]

    def observe_sets(self, question: ReleaseQuestion, roles: Roles, law: FakeValueChannel) -> RecordSets:
        """Return e of every set of records, and the groups of each."""
        names = [name for name, _ in group_terms(question.query, "qi")]
        holes: Holes = {
            "qit": question.query.join_lookups(table("qit")),
            "bid": roles.by_qi.as_column("bid"),
            "filter": all_of(question.query.filters["qi"]),
        }
        if not names:
            rows = question.db.arrow(fill("query/placed", holes | {"columns": []}))
            ranks, keys = np.zeros(rows.num_rows, dtype=np.int64), [()][: rows.num_rows]
        else:
            holes |= {"terms": select_terms(question.query, "qi"), "groups": [column(name) for name in names]}
            holes |= {"chosen": [column(name, "k") for name in names], "same": same_columns("r", "k", names)}
            rows = question.db.arrow(fill("query/record_sets", holes))
            ranks = rows["set"].to_numpy()
            of_set = np.zeros(int(ranks.max(initial=-1)) + 1, dtype=np.int64)
            of_set[ranks] = np.arange(len(ranks))  # some record: all of a set have its keys
            taken = rows.select(names).take(of_set).to_pylist()
            keys = [tuple(same_nan(row[name]) for name in names) for row in taken]
        shape = (len(keys), question.channel.mean.shape[1])
        observed = self._sum_lists(rows["bid"].fill_null(-1).to_numpy(), ranks, shape, law.scale)
        return RecordSets(keys, observed, np.zeros(shape))

    def _sum_lists(self, bids: Ints, ranks: Ints, shape: tuple[int, int], scale: dict[int, float]) -> Floats:
        """Return what the buckets of the records list, each as often as ``scale`` says, summed by set (``shape``)."""
        observed = np.zeros(shape)
        for one in self.classes:
            pairs = np.zeros(observed.size, dtype=np.int64)
            step = max(RECORDS_AT_ONCE, observed.size // one.codes.shape[1])
            for start in range(0, len(bids), step):
                bucket, rank = bids[start : start + step] - one.first, ranks[start : start + step]
                (mine,) = np.nonzero((bucket >= 0) & (bucket < len(one.codes)))
                places = rank[mine, None].astype(np.int64) * shape[1] + one.codes[bucket[mine]]
                pairs += np.bincount(places.ravel(), minlength=observed.size)
            observed += scale[one.size] * pairs.reshape(shape)
        return observed


@dataclass(frozen=True)
class ListedClass:
    """Buckets of one ``size``, numbered from ``first`` on, and the ``codes`` (buckets, listed) of what each lists."""

    size: int
    first: int
    codes: NDArray[np.int32]


def read_lists(db: Relations, roles: Roles, facts: BucketFacts) -> BucketLists:
    """Return what the buckets of an open release list; ``EngineError`` where ST does not have the stated setting."""
    rows = db.arrow(fill_lists(roles, exp.true()))
    bids, codes, times = (rows[name].fill_null(-1).to_numpy() for name in ("bid", "code", "records"))
    lengths, buckets = [size + facts.fake_values for size, _ in facts.sizes], sum(number for _, number in facts.sizes)
    in_range = 0 < buckets <= len(bids) and bids.min() >= 0 and bids.max() < buckets and times.min() > 0
    expected = np.repeat(lengths, [number for _, number in facts.sizes]) if in_range else None
    if expected is None or (np.bincount(bids, times, buckets) != expected).any():
        raise EngineError("the release is damaged: its buckets do not list as many values as is stated")
    order = np.argsort(bids, kind="stable")
    listed = np.repeat(codes[order].astype(np.int32), times[order])
    classes, place, first = [], 0, 0
    for (size, number), length in zip(facts.sizes, lengths, strict=True):
        classes.append(ListedClass(size, first, listed[place : place + number * length].reshape(number, length)))
        place, first = place + number * length, first + number
    return BucketLists(tuple(classes))


# Model ----------------------------------------------------------------------------------------------------------------
# Answers by a model of the release: sums of q_rv, the belief that record r has value v, over what a question selects.

MODEL_FORMULA = (
    "estimate = sum over the matching records r and values v of q_rv, the probability by the release's model that r "
    "has v, given what its bucket lists"
)
MANY = 2**62  # records, of which those of a question are no share


def model_statement(query: CountQuery, roles: Roles, model: AttachedModel) -> exp.Query:
    """Return the SQL statement that an answer needs."""
    amount = query.measure.amount
    holes: Holes = {
        "records": query.join_lookups(temp_table(model.records)),
        "record": column(model.record),
        "values": table("privsql_values"),
        "code": roles.by_sa.as_column("code"),
        "weights": model.weights,
        "groups": [column(f"g_{i}") for i in range(len(query.groups))],
        "predicate": query.predicate or exp.true(),
        "amount": exp.cast(amount, "DOUBLE") if amount is not None else exp.Literal.number(1),
    }
    return fill("query/modelled", holes | side_holes(query))


def estimate_by_model(
    db: Relations, query: CountQuery, roles: Roles, model: AttachedModel, bounds: list[Estimate], confidence: float
) -> list[Estimate]:
    """Return the answer's rows; ``bounds``: counts with the bounds that are certain, by group."""
    if not bounds:
        return []
    groups, names = [one.group for one in bounds], [f"g_{i}" for i in range(len(query.groups))]
    rows = db.arrow(model_statement(query, roles, model))
    keys = rows.select(names).to_pylist() if names else [{}] * rows.num_rows
    rank = {tuple(same_nan(key[name]) for name in names): at for at, key in enumerate(keys)}
    order = np.array([rank.get(group, -1) for group in groups], dtype=np.intp)  # nothing is the last of all
    sums = WeightedSums.read(rows, order)
    if query.predicate is None:
        members, scale = _count_members(db, query, groups), model.scale
    else:  # which values count differs by record, so that no total is known
        members, scale = sums.known, replace(model.scale, records=MANY)
    least = np.array([[float(one.low or 0)] for one in bounds])
    most = np.array([[float(one.high or 0)] for one in bounds])
    error = scale.standard_error(members, sums.n, sums.nn, sums.nn, sums.nn)
    level, counts = ConfidenceLevel(confidence), CountBounds(sums.n[:, None], error[:, None] ** 2, least, most)
    if query.measure.amount is None:
        return count_groups(groups, counts, level)
    mean, covariance, variance = sums.measure_amounts(query.measure.kind)
    spread = scale.standard_error(members, sums.n, sums.nn, covariance, variance) ** 2
    figures = zip(groups, sums.bound_amounts(query, mean, spread, counts, level), sums.known, strict=True)
    return [Estimate(group, *(row if known > 0 else query.measure.empty_figures)) for group, row, known in figures]


def _count_members(db: Relations, query: CountQuery, groups: list[tuple[Any, ...]]) -> Floats:
    """Return how many records meet the conditions on quasi-identifiers, whatever their values, by group (G,)."""
    places = [at for at, group in enumerate(query.groups) if group.side == "qi"]
    published = replace(
        query, groups=tuple(query.groups[at] for at in places), terms={"qi": [], "sa": []}, measure=Measure()
    )
    rows = exact_answer(db, published, table("qit"))
    sizes = {tuple(map(same_nan, one.group)): float(one.estimate or 0) for one in rows}
    return np.array([sizes.get(tuple(group[at] for at in places), 0.0) for group in groups])


def read_release_arrays(db: Relations, roles: Roles, database: str) -> ReleaseArrays:
    """Return QIT and ST of the release in ``database``, records in the order in which they are stored."""
    columns, bid = comparable_columns(roles), roles.by_qi.as_column("bid")
    placed = fill("query/placed", {"qit": table("qit"), "bid": bid, "columns": columns, "filter": exp.true()})
    labels = exp.select(*(exp.cast(item, "VARCHAR") for item in roles.sa_columns()))
    labels = labels.from_(list_values(roles, table("privsql_values"))).order_by("code")
    lists = fill_lists(roles, exp.true()).order_by("bid", "code")
    rows, listed = (db.arrow(qualify_tables(query, database)) for query in (placed, lists))
    bids, bucket = np.unique(rows["bid"].to_numpy(), return_inverse=True)
    listed_bids, listed_bucket = np.unique(listed["bid"].to_numpy(), return_inverse=True)
    if not np.array_equal(bids, listed_bids) or (np.diff(bucket) < 0).any():
        raise EngineError("the release is damaged: QIT and ST do not have the same buckets")
    texts = db.rows(qualify_tables(labels, database))
    named = zip(roles.quasi_identifiers, roles.qi_keys, strict=True)
    return ReleaseArrays(
        {field.name: code_column(rows[key], field) for field, key in named},
        bucket,
        listed_bucket,
        listed["code"].to_numpy().astype(np.int64),
        listed["records"].to_numpy().astype(np.int64),
        [label_value(text) for text in texts],
    )
