"""A noisy tree of partitions, whatever these are, and what growing or reading one takes in arrays."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Every partition that was kept, with its noisy size; row 0 is the root, which is never counted.

    All arrays have T rows. ``parent``: row of the partition that was expanded, ascending, before its children; -1 for
    the root. ``next``: the taxonomy node at which the row itself is expanded, -1 for a leaf. ``size``: the noisy size,
    an integer. ``spent``: code of the budget of that count in ``budgets``. Rows of one parent lie in an order that
    does not tell the empty ones from the others.
    """

    parent: Ints
    next: Ints
    size: Ints
    spent: Ints
    leaf: Flags
    budgets: tuple[Fraction, ...]

    def __len__(self) -> int:
        return len(self.parent)


def rounds(tree: Tree) -> list[Ints]:
    """Rows by depth, the root alone first; the rows of one depth are a run."""
    edges = [0, 1]
    while edges[-1] < len(tree):
        inside = np.searchsorted(tree.parent, edges[-1])  # parents ascend
        edges.append(int(inside))
    return [np.arange(start, end) for start, end in pairwise(edges)]


def expanded(leaf: Flags, parts: Sequence[Ints]) -> Ints:
    """A column of a tree from its values, round by round, in the rows that are expanded; -1 in leaves."""
    found = np.full(len(leaf), -1, dtype=np.int64)
    found[~leaf] = np.concatenate([found[:0], *parts])
    return found


def kinds(*columns: Ints | Flags) -> tuple[list[list[int]], Ints]:
    """The different rows of some columns (n,), in order, and which of them each row is (n,)."""
    found, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    return found.tolist(), which.reshape(-1)


def levels(members: int, fan_out: int) -> list[Ints]:
    """A context-free taxonomy: by level from below, the group (at the next level) of each member, up to one root."""
    groups: list[Ints] = []
    while members > 1 or not groups:
        groups.append(np.arange(members, dtype=np.int64) // fan_out)
        members = -(-members // fan_out)
    return groups
