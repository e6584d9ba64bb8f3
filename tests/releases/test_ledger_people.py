"""Whose records these are: the ledger knows the same people by ids of any type, without ids, and under another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import column, normal_name, temp_table
from privsql.releases.ledger.evidence import CommonRecords, RecordSummary
from support.commands import Outcome, manifest, refused, rows, run, specification, succeeded, write
from support.loops import rest_slow
from support.office import COLUMNS, SALARIES, Office

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TABLE = 'database = "office.duckdb"\ntable = "people"'
BUCKETIZE = 'kind = "bucketize"\nthreshold = 0.5'
RANDOMIZE = 'kind = "randomize"\nrho1 = 0.5\nrho2 = 0.9'
PERMUTE = 'kind = "permute"\nk = 3\ne = 2'
# Two tables of 400 records: nearly all of one are unlike all others, those of the other are of 8 kinds.
FINE = "SELECT i AS id, i * 7919 % 3001 AS age, CASE i % 2 WHEN 0 THEN 'f' ELSE 'm' END AS gender, i % 5 AS salary"
COARSE = "SELECT i AS id, i % 2 AS age, CASE i % 2 WHEN 0 THEN 'f' ELSE 'm' END AS gender, i * i % 5 AS salary"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """An office with the thesis' D0, published once."""
    made = Office(tmp_path)
    made.hire(SALARIES[0])
    made.publish()
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
    office.hire(SALARIES[1])
    office.sql(f"ALTER TABLE people ALTER id TYPE {kind}")
    office.sql("ALTER TABLE people RENAME id TO person")
    office.publish(source=f'{TABLE}\nid = "person"')
    groups = rows(office.made[1], "SELECT list(salary ORDER BY salary) FROM st GROUP BY bid ORDER BY bid")
    assert groups == [([80, 81, 82, 83, 84, 85],), ([88, 89, 90, 91],)]
    assert [entry["fresh"] for entry in office.entries()] == [7, 3]
    assert succeeded("verify", office.made[1], "--against", office.made[0], "--json").json["ok"]


@pytest.mark.slow
def test_a_chain_is_one_through_a_query_of_the_same_table(office: Office) -> None:
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
    refused(run(*again), 1, "release 1 (pay,", "without source.id", "--allow-composition", "ledger withdraw 1")
    assert not office.made[-1].exists()
    succeeded(*again, "--allow-composition")
    assert "without source.id" in manifest(office.made[-1])["composition"][0]
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
    refused(done, 1, "--allow-composition")


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


# Another name ---------------------------------------------------------------------------------------------------------


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
def test_rows_under_another_name_are_noticed(copied: str, identifier: str, tmp_path: Path) -> None:
    write(tmp_path / "one.parquet", f"{FINE} FROM range(400) t(i)")
    write(tmp_path / "two.csv", copied.replace("fine", f"'{tmp_path / 'one.parquet'}'"))
    succeeded("publish", spec(tmp_path, "one.parquet", identifier))
    second = spec(tmp_path, "two.csv", identifier)
    refused(run("publish", second), 1, "release 1", "another name", f"source.name = '{tmp_path / 'one.parquet'}'")
    assert not (tmp_path / "two_out.duckdb").exists()
    succeeded("publish", second, "--allow-composition")
    assert "another name" in manifest(tmp_path / "two_out.duckdb")["composition"][0]


@pytest.mark.slow
def test_rows_are_noticed_by_the_columns_that_were_published(tmp_path: Path) -> None:
    """Of the same table other columns are asked for: those of the first release are there to compare."""
    write(tmp_path / "one.parquet", f"{FINE} FROM range(400) t(i)")
    write(tmp_path / "two.parquet", f"{FINE}, i * 31 % 7 AS job FROM range(400) t(i)")
    succeeded("publish", spec(tmp_path, "one.parquet"))
    second = spec(tmp_path, "two.parquet")
    second.write_text(second.read_text().replace('sensitive = "salary"', 'sensitive = "job"'))
    refused(run("publish", second), 1, "release 1", "another name")


@pytest.mark.slow
def test_a_name_goes_on_where_the_file_has_moved(office: Office) -> None:
    old = f"{office.folder / 'office.duckdb'}:people"
    (office.folder / "office.duckdb").rename(office.folder / "moved.duckdb")
    moved = 'database = "moved.duckdb"\ntable = "people"\nid = "id"'
    with duckdb.connect(str(office.folder / "moved.duckdb")) as db:
        db.execute(f"INSERT INTO people VALUES {SALARIES[1]}")
    refused(run(*office.arguments(source=moved)), 1, "another name", f"source.name = '{old}'")
    named = f'{moved}\nname = "{old}"'
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


def summary(values: NDArray[Any]) -> RecordSummary:
    """A table of one column as the ledger sums it up."""
    kinds, counts = np.unique(values, return_counts=True)
    mark = str(sum(int(kind) * int(count) * 2**40 for kind, count in zip(kinds, counts, strict=True)))
    return RecordSummary(len(values), int((counts == 1).sum()), int((counts == 2).sum()), mark)


def compared(ours: NDArray[Any], theirs: NDArray[Any]) -> CommonRecords:
    """What two tables have in common."""
    kinds = np.intersect1d(theirs, ours)
    a, b = (np.array([(values == kind).sum() for kind in kinds]) for values in (theirs, ours))
    return CommonRecords(summary(ours), summary(theirs), int(a.sum()), int(b.sum()), int(np.minimum(a, b).sum()))


POPULATIONS = {
    "uniform": lambda rng, n: rng.integers(0, 2000, n),
    "zipf": lambda rng, n: np.minimum(rng.zipf(1.3, n), 10**6),
    "coarse": lambda rng, n: rng.integers(0, 12, n),
    "nearly all different": lambda rng, n: rng.integers(0, 10**7, n),
}


@pytest.mark.parametrize("population", POPULATIONS)
def test_samples_of_one_population_are_no_copies(population: str) -> None:
    """Five standard deviations are one false alarm in three million; here are 100 pairs of samples."""
    rng = np.random.default_rng(11)
    for _ in range(100):
        one, two = (POPULATIONS[population](rng, int(rng.integers(150, 800))) for _ in range(2))
        assert not compared(two, one).exceeds_chance


@pytest.mark.parametrize("population", rest_slow(["uniform", "zipf", "nearly all different"]))
def test_copies_with_changes_are_found(population: str) -> None:
    rng = np.random.default_rng(12)
    for _ in range(50):
        one = POPULATIONS[population](rng, 800)
        two = one.copy()
        two[:40] = POPULATIONS[population](rng, 40)
        assert compared(two, one).exceeds_chance
        assert compared(two[100:], one).exceeds_chance
        assert compared(one, two[100:]).exceeds_chance


# What a second release of the same people looks like ------------------------------------------------------------------

PEOPLE = """
SELECT md5('{people}' || i) AS uid, i + 1 AS nr, CAST(18 + md5_number('{people}a' || i) % 61 AS INTEGER) AS age,
  CASE WHEN md5_number('{people}g' || i) % 2 = 0 THEN 'f' ELSE 'm' END AS gender,
  CAST(md5_number('{people}s' || i) % 7 AS INTEGER) AS salary
FROM range({n}) t(i)
"""
ONE, MORE = PEOPLE.format(people="x", n=300), PEOPLE.format(people="y", n=90)
NEW = "upper(gender) AS gender, salary + 9 AS salary"
SAME = {
    "the same ids, older by a year": ("uid", "SELECT * REPLACE (age + 1 AS age) FROM one"),
    "the same ids, all values others": ("uid", f"SELECT * REPLACE (age + 1 AS age, {NEW}) FROM one"),
    "one of them among others": ("uid", f"SELECT * FROM one WHERE nr = 1 UNION ALL ({MORE})"),
    "numbers for ids, older by a year": ("nr", "SELECT * REPLACE (age + 1 AS age) FROM one"),
    "numbers for ids, older by a year, renamed": ("nr", "SELECT nr, age + 1 AS a, gender AS g, salary AS s FROM one"),
    "ids in capitals, between blanks": ("uid", f"SELECT * REPLACE (' ' || upper(uid) AS uid, {NEW}) FROM one"),
    "ids as UUIDs": (
        "uid",
        f"SELECT * REPLACE ('{{' || uid::UUID || '}}' AS uid, {NEW}) FROM one",
    ),
    "numbers as texts, older by a year": ("nr", "SELECT * REPLACE (printf('%04d', nr) AS nr, age + 1 AS age) FROM one"),
    "numbers as floats, older by a year": ("nr", "SELECT * REPLACE (nr || '.0' AS nr, age + 1 AS age) FROM one"),
    "new ids": ("uid", "SELECT * REPLACE (md5(uid) AS uid) FROM one"),
    "columns in another order under other names": ("", "SELECT gender AS a, age AS b, salary AS x FROM one"),
    "the same without some rows": ("", "SELECT * FROM one WHERE nr > 30"),
    "fewer columns under other names": ("", "SELECT age AS y, salary AS x FROM one"),
    "fewer columns": ("", "SELECT age, salary FROM one"),
}
OTHERS = {
    "other people numbered from 1": ("nr", "", PEOPLE.format(people="z", n=290)),
    "other people": ("uid", "", PEOPLE.format(people="z", n=300)),
    "other people without ids": ("", "", PEOPLE.format(people="z", n=300)),
    "numbers of something else": ("nr", "--id-space patients", f"SELECT * REPLACE (age + 1 AS age, {NEW}) FROM one"),
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


@pytest.mark.parametrize("attack", rest_slow(list(SAME)))
def test_a_second_release_of_the_same_people_is_noticed(attack: str, tmp_path: Path) -> None:
    identifier, query = SAME[attack]
    ids = ["--id", identifier] if identifier else []
    assert publish_as(tmp_path, "one", ONE, *ids).code == 0
    refused(publish_as(tmp_path, "two", query, *ids), 1, "release 1", "another name")


@pytest.mark.slow
@pytest.mark.parametrize("case", rest_slow(list(OTHERS)))
def test_other_people_pass(case: str, tmp_path: Path) -> None:
    identifier, space, query = OTHERS[case]
    ids = ["--id", identifier] if identifier else []
    done = publish_as(tmp_path, "one", ONE, *ids, *(["--id-space", "staff"] if space else []))
    assert done.code == 0, done.err
    done = publish_as(tmp_path, "two", query, *ids, *space.split())
    assert done.code == 0, done.err
    assert manifest(tmp_path / "two.duckdb")["composition"] == []


@pytest.mark.slow
def test_numbers_along_which_sorted_tables_agree_are_told_apart_by_their_space(tmp_path: Path) -> None:
    """Tables of other people, both sorted by age: nothing tells that from the same people, but for their publisher."""
    one, two = (
        f"SELECT * REPLACE (row_number() OVER (ORDER BY age) AS nr) FROM ({PEOPLE.format(people=people, n=300)})"
        for people in "xz"
    )
    assert publish_as(tmp_path, "one", one, "--id", "nr", "--id-space", "staff").code == 0
    refused(publish_as(tmp_path, "two", two, "--id", "nr"), 1, "age agrees along its ids", "--id-space")
    done = publish_as(tmp_path, "two", two, "--id", "nr", "--id-space", "patients")
    assert done.code == 0, done.err
    assert succeeded("ledger", "--json").json["releases"][1]["spec"]["source"]["id_space"] == "patients"


def test_an_id_space_goes_with_names(tmp_path: Path) -> None:
    refused(publish_as(tmp_path, "one", ONE, "--id-space", "staff"), 2, "id_space needs id or person")
