"""DiffPart of item sets: taxonomy, budgets, the noise, and exact likelihood ratios by enumeration."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from privsql import dp_random
from privsql.dp_random import OpenDPNoise, SeededNoise
from privsql.errors import InfeasibleError
from privsql.keyed_random import seed_key
from privsql.mechanisms.diffpart import growth
from privsql.mechanisms.diffpart.checks import find_violations
from privsql.mechanisms.diffpart.growth import PartitionedRecords, grow_tree
from privsql.mechanisms.diffpart.plan import items_taxonomy
from privsql.mechanisms.diffpart.tree import PartitionTree, Taxonomy, leaf_values, least_cutoff, make_sets_rule
from privsql.mechanisms.views.parameters import SetValued
from support.enumeration import Enumeration, chi_square, worst_over, worst_ratio
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SETS = [frozenset(c) for size in (1, 2, 3) for c in itertools.combinations(range(3), size)]
ANY_SET = [frozenset[int](), *SETS]


def baskets(records: Iterable[Iterable[int]], taxonomy: Taxonomy) -> PartitionedRecords:
    """Records from plain sets."""
    lists = [sorted(set(record)) for record in records]
    pairs = [(owner, item) for owner, record in enumerate(lists) for item in record]
    owners, items = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return PartitionedRecords.generalize(owners, items, np.ones(len(lists), dtype=np.int64), taxonomy)


def asked(epsilon: object = 1, **options: Any) -> SetValued:
    return SetValued(epsilon=epsilon, universe="data", **({"algorithm": "diffpart"} | options))


def by_fan_out(items: int, fan_out: int) -> Taxonomy:
    return items_taxonomy(items, asked(fan_out=fan_out))


def grown(
    records: Iterable[Iterable[int]], taxonomy: Taxonomy, request: SetValued, noise: Any, choose: Any
) -> PartitionTree:
    return grow_tree(baskets(records, taxonomy), taxonomy, make_sets_rule(request, taxonomy), noise, choose)


def violations(tree: PartitionTree, taxonomy: Taxonomy, request: SetValued) -> list[tuple[int, str]]:
    return list(find_violations(tree, taxonomy, make_sets_rule(request, taxonomy)))


def sets_of(tree: PartitionTree, taxonomy: Taxonomy) -> dict[int, frozenset[int]]:
    """Item set of every leaf."""
    found: dict[int, set[int]] = {row: set() for row in tree.leaves.tolist()}
    for which, item in zip(*leaf_values(tree, taxonomy), strict=True):
        found[int(tree.leaves[which])].add(int(item))
    return {row: frozenset(items) for row, items in found.items()}


class InOrder:
    """Choices without chance: the first ones."""

    def choice(self, number: int, size: int, *, replace: bool, shuffle: bool) -> Ints:
        return np.arange(size)


class Generous:
    """Noise that adds nothing and lets every empty partition pass: the whole tree is grown."""

    origin: Literal["opendp", "seed"] = "seed"

    def add_noise(self, counts: Ints, epsilon: Fraction) -> Ints:
        return np.maximum(counts, 10**6)

    def count_passing(self, empty: Ints, least: int, epsilon: Fraction) -> Ints:
        return empty

    def draw_above(self, number: int, least: int, epsilon: Fraction) -> Ints:
        return np.full(number, 10**6)

    def choose_best(self, scores: Ints, epsilon: Fraction, *, monotonic: bool) -> int:
        raise AssertionError


# What is asked for ----------------------------------------------------------------------------------------------------


@each("epsilon", [0, -1, "0", "1e-9", 0.5, "101", "nan"])
def test_an_epsilon_that_is_no_exact_number_in_range_is_refused(epsilon: object) -> None:
    with pytest.raises(ValidationError, match="epsilon"):
        asked(epsilon)


def test_parameters_are_exact() -> None:
    found = asked("0.1", c1="2.75", c2="6.75")
    assert (found.epsilon, found.c1, found.c2) == (Fraction(1, 10), Fraction(11, 4), Fraction(27, 4))
    assert SetValued.model_validate(found.model_dump()) == found


@pytest.mark.parametrize(
    "options",
    [
        {"c1": 1},
        {"c2": 1},
        {"algorithm": "basic", "c1": 1, "c2": 1},
        {"algorithm": "basic", "fan_out": 3},
        {"fan_out": 1},
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        asked(**options)


# The taxonomy ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(2, 12))
def test_a_taxonomy_is_a_tree_over_all_items(items: int, fan_out: int) -> None:
    taxonomy = by_fan_out(items, fan_out)
    assert taxonomy.values(0).tolist() == list(range(items))
    assert taxonomy.degree.max() <= fan_out
    assert (np.diff(taxonomy.height) >= 0).all()  # so the last node of a cut is one of greatest height
    for node in range(items, len(taxonomy)):
        children = taxonomy.children[taxonomy.starts[node] : taxonomy.starts[node + 1]]
        assert (taxonomy.parent[children] == node).all()
        assert taxonomy.place[children].tolist() == list(range(len(children)))
        assert set(taxonomy.height[children].tolist()) == {int(taxonomy.height[node]) - 1}
        assert taxonomy.inner[node] == 1 + taxonomy.inner[children].sum()


def test_records_fall_into_the_branches_of_their_items() -> None:
    taxonomy = by_fan_out(5, 2)  # 5..7 above the items, 8 and 9 above these, 10 is the root
    found = baskets([{0, 4}, set(), {1, 2, 3}], taxonomy)
    nodes = np.arange(5, 11)
    branches = [found.find_branches(np.full(6, record), nodes).tolist() for record in range(3)]
    assert branches == [[0b01, 0, 0b01, 0b01, 0b01, 0b11], [0] * 6, [0b10, 0b11, 0, 0b11, 0, 0b01]]


# Budgets --------------------------------------------------------------------------------------------------------------


def test_the_papers_example_c_1() -> None:
    # Table 1, fan-out 2: B/6 for the root's expansion, B/3 and B/6 below it; 5B/6 and 2B/3 for the item sets
    table = [{0, 1, 2, 3}, {1, 3}, {1}, {0, 1}, {1}, {0}, {0, 1, 2, 3}, {1, 2, 3}]
    taxonomy = by_fan_out(4, 2)
    tree = grown(table, taxonomy, asked(1), Generous(), InOrder())
    spent = [tree.budgets[code] if code >= 0 else None for code in tree.spent]
    cuts = sets_of(tree, taxonomy)
    assert [spent[row] for row in range(1, 5)] == [1] + [Fraction(1, 6)] * 3  # without items, and three parts
    assert {spent[row] for row, items in cuts.items() if items and items <= {0, 1}} == {Fraction(5, 6)}
    assert {spent[row] for row, items in cuts.items() if items & {0, 1} and items & {2, 3}} == {Fraction(2, 3)}
    inner = np.flatnonzero(~tree.leaf & (tree.parent > 0))
    assert {spent[row] for row in inner} == {Fraction(1, 6)}  # the expansion of {I12, I34}; {I12} goes to its item sets
    assert len(cuts) == 16
    assert set(cuts.values()) == {frozenset(c) for k in range(5) for c in itertools.combinations(range(4), k)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.integers(0, 8), max_size=5), max_size=30), st.integers(2, 4), st.integers(0, 10**6))
def test_every_path_of_a_tree_spends_what_it_may(records: list[set[int]], fan_out: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    taxonomy = by_fan_out(9, fan_out)
    request = asked("0.7", fan_out=fan_out, c1="0.5", c2="0.5")
    tree = grown(records, taxonomy, request, SeededNoise(rng), rng)
    assert violations(tree, taxonomy, request) == []
    totals = defaultdict(Fraction)
    for row in range(1, len(tree)):
        totals[row] = totals[int(tree.parent[row])] + tree.budgets[tree.spent[row]]
    assert all(totals[row] == Fraction(7, 10) for row in np.flatnonzero(tree.leaf).tolist())
    for row, parent in enumerate(tree.parent[1:].tolist(), 1):  # more specific parts spend no less (Appendix F.2)
        assert parent == 0 or tree.budgets[tree.spent[row]] >= tree.budgets[tree.spent[parent]]


def test_a_budget_that_was_tampered_with_is_found() -> None:
    rng, request = np.random.default_rng(1), asked(1, fan_out=3)
    taxonomy = by_fan_out(9, 3)
    tree = grown([{0, 4}] * 500, taxonomy, request, SeededNoise(rng), rng)
    assert violations(tree, taxonomy, request) == []
    assert violations(tree, taxonomy, asked("9/10", fan_out=3))
    more = replace(tree, budgets=tuple(budget * 2 for budget in tree.budgets))
    assert any("more than 1" in what for _, what in violations(more, taxonomy, request))
    elsewhere = replace(tree, next=np.where(tree.leaf, -1, 9))
    assert violations(elsewhere, taxonomy, request)


def test_thresholds() -> None:
    manual = make_sets_rule(asked(1, c1="2.75", c2="6.75"), by_fan_out(10, 10))
    sixth = Fraction(1, 6)
    assert manual.least_size(sixth, 1023, 1, leaf=False) == math.ceil(math.sqrt(2) * 6.75 * 6)
    assert manual.least_size(sixth, 1023, 2, leaf=False) == math.ceil(math.sqrt(2) * 13.5 * 6)
    assert manual.least_size(Fraction(2, 3), 1023, 1, leaf=True) == math.ceil(math.sqrt(2) * 2.75 * 1.5)
    one = make_sets_rule(asked(1, c1=1, c2=1), by_fan_out(10, 10))
    assert one.least_size(Fraction(1, 100), 1, 1, leaf=True) == 142


@given(st.integers(1, 30), st.fractions("1/100", 50), st.fractions("1/200", 20))
def test_the_automatic_threshold_is_the_least_that_lets_few_pass(
    degree: int, passing: Fraction, spent: Fraction
) -> None:
    least, p = least_cutoff(2**degree - 1, passing, spent), math.exp(-spent)
    expected = [(2**degree - 1) * p**t / (1 + p) for t in (least, least - 1)]
    assert expected[0] <= passing * (1 + 1e-9)
    assert least == 1 or expected[1] >= passing * (1 - 1e-9)


# The noise ------------------------------------------------------------------------------------------------------------


@each("epsilon", [Fraction(1, 3), Fraction(7, 10), Fraction(1), Fraction(1, 116), Fraction(22, 7)])
def test_the_scale_never_spends_more(epsilon: Fraction) -> None:
    width = Fraction(dp_random.noise_scale(epsilon))
    assert width * epsilon >= 1
    assert (width - Fraction(math.ulp(float(width)))) * epsilon < 1


def laplace(epsilon: float, reach: int) -> NDArray[np.float64]:
    p = math.exp(-epsilon)
    return (1 - p) / (1 + p) * p ** np.abs(np.arange(-reach, reach + 1))


SOURCES: list[Callable[[], Any]] = [OpenDPNoise, lambda: SeededNoise(seed_key(3).random_generator("test"))]


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_noise_is_discrete_laplace(source: Callable[[], Any], epsilon: Fraction) -> None:
    drawn = source().add_noise(np.full(20_000, 7, dtype=np.int64), epsilon) - 7
    assert drawn.dtype == np.int64
    inside = drawn[np.abs(drawn) <= 20]
    chances = laplace(float(epsilon), 20)
    chi_square([*np.bincount(inside + 20, minlength=41).tolist(), len(drawn) - len(inside)], chances)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_the_tail_is_that_of_the_noise(source: Callable[[], Any]) -> None:
    epsilon, least = Fraction(1, 2), 4
    drawn = source().draw_above(20_000, least, epsilon)
    assert drawn.min() >= least
    chances = laplace(0.5, 60)[60 + least :]
    counts = np.bincount(np.minimum(drawn - least, 60), minlength=61)[: len(chances)]
    chi_square([*counts.tolist(), len(drawn) - int(counts.sum())], chances / laplace(0.5, 400)[400 + least :].sum())


@pytest.mark.slow
@each("source", SOURCES)
@each(("empty", "least"), [(1, 1), (7, 1), (1023, 9), (1000, 1)])
def test_how_many_pass_is_binomial(source: Callable[[], Any], empty: int, least: int) -> None:
    epsilon = Fraction(1, 2)
    p = math.exp(-0.5)
    drawn = source().count_passing(np.full(10_000, empty, dtype=np.int64), least, epsilon)
    law = stats.binom(empty, p**least / (1 + p))
    chi_square(np.bincount(drawn, minlength=empty + 1).tolist(), law.pmf(np.arange(empty + 1)))


def test_doubt_is_settled_in_decimals(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(5).integers(0, 2**64, 50, dtype=np.uint64)
    trials = np.array([1, 3, 15, 255, 700] * 10, dtype=np.int64)

    def draw() -> list[int]:
        left = [words, *[np.array([2**63], dtype=np.uint64)] * 50]
        return dp_random.draw_binomial(trials, 3, Fraction(2), lambda _: left.pop(0)).tolist()

    in_doubles = draw()
    monkeypatch.setattr(dp_random, "DOUBT", 2.0)
    chance = math.exp(-1.5) / (1 + math.exp(-0.5))
    assert draw() == in_doubles == stats.binom.ppf(words / 2.0**64, trials, chance).astype(int).tolist()


@pytest.mark.parametrize(("offset", "expected"), [(-1, 0), (1, 1)])
def test_a_number_on_the_border_takes_more_bits(offset: int, expected: int) -> None:
    # One trial, chance q: the draw is 0 below 1 - q. The first 64 bits of 1 - q leave it open, the next decide.
    with localcontext() as context:
        context.prec = 80
        edge = int((1 - Decimal(-1).exp() / (1 + Decimal(-1).exp())) * 2**128) + offset
    bits = [edge >> 64, edge & 2**64 - 1]
    drawn = dp_random.draw_binomial(np.array([1]), 1, Fraction(1), lambda _: np.array([bits.pop(0)], dtype=np.uint64))
    assert drawn.tolist() == [expected]
    assert bits == []


# The tree -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 11)), max_size=20), st.integers(2, 5))
def test_without_noise_the_tree_is_the_table(records: list[set[int]], fan_out: int) -> None:
    class Silent(Generous):
        def add_noise(self, counts: Ints, epsilon: Fraction) -> Ints:
            return counts

        def count_passing(self, empty: Ints, least: int, epsilon: Fraction) -> Ints:
            return np.zeros(len(empty), dtype=np.int64)

    taxonomy = by_fan_out(12, fan_out)
    least = asked(100, fan_out=fan_out, c1="0.001", c2="0.001")
    tree = grown(records, taxonomy, least, Silent(), InOrder())
    found = {items: int(tree.size[row]) for row, items in sets_of(tree, taxonomy).items()}
    expected: dict[frozenset[int], int] = defaultdict(int)
    for record in records:
        expected[frozenset(record)] += 1
    assert found == dict(expected)
    sums = np.bincount(tree.parent[1:], weights=tree.size[1:], minlength=len(tree))
    assert all(sums[row] == tree.size[row] for row in range(1, len(tree)) if not tree.leaf[row])


def test_weights_count_equal_records() -> None:
    taxonomy, request = by_fan_out(3, 2), asked(2)
    many = baskets([{0, 1}] * 40 + [{2}] * 9, taxonomy)
    few = replace(baskets([{0, 1}, {2}], taxonomy), weights=np.array([40, 9]))
    rule = make_sets_rule(request, taxonomy)
    draws = (np.random.default_rng(4) for _ in range(2))
    one, other = (grow_tree(b, taxonomy, rule, SeededNoise(r), r) for b, r in zip((many, few), draws, strict=True))
    assert one.size.tolist() == other.size.tolist()


@pytest.mark.parametrize("items", [1, 2, 11, 25])
def test_tables_without_records_and_small_universes(items: int) -> None:
    rng, taxonomy = np.random.default_rng(2), by_fan_out(items, 5)
    tree = grown([], taxonomy, asked(1), SeededNoise(rng), rng)
    assert len(tree.parent) == len(tree.size) == len(tree.next)
    found = grown([{0}] * 300 + [set()] * 200, taxonomy, asked(5), SeededNoise(rng), rng)
    sizes = {held: int(found.size[row]) for row, held in sets_of(found, taxonomy).items()}
    assert abs(sizes[frozenset([0])] - 300) < 30
    assert abs(sizes[frozenset()] - 200) < 20
    assert found.counted_records == found.size[found.parent == 0].sum()


def test_thresholds_that_let_everything_pass_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "LARGEST_TREE", 1000)
    rng = np.random.default_rng(2)
    with pytest.raises(InfeasibleError, match="raise c1 and c2"):
        grown([], by_fan_out(100, 10), asked(1, c1="0.01", c2="0.01"), SeededNoise(rng), rng)


# Exact likelihood ratios ----------------------------------------------------------------------------------------------


def law_of(records: Sequence[frozenset[int]], items: int, most: int, request: SetValued) -> dict[Any, float]:
    """Exact distribution of the published tree."""
    taxonomy, noise = by_fan_out(items, request.fan_out), Enumeration(most)

    def program() -> Any:
        tree = grown(records, taxonomy, request, noise, noise)
        return tuple(zip(tree.parent.tolist(), tree.branch.tolist(), tree.size.tolist(), strict=True))

    found: dict[Any, float] = defaultdict(float)
    for result, chance in noise.runs(program):
        found[result] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([None], marks=pytest.mark.soak(part="outputs")),
        pytest.param([None, [0], [2], [0, 1, 2]], marks=pytest.mark.soak(part="outputs")),
        pytest.param([None, [], *map(list, SETS)], marks=pytest.mark.soak(part="outputs")),
    ],
)
def test_no_output_is_more_likely_than_e_to_the_epsilon(first: list[list[int] | None]) -> None:
    # universe of 3, fan-out 2; tables of at most 1 record, against all that have one more; sizes 0 or 1
    request = asked("1.5", fan_out=2, c1="0.001", c2="0.001")
    tables = [() if record is None else (frozenset(record),) for record in first]
    worst = worst_over(tables, ANY_SET, lambda records: law_of(records, 3, 1, request), sorted)
    assert math.exp(0.75) < worst <= math.exp(1.5) * (1 + 1e-9)


@pytest.mark.soak(part="outputs")
def test_nor_with_larger_sizes_and_thresholds_of_several_kinds() -> None:
    request = asked(3, fan_out=2, c1=2, c2="0.2")  # thresholds 1 and 2
    worst = worst_over([()], ANY_SET, lambda records: law_of(records, 3, 2, request), sorted)
    assert math.exp(1.5) < worst <= math.exp(3) * (1 + 1e-9)


@pytest.mark.slow
def test_the_enumeration_would_find_a_leak() -> None:
    # budgets counted twice over: noise as if each count might spend all of epsilon
    request = asked("1.5", fan_out=2, c1="0.001", c2="0.001")

    class Leaky(Enumeration):
        def _law(self, count: int, epsilon: Fraction) -> list[float]:
            return super()._law(count, Fraction(3, 2))

    taxonomy, laws = by_fan_out(3, 2), []
    for records in ((), (frozenset([0, 1, 2]),)):
        noise, found = Leaky(1), defaultdict(float)
        for tree, chance in noise.runs(lambda n=noise, r=records: grown(r, taxonomy, request, n, n)):
            found[tuple(tree.parent), tuple(tree.branch), tuple(tree.size)] += chance
        laws.append(found)
    assert worst_ratio(*laws) > math.exp(1.5) * 1.5


@pytest.mark.soak(part="outputs")
def test_empty_partitions_pass_as_if_each_were_counted() -> None:
    # 15 masks, 2 of them occupied; how often each set of masks passes, against the exact chance of counting all
    records = [frozenset([0]), frozenset([1, 3])]
    request = asked(1, fan_out=4, c1="1.5", c2=1)
    taxonomy, noise, rng = by_fan_out(4, 4), OpenDPNoise(), np.random.default_rng(8)
    least, p = math.ceil(math.sqrt(2) * 1.5), math.exp(-1)
    high = {0: p**least / (1 + p), 1: p ** (least - 1) / (1 + p)}
    runs, free = 20_000, [m for m in range(1, 16) if m not in (1, 10)]
    passed: dict[tuple[int, ...], int] = defaultdict(int)
    sizes = []
    for _ in range(runs):
        tree = grown(records, taxonomy, request, noise, rng)
        inside = [(m, s) for m, s in zip(tree.branch.tolist(), tree.size.tolist(), strict=True) if m in free]
        passed[tuple(m for m, _ in inside)] += 1
        sizes += [size - least for _, size in inside]
    alone = [(), *((m,) for m in free), *itertools.combinations(free, 2)]
    chances = np.array([high[0] ** len(k) * (1 - high[0]) ** (len(free) - len(k)) for k in alone])
    rest = sum(count for key, count in passed.items() if len(key) > 2)
    chi_square([*(passed[key] for key in alone), rest], chances)
    chi_square(np.bincount(sizes).tolist(), (1 - p) * p ** np.arange(max(sizes) + 1))
