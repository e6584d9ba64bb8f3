"""Choose buckets that tell more of the data: clustered layouts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize.group_flows import TreePair, allocate_values, assign_across
from privsql.mechanisms.bucketize.layout import (
    Singles,
    block_widths,
    join_pieces,
    lay_out_evenly,
    lay_out_largest_first,
    make_block_pieces,
)
from privsql.mechanisms.bucketize.model import Bids, BucketProblem, GroupTree, Ints, Plan, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.layout import BucketLayout, Pieces

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


def lay_out_clustered(plan: Plan, noise: Shuffler, coarser: int) -> Pieces:
    """The layout of a plan that says how often a value may stand in a bucket of each size."""
    if plan.most is None:
        raise GuaranteeError(f"a plan by {plan.algorithm!r} does not say how often values may stand in a bucket")
    columns, start = [], 0
    for j, (size, buckets) in enumerate(plan.setting.items):
        wide = np.array(block_widths(buckets, BLOCKS, coarser))
        starts = start + np.cumsum(wide) - wide
        shares = list(_draw_shares(plan.allocation[:, j], plan.most[:, j], size, wide.tolist(), noise))
        drawn = np.argsort(_shuffle_blocks(wide, noise))  # which block lies at each place
        for place, (values, records) in enumerate(shares[k] for k in drawn.tolist()):
            width, order = int(wide[place]), np.arange(len(values))
            order = np.asarray(noise.permutation(order)) if width > 1 else order
            columns.append(make_block_pieces(values[order], records[order], int(starts[place]), width))
        start += buckets
    return join_pieces(len(plan.allocation), columns)


def split_by_block(rows: Ints) -> list[Ints]:
    """Rows (b, S) of all buckets of a size by block (blocks, w S), blocks of one width at a time."""
    buckets, size = rows.shape
    wide = np.array(block_widths(buckets, BLOCKS))
    first = int((wide == wide[0]).sum())
    parts = np.split(rows, [first * int(wide[0])])
    return [part.reshape(-1, width * size) for part, width in zip(parts, (wide[0], wide[-1]), strict=True) if len(part)]


def _shuffle_blocks(wide: Ints, noise: Shuffler) -> Ints:
    """Blocks as wide as each other in random order; wider ones come first."""
    first = int((wide == wide[0]).sum())
    return np.concatenate((noise.permutation(first), first + noise.permutation(len(wide) - first)))


def _draw_shares(records: Ints, most: Ints, size: int, wide: list[int], noise: Shuffler) -> Iterator[tuple[Ints, Ints]]:
    """Of every block in turn, which values it gets, and how many records of each."""
    left, rest = records.copy(), sum(wide)
    for width in wide:
        share = _fill_block(left, most, (size, width, rest), noise)
        held = np.flatnonzero(share)
        yield held, share[held]
        left, rest = left - share, rest - width


def _fill_block(left: Ints, most: Ints, block: tuple[int, int, int], noise: Shuffler) -> Ints:
    """Of one block of (size, width, buckets that are left), how many records of each value (m,)."""
    size, width, rest = block
    share = (left - most * (rest - width)).clip(0)
    free = np.minimum(left, most * width) - share
    weights = (left * FINE // np.maximum(most * rest - left, 1)).clip(1, MOST)
    weights[free == 0] = 0
    short = size * width - int(share.sum())
    ends = np.cumsum(weights)
    while short:
        value = _draw_value(ends, noise)
        if not weights[value]:  # it was drawn before: as likely as others are, among those that are left
            ends = np.cumsum(weights)
            value = _draw_value(ends, noise)
        more = min(short, int(free[value]))
        share[value] += more
        weights[value] = 0
        short -= more
    return share


def _draw_value(ends: Ints, noise: Shuffler) -> int:
    """A value in proportion to its weight; ``ends`` (m,): sums of weights."""
    return int(ends.searchsorted(noise.integers(0, int(ends[-1])), side="right"))


# Arrangement ----------------------------------------------------------------------------------------------------------


def make_layout(
    plan: Plan, layout: str, noise: Shuffler, trees: Sequence[GroupTree] = (), coarser: int = 1
) -> BucketLayout:
    """The layout of a plan: a bucket of size S gets at most F_iS records of x_i.

    ``trees``: sets of values that are bounded, of which every bucket gets the floor or the ceiling of their mean.
    ``coarser``: by how much fewer the blocks of a size class are, where that will do to foresee a release.
    """
    anatomy_layout = lay_out_largest_first(plan, noise) if layout == "largest-first" else None
    if anatomy_layout is not None:
        return anatomy_layout
    if len(trees) > 1:
        return _lay_out_across(plan, TreePair(*trees), noise)
    if layout == "lumps":
        return lay_out_clustered(plan, noise, coarser)
    in_one = layout == "round-robin"  # the paper's RRA: place s of a class is bucket s mod b
    values = len(plan.allocation)

    def draw_line() -> Ints:
        if trees:
            return trees[0].draw_line(noise)
        return np.arange(values) if in_one else np.asarray(noise.permutation(values))

    widths = [[buckets] if in_one else block_widths(buckets, coarser=coarser) for buckets in plan.setting.buckets]
    return lay_out_evenly(plan, widths, noise, draw_line)


def draw_bids(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[GroupTree] = ()) -> Bids:
    """For each value in turn, the buckets of its records in uniformly random order (n,)."""
    return make_layout(plan, layout, noise, trees).draw_places(noise)


def _lay_out_across(plan: Plan, pair: TreePair, noise: Shuffler) -> Singles:
    """Lay out a plan whose bounded sets cross each other."""
    values, bids, base = [], [], 0
    for j, buckets in enumerate(plan.setting.buckets):
        assigned = assign_across(plan.allocation[:, j], buckets, pair, noise)
        values.append(assigned.values)
        bids.append(assigned.buckets + base)
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


def find_setting(problem: BucketProblem) -> Setting | None:
    """The valid one that lets about as much through as any, with the largest buckets; None if there is none."""
    for wanted in (_restrain_thresholds(problem), problem):
        valid = next((one for one in _list_candidates(wanted) if _first_size_ranges(wanted, one) is not None), None)
        if valid is not None:
            return valid
    return None


def count_unplaced(problem: BucketProblem) -> int | None:
    """How many records find no place in the setting that comes closest; None where no bucket can be filled."""
    return min((allocate_values(problem, one).unplaced for one in _list_candidates(problem)), default=None)


def divide_records(problem: BucketProblem, setting: Setting) -> tuple[Ints, Ints]:
    """Records by value and size (m, k) of a valid setting, and the most of each value in a bucket (m, k)."""
    wanted = _restrain_thresholds(problem)
    wanted = wanted if _first_size_ranges(wanted, setting) is not None else problem
    return _share_records(wanted, setting), wanted.capacity_for(setting.sizes)


def _restrain_thresholds(problem: BucketProblem) -> BucketProblem:
    """With thresholds that are used as far as they serve."""
    frequencies = (Fraction(int(records), max(1, problem.records)) for records in problem.counts)
    enough = (max(ENOUGH, (1 + share) / 2) for share in frequencies)
    return replace(problem, thresholds=tuple(map(min, problem.thresholds, enough)))


def _list_candidates(problem: BucketProblem) -> list[Setting]:
    """Buckets as equal as can be, whose sizes can be filled; those that are to be tried first come first."""
    n, usable = problem.records, problem.sizes
    held = dict(zip(usable.tolist(), problem.capacity.sum(axis=0).tolist(), strict=True))
    each = (
        Setting.from_counts({n // b: b - n % b, n // b + 1: n % b}) for b in sorted({-(-n // size) for size in held})
    )
    settings = [one for one in each if all(size in held for size in one.sizes)]
    information = [sum(buckets * held[size] for size, buckets in one.items) for one in settings]
    best = max(information, default=0)
    order = sorted(range(len(settings)), key=lambda k: (best - information[k]) * NEARLY // max(1, best))
    return [settings[k] for k in order]


def _first_size_ranges(problem: BucketProblem, setting: Setting) -> tuple[Ints, Ints] | None:
    """How many records (m,) of each value the first size must and may have; None where no numbers do."""
    room = problem.capacity_for(setting.sizes) * np.array(setting.buckets, dtype=np.int64)
    low = (problem.counts - room[:, 1:].sum(axis=1)).clip(0)
    high = np.minimum(problem.counts, room[:, 0])
    first = setting.sizes[0] * setting.buckets[0]
    return (low, high) if (low <= high).all() and low.sum() <= first <= high.sum() else None


def _share_records(problem: BucketProblem, setting: Setting) -> Ints:
    """Records (m, k) in proportion to those of each value, where the bounds above let.

    y_i = o_i t/n within its bounds, rounded down, for the largest integer t that does not give the first size too many;
    what it lacks comes from values that have one more for t + 1.
    """
    ranges = _first_size_ranges(problem, setting)
    if ranges is None or len(setting.items) == 1:
        return problem.counts[:, None]
    least, most = ranges

    def share_at(times: int) -> Ints:
        return np.clip(problem.counts * times // problem.records, least, most)

    aim, low, high = setting.sizes[0] * setting.buckets[0], 0, problem.records + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if int(share_at(middle).sum()) <= aim else (low, middle)
    first = share_at(low)
    rising = np.flatnonzero(share_at(high) > first)
    first[rising[: aim - int(first.sum())]] += 1
    return np.stack([first, problem.counts - first], axis=1)
