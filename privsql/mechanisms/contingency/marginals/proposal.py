"""What ``init`` proposes: the values that occur, and bins over the range of numbers with many."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any

from privsql.engine.sqlfiles import column, fill, temp
from privsql.exact import fraction, text
from privsql.mechanisms.contingency.parameters import is_number, is_whole
from privsql.mechanisms.contract import Proposal
from privsql.mechanisms.private import RECORD

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Profiled
    from privsql.model.records import Profile

MANY, BINS = 60, 20  # different numbers from which on they are proposed in bins; about so many
PUBLIC = "Better than 'data' are public lists of values: those that occur are not protected."
RANGE = "Bins with data = true span what the data holds, which is not protected: write down edges that everybody knows."


def propose(db: Relations, source: Profiled) -> Proposal:
    """An epsilon of 1, the values that occur as the domains, and bins marked as the data's where these are many."""
    wide = [one for one in source.columns if is_number(one.type) and one.different > MANY]
    domains: dict[str, Any] = {one.name: "data" for one in source.columns}
    if wide:
        records = source.records()
        keys = dict(zip((field.name for field in records.roles.sensitive), records.roles.sa_keys, strict=True))
        for one in wide:
            holes = {"value": column(keys[one.name]), "domain": temp("domain")}
            (low, high) = db.rows(fill("contingency/ends", holes))[0]
            domains[one.name] = {"bins": _steps(one, low, high), "data": True}
    remarks = (RECORD, PUBLIC, RANGE) if wide else (RECORD, PUBLIC)
    return Proposal({"kind": "contingency", "epsilon": "1", "domains": domains}, remarks)


def _steps(of: Profile, low: Any, high: Any) -> dict[str, str]:
    """Bins of a round width that hold the numbers from ``low`` to ``high``."""
    first, last = fraction(str(low)), fraction(str(high))
    width = _round((last - first) / BINS, least=1 if is_whole(of.type) else 0)
    start = floor(first / width) * width
    end = (floor(last / width) + 1) * width
    return {"from": text(start), "to": text(end), "by": text(width)}


def _round(width: Fraction, *, least: int) -> Fraction:
    """The next of 1, 2, 5, 10, .. above a width, and of their tenths."""
    step = Fraction(1)
    while step > width and step > (least or Fraction(1, 10**6)):
        step /= 10
    while step < width:
        step *= 10
    return next((step / part for part in (5, 2) if step / part >= width and step / part >= least), step)
