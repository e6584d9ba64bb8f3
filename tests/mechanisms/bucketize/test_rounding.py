"""Dependent rounding: chances are kept exactly and every row and kind has what its chances sum to."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize.fake_law import Entries
from privsql.mechanisms.bucketize.fakes import BITS, ONE, _walk_trails, choose_entries, make_weights
from support.enumeration import FALSE_ALARM, Enumerator
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def entries(rows: Sequence[Sequence[int]]) -> Entries:
    """Rows by the kinds that they hold."""
    number = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    kinds = np.concatenate([np.array(row, dtype=np.int64) for row in rows])
    return Entries(number, kinds, (len(rows), int(kinds.max()) + 1))


def half(one: Entries) -> Ints:
    return np.full(len(one.rows), ONE // 2)


# Every outcome ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "outcomes"),
    rest_slow(
        [
            ([[0, 1], [0, 1]], 2),
            ([[0, 1], [1, 0], [0, 1], [1, 0]], 6),  # any two of the four rows
            ([[0, 1], [2, 1], [2, 0]], 2),  # round the triangle, in either direction
            ([[0, 1], [0, 1], [2, 3], [2, 3]], 4),
        ]
    ),
)
def test_chances_of_a_half_are_exact_over_all_draws(rows: list[list[int]], outcomes: int) -> None:
    """One bit: every draw of the coins and of who is joined with whom, in fractions; all outcomes equally likely."""
    one, noise, found = entries(rows), Enumerator(), defaultdict(Fraction)
    for chosen, chance in noise.runs(lambda: tuple(choose_entries(one, half(one), noise).tolist())):
        found[chosen] += chance
    assert set(found.values()) == {Fraction(1, outcomes)}
    assert len(found) == outcomes
    for place in range(len(one.rows)):
        assert sum(chance for chosen, chance in found.items() if chosen[place]) == Fraction(1, 2)


@pytest.mark.slow
def test_closed_trails_rise_as_often_as_they_fall_over_all_draws() -> None:
    """Two triangles with a common kind: half of the ends at a kind rise in every draw, each pair in half of them."""
    one, two = np.array([0, 1, 0]), np.array([1, 2, 2])
    noise, rising = Enumerator(), np.zeros(3)
    for rises, chance in noise.runs(lambda: tuple(_walk_trails(one, two, noise).tolist())):
        ends = np.concatenate((one[list(rises)], two[~np.array(rises)]))
        assert np.bincount(ends, minlength=3).tolist() == [1, 1, 1]
        rising += np.array(rises) * float(chance)
    assert rising == pytest.approx(0.5)


# What is always so ---


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), kinds=st.integers(4, 12), number=st.integers(5, 40), length=st.integers(2, 4))
def test_weights_and_choices_sum_to_what_is_given(seed: int, kinds: int, number: int, length: int) -> None:
    """Rows of random kinds and as many chosen of each as some choice of one a row has: a choice exists."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(kinds, length, replace=False).tolist() for _ in range(number)]
    one = entries(rows)
    of_kinds = np.bincount([rng.choice(row) for row in rows], minlength=one.shape[1])
    of_rows = np.ones(number, dtype=np.int64)
    found = make_weights(one, np.full(len(one.rows), 1 / length), of_rows, of_kinds)
    if found is None:  # the sums leave hardly a choice
        return
    assert (found >= 0).all()
    assert (found <= ONE).all()
    for side, wanted in zip(one.sum_amounts(found), (of_rows, of_kinds), strict=True):
        assert (side == wanted * ONE).all()
    chosen = choose_entries(one, found, seed_key(seed).random_generator("rounded"))
    for side, wanted in zip(one.sum_amounts(chosen), (of_rows, of_kinds), strict=True):
        assert (side == wanted).all()
    assert not chosen[found == 0].any()
    assert chosen[found == ONE].all()


@pytest.mark.parametrize("times", [4, 1000])
def test_weights_are_near_what_was_asked_for(times: int) -> None:
    """Where chances fit their sums already they are kept, to the last bits, whatever rounding leaves open.

    However many entries there are, none takes all that is left of a value: a release states the highest of the chances.
    """
    rows = [list(row) for row in itertools.combinations(range(7), 3)] * times
    one = entries(rows)
    found = make_weights(one, np.full(len(one.rows), 1 / 3), np.full(35 * times, 1), np.full(7, 5 * times))
    assert found is not None
    assert np.abs(found / ONE - 1 / 3).max() < 2 ** -(BITS - 3)


def test_what_has_no_choice_is_fixed_and_what_is_impossible_is_none() -> None:
    one = entries([[0, 1, 2], [0, 1, 2], [0, 1, 3]])
    found = make_weights(one, np.full(9, 1 / 3), np.ones(3, dtype=np.int64), np.array([0, 1, 2, 0]))
    assert found is not None
    assert found[one.kinds == 2].tolist() == [ONE, ONE]
    assert not found[one.kinds == 0].any()
    for wrong in ([0, 0, 2, 1], [0, 0, 3, 0], [-1, 2, 1, 1], [1, 0, 1, 1]):
        of_kinds = np.array(wrong)
        made = make_weights(one, np.full(9, 1 / 3), np.ones(3, dtype=np.int64), of_kinds)
        assert (made is None) == (wrong != [1, 0, 1, 1]) or wrong == [0, 0, 2, 1]


# Chances ---


@pytest.mark.soak(part="coverage")
@pytest.mark.parametrize(("length", "chosen", "runs"), [(5, 2, 2500), (6, 1, 2000)])
def test_chances_are_kept(length: int, chosen: int, runs: int) -> None:
    """Every entry against its exact chance, and pairs in a row against uniform choice; false alarm 1e-6 over all."""
    rng = seed_key(length).random_generator("rows")
    rows = [rng.permutation(9)[:length].tolist() for _ in range(12)]
    one = entries(rows)
    lengths = one.lengths[1]
    of_kinds = np.floor(lengths * chosen / length).astype(int)
    of_kinds[np.argsort(of_kinds - lengths * chosen / length, kind="stable")[: 12 * chosen - of_kinds.sum()]] += 1
    found = make_weights(one, np.full(len(one.rows), chosen / length), np.full(12, chosen), of_kinds)
    assert found is not None
    noise, seen = seed_key(3).random_generator("rounded"), np.zeros(len(found))
    for _ in range(runs):
        seen += choose_entries(one, found, noise)
    chances = found / ONE
    spread = np.sqrt(np.maximum(chances * (1 - chances) * runs, 1e-9))
    furthest = np.abs(seen - chances * runs) / spread
    assert furthest[(chances > 0) & (chances < 1)].max() < norm.isf(FALSE_ALARM / len(found) / 2)


@pytest.mark.soak(part="coverage")
def test_what_is_chosen_in_a_row_is_uniform_where_chances_are_equal() -> None:
    """Two of five in each of 20 rows that hold every kind alike: all ten pairs are equally likely in a row."""
    rows = [[(start + step * k) % 10 for k in range(5)] for step in (1, 3) for start in range(10)]
    one, noise, runs = entries(rows), seed_key(8).random_generator("rounded"), 2000
    pairs = list(itertools.combinations(range(5), 2))
    counts = np.zeros((20, len(pairs)))
    for _ in range(runs):
        order = noise.permutation(100)
        order = order[np.argsort(one.rows[order], kind="stable")]
        mixed = Entries(one.rows, one.kinds[order], one.shape)
        found = make_weights(mixed, np.full(100, 0.4), np.full(20, 2), np.full(10, 4))
        assert found is not None
        chosen = np.empty(100, dtype=bool)
        chosen[order] = choose_entries(mixed, found, noise)
        for row, two in enumerate(chosen.reshape(20, 5)):
            counts[row, pairs.index(tuple(np.flatnonzero(two).tolist()))] += 1
    expected = runs / len(pairs)
    statistic = ((counts - expected) ** 2 / expected).sum(axis=1)
    assert statistic.max() < chi2.isf(FALSE_ALARM / 20, len(pairs) - 1)
