"""``privsql compare``: several specifications of one table with one workload; and Anatomy that leaves records out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

import privsql
from support.commands import fetched, refused, rows, run, specification, succeeded, write

if TYPE_CHECKING:
    from pathlib import Path

SKEWED = """
SELECT CAST(i % 40 AS INTEGER) AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
  CASE WHEN i % 10 < 4 THEN 'flu' ELSE 'd' || CAST((i * 7 + i // 10) % 9 AS VARCHAR) END AS disease
FROM range(4000) t(i)
"""
COLUMNS = 'quasi_identifiers = ["age", "sex"]\nsensitive = "disease"'
MECHANISMS = {
    "anatomy": 'algorithm = "anatomy"\nthreshold = "1/5"\nexcess = "suppress"\nabsence = "unobservable"',
    "pp": 'kind = "randomize"\nrho1 = "1/10"\nrho2 = "1/5"',
    "up": 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/10"\nrho2 = "1/5"',
}


@pytest.fixture
def skewed(tmp_path: Path) -> Path:
    """40 % of 4,000 records have the flu; a specification for every mechanism."""
    write(tmp_path / "skewed.parquet", SKEWED)
    for name, mechanism in MECHANISMS.items():
        source = 'file = "skewed.parquet"'
        release = f'name = "{name}"\nto = "{name}.duckdb"'
        specification(
            tmp_path, source=source, columns=COLUMNS, release=release, mechanism=mechanism, name=f"{name}.toml"
        )
    return tmp_path


@pytest.mark.slow
def test_compare_measures_every_specification_with_the_same_queries(skewed: Path) -> None:
    specs = [skewed / f"{name}.toml" for name in MECHANISMS]
    found = succeeded("compare", *specs, "--queries", "80", "--json").json["specs"]
    assert [one["spec"] for one in found] == list(MECHANISMS)
    assert [one["promise"] for one in found] == [
        "<= 0.2, of those who are there",
        "<= 1/5 if f <= 1/10",
        "<= 1/5 if f <= 1/10",
    ]
    queries = {one["evaluation"][estimator]["queries"] for one in found for estimator in ("baseline", "reconstructed")}
    assert queries == {80}
    bands = {str([(b["low"], b["queries"]) for b in one["evaluation"]["baseline"]["bands"]]) for one in found}
    assert len(bands) == 1
    assert not list(skewed.glob("*.duckdb"))


@pytest.mark.slow
def test_compare_prints_one_table_and_draws_a_picture(skewed: Path) -> None:
    done = succeeded(
        "compare", skewed / "anatomy.toml", skewed / "pp.toml", "--queries", "40", "--plot", skewed / "c.png"
    )
    for word in ("anatomy", "pp", "retained", "published", "covered", "if f <= 1/10"):
        assert word in done.out
    assert (skewed / "c.png").stat().st_size > 10_000


@pytest.mark.slow
def test_compare_repeats_itself(skewed: Path) -> None:
    asked = ["compare", skewed / "pp.toml", "--queries", "40", "--json", "--seed", "3"]
    first, second = (succeeded(*asked).json["specs"][0]["evaluation"] for _ in range(2))
    assert first == second


def test_what_can_not_be_compared_is_refused(skewed: Path) -> None:
    other = specification(
        skewed,
        source='file = "skewed.parquet"',
        columns='quasi_identifiers = ["age"]\nsensitive = "disease"',
        mechanism=MECHANISMS["pp"],
        name="other.toml",
    )
    refused(run("compare", skewed / "pp.toml", other), 2, "other", "[columns]", "one table")
    refused(run("compare", skewed / "pp.toml", "--plot", skewed / "c.txt", "--queries", "4"), 2, ".png or .svg")
    narrow = (
        (skewed / "anatomy.toml")
        .read_text()
        .replace('excess = "suppress"', "")
        .replace('absence = "unobservable"', "")
        .replace("anatomy.duckdb", "n.duckdb")
    )
    (skewed / "narrow.toml").write_text(narrow)
    refused(run("compare", skewed / "pp.toml", skewed / "narrow.toml", "--queries", "4"), 3, "narrow:", "flu")


# Anatomy by suppression ---


@pytest.mark.slow
def test_too_frequent_values_are_left_out_and_counted(skewed: Path) -> None:
    done = succeeded("publish", skewed / "anatomy.toml", "--seed", "1", "--json").json
    counts = dict(rows(skewed / "anatomy.duckdb", 'SELECT disease, sum("count") FROM st GROUP BY disease'))
    published = sum(counts.values())
    assert done["published"] == published
    assert done["suppressed"] == done["left_out"] == 4000 - published
    assert counts["flu"] * 5 <= published < (counts["flu"] + 1) * 5 + 5
    assert {disease: n for disease, n in counts.items() if disease != "flu"} == dict(
        fetched(f"SELECT disease, count(*) FROM ({SKEWED}) WHERE disease <> 'flu' GROUP BY disease")
    )
    succeeded("verify", skewed / "anatomy.duckdb")
    succeeded("verify", skewed / "anatomy.duckdb", "--source", skewed / "anatomy.toml")
    plan = succeeded("plan", skewed / "anatomy.toml", "--json").json
    assert (plan["published"], plan["suppressed"]) == (done["published"], done["suppressed"])


@pytest.mark.slow
def test_another_key_leaves_out_other_records(skewed: Path) -> None:
    ages = []
    for seed in (1, 2, 1):
        succeeded("publish", skewed / "anatomy.toml", "--seed", seed, "--replace")
        ages.append(rows(skewed / "anatomy.duckdb", "SELECT age, sex, count(*) FROM qit GROUP BY ALL ORDER BY ALL"))
    assert ages[0] == ages[2] != ages[1]


@pytest.mark.slow
def test_an_invented_record_is_found_against_the_source(skewed: Path) -> None:
    succeeded("publish", skewed / "anatomy.toml", "--seed", "1")
    with duckdb.connect(str(skewed / "anatomy.duckdb")) as db:
        db.execute("UPDATE qit SET age = 77 WHERE rowid = (SELECT max(rowid) FROM qit)")
    done = run("verify", skewed / "anatomy.duckdb", "--source", skewed / "anatomy.toml", "--json")
    assert done.code == 1
    assert "quasi-identifiers are the source's" in {c["name"] for c in done.json["checks"] if not c["ok"]}


def test_suppression_needs_a_constant_threshold(skewed: Path) -> None:
    spec = skewed / "anatomy.toml"
    spec.write_text(spec.read_text().replace('"1/5"', '"2*f"'))
    refused(run("publish", spec), 2, "excess", "constant threshold")


@pytest.mark.slow
def test_compare_is_a_function_of_the_library(skewed: Path) -> None:
    given = [(name, privsql.load(skewed / f"{name}.toml")) for name in ("up", "pp")]
    found = privsql.compare(given, privsql.Workload(queries=40), seed=1)
    errors = {one.name: one.evaluated.scores["baseline"].summary()["mean_relative_error"] for one in found}
    assert errors["pp"] <= errors["up"] * 1.5
