"""Pieces and runs against plain counting: random plans, any size and number of values."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.errors import GuaranteeError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import layout
from privsql.mechanisms.bucketize.layout import Pieces, join_pieces, make_layout
from privsql.mechanisms.bucketize.model import Setting
from support.layouts import assert_pieces, random_plan


@pytest.mark.parametrize("plans", [60, pytest.param(1200, marks=pytest.mark.soak(part="cases"))])
def test_random_plans(plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are exact, a count per bucket is the floor or the ceiling of its mean, so none is above F_iS."""
    rng = np.random.default_rng(plans)
    for number in range(plans):
        plan, noise = random_plan(rng), seed_key(number).random_generator("layout")
        monkeypatch.setattr(layout, "BLOCKS", int(rng.integers(1, 80)))
        pieces = make_layout(plan, "round-robin" if number % 5 == 0 else "blocks", noise)
        assert isinstance(pieces, Pieces)
        for part, records in assert_pieces(pieces, plan, noise):
            assert (part.min(axis=1) >= records // part.shape[1]).all()
            assert (part.max(axis=1) <= -(-records // part.shape[1])).all()


def test_ranks_by_hand() -> None:
    """Three buckets from 4 on, from the second of them: 5, 6, 4, 5."""
    one = np.ones(1, dtype=np.int64)
    pieces = join_pieces(2, [(one, 4 * one, 4 * one, 3 * one, one)])
    assert pieces.rank_places().tolist() == [5, 6, 4, 5]
    assert pieces.counts.tolist() == [0, 4]


def test_long_runs_are_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed over at a time does not change what is listed, nor where places are written in parts."""
    plan, noise = random_plan(np.random.default_rng(3)), seed_key(1).random_generator("layout")
    pieces = make_layout(plan, "blocks", noise)
    whole, ranked = pieces.list_runs(plan.setting).as_stream().read_all(), pieces.rank_places()
    monkeypatch.setattr(layout, "BATCH", 7)
    monkeypatch.setattr("privsql.mechanisms.bucketize.layout.AT_ONCE", 5)
    assert pieces.list_runs(plan.setting).as_stream().read_all().equals(whole)
    assert (pieces.rank_places() == ranked).all()


def test_pairs_are_counted_alike_by_a_sparse_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    for number in range(20):
        plan = random_plan(rng)
        runs = make_layout(plan, "blocks", seed_key(number).random_generator("layout")).list_runs(plan.setting)
        monkeypatch.setattr(layout, "FEW", 2**62)
        dense = runs.count_meetings()
        monkeypatch.setattr(layout, "FEW", 0)
        assert runs.count_meetings().equals(dense)


def test_a_wrong_table_has_no_runs() -> None:
    """A bucket with a record too many, one too few, or one beyond the last is no release."""
    setting = Setting.from_counts({2: 3})
    for records, width in (([4, 3], [3, 3]), ([3, 2], [3, 3]), ([3, 3], [3, 4])):
        code = np.arange(2)
        columns = (code, np.array(records), np.zeros(2, dtype=np.int64), np.array(width), np.array([0, 1]))
        with pytest.raises(GuaranteeError):
            join_pieces(2, [columns]).list_runs(setting)


def test_blocks_are_many_and_narrow() -> None:
    """1,024 blocks of a class at least, where it has as many buckets, and none wider than 1,200."""
    for buckets in (1, 5, 1024, 5000, 1024 * 1200, 1024 * 1200 + 1, 12_500_000):
        widths = layout.block_widths(buckets)
        assert sum(widths) == buckets
        assert len(widths) >= min(1024, buckets)
        assert max(widths) <= 1200
        assert max(widths) - min(widths) <= 1
