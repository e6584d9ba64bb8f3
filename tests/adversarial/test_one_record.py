"""One record more, or one value in place of another, changes no exit code, message or schema of a private release."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

import privsql
from privsql.engine.database import Options
from privsql.engine.open import open_engine
from privsql.engine.sqlfiles import all_rows, column, table, temp_table
from privsql.errors import EngineError, PrivsqlError, UsageError
from privsql.keyed_random import seed_key
from privsql.mechanisms.marginals.domains import read_coded_cells, read_columns
from privsql.source.records import prepare_records
from privsql.source.spec import build
from support.effort import share
from support.loops import rest_slow, slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CELLS = pa.schema(
    [("person", pa.string()), ("sex", pa.string()), ("job", pa.int32()), ("pay", pa.float64()), ("day", pa.date32())]
)
LISTS = pa.schema([("person", pa.string()), ("goods", pa.list_(pa.string()))])
ITEMS = pa.schema([("id", pa.int64()), ("good", pa.string())])
CELL = st.fixed_dictionaries(
    {
        "person": st.sampled_from(["ann", "bob", None]),
        "sex": st.sampled_from(["F", "M", "other", "other_", "x", "", None]),
        "job": st.sampled_from([1, 2, 99, -(2**31), None]),
        "pay": st.sampled_from([0.0, 7.5, 20.0, -1.0, 1e300, float("nan"), float("inf"), float("-inf"), None]),
        "day": st.sampled_from([date(2020, 1, 1), date(1, 1, 1), date(9999, 12, 31), None]),
    }
)
GOODS = st.one_of(st.none(), st.lists(st.sampled_from(["ale", "figs", "arsenic", "", None]), max_size=4))
LIST = st.fixed_dictionaries({"person": st.sampled_from(["ann", "bob", None]), "goods": GOODS})
ITEM = st.fixed_dictionaries(
    {"id": st.sampled_from([1, 2, 3, None]), "good": st.sampled_from(["ale", "figs", "arsenic", None])}
)
DOMAINS = {"sex": ["F", "M", "other"], "job": ["1", "2"], "pay": {"bins": ["0", "10", "20"]}, "day": ["2020-01-01"]}
PLAIN = {name: values for name, values in DOMAINS.items() if name != "pay"}
PEOPLE = pa.schema([("age", pa.int32()), ("sex", pa.string()), ("ill", pa.string()), ("grade", pa.int32())])
ILLNESSES, GRADES = [f"d{i}" for i in range(60)], [str(i) for i in range(60)]
TABLES: dict[str, Any] = {"kind": "randomize", "algorithm": "tables"}
SUBSTITUTED: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "values": ("ill", TABLES | {"values": ILLNESSES}, ["d0", "d59", "none of these", "", "other", None]),
    "numbers": ("grade", TABLES | {"values": GRADES}, [0, 59, 99, -(2**31), 2**31 - 1, None]),
    "values with NULL": ("ill", TABLES | {"values": ILLNESSES, "null_is_value": False}, ["d0", "x", None]),
}
CELLS_OF: dict[str, Any] = {"kind": "contingency", "algorithm": "diffpart"}
VIEWS: dict[str, Any] = {"kind": "setvalued", "universe": ["ale", "figs"]}
CASES: dict[str, tuple[pa.Schema, Any, dict[str, Any], dict[str, Any]]] = {
    "marginals": (CELLS, CELL, {"categories": [*DOMAINS]}, {"kind": "contingency", "domains": DOMAINS}),
    "sums": (CELLS, CELL, {"categories": [*DOMAINS]}, {"kind": "contingency", "domains": DOMAINS, "measures": ["pay"]}),
    "two of each": (CELLS, CELL, {"categories": [*PLAIN]}, {"kind": "contingency", "max_records": 2, "domains": PLAIN}),
    "cells": (CELLS, CELL, {"categories": [*PLAIN]}, CELLS_OF | {"domains": PLAIN}),
    "views": (LISTS, LIST, {"items": "goods"}, VIEWS),
    "sets": (LISTS, LIST, {"items": "goods"}, VIEWS | {"algorithm": "diffpart"}),
    "basic": (LISTS, LIST, {"items": "goods"}, VIEWS | {"algorithm": "basic"}),
    "items": (ITEMS, ITEM, {"record": "id", "item": "good"}, VIEWS),
}  # fmt: skip
PUBLIC = {
    "values": ["qit", "privsql_values"],
    "numbers": ["qit", "privsql_values"],
    "values with NULL": ["qit", "privsql_values"],
    "marginals": ["privsql_domains"],
    "cells": ["privsql_taxonomy"],
    "views": ["privsql_universe"],
    "items": ["privsql_universe"],
}  # tables without noise


def asked(case: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """A request to publish some records, with a column of persons where there is one."""
    schema, _, columns, mechanism = CASES[case]
    source: dict[str, Any] = {"frame": pa.Table.from_pylist(records, schema=schema)}
    if "person" in schema.names:
        source |= {"person": "person", "persons": "some" if "max_records" in mechanism else "one"}
    more = {"epsilon": 1, "allow_empty": True}
    return {"source": source, "columns": columns, "release": {"name": "r"}, "mechanism": mechanism | more}


def observed(case: str, request: dict[str, Any], folder: Path) -> Any:
    """Everything about a plan and a release that no noise is in; or what it is refused with."""
    with open_engine(folder, Options()) as db:
        try:
            spec = build(request)
            source, mechanism = prepare_records(db, spec), spec.implementation
            plan = mechanism.plan(db, source, spec.mechanism).as_json()
            db.create_database("release")
            facts = mechanism.publish(db, source, spec.mechanism, seed_key(1)).as_json()
        except PrivsqlError as error:
            return type(error), str(error)
        made = db.run_select("SELECT table_name FROM duckdb_tables() WHERE database_name = 'release' ORDER BY 1")
        held = [row[0] for row in made]
        fields = {name: db.list_fields(table(name, "release")) for name in held}
        public = [name for name in held if name in PUBLIC.get(case, ())]
        rows = {name: db.rows(all_rows(table(name, "release"))) for name in public}
        return plan, sorted(facts), fields, rows, source.roles, source.labels if "universe" in plan else None


@pytest.mark.parametrize("case", slow_but(CASES, "marginals", "views", "sets"))
@settings(max_examples=share(60) // 4, deadline=None, database=None)
@given(data=st.data())
def test_a_record_more_changes_nothing_but_noise(
    case: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = CASES[case][1]
    records = data.draw(st.lists(record, max_size=3))
    folder = tmp_path_factory.mktemp("spill")
    requests = (asked(case, some) for some in (records, [*records, data.draw(record)]))
    before, after = (observed(case, one, folder) for one in requests)
    assert before == after
    assert len(before) > 2, before


CSV_HEADS = {"marginals": "sex,job,pay,day,note", "cells": "sex,job,pay,day,note", "items": "id,good"}
CSV_LINES = {
    "text for numbers": "F,many,?,2020-01-01,",
    "another format of dates": "F,1,5,31.12.2020,2",
    "numbers that are not whole": "M,1.5,7.25,2020-01-01,x",
    "numbers that are none": "M,nan,inf,9999-99-99,x",
    "too large a number": "M,99999999999999999999,1e400,2020-01-01,x",
    "too few fields": "F",
    "too many fields": "F,1,5,2020-01-01,x,y,z",
    "thousands of fields": "," * 5000,
    "text behind a quote": '"F" x,1,5,2020-01-01,x',
    "a quote within": 'F"x,1,5,2020-01-01,x',
    "a quote that does not end": '"F,1,5,2020-01-01,x',
    "a last quote that does not end": 'F,1,5,2020-01-01,"x',
    "quotes alone": '"""""""',
    "two quotes": '""',
    "a backslash before a quote": '"F\\",1,5,2020-01-01,x',
    "a value over two lines": '"F\nM",1,5,2020-01-01,x',
    "an empty line": "",
    "blanks": "   ",
    "blanks around values": " F , 1 , 5 , 2020-01-01 , x ",
    "another delimiter": "F;1;5;2020-01-01;x",
    "tabs": "F\t1\t5",
    "the header again": "sex,job,pay,day,note",
    "a comment": "# of 2020",
    "words for NULL": "NULL,NA,None,NaT,-",
    "true and false": "true,false,TRUE,f,1",
    "another end of line": "F,1,5,2020-01-01,x\r",
    "half an end of line": "F\rM,1,5,2020-01-01,x",
    "bytes of Latin-1": b"F\xe9\xff,1,5,2020-01-01,x",
    "half a character": b"\xed\xa0\x80,1,5,2020-01-01,x",
    "UTF-16": "F,1,5,2020-01-01,x".encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbfF,1,5,2020-01-01,x",
    "zeros": "F\0,1,5,2020-01-01,x\0",
    "every byte": bytes(range(256)),
    "a line of 3 MB": "F" * 3_000_000 + ",1,5,2020-01-01,x",
    "a clown": "\N{CLOWN FACE},1,5,2020-01-01,x",
    "a list": '"[F, M]",{1},5,2020-01-01,x',
}
CSV_WHOLE = {"marginals": "F,1,5,2020-01-01,1", "cells": "F,1,5,2020-01-01,1", "items": "1,ale"}


def write_csv(file: Path, lines: Sequence[str | bytes]) -> str:
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_bytes(b"".join((one.encode() if isinstance(one, str) else one) + b"\n" for one in lines))
    return str(file)


def of_files(case: str, *files: str, **more: Any) -> dict[str, Any]:
    """The request of a case for CSV files."""
    columns, mechanism = CASES[case][2:]
    how = {"epsilon": 1, "allow_empty": True}
    source = {"file": list(files), **more}
    return {"source": source, "columns": columns, "release": {"name": "r"}, "mechanism": mechanism | how}


QUICK = ("text for numbers", "a quote that does not end")


@pytest.fixture(scope="module")
def without_lines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What is observed of a CSV file that has its head alone, by case."""
    folder = tmp_path_factory.mktemp("head")
    return cache(lambda case: observed(case, of_files(case, write_csv(folder / "a.csv", [CSV_HEADS[case]])), folder))


@pytest.mark.parametrize("name", slow_but(CSV_LINES, *QUICK))
@pytest.mark.parametrize(
    "case", ["marginals", *(pytest.param(one, marks=pytest.mark.soak(part="cases")) for one in ("cells", "items"))]
)
def test_a_line_more_of_a_csv_file_changes_nothing_but_noise(
    case: str, name: str, without_lines: Callable[[str], Any], tmp_path: Path
) -> None:
    head, whole, plain = CSV_HEADS[case], CSV_WHOLE[case], without_lines(case)
    assert len(plain) > 2, plain
    for lines in ([whole, CSV_LINES[name]], [CSV_LINES[name], whole]):
        assert observed(case, of_files(case, write_csv(tmp_path / "a.csv", [head, *lines])), tmp_path) == plain


@pytest.mark.slow
@settings(max_examples=share(60) // 4, deadline=None, database=None)
@given(line=st.one_of(st.binary(max_size=40), st.text(alphabet='FM,;"\\\n\r\t .0123456789-:#', max_size=60)))
def test_any_line_of_a_csv_file_changes_nothing_but_noise(
    line: str | bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines = [CSV_HEADS["marginals"], CSV_WHOLE["marginals"]]
    runs = [
        observed("marginals", of_files("marginals", write_csv(folder / "a.csv", some)), folder)
        for some in (lines, [*lines, line])
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 2, runs[0]


def read_rows(request: dict[str, Any], folder: Path) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The types of the columns of a source and its rows, sorted."""
    with open_engine(folder, Options()) as db:
        source = prepare_records(db, build(request))
        names = [column(one.name) for one in source.roles.sensitive]
        rows = db.rows(exp.select(*names).from_(temp_table("source")))
        return [one.type for one in source.roles.sensitive], sorted(rows, key=repr)


LAYOUTS: dict[str, tuple[dict[str, list[str | bytes]], dict[str, Any]]] = {
    "several files": ({"a.csv": ["day,pay,job,sex", "2020-01-01,5,1,F"], "b.csv": ["sex;job;pay;day", "M;x;;"]}, {}),
    "columns that one lacks": (
        {"a.csv": ["sex,job,pay,day", "F,1,5,2020-01-01"], "b.csv": ["SEX,job", "M,1.5"]},
        {"union_by_name": True},
    ),
    "folders": (
        {"job=1/a.csv": ["sex,pay,day", "F,5,2020-01-01"], "job=many/a.csv": ["sex,pay,day", "M,-,"]},
        {"hive_partitioning": True},
    ),
    "names and no header": (
        {"a.csv": ["F|1|5|2020-01-01", "M|x||"]},
        {"options": {"header": False, "delimiter": "|", "names": ["sex", "job", "pay", "day"]}},
    ),
    "lines before the header": (
        {"a.csv": ["of the year", "", "sex\tjob\tpay\tday", "F\t1\t5\t2020-01-01", "# none", "M\tx"]},
        {"options": {"skip": 2, "comment": "#"}},
    ),
    "quoted": (
        {"a.csv": ['"sex","job","pay","day"', '"F","1","5","2020-01-01"', '"M","1,5",,\'']},
        {},
    ),
    "words for NULL": (
        {"a.csv": ["sex,job,pay,day", "F,1,5,2020-01-01", "M,NA,-,NA"]},
        {"options": {"nullstr": ["NA", "-"]}},
    ),
    "Latin-1": (
        {"a.csv": ["sex,job,pay,day,caf\xe9".encode("latin-1"), "F,1,5,2020-01-01,\xe9".encode("latin-1"), "M"]},
        {"options": {"encoding": "latin-1"}},
    ),
    "UTF-16": (
        {"a.csv": ["sex,job,pay,day\nF,1,5,2020-01-01\nM,,,".encode("utf-16")[:-1]]},
        {"options": {"encoding": "utf-16"}},
    ),
    "a byte order mark": ({"a.csv": [b"\xef\xbb\xbfsex,job,pay,day", "F,1,5,2020-01-01", "M,"]}, {}),
    "a query": (
        {"a.csv": ["sex,job,amount,day", "F,1,5,2020-01-01", "M,?,?,?"]},
        {
            "query": "SELECT sex, job, amount + 0 AS pay, day FROM source",
            "options": {"types": {"amount": "DOUBLE"}},
        },
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_csv_files(layout: str, tmp_path: Path) -> None:
    contents, how = LAYOUTS[layout]
    files = [write_csv(tmp_path / "in" / name, lines) for name, lines in contents.items()]
    types, rows = read_rows(of_files("marginals", *files, **how), tmp_path)
    assert types == ["VARCHAR", "BIGINT", "DOUBLE", "DATE"]
    assert rows == [("F", 1, 5.0, date(2020, 1, 1)), ("M", None, None, None)]


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_csv_files(packing: str, tmp_path: Path) -> None:
    file = tmp_path / {"gzip": "a.csv.gz", "zstd": "a.csv.zst"}[packing]
    with pa.output_stream(file, compression=packing) as stream:
        stream.write(b"sex,job,pay,day\nF,1,5,2020-01-01\n\xff,2\n")
    rows = read_rows(of_files("marginals", str(file)), tmp_path)[1]
    assert rows == [("F", 1, 5.0, date(2020, 1, 1)), ("\ufffd", 2, None, None)]


def test_a_file_without_a_header_needs_names(tmp_path: Path) -> None:
    request = of_files("marginals", write_csv(tmp_path / "a.csv", ["F,1,5,2020-01-01"]), options={"header": False})
    with pytest.raises(EngineError, match="name its columns"):
        read_rows(request, tmp_path)


KINDS = {
    "BIGINT": ["1", "-2"],
    "DOUBLE": ["1", "2.5"],
    "VARCHAR": ["01", "2"],
    "BOOLEAN": ["true", "false"],
    "DATE": ["2020-01-31"],
    "TIMESTAMP": ["2020-01-31 12:00:00"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["list", "query", "taxonomy"])
def test_types_follow_from_domains(kind: str, how: str, tmp_path: Path) -> None:
    pairs = ", ".join(f"('{value}', 'all')" for value in KINDS[kind])
    query = f"SELECT * FROM (VALUES {pairs}) AS v(value, parent)"
    domain = {"list": KINDS[kind], "query": {"query": query}, "taxonomy": {"taxonomy": query}}[how]
    file = write_csv(tmp_path / "a.csv", ["v", *KINDS[kind], "?", ""])
    mechanism = {"kind": "contingency", "epsilon": 1, "domains": {"v": domain}}
    request = {"source": {"file": file}, "columns": {"categories": ["v"]}, "mechanism": mechanism}
    types, rows = read_rows(request, tmp_path)
    assert types == [kind]
    assert sum(value is not None for (value,) in rows) == len(KINDS[kind]) + (kind == "VARCHAR")


def test_types_of_columns_in_a_query_are_kept(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", ["v", "1", "x"])
    mechanism = {"kind": "contingency", "epsilon": 1, "domains": {"v": {"query": "SELECT 1::SMALLINT"}}}
    request = {"source": {"file": file}, "columns": {"categories": ["v"]}, "mechanism": mechanism}
    assert read_rows(request, tmp_path) == (["SMALLINT"], [(1,), (None,)])


def test_a_domain_does_not_read_the_records_of_a_file(tmp_path: Path) -> None:
    mechanism = {"kind": "contingency", "epsilon": 1, "domains": {"v": {"query": "SELECT v FROM source"}}}
    source = {"file": write_csv(tmp_path / "a.csv", ["v", "1"])}
    with pytest.raises(UsageError, match="before the records are read"):
        read_rows({"source": source, "columns": {"categories": ["v"]}, "mechanism": mechanism}, tmp_path)


@pytest.mark.parametrize("value", ["1", 1.5, "many", None, b"\xff"])
def test_a_value_of_sqlite_changes_no_type(value: Any, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as db:
        db.execute("CREATE TABLE t (sex TEXT, job INTEGER, pay REAL, day TEXT)")
        rows = [("F", 1, 5, "2020-01-01"), (value, value, value, value)]
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        db.commit()
    request = of_files("marginals") | {"source": {"database": str(tmp_path / "a.sqlite"), "table": "t"}}
    types, held = read_rows(request, tmp_path)
    assert types == ["VARCHAR", "BIGINT", "DOUBLE", "DATE"]
    assert ("F", 1, 5.0, date(2020, 1, 1)) in held


def test_texts_are_read_as_the_specification_says(tmp_path: Path) -> None:
    lines = ["sex;job;pay;day", "F;1.000;2,5;31.12.2019", "M;one;-0,5;2019-12-31", "M;1,5;19,99;"]
    options = {"decimal_separator": ",", "thousands": ".", "dateformat": "%d.%m.%Y", "types": {"PAY": "DECIMAL(9,2)"}}
    types, rows = read_rows(of_files("marginals", write_csv(tmp_path / "a.csv", lines), options=options), tmp_path)
    assert types == ["VARCHAR", "BIGINT", "DECIMAL(9,2)", "DATE"]
    assert rows == [
        ("F", 1000, Decimal("2.50"), date(2019, 12, 31)),
        ("M", None, Decimal("-0.50"), None),
        ("M", None, Decimal("19.99"), None),
    ]


def test_numbers_between_whole_edges_are_in_their_bin(tmp_path: Path) -> None:
    lines = ["sex,job,pay,day", *(f"F,1,{pay},2020-01-01" for pay in (9.9, 10, "-0.5", "x"))]
    request = of_files("marginals", write_csv(tmp_path / "a.csv", lines))
    with open_engine(tmp_path, Options()) as db:
        spec = build(request)
        source = prepare_records(db, spec)
        cells, records, _ = read_coded_cells(db, source, read_columns(db, source, spec.mechanism))
    bins = dict(zip(cells[:, 2].tolist(), records.tolist(), strict=True))
    assert len(cells) == 4
    assert sorted(cells[:, 2].tolist()) == [0, 1, 2, 3], bins


def test_whole_numbers_of_pandas_stay_whole_where_one_is_missing(tmp_path: Path) -> None:
    types = []
    for jobs in ([1, 2], [1, None]):
        frame = pd.DataFrame({"sex": ["F", "M"], "job": jobs})
        columns, mechanism = {"categories": ["sex", "job"]}, CELLS_OF | {"domains": {"sex": ["F"], "job": ["1", "2"]}}
        request = {"source": {"frame": frame}, "columns": columns, "release": {"name": "r"}}
        request["mechanism"] = mechanism | {"epsilon": 1, "allow_empty": True}
        with open_engine(tmp_path, Options()) as db:
            source = prepare_records(db, build(request))
            types.append(([one.type for one in source.roles.sensitive], min(source.labels)))
    assert types == [(["VARCHAR", "BIGINT"], types[0][1])] * 2


# One value ------------------------------------------------------------------------------------------------------------


def people_with(column: str, value: Any, place: int) -> pa.Table:
    """60 people, each with a value of their own, all of which are listed, but for the one at a place."""
    ages = [20 + i % 7 * 10 for i in range(60)]
    columns = {
        "age": ages,
        "sex": [("F", "M", None)[i % 3] for i in range(60)],
        "ill": [*ILLNESSES],
        "grade": [*range(60)],
    }
    columns[column][place] = value
    return pa.table(columns, schema=PEOPLE)


def asked_of_people(case: str, source: dict[str, Any]) -> dict[str, Any]:
    """A request for noisy tables of the values of people."""
    name, mechanism, _ = SUBSTITUTED[case]
    columns = {"quasi_identifiers": ["age", "sex"], "sensitive": [name]}
    return {"source": source, "columns": columns, "release": {"name": "r"}, "mechanism": mechanism | {"epsilon": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("case", SUBSTITUTED)
def test_a_value_in_place_of_another_changes_nothing_but_noise(case: str, tmp_path: Path) -> None:
    """Whether each record has a value of its own, too: of a public list that says nothing."""
    name, _, values = SUBSTITUTED[case]
    for place in (0, 59):
        own = {"ill": f"d{place}", "grade": place}[name]
        tables = [people_with(name, value, place) for value in (own, *values)]
        seen = [observed(case, asked_of_people(case, {"frame": one}), tmp_path) for one in tables]
        assert len(seen[0]) > 2, seen[0]
        assert all(one == seen[0] for one in seen)


@pytest.mark.slow
@pytest.mark.parametrize("case", SUBSTITUTED)
def test_manifest_and_exit_stay_for_a_value(case: str, tmp_path: Path) -> None:
    stated = []
    for number, value in enumerate(SUBSTITUTED[case][2]):
        spec = asked_of_people(case, {"frame": people_with(SUBSTITUTED[case][0], value, 7)})
        spec |= {"ledger": {"off": True}, "release": {"name": "r", "to": str(tmp_path / f"{number}.duckdb")}}
        stated.append(state_release(spec))
    assert all(one == stated[0] for one in stated)


def state_release(spec: dict[str, Any]) -> Any:
    """What a release states but for what noise is in."""
    made = privsql.publish(spec, seed=1)
    with privsql.open(made) as opened:
        manifest = opened.manifest.model_dump(mode="json")
    return sorted(manifest.pop("facts")), manifest, sorted(made.facts), made.warnings


# Manifests ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("case", rest_slow(CASES))
@settings(max_examples=5, deadline=None, database=None)
@given(data=st.data())
def test_manifest_and_exit_stay(case: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    record = CASES[case][1]
    records = data.draw(st.lists(record, max_size=3))
    folder = tmp_path_factory.mktemp("release")
    stated = []
    for number, some in enumerate((records, [*records, data.draw(record)])):
        spec = asked(case, some) | {
            "ledger": {"off": True},
            "release": {"name": "r", "to": str(folder / f"{number}.duckdb")},
        }
        stated.append(state_release(spec))
    assert stated[0] == stated[1]


def test_what_refuses_by_one_record_is_refused_beforehand() -> None:
    for more, words in (({"persons": "refuse"}, "persons = 'one'"), ({"persons": None}, "persons = 'one'")):
        request = asked("marginals", [])
        request["source"] |= more
        with pytest.raises(UsageError, match=words):
            build(request)
    request = asked("views", [])
    with pytest.raises(UsageError, match="NULL would reveal one record"):
        build(request | {"columns": {"items": "goods", "nulls": {"goods": "refuse"}}})
