"""Two families of bounded sets that cross each other, such as the values of two columns.

How many records y_i of each value go to one part of the buckets is a circulation: from the whole down the first tree to
the values, and up the second tree to the whole. Every set has a lower and an upper bound; if a real solution exists, so
does an integral one, and if there is none, a cut shows it (Hoffman 1960). That settles

* one size or two: y are the records in the buckets of the first size, o - y those in the second;
* how to part buckets: every set gets the floor or the ceiling of its share (``share``).

With three sizes the same question is no flow any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.groups.flow import Flags, Network

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.groups.families import Tree
    from privsql.mechanisms.bucketize.model import Ints, Problem, Setting


@dataclass(frozen=True)
class Cut:
    """Sets whose bounds contradict each other: a linear condition on buckets that these fail.

    ``first`` . b1 + ``second`` . b2 >= ``need``, coefficients (K,) by the sizes of the two parts.
    """

    first: Ints
    second: Ints
    need: int


@dataclass(frozen=True)
class Pair:
    """Two trees over the same values. Its sets (M,): the values, the first tree's, the second's, all values."""

    first: Tree
    second: Tree

    def sums(self, amounts: Ints) -> Ints:
        """Sums over each set (M, ..)."""
        return np.concatenate(
            (amounts, self.first.sums(amounts), self.second.sums(amounts), amounts.sum(axis=0, keepdims=True))
        )

    def circulate(self, lower: Ints, upper: Ints) -> tuple[Ints | None, Flags, Flags]:
        """Amounts (m,) whose sums lie within the bounds (M,); or None, and the sets with too large a lower bound (M,)
        and those with too small an upper bound (M,): together a contradiction.
        """
        tails, heads, nodes = self._arcs()
        sets, values = len(lower), len(self.first.owner)
        least = np.concatenate((lower, np.zeros(values, dtype=np.int64)))
        most = np.concatenate((upper, np.full(values, int(upper.sum()) + 1)))
        excess = np.zeros(nodes, dtype=np.int64)
        np.add.at(excess, heads, least)
        np.subtract.at(excess, tails, least)
        giving, taking = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
        network = Network(
            np.concatenate((tails, np.full(len(giving), nodes), taking)),
            np.concatenate((heads, giving, np.full(len(taking), nodes + 1))),
            nodes + 2,
            nodes,
            nodes + 1,
        )
        flow, reached = network.maximum(np.concatenate((most - least, excess[giving], -excess[taking])))
        into, out = (reached[heads] & ~reached[tails])[:sets], (reached[tails] & ~reached[heads])[:sets]
        sent = flow[len(tails) : len(tails) + len(giving)]
        return (flow[:values] + lower[:values] if (sent == excess[giving]).all() else None), into, out

    def _arcs(self) -> tuple[Ints, Ints, int]:
        """Tails and heads of one arc for every set, and of one more for every value; the number of nodes."""
        one, two, values = len(self.first.bounds), len(self.second.bounds), len(self.first.owner)
        down = np.where(self.first.parent < 0, one, self.first.parent)
        at = one + 1 + np.arange(values)
        base = one + 1 + values
        up = base + np.where(self.second.parent < 0, two, self.second.parent)
        begin = np.where(self.first.owner < 0, one, self.first.owner)
        end = base + np.where(self.second.owner < 0, two, self.second.owner)
        tails = np.concatenate((begin, down, base + np.arange(two), [base + two], at))
        heads = np.concatenate((at, np.arange(one), up, [one], end))
        return tails, heads, base + two + 1

    def share(self, records: Ints, part: int, whole: int) -> Ints:
        """Of ``records`` (m,) those for ``part`` of ``whole`` buckets: of every set floor or ceiling of its share."""
        exact = self.sums(records) * part
        found, _, _ = self.circulate(exact // whole, -(-exact // whole))
        if found is None:
            raise ArithmeticError("two families can always be rounded")
        return found


def limits(problem: Problem, pair: Pair, sizes: Ints) -> Ints:
    """The most records of each set in one bucket of each size (M, K)."""
    bounds = (*pair.first.bounds, *pair.second.bounds)
    return np.concatenate((problem.columns(sizes.tolist()), problem.floors(bounds, sizes), sizes[None, :]))


def allocate(problem: Problem, setting: Setting) -> Ints | Cut:
    """The records of each value in each of at most two sizes (m, k), or why there are none."""
    pair = Pair(*problem.trees)
    sizes, buckets = (np.array(part, dtype=np.int64) for part in (setting.sizes, setting.buckets))
    if len(sizes) > 2:
        raise ValueError("two families that cross can be parted between two sizes only")
    records, room = pair.sums(problem.counts), limits(problem, pair, sizes) * buckets
    others = room[:, 1] if len(sizes) > 1 else np.zeros_like(records)
    lower, upper = np.maximum(0, records - others), np.minimum(records, room[:, 0])
    every = limits(problem, pair, problem.sizes)
    if (lower > upper).any():  # one set alone is too large
        worst = int(np.argmax(lower - upper))
        return Cut(every[worst], every[worst], int(records[worst]))
    found, into, out = pair.circulate(lower, upper)
    if found is not None:
        return np.stack([found, problem.counts - found], axis=1)[:, : len(sizes)]
    low, high = into & (lower > 0), out & (upper < records)
    need = int(records[low].sum() - records[out & ~high].sum())
    return Cut(every[high].sum(axis=0), every[low].sum(axis=0), need)
