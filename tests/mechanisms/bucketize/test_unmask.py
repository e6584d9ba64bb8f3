"""Seeing through fakes that are uniform over the values that are not in the bucket: releases that state no law."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from privsql.mechanisms.bucketize.estimator import ListedPairs, make_uniform_channel


@pytest.mark.parametrize(("values", "size", "sigma"), [(4, 2, 1), (5, 2, 2), (6, 3, 2), (5, 3, 1)])
def test_unmasking_is_right_on_average_over_all_fakes(values: int, size: int, sigma: int) -> None:
    """Enumerates every way to draw the fakes of three buckets: records and meetings have the true means."""
    rng = np.random.default_rng(values * size)
    buckets = [sorted(rng.choice(values, size, replace=False).tolist()) for _ in range(3)]
    choices = [list(itertools.combinations(sorted(set(range(values)) - set(real)), sigma)) for real in buckets]
    records, products, outcomes = np.zeros(values), np.zeros((values, values)), 0
    for drawn in itertools.product(*choices):
        seen = np.zeros((3, values))
        for row, (real, added) in enumerate(zip(buckets, drawn, strict=True)):
            seen[row, [*real, *added]] = 1
        one = ListedPairs(size, 3, seen.T @ seen, sigma)
        records += (np.diag(one.pairs) - one.kappa * 3) / (1 - one.kappa)
        products += one.products
        outcomes += 1
    true = np.zeros((3, values))
    for row, real in enumerate(buckets):
        true[row, real] = 1
    assert records / outcomes == pytest.approx(true.sum(axis=0))
    neither = (1 - true).T @ (1 - true)
    away = ~np.eye(values, dtype=bool)
    expected = true.T @ true + ListedPairs(size, 3, np.eye(values), sigma).delta * neither
    assert (products / outcomes)[away] == pytest.approx(expected[away])


def test_the_mean_of_the_listed_buckets_is_that_of_the_specification() -> None:
    """E[listed] = N + (B - N) sigma/(m - g)."""
    one = ListedPairs(3, 10, np.diag([7.0] * 8), 2)
    assert one.kappa == pytest.approx(2 / 5)
    assert one.real_records == pytest.approx([(7 - 10 * 0.4) / 0.6] * 8)


def test_without_fakes_the_channel_is_that_of_the_buckets() -> None:
    """Also where a value stands more than once in a bucket: records are row sums over sizes, not times listed."""
    pairs = np.array([[4.0, 2.0], [2.0, 1.0]])  # one bucket of size 3: a, a, b
    one = ListedPairs(3, 1, pairs, 0)
    assert one.real_records == pytest.approx([2, 1])
    assert one.most_records == pytest.approx([2, 1])
    assert make_uniform_channel([one]).mean == pytest.approx(np.array([[2 / 3, 1 / 3], [2 / 3, 1 / 3]]))
    assert make_uniform_channel([one]).moment == pytest.approx(pairs / 3)
