"""Answers from a bucketized release through its channel (see ``privsql.channel`` for the algebra).

A record of value i sits in a uniformly random slot of that value, so e_x = sum over the matching records of
count(g, x)/|g| has E[e] = M^T n with M_ix = G_ix / o_i, G = sum_g count(g) count(g)^T / |g|: public, from ST alone. The
records of Q take their slots without replacement, hence the weight |Q|/N (1 - |Q|/N) of the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql import posterior
from privsql.channel import Channel
from privsql.mechanisms.bucketize.view import size_of_bucket
from privsql.posterior import Asked, sets
from privsql.question import CountQuery, group_terms, select_terms
from privsql.sqlfiles import Holes, all_rows, column, every, fill, named, same, table

if TYPE_CHECKING:
    from privsql.database import Database
    from privsql.estimates import Estimate
    from privsql.roles import Roles

FORMULA = (
    "estimate = x^T n, n the posterior mean of the counts per sensitive value given e = sum over the matching records "
    "of count(g, .)/|g|; E[e] = M^T n, M from ST (see privsql.channel)"
)


def channel(db: Database) -> Channel:
    """The channel of an open release, from ``privsql_channel``; every value meets itself, so all codes are there."""
    parts = db.arrow(all_rows(table("privsql_channel")))
    size, first, second, pairs = (parts[name].to_numpy() for name in ("size", "first", "second", "pairs"))
    values = int(second.max()) + 1
    moment = np.zeros((values, values))
    np.add.at(moment, (first, second), pairs / size)
    moment = np.triu(moment) + np.triu(moment, 1).T
    records = moment.sum(axis=1)
    return Channel(moment / records[:, None], moment, records)


def statement(query: CountQuery, roles: Roles, facts: dict[str, Any]) -> exp.Query:
    """The SQL statement that reads the release for an answer."""
    keys = [name for name, _ in group_terms(query, "qi")]
    amount = query.measure.amount
    holes: Holes = {
        "qit": query.records(table("qit")),
        "st": exp.select("bid", *roles.sa_in(), column("count")).from_(table("st")).subquery(),
        "values": exp.select("code", *roles.sa_in()).from_(table("privsql_values")).subquery(),
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


def estimate(
    db: Database, query: CountQuery, roles: Roles, facts: dict[str, Any], through: Channel, confidence: float
) -> list[Estimate]:
    """The answer's rows: estimates, standard errors and intervals, one per group that can be non-empty."""
    asked = Asked(db, query, table("qit"), through)
    rows = db.arrow(statement(query, roles, facts))
    seen = sets(asked, rows, 1 / rows["size"].to_numpy())
    return posterior.estimate(asked, seen, confidence)
