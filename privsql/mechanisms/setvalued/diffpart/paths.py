"""The budget of a published tree, path by path, recomputed in exact fractions from the rows alone.

This is the other side of ``expand`` and shares no code with it: hierarchy cuts are sets, one for each row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.mechanisms.setvalued.diffpart.taxonomy import Taxonomy
    from privsql.mechanisms.setvalued.diffpart.tree import Tree


def violations(tree: Tree, taxonomy: Taxonomy, epsilon: Fraction) -> Iterator[tuple[int, str]]:
    """Rows that are not what the algorithm makes of their parent, or whose path spends more than ``epsilon``.

    For every row: its cut follows from its parent's and its mask; it is a leaf if no inner node is left, else it is
    expanded at the lowest one; its count spent what is unspent of the tree's half, by the number of expansions that may
    follow, or everything if it is a leaf; and no path, whether or not its next counts were kept, exceeds ``epsilon``.
    """
    paths = _Paths(tree.budgets, taxonomy, epsilon)
    if tree.parent[0] != -1 or tree.leaf[0] or tree.next[0] != 0:
        yield 0, "is not a root"
    columns = zip(tree.parent.tolist(), tree.mask.tolist(), tree.spent.tolist(), strict=True)
    for row, (parent, mask, spent) in enumerate(columns):
        if row == 0:
            continue
        if parent not in paths.cuts or not 0 < mask < 2 ** int(taxonomy.degree[tree.next[parent]]):
            yield row, "has no parent that was expanded into it"
            continue
        node = int(tree.next[parent])
        cut = paths.cuts[parent] - {node} | _inner(taxonomy, node, mask)
        if bool(tree.leaf[row]) != (not cut) or int(tree.next[row]) != min(cut, default=-1):
            yield row, "is expanded at another node than its cut's first"
        yield from ((row, what) for what in paths.counted(parent, spent))
        if cut:
            yield from ((row, what) for what in paths.expanded(row, cut, parent, spent))


@dataclass
class _Paths:
    """What was spent on the way to each expanded row, whose cut is in ``cuts``."""

    budgets: Sequence[Fraction]
    taxonomy: Taxonomy
    epsilon: Fraction
    cuts: dict[int, frozenset[int]] = field(default_factory=lambda: {0: frozenset([0])})
    used: dict[int, Fraction] = field(default_factory=lambda: {0: Fraction(0)})
    known: dict[tuple[int, int], list[str]] = field(default_factory=dict)

    def counted(self, parent: int, spent: int) -> list[str]:
        """What is wrong with the budget of a count below ``parent``; the same for all of one budget."""
        if (parent, spent) not in self.known:
            budget = self.budgets[spent]
            due = _due(self.taxonomy, self.cuts[parent], self.epsilon, self.used[parent])
            wrong = [] if budget == due else [f"spent {budget}, not what was left for it"]
            self.known[parent, spent] = [*wrong, *self._over(self.used[parent] + budget)]
        return self.known[parent, spent]

    def expanded(self, row: int, cut: frozenset[int], parent: int, spent: int) -> list[str]:
        """Go on to a row that is expanded at its ``cut``; what is wrong with its path and what it may spend next."""
        self.cuts[row], self.used[row] = cut, self.used[parent] + self.budgets[spent]
        return self._over(self.used[row] + _due(self.taxonomy, cut, self.epsilon, self.used[row]))

    def _over(self, total: Fraction) -> list[str]:
        return [f"its path spends {total}, more than {self.epsilon}"] if total > self.epsilon else []


def _inner(taxonomy: Taxonomy, node: int, mask: int) -> frozenset[int]:
    if taxonomy.height[node] == 1:
        return frozenset()
    children = taxonomy.children[taxonomy.starts[node] : taxonomy.starts[node + 1]].tolist()
    return frozenset(child for place, child in enumerate(children) if mask >> place & 1)


def _due(taxonomy: Taxonomy, cut: frozenset[int], epsilon: Fraction, used: Fraction) -> Fraction:
    """What the counts of an expansion of this cut spend."""
    expansions = sum(int(taxonomy.inner[node]) for node in cut)
    return epsilon - used if expansions == 1 else (epsilon / 2 - used) / expansions
