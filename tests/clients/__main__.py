"""What tools do with a server of Postgres: connect, list, describe, ask. ``python tests/clients CLIENT PORT PASSWORD``.

It runs in an environment of its own (``tests/clients.sh``) without privsql, and prints what it gets as JSON.
``CLIENTS_ROOT``: where Debian's packages of the drivers for Java and ODBC are unpacked, if not in ``/``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(os.environ.get("CLIENTS_ROOT", "/"))
JARS = ("postgresql", "scram-common", "scram-client", "saslprep", "stringprep", "codegenerator")
COUNT = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"
CHOSEN = "SELECT COUNT(*) AS n FROM people WHERE age >= {} AND sex = {}"
TERMINAL = (r"\conninfo", r"\l", r"\dn", r"\d", r"\dt+", r"\dv", r"\d people", r"\d+ people", r"\du", r"\df", r"\dT",
            r"\di", r"\dx", r"\dp people")  # fmt: skip


def texts(rows: Any) -> list[list[str]]:
    """Rows as texts; whole numbers as such."""
    return [[f"{one:g}" if isinstance(one, float) else str(one) for one in row] for row in rows]


def ask_psql(address: str) -> dict[str, Any]:
    copy = f"COPY ({COUNT}) TO STDOUT (FORMAT csv)"

    def run(*commands: str) -> str:
        told = [part for one in commands for part in ("-c", one)]
        done = subprocess.run(["psql", "-XAt", "-F,", address, *told], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    shown = {one: run(one) for one in TERMINAL}
    return {"count": [line.split(",") for line in run(COUNT).splitlines()], "shown": shown,
            "copied": [line.split(",") for line in run(copy).splitlines()]}  # fmt: skip


def ask_psycopg(address: str) -> dict[str, Any]:
    import psycopg

    with psycopg.connect(address) as there:
        found = {"count": texts(there.execute(COUNT).fetchall())}
        found["chosen"] = texts(there.execute(CHOSEN.format("%s", "%s"), (30, "f")).fetchall())
        binary = there.cursor(binary=True)
        found["binary"] = texts(binary.execute(CHOSEN.format("%s", "%s"), (30, "f")).fetchall())
        with there.cursor() as cursor, cursor.copy(f"COPY ({COUNT}) TO STDOUT (FORMAT BINARY)") as copied:
            copied.set_types(["text", "float8"])
            found["copied"] = texts(copied.rows())
        with there.cursor("named") as cursor:
            found["fetched"] = texts(cursor.execute(COUNT).fetchall())
        for _ in range(8):  # then it is prepared
            found["prepared"] = texts(there.execute(CHOSEN.format("%s", "%s"), (30, "f")).fetchall())
        with there.pipeline():
            first, second = there.execute(COUNT), there.execute("SELECT 1")
            found["pipeline"] = [*texts(first.fetchall()), *texts(second.fetchall())]
    return found


def ask_sqlalchemy(address: str) -> dict[str, Any]:
    import sqlalchemy as sa

    engine = sa.create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
    seen, tables = sa.inspect(engine), sa.MetaData()
    tables.reflect(engine)
    people = tables.tables["people"]
    number = sa.func.count().label("n")
    with engine.connect() as there:
        counted = there.execute(sa.select(people.c.sex, number).group_by(people.c.sex).order_by(people.c.sex))
        chosen = there.execute(sa.select(number).where(people.c.age >= 30, people.c.sex == "f"))
        listed = there.execute(
            sa.text("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        )
        found = {"count": texts(counted), "chosen": texts(chosen), "listed": texts(listed)}
    about = (seen.get_pk_constraint, seen.get_foreign_keys, seen.get_indexes, seen.get_unique_constraints,
             seen.get_check_constraints, seen.get_table_comment)  # fmt: skip
    found |= {one.__name__: one("people") for one in about}
    columns = [[one["name"], str(one["type"]), one["comment"]] for one in seen.get_columns("people")]
    found |= {"tables": seen.get_table_names(), "views": seen.get_view_names(), "columns": columns}
    return found | {"schemas": seen.get_schema_names(), "has": [seen.has_table("people"), seen.has_table("no")]}


def ask_adbc(address: str) -> dict[str, Any]:
    import adbc_driver_postgresql.dbapi as adbc

    with adbc.connect(address) as there, there.cursor() as cursor:
        cursor.execute(COUNT)
        found: dict[str, Any] = {"count": texts(cursor.fetchall())}
        cursor.execute(CHOSEN.format("$1", "$2"), parameters=(30, "f"))
        found["chosen"] = texts(cursor.fetchall())
        objects = there.adbc_get_objects(depth="columns", db_schema_filter="public").read_all().to_pylist()
        (schema,) = objects[0]["catalog_db_schemas"]
        found["tables"] = {table["table_name"]: [one["column_name"] for one in table["table_columns"]]
                           for table in schema["db_schema_tables"]}  # fmt: skip
        found["schema"] = [[one.name, str(one.type)] for one in there.adbc_get_table_schema("people")]
    return found


def ask_asyncpg(address: str) -> dict[str, Any]:
    import asyncpg

    async def run() -> dict[str, Any]:
        there = await asyncpg.connect(address)
        found = {"count": texts(await there.fetch(COUNT))}
        found["chosen"] = texts(await there.fetch(CHOSEN.format("$1", "$2"), 30, "f"))
        await there.close()
        return found

    return asyncio.run(run())


def ask_odbc(address: str) -> dict[str, Any]:
    from urllib.parse import urlsplit

    import pyodbc

    (driver,) = ROOT.glob("usr/lib/*/odbc/psqlodbcw.so")
    parts = urlsplit(address)
    how = f"Server={parts.hostname};Port={parts.port};Database=privsql;Uid={parts.username};Pwd={parts.password or ''}"
    found: dict[str, Any] = {}
    for fetching in ("", ";UseDeclareFetch=1;Fetch=1"):
        cursor = pyodbc.connect(f"Driver={driver};{how}{fetching}").cursor()
        found["tables"] = [row[2] for row in cursor.tables()]
        found["columns"] = [[row[3], row[5]] for row in cursor.columns("people")]
        found["none"] = [
            len(one("people").fetchall()) for one in (cursor.primaryKeys, cursor.statistics, cursor.foreignKeys)
        ]
        found["types"] = len(cursor.getTypeInfo().fetchall()) > 10
        found["count" + ("_fetched" if fetching else "")] = texts(cursor.execute(COUNT))
        found["chosen"] = texts(cursor.execute(CHOSEN.format("?", "?"), 30, "f"))
    return found


def ask_jdbc(address: str) -> dict[str, Any]:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    jars = os.pathsep.join(str(ROOT / f"usr/share/java/{one}.jar") for one in JARS)
    who = f"user={parts.username}&password={parts.password}"
    there = f"jdbc:postgresql://{parts.hostname}:{parts.port}/privsql?{who}"
    program = str(Path(__file__).parent / "Ask.java")
    done = subprocess.run(["java", "-cp", jars, program, there], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    sections: dict[str, list[list[str]]] = {}
    for line in done.stdout.splitlines():
        if not line.startswith("  "):
            name = line.split(":")[0]
            sections[name] = []
        else:
            sections[name].append([one.removesuffix(".0") for one in line.strip().rstrip("|").split("|")])
    refused = next(one for one in sections if one.startswith("refused"))
    columns = [[row[3], row[5], row[11]] for row in sections["columns"]]
    tables = [row[2] for row in sections["tables"] if row[1] == "public"]
    asked = {"count": sections["count"], "fetched": sections["fetched"], "chosen": sections["param"]}
    return asked | {"columns": columns, "tables": tables, "refused": refused}


def ask_duckdb(address: str) -> dict[str, Any]:
    import duckdb
    import duckdb_extension_postgres_scanner as extension

    (file,) = Path(extension.__file__).parent.glob("extensions/*/*")
    there = duckdb.connect()
    there.execute(f"LOAD '{file}'")
    there.execute(f"ATTACH '{address}' AS pg (TYPE postgres, READ_ONLY)")
    through = f"SELECT * FROM postgres_query('pg', $${COUNT}$$)"
    columns = [list(row[:2]) for row in there.execute("DESCRIBE pg.people").fetchall()]
    preview = [list(row) for row in there.execute("SELECT * FROM pg.people LIMIT 3").fetchall()]
    return {"count": texts(there.execute(through).fetchall()), "columns": columns, "preview": preview}


if __name__ == "__main__":
    _, client, address = sys.argv
    print(json.dumps(globals()[f"ask_{client}"](address)))
