"""How far beliefs go: what ``plan`` says, what ``publish`` and ``verify`` find, against the definition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import privsql
from privsql.errors import InfeasibleError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize.implied import PlannedAssignment, imply_beliefs
from privsql.mechanisms.bucketize.model import BucketProblem, Plan, Setting
from privsql.mechanisms.bucketize.plan import find_plan
from support.commands import PEOPLE, manifest, refused, rows, run, specification, succeeded, write
from support.layouts import draw_bids
from support.loops import rest_slow
from support.tampering import failed, rewrite, with_facts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Bucket = Mapping[tuple[str, ...], int]
HALF = Fraction(1, 2)
CHECK = "stated facts follow from the tables"


def by_definition(buckets: Sequence[Bucket], names: Sequence[str]) -> dict[str, Any]:
    """``highest_belief`` and ``certain`` of buckets, each with the counts of its values."""
    highest: dict[str, dict[str, Fraction]] = {name: defaultdict(Fraction) for name in names}
    certain, half = Counter[str](), Counter[str]()
    overall = Fraction(0)
    for bucket in buckets:
        size = sum(bucket.values())
        overall = max(overall, *(Fraction(count, size) for count in bucket.values()))
        best = {}
        for k, name in enumerate(names):
            held = Counter[str]()
            for value, count in bucket.items():
                held[value[k]] += count
            for part, count in held.items():
                highest[name][part] = max(highest[name][part], Fraction(count, size))
            best[name] = Fraction(max(held.values()), size)
        for name, share in [*best.items(), ("", max(best.values()))]:
            certain[name] += size * (share == 1)
            half[name] += size * (share > HALF)
    sure = {name: {"certain": certain[name], "above_half": half[name]} for name in ("", *names)}
    return {
        "highest_belief": {"overall": overall, "components": {name: dict(of) for name, of in highest.items()}},
        "certain": sure[""] | {"components": {name: sure[name] for name in names}},
    }


def exact(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The two keys of a command's JSON, fractions as such."""
    highest = shown["highest_belief"]
    columns = {n: {v: Fraction(most) for v, most in of.items()} for n, of in highest["components"].items()}
    overall = {"overall": Fraction(highest["overall"]), "components": columns}
    return {"highest_belief": overall, "certain": shown["certain"]}


def listed(release: Path, *columns: str) -> list[Bucket]:
    """The buckets of a release."""
    found: dict[int, dict[tuple[str, ...], int]] = defaultdict(dict)
    for bid, count, *value in rows(release, f'SELECT bid, "count", {", ".join(columns)} FROM st'):
        found[bid][tuple("NULL" if part is None else str(part) for part in value)] = count
    return list(found.values())


ILL = """
SELECT 20 + i % 40 AS age, CASE WHEN i % 4 < 2 THEN 'cancer' WHEN i % 12 = 2 THEN NULL ELSE 'flu' END AS disease,
  1 + i % 3 AS stage
FROM range(240) t(i)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "threshold"),
    rest_slow([("disease", "0.6"), ("disease", "1"), ("disease, stage", "1/4"), ("stage", "1")]),
)
def test_what_is_reported_is_what_the_tables_have(tmp_path: Path, columns: str, threshold: str) -> None:
    write(tmp_path / "people.parquet", ILL)
    names = columns.split(", ")
    roles = f'quasi_identifiers = ["age"]\nsensitive = {names}\nnulls = {{ {names[0]} = "value" }}'
    spec = specification(tmp_path, columns=roles, mechanism=f'threshold = "{threshold}"\nmin_bucket_size = 1')
    published = succeeded("publish", spec, "--json").json
    release = tmp_path / "ill.duckdb"
    expected = by_definition(listed(release, *names), names)
    verified = succeeded("verify", release, "--json").json
    beside = succeeded("verify", release, "--source", spec, "--json").json
    assert exact(published) == exact(verified) == exact(beside) == exact(manifest(release)["facts"]) == expected
    planned = exact(succeeded("plan", spec, "--json").json)
    if len(names) == 1:
        assert planned == expected
    else:
        assert planned["highest_belief"]["overall"] == expected["highest_belief"]["overall"]
        assert covers(planned, expected)


def covers(planned: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether nothing that was found goes beyond what a plan said."""
    pairs = [
        (planned["certain"][key], found["certain"][key]) for key in ("certain", "above_half")
    ]  # records, in any column
    for name, of in found["certain"]["components"].items():
        pairs += [(planned["certain"]["components"][name][key], of[key]) for key in of]
    for name, values in found["highest_belief"]["components"].items():
        pairs += [(planned["highest_belief"]["components"][name][value], most) for value, most in values.items()]
    pairs.append((planned["highest_belief"]["overall"], found["highest_belief"]["overall"]))
    return all(most >= reached for most, reached in pairs)


@pytest.mark.slow
def test_tables_1_and_2_of_the_paper(tmp_path: Path) -> None:
    """Four records in two buckets of two: Alice (F, 61434) has HIV, or the other disease of her bucket, with 1/2."""
    rows = [("M", 54321, "Brain Tumor"), ("M", 54322, "Indigestion"), ("F", 61234, "Cancer"), ("F", 61434, "HIV")]
    names = "gender", "zipcode", "disease"
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    made = privsql.publish(
        table,
        qi=["gender", "zipcode"],
        sensitive="disease",
        threshold="1/2",
        algorithm="setting",
        to=tmp_path / "t.duckdb",
        seed=1,
        set={"mechanism": {"setting": "2x2"}, "ledger": {"off": True}},
    )
    with duckdb.connect(str(made.release), read_only=True) as db:
        share = "count / sum(count) OVER (PARTITION BY zipcode)"
        beliefs = db.execute(f"SELECT gender, zipcode, disease, {share} FROM qit JOIN st USING (bid)").fetchall()
    assert len(beliefs) == 8
    assert {belief for *_, belief in beliefs} == {0.5}
    assert {row[:3] for row in beliefs} >= set(rows)


@pytest.mark.slow
def test_one_disease_fills_three_quarters_of_a_bucket_under_a_quarter_for_pairs(tmp_path: Path) -> None:
    """Each pair at most once in four; three of the four share a disease, and everybody is above 1/2 in it."""
    pairs = "('cancer', 'I'), ('cancer', 'II'), ('cancer', 'III'), ('flu', 'I')"
    people = f"SELECT i AS age, d AS disease, s AS stage FROM range(10) r(i), (VALUES {pairs}) v(d, s)"
    write(tmp_path / "people.parquet", people)
    roles = 'quasi_identifiers = ["age"]\nsensitive = ["disease", "stage"]'
    spec = specification(tmp_path, columns=roles, mechanism='threshold = "1/4"')
    for command in (["plan", spec], ["publish", spec], ["verify", tmp_path / "ill.duckdb"]):
        shown = succeeded(*command, "--json").json
        assert shown["highest_belief"]["overall"] == "0.25"
        assert shown["highest_belief"]["components"] == {
            "disease": {"cancer": "0.75", "flu": "0.25"},
            "stage": {"I": "0.5", "II": "0.25", "III": "0.25"},
        }
        none = {"certain": 0, "above_half": 0}
        of_disease = {"certain": 0, "above_half": 40}
        assert shown["certain"] == of_disease | {"components": {"disease": of_disease, "stage": none}}
        flags = {"plan": ["--verbose"], "publish": ["--replace", "--verbose"], "verify": ["--verbose"]}
        printed = succeeded(*command, *flags.get(str(command[0]), [])).out
        assert "0.75 (disease: cancer), 0.5 (stage: I), 0.25 (together)" in printed
        assert "for 0 records; a value is likelier than not for 40" in printed
    assert "0.75 (disease: cancer)" in succeeded("verify", tmp_path / "ill.duckdb", "--verbose").out


@pytest.mark.slow
def test_known_counts_of_who_is_certain(tmp_path: Path) -> None:
    """Singletons: every record is certain, in every column."""
    write(tmp_path / "people.parquet", PEOPLE.format(n=60))
    spec = specification(tmp_path, mechanism='threshold = "1"\nmin_bucket_size = 1')
    shown = succeeded("publish", spec, "--json").json
    sure = {"certain": 60, "above_half": 60}
    assert shown["certain"] == sure | {"components": {"disease": sure}}
    assert set(shown["highest_belief"]["components"]["disease"].values()) == {"1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    rest_slow(
        [
            {"certain": {"certain": 0, "above_half": 1, "components": {"disease": {"certain": 0, "above_half": 1}}}},
            {"highest_belief": {"overall": "0.001", "components": {"disease": {"flu": "0.001"}}}},
        ]
    ),
)
def test_verify_recomputes_what_is_stated(tmp_path: Path, changed: dict[str, Any]) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    release = tmp_path / "ill.duckdb"
    succeeded("publish", specification(tmp_path), "--json")
    with duckdb.connect(str(release)) as db:
        with_facts(**changed)(db)
    rewrite(release)
    assert list(failed(run("verify", release, "--json"))) == [CHECK]


@pytest.mark.slow
def test_what_is_stated_has_to_be_of_its_form(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    release = tmp_path / "ill.duckdb"
    succeeded("publish", specification(tmp_path), "--json")
    with duckdb.connect(str(release)) as db:
        with_facts(certain={"certain": -1, "above_half": 0, "components": {}})(db)
    refused(run("verify", release), 4, "states no valid plan")


# What a plan implies, for random plans ---


@st.composite
def planned_problems(draw: st.DrawFn) -> tuple[BucketProblem, dict[str, list[str]]]:
    m = draw(st.integers(2, 8))
    counts = np.array(draw(st.lists(st.integers(1, 30), min_size=m, max_size=m)), dtype=np.int64)
    plus = draw(st.sampled_from([Fraction(1, 50), Fraction(1, 4), HALF, Fraction(1)]))
    thresholds = tuple(min(Fraction(1), Fraction(int(o), int(counts.sum())) + plus) for o in counts)
    columns = {
        "first": [str(draw(st.integers(0, 2))) for _ in range(m)],
        "second": [str(draw(st.integers(0, m))) for _ in range(m)],
        "own": [str(i) for i in range(m)],
    }
    return BucketProblem(counts, thresholds, draw(st.integers(1, 3)), 12), columns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "layout"),
    rest_slow(
        [
            ("optimal", "blocks"),
            ("two-size", "round-robin"),
            ("one-size", "blocks"),
            ("anatomy", "largest-first"),
            ("informative", "lumps"),
        ]
    ),
)
def test_no_layout_goes_beyond_what_its_plan_implies(algorithm: str, layout: str) -> None:
    """For a column that tells all values apart an even layout reaches exactly what the plan says."""
    seen = 0

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
    @given(planned_problems(), st.integers(0, 2**32))
    def compare(made: tuple[BucketProblem, dict[str, list[str]]], seed: int) -> None:
        nonlocal seen
        problem, columns = made
        assume(len(problem.sizes))
        try:
            plan = find_plan(problem, algorithm)
        except InfeasibleError:
            return
        bids = draw_bids(plan, layout, seed_key(seed).random_generator("layout"))
        codes = np.repeat(np.arange(len(problem.counts)), problem.counts)
        buckets: dict[int, Counter[tuple[str, ...]]] = defaultdict(Counter)
        for bid, code in zip(bids.tolist(), codes.tolist(), strict=True):
            buckets[bid][tuple(texts[code] for texts in columns.values())] += 1
        found = by_definition(list(buckets.values()), list(columns))
        even = layout not in ("largest-first", "lumps")
        said = exact(imply_beliefs(PlannedAssignment(plan, problem, even=even, fakes=False), columns).as_json())
        assert covers(said, found)
        if even:
            own = [
                (of["highest_belief"]["components"]["own"], of["certain"]["components"]["own"]) for of in (said, found)
            ]
            assert own[0] == own[1]
        seen += 1

    compare()
    assert seen >= 20


def test_a_plan_with_fakes_counts_each_value_once() -> None:
    setting = Setting.from_counts({3: 4})
    allocation = np.array([[4], [4], [2], [2]])
    problem = BucketProblem(allocation[:, 0], (Fraction(1, 3),) * 4)
    dealt = PlannedAssignment(Plan("one-size", setting, allocation), problem, even=True, fakes=True)
    said = exact(imply_beliefs(dealt, {"own": ["a", "b", "c", "d"], "pair": ["a", "a", "c", "d"]}).as_json())
    assert said["highest_belief"]["overall"] == Fraction(1, 3)
    assert said["highest_belief"]["components"]["pair"] == {
        "a": Fraction(2, 3),
        "c": Fraction(1, 3),
        "d": Fraction(1, 3),
    }
    assert said["certain"]["components"] == {
        "own": {"certain": 0, "above_half": 0},
        "pair": {"certain": 0, "above_half": 12},
    }
