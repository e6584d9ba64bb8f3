"""A session for files that others made: it reaches nothing else and believes nothing that they say of themselves."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import pytest
import sqlglot

from privsql.engine.database import Options
from privsql.engine.duck import container as inside
from privsql.engine.open import open_engine, open_locked
from privsql.engine.sqlfiles import DIALECT
from privsql.errors import EngineError, PrivsqlError, UsageError
from support.commands import run, warehouse
from support.forging import misstated
from support.shelf import altered
from support.tampering import failed

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.engine.database import Relations

RARE = 123_456_789
ASKED = {
    "SELECT max(count) FROM {t}": RARE,
    "SELECT count(*) FROM {t} WHERE count > 5": 1,
    "SELECT count(*) FROM {t} AS t WHERE EXISTS (SELECT 1 FROM {t} AS s WHERE s.count > 5 AND s.bid = t.bid)": 143,
    "WITH q AS (SELECT * FROM {t}) SELECT count(*) FROM q WHERE count <> 1": 1,
    "SELECT count FROM {t} ORDER BY count DESC LIMIT 1": RARE,
    "SELECT count(*) FROM (SELECT count FROM {t} GROUP BY count)": 2,
    "SELECT count(*) FROM {t} AS s JOIN (SELECT CAST(123456789 AS INTEGER) AS n) AS o ON s.count = o.n": 1,
    "SELECT sum(n) FROM (SELECT count, count(*) AS n FROM {t} GROUP BY count HAVING count > 1)": 1,
    "SELECT count(DISTINCT count) FROM {t}": 2,
}


def value(db: Relations, sql: str) -> Any:
    """The one value of a query."""
    return db.rows(sqlglot.parse_one(sql, dialect=DIALECT))[0][0]


def misled(db: Relations, sql: str, expected: Any) -> bool:
    """Whether a query gives something else, or notices that it would."""
    try:
        return bool(value(db, sql) != expected)
    except PrivsqlError:
        return True


@pytest.fixture
def liar(tmp_path: Path) -> Path:
    """A file with one large count, whose statistics say that all are 1."""
    made = (
        f"SELECT i % 7 AS bid, CAST(CASE WHEN i = 77 THEN {RARE} ELSE 1 END AS INTEGER) AS count FROM range(1000) r(i)"
    )
    path = warehouse(tmp_path / "liar.duckdb", f"CREATE TABLE t AS {made}")
    assert misstated(path, RARE, 1)
    return path


def test_statistics_of_a_strangers_file_are_not_believed(liar: Path, tmp_path: Path) -> None:
    with open_locked({"release": liar}, home="release") as db:
        assert {sql: value(db, sql.format(t="t")) for sql in ASKED} == ASKED
    with open_engine(tmp_path / "spill", Options()) as room:
        room.attach(liar, "release", read_only=True, strange=True)
        assert {sql: value(room, sql.format(t="release.t")) for sql in ASKED} == ASKED


def test_statistics_that_are_false_do_hide_rows(liar: Path, tmp_path: Path) -> None:
    """What the test above is good for."""
    with open_engine(tmp_path / "spill", Options()) as room:
        room.attach(liar, "release", read_only=True)
        wrong = [sql for sql, expected in ASKED.items() if misled(room, sql.format(t="release.t"), expected)]
    assert len(wrong) >= 3


def test_verify_sees_what_false_statistics_hide(shelf: Path, tmp_path: Path) -> None:
    """A count of a bucket, and a list of values that is not in order."""
    release = altered(shelf, tmp_path, f"UPDATE st SET count = {RARE} WHERE rowid = 3")
    before = failed(run("verify", release, "--json"))
    assert misstated(release, RARE, 1)
    assert failed(run("verify", release, "--json")).keys() == before.keys()


def test_tables_without_a_database_are_those_of_home(tmp_path: Path) -> None:
    first = warehouse(tmp_path / "first.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    second = warehouse(tmp_path / "second.duckdb", "CREATE TABLE t AS SELECT 2 AS a")
    with open_locked({"one": first, "two": second}, home="two") as db:
        assert value(db, "SELECT a FROM t") == 2
        assert value(db, "SELECT a FROM one.t") == 1
        assert value(db, "WITH t AS (SELECT 3 AS a) SELECT a FROM t") == 3
        db.create_view("v", sqlglot.parse_one("SELECT a + 10 AS a FROM t"))
        assert value(db, 'SELECT a FROM temp."privsql_v"') == 12


def test_only_the_named_files_are_reached(tmp_path: Path) -> None:
    mine = warehouse(tmp_path / "mine.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    other = warehouse(tmp_path / "other.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    csv = tmp_path / "named.csv"
    csv.write_text("a\n7\n", encoding="utf-8")
    with open_locked({"release": mine}, [csv], home="release") as db:
        assert db.rows(db.scan_files([csv], "csv")) == [(7,)]
        for attempt in (
            lambda: db.attach(other, "other", read_only=True),
            lambda: db.attach(tmp_path / "new.duckdb", "new", read_only=False),
            lambda: db.rows(db.scan_files([other], "csv")),
            lambda: db.export_parquet(sqlglot.exp.to_table("release.t"), tmp_path / "stolen.parquet"),
        ):
            with pytest.raises(PrivsqlError):
                attempt()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.duckdb", "named.csv", "other.duckdb"]


@pytest.mark.slow
def test_memory_and_disk_are_in_proportion_to_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = warehouse(tmp_path / "small.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    monkeypatch.setattr(inside, "READING_BASE", 10 * 2**20)
    monkeypatch.setattr(inside, "PER_BYTE", 0)
    large = "SELECT count(*) FROM (SELECT DISTINCT range || repeat('x', 500) AS s FROM range(400000))"
    with open_locked({"release": path}, home="release") as db:
        with pytest.raises(EngineError, match="out of memory"):
            value(db, large)
        assert value(db, "SELECT a FROM t") == 1
    with (
        open_locked({"release": path}, home="release", options=Options(memory_limit="1MB")) as db,
        pytest.raises(EngineError, match="out of memory"),
    ):
        value(db, "SELECT count(*) FROM (SELECT DISTINCT range FROM range(1000000))")


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    path = warehouse(tmp_path / "small.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    with open_locked({"release": path}, home="release"):
        (folder,) = place.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(EngineError), open_locked({"release": tmp_path / "nowhere.duckdb"}, home="release"):
        pass
    assert list(place.iterdir()) == []


def test_what_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "SECONDS", 0.2)
    path = warehouse(tmp_path / "small.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    with open_locked({"release": path}, home="release") as db:
        with pytest.raises(EngineError, match="longer than"), db.limit_time():
            value(db, "SELECT count(*) FROM range(10000000000000)")
        with db.limit_time():
            assert value(db, "SELECT a FROM t") == 1
        with pytest.raises(KeyboardInterrupt), db.limit_time():
            raise KeyboardInterrupt


def test_only_a_select_binds(tmp_path: Path) -> None:
    path = warehouse(tmp_path / "small.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    with open_locked({"release": path}, home="release") as db:
        db.stand_in(["people"], sqlglot.parse_one("SELECT a FROM t"))
        db.stand_in(["sales", "t"], sqlglot.parse_one("SELECT a AS b FROM t"))
        db.stand_in(["shop", "sales", "t"], sqlglot.parse_one("SELECT a AS c FROM t"))
        for good in ("SELECT a FROM people", "SELECT b FROM sales.t", "SELECT c FROM shop.sales.t"):
            db.describe_select(good)
        for bad in ("SELECT b FROM people", "SELECT a FROM sales.t", "DROP VIEW people", "SELECT 1; SELECT 2", "SELEC"):
            with pytest.raises(UsageError):
                db.describe_select(bad)
