"""Plan a tree: budgets of its expansions, and the taxonomies of items or columns."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
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
from privsql.mechanisms.marginals.domains import ContingencyColumn, read_columns
from privsql.mechanisms.views.evaluation import Usefulness

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.dp.noisy_tables import Ints
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.records import Records


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


def items_taxonomy(items: int, params: SetValued) -> Taxonomy:
    """The context-free taxonomy of so many items, which are its first nodes."""
    parents = context_free_parents(items, params.fan_out)
    return make_taxonomy(np.zeros_like(parents), parents, sets=True)


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
    )


def bound_noise(rule: TreeRule, taxonomy: Taxonomy) -> Usefulness:
    """The least budget of a count and the largest threshold of any part, whatever the data.

    More specific parts spend more (appendix F.2), so the root's first expansion spends least: B/2 over the number of
    inner nodes (Theorem 4.1).
    """
    first = first_expansion(rule, taxonomy)
    inner, different = taxonomy.inner[-1] > 1, distinct_rows(taxonomy.branches, taxonomy.height)[0]
    kinds = [(branches, height) for branches, height in different if height]
    leaves = [rule.least_size(rule.epsilon / 2, *kind, leaf=True) for kind in kinds]
    parts = [rule.least_size(first.inner, *kind, leaf=False) for kind in kinds] if inner else []
    return Usefulness(first.inner if inner else first.leaf, max([*leaves, *parts]))


# Taxonomies of all columns ---


@dataclass(frozen=True)
class TreeDomains:
    """All columns, and their taxonomies in one: of each the values are the first nodes, then come the inner ones."""

    columns: tuple[ContingencyColumn, ...]
    taxonomy: Taxonomy

    @property
    def first_nodes(self) -> Ints:
        """The node of the first value of every column, (d,)."""
        return np.array([self.taxonomy.values(number)[0] for number in range(len(self.columns))], dtype=np.int64)

    @property
    def names(self) -> list[str | None]:
        """The text of every node of the taxonomy, None where it has none."""
        sizes = np.bincount(self.taxonomy.column, minlength=len(self.columns)).tolist()
        return [
            name
            for one, size in zip(self.columns, sizes, strict=True)
            for name in (*one.labels, *(one.inner or (None,) * (size - len(one.labels))))
        ]


def read_tree_domains(db: Relations, source: Records, params: Contingency) -> TreeDomains:
    """The domains of a prepared source; ``UsageError`` for a taxonomy that is none."""
    columns = read_columns(db, source, params)
    column_parents = [
        context_free_parents(len(one), params.fan_out) if one.parents is None else one.parents for one in columns
    ]
    sizes = [len(parents) for parents in column_parents]
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    parents = np.concatenate(column_parents)
    parents = np.where(parents < 0, -1, parents + first)
    return TreeDomains(columns, make_taxonomy(np.repeat(np.arange(len(columns)), sizes), parents, sets=False))


def plan_columns(db: Relations, source: Records, params: Contingency) -> CellTreePlan:
    """Return what is known without looking at the records: values, expansions and the budget of the first one."""
    space = read_tree_domains(db, source, params)
    first = first_expansion(make_columns_rule(params), space.taxonomy)
    return CellTreePlan(
        epsilon=fraction_text(params.epsilon),
        values=sum(len(one.labels) for one in space.columns),
        expansions=int(space.taxonomy.expansions[space.taxonomy.roots].sum()),
        first_choice=fraction_text(first.choice),
        first_budget=fraction_text(first.inner),
        not_covered=params.not_covered(field.name for field in source.roles.sensitive),
    )
