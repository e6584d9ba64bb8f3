"""Examine the columns of a source for ``init``, in one pass over at most 50,000 of its records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.model.bins import is_number_type, is_whole_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from privsql.engine.sqlfiles import Field

    Ints = NDArray[np.int64]
    Reals = NDArray[np.float64]

MOST_RECORDS = 50_000
MOST_CELLS = 8_000_000  # of all columns together; a table of 800 columns is read up to 10,000 records
QUICK, MISSING = 256, 20  # records that are compared first; disagreements that chance must predict
PARTS = 24  # classes of a number, to test whether it reveals another column
DATES = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")


@dataclass(frozen=True)
class Column:
    """One column of a sample of n records.

    Attributes:
        name: Its name.
        type: Its type.
        codes: The value of each record as a code (n,): 0 for NULL, and 1, 2, .. for the different values in the order
            in which they occur.
        values: The different values (different,), in the order of their codes.
        counts: The number of records with each code (different + 1,).
    """

    name: str
    type: str
    codes: Ints
    values: pa.Array
    counts: Ints

    @property
    def records(self) -> int:
        return len(self.codes)

    @property
    def nulls(self) -> int:
        return int(self.counts[0])

    @property
    def filled(self) -> int:
        return self.records - self.nulls

    @property
    def different(self) -> int:
        """Return the number of different values, not counting NULL."""
        return len(self.values)

    @property
    def is_whole(self) -> bool:
        return is_whole_type(self.type)

    @property
    def is_text(self) -> bool:
        return self.type == "VARCHAR" or self.type.startswith("ENUM(")

    @property
    def is_date(self) -> bool:
        return self.type in DATES

    @property
    def is_number(self) -> bool:
        """Return whether the column holds numbers, whole or not; dates do not count as numbers."""
        return is_number_type(self.type)

    @property
    def is_unique(self) -> bool:
        """Return whether the column has several values and no two records have the same one, apart from NULL."""
        return self.filled > 1 and self.different == self.filled

    @cached_property
    def numbers(self) -> Reals:
        """Return the different values of a numeric column as doubles (different,), including NaN and infinities."""
        return np.asarray(self.values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)

    @cached_property
    def sorted_numbers(self) -> Reals:
        """Return the finite numbers of all records in ascending order, without NULL."""
        numbers = np.repeat(self.numbers, self.counts[1:])
        return np.sort(numbers[np.isfinite(numbers)])

    def quantile(self, share: float) -> float:
        numbers = self.sorted_numbers
        return float(numbers[min(len(numbers) - 1, int(share * len(numbers)))]) if len(numbers) else float("nan")

    @cached_property
    def texts(self) -> list[str]:
        """Return the different values as texts, in the order in which they first occur in the sample."""
        return [str(text) for text in self.values.cast(pa.string()).to_pylist()]

    @property
    def most_frequent(self) -> tuple[str | None, float]:
        """Return the most frequent value as text (None for NULL), and the share of records that have it."""
        if not self.records:
            return None, 0.0
        code = int(np.argmax(self.counts))
        return (self.texts[code - 1] if code else None), float(self.counts[code] / self.records)

    @cached_property
    def classes(self) -> Ints:
        """Return the class of each record (n,), to measure how well this column tells the values of another one.

        Each value is a class of its own: the class is the number that ``codes`` gives the value. A column of many
        numbers has 24 classes instead: ranges with about equally many records.
        """
        if not self.is_number or self.different <= PARTS:
            return self.codes
        edges = np.unique([self.quantile(k / PARTS) for k in range(1, PARTS)])
        ranks = np.concatenate(([0], 1 + np.searchsorted(edges, self.numbers, side="right")))
        return np.asarray(ranks[self.codes], dtype=np.int64)


def look_at(fields: Iterable[Field], records: pa.Table) -> list[Column]:
    """Return the columns of a sample of records, one for each field.

    Args:
        fields: The columns, with the types that the engine gives them.
        records: The sample, whose columns have the same names.
    """
    return [_encode(field, records[field.name]) for field in fields]


def _encode(field: Field, column: pa.ChunkedArray) -> Column:
    encoded: Any = column.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # an empty column has no chunk
        encoded = pa.array([], column.type)
    if pa.types.is_dictionary(encoded.type):
        encoded = encoded.cast(encoded.type.value_type)
    encoded = encoded.dictionary_encode()
    codes = pc.add(pc.fill_null(encoded.indices.cast(pa.int64()), -1), 1).to_numpy(zero_copy_only=False)
    counts = np.bincount(codes, minlength=len(encoded.dictionary) + 1)
    return Column(field.name, field.type, codes, encoded.dictionary, counts)


# Two columns ----------------------------------------------------------------------------------------------------------


def count_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """Count how often each value of one column occurs together with each value of another.

    Args:
        first: A whole number for the value that each record has in one column (n,), such as ``Column.codes``.
        second: The same for the other column (n,).

    Returns:
        The first value of each pair, the second value, and the number of records that have both.
    """
    width = int(second.max(initial=0)) + 1
    pairs, counts = np.unique(first * width + second, return_counts=True)
    return pairs // width, pairs % width, counts


def follows_from(column: Column, other: Column) -> bool:
    """Return whether the value of ``other`` determines that of ``column``, beyond what chance explains.

    Each value of ``other`` must occur with only one value of ``column``. If the two were independent, some records with
    the same value of ``other`` would differ in ``column``. At least 20 such differences must be expected, so that their
    absence means something.
    """
    if other.different >= other.filled or column.different > other.different + 1:
        return False
    values = np.zeros(other.different + 1, dtype=np.int64)
    for part in (slice(QUICK), slice(None)):  # the first records already show most pairs to differ
        values[other.codes[part]] = column.codes[part]
        if not np.array_equal(values[other.codes[part]], column.codes[part]):
            return False
    agree = float(np.square(column.counts / column.records).sum())
    repeated = column.records - other.different - (other.nulls > 0)
    return repeated * (1 - agree) >= MISSING


def guess_share(column: Ints, given: Ints) -> tuple[float, float]:
    """Return how often one column's value is guessed right, with and without knowing another column.

    This tells how much the other column would reveal. The guess is the most common value, among the records of the same
    class or among all. Each record's value is guessed from the other records, so a class of a single record tells
    nothing.

    Args:
        column: A whole number for the value of each record that is guessed (n,).
        given: The class of each record (n,): a whole number for its value in the known column.

    Returns:
        Two shares of the records: guessed right with the class, and without it.
    """
    base = float(np.bincount(column).max(initial=0)) / max(1, len(column))
    classes, _, counts = count_pairs(given, column)
    if not len(counts):
        return 0.0, base
    order = np.lexsort((-counts, classes))
    classes, counts = classes[order], counts[order]
    first = np.r_[True, classes[1:] != classes[:-1]]
    starts = np.flatnonzero(first)
    second = np.zeros(len(starts), dtype=np.int64)
    inner = starts + 1 < np.r_[starts[1:], len(counts)]
    second[inner] = counts[starts[inner] + 1]
    top = counts[starts]
    right = np.where(top - 1 >= second, np.where(top > 1, top, 0), 0).sum()
    return float(right) / len(column), base


def agree_within(group: Ints, column: Column) -> float:
    """Return how far the records of one group agree beyond chance: 1 for always, 0 for as often as any two records.

    A column that agrees within the records of each presumed person probably describes persons, such as sex.

    The result is (a - e) / (1 - e). Here a is the share of pairs with equal values, among pairs of records of one group
    that follow each other in the sample. e is that share among all pairs of records.

    Args:
        group: The group of each record (n,); 0 stands for no group.
        column: The column whose values are compared; NULL is a value.
    """
    order = np.argsort(group, kind="stable")
    groups, codes = group[order], column.codes[order]
    neighbours = (groups[1:] == groups[:-1]) & (groups[1:] > 0)
    if not neighbours.any():
        return 0.0
    equal = float((codes[1:] == codes[:-1])[neighbours].mean())
    chance = float(np.square(column.counts / column.records).sum())
    return (equal - chance) / (1 - chance) if chance < 1 else 0.0


def coarsen_codes(column: Column, bins: Mapping[str, Any] | str | None) -> Ints:
    """Return a whole number for each record (n,) that stands for the bin of its value; 0 for NULL.

    Args:
        column: The column.
        bins: The bins, as in ``columns.bins`` of a specification; None for no bins.
    """
    if bins is None or not column.different:
        return column.codes
    if isinstance(bins, str):
        moments = column.values.to_numpy(zero_copy_only=False)  # days, too: microseconds can't hold all dates
        groups: Any = moments.astype({"month": "datetime64[M]", "year": "datetime64[Y]"}[bins])
    elif "prefix" in bins:
        groups = np.array([text[: bins["prefix"]] for text in column.texts])
    else:
        numbers = np.clip(column.numbers, bins.get("bottom", -np.inf), bins.get("top", np.inf))
        step = bins.get("round") or bins.get("width")
        groups = numbers if step is None else np.floor(numbers / step + (0.5 if "round" in bins else 0))
    of_value = np.unique(groups, return_inverse=True)[1] + 1
    return np.asarray(np.concatenate(([0], of_value))[column.codes], dtype=np.int64)


def share_alone(columns: Sequence[Column], bins: Mapping[str, Any]) -> float:
    """Return the share of records whose values in several columns together are unique.

    Args:
        columns: The columns.
        bins: The bins into which columns are put first, by name; columns without an entry stay as they are.
    """
    together: Ints | None = None
    for one in columns:
        codes = coarsen_codes(one, bins.get(one.name))
        pairs = codes if together is None else together * (one.different + 1) + codes
        together = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return 0.0 if together is None else float((np.bincount(together) == 1).sum() / len(together))


def signature(column: Column) -> bytes:
    """Return bytes by which columns with the same information are found, such as a code and its label.

    The bytes of two columns are equal if their values correspond one to one, and NULL to NULL.
    """
    firsts = np.full(column.different + 1, -1, dtype=np.int64)
    codes, index = np.unique(column.codes, return_index=True)
    firsts[codes] = index
    return firsts[column.codes].tobytes()
