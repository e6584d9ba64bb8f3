"""The public rule of noisy tables: the cells of quasi-identifiers, and which tables are measured with which budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from privsql.answers.softmax import split_range
from privsql.dp_random import SUBSTITUTION
from privsql.errors import UsageError
from privsql.model.precision import ASKED, FEW_ASKED, GROUP, TWO_SIDED, WANTED, Precision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.channel import Floats
    from privsql.mechanisms.dp.noisy_tables import NoisyTable
    from privsql.mechanisms.perturb.parameters import Randomize

# Public codes ---------------------------------------------------------------------------------------------------------
# Quasi-identifiers are public. So are levels, bins and cells, which follow from them.

Ints = NDArray[np.int64]
MOST_LEVELS, MOST_COARSE = 256, 11  # codes of a column in its own table, and in pairs
TINY = 1e-9  # of a score


@dataclass(frozen=True)
class PublicTable:
    """A table over one or two quasi-identifiers, which is measured by sensitive values.

    Attributes:
        columns: The positions of its quasi-identifiers.
        cells: The cell of each combination of quasi-identifiers (rows,).
        size: The number of cells.
    """

    columns: tuple[int, ...]
    cells: Ints
    size: int

    def find_unions(self, sizes: Ints, group: Ints, combination: Ints) -> dict[int, Ints]:
        """Find the groups of combinations that consist of whole cells, and return the cells of each of them.

        Args:
            sizes: The records of each combination (rows,).
            group: The group of each pair of a group and a combination (pairs,).
            combination: The combination of each pair (pairs,).
        """
        inside: Any = scipy.sparse.csr_array((sizes[combination], (group, self.cells[combination])))
        whole = np.bincount(self.cells, sizes)
        broken = {*inside.tocoo().coords[0][inside.data < whole[inside.indices]].tolist()}
        ends = zip(inside.indptr[:-1], inside.indptr[1:], strict=True)
        return {k: inside.indices[begin:end] for k, (begin, end) in enumerate(ends) if k not in broken}


@dataclass(frozen=True)
class PublicCodes:
    """The distinct combinations of quasi-identifiers as codes, with the number of records of each.

    Attributes:
        names: The names of the columns.
        sizes: The records of each combination (rows,).
        levels: For each column the code of each combination: 0, 1, .. in the order of its values (rows,).
        bins: For each column fewer codes, each of which unites some levels (rows,).
        scores: For each column a number for each level: normal scores of numbers, 0 for NULL and for categories.
    """

    names: tuple[str, ...]
    sizes: Ints
    levels: tuple[Ints, ...]
    bins: tuple[Ints, ...]
    scores: tuple[Floats, ...]

    @staticmethod
    def from_columns(columns: Mapping[str, NDArray[Any]], sizes: Ints) -> PublicCodes:
        """Make the codes of the combinations.

        A column of floats holds numbers, with NaN for NULL. Any other column holds categories.

        Args:
            columns: The value of each combination, by column (rows,).
            sizes: The records of each combination (rows,).
        """
        levels, bins, scores = [], [], []
        for column in columns.values():
            codes = np.unique(column, return_inverse=True)[1]
            numeric = np.issubdtype(column.dtype, np.floating)
            levels.append(reduce_levels(codes, sizes, MOST_LEVELS, numeric=numeric))
            bins.append(reduce_levels(levels[-1], sizes, MOST_COARSE, numeric=numeric))
            known = sizes * ~np.isnan(column) if numeric else np.zeros_like(sizes)
            scores.append(score_levels(np.bincount(levels[-1], known)))
        return PublicCodes(tuple(columns), sizes, tuple(levels), tuple(bins), tuple(scores))

    @cached_property
    def tables(self) -> list[PublicTable]:
        """Return the tables that may be measured: over every single column, then over every pair of columns in bins."""
        alone = [PublicTable((j,), codes, int(codes.max()) + 1) for j, codes in enumerate(self.levels)]
        pairs = []
        for i, j in combinations(range(len(self.names)), 2):
            cells, member = np.unique(self.bins[i] * MOST_COARSE + self.bins[j], return_inverse=True)
            pairs.append(PublicTable((i, j), member, len(cells)))
        return [*alone, *pairs]

    def sum_cells(self, k: int, each: Floats, sizes: Ints) -> Floats:
        """Sum numbers per record (rows, K) over the records in each cell of table ``k`` (size, K).

        Args:
            k: The index of the table.
            each: The numbers of one record of each combination (rows, K).
            sizes: The records of each combination (rows,).
        """
        table, sums = self.tables[k], np.zeros((self.tables[k].size, each.shape[1]))
        for rows in split_range(len(sizes)):
            entries = sizes[rows].astype(each.dtype), table.cells[rows], np.arange(len(sizes[rows]) + 1)
            member = scipy.sparse.csr_array(entries, shape=(len(sizes[rows]), table.size))
            sums += np.asarray(member.T @ each[rows])
        return sums

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the names under which the tables are published."""
        return tuple(" \u00d7 ".join(self.names[j] for j in one.columns) for one in self.tables)


def reduce_levels(codes: Ints, sizes: Ints, most: int, *, numeric: bool) -> Ints:
    """Merge codes until at most ``most`` are left; their order is kept.

    Numbers are put into quantile bins. Of categories the most frequent ones stay, and all others share the last code.

    Args:
        codes: The code of each combination (rows,).
        sizes: The records of each combination (rows,).
        most: The most codes of the result.
        numeric: Whether the codes stand for numbers.
    """
    records = np.bincount(codes, sizes)
    if len(records) <= most:
        return codes
    if numeric:
        middle = (np.cumsum(records) - records / 2) / records.sum()
        return np.unique(np.floor(middle * (most - 1)), return_inverse=True)[1][codes]
    frequent = np.sort(np.argsort(-records, kind="stable")[: most - 1])
    place = np.full(len(records), most - 1, dtype=np.int64)
    place[frequent] = np.arange(most - 1)
    return np.asarray(place[codes])


def score_levels(records: NDArray[Any]) -> Floats:
    """Return the normal scores of ordered levels, given their ``records``; over the records, mean 0 and variance 1.

    Levels without records have the score 0.
    """
    total = max(records.sum(), 1.0)
    middle = (np.cumsum(records) - records / 2) / total
    scores = np.where(records > 0, scipy.special.ndtri(np.where(records > 0, middle, 0.5)), 0.0)
    scores -= np.where(records > 0, scores @ records / total, 0.0)
    return np.asarray(scores / max(float(np.sqrt(scores**2 @ records / total)), TINY))


# Rule -----------------------------------------------------------------------------------------------------------------
# Half of epsilon measures every column, in equal shares. A twentieth pays for choosing pairs of columns: each round
# makes one fresh choice among the pairs that are left and "none", whose score is 0. A pair's score is the distance of
# its true table from the one that the columns' tables make likely, less the distance that sampling and noise would
# give. So the choice is also the test whether a pair is worth its noise. The rest measures the chosen pairs, in equal
# shares, or all columns once more. One substituted value moves two counts of a table by one: noise has the scale
# 2/epsilon, and scores change by at most 2.

COLUMNS, CHOOSING = Fraction(1, 2), Fraction(1, 20)
ROUNDS = 12
Due = tuple[tuple[int, ...], Fraction, Fraction | None]  # table, epsilon, what choosing it spent


@dataclass(frozen=True)
class TablesRule:
    """The public rule that decides which tables are measured, and with which budget.

    Attributes:
        epsilon: The budget of the release.
        values: The number of sensitive values.
        codes: The combinations of quasi-identifiers.
    """

    epsilon: Fraction
    values: int
    codes: PublicCodes

    @property
    def columns(self) -> int:
        """Return the number of single columns, whose tables come first."""
        return len(self.codes.names)

    @property
    def rounds(self) -> int:
        """Return the number of private choices among the pairs."""
        return min(ROUNDS, len(self.codes.tables) - self.columns)

    @property
    def choice_budget(self) -> Fraction:
        """Return the epsilon of one choice."""
        return CHOOSING * self.epsilon / max(1, self.rounds)

    @property
    def remaining_budget(self) -> Fraction:
        """Return the epsilon that is left for the chosen pairs, or for all columns once more if none is chosen."""
        return self.epsilon * (1 - COLUMNS) - self.rounds * self.choice_budget

    @property
    def cell_counts(self) -> list[int]:
        """Return the number of counts in every table."""
        return [one.size * self.values for one in self.codes.tables]

    def first_tables(self) -> list[Due]:
        """Return the tables that are measured first, one for each column."""
        return [((j,), COLUMNS * self.epsilon / self.columns, None) for j in range(self.columns)]

    def later_tables(self, chosen: Sequence[int]) -> list[Due]:
        """Return the tables that are measured after the choices.

        These are the chosen pairs, or all columns once more if no pair was chosen.
        """
        if chosen:
            return [((k,), self.remaining_budget / len(chosen), self.choice_budget) for k in chosen]
        return [((j,), self.remaining_budget / self.columns, None) for j in range(self.columns)]

    def due_tables(self, tables: Sequence[NoisyTable]) -> list[Due]:
        """Return the tables that the rule requires, given the pairs that a release has chosen.

        Raises:
            ValueError: A pair is unknown, or was chosen twice, or there are too many.
        """
        chosen = [one.columns[0] for one in tables if one.choice is not None]
        if len(set(chosen)) < len(chosen) or len(chosen) > self.rounds or any(k < self.columns for k in chosen):
            raise ValueError("a pair is unknown, or was chosen twice")
        return [*self.first_tables(), *self.later_tables(chosen)]

    def sum_budgets(self, tables: Sequence[NoisyTable]) -> Fraction:
        """Return the epsilon that the tables and all choices spend; a choice of no pair spends its share, too."""
        return sum((one.budget for one in tables), start=self.rounds * self.choice_budget)


def make_rule(params: Randomize, codes: PublicCodes) -> TablesRule:
    """Return the rule of a specification; raise ``UsageError`` if two tables would have the same name."""
    if len(set(codes.table_names)) < len(codes.table_names):
        raise UsageError("two pairs of columns would have one name; rename a column in source.query")
    return TablesRule(params.spent_epsilon, len(params.listed), codes)


# Precision ------------------------------------------------------------------------------------------------------------
# A count of a value by one column has the noise of that column's table. Weights are fitted to all tables together, so
# counts are rather more precise than that.


def foresee_precision(epsilon: Fraction, columns: int) -> Precision | None:
    """Predict the errors of counts by one column from public figures; None if there are no quasi-identifiers.

    Args:
        epsilon: The budget of the release.
        columns: The number of quasi-identifiers.
    """
    if not columns:
        return None
    deviation = sqrt(2) * SUBSTITUTION.scale(COLUMNS * epsilon / columns)
    error = deviation / ASKED
    needed, fewer = float(epsilon) * error / WANTED, int(columns * WANTED / error)
    remedy = f"An epsilon of {needed:.2g} would do"
    if fewer:
        remedy += f", or {fewer} quasi-identifier{'s' * (fewer > 1)}"
    return Precision(None, error, deviation / FEW_ASKED, TWO_SIDED * deviation / GROUP, f"{remedy}.")
