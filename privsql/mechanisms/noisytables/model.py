"""All tables that the noisy ones make likely: non-negative, in agreement with each other, and how far they may be off.

Singles are the nearest possible tables to those of least squares. A pair is expected to be what the strongest pairs
make of it, along the tree of those with most mutual information (for these themselves, independence); the table of
least squares is shrunk towards that (``shrinkage``), a pair that was never measured is just that. Larger tables that
were measured are shrunk towards what their pairs make of them. Any other table has the largest entropy among those that
agree with all of these. Errors are drawn, too: tables as the published ones might have come out as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb, prod
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.noisytables.nonnegative import nearest, raked
from privsql.mechanisms.noisytables.shrinkage import GRID, Believed, Prior, Seen, prior
from privsql.mechanisms.noisytables.squares import fitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.mechanisms.noisytables.measured import Clique, Measured, Reals
    from privsql.mechanisms.noisytables.nonnegative import Margin

    Classes = Mapping[int, Reals]

FIT, AGAIN = 10, 5  # rounds of proportional fitting: of a table, and of one that is nearly right
LARGE = 4_000_000  # cells of a pair, beyond which nothing is made of others
MOST = 20_000_000  # cells of all pairs, of which those that were not measured are left out beyond
POSSIBLE = 1e-6  # records that no cell is without, so that every sum can be made up for
BEYOND, STEEP = 1 / 2, (0.03, 0.06)  # of the pairs' b: what three columns deviate from their pairs; b itself


NO_CLASSES: Classes = MappingProxyType({})


@dataclass(frozen=True)
class Tables:
    """Tables that agree with each other, of the columns and of cliques of two and more."""

    singles: Sequence[Reals]
    larger: Mapping[Clique, Reals]


class Model:
    """What noisy tables tell of all others. ``sizes``: the number of values of every column."""

    def __init__(self, tables: Sequence[Measured], sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.squares = fitted(tables, sizes)
        self.total = max(self.squares.total, 0.0)
        self.measured = {one.columns for one in tables}
        self.singles = [nearest(self.squares.table((i,)), self.total) for i in range(len(sizes))]
        self.beliefs: dict[Clique, Believed] = {}
        self.prior = Prior(np.zeros(2), np.ones(len(GRID)) / len(GRID))

    @cached_property
    def tables(self) -> Tables:
        """All pairs of columns, and what was measured of more."""
        pairs = self._held()
        known = [pair for pair in pairs if self.squares.knows(pair)]
        expected = {pair: self._independent(pair) for pair in pairs}
        found: dict[Clique, Reals] = {}
        if known:
            self.prior = self._believe(known, expected)
            found = {pair: self._agreeing(pair) for pair in known}
            expected |= {pair: table for pair, table in self._chained(found).items() if pair in expected}
            self.prior = self._believe(known, expected)
            found = {pair: self._agreeing(pair) for pair in known}
        return self._with_larger(Tables(self.singles, {pair: found.get(pair, expected[pair]) for pair in pairs}))

    @property
    def pairs(self) -> dict[Clique, Reals]:
        """The tables of all pairs of columns."""
        return {clique: table for clique, table in self.tables.larger.items() if len(clique) == 2}

    def table(self, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        """The table of some columns, of some of these by ``classes`` of their values."""
        return self._of(self.tables, columns, classes)

    def _of(self, given: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        if len(columns) <= 1:
            return merged(given.singles[columns[0]], columns, classes) if columns else np.array(self.total)
        for clique, table in given.larger.items():
            if set(columns) <= set(clique):
                others = tuple(k for k, i in enumerate(clique) if i not in columns)
                return merged(np.asarray(table.sum(axis=others)), columns, classes)
        return self._largest_entropy(given, columns, classes)

    def _largest_entropy(self, given: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> Reals:
        shape = [classes[i].shape[1] if i in classes else self.sizes[i] for i in columns]
        return raked(np.full(shape, self.total / prod(shape)), self._margins(given, columns, classes), FIT)

    def _margins(self, given: Tables, columns: Clique, classes: Classes = NO_CLASSES) -> list[Margin]:
        """All that is known within some columns, small tables first."""
        inside = sorted((clique for clique in given.larger if set(clique) < set(columns)), key=len)
        return [
            (tuple(columns.index(i) for i in clique), merged(given.larger[clique], clique, classes))
            for clique in inside
        ]

    def belief(self, clique: Clique) -> Believed | None:
        """How far a table is to be believed; None for singles, and where no table tells of any pair."""
        table = self.tables.larger.get(clique)
        if clique in self.beliefs or table is None or not self.beliefs:
            return self.beliefs.get(clique)
        return self.prior.unseen(table)

    # The pairs ---

    def _held(self) -> list[Clique]:
        """All pairs, but for the largest of those that were not measured where all would be too much to hold."""
        pairs: list[Clique] = list(combinations(range(len(self.sizes)), 2))
        cells = {pair: self.sizes[pair[0]] * self.sizes[pair[1]] for pair in pairs}
        left, found = MOST - sum(cells[pair] for pair in pairs if self.squares.knows(pair)), set()
        for pair in sorted(pairs, key=lambda one: (cells[one], one)):
            if not self.squares.knows(pair) and cells[pair] <= left:
                left -= cells[pair]
                found.add(pair)
        return [pair for pair in pairs if pair in found or self.squares.knows(pair)]

    def _independent(self, pair: Clique) -> Reals:
        first, second = (self.singles[i] for i in pair)
        return np.outer(first, second) / max(self.total, 1.0)

    def _seen(self, clique: Clique, expected: Reals) -> Seen:
        cell = np.zeros(expected.shape)
        cell[(0,) * cell.ndim] = 1.0
        return Seen(self.squares.table(clique), expected, self.squares.variance(clique, cell))

    def _believe(self, cliques: Sequence[Clique], expected: Mapping[Clique, Reals]) -> Prior:
        seen = {clique: self._seen(clique, expected[clique]) for clique in cliques}
        common = prior(list(seen.values()))
        self.beliefs |= {clique: common.believed(one) for clique, one in seen.items()}
        return common

    def _agreeing(self, pair: Clique) -> Reals:
        """The believed table of a pair as one that can be, with the sums that its columns have."""
        return self._to_singles(nearest(self.beliefs[pair].mean, self.total), [self.singles[i] for i in pair])

    def _to_singles(self, table: Reals, singles: Sequence[Reals]) -> Reals:
        return raked(table + POSSIBLE, [((axis,), one) for axis, one in enumerate(singles)], AGAIN)

    def _chained(self, pairs: Mapping[Clique, Reals]) -> dict[Clique, Reals]:
        """What the tree of the strongest pairs makes of all others."""
        tree = strongest(pairs, len(self.sizes))
        found: dict[Clique, Reals] = {}
        for start in range(len(self.sizes)):
            reached: dict[int, Reals] = {}
            edge = [start]
            while edge:
                here = edge.pop()
                for there in tree[here] - set(reached) - {start}:
                    if self.sizes[start] * self.sizes[there] > LARGE:
                        continue
                    table = pairs[here, there] if here < there else pairs[there, here].T
                    given = np.maximum(table.sum(axis=1, keepdims=True), POSSIBLE)
                    reached[there] = table if here == start else reached[here] @ (table / given)
                    edge.append(there)
            found |= {(start, there): table for there, table in reached.items() if there > start}
        return {pair: table for pair, table in found.items() if pair[1] not in tree[pair[0]]}

    # Larger tables that were measured ---

    def _with_larger(self, given: Tables) -> Tables:
        larger = dict(given.larger)
        for clique in sorted((one for one in self.measured if len(one) > 2), key=lambda one: (len(one), one)):
            expected = self._largest_entropy(Tables(given.singles, larger), clique)
            self._believe([clique], {clique: expected})
            possible = nearest(self.beliefs[clique].mean, self.total) + POSSIBLE
            larger[clique] = raked(possible, self._margins(Tables(given.singles, larger), clique), AGAIN)
        return Tables(given.singles, larger)

    # Errors ---

    def replicate(self, columns: Clique, noise: np.random.Generator, classes: Classes = NO_CLASSES) -> Reals:
        """The table of some columns as it might be: drawn from what is believed of those inside it."""
        errors, published = self.squares.errors(columns, noise), self.tables
        singles = {i: np.maximum(self.singles[i] + errors.table((i,)), 0.0) for i in columns}
        if len(columns) == 1:
            return merged(singles[columns[0]], columns, classes)
        drawn: dict[Clique, Reals] = {}
        for clique in sorted((one for one in published.larger if set(one) <= set(columns)), key=len):
            table, belief = published.larger[clique], self.belief(clique)
            if belief is not None:
                doubt = np.sqrt(belief.doubt) * noise.standard_normal(table.shape)
                known = belief.factor * errors.table(clique) if belief.factor.any() else 0.0
                table = np.maximum(table + known + doubt, 0.0) + POSSIBLE
            if len(clique) == 2:
                drawn[clique] = self._to_singles(table, [singles[i] for i in clique])
            else:
                drawn[clique] = raked(table, self._margins(Tables((), drawn), clique), AGAIN)
        return self._of(Tables((), drawn), columns, classes)

    def beyond(self, columns: int) -> float:
        """Relative variance of cells of three columns and more around what their pairs make of them.

        b/2 of three columns: what real tables deviate, beyond a sample around a smooth table (measured on census
        tables: a quarter of what pairs deviate from independence, in ranges a half; where noise hides what pairs do, or
        few of them decide it, b is what it is in most). Of more columns all triples among them may deviate in the same
        direction, so the standard deviation grows with their number.
        """
        steep = float(np.clip(self.prior.moments[1], *STEEP)) if self.tables.larger else 0.0
        return BEYOND * steep * comb(columns, 3) ** 2


def merged(table: Reals, columns: Clique, classes: Classes) -> Reals:
    """A table whose values are summed up by class: ``classes`` has for a column 1 where a value (row) is of a class."""
    for axis, column in enumerate(columns):
        if column in classes:
            table = np.moveaxis(np.tensordot(table, classes[column], axes=(axis, 0)), -1, axis)
    return table


def strongest(pairs: Mapping[Clique, Reals], columns: int) -> list[set[int]]:
    """Neighbours of every column in the tree (or trees) of pairs with the largest sum of mutual information."""
    edges = sorted(pairs, key=lambda pair: (-_information(pairs[pair]), pair))
    tree: list[set[int]] = [set() for _ in range(columns)]
    part = list(range(columns))
    for first, second in edges:
        if part[first] != part[second]:
            tree[first].add(second)
            tree[second].add(first)
            old, new = part[first], part[second]
            part = [new if one == old else one for one in part]
    return tree


def _information(table: Reals) -> float:
    """Mutual information of the two columns of a table."""
    total = table.sum()
    if total <= 0:
        return 0.0
    joint = table / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    return float((joint[inside] * np.log(joint[inside] / apart[inside])).sum())
