"""Values that a release makes certain: only where the publisher wrote or allowed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from support.commands import PEOPLE, manifest, refused, run, specification, succeeded, write
from support.loops import rest_slow
from support.tampering import failed, parameter

if TYPE_CHECKING:
    from pathlib import Path

# Of 100 people 60 have one value; with 2*f + 0.02 its threshold is 1.
TWO = """
SELECT i AS age, i % 7 AS zip, ['F', 'M'][1 + i % 2] AS sex, CASE WHEN i % 5 < 3 THEN 'well' ELSE 'ill' END AS disease
FROM range(100) t(i)
"""
RULE = 'algorithm = "two-size"\nthreshold = "2*f + 0.02"'


def spec(folder: Path, mechanism: str = RULE, sql: str = TWO, **parts: str) -> Path:
    write(folder / "people.parquet", sql)
    return specification(folder, mechanism=mechanism, **parts)


@pytest.mark.slow
def test_a_rule_that_reaches_1_is_refused_with_values_and_people_and_a_flag_allows_it(tmp_path: Path) -> None:
    file, release = spec(tmp_path), tmp_path / "ill.duckdb"
    refused(run("publish", file), 3, "well (", "records)", "mechanism.allow_certain = true", "a threshold below 1,")
    assert not release.exists()
    planned = succeeded("plan", file, "--json").json
    assert "well" in planned["not_allowed"]
    assert "refused" in succeeded("plan", file).out
    succeeded("publish", file, "--set", "mechanism.allow_certain=true")
    stated = manifest(release)
    assert stated["parameters"]["allow_certain"] is True
    assert stated["facts"]["certain"]["certain"] > 0
    assert succeeded("verify", release, "--source", file, "--json").json["ok"]
    assert "not_allowed" not in succeeded("plan", spec(tmp_path, f"{RULE}\nallow_certain = true"), "--json").json
    with duckdb.connect(str(release)) as db:
        parameter("allow_certain", value=False)(db)
    assert "values that are certain were allowed" in failed(run("verify", release, "--json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "threshold",
    rest_slow(
        [
            '{ default = "2*f + 0.02", well = 1, ill = 1 }',
            "1",
            "{ query = \"SELECT disease, '1' FROM source GROUP BY disease\" }",
        ]
    ),
)
def test_a_threshold_that_is_written_as_1_says_so_itself(tmp_path: Path, threshold: str) -> None:
    file = spec(tmp_path, f'algorithm = "two-size"\nthreshold = {threshold}')
    if "query" in threshold:
        with duckdb.connect(str(tmp_path / "clinic.duckdb")) as db:
            db.execute(f"CREATE TABLE source AS FROM '{tmp_path / 'people.parquet'}'")
        file = spec(
            tmp_path,
            f'algorithm = "two-size"\nthreshold = {threshold}',
            source='database = "clinic.duckdb"\ntable = "source"\npopulation = "people"',
        )
    assert "not_allowed" not in succeeded("plan", file, "--json").json
    succeeded("publish", file)
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", file, "--json").json["ok"]


def test_a_value_that_is_written_excuses_itself_alone(tmp_path: Path) -> None:
    file = spec(tmp_path, 'algorithm = "two-size"\nthreshold = { default = "3*f + 0.02", ill = 1 }')
    done = run("publish", file)
    refused(done, 3, "well (")
    assert "ill (" not in done.err


@pytest.mark.slow
def test_one_column_of_a_compound_value_can_be_certain(tmp_path: Path) -> None:
    sql = "SELECT i AS age, i % 7 AS zip, 'F' AS sex, 'flu' AS disease, i % 10 AS stage FROM range(100) t(i)"
    columns = 'quasi_identifiers = ["age", "sex", "zip"]\nsensitive = ["disease", "stage"]'
    file = spec(tmp_path, "threshold = 0.25", sql, columns=columns)
    refused(run("publish", file), 3, "disease: flu (100 records)")
    succeeded("publish", file, "--set", "mechanism.allow_certain=true")


BUCKETS = "--promise", "bucketize", "--accept"


@pytest.mark.slow
def test_ordinary_releases_and_proposals_need_no_flag(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    proposed = succeeded("init", tmp_path / "people.parquet", "--sensitive", "disease", *BUCKETS).out
    assert "allow_certain" not in proposed
    (tmp_path / "proposed.toml").write_text(proposed)
    succeeded("publish", tmp_path / "proposed.toml", "--to", tmp_path / "r.duckdb")
