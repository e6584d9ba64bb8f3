"""The table in which a noisy tree is published, and back; how a release's tables are made from arrays."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from privsql.dpnoise import scale
from privsql.exact import text
from privsql.model.parameters import LARGEST_EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytree.tree import Ints, Tree

SMALLEST_BUDGET = Fraction(1, 10**15)
FIRST = [("part", "INTEGER"), ("parent", "INTEGER")]  # columns before a kind's own, and after them
LAST = [("size", "BIGINT"), ("budget", "VARCHAR"), ("scale", "DOUBLE"), ("threshold", "BIGINT")]


def tree_table(tree: Tree, own: dict[str, pa.Array], thresholds: Sequence[int | None]) -> pa.Table:
    """``privsql_tree``: every partition with its noisy size, budget, scale and threshold, and a kind's ``own`` columns.

    ``thresholds`` are those of the rows but the root, which was not counted.
    """
    root = np.arange(len(tree)) == 0
    return pa.table(
        {
            "part": pa.array(np.arange(len(tree)), pa.int32()),
            "parent": pa.array(tree.parent, pa.int32(), mask=root),
            **own,
            "size": pa.array(tree.size, pa.int64(), mask=root),
            "budget": texts(tree.spent, tree.budgets),
            "scale": _by_code(tree.spent, [scale(one) for one in tree.budgets], pa.float64()),
            "threshold": pa.array([None, *thresholds], pa.int64()),
        }
    )


def texts(codes: Ints, budgets: Sequence[Fraction]) -> pa.Array:
    """Budgets as fractions; NULL for code -1."""
    return _by_code(codes, [text(one) for one in budgets], pa.string())


def _by_code(codes: Ints, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The value of each code; NULL for -1."""
    return pa.array(values, kind).take(pa.array(codes, mask=codes < 0))


def common(rows: pa.Table, expanded: str) -> dict[str, Any]:
    """The columns of any ``Tree`` but its budgets from ``privsql_tree``; ``expanded``: the column behind ``next``."""
    return {
        "parent": ints(rows["parent"], -1),
        "next": ints(rows[expanded], -1),
        "size": ints(rows["size"], 0),
        "leaf": rows[expanded].is_null().to_numpy(zero_copy_only=False),
    }


def budgets(rows: pa.Table, *names: str) -> tuple[list[Ints], tuple[Fraction, ...]]:
    """Codes (-1 for NULL) of some columns, and the different budgets in them.

    ``ValueError`` for one that is no positive number in range.
    """
    stated = [rows[name].to_pylist() for name in names]
    codes = {
        one: code for code, one in enumerate(dict.fromkeys(one for part in stated for one in part if one is not None))
    }
    found = tuple(Fraction(one) for one in codes)
    if any(not SMALLEST_BUDGET <= budget <= LARGEST_EPSILON for budget in found):
        raise ValueError("a budget is no positive number")
    return [np.array([codes.get(one, -1) for one in part], dtype=np.int64) for part in stated], found


def is_tree(tree: Tree, rows: pa.Table, nodes: int) -> None:
    """``ValueError`` unless every part is numbered, and a child of one that was expanded, at one of ``nodes``."""
    parent = tree.parent[1:]
    if not len(tree) or not np.array_equal(ints(rows["part"], -1), np.arange(len(tree))):
        raise ValueError("its parts are not numbered 0, 1, ..")
    if tree.leaf[0] or tree.parent[0] != -1 or (tree.spent[1:] < 0).any():
        raise ValueError("it has no root, or a part without a budget")
    if (np.diff(tree.parent) < 0).any() or (parent < 0).any() or (parent >= np.arange(1, len(tree))).any():
        raise ValueError("a part lies before its parent")
    if tree.leaf[parent].any() or (tree.next >= nodes).any() or (tree.next[~tree.leaf] < 0).any():
        raise ValueError("a part lies below a leaf, or is expanded at no node")


def ints(column: pa.ChunkedArray, missing: int) -> Ints:
    """A column of integers, ``missing`` where it is NULL."""
    found: Ints = column.fill_null(missing).to_numpy().astype(np.int64)
    return found
