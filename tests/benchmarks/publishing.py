"""Publishing as users do: by the command line, in a process of its own, with the ledger, beside a plain copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COPY = """
import duckdb, json, sys
source, target, limit = json.loads(sys.argv[1])
with duckdb.connect(config={"memory_limit": limit} if limit else {}) as db:
    if target:
        db.execute(f"ATTACH '{source}' AS w (READ_ONLY)")
        db.execute(f"ATTACH '{target}' AS c")
        db.execute("CREATE TABLE c.t AS SELECT * FROM w.t")
        db.execute("CHECKPOINT c")
"""
MECHANISMS = {
    "bucketize": {"algorithm": "two-size", "threshold": "8*f + 0.02"},
    "randomize": {"kind": "randomize", "rho1": "1/10", "rho2": "1/3"},
    "permute": {"kind": "permute", "k": "10", "e": "5"},
}
WAYS: dict[str, Sequence[str]] = {"default": (), "key file": ("--key-file", "r.key"), "no ledger": ("--ledger-off",)}


@dataclass(frozen=True)
class Used:
    """Processor and wall time in seconds, and the most memory in GiB, of a process."""

    processor: float
    wall: float
    memory: float


def run(command: Sequence[str], folder: Path) -> Used:
    """Run a command in a folder, with a ledger of its own there."""
    begin, environment = time.perf_counter(), {**os.environ, "PRIVSQL_LEDGER": str(folder / "ledger.duckdb")}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return Used(used.ru_utime + used.ru_stime, time.perf_counter() - begin, used.ru_maxrss / 2**20)


def copy(source: Path, folder: Path, limit: str | None) -> Used:
    """Copy a table into a new file; what Python and DuckDB take to start is taken off."""
    target = folder / "copy.duckdb"
    start, whole = (
        run([sys.executable, "-c", COPY, json.dumps([str(source), str(one or ""), limit])], folder)
        for one in (None, target)
    )
    target.unlink()
    return Used(whole.processor - start.processor, whole.wall - start.wall, whole.memory)


def publish(source: Path, columns: Sequence[str], folder: Path, mechanism: str, how: str, limit: str | None) -> Used:
    """Publish a table with column ``occupation``."""
    flags = [part for name, value in MECHANISMS[mechanism].items() for part in (f"--{name}", value)]
    flags += [*WAYS[how], *(("--memory-limit", limit) if limit else ())]
    (folder / "ledger.duckdb").unlink(missing_ok=True)
    names = ["--table", "t", "--qi", ",".join(columns), "--sensitive", "occupation", "--name", "r", "--to", "r.duckdb"]
    used = run([sys.executable, "-m", "privsql", "publish", str(source), *names, *flags], folder)
    (folder / "r.duckdb").unlink()
    return used


def ratios(source: Path, columns: Sequence[str], folder: Path, limit: str | None, runs: int) -> Iterator[list[object]]:
    """Mechanism, way, seconds of a copy, then of publishing: processor time, wall time, both in copies, memory."""
    plain = min((copy(source, folder, limit) for _ in range(runs)), key=lambda one: one.processor)
    for mechanism in MECHANISMS:
        for how in WAYS:
            times = [publish(source, columns, folder, mechanism, how, limit) for _ in range(runs)]
            best = min(times, key=lambda one: one.processor)
            copies = [best.processor / plain.processor, best.wall / plain.wall]
            yield [mechanism, how, plain.processor, best.processor, best.wall, *copies, best.memory]
