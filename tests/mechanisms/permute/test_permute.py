"""(k,e)-anonymity: optima against all partitions of tiny tables, growing tables, adversaries with every release."""

from __future__ import annotations

import itertools
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.permute.grouping import (
    LOCAL,
    Arrivals,
    Axis,
    Spans,
    make_axis,
    static_optimum,
)
from privsql.mechanisms.permute.incremental import (
    BLOCK,
    MOST,
    GroupingHistory,
    RangeMinimum,
    arrange_records,
    group_exactly,
    group_nested,
    group_release,
    label_records,
    reapply,
)
from privsql.mechanisms.permute.parameters import Permute, parse_extent
from privsql.mechanisms.permute.scale import as_integers, float_above
from support.breaches import find_closure_breaches, find_pairwise_breaches
from support.loops import each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from privsql.mechanisms.permute.grouping import Ints
    from privsql.mechanisms.permute.parameters import Algorithm

ALGORITHMS: tuple[Algorithm, ...] = ("nested", "exact", "reapply-last", "reapply-all")
SALARIES = [82, 84, 85, 88, 89, 90, 91], [80, 81, 83], [94, 95, 96]  # the thesis' D0, and what D1 and D2 add


class Grown:
    """A table that grew batch by batch, and the groups of its records in every release."""

    def __init__(self, batches: Sequence[Sequence[int]], k: int, e: int) -> None:
        values = np.array([value for batch in batches for value in batch], dtype=np.int64)
        self.births = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
        units, ranks = np.unique(values, return_inverse=True)
        self.axis, self.ranks, self.e = make_axis(units.tolist(), k, e), np.asarray(ranks, dtype=np.int64), e
        self.releases = np.zeros((0, len(values)), dtype=np.int64)

    def history(self, births: int) -> tuple[GroupingHistory, Ints]:
        """The records of the first batches in sorted order, and which they are."""
        here = np.flatnonzero(self.births <= births)
        order = here[arrange_records(self.ranks[here], self.releases[:, here])]
        units, ranks = np.unique(self.ranks[order], return_inverse=True)
        values = [self.axis.units[unit] for unit in units.tolist()]
        return GroupingHistory(make_axis(values, self.axis.k, self.e), ranks, self.releases[:, order]), order

    def publish(self, births: int, find: Callable[[GroupingHistory], Ints]) -> Ints:
        """Release what is there by now; the groups of all records, -1 for those that are not in it."""
        history, order = self.history(births)
        groups = np.full(len(self.ranks), -1, dtype=np.int64)
        groups[order] = find(history)
        self.releases = np.vstack([self.releases, groups])
        return groups

    def error(self, number: int) -> int:
        """Sum of (max - min) of one release."""
        return sum(self.axis.width(min(members), max(members)) for members in self.members(number))

    def members(self, number: int) -> list[list[int]]:
        """Ranks of the records of every group of one release."""
        groups = self.releases[number]
        return [self.ranks[groups == g].tolist() for g in np.unique(groups[groups >= 0])]

    def groups(self, number: int) -> list[list[int]]:
        """Values of every group of one release, sorted."""
        return sorted(sorted(self.axis.units[rank] for rank in members) for members in self.members(number))

    def breaches(self) -> list[Any]:
        """All breaches of Definition 5."""
        return list(find_pairwise_breaches(self.axis, self.ranks, self.releases))

    def exposed(self) -> list[Ints]:
        """Atoms that are not fine."""
        return find_closure_breaches(self.axis, self.ranks, self.releases)


def grown(batches: Sequence[Sequence[int]], k: int, e: int, algorithm: Algorithm) -> Grown:
    """All releases by one algorithm."""
    table = Grown(batches, k, e)
    for number in range(len(batches)):
        table.publish(number, lambda history: group_release(history, algorithm))
    return table


def partitions(n: int) -> Iterator[list[int]]:
    """Every partition of n items, as a block number for each."""

    def extend(chosen: list[int], used: int) -> Iterator[list[int]]:
        if len(chosen) == n:
            yield chosen
            return
        for block in range(used + 1):
            yield from extend([*chosen, block], max(used, block + 1))

    return extend([], 0)


def fine(values: Sequence[int], k: int, e: int) -> bool:
    """The condition, in its own words."""
    return len(set(values)) >= k and max(values) - min(values) >= e


def best(values: Sequence[int], k: int, e: int, allowed: Callable[[list[list[int]]], bool]) -> int | None:
    """Least sum of (max - min) over every partition of the records into allowed blocks (lists of positions)."""
    found = None
    for blocks in partitions(len(values)):
        members = [[i for i, b in enumerate(blocks) if b == block] for block in range(max(blocks) + 1)]
        inside = [[values[i] for i in block] for block in members]
        if all(fine(block, k, e) for block in inside) and allowed(members):
            error = sum(max(block) - min(block) for block in inside)
            found = error if found is None else min(found, error)
    return found


# Parameters and exact numbers -----------------------------------------------------------------------------------------


@each(
    ("given", "amount", "shown"),
    [
        (0, 0, "0"),
        (Decimal("0.50"), Fraction(1, 2), "0.5"),
        ("1/3", Fraction(1, 3), "1/3"),
        ("2e3", 2000, "2000"),
        ("30 days", 30 * 86400, "30 days"),
        ("1 week 2 days", 9 * 86400, "9 days"),
        ("1.5 Hours", 5400, "1 hour 30 minutes"),
        ("250 milliseconds", Fraction(1, 4), "0.25 seconds"),
    ],
)
def test_a_range_is_read_exactly(given: object, amount: Fraction, shown: str) -> None:
    asked = Permute(k=3, e=given)  # type: ignore[arg-type]
    assert asked.e.amount == amount
    assert asked.e.is_time == (" " in shown)
    assert asked.model_dump(mode="json") == {"kind": "permute", "algorithm": "nested", "k": 3, "e": shown}
    assert Permute.model_validate(asked.model_dump(mode="json")).e.amount == amount


@each("given", [-1, "-0.5", 0.1, "1 month", "a year", "days", "3 dayz", "", True, "inf", None])
def test_a_wrong_range_is_refused_with_an_example(given: object) -> None:
    with pytest.raises(ValidationError, match=r"30 days|negative"):
        Permute(k=3, e=given)  # type: ignore[arg-type]


@each("k", [0, -1, 2.5, "3", True])
def test_k_is_a_positive_integer(k: Any) -> None:
    with pytest.raises(ValidationError):
        Permute(k=k, e=parse_extent(1))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=12), st.fractions(0, 10**6))
def test_doubles_are_the_binary_fractions_that_they_are(values: list[float], e: Fraction) -> None:
    found, least = as_integers(np.array(sorted(values)), e)
    exact_values = [Fraction(value) for value in sorted(values)]
    at_least = Fraction(float_above(e))
    assert at_least >= e
    for a, b in itertools.combinations(range(len(values)), 2):
        assert (found[b] - found[a] >= least) == (exact_values[b] - exact_values[a] >= at_least)


def test_doubles_are_not_rounded() -> None:
    # As decimals 0.3 - 0.2 >= 0.1; as the doubles that the column holds it is a little less.
    values, e = as_integers(np.array([0.2, 0.3]), Fraction(1, 10))
    assert make_axis(values, 1, e).reach.tolist() == [-1, -1]
    values, e = as_integers(np.array([0.25, 0.5]), Fraction(1, 4))
    assert make_axis(values, 1, e).reach.tolist() == [-1, 0]


@given(st.lists(st.integers(-(10**30), 10**30), min_size=1, max_size=9, unique=True), st.integers(0, 10**30))
def test_long_integers_are_exact(values: list[int], e: int) -> None:
    units = sorted(values)
    reach = make_axis(units, 1, e).reach.tolist()
    assert reach == [max((j for j in range(i + 1) if u - units[j] >= e), default=-1) for i, u in enumerate(units)]
    shifted = make_axis([u // 10**12 for u in range(0, 9 * 10**12, 10**12)], 1, 3)
    assert shifted.reach.tolist() == [-1, -1, -1, 0, 1, 2, 3, 4, 5]


@given(st.lists(st.integers(0, 6), max_size=14), st.integers(1, 4), st.integers(0, 5))
def test_left_ends_are_the_last_from_where_on_records_are_fine(values: list[int], k: int, e: int) -> None:
    ranks = np.array(sorted(values), dtype=np.int64)
    found = make_axis(range(7), k, e).left_ends(ranks).tolist()
    for t, left in enumerate(found):
        assert left == max((s for s in range(t + 1) if fine(ranks[s : t + 1].tolist(), k, e)), default=-1)


# The static optimum ---------------------------------------------------------------------------------------------------


def test_known_answer_of_the_first_release() -> None:
    table = grown(SALARIES[:1], 3, 2, "nested")
    assert table.groups(0) == [[82, 84, 85], [88, 89, 90, 91]]
    assert table.error(0) == 6


def test_known_answer_without_history() -> None:
    table = grown([SALARIES[0] + SALARIES[1]], 3, 2, "nested")
    assert table.groups(0) == [[80, 81, 82], [83, 84, 85], [88, 89, 90, 91]]
    assert table.error(0) == 7


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 6))
def test_no_partition_of_any_shape_beats_the_static_optimum(values: list[int], k: int, e: int) -> None:
    least = best(values, k, e, lambda _: True)
    if least is None:
        with pytest.raises(InfeasibleError, match="k distinct"):
            grown([values], k, e, "nested")
        return
    assert grown([values], k, e, "nested").error(0) == least


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sets(st.integers(0, 25), min_size=1, max_size=11), st.integers(1, 3), st.integers(0, 4))
def test_among_the_optima_it_has_the_most_groups(values: set[int], k: int, e: int) -> None:
    units = sorted(values)
    found: list[tuple[int, int]] = []
    for cuts in itertools.product((False, True), repeat=len(units) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(units)]
        blocks = [units[a:b] for a, b in itertools.pairwise(edges)]
        if all(fine(block, k, e) for block in blocks):
            found.append((sum(block[-1] - block[0] for block in blocks), -len(blocks)))
    starts = static_optimum(make_axis(units, k, e))
    if starts is None:
        assert not found
        return
    edges = [*starts, len(units)]
    assert (sum(units[b - 1] - units[a] for a, b in itertools.pairwise(edges)), -len(starts)) == min(found)


def test_ties_negatives_and_zeros() -> None:
    table = grown([[-5, -5, -5, 0, 0, 0, 0, 3, 3, 9, -9]], 2, 3, "nested")
    assert table.groups(0) == [[-9, -5, -5, -5], [0, 0, 0, 0, 3, 3, 9]]
    with pytest.raises(InfeasibleError):
        grown([[0] * 50], 2, 0, "nested")
    with pytest.raises(InfeasibleError):
        grown([[1, 2, 3]], 3, 3, "exact")
    assert grown([[0] * 3], 1, 0, "nested").groups(0) == [[0, 0, 0]]


# Growing tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["nested", "exact", "reapply-all"])
def test_known_answers_of_the_growing_table(algorithm: Algorithm) -> None:
    table = grown(SALARIES, 3, 2, algorithm)
    assert [table.error(i) for i in range(3)] == [6, 8, 10]
    assert table.groups(1) == [[80, 81, 82, 83, 84, 85], [88, 89, 90, 91]]
    assert table.groups(2) == [[80, 81, 82, 83, 84, 85], [88, 89, 90, 91], [94, 95, 96]]
    assert table.breaches() == []


def test_known_breach_of_reapplying_to_the_last_release() -> None:
    table = grown(SALARIES, 3, 2, "reapply-last")
    assert table.error(1) == 8
    assert table.groups(2)[:2] == [[80, 81, 82], [83, 84, 85]]
    found = table.breaches()
    assert {breach.releases for breach in found} == {(0, 2)}
    assert {breach.kind for breach in found} == {"earlier minus later", "later minus earlier", "intersection"}
    alone = next(breach for breach in found if breach.kind == "intersection" and len(breach.records) == 1)
    assert [table.axis.units[table.ranks[i]] for i in alone.records] == [82]
    assert table.exposed()


batches = st.lists(st.lists(st.integers(0, 12), max_size=8), min_size=1, max_size=4)
conditions = {"batches": batches, "k": st.integers(1, 3), "e": st.integers(0, 4)}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**conditions)
def test_exact_is_the_reapplying_algorithm_against_all(batches: list[list[int]], k: int, e: int) -> None:
    table = Grown(batches, k, e)
    for number in range(len(batches)):

        def both(history: GroupingHistory) -> Ints:
            fast, slow = group_exactly(history), reapply(history)
            assert (fast is None) == (slow is None)
            if fast is None or slow is None:
                return history.groups[-1] if len(history.groups) else np.full(len(history.ranks), -1, dtype=np.int64)
            assert cost(history, fast) == cost(history, slow)
            return label_records(fast, len(history.ranks))

        table.publish(number, both)
    assert not table.breaches()


def cost(history: GroupingHistory, starts: Sequence[int]) -> tuple[int, int]:
    """Sum of (max - min), and less the number of groups."""
    edges, ranks = [*starts, len(history.ranks)], history.ranks.tolist()
    return sum(history.axis.width(ranks[a], ranks[b - 1]) for a, b in itertools.pairwise(edges)), -len(starts)


@settings(max_examples=150, deadline=None)
@given(first=st.lists(st.integers(0, 9), min_size=3, max_size=4), second=st.lists(st.integers(0, 9), max_size=4))
def test_exact_against_all_partitions_without_ties(first: list[int], second: list[int]) -> None:
    """No breach-free partition of another shape has a smaller error on these tables."""
    first, second = list(dict.fromkeys(first)), [v for v in dict.fromkeys(second) if v not in first]
    if not fine(first, 2, 2) or not second or not fine(second, 2, 2):
        return
    table = grown([first, second], 2, 2, "exact")
    groups = table.releases[0]
    old = [set(np.flatnonzero(groups == g).tolist()) for g in np.unique(groups[groups >= 0])]
    values = first + second

    def safe(blocks: list[list[int]]) -> bool:
        pieces = [p for a in old for b in map(set, blocks) for p in (a - b, b - a, a & b)]
        return all(not piece or fine([values[i] for i in piece], 2, 2) for piece in pieces)

    intervals = table.error(1)
    least = best(values, 2, 2, safe)
    assert least is not None
    assert least == intervals


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(**conditions)
def test_nested_is_closed_under_every_combination(batches: list[list[int]], k: int, e: int) -> None:
    if not batches[0] or not fine(batches[0], k, e):
        return
    table = grown(batches, k, e, "nested")
    assert table.exposed() == []
    assert table.breaches() == []
    shown, waiting = table.releases[-1] >= 0, table.releases[-1] < 0
    assert ((table.releases[:-1] < 0) | shown).all()  # what was published stays
    if waiting.any():
        assert not table.axis.is_fine(table.ranks[waiting])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(**conditions, choice=st.randoms(use_true_random=False))
def test_an_adversary_who_combines_groups_finds_only_fine_sets(
    batches: list[list[int]], k: int, e: int, choice: Any
) -> None:
    if not batches[0] or not fine(batches[0], k, e):
        return
    table = grown(batches, k, e, "nested")
    sets = [set(np.flatnonzero(row == g).tolist()) for row in table.releases for g in np.unique(row[row >= 0])]
    for _ in range(30):
        known = set(choice.choice(sets))
        for _ in range(choice.randint(1, 5)):
            known = choice.choice((known.__or__, known.__and__, known.__sub__, known.__xor__))(choice.choice(sets))
        assert not known or table.axis.is_fine(table.ranks[sorted(known)])


def test_pairwise_safety_is_not_closed_and_nested_is() -> None:
    """b = a1 + {one new record} + a2 passes every pair of groups, and b - a1 - a2 is the record."""
    table = Grown([[1, 2, 3, 7, 8, 9], [5]], 3, 2)
    table.publish(0, lambda history: group_release(history, "exact"))
    table.publish(1, lambda history: label_records(group_exactly(history) or [], 7))
    assert table.breaches() == []
    assert [atom.tolist() for atom in table.exposed()] == [[6]]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_new_record_is_held_back_until_others_come(algorithm: Algorithm) -> None:
    table = grown([[1, 2, 3, 7, 8, 9], [5], [], [2, 8]], 3, 2, algorithm)
    assert (table.releases[:3] == table.releases[0]).all()
    assert (table.releases[3] >= 0).all()
    assert table.error(3) == 8 if algorithm != "nested" else table.error(3) >= 8


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_new_gives_the_same_groups(algorithm: Algorithm) -> None:
    table = grown([*SALARIES[:2], []], 3, 2, algorithm)
    assert (table.releases[1] == table.releases[2]).all()


def test_a_batch_below_k_or_e_is_held_back() -> None:
    for batch in ([50, 51], [50, 50, 50, 51], [10, 11, 12]):
        table = grown([[0, 10, 20, 30], batch], 3, 15, "nested")
        assert (table.releases[1][4:] == -1).all()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=6), min_size=2, max_size=3), st.integers(2, 3))
def test_unrestrained_no_union_of_old_groups_and_fine_new_records_beats_nested(
    batches: list[list[int]], k: int
) -> None:
    e = 2
    table = Grown(batches, k, e)
    values = [value for batch in batches for value in batch]
    if not fine(batches[0], k, e):
        return
    table.publish(0, lambda history: group_release(history, "nested"))
    for number in range(1, len(batches)):
        before = table.releases[-1]
        table.publish(number, unrestrained)
        groups = [np.flatnonzero(before == g).tolist() for g in np.unique(before[before >= 0])]
        arrived = np.flatnonzero((table.births <= number) & (before < 0)).tolist()
        pieces = groups + [[i] for i in arrived]
        if len(pieces) > 7 or (table.releases[-1] == before).all():
            continue
        found = []
        for blocks in partitions(len(pieces)):
            members = [[i for p, b in zip(pieces, blocks, strict=True) if b == c for i in p] for c in set(blocks)]
            new = [[values[i] for i in block if before[i] < 0] for block in members]
            if all(not block or fine(block, k, e) for block in new):
                held = [[values[i] for i in block] for block in members]
                found.append(sum(max(block) - min(block) for block in held))
        assert table.error(number) == min(found)


def unrestrained(history: GroupingHistory) -> Ints:
    """Nested by the sum of (max - min) alone."""
    last, ranks = history.groups[-1], history.ranks
    fresh = last < 0
    if not history.axis.is_fine(ranks[fresh]):
        return last
    old = [ranks[last == g] for g in range(int(last.max()) + 1)]
    spans = Spans(*(np.array([of(group) for group in old]) for of in (np.min, np.max, len)))
    arrivals = Arrivals(*np.unique(ranks[fresh], return_counts=True))
    found = group_nested(history.axis, spans, arrivals, restrained=False)
    return np.where(fresh, found.new[np.searchsorted(arrivals.ranks, ranks) % len(arrivals.ranks)], found.old[last])


def test_a_few_new_records_do_not_melt_all_groups_into_one() -> None:
    many = [value for step in range(0, 1000, 10) for value in range(step, step + 5)] * 5
    few = [1, 402, 611, 997]
    melted, kept = Grown([many, few], 3, 3), grown([many, few], 3, 3, "nested")
    melted.publish(0, lambda history: group_release(history, "nested"))
    melted.publish(1, unrestrained)
    assert len(melted.groups(1)) == 1
    assert len(kept.groups(1)) == 101
    assert few in kept.groups(1)
    assert kept.exposed() == []


def test_groups_that_were_taken_apart_are_published_again() -> None:
    many = [value for step in range(0, 1000, 10) for value in range(step, step + 5)] * 5
    table = grown([many, [1, 402, 611, 997], [2, 403, 998], many], 3, 3, "nested")
    assert table.exposed() == []
    for number in range(1, 4):
        for group in table.members(number):
            assert table.axis.is_fine(np.array(group))
    assert len(table.groups(3)) >= 100
    assert LOCAL > 1


def test_reapply_all_is_for_few_records_and_exact_needs_intervals() -> None:
    many = list(range(MOST + 1))
    with pytest.raises(UsageError, match=r"at most 400 records.*'exact' finds the same groups"):
        grown([many, [1, 2, 3]], 2, 1, "reapply-all")
    ranks = np.arange(8)
    crossed = np.array([[0, 1, 0, 1, -1, -1, -1, -1]])
    with pytest.raises(UsageError, match=r"no interval.*use 'nested'"):
        group_release(GroupingHistory(make_axis(range(8), 2, 1), ranks, crossed), "exact")


@each("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK * BLOCK + 3 * BLOCK + 7])
def test_the_least_of_any_range(length: int) -> None:
    values = np.random.default_rng(5).integers(0, 10**6, length).tolist()
    least = RangeMinimum()
    for value in values:
        least.append(value)
    ends = sorted({0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, length // 2, length - 1})
    for first, last in itertools.combinations_with_replacement([end for end in ends if end < length], 2):
        assert least.least_between(first, last) == min(values[first : last + 1])


def test_arranged_keeps_intervals_of_every_release() -> None:
    rng = np.random.default_rng(7)
    table = Grown([rng.integers(0, 9, 12).tolist() for _ in range(4)], 2, 2)
    for number in range(4):
        history, _ = table.history(number)
        for row in history.groups:
            held = row[row >= 0]
            assert (np.diff(held) >= 0).all()
        assert (np.diff(history.ranks) >= 0).all()
        table.publish(number, lambda history: group_release(history, "exact"))


def test_an_axis_without_values() -> None:
    nothing = make_axis([], 2, 1)
    assert isinstance(nothing, Axis)
    assert static_optimum(nothing) == []
    assert nothing.is_fine(np.zeros(0, dtype=np.int64)) is False
