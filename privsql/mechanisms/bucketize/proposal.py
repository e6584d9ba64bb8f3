"""What ``init`` proposes for a table: the first rule that can be met and lets no belief reach above 1/2.

Of the algorithms it proposes the one with the least loss, unless ``informative`` leaves clearly less open of a count:
the bound is what is promised, and what it allows should not be wasted. A remark says what beliefs are with either.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.channel import quality
from privsql.answers.reconstruct import LARGE
from privsql.errors import InfeasibleError
from privsql.exact import linear
from privsql.mechanisms.bucketize.foreseen import foreseen
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.planning.request import search
from privsql.mechanisms.contract import Proposal

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Profiled
    from privsql.model.records import Records

CLEARLY = 0.9
RULES = (  # proposed, the first that can be met; what varies with f comes first, then what leaves less room
    "2*f + 0.02", "4*f + 0.02", "8*f + 0.02", "16*f + 0.02", "32*f + 0.02", "1.5*f + 0.05", "f + 0.1",
    "f + 0.05", "f + 0.02",
)  # fmt: skip


def propose(db: Relations, source: Profiled) -> Proposal:
    """The first rule of ``RULES`` that two sizes can meet and that bounds every belief by 1/2.

    Where there is none, the rule that bounds the highest belief lowest, with a remark that says which value it is.
    """
    records = source.records()
    share = Fraction(max(records.counts), sum(records.counts)) if records.counts else Fraction(0)
    feasible = [rule for rule in RULES if _can_be_met(db, records, rule)]
    if not feasible:
        raise InfeasibleError("no threshold below certainty can be met; there are too few values or records")
    modest = [rule for rule in feasible if linear(rule).at(share) <= Fraction(1, 2)]
    chosen = modest[0] if modest else min(feasible, key=lambda rule: linear(rule).at(share))
    remarks = () if modest else (_immodest(records, chosen, share),)
    known = {"allow_certain": True} if linear(chosen).at(share) == 1 else {}
    algorithm, why = _algorithm(db, records, {"threshold": chosen, **known})
    return Proposal({"kind": "bucketize", "algorithm": algorithm, "threshold": chosen, **known}, (*remarks, *why))


def _algorithm(db: Relations, records: Records, rule: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """``optimal``, or ``informative`` where it leaves less than ``CLEARLY`` of that open; and what to know of it."""
    if len(records.counts) > LARGE:
        return "optimal", ()
    found = {}
    for name in ("optimal", "informative"):
        try:
            facts, channel, _ = foreseen(db, records, Bucketize.model_validate({"algorithm": name, **rule}))
        except InfeasibleError:
            return "optimal", ()
        if channel is None or "not_allowed" in facts:
            return "optimal", ()
        found[name] = quality(channel)["left"], facts["mean_belief"]
    (left, belief), (less, more) = found["optimal"], found["informative"]
    if less > CLEARLY * left:
        return "optimal", ()
    open_, beliefs = f"{less:.0%} of what is unknown of a count, {left:.0%} with 'optimal'", f"{more:.3f}, {belief:.3f}"
    return "informative", (
        f"'informative' uses thresholds up: it leaves open {open_}; the mean belief is {beliefs} with 'optimal'.",
        "privsql plan --algorithms compares all algorithms.",
    )


def _can_be_met(db: Relations, records: Records, rule: str) -> bool:
    try:
        search(db, records, Bucketize.model_validate({"algorithm": "two-size", "threshold": rule}))
    except InfeasibleError:
        return False
    return True


def _immodest(records: Records, rule: str, share: Fraction) -> str:
    worst = records.labels[int(np.argmax(records.counts))]
    bound = min(Fraction(1), linear(rule).at(share))
    return (
        f"Mind: {worst} is the value of {float(share):.1%} of the records, so no release can keep the belief in it at "
        f"1/2; this one lets it reach {float(bound):.1%}."
    )
