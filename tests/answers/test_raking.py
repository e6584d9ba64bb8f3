"""Tables by several columns moved towards what each column says alone."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.answers import estimate
from privsql.answers.estimate import Margin, fit_sums, rake_cells


def table(rng: np.random.Generator, rows: int, columns: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Estimates (cells, 2), and which row and which column each cell is in."""
    row, column = (part.ravel() for part in np.indices((rows, columns)))
    return rng.uniform(5, 50, (rows * columns, 2)), [row, column]


def test_one_margin_half_way() -> None:
    """Sums come half of the way, in proportion to the variances."""
    rng = np.random.default_rng(1)
    cells, (row, _) = table(rng, 3, 4)
    variance, wanted = rng.uniform(1, 9, cells.shape), rng.uniform(50, 90, (3, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "ROUNDS", 1)
        found = rake_cells(cells, variance, [Margin(row, wanted)])
    for r in range(3):
        gap = wanted[r] - cells[row == r].sum(axis=0)
        np.testing.assert_allclose(found[row == r].sum(axis=0), cells[row == r].sum(axis=0) + gap / 2)
        part = variance[row == r] / variance[row == r].sum(axis=0)
        np.testing.assert_allclose(found[row == r] - cells[row == r], gap / 2 * part)


def test_the_whole_way_is_least_squares() -> None:
    """Many whole rounds: both margins are met, and the change is variance times (a row's + a column's) multiplier."""
    rng = np.random.default_rng(2)
    cells, members = table(rng, 3, 4)
    variance = rng.uniform(1, 9, cells.shape)
    truth = cells + rng.standard_normal(cells.shape)
    margins = [Margin(member, np.zeros((member.max() + 1, 2))) for member in members]
    margins = [Margin(one.member, one.sum_cells(truth)) for one in margins]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "ROUNDS", 200)
        patch.setattr(estimate, "PART", 1.0)
        found = rake_cells(cells, variance, margins)
    for margin in margins:
        np.testing.assert_allclose(margin.sum_cells(found), margin.wanted)
    design = np.concatenate([np.eye(3)[members[0]], np.eye(4)[members[1]]], axis=1)
    for f in range(2):
        multipliers = (found - cells)[:, f] / variance[:, f]
        fitted = design @ np.linalg.lstsq(design, multipliers, rcond=None)[0]
        np.testing.assert_allclose(multipliers, fitted, atol=1e-9)


def test_what_is_certain_stays() -> None:
    """Cells without variance, a row of nothing but such, and a table that agrees with its margins."""
    rng = np.random.default_rng(3)
    cells, members = table(rng, 3, 4)
    variance = rng.uniform(1, 9, cells.shape)
    variance[:5] = 0
    margins = [Margin(member, np.full((member.max() + 1, 2), 100.0)) for member in members]
    found = rake_cells(cells, variance, margins)
    np.testing.assert_array_equal(found[:5], cells[:5])
    assert (found[5:] != cells[5:]).all()
    agreeing = [Margin(one.member, one.sum_cells(cells)) for one in margins]
    np.testing.assert_allclose(rake_cells(cells, variance, agreeing), cells)


def test_a_table_adds_up_within_its_bounds() -> None:
    """Cells take what is missing in proportion to their variance, as far as they can."""
    cells, variance = np.array([[1.0], [2.0], [3.0]]), np.array([[1.0], [1.0], [2.0]])
    least, most = np.zeros((3, 1)), np.array([[9.0], [9.0], [9.0]])
    np.testing.assert_allclose(fit_sums(cells, np.array([10.0]), (least, most), variance).ravel(), [2, 3, 5], atol=1e-6)
    most[2] = 4
    np.testing.assert_allclose(
        fit_sums(cells, np.array([10.0]), (least, most), variance).ravel(), [2.5, 3.5, 4], atol=1e-6
    )
    least[0] = 1
    np.testing.assert_allclose(
        fit_sums(cells, np.array([2.0]), (least, most), variance).ravel(), [1, 0.4, 0.6], atol=0.5
    )
    assert fit_sums(cells, np.array([2.0]), (least, most), variance).sum() == pytest.approx(2)
