"""The problem that bucketization solves, the plan that solves it, and trees of bounded sets of values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from privsql.errors import UsageError
from privsql.mechanisms.bucketize.bounds import GroupBound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.keyed_random import Shuffler

# Families -------------------------------------------------------------------------------------------------------------
# Bounded sets of values form one or two trees, in which sets are nested or disjoint.
#
# A bound on a set G of values says: sum over x in G of count(g, x) <= floor(f'_G |g|) in every bucket g. In a tree (a
# laminar family) all bounds can be kept exactly, with counts per bucket that are the mean, rounded down or up. The same
# holds for two trees, such as the values of two columns of a compound attribute. With three trees whose sets overlap,
# such a rounding need not exist.

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GroupTree:
    """A tree of N bounded sets over m values: any two sets are disjoint, or one holds the other.

    Attributes:
        bounds: The sets with their bounds, larger sets before the smaller ones inside them.
        parent: The smallest set that holds each set (N,); -1 if there is none.
        owner: The smallest set that holds each value (m,); -1 if there is none.
    """

    bounds: tuple[GroupBound, ...]
    parent: Ints
    owner: Ints

    @cached_property
    def incidence(self) -> scipy.sparse.csr_array:
        """Return a matrix with 1 where a set (row) holds a value (column), and 0 elsewhere (N, m)."""
        return incidence_matrix(self.bounds, len(self.owner))

    def sum_sets(self, amounts: Ints) -> Ints:
        """Return for each set the sum over its values (N, ..).

        Args:
            amounts: What is summed, by value (m, ..).
        """
        return np.asarray(self.incidence @ amounts)

    def rank(self, amounts: Ints, limits: Ints) -> Ints:
        """Return the most records that fit together into a bucket, within limits for each value and each set of values.

        This is the rank function of a laminar matroid. It is computed for K cases at once, such as K bucket sizes.

        Args:
            amounts: The most records of each value in each case (m, K).
            limits: The most records of each set in each case (N, K).

        Returns:
            The most records in each case (K,).
        """
        total = np.zeros((len(self.bounds) + 1, amounts.shape[1]), dtype=np.int64)
        np.add.at(total, self.owner, amounts)  # values in no set have owner -1, which is the last row
        for i in range(len(self.bounds) - 1, -1, -1):
            total[self.parent[i]] += np.minimum(total[i], limits[i])
        return np.asarray(total[-1])

    @cached_property
    def chains(self) -> Ints:
        """Return for each value the sets that hold it, larger sets first, as a column of a matrix (depth + 1, m).

        Layouts use it to keep the values of a set together. Sets are given by their positions. The column of value i
        ends with N + i, repeated until it is full.
        """
        sets = len(self.bounds)
        above: list[list[int]] = []
        for i in range(sets):
            above.append([*(above[self.parent[i]] if self.parent[i] >= 0 else []), i])
        paths = [above[owner] if owner >= 0 else [] for owner in self.owner.tolist()]
        depth = max(map(len, paths), default=0) + 1
        return np.array([[*path, *[sets + i] * (depth - len(path))] for i, path in enumerate(paths)], np.int64).T

    def draw_line(self, noise: Shuffler) -> Ints:
        """Draw a random order of all values in which the values of every set are neighbours (m,).

        If records are dealt to buckets in this order, every set is spread evenly.
        """
        rank = noise.permutation(len(self.bounds) + len(self.owner))
        return np.lexsort(rank[self.chains][::-1]).astype(np.int64)


def incidence_matrix(bounds: Sequence[GroupBound], values: int) -> scipy.sparse.csr_array:
    """Return a matrix of integers with 1 where a set (row) holds a value (column), and 0 elsewhere."""
    rows = np.repeat(np.arange(len(bounds)), [len(one.members) for one in bounds])
    columns = np.array([i for one in bounds for i in one.members], dtype=np.int64)
    return scipy.sparse.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=(len(bounds), values))


def make_families(bounds: Sequence[GroupBound], values: int) -> tuple[GroupTree, ...]:
    """Arrange bounded sets into one or two trees, in which two sets are disjoint or one holds the other.

    Sets with a bound of 1 are left out. The result is empty if no set is left.

    Raises:
        UsageError: Two trees can't hold all sets; the message names sets that overlap.
    """
    binding = sorted((one for one in bounds if one.threshold < 1), key=lambda one: -len(one.members))
    if not binding:
        return ()
    side = _assign_sides(binding, _find_crossings(binding, values))
    parts = [[one for one, its_side in zip(binding, side, strict=True) if its_side == k] for k in (0, 1)]
    return tuple(_make_tree(part, values) for part in parts if part)


def _find_crossings(bounds: Sequence[GroupBound], values: int) -> list[list[int]]:
    """Return for each set the positions of the sets that overlap it, where neither holds the other."""
    holds = incidence_matrix(bounds, values)
    shared = (holds @ holds.T).tocoo()
    sizes = np.array([len(one.members) for one in bounds], dtype=np.int64)
    first, second = shared.coords
    across = shared.data < np.minimum(sizes[first], sizes[second])
    crossing: list[list[int]] = [[] for _ in bounds]
    for i, j in zip(first[across].tolist(), second[across].tolist(), strict=True):
        crossing[i].append(j)
    return crossing


def _assign_sides(bounds: Sequence[GroupBound], crossing: list[list[int]]) -> list[int]:
    """Divide bounded sets of values into tree 0 and tree 1, so that no two sets of one tree overlap.

    Two sets overlap here if they share values and neither holds the other.

    Args:
        bounds: The sets with their bounds.
        crossing: For each set, the positions of the sets that overlap it.

    Returns:
        The tree of each set, 0 or 1.

    Raises:
        UsageError: This is impossible; the message names an odd number of sets, each of which overlaps the next.
    """
    side, before = [-1] * len(bounds), [-1] * len(bounds)
    for start in range(len(bounds)):
        if side[start] >= 0:
            continue
        side[start] = 0
        queue = deque([start])
        while queue:
            i = queue.popleft()
            for j in crossing[i]:
                if side[j] < 0:
                    side[j], before[j] = 1 - side[i], i
                    queue.append(j)
                elif side[j] == side[i]:
                    names = ", ".join(repr(bounds[k].name) for k in _odd_cycle(before, i, j))
                    raise UsageError(
                        f"mechanism: the groups {names} cross each other; bounds are kept on two families of nested or "
                        "disjoint groups (two columns, say), not on three: leave one out"
                    )
    return side


def _odd_cycle(before: list[int], i: int, j: int) -> list[int]:
    """Return an odd number of sets, each of which overlaps the next, and the last one the first.

    Such sets can't be divided into two trees without overlaps, so an error names them.

    Args:
        before: For each set, an overlapping set from which a search reached it; -1 where the search started.
        i: A set that the search put into one of the trees.
        j: A set that overlaps it, and that the search put into the same tree.
    """
    paths = []
    for at in (i, j):
        path = [at]
        while before[path[-1]] >= 0:
            path.append(before[path[-1]])
        paths.append(path)
    common = next(at for at in paths[0] if at in paths[1])
    return paths[0][: paths[0].index(common) + 1] + paths[1][: paths[1].index(common)][::-1]


def _make_tree(bounds: Sequence[GroupBound], values: int) -> GroupTree:
    owner, parent = np.full(values, -1, dtype=np.int64), np.full(len(bounds), -1, dtype=np.int64)
    for i, one in enumerate(bounds):
        members = np.array(one.members, dtype=np.int64)
        parent[i] = owner[members[0]]
        owner[members] = i
    return GroupTree(tuple(bounds), parent, owner)


# Model ----------------------------------------------------------------------------------------------------------------
# Notation (Wang et al., *Inferential or Differential*, section 3): o_i = ``counts[i]`` records have the sensitive value
# x_i, whose threshold is f'_i = ``thresholds[i]``. A bucket of size S may hold F_iS = floor(f'_i * S) records of x_i.

Bids = np.ndarray[tuple[int, ...], np.dtype[np.int32]]  # the buckets of records


@dataclass(frozen=True)
class BucketProblem:
    """What a search has to solve: the counts and thresholds of sensitive values, and the bucket sizes that may be used.

    In the methods, m is the number of values, K of usable sizes, and F_iS the most records of value i in a bucket of S.

    Attributes:
        counts: The number of records of each value (m,).
        thresholds: The threshold of each value (m,).
        smallest: The smallest bucket size that the publisher allows.
        largest: The largest bucket size that the publisher allows.
        labels: The values as text, for messages (m,); if empty, they are called x1, x2, ..
        bounds: The bounds on sets of values.
    """

    counts: Ints
    thresholds: tuple[Fraction, ...]
    smallest: int = 2
    largest: int = 50
    labels: tuple[str, ...] = ()
    bounds: tuple[GroupBound, ...] = ()

    def label(self, value: int) -> str:
        """Return a sensitive value, given by its code, as text for messages."""
        return self.labels[value] if self.labels else f"x{value + 1}"

    @cached_property
    def records(self) -> int:
        """Return the number of records."""
        return int(self.counts.sum())

    @property
    def single_bounds(self) -> list[GroupBound]:
        """Return the threshold of each value as a bound on the set of this one value."""
        return [GroupBound(self.label(i), (i,), threshold) for i, threshold in enumerate(self.thresholds)]

    def count_records(self, bound: GroupBound) -> int:
        """Return the number of records whose value is in a bounded set."""
        return int(self.counts[list(bound.members)].sum())

    def find_frequency(self, bound: GroupBound) -> Fraction:
        """Return the share of all records whose value is in a bounded set."""
        return Fraction(self.count_records(bound), self.records)

    def raise_limits(self, shift: Fraction, *, values: bool = True) -> BucketProblem:
        """Return the problem with every bound on a set raised by ``shift``, but to 1 at most.

        Args:
            shift: By how much bounds are raised.
            values: Whether the thresholds of single values are raised, too.
        """
        wider = tuple(replace(one, threshold=min(Fraction(1), one.threshold + shift)) for one in self.bounds)
        raised = tuple(min(Fraction(1), one + shift) if values else one for one in self.thresholds)
        return replace(self, bounds=wider, thresholds=raised)

    @cached_property
    def sizes(self) -> Ints:
        """Return the usable bucket sizes, rising (K,): those that are allowed, and for which a bucket can be filled.

        A bucket can be filled if the records that thresholds and bounds allow in it are at least its size.
        """
        if not self.records:
            return np.zeros(0, dtype=np.int64)
        weak = min(-(-f.denominator // f.numerator) for f in self.thresholds)
        span = range(max(weak, self.smallest), min(self.largest, self.records) + 1)
        every = np.array(span, dtype=np.int64)
        if not len(every):
            return every
        held = np.minimum(floor_thresholds(self.thresholds, every), self.counts[:, None])
        return np.asarray(every[self.let_through(held, every) >= every])

    @cached_property
    def capacity(self) -> Ints:
        """Return the most records of each value in one bucket of each usable size, F_iS (m, K)."""
        return floor_thresholds(self.thresholds, self.sizes)

    @cached_property
    def trees(self) -> tuple[GroupTree, ...]:
        """Return the bounded sets as no, one or two trees; raise ``UsageError`` if they need more trees."""
        return make_families(self.bounds, len(self.counts))

    def room_for(self, values: NDArray[Any]) -> Ints:
        """Return how many records with any of the given values fit into one bucket of each of the K usable sizes (K,).

        A bucket holds no more than its size, and than the thresholds and bounds allow. With two trees of bounded sets,
        the result is an upper bound.

        Args:
            values: The values, as flags (m,) or as codes.
        """
        if not self.trees:
            return np.asarray(np.minimum(self.sizes, self.capacity[values].sum(axis=0)))
        held = np.zeros_like(self.capacity)
        held[values] = self.capacity[values]
        return self.let_through(held, self.sizes)

    def let_through(self, held: Ints, sizes: Ints) -> Ints:
        """Return how many records fit into one bucket of each size, within the bounds on sets of values (K,).

        Args:
            held: The most records of each value in a bucket of each size, before sets of values are bounded (m, K).
            sizes: The sizes (K,).
        """
        each = [tree.rank(held, self.bound_floors(tree.bounds, sizes)) for tree in self.trees] or [held.sum(axis=0)]
        return np.asarray(np.minimum(sizes, np.min(each, axis=0)))

    def bound_floors(self, bounds: Sequence[GroupBound], sizes: Ints) -> Ints:
        """Return the most records of each of N bounded sets in one bucket of each size (N, K)."""
        return floor_thresholds([one.threshold for one in bounds], sizes)

    @cached_property
    def by_threshold(self) -> NDArray[np.intp]:
        """Return the codes of the values by rising threshold; values with equal thresholds by falling count (m,).

        Values at the front are the hardest to place in buckets.
        """
        keys = sorted(range(len(self.counts)), key=lambda i: (self.thresholds[i], -int(self.counts[i])))
        return np.array(keys, dtype=np.intp)

    def capacity_for(self, sizes: Sequence[int]) -> Ints:
        """Return the most records of each value in one bucket of each of the given sizes (m, len(sizes))."""
        return floor_thresholds(self.thresholds, np.array(sizes, dtype=np.int64))


def floor_thresholds(thresholds: Sequence[Fraction], sizes: Ints) -> Ints:
    """Return floor(threshold * size) for every threshold and size (thresholds, sizes), computed in integers only."""
    largest = int(sizes.max(initial=0))
    numerators = [f.numerator for f in thresholds]
    exact = np.int64 if max(numerators, default=0) * largest < 2**63 else np.object_
    if max((f.denominator for f in thresholds), default=0) >= 2**63:
        exact = np.object_
    top = np.array(numerators, dtype=exact)[:, None] * sizes.astype(exact)
    bottom = np.array([f.denominator for f in thresholds], dtype=exact)[:, None]
    return np.asarray(top // bottom).astype(np.int64)


@dataclass(frozen=True, order=True)
class Setting:
    """A bucket setting: how many buckets there are of each size.

    Attributes:
        items: (size, number of buckets), by rising size; each number is at least 1.
    """

    items: tuple[tuple[int, int], ...]

    @staticmethod
    def from_counts(buckets: Mapping[int, int]) -> Setting:
        """Make a setting from numbers of buckets by size; sizes with 0 buckets are dropped."""
        return Setting(tuple((int(s), int(b)) for s, b in sorted(buckets.items()) if b))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the different bucket sizes, rising."""
        return tuple(size for size, _ in self.items)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Return the number of buckets of each size, in the order of ``sizes``."""
        return tuple(number for _, number in self.items)

    @property
    def records(self) -> int:
        """Return the number of records in all buckets together."""
        return sum(size * number for size, number in self.items)

    @property
    def loss(self) -> int:
        """Return the Loss, the sum of (size - 1)^2 over all buckets (paper, eq. 6)."""
        return sum(number * (size - 1) ** 2 for size, number in self.items)


@dataclass(frozen=True)
class Plan:
    """A valid setting (number of buckets by size), and how many records of each value go to each of its k sizes.

    Attributes:
        algorithm: The name of the algorithm that found it.
        setting: The bucket sizes and the number of buckets of each.
        allocation: The number of records of each value in all buckets of each size (m, k).
        lower_bound: A certified lower bound for the Loss of every valid setting; 0 if none is known.
        most: The most records of each value that layout ``lumps`` puts into one bucket of each size (m, k); None if the
            algorithm sets no such limit.
        seconds: The processor seconds that the search took.
    """

    algorithm: str
    setting: Setting
    allocation: Ints
    lower_bound: int = 0
    most: Ints | None = None
    seconds: float = 0.0

    @property
    def loss(self) -> int:
        """Return the Loss of the setting, the sum of (size - 1)^2 over all buckets."""
        return self.setting.loss

    @property
    def mse(self) -> float:
        """Return the mean squared error of the papers, Loss / (n - 1) for n records; 0 for a single record."""
        return self.loss / max(1, self.setting.records - 1)

    @property
    def gap(self) -> float:
        """Return by how much the Loss exceeds its certified lower bound, as a share of this bound.

        The plan can't be further than that from the best one; 0 means that it is the best.
        """
        if self.loss == self.lower_bound:
            return 0.0
        return float(Fraction(self.loss - self.lower_bound, max(1, self.lower_bound)))


class StoredPlan(BaseModel):
    """A plan as the publisher's ledger stores it, so that a repeated release by the same request needs no search.

    Attributes:
        buckets: (size, number of buckets), by rising size.
        lower_bound: The certified lower bound for the Loss, the sum of (size - 1)^2 over all buckets.
        allocation: How many records of each value go to the buckets of each size. None if no set of values is bounded;
            then the same numbers can be computed again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    buckets: tuple[tuple[PositiveInt, PositiveInt], ...]
    lower_bound: NonNegativeInt
    allocation: tuple[tuple[NonNegativeInt, ...], ...] | None

    @staticmethod
    def from_plan(plan: Plan, problem: BucketProblem) -> StoredPlan:
        """Return what the ledger stores of a plan.

        How many records of each value go to each size is stored only if sets of values are bounded. Without such bounds
        these numbers can be computed again, with the same result on every machine.
        """
        allocation = tuple(map(tuple, plan.allocation.tolist())) if problem.trees else None
        return StoredPlan(buckets=plan.setting.items, lower_bound=plan.lower_bound, allocation=allocation)
