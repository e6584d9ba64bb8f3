"""Answers from a bucketized release by the papers' formula, with bounds that hold with certainty.

Baseline: est = sum_g c_QIT(g, cond) * c_ST(g, X) / |g|. It treats the condition and the sensitive value as independent
within a bucket, so it is biased towards independence and has no honest standard error. What is certain are Frechet's
bounds: of n matching rows and c matching values in a bucket of size |g|, at least n + c - |g| and at most min(n, c)
meet.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.answers.counts import Bounds
from privsql.answers.posterior import Level, collected, nothing
from privsql.answers.question import CountQuery, Side, group_terms, select_terms
from privsql.answers.seen import chosen, dotted
from privsql.engine.sqlfiles import Holes, column, every, fill, table
from privsql.errors import UsageError
from privsql.mechanisms.bucketize.tables import size_of_bucket
from privsql.model.estimate import Estimate, exactly, same_nan

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.answers.seen import Observed, QuestionOn
    from privsql.engine.database import Relations
    from privsql.engine.roles import Roles

FORMULA = "estimate = sum over buckets g of c_QIT(g, condition) * c_ST(g, values) / |g|; low and high are certain"


def statement(query: CountQuery, roles: Roles, facts: dict[str, Any]) -> exp.Query:
    """The SQL statement that an answer needs."""
    holes: Holes = {
        "qit": query.records(table("qit")),
        "st": table("st"),
        "qit_bid": roles.by_qi.column("bid"),
        "st_bid": roles.by_sa.column("bid"),
        "count": roles.by_sa.column("count"),
        "size": size_of_bucket(facts["setting"], exp.column("bid", table="s")),
        "groups": [column(f"g_{i}") for i in range(len(query.groups))],
        "predicate": query.predicate or exp.true(),
        "fakes": exp.Literal.number(facts.get("fake_values", 0)),
    }
    sides: tuple[Side, ...] = ("qi", "sa")
    for side in sides:
        holes[f"{side}_terms"] = select_terms(query, side)
        holes[f"{side}_keys"] = [expression for _, expression in group_terms(query, side)]
        holes[f"{side}_filter"] = every(query.filters[side])
    return fill("query/pairs", holes)


def estimate(db: Relations, query: CountQuery, roles: Roles, facts: dict[str, Any]) -> list[Estimate]:
    """The answer's rows, one per group that can be non-empty; a single row without GROUP BY."""
    if query.measure.kind != "count":
        raise UsageError(f"{query.measure.kind.upper()} needs the estimator 'reconstructed'")
    found = [_summed(group, parts) for group, parts in _by_group(db.rows(statement(query, roles, facts))).items()]
    return found if found or query.groups else [exactly((), 0.0)]


def corrected(asked: QuestionOn, seen: Observed, roles: Roles, facts: dict[str, Any], ratio: Floats) -> list[Estimate]:
    """The formula with fake values taken off on average, x^T (r e), ``ratio`` r (m,): how much more often than others a
    listed value is real. The bounds count every listed value as real or not.
    """
    bounds = {one.group: one for one in estimate(asked.db, asked.query, roles, facts)}
    outputs, functionals = chosen(asked, seen, seen.observed.shape[1])
    if not seen.keys or not outputs:
        return nothing(asked.query)
    mean = dotted(seen.observed * ratio, functionals)
    parts = Bounds(mean, np.zeros_like(mean), np.full_like(mean, -np.inf), np.full_like(mean, np.inf))
    means = {one.group: one.estimate for one in collected(asked, seen, outputs, parts, Level(0.5))}
    return [replace(one, estimate=means[group]) for group, one in bounds.items()]


def _by_group(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[tuple[int, int, int, int]]]:
    """Rows (size, groups.., pairs, certain, possible) collected per group."""
    groups: dict[tuple[Any, ...], list[tuple[int, int, int, int]]] = defaultdict(list)
    for size, *group, pairs, certain, possible in rows:
        groups[tuple(map(same_nan, group))].append((int(size), int(pairs), int(certain), int(possible)))
    return groups


def _summed(group: tuple[Any, ...], parts: list[tuple[int, int, int, int]]) -> Estimate:
    estimate = sum((Fraction(pairs, size) for size, pairs, _, _ in parts), Fraction(0))
    low, high = sum(part[2] for part in parts), sum(part[3] for part in parts)
    return Estimate(group, float(estimate), 0.0 if low == high else None, float(low), float(high))
