"""The tables of a bucketized release, and the views over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.database import IntervalFunctions
from privsql.engine.sqlfiles import Holes, alias_as, column, fill, same_columns, table
from privsql.mechanisms.base import WEIGHTED, Views
from privsql.mechanisms.bucketize.parameters import BucketizeFacts
from privsql.model.tables import QUASI, SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.model.manifest import Manifest

TABLES = {
    "qit": ReleaseTable((QUASI, "bid INTEGER")),
    "st": ReleaseTable(("bid INTEGER", SENSITIVE, "count INTEGER")),
    "privsql_values": ReleaseTable(
        (
            "code INTEGER", SENSITIVE, "records BIGINT", "numerator DECIMAL(38,0)", "denominator DECIMAL(38,0)",
            "deviation DOUBLE",
        )
    ),
    "privsql_channel": ReleaseTable(("size INTEGER", "first INTEGER", "second INTEGER", "pairs BIGINT")),
    "privsql_estimator": ReleaseTable(("listed INTEGER", "value INTEGER", "weight DOUBLE")),
}  # fmt: skip


def make_views(manifest: Manifest) -> Views:
    """Return the views ``weighted`` and ``pairs`` over QIT and ST, in which sums of weights estimate counts.

    In ``pairs``, a record stands beside every value of its bucket, weighted by the value's share of the bucket. Such
    estimates are biased. So ``weighted`` has the published weights of the linear estimator in place of the shares. In a
    release without these weights, both views are the same.
    """
    roles, facts = manifest.roles, BucketizeFacts.model_validate(manifest.facts)
    by_st = roles.by_sa
    size = size_of_bucket(facts.sizes, by_st.as_column("bid", "st"))
    fakes = exp.Literal.number(facts.fake_values)
    holes: Holes = {
        "qit": table("qit"),
        "st": table("st"),
        "qi": [alias_as(column(f.name, "qit"), f.name) for f in roles.quasi_identifiers],
        "size": exp.paren(exp.Add(this=size, expression=fakes)) if facts.fake_values else size,
        "count": by_st.as_column("count", "st"),
        "qit_bid": roles.by_qi.as_column("bid", "qit"),
        "st_bid": by_st.as_column("bid", "st"),
        **roles.by_all.alias_holes("weight"),
    }
    pairs = fill("bucketize/pairs", {**holes, "sa": [alias_as(column(f.name, "st"), f.name) for f in roles.sensitive]})
    if facts.weighting == "share":
        return {WEIGHTED: pairs, "pairs": pairs.copy()}
    holes |= {
        "values": table("privsql_values"),
        "estimator": table("privsql_estimator"),
        "sa": [alias_as(column(f.name, "named"), f.name) for f in roles.sensitive],
        "same_value": same_columns("st", "listed", [f.name for f in roles.sensitive]),
        "listed_code": by_st.as_column("code", "listed"),
        "named_code": by_st.as_column("code", "named"),
        "deviation": by_st.as_column("deviation", "named"),
        **roles.by_all.alias_holes("variance"),
    }
    return {WEIGHTED: fill("bucketize/weighted", holes), "pairs": pairs}


def make_functions(manifest: Manifest) -> IntervalFunctions | None:
    """Return the SQL functions with which analysts get counts with intervals from the view ``weighted``.

    The result is None if that view weighs a value by its share of the record's bucket, because such counts are biased.
    """
    is_linear = BucketizeFacts.model_validate(manifest.facts).weighting == "linear"
    return IntervalFunctions(manifest.published_records) if is_linear else None


def size_of_bucket(sizes: Sequence[tuple[int, int]], bid: exp.Expr) -> exp.Expr:
    """Return SQL for the number of records of a bucket, as a CASE over its number: buckets are numbered by size.

    Args:
        sizes: (size, number of buckets), by rising size.
        bid: SQL for the number of the bucket.
    """
    last = exp.Literal.number(sizes[-1][0])
    if len(sizes) == 1:
        return exp.cast(last, "INTEGER")  # GROUP BY would read a bare number as a position in the select list
    case, end = exp.Case(), 0
    for size, buckets in sizes[:-1]:
        end += buckets
        case = case.when(exp.LT(this=bid.copy(), expression=exp.Literal.number(end)), exp.Literal.number(size))
    return case.else_(last)
