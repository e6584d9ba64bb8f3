"""The same release in DuckDB's own order, in the portable one, and by Spark: seconds and memory, each in a process.

One key, the ledger off, Parquet in and out. Spark's start is taken off: ``start`` is a session and a first query.
``skew``: one value has 60 % of the records.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

import privsql
from privsql.engine.database import Options
from privsql.engine.open import open_spark
from privsql.keyed_random import seed_key

WAYS = {"stream": ("duckdb", "stream"), "portable": ("duckdb", "portable"), "spark": ("spark", "portable")}
FREQUENT = 0.6
TASK = "import sys; from tests.benchmarks.scale import one; one(*sys.argv[1:])"


def copied(warehouse: Path, folder: Path, rows: int, skewed: bool) -> tuple[Path, float]:
    """The table as Parquet, in types that both engines have, and the seconds that this took."""
    path = folder / ("skewed.parquet" if skewed else "even.parquet")
    value = (
        f"CASE WHEN hash(rowid) % 1000 < {int(1000 * FREQUENT)} THEN 0 ELSE occupation END" if skewed else "occupation"
    )
    with duckdb.connect(str(warehouse), read_only=True) as db:
        names = [name for (name, *_) in db.execute("DESCRIBE t").fetchall() if name != "occupation"]
        columns = ", ".join(f"CAST({name} AS SMALLINT) AS {name}" for name in names)
        begin = time.perf_counter()
        db.execute(
            f"COPY (SELECT {columns}, CAST({value} AS SMALLINT) AS occupation FROM t LIMIT {rows}) TO '{path}' "
            "(ROW_GROUP_SIZE 200000)"
        )
    return path, time.perf_counter() - begin


def run(source: Path, way: str, quasi: list[str], *, skewed: bool, memory_limit: str | None) -> dict[str, Any]:
    """One publication in a process of its own."""
    given = [str(source), way, ",".join(quasi), "skewed" if skewed else "", memory_limit or ""]
    done = subprocess.run([sys.executable, "-c", TASK, *given], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"start": float("nan"), "seconds": float("nan"), "memory": float("nan"), "error": done.stderr[-300:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(source: str, way: str, quasi: str, skewed: str, memory_limit: str) -> None:
    """What ``run`` runs: prints seconds and memory (of Python and DuckDB; Java's is a child's)."""
    engine, order = WAYS[way]
    mechanism = (
        {"algorithm": "optimal", "threshold": "0.65"}
        if skewed
        else {"algorithm": "two-size", "threshold": "8*f + 0.02"}
    )
    options = Options(memory_limit=memory_limit or None)
    with tempfile.TemporaryDirectory() as place:
        spec = privsql.build(
            {
                "source": {"file": source, "engine": engine},
                "columns": {"quasi_identifiers": quasi.split(","), "sensitive": "occupation"},
                "release": {"name": "r", "to": Path(place) / "r", "format": "parquet", "order": order},
                "mechanism": mechanism,
                "ledger": {"off": True},
            }
        )
        begin = time.perf_counter()
        if engine == "spark":
            with open_spark(Path(place), options) as there:
                there.run_select("SELECT 1")
        start = time.perf_counter() - begin
        begin = time.perf_counter()
        privsql.publish(spec, key=seed_key(1), options=options)
        lasted = time.perf_counter() - begin
    memory = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 2**20
    print(json.dumps({"start": start, "seconds": lasted, "memory": memory}))
