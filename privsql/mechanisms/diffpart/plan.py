"""Plan a tree: budgets of its expansions, and the taxonomies of items or columns."""

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
    """What one expansion spends.

    ``choice``: on the choice of the node, 0 where there is none; ``inner``, ``leaf``: on the count of a partition that
    is expanded further, and of a leaf. ``rest``: what a partition that is expanded further has left.
    """

    choice: Fraction
    inner: Fraction
    leaf: Fraction
    rest: Fraction


def expansion_shares(rule: TreeRule, rest: Fraction, expansions: int, *, several: bool) -> Shares:
    """Divide what is left before an expansion; ``several``: whether its node is chosen among several."""
    alpha = rest / expansions
    choice = alpha * rule.choice if several else Fraction(0)
    return Shares(choice, alpha - choice, rule.epsilon / 2 + rest - choice, rest - alpha)


def first_expansion(rule: TreeRule, taxonomy: Taxonomy) -> Shares:
    """Return the shares of the root's expansion."""
    roots = taxonomy.roots
    return expansion_shares(rule, rule.epsilon / 2, int(taxonomy.expansions[roots].sum()), several=len(roots) > 1)


# Item sets ------------------------------------------------------------------------------------------------------------


def items_taxonomy(items: int, params: SetValued) -> Taxonomy:
    """Return the context-free taxonomy of so many items, which are its first nodes."""
    parents = context_free_parents(items, params.fan_out)
    return make_taxonomy(np.zeros_like(parents), parents, sets=True)


PARTS = 10  # a part of that many of all records, the largest on many a path, should not be pruned anywhere


def plan_sets(source: Records, params: SetValued) -> ItemSetTreePlan:
    """Return what is known without looking at the records: taxonomy, budgets and thresholds at the root."""
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
    """Bounds of the errors of a release by DiffPart (Chen et al. 2011, Theorem 4.2), whatever its data.

    ``budget``: every count spends at least as much; ``threshold``: every noisy size that is kept is at most as large.
    """

    budget: Fraction
    threshold: int

    def bound_error(self, covered: int, sets: int, doubt: float) -> int:
        """Return covered * (ceil(ln(sets/doubt)/budget) + threshold), in records: the epsilon of Definition 3.5.

        With probability 1 - ``doubt`` the noise of all ``sets`` lies within that logarithm; a set that was pruned held
        at most the threshold and the noise, and one that nobody has exceeds the threshold by noise alone. A question
        that ``covered`` sets answer errs by the sum.
        """
        return covered * (ceil(log(max(sets, 1) / doubt) / float(self.budget)) + self.threshold)


def bound_noise(rule: TreeRule, taxonomy: Taxonomy) -> Usefulness:
    """Return the least budget of a count and the largest threshold of any part, whatever the data.

    More specific parts spend more (appendix F.2), so the root's first expansion spends least: B/2 over the number of
    inner nodes (Theorem 4.1).
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
    """All columns, and their taxonomies in one: of each the values are the first nodes, then come the inner ones.

    ``first_nodes`` (d,): the node of the first value of every column; ``names``: the text of every node of the
    taxonomy, None where it has none.
    """

    columns: tuple[ContingencyColumn, ...]
    taxonomy: Taxonomy
    first_nodes: Ints
    names: list[str | None]


def read_tree_domains(db: Relations, source: Records, params: Contingency) -> TreeDomains:
    """Return the domains of a prepared source; ``UsageError`` for a taxonomy that is none."""
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
    """Return what is known without looking at the records: values, expansions and the budget of the first one."""
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
