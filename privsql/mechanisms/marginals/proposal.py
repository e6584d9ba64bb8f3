"""Propose domains of a contingency table."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, Any

from privsql.engine.sqlfiles import column, fill, temp_table
from privsql.exact import as_fraction
from privsql.mechanisms.base import ProfiledSource, Proposal
from privsql.mechanisms.dp.mechanism import RECORD
from privsql.mechanisms.marginals.domains import ADDED, round_bins
from privsql.mechanisms.marginals.parameters import Contingency, is_number
from privsql.mechanisms.marginals.plan import Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Relations
    from privsql.model.records import Profile, Records

# Proposal -------------------------------------------------------------------------------------------------------------
# What ``init`` proposes: the values that occur, and bins over the range of numbers with many.
#
# Bins are as fine as the records allow: the noise of the columns' own tables is to come to half of the records at most,
# where ``publish`` refuses what is all noise. What can't be had so is left out, the columns with most values first.

GRAINS = ((60, 20), (30, 10), (15, 5))  # different numbers from which on they are proposed in bins; about so many
ENOUGH = Fraction(1, 2)  # of the records: what the noise may come to
PUBLIC = "Better than 'data' are public lists of values: those that occur are not protected."
RANGE = "Bins with data = true span what the data holds, which is not protected: write down edges that everybody knows."
FEW = (
    "Note: for so few records, tables of so many columns and values would be noise, so bins are wide or columns left "
    "out; a larger epsilon or fewer columns leave more of them."
)


@dataclass(frozen=True)
class ProposedDomain:
    """The proposal for a column: the values that occur, or bins; and how many there are."""

    name: str
    number: int
    bins: dict[str, str] | None = None

    @property
    def as_specification(self) -> Any:
        """As a specification has it."""
        return "data" if self.bins is None else {"bins": self.bins, "data": True}


def propose_domains(db: Relations, source: ProfiledSource) -> Proposal:
    """An epsilon of 1, the values that occur as the domains, and bins marked as the data's where these are many.

    Where the noise of the columns' tables would be too much for the records, bins are wider and columns left out.
    """
    records = source.records()
    ends = _read_ends(db, records)
    finest, *coarser = (_propose_domains(source.columns, ends, many, number) for many, number in GRAINS)
    result = next((one for one in (finest, *coarser) if _has_little_noise(one, records.records)), coarser[-1])
    remaining = _drop_until_useful(result, records.records)
    remarks = [RECORD, PUBLIC]
    remarks += [RANGE] if any(one.bins for one in remaining) else []
    gone = [one for one in result if one not in remaining]
    remarks += [f"left out: {one.name}, of {one.number} values" for one in gone]
    remarks += [FEW] if remaining != finest else []
    return Proposal(_proposed_parameters(remaining), tuple(remarks), tuple(one.name for one in gone))


def _proposed_parameters(domains: list[ProposedDomain]) -> dict[str, Any]:
    return {"kind": "contingency", "epsilon": "1", "domains": {one.name: one.as_specification for one in domains}}


def _has_little_noise(domains: list[ProposedDomain], records: int) -> bool:
    """Return whether the noise of the columns' own tables is little enough."""
    names, sizes = tuple(one.name for one in domains), tuple(one.number + ADDED for one in domains)
    return (
        Rule(Contingency.model_validate(_proposed_parameters(domains)), names, sizes).column_noise <= ENOUGH * records
    )


def _drop_until_useful(domains: list[ProposedDomain], records: int) -> list[ProposedDomain]:
    """Drop columns, those with most values first, until noise is small; at least one column remains."""
    remaining = list(domains)
    while len(remaining) > 1 and not _has_little_noise(remaining, records):
        remaining.remove(max(reversed(remaining), key=lambda one: one.number))
    return remaining


def _read_ends(db: Relations, records: Records) -> dict[str, tuple[Fraction, Fraction]]:
    """The smallest and the largest number of every column of numbers; not of one that holds infinity, or NaN."""
    fields = [
        (field, key)
        for field, key in zip(records.roles.sensitive, records.roles.sa_keys, strict=True)
        if is_number(field.type)
    ]
    ends = {}
    for field, key in fields:
        ((low, high),) = db.rows(fill("contingency/ends", {"value": column(key), "domain": temp_table("domain")}))
        if low is not None and isfinite(low) and isfinite(high):
            ends[field.name] = (as_fraction(str(low)), as_fraction(str(high)))
    return ends


def _propose_domains(
    columns: Sequence[Profile], ends: Mapping[str, tuple[Fraction, Fraction]], many: int, number: int
) -> list[ProposedDomain]:
    return [
        _propose_bins(one, ends[one.name], number)
        if one.name in ends and one.different > many
        else ProposedDomain(one.name, one.different)
        for one in columns
    ]


def _propose_bins(of: Profile, ends: tuple[Fraction, Fraction], number: int) -> ProposedDomain:
    """Bins of a round width that hold the numbers from the first to the last, about so many."""
    bins, different = round_bins(*ends, number, of.type)
    return ProposedDomain(of.name, different, bins)
