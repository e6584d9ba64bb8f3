"""One round of DiffPart: every partition of the front takes its next expansion (paper, Procedure 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytree.tree import kinds
from privsql.mechanisms.setvalued.diffpart.budget import portion, threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.dpnoise import CountNoise
    from privsql.mechanisms.noisytree.budget import Budgets
    from privsql.mechanisms.noisytree.tree import Flags, Ints
    from privsql.mechanisms.setvalued.diffpart.records import Generalized
    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.parameters import SetValued
    from privsql.noise import Chooser

WIDE, MASK = 32, 2**32 - 1  # a key holds a partition above a mask


@dataclass(frozen=True)
class Children:
    """The C sub-partitions of a round that were kept, by partition and mask: rows of ``Tree``."""

    parent: Ints
    mask: Ints
    size: Ints
    spent: Ints
    leaf: Flags

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True)
class Moves:
    """Where things go: ``child``: for every record of the front its position in ``Children``, -1 where it was pruned.

    ``of`` (C,): partition of the front that each child comes from. ``rest`` (C,): code of what it has left to spend.
    """

    child: Ints
    of: Ints
    rest: Ints


@dataclass(frozen=True)
class Run:
    """What stays the same in all rounds: the records, what is asked for, and where noise and choices come from."""

    weights: Ints
    entries: Generalized
    taxonomy: Taxonomy
    asked: SetValued
    budgets: Budgets
    noise: CountNoise
    choose: Chooser


@dataclass(frozen=True)
class Front:
    """The F partitions that are to be expanded, and the records in them.

    ``row``: their rows in the tree. ``rest``: code of the unspent half of the budget. ``inner``: inner nodes below the
    hierarchy cut. ``pending`` (F, K): inner nodes of the cut. ``record``, ``partition``, ``at``: the records in them,
    sorted by partition, and each one's next entry in ``Generalized``.
    """

    row: Ints
    rest: Ints
    inner: Ints
    pending: Flags
    record: Ints
    partition: Ints
    at: Ints

    def __len__(self) -> int:
        return len(self.row)

    @property
    def node(self) -> Ints:
        """The node at which each partition is expanded: the lowest number of its cut."""
        first: Ints = self.pending.argmax(axis=1)
        return first

    @classmethod
    def of_root(cls, run: Run) -> Front:
        """All records under a cut of the root alone."""
        pending = np.zeros((1, run.taxonomy.nodes), dtype=bool)
        pending[0, 0] = True
        rest = np.array([run.budgets.code(run.asked.epsilon / 2)], dtype=np.int64)
        everyone = np.arange(len(run.weights), dtype=np.int64)
        at = run.entries.starts[:-1]
        row = np.zeros(1, dtype=np.int64)
        return cls(row, rest, run.taxonomy.inner[:1], pending, everyone, np.zeros_like(everyone), at)

    def following(self, children: Children, moves: Moves, first_row: int, taxonomy: Taxonomy) -> Front:
        """The kept sub-partitions that are not item sets; children take the tree's rows from ``first_row`` on."""
        inner = np.flatnonzero(~children.leaf)
        position = np.full(len(children) + 1, -1, dtype=np.int64)  # its last entry is that of pruned records, -1
        position[inner] = np.arange(len(inner))
        moved = position[moves.child]
        staying = np.flatnonzero(moved >= 0)
        staying = staying[np.argsort(moved[staying], kind="stable")]
        of = moves.of[inner]
        node = self.node[of]
        which, below = taxonomy.named(node, children.mask[inner], low=False)
        pending = self.pending[of]
        pending[np.arange(len(inner)), node] = False
        pending[which, below] = True
        gained = np.bincount(which, weights=taxonomy.inner[below], minlength=len(inner)).astype(np.int64)
        left = self.inner[of] - taxonomy.inner[node] + gained
        at = self.at[staying] + 1
        return Front(first_row + inner, moves.rest[inner], left, pending, self.record[staying], moved[staying], at)


@dataclass(frozen=True)
class _Plan:
    """How each partition of the front is expanded; depends on no data. ``kind`` (F,) numbers the distinct ways.

    By kind: ``spent``, ``rest``: codes of the budget of each sub-partition's count and of what it has left;
    ``least``: the threshold; ``masks``: number of sub-partitions, 2^degree - 1; ``last``: whether they are item sets.
    """

    kind: Ints
    spent: Ints
    rest: Ints
    least: Ints
    masks: Ints
    last: Flags


def _plan(front: Front, run: Run) -> _Plan:
    node, taxonomy, budgets = front.node, run.taxonomy, run.budgets
    different, kind = kinds(front.rest, front.inner, taxonomy.degree[node], taxonomy.height[node])
    rows = []
    for code, inner, degree, height in different:
        rest, last = budgets.values[code], inner == 1
        spent = portion(run.asked.epsilon, rest, inner)
        left = budgets.code(rest if last else rest - spent)
        least = threshold(run.asked, spent, degree=degree, height=height, last=last, nodes=taxonomy.nodes)
        rows.append((budgets.code(spent), left, least, 2**degree - 1, last))
    spent_code, rest_code, bound, masks, is_last = np.array(rows, dtype=np.int64).T
    return _Plan(kind, spent_code, rest_code, bound, masks, is_last.astype(bool))


def expand(front: Front, run: Run) -> tuple[Children, Moves]:
    """The sub-partitions of the front that pass, and where the records go.

    A sub-partition's key is its partition and its mask. Children are sorted by key, so that their order tells nothing.
    """
    plan = _plan(front, run)
    keys, sub = np.unique(front.partition << WIDE | run.entries.masks[front.at], return_inverse=True)
    counts = np.bincount(sub, weights=run.weights[front.record], minlength=len(keys)).astype(np.int64)
    sizes = _noisy(counts, plan.spent[plan.kind[keys >> WIDE]], run)
    passing = np.flatnonzero(sizes >= plan.least[plan.kind[keys >> WIDE]])
    empty_keys, empty_sizes = _empty(keys, plan, run)
    kept = np.concatenate((keys[passing], empty_keys))
    order = np.argsort(kept)
    position = np.full(len(keys), -1, dtype=np.int64)
    position[passing] = np.argsort(order)[: len(passing)]
    kept, size = kept[order], np.concatenate((sizes[passing], empty_sizes))[order]
    of = kept >> WIDE
    kind = plan.kind[of]
    children = Children(front.row[of], kept & MASK, size, plan.spent[kind], plan.last[kind])
    return children, Moves(position[sub.reshape(-1)], of, plan.rest[kind])


def _noisy(counts: Ints, spent: Ints, run: Run) -> Ints:
    """Every count with noise of its own; one draw for all that spend the same."""
    sizes = np.empty(len(counts), dtype=np.int64)
    for code, places in _groups(spent):
        sizes[places] = run.noise.noisy(counts[places], run.budgets.values[code])
    return sizes


def _groups(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Each distinct code with its places."""
    order = np.argsort(codes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(places):
            yield int(codes[places[0]]), places


def _empty(keys: Ints, plan: _Plan, run: Run) -> tuple[Ints, Ints]:
    """Keys and noisy sizes of the empty sub-partitions that pass; ``keys`` are the occupied ones, sorted.

    How many of a partition's pass is binomial; which is a uniform choice without replacement: the r-th free mask is r
    plus the number of occupied ones before it; and their sizes are noise given that it reaches the threshold. That is
    the distribution of counting them one by one.
    """
    occupied = np.bincount(keys >> WIDE, minlength=len(plan.kind)).astype(np.int64)
    ends = np.cumsum(occupied)
    free = plan.masks[plan.kind] - occupied
    found, sizes = [keys[:0]], [keys[:0]]
    for kind, places in _groups(plan.kind):
        spent, least = run.budgets.values[plan.spent[kind]], int(plan.least[kind])
        number = run.noise.passing(free[places], least, spent)
        for p, count in zip(places[number > 0].tolist(), number[number > 0].tolist(), strict=True):
            before = (keys[ends[p] - occupied[p] : ends[p]] & MASK) - 1 - np.arange(occupied[p])
            ranks = run.choose.choice(int(free[p]), count, replace=False, shuffle=False)
            found.append(p << WIDE | ranks + 1 + np.searchsorted(before, ranks, side="right"))
        sizes.append(run.noise.above(int(number.sum()), least, spent))
    return np.concatenate(found), np.concatenate(sizes)
