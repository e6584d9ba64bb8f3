"""The setting that lets most through: nearly one size, as large as may be, for thresholds that vary with f.

A layout can give a record of value i at most the belief F_iS/S in its own value, and the trace of the channel M is the
sum of these beliefs:

    tr M = sum_i E[count(g, i)/|g| | record of i]  <=  sum_i max_S F_iS/S.

The loss of the papers, sum (|g| - 1)^2, rewards small buckets instead, which leaves each value to sizes that its
threshold allows just so: few values per size, and an M that is nearly singular. Here the n records lie in B buckets as
equal as can be, of sizes S = floor(n/B) and S + 1, where B = ceil(n/T) for the largest T that may be used for which
sum_S b_S sum_i F_iS is within a fiftieth of the best. ``layout.lumps`` then reaches the bound, but for what is cut at
the ends of blocks. Where thresholds are constants, floor(f'S)/S is as large for small S, and nothing is gained.

A threshold near 1 would fill whole buckets with one value, and tell hardly more than half of that does: it is used up
to 3/4, or half way from the value's frequency to 1 where that is more, unless nothing less than all of it will do.

With two sizes a setting is valid iff there are y_i records of each value for the b_1 buckets of the first with

    max(0, o_i - F_i2 b_2) <= y_i <= min(o_i, F_i1 b_1),   sum_i y_i = S_1 b_1,

so iff the lower ends sum to no more, the upper ends to no less, and no lower end exceeds its upper end.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.model import Setting
from privsql.mechanisms.bucketize.planning.hall import allocate

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.model import Ints, Problem

ENOUGH = Fraction(3, 4)  # of a threshold that is used
NEARLY = 50  # the bound of the size that is taken may lack so much of the best


def setting(problem: Problem) -> Setting | None:
    """The valid one that lets about as much through as any, with the largest buckets; None if there is none."""
    for wanted in (_restrained(problem), problem):
        found = next((one for one in _candidates(wanted) if _ranges(wanted, one) is not None), None)
        if found is not None:
            return found
    return None


def unplaced(problem: Problem) -> int | None:
    """How many records find no place in the setting that comes closest; None where no bucket can be filled."""
    return min((allocate(problem, one).unplaced for one in _candidates(problem)), default=None)


def divided(problem: Problem, setting: Setting) -> tuple[Ints, Ints]:
    """Records by value and size (m, k) of a valid setting, and the most of each value in a bucket (m, k)."""
    wanted = _restrained(problem)
    wanted = wanted if _ranges(wanted, setting) is not None else problem
    return _shared(wanted, setting), wanted.columns(setting.sizes)


def _restrained(problem: Problem) -> Problem:
    """With thresholds that are used as far as they serve."""
    frequencies = (Fraction(int(records), max(1, problem.records)) for records in problem.counts)
    enough = (max(ENOUGH, (1 + share) / 2) for share in frequencies)
    return replace(problem, thresholds=tuple(map(min, problem.thresholds, enough)))


def _candidates(problem: Problem) -> list[Setting]:
    """Buckets as equal as can be, whose sizes can be filled; those that are to be tried first come first."""
    n, usable = problem.records, problem.sizes
    held = dict(zip(usable.tolist(), problem.capacity.sum(axis=0).tolist(), strict=True))
    each = (Setting.of({n // b: b - n % b, n // b + 1: n % b}) for b in sorted({-(-n // size) for size in held}))
    found = [one for one in each if all(size in held for size in one.sizes)]
    through = [sum(buckets * held[size] for size, buckets in one.items) for one in found]
    best = max(through, default=0)
    order = sorted(range(len(found)), key=lambda k: (best - through[k]) * NEARLY // max(1, best))
    return [found[k] for k in order]


def _ranges(problem: Problem, setting: Setting) -> tuple[Ints, Ints] | None:
    """How many records (m,) of each value the first size must and may have; None where no numbers do."""
    room = problem.columns(setting.sizes) * np.array(setting.buckets, dtype=np.int64)
    low = (problem.counts - room[:, 1:].sum(axis=1)).clip(0)
    high = np.minimum(problem.counts, room[:, 0])
    first = setting.sizes[0] * setting.buckets[0]
    return (low, high) if (low <= high).all() and low.sum() <= first <= high.sum() else None


def _shared(problem: Problem, setting: Setting) -> Ints:
    """Records (m, k) in proportion to those of each value, where the bounds above let.

    y_i = o_i t/n within its bounds, rounded down, for the largest integer t that does not give the first size too many;
    what it lacks comes from values that have one more for t + 1.
    """
    found = _ranges(problem, setting)
    if found is None or len(setting.items) == 1:
        return problem.counts[:, None]
    least, most = found

    def shared(times: int) -> Ints:
        return np.clip(problem.counts * times // problem.records, least, most)

    aim, low, high = setting.sizes[0] * setting.buckets[0], 0, problem.records + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if int(shared(middle).sum()) <= aim else (low, middle)
    first = shared(low)
    rising = np.flatnonzero(shared(high) > first)
    first[rising[: aim - int(first.sum())]] += 1
    return np.stack([first, problem.counts - first], axis=1)
