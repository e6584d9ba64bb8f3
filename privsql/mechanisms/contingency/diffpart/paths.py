"""The budget of a published tree, path by path, recomputed in exact fractions from the rows alone.

This is the other side of ``tree`` and shares no code with it: a partition is a tuple of nodes, one for each row.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.contingency.diffpart.tree import Tree
    from privsql.mechanisms.contingency.parameters import Contingency

NOTHING = Fraction(0)


def violations(tree: Tree, taxonomy: Taxonomy, asked: Contingency) -> Iterator[tuple[int, str]]:
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
            spent = used[parent] + _chosen(tree, parent) + budget
            due = _due(asked, at[parent], taxonomy, used[parent], cell=not _left(nodes, taxonomy))
            if budget != due:
                yield row, f"spent {budget}, not the {due} that was left for it"
        if _left(nodes, taxonomy):
            at[row], used[row] = nodes, spent
            spent += _chosen(tree, row) + _due(asked, nodes, taxonomy, spent, cell=True)
        if spent > asked.epsilon:
            yield row, f"its path spends {spent}, more than {asked.epsilon}"
        yield from _expansion(tree, row, nodes, taxonomy, _choice(asked, nodes, taxonomy, used.get(row, NOTHING)))


def _expansion(
    tree: Tree, row: int, nodes: tuple[int, ...], taxonomy: Taxonomy, choice: Fraction
) -> Iterator[tuple[int, str]]:
    """What is wrong with how a row is expanded, or that it is, or is not."""
    if bool(tree.leaf[row]) != (not _left(nodes, taxonomy)):
        yield row, "is not a cell, or should be one"
    elif not tree.leaf[row] and (int(tree.next[row]) not in nodes or not taxonomy.height[tree.next[row]]):
        yield row, "is expanded at a node that it does not have"
    if _chosen(tree, row) != choice:
        yield row, f"chose a column for {_chosen(tree, row)}, not for {choice}"


def _left(nodes: tuple[int, ...], taxonomy: Taxonomy) -> int:
    """How many expansions a partition may take at most."""
    return sum(int(taxonomy.height[node]) for node in nodes)


def _chosen(tree: Tree, row: int) -> Fraction:
    return tree.budgets[tree.choice[row]] if tree.choice[row] >= 0 else NOTHING


def _choice(asked: Contingency, nodes: tuple[int, ...], taxonomy: Taxonomy, used: Fraction) -> Fraction:
    """What is due for the choice of the column, if there is one."""
    several = sum(bool(taxonomy.height[node]) for node in nodes) > 1
    return (asked.epsilon / 2 - used) / _left(nodes, taxonomy) * asked.choice if several else NOTHING


def _due(asked: Contingency, nodes: tuple[int, ...], taxonomy: Taxonomy, used: Fraction, *, cell: bool) -> Fraction:
    """What the count of a sub-partition of these nodes spends, after ``used``."""
    choice = _choice(asked, nodes, taxonomy, used)
    return asked.epsilon - used - choice if cell else (asked.epsilon / 2 - used) / _left(nodes, taxonomy) - choice
