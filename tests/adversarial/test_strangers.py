"""A release is a stranger's file: what it holds beside what it states is never run, and always refused."""

from __future__ import annotations

import os
import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from support.commands import MANIFEST, refused, run
from support.places import ROOT
from support.shelf import MECHANISMS, all_refuse, altered, release_of, taken, uses
from support.tampering import failed

if TYPE_CHECKING:
    from collections.abc import Iterator

GATHERED = """
CREATE OR REPLACE TABLE st AS SELECT bid, CASE WHEN bid = 0 THEN (SELECT disease FROM st WHERE bid = 0 LIMIT 1)
  ELSE disease END AS disease, CAST(sum(count) AS INTEGER) AS count FROM st GROUP BY ALL ORDER BY ALL
"""  # bucket 0 has one value: P = 1


def functions() -> list[str]:
    """The functions that files of ``sql/`` call, by name."""
    calls = re.compile(r"\b([a-z_]+)\(")
    text = "\n".join(re.sub(r"--.*", "", path.read_text(encoding="utf-8")) for path in (ROOT / "sql").rglob("*.sql"))
    return sorted(
        name for name in set(calls.findall(text)) - {"in", "over", "as", "on", "and"} if not name.startswith("duckdb_")
    )


def hidden() -> list[str]:
    """Table macros that hide from whoever looks that there are any."""
    inner = [f"SELECT * FROM system.main.duckdb_{name}() WHERE internal" for name in ("functions", "types", "schemas")]
    return [f"CREATE MACRO {one.split('.')[2].split('(')[0]}() AS TABLE {one}" for one in inner]


# Macros that are called like what a check calls ---


@pytest.mark.soak(part="long")
def test_a_bucket_of_one_value_is_seen_whatever_macros_the_release_holds(shelf: Path, tmp_path: Path) -> None:
    """P = 1 against a threshold below a half."""
    assert "every bucket obeys every threshold" in failed(run("verify", altered(shelf, tmp_path, GATHERED), "--json"))
    made = 0
    for arguments, value in (("x", "NULL"), ("x", "0"), ("x", "TRUE"), ("x, y", "NULL"), ("x, y, z", "NULL")):
        macros = [f'CREATE MACRO "{name}"({arguments}) AS {value}' for name in functions()]
        tried = [*macros, *hidden()]
        release = altered(shelf, tmp_path, GATHERED, *(lambda db, one=one: attempt(db, one) for one in tried))
        with duckdb.connect(str(release), read_only=True) as db:
            found = db.execute("SELECT count(*) FROM system.main.duckdb_functions() WHERE NOT internal").fetchone()
        assert found is not None
        made += found[0]
        all_refuse(release, shelf, 1, few=True)
    assert made > 100


def attempt(db: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run what DuckDB may refuse."""
    try:
        db.execute(statement)
    except duckdb.Error:
        return


@pytest.mark.slow
def test_a_hidden_table_of_raw_rows_is_seen(shelf: Path, tmp_path: Path) -> None:
    release = altered(
        shelf,
        tmp_path,
        "CREATE TABLE raw AS SELECT 'Alice' AS name, 'flu' AS disease",
        *(f"CREATE MACRO {name}() AS TABLE SELECT * FROM system.main.{name}() WHERE {column} NOT IN ('raw')"
          for name, column in (("duckdb_tables", "table_name"), ("duckdb_columns", "table_name"))),
        *hidden(),
    )  # fmt: skip
    offending = failed(run("verify", release, "--json"))["holds the stated tables and no other table, view or metadata"]
    assert any("'raw'" in line for line in offending)
    assert any("'duckdb_functions'" in line for line in offending)
    all_refuse(release, shelf, 1)


# Objects that are not stated ---

NO_VIEWS = "DROP VIEW people_weighted; DROP VIEW people_pairs"
OBJECTS = {
    "a macro": "CREATE MACRO more(x) AS x + 1",
    "a macro that is called like a built-in": "CREATE MACRO count(x) AS 0",
    "a table macro": "CREATE MACRO people2() AS TABLE SELECT 1",
    "a type": "CREATE TYPE mood AS ENUM ('sad')",
    "a sequence": "CREATE SEQUENCE counter",
    "a view": "CREATE VIEW more AS SELECT 1 AS a",
    "a table": "CREATE TABLE more (a INTEGER)",
    "a schema": "CREATE SCHEMA attic",
    "a table in a schema": "CREATE SCHEMA attic; CREATE TABLE attic.qit AS SELECT * FROM qit",
    "an index": "CREATE INDEX i ON qit (age)",
    "a default": "ALTER TABLE qit ALTER age SET DEFAULT 1",
    "a constraint": "ALTER TABLE qit ALTER age SET NOT NULL",
    "a comment": "COMMENT ON TABLE qit IS 'Alice has HIV'",
    "a comment on a column": "COMMENT ON COLUMN qit.age IS 'Alice has HIV'",
    "a comment on the view": "COMMENT ON VIEW people_weighted IS 'Alice has HIV'",
    "a computed column": f"{NO_VIEWS}; CREATE TABLE t AS FROM qit; DROP TABLE qit; "
    "CREATE TABLE qit (age BIGINT, sex VARCHAR, region VARCHAR, bid INTEGER, person VARCHAR AS ('Alice'))",
    "a table that is a view": f"{NO_VIEWS}; ALTER TABLE st RENAME TO s; CREATE VIEW st AS FROM s",
    "a collation": "ALTER TABLE qit ALTER sex TYPE VARCHAR COLLATE nocase",
    "no view": "DROP VIEW people_weighted",
    "no table": f"{NO_VIEWS}; DROP TABLE st",
}


@pytest.mark.slow
def test_whatever_a_release_does_not_state_is_refused(shelf: Path, tmp_path: Path) -> None:
    for what, statements in OBJECTS.items():
        release = altered(shelf, tmp_path, *statements.split("; "))
        assert "holds the stated tables and no other table, view or metadata" in failed(
            run("verify", release, "--json")
        ), what
        refused(run("query", release, "SELECT COUNT(*) FROM people"), 1, "verify it")


@pytest.mark.slow
def test_no_mechanism_takes_a_release_with_more_than_it_states(shelf: Path, tmp_path: Path) -> None:
    for name in MECHANISMS:
        release = altered(shelf, tmp_path, "CREATE MACRO sum(x) AS 0", name=name)
        all_refuse(release, shelf, 1, name=name, few=name != "randomize")


# The view ---


@pytest.mark.slow
def test_a_stored_view_is_compared_and_never_evaluated(shelf: Path, tmp_path: Path) -> None:
    """It may call what the release stores, read files, fail, or never end."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret", encoding="utf-8")
    bodies = [
        "SELECT age, sex, region, disease, 1.0::DOUBLE AS weight FROM qit, st, range(100000000000)",
        f"SELECT content AS age, 's' AS sex, 'r' AS region, 'd' AS disease, 1.0 AS weight FROM read_text('{secret}')",
        "SELECT error('evaluated') AS age, 's' AS sex, 'r' AS region, 'd' AS disease, 1.0 AS weight",
        "SELECT qit.age, qit.sex, qit.region, st.disease, mine() AS weight FROM qit, st",
    ]
    for body in bodies:
        release = altered(
            shelf, tmp_path, "CREATE MACRO mine() AS 1", f"CREATE OR REPLACE VIEW people_weighted AS {body}"
        )
        for use, done in uses(release, shelf, few=body != bodies[0]).items():
            assert done.crash is None, use
            assert done.code == 1, f"{use}: {done.out}{done.err}"
            assert "the secret" not in done.out + done.err
            assert "evaluated" not in done.out + done.err


@pytest.mark.slow
def test_views_upon_views_are_no_bomb(shelf: Path, tmp_path: Path) -> None:
    """Thirty views, each twice the one before: whoever binds the last one binds 2^30."""
    views = [f"CREATE VIEW v{i} AS SELECT a FROM v{i - 1}" for i in range(1, 30)]
    doubled = [f"CREATE OR REPLACE VIEW v{i} AS SELECT x.a FROM v{i - 1} x, v{i - 1} y" for i in range(29, 0, -1)]
    release = altered(shelf, tmp_path, "CREATE TABLE t AS SELECT 1 AS a", "CREATE VIEW v0 AS FROM t", *views, *doubled)
    all_refuse(release, shelf, 1)


# What lies beside ---


def test_a_write_ahead_file_is_refused(shelf: Path, tmp_path: Path) -> None:
    """Attaching would replay it: here it turns a bucket into one value."""
    original = taken(shelf, tmp_path)
    with duckdb.connect(str(original)) as db:
        db.execute("SET checkpoint_threshold = '1GB'")
        db.execute("UPDATE st SET disease = 'flu' WHERE bid = 0")
        release = tmp_path / "copy.duckdb"
        shutil.copy(original, release)
        log = shutil.copy(f"{original}.wal", f"{release}.wal")
    all_refuse(release, shelf, 1)
    Path(log).unlink()
    assert run("verify", release).code == 0
    for ending in (".wal", ".wal.checkpoint", ".wal.recovery"):
        beside = Path(f"{release}{ending}")
        for make in (beside.touch, lambda at=beside: at.symlink_to("/nowhere"), lambda at=beside: os.mkfifo(at)):
            make()
            refused(run("verify", release), 1, ending)
            refused(run("query", release, "SELECT COUNT(*) FROM people"), 1, ending)
            beside.unlink()


@pytest.mark.slow
def test_names_that_mean_more_to_the_engine(shelf: Path, tmp_path: Path) -> None:
    """A path with quotes, patterns or a question mark is that path and no other; its log is found."""
    for name in ("it's.duckdb", "a[1].duckdb", "a*.duckdb", "a?b.duckdb", "a;b.duckdb", "ä b.duckdb", "{x}.duckdb"):
        release = tmp_path / name
        shutil.copy(release_of(shelf, "bucketize"), release)
        assert run("verify", release).code == 0, name
        head, mark, tail = str(release).partition("?")
        Path(f"{head}.wal{mark}{tail}").touch()
        refused(run("verify", release), 1, ".wal")


def test_what_is_no_plain_file(shelf: Path, tmp_path: Path) -> None:
    pipe, listening = tmp_path / "pipe.duckdb", tmp_path / "socket.duckdb"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(listening))
        loop = tmp_path / "loop.duckdb"
        loop.symlink_to(loop)
        for path in (pipe, listening, loop, Path("/dev/zero"), Path("/dev/null"), tmp_path / "nowhere.duckdb"):
            all_refuse(path, shelf, 4, few=path != pipe)


# Folders ---


@pytest.fixture
def folder(shelf: Path, tmp_path: Path) -> Path:
    """A copy of a release that is a folder."""
    return taken(shelf, tmp_path, "folder")


def strange(folder: Path) -> Iterator[tuple[str, Any]]:
    """Ways to put something else into a folder."""
    table = folder / "qit.parquet"
    away = folder.parent / "away.parquet"
    shutil.copy(table, away)

    def replaced(make: Any) -> Any:
        def change() -> None:
            table.unlink()
            make(table)

        return change

    yield "a link to another table", replaced(lambda at: at.symlink_to(away))
    yield "a link to nothing", replaced(lambda at: at.symlink_to(folder.parent / "nowhere"))
    yield "a link to itself", replaced(lambda at: at.symlink_to(at))
    yield "a pipe", replaced(os.mkfifo)
    yield "a folder", replaced(lambda at: at.mkdir())
    yield "another pipe", lambda: os.mkfifo(folder / "more.parquet")
    yield "a link beside", lambda: (folder / "more.parquet").symlink_to(away)
    yield "a table more", lambda: shutil.copy(table, folder / "raw.parquet")
    yield "a file of another kind", lambda: (folder / "notes.txt").write_text("Alice has HIV", encoding="utf-8")
    yield "a hidden file", lambda: (folder / ".notes").write_text("Alice has HIV", encoding="utf-8")
    yield "a folder more", (folder / "attic").mkdir


@pytest.mark.soak(part="long")
def test_a_folder_holds_plain_files_and_nothing_else(shelf: Path, tmp_path: Path) -> None:
    kinds = [what for what, _ in strange(taken(shelf, tmp_path, "folder"))]
    for number, what in enumerate(kinds):
        place = tmp_path / str(number)
        place.mkdir()
        folder = taken(shelf, place, "folder")
        dict(strange(folder))[what]()
        assert failed(run("verify", folder, "--json")), what
        all_refuse(folder, shelf, 1, name="folder", few=what != "a pipe")


def test_a_manifest_that_is_a_pipe_or_a_link(folder: Path, shelf: Path) -> None:
    manifest = folder / f"{MANIFEST}.parquet"
    away = shutil.copy(manifest, folder.parent / "away.parquet")
    for make in (os.mkfifo, lambda at: at.symlink_to(away), lambda at: at.mkdir()):
        manifest.unlink() if manifest.exists() and not manifest.is_dir() else None
        make(manifest)
        all_refuse(folder, shelf, 2, name="folder", few=True)
        manifest.rmdir() if manifest.is_dir() else manifest.unlink()


@pytest.mark.slow
def test_a_link_that_a_person_names_is_followed(shelf: Path, tmp_path: Path) -> None:
    for name in ("bucketize", "folder"):
        link = tmp_path / f"latest-{name}"
        link.symlink_to(release_of(shelf, name))
        assert run("verify", link).code == 0, name
