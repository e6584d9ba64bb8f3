"""Digests of tables: the same for the same rows in the same order, wherever an engine cuts them, and for no others."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import duckdb
import pyarrow as pa
import pytest

import privsql
from privsql.engine.database import Options
from privsql.engine.open import open_engine, open_scratch
from privsql.engine.sqlfiles import all_rows, table, temp_table
from privsql.releases.draft import digest_table
from support.commands import LARGE_TABLE, by_keys, succeeded, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from privsql.engine.database import Relations

EVERY_TYPE = """
SELECT CAST(i % 90 AS UTINYINT) AS small, i AS large, i / 7 AS real, CAST(i % 9 AS DECIMAL(8,2)) AS decimal,
  i % 3 = 0 AS truth, repeat('é', i % 4) || i % 11 AS text, DATE '2020-01-01' + CAST(i % 99 AS INTEGER) AS day,
  TIMESTAMP '2020-01-01' + INTERVAL (i) SECOND AS moment, TIME '00:00' + INTERVAL (i) SECOND AS clock,
  [CAST(j AS VARCHAR) FOR j IN range(i % 5)] AS items,
  CASE WHEN i % 13 > 0 THEN i END AS some_numbers, CASE WHEN i % 17 > 0 THEN 'a' || i % 5 END AS some_texts,
  CASE WHEN i % 19 > 0 THEN i % 2 = 0 END AS some_truth,
  CASE WHEN i % 23 > 0 THEN [CASE WHEN j > 0 THEN j END FOR j IN range(i % 3)] END AS some_items
FROM range({rows}) AS t(i)
"""
LARGE = (122_880, 430_185)  # rows of DuckDB's row groups, and of a cut that came up with two threads


class CutTable:
    """A table that comes over in pieces of some numbers of rows, one after the other."""

    def __init__(self, rows: pa.Table, cuts: Sequence[int]) -> None:
        self.rows, self.cuts = rows, cuts

    @contextmanager
    def stream_batches(self, *_: object) -> Iterator[pa.RecordBatchReader]:
        """The pieces; the last number holds for the rest."""
        pieces, start, number = [], 0, 0
        while start < len(self.rows):
            length = self.cuts[min(number, len(self.cuts) - 1)]
            pieces += self.rows.slice(start, length).combine_chunks().to_batches() or []
            start, number = start + length, number + 1
        yield pa.RecordBatchReader.from_batches(self.rows.schema, pieces)


def digest(rows: pa.Table, *cuts: int) -> str:
    return digest_table(cast("Relations", CutTable(rows, cuts)), table("any"))


def make_rows(number: int) -> pa.Table:
    return duckdb.sql(EVERY_TYPE.format(rows=number)).to_arrow_table()


@pytest.mark.parametrize("cuts", [(1,), (2,), (3, 0, 5), (7,), (64, 1), (999,)])
def test_cuts_do_not_change_the_digest(cuts: tuple[int, ...]) -> None:
    rows = make_rows(1000)
    assert digest(rows, *cuts) == digest(rows, 1000)
    assert digest(rows.slice(3, 600), *cuts) == digest(rows.slice(3, 600).combine_chunks(), 1000)


@pytest.mark.slow
def test_large_cuts_do_not_change_the_digest() -> None:
    rows = make_rows(1_000_000)
    assert len({digest(rows, *cuts) for cuts in ((LARGE[0],), (LARGE[1],), LARGE, LARGE[::-1], (10**6,))}) == 1


def test_an_empty_table_has_one_digest() -> None:
    assert digest(make_rows(0), 1) == digest_table(
        cast("Relations", CutTable(make_rows(3).slice(0, 0), [1])), table("any")
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", make_rows(1).column_names)
def test_a_changed_value_changes_the_digest(name: str) -> None:
    """Each value in turn gives way to its neighbour, and the rows to another order."""
    rows = make_rows(60)
    place, known = rows.column_names.index(name), {digest(rows, 7)}
    values, number = rows.column(name).to_pylist(), 1
    for at, (one, other) in enumerate(pairwise(values)):
        if one != other:
            changed = pa.array([*values[:at], other, *values[at + 1 :]], rows.schema.field(name).type)
            known.add(digest(rows.set_column(place, name, changed), 7))
            number += 1
    assert len(known) == number > 1
    assert digest(rows.take(pa.array(range(59, -1, -1))), 7) not in known


def test_texts_do_not_run_into_each_other() -> None:
    one, other = (pa.table({"a": pa.array(texts)}) for texts in (["ab", "c"], ["a", "bc"]))
    assert digest(one, 1) != digest(other, 1)
    one, other = (pa.table({"a": pa.array(lists)}) for lists in ([["a"], ["b", "c"]], [["a", "b"], ["c"]]))
    assert digest(one, 2) != digest(other, 2)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", LARGE)
def test_row_groups_and_threads_do_not_change_the_digest(tmp_path: Path, threads: int, rows: int) -> None:
    """A table, its Parquet file in row groups of another size, and a table that was written from that."""
    made = EVERY_TYPE.format(rows=600_000)
    file = tmp_path / "t.parquet"
    with duckdb.connect() as db:
        db.execute(f"COPY ({made}) TO '{file}' (ROW_GROUP_SIZE {rows})")
        db.execute(f"ATTACH '{tmp_path / 't.duckdb'}' AS t; CREATE TABLE t.t AS {made}")
    with open_scratch() as db:
        db.attach(tmp_path / "t.duckdb", "r", read_only=True)
        expected = digest_table(db, table("t", "r"))
    with open_engine(tmp_path, Options(threads=threads)) as db:
        db.create_view("shown", db.scan_files([file], "parquet"))
        db.create_table("copied", all_rows(temp_table("shown")))
        assert digest_table(db, temp_table("shown")) == digest_table(db, temp_table("copied")) == expected


@pytest.mark.slow
def test_a_repeat_with_other_threads_is_the_same_release(tmp_path: Path) -> None:
    people, how = write(tmp_path / "people.parquet", LARGE_TABLE), {"threshold": "2*f + 0.1", "algorithm": "two-size"}
    usual = {"qi": ["age", "sex", "place"], "sensitive": "disease", "to": tmp_path / "r.duckdb", "repeat": True, **how}
    for threads in (2, 1):
        privsql.publish(people, threads=threads, **by_keys(usual))
    releases = succeeded("ledger", "--json").json["releases"]
    assert [one["composes"] for one in releases] == [
        "no earlier release of these people",
        "a repeat of an earlier release",
    ]
