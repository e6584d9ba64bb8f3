"""DiffPart (Chen et al. 2011): a noisy tree of partitions of item sets, or of tables with several columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privsql.errors import InfeasibleError
from privsql.exact import fraction_text

if TYPE_CHECKING:
    from privsql.dp_random import SelectionNoise
    from privsql.keyed_random import Chooser

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Taxonomy -------------------------------------------------------------------------------------------------------------
# The taxonomies of all columns in one numbering: children before their parents, column after column. Items are one
# column whose values are the items (paper, section 3.1).
#
# The expansion of a node replaces it in a partition's hierarchy cut: of item sets by a non-empty set of its children
# (branch: these as bits by place), of a table by one of its children (branch: its place plus 1). Branch 0 of the root
# holds the records without items.


@dataclass(frozen=True)
class Taxonomy:
    """K nodes over d columns; all arrays are int64. ``holds_sets``: a record has any number of values of its column.

    ``column``, ``parent`` (K,): -1 above a root. ``height`` (K,): longest way down to a value. ``inner`` (K,): nodes of
    its sub-tree that are no values, itself included. ``place`` (K,): number among its siblings. ``starts`` (K+1,),
    ``children``: the children of node k by place, at ``children[starts[k]:starts[k+1]]``. ``roots`` (d,).
    """

    column: Ints
    parent: Ints
    height: Ints
    inner: Ints
    place: Ints
    starts: Ints
    children: Ints
    roots: Ints
    holds_sets: bool

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def degree(self) -> Ints:
        """Number of children, (K,)."""
        return np.diff(self.starts)

    def values(self, column: int) -> Ints:
        """The nodes of a column's values, in their order."""
        return np.flatnonzero((self.column == column) & (self.height == 0))

    @property
    def expansions(self) -> Ints:
        """The expansions that every node may take at most, (K,)."""
        return self.inner if self.holds_sets else self.height

    @property
    def branches(self) -> Ints:
        """How many sub-partitions every node has, without the root's branch 0, (K,)."""
        return 2 ** np.minimum(self.degree, BRANCH_BITS) - 1 if self.holds_sets else self.degree

    def branch_children(self, node: Ints, branch: Ints) -> tuple[Ints, Ints]:
        """The children that branches name, as (index into ``node``, child)."""
        if not self.holds_sets:
            return np.arange(len(node)), self.children[self.starts[node] + branch - 1]
        which, child = [np.arange(0)], [node[:0]]
        for place in range(int(self.degree.max())):
            has = np.flatnonzero(branch >> place & 1)
            which.append(has)
            child.append(self.children[self.starts[node[has]] + place])
        return np.concatenate(which), np.concatenate(child)


def make_taxonomy(column: Ints, parent: Ints, *, sets: bool) -> Taxonomy:
    """A taxonomy from the column and the parent of every node; ``ValueError`` if these make none."""
    number, is_root = len(parent), parent < 0
    if not number or (np.diff(column, prepend=0) < 0).any() or not _counts_up(column[is_root]):
        raise ValueError("every column needs one root, and columns lie in order")
    below = np.flatnonzero(~is_root)
    if (parent[below] <= below).any() or (parent >= number).any() or (column[parent[below]] != column[below]).any():
        raise ValueError("a node lies after its parent, or in another column")
    height, inner, place = (np.zeros(number, dtype=np.int64) for _ in range(3))
    for node in range(number):
        inner[node] += height[node] > 0
        if parent[node] >= 0:
            height[parent[node]] = max(height[parent[node]], height[node] + 1)
            inner[parent[node]] += inner[node]
    if not height[is_root].all():
        raise ValueError("a column has no values below its root")
    children = below[np.lexsort((below, parent[below]))]
    starts = np.searchsorted(parent[children], np.arange(number + 1))
    place[children] = np.arange(len(children)) - starts[parent[children]]
    return Taxonomy(column, parent, height, inner, place, starts, children, np.flatnonzero(is_root), sets)


def context_free_parents(values: int, fan_out: int) -> Ints:
    """The parents of a context-free taxonomy: the values first, then level upon level, grouped by ``fan_out``.

    >>> context_free_parents(5, 2).tolist()
    [5, 5, 6, 6, 7, 8, 8, 9, 10, 10, -1]
    """
    parents: list[Ints] = []
    first, members = 0, values
    while members > 1 or not parents:
        first += members
        parents.append(first + np.arange(members, dtype=np.int64) // fan_out)
        members = -(-members // fan_out)
    return np.concatenate([*parents, [-1]]).astype(np.int64)


def _counts_up(numbers: Ints) -> bool:
    return len(numbers) > 0 and np.array_equal(numbers, np.arange(len(numbers)))


# Records --------------------------------------------------------------------------------------------------------------
# Records, and into which branch of a node each falls.


@dataclass(frozen=True)
class PartitionedRecords:
    """R records over a taxonomy; ``weights``: how many are the same as each.

    ``keys``, sorted: inner node * R + record, one for each node that holds a value of the record; ``branches``: the
    branch of the node into which the record falls.
    """

    weights: Ints
    keys: Ints
    branches: Ints

    @staticmethod
    def generalize(owners: Ints, values: Ints, weights: Ints, taxonomy: Taxonomy) -> PartitionedRecords:
        """Records from pairs (record, value node), sorted: O(number of pairs * height of the taxonomy)."""
        keys, branches, records, nodes = [owners[:0]], [owners[:0]], owners, values
        while (below := taxonomy.parent[nodes] >= 0).any():
            records, place, nodes = records[below], taxonomy.place[nodes[below]], taxonomy.parent[nodes[below]]
            runs = np.flatnonzero((np.diff(records, prepend=-1) != 0) | (np.diff(nodes, prepend=-1) != 0))
            branch = np.int64(1) << place if taxonomy.holds_sets else place + 1
            branches.append(np.bitwise_or.reduceat(branch, runs))
            records, nodes = records[runs], nodes[runs]
            keys.append(nodes * len(weights) + records)
        key = np.concatenate(keys)
        order = np.argsort(key, kind="stable")
        return PartitionedRecords(weights, key[order], np.concatenate(branches)[order])

    def find_branches(self, record: Ints, node: Ints) -> Ints:
        """The branch of a node into which each record falls, (n,); 0 where it has no value below the node."""
        if not len(self.keys):
            return np.zeros(len(record), dtype=np.int64)
        wanted = node * len(self.weights) + record
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        result: Ints = np.where(self.keys[at] == wanted, self.branches[at], 0)
        return result


# Budget ---------------------------------------------------------------------------------------------------------------
# Budgets and thresholds in exact fractions (paper, section 4.1).
#
# A partition that has ``rest`` of the tree's half of epsilon unspent, and at most N expansions before it, spends alpha
# = rest/N on its next one. Of a table the node that is expanded is chosen privately where there are several, which
# takes the share ``choice`` of alpha. A sub-partition that is no leaf is counted with what remains of alpha; a leaf is
# counted once, with everything that is left, epsilon/2 + rest less the choice. So every path from the root to a leaf
# spends epsilon: choices and counts together.

PRECISION = 50  # decimal digits of the logarithm in a threshold; correctly rounded, so the same everywhere


@dataclass(frozen=True)
class TreeRule:
    """The public rule by which a tree is grown.

    ``passing``, ``passing_leaves``: the expected number of empty sub-partitions of an expansion that pass; or ``c1``,
    ``c2``: the paper's factors of thresholds. ``score``: by which the column of an expansion is chosen
    (``score_divisions``).
    """

    epsilon: Fraction
    passing: Fraction
    passing_leaves: Fraction
    choice: Fraction = Fraction(0)
    score: str = "max"
    c1: Fraction | None = None
    c2: Fraction | None = None

    def least_size(self, spent: Fraction, branches: int, height: int, *, leaf: bool) -> int:
        """The least noisy size, at least 1, with which one of ``branches`` is published. Depends on no data.

        With c1 and c2: ceil(sqrt(2)*c1/spent) for leaves, ceil(sqrt(2)*c2*height/spent) for others.
        """
        if self.c1 is not None and self.c2 is not None:
            return max(1, _ceil_root(2 * ((self.c1 if leaf else self.c2 * height) / spent) ** 2))
        return least_cutoff(branches, self.passing_leaves if leaf else self.passing, spent)


@dataclass(frozen=True)
class Shares:
    """Of one expansion: what the choice of the node (0: there is none), the count of a partition that is no leaf, and
    that of a leaf spend; ``rest`` is what a partition that is no leaf has left.
    """

    choice: Fraction
    inner: Fraction
    leaf: Fraction
    rest: Fraction


def expansion_shares(rule: TreeRule, rest: Fraction, expansions: int, *, several: bool) -> Shares:
    """The shares of an expansion."""
    alpha = rest / expansions
    choice = alpha * rule.choice if several else Fraction(0)
    return Shares(choice, alpha - choice, rule.epsilon / 2 + rest - choice, rest - alpha)


def first_expansion(rule: TreeRule, taxonomy: Taxonomy) -> Shares:
    """The shares of the root's expansion."""
    roots = taxonomy.roots
    return expansion_shares(rule, rule.epsilon / 2, int(taxonomy.expansions[roots].sum()), several=len(roots) > 1)


def least_cutoff(empty: int, passing: Fraction, spent: Fraction) -> int:
    """The least t >= 1 with empty * Pr[noise >= t] <= passing; Pr[noise >= t] = p^t/(1+p), p = exp(-spent)."""
    with localcontext() as context:
        context.prec = PRECISION
        alpha = _as_decimal(spent)
        ratio = empty / (_as_decimal(passing) * (1 + (-alpha).exp()))
        return max(1, int((ratio.ln() / alpha).to_integral_value(rounding="ROUND_CEILING")))


def _as_decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _ceil_root(square: Fraction) -> int:
    """Least integer t with t^2 >= square."""
    root = isqrt(square.numerator // square.denominator)
    return root if root * root >= square else root + 1


@dataclass
class BudgetCodes:
    """The distinct budgets of a run by their codes; nothing has -1."""

    codes: dict[Fraction, int] = field(default_factory=dict)

    @property
    def values(self) -> list[Fraction]:
        """The fractions, by code."""
        return list(self.codes)

    def code_of(self, value: Fraction) -> int:
        """The code of a fraction, new or known."""
        return self.codes.setdefault(value, len(self.codes)) if value else -1


# Tree -----------------------------------------------------------------------------------------------------------------
# Top-down partitioning (paper, Algorithm 1 and Procedure 1, and appendix D for tables).
#
# All partitions that are no leaves yet take one expansion together, in arrays. Of a column the last node of the cut is
# expanded: of item sets one of the greatest height, in a public order. Of a table a column is chosen privately, by a
# score of the children that it would make. Of item sets a round touches the occupied sub-partitions and the few empty
# ones that pass; how many of a partition's pass is binomial, and which is a uniform choice, as if each were counted.

LARGEST_ROUND = 20_000_000  # sub-partitions that one round may count
LARGEST_TREE = 2_000_000  # partitions; thresholds that let more than that pass are a mistake
BRANCH_BITS, BRANCH = 31, 2**31 - 1  # a key holds a partition above a branch


@dataclass(frozen=True, kw_only=True)
class PartitionTree:
    """Every partition that was kept, with its noisy size; row 0 is the root, which is never counted.

    All arrays have T rows. ``parent``: row of the partition that was expanded, ascending, before its children; -1 for
    the root. ``branch``: which of its parent's sub-partitions it is, ascending among siblings. ``next``: the node at
    which the row itself is expanded, -1 for a leaf. ``size``: the noisy size, which is at least ``threshold``.
    ``spent``, ``choice``: codes in ``budgets`` of what that count, and choosing ``next``, spent; -1 where nothing was.
    """

    parent: Ints
    branch: Ints
    next: Ints
    size: Ints
    threshold: Ints
    spent: Ints
    choice: Ints
    budgets: tuple[Fraction, ...]

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def leaf(self) -> Flags:
        """Which rows are leaves, (T,)."""
        return self.next < 0

    @cached_property
    def leaves(self) -> Ints:
        """The rows of leaves."""
        return np.flatnonzero(self.leaf)

    @property
    def counted_records(self) -> int:
        """The noisy number of all records: the sizes of the root's parts."""
        return int(self.size[self.parent == 0].sum())

    @property
    def published_records(self) -> int:
        """The noisy number of records in the leaves."""
        return int(self.size[self.leaf].sum())

    @property
    def facts(self) -> dict[str, int]:
        """Return what the facts of every release of a tree state of it."""
        counted, published = self.counted_records, self.published_records
        return {"partitions": len(self) - 1, "estimated_records": counted, "kept_records": published}


@dataclass(frozen=True)
class _Run:
    records: PartitionedRecords
    taxonomy: Taxonomy
    rule: TreeRule
    noise: SelectionNoise
    choose: Chooser
    budgets: BudgetCodes
    inner_nodes: Ints  # nodes that are no values


@dataclass(frozen=True)
class _Front:
    """The F partitions that are to be expanded.

    ``row``: rows of the tree. ``pending`` (F, number of inner nodes): the nodes of each one's cut that are no values.
    ``rest``: codes of the unspent half of the budget. ``record``, ``partition``: the records in them.
    """

    row: Ints
    pending: Flags
    rest: Ints
    record: Ints
    partition: Ints


@dataclass(frozen=True)
class _Plan:
    """How each partition of the front is expanded (F,): the ``node``, the expansions ``left`` before it, and codes of
    budgets as in ``Shares``.
    """

    node: Ints
    left: Ints
    choice: Ints
    inner: Ints
    leaf: Ints
    rest: Ints


def grow_tree(
    records: PartitionedRecords, taxonomy: Taxonomy, rule: TreeRule, noise: SelectionNoise, choose: Chooser
) -> PartitionTree:
    """The noisy tree of records; epsilon-differentially private for one record added or removed.

    A record lies in one partition of every round, so what the partitions of a round spend composes in parallel, and a
    path spends the sum of its choices and counts, at most epsilon (``Shares``). Budgets and thresholds depend on
    nothing but the choices that are published, and an empty sub-partition is kept with the probability that it would
    have if it were counted.

    Raises ``InfeasibleError`` if millions of partitions would have to be counted, or pass.
    """
    inner_nodes = np.flatnonzero(taxonomy.height)
    run = _Run(records, taxonomy, rule, noise, choose, BudgetCodes(), inner_nodes)
    everyone = np.arange(len(records.weights), dtype=np.int64)
    rest = np.array([run.budgets.code_of(rule.epsilon / 2)], dtype=np.int64)
    front = _Front(np.array([0]), np.isin(inner_nodes, taxonomy.roots)[None, :], rest, everyone, 0 * everyone)
    first = {"parent": -1, "branch": 0, "size": 0, "threshold": -1, "spent": -1, "next": 0, "choice": -1}
    rounds, number = [{name: np.array([value], dtype=np.int64) for name, value in first.items()}], 1
    while len(front.row):
        plan = _plan_expansions(front, run)
        for name, values in (("next", plan.node), ("choice", plan.choice)):
            rounds[-1][name][rounds[-1]["next"] >= 0] = values
        kept, front = _expand_front(front, plan, number, run)
        rounds.append(kept)
        number += len(kept["parent"])
        if number > LARGEST_TREE:
            advice = "raise c1 and c2" if rule.c1 is not None else "lower the number of empty parts that pass (tau)"
            raise InfeasibleError(f"more than {LARGEST_TREE:,} partitions pass their thresholds; {advice}")
    columns = {name: np.concatenate([part[name] for part in rounds]) for name in rounds[0]}
    return PartitionTree(**columns, budgets=tuple(run.budgets.values))


def _plan_expansions(front: _Front, run: _Run) -> _Plan:
    """Budgets and the choice of the node, for every partition of the front."""
    left = front.pending @ run.taxonomy.expansions[run.inner_nodes]
    possible = _possible_nodes(front.pending, run)
    several = (possible >= 0).sum(axis=1) > 1
    different, kind = distinct_rows(front.rest, left, several)
    budgets = run.budgets.values
    due = [expansion_shares(run.rule, budgets[r], n, several=bool(many)) for r, n, many in different]
    chosen = np.argmax(possible >= 0, axis=1)
    scores = _score_nodes(front, possible, run) if several.any() else possible
    for place in np.flatnonzero(several).tolist():
        columns = np.flatnonzero(possible[place] >= 0)
        best = run.noise.choose_best(scores[place, columns], due[kind[place]].choice, monotonic=run.rule.score == "max")
        chosen[place] = columns[best]
    code = run.budgets.code_of
    codes = np.array([[code(s.choice), code(s.inner), code(s.leaf), code(s.rest)] for s in due], dtype=np.int64)[kind]
    return _Plan(possible[np.arange(len(chosen)), chosen], left, *codes.T)


def _possible_nodes(pending: Flags, run: _Run) -> Ints:
    """The nodes among which the next one is chosen, (F, d): the last one of each column, -1 where it has none."""
    result = np.full((len(pending), len(run.taxonomy.roots)), -1, dtype=np.int64)
    row, place = np.nonzero(pending)
    node = run.inner_nodes[place]
    np.maximum.at(result, (row, run.taxonomy.column[node]), node)
    return result


def _score_nodes(front: _Front, possible: Ints, run: _Run) -> Ints:
    """For every partition and node, (F, d), the score of dividing it there; 0 where there is no node."""
    result = np.zeros(possible.shape, dtype=np.int64)
    for place in range(possible.shape[1]):
        inside = np.flatnonzero(possible[front.partition, place] >= 0)
        partition, record = front.partition[inside], front.record[inside]
        branch = run.records.find_branches(record, possible[partition, place])
        keys, counts = _tally(partition << BRANCH_BITS | branch, run.records.weights[record])
        degree = run.taxonomy.degree[possible[:, place]]
        result[:, place] = score_divisions(run.rule.score, counts, keys >> BRANCH_BITS, degree)
    return result


LARGEST_SCORED, LARGEST_SUM = 2**30, 2**45  # records of a partition that a score counts, and these times children
STEP = 32  # bits: more than one record changes a gain by, 30 + log2(e), and what rounding adds


def score_divisions(score: str, counts: Ints, of: Ints, degree: Ints) -> Ints:
    """Scores (F,) of dividing F partitions into ``degree`` children (F,), of which those with records have ``counts``.

    ``of``: the partition of each count. With n_c records in child c, n in the partition and k children:

    - "max": the largest n_c. One record raises it by at most 1, and never lowers it.
    - "gini": sum n_c^2 / n = n (1 - Gini index), rounded down. One record more in a child of n_c changes it by
      (2 n_c + 1 - sum/n)/(n + 1), which lies in (-1, 1].
    - "gain": n log2(k) - n H, H the entropy of the n_c/n: how many bits the counts tell more than spreading evenly. One
      record more changes it by at least log2(k) - log2(n + 1) - log2(e) and at most log2(k); in steps of 32 bits,
      rounded down. Of a partition at most 2^30 records are counted, so that this is at most one step.

    All have sensitivity 1; source: Chen et al. 2011, appendix D; for the gain Friedman & Schuster, KDD 2010.
    """
    result = np.zeros(len(degree), dtype=np.int64)
    if score == "max":
        np.maximum.at(result, of, counts)
        return result
    children = np.maximum(degree, 1)
    counts = np.minimum(counts, (np.minimum(LARGEST_SCORED, LARGEST_SUM // children) // children)[of])
    np.add.at(result, of, counts)
    total = np.maximum(result, 1)
    if score == "gini":
        squares = np.zeros_like(result)
        np.add.at(squares, of, counts * counts)
        np.floor_divide(squares, total, out=result)
        return result
    within = np.bincount(of, weights=counts * np.log2(np.maximum(counts, 1)), minlength=len(degree))
    bits = result * (np.log2(children) - np.log2(total)) + within
    steps: Ints = np.floor(bits / STEP).astype(np.int64)
    return steps


def _tally(keys: Ints, weights: Ints) -> tuple[Ints, Ints]:
    different, which = np.unique(keys, return_inverse=True)
    counts = np.bincount(which.reshape(-1), weights=weights, minlength=len(different))  # exact: below 2^53
    return different, counts.astype(np.int64)


def _expand_front(front: _Front, plan: _Plan, first_row: int, run: _Run) -> tuple[dict[str, Ints], _Front]:
    """The sub-partitions that pass, as rows of the tree from ``first_row`` on, and the next front.

    A sub-partition's key is its partition and its branch. They are sorted by key, so that their order tells nothing.
    """
    branch = run.records.find_branches(front.record, plan.node[front.partition])
    inside, every = front.partition << BRANCH_BITS | branch, _certain_keys(plan, front, run)
    weights = np.concatenate((run.records.weights[front.record], 0 * every))
    keys, count = _tally(np.concatenate((inside, every)), weights)
    published = _pass_thresholds(keys, count, plan, run)
    if run.taxonomy.holds_sets:
        pairs = zip(published, _draw_empty(keys, plan, run), strict=True)
        together = [np.concatenate(pair) for pair in pairs]
        published = [one[np.argsort(together[0])] for one in together]
    passed, size, least = published
    of = passed >> BRANCH_BITS
    leaf, codes = _count_budgets(passed, plan, run)
    rows = {"parent": front.row[of], "branch": passed & BRANCH, "size": size, "threshold": least, "spent": codes}
    rows |= {"next": np.where(leaf, -1, 0), "choice": np.full(len(passed), -1, dtype=np.int64)}
    inner = np.flatnonzero(~leaf)
    position = np.searchsorted(passed[inner], inside)
    staying = np.flatnonzero(passed[inner].take(position, mode="clip") == inside) if len(inner) else inner
    staying = staying[np.argsort(position[staying], kind="stable")]
    pending = _replace_nodes(front.pending[of[inner]], plan.node[of[inner]], passed[inner] & BRANCH, run)
    kept = (first_row + inner, pending, plan.rest[of[inner]], front.record[staying], position[staying])
    return rows, _Front(*kept)


def _certain_keys(plan: _Plan, front: _Front, run: _Run) -> Ints:
    """Keys of the sub-partitions that are counted whether or not there is a record in them.

    All those of a table; of item sets the one of the records without items.
    """
    if run.taxonomy.holds_sets:
        return np.zeros(int(front.row[0] == 0), dtype=np.int64)
    degree = run.taxonomy.degree[plan.node]
    ends = np.cumsum(degree)
    if int(ends[-1]) > LARGEST_ROUND:
        raise InfeasibleError(f"{int(ends[-1]):,} sub-partitions would have to be counted; lower tau")
    of = np.repeat(np.arange(len(degree)), degree)
    result: Ints = of << BRANCH_BITS | np.arange(int(ends[-1])) - (ends - degree)[of] + 1
    return result


def _count_budgets(keys: Ints, plan: _Plan, run: _Run) -> tuple[Flags, Ints]:
    """Which sub-partitions have no more expansion before them, and the codes of what the counts of all spend."""
    of, expansions = keys >> BRANCH_BITS, run.taxonomy.expansions
    which, child = run.taxonomy.branch_children(plan.node[of], keys & BRANCH)
    gained = np.bincount(which, weights=expansions[child], minlength=len(keys))
    leaf = plan.left[of] - expansions[plan.node[of]] + gained == 0
    return leaf, np.where(leaf, plan.leaf[of], plan.inner[of])


def _replace_nodes(pending: Flags, node: Ints, branch: Ints, run: _Run) -> Flags:
    """Cuts in which the node of each is replaced by the children of a branch that are no values."""
    pending[np.arange(len(node)), np.searchsorted(run.inner_nodes, node)] = False
    which, child = run.taxonomy.branch_children(node, branch)
    inner = run.taxonomy.height[child] > 0
    pending[which[inner], np.searchsorted(run.inner_nodes, child[inner])] = True
    return pending


def _pass_thresholds(keys: Ints, counts: Ints, plan: _Plan, run: _Run) -> list[Ints]:
    """The sub-partitions whose noisy size reaches its threshold, and both; one draw for all of a kind."""
    leaf, codes = _count_budgets(keys, plan, run)
    size, least = np.empty_like(counts), np.empty_like(counts)
    for spent, threshold, places in _group_kinds(codes, plan.node[keys >> BRANCH_BITS], leaf, keys & BRANCH, run):
        size[places] = run.noise.add_noise(counts[places], spent)
        least[places] = threshold
    return [one[size >= least] for one in (keys, size, least)]


def _group_kinds(codes: Ints, node: Ints, leaf: Flags, branch: Ints, run: _Run) -> list[tuple[Fraction, int, Ints]]:
    """The different kinds of counts: the budget, the threshold and the places of each."""
    if not len(codes):
        return []
    branches = np.where(branch > 0, run.taxonomy.branches[node], 1)
    different, which = distinct_rows(codes, branches, run.taxonomy.height[node], leaf)
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(different)))[:-1]
    result, budgets = [], run.budgets.values
    for (code, number, height, last), places in zip(different, np.split(order, ends), strict=True):
        spent = budgets[code]
        result.append((spent, run.rule.least_size(spent, number, height, leaf=bool(last)), places))
    return result


def _draw_empty(keys: Ints, plan: _Plan, run: _Run) -> list[Ints]:
    """Keys, noisy sizes and thresholds of the empty sub-partitions that pass; ``keys``: those that were counted.

    The r-th free branch is r plus the number of those before it that were counted; sizes are noise given that it
    reaches the threshold. That is the distribution of counting them one by one.
    """
    named = keys[keys & BRANCH > 0]
    taken = np.bincount(named >> BRANCH_BITS, minlength=len(plan.node)).astype(np.int64)
    ends = np.cumsum(taken)
    free = run.taxonomy.branches[plan.node] - taken
    leaf = plan.left == 1
    codes = np.where(leaf, plan.leaf, plan.inner)
    result, sizes, thresholds = [keys[:0]], [keys[:0]], [keys[:0]]
    for spent, least, places in _group_kinds(codes, plan.node, leaf, np.ones_like(codes), run):
        number = run.noise.count_passing(free[places], least, spent)
        for p, count in zip(places[number > 0].tolist(), number[number > 0].tolist(), strict=True):
            before = (named[ends[p] - taken[p] : ends[p]] & BRANCH) - 1 - np.arange(taken[p])
            ranks = run.choose.choice(int(free[p]), count, replace=False, shuffle=False)
            result.append(p << BRANCH_BITS | ranks + 1 + np.searchsorted(before, ranks, side="right"))
        sizes.append(run.noise.draw_above(int(number.sum()), least, spent))
        thresholds.append(np.full(int(number.sum()), least))
    return [np.concatenate(one) for one in (result, sizes, thresholds)]


def distinct_rows(*columns: Ints | Flags) -> tuple[list[list[int]], Ints]:
    """The different rows of some columns (n,), in order, and which of them each row is (n,)."""
    result, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return result.tolist(), which.reshape(-1)


# Contents -------------------------------------------------------------------------------------------------------------
# What a tree says of its leaves, and what an adversary learns of a record in one.


def leaf_values(tree: PartitionTree, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """The value nodes of all leaves, as (index into ``tree.leaves``, node) pairs, sorted.

    Of an item set these are its items, of a cell one of every column.
    """
    which, values = [tree.leaves[:0]], [tree.leaves[:0]]
    of, at = np.arange(len(tree.leaves)), tree.leaves
    while len(at):
        above = tree.parent[at]
        of, at, above = of[above >= 0], at[above >= 0], above[above >= 0]
        place, child = taxonomy.branch_children(tree.next[above], tree.branch[at])
        is_value = taxonomy.height[child] == 0
        which.append(of[place[is_value]])
        values.append(child[is_value])
        at = above
    first, second = np.concatenate(which), np.concatenate(values)
    order = np.lexsort((second, first))
    return first[order], second[order]


def require_remaining(tree: PartitionTree, params: Any, what: str, helps: str) -> None:
    """Raise ``InfeasibleError`` if nothing was kept or more was pruned, unless the publisher said that it may be.

    Only the publisher learns of that, and what was drawn stays spent: who repeats until something passes tells more
    than epsilon. ``what``: was kept, ``helps``: what keeps more, in words.
    """
    total, remaining, number = tree.counted_records, tree.published_records, len(tree.leaves)
    if params.allow_empty or (number and 2 * remaining >= total):
        return
    found = f"the {number:,} {what}s that were kept hold less than half of the records"
    raise InfeasibleError(
        f"{found if number else f'no {what} was kept'}; a larger epsilon or {helps} would keep more, and "
        f"mechanism.allow_empty = true publishes it anyway; epsilon {fraction_text(params.epsilon)} was drawn and is "
        "spent",
        {"kept_records": remaining, "kept": number, "pruned_records": total - remaining},
    )
