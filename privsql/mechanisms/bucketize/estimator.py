"""Estimate counts from a bucketized release: through its channel, also with fakes, or by the papers' formula."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy
from sqlglot import exp

from privsql.answers.channel import LARGE, Channel, own_share, singular
from privsql.answers.estimate import Observed, QuestionOn, added, sets, within
from privsql.answers.learned_prior import MOST_RECORDS, Sample, comparable, encoded
from privsql.answers.question import CountQuery, Side, group_terms, select_terms
from privsql.engine.sqlfiles import Holes, all_rows, column, every, fill, named, same, table, temp
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.bucketize.beliefs import size_of_bucket, some_buckets
from privsql.mechanisms.bucketize.fakes import LAW
from privsql.model.manifest import Estimate, exactly, same_nan
from privsql.model.records import zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.channel import Floats, Matrix
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.model import Ints

# Uniform fakes --------------------------------------------------------------------------------------------------------
# Seeing through fake values: what the listed values of a release say of the real ones, on average.
#
# In a bucket of size g a value that is not real is listed with probability kappa = sigma/(m - g), two of them together
# with kappa_2 = sigma (sigma - 1)/((m - g)(m - g - 1)). With l the listed and c the real indicator of a value,
#
#     c^ = (l - kappa)/(1 - kappa)     has E[c^ | c] = c,     and sum_x c^ = g.
#
# Over the B buckets of one size: N^_x = sum c^_x (SPEC: E[listed] = N + (B - N) kappa, inverted), and for two values
# E[sum c^_i c^_x] = G_ix + delta (B - N_i - N_x + G_ix), delta = (kappa_2 - kappa^2)/(1 - kappa)^2, as c^_i c^_x has
# mean delta where neither is real and c_i c_x else.


@dataclass(frozen=True)
class Listed:
    """Buckets of one ``size``: ``buckets`` of them, ``pairs`` (m, m) how often two values are listed together, and the
    ``fakes`` in each.
    """

    size: int
    buckets: int
    pairs: Matrix
    fakes: int

    @property
    def values(self) -> int:
        """M."""
        return int(self.pairs.shape[0])

    @property
    def kappa(self) -> float:
        """Probability that a value that is not real is listed."""
        return self.fakes / (self.values - self.size) if self.fakes else 0.0

    @property
    def delta(self) -> float:
        """Mean of c^_i c^_x where neither value is real."""
        if not self.fakes:
            return 0.0
        others = self.values - self.size
        both = self.fakes * (self.fakes - 1) / (others * (others - 1)) if others > 1 else 0.0
        return (both - self.kappa**2) / (1 - self.kappa) ** 2

    @cached_property
    def records(self) -> Floats:
        """N^ (m,), within 0 and the times that a value is listed; exact where nothing is fake."""
        if not self.fakes:
            return np.asarray(self.pairs.sum(axis=1) / self.size)
        listed = self.most
        return np.clip((listed - self.kappa * self.buckets) / (1 - self.kappa), 0, listed)

    @property
    def most(self) -> Floats:
        """Records that each value has at most (m,)."""
        return np.asarray(self.pairs.diagonal()) if self.fakes else self.records

    @property
    def variance(self) -> Floats:
        """Var N^ (m,)."""
        return np.asarray((self.buckets - self.records) * self.kappa / (1 - self.kappa))

    @cached_property
    def products(self) -> Floats:
        """Sum of c^ c^T over the buckets (m, m)."""
        listed = np.diag(self.pairs)
        cross = self.pairs - self.kappa * (listed[:, None] + listed) + self.kappa**2 * self.buckets
        return np.asarray(cross / (1 - self.kappa) ** 2)

    @property
    def meetings(self) -> Floats:
        """G^ (m, m): how often two real values meet."""
        if not self.fakes:
            return np.asarray(self.pairs)
        neither = self.buckets - self.records[:, None] - self.records
        found = ((self.products - self.delta * neither) / (1 + self.delta)).clip(0)
        found[np.diag_indices(len(found))] = self.records
        return np.asarray(found)


def channel(classes: Sequence[Listed]) -> Channel:
    """The channel of c^/g: M from the real meetings, the noise's moment from c^ itself, which is noisier.

    A value that is in none of the buckets (of a sample) would be seen as itself.
    """
    moment = sum(listed.meetings / listed.size for listed in classes)
    records = sum(listed.records for listed in classes)
    rows = np.asarray(moment).sum(axis=1)
    noise = sum(listed.products / listed.size for listed in classes)
    absent = np.diag((rows == 0).astype(np.float64))
    mean = (np.asarray(moment) + absent) / np.where(rows == 0, 1.0, rows)[:, None]
    return Channel(mean, np.asarray(noise), np.maximum(np.asarray(records), 1e-6))


# Lists with fakes -----------------------------------------------------------------------------------------------------
# How records are seen through what their buckets list, by the law of the fakes.
#
# **Balanced** (``fakes``): given all lists, a record of value i is in each of the L_i buckets that list i with nearly
# the same probability, as each of these entries is real with r_i S/(S + sigma) and o_i of them are: an entry that is
# fake is a slot that stays empty. So what a set of records sees needs no correction. With w_g(x) = 1/(S + sigma) where
# g lists x, and e = sum of w over the records of Q, n of them by value,
#
#     E[e] = M^T n,   M_ix = A_ix / sum_y A_iy,   A = sum_j S_j/(S_j + sigma)^2 G_j,
#
#     G_j = how often two values are listed together in buckets of size S_j,
#
#     sum_i o_i E[w w^T | i] = sum_g S_g w_g w_g^T = A   (each bucket has S real values),
#
# and the sum of e over all records is known, as in the release without fakes: Cov[e] has the weight |Q|/N (1 - |Q|/N).
# With sigma = 0 this is that release. o_i is stated.
#
# **Uniform** over the values that are not in the bucket, in releases that state no law: ``unmask``.

FEWEST = 1e-6  # records of a value that is listed and has none


@dataclass(frozen=True)
class Through:
    """``channel``; by size of bucket, what every listed value adds to e, and what every record takes off each value;
    ``most`` (m,): records that each value has at most; ``uncertain`` (m,): variance of the channel's records where
    these are estimates; ``ratio`` (m,): r, how much more often than others a listed value is real.
    """

    channel: Channel
    scale: dict[int, float]
    less: dict[int, float]
    most: Floats
    uncertain: Floats | None
    ratio: Floats


def through(classes: Sequence[Listed], facts: dict[str, Any], listed: Floats | None = None) -> Through:
    """By the law that a release's ``facts`` state. ``listed`` (m,): how often each value is listed in the whole
    release, where ``classes`` are but some of its buckets.
    """
    if facts.get("fake_values", 0) and facts.get("fake_law") != LAW:
        return _uniform(classes)
    own = np.sum([one.pairs.diagonal() for one in classes], axis=0)
    matrix = reduce(add, [one.pairs * (one.size / (one.size + one.fakes) ** 2) for one in classes])
    covered = np.asarray(matrix.sum(axis=1))
    records = covered
    if "real" in facts:
        if len(facts["real"]) != len(own):
            raise EngineError("the release is damaged: it does not state how often each of its values is real")
        records = np.array(facts["real"], dtype=np.float64) * own / np.maximum(own if listed is None else listed, 1)
    absent = scipy.sparse.diags_array(
        (covered == 0).astype(np.float64)
    )  # in none of a sample's buckets: seen as itself
    mean = scipy.sparse.diags_array(1 / np.where(covered == 0, 1.0, covered)) @ (matrix + absent)
    return Through(
        Channel(mean, matrix, np.maximum(records, FEWEST)),
        {one.size: 1 / (one.size + one.fakes) for one in classes},
        {one.size: 0.0 for one in classes},
        records,
        None,
        records / np.maximum(covered, FEWEST),
    )


def _uniform(classes: Sequence[Listed]) -> Through:
    return Through(
        channel(classes),
        {one.size: 1 / (one.size * (1 - one.kappa)) for one in classes},
        {one.size: one.kappa / (1 - one.kappa) / one.size for one in classes},
        np.sum([one.most for one in classes], axis=0),
        np.sum([one.variance for one in classes], axis=0),
        np.ones(classes[0].values),
    )


# Baseline -------------------------------------------------------------------------------------------------------------
# Answers from a bucketized release by the papers' formula, with bounds that hold with certainty.
#
# Baseline: est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|. It treats the condition and the sensitive value as
# independent within a bucket, so it is biased towards independence and has no honest standard error. What is certain
# are Frechet's bounds: of n matching rows and c matching values in a bucket of size |g|, at least n + c - |g| and at
# most min(n, c) meet.

Part = tuple[int, Fraction, int, int]  # size, pairs, certain, possible
EXPECTED = "privsql_expected"
BASELINE_FORMULA = (
    "estimate = sum over buckets g of c_QIT(g, condition) * c_ST(g, values) / |g|; low and high are certain"
)


def baseline_statement(query: CountQuery, roles: Roles, facts: dict[str, Any]) -> exp.Query:
    """The SQL statement that an answer needs."""
    fakes = facts.get("fake_values", 0)
    holes: Holes = {
        "qit": query.records(table("qit")),
        "st": _with_expected(roles) if fakes else table("st"),
        "expected": column(EXPECTED) if fakes else roles.by_sa.column("count"),
        "qit_bid": roles.by_qi.column("bid"),
        "st_bid": roles.by_sa.column("bid"),
        "count": roles.by_sa.column("count"),
        "size": size_of_bucket(facts["setting"], exp.column("bid", table="s")),
        "groups": [column(f"g_{i}") for i in range(len(query.groups))],
        "predicate": query.predicate or exp.true(),
        "fakes": exp.Literal.number(fakes),
    }
    sides: tuple[Side, ...] = ("qi", "sa")
    for side in sides:
        holes[f"{side}_terms"] = select_terms(query, side)
        holes[f"{side}_keys"] = [expression for _, expression in group_terms(query, side)]
        holes[f"{side}_filter"] = every(query.filters[side])
    return fill("query/pairs", holes)


def _with_expected(roles: Roles) -> exp.Subquery:
    """ST with the relation of ``expected_records`` beside it."""
    own, names = roles.by_sa, [field.name for field in roles.sensitive]
    listed = exp.Column(this=exp.Star(), table=exp.to_identifier("l"))
    whole = exp.select(listed, named(column("expected", "e"), EXPECTED)).from_(table("st").as_("l"))
    whole = whole.join(table("privsql_values").as_("v"), on=same("l", "v", names))
    met = exp.and_(own.column("bid", "l").eq(column("bid", "e")), own.column("code", "v").eq(column("code", "e")))
    return whole.join(temp("expected").as_("e"), on=met).subquery()


def estimate_baseline(db: Relations, query: CountQuery, roles: Roles, facts: dict[str, Any]) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
    if query.measure.kind != "count":
        raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
    found = [
        _summed(group, parts) for group, parts in _by_group(db.rows(baseline_statement(query, roles, facts))).items()
    ]
    return found if found or query.groups else [exactly((), 0.0)]


def expected_records(db: Relations, roles: Roles, facts: dict[str, Any], law: Through) -> pa.Table:
    """Return how many records of a bucket have each value that it lists, on average over what may be fake.

    By the law of the fakes, moved so that a bucket's values add up to its size and none has more records than places:
    then estimates lie within their bounds, and those of groups add up.
    """
    own = roles.by_sa
    holes: Holes = {
        "st": exp.select(*own.read("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": exp.select(*own.read("code"), *roles.sa_in()).from_(table("privsql_values")).subquery(),
        "same_value": same("s", "v", roles.sa_keys),
        "filter": exp.true(),
    }
    rows = db.arrow(fill("query/composed", holes))
    bid, code, places = (rows[name].to_numpy() for name in ("bid", "code", "records"))
    ends = np.cumsum(list(facts["setting"].values()))
    sizes = np.array([int(size) for size in facts["setting"]])
    bids, member = np.unique(bid, return_inverse=True)
    order = np.argsort(member, kind="stable")
    rank = np.empty(len(bid), dtype=np.int64)
    rank[order] = np.arange(len(bid)) - np.searchsorted(member[order], np.arange(len(bids)))[member[order]]
    size = sizes[np.searchsorted(ends, bids, side="right")]
    scale = np.array([law.scale[int(own_size)] for own_size in size])[member] * size[member]
    values, caps = (np.zeros((len(bids), int(rank.max(initial=-1)) + 1)) for _ in range(2))
    caps[member, rank] = places
    values[member, rank] = places * scale * law.ratio[code]
    moved = within(values, size.astype(np.float64), caps, np.ones(values.shape[1]))
    return pa.table({"bid": rows["bid"], "code": rows["code"], "expected": moved[member, rank]})


def _by_group(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[Part]]:
    """Rows (size, groups.., pairs, certain, possible) collected per group."""
    groups: dict[tuple[Any, ...], list[Part]] = defaultdict(list)
    for size, *group, pairs, certain, possible in rows:
        groups[tuple(map(same_nan, group))].append((int(size), Fraction(pairs), int(certain), int(possible)))
    return groups


def _summed(group: tuple[Any, ...], parts: list[Part]) -> Estimate:
    estimate = sum((pairs / size for size, pairs, _, _ in parts), Fraction(0))
    low, high = sum(part[2] for part in parts), sum(part[3] for part in parts)
    middle = min(max(float(estimate), low), high)  # but for rounding it is there
    return Estimate(group, middle, 0.0 if low == high else None, float(low), float(high))


# Reconstruct ----------------------------------------------------------------------------------------------------------
# Answers from a bucketized release through its channel (see ``privsql.answers.channel`` for the algebra).
#
# A record of value i sits in a uniformly random slot of that value, so e_x = sum over the matching records of count(g,
# x)/|g| has E[e] = M^T n with M_ix = G_ix / o_i, G = sum_g count(g) count(g)^T / |g|: public, from ST alone. The
# records of Q take their slots without replacement, hence the weight |Q|/N (1 - |Q|/N) of the noise.

CHANNEL_FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given e = sum over the matching records "
    "of count(g, .)/|g|; E[e] = M^T n, M from ST (see privsql.channel)"
)


def listed_values(parts: pa.Table, setting: dict[str, int], fakes: int = 0) -> list[Listed]:
    """``privsql_channel`` by bucket size; every value is listed somewhere, so all codes are there."""
    size, first, second, pairs = (parts[name].to_numpy() for name in ("size", "first", "second", "pairs"))
    values = int(second.max()) + 1
    if set(np.unique(size).tolist()) != {int(own) for own in setting}:
        raise EngineError("the release is damaged: its channel is not one of its bucket sizes")
    found = []
    for own, buckets in setting.items():
        rows = size == int(own)
        found.append(Listed(int(own), buckets, symmetric(values, first[rows], second[rows], pairs[rows]), fakes))
    return found


def symmetric(values: int, first: Ints, second: Ints, pairs: Ints) -> Matrix:
    """A symmetric matrix (m, m) from its upper triangle; sparse where there are very many values."""
    if values > LARGE:
        upper = scipy.sparse.coo_array((pairs.astype(np.float64), (first, second)), shape=(values, values)).tocsr()
        return (upper + scipy.sparse.triu(upper, 1).T).tocsr()
    square = zeros(values, values)
    square[first, second] = pairs
    return np.triu(square) + np.triu(square, 1).T


def seen(parts: pa.Table, facts: dict[str, Any]) -> Channel:
    """The channel of ``privsql_channel``."""
    return through(listed_values(parts, facts["setting"], facts.get("fake_values", 0)), facts).channel


def got_through(channel: Channel) -> dict[str, Any]:
    """The facts ``mean_belief``, of all records in their own value, and ``channel``; not where values are very many.

    The belief in a listed value is its share of the list.
    """
    mean = {"mean_belief": own_share(channel)}
    return mean | {"channel": singular(channel)} if len(channel.records) <= LARGE else mean


def directions(parts: pa.Table, facts: dict[str, Any]) -> dict[str, Any]:
    """The same from ``privsql_channel``."""
    return got_through(seen(parts, facts))


def read_channel(db: Relations, facts: dict[str, Any]) -> Through:
    """How records are seen in an open release."""
    parts = db.arrow(all_rows(table("privsql_channel")))
    return through(listed_values(parts, facts["setting"], facts.get("fake_values", 0)), facts)


def channel_statement(query: CountQuery, roles: Roles, facts: dict[str, Any]) -> exp.Query:
    """The SQL statement that reads the release for an answer."""
    keys = [name for name, _ in group_terms(query, "qi")]
    amount, own = query.measure.amount, roles.by_sa
    holes: Holes = {
        "qit": query.records(table("qit")),
        "bid": roles.by_qi.column("bid"),
        "st": exp.select(*own.read("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": exp.select(*own.read("code"), *roles.sa_in()).from_(table("privsql_values")).subquery(),
        "terms": select_terms(query, "qi"),
        "keys": [expression for _, expression in group_terms(query, "qi")],
        "filter": every(query.filters["qi"]),
        "totals": [named(exp.Sum(this=amount), "t")] if amount else [],
        "amounts": [named(exp.Sum(this=exp.column("t", "q") * column("count", "s")), "amounts")] if amount else [],
        "amount": [exp.column("amounts", "sums")] if amount else [],
        "groups": [column(key) for key in keys],
        "sa": roles.sa("s"),
        "size": size_of_bucket(facts["setting"], exp.column("bid", table="s")),
        "same_value": same("sums", "v", roles.sa_keys),
    }
    return fill("query/observed", holes)


def observe(asked: QuestionOn, roles: Roles, facts: dict[str, Any], seen_through: Through) -> Observed:
    """E of every set: the sum over its records of what their buckets list, by the law of the fakes (``through``)."""
    rows = asked.db.arrow(channel_statement(asked.query, roles, facts))
    size = rows["size"].to_numpy()
    seen = sets(asked, rows, _by_size(seen_through.scale)[size])
    if not any(seen_through.less.values()):
        return seen
    # Every record adds |g| + sigma listed values; what they add on average by being fake is taken off each value.
    ranks, each = rows["set"].to_numpy(), _by_size(seen_through.less)[size] / (size + facts["fake_values"])

    def less(name: str, sums: Floats) -> Floats:
        if name not in rows.column_names:
            return sums
        weights = added(rows[name]) * each
        return np.asarray(sums - np.bincount(ranks, weights, minlength=len(sums))[:, None])

    return replace(seen, observed=less("pairs", seen.observed), amounts=less("amounts", seen.amounts))


def _by_size(amounts: dict[int, float]) -> Floats:
    found = np.zeros(max(amounts) + 1)
    found[list(amounts)] = list(amounts.values())
    return found


def split_certain(db: Relations, query: CountQuery, roles: Roles, seen_through: Through) -> QuestionOn:
    """The question with what is certain of the values' records, and what is not."""
    return QuestionOn(
        db,
        query,
        table("qit"),
        seen_through.channel,
        most=seen_through.most,
        uncertain=seen_through.uncertain,
        code=roles.by_sa.called("code"),
    )


# Sample ---------------------------------------------------------------------------------------------------------------
# The records of some buckets of an open release as arrays, to learn from (``privsql.answers.learnt``).


def sample(db: Relations, roles: Roles, setting: dict[str, int], through: Through) -> Sample:
    """Whole buckets with about ``MOST`` records, the same ones every time; all of a release that is no larger."""
    sizes, buckets = np.array([int(size) for size in setting]), np.array(list(setting.values()))
    share = min(1.0, MOST_RECORDS / float(sizes @ buckets))
    own, bid = roles.by_sa, roles.by_qi.column("bid")
    placed: Holes = {
        "qit": table("qit"), "bid": bid, "columns": comparable(roles), "filter": some_buckets(share, bid)
    }  # fmt: skip
    rows = db.arrow(fill("query/placed", placed))
    holes: Holes = {
        "st": exp.select(*own.read("bid", "count"), *roles.sa_in()).from_(table("st")).subquery(),
        "values": exp.select(*own.read("code"), *roles.sa_in()).from_(table("privsql_values")).subquery(),
        "same_value": same("s", "v", roles.sa_keys),
        "filter": some_buckets(share, column("bid", "s")),
    }
    listed = db.arrow(fill("query/composed", holes))
    bids, code, records = (listed[name].to_numpy() for name in ("bid", "code", "records"))
    known = np.unique(bids)
    scale = np.array([through.scale[int(size)] for size in setting])
    amounts = records * scale[np.searchsorted(np.cumsum(buckets), bids, side="right")]
    at = np.searchsorted(known, bids), code
    shown = scipy.sparse.coo_array((amounts, at), shape=(len(known), len(through.channel.records))).tocsr()
    numbers = rows["bid"].to_numpy()
    places = np.searchsorted(known, numbers).clip(max=len(known) - 1).astype(np.int32)
    if not np.array_equal(known[places], numbers):
        raise EngineError("the release is damaged: QIT has a bucket that ST does not list")
    names = (field.name for field in roles.quasi_identifiers)
    return Sample(places, shown, {name: encoded(rows[key]) for name, key in zip(names, roles.qi_keys, strict=True)})
