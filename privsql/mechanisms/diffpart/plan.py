"""Plan a partition tree: the budgets of its counts, and the taxonomies by which records are divided.

A taxonomy is a tree that groups the items, or the values of a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log
from typing import TYPE_CHECKING

import numpy as np

from privsql.exact import fraction_text
from privsql.mechanisms.diffpart.parameters import CellTreePlan, ItemSetTreePlan
from privsql.mechanisms.diffpart.tree import (
    Taxonomy,
    TreeRule,
    context_free_parents,
    distinct_rows,
    make_columns_rule,
    make_sets_rule,
    make_taxonomy,
)
from privsql.mechanisms.dp.noisy_tables import Ints
from privsql.mechanisms.marginals.domains import ContingencyColumn, read_columns

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.records import Records


# Budgets --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """The budgets that dividing (expanding) one partition of the records at a node of a taxonomy spends.

    Attributes:
        choice: The budget of choosing the node among several; 0 if there is no choice.
        inner: The budget of counting a part that is divided further.
        leaf: The budget of counting a part that is not.
        rest: The budget that a part that is divided further keeps for counts below it.
    """

    choice: Fraction
    inner: Fraction
    leaf: Fraction
    rest: Fraction


def expansion_shares(rule: TreeRule, rest: Fraction, expansions: int, *, several: bool) -> Shares:
    """Return the budgets that dividing (expanding) a partition spends, on choosing a node and on counting the parts.

    The budget that is left is shared equally among this and all later divisions that may follow below it.

    Args:
        rule: The public rule of budgets and thresholds.
        rest: The budget that is left for this and later divisions.
        expansions: The most divisions that are left on a way down from the partition to a leaf, this one included.
        several: Whether the taxonomy node at which it is divided is chosen among several, which costs a share.
    """
    alpha = rest / expansions
    choice = alpha * rule.choice if several else Fraction(0)
    return Shares(choice, alpha - choice, rule.epsilon / 2 + rest - choice, rest - alpha)


def first_expansion(rule: TreeRule, taxonomy: Taxonomy) -> Shares:
    """Return the budgets of the first division, that of all records: to choose a column, and to count the parts."""
    roots = taxonomy.roots
    return expansion_shares(rule, rule.epsilon / 2, int(taxonomy.expansions[roots].sum()), several=len(roots) > 1)


# Item sets ------------------------------------------------------------------------------------------------------------


def items_taxonomy(items: int, params: SetValued) -> Taxonomy:
    """Return the taxonomy by which records with item sets are divided; it groups the items by their order alone.

    The items are its first nodes. The parameter ``fan_out`` is how many neighbours make a group.
    """
    parents = context_free_parents(items, params.fan_out)
    return make_taxonomy(np.zeros_like(parents), parents, sets=True)


PARTS = 10  # a partition with one part in so many of all records should not be pruned


def plan_sets(source: Records, params: SetValued) -> ItemSetTreePlan:
    """Plan a tree of item sets without reading any record.

    The facts are how items are grouped, and the budget and threshold of the first parts of the records that are
    counted.
    """
    taxonomy = items_taxonomy(len(source.labels), params)
    rule, root = make_sets_rule(params, taxonomy), int(taxonomy.roots[0])
    first = first_expansion(rule, taxonomy)
    last = taxonomy.inner[root] == 1
    spent, branches = first.leaf if last else first.inner, int(taxonomy.branches[root])
    return ItemSetTreePlan(
        epsilon=fraction_text(params.epsilon),
        items=len(source.labels),
        inner_nodes=int(taxonomy.inner[root]),
        height=int(taxonomy.height[root]),
        first_budget=fraction_text(spent),
        first_threshold=rule.least_size(spent, branches, int(taxonomy.height[root]), leaf=bool(last)),
        least_records=0 if params.allow_empty else PARTS * bound_noise(rule, taxonomy).threshold,
    )


@dataclass(frozen=True)
class Usefulness:
    """Bounds on the noise of a release by DiffPart that hold for any records (Chen et al. 2011, Theorem 4.2).

    Attributes:
        budget: A lower bound of the budget of every count.
        threshold: An upper bound of all thresholds.
    """

    budget: Fraction
    threshold: int

    def bound_error(self, covered: int, sets: int, doubt: float) -> int:
        """Return a bound on the error of a count, in records: covered * (ceil(ln(sets/doubt)/budget) + threshold).

        It is called epsilon in Definition 3.5 of Chen et al. 2011. With probability 1 - ``doubt`` the noise of all
        ``sets`` stays within the logarithmic term. An item set that was dropped (pruned) held at most the threshold and
        its noise. A set that no record has exceeds the threshold by noise alone. The error of a question is the sum
        over the sets that answer it.

        Args:
            covered: The number of item sets that answer the question.
            sets: The number of item sets whose noise is bounded.
            doubt: The probability that the bound fails, in (0, 1).
        """
        return covered * (ceil(log(max(sets, 1) / doubt) / float(self.budget)) + self.threshold)


def bound_noise(rule: TreeRule, taxonomy: Taxonomy) -> Usefulness:
    """Return the least budget of any count and the largest threshold of any partition, whatever the records are.

    Counts further down the tree spend more (Chen et al. 2011, appendix F.2). So the first division of all records
    spends least: B/2 over the number of inner nodes of the taxonomy, where B is the budget of the tree (Theorem 4.1).
    """
    first = first_expansion(rule, taxonomy)
    inner, different = taxonomy.inner[-1] > 1, distinct_rows(taxonomy.branches, taxonomy.height)[0]
    kinds = [(branches, height) for branches, height in different if height]
    leaves = [rule.least_size(rule.epsilon / 2, *kind, leaf=True) for kind in kinds]
    parts = [rule.least_size(first.inner, *kind, leaf=False) for kind in kinds] if inner else []
    return Usefulness(first.inner if inner else first.leaf, max([*leaves, *parts]))


# Columns --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TreeDomains:
    """All d columns of a table, with one taxonomy: the trees that group each column's values.

    Attributes:
        columns: The columns (d).
        taxonomy: The taxonomy; each column's values come first, then its inner nodes.
        first_nodes: The node of the first value of every column (d,).
        names: The text of every node; None for a node without a name.
    """

    columns: tuple[ContingencyColumn, ...]
    taxonomy: Taxonomy
    first_nodes: Ints
    names: list[str | None]


def read_tree_domains(db: Relations, source: Records, params: Contingency) -> TreeDomains:
    """Read the possible values of a source's columns, and how they are grouped (the taxonomies).

    Raises:
        UsageError: A taxonomy that the publisher stated is invalid.
    """
    columns, parents, first, names = read_columns(db, source, params), list[Ints](), list[int](), list[str | None]()
    for one in columns:
        own = context_free_parents(len(one), params.fan_out) if one.parents is None else one.parents
        parents.append(np.where(own < 0, -1, own + len(names)))
        first.append(len(names))
        names += [*one.labels, *(one.inner or (None,) * (len(own) - len(one)))]
    places = np.repeat(np.arange(len(columns)), [len(own) for own in parents])
    taxonomy = make_taxonomy(places, np.concatenate(parents), sets=False)
    return TreeDomains(columns, taxonomy, np.array(first, dtype=np.int64), names)


def plan_columns(db: Relations, source: Records, params: Contingency) -> CellTreePlan:
    """Plan a tree over the columns of a table without reading any record.

    The facts are the columns' values, and the budget of the first division of the records.
    """
    space = read_tree_domains(db, source, params)
    first = first_expansion(make_columns_rule(params), space.taxonomy)
    return CellTreePlan(
        epsilon=fraction_text(params.epsilon),
        values=sum(map(len, space.columns)),
        expansions=int(space.taxonomy.expansions[space.taxonomy.roots].sum()),
        first_choice=fraction_text(first.choice),
        first_budget=fraction_text(first.inner),
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
    )
