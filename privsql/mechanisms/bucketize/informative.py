"""Choose buckets that tell more of the data: clustered layouts, and the paper's pruned search for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize.group_flows import Pair, across, allocate_values
from privsql.mechanisms.bucketize.layout import Singles, in_blocks, in_one_block, joined, largest_first, lines, widths
from privsql.mechanisms.bucketize.model import Ints, Problem, Setting
from privsql.mechanisms.bucketize.optimal import best_one_size, gammas

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.layout import Layout, Pieces
    from privsql.mechanisms.bucketize.model import Bids, Plan, Tree

# Clustered buckets ----------------------------------------------------------------------------------------------------
# The informative layout: in each block of buckets some values stand as often as they may, and the others hardly.
#
# A size class of b buckets of S is cut into blocks of w neighbouring buckets. Of rem_i records that are left for B
# buckets a block gets a_i, sum_i a_i = S w, with
#
#     L_i = max(0, rem_i - F_i (B - w))  <=  a_i  <=  U_i = min(rem_i, F_i w),
#
# starting from L_i and filling one value after the other up to U_i until the block is full, in random order: each next
# one with a probability proportional to pi_i/(1 - pi_i), pi_i = rem_i/(F_i B), so that a value is in a block about as
# often as it must be to come out even. All but one of the values that are drawn are at F_i in each of the w buckets.
#
# *It never gets stuck.* Let rem_i <= F_i B and sum rem = S B, as in a valid plan. The even share rem_i w/B lies between
# L_i and U_i, as rem_i - F_i (B - w) <= rem_i - (rem_i/B)(B - w), and these shares sum to S w: so sum L <= S w <= sum
# U, and filling ends at S w. By a_i >= L_i what is left has rem_i <= F_i (B - w), and its sum is S (B - w).
#
# *Sizes and thresholds are kept.* Inside a block values lie one after the other on a line of S w places, and place s is
# bucket s mod w, as in ``blocks``: each bucket has S of them, and floor or ceil of a_i/w <= F_i of value i.
#
# A block that is drawn late is only about as those that are drawn early, so their places are drawn at random among
# blocks that are as wide: which number a block has means nothing (``by_block``).

BLOCKS = 4096  # of a size class: more than of even layouts, as each cuts a value
FINE, MOST = 2**16, 2**40  # of weights: their unit, and the largest


def in_lumps(plan: Plan, noise: Shuffler) -> Pieces:
    """The layout of a plan that says how often a value may stand in a bucket of each size."""
    if plan.most is None:
        raise GuaranteeError(f"a plan by {plan.algorithm!r} does not say how often values may stand in a bucket")
    columns, start = [], 0
    for j, (size, buckets) in enumerate(plan.setting.items):
        wide = np.array(widths(buckets, BLOCKS))
        starts = start + np.cumsum(wide) - wide
        shares = list(_shares(plan.allocation[:, j], plan.most[:, j], size, wide.tolist(), noise))
        drawn = np.argsort(_places(wide, noise))  # which block lies at each place
        for place, (values, records) in enumerate(shares[k] for k in drawn.tolist()):
            width, order = int(wide[place]), np.arange(len(values))
            order = np.asarray(noise.permutation(order)) if width > 1 else order
            columns.append(lines(values[order], records[order], int(starts[place]), width))
        start += buckets
    return joined(len(plan.allocation), columns)


def by_block(rows: Ints) -> list[Ints]:
    """Rows (b, S) of all buckets of a size by block (blocks, w S), blocks of one width at a time."""
    buckets, size = rows.shape
    wide = np.array(widths(buckets, BLOCKS))
    first = int((wide == wide[0]).sum())
    parts = np.split(rows, [first * int(wide[0])])
    return [part.reshape(-1, width * size) for part, width in zip(parts, (wide[0], wide[-1]), strict=True) if len(part)]


def _places(wide: Ints, noise: Shuffler) -> Ints:
    """Blocks as wide as each other in random order; wider ones come first."""
    first = int((wide == wide[0]).sum())
    return np.concatenate((noise.permutation(first), first + noise.permutation(len(wide) - first)))


def _shares(records: Ints, most: Ints, size: int, wide: list[int], noise: Shuffler) -> Iterator[tuple[Ints, Ints]]:
    """Of every block in turn, which values it gets, and how many records of each."""
    left, rest = records.copy(), sum(wide)
    for width in wide:
        share = _filled(left, most, (size, width, rest), noise)
        held = np.flatnonzero(share)
        yield held, share[held]
        left, rest = left - share, rest - width


def _filled(left: Ints, most: Ints, block: tuple[int, int, int], noise: Shuffler) -> Ints:
    """Of one block of (size, width, buckets that are left), how many records of each value (m,)."""
    size, width, rest = block
    share = (left - most * (rest - width)).clip(0)
    free = np.minimum(left, most * width) - share
    weights = (left * FINE // np.maximum(most * rest - left, 1)).clip(1, MOST)
    weights[free == 0] = 0
    short = size * width - int(share.sum())
    ends = np.cumsum(weights)
    while short:
        value = _one(ends, noise)
        if not weights[value]:  # it was drawn before: as likely as others are, among those that are left
            ends = np.cumsum(weights)
            value = _one(ends, noise)
        more = min(short, int(free[value]))
        share[value] += more
        weights[value] = 0
        short -= more
    return share


def _one(ends: Ints, noise: Shuffler) -> int:
    """A value in proportion to its weight; ``ends`` (m,): sums of weights."""
    return int(np.searchsorted(ends, int(noise.integers(0, int(ends[-1]), 1)[0]), side="right"))


# Arrangement ----------------------------------------------------------------------------------------------------------
# Which values meet in which bucket: from a plan to a layout, by its name.

LAYOUTS = ("blocks", "round-robin", "largest-first", "lumps")


def arrange(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[Tree] = ()) -> Layout:
    """The layout of a plan: a bucket of size S gets at most F_iS records of x_i.

    ``trees``: sets of values that are bounded, of which every bucket gets the floor or the ceiling of their mean.
    """
    found = largest_first(plan, noise) if layout == "largest-first" else None
    if found is not None:
        return found
    if len(trees) > 1:
        return _across(plan, Pair(*trees), noise)
    if layout == "lumps":
        return in_lumps(plan, noise)
    if layout == "round-robin":
        return in_one_block(plan, noise, lambda: _in_order(plan, trees, noise))
    return in_blocks(plan, noise, lambda: _at_random(plan, trees, noise))


def placed(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[Tree] = ()) -> Bids:
    """For each value in turn, the buckets of its records in uniformly random order (n,)."""
    return arrange(plan, layout, noise, trees).places(noise)


def _at_random(plan: Plan, trees: Sequence[Tree], noise: Shuffler) -> Ints:
    return trees[0].line(noise) if trees else np.asarray(noise.permutation(len(plan.allocation)))


def _in_order(plan: Plan, trees: Sequence[Tree], noise: Shuffler) -> Ints:
    return trees[0].line(noise) if trees else np.arange(len(plan.allocation))


def _across(plan: Plan, pair: Pair, noise: Shuffler) -> Singles:
    """The same where bounded sets cross each other."""
    values, bids, base = [], [], 0
    for j, buckets in enumerate(plan.setting.buckets):
        dealt = across(plan.allocation[:, j], buckets, pair, noise)
        values.append(dealt.values)
        bids.append(dealt.buckets + base)
        base += buckets
    order = np.argsort(np.concatenate(values), kind="stable")
    return Singles(np.concatenate(bids)[order].astype(np.int32), plan.allocation.sum(axis=1))


# Informative ----------------------------------------------------------------------------------------------------------
# The setting that lets most through: nearly one size, as large as may be, for thresholds that vary with f.
#
# A layout can give a record of value i at most the belief F_iS/S in its own value, and the trace of the channel M is
# the sum of these beliefs:
#
#     tr M = sum_i E[count(g, i)/|g| | record of i]  <=  sum_i max_S F_iS/S.
#
# The loss of the papers, sum (|g| - 1)^2, rewards small buckets instead, which leaves each value to sizes that its
# threshold allows just so: few values per size, and an M that is nearly singular. Here the n records lie in B buckets
# as equal as can be, of sizes S = floor(n/B) and S + 1, where B = ceil(n/T) for the largest T that may be used for
# which sum_S b_S sum_i F_iS is within a fiftieth of the best. ``layout.lumps`` then reaches the bound, but for what is
# cut at the ends of blocks. Where thresholds are constants, floor(f'S)/S is as large for small S, and nothing is
# gained.
#
# A threshold near 1 would fill whole buckets with one value, and tell hardly more than half of that does: it is used up
# to 3/4, or half way from the value's frequency to 1 where that is more, unless nothing less than all of it will do.
#
# With two sizes a setting is valid iff there are y_i records of each value for the b_1 buckets of the first with
#
#     max(0, o_i - F_i2 b_2) <= y_i <= min(o_i, F_i1 b_1),   sum_i y_i = S_1 b_1,
#
# so iff the lower ends sum to no more, the upper ends to no less, and no lower end exceeds its upper end.

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
    return min((allocate_values(problem, one).unplaced for one in _candidates(problem)), default=None)


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


# Pruning --------------------------------------------------------------------------------------------------------------
# The paper's own searches for two sizes, to compare with the closed form (paper, section 5.1).
#
# ``none`` validates every pair of every list Gamma, ``loss`` only the prefix that can beat the best loss so far (Lemma
# 5.25), ``full`` also finds the first valid pair by binary search (Theorem 5.30). All return what
# ``twosize.best_two_size`` returns; only the time differs.

CHUNK = 4096
Condition = Callable[[Ints], NDArray[np.bool_]]


@dataclass(frozen=True)
class _Gamma:
    """One list Gamma(S1, S2) with what is needed to validate its pairs."""

    counts: Ints
    f1: Ints
    f2: Ints
    sizes: tuple[int, int]
    start: tuple[int, int]
    step: tuple[int, int]
    last: int

    def pair(self, t: int) -> tuple[int, int]:
        return self.start[0] - t * self.step[0], self.start[1] + t * self.step[1]

    def loss(self, t: int) -> int:
        b1, b2 = self.pair(t)
        return int(b1 * (self.sizes[0] - 1) ** 2 + b2 * (self.sizes[1] - 1) ** 2)

    def privacy(self, positions: Ints) -> NDArray[np.bool_]:
        """PC for each value and position (m, t)."""
        u1, u2 = self._limits(positions)
        o = self.counts[:, None]
        return np.minimum(u1, o) + np.minimum(u2, o) >= o

    def fills(self, positions: Ints) -> NDArray[np.bool_]:
        """FC for each of the two sizes and each position (2, t)."""
        o = self.counts[:, None]
        pairs = zip(self._limits(positions), self._buckets(positions), self.sizes, strict=True)
        return np.array([np.minimum(u, o).sum(axis=0) >= size * b for u, b, size in pairs])

    def _buckets(self, t: Ints) -> tuple[Ints, Ints]:
        return self.start[0] - t * self.step[0], self.start[1] + t * self.step[1]

    def _limits(self, t: Ints) -> tuple[Ints, Ints]:
        b1, b2 = self._buckets(t)
        return self.f1[:, None] * b1, self.f2[:, None] * b2

    def prefix(self, best: int) -> int:
        """The last position whose loss is below ``best`` (eq. 11); -1 if there is none."""
        low, high = -1, self.last
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.loss(middle) < best else (low, middle - 1)
        return low


def search_pruned(problem: Problem, prune: str) -> Setting | None:
    """Best setting of at most two sizes by the paper's search ``prune`` = none | loss | full."""
    best = best_one_size(problem) if len(problem.sizes) == 1 else None
    for gamma in _lists(problem):
        limit = best.loss if best else None
        last = gamma.last if prune == "none" or limit is None else gamma.prefix(limit)
        first = _first_by_bisection(gamma, last) if prune == "full" else _first_by_scan(gamma, last, prune)
        if first is not None and (limit is None or gamma.loss(first) < limit):
            best = Setting.of(dict(zip(gamma.sizes, gamma.pair(first), strict=True)))
    return best


def _lists(problem: Problem) -> list[_Gamma]:
    lists, sizes, capacity = gammas(problem), problem.sizes.tolist(), problem.capacity
    return [
        _Gamma(
            problem.counts,
            capacity[:, i],
            capacity[:, j],
            (sizes[i], sizes[j]),
            (int(lists.b1[p]), int(lists.b2[p])),
            (int(lists.d1[p]), int(lists.d2[p])),
            int(lists.last[p]),
        )
        for p, (i, j) in enumerate(zip(lists.first.tolist(), lists.second.tolist(), strict=True))
    ]


def _first_by_scan(gamma: _Gamma, last: int, prune: str) -> int | None:
    """First valid position up to ``last``; without pruning all positions are validated all the same."""
    first = None
    for start in range(0, last + 1, CHUNK):
        positions = np.arange(start, min(last + 1, start + CHUNK), dtype=np.int64)
        valid = np.flatnonzero(gamma.privacy(positions).all(axis=0) & gamma.fills(positions).all(axis=0))
        if len(valid) and first is None:
            first = start + int(valid[0])
            if prune == "loss":
                break
    return first


def _first_by_bisection(gamma: _Gamma, last: int) -> int | None:
    """Intersect the sublists on which each condition holds, each found by binary search (Theorem 5.30).

    Every condition is monotone or anti-monotone in t (Lemmas 5.26 and 5.28), so it holds on a prefix, on a suffix,
    everywhere or nowhere; a concave one is decided by its two ends.
    """
    if last < 0:
        return None
    ends = np.array([0, last], dtype=np.int64)
    conditions: list[tuple[NDArray[np.bool_], Condition]] = [
        (gamma.privacy(ends), gamma.privacy),
        (gamma.fills(ends), gamma.fills),
    ]
    low, high = 0, last
    for at_ends, holds in conditions:
        if (~at_ends).all(axis=1).any():
            return None
        rising, falling = ~at_ends[:, 0], ~at_ends[:, 1]
        low = max(low, _first_position(holds, rising, last))
        high = min(high, last - _first_position(_reversed(holds, last), falling, last))
    return low if low <= high else None


def _reversed(holds: Condition, last: int) -> Condition:
    return lambda positions: holds(last - positions)


def _first_position(holds: Condition, chosen: NDArray[np.bool_], last: int) -> int:
    """First position at which the chosen conditions hold; they are monotone and hold at ``last``."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        met = bool(holds(np.array([middle], dtype=np.int64))[chosen].all())
        low, high = (low, middle) if met else (middle + 1, high)
    return low
