"""Check noisy tables and DiffPart trees: budgets in exact fractions, scales, thresholds and stated facts."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from scipy.special import ndtri

from privsql.dp_random import noise_scale
from privsql.engine.sqlfiles import fill, table
from privsql.mechanisms.diffpart.tables import TREE_ORDERS, read_taxonomy, read_tree
from privsql.mechanisms.diffpart.tree import leaf_values
from privsql.mechanisms.dp import mechanism as private
from privsql.mechanisms.dp.mechanism import make_membership_finding
from privsql.mechanisms.dp.tables import CLIQUES
from privsql.model.checks import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from sqlglot import exp

    from privsql.attacks.scene import Finding, ReleaseView
    from privsql.mechanisms.diffpart.tree import Ints, PartitionTree, Taxonomy, TreeRule
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.model.checks import Check, CheckedRelease

    TreeCheck = Callable[[CheckedRelease[Any, Any], PartitionTree, Taxonomy, TreeRule], list[str]]

# Tables ---------------------------------------------------------------------------------------------------------------
# Checks of published noisy tables, and what their adversary learns: exact fractions and integers alone.


def check_published(
    release: CheckedRelease[Any, Any],
    what: str,
    read: Callable[[CheckedRelease[Any, Any]], tuple[Any, ...]],
    named: Mapping[str, Callable[..., list[str] | exp.Query]],
) -> list[Check]:
    """Return checks of what was published, which ``read`` reads once; where it can't be read, all have failed.

    ``named``: by name, functions that list what is wrong in the release and in what was read of it, or query it.
    """
    once = cache(partial(read, release))

    def run_check(check: Callable[..., list[str] | exp.Query], _: CheckedRelease[Any, Any]) -> list[str] | exp.Query:
        try:
            return check(release, *once())
        except BROKEN as error:
            return [f"the {what} can't be read: {error}"]

    return release.list_checks({name: partial(run_check, check) for name, check in named.items()})


def wrong_total_budget(
    release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable], choices: Fraction = Fraction(0)
) -> list[str]:
    """Return what tables and choices of them, and other ``choices``, spend together, if that is not the budget."""
    total = sum((one.budget + (one.choice or 0) for one in tables), start=choices)
    due = private.total_budget(release.params)
    return [] if total == due else [f"spent {total}, not {due}"]


def wrong_table_scales(release: CheckedRelease[Any, Any], tables: Sequence[NoisyTable]) -> list[str]:
    """Return tables whose noise has another scale than the least double that spends no more than the stated budget."""
    widths: list[Any] = release.read_view("cliques")["scale"].to_pylist()
    pairs = enumerate(zip(tables, widths, strict=True))
    return [f"clique {k}: scale {width}" for k, (one, width) in pairs if width != one.law.scale(one.budget)]


def differ_from_due(
    tables: Sequence[NoisyTable], due: Sequence[tuple[tuple[int, ...], Fraction, Fraction | None]]
) -> list[str]:
    """Tables that are not those that are due: (columns, epsilon, what choosing them spent)."""
    result = [(one.columns, one.budget, one.choice) for one in tables]
    if len(result) != len(due):
        return [f"{len(result)} cliques, {len(due)} are due"]
    pairs = enumerate(zip(result, due, strict=True))
    return [
        f"clique {k}: {measured[1]} on {measured[0]}, due {other[1]} on {other[0]}"
        for k, (measured, other) in pairs
        if measured != other
    ]


def differ_from_specification(stated: pa.Table, due: pa.Table) -> list[str]:
    """Return that a table has other rows than the specification, if it has."""
    same = stated.to_pylist() == due.to_pylist()
    return [] if same else [f"stated {len(stated)} rows, the specification has {len(due)}"]


# The adversary of a private release ---

RARE = 1_000  # releases, of which one has so telling Gaussian noise


def attack_noisy_tables(view: ReleaseView, choices: float) -> list[Finding]:
    """Find the belief that a record is in the tables, if all noise points the same way.

    A record is counted in one cell of every table, whose Laplace noise of scale s makes a count at most e^(1/s) times
    as likely; a choice with budget c is at most e^c times as likely, and those beside the tables e^``choices`` times.
    Gaussian noise of scale s has no such bound: all counts together make the tables e^L times as likely with L of mean
    rho and variance 2 rho, rho = sum of 1/(2 s^2), choices included; the belief is for the L that one in ``RARE`` has.
    Of a person with k records that is k times as much, or k^2 times the rho.
    """
    records = view.manifest.parameters.get("max_records", 1)
    rows = view.db.rows(fill("attack/tables", {"cliques": table(CLIQUES, view.database)}))
    spent = sum(float(Fraction(choice)) for _, choice in rows if choice)
    if Fraction(view.manifest.parameters.get("delta", "0")):
        rho = records**2 * (choices + spent + sum(1 / (2 * float(width) ** 2) for width, _ in rows))
        exponent = rho + math.sqrt(2 * rho) * -float(ndtri(1 / RARE))
    else:
        exponent = records * (choices + spent + sum(1 / float(width) for width, _ in rows))
    unit = "records" if records == 1 else "persons"
    return [make_membership_finding(view.manifest.parameters, [exponent] if rows else [], unit)]


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
        "facts are those of the tree": lambda _, tree, taxonomy, _rule: private.wrong_facts(
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
        *release.list_checks({private.OPENDP_CHECK: private.unknown_opendp}),
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
