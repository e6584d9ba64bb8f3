"""Counts inside groups: mean and variance over all choices, and how unlike the values of a group are taken to be."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

import privsql as api
from privsql.answers.estimate import AmountMoments, count_intervals, round_bounds
from privsql.mechanisms.permute import answers, mechanism
from privsql.mechanisms.permute.answers import Contents, GroupDifference

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.answers.channel import Floats

SIZE, GROUPS = 120, 150  # of a made table: records of a group, half of them of each of its two values


def held(*groups: dict[int, int]) -> Contents:
    """Groups by the records that each value has in them."""
    rows = [(g, value, records) for g, own in enumerate(groups) for value, records in sorted(own.items())]
    group, code, records = np.array(rows, dtype=np.int64).T
    return Contents(group, code, records, len(groups), int(code.max()) + 1)


def test_all_choices_of_two_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean, variance and extremes of a count."""
    monkeypatch.setattr(answers, "unlike", lambda _, met: GroupDifference(np.zeros(len(met)), np.zeros(len(met))))
    found = held({0: 2, 1: 3}, {1: 1, 2: 3})
    met, asked = np.array([[2.0, 3.0]]), np.array([[0.0], [1.0], [0.0]])
    values = ([0, 0, 1, 1, 1], [1, 2, 2, 2])
    drawn = [
        sum(value == 1 for value in (*first[:2], *second[:3]))
        for first in itertools.permutations(values[0])
        for second in itertools.permutations(values[1])
    ]
    parts = mechanism.bound_parts(found, met, asked)
    assert parts.mean[0, 0] == pytest.approx(np.mean(drawn))
    assert (parts.least[0, 0], parts.most[0, 0]) == (min(drawn), max(drawn))
    assert answers.sharing_variances(found, met, asked)[0][0, 0] == pytest.approx(np.var(drawn))
    each, _ = answers.sharing_variances(found, met, np.array([asked]))  # values told set by set
    assert each[0, 0] == pytest.approx(np.var(drawn))


def test_sums_over_all_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of -3 and 3 in one group, where all are asked about and one record in two has a value that is asked for."""
    monkeypatch.setattr(
        answers, "unlike_amounts", lambda _, met, *__: GroupDifference(np.zeros(len(met)), np.zeros(len(met)))
    )
    none, second = np.zeros(1), np.array([36.0])
    added = AmountMoments(np.array([4.0]), none, second, none, none, none, np.zeros((1, 1)))
    sums = [
        sum(a for a, value in zip((-3, 3, -3, 3), one, strict=True) if value)
        for one in itertools.permutations([0, 0, 1, 1])
    ]
    asked = np.array([[0.0], [1.0]])
    found = answers.amount_variances(held({0: 2, 1: 2}), np.array([[4.0]]), asked, added)[0, 0]
    assert np.var(sums) * 3 / 4 == pytest.approx(found)  # (|g| - 1)/|g|: as if they were drawn one by one


def halved(apart: GroupDifference) -> Floats:
    """E[d^2] where half of a group's records have values that are asked for (R,)."""
    return 4 * apart.rough + apart.smooth


def test_values_of_their_own_and_a_trend_by_simulation() -> None:
    """Groups of 60 values: v_1, v_2 and d of levels that are each value's own, and of a walk from value to value."""
    rng, size = np.random.default_rng(6), 60
    own = rng.standard_normal((20_000, 3, size))
    walk = np.cumsum(own.reshape(-1, 3 * size), axis=1).reshape(own.shape)
    for levels, walks in ((own, False), (walk, True)):
        middle = levels.mean(axis=2)
        apart = GroupDifference.from_differences(
            *(np.array([((middle[:, 0] - middle[:, k]) ** 2).mean()]) for k in (1, 2))
        )
        for first in (6, 30, 54):
            f = first / size
            gap = levels[:, 0, :first].mean(axis=1) - levels[:, 0, first:].mean(axis=1)
            expected = apart.rough[0] / (f * (1 - f)) + apart.smooth[0]
            assert expected == pytest.approx((gap**2).mean(), rel=0.1), (walks, first)


@pytest.mark.parametrize("t", [0.1, 0.3, 1.0])
def test_strength_of_amounts_is_told_by_neighbours(t: float) -> None:
    """Means of groups that differ by t standard deviations; groups without anybody tell nothing."""
    rng = np.random.default_rng(int(10 * t))
    found = held(*({2 * g: SIZE // 2, 2 * g + 1: SIZE // 2} for g in range(GROUPS)))
    met = rng.integers(0, 40, (10, GROUPS)) * (rng.random((10, GROUPS)) < 0.9)
    means = 7 * t / np.sqrt(2) * rng.standard_normal(met.shape)
    sums = means * met + 7 * np.sqrt(met) * rng.standard_normal(met.shape)
    apart = halved(answers.unlike_amounts(found, met.astype(np.float64), sums, np.full(10, 49.0)))
    assert apart.mean() == pytest.approx(2 * t**2, rel=0.25, abs=0.02)


def test_who_is_next_to_whom() -> None:
    """The group that begins after all of another's values, where groups overlap too; a group of one value is none's."""
    found = held({0: 1, 1: 1}, {2: 1, 3: 1}, {1: 1, 2: 1}, {4: 5})
    one, other = answers.neighbouring_groups(found)
    assert dict(zip(one.tolist(), other.tolist(), strict=True)) == {0: 1, 1: 3, 2: 3}
    assert [len(part) for part in answers.neighbouring_groups(held({0: 2, 1: 2}))] == [0, 0]


def made(t: float, seed: int) -> tuple[Contents, Floats, Floats]:
    """What groups of two values hold, who of them is asked about (1, B), and the true counts of the first values (B,).

    The log-odds of being asked about differ by N(0, 2 t^2) between the values of a group, and by N(0, t^2) between
    two groups.
    """
    rng = np.random.default_rng([seed, int(100 * t)])
    found = held(*({2 * g: SIZE // 2, 2 * g + 1: SIZE // 2} for g in range(GROUPS)))
    middle = -1 + t / np.sqrt(2) * rng.standard_normal(GROUPS)
    apart = t * np.sqrt(2) * rng.standard_normal(GROUPS) / 2
    first, second = (rng.binomial(SIZE // 2, 1 / (1 + np.exp(-middle - sign * apart))) for sign in (1, -1))
    return found, (first + second)[None].astype(np.float64), first.astype(np.float64)


@pytest.mark.parametrize("t", [0.0, 0.2, 0.4, 0.6])
def test_strength_is_told_by_neighbours(t: float) -> None:
    """The mean of ten tables is near the truth, and none takes nothing for it."""
    apart = np.array([halved(answers.unlike(*made(t, seed)[:2]))[0] for seed in range(10)])
    true = 2 * t**2
    assert 0.75 * true <= apart.mean() <= 1.25 * true + 0.02
    assert apart.min() >= 0.05 * true


@pytest.mark.parametrize("t", [0.1, 0.4, 1.0])
def test_intervals_of_counts_inside_groups_cover(t: float) -> None:
    """Of 1,500 at 95 % 93 to 99.5 (false alarm 0.001), and errors are as large as is said."""
    covered, squares = [], []
    for seed in range(10):
        found, met, true = made(t, seed)
        asked = np.zeros((found.values, GROUPS))
        asked[2 * np.arange(GROUPS), np.arange(GROUPS)] = 1
        parts = mechanism.bound_parts(found, met, asked)
        variance, judged = (part[0] for part in answers.sharing_variances(found, met, asked))
        error = np.sqrt(variance)
        degrees = answers.DEGREES * (variance / np.maximum(judged, 1e-9)) ** 2
        low, high = round_bounds(*count_intervals(parts.mean[0], error, 0.95, degrees))
        covered += list((low <= true) & (true <= high))
        squares += list(((parts.mean[0] - true) / error) ** 2)
    assert 0.93 <= np.mean(covered) <= 0.995
    assert 0.8 <= np.sqrt(np.mean(squares)) <= 1.2


def test_nobody_and_everybody_tell_nothing() -> None:
    """A set without records, one of all of them, and groups that have one value only: no error, no warning."""
    found = held({0: 3, 1: 3}, {2: 4, 3: 2}, {4: 6})
    met = np.array([[0.0, 0.0, 0.0], [6.0, 6.0, 6.0], [0.0, 0.0, 3.0]])
    with np.errstate(all="raise"):
        variance, _ = answers.sharing_variances(found, met, np.eye(5))
    assert (variance == 0).all()


@pytest.mark.slow
def test_large_releases_are_answered(firm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other; what their channel tells is left out."""
    sql, found = "SELECT COUNT(*) FROM ill WHERE age < 40 AND salary BETWEEN 100 AND 300", []
    for most in (answers.MOST_GROUPS, 1):
        monkeypatch.setattr(answers, "MOST_GROUPS", most)
        with api.open(firm / "ill.duckdb") as release:
            found.append(release.query(sql).rows)
            assert (release.answers.channel is None) == (most == 1)
    assert found[0] == found[1]
    assert found[0][0][2] < found[0][0][0] < found[0][0][3]
