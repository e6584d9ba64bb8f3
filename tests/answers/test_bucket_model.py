"""The model of a whole release: posteriors within buckets, likelihood, weights, parameters."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from privsql.answers import bucket_model, bucket_posteriors
from privsql.answers.answer import DRAWS
from privsql.answers.bucket_model import (
    Beliefs,
    draw_table,
    find_obstacle,
    fit_bucket_model,
    restore_model,
)
from privsql.answers.bucket_posteriors import (
    BucketLikelihood,
    Shape,
    approximate_posterior,
    exact_posterior,
    list_shapes,
    round_sums,
)
from privsql.answers.softmax import FeatureMap, combine_rows
from privsql.errors import GuaranteeError
from privsql.model.arrays import ReleaseArrays

DIGEST = "0123456789abcdef" * 4


def enumerate_posterior(weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Sum over all permutations."""
    size, total, beliefs = len(weights), 0.0, np.zeros_like(weights)
    for slots in permutations(range(size)):
        product = weights[np.arange(size), slots].prod()
        total += product
        beliefs[np.arange(size), slots] += product
    return beliefs / total, float(np.log(total))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_exact_posterior_is_the_sum_over_permutations(size: int) -> None:
    weights = np.random.default_rng(size).lognormal(sigma=2, size=(4, size, size))
    beliefs, logs = exact_posterior(weights)
    for i in range(4):
        expected, log = enumerate_posterior(weights[i])
        np.testing.assert_allclose(beliefs[i], expected, rtol=1e-9)
        np.testing.assert_allclose(logs[i], log, rtol=1e-9)


@pytest.mark.parametrize(("sigma", "most"), [(0.5, 0.001), (1, 0.004), (2, 0.025)])
def test_approximate_posterior_is_near_the_exact_one(sigma: float, most: float) -> None:
    weights = np.random.default_rng(1).lognormal(sigma=sigma, size=(100, 8, 8))
    exact, _ = exact_posterior(weights)
    found, _, _ = approximate_posterior(weights, np.ones((100, 8)), np.ones((100, 8)), 100)
    found = round_sums(found)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=2), 1, atol=1e-12)
    assert np.sqrt(((found - exact) ** 2).mean()) < most


def make_release(seed: int, sizes: list[int], most: int = 1, values: int = 12) -> ReleaseArrays:
    """A release of buckets whose records have values that go with two columns; each value ``most`` times at most."""
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(np.repeat(np.arange(values), most))[:size] for size in sizes]
    value, bucket = np.concatenate(lists), np.repeat(np.arange(len(sizes)), sizes)
    near = np.where(rng.random(len(value)) < 0.7, value // 3, rng.integers(0, 4, len(value)))
    columns = {"near": near, "number": (value % 2 * 20 + rng.integers(0, 40, len(value))).astype(float)}
    listed, counts = np.unique(bucket * values + value, return_counts=True)
    shuffled = np.lexsort((rng.random(len(value)), bucket))
    columns = {name: column[shuffled] for name, column in columns.items()}
    return ReleaseArrays(columns, bucket, listed // values, listed % values, counts, [str(i) for i in range(values)])


def prepare(arrays: ReleaseArrays):
    first, member, sizes = combine_rows(list(arrays.columns.values()))
    rows = {name: column[first] for name, column in arrays.columns.items()}
    return FeatureMap(rows, sizes).make_design(rows, sizes), BucketLikelihood(list_shapes(arrays), member, sizes)


@pytest.mark.parametrize(("sizes", "most"), [([4] * 20 + [3] * 5, 1), ([5] * 12, 2), ([12] * 6, 3)])
def test_gradient_is_that_of_the_likelihood(sizes: list[int], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_posteriors, "WARM", 2_000)
    design, likelihood = prepare(make_release(3, sizes, most))
    rng = np.random.default_rng(4)
    theta, way = rng.normal(scale=0.5, size=(2, len(design.groups), 12))

    def evaluate(step: float) -> tuple[float, np.ndarray]:
        return likelihood.evaluate(design.probabilities(theta + step * way, np.zeros(12)))

    evaluate(0)
    gradient = design.sum_features(evaluate(0)[1])
    slope = (evaluate(1e-5)[0] - evaluate(-1e-5)[0]) / 2e-5
    np.testing.assert_allclose(slope, (gradient * way).sum(), rtol=1e-5)


@pytest.mark.parametrize(("size", "most"), [(4, 1), (5, 3), (9, 2)])
def test_drawn_tables_have_the_posterior_and_the_lists(size: int, most: int) -> None:
    one, copies = make_release(5, [size], most), 4_000
    design, likelihood = prepare(one)
    theta = np.random.default_rng(6).normal(size=(len(design.groups), 12))
    probabilities = design.probabilities(theta, np.zeros(12))
    (shape,) = likelihood.shapes
    places = shape.records + size * np.arange(copies)[:, None]
    many = Shape(places, shape.values.repeat(copies, axis=0), shape.counts.repeat(copies, axis=0), shape.exact)
    member = np.tile(likelihood.member, copies)
    noise = np.random.default_rng(7)
    drawn = draw_table(BucketLikelihood([many], member, copies * likelihood.sizes), probabilities, noise)
    (batch,) = likelihood.find_posteriors(probabilities)
    for value in np.unique(batch.of.values):
        belief = batch.beliefs[0][:, batch.of.values[0] == value].sum(axis=1)
        found = (drawn[places] == value).mean(axis=0)
        np.testing.assert_allclose(found, belief, atol=0.035)  # more than four standard errors
    assert np.array_equal(
        np.sort(drawn[places], axis=1),
        np.sort(np.repeat(shape.values, shape.counts.astype(int).ravel(), axis=1).repeat(copies, axis=0), axis=1),
    )


@pytest.fixture(scope="module")
def release() -> ReleaseArrays:
    return make_release(8, [4] * 150 + [5] * 3 + [10] * 5)


@pytest.fixture(scope="module")
def model(release: ReleaseArrays) -> bucket_model.BucketModel:
    return fit_bucket_model(release, DIGEST)


@pytest.fixture(scope="module")
def beliefs(model: bucket_model.BucketModel) -> Beliefs:
    return model.find_beliefs()


def test_weights_add_up(release: ReleaseArrays, beliefs: Beliefs) -> None:
    record, value, weight = beliefs.record, beliefs.value, beliefs.weight
    assert np.array_equal(np.lexsort((value, record)), np.arange(len(record)))
    np.testing.assert_allclose(np.bincount(record, weight), 1, atol=1e-9)
    sums = np.bincount(release.bucket[record] * 12 + value, weight)
    places = release.listed_bucket * 12 + release.listed_value
    np.testing.assert_allclose(sums[places], release.listed_count, atol=1e-9)
    assert len(np.flatnonzero(sums)) == len(places)
    assert beliefs.best_guess == pytest.approx(np.maximum.reduceat(weight, np.searchsorted(record, range(665))).mean())


def test_completed_tables_have_the_lists_and_the_weights(release: ReleaseArrays, beliefs: Beliefs) -> None:
    """Every record has one value in each; the mean over tables is near the weight."""
    assert beliefs.drawn.shape == (len(beliefs.record), DRAWS)
    for drawn in beliefs.drawn.T:
        assert np.array_equal(beliefs.record[drawn], np.arange(len(release.bucket)))
        found = np.bincount(release.bucket * 12 + beliefs.value[drawn], minlength=12 * len(release.sizes))
        assert np.array_equal(found[release.listed_bucket * 12 + release.listed_value], release.listed_count)
    error = beliefs.drawn.mean(axis=1) - beliefs.weight
    assert np.abs(error.mean()) < 1e-9
    assert (error**2).mean() < 1.2 * (beliefs.weight * (1 - beliefs.weight)).mean() / DRAWS


def test_a_repeated_fit_is_the_same(release: ReleaseArrays, model: bucket_model.BucketModel) -> None:
    shares: list[float] = []
    again = fit_bucket_model(release, DIGEST, shares.append)
    assert np.array_equal(again.theta, model.theta)
    assert np.array_equal(again.roots, model.roots)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


def test_a_restored_model_has_the_same_beliefs(
    release: ReleaseArrays, model: bucket_model.BucketModel, beliefs: Beliefs
) -> None:
    again = restore_model(release, model.parameters(), DIGEST)
    found = again.find_beliefs()
    for name, expected in vars(beliefs).items():
        assert np.array_equal(getattr(found, name), expected)
    assert (again.converged, again.fitted_share) == (model.converged, model.fitted_share)


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 0},
        {"digest": "f" * 64},
        {"terms": []},
        {"theta": np.zeros((3, 12))},
        {"theta": None},
        {"theta": "1"},
        {"roots": np.zeros((3, 12, 12))},
        {"roots": np.zeros((6, 12, 12))},
        {"roots": np.full((6, 12, 12), np.nan)},
    ],
)
def test_damaged_parameters_are_refused(
    release: ReleaseArrays, model: bucket_model.BucketModel, damage: dict[str, object]
) -> None:
    with pytest.raises(GuaranteeError, match="model is damaged"):
        restore_model(release, model.parameters() | damage, DIGEST)


@pytest.mark.parametrize("number", [np.inf, np.nan, -1e30])
def test_a_theta_that_no_fit_finds_is_refused(
    release: ReleaseArrays, model: bucket_model.BucketModel, number: float
) -> None:
    theta = model.theta.copy()
    theta[3, 2] = number
    with pytest.raises(GuaranteeError, match="model is damaged"):
        restore_model(release, model.parameters() | {"theta": theta}, DIGEST)


def test_lists_that_do_not_fill_their_buckets_are_damaged(release: ReleaseArrays) -> None:
    with pytest.raises(GuaranteeError, match="as many values"):
        list_shapes(replace(release, listed_count=release.listed_count + 1))


def test_obstacles_are_named(release: ReleaseArrays) -> None:
    assert find_obstacle(665, 12) is None
    assert find_obstacle(665, 501) == "more than 500 values"
    assert find_obstacle(199, 12) == "fewer than 200 records"


def test_weights_are_the_same_whatever_is_made_together(
    model: bucket_model.BucketModel, beliefs: Beliefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_model, "BATCH", 100)
    again = model.find_beliefs()
    assert np.array_equal(again.record, beliefs.record)
    np.testing.assert_allclose(again.weight, beliefs.weight, rtol=1e-12)
    assert np.array_equal(again.drawn.sum(axis=0), beliefs.drawn.sum(axis=0))


def test_a_release_that_memory_does_not_hold_is_fitted_by_some_of_its_buckets(
    release: ReleaseArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_model, "MOST_BYTES", bucket_model._estimate_memory(release) / 2)
    half = fit_bucket_model(release, DIGEST)
    assert half.fitted_share == pytest.approx(0.5, abs=0.02)
    found = half.find_beliefs()
    np.testing.assert_allclose(np.bincount(found.record, found.weight), np.ones(len(release.bucket)), atol=1e-9)
    assert restore_model(release, half.parameters(), DIGEST).fitted_share == half.fitted_share
