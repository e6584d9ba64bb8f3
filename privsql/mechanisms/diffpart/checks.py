"""Check a published partition tree by exact fractions and sets of nodes; no code is shared with growing it.

Words: a partition is a part of the records. To expand it divides it, at a node of a taxonomy (a tree that groups
values), into sub-partitions. Those with small noisy counts are dropped; the undivided ones are leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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
    list_nodes,
    list_set_facts,
    read_taxonomy,
    read_tree,
)
from privsql.mechanisms.diffpart.tree import (
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
from privsql.mechanisms.views.checks import check_universe
from privsql.mechanisms.views.tables import read_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from privsql.mechanisms.diffpart.parameters import CellTreeFacts, ItemSetTreeFacts
    from privsql.mechanisms.marginals.parameters import Contingency
    from privsql.mechanisms.views.parameters import SetValued
    from privsql.model.checks import Check, CheckedRelease
    from privsql.model.records import Records

    SetsRelease = CheckedRelease[SetValued, ItemSetTreeFacts]
    CellRelease = CheckedRelease[Contingency, CellTreeFacts]

# Trees ----------------------------------------------------------------------------------------------------------------

CLOSE = 1e-9  # largest relative rounding error of a threshold


@dataclass(frozen=True)
class PublishedTree:
    """The partition tree and the taxonomy of a release, which are read once for all checks.

    Attributes:
        tree: The partition tree.
        taxonomy: The tree that groups the items, or the values of each column; records are divided by it.
        rule: The budgets and thresholds that the release's parameters imply for counts in the tree.
    """

    tree: PartitionTree
    taxonomy: Taxonomy
    rule: TreeRule


def check_tree(
    release: CheckedRelease[Any, Any],
    make_rule: Callable[[Taxonomy], TreeRule],
    list_facts: Callable[[PartitionTree, Taxonomy], Mapping[str, Any]],
    named: Mapping[str, Callable[[PublishedTree], list[str]]],
    leaves: str,
    keys: Sequence[str],
) -> list[Check]:
    """Return the checks that every partition tree must pass, followed by those in ``named``.

    Args:
        release: The release.
        make_rule: Returns the rule of budgets and thresholds that the parameters imply, given the taxonomy.
        list_facts: Returns the facts of the manifest that follow from the tree.
        named: Checks for one kind of tree (item sets or cells), by name.
        leaves: The name of the table of leaves.
        keys: The columns by which the rows of table ``leaves`` are sorted.
    """

    def read() -> PublishedTree:
        taxonomy = read_taxonomy(release.read_view("taxonomy"), sets=release.roles.hold_sets)
        return PublishedTree(read_tree(release.read_view("tree"), taxonomy), taxonomy, make_rule(taxonomy))

    common: dict[str, Callable[[PublishedTree], list[str]]] = {
        "choices and counts of every path spend at most epsilon": lambda found: [
            f"part {row} {what}" for row, what in find_violations(found.tree, found.taxonomy, found.rule)
        ],
        "sizes reach thresholds that depend on no data": lambda found: wrong_thresholds(release, found),
        "scales are those of the budgets": lambda found: wrong_tree_scales(release, found.tree),
        "facts are those of the tree": lambda found: wrong_facts(release, list_facts(found.tree, found.taxonomy)),
    }
    counts = release.fill_query("verify/leaves", leaves=release.view(leaves))
    return [
        *check_published(release, "tree", read, common | dict(named)),
        *release.list_checks({"counts are those of the tree": counts}),
        *release.check_orders(TREE_ORDERS | {leaves: keys}),
        *release.list_checks({OPENDP_CHECK: unknown_opendp}),
    ]


def is_least(rule: TreeRule, least: int, spent: Fraction, branches: int, height: int, *, leaf: bool) -> bool:
    """Return whether the threshold of a part of the records is the right one, up to the rounding of logarithms.

    The part was kept because its noisy count reached the threshold. The right threshold is the least integer >= 1 that
    meets the bound of ``TreeRule.least_size``. If the rule has the paper's factors c1 and c2, the comparison is exact.

    Args:
        rule: The public rule of budgets and thresholds.
        least: The threshold.
        spent: The budget of the part's count.
        branches: The number of parts into which the partition was divided.
        height: The height of the taxonomy node at which it was divided.
        leaf: Whether the part is a leaf: it is not divided further.
    """
    if rule.c1 is not None and rule.c2 is not None:
        bound = 2 * ((rule.c1 if leaf else rule.c2 * height) / spent) ** 2
        return least >= 1 and least**2 >= bound and (least == 1 or (least - 1) ** 2 < bound)
    alpha, passing = float(spent), float(rule.passing_leaves if leaf else rule.passing)
    exact = math.log(branches / (passing * (1 + math.exp(-alpha)))) / alpha
    return least >= 1 and least >= exact - CLOSE * least and (least == 1 or least - 1 < exact + CLOSE * least)


def wrong_thresholds(release: CheckedRelease[Any, Any], found: PublishedTree) -> list[str]:
    """Return the parts of the tree whose threshold does not follow from the rule, or whose size is below it."""
    tree, taxonomy = found.tree, found.taxonomy
    wrong = [] if release.read_view("tree")["threshold"].to_pylist()[0] is None else ["part 0 was never counted"]
    is_right, degrees = cache(partial(is_least, found.rule)), taxonomy.degree.tolist()
    for row in range(1, len(tree)):
        node, least = int(tree.next[tree.parent[row]]), int(tree.threshold[row])
        branches = 1 if not tree.branch[row] else 2 ** degrees[node] - 1 if taxonomy.holds_sets else degrees[node]
        spent, height, leaf = tree.budgets[tree.spent[row]], int(taxonomy.height[node]), bool(tree.leaf[row])
        if tree.size[row] < least or not is_right(least, spent, branches, height, leaf=leaf):
            wrong.append(f"part {row}: threshold {least}, size {tree.size[row]}")
    return wrong


def wrong_tree_scales(release: CheckedRelease[Any, Any], tree: PartitionTree) -> list[str]:
    """Return the budgets of counts whose published scale of noise is wrong."""
    first, *scales = release.read_view("tree")["scale"].to_pylist()
    wrong = [] if first is None else ["part 0 was never counted"]
    different = sorted(set(zip(tree.spent[1:].tolist(), scales, strict=True)), key=str)
    budgets = [(tree.budgets[code], scale) for code, scale in different]
    return wrong + [f"budget {budget}, scale {scale}" for budget, scale in budgets if scale != noise_scale(budget)]


def find_violations(tree: PartitionTree, taxonomy: Taxonomy, rule: TreeRule) -> list[tuple[int, str]]:
    """Return the partitions of a tree that the algorithm could not have made.

    A partition of the records is described by a cut: a set of taxonomy nodes. To expand it at a node of the cut divides
    it into sub-partitions, which are numbered (the branch). Five things are checked for every partition:

    - Its cut follows from its parent's cut and its branch.
    - It is a leaf if no inner node is left in the cut; otherwise it is expanded at one of these.
    - If, and only if, there were several columns to choose from, a choice spent its share.
    - Its count spent the right budget.
    - The choices and counts on the way from the root to it spend at most epsilon, whether or not its next counts were
      kept.

    Returns:
        Pairs of a row of the tree and a text that says what is wrong with it.
    """
    cuts = {0: frozenset(taxonomy.roots.tolist())}  # by expanded row, the inner nodes of its cut
    used = {0: Fraction(0)}  # by expanded row, the budget that it and the rows above it spent
    wrong: list[tuple[int, str]] = []
    expansions = taxonomy.inner if taxonomy.holds_sets else taxonomy.height

    @cache
    def due(used: Fraction, cut: frozenset[int]) -> tuple[Fraction, Fraction, Fraction]:
        """Return the three budgets that one division of a partition must spend.

        They are for choosing the taxonomy node, for counting a part that is divided further, and for counting a leaf.

        Args:
            used: The budget that was spent on the way from the root to the partition.
            cut: The taxonomy nodes at which the partition can still be divided.
        """
        alpha = (rule.epsilon / 2 - used) / sum(int(expansions[node]) for node in cut)
        choice = alpha * rule.choice if len(cut) > 1 else Fraction(0)
        return choice, alpha - choice, rule.epsilon - used - choice

    def choice_budget(row: int) -> Fraction:
        code = int(tree.choice[row])
        return tree.budgets[code] if code >= 0 else Fraction(0)

    for row in range(len(tree)):
        cut, spent = cuts[0], Fraction(0)
        if row:
            parent, branch = int(tree.parent[row]), int(tree.branch[row])
            node = int(tree.next[parent])
            if node not in cuts.get(parent, ()):
                wrong.append((row, "has no parent that was expanded into it"))
                continue
            children = taxonomy.children[taxonomy.starts[node] : taxonomy.starts[node + 1]].tolist()
            taken = {
                child
                for place, child in enumerate(children)
                if (branch >> place & 1 if taxonomy.holds_sets else branch == place + 1)
            }
            cut = cuts[parent] - {node} | {child for child in taken if taxonomy.height[child]}
            budget = tree.budgets[tree.spent[row]]
            spent = used[parent] + choice_budget(parent) + budget
            _, inner, leaf = due(used[parent], cuts[parent])
            if budget != (inner if cut else leaf):
                wrong.append((row, f"spent {budget}, not the {inner if cut else leaf} that was left for it"))
        chosen, node = choice_budget(row), int(tree.next[row])
        if cut:
            cuts[row], used[row] = cut, spent
        due_choice = due(spent, cut)[0] if cut else Fraction(0)
        if (node < 0) != (not cut):
            wrong.append((row, "is not a leaf, or should be one"))
        elif cut and (node != max(cut) if taxonomy.holds_sets else node not in cut):
            wrong.append((row, "is expanded at a node that it does not have, or not at its cut's last"))
        elif chosen != due_choice:
            wrong.append((row, f"chose a column for {chosen}, not for {due_choice}"))
        total = spent + (chosen + due(spent, cut)[2] if cut else 0)
        if total > rule.epsilon:
            wrong.append((row, f"its path spends {total}, more than {rule.epsilon}"))
    return wrong


# Item sets ------------------------------------------------------------------------------------------------------------


def check_sets(release: SetsRelease) -> list[Check]:
    """Return the checks of a tree of item sets that need the release alone, not the source."""
    params = release.params
    named: dict[str, Callable[[PublishedTree], list[str]]] = {
        "the taxonomy groups the universe by fan-out": lambda found: _wrong_groups(release, found.taxonomy),
        "item sets are the leaves of the tree": lambda found: _wrong_leaves(release, found),
    }
    return [
        *check_tree(
            release, partial(make_sets_rule, params), partial(list_set_facts, params), named, "itemsets", ["items"]
        ),
        *check_universe(release),
        *release.check_orders({"universe": ["code"]}),
    ]


def _wrong_groups(release: SetsRelease, taxonomy: Taxonomy) -> list[str]:
    """Return a fault if the taxonomy does not have the items of the universe, grouped by their order.

    The universe is the list of possible items; the parameter ``fan_out`` is how many of them make a group.
    """
    universe = read_labels(release.db, release.view("universe"))
    names = release.read_view("taxonomy")["value"].to_pylist()
    wrong = [] if names[: len(universe)] == [*universe] else ["items have other names"]
    due = context_free_parents(len(universe), release.params.fan_out)
    return wrong if np.array_equal(taxonomy.parent, due) else [*wrong, "nodes are not grouped by the fan-out"]


def _wrong_leaves(release: SetsRelease, found: PublishedTree) -> list[str]:
    """Return the leaves of the tree whose published items are not those of their partition.

    An item that is not in the universe (the list of possible items) has the code -1, which is in no partition.
    """
    rows = release.db.arrow(release.fill_query("duckdb/coded", sets=release.view("itemsets")))
    parts, codes = (rows[name].fill_null(-1).to_numpy().astype(np.int64) for name in ("part", "code"))
    if len(parts) and not 0 <= parts.min() <= parts.max() < len(found.tree):
        return ["a leaf belongs to no part of the tree"]
    which, values = leaf_values(found.tree, found.taxonomy)
    stated = sorted(zip(parts.tolist(), codes.tolist(), strict=True))
    due = list(zip(found.tree.leaves[which].tolist(), values.tolist(), strict=True))
    if stated == due:
        return []
    return [f"part {part}" for part in sorted({part for part, _ in set(stated) ^ set(due)})] or ["a value stands twice"]


# Columns --------------------------------------------------------------------------------------------------------------


def check_columns(release: CellRelease) -> list[Check]:
    """Return the checks of a tree over the columns of a table that need the release alone, not the source."""
    named: dict[str, Callable[[PublishedTree], list[str]]] = {
        "taxonomies are stated, or group their values by fan-out": lambda found: _wrong_taxonomies(
            release, found.taxonomy
        ),
        "cells are the leaves of the tree": lambda found: _wrong_cells(release, found),
    }
    facts = partial(list_cell_facts, release.params, release.manifest.sensitive)
    keys = [*release.roles.sa_keys, "part"]
    return check_tree(release, lambda _: make_columns_rule(release.params), facts, named, "cells", keys)


def compare_taxonomies(release: CellRelease, source: Records, params: Contingency) -> list[Check]:
    """Return the check that the published taxonomies of values are those of the specification and its source.

    A private release reveals nothing else that could be compared with single records.
    """

    def other_nodes(_: CellRelease) -> list[str]:
        due = read_tree_domains(release.db, source, params)
        return differ_from_specification(release.read_view("taxonomy"), list_nodes(due.taxonomy, due.names))

    return release.list_checks({"taxonomies are the specification's": other_nodes})


def _wrong_taxonomies(release: CellRelease, taxonomy: Taxonomy) -> list[str]:
    """Return the columns whose taxonomy (the tree that groups the column's values) is wrong.

    A taxonomy without names must group values by their order, as many as the parameter ``fan_out`` says. One that the
    publisher stated needs a name for every node.
    """
    names, wrong = release.read_view("taxonomy")["value"].to_pylist(), []
    if len(taxonomy.roots) != len(release.manifest.sensitive):
        return ["there is not one taxonomy for each column"]
    for number, field in enumerate(release.manifest.sensitive):
        domain, nodes = release.params.domain(field.name), np.flatnonzero(taxonomy.column == number)
        values = len(taxonomy.values(number))
        texts = [names[node] for node in nodes.tolist()]
        *listed, other, null = texts[:values]
        if domain is not None and domain.taxonomy is not None:
            right = None not in texts[values:]
        else:
            due = context_free_parents(values, release.params.fan_out)
            right = np.array_equal(np.where(due < 0, -1, due + nodes[0]), taxonomy.parent[nodes])
            right = right and not any(texts[values:])
        if domain is not None and domain.items is not None:
            right = right and listed == [*domain.shorten(domain.items)]
        right = right and None not in listed and len(set(listed)) == len(listed)
        if not right or (other, null) != added_values(field.type, [text or "" for text in listed]):
            wrong.append(f"column {field.name}")
    return wrong


def _wrong_cells(release: CellRelease, found: PublishedTree) -> list[str]:
    """Return the published cells whose values are not those of their leaf of the tree."""
    names = release.read_view("taxonomy")["value"].to_pylist()
    texts = [exp.cast(item, "VARCHAR") for item in release.roles.sa_columns()]
    rows = release.db.rows(exp.select(column("part"), *texts).from_(release.view("cells")))
    which, nodes = leaf_values(found.tree, found.taxonomy)
    due: dict[int, list[str | None]] = {}
    for part, node in zip(found.tree.leaves[which].tolist(), nodes.tolist(), strict=True):
        due.setdefault(part, []).append(names[node])
    stated = {part: values for part, *values in rows}
    if len(stated) < len(rows):
        return ["a part stands twice"]
    return [f"part {part}" for part in stated.keys() | due.keys() if stated.get(part) != due.get(part)]
