"""What a plan implies for beliefs (``beliefs``) before anything is published: upper bounds, from counts alone.

Most layouts deal a size class of b buckets evenly: of y records of a value, floor(y/b) or ceil(y/b) go to each. So the
highest belief in a single value is known, and how many buckets reach it, and so for values that are bounded together.
Anatomy's layout and lumps go as far as thresholds let them, whatever the mean. Which others meet that agree in one
column is not known, and what is stated is the most that they could.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.beliefs import Beliefs, Sure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.mechanisms.bucketize.groups.flow import Flags
    from privsql.mechanisms.bucketize.model import Ints, Plan, Problem


@dataclass(frozen=True)
class Dealt:
    """How a layout deals a plan: single values ``even``ly, or as thresholds just allow; with ``fakes`` none twice."""

    found: Plan
    problem: Problem
    even: bool
    fakes: bool

    def peaks(self) -> Ints:
        """The most records of each value in a bucket of each size (m, k)."""
        if self.fakes:
            return np.ones_like(self.found.allocation)
        if self.even:
            return np.asarray(-(-self.found.allocation // np.array(self.found.setting.buckets)))
        most = self.problem.columns(self.found.setting.sizes) if self.found.most is None else self.found.most
        return np.minimum(most, self.found.allocation)

    def known(self, group: Ints) -> Flags:
        """Whether the values of each group are dealt evenly together (v,); ``group`` (m,): in which a value is."""
        size = np.bincount(group)
        found = size == 1
        for tree in self.problem.trees:
            for members in (list(one.members) for one in tree.bounds):
                own = group[members[0]]
                found[own] |= len(members) == size[own] and (group[members] == own).all()
        return found if self.even and not self.fakes else np.zeros_like(found)

    def of_sets(self) -> dict[str, Fraction]:
        """The highest belief in every set of values that has a bound; the most that it could be where that is 1."""
        sizes, buckets = np.array(self.found.setting.sizes), np.array(self.found.setting.buckets)
        kept, peaks = {one for tree in self.problem.trees for one in tree.bounds}, self.peaks()
        highest: dict[str, Fraction] = {}
        for one in self.problem.bounds:
            members = list(one.members)
            even = -(-self.found.allocation[members].sum(axis=0) // buckets)
            most = even if one in kept else np.minimum(sizes, peaks[members].sum(axis=0))
            share = max(map(Fraction, most.tolist(), sizes.tolist()))
            highest[one.name] = max(highest.get(one.name, share), share)
        return highest

    def reaching(self, records: Ints, most: Ints, need: Ints, known: Flags) -> Ints:
        """The most buckets (v, k) that may hold ``need`` (k,) of the ``records``; exact where ``known`` (v,)."""
        buckets = np.array(self.found.setting.buckets)
        each, over = records // buckets, records % buckets
        exact = np.where(each >= need, buckets, over)
        could = buckets if self.fakes else np.minimum(buckets, records // need)
        return np.where(most < need, 0, np.where(known[:, None], exact, could))


def implied(dealt: Dealt, columns: Mapping[str, Sequence[str]]) -> Beliefs:
    """``columns``: of each single sensitive column the text of every value (m,)."""
    whole = _of(dealt, [str(code) for code in range(len(dealt.problem.counts))])[0]
    found = {name: _of(dealt, texts) for name, texts in columns.items()}
    sure = {name: of[1] for name, of in found.items()}
    total = [min(dealt.problem.records, sum(counts)) for counts in zip(*map(_both, sure.values()), strict=True)]
    return Beliefs(
        max(whole.values()), Sure(*total), {name: of[0] for name, of in found.items()}, sure, dealt.of_sets()
    )


def _both(sure: Sure) -> tuple[int, int]:
    return sure.certain, sure.above_half


def _of(dealt: Dealt, texts: Sequence[str]) -> tuple[dict[str, Fraction], Sure]:
    """The highest belief in each of the ``texts`` (m,), and of how many records one can be sure."""
    values, group = np.unique(np.array(texts), return_inverse=True)
    sizes, buckets = np.array(dealt.found.setting.sizes), np.array(dealt.found.setting.buckets)
    records, most = (np.zeros((len(values), len(sizes)), dtype=np.int64) for _ in range(2))
    np.add.at(records, group, dealt.found.allocation)
    np.add.at(most, group, dealt.peaks())
    known = dealt.known(group)
    most = np.where(known[:, None], -(-records // buckets), np.minimum(most, sizes))
    highest = [max(Fraction(c, s) for c, s in zip(row, sizes.tolist(), strict=True)) for row in most.tolist()]
    reached = (dealt.reaching(records, most, need, known).sum(axis=0) for need in (sizes, sizes // 2 + 1))
    sure = Sure(*(int(sizes @ np.minimum(buckets, number)) for number in reached))
    return dict(zip(values.tolist(), highest, strict=True)), sure
