"""Checks that several mechanisms share."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from privsql.engine.open import open_engine
from privsql.engine.progress import Options
from privsql.engine.sqlfiles import temp_table
from privsql.model.manifest import in_order

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Row = Sequence[int | None]


def behind(first: Row, second: Row) -> int:
    """-1, 0 or 1: how two rows lie in canonical order, NULL being the largest."""
    one, other = ([(value is None, value or 0) for value in row] for row in (first, second))
    return (one > other) - (one < other)


def out_of_order(folder: Path, rows: Sequence[Row], *, strict: bool) -> list[tuple[Any, ...]]:
    """What the check says of rows that lie as they are given."""
    names = [f"k{number}" for number in range(len(rows[0]))]
    columns = [pa.array(list(values), pa.int64()) for values in zip(*rows, strict=True)]
    with open_engine(folder, Options()) as db:
        db.register_arrow("given", pa.table(columns, names))
        return list(db.rows(in_order(temp_table("given"), names, strict=strict)))


@pytest.mark.parametrize("strict", [True, False])
def test_rows_out_of_order_are_those_that_lie_before_one_that_is_smaller(tmp_path: Path, strict: bool) -> None:
    drawn = np.random.default_rng(7).integers(0, 3, (200, 3))
    rows = [[None if value == 2 else int(value) for value in row] for row in drawn]
    wrong = sorted(repr((*row, *last)) for last, row in pairwise(rows) if behind(row, last) < (1 if strict else 0))
    found = out_of_order(tmp_path, rows, strict=strict)
    assert sorted(repr((*one[::2], *one[1::2])) for one in found) == wrong
    assert wrong


def test_tables_of_hundreds_of_columns_can_be_checked(tmp_path: Path) -> None:
    """One comparison inside the other was deeper than Python goes from about a hundred columns on."""
    rows = [[0] * 149 + [number] for number in (0, 1, 3, 2)]
    found = out_of_order(tmp_path, sorted(rows, key=cmp_to_key(behind)), strict=True)
    assert not found
    assert len(out_of_order(tmp_path, rows, strict=True)) == 1
