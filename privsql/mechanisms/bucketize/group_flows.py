"""Decide whether a setting can be filled under bounds on groups: flows on trees of groups, and Hall's conditions."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.model import BucketProblem, GroupTree, Ints, Setting

# Flow -----------------------------------------------------------------------------------------------------------------
# Maximum flow in exact integers, on scipy's solver: that one counts in 32 bits and cuts longer numbers off silently.
#
# Long numbers are sent by their leading bits first, and then, as often as it takes, what is left of them.
#
# ``tree_transport``: which records go to which bucket size where sets of values that are nested or disjoint
# are bounded. The records of every value flow through a copy of the tree for each size: a set G takes at most F_GS b_S
# records to the buckets of size S. Integers come for free, and a smallest cut names values X with
#     sum_{i in X} o_i  >  sum_S rho_S(X) b_S,
# rho_S(X) the most records of values in X that the bounds allow in one bucket of size S (``GroupTree.rank``).

Flags = NDArray[np.bool_]
BITS = 30  # of the numbers that the solver is given


@dataclass(frozen=True)
class FlowNetwork:
    """Arcs (E,) between nodes 0 .. ``nodes`` - 1, at most one between two of them."""

    tails: Ints
    heads: Ints
    nodes: int
    source: int
    sink: int

    def find_maximum_flow(self, capacity: Ints, bits: int = BITS) -> tuple[Ints, Flags]:
        """Return the flow on every arc (E,), and the nodes on the source's side of a smallest cut."""
        flow = np.zeros_like(capacity)
        ends = (capacity[self.tails == self.source].sum(), capacity[self.heads == self.sink].sum())
        left = int(min(ends))  # no more than that can still be sent
        while True:
            shift = max(0, left.bit_length() - bits)
            room, back = (np.minimum(part >> shift, 1 << bits) for part in (capacity - flow, flow))
            flow += self._find_more_flow(room, back) << shift
            if not shift:
                return flow, self._reached_nodes(capacity - flow, flow)
            left = 2 * len(capacity) << shift  # each arc of the smallest cut so far has less than 2^shift left

    def _residual_graph(self, forward: Ints, backward: Ints) -> scipy.sparse.csr_array:
        """Return what may still be sent along the arcs and back."""
        rows, columns = np.concatenate((self.tails, self.heads)), np.concatenate((self.heads, self.tails))
        amounts = np.concatenate((forward, backward))
        some = amounts > 0
        shape = (self.nodes, self.nodes)
        return scipy.sparse.csr_array((amounts[some].astype(np.int32), (rows[some], columns[some])), shape=shape)

    def _find_more_flow(self, forward: Ints, backward: Ints) -> Ints:
        if int(max(forward.max(initial=0), backward.max(initial=0))) > np.iinfo(np.int32).max:
            raise OverflowError("a capacity does not fit the solver's 32 bits")
        solution = scipy.sparse.csgraph.maximum_flow(self._residual_graph(forward, backward), self.source, self.sink)
        return np.asarray(solution.flow[self.tails, self.heads]).astype(np.int64)

    def _reached_nodes(self, forward: Ints, backward: Ints) -> Flags:
        graph = self._residual_graph(np.minimum(forward, 1), np.minimum(backward, 1))
        nodes = scipy.sparse.csgraph.breadth_first_order(graph, self.source, return_predecessors=False)
        return np.isin(np.arange(self.nodes), nodes)


def tree_transport(tree: GroupTree, supply: Ints, limits: Ints, sets: Ints, demand: Ints) -> tuple[Ints, Flags]:
    """Send ``supply`` (m,) to sizes with ``demand`` (k,): the allocation (m, k), and the values of a violated set.

    At most ``limits`` (m, k) of each value, and at most ``sets`` (N, k) of each set of the tree. Where everything is
    placed the second result means nothing.
    """
    (values, sizes), nodes = limits.shape, len(tree.bounds)
    first = 1 + values + np.arange(sizes) * (nodes + 1)  # of each size: its sets, and then the whole
    source, sink = 0, 1 + values + sizes * (nodes + 1)
    up = np.where(tree.parent < 0, nodes, tree.parent)
    owner = np.where(tree.owner < 0, nodes, tree.owner)
    tails = [np.full(values, source), np.repeat(np.arange(values) + 1, sizes)]
    heads = [np.arange(values) + 1, (first + owner[:, None]).ravel()]
    tails += [(first + np.arange(nodes)[:, None]).ravel(), first + nodes]
    heads += [(first + up[:, None]).ravel(), np.full(sizes, sink)]
    network = FlowNetwork(np.concatenate(tails), np.concatenate(heads), sink + 1, source, sink)
    amounts = np.minimum(limits, supply[:, None])
    flow, reached = network.find_maximum_flow(np.concatenate((supply, amounts.ravel(), sets.ravel(), demand)))
    return flow[values : values * (sizes + 1)].reshape(values, sizes), reached[1 : values + 1]


# Crossing -------------------------------------------------------------------------------------------------------------
# Two families of bounded sets that cross each other, such as the values of two columns.
#
# How many records y_i of each value go to one part of the buckets is a circulation: from the whole down the first tree
# to the values, and up the second tree to the whole. Every set has a lower and an upper bound; if a real solution
# exists, so does an integral one, and if there is none, a cut shows it (Hoffman 1960). That settles
#
# * one size or two: y are the records in the buckets of the first size, o - y those in the second;
# * how to part buckets: every set gets the floor or the ceiling of its share (``share_records``).
#
# With three sizes the same question is no flow any more.


@dataclass(frozen=True)
class HallCut:
    """Sets whose bounds contradict each other: a linear condition on buckets that these fail.

    ``first`` . b1 + ``second`` . b2 >= ``need``, coefficients (K,) by the sizes of the two parts.
    """

    first: Ints
    second: Ints
    need: int


@dataclass(frozen=True)
class TreePair:
    """Two trees over the same values. Its sets (M,): the values, the first tree's, the second's, all values."""

    first: GroupTree
    second: GroupTree

    def sum_sets(self, amounts: Ints) -> Ints:
        """Sums over each set (M, ..)."""
        return np.concatenate(
            (amounts, self.first.sum_sets(amounts), self.second.sum_sets(amounts), amounts.sum(axis=0, keepdims=True))
        )

    def find_circulation(self, lower: Ints, upper: Ints) -> tuple[Ints | None, Flags, Flags]:
        """Amounts (m,) whose sums lie within the bounds (M,); or None, and the sets with too large a lower bound (M,)
        and those with too small an upper bound (M,): together a contradiction.
        """
        tails, heads, nodes = self._make_arcs()
        sets, values = len(lower), len(self.first.owner)
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

    def _make_arcs(self) -> tuple[Ints, Ints, int]:
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

    def share_records(self, records: Ints, part: int, buckets: int) -> Ints:
        """Of ``records`` (m,) those for ``part`` of ``buckets`` buckets: of every set floor or ceiling of its share."""
        exact = self.sum_sets(records) * part
        shared, _, _ = self.find_circulation(exact // buckets, -(-exact // buckets))
        if shared is None:
            raise ArithmeticError("two families can always be rounded")
        return shared


def compute_limits(problem: BucketProblem, pair: TreePair, sizes: Ints) -> Ints:
    """The most records of each set in one bucket of each size (M, K)."""
    bounds = (*pair.first.bounds, *pair.second.bounds)
    return np.concatenate((problem.capacity_for(sizes.tolist()), problem.bound_floors(bounds, sizes), sizes[None, :]))


def allocate_crossing(problem: BucketProblem, setting: Setting) -> Flow:
    """The records of each value in each of at most two sizes, or why there are none."""
    pair = TreePair(*problem.trees)
    sizes, buckets = (np.array(part, dtype=np.int64) for part in (setting.sizes, setting.buckets))
    if len(sizes) > 2:
        raise ValueError("two families that cross can be parted between two sizes only")
    records, room = pair.sum_sets(problem.counts), compute_limits(problem, pair, sizes) * buckets
    others = room[:, 1] if len(sizes) > 1 else np.zeros_like(records)
    lower, upper = np.maximum(0, records - others), np.minimum(records, room[:, 0])
    every = compute_limits(problem, pair, problem.sizes)
    none, no_values = np.zeros((len(problem.counts), len(sizes)), dtype=np.int64), problem.counts < 0
    if (lower > upper).any():  # one set alone is too large
        worst = int(np.argmax(lower - upper))
        return Flow(none, problem.records, no_values, HallCut(every[worst], every[worst], int(records[worst])))
    amounts, into, out = pair.find_circulation(lower, upper)
    if amounts is not None:
        return Flow(np.stack([amounts, problem.counts - amounts], axis=1)[:, : len(sizes)], 0, no_values)
    low, high = into & (lower > 0), out & (upper < records)
    need = int(records[low].sum() - records[out & ~high].sum())
    return Flow(none, problem.records, no_values, HallCut(every[high].sum(axis=0), every[low].sum(axis=0), need))


# Assignment -----------------------------------------------------------------------------------------------------------
# Layouts that keep bounds on two families of sets that cross: in every bucket each set has the floor or the ceiling of
# its mean. (One family of nested or disjoint sets lies along lines, as in ``lay_out_evenly``.)
#
# Blocks of 2^k buckets are halved k times. What is odd in number is paired, within the smallest set of each family in
# which two are left over; partners go to different halves. Every record has at most one partner in each family, so they
# form paths and cycles that alternate between the families and can be told in two; every set is halved to within one.
# (A balanced edge colouring of a bipartite multigraph, de Werra 1971, of which buckets are the colours, by Euler
# splits.) Buckets beyond a power of two are parted by a circulation (``TreePair.share_records``).


def assign_across(records: Ints, buckets: int, pair: TreePair, noise: Shuffler) -> tuple[Ints, Ints]:
    """``records`` (m,) dealt evenly to ``buckets`` in both families: value and bucket of each, in no order that means
    anything.
    """
    left, values, bids, start = records.copy(), [], [], 0
    while start < buckets:
        width = 1 << ((buckets - start).bit_length() - 1)
        share = pair.share_records(left, width, buckets - start)
        left = left - share
        shared, places = _halve_records(share, width, (pair.first, pair.second), noise)
        values.append(shared)
        bids.append(start + places)
        start += width
    return np.concatenate(values), np.concatenate(bids)


def _halve_records(records: Ints, width: int, trees: Sequence[GroupTree], noise: Shuffler) -> tuple[Ints, Ints]:
    """``records`` (m,) dealt evenly to ``width`` buckets, a power of two: value and bucket of each."""
    values = np.flatnonzero(records)
    parts, counts = np.zeros_like(values), records[values]
    while width > 1:
        odd = counts % 2 == 1
        upper = np.zeros_like(counts)
        upper[odd] = _split_partners(parts[odd], values[odd], trees, noise)
        halves = np.stack([counts // 2 + odd - upper, counts // 2 + upper])
        some = halves > 0
        parts = np.stack([2 * parts, 2 * parts + 1])[some]
        values, counts = np.broadcast_to(values, halves.shape)[some], halves[some]
        width //= 2
    return np.repeat(values, counts), np.repeat(parts, counts)


def _split_partners(parts: Ints, values: Ints, trees: Sequence[GroupTree], noise: Shuffler) -> Ints:
    """0 or 1 for each of some records (e,), so that partners differ."""
    number = len(parts)
    pairs = np.concatenate([_pair_partners(parts, values, tree, noise) for tree in trees], axis=1)
    # Each record stands for two nodes, itself and its opposite; partners are tied to each other's opposites.
    rows, columns = np.concatenate((pairs[0], pairs[0] + number)), np.concatenate((pairs[1] + number, pairs[1]))
    graph = scipy.sparse.coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(2 * number, 2 * number))
    label = scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
    one, opposite = label[:number], label[number:]
    coin: Ints = noise.integers(0, 2, 2 * number)[np.minimum(one, opposite)]
    return np.where(one < opposite, coin, 1 - coin)


def _pair_partners(parts: Ints, values: Ints, tree: GroupTree, noise: Shuffler) -> Ints:
    """Pairs of records (2, p) of the same part: within the smallest set of the tree first, then within larger ones.

    Of the records of one part in one set at most one is left without a partner in it.
    """
    left = np.arange(len(parts))
    pairs: list[NDArray[np.int64]] = []
    for sets in [*tree.chains[-2::-1], np.full(len(tree.owner), -1)]:
        left = noise.permutation(left)
        key = parts[left] * (len(tree.bounds) + len(tree.owner) + 1) + sets[values[left]]
        order = np.argsort(key, kind="stable")
        left, key = left[order], key[order]
        new = np.ones(len(key), dtype=bool)
        new[1:] = key[1:] != key[:-1]
        begin = np.maximum.accumulate(np.where(new, np.arange(len(key)), 0))
        second = (np.arange(len(key)) - begin) % 2 == 1
        first = np.zeros_like(second)
        first[:-1] = second[1:]
        pairs.append(np.stack([left[first], left[second]]))
        left = left[~(first | second)]
    return np.concatenate(pairs, axis=1)


# Hall -----------------------------------------------------------------------------------------------------------------
# Which records go to which bucket size: a transportation problem, solved in exact integers.
#
# A setting b is valid iff records can be sent to sizes with at most F_iS * b_S of value i to size S (Gale 1957; a
# refinement of Theorem 4.17 of the paper, which is right for two sizes only). When they can't, the residual graph names
# a Hall set X of values with sum_{i in X} o_i > sum_S min(S, sum_{i in X} F_iS) * b_S.
#
# There are few sizes and many values, so paths are searched on the graph of sizes alone: the arc S -> T has capacity
# sum_i min(y_iS, U_iT - y_iT), the records that may move from S to T whatever their value.


@dataclass(frozen=True)
class Flow:
    """The outcome of ``transport_records``: the allocation y (m, k), and where it got stuck.

    ``unplaced`` is the number of records that fit nowhere; ``blocked`` (m,) flags the values of a violated
    Hall set, all False if everything was placed; of two trees ``cut`` says what was violated.
    """

    allocation: Ints
    unplaced: int
    blocked: Flags
    cut: HallCut | None = None


def transport_records(supply: Ints, limits: Ints, demand: Ints) -> Flow:
    """Send ``supply`` (m,) to sizes with ``demand`` (k,), at most ``limits`` (m, k) of each value to each size."""
    order = np.argsort(limits.sum(axis=1), kind="stable")
    allocation = np.zeros_like(limits)
    allocation[order] = _spread_greedily(supply[order], limits[order], demand)
    unplaced = supply - allocation.sum(axis=1)
    if unplaced.any():
        return Flow(allocation, int(unplaced.sum()), unplaced > 0)
    while True:
        excess = allocation.sum(axis=0) - demand
        path = _find_path(allocation, limits, excess)
        if not isinstance(path, list):
            stuck = int(excess.clip(0).sum())
            holders = np.asarray((allocation[:, path] > 0).any(axis=1))
            return Flow(allocation, stuck, holders if stuck else np.zeros_like(holders))
        _push_along(allocation, limits, path, excess)


def allocate_values(problem: BucketProblem, setting: Setting) -> Flow:
    """Transport the records of ``problem`` to the buckets of ``setting``; with two trees, of at most two sizes."""
    sizes = np.array(setting.sizes, dtype=np.int64)
    buckets = np.array(setting.buckets, dtype=np.int64)
    if len(problem.trees) > 1:
        return allocate_crossing(problem, setting)
    limits = problem.capacity_for(setting.sizes) * buckets
    sets = [(tree, problem.bound_floors(tree.bounds, sizes) * buckets) for tree in problem.trees]
    return send_records(problem.counts, limits, sizes * buckets, *sets)


def send_records(supply: Ints, limits: Ints, demand: Ints, sets: tuple[GroupTree, Ints] | None = None) -> Flow:
    """Send records to sizes as ``transport_records`` does; ``sets``: a tree of sets of values, and bounds (N, k)."""
    if sets is None:
        return transport_records(supply, limits, demand)
    allocation, blocked = tree_transport(sets[0], supply, limits, sets[1], demand)
    left = int(supply.sum() - allocation.sum())
    return Flow(allocation, left, blocked if left else np.zeros_like(blocked))


def _spread_greedily(supply: Ints, limits: Ints, demand: Ints) -> Ints:
    """Greedy start: values in row order; each fills the sizes left to right, first up to the demand, then beyond."""
    allocation = np.zeros_like(limits)
    left, room = supply.copy(), demand.copy()
    for j in range(limits.shape[1]):
        offer = np.minimum(limits[:, j], left)
        before = np.cumsum(offer) - offer
        allocation[:, j] = np.clip(room[j] - before, 0, offer)
        left -= allocation[:, j]
    for j in range(limits.shape[1]):
        more = np.minimum(limits[:, j] - allocation[:, j], left)
        allocation[:, j] += more
        left -= more
    return allocation


def _find_path(allocation: Ints, limits: Ints, excess: Ints) -> list[int] | Flags:
    """Shortest path of sizes from one with too many records to one with too few, or the sizes reached."""
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


def _push_along(allocation: Ints, limits: Ints, path: list[int], excess: Ints) -> None:
    """Move as many records as the path allows, in place."""
    arcs = list(itertools.pairwise(path))
    free = [np.minimum(allocation[:, a], limits[:, b] - allocation[:, b]) for a, b in arcs]
    amount = min(int(excess[path[0]]), -int(excess[path[-1]]), *(int(room.sum()) for room in free))
    for (source, target), room in zip(arcs, free, strict=True):
        before = np.cumsum(room) - room
        moved = np.clip(amount - before, 0, room)
        allocation[:, source] -= moved
        allocation[:, target] += moved
