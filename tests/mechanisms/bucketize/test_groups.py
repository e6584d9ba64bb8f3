"""Bounds on sets of values: flows, families, settings against the definition, layouts, and the exact posterior."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from privsql.errors import InfeasibleError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import group_flows, layout
from privsql.mechanisms.bucketize.bounds import GroupBound
from privsql.mechanisms.bucketize.group_flows import FlowNetwork, TreePair, allocate_values
from privsql.mechanisms.bucketize.layout import assign_across
from privsql.mechanisms.bucketize.model import BucketProblem, Plan, Setting, make_families
from privsql.mechanisms.bucketize.optimal import Relaxation
from privsql.mechanisms.bucketize.plan import ALGORITHMS, find_plan, find_violation
from support.effort import share
from support.enumeration import Enumerator
from support.layouts import draw_bids
from support.loops import rest_slow
from support.settings import every_setting, loss_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

HALF, THIRD, QUARTER, ONE = Fraction(1, 2), Fraction(1, 3), Fraction(1, 4), Fraction(1)
Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def often(examples: int) -> settings:
    """The same examples at every run, without time limits; fewer where slow tests are not wanted."""
    quiet = [HealthCheck.filter_too_much, HealthCheck.too_slow]
    return settings(max_examples=share(examples), deadline=None, derandomize=True, suppress_health_check=quiet)


def bound(name: str, members: Sequence[int], threshold: Fraction) -> GroupBound:
    return GroupBound(name, tuple(sorted(members)), threshold)


def make(
    counts: Sequence[int],
    thresholds: Sequence[Fraction],
    bounds: Sequence[GroupBound],
    smallest: int = 1,
    largest: int = 6,
) -> BucketProblem:
    """A problem from plain numbers."""
    return BucketProblem(np.array(counts, dtype=np.int64), tuple(thresholds), smallest, largest, (), tuple(bounds))


def by_columns(first: int, second: int, limits: tuple[Fraction, Fraction]) -> list[GroupBound]:
    """Two columns: value (a, b) is number a * ``second`` + b."""
    rows = [bound(f"a = {a}", range(a * second, (a + 1) * second), limits[0]) for a in range(first)]
    columns = [bound(f"b = {b}", range(b, first * second, second), limits[1]) for b in range(second)]
    return rows + columns


# The oracle: bucket by bucket, every way to fill it


def fillings(
    left: tuple[int, ...], size: int, most: tuple[int, ...], sets: tuple[tuple[tuple[int, ...], int], ...]
) -> Iterator[tuple[int, ...]]:
    """Counts per value that one bucket may have."""
    for counts in itertools.product(*(range(min(o, c) + 1) for o, c in zip(left, most, strict=True))):
        if sum(counts) == size and all(sum(counts[i] for i in members) <= limit for members, limit in sets):
            yield counts


def holds(problem: BucketProblem, buckets: Sequence[int]) -> bool:
    """Whether all records find a place in buckets of these sizes, by the definition."""
    if sum(buckets) != problem.records:
        return False
    sizes = tuple(sorted(buckets, reverse=True))

    @cache
    def fits(left: tuple[int, ...], at: int) -> bool:
        if at == len(sizes):
            return True
        size = sizes[at]
        most = tuple(max(c for c in range(size + 1) if Fraction(c, size) <= f) for f in problem.thresholds)
        sets = tuple(
            (one.members, max(c for c in range(size + 1) if Fraction(c, size) <= one.threshold))
            for one in problem.bounds
        )
        return any(
            fits(tuple(o - c for o, c in zip(left, counts, strict=True)), at + 1)
            for counts in fillings(left, size, most, sets)
        )

    return fits(tuple(problem.counts.tolist()), 0)


def valid(problem: BucketProblem, setting: dict[int, int]) -> bool:
    return holds(problem, [size for size, b in setting.items() for _ in range(b)])


def least(problem: BucketProblem, kinds: int) -> int | None:
    """Least loss over all valid settings of at most ``kinds`` sizes; None if there is none."""
    span = range(problem.smallest, problem.largest + 1)
    found = [s for s in every_setting(problem.records, span) if len(s) <= kinds]
    return next((loss_of(s) for s in sorted(found, key=loss_of) if valid(problem, s)), None)


wide = st.sampled_from([Fraction(1, 6), QUARTER, THIRD, HALF, ONE])  # what thresholds lie above frequencies
near = st.sampled_from([Fraction(0), Fraction(1, 30), Fraction(1, 12), Fraction(1, 6), THIRD])


def above(counts: Sequence[int], members: Sequence[int], lift: Fraction) -> Fraction:
    """A threshold for some values, ``lift`` above their frequency; mostly one that can be met."""
    return min(ONE, max(Fraction(sum(counts[i] for i in members), sum(counts)) + lift, Fraction(1, 20)))


@st.composite
def nested_problems(draw: st.DrawFn, most_records: int = 10) -> BucketProblem:
    """A few records, and sets of neighbouring values that are nested or disjoint."""
    m = draw(st.integers(3, 4))
    counts = draw(st.lists(st.integers(1, 4), min_size=m, max_size=m).filter(lambda c: 4 <= sum(c) <= most_records))
    sets: list[tuple[int, int]] = []
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, m - 2))
        end = draw(st.integers(begin + 2, m))
        if all(end <= a or b <= begin or (a <= begin and end <= b) or (begin <= a and b <= end) for a, b in sets):
            sets.append((begin, end))
    bounds = [bound(f"{a}:{b}", range(a, b), above(counts, range(a, b), draw(near))) for a, b in sets]
    thresholds = [above(counts, [i], draw(wide)) for i in range(m)]
    smallest = draw(st.integers(1, 3))
    return make(counts, thresholds, bounds, smallest, draw(st.integers(max(3, smallest), 6)))


@st.composite
def crossing_problems(draw: st.DrawFn, most_records: int = 10) -> BucketProblem:
    """A few records with two columns, both bounded, perhaps with larger groups in one of them."""
    first, second = draw(st.sampled_from([(2, 2), (2, 3), (3, 2)]))
    counts = draw(st.lists(st.integers(0, 4), min_size=first * second, max_size=first * second))
    assume(4 <= sum(counts) <= most_records)
    whole = by_columns(first, second, (ONE, ONE)) + ([bound("a < 2", range(4), ONE)] if first == 3 else [])
    bounds = [replace(one, threshold=above(counts, one.members, draw(near))) for one in whole]
    thresholds = [above(counts, [i], draw(wide)) for i in range(len(counts))]
    smallest = draw(st.integers(1, 3))
    return make(counts, thresholds, bounds, smallest, draw(st.integers(max(3, smallest), 6)))


def assert_exact(problem: BucketProblem, plan: Plan) -> None:
    """Every promise of a plan, in fractions."""
    assert find_violation(problem, plan) is None
    y = plan.allocation
    assert y.sum(axis=1).tolist() == problem.counts.tolist()
    assert y.sum(axis=0).tolist() == [size * b for size, b in plan.setting.items]
    for j, (size, b) in enumerate(plan.setting.items):
        assert problem.smallest <= size <= problem.largest
        for i, threshold in enumerate(problem.thresholds):
            assert int(y[i, j]) <= int(threshold * size) * b
        for one in problem.bounds:
            assert int(y[list(one.members), j].sum()) <= int(one.threshold * size) * b
    assert plan.lower_bound <= plan.loss


def loss_or_none(problem: BucketProblem, algorithm: str) -> int | None:
    try:
        plan = find_plan(problem, algorithm)
    except InfeasibleError:
        return None
    assert_exact(problem, plan)
    return plan.loss


# Flows


@often(200)
@given(st.integers(3, 7), st.data())
def test_flows_are_maximal_whatever_the_bits(nodes: int, data: st.DataObject) -> None:
    """Conserved, within capacities, and as large as the cut that is named; the same if numbers are sent in parts."""
    pairs = [(i, j) for i in range(nodes) for j in range(nodes) if i < j and j != 0 and i != nodes - 1]
    arcs = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    capacity = np.array(data.draw(st.lists(st.integers(0, 2**45), min_size=len(arcs), max_size=len(arcs))), np.int64)
    tails, heads = (np.array(part, dtype=np.int64) for part in zip(*arcs, strict=True))
    network = FlowNetwork(tails, heads, nodes, 0, nodes - 1)
    totals = set()
    for bits in (30, 7):
        flow, reached = network.find_maximum_flow(capacity, bits)
        assert (flow >= 0).all()
        assert (flow <= capacity).all()
        for node in range(1, nodes - 1):
            assert flow[heads == node].sum() == flow[tails == node].sum()
        cut = int(capacity[reached[tails] & ~reached[heads]].sum())
        sent = int(flow[tails == 0].sum())
        assert reached[0]
        assert not reached[nodes - 1] or sent == cut
        assert sent == cut
        totals.add(sent)
    assert len(totals) == 1


def test_flows_of_long_numbers_are_not_cut_off() -> None:
    network = FlowNetwork(np.array([0, 1]), np.array([1, 2]), 3, 0, 2)
    flow, _ = network.find_maximum_flow(np.array([2**40 + 1, 2**41]))
    assert flow.tolist() == [2**40 + 1] * 2


# Families


def test_one_family_two_families_and_three() -> None:
    tree = make_families([bound("all", range(4), HALF), bound("two", [0, 1], QUARTER), bound("one", [0], QUARTER)], 5)
    assert [one.name for one in tree[0].bounds] == ["all", "two", "one"]
    assert len(tree) == 1
    assert tree[0].parent.tolist() == [-1, 0, 1]
    assert tree[0].owner.tolist() == [2, 1, 0, 0, -1]
    rows, columns = make_families(by_columns(2, 3, (HALF, HALF)), 6)
    assert [one.name for one in rows.bounds] == ["a = 0", "a = 1"]
    assert [one.name for one in columns.bounds] == ["b = 0", "b = 1", "b = 2"]
    assert make_families([bound("all", range(4), ONE)], 4) == ()
    third = bound("odd", [0, 4], HALF)
    with pytest.raises(UsageError, match="cross each other") as refusal:
        make_families([*by_columns(2, 3, (HALF, HALF)), third], 6)
    assert "'odd'" in str(refusal.value)
    assert len(make_families([*by_columns(2, 3, (HALF, HALF)), replace(third, threshold=ONE)], 6)) == 2


@often(100)
@given(st.integers(2, 7), st.data())
def test_families_are_refused_only_if_no_two_hold_all_sets(m: int, data: st.DataObject) -> None:
    """Against all ways to part the sets in two."""
    some = st.lists(st.integers(0, m - 1), min_size=1, max_size=m, unique=True)
    sets = data.draw(st.lists(some, min_size=1, max_size=6))
    bounds = [bound(str(k), members, HALF) for k, members in enumerate(sets)]

    def laminar(parts: Sequence[set[int]]) -> bool:
        return all(not a & b or a <= b or b <= a for a, b in itertools.combinations(parts, 2))

    whole = [set(members) for members in sets]
    sides = itertools.product((0, 1), repeat=len(whole))
    possible = any(
        all(laminar([s for s, own in zip(whole, side, strict=True) if own == k]) for k in (0, 1)) for side in sides
    )
    if not possible:
        with pytest.raises(UsageError, match="cross each other"):
            make_families(bounds, m)
        return
    trees = make_families(bounds, m)
    assert len(trees) == (1 if laminar(whole) else 2)
    assert sorted(one.name for tree in trees for one in tree.bounds) == sorted(one.name for one in bounds)
    for tree in trees:
        for i, one in enumerate(tree.bounds):
            above = tree.parent[i]
            assert above < 0 or set(one.members) <= set(tree.bounds[above].members)
        for value, owner in enumerate(tree.owner.tolist()):
            around = [one for one in tree.bounds if value in one.members]
            assert (owner < 0) == (not around)
            assert owner < 0 or len(tree.bounds[owner].members) == min(len(one.members) for one in around)


@often(100)
@given(nested_problems(), st.integers(0, 2**32))
def test_every_set_stands_together_on_the_line(problem: BucketProblem, seed: int) -> None:
    for tree in problem.trees:
        line = tree.draw_line(seed_key(seed).random_generator("line")).tolist()
        assert sorted(line) == list(range(len(problem.counts)))
        for one in tree.bounds:
            at = sorted(line.index(value) for value in one.members)
            assert at == list(range(at[0], at[0] + len(at)))


def test_every_order_of_the_tree_can_be_drawn() -> None:
    """Two sets of two values and one alone: 3! * 2 * 2 orders, all equally likely."""
    (tree,) = make_families([bound("x", [0, 1], HALF), bound("y", [2, 3], HALF)], 5)
    noise = Enumerator()
    orders = Counter(order for order, _ in noise.runs(lambda: tuple(tree.draw_line(noise).tolist())))
    assert len(orders) == 24
    assert len(set(orders.values())) == 1


@often(150)
@given(nested_problems(), st.data())
def test_room_is_the_most_that_a_bucket_may_hold_of_some_values(problem: BucketProblem, data: st.DataObject) -> None:
    """The rank of a tree, against all fillings of one bucket."""
    assume(len(problem.sizes))
    some = data.draw(st.lists(st.integers(0, len(problem.counts) - 1), min_size=1, unique=True))
    for size, room in zip(problem.sizes.tolist(), problem.room_for(np.array(some)).tolist(), strict=True):
        most = tuple(int(f * size) if i in some else 0 for i, f in enumerate(problem.thresholds))
        sets = tuple((one.members, int(one.threshold * size)) for one in problem.bounds)
        left = tuple([size] * len(most))
        held = (sum(c) for total in range(size + 1) for c in fillings(left, total, most, sets))
        assert room == max(held)


# Settings


@pytest.mark.slow
@often(120)
@given(nested_problems())
def test_settings_under_nested_bounds(problem: BucketProblem) -> None:
    """Validity of every setting, and the best of one size, of two and of any, are those of the definition."""
    span = range(problem.smallest, problem.largest + 1)
    for setting in every_setting(problem.records, span):
        flow = allocate_values(problem, Setting.from_counts(setting))
        assert (flow.unplaced == 0) == valid(problem, setting)
        if not flow.unplaced:
            assert_exact(problem, Plan("optimal", Setting.from_counts(setting), flow.allocation))
        elif set(setting) <= set(problem.sizes.tolist()):  # and a set of values shows why
            room = dict(zip(problem.sizes.tolist(), problem.room_for(flow.blocked).tolist(), strict=True))
            assert problem.counts[flow.blocked].sum() > sum(room[size] * b for size, b in setting.items())
    assert loss_or_none(problem, "one-size") == least(problem, 1)
    two = least(problem, 2)
    assert loss_or_none(problem, "two-size") == two
    several, best = loss_or_none(problem, "multi-size"), least(problem, 6)
    assert (several is None) == (two is None)
    assert several is None or two is None or (best is not None and best <= several <= two)
    assert loss_or_none(problem, "optimal") == best


@pytest.mark.slow
@often(120)
@given(crossing_problems())
def test_settings_under_crossing_bounds(problem: BucketProblem) -> None:
    """Of at most two sizes; and the lower bound is one for settings of any sizes."""
    for setting in every_setting(problem.records, range(problem.smallest, problem.largest + 1)):
        if len(setting) > 2 or len(problem.trees) < 2:
            continue
        flow = allocate_values(problem, Setting.from_counts(setting))
        assert (flow.unplaced == 0) == valid(problem, setting)
        if not flow.unplaced:
            assert_exact(problem, Plan("two-size", Setting.from_counts(setting), flow.allocation))
    assert loss_or_none(problem, "one-size") == least(problem, 1)
    assert loss_or_none(problem, "two-size") == least(problem, 2)
    if len(problem.sizes) and (best := least(problem, 6)) is not None:
        relaxation = Relaxation(problem)
        assert relaxation.solve()
        assert relaxation.lower_bound <= best


@often(200)
@given(crossing_problems(), st.data())
def test_what_refutes_a_setting_refutes_no_valid_one(problem: BucketProblem, data: st.DataObject) -> None:
    """A cut is broken by the setting that it was made for, and by no valid setting of any two sizes."""
    assume(len(problem.trees) == 2)
    assume(len(problem.sizes) >= 2)
    one, two = data.draw(st.lists(st.integers(0, len(problem.sizes) - 1), min_size=2, max_size=2, unique=True))
    sizes = problem.sizes.tolist()
    every = [s for s in every_setting(problem.records, sizes) if len(s) == 2]
    for setting in every:
        found = group_flows.allocate_crossing(problem, Setting.from_counts(setting)).cut
        if found is None:
            continue
        (first, b1), (second, b2) = sorted(setting.items())
        at, to = sizes.index(first), sizes.index(second)
        assert found.first[at] * b1 + found.second[to] * b2 < found.need
        for other in every:
            pair = [sizes.index(size) for size in sorted(other)]
            numbers = [other[size] for size in sorted(other)]
            for (i, j), (n1, n2) in ((pair, numbers), (pair[::-1], numbers[::-1])):
                if found.first[i] * n1 + found.second[j] * n2 < found.need:
                    assert not valid(problem, other)
    assert one != two


@pytest.mark.parametrize(("algorithm", "trees"), [("anatomy", 1), ("anatomy", 2), ("multi-size", 2), ("optimal", 2)])
def test_algorithms_that_do_not_keep_bounds_refuse_them(algorithm: str, trees: int) -> None:
    bounds = by_columns(2, 2, (HALF, HALF if trees > 1 else ONE))
    problem = make([4, 4, 4, 4], [HALF] * 4, bounds, 2)
    assert len(problem.trees) == trees
    with pytest.raises(UsageError, match=f"'{algorithm}' does not keep"):
        find_plan(problem, algorithm)
    for other in ALGORITHMS[1:3]:
        assert find_plan(problem, other).loss == 8


# Known answers


def test_two_columns_by_hand() -> None:
    """(a, b) four times each, both columns at 1/2: pairs of opposite corners, eight buckets of two."""
    problem = make([4, 4, 4, 4], [HALF] * 4, by_columns(2, 2, (HALF, HALF)), 2, 10)
    plan = find_plan(problem, "two-size")
    assert plan.setting == Setting.from_counts({2: 8})
    bids = draw_bids(plan, "blocks", seed_key(1).random_generator("layout"), problem.trees)
    buckets = defaultdict(set)
    for bid, code in zip(bids.tolist(), np.repeat(np.arange(4), 4).tolist(), strict=True):
        buckets[bid].add(code)
    assert set(map(frozenset, buckets.values())) <= {frozenset({0, 3}), frozenset({1, 2})}
    assert len(buckets) == 8


def test_a_group_forces_larger_buckets_by_hand() -> None:
    """Five values of 6, each at most half: pairs. Of x1 to x3 (18 of 30) at most 3/5: no bucket below five."""
    counts, half = [6] * 5, [HALF] * 5
    assert find_plan(make(counts, half, [], 2, 20), "optimal").setting == Setting.from_counts({2: 15})
    group = bound("x1 to x3", range(3), Fraction(3, 5))
    plan = find_plan(make(counts, half, [group], 2, 20), "optimal")
    assert plan.setting == Setting.from_counts({5: 6})
    assert plan.lower_bound == plan.loss
    assert plan.allocation[:3, 0].sum() == 18


def test_a_group_inside_a_group_by_hand() -> None:
    """8 records each; {x1..x3} at most 3/4, {x1, x2} in it 1/2: x3 and x4 fill half of every bucket of four."""
    bounds = [bound("three", range(3), Fraction(3, 4)), bound("two", range(2), HALF)]
    plan = find_plan(make([8] * 4, [HALF] * 4, bounds, 2, 20), "optimal")
    assert plan.setting == Setting.from_counts({4: 8})


@pytest.mark.parametrize("algorithm", ["one-size", "two-size", "multi-size", "optimal"])
def test_a_group_that_is_too_frequent_is_named_with_what_works(algorithm: str) -> None:
    group = bound("cancer", range(3), QUARTER)
    with pytest.raises(InfeasibleError) as refusal:
        find_plan(make([10] * 6, [HALF] * 6, [group], 2, 50), algorithm)
    message = str(refusal.value)
    assert "'cancer' has frequency 0.5 above its bound 0.25" in message
    assert "what works: 0.5 for 'cancer'" in message
    assert refusal.value.details["nearest_group"] == {"cancer": "0.5"}
    assert find_plan(make([10] * 6, [HALF] * 6, [replace(group, threshold=HALF)], 2, 50), algorithm).loss


def test_the_nearest_bound_of_a_group_works_and_nothing_smaller_does() -> None:
    """18 of 30 at 3/5 needs a bucket of five; up to four, 2/3 of three is the nearest."""
    group = bound("x1 to x3", range(3), Fraction(3, 5))
    problem = make([6] * 5, [HALF] * 5, [group], 2, 4)
    with pytest.raises(InfeasibleError) as refusal:
        find_plan(problem, "optimal")
    nearest = Fraction(refusal.value.details["nearest_group"]["x1 to x3"])  # type: ignore[index]
    assert find_plan(replace(problem, bounds=(replace(group, threshold=nearest),)), "optimal").loss
    smaller = replace(group, threshold=nearest - Fraction(1, 10**4))
    with pytest.raises(InfeasibleError):
        find_plan(replace(problem, bounds=(smaller,)), "optimal")


def test_where_two_groups_stand_in_the_way_all_bounds_are_shifted() -> None:
    bounds = [bound("one", [0, 1], QUARTER), bound("two", [2, 3], QUARTER)]
    with pytest.raises(InfeasibleError, match=r"what works: raise bounds of groups by 0\.25") as refusal:
        find_plan(make([10] * 4, [HALF] * 4, bounds, 2, 50), "optimal")
    assert refusal.value.details["nearest_group_shift"] == "0.25"
    assert refusal.value.details["group"] in ("one", "two")


def test_where_a_value_and_a_group_stand_in_the_way_all_thresholds_are_shifted() -> None:
    problem = make([10] * 4, [Fraction(1, 5), HALF, HALF, HALF], [bound("one", [0, 1], Fraction(2, 5))], 2, 50)
    with pytest.raises(InfeasibleError, match=r"value x1 has frequency 0\.25 above its threshold 0\.2;") as refusal:
        find_plan(problem, "optimal")
    assert refusal.value.details["nearest_shift"] == "0.1"
    assert find_plan(replace(problem, thresholds=(Fraction(3, 10),) + (HALF,) * 3, bounds=()), "optimal").loss


# Layouts


def tallied(bids: NDArray[np.int32], counts: Ints, buckets: int) -> Ints:
    """Records of each value in each bucket (m, B)."""
    codes = np.repeat(np.arange(len(counts)), counts)
    table = np.zeros((len(counts), buckets), dtype=np.int64)
    np.add.at(table, (codes, bids), 1)
    return table


def assert_even(table: Ints, begin: int, end: int, members: Sequence[int]) -> None:
    """Floor or ceiling of the mean in every bucket of a class."""
    held = table[list(members), begin:end].sum(axis=0)
    assert held.max() - held.min() <= 1


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Setting, Ints, list[GroupBound]]:
    """Any allocation, and any one family or two columns."""
    first, second = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    items = draw(
        st.lists(st.tuples(st.integers(1, 7), st.integers(1, 21)), min_size=1, max_size=3, unique_by=lambda i: i[0])
    )
    setting = Setting.from_counts(dict(items))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shares = rng.dirichlet(np.full(first * second, 0.7))
    allocation = np.array([rng.multinomial(size * b, shares) for size, b in setting.items], dtype=np.int64).T
    near = Fraction(99, 100)  # sets as such; how tight they are is of no account here
    bounds = by_columns(first, second, (near, near if draw(st.booleans()) else ONE))
    if first > 2:
        bounds.append(bound("a < 2", range(2 * second), near))
    return setting, allocation, bounds


@often(250)
@given(layouts(), st.integers(0, 2**32), st.sampled_from(["blocks", "round-robin"]))
def test_layouts_give_every_set_the_floor_or_ceiling_of_its_mean(
    made: tuple[Setting, Ints, list[GroupBound]], seed: int, layout: str
) -> None:
    setting, allocation, bounds = made
    counts = allocation.sum(axis=1)
    problem = BucketProblem(counts, (ONE,) * len(counts), bounds=tuple(bounds))
    plan = Plan("two-size", setting, allocation)
    bids = draw_bids(plan, layout, seed_key(seed).random_generator("layout"), problem.trees)
    sizes = [size for size, b in setting.items for _ in range(b)]
    table = tallied(bids, counts, len(sizes))
    assert bids.dtype == np.int32
    assert table.sum(axis=0).tolist() == sizes
    ends = np.cumsum([0, *setting.buckets]).tolist()
    for j, (begin, end) in enumerate(itertools.pairwise(ends)):
        assert table[:, begin:end].sum(axis=1).tolist() == allocation[:, j].tolist()
        for value in range(len(counts)):
            assert_even(table, begin, end, [value])
        for one in bounds:
            if one.threshold < 1:
                assert_even(table, begin, end, one.members)


@often(100)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 50), st.integers(0, 2**32))
def test_blocks_of_any_number(buckets: int, size: int, number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = rng.multinomial(buckets * size, rng.dirichlet(np.ones(7))).astype(np.int64)
    sets = [bound("x", range(5), HALF), bound("y", range(2), HALF), bound("z", [5, 6], HALF)]
    (tree,) = make_families(sets, 7)
    plan, noise = (
        Plan("two-size", Setting.from_counts({size: buckets}), records[:, None]),
        seed_key(seed).random_generator("lines"),
    )
    widths = [buckets // min(number, buckets)] * min(number, buckets)
    widths[-1] += buckets - sum(widths)
    table = tallied(
        layout.lay_out_evenly(plan, [widths], noise, lambda: tree.draw_line(noise)).rank_places(), records, buckets
    )
    assert table.sum(axis=0).tolist() == [size] * buckets
    assert table.sum(axis=1).tolist() == records.tolist()
    for members in ([0], [1], [2], [3], [4], [5], [6], *(one.members for one in sets)):
        assert_even(table, 0, buckets, members)


@often(100)
@given(crossing_problems(60), st.integers(1, 30), st.integers(0, 2**32))
def test_shares_of_two_families_are_floors_or_ceilings(problem: BucketProblem, whole: int, seed: int) -> None:
    assume(len(problem.trees) == 2)
    pair, part = TreePair(*problem.trees), seed % (whole + 1)
    taken = pair.share_records(problem.counts, part, whole)
    exact = pair.sum_sets(problem.counts) * part
    assert (pair.sum_sets(taken) >= exact // whole).all()
    assert (pair.sum_sets(taken) <= -(-exact // whole)).all()


def test_more_pairs_of_values_meet_than_on_one_line() -> None:
    """Twelve values in four groups of three, a bound on each group: blocks let all pairs of other groups meet."""
    bounds = [bound(str(k), range(3 * k, 3 * k + 3), QUARTER) for k in range(4)]
    problem = make([60] * 12, [QUARTER] * 12, bounds, 4, 4)
    plan = find_plan(problem, "one-size")
    met = {}
    for each_layout in ("blocks", "round-robin"):
        table = tallied(
            draw_bids(plan, each_layout, seed_key(3).random_generator("x"), problem.trees), problem.counts, 180
        )
        met[each_layout] = int(((table @ table.T) > 0).sum())
    assert met["blocks"] == 12 + 12 * 9
    assert met["round-robin"] < met["blocks"]
    table = tallied(across_plan(problem), problem.counts, 180)
    assert int(((table @ table.T) > 0).sum()) == 12 + 12 * 9


def across_plan(problem: BucketProblem) -> NDArray[np.int32]:
    """The buckets of ``across`` where the second family holds nothing that binds."""
    (tree,) = problem.trees
    (flat,) = make_families([bound("all", range(12), HALF)], 12)
    values, buckets = assign_across(problem.counts, 180, TreePair(tree, flat), seed_key(1).random_generator("x"))
    order = np.argsort(values, kind="stable")
    return buckets[order].astype(np.int32)


# The exact posterior


class Fixed:
    """Draws the structure of a layout the same way in every run, and each value's records in every order."""

    def __init__(self, seed: int) -> None:
        self.every, self.seed = Enumerator(), seed
        self.begin()

    def begin(self) -> None:
        self._drawn = seed_key(self.seed).random_generator("structure")

    def integers(self, low: int, high: int, size: int | None = None) -> Any:
        return self._drawn.integers(low, high, size)

    def permutation(self, items: int | NDArray[np.int64]) -> NDArray[np.int64]:
        return self._drawn.permutation(items)

    def shuffle(self, items: NDArray[np.int64]) -> None:
        self.every.shuffle(items)


def assignments(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """All tables with these counts: the value of every individual."""
    return sorted(set(itertools.permutations([value for value, o in enumerate(counts) for _ in range(o)])))


CASES = {
    "one column of two": ([2, 1, 1, 2], by_columns(2, 2, (HALF, ONE)), {2: 3}),
    "both columns": ([2, 1, 1, 2], by_columns(2, 2, (HALF, HALF)), {2: 3}),
    "both columns, two sizes": ([2, 1, 1, 2], by_columns(2, 2, (HALF, HALF)), {2: 1, 4: 1}),
    "a group in a group": ([1, 1, 2, 2], [bound("x", [0, 1, 2], Fraction(2, 3)), bound("y", [0, 1], HALF)], {3: 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["blocks", "round-robin"])
@pytest.mark.parametrize("name", rest_slow(CASES))
def test_the_belief_in_a_component_is_its_share_of_the_bucket(name: str, layout: str) -> None:
    """Exact Bayes over all tables, for whatever structure was drawn: the key tells nothing of whose a value is.

    So the belief in every set of values is the sum of its values' counts over the size, at most its bound.
    """
    counts, bounds, buckets = CASES[name]
    problem = make(counts, [ONE] * 4, bounds, 1, 6)
    setting = Setting.from_counts(buckets)
    plan = Plan("two-size", setting, allocate_values(problem, setting).allocation)
    assert_exact(problem, plan)
    for seed in range(3):
        noise = Fixed(seed)

        def drawn(noise: Fixed = noise) -> tuple[int, ...]:
            noise.begin()
            return tuple(draw_bids(plan, layout, noise, problem.trees).tolist())

        outcomes = list(noise.every.runs(drawn))
        table = tallied(np.array(outcomes[0][0]), problem.counts, sum(setting.buckets))
        assert all((tallied(np.array(b), problem.counts, sum(setting.buckets)) == table).all() for b, _ in outcomes)
        for person, g, weights in beliefs(counts, outcomes):
            for members in [(0,), (1,), (2,), (3,), *(one.members for one in bounds)]:
                believed = sum((weights[value] for value in members), Fraction(0)) / sum(weights.values())
                assert believed == Fraction(int(table[list(members), g].sum()), int(table[:, g].sum())), person
            for one in bounds:
                held = sum((weights[value] for value in one.members), Fraction(0))
                assert held <= one.threshold * sum(weights.values())


def beliefs(
    counts: Sequence[int], outcomes: Sequence[tuple[tuple[int, ...], Fraction]]
) -> Iterator[tuple[int, int, dict[int, Fraction]]]:
    """For every release that can come out and every person: the bucket, and the weight of each value given that.

    A release shows the bucket of every person; the values of the buckets are the same in all ``outcomes``.
    """
    starts = np.cumsum([0, *counts]).tolist()
    joint: dict[tuple[int, ...], dict[tuple[int, int], Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for people in assignments(counts):
        for bids, chance in outcomes:
            taken, seen = list(starts), []
            for value in people:
                seen.append(bids[taken[value]])
                taken[value] += 1
            for person, value in enumerate(people):
                joint[tuple(seen)][person, value] += chance
    for seen_, weights in joint.items():
        for person, g in enumerate(seen_):
            yield person, g, {value: weights[person, value] for value in range(len(counts))}
