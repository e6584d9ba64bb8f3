"""What is drawn for every record: its sub-table, and by how many places its value moves in that domain.

In a sub-table of m_j values a value keeps its place with probability gamma_j/(m_j - 1 + gamma_j) and moves by 1, ..,
m_j - 1 places (cyclically) with 1/(m_j - 1 + gamma_j) each: that is uniform perturbation. With gamma_j = a/b the choice
is one integer uniform on 0..(m_j - 1) b + a - 1, of which the first a stay; nothing is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.engine.texts import BITS
from privsql.mechanisms.dealing import Segments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.mechanisms.randomize.model import Ints, SubTable
    from privsql.noise import Shuffler

Moves = np.ndarray[tuple[int], np.dtype[np.int32]]  # (n,) number of (sub-table, step), records in order of their values


def drawn(parts: Ints, subtables: Sequence[SubTable], noise: Shuffler) -> Moves:
    """Moves (n,) of the records, value by value: which records of a value go to which sub-table is random."""
    first = _first(subtables)
    moves = np.empty(int(parts.sum()), dtype=np.int32)
    begin = 0
    for column in parts.T:
        own = moves[begin : begin + int(column.sum())]
        start = 0
        for j in np.flatnonzero(column).tolist():
            end = start + int(column[j])
            own[start:end] = first[j] + steps(subtables[j], end - start, noise)
            start = end
        if np.count_nonzero(column) > 1:
            noise.shuffle(own)
        begin += len(own)
    return moves


def steps(subtable: SubTable, records: int, noise: Shuffler) -> Ints:
    """Places (records,) in 0..m_j-1 by which values move."""
    stay, other = subtable.gamma.numerator, subtable.gamma.denominator
    choice = noise.integers(0, subtable.weight, records)
    return np.where(choice < stay, 0, 1 + (choice - stay) // other)


def moves_table(subtables: Sequence[SubTable]) -> pa.Table:
    """(bid, sub_table, step, size): what the numbers of ``drawn`` mean, as 32-bit integers, which sort faster."""
    sizes = np.array([subtable.size for subtable in subtables])
    own: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), sizes)
    step = np.arange(len(own)) - _first(subtables)[own]
    columns = {"bid": np.arange(len(own)), "sub_table": own, "step": step, "size": sizes[own]}
    return pa.table({name: array.astype(np.int32) for name, array in columns.items()})


def segments(parts: Ints) -> Segments:
    """The sub-tables of the ranks of every value; ``parts`` (t, m)."""
    code, own = np.nonzero(parts.T)
    ends = np.cumsum(parts.T, axis=1)[code, own]
    return Segments(code, ends - parts[own, code], ends, own, step=0)


def steps_table(subtables: Sequence[SubTable]) -> pa.Table:
    """(sub_table, keep, other): of 2^60 equally likely integers how many stay, and how many move by each step.

    ``other`` is 2^60/(m_j - 1 + gamma_j), rounded up, and the rest stay: keep/other <= gamma_j.
    """
    line = 1 << BITS
    other = [-(-line * one.gamma.denominator // one.weight) for one in subtables]
    keep = [line - (one.size - 1) * width for one, width in zip(subtables, other, strict=True)]
    return pa.table({"sub_table": np.arange(len(subtables)), "keep": keep, "other": other})


def begins(moves: pa.Table, steps: pa.Table) -> pa.Table:
    """``moves_table`` with where, on the line of ``steps_table``, those that move so begin."""
    own, step = moves["sub_table"].to_numpy(), moves["step"].to_numpy()
    keep, other = (steps[name].to_numpy()[own] for name in ("keep", "other"))
    return moves.append_column("begin", pa.array(np.where(step == 0, 0, keep + (step - 1) * other)))


def _first(subtables: Sequence[SubTable]) -> Ints:
    """Number of step 0 of every sub-table."""
    sizes = np.array([subtable.size for subtable in subtables], dtype=np.int64)
    return np.cumsum(sizes) - sizes
