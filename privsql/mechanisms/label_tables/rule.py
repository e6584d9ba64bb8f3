"""The public rule of noisy tables: over which columns and cells they are measured, and with which budget."""

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
# Quasi-identifiers are published unchanged. So levels, bins and cells, which follow from them, are public, too.

Ints = NDArray[np.int64]
MOST_LEVELS, MOST_COARSE = 256, 11  # most levels of a column in its own table, and most bins in pairs
TINY = 1e-9  # prevents division by 0


@dataclass(frozen=True)
class PublicTable:
    """A table over one or two quasi-identifiers, whose sensitive values are counted in each of its cells.

    Attributes:
        columns: The positions of the quasi-identifiers.
        cells: The cell of each combination of all quasi-identifiers (rows,).
        size: The number of cells.
    """

    columns: tuple[int, ...]
    cells: Ints
    size: int

    def find_unions(self, sizes: Ints, group: Ints, combination: Ints) -> dict[int, Ints]:
        """Find those of several groups of records that consist of whole cells of this table.

        The noisy counts of these groups are sums over cells. A group is a set of combinations of quasi-identifiers,
        given as pairs: ``group[i]`` contains all records of ``combination[i]``.

        Args:
            sizes: The number of records of each combination (rows,).
            group: The group of each pair (pairs,).
            combination: The combination of each pair (pairs,).

        Returns:
            The cells of each such group, by the number of the group.
        """
        inside: Any = scipy.sparse.csr_array((sizes[combination], (group, self.cells[combination])))
        whole = np.bincount(self.cells, sizes)
        broken = {*inside.tocoo().coords[0][inside.data < whole[inside.indices]].tolist()}
        ends = zip(inside.indptr[:-1], inside.indptr[1:], strict=True)
        return {k: inside.indices[begin:end] for k, (begin, end) in enumerate(ends) if k not in broken}


@dataclass(frozen=True)
class PublicCodes:
    """The different combinations of quasi-identifiers, as integer codes.

    Attributes:
        names: The names of the quasi-identifiers.
        sizes: The number of records of each combination (rows,).
        levels: For each column, the level of each combination: 0, 1, .. in the order of values (rows,).
        bins: For each column, the bin of each combination; a bin unites some levels (rows,).
        scores: For each column, a number for each level: a normal score for numbers, 0 for NULL and for categories.
    """

    names: tuple[str, ...]
    sizes: Ints
    levels: tuple[Ints, ...]
    bins: tuple[Ints, ...]
    scores: tuple[Floats, ...]

    @staticmethod
    def from_columns(columns: Mapping[str, NDArray[Any]], sizes: Ints) -> PublicCodes:
        """Make the codes of the different combinations of quasi-identifiers.

        Args:
            columns: For each column, the value of each combination (rows,). Floats are numbers, with NaN for NULL; any
                other type holds categories.
            sizes: The number of records of each combination (rows,).
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
        """Sum K numbers per record over the records in each cell of a table (size, K).

        Args:
            k: The number of the table.
            each: The numbers for one record of each combination of quasi-identifiers (rows, K).
            sizes: The number of records of each combination (rows,).
        """
        table, sums = self.tables[k], np.zeros((self.tables[k].size, each.shape[1]))
        for rows in split_range(len(sizes)):
            entries = sizes[rows].astype(each.dtype), table.cells[rows], np.arange(len(sizes[rows]) + 1)
            member = scipy.sparse.csr_array(entries, shape=(len(sizes[rows]), table.size))
            sums += np.asarray(member.T @ each[rows])
        return sums

    @property
    def table_names(self) -> tuple[str, ...]:
        """Return the names under which the tables are published, such as the names of both columns of a pair."""
        return tuple(" \u00d7 ".join(self.names[j] for j in one.columns) for one in self.tables)


def reduce_levels(codes: Ints, sizes: Ints, most: int, *, numeric: bool) -> Ints:
    """Merge the levels of a column (ranks of its values) until at most ``most`` are left, without changing their order.

    A table over the column then has fewer cells. Numbers are put into bins with about equally many records. Of
    categories, the most frequent ones are kept, and all others share the last level.

    Args:
        codes: The level of each combination of quasi-identifiers (rows,).
        sizes: The number of records of each combination (rows,).
        most: The most levels of the result.
        numeric: Whether the levels stand for numbers.

    Returns:
        The new level of each combination (rows,).
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
    """Return the normal scores of the levels of a column of numbers, with mean 0 and variance 1 over all records.

    They are the model's feature for trends in the column. A level is the rank of a value.

    Args:
        records: The number of records of each level. A level without records gets the score 0.
    """
    total = max(records.sum(), 1.0)
    middle = (np.cumsum(records) - records / 2) / total
    scores = np.where(records > 0, scipy.special.ndtri(np.where(records > 0, middle, 0.5)), 0.0)
    scores -= np.where(records > 0, scores @ records / total, 0.0)
    return np.asarray(scores / max(float(np.sqrt(scores**2 @ records / total)), TINY))


# Rule -----------------------------------------------------------------------------------------------------------------
# Half of epsilon measures every column, in equal shares. A twentieth pays for private choices of pairs of columns. Each
# round chooses one of the remaining pairs, or none. The score of none is 0. The score of a pair is the distance of its
# true table from the one expected from the tables of single columns, less the distance that sampling and noise would
# cause. So a pair is only chosen if it is worth its noise. The rest of epsilon measures the chosen pairs, in equal
# shares, or all columns again if none is chosen. If one value is substituted, two counts of a table change by one. So
# noise has the scale 2/epsilon, and scores change by at most 2.

COLUMNS, CHOOSING = Fraction(1, 2), Fraction(1, 20)
ROUNDS = 12
Due = tuple[tuple[int, ...], Fraction, Fraction | None]  # (table, its epsilon, epsilon of the choice of this table)


@dataclass(frozen=True)
class TablesRule:
    """The public rule that decides which tables are measured, and with which budget.

    Tables over single columns come first. Private choices then pick pairs of columns: each takes the best pair by a
    noisy score, and spends part of epsilon.

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
        """Return the number of quasi-identifiers; the tables over single columns come first."""
        return len(self.codes.names)

    @property
    def rounds(self) -> int:
        """Return how many private choices (by noisy scores) are made among the tables over pairs of columns."""
        return min(ROUNDS, len(self.codes.tables) - self.columns)

    @property
    def choice_budget(self) -> Fraction:
        """Return the epsilon that one private choice of a pair of columns spends."""
        return CHOOSING * self.epsilon / max(1, self.rounds)

    @property
    def remaining_budget(self) -> Fraction:
        """Return the epsilon that is left for the chosen pairs, or for all columns again if none is chosen."""
        return self.epsilon * (1 - COLUMNS) - self.rounds * self.choice_budget

    @property
    def cell_counts(self) -> list[int]:
        """Return the number of counts in every table: cells times values."""
        return [one.size * self.values for one in self.codes.tables]

    def first_tables(self) -> list[Due]:
        """Return the tables over single columns, which are measured first, each with its budget."""
        return [((j,), COLUMNS * self.epsilon / self.columns, None) for j in range(self.columns)]

    def later_tables(self, chosen: Sequence[int]) -> list[Due]:
        """Return the tables that are measured after the private choices, each with its budget.

        These are the chosen pairs, given by number, or all single columns again if no pair was chosen.
        """
        if chosen:
            return [((k,), self.remaining_budget / len(chosen), self.choice_budget) for k in chosen]
        return [((j,), self.remaining_budget / self.columns, None) for j in range(self.columns)]

    def due_tables(self, tables: Sequence[NoisyTable]) -> list[Due]:
        """Return the tables and budgets that a release must have, given the pairs that it has chosen.

        Args:
            tables: The published tables; those with a budget for the choice are the chosen pairs.

        Raises:
            ValueError: A pair is unknown, was chosen twice, or too many were chosen.
        """
        chosen = [one.columns[0] for one in tables if one.choice is not None]
        if len(set(chosen)) < len(chosen) or len(chosen) > self.rounds or any(k < self.columns for k in chosen):
            raise ValueError("a pair is unknown, or was chosen twice")
        return [*self.first_tables(), *self.later_tables(chosen)]

    def sum_budgets(self, tables: Sequence[NoisyTable]) -> Fraction:
        """Return the epsilon that tables and private choices spend; a choice of no pair spends its share, too."""
        return sum((one.budget for one in tables), start=self.rounds * self.choice_budget)


def make_rule(params: Randomize, codes: PublicCodes) -> TablesRule:
    """Return the public rule of a specification, which decides over which columns tables are measured.

    Raises:
        UsageError: Two tables would have the same name.
    """
    if len(set(codes.table_names)) < len(codes.table_names):
        raise UsageError("two pairs of columns would have one name; rename a column in source.query")
    return TablesRule(params.spent_epsilon, len(params.listed), codes)


# Precision ------------------------------------------------------------------------------------------------------------
# A count of a value by one column has the noise of that column's table. Weights are fitted to all tables together, so
# counts by weights are more precise than predicted here.


def foresee_precision(epsilon: Fraction, columns: int) -> Precision | None:
    """Predict the errors of counts of records with a given sensitive value and a condition on one quasi-identifier.

    No record is read: the budget determines the noise. The result is None if there are no quasi-identifiers.

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
