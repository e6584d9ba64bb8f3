"""Layouts: sizes and thresholds bucket by bucket, keys, and an adversary who computes the exact posterior."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from fractions import Fraction
from math import factorial, floor, lcm
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from privsql.errors import InfeasibleError
from privsql.keyed_random import seed_key, system_key
from privsql.mechanisms.bucketize import layout as blocks
from privsql.mechanisms.bucketize import search
from privsql.mechanisms.bucketize.group_flows import allocate_values
from privsql.mechanisms.bucketize.model import BucketProblem, Plan, Setting
from privsql.mechanisms.bucketize.parameters import Layout
from privsql.mechanisms.bucketize.plan import ALGORITHMS, find_plan, find_violation
from support.enumeration import Enumerator
from support.layouts import draw_bids
from support.loops import each, rest_slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from privsql.mechanisms.bucketize.model import Bids

HALF, ONE, THIRD = Fraction(1, 2), Fraction(1), Fraction(1, 3)
OWN = {"largest-first": "anatomy", "lumps": "informative"}  # layouts of one algorithm
LAYOUTS = get_args(Layout)
CASES = [(a, layout) for a in ALGORITHMS for layout in LAYOUTS if OWN.get(layout, a) == a]


def make(counts: Sequence[int], thresholds: Sequence[Fraction], smallest: int = 1, largest: int = 50) -> BucketProblem:
    """A problem from plain numbers."""
    return BucketProblem(np.array(counts, dtype=np.int64), tuple(thresholds), smallest, largest)


def planned(problem: BucketProblem, buckets: dict[int, int], algorithm: str = "optimal") -> Plan:
    """The plan of a given valid setting."""
    setting = Setting.from_counts(buckets)
    most = problem.capacity_for(setting.sizes)
    plan = Plan(algorithm, setting, allocate_values(problem, setting).allocation, most=most)
    assert find_violation(problem, plan) is None
    return plan


def composition(bids: Bids, counts: Sequence[int], buckets: int) -> NDArray[np.int64]:
    """Records of each value in each bucket (m, B)."""
    starts = np.cumsum([0, *counts])
    return np.array([np.bincount(bids[a:b], minlength=buckets) for a, b in itertools.pairwise(starts.tolist())])


def assert_valid_layout(problem: BucketProblem, plan: Plan, layout: str, bids: Bids) -> None:
    """Every promise of a layout that can be seen in one outcome."""
    counts = problem.counts.tolist()
    sizes = [size for size, b in plan.setting.items for _ in range(b)]
    assert bids.dtype == np.int32
    assert len(bids) == sum(counts) == sum(sizes)
    assert bids.min() >= 0
    assert bids.max() < len(sizes)
    table = composition(bids, counts, len(sizes))
    assert table.sum(axis=1).tolist() == counts
    assert table.sum(axis=0).tolist() == sizes
    assert sizes == sorted(sizes)
    for threshold, row in zip(problem.thresholds, table.tolist(), strict=True):
        for size, records in zip(sizes, row, strict=True):
            assert records <= floor(threshold * size)
            assert Fraction(records, size) <= threshold
    if layout not in OWN:
        ends = np.cumsum([0, *plan.setting.buckets]).tolist()
        for j, (begin, end) in enumerate(itertools.pairwise(ends)):
            part = table[:, begin:end]
            assert part.sum(axis=1).tolist() == plan.allocation[:, j].tolist()
            assert (part.max(axis=1) - part.min(axis=1)).max() <= 1


@st.composite
def problems(draw: st.DrawFn) -> BucketProblem:
    """A table of up to 600 records, with thresholds above the frequencies."""
    m = draw(st.integers(2, 12))
    counts = draw(st.lists(st.integers(1, 50), min_size=m, max_size=m))
    slope = draw(st.sampled_from([ONE, Fraction(2), Fraction(4)]))
    plus = draw(st.sampled_from([Fraction(1, 50), Fraction(1, 10), Fraction(1, 4), HALF]))
    thresholds = [min(ONE, slope * Fraction(o, sum(counts)) + plus) for o in counts]
    smallest = draw(st.integers(1, 4))
    return make(counts, thresholds, smallest, draw(st.integers(smallest + 2, 30)))


@pytest.mark.slow
@each(("algorithm", "layout"), CASES, few=4)
def test_layouts_of_random_plans(algorithm: str, layout: str) -> None:
    """Sizes, thresholds and even spread, for plans of every algorithm."""
    seen = 0

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
    @given(problems(), st.integers(0, 2**32))
    def run(problem: BucketProblem, seed: int) -> None:
        nonlocal seen
        assume(len(problem.sizes))
        try:
            plan = find_plan(problem, algorithm)
        except InfeasibleError:
            assume(algorithm not in {"one-size", "anatomy"})
            return
        seen += 1
        assert_valid_layout(problem, plan, layout, draw_bids(plan, layout, seed_key(seed).random_generator("layout")))

    run()
    assert seen >= 5


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 6)), min_size=1, max_size=3, unique_by=lambda item: item[0]),
    st.integers(1, 6),
    st.integers(0, 2**32),
    st.sampled_from(["blocks", "round-robin"]),
)
def test_layouts_of_random_allocations(items: list[tuple[int, int]], m: int, seed: int, layout: str) -> None:
    """Any allocation at all is spread evenly: thresholds are set to just what even spreading needs."""
    setting = Setting.from_counts(dict(items))
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(m, 0.7))
    columns = [rng.multinomial(size * b, shares) for size, b in setting.items]
    allocation = np.array(columns, dtype=np.int64).T
    allocation = allocation[allocation.sum(axis=1) > 0]
    peaks = [
        max(Fraction(-(-int(y) // b), size) for y, (size, b) in zip(row, setting.items, strict=True))
        for row in allocation
    ]
    problem = make(allocation.sum(axis=1).tolist(), peaks, 1, 7)
    plan = Plan("optimal", setting, allocation)
    assert find_violation(problem, plan) is None
    assert_valid_layout(problem, plan, layout, draw_bids(plan, layout, seed_key(seed).random_generator("layout")))


def test_round_robin_is_that_of_the_paper() -> None:
    """The t-th record of x_i goes to bucket (o_1 + .. + o_{i-1} + t) mod b, up to the number of the first bucket."""
    problem = make([5, 4, 3, 3], [HALF] * 4)
    plan = planned(problem, {3: 5})
    expected: dict[int, list[int]] = defaultdict(list)
    for slot, value in enumerate(value for value, o in enumerate(problem.counts.tolist()) for _ in range(o)):
        expected[slot % 5].append(value)
    table = composition(draw_bids(plan, "round-robin", seed_key(1).random_generator("x")), problem.counts.tolist(), 5)
    found = [[value for value in range(4) for _ in range(table[value, g])] for g in range(5)]
    assert sorted(found) == sorted(expected.values())


def test_figure_1_is_dealt_by_round_robin() -> None:
    """Example 4.20: the buckets as the figure prints them; it begins with bucket 1, so bucket 0 is its last."""
    problem = make(
        [1] * 8 + [6] * 4 + [9] * 2, [Fraction(9, 100)] * 8 + [Fraction(29, 100)] * 4 + [Fraction(41, 100)] * 2
    )
    parts = np.array([[0, 1]] * 8 + [[5, 1]] * 4 + [[8, 1]] * 2)
    plan = Plan("setting", Setting.from_counts({4: 9, 14: 1}), parts)
    bids = draw_bids(plan, "round-robin", seed_key(1).random_generator("x"))
    table = composition(bids, problem.counts.tolist(), 10)
    found = [[value + 1 for value in np.repeat(np.arange(14), table[:, g]).tolist()] for g in range(10)]
    of_four = [[9, 10, 12, 13], [9, 11, 12, 14], *[[9, 11, 13, 14]] * 3, [10, 11, 13, 14], *[[10, 12, 13, 14]] * 3]
    assert sorted(found[:9]) == of_four
    assert found[9] == list(range(1, 15))


def test_largest_first_gives_anatomy_distinct_values() -> None:
    """Each bucket of anatomy's own composition holds l or l + 1 different values, once each."""
    problem = make([40, 39, 30, 20, 11, 7, 5, 1], [Fraction(1, 3)] * 8, 2)
    plan = find_plan(problem, "anatomy")
    assert plan.setting == Setting.from_counts({3: 51})
    table = composition(
        draw_bids(plan, "largest-first", seed_key(3).random_generator("x")), problem.counts.tolist(), 51
    )
    assert table.max() == 1


@each(("algorithm", "layout"), CASES, few=6)
def test_the_key_decides(algorithm: str, layout: str) -> None:
    """The same key and purpose repeat every choice; another key or purpose makes others."""
    problem = make([40, 40, 40, 30, 30, 30, 20, 10], [THIRD] * 8, 2)
    plan = find_plan(problem, algorithm)
    first = draw_bids(plan, layout, seed_key(7).random_generator("bucketize"))
    assert (draw_bids(plan, layout, seed_key(7).random_generator("bucketize")) == first).all()
    for other in (
        seed_key(8).random_generator("bucketize"),
        seed_key(7).random_generator("other"),
        system_key().random_generator("bucketize"),
    ):
        assert (draw_bids(plan, layout, other) != first).any()


# The exact adversary


def test_the_enumerator_lists_every_outcome_once() -> None:
    """Calls may depend on earlier outcomes; probabilities are those of independent uniform permutations."""
    noise = Enumerator()

    def run() -> tuple[int, ...]:
        first = noise.permutation(3)
        rest = first[: int(first[0])].copy()
        noise.shuffle(rest)
        return (*first.tolist(), *noise.permutation(rest).tolist())

    outcomes = list(noise.runs(run))
    assert sum(probability for _, probability in outcomes) == 1
    assert len(outcomes) == 2 * 1 + 2 * 1 + 2 * (2 * 2)
    heads: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for outcome, probability in outcomes:
        heads[outcome[:3]] += probability
    assert heads == dict.fromkeys(itertools.permutations(range(3)), Fraction(1, 6))


def distribution(plan: Plan, layout: str) -> dict[tuple[int, ...], Fraction]:
    """Probability of every vector of bids."""
    noise = Enumerator()
    exact: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for bids, probability in noise.runs(lambda: tuple(draw_bids(plan, layout, noise).tolist())):
        exact[bids] += probability
    assert sum(exact.values()) == 1
    return dict(exact)


def tables(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """All assignments of the values to individuals 0..n-1."""
    n = sum(counts)

    def fill(value: int, free: tuple[int, ...], given: dict[int, int]) -> Iterator[tuple[int, ...]]:
        if value == len(counts):
            yield tuple(given[r] for r in range(n))
            return
        for chosen in itertools.combinations(free, counts[value]):
            rest = tuple(r for r in free if r not in chosen)
            yield from fill(value + 1, rest, given | dict.fromkeys(chosen, value))

    return list(fill(0, tuple(range(n)), {}))


Release = tuple[tuple[int, ...], tuple[int, ...]]


def worst_posterior_error(
    plan: Plan,
    bids_of: dict[tuple[int, ...], Fraction],
    passes: Callable[[Release, tuple[int, ...]], bool] = lambda *_: True,
) -> Fraction:
    """Largest |Pr(individual r has x | release) - count(g, x)/|g|| over all releases, individuals and values.

    The prior is uniform over the tables with the plan's counts. A release shows the bucket of every individual and
    the values of every bucket. Records of a value are taken in the order of the individuals. ``passes``: which releases
    of a table are published at all.
    """
    counts = plan.allocation.sum(axis=1).tolist()
    sizes = [size for size, b in plan.setting.items for _ in range(b)]
    scale = lcm(*(p.denominator for p in bids_of.values()))
    starts = np.cumsum([0, *counts]).tolist()
    weighted = [
        (bids, int(p * scale), tuple(composition(np.array(bids), counts, len(sizes)).ravel().tolist()))
        for bids, p in bids_of.items()
    ]
    joint: dict[Release, Counter[tuple[int, int]]] = defaultdict(Counter)
    for table in tables(counts):
        taken = list(starts)
        slots = []
        for value in table:
            slots.append(taken[value])
            taken[value] += 1
        for bids, weight, published in weighted:
            release = tuple(bids[slot] for slot in slots), published
            if not passes(release, table):
                continue
            for individual, value in enumerate(table):
                joint[release][individual, value] += weight
    worst = Fraction(0)
    for (buckets, published), weights in joint.items():
        total = sum(weights[0, x] for x in range(len(counts)))
        for individual, g in enumerate(buckets):
            for x in range(len(counts)):
                stated = Fraction(published[x * len(sizes) + g], sizes[g])
                worst = max(worst, abs(Fraction(weights[individual, x], total) - stated))
    return worst


TINY = {
    "pairs": (make([2, 2, 2], [HALF] * 3), {2: 3}),
    "pairs of two values": (make([3, 3], [HALF] * 2), {2: 3}),
    "skewed pairs": (make([3, 2, 1], [HALF] * 3, 2, 4), {2: 3}),
    "two sizes": (make([3, 2, 1], [HALF] * 3, 2, 4), {2: 1, 4: 1}),
    "two sizes, mixed thresholds": (make([2, 2, 1], [HALF, Fraction(2, 3), HALF], 2, 4), {2: 1, 3: 1}),
    "a value crosses rounds": (make([3, 2, 1], [Fraction(2, 3)] * 3), {3: 2}),
    "a value fills rounds": (make([4, 2], [ONE] * 2), {2: 3}),
    "a value fills a round and crosses": (make([5, 1], [ONE] * 2), {3: 2}),
    "three sizes": (make([3, 2, 1], [ONE] * 3), {1: 1, 2: 1, 3: 1}),
    "a singleton class": (make([2, 2, 1], [ONE] * 3), {1: 1, 2: 2}),
    "one bucket": (make([2, 2, 1], [HALF] * 3), {5: 1}),
    "seven records": (make([3, 2, 2], [HALF] * 3), {2: 2, 3: 1}),
    "four values": (make([2, 2, 1, 1], [HALF] * 4), {2: 3}),
    "four pairs": (make([3, 3, 2], [HALF] * 3), {2: 4}),
    "two classes of two buckets": (make([3, 2, 2], [Fraction(2, 3)] * 3), {2: 2, 3: 1}),
    "rounds in two classes": (make([4, 4], [ONE] * 2), {1: 2, 3: 2}),
    "singletons": (make([2, 1, 1], [ONE] * 3), {1: 4}),
}


@pytest.mark.slow
@each("layout", ["blocks", "round-robin"], few=8)
@each("name", TINY)
def test_the_posterior_is_the_published_share(name: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact Bayes: an adversary who knows everything but the key learns count(g, x)/|g| and no more."""
    problem, buckets = TINY[name]
    if sum(buckets.values()) > 2 and name != "pairs":
        monkeypatch.setattr(blocks, "BLOCKS", 2)  # else a block for every bucket
    plan = planned(problem, buckets)
    found = distribution(plan, layout)
    for bids in found:
        assert_valid_layout(problem, plan, layout, np.array(bids, dtype=np.int32))
    assert worst_posterior_error(plan, found) == 0


@pytest.mark.slow
def test_a_gate_may_look_at_what_is_published_and_not_at_the_truth() -> None:
    """``max_learning`` looks at QIT and ST: the posterior stays. A gate that looks at who is right would change it."""
    problem, buckets = TINY["skewed pairs"]
    plan = planned(problem, buckets)
    found = distribution(plan, "blocks")
    for gate in range(5):
        assert worst_posterior_error(plan, found, lambda release, _, gate=gate: hash((release, gate)) % 2 == 0) == 0
    assert worst_posterior_error(plan, found, lambda release, table: table[0] != release[1][0]) > 0


@each("number", [1, 2], few=1)
@each("name", ["two sizes", "pairs", "skewed pairs", "a value crosses rounds", "one bucket", "three sizes"], few=2)
def test_the_posterior_of_lumps_is_the_published_share(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where values stand as often as they may, in however many blocks."""
    monkeypatch.setattr(blocks, "FINE", 1)  # few chances to go through
    monkeypatch.setattr(blocks, "LUMPS", number)
    problem, buckets = TINY[name]
    plan = planned(problem, buckets)
    found = distribution(plan, "lumps")
    for bids in found:
        assert_valid_layout(problem, plan, "lumps", np.array(bids, dtype=np.int32))
    assert worst_posterior_error(plan, found) == 0


@each(
    "counts",
    [
        [2, 2, 2],
        [3, 3],
        [2, 2, 1],
        [3, 2, 2],
        [2, 2, 1, 1],
        [3, 2, 1, 1],
        [1, 1, 1],
        [2, 1, 1, 1],
        [3, 1, 1, 1],
        [1] * 5,
    ],
)
def test_the_posterior_of_anatomy_is_the_published_share(counts: list[int]) -> None:
    """The same for anatomy's own composition, with and without records left over at the end."""
    problem = make(counts, [HALF] * len(counts), 2)
    setting = search.anatomy_setting(problem)
    assert setting is not None
    plan = planned(problem, dict(setting.items), "anatomy")
    found = distribution(plan, "largest-first")
    for bids in found:
        assert_valid_layout(problem, plan, "largest-first", np.array(bids, dtype=np.int32))
    assert worst_posterior_error(plan, found) == 0


def test_the_posterior_is_the_published_share_where_anatomy_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where anatomy's own composition does not come out, the layout that takes its place is as good."""
    monkeypatch.setattr(blocks, "lay_out_largest_first", lambda plan, noise: None)
    plan = planned(make([2, 2, 1], [HALF] * 3, 2), {2: 1, 3: 1}, "anatomy")
    assert worst_posterior_error(plan, distribution(plan, "largest-first")) == 0


@pytest.mark.parametrize("counts", [[2, 3, 1, 2, 3], [2, 2, 4, 2, 4]])
def test_anatomy_gives_way_on_small_tables(counts: list[int]) -> None:
    """Records left over may find no bucket without their value; the layout is valid all the same."""
    problem = make(counts, [THIRD] * 5, 2)
    plan = find_plan(problem, "anatomy")
    gave_way = 0
    for seed in range(40):
        gave_way += blocks.lay_out_largest_first(plan, seed_key(seed).random_generator("x")) is None
        bids = draw_bids(plan, "largest-first", seed_key(seed).random_generator("x"))
        assert_valid_layout(problem, plan, "largest-first", bids)
        assert composition(bids, counts, sum(plan.setting.buckets)).max() == 1
    assert 0 < gave_way < 40


@pytest.mark.slow
def test_the_posterior_of_found_plans_is_the_published_share() -> None:
    """For whatever plan each algorithm makes of a tiny table."""
    problem = make([3, 2, 1], [HALF, HALF, HALF], 2, 4)
    plans = {}
    for algorithm in ALGORITHMS:
        plan = find_plan(problem, algorithm)
        plans[plan.setting, plan.allocation.tobytes()] = plan
    for plan in plans.values():
        assert worst_posterior_error(plan, distribution(plan, "blocks")) == 0


def test_the_adversary_notices_an_order_that_is_not_random() -> None:
    """Without shuffling within values the posterior is not the published share, so the test above has power."""

    class Still:
        def permutation(self, items: int | NDArray[Any]) -> NDArray[Any]:
            return np.arange(items) if isinstance(items, int) else np.array(items)

        def shuffle(self, items: NDArray[Any]) -> None:
            pass

    for name in ("pairs", "two sizes", "a value crosses rounds"):
        problem, buckets = TINY[name]
        plan = planned(problem, buckets)
        fixed = {tuple(draw_bids(plan, "round-robin", Still()).tolist()): ONE}
        assert worst_posterior_error(plan, fixed) > 0


def test_the_adversary_notices_a_biased_order() -> None:
    """Nor is it, if one order of a value's records is a little more likely than the other."""
    problem, buckets = TINY["pairs"]
    plan = planned(problem, buckets)
    found = distribution(plan, "round-robin")
    least, most = min(found), max(found)
    found[least], found[most] = found[least] / 2, found[most] + found[least] / 2
    assert sum(found.values()) == 1
    assert worst_posterior_error(plan, found) > 0


@pytest.mark.slow
@pytest.mark.parametrize("layout", rest_slow(["blocks", "round-robin", "largest-first", "lumps"]))
def test_every_order_of_a_values_records_is_equally_likely(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the composition, all arrangements of a value's records over its slots have the same probability."""
    monkeypatch.setattr(blocks, "BLOCKS", 2)
    monkeypatch.setattr(blocks, "LUMPS", 2)
    monkeypatch.setattr(blocks, "FINE", 1)
    problem = make([2, 2, 1, 1], [HALF] * 4, 2)
    plan = planned(problem, {2: 3}, "anatomy")
    by_composition: dict[bytes, list[Fraction]] = defaultdict(list)
    sizes: dict[bytes, int] = {}
    for bids, probability in distribution(plan, layout).items():
        table = composition(np.array(bids), [2, 2, 1, 1], 3)
        by_composition[table.tobytes()].append(probability)
        ways = 1
        for row in table.tolist():
            ways *= factorial(sum(row))
            for records in row:
                ways //= factorial(records)
        sizes[table.tobytes()] = ways
    for key, probabilities in by_composition.items():
        assert len(set(probabilities)) == 1
        assert len(probabilities) == sizes[key]


@pytest.mark.slow
def test_blocks_let_any_two_values_meet() -> None:
    """Unlike round robin: over all outcomes each pair of values shares a bucket in some."""
    problem = make([2, 2, 2], [HALF] * 3)
    plan = planned(problem, {2: 3})
    meetings = {"blocks": set[tuple[int, int]](), "round-robin": set[tuple[int, int]]()}
    compositions = {layout: set[bytes]() for layout in meetings}
    for layout, pairs in meetings.items():
        for bids in distribution(plan, layout):
            table = composition(np.array(bids), [2, 2, 2], 3)
            compositions[layout].add(table.tobytes())
            pairs |= {pair for pair in itertools.combinations(range(3), 2) if (table[pair[0]] * table[pair[1]]).any()}
    assert meetings["blocks"] == {(0, 1), (0, 2), (1, 2)}
    assert len(compositions["round-robin"]) == 1
    assert len(compositions["blocks"]) > 1
