"""Pieces and runs against plain counting: random plans, any size and number of values."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from privsql.errors import GuaranteeError
from privsql.mechanisms.bucketize.layout import blocks, runs
from privsql.mechanisms.bucketize.layout.arrange import arrange
from privsql.mechanisms.bucketize.layout.pieces import Pieces, joined
from privsql.mechanisms.bucketize.model import Plan, Setting
from privsql.noise import seed_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from privsql.mechanisms.bucketize.layout.runs import Runs

    Table = NDArray[np.int64]


def random_plan(rng: np.random.Generator) -> Plan:
    """Up to three sizes of up to 60 buckets, up to 15 values, some of them rare."""
    sizes = rng.choice(np.arange(1, 10), rng.integers(1, 4), replace=False)
    setting = Setting.of({int(size): int(rng.integers(1, 60)) for size in sizes})
    shares = rng.dirichlet(np.full(rng.integers(1, 16), 0.6))
    columns = [rng.multinomial(size * buckets, shares) for size, buckets in setting.items]
    return Plan("optimal", setting, np.array(columns, dtype=np.int64).T)


def counted(pieces: Pieces, buckets: int) -> Table:
    """Records of each value in each bucket (m, B), rank by rank as the docstring has it."""
    table = np.zeros((pieces.values, buckets), dtype=np.int64)
    columns = (pieces.code, pieces.lo, pieces.hi, pieces.start, pieces.width, pieces.shift)
    for code, lo, hi, start, width, shift in zip(*(column.tolist() for column in columns), strict=True):
        for rank in range(lo, hi):
            table[code, start + (shift + rank - lo) % width] += 1
    return table


def assert_runs(found: Runs, table: Table, setting: Setting) -> None:
    """Everything that runs say against the table of counts (m, B)."""
    rows = found.table().read_all()
    code, bid = np.nonzero(table)
    order = np.lexsort((code, bid))
    assert rows["bid"].to_pylist() == bid[order].tolist()
    assert rows["code"].to_pylist() == code[order].tolist()
    assert rows["records"].to_pylist() == table[code, bid][order].tolist()
    assert found.listed.tolist() == table.sum(axis=1).tolist()
    bids, codes = found.pairs
    again = np.zeros_like(table)
    np.add.at(again, (codes, bids), 1)
    assert (again == table).all()
    met = found.meetings()
    expected = {}
    ends = np.cumsum([0, *setting.buckets]).tolist()
    for (size, _), (begin, end) in zip(setting.items, pairwise(ends), strict=True):
        square = table[:, begin:end] @ table[:, begin:end].T
        expected |= {(size, i, j): square[i, j] for i, j in zip(*np.nonzero(np.triu(square)), strict=True)}
    names = ("size", "first", "second")
    keys = list(zip(*(met[name].to_pylist() for name in names), strict=True))
    assert keys == sorted(expected)
    assert met["pairs"].to_pylist() == [expected[key] for key in keys]


@pytest.mark.parametrize("plans", [120, pytest.param(3000, marks=pytest.mark.slow)])
def test_random_plans(plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are exact, a count per bucket is the floor or the ceiling of its mean, so none is above F_iS."""
    rng = np.random.default_rng(plans)
    for number in range(plans):
        plan, noise = random_plan(rng), seed_key(number).stream("layout")
        monkeypatch.setattr(blocks, "BLOCKS", int(rng.integers(1, 80)))
        pieces = arrange(plan, "round-robin" if number % 5 == 0 else "blocks", noise)
        assert isinstance(pieces, Pieces)
        sizes = np.repeat(plan.setting.sizes, plan.setting.buckets)
        table = counted(pieces, len(sizes))
        assert (table.sum(axis=0) == sizes).all()
        ends = np.cumsum([0, *plan.setting.buckets]).tolist()
        for j, (begin, end) in enumerate(pairwise(ends)):
            part, records = table[:, begin:end], plan.allocation[:, j]
            assert (part.sum(axis=1) == records).all()
            assert (part.min(axis=1) >= records // (end - begin)).all()
            assert (part.max(axis=1) <= -(-records // (end - begin))).all()
        assert_runs(pieces.runs(plan.setting), table, plan.setting)
        bids = pieces.places(noise)
        again = np.zeros_like(table)
        np.add.at(again, (np.repeat(np.arange(len(table)), pieces.counts), bids), 1)
        assert (again == table).all()


def test_ranks_by_hand() -> None:
    """Three buckets from 4 on, from the second of them: 5, 6, 4, 5."""
    one = np.ones(1, dtype=np.int64)
    pieces = joined(2, [(one, 4 * one, 4 * one, 3 * one, one)])
    assert pieces.ranked().tolist() == [5, 6, 4, 5]
    assert pieces.counts.tolist() == [0, 4]


def test_long_runs_are_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed over at a time does not change what is listed, nor where places are written in parts."""
    plan, noise = random_plan(np.random.default_rng(3)), seed_key(1).stream("layout")
    pieces = arrange(plan, "blocks", noise)
    whole, ranked = pieces.runs(plan.setting).table().read_all(), pieces.ranked()
    monkeypatch.setattr(runs, "BATCH", 7)
    monkeypatch.setattr("privsql.mechanisms.bucketize.layout.pieces.AT_ONCE", 5)
    assert pieces.runs(plan.setting).table().read_all().equals(whole)
    assert (pieces.ranked() == ranked).all()


def test_a_wrong_table_has_no_runs() -> None:
    """A bucket with a record too many, one too few, or one beyond the last is no release."""
    setting = Setting.of({2: 3})
    for records, width in (([4, 3], [3, 3]), ([3, 2], [3, 3]), ([3, 3], [3, 4])):
        code = np.arange(2)
        columns = (code, np.array(records), np.zeros(2, dtype=np.int64), np.array(width), np.array([0, 1]))
        with pytest.raises(GuaranteeError):
            joined(2, [columns]).runs(setting)


def test_blocks_are_many_and_narrow() -> None:
    """1,024 blocks of a class at least, where it has as many buckets, and none wider than 1,200."""
    for buckets in (1, 5, 1024, 5000, 1024 * 1200, 1024 * 1200 + 1, 12_500_000):
        widths = blocks.widths(buckets)
        assert sum(widths) == buckets
        assert len(widths) >= min(1024, buckets)
        assert max(widths) <= 1200
        assert max(widths) - min(widths) <= 1
