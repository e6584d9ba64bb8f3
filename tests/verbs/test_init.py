"""``init``: a proposal discloses nothing that it need not, and says truly why columns are left out."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from privsql.engine.database import Reporter
from support.commands import PEOPLE, refused, run, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path


def proposed(folder: Path, sql: str, *more: object, name: str = "ward.parquet") -> tuple[str, dict[str, Any]]:
    """The text of a proposal for the rows of a query, and what it says."""
    given = more if "--sensitive" in more or "--mechanism" in more else ("--sensitive", "disease", *more)
    text = succeeded("init", write(folder / name, sql), *given).out
    return text, tomllib.loads(text)


SKEWED = """
SELECT i % 40 AS age, i % 7 AS zip,
  CASE WHEN i * 7919 % 1000 < {share} THEN 'a' ELSE {other} END AS disease FROM range(4000) t(i)
"""


@pytest.mark.slow
@pytest.mark.parametrize("share", rest_slow([520, 760, 940]))
def test_buckets_for_a_frequent_value_are_refused_with_its_share(tmp_path: Path, share: int) -> None:
    table = write(tmp_path / "ward.parquet", SKEWED.format(share=share, other="'b'"))
    done = run("init", table, "--sensitive", "disease", "--promise", "bucketize")
    refused(done, 3, f"no threshold up to 1/2 keeps counts of 'a' useful, which {share / 10:.0f}% of the records have")


@pytest.mark.slow
def test_a_frequent_value_excludes_no_column(tmp_path: Path) -> None:
    """94 % have the same value: who knows a column that says nothing guesses right as often as who does not."""
    text, spec = proposed(tmp_path, SKEWED.format(share=940, other="'b'"))
    assert spec["columns"]["quasi_identifiers"] == ["age", "zip"]
    assert "left out" not in text


@pytest.mark.slow
def test_reasons_are_true(tmp_path: Path) -> None:
    text, spec = proposed(
        tmp_path,
        "SELECT i AS person, i % 37 AS age, 'x' AS same, i % 2000 AS many, "
        "'v' || (i % 5) AS disease, i % 10 AS code_5, i % 4 AS bid, i % 3 AS email, [i] AS list FROM range(4000) t(i)",
    )
    assert spec["columns"]["quasi_identifiers"] == ["age"]
    assert spec["source"]["id"] == "person"
    assert spec["decide"]["unknown"] == ["bid", "email"]
    for line in (
        "left out: same: has one value",
        "left out: many, code_5: gives disease away: guessed right for 100% of the records, 20% without it",
        "left out: list: is BIGINT[], which can't be published",
    ):
        assert f"# {line}\n" in text


VISITS = """
SELECT i AS admission_id, i * i % 97 AS patient, i % 12 AS ward_no, i % 37 AS age, 'v' || i % 5 AS disease,
  ['a'] AS goods
FROM range({n}) t(i)
"""


@pytest.mark.parametrize("kind", ["contingency", "setvalued"])
def test_one_record_of_a_person_is_proposed_where_there_is_no_choice(tmp_path: Path, kind: str) -> None:
    _, spec = proposed(tmp_path, VISITS.format(n=400), "--mechanism", kind)
    assert spec["source"]["person"] == "patient"
    assert spec["source"]["persons"] == "one"


NUMBERS = "SELECT i % 40 AS age, i % 7 AS zip, {sensitive} AS disease FROM range(1300) t(i)"
NO_CATEGORIES = [
    ("i % 501", "501 different values"),
    ("CAST(i % 501 AS DECIMAL(9,2))", "501 different values"),
    ("DATE '2020-01-01' + CAST(i % 600 AS INTEGER)", "600 different values"),
    ("TIMESTAMP '2020-01-01' + to_seconds(i % 600)", "600 different values"),
    ("i", "a different value"),
    ("'v' || i", "a different value"),
]


@pytest.mark.parametrize(("sensitive", "words"), NO_CATEGORIES)
def test_what_is_no_category_is_refused_before_anything_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sensitive: str, words: str
) -> None:
    def search(*_: object) -> None:
        raise AssertionError("it was searched")

    for module in ("publish", "preview", "proposal"):
        monkeypatch.setattr(f"privsql.mechanisms.bucketize.{module}.plan_buckets", search)
    table = write(tmp_path / "people.parquet", NUMBERS.format(sensitive=sensitive))
    refused(run("init", table, "--sensitive", "disease", "--mechanism", "bucketize"), 2, "'disease'", words)
    for verb in ("plan", "publish"):
        done = run(
            verb, table, "--sensitive", "disease", "--qi", "age,zip", "--threshold", "0.1", "--set", "ledger.off=true"
        )
        refused(done, 2, "'disease'", words)


@pytest.mark.soak(part="long")
def test_codes_are_categories_where_the_publisher_says_so(tmp_path: Path) -> None:
    """Texts are, and so are 500 numbers, and columns of a compound attribute are counted one by one."""
    table = write(tmp_path / "people.parquet", NUMBERS.format(sensitive="i % 501"))
    given = [
        "--sensitive",
        "disease",
        "--qi",
        "zip",
        "--threshold",
        "0.5",
        "--algorithm",
        "one-size",
        "--set",
        "ledger.off=true",
    ]
    refused(run("plan", table, *given), 2, "permute", "bins", "columns.categorical = true")
    succeeded("plan", table, *given, "--set", "columns.categorical=true")
    for sensitive in ("'v' || i % 501", "i % 500"):
        succeeded("plan", write(tmp_path / "others.parquet", NUMBERS.format(sensitive=sensitive)), *given)
    given[1] = "disease,age"
    succeeded("plan", write(tmp_path / "two.parquet", NUMBERS.format(sensitive="i % 27")), *given)
    refused(run("plan", table, *given), 2, "'disease', 'age': each")
    _, spec = proposed(
        tmp_path, NUMBERS.format(sensitive="i % 501"), "--sensitive", "disease", "--set", "columns.categorical=true"
    )
    assert spec["columns"]["categorical"] is True


def test_row_numbers_are_not_offered_as_sensitive(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.parquet", "SELECT i AS row_id, i % 7 AS a, i % 3 AS b FROM range(60) t(i)")
    refused(run("init", rows), 2, "columns.sensitive is missing; option sensitive names it, likely ones: a, b")
    alone = write(tmp_path / "alone.parquet", "SELECT i AS row_id FROM range(60) t(i)")
    refused(run("init", alone), 2, "no column can be sensitive")


@pytest.mark.slow
def test_what_is_said_of_hundreds_of_columns_is_short(tmp_path: Path) -> None:
    names = ", ".join(f"i AS a{k}" for k in range(90))
    wide = write(tmp_path / "wide.parquet", f"SELECT {names}, i % 5 AS disease FROM range(60) t(i)")
    done = run("init", wide, "--sensitive", "disease")
    refused(done, 2, "no column is left to publish beside the sensitive one", "a5 names records")
    assert len(done.err) < 600
    many = ", ".join(f"i % {k + 3} AS b{k}" for k in range(50))
    refused(run("init", write(tmp_path / "many.parquet", f"SELECT {many} FROM range(99) t(i)")), 2, "b0, b1, b2")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 1 AS age, 'flu' AS disease WHERE false", ["no records"]),
        ("SELECT 1 AS age, 'v' || (i % 3) AS disease FROM range(9) t(i)", ["no column is left", "age has one value"]),
    ],
)
def test_what_can_not_be_proposed_is_refused_with_the_reason(tmp_path: Path, sql: str, words: list[str]) -> None:
    table = write(tmp_path / "ward.parquet", sql)
    refused(run("init", table, "--sensitive", "disease"), 2, "ward.parquet", *words)


# Numbers ---


SALARIES = """
SELECT i % 40 AS age, i % 3 AS disease,
  CASE WHEN i % 10 < {zeros} THEN 0 ELSE 20000 + i * 7919 % 500 * 100 END AS salary FROM range(3000) t(i)
"""


@pytest.mark.slow
def test_a_number_is_chosen_and_its_range_comes_from_the_spread(tmp_path: Path) -> None:
    """The middle half of the salaries spans 25,000; groups are such that the best exact guess is mostly wrong."""
    text, spec = proposed(tmp_path, SALARIES.format(zeros=0), "--sensitive", "salary", "--accept")
    assert spec["mechanism"]["kind"] == "permute"
    assert 2000 <= float(spec["mechanism"]["e"]) <= 26000
    assert "Note" not in text
    (tmp_path / "spec.toml").write_text(text)
    succeeded("publish", tmp_path / "spec.toml", "--to", tmp_path / "pay.duckdb")
    found = {
        one["adversary"]: one for one in succeeded("attack", tmp_path / "pay.duckdb", "--json").json["adversaries"]
    }
    assert found["best exact guess"]["mean"] <= 0.5


def test_a_number_that_is_mostly_the_same_is_said_to_be_guessed(tmp_path: Path) -> None:
    text, _ = proposed(tmp_path, SALARIES.format(zeros=7), "--sensitive", "salary", "--mechanism", "permute")
    assert "Note: an attacker who guesses the most common value of a group is right for" in text


class Watcher(Reporter):
    """Writes down what a progress bar would show."""

    watched = True

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.told: list[float] = []

    def start_step(self, title: str) -> None:
        self.steps.append(title)

    def update(self, percent: float) -> None:
        self.told.append(percent)

    def update_statement(self, percent: float) -> None:
        assert percent <= 100


@pytest.mark.slow
def test_a_text_file_is_read_once_whatever_columns_it_has(tmp_path: Path) -> None:
    """And proposes what a file by columns does; whoever watches is told how many columns and records there are."""
    source = write(tmp_path / "people.parquet", PEOPLE.format(n=300))
    with duckdb.connect() as db:
        db.execute(f"COPY (FROM '{source}') TO '{tmp_path / 'people.csv'}'")
    seen, texts = {}, {}
    for name in ("people.parquet", "people.csv"):
        seen[name] = Watcher()
        options = privsql.Options(report=seen[name])
        texts[name] = privsql.init(tmp_path / name, sensitive="disease", promise="bucketize", options=options)
    assert texts["people.csv"].replace(".csv", ".parquet") == texts["people.parquet"]
    assert seen["people.parquet"].steps[0] == "Looking at the columns"
    assert seen["people.csv"].steps[:2] == ["Reading the source", "Looking at the columns"]


CODES = """
SELECT 'd' || (i * i % 9) AS disease, i % 70 AS age, lpad(CAST(1000 + i * 7 % 9973 AS VARCHAR), 5, '0') AS zip,
  CAST(1000 + i * 11 % 9973 AS INTEGER) AS home_zip, DATE '1930-01-01' + CAST(i * 13 % 12000 AS INT) AS birth,
  CASE WHEN i % 11 = 0 THEN '?' WHEN i % 13 = 0 THEN ' NA' ELSE 'w' || (i % 5) END AS work,
  'x' || i % 4999 || '!' AS note, (i * 31 % 900) * 100 AS salary
FROM range(20000) t(i)
"""


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("name", rest_slow(["ward.csv", "ward.parquet"]))
def test_codes_dates_and_missing_values_are_read_as_such(tmp_path: Path, name: str) -> None:
    """ZIP codes by their first digits, birth dates by year, and ``?`` as NULL; a code that gives all away stays out."""
    write(tmp_path / "ward.parquet", CODES)
    with duckdb.connect() as db:
        db.execute(f"COPY (FROM '{tmp_path / 'ward.parquet'}') TO '{tmp_path / 'ward.csv'}'")
    text = succeeded("init", tmp_path / name, "--sensitive", "disease", "--promise", "bucketize", "--accept").out
    spec = tomllib.loads(text)
    bins = spec["columns"]["bins"]
    assert bins["birth"] == "month"
    assert "# left out: home_zip: says the same as zip\n" in text
    assert name == "ward.csv" or bins["zip"] == {"prefix": 3}
    assert "note" not in spec["columns"]["quasi_identifiers"]
    assert "# read as NULL: ' NA', '?' in work\n" in text
    (tmp_path / "spec.toml").write_text(text)
    plan = succeeded("plan", tmp_path / "spec.toml", "--json").json
    assert plan["records"] == 20000
    succeeded("publish", tmp_path / "spec.toml", "--to", tmp_path / "ward_release.duckdb", "--allow-useless")
    succeeded("verify", tmp_path / "ward_release.duckdb", "--source", tmp_path / "spec.toml")
    count = "SELECT COUNT(*) FROM ward WHERE work IS NULL"
    assert succeeded("query", tmp_path / "ward_release.duckdb", count, "--json").json["rows"][0]["estimate"] == 3218


@pytest.mark.slow
def test_numbers_are_published_as_numbers_unless_another_kind_is_wanted(tmp_path: Path) -> None:
    _, spec = proposed(tmp_path, CODES, "--sensitive", "salary")
    assert spec["mechanism"]["kind"] == "permute"
    refused(
        run("init", tmp_path / "ward.parquet", "--sensitive", "salary", "--mechanism", "bucketize"),
        2,
        "mechanism.kind = 'permute'",
    )
    unique = "SELECT i AS pay, i % 30 AS age FROM range(1000) t(i)"
    done = run("init", write(tmp_path / "unique.parquet", unique), "--sensitive", "pay", "--mechanism", "bucketize")
    refused(done, 2, "each of the 1,000 records has a different value")


@pytest.mark.slow
def test_several_tables_are_joined_by_what_names_people(tmp_path: Path) -> None:
    place = tmp_path / "ward.duckdb"
    with duckdb.connect(str(place)) as db:
        db.execute("CREATE TABLE patients AS SELECT i AS patient_id, i % 40 AS age FROM range(500) t(i)")
        db.execute(
            "CREATE TABLE visits AS SELECT i % 400 AS patient_id, 'd' || i % 9 AS diagnosis FROM range(900) t(i)"
        )
        db.execute("CREATE TABLE wards AS SELECT i AS ward, i % 3 AS age FROM range(9) t(i)")
    tables = 'source.table=["patients", "visits"]'
    spec = tomllib.loads(succeeded("init", place, "--sensitive", "diagnosis", "--set", tables).out)
    assert spec["source"]["query"] == 'SELECT * FROM "patients" JOIN "visits" USING ("patient_id")'
    assert spec["decide"]["persons"] == ["patient_id"]
    assert spec["columns"] == {"quasi_identifiers": ["age"], "sensitive": "diagnosis"}
    refused(
        run("init", place, "--set", 'source.table=["patients", "wards"]'),
        2,
        "write the join as source.query",
    )
    refused(run("init", place), 2, "choose one or several to join as source.table, or give a source.query")
    query = "SELECT age, diagnosis FROM patients JOIN visits USING (patient_id)"
    given = ["--sensitive", "diagnosis", "--set", f"source.query={query}"]
    assert tomllib.loads(succeeded("init", place, *given).out)["source"]["query"] == query
    refused(run("init", place, "--set", f"source.query={query}", "--set", "source.table=visits"), 2, "not both")


@pytest.mark.slow
def test_the_sensitive_column_is_one(tmp_path: Path) -> None:
    """A list of one is read; several are refused with the command that takes them, which works."""
    table = write(tmp_path / "ward.parquet", PEOPLE.format(n=400))
    one = succeeded("init", table, "--set", 'columns.sensitive=["disease"]', "--accept").out
    assert one == succeeded("init", table, "--sensitive", "disease", "--accept").out
    for given in (("--sensitive", "disease,zip"), ("--set", 'columns.sensitive=["disease", "zip"]')):
        refused(run("init", table, *given), 2, "one sensitive column, not for disease and zip", "mechanism.components")
    refused(run("init", table, "--set", "columns.sensitive=3"), 2, "3 is not the name of a column")
    flags = ("--qi", "age", "--sensitive", "disease,zip", "--threshold", "0.4", "--algorithm", "two-size")
    each = ("--set", "mechanism.components.disease=0.6", "--set", "mechanism.components.zip=0.4")
    succeeded("publish", table, *flags, *each, "--set", "ledger.off=true", "--to", tmp_path / "r.duckdb")


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT age AS years, sex, disease FROM source", marks=pytest.mark.slow),
        pytest.param("SELECT * REPLACE (age + 1 AS age) FROM source", marks=pytest.mark.slow),
        "SELECT zip // 10 * 10 AS place, sex, age, disease FROM source WHERE zip > 3",
    ],
)
def test_a_query_over_a_text_file_keeps_the_types_that_it_reads(tmp_path: Path, query: str) -> None:
    """A private release reads a file of texts by the types that are stated: those of the file, not of the query."""
    (tmp_path / "ward.csv").write_text("")
    with duckdb.connect() as db:
        db.execute(f"COPY ({PEOPLE.format(n=2000)}) TO '{tmp_path / 'ward.csv'}'")
    text = succeeded(
        "init", tmp_path / "ward.csv", "--sensitive", "disease", "--accept", "--set", f"source.query={query}"
    )
    (tmp_path / "spec.toml").write_text(text.out)
    assert tomllib.loads(text.out)["source"]["options"]["types"]["age" if "age" in query else "zip"] == "BIGINT"
    assert succeeded("plan", tmp_path / "spec.toml", "--json").json["records"] > 1000


def test_a_headline_says_each_threshold(tmp_path: Path) -> None:
    """Where values have a lower bound than all of them together, the first line says both."""
    skewed = SKEWED.format(share=600, other="'v' || i % 6").replace("'a'", "'none'")
    text, spec = proposed(tmp_path, skewed, "--sensitive", "disease", "--promise", "bucketize")
    groups, threshold = spec["mechanism"]["groups"]["protected"], spec["mechanism"]["threshold"]
    single, union = float(threshold["default"]), float(groups["threshold"])
    number = len(groups["values"])
    assert single < union
    assert text.splitlines()[1] == (
        f"# Nobody can be more than {single:.0%} sure that a record has a particular one of {number} values, or more "
        f"than {union:.0%} sure that it has any of these {number}, by looking it up in the release."
    )
