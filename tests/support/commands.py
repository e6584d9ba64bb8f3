"""Commands run in this process, what they must say, and the tables and specifications that they are given."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

from privsql.cli.app import app
from privsql.releases.opened import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MANIFEST = "privsql_manifest"
RULE = "2*f + 0.1"
PEOPLE = """
SELECT CAST(18 + (i * 7919) % 61 AS INTEGER) AS age, CASE WHEN (i * 31) % 7 < 3 THEN 'F' ELSE 'M' END AS sex,
  CAST((i * 104729) % 97 AS INTEGER) AS zip,
  CASE WHEN k < 6 THEN 'flu' WHEN k < 10 THEN 'cold' WHEN k < 13 THEN 'asthma' WHEN k < 16 THEN 'ulcer'
    WHEN k < 18 THEN 'angina' ELSE 'HIV' END AS disease
FROM (SELECT i, (i * 7 + i // 20 * 3) % 20 AS k FROM range({n}) t(i))
"""
LARGE_TABLE = """
SELECT i % 80 AS age, i // 80 % 2 AS sex, i // 160 % 300 AS place, 'ill ' || (i * 7919 // 48000) % 12 AS disease
FROM range(600000) t(i)
"""
ROLES = ["--qi", "age,sex,zip", "--sensitive", "disease"]
FLAGS = [*ROLES, "--threshold", RULE]


@dataclass(frozen=True)
class Outcome:
    """What a command did; ``crash`` is an exception that it let through."""

    code: int
    out: str
    err: str
    crash: BaseException | None

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; fails if there is anything else, or a number that JSON does not have."""
        assert self.crash is None, repr(self.crash)
        shown = json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert isinstance(shown, dict)
        return shown


# The commands are put together once: for every run anew it takes a fifth of the time of a query.
typer.testing._get_command = functools.cache(typer.main.get_command)


def by_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords of Python's verbs: keys with a dot, such as ``ledger.off``, go into ``set``."""
    keywords: dict[str, Any] = {}
    for name, value in given.items():
        section, dot, key = name.partition(".")
        if dot:
            keywords.setdefault("set", {}).setdefault(section, {})[key] = value
        else:
            keywords[name] = value
    return keywords


def run(*arguments: object) -> Outcome:
    """One command in this process."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    crash = done.exception if not isinstance(done.exception, SystemExit) else None
    return Outcome(done.exit_code, done.stdout, done.stderr, crash)


def succeeded(*arguments: object) -> Outcome:
    """One command that must end with 0."""
    done = run(*arguments)
    assert done.crash is None, repr(done.crash)
    assert done.code == 0, done.err + done.out
    return done


def refused(done: Outcome, code: int, *words: str) -> None:
    """One line on stderr that holds the words, the exit code, and no traceback."""
    assert done.crash is None, repr(done.crash)
    assert done.code == code, f"exit {done.code}: {done.err}{done.out}"
    lines = done.err.strip().splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("privsql: "), done.err
    missing = [word for word in words if word not in lines[0]]
    assert not missing, f"{missing} not in: {lines[0]}"


@functools.cache
def _instance() -> duckdb.DuckDBPyConnection:
    """One for all that reads no release: starting one takes longer than what it does here. It rereads every file."""
    return duckdb.connect(config={"enable_external_file_cache": False})


def write(path: Path, sql: str) -> Path:
    """A Parquet or CSV file with the rows of a query."""
    with _instance().cursor() as db:
        db.execute(f"COPY ({sql}) TO '{str(path).replace(chr(39), chr(39) * 2)}'")
    return path


def warehouse(path: Path, *statements: str) -> Path:
    """A DuckDB file made by statements."""
    with duckdb.connect(str(path)) as db:
        for statement in statements:
            db.execute(statement)
    return path


def fetched(sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query that reads no release."""
    with _instance().cursor() as db:
        return db.execute(sql).fetchall()


def rows(release: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a query on a release."""
    with duckdb.connect(str(release), read_only=True) as db:
        return db.execute(sql).fetchall()


def tables(release: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of a release but its manifest, rows in their stored order, NaN as text so that equal is equal."""
    with duckdb.connect(str(release), read_only=True) as db:
        names = db.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        contents = {name: db.execute(f'FROM "{name}"').fetchall() for (name,) in names if name != MANIFEST}
    return {name: [tuple(map(repr, row)) for row in found] for name, found in contents.items()}


def composed(release: Path) -> list[str]:
    """What a release says of other releases of the same people."""
    return [str(one) for one in read_manifest(release).composition]


def manifest(release: Path) -> dict[str, Any]:
    """The manifest of a release."""
    return {key: json.loads(value) for key, value in rows(release, f"FROM {MANIFEST}")}


def specification(
    folder: Path,
    *,
    source: str = 'file = "people.parquet"',
    columns: str = 'quasi_identifiers = ["age", "sex", "zip"]\nsensitive = "disease"',
    release: str = 'name = "ill"\nto = "ill.duckdb"',
    mechanism: str = f'algorithm = "two-size"\nthreshold = "{RULE}"',
    name: str = "spec.toml",
) -> Path:
    """A specification in ``folder``."""
    path = folder / name
    path.write_text(
        f"[source]\n{source}\n[columns]\n{columns}\n[release]\n{release}\n[mechanism]\n{mechanism}\n", encoding="utf-8"
    )
    return path


@contextmanager
def held_open(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process has a DuckDB file open for writing."""
    program = (
        "import sys, duckdb\n"
        f"db = duckdb.connect({str(path)!r})\n"
        "db.execute('CREATE OR REPLACE TABLE unfinished AS SELECT 1 AS a')\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def left_over(folder: Path) -> list[str]:
    """Drafts and the like in a folder."""
    return sorted(path.name for path in folder.iterdir() if "draft" in path.name or path.name.startswith("."))


def ward(folder: Path) -> Path:
    """A source in the folder, its specification, and a release in both formats, made with a seed."""
    write(folder / "people.parquet", PEOPLE.format(n=400))
    spec = specification(folder)
    succeeded("publish", spec, "--seed", 1)
    succeeded("publish", spec, "--seed", 1, "--format", "parquet", "--to", folder / "ill")
    return folder
