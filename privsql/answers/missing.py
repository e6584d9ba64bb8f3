"""Records of the source that are not in the release: how many could meet a question, and what that does to an answer.

Bounds and intervals are of the source. A record that was left out adds nothing to a count, or one; what it adds to a
sum or a mean is not known. It can't meet a question that lets no NULL through in the columns for whose NULL it was
left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.answers.functions import COMPARISONS
from privsql.answers.question import COUNTS

if TYPE_CHECKING:
    from privsql.answers.question import CountQuery
    from privsql.model.estimate import Estimate, RestsOn
    from privsql.model.manifest import Manifest

REFUSES = (*COMPARISONS, exp.In, exp.Between, exp.Like, exp.ILike)


def touching(query: CountQuery, manifest: Manifest) -> int:
    """How many records of the source that are not in the release could meet a question; 0 where none is stated."""
    suppressed, left_out = manifest.suppressed or 0, int(manifest.facts.get("left_out", 0))
    empty = [name for name, policy in manifest.nulls.items() if policy == "suppress"]
    refused = bool(empty) and all(_lets_no_null_through(query, name) for name in empty)
    return left_out if refused else suppressed


def _lets_no_null_through(query: CountQuery, name: str) -> bool:
    """Whether a record whose column ``name`` is NULL meets no row of the answer, or adds nothing to it.

    No group of the answer has NULL there, since the release has none.
    """
    if query.measure.column == name or any(group.column == name for group in query.groups):
        return True
    if any(ours == name for lookup in query.lookups if not lookup.kept for _, ours in lookup.keys):
        return True
    return any(_refuses_null(part, name) for side in query.filters.values() for part in side)


def _refuses_null(part: exp.Expr, name: str) -> bool:
    """Whether a condition is a comparison of a column itself, which is never true of NULL."""
    part = part.unnest()
    if isinstance(part, exp.Not) and isinstance(part.this.unnest(), exp.Is):
        inner = part.this.unnest()
        return isinstance(inner.expression, exp.Null) and _is(inner.this, name)
    if not isinstance(part, REFUSES) or isinstance(part, exp.NullSafeEQ | exp.NullSafeNEQ):
        return False
    return _is(part.this, name) or _is(part.args.get("expression"), name)


def _is(item: exp.Expr | None, name: str) -> bool:
    return isinstance(item, exp.Column) and item.name == name


def widened(query: CountQuery, found: list[Estimate], missing: int) -> list[Estimate]:
    """The rows with bounds of the source, of which ``missing`` more records could meet each of them."""
    if not missing:
        return found
    return [_widened(query, one, missing) for one in found]


def _widened(query: CountQuery, one: Estimate, missing: int) -> Estimate:
    low, high = one.low, one.high
    if query.measure.kind in COUNTS:
        high = None if high is None else high + missing
    else:  # one record more makes a minimum smaller only, and a maximum larger
        low = low if query.measure.kind == "max" else None
        high = high if query.measure.kind == "min" else None
    return replace(one, low=low, high=high, std_error=one.std_error or None)


def rests_on(before: RestsOn, found: list[Estimate], missing: int) -> RestsOn:
    """What an answer rests on where there is any record to measure, once its bounds are those of the source.

    ``before``: what it rests on by the release.
    """
    known = [one for one in found if one.estimate is not None]
    if known and all(one.low is None and one.high is None for one in known):
        return "point"
    if known and before != "point" and all(one.is_fixed for one in known):
        before = "exact"  # whatever else it was asked with, the release holds it
    rounded = any(one.std_error is None for one in known)
    return "certain" if before == "exact" and (missing or rounded) else before
