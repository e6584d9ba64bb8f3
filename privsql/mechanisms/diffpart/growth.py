"""Grow a noisy tree of partitions from records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.mechanisms.diffpart.plan import expansion_shares
from privsql.mechanisms.diffpart.tree import (
    BRANCH,
    BRANCH_BITS,
    Flags,
    Ints,
    PartitionTree,
    Taxonomy,
    TreeRule,
    distinct_rows,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from privsql.dp_random import SelectionNoise
    from privsql.keyed_random import Chooser

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
