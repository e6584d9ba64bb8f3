"""Counts of all items: lengths, the cap that follows from them, exact likelihood ratios, and what the counts say."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import privsql
from mechanisms.views.test_views import Silent, asked, baskets, sets
from privsql.dp_random import CONCENTRATED, PURE, SeededGaussian, SeededNoise
from privsql.mechanisms.dp.noisy_tables import NoisyTable
from privsql.mechanisms.views import plan, publish
from privsql.mechanisms.views.item_counts import (
    AGAIN,
    ALONE,
    LENGTHS,
    SHARES,
    ItemCounts,
    ItemRule,
    choose_rule,
    count_items_capped,
    count_lengths,
    length_classes,
    measure_items,
)
from privsql.mechanisms.views.publish import measure_views
from support.enumeration import Enumeration, worst_ratio
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from privsql.mechanisms.views.item_sets import WeightedSets

# Lengths and the rule ---


@given(st.integers(21, 5000))
def test_classes_hold_every_length_once(items: int) -> None:
    found = length_classes(items)
    assert found[0] == (0, 0)
    assert found[-1][1] == items
    assert all(end + 1 == start for (_, end), (start, _) in itertools.pairwise(found))
    assert len(found) <= 17 + 4 * 6 + 1


def table_of(lengths: list[int], budget: object = 1, law: Any = PURE) -> NoisyTable:
    return NoisyTable((0,), Fraction(str(budget)) * LENGTHS, np.array(lengths, dtype=np.int64), law=law)


def rule_of(counts: Callable[[int], float], items: int, budget: object = 1) -> ItemRule:
    """The rule for so many records of each length, without noise."""
    lengths = [int(sum(map(counts, range(start, end + 1)))) for start, end in length_classes(items)]
    return choose_rule(table_of(lengths, budget), items, Fraction(str(budget)), SHARES)


def test_a_cap_is_the_only_length_and_less_than_the_longest_of_many() -> None:
    """Records of 5 items each; lengths that fall off slowly, with less and less noise."""
    assert rule_of(lambda size: 20_000 * (size == 5), 40).cap == 5
    found = [rule_of(lambda size: 9000 * 0.9**size * (size > 0), 16_000, epsilon) for epsilon in ("1/10", 1, 10)]
    caps = [one.cap for one in found]
    assert caps == sorted(caps)
    assert caps[0] < caps[-1] < 57
    longer = [(size, 0.9**size) for size in range(caps[1] + 1, 200)]
    mean = sum(size * weight for size, weight in longer) / sum(weight for _, weight in longer)
    assert float(found[1].factor) == pytest.approx(mean / caps[1], rel=0.03)


def test_lengths_that_are_noise_imply_one_item_of_a_record() -> None:
    draw = np.random.default_rng(1)
    for noise in (np.zeros(2000), draw.laplace(0, 50, 2000)):
        found = rule_of(lambda size, noise=noise: noise[size] * (size <= 16), 2000 - 1)
        assert (found.cap, found.factor) == (1, 1)


def test_items_spend_less_of_many_records() -> None:
    few, many = (rule_of(lambda size, number=number: number * (1 < size < 4), 40) for number in (3_000, 3_000_000))
    assert (few.budget, many.budget) == (SHARES[-1], SHARES[0])


@pytest.mark.slow
@each("delta", [0, "1e-9"])
def test_budgets_add_up_to_epsilon(delta: object) -> None:
    draw = np.random.default_rng(1)
    for number, items, lengths in ((40_000, 30, 1), (60, 30, 2)):
        request = asked("3/7", delta=delta)
        noise: Any = SeededGaussian(draw) if delta else SeededNoise(draw)
        found = measure_views(sets(baskets(number, items, 1), items), request, [], noise, draw)
        assert found.counts is not None
        assert len(found.counts.lengths) == lengths
        assert found.counts.rule.budget + sum(one.budget for one in found.tables) == plan.total_budget(request)
    assert {LENGTHS + share for share in SHARES} < {Fraction(k, 100) for k in range(100)}
    assert LENGTHS + AGAIN + ALONE < 1


def test_declared_items_come_first() -> None:
    wanted = plan.declared_sets(asked(workload=[["29", "28"], ["28", "27", "26"]]), [str(k) for k in range(30)])
    source = sets(baskets(4000, 30, 1), 30)
    found = measure_views(source, asked(1), wanted, Silent(), np.random.default_rng(1))
    assert found.codes[:4].tolist() == [28, 29, 26, 27]
    others = [code for code in np.argsort(-source.item_weights, kind="stable").tolist() if code < 26]
    assert found.codes[4:].tolist() == others[: len(found.codes) - 4]


# Privacy ---


@given(st.integers(1, 6), st.integers(0, 10**6))
def test_a_record_changes_as_many_counts_as_the_cap_says_by_one(cap: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [draw.choice(9, int(draw.integers(0, 10)), replace=False).tolist() for _ in range(6)]
    one, more = (
        np.concatenate(count_items_capped(sets(some, 9), cap, np.random.default_rng(seed))) for some in (rows[:5], rows)
    )
    assert (more - one).min() >= 0
    assert (more - one).max() <= 1
    assert (more - one).sum() == min(cap, len(rows[5]))
    lengths = [count_lengths(sets(some, 9)) for some in (rows[:5], rows)]
    assert np.abs(lengths[1] - lengths[0]).sum() == 1


def test_which_items_of_a_long_record_stay_is_chance() -> None:
    """Each of 10 items of 20,000 records in 3 of 10: 5 standard deviations around 6,000."""
    source = sets([range(10)] * 20_000, 12)
    whole, cut = count_items_capped(source, 3, np.random.default_rng(1))
    assert not whole.any()
    assert cut.sum() == 60_000
    assert np.abs(cut[:10] - 6000).max() < 5 * (20_000 * 0.3 * 0.7) ** 0.5


class Orders:
    """A generator that takes random numbers through all their orders, which are what is looked at."""

    def __init__(self, noise: Enumeration) -> None:
        self.noise = noise

    def random(self, number: int) -> Any:
        orders = list(itertools.permutations(range(number)))
        return np.array(orders[self.noise._draw([1 / len(orders)] * len(orders))], dtype=float)


def law_of(program: Callable[[Any, Any], Any], most: int) -> dict[Any, float]:
    """The exact distribution of what a program returns, with noise and chance for cutting records."""
    noise, law = Enumeration(most), defaultdict[Any, float](float)
    draw = Orders(noise)
    for found, chance in noise.runs(lambda: program(noise, draw)):
        law[found] += chance
    assert sum(law.values()) == pytest.approx(1)
    return law


def item_ratio(extra: list[int], cap: int, budget: Fraction) -> float:
    """The largest likelihood ratio of the counts of three items, for a record more; noise spends ``budget``."""

    def program(source: WeightedSets) -> Callable[[Any, Any], Any]:
        rule = ItemRule(cap, budget, Fraction(1), Fraction(0))
        lengths = [table_of([0] * 4)]

        def run(noise: Any, draw: Any) -> Any:
            found = measure_items(source, lengths, rule, noise, draw)
            return (*found.whole.tolist(), *found.cut.tolist())

        return run

    return worst_ratio(*(law_of(program(sets(rows, 3)), 2) for rows in ([[0, 1]], [[0, 1], extra])))


@each("cap", [1, 2, 3])
@each("extra", [[], [2], [1, 2]])
def test_exact_likelihood_ratios_of_the_counts_of_items(cap: int, extra: list[int]) -> None:
    found = item_ratio(extra, cap, Fraction(2))
    assert found <= math.exp(2) * (1 + 1e-9)
    if len(extra) == cap:
        assert found > math.exp(1.9)  # all of it is spent


def test_counts_that_spend_more_are_found() -> None:
    assert item_ratio([1, 2], 2, Fraction(3)) > math.exp(2) * 1.1


@pytest.mark.slow
def test_exact_likelihood_ratios_of_the_whole_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths, the cap by these, counts of two items, one of these, and its table: no step but spends its own."""
    for module in (plan, publish):
        monkeypatch.setattr(module, "TINY_UNIVERSE", 1)
    monkeypatch.setattr(plan, "is_sparse", lambda *_: False)
    caps = set()

    def program(source: WeightedSets) -> Callable[[Any, Any], Any]:
        def run(noise: Any, draw: Any) -> Any:
            found = measure_views(source, asked(4), [], noise, draw)
            assert found.counts is not None
            caps.add(found.counts.rule.cap)
            counts = (*found.counts.whole.tolist(), *found.counts.cut.tolist())
            return (*counts, *found.codes.tolist(), *(tuple(one.counts.reshape(-1).tolist()) for one in found.tables))

        return run

    def choose_quickly(lengths: NoisyTable, *_: Any) -> ItemRule:
        return ItemRule(1 + int(lengths.counts[2] > 0), 4 * SHARES[-1], Fraction(2), Fraction(0))

    monkeypatch.setattr(plan, "choose_rule", choose_quickly)
    found = worst_ratio(*(law_of(program(sets(rows, 2)), 2) for rows in ([[0]], [[0], [0, 1]])))
    assert len(caps) > 1
    assert math.exp(1) < found <= math.exp(4) * (1 + 1e-9)


# What the counts say ---


def counted(source: WeightedSets, epsilon: object, seed: int) -> ItemCounts:
    draw = np.random.default_rng(seed)
    found = measure_views(source, asked(epsilon), [], SeededNoise(draw), draw).counts
    assert found is not None
    return found


def shop(number: int, items: int, mean: float, tied: float, seed: int = 1) -> WeightedSets:
    """Records of lognormal lengths, and items by Zipf's law that prefer long records, or short ones."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(draw.lognormal(np.log(mean) - 0.35, 0.84, number).round().astype(int), 1, 80)
    liking, rows = draw.normal(0, tied, items), [np.zeros(0, dtype=int)] * number
    for length in np.unique(lengths).tolist():
        chance = (length / mean) ** liking / np.arange(1, items + 1)
        where = np.flatnonzero(lengths == length)
        taken = draw.choice(items, (len(where), length), p=chance / chance.sum())
        for at, row in zip(where.tolist(), taken, strict=True):
            rows[at] = row
    return sets((row.tolist() for row in rows), items)


def menu(number: int, items: int, mean: float, seed: int = 1) -> WeightedSets:
    """Records that take as many items as they have room for, the liked ones first."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(draw.poisson(mean - 1, number) + 1, 1, items)
    liked = draw.gumbel(size=(number, items)) - np.arange(items) / 12
    order = np.argsort(np.argsort(-liked, axis=1), axis=1)
    return sets((np.flatnonzero(row < length).tolist() for row, length in zip(order, lengths, strict=True)), items)


@pytest.mark.slow
@each(
    ("number", "items", "mean", "tied"),
    [(20_000, 2000, 8.0, 0.0), (20_000, 2000, 8.0, 0.5), (20_000, 60, 4.0, 0.3), (4000, 500, 30.0, 0.3)],
)
def test_intervals_of_counts_cover(number: int, items: int, mean: float, tied: float) -> None:
    """Of the 100 most frequent items, 1.96 standard errors around estimates, 6 runs: 90 % at least."""
    source = shop(number, items, mean, tied)
    top = np.argsort(-source.item_weights)[:100]
    far = [(one.estimates - source.item_weights)[top] / one.variances[top] ** 0.5
           for one in (counted(source, 1, seed) for seed in range(6))]  # fmt: skip
    assert np.mean(np.abs(far) <= 1.96) >= 0.9
    assert np.sqrt(np.mean(np.square(far))) > 0.6


@pytest.mark.slow
@each("law", [PURE, CONCENTRATED])
def test_the_scale_of_gaussian_noise_is_the_root_of_the_cap(law: Any) -> None:
    rule = ItemRule(9, Fraction(1, 50), Fraction(1), Fraction(0))
    found = ItemCounts((table_of([0] * 22, law=law),), rule, np.zeros(21), np.zeros(21), law)
    due = (9 * 50 / 2) ** 0.5 if law.concentrated else 9 * 50
    assert found.scale == pytest.approx(due)


def ask_items(source: WeightedSets, folder: Path, epsilon: str, seed: int) -> Any:
    """An open release of a source."""
    table = pa.table({"goods": pa.array(source.list_sets(), pa.list_(pa.int32()))})
    spec = {
        "columns": {"items": "goods"},
        "mechanism": {"kind": "setvalued", "epsilon": epsilon, "universe": [str(k) for k in range(source.items)]},
        "release": {"name": "t", "to": str(folder / f"t{seed}.duckdb")},
        "ledger": {"off": True},
    }
    privsql.publish(privsql.build(spec, source=table), seed=seed)
    return privsql.open(folder / f"t{seed}.duckdb")


@pytest.mark.slow
def test_all_items_of_a_menu_are_answered_well(tmp_path: Path) -> None:
    """32 items of 21,000 records at epsilon 1: all within 12 %, by two keys."""
    source = menu(21_000, 32, 4.0)
    for seed in (1, 2):
        with ask_items(source, tmp_path, "1", seed) as release:
            found = release.query("SELECT item, COUNT(*) AS n FROM t, unnest(goods) AS u(item) GROUP BY item").rows
        estimates = {row[0]: row[1] for row in found}
        far = [abs(estimates[code] / weight - 1) for code, weight in enumerate(source.item_weights.tolist())]
        assert max(far) <= 0.12
        assert np.mean([row[3] <= source.item_weights[row[0]] <= row[4] for row in found]) >= 0.87


@pytest.mark.slow
def test_items_of_a_large_universe_are_answered_well(tmp_path: Path) -> None:
    """16,000 items of 88,000 records at epsilon 1: items 21 to 100 within 12 % on average, and pairs of the top 20."""
    source = shop(88_000, 16_000, 10.0, 0.5)
    top = np.argsort(-source.item_weights, kind="stable")[:100].tolist()
    with ask_items(source, tmp_path, "1", 1) as release:
        answers: Any = release.answers
        singles = [answers.containing([code], "reconstructed", 0.95) for code in top]
        pairs = {pair: answers.containing(pair, "reconstructed", 0.95) for pair in itertools.combinations(top[:20], 2)}
    true = source.item_weights[top]
    far = [abs(one.estimate / weight - 1) for one, weight in zip(singles, true.tolist(), strict=True)]
    assert np.mean(far[:20]) <= 0.02
    assert np.mean(far[20:]) <= 0.12
    assert np.mean([one.low <= weight <= one.high for one, weight in zip(singles, true, strict=True)]) >= 0.9
    held = {pair: source.sets_with_all(pair).sum() for pair in pairs}
    assert np.mean([abs(one.estimate / held[pair] - 1) for pair, one in pairs.items()]) <= 0.09
    assert np.mean([one.low <= held[pair] <= one.high for pair, one in pairs.items()]) >= 0.9


@pytest.mark.soak(part="coverage")
def test_intervals_of_items_that_noise_chose_cover(tmp_path: Path) -> None:
    """300 items that are equally frequent: the 20 largest counts are noise. 20 runs: false alarm 1e-6 at 95 %."""
    draw = np.random.default_rng(4)
    source = sets((draw.choice(300, 5, replace=False).tolist() for _ in range(6000)), 300)
    held, number, naive = 0, 0, 0
    for seed in range(20):
        with ask_items(source, tmp_path, "1", seed) as release:
            answers: Any = release.answers
            views = answers.published_views
            for code in views.codes.tolist():
                one, true = answers.containing([code], "baseline", 0.95), source.item_weights[code]
                held += one.low <= true <= one.high
                count, variance = views.counts.estimates[code], views.counts.variances[code]
                naive += abs(count - true) <= 1.96 * variance**0.5
                number += 1
    assert held >= stats.binom.ppf(1e-6, number, 0.95)
    assert naive < held  # as large as noise made them
