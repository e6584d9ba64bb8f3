"""What a plan predicts of a model of its release, beside what a fitted model measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql as api
from privsql.mechanisms.bucketize.layout import runs_from_entries
from privsql.mechanisms.bucketize.preview import LabelledRecords, ModelPredictor, PosteriorSums
from support.commands import by_keys, refused, run, succeeded

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.mechanisms.bucketize.layout import BucketRuns

VALUES, RECORDS = 8, 2_400


def list_buckets(size: int) -> BucketRuns:
    """Buckets of ``size`` that list neighbouring values, all of them equally often."""
    slots = np.arange(RECORDS)
    bids, codes = slots // size, (slots // size + slots % size) % VALUES
    return runs_from_entries(bids, codes, VALUES, [(size, RECORDS // size)])


def label_records(columns: dict[str, np.ndarray]) -> LabelledRecords:
    return LabelledRecords(columns, np.arange(RECORDS) % VALUES, np.full(VALUES, RECORDS // VALUES))


@pytest.mark.parametrize("size", [2, 4, 6])
def test_columns_that_tell_nothing_leave_the_share_of_the_list(size: int) -> None:
    noise = np.random.default_rng(1)
    columns = {"a": noise.integers(0, 4, RECORDS), "b": noise.normal(size=RECORDS)}
    belief, _ = ModelPredictor(label_records(columns)).predict(list_buckets(size))
    assert belief == pytest.approx(1 / size, abs=0.06)


def test_a_column_that_tells_all_leaves_nothing_open() -> None:
    columns = {"a": np.arange(RECORDS) % VALUES}
    belief, error = ModelPredictor(label_records(columns)).predict(list_buckets(4))
    assert belief > 0.97
    assert error is not None
    assert error < 0.01


@pytest.mark.slow
def test_prediction_is_the_same_again() -> None:
    columns = {"a": np.arange(RECORDS) // 3 % VALUES}
    one, other = (ModelPredictor(label_records(columns)).predict(list_buckets(4)) for _ in range(2))
    assert one == other


def test_error_of_counts_is_that_of_independent_records() -> None:
    """With rho = 1/4 and eta = 1/2 the variance of N is N/2 (1 - t); other sizes do not count."""
    n = 10_000
    sums = PosteriorSums(0.5, np.full(2, n / 2), np.full(2, n / 8), np.full(2, n / 4))
    shares, counts = np.array([0.1, 0.3]), np.array([[300.0, 10.0], [800.0, 1_000.0]])
    expected = np.sqrt(2 / np.pi) * (np.sqrt(0.9 / 600) + np.sqrt(0.7 / 1_600)) / 2
    assert sums.predict_error(shares, counts) == pytest.approx(expected)
    assert sums.predict_error(shares, np.full((2, 2), 150.0)) is None


def test_one_value_has_nothing_that_is_open() -> None:
    """All is known, and no error is predicted: 0/0 was neither."""
    nothing = np.zeros(1)
    sums = PosteriorSums(1.0, np.full(1, 200.0), nothing, nothing)
    assert sums.share == 1
    assert sums.predict_error(np.array([0.5]), np.array([[500.0]])) is None


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
    assert 0.01 < facts["count_error"] < 0.2
    for other in (plan_people(150), plan_people(2_000, **{"mechanism.fake_values": 1})):
        assert "learning_belief" not in other
        assert "count_error" not in other
    grouped = plan_people(
        5_000,
        algorithm="two-size",
        **{"mechanism.groups": {"indoors": {"values": ["1", "2"], "threshold": "1/2"}}},
    )
    assert 0.3 < grouped["learning_belief"] < 0.9
    assert "count_error" not in grouped  # answers are linear


@pytest.mark.soak(part="coverage")
def test_predictions_are_near_what_attack_and_evaluate_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVSQL_CACHE", str(tmp_path / "cache"))
    people = make_people(8_000)
    keywords = {"sensitive": "job", "qi": ["age", "sex", "place"], "threshold": "1/3"}
    planned = api.plan(people, to=tmp_path / "t.duckdb", **by_keys({**keywords, "ledger.off": True})).facts
    released = api.publish(people, to=tmp_path / "t.duckdb", seed=1, **by_keys({**keywords, "ledger.off": True}))
    (learning,) = [one for one in api.attack(released).findings if one.adversary == "learning"]
    assert planned["learning_belief"] == pytest.approx(learning.mean, rel=0.2)
    api.fit(released)
    scores = api.evaluate(released, source=released.spec, queries=800, seed=2).scores["model"]
    truth, estimate = np.array(scores.truth), np.array(scores.estimate)
    inside = (truth >= 200) & (truth < 1_000)
    measured = (np.abs(estimate - truth)[inside] / truth[inside]).mean()
    assert inside.sum() > 60
    assert planned["count_error"] == pytest.approx(measured, rel=0.2)


@pytest.mark.soak(part="long")
def test_a_curve_has_each_threshold_as_its_own_plan_predicts_it() -> None:
    """Higher thresholds promise less, teach an attacker more and answer better; what can't be met says why."""
    people, keywords = make_people(6_000), {"sensitive": "job", "qi": ["age", "sex", "place"]}
    found = api.curve(people, threshold="1/4", to="t.duckdb", **by_keys({**keywords, "ledger.off": True}))
    met = {row.algorithm: row.figures for row in found.rows if row.refused is None}
    assert [row.algorithm for row in found.rows] == ["0.125", "0.1875", "0.25", "0.375", "0.5", "0.75"]
    assert met["0.25"]["learning_belief"] == plan_people(6_000)["learning_belief"]
    assert met["0.25"]["count_error"] == plan_people(6_000)["count_error"]
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
