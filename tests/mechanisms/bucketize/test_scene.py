"""What an adversary sees of a part of a release's buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from privsql.mechanisms.bucketize.estimator import ListedPairs, make_fake_value_channel
from privsql.releases import statements
from support.commands import ROLES, manifest, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

# One value is a fourth of the records; the records of every value lie together, as round-robin deals them.
QUARTERS = """
SELECT CAST(i % 61 AS INTEGER) AS age, CASE WHEN i % 7 < 3 THEN 'F' ELSE 'M' END AS sex, CAST(i % 97 AS INTEGER) AS zip,
  CASE WHEN i % 4 = 0 THEN 'a' ELSE 'v' || (i * 31 + i // 7) % 20 END AS disease
FROM range(4000) t(i)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", rest_slow(["blocks", "round-robin"]))
def test_the_learning_risk_of_a_sample_of_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    monkeypatch.setattr(statements, "SAMPLE", 200)
    source, release = write(tmp_path / "people.parquet", QUARTERS), tmp_path / "ill.duckdb"
    succeeded(
        "publish", source, *ROLES, "--threshold", "1/4", "--algorithm", "two-size", "--layout", layout, "--to", release
    )
    risk = manifest(release)["learning_risk"]
    assert risk["attacked"] == 200
    assert 0 <= risk["twice"] <= risk["above"] <= 1


def test_a_value_that_no_bucket_of_a_sample_holds_is_seen_as_itself() -> None:
    pairs = np.array([[4.0, 2.0, 0.0], [2.0, 6.0, 0.0], [0.0, 0.0, 0.0]])
    found = make_fake_value_channel([ListedPairs(2, pairs, 0)], None).channel
    assert found.mean.tolist() == [[4 / 6, 2 / 6, 0.0], [2 / 8, 6 / 8, 0.0], [0.0, 0.0, 1.0]]
    assert found.records[2] < 1e-5
