"""Whether published values come from the source's by the stated matrices, and are not independent of them.

No single record of a randomized release can be checked. But a published record whose quasi-identifiers have one value x
in the source has that value; it became y in its sub-table j with P_j(x, y), independently of all others. With N_jx such
records, and F_j = sum_x N_jx P_j(x, .)/N_j what is seen if published values have nothing to do with the record (a
shuffled column), the logarithm of the likelihood ratio

    T = sum over these records of log P_j(x, y)/F_j(y)

is a sum of independent, bounded terms with known mean and variance. By Bernstein's inequality

    Pr[|T - E T| >= t] <= 2 exp(-t^2/(2 (V + b t/3))),

b the largest |term - its mean|, exactly, for any number of records. T too small says that values and quasi-identifiers
do not go together as in the source, or less of them was retained than stated; too large, that more was retained. A
value x that its sub-table does not have can't have been there at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.randomize.agreement import SIGNIFICANCE

if TYPE_CHECKING:
    from privsql.answers.channel import Floats
    from privsql.mechanisms.randomize.public import Ints, Public


@dataclass(frozen=True)
class Spread:
    """A sum of independent terms: ``mean``, ``variance``, and ``largest`` distance of a term from its mean."""

    mean: float
    variance: float
    largest: float

    @property
    def margin(self) -> float:
        """How far from the mean it lies with probability ``SIGNIFICANCE`` at most, above and below."""
        level = log(2 / SIGNIFICANCE)
        linear = self.largest * level / 3
        return linear + sqrt(linear**2 + 2 * self.variance * level)


@dataclass(frozen=True)
class Ratio:
    """T for ``records``, and what it is if all is as ``stated``, if the column was ``shuffled``, if ``nothing`` was
    retained; ``strangers``: records in sub-tables that do not have their value.
    """

    records: int
    found: float
    stated: Spread
    shuffled: Spread
    nothing: Spread
    strangers: int

    @property
    def holds(self) -> bool:
        """Whether T is one of the stated matrices'."""
        return not self.strangers and abs(self.found - self.stated.mean) <= self.stated.margin

    @property
    def conclusive(self) -> bool:
        """Whether a shuffled column would have been found, but with probability ``SIGNIFICANCE``."""
        return self.shuffled.mean + self.shuffled.margin < self.stated.mean - self.stated.margin

    @property
    def retention(self) -> float:
        """The relative change of all retention probabilities that would have been found; inf if none."""
        slope = self.stated.mean - self.nothing.mean
        return 2 * self.stated.margin / slope if slope > 0 else float("inf")

    def __str__(self) -> str:
        """What was compared, and what that tells."""
        said = (
            f"{self.records:,} records whose quasi-identifiers have one value in the source: log-likelihood ratio "
            f"{self.found:.1f}, by the stated matrices {self.stated.mean:.1f} +- {self.stated.margin:.1f}, of a "
            f"shuffled column {self.shuffled.mean:.1f} +- {self.shuffled.margin:.1f}"
        )
        if not self.conclusive:
            return f"inconclusive, a shuffled column would pass this test: {said}"
        return said + (f"; retention is told to {self.retention:.0%}" if self.retention < 1 else "")


def ratio(public: Public, table: Ints, own: Ints, seen: Ints, records: Ints) -> Ratio:
    """T of records (k,) by sub-table, value in the source and published value (codes)."""
    place = np.full((len(public.records), len(public.protected)), -1, dtype=np.int64)
    for j in range(len(public.records)):
        place[j, public.code[public.own == j]] = np.arange(int(public.sizes[j]))
    known = (place[table, own] >= 0) & (place[table, seen] >= 0)
    found, stated, shuffled, nothing = 0.0, list[Spread](), list[Spread](), list[Spread]()
    for j in np.unique(table[known]).tolist():
        mine = known & (table == j)
        matrix, size = public.perturbation(j), int(public.sizes[j])
        counts = np.zeros((size, size))
        np.add.at(counts, (place[j, own[mine]], place[j, seen[mine]]), records[mine])
        of = counts.sum(axis=1)
        flat = of @ matrix / of.sum()
        score = np.log(matrix / flat)
        found += float((counts * score).sum())
        for spreads, law in ((stated, matrix), (shuffled, flat[None]), (nothing, np.full((1, size), 1 / size))):
            spreads.append(_spread(of, score, law))
    return Ratio(int(records.sum()), found, _sum(stated), _sum(shuffled), _sum(nothing), int(records[~known].sum()))


def _spread(of: Floats, score: Floats, law: Floats) -> Spread:
    """The sum of scores (m, m) of ``of`` (m,) records whose published values follow ``law`` (m or 1, m)."""
    mean = (law * score).sum(axis=1)
    apart = score - mean[:, None]
    there = of > 0
    return Spread(
        float(of @ mean), float(of @ (law * apart**2).sum(axis=1)), float(np.abs(apart[there]).max(initial=0.0))
    )


def _sum(parts: list[Spread]) -> Spread:
    return Spread(
        sum(part.mean for part in parts),
        sum(part.variance for part in parts),
        max((part.largest for part in parts), default=0.0),
    )
