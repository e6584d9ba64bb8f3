"""Turn columns into the features of a softmax regression of a sensitive value; ``effect_fit`` fits the regression."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.answers.channel import Floats

# The model is p(v | x) = softmax(log f_v + sum_j phi_j(x) theta_jv). Features phi are indicators:
#
# * of every level of a column that enough records have, and of ten quantile bins of a column of numbers;
# * of such a column's bins one slope: a trend would else be shrunk as if every bin deviated by itself;
# * of every pair of levels of two columns, each coarsened to ten bins or its most frequent levels and the rest.
#
# Rows are combinations of codes that some records share. What is published of them is a likelihood of p by row
# (``effect_fit.Likelihood``).

FEWEST, FEWEST_OF_FEW, FEW_RECORDS = 30, 10, 5_000  # records of a level, and where there are few records
BINS, LEVELS = 10, 14  # of a coarse column
ROWS_OF_CELL = 12  # of a block, at least
ROWS_TRIED = 40_000  # by which blocks are chosen
ROWS_AT_ONCE = 4_000  # what is computed of them fits a cache
SAFE = 0.9  # of the largest log-odds whose exponential is a number
TINY = 1e-300  # no division by 0

Ints = NDArray[np.int32]


# Features -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnCoder:
    """The coding of one column as features of a regression.

    A frequent value has an indicator, a feature that is 1 for records with the value. A column of numbers is also cut
    into quantile bins. Features of a pair of columns use coarse codes: the bin, or one of the most frequent values.

    Attributes:
        values: The V different values, sorted (V,).
        levels: The number of the indicator of each value (V,); -1 for a value without one.
        bins: The quantile bin of each value (V,); -1 for a value without one.
        coarse: The coarse code of each value (V,).
        rest: The coarse code of a value that is not among ``values``.
        scores: The amount of each bin in the slope, a feature for a trend in the column; a 0 follows for values without
            a bin (bins + 1,). Empty without bins.
    """

    values: NDArray[Any]
    levels: Ints
    bins: Ints
    coarse: Ints
    rest: int
    scores: Floats

    @staticmethod
    def from_column(column: NDArray[Any], sizes: NDArray[np.intp], fewest: int) -> ColumnCoder:
        """Return the coding of a column.

        Args:
            column: The value of each row; floats are numbers, integers are codes of categories.
            sizes: The number of records that each row stands for (rows,).
            fewest: The smallest number of records for which a value gets an indicator, a feature that is 1 for the
                records with the value.
        """
        values, codes = np.unique(column, return_inverse=True)
        records = np.bincount(codes, sizes, len(values))
        levels = renumber_levels(np.flatnonzero(records >= fewest), len(values))
        frequent = np.sort(np.argsort(-records, kind="stable")[:LEVELS])
        coarse, bins = renumber_levels(frequent, len(values)), np.full(len(values), -1, dtype=np.int32)
        coarse[coarse < 0] = len(frequent)
        scores = np.zeros(0)
        if np.issubdtype(column.dtype, np.floating) and len(values) > LEVELS + 1:
            known = ~np.isnan(values)
            middle = (np.cumsum(records) - records / 2) / max(1.0, records[known].sum())
            _, binned = np.unique(np.where(known, (BINS * middle).astype(np.int32), BINS), return_inverse=True)
            coarse = bins = binned.astype(np.int32)
            scores = score_bins(bins[known], records[known], int(bins.max()) + 1)
        return ColumnCoder(values, levels, bins, coarse, int(coarse[records.argmin()]), scores)

    def encode(self, column: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
        """Return three numbers for each row of a column: its indicator, its bin, and its coarse code (rows,).

        The first two are -1 for a row that has no indicator or no bin. The coarse code, for features of pairs of
        columns, is the bin or one of the most frequent values.
        """
        at = np.searchsorted(self.values, column).clip(max=len(self.values) - 1)
        known = (self.values[at] == column) | ((self.values[at] != self.values[at]) & (column != column))
        return (
            np.where(known, self.levels[at], np.int32(-1)),
            np.where(known, self.bins[at], np.int32(-1)),
            np.where(known, self.coarse[at], np.int32(self.rest)),
        )


def score_bins(bins: Ints, records: Floats, number: int) -> Floats:
    """Return a number for each bin of a column, by which a regression finds a trend over the bins.

    It is the normal quantile at the rank of the bin's middle. Over the records the scores have mean 0 and variance 1.

    Args:
        bins: The bin of each value.
        records: The number of records of each value.
        number: The number of bins.

    Returns:
        The scores and one further 0 (number + 1,); an empty bin has 0, too.
    """
    counts, scores = np.bincount(bins, records, number), np.zeros(number + 1)
    held = np.flatnonzero(counts)
    shares = counts[held] / counts.sum()
    score = scipy.special.ndtri(np.cumsum(shares) - shares / 2)
    score -= shares @ score
    scores[held] = score / max(np.sqrt(shares @ score**2), TINY)
    return scores


def renumber_levels(chosen: NDArray[np.intp], number: int) -> Ints:
    """Return a number for each of a column's values: 0, 1, .. for those that get a feature, -1 for others (number,).

    Args:
        chosen: The indices of the values that get a feature.
        number: The number of values.
    """
    codes = np.full(number, -1, dtype=np.int32)
    codes[chosen] = np.arange(len(chosen))
    return codes


@dataclass(frozen=True)
class Term:
    """Features of one column, or of one pair of columns, which share a penalty in the regression.

    They are indicators, each 1 for the rows with one value or pair of values. Or there is a single feature, a slope,
    whose amount rises over the bins of a column of numbers. The cell of a row is its code in the column; for two
    columns it is the first code times ``width`` plus the second code.

    Attributes:
        name: The name of the column or pair.
        numbers: The number of the indicator of each cell; -1 for a cell without one.
        width: The number of codes of the second column of a pair.
        codes: The codes of each row in the column or columns.
        weights: For a slope, the amount of its only feature in each cell; None for indicators, whose amount is 1.
    """

    name: str
    numbers: Ints
    width: int
    codes: tuple[Ints, ...]
    weights: Floats | None = None

    @property
    def levels(self) -> int:
        """Return the number of features of this term: its indicators, or 1 if it is a slope (a trend over bins)."""
        return int(self.numbers.max(initial=-1)) + 1

    def encode(self, rows: NDArray[np.intp] | slice = slice(None)) -> Ints:
        """Return which indicator of the term is 1 in each given row; -1 if none is."""
        return self.numbers[self._locate_cells(rows)]

    def weigh(self, rows: NDArray[np.intp]) -> Floats:
        """Return the value that this term's feature has in each given row.

        It is 1 for an indicator. For a slope, a trend over the bins of a column, it depends on the row's bin.
        """
        return np.ones(len(rows)) if self.weights is None else self.weights[self._locate_cells(rows)]

    def _locate_cells(self, rows: NDArray[np.intp] | slice) -> Ints:
        first, *others = (codes[rows] for codes in self.codes)
        return first * self.width + others[0] if others else first


class FeatureMap:
    """The features of a softmax regression of the sensitive value on some columns, such as quasi-identifiers.

    A value of a column, or a pair of values of two columns, has a feature if enough records have it.

    Args:
        columns: The columns, by name: one value for each row.
        sizes: The number of records that each row stands for (rows,).
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], sizes: NDArray[np.intp]) -> None:
        fewest = FEWEST if sizes.sum() >= FEW_RECORDS else FEWEST_OF_FEW
        self.coders = {name: ColumnCoder.from_column(column, sizes, fewest) for name, column in columns.items()}
        coarse = {name: coder.encode(columns[name])[2] for name, coder in self.coders.items()}
        self.blocks = cover_pairs(coarse)
        self.pairs: dict[tuple[str, str], tuple[int, Ints]] = {}
        for pair in (pair for block in self.blocks for pair in block):
            widths = [int(self.coders[name].coarse.max(initial=0)) + 1 for name in pair]
            records = np.bincount(coarse[pair[0]] * widths[1] + coarse[pair[1]], sizes, widths[0] * widths[1])
            self.pairs[pair] = widths[1], renumber_levels(np.flatnonzero(records >= fewest), len(records))

    @property
    def description(self) -> list[list[str | int]]:
        """Return a list for each column and each pair of columns: its name, then how many features it has.

        For a column these are its indicators, its bins, and 1 if it has a slope (a trend over its bins), else 0.
        """
        slopes = {name: np.zeros(min(1, len(coder.scores)), dtype=np.int32) for name, coder in self.coders.items()}
        numbers = {name: [coder.levels, coder.bins, slopes[name]] for name, coder in self.coders.items()}
        numbers |= {" x ".join(pair): [codes] for pair, (_, codes) in self.pairs.items()}
        return [[name, *(int(part.max(initial=-1)) + 1 for part in parts)] for name, parts in numbers.items()]

    @property
    def count(self) -> int:
        """Return the number of all features, J, the intercept included."""
        return 1 + sum(int(number) for _, *numbers in self.description for number in numbers)

    def make_design(self, columns: Mapping[str, NDArray[Any]], sizes: NDArray[np.intp]) -> Design:
        """Return the features of some rows.

        Args:
            columns: The columns of the rows, by name.
            sizes: The number of records that each row stands for (rows,).
        """
        intercept = Term("intercept", np.zeros(1, dtype=np.int32), 1, (np.zeros(len(sizes), dtype=np.int32),))
        blocks, coarse = [([intercept], [*intercept.codes])], {}
        for name, coder in self.coders.items():
            levels, bins, coarse[name] = coder.encode(columns[name])
            terms = [_plain_term(name, levels, coder.levels), _plain_term(f"{name} in bins", bins, coder.bins)]
            if len(coder.scores):
                alike = np.zeros(len(coder.scores), dtype=np.int32)
                terms.append(Term(f"{name} as a slope", alike, 1, (bins,), coder.scores))
            terms = [term for term in terms if term.levels]
            blocks.append((terms, [codes for term in terms for codes in term.codes]))
        for block in self.blocks:
            names = sorted({name for pair in block for name in pair})
            terms = [
                Term(" x ".join(pair), numbers, width, (coarse[pair[0]], coarse[pair[1]]))
                for pair, (width, numbers) in ((pair, self.pairs[pair]) for pair in block)
                if numbers.max() >= 0
            ]
            blocks.append((terms, [coarse[name] for name in names]))
        return join_blocks([(terms, codes) for terms, codes in blocks if terms], sizes)


def _plain_term(name: str, codes: Ints, numbers: Ints) -> Term:
    """Return the indicators of a single column, as a term of the regression.

    Args:
        name: The name of the term.
        codes: The number of the indicator that is 1 in each row; -1 for a row without one.
        numbers: The numbers of the column's indicators, in any order; -1 is ignored.
    """
    return Term(name, np.append(np.arange(numbers.max(initial=-1) + 1), -1).astype(np.int32), 1, (codes,))


def cover_pairs(columns: Mapping[str, Ints]) -> list[list[tuple[str, str]]]:
    """Divide all pairs of columns into blocks, so that their features can be stored in little memory.

    The pairs of a block use only a few columns, which have far fewer combinations of values than there are rows. Their
    features are stored once for each combination (``Design``).

    Args:
        columns: The codes of each column, by name.
    """
    tried = {name: codes[:: -(-len(codes) // ROWS_TRIED)] for name, codes in columns.items()}
    left, blocks = list(combinations(columns, 2)), []
    while left:
        block, member = set(left[0]), combine_rows([tried[name] for name in left[0]])[1]
        for name in Counter(name for pair in left for name in pair):
            cells, more = np.unique(member * (int(tried[name].max()) + 1) + tried[name], return_inverse=True)
            if len(cells) * ROWS_OF_CELL <= len(more):
                block.add(name)
                member = more
        blocks.append([pair for pair in left if block.issuperset(pair)])
        left = [pair for pair in left if not block.issuperset(pair)]
    return blocks


def combine_rows(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Find the different rows of a table.

    Args:
        columns: The columns, each (n,).

    Returns:
        The index of one example of each different row, the number of the different row that each row equals (n,), and
        how many rows equal each.
    """
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        _, key = np.unique(key * len(values) + codes, return_inverse=True)
    _, first, member, sizes = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    return first, member, sizes


@dataclass(frozen=True)
class Design:
    """The features of some rows, a matrix Phi (rows, J) kept as the product of two sparse matrices.

    Columns are grouped in blocks of a few columns. A cell is one combination of values in a block. All rows of a cell
    have the same features of that block, so these are stored once, in little memory.

    Attributes:
        terms: The terms (the features of a column or a pair of columns), whose features follow each other.
        sizes: The number of records that each row stands for (rows,).
        cells: 1 where a row belongs to a cell (rows, C). Its type is the precision of numbers for rows.
        features: The features of each cell (C, J), as doubles.
    """

    terms: list[Term]
    sizes: NDArray[np.intp]
    cells: Any
    features: Any

    @cached_property
    def groups(self) -> NDArray[np.intp]:
        """Return for each feature the index of its term, the column or pair of columns that it belongs to (J,)."""
        return np.repeat(np.arange(len(self.terms)), [term.levels for term in self.terms])

    def probabilities(self, theta: Floats, offset: Floats) -> Floats:
        """Return the probability of each of K sensitive values for each row by the softmax regression (rows, K).

        Args:
            theta: The effects of the features (J, K).
            offset: The log-odds of a record without features (K,).
        """
        effects, precision = self.features @ theta, self.cells.dtype
        members = np.diff(self.cells.indptr).max(initial=0)
        largest = members * np.abs(effects).max(initial=0) + np.abs(offset).max(initial=0)
        is_large = largest > SAFE * np.log(np.finfo(precision).max)
        effects, offset = effects.astype(precision, copy=False), offset.astype(precision, copy=False)
        found = np.empty((self.cells.shape[0], len(offset)), precision)
        ones = np.ones(len(offset), precision)
        for rows, cells in self.parts:
            logits = cells @ effects
            logits += offset
            if is_large:
                logits -= logits.max(axis=1, keepdims=True)
            np.exp(logits, out=logits)
            np.divide(logits, (logits @ ones)[:, None], out=found[rows])
        return found

    @cached_property
    def parts(self) -> list[tuple[slice, Any]]:
        """Return the matrix ``cells`` in parts, each with the slice of its rows, that fit the processor's cache."""
        return split_rows(self.cells)

    def sum_features(self, residuals: Floats) -> Floats:
        """Return for each feature and sensitive value the sum of feature times residual over all rows (J, K).

        If residuals are derivatives by the log-odds of values, the sums are derivatives by the effects.

        Args:
            residuals: A number for each row and value, such as observed minus expected records (rows, K).
        """
        return np.asarray(self.features.T @ sum_parts(self.parts, residuals))


def split_range(rows: int) -> list[slice]:
    """Split the numbers of ``rows`` rows into slices that fit the processor's cache."""
    return [slice(begin, begin + ROWS_AT_ONCE) for begin in range(0, rows, ROWS_AT_ONCE)]


def split_rows(matrix: Any) -> list[tuple[slice, Any]]:
    """Split a sparse matrix into parts, each with the slice of its rows, that fit the processor's cache."""
    return [(rows, matrix[rows]) for rows in split_range(matrix.shape[0])]


def sum_parts(parts: Sequence[tuple[slice, Any]], each: Floats) -> Floats:
    """Multiply the transpose of a matrix (rows, C) by an array (rows, K), part by part; the sums (C, K) are doubles.

    Args:
        parts: Parts of the matrix that fit the processor's cache, each with the slice of its rows.
        each: The array.
    """
    sums = np.zeros((parts[0][1].shape[1], each.shape[1]))
    for rows, cells in parts:
        sums += cells.T @ each[rows]
    return sums


def join_blocks(
    blocks: Sequence[tuple[list[Term], Sequence[Ints]]], sizes: NDArray[np.intp], precision: type = np.float64
) -> Design:
    """Return the features of all rows, stored once for each combination of values in a block of columns (``Design``).

    Args:
        blocks: For each block (a group of columns), its terms, and the columns of codes (rows,) that these use.
        sizes: The number of records that each row stands for (rows,).
        precision: The type of the probabilities that the result computes for rows.
    """
    terms = [term for own, _ in blocks for term in own]
    starts = np.cumsum([0, *(term.levels for term in terms)])
    number, total, cells, features = 0, 0, [], []
    for own, codes in blocks:
        first, member, _ = combine_rows(codes)
        cells.append(total + member)
        for term in own:
            indicators = term.encode(first).astype(np.int64)
            at = np.flatnonzero(indicators >= 0)
            features.append((total + at, starts[number] + indicators[at], term.weigh(first[at])))
            number += 1
        total += len(first)
    columns = np.stack(cells, axis=1).ravel()
    ends = np.arange(len(sizes) + 1) * len(cells)
    chosen = scipy.sparse.csr_array((np.ones(len(columns), precision), columns, ends), shape=(len(sizes), total))
    at, feature, amounts = (np.concatenate(part) for part in zip(*features, strict=True))
    table = scipy.sparse.csr_array((amounts, (at, feature)), shape=(total, int(starts[-1])))
    return Design(terms, sizes, chosen, table)
