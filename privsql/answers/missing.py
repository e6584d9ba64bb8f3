"""Account for records of the source that the release leaves out: how many could match, and how bounds change.

Bounds and intervals are meant for the source. A record that was left out adds at most one to a count; what it adds to a
sum or mean is unknown. If records are left out because of a NULL, they can't match a question that excludes NULL in the
column.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.sql.grammar import COMPARISONS
from privsql.answers.sql.question import COUNTS, CountQuery

if TYPE_CHECKING:
    from privsql.model.estimates import Estimate, RestsOn
    from privsql.model.manifest import Manifest

REFUSES = (*COMPARISONS, exp.In, exp.Between, exp.Like, exp.ILike)


def count_touching(query: CountQuery, manifest: Manifest) -> int:
    """Return how many records that the release leaves out could match a question; 0 if the release states no number."""
    suppressed, left_out = manifest.suppressed or 0, int(manifest.facts.get("left_out", 0))
    empty = [name for name, policy in manifest.nulls.items() if policy == "suppress"]
    refused = bool(empty) and all(_lets_no_null_through(query, name) for name in empty)
    return left_out if refused else suppressed


def _lets_no_null_through(query: CountQuery, name: str) -> bool:
    """Return whether records of the source that have NULL in a column add nothing to any row of the answer.

    It is so if the question compares the column, joins by it or aggregates it, since NULL never matches and is not
    aggregated. It is also so if the question groups by the column, since no row of the answer is the group of NULL.

    Args:
        query: The question.
        name: The column; the release leaves out all records that have NULL in it.
    """
    if query.measure.column == name or any(group.column == name for group in query.groups):
        return True
    if any(ours == name for lookup in query.lookups if not lookup.keeps_unmatched for _, ours in lookup.keys):
        return True
    for part in (part.unnest() for side in query.filters.values() for part in side):
        compared: list[exp.Expr | None] = []
        if isinstance(part, exp.Not) and isinstance(part.this.unnest(), exp.Is):
            inner = part.this.unnest()
            compared = [inner.this] if isinstance(inner.expression, exp.Null) else []
        elif isinstance(part, REFUSES) and not isinstance(part, exp.NullSafeEQ | exp.NullSafeNEQ):
            compared = [part.this, part.args.get("expression")]
        if any(isinstance(one, exp.Column) and one.name == name for one in compared):
            return True
    return False


def widen_rows(query: CountQuery, rows: list[Estimate], missing: int) -> list[Estimate]:
    """Widen the bounds of an answer so that they hold for the source.

    Args:
        query: The question.
        rows: The rows of the answer, with bounds for the release.
        missing: The number of records outside of the release that could match.
    """
    wide = []
    for one in rows if missing else ():
        low, high = one.low, one.high
        if query.measure.kind in COUNTS:
            high = None if high is None else high + missing
        else:  # one record more makes a minimum smaller only, and a maximum larger
            low = low if query.measure.kind == "max" else None
            high = high if query.measure.kind == "min" else None
        wide.append(replace(one, low=low, high=high, std_error=one.std_error or None))
    return wide if missing else rows


def weaken_grounds(before: RestsOn, rows: list[Estimate], missing: int) -> RestsOn:
    """Return how reliable the bounds of an answer are for the source, on condition that any record matches.

    Args:
        before: How reliable they are for the release.
        rows: The rows, with bounds for the source.
        missing: The number of records outside of the release that could match.
    """
    known = [one for one in rows if one.estimate is not None]
    if known and all(one.low is None and one.high is None for one in known):
        return "point"
    if known and before != "point" and all(one.is_fixed for one in known):
        before = "exact"  # whatever else it was asked with, the release holds it
    rounded = any(one.std_error is None for one in known)
    return "certain" if before == "exact" and (missing or rounded) else before
