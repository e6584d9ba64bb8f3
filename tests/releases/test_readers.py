"""Releases open where privsql is not: in older DuckDB, and in whatever reads Parquet."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

import privsql
from privsql.errors import GuaranteeError, UsageError
from privsql.releases.opened import read_manifest
from support import shelf as shelves
from support.places import ROOT

VERSIONS = ("1.1.3", "1.4.1")  # that tests/engines.sh installs side by side
READ_ALL = """
import sys, duckdb
assert duckdb.__version__ == sys.argv[1]
for file in sys.argv[2:]:
    with duckdb.connect(file, read_only=True) as db:
        for (name,) in db.execute("SELECT table_name FROM information_schema.tables").fetchall():
            print(file, name, db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0])
        if db.execute("SELECT count(*) FROM duckdb_functions() WHERE function_name = 'low'").fetchone()[0]:
            asked = "SELECT round(n(weight), 6), round(low(weight, variance), 6), round(high(weight, variance), 6)"
            for where in ("age < 40", "disease = 'flu' AND age < 40", "disease IN ('flu', 'cold') AND sex = 'f'"):
                print(file, where, db.execute(f"{asked} FROM people_weighted WHERE {where}").fetchone())
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_older_versions_count_the_rows_of_all_tables_and_views_and_run_the_functions(shelf: Path, version: str) -> None:
    packages = ROOT / ".duckdb" / version
    if not packages.is_dir():
        pytest.skip(f"DuckDB {version} is not installed")
    files = [str(shelves.release_of(shelf, name)) for name in shelves.MECHANISMS]
    here = subprocess.run(
        [sys.executable, "-c", READ_ALL, duckdb.__version__, *files], capture_output=True, text=True, check=True
    )
    older = subprocess.run(
        [sys.executable, "-c", READ_ALL, version, *files],
        env={"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert older.stderr == ""
    assert older.stdout == here.stdout
    assert here.stdout.count("\n") > 2 * len(files)
    assert here.stdout.count("AND age < 40 (") == 3


def test_a_file_states_the_storage_version_that_older_versions_read(shelf: Path) -> None:
    with duckdb.connect() as db:
        db.execute(f"ATTACH '{shelves.release_of(shelf, 'bucketize')}' AS release (READ_ONLY)")
        (tags,) = db.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'release'").fetchone() or ({},)
    assert tags["storage_version"] == "v1.0.0+"


def test_a_copy_in_the_newest_storage_version_verifies(shelf: Path, tmp_path: Path) -> None:
    """The engine would write a JOIN of a view down otherwise there, so views have none."""
    release = shelves.release_of(shelf, "bucketize")
    copy = tmp_path / release.name
    with duckdb.connect() as db:
        db.execute(f"ATTACH '{release}' AS here (READ_ONLY)")
        db.execute(f"ATTACH '{copy}' AS copy (STORAGE_VERSION 'latest')")
        db.execute("COPY FROM DATABASE here TO copy")
        views = "SELECT view_name, sql, comment FROM duckdb_views() WHERE database_name = '{}' ORDER BY view_name"
        stored = db.execute(views.format("here")).fetchall()
        db.execute("USE copy")
        for name, text, comment in stored:
            quoted = comment.replace("'", "''")
            db.execute(f"DROP VIEW {name}; {text}; COMMENT ON VIEW {name} IS '{quoted}'")
        assert stored == db.execute(views.format("copy")).fetchall()
    assert privsql.verify(copy).ok


@pytest.mark.parametrize(
    ("kind", "published"), [("TIME_NS", "TIME"), ("TIMESTAMPTZ_NS", "TIMESTAMPTZ"), ("VARIANT", "VARCHAR")]
)
def test_types_that_older_versions_do_not_know_are_refused_with_a_cast(
    kind: str, published: str, tmp_path: Path
) -> None:
    values = {"TIME_NS": "TIME '08:00'", "TIMESTAMPTZ_NS": "TIMESTAMPTZ '2020-01-01'", "VARIANT": "1"}
    with duckdb.connect() as db:
        rows = f"SELECT {values[kind]}::{kind} AS since, i % 7 AS code FROM range(70) t(i)"
        db.execute(f"ATTACH '{tmp_path / 'new.duckdb'}' AS new (STORAGE_VERSION 'latest')")
        db.execute(f"CREATE TABLE new.people AS {rows}")
    with pytest.raises(UsageError, match=f"has type {kind}.*CAST\\(since AS {published}\\) AS since"):
        privsql.plan(
            tmp_path / "new.duckdb", qi=["since"], sensitive="code", threshold=0.5, set={"source": {"table": "people"}}
        )


# Folders --------------------------------------------------------------------------------------------------------------


def test_the_script_of_a_folder_makes_its_views(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = shelves.release_of(shelf, "folder")
    monkeypatch.chdir(release)
    with duckdb.connect() as db:
        db.execute((release / "views.sql").read_text())
        (records,) = db.execute("SELECT round(sum(weight)) FROM people_weighted").fetchall()[0]
        (views,) = db.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall()[0]
    assert records == read_manifest(release).published
    assert views == len(list(release.glob("*.parquet"))) + 2
    assert pl.read_parquet(release / "qit.parquet").height == records


@pytest.mark.parametrize("change", ["another text", "a link", "none"])
def test_a_script_with_other_statements_is_refused(shelf: Path, tmp_path: Path, change: str) -> None:
    release = Path(shutil.copytree(shelves.release_of(shelf, "folder"), tmp_path / "folder"))
    script = release / "views.sql"
    if change == "a link":
        script.rename(tmp_path / "views.sql")
        script.symlink_to(tmp_path / "views.sql")
    elif change == "none":
        script.unlink()
    else:
        script.write_text(script.read_text() + "-- more\n")
    with pytest.raises(GuaranteeError, match=r"views\.sql (does not belong here|is not that of this manifest)"):
        privsql.query(release, "SELECT COUNT(*) FROM people")
