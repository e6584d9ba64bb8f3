"""Layouts against plain counting: random plans, and what their pieces, runs and places say of each bucket."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.bucketize.layout import make_layout
from privsql.mechanisms.bucketize.model import Plan, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from privsql.keyed_random import Shuffler
    from privsql.mechanisms.bucketize.layout import BucketRuns, Pieces
    from privsql.mechanisms.bucketize.model import Bids, GroupTree, Ints

    Table = NDArray[np.int64]


def random_plan(rng: np.random.Generator) -> Plan:
    """Up to three sizes of up to 60 buckets, up to 15 values, some of them rare."""
    sizes = rng.choice(np.arange(1, 10), rng.integers(1, 4), replace=False)
    setting = Setting.from_counts({int(size): int(rng.integers(1, 60)) for size in sizes})
    shares = rng.dirichlet(np.full(rng.integers(1, 16), 0.6))
    columns = [rng.multinomial(size * buckets, shares) for size, buckets in setting.items]
    return Plan("optimal", setting, np.array(columns, dtype=np.int64).T)


def draw_bids(plan: Plan, layout: str, noise: Shuffler, trees: Sequence[GroupTree] = ()) -> Bids:
    """For each value in turn the buckets of its records, in uniformly random order (n,)."""
    return make_layout(plan, layout, noise, trees).draw_places(noise)


def counted(pieces: Pieces, buckets: int) -> Table:
    """Records of each value in each bucket (m, B), rank by rank as the docstring has it."""
    table = np.zeros((pieces.values, buckets), dtype=np.int64)
    columns = (pieces.code, pieces.lo, pieces.hi, pieces.start, pieces.width, pieces.shift)
    for code, lo, hi, start, width, shift in zip(*(column.tolist() for column in columns), strict=True):
        for rank in range(lo, hi):
            table[code, start + (shift + rank - lo) % width] += 1
    return table


def assert_runs(found: BucketRuns, table: Table, setting: Setting) -> None:
    """Everything that runs say against the table of counts (m, B)."""
    rows = found.as_stream().read_all()
    code, bid = np.nonzero(table)
    order = np.lexsort((code, bid))
    assert rows["bid"].to_pylist() == bid[order].tolist()
    assert rows["code"].to_pylist() == code[order].tolist()
    assert rows["records"].to_pylist() == table[code, bid][order].tolist()
    assert found.listed_counts.tolist() == table.sum(axis=1).tolist()
    bids, codes = found.listed_pairs
    again = np.zeros_like(table)
    np.add.at(again, (codes, bids), 1)
    assert (again == table).all()
    met = found.count_meetings()
    expected = {}
    ends = np.cumsum([0, *setting.buckets]).tolist()
    for (size, _), (begin, end) in zip(setting.items, pairwise(ends), strict=True):
        square = table[:, begin:end] @ table[:, begin:end].T
        expected |= {(size, i, j): square[i, j] for i, j in zip(*np.nonzero(np.triu(square)), strict=True)}
    names = ("size", "first", "second")
    keys = list(zip(*(met[name].to_pylist() for name in names), strict=True))
    assert keys == sorted(expected)
    assert met["pairs"].to_pylist() == [expected[key] for key in keys]


def assert_pieces(pieces: Pieces, plan: Plan, noise: Shuffler) -> list[tuple[Table, Ints]]:
    """Sizes are exact, every record is placed, runs and places agree; of each size its table and its allocation."""
    sizes = np.repeat(plan.setting.sizes, plan.setting.buckets)
    table = counted(pieces, len(sizes))
    assert (table.sum(axis=0) == sizes).all()
    assert_runs(pieces.list_runs(plan.setting), table, plan.setting)
    bids = pieces.draw_places(noise)
    again = np.zeros_like(table)
    np.add.at(again, (np.repeat(np.arange(len(table)), pieces.counts), bids), 1)
    assert (again == table).all()
    told = pieces.make_segments()
    ranks = [np.concatenate([[n], np.arange(a, b)]) for n, a, b in zip(told.part, told.lo, told.hi, strict=True)]
    assert [r for _, *own in ranks for r in own] == [r for records in pieces.counts for r in range(records)]
    assert [b for n, a, b in zip(told.number, told.lo, told.hi, strict=True) for b in range(n, n + b - a)] == (
        pieces.rank_places().tolist()
    )
    parts = np.split(table, np.cumsum(plan.setting.buckets)[:-1], axis=1)
    for part, records in zip(parts, plan.allocation.T, strict=True):
        assert (part.sum(axis=1) == records).all()
    return list(zip(parts, plan.allocation.T, strict=True))
