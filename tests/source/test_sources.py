"""Every kind of source, column and value: each is released and verified, or refused with the right exit code."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from support.commands import (
    FLAGS,
    PEOPLE,
    left_over,
    manifest,
    refused,
    rows,
    run,
    specification,
    succeeded,
    warehouse,
    write,
)
from support.loops import each, rest_slow

if TYPE_CHECKING:
    from pathlib import Path

HALF = ["--threshold", "0.5"]
SMALL = PEOPLE.format(n=200)
STAY = "SELECT CAST(i % 5 AS INTEGER) AS age, 'd' || i // 5 % 4 AS disease FROM range(200) t(i)"
ROLES = ["--qi", "age", "--sensitive", "disease", *HALF]


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def released(folder: Path, *arguments: object) -> Path:
    """A release that its source has verified."""
    release = folder / "released"
    shown = succeeded("publish", *arguments, "--to", release, "--replace", "--nobody-has-it", "--json").json
    assert all(check["ok"] for check in shown["checks"])
    assert succeeded("verify", release, "--json").json["ok"]
    return release


def released_and_compared(folder: Path, **parts: str) -> Path:
    """A release of a specification, verified against its source."""
    spec = specification(folder, **({"release": 'name = "ill"\nto = "ill.duckdb"'} | parts))
    succeeded("publish", spec, "--replace", "--nobody-has-it")
    shown = succeeded("verify", folder / "ill.duckdb", "--source", spec, "--json").json
    assert shown["ok"]
    return folder / "ill.duckdb"


def counted(release: Path, condition: str, name: str = "ill") -> float:
    """The answer to a count."""
    answer = succeeded("query", release, f"SELECT COUNT(*) FROM {quoted(name)} WHERE {condition}", "--json").json
    return float(answer["rows"][0]["estimate"])


# Where the records are ---

INTERNAL = ("people", "domain", "source", "qit")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with tables and views of many names."""
    return warehouse(
        tmp_path_factory.mktemp("clinic") / "clinic.duckdb",
        *(
            f"CREATE TABLE {quoted(name)} AS {STAY}"
            for name in (*INTERNAL, "stay", "my.table", "select", "naïve", 'a"b')
        ),
        "CREATE VIEW seen AS SELECT * FROM stay WHERE age < 4",
        "CREATE SCHEMA ward",
        "CREATE TABLE ward.stay AS SELECT * FROM stay WHERE age < 3",
        "CREATE VIEW ward.seen AS SELECT * FROM ward.stay",
        "CREATE VIEW moving AS SELECT * FROM stay, range(20) WHERE random() < 0.5",
    )


@pytest.mark.slow
@each(
    ("table", "records"),
    [
        ("STAY", 200),
        ("seen", 160),
        ("Ward.Stay", 120),
        ('"ward"."seen"', 120),
        ('"my.table"', 200),
        ('"a""b"', 200),
        *((name, 200) for name in INTERNAL),
    ],
    few=3,
)
def test_a_table_or_view_of_a_database(clinic: Path, tmp_path: Path, table: str, records: int) -> None:
    release = tmp_path / "r.duckdb"
    names = [
        one
        for pair in (f"source.table='{table}'", "source.population=ward", "release.name=ill")
        for one in ("--set", pair)
    ]
    succeeded("publish", clinic, *names, *ROLES, "--to", release)
    assert manifest(release)["records"] == records
    assert rows(release, "SELECT sum(count) FROM st WHERE disease = 'd1'") == [(records / 4,)]


@pytest.mark.slow
@each("table", ["nothing", "ward.nothing", "nowhere.stay", "stay; DROP TABLE stay", "(SELECT 1)", '"', ""])
def test_a_table_that_is_not_there(clinic: Path, tmp_path: Path, table: str) -> None:
    refused(run("publish", clinic, "--set", f"source.table={table}", *ROLES, "--to", tmp_path / "r.duckdb"), 2)
    assert rows(clinic, "SELECT count(*) FROM stay") == [(200,)]
    assert left_over(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "records"),
    rest_slow(
        [
            ("SELECT age, disease FROM ward.stay UNION ALL SELECT age, disease FROM stay", 320),
            ("WITH old AS (SELECT * FROM stay WHERE age > 1) SELECT disease, age AS age FROM old -- the old", 120),
            ("FROM people", 200),
        ]
    ),
)
def test_a_query_of_a_database(clinic: Path, tmp_path: Path, query: str, records: int) -> None:
    shutil.copy(clinic, tmp_path / "clinic.duckdb")
    release = released_and_compared(
        tmp_path,
        source=f'database = "clinic.duckdb"\nquery = "{query}"',
        columns='quasi_identifiers = ["age"]\nsensitive = "disease"',
        mechanism='threshold = "0.5"',
    )
    assert manifest(release)["records"] == records


@pytest.mark.slow
@each("query", ["SELECT * FROM source WHERE age < 40", "SELECT * FROM source WHERE random() < 0.5"], few=1)
@each("ending", ["parquet", "csv"])
def test_a_query_over_a_file(tmp_path: Path, query: str, ending: str) -> None:
    source = write(tmp_path / f"ward.{ending}", SMALL)
    release = released(tmp_path, source, "--set", f"source.query={query}", *FLAGS)
    with duckdb.connect() as db:
        young = db.execute(f"SELECT count(*) FROM ({SMALL}) WHERE age < 40").fetchone()
    if "random" not in query:
        assert young == (manifest(release)["records"],)


def test_a_view_that_changes_while_it_is_read_is_not_published(clinic: Path, tmp_path: Path) -> None:
    done = run("publish", clinic, "--set", "source.table=moving", *ROLES, "--to", tmp_path / "r.duckdb")
    refused(done, 1, "changed")
    assert not (tmp_path / "r.duckdb").exists()


@pytest.mark.soak(part="long")
@each("name", ["ward.pq", "ward.PARQUET", "ward.CSV", "ward.tsv"], few=2)
def test_a_file(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    with duckdb.connect() as db:
        form = "PARQUET" if name.lower().endswith(("parquet", "pq")) else "CSV, HEADER"
        delimiter = ", DELIMITER '\t'" if name.endswith("tsv") else ""
        db.execute(f"COPY ({SMALL}) TO '{source}' (FORMAT {form}{delimiter})")
    release = released(tmp_path, source, *FLAGS)
    assert rows(release, "SELECT sum(count) FROM st WHERE disease = 'HIV'") == [(20,)]


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["it's b.parquet", 'ï";b.parquet', "%41.parquet"]))
def test_a_file_of_any_name(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, SMALL)
    assert counted(released(tmp_path, tmp_path / name, *FLAGS), "disease = 'HIV'", name.removesuffix(".parquet")) == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["it's.duckdb", "temp.duckdb", "release"]))
def test_a_database_of_any_name(tmp_path: Path, name: str) -> None:
    source = warehouse(tmp_path / name, f"CREATE TABLE stay AS {STAY}")
    assert manifest(released(tmp_path, source, "--set", "source.table=stay", *ROLES))["records"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["ward[1].parquet", "ward*.parquet", "ward?.csv"]))
def test_a_file_name_is_not_a_pattern(tmp_path: Path, name: str) -> None:
    ending = name.split(".")[1]
    write(tmp_path / f"ward1.{ending}", PEOPLE.format(n=300))
    source = write(tmp_path / f"plain.{ending}", SMALL).rename(tmp_path / name)
    succeeded("publish", source, *FLAGS, "--to", tmp_path / "r.duckdb")
    assert manifest(tmp_path / "r.duckdb")["records"] == 200


@pytest.mark.slow
@each(
    ("folder", "form"),
    [("year=2015", "duckdb"), ("year=2015", "parquet"), ("age=7", "duckdb"), ("[1]", "parquet")],
    few=1,
)
def test_a_folder_name_says_nothing_about_columns(tmp_path: Path, folder: str, form: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    source = write(place / "ward.parquet", SMALL)
    succeeded("publish", source, *FLAGS, "--to", place / "r", "--format", form)
    assert succeeded("verify", place / "r", "--json").json["ok"]
    with duckdb.connect() as db:
        young = db.execute(f"SELECT count(*) FROM ({SMALL}) WHERE age = 20").fetchone()
    assert young == (counted(place / "r", "age = 20", "ward"),)


# Names of columns ---

NAMES = (
    "select",
    "group",
    "Age Years",
    "a.b",
    'a"b',
    "it's",
    "a;b",
    "-- x",
    "a\nb",
    "年齢",
    "rank",
    "size",
    "n",
    "c",
    "q0",
    "g_0",
    "rowid",
    "temp",
    "qit",
    "estimate",
    "low",
    "__qi__",
    "$name",
    " ",
    "1",
    "NULL",
    "*",
)


@pytest.fixture(scope="module")
def oddly_named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release whose quasi-identifiers have every name of ``NAMES``, values far from 0."""
    folder = tmp_path_factory.mktemp("names")
    listed = ", ".join(f"'v' || (i + {k}) % 5 AS {quoted(name)}" for k, name in enumerate(NAMES))
    warehouse(
        folder / "w.duckdb", f"CREATE TABLE stay AS SELECT {listed}, 'd' || i // 5 % 4 AS disease FROM range(200) t(i)"
    )
    names = ", ".join(specification_text(name) for name in NAMES)
    spec = specification(
        folder,
        source='database = "w.duckdb"\ntable = "stay"',
        columns=f'quasi_identifiers = [{names}]\nsensitive = "disease"',
        mechanism='threshold = "0.5"',
    )
    succeeded("publish", spec)
    assert succeeded("verify", folder / "ill.duckdb", "--source", spec, "--json").json["ok"]
    return folder / "ill.duckdb"


def specification_text(name: str) -> str:
    """A string as TOML writes it."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@pytest.mark.soak(part="long")
@each("name", NAMES, few=9)
def test_a_quasi_identifier_of_any_name(oddly_named: Path, name: str) -> None:
    select = f"SELECT {quoted(name)} AS other" if name in {"estimate", "low"} else f"SELECT {quoted(name)}"
    group = f"GROUP BY {quoted(name)} ORDER BY {quoted(name)}"
    exact = succeeded("query", oddly_named, f"{select}, COUNT(*) AS people FROM ill {group}", "--json").json["rows"]
    assert [next(iter(row.values())) for row in exact] == ["v0", "v1", "v2", "v3", "v4"]
    assert [row["people"] for row in exact] == [40] * 5
    mixed = f"{select}, COUNT(*) AS people FROM ill WHERE disease = 'd1' AND {quoted(name)} <> 'v0' {group} LIMIT 3"
    shown = succeeded("query", oddly_named, mixed, "--json").json["rows"]
    assert [next(iter(row.values())) for row in shown] == ["v1", "v2", "v3"]


@pytest.mark.slow
def test_answers_are_ordered_by_the_count_whatever_the_columns_are_called(tmp_path: Path) -> None:
    source = write(
        tmp_path / "w.parquet",
        'SELECT CASE WHEN i < 30 THEN 9 WHEN i < 90 THEN 5 ELSE 7 END AS "count", i % 4 AS d FROM range(200) t(i)',
    )
    done = run("publish", source, "--qi", "count", "--sensitive", "d", *HALF, "--to", tmp_path / "r")
    if done.code == 2:
        return
    shown = succeeded("query", tmp_path / "r", "SELECT count, COUNT(*) AS n FROM w GROUP BY count ORDER BY n", "--json")
    assert [row["n"] for row in shown.json["rows"]] == [30, 60, 110]
    some = succeeded(
        "query", tmp_path / "r", "SELECT count, COUNT(*) AS n FROM w GROUP BY count HAVING n > 50", "--json"
    )
    assert [row["n"] for row in some.json["rows"]] == [60, 110]


@pytest.mark.soak(part="cases")
@each("name", ['a"b', "rank", "s0", "size", "records"], few=2)
def test_a_sensitive_column_of_any_name(tmp_path: Path, name: str) -> None:
    warehouse(
        tmp_path / "w.duckdb",
        f"CREATE TABLE stay AS SELECT 'v' || i % 5 AS age, 'd' || i // 5 % 4 AS {quoted(name)} FROM range(200) t(i)",
    )
    spec = specification(
        tmp_path,
        source='database = "w.duckdb"\ntable = "stay"',
        columns=f'quasi_identifiers = ["age"]\nsensitive = {specification_text(name)}',
        mechanism='threshold = "0.5"',
    )
    done = run("publish", spec)
    if done.code == 2:
        refused(done, 2, "rename")
        return
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]
    sql = f"SELECT {quoted(name)}, COUNT(*) FROM ill WHERE age = 'v1' GROUP BY {quoted(name)} ORDER BY {quoted(name)}"
    shown = succeeded("query", tmp_path / "ill.duckdb", sql, "--json").json["rows"]
    assert [next(iter(row.values())) for row in shown] == ["d0", "d1", "d2", "d3"]


@pytest.mark.slow
def test_upper_and_lower_case_do_not_matter_in_a_specification(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", SMALL.replace("AS disease", 'AS "Disease"').replace("AS age", 'AS "aGe"'))
    release = released_and_compared(
        tmp_path,
        columns='quasi_identifiers = ["AGE", "Sex", "zip"]\nsensitive = "DISEASE"\nnulls = { Age = "refuse" }',
    )
    stated = manifest(release)
    assert [field["name"] for field in stated["quasi_identifiers"]] == ["aGe", "sex", "zip"]
    assert stated["nulls"]["aGe"] == "refuse"
    assert counted(release, "disEASE = 'HIV' AND SEX IS NOT NULL") == 20


@pytest.mark.soak(part="long")
@each(
    ("name", "form"),
    [("select", "duckdb"), ('a"b', "duckdb"), ("main", "duckdb"), ("naïve", "parquet"), ("memory", "parquet")],
    few=2,
)
def test_a_release_of_any_name(tmp_path: Path, name: str, form: str) -> None:
    source = write(tmp_path / "ward.parquet", STAY)
    release = tmp_path / "r"
    succeeded("publish", source, *ROLES, "--set", f"release.name={name}", "--to", release, "--format", form)
    assert succeeded("verify", release, "--json").json["ok"]
    assert counted(release, "disease = 'd1'", name) == 50
    if form == "duckdb":
        assert rows(release, f"SELECT sum(weight) FROM {quoted(name + '_pairs')}") == [(200.0,)]


# NULL ---

HOLES = """
SELECT CASE WHEN i % 10 = 0 THEN NULL ELSE i % 5 END AS age, CASE WHEN i % 4 = 0 THEN NULL ELSE 'z' || i % 3 END AS zip,
  CASE WHEN i % 6 = 0 THEN NULL ELSE 'd' || i // 5 % 4 END AS disease FROM range(200) t(i)
"""
NULLS = {"age": "i % 10 = 0", "zip": "i % 4 = 0", "disease": "i % 6 = 0"}


def without(*names: str) -> int:
    """Records of ``HOLES`` that are left when those with NULL in one of the columns are not published."""
    conditions = [f"({NULLS[name]})" for name in names] or ["FALSE"]
    with duckdb.connect() as db:
        found = db.execute(f"SELECT count(*) FROM range(200) t(i) WHERE NOT ({' OR '.join(conditions)})").fetchone()
    assert found is not None
    return int(found[0])


@pytest.mark.slow
@each("suppressed", [[], ["age"], ["disease"], ["age", "zip"], ["age", "zip", "disease"]], few=2)
def test_null_is_a_value_or_suppressed_and_counted(tmp_path: Path, suppressed: list[str]) -> None:
    write(tmp_path / "people.parquet", HOLES)
    policies = {name: "suppress" if name in suppressed else "value" for name in NULLS}
    listed = ", ".join(f'{name} = "{policy}"' for name, policy in policies.items())
    spec = specification(
        tmp_path,
        columns=f'quasi_identifiers = ["age", "zip"]\nsensitive = "disease"\nnulls = {{ {listed} }}',
        mechanism='threshold = "0.6"',
    )
    planned = succeeded("plan", spec, "--json").json
    shown = succeeded("publish", spec, "--json").json
    left = without(*suppressed)
    for facts in (shown, planned, manifest(tmp_path / "ill.duckdb")):
        assert (facts["records"], facts["published"], facts["suppressed"]) == (200, left, 200 - left)
    assert manifest(tmp_path / "ill.duckdb")["nulls"] == policies
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]
    for name, policy in policies.items():
        table = "st" if name == "disease" else "qit"
        found = rows(tmp_path / "ill.duckdb", f"SELECT count(*) FROM {table} WHERE {name} IS NULL")
        assert (found[0][0] > 0) == (policy == "value")
    assert rows(tmp_path / "ill.duckdb", "SELECT count(*) FROM qit") == [(left,)]


@pytest.mark.parametrize("column", ["age", "zip", "disease"])
def test_null_is_refused_with_its_column_and_number(tmp_path: Path, column: str) -> None:
    source = write(tmp_path / "people.parquet", HOLES)
    policies = [f"--set=columns.nulls.{name}={'refuse' if name == column else 'value'}" for name in NULLS]
    done = run(
        "publish",
        source,
        "--qi",
        "age,zip",
        "--sensitive",
        "disease",
        "--threshold",
        "0.6",
        *policies,
        "--to",
        tmp_path / "r.duckdb",
    )
    refused(done, 2, f"'{column}'", f"{200 - without(column)} records", "suppress", "value")
    assert not (tmp_path / "r.duckdb").exists()


@pytest.mark.slow
def test_without_a_policy_null_is_a_value_and_refused_where_it_is_sensitive(tmp_path: Path) -> None:
    source = write(tmp_path / "people.parquet", HOLES)
    roles = ["--qi", "age,zip", "--threshold", "0.6", "--to", tmp_path / "r.duckdb"]
    refused(run("publish", source, *roles, "--sensitive", "disease"), 2, "'disease'", "34 records")
    full = write(tmp_path / "full.parquet", f"SELECT age, zip, coalesce(disease, 'none') AS disease FROM ({HOLES})")
    shown = succeeded("publish", full, *roles, "--sensitive", "disease", "--json").json
    assert (shown["published"], shown["suppressed"]) == (200, 0)


@pytest.mark.slow
def test_null_that_is_suppressed_elsewhere_is_not_refused(tmp_path: Path) -> None:
    source = write(
        tmp_path / "people.parquet",
        "SELECT CASE WHEN i % 4 = 0 THEN NULL ELSE 1 END AS age, CASE WHEN i % 8 = 0 THEN NULL ELSE i % 3 END "
        "AS disease FROM range(200) t(i)",
    )
    roles = ["--qi", "age", "--sensitive", "disease", "--threshold", "0.9", "--to", tmp_path / "r.duckdb"]
    shown = succeeded(
        "publish",
        source,
        *roles,
        "--set",
        "columns.nulls.age=suppress",
        "--set",
        "columns.nulls.disease=refuse",
        "--json",
    ).json
    assert (shown["published"], shown["suppressed"]) == (150, 50)


@pytest.mark.slow
def test_verify_tells_another_null_policy(tmp_path: Path) -> None:
    write(tmp_path / "people.parquet", HOLES)
    columns = 'quasi_identifiers = ["age", "zip"]\nsensitive = "disease"\nnulls = {{ disease = "{}" }}'
    first = specification(tmp_path, columns=columns.format("suppress"), mechanism='threshold = "0.6"')
    succeeded("publish", first)
    second = specification(tmp_path, columns=columns.format("value"), mechanism='threshold = "0.6"', name="second.toml")
    done = run("verify", tmp_path / "ill.duckdb", "--source", second, "--json")
    assert done.code == 1
    failed = {check["name"] for check in done.json["checks"] if not check["ok"]}
    assert any("suppressed" in name for name in failed)


@pytest.mark.slow
def test_null_and_the_word_null_are_two_values(tmp_path: Path) -> None:
    write(
        tmp_path / "people.parquet",
        "SELECT i % 7 AS age, CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN 'NULL' ELSE 'd' || i % 4 END AS disease "
        "FROM range(400) t(i)",
    )
    release = released_and_compared(
        tmp_path,
        columns='quasi_identifiers = ["age"]\nsensitive = "disease"\nnulls = { disease = "value" }',
        mechanism='threshold = "0.5"',
    )
    assert counted(release, "disease IS NULL") == 100
    assert counted(release, "disease = 'NULL'") == 100


@pytest.mark.slow
def test_all_null(tmp_path: Path) -> None:
    source = warehouse(
        tmp_path / "w.duckdb",
        "CREATE TABLE w (age INTEGER, disease VARCHAR)",
        "INSERT INTO w SELECT NULL, NULL FROM range(50)",
    )
    roles = ["--set", "source.table=w", "--qi", "age", "--sensitive", "disease", "--to", tmp_path / "r.duckdb"]
    refused(run("publish", source, *roles, "--threshold", "1"), 2, "'disease'", "50 records")
    refused(
        run("publish", source, *roles, "--threshold", "1", "--set", "columns.nulls.disease=suppress"), 3, "no records"
    )
    refused(run("publish", source, *roles, "--threshold", "0.5", "--set", "columns.nulls.disease=value"), 3, "NULL")
    succeeded("publish", source, *roles, "--threshold", "1", "--set", "columns.nulls.disease=value")


# Types and values ---

VALUES = {
    "date": "DATE '2020-02-28' + CAST({} AS INTEGER)",
    "decimal": "CAST({} + 0.25 AS DECIMAL(18, 2))",
    "wide decimal": "CAST({} + 0.25 AS DECIMAL(38, 10))",
    "text": "['it''s', 'a\"b', '', 'é', 'two' || chr(10) || 'lines'][{} + 1]",
    "text that differs in case and blanks": "['a', 'A', ' a', 'a ', 'á'][{} + 1]",
    "double": "CAST([0.1, 1e300, 'nan', 'inf', '-inf'][{} + 1] AS DOUBLE)",
    "float": "CAST([0.1, 3e38, 'nan', 'inf', '-inf'][{} + 1] AS FLOAT)",
    "boolean": "{} < 2",
    "timestamp": "TIMESTAMP '2020-01-01 00:00:00.000001' + INTERVAL ({}) HOUR",
    "timestamp with zone": "TIMESTAMPTZ '2020-03-29 00:30:00+00' + INTERVAL ({}) HOUR",
    "nanoseconds": "make_timestamp_ns(1577836800000000000 + {})",
    "time": "TIME '00:00:00' + INTERVAL ({}) HOUR",
    "uuid": "CAST('00000000-0000-0000-0000-00000000000' || {} AS UUID)",
    "tiny": "CAST({} - 2 AS TINYINT)",
    "big unsigned": "CAST(18446744073709551615 - {} AS UBIGINT)",
    "json": "CAST('{{\"a\":' || {} || '}}' AS JSON)",
}


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one column of every kind of value."""
    seen = ", ".join(f"{value.format('CAST(i % 5 AS INTEGER)')} AS {quoted(kind)}" for kind, value in VALUES.items())
    return warehouse(
        tmp_path_factory.mktemp("varied") / "w.duckdb",
        f"CREATE TABLE w AS SELECT i, i // 5 % 4 AS other, {seen} FROM range(250) t(i)",
    )


@pytest.mark.slow
@each("kind", ["date", "wide decimal", "text", "double", "boolean", "timestamp with zone", "json"], few=2)
def test_sensitive_values_of_every_type_come_through(varied: Path, kind: str) -> None:
    release = released_and_compared(
        varied.parent,
        source='database = "w.duckdb"\ntable = "w"',
        columns=f'quasi_identifiers = ["other"]\nsensitive = "{kind}"',
        mechanism='threshold = "0.6"',
    )
    order = f"GROUP BY {quoted(kind)} ORDER BY {quoted(kind)}"
    raw = rows(varied, f"SELECT {quoted(kind)}::VARCHAR, count(*) FROM w {order}")
    assert rows(release, f"SELECT {quoted(kind)}::VARCHAR, sum(count) FROM st {order}") == raw
    answer = succeeded("query", release, f"SELECT {quoted(kind)}, COUNT(*) FROM ill {order}", "--csv").out
    assert sum(float(row["estimate"]) for row in csv.DictReader(io.StringIO(answer))) == 250


@pytest.mark.slow
@pytest.mark.parametrize("form", rest_slow(["duckdb", "parquet"]))
def test_quasi_identifiers_of_every_type_come_through(varied: Path, form: str) -> None:
    kinds = ", ".join(f'"{kind}"' for kind in VALUES)
    spec = specification(
        varied.parent,
        source='database = "w.duckdb"\ntable = "w"',
        columns=f'quasi_identifiers = [{kinds}]\nsensitive = "other"',
        release=f'name = "ill"\nto = "seen"\nformat = "{form}"',
        mechanism='threshold = "0.6"',
    )
    succeeded("publish", spec, "--replace", "--nobody-has-it")
    assert succeeded("verify", varied.parent / "seen", "--source", spec, "--json").json["ok"]
    shutil.rmtree(varied.parent / "seen") if form == "parquet" else (varied.parent / "seen").unlink()


@pytest.mark.soak(part="long")
@each("kind", VALUES, few=8)
def test_answers_by_values_of_every_type(varied: Path, kind: str) -> None:
    release = varied.parent / "answers.duckdb"
    if not release.exists():
        kinds = ", ".join(f'"{name}"' for name in VALUES)
        spec = specification(
            varied.parent,
            source='database = "w.duckdb"\ntable = "w"',
            columns=f'quasi_identifiers = [{kinds}]\nsensitive = "other"',
            mechanism='threshold = "0.6"',
        )
        succeeded("publish", spec, "--to", release)
    sql = f"SELECT {quoted(kind)}, COUNT(*) FROM ill GROUP BY {quoted(kind)} ORDER BY {quoted(kind)}"
    shown = succeeded("query", release, sql, "--json").json["rows"]
    raw = rows(varied, f"SELECT count(*) FROM w GROUP BY {quoted(kind)} ORDER BY {quoted(kind)}")
    assert [(row["estimate"],) for row in shown] == raw


@pytest.mark.slow
def test_a_key_repeats_a_release_in_any_time_zone(tmp_path: Path) -> None:
    warehouse(
        tmp_path / "w.duckdb",
        "CREATE TABLE w AS SELECT i % 7 AS age, TIMESTAMPTZ '2020-03-29 00:30:00+00' + INTERVAL (i % 5) HOUR AS seen "
        "FROM range(200) t(i)",
    )
    specification(
        tmp_path,
        source='database = "w.duckdb"\ntable = "w"',
        columns='quasi_identifiers = ["age"]\nsensitive = "seen"',
        mechanism='threshold = "0.5"',
    )
    found = []
    for zone in ("UTC", "Asia/Tokyo"):
        command = [
            sys.executable,
            "-m",
            "privsql",
            "publish",
            "spec.toml",
            "--key-file",
            "key",
            "--replace",
            "--nobody-has-it",
        ]
        subprocess.run(command, cwd=tmp_path, env=os.environ | {"TZ": zone}, check=True, capture_output=True)
        moments = "SELECT bid, epoch_us(seen), count FROM st ORDER BY rowid"
        found.append((rows(tmp_path / "ill.duckdb", "FROM qit"), rows(tmp_path / "ill.duckdb", moments)))
    assert found[0] == found[1]


@pytest.mark.soak(part="long")
def test_an_exception_for_a_moment_is_verified_in_any_time_zone(tmp_path: Path) -> None:
    warehouse(
        tmp_path / "w.duckdb",
        "CREATE TABLE w AS SELECT i % 7 AS age, TIMESTAMPTZ '2020-03-29 00:30:00+00' + INTERVAL (i % 5) HOUR AS seen "
        "FROM range(200) t(i)",
    )
    specification(
        tmp_path,
        source='database = "w.duckdb"\ntable = "w"',
        columns='quasi_identifiers = ["age"]\nsensitive = "seen"',
        mechanism='threshold = { default = "0.5", "2020-03-29 00:30:00+00" = 0.3 }',
    )
    for zone, arguments in (("UTC", ["publish", "spec.toml"]), ("Asia/Tokyo", ["verify", "ill.duckdb"])):
        done = subprocess.run(
            [sys.executable, "-m", "privsql", *arguments],
            cwd=tmp_path,
            env=os.environ | {"TZ": zone},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", ["duckdb", "parquet"])
def test_nothing_of_what_is_not_published_is_in_the_release(tmp_path: Path, form: str) -> None:
    source = warehouse(
        tmp_path / "w.duckdb",
        "CREATE TYPE illness AS ENUM ('flu', 'cold', 'unpublished-label')",
        "CREATE TABLE w AS SELECT (CASE WHEN i % 2 = 0 THEN 'flu' ELSE 'cold' END)::illness AS disease, "
        "(CASE WHEN i % 3 = 0 THEN 'flu' ELSE 'cold' END)::illness AS before, 'town' || i % 3 AS town, "
        "'unpublished-column' || i AS name FROM range(200) t(i)",
        "INSERT INTO w VALUES (NULL, 'flu', 'suppressed-town', 'x'), ('flu', NULL, 'suppressed-place', 'x')",
        "COMMENT ON TABLE w IS 'unpublished-comment'",
    )
    release = tmp_path / "r"
    succeeded(
        "publish",
        source,
        "--set",
        "source.table=w",
        "--qi",
        "before,town",
        "--sensitive",
        "disease",
        "--threshold",
        "0.6",
        "--set",
        "columns.nulls.disease=suppress",
        "--set",
        "columns.nulls.before=suppress",
        "--format",
        form,
        "--to",
        release,
    )
    assert succeeded("verify", release, "--json").json["ok"]
    files = list(release.iterdir()) if form == "parquet" else [release]
    content = b"".join(path.read_bytes() for path in files)
    for text in (
        "unpublished-label",
        "unpublished-column",
        "suppressed-town",
        "suppressed-place",
        "unpublished-comment",
    ):
        assert text.encode() not in content
    assert str(tmp_path).encode() not in content


@pytest.mark.slow
def test_an_enumeration_is_ordered_by_its_text(tmp_path: Path) -> None:
    source = warehouse(
        tmp_path / "w.duckdb",
        "CREATE TABLE w AS SELECT i % 7 AS age, "
        "(CASE WHEN i % 2 = 0 THEN 'zoster' ELSE 'angina' END)::ENUM ('zoster', 'angina') AS disease "
        "FROM range(200) t(i)",
    )
    release = released(tmp_path, source, "--set", "source.table=w", *ROLES)
    assert manifest(release)["sensitive"] == [{"name": "disease", "type": "VARCHAR"}]
    assert rows(release, "SELECT disease FROM st ORDER BY rowid LIMIT 2") == [("angina",), ("zoster",)]


@pytest.mark.slow
def test_several_sensitive_columns_are_one_attribute(tmp_path: Path) -> None:
    write(
        tmp_path / "people.parquet",
        "SELECT i % 7 AS age, 'd' || i % 3 AS disease, CASE WHEN i % 4 = 0 THEN NULL ELSE i % 2 = 0 END AS treated "
        "FROM range(600) t(i)",
    )
    columns = 'quasi_identifiers = ["age"]\nsensitive = ["disease", "treated"]\nnulls = { treated = "value" }'
    release = released_and_compared(
        tmp_path, columns=columns, mechanism='threshold = { default = "0.5", "[d1, NULL]" = 0.2 }\nallow_certain = true'
    )
    combinations = rows(release, "SELECT disease, treated, sum(count) FROM st GROUP BY ALL ORDER BY ALL")
    with duckdb.connect() as db:
        source = f"read_parquet('{tmp_path / 'people.parquet'}')"
        assert (
            combinations
            == db.execute(f"SELECT disease, treated, count(*) FROM {source} GROUP BY ALL ORDER BY ALL").fetchall()
        )
    shares = "SELECT max(count / size) FROM st JOIN (SELECT bid, sum(count) AS size FROM st GROUP BY bid) USING (bid)"
    assert rows(release, f"{shares} WHERE disease = 'd1' AND treated IS NULL")[0][0] <= 0.2
    assert counted(release, "disease = 'd1' AND treated IS NULL") == 50
    refused(
        run("publish", specification(tmp_path, columns=columns.replace(', "treated"]', ', "DISEASE"]'))), 2, "two roles"
    )


@pytest.mark.slow
def test_values_of_a_compound_attribute_that_read_alike_are_told_apart(tmp_path: Path) -> None:
    write(
        tmp_path / "people.parquet",
        "SELECT i % 7 AS age, ['a, b', 'a', 'x'][i % 3 + 1] AS first, ['c', 'b, c', 'y'][i % 3 + 1] AS second "
        "FROM range(300) t(i)",
    )
    release = released_and_compared(
        tmp_path,
        columns='quasi_identifiers = ["age"]\nsensitive = ["first", "second"]',
        mechanism='threshold = "0.5"',
    )
    assert rows(release, "SELECT first, sum(count) FROM st GROUP BY first ORDER BY first") == [
        ("a", 100),
        ("a, b", 100),
        ("x", 100),
    ]


# Small and large ---


@pytest.mark.slow
@each(
    ("sql", "flags", "code"),
    [
        ("SELECT 1 AS age, 'flu' AS disease", ["--threshold", "1"], 3),
        ("SELECT 1 AS age, 'flu' AS disease", ["--threshold", "1", "--set", "mechanism.min_bucket_size=1"], 0),
        ("SELECT i AS age, 'd' || i AS disease FROM range(2) t(i)", ["--threshold", "0.5"], 0),
        ("SELECT i AS age, 'd' || i AS disease FROM range(3) t(i)", ["--threshold", "0.3"], 3),
        ("SELECT i AS age, 'd' || i AS disease FROM range(3) t(i)", ["--threshold", "1/3"], 0),
        ("SELECT i AS age, 'flu' AS disease FROM range(0) t(i)", ["--threshold", "0.5"], 3),
        ("SELECT i AS age, 'flu' AS disease FROM range(50) t(i)", ["--threshold", "0.99"], 3),
        ("SELECT i AS age, 'flu' AS disease FROM range(50) t(i)", ["--threshold", "1"], 0),
        ("SELECT i AS age, 'flu' AS disease FROM range(51) t(i)", ["--threshold", "2*f"], 3),
        (
            "SELECT i AS age, 'flu' AS disease FROM range(51) t(i)",
            ["--threshold", "2*f", "--set", "mechanism.allow_certain=true"],
            0,
        ),
        ("SELECT i AS age, 'd' || i AS disease FROM range(101) t(i)", ["--threshold", "1/101"], 2),
        (
            "SELECT i AS age, 'd' || i AS disease FROM range(101) t(i)",
            ["--threshold", "1/101", "--set", "mechanism.max_bucket_size=101"],
            2,
        ),
        (
            "SELECT i AS age, 'd' || i AS disease FROM range(2000) t(i)",
            ["--threshold", "0.1", "--algorithm", "two-size"],
            2,
        ),
    ],
    few=4,
)
def test_tables_at_the_edge(tmp_path: Path, sql: str, flags: list[str], code: int) -> None:
    source = write(tmp_path / "ward.parquet", sql)
    done = run("publish", source, "--qi", "age", "--sensitive", "disease", *flags, "--to", tmp_path / "r.duckdb")
    if code:
        refused(done, code)
        assert sorted(path.name for path in tmp_path.iterdir()) == [source.name]
        return
    assert done.code == 0, done.err
    assert succeeded("verify", tmp_path / "r.duckdb", "--json").json["ok"]
    with duckdb.connect() as db:
        found = db.execute(f"SELECT count(*) FROM ({sql})").fetchone()
    assert found == (manifest(tmp_path / "r.duckdb")["published"],)


@pytest.mark.parametrize("rows_of_it", [0, 1])
def test_a_csv_file_with_hardly_a_row(tmp_path: Path, rows_of_it: int) -> None:
    source = write(tmp_path / "ward.csv", f"{STAY} LIMIT {rows_of_it}")
    refused(run("publish", source, *ROLES, "--to", tmp_path / "r.duckdb"), 3)


@pytest.mark.slow
def test_a_table_without_rows_is_infeasible_in_every_command(tmp_path: Path) -> None:
    source = warehouse(tmp_path / "w.duckdb", f"CREATE TABLE w AS {STAY} LIMIT 0")
    refused(run("publish", source, "--set", "source.table=w", *ROLES, "--to", tmp_path / "r.duckdb"), 3, "no records")
    refused(run("plan", source, "--set", "source.table=w", *ROLES), 3, "no records")
    refused(run("init", source), 2)


# Algorithms ---

ALGORITHMS = ("anatomy", "one-size", "two-size", "multi-size", "optimal", "informative")
CASES = [(name, layout) for name in ALGORITHMS for layout in ("blocks", "round-robin")] + [
    ("anatomy", "largest-first"),
    ("informative", "lumps"),
]
THRESHOLD = "0.4"


def worst_excess(release: Path, source: Path) -> Fraction:
    """The largest count(g, x)/|g| - f'_x over buckets and values, by this test's own arithmetic."""
    records: dict[Any, int] = dict(rows(source, "SELECT disease, count(*) FROM w GROUP BY disease"))
    sizes: dict[int, int] = dict(rows(release, "SELECT bid, count(*) FROM qit GROUP BY bid"))
    limit = Fraction(THRESHOLD)
    assert sum(records.values()) == sum(sizes.values())
    composition = rows(release, "SELECT bid, disease, count FROM st")
    assert sum(count for _, _, count in composition) == sum(sizes.values())
    return max(Fraction(count, sizes[bid]) - limit for bid, _, count in composition)


@pytest.fixture(scope="module")
def three_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of 3,000 rows."""
    folder = tmp_path_factory.mktemp("three")
    warehouse(folder / "w.duckdb", f"CREATE TABLE w AS {PEOPLE.format(n=3000)}")
    return folder


@pytest.mark.slow
@each(("algorithm", "layout"), CASES, few=2)
def test_every_algorithm_and_layout(three_thousand: Path, algorithm: str, layout: str) -> None:
    spec = specification(
        three_thousand,
        source='database = "w.duckdb"\ntable = "w"',
        mechanism=f'algorithm = "{algorithm}"\nlayout = "{layout}"\nthreshold = "{THRESHOLD}"\nmax_bucket_size = 12',
    )
    release = three_thousand / "ill.duckdb"
    succeeded("publish", spec, "--replace", "--nobody-has-it", "--allow-useless")
    against_source = (
        ["--source", spec] if layout in ("blocks", "lumps") and algorithm in ("optimal", "informative") else []
    )
    assert succeeded("verify", release, *against_source, "--json").json["ok"]
    stated = manifest(release)
    assert (stated["algorithm"], stated["facts"]["layout"]) == (algorithm, layout)
    assert worst_excess(release, three_thousand / "w.duckdb") <= 0
    found = rows(release, "SELECT size, count(*) FROM (SELECT count(*) AS size FROM qit GROUP BY bid) GROUP BY size")
    assert {str(size): buckets for size, buckets in found} == stated["facts"]["setting"]
    assert len(found) <= {"anatomy": 2, "one-size": 1, "two-size": 2, "informative": 2}.get(algorithm, 12)


@pytest.mark.slow
@each("algorithm", ALGORITHMS)
@each(("smallest", "largest"), [(5, 5), (4, 9), (20, 30)])
def test_bucket_sizes_lie_within_what_is_asked(
    three_thousand: Path, algorithm: str, smallest: int, largest: int
) -> None:
    done = run(
        "plan",
        three_thousand / "w.duckdb",
        "--set",
        "source.table=w",
        *FLAGS[:4],
        "--threshold",
        THRESHOLD,
        "--algorithm",
        algorithm,
        "--set",
        f"mechanism.min_bucket_size={smallest}",
        "--set",
        f"mechanism.max_bucket_size={largest}",
        "--json",
    )
    if algorithm == "anatomy" and done.code == 3:
        refused(done, 3, "what works")
        return
    sizes = [int(size) for size in done.json["setting"]]
    assert smallest <= min(sizes)
    assert max(sizes) <= largest


@pytest.mark.slow
def test_a_larger_range_of_sizes_or_a_wider_search_never_costs_more(three_thousand: Path) -> None:
    base = [three_thousand / "w.duckdb", "--set", "source.table=w", *FLAGS]
    loss = {name: succeeded("plan", *base, "--algorithm", name, "--json").json for name in ALGORITHMS[1:]}
    assert loss["optimal"]["loss"] <= min(loss[name]["loss"] for name in ALGORITHMS[1:])
    assert loss["two-size"]["loss"] <= loss["one-size"]["loss"]
    assert loss["multi-size"]["loss"] <= loss["two-size"]["loss"]
    assert all(shown["lower_bound"] <= loss["optimal"]["loss"] for shown in loss.values())
