"""Very many sensitive values: what meets is counted, and nothing of all pairs is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy

from privsql.answers import channel as algebra
from privsql.answers.channel import LARGE, Channel, observe_counts, reconstruct
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import estimator as seen
from privsql.mechanisms.bucketize.layout import make_layout
from privsql.mechanisms.bucketize.model import Plan, Setting
from support.commands import refused, run, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.answers.channel import Floats

COLUMNS = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
MANY = """
SELECT (i * 7) % 40 AS age, i % 2 AS sex, 'v' || lpad(CAST((i * 13) % 1500 AS VARCHAR), 5, '0') AS disease
FROM range(6000) AS t(i)
"""


def made(values: int) -> tuple[Channel, Plan]:
    """The channel of a layout in buckets of four, each value in as many as it has records."""
    counts = np.random.default_rng(values).integers(1, 9, values)
    counts[0] += -counts.sum() % 4
    plan = Plan("one", Setting.from_counts({4: int(counts.sum()) // 4}), counts[:, None])
    runs = make_layout(plan, "blocks", seed_key(1).random_generator("many")).list_runs(plan.setting)
    return seen.ListedPairs.read(runs.count_meetings(), [4]).make_channel(None).channel, plan


def dense(matrix: object) -> Floats:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else np.asarray(matrix)


def test_the_channel_of_many_values_is_that_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse or dense, it is the same matrix."""
    plain, _ = made(60)
    monkeypatch.setattr(seen, "LARGE", 10)
    sparse, _ = made(60)
    assert scipy.sparse.issparse(sparse.mean)
    assert scipy.sparse.issparse(sparse.moment)
    assert not scipy.sparse.issparse(plain.mean)
    for name in ("mean", "moment", "squared_mean"):
        assert dense(getattr(sparse, name)) == pytest.approx(dense(getattr(plain, name)), abs=1e-12)
    assert sparse.expected_total == pytest.approx(plain.expected_total)


def test_answers_through_a_sparse_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As through the same one that is dense."""
    monkeypatch.setattr(algebra, "LARGE", 10)
    plain, _ = made(60)
    monkeypatch.setattr(seen, "LARGE", 10)
    sparse, _ = made(60)
    truth = np.random.default_rng(1).binomial(plain.records.astype(int), 0.3)
    total = np.array([float(truth.sum())])
    given = observe_counts((truth @ plain.mean)[None], total, float(plain.records.sum()))
    asked = np.eye(60)[:, :3]
    first, second = reconstruct(plain, given, asked), reconstruct(sparse, given, asked)
    assert second.values == pytest.approx(first.values, rel=1e-5, abs=1e-5)
    assert second.std_error == pytest.approx(first.std_error, rel=1e-5)


def test_no_square_of_all_values_is_made() -> None:
    """8,000 values: all pairs would be half a GB."""
    channel, plan = made(8_000)
    assert channel.mean.nnz < 16 * int(plan.allocation.sum())
    assert LARGE < 8_000


@pytest.mark.slow
def test_a_release_of_many_values(tmp_path: Path) -> None:
    """It is published, verified and answered; what takes more than the limit is refused before anything is written."""
    write(tmp_path / "people.parquet", MANY)
    spec = specification(tmp_path, columns=COLUMNS, mechanism='algorithm = "two-size"\nthreshold = "1/4"')
    done = run("publish", spec, "--memory-limit", "262MB")
    refused(done, 4, "memory limit is 0.26 GB", "1,500 values")
    assert not (tmp_path / "ill.duckdb").exists()
    assert "channel" not in succeeded("publish", spec, "--json").json
    assert succeeded("verify", tmp_path / "ill.duckdb", "--json").json["ok"]
    (row,) = succeeded(
        "query", tmp_path / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE age < 20 AND disease < 'v00750'", "--json"
    ).json["rows"]
    assert row["low"] <= 1500 <= row["high"]
