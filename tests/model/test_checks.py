"""Checks that several mechanisms share."""

from __future__ import annotations

from collections import Counter
from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from privsql.engine.database import Options
from privsql.engine.open import open_engine
from privsql.engine.sqlfiles import column, temp_table
from privsql.mechanisms.bucketize.parameters import FakeFacts
from privsql.mechanisms.permute.parameters import GroupFacts, Permute, PermuteFacts
from privsql.mechanisms.views.parameters import SetValued
from privsql.model.checks import differ_from_spec, in_order
from privsql.releases.statements import count_classes, estimate_matches

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


def test_flags_that_allow_something_are_no_difference_to_a_specification() -> None:
    stated = Permute.model_validate({"k": 3, "e": "1 day"})
    assert differ_from_spec(stated, Permute.model_validate({"k": 3, "e": "24 hours"})) == []
    assert differ_from_spec(stated, Permute.model_validate({"k": 4, "e": "1 day"})) == ["k: stated 3, asked for 4"]
    allowed = SetValued.model_validate({"epsilon": 1, "universe": "data", "allow_empty": True})
    assert differ_from_spec(allowed, allowed.model_copy(update={"allow_empty": False})) == []


def test_facts_are_joined_and_leave_out_what_has_its_default() -> None:
    groups = GroupFacts(loss=2, error="2", groups=1, smallest=3, largest=3, mean_width=2.0)
    stated = PermuteFacts.join_parts(groups, groups.model_copy(update={"largest": 4}), held_back=1, left_out=1)
    assert (stated.largest, stated.count_left_out(), stated.count_waiting()) == (4, 1, 1)
    assert list(stated.as_json())[-2:] == ["held_back", "left_out"]
    assert stated.describe()[-1] == ("held back", "1 new records")
    assert FakeFacts(fake_values=0, weak_fakes=0).as_json() == {"weak_fakes": 0}
    with pytest.raises(ValidationError, match="held_back"):
        PermuteFacts.join_parts(groups)


def test_classes_of_equal_rows_are_counted_by_size(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3).integers(0, 150, (20_000, 2)).tolist()
    rows = Counter(tuple(None if value == 7 else value for value in row) for row in drawn)
    alone = sum(number == 1 for number in rows.values())
    assert 5_000 < alone < 12_000
    columns = [pa.array([None if row[i] == 7 else row[i] for row in drawn], pa.int64()) for i in range(2)]
    with open_engine(tmp_path, Options()) as db:
        db.register_arrow("people", pa.table(columns, ["q0", "q1"]))
        people, keys = temp_table("people"), [column("q0"), column("q1")]
        assert count_classes(db, people, keys) == (Counter(rows.values()), 20_000)
        part, records = count_classes(db, people, keys, most=5_000)  # a part of them
        assert (part[1], records) == (pytest.approx(alone, rel=0.1), 20_000)
        db.register_arrow("people", pa.table(columns, ["q0", "q1"])[:0])
        assert count_classes(db, people, keys) == (Counter(), 0)


def test_matches_in_the_population_are_estimated_from_a_sample() -> None:
    """The mean of 40 samples lies within 5 % of the share that are right of all matches with unique records."""
    drawn = np.random.default_rng(7)
    cells = drawn.zipf(1.3, 30_000) % 5_000
    population = np.bincount(cells)
    estimates, true = [], []
    for _ in range(40):
        sample = np.bincount(cells[drawn.random(len(cells)) < 0.1], minlength=len(population))
        alone = int((sample == 1).sum())
        estimates.append(estimate_matches(alone, int((sample == 2).sum()), 0.1))
        true.append(alone / population[sample == 1].sum())
    assert np.mean(estimates) == pytest.approx(np.mean(true), rel=0.05)
