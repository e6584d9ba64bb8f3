"""What docs/clients.md tells readers runs as it stands there, and gives what the release says of its records."""

from __future__ import annotations

import csv
import io
import re
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import privsql
from support import postgres
from support.commands import by_keys
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # a server starts
PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
ADDRESS = "postgresql://reader@host/clinic"  # of the page
R_DRIVERS = {"RPostgres": "RPostgres::Postgres()", "RPostgreSQL": "RPostgreSQL::PostgreSQL()"}  # the page's, Debian's
COUNTS = "SELECT sex, n(weight), low(weight, variance), high(weight, variance) FROM people_weighted {} GROUP BY sex"
PEOPLE: dict[str, Any] = {
    "sensitive": "disease",
    "qi": ["age", "sex", "region"],
    "threshold": 0.4,
    "release.name": "people",
}


def blocks(section: str, kind: str) -> list[str]:
    """The fenced blocks of a kind in a section of the page."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


def require_program(name: str) -> None:
    """Skip the test where a program is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")


def run_program(*command: str) -> str:
    """What a program writes; fails with its errors."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def file(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in a file."""
    release = tmp_path_factory.mktemp("clients") / "people.duckdb"
    privsql.publish(shelf / "people.csv", to=release, seed=1, **by_keys({**PEOPLE, "ledger.off": True}))
    return release


@pytest.fixture(scope="module")
def expected(file: Path) -> dict[str, list[float]]:
    """n, low and high of the people with flu, by sex."""
    with duckdb.connect(str(file), read_only=True) as db:
        return {sex: figures for sex, *figures in db.execute(COUNTS.format("WHERE disease = 'flu'")).fetchall()}


@pytest.fixture(scope="module")
def server(shelf: Path) -> Iterator[str]:
    """The address by which a reader finds the same release in schema ``released`` of a server."""
    address = postgres.address()
    from privsql.engine.postgres import PostgresServer

    owner = PostgresServer(address)
    privsql.publish(
        shelf / "people.csv",
        to=address,
        seed=1,
        **by_keys({**PEOPLE, "release.schema": "released", "ledger.off": True}),
    )
    (grant,) = re.findall(r'-c "(GRANT [^"]*)"', PAGE)
    for statement in ("CREATE ROLE reader LOGIN", *grant.split("; ")):
        owner.run_statement(statement)
    yield address.replace("privsql@", "reader@")
    owner.run_statement("DROP SCHEMA released CASCADE")
    owner.run_statement("DROP ROLE reader")
    owner.close()


def assert_counts(found: list[tuple[Any, ...]], expected: dict[str, list[float]]) -> None:
    """By sex the figures that a client asked for, which are the first ones of n, low and high."""
    assert len(found) == len(expected) > 1
    for sex, *figures in found:
        assert [*map(float, figures)] == pytest.approx(expected[str(sex)][: len(figures)], rel=1e-9)


def test_psql(server: str, expected: dict[str, list[float]]) -> None:
    require_program("psql")
    (line,) = [one for one in "".join(blocks("Postgres", "text")).splitlines() if one.startswith(f"psql {ADDRESS}")]
    printed = run_program(*shlex.split(line.replace(ADDRESS, shlex.quote(server))), "-XAtqF,")
    assert_counts([tuple(row) for row in csv.reader(io.StringIO(printed))], expected)


def test_sqlalchemy_and_pandas(server: str, expected: dict[str, list[float]]) -> None:
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    (code,) = blocks("SQLAlchemy and pandas", "python")
    *lines, last = code.replace(ADDRESS.partition("://")[2], server.partition("://")[2]).strip().splitlines()
    names: dict[str, Any] = {}
    exec("\n".join([*lines, f"found = {last}"]), names)  # noqa: S102 (our own page)
    assert_counts([*names["found"].itertuples(index=False, name=None)], expected)
    names["engine"].dispose()


def test_sqlalchemy_on_a_file(file: Path, expected: dict[str, list[float]]) -> None:
    sa = pytest.importorskip("sqlalchemy")
    pytest.importorskip("duckdb_engine")
    (address,) = re.findall(r'"(duckdb:///[^"]*)"', PAGE)
    engine = sa.create_engine(address.replace("people.duckdb", str(file)), connect_args={"read_only": True})
    with engine.connect() as there:
        found = there.execute(sa.text(COUNTS.format("WHERE disease = 'flu'"))).fetchall()
    engine.dispose()
    assert_counts(found, expected)


def test_duckdb(file: Path, expected: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    (code,) = blocks("DuckDB", "python")
    for part in code.split("\n\n")[1:]:
        *lines, last = part.strip().splitlines()
        names: dict[str, Any] = {"duckdb": duckdb}
        exec("\n".join([*lines, f"found = {last}"]), names)  # noqa: S102 (our own page)
        assert_counts([*names["found"].itertuples(index=False, name=None)], expected)
        for one in ("release", "shelf"):
            if one in names:
                names[one].close()


def test_r(server: str, expected: dict[str, list[float]], tmp_path: Path) -> None:
    require_program("Rscript")
    known = "cat(Filter(function(one) requireNamespace(one, quietly = TRUE), commandArgs(TRUE)))"
    installed = run_program("Rscript", "-e", known, *R_DRIVERS).split()
    if not installed:
        pytest.skip("R has neither RPostgres nor RPostgreSQL")
    (code,) = blocks("R", "r")
    user, host = re.findall(r"//(\w+)@.*host=(.*)", server)[0]
    told = {"RPostgres::Postgres()": R_DRIVERS[installed[0]], '"host"': f'"{host}"', '"reader"': f'"{user}"'}
    for word, instead in {**told, '"clinic"': '"postgres"', "dbGetQuery(": "found <- dbGetQuery("}.items():
        assert word in code
        code = code.replace(word, instead)
    script = tmp_path / "count.R"
    script.write_text(code + 'write.table(format(found, digits = 15), sep = ",", quote = FALSE, row.names = FALSE)\n')
    _, *found = csv.reader(io.StringIO(run_program("Rscript", str(script))))
    assert_counts([tuple(row) for row in found], expected)


def test_r_on_a_file(file: Path, expected: dict[str, list[float]], tmp_path: Path) -> None:
    require_program("Rscript")
    if not run_program("Rscript", "-e", "cat(requireNamespace('duckdb', quietly = TRUE))").startswith("TRUE"):
        pytest.skip("R has no duckdb")
    (connect,) = re.findall(r"`(dbConnect\(duckdb[^`]*)`", PAGE)
    script = tmp_path / "count.R"
    asked = COUNTS.format("WHERE disease = 'flu'")
    shown = 'write.table(format(found, digits = 15), sep = ",", quote = FALSE, row.names = FALSE)'
    place = connect.replace("people.duckdb", str(file))
    script.write_text(f'library(DBI)\nrelease <- {place}\nfound <- dbGetQuery(release, "{asked}")\n{shown}\n')
    _, *found = csv.reader(io.StringIO(run_program("Rscript", str(script))))
    assert_counts([tuple(row) for row in found], expected)


def test_the_expression_for_parquet_gives_the_same(file: Path) -> None:
    (expression,) = blocks("Parquet", "sql")
    (condition,) = re.findall(r"WHERE .*", expression)
    with duckdb.connect(str(file), read_only=True) as db:
        functions = "n(weight), low(weight, variance), high(weight, variance)"
        counted = db.execute(f"SELECT {functions} FROM people_weighted {condition}").fetchall()
        assert db.execute(expression).fetchall()[0] == pytest.approx(counted[0])
