"""Answers from a bucketized release through its channel (see ``privsql.answers.channel`` for the algebra).

A record of value i sits in a uniformly random slot of that value, so e_x = sum over the matching records of
count(g, x)/|g| has E[e] = M^T n with M_ix = G_ix / o_i, G = sum_g count(g) count(g)^T / |g|: public, from ST alone. The
records of Q take their slots without replacement, hence the weight |Q|/N (1 - |Q|/N) of the noise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from sqlglot import exp

from privsql.answers.channel import own_share, singular
from privsql.answers.question import CountQuery, group_terms, select_terms
from privsql.answers.reconstruct import LARGE
from privsql.answers.seen import Observed, QuestionOn, added, sets
from privsql.engine.sqlfiles import Holes, all_rows, column, every, fill, named, same, table
from privsql.errors import EngineError
from privsql.mechanisms.bucketize.tables import size_of_bucket
from privsql.mechanisms.bucketize.through import Through, through
from privsql.mechanisms.bucketize.unmask import Listed
from privsql.model.arrays import zeros

if TYPE_CHECKING:
    import pyarrow as pa

    from privsql.answers.channel import Channel, Floats, Matrix
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.model import Ints

FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given e = sum over the matching records "
    "of count(g, .)/|g|; E[e] = M^T n, M from ST (see privsql.channel)"
)


def listed(parts: pa.Table, setting: dict[str, int], fakes: int = 0) -> list[Listed]:
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
    return through(listed(parts, facts["setting"], facts.get("fake_values", 0)), facts).channel


def got_through(channel: Channel) -> dict[str, Any]:
    """The facts ``mean_belief``, of all records in their own value, and ``channel``; not where values are very many.

    The belief in a listed value is its share of the list.
    """
    mean = {"mean_belief": own_share(channel)}
    return mean | {"channel": singular(channel)} if len(channel.records) <= LARGE else mean


def directions(parts: pa.Table, facts: dict[str, Any]) -> dict[str, Any]:
    """The same from ``privsql_channel``."""
    return got_through(seen(parts, facts))


def read(db: Relations, facts: dict[str, Any]) -> Through:
    """How records are seen in an open release."""
    parts = db.arrow(all_rows(table("privsql_channel")))
    return through(listed(parts, facts["setting"], facts.get("fake_values", 0)), facts)


def statement(query: CountQuery, roles: Roles, facts: dict[str, Any]) -> exp.Query:
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
    rows = asked.db.arrow(statement(asked.query, roles, facts))
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


def asked_of(db: Relations, query: CountQuery, roles: Roles, seen_through: Through) -> QuestionOn:
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
