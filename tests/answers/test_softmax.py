"""Features of the softmax regression."""

from __future__ import annotations

import numpy as np
import pytest

from privsql.answers.softmax import FeatureMap, combine_rows


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
