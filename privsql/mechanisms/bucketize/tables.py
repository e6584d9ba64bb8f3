"""The tables of a bucketized release: their columns, its weighted view, and what the number of a bucket says."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, named, table

if TYPE_CHECKING:
    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest

GOLDEN, TURN = 2654435769, 2**32  # number * GOLDEN mod TURN spreads any run of numbers evenly
VALUE_COLUMNS = [("records", "BIGINT"), ("numerator", "DECIMAL(38,0)"), ("denominator", "DECIMAL(38,0)")]


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    roles, own = manifest.roles, manifest.roles.by_sa
    sensitive = [(f.name, f.type) for f in roles.sensitive]
    return {
        "qit": [*((f.name, f.type) for f in roles.quasi_identifiers), *roles.by_qi.typed(("bid", "INTEGER"))],
        "st": [*own.typed(("bid", "INTEGER")), *sensitive, *own.typed(("count", "INTEGER"))],
        "privsql_values": [*own.typed(("code", "INTEGER")), *sensitive, *own.typed(*VALUE_COLUMNS)],
        "privsql_channel": [("size", "INTEGER"), ("first", "INTEGER"), ("second", "INTEGER"), ("pairs", "BIGINT")],
    }


def view(manifest: Manifest) -> exp.Query:
    """The weighted view over QIT and ST."""
    roles = manifest.roles
    holes: Holes = {
        "qit": table("qit"),
        "st": table("st"),
        "qi": [named(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "sa": [named(column(f.name, "st"), f.name) for f in roles.sensitive],
        "size": _listed(manifest.facts, roles.by_sa.column("bid", "st")),
        "count": roles.by_sa.column("count", "st"),
        "qit_bid": roles.by_qi.column("bid", "qit"),
        "st_bid": roles.by_sa.column("bid", "st"),
        **roles.by_all.names("weight"),
    }
    return fill("bucketize/weighted", holes)


def _listed(facts: dict[str, Any], bid: exp.Expr) -> exp.Expr:
    """How many values a bucket lists: its records, and its fakes."""
    size = size_of_bucket(facts["setting"], bid)
    fakes = facts.get("fake_values", 0)
    return exp.paren(exp.Add(this=size, expression=exp.Literal.number(fakes))) if fakes else size


def size_of_bucket(setting: dict[str, int], bid: exp.Expr) -> exp.Expr:
    """|g| from the bucket's number: buckets are numbered by size, so a CASE over the sizes replaces a join."""
    sizes = [(int(size), int(buckets)) for size, buckets in setting.items()]
    ends = np.cumsum([buckets for _, buckets in sizes]).tolist()
    case = exp.Case()
    for (size, _), end in zip(sizes[:-1], ends[:-1], strict=True):
        case = case.when(exp.LT(this=bid.copy(), expression=exp.Literal.number(end)), exp.Literal.number(size))
    last = exp.Literal.number(sizes[-1][0])
    # A bare number in GROUP BY would be read as a position in the select list.
    return case.else_(last) if len(sizes) > 1 else exp.cast(last, "INTEGER")


def some_buckets(share: float, bid: exp.Expr) -> exp.Expr:
    """About a share of the buckets, the same ones every time; numbers that follow each other are spread evenly."""
    if share >= 1:
        return exp.true()
    turned = exp.paren(exp.Mul(this=exp.cast(bid, "BIGINT"), expression=exp.Literal.number(GOLDEN)))
    part = exp.Mod(this=turned, expression=exp.Literal.number(TURN))
    return exp.LT(this=part, expression=exp.Literal.number(ceil(share * TURN)))
