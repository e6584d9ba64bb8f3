"""Grow a noisy tree of partitions from records.

Words: a taxonomy is a tree that groups values. A partition of the records is described by a cut: a set of taxonomy
nodes, to which the values of its records belong. To expand it at one of these nodes divides it into sub-partitions, by
the children of the node to which a record's values belong. The number of such a choice of children is the branch. A
partition whose cut has only values is a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class PartitionedRecords:
    """R distinct records, and how each would be divided at every node of a taxonomy (a tree that groups values).

    A node divides records by the children to which their values belong. The number of such a choice of children is the
    branch into which a record falls.

    Attributes:
        weights: How many records of the table equal each of the R distinct ones (R,).
        keys: node * R + record, for each inner node above a value of the record; sorted.
        branches: For each key, the branch of the node into which the record falls.
    """

    weights: Ints
    keys: Ints
    branches: Ints

    @staticmethod
    def generalize(owners: Ints, values: Ints, weights: Ints, taxonomy: Taxonomy) -> PartitionedRecords:
        """Find for all records the branches at all taxonomy nodes above their values: which children hold their values.

        It takes O(number of pairs * height of the taxonomy).

        Args:
            owners: The record of each pair (record, value); pairs are sorted.
            values: The taxonomy node of each pair's value.
            weights: How many records of the table equal each distinct record.
            taxonomy: The taxonomy.
        """
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
        """Return for each of n records which children of a node hold its values, as the number of the branch (n,).

        It is 0 if the record has no value below the node.

        Args:
            record: The records (n,).
            node: The node for each of them (n,).
        """
        if not len(self.keys):
            return np.zeros(len(record), dtype=np.int64)
        wanted = node * len(self.weights) + record
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        result: Ints = np.where(self.keys[at] == wanted, self.branches[at], 0)
        return result


# Tree -----------------------------------------------------------------------------------------------------------------
# Top-down partitioning (paper, Algorithm 1 and Procedure 1, and appendix D for tables).
#
# In a round, all partitions that are not leaves are expanded once, together, in arrays. Within a column the last node
# of the cut is expanded; for item sets this is one of the greatest height, in a public order. In a table the column is
# chosen privately, by a score of the children that it would make. For item sets a round counts the sub-partitions with
# records, and draws the few empty ones that pass. Their number is binomial, and which ones is a uniform choice, just as
# if each were counted.

LARGEST_ROUND = 20_000_000  # most sub-partitions that one round may count
LARGEST_TREE = 2_000_000  # most partitions of a tree; thresholds that let more pass are a mistake


@dataclass(frozen=True)
class Front:
    """The F partitions of the records that are divided (expanded) in the next round, and the n records in them.

    A partition is described by a cut: the set of taxonomy nodes to which the values of its records belong.

    Attributes:
        row: The row of each partition in the tree (F,).
        pending: For each partition, which inner nodes are in its cut, and so still to be expanded (F, inner nodes).
        rest: The budget that each partition has left for counts further down the tree, as a code of ``_Growth`` (F,).
        record: The distinct records in these partitions (n,).
        partition: The partition in which each of these records lies, 0 to F - 1 (n,).
    """

    row: Ints
    pending: Flags
    rest: Ints
    record: Ints
    partition: Ints


@dataclass(frozen=True)
class FrontPlan:
    """At which taxonomy node each of F partitions is divided (expanded) in a round, and what that spends; arrays (F,).

    Budgets are given by codes, which ``_Growth`` keeps.

    Attributes:
        node: The taxonomy node at which the partition is expanded.
        left: The most expansions on the way down to a leaf (an undivided partition), this one included.
        choice: The budget of choosing the node among several, privately.
        inner: The budget of counting a sub-partition that will be divided further.
        leaf: The budget of counting a sub-partition that will not.
        rest: The budget that a sub-partition keeps for counts further down the tree.
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
    """Divide records again and again, and keep the parts whose noisy counts reach a threshold, as a tree.

    The tree is epsilon-differentially private for one record added or removed. A record lies in one partition of every
    round, so the partitions of a round compose in parallel. The choices and counts from the root to a leaf spend at
    most epsilon (see ``Shares``). Budgets and thresholds depend only on published choices. A part without records is
    kept with the same probability as if it were counted.

    Args:
        records: The records.
        taxonomy: The tree of values by which records are divided.
        rule: The public rule of budgets and thresholds.
        noise: The generator of noise and of private choices.
        choose: The generator that chooses which parts without records are kept because of their noise.

    Raises:
        InfeasibleError: Millions of partitions would have to be counted, or pass their thresholds.
    """
    return _Growth(records, taxonomy, rule, noise, choose).grow()


class _Growth:
    """The state while a tree of partitions grows, round by round.

    In a round, all partitions that are not leaves are divided (expanded) once. Distinct budgets have codes 0, 1, .. in
    the order in which they are met; -1 stands for spending nothing.
    """

    def __init__(
        self, records: PartitionedRecords, taxonomy: Taxonomy, rule: TreeRule, noise: SelectionNoise, choose: Chooser
    ) -> None:
        self.records, self.taxonomy, self.rule, self.noise, self.choose = records, taxonomy, rule, noise, choose
        self.codes: dict[Fraction, int] = {}
        self.inner_nodes = np.flatnonzero(taxonomy.height)

    def code_of(self, budget: Fraction) -> int:
        return self.codes.setdefault(budget, len(self.codes)) if budget else -1

    def grow(self) -> PartitionTree:
        everyone = np.arange(len(self.records.weights), dtype=np.int64)
        rest = np.array([self.code_of(self.rule.epsilon / 2)], dtype=np.int64)
        pending = np.isin(self.inner_nodes, self.taxonomy.roots)[None, :]
        front = Front(np.array([0]), pending, rest, everyone, 0 * everyone)
        first = {"parent": -1, "branch": 0, "size": 0, "threshold": -1, "spent": -1, "next": 0, "choice": -1}
        rounds, number = [{name: np.array([value], dtype=np.int64) for name, value in first.items()}], 1
        while len(front.row):
            plan = self.plan_expansions(front)
            for name, values in (("next", plan.node), ("choice", plan.choice)):
                rounds[-1][name][rounds[-1]["next"] >= 0] = values
            kept, front = self.expand_front(front, plan, number)
            rounds.append(kept)
            number += len(kept["parent"])
            if number > LARGEST_TREE:
                by_tau = self.rule.c1 is None
                advice = "lower the number of empty parts that pass (tau)" if by_tau else "raise c1 and c2"
                raise InfeasibleError(f"more than {LARGEST_TREE:,} partitions pass their thresholds; {advice}")
        columns = {name: np.concatenate([part[name] for part in rounds]) for name in rounds[0]}
        return PartitionTree(**columns, budgets=tuple(self.codes))

    # The node of each expansion, and what it spends ---

    def plan_expansions(self, front: Front) -> FrontPlan:
        """Choose the taxonomy node at which each partition is divided next, and the budgets of counting its parts.

        Args:
            front: The partitions that are divided in this round.
        """
        row, place = np.nonzero(front.pending)
        possible = np.full((len(front.pending), len(self.taxonomy.roots)), -1, dtype=np.int64)
        nodes = self.inner_nodes[place]  # the last node of each column, if there is any (F, d)
        np.maximum.at(possible, (row, self.taxonomy.column[nodes]), nodes)
        left = front.pending @ self.taxonomy.expansions[self.inner_nodes]
        several = (possible >= 0).sum(axis=1) > 1
        different, kind = distinct_rows(front.rest, left, several)
        budgets = list(self.codes)
        due = [expansion_shares(self.rule, budgets[r], n, several=bool(many)) for r, n, many in different]
        chosen = np.argmax(possible >= 0, axis=1)
        scores = self.score_nodes(front, possible) if several.any() else possible
        for at in np.flatnonzero(several).tolist():
            columns, budget = np.flatnonzero(possible[at] >= 0), due[kind[at]].choice
            best = self.noise.choose_best(scores[at, columns], budget, monotonic=self.rule.score == "max")
            chosen[at] = columns[best]
        code = self.code_of
        codes = np.array([[code(s.choice), code(s.inner), code(s.leaf), code(s.rest)] for s in due], dtype=np.int64)
        return FrontPlan(possible[np.arange(len(chosen)), chosen], left, *codes[kind].T)

    def score_nodes(self, front: Front, possible: Ints) -> Ints:
        """Return how much dividing each of F partitions along each of d columns would tell about its records (F, d).

        By this score a column is chosen privately. It is 0 in a column that has no node left to divide by.

        Args:
            front: The partitions.
            possible: The taxonomy node at which each partition would be divided in each column (F, d); -1 for none.
        """
        result = np.zeros(possible.shape, dtype=np.int64)
        for column in range(possible.shape[1]):
            inside = np.flatnonzero(possible[front.partition, column] >= 0)
            partition, record = front.partition[inside], front.record[inside]
            branch = self.records.find_branches(record, possible[partition, column])
            keys, counts = tally(partition << BRANCH_BITS | branch, self.records.weights[record])
            degree = self.taxonomy.degree[possible[:, column]]
            result[:, column] = score_divisions(self.rule.score, counts, keys >> BRANCH_BITS, degree)
        return result

    # The sub-partitions of each expansion ---

    def expand_front(self, front: Front, plan: FrontPlan, first_row: int) -> tuple[dict[str, Ints], Front]:
        """Divide all partitions of a round, and keep the sub-partitions whose noisy count reaches the threshold.

        Args:
            front: The partitions.
            plan: At which node each is divided, and with which budgets.
            first_row: The number of the next row of the tree.

        Returns:
            The new rows of the tree, by column, and the partitions of the next round.
        """
        taxonomy, records = self.taxonomy, self.records
        branch = records.find_branches(front.record, plan.node[front.partition])
        inside, certain = front.partition << BRANCH_BITS | branch, self.list_certain(front, plan)
        weights = np.concatenate((records.weights[front.record], 0 * certain))
        keys, counts = tally(np.concatenate((inside, certain)), weights)
        leaf, codes = self.count_budgets(keys, plan)
        sizes, thresholds = np.empty_like(counts), np.empty_like(counts)
        node = plan.node[keys >> BRANCH_BITS]
        for spent, least, places in self.group_kinds(
            codes, node, leaf, keys & BRANCH
        ):  # one draw for all with the same budget and threshold
            sizes[places] = self.noise.add_noise(counts[places], spent)
            thresholds[places] = least
        passed, sizes, thresholds = (one[sizes >= thresholds] for one in (keys, sizes, thresholds))
        if taxonomy.holds_sets:
            pairs = zip((passed, sizes, thresholds), self.draw_empty(keys, plan), strict=True)
            together = [np.concatenate(pair) for pair in pairs]
            passed, sizes, thresholds = (one[np.argsort(together[0])] for one in together)
        of = passed >> BRANCH_BITS
        leaf, codes = self.count_budgets(passed, plan)
        none = np.full(len(passed), -1, dtype=np.int64)
        rows = {"parent": front.row[of], "branch": passed & BRANCH, "size": sizes, "threshold": thresholds}
        rows |= {"spent": codes, "next": np.where(leaf, -1, 0), "choice": none}
        inner = np.flatnonzero(~leaf)
        of, kept = of[inner], passed[inner]
        position = np.searchsorted(kept, inside)
        staying = np.flatnonzero(kept.take(position, mode="clip") == inside) if len(inner) else inner
        staying = staying[np.argsort(position[staying], kind="stable")]
        # Replace the expanded node in each cut by those of its children that are inner nodes.
        pending, node = front.pending[of], plan.node[of]
        pending[np.arange(len(node)), np.searchsorted(self.inner_nodes, node)] = False
        which, child = taxonomy.branch_children(node, kept & BRANCH)
        is_inner = taxonomy.height[child] > 0
        pending[which[is_inner], np.searchsorted(self.inner_nodes, child[is_inner])] = True
        return rows, Front(first_row + inner, pending, plan.rest[of], front.record[staying], position[staying])

    def list_certain(self, front: Front, plan: FrontPlan) -> Ints:
        """Return the sub-partitions that are counted even if they hold no record, as keys of partition and branch.

        For a table these are all of them. For item sets it is the one for records without items, in the first round;
        others without records are drawn by ``draw_empty``.
        """
        if self.taxonomy.holds_sets:
            return np.zeros(int(front.row[0] == 0), dtype=np.int64)
        degree = self.taxonomy.degree[plan.node]
        ends = np.cumsum(degree)
        if int(ends[-1]) > LARGEST_ROUND:
            raise InfeasibleError(f"{int(ends[-1]):,} sub-partitions would have to be counted; lower tau")
        of = np.repeat(np.arange(len(degree)), degree)
        result: Ints = of << BRANCH_BITS | np.arange(int(ends[-1])) - (ends - degree)[of] + 1
        return result

    def count_budgets(self, keys: Ints, plan: FrontPlan) -> tuple[Flags, Ints]:
        """Return which sub-partitions are leaves (not divided any more), and the budget of counting each, as a code.

        Args:
            keys: The sub-partitions, each as one integer: the number of its partition, and its branch there.
            plan: At which node each partition is divided, and with which budgets.
        """
        of, expansions = keys >> BRANCH_BITS, self.taxonomy.expansions
        which, child = self.taxonomy.branch_children(plan.node[of], keys & BRANCH)
        gained = np.bincount(which, weights=expansions[child], minlength=len(keys))
        leaf = plan.left[of] - expansions[plan.node[of]] + gained == 0
        return leaf, np.where(leaf, plan.leaf[of], plan.inner[of])

    def group_kinds(self, codes: Ints, node: Ints, leaf: Flags, branch: Ints) -> list[tuple[Fraction, int, Ints]]:
        """Group counts of sub-partitions with the same budget and threshold, so that their noise is drawn together.

        Args:
            codes: The budget of each count, as a code.
            node: The taxonomy node at which the count's partition was divided.
            leaf: Whether the counted sub-partition is a leaf.
            branch: The number of the sub-partition among those of its partition.

        Returns:
            For each group its budget, its threshold, and the positions of its counts.
        """
        if not len(codes):
            return []
        branches = np.where(branch > 0, self.taxonomy.branches[node], 1)
        different, which = distinct_rows(codes, branches, self.taxonomy.height[node], leaf)
        ends = np.cumsum(np.bincount(which, minlength=len(different)))[:-1]
        result, budgets = [], list(self.codes)
        for kind, places in zip(different, np.split(np.argsort(which, kind="stable"), ends), strict=True):
            code, number, height, last = kind
            least = self.rule.least_size(budgets[code], number, height, leaf=bool(last))
            result.append((budgets[code], least, places))
        return result

    def draw_empty(self, keys: Ints, plan: FrontPlan) -> list[Ints]:
        """Draw which sub-partitions without records are kept because their noise reaches the threshold.

        There may be very many, so they are not counted one by one. How many are kept is binomial. Which ones is a
        uniform choice among the branches that were not counted. Their sizes are noise that reaches the threshold. The
        result has the same distribution as if each were counted.

        Args:
            keys: The keys (partition and branch) of the sub-partitions that were counted.
            plan: At which node each partition is divided, and with which budgets.

        Returns:
            The keys, the noisy sizes and the thresholds of those that are kept.
        """
        named = keys[keys & BRANCH > 0]
        taken = np.bincount(named >> BRANCH_BITS, minlength=len(plan.node)).astype(np.int64)
        ends, free, leaf = np.cumsum(taken), self.taxonomy.branches[plan.node] - taken, plan.left == 1
        codes = np.where(leaf, plan.leaf, plan.inner)
        result, sizes, thresholds = [keys[:0]], [keys[:0]], [keys[:0]]
        for spent, least, places in self.group_kinds(codes, plan.node, leaf, np.ones_like(codes)):
            numbers = self.noise.count_passing(free[places], least, spent)
            for p, count in zip(places[numbers > 0].tolist(), numbers[numbers > 0].tolist(), strict=True):
                before = (named[ends[p] - taken[p] : ends[p]] & BRANCH) - 1 - np.arange(taken[p])
                ranks = self.choose.choice(int(free[p]), count, replace=False, shuffle=False)
                result.append(p << BRANCH_BITS | ranks + 1 + np.searchsorted(before, ranks, side="right"))
            number = int(numbers.sum())
            sizes.append(self.noise.draw_above(number, least, spent))
            thresholds.append(np.full(number, least))
        return [np.concatenate(one) for one in (result, sizes, thresholds)]


# Counts and scores ----------------------------------------------------------------------------------------------------


def tally(keys: Ints, weights: Ints) -> tuple[Ints, Ints]:
    """Add up weights by key, and return the distinct keys, ascending, and the sum for each."""
    different, which = np.unique(keys, return_inverse=True)
    counts = np.bincount(which.reshape(-1), weights=weights, minlength=len(different))  # exact: below 2^53
    return different, counts.astype(np.int64)


LARGEST_SCORED, LARGEST_SUM = 2**30, 2**45  # most records that a score counts; most product of records and children
STEP = 32  # in bits; one record changes a gain by at most 30 + log2(e) and rounding errors


def score_divisions(score: str, counts: Ints, of: Ints, degree: Ints) -> Ints:
    """Return how much dividing each of F partitions into children tells about its records, as a private score (F,).

    One record changes a score by at most 1, so a column can be chosen by it with differential privacy. Let n_c be the
    records of child c, n those of the partition, and k the number of children.

    - "max": the largest n_c. One more record raises it by at most 1, and never lowers it.
    - "gini": sum n_c^2 / n = n (1 - Gini index), rounded down. One more record in child c changes it by
      (2 n_c + 1 - sum/n)/(n + 1), which lies in (-1, 1].
    - "gain": n log2(k) - n H, where H is the entropy of the shares n_c/n. These are the bits by which the counts differ
      from equal ones. One more record changes it by at least log2(k) - log2(n + 1) - log2(e), and at most log2(k). It
      is counted in steps of 32 bits, rounded down. At most 2^30 records of a partition count, so this is at most one
      step.

    Source: Chen et al. 2011, appendix D; for the gain, Friedman & Schuster, KDD 2010.

    Args:
        score: "max", "gini" or "gain".
        counts: The records of each of n children that have some (n,).
        of: The partition to which each of these children belongs (n,).
        degree: The number of children of each partition, with or without records (F,).
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
