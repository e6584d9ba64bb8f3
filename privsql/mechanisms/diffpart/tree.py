"""The partition tree of DiffPart (Chen et al. 2011), its taxonomy, and the public rule of budgets and thresholds.

Words: a taxonomy is a tree that groups values. A partition is a part of the records. To expand it at a taxonomy node
divides it into sub-partitions, by the children of the node to which a record's values belong. The number of such a
choice of children is the branch. A partition that can't be expanded is a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privsql.dp_random import as_decimal
from privsql.mechanisms.dp.parameters import total_budget

if TYPE_CHECKING:
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Taxonomy -------------------------------------------------------------------------------------------------------------
# The taxonomies of all columns are numbered together: children before their parents, column after column. For item sets
# there is one column whose values are the items (paper, section 3.1).
#
# A partition is described by a hierarchy cut: a set of nodes. To expand a node replaces it in the cut. For item sets it
# is replaced by a non-empty set of its children; their places are the bits of the number ``branch``. For a table it is
# replaced by one child; ``branch`` is its place plus 1. Branch 0 of the root holds the records without items.


@dataclass(frozen=True)
class Taxonomy:
    """A taxonomy: trees that group the values of d columns; K nodes in all, as integer arrays.

    Records are divided by the children of a node to which their values belong. Values are the nodes without children.
    Item sets have one column whose values are the items.

    Attributes:
        column: The column of each node (K,).
        parent: The parent of each node, -1 for a root (K,).
        height: The longest way from each node down to a value, 0 for a value (K,).
        inner: The number of inner nodes (not values) in each node's sub-tree, itself included (K,).
        place: The position of each node among the children of its parent (K,).
        starts: Where the children of each node begin in ``children`` (K + 1,).
        children: The children of all nodes; those of node k are ``children[starts[k]:starts[k+1]]``.
        roots: The root of each column (d,).
        holds_sets: Whether a record is an item set, with any number of values; if not, it has one value in every
            column.
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
        """Return the number of children of each of the K nodes (K,)."""
        return np.diff(self.starts)

    def values(self, column: int) -> Ints:
        """Return the nodes of a column that are values, in their order."""
        return np.flatnonzero((self.column == column) & (self.height == 0))

    @property
    def expansions(self) -> Ints:
        """Return for each of K nodes how often records can be divided at it and its descendants (K,).

        It is the most divisions on the way to a leaf, a partition of the records that is not divided further.
        """
        return self.inner if self.holds_sets else self.height

    @property
    def branches(self) -> Ints:
        """Return for each of K nodes into how many sub-partitions a partition of the records is divided at it (K,).

        It is the number of children in a table, and the number of non-empty sets of children for item sets. Branch 0 of
        the root, for records without items, is not counted.
        """
        return 2 ** np.minimum(self.degree, BRANCH_BITS) - 1 if self.holds_sets else self.degree

    def branch_children(self, node: Ints, branch: Ints) -> tuple[Ints, Ints]:
        """Return which children of a taxonomy node the records of a sub-partition belong to, for n sub-partitions.

        Dividing a partition at a node makes sub-partitions, which are numbered by a branch. In a table, each has the
        records below one child. For item sets, each has the records whose items lie below the same children.

        Args:
            node: The node at which each sub-partition was divided from its parent (n,).
            branch: The number (branch) of each sub-partition (n,).

        Returns:
            Pairs, as two arrays: an index into ``node``, and a child.
        """
        if not self.holds_sets:
            return np.arange(len(node)), self.children[self.starts[node] + branch - 1]
        which, child = [np.arange(0)], [node[:0]]
        for place in range(int(self.degree.max())):
            has = np.flatnonzero(branch >> place & 1)
            which.append(has)
            child.append(self.children[self.starts[node[has]] + place])
        return np.concatenate(which), np.concatenate(child)


def make_taxonomy(column: Ints, parent: Ints, *, sets: bool) -> Taxonomy:
    """Make a taxonomy from the column and the parent of each of its K nodes.

    Args:
        column: The column of each node, ascending (K,).
        parent: The parent of each node, -1 for a root (K,); children come before their parents.
        sets: Whether records are item sets.

    Raises:
        ValueError: These do not make one tree for every column, with values below its root.
    """
    number, is_root = len(parent), parent < 0
    roots = column[is_root]
    if not len(roots) or (np.diff(column, prepend=0) < 0).any() or not np.array_equal(roots, np.arange(len(roots))):
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
    """Return the parents of the nodes of a taxonomy that groups values by their order alone.

    The values come first, then level upon level; each inner node has ``fan_out`` children, or fewer at the end.

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


# Budget ---------------------------------------------------------------------------------------------------------------
# Budgets and thresholds are exact fractions (paper, section 4.1).
#
# Half of epsilon is for the expansions of a path. A partition with ``rest`` of it unspent, and at most N expansions
# left, spends alpha = rest/N on its next one. In a table the expanded node is chosen privately if there are several,
# for the share ``choice`` of alpha. A sub-partition that is not a leaf is counted with the rest of alpha. A leaf is
# counted once with everything that is left: epsilon/2 + rest less the choice. So every path from the root to a leaf
# spends epsilon on choices and counts together.

PRECISION = 50  # decimal digits of the logarithm in a threshold; correctly rounded, so the same everywhere


@dataclass(frozen=True)
class TreeRule:
    """The public rule of budgets and thresholds by which a partition tree is grown.

    Parts of the records whose noisy counts are below the threshold are dropped.

    Attributes:
        epsilon: The budget of the whole tree.
        passing: How many parts without records are expected to reach their threshold by noise, each time a partition is
            divided; for parts that are divided further.
        passing_leaves: The same for leaves, which are not divided further.
        choice: The share of a division's budget that is spent on choosing its column.
        score: The score by which a column is chosen (see ``score_divisions``).
        c1: A factor of the thresholds of leaves (Chen et al. 2011, see ``least_size``); None if thresholds follow from
            ``passing`` and ``passing_leaves``.
        c2: The same for the thresholds of other parts; None as for ``c1``.
    """

    epsilon: Fraction
    passing: Fraction
    passing_leaves: Fraction
    choice: Fraction = Fraction(0)
    score: str = "max"
    c1: Fraction | None = None
    c2: Fraction | None = None

    def least_size(self, spent: Fraction, branches: int, height: int, *, leaf: bool) -> int:
        """Return the threshold of a part of the records: the least noisy count, at least 1, with which it is kept.

        It depends on no record. With c1 and c2 it is ceil(sqrt(2) c1/spent) for leaves, and ceil(sqrt(2) c2
        height/spent) for others.

        Args:
            spent: The budget of the count.
            branches: The number of parts into which the partition is divided.
            height: The height of the taxonomy node at which it is divided.
            leaf: Whether the part is a leaf: it is not divided further.
        """
        if self.c1 is not None and self.c2 is not None:
            square = 2 * ((self.c1 if leaf else self.c2 * height) / spent) ** 2
            root = isqrt(square.numerator // square.denominator)
            return max(1, root if root * root >= square else root + 1)
        return least_cutoff(branches, self.passing_leaves if leaf else self.passing, spent)


def least_cutoff(empty: int, passing: Fraction, spent: Fraction) -> int:
    """Return the least threshold t >= 1 that on average at most ``passing`` of ``empty`` parts reach by noise.

    These are parts of a partition that hold no record.

    Args:
        empty: The number of parts without records.
        passing: The expected number of them that may pass.
        spent: The budget of each count.
    """
    with localcontext() as context:
        context.prec = PRECISION
        alpha = as_decimal(spent)
        ratio = empty / (as_decimal(passing) * (1 + (-alpha).exp()))
        return max(1, int((ratio.ln() / alpha).to_integral_value(rounding="ROUND_CEILING")))


BRANCH_BITS, BRANCH = 31, 2**31 - 1  # a key is partition * 2^31 + branch


@dataclass(frozen=True, kw_only=True)
class PartitionTree:
    """A tree of partitions of the records, each with its noisy size; those with small sizes were dropped.

    Row 0 is the root, which holds all records and is never counted. Arrays have T rows, parents before their children.

    Attributes:
        parent: The row of the partition that was divided, ascending; -1 for the root.
        branch: Which of its parent's sub-partitions it is, ascending among siblings.
        next: The taxonomy node at which it is divided (expanded) itself; -1 for a leaf.
        size: Its noisy number of records, which is at least ``threshold``.
        threshold: The least size with which it is kept.
        spent: The budget of its count, as an index into ``budgets``; -1 for nothing.
        choice: The budget of choosing ``next``, as an index into ``budgets``; -1 for nothing.
        budgets: The distinct budgets.
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
        """Return for each of the T partitions whether it is a leaf (T,)."""
        return self.next < 0

    @cached_property
    def leaves(self) -> Ints:
        """Return the rows of the leaves, ascending."""
        return np.flatnonzero(self.leaf)

    @property
    def counted_records(self) -> int:
        """Return the noisy number of all records: the sum of the sizes of the root's children."""
        return int(self.size[self.parent == 0].sum())

    @property
    def published_records(self) -> int:
        """Return the noisy number of records in the leaves."""
        return int(self.size[self.leaf].sum())

    @property
    def facts(self) -> dict[str, int]:
        """Return the facts that are stated for every tree, by name: the numbers of partitions and of records."""
        counted, published = self.counted_records, self.published_records
        return {"partitions": len(self) - 1, "estimated_records": counted, "kept_records": published}


def distinct_rows(*columns: Ints | Flags) -> tuple[list[list[int]], Ints]:
    """Return the distinct rows of a table, in order, and for each row the index of its distinct row (n,).

    What depends on the row alone, such as a budget, is then computed only once.

    Args:
        columns: The columns of the table, n values each.
    """
    result, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return result.tolist(), which.reshape(-1)


# Contents -------------------------------------------------------------------------------------------------------------
# The values of leaves.


def leaf_values(tree: PartitionTree, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """Return the values of every leaf (published partition) as pairs, sorted.

    They are two arrays: an index into ``tree.leaves``, and the node of a value. The values of an item set are its
    items. A cell of a table has one value of every column.
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


# Rules ----------------------------------------------------------------------------------------------------------------


def make_sets_rule(params: SetValued, taxonomy: Taxonomy) -> TreeRule:
    """Return the rule of budgets and thresholds for a tree of item sets, which follows from the parameters alone.

    The parameter ``tau`` is the expected number of parts without records that reach their threshold by noise. It is
    divided among the inner nodes of the taxonomy, because records are divided at each of them once on the way to a
    leaf. Such a part has at most (tau/nodes)^nodes <= e^(tau/e) expected descendants.
    """
    nodes = int(taxonomy.inner[-1])
    passing, passing_leaves = params.tau / nodes, params.tau_sets / nodes
    return TreeRule(total_budget(params), passing, passing_leaves, c1=params.c1, c2=params.c2)


def make_columns_rule(params: Contingency) -> TreeRule:
    """Return the rule of budgets and thresholds for a tree over the columns of a table, whose leaves are cells."""
    return TreeRule(total_budget(params), params.tau, params.tau_cells, choice=params.choice, score=params.score)
