"""Fakes that associations exclude are exchanged between buckets."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.errors import InfeasibleError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import fakes
from privsql.mechanisms.bucketize.layout import BucketRuns, runs_from_entries
from privsql.mechanisms.bucketize.model import Plan, Setting


def drawn(buckets: int = 420) -> tuple[BucketRuns, fakes.HiddenValues]:
    """Twelve values in buckets of four with two fakes."""
    setting, counts = Setting.from_counts({4: buckets}), np.full(12, buckets // 3)
    plan = Plan("one", setting, counts[:, None])
    found = fakes.hide_values(plan, counts, 2, "blocks", seed_key(1).random_generator("fakes"))
    return runs_from_entries(found.bids, np.repeat(np.arange(12), counts), 12, setting.items), found


def test_no_excluded_fake_is_left_where_others_can_take_it() -> None:
    """A fifth of all pairs of a bucket and a value are excluded: fakes move, and no count does."""
    real, hidden = drawn()
    known = np.argwhere(np.random.default_rng(2).random((420, 12)) < 0.2)
    found = fakes.avoid_excluded(
        real, hidden.fake_bids, hidden.fake_codes, known, seed_key(2).random_generator("fakes")
    )
    before, after = (set(zip(hidden.fake_bids.tolist(), codes.tolist(), strict=True)) for codes in (
        hidden.fake_codes, found.codes,
    ))  # fmt: skip
    excluded, own = (
        {tuple(pair) for pair in known.tolist()},
        set(zip(*(part.tolist() for part in real.listed_pairs), strict=True)),
    )
    assert len(before & excluded) > 80
    assert found.weak == len(after & excluded) == 0
    assert found.certain == len(own & excluded)
    assert len(after) == 840
    assert not after & own
    assert (np.bincount(found.codes, minlength=12) == np.bincount(hidden.fake_codes, minlength=12)).all()


def test_what_no_exchange_mends_stays_and_is_counted() -> None:
    """Everything is excluded in one bucket: its two fakes stay, and the request is refused unless they may."""
    real, hidden = drawn()
    known = np.array([[7, code] for code in range(12)])
    found = fakes.avoid_excluded(
        real, hidden.fake_bids, hidden.fake_codes, known, seed_key(2).random_generator("fakes")
    )
    assert (found.weak, found.certain) == (2, 4)
    with pytest.raises(InfeasibleError, match="2 fake values would be excluded"):
        fakes.refuse_weak(found.weak, "refuse")
    fakes.refuse_weak(found.weak, "weaker")


def test_nothing_excluded_changes_nothing() -> None:
    real, hidden = drawn(30)
    none = np.empty((0, 2), dtype=np.int64)
    found = fakes.avoid_excluded(real, hidden.fake_bids, hidden.fake_codes, none, seed_key(2).random_generator("fakes"))
    assert (found.codes == hidden.fake_codes).all()
    assert (found.weak, found.certain) == (0, 0)
