"""A release that was changed after it was published: verify says what does not hold, and where."""

from __future__ import annotations

import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from support.commands import MANIFEST, PEOPLE, Outcome, refused, rows, run, specification, succeeded, warehouse
from support.loops import each, rest_slow
from support.tampering import fact, failed, parameter, rewrite, seal, stating

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Change = "str | Callable[[duckdb.DuckDBPyConnection], None]"
CONTENTS = "holds the stated tables"


def listed(release: Path) -> str:
    """The table that states the thresholds."""
    return str(rows(release, "SELECT table_name FROM duckdb_columns() WHERE column_name = 'numerator'")[0][0])


def changed(ward: Path, folder: Path, *changes: Any) -> Path:
    """A copy of the release with changes; ``{values}`` is the table of thresholds."""
    release = folder / "ill.duckdb"
    shutil.copy(ward / "ill.duckdb", release)
    values = listed(release)
    with duckdb.connect(str(release)) as db:
        for change in changes:
            if callable(change):
                change(db)
            else:
                db.execute(change.replace("{values}", values))
    rewrite(release)
    return release


def composition(change: Callable[[dict[int, dict[Any, int]]], None]) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """A change of ST as {bucket: {value: count}}, written back in canonical order."""

    def apply(db: duckdb.DuckDBPyConnection) -> None:
        buckets: dict[int, dict[Any, int]] = defaultdict(dict)
        for bid, value, count in db.execute("FROM st").fetchall():
            buckets[bid][value] = count
        change(buckets)
        db.execute("CREATE OR REPLACE TABLE st (bid INTEGER, disease VARCHAR, count INTEGER)")
        flat = [
            (bid, value, count) for bid in sorted(buckets) for value, count in sorted(buckets[bid].items()) if count
        ]
        db.executemany("INSERT INTO st VALUES (?, ?, ?)", flat)

    return apply


def gather(buckets: dict[int, dict[Any, int]]) -> None:
    """Swap a value of one bucket with the HIV of another, so that one has two records of it."""
    first, second = [bid for bid, values in buckets.items() if values.get("HIV") == 1][:2]
    given = next(value for value in buckets[first] if value != "HIV")
    buckets[first][given] -= 1
    buckets[first]["HIV"] += 1
    buckets[second]["HIV"] -= 1
    buckets[second][given] = buckets[second].get(given, 0) + 1


NO_PLAN = {
    "a rule that is none",
    "a lower bound with a fraction",
    "a setting with a fraction",
    "an unknown parameter",
    "an entry of the manifest twice",
    "a fact that is none",
}  # what states no plan at all is no release any more


def told(done: Outcome, check: str, *words: str) -> None:
    """One of the failed checks is the one that is meant, and its offending rows hold the words."""
    found = failed(done)
    named = [name for name in found if check in name]
    assert named, f"{check!r} is not among {found}"
    text = " ".join(row for name in named for row in found[name])
    assert text
    assert all(word in text for word in words), text


@pytest.mark.slow
def test_an_untouched_copy_verifies(ward: Path, tmp_path: Path) -> None:
    release = changed(ward, tmp_path)
    assert succeeded("verify", release, "--json").json["ok"]
    assert succeeded("verify", release, "--source", ward / "spec.toml", "--json").json["ok"]
    shutil.copytree(ward / "ill", tmp_path / "ill")
    assert succeeded("verify", tmp_path / "ill", "--source", ward / "spec.toml", "--json").json["ok"]


def test_verify_for_people_names_check_and_rows(ward: Path, tmp_path: Path) -> None:
    release = changed(ward, tmp_path, "UPDATE qit SET bid = 1 WHERE rowid = 0")
    done = run("verify", release)
    assert done.code == 1
    assert "NOT verified" in done.out
    assert "QIT and ST agree" in done.out
    assert "bid=1, place=0" in done.out


ALONE: dict[str, tuple[list[Any], str, list[str]]] = {
    "a row in another bucket": (
        ["UPDATE qit SET bid = 1 WHERE rowid = 0"],
        "agree on every bucket",
        ["bid=1", "place=0"],
    ),
    "a raised count": (
        ["UPDATE st SET count = count + 1 WHERE rowid = 0"],
        "setting is as stated",
        ["claimed_buckets"],
    ),
    "a missing row of st": (["DELETE FROM st WHERE rowid = 0"], "setting is as stated", ["claimed_buckets"]),
    "values that gather in a bucket": ([composition(gather)], "obeys every threshold", ["HIV", "count=2"]),
    "a missing bucket": (
        [
            "DELETE FROM qit WHERE bid = (SELECT max(bid) FROM qit)",
            "DELETE FROM st WHERE bid = (SELECT max(bid) FROM st)",
        ],
        "setting is as stated",
        ["size=4"],
    ),
    "a doubled row of st": (
        ["CREATE OR REPLACE TABLE st AS FROM (FROM st UNION ALL SELECT * FROM st WHERE bid = 0) ORDER BY bid, disease"],
        "once each",
        [],
    ),
    "a negative count": (
        ["UPDATE st SET count = -count WHERE rowid = 0"],
        "counts are positive",
        ["bid=0", "count=-1"],
    ),
    "no count": (["UPDATE st SET count = NULL WHERE rowid = 0"], "counts are positive", ["bid=0"]),
    "no counts at all": (["UPDATE st SET count = NULL"], "counts are positive", ["bid=0"]),
    "counts that cancel out": (
        ["UPDATE st SET count = CASE WHEN bid % 2 = 0 THEN 1 ELSE -1 END"],
        "counts are positive",
        ["count=-1"],
    ),
    "no bucket in st": (["UPDATE st SET bid = NULL WHERE rowid = 0"], "counts are positive", ["bid=None"]),
    "no bucket in qit": (["UPDATE qit SET bid = NULL WHERE rowid = 0"], "agree on every bucket", ["bid=None"]),
    "an unknown value": (["UPDATE st SET disease = 'Ebola' WHERE rowid = 0"], "obeys every threshold", ["Ebola"]),
    "an empty qit": (["DELETE FROM qit"], "agree on every bucket", []),
    "an empty release": (["DELETE FROM st", "DELETE FROM qit"], "setting is as stated", []),
    "qit in another order": (
        ["CREATE OR REPLACE TABLE qit AS SELECT * FROM qit ORDER BY age, sex, zip, bid"],
        "QIT rows lie in canonical order",
        [],
    ),
    "qit in another order within its buckets": (
        ["CREATE OR REPLACE TABLE qit AS SELECT * FROM qit ORDER BY bid, zip DESC, age"],
        "QIT rows lie in canonical order",
        [],
    ),
    "st in another order": (
        ["CREATE OR REPLACE TABLE st AS SELECT * FROM st ORDER BY bid, disease DESC"],
        "ST rows lie in canonical order",
        [],
    ),
    "thresholds in another order": (
        ["CREATE OR REPLACE TABLE {values} AS SELECT * FROM {values} ORDER BY disease DESC"],
        "",
        [],
    ),
    "a raised threshold": (
        ["UPDATE {values} SET numerator = denominator WHERE disease = 'HIV'"],
        "thresholds follow the stated rule",
        ["HIV"],
    ),
    "a threshold above 1": (
        ["UPDATE {values} SET numerator = denominator * 2 WHERE disease = 'HIV'"],
        "fractions in (0, 1]",
        ["HIV"],
    ),
    "a threshold of 0": (["UPDATE {values} SET numerator = 0 WHERE disease = 'HIV'"], "fractions in (0, 1]", ["HIV"]),
    "no threshold": (["UPDATE {values} SET numerator = NULL WHERE disease = 'HIV'"], "obeys every threshold", ["HIV"]),
    "a missing threshold": (["DELETE FROM {values} WHERE disease = 'HIV'"], "obeys every threshold", ["HIV"]),
    "a doubled threshold": (
        ["INSERT INTO {values} SELECT * FROM {values} WHERE disease = 'HIV'"],
        "fractions in (0, 1]",
        ["HIV"],
    ),
    "a threshold of a value that is not published": (
        ["INSERT INTO {values} SELECT * REPLACE ('Ebola' AS disease) FROM {values} WHERE disease = 'HIV'"],
        "",
        ["Ebola"],
    ),
    "a rule that is not that of the thresholds": (
        [parameter("threshold", {"default": "0.9", "values": {}})],
        "thresholds follow the stated rule",
        ["HIV"],
    ),
    "an exception that is not that of the thresholds": (
        [parameter("threshold", {"default": "2*f + 0.1", "values": {"HIV": "0.9"}})],
        "thresholds follow the stated rule",
        ["HIV"],
    ),
    "another loss": ([fact("loss", lambda loss: loss - 1)], "loss and bounds", ["loss"]),
    "a higher lower bound": ([fact("lower_bound", lambda bound: bound + 1)], "loss and bounds", ["gap"]),
    "another gap": ([fact("gap", lambda gap: gap / 2)], "loss and bounds", ["gap"]),
    "another setting": ([fact("setting", lambda _: {"2": 100, "4": 50})], "", []),
    "a setting of more buckets": ([fact("setting", lambda _: {"2": 80, "4": 61})], "setting is as stated", ["size=4"]),
    "other records": ([stating("records", lambda n: n + 1)], "loss and bounds", ["records"]),
    "other published records": ([stating("published", lambda n: n - 1)], "loss and bounds", ["published"]),
    "other suppressed records": ([stating("suppressed", lambda n: n + 1)], "loss and bounds", ["suppressed"]),
    "another algorithm": ([stating("algorithm", lambda _: "optimal")], "loss and bounds", ["algorithm"]),
    "a larger smallest bucket": ([parameter("min_bucket_size", 3)], "loss and bounds", ["bucket sizes"]),
    "an id column in qit": (["ALTER TABLE qit ADD COLUMN person INTEGER"], CONTENTS, ["'person'", "qit"]),
    "a renamed column": (
        ["DROP VIEW ill_pairs", "DROP VIEW ill_weighted", "ALTER TABLE qit RENAME age TO years"],
        CONTENTS,
        ["'years'"],
    ),
    "a column of another type": (
        ["DROP VIEW ill_pairs", "DROP VIEW ill_weighted", "ALTER TABLE qit ALTER zip TYPE BIGINT"],
        CONTENTS,
        ["'zip'"],
    ),
    "columns in another order": (
        ["CREATE OR REPLACE TABLE qit AS SELECT sex, age, zip, bid FROM qit ORDER BY ALL"],
        CONTENTS,
        ["order"],
    ),
    "one more table": (["CREATE TABLE raw AS SELECT 1 AS a"], CONTENTS, ["table 'raw'"]),
    "a table in a schema": (["CREATE SCHEMA more", "CREATE TABLE more.qit AS SELECT 1 AS a"], CONTENTS, ["'more'"]),
    "a schema": (["CREATE SCHEMA more"], CONTENTS, ["'more'"]),
    "an index": (["CREATE INDEX hint ON qit (age)"], CONTENTS, ["'hint'"]),
    "a macro": (["CREATE MACRO hint() AS 'Alice has HIV'"], CONTENTS, ["'hint'"]),
    "a table macro": (["CREATE MACRO hint() AS TABLE SELECT 'Alice has HIV' AS a"], CONTENTS, ["'hint'"]),
    "a sequence": (["CREATE SEQUENCE hint START 4711"], CONTENTS, ["'hint'"]),
    "a type": (["CREATE TYPE hint AS ENUM ('Alice has HIV')"], CONTENTS, ["'hint'"]),
    "a comment on a table": (["COMMENT ON TABLE qit IS 'Alice has HIV'"], CONTENTS, ["'qit'"]),
    "a comment on a column": (["COMMENT ON COLUMN qit.age IS 'Alice has HIV'"], CONTENTS, ["qit.age"]),
    "a comment on the view": (["COMMENT ON VIEW ill_pairs IS 'Alice has HIV'"], CONTENTS, ["'ill_pairs'"]),
    "a default of a column": (["ALTER TABLE qit ALTER sex SET DEFAULT 'Alice has HIV'"], CONTENTS, ["qit"]),
    "a constraint": (
        ["DROP VIEW ill_pairs", "DROP VIEW ill_weighted", "ALTER TABLE qit ALTER age SET NOT NULL"],
        CONTENTS,
        [],
    ),
    "a missing view": (["DROP VIEW ill_pairs"], CONTENTS, ["'ill_pairs'"]),
    "a view that says something else": (
        ["CREATE OR REPLACE VIEW ill_pairs AS SELECT age, zip, disease, 1.0 AS weight FROM qit JOIN st USING (bid)"],
        CONTENTS,
        ["'ill_pairs'", "defined otherwise"],
    ),
    "another name": ([stating("name", lambda _: "well")], CONTENTS, ["well_pairs"]),
    "another type of a column": (
        [stating("quasi_identifiers", lambda fields: [fields[0] | {"type": "BIGINT"}, *fields[1:]])],
        CONTENTS,
        ["'age'"],
    ),
    "another role of a column": ([stating("quasi_identifiers", lambda fields: fields[:-1])], CONTENTS, ["'zip'"]),
}


@pytest.mark.slow
@each("what", ALONE, few=8)
def test_verify_tells_from_the_release_alone(ward: Path, tmp_path: Path, what: str) -> None:
    changes, check, words = ALONE[what]
    if what in NO_PLAN:
        refused(run("verify", changed(ward, tmp_path, *changes), "--json"), 4, "not a release")
        return
    told(run("verify", changed(ward, tmp_path, *changes), "--json"), check, *words)


def renamed(db: duckdb.DuckDBPyConnection) -> None:
    """Call a sensitive value by another name, everywhere."""
    for (table,) in db.execute(
        "SELECT table_name FROM duckdb_columns() WHERE column_name = 'disease' "
        "AND table_name IN (SELECT table_name FROM duckdb_tables())"
    ).fetchall():
        db.execute(f"UPDATE \"{table}\" SET disease = 'HIX' WHERE disease = 'HIV'")


WITH_SOURCE: dict[str, tuple[list[Any], str, list[str]]] = {
    "another quasi-identifier": (
        ["UPDATE qit SET zip = 1000 WHERE rowid = (SELECT max(rowid) FROM qit)"],
        "quasi-identifiers are the source's",
        ["1000"],
    ),
    "no quasi-identifier": (
        ["UPDATE qit SET zip = NULL WHERE rowid = (SELECT max(rowid) FROM qit)"],
        "quasi-identifiers are the source's",
        ["None"],
    ),
    "another sensitive value": ([renamed], "sensitive values are the source's", ["HIX", "HIV"]),
    "suppression that did not happen": (
        [stating("records", lambda n: n + 5), stating("suppressed", lambda n: n + 5)],
        "suppressed records",
        ["405", "400"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", rest_slow(WITH_SOURCE))
def test_verify_tells_from_the_source(ward: Path, tmp_path: Path, what: str) -> None:
    changes, check, words = WITH_SOURCE[what]
    release = changed(ward, tmp_path, *changes)
    told(run("verify", release, "--source", ward / "spec.toml", "--json"), check, *words)


@pytest.mark.slow
def test_verify_tells_a_rule_that_is_weaker_than_the_specification_with_its_thresholds(
    ward: Path, tmp_path: Path
) -> None:
    release = changed(
        ward,
        tmp_path,
        parameter("threshold", {"default": "0.9", "values": {}}),
        "UPDATE {values} SET numerator = 9, denominator = 10",
    )
    done = run("verify", release, "--source", ward / "spec.toml", "--json")
    assert any("threshold" in name or "specification" in name for name in failed(done))


@pytest.mark.slow
def test_verify_tells_a_raised_threshold_that_came_from_a_query(tmp_path: Path) -> None:
    warehouse(
        tmp_path / "clinic.duckdb",
        f"CREATE TABLE stay AS {PEOPLE.format(n=400)}",
        "CREATE TABLE promise AS SELECT disease AS value, 0.7 AS threshold FROM stay GROUP BY disease",
    )
    spec = specification(
        tmp_path,
        source='database = "clinic.duckdb"\ntable = "stay"',
        mechanism='threshold = { query = "SELECT value, threshold FROM promise" }',
    )
    succeeded("publish", spec)
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]
    with duckdb.connect(str(tmp_path / "ill.duckdb")) as db:
        (table,) = db.execute("SELECT table_name FROM duckdb_columns() WHERE column_name = 'numerator'").fetchall()[0]
        db.execute(f"UPDATE {table} SET numerator = 99, denominator = 100 WHERE disease = 'HIV'")
    assert any(
        "threshold" in name for name in failed(run("verify", tmp_path / "ill.duckdb", "--source", spec, "--json"))
    )


def raw(key: str, text: str | None) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """The manifest's text of an entry."""
    return lambda db: db.execute(f"UPDATE {MANIFEST} SET value = ? WHERE key = ?", [text, key]) and None


def facts_without(*names: str) -> Callable[[duckdb.DuckDBPyConnection], None]:
    """The manifest's facts without some."""
    return stating("facts", lambda facts: {key: value for key, value in facts.items() if key not in names})


SPOILT: dict[str, list[Any]] = {
    "no manifest": [f"DROP TABLE {MANIFEST}"],
    "an empty manifest": [f"DELETE FROM {MANIFEST}"],
    "a manifest without facts": [f"DELETE FROM {MANIFEST} WHERE key = 'facts'"],
    "a manifest of other columns": [f"CREATE OR REPLACE TABLE {MANIFEST} AS SELECT 1 AS a, 2 AS b, 3 AS c"],
    "a manifest that is a view of itself": [
        f"ALTER TABLE {MANIFEST} RENAME TO m",
        f"CREATE VIEW {MANIFEST} AS SELECT * FROM m",
    ],
    "a manifest of more columns": [f"ALTER TABLE {MANIFEST} ADD COLUMN note VARCHAR"],
    "an entry that is not JSON": [raw("facts", "{")],
    "an entry that nests deeply": [raw("facts", "[" * 100_000)],
    "an entry that is a huge number": [raw("records", "9" * 5000)],
    "an entry with a number that is none": [raw("records", "NaN")],
    "an unknown entry": [f"INSERT INTO {MANIFEST} VALUES ('note', '\"Alice has HIV\"')"],
    "an entry without a key": [f"INSERT INTO {MANIFEST} VALUES (NULL, '1')"],
    "an entry twice": [f"INSERT INTO {MANIFEST} SELECT * FROM {MANIFEST} WHERE key = 'name'"],
    "a fact that is none": [stating("facts", lambda facts: facts | {"note": "Alice has HIV"})],
    "a lower bound with a fraction": [fact("lower_bound", lambda bound: bound + 0.5)],
    "a setting with a fraction": [
        fact("setting", lambda setting: {size: buckets + 0.5 for size, buckets in setting.items()})
    ],
    "an unknown parameter": [parameter("epsilon", 1)],
    "a rule that is not linear": [parameter("threshold", {"default": "f*f", "values": {}})],
    "another mechanism": [raw("mechanism", '"noise"')],
    "no facts": [raw("facts", "{}")],
    "facts without a setting": [facts_without("setting")],
    "facts without a lower bound": [facts_without("lower_bound")],
    "facts without a layout": [facts_without("layout")],
    "an empty setting": [fact("setting", lambda _: {})],
    "a setting that is a list": [fact("setting", lambda _: [4, 100])],
    "a setting of words": [fact("setting", lambda _: {"four": 100})],
    "a huge setting": [fact("setting", lambda _: {"4": 10**30})],
    "a lower bound of words": [fact("lower_bound", lambda _: "low")],
    "a layout that is a number": [fact("layout", lambda _: 7)],
    "no quasi-identifiers": [raw("quasi_identifiers", "[]")],
    "a column of an unknown type": [raw("sensitive", '[{"name": "disease", "type": "ILLNESS"}]')],
    "a column that is there twice": [
        raw("quasi_identifiers", '[{"name": "age", "type": "INTEGER"}, {"name": "AGE", "type": "INTEGER"}]')
    ],
    "a rule that never ends": [parameter("threshold", {"default": "-" * 5000 + "1", "values": {}})],
    "no view and no name": ["DROP VIEW ill_pairs", "DROP VIEW ill_weighted", stating("name", lambda _: "")],
    "no qit": ["DROP VIEW ill_pairs", "DROP VIEW ill_weighted", "DROP TABLE qit"],
    "no st": ["DROP VIEW ill_pairs", "DROP VIEW ill_weighted", "DROP TABLE st"],
    "no thresholds": ["DROP TABLE {values}"],
    "qit that is a view": ["ALTER TABLE qit RENAME TO q", "CREATE VIEW qit AS SELECT * FROM q"],
    "a view that can not be read": ["CREATE OR REPLACE VIEW ill_pairs AS SELECT * FROM read_csv('/nowhere.csv')"],
}


@pytest.mark.slow
@each("what", SPOILT, few=10)
def test_what_is_no_release_any_more_is_refused_without_a_traceback(ward: Path, tmp_path: Path, what: str) -> None:
    try:
        release = changed(ward, tmp_path, *SPOILT[what])
    except duckdb.Error:
        pytest.skip("DuckDB itself refuses this change")
    done = run("verify", release)
    assert done.crash is None, repr(done.crash)
    assert done.code in {1, 2, 4}
    assert ": verified" not in done.out.replace("\n", "")
    if done.code != 1:
        refused(done, done.code)
    for arguments in (["query", release, "SELECT COUNT(*) FROM ill WHERE age < 30 AND disease = 'flu'"],):
        other = run(*arguments)
        assert other.crash is None, (arguments[0], repr(other.crash))
        assert other.code in {0, 1, 2, 4}


@pytest.mark.slow
def test_a_release_can_not_make_verify_run_its_sql(ward: Path, tmp_path: Path) -> None:
    stolen = tmp_path / "stolen.txt"
    statement = f"COPY (SELECT 1) TO '{stolen}'"
    types = [f"INTEGER); {statement}; CREATE TABLE more (a INTEGER", f"INTEGER DEFAULT 1); {statement} --"]
    for kind in types:
        release = changed(
            ward,
            tmp_path,
            stating("quasi_identifiers", lambda fields, kind=kind: [fields[0] | {"type": kind}, *fields[1:]]),
        )
        for arguments in (["verify", release], ["query", release, "SELECT COUNT(*) FROM ill"]):
            done = run(*arguments)
            assert not stolen.exists(), (arguments[0], kind)
            assert done.crash is None, repr(done.crash)
        assert run("verify", release).code in {1, 2, 4}


def test_the_manifest_of_a_release_can_not_reach_outside(ward: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text('"the secret"', encoding="utf-8")
    release = changed(
        ward,
        tmp_path,
        f"ALTER TABLE {MANIFEST} RENAME TO stated",
        f"CREATE VIEW {MANIFEST} AS SELECT key, CASE key WHEN 'duckdb' THEN "
        f"(SELECT content FROM read_text('{tmp_path / 'secret.txt'}')) ELSE value END AS value FROM stated",
    )
    for arguments in (["verify", release], ["query", release, "SELECT COUNT(*) FROM ill"]):
        done = run(*arguments)
        assert done.crash is None, repr(done.crash)
        assert "the secret" not in done.out + done.err, arguments[0]
        assert arguments[0] == "query" or done.code in {1, 2, 4}


def test_the_view_of_a_release_can_not_reach_outside(ward: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("age,sex,zip,disease,weight\n1,F,1,flu,1.0\n", encoding="utf-8")
    release = changed(ward, tmp_path, f"CREATE OR REPLACE VIEW ill_pairs AS SELECT * FROM read_csv('{secret}')")
    told(run("verify", release, "--json"), CONTENTS, "'ill_pairs'")
    refused(run("query", release, "SELECT COUNT(*) FROM ill"), 1, "'ill_pairs'")


def test_changes_that_lie_in_a_log_beside_the_release_are_told(ward: Path, tmp_path: Path) -> None:
    original = tmp_path / "original.duckdb"
    shutil.copy(ward / "ill.duckdb", original)
    with duckdb.connect(str(original)) as db:
        db.execute("SET checkpoint_threshold = '1GB'")
        db.execute("CREATE TABLE raw AS SELECT 'Alice has HIV' AS a")
        shutil.copy(original, tmp_path / "ill.duckdb")
        shutil.copy(f"{original}.wal", tmp_path / "ill.duckdb.wal")
    done = run("verify", tmp_path / "ill.duckdb", "--json")
    assert done.crash is None
    assert done.code in {1, 4}


# A release that is a folder of Parquet files ---


def rewritten(folder: Path, table: str, sql: str) -> None:
    """One table of a folder, changed; ``{table}`` is what it held."""
    path = folder / f"{table}.parquet"
    with duckdb.connect() as db:
        db.execute("CREATE TABLE held AS SELECT * FROM read_parquet(?)", [str(path)])
        db.execute(f"COPY ({sql.format(table='held')}) TO '{path}'")
    seal(folder)


FOLDER: dict[str, tuple[str, str, str, list[str]]] = {
    "a raised count": (
        "st",
        "SELECT * REPLACE (CASE WHEN rowid = 0 THEN count + 1 ELSE count END::INTEGER AS count) FROM {table}",
        "setting is as stated",
        ["claimed_buckets"],
    ),
    "a row in another bucket": (
        "qit",
        "SELECT * REPLACE (CASE WHEN rowid = 0 THEN 1 ELSE bid END::INTEGER AS bid) FROM {table}",
        "agree on every bucket",
        ["bid=1", "place=0"],
    ),
    "another order": ("qit", "SELECT * FROM {table} ORDER BY age", "canonical order", []),
    "an id column": ("qit", "SELECT rowid AS person, * FROM {table}", CONTENTS, ["'person'"]),
    "a column of another type": ("qit", "SELECT * REPLACE (age::BIGINT AS age) FROM {table}", CONTENTS, ["'age'"]),
    "another loss": (
        MANIFEST,
        "SELECT * REPLACE (replace(value, '\"loss\": ', '\"loss\": 1') AS value) FROM {table}",
        "loss and bounds",
        ["loss"],
    ),
}


@pytest.mark.slow
@each("what", FOLDER)
def test_verify_tells_from_a_folder_alone(ward: Path, tmp_path: Path, what: str) -> None:
    table, sql, check, words = FOLDER[what]
    shutil.copytree(ward / "ill", tmp_path / "ill")
    rewritten(tmp_path / "ill", table, sql)
    told(run("verify", tmp_path / "ill", "--json"), check, *words)


@pytest.mark.parametrize("name", ["raw.parquet", "raw.csv", "notes/raw.parquet", "qit.parquet.old"])
def test_verify_tells_what_does_not_belong_into_a_folder(ward: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(ward / "ill", tmp_path / "ill")
    target = tmp_path / "ill" / name
    target.parent.mkdir(exist_ok=True)
    shutil.copy(ward / "people.parquet", target)
    told(
        run("verify", tmp_path / "ill", "--json"),
        "holds the stated files",
        name.split("/", maxsplit=1)[0].split(".parquet", maxsplit=1)[0],
    )


@pytest.mark.slow
@each("name", ["qit", "st", MANIFEST], few=4)
@each("fault", ["missing", "empty", "half", "garbage"])
def test_a_folder_that_is_no_release_any_more(ward: Path, tmp_path: Path, name: str, fault: str) -> None:
    shutil.copytree(ward / "ill", tmp_path / "ill")
    path = tmp_path / "ill" / f"{name}.parquet"
    content = path.read_bytes()
    path.unlink()
    if fault != "missing":
        path.write_bytes({"empty": b"", "half": content[: len(content) // 2], "garbage": b"garbage" * 100}[fault])
    for arguments in (
        ["verify", tmp_path / "ill"],
        ["query", tmp_path / "ill", "SELECT COUNT(*) FROM ill"],
    ):
        done = run(*arguments)
        assert done.crash is None, repr(done.crash)
        assert done.code in {1, 2, 4}
        assert done.code == 1 or len(done.err.strip().splitlines()) == 1
