"""Who is missing is seen: leaving records out because of their value tells it, and is not done unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

from support.commands import refused, run, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

# 100 people, 60 of them with one value; the others have eight values, five each.
PEOPLE = """
SELECT i // 10 AS zip, i % 10 AS floor,
  CASE WHEN i < 60 THEN 'flu' ELSE ['cold', 'ulcer', 'asthma', 'angina', 'mumps', 'gout', 'croup',
  'rabies'][1 + i % 8] END AS disease FROM range(100) t(i)
"""
COLUMNS = 'quasi_identifiers = ["zip", "floor"]\nsensitive = "disease"'
MECHANISM = 'threshold = "1/4"\nexcess = "suppress"'
UNSEEN = f'{MECHANISM}\nabsence = "unobservable"'


def asked(folder: Path, mechanism: str, columns: str = COLUMNS, people: str = PEOPLE) -> Path:
    write(folder / "people.parquet", people)
    return specification(folder, columns=columns, mechanism=mechanism)


def rows(release: Path) -> list[dict[str, object]]:
    shown = succeeded("attack", release, "--json").json["adversaries"]
    return [one for one in shown if one["adversary"] == "absence"]


@pytest.mark.slow
def test_leaving_out_unasked_is_refused_with_what_works(tmp_path: Path) -> None:
    for verb in ("plan", "publish"):
        done = run(verb, asked(tmp_path, MECHANISM))
        refused(done, 3, "flu", "0.6", "0.25", "threshold of 0.6", "absence = 'unobservable'")
    assert not list(tmp_path.glob("ill*"))
    shown = run("plan", asked(tmp_path, MECHANISM), "--json").json
    assert (shown["value"], shown["threshold"], shown["exit_code"]) == ("flu", "0.6", 3)
    succeeded("publish", asked(tmp_path, 'threshold = "3/5"'))


@pytest.mark.slow
def test_all_who_are_missing_have_the_frequent_value(tmp_path: Path) -> None:
    """The attack of the papers' suppression: everybody who is missing is known with certainty."""
    done = succeeded("publish", asked(tmp_path, UNSEEN))
    with duckdb.connect(str(tmp_path / "ill.duckdb"), read_only=True) as db:
        there = {zip_ for (zip_,) in db.execute("SELECT 10 * zip + floor FROM qit").fetchall()}
    missing = set(range(100)) - there
    assert missing
    assert missing < set(range(60))
    (row,) = rows(tmp_path / "ill.duckdb")
    assert (row["attacked"], row["mean"], row["promised"], row["exceeded"]) == (len(missing), 1.0, False, False)
    said = f"{len(missing)} records are missing"
    assert said in done.err
    assert said in succeeded("verify", tmp_path / "ill.duckdb").out
    assert "those who are there" in succeeded("evaluate", tmp_path / "spec.toml", "--queries", 8, "--json").out


@pytest.mark.slow
def test_records_without_a_value_are_missed_too(tmp_path: Path) -> None:
    nulls = "SELECT i // 10 AS zip, i % 3 AS floor, "
    nulls += "CASE WHEN i % 10 > 0 THEN 'v' || (i % 7) END AS disease FROM range(300) t(i)"
    columns = f'{COLUMNS}\nnulls = {{ disease = "suppress" }}'
    done = succeeded("publish", asked(tmp_path, 'threshold = "1/2"', columns, nulls))
    assert "30 records are missing because disease is NULL" in done.err
    (row,) = rows(tmp_path / "ill.duckdb")
    assert (row["attacked"], row["mean"], row["promised"]) == (30, 1.0, False)


@pytest.mark.slow
def test_where_nobody_is_missing_nothing_is_said(tmp_path: Path) -> None:
    even = "SELECT i // 10 AS zip, i % 10 AS floor, i % 5 AS disease FROM range(100) t(i)"
    done = succeeded("publish", asked(tmp_path, MECHANISM, people=even))
    assert "missing" not in done.err
    assert rows(tmp_path / "ill.duckdb") == []
