"""What releases with fakes say of records: right on average over all that is drawn, and as sure as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import t as student

from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import checks, fakes
from privsql.mechanisms.bucketize.estimator import ListedPairs
from privsql.mechanisms.bucketize.model import Plan, Setting
from privsql.releases.opened import read_manifest
from support.commands import PEOPLE, run, specification, succeeded, write
from support.enumeration import FALSE_ALARM
from support.loops import rest_slow
from support.tampering import changed, failed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]


def list_pairs(pairs: dict[int, Reals], fakes: int = 0) -> ListedPairs:
    """How often two values are listed together, by size of bucket."""
    moment = sum(met * size / (size + fakes) ** 2 for size, met in pairs.items())
    return ListedPairs(moment, sum(met.diagonal() for met in pairs.values()), list(pairs), fakes)


def test_without_fakes_it_is_the_channel_of_the_buckets() -> None:
    """One bucket of two values, one of three."""
    two = np.diag([1.0, 1, 0]) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    found = list_pairs({2: two, 3: np.ones((3, 3))}).make_channel(None).channel
    moment = two / 2 + np.ones((3, 3)) / 3
    assert found.moment == pytest.approx(moment)
    assert found.mean == pytest.approx(moment / moment.sum(axis=1, keepdims=True))
    assert found.records == pytest.approx([2, 2, 1])


def test_listed_buckets_stand_for_their_records() -> None:
    """Two buckets of two with a fake each, all of three values listed in both: everyone is anywhere."""
    found = list_pairs({2: np.full((3, 3), 2.0)}, fakes=1).make_channel([2, 1, 1])
    assert found.channel.mean == pytest.approx(np.full((3, 3), 1 / 3))
    assert found.channel.records == pytest.approx([2, 1, 1])
    assert found.ratio == pytest.approx(np.array([2, 1, 1]) / (2 * 2 / 3))


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,200 people, one group of whom often has the frequent illness."""
    folder = tmp_path_factory.mktemp("through")
    noise = np.random.default_rng(5)
    group = noise.integers(0, 4, 1200)
    illness = np.where(
        (group == 0) & (noise.random(1200) < 0.3), 0, noise.choice(12, 1200, p=np.arange(13, 1, -1) / 90)
    )
    pq.write_table(pa.table({"part": group, "illness": illness}), folder / "ward.parquet")
    for name, extra in {"even": 'threshold = "1/3"\nfake_values = 1', "uneven": 'threshold = "1/4"\nfake_values = 3\n'
                        'uneven_fakes = "state"'}.items():  # fmt: skip
        (folder / f"{name}.toml").write_text(
            '[source]\nfile = "ward.parquet"\n[columns]\nquasi_identifiers = ["part"]\nsensitive = "illness"\n'
            f'[release]\nname = "ward"\nto = "{name}.duckdb"\n[mechanism]\n{extra}\n'
        )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "sigma"), rest_slow([([45, *[15] * 9], 1), ([60, *[15] * 8], 2)]))
def test_what_records_see_is_what_the_channel_says_on_average(counts: list[int], sigma: int) -> None:
    """Sums of what is listed over 30 records, most of one value, against M^T n, 200 draws; false alarm 1e-6."""
    setting, each = Setting.from_counts({3: 60}), np.array(counts)
    chosen = np.concatenate([np.arange(25), np.arange(150, 155)])
    truth = np.bincount(np.repeat(np.arange(len(counts)), counts)[chosen], minlength=len(counts))
    more = []
    for draw in range(200):
        found = fakes.hide_values(
            Plan("one", setting, each[:, None]), each, sigma, "blocks", seed_key(draw).random_generator("x")
        )
        listed = np.zeros((60, len(counts)))
        listed[found.bids, np.repeat(np.arange(len(counts)), counts)] = 1
        listed[found.fake_bids, found.fake_codes] = 1
        seen = list_pairs({3: listed.T @ listed}, sigma).make_channel(counts)
        more.append(listed[found.bids[chosen]].sum(axis=0) * seen.scale[3] - seen.channel.mean.T @ truth)
    spread = np.std(more, axis=0, ddof=1) / 200**0.5
    deviates = np.abs(np.mean(more, axis=0)) / np.maximum(spread, 1e-3)
    assert deviates.max() < student.isf(FALSE_ALARM / 2 / len(counts), 199)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["even", "uneven"]))
def test_what_is_stated_is_answered_exactly(ward: Path, name: str) -> None:
    """Counts of values alone follow from how often values are real."""
    succeeded("publish", ward / f"{name}.toml", "--seed", 1, "--replace")
    source = np.bincount(pq.read_table(ward / "ward.parquet")["illness"].to_numpy(), minlength=12)
    for illness in (0, 7):
        sql = f"SELECT count(*) FROM ward WHERE illness = {illness}"
        said = succeeded("query", ward / f"{name}.duckdb", sql, "--json").json["rows"][0]
        assert said["estimate"] == pytest.approx(source[illness], abs=1e-3)
    assert read_manifest(ward / f"{name}.duckdb").facts["real"] == source.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("counted", [True, False])
def test_a_wrong_entry_of_the_channel_is_found_by_integers_and_by_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    succeeded("publish", specification(tmp_path), "--seed", 1)
    if not counted:
        monkeypatch.setattr(checks, "MOST_ENTRIES", 0)
    succeeded("verify", tmp_path / "ill.duckdb")
    (tmp_path / "other").mkdir()
    one = "(SELECT min((size, first, second)) FROM privsql_channel WHERE first < second)"
    for change in (
        f"UPDATE privsql_channel SET pairs = pairs + 2 WHERE (size, first, second) = {one}",
        f"DELETE FROM privsql_channel WHERE (size, first, second) = {one}",
        f"UPDATE privsql_channel SET size = size + 100 WHERE (size, first, second) = {one}",
    ):
        other = changed(tmp_path / "ill.duckdb", tmp_path / "other", change)
        assert "entries of the channel agree with ST" in failed(run("verify", other, "--json")), change
