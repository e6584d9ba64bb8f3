"""Features, penalties and optimiser of the softmax regression."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.answers.softmax import FeatureMap, Schedule, combine_rows, fit_softmax, start_fit


class Multinomial:
    """Counts of values (rows, K) that are known: an ordinary logistic regression."""

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts

    def evaluate(self, probabilities: np.ndarray) -> tuple[float, np.ndarray]:
        value = float((self.counts * np.log(probabilities)).sum())
        return value, self.counts - self.counts.sum(axis=1, keepdims=True) * probabilities

    def measure_information(self, design, probabilities: np.ndarray) -> np.ndarray:
        sizes = self.counts.sum(axis=1, keepdims=True)
        return design.sum_features(sizes * probabilities * (1 - probabilities))


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    age = rng.integers(0, 60, 3_000).astype(float)
    age[:50] = np.nan
    return {"age": age, "sex": rng.integers(0, 2, 3_000), "place": rng.zipf(1.5, 3_000).clip(max=80)}


def dense(design) -> np.ndarray:
    return (design.cells @ design.features).toarray()


def test_a_row_has_one_indicator_of_every_term_whose_level_is_frequent(columns) -> None:
    first, member, sizes = combine_rows(list(columns.values()))
    for column in columns.values():
        assert np.array_equal(column[first][member], column, equal_nan=column.dtype.kind == "f")
    rows = {name: column[first] for name, column in columns.items()}
    design = FeatureMap(rows, sizes).make_design(rows, sizes)
    phi = dense(design)
    start = 0
    for term in design.terms:
        codes, every = term.encode(), np.arange(len(sizes))
        amounts = (codes[:, None] == np.arange(term.levels)) * term.weigh(every)[:, None]
        assert np.array_equal(phi[:, start : start + term.levels], amounts), term.name
        assert term.name == "age as a slope" or set(np.unique(amounts)) <= {0.0, 1.0}
        assert np.bincount(codes[codes >= 0], sizes[codes >= 0]).min() >= 10, term.name
        start += term.levels
    assert start == phi.shape[1]
    assert [term.name for term in design.terms] == [
        "intercept",
        "age",
        "age in bins",
        "age as a slope",
        "sex",
        "place",
        "age x sex",
        "age x place",
        "sex x place",
    ]


def test_rows_that_were_not_learnt_from_have_the_features_of_their_neighbours(columns) -> None:
    _, _, sizes = combine_rows([np.arange(3_000)])
    features = FeatureMap(columns, sizes)
    new = {"age": np.array([np.nan, 17.0, 200.0]), "sex": np.array([1, 1, 5]), "place": np.array([1, 79, 4_000])}
    design = features.make_design(new, np.ones(3, dtype=np.int64))
    names = [term.name for term in design.terms]
    codes = np.array([term.encode() for term in design.terms])
    assert (codes[:, 2] == -1)[[names.index(name) for name in ("age", "age in bins", "sex", "place")]].all()
    assert len(design.groups) == features.count
    stated = [number for _, *numbers in features.description for number in numbers if number]
    assert stated == [term.levels for term in design.terms[1:]]


@pytest.mark.slow
def test_penalised_likelihood_has_its_maximum_where_the_gradient_is_zero(columns) -> None:
    first, member, sizes = combine_rows(list(columns.values()))
    rows = {name: column[first] for name, column in columns.items()}
    design = FeatureMap(rows, sizes).make_design(rows, sizes)
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(len(design.groups), 4))
    truth[[name not in {"sex", "place"} for name in np.array([t.name for t in design.terms])[design.groups]]] = 0
    drawn = (design.probabilities(truth, np.zeros(4))[member].cumsum(axis=1) < rng.random((3_000, 1))).sum(axis=1)
    counts = np.zeros((len(first), 4))
    np.add.at(counts, (member, drawn), 1)
    likelihood, offset = Multinomial(counts), np.log(np.bincount(drawn, minlength=4) / 3_000)
    steps: list[int] = []
    fit = fit_softmax(design, likelihood, offset, start_fit(design, 4), Schedule(), lambda: steps.append(1))
    assert fit.slope < 0.1
    assert len(steps) <= Schedule().steps
    _, residuals = likelihood.evaluate(design.probabilities(fit.theta, offset))
    gradient = design.sum_features(residuals) - fit.penalties[design.groups][:, None] * fit.theta
    assert np.abs(gradient).max() < 0.1
    used = {term.name: penalty for term, penalty in zip(design.terms, fit.penalties, strict=True)}
    assert used["sex"] < 20
    assert used["age"] > 50
    error = np.abs(design.probabilities(fit.theta, offset) - design.probabilities(truth, np.zeros(4)))
    assert error.mean() < 0.05


def test_a_slope_has_the_normal_scores_of_bins(columns) -> None:
    """Over all records with a number the mean is 0 and the variance 1; NULL has 0."""
    rows, sizes = {"age": columns["age"]}, np.ones(len(columns["age"]), dtype=np.int64)
    design = FeatureMap(rows, sizes).make_design(rows, sizes)
    (term,) = [one for one in design.terms if one.name == "age as a slope"]
    amounts, missing = term.weigh(np.arange(len(sizes))), np.isnan(columns["age"])
    assert missing.any()
    assert (amounts[missing] == 0).all()
    assert amounts[~missing].mean() == pytest.approx(0, abs=1e-12)
    assert amounts[~missing].std() == pytest.approx(1)
    order = np.argsort(columns["age"][~missing])
    assert (np.diff(amounts[~missing][order]) >= 0).all()
