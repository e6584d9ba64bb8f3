"""Noisy tables of sensitive values: their promise by enumeration of all that is published, their rule and model."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mechanisms.marginals.test_marginals import Halved
from privsql.answers.estimate import WeightedSums
from privsql.answers.softmax import combine_rows
from privsql.dp_random import SUBSTITUTION, SeededNoise
from privsql.mechanisms.label_tables import answers, publish
from privsql.mechanisms.label_tables import model as fitted
from privsql.mechanisms.label_tables.parameters import reach_of
from privsql.mechanisms.label_tables.publish import choose_pairs, measure_tables, score_pair
from privsql.mechanisms.label_tables.rule import PublicCodes, TablesRule, reduce_levels
from privsql.mechanisms.perturb.parameters import Randomize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EPSILON = Fraction(2)
Law = dict[Any, float]


# Enumeration ----------------------------------------------------------------------------------------------------------
# Three people in two cells of column a; column b has one value. All of choosing, measuring and fitting is run through
# with noise that is clamped to 0 and 1, for every table of values.


def codes_of(*columns: Sequence[int], sizes: Sequence[int]) -> PublicCodes:
    named = {f"c{i}": np.array(one) for i, one in enumerate(columns)}
    return PublicCodes.from_columns(named, np.array(sizes))


def law_of(
    values: Sequence[int],
    codes: PublicCodes,
    number: int = 2,
    *,
    epsilon: Fraction = EPSILON,
    more: Callable[[Sequence[int]], Any] = lambda _: None,
) -> Law:
    """Exact distribution of all that is published of people's values; ``more``: what a leaky variant adds."""
    made, found, rule = Halved(1), defaultdict[Any, float](float), TablesRule(epsilon, number, codes)
    entries = np.repeat(np.arange(len(codes.sizes)), codes.sizes), np.array(values)

    def program() -> Any:
        measured, model = measure_tables(*entries, rule, made)
        shown = tuple((one.columns, one.budget, tuple(one.counts.tolist())) for one in measured)
        return shown, model, more(values)

    for result, chance in made.runs(program):
        found[result] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


def worst(one: Law, other: Law) -> float:
    """The largest ratio of probabilities; infinite where one of both can't publish it."""
    return max(max(one.get(o, 0) / other.get(o, 1e-300), other.get(o, 0) / one.get(o, 1e-300)) for o in {*one, *other})


@pytest.fixture
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of the same tables is made once; what is made of the last tables is told by them."""
    first: dict[Any, Any] = {}
    fit = fitted.fit_tables
    monkeypatch.setattr(fitted, "FEWEST", 1)

    def fit_once(measured: Any, rule: Any, rounds: int = 1, draws: int = 0) -> Any:
        if rounds:
            return "made of the tables"
        key = tuple(tuple(one.counts.tolist()) for one in measured)
        if key not in first:
            first[key] = fit(measured, rule, rounds, draws)
        return first[key]

    monkeypatch.setattr(publish, "fit_tables", fit_once)


PAIRS = codes_of([0, 1], [0, 0], sizes=[2, 1])
ALONE = codes_of([0, 1], sizes=[1, 1])


@pytest.mark.slow
def test_one_value_moves_nothing_by_more_than_e_to_the_epsilon(quick_fits: None) -> None:
    laws = {values: law_of(values, PAIRS) for values in ((0, 0, 0), (0, 1, 0), (0, 0, 1))}
    ratios = [worst(laws[0, 0, 0], laws[other]) for other in ((0, 1, 0), (0, 0, 1))]
    assert math.exp(1.2) < max(ratios) <= math.exp(2) * (1 + 1e-9)
    chosen = {len(shown) for shown, _, _ in laws[0, 0, 0]}
    assert chosen == {3, 4}  # a pair, or both columns once more


@pytest.mark.slow
def test_no_belief_in_a_value_or_a_set_of_values_grows_beyond_its_odds(quick_fits: None) -> None:
    """Two people, three values; whoever knows the other's value, and whoever holds both for independent."""
    laws = {values: law_of(values, ALONE, 3) for values in itertools.product(range(3), repeat=2)}
    priors = [np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.3, 0.1])]
    others = [np.eye(3)[k] for k in range(3)] + [priors[1]]
    worst_factor = 0.0
    for other, output in itertools.product(others, laws[0, 0]):
        likely = np.array([sum(other[b] * laws[a, b][output] for b in range(3)) for a in range(3)])
        posterior = priors[0] * likely / (priors[0] @ likely)
        for chosen in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2)):
            inside = list(chosen)
            odds = posterior[inside].sum() / (1 - posterior[inside].sum())
            prior = priors[0][inside].sum() / (1 - priors[0][inside].sum())
            worst_factor = max(worst_factor, odds / prior, prior / odds)
    assert math.exp(1.2) < worst_factor <= math.exp(2) * (1 + 1e-9)


@pytest.mark.slow
def test_an_exact_histogram_would_be_found(quick_fits: None) -> None:
    leaky = [law_of(values, PAIRS, more=sum) for values in ((0, 0, 0), (0, 1, 0))]
    assert worst(*leaky) > math.exp(2)


@pytest.mark.slow
def test_an_epsilon_that_follows_from_the_data_would_be_found(quick_fits: None) -> None:
    laws = []
    for values in ((0, 0, 0), (0, 1, 0)):
        largest = Fraction(int(np.bincount(values).max()), len(values))
        law = law_of(values, PAIRS, epsilon=EPSILON * largest)
        laws.append(defaultdict[Any, float](float))
        for (shown, _, _), chance in law.items():  # though nobody is told of epsilon
            laws[-1][tuple((columns, counts) for columns, _, counts in shown)] += chance
    assert worst(*laws) > math.exp(2)


@pytest.mark.slow
def test_leftovers_that_are_spent_twice_would_be_found(quick_fits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TablesRule, "remaining_budget", property(lambda rule: 3 * rule.epsilon))
    assert worst(law_of((0, 0, 0), PAIRS), law_of((0, 1, 0), PAIRS)) > math.exp(2)


class Expecting:
    """A model that expects every table to have equal counts."""

    def expect_table(self, _: int) -> Any:
        return np.array([3.0, 3.0])


def test_one_draw_for_several_choices_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pairs whose tables all move by one value: six people of one value, or five."""
    rule = TablesRule(Fraction(80), 2, codes_of([0], [0], [0], sizes=[6]))

    def find_ratio() -> float:
        laws = []
        for counts in ([6, 0], [5, 1]):
            made, law = Halved(1), defaultdict[Any, float](float)
            pairs: Any = {k: np.array(counts) for k in range(3, 6)}
            model: Any = Expecting()
            for chosen, chance in made.runs(lambda p=pairs, m=model, n=made: tuple(choose_pairs(p, rule, m, n))):
                law[chosen] += chance
            assert math.isclose(sum(law.values()), 1)
            laws.append(law)
        return worst(*laws)

    budget = rule.rounds * rule.choice_budget
    assert 1 < find_ratio() <= math.exp(budget)
    monkeypatch.setattr(TablesRule, "choice_budget", property(lambda _: budget))  # as if each draw were the same one
    assert find_ratio() > math.exp(budget)


class Recording(SeededNoise):
    """Seeded noise that writes down what each draw spends, for two counts or a score that moves by two."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(1))
        self.counts: list[Fraction] = []
        self.choices: list[Fraction] = []

    def add_noise(self, counts: Any, epsilon: Fraction) -> Any:
        self.counts.append(2 * epsilon)
        return super().add_noise(counts, epsilon)

    def choose_best(self, scores: Any, epsilon: Fraction, *, monotonic: bool) -> int:
        assert not monotonic
        assert scores.dtype == np.int64
        self.choices.append(2 * epsilon)
        return super().choose_best(scores, epsilon, monotonic=monotonic)


def people(number: int = 4000, seed: int = 3) -> tuple[PublicCodes, Any, np.ndarray]:
    """Four columns; the value goes with the first one, and with the second and third together."""
    draw = np.random.default_rng(seed)
    columns = np.stack([draw.integers(0, n, number) for n in (5, 3, 3, 2)], axis=1)
    value = np.where(draw.random(number) < 0.6, (columns[:, 0] + 3 * (columns[:, 1] == columns[:, 2])) % 4, 0)
    rows, member, sizes = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    codes = PublicCodes.from_columns({f"c{i}": rows[:, i] for i in range(4)}, sizes)
    return codes, (member, value), value


@pytest.mark.parametrize("epsilon", ["1/2", "3", "40"])
def test_every_choice_is_a_fresh_draw_and_all_draws_spend_epsilon(epsilon: str) -> None:
    codes, entries, _ = people()
    rule, noise = TablesRule(Fraction(epsilon), 5, codes), Recording()
    measured, _ = measure_tables(*entries, rule, noise)
    assert len(noise.choices) == rule.rounds == 6
    assert sum(noise.choices) == rule.epsilon / 20
    assert sum(noise.counts) + sum(noise.choices) == rule.epsilon == rule.sum_budgets(measured)
    assert [one.law.scale(one.budget) for one in measured] == pytest.approx([2 / float(b) for b in noise.counts])
    assert rule.due_tables(measured) == [(one.columns, one.budget, one.choice) for one in measured]


def test_scores_move_by_two_at_most() -> None:
    draw = np.random.default_rng(4)
    for _ in range(200):
        counts, expected = draw.integers(0, 9, 12), draw.uniform(0, 9, 12)
        one, other = draw.integers(0, 12, 2)
        moved = counts.copy()
        moved[one] += 1
        moved[other] -= 1
        scores = [score_pair(each, expected, 3.0) for each in (counts, moved)]
        assert abs(scores[0] - scores[1]) <= SUBSTITUTION.moved


# Model ----------------------------------------------------------------------------------------------------------------


def test_much_epsilon_gives_the_tables_and_the_pair_that_matters() -> None:
    codes, entries, value = people()
    rule = TablesRule(Fraction(100), 5, codes)
    measured, model = measure_tables(*entries, rule, SeededNoise(np.random.default_rng(1)))
    names = [codes.table_names[one.columns[0]] for one in measured if one.choice is not None]
    assert "c1 \u00d7 c2" in names
    assert np.allclose(model.weights.sum(axis=1), 1)
    assert (codes.sizes @ model.weights)[:4] == pytest.approx(np.bincount(value, minlength=4), abs=20)
    truth = np.zeros((len(codes.sizes), 5))
    np.add.at(truth, entries, 1)
    equal = codes.levels[1] == codes.levels[2]
    assert (codes.sizes @ (model.weights * equal[:, None])) == pytest.approx(truth[equal].sum(axis=0), abs=40)


def test_the_slope_and_information_of_tables_are_those_of_differences() -> None:
    codes, entries, _ = people()
    rule = TablesRule(Fraction(5), 5, codes)
    measured, _ = measure_tables(*entries, rule, SeededNoise(np.random.default_rng(1)))
    design = fitted.MeasuredDesign.from_tables(measured, rule)
    likelihood, draw, step = design.make_likelihood(measured, 5), np.random.default_rng(2), 1e-4
    double = replace(likelihood, design=replace(design.design, cells=design.design.cells.astype(np.float64)))
    theta, way, other = draw.normal(0, 0.3, (3, design.design.features.shape[1], 5))

    def find_probabilities(size: float) -> Any:
        return double.design.probabilities(theta + size * way, design.offset)

    _, slope = double.evaluate(find_probabilities(0))
    ahead, behind = (double.evaluate(find_probabilities(side * step))[0] for side in (1, -1))
    assert (double.design.sum_features(slope) * way).sum() == pytest.approx((ahead - behind) / 2 / step, rel=1e-4)
    information = fitted.TablesInformation(likelihood, find_probabilities(0))
    counts = [fitted.sum_cells(double.design, find_probabilities(side * step)) for side in (1, -1)]
    moved = (counts[0] - counts[1]) / 2 / step
    assert (way * information.multiply(way)).sum() == pytest.approx((likelihood.precision * moved**2).sum(), rel=1e-3)
    assert (other * information.multiply(way)).sum() == pytest.approx(
        (way * information.multiply(other)).sum(), rel=1e-3
    )
    scores = [(way * information.draw_score(draw.standard_normal(information.shape))).sum() for _ in range(2_000)]
    assert np.var(scores) == pytest.approx((way * information.multiply(way)).sum(), rel=0.15)


def test_levels_are_reduced_in_order() -> None:
    codes, sizes = np.arange(100), np.ones(100, dtype=np.int64)
    bins = reduce_levels(codes, sizes, 11, numeric=True)
    assert (np.diff(bins) >= 0).all()
    assert np.bincount(bins).tolist() == [10] * 10
    sizes[[7, 50]] = 90
    few = reduce_levels(codes, sizes, 3, numeric=False)
    assert (few[7], few[50], sorted(set(few))) == (0, 1, [0, 1, 2])


# Intervals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [1, 2, 5])
@pytest.mark.parametrize("budgets", [(2,), (1, 2), (Fraction(1, 3), Fraction(3, 10))])
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_noise_of_a_sum_reaches_as_far_as_its_law_says(
    cells: int, budgets: tuple[Fraction, ...], confidence: float
) -> None:
    """The laws of single counts, multiplied out."""
    at, laws = np.arange(-400, 401), []
    for budget in budgets:
        one = np.exp(-np.abs(at) / SUBSTITUTION.scale(Fraction(budget)))
        law = one = one / one.sum()
        for _ in range(cells - 1):
            law = np.convolve(law, one, mode="same")
        laws.append(law)
    precision = np.array([1 / SUBSTITUTION.variance(Fraction(one)) for one in budgets])
    places, chances = at * precision[0] / precision.sum(), laws[0]
    if len(budgets) == 2:
        places = np.add.outer(places, at * precision[1] / precision.sum()).ravel()
        chances = np.multiply.outer(*laws).ravel()
    reach = answers.noise_reach(tuple(map(Fraction, budgets)), cells, confidence)
    assert chances[np.abs(places) <= reach + 1e-9].sum() >= confidence - 1e-9
    assert chances[np.abs(places) <= 0.998 * reach - 1e-9].sum() < confidence


# Columns and effects as ``answers.effect_fit`` takes them for likely: a slope of a number, levels and pairs.


def draw_people(seed: int, number: int = 3_000) -> tuple[dict[str, Any], Any]:
    """Eight columns, two of them of numbers, and values drawn from effects of the fitted family, two of them rare."""
    draw = np.random.default_rng(seed)
    common = draw.normal(size=number)
    numbers = {name: np.round(40 + 8 * common + 8 * draw.normal(size=number)) for name in ("age", "visits")}
    others = {f"c{i}": draw.integers(0, levels, number) for i, levels in enumerate((2, 2, 3, 4, 5, 6))}
    odds = np.tile(np.log([0.45, 0.25, 0.15, 0.08, 0.05, 0.02]), (number, 1))
    for column in numbers.values():
        odds += np.outer((column - column.mean()) / column.std(), draw.standard_t(2, 6) / 3**0.5)
        odds += draw.normal(0, 0.2, (11, 6))[np.digitize(column, np.quantile(column, np.linspace(0, 1, 11)[1:-1]))]
    for column in others.values():
        odds += draw.normal(0, 0.3, (6, 6))[column]
    return numbers | others, np.argmax(odds + draw.gumbel(size=odds.shape), axis=1)


def find_coverage(seeds: range) -> tuple[dict[str, float], dict[int, float]]:
    """Publish, fit from scratch and ask: the share of intervals that hold by kind, and of means and sums by value."""
    hits, by_value = defaultdict[str, list[bool]](list), defaultdict[int, list[bool]](list)
    for seed in seeds:
        columns, value = draw_people(seed)
        first, member, sizes = combine_rows(list(columns.values()))
        rows = {name: column[first] for name, column in columns.items()}
        codes = PublicCodes.from_columns(rows, sizes)
        rule = TablesRule(Fraction("1.386294"), 7, codes)
        measured, model = measure_tables(member, value, rule, SeededNoise(np.random.default_rng(seed)))
        drawn = [*fitted.MeasuredDesign.from_tables(measured, rule).list_weights(model.effects)]
        truth = np.zeros((len(sizes), 7))
        np.add.at(truth, (member, value), 1)
        pairs = [(rows["c0"] == 1) & (rows[name] == 1) for name in ("c1", "c4")] + [rows["age"] >= 50]
        for chosen, amount in [(one, np.ones(len(sizes))) for one in pairs] + [
            (sizes > 0, rows[name]) for name in ("age", "visits")
        ]:
            sums = ask(model.weights, drawn, sizes * chosen, amount)
            real = ask(truth / sizes[:, None], [], sizes * chosen, amount)
            wider = answers.MISFIT_OF_AMOUNTS
            for kind in ("count",) if (amount == 1).all() else ("sum", "avg"):
                figure, _, variance = (sums.n, None, sums.nn) if kind == "count" else sums.measure_amounts(kind)
                right = real.n if kind == "count" else real.measure_amounts(kind)[0]
                reach = 2.093 * np.sqrt(variance) * (1 if kind == "count" else wider)
                inside = np.abs(figure - right)[:6] <= reach[:6] + 0.5 * (kind == "count")
                hits[kind] += inside.tolist()
                if kind != "count":
                    for at, one in enumerate(inside.tolist()):
                        by_value[at].append(one)
    return (
        {kind: float(np.mean(each)) for kind, each in hits.items()},
        {at: float(np.mean(each)) for at, each in by_value.items()},
    )


def ask(weights: Any, drawn: Sequence[Any], sizes: Any, amount: Any) -> WeightedSums:
    """Return the sums of every value, with what they vary between draws."""
    each = weights.astype(np.float64)
    n, a, within = sizes @ each, (sizes * amount) @ each, each * (1 - each)
    parts = [np.array([(sizes * part) @ one for one in drawn or [each]]) for part in (1, amount)]
    count, above = (part - part.mean(axis=0) for part in parts)
    share = (1 + 1 / max(len(drawn), 1)) / max(len(drawn) - 1, 1)
    spread = [share * (one * other).sum(axis=0) for one, other in ((count, count), (count, above), (above, above))]
    nn, na, aa = (sizes * amount**power @ within + more for power, more in enumerate(spread))
    return WeightedSums(n, n, a, nn, na, aa, n, n)


@pytest.mark.slow
def test_intervals_of_a_fit_from_scratch_hold_what_they_should() -> None:
    """Six releases of values that are drawn from the fitted family; rare values, too."""
    kinds, values = find_coverage(range(6))
    assert min(kinds.values()) >= 0.93, kinds
    assert min(values.values()) >= 0.8, values


def test_means_by_a_value_hold_in_one_release() -> None:
    kinds, _ = find_coverage(range(1))
    assert min(kinds.values()) >= 0.88, kinds


# Parameters -----------------------------------------------------------------------------------------------------------


def asked(**stated: Any) -> Randomize:
    return Randomize.model_validate({"algorithm": "tables", "values": ["a", "b"], **stated})


def test_odds_and_epsilon_translate_both_ways() -> None:
    """The figures of census tables: f_max .0732 and a threshold of 1/4 leave 1.44, 8f + .02 leaves 2.37."""
    shares = {"a": "0.0732", **{f"v{k}": "0.07" for k in range(13)}}
    params = asked(values=list(shares), threshold="1/4", frequencies=shares)
    assert float(params.spent_epsilon) == pytest.approx(1.44, abs=0.005)
    assert reach_of(Fraction("0.0732"), params.spent_epsilon) == pytest.approx(0.25, abs=1e-6)
    assert reach_of(Fraction("0.0732"), params.spent_epsilon) <= 0.25
    assert asked(rho1="1/3", rho2="2/3").spent_epsilon == Fraction(1386294, 10**6)
    assert float(asked(epsilon="0.77").spent_epsilon) == 0.77


@pytest.mark.parametrize(
    ("stated", "why"),
    [
        ({"values": []}, "public list"),
        ({"values": ["a", "a"]}, "each once"),
        ({"values": ["other"]}, "stands for all"),
        ({}, "give one of epsilon"),
        ({"epsilon": 1, "rho1": "0.1", "rho2": "0.2"}, "give one of epsilon"),
        ({"threshold": "1/4"}, "declare the frequencies"),
        ({"threshold": "1/4", "frequencies": {"a": "0.1", "c": "0.1"}}, "'c' is not among values"),
        ({"epsilon": 1, "frequencies": {"a": "0.7", "b": "0.7"}}, "more than 1"),
        ({"threshold": "1/4", "frequencies": {"a": "0.25", "b": "0.1"}}, "0.65, the frequency of 'other or NULL'"),
        ({"epsilon": 1, "gamma_from": "rho1"}, "can't be combined"),
    ],
)
def test_what_bounds_nothing_is_refused(stated: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        asked(**stated)


@pytest.mark.parametrize("name", ["epsilon", "values", "frequencies", "threshold"])
def test_other_algorithms_have_none_of_these(name: str) -> None:
    value = {"epsilon": 1, "values": ["a"], "frequencies": {"a": "0.1"}, "threshold": "1/4"}[name]
    with pytest.raises(ValueError, match=f"{name} can't be combined"):
        Randomize.model_validate({"rho1": "1/3", "rho2": "2/3", name: value})
