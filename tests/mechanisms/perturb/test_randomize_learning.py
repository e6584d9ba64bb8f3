"""What a randomized release teaches: its records as they are seen, whatever their columns are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import privsql
from privsql.answers.learned_prior import TaughtPrior
from privsql.keyed_random import seed_key
from privsql.mechanisms.perturb import answers as randomized
from support.commands import write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.answers.channel import Channel
    from privsql.answers.learned_prior import Sample

PEOPLE = """
SELECT CASE WHEN i % 11 = 0 THEN NULL ELSE 20 + (i * 7919) % 8 END AS q1, CASE WHEN (i * 31) % 7 < 3 THEN 'F' ELSE 'M'
  END AS "cell", DATE '2020-01-01' + CAST(i % 3 AS INTEGER) AS "s0", CAST((i % 6) / 4 AS DECIMAL(9, 2)) AS q0,
  'd' || CAST((i * 7 + i // 20) % 12 AS VARCHAR) AS disease
FROM range(1500) t(i)
"""
COLUMNS = ["q1", "cell", "s0", "q0"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", rest_slow(["up", "pp"]))
def test_records_see_what_the_database_says(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E of every value of every column, NULL included; the answer is given with what was learnt, and the same again."""
    source = write(tmp_path / "people.parquet", PEOPLE)
    spec = privsql.build(
        {
            "source": {"file": str(source)},
            "columns": {"quasi_identifiers": COLUMNS, "sensitive": "disease"},
            "release": {"name": "ill", "to": str(tmp_path / "ill.duckdb")},
            "mechanism": {"kind": "randomize", "algorithm": algorithm, "rho1": "1/10", "rho2": "1/3"},
        }
    )
    privsql.publish(spec, key=seed_key(1))
    given: list[Sample] = []
    really = randomized.learn_from_release

    def taught(through: Channel, sample: Sample) -> TaughtPrior | None:
        given.append(sample)
        return really(through, sample)

    monkeypatch.setattr(randomized, "learn_from_release", taught)
    question = 'SELECT "cell", COUNT(*) FROM ill WHERE disease = \'d3\' GROUP BY "cell"'
    with privsql.open(spec.target) as release:
        first = release.query(question).rows
        answers = release.answers
        assert isinstance(answers, randomized.RandomizeAnswers)
        assert isinstance(answers._learned_prior, TaughtPrior)
        (found,) = given
        for column in COLUMNS:
            sql = f"SELECT {column}, COUNT(*) FROM ill WHERE disease = 'd1' GROUP BY {column}"
            query = answers.parse_sql(sql, {}).questions[0]
            rows = answers._db.arrow(answers._observation_query(query))
            expected = np.zeros((rows["set"].to_numpy().max() + 1, answers.channel.mean.shape[1]))
            np.add.at(expected, (rows["set"].to_numpy(), rows["place"].to_numpy()), rows["pairs"].to_numpy())
            seen, total = found.by_value(column, np.arange(found.columns[column].max() + 1))
            np.testing.assert_array_equal(seen[np.lexsort(seen.T)], expected[np.lexsort(expected.T)])
            assert total.sum() == found.record_count == 1500
    assert privsql.query(spec.target, question).rows == first
    np.testing.assert_array_equal(given[0].places, given[1].places)
