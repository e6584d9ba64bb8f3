"""Top-down partitioning of a table with several categorical columns (paper, Algorithm 1 with appendix D).

A partition has one taxonomy node for each column; its expansion replaces the node of one column by each of its
children. The column is chosen by a private selection whose score is the largest count of the children it would make.
All partitions that are no cells yet take one expansion together, in arrays.

A partition that has ``rest`` of the tree's half of epsilon unspent, and at most N expansions before it (the sum over
columns of the height of its node), spends alpha = rest/N on its next one. If several columns can be expanded, the
choice among them takes a share of alpha. A sub-partition that is not a cell is counted with what remains of alpha; a
cell is counted once, with everything that is left, epsilon/2 + rest less the choice. Sub-partitions are disjoint, so
every path from the root to a cell spends epsilon: choices and counts together.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from privsql.errors import InfeasibleError
from privsql.mechanisms.noisytree import tree as noisytree
from privsql.mechanisms.noisytree.budget import Budgets, cutoff
from privsql.mechanisms.noisytree.tree import expanded, kinds, rounds

if TYPE_CHECKING:
    from privsql.dpnoise import SelectionNoise
    from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.mechanisms.noisytree.tree import Flags, Ints

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


def shares(asked: Contingency, rest: Fraction, expansions: int, *, several: bool) -> Shares:
    """The shares of an expansion."""
    alpha = rest / expansions
    choice = alpha * asked.choice if several else Fraction(0)
    return Shares(choice, alpha - choice, asked.epsilon / 2 + rest - choice, rest - alpha)


@dataclass(frozen=True)
class Cells:
    """The table: the value nodes of its n different cells, (n, d), and the records of each, (n,)."""

    nodes: Ints
    weights: Ints


@dataclass(frozen=True, kw_only=True)
class Tree(noisytree.Tree):
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
    cells: Cells
    taxonomy: Taxonomy
    asked: Contingency
    budgets: Budgets
    noise: SelectionNoise


@dataclass(frozen=True)
class _Plan:
    """How each partition of the front is expanded: codes of budgets (F,) as in ``Shares``; ``next``: the node."""

    choice: Ints
    inner: Ints
    cell: Ints
    rest: Ints
    next: Ints


def partition(cells: Cells, taxonomy: Taxonomy, asked: Contingency, noise: SelectionNoise) -> Tree:
    """The noisy tree of a table; epsilon-differentially private for one record added or removed.

    A record lies in one partition of every round, so what the partitions of a round spend composes in parallel, and a
    path spends the sum of its choices and counts, at most epsilon (``shares``). Budgets and thresholds depend on
    nothing but the choices that are published; every sub-partition is counted, occupied or not.

    Raises ``InfeasibleError`` if millions of partitions would have to be counted, or pass.
    """
    run = _Run(cells, taxonomy, asked, Budgets(), noise)
    everyone = np.arange(len(cells.weights), dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    rest = np.array([run.budgets.code(asked.epsilon / 2)], dtype=np.int64)
    front = _Front(zero, taxonomy.roots[None, :], rest, everyone, np.zeros_like(everyone))
    rows = [_rows(parent=zero - 1, node=zero - 1, size=zero, spent=zero - 1, leaf=zero)]
    plans, number = [], 1
    while len(front.row):
        plan = _plan(front, run)
        plans.append(plan)
        kept, front = _expanded(front, plan, number, run)
        rows.append(kept)
        number += len(kept["parent"])
        if number > LARGEST_TREE:
            raise InfeasibleError(f"more than {LARGEST_TREE:,} partitions pass; lower tau and tau_cells")
    columns = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    leaf = columns.pop("leaf").astype(bool)
    after = {name: expanded(leaf, [getattr(plan, name) for plan in plans]) for name in ("next", "choice")}
    return Tree(leaf=leaf, budgets=tuple(run.budgets.values), **columns, **after)


def _rows(**columns: Ints) -> dict[str, Ints]:
    return columns


def _plan(front: _Front, run: _Run) -> _Plan:
    """Budgets and the choice of the column, for every partition of the front."""
    height = run.taxonomy.height[front.at]
    possible = height > 0
    several = possible.sum(axis=1) > 1
    different, kind = kinds(front.rest, height.sum(axis=1), several)
    due = [shares(run.asked, run.budgets.values[r], n, several=bool(many)) for r, n, many in different]
    chosen = possible.argmax(axis=1)
    scores = _scores(front, run) if several.any() else np.empty((0, 0), dtype=np.int64)
    for place in np.flatnonzero(several).tolist():
        columns = np.flatnonzero(possible[place])
        chosen[place] = columns[run.noise.best(scores[place, columns], due[kind[place]].choice)]
    codes = np.array([_codes(one, run.budgets) for one in due], dtype=np.int64)[kind]
    choice, inner, cell, rest = codes.T
    return _Plan(choice, inner, cell, rest, front.at[np.arange(len(chosen)), chosen])


def _codes(due: Shares, budgets: Budgets) -> tuple[int, int, int, int]:
    """The budgets' codes; -1 for what spends nothing."""
    choice, inner, rest = (budgets.code(one) if one else -1 for one in (due.choice, due.inner, due.rest))
    return choice, inner, budgets.code(due.cell), rest


def _scores(front: _Front, run: _Run) -> Ints:
    """For every partition and column, (F, d), the largest count of the children; 0 where there are none.

    One record more raises some scores by 1 and lowers none: sensitivity 1, monotonic.
    """
    taxonomy, number = run.taxonomy, len(run.taxonomy)
    found = np.zeros(front.at.shape, dtype=np.int64)
    for column in range(front.at.shape[1]):
        child = _child(front, front.at[front.partition, column], column, run)
        keys, inverse = np.unique(front.partition * number + child, return_inverse=True)
        counts = np.bincount(inverse.reshape(-1), weights=run.cells.weights[front.record], minlength=len(keys))
        np.maximum.at(found[:, column], keys // number, counts.astype(np.int64))
    found[taxonomy.height[front.at] == 0] = 0
    return found


def _child(front: _Front, node: Ints, column: Ints | int, run: _Run) -> Ints:
    """The child of ``node`` in which each cell of the front lies; a value is its own."""
    taxonomy = run.taxonomy
    found: Ints = taxonomy.path[run.cells.nodes[front.record, column], taxonomy.depth[node] + 1]
    return found


def _expanded(front: _Front, plan: _Plan, first_row: int, run: _Run) -> tuple[dict[str, Ints], _Front]:
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
    inside = _child(front, plan.next[front.partition], taxonomy.column[plan.next[front.partition]], run)
    sub = (ends - degree)[front.partition] + taxonomy.place[inside]
    counts = np.bincount(sub, weights=run.cells.weights[front.record], minlength=len(of)).astype(np.int64)
    size, least = _noisy(counts, spent, degree[of], leaf, run)
    kept = np.flatnonzero(size >= least)
    inner = kept[~leaf[kept]]
    position = np.full(len(of), -1, dtype=np.int64)
    position[inner] = np.arange(len(inner))
    staying = np.flatnonzero(position[sub] >= 0)
    rows = _rows(parent=front.row[of[kept]], node=child[kept], size=size[kept], spent=spent[kept], leaf=leaf[kept])
    row = first_row + np.flatnonzero(~leaf[kept])
    return rows, _Front(row, at[inner], plan.rest[of[inner]], front.record[staying], position[sub[staying]])


def _noisy(counts: Ints, spent: Ints, degree: Ints, leaf: Flags, run: _Run) -> tuple[Ints, Ints]:
    """Every count with noise of its own, and its threshold."""
    size, least = np.empty_like(counts), np.empty_like(counts)
    different, kind = kinds(spent, degree, leaf)
    for number, (code, children, last) in enumerate(different):
        places = np.flatnonzero(kind == number)
        budget = run.budgets.values[code]
        size[places] = run.noise.noisy(counts[places], budget)
        least[places] = threshold(run.asked, budget, children, last=bool(last))
    return size, least


def threshold(asked: Contingency, spent: Fraction, degree: int, *, last: bool) -> int:
    """The least noisy size, at least 1, with which a sub-partition is kept. Depends on no data."""
    return cutoff(degree, asked.tau_cells if last else asked.tau, spent)


def positions(tree: Tree, taxonomy: Taxonomy) -> Ints:
    """The nodes of every partition, (T, d)."""
    found = np.repeat(taxonomy.roots[None, :], len(tree), axis=0)
    for rows in rounds(tree)[1:]:
        found[rows] = found[tree.parent[rows]]
        found[rows, taxonomy.column[tree.node[rows]]] = tree.node[rows]
    return found
