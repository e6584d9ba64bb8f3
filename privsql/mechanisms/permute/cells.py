"""Cut records into cells of equal or similar quasi-identifiers, without using their sensitive values."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.permute.grouping import Ints, find_ends
from privsql.mechanisms.permute.parameters import CELL, Permute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.channel import Floats
    from privsql.engine.database import Relations
    from privsql.mechanisms.permute.grouping import Axis
    from privsql.model.records import Records

# Cut ------------------------------------------------------------------------------------------------------------------
# This is Mondrian (LeFevre, DeWitt, Ramakrishnan 2006) over quasi-identifiers alone.
#
# Cuts must not depend on sensitive values. If cutting stopped where (k,e) would fail, the release would tell that it
# would have failed. The same holds if the smallest size rose until all cells satisfy (k,e). In a table of six records,
# either makes a value certain that has a share of 1/3 in its cell (tests/mechanisms/permute/test_cells.py enumerates
# all tables). So the smallest size is a multiple of k, cuts follow from quasi-identifiers and sizes alone, and one cell
# that fails (k,e) refuses the release. Then every table with the same contents of cells can give the same release, and
# the belief in a value is its share in the cell.


def cut_cells(codes: Ints, smallest: int) -> Ints:
    """Put records with similar quasi-identifiers into cells of at least ``smallest`` records, if there are so many.

    Records that agree in all columns stay together, and have a cell of their own if there are enough of them. The
    others are halved again and again, along the column in which they are spread most, as near to the middle as values
    allow.

    Args:
        codes: The rank of each quasi-identifier's value (n, d).
        smallest: The fewest records of a cell.

    Returns:
        The cell of every record (n,), numbered from 0.
    """
    alike = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        alike = np.unique(alike * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    records = np.bincount(alike)
    order = np.argsort(records, kind="stable")
    mixed = int(np.searchsorted(records[order], smallest))  # number of combinations with too few records for a cell
    if mixed:
        mixed = max(mixed, int(np.searchsorted(np.cumsum(records[order]), smallest)) + 1)
    number = max(0, len(records) - mixed)
    of_kind = np.full(len(records), -1, dtype=np.int64)
    of_kind[np.sort(order[mixed:])] = np.arange(number)
    cells, span = of_kind[alike], codes.max(axis=0, initial=0) + 1
    pending: list[Ints] = [np.flatnonzero(cells < 0)] if mixed else []
    while pending:
        members = pending.pop()
        parts = _halve_cell(codes, members, span, smallest) if len(members) >= 2 * smallest else None
        if parts is not None:
            pending += parts
            continue
        cells[members] = number
        number += 1
    return cells


def _halve_cell(codes: Ints, members: Ints, span: Ints, smallest: int) -> list[Ints] | None:
    """Cut a cell in two along one column; None if no cut leaves at least ``smallest`` records on both sides.

    Args:
        codes: The rank of each quasi-identifier's value (n, d).
        members: The records of the cell.
        span: The number of different values of each column (d,).
        smallest: The fewest records of a cell.

    Returns:
        The records of the upper half and of the lower half.
    """
    own = codes[members]
    widths = (own.max(axis=0) - own.min(axis=0)) / span
    for column in np.argsort(-widths, kind="stable")[: np.count_nonzero(widths)].tolist():
        ranks = own[:, column] - own[:, column].min()
        below = np.cumsum(np.bincount(ranks))
        possible = below[(below >= smallest) & (below <= len(members) - smallest)]
        if len(possible):
            half = possible[np.argmin(np.abs(2 * possible - len(members)))]
            is_below = ranks <= np.searchsorted(below, half)
            return [members[~is_below], members[is_below]]
    return None


def read_codes(db: Relations, source: Records) -> tuple[Ints, Ints]:
    """Return (the ranks of quasi-identifiers (n, d), the ranks of sensitive values (n,)) of all records.

    Records come by rising sensitive value.
    """
    rows = db.arrow(source.coded_records(ordered=True))
    columns = [_rank_values(rows[key]) for key in source.roles.qi_keys]
    values = rows["code"].to_numpy().astype(np.int64)
    return np.stack(columns, axis=1) if columns else np.zeros((len(values), 0), dtype=np.int64), values


def _rank_values(values: pa.ChunkedArray) -> Ints:
    encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
    order = pc.array_sort_indices(
        encoded.dictionary.cast(pa.int8()) if pa.types.is_boolean(values.type) else encoded.dictionary
    )
    rank = np.empty(len(order), dtype=np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    return np.asarray(rank[encoded.indices.to_numpy()])


def group_cells(db: Relations, source: Records, axis: Axis, params: Permute) -> tuple[Ints, Ints]:
    """Group the records into cells: the groups of algorithm ``cells``, which makes only one release of a table.

    Args:
        db: The engine that holds the source.
        source: The records.
        axis: The sensitive values, with k and e.
        params: The parameters.

    Returns:
        (the rank of every record's value, rising (n,); the cell of every record (n,)).

    Raises:
        InfeasibleError: A cell has fewer than k different values, or a range below e.
        UsageError: The records were released before, or are to be ordered by keyed hashes (``release.order =
            'portable'``).
    """
    if source.history.releases:
        raise UsageError("mechanism.algorithm: 'cells' makes one release; for a table that grows take 'nested'")
    if source.order == "portable":
        raise UsageError("mechanism.algorithm: 'cells' does not support release.order = 'portable'; take 'nested'")
    codes, values = read_codes(db, source)
    cells = cut_cells(codes, CELL * params.k)
    failed = int((~find_fine(axis, cells, values)).sum())
    if failed:
        number = int(cells.max()) + 1
        raise InfeasibleError(
            f"{failed:,} of {number:,} cells have fewer than {params.k} values or a range below {params.e}; take "
            "mechanism.algorithm = 'nested'. Do not change k, e or columns until it works: whoever knows of an attempt "
            "that failed knows more than the release tells",
            {"cells": number, "failed": failed},
        )
    return values, cells


def find_fine(axis: Axis, cells: Ints, values: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return whether each cell is (k,e)-anonymous: it has at least k different values, over a range of at least e.

    Args:
        axis: The sensitive values, with k and e.
        cells: The cell of each record (n,).
        values: The rank of each record's value (n,).
    """
    number = int(cells.max(initial=-1)) + 1
    low, high = find_ends(cells, values, number)
    pairs = np.unique(cells * len(axis.units) + values)
    different = np.bincount(pairs // len(axis.units), minlength=number)
    return np.asarray((different >= axis.k) & (axis.reach[high] >= low))


# Errors ---------------------------------------------------------------------------------------------------------------

ASKED = 100  # the fewest records that a question selects
ROUNDING = 1e-9  # a smaller error is due to rounding


def mean_error(codes: Ints, values: Floats, groups: Ints) -> float | None:
    """Measure how wrong means of the sensitive value are if they are estimated from groups, to compare algorithms.

    The questions select one value of a quasi-identifier, or one value of each of two, and at least ``ASKED`` records.
    The result is the root mean square error over all of them, in standard deviations of the values.

    Args:
        codes: The rank of each quasi-identifier's value (n, d).
        values: The sensitive value of each record (n,).
        groups: The group of each record (n,).

    Returns:
        The error; None if there is no such question.
    """
    sums, records = np.bincount(groups, values), np.bincount(groups)
    wrong = (sums / np.maximum(records, 1))[groups] - values
    errors = [error for selected in _select_questions(codes) if (error := _errors(selected, wrong)) is not None]
    spread = float(values.std())
    if not errors or not spread:
        return None
    whole = float(np.sqrt(np.mean(np.concatenate(errors) ** 2))) / spread
    return whole if whole > ROUNDING else 0.0


def _select_questions(codes: Ints) -> Iterator[Ints]:
    columns = list(codes.T)
    yield from columns
    for first, second in combinations(columns, 2):
        yield np.unique(first * (int(second.max()) + 1) + second, return_inverse=True)[1]


def _errors(selected: Ints, wrong: Floats) -> Floats | None:
    records = np.bincount(selected)
    asked = records >= ASKED
    return np.bincount(selected, wrong)[asked] / records[asked] if asked.any() else None
