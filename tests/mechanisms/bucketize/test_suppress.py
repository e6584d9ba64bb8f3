"""Leaving out what is too frequent."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
from scipy.stats import chi2

from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize.plan import counts_after_suppression, spread_left_out
from support.enumeration import FALSE_ALARM


def test_as_few_records_as_possible_are_left_out() -> None:
    for counts in itertools.product(range(1, 7), repeat=3):
        found = counts_after_suppression(np.array(counts), Fraction(1, 2))
        candidates = [
            sum(trial) for trial in itertools.product(*(range(c + 1) for c in counts)) if 2 * max(trial) <= sum(trial)
        ]
        assert int(found.sum()) == max(candidates)
        assert 2 * found.max() <= found.sum()
    assert counts_after_suppression(np.array([3, 4]), Fraction(1, 3)).tolist() == [3, 4]


def test_records_are_left_out_at_random() -> None:
    """Each of 5 records of a value is left out 2 times in 5; false alarm 1e-6."""
    noise = seed_key(5).random_generator("spread")
    counts, left = np.array([5, 2]), np.array([3, 2])
    out = np.zeros(7)
    for _ in range(3000):
        bids = spread_left_out(np.array([7, 8, 9, 1, 2], dtype=np.int32), left, counts, noise)
        assert sorted(bids.tolist()) == [-1, -1, 1, 2, 7, 8, 9]
        out += bids < 0
    assert out[5:].tolist() == [0, 0]
    statistic = ((out[:5] - 1200) ** 2).sum() / (3000 * 0.4 * 0.6) * 4 / 5
    assert statistic < chi2.isf(FALSE_ALARM, 4)
