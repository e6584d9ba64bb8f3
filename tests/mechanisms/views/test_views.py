"""Views of item sets: least squares beside a pseudo-inverse, budgets, exact likelihood ratios, coverage."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from privsql.dp_random import SeededNoise
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.dp.noisy_tables import LeastSquares, NoisyTable, fit_moments, restore_table, transform_table
from privsql.mechanisms.views import model as views_model
from privsql.mechanisms.views import plan
from privsql.mechanisms.views.item_sets import WeightedSets
from privsql.mechanisms.views.model import ViewModel, count_items, sum_subsets, sum_supersets
from privsql.mechanisms.views.parameters import SetValued
from privsql.mechanisms.views.plan import covering_design
from privsql.mechanisms.views.publish import Measured, measure_views
from privsql.mechanisms.views.tables import column_sizes
from privsql.model.arrays import round_copies
from support.enumeration import Enumeration, worst_ratio
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Reals = NDArray[np.float64]


class Silent:
    """Noise that adds nothing."""

    origin = "seed"

    def add_noise(self, counts: Ints, epsilon: Fraction) -> Ints:
        return counts

    def choose_best(self, scores: Ints, epsilon: Fraction, *, monotonic: bool) -> int:
        raise NotImplementedError


def sets(records: Iterable[Iterable[int]], items: int) -> WeightedSets:
    """A source of plain sets."""
    lists = [sorted(set(one)) for one in records]
    starts = np.cumsum([0, *map(len, lists)])
    codes = np.array([code for one in lists for code in one], dtype=np.int64)
    return WeightedSets(starts, codes, np.ones(len(lists)), items)


def asked(epsilon: object = 1, **options: Any) -> SetValued:
    return SetValued(epsilon=epsilon, universe="data", **options)


def measured(source: WeightedSets, request: SetValued, noise: Any, wanted: Any = ()) -> Measured:
    return measure_views(source, request, wanted, noise, np.random.default_rng(1))


def baskets(number: int, items: int, seed: int) -> list[list[int]]:
    """Records whose items come in bundles, the first ones often."""
    draw = np.random.default_rng(seed)
    chance = 0.6 / np.arange(1, items + 1)
    own = draw.random((number, items)) < chance
    bundle = draw.random(number) < 0.3
    own[bundle, 1 : min(4, items)] = True
    return [np.flatnonzero(row).tolist() for row in own]


# What is asked for ---


@each("options", [{"fan_out": 4}, {"tau": 3}, {"c1": 1, "c2": 1}, {"workload": [[]]}, {"workload": [["a", "a"]]}])
def test_fields_of_other_algorithms_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        asked(**options)
    with pytest.raises(ValidationError, match="workload needs algorithm = 'views'"):
        asked(algorithm="diffpart", workload=[["a"]])


def test_a_workload_names_items_of_the_universe() -> None:
    labels = [f"i{k}" for k in range(30)]
    with pytest.raises(UsageError, match="'x' is not in the universe"):
        plan.declared_sets(asked(workload=[["i1", "x"]]), labels)
    with pytest.raises(InfeasibleError, match="10 items"):
        plan.declared_sets(asked(workload=[labels[:11]]), labels)
    with pytest.raises(InfeasibleError, match="names 24 items"):
        plan.declared_sets(asked(workload=[labels[k : k + 4] for k in range(0, 24, 4)]), labels)
    assert plan.declared_sets(asked(workload=[["i3", "i1"]]), labels) == [(1, 3)]


# Patterns and coverings ---


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_transforms_are_the_sums_that_they_stand_for(items: int, seed: int) -> None:
    table = np.random.default_rng(seed).integers(-9, 9, 1 << items).astype(float)
    every, shape = range(1 << items), (2,) * items
    parity = [sum((-1) ** (x & q).bit_count() * table[x] for x in every) for q in every]
    found = transform_table(table.reshape(shape))
    assert found.reshape(-1) * 2 ** (items / 2) == pytest.approx(np.array(parity))
    assert restore_table(found).reshape(-1) == pytest.approx(table)
    above = [sum(table[x] for x in every if x & q == q) for q in every]
    below = [sum(table[x] for x in every if x & q == x) for q in every]
    assert sum_supersets(table.reshape(shape)).reshape(-1).tolist() == above
    assert sum_subsets(table.reshape(shape)).reshape(-1).tolist() == below
    assert count_items(items).reshape(-1).tolist() == [x.bit_count() for x in every]


@each(("items", "size", "most"), [(5, 8, 1), (9, 8, 3), (12, 8, 3), (16, 8, 6), (17, 8, 8), (20, 8, 10), (20, 10, 6)])
def test_views_cover_all_pairs_with_few_sets(items: int, size: int, most: int) -> None:
    views = covering_design(items, size)
    assert len(views) <= most
    assert all(len(view) == min(size, items) and list(view) == sorted(set(view)) for view in views)
    held = {pair for view in views for pair in itertools.combinations(view, 2)}
    assert held == set(itertools.combinations(range(items), 2))


# Least squares ---


def everywhere(chosen: Sequence[int], question: Reals, items: int) -> Reals:
    """Weights of all patterns that a question over some items has."""
    return np.broadcast_to(np.expand_dims(question, [i for i in range(items) if i not in chosen]), (2,) * items).ravel()


def dense(tables: Sequence[NoisyTable], items: int) -> tuple[Reals, Reals]:
    """Counts of all patterns by weighted least squares with a dense matrix, and their covariance."""
    rows, seen, weight = [], [], []
    for one in tables:
        for cell in range(one.counts.size):
            unit = np.zeros(one.counts.size)
            unit[cell] = 1
            rows.append(everywhere(one.columns, unit.reshape(one.counts.shape), items))
        seen += one.counts.reshape(-1).tolist()
        weight += [1 / one.variance] * one.counts.size
    matrix, w = np.array(rows), np.array(weight)
    covariance = np.linalg.inv(matrix.T @ (w[:, None] * matrix))
    return covariance @ (matrix.T @ (w * np.array(seen))), covariance


def drawn(items: int, seed: int) -> list[NoisyTable]:
    """Some tables over few items, all patterns among them, with made counts."""
    draw = np.random.default_rng(seed)
    columns = [(), (0,), tuple(range(items))]
    columns += [tuple(sorted(draw.choice(items, min(2, items), replace=False).tolist())) for _ in range(2)]
    return [
        NoisyTable(one, Fraction(int(draw.integers(1, 9)), 4), draw.integers(-5, 50, (2,) * len(one)))
        for one in columns
    ]


@pytest.mark.slow
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_least_squares_are_those_of_a_dense_matrix(items: int, seed: int) -> None:
    tables, draw = drawn(items, seed), np.random.default_rng(seed + 1)
    found = LeastSquares(tables, [2] * items)
    estimate, covariance = dense(tables, items)
    np.testing.assert_allclose(found.estimate_table(tuple(range(items))).ravel(), estimate, atol=1e-6)
    chosen = tuple(sorted(draw.choice(items, int(draw.integers(0, items + 1)), replace=False).tolist()))
    question = draw.integers(0, 2, (2,) * len(chosen)).astype(float)
    wide = everywhere(chosen, question, items)
    model = ViewModel(found, np.zeros((2,) * items))
    answer = model.answer(chosen, question, 0.05, leaning=False)
    assert answer.estimate == pytest.approx(float(wide @ estimate), abs=1e-6)
    assert answer.error is not None
    assert answer.error**2 == pytest.approx(float(wide @ covariance @ wide), rel=1e-9, abs=1e-9)
    numbers, _, variance = (one.ravel() for one in model.superset_counts(leaning=False))
    for x in range(1 << items):
        has = ((np.arange(1 << items) & x) == x).astype(float)
        assert numbers[x] == pytest.approx(float(has @ estimate), abs=1e-6)
        assert variance[x] == pytest.approx(float(has @ covariance @ has), rel=1e-9)


def test_the_weight_of_one_count_in_an_answer() -> None:
    tables = [NoisyTable(one, Fraction(1), np.zeros((2,) * len(one), dtype=np.int64)) for one in ((0, 1), (0, 1), (0,))]
    both, one = np.array([[0.0, 0], [0, 1]]), np.array([0.0, 1])
    step = (1 / 4 + 1 / 4 + 1 / 2 + 1 / 2) / 4
    assert LeastSquares(tables, [2, 2]).largest_step((0, 1), both) == pytest.approx(step)
    assert LeastSquares(tables[:1], [2, 2]).largest_step((1,), one) == pytest.approx(1)


def test_what_no_table_tells_has_no_error() -> None:
    tables = [NoisyTable(one, Fraction(1), np.zeros((2, 2), dtype=np.int64)) for one in ((0, 1), (1, 2), (0, 2))]
    found, every = LeastSquares(tables, [2] * 3), (0, 1, 2)
    assert found.sum_variance(every, np.eye(8)[7].reshape(2, 2, 2)) == np.inf
    assert np.isfinite(found.sum_variance(every, np.repeat([0.0, 1.0], 4).reshape(2, 2, 2)))  # item 0 alone
    assert not found.is_measured(every)
    assert found.is_measured((1, 2))
    model = ViewModel(found, np.zeros((2, 2, 2)))
    assert model.answer(every, np.eye(8)[7].reshape(2, 2, 2), 0.05, leaning=False).error is None


# Budgets ---


@given(st.integers(1, 20), st.fractions("1/1000000", 100), st.booleans())
def test_budgets_add_up_to_epsilon(items: int, epsilon: Fraction, workload: bool) -> None:
    wanted = [tuple(range(min(items, 3))), (items - 1,)] if workload and items <= 12 else []
    request = SetValued.model_construct(epsilon=epsilon)
    for found in (plan.lay_out_all(items, request, wanted), plan.lay_out_chosen(items, epsilon, wanted)):
        assert sum(budget for _, budget, _ in found) == epsilon
        held = {pair for places, *_ in found for pair in itertools.combinations(places, 2)}
        assert held >= set(itertools.combinations(range(items), 2))


def test_a_declared_workload_is_told_better() -> None:
    """Mean standard error of what was declared, beside half on views and half on all patterns."""
    for wanted in ([(0, 1, 2)], [(0, 5, 9), (3, 4, 11)], [tuple(range(12))], [(7,)]):
        plain, own = (plan.lay_out_all(12, asked(1), part) for part in ([], wanted))
        assert plan.mean_error(12, own, wanted) < 0.95 * plan.mean_error(12, plain, wanted)


# Privacy ---


def test_what_is_measured_changes_by_one_record_in_one_cell_of_each_table() -> None:
    one, more = (measured(sets(r, 10), asked(1), Silent()) for r in ([[1, 2]], [[1, 2], [2, 9]]))
    for first, second in zip(one.tables, more.tables, strict=True):
        assert np.abs(first.counts - second.counts).sum() == 1


def ratio(records: list[list[int]], extra: list[int], items: int, epsilon: Fraction, most: int) -> float:
    """The largest likelihood ratio of all that is published, for a record more."""
    laws = []
    for rows in (records, [*records, extra]):
        noise, law = Enumeration(most), defaultdict[Any, float](float)
        source = sets(rows, items)
        for found, chance in noise.runs(lambda s=source, n=noise: measured(s, asked(epsilon), n)):
            law[tuple(tuple(one.counts.reshape(-1).tolist()) for one in found.tables)] += chance
        assert sum(law.values()) == pytest.approx(1)
        laws.append(law)
    return worst_ratio(*laws)


@each("extra", [[], [0], [0, 1]])
def test_exact_likelihood_ratios_of_all_patterns(extra: list[int]) -> None:
    found = ratio([[0], [0, 1], []], extra, 2, Fraction(1), 3)
    assert found <= math.exp(1) * (1 + 1e-9)
    assert found > math.exp(0.9)  # all of it is spent on the record's own cell


# The model ---


def test_the_model_is_the_table_where_there_is_no_noise() -> None:
    rows = baskets(3000, 10, 2)
    tables = measured(sets(rows, 10), asked(100), Silent()).tables
    found, every = LeastSquares(tables, [2] * 10), tuple(range(10))
    population = views_model.fit_population(found, 10)
    assert np.abs(population - found.estimate_table(every)).max() < 0.05
    np.testing.assert_allclose(ViewModel(found, population).spectrum[0], found.coefficients(every)[0], atol=0.05)


@each("epsilon", [Fraction(1, 20), Fraction(1)])
def test_the_model_is_a_population_and_nearer_to_it_than_the_counts(epsilon: Fraction) -> None:
    """4,000 records with 10 items: every number of records with all of some items, with a seed."""
    rows = baskets(4000, 10, 4)
    noise = SeededNoise(np.random.default_rng(5))
    exact, tables = (measured(sets(rows, 10), asked(epsilon), one).tables for one in (Silent(), noise))
    found = LeastSquares(tables, [2] * 10)
    population = views_model.fit_population(found, 10)
    assert population.min() >= 0
    assert population.sum() == pytest.approx(found.total, rel=0.01)
    assert np.abs(np.cumsum(round_copies(population.ravel())) - np.cumsum(population)).max() <= 0.5 + 1e-6
    true = sum_supersets(exact[-1].counts.astype(float))
    model, squares, _ = ViewModel(found, population).superset_counts()
    assert np.abs(model - true).mean() < 0.7 * np.abs(squares - true).mean()


@each("epsilon", [Fraction(1, 20), Fraction(1)])
def test_standard_errors_are_those_of_estimates_that_lean_on_the_model(epsilon: Fraction) -> None:
    """Of all patterns of five items and of seven: the errors of estimates are as large as is said, with a seed."""
    rows = baskets(4000, 10, 4)
    noise = SeededNoise(np.random.default_rng(7))
    exact, tables = (measured(sets(rows, 10), asked(epsilon), one).tables for one in (Silent(), noise))
    found = LeastSquares(tables, [2] * 10)
    model, true = ViewModel(found, views_model.fit_population(found, 10)), exact[-1].counts
    assert model.spectrum[1].min() >= 0
    assert model.spectrum[1].max() <= 1
    for chosen in ((0, 1, 2, 3, 4), (2, 3, 5, 6, 7, 8, 9)):
        others, z = tuple(i for i in range(10) if i not in chosen), []
        for cell, right in np.ndenumerate(true.sum(axis=others)):
            question = np.zeros((2,) * len(chosen))
            question[cell] = 1
            own, lean = (model.answer(chosen, question, 0.05, leaning=one) for one in (False, True))
            assert own.error is not None
            assert lean.error is not None
            far = lean.estimate - own.estimate
            assert abs(far) <= views_model.LIMIT * own.error * (1 + 1e-9)
            assert lean.error <= math.hypot(own.error, far) * (1 + 1e-9)
            z.append((lean.estimate - right) / lean.error)
        assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.25, z


def view_tables(counts: Ints, cliques: Sequence[tuple[int, ...]], epsilon: int) -> list[NoisyTable]:
    """Tables of some sets of items, nearly without noise."""
    others = {one: tuple(i for i in range(counts.ndim) if i not in one) for one in cliques}
    return [NoisyTable(one, Fraction(epsilon), counts.sum(axis=axes)) for one, axes in others.items()]


@each("strength", [0.0, 0.1])
def test_how_far_threes_lie_from_their_pairs_is_what_views_tell(strength: float) -> None:
    """Independent items, but for one parity of each of two sets of three, of which a table is there."""
    chance, planted = [0.3, 0.5, 0.2, 0.4], [(0, 1, 2), (1, 2, 3)]
    table = np.ones(1)
    for one in chance:
        table = np.outer(table, [1 - one, one]).reshape(-1)
    places = np.arange(16)
    for at in planted:
        sign = np.prod([1.0 - 2 * (places >> (3 - place) & 1) for place in at], axis=0)
        table = (
            table + strength * sign * np.prod([2 * (chance[place] * (1 - chance[place])) ** 0.5 for place in at]) / 16
        )
    counts, pairs = np.rint(table * 10**9).astype(np.int64).reshape((2,) * 4), itertools.combinations(range(4), 2)
    model = ViewModel(LeastSquares(view_tables(counts, [*pairs, *planted], 40), [2] * 4), counts.astype(float))
    three, four = model.strengths
    assert three == pytest.approx(strength, abs=0.002)
    assert four == three


def themed_baskets(exponent: float, draw: np.random.Generator, *, themed: bool) -> WeightedSets:
    """5,000 baskets of 20 of 120 items by Zipf's law, some with items that go together."""
    liking = np.repeat(-exponent * np.log(draw.permutation(np.arange(1, 121)))[None], 5000, axis=0)
    if themed:
        liking += 1.5 * (draw.random((12, 120)) < 0.15)[draw.integers(0, 12, 5000)]
    taken = np.argsort(liking + draw.gumbel(size=liking.shape), axis=1)[:, -20:]
    return sets(taken.tolist(), 120)


@pytest.mark.slow
@each("exponent", [0.5, 1.0])
@each("themed", [False, True])
@each("seed", [1, 2, 3])
def test_the_most_frequent_of_120_items_have_the_largest_counts(exponent: float, seed: int, *, themed: bool) -> None:
    """At epsilon 1 at least 17 of the 20 most frequent ones."""
    draw = np.random.default_rng(seed)
    source = themed_baskets(exponent, draw, themed=themed)
    counts = measured(source, asked(1), SeededNoise(draw)).counts
    assert counts is not None
    assert len(np.intersect1d(counts.largest_items(20), np.argsort(source.item_weights)[-20:])) >= 17


@pytest.mark.slow
@each("themed", [False, True])
def test_intervals_of_what_no_view_holds_cover(*, themed: bool) -> None:
    """Threes of 20 of 120 items. How sets deviate has no law, so these are wide bounds: 0.9, and 0.5 to 1.4."""
    draw = np.random.default_rng(6)
    source = themed_baskets(1.0, draw, themed=themed)
    views = measured(source, asked(1), SeededNoise(draw))
    number = len(views.codes)
    found, true = LeastSquares(views.tables, column_sizes(number, views.tables)), source.count_patterns(views.codes)
    model, held = ViewModel(found, views_model.fit_population(found, number)), sum_supersets(true)
    question, far = np.eye(8)[7].reshape(2, 2, 2), []
    for three in itertools.combinations(range(true.ndim), 3):
        if not found.is_measured(three):
            answer = model.answer(three, question, 0.05)
            assert answer.error is not None
            far.append((answer.estimate - held[tuple(int(i in three) for i in range(true.ndim))]) / answer.error)
    assert len(far) > 400
    assert np.mean(np.abs(far) <= 1.96) >= 0.9
    assert 0.5 < np.sqrt(np.mean(np.square(far))) < 1.4


def test_two_factors_are_never_negative() -> None:
    one, other = np.array([1.0, 2, 3]), np.array([1.0, 4, 9])
    for target in (2 * one + other, other - one, one - other, -one, np.zeros(3)):
        a, b = fit_moments(one, other, target)
        best = min(
            float(((x * one + y * other - target) ** 2).sum())
            for x, y in itertools.product(np.linspace(0, 3, 61), repeat=2)
        )
        assert min(a, b) >= 0
        assert float(((a * one + b * other - target) ** 2).sum()) <= best + 1e-9


# Intervals ---


def covered(epsilon: str, items: int, runs: int, seed: int) -> dict[str, list[bool]]:
    """Whether 95 % intervals hold, by kind of question, in runs of their own."""
    rows, draw = baskets(3000, items, seed), np.random.default_rng(seed)
    source, noise = sets(rows, items), SeededNoise(np.random.default_rng(seed + 1))
    true, size, every = source.count_patterns(np.arange(items)), count_items(items), tuple(range(items))
    some = np.indices(true.shape)
    asked_for = {
        "one item": some[int(draw.integers(items))].astype(float),
        "three items": some[[-1, -2, -4]].all(axis=0).astype(float),
        "all items": (size == items).astype(float),
        "three or more": (size >= 3).astype(float),
        "no item": (size == 0).astype(float),
    }
    held: dict[str, list[bool]] = {name: [] for name in asked_for}
    for _ in range(runs):
        found = LeastSquares(measured(source, asked(epsilon), noise).tables, [2] * items)
        model = ViewModel(found, np.zeros_like(true, dtype=float))
        for name, question in asked_for.items():
            told = model.answer(every, question, 0.05, leaning=False)
            assert told.error is not None
            held[name].append(told.low <= (question * true).sum() <= told.high)
    return held


@pytest.mark.soak(part="coverage")
@each("epsilon", ["1/10", "1", "3"])
def test_intervals_cover(epsilon: str) -> None:
    """Runs of their own, 400 each: 95 % of one count, 96.6 % of many; false alarm 1e-6."""
    for name, held in covered(epsilon, 9, 400, 11).items():
        assert sum(held) >= stats.binom.ppf(1e-6, 400, 0.945), (name, sum(held))
        assert sum(held) <= stats.binom.isf(1e-6, 400, 0.985), (name, sum(held))


def test_intervals_cover_in_a_few_runs() -> None:
    held = [one for part in covered("1/2", 5, 60, 3).values() for one in part]
    assert sum(held) / len(held) > 0.88


def test_bounds_of_what_no_view_holds_are_those_of_its_parts() -> None:
    """Without noise to speak of: a triple is at most its pairs, and what is not a triple at least all but these."""
    rows = baskets(2000, 3, 7)
    source = sets(rows, 3)
    every = list(itertools.combinations(range(3), 2))
    found = LeastSquares(view_tables(source.count_patterns(np.arange(3)), every, 60), [2] * 3)
    pairs = [sum(set(pair) <= set(one) for one in rows) for pair in itertools.combinations(range(3), 2)]
    triple = np.eye(8)[7].reshape(2, 2, 2)
    other, model = 1 - triple, ViewModel(found, np.zeros((2, 2, 2)))
    low, high = model.bound_between((0, 1, 2), triple, triple, 0.05)
    assert (low, high) == (0, pytest.approx(min(pairs), abs=1))
    low, high = model.bound_between((0, 1, 2), other, other, 0.05)
    assert (low, high) == (pytest.approx(2000 - min(pairs), abs=1), pytest.approx(2000, abs=1))


def test_the_width_of_an_interval() -> None:
    """Of one Laplace count that of its own law, and never less than of a normal error."""
    assert views_model.half_width(100.0, 0.0, 0.025) == pytest.approx(100 * math.log(20) / math.sqrt(2))
    assert views_model.half_width(100.0, 4.0, 0.25) == pytest.approx(67.45 + 2, abs=0.01)
    assert views_model.half_width(0.0, 1.0, 0.025) == 0
