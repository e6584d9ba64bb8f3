"""What a bucketized release teaches: its records as arrays, when it is asked, and that a cache changes no answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import privsql
from privsql.answers import learned_prior
from privsql.errors import EngineError
from privsql.keyed_random import seed_key
from privsql.mechanisms.bucketize import estimator
from privsql.mechanisms.bucketize import estimator as sampling
from privsql.mechanisms.bucketize.mechanism import BucketizedAnswers
from support.commands import fetched, write
from support.loops import each, slow_but

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.answers.learned_prior import Sample

RECORDS = 1600
PEOPLE = """
SELECT CASE WHEN i % 11 = 0 THEN NULL ELSE 20 + (i * 7919) % 8 END AS age, CASE WHEN (i * 31) % 7 < 3 THEN 'F' ELSE 'M'
  END AS sex, DATE '2020-01-01' + CAST(i % 3 AS INTEGER) AS seen, TIMESTAMP '2020-01-01' + INTERVAL (i % 4) HOUR AS
  hour, CAST((i % 6) / 4 AS DECIMAL(9, 2)) AS dose, uuid_at[1 + i % 2] AS ward, i % 5 = 0 AS paid,
  CASE WHEN k < 6 THEN 'flu' WHEN k < 10 THEN 'cold' WHEN k < 13 THEN 'asthma' WHEN k < 16 THEN 'ulcer'
    WHEN k < 18 THEN 'angina' ELSE 'HIV' END AS disease
FROM (SELECT i, (i * 7 + i // 20 * 3 + (i * 7919) % 8) % 20 AS k FROM range({n}) t(i)),
  (SELECT [UUID '00000000-0000-0000-0000-000000000001', UUID '00000000-0000-0000-0000-000000000002'] AS uuid_at)
"""
COLUMNS = ["age", "sex", "seen", "hour", "dose", "ward", "paid"]
QUESTION = "SELECT age, COUNT(*) FROM ill WHERE disease = 'flu' AND sex = 'F' GROUP BY age"
MECHANISMS = {"plain": {"threshold": "1/3"}, "fakes": {"threshold": "1/2", "fake_values": 1}}


def published(folder: Path, mechanism: dict[str, object], records: int = RECORDS) -> Path:
    """A release with columns of every kind."""
    source = write(folder / "people.parquet", PEOPLE.format(n=records))
    spec = privsql.build(
        {
            "source": {"file": str(source)},
            "columns": {"quasi_identifiers": COLUMNS, "sensitive": "disease"},
            "release": {"name": "ill", "to": str(folder / "ill.duckdb")},
            "mechanism": mechanism,
        }
    )
    privsql.publish(spec, key=seed_key(1))
    return Path(spec.target)


@pytest.fixture(scope="module", params=slow_but(MECHANISMS, "plain"))
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    return published(tmp_path_factory.mktemp(request.param), MECHANISMS[request.param])


@pytest.fixture(scope="module")
def opened(release: Path) -> Iterator[BucketizedAnswers]:
    """The same, open."""
    with privsql.open(release) as held:
        assert isinstance(held.answers, BucketizedAnswers)
        yield held.answers


def sample_of(answers: BucketizedAnswers) -> Sample:
    """Its records."""
    return sampling.sample_buckets(answers._db, answers._roles, answers._facts.sizes, answers._fake_value_channel)


@each("column", COLUMNS)
def test_records_see_what_the_database_says(column: str, opened: BucketizedAnswers) -> None:
    """E of every value of every column, NULL included; codes are in order of appearance, so the sums are sorted."""
    found = sample_of(opened)
    assert found.record_count == RECORDS
    codes = np.arange(found.columns[column].max() + 1)
    assert len(codes) == len(fetched(f"SELECT DISTINCT {column} FROM ({PEOPLE.format(n=RECORDS)})"))
    seen, total = found.by_value(column, codes)
    query = opened.parse_sql(
        f"SELECT {column}, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY {column}", {}
    ).questions[0]
    asked = estimator.split_certain(opened._db, query, opened._roles, opened._fake_value_channel)
    expected = estimator.observe_sets(asked, opened._roles, opened._facts, opened._fake_value_channel).observed
    np.testing.assert_allclose(seen[np.lexsort(seen.T)], expected[np.lexsort(expected.T)], atol=1e-9)
    np.testing.assert_allclose(total, seen.sum(axis=1))


def test_a_sample_has_whole_buckets(opened: BucketizedAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    """About as many records as wanted, the same ones every time, and of a bucket all or none."""
    monkeypatch.setattr(sampling, "MOST_RECORDS", 500)
    found, again = sample_of(opened), sample_of(opened)
    assert found.digest == again.digest
    assert 350 < found.record_count < 650
    sizes = {size for size, _ in opened._facts.sizes}
    held = np.bincount(found.places, minlength=found.contributions.shape[0])
    assert set(held.tolist()) <= sizes
    np.testing.assert_allclose(found.contributions.sum(axis=1), 1)


def test_a_bucket_that_is_not_listed_is_refused(opened: BucketizedAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    """QIT and ST must agree."""
    listed = sampling.fill_lists
    monkeypatch.setattr(sampling, "fill_lists", lambda *holes: listed(*holes).where("s.bid <> 3"))
    with pytest.raises(EngineError, match="QIT has a bucket that ST does not list"):
        sample_of(opened)


# When, and how often ---


@pytest.fixture
def lessons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Every time that something is learnt; the cache is empty."""
    found: list[str] = []
    really = learned_prior.learn_prior

    def learn(*given: object) -> object:
        found.append("learnt")
        return really(*given)

    monkeypatch.setattr(learned_prior, "learn_prior", learn)
    monkeypatch.setenv(learned_prior.VARIABLE, str(tmp_path / "cache"))
    return found


@pytest.mark.slow
def test_a_cache_changes_no_answer(
    release: Path, lessons: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty, full, damaged, of no use, switched off: the same figures to the last bit."""
    first = privsql.query(release, QUESTION).rows
    assert len(lessons) == 1
    (file,) = (tmp_path / "cache").iterdir()
    assert privsql.query(release, QUESTION).rows == first
    assert len(lessons) == 1
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert privsql.query(release, QUESTION).rows == first
    assert privsql.query(release, QUESTION).rows == first
    assert len(lessons) == 2
    monkeypatch.setenv(learned_prior.VARIABLE, str(file / "below"))
    assert privsql.query(release, QUESTION).rows == first
    monkeypatch.setenv(learned_prior.VARIABLE, learned_prior.OFF)
    assert privsql.query(release, QUESTION).rows == first
    assert len(lessons) == 4
    assert sorted(tmp_path.iterdir()) == [tmp_path / "cache"]


@pytest.mark.slow
def test_nothing_is_learnt_that_is_not_needed(release: Path, lessons: list[str]) -> None:
    """Opening, the baseline and what the release holds exactly; then once for all questions."""
    with privsql.open(release) as held:
        held.query("SELECT age, COUNT(*) FROM ill GROUP BY age")
        held.query(QUESTION, estimator="baseline")
        assert not lessons
        for _ in range(2):
            held.query(QUESTION)
            held.query("SELECT sex, COUNT(*) FROM ill WHERE disease <> 'HIV' GROUP BY sex")
    assert len(lessons) == 1


@pytest.mark.slow
def test_small_releases_teach_nothing(lessons: list[str], tmp_path: Path) -> None:
    """Below ``FEWEST`` records the default prior stays."""
    small = published(tmp_path, MECHANISMS["plain"], learned_prior.FEWEST_RECORDS - 1)
    privsql.query(small, QUESTION)
    assert not lessons


@each(
    ("sql", "columns"),
    [
        ("SELECT COUNT(*) FROM ill WHERE age = 20 AND disease = 'flu'", {"age"}),
        ("SELECT COUNT(*) FROM ill WHERE (age = 20 OR sex = 'F' AND disease = 'flu')", {"age", "sex"}),
        ("SELECT paid, COUNT(*) FROM ill WHERE ill.dose < 1 AND disease = 'flu' GROUP BY paid", {"paid", "dose"}),
        ("SELECT disease, COUNT(*) FROM ill GROUP BY disease", set()),
        ("SELECT age // 10 AS ten, COUNT(*) FROM ill WHERE disease = 'flu' GROUP BY ten", {"age"}),
    ],
)
def test_the_columns_of_a_question(sql: str, columns: set[str], opened: BucketizedAnswers) -> None:
    """Whatever tells its records apart."""
    (query,) = opened.parse_sql(sql, {}).questions
    assert (
        estimator.split_certain(opened._db, query, opened._roles, opened._fake_value_channel).selecting_columns
        == columns
    )
