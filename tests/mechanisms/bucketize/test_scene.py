"""What an adversary sees of a part of a release's buckets."""

from __future__ import annotations

import numpy as np

from privsql.mechanisms.bucketize.estimator import ListedPairs


def test_a_value_that_no_bucket_of_a_sample_holds_is_seen_as_itself() -> None:
    pairs = np.array([[4.0, 2.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 0.0]])
    found = ListedPairs(pairs / 2, pairs.diagonal(), [2]).make_channel(None).channel
    assert found.mean.tolist() == [[4 / 6, 2 / 6, 0.0], [2 / 8, 6 / 8, 0.0], [0.0, 0.0, 1.0]]
    assert found.records[2] < 1e-5
