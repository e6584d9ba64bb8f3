"""Bucket settings: known answers, brute force from the definition, certificates, explanations, large inputs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import highspy
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.optimize import Bounds, LinearConstraint, milp

import privsql
from experiments.inferential.pruning import PRUNINGS, search_pruned
from privsql.errors import GuaranteeError, InfeasibleError
from privsql.exact import as_fraction, parse_linear
from privsql.mechanisms.bucketize import optimal, search
from privsql.mechanisms.bucketize.group_flows import allocate_values, transport_records
from privsql.mechanisms.bucketize.model import BucketProblem, Ints, Plan, Setting
from privsql.mechanisms.bucketize.parameters import Bucketize
from privsql.mechanisms.bucketize.plan import (
    ALGORITHMS,
    find_plan,
    find_violation,
    plan_facts,
    require_valid_plan,
    require_valid_setting,
)
from support.commands import by_keys
from support.effort import share
from support.loops import each, rest_slow
from support.settings import every_setting, loss_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Thresholds = tuple[Fraction, ...]
QUIET = [HealthCheck.filter_too_much, HealthCheck.too_slow]


def often(examples: int) -> settings:
    """The same examples at every run, without time limits."""
    return settings(max_examples=share(examples), deadline=None, derandomize=True, suppress_health_check=QUIET)


def make(counts: Sequence[int], thresholds: Thresholds, smallest: int = 2, largest: int = 50) -> BucketProblem:
    """A problem from plain numbers."""
    return BucketProblem(np.array(counts, dtype=np.int64), thresholds, smallest, largest)


def by_rule(counts: Sequence[int], rule: str, smallest: int = 2, largest: int = 50) -> BucketProblem:
    """A problem whose thresholds follow a rule in the frequency."""
    line, n = parse_linear(rule), sum(counts)
    return make(counts, tuple(line.threshold_at(Fraction(int(o), n)) for o in counts), smallest, largest)


# The oracle: the definition itself, bucket by bucket, with comparisons of fractions.


@cache
def most(threshold: Fraction, size: int) -> int:
    """The largest c with c/size <= threshold."""
    return max(c for c in range(size + 1) if Fraction(c, size) <= threshold)


def holds(counts: Sequence[int], thresholds: Thresholds, buckets: Sequence[int]) -> bool:
    """Whether every record finds a place in one of the ``buckets`` (sizes): unit augmenting paths."""
    if sum(counts) != sum(buckets):
        return False
    cap = [[most(f, size) for size in buckets] for f in thresholds]
    used = [[0] * len(buckets) for _ in counts]
    room = list(buckets)

    def place(value: int, seen: set[int]) -> bool:
        for g in range(len(buckets)):
            if g in seen or used[value][g] == cap[value][g]:
                continue
            seen.add(g)
            if room[g]:
                room[g] -= 1
                used[value][g] += 1
                return True
            for other in range(len(counts)):
                if used[other][g] and other != value and place(other, seen):
                    used[other][g] -= 1
                    used[value][g] += 1
                    return True
        return False

    return all(place(value, set()) for value, count in enumerate(counts) for _ in range(count))


def exhaustive(counts: Sequence[int], thresholds: Thresholds, buckets: Sequence[int]) -> bool:
    """``holds`` by trying every order of the records over the slots."""
    records = [value for value, count in enumerate(counts) for _ in range(count)]
    slots = [g for g, size in enumerate(buckets) for _ in range(size)]
    if len(records) != len(slots):
        return False
    for order in set(itertools.permutations(records)):
        tally = Counter(zip(slots, order, strict=True))
        if all(Fraction(c, buckets[g]) <= thresholds[value] for (g, value), c in tally.items()):
            return True
    return False


def valid(problem: BucketProblem, setting: dict[int, int]) -> bool:
    """Validity of a setting by the oracle."""
    buckets = [size for size, b in setting.items() for _ in range(b)]
    return holds(problem.counts.tolist(), problem.thresholds, buckets)


def least(problem: BucketProblem, kinds: int) -> int | None:
    """Least loss over all valid settings of at most ``kinds`` sizes, by brute force; None if there is none."""
    span = range(problem.smallest, problem.largest + 1)
    found = [s for s in every_setting(int(problem.counts.sum()), span) if len(s) <= kinds]
    return next((loss_of(s) for s in sorted(found, key=loss_of) if valid(problem, s)), None)


def assert_exact(problem: BucketProblem, plan: Plan) -> None:
    """Re-validate a plan with fractions, independently of ``hall.violation``, which must agree."""
    assert find_violation(problem, plan) is None
    items, y = plan.setting.items, plan.allocation.tolist()
    assert [size for size, _ in items] == sorted({size for size, _ in items})
    assert all(problem.smallest <= size <= max(problem.smallest, problem.largest) and b > 0 for size, b in items)
    assert [sum(row) for row in y] == problem.counts.tolist()
    assert [sum(column) for column in zip(*y, strict=True)] == [size * b for size, b in items]
    for threshold, row in zip(problem.thresholds, y, strict=True):
        for (size, b), records in zip(items, row, strict=True):
            assert 0 <= records <= floor(threshold * size) * b
    assert plan.loss == sum(b * (size - 1) ** 2 for size, b in items)
    assert plan.lower_bound <= plan.loss
    assert plan.mse == plan.loss / max(1, int(problem.counts.sum()) - 1)


def loss_or_none(problem: BucketProblem, algorithm: str) -> int | None:
    """Loss of the plan that ``find`` makes, checked; None if it says that there is none."""
    try:
        plan = find_plan(problem, algorithm)
    except InfeasibleError:
        return None
    assert plan.algorithm == algorithm
    assert_exact(problem, plan)
    return plan.loss


def pruned_losses(problem: BucketProblem) -> set[int | None]:
    """Losses of what the paper's searches find, None where there is no setting."""
    settings_ = (search_pruned(problem, pruning) for pruning in PRUNINGS)
    return {found.loss if found else None for found in settings_}


unit = st.builds(lambda low, high: Fraction(min(low, high), max(low, high)), st.integers(1, 8), st.integers(1, 8))
values = st.tuples(st.integers(1, 6), unit)


@st.composite
def simple(draw: st.DrawFn, most_records: int = 14) -> BucketProblem:
    """A table of few records and up to 5 values, with sizes up to 6, near the simplest ones."""
    rows = draw(st.lists(values, min_size=1, max_size=5).filter(lambda r: sum(o for o, _ in r) <= most_records))
    smallest = draw(st.integers(1, 3))
    largest = draw(st.integers(smallest, 6))
    return make([o for o, _ in rows], tuple(f for _, f in rows), smallest, largest)


def scattered(seed: int, most_records: int) -> BucketProblem:
    """A random table of 3-5 values, with thresholds not far from the frequencies."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(3, 6)), int(rng.integers(max(5, most_records // 2), most_records + 1))
    counts = 1 + rng.multinomial(n - m, rng.dirichlet(np.full(m, 2.0)))
    lift = [Fraction(int(a), int(b)) for a, b in zip(rng.integers(0, 4, m), rng.integers(4, 12, m), strict=True)]
    thresholds = tuple(min(Fraction(1), Fraction(int(o), n) + d) for o, d in zip(counts, lift, strict=True))
    smallest = int(rng.integers(1, 4))
    return make(counts.tolist(), thresholds, smallest, int(rng.integers(smallest, 7)))


def tiny(most_records: int = 14) -> st.SearchStrategy[BucketProblem]:
    """A table of up to 14 records and 5 values, with sizes up to 6."""
    return st.one_of(simple(most_records), st.builds(scattered, st.integers(0, 2**32), st.just(most_records)))


@st.composite
def middling(draw: st.DrawFn) -> BucketProblem:
    """A table of up to 2,000 records with skewed counts and thresholds above the frequencies, mostly."""
    m = draw(st.integers(2, 14))
    counts = draw(st.lists(st.integers(1, 2000 // m), min_size=m, max_size=m))
    slope = draw(st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(2), Fraction(4), Fraction(8)]))
    plus = draw(st.sampled_from([Fraction(1, 100), Fraction(1, 50), Fraction(1, 20), Fraction(1, 6)]))
    n = sum(counts)
    thresholds = tuple(min(Fraction(1), slope * Fraction(o, n) + plus) for o in counts)
    smallest = draw(st.integers(1, 4))
    return make(counts, thresholds, smallest, draw(st.integers(max(smallest, 5), 40)))


# Known answers


def example_420() -> BucketProblem:
    """Example 4.20 of the inferential paper."""
    return by_rule([1] * 8 + [6] * 4 + [9] * 2, "2*f + 0.05")


SETTING_420 = Setting.from_counts({4: 9, 14: 1})


def test_example_420_limits() -> None:
    """a_i1 = 0, 6, 9 and a_i2 = 1, 4, 5; PC, FC and CC hold; 42 records fit T1."""
    problem = example_420()
    assert problem.records == 50
    assert problem.thresholds == (Fraction(9, 100),) * 8 + (Fraction(29, 100),) * 4 + (Fraction(41, 100),) * 2
    limits = np.minimum(problem.capacity_for([4, 14]) * np.array([9, 1]), problem.counts[:, None])
    assert limits[:, 0].tolist() == [0] * 8 + [6] * 4 + [9] * 2
    assert limits[:, 1].tolist() == [1] * 8 + [4] * 4 + [5] * 2
    assert limits[:, 0].sum() == 42
    assert (limits.sum(axis=1) >= problem.counts).all()
    assert (limits.sum(axis=0) >= np.array([36, 14])).all()
    assert SETTING_420.records == 50


def test_example_420_partition() -> None:
    """Of the 42 records that T1 gets at first, 6 of x9-x14 move to T2; what stays obeys all limits."""
    problem = example_420()
    parts = search.partition_records(problem, SETTING_420)
    first = np.array([0] * 8 + [6] * 4 + [9] * 2)
    moved = first - parts[:, 0]
    assert moved.sum() == 6
    assert (moved >= 0).all()
    assert moved[:8].sum() == 0
    assert_exact(problem, Plan("two-size", SETTING_420, parts))


def test_example_420_partition_of_the_paper() -> None:
    """One of each of x9-x14 moves: that is a valid partition as well."""
    parts = np.array([[0, 1]] * 8 + [[5, 1]] * 4 + [[8, 1]] * 2)
    assert parts[:, 0].sum() == 42 - 6
    assert_exact(example_420(), Plan("two-size", SETTING_420, parts))


def test_example_420_setting_is_valid_and_best_of_two_sizes() -> None:
    """The setting is valid by the oracle and by transport, and no pair of sizes does better."""
    problem = example_420()
    assert valid(problem, {4: 9, 14: 1})
    assert allocate_values(problem, SETTING_420).unplaced == 0
    assert search.best_two_size(problem) == SETTING_420
    assert loss_or_none(problem, "two-size") == 250
    assert pruned_losses(problem) == {250}


def test_example_420_has_a_least_loss_of_216() -> None:
    """Three sizes do better than two, and nothing does better: proved in whole numbers."""
    plan = find_plan(example_420(), "optimal")
    assert plan.setting == Setting.from_counts({4: 7, 5: 2, 12: 1})
    assert (plan.loss, plan.lower_bound, plan.gap) == (216, 216, 0.0)


def test_definition_39_reaches_from_no_error_to_one_bucket() -> None:
    """MSE is 0 where every record is a bucket, and n - 1 for a single bucket; losses of parts add up."""
    assert Setting.from_counts({1: 50}).loss == 0
    assert Fraction(Setting.from_counts({50: 1}).loss, 50 - 1) == 50 - 1
    assert SETTING_420.loss == Setting.from_counts({4: 9}).loss + Setting.from_counts({14: 1}).loss


@each("diversity", [2, 3, 4])
def test_section_6_one_threshold_for_all_gives_buckets_of_l_and_of_l_plus_one(diversity: int) -> None:
    """Each value is at most once in a bucket, so a bucket of ST has as many values as records."""
    problem = make([9, 8, 7, 6, 5, 4, 3], (Fraction(1, diversity),) * 7)
    best = search.best_two_size(problem)
    assert best is not None
    assert set(best.sizes) <= {diversity, diversity + 1}
    assert set(problem.capacity_for(best.sizes).ravel().tolist()) == {1}


# A setting that the publisher states


def broken_condition(problem: BucketProblem, setting: Setting) -> dict[str, Any]:
    """Why a setting is refused; empty where it is taken."""
    try:
        assert require_valid_setting(problem, setting) == setting
    except InfeasibleError as error:
        return error.details
    return {}


def test_the_setting_of_example_420_is_taken_and_others_name_what_they_break() -> None:
    problem = example_420()
    assert broken_condition(problem, SETTING_420) == {}
    plan = find_plan(problem, "setting", stated=SETTING_420)
    assert (plan.setting, plan.loss, plan.lower_bound) == (SETTING_420, 250, optimal.lower_bound(problem))
    cases: dict[str, tuple[dict[int, int], list[str]]] = {
        "CC": ({4: 9}, []),
        "PC": ({5: 10}, [f"x{i}" for i in range(1, 9)]),
        "FC": ({3: 6, 16: 2}, []),
        "bucket sizes": ({25: 2}, []),
    }
    for condition, (buckets, names) in cases.items():
        found = broken_condition(replace(problem, largest=20), Setting.from_counts(buckets))
        assert (found["condition"], found.get("hall_set", [])) == (condition, names)
    assert broken_condition(problem, Setting.from_counts({4: 10**30}))["condition"] == "CC"
    with pytest.raises(InfeasibleError, match=r"\{x1, .* x8\} have 8 records, its buckets have room for 0 \(PC\)"):
        require_valid_setting(problem, Setting.from_counts({5: 10}))


def test_every_setting_of_example_523_is_taken() -> None:
    problem = make([7, 7, 7, 7], (Fraction(1, 2),) * 4)
    for t in range(8):
        assert broken_condition(problem, Setting.from_counts({2: 14 - 2 * t, 4: t})) == {}
    assert broken_condition(problem, Setting.from_counts({2: 13, 4: 1}))["condition"] == "CC"


def test_example_532_breaks_hall_s_condition_alone() -> None:
    """Sizes 2, 4 and 5 hold 20, 20 and 30 records; x1..x10 need the last ones."""
    problem = make([5] * 10 + [20], (Fraction(1, 5),) * 10 + (Fraction(1),))
    found = broken_condition(problem, Setting.from_counts({2: 10, 4: 5, 5: 6}))
    assert found["condition"] == "Hall's condition"
    assert (found["hall_set"], found["records"], found["room"]) == ([f"x{i}" for i in range(1, 11)], 50, 30)


@often(150)
@given(tiny())
def test_a_stated_setting_is_taken_if_it_is_valid(problem: BucketProblem) -> None:
    """By the oracle; and of two sizes Theorem 4.17 names every fault."""
    for buckets in itertools.islice(every_setting(problem.records, range(problem.smallest, problem.largest + 1)), 30):
        found = broken_condition(problem, Setting.from_counts(buckets)) if buckets else {}
        assert valid(problem, buckets) == (not found)
        assert len(buckets) > 2 or found.get("condition") != "Hall's condition"


@pytest.mark.parametrize(("text", "short"), [("9x4, 1x14", "9x4, 1x14"), (" 1,200 x 4,  3 x 7 ", "1200x4, 3x7")])
def test_a_setting_is_written_as_a_plan_prints_it(text: str, short: str) -> None:
    params = Bucketize.model_validate({"threshold": "1/4", "setting": text})
    assert (params.setting, params.algorithm) == (short, "setting")
    assert Bucketize.model_validate(params.model_dump(mode="json", exclude_none=True)) == params


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"setting": "9x4, 1x4"}, "a size twice"),
        ({"setting": "9x4 and 1x14"}, "is not a bucket setting"),
        ({"setting": "0x4"}, "is not a bucket setting"),
        ({"setting": ""}, "is not a bucket setting"),
        ({"algorithm": "setting"}, "searches for a setting"),
        ({"setting": "9x4", "algorithm": "optimal"}, "with setting use algorithm = 'setting'"),
        ({"setting": "9x4", "fake_values": 1}, "fake_values can't be combined with setting"),
    ],
)
def test_settings_that_mean_nothing_are_refused(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Bucketize.model_validate({"threshold": "1/4", **keywords})


@pytest.mark.slow
def test_a_stated_setting_is_published_and_verified(tmp_path: Path) -> None:
    values = np.repeat([f"x{i}" for i in range(1, 15)], example_420().counts)
    table = pa.table({"age": np.arange(50) % 7, "disease": values})
    asked = {"threshold": "2*f + 0.05", "mechanism.setting": "9x4, 1x14"}
    asked |= {"sensitive": "disease", "qi": "age", "ledger.off": True}
    done = privsql.publish(table, to=tmp_path / "t.duckdb", **by_keys(asked))
    assert (done.facts["setting"], done.facts["algorithm"]) == ({"4": 9, "14": 1}, "setting")
    assert privsql.verify(done, done.spec).ok
    names = [row.algorithm for row in privsql.algorithms(table, **by_keys(asked)).rows]
    assert names == [*ALGORITHMS, "setting"]


def test_example_523_gamma() -> None:
    """n = 28, S = (2, 4): (14,0), (12,1), .., (0,7)."""
    problem = make([7, 7, 7, 7], (Fraction(1, 2),) * 4, 2, 4)
    lists = search.make_gammas(problem)
    assert problem.sizes.tolist() == [2, 3, 4]
    row = next(p for p in range(len(lists.b1)) if (lists.first[p], lists.second[p]) == (0, 2))
    t = np.arange(int(lists.last[row]) + 1)
    pairs = zip((lists.b1[row] - t * lists.d1[row]).tolist(), (lists.b2[row] + t * lists.d2[row]).tolist(), strict=True)
    assert list(pairs) == [(14, 0), (12, 1), (10, 2), (8, 3), (6, 4), (4, 5), (2, 6), (0, 7)]


def test_remark_312_the_settings_of_at_most_two_sizes_by_our_count() -> None:
    """Sizes from 3 to 20, a million records: the paper has 2,077,869, without saying how it counts."""
    lists = search.make_gammas(make([10**6], (Fraction(1),), 3, 20))
    ends = (lists.b2 == 0).sum() + (lists.b1 == lists.last * lists.d1).sum()  # of one size, in the lists of many pairs
    alone = sum(10**6 % size == 0 for size in range(3, 21))
    assert int((lists.last + 1).sum() - ends) + alone == 2_653_881


@pytest.mark.parametrize(("theta", "occ", "edu"), [(2, 43, 35), (4, 37, 27), (8, 30, 19), (16, 21, 12), (32, 13, 7)])
def test_remark_38_the_l_that_l_diversity_takes(theta: int, occ: int, edu: int) -> None:
    """l = ceil(1 / min f'_i), of the paper's smallest frequencies, 0.18 % and 0.44 %."""
    for least, diversity in (("0.0018", occ), ("0.0044", edu)):
        threshold = parse_linear(f"{theta}*f + 0.02").threshold_at(as_fraction(least))
        assert search.smallest_diversity(make([1, 1], (threshold, Fraction(1)), 1)) == diversity


@often(200)
@given(st.integers(1, 120), st.integers(1, 3), st.integers(2, 9))
def test_gammas_list_every_pair_in_order_of_loss(n: int, smallest: int, largest: int) -> None:
    """Gamma(S1, S2) = all (b1, b2) with S1 b1 + S2 b2 = n, b1 falling; empty lists are left out."""
    problem = make([n], (Fraction(1),), smallest, max(smallest, largest))
    lists, sizes = search.make_gammas(problem), problem.sizes.tolist()
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for p in range(len(lists.b1)):
        t = range(int(lists.last[p]) + 1)
        pairs = [(int(lists.b1[p] - k * lists.d1[p]), int(lists.b2[p] + k * lists.d2[p])) for k in t]
        found[sizes[lists.first[p]], sizes[lists.second[p]]] = pairs
    for s1, s2 in itertools.combinations(sizes, 2):
        expected = [((n - s2 * b2) // s1, b2) for b2 in range(n // s2 + 1) if (n - s2 * b2) % s1 == 0]
        assert found.pop((s1, s2), []) == expected
        losses = [b1 * (s1 - 1) ** 2 + b2 * (s2 - 1) ** 2 for b1, b2 in expected]
        assert losses == sorted(losses)
    assert not found


def test_example_532_three_sizes() -> None:
    """PC, FC and CC hold, but the Hall set x1..x10 has 50 records and room for 30."""
    supply = np.array([5] * 10 + [20])
    limits = np.array([[0, 0, 5]] * 10 + [[20, 20, 20]])
    demand = np.array([20, 20, 30])
    assert (limits.sum(axis=1) >= supply).all()
    assert (np.minimum(limits, supply[:, None]).sum(axis=0) >= demand).all()
    assert supply.sum() == demand.sum()
    flow = transport_records(supply, limits, demand)
    assert flow.unplaced == 20
    assert flow.blocked.tolist() == [True] * 10 + [False]
    assert supply[flow.blocked].sum() == 50
    assert np.minimum(demand, limits[flow.blocked].sum(axis=0)).sum() == 30


def occ_like() -> list[int]:
    """50 counts of 300,000 records with the published extremes of OCC-300K: 0.18 % and 7.5 %."""
    shape = np.geomspace(22_500, 540, 50)
    middle = np.floor(shape[1:-1] * (300_000 - 22_500 - 540) / shape[1:-1].sum()).astype(int)
    counts = [22_500, *middle.tolist(), 540]
    counts[1] += 300_000 - sum(counts)
    return counts


@each(("theta", "diversity"), [(2, 43), (4, 37), (8, 30), (16, 21), (32, 13)])
def test_diversity_of_an_occ_like_table(theta: int, diversity: int) -> None:
    """l = ceil(1/min f'); anatomy exists for theta = 32 alone, since max f = 7.5 % is above 1/14."""
    counts = occ_like()
    assert (sum(counts), min(counts), max(counts), len(counts)) == (300_000, 540, 22_500, 50)
    problem = by_rule(counts, f"{theta}*f + 0.02")
    assert ceil(1 / min(problem.thresholds)) == diversity
    assert search.smallest_diversity(problem) == diversity
    if theta < 32:
        assert search.anatomy_setting(problem) is None
        with pytest.raises(InfeasibleError):
            find_plan(problem, "anatomy")
    else:
        plan = find_plan(problem, "anatomy")
        assert plan.setting == Setting.from_counts({13: 23_064, 14: 12})
        assert_exact(problem, plan)


@pytest.mark.parametrize("theta", rest_slow([2, 8, 32]))
def test_losses_are_ordered_on_an_occ_like_table(theta: int) -> None:
    """optimal <= multi-size <= two-size, all valid, all above the certified bound."""
    problem = by_rule(occ_like(), f"{theta}*f + 0.02")
    plans = [find_plan(problem, algorithm) for algorithm in ("optimal", "multi-size", "two-size")]
    for plan in plans:
        assert_exact(problem, plan)
    losses = [plan.loss for plan in plans]
    assert losses == sorted(losses)
    assert optimal.lower_bound(problem) <= losses[0]
    multi = search.multi_size(problem)
    assert multi is not None
    assert len(multi.sizes) > 2
    assert multi.loss < losses[-1]


# The oracle against an exhaustive search


@often(150)
@given(tiny(6), st.data())
def test_the_oracle_agrees_with_exhaustive_search(problem: BucketProblem, data: st.DataObject) -> None:
    """Unit augmenting paths are right about every setting of up to 6 records."""
    found = list(every_setting(int(problem.counts.sum()), range(1, 7)))
    buckets = [size for size, b in data.draw(st.sampled_from(found)).items() for _ in range(b)]
    counts = problem.counts.tolist()
    assert holds(counts, problem.thresholds, buckets) == exhaustive(counts, problem.thresholds, buckets)


# Search against brute force


@often(400)
@given(tiny())
def test_one_and_two_sizes_equal_brute_force(problem: BucketProblem) -> None:
    """Closed form, the paper's searches, and Lemma 4.13, against all (S1, b1, S2, b2)."""
    one, two = search.best_one_size(problem), None
    if len(problem.sizes):
        two = search.best_two_size(problem)
        assert pruned_losses(problem) == {two.loss if two else None}
    assert (one.loss if one else None) == least(problem, 1)
    assert (two.loss if two else None) == least(problem, 2)


@often(400)
@given(tiny())
@example(make([3, 3, 2, 4], (Fraction(4, 5), Fraction(2, 7), Fraction(1), Fraction(3, 7)), 1, 4))
@example(make([1] * 5, (Fraction(1, 5),) * 5, 2, 5))
@example(make([1] * 6, (Fraction(1, 5),) * 6, 2, 5))
@example(make([7], (Fraction(1),), 2, 2))
def test_optimal_equals_brute_force(problem: BucketProblem) -> None:
    """Over all settings of any number of sizes, with the same answer where there is none."""
    best = least(problem, 99)
    found = optimal.search_optimum(problem, None) if len(problem.sizes) else None
    assert (found.setting.loss if found else None) == best
    if found is not None:
        assert optimal.bound_by_size(problem) <= best
        assert found == optimal.search_optimum(problem, found.setting)
        assert found.lower_bound == found.setting.loss
        assert valid(problem, dict(found.setting.items))
        assert optimal.lower_bound(problem) <= found.setting.loss
        assert loss_or_none(problem, "optimal") == best


def direct(problem: BucketProblem) -> int | None:
    """Least loss by an integer program in b and the records y_iS themselves, without any cut; None if infeasible."""
    sizes, m = list(range(problem.smallest, problem.largest + 1)), len(problem.counts)
    k = len(sizes)
    floors = np.array([[floor(f * size) for size in sizes] for f in problem.thresholds], dtype=float)
    limit = np.hstack([-np.vstack([np.diag(row) for row in floors]), np.eye(m * k)])
    rows = np.hstack([np.zeros((m, k)), np.kron(np.eye(m), np.ones(k))])
    columns = np.hstack([-np.diag(np.array(sizes, dtype=float)), np.kron(np.ones(m), np.eye(k))])
    counts = problem.counts.astype(float)
    result = milp(
        np.concatenate([(np.array(sizes) - 1.0) ** 2, np.zeros(m * k)]),
        integrality=np.concatenate([np.ones(k), np.zeros(m * k)]),
        bounds=Bounds(0, np.inf),
        constraints=[
            LinearConstraint(limit, -np.inf, 0),
            LinearConstraint(rows, counts, counts),
            LinearConstraint(columns, 0, 0),
        ],
        options={"mip_rel_gap": 0.0},
    )
    assert result.status in {0, 2}
    return round(result.fun) if result.status == 0 else None


def wide(seed: int) -> BucketProblem:
    """A random table of 6-19 values and 20-119 records."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 120))
    m = int(rng.integers(6, min(20, n // 2)))
    counts = 1 + rng.multinomial(n - m, rng.dirichlet(np.full(m, 1.0)))
    lift = [Fraction(int(rng.integers(1, 8)), int(rng.integers(4, 40))) for _ in range(m)]
    thresholds = tuple(min(Fraction(1), Fraction(int(o), n) + d) for o, d in zip(counts, lift, strict=True))
    return make(counts.tolist(), thresholds, 2, int(rng.integers(5, 14)))


@often(150)
@given(st.integers(0, 2**32))
def test_optimal_equals_a_direct_program(seed: int) -> None:
    """The least loss is that of a program which has the transport in it, where brute force is too slow."""
    assert loss_or_none(wide(seed), "optimal") == direct(wide(seed))


@each("seed", [1194, 1363, 2479, 3778, 4624, 5347, 5707, 5811, 6110, 6226, 6345, 6526])
def test_optimal_where_whole_numbers_need_more_cuts(seed: int) -> None:
    """The same on tables whose integer program meets a Hall set that the linear program had not violated."""
    best = direct(wide(seed))
    assert best is not None
    assert loss_or_none(wide(seed), "optimal") == best


@often(300)
@given(tiny())
def test_heuristics_are_valid(problem: BucketProblem) -> None:
    """Multi-size and anatomy: valid by the oracle, never below the optimum; multi-size is never above two-size."""
    assume(len(problem.sizes))
    multi, two, plain = search.multi_size(problem), search.best_two_size(problem), search.anatomy_setting(problem)
    bound = optimal.lower_bound(problem)
    assert (multi is None) == (two is None)
    for setting in (s for s in (multi, two, plain) if s):
        assert valid(problem, dict(setting.items))
        assert all(problem.smallest <= size <= problem.largest for size in setting.sizes)
        assert bound <= setting.loss
    if multi and two:
        assert multi.loss <= two.loss


@often(150)
@given(tiny())
def test_allocate_agrees_with_the_oracle(problem: BucketProblem) -> None:
    """A setting is valid iff ``allocate`` places every record, and then its plan passes both checks."""
    n = int(problem.counts.sum())
    for buckets in itertools.islice(every_setting(n, range(problem.smallest, problem.largest + 1)), 25):
        setting = Setting.from_counts(buckets)
        flow = allocate_values(problem, setting)
        assert (flow.unplaced == 0) == valid(problem, buckets)
        assert (flow.unplaced == 0) == (not flow.blocked.any())
        if not flow.unplaced:
            require_valid_plan(problem, Plan("optimal", setting, flow.allocation))


@often(200)
@given(middling())
def test_prunes_find_equal_losses(problem: BucketProblem) -> None:
    """None, loss, full and closed form agree on tables of up to 2,000 records."""
    assume(len(problem.sizes))
    two = search.best_two_size(problem)
    assert pruned_losses(problem) == {two.loss if two else None}


@pytest.mark.slow
@often(80)
@example(make([1, 1], (Fraction(1), Fraction(1)), 1, 5))  # no loss at all
@given(middling())
def test_plans_of_every_algorithm_are_valid(problem: BucketProblem) -> None:
    """On tables of up to 2,000 records, with the order of the losses and the bound below all of them."""
    losses: dict[str, int] = {}
    bound = optimal.lower_bound(problem) if len(problem.sizes) else 0
    for algorithm in ALGORITHMS:
        if not len(problem.sizes):
            continue
        setting = {
            "anatomy": search.anatomy_setting,
            "one-size": search.best_one_size,
            "two-size": search.best_two_size,
            "multi-size": search.multi_size,
            "optimal": lambda p: found.setting if (found := optimal.search_optimum(p, None)) else None,
            "informative": search.find_informative,
        }[algorithm](problem)
        if setting is not None:
            assert_exact(problem, Plan(algorithm, setting, allocate_values(problem, setting).allocation, bound))
            losses[algorithm] = setting.loss
    if "two-size" in losses:
        assert losses["multi-size"] <= losses["two-size"] <= losses.get("one-size", losses["two-size"])
        assert "optimal" in losses


@often(200)
@given(middling())
def test_fill_caps_equal_brute_force(problem: BucketProblem) -> None:
    """The largest b with sum_i min(F_iS b, o_i) >= S b, and the inequality holds for every smaller b."""
    counts, n = problem.counts, int(problem.counts.sum())
    for size, cap in zip(problem.sizes.tolist(), search.fill_caps(problem).tolist(), strict=True):
        floors = np.array([floor(f * size) for f in problem.thresholds])
        b = np.arange(n // size + 1)
        fits = np.minimum(floors[:, None] * b, counts[:, None]).sum(axis=0) >= size * b
        assert cap == int(np.flatnonzero(fits)[-1])
        assert fits[: cap + 1].all()


@often(200)
@given(st.one_of(tiny(), middling()))
def test_sizes_are_those_that_one_bucket_can_have(problem: BucketProblem) -> None:
    """A size is usable iff one bucket of that size can be filled from the table."""
    n = int(problem.counts.sum())
    expected = [
        size
        for size in range(problem.smallest, min(problem.largest, n) + 1)
        if sum(min(floor(f * size), int(o)) for f, o in zip(problem.thresholds, problem.counts, strict=True)) >= size
    ]
    assert problem.sizes.tolist() == expected


# Transport


@st.composite
def transports(draw: st.DrawFn) -> tuple[Ints, Ints, Ints]:
    """Supply, limits and demand with equal totals."""
    m, k = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    supply = draw(st.lists(st.integers(0, 9), min_size=m, max_size=m))
    total = sum(supply)
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=k - 1, max_size=k - 1)))
    demand = [b - a for a, b in itertools.pairwise([0, *cuts, total])]
    row = st.lists(st.integers(0, 9), min_size=k, max_size=k)
    limits = draw(st.lists(row, min_size=m, max_size=m))
    return np.array(supply), np.array(limits), np.array(demand)


@often(600)
@given(transports())
def test_transport_places_all_or_names_a_violated_hall_set(task: tuple[Ints, Ints, Ints]) -> None:
    """Gale: all is placed iff every set of values has room; otherwise the blocked set has not, exactly."""
    supply, limits, demand = task
    flow = transport_records(supply.copy(), limits.copy(), demand.copy())
    y, m = flow.allocation, len(supply)
    assert (y >= 0).all()
    assert (y <= limits).all()

    def room(chosen: Sequence[int]) -> int:
        return int(np.minimum(demand, limits[list(chosen)].sum(axis=0)).sum())

    subsets = (x for size in range(1, m + 1) for x in itertools.combinations(range(m), size))
    possible = all(supply[list(x)].sum() <= room(x) for x in subsets)
    assert (flow.unplaced == 0) == possible
    assert flow.blocked.shape == (m,)
    if possible:
        assert not flow.blocked.any()
        assert (y.sum(axis=1) == supply).all()
        assert (y.sum(axis=0) == demand).all()
    else:
        assert flow.unplaced > 0
        chosen = np.flatnonzero(flow.blocked).tolist()
        assert int(supply[chosen].sum()) > room(chosen)


# The independent check


def test_violation_sees_every_kind_of_damage() -> None:
    """A record lost, a bucket not filled, a threshold broken, a size out of range, a wrong shape, a negative entry."""
    problem = make([4, 4, 4], (Fraction(1, 2),) * 3, 2, 4)
    setting = Setting.from_counts({2: 2, 4: 2})
    good = np.array([[2, 2], [2, 2], [0, 4]])
    assert find_violation(problem, Plan("optimal", setting, good)) is None
    wrong = {
        "not all placed": np.array([[2, 2], [2, 2], [0, 3]]),
        "filled exactly": np.array([[2, 2], [2, 2], [1, 3]]),
        "threshold allows": np.array([[3, 1], [1, 3], [0, 4]]),
        "wrong shape": good[:, :1],
        "negative": np.array([[2, 2], [3, 1], [-1, 5]]),
    }
    for message, allocation in wrong.items():
        plan = Plan("optimal", setting, allocation)
        assert message in (find_violation(problem, plan) or "")
        with pytest.raises(GuaranteeError):
            require_valid_plan(problem, plan)
    assert "outside" in (find_violation(replace(problem, largest=3), Plan("optimal", setting, good)) or "")
    assert "outside" in (find_violation(replace(problem, smallest=3), Plan("optimal", setting, good)) or "")
    tight = replace(problem, thresholds=(Fraction(1, 2) - Fraction(1, 10**18), Fraction(1, 2), Fraction(1, 2)))
    assert "threshold allows" in (find_violation(tight, Plan("optimal", setting, good)) or "")


def test_gap_of_a_plan() -> None:
    """(loss - bound) / bound; 0 if they are equal, also for singletons."""
    problem = make([2, 2], (Fraction(1),) * 2, 1, 2)
    plan = find_plan(problem, "optimal")
    assert (plan.setting, plan.loss, plan.lower_bound, plan.gap) == (Setting.from_counts({1: 4}), 0, 0, 0.0)
    plan = Plan("optimal", Setting.from_counts({2: 2}), np.array([[2], [2]]), lower_bound=1)
    assert plan.gap == 1.0


@each("algorithm", ALGORITHMS)
def test_floor_of_058_times_50_decides_a_plan(algorithm: str) -> None:
    """Value x1 has 29 of 50 records and f' = 0.58: one bucket of 50 is valid, but not in doubles."""
    problem = make([29, 21], (as_fraction("0.58"), Fraction(1)), 50, 50)
    if algorithm == "anatomy":
        assert loss_or_none(problem, algorithm) is None
    else:
        assert loss_or_none(problem, algorithm) == 49**2


@each("algorithm", ALGORITHMS)
def test_ceiling_of_a_49th_decides_a_plan(algorithm: str) -> None:
    """49 values with f' = 1/49: buckets of 49, although 1/(1/49) is above 49 in doubles."""
    problem = make([3] * 49, (Fraction(1, 49),) * 49)
    assert search.smallest_diversity(problem) == 49
    assert loss_or_none(problem, algorithm) == 3 * 48**2


def test_m_equal_to_m_prime_is_tried_as_one_size() -> None:
    """A single usable size has no pair, but a plan."""
    problem = make([4, 4, 4], (Fraction(1, 3),) * 3, 3, 3)
    assert {loss_or_none(problem, algorithm) for algorithm in ALGORITHMS} == {16}
    assert pruned_losses(problem) == {16}


# Where there is no plan


def refusal(problem: BucketProblem, algorithm: str) -> InfeasibleError:
    """The explanation of ``find``."""
    with pytest.raises(InfeasibleError) as caught:
        find_plan(problem, algorithm)
    return caught.value


def exists(problem: BucketProblem, algorithm: str) -> bool:
    """Whether the algorithm has a plan, by brute force."""
    return least(problem, {"one-size": 1, "two-size": 2, "multi-size": 2, "optimal": 99}[algorithm]) is not None


def raised(problem: BucketProblem, shift: Fraction) -> BucketProblem:
    """The problem with all thresholds higher by ``shift``."""
    return replace(problem, thresholds=tuple(min(Fraction(1), f + shift) for f in problem.thresholds))


@pytest.mark.slow
@often(120)
@given(tiny(12), st.sampled_from(["one-size", "two-size", "multi-size", "optimal"]))
def test_infeasible_details_hold(problem: BucketProblem, algorithm: str) -> None:
    """The Hall set has more records than room; nearest_shift is feasible, one step less is not; M' offered works."""
    assume(not exists(problem, algorithm))
    details: dict[str, Any] = refusal(problem, algorithm).details
    if "hall_set" in details:
        chosen = [int(name[1:]) - 1 for name in details["hall_set"]]
        assert details["records"] == int(problem.counts[chosen].sum())
        assert 0 <= details["room"] < details["records"]
    if "nearest_shift" in details:
        shift = as_fraction(details["nearest_shift"])
        assert shift * 10**4 == int(shift * 10**4)
        assert exists(raised(problem, shift), algorithm)
        assert not exists(raised(problem, shift - Fraction(1, 10**4)), algorithm)
        nearest = [as_fraction(details["nearest"][f"x{i + 1}"]) for i in range(len(problem.counts))]
        assert tuple(nearest) == raised(problem, shift).thresholds
    else:
        assert not exists(raised(problem, Fraction(1)), algorithm)
    if "nearest_max_bucket_size" in details:
        assert details["nearest_max_bucket_size"] > problem.largest
        assert exists(replace(problem, largest=details["nearest_max_bucket_size"]), algorithm)


@often(150)
@given(tiny(12), st.sampled_from(["one-size", "two-size"]))
@example(make([1], (Fraction(1),)), "two-size")
@example(make([2, 1, 3, 3], (Fraction(3, 4), Fraction(1, 7), Fraction(6, 7), Fraction(1, 3)), 2, 2), "one-size")
@example(
    make([3, 2, 1, 1, 4], (Fraction(2, 3), Fraction(2, 3), Fraction(1, 2), Fraction(1, 2), Fraction(3, 5)), 2, 2),
    "one-size",
)
def test_what_works_does_work(problem: BucketProblem, algorithm: str) -> None:
    """A message that says that 'optimal' works is right."""
    assume(not exists(problem, algorithm))
    if "algorithm = 'optimal'" in str(refusal(problem, algorithm)):
        assert exists(problem, "optimal")


@pytest.mark.slow
@often(150)
@given(tiny(12))
@example(make([3, 3, 2, 4], (Fraction(4, 5), Fraction(2, 7), Fraction(1), Fraction(3, 7)), 1, 4))
@example(make([2, 4, 3, 1, 3], (Fraction(1, 4), Fraction(1, 3), Fraction(2, 3), Fraction(2, 3), Fraction(2, 3)), 3, 4))
@example(make([1, 2, 3], (Fraction(1, 3), Fraction(1, 3), Fraction(1, 2)), 1, 3))
def test_what_has_no_room_has_none_in_any_setting(problem: BucketProblem) -> None:
    """A message that says that the buckets have room for so many records of a set is right for every setting.

    The sizes that it speaks of are those that can be filled at all.
    """
    assume(not exists(problem, "optimal"))
    error = refusal(problem, "optimal")
    assume("but buckets of sizes" in str(error))
    details: dict[str, Any] = error.details
    chosen = [int(name[1:]) - 1 for name in details["hall_set"]]

    def room(setting: dict[int, int]) -> int:
        return sum(min(s, sum(most(problem.thresholds[i], s) for i in chosen)) * b for s, b in setting.items())

    n = int(problem.counts.sum())
    sizes = problem.sizes.tolist()
    for size in {*range(problem.smallest, min(problem.largest, n) + 1)} - {*sizes}:
        held = zip(problem.counts.tolist(), problem.thresholds, strict=True)
        assert sum(min(records, most(threshold, size)) for records, threshold in held) < size
    rooms = [room(s) for s in every_setting(n, sizes)]
    assert max(rooms, default=0) < details["records"]


@each("algorithm", ALGORITHMS)
def test_threshold_below_the_frequency(algorithm: str) -> None:
    """Lemma 3.7: no setting at all; the value is named by its label, with the nearest thresholds."""
    problem = replace(make([6, 2], (Fraction(1, 2), Fraction(1))), labels=("flu", "HIV"))
    error = refusal(problem, algorithm)
    assert error.exit_code == 3
    assert "flu" in str(error)
    assert error.details["hall_set"] == ["flu"]
    assert (error.details["records"], error.details["room"]) == (6, 4)
    if algorithm != "anatomy":
        assert error.details["nearest_shift"] == "0.25"
        assert error.details["nearest"] == {"flu": "0.75", "HIV": "1"}


@pytest.mark.parametrize("algorithm", ["two-size", "multi-size", "optimal"])
def test_largest_size_too_small(algorithm: str) -> None:
    """f' = 0.09 has floor 0 up to size 11: M' = 10 leaves no room for x1, larger buckets do."""
    problem = make([1] + [3] * 9, (Fraction(9, 100),) + (Fraction(1, 3),) * 9, 2, 10)
    error = refusal(problem, algorithm)
    assert error.details["hall_set"] == ["x1"]
    assert (error.details["records"], error.details["room"]) == (1, 0)
    assert error.details["nearest_shift"] == "0.01"
    assert error.details["nearest_max_bucket_size"] == 12
    assert loss_or_none(replace(problem, largest=12), algorithm) is not None
    assert loss_or_none(raised(problem, Fraction(1, 100)), algorithm) is not None


@each("algorithm", ALGORITHMS)
@each(("counts", "smallest", "largest"), [([1], 2, 50), ([1, 1], 3, 50), ([2, 3], 6, 9)])
def test_fewer_records_than_the_smallest_bucket(algorithm: str, counts: list[int], smallest: int, largest: int) -> None:
    """No size is left: an explanation, not a crash."""
    problem = make(counts, (Fraction(1),) * len(counts), smallest, largest)
    assert "no bucket size" in str(refusal(problem, algorithm))


@each("algorithm", ALGORITHMS)
def test_no_records(algorithm: str) -> None:
    """An empty table has nothing to publish, and says so."""
    assert "no records" in str(refusal(make([], ()), algorithm))


@each("algorithm", ALGORITHMS)
def test_odd_records_in_pairs(algorithm: str) -> None:
    """Seven records do not fit buckets of two, whatever the thresholds."""
    assert "7 records" in str(refusal(make([4, 3], (Fraction(1),) * 2, 2, 2), algorithm))


def test_one_record() -> None:
    """A single record may be published alone where the publisher asks for it."""
    problem = make([1], (Fraction(1),), 1, 50)
    assert {loss_or_none(problem, algorithm) for algorithm in ALGORITHMS} == {0}


# Large tables


def zipf(m: int, n: int, exponent: float, seed: int) -> list[int]:
    """m counts with a power law and some noise, n records in all."""
    weights = np.arange(1, m + 1) ** -exponent * np.random.default_rng(seed).uniform(0.5, 1.5, m)
    counts = np.maximum(1, np.floor(weights / weights.sum() * n)).astype(np.int64)
    counts[0] += n - counts.sum()
    return [int(c) for c in counts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "n", "rule", "gap"),
    rest_slow(
        [
            (50, 500_000_000, "2*f + 0.02", Fraction(1, 10**4)),
            (50, 500_000_000, "8*f + 0.02", Fraction(1, 10**4)),
            (200, 100_000_000, "8*f + 0.02", Fraction(1, 10**4)),
            (478, 216_691, "8*f + 0.02", Fraction(1, 10**4)),
            (3200, 30_000, "8*f + 0.02", Fraction(1, 10**3)),
            (3200, 500_000_000, "2*f + 0.02", Fraction(1, 10**4)),
            (3200, 500_000_000, "8*f + 0.02", Fraction(1, 10**4)),
        ],
        3,
    ),
)
def test_optimal_does_not_fall_back_on_two_sizes(m: int, n: int, rule: str, gap: Fraction) -> None:
    """A setting near a certified bound is found within the budget of nodes, and no plan below it."""
    problem = by_rule(zipf(m, n, 0.8, m), rule)
    plan = find_plan(problem, "optimal")
    assert int(problem.counts.sum()) == n
    assert_exact(problem, plan)
    assert 0 < plan.lower_bound <= plan.loss
    assert Fraction(plan.loss - plan.lower_bound, plan.lower_bound) <= gap
    two = find_plan(problem, "two-size")
    assert_exact(problem, two)
    assert two.loss >= plan.loss


@pytest.mark.slow
def test_large_multi_size() -> None:
    """500 million records and 3,200 values: valid and no worse than two sizes."""
    problem = by_rule(zipf(3200, 500_000_000, 0.8, 1), "4*f + 0.02")
    multi, two = find_plan(problem, "multi-size"), find_plan(problem, "two-size")
    assert_exact(problem, multi)
    assert multi.loss <= two.loss


@pytest.mark.slow
def test_search_is_deterministic() -> None:
    """The same counts give the same setting and allocation."""
    problem = by_rule(occ_like(), "8*f + 0.02")
    for algorithm in ("one-size", "two-size", "multi-size", "optimal"):
        first, second = find_plan(problem, algorithm), find_plan(by_rule(occ_like(), "8*f + 0.02"), algorithm)
        assert first.setting == second.setting
        assert (first.allocation == second.allocation).all()


def test_a_search_that_proves_nothing_does_not_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its setting of many records is valid, and nearly as good; the bound of its relaxation holds for both."""
    problem = by_rule(occ_like(), "8*f + 0.02")
    proved = find_plan(problem, "optimal")
    monkeypatch.delattr(optimal, "_branch_and_bound")
    plan, two = (find_plan(problem, one, proving=False) for one in ("optimal", "two-size"))
    assert_exact(problem, plan)
    assert_exact(problem, two)
    assert plan.lower_bound <= proved.loss <= plan.loss <= 1.001 * proved.loss
    assert two.lower_bound == 0


@pytest.mark.slow
def test_what_is_searched_is_bounded_by_nodes_and_never_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a problem that takes all of them, twice, with the same certificate."""
    limits: list[float] = []

    class Watched(highspy.Highs):  # type: ignore[misc]
        def run(self) -> Any:
            limits.append(self.getOptionValue("time_limit")[1])
            return super().run()

    monkeypatch.setattr(highspy, "Highs", Watched)
    monkeypatch.setattr(optimal, "MOST_NODES", 300)
    problem = by_rule(zipf(50, 50_000, 0.8, 4), "2*f + 0.05")
    found = [optimal.search_optimum(problem, None) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].lower_bound < found[0].setting.loss
    assert set(limits) == {math.inf}
    assert 600 <= len(limits) <= 700


@each(("theta", "loss"), [(2, 5_792_019), (8, 1_552_639)])
def test_the_optimum_of_an_occ_like_table_is_proved(theta: int, loss: int) -> None:
    """The bound in integers equals the loss that an integer program of buckets and records has found, too."""
    plan = find_plan(by_rule(occ_like(), f"{theta}*f + 0.02"), "optimal")
    assert (plan.loss, plan.lower_bound) == (loss, loss)


@often(150)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_every_bound_holds_whatever_the_multipliers(seed: int, other: int) -> None:
    """Random multipliers and a random price: a valid setting within the ranges has no less loss than the bound."""
    problem, rng = wide(seed), np.random.default_rng(other)
    best = optimal.search_optimum(problem, None) if len(problem.sizes) else None
    if best is None:
        return
    relaxation = optimal.Relaxation(problem)
    held = np.array([dict(best.setting.items).get(size, 0) for size in problem.sizes.tolist()])
    low, high = np.maximum(0, held - rng.integers(0, 3, len(held))), held + rng.integers(0, 3, len(held))
    multipliers, price = rng.normal(0, 5, len(relaxation.rows)), float(rng.normal(0, 5))
    bound, _ = relaxation.certify_bound(multipliers, price, low, high)
    assert bound <= best.setting.loss * optimal.PRECISION


@each(
    ("loss", "bound", "words"),
    [(216, 216, "this one is best"), (250, 216, "the error is at most 1.11 records above the least")],
)
def test_the_gap_is_an_error_in_records(loss: int, bound: int, words: str) -> None:
    """The root of the loss is an error, in records: of 250 and of 216 these are 15.8 and 14.7."""
    plan = Plan("two-size", SETTING_420, np.zeros((4, 2), dtype=np.int64), bound)
    facts = plan_facts(plan, example_420(), Bucketize.model_validate({"threshold": "1/2"}), 50)
    shown = dict(facts.model_copy(update={"loss": loss, "gap": (loss - bound) / bound}).describe())
    assert shown["least loss"] == f"no setting has less than {bound}; {words}"


@each("solved", [40, 41, 60, 200])
def test_a_solver_that_fails_leaves_a_bound_that_holds(solved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a solution of a range nothing is known of it: its bound is that of the range around it."""
    problem, solve, calls = by_rule(occ_like(), "8*f + 0.02"), optimal.solve_program, []

    def solve_some(solver: highspy.Highs) -> Any:
        calls.append(solver)
        return solve(solver) if len(calls) <= solved else None

    monkeypatch.setattr(optimal, "solve_program", solve_some)
    found = optimal.search_optimum(problem, None)
    assert len(calls) == solved + 2  # and once more from the start
    assert found is not None
    assert 0 < found.lower_bound <= 1_552_639 <= found.setting.loss
