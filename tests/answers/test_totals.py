"""Tables moved to what the answer without groups says."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.answers.estimate import fit_sums


def test_a_table_adds_up_within_its_bounds() -> None:
    """Cells take what is missing in proportion to their errors, as far as they can."""
    cells, errors = np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [1.0], [2.0]])
    least, most = np.zeros((3, 1)), np.array([[9.0], [9.0], [9.0]])
    np.testing.assert_allclose(fit_sums(cells, np.array([10.0]), (least, most), errors).ravel(), [2, 3, 5], atol=1e-6)
    most[2] = 4
    np.testing.assert_allclose(
        fit_sums(cells, np.array([10.0]), (least, most), errors).ravel(), [2.5, 3.5, 4], atol=1e-6
    )
    least[0] = 1
    np.testing.assert_allclose(fit_sums(cells, np.array([2.0]), (least, most), errors).ravel(), [1, 0.4, 0.6], atol=0.5)
    assert fit_sums(cells, np.array([2.0]), (least, most), errors).sum() == pytest.approx(2)
