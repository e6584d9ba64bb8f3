"""One odd value of a table in Python, of SQLite or Parquet changes nothing of a private release, and is not shown.

An odd record is added, or an odd value takes the place of another where only values are protected. Messages, exit codes
and types stay, and no message quotes it, whatever fails.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from adversarial.test_one_record import (
    CASES,
    ILLNESSES,
    SUBSTITUTED,
    asked_of_people,
    observed,
    read_rows,
    state_release,
)
from privsql.errors import HIDDEN, UsageError
from privsql.source.places import as_frame
from support.commands import run, specification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


class Unprintable:
    """A stranger's object."""

    def __str__(self) -> str:
        raise ValueError("HIV+")


ODD: dict[str, Any] = {
    "a text": "HIV+",
    "a number as text": "1",
    "a decimal": Decimal("1.50"),
    "a large decimal": Decimal("1E+400"),
    "nothing": None,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "a float": 1.5,
    "a whole float": 1.0,
    "a large number": 10**30,
    "a huge number": 10**5000,
    "bytes": b"HIV+\xff",
    "a date": date(2020, 1, 1),
    "a moment": datetime(2020, 1, 1, 12, tzinfo=UTC),
    "an hour": time(12, 30),
    "a list": ["HIV+", 1, None],
    "a list without an item": ["HIV+", pd.NA],
    "a list of lists": ["HIV+", np.array([1, 2])],
    "a dictionary": {"HIV+": 1},
    "true": True,
    "the empty text": "",
    "half a character": "HIV+\udcff",
    "a clown": "\N{CLOWN FACE}",
    "a long text": "HIV+" * 10_000,
    "numpy's number": np.int64(1),
    "numpy's float": np.float32(1.5),
    "numpy's truth": np.True_,
    "numpy's day": np.datetime64("2020-01-01"),
    "numpy's array": np.array([1, 2]),
    "NA": pd.NA,
    "NaT": pd.NaT,
    "a moment of pandas": pd.Timestamp("2020-01-01T00:00:00.000000001"),
    "a span": pd.Timedelta(days=1),
    "an interval": pd.Interval(0, 1),
    "a complex number": 1 + 2j,
    "what has no text": Unprintable(),
}
FEW = {name: ODD[name] for name in ("a text", "a decimal", "a huge number", "half a character", "a list", "true")}
WHOLE: dict[str, list[Any]] = {
    "person": ["ann", "bob"], "sex": ["F", "M"], "job": [1, 2], "pay": [7.5, 12], "day": [date(2020, 1, 1), None],
    "goods": [["ale"], ["figs", "ale"]], "id": [1, 1], "good": ["ale", "figs"],
}  # fmt: skip


def few_and_all(cases: Iterable[str]) -> list[Any]:
    """Cases with some odd values, and with all of them in a part of ``tests.soak``."""
    return [
        pytest.param(case, odd, id=f"{case}-{len(odd)}", marks=mark)
        for case in cases
        for odd, mark in ((FEW, pytest.mark.slow), (ODD, pytest.mark.soak(part="cases")))
    ]


def make_frame(names: list[str], odd: list[Any], kind: str) -> pd.DataFrame:
    """Records of a case, and those that hold an odd value everywhere."""
    return pd.DataFrame({name: pd.Series([*WHOLE[name], *odd], dtype=object).astype(kind) for name in names})


def ask_frame(case: str, frame: Any) -> dict[str, Any]:
    schema, _, columns, mechanism = CASES[case]
    source: dict[str, Any] = {"frame": frame}
    if "person" in schema.names:
        source |= {"person": "person", "persons": "some" if "max_records" in mechanism else "one"}
    more = {"epsilon": 1, "allow_empty": True}
    return {"source": source, "columns": columns, "release": {"name": "r"}, "mechanism": mechanism | more}


@pytest.mark.parametrize(("case", "odd"), few_and_all(CASES))
def test_an_odd_record_of_pandas_changes_nothing_but_noise(case: str, odd: dict[str, Any], tmp_path: Path) -> None:
    names = CASES[case][0].names
    plain = observed(case, ask_frame(case, make_frame(names, [], "object")), tmp_path)
    assert len(plain) > 2, plain
    for name, value in odd.items():
        assert observed(case, ask_frame(case, make_frame(names, [value], "object")), tmp_path) == plain, name
    if "goods" not in names:
        assert observed(case, ask_frame(case, make_frame(names, ["HIV+"], "category")), tmp_path) == plain


@pytest.mark.parametrize(("case", "odd"), few_and_all(SUBSTITUTED))
def test_an_odd_value_of_pandas_changes_nothing_but_noise(case: str, odd: dict[str, Any], tmp_path: Path) -> None:
    name = SUBSTITUTED[case][0]
    held = [*ILLNESSES] if name == "ill" else [*range(60)]
    plain: Any = None
    for called, value in {"plain": held[7], **odd}.items():
        values = pd.Series(held, dtype=object)
        values[7] = [value] if isinstance(value, list) else value
        frame = pd.DataFrame({"age": range(60), "sex": ["F", "M"] * 30, name: values})
        seen = observed(case, asked_of_people(case, {"frame": frame}), tmp_path)
        plain = plain or seen
        assert len(seen) > 2, seen
        assert seen == plain, called


def test_values_of_pandas_are_cast_one_by_one(tmp_path: Path) -> None:
    """Under the types of the specification, as those of a file of texts."""
    frame = pd.DataFrame(
        {
            "sex": ["F", 1, None, True, b"F"],
            "job": pd.Series([1, "2", 2.0, "HIV+", np.int8(1)], dtype=object),
            "pay": pd.Series([Decimal("7.50"), "x", 12, float("inf"), None], dtype=object),
            "day": pd.Series([date(2020, 1, 1), "2020-01-01", pd.Timestamp("2020-01-01"), 1, pd.NaT], dtype=object),
        }
    )
    request = ask_frame("marginals", frame)
    del request["source"]["persons"], request["source"]["person"]
    types, rows = read_rows(request, tmp_path)
    assert types == ["VARCHAR", "BIGINT", "DOUBLE", "DATE"]
    day = date(2020, 1, 1)
    assert sorted(rows, key=repr) == sorted(
        [("F", 1, 7.5, day), ("1", 2, None, day), (None, 2, 12.0, day), ("true", None, float("inf"), None),
         (None, 1, None, None)], key=repr,
    )  # fmt: skip


@pytest.mark.slow
def test_what_is_said_of_a_frame_is_the_same(tmp_path: Path) -> None:
    """Of columns that are not published, too, and of whole numbers of which some are missing."""
    stated = []
    for number, (other, job) in enumerate(((1, 2), ("HIV+", 2), (Unprintable(), None))):
        frame = make_frame(["sex"], [], "object").assign(job=[1, job], other=pd.Series([1, other], dtype=object))
        mechanism = {"kind": "contingency", "epsilon": 1, "allow_empty": True}
        spec = {
            "source": {"frame": frame}, "columns": {"categories": ["sex", "job"]}, "ledger": {"off": True},
            "mechanism": mechanism | {"domains": {"sex": ["F", "M"], "job": ["1", "2"]}},
            "release": {"name": "r", "to": str(tmp_path / f"{number}.duckdb")},
        }  # fmt: skip
        stated.append(state_release(spec))
    assert stated[0] == stated[1] == stated[2]


# Arrow and Parquet ----------------------------------------------------------------------------------------------------


def make_texts(*values: bytes | None) -> pa.Array:
    """A column of texts, as another writer made it."""
    stored = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())


def make_numbers(kind: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int64()).cast(kind)


DAY = 86_400_000
OTHERS: dict[str, tuple[list[str], list[pa.Array]]] = {
    "a text that is not UTF-8": (
        ["F", "M"], [make_texts(b"F", one) for one in (b"M", b"HIV+\xff", b"\xed\xa0\x80", None)]
    ),
    "its category": (
        ["F", "M"],
        [pa.DictionaryArray.from_arrays(pa.array([0, 1]), make_texts(b"F", one)) for one in (b"M", b"HIV+\xff")],
    ),
    "nanoseconds": (
        ["1970-01-01 00:00:00"], [make_numbers(pa.timestamp("ns"), 0, one) for one in (1_000, 1, None)]
    ),
    "late seconds": (
        ["1970-01-01 00:00:00"], [make_numbers(pa.timestamp("s"), 0, one) for one in (1, 9 * 10**15, None)]
    ),
    "late milliseconds": (
        ["1970-01-01 00:00:00"], [make_numbers(pa.timestamp("ms"), 0, one) for one in (1, 9 * 10**18, -(9 * 10**18))]
    ),
    "early microseconds": (
        ["1970-01-01 00:00:00"], [make_numbers(pa.timestamp("us"), 0, one) for one in (1, -(2**63) + 1)]
    ),
    "late hours": (["00:00:00"], [make_numbers(pa.time64("us"), 0, one) for one in (1, 2**62, -1)]),
    "late days": (["1970-01-01"], [make_numbers(pa.date64(), 0, one * DAY) for one in (1, 2**62 // DAY)]),
    "nothing but NULL": (["1", "2"], [pa.array([1, 2]), pa.array([None, 1])]),
}  # fmt: skip


def ask_column(domain: list[str], source: dict[str, Any]) -> dict[str, Any]:
    mechanism = {"kind": "contingency", "epsilon": 1, "allow_empty": True, "domains": {"x": domain}}
    return {"source": source, "columns": {"categories": ["x"]}, "release": {"name": "r"}, "mechanism": mechanism}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_an_odd_value_of_arrow_or_parquet_changes_nothing_but_noise(kind: str, tmp_path: Path) -> None:
    domain, columns = OTHERS[kind]
    for place in ("frame", "file", "query"):
        seen = []
        for number, values in enumerate(columns):
            rows, file = pa.table({"x": values, "rest": ["a", "b"]}), tmp_path / f"{number}.parquet"
            pq.write_table(rows, file)
            source = {"file": str(file)} | ({"query": "SELECT x FROM source"} if place == "query" else {})
            seen.append(
                observed("marginals", ask_column(domain, {"frame": rows} if place == "frame" else source), tmp_path)
            )
        assert len(seen[0]) > 2, seen[0]
        assert all(one == seen[0] for one in seen), place


def test_an_odd_parquet_file_among_others_is_read(tmp_path: Path) -> None:
    for number, odd in enumerate((b"M", b"\xff")):
        (tmp_path / f"year={number}").mkdir()
        rows = pa.table({"x": make_texts(b"F", odd), "n": pa.array([1, 2], pa.int8())})
        pq.write_table(rows, tmp_path / f"year={number}" / "rows.parquet")
    source = {"file": str(tmp_path / "*" / "rows.parquet"), "hive_partitioning": True}
    request = ask_column(["F", "M"], source | {"query": "SELECT x || year || n AS x FROM source"})
    request["mechanism"]["domains"] = {"x": ["F01", "M02", "F11"]}
    assert read_rows(request, tmp_path) == (["VARCHAR"], [("F01",), ("F11",), ("M02",), ("\ufffd12",)])


def test_a_stream_without_rows_is_a_private_release_of_nobody(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.string()})
    made = [
        pa.RecordBatchReader.from_batches(schema, [pa.record_batch({"x": pa.array(one, pa.string())})])
        for one in ([], ["F"])
    ]
    seen = [observed("marginals", ask_column(["F", "M"], {"frame": one}), tmp_path) for one in made]
    assert len(seen[0]) > 2
    assert seen[0] == seen[1]


def test_decimals_of_postgres_are_read_one_by_one() -> None:
    kind = pa.opaque(pa.string(), "numeric", "PostgreSQL")
    field = pa.field("pay", kind, metadata={"POSTGRESQL:type": "numeric", "POSTGRESQL:typmod": str((9 << 16) + 2 + 4)})
    stored = pa.ExtensionArray.from_storage(
        kind, pa.array(["1.50", "NaN", "99999999999.5", "1.505", None], pa.string())
    )
    read = as_frame(pa.table([stored], schema=pa.schema([field]))).by_value(None).table["pay"]
    assert read.type == pa.decimal128(9, 2)
    assert read.to_pylist() == [Decimal("1.50"), None, None, None, None]


# SQLite ---------------------------------------------------------------------------------------------------------------

LITE: dict[str, str] = {
    "a text": "'HIV+'", "a text that is not UTF-8": "CAST(X'464956FF' AS TEXT)", "bytes": "X'46FF'", "a number": "1",
    "a float": "1.5", "infinity": "9e999", "NULL": "NULL", "a large number": "9223372036854775807",
    "a list": "'[1, 2]'", "the empty text": "''", "a zero": "CAST(X'4600' AS TEXT)",
}  # fmt: skip


REST = ("marginals", "items", "values")


def write_lite(file: Path, table: str, rows: list[str]) -> dict[str, Any]:
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"CREATE TABLE {table}")
        for row in rows:
            db.execute(f"INSERT INTO t VALUES ({row})")
        db.commit()
    return {"database": str(file), "table": "t"}


FEW_LITE = {name: LITE[name] for name in ("a text that is not UTF-8", "infinity", "NULL")}


@pytest.mark.parametrize(
    ("case", "odd_values"),
    [("numbers", FEW_LITE), *(pytest.param(one, LITE, marks=pytest.mark.slow) for one in ("numbers", *REST))],
)
def test_an_odd_value_of_sqlite_changes_nothing_but_noise(
    case: str, odd_values: dict[str, str], tmp_path: Path
) -> None:
    seen = {}
    for number, (name, odd) in enumerate({"plain": "1", **odd_values}.items()):
        file = tmp_path / f"{number}.sqlite"
        if case in SUBSTITUTED:
            held = SUBSTITUTED[case][0]
            first = [f"{i}, 'F', {i if held == 'grade' else repr(ILLNESSES[i])}" for i in range(59)]
            source = write_lite(file, f"t (age INTEGER, sex TEXT, {held})", [*first, f"59, 'F', {odd}"])
            seen[name] = observed(case, asked_of_people(case, source), tmp_path)
            continue
        names = [one for one in CASES[case][0].names if one != "person"]
        whole = {"sex": "'F'", "job": "1", "pay": "5", "day": "'2020-01-01'", "id": "1", "good": "'ale'"}
        rows = [", ".join(whole[one] for one in names)] + ([", ".join([odd] * len(names))] if name != "plain" else [])
        source = write_lite(file, f"t ({', '.join(names)})", rows)
        request = ask_frame(case, None) | {"source": source}
        seen[name] = observed(case, request, tmp_path)
    assert len(seen["plain"]) > 2, seen["plain"]
    for name, one in seen.items():
        assert one == seen["plain"], name


# Messages -------------------------------------------------------------------------------------------------------------


def fail_stream() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"x": ["F"]})
    raise ValueError("HIV+ is no sex")


def make_failing(tmp_path: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Sources whose own query, or maker, fails at a value."""
    rows = pa.table({"x": ["1", "HIV+"]})
    pq.write_table(rows, tmp_path / "a.parquet")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as db:
        db.execute("CREATE TABLE t AS SELECT unnest(['1', 'HIV+']) AS x")
        db.execute("CREATE VIEW v AS SELECT CAST(x AS INTEGER) AS x FROM t")
    write_lite(tmp_path / "a.sqlite", "t (x)", ["'HIV+'"])
    query = "SELECT CAST(x AS INTEGER) AS x FROM source"
    broken = pa.schema({"x": pa.string()})
    return {
        "frame": lambda: {"frame": rows, "query": query},
        "Parquet": lambda: {"file": str(tmp_path / "a.parquet"), "query": query},
        "an error": lambda: {"file": str(tmp_path / "a.parquet"), "query": "SELECT error(x) AS x FROM source"},
        "a view": lambda: {"database": str(tmp_path / "a.duckdb"), "table": "v"},
        "DuckDB": lambda: {"database": str(tmp_path / "a.duckdb"), "query": query.replace("source", "t")},
        "SQLite": lambda: {"database": str(tmp_path / "a.sqlite"), "query": "SELECT json_extract(x, '$') AS x FROM t"},
        "a relation": lambda: {"frame": duckdb.sql("SELECT CAST(x AS INTEGER) AS x FROM (VALUES ('HIV+')) AS v(x)")},
        "a stream": lambda: {"frame": pa.RecordBatchReader.from_batches(broken, fail_stream())},
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["contingency", "setvalued", "randomize"])
def test_no_message_on_the_source_of_a_private_release_shows_a_value(kind: str, tmp_path: Path) -> None:
    mechanisms: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "contingency": ({"categories": ["x"]}, {"domains": {"x": ["1", "2"]}}),
        "setvalued": ({"record": "x2", "item": "x"}, {"universe": ["1", "2"]}),
        "randomize": ({"quasi_identifiers": ["x2"], "sensitive": ["x"]}, {"algorithm": "tables", "values": ["1", "2"]}),
    }
    columns, mechanism = mechanisms[kind]
    shown = 0
    for name, make in make_failing(tmp_path).items():
        source = make()
        if kind != "contingency" and "query" in source:
            source["query"] = f"SELECT x, x AS x2 FROM ({source['query']}) AS q"
        elif kind != "contingency":
            continue
        request = {"source": source, "columns": columns, "mechanism": mechanism | {"kind": kind, "epsilon": 1}}
        with pytest.raises(privsql.PrivsqlError) as caught:
            privsql.plan(request | {"ledger": {"off": True}})
        assert "HIV" not in str(caught.value), name
        shown += HIDDEN in str(caught.value)
    assert shown > 3


def test_other_releases_show_what_is_wrong(tmp_path: Path) -> None:
    source = make_failing(tmp_path)["Parquet"]()
    request = {
        "source": source,
        "columns": {"quasi_identifiers": ["x"], "sensitive": "x"},
        "mechanism": {"threshold": "1/2"},
    }
    request["columns"] = {"quasi_identifiers": ["y"], "sensitive": "x"}
    source["query"] = "SELECT CAST(x AS INTEGER) AS x, 1 AS y FROM source"
    with pytest.raises(UsageError, match="HIV"):
        privsql.plan(request)


def test_no_value_of_a_frame_is_in_a_message(tmp_path: Path) -> None:
    """Not that of a column that is not published, either."""
    frame = pd.DataFrame({"sex": ["F", "M"], "other": pd.Series([1, "HIV+"], dtype=object)})
    mechanism = {"kind": "contingency", "epsilon": 1, "allow_empty": True, "domains": {"sex": ["F", "M"]}}
    spec = {"source": frame, "columns": {"categories": ["sex"]}, "mechanism": mechanism, "ledger": {"off": True}}
    done = privsql.publish(spec, to=tmp_path / "r.duckdb", seed=1)
    assert done.warnings == []


def test_the_command_line_shows_no_value(tmp_path: Path) -> None:
    make_failing(tmp_path)
    spec = specification(
        tmp_path, source='file = "a.parquet"\nquery = "SELECT CAST(x AS INTEGER) AS x FROM source"',
        columns='categories = ["x"]', mechanism='kind = "contingency"\nepsilon = 1\ndomains = { x = ["1", "2"] }',
    )  # fmt: skip
    for verb in (("plan", spec), ("publish", spec, "--set", "ledger.off=true"), ("plan", spec, "--json")):
        done = run(*verb)
        assert done.code
        assert "HIV" not in done.out + done.err
