"""Sources of several files, CSV in any writing, other databases: read whole, or refused with a line that helps."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pydantic import ValidationError
from sqlglot import exp

from privsql.engine import files
from privsql.engine.duck.connection import Connection
from privsql.engine.sqlfiles import all_rows, temp_table
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.source.keywords import as_spec
from privsql.source.places import Source
from privsql.source.population import name_population
from privsql.source.records import prepare_table
from privsql.source.spec import Columns, build, join_paths
from privsql.source.table import mount_persons
from privsql.source.targets import Target, overlaps_source
from privsql.verbs.sessions import open_session
from support import statements
from support.commands import FLAGS, PEOPLE, manifest, refused, run, specification, succeeded, warehouse, write
from support.lite import copied, filled, lite

BODY = "name,disease\nJosé,flu\nAnn,cold\n"
READ = [("José", "flu"), ("Ann", "cold")]


def source(folder: Path, **given: Any) -> Source:
    """A source whose paths are taken from a folder."""
    return Source.model_validate(join_paths({"source": given}, folder)["source"])


def rows(folder: Path, **given: Any) -> list[tuple[Any, ...]]:
    """The rows of a source."""
    with open_session() as db:
        mount_persons(db, source(folder, **given))
        return db.rows(all_rows(temp_table("source")))


def columns(folder: Path, **given: Any) -> dict[str, str]:
    """The columns of a source."""
    with open_session() as db:
        mount_persons(db, source(folder, **given))
        return {field.name: field.type for field in db.list_fields(temp_table("source"))}


def fails(folder: Path, *words: str, **given: Any) -> str:
    """One line of error that holds words and nothing that DuckDB says to its own users."""
    with pytest.raises(PrivsqlError) as error:
        rows(folder, **given)
    line = str(error.value)
    missing = [word for word in words if word not in line]
    assert not missing, f"{missing} not in: {line}"
    assert "\n" not in line
    assert "Possible" not in line
    return line


# Several files ---


def parquet(folder: Path, name: str, query: str) -> Path:
    """A Parquet file, its folder made."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    return write(folder / name, query)


@pytest.mark.slow
def test_a_pattern_a_list_and_a_folder_are_the_same_files(tmp_path: Path) -> None:
    parquet(tmp_path, "d/a.parquet", "SELECT 1 AS k, 'x' AS v")
    parquet(tmp_path, "d/b.parquet", "SELECT 'y' AS v, 2 AS k")  # in another order
    parquet(tmp_path, "d/none.parquet", "SELECT 1 AS k, 'x' AS v WHERE FALSE")
    parquet(tmp_path, "d/_temporary/half.parquet", "SELECT 9 AS k, 'z' AS v")
    parquet(tmp_path, "d/.hidden.parquet", "SELECT 9 AS k, 'z' AS v")
    for given in ("d/*.parquet", "d", ["d/a.parquet", "d/none.parquet", "d/b.parquet"], "d/**/[ab].parquet"):
        assert sorted(rows(tmp_path, file=given)) == [(1, "x"), (2, "y")], given


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("SELECT 2.5 AS k, 'y' AS v", ["'k'", "INTEGER", "DECIMAL(2,1)"]),
        ("SELECT 2 AS k", ["'v'", "only in the first"]),
        ("SELECT 2 AS k, 'y' AS v, 3 AS extra", ["'extra'", "only in the second"]),
    ],
)
def test_files_that_differ_are_refused_by_their_names(tmp_path: Path, other: str, words: list[str]) -> None:
    parquet(tmp_path, "a.parquet", "SELECT 1 AS k, 'x' AS v")
    parquet(tmp_path, "b.parquet", other)
    fails(tmp_path, "a.parquet", "b.parquet", "union_by_name", *words, file="*.parquet")
    assert len(rows(tmp_path, file="*.parquet", union_by_name=True)) == 2


def test_by_name_what_a_file_lacks_is_null(tmp_path: Path) -> None:
    parquet(tmp_path, "a.parquet", "SELECT 1 AS k, 'x' AS v")
    parquet(tmp_path, "b.parquet", "SELECT 2.5 AS k")
    assert [(float(k), v) for k, v in rows(tmp_path, file="*.parquet", union_by_name=True)] == [(1, "x"), (2.5, None)]


def test_csv_files_of_other_orders_and_without_lines(tmp_path: Path) -> None:
    for name, text in (("a", "k,v\n"), ("b", "k,v\n1,x\n"), ("c", "v,k\ny,2\n"), ("d", "k,v\n")):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    assert sorted(rows(tmp_path, file="*.csv")) == [(1, "x"), (2, "y")]
    (tmp_path / "e.csv").write_text("k,v\nmany,x\n", encoding="utf-8")
    fails(tmp_path, "b.csv", "e.csv", "'k'", "types", file="*.csv")
    assert len(rows(tmp_path, file="*.csv", options={"types": {"k": "VARCHAR"}})) == 3


def test_what_matches_nothing_or_twice(tmp_path: Path) -> None:
    fails(tmp_path, "nope*.csv", "no file matches", file="nope*.csv")
    fails(tmp_path, "no such file", file=["a.csv", "b.csv"])
    (tmp_path / "empty").mkdir()
    fails(tmp_path, "empty", "no Parquet file", file="empty")
    (tmp_path / "a.csv").write_text(BODY, encoding="utf-8")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    fails(tmp_path, "a.csv", "b.csv", "same file", file="*.csv")
    fails(tmp_path, "same file", file=["a.csv", "./a.csv"])


def test_the_name_of_a_folder_is_no_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("[1]*/a.parquet", "1/b.parquet"):
        parquet(tmp_path, name, "SELECT 1 AS k")
    assert name_population(source(tmp_path / "[1]*", file="?.parquet")) == (f"{tmp_path.name}/a",)
    monkeypatch.chdir(tmp_path / "1")
    assert rows(Path(), file="*.parquet") == [(1,)]
    assert files.find_files(["../[1]*/*.parquet"]) == [Path("../[1]*/a.parquet")]


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "loop.parquet").symlink_to(tmp_path / "loop.parquet")
    fails(tmp_path, "no such file", file="loop.parquet")
    assert name_population(source(tmp_path, file="loop.parquet"))
    parquet(tmp_path, "d/a.parquet", "SELECT 1 AS k")
    (tmp_path / "d" / "again").symlink_to(tmp_path / "d")
    assert rows(tmp_path, file="d") == [(1,)]
    fails(tmp_path, "same file", file="d/**/*.parquet")


def test_a_folder_whose_files_alone_are_no_table(tmp_path: Path) -> None:
    parquet(tmp_path, "lake/a.parquet", "SELECT 1 AS k")
    (tmp_path / "lake" / "_delta_log").mkdir()
    fails(tmp_path, "Delta", "reader = 'delta'", file="lake")
    parquet(tmp_path, "ice/data/a.parquet", "SELECT 1 AS k")
    (tmp_path / "ice" / "metadata").mkdir()
    (tmp_path / "ice" / "metadata" / "v1.metadata.json").touch()
    fails(tmp_path, "Iceberg", "reader = 'iceberg'", file="ice")


# Partitions ---


def test_folders_are_columns_where_that_is_asked_for(tmp_path: Path) -> None:
    for year, city in ((2020, "S%C3%A3o%20Paulo"), (2021, "a'b"), (2021, "__HIVE_DEFAULT_PARTITION__")):
        parquet(tmp_path, f"d/year={year}/city={city}/x.parquet", "SELECT 1 AS k")
    assert rows(tmp_path, file="d") == [(1,)] * 3
    found = set(rows(tmp_path, file="d", hive_partitioning=True))
    assert found == {(1, None, 2021), (1, "São Paulo", 2020), (1, "a'b", 2021)}


def test_a_folder_of_digits_keeps_its_zeros(tmp_path: Path) -> None:
    for code in ("01", "1"):
        parquet(tmp_path, f"d/zip={code}/year=2020/x.parquet", "SELECT 1 AS k")
    assert columns(tmp_path, file="d", hive_partitioning=True) == {"k": "INTEGER", "year": "BIGINT", "zip": "VARCHAR"}
    assert {row[2] for row in rows(tmp_path, file="d", hive_partitioning=True)} == {"01", "1"}


def test_a_column_in_file_and_path_is_refused(tmp_path: Path) -> None:
    parquet(tmp_path, "d/K=9/x.parquet", "SELECT 1 AS k")
    fails(tmp_path, "x.parquet", "'K'", "both in the file and in its path", file="d", hive_partitioning=True)
    assert rows(tmp_path, file="d") == [(1,)]


def test_folders_that_tell_other_columns_are_refused(tmp_path: Path) -> None:
    parquet(tmp_path, "d/a=1/x.parquet", "SELECT 1 AS k")
    parquet(tmp_path, "d/b=1/x.parquet", "SELECT 1 AS k")
    fails(tmp_path, "a=1", "b=1", "other columns", file="d", hive_partitioning=True)


# How CSV is written ---

WRITINGS: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "gzip": ("x.csv.gz", gzip.compress(BODY.encode()), {}),
    "byte order mark": ("x.csv", BODY.encode("utf-8-sig"), {}),
    "tabs": ("x.tsv", BODY.replace(",", "\t").encode(), {}),
    "tabs, gzip": ("x.tsv.gz", gzip.compress(BODY.replace(",", "\t").encode()), {}),
    "latin-1": ("x.csv", BODY.encode("latin-1"), {"encoding": "ISO-8859-1"}),
    "latin-1, gzip": ("x.csv.gz", gzip.compress(BODY.encode("latin-1")), {"encoding": "latin-1"}),
    "utf-16": ("x.csv", BODY.encode("utf-16"), {"encoding": "utf-16"}),
    "semicolons": ("x.csv", BODY.replace(",", ";").encode(), {"delimiter": ";"}),
    "quotes": ("x.csv", BODY.replace("José", "'José'").encode(), {"quote": "'"}),
    "no header": ("x.csv", BODY[13:].encode(), {"header": False, "names": ["name", "disease"]}),
    "notes before": ("x.csv", b"Report\n\n" + BODY.encode(), {"skip": 2}),
    "comments": ("x.csv", b"# a report\n" + BODY.encode(), {"comment": "#"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRITINGS)
def test_a_csv_file_as_it_is_written(tmp_path: Path, case: str) -> None:
    name, content, options = WRITINGS[case]
    (tmp_path / name).write_bytes(content)
    assert rows(tmp_path, file=name, **({"options": options} if options else {})) == READ


def test_zstandard(tmp_path: Path) -> None:
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT 1 AS k) TO '{tmp_path}/x.csv.zst' (FORMAT csv, COMPRESSION zstd)")
    assert rows(tmp_path, file="x.csv.zst") == [(1,)]


def test_numbers_dates_and_nulls_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a;d;v\n1,5;24.12.2020;n/a\n2,5;01.02.2021;x\n", encoding="utf-8")
    options = {"decimal_separator": ",", "delimiter": ";", "dateformat": "%d.%m.%Y", "nullstr": "n/a"}
    given = {"file": "x.txt", "reader": "csv", "options": options}
    assert columns(tmp_path, **given) == {"a": "DOUBLE", "d": "DATE", "v": "VARCHAR"}
    assert [(a, str(d), v) for a, d, v in rows(tmp_path, **given)] == [
        (1.5, "2020-12-24", None),
        (2.5, "2021-02-01", "x"),
    ]


WRONG: dict[str, tuple[bytes, dict[str, Any], list[str]]] = {
    "latin-1": (BODY.encode("latin-1"), {}, ['encoding = "latin-1"']),
    "latin-1 in the middle": (
        b"name,disease\n" + b"Ann,cold\n" * 60_000 + BODY[13:].encode("latin-1"),
        {},
        ["line 60002", 'encoding = "latin-1"'],
    ),
    "utf-16": (BODY.encode("utf-16"), {}, ['encoding = "utf-16"']),
    "utf-16 without a mark": (BODY.encode("utf-16-le"), {}, ['encoding = "utf-16"']),
    "another encoding": (BODY.encode("cp1252"), {"encoding": "cp1252"}, ["'cp1252'", "INSTALL encodings", "iconv"]),
    "nothing": (b"", {}, ["empty"]),
    "two columns of a name": (b"name,Name,disease\na,b,c\n", {}, ["two columns", "'name'"]),
    "lines of any length": (b"a,b\n1,2\n3\n4,5,6\n", {}, ["first 3 lines", "skip"]),
    "a number that is none": (b"a,b\n" + b"1,2\n" * 60_000 + b"x,2\n", {}, ["line 60002", "'a'", "VARCHAR", "sample"]),
    "a line too long": (b"a,b\n" + b"1,2\n" * 60_000 + b"1,2,3\n", {}, ["line 60002", "3 columns, not 2"]),
    "a long line": (b"a,b\n1," + b"x" * 2_100_000 + b"\n", {}, ["max_line_size", "quote"]),
    "a column that is none": (b"a,b\n1,2\n", {"types": {"c": "BIGINT"}}, ['"c"']),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_csv_file_that_is_written_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where DuckDB looks for extensions
    content, options, words = WRONG[case]
    (tmp_path / "x.csv").write_bytes(content)
    fails(tmp_path, *words, file="x.csv", **({"options": options} if options else {}))


def test_what_is_not_what_its_ending_says(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(BODY.encode())
    fails(tmp_path, "x.csv.gz", "not packed", "compression", file="x.csv.gz")
    (tmp_path / "x.csv.zst").write_bytes(BODY.encode())
    fails(tmp_path, "x.csv.zst", "not packed", "compression", file="x.csv.zst")
    (tmp_path / "x.parquet").write_bytes(BODY.encode())
    fails(tmp_path, "x.parquet", "no Parquet file", "reader = 'csv'", file="x.parquet")
    for name, word in (("x.parquet", "no Parquet file"), ("y.parquet", "database = ")):
        warehouse(tmp_path / "y.parquet", "CREATE TABLE IF NOT EXISTS t AS SELECT 1 AS k")
        fails(tmp_path, name, word, file=name)
    with pytest.raises(UsageError, match="database = "):
        build({"source": {"file": "x.sqlite"}, **ASKED})
    (tmp_path / "x.duckdb").write_bytes(b"x" * 5000)
    (tmp_path / "folder.v2").mkdir()
    fails(tmp_path, "is a folder", "reader = ", database="folder.v2", table="t")
    fails(tmp_path, "neither a DuckDB nor a SQLite", database="x.duckdb", table="t")


@pytest.mark.parametrize(
    ("begins", "word"),
    [
        (b"SQLite format 3\0", "database = "),
        (b"PAR1", "reader = 'parquet'"),
        (b"PK\x03\x04", "write its table as CSV"),
        (gzip.compress(BODY.encode(), mtime=0), "compression = 'gzip'"),
        (b"\x28\xb5\x2f\xfd", "compression = 'zstd'"),
    ],
)
def test_a_file_is_told_by_its_first_bytes(tmp_path: Path, begins: bytes, word: str) -> None:
    (tmp_path / "x.csv").write_bytes(begins + b"rest")
    fails(tmp_path, "x.csv", word, file="x.csv")


def test_a_command_s_source_that_is_no_table_by_itself(tmp_path: Path) -> None:
    """A database says what it holds; what is none says what it is."""
    asked = ["--qi", "a", "--sensitive", "b", "--threshold", "1/2", "--set", "ledger.off=true"]
    warehouse(tmp_path / "w.duckdb", "CREATE TABLE people AS SELECT 1 AS a", "CREATE VIEW v AS FROM people")
    refused(run("plan", tmp_path / "w.duckdb", *asked), 2, "holds people, v; choose one as source.table")
    with pytest.raises(UsageError, match=r"choose one as source\.table"):
        as_spec(tmp_path / "w.duckdb", {"qi": "a", "sensitive": "b", "threshold": "1/2"})
    (tmp_path / "x.xlsx").write_bytes(b"PK\x03\x04rest")
    (tmp_path / "x.json").write_text("[]", encoding="utf-8")
    for name, word in (("x.xlsx", "spreadsheets"), ("x.json", "neither a DuckDB nor"), ("none/", "no such file")):
        refused(run("plan", f"{tmp_path}/{name}", *asked), 4, word)


def test_one_column_that_is_all_of_a_line_is_spoken_of(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n", encoding="utf-8")
    asked = ["--qi", "a", "--sensitive", "b", "--threshold", "1/2", "--set", "ledger.off=true"]
    done = run("plan", tmp_path / "x.csv", "--set", 'source.options={ delimiter = ";" }', *asked)
    refused(done, 2, "it has a,b, which may be several", "delimiter = ','")
    refused(
        run("plan", tmp_path / "x.csv", "--set", "source.options=latin-1", *asked),
        2,
        "source.options: must be a table of keys",
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_packed_file_that_is_cut_off_is_not_read_in_part(tmp_path: Path, ending: str) -> None:
    """At the end of a line, where nothing else tells that others are missing; and with a wrong sum behind it."""
    lines = "".join(f"{n * n % 997},{n}\n" for n in range(20_000)).encode()
    place = tmp_path / f"x.csv.{ending}"
    with pa.output_stream(place) as stream:
        stream.write(b"a,b\n" + lines)
    whole = place.read_bytes()
    assert len(rows(tmp_path, file=place.name)) == 20_000
    for cut in (whole[: len(whole) // 2], whole[:-4], *([whole[:-8] + bytes(8)] if ending == "gz" else [])):
        place.write_bytes(cut)
        fails(tmp_path, "damaged", file=place.name)
    place.write_bytes(whole + whole)  # one after the other, as compressors allow
    assert len(rows(tmp_path, file=place.name)) == 40_001


def test_packed_under_another_ending(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(gzip.compress(BODY.encode()))
    assert rows(tmp_path, file="x.csv", options={"compression": "gzip"}) == READ
    (tmp_path / "y.csv.gz").write_bytes(BODY.encode())
    assert rows(tmp_path, file="y.csv.gz", options={"compression": "none"}) == READ


def test_quoted_lines_and_a_header_alone(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text('name,disease\n"a\nb",flu\n"c, d",cold\n', encoding="utf-8")
    assert rows(tmp_path, file="q.csv") == [("a\nb", "flu"), ("c, d", "cold")]
    (tmp_path / "h.csv").write_text("name,disease\n", encoding="utf-8")
    assert rows(tmp_path, file="h.csv") == []
    refused(
        run("publish", tmp_path / "h.csv", "--qi", "name", "--sensitive", "disease", "--threshold", "1"), 3, "no rec"
    )


# What is asked ---

ASKED: dict[str, Any] = {
    "columns": {"quasi_identifiers": ["a"], "sensitive": "d"},
    "mechanism": {"threshold": "0.5"},
}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"file": []}, "a path"),
        ({"file": ""}, "a path"),
        ({"file": ["a.csv", 3]}, "a path"),
        ({"file": ["a.csv", "b.parquet"]}, "one kind"),
        ({"file": "a.parquet", "options": {"encoding": "latin-1"}}, "CSV"),
        ({"file": "a.csv", "options": {"encodign": "latin-1"}}, "no such key"),
        ({"file": "a.csv", "options": {"delimiter": ""}}, "delimiter"),
        ({"file": "a.csv", "options": {"types": {"a": "NOSUCH"}}}, "no type"),
        ({"database": "a.duckdb", "table": "t", "union_by_name": True}, "union_by_name"),
        ({"file": "ftp://h/a.csv"}, "ftp://"),
        ({"file": ["d", "e"], "reader": "delta"}, "delta"),
        ({"mysql": {"uri": "mysql://u:secret@h/d", "table": "t"}, "database": "x"}, "either"),
        ({"mysql": {"uri": "mysql://u:secret@h/d"}}, "table or query"),
    ],
)
def test_what_can_not_be_asked(given: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError) as error:
        build({"source": given, **ASKED})
    assert word in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("people.parquet", "people"),
        ("a.b.csv", "a.b"),
        ("d/people.csv.gz", "people"),
        ("d/people_*.csv", "people"),
        ("ward/year=*/*.parquet", "ward"),
        ("ward/", "ward"),
        ("*.parquet", "release"),
        ("https://me:pw@h/x/people.csv?token=1", "people"),
        ("s3://bucket/people/*.parquet", "people"),
    ],
)
def test_a_release_is_called_after_its_files(name: str, called: str) -> None:
    assert build({"source": {"file": name}, **ASKED}).name == called


# Where a release is not put ---


def test_a_release_is_not_put_among_the_files_of_its_source(tmp_path: Path) -> None:
    for name in ("d/0.parquet", "d/1.parquet", "out/st.parquet"):
        parquet(tmp_path, name, PEOPLE.format(n=100))
    into = ["--format", "parquet", "--replace"]
    refused(run("publish", tmp_path / "d", *FLAGS, "--to", tmp_path / "d" / "r", *into), 2, "among")
    given = str(tmp_path / "**" / "*.parquet")
    refused(run("publish", given, *FLAGS, "--to", tmp_path / "out", *into), 2, "among the files of the source")
    assert overlaps_source(source(tmp_path, file="d/0.parquet"), Target(tmp_path / "d" / "0.parquet"))
    assert not overlaps_source(source(tmp_path, file="d/0.parquet"), Target(tmp_path / "d" / "r"))


# Paths ---


def test_paths_of_a_specification_are_taken_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    given = {
        "source": {"file": ["a.csv", "~/b.csv", "/c.csv", "s3://b/d.csv"]},
        "release": {"to": "~/r.duckdb"},
        **ASKED,
    }
    spec = build(given, base=tmp_path / "specs")
    here = str(tmp_path / "specs" / "a.csv"), str(tmp_path / "b.csv"), "/c.csv", "s3://b/d.csv"
    assert spec.source.files == here
    assert spec.target.path == tmp_path / "r.duckdb"
    assert build({"source": {"file": "~nobody-of-this-name/a.csv"}, **ASKED}).source.files == (
        "~nobody-of-this-name/a.csv",
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--output", ">"])
def test_init_writes_a_specification_for_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    write(tmp_path / "people.parquet", PEOPLE.format(n=200))
    (tmp_path / "specs").mkdir()
    monkeypatch.chdir(tmp_path)
    spec = Path("specs/x.toml")
    if way == "--output":
        succeeded("init", "people.parquet", "--sensitive", "disease", "--accept", "--output", spec)
        assert 'file = "../people.parquet"' in spec.read_text(encoding="utf-8")
        refused(run("init", "people.parquet", "--output", spec), 2, "exists")
    else:
        given = "--sensitive", "disease", "--accept"
        spec.write_text(succeeded("init", "people.parquet", *given).out, encoding="utf-8")
    monkeypatch.chdir("/")
    assert succeeded("plan", tmp_path / spec, "--json").json["records"] == 200


# Other systems ---

MISSING = [
    ({"file": "s3://bucket/key.parquet"}, "httpfs"),
    ({"file": "https://me:secret@host.invalid/a.csv.gz?token=secret"}, "httpfs"),
    ({"file": "gs://bucket/*.parquet"}, "httpfs"),
    ({"file": "az://box/a.parquet"}, "azure"),
    ({"file": "lake", "reader": "delta"}, "delta"),
    ({"file": "lake", "reader": "iceberg"}, "iceberg"),
    ({"mysql": {"uri": "mysql://u:secret@h/d", "table": "t"}}, "mysql"),
    ({"ducklake": {"uri": "secret.ducklake", "table": "t"}}, "ducklake"),
]


@pytest.mark.parametrize(("given", "name"), MISSING)
def test_an_extension_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where DuckDB looks for extensions
    line = fails(tmp_path, f"DuckDB's extension {name}", f"INSTALL {name}", "or copy", **given)
    assert "secret" not in line
    assert not (tmp_path / ".duckdb").exists()
    if "file" in given:
        assert "secret" not in str(name_population(source(tmp_path, **given)))


class Stands:
    """In place of an extension: what it attaches is a DuckDB file, and the tables that it reads are Parquet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
        """``places``: what stands for addresses that begin so."""
        self.loaded: list[str] = []
        real = Connection._execute

        def run(connection: Connection, sql: str, values: Any = None) -> None:
            if sql.startswith("LOAD "):
                name = sql.removeprefix("LOAD ")
                self.loaded.append(name)
                sql = f"CREATE MACRO {name}_scan(place) AS TABLE FROM read_parquet(place || '/*.parquet')"
            for start, place in places.items():
                sql = re.sub(rf"{start}://bucket/([^?']*)(\?[^']*)?'", rf"{place}/\1'", sql)
            sql = sql.replace("TYPE mysql, ", "").replace("'ducklake:", "'").replace("'mysql://", "'")
            real(connection, sql, values)

        monkeypatch.setattr(Connection, "_execute", run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mysql", "ducklake"])
def test_what_an_extension_attaches_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    place = warehouse(
        tmp_path / "w.duckdb", "CREATE TABLE t AS SELECT 1 AS k", "CREATE VIEW v AS SELECT k + 1 AS k FROM t"
    )
    stands = Stands(monkeypatch)
    address = f"mysql://{place}" if kind == "mysql" else str(place)
    assert rows(tmp_path, **{kind: {"uri": address, "table": "t"}}) == [(1,)]
    assert rows(tmp_path, **{kind: {"uri": address, "query": "SELECT * FROM v"}}) == [(2,)]
    assert stands.loaded == [kind, kind]
    line = fails(tmp_path, kind, **{kind: {"uri": "mysql://nobody:secret@nowhere/x", "table": "t"}})
    assert "secret" not in line


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_knows_its_files_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    parquet(tmp_path, "lake/a.parquet", "SELECT 1 AS k")
    stands = Stands(monkeypatch)
    assert rows(tmp_path, file="lake", reader=kind) == [(1,)]
    assert stands.loaded == [kind]


@pytest.mark.slow
def test_patterns_of_addresses_are_looked_up_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet(tmp_path, "d/year=2020/a.parquet", "SELECT 1 AS k")
    parquet(tmp_path, "d/year=2021/b.parquet", "SELECT 2 AS k")
    stands = Stands(monkeypatch, s3=str(tmp_path), https=str(tmp_path))
    given = {"file": "s3://bucket/d/*/*.parquet", "hive_partitioning": True}
    assert sorted(rows(tmp_path, **given)) == [(1, 2020), (2, 2021)]
    assert set(stands.loaded) == {"httpfs"}
    assert rows(tmp_path, file="https://bucket/d/year=2020/a.parquet?token=secret") == [(1,)]
    fails(tmp_path, "s3://bucket/no*.parquet", "no file matches", file="s3://bucket/no*.parquet")
    parquet(tmp_path, "d/year=2021/c.parquet", "SELECT 2.5 AS k")
    fails(tmp_path, "a.parquet", "c.parquet", "union_by_name", **given)


@pytest.mark.slow
def test_no_secret_of_an_address_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the release, in the ledger and what lies beside it, in what is printed and in what verify says."""
    monkeypatch.setenv("PRIVSQL_LEDGER", str(tmp_path / "ledger.duckdb"))
    parquet(tmp_path, "d/people.parquet", PEOPLE.format(n=200))
    Stands(monkeypatch, s3=str(tmp_path))
    address = "s3://bucket/d/people.parquet?s3_access_key_id=WHOASKS&s3_secret_access_key=TOPSECRET"
    spec = specification(tmp_path, source=f'file = "{address}"')
    told = [run(*given) for given in (("publish", spec, "--json"), ("publish", spec), ("ledger", spec), ("ledger",))]
    told.append(run("verify", tmp_path / "ill.duckdb", "--source", spec))
    assert [one.code for one in told] == [0, 2, 0, 0, 0]
    assert json.loads(told[0].out)["ledger"]["population"] == ["d/people"]
    (tmp_path / "d" / "people.parquet").rename(tmp_path / "d" / "data.parquet")
    told.append(run("publish", spec, "--replace"))  # which is no longer there
    spec = specification(tmp_path, source=f'file = "{address.replace("people", "data")}"')
    told.append(run("publish", spec, "--replace"))
    assert "'data.parquet' does not say whom" in told[-1].err
    shown = "".join(one.out + one.err for one in told) + "".join(capfd.readouterr())
    assert "s3://bucket/d/people.parquet" in shown
    written = b"".join(one.read_bytes() for one in tmp_path.glob("*") if one.is_file() and one != spec)
    for secret in ("WHOASKS", "TOPSECRET"):
        assert secret not in shown
        assert secret.encode() not in written


def test_addresses_are_shown_without_secrets() -> None:
    told = "HTTP 403 from 'https://me:secret@h.org:80/a/b.csv?sig=secret&x=1' and s3://b/c?s3_secret=secret"
    assert files.redact_secrets(told) == "HTTP 403 from 'https://h.org:80/a/b.csv' and s3://b/c"
    assert files.redact_secrets("https://me:p@ss@h/?token=secret#x 's3://b/a@b?x'") == "https://h/ 's3://b/a@b'"
    assert files.redact_secrets("what? a@b") == "what? a@b"


def test_an_address_is_handed_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What asks with ``?`` is no pattern; the extension's place is taken by one that reads nothing."""
    Stands(monkeypatch)
    seen, address = statements.noted(monkeypatch), "https://me:secret@host.invalid/a.csv?token=secret"
    with open_session() as db, pytest.raises(PrivsqlError) as error:
        db.mount("source", source(Path(), file=address).origin)
    assert "secret" not in str(error.value)
    assert any(f"'{address}'" in sql for sql in seen)


def test_what_can_be_read_once_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    fails(tmp_path, "x.csv", "more than once", file="x.csv")


def test_a_csv_file_is_read_once(tmp_path: Path) -> None:
    """What comes into it meanwhile is not published."""
    place = tmp_path / "x.csv"
    place.write_text("a,d\n1,x\n2,y\n", encoding="utf-8")
    roles = Columns.model_validate({"quasi_identifiers": ["a"], "sensitive": "d"})
    with open_session() as db:
        records = prepare_table(db, source(tmp_path, file="x.csv"), roles)
        place.write_text("a,d\n1,x\n2,z\n3,y\n", encoding="utf-8")
        records.sort_records()
        assert sorted(db.rows(exp.select("q0", "s0").from_(temp_table("records")))) == [(1, "x"), (2, "y")]


def test_a_parquet_file_that_changes_meanwhile_is_not_published(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", "SELECT i AS a, 'd' || i % 2 AS d FROM range(4) t(i)")
    roles = Columns.model_validate({"quasi_identifiers": ["a"], "sensitive": "d"})
    with open_session() as db:
        records = prepare_table(db, source(tmp_path, file="x.parquet"), roles)
        write(tmp_path / "new.parquet", "SELECT i AS a, 'd' || i % 2 AS d FROM range(6) t(i)").replace(
            tmp_path / "x.parquet"
        )
        with pytest.raises(GuaranteeError, match="changed"):
            records.sort_records()


def test_zeros_in_texts_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,d\nA\0nn,x\nB,y\n")
    assert rows(tmp_path, file="x.csv") == [("A\0nn", "x"), ("B", "y")]


# DuckDB and SQLite ---


def test_a_view_over_another_database_is_refused(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "w.duckdb")) as db:
        db.execute(f"ATTACH '{tmp_path}/o.duckdb' AS other")
        db.execute("CREATE TABLE other.t AS SELECT 1 AS k")
        db.execute("CREATE VIEW v AS FROM other.t")
    fails(tmp_path, "w.duckdb", "'other'", "CREATE TABLE", database="w.duckdb", table="v")


def test_schemas_and_names_with_dots(tmp_path: Path) -> None:
    warehouse(
        tmp_path / "w.duckdb",
        "CREATE SCHEMA analytics",
        'CREATE TABLE analytics."a.b" AS SELECT 1 AS k',
        'CREATE VIEW analytics.people AS FROM analytics."a.b"',
    )
    for name in ('analytics."a.b"', "analytics.people"):
        assert rows(tmp_path, database="w.duckdb", table=name) == [(1,)]


PEOPLE_LITE = (
    "CREATE TABLE people (age INTEGER, disease TEXT, score REAL, odd INTEGER, bytes BLOB, none TEXT)",
    "INSERT INTO people VALUES (30, 'flu', 1, 1, x'00', NULL), (NULL, 'cold', 2.5, 'x', x'01', NULL)",
    "CREATE VIEW old AS SELECT age, disease FROM people WHERE age > 20",
    'CREATE TABLE "a.b" (k INTEGER)',
)


def test_a_sqlite_file_is_a_database(tmp_path: Path) -> None:
    place = lite(tmp_path / "x.db", *PEOPLE_LITE)
    before = place.read_bytes()
    given = {"database": "x.db", "query": "SELECT age, disease, score, none FROM people ORDER BY rowid"}
    assert rows(tmp_path, **given) == [(30, "flu", 1.0, None), (None, "cold", 2.5, None)]
    assert columns(tmp_path, **given) == {"age": "BIGINT", "disease": "VARCHAR", "score": "DOUBLE", "none": "VARCHAR"}
    assert rows(tmp_path, database="x.db", table="old") == [(30, "flu")]
    assert rows(tmp_path, database="x.db", table='main."a.b"') == []
    assert place.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"table": "people"}, ["'odd'", "integer and text", "cast"]),
        ({"query": "SELECT bytes FROM people"}, ["'bytes'", "blob"]),
        ({"query": "SELECT age, age FROM people"}, ["two columns", "'age'"]),
        ({"table": "nothing"}, ["nothing"]),
        ({"query": "DELETE FROM people"}, ["one SELECT"]),
        ({"query": "SELECT 1; SELECT 2"}, ["one SELECT"]),
        ({"query": "SELECT CAST(x'ff' AS TEXT) AS t"}, ["UTF-8"]),
        ({"query": "SELECT 9007199254740993 AS n UNION ALL SELECT 0.5"}, ["'n'"]),
    ],
)
def test_what_sqlite_holds_and_can_not_be_published(tmp_path: Path, given: dict[str, str], words: list[str]) -> None:
    lite(tmp_path / "x.db", *PEOPLE_LITE)
    fails(tmp_path, *words, database="x.db", **given)


def test_a_query_beside_the_source_is_sqlites(tmp_path: Path) -> None:
    lite(tmp_path / "x.db", *PEOPLE_LITE, "CREATE TABLE given AS SELECT 'flu' AS disease, 0.5 AS threshold")
    with open_session() as db:
        mount_persons(db, source(tmp_path, database="x.db", table="old"))
        db.create_from_sql("given", "SELECT disease, threshold FROM given WHERE disease GLOB 'f*'")
        assert db.rows(all_rows(temp_table("given"))) == [("flu", 0.5)]


@pytest.mark.slow
def test_late_values_tell_the_type(tmp_path: Path) -> None:
    """What is NULL in the first thousands of rows is not taken for a number."""
    filled(tmp_path / "x.db", "t", ["v"], [(None,)] * 70_000 + [("x",)])
    assert rows(tmp_path, database="x.db", query="SELECT v, count(*) AS n FROM t GROUP BY v") == [
        (None, 70000),
        ("x", 1),
    ]
    assert rows(tmp_path, database="x.db", table="t")[-1] == ("x",)


@pytest.mark.slow
def test_a_sqlite_table_is_published_verified_and_proposed(tmp_path: Path) -> None:
    place = copied(tmp_path / "x.db", "people", PEOPLE.format(n=200))
    assert 'table = "people"' in succeeded("init", place, "--sensitive", "disease").out
    spec = specification(tmp_path, source='database = "x.db"\ntable = "people"')
    succeeded("publish", spec)
    assert manifest(tmp_path / "ill.duckdb")["records"] == 200
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]


@pytest.mark.slow
def test_a_pattern_is_published_and_verified(tmp_path: Path) -> None:
    for number in range(2):
        parquet(tmp_path, f"d/year={number}/x.parquet", PEOPLE.format(n=100))
    given = 'file = "d/*/*.parquet"\nhive_partitioning = true'
    spec = specification(
        tmp_path, source=given, columns='quasi_identifiers = ["age", "sex", "year"]\nsensitive = "disease"'
    )
    succeeded("publish", spec)
    assert manifest(tmp_path / "ill.duckdb")["records"] == 200
    assert succeeded("verify", tmp_path / "ill.duckdb", "--source", spec, "--json").json["ok"]


def test_no_secret_is_shown_by_what_holds_it(tmp_path: Path) -> None:
    given = {"uri": "mysql://u:secret@h/d", "table": "t"}
    made = source(tmp_path, mysql=given)
    assert "secret" not in repr(made)
    assert "secret" not in repr(made.origin)
    assert "secret" not in str(name_population(made))
    with pytest.raises(ValidationError) as error:
        Source.model_validate({"file": "x", "mysql": given})
    assert "secret" not in str(error.value.errors(include_url=False)[0]["msg"])
    assert os.fspath(tmp_path) not in str(error.value)
    with pytest.raises(EngineError, match=r"nothing answers|extension"):
        rows(tmp_path, mysql=given)
