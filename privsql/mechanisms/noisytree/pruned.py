"""What the pruned sub-partitions hold: a model of how each taxonomy node is expanded, pooled over all its expansions.

In every expansion of node u a record's sub-partition is taken to have the same distribution pi_u over the candidates,
so the records that a row lost fall on the candidates that it did not keep, in proportion to pi_u. Candidates that one
row pruned are known from rows that kept them (quasi-independence in a table of rows x candidates with the pruned cells
missing; fitted by expectation maximization).
Everything here is computed from the published tree, so it spends no budget.

Noise that happens to be large makes an empty partition pass, so a small kept size is more often noise than its
variance says. The true size c of a partition is given a prior with a heavy tail, Pr[c >= k] = 1/(1 + k/m), whose scale
m is what the model expects there; the error of the published size y is then E[(c - y)^2 | y].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytree.consistent import Consistent, Remainder, consistent, noise_variance

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.mechanisms.noisytree.tree import Ints, Reals, Tree

ITERATIONS = 20
DOUBT = 1.0  # standard deviation of a remainder's prior, as a part of its mean
NEGLIGIBLE = 1e-9
MOST = 100_000  # what stands for pruned records, beyond one for every expanded row
NOTHING = 1e-6  # records: a row whose candidates were all kept has nothing to stand for
TAIL = 1.0  # exponent of the tail of the prior of a kept size
LEAST = 0.05  # records: the least scale of that prior
REACH, STEPS = 16.0, 32  # how far from y true sizes are looked at, in units of 1/budget; points on either side
ANYWHERE = 1.0  # records per node that are spread over its candidates, whether or not any was kept


@dataclass(frozen=True)
class Candidates:
    """The M sub-partitions that the model knows of, by the taxonomy node that is expanded into them.

    ``node``, ``sub`` (M,), sorted: the node, and which of its sub-partitions: a bit mask over its children, or a child.
    ``starts`` (K+1,): the first of each node. ``of_row`` (T,): the candidate that a row is, -1 for the root.
    """

    node: Ints
    sub: Ints
    starts: Ints
    of_row: Ints

    @property
    def nodes(self) -> int:
        """K."""
        return len(self.starts) - 1


@dataclass(frozen=True)
class Fit:
    """Consistent sizes and the model: ``frequency`` (M,), expected records by candidate over all rows of its node."""

    candidates: Candidates
    frequency: Reals
    sizes: Consistent


def fit(tree: Tree, candidates: Candidates, anywhere: Callable[[Reals], Reals]) -> Fit:
    """Sizes and model, each improved by the other.

    ``anywhere`` gives, for the frequencies so far, a distribution over each node's candidates that leaves none out.
    """
    own = noise_variance(tree)
    size = np.maximum(tree.size, 0).astype(np.float64)
    size[0] = size[tree.parent == 0].sum()
    frequency = _kept(candidates, size)
    for _ in range(ITERATIONS):
        frequency = frequency + ANYWHERE * anywhere(frequency)
        error = np.maximum(own, _selected(tree, candidates, frequency, size))
        sizes = consistent(tree, error, expected(tree, candidates, frequency, size))
        size = np.maximum(sizes.size, 0)
        frequency = _kept(candidates, size) + _unseen(tree, candidates, frequency, np.maximum(sizes.remainder, 0))
    return Fit(candidates, frequency, sizes)


def fit_of_all(tree: Tree, candidates: Candidates) -> Fit:
    """The same where every candidate was kept, whatever its count was: nothing is lost, and errors are the noise's."""
    none = np.zeros(len(tree))
    sizes = consistent(tree, noise_variance(tree), Remainder(none, none + 1))
    return Fit(candidates, _kept(candidates, np.maximum(sizes.size, 0)), sizes)


def unkept(tree: Tree, candidates: Candidates, frequency: Reals) -> tuple[Reals, Reals]:
    """By row: frequency of the candidates that it did not keep, and of all candidates of its node."""
    of_node = np.add.reduceat(np.append(frequency, 0.0), candidates.starts[:-1])
    everything = np.where(tree.leaf, 0.0, of_node[tree.next])
    kept = np.bincount(tree.parent[1:], weights=frequency[candidates.of_row[1:]], minlength=len(tree))
    return np.maximum(everything - kept, 0.0), everything


def expected(tree: Tree, candidates: Candidates, frequency: Reals, size: Reals) -> Remainder:
    """Prior of what each row lost: its size times the share of the candidates that it did not keep."""
    missing, everything = unkept(tree, candidates, frequency)
    mean = np.divide(size * missing, everything, out=np.zeros(len(tree)), where=everything > 0)
    return Remainder(mean, (DOUBT * mean) ** 2 + mean + 1)


def _selected(tree: Tree, candidates: Candidates, frequency: Reals, size: Reals) -> Reals:
    """Squared error of the leaves' noisy sizes, (T,), given that they passed their threshold; 0 for other rows."""
    leaf = np.flatnonzero(tree.leaf)
    _, everything = unkept(tree, candidates, frequency)
    above, own = tree.parent[leaf], frequency[candidates.of_row[leaf]]
    # Without what the leaf itself has brought into the model.
    others = np.maximum(own - np.maximum(tree.size[leaf], 0), 0.0)
    scale = size[above] * others / np.maximum(everything[above], 1.0)
    budget = np.array([float(one) for one in tree.budgets])[tree.spent[leaf]]
    found = np.zeros(len(tree))
    found[leaf] = squared_error(tree.size[leaf], budget, scale)
    return found


def squared_error(size: Ints, budget: Reals, scale: Reals) -> Reals:
    """E[(c - y)^2 | y] for sizes (n,), each with its budget and the scale of its prior."""
    step = np.maximum(1.0, REACH / budget / STEPS)[:, None]
    true = np.round(size[:, None] + np.arange(-STEPS, STEPS + 1) * step)
    possible, prior = np.maximum(true, 0), np.maximum(scale, LEAST)[:, None]
    weight = (1 + possible / prior) ** -TAIL - (1 + (possible + step) / prior) ** -TAIL
    distance = np.abs(size[:, None] - possible)
    weight *= (true >= 0) * np.exp(-budget[:, None] * distance)
    total = weight.sum(axis=1)
    found: Reals = np.divide((weight * distance**2).sum(axis=1), total, out=np.zeros(len(size)), where=total > 0)
    return found


def _kept(candidates: Candidates, size: Reals) -> Reals:
    """Records by candidate, over all rows that kept it."""
    return np.bincount(candidates.of_row[1:], weights=size[1:], minlength=len(candidates.sub)).astype(np.float64)


def _unseen(tree: Tree, candidates: Candidates, frequency: Reals, records: Reals) -> Reals:
    """Expected records by candidate, over all rows that did not keep it and lost ``records`` (T,) together."""
    missing, _ = unkept(tree, candidates, frequency)
    rate = np.divide(records, missing, out=np.zeros(len(tree)), where=missing > NEGLIGIBLE)
    inner = np.flatnonzero(~tree.leaf)
    of_node = np.bincount(tree.next[inner], weights=rate[inner], minlength=candidates.nodes)
    kept = np.bincount(candidates.of_row[1:], weights=rate[tree.parent[1:]], minlength=len(candidates.sub))
    found: Reals = frequency * np.maximum(of_node[candidates.node] - kept, 0.0)
    return found


@dataclass(frozen=True)
class Lost:
    """What stands for pruned records: ``row`` (G,), ascending: the expanded row that lost them; ``candidate`` (G,):
    in which of the sub-partitions that it did not keep; ``weight`` (G,): an equal share of the row's remainder, which
    may be negative where the noise is.
    """

    row: Ints
    candidate: Ints
    weight: Reals


def lost(tree: Tree, found: Fit, draw: np.random.Generator) -> Lost:
    """At least one for every expanded row that may have lost records, more for those that lost more."""
    missing, _ = unkept(tree, found.candidates, found.frequency)
    rows = np.flatnonzero(~tree.leaf & (missing > NOTHING))
    records = np.maximum(found.sizes.remainder[rows], 0)
    number = 1 + (records / max(float(records.sum()), 1.0) * MOST).astype(np.int64)
    row = np.repeat(rows, number)
    candidate = _unkept_at(tree, found, row, draw.random(len(row)) * missing[row])
    return Lost(row, candidate, found.sizes.remainder[row] / np.repeat(number, number))


def any_of(found: Fit, node: int, uniform: Reals) -> Ints:
    """A candidate of the node for each uniform number, by frequency."""
    inside = slice(int(found.candidates.starts[node]), int(found.candidates.starts[node + 1]))
    edges = np.cumsum(found.frequency[inside])
    chosen = np.searchsorted(edges, uniform * edges[-1], side="right")
    candidate: Ints = np.minimum(chosen, len(edges) - 1) + inside.start
    return candidate


def _unkept_at(tree: Tree, found: Fit, row: Ints, value: Reals) -> Ints:
    """The candidate at ``value`` on the line of those that a row did not keep, laid end to end by frequency.

    The position is moved past every kept candidate that begins at or before it. All rows are searched at once: row r
    has the stretch [r, r + 1) times a span that no value reaches.
    """
    candidates, edges = found.candidates, np.append(0.0, np.cumsum(found.frequency))
    kept, parent = candidates.of_row[1:], tree.parent[1:]
    run = np.append(0.0, np.cumsum(found.frequency[kept]))
    first = np.searchsorted(parent, np.arange(len(tree)))
    place = edges[kept] - edges[candidates.starts[tree.next[parent]]] - (run[:-1] - run[first[parent]])
    span = float(edges[-1]) + 1.0
    passed = np.searchsorted(parent * span + np.clip(place, 0, span - 0.5), row * span + value, side="right")
    start = candidates.starts[tree.next[row]]
    chosen = np.searchsorted(edges, edges[start] + value + run[passed] - run[first[row]], side="right") - 1
    candidate: Ints = np.clip(chosen, start, candidates.starts[tree.next[row] + 1] - 1)
    return candidate
