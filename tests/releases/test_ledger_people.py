"""Whose records these are: the ledger knows people by their population, by ids of any type, and by their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import column, normal_name, temp_table
from privsql.releases.contents import digest_release
from privsql.source.targets import Target
from support.commands import Outcome, composed, manifest, refused, rows, run, specification, succeeded, write
from support.loops import rest_slow
from support.office import COLUMNS, SALARIES, Office

if TYPE_CHECKING:
    from pathlib import Path


TABLE = 'database = "office.duckdb"\ntable = "people"'
BUCKETIZE = 'kind = "bucketize"\nthreshold = 0.5'
RANDOMIZE = 'kind = "randomize"\nrho1 = 0.5\nrho2 = 0.9'
PERMUTE = 'kind = "permute"\nk = 3\ne = 2'
# Two tables of 400 records: nearly all of one are unlike all others, those of the other are of 8 kinds.
FINE = "SELECT i AS id, i * 7919 % 3001 AS age, CASE i % 2 WHEN 0 THEN 'f' ELSE 'm' END AS gender, i % 5 AS salary"
COARSE = "SELECT i AS id, i % 2 AS age, CASE i % 2 WHEN 0 THEN 'f' ELSE 'm' END AS gender, i * i % 5 AS salary"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office with the thesis' D0."""
    made = Office(tmp_path)
    made.hire(SALARIES[0])
    return made


def spec(folder: Path, file: str, more: str = "", mechanism: str = BUCKETIZE, ledger: str = "") -> Path:
    """A request to publish one of several files; its release is called as the file is."""
    name = file.split(".", maxsplit=1)[0]
    return specification(
        folder,
        source=f'file = "{file}"\n{more}',
        columns=COLUMNS,
        release=f'name = "pay"\nto = "{name}_out.duckdb"',
        mechanism=f"{mechanism}\n{ledger}",
        name=f"{name}.toml",
    )


# Ids ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_slow(["BIGINT", "VARCHAR", "DOUBLE", "DECIMAL(9, 2)", "UTINYINT"]))
def test_a_chain_is_one_whatever_the_type_and_the_name_of_the_id(kind: str, office: Office) -> None:
    """Else D1 alone has the groups 80..82 and 83..85, and with D0's 82, 84, 85 the one who left is known exactly."""
    office.publish()
    office.hire(SALARIES[1])
    office.sql(f"ALTER TABLE people ALTER id TYPE {kind}")
    office.sql("ALTER TABLE people RENAME id TO person")
    office.publish(source=f'{TABLE}\nid = "person"')
    groups = rows(office.made[1], "SELECT list(salary ORDER BY salary) FROM st GROUP BY bid ORDER BY bid")
    assert groups == [([80, 81, 82, 83, 84, 85],), ([88, 89, 90, 91],)]
    assert [entry["fresh"] for entry in office.entries()] == [7, 3]
    assert succeeded("verify", office.made[1], "--against", office.made[0], "--json").json["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("names", ["i + 1000", "md5(CAST(i AS VARCHAR))"])
def test_other_ids_of_another_column_tell_nothing(names: str, tmp_path: Path) -> None:
    """The same records under two columns of ids, neither of which is in the other one, were two groups of people."""
    query = f"SELECT i AS visit, {names} AS ssn, i * 7919 % 3001 AS age, 'f' AS gender, i % 5 AS salary"
    write(tmp_path / "one.parquet", f"{query} FROM range(400) t(i)")
    succeeded("publish", spec(tmp_path, "one.parquet", 'id = "visit"'))
    second = spec(tmp_path, "one.parquet", 'id = "ssn"', RANDOMIZE)
    refused(run("publish", second, "--replace"), 1, "was another column", "may be here again")


@pytest.mark.slow
def test_a_chain_is_one_through_a_query_of_the_same_table(office: Office) -> None:
    office.publish()
    office.hire(SALARIES[1])
    query = "WITH those AS (SELECT CAST(id AS VARCHAR) AS nr, age, gender, salary FROM main.People) FROM those"
    office.publish(source=f'database = "office.duckdb"\nquery = "{query}"\nid = "nr"')
    assert office.entries()[1]["composes"].startswith("every Boolean combination")


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", rest_slow([BUCKETIZE, RANDOMIZE, PERMUTE]))
@pytest.mark.parametrize("ids", [("", ""), *rest_slow([['id = "id"', ""], ["", 'id = "id"']], 0)])
def test_without_an_id_any_earlier_release_of_the_source_counts(
    mechanism: str, ids: tuple[str, str], tmp_path: Path
) -> None:
    office = Office(tmp_path, mechanism)
    office.hire(SALARIES[0])
    office.publish(source=f"{TABLE}\n{ids[0]}")
    office.hire(SALARIES[1])
    again = office.arguments(source=f"{TABLE}\n{ids[1]}")
    refused(run(*again), 1, "release 1 (pay,", "without source.id", "option allow_composition", "ledger withdraw 1")
    assert not office.made[-1].exists()
    succeeded(*again, "--allow-composition")
    (stated,) = manifest(office.made[-1])["composition"]
    assert (stated["reason"], stated["releases"]) == ("assumed", 1)
    assert digest_release(Target(office.made[0])).startswith(stated["release"])
    assert len(office.entries()) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    rest_slow([(BUCKETIZE, RANDOMIZE), (RANDOMIZE, PERMUTE), (PERMUTE, BUCKETIZE), (BUCKETIZE, BUCKETIZE)]),
)
def test_a_second_release_of_the_same_people_is_refused(first: str, second: str, tmp_path: Path) -> None:
    office = Office(tmp_path, first)
    office.hire(SALARIES[0])
    office.publish()
    again = office.arguments("--seed", 5, mechanism=second)
    refused(run(*again), 1, "these people are in release 1", "no guarantee covers both")
    succeeded(*again, "--allow-composition")
    assert "composition allowed" in " ".join(succeeded("verify", office.made[-1], "--json").json["notes"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithms", "covered"),
    rest_slow(
        [
            (("nested", "exact"), "no two groups"),
            (("exact", "nested", "nested"), "every Boolean"),
            (("exact", "exact", "nested"), "no two groups"),
            (("nested", "reapply-last"), "the last release only"),
            (("nested", "nested", "reapply-last"), None),
        ]
    ),
)
def test_another_algorithm_goes_on_where_a_guarantee_covers_both(
    algorithms: tuple[str, ...], covered: str | None, tmp_path: Path
) -> None:
    office = Office(tmp_path)
    for people, algorithm in zip(SALARIES, algorithms, strict=False):
        office.hire(people)
        done = office.arguments(mechanism=f'{PERMUTE}\nalgorithm = "{algorithm}"')
        if covered is None and algorithm == algorithms[-1]:
            refused(run(*done), 1, "no guarantee covers both")
        else:
            succeeded(*done)
    if covered is not None:
        assert covered in office.entries()[-1]["composes"]


# The same release again -----------------------------------------------------------------------------------------------


@pytest.mark.soak(part="long")
@pytest.mark.parametrize("mechanism", rest_slow([BUCKETIZE, RANDOMIZE, PERMUTE]))
@pytest.mark.parametrize("identifier", rest_slow(['id = "id"', ""]))
def test_the_same_request_gives_the_same_release(mechanism: str, identifier: str, tmp_path: Path) -> None:
    office = Office(tmp_path, mechanism)
    office.hire(SALARIES[0])
    for _ in range(2):
        office.publish(source=f"{TABLE}\n{identifier}")
    names = [name for (name,) in rows(office.made[0], "SELECT table_name FROM duckdb_tables()")]
    for name in set(names) - {"privsql_manifest"}:
        assert rows(office.made[0], f"FROM {name}") == rows(office.made[1], f"FROM {name}")
    assert manifest(office.made[1])["composition"] == []
    succeeded(*office.arguments("--format", "parquet", source=f"{TABLE}\n{identifier}"))
    office.sql("UPDATE people SET age = 22 WHERE id = 1")
    done = run(*office.arguments(source=f"{TABLE}\n{identifier}"))
    refused(done, 1, "option allow_composition publishes")


@pytest.mark.slow
def test_a_repeat_that_comes_out_otherwise_is_refused(tmp_path: Path) -> None:
    """Thresholds from a query may change, and with them the release, while request, records and key are the same."""
    office = Office(tmp_path, 'kind = "bucketize"\nthreshold = { query = "SELECT salary, bound FROM bounds" }')
    office.hire(SALARIES[0])
    office.sql("CREATE TABLE bounds AS SELECT DISTINCT salary, 0.5 AS bound FROM people")
    office.publish()
    office.publish()
    office.sql("UPDATE bounds SET bound = 0.25")
    refused(run(*office.arguments()), 1, "the setting that the ledger holds", "does not fit", "or thresholds")
    assert not office.made[-1].exists()
    assert len(office.entries()) == 2


# Another population ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("identifier", rest_slow(['id = "id"', ""]))
@pytest.mark.parametrize(
    "copied",
    rest_slow(
        [
            "SELECT * FROM fine",
            "SELECT * FROM fine ORDER BY age DESC",
            "SELECT * FROM fine UNION ALL SELECT 1000 + i, i, 'f', 3 FROM range(40) t(i)",
            "SELECT * FROM fine WHERE id > 30",
            "SELECT id + 5000 AS id, age, gender, salary FROM fine",
            "SELECT CAST(id AS VARCHAR) AS id, CAST(age AS DOUBLE) AS age, gender, salary FROM fine",
            "SELECT id, age, gender, CASE WHEN id < 20 THEN 7 ELSE salary END AS salary FROM fine",
        ]
    ),
)
def test_rows_of_another_population_are_noticed(copied: str, identifier: str, tmp_path: Path) -> None:
    write(tmp_path / "one.parquet", f"{FINE} FROM range(400) t(i)")
    write(tmp_path / "two.csv", copied.replace("fine", f"'{tmp_path / 'one.parquet'}'"))
    succeeded("publish", spec(tmp_path, "one.parquet", identifier))
    second = spec(tmp_path, "two.csv", identifier)
    refused(run("publish", second), 1, "release 1", "another population", f"population = '{tmp_path.name}/one'")
    assert not (tmp_path / "two_out.duckdb").exists()
    succeeded("publish", second, "--allow-composition")
    assert "another population" in composed(tmp_path / "two_out.duckdb")[0]


@pytest.mark.slow
def test_a_population_goes_on_where_the_file_has_moved(office: Office) -> None:
    """The remedy that a refusal names is taken."""
    office.sql("ALTER TABLE people ALTER id TYPE VARCHAR USING md5(id::VARCHAR)")
    office.publish()
    (office.folder / "office.duckdb").rename(office.folder / "moved.duckdb")
    moved = 'database = "moved.duckdb"\ntable = "people"\nid = "id"'
    with duckdb.connect(str(office.folder / "moved.duckdb")) as db:
        db.execute(f"INSERT INTO people SELECT md5(i::VARCHAR), a, g, s FROM (VALUES {SALARIES[1]}) v(i, a, g, s)")
    refused(run(*office.arguments(source=moved)), 1, "another population", "ids are", "population = 'office.people'")
    named = f'{moved}\npopulation = "office.people"'
    office.publish(source=named)
    entries = succeeded("ledger", office.spec(source=named), "--json").json["releases"]
    assert [entry["fresh"] for entry in entries] == [7, 3]
    assert entries[1]["composes"].startswith("every Boolean combination")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two"),
    rest_slow(
        [
            (f"{FINE} FROM range(400) t(i)", f"{FINE.replace('7919', '4001')} FROM range(400) t(i)"),
            (f"{COARSE} FROM range(400) t(i)", f"{COARSE.replace('i * i', 'i * 3')} FROM range(401) t(i)"),
            (f"{COARSE} FROM range(30) t(i)", f"{COARSE.replace('i * i', 'i // 7')} FROM range(400) t(i)"),
        ]
    ),
)
def test_other_people_are_not_taken_for_the_same(one: str, two: str, tmp_path: Path) -> None:
    """Other values, and tables of a few kinds of records that all tables of this kind share."""
    for name, query in (("one", one), ("two", two)):
        write(tmp_path / f"{name}.parquet", query)
        succeeded("publish", spec(tmp_path, f"{name}.parquet"))
    assert manifest(tmp_path / "two_out.duckdb")["composition"] == []


# What a second release of the same people looks like ------------------------------------------------------------------

PEOPLE = """
SELECT md5('{people}' || i) AS uid, i + 1 AS nr, CAST(18 + md5_number('{people}a' || i) % 61 AS INTEGER) AS age,
  CASE WHEN md5_number('{people}g' || i) % 2 = 0 THEN 'f' ELSE 'm' END AS gender,
  CAST(md5_number('{people}s' || i) % 7 AS INTEGER) AS salary
FROM range({n}) t(i)
"""
ONE, MORE, OTHER = (PEOPLE.format(people=people, n=n) for people, n in (("x", 300), ("y", 90), ("z", 300)))
NEW = "upper(gender) AS gender, salary + 9 AS salary"
CAPITALS = "SELECT * REPLACE (upper(gender) AS gender) FROM one"
FOUND, STATED, PASSES = "found", "stated", "passes"
# Of a table and another one: the column of ids, the query of the second, and what becomes of it under another name.
CASES = {
    "the same ids, older by a year": ("uid", "SELECT * REPLACE (age + 1 AS age) FROM one", FOUND),
    "the same ids, all values others": ("uid", f"SELECT * REPLACE (age + 1 AS age, {NEW}) FROM one", FOUND),
    "ids in capitals, between blanks": ("uid", f"SELECT * REPLACE (' ' || upper(uid) AS uid, {NEW}) FROM one", FOUND),
    "ids as UUIDs": ("uid", f"SELECT * REPLACE ('{{' || uid::UUID || '}}' AS uid, {NEW}) FROM one", FOUND),
    "new ids": ("uid", "SELECT * REPLACE (md5(uid) AS uid) FROM one", FOUND),
    "the same without some rows": ("", "SELECT * FROM one WHERE nr > 30", FOUND),
    "columns in another order": ("", "SELECT salary, gender, age FROM one", FOUND),
    "numbers for ids, the same records": ("nr", "SELECT * FROM one", FOUND),
    "every record twice": ("", "SELECT * FROM one UNION ALL SELECT * FROM one", FOUND),
    "a copy of 19 records": ("", "SELECT * FROM one", FOUND),
    "three of them among others": ("uid", f"SELECT * FROM one WHERE nr < 4 UNION ALL ({MORE})", FOUND),
    "other people numbered from 1": ("nr", PEOPLE.format(people="z", n=290), PASSES),
    "other people": ("uid", OTHER, PASSES),
    "other people without ids": ("", OTHER, PASSES),
    "other people, every one twice": ("", f"({OTHER}) UNION ALL ({OTHER})", PASSES),
    "customers and employees, both numbered from 1": (
        "nr",
        f"SELECT nr, age AS since, gender AS region, salary FROM ({PEOPLE.format(people='c', n=300)})",
        PASSES,
    ),
    # These were found. In another population one id may be chance, such as AB1234 in two hospitals.
    "one of them among others": ("uid", f"SELECT * FROM one WHERE nr = 1 UNION ALL ({MORE})", STATED),
    # These were found. No column is compared along numbers, none under another name, and no subset of columns.
    "numbers for ids, older by a year": ("nr", "SELECT * REPLACE (age + 1 AS age) FROM one", PASSES),
    "numbers as texts, older by a year": (
        "nr",
        "SELECT * REPLACE (printf('%04d', nr) AS nr, age + 1 AS age) FROM one",
        PASSES,
    ),
    "columns under other names": ("", "SELECT gender AS a, age AS b, salary AS x FROM one", PASSES),
    "fewer columns": ("", "SELECT age, salary FROM one", PASSES),
    # This was not found, and is not under another name.
    "one column in capitals": ("", CAPITALS, PASSES),
}


def publish_as(folder: Path, name: str, query: str, *flags: str) -> Outcome:
    """Publish a table under a name of its own; a query reads ``one``."""
    file = folder / f"{name}.parquet"
    write(file, query.replace("FROM one", f"FROM '{folder / 'one.parquet'}'"))
    with duckdb.connect() as db:
        columns = [row[0] for row in db.execute(f"DESCRIBE FROM '{file}'").fetchall()]
    shown = [one for one in columns if one not in ("uid", "nr")]
    sensitive = next(one for one in ("salary", "x", "s") if one in shown)
    roles = ["--qi", ",".join(one for one in shown if one != sensitive), "--sensitive", sensitive]
    return run("publish", file, *roles, *flags, "--threshold", 0.5, "--to", folder / f"{name}.duckdb")


def identified(column: str) -> list[str]:
    """The flag that names ids, if there are any."""
    return ["--id", column] if column else []


SPELLINGS = [
    ("1", "001", "1.0", " +1 ", "01."),
    ("0", "000", "0.0"),
    ("A-1", " a-1"),
    ("550e8400-e29b-41d4-a716-446655440000", "{550E8400-E29B-41D4-A716-446655440000}"),
    ("01234567-89ab-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdef"),
    ("10",), ("1.5",), ("p-01",), ("p-1",), ("-1",), ("a1",), ("",),
]  # fmt: skip


def test_names_are_compared_however_they_are_spelled() -> None:
    rows = [(group, spelling) for group, alike in enumerate(SPELLINGS) for spelling in alike]
    with open_scratch() as db:
        db.register_arrow("given", pa.table({"group": [one for one, _ in rows], "name": [two for _, two in rows]}))
        found = db.rows(exp.select(column("group"), normal_name(column("name"))).from_(temp_table("given")))
    forms = [{form for at, form in found if at == group} for group in range(len(SPELLINGS))]
    assert all(len(form) == 1 for form in forms), forms
    assert len(set.union(*forms)) == len(SPELLINGS), forms


@pytest.mark.parametrize("case", rest_slow(list(CASES)))
def test_who_is_the_same_under_another_name(case: str, tmp_path: Path) -> None:
    column, query, expected = CASES[case]
    first = f"{ONE} WHERE i < 19" if "19" in case else ONE
    assert publish_as(tmp_path, "one", first, *identified(column)).code == 0
    done = publish_as(tmp_path, "two", query, *identified(column))
    if expected == FOUND:
        refused(
            done, 1, "release 1", "another population", f"say source.population = '{tmp_path.name}/one'", "withdraw 1"
        )
        return
    assert done.code == 0, done.err
    stated = manifest(tmp_path / "two.duckdb")
    assert stated["composition"] == []
    assert [one["relation"] for one in stated.get("beside", [])] == (["ids"] if expected == STATED else [])
    assert ("1 of 91 ids are in release 1" in done.err) == (expected == STATED)


# The same population --------------------------------------------------------------------------------------------------

SHIFTED = "SELECT * REPLACE (nr + {by} AS nr) FROM ({people})"
EXPORTS = {  # of the same name but for its date
    "a copy without ids, by another key": ("", "SELECT * FROM one", "without source.id"),
    "one column in capitals": ("", CAPITALS, "without source.id"),
    "other people without ids": ("", OTHER, "without source.id"),
    "numbers, other values": ("nr", OTHER, "some of its ids are here"),
    "one id in common": ("nr", SHIFTED.format(by=299, people=OTHER), "some of its ids are here"),
    "a day's new records": ("nr", SHIFTED.format(by=300, people=OTHER), ""),
    "new records like the old ones": ("nr", SHIFTED.format(by=300, people=ONE), ""),
}


@pytest.mark.parametrize("case", rest_slow(list(EXPORTS)))
def test_who_is_the_same_in_one_population(case: str, tmp_path: Path) -> None:
    """Daily files whose ids are others pass; without ids nothing tells that these people were not there before."""
    column, query, why = EXPORTS[case]
    write(tmp_path / "one.parquet", ONE)
    assert publish_as(tmp_path, "visits_2024-05-01", ONE, *identified(column)).code == 0
    done = publish_as(tmp_path, "visits_2024-05-02", query, *identified(column), "--seed", "5")
    if not why:
        assert done.code == 0, done.err
        assert manifest(tmp_path / "visits_2024-05-02.duckdb")["composition"] == []
        return
    refused(done, 1, "release 1", why, "ledger withdraw 1", "option allow_composition publishes")
    assert ("a source.population of their own" in done.err) == (not column)


@pytest.mark.slow
def test_the_remedies_of_a_refusal_work(tmp_path: Path) -> None:
    """Other people get a population of their own, other ids a prefix, and what nobody has is withdrawn."""
    assert publish_as(tmp_path, "visits_1999", ONE).code == 0
    refused(publish_as(tmp_path, "visits_2001", OTHER), 1, "if these are other people, give them a source.population")
    assert publish_as(tmp_path, "visits_2001", OTHER, "--set", "source.population=others").code == 0
    refused(publish_as(tmp_path, "visits_2002", ONE, "--seed", "5"), 1, "release 1", "ledger withdraw 1")
    succeeded("ledger", "withdraw", "1")
    assert publish_as(tmp_path, "visits_2002", ONE, "--seed", "5").code == 0
    staff = "SELECT * REPLACE ('AB' || nr AS uid) FROM ({})"
    assert publish_as(tmp_path, "staff", staff.format(PEOPLE.format(people="s", n=300)), "--id", "uid").code == 0
    others = PEOPLE.format(people="g", n=300)
    guests = f"SELECT * REPLACE (CASE WHEN nr > 9 THEN 'AB' ELSE 'guest' END || nr AS uid) FROM ({others})"
    refused(publish_as(tmp_path, "guests", guests, "--id", "uid"), 1, "put a prefix before them in source.query")
    prefixed = f"SELECT * REPLACE ('guest-' || uid AS uid) FROM ({guests})"
    done = publish_as(tmp_path, "guests", prefixed, "--id", "uid")
    assert done.code == 0, done.err


@pytest.mark.slow
def test_two_hospitals_with_one_id_in_common_are_stated(tmp_path: Path) -> None:
    """Of 2,000 patients each, whose numbers have the form AB1234."""
    wards = [
        f"SELECT * REPLACE (CASE nr WHEN 1 THEN 'AB1234' ELSE '{ward}' || nr END AS uid) "
        f"FROM ({PEOPLE.format(people=ward, n=2000)})"
        for ward in ("CD", "EF")
    ]
    assert publish_as(tmp_path, "north", wards[0], "--id", "uid").code == 0
    done = publish_as(tmp_path, "south", wards[1], "--id", "uid")
    assert done.code == 0, done.err
    assert "1 of 2,000 ids are in release 1 (north, bucketize), too" in done.err
    (stated,) = manifest(tmp_path / "south.duckdb")["beside"]
    shown = f"a few of its ids are also in a release of {stated['made']}, of another population"
    for verbose in ([], ["--verbose"]):
        assert shown in " ".join(succeeded("verify", *verbose, tmp_path / "south.duckdb").out.split())
    succeeded("verify", tmp_path / "south.duckdb", "--source", tmp_path / "south.parquet")
