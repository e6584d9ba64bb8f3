"""Rows that lie in a release's files beside its tables: ``verify`` refuses them wherever they are, as all verbs do."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql import PrivsqlError
from privsql.engine.open import open_scratch
from privsql.model.manifest import MANIFEST
from privsql.releases.draft import MAIN, digest_schema
from privsql.releases.opened import attach_clean_file, attach_release, read_manifest
from privsql.source.targets import as_target
from support.commands import refused, run, succeeded
from support.loops import rest_slow, slow_but
from support.shelf import KEPT_APART, MECHANISMS, taken
from support.tampering import as_folder, failed, name_manifest, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = [f"Alice Example {number}: HIV" for number in range(1_000)]
RAW = "\n".join(NAMES).encode()
ROWS = "SELECT 'Alice Example ' || range || ': HIV' AS person, range AS place FROM range(1000)"
LEFTOVERS = "its files hold no free blocks, deleted rows or other metadata"
UNUSED = "the footers of its files name only values of its tables"


def first_table(db: duckdb.DuckDBPyConnection) -> tuple[str, list[str]]:
    """A table of a release with a column of text, and its columns with NULL for all others."""
    found = """SELECT table_name FROM duckdb_columns() JOIN duckdb_tables() USING (table_name)
        WHERE data_type = 'VARCHAR' AND table_name <> ? ORDER BY 1"""
    (called,) = db.execute(found, [MANIFEST]).fetchall()[0]
    kinds = db.execute(f"DESCRIBE {called}").fetchall()
    return called, [f"person AS {name}" if kind == "VARCHAR" else f"NULL AS {name}" for name, kind, *_ in kinds]


# A DuckDB file ---


def dropped(release: Path) -> None:
    """A table of the rows that is gone, before one that stays."""
    with duckdb.connect(str(release)) as db:
        db.execute("SET force_compression = 'uncompressed'")
        db.execute(f"CREATE TABLE raw AS {ROWS}")
        db.execute("CHECKPOINT")
        db.execute(f"CREATE TABLE copied AS FROM {MANIFEST}")
        db.execute("CHECKPOINT")
        db.execute(f"DROP TABLE raw; DROP TABLE copied; CREATE OR REPLACE TABLE {MANIFEST} AS FROM {MANIFEST}")


def appended(release: Path) -> None:
    """Bytes behind the last block."""
    with release.open("ab") as file:
        file.write(RAW)


def in_a_header(release: Path) -> None:
    """Bytes in what a header leaves empty, under the checksum that DuckDB expects."""
    with release.open("r+b") as file:
        file.seek(1000)
        file.write(RAW[:3000])


def deleted(release: Path) -> None:
    """Rows of a stated table that were inserted and deleted."""
    with duckdb.connect(str(release)) as db:
        db.execute("SET force_compression = 'uncompressed'")
        changed, columns = first_table(db)
        db.execute(f"INSERT INTO {changed} SELECT {', '.join(columns)} FROM ({ROWS})")
    with duckdb.connect(str(release)) as db:
        text = columns[next(i for i, one in enumerate(columns) if one.startswith("person"))].removeprefix("person AS ")
        db.execute(f"DELETE FROM {changed} WHERE {text} LIKE 'Alice Example%'")


FILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "dropped": (dropped, "free blocks"),
    "appended": (appended, "headers and blocks"),
    "deleted": (deleted, "1,000 deleted rows of"),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", FILE)
@pytest.mark.parametrize("name", rest_slow(MECHANISMS))
def test_rows_in_a_database_file_are_refused(shelf: Path, tmp_path: Path, name: str, place: str) -> None:
    release = taken(shelf, tmp_path, name)
    hide, words = FILE[place]
    hide(release)
    assert b"Alice Example" in release.read_bytes()
    found = failed(run("verify", release, "--json"))
    assert words in " ".join(found[LEFTOVERS])
    refused(run("query", release, f"SELECT COUNT(*) FROM {KEPT_APART.get(name, 'people')}"), 1, "verify it")


def test_bytes_in_the_header_of_a_database_file_are_refused(shelf: Path, tmp_path: Path) -> None:
    release = taken(shelf, tmp_path)
    in_a_header(release)
    done = run("verify", release)
    assert done.code in {1, 4}, done.out


# A folder of Parquet ---


def with_entries(path: Path) -> None:
    """Metadata of the file."""
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE t AS FROM '{path}'")
        options = f"COMPRESSION zstd, WRITE_BLOOM_FILTER false, KV_METADATA {{raw: '{RAW.decode()}'}}"
        db.execute(f"COPY t TO '{path}' ({options})")


def with_a_schema(path: Path) -> None:
    """Arrow's own description of the columns, which holds metadata of a column."""
    read = pq.read_table(path)
    field = read.schema.field(0).with_metadata({b"raw": RAW})
    pq.write_table(read.cast(read.schema.set(0, field)), path, compression="zstd")


def with_a_filter(path: Path) -> None:
    """A Bloom filter, which is bits that nobody can check."""
    with duckdb.connect() as db:
        db.execute(f"CREATE TABLE t AS FROM '{path}'")
        db.execute(f"COPY t TO '{path}' (COMPRESSION zstd, ROW_GROUP_SIZE 122880, WRITE_BLOOM_FILTER true)")


def footer_of(content: bytes) -> tuple[bytes, bytes]:
    """A file up to its footer, and the footer."""
    (length,) = struct.unpack("<I", content[-8:-4])
    return content[: -8 - length], content[-8 - length : -8]


def with_footer(path: Path, pages: bytes, footer: bytes) -> None:
    """Write a file of these parts."""
    path.write_bytes(pages + footer + struct.pack("<I", len(footer)) + b"PAR1")


def before_the_footer(path: Path) -> None:
    """Bytes between the last page and the footer."""
    pages, footer = footer_of(path.read_bytes())
    with_footer(path, pages + RAW, footer)


def behind_the_footer(path: Path) -> None:
    """Bytes between the end of the footer and its length."""
    pages, footer = footer_of(path.read_bytes())
    with_footer(path, pages, footer + RAW)


def numbered(value: int) -> bytes:
    """A number of variable length, as Thrift writes it."""
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def in_an_unknown_field(path: Path) -> None:
    """A further entry of the footer, which readers skip."""
    pages, footer = footer_of(path.read_bytes())
    entry = bytes([0x08]) + numbered(100 << 1) + numbered(len(RAW)) + RAW  # field 100, a text
    with_footer(path, pages, footer[:-1] + entry + b"\0")


def as_the_writer(path: Path) -> None:
    """The name of the program that wrote it."""
    pages, footer = footer_of(path.read_bytes())
    begin = footer.index(b"DuckDB version")
    name = footer[begin : begin + footer[begin - 1]]
    with_footer(path, pages, footer.replace(bytes([len(name)]) + name, numbered(len(RAW)) + RAW))


def behind_everything(path: Path) -> None:
    """Bytes behind the magic number, which end as a file does."""
    content = path.read_bytes()
    _, footer = footer_of(content)
    path.write_bytes(content + RAW + footer + content[-8:])


PARQUET: dict[str, tuple[Callable[[Path], None], str]] = {
    "metadata of the file": (with_entries, "metadata 'raw'"),
    "metadata of a column": (with_a_schema, "metadata 'ARROW:schema'"),
    "a filter": (with_a_filter, "bytes of no column"),
    "bytes before the footer": (before_the_footer, "bytes of no column"),
    "bytes behind the footer": (behind_the_footer, "bytes of no column"),
    "an unknown field": (in_an_unknown_field, "no reader knows"),
    "the name of the writer": (as_the_writer, "a writer"),
    "a second footer": (behind_everything, "bytes of no column"),
}


@pytest.mark.parametrize("place", slow_but(PARQUET, "metadata of the file", "an unknown field"))
def test_rows_in_a_parquet_file_are_refused(shelf: Path, tmp_path: Path, place: str) -> None:
    release = taken(shelf, tmp_path, "folder")
    hide, words = PARQUET[place]
    hide(release / "st.parquet")
    refused(run("query", release, "SELECT COUNT(*) FROM people"), 1, "st.parquet has other bytes")
    seal(release)
    assert pq.read_table(release / "st.parquet").num_rows == 400  # readers notice nothing
    if place != "a filter":
        assert b"Alice Example" in (release / "st.parquet").read_bytes() or place == "metadata of a column"
    found = failed(run("verify", release, "--json"))
    assert any("st.parquet" in line and words in line for line in found[LEFTOVERS]), found
    refused(run("query", release, "SELECT COUNT(*) FROM people"), 1, "st.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(MECHANISMS))
def test_folders_of_every_mechanism_are_looked_at(shelf: Path, tmp_path: Path, name: str) -> None:
    """A release of each, as a folder: nothing of what DuckDB writes is refused, and metadata of it is."""
    folder = as_folder(taken(shelf, tmp_path, name), tmp_path / "folder")
    assert run("verify", folder, "--json").code == 0
    with_entries(folder / f"{MANIFEST}.parquet")
    found = failed(run("verify", folder, "--json"))
    assert any("views.sql" in line for lines in found.values() for line in lines)
    seal(folder)
    with_entries(folder / f"{MANIFEST}.parquet")
    name_manifest(folder)
    found = failed(run("verify", folder, "--json"))
    assert any("metadata 'raw'" in line for line in found[LEFTOVERS])


@pytest.mark.parametrize("times", [1, 2], ids=["in one entry", "in both"])
def test_values_that_no_row_has_are_found(shelf: Path, tmp_path: Path, times: int) -> None:
    """A footer states each bound twice, for old readers and for new ones."""
    release = taken(shelf, tmp_path, "folder")
    path = release / "st.parquet"
    pages, footer = footer_of(path.read_bytes())
    (last,) = duckdb.execute(f"SELECT max(disease) FROM '{path}'").fetchall()[0]
    held = bytes([len(last)]) + last.encode()
    assert footer.count(held) == 2
    with_footer(path, pages, footer.replace(held, numbered(len(RAW)) + RAW, times))
    found = failed(run("verify", seal(release), "--json"))
    assert found.keys() >= {UNUSED}, found


@pytest.mark.slow
def test_what_readers_skip_among_pages_is_gone_from_a_copy(shelf: Path, tmp_path: Path) -> None:
    """Entries of a dictionary that no row uses pass, as SECURITY.md says; a copy is written from the rows."""
    release = taken(shelf, tmp_path, "folder")
    path = release / "st.parquet"
    rows, known = pq.read_table(path), pq.read_table(path).column("disease").unique().to_pylist()
    codes = pa.array([known.index(one) for one in rows.column("disease").to_pylist()], pa.int32())
    column = pa.DictionaryArray.from_arrays(codes, pa.array([*known, *NAMES]))
    pq.write_table(rows.set_column(1, "disease", column), path, store_schema=False, compression="none")
    pages, footer = footer_of(path.read_bytes())
    begin = footer.index(b"parquet-cpp-arrow")
    name = b"DuckDB version v2.0.0 (build d54cbbe3df)"
    with_footer(path, pages, footer[: begin - 1] + bytes([len(name)]) + name + footer[begin + footer[begin - 1] :])
    assert RAW[-20:].split(b"\n")[-1] in path.read_bytes()
    assert privsql.verify(seal(release))
    copy = tmp_path / "copy"
    succeeded("verify", release, "--copy-to", copy)
    assert b"Alice Example" not in (copy / "st.parquet").read_bytes()
    assert pq.read_metadata(copy / "st.parquet").row_group(0).column(1).compression == "ZSTD"


# A flipped bit ---


def flip(path: Path, place: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize(
    "number",
    [2, pytest.param(8, marks=pytest.mark.slow), pytest.param(400, marks=pytest.mark.soak(part="mutations"))],
)
def test_a_flipped_bit_of_a_folder_is_refused_at_opening(shelf: Path, tmp_path: Path, number: int) -> None:
    """In each file, at the ends and at random places."""
    release, draw = taken(shelf, tmp_path, "folder"), random.Random(7)  # noqa: S311 (no secret)
    for path in sorted(release.iterdir()):
        content = path.read_bytes()
        places = {0, 3, len(content) - 1, len(content) - 9, *(draw.randrange(len(content)) for _ in range(number))}
        for place in sorted(places)[:: max(1, len(places) // number)]:
            flip(path, place, draw.randrange(8))
            with pytest.raises(PrivsqlError):
                privsql.query(release, "SELECT COUNT(*) FROM people")
            path.write_bytes(content)
    assert privsql.query(release, "SELECT COUNT(*) FROM people").rows[0][0] == 400


# Copies ---


@pytest.mark.slow
def test_a_clean_copy_has_the_tables_alone(shelf: Path, tmp_path: Path) -> None:
    for name in ("bucketize", "folder"):
        release = taken(shelf, tmp_path, name)
        copy = tmp_path / f"copy-{release.name}"
        done = succeeded("verify", release, "--copy-to", copy, "--json").json
        assert done["copy"] == str(copy)
        stated, found = read_manifest(release), read_manifest(copy)
        assert found == stated.model_copy(update={"files": found.files})
        assert found.files.keys() == stated.files.keys()
        assert privsql.verify(copy)
        refused(run("verify", release, "--copy-to", copy), 2, "exists; choose another path for the copy")
    with open_scratch() as db:
        db.attach(tmp_path / "bucketize.duckdb", "release", read_only=True)
        db.attach(tmp_path / "copy-bucketize.duckdb", "copy", read_only=True)
        assert digest_schema(db, "release", MAIN) == digest_schema(db, "copy", MAIN)
    refused(run("verify", tmp_path / "folder", "--copy-to", tmp_path / "folder" / "inner"), 2, "lies inside")


def test_what_does_not_verify_is_not_copied(shelf: Path, tmp_path: Path) -> None:
    release = taken(shelf, tmp_path)
    appended(release)
    done = run("verify", release, "--copy-to", tmp_path / "copy.duckdb")
    assert done.code == 1
    assert "no copy is written" in done.out
    assert not (tmp_path / "copy.duckdb").exists()


@pytest.mark.slow
def test_publishing_leaves_no_block_of_what_was_dropped(shelf: Path, tmp_path: Path) -> None:
    """A file that has free blocks is written afresh, one that has none stays."""
    release = taken(shelf, tmp_path)
    with attach_release(as_target(release)) as (_, stated):
        pass
    with open_scratch() as db:
        with attach_clean_file(db, release, stated) as file:
            assert file == release
        dropped(release)
        with attach_clean_file(db, release, stated) as fresh:
            pass
    assert fresh != release
    assert b"Alice Example" not in fresh.read_bytes()
    assert privsql.verify(fresh)
