"""Compute from counts alone which beliefs a plan can lead to, before anything is published.

Most layouts deal records evenly: of y records of a value, each of b buckets of one size gets y/b, rounded down or up.
So the highest belief in a single value is known, and in how many buckets it is reached. The same holds for sets of
values that are bounded together. Layouts of Anatomy and ``lumps`` may fill a bucket with a value up to its threshold.
It is not known which values that agree in one column share a bucket, so an upper bound is stated for single columns.
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
    """A plan, and how its layout will deal records to buckets, from which the highest beliefs follow.

    Attributes:
        plan: The plan.
        problem: The counts, thresholds and bounds for which the plan was made.
        even: Whether each value is dealt evenly; else a bucket may hold as many records of it as thresholds allow.
        fakes: Whether buckets list fake values; then no value stands twice in a bucket.
    """

    plan: Plan
    problem: BucketProblem
    even: bool
    fakes: bool

    @cached_property
    def records(self) -> Ints:
        """Return the most records of each value that all buckets of each size together can get (m, k).

        For Anatomy's layout these are all records of a value, because it does not follow the plan's division among
        sizes.
        """
        if self.even or self.plan.algorithm != "anatomy":
            return self.plan.allocation
        return np.maximum(self.plan.allocation, self.problem.counts[:, None])

    @cached_property
    def peaks(self) -> Ints:
        """Return the most records of each value that the layout can put into one bucket of each size (m, k)."""
        if self.fakes:
            return np.ones_like(self.plan.allocation)
        if self.even:
            return np.asarray(-(-self.plan.allocation // np.array(self.plan.setting.buckets)))
        most = self.problem.capacity_for(self.plan.setting.sizes) if self.plan.most is None else self.plan.most
        return np.minimum(most, self.records)

    @cached_property
    def even_sets(self) -> set[tuple[int, ...]]:
        """Return the bounded sets of values, as tuples of codes.

        Even layouts spread the records of such a set evenly: their numbers in two buckets of a size differ by at most
        1.
        """
        return {one.members for tree in self.problem.trees for one in tree.bounds}

    def imply_belief(self, members: Sequence[int]) -> tuple[Fraction, Ints]:
        """Compute the highest belief in a set of values, and in how many buckets it is high.

        Args:
            members: The codes of the values.

        Returns:
            (the highest belief, numbers of buckets of each size (2, k)). The first row counts the buckets in which all
            records may have one of the values, the second row those in which more than half may. The numbers are exact
            if the set is dealt evenly, else upper bounds.
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
    """Return the highest beliefs that a release by a plan can lead to, and how many records an attacker may know.

    Args:
        assignment: The plan (buckets by size, and records of each value by size), and how a layout deals its records.
        columns: For each sensitive column, its text in each sensitive value (m,).
    """
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
