"""Maximum flow in exact integers, on scipy's solver: that one counts in 32 bits and cuts longer numbers off silently.

Long numbers are sent by their leading bits first, and then, as often as it takes, what is left of them.

``tree_transport``: which records go to which bucket size where sets of values that are nested or disjoint
are bounded. The records of every value flow through a copy of the tree for each size: a set G takes at most F_GS b_S
records to the buckets of size S. Integers come for free, and a smallest cut names values X with
    sum_{i in X} o_i  >  sum_S rho_S(X) b_S,
rho_S(X) the most records of values in X that the bounds allow in one bucket of size S (``Tree.rank``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from privsql.mechanisms.bucketize.groups.families import Tree
    from privsql.mechanisms.bucketize.model import Ints

Flags = NDArray[np.bool_]
BITS = 30  # of the numbers that the solver is given


@dataclass(frozen=True)
class Network:
    """Arcs (E,) between nodes 0 .. ``nodes`` - 1, at most one between two of them."""

    tails: Ints
    heads: Ints
    nodes: int
    source: int
    sink: int

    def maximum(self, capacity: Ints, bits: int = BITS) -> tuple[Ints, Flags]:
        """The flow on every arc (E,), and the nodes that more could reach from the source: a smallest cut."""
        flow = np.zeros_like(capacity)
        ends = (capacity[self.tails == self.source].sum(), capacity[self.heads == self.sink].sum())
        left = int(min(ends))  # no more than that can still be sent
        while True:
            shift = max(0, left.bit_length() - bits)
            room, back = (np.minimum(part >> shift, 1 << bits) for part in (capacity - flow, flow))
            flow += self._more(room, back) << shift
            if not shift:
                return flow, self._reached(capacity - flow, flow)
            left = 2 * len(capacity) << shift  # each arc of the smallest cut so far has less than 2^shift left

    def _both(self, forward: Ints, backward: Ints) -> scipy.sparse.csr_array:
        """What may still be sent along the arcs and back."""
        rows, columns = np.concatenate((self.tails, self.heads)), np.concatenate((self.heads, self.tails))
        amounts = np.concatenate((forward, backward))
        some = amounts > 0
        shape = (self.nodes, self.nodes)
        return scipy.sparse.csr_array((amounts[some].astype(np.int32), (rows[some], columns[some])), shape=shape)

    def _more(self, forward: Ints, backward: Ints) -> Ints:
        if int(max(forward.max(initial=0), backward.max(initial=0))) > np.iinfo(np.int32).max:
            raise OverflowError("a capacity does not fit the solver's 32 bits")
        found = scipy.sparse.csgraph.maximum_flow(self._both(forward, backward), self.source, self.sink)
        return np.asarray(found.flow[self.tails, self.heads]).astype(np.int64)

    def _reached(self, forward: Ints, backward: Ints) -> Flags:
        graph = self._both(np.minimum(forward, 1), np.minimum(backward, 1))
        nodes = scipy.sparse.csgraph.breadth_first_order(graph, self.source, return_predecessors=False)
        return np.isin(np.arange(self.nodes), nodes)


def tree_transport(tree: Tree, supply: Ints, limits: Ints, sets: Ints, demand: Ints) -> tuple[Ints, Flags]:
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
    network = Network(np.concatenate(tails), np.concatenate(heads), sink + 1, source, sink)
    amounts = np.minimum(limits, supply[:, None])
    flow, reached = network.maximum(np.concatenate((supply, amounts.ravel(), sets.ravel(), demand)))
    return flow[values : values * (sizes + 1)].reshape(values, sizes), reached[1 : values + 1]
