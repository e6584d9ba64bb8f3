"""Bound the beliefs that a plan implies, before anything is published."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.beliefs import ColumnBeliefs, state_beliefs
from privsql.mechanisms.bucketize.parameters import BeliefFacts, SureFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan

# What a plan implies for beliefs before anything is published: upper bounds, from counts alone.
#
# Most layouts deal a size class of b buckets evenly: of y records of a value, floor(y/b) or ceil(y/b) go to each. So
# the highest belief in a single value is known, and how many buckets reach it, and so for values that are bounded
# together. Anatomy's layout and lumps go as far as thresholds let them, whatever the mean. Which others meet that agree
# in one column is not known, and what is stated is the most that they could.


@dataclass(frozen=True)
class PlannedAssignment:
    """How a layout deals a plan: single values ``even``ly, or as thresholds just allow; with ``fakes`` none twice."""

    plan: Plan
    problem: BucketProblem
    even: bool
    fakes: bool

    @cached_property
    def records(self) -> Ints:
        """The most records of each value in all buckets of each size (m, k).

        Anatomy's own order keeps to the plan's buckets, not to its allocation: any size may get a value's records.
        """
        if self.even or self.plan.algorithm != "anatomy":
            return self.plan.allocation
        return np.maximum(self.plan.allocation, self.problem.counts[:, None])

    @cached_property
    def peaks(self) -> Ints:
        """The most records of each value in a bucket of each size (m, k)."""
        if self.fakes:
            return np.ones_like(self.plan.allocation)
        if self.even:
            return np.asarray(-(-self.plan.allocation // np.array(self.plan.setting.buckets)))
        most = self.problem.capacity_for(self.plan.setting.sizes) if self.plan.most is None else self.plan.most
        return np.minimum(most, self.records)

    @cached_property
    def even_sets(self) -> set[tuple[int, ...]]:
        """The sets of several values that are dealt evenly together."""
        return {one.members for tree in self.problem.trees for one in tree.bounds}

    def imply_belief(self, members: Sequence[int]) -> tuple[Fraction, Ints]:
        """Return the highest belief in a set of values, and in how many buckets of each size (2, k) all records may
        have one of them, or more than half; exact where they are dealt evenly together.
        """
        setting, chosen = self.plan.setting, list(members)
        sizes, buckets = np.array(setting.sizes), np.array(setting.buckets)
        known = self.even and not self.fakes and (len(chosen) == 1 or tuple(chosen) in self.even_sets)
        records, peaks = self.records[chosen].sum(axis=0), self.peaks[chosen].sum(axis=0)
        most, need = np.asarray(-(-records // buckets) if known else np.minimum(peaks, sizes)), (sizes, sizes // 2 + 1)
        reached = np.minimum(buckets, buckets if self.fakes else records // need)
        if known:
            reached = np.where(records // buckets >= need, buckets, records % buckets)
        return max(map(Fraction, most.tolist(), setting.sizes)), np.where(most < need, 0, reached)


def imply_beliefs(assignment: PlannedAssignment, columns: Mapping[str, Sequence[str]]) -> BeliefFacts:
    """Return what a plan makes anybody believe; ``columns``: the texts of the values (m,) by sensitive column."""
    sizes, buckets = (np.array(part) for part in (assignment.plan.setting.sizes, assignment.plan.setting.buckets))
    by_column: dict[str, ColumnBeliefs] = {}
    for name, texts in columns.items():
        members = defaultdict(list)
        for value, text in enumerate(texts):
            members[text].append(value)
        implied = {text: assignment.imply_belief(members[text]) for text in sorted(members)}
        reached = np.minimum(buckets, np.sum([one for _, one in implied.values()], axis=0)) @ sizes
        sure = SureFacts(certain=int(reached[0]), above_half=int(reached[1]))
        by_column[name] = {text: highest for text, (highest, _) in implied.items()}, sure
    most = {
        name: min(assignment.problem.records, sum(getattr(one, name) for _, one in by_column.values()))
        for name in ("certain", "above_half")
    }
    overall = max(map(Fraction, assignment.peaks.max(axis=0).tolist(), sizes.tolist()))
    bounded: dict[str, Fraction] = {}
    for bound in assignment.problem.bounds:
        bounded[bound.name] = max(bounded.get(bound.name, Fraction(0)), assignment.imply_belief(bound.members)[0])
    return state_beliefs(overall, SureFacts(**most), by_column, bounded)
