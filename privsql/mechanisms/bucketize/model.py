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
        """Return the sets around each value as a path, in rows (depth + 1, m).

        The column of value i lists its sets, larger ones first, and then N + i, which is repeated where the path is
        short.
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
    """Return 0 or 1 for each set, so that no two sets with the same number cross."""
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
    """Return an odd number of sets, each of which crosses the next; it joins the ways back from i and from j."""
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
    """The counts and thresholds of the sensitive values, and the bucket sizes that may be used.

    Attributes:
        counts: The records of each value (m,).
        thresholds: The threshold f'_i of each value (m,).
        smallest: The publisher's smallest bucket size M.
        largest: The publisher's largest bucket size M'; ``sizes`` has those of this range that can be used.
        labels: The text of each value, for messages (m,); empty for x1, x2, ..
        bounds: The bounds on sets of values.
    """

    counts: Ints  # (m,)
    thresholds: tuple[Fraction, ...]  # (m,)
    smallest: int = 2
    largest: int = 50
    labels: tuple[str, ...] = ()  # (m,), for messages
    bounds: tuple[GroupBound, ...] = ()

    def label(self, value: int) -> str:
        """Return the text of a sensitive value for messages."""
        return self.labels[value] if self.labels else f"x{value + 1}"

    @cached_property
    def records(self) -> int:
        """Return n, the number of records."""
        return int(self.counts.sum())

    @property
    def single_bounds(self) -> list[GroupBound]:
        """Return the thresholds as bounds on sets of one value."""
        return [GroupBound(self.label(i), (i,), threshold) for i, threshold in enumerate(self.thresholds)]

    def count_records(self, bound: GroupBound) -> int:
        """Return the number of records whose value is in the bounded set."""
        return int(self.counts[list(bound.members)].sum())

    def find_frequency(self, bound: GroupBound) -> Fraction:
        """Return the share of the records whose value is in the bounded set."""
        return Fraction(self.count_records(bound), self.records)

    def raise_limits(self, shift: Fraction, *, values: bool = True) -> BucketProblem:
        """Return the problem with every bound on a set raised to min(1, f' + shift).

        With ``values``, the thresholds of single values are raised in the same way.
        """
        wider = tuple(replace(one, threshold=min(Fraction(1), one.threshold + shift)) for one in self.bounds)
        raised = tuple(min(Fraction(1), one + shift) if values else one for one in self.thresholds)
        return replace(self, bounds=wider, thresholds=raised)

    @cached_property
    def sizes(self) -> Ints:
        """Return the usable bucket sizes (K,), which are those with M <= S <= min(M', n) that can be filled.

        A bucket of size S can be filled if sum_i min(F_iS, o_i) >= S.
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
        """Return F (m, K), which is F_iS for the usable sizes."""
        return floor_thresholds(self.thresholds, self.sizes)

    @cached_property
    def trees(self) -> tuple[GroupTree, ...]:
        """Return no, one or two trees that hold all bounded sets; raise ``UsageError`` if more are needed."""
        return make_families(self.bounds, len(self.counts))

    def room_for(self, values: NDArray[Any]) -> Ints:
        """Return the most records with some of the values that one bucket of each usable size can hold (K,).

        It is min(S, sum F_iS), and less where sets are bounded. With two trees it is the smaller of what each allows,
        which is an upper bound (Hall's condition).

        Args:
            values: The values, as flags (m,) or as indices.
        """
        if not self.trees:
            return np.asarray(np.minimum(self.sizes, self.capacity[values].sum(axis=0)))
        held = np.zeros_like(self.capacity)
        held[values] = self.capacity[values]
        return self.let_through(held, self.sizes)

    def let_through(self, held: Ints, sizes: Ints) -> Ints:
        """Return how many of ``held`` records the bounds on sets allow in one bucket of each size (K,).

        Args:
            held: The records of each value that are offered to a bucket (m, K).
            sizes: The sizes (K,).
        """
        each = [tree.rank(held, self.bound_floors(tree.bounds, sizes)) for tree in self.trees] or [held.sum(axis=0)]
        return np.asarray(np.minimum(sizes, np.min(each, axis=0)))

    def bound_floors(self, bounds: Sequence[GroupBound], sizes: Ints) -> Ints:
        """Return floor(f'_G * S) for every bound and size (N, K)."""
        return floor_thresholds([one.threshold for one in bounds], sizes)

    @cached_property
    def by_threshold(self) -> NDArray[np.intp]:
        """Return the values by rising threshold f'_i, the most sensitive first; ties are ordered by falling count."""
        keys = sorted(range(len(self.counts)), key=lambda i: (self.thresholds[i], -int(self.counts[i])))
        return np.array(keys, dtype=np.intp)

    def capacity_for(self, sizes: Sequence[int]) -> Ints:
        """Return how many records of each value a bucket of each size may hold, F (m, len(sizes))."""
        return floor_thresholds(self.thresholds, np.array(sizes, dtype=np.int64))


def floor_thresholds(thresholds: Sequence[Fraction], sizes: Ints) -> Ints:
    """Return floor(f'_i * S) for every value and size (m, K), computed in integers only."""
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

    ``items`` has pairs (S, b_S) by ascending size; no b_S is 0.
    """

    items: tuple[tuple[int, int], ...]

    @staticmethod
    def from_counts(buckets: Mapping[int, int]) -> Setting:
        """Make a setting from a mapping of sizes to numbers of buckets; entries of 0 are dropped."""
        return Setting(tuple((int(s), int(b)) for s, b in sorted(buckets.items()) if b))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes in use, ascending."""
        return tuple(size for size, _ in self.items)

    @property
    def buckets(self) -> tuple[int, ...]:
        """Return the number of buckets of each size in use."""
        return tuple(number for _, number in self.items)

    @property
    def records(self) -> int:
        """Return the number of records in all buckets, the sum of S * b_S."""
        return sum(size * number for size, number in self.items)

    @property
    def loss(self) -> int:
        """Return the Loss, the sum over buckets of (|g| - 1)^2 (paper, eq. 6)."""
        return sum(number * (size - 1) ** 2 for size, number in self.items)


@dataclass(frozen=True)
class Plan:
    """A valid setting with the records of each value that go to each size.

    Attributes:
        algorithm: The algorithm that found it.
        setting: The setting.
        allocation: The records of value x_i in buckets of the j-th size (m, k). Rows sum to o_i, columns to S_j * b_j,
            and no entry exceeds F_iSj * b_j.
        lower_bound: A certified lower bound of the Loss of every valid setting.
        most: The most records of each value that a clustered layout puts into one bucket, up to F_iSj (m, k); None if
            the algorithm sets no such limit.
        seconds: The processor seconds that the search took.
    """

    algorithm: str
    setting: Setting
    allocation: Ints  # (m, k)
    lower_bound: int = 0
    most: Ints | None = None
    seconds: float = 0.0

    @property
    def loss(self) -> int:
        """Return the Loss of the setting."""
        return self.setting.loss

    @property
    def mse(self) -> float:
        """Return MSE = Loss / (n - 1); 0 for a single record."""
        return self.loss / max(1, self.setting.records - 1)

    @property
    def gap(self) -> float:
        """Return (loss - lower bound) / lower bound; 0 if they are equal."""
        if self.loss == self.lower_bound:
            return 0.0
        return float(Fraction(self.loss - self.lower_bound, max(1, self.lower_bound)))


class StoredPlan(BaseModel):
    """A plan as the ledger keeps it.

    ``allocation`` is stored only where a solver divided the records; else it is None and is computed again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    buckets: tuple[tuple[PositiveInt, PositiveInt], ...]
    lower_bound: NonNegativeInt
    allocation: tuple[tuple[NonNegativeInt, ...], ...] | None

    @staticmethod
    def from_plan(plan: Plan, problem: BucketProblem) -> StoredPlan:
        """Return what has to be stored of a plan.

        Without bounds on sets, records are divided in integers, alike on every machine, so no allocation is stored.
        """
        allocation = tuple(map(tuple, plan.allocation.tolist())) if problem.trees else None
        return StoredPlan(buckets=plan.setting.items, lower_bound=plan.lower_bound, allocation=allocation)
