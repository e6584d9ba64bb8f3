"""A Postgres server for tests: of their own, in a temporary folder, reached by a socket in it and by nobody else."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

PROGRAMS = "/usr/lib/postgresql/*/bin/initdb"  # where Debian puts them, a folder for every version
OTHER = "postgres"  # who runs the server where the tests are root's, which it refuses to be


def missing() -> str:
    """Why there is no server here; empty where there is one."""
    if find_spec("adbc_driver_postgresql") is None:
        return "adbc-driver-postgresql is not installed"
    return "" if _programs() else "Postgres is not installed"


def _programs() -> Path | None:
    found = shutil.which("initdb") or max(map(str, Path("/").glob(PROGRAMS[1:])), default="")
    return Path(found).parent if found else None


def stored(name: str, sql: str) -> None:
    """Keep what a SELECT of DuckDB's yields as a table of the server."""
    place = address()  # first: it skips the test where there is no driver to import
    from privsql.engine.postgres import PostgresRelations, PostgresServer

    own = PostgresServer(place)
    with PostgresRelations(own) as made, duckdb.connect() as duck:
        made.register_arrow("given", duck.sql(sql).to_arrow_table())
        own.run_statement(f"DROP TABLE IF EXISTS {name}")
        own.run_statement(f"CREATE TABLE {name} AS SELECT * FROM privsql_{made.number}_given")


@functools.cache
def address() -> str:
    """The address of a server that ends with the tests; skipped with a word where there is none."""
    if reason := missing():
        pytest.skip(reason)
    programs, folder = _programs(), Path(tempfile.mkdtemp(prefix="privsql-postgres-"))
    given: dict[str, Any] = {"capture_output": True, "cwd": folder}
    if os.geteuid() == 0:
        owner = pwd.getpwnam(OTHER)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        given["user"] = OTHER
    data, initial = folder / "data", ["-A", "trust", "-U", "privsql", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    subprocess.run([f"{programs}/initdb", "-D", data, *initial], check=True, **given)
    server = f"-k {folder} -h '' -F"
    subprocess.run(
        [f"{programs}/pg_ctl", "-D", data, "-w", "-o", server, "-l", folder / "log", "start"], check=True, **given
    )

    def end() -> None:
        subprocess.run([f"{programs}/pg_ctl", "-D", data, "-m", "immediate", "stop"], check=False, **given)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return f"postgresql://privsql@/postgres?host={folder}"
