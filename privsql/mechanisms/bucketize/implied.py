"""Bound the beliefs that a plan implies, from counts alone, before anything is published.

Most layouts deal a size class of b buckets evenly: of y records of a value, floor(y/b) or ceil(y/b) go to each. So the
highest belief in a single value is known, and how many buckets reach it; the same holds for values that are bounded
together. Anatomy's layout and lumps go as far as thresholds let them, whatever the mean. Which other values meet that
agree in one column is not known, and what is stated is the most that they could.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.beliefs import state_beliefs
from privsql.mechanisms.bucketize.parameters import BeliefFacts, SureFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan


@dataclass(frozen=True)
class PlannedAssignment:
    """How a layout deals the records of a plan to buckets.

    Attributes:
        plan: The plan.
        problem: The problem that it solves.
        even: Whether single values are dealt evenly; else a bucket may hold as many as thresholds allow.
        fakes: Whether buckets list fake values, so that no value stands twice in one.
    """

    plan: Plan
    problem: BucketProblem
    even: bool
    fakes: bool

    @cached_property
    def records(self) -> Ints:
        """Return the most records of each value in all buckets of each size (m, k).

        Anatomy's own order keeps to the plan's buckets, not to its allocation: any size may get a value's records.
        """
        if self.even or self.plan.algorithm != "anatomy":
            return self.plan.allocation
        return np.maximum(self.plan.allocation, self.problem.counts[:, None])

    @cached_property
    def peaks(self) -> Ints:
        """Return the most records of each value in one bucket of each size (m, k)."""
        if self.fakes:
            return np.ones_like(self.plan.allocation)
        if self.even:
            return np.asarray(-(-self.plan.allocation // np.array(self.plan.setting.buckets)))
        most = self.problem.capacity_for(self.plan.setting.sizes) if self.plan.most is None else self.plan.most
        return np.minimum(most, self.records)

    @cached_property
    def even_sets(self) -> set[tuple[int, ...]]:
        """Return the sets of several values that are dealt evenly together."""
        return {one.members for tree in self.problem.trees for one in tree.bounds}

    def imply_belief(self, members: Sequence[int]) -> tuple[Fraction, Ints]:
        """Return the highest belief in a set of values, and the numbers of buckets of each size (2, k) that reach it.

        The first row counts the buckets in which all records may have one of the values, the second those in which more
        than half may. The numbers are exact where the values are dealt evenly together.
        """
        setting, chosen = self.plan.setting, list(members)
        sizes, buckets = np.array(setting.sizes), np.array(setting.buckets)
        records, peaks = self.records[chosen].sum(axis=0), self.peaks[chosen].sum(axis=0)
        need = (sizes, sizes // 2 + 1)
        if self.even and not self.fakes and (len(chosen) == 1 or tuple(chosen) in self.even_sets):
            most = np.asarray(-(-records // buckets))
            reached = np.where(records // buckets >= need, buckets, records % buckets)
        else:
            most = np.minimum(peaks, sizes)
            reached = np.minimum(buckets, buckets if self.fakes else records // need)
        return max(map(Fraction, most.tolist(), setting.sizes)), np.where(most < need, 0, reached)


def imply_beliefs(assignment: PlannedAssignment, columns: Mapping[str, Sequence[str]]) -> BeliefFacts:
    """Return what a plan makes anybody believe; ``columns``: the texts of the values (m,) by sensitive column."""
    problem, setting = assignment.problem, assignment.plan.setting
    sizes, buckets = np.array(setting.sizes), np.array(setting.buckets)
    highest, sure = {}, {}
    for name, texts in columns.items():
        members = defaultdict(list)
        for value, text in enumerate(texts):
            members[text].append(value)
        implied = {text: assignment.imply_belief(members[text]) for text in sorted(members)}
        highest[name] = {text: most for text, (most, _) in implied.items()}
        reached = np.minimum(buckets, np.sum([one for _, one in implied.values()], axis=0)) @ sizes
        sure[name] = SureFacts(certain=int(reached[0]), above_half=int(reached[1]))
    in_any = SureFacts(
        certain=min(problem.records, sum(one.certain for one in sure.values())),
        above_half=min(problem.records, sum(one.above_half for one in sure.values())),
    )
    bounded: dict[str, Fraction] = {}
    for bound in problem.bounds:
        bounded[bound.name] = max(bounded.get(bound.name, Fraction(0)), assignment.imply_belief(bound.members)[0])
    overall = max(map(Fraction, assignment.peaks.max(axis=0).tolist(), setting.sizes))
    return state_beliefs(overall, in_any, highest, sure, bounded)
