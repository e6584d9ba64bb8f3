"""DiffPart for contingency tables: taxonomies, the tree of partitions, its budgets, tables and model."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.engine.sqlfiles import column, fill, table
from privsql.errors import InfeasibleError
from privsql.mechanisms.contingency import domains
from privsql.mechanisms.dp import noisy_tree, noisy_tree_release
from privsql.mechanisms.dp.noisy_tree import (
    BudgetCodes,
    Estimator,
    distinct_rows,
    fill_expanded,
    group_levels,
    least_cutoff,
    rows_by_depth,
)
from privsql.mechanisms.dp.noisy_tree_release import FIRST, LAST, as_integers
from privsql.model.manifest import SENSITIVE, ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlglot import exp

    from privsql.dp_random import SelectionNoise
    from privsql.engine.database import Relations
    from privsql.mechanisms.contingency.domains import ContingencyColumn
    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.mechanisms.dp.noisy_tree import Fit, Flags, Ints, Reals
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

# Taxonomy -------------------------------------------------------------------------------------------------------------
# The taxonomies of all columns in one numbering: children before their parents, column after column.


@dataclass(frozen=True)
class ColumnTaxonomy:
    """K nodes over d columns; all arrays are int64.

    ``column``, ``parent`` (K,): -1 above a root. ``height``, ``depth`` (K,): longest way down to a value, way up to the
    root. ``place`` (K,): number among its siblings. ``starts`` (K+1,), ``children``: the children of node k by place,
    at ``children[starts[k]:starts[k+1]]``. ``roots`` (d,). ``path`` (K, deepest + 2): a node's ancestor at each depth,
    itself from its own depth on. ``below`` (K,): values below it, 1 for a value.
    """

    column: Ints
    parent: Ints
    height: Ints
    depth: Ints
    place: Ints
    starts: Ints
    children: Ints
    roots: Ints
    path: Ints
    below: Ints

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def degree(self) -> Ints:
        """Number of children, (K,)."""
        return np.diff(self.starts)

    def values(self, column: int) -> Ints:
        """The nodes of a column's values, in their order."""
        return np.flatnonzero((self.column == column) & (self.height == 0))


def make_taxonomy(column: Ints, parent: Ints) -> ColumnTaxonomy:
    """A taxonomy from the column and the parent of every node; ``ValueError`` if these make none."""
    number, is_root = len(parent), parent < 0
    if not number or (np.diff(column, prepend=0) < 0).any() or not _counts_up(column[is_root]):
        raise ValueError("every column needs one root, and columns lie in order")
    inner = np.flatnonzero(~is_root)
    if (parent[inner] <= inner).any() or (parent >= number).any() or (column[parent[inner]] != column[inner]).any():
        raise ValueError("a node lies after its parent, or in another column")
    height, depth = np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.int64)
    below = np.zeros(number, dtype=np.int64)
    for node in range(number):
        below[node] = max(below[node], 1)
        if parent[node] >= 0:
            height[parent[node]] = max(height[parent[node]], height[node] + 1)
            below[parent[node]] += below[node]
    for node in inner[::-1]:
        depth[node] = depth[parent[node]] + 1
    if not height[is_root].all():
        raise ValueError("a column has no values below its root")
    children = inner[np.lexsort((inner, parent[inner]))]
    starts = np.searchsorted(parent[children], np.arange(number + 1))
    place = np.zeros(number, dtype=np.int64)
    place[children] = np.arange(len(children)) - starts[parent[children]]
    path = np.repeat(np.arange(number)[:, None], int(depth.max()) + 2, axis=1)
    for node in inner[::-1]:
        path[node, : depth[node]] = path[parent[node], : depth[node]]
    return ColumnTaxonomy(column, parent, height, depth, place, starts, children, np.flatnonzero(is_root), path, below)


def context_free_parents(values: int, fan_out: int) -> Ints:
    """The parents of a context-free taxonomy: the values first, then level upon level."""
    parents, first = [], 0
    for group in group_levels(values, fan_out):
        first += len(group)
        parents.append(first + group)
    return np.concatenate([*parents, [-1]]).astype(np.int64)


def _counts_up(numbers: Ints) -> bool:
    return len(numbers) > 0 and np.array_equal(numbers, np.arange(len(numbers)))


# Tree -----------------------------------------------------------------------------------------------------------------
# Top-down partitioning of a table with several categorical columns (paper, Algorithm 1 with appendix D).
#
# A partition has one taxonomy node for each column; its expansion replaces the node of one column by each of its
# children. The column is chosen by a private selection whose score is the largest count of the children it would make.
# All partitions that are no cells yet take one expansion together, in arrays.
#
# A partition that has ``rest`` of the tree's half of epsilon unspent, and at most N expansions before it (the sum over
# columns of the height of its node), spends alpha = rest/N on its next one. If several columns can be expanded, the
# choice among them takes a share of alpha. A sub-partition that is not a cell is counted with what remains of alpha; a
# cell is counted once, with everything that is left, epsilon/2 + rest less the choice. Sub-partitions are disjoint, so
# every path from the root to a cell spends epsilon: choices and counts together.

LARGEST_ROUND = 20_000_000  # sub-partitions that one round may count
LARGEST_TREE = 2_000_000  # partitions; thresholds that let more than that pass are a mistake


@dataclass(frozen=True)
class Shares:
    """Of one expansion: what the choice of the column, an inner sub-partition's count, and a cell's count spend.

    ``choice`` is 0 where there is nothing to choose; ``rest`` is what an inner sub-partition has left.
    """

    choice: Fraction
    inner: Fraction
    cell: Fraction
    rest: Fraction


def budget_shares(params: Contingency, rest: Fraction, expansions: int, *, several: bool) -> Shares:
    """The shares of an expansion."""
    alpha = rest / expansions
    choice = alpha * params.choice if several else Fraction(0)
    return Shares(choice, alpha - choice, params.epsilon / 2 + rest - choice, rest - alpha)


@dataclass(frozen=True)
class CellCounts:
    """The table: the value nodes of its n different cells, (n, d), and the records of each, (n,)."""

    nodes: Ints
    weights: Ints


@dataclass(frozen=True, kw_only=True)
class CellTree(noisy_tree.NoisyTree):
    """Leaves are cells. ``node`` (T,): the taxonomy node that distinguishes the row from its parent, -1 for the root;
    rows of one parent are in the order of their nodes. ``choice`` (T,): code of what the choice of ``next``'s column
    spent, -1 where there was none.
    """

    node: Ints
    choice: Ints


@dataclass(frozen=True)
class _Front:
    """The F partitions that are to be expanded: rows of the tree, nodes (F, d), code of the unspent half of the budget.

    ``record``, ``partition``: the cells in them, and the place in the front of each.
    """

    row: Ints
    at: Ints
    rest: Ints
    record: Ints
    partition: Ints


@dataclass(frozen=True)
class _Run:
    cells: CellCounts
    taxonomy: ColumnTaxonomy
    params: Contingency
    budgets: BudgetCodes
    noise: SelectionNoise


@dataclass(frozen=True)
class _ExpansionPlan:
    """How each partition of the front is expanded: codes of budgets (F,) as in ``Shares``; ``next``: the node."""

    choice: Ints
    inner: Ints
    cell: Ints
    rest: Ints
    next: Ints


def grow_tree(cells: CellCounts, taxonomy: ColumnTaxonomy, params: Contingency, noise: SelectionNoise) -> CellTree:
    """The noisy tree of a table; epsilon-differentially private for one record added or removed.

    A record lies in one partition of every round, so what the partitions of a round spend composes in parallel, and a
    path spends the sum of its choices and counts, at most epsilon (``budget_shares``). Budgets and thresholds depend on
    nothing but the choices that are published; every sub-partition is counted, occupied or not.

    Raises ``InfeasibleError`` if millions of partitions would have to be counted, or pass.
    """
    run = _Run(cells, taxonomy, params, BudgetCodes(), noise)
    everyone = np.arange(len(cells.weights), dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    rest = np.array([run.budgets.code_of(params.epsilon / 2)], dtype=np.int64)
    front = _Front(zero, taxonomy.roots[None, :], rest, everyone, np.zeros_like(everyone))
    rows = [_rows(parent=zero - 1, node=zero - 1, size=zero, spent=zero - 1, leaf=zero)]
    plans, number = [], 1
    while len(front.row):
        plan = _plan_expansions(front, run)
        plans.append(plan)
        passed, front = _expand_front(front, plan, number, run)
        rows.append(passed)
        number += len(passed["parent"])
        if number > LARGEST_TREE:
            raise InfeasibleError(f"more than {LARGEST_TREE:,} partitions pass; lower tau and tau_cells")
    columns = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    leaf = columns.pop("leaf").astype(bool)
    after = {name: fill_expanded(leaf, [getattr(plan, name) for plan in plans]) for name in ("next", "choice")}
    return CellTree(leaf=leaf, budgets=tuple(run.budgets.values), **columns, **after)


def _rows(**columns: Ints) -> dict[str, Ints]:
    return columns


def _plan_expansions(front: _Front, run: _Run) -> _ExpansionPlan:
    """Budgets and the choice of the column, for every partition of the front."""
    height = run.taxonomy.height[front.at]
    possible = height > 0
    several = possible.sum(axis=1) > 1
    different, kind = distinct_rows(front.rest, height.sum(axis=1), several)
    due = [budget_shares(run.params, run.budgets.values[r], n, several=bool(many)) for r, n, many in different]
    chosen = possible.argmax(axis=1)
    scores = _score_columns(front, run) if several.any() else np.empty((0, 0), dtype=np.int64)
    for place in np.flatnonzero(several).tolist():
        columns = np.flatnonzero(possible[place])
        chosen[place] = columns[run.noise.choose_best(scores[place, columns], due[kind[place]].choice)]
    codes = np.array([_budget_codes(one, run.budgets) for one in due], dtype=np.int64)[kind]
    choice, inner, cell, rest = codes.T
    return _ExpansionPlan(choice, inner, cell, rest, front.at[np.arange(len(chosen)), chosen])


def _budget_codes(due: Shares, budgets: BudgetCodes) -> tuple[int, int, int, int]:
    """The budgets' codes; -1 for what spends nothing."""
    choice, inner, rest = (budgets.code_of(one) if one else -1 for one in (due.choice, due.inner, due.rest))
    return choice, inner, budgets.code_of(due.cell), rest


def _score_columns(front: _Front, run: _Run) -> Ints:
    """For every partition and column, (F, d), the largest count of the children; 0 where there are none.

    One record more raises some scores by 1 and lowers none: sensitivity 1, monotonic.
    """
    taxonomy, number = run.taxonomy, len(run.taxonomy)
    result = np.zeros(front.at.shape, dtype=np.int64)
    for each_column in range(front.at.shape[1]):
        child = _find_child(front, front.at[front.partition, each_column], each_column, run)
        keys, inverse = np.unique(front.partition * number + child, return_inverse=True)
        counts = np.bincount(inverse.reshape(-1), weights=run.cells.weights[front.record], minlength=len(keys))
        np.maximum.at(result[:, each_column], keys // number, counts.astype(np.int64))
    result[taxonomy.height[front.at] == 0] = 0
    return result


def _find_child(front: _Front, node: Ints, column: Ints | int, run: _Run) -> Ints:
    """The child of ``node`` in which each cell of the front lies; a value is its own."""
    taxonomy = run.taxonomy
    result: Ints = taxonomy.path[run.cells.nodes[front.record, column], taxonomy.depth[node] + 1]
    return result


def _expand_front(front: _Front, plan: _ExpansionPlan, first_row: int, run: _Run) -> tuple[dict[str, Ints], _Front]:
    """The sub-partitions that pass, as rows of the tree from ``first_row`` on, and the next front."""
    taxonomy = run.taxonomy
    degree = taxonomy.degree[plan.next]
    ends = np.cumsum(degree)
    if int(ends[-1]) > LARGEST_ROUND:
        raise InfeasibleError(f"{int(ends[-1]):,} sub-partitions would have to be counted; lower tau")
    of = np.repeat(np.arange(len(degree)), degree)
    child = taxonomy.children[taxonomy.starts[plan.next[of]] + np.arange(int(ends[-1])) - (ends - degree)[of]]
    at = front.at[of]
    at[np.arange(len(of)), taxonomy.column[child]] = child
    leaf = taxonomy.height[at].sum(axis=1) == 0
    spent = np.where(leaf, plan.cell[of], plan.inner[of])
    inside = _find_child(front, plan.next[front.partition], taxonomy.column[plan.next[front.partition]], run)
    sub = (ends - degree)[front.partition] + taxonomy.place[inside]
    counts = np.bincount(sub, weights=run.cells.weights[front.record], minlength=len(of)).astype(np.int64)
    size, least = _add_noise(counts, spent, degree[of], leaf, run)
    passed = np.flatnonzero(size >= least)
    inner = passed[~leaf[passed]]
    position = np.full(len(of), -1, dtype=np.int64)
    position[inner] = np.arange(len(inner))
    staying = np.flatnonzero(position[sub] >= 0)
    rows = _rows(
        parent=front.row[of[passed]], node=child[passed], size=size[passed], spent=spent[passed], leaf=leaf[passed]
    )
    row = first_row + np.flatnonzero(~leaf[passed])
    return rows, _Front(row, at[inner], plan.rest[of[inner]], front.record[staying], position[sub[staying]])


def _add_noise(counts: Ints, spent: Ints, degree: Ints, leaf: Flags, run: _Run) -> tuple[Ints, Ints]:
    """Every count with noise of its own, and its threshold."""
    size, least = np.empty_like(counts), np.empty_like(counts)
    different, kind = distinct_rows(spent, degree, leaf)
    for number, (code, children, last) in enumerate(different):
        places = np.flatnonzero(kind == number)
        budget = run.budgets.values[code]
        size[places] = run.noise.add_noise(counts[places], budget)
        least[places] = least_noisy_size(run.params, budget, children, last=bool(last))
    return size, least


def least_noisy_size(params: Contingency, spent: Fraction, degree: int, *, last: bool) -> int:
    """The least noisy size, at least 1, with which a sub-partition is kept. Depends on no data."""
    return least_cutoff(degree, params.tau_cells if last else params.tau, spent)


def partition_nodes(tree: CellTree, taxonomy: ColumnTaxonomy) -> Ints:
    """The nodes of every partition, (T, d)."""
    result = np.repeat(taxonomy.roots[None, :], len(tree), axis=0)
    for rows in rows_by_depth(tree)[1:]:
        result[rows] = result[tree.parent[rows]]
        result[rows, taxonomy.column[tree.node[rows]]] = tree.node[rows]
    return result


# Model ----------------------------------------------------------------------------------------------------------------
# What stands for pruned records: cells drawn from the published tree, at no cost in budget.
#
# A record that a partition lost lies in one of the children that were not kept, in proportion to how records fall on
# them wherever their parent is expanded; below that, columns are taken to be independent of each other.

MODEL_ERROR = 0.5  # as in ``privsql.mechanisms.dp.noisy_tree``; larger, as the same marginals serve at every node


@dataclass(frozen=True)
class StandIns:
    """G cells: ``row`` (G,): the expanded row that each stands for; ``nodes`` (G, d); ``weight`` (G,)."""

    row: Ints
    nodes: Ints
    weight: Reals


def fit_estimator(tree: CellTree, taxonomy: ColumnTaxonomy) -> Estimator:
    """Sizes and model fitted to a tree."""
    above = taxonomy.parent[taxonomy.children]
    spread = taxonomy.below[taxonomy.children] / taxonomy.below[above]
    position = np.empty(len(taxonomy), dtype=np.int64)
    position[taxonomy.children] = np.arange(len(above))
    of_row = np.where(tree.node >= 0, position[tree.node], -1)
    candidates = noisy_tree.Candidates(above, taxonomy.children, taxonomy.starts, of_row)
    return Estimator(tree, noisy_tree.fit_sizes(tree, candidates, lambda _: spread), len(taxonomy), MODEL_ERROR)


def impute_cells(tree: CellTree, taxonomy: ColumnTaxonomy, fit: Fit, draw: np.random.Generator) -> StandIns:
    """At least one cell for every expanded row that may have lost records, more for those that lost more."""
    lost = noisy_tree.draw_lost(tree, fit, draw)
    nodes = partition_nodes(tree, taxonomy)[lost.row]
    nodes[np.arange(len(nodes)), taxonomy.column[tree.next[lost.row]]] = fit.candidates.sub[lost.candidate]
    for node in np.flatnonzero(taxonomy.height > 0)[::-1].tolist():  # parents first
        column = int(taxonomy.column[node])
        at = np.flatnonzero(nodes[:, column] == node)
        nodes[at, column] = fit.candidates.sub[noisy_tree.draw_candidates(fit, node, draw.random(len(at)))]
    return StandIns(lost.row, nodes, lost.weight)


# Domains --------------------------------------------------------------------------------------------------------------
# The values of all columns with their taxonomies, and the source's cells as nodes of these.


@dataclass(frozen=True)
class Domains:
    """All columns, and their taxonomies in one: of each the values are the first nodes, then come the inner ones."""

    columns: tuple[ContingencyColumn, ...]
    taxonomy: ColumnTaxonomy

    @property
    def names(self) -> list[str | None]:
        """The text of every node of the taxonomy, None where it has none."""
        sizes = np.bincount(self.taxonomy.column, minlength=len(self.columns)).tolist()
        return [
            name
            for one, size in zip(self.columns, sizes, strict=True)
            for name in (*one.labels, *(one.inner or (None,) * (size - len(one.labels))))
        ]


def read_tree_domains(db: Relations, source: Records, params: Contingency) -> Domains:
    """The domains of a prepared source; ``UsageError`` for a taxonomy that is none."""
    columns = domains.read_columns(db, source, params)
    column_parents = [
        context_free_parents(len(one), params.fan_out) if one.parents is None else one.parents for one in columns
    ]
    sizes = [len(parents) for parents in column_parents]
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    parents = np.concatenate(column_parents)
    parents = np.where(parents < 0, -1, parents + first)
    return Domains(columns, make_taxonomy(np.repeat(np.arange(len(columns)), sizes), parents))


def read_cells(db: Relations, source: Records, domain_set: Domains) -> CellCounts:
    """The source's different cells."""
    codes, records = domains.read_coded_cells(db, source, domain_set.columns)
    nodes = [domain_set.taxonomy.values(number)[column_codes] for number, column_codes in enumerate(codes.T)]
    return CellCounts(np.stack(nodes, axis=1), records)


# Paths ----------------------------------------------------------------------------------------------------------------
# The budget of a published tree, path by path, recomputed in exact fractions from the rows alone.
#
# This is the other side of ``tree`` and shares no code with it: a partition is a tuple of nodes, one for each row.

NOTHING = Fraction(0)


def find_violations(tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency) -> Iterator[tuple[int, str]]:
    """Rows that are not what the algorithm makes of their parent, or whose path spends more than epsilon.

    For every row: its nodes follow from its parent's and its own; it is a cell if all of them are values, else it is
    expanded at one that is not; the choice among several columns, and no other, spent its share; its count spent what
    was due; and choices and counts of no path, whether or not its next counts were kept, exceed epsilon.
    """
    at = {0: tuple(taxonomy.roots.tolist())}
    used = {0: NOTHING}  # by expanded row: choices and counts up to its own count
    for row in range(len(tree)):
        nodes, spent = at[0], NOTHING
        if row:
            parent = int(tree.parent[row])
            if parent not in at or int(taxonomy.parent[tree.node[row]]) != int(tree.next[parent]):
                yield row, "has no parent that was expanded into it"
                continue
            column, budget = int(taxonomy.column[tree.node[row]]), tree.budgets[tree.spent[row]]
            nodes = (*at[parent][:column], int(tree.node[row]), *at[parent][column + 1 :])
            spent = used[parent] + _choice_budget(tree, parent) + budget
            due = _due_count_budget(
                params, at[parent], taxonomy, used[parent], cell=not _count_expansions_left(nodes, taxonomy)
            )
            if budget != due:
                yield row, f"spent {budget}, not the {due} that was left for it"
        if _count_expansions_left(nodes, taxonomy):
            at[row], used[row] = nodes, spent
            spent += _choice_budget(tree, row) + _due_count_budget(params, nodes, taxonomy, spent, cell=True)
        if spent > params.epsilon:
            yield row, f"its path spends {spent}, more than {params.epsilon}"
        yield from _find_expansion_errors(
            tree, row, nodes, taxonomy, _due_choice_budget(params, nodes, taxonomy, used.get(row, NOTHING))
        )


def _find_expansion_errors(
    tree: CellTree, row: int, nodes: tuple[int, ...], taxonomy: ColumnTaxonomy, choice: Fraction
) -> Iterator[tuple[int, str]]:
    """Return what is wrong with how a row is expanded, or that it is, or is not."""
    if bool(tree.leaf[row]) != (not _count_expansions_left(nodes, taxonomy)):
        yield row, "is not a cell, or should be one"
    elif not tree.leaf[row] and (int(tree.next[row]) not in nodes or not taxonomy.height[tree.next[row]]):
        yield row, "is expanded at a node that it does not have"
    if _choice_budget(tree, row) != choice:
        yield row, f"chose a column for {_choice_budget(tree, row)}, not for {choice}"


def _count_expansions_left(nodes: tuple[int, ...], taxonomy: ColumnTaxonomy) -> int:
    """How many expansions a partition may take at most."""
    return sum(int(taxonomy.height[node]) for node in nodes)


def _choice_budget(tree: CellTree, row: int) -> Fraction:
    return tree.budgets[tree.choice[row]] if tree.choice[row] >= 0 else NOTHING


def _due_choice_budget(
    params: Contingency, nodes: tuple[int, ...], taxonomy: ColumnTaxonomy, used: Fraction
) -> Fraction:
    """Return what is due for the choice of the column, if there is one."""
    several = sum(bool(taxonomy.height[node]) for node in nodes) > 1
    return (params.epsilon / 2 - used) / _count_expansions_left(nodes, taxonomy) * params.choice if several else NOTHING


def _due_count_budget(
    params: Contingency, nodes: tuple[int, ...], taxonomy: ColumnTaxonomy, used: Fraction, *, cell: bool
) -> Fraction:
    """Return what the count of a sub-partition of these nodes spends, after ``used``."""
    choice = _due_choice_budget(params, nodes, taxonomy, used)
    return (
        params.epsilon - used - choice
        if cell
        else (params.epsilon / 2 - used) / _count_expansions_left(nodes, taxonomy) - choice
    )


# Tables ---------------------------------------------------------------------------------------------------------------
# The tables of a contingency table's release and its view: columns, a tree and its taxonomies as tables, and back.


TABLES = {
    "cells": ReleaseTable((SENSITIVE, "count BIGINT"), view="counts"),
    "privsql_cells": ReleaseTable(("part INTEGER", SENSITIVE, "weight DOUBLE")),
    "privsql_tree": ReleaseTable((*FIRST, "node INTEGER", "expanded INTEGER", "choice VARCHAR", *LAST)),
    "privsql_taxonomy": ReleaseTable(("node INTEGER", "attribute INTEGER", "parent INTEGER", "value VARCHAR")),
}


def tree_view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are the consistent estimates, pruned records included."""
    columns: list[exp.Expr] = [column(field.name, "cells") for field in manifest.sensitive]
    weight = manifest.roles.by_sa.as_column("weight", "cells")
    return fill("contingency/weighted", {"cells": table("privsql_cells"), "columns": columns, "weight": weight})


def tree_table(tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency) -> pa.Table:
    """``privsql_tree``: ``node`` is the taxonomy node that distinguishes a part from its parent, ``fill_expanded`` the
    one at which it was divided (NULL for a cell), ``choice`` the budget of choosing that.
    """
    extra = {
        "node": pa.array(tree.node, pa.int32(), mask=np.arange(len(tree)) == 0),
        "expanded": pa.array(tree.next, pa.int32(), mask=tree.leaf),
        "choice": noisy_tree_release.budget_texts(tree.choice, tree.budgets),
    }
    return noisy_tree_release.tree_table(tree, extra, list_thresholds(tree, taxonomy, params))


def list_thresholds(tree: CellTree, taxonomy: ColumnTaxonomy, params: Contingency) -> list[int]:
    """The threshold of every row but the root."""
    degree = taxonomy.degree[tree.next[tree.parent[1:]]]
    different, kind = distinct_rows(tree.spent[1:], degree, tree.leaf[1:])
    result = [least_noisy_size(params, tree.budgets[s], d, last=bool(leaf)) for s, d, leaf in different]
    return [result[one] for one in kind.tolist()]


def read_tree(rows: pa.Table, taxonomy: ColumnTaxonomy) -> CellTree:
    """A tree from ``privsql_tree``, by part; ``ValueError`` if it is not one over this taxonomy."""
    (spent, choice), budgets = noisy_tree_release.read_budgets(rows, "budget", "choice")
    common = noisy_tree_release.common_columns(rows, expanded="expanded")
    tree = CellTree(**common, node=as_integers(rows["node"], -1), spent=spent, choice=choice, budgets=budgets)
    noisy_tree_release.demand_tree(tree, rows, len(taxonomy))
    parent, node = tree.parent[1:], tree.node[1:]
    if tree.node[0] != -1:
        raise ValueError("its root has a node")
    if (node < 0).any() or (node >= len(taxonomy)).any() or (taxonomy.parent[node] != tree.next[parent]).any():
        raise ValueError("a part's node is no child of the one at which its parent was expanded")
    if ((np.diff(parent) == 0) & (np.diff(node) <= 0)).any():
        raise ValueError("children of a part stand twice, or out of order")
    if (taxonomy.height[tree.next[~tree.leaf]] == 0).any():
        raise ValueError("a part is expanded at a value")
    return tree


def taxonomy_table(taxonomy: ColumnTaxonomy, names: Sequence[str | None]) -> pa.Table:
    """``privsql_taxonomy``: nodes by column, children before parents; ``attribute`` is the column's number."""
    return pa.table(
        {
            "node": pa.array(np.arange(len(taxonomy)), pa.int32()),
            "attribute": pa.array(taxonomy.column, pa.int32()),
            "parent": pa.array(taxonomy.parent, pa.int32(), mask=taxonomy.parent < 0),
            "value": pa.array(names, pa.string()),
        }
    )


def read_taxonomy(rows: pa.Table) -> ColumnTaxonomy:
    """A taxonomy from ``privsql_taxonomy``, by node; ``ValueError`` if it is none."""
    if not np.array_equal(as_integers(rows["node"], -1), np.arange(len(rows))):
        raise ValueError("nodes are not numbered 0, 1, ..")
    result = make_taxonomy(as_integers(rows["attribute"], -1), as_integers(rows["parent"], -1))
    if taxonomy_table(result, rows["value"].to_pylist()).to_pydict() != rows.to_pydict():
        raise ValueError("nodes are written down otherwise")
    return result
