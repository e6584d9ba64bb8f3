"""The fit of a model to buckets: its priors, its information, and intervals that hold where the model does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy

from privsql.answers.answer import DRAWS
from privsql.answers.bucket_fit import ListInformation
from privsql.answers.bucket_model import draw_table, fit_bucket_model
from privsql.answers.bucket_posteriors import PreparedRelease, prepare_release
from privsql.answers.effect_fit import EffectPrior, solve
from privsql.model.arrays import ReleaseArrays
from support.dealing import deal_values

DIGEST = "0123456789abcdef" * 4


def make_release(seed: int, records: int, size: int, values: int) -> ReleaseArrays:
    """Values that go with three columns, one of them strongly, dealt to lists of values that are often together."""
    rng = np.random.default_rng(seed)
    columns = {
        "strong": rng.integers(0, 6, records),
        "weak": rng.integers(0, 9, records),
        "number": rng.integers(0, 50, records).astype(float),
    }
    near = np.cos(columns["number"][:, None] / 8 + np.arange(values))
    logits = rng.normal(0, 1, (6, values))[columns["strong"]] + rng.normal(0, 0.3, (9, values))[columns["weak"]]
    label = np.argmax(logits + 0.5 * near + rng.gumbel(size=(records, values)), axis=1)
    bucket, phase = np.empty(records, dtype=np.int64), rng.random(values)
    bucket[np.argsort((phase[label] + rng.random(records) / 2) % 1)] = np.arange(records) // size
    order = np.lexsort((rng.random(records), bucket))
    listed, counts = np.unique(bucket * values + label, return_counts=True)
    columns = {name: column[order] for name, column in columns.items()}
    return ReleaseArrays(columns, bucket[order], listed // values, listed % values, counts, [None] * values)


@pytest.fixture(scope="module")
def prepared() -> PreparedRelease:
    return prepare_release(make_release(1, 2_000, 10, 6))


def test_priors_color_and_whiten(prepared: PreparedRelease) -> None:
    rng, parts = np.random.default_rng(2), EffectPrior.list_parts(prepared.design)
    roots = np.tril(rng.normal(size=(len(parts), 6, 6))) + 4 * np.eye(6)
    prior = EffectPrior(parts, roots)
    white, slope = rng.normal(size=(2, len(prepared.design.groups), 6))
    theta = prior.color(white)
    np.testing.assert_allclose(prior.whiten(theta), white)
    np.testing.assert_allclose((prior.pull(slope) * white).sum(), (slope * theta).sum())
    np.testing.assert_allclose(theta[parts[1]][0], roots[1] @ white[parts[1]][0])
    np.testing.assert_allclose(prior.scale_penalties(np.full((len(parts), 1), 4.0)).color(white), theta / 2)


def test_conjugate_gradients_solve() -> None:
    square = np.random.default_rng(3).normal(size=(30, 40))
    matrix, right = square @ square.T + np.eye(30), np.ones(30)
    found = solve(lambda one: matrix @ one, right, 1 / matrix.diagonal(), 1e-8, 40)
    np.testing.assert_allclose(matrix @ found, right, rtol=1e-5)


def test_information_is_symmetric_and_that_of_the_scores_it_draws(prepared: PreparedRelease) -> None:
    """To 5 standard errors of 400 draws."""
    rng, design = np.random.default_rng(4), prepared.design
    one, other = rng.normal(size=(2, len(design.groups), 6)) / 10
    information = ListInformation(prepared, design.probabilities(one / 3, prepared.arrays.log_shares))
    np.testing.assert_allclose(
        (one * information.multiply(other)).sum(), (other * information.multiply(one)).sum(), rtol=1e-3
    )
    drawn = [(one * information.draw_score(rng.standard_normal(information.shape))).sum() for _ in range(400)]
    assert np.mean(np.square(drawn)) == pytest.approx((one * information.multiply(one)).sum(), rel=5 * (2 / 400) ** 0.5)


def test_information_is_the_curvature_of_the_likelihood(prepared: PreparedRelease) -> None:
    """Near p = f, in directions that all records do not share; without them lists would be taken for chance."""
    rng, design, offset = np.random.default_rng(5), prepared.design, prepared.arrays.log_shares
    sizes = design.sizes[:, None].astype(float)
    shares, theta = design.sum_features(sizes / sizes.sum())[:, 0], np.zeros((len(design.groups), 6))
    information = ListInformation(prepared, design.probabilities(theta, offset))
    way = rng.normal(size=theta.shape)
    way[0] = -shares[1:] @ way[1:]
    before = (way * information.multiply(way)).sum()
    information.calibrate(theta, offset, prepared.likelihood, way)
    assert (way * information.multiply(way)).sum() == pytest.approx(before, rel=0.15)


QUESTIONS, TRIALS = 12, 4  # conditions, with a set of values each, to so many releases


@pytest.mark.slow
@pytest.mark.parametrize(("size", "values"), [(4, 12), (25, 8)])
def test_intervals_hold_where_the_model_does(size: int, values: int) -> None:
    """Labels are drawn from a fitted model, dealt to the same lists, and the model is fitted to that from scratch.

    Of 48 nearly independent answers fewer than 42 are covered with a probability of 1 % where 95 % are in the long run.
    The seed is fixed.
    """
    arrays = make_release(6, 4_000, size, values)
    model, rng, inside = fit_bucket_model(arrays, DIGEST), np.random.default_rng(7), []
    reach = scipy.stats.t.ppf(0.975, DRAWS - 1) * (1 + 1 / DRAWS) ** 0.5
    for trial in range(TRIALS):
        prepared = prepare_release(arrays, model.features)
        probabilities = prepared.design.probabilities(model.effects[trial].astype(float), arrays.log_shares)
        truth = draw_table(prepared.likelihood, probabilities, rng)
        dealt = deal_values(prepared.likelihood.shapes, truth, rng)
        again = replace(arrays, columns={name: column[dealt] for name, column in arrays.columns.items()})
        beliefs = fit_bucket_model(again, f"{trial:064x}").find_beliefs()
        for _ in range(QUESTIONS):
            name = rng.choice(list(arrays.columns))
            met = again.columns[name] == rng.choice(again.columns[name])
            wanted = np.isin(np.arange(values), rng.permutation(values)[: rng.integers(1, values // 2 + 1)])
            entries = met[beliefs.record] & wanted[beliefs.value]
            counts = beliefs.drawn[entries].sum(axis=0)
            true = (met & wanted[truth[dealt]]).sum()
            inside.append(abs(beliefs.weight[entries].sum() - true) <= reach * counts.std(ddof=1))
    assert sum(inside) >= 42
