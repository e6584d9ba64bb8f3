"""``plan --algorithms``: the algorithms beside each other, and the error that is expected of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from privsql.answers.channel import Channel, relative_error
from privsql.mechanisms.base import Alternative, AlternativeMeasure, Alternatives
from privsql.mechanisms.bucketize.plan import ALGORITHMS
from support.commands import PEOPLE, ROLES, refused, run, specification, succeeded, warehouse, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """A table of 3,000 rows, as arguments."""
    path = tmp_path_factory.mktemp("beside") / "w.duckdb"
    return [warehouse(path, f"CREATE TABLE w AS {PEOPLE.format(n=3000)}"), "--set", "source.table=w", *ROLES]


@pytest.mark.slow
def test_every_algorithm_is_a_row(table: list[object]) -> None:
    given = [*table, "--threshold", "2*f + 0.1", "--algorithm", "two-size"]
    shown = succeeded("plan", *given, "--algorithms", "--json").json
    rows = {row["algorithm"]: row for row in shown["algorithms"]}
    assert tuple(rows) == ALGORITHMS
    for name in ("two-size", "optimal", "informative"):
        planned = succeeded("plan", *table, "--threshold", "2*f + 0.1", "--algorithm", name, "--json").json
        assert planned["search_seconds"] >= 0
        own = rows[name]
        assert own["refused"] is None
        assert (own["loss"], own["mean_belief"]) == (planned["loss"], planned["mean_belief"])
        assert {key: own[key] for key in planned["channel"]} == planned["channel"]
        assert 0 < own["information"] <= 1
    assert shown["advice"].startswith("least error: informative, 0.")
    shown_to_people = succeeded("plan", *given, "--algorithms").out
    assert all(name in shown_to_people for name in ALGORITHMS)


@pytest.mark.slow
def test_what_refuses_says_why(table: list[object]) -> None:
    """Fakes, and a threshold that none can meet."""
    given = [
        *table,
        "--threshold",
        "0.4",
        "--set",
        "mechanism.fake_values=1",
        "--set",
        "mechanism.uneven_fakes=state",
        "--algorithms",
    ]
    refusals = {row["algorithm"]: row["refused"] for row in succeeded("plan", *given, "--json").json["algorithms"]}
    assert "fake_values can't be combined with" in refusals["informative"]
    assert refusals["two-size"] is None
    assert "informative: fake_values" in succeeded("plan", *given).out
    none = succeeded("plan", *table, "--threshold", "0.1", "--algorithms", "--json").json
    assert all("above its threshold" in row["refused"] for row in none["algorithms"])
    assert none["advice"] == "errors are not predicted here"


def test_settings_of_one_algorithm_do_not_stand_in_the_way_of_others(table: list[object]) -> None:
    given = [
        *table,
        "--threshold",
        "2*f + 0.1",
        "--algorithm",
        "two-size",
        "--set",
        "mechanism.layout=round-robin",
    ]
    shown = succeeded("plan", *given, "--algorithms", "--json").json
    rows = {row["algorithm"]: row for row in shown["algorithms"]}
    assert rows["informative"]["refused"] is None
    assert rows["two-size"]["smallest"] < rows["informative"]["smallest"]


def test_another_mechanism_says_why_not(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=300))
    columns = 'quasi_identifiers = ["sex", "zip"]\nsensitive = "age"'
    spec = specification(tmp_path, mechanism='kind = "permute"\nk = 4\ne = 30', columns=columns)
    refused(run("plan", spec, "--curve"), 2, "curve")


def test_the_best_figure() -> None:
    low, high = AlternativeMeasure("a", "a"), AlternativeMeasure("b", "b", lowest=False)
    rows = [Alternative("x", {"a": 1.0, "b": 1.0}), Alternative("y", {"a": 2.0, "b": 2.0}), Alternative("z", {}, "no")]
    found = Alternatives([low, high], rows, "")
    assert (found.choose_best(low), found.choose_best(high)) == (1.0, 2.0)
    assert Alternatives([low], rows[:1], "").choose_best(low) is None


# What is expected of an error ---


def random_channel(values: int, lost: float) -> Channel:
    """Buckets that hold a record's own value with probability 1 - lost, and else any."""
    rng = np.random.default_rng(values)
    records = rng.integers(2_000, 20_000, values).astype(float)
    shares = records / records.sum()
    mean = (1 - lost) * np.eye(values) + lost * shares
    moment = np.diag(records @ mean)
    return Channel(mean, moment, records)


@pytest.mark.parametrize(("lost", "share"), [(0.6, 0.05), (0.9, 0.05), (0.95, 0.2)])
def test_the_expected_error_is_that_of_simulated_answers(lost: float, share: float) -> None:
    """Counts are drawn from the prior, e from the channel, and n is estimated knowing the strength.

    Of about 2,500 counts near 400 the mean error has a standard error of 2 %.
    """
    channel, rng, strength = random_channel(12, lost), np.random.default_rng(3), 0.6
    total = share * channel.records.sum()
    prior = np.diag((strength * total) ** 2 * channel.prior_shape + total * channel.shares)
    mean = channel.mean
    noise = (1 - share) * share * (channel.moment - mean.T @ (channel.records[:, None] * mean))
    truth = rng.multivariate_normal(total * channel.shares, prior, 20_000)
    seen = truth @ mean + rng.multivariate_normal(np.zeros(12), noise, 20_000)
    gain = prior @ mean @ np.linalg.inv(mean.T @ prior @ mean + noise)
    estimate = total * channel.shares + (seen - total * channel.shares @ mean) @ gain.T
    count = float(np.round(total * np.median(channel.shares)))
    near = np.abs(truth - count) < 0.02 * count
    measured = (np.abs(estimate - truth)[near] / truth[near]).mean()
    assert relative_error(channel, share, count, strength) == pytest.approx(measured, rel=0.1)


def test_nothing_is_expected_of_counts_that_do_not_occur() -> None:
    channel = random_channel(12, 0.5)
    assert relative_error(channel, 0.01, 1e6) is None
    assert relative_error(channel, 0.01, 0.01 * channel.records.max()) is not None
