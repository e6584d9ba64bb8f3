"""DiffPart: budgets, the noise, exact likelihood ratios by enumeration, estimates and an audit of the program."""

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
from privsql.mechanisms.dp.noisy_tree import Remainder, estimate_sum, least_cutoff, make_consistent, noise_variance
from privsql.mechanisms.setvalued import mechanism
from privsql.mechanisms.setvalued.diffpart_answers import fit_estimator, impute_sets
from privsql.mechanisms.setvalued.diffpart_tree import (
    Baskets,
    ItemSetTree,
    ItemTaxonomy,
    find_violations,
    generalize_baskets,
    grow_taxonomy,
    grow_tree,
    item_sets,
    least_noisy_size,
)
from privsql.mechanisms.setvalued.parameters import SetValued
from support.enumeration import Enumeration, chi_square, worst_ratio
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SETS = [frozenset(c) for size in (1, 2, 3) for c in itertools.combinations(range(3), size)]


def baskets(records: Iterable[Iterable[int]]) -> Baskets:
    """Records from plain sets."""
    lists = [sorted(set(record)) for record in records]
    full = [record for record in lists if record]
    starts = np.cumsum([0, *map(len, full)]).astype(np.int64)
    codes = np.array([item for record in full for item in record], dtype=np.int64)
    return Baskets(starts, codes, np.ones(len(full), dtype=np.int64), len(lists) - len(full))


def asked(epsilon: object = 1, **options: Any) -> SetValued:
    return SetValued(epsilon=epsilon, universe="data", **({"algorithm": "diffpart"} | options))


def sets_of(tree: ItemSetTree, taxonomy: ItemTaxonomy) -> dict[int, frozenset[int]]:
    """Item set of every leaf."""
    rows = np.flatnonzero(tree.leaf)
    found: dict[int, set[int]] = {row: set() for row in rows.tolist()}
    for which, item in zip(*item_sets(tree, rows, taxonomy), strict=True):
        found[int(rows[which])].add(int(item))
    return {row: frozenset(items) for row, items in found.items()}


class InOrder:
    """Choices without chance: nodes in the order of their numbers."""

    def permutation(self, items: Any) -> Ints:
        return np.arange(items) if isinstance(items, int) else np.array(items)

    def shuffle(self, items: Any) -> None:
        raise AssertionError

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


# What is asked for ----------------------------------------------------------------------------------------------------


@each("epsilon", [0, -1, "0", "1e-9", 0.5, "101", "nan"])
def test_an_epsilon_that_is_no_exact_number_in_range_is_refused(epsilon: object) -> None:
    with pytest.raises(ValidationError, match="epsilon"):
        asked(epsilon)


def test_parameters_are_exact() -> None:
    found = asked("0.1", c1="2.75", c2="6.75")
    assert (found.epsilon, found.c1, found.c2) == (Fraction(1, 10), Fraction(11, 4), Fraction(27, 4))
    assert SetValued.model_validate(found.model_dump()) == found


@pytest.mark.parametrize("options", [{"c1": 1}, {"c2": 1}, {"algorithm": "basic", "c1": 1, "c2": 1}, {"fan_out": 1}])
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        asked(**options)


# The taxonomy ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(2, 12), st.integers(0, 100))
def test_a_taxonomy_is_a_tree_over_all_items(items: int, fan_out: int, seed: int) -> None:
    taxonomy = grow_taxonomy(items, fan_out, np.random.default_rng(seed))
    below = [taxonomy.children[a:b].tolist() for a, b in itertools.pairwise(taxonomy.starts.tolist())]
    assert [len(children) for children in below] == taxonomy.degree.tolist()
    assert taxonomy.degree.max() <= fan_out
    assert sorted(c for k, b in enumerate(below) if taxonomy.height[k] == 1 for c in b) == list(range(items))
    assert sorted(c for k, b in enumerate(below) if taxonomy.height[k] > 1 for c in b) == list(
        range(1, taxonomy.node_count)
    )
    for node, children in enumerate(below):
        low = taxonomy.height[node] == 1
        parent, bit = (taxonomy.item_parent, taxonomy.item_bit) if low else (taxonomy.parent, taxonomy.bit)
        assert [int(parent[c]) for c in children] == [node] * len(children)
        assert [int(bit[c]) for c in children] == list(range(len(children)))
        assert taxonomy.inner[node] == 1 + (0 if low else sum(int(taxonomy.inner[c]) for c in children))
        if not low:
            assert {int(taxonomy.height[c]) for c in children} == {int(taxonomy.height[node]) - 1}
            assert min(children) > node
    assert taxonomy.parent[0] == -1
    assert (np.diff(taxonomy.height) <= 0).all()


def test_nodes_of_equal_degree_are_expanded_in_any_order_alike() -> None:
    # 4 items, fan-out 2: which of the two pairs comes first is a fair coin, 400 times; false alarm below 1e-6
    firsts = [int(grow_taxonomy(4, 2, np.random.default_rng(seed)).item_parent[0]) for seed in range(400)]
    assert 150 <= firsts.count(1) <= 250


# Budgets --------------------------------------------------------------------------------------------------------------


def test_the_papers_example_c_1() -> None:
    # Table 1, fan-out 2: B/6 for the root's expansion, B/3 and B/6 below it; 5B/6 and 2B/3 for the item sets
    table = [{0, 1, 2, 3}, {1, 3}, {1}, {0, 1}, {1}, {0}, {0, 1, 2, 3}, {1, 2, 3}]
    taxonomy = grow_taxonomy(4, 2, InOrder())
    tree = grow_tree(baskets(table), taxonomy, asked(1), Generous(), InOrder())
    spent = [tree.budgets[code] if code >= 0 else None for code in tree.spent]
    cuts = sets_of(tree, taxonomy)
    assert [spent[row] for row in range(1, 4)] == [Fraction(1, 6)] * 3
    assert {spent[row] for row, items in cuts.items() if items <= {0, 1}} == {Fraction(5, 6)}
    assert {spent[row] for row, items in cuts.items() if items & {0, 1} and items & {2, 3}} == {Fraction(2, 3)}
    inner = np.flatnonzero(~tree.leaf & (tree.parent > 0))
    assert {spent[row] for row in inner} == {Fraction(1, 6)}  # the expansion of {I12, I34}; {I12} goes to its item sets
    assert len(cuts) == 15
    assert set(cuts.values()) == {frozenset(c) for k in range(1, 5) for c in itertools.combinations(range(4), k)}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.integers(0, 8), max_size=5), max_size=30), st.integers(2, 4), st.integers(0, 10**6))
def test_every_path_of_a_tree_spends_what_it_may(records: list[set[int]], fan_out: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    taxonomy = grow_taxonomy(9, fan_out, rng)
    request = asked("0.7", fan_out=fan_out, c1="0.5", c2="0.5")
    tree = grow_tree(baskets(records), taxonomy, request, SeededNoise(rng), rng)
    assert list(find_violations(tree, taxonomy, Fraction(7, 10))) == []
    totals = defaultdict(Fraction)
    for row in range(1, len(tree)):
        totals[row] = totals[int(tree.parent[row])] + tree.budgets[tree.spent[row]]
    assert all(totals[row] == Fraction(7, 10) for row in np.flatnonzero(tree.leaf).tolist())


def test_a_budget_that_was_tampered_with_is_found() -> None:
    rng = np.random.default_rng(1)
    taxonomy = grow_taxonomy(9, 3, rng)
    tree = grow_tree(baskets([{0, 4}] * 500), taxonomy, asked(1, fan_out=3), SeededNoise(rng), rng)
    assert list(find_violations(tree, taxonomy, Fraction(1))) == []
    assert list(find_violations(tree, taxonomy, Fraction(9, 10)))
    more = replace(tree, budgets=tuple(budget * 2 for budget in tree.budgets))
    assert any("more than 1" in what for _, what in find_violations(more, taxonomy, Fraction(1)))
    elsewhere = replace(tree, next=np.where(tree.leaf, -1, taxonomy.node_count - 1))
    assert list(find_violations(elsewhere, taxonomy, Fraction(1)))


def test_thresholds() -> None:
    manual = asked(1, c1="2.75", c2="6.75")
    sixth = Fraction(1, 6)
    assert least_noisy_size(manual, sixth, degree=10, height=1, last=False, nodes=3) == math.ceil(
        math.sqrt(2) * 6.75 * 6
    )
    assert least_noisy_size(manual, sixth, degree=10, height=2, last=False, nodes=3) == math.ceil(
        math.sqrt(2) * 13.5 * 6
    )
    assert least_noisy_size(manual, Fraction(2, 3), degree=10, height=1, last=True, nodes=3) == math.ceil(
        math.sqrt(2) * 2.75 * 1.5
    )
    assert least_noisy_size(asked(1, c1=1, c2=1), Fraction(1, 100), degree=1, height=1, last=True, nodes=1) == 142


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
@given(st.lists(st.sets(st.integers(0, 11)), max_size=20), st.integers(2, 5), st.integers(0, 1000))
def test_without_noise_the_tree_is_the_table(records: list[set[int]], fan_out: int, seed: int) -> None:
    class Silent(Generous):
        def add_noise(self, counts: Ints, epsilon: Fraction) -> Ints:
            return counts

        def count_passing(self, empty: Ints, least: int, epsilon: Fraction) -> Ints:
            return np.zeros(len(empty), dtype=np.int64)

    taxonomy = grow_taxonomy(12, fan_out, np.random.default_rng(seed))
    least = asked(100, fan_out=fan_out, c1="0.001", c2="0.001")
    tree = grow_tree(baskets(records), taxonomy, least, Silent(), InOrder())
    found = {items: int(tree.size[row]) for row, items in sets_of(tree, taxonomy).items()}
    expected: dict[frozenset[int], int] = defaultdict(int)
    for record in records:
        expected[frozenset(record)] += 1
    assert (tree.empty or 0) == expected.pop(frozenset(), 0)
    assert found == dict(expected)
    sums = np.bincount(tree.parent[1:], weights=tree.size[1:], minlength=len(tree))
    assert all(sums[row] == tree.size[row] for row in range(1, len(tree)) if not tree.leaf[row])


def test_weights_count_equal_records() -> None:
    many = baskets([{0, 1}] * 40 + [{2}] * 9)
    few = Baskets(np.array([0, 2, 3]), np.array([0, 1, 2]), np.array([40, 9]))
    taxonomy = grow_taxonomy(3, 2, InOrder())
    trees = [
        grow_tree(b, taxonomy, asked(2), SeededNoise(np.random.default_rng(4)), np.random.default_rng(4))
        for b in (many, few)
    ]
    assert [t.size.tolist() for t in trees] == [trees[0].size.tolist()] * 2


@pytest.mark.parametrize("items", [1, 2, 11, 25])
def test_tables_without_records_and_small_universes(items: int) -> None:
    rng = np.random.default_rng(2)
    taxonomy = grow_taxonomy(items, 5, rng)
    tree = grow_tree(baskets([]), taxonomy, asked(1), SeededNoise(rng), rng)
    assert len(tree.parent) == len(tree.size) == len(tree.next)
    found = grow_tree(baskets([{0}] * 300 + [set()] * 200), taxonomy, asked(5), SeededNoise(rng), rng)
    assert frozenset([0]) in sets_of(found, taxonomy).values()
    assert found.empty is not None
    assert abs(found.empty - 200) < 20


def test_thresholds_that_let_everything_pass_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privsql.mechanisms.setvalued.diffpart_tree.LARGEST_TREE", 1000)
    rng = np.random.default_rng(2)
    taxonomy = grow_taxonomy(100, 10, rng)
    with pytest.raises(InfeasibleError, match="raise c1 and c2"):
        grow_tree(baskets([]), taxonomy, asked(1, c1="0.01", c2="0.01"), SeededNoise(rng), rng)


def test_basic_counts_every_set() -> None:
    rng = np.random.default_rng(2)
    table = baskets([{0, 2}] * 70 + [{1}] * 30 + [set()] * 8)
    request = asked(1, algorithm="basic")
    taxonomy = mechanism.flat_taxonomy(3, rng)
    tree = mechanism.count_all(table, taxonomy, request, SeededNoise(rng))
    found = {items: int(tree.size[row]) for row, items in sets_of(tree, taxonomy).items()}
    assert set(found) == set(SETS)
    assert abs(found[frozenset([0, 2])] - 70) < 20
    assert list(find_violations(tree, taxonomy, Fraction(1))) == []
    with pytest.raises(InfeasibleError, match=r"2\^21"):
        mechanism.flat_taxonomy(21, rng)


# Exact likelihood ratios ----------------------------------------------------------------------------------------------


def law_of(records: Sequence[frozenset[int]], items: int, most: int, request: SetValued) -> dict[Any, float]:
    """Exact distribution of the published tree."""
    taxonomy = grow_taxonomy(items, request.fan_out, InOrder())
    table, noise = baskets(records), Enumeration(most)

    def program() -> Any:
        tree = grow_tree(table, taxonomy, request, noise, noise)
        return tuple(zip(tree.parent.tolist(), tree.mask.tolist(), tree.size.tolist(), strict=True)), tree.empty

    found: dict[Any, float] = defaultdict(float)
    for result, chance in noise.runs(program):
        found[result] += chance
    assert math.isclose(sum(found.values()), 1)
    return found


def worst_over(tables: Sequence[tuple[frozenset[int], ...]], most: int, request: SetValued) -> float:
    """The largest likelihood ratio of any output, between any of the tables and itself with one more record."""
    laws: dict[tuple[frozenset[int], ...], dict[Any, float]] = {}
    worst = 0.0
    for table, added in itertools.product(tables, [frozenset[int](), *SETS]):
        more = tuple(sorted((*table, added), key=sorted))
        for records in (table, more):
            if records not in laws:
                laws[records] = law_of(records, 3, most, request)
        worst = max(worst, worst_ratio(laws[table], laws[more]))
    return worst


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([None], marks=pytest.mark.slow),
        pytest.param([None, [0], [2], [0, 1, 2]], marks=pytest.mark.soak(part="outputs")),
        pytest.param([None, [], *map(list, SETS)], marks=pytest.mark.soak(part="outputs")),
    ],
)
def test_no_output_is_more_likely_than_e_to_the_epsilon(first: list[list[int] | None]) -> None:
    # universe of 3, fan-out 2; tables of at most 1 record, against all that have one more; sizes 0 or 1
    request = asked("1.5", fan_out=2, c1="0.001", c2="0.001")
    worst = worst_over([() if record is None else (frozenset(record),) for record in first], 1, request)
    assert math.exp(0.75) < worst <= math.exp(1.5) * (1 + 1e-9)


@pytest.mark.soak(part="outputs")
def test_nor_with_larger_sizes_and_thresholds_of_several_kinds() -> None:
    request = asked(3, fan_out=2, c1=2, c2="0.2")  # thresholds 1 and 2
    worst = worst_over([()], 2, request)
    assert math.exp(1.5) < worst <= math.exp(3) * (1 + 1e-9)


@pytest.mark.slow
def test_the_enumeration_would_find_a_leak() -> None:
    # budgets counted twice over: noise as if each count might spend all of epsilon
    request = asked("1.5", fan_out=2, c1="0.001", c2="0.001")

    class Leaky(Enumeration):
        def _law(self, count: int, epsilon: Fraction) -> list[float]:
            return super()._law(count, Fraction(3, 2))

    taxonomy = grow_taxonomy(3, 2, InOrder())
    laws = []
    for records in ((), (frozenset([0, 1, 2]),)):
        noise, found = Leaky(1), defaultdict(float)
        for tree, chance in noise.runs(lambda n=noise, r=records: grow_tree(baskets(r), taxonomy, request, n, n)):
            found[tuple(tree.parent), tuple(tree.mask), tuple(tree.size), tree.empty] += chance
        laws.append(found)
    assert worst_ratio(*laws) > math.exp(1.5) * 1.5


@pytest.mark.soak(part="outputs")
def test_empty_partitions_pass_as_if_each_were_counted() -> None:
    # 15 masks, 2 of them occupied; how often each set of masks passes, against the exact chance of counting all
    records = [frozenset([0]), frozenset([1, 3])]
    request = asked(1, fan_out=4, c1="1.5", c2=1)
    taxonomy, noise, rng = grow_taxonomy(4, 4, InOrder()), OpenDPNoise(), np.random.default_rng(8)
    least, p = math.ceil(math.sqrt(2) * 1.5), math.exp(-1)
    high = {0: p**least / (1 + p), 1: p ** (least - 1) / (1 + p)}
    runs, free = 20_000, [m for m in range(1, 16) if m not in (1, 10)]
    passed: dict[tuple[int, ...], int] = defaultdict(int)
    sizes = []
    for _ in range(runs):
        tree = grow_tree(baskets(records), taxonomy, request, noise, rng)
        inside = [(m, s) for m, s in zip(tree.mask.tolist(), tree.size.tolist(), strict=True) if m in free]
        passed[tuple(m for m, _ in inside)] += 1
        sizes += [size - least for _, size in inside]
    alone = [(), *((m,) for m in free), *itertools.combinations(free, 2)]
    chances = np.array([high[0] ** len(k) * (1 - high[0]) ** (len(free) - len(k)) for k in alone])
    rest = sum(count for key, count in passed.items() if len(key) > 2)
    chi_square([*(passed[key] for key in alone), rest], chances)
    chi_square(np.bincount(sizes).tolist(), (1 - p) * p ** np.arange(max(sizes) + 1))


# Estimates ------------------------------------------------------------------------------------------------------------


def browsing(number: int, seed: int) -> list[set[int]]:
    """Records over 14 items that are like each other in their lengths and in what they hold."""
    rng = np.random.default_rng(seed)
    chance = 0.5 * 0.75 ** np.arange(14)
    busy = rng.gamma(1.0, 0.8, number)
    drawn = rng.random((number, 14)) < np.minimum(chance[None, :] * busy[:, None], 0.95)
    return [set(np.flatnonzero(row).tolist()) for row in drawn]


def small_tree(seed: int) -> tuple[ItemSetTree, ItemTaxonomy]:
    rng = np.random.default_rng(seed)
    taxonomy = grow_taxonomy(9, 3, rng)
    table = [{int(i) for i in rng.integers(0, 9, 3)} for _ in range(3000)]
    return grow_tree(baskets(table), taxonomy, asked(1, fan_out=3), SeededNoise(rng), rng), taxonomy


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_two_passes_are_the_least_squares_solution(seed: int) -> None:
    tree, _ = small_tree(seed)
    rng = np.random.default_rng(seed)
    own = noise_variance(tree)
    prior = Remainder(rng.uniform(0, 50, len(tree)), rng.uniform(1, 400, len(tree)))
    found = make_consistent(tree, own, prior)
    # unknowns: leaves and remainders; the size of a row is a sum of them
    unknown = np.arange(len(tree))
    above = np.zeros((len(tree), len(tree)))
    for row in unknown:
        at = row
        while at >= 0:
            above[at, row] = 1
            at = int(tree.parent[at])
    design, target, weight = [above[1:]], [tree.size[1:].astype(float)], [1 / own[1:]]
    inner = np.flatnonzero(~tree.leaf)
    design.append(np.eye(len(tree))[inner])
    target.append(prior.mean[inner])
    weight.append(1 / prior.variance[inner])
    a, y, w = np.concatenate(design), np.concatenate(target), np.concatenate(weight)
    precision = a.T @ (w[:, None] * a)
    solution = np.linalg.solve(precision, a.T @ (w * y))
    np.testing.assert_allclose(found.size[tree.leaf], solution[tree.leaf], rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(found.remainder[inner], solution[inner], rtol=1e-6, atol=1e-4)
    share = rng.uniform(0, 1, len(tree))
    estimate, variance = estimate_sum(tree, found, share, share)
    assert estimate == pytest.approx(share @ solution, rel=1e-6)
    assert variance == pytest.approx(share @ np.linalg.solve(precision, share), rel=1e-6)


@pytest.mark.slow
def test_estimates_are_better_than_the_baseline_and_their_intervals_cover() -> None:
    # 40,000 records over 14 items, 5 trees, all items and pairs of items: 525 answers; sanity bound 1 %
    records = [record for record in browsing(60_000, 1) if record][:40_000]
    table, truth = baskets(records), np.zeros((14, 14))
    for record in records:
        for a, b in itertools.combinations_with_replacement(sorted(record), 2):
            truth[a, b] += 1
    errors: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    covered = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        taxonomy = grow_taxonomy(14, 10, rng)
        tree = grow_tree(table, taxonomy, asked(1), SeededNoise(rng), rng)
        found = fit_estimator(tree, taxonomy)
        imputed = impute_sets(tree, taxonomy, found.fit, rng)
        number = np.maximum(np.bincount(imputed.row, minlength=len(tree)), 1)
        leaves = np.zeros((len(tree), 14), dtype=bool)
        for row, items in sets_of(tree, taxonomy).items():
            leaves[row, list(items)] = True
        stand_ins = np.zeros((len(imputed.row), 14), dtype=bool)
        stand_ins[imputed.which, imputed.item] = True
        for a, b in itertools.combinations_with_replacement(range(14), 2):
            met = np.bincount(imputed.row, weights=stand_ins[:, a] & stand_ins[:, b], minlength=len(tree))
            shares = met / number + (leaves[:, a] & leaves[:, b])
            estimate, error = found.estimate_shares(shares)
            base, _ = found.estimate_baseline(shares)
            scale = max(truth[a, b], 400)
            errors[a == b].append((abs(estimate - truth[a, b]) / scale, abs(base - truth[a, b]) / scale))
            covered.append(abs(estimate - truth[a, b]) <= 1.96 * error)
    single, pair = (np.mean(errors[alone], axis=0) for alone in (True, False))
    assert single[0] < single[1] / 2
    assert pair[0] < pair[1]
    assert np.mean(covered) > 0.93


@pytest.mark.slow
def test_imputed_sets_never_stand_for_what_was_kept() -> None:
    tree, taxonomy = small_tree(3)
    found = impute_sets(tree, taxonomy, fit_estimator(tree, taxonomy).fit, np.random.default_rng(1))
    kept = {(int(tree.parent[row]), items) for row, items in sets_of(tree, taxonomy).items()}
    drawn: dict[int, set[int]] = defaultdict(set)
    for which, item in zip(found.which.tolist(), found.item.tolist(), strict=True):
        drawn[which].add(item)
    assert len(drawn) == len(found.row)
    assert not {(int(found.row[which]), frozenset(items)) for which, items in drawn.items()} & kept
    assert (np.diff(found.row) >= 0).all()


def test_masks_follow_the_taxonomy() -> None:
    taxonomy = grow_taxonomy(5, 2, InOrder())
    found = generalize_baskets(baskets([{0, 4}]), taxonomy)
    assert len(found.masks) == 1 + sum(1 for node in range(1, taxonomy.node_count) if _has(taxonomy, node, {0, 4}))
    assert found.masks[0] == 0b11


def _has(taxonomy: ItemTaxonomy, node: int, items: set[int]) -> bool:
    below = taxonomy.children[taxonomy.starts[node] : taxonomy.starts[node + 1]].tolist()
    if taxonomy.height[node] == 1:
        return bool(set(below) & items)
    return any(_has(taxonomy, child, items) for child in below)
