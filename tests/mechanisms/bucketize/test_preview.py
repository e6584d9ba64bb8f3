"""What a plan predicts of a model of its release, beside what a fitted model measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql as api
from privsql.answers.bucket_model import fit_bucket_model
from privsql.mechanisms.bucketize.layout import runs_from_entries
from privsql.mechanisms.bucketize.preview import DIGEST, LabelledRecords
from support.commands import by_keys, refused, run, succeeded

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.mechanisms.bucketize.layout import BucketRuns

VALUES, RECORDS = 8, 2_400


def list_buckets(size: int) -> BucketRuns:
    """Buckets of ``size`` that list values at random."""
    noise = np.random.default_rng(3)
    codes = np.concatenate([noise.permutation(VALUES)[:size] for _ in range(RECORDS // size)])
    return runs_from_entries(np.arange(RECORDS) // size, codes, VALUES, [(size, RECORDS // size)])


def measure_dealt(columns: dict[str, np.ndarray], size: int) -> float:
    """The learner's belief in records that are dealt to buckets of a size."""
    dealt = LabelledRecords(columns, np.arange(RECORDS) % VALUES).deal(list_buckets(size))
    assert np.bincount(dealt.bucket).tolist() == [size] * (RECORDS // size)
    return fit_bucket_model(dealt, DIGEST).find_beliefs().best_guess


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 6])
def test_columns_that_tell_nothing_leave_the_share_of_the_list(size: int) -> None:
    noise = np.random.default_rng(1)
    columns = {"a": noise.integers(0, 4, RECORDS), "b": noise.normal(size=RECORDS)}
    assert measure_dealt(columns, size) == pytest.approx(1 / size, abs=0.06)


def test_a_column_that_tells_all_leaves_nothing_open() -> None:
    assert measure_dealt({"a": np.arange(RECORDS) % VALUES}, 4) > 0.97


def make_people(records: int) -> pa.Table:
    """Twelve jobs that go with age, sex and place."""
    noise = np.random.default_rng(5)
    job = noise.choice(12, records, p=noise.dirichlet(np.full(12, 8.0)))
    age = (20 + 3 * job + noise.normal(scale=9, size=records)).round().clip(18, 80)
    sex = (noise.random(records) < np.where(job % 2, 0.75, 0.3)).astype(int)
    place = np.where(noise.random(records) < 0.4, job, noise.integers(0, 12, records))
    return pa.table({"age": age, "sex": sex, "place": place, "job": job})


def plan_people(records: int, **mechanism: object) -> dict[str, object]:
    keywords = {"sensitive": "job", "qi": ["age", "sex", "place"], "threshold": "1/4"}
    return api.plan(make_people(records), to="t.duckdb", **by_keys({**keywords, **mechanism, "ledger.off": True})).facts


@pytest.mark.slow
def test_plan_predicts_only_where_a_model_is_fitted() -> None:
    facts = plan_people(5_000)
    assert 0.3 < facts["learning_belief"] < 0.9
    for other in (plan_people(150), plan_people(2_000, **{"mechanism.fake_values": 1})):
        assert "learning_belief" not in other
    grouped = plan_people(
        5_000,
        algorithm="two-size",
        **{"mechanism.groups": {"indoors": {"values": ["1", "2"], "threshold": "1/2"}}},
    )
    assert 0.3 < grouped["learning_belief"] < 0.9


@pytest.mark.soak(part="coverage")
def test_what_a_plan_measures_is_near_what_attack_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path / "cache"))
    people = make_people(8_000)
    keywords = {"sensitive": "job", "qi": ["age", "sex", "place"], "threshold": "1/3"}
    planned = api.plan(people, to=tmp_path / "t.duckdb", **by_keys({**keywords, "ledger.off": True})).facts
    released = api.publish(people, to=tmp_path / "t.duckdb", seed=1, **by_keys({**keywords, "ledger.off": True}))
    (learning,) = [one for one in api.attack(released).findings if one.adversary == "learning"]
    assert planned["learning_belief"] == pytest.approx(learning.mean, rel=0.2)


@pytest.mark.soak(part="long")
def test_a_curve_has_each_threshold_as_its_own_plan_predicts_it() -> None:
    """Higher thresholds promise less, teach an attacker more and answer better; what can't be met says why."""
    people, keywords = make_people(6_000), {"sensitive": "job", "qi": ["age", "sex", "place"]}
    found = api.curve(people, threshold="1/4", to="t.duckdb", **by_keys({**keywords, "ledger.off": True}))
    met = {row.algorithm: row.figures for row in found.rows if row.refused is None}
    assert [row.algorithm for row in found.rows] == ["0.125", "0.1875", "0.25", "0.375", "0.5", "0.75"]
    assert met["0.25"]["learning_belief"] == plan_people(6_000)["learning_belief"]
    for key, rising in (("highest_belief", True), ("learning_belief", True), ("count_error", False)):
        figures = [figures[key] for figures in met.values()]
        assert figures == sorted(figures, reverse=not rising), key
    refused_rows = [row for row in found.rows if row.refused is not None]
    assert all("threshold" in row.refused for row in refused_rows)
    with pytest.raises(api.UsageError, match="curve: give one threshold"):
        api.curve(
            people,
            threshold={"query": "SELECT job, 0.5 FROM source"},
            **by_keys({**keywords, "ledger.off": True}),
        )
    with pytest.raises(api.UsageError, match="curve: this mechanism"):
        api.curve(
            people,
            mechanism="randomize",
            **by_keys({**keywords, "mechanism.rho1": "1/3", "mechanism.rho2": "2/3", "ledger.off": True}),
        )


@pytest.mark.slow
def test_a_curve_is_drawn(tmp_path: Path) -> None:
    pq.write_table(make_people(2_000), tmp_path / "people.parquet")
    given = [tmp_path / "people.parquet", "--qi", "age,sex,place", "--sensitive", "job", "--threshold", "1/4"]
    drawn = succeeded("plan", *given, "--curve", "--plot", tmp_path / "curve.svg", "--json").json
    assert [row["threshold"] for row in drawn["curve"]][2] == "0.25"
    text = (tmp_path / "curve.svg").read_text()
    for name in (
        "attacker who finds a record (promised)",
        "attacker who trains on the release",
        "error of a count",
        "0.25",
    ):
        assert f">{name}<" in text
    refused(run("plan", *given, "--plot", tmp_path / "other.svg"), 2, "add --curve")
