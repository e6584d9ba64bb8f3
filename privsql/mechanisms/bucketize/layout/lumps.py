"""The informative layout: in each block of buckets some values stand as often as they may, and the others hardly.

A size class of b buckets of S is cut into blocks of w neighbouring buckets. Of rem_i records that are left for B
buckets a block gets a_i, sum_i a_i = S w, with

    L_i = max(0, rem_i - F_i (B - w))  <=  a_i  <=  U_i = min(rem_i, F_i w),

starting from L_i and filling one value after the other up to U_i until the block is full, in random order: each next
one with a probability proportional to pi_i/(1 - pi_i), pi_i = rem_i/(F_i B), so that a value is in a block about as
often as it must be to come out even. All but one of the values that are drawn are at F_i in each of the w buckets.

*It never gets stuck.* Let rem_i <= F_i B and sum rem = S B, as in a valid plan. The even share rem_i w/B lies between
L_i and U_i, as rem_i - F_i (B - w) <= rem_i - (rem_i/B)(B - w), and these shares sum to S w: so sum L <= S w <= sum U,
and filling ends at S w. By a_i >= L_i what is left has rem_i <= F_i (B - w), and its sum is S (B - w).

*Sizes and thresholds are kept.* Inside a block values lie one after the other on a line of S w places, and place s is
bucket s mod w, as in ``blocks``: each bucket has S of them, and floor or ceil of a_i/w <= F_i of value i.

A block that is drawn late is only about as those that are drawn early, so their places are drawn at random among blocks
that are as wide: which number a block has means nothing (``by_block``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize.layout.blocks import lines, widths
from privsql.mechanisms.bucketize.layout.pieces import joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.mechanisms.bucketize.layout.pieces import Pieces
    from privsql.mechanisms.bucketize.model import Ints, Plan
    from privsql.noise import Shuffler

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
