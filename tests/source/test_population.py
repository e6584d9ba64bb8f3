"""Whom a table is about, by its name: files without dates and endings, tables with schema and catalog, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import privsql
from privsql.errors import UsageError
from privsql.source.places import Source
from privsql.source.population import is_same_population, name_population, require_population, strip_dates
from privsql.source.spec import join_paths
from support.commands import FLAGS, PEOPLE, by_keys, refused, run, succeeded, write
from support.loops import each

if TYPE_CHECKING:
    from pathlib import Path

DATED = [
    "visits", "visits_2024", "visits-2024-05", "visits 2024-05-01", "visits.20240501", "visits_2024-05-01T12-00-00Z",
    "visits_20240501_1200", "visits2024Q3", "visits_2024-W05", "2024.05.01 visits", "visits_01.05.2024", "1999-visits",
    "visits_2024-05-01_2024-05-31", "visits_2024-06-01_2024-06-30", "visits_20240501_20240531",
]  # fmt: skip
UNDATED = ["visits_7", "visits_v2", "room101", "visits_12345678", "visits_2100", "visits_1850", "visits_12024"]


@each("name", DATED)
def test_dates_are_no_part_of_a_name(name: str) -> None:
    assert strip_dates(name) == "visits"


@each("name", UNDATED)
def test_other_numbers_are(name: str) -> None:
    assert strip_dates(name) == name


def named(folder: Path, *, base: str = "clinic", **fields: Any) -> tuple[str, ...]:
    """The population of a source in a folder."""
    return name_population(Source.model_validate(join_paths({"source": fields}, folder / base)["source"]))


FILES = {
    "stays.parquet": ("clinic/stays",),
    "stays_2024-05.csv.gz": ("clinic/stays",),
    "Stays.CSV": ("clinic/Stays",),
    "2024/05/stays.csv": ("clinic/stays",),
    "stays/2024-05-01.csv": ("clinic/stays",),
    "stays/0001.csv": ("clinic/stays",),
    "~/stays_2024.tsv.zst": None,
    "data.csv": (),
    "Export_2024-05-01 (2).csv": (),
    "part-00000-8f3a.parquet": (),
    "results.tsv": (),
    "employee_data.csv": ("clinic/employee_data",),
    "departments.csv": ("clinic/departments",),
    "s3://bucket/clinic/stays_2024.parquet?token=secret": ("clinic/stays",),
    "https://me:secret@host.org/stays.csv": ("host.org/stays",),
    "s3://bucket/clinic/stays/*.parquet": ("clinic/stays",),
    "s3://bucket/data.parquet": (),
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_named_by_its_folder_and_itself(file: str, tmp_path: Path) -> None:
    found = named(tmp_path, file=file)
    assert found == FILES[file] or (FILES[file] is None and found[0].endswith("/stays"))


def test_several_files_have_several_names_and_a_folder_its_own(tmp_path: Path) -> None:
    (tmp_path / "clinic" / "wards").mkdir(parents=True)
    for name in ("north_2023", "north_2024", "south", "part-0"):
        write(tmp_path / "clinic" / "wards" / f"{name}.parquet", "SELECT 1 AS k")
    assert named(tmp_path, file="wards/*.parquet") == ("wards/north", "wards/south")
    assert named(tmp_path, file=["wards/south.parquet", "other.parquet"]) == ("clinic/other", "wards/south")
    assert named(tmp_path, file="wards") == ("clinic/wards", "wards/north", "wards/south")
    assert named(tmp_path, file="wards/part-*.parquet") == ()
    (tmp_path / "clinic" / "latest.parquet").symlink_to(tmp_path / "clinic" / "wards" / "south.parquet")
    assert named(tmp_path, file="latest.parquet") == ("wards/south",)


TABLES = {
    "people": ("office.people",),
    "main.People_2024": ("office.people",),
    "pay.people": ("office.pay.people",),
    "office.people": ("office.people",),
    "other.pay.people": ("other.pay.people",),
    "data": (),
}
QUERIES = {
    "SELECT * FROM people": ("office.people",),
    "WITH p AS (SELECT * FROM pay.people) SELECT * FROM p JOIN rooms USING (id)": ("office.pay.people", "office.rooms"),
    'SELECT * FROM people WHERE id IN (SELECT id FROM main."Guests")': ("office.guests", "office.people"),
    "SELECT * FROM read_csv('x.csv')": (),
    "SELECT 1 AS k FROM range(9)": (),
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_named_with_schema_and_catalog(table: str, tmp_path: Path) -> None:
    assert named(tmp_path, database="office_2024-05.duckdb", table=table) == TABLES[table]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_every_table_that_it_reads(query: str, tmp_path: Path) -> None:
    assert named(tmp_path, database="office.duckdb", query=query) == QUERIES[query]


def test_a_server_is_named_by_its_kind(tmp_path: Path) -> None:
    """Its address may hold secrets."""
    secret = {"uri": "postgresql://me:secret@host/db"}
    assert named(tmp_path, postgres=secret | {"table": "public.people"}) == ("postgres.people",)
    assert named(tmp_path, postgres=secret | {"query": "SELECT * FROM pay.people"}) == ("postgres.pay.people",)
    assert named(tmp_path, spark={"table": "lake.people"}) == ("spark.lake.people",)


def test_what_the_publisher_says_counts(tmp_path: Path) -> None:
    assert named(tmp_path, file="data.csv", population="the clinic") == ("the clinic",)
    assert is_same_population(["the clinic"], ["THE CLINIC", "other"])
    assert not is_same_population(["the clinic"], ["clinic"])
    with pytest.raises(UsageError, match="a table in Python"):
        require_population(Source(frame=pa.table({"a": [1]})))


def test_a_name_that_says_nothing_is_asked_for(tmp_path: Path) -> None:
    """The remedy that the message names is taken."""
    write(tmp_path / "data.parquet", PEOPLE.format(n=200))
    asked = ["publish", tmp_path / "data.parquet", *FLAGS, "--to", tmp_path / "r.duckdb"]
    refused(run(*asked), 2, "source.population is missing: 'data.parquet' does not", "source.population = 'clinic'")
    assert not (tmp_path / "r.duckdb").exists()
    spec = tmp_path / "spec.toml"
    succeeded("init", tmp_path / "data.parquet", "--sensitive", "disease", "--accept", "--output", spec)
    text = spec.read_text(encoding="utf-8")
    refused(run("publish", spec, "--to", tmp_path / "r.duckdb"), 2, "source.population is missing")
    spec.write_text(text.replace('# population = "clinic"', 'population = "clinic"'), encoding="utf-8")
    assert privsql.load(spec).source.population == "clinic"
    done = succeeded(*asked, "--set", "source.population=clinic")
    assert "population clinic" in " ".join(done.out.split())
    assert succeeded("ledger", "show", 1, "--json").json["population"] == ["clinic"]


def test_an_open_database_in_memory_is_named_by_its_tables(tmp_path: Path) -> None:
    with duckdb.connect() as db:
        db.execute("CREATE TABLE staff AS SELECT i % 7 AS age, i % 5 AS disease FROM range(90) t(i)")
        asked = {"sensitive": "disease", "qi": ["age"], "threshold": 0.5}
        done = privsql.publish(connection=db, to=tmp_path / "r.duckdb", **by_keys({**asked, "source.table": "staff"}))
    assert done.ledger["population"] == ["memory.staff"]
