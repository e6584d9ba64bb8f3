"""Check a tree from its rows alone: exact fractions and sets of nodes. They share no code with growing it."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from privsql.dp_random import noise_scale
from privsql.engine.sqlfiles import column
from privsql.mechanisms.diffpart.plan import read_tree_domains
from privsql.mechanisms.diffpart.tables import (
    TREE_ORDERS,
    list_cell_facts,
    list_set_facts,
    read_taxonomy,
    read_tree,
    taxonomy_table,
)
from privsql.mechanisms.diffpart.tree import (
    Ints,
    PartitionTree,
    Taxonomy,
    TreeRule,
    context_free_parents,
    leaf_values,
    make_columns_rule,
    make_sets_rule,
)
from privsql.mechanisms.dp.checks import (
    OPENDP_CHECK,
    check_published,
    differ_from_specification,
    unknown_opendp,
    wrong_facts,
)
from privsql.mechanisms.marginals.domains import added_values
from privsql.mechanisms.views.checks import OF_UNIVERSE
from privsql.mechanisms.views.tables import read_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.mechanisms.diffpart.parameters import CellTreeFacts, ItemSetTreeFacts
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.records import Records

    TreeCheck = Callable[[CheckedRelease[Any, Any], PartitionTree, Taxonomy, TreeRule], list[str]]
    SetsRelease = CheckedRelease[SetValued, ItemSetTreeFacts]
    CellRelease = CheckedRelease[Contingency, CellTreeFacts]


# Trees ----------------------------------------------------------------------------------------------------------------
# Checks of a published DiffPart tree from its rows alone: exact fractions and sets of nodes. They share no code with
# growing it.

CLOSE = 1e-9  # relative difference of a threshold that doubles may make


def check_tree(
    release: CheckedRelease[Any, Any],
    make_rule: Callable[[Taxonomy], TreeRule],
    list_facts: Callable[[PartitionTree, Taxonomy], Mapping[str, Any]],
    named: Mapping[str, TreeCheck],
    leaves: tuple[str, Sequence[str]],
) -> list[Check]:
    """Return the checks of a tree, its facts as ``list_facts`` has them.

    ``named``: a kind's further ones; ``leaves``: view and key of the leaves' table.
    """

    def read(_: CheckedRelease[Any, Any]) -> tuple[PartitionTree, Taxonomy, TreeRule]:
        taxonomy = read_taxonomy(release.read_view("taxonomy"), sets=release.roles.hold_sets)
        return read_tree(release.read_view("tree"), taxonomy), taxonomy, make_rule(taxonomy)

    common: dict[str, TreeCheck] = {
        "choices and counts of every path spend at most epsilon": wrong_paths,
        "sizes reach thresholds that depend on no data": wrong_thresholds,
        "scales are those of the budgets": wrong_tree_scales,
        "facts are those of the tree": lambda _, tree, taxonomy, _rule: wrong_facts(
            release, list_facts(tree, taxonomy)
        ),
    }
    view, keys = leaves
    return [
        *check_published(release, "tree", read, common | dict(named)),
        *release.list_checks(
            {"counts are those of the tree": release.fill_query("verify/leaves", leaves=release.view(view))}
        ),
        *release.check_orders(TREE_ORDERS | {view: keys}),
        *release.list_checks({OPENDP_CHECK: unknown_opendp}),
    ]


def is_cutoff(least: int, empty: int, passing: Fraction, spent: Fraction) -> bool:
    """Return whether ``least`` is ``diffpart.least_cutoff`` of the others, up to ``CLOSE``."""
    alpha = float(spent)
    exact = math.log(empty / (float(passing) * (1 + math.exp(-alpha)))) / alpha
    return least >= 1 and least >= exact - CLOSE * least and (least == 1 or least - 1 < exact + CLOSE * least)


def _is_least(rule: TreeRule, least: int, spent: Fraction, branches: int, height: int, leaf: bool) -> bool:
    """Return whether ``least`` is the least integer >= 1 that meets its bound: exactly, or as ``is_cutoff`` has it."""
    if rule.c1 is not None and rule.c2 is not None:
        bound = 2 * ((rule.c1 if leaf else rule.c2 * height) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    return is_cutoff(least, branches, rule.passing_leaves if leaf else rule.passing, spent)


def wrong_thresholds(
    release: CheckedRelease[Any, Any], tree: PartitionTree, taxonomy: Taxonomy, rule: TreeRule
) -> list[str]:
    """Rows whose threshold is not the one of their budget, node and kind, or whose size is below it."""
    wrong = [] if release.read_view("tree")["threshold"].to_pylist()[0] is None else ["part 0 was never counted"]
    right, degrees = cache(partial(_is_least, rule)), taxonomy.degree.tolist()
    for row in range(1, len(tree)):
        node, least = int(tree.next[tree.parent[row]]), int(tree.threshold[row])
        branches = 1 if not tree.branch[row] else 2 ** degrees[node] - 1 if taxonomy.holds_sets else degrees[node]
        kind = tree.budgets[tree.spent[row]], branches, int(taxonomy.height[node]), bool(tree.leaf[row])
        if tree.size[row] < least or not right(least, *kind):
            wrong.append(f"part {row}: threshold {least}, size {tree.size[row]}")
    return wrong


def wrong_tree_scales(release: CheckedRelease[Any, Any], tree: PartitionTree, *_others: object) -> list[str]:
    """Rows whose noise has another scale than the least double that spends no more than the stated budget."""
    widths = release.read_view("tree")["scale"].to_pylist()
    wrong = [] if widths[0] is None else ["part 0 was never counted"]
    for code, width in sorted(set(zip(tree.spent[1:].tolist(), widths[1:], strict=True)), key=str):
        budget = tree.budgets[code]
        if width != noise_scale(budget):
            wrong.append(f"budget {budget}, scale {width}")
    return wrong


def wrong_leaf_values(tree: PartitionTree, taxonomy: Taxonomy, parts: Ints, values: Ints) -> list[str]:
    """Leaves whose published value nodes (-1: of no node), as pairs with their part, are not those of their path."""
    if len(parts) and not 0 <= parts.min() <= parts.max() < len(tree):
        return ["a leaf belongs to no part of the tree"]
    which, due = leaf_values(tree, taxonomy)
    pairs, expected = sorted(zip(parts.tolist(), values.tolist(), strict=True)), tree.leaves[which].tolist()
    if pairs == list(zip(expected, due.tolist(), strict=True)):
        return []
    differing = set(pairs) ^ set(zip(expected, due.tolist(), strict=True))
    return [f"part {part}" for part in sorted({part for part, _ in differing})] or ["a value stands twice"]


def wrong_paths(_: CheckedRelease[Any, Any], tree: PartitionTree, taxonomy: Taxonomy, rule: TreeRule) -> list[str]:
    """Return the rows of a tree that break its rules, one line each."""
    return [f"part {row} {what}" for row, what in find_violations(tree, taxonomy, rule)]


def find_violations(tree: PartitionTree, taxonomy: Taxonomy, rule: TreeRule) -> list[tuple[int, str]]:
    """Rows that are not what the algorithm makes of their parent, or whose path spends more than epsilon.

    For every row: its cut follows from its parent's and its branch; it is a leaf if no node is left that is no value,
    else it is expanded at one of these; the choice among several columns, and no other, spent its share; its count
    spent what was due; and choices and counts of no path, whether or not its next counts were kept, exceed epsilon.
    """
    paths = _Paths(tree, taxonomy, rule)
    return [(row, what) for row in range(len(tree)) for what in paths.check_row(row)]


class _Paths:
    """The way to each expanded row: its cut, and the budget of the choices and counts on it."""

    def __init__(self, tree: PartitionTree, taxonomy: Taxonomy, rule: TreeRule) -> None:
        self.tree, self.taxonomy, self.rule = tree, taxonomy, rule
        self.cuts = {0: frozenset(taxonomy.roots.tolist())}
        self.used = {0: Fraction(0)}
        self.due = cache(self._due_budgets)

    def check_row(self, row: int) -> list[str]:
        """Return what is wrong with a row whose parent was looked at before it."""
        cut, spent, wrong = self.cuts[0], Fraction(0), list[str]()
        if row:
            parent = int(self.tree.parent[row])
            node = int(self.tree.next[parent])
            if node not in self.cuts.get(parent, ()):
                return ["has no parent that was expanded into it"]
            cut = self.cuts[parent] - {node} | self._inner_children(node, int(self.tree.branch[row]))
            budget = self.tree.budgets[self.tree.spent[row]]
            spent = self.used[parent] + self._choice_budget(parent) + budget
            _, inner, leaf = self.due(self.used[parent], self.cuts[parent])
            if budget != (inner if cut else leaf):
                wrong.append(f"spent {budget}, not the {inner if cut else leaf} that was left for it")
        if cut:
            self.cuts[row], self.used[row] = cut, spent
        wrong += self._expansion_errors(row, cut)
        total = spent + (self._choice_budget(row) + self.due(spent, cut)[2] if cut else 0)
        return (
            [*wrong, f"its path spends {total}, more than {self.rule.epsilon}"] if total > self.rule.epsilon else wrong
        )

    def _expansion_errors(self, row: int, cut: frozenset[int]) -> list[str]:
        """Return what is wrong with how a row is expanded, or that it is, or is not."""
        node, due = int(self.tree.next[row]), self.due(self.used[row], cut)[0] if cut else Fraction(0)
        if (node < 0) != (not cut):
            return ["is not a leaf, or should be one"]
        if cut and (node != max(cut) if self.taxonomy.holds_sets else node not in cut):
            return ["is expanded at a node that it does not have, or not at its cut's last"]
        stated = self._choice_budget(row)
        return [] if stated == due else [f"chose a column for {stated}, not for {due}"]

    def _inner_children(self, node: int, branch: int) -> frozenset[int]:
        children = self.taxonomy.children[self.taxonomy.starts[node] : self.taxonomy.starts[node + 1]].tolist()
        taken = [
            child for place, child in enumerate(children)
            if (branch >> place & 1 if self.taxonomy.holds_sets else branch == place + 1)
        ]  # fmt: skip
        return frozenset(child for child in taken if self.taxonomy.height[child])

    def _choice_budget(self, row: int) -> Fraction:
        code = int(self.tree.choice[row])
        return self.tree.budgets[code] if code >= 0 else Fraction(0)

    def _due_budgets(self, used: Fraction, cut: frozenset[int]) -> tuple[Fraction, Fraction, Fraction]:
        """Return what is due for choosing a node of the cut, and for the counts of a part below it and of a leaf."""
        nodes = self.taxonomy.inner if self.taxonomy.holds_sets else self.taxonomy.height
        alpha = (self.rule.epsilon / 2 - used) / sum(int(nodes[node]) for node in cut)
        choice = alpha * self.rule.choice if len(cut) > 1 else Fraction(0)
        return choice, alpha - choice, self.rule.epsilon - used - choice


def check_sets(release: SetsRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, TreeCheck] = {
        "the taxonomy groups the universe by fan-out": _wrong_groups,
        "item sets are the leaves of the tree": _wrong_leaves,
    }
    rule, facts = partial(make_sets_rule, release.params), partial(list_set_facts, release.params)
    checked = check_tree(release, rule, facts, named, ("itemsets", ["items"]))
    return [*checked, *release.list_checks(OF_UNIVERSE), *release.check_orders({"universe": ["code"]})]


def _wrong_groups(release: SetsRelease, _tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return whether groups are not those of the fan-out, or items not those of the universe."""
    universe = read_labels(release.db, release.view("universe"))
    named = release.read_view("taxonomy")["value"].to_pylist()
    wrong = [] if named[: len(universe)] == [*universe] else ["items have other names"]
    due = context_free_parents(len(universe), release.params.fan_out)
    return wrong if np.array_equal(taxonomy.parent, due) else [*wrong, "nodes are not grouped by the fan-out"]


def _wrong_leaves(release: SetsRelease, tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return leaves whose published items are not those of their path."""
    pairs = release.db.arrow(release.fill_query("duckdb/coded", sets=release.view("itemsets")))
    part, code = (pairs[name].fill_null(-1).to_numpy().astype(np.int64) for name in ("part", "code"))
    return wrong_leaf_values(tree, taxonomy, part, code)


def check_columns(release: CellRelease) -> list[Check]:
    """Return the checks that need the release alone."""
    named: dict[str, TreeCheck] = {
        "taxonomies are stated, or group their values by fan-out": _wrong_taxonomies,
        "cells are the leaves of the tree": _wrong_cells,
    }
    facts = partial(list_cell_facts, release.params, release.manifest.sensitive)
    leaves = "cells", [*release.roles.sa_keys, "part"]
    return check_tree(release, lambda _: make_columns_rule(release.params), facts, named, leaves)


def check_taxonomies(release: CellRelease, source: Records, params: Contingency) -> list[Check]:
    """Return the checks against the source: of its records a private release tells nothing that could be checked."""

    def compare_taxonomies(_: CellRelease) -> list[str]:
        due = read_tree_domains(release.db, source, params)
        return differ_from_specification(release.read_view("taxonomy"), taxonomy_table(due.taxonomy, due.names))

    return release.list_checks({"taxonomies are the specification's": compare_taxonomies})


def _wrong_taxonomies(release: CellRelease, _tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return columns whose taxonomy has other groups or unnamed nodes; a stated one has a name for every node."""
    names, wrong = release.read_view("taxonomy")["value"].to_pylist(), []
    if len(taxonomy.roots) != len(release.manifest.sensitive):
        return ["there is not one taxonomy for each column"]
    for number, field in enumerate(release.manifest.sensitive):
        domain, nodes = release.params.domain(field.name), np.flatnonzero(taxonomy.column == number)
        values = taxonomy.values(number)
        texts, groups = (
            [names[node] for node in values.tolist()],
            [names[node] for node in nodes[len(values) :].tolist()],
        )
        *listed, other, null = texts
        if domain is not None and domain.taxonomy is not None:
            right = None not in groups
        else:
            expected = context_free_parents(len(values), release.params.fan_out)
            shifted = np.where(expected < 0, -1, expected + nodes[0])
            right = np.array_equal(shifted, taxonomy.parent[nodes]) and not any(groups)
        if domain is not None and domain.items is not None:
            right = right and listed == [*domain.shorten(domain.items)]
        right = right and None not in listed and len(set(listed)) == len(listed)
        if not right or (other, null) != added_values(field.type, [text or "" for text in listed]):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_cells(release: CellRelease, tree: PartitionTree, taxonomy: Taxonomy, _rule: TreeRule) -> list[str]:
    """Return cells whose values are not those of their leaf."""
    names = release.read_view("taxonomy")["value"].to_pylist()
    texts = [exp.cast(item, "VARCHAR") for item in release.roles.sa_columns()]
    rows = release.db.rows(exp.select(column("part"), *texts).from_(release.view("cells")))
    which, nodes = leaf_values(tree, taxonomy)
    due: dict[int, list[str | None]] = {}
    for part, node in zip(tree.leaves[which].tolist(), nodes.tolist(), strict=True):
        due.setdefault(part, []).append(names[node])
    stated = {part: values for part, *values in rows}
    if len(stated) < len(rows):
        return ["a part stands twice"]
    return [f"part {part}" for part in stated.keys() | due.keys() if stated.get(part) != due.get(part)]
