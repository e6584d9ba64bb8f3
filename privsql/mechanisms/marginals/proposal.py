"""Propose the domains of a contingency table for ``init``."""

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
from privsql.mechanisms.marginals.parameters import Contingency
from privsql.mechanisms.marginals.plan import Rule
from privsql.model.bins import is_number_type

if TYPE_CHECKING:
    from privsql.engine.database import Relations

# Proposal -------------------------------------------------------------------------------------------------------------
# A column gets the values that occur as its domain; numbers with many values get bins over their range.
#
# Bins are as fine as the records allow: the noise in a single column's table may come to half of the records at most.
# ``publish`` refuses tables whose noise exceeds the records. If wider bins do not suffice, the columns with most values
# are left out.

GRAINS = (
    (60, 20),
    (30, 10),
    (15, 5),
)  # columns with more values than the first number get about the second number of bins
ENOUGH = Fraction(1, 2)  # most noise of a column's table, as a share of the records
PUBLIC = "Better than 'data' are public lists of values: those that occur are not protected."
RANGE = "Bins with data = true span what the data holds, which is not protected: write down edges that everybody knows."
FEW = (
    "Note: for so few records, tables of so many columns and values would be noise, so bins are wide or columns left "
    "out; a larger epsilon or fewer columns leave more of them."
)


@dataclass(frozen=True)
class ProposedDomain:
    """The domain that is proposed for a column.

    Attributes:
        name: The column.
        number: How many values or bins there are.
        bins: The bins as { from, to, by }; None if the domain is the values that occur.
    """

    name: str
    number: int
    bins: dict[str, str] | None = None


def propose_domains(db: Relations, source: ProfiledSource) -> Proposal:
    """Propose an epsilon of 1 and, as domains, the values that occur; columns of many numbers are put into bins.

    If the noise would be too large for the number of records, bins are made wider. If that is not enough, the columns
    with most values are left out.
    """
    records = source.records()
    ends = {}  # the lowest and highest value of each column of finite numbers
    for field, key in zip(records.roles.sensitive, records.roles.sa_keys, strict=True):
        if is_number_type(field.type):
            ((low, high),) = db.rows(fill("contingency/ends", {"value": column(key), "domain": temp_table("domain")}))
            if low is not None and isfinite(low) and isfinite(high):
                ends[field.name] = as_fraction(str(low)), as_fraction(str(high))

    def propose_columns(many: int, number: int) -> list[ProposedDomain]:
        result = []
        for one in source.columns:
            bins, different = None, one.different
            if one.name in ends and different > many:
                first, last = ends[one.name]
                bins, different = round_bins(first, last, number, one.type)
            result.append(ProposedDomain(one.name, different, bins))
        return result

    finest, *coarser = (propose_columns(many, number) for many, number in GRAINS)
    result = next((one for one in (finest, *coarser) if has_little_noise(one, records.records)), coarser[-1])
    remaining = list(result)
    while len(remaining) > 1 and not has_little_noise(remaining, records.records):
        remaining.remove(max(reversed(remaining), key=lambda one: one.number))
    gone = [one for one in result if one not in remaining]
    remarks = [RECORD, PUBLIC]
    remarks += [RANGE] if any(one.bins for one in remaining) else []
    remarks += [f"left out: {one.name}, of {one.number} values" for one in gone]
    remarks += [FEW] if remaining != finest else []
    return Proposal(write_parameters(remaining), remarks=tuple(remarks), left_out=tuple(one.name for one in gone))


def write_parameters(domains: list[ProposedDomain]) -> dict[str, Any]:
    """Return the parameters of a specification with these domains."""
    stated = {one.name: "data" if one.bins is None else {"bins": one.bins, "data": True} for one in domains}
    return {"kind": "contingency", "epsilon": "1", "domains": stated}


def has_little_noise(domains: list[ProposedDomain], records: int) -> bool:
    """Return whether the noise in a single column's table is at most half of the number of records."""
    params = Contingency.model_validate(write_parameters(domains))
    rule = Rule(params, tuple(one.name for one in domains), tuple(one.number + ADDED for one in domains))
    return rule.column_noise <= ENOUGH * records
