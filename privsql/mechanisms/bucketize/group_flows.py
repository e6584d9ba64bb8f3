"""Divide records among the bucket sizes in exact integers, or name the values that have too little room.

A value has too little room by Hall's condition: the buckets can't take all records of some set of values.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.model import BucketProblem, GroupTree, Ints, Setting

# Flow -----------------------------------------------------------------------------------------------------------------
# Maximum flow in exact integers. scipy's solver counts in 32 bits and silently cuts off longer numbers. So the leading
# bits of all capacities are sent first, and then, round by round, what is left of them.
#
# ``send_records`` divides records among bucket sizes where sets of one tree are bounded. The records of every value
# flow through a copy of the tree for each size: a set G takes at most F_GS b_S records to the b_S buckets of size S.
# Flows are integers. If records are left over, a smallest cut names values X with
#     sum_{i in X} o_i  >  sum_S rho_S(X) b_S,
# where o_i counts the records of value i, and rho_S(X) is the most records of values in X that the bounds allow in one
# bucket of size S (``GroupTree.rank``).

Flags = NDArray[np.bool_]
BITS = 30  # bits of a number that the solver is given at a time; it fails beyond 31


@dataclass(frozen=True)
class FlowNetwork:
    """A directed network with E arcs, at most one between any two nodes; records flow through it to bucket sizes.

    Attributes:
        tails: The node where each arc begins (E,).
        heads: The node where each arc ends (E,).
        nodes: The number of nodes; they are numbered from 0.
        source: The node from which flow starts.
        sink: The node where flow ends.
    """

    tails: Ints
    heads: Ints
    nodes: int
    source: int
    sink: int

    def find_maximum_flow(self, capacity: Ints, bits: int = BITS) -> tuple[Ints, Flags]:
        """Find a maximum flow in exact integers of up to 63 bits.

        The solver takes smaller numbers only, so flow is sent in several rounds, the high bits first.

        Args:
            capacity: The capacity of every arc (E,).
            bits: The most bits of a number that the solver is given.

        Returns:
            (the flow on every arc (E,), whether each node is on the source's side of a smallest cut).
        """
        flow = np.zeros_like(capacity)
        ends = (capacity[self.tails == self.source].sum(), capacity[self.heads == self.sink].sum())
        left = int(min(ends))  # an upper bound of what can still be sent
        while True:
            shift = max(0, left.bit_length() - bits)
            room, back = (np.minimum(part >> shift, 1 << bits) for part in (capacity - flow, flow))
            solution = scipy.sparse.csgraph.maximum_flow(self._residual_graph(room, back), self.source, self.sink)
            flow += np.asarray(solution.flow[self.tails, self.heads]).astype(np.int64) << shift
            if not shift:
                break
            left = 2 * len(capacity) << shift  # less than 2^shift is left on each arc of the smallest cut so far
        graph = self._residual_graph(np.minimum(capacity - flow, 1), np.minimum(flow, 1))
        reached = scipy.sparse.csgraph.breadth_first_order(graph, self.source, return_predecessors=False)
        return flow, np.isin(np.arange(self.nodes), reached)

    def _residual_graph(self, forward: Ints, backward: Ints) -> scipy.sparse.csr_array:
        """Return the residual graph of a flow as a sparse matrix, in which further flow can be searched.

        Args:
            forward: How much more can be sent along each arc (E,).
            backward: How much can be taken back from each arc (E,).
        """
        rows, columns = np.concatenate((self.tails, self.heads)), np.concatenate((self.heads, self.tails))
        amounts = np.concatenate((forward, backward))
        some = amounts > 0
        shape = (self.nodes, self.nodes)
        return scipy.sparse.csr_array((amounts[some].astype(np.int32), (rows[some], columns[some])), shape=shape)


# Hall -----------------------------------------------------------------------------------------------------------------
# Dividing records among bucket sizes is a transportation problem, which is solved in exact integers.
#
# A setting with b_S buckets of size S is valid if and only if all records can be sent to sizes, with at most F_iS * b_S
# of value i to size S (Gale 1957; it refines Theorem 4.17 of the paper, which is right for two sizes only). If they
# can't, the residual graph names a Hall set X of values with sum_{i in X} o_i > sum_S min(S, sum_{i in X} F_iS) * b_S.
#
# There are few sizes and many values, so paths are searched in the graph of sizes alone. Let y_iS be the records of
# value i in size S, and U_iS their limit. Arc S -> T has capacity sum_i min(y_iS, U_iT - y_iT): the records, of any
# value, that may move from S to T.


@dataclass(frozen=True)
class Flow:
    """How many records of each value go to the buckets of each size; if records are left over, also why.

    Attributes:
        allocation: The number of records by value and size (m, k).
        unplaced: The number of records that fit nowhere.
        blocked: Whether each value belongs to a set of values with too little room (m,); all False if every record
            fits.
        cut: The condition on the numbers of buckets that fails; only stated if bounded sets of values overlap, else
            None.
    """

    allocation: Ints
    unplaced: int
    blocked: Flags
    cut: HallCut | None = None


def allocate_values(problem: BucketProblem, setting: Setting) -> Flow:
    """Divide records among the bucket sizes of a setting, within thresholds of values and bounds on sets of values.

    If bounded sets overlap without one holding the other, they make two trees (families of nested or disjoint sets).
    Then the setting may have at most two sizes; else ``ValueError`` is raised.
    """
    if len(problem.trees) > 1:
        return allocate_crossing(problem, setting)
    sizes, buckets = np.array(setting.sizes, dtype=np.int64), np.array(setting.buckets, dtype=np.int64)
    limits, demand = problem.capacity_for(setting.sizes) * buckets, sizes * buckets
    if not problem.trees:
        return transport_records(problem.counts, limits, demand)
    tree = problem.trees[0]
    return send_records(tree, problem.counts, limits, problem.bound_floors(tree.bounds, sizes) * buckets, demand)


def send_records(tree: GroupTree, supply: Ints, limits: Ints, set_limits: Ints, demand: Ints) -> Flow:
    """Divide records among bucket sizes, where bounded sets of values are nested or disjoint (one tree).

    Args:
        tree: The bounded sets, N of them.
        supply: The number of records of each value (m,).
        limits: The most records of each value in all buckets of each size (m, k).
        set_limits: The most records of each set in all buckets of each size (N, k).
        demand: The number of records that all buckets of each size take (k,).
    """
    (values, sizes), nodes = limits.shape, len(tree.bounds)
    first = 1 + values + np.arange(sizes) * (nodes + 1)  # the nodes of a size: its sets, then all values
    source, sink = 0, 1 + values + sizes * (nodes + 1)
    up = np.where(tree.parent < 0, nodes, tree.parent)
    owner = np.where(tree.owner < 0, nodes, tree.owner)
    tails = [np.full(values, source), np.repeat(np.arange(values) + 1, sizes)]
    heads = [np.arange(values) + 1, (first + owner[:, None]).ravel()]
    tails += [(first + np.arange(nodes)[:, None]).ravel(), first + nodes]
    heads += [(first + up[:, None]).ravel(), np.full(sizes, sink)]
    network = FlowNetwork(np.concatenate(tails), np.concatenate(heads), sink + 1, source, sink)
    amounts = np.minimum(limits, supply[:, None])
    flow, reached = network.find_maximum_flow(np.concatenate((supply, amounts.ravel(), set_limits.ravel(), demand)))
    allocation, blocked = flow[values : values * (sizes + 1)].reshape(values, sizes), reached[1 : values + 1]
    left = int(supply.sum() - allocation.sum())
    return Flow(allocation, left, blocked if left else np.zeros_like(blocked))


def transport_records(supply: Ints, limits: Ints, demand: Ints) -> Flow:
    """Divide records among bucket sizes, where no sets are bounded.

    Args:
        supply: The number of records of each value (m,).
        limits: The most records of each value in all buckets of each size (m, k).
        demand: The number of records that all buckets of each size take (k,).
    """
    # A greedy start, values with the least room first. Each fills the sizes up to their demand, and then beyond.
    allocation, left = np.zeros_like(limits), supply.copy()
    order = np.argsort(limits.sum(axis=1), kind="stable")
    for j in range(len(demand)):
        offer = np.minimum(limits[order, j], left[order])
        allocation[order, j] = np.clip(demand[j] - (np.cumsum(offer) - offer), 0, offer)
        left -= allocation[:, j]
    for j in range(len(demand)):
        more = np.minimum(limits[:, j] - allocation[:, j], left)
        allocation[:, j] += more
        left -= more
    if left.any():
        return Flow(allocation, int(left.sum()), left > 0)
    while True:
        excess = allocation.sum(axis=0) - demand
        path = _find_path(allocation, limits, excess)
        if not isinstance(path, list):
            stuck = int(excess.clip(0).sum())
            holders = np.asarray((allocation[:, path] > 0).any(axis=1))
            return Flow(allocation, stuck, holders if stuck else np.zeros_like(holders))
        arcs = list(itertools.pairwise(path))  # move as many records along the path as it allows
        free = [np.minimum(allocation[:, a], limits[:, b] - allocation[:, b]) for a, b in arcs]
        amount = min(int(excess[path[0]]), -int(excess[path[-1]]), *(int(room.sum()) for room in free))
        for (source, target), room in zip(arcs, free, strict=True):
            moved = np.clip(amount - (np.cumsum(room) - room), 0, room)
            allocation[:, source] -= moved
            allocation[:, target] += moved


def _find_path(allocation: Ints, limits: Ints, excess: Ints) -> list[int] | Flags:
    """Find the shortest path along which records can move from a bucket size with too many to one with too few.

    On each step of the path, some records move from one size to the next.

    Args:
        allocation: The records by value and size (m, k).
        limits: The most records by value and size (m, k).
        excess: By how many records each size has too many (k,); negative if too few.

    Returns:
        The sizes on the path, by position; if there is no path, whether each size can be reached (k,).
    """
    parent = {int(size): -1 for size in np.flatnonzero(excess > 0)}
    queue = deque(parent)
    while queue:
        size = queue.popleft()
        if excess[size] < 0:
            path = [size]
            while parent[path[-1]] >= 0:
                path.append(parent[path[-1]])
            return path[::-1]
        movable = np.minimum(allocation[:, [size]], limits - allocation).sum(axis=0)
        for target in np.flatnonzero(movable).tolist():
            if target not in parent:
                parent[target] = size
                queue.append(target)
    return np.isin(np.arange(len(excess)), list(parent))


# Crossing -------------------------------------------------------------------------------------------------------------
# Two trees of bounded sets that overlap each other, such as the values of two columns.
#
# Let y_i be the records of value i that go to one part of the buckets. They form a circulation: from a root down the
# first tree to the values, and up the second tree back to the root. Every set has a lower and an upper bound. If a real
# solution exists, so does an integral one; if none exists, a cut shows it (Hoffman 1960). This solves two problems:
#
# * one size or two: y_i records go to the first size, the others to the second;
# * dividing buckets into two parts: every set gets its share, rounded down or up (``share_records``).
#
# With three sizes, the problem is no flow any more.


@dataclass(frozen=True)
class HallCut:
    """A condition on the numbers of buckets that every valid setting meets, and the setting at hand violates.

    With b1 buckets of size S1 and b2 of size S2, it says first[S1] b1 + second[S2] b2 >= need.

    Attributes:
        first: The coefficient of b1, for each usable size that S1 can be (K,).
        second: The coefficient of b2, for each usable size that S2 can be (K,).
        need: The least value of the sum.
    """

    first: Ints
    second: Ints
    need: int


@dataclass(frozen=True)
class TreePair:
    """Two families of bounded sets of m values; within a family (a tree), two sets are disjoint or one holds the other.

    Sets of different trees may overlap, such as those of two sensitive columns. Counted together there are M sets, in
    this order: each single value, the first tree's sets, the second tree's sets, and the set of all values.
    """

    first: GroupTree
    second: GroupTree

    def sum_sets(self, amounts: Ints) -> Ints:
        """Return for each of the M sets of both trees the sum of some amounts over its values (M, ..).

        Args:
            amounts: What is summed, by value (m, ..).
        """
        return np.concatenate(
            (amounts, self.first.sum_sets(amounts), self.second.sum_sets(amounts), amounts.sum(axis=0, keepdims=True))
        )

    def find_circulation(self, lower: Ints, upper: Ints) -> tuple[Ints | None, Flags, Flags]:
        """Choose how many records of each value to take, so that the number from each of the M sets lies within bounds.

        The records that are taken go to one part of the buckets, such as those of one size; the others go to the rest.

        Args:
            lower: The least number of records from each set (M,).
            upper: The greatest number of records from each set (M,).

        Returns:
            (the numbers (m,), flags of sets (M,), flags of sets (M,)). If there are no such numbers, the first is None.
            The flags then name the contradiction: the lower bounds of the first flagged sets ask for more than the
            upper bounds of the second ones allow.
        """
        # One arc for every set, and one more for every value.
        one, two, values, sets = len(self.first.bounds), len(self.second.bounds), len(self.first.owner), len(lower)
        base = one + 1 + values
        down = np.where(self.first.parent < 0, one, self.first.parent)
        up = base + np.where(self.second.parent < 0, two, self.second.parent)
        begin = np.where(self.first.owner < 0, one, self.first.owner)
        end = base + np.where(self.second.owner < 0, two, self.second.owner)
        at = one + 1 + np.arange(values)
        tails = np.concatenate((begin, down, base + np.arange(two), [base + two], at))
        heads = np.concatenate((at, np.arange(one), up, [one], end))
        nodes = base + two + 1
        least = np.concatenate((lower, np.zeros(values, dtype=np.int64)))
        most = np.concatenate((upper, np.full(values, int(upper.sum()) + 1)))
        excess = np.zeros(nodes, dtype=np.int64)
        np.add.at(excess, heads, least)
        np.subtract.at(excess, tails, least)
        giving, taking = np.flatnonzero(excess > 0), np.flatnonzero(excess < 0)
        network = FlowNetwork(
            np.concatenate((tails, np.full(len(giving), nodes), taking)),
            np.concatenate((heads, giving, np.full(len(taking), nodes + 1))),
            nodes + 2,
            nodes,
            nodes + 1,
        )
        flow, reached = network.find_maximum_flow(np.concatenate((most - least, excess[giving], -excess[taking])))
        into, out = (reached[heads] & ~reached[tails])[:sets], (reached[tails] & ~reached[heads])[:sets]
        sent = flow[len(tails) : len(tails) + len(giving)]
        return (flow[:values] + lower[:values] if (sent == excess[giving]).all() else None), into, out

    def share_records(self, records: Ints, part: int, buckets: int) -> Ints:
        """Choose how many records of each value go to ``part`` of ``buckets`` buckets (m,).

        Of each value and of each set of both trees, this part gets the proportional share, rounded down or up. So sets
        can be spread evenly over all buckets, even where they overlap.

        Args:
            records: The number of records of each value (m,).
            part: The number of buckets that get the chosen records.
            buckets: The number of all buckets.
        """
        exact = self.sum_sets(records) * part
        shared, _, _ = self.find_circulation(exact // buckets, -(-exact // buckets))
        if shared is None:
            raise ArithmeticError("two families can always be rounded")
        return shared


def compute_limits(problem: BucketProblem, pair: TreePair, sizes: Ints) -> Ints:
    """Return the most records of each of M sets of values in one bucket of each size (M, sizes).

    The sets and their order are those of ``TreePair``: single values, the bounded sets of two trees, and all values.
    """
    bounds = (*pair.first.bounds, *pair.second.bounds)
    return np.concatenate((problem.capacity_for(sizes.tolist()), problem.bound_floors(bounds, sizes), sizes[None, :]))


def allocate_crossing(problem: BucketProblem, setting: Setting) -> Flow:
    """Divide each value's records between at most two bucket sizes, where bounded sets overlap (two trees).

    Raises:
        ValueError: The setting has more than two sizes.
    """
    pair = TreePair(*problem.trees)
    sizes, buckets = (np.array(part, dtype=np.int64) for part in (setting.sizes, setting.buckets))
    if len(sizes) > 2:
        raise ValueError("two families that cross can be parted between two sizes only")
    records, room = pair.sum_sets(problem.counts), compute_limits(problem, pair, sizes) * buckets
    others = room[:, 1] if len(sizes) > 1 else np.zeros_like(records)
    lower, upper = np.maximum(0, records - others), np.minimum(records, room[:, 0])
    every = compute_limits(problem, pair, problem.sizes)
    none, no_values = np.zeros((len(problem.counts), len(sizes)), dtype=np.int64), problem.counts < 0
    if (lower > upper).any():  # a single set is too large
        worst = int(np.argmax(lower - upper))
        return Flow(none, problem.records, no_values, HallCut(every[worst], every[worst], int(records[worst])))
    amounts, into, out = pair.find_circulation(lower, upper)
    if amounts is not None:
        return Flow(np.stack([amounts, problem.counts - amounts], axis=1)[:, : len(sizes)], 0, no_values)
    low, high = into & (lower > 0), out & (upper < records)
    need = int(records[low].sum() - records[out & ~high].sum())
    return Flow(none, problem.records, no_values, HallCut(every[high].sum(axis=0), every[low].sum(axis=0), need))
