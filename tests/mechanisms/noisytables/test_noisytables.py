"""Noisy tables: least squares in closed form, tables that can be, and a model whose tables agree."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.dp_random import noise_scale, noisy_max, variance_of
from privsql.mechanisms.dp.noisy_tables import (
    Model,
    NoisyTable,
    ObservedTable,
    budget_weight,
    divide_budget,
    fit_prior,
    fit_squares,
    nearest_nonnegative,
    rake_table,
    strongest_pairs,
)
from privsql.mechanisms.dp.noisy_tables_release import CellSums, SumEstimator, error_above_zero

SIZES = (2, 3, 4)


def tables(cliques: list[tuple[int, ...]], seed: int = 1, sizes: tuple[int, ...] = SIZES) -> list[NoisyTable]:
    draw = np.random.default_rng(seed)
    return [
        NoisyTable(one, Fraction(k + 1, 3), draw.integers(-5, 60, [sizes[i] for i in one]))
        for k, one in enumerate(cliques)
    ]


def dense(measured: list[NoisyTable], sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Generalized least squares over all cells of the full table, by a pseudo-inverse: cells and their covariance."""
    rows, values, weights = [], [], []
    for one in measured:
        for cell in product(*(range(sizes[i]) for i in one.columns)):
            row = np.zeros(sizes)
            row[tuple(cell[one.columns.index(i)] if i in one.columns else slice(None) for i in range(len(sizes)))] = 1
            rows.append(row.ravel())
            values.append(one.counts[cell])
            weights.append(1 / np.sqrt(one.variance))
    inverse = np.linalg.pinv(np.array(rows) * np.array(weights)[:, None])
    return (inverse @ (np.array(values) * np.array(weights))).reshape(sizes), inverse @ inverse.T


@pytest.mark.parametrize(
    "cliques",
    [[(0,), (1,), (2,)], [(0, 1), (1, 2)], [(0,), (0, 1), (0, 2), (1, 2)], [(0, 1, 2), (0, 2)], [(0, 1, 2)], [(2,)]],
)
def test_the_closed_form_is_least_squares(cliques: list[tuple[int, ...]]) -> None:
    measured = tables(cliques)
    squares, (cells, covariance) = fit_squares(measured, SIZES), dense(measured, SIZES)
    draw = np.random.default_rng(3)
    for columns in {one for clique in cliques for k in range(len(clique) + 1) for one in combinations(clique, k)}:
        others = tuple(i for i in range(3) if i not in columns)
        assert squares.estimate_table(columns) == pytest.approx(cells.sum(axis=others))
        weights = draw.normal(size=[SIZES[i] for i in columns])
        wide = np.broadcast_to(np.expand_dims(weights, others), SIZES).ravel()
        assert squares.sum_variance(columns, weights) == pytest.approx(wide @ covariance @ wide)
        assert squares.is_measured(columns)
    assert squares.is_measured((0, 1, 2)) == ((0, 1, 2) in cliques)


def test_errors_are_as_the_variances_have_them() -> None:
    """4,000 draws: a relative error of the variance above 15 % has a false-alarm rate below 10^-9."""
    squares, noise = fit_squares(tables([(0,), (0, 1)]), SIZES), np.random.default_rng(5)
    weights = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]])
    drawn = [float((squares.draw_errors((0, 1), noise).estimate_table((0, 1)) * weights).sum()) for _ in range(4000)]
    assert np.var(drawn) == pytest.approx(squares.sum_variance((0, 1), weights), rel=0.15)


@given(st.lists(st.integers(-20, 50), min_size=1, max_size=8), st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_the_nearest_table_has_the_total_and_is_nearest(cells: list[int], total: int) -> None:
    table = np.array(cells, dtype=float)
    found = nearest_nonnegative(table, total)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(total)
    draw = np.random.default_rng(len(cells))
    others = draw.dirichlet(np.ones(len(cells)), 20) * total
    assert ((found - table) ** 2).sum() <= ((others - table) ** 2).sum(axis=1).min() + 1e-6


def test_raking_meets_its_margins() -> None:
    rows, columns = np.array([3.0, 7.0]), np.array([2.0, 5.0, 3.0])
    found = rake_table(np.ones((2, 3)), [((0,), rows), ((1,), columns)], 20)
    assert found == pytest.approx(np.outer(rows, columns) / 10)
    assert rake_table(np.zeros((2, 3)), [((0,), rows)], 1).sum() == 0


def test_budgets_divide_exactly_by_square_roots() -> None:
    assert [budget_weight(cells) for cells in (1, 4, 9, 10_000, 2)] == [1000, 2000, 3000, 100_000, 1414]
    parts = divide_budget(Fraction(7, 10), [budget_weight(cells) for cells in (2, 30, 7)])
    assert sum(parts) == Fraction(7, 10)
    assert parts[1] > parts[2] > parts[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 3), Fraction(7, 11), Fraction(9, 4)])
def test_opendp_agrees_on_what_choices_spend(epsilon: Fraction) -> None:
    """Scores of counts change all in one direction, gaps between tables don't: those spend twice."""
    for monotonic, width in ((True, noise_scale(epsilon)), (False, noise_scale(epsilon / 2))):
        assert noisy_max(width, monotonic=monotonic).map(1) == pytest.approx(float(epsilon), rel=1e-12)
    assert noisy_max(noise_scale(epsilon), monotonic=False).map(1) == pytest.approx(2 * float(epsilon), rel=1e-12)


def population(seed: int = 0, records: int = 20_000) -> np.ndarray:
    draw = np.random.default_rng(seed)
    first = draw.integers(0, 4, records)
    second = np.where(draw.random(records) < 0.7, first, draw.integers(0, 4, records))
    third = np.where(draw.random(records) < 0.6, second % 3, draw.integers(0, 3, records))
    return np.stack([first, second, third], axis=1)


def measured_by(codes: np.ndarray, cliques: list[tuple[int, ...]], epsilon: Fraction, seed: int) -> list[NoisyTable]:
    sizes, draw, stop = (4, 4, 3), np.random.default_rng(seed), -np.expm1(-float(epsilon))
    found = []
    for one in cliques:
        shape = [sizes[i] for i in one]
        true = np.bincount(np.ravel_multi_index(codes[:, list(one)].T, shape), minlength=prod(shape)).reshape(shape)
        found.append(NoisyTable(one, epsilon, true + draw.geometric(stop, shape) - draw.geometric(stop, shape)))
    return found


PAIRS = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]


@pytest.mark.parametrize("cliques", [PAIRS, PAIRS[:3], [*PAIRS[:3], (0, 1), (1, 2)], [*PAIRS, (0, 1, 2)]])
def test_tables_of_a_model_are_possible_and_agree(cliques: list[tuple[int, ...]]) -> None:
    """Groups of a table add up to the table without the group."""
    codes = population(records=3000)
    model = Model(measured_by(codes, cliques, Fraction(1, 5), 1), (4, 4, 3))
    whole = model.fitted_table((0, 1, 2))
    for columns in [one for k in range(4) for one in combinations(range(3), k)]:
        table = model.fitted_table(columns)
        assert table.min() >= 0
        others = tuple(i for i in range(3) if i not in columns)
        assert whole.sum(axis=others) == pytest.approx(table, rel=0.02, abs=3)


def test_a_pair_that_was_not_measured_follows_the_chain() -> None:
    codes = population()
    model = Model(measured_by(codes, [*PAIRS[:3], (0, 1), (1, 2)], Fraction(1), 2), (4, 4, 3))
    true = np.histogram2d(codes[:, 0], codes[:, 2], bins=(4, 3))[0]
    independent = np.outer(true.sum(axis=1), true.sum(axis=0)) / true.sum()
    chained, apart = np.abs(model.fitted_table((0, 2)) - true).sum(), np.abs(independent - true).sum()
    assert chained < apart / 4
    assert strongest_pairs(model.agreeing_tables.larger, 3)[1] == {0, 2}


def test_cells_far_from_what_is_expected_are_believed() -> None:
    """Most cells are noise around what is expected; one is not, and keeps what it has."""
    draw = np.random.default_rng(1)
    expected = np.full((20, 20), 100.0)
    table = expected + draw.normal(0, 10, (20, 20))
    table[3, 4] += 500
    seen = ObservedTable(table, expected, 100.0)
    believed = fit_prior([seen]).posterior_table(seen)
    assert believed.mean[3, 4] == pytest.approx(table[3, 4], rel=0.05)
    assert np.abs(believed.mean - expected)[0].mean() < np.abs(table - expected)[0].mean() / 2
    assert believed.doubt.min() >= 0


def test_how_far_what_is_not_negative_lies_from_its_mean() -> None:
    """Against draws; half of the variance where the mean is 0, all of it far from there."""
    draw, mean = np.random.default_rng(4), np.array([0.0, 1.0, 5.0, 100.0, 3.0])
    error = np.array([10.0, 10.0, 10.0, 10.0, 0.0])
    drawn = np.maximum(mean + error * draw.standard_normal((200_000, 5)), 0)
    found = error_above_zero(mean, error)
    assert found == pytest.approx(np.sqrt(((drawn - mean) ** 2).mean(axis=0)), rel=0.01)
    assert found[[0, 3, 4]] == pytest.approx([10 / np.sqrt(2), 10, 0], rel=1e-6)


def test_a_cell_that_a_pair_has_nobody_in_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pair's count is far below 0 by chance, and no table that is drawn has anybody there."""
    tables = measured_by(population(records=5000), PAIRS, Fraction(1, 20), 3)
    low = [replace(one, counts=one.counts.copy()) for one in tables]
    low[3].counts[1, 2] = -300
    model = Model(low, (4, 4, 3))
    cells = [int(np.ravel_multi_index((1, 2, k), (4, 4, 3))) for k in range(3)]
    sums = CellSums((0, 1, 2), np.array(cells), np.arange(3), np.ones(3), 3)
    monkeypatch.setattr(SumEstimator, "_draws", lambda self, columns: self.model.fitted_table(columns)[None])
    found, variance = SumEstimator(model).estimate_sums(sums)
    assert found.max() < 1
    pair = model.squares.sum_variance((0, 1), np.eye(1, 16).reshape(4, 4))
    assert np.sqrt(variance).sum() > 0.3 * np.sqrt(pair)


def test_a_value_that_seems_to_be_nobodys_is_in_doubt() -> None:
    """A third of each table says that nobody has it: a cell of three columns with it may hold some all the same."""
    tables = measured_by(population(records=5000), PAIRS, Fraction(1, 20), 3)
    low = [replace(one, counts=one.counts.copy()) for one in tables]
    for one in low:
        if 2 in one.columns:
            one.counts[..., 1] = -500
    model = Model(low, (4, 4, 3))
    assert model.singles[2][1] == 0
    cell = np.array([int(np.ravel_multi_index((1, 1, 1), (4, 4, 3)))])
    found, variance = SumEstimator(model).estimate_sums(
        CellSums((0, 1, 2), cell, np.zeros(1, dtype=np.int64), np.ones(1), 1)
    )
    assert found[0] < 1e-3
    alone = model.squares.sum_variance((2,), np.array([0.0, 1.0, 0.0])) / 2
    shares = [model.singles[column][1] / model.total for column in (0, 1)]
    assert variance[0] >= alone * (shares[0] * shares[1]) ** 2 * (1 - 1e-9)


@pytest.mark.parametrize("columns", [(0,), (0, 1), pytest.param((0, 1, 2), marks=pytest.mark.slow)])
def test_intervals_cover_what_is_asked(columns: tuple[int, ...]) -> None:
    """Of 40 releases (10 of three columns) 90 to 100 % within two standard errors: at 95 % a false alarm in 10^6."""
    codes = population(records=5000)
    shape = [(4, 4, 3)[i] for i in columns]
    true = np.bincount(np.ravel_multi_index(codes[:, list(columns)].T, shape), minlength=prod(shape))
    sums = CellSums(columns, np.arange(prod(shape)), np.arange(prod(shape)), np.ones(prod(shape)), prod(shape))
    inside = []
    for seed in range(40 if len(columns) < 3 else 10):
        model = Model(measured_by(codes, PAIRS, Fraction(1, 20), seed), (4, 4, 3))
        found, variance = SumEstimator(model).estimate_sums(sums)
        inside += list(np.abs(found - true) <= 2 * np.sqrt(variance))
    assert 0.9 <= np.mean(inside) <= 1


def test_what_is_drawn_for_many_groups_is_what_is_worked_out_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = population(records=5000)
    model = Model(measured_by(codes, PAIRS, Fraction(1, 10), 4), (4, 4, 3))
    sums = CellSums((0, 1), np.arange(16), np.arange(16) // 4, np.ones(16), 4)
    exact = SumEstimator(model).estimate_sums(sums)[1]
    monkeypatch.setattr("privsql.mechanisms.dp.noisy_tables_release.ALL", 0)
    drawn = SumEstimator(model).estimate_sums(sums)[1]
    assert drawn == pytest.approx(exact, rel=0.6)


def test_the_variance_of_the_noise() -> None:
    assert NoisyTable((0,), Fraction(1, 2), np.zeros(2, dtype=np.int64)).variance == variance_of(Fraction(1, 2))
