"""Publishing as users do: by the command line, in a process of its own, with the ledger, beside a plain copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COPY = """
import duckdb, json, resource, sys, time
source, target, limit = json.loads(sys.argv[1])
with duckdb.connect(config={"memory_limit": limit} if limit else {}) as db:
    begin = time.process_time(), time.perf_counter()
    db.execute(f"ATTACH '{source}' AS w (READ_ONLY)")
    db.execute(f"ATTACH '{target}' AS c")
    db.execute("CREATE TABLE c.t AS SELECT * FROM w.t")
    db.execute("CHECKPOINT c")
    used = time.process_time() - begin[0], time.perf_counter() - begin[1]
print(json.dumps([*used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""
COPIES = 3  # of which the median counts
PRIVSQL = sys.executable, "-m", "privsql"
VERBS = {  # of a release r.duckdb of a table
    "init": ("init", "{source}", "--set", "source.table=t", "--sensitive", "occupation"),
    "verify": ("verify", "r.duckdb"),
    "verify --source": ("verify", "r.duckdb", "--source", "spec.toml"),
    "attack": ("attack", "r.duckdb"),
    "attack --source": ("attack", "r.duckdb", "--source", "spec.toml"),
    "report": ("report", "r.duckdb", "--to", "r.html"),
}
SHAPES = {  # columns and values of tables that differ from the others, and their records
    "2 columns x 200 records": (2, 10, 200),
    "1,000 columns x 5,000 records": (999, 20, 5_000),
    "3 columns x 1,000,000 records, 50,000 values": (3, 50_000, 1_000_000),
}
SPEC = """
source = {{ database = "{source}", table = "t" }}
columns = {{ quasi_identifiers = {columns}, sensitive = "occupation" }}
release = {{ name = "r", to = "r.duckdb" }}
mechanism = {{ algorithm = "two-size", threshold = "8*f + 0.02" }}
"""
ONE_VALUE = "SELECT COUNT(*) FROM r WHERE c0 < 3 AND s = 'v7'"
MECHANISMS = {
    "bucketize": {"algorithm": "two-size", "threshold": "8*f + 0.02"},
    "randomize": {"kind": "randomize", "rho1": "1/10", "rho2": "1/3"},
    "permute": {"kind": "permute", "k": "10", "e": "5"},
}
WAYS: dict[str, Sequence[str]] = {
    "default": (),
    "key file": ("--key-file", "r.key"),
    "no ledger": (
        "--set",
        "ledger.off=true",
    ),
}


@dataclass(frozen=True)
class Used:
    """Processor and wall time in seconds, and the most memory in GiB, of a process."""

    processor: float
    wall: float
    memory: float


def run(command: Sequence[str], folder: Path) -> Used:
    """Run a command in a folder, with a ledger of its own there.

    Modules are compiled once, as installers compile them, even where the environment forbids to store that.
    """
    environment = {**os.environ, "PRIVSQL_LEDGER": str(folder / "ledger.duckdb")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begin = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return Used(used.ru_utime + used.ru_stime, time.perf_counter() - begin, used.ru_maxrss / 2**20)


def printed(command: Sequence[str]) -> str:
    """Run a command, and return what it prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def copy(source: Path, folder: Path, limit: str | None) -> Used:
    """Copy a table into a new file, the median of some; what Python and DuckDB take to start does not count."""
    target, copies = folder / "copy.duckdb", []
    for _ in range(COPIES):
        done = printed([sys.executable, "-c", COPY, json.dumps([str(source), str(target), limit])])
        target.unlink()
        copies.append(Used(*json.loads(done.splitlines()[-1])))  # after what DuckDB says of its progress
    return sorted(copies, key=lambda one: one.processor)[COPIES // 2]


def publish(source: Path, columns: Sequence[str], folder: Path, mechanism: str, how: str, limit: str | None) -> Used:
    """Publish a table with column ``occupation``."""
    flags = [part for name, value in MECHANISMS[mechanism].items() for part in ("--set", f"mechanism.{name}={value}")]
    flags += [*WAYS[how], *(("--memory-limit", limit) if limit else ())]
    (folder / "ledger.duckdb").unlink(missing_ok=True)
    names = [
        "--set",
        "source.table=t",
        "--qi",
        ",".join(columns),
        "--sensitive",
        "occupation",
        "--set",
        "release.name=r",
        "--to",
        "r.duckdb",
    ]
    (folder / "r.duckdb").unlink(missing_ok=True)
    return run([*PRIVSQL, "publish", str(source), *names, *flags], folder)


def ratios(source: Path, columns: Sequence[str], folder: Path, limit: str | None, runs: int) -> Iterator[list[object]]:
    """Mechanism, way, seconds of a copy, then of publishing: processor time, wall time, both in copies, memory."""
    plain = copy(source, folder, limit)
    for mechanism in MECHANISMS:
        for how in WAYS:
            times = [publish(source, columns, folder, mechanism, how, limit) for _ in range(runs)]
            best = min(times, key=lambda one: one.processor)
            copies = [best.processor / plain.processor, best.wall / plain.wall]
            yield [mechanism, how, plain.processor, best.processor, best.wall, *copies, best.memory]


def verbs(source: Path, columns: Sequence[str], folder: Path, runs: int) -> Iterator[list[object]]:
    """Verb, seconds of a copy, then of the command: processor time, wall time, processor time in copies, memory."""
    plain = copy(source, folder, None)
    publish(source, columns, folder, "bucketize", "default", None)
    (folder / "spec.toml").write_text(SPEC.format(source=source, columns=list(columns)), encoding="utf-8")
    for name, words in VERBS.items():
        command = [*PRIVSQL, *(word.format(source=source) for word in words)]
        best = min((run(command, folder) for _ in range(runs)), key=lambda one: one.processor)
        yield [name, plain.processor, best.processor, best.wall, best.processor / plain.processor, best.memory]


def shapes(folder: Path) -> Iterator[list[object]]:
    """Tables of other shapes: processor time and wall time of publishing them, and of one count of one value."""
    for name, (columns, values, records) in SHAPES.items():
        source, release = folder / f"{columns}.duckdb", folder / "r.duckdb"
        names = [f"c{i}" for i in range(columns)]
        made = ", ".join(f"(hash(range * {2 * i + 3} + {i}) % 10)::UTINYINT AS {one}" for i, one in enumerate(names))
        with duckdb.connect(str(source)) as db:
            db.execute(f"CREATE TABLE t AS SELECT {made}, 'v' || (range % {values}) AS s FROM range({records})")
        for file in (release, folder / "ledger.duckdb"):
            file.unlink(missing_ok=True)
        flags = [
            "--qi",
            ",".join(names),
            "--sensitive",
            "s",
            "--threshold",
            "1/4",
            "--set",
            "release.name=r",
            "--to",
            "r.duckdb",
        ]
        published = run([*PRIVSQL, "publish", str(source), "--set", "source.table=t", *flags], folder)
        counted = run([*PRIVSQL, "query", "r.duckdb", ONE_VALUE], folder)
        yield [name, published.processor, published.wall, counted.processor, counted.wall]
