"""Propose noisy tables of a column's values, with a list of values that the publisher has to confirm."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import TYPE_CHECKING, Any

from privsql.errors import InfeasibleError
from privsql.mechanisms.base import Proposal
from privsql.mechanisms.label_tables.parameters import reach_of
from privsql.mechanisms.label_tables.plan import require_values
from privsql.mechanisms.label_tables.rule import foresee_precision
from privsql.mechanisms.perturb.parameters import Randomize
from privsql.model.universes import OTHER

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.base import ProfiledSource

MOST_VALUES = 60
FEWEST_RECORDS = 10  # rarer values are not proposed for the public list, and count as 'other'
EPSILON = "1.386294"  # ln 4, rounded down
FACTOR = round(exp(float(EPSILON)))


def propose_tables(db: Relations, source: ProfiledSource) -> Proposal:
    """Propose noisy tables by which nobody can change the odds of a value by more than a factor of 4.

    The values are left for the publisher to decide, because a public list would reveal that a rare value occurs.

    Raises:
        InfeasibleError: There are too many values, or records have survey weights, which would multiply the noise. Or
            one record of each person is taken, and no column orders them; then values would decide which one it is.
    """
    if source.weights:
        raise InfeasibleError("noisy tables know no survey weights")
    if source.persons and not source.first:
        raise InfeasibleError("which record of a person is taken would depend on its value; no column orders them")
    records = source.records()
    counted = {label: count for label, count in zip(records.labels, records.counts, strict=True) if label != "NULL"}
    values = [label for label, count in counted.items() if count >= FEWEST_RECORDS and label != OTHER]
    if not values or len(counted) > MOST_VALUES:
        raise InfeasibleError(f"noisy tables take up to {MOST_VALUES} values, and there are {len(counted):,}")
    parameters: dict[str, Any] = {"kind": "randomize", "algorithm": "tables", "epsilon": EPSILON}
    require_values(db, records.roles, Randomize.model_validate({**parameters, "values": values}))
    total = sum(records.counts)
    example = min(counted.values(), key=lambda count: abs(count / total - 0.06)) / total
    reach = reach_of(example, float(EPSILON))
    unit = "person" if source.persons else "record"
    promise = (
        f"Somebody who knows everything except one {unit}'s value changes the odds of any value by at most a factor of "
        f"{FACTOR} (from {example:.0%} to {reach:.1%}; by two releases {FACTOR**2}).",
        f"Not limited: what the records of others teach about a {unit} like it.",
    )
    precision = foresee_precision(Fraction(EPSILON), len(records.roles.quasi_identifiers))
    return Proposal(parameters, promise, precision, decide={"values": values})
