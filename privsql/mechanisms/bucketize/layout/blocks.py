"""Even layouts in blocks: in every bucket each value, and each bounded set of values, has the floor or the ceiling of
its mean.

A size class of b buckets is cut into blocks of neighbouring buckets. Inside a block of w buckets the values lie one
after the other, in a random order of the block's own, on a line of S w places; place s is bucket s mod w. Values that
follow each other on one line for all buckets partition these, so that what is seen of their sum is the same in every
bucket, and the channel is singular there (round robin is this layout in one block). With many blocks any two values
meet about as often as chance has it.

Blocks share a value's records by rounding along the line (systematic sampling): of y left for B buckets a block of w
gets the floor or the ceiling of y w/B, and so does every set of values that stand together. As that leaves the mean
per bucket between the same two integers, a count per bucket is the floor or the ceiling of its mean in the whole class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.layout.pieces import joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.bucketize.layout.pieces import Pieces
    from privsql.mechanisms.bucketize.model import Ints, Plan
    from privsql.noise import Shuffler

BLOCKS, WIDEST = 1024, 1200  # blocks of a size class, more where they would be wider


def in_blocks(plan: Plan, noise: Shuffler, line: Callable[[], Ints]) -> Pieces:
    """Blocks whose values lie in the order that ``line`` draws (m,)."""
    return even(plan, [widths(buckets) for buckets in plan.setting.buckets], noise, line)


def in_one_block(plan: Plan, noise: Shuffler, line: Callable[[], Ints]) -> Pieces:
    """The paper's RRA: place s of a class is bucket s mod b."""
    return even(plan, [[buckets] for buckets in plan.setting.buckets], noise, line)


def even(plan: Plan, classes: list[list[int]], noise: Shuffler, line: Callable[[], Ints]) -> Pieces:
    """Blocks of these widths for every size of ``classes``, whose values lie in the order that ``line`` draws."""
    columns, start = [], 0
    for j, blocks in enumerate(classes):
        left, rest = plan.allocation[:, j].copy(), sum(blocks)
        for width in blocks:
            order = line()
            order = order[left[order] > 0]
            share = _rounded(left[order] * width, rest, int(noise.integers(0, rest, 1)[0]) if width < rest else 0)
            left[order] -= share
            columns.append(lines(order, share, start, width))
            start, rest = start + width, rest - width
    return joined(len(plan.allocation), columns)


def lines(order: Ints, share: Ints, start: int, width: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """A block's pieces (code, records, start, width, shift): values one after the other, place s in bucket s mod w."""
    order, share = order[share > 0], share[share > 0]
    every = np.ones_like(order)
    return order, share, every * start, every * width, (np.cumsum(share) - share) % width


def widths(buckets: int, least: int | None = None) -> list[int]:
    """Of the blocks of a class, as equal as can be, wider ones first; ``least``: how many there are at least."""
    blocks = min(buckets, max(BLOCKS if least is None else least, -(-buckets // WIDEST)))
    each, over = divmod(buckets, blocks)
    return [each + (k < over) for k in range(blocks)]


def _rounded(amounts: Ints, whole: int, offset: int) -> Ints:
    """Integers whose sums over neighbours are the floor or the ceiling of those of ``amounts`` / ``whole``."""
    return np.diff((np.cumsum(amounts) + offset) // whole, prepend=0)
