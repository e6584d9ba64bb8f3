"""A Postgres server for tests: of their own, in a temporary folder, reached by a socket in it and by nobody else."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from sqlglot import exp

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


class ServerTables:
    """Temporary tables of one session, which queries of the SQL tests read."""

    def __init__(self) -> None:
        place = address()  # first: it skips the test where there is no driver to import
        from privsql.engine.postgres import PostgresServer

        self.server = PostgresServer(place)

    def register_arrow(self, name: str, data: pa.Table) -> None:
        """Make an Arrow table readable under a name."""
        from privsql.engine.remote import widen_types

        self.drop(name)
        self.server.ingest_table(name, widen_types(data), f'"{name}"')

    def drop(self, *names: str) -> None:
        """Forget tables."""
        for name in names:
            self.server.run_statement(f'DROP TABLE IF EXISTS pg_temp."{name}"')

    def arrow(self, query: exp.Expr) -> pa.Table:
        """Run a query; decimals, which come as text, have the width of their type or the one that they need."""
        from privsql.engine.postgres import ENGINE, read_fields
        from privsql.engine.remote import temporary_name

        sql = ENGINE.render_sql(query, temporary_name)
        kinds = [field.type for field in read_fields(self.server.fetch_schema(sql))]
        data = self.server.arrow(sql)
        columns = [
            _as_decimals(column, kind) if kind.startswith(("DECIMAL", "numeric")) else column
            for column, kind in zip(data.columns, kinds, strict=True)
        ]
        return pa.table(columns, names=data.column_names)

    def rows(self, query: exp.Expr) -> list[tuple[Any, ...]]:
        """Run a query and fetch its rows."""
        return [tuple(row.values()) for row in self.arrow(query).to_pylist()]

    def close(self) -> None:
        """End the session."""
        self.server.close()


def _as_decimals(column: pa.ChunkedArray, kind: str) -> pa.Array:
    known = [None if text is None else Decimal(text) for text in column.to_pylist()]
    widths = [int(width) for width in re.findall(r"\d+", kind)] or ([] if any(known) else [38])
    return pa.array(known, pa.decimal128(*widths) if widths else None)


def stored(name: str, sql: str) -> None:
    """Keep what a SELECT of DuckDB's yields as a table of the server."""
    made = ServerTables()
    with duckdb.connect() as duck:
        made.register_arrow("given", duck.sql(sql).to_arrow_table())
    made.server.run_statement(f"DROP TABLE IF EXISTS {name}")
    made.server.run_statement(f"CREATE TABLE {name} AS SELECT * FROM given")
    made.close()


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
