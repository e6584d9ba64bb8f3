"""Every command end to end: what it prints, its exit code, and its one line where something is wrong."""

from __future__ import annotations

import base64
import csv
import io
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import privsql
from privsql.cli.app import PERSONS, app
from privsql.figures import format_estimate
from support.commands import (
    FLAGS,
    MANIFEST,
    PEOPLE,
    ROLES,
    RULE,
    held_open,
    left_over,
    manifest,
    refused,
    rows,
    run,
    specification,
    succeeded,
    tables,
    warehouse,
    write,
)
from support.loops import each, rest_slow
from support.places import REAL

COMMANDS = ["ledger", *(str(info.name or info.callback.__name__) for info in app.registered_commands if info.callback)]
PUBLISH_KEYS = (
    "release",
    "mechanism",
    "algorithm",
    "records",
    "published",
    "suppressed",
    "loss",
    "mse",
    "lower_bound",
    "gap",
    "setting",
    "checks",
    "seconds",
    "warnings",
)
MORE_PUBLISH_KEYS = {
    "summary",
    "search_seconds",
    "layout",
    "channel",
    "highest_belief",
    "mean_belief",
    "certain",
    "ledger",
    "weighting",
    "learning_belief",
    "count_error",
}


@pytest.fixture
def place(ward: Path, tmp_path: Path) -> Path:
    """A folder with a source and a specification of it."""
    shutil.copy(ward / "people.parquet", tmp_path)
    specification(tmp_path)
    return tmp_path


# What every command does ---


def test_publish_from_a_specification(place: Path) -> None:
    done = succeeded("publish", place / "spec.toml")
    assert "400 published" in done.out
    assert str(place / "ill.duckdb") in done.out.replace("\n", "")
    assert rows(place / "ill.duckdb", "SELECT count(*) FROM qit") == [(400,)]
    assert rows(place / "ill.duckdb", "SELECT sum(count) FROM st WHERE disease = 'HIV'") == [(40,)]
    assert "key-file" in succeeded("verify", place / "ill.duckdb", "--verbose").out  # where its randomness comes from
    assert left_over(place) == []


@pytest.mark.slow
def test_a_release_is_named_after_its_source_unless_told(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    assert succeeded("publish", "people.parquet", *FLAGS, "--json").json["release"] == "people_release.duckdb"
    assert manifest(place / "people_release.duckdb")["name"] == "people"


def test_the_view_of_a_release_gives_the_baseline_in_any_tool(ward: Path) -> None:
    query = "SELECT {} FROM {} WHERE sex = 'F' AND disease = 'flu'"
    (weight,) = rows(ward / "ill.duckdb", query.format("sum(weight)", "ill_pairs"))[0]
    sql = query.format("COUNT(*)", "ill")
    answer = succeeded("query", ward / "ill.duckdb", sql, "--estimator", "baseline", "--json").json
    assert answer["rows"][0]["estimate"] == pytest.approx(weight)


@pytest.mark.slow
def test_publish_json(place: Path) -> None:
    shown = succeeded("publish", place / "spec.toml", "--json").json
    assert [key for key in shown if key not in MORE_PUBLISH_KEYS] == list(PUBLISH_KEYS)
    assert shown["release"] == str(place / "ill.duckdb")
    assert (shown["mechanism"], shown["algorithm"]) == ("bucketize", "two-size")
    assert (shown["records"], shown["published"], shown["suppressed"]) == (400, 400, 0)
    assert sum(int(size) * buckets for size, buckets in shown["setting"].items()) == 400
    assert shown["loss"] == sum((int(size) - 1) ** 2 * buckets for size, buckets in shown["setting"].items())
    assert shown["mse"] == pytest.approx(shown["loss"] / 399)
    assert shown["lower_bound"] <= shown["loss"]
    assert all(set(check) == {"name", "ok", "violations"} and check["ok"] for check in shown["checks"])
    assert shown["seconds"] > 0
    assert list(shown["summary"]) == ["promise", "persons", "attacker", "error", "unique", "others"]
    assert shown["summary"]["promise"]["standing"] == "promised"


@pytest.mark.slow
def test_plan_writes_nothing(place: Path) -> None:
    before = sorted(place.iterdir())
    shown = succeeded("plan", place / "spec.toml", "--json").json
    assert [key for key in shown if key not in MORE_PUBLISH_KEYS] == list(PUBLISH_KEYS)
    assert shown["release"] is None
    assert sorted(place.iterdir()) == before
    published = succeeded("publish", place / "spec.toml", "--json").json
    for key in ("records", "published", "suppressed", "loss", "mse", "lower_bound", "gap", "setting"):
        assert shown[key] == published[key], key
    assert "400 published" in succeeded("plan", place / "people.parquet", *FLAGS).out


@pytest.mark.parametrize("with_source", rest_slow([False, True]))
def test_verify(ward: Path, with_source: bool) -> None:
    source = ["--source", ward / "spec.toml"] if with_source else []
    shown = succeeded("verify", ward / "ill.duckdb", *source, "--json").json
    proved = ["proved"] if with_source else []
    assert list(shown)[: 2 + len(proved)] == ["ok", *proved, "checks"]
    assert set(shown) <= {
        "ok",
        *proved,
        "checks",
        "notes",
        "highest_belief",
        "mean_belief",
        "certain",
        "channel",
        "bounds",
        "summary",
        "words",
        "manifest",
    }
    assert shown["ok"] is True
    assert shown["words"] == {"name": "ill", "columns": "age, sex, zip, disease"}
    assert all(set(check) - {"compared"} == {"name", "ok", "violations"} for check in shown["checks"])
    about_source = [check["name"] for check in shown["checks"] if "source" in check["name"]]
    assert bool(about_source) == with_source
    said = " ".join(succeeded("verify", ward / "ill.duckdb", *source).out.split())
    assert ": verified" in said
    assert "the publisher's own words: name 'ill'; columns 'age, sex, zip, disease'" in said


def test_query_json(ward: Path) -> None:
    sql = "SELECT sex, COUNT(*) FROM ill WHERE age < 40 AND disease = 'flu' GROUP BY sex ORDER BY sex"
    shown = succeeded("query", ward / "ill.duckdb", sql, "--json").json
    assert list(shown) == ["rows", "confidence", "estimator", "rests_on", "missing", "figures", "notes"]
    assert [row["sex"] for row in shown["rows"]] == ["F", "M"]
    for row in shown["rows"]:
        assert list(row)[:5] == ["sex", "estimate", "std_error", "low", "high"]
        assert row["low"] <= row["estimate"] <= row["high"]
    explained = succeeded("query", ward / "ill.duckdb", sql, "--json", "--explain").json
    assert list(explained) == [*shown, "sql", "formula"]
    assert explained["rows"] == shown["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("size", rest_slow([2, 3, 5]))
def test_releases_of_one_bucket_size_are_answered(tmp_path: Path, size: int) -> None:
    source = write(tmp_path / "ward.parquet", "SELECT i % 4 AS age, 'd' || i // 4 % 5 AS disease FROM range(300) t(i)")
    sizes = [
        "--set",
        f"mechanism.min_bucket_size={size}",
        "--set",
        f"mechanism.max_bucket_size={size}",
        "--to",
        tmp_path / "r",
    ]
    succeeded("publish", source, "--qi", "age", "--sensitive", "disease", "--threshold", "0.5", *sizes)
    for columns, groups in (("age, disease", 20), ("disease", 5), ("age", 4)):
        sql = f"SELECT {columns}, COUNT(*) FROM ward WHERE disease <> 'x' GROUP BY {columns}"
        for estimator in ("baseline", "reconstructed"):
            done = run("query", tmp_path / "r", sql, "--estimator", estimator, "--json")
            if estimator == "reconstructed" and done.code == 2 and "reconstructed" in done.err:
                continue
            assert done.code == 0, (estimator, done.err)
            found = done.json["rows"]
            assert len(found) == groups
            assert sum(row["estimate"] for row in found) == pytest.approx(300)


@pytest.mark.slow
def test_each_figure_says_what_it_rests_on(ward: Path) -> None:
    """By its name where they differ, on the terminal and in JSON; the terminal joins the ends of several intervals."""
    share = "100.0 * COUNT(*) FILTER (WHERE disease = 'flu') / COUNT(*) AS flu"
    sql = f"SELECT sex, COUNT(*) AS n, {share} FROM ill WHERE age < 40 GROUP BY sex ORDER BY flu"
    columns = ["sex", "n", "n_std_error", "n_low", "n_high", "flu", "flu_std_error", "flu_low", "flu_high"]
    plain = succeeded("query", ward / "ill.duckdb", sql).out
    assert " ".join(plain.splitlines()[1].split()) == "sex n low to high flu low to high"
    assert "n: exact: the release holds the true answer\nflu: low and high: 95% interval" in plain
    shown = succeeded("query", ward / "ill.duckdb", sql, "--json").json
    assert list(shown["rows"][0]) == columns
    told = {one["name"]: one for one in shown["figures"]}
    assert [told["n"][key] for key in ("rests_on", "confidence", "not_in_release")] == ["exact", 1.0, 0]
    assert [told["flu"][key] for key in ("rests_on", "confidence", "not_in_release")] == ["interval", 0.95, 0]
    assert shown["rests_on"] == "interval"
    assert succeeded("query", ward / "ill.duckdb", sql, "--csv").out.splitlines()[0].split(",") == columns


def test_query_csv(ward: Path) -> None:
    sql = "SELECT disease, COUNT(*) AS people FROM ill WHERE sex = 'F' GROUP BY disease ORDER BY disease"
    read = list(csv.reader(io.StringIO(succeeded("query", ward / "ill.duckdb", sql, "--csv").out)))
    assert read[0] == ["disease", "people", "people_std_error", "people_low", "people_high"]
    assert [row[0] for row in read[1:]] == ["HIV", "angina", "asthma", "cold", "flu", "ulcer"]
    refused(run("query", ward / "ill.duckdb", sql, "--csv", "--json"), 2, "--json", "--csv")


@pytest.mark.slow
def test_query_for_people(ward: Path) -> None:
    plain = succeeded("query", ward / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE disease = 'flu'").out
    assert " 120 " in plain
    explained = succeeded("query", ward / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE age = 20", "--explain").out
    assert "SELECT" in explained
    assert '"qit"' in explained
    several = (
        "SELECT COUNT(*) AS people, AVG(age) AS age, SUM(age) AS years FROM ill WHERE disease = 'flu' AND sex = 'F'"
    )
    shown = succeeded("query", ward / "ill.duckdb", several)
    (row,) = succeeded("query", ward / "ill.duckdb", several, "--json").json["rows"]
    assert shown.out.count("low to high") == 3
    for figure in ("people", "age", "years"):
        figures = (row[f"{figure}{end}"] for end in ("", "_std_error", "_low", "_high"))
        estimate, _, low, high = format_estimate(*figures)
        assert re.search(rf" {estimate} +{low} to {high} ", shown.out), figure


def test_counts_without_a_mixed_condition_are_exact(ward: Path) -> None:
    with duckdb.connect() as db:
        source = f"read_parquet('{ward / 'people.parquet'}')"
        women = db.execute(f"SELECT count(*) FROM {source} WHERE sex = 'F' AND age < 30").fetchone()
        flu = db.execute(f"SELECT count(*) FROM {source} WHERE disease IN ('flu', 'cold')").fetchone()
    for condition, true in (("sex = 'F' AND age < 30", women), ("disease IN ('flu', 'cold')", flu)):
        shown = succeeded("query", ward / "ill.duckdb", f"SELECT COUNT(*) FROM ill WHERE {condition}", "--json").json
        assert true is not None
        assert shown["rows"][0]["estimate"] == true[0]
        assert (shown["rows"][0]["low"], shown["rows"][0]["high"]) == (true[0], true[0])


@pytest.mark.slow
def test_the_manifest(ward: Path) -> None:
    shown = succeeded("verify", ward / "ill.duckdb", "--json").json["manifest"]
    assert shown == manifest(ward / "ill.duckdb")
    for word in ("ill", "two-size", "age (INTEGER)", "disease (VARCHAR)", "400", "seed", f"threshold = {RULE},"):
        assert word in succeeded("verify", ward / "ill.duckdb", "--verbose").out


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_slow(["parquet", "csv", "duckdb"]))
def test_init_proposes_what_publish_takes(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = Path(f"ward.{kind}")
    if kind == "duckdb":
        warehouse(source, f"CREATE TABLE ward AS {PEOPLE.format(n=400)}")
    else:
        write(source, PEOPLE.format(n=400))
    given = "--sensitive", "disease", "--promise", "bucketize", "--accept"
    proposed = succeeded("init", source, *given).out
    assert succeeded("init", source, *given, "--json").json == {"spec": proposed}
    Path("spec.toml").write_text(proposed, encoding="utf-8")
    shown = succeeded("publish", "spec.toml", "--json").json
    assert succeeded("verify", shown["release"], "--source", "spec.toml", "--json").json["ok"]
    stated = manifest(Path(shown["release"]))
    assert [field["name"] for field in stated["sensitive"]] == ["disease"]
    assert [field["name"] for field in stated["quasi_identifiers"]] == ["age", "sex", "zip"]


@pytest.mark.slow
def test_init_takes_the_sensitive_column_that_is_named(place: Path) -> None:
    assert 'sensitive = "sex"' in succeeded("init", place / "people.parquet", "--sensitive", "SEX").out
    refused(run("init", place / "people.parquet", "--sensitive", "income"), 2, "income", "age, sex, zip, disease")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "why"),
    rest_slow(
        [
            ("i % 7 AS weight, i % 5 AS age", "a column called weight"),
            ("[i % 2] AS tags, i % 5 AS age", "a list"),
            ("{'a': i % 3} AS address_parts, i % 5 AS age", "a struct"),
        ]
    ),
)
def test_init_proposes_nothing_that_publish_refuses(tmp_path: Path, columns: str, why: str) -> None:
    write(tmp_path / "ward.parquet", f"SELECT {columns}, 'd' || i % 4 AS disease FROM range(200) t(i)")
    proposed = succeeded("init", tmp_path / "ward.parquet", "--sensitive", "disease", "--accept").out
    (tmp_path / "spec.toml").write_text(proposed, encoding="utf-8")
    succeeded("publish", tmp_path / "spec.toml", "--to", tmp_path / "ill.duckdb")


def test_init_says_which_tables_there_are(tmp_path: Path) -> None:
    many = warehouse(tmp_path / "many.duckdb", "CREATE TABLE a AS SELECT 1 AS x", "CREATE TABLE b AS SELECT 1 AS x")
    refused(run("init", many), 2, "a, b", "source.table")
    refused(run("init", warehouse(tmp_path / "none.duckdb", "SELECT 1")), 2, "no table")


@pytest.mark.slow
def test_init_finds_a_table_in_a_schema_of_its_own(tmp_path: Path) -> None:
    source = warehouse(
        tmp_path / "clinic.duckdb", "CREATE SCHEMA ward", f"CREATE TABLE ward.stay AS {PEOPLE.format(n=400)}"
    )
    proposed = succeeded("init", source, "--sensitive", "disease", "--accept").out
    (tmp_path / "spec.toml").write_text(proposed, encoding="utf-8")
    succeeded("publish", tmp_path / "spec.toml", "--to", tmp_path / "ill.duckdb")


def test_schema_is_a_json_schema_of_the_specification() -> None:
    shown = succeeded("init", "--schema").json
    assert succeeded("init", "--schema", "--json").json == shown
    refused(run("init", "--schema", "people.parquet"), 2, "option schema without one")
    refused(run("init"), 2, "a source")
    assert set(shown["properties"]) == {"source", "columns", "release", "mechanism", "ledger"}
    assert shown["additionalProperties"] is False


def test_version() -> None:
    assert succeeded("--version").out.strip() == privsql.__version__


@each("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    shown = succeeded(command, "--help").out
    assert "Example" in shown
    assert f"privsql {command}" in shown
    assert command in succeeded("--help").out


def test_the_list_of_commands_cuts_no_sentence() -> None:
    for words, heading in (([], "Publisher:"), (["ledger"], "Commands:")):
        listed = succeeded(*words, "--help").out.split(heading)[1]
        assert ".." not in listed, listed


def test_the_commands_are_there() -> None:
    """Each stands once in the list, under the person whom it is for."""
    assert sorted(name for names in PERSONS.values() for name in names) == sorted(COMMANDS)
    listed = re.findall("^  ([a-z]+)  ", succeeded("--help").out, flags=re.MULTILINE)
    assert listed == [name for names in PERSONS.values() for name in names]


@pytest.mark.slow
def test_exit_codes_of_the_process(ward: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.duckdb"
    torn.write_bytes((ward / "ill.duckdb").read_bytes())
    with duckdb.connect(str(torn)) as db:
        db.execute("DELETE FROM qit WHERE bid = 0")
    narrow = ["plan", ward / "people.parquet", *ROLES, "--threshold", "0.1"]
    for code, arguments in (
        (1, ["verify", torn]),
        (3, narrow),
        (4, ["verify", tmp_path / "nowhere.duckdb"]),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "privsql", *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, (arguments, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.soak(part="long")
@each(
    "arguments",
    [
        ["publish", "spec.toml", "--to", "one.duckdb"],
        ["publish", "spec.toml", "--to", "folder", "--format", "parquet"],
        ["plan", "spec.toml"],
        ["verify", "ill.duckdb"],
        ["query", "ill.duckdb", "SELECT age, COUNT(*) FROM ill GROUP BY age"],
        ["init", "people.parquet"],
        ["publish", "nowhere.toml"],
        ["plan", "people.parquet", *ROLES, "--threshold", "0.1"],
        ["verify", "people.parquet"],
        ["query", "ill.duckdb", "SELECT nothing"],
        ["verify", "nowhere.duckdb"],
        ["init", "nowhere.parquet"],
    ],
    few=7,
)
def test_with_json_stdout_holds_one_object_and_nothing_else(
    ward: Path, tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("people.parquet", "spec.toml", "ill.duckdb"):
        (tmp_path / name).write_bytes((ward / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, "--json")
    assert len(done.out.splitlines()) == 1
    shown = done.json
    if done.code:
        assert shown["exit_code"] == done.code
        assert done.err == f"privsql: {shown['error']}\n"
    else:
        assert done.err == ""


@pytest.mark.slow
def test_json_has_no_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    source = write(
        tmp_path / "ward.parquet",
        "SELECT CASE i % 4 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 'inf'::DOUBLE ELSE i % 4 END AS dose, "
        "'d' || i % 3 AS disease FROM range(120) t(i)",
    )
    succeeded("publish", source, "--qi", "dose", "--sensitive", "disease", "--threshold", "0.5", "--to", tmp_path / "r")
    answer = run("query", tmp_path / "r", "SELECT dose, COUNT(*) FROM ward GROUP BY dose", "--json").json
    assert len(answer["rows"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("text", rest_slow(["[/b]", "[red]", "[link=x]"]))
def test_brackets_in_data_and_paths_are_shown_as_they_are(tmp_path: Path, text: str) -> None:
    folder = tmp_path / text
    folder.mkdir(parents=True)
    source = write(
        tmp_path / "ward.parquet",
        f"SELECT CASE WHEN i % 2 = 0 THEN '{text}' ELSE 'other' END AS nick, 'd' || i // 2 % 3 AS disease "
        "FROM range(120) t(i)",
    )
    roles = ["--qi", "nick", "--sensitive", "disease", "--threshold", "0.5"]
    assert text in succeeded("publish", source, *roles, "--to", folder / "r.duckdb").out.replace("\n", "")
    assert text in succeeded("query", folder / "r.duckdb", "SELECT nick, COUNT(*) FROM ward GROUP BY nick").out
    assert text in succeeded("verify", folder / "r.duckdb").out.replace("\n", "")


# What is wrong in a request ---

TWO = 'algorithm = "two-size"\n'


@each(
    ("part", "text", "code", "words"),
    [
        (
            "columns",
            'quasi_identifiers = ["age", "job"]\nsensitive = "disease"',
            2,
            ["'job'", "age, sex, zip, disease"],
        ),
        ("columns", 'quasi_identifiers = ["age"]\nsensitive = "ilness"', 2, ["'ilness'"]),
        ("columns", 'quasi_identifiers = ["age", "Disease"]\nsensitive = "disease"', 2, ["'disease'", "two roles"]),
        ("columns", 'quasi_identifiers = ["age", "AGE"]\nsensitive = "disease"', 2, ["'AGE'", "two roles"]),
        ("columns", 'quasi_identifiers = []\nsensitive = "disease"', 2, ["quasi_identifiers"]),
        ("columns", 'quasi_identifiers = ["age"]\nsensitive = []', 2, ["sensitive"]),
        ("columns", 'quasi_identifiers = ["age"]', 2, ["columns.sensitive", "missing"]),
        (
            "columns",
            'quasi_identifiers = ["age"]\nsensitive = "disease"\nnulls = { age = "drop" }',
            2,
            ["nulls.age", "'drop'", "suppress"],
        ),
        ("columns", 'quasi_identifiers = ["age"]\nsensitive = "disease"\nnulls = { zip = "value" }', 2, ["'zip'"]),
        ("source", 'file = "people.txt"', 2, ["people.txt", ".parquet"]),
        ("source", 'file = "nowhere.parquet"', 4, ["nowhere.parquet"]),
        ("source", 'file = "people.parquet"\ntable = "people"', 2, ["source"]),
        ("source", 'file = "people.parquet"\ndatabase = "people.duckdb"', 2, ["source"]),
        ("source", 'database = "people.duckdb"', 2, ["table", "query"]),
        ("source", 'file = "people.parquet"\nquery = "DROP TABLE source"', 2, ["SELECT"]),
        ("source", 'file = "people.parquet"\nquery = "SELECT 1; SELECT 2"', 2, ["one SELECT"]),
        ("source", 'file = "people.parquet"\nquery = "SELECT * FROM nothing"', 2, ["nothing"]),
        ("source", 'file = "people.parquet"\nquery = "SELEC"', 2, ["query"]),
        ("source", "file = 17", 2, ["source.file"]),
        ("release", 'name = "ill"\nform = "parquet"', 2, ["release.form", "no such key"]),
        ("release", 'format = "csv"', 2, ["release.format", "'csv'", "parquet"]),
        ("release", 'name = "qit"', 2, ["'qit'"]),
        ("release", 'name = "privsql_manifest"', 2, ["'privsql_manifest'"]),
        ("mechanism", 'threshold = "0.5"\nalgorithm = "best"', 2, ["algorithm", "'best'", "two-size"]),
        ("mechanism", 'threshold = "0.5"\nkind = "noise"', 2, ["kind", "'noise'"]),
        ("mechanism", "algorithm = 'two-size'", 2, ["threshold", "missing"]),
        ("mechanism", 'threshold = "0.5"\nmin_bucket_size = 9\nmax_bucket_size = 8', 2, ["9", "8"]),
        ("mechanism", 'threshold = "0.5"\nmin_bucket_size = 0', 2, ["min_bucket_size"]),
        ("mechanism", 'threshold = "0.5"\nmin_bucket_size = -1', 2, ["min_bucket_size"]),
        ("mechanism", 'threshold = "0.5"\nmax_bucket_size = 1000000', 2, ["max_bucket_size"]),
        ("mechanism", 'threshold = "0.5"\nmax_bucket_size = "many"', 2, ["max_bucket_size"]),
        ("mechanism", 'threshold = "0.5"\nmax_bucket_size = 9.5', 2, ["max_bucket_size"]),
        ("mechanism", 'threshold = "0.5"\nsize = 3', 2, ["mechanism.size", "no such key"]),
        ("mechanism", 'threshold = "0.5"\nlayout = "largest-first"', 2, ["largest-first", "anatomy"]),
        ("mechanism", "threshold = -0.1", 2, ["threshold", "-0.1"]),
        ("mechanism", "threshold = 0", 2, ["threshold", "0"]),
        ("mechanism", "threshold = 0.0", 2, ["threshold", "0"]),
        ("mechanism", "threshold = 1.5", 2, ["threshold", "1.5"]),
        ("mechanism", "threshold = 25", 2, ["threshold", "25"]),
        ("mechanism", "threshold = nan", 2, ["threshold"]),
        ("mechanism", "threshold = inf", 2, ["threshold"]),
        ("mechanism", "threshold = true", 2, ["threshold"]),
        ("mechanism", 'threshold = "f*f + 0.1"', 2, ["threshold", "f*f", "linear"]),
        ("mechanism", 'threshold = "f**2"', 2, ["threshold", "f**2"]),
        ("mechanism", 'threshold = "8*g"', 2, ["threshold", "8*g"]),
        ("mechanism", 'threshold = "8*f +"', 2, ["threshold", "8*f +"]),
        ("mechanism", 'threshold = "exit(7)"', 2, ["threshold", "exit(7)"]),
        ("mechanism", f'threshold = "{"-" * 3000}1"', 2, ["threshold"]),
        ("mechanism", 'threshold = "f - 0.2"', 2, ["threshold", "HIV"]),
        ("mechanism", 'threshold = { default = "0.5", Ebola = 0.1 }', 2, ["Ebola"]),
        ("mechanism", 'threshold = { default = "0.5", HIV = 0 }', 2, ["HIV"]),
        ("mechanism", 'threshold = { default = "0.5", HIV = 1.01 }', 2, ["HIV", "1.01"]),
        ("mechanism", 'threshold = { default = "0.5", HIV = "2*f" }', 2, ["HIV"]),
        ("mechanism", "threshold = { HIV = 0.5 }", 2, ["default"]),
        ("mechanism", 'threshold = { default = "0.5", query = "SELECT 1" }', 2, ["query"]),
        ("mechanism", "threshold = 0.12345678901234567890123", 2, ["threshold", "18 digits"]),
        ("mechanism", 'threshold = "0.2"', 3, ["flu", "0.3", "0.2", "what works"]),
        ("mechanism", 'threshold = { default = "0.9", HIV = 0.05 }', 3, ["HIV", "0.1", "0.05"]),
        ("mechanism", TWO + 'threshold = "f + 0.001"\nmax_bucket_size = 9', 3, ["9", "what works"]),
        ("mechanism", 'threshold = "0.5"\nmin_bucket_size = 401\nmax_bucket_size = 500', 3, ["401", "400"]),
    ],
)
def test_a_wrong_specification_is_refused_in_one_line(
    place: Path, part: str, text: str, code: int, words: list[str]
) -> None:
    spec = specification(place, **{part: text})
    refused(run("publish", spec, "--to", place / "ill.duckdb"), code, *words)
    assert not (place / "ill.duckdb").exists()
    assert left_over(place) == []


@each(
    ("content", "code", "words"),
    [
        (b"[source\n", 2, ["TOML"]),
        (b"", 2, ["missing"]),
        (b"source = 3\n", 2, ["source"]),
        (b"\xff\xfe\x00", 4, ["UTF-8"]),
        (b"[sauce]\n", 2, []),
    ],
)
def test_a_file_that_is_no_specification(tmp_path: Path, content: bytes, code: int, words: list[str]) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_bytes(content)
    for command in ("publish", "plan"):
        refused(run(command, spec), code, "spec.toml", *words)


@pytest.mark.slow
def test_a_number_of_a_billion_digits_is_refused_at_once(place: Path) -> None:
    """Within seconds of the processor's time; reading it would take hours."""
    done = subprocess.run(
        [sys.executable, "-m", "privsql", "plan", "people.parquet", *ROLES, "--threshold", "1e-999999999"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_an_infeasible_request_shows_its_certificate(place: Path) -> None:
    shown = run("plan", place / "people.parquet", *ROLES, "--threshold", "0.2", "--json").json
    assert shown["exit_code"] == 3
    assert shown["hall_set"] == ["flu"]
    assert (shown["records"], shown["room"]) == (120, 80)
    works = str(0.2 + float(shown["nearest_shift"]))
    succeeded("plan", place / "people.parquet", *ROLES, "--threshold", works)


@each(
    ("flags", "words"),
    [
        ([*FLAGS, "--set", "columns.nulls.age=drop"], ["'drop'"]),
        ([*FLAGS, "--set", "columns.nulls.job=value"], ["'job'"]),
        ([*FLAGS, "--set", "mechanism.min_bucket_size=0"], ["mechanism.min_bucket_size"]),
        ([*FLAGS, "--set", "mechanism.max_bucket_size=0"], ["mechanism.max_bucket_size"]),
        ([*FLAGS, "--set", "mechanism.min_bucket_size=30", "--set", "mechanism.max_bucket_size=20"], ["30", "20"]),
        ([*FLAGS, "--set", "source.query=DELETE FROM source"], ["SELECT"]),
        ([*FLAGS, "--memory-limit", "much"], []),
    ],
)
def test_wrong_settings_are_refused_in_one_line(
    place: Path, flags: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    refused(run("publish", "people.parquet", *flags, "--to", "r.duckdb"), 2, *words)
    assert sorted(path.name for path in place.iterdir()) == ["people.parquet", "spec.toml"]


def test_plan_refuses_what_publish_refuses(tmp_path: Path) -> None:
    source = write(tmp_path / "qit.parquet", "SELECT i % 7 AS age, 'd' || i % 4 AS disease FROM range(200) t(i)")
    flags = ["--qi", "age", "--sensitive", "disease", "--threshold", "0.5"]  # the release is named after the file
    refused(run("publish", source, *flags, "--to", tmp_path / "r.duckdb"), 2, "'qit'")
    refused(run("plan", source, *flags), 2, "'qit'")


@pytest.mark.soak(part="long")
@each("name", ["bid", "count", "weight", "BID", "Weight"])
@each("role", ["--qi", "--sensitive"], few=1)
def test_columns_may_be_called_like_those_of_the_release(tmp_path: Path, name: str, role: str) -> None:
    source = write(tmp_path / "ward.parquet", f'SELECT i % 5 AS "{name}", i % 4 AS other FROM range(200) t(i)')
    roles = ["--qi", "other", "--sensitive", name] if role == "--sensitive" else ["--qi", name, "--sensitive", "other"]
    release = tmp_path / "r.duckdb"
    succeeded("publish", source, *roles, "--threshold", "0.5", "--to", release)
    found = succeeded("query", release, f'SELECT "{name}", COUNT(*) FROM ward GROUP BY 1', "--json").json
    assert len(found["rows"]) == 5


@each(
    "values",
    ["[i % 4]", "{'a': i % 4}", "MAP {'a': i % 4}", "INTERVAL (i % 4) DAY", "CAST(chr(97 + i % 4) AS BLOB)"],
)
@each("role", ["--qi", "--sensitive"])
def test_types_that_can_not_be_published(tmp_path: Path, values: str, role: str) -> None:
    cast = values.replace("i %", "CAST(i AS INTEGER) %")
    source = warehouse(
        tmp_path / "w.duckdb", f"CREATE TABLE ward AS SELECT {cast} AS odd, i % 5 AS other FROM range(200) t(i)"
    )
    roles = (
        ["--qi", "other", "--sensitive", "odd"] if role == "--sensitive" else ["--qi", "odd", "--sensitive", "other"]
    )
    done = run(
        "publish", source, "--set", "source.table=ward", *roles, "--threshold", "0.5", "--to", tmp_path / "r.duckdb"
    )
    refused(done, 2, "'odd'", "cast it in")


def test_a_list_of_an_enumeration_is_a_list(tmp_path: Path) -> None:
    source = warehouse(
        tmp_path / "w.duckdb",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE ward AS SELECT ['sad'::mood] AS moods, i % 5 AS other FROM range(200) t(i)",
    )
    roles = ["--set", "source.table=ward", "--qi", "moods", "--sensitive", "other", "--threshold", "0.5"]
    refused(run("publish", source, *roles, "--to", tmp_path / "r.duckdb"), 2, "'moods'", "mood")


# Thresholds from a query ---


def clinic(folder: Path, thresholds: str) -> Path:
    """A warehouse with the table ``stay`` and, of a query, ``promise``."""
    return warehouse(
        folder / "clinic.duckdb",
        f"CREATE TABLE stay AS {PEOPLE.format(n=400)}",
        f"CREATE TABLE promise AS SELECT disease AS value, {thresholds} AS threshold FROM stay GROUP BY disease",
    )


def asked_by_query(folder: Path, query: str) -> Path:
    """A specification whose thresholds come from a query."""
    return specification(
        folder,
        source='database = "clinic.duckdb"\ntable = "stay"',
        mechanism=f'{TWO}threshold = {{ query = "{query}" }}',
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "thresholds",
    rest_slow(
        ["CASE disease WHEN 'HIV' THEN 0.15 ELSE 0.9 END", "CASE disease WHEN 'HIV' THEN '3/20' ELSE '0.9' END", "1"]
    ),
)
def test_thresholds_from_a_query(tmp_path: Path, thresholds: str) -> None:
    clinic(tmp_path, thresholds)
    spec = asked_by_query(tmp_path, "SELECT value, threshold FROM promise")
    succeeded("publish", spec)
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]
    if thresholds != "1":
        worst = (
            "SELECT max(count / size) FROM st JOIN (SELECT bid, sum(count) AS size FROM st GROUP BY bid) USING (bid)"
        )
        assert rows(tmp_path / "ill.duckdb", f"{worst} WHERE disease = 'HIV'")[0][0] <= 0.15


@pytest.mark.slow
@each(
    ("query", "words"),
    [
        ("SELECT value, threshold FROM promise WHERE value <> 'HIV'", ["HIV", "0"]),
        ("SELECT value, threshold FROM promise UNION ALL SELECT 'HIV', 0.2", ["HIV", "2"]),
        ("SELECT value, CAST(threshold AS DOUBLE) AS threshold FROM promise", ["threshold", "DOUBLE", "DECIMAL"]),
        ("SELECT value, CAST(threshold AS FLOAT) AS threshold FROM promise", ["threshold", "FLOAT", "DECIMAL"]),
        ("SELECT value, 0 AS threshold FROM promise", ["(0, 1]"]),
        ("SELECT value, 2 AS threshold FROM promise", ["(0, 1]"]),
        ("SELECT value, -threshold AS threshold FROM promise", ["(0, 1]"]),
        ("SELECT value, 'a lot' AS threshold FROM promise", ["a lot"]),
        ("SELECT value, NULL::VARCHAR AS threshold FROM promise", ["threshold"]),
        ("SELECT value FROM promise", ["1 columns"]),
        ("SELECT value, 1, threshold FROM promise", ["3 columns"]),
        ("SELECT value, threshold FROM promises", ["promises"]),
        ("SELEC value", ["query"]),
        ("DELETE FROM promise", ["SELECT"]),
        ("SELECT 1, 1; SELECT 2, 2", ["one SELECT"]),
    ],
    few=6,
)
def test_a_wrong_threshold_query_is_refused(tmp_path: Path, query: str, words: list[str]) -> None:
    clinic(tmp_path, "0.9")
    refused(run("publish", asked_by_query(tmp_path, query)), 2, *words)
    assert not (tmp_path / "ill.duckdb").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["people", "domain", "records"]))
def test_a_threshold_query_reads_the_publishers_tables_whatever_their_names(tmp_path: Path, name: str) -> None:
    clinic(tmp_path, "0.9")
    warehouse(tmp_path / "clinic.duckdb", f"CREATE TABLE {name} AS FROM promise")
    succeeded("publish", asked_by_query(tmp_path, f"SELECT value, threshold FROM {name}"))


# Files ---


@pytest.mark.slow
@each("ending", ["parquet", "csv", "duckdb"], few=6)
@each("fault", ["missing", "empty", "garbage", "folder"])
def test_a_source_that_can_not_be_read(tmp_path: Path, ending: str, fault: str) -> None:
    source = tmp_path / f"ward.{ending}"
    if fault == "folder":
        source.mkdir()
    elif fault != "missing":
        source.write_bytes(b"" if fault == "empty" else bytes(range(256)) * 64)
    table = ["--set", "source.table=ward"] if ending == "duckdb" else []
    for command in (["publish", "--to", tmp_path / "r.duckdb"], ["plan"]):
        done = run(command[0], source, *table, *FLAGS, *command[1:])
        refused(done, done.code, f"ward.{ending}" if fault == "missing" else "")
        assert done.code == 4 or (done.code == 2 and ending == "csv")
        assert "another process" not in done.err
    done = run("init", source, *table)
    refused(done, done.code)
    assert done.code in {2, 4}
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("name", ["blocks.duckdb", "clock.parquet"])
def test_a_name_with_lock_in_it_is_not_taken_for_a_lock(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_bytes(b"garbage" * 1000)
    table = ["--set", "source.table=ward"] if name.endswith(".duckdb") else []
    done = run("plan", source, *table, *FLAGS)
    refused(done, 4, name)
    assert "another process" not in done.err
    assert "another process" not in run("verify", source).err


def test_a_parquet_source_that_breaks_off(place: Path) -> None:
    content = bytearray((place / "people.parquet").read_bytes())
    for position in range(40, len(content) // 2, 7):
        content[position] ^= 0xFF
    (place / "torn.parquet").write_bytes(content)
    (place / "short.parquet").write_bytes(content[: len(content) // 2])
    for name in ("torn.parquet", "short.parquet"):
        done = run("publish", place / name, *FLAGS, "--to", place / "r.duckdb")
        refused(done, 4)
    assert left_over(place) == []


def test_a_csv_source_with_a_bad_line(tmp_path: Path) -> None:
    lines = [f"{i % 50},F,{i % 90},flu" if i % 2 else f"{i % 50},M,{i % 90},cold" for i in range(30_000)]
    lines[29_000] = "old,F,12,flu"
    (tmp_path / "ward.csv").write_text("age,sex,zip,disease\n" + "\n".join(lines) + "\n", encoding="utf-8")
    done = run("publish", tmp_path / "ward.csv", *FLAGS, "--to", tmp_path / "r.duckdb")
    refused(done, done.code)
    assert done.code in {2, 4}


@pytest.mark.slow
def test_an_existing_release_needs_replace(place: Path) -> None:
    succeeded("publish", place / "spec.toml")
    before, file = (place / "ill.duckdb").read_bytes(), (place / "ill.duckdb").stat().st_ino
    refused(run("publish", place / "spec.toml"), 2, "ill.duckdb", "option replace")
    assert (place / "ill.duckdb").read_bytes() == before
    succeeded("publish", place / "spec.toml", "--replace")  # the same release may have the same bytes
    assert (place / "ill.duckdb").stat().st_ino != file
    assert left_over(place) == []


def test_a_release_does_not_replace_its_own_source(tmp_path: Path) -> None:
    source = clinic(tmp_path, "0.9")
    done = run("publish", source, "--set", "source.table=stay", *FLAGS, "--to", source, "--replace")
    refused(done, 2, "clinic.duckdb", "not a release")
    assert rows(source, "SELECT count(*) FROM stay") == [(400,)]


@pytest.mark.parametrize("kind", ["text", "folder", "empty"])
def test_replace_replaces_nothing_but_a_release(place: Path, kind: str) -> None:
    target = place / "ill.duckdb"
    if kind == "folder":
        target.mkdir()
        (target / "thesis.txt").write_text("years of work", encoding="utf-8")
    else:
        target.write_text("years of work" if kind == "text" else "", encoding="utf-8")
    refused(run("publish", place / "spec.toml", "--replace"), 2, "ill.duckdb", "not a release")
    assert target.exists()
    assert left_over(place) == []


def test_replace_does_not_replace_a_database_that_is_not_a_release(place: Path) -> None:
    precious = warehouse(place / "ill.duckdb", "CREATE TABLE thesis AS SELECT 1 AS years")
    refused(run("publish", place / "spec.toml", "--replace"), 2, "ill.duckdb", "not a release")
    assert rows(precious, "FROM thesis") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("first", rest_slow(["duckdb", "parquet"]))
def test_a_release_of_another_format_can_be_replaced(place: Path, first: str) -> None:
    second = {"duckdb": "parquet", "parquet": "duckdb"}[first]
    succeeded("publish", place / "spec.toml", "--to", place / "r", "--format", first)
    succeeded("publish", place / "spec.toml", "--to", place / "r", "--format", second, "--replace")
    assert (place / "r").is_dir() == (second == "parquet")
    assert succeeded("verify", place / "r", "--json").json["ok"]
    assert left_over(place) == []


def test_a_target_in_a_missing_folder(place: Path) -> None:
    refused(run("publish", place / "spec.toml", "--to", place / "no" / "r.duckdb"), 4, str(place / "no"))
    refused(run("publish", place / "spec.toml", "--to", place / "people.parquet" / "r.duckdb"), 4, "people.parquet")


@pytest.mark.slow
def test_a_release_that_is_open_elsewhere_for_writing(place: Path) -> None:
    succeeded("publish", place / "spec.toml")
    release = place / "ill.duckdb"
    with held_open(release):
        for arguments in (["verify", release], ["query", release, "SELECT COUNT(*) FROM ill"]):
            refused(run(*arguments), 1, "ill.duckdb.wal", "close")


@pytest.mark.slow
def test_a_release_is_whole_after_it_replaced_one_that_was_open_elsewhere(place: Path) -> None:
    succeeded("publish", place / "spec.toml")
    with held_open(place / "ill.duckdb") as other:
        done = run("publish", place / "spec.toml", "--replace")
        assert done.crash is None
        other.kill()
    if done.code == 0:
        assert succeeded("verify", place / "ill.duckdb", "--json").json["ok"]
    else:
        refused(done, done.code, "ill.duckdb")


@pytest.mark.slow
def test_a_log_beside_the_target_does_not_spoil_the_new_release(place: Path) -> None:
    succeeded("publish", place / "spec.toml")
    with held_open(place / "ill.duckdb") as other:
        other.kill()
        other.wait()
    assert (place / "ill.duckdb.wal").exists()
    succeeded("publish", place / "spec.toml", "--replace")
    assert succeeded("verify", place / "ill.duckdb", "--json").json["ok"]


@pytest.mark.slow
def test_a_source_that_is_open_elsewhere_for_writing(tmp_path: Path) -> None:
    source = clinic(tmp_path, "0.9")
    with held_open(source):
        for arguments in (["publish", "--to", tmp_path / "r.duckdb"], ["plan"]):
            done = run(arguments[0], source, "--set", "source.table=stay", *FLAGS, *arguments[1:])
            refused(done, 4, "clinic.duckdb", "another process")
    succeeded("publish", source, "--set", "source.table=stay", *FLAGS, "--to", tmp_path / "r.duckdb")


@pytest.mark.slow
@each("kind", ["missing", "text", "database", "folder", "parquet"])
def test_what_is_no_release_is_said_to_be_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "thing"
    if kind == "text":
        path.write_text("years of work" * 1000, encoding="utf-8")
    elif kind == "database":
        warehouse(path, "CREATE TABLE qit AS SELECT 1 AS bid")
    elif kind == "folder":
        path.mkdir()
    elif kind == "parquet":
        write(path, "SELECT 1 AS a")
    code = {"database": 2, "folder": 2}.get(kind, 4)
    for arguments in (["verify", path], ["query", path, "SELECT COUNT(*) FROM thing"]):
        refused(run(*arguments), code, str(path))


@pytest.mark.slow
def test_verify_against_another_source(place: Path) -> None:
    succeeded("publish", place / "spec.toml")
    other = specification(place, columns='quasi_identifiers = ["age"]\nsensitive = "disease"', name="other.toml")
    refused(run("verify", place / "ill.duckdb", "--source", other), 2, "columns")
    write(place / "fewer.parquet", f"FROM ({PEOPLE.format(n=400)}) LIMIT 399")
    fewer = specification(place, source='file = "fewer.parquet"', name="fewer.toml")
    assert run("verify", place / "ill.duckdb", "--source", fewer).code == 1
    refused(run("verify", place / "ill.duckdb", "--source", place / "nowhere.toml"), 4, "nowhere.toml")


# Queries that are not answered ---


@pytest.mark.slow
@each(
    ("sql", "words"),
    [
        ("DROP TABLE qit", ["SELECT"]),
        ("INSERT INTO ill VALUES (1)", ["SELECT"]),
        ("SELECT COUNT(*) FROM ill; SELECT 1", ["several"]),
        ("", ["SELECT"]),
        ("SELECT (", []),
        ("COPY ill TO 'x'", ["SELECT"]),
        ("SELECT COUNT(*) FROM people", ["people", "ill"]),
        ("SELECT COUNT(*) FROM qit", ["qit", "ill"]),
        ("SELECT COUNT(*) FROM privsql_manifest", ["privsql_manifest"]),
        ("SELECT COUNT(*)", ["ill"]),
        ("SELECT COUNT(*) FROM ill JOIN st USING (bid)", ["JOIN"]),
        ("SELECT COUNT(*) FROM ill WHERE job = 1", ["job", "age"]),
        ("SELECT * FROM ill", ["*"]),
        ("SELECT age FROM ill", ["COUNT(*)"]),
        ("SELECT MEDIAN(age) FROM ill WHERE disease = 'flu'", ["MEDIAN"]),
        ("SELECT COUNT(DISTINCT age) FROM ill WHERE disease = 'flu'", ["COUNT(DISTINCT"]),
        ("SELECT COUNT(*) FROM ill WHERE age = zip AND disease = sex", ["disease"]),
        ("SELECT COUNT(*) FROM ill WHERE age IN (SELECT 1)", ["FROM ill"]),
        ("SELECT COUNT(*) FROM (SELECT * FROM other)", ["table 'other'"]),
        ("SELECT COUNT(*) FROM read_csv('/etc/passwd')", ["ill"]),
        ("WITH x AS (SELECT 1 FROM y) SELECT COUNT(*) FROM x", ["y"]),
        ("SELECT COUNT(*) FROM ill WHERE age = 'old'", ["old"]),
        ("SELECT COUNT(*) FROM ill LIMIT 1.5", ["LIMIT"]),
    ],
)
def test_a_query_that_is_not_supported_is_refused(ward: Path, sql: str, words: list[str]) -> None:
    refused(run("query", ward / "ill.duckdb", sql), 2, *words)
    assert run("query", ward / "ill.duckdb", sql, "--json").json["exit_code"] == 2


@pytest.mark.slow
@each("confidence", ["0", "1", "-1", "1.5", "nan"])
def test_a_confidence_outside_0_1_is_refused(ward: Path, confidence: str) -> None:
    done = run("query", ward / "ill.duckdb", "SELECT COUNT(*) FROM ill", "--confidence", confidence)
    refused(done, 2, "confidence")


def test_an_estimator_that_is_not_there_is_refused(ward: Path) -> None:
    sql = "SELECT COUNT(*) FROM ill WHERE sex = 'F' AND disease = 'flu'"
    refused(run("query", ward / "ill.duckdb", sql, "--estimator", "magic"), 2, "magic", "baseline")


def test_the_baseline_is_not_called_reconstructed(ward: Path) -> None:
    sql = "SELECT age, COUNT(*) FROM ill WHERE sex = 'F' AND disease = 'flu' GROUP BY age"
    baseline = succeeded("query", ward / "ill.duckdb", sql, "--estimator", "baseline", "--json").json
    done = run("query", ward / "ill.duckdb", sql, "--estimator", "reconstructed", "--json")
    assert done.code == 2 or done.json["rows"] != baseline["rows"]


# Randomness and its key ---


@pytest.mark.soak(part="long")
def test_a_seed_is_recorded_and_noted(place: Path) -> None:
    succeeded("publish", place / "spec.toml", "--seed", 7)
    assert manifest(place / "ill.duckdb")["randomness"] == "seed"
    assert any("seed" in note for note in succeeded("verify", place / "ill.duckdb", "--json").json["notes"])
    assert "seed" in succeeded("verify", place / "ill.duckdb").out
    first = tables(place / "ill.duckdb")
    succeeded("publish", place / "spec.toml", "--seed", 7, "--replace")
    assert tables(place / "ill.duckdb") == first
    succeeded("publish", place / "spec.toml", "--seed", 8, "--replace")
    assert tables(place / "ill.duckdb") != first


@pytest.mark.slow
def test_a_key_file_is_made_private_and_repeats_a_release(place: Path) -> None:
    key = place / "key"
    succeeded("publish", place / "spec.toml", "--key-file", key)
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(key.read_text(encoding="ascii").strip())) == 32
    first, content = tables(place / "ill.duckdb"), key.read_bytes()
    assert manifest(place / "ill.duckdb")["randomness"] == "key-file"
    succeeded("publish", place / "spec.toml", "--key-file", key, "--to", place / "again.duckdb")
    assert tables(place / "again.duckdb") == first
    assert key.read_bytes() == content
    assert succeeded("verify", place / "ill.duckdb", "--json").json["notes"] == []


@pytest.mark.slow
def test_a_key_file_repeats_parquet_byte_by_byte(place: Path) -> None:
    for target in ("first", "second"):
        succeeded(
            "publish", place / "spec.toml", "--format", "parquet", "--to", place / target, "--key-file", place / "key"
        )
    names = sorted(path.name for path in (place / "first").iterdir())
    assert {"qit.parquet", "st.parquet", f"{MANIFEST}.parquet"} <= set(names)
    assert sorted(path.name for path in (place / "second").iterdir()) == names
    for name in names:
        assert (place / "first" / name).read_bytes() == (place / "second" / name).read_bytes(), name


@pytest.mark.slow
def test_the_release_does_not_depend_on_threads_or_memory(place: Path) -> None:
    for target, more in (("a", ["--threads", "1"]), ("b", ["--threads", "4", "--memory-limit", "500MB"])):
        succeeded("publish", place / "spec.toml", "--key-file", place / "key", "--to", place / target, *more)
    assert tables(place / "a") == tables(place / "b")


@each(
    ("content", "mode", "words"),
    [
        ("ab" * 32, 0o644, ["chmod 600"]),
        ("ab" * 32, 0o640, ["chmod 600"]),
        ("ab" * 31, 0o600, ["64"]),
        ("ab" * 33, 0o600, ["64"]),
        ("not a key", 0o600, ["64"]),
        ("", 0o600, ["64"]),
        ("é" * 64, 0o600, ["64"]),
    ],
)
def test_a_key_file_that_is_none(place: Path, content: str, mode: int, words: list[str]) -> None:
    key = place / "key"
    key.write_text(content, encoding="utf-8")
    key.chmod(mode)
    done = run("publish", place / "spec.toml", "--key-file", key)
    refused(done, 2, str(key), *words)
    assert not content or content not in done.err
    assert not (place / "ill.duckdb").exists()


def test_a_key_file_that_can_not_be_made(place: Path) -> None:
    refused(run("publish", place / "spec.toml", "--key-file", place / "no" / "key"), 4, "no/key")
    refused(run("publish", place / "spec.toml", "--key-file", place), 4, str(place))


@pytest.mark.slow
def test_the_key_is_nowhere_but_in_its_file(place: Path) -> None:
    key = place / "key"
    outputs = [
        succeeded("publish", place / "spec.toml", "--key-file", key, "--json"),
        succeeded("publish", place / "spec.toml", "--key-file", key, "--format", "parquet", "--to", place / "folder"),
        succeeded("verify", place / "ill.duckdb", "--json"),
        succeeded("verify", place / "ill.duckdb", "--json", "--verbose"),
        run("publish", place / "spec.toml", "--key-file", key),
    ]
    secret = bytes.fromhex(key.read_text(encoding="ascii").strip())
    shapes = [secret, secret[::-1], secret.hex().encode(), secret.hex().upper().encode(), base64.b64encode(secret)]
    shapes += [str(int.from_bytes(secret, order)).encode() for order in ("little", "big")]
    written = [place / "ill.duckdb", *(place / "folder").iterdir()]
    seen = [path.read_bytes() for path in written] + [(done.out + done.err).encode() for done in outputs]
    for shape in shapes:
        assert not any(shape[:16] in content for content in seen)


@pytest.mark.slow
def test_without_a_key_it_comes_from_the_ledger_or_is_fresh(place: Path) -> None:
    """Two releases of the same people must not differ, unless no ledger is there to tell that they are two."""
    spec, off = place / "spec.toml", place / "off.toml"
    off.write_text(spec.read_text() + "\n[ledger]\noff = true\n")
    for target, asked in (("one", spec), ("two", spec), ("three", off), ("four", off)):
        succeeded("publish", asked, "--to", place / target)
    assert [manifest(place / name)["randomness"] for name in ("one", "three")] == ["key-file", "system"]
    assert tables(place / "one")["qit"] == tables(place / "two")["qit"]
    assert len({repr(tables(place / name)["qit"]) for name in ("one", "three", "four")}) == 3


ODD = "SELECT i, {} AS age, 'F' AS sex, i // 2 % 3 AS zip, 'd' || i % 3 AS disease FROM range(400) t(i)"
SOURCES = {
    "plain": f"SELECT row_number() OVER () AS i, * FROM ({PEOPLE.format(n=400)})",
    "nulls": ODD.format("CASE WHEN i % 2 = 0 THEN i % 5 END"),
    "zeros": ODD.format("CASE WHEN i % 2 = 0 THEN '0'::DOUBLE ELSE '-0'::DOUBLE END"),
    "not numbers": ODD.format("CASE WHEN i % 2 = 0 THEN 'nan'::DOUBLE ELSE i % 5 END"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(SOURCES))
def test_the_order_of_the_source_leaves_no_trace(tmp_path: Path, name: str) -> None:
    found = []
    for order in ("i", "md5(CAST(i AS VARCHAR))"):
        write(tmp_path / "people.parquet", f"FROM ({SOURCES[name]}) ORDER BY {order}")
        specification(tmp_path)
        succeeded("publish", tmp_path / "spec.toml", "--key-file", tmp_path / "key", "--replace")
        found.append(tables(tmp_path / "ill.duckdb"))
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_collation_of_the_source_does_not_merge_values_or_keep_their_order(tmp_path: Path) -> None:
    mixed = (
        "SELECT CASE WHEN i % 3 = 0 THEN 'x' ELSE 'X' END, CASE WHEN i % 8 < 4 THEN 'hiv' ELSE 'HIV' END "
        "FROM range(240) t(i)"
    )
    found = []
    for order in ("1, 2", "md5(CAST(i AS VARCHAR))"):
        source = tmp_path / "w.duckdb"
        source.unlink(missing_ok=True)
        warehouse(
            source,
            "CREATE TABLE stay (nick VARCHAR COLLATE NOCASE, disease VARCHAR COLLATE NOCASE)",
            f"INSERT INTO stay {mixed} ORDER BY {order}",
        )
        succeeded(
            "publish",
            source,
            "--set",
            "source.table=stay",
            "--qi",
            "nick",
            "--sensitive",
            "disease",
            "--threshold",
            "1",
            "--key-file",
            tmp_path / "key",
            "--to",
            tmp_path / "r.duckdb",
            "--replace",
        )
        found.append(tables(tmp_path / "r.duckdb"))
    assert found[0] == found[1]
    assert sorted(set(rows(tmp_path / "r.duckdb", "SELECT disease FROM st"))) == [("HIV",), ("hiv",)]


# Real data ---


@pytest.mark.slow
@pytest.mark.skipif(
    not (REAL / "acs_edu.parquet").is_file(), reason="the survey extracts are not here; set PRIVSQL_DATA"
)
def test_a_real_survey_is_published_verified_and_asked(tmp_path: Path) -> None:
    source = REAL / "acs_edu.parquet"
    release = tmp_path / "edu.duckdb"
    shown = succeeded(
        "publish", source, "--qi", "age,sex,marital,work_class", "--sensitive", "education",
        "--threshold", "2*f + 0.1", "--algorithm", "two-size", "--set", 'release.name=edu', "--to", release, "--json",
        "--allow-useless",
    ).json  # fmt: skip
    assert shown["published"] == 304_720
    assert succeeded("verify", release, "--json").json["ok"]
    sql = "SELECT COUNT(*) FROM edu WHERE work_class IS NULL"
    assert succeeded("query", release, sql, "--json").json["rows"][0]["estimate"] == 88_029


@pytest.mark.slow
def test_what_the_package_exports_stays_what_it_is(tmp_path: Path) -> None:
    """No module of the package takes the name of a verb once it is imported."""
    program = (
        "import privsql\n"
        "import privsql.cli\n"
        "for _ in range(2):\n"
        "    print([name for name in privsql.__all__ if not callable(getattr(privsql, name)) and name[0] != '_'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n[]\n"
