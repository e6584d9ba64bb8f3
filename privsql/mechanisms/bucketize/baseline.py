"""Answers from a bucketized release by the papers' formula, with bounds that hold with certainty.

Baseline: est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|. It treats the condition and the sensitive value as independent
within a bucket, so it is biased towards independence and has no honest standard error. What is certain are Frechet's
bounds: of n matching rows and c matching values in a bucket of size |g|, at least n + c - |g| and at most min(n, c)
meet.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.answers.interval import within
from privsql.answers.question import CountQuery, Side, group_terms, select_terms
from privsql.engine.sqlfiles import Holes, column, every, fill, named, same, table, temp
from privsql.errors import UsageError
from privsql.mechanisms.bucketize.tables import size_of_bucket
from privsql.model.estimate import Estimate, exactly, same_nan

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles
    from privsql.mechanisms.bucketize.through import Through

Part = tuple[int, Fraction, int, int]  # size, pairs, certain, possible
EXPECTED = "privsql_expected"
FORMULA = "estimate = sum over buckets g of c_QIT(g, condition) * c_ST(g, values) / |g|; low and high are certain"


def statement(query: CountQuery, roles: Roles, facts: dict[str, Any]) -> exp.Query:
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


def estimate(db: Relations, query: CountQuery, roles: Roles, facts: dict[str, Any]) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
    if query.measure.kind != "count":
        raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
    found = [_summed(group, parts) for group, parts in _by_group(db.rows(statement(query, roles, facts))).items()]
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
