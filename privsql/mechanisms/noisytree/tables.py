"""Columns of the tables in which a noisy tree is published, and back."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.dpnoise import scale
from privsql.exact import text
from privsql.model.parameters import LARGEST_EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.noisytree.tree import Ints

SMALLEST_BUDGET = Fraction(1, 10**15)


def texts(codes: Ints, budgets: Sequence[Fraction]) -> pa.Array:
    """Budgets as fractions; NULL for code -1."""
    return pa.array([text(budgets[code]) if code >= 0 else None for code in codes.tolist()], pa.string())


def scales(codes: Ints, budgets: Sequence[Fraction]) -> pa.Array:
    """The scale of the noise that spends a budget; NULL for code -1."""
    return pa.array([scale(budgets[code]) if code >= 0 else None for code in codes.tolist()], pa.float64())


def coded(stated: Sequence[str | None]) -> tuple[Ints, tuple[Fraction, ...]]:
    """Codes (-1 for NULL) and the different budgets; ``ValueError`` for one that is no positive number in range."""
    codes = {one: code for code, one in enumerate(dict.fromkeys(one for one in stated if one is not None))}
    budgets = tuple(Fraction(one) for one in codes)
    if any(not SMALLEST_BUDGET <= budget <= LARGEST_EPSILON for budget in budgets):
        raise ValueError("a budget is no positive number")
    return np.array([codes[one] if one is not None else -1 for one in stated], dtype=np.int64), budgets


def ints(column: pa.ChunkedArray, missing: int) -> Ints:
    """A column of integers, ``missing`` where it is NULL."""
    found: Ints = column.fill_null(missing).to_numpy().astype(np.int64)
    return found
