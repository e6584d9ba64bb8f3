"""The informative setting and its layout: every record placed, caps kept, and beliefs as high as they may be."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fractions import Fraction
from math import floor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.attacks.adversaries import _order_deviate
from privsql.errors import GuaranteeError, InfeasibleError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import layout, search
from privsql.mechanisms.bucketize.group_flows import allocate_values
from privsql.mechanisms.bucketize.layout import Pieces, make_layout, split_by_block
from privsql.mechanisms.bucketize.model import BucketProblem, Plan, Setting
from privsql.mechanisms.bucketize.plan import find_plan, find_violation
from support import ledgers
from support.commands import PEOPLE, ROLES, manifest, refused, rows, run, specification, succeeded, warehouse
from support.layouts import assert_pieces, counted, random_plan
from support.tampering import failed, with_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Table = NDArray[np.int64]


def make(counts: Sequence[int], thresholds: Sequence[Fraction], smallest: int = 2, largest: int = 50) -> BucketProblem:
    """A problem from plain numbers."""
    return BucketProblem(np.array(counts, dtype=np.int64), tuple(thresholds), smallest, largest)


def linear(counts: Sequence[int], slope: int, plus: Fraction, largest: int = 50) -> BucketProblem:
    """With the thresholds slope * f + plus."""
    n = sum(counts)
    return make(counts, [min(Fraction(1), slope * Fraction(o, n) + plus) for o in counts], largest=largest)


def limited(plan: Plan, rng: np.random.Generator) -> Plan:
    """With a random limit for every value and size, now and then no more than what must be."""
    needed = -(-plan.allocation // np.array(plan.setting.buckets))
    return replace(plan, most=needed + rng.integers(0, 4, needed.shape) * rng.integers(0, 2, needed.shape))


@pytest.mark.parametrize("plans", [50, pytest.param(1200, marks=pytest.mark.soak(part="cases"))])
def test_random_plans(plans: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are exact, no value stands more often than it may, and every record is placed, in whatever blocks."""
    rng = np.random.default_rng(plans)
    for number in range(plans):
        plan, noise = limited(random_plan(rng), rng), seed_key(number).random_generator("layout")
        assert plan.most is not None
        monkeypatch.setattr(layout, "LUMPS", int(rng.integers(1, 80)))
        pieces = make_layout(plan, "lumps", noise)
        assert isinstance(pieces, Pieces)
        for (part, _), most in zip(assert_pieces(pieces, plan, noise), plan.most.T, strict=True):
            assert (part <= most[:, None]).all()


def test_values_stand_as_often_as_they_may() -> None:
    """In a block of one bucket all values but the one that is cut are at their limit; fewer where few are left."""
    rng = np.random.default_rng(1)
    problem = linear(rng.integers(200, 3000, 30).tolist(), 8, Fraction(1, 50))
    plan = find_plan(problem, "informative")
    assert plan.most is not None
    table = counted(make_layout(plan, "lumps", seed_key(1).random_generator("x")), sum(plan.setting.buckets))  # type: ignore[arg-type]
    most = np.repeat(plan.most, plan.setting.buckets, axis=1)
    cut = ((table > 0) & (table < most)).sum(axis=0)
    assert np.quantile(cut, 0.8) <= 1
    beliefs = (table**2 / table.sum(axis=0)).sum()
    best = (np.minimum(plan.most[:, 0], problem.counts) * problem.counts).sum() / plan.setting.sizes[0]
    assert beliefs > 0.92 * best


@pytest.mark.slow
def test_blocks_of_a_width_are_exchangeable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bucket is as likely as any other to hold a value that is rare; 10^-6 of false alarm in all."""
    monkeypatch.setattr(layout, "LUMPS", 6)
    records, most = np.array([[30], [9], [6], [8], [7]]), np.array([[4], [2], [1], [2], [2]])
    plan = Plan("informative", Setting.from_counts({5: 12}), records, most=most)
    seen = np.zeros(12)
    for seed in range(600):
        seen += counted(make_layout(plan, "lumps", seed_key(seed).random_generator("x")), 12)[2] > 0  # type: ignore[arg-type]
    expected = seen.mean()
    assert (np.abs(seen - expected) < 5.5 * np.sqrt(expected)).all()


def test_a_plan_without_limits_has_no_lumps() -> None:
    plan = find_plan(make([4, 4], [Fraction(1, 2)] * 2), "two-size")
    with pytest.raises(GuaranteeError, match="'two-size' does not say how often"):
        make_layout(plan, "lumps", seed_key(1).random_generator("x"))


def test_limits_above_thresholds_are_found() -> None:
    plan = find_plan(make([30, 30, 40], [Fraction(1, 2)] * 3), "informative")
    problem = make([30, 30, 40], [Fraction(1, 2)] * 3)
    assert find_violation(problem, plan) is None
    assert plan.most is not None
    assert "may not stand" in str(find_violation(problem, replace(plan, most=plan.most + 1)))
    assert "may not stand" in str(find_violation(problem, replace(plan, most=plan.most * 0)))


# Settings ---


@st.composite
def problems(draw: st.DrawFn) -> BucketProblem:
    """Tables of up to 250 records, thresholds of any kind."""
    counts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    fractions = st.builds(Fraction, st.integers(1, 12), st.integers(12, 24))
    n = sum(counts)
    own = [draw(st.one_of(fractions, st.just(Fraction(1)), st.just(Fraction(o, n)))) for o in counts]
    return make(counts, own, draw(st.integers(1, 4)), draw(st.integers(4, 30)))


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems())
def test_settings_exist_where_flows_do(problem: BucketProblem) -> None:
    """By flows over all numbers of buckets that are as equal as can be; what is refused says how many records."""
    n = problem.records
    numbers = {-(-n // size) for size in range(problem.smallest, problem.largest + 1)}
    each = [Setting.from_counts({n // b: b - n % b, n // b + 1: n % b}) for b in numbers]
    allowed = [one for one in each if all(problem.smallest <= s <= problem.largest for s in one.sizes)]
    short = [allocate_values(problem, one).unplaced for one in allowed]
    if search.find_informative(problem) is None:
        assert 0 not in short
        assert search.count_unplaced(problem) != 0
        return
    plan = find_plan(problem, "informative")
    assert plan.setting in [one for one, left in zip(allowed, short, strict=True) if not left]
    assert find_violation(problem, plan) is None
    assert plan.most is not None
    for threshold, row in zip(problem.thresholds, plan.most.tolist(), strict=True):
        for size, most in zip(plan.setting.sizes, row, strict=True):
            assert most <= floor(threshold * size)


def test_the_largest_buckets_are_taken() -> None:
    """n = 216,691 has no divisor up to 50: 4,325 buckets of 50 and 9 of 49 hold every record."""
    counts = np.random.default_rng(2).multinomial(216_691, np.random.default_rng(3).dirichlet(np.full(50, 8.0)))
    plan = find_plan(linear(counts.tolist(), 8, Fraction(1, 50)), "informative")
    assert plan.setting == Setting.from_counts({49: 9, 50: 4325})


def test_constants_take_a_size_that_divides() -> None:
    """floor(50/7) is 7: a size of 49 lets through 1/7 of every value, 50 less."""
    problem = make([6125] * 7 + [6125], [Fraction(1, 7)] * 8)
    assert find_plan(problem, "informative").setting.sizes[0] == 49


def test_classes_of_two_sizes_share_values_alike() -> None:
    """In proportion to their records, but for a record, where no limit stands in the way."""
    counts = [35, 47, 60, 58, 81]
    plan = find_plan(linear(counts, 4, Fraction(1, 4), 30), "informative")
    shares = plan.allocation * sum(counts) / (np.array(counts)[:, None] * plan.allocation.sum(axis=0))
    assert len(plan.setting.sizes) == 2
    assert (np.abs(shares - 1) * plan.allocation.mean(axis=1)[:, None] < 2).all()


@pytest.mark.parametrize(
    ("problem", "setting"),
    [
        (make([7, 5], [Fraction(1)] * 2), {12: 1}),  # fewer records than a bucket may hold
        (make([1, 1, 1], [Fraction(1, 3)] * 3), {3: 1}),
        (make([60, 41], [Fraction(3, 5)] * 2), {25: 3, 26: 1}),  # 19 of 33 are too few
        (make([1, 99], [Fraction(1)] * 2), {50: 2}),
    ],
)
def test_small_tables(problem: BucketProblem, setting: dict[int, int]) -> None:
    assert find_plan(problem, "informative").setting == Setting.from_counts(setting)


def test_no_bucket_is_filled_by_a_value_unless_it_must() -> None:
    """A threshold of 1 is used up to 3/4, or half way from its frequency; all of it where nothing less will do."""
    plan = find_plan(make([400, 300, 300], [Fraction(1)] * 3, largest=40), "informative")
    assert plan.most is not None
    assert plan.most.tolist() == [[30], [30], [30]]
    most = find_plan(make([800, 200], [Fraction(1)] * 2, largest=40), "informative").most
    assert most is not None
    assert most.tolist() == [[36], [30]]
    alone = find_plan(make([10], [Fraction(1)], largest=5), "informative").most
    assert alone is not None
    assert alone.tolist() == [[5]]


def test_a_threshold_below_one_place_needs_larger_buckets() -> None:
    problem = make([2, 99, 99], [Fraction(1, 60), Fraction(1), Fraction(1)])
    with pytest.raises(InfeasibleError, match="2 records find no place in buckets of nearly one size") as caught:
        find_plan(problem, "informative")
    details = caught.value.details
    assert details["unplaced"] == 2
    assert details["nearest_max_bucket_size"] == 75  # 200 records in buckets of up to 62 lie in four of 50
    assert details["nearest_shift"] == "0.0034"
    raised = replace(problem, thresholds=tuple(min(Fraction(1), f + Fraction(34, 10**4)) for f in problem.thresholds))
    assert find_plan(raised, "informative").setting == Setting.from_counts({50: 4})


def test_numbers_of_blocks_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is the value itself does not run with them; with the numbers of buckets it seems to.

    The mean of 60 squared normal deviates lies in 0.4 to 2 but for about 10^-5.
    """
    monkeypatch.setattr(layout, "LUMPS", 20)
    counts = np.random.default_rng(4).integers(20, 300, 12)
    plan = find_plan(linear(counts.tolist(), 8, Fraction(1, 10), 10), "informative")
    values = np.repeat(np.arange(12), counts)
    deviates: dict[str, list[float]] = {"block": [], "bucket": []}
    for seed in range(60):
        bids = make_layout(plan, "lumps", seed_key(seed).random_generator("x")).draw_places(
            seed_key(seed).random_generator("y")
        )
        order, start, rows = np.argsort(bids, kind="stable"), 0, []
        for size, buckets in plan.setting.items:
            rows.append(order[start : start + size * buckets].reshape(buckets, size))
            start += size * buckets
        blocks = [part for own in rows for part in split_by_block(own)]
        assert sorted(np.concatenate([part.ravel() for part in blocks]).tolist()) == list(range(len(bids)))
        deviates["block"].append(_order_deviate(SimpleNamespace(numbered_groups=blocks), values))  # type: ignore[arg-type]
        deviates["bucket"].append(_order_deviate(SimpleNamespace(numbered_groups=rows), values))  # type: ignore[arg-type]
    squares = {name: float(np.mean(np.square(found))) for name, found in deviates.items()}
    assert 0.4 < squares["block"] < 2
    assert squares["bucket"] > 2 * squares["block"]


# On the command line ---

ROWS = PEOPLE.format(n=3000)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a specification, and its release."""
    folder = tmp_path_factory.mktemp("lumps")
    warehouse(folder / "w.duckdb", f"CREATE TABLE w AS {ROWS}")
    mechanism = 'algorithm = "informative"\nthreshold = "2*f + 0.1"'
    spec = specification(folder, source='database = "w.duckdb"\ntable = "w"', mechanism=mechanism)
    with ledgers.own():
        succeeded("publish", spec, "--seed", 1)
    return folder


@pytest.mark.slow
def test_a_release_verifies(ward: Path) -> None:
    """Alone and against its source; what it states is what was planned."""
    release, spec = ward / "ill.duckdb", ward / "spec.toml"
    shown = succeeded("verify", release, "--source", spec, "--json").json
    assert shown["ok"]
    assert succeeded("verify", release, "--json").json["ok"]
    facts = manifest(release)["facts"]
    assert facts["layout"] == "lumps"
    planned = succeeded("plan", spec, "--json").json
    assert planned["setting"] == facts["setting"] == {"50": 60}
    assert planned["loss"] == facts["loss"] == 60 * 49**2
    given = [ward / "w.duckdb", "--set", "source.table=w", *ROLES, "--threshold", "2*f + 0.1", "--algorithm", "optimal"]
    assert 0 < planned["lower_bound"] <= succeeded("plan", *given, "--json").json["loss"] < planned["loss"]
    assert Fraction(facts["highest_belief"]["overall"]) <= Fraction(planned["highest_belief"]["overall"])
    (remark,) = planned["remarks"]
    assert f"mean belief {planned['mean_belief']:.3f}, " in remark
    shares = rows(release, "SELECT sum(count * count) / 50.0 / 3000 FROM st")
    assert facts["mean_belief"] == pytest.approx(float(shares[0][0]), abs=1e-12)
    assert "note" in succeeded("plan", spec).out


@pytest.mark.slow
def test_a_release_that_was_changed_does_not(ward: Path, tmp_path: Path) -> None:
    """One more of a value in place of another, and beliefs that are stated lower."""
    most = "(SELECT arg_max(bid, count) FROM st WHERE disease = 'flu')"
    other = f"(SELECT max(disease) FROM st WHERE disease <> 'flu' AND count > 1 AND bid = {most})"
    moved = "UPDATE st SET count = count + CASE disease WHEN 'flu' THEN 1 ELSE -1 END "
    wrong = f"{moved} WHERE bid = {most} AND disease IN ('flu', {other})"
    for number, change in enumerate([wrong, with_facts(mean_belief=0.1), with_facts(layout="blocks")]):
        release = tmp_path / f"{number}.duckdb"
        shutil.copy(ward / "ill.duckdb", release)
        with duckdb.connect(str(release)) as db:
            if callable(change):
                change(db)
            else:
                db.execute(change)
        assert failed(run("verify", release, "--json"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ('threshold = "1/4"\nfake_values = 1', ("fake_values can't be combined with algorithm = 'informative'",)),
        ('threshold = "8*f + 0.02"\nlayout = "largest-first"', ("needs algorithm = 'anatomy'",)),
        (
            'threshold = "8*f + 0.02"\n[mechanism.groups.lungs]\nthreshold = "1/2"\nvalues = ["flu", "cold"]',
            ("'informative' does not keep bounds on groups", "'two-size'"),
        ),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(ward: Path, tmp_path: Path, asked: str, words: tuple[str, ...]) -> None:
    source = f'database = "{ward / "w.duckdb"}"\ntable = "w"'
    spec = specification(tmp_path, source=source, mechanism=f'algorithm = "informative"\n{asked}')
    refused(run("publish", spec), 2, *words)


@pytest.mark.slow
def test_lumps_belong_to_it(ward: Path) -> None:
    given = [ward / "w.duckdb", "--set", "source.table=w", *ROLES, "--threshold", "2*f + 0.1"]
    refused(run("plan", *given, "--set", "mechanism.layout=lumps"), 2, "needs algorithm = 'informative'")
    even = succeeded("plan", *given, "--algorithm", "informative", "--set", "mechanism.layout=blocks", "--json").json
    assert even["mean_belief"] < succeeded("plan", *given, "--algorithm", "informative", "--json").json["mean_belief"]


@pytest.mark.slow
def test_a_constant_gains_nothing_and_is_told_so(ward: Path) -> None:
    given = [ward / "w.duckdb", "--set", "source.table=w", *ROLES, "--threshold", "0.4", "--algorithm", "informative"]
    (remark,) = succeeded("plan", *given, "--json").json["remarks"]
    assert "nothing is to be gained" in remark
