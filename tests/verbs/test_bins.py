"""Quasi-identifiers in bins and groups: what is published, what of it is checked, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest

import privsql
from support.commands import by_keys, manifest, refused, rows, run, specification, succeeded, tables, warehouse, write
from support.loops import each

if TYPE_CHECKING:
    from pathlib import Path

SICK = """
SELECT i, CASE WHEN i % 50 = 0 THEN NULL ELSE CAST(i % 60 - 20 AS INTEGER) END AS age,
  DATE '2020-01-01' + CAST(i % 400 AS INTEGER) AS since, ['Paris', 'Lyon', 'Bonn'][1 + i % 3] AS city,
  'd' || (i * i + i // 7) % 6 AS disease, CAST((i * 37) % 90 AS INTEGER) AS pay FROM range({n}) t(i)
"""
COLUMNS = """quasi_identifiers = ["age", "since", "city"]
sensitive = "{sensitive}"
bins = {{ Age = 15, since = "quarter" }}
levels = {{ city = {{ Paris = "FR", Lyon = "FR" }} }}
others = {{ city = "rest" }}"""
BY_HAND = (
    "SELECT age - (age + 300) % 15 AS age, CAST(date_trunc('quarter', since) AS DATE) AS since, "
    "CASE WHEN city IN ('Paris', 'Lyon') THEN 'FR' ELSE 'rest' END AS city, disease, pay FROM source"
)
MECHANISMS = {
    "bucketize": ("disease", 'threshold = "0.5"'),
    "randomize": ("disease", 'kind = "randomize"\nalgorithm = "up"\nrho1 = "1/3"\nrho2 = "2/3"'),
    "permute": ("pay", 'kind = "permute"\nk = 4\ne = "10"'),
}
OFF = "\n[ledger]\noff = true"


def asked(
    folder: Path, kind: str, columns: str = COLUMNS, source: str = 'file = "people.parquet"', to: str = "ill"
) -> Path:
    """A specification of a mechanism."""
    sensitive, mechanism = MECHANISMS[kind]
    return specification(
        folder, source=source, columns=columns.format(sensitive=sensitive), mechanism=mechanism + OFF,
        release=f'name = "ill"\nto = "{to}.duckdb"', name=f"{to}.toml",
    )  # fmt: skip


def people(folder: Path, n: int = 600) -> Path:
    """The table."""
    return write(folder / "people.parquet", SICK.format(n=n))


@pytest.mark.slow
@each("kind", list(MECHANISMS), few=1)
def test_a_release_is_that_of_a_table_that_was_made_coarser_by_hand(tmp_path: Path, kind: str) -> None:
    people(tmp_path)
    spec = asked(tmp_path, kind)
    plain = COLUMNS.split("\nbins", maxsplit=1)[0]
    by_hand = asked(tmp_path, kind, plain, f'file = "people.parquet"\nquery = "{BY_HAND}"', "by_hand")
    for one in (spec, by_hand):
        succeeded("publish", one, "--seed", 1)
    assert tables(tmp_path / "ill.duckdb") == tables(tmp_path / "by_hand.duckdb")
    told = succeeded("plan", spec, "--json").json
    assert told["records"] == 600
    succeeded("verify", tmp_path / "ill.duckdb", "--source", spec)
    succeeded("evaluate", tmp_path / "ill.duckdb", "--source", spec, "--queries", 8)
    succeeded("attack", tmp_path / "ill.duckdb", "--source", spec)


@pytest.mark.slow
def test_manifest_and_verify_say_it_and_questions_are_whole(tmp_path: Path) -> None:
    people(tmp_path)
    spec, release = asked(tmp_path, "bucketize"), tmp_path / "ill.duckdb"
    succeeded("publish", spec)
    stated = manifest(release)
    assert stated["bins"]["age"] == {"width": "15", "origin": "0", "edges": [], "unit": None}
    assert stated["groups"] == {"city": ["FR", "rest"]}
    told = " ".join(succeeded("verify", release, "--verbose").out.split())
    assert "age: bins of 15; a value is the first of its bin" in told
    assert "since: quarters; a value" in told
    assert "city: FR, rest" in told
    whole = "SELECT COUNT(*) FROM ill WHERE age BETWEEN 0 AND 29 AND since < '2020-07-01'"
    found = succeeded("query", release, whole, "--json").json["rows"][0]["estimate"]
    assert found == rows(release, "SELECT COUNT(*) FROM qit WHERE age IN (0, 15) AND since < '2020-07-01'")[0][0] > 0
    refused(run("query", release, "SELECT COUNT(*) FROM ill WHERE age <= 30"), 2, "'age' is in bins of 15")
    refused(run("query", release, "SELECT COUNT(*) FROM ill WHERE city = 'Paris'"), 2, "FR, rest")
    lookup = write(tmp_path / "l.csv", "SELECT i AS age, i % 2 AS odd FROM range(60) t(i)")
    joined = "SELECT odd, COUNT(*) FROM ill JOIN l ON ill.age = l.age GROUP BY odd"
    refused(run("query", release, joined, "--attach", lookup), 2, "JOIN l", "'age'")


@pytest.mark.slow
@each(
    ("bins", "words"),
    [
        ("bins = { pay = 5 }", ("'pay'", "not a quasi-identifier")),
        ("bins = { disease = 5 }", ("'disease'", "not a quasi-identifier")),
        ("bins = { age = 0 }", ("greater than 0",)),
        ('bins = { age = "week" }', ("columns.bins.age",)),
        ("bins = { city = 5 }", ("'city' is VARCHAR", "columns.levels")),
        ("bins = { since = 5 }", ("'since' is DATE", "month")),
        ("bins = { age = 0.5 }", ("'age' is INTEGER",)),
        ("bins = { age = { edges = [0, 18] } }", ("'age'", "196 records", "below 0, the first edge")),
        ('levels = { age = { a = "b" } }', ("'age' is INTEGER", "columns.bins")),
        ('levels = { city = { Paris = "FR" } }', ("'city'", "400 records", "columns.others")),
        ('levels = { city = { Paris = "FR" } }\nbins = { City = 5 }', ("already",)),
        ('others = { city = "rest" }', ("'city' has no levels",)),
        ("levels = { city = {} }", ("has none",)),
    ],
    few=3,
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, bins: str, words: tuple[str, ...]) -> None:
    people(tmp_path)
    spec = asked(
        tmp_path,
        "bucketize",
        COLUMNS.split("\nbins", maxsplit=1)[0] + "\n" + bins.replace("{", "{{").replace("}", "}}"),
    )
    refused(run("publish", spec), 2, *words)
    refused(run("plan", spec), 2, *words)
    assert not (tmp_path / "ill.duckdb").exists()


def test_other_shapes_have_none(tmp_path: Path) -> None:
    for columns in ('categories = ["age"]', 'items = "age"'):
        spec = specification(tmp_path, columns=f"{columns}\nbins = {{ age = 5 }}", mechanism='threshold = "0.5"')
        refused(run("publish", spec), 2, "bins: column 'age' is not a quasi-identifier")


@pytest.mark.slow
def test_verify_knows_other_bins_of_the_source(tmp_path: Path) -> None:
    people(tmp_path)
    succeeded("publish", asked(tmp_path, "bucketize"))
    for given in ("Age = 30", "Age = {{ width = 15, origin = 40 }}"):
        other = asked(tmp_path, "bucketize", COLUMNS.replace("Age = 15", given), to="other")
        done = run("verify", tmp_path / "ill.duckdb", "--source", other, "--json")
        assert done.code == 1
        assert "bins and groups are those of the specification" in [
            one["name"] for one in done.json["checks"] if not one["ok"]
        ]


@pytest.mark.slow
@each(
    ("statement", "code", "words"),
    [
        ("UPDATE qit SET age = age + 1 WHERE age = 15", 1, ("columns in bins",)),
        ("UPDATE qit SET city = 'Paris' WHERE city = 'FR'", 1, ("columns in bins",)),
        ("UPDATE qit SET since = since + 1", 1, ("columns in bins",)),
        ("UPDATE privsql_manifest SET value = '{\"city\": \"month\"}' WHERE key = 'bins'", 4, ("manifest",)),
        ('UPDATE privsql_manifest SET value = \'{"age": {"width": "1e400"}}\' WHERE key = \'bins\'', 4, ("manifest",)),
        ("UPDATE privsql_manifest SET value = '{\"disease\": [\"d1\"]}' WHERE key = 'groups'", 4, ("manifest",)),
    ],
    few=1,
)
def test_a_release_that_does_not_hold_its_bins(
    tmp_path: Path, statement: str, code: int, words: tuple[str, ...]
) -> None:
    people(tmp_path)
    succeeded("publish", asked(tmp_path, "bucketize"))
    warehouse(tmp_path / "ill.duckdb", statement)
    done = run("verify", tmp_path / "ill.duckdb", "--json")
    assert done.code == code, done.out + done.err
    failed: Any = json.dumps([one for one in done.json["checks"] if not one["ok"]]) if code == 1 else done.err
    assert all(word in failed for word in words)


@pytest.mark.slow
def test_records_of_an_earlier_release_are_known_again_in_bins(tmp_path: Path) -> None:
    people(tmp_path)
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "people.parquet").read_bytes())
    ledger = f'\n[ledger]\ndatabase = "{tmp_path / "l.duckdb"}"'
    for to, columns, source in (
        ("first", COLUMNS.split("\nbins", maxsplit=1)[0], "people"),
        ("second", COLUMNS, "copy"),
    ):
        spec = asked(tmp_path, "bucketize", columns, f'file = "{source}.parquet"', to)
        spec.write_text(spec.read_text("utf-8").replace(OFF, ledger), "utf-8")
    succeeded("publish", tmp_path / "first.toml")
    refused(run("publish", tmp_path / "second.toml"), 1, "release 1", "of another population")


@pytest.mark.slow
def test_a_table_beside_its_release_is_read_in_the_same_bins(tmp_path: Path) -> None:
    people(tmp_path)
    table = pq.read_table(tmp_path / "people.parquet")
    asked_for = {"qi": ["age", "since"], "sensitive": "disease", "threshold": "0.5", "ledger.off": True}
    to = tmp_path / "r.duckdb"
    privsql.publish(table, bins={"age": 15, "since": "quarter"}, to=to, **by_keys(asked_for))
    assert privsql.verify(to, table).ok
    levels = {"city": {"Paris": "FR", "Lyon": "FR", "Bonn": "DE"}}
    asked_for["qi"] = ["city"]
    privsql.publish(table, to=to, replace=True, **by_keys({**asked_for, "columns.levels": levels}))
    with pytest.raises(privsql.UsageError, match="'city' holds groups"):
        privsql.verify(to, table)


@pytest.mark.slow
def test_noisy_counts_of_a_source_are_of_whole_bins(tmp_path: Path) -> None:
    people(tmp_path)
    spec = privsql.load(asked(tmp_path, "bucketize"))
    found = privsql.attack(source=spec, differential=("AGE >= 15 AND city = 'FR'", "disease = 'd1'"), draws=100)
    table = warehouse(tmp_path / "table.duckdb", f"CREATE TABLE people AS {SICK.format(n=600)}")
    assert [(found.queried_row.x,)] == rows(
        table, "SELECT count(*) FROM people WHERE age >= 15 AND city IN ('Paris', 'Lyon')"
    )
    for condition in ("age >= 12", "city = 'Paris'"):
        with pytest.raises(privsql.UsageError, match=r"bin|groups"):
            privsql.attack(source=spec, differential=(condition, "disease = 'd1'"))


PREFIXED = """
SELECT i % 40 AS age, 'E1' || (i % 3) || '.' || (i * 7 % 10) AS code,
  lpad(CAST(i * 13 % 700 AS VARCHAR), 5, '0') AS zip,
  'd' || i % 5 AS disease FROM range(700) t(i)
"""


def prefixed(folder: Path, levels: str, name: str = "coded") -> Path:
    """A specification whose codes are groups and whose ZIP codes are prefixes."""
    write(folder / "coded.parquet", PREFIXED)
    columns = (
        'quasi_identifiers = ["age", "code", "zip"]\nsensitive = "disease"\nbins = { zip = { prefix = 4 } }\n'
        f"levels = {{ code = {levels} }}"
    )
    return specification(
        folder, source='file = "coded.parquet"', columns=columns, mechanism='threshold = "0.5"' + OFF,
        release=f'name = "coded"\nto = "{name}.duckdb"', name=f"{name}.toml",
    )  # fmt: skip


@pytest.mark.slow
def test_codes_are_published_by_their_first_characters(tmp_path: Path) -> None:
    (tmp_path / "icd10.csv").write_text(
        "value;group;chapter\n" + "".join(f"E1{a}.{b};E1{a};E\n" for a in range(4) for b in range(10))
    )
    succeeded("publish", prefixed(tmp_path, '"icd10.csv"'), "--seed", 1)
    release = tmp_path / "coded.duckdb"
    assert manifest(release)["bins"]["zip"]["prefix"] == 4
    assert manifest(release)["groups"] == {"code": ["E10", "E11", "E12"]}  # nobody has E13, so it is not told
    succeeded("verify", release, "--source", tmp_path / "coded.toml")
    true = dict(duckdb.sql(f"SELECT left(zip, 4), count(*) FROM '{tmp_path / 'coded.parquet'}' GROUP BY 1").fetchall())
    for where in ("zip = '0012'", "zip IN ('0012')", "zip LIKE '0012%'", "starts_with(zip, '0012')"):
        answer = succeeded("query", release, f"SELECT COUNT(*) FROM coded WHERE {where}", "--json").json
        assert answer["rows"][0]["estimate"] == true["0012"]
    for where in ("zip = '00123'", "zip LIKE '%12'", "zip LIKE '0_12%'", "zip > '0012'", "length(zip) = 4"):
        done = run("query", release, f"SELECT COUNT(*) FROM coded WHERE {where}")
        refused(done, 2, "the first 4 characters")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("E10.0,E10\nE10.0,E11\n", "'E10.0' is in two groups, 'E10' and 'E11'"),
        ("E10.0\n", "the line 'E10.0' has no group"),
        (None, "No such file"),
    ],
)
def test_a_hierarchy_that_is_none_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "icd10.csv").write_text(text)
    done = run("plan", prefixed(tmp_path, '"icd10.csv"'))
    refused(done, 2 if text else 4, why, "columns.levels.code")
