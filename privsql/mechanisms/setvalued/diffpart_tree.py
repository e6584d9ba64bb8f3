"""DiffPart for item sets: the taxonomy of items, the tree of partitions, and its budgets path by path."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.mechanisms.dp import noisy_tree
from privsql.mechanisms.dp.noisy_tree import BudgetCodes, distinct_rows, fill_expanded, group_levels, least_cutoff

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.dp_random import CountNoise
    from privsql.keyed_random import Chooser, Shuffler
    from privsql.mechanisms.dp.noisy_tree import Flags, Ints
    from privsql.mechanisms.setvalued.parameters import SetValued

# Budget ---------------------------------------------------------------------------------------------------------------
# Budgets and thresholds of DiffPart, in exact fractions (paper, section 4.1).
#
# A partition that has ``rest`` of the tree's half of the budget unspent, and N inner nodes below its hierarchy cut,
# spends alpha = rest/N on its next expansion. The expansion of the last inner node spends nothing of its own: its
# children are item sets, each counted once with all that is left, epsilon/2 + rest. So every path from the root to an
# item set spends epsilon: the sum of its alphas is epsilon/2 - rest.


def expansion_budget(epsilon: Fraction, rest: Fraction, inner: int) -> Fraction:
    """Return what one expansion spends: rest/N, or for the last one epsilon/2 + rest."""
    return rest / inner if inner > 1 else epsilon / 2 + rest


def least_noisy_size(params: SetValued, spent: Fraction, *, degree: int, height: int, last: bool, nodes: int) -> int:
    """The least noisy size, at least 1, with which a sub-partition is kept. Depends on no data.

    With c1 and c2: ceil(sqrt(2)*c1/spent) for item sets (``last``), ceil(sqrt(2)*c2*height/spent) for others. Else the
    least t with (2^degree - 1) * Pr[noise >= t] <= tau/nodes, or tau_sets/nodes for item sets: the expected number of
    empty sub-partitions that pass. From one that passed at most (tau/nodes)^nodes <= e^(tau/e) others descend.
    """
    if params.c1 is not None and params.c2 is not None:
        factor = params.c1 if last else params.c2 * height
        return max(1, _ceil_root(2 * (factor / spent) ** 2))
    return least_cutoff(2**degree - 1, (params.tau_sets if last else params.tau) / nodes, spent)


def _ceil_root(square: Fraction) -> int:
    """Least integer t with t^2 >= square."""
    root = isqrt(square.numerator // square.denominator)
    return root if root * root >= square else root + 1


# Taxonomy -------------------------------------------------------------------------------------------------------------
# The context-free taxonomy: items grouped by fan-out, level upon level, to one root (paper, section 3.1).
#
# Nodes are numbers. Items are 0..I-1 in the order of the universe. Inner nodes are 0..K-1 **in the order in which they
# are expanded**: greater height first; within a height those with fewer children first, because the last expansion has
# the whole of the leaves' budget; and among equals in random order, the same for all partitions. So the next node of
# any hierarchy cut is its lowest number, chosen among those of greatest height without looking at the data (section
# 4.1), the root is 0, and a parent's number is below its children's.


@dataclass(frozen=True)
class ItemTaxonomy:
    """K inner nodes over I items; all arrays are int64.

    ``item_parent``, ``item_bit`` (I,): an item's node and its place among the node's children. ``parent``, ``bit``
    (K,): the same for inner nodes, -1 for the root. ``height``, ``degree`` (K,): 1 above items; number of children.
    ``inner`` (K,): inner nodes of the sub-tree, itself included: the expansions that it can take. ``starts`` (K+1,),
    ``children``: the children of node k by place, at ``children[starts[k]:starts[k+1]]``; items where the height is 1.
    """

    item_parent: Ints
    item_bit: Ints
    parent: Ints
    bit: Ints
    height: Ints
    degree: Ints
    inner: Ints
    starts: Ints
    children: Ints

    @property
    def item_count(self) -> int:
        """Number of items."""
        return len(self.item_parent)

    @property
    def node_count(self) -> int:
        """Number of inner nodes, at least 1."""
        return len(self.parent)

    def expand_masks(self, node: Ints, mask: Ints, *, low: bool) -> tuple[Ints, Ints]:
        """The children that masks name, as (index into ``node``, child): items if ``low``, else inner nodes."""
        which, child = [], []
        for place in range(int(self.degree.max())):
            has = np.flatnonzero((mask >> place & 1 == 1) & ((self.height[node] == 1) == low))
            which.append(has)
            child.append(self.children[self.starts[node[has]] + place])
        return np.concatenate(which), np.concatenate(child)


def grow_taxonomy(items: int, fan_out: int, noise: Shuffler | None) -> ItemTaxonomy:
    """Group ``items`` by ``fan_out`` to a root; the last group of a level takes what is left.

    ``noise`` draws the order of expansion among nodes of equal height and degree; None leaves it as it is.
    """
    groups = group_levels(items, fan_out)
    ranks = [_rank_nodes(np.bincount(group), noise) for group in groups]
    first = np.cumsum([0, *[len(rank) for rank in ranks[::-1]]])[::-1][1:]  # first number of each level, lowest last
    numbers = [start + rank for start, rank in zip(first, ranks, strict=True)]
    total = sum(len(rank) for rank in ranks)
    parent, bit = np.full(total, -1, dtype=np.int64), np.full(total, -1, dtype=np.int64)
    height, inner = np.ones(total, dtype=np.int64), np.ones(total, dtype=np.int64)
    for level, (below, group) in enumerate(zip(numbers, groups[1:], strict=False)):
        above = numbers[level + 1]
        parent[below], bit[below] = above[group], _places_in_groups(group)
        height[above] = level + 2
        np.add.at(inner, above[group], inner[below])
    return _with_children(numbers[0][groups[0]], _places_in_groups(groups[0]), parent, bit, height, inner)


def rebuild_taxonomy(items: tuple[Ints, Ints], nodes: tuple[Ints, Ints], height: Ints) -> ItemTaxonomy:
    """A taxonomy from parents and places of items and of inner nodes; ``ValueError`` if it is not one."""
    (item_parent, item_bit), (parent, bit) = items, nodes
    number = len(parent)
    below = [*item_parent.tolist(), *parent[1:].tolist()]
    if not number or parent[0] != -1 or any(not 0 <= p < number for p in below):
        raise ValueError("a node's parent is missing")
    if (parent[1:] >= np.arange(1, number)).any() or (height[parent[1:]] != height[1:] + 1).any():
        raise ValueError("nodes do not come before what lies below them")
    if (height[item_parent] != 1).any():
        raise ValueError("an item lies below a node of another height than 1")
    inner = np.ones(number, dtype=np.int64)
    for node in range(number - 1, 0, -1):
        inner[parent[node]] += inner[node]
    result = _with_children(item_parent, item_bit, parent, bit, height, inner)
    places = np.concatenate((item_bit, bit[1:]))
    counted = np.bincount(below, weights=places, minlength=number)
    if (result.degree == 0).any() or (counted != result.degree * (result.degree - 1) // 2).any():
        raise ValueError("the children of a node are not numbered 0, 1, ..")
    return result


def _rank_nodes(degrees: Ints, noise: Shuffler | None) -> Ints:
    """Places of a level's nodes in the order of expansion: by degree, at random among equals."""
    mixed = noise.permutation(len(degrees)) if noise is not None else np.arange(len(degrees))
    order = mixed[np.argsort(degrees[mixed], kind="stable")]
    ranks = np.empty(len(degrees), dtype=np.int64)
    ranks[order] = np.arange(len(degrees))
    return ranks


def _places_in_groups(group: Ints) -> Ints:
    """The place of each member in its group; groups are runs."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group), dtype=np.int64) - starts[group]


def _with_children(
    item_parent: Ints, item_bit: Ints, parent: Ints, bit: Ints, height: Ints, inner: Ints
) -> ItemTaxonomy:
    parents = np.concatenate((item_parent, parent[1:]))
    bits = np.concatenate((item_bit, bit[1:]))
    names = np.concatenate((np.arange(len(item_parent)), np.arange(1, len(parent))))
    named = parents >= 0
    order = np.lexsort((bits[named], parents[named]))
    degree = np.bincount(parents[named], minlength=len(parent)).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(degree)))
    return ItemTaxonomy(item_parent, item_bit, parent, bit, height, degree, inner, starts, names[named][order])


# Records --------------------------------------------------------------------------------------------------------------
# Records as arrays: what each inner node of the taxonomy generalizes of each record.


@dataclass(frozen=True)
class Baskets:
    """Records as item codes: those of record r are ``codes[starts[r]:starts[r+1]]``, ascending, each once.

    ``weights`` (R,): how many records are the same as r (equal records may also lie apart). Records without items are
    counted in ``empty`` and are not among the R.
    """

    starts: Ints
    codes: Ints
    weights: Ints
    empty: int = 0

    def __len__(self) -> int:
        return len(self.weights)


@dataclass(frozen=True)
class Generalized:
    """For each record its inner nodes in the order of expansion, and which of a node's children it has (a bit mask).

    The nodes of record r are at ``starts[r]..starts[r+1]``. All records of a partition have been expanded at the same
    nodes, so a record's next one is the entry after its last.
    """

    starts: Ints
    masks: Ints


def generalize_baskets(baskets: Baskets, taxonomy: ItemTaxonomy) -> Generalized:
    """Masks of all inner nodes of all records: O(sum of record lengths * height of the taxonomy)."""
    records = np.repeat(np.arange(len(baskets), dtype=np.int64), np.diff(baskets.starts))
    nodes, bits = taxonomy.item_parent[baskets.codes], taxonomy.item_bit[baskets.codes]
    keys, masks = [], []
    while len(nodes) and nodes[0] >= 0:
        runs = np.flatnonzero((np.diff(records, prepend=-1) != 0) | (np.diff(nodes, prepend=-1) != 0))
        records, nodes, combined = records[runs], nodes[runs], np.bitwise_or.reduceat(np.int64(1) << bits, runs)
        keys.append(records * taxonomy.node_count + nodes)
        masks.append(combined)
        nodes, bits = taxonomy.parent[nodes], taxonomy.bit[nodes]
    key = np.concatenate([np.empty(0, dtype=np.int64), *keys])
    order = np.argsort(key, kind="stable")
    number = np.bincount(key // taxonomy.node_count, minlength=len(baskets))
    return Generalized(np.concatenate(([0], np.cumsum(number))), np.concatenate([key[:0], *masks])[order])


# Expand ---------------------------------------------------------------------------------------------------------------
# One round of DiffPart: every partition of the front takes its next expansion (paper, Procedure 1).

WIDE, MASK = 32, 2**32 - 1  # a key holds a partition above a mask


@dataclass(frozen=True)
class Children:
    """The C sub-partitions of a round that were kept, by partition and mask: rows of ``ItemSetTree``."""

    parent: Ints
    mask: Ints
    size: Ints
    spent: Ints
    leaf: Flags

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True)
class RecordMoves:
    """Where things go: ``child``: for every record of the front its position in ``Children``, -1 where it was pruned.

    ``of`` (C,): partition of the front that each child comes from. ``rest`` (C,): code of what it has left to spend.
    """

    child: Ints
    of: Ints
    rest: Ints


@dataclass(frozen=True)
class ExpansionRun:
    """The records, the parameters, and the source of noise: the same in all rounds."""

    weights: Ints
    entries: Generalized
    taxonomy: ItemTaxonomy
    params: SetValued
    budgets: BudgetCodes
    noise: CountNoise
    choose: Chooser


@dataclass(frozen=True)
class ExpansionFront:
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
    def expanded_nodes(self) -> Ints:
        """The node at which each partition is expanded: the lowest number of its cut."""
        first: Ints = self.pending.argmax(axis=1)
        return first

    @classmethod
    def of_root(cls, run: ExpansionRun) -> ExpansionFront:
        """All records under a cut of the root alone."""
        pending = np.zeros((1, run.taxonomy.node_count), dtype=bool)
        pending[0, 0] = True
        rest = np.array([run.budgets.code_of(run.params.epsilon / 2)], dtype=np.int64)
        everyone = np.arange(len(run.weights), dtype=np.int64)
        at = run.entries.starts[:-1]
        row = np.zeros(1, dtype=np.int64)
        return cls(row, rest, run.taxonomy.inner[:1], pending, everyone, np.zeros_like(everyone), at)

    def next_front(
        self, children: Children, moves: RecordMoves, first_row: int, taxonomy: ItemTaxonomy
    ) -> ExpansionFront:
        """The kept sub-partitions that are not item sets; children take the tree's rows from ``first_row`` on."""
        inner = np.flatnonzero(~children.leaf)
        position = np.full(len(children) + 1, -1, dtype=np.int64)  # its last entry is that of pruned records, -1
        position[inner] = np.arange(len(inner))
        moved = position[moves.child]
        staying = np.flatnonzero(moved >= 0)
        staying = staying[np.argsort(moved[staying], kind="stable")]
        of = moves.of[inner]
        node = self.expanded_nodes[of]
        which, below = taxonomy.expand_masks(node, children.mask[inner], low=False)
        pending = self.pending[of]
        pending[np.arange(len(inner)), node] = False
        pending[which, below] = True
        gained = np.bincount(which, weights=taxonomy.inner[below], minlength=len(inner)).astype(np.int64)
        left = self.inner[of] - taxonomy.inner[node] + gained
        at = self.at[staying] + 1
        return ExpansionFront(
            first_row + inner, moves.rest[inner], left, pending, self.record[staying], moved[staying], at
        )


@dataclass(frozen=True)
class _FrontPlan:
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


def _plan_expansions(front: ExpansionFront, run: ExpansionRun) -> _FrontPlan:
    node, taxonomy, budgets = front.expanded_nodes, run.taxonomy, run.budgets
    different, kind = distinct_rows(front.rest, front.inner, taxonomy.degree[node], taxonomy.height[node])
    rows = []
    for code, inner, degree, height in different:
        rest, last = budgets.values[code], inner == 1
        spent = expansion_budget(run.params.epsilon, rest, inner)
        left = budgets.code_of(rest if last else rest - spent)
        least = least_noisy_size(run.params, spent, degree=degree, height=height, last=last, nodes=taxonomy.node_count)
        rows.append((budgets.code_of(spent), left, least, 2**degree - 1, last))
    spent_code, rest_code, bound, masks, is_last = np.array(rows, dtype=np.int64).T
    return _FrontPlan(kind, spent_code, rest_code, bound, masks, is_last.astype(bool))


def expand_front(front: ExpansionFront, run: ExpansionRun) -> tuple[Children, RecordMoves]:
    """The sub-partitions of the front that pass, and where the records go.

    A sub-partition's key is its partition and its mask. Children are sorted by key, so that their order tells nothing.
    """
    plan = _plan_expansions(front, run)
    keys, sub = np.unique(front.partition << WIDE | run.entries.masks[front.at], return_inverse=True)
    counts = np.bincount(sub, weights=run.weights[front.record], minlength=len(keys)).astype(np.int64)
    sizes = _add_noise(counts, plan.spent[plan.kind[keys >> WIDE]], run)
    passing = np.flatnonzero(sizes >= plan.least[plan.kind[keys >> WIDE]])
    empty_keys, empty_sizes = _draw_empty(keys, plan, run)
    passed = np.concatenate((keys[passing], empty_keys))
    order = np.argsort(passed)
    position = np.full(len(keys), -1, dtype=np.int64)
    position[passing] = np.argsort(order)[: len(passing)]
    passed, size = passed[order], np.concatenate((sizes[passing], empty_sizes))[order]
    of = passed >> WIDE
    kind = plan.kind[of]
    children = Children(front.row[of], passed & MASK, size, plan.spent[kind], plan.last[kind])
    return children, RecordMoves(position[sub.reshape(-1)], of, plan.rest[kind])


def _add_noise(counts: Ints, spent: Ints, run: ExpansionRun) -> Ints:
    """Every count with noise of its own; one draw for all that spend the same."""
    sizes = np.empty(len(counts), dtype=np.int64)
    for code, places in _places_by_code(spent):
        sizes[places] = run.noise.add_noise(counts[places], run.budgets.values[code])
    return sizes


def _places_by_code(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Each distinct code with its places."""
    order = np.argsort(codes, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if len(places):
            yield int(codes[places[0]]), places


def _draw_empty(keys: Ints, plan: _FrontPlan, run: ExpansionRun) -> tuple[Ints, Ints]:
    """Keys and noisy sizes of the empty sub-partitions that pass; ``keys`` are the occupied ones, sorted.

    How many of a partition's pass is binomial; which is a uniform choice without replacement: the r-th free mask is r
    plus the number of occupied ones before it; and their sizes are noise given that it reaches the threshold. That is
    the distribution of counting them one by one.
    """
    occupied = np.bincount(keys >> WIDE, minlength=len(plan.kind)).astype(np.int64)
    ends = np.cumsum(occupied)
    free = plan.masks[plan.kind] - occupied
    result, sizes = [keys[:0]], [keys[:0]]
    for kind, places in _places_by_code(plan.kind):
        spent, least = run.budgets.values[plan.spent[kind]], int(plan.least[kind])
        number = run.noise.count_passing(free[places], least, spent)
        for p, count in zip(places[number > 0].tolist(), number[number > 0].tolist(), strict=True):
            before = (keys[ends[p] - occupied[p] : ends[p]] & MASK) - 1 - np.arange(occupied[p])
            ranks = run.choose.choice(int(free[p]), count, replace=False, shuffle=False)
            result.append(p << WIDE | ranks + 1 + np.searchsorted(before, ranks, side="right"))
        sizes.append(run.noise.draw_above(int(number.sum()), least, spent))
    return np.concatenate(result), np.concatenate(sizes)


# Tree -----------------------------------------------------------------------------------------------------------------
# DiffPart: top-down partitioning of set-valued records under a budget (paper, Algorithm 1 and Procedure 1).
#
# All partitions that are not item sets yet take one expansion together, in arrays; the number of rounds is at most the
# number of inner nodes. A round touches the occupied sub-partitions and the few empty ones that pass, never the others.

LARGEST_TREE = 5_000_000  # partitions; thresholds that let more than that pass are a mistake
NONE, ZERO = np.array([-1], dtype=np.int64), np.array([0], dtype=np.int64)
COLUMNS = ("parent", "mask", "size", "spent", "leaf")  # of ``Children``
ROOT = Children(parent=NONE, mask=ZERO, size=ZERO, spent=NONE, leaf=np.array([False]))


@dataclass(frozen=True, kw_only=True)
class ItemSetTree(noisy_tree.NoisyTree):
    """The hierarchy cut of a leaf holds items only. ``mask`` (T,): which children of the parent's ``next`` replaced it,
    as bits by place; rows of one parent are in the order of their masks. ``empty``: noisy number of records without
    items, counted with the whole budget; None if it is below its threshold.
    """

    mask: Ints
    empty: int | None


def grow_tree(
    baskets: Baskets, taxonomy: ItemTaxonomy, params: SetValued, noise: CountNoise, choose: Chooser
) -> ItemSetTree:
    """The noisy tree of a table of item sets; epsilon-differentially private for one record added or removed.

    A record lies in one partition of every round, so the counts of a round compose in parallel and a path spends the
    sum of its budgets, at most epsilon (``budget``). Thresholds, budgets and the order of expansion depend on no data,
    and an empty sub-partition is kept with the probability that it would have if it were counted.

    Raises ``InfeasibleError`` if the thresholds let millions of partitions pass.
    """
    budgets = BudgetCodes()
    run = ExpansionRun(baskets.weights, generalize_baskets(baskets, taxonomy), taxonomy, params, budgets, noise, choose)
    front, rounds_kept, rows = ExpansionFront.of_root(run), [ROOT], 1
    order: list[Ints] = []
    while len(front):
        order.append(front.expanded_nodes)
        children, moves = expand_front(front, run)
        rounds_kept.append(children)
        if rows + len(children) > LARGEST_TREE:
            raise InfeasibleError(
                f"more than {LARGEST_TREE:,} partitions pass their thresholds; raise c1 and c2, or lower tau"
            )
        front = front.next_front(children, moves, rows, taxonomy)
        rows += len(children)
    columns = {name: np.concatenate([getattr(part, name) for part in rounds_kept]) for name in COLUMNS}
    empty = without_items(baskets.empty, params, noise)
    return ItemSetTree(
        next=fill_expanded(columns["leaf"], order), budgets=tuple(budgets.values), empty=empty, **columns
    )


def without_items(number: int, params: SetValued, noise: CountNoise) -> int | None:
    """Records without items are a partition of their own, disjoint from the root's: the whole budget is theirs."""
    least = least_noisy_size(params, params.epsilon, degree=1, height=1, last=True, nodes=1)
    noisy = int(noise.add_noise(np.array([number], dtype=np.int64), params.epsilon)[0])
    return noisy if noisy >= least else None


def item_sets(tree: ItemSetTree, rows: Ints, taxonomy: ItemTaxonomy) -> tuple[Ints, Ints]:
    """Items in the hierarchy cuts of some rows, as (index into ``rows``, item) pairs, sorted.

    Of a leaf these are its item set; of another row the items that all of its records are known to have.
    """
    which, items = [rows[:0]], [rows[:0]]
    of, at = np.arange(len(rows), dtype=np.int64), rows
    while len(at):
        above = tree.parent[at]
        of, at, above = of[above >= 0], at[above >= 0], above[above >= 0]
        place, item = taxonomy.expand_masks(tree.next[above], tree.mask[at], low=True)
        which.append(of[place])
        items.append(item)
        at = above
    first, second = np.concatenate(which), np.concatenate(items)
    order = np.lexsort((second, first))
    return first[order], second[order]


# Paths ----------------------------------------------------------------------------------------------------------------
# The budget of a published tree, path by path, recomputed in exact fractions from the rows alone.
#
# This is the other side of ``expand`` and shares no code with it: hierarchy cuts are sets, one for each row.


def find_violations(tree: ItemSetTree, taxonomy: ItemTaxonomy, epsilon: Fraction) -> Iterator[tuple[int, str]]:
    """Rows that are not what the algorithm makes of their parent, or whose path spends more than ``epsilon``.

    For every row: its cut follows from its parent's and its mask; it is a leaf if no inner node is left, else it is
    expanded at the lowest one; its count spent what is unspent of the tree's half, by the number of expansions that may
    follow, or everything if it is a leaf; and no path, whether or not its next counts were kept, exceeds ``epsilon``.
    """
    paths = _Paths(tree.budgets, taxonomy, epsilon)
    if tree.parent[0] != -1 or tree.leaf[0] or tree.next[0] != 0:
        yield 0, "is not a root"
    columns = zip(tree.parent.tolist(), tree.mask.tolist(), tree.spent.tolist(), strict=True)
    for row, (parent, mask, spent) in enumerate(columns):
        if row == 0:
            continue
        if parent not in paths.cuts or not 0 < mask < 2 ** int(taxonomy.degree[tree.next[parent]]):
            yield row, "has no parent that was expanded into it"
            continue
        node = int(tree.next[parent])
        cut = paths.cuts[parent] - {node} | _inner_children(taxonomy, node, mask)
        if bool(tree.leaf[row]) != (not cut) or int(tree.next[row]) != min(cut, default=-1):
            yield row, "is expanded at another node than its cut's first"
        yield from ((row, what) for what in paths.check_count(parent, spent))
        if cut:
            yield from ((row, what) for what in paths.follow_path(row, cut, parent, spent))


@dataclass
class _Paths:
    """The budget that was spent on the way to each expanded row, whose cut is in ``cuts``."""

    budgets: Sequence[Fraction]
    taxonomy: ItemTaxonomy
    epsilon: Fraction
    cuts: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset([0])})
    used: dict[int, Fraction] = field(default_factory=lambda: {0: Fraction(0)})
    known: dict[tuple[int, int], list[str]] = field(default_factory=dict)

    def check_count(self, parent: int, spent: int) -> list[str]:
        """Return what is wrong with the budget of a count below ``parent``; the same for all of one budget."""
        if (parent, spent) not in self.known:
            budget = self.budgets[spent]
            due = _due_budget(self.taxonomy, self.cuts[parent], self.epsilon, self.used[parent])
            wrong = [] if budget == due else [f"spent {budget}, not what was left for it"]
            self.known[parent, spent] = [*wrong, *self._wrong_total(self.used[parent] + budget)]
        return self.known[parent, spent]

    def follow_path(self, row: int, cut: frozenset[int], parent: int, spent: int) -> list[str]:
        """Go on to a row that is expanded at its ``cut``; what is wrong with its path and what it may spend next."""
        self.cuts[row], self.used[row] = cut, self.used[parent] + self.budgets[spent]
        return self._wrong_total(self.used[row] + _due_budget(self.taxonomy, cut, self.epsilon, self.used[row]))

    def _wrong_total(self, total: Fraction) -> list[str]:
        return [f"its path spends {total}, more than {self.epsilon}"] if total > self.epsilon else []


def _inner_children(taxonomy: ItemTaxonomy, node: int, mask: int) -> frozenset[int]:
    if taxonomy.height[node] == 1:
        return frozenset()
    children = taxonomy.children[taxonomy.starts[node] : taxonomy.starts[node + 1]].tolist()
    return frozenset(child for place, child in enumerate(children) if mask >> place & 1)


def _due_budget(taxonomy: ItemTaxonomy, cut: frozenset[int], epsilon: Fraction, used: Fraction) -> Fraction:
    """Return what the counts of an expansion of this cut spend."""
    expansions = sum(int(taxonomy.inner[node]) for node in cut)
    return epsilon - used if expansions == 1 else (epsilon / 2 - used) / expansions
