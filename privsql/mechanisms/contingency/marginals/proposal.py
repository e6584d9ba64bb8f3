"""What ``init`` proposes: the values that occur, and bins over the range of numbers with many.

Bins are as fine as the records allow: the noise of the columns' own tables is to come to half of the records at most,
where ``publish`` refuses what is all noise. What can't be had so is left out, the columns with most values first.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor, isfinite
from typing import TYPE_CHECKING, Any

from privsql.engine.sqlfiles import column, fill, temp
from privsql.exact import fraction, text
from privsql.mechanisms.contingency.marginals.cliques import Rule
from privsql.mechanisms.contingency.parameters import Contingency, is_number, is_whole
from privsql.mechanisms.contract import Proposal
from privsql.mechanisms.private import RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Profiled
    from privsql.model.records import Profile, Records

GRAINS = ((60, 20), (30, 10), (15, 5))  # different numbers from which on they are proposed in bins; about so many
ENOUGH = Fraction(1, 2)  # of the records: what the noise may come to
PUBLIC = "Better than 'data' are public lists of values: those that occur are not protected."
RANGE = "Bins with data = true span what the data holds, which is not protected: write down edges that everybody knows."
FEW = (
    "Mind: so many columns and values would be noise for the records that there are, so bins are wide or columns left "
    "out; a larger epsilon, or fewer columns, leave more of them."
)


@dataclass(frozen=True)
class Domain:
    """What is proposed of a column: the values that occur, or bins; and how many there are."""

    name: str
    number: int
    bins: dict[str, str] | None = None

    @property
    def asked(self) -> Any:
        """As a specification has it."""
        return "data" if self.bins is None else {"bins": self.bins, "data": True}


def propose(db: Relations, source: Profiled) -> Proposal:
    """An epsilon of 1, the values that occur as the domains, and bins marked as the data's where these are many.

    Where the noise of the columns' tables would be too much for the records, bins are wider and columns left out.
    """
    records = source.records()
    ends = _ends(db, records)
    finest, *coarser = (_domains(source.columns, ends, many, number) for many, number in GRAINS)
    found = next((one for one in (finest, *coarser) if _tells(one, records.records)), coarser[-1])
    kept = _fitting(found, records.records)
    remarks = [RECORD, PUBLIC]
    remarks += [RANGE] if any(one.bins for one in kept) else []
    gone = [one for one in found if one not in kept]
    remarks += [f"left out: {one.name}, of {one.number} values" for one in gone]
    remarks += [FEW] if kept != finest else []
    return Proposal(_asked(kept), tuple(remarks), tuple(one.name for one in gone))


def _asked(domains: list[Domain]) -> dict[str, Any]:
    return {"kind": "contingency", "epsilon": "1", "domains": {one.name: one.asked for one in domains}}


def _tells(domains: list[Domain], records: int) -> bool:
    """Whether the noise of the columns' own tables is little enough."""
    names, sizes = tuple(one.name for one in domains), tuple(one.number + 1 for one in domains)  # and all other values
    return Rule(Contingency.model_validate(_asked(domains)), names, sizes).alone <= ENOUGH * records


def _fitting(domains: list[Domain], records: int) -> list[Domain]:
    """The columns that remain, one at least: those with most values, the last ones first, go until it is enough."""
    kept = list(domains)
    while len(kept) > 1 and not _tells(kept, records):
        kept.remove(max(reversed(kept), key=lambda one: one.number))
    return kept


def _ends(db: Relations, records: Records) -> dict[str, tuple[Fraction, Fraction]]:
    """The smallest and the largest number of every column of numbers; not of one that holds infinity, or NaN."""
    fields = [
        (field, key)
        for field, key in zip(records.roles.sensitive, records.roles.sa_keys, strict=True)
        if is_number(field.type)
    ]
    ends = {}
    for field, key in fields:
        ((low, high),) = db.rows(fill("contingency/ends", {"value": column(key), "domain": temp("domain")}))
        if low is not None and isfinite(low) and isfinite(high):
            ends[field.name] = (fraction(str(low)), fraction(str(high)))
    return ends


def _domains(
    columns: Sequence[Profile], ends: Mapping[str, tuple[Fraction, Fraction]], many: int, number: int
) -> list[Domain]:
    return [
        _binned(one, ends[one.name], number)
        if one.name in ends and one.different > many
        else Domain(one.name, one.different)
        for one in columns
    ]


def _binned(of: Profile, ends: tuple[Fraction, Fraction], number: int) -> Domain:
    """Bins of a round width that hold the numbers from the first to the last, about so many."""
    first, last = ends
    width = _round((last - first) / number, least=1 if is_whole(of.type) else 0)
    start = floor(first / width) * width
    end = (floor(last / width) + 1) * width
    bins = {"from": text(start), "to": text(end), "by": text(width)}
    return Domain(of.name, int((end - start) / width), bins)


def _round(width: Fraction, *, least: int) -> Fraction:
    """The next of 1, 2, 5, 10, .. above a width, and of their tenths."""
    step = Fraction(1)
    while step > max(width, Fraction(least)):
        step /= 10
    while step < width:
        step *= 10
    return next((step / part for part in (5, 2) if step / part >= width and step / part >= least), step)
