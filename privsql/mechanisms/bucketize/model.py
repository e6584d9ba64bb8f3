"""The problem that the search solves and the plan that it finds, with the tree of the groups of values."""

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
# Families of bounded sets of values: one or two trees of sets that are nested or disjoint.
#
# A bound on a set G of values is sum over x in G of count(g, x) <= floor(f'_G |g|) in every bucket g. It can be kept
# exactly, with counts per bucket that are the floor or the ceiling of their mean, if the sets are nested or disjoint (a
# laminar family), or if they are two such families, as are the values of two columns of a compound attribute. Three
# families that cross each other can't: then even the existence of a rounding is not assured.

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class GroupTree:
    """A laminar family of N sets over m values: two sets are disjoint, or one holds the other.

    Attributes:
        bounds: The sets with their bounds, larger sets before the smaller ones inside them.
        parent: The smallest set that holds each set (N,), -1 if there is none.
        owner: The smallest set that holds each value (m,), -1 if there is none.
    """

    bounds: tuple[GroupBound, ...]
    parent: Ints
    owner: Ints

    @cached_property
    def incidence(self) -> scipy.sparse.csr_array:
        """Return a matrix that is 1 where a set (row) holds a value (column), else 0 (N, m)."""
        return incidence_matrix(self.bounds, len(self.owner))

    def sum_sets(self, amounts: Ints) -> Ints:
        """Return the sums over each set (N, ..) of amounts by value (m, ..)."""
        return np.asarray(self.incidence @ amounts)

    def rank(self, amounts: Ints, limits: Ints) -> Ints:
        """Return the largest total that can be taken from ``amounts`` while no set exceeds its limit (K,).

        It is the rank function of the laminar matroid, computed for K cases at once.

        Args:
            amounts: The most that can be taken of each value (m, K).
            limits: The most that can be taken of each set (N, K).
        """
        total = np.zeros((len(self.bounds) + 1, amounts.shape[1]), dtype=np.int64)
        np.add.at(total, self.owner, amounts)  # -1, the last row: whatever is in no set
        for i in range(len(self.bounds) - 1, -1, -1):
            total[self.parent[i]] += np.minimum(total[i], limits[i])
        return np.asarray(total[-1])

    @cached_property
    def chains(self) -> Ints:
        """Return the path from the outermost set to each value, in rows (depth + 1, m).

        It lists the sets around value i, larger ones first, and then N + i, which is repeated where the path is short.
        """
        sets = len(self.bounds)
        above: list[list[int]] = []
        for i in range(sets):
            above.append([*(above[self.parent[i]] if self.parent[i] >= 0 else []), i])
        paths = [above[owner] if owner >= 0 else [] for owner in self.owner.tolist()]
        depth = max(map(len, paths), default=0) + 1
        return np.array([[*path, *[sets + i] * (depth - len(path))] for i, path in enumerate(paths)], np.int64).T

    def draw_line(self, noise: Shuffler) -> Ints:
        """Draw an order of all values (m,) at random in which the values of every set stand side by side."""
        rank = noise.permutation(len(self.bounds) + len(self.owner))
        return np.lexsort(rank[self.chains][::-1]).astype(np.int64)


def incidence_matrix(bounds: Sequence[GroupBound], values: int) -> scipy.sparse.csr_array:
    """Return a matrix of integers that is 1 where a set (row) holds a value (column), else 0 (N, m)."""
    rows = np.repeat(np.arange(len(bounds)), [len(one.members) for one in bounds])
    columns = np.array([i for one in bounds for i in one.members], dtype=np.int64)
    return scipy.sparse.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=(len(bounds), values))


def make_families(bounds: Sequence[GroupBound], values: int) -> tuple[GroupTree, ...]:
    """Return one tree or two that hold all bounded sets; none if nothing is bounded.

    Raises:
        UsageError: Some sets would need a third tree; the message names them.
    """
    binding = sorted((one for one in bounds if one.threshold < 1), key=lambda one: -len(one.members))
    if not binding:
        return ()
    side = _assign_sides(binding, _find_crossings(binding, values))
    parts = [[one for one, its_side in zip(binding, side, strict=True) if its_side == k] for k in (0, 1)]
    return tuple(_make_tree(part, values) for part in parts if part)


def _find_crossings(bounds: Sequence[GroupBound], values: int) -> list[list[int]]:
    """Return for each set the others that cross it: they share values with it, and neither holds the other."""
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
    """0 or 1 for each set, so that no two of one side cross."""
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
    """An odd number of sets, each of which crosses the next: from i and from j back to where they meet."""
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
# The problem that all bucketization searches solve, and the form of their answers.
#
# Notation (Wang et al., *Inferential or Differential*, section 3): ``counts[i]`` = o_i records with the sensitive value
# x_i, ``thresholds[i]`` = f'_i, F_iS = floor(f'_i * S) the most records of x_i that a bucket of size S may hold.

Bids = np.ndarray[tuple[int, ...], np.dtype[np.int32]]  # the buckets of records


@dataclass(frozen=True)
class BucketProblem:
    """Counts and thresholds per sensitive value, and the bucket sizes that may be used.

    ``smallest`` and ``largest`` are the publisher's M and M'; ``sizes`` is what remains of that range. ``bounds``:
    what sets of values may have together.
    """

    counts: Ints  # (m,)
    thresholds: tuple[Fraction, ...]  # (m,)
    smallest: int = 2
    largest: int = 50
    labels: tuple[str, ...] = ()  # (m,), for messages
    bounds: tuple[GroupBound, ...] = ()

    def label(self, value: int) -> str:
        """Text of a sensitive value for messages."""
        return self.labels[value] if self.labels else f"x{value + 1}"

    @cached_property
    def records(self) -> int:
        """n, the number of records."""
        return int(self.counts.sum())

    @property
    def single_bounds(self) -> list[GroupBound]:
        """Return the thresholds as bounds on sets of one value."""
        return [GroupBound(self.label(i), (i,), threshold) for i, threshold in enumerate(self.thresholds)]

    def count_records(self, bound: GroupBound) -> int:
        """Return how many records have a value of a set."""
        return int(self.counts[list(bound.members)].sum())

    def find_frequency(self, bound: GroupBound) -> Fraction:
        """Return the share of the records that have a value of a set."""
        return Fraction(self.count_records(bound), self.records)

    def raise_limits(self, shift: Fraction, *, values: bool = True) -> BucketProblem:
        """Return the problem with bounds on sets min(1, f' + shift), and so for ``values``."""
        wider = tuple(replace(one, threshold=min(Fraction(1), one.threshold + shift)) for one in self.bounds)
        raised = tuple(min(Fraction(1), one + shift) if values else one for one in self.thresholds)
        return replace(self, bounds=wider, thresholds=raised)

    @cached_property
    def sizes(self) -> Ints:
        """Usable bucket sizes (K,): M <= S <= min(M', n) that can be filled, sum_i min(F_iS, o_i) >= S."""
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
        """F (m, K): F_iS for the usable sizes."""
        return floor_thresholds(self.thresholds, self.sizes)

    @cached_property
    def trees(self) -> tuple[GroupTree, ...]:
        """The bounded sets of values as none, one or two trees; ``UsageError`` if they need more."""
        return make_families(self.bounds, len(self.counts))

    def room_for(self, values: NDArray[Any]) -> Ints:
        """The most records of ``values`` (flags or indices) in one bucket of each usable size (K,): a Hall bound.

        min(S, sum F_iS), less where sets of values are bounded; with two trees the smaller of what each allows.
        """
        if not self.trees:
            return np.asarray(np.minimum(self.sizes, self.capacity[values].sum(axis=0)))
        held = np.zeros_like(self.capacity)
        held[values] = self.capacity[values]
        return self.let_through(held, self.sizes)

    def let_through(self, held: Ints, sizes: Ints) -> Ints:
        """Return what trees let through of so much of each value (m, K) in one bucket of each size (K,)."""
        each = [tree.rank(held, self.bound_floors(tree.bounds, sizes)) for tree in self.trees] or [held.sum(axis=0)]
        return np.asarray(np.minimum(sizes, np.min(each, axis=0)))

    def bound_floors(self, bounds: Sequence[GroupBound], sizes: Ints) -> Ints:
        """floor(f'_G * S) for every bound and size (N, K)."""
        return floor_thresholds([one.threshold for one in bounds], sizes)

    @cached_property
    def by_threshold(self) -> NDArray[np.intp]:
        """Values from the most sensitive (smallest f'_i) on; ties by falling count."""
        keys = sorted(range(len(self.counts)), key=lambda i: (self.thresholds[i], -int(self.counts[i])))
        return np.array(keys, dtype=np.intp)

    def capacity_for(self, sizes: Sequence[int]) -> Ints:
        """Return how many records of each value a bucket of each size may hold, F (m, len(sizes))."""
        return floor_thresholds(self.thresholds, np.array(sizes, dtype=np.int64))


def floor_thresholds(thresholds: Sequence[Fraction], sizes: Ints) -> Ints:
    """floor(f'_i * S) for every value and size, in integers only; shape (m, K)."""
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
    """A bucket setting: ``buckets[S]`` = b_S buckets of size S, sizes ascending, none with b_S = 0."""

    items: tuple[tuple[int, int], ...]

    @staticmethod
    def from_counts(buckets: Mapping[int, int]) -> Setting:
        """Setting from a mapping of size to number of buckets; zero entries vanish."""
        return Setting(tuple((int(s), int(b)) for s, b in sorted(buckets.items()) if b))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in use, ascending."""
        return tuple(size for size, _ in self.items)

    @property
    def buckets(self) -> tuple[int, ...]:
        """The number of buckets of each size in use."""
        return tuple(number for _, number in self.items)

    @property
    def records(self) -> int:
        """Sum of S * b_S."""
        return sum(size * number for size, number in self.items)

    @property
    def loss(self) -> int:
        """Loss = sum over buckets (|g|-1)^2 (paper, eq. 6)."""
        return sum(number * (size - 1) ** 2 for size, number in self.items)


@dataclass(frozen=True)
class Plan:
    """A valid setting with the records of each value that go to each size.

    ``allocation[i, j]`` = records of x_i in buckets of size ``setting.sizes[j]``; rows sum to o_i,
    columns to S_j * b_j, and no entry exceeds F_iSj * b_j. ``most`` (m, k): up to F_iSj, what a
    layout that goes as far as it may puts into one bucket. ``seconds``: of a processor that the search took.
    """

    algorithm: str
    setting: Setting
    allocation: Ints  # (m, k)
    lower_bound: int = 0
    most: Ints | None = None
    seconds: float = 0.0

    @property
    def loss(self) -> int:
        """Loss of the setting."""
        return self.setting.loss

    @property
    def mse(self) -> float:
        """MSE = Loss / (n - 1); 0 for a single record."""
        return self.loss / max(1, self.setting.records - 1)

    @property
    def gap(self) -> float:
        """(loss - lower bound) / lower bound, rounded up in the last digit shown; 0 if they are equal."""
        if self.loss == self.lower_bound:
            return 0.0
        return float(Fraction(self.loss - self.lower_bound, max(1, self.lower_bound)))


class StoredPlan(BaseModel):
    """A plan in the ledger: (size, number) of buckets, and the ``allocation`` where a solver divided the records."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    buckets: tuple[tuple[PositiveInt, PositiveInt], ...]
    lower_bound: NonNegativeInt
    allocation: tuple[tuple[NonNegativeInt, ...], ...] | None

    @staticmethod
    def from_plan(plan: Plan, problem: BucketProblem) -> StoredPlan:
        """Return what has to be stored: without bounds on sets, records are divided in integers, alike everywhere."""
        allocation = tuple(map(tuple, plan.allocation.tolist())) if problem.trees else None
        return StoredPlan(buckets=plan.setting.items, lower_bound=plan.lower_bound, allocation=allocation)
