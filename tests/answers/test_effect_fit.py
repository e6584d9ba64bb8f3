"""The mode of a softmax regression, and its penalties, on counts that are known."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.answers import effect_fit
from privsql.answers.effect_fit import EffectPrior, EffectSearch
from privsql.answers.softmax import Design, FeatureMap, combine_rows

VALUES = 4


class Multinomial:
    """Counts of values (rows, K) that are known: an ordinary logistic regression."""

    def __init__(self, counts: np.ndarray) -> None:
        self.counts = counts

    def evaluate(self, probabilities: np.ndarray) -> tuple[float, np.ndarray]:
        value = float((self.counts * np.log(probabilities)).sum())
        return value, self.counts - self.counts.sum(axis=1, keepdims=True) * probabilities


class CountInformation:
    """What counts tell of theta: the covariance n (diag p - p p') of each row's."""

    def __init__(self, design: Design, probabilities: np.ndarray) -> None:
        self._design, self._p = design, probabilities
        self._weights = design.sizes[:, None] * probabilities
        self.shape = probabilities.shape

    def multiply(self, theta: np.ndarray) -> np.ndarray:
        moved = self._design.cells @ (self._design.features @ theta)
        moved -= (self._p * moved).sum(axis=1, keepdims=True)
        return self._design.sum_features(self._weights * moved)

    def draw_score(self, noise: np.ndarray) -> np.ndarray:
        each = np.sqrt(self._weights) * noise
        return self._design.sum_features(each - self._p * each.sum(axis=1, keepdims=True))


class CountFit(EffectSearch):
    """A fit to known counts."""

    def __init__(self, design: Design, likelihood: Multinomial, offset: np.ndarray) -> None:
        super().__init__(design, likelihood, offset, np.random.default_rng(3))

    def _inform(self, theta: np.ndarray, prior: EffectPrior) -> CountInformation:
        return CountInformation(self._design, self._design.probabilities(theta, self._offset))


@pytest.mark.slow
def test_penalised_likelihood_has_its_maximum_where_the_gradient_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    age = rng.integers(0, 60, 3_000).astype(float)
    age[:50] = np.nan
    columns = {"age": age, "sex": rng.integers(0, 2, 3_000), "place": rng.zipf(1.5, 3_000).clip(max=80)}
    first, member, sizes = combine_rows(list(columns.values()))
    rows = {name: column[first] for name, column in columns.items()}
    design = FeatureMap(rows, sizes).make_design(rows, sizes)
    rng = np.random.default_rng(2)
    truth = rng.normal(size=(len(design.groups), VALUES))
    truth[[name not in {"sex", "place"} for name in np.array([t.name for t in design.terms])[design.groups]]] = 0
    drawn = (design.probabilities(truth, np.zeros(VALUES))[member].cumsum(axis=1) < rng.random((3_000, 1))).sum(axis=1)
    counts = np.zeros((len(first), VALUES))
    np.add.at(counts, (member, drawn), 1)
    likelihood, offset = Multinomial(counts), np.log(np.bincount(drawn, minlength=VALUES) / 3_000)
    steps: list[int] = []
    monkeypatch.setattr(effect_fit, "LAST", 200)
    fit = CountFit(design, likelihood, offset).find_effects(lambda: steps.append(1))
    assert fit.converged
    assert len(steps) <= effect_fit.STEPS + 200
    _, residuals = likelihood.evaluate(design.probabilities(fit.theta, offset))
    pulled = np.empty_like(fit.theta)
    for part, root in zip(fit.prior.parts, fit.prior.roots, strict=True):
        pulled[part] = fit.theta[part] @ np.linalg.inv(root @ root.T)
    assert np.abs(design.sum_features(residuals) - pulled).max() < 0.1
    variances = np.trace(fit.prior.roots @ np.swapaxes(fit.prior.roots, 1, 2), axis1=1, axis2=2) / VALUES
    used = {term.name: 1 / variance for term, variance in zip(design.terms, variances, strict=True)}
    assert used["sex"] < 20
    assert used["age"] > 50
    error = np.abs(design.probabilities(fit.theta, offset) - design.probabilities(truth, np.zeros(VALUES)))
    assert error.mean() < 0.05
