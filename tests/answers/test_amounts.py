"""SUM and AVG of a quasi-identifier with NULLs, where a sensitive column enters: as SQL counts them, by brute force."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql as api
from support.commands import specification, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

# Of the ages 0 to 7, those of age 7 have no pay at all, and a third of the others none; pay goes with the job.
PEOPLE = """
SELECT CAST(i % 8 AS INTEGER) AS age, CAST((i // 8) % 2 AS INTEGER) AS sex, CAST(i * i // 9 % 6 AS INTEGER) AS job,
  CASE WHEN i % 8 < 7 AND (i * 31) % 3 > 0 THEN CAST(50 + 10 * (i * i // 9 % 6) + (i * 13) % 7 AS INTEGER) END AS pay,
  CASE WHEN i % 11 = 0 THEN 'nan'::DOUBLE ELSE 1e300 END AS vast
FROM range(1200) t(i)
"""
ROLES = 'quasi_identifiers = ["age", "sex", "pay"]\nsensitive = "job"'
IDENTITY = {"bucketize": 'threshold = "1"\nmin_bucket_size = 1', "permute": 'kind = "permute"\nk = 1\ne = 0'}
NOISY = {
    "bucketize": 'threshold = "0.5"',
    "permute": 'kind = "permute"\nk = 3\ne = 2',
    "randomize": 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/5"\nrho2 = "3/5"',
}
ASKED = [
    "SELECT {} FROM t WHERE job = 3",
    "SELECT {} FROM t WHERE job = 3 AND age = 7",
    "SELECT {} FROM t WHERE job = 77",
    "SELECT {} FROM t WHERE job < 3 AND pay IS NULL",
    "SELECT age, {} FROM t WHERE job IN (1, 2) GROUP BY age",
    "SELECT age, sex, {} FROM t WHERE job = 3 OR age > 5 GROUP BY age, sex",
    "SELECT job, {} FROM t WHERE age > 4 GROUP BY job",
    "SELECT job, age, {} FROM t GROUP BY age, job",
]
Groups = dict[tuple[Any, ...], tuple[Any, ...]]


def published(folder: Path, mechanism: str, columns: str = ROLES) -> Path:
    """A release of the people."""
    write(folder / "people.parquet", PEOPLE)
    asked = {"columns": columns, "mechanism": mechanism, "release": 'name = "t"\nto = "t.duckdb"'}
    succeeded("publish", specification(folder, **asked), "--seed", 1, "--set", "ledger.off=true")
    return folder / "t.duckdb"


def both(release: api.Release, folder: Path, sql: str) -> tuple[Groups, Groups]:
    """The groups of the true answer and of the release's."""
    with closing(duckdb.connect()) as db:
        db.execute(f"CREATE VIEW t AS FROM '{folder / 'people.parquet'}'")
        true = {row[:-1]: row[-1:] for row in db.execute(sql).fetchall()}
    return true, {row[:-4]: row[-4:] for row in release.query(sql).rows}


@pytest.mark.slow  # the fuzzer asks such worlds in every run
@pytest.mark.parametrize("name", IDENTITY)
def test_where_nothing_is_hidden_answers_are_the_truth(tmp_path: Path, name: str) -> None:
    """Every group is there with its true sum and mean, NULL where SQL says NULL: 22.2 was said of a mean of 35.7."""
    with api.open(published(tmp_path, IDENTITY[name])) as release:
        for measure in ("SUM(pay)", "AVG(pay)"):
            for sql in ASKED:
                true, found = both(release, tmp_path, sql.format(measure))
                assert true.keys() <= found.keys(), sql
                for group, (value,) in true.items():
                    expected = value if value is None else pytest.approx(float(value), rel=1e-6, abs=1e-3)
                    assert found[group][0] == expected, (sql, group)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(NOISY))
def test_where_something_is_hidden(tmp_path: Path, name: str) -> None:
    """NULL where SQL says NULL, never NaN, within the range of the column, and intervals that cover nine of ten."""
    covered = []
    with api.open(published(tmp_path, NOISY[name])) as release:
        for sql in ASKED:
            true, found = both(release, tmp_path, sql.format("AVG(pay)"))
            assert true.keys() <= found.keys(), sql
            for group, (value,) in true.items():
                figures = found[group]
                if value is None:
                    assert figures == (None, None, None, None), (sql, group)
                    continue
                assert not any(math.isnan(figure) for figure in figures), (sql, group)
                estimate, error, low, high = figures
                assert 50 <= low <= estimate <= high <= 106, (sql, group)
                assert 0 <= error <= 28, (sql, group)
                covered.append(low <= float(value) <= high)
    assert sum(covered) >= 0.9 * len(covered)


@pytest.mark.slow
def test_what_cannot_be_added_up_is_said(tmp_path: Path) -> None:
    """NaN, and squares beyond every double: an answer of NaN was none."""
    columns = 'quasi_identifiers = ["age", "vast"]\nsensitive = "job"'
    with api.open(published(tmp_path, NOISY["bucketize"], columns)) as release:
        for condition in ("job = 3", "job = 3 AND vast < 1e301"):
            with pytest.raises(api.PrivsqlError, match="vast is not finite everywhere, or too large"):
                release.query(f"SELECT AVG(vast) FROM t WHERE {condition}")
