"""Arithmetic of arrays: flows of whole numbers."""

from __future__ import annotations

import numpy as np

from privsql.model.arrays import largest_transport


def test_a_flow_counts_what_can_go_from_one_kind_of_sums_to_another() -> None:
    ways, one = (np.array([0, 0, 1, 2]), np.array([0, 1, 2, 2])), np.ones(3, dtype=np.int64)
    assert largest_transport(one, one, ways, np.ones(4, dtype=np.int64)) == 2
    assert largest_transport(one, 2 * one, ways, np.ones(4, dtype=np.int64)) == 3
    nothing = np.zeros(0, dtype=np.int64)
    assert largest_transport(nothing, one, (nothing, nothing), nothing) == 0
