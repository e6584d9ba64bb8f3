"""Explain why no setting exists, and list the thresholds that other thresholds imply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.exact import text
from privsql.mechanisms.bucketize.beliefs import Beliefs, Sure
from privsql.mechanisms.bucketize.optimal import Relaxation, search

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.mechanisms.bucketize.beliefs import Bound
    from privsql.mechanisms.bucketize.group_flows import Flags
    from privsql.mechanisms.bucketize.model import Ints, Plan, Problem

# Implied --------------------------------------------------------------------------------------------------------------
# What a plan implies for beliefs (``beliefs``) before anything is published: upper bounds, from counts alone.
#
# Most layouts deal a size class of b buckets evenly: of y records of a value, floor(y/b) or ceil(y/b) go to each. So
# the highest belief in a single value is known, and how many buckets reach it, and so for values that are bounded
# together. Anatomy's layout and lumps go as far as thresholds let them, whatever the mean. Which others meet that agree
# in one column is not known, and what is stated is the most that they could.


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


# Infeasible -----------------------------------------------------------------------------------------------------------
# Why there is no plan: the violated Hall set of values, and the nearest thresholds that work.

STEP = 10**4  # nearest thresholds are sought on a grid of 1/STEP
SHOWN = 8  # values that a message names


def explain(
    problem: Problem, algorithm: str, exists: Callable[[Problem], bool], unplaced: int | None = None
) -> InfeasibleError:
    """The error for a problem without a plan: which values, which bound, and what would work.

    ``unplaced``: how many records the algorithm finds no place for.
    """
    n = problem.records
    if n == 0:
        return InfeasibleError("the source has no records to publish")
    details: dict[str, object] = {}
    reason = (
        _rare_threshold(problem, details)
        or _rare_group(problem, details)
        or _hall(problem, details)
        or _shape(problem, algorithm)
    )
    if unplaced:
        details["unplaced"] = unplaced
        reason += f"; {unplaced:,} records find no place in buckets of nearly one size"
    return InfeasibleError(f"{reason}; {_remedy(problem, algorithm, exists, details)}", details)


def _rare_threshold(problem: Problem, details: dict[str, object]) -> str | None:
    """f'_i < f_i for some value: no bucketization at all (Lemma 3.7)."""
    n = problem.records
    worst = max(range(len(problem.counts)), key=lambda i: Fraction(int(problem.counts[i]), n) / problem.thresholds[i])
    frequency, threshold = Fraction(int(problem.counts[worst]), n), problem.thresholds[worst]
    if frequency <= threshold:
        return None
    details |= {
        "hall_set": [problem.label(worst)],
        "records": int(problem.counts[worst]),
        "room": int(n * threshold),
    }
    return (
        f"value {problem.label(worst)} has frequency {float(frequency):.6g} above its threshold {float(threshold):.6g}"
    )


def _rare_group(problem: Problem, details: dict[str, object]) -> str | None:
    """The same for a set of values with a bound of its own."""
    n = problem.records
    worst = max(problem.bounds, key=lambda one: _frequency(problem, one) / one.threshold, default=None)
    if worst is None or _frequency(problem, worst) <= worst.threshold:
        return None
    details |= {"group": worst.name, "room": int(n * worst.threshold)}
    details["records"] = int(problem.counts[list(worst.members)].sum())
    frequency, threshold = float(_frequency(problem, worst)), float(worst.threshold)
    return f"{worst.name!r} has frequency {frequency:.6g} above its bound {threshold:.6g}"


def _frequency(problem: Problem, bound: Bound) -> Fraction:
    return Fraction(int(problem.counts[list(bound.members)].sum()), problem.records)


def _of_groups(problem: Problem, exists: Callable[[Problem], bool], details: dict[str, object]) -> str | None:
    """What would work if bounds on sets of values stand in the way: the nearest threshold for one, or for all.

    None if there are no such bounds, or the values' own thresholds stand in the way as well.
    """
    tightest = sorted(problem.bounds, key=lambda one: one.threshold / max(_frequency(problem, one), Fraction(1, 10**9)))
    for one in tightest[:SHOWN]:
        wider = _nearest(partial(_exists_with, problem, exists, one), one.threshold)
        if wider is not None:
            details |= {"group": one.name, "nearest_group": {one.name: text(wider)}}
            return f"{text(wider)} for {one.name!r}"
    shift = _nearest(lambda shift: exists(_shifted(problem, shift)), Fraction(0)) if problem.bounds else None
    if shift is None:
        return None
    details |= {"nearest_group_shift": text(shift)}
    return f"bounds of groups higher by {text(shift)}"


def _shifted(problem: Problem, shift: Fraction) -> Problem:
    """With bounds on sets of values min(1, f' + shift)."""
    wider = (replace(one, threshold=min(Fraction(1), one.threshold + shift)) for one in problem.bounds)
    return replace(problem, bounds=tuple(wider))


def _exists_with(problem: Problem, exists: Callable[[Problem], bool], bound: Bound, threshold: Fraction) -> bool:
    """Whether there is a plan with another threshold for one of the bounds."""
    bounds = tuple(replace(one, threshold=threshold) if one is bound else one for one in problem.bounds)
    return exists(replace(problem, bounds=bounds))


def _nearest(feasible: Callable[[Fraction], bool], start: Fraction) -> Fraction | None:
    """The smallest threshold on the grid above ``start`` that is feasible; feasibility only grows with it."""
    low, high = int(start * STEP), STEP
    if not feasible(Fraction(1)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(Fraction(middle, STEP)) else (middle, high)
    return Fraction(high, STEP)


def _hall(problem: Problem, details: dict[str, object]) -> str | None:
    """A set of values with more records than any setting of these sizes has room for."""
    if not len(problem.sizes):
        return None
    found = Relaxation(problem).tightest()
    if found is None:
        return None
    values, room = found
    records = int(problem.counts[values].sum())
    names = [problem.label(int(i)) for i in values]
    details |= {"hall_set": names, "records": records, "room": room}
    listed = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    sizes = f"{int(problem.sizes[0])}..{int(problem.sizes[-1])}"
    held = problem.room(values).tolist()
    shares = (Fraction(c, s) for s, c in zip(problem.sizes.tolist(), held, strict=True))
    best = int(problem.records * max(shares))
    if best < records:
        details["room"] = best
        return (
            f"the values {{{listed}}} have {records} records, but buckets of sizes {sizes} have room for {best} of them"
        )
    closest = f"the closest have room for {room} of {records} records of {{{listed}}}"
    return f"no buckets of sizes {sizes} suit all values: {closest}"


def _shape(problem: Problem, algorithm: str) -> str:
    """Neither: sizes that do not add up, or an algorithm that is narrower than the problem."""
    if not len(problem.sizes):
        need = min(ceil(1 / f) for f in problem.thresholds)
        return (
            f"no bucket size from {max(need, problem.smallest)} to {min(problem.largest, problem.records)} can be "
            f"filled ({problem.records} records, thresholds need at least {need})"
        )
    span = f"{int(problem.sizes[0])}..{int(problem.sizes[-1])}"
    return f"no {algorithm} setting of sizes {span} fits {problem.records} records"


def _remedy(problem: Problem, algorithm: str, exists: Callable[[Problem], bool], details: dict[str, object]) -> str:
    """What would work: wider bounds or thresholds, larger buckets, another algorithm."""
    groups = _of_groups(problem, exists, details)
    offers = [groups] if groups else []
    shift = None if groups else _nearest_shift(problem, exists)
    if shift is not None:
        details["nearest_shift"] = text(shift)
        details["nearest"] = {problem.label(i): text(min(Fraction(1), f + shift)) for i, f in _first(problem)}
        offers.append(f"thresholds higher by {text(shift)}")
    wider = _nearest_largest(problem, exists)
    if wider is not None:
        details["nearest_max_bucket_size"] = wider
        offers.append(f"max_bucket_size = {wider}")
    enough = all(
        Fraction(int(o), problem.records) <= f for o, f in zip(problem.counts, problem.thresholds, strict=True)
    )
    if (
        algorithm != "optimal"
        and len(problem.trees) < 2
        and not offers
        and enough
        and search(problem, None, 0.5) is not None
    ):
        offers.append("algorithm = 'optimal'")
    return "what works: " + " or ".join(offers) if offers else f"no other threshold makes {algorithm} feasible"


def _first(problem: Problem) -> list[tuple[int, Fraction]]:
    return list(enumerate(problem.thresholds))[:SHOWN]


def _nearest_shift(problem: Problem, exists: Callable[[Problem], bool]) -> Fraction | None:
    """Smallest d on the grid such that thresholds min(1, f' + d) have a plan, and so for sets of values."""

    def feasible(shift: Fraction) -> bool:
        shifted = tuple(min(Fraction(1), f + shift) for f in problem.thresholds)
        return exists(replace(_shifted(problem, shift), thresholds=shifted))

    return _nearest(feasible, Fraction(0))


def _nearest_largest(problem: Problem, exists: Callable[[Problem], bool]) -> int | None:
    """The first of a few larger M' that has a plan."""
    n = problem.records
    if any(Fraction(int(o), n) > f for o, f in zip(problem.counts, problem.thresholds, strict=True)):
        return None
    if any(_frequency(problem, one) > one.threshold for one in problem.bounds):
        return None
    wider = np.unique(np.array([problem.largest * k // 4 for k in (5, 6, 8, 12, 16)]))
    return next((int(w) for w in wider if w > problem.largest and exists(replace(problem, largest=int(w)))), None)
