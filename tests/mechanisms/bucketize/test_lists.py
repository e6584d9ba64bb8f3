"""How often values are listed so that fakes hide all of them evenly, and whether they can be."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from privsql.errors import InfeasibleError
from privsql.mechanisms.bucketize.fake_law import apportion_times, times_listed
from privsql.mechanisms.bucketize.fakes import find_even_plan, find_too_frequent
from privsql.mechanisms.bucketize.model import BucketProblem, Plan, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.mechanisms.bucketize.model import Ints


def zipf(values: int, records: int, power: float) -> Ints:
    """Counts in proportion to 1/rank^power."""
    shares = np.arange(1, values + 1) ** -power
    counts = np.floor(records * shares / shares.sum()).astype(np.int64)
    counts[: records - counts.sum()] += 1
    return counts


def possible(counts: Sequence[int], sizes: Sequence[tuple[int, int]], sigma: int) -> bool:
    """Whether L_xj in fractions exist, by linear programming."""
    m, k = len(counts), len(sizes)
    rows, wanted = [], []
    for x in range(m):
        rows.append([size / (size + sigma) if y == x else 0.0 for y in range(m) for size, _ in sizes])
        wanted.append(float(counts[x]))
    for j, (size, buckets) in enumerate(sizes):
        rows.append([float(i == j) for _ in range(m) for i in range(k)])
        wanted.append(float((size + sigma) * buckets))
    room = [(0.0, float(buckets)) for _ in range(m) for _, buckets in sizes]
    return bool(linprog(np.zeros(m * k), A_eq=rows, b_eq=wanted, bounds=room).success)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_whether_values_can_be_hidden_is_what_linear_programming_finds(data: st.DataObject) -> None:
    sizes = data.draw(st.sampled_from([[(2, 3)], [(2, 5), (3, 2)], [(1, 4), (3, 3)], [(2, 2), (3, 2), (4, 2)]]))
    sigma, values = data.draw(st.integers(1, 3)), data.draw(st.integers(5, 8))
    records = sum(size * buckets for size, buckets in sizes)
    cuts = sorted(data.draw(st.lists(st.integers(0, records), min_size=values - 1, max_size=values - 1)))
    counts = [b - a for a, b in zip([0, *cuts], [*cuts, records], strict=True)]
    crowd = find_too_frequent(np.array(counts), Setting.from_counts(dict(sizes)), sigma)
    assert (not crowd) == possible(counts, sizes, sigma)


def test_divisors_are_rounded_up_as_well_as_can_be() -> None:
    """Every way to list values, by brute force: none has a smaller largest w_x/L_x."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        m, most = int(rng.integers(2, 5)), int(rng.integers(2, 7))
        weights = rng.integers(1, 12, m).tolist()
        total = int(rng.integers(m, most * m + 1))
        found = apportion_times(weights, total, most)
        ways = (way for way in itertools.product(range(1, most + 1), repeat=m) if sum(way) == total)
        best = min(max(Fraction(w, n) for w, n in zip(weights, way, strict=True)) for way in ways)
        assert sum(found) == total
        assert min(found) >= 1
        assert max(found) <= most
        assert max(Fraction(w, n) for w, n in zip(weights, found, strict=True)) == best


@pytest.mark.parametrize("power", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize(("sizes", "sigma"), [([(4, 5000)], 1), ([(8, 5000)], 2), ([(8, 4000), (9, 70)], 2)])
def test_every_value_is_as_certain_as_promised_up_to_rounding(
    power: float, sizes: list[tuple[int, int]], sigma: int
) -> None:
    """Zipf counts of 50 values: o_x/L_x is within 0.003 of S/(S + sigma) wherever the values can be hidden evenly."""
    counts = zipf(50, sum(size * buckets for size, buckets in sizes), power)
    times = times_listed(counts, sizes, sigma)
    assert times.sum(axis=0).tolist() == [(size + sigma) * buckets for size, buckets in sizes]
    assert (times <= [buckets for _, buckets in sizes]).all()
    crowd = find_too_frequent(counts, Setting.from_counts(dict(sizes)), sigma)
    assert bool(crowd) == (counts[0] * (sizes[0][0] + sigma) > counts.sum())
    certain = counts / times.sum(axis=1)
    if crowd:
        assert set(crowd) == set(range(len(crowd)))  # the most frequent
        assert certain[0] > sizes[0][0] / (sizes[0][0] + sigma) + 0.01
    else:
        assert certain == pytest.approx(sizes[0][0] / (sizes[0][0] + sigma), abs=0.003)


def test_several_sizes_cover_every_record() -> None:
    """sum_j L_xj S_j/(S_j + sigma) is within one listing of o_x."""
    sizes, sigma = [(3, 900), (5, 300), (9, 40)], 2
    counts = zipf(30, sum(size * buckets for size, buckets in sizes), 0.3)
    assert find_too_frequent(counts, Setting.from_counts(dict(sizes)), sigma) == []
    covered = times_listed(counts, sizes, sigma) @ np.array([size / (size + sigma) for size, _ in sizes])
    assert np.abs(covered - counts).max() < 1


def problem(counts: Sequence[int], smallest: int, largest: int) -> BucketProblem:
    bound = Fraction(1, smallest)
    return BucketProblem(np.array(counts), (bound,) * len(counts), smallest, largest)


def one_size(asked: BucketProblem) -> Plan:
    """Buckets of the largest size that divides the records."""
    for size in range(min(asked.largest, int(asked.sizes[-1])), asked.smallest - 1, -1):
        if asked.records % size == 0:
            buckets = asked.records // size
            return Plan("one", Setting.from_counts({size: buckets}), asked.counts[:, None])
    raise InfeasibleError("no size")


def test_smaller_buckets_are_taken_where_they_hide_all_values() -> None:
    """1/5 of the records have one value: buckets of 4 with one fake hide it, buckets of 6 do not."""
    counts = [24, *[12] * 8]
    found = find_even_plan(problem(counts, 2, 6), 1, one_size)
    assert found.setting.items == ((4, 30),)
    with pytest.raises(
        InfeasibleError, match=r"at most 1/7 of the records; more frequent: x1 \(0.2\); what works: "
    ) as e:
        find_even_plan(problem(counts, 6, 6), 1, one_size)
    assert e.value.details["largest_bucket"] == 4
