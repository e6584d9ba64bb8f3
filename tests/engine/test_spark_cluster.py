"""Releases that a cluster makes: a standalone master with two workers, and a driver that could not hold the table."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import privsql
from privsql.engine.open import open_scratch
from support import engines
from support.commands import by_keys, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow  # six Javas start
ROWS = 40_000  # a column of numbers of them, or of hashes, would not fit into the driver's 1 MB
PATIENCE = 600.0  # seconds in which something has to happen
PEOPLE = """
SELECT 'p' || md5(CAST(i AS VARCHAR)) AS id, CAST(18 + hash(i) % 70 AS INTEGER) AS age,
  CAST(10000 + hash(i + 1) % 5000 AS INTEGER) AS zip, hash(i + 2) % 2 = 0 AS sex,
  CASE WHEN i % 10 < {share} THEN 'v0' ELSE 'v' || hash(i + 3) % 12 END AS disease,
  CAST(hash(i + 4) % 500 AS INTEGER) AS salary
FROM range({rows}) AS t(i)
"""
BUCKETIZE = {"sensitive": "disease", "algorithm": "two-size", "threshold": "f + 0.2"}
MECHANISMS: dict[str, dict[str, Any]] = {
    "bucketize": BUCKETIZE,
    "randomize": {"sensitive": "disease", "algorithm": "pp", "mechanism.rho1": "1/5", "mechanism.rho2": "1/2"},
    "permute": {"sensitive": "salary", "mechanism": "permute", "k": 4, "e": 20},
}
DRIVER = """
import json, resource, subprocess, sys, time
from pyspark.sql import SparkSession
import privsql
from privsql.engine import spark

asked = json.loads(sys.argv[1])
session = SparkSession.builder.config(map=asked["settings"]).getOrCreate()
spark.TRIED = 8  # tasks, for two workers
real = spark.only_parts
def waiting(folder):
    real(folder)
    open(asked["stops"] + ".stopped", "w").close()
    time.sleep(1000)
people = session.read.parquet(asked["people"])
for to, how in asked["releases"].items():
    spark.only_parts = waiting if to == asked["stops"] else real
    begun = time.monotonic()
    made = privsql.publish(people, to=to, qi=["age", "zip", "sex"], seed=7, **how)
    java = str(session._jvm.java.lang.ProcessHandle.current().pid())
    taken = int(subprocess.run(["ps", "-o", "rss=", "-p", java], capture_output=True, check=True).stdout) // 1024
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{to}: {time.monotonic() - begun:.1f} s; driver: Java {taken} MiB, Python {python} MiB", flush=True)
session.stop()
"""


class Cluster:
    """A standalone master with two workers on this machine, for drivers of 512 MB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []  # the master, then the workers
        self.drivers: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"spark://127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        self._start("master.Master", "127.0.0.1", "--port", port)
        for number in range(2):
            more = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker{number}"))
            self._start("worker.Worker", f"127.0.0.{number + 1}", *more, self.address)
        self._wait_for_workers()

    def _start(self, role: str, host: str, *arguments: str) -> None:
        """Start a process; workers have hosts of their own, or Spark would not run a task on both at once."""
        command = [str(engines.home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", host]
        with (self.folder / "cluster.log").open("a") as log:
            settings = os.environ | engines.FRUGAL | {"SPARK_HOME": str(engines.home()), "SPARK_DAEMON_MEMORY": "256m"}
            made = subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                stdout=log,
                stderr=log,
                env=settings,
                start_new_session=True,
            )
        self.processes.append(made)

    def _wait_for_workers(self) -> None:
        wait_until(lambda: (self.folder / "cluster.log").read_text().count("Successfully registered with master") == 2)

    def start_driver(self, people: Path, releases: dict[str, Any], stops: Path | None = None, **more: str) -> Any:
        """Start the publication of releases, by their targets; at ``stops`` it waits after the first table."""
        settings = {
            "spark.master": self.address,
            "spark.driver.memory": "512m",
            "spark.driver.maxResultSize": "1m",
            "spark.executor.memory": "640m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than so few rows do
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        } | more
        releases = {to: by_keys(how | {"release.name": "r"}) for to, how in releases.items()}
        asked = {"settings": settings, "people": str(people), "releases": releases, "stops": str(stops or "")}
        command = [sys.executable, "-c", DRIVER, json.dumps(asked)]
        environment = os.environ | engines.FRUGAL
        with (self.folder / "driver.log").open("a") as log:
            made = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.drivers.append(made)
        return made

    def last_words(self) -> str:
        """The end of what drivers have printed."""
        return (self.folder / "driver.log").read_text()[-3000:]

    def list_executors(self) -> list[int]:
        """Process ids of the executors of these workers, the newest last."""
        listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in listed.splitlines()[1:]]
        workers = {process.pid for process in self.processes[1:]}
        return sorted(pid for pid, parent in pairs if parent in workers)

    def kill_executor(self) -> None:
        """Kill the newest executor."""
        os.kill(self.list_executors()[-1], signal.SIGKILL)

    def stall_executor(self, seconds: float) -> None:
        """Stop the newest executor, if there is any, for some seconds."""
        for pid in self.list_executors()[-1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(seconds)
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End all processes."""
        for process in (*self.drivers, *self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(happens: Any) -> None:
    """Wait until something happens."""
    until = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := engines.without_spark():
        pytest.skip(reason)
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


def differing(one: Path, other: Path) -> int:
    """How many rows, with their places, only one of two releases has."""
    with open_scratch() as db:
        rows = 0
        for path in sorted(one.glob("*.parquet")):
            if path.stem == "privsql_manifest":
                continue
            sides = []
            for folder in (one, other):
                place = folder / path.name
                parts = sorted(place.glob("*.parquet")) if place.is_dir() else [place]
                listed = ", ".join(f"'{part}'" for part in parts)
                sides.append(f"(SELECT row_number() OVER () AS number, * FROM read_parquet([{listed}]))")
            for left, right in (sides, sides[::-1]):
                ((found,),) = db.connection.rows(f"SELECT count(*) FROM (FROM {left} EXCEPT ALL FROM {right})")
                rows += int(found)
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """A release of each mechanism, and what is left of one whose driver was killed; no result is larger than 1 MB.

    Outside ``tests.soak`` it is one mechanism: tests in one process make releases of all of them.
    """
    kinds = MECHANISMS if "soak(" in request.config.option.markexpr else ["bucketize"]
    made = tmp_path_factory.mktemp("releases")
    people = write(made / "people.parquet", PEOPLE.format(rows=ROWS, share=3))
    releases: dict[str, Any] = {str(made / kind): {**MECHANISMS[kind], "ledger.off": True} for kind in kinds}
    ledger = {"id": "id", "source.population": "people", "ledger": str(made / "ledger")}
    releases[str(made / "bucketize")] = {**BUCKETIZE, **ledger}
    releases[str(made / "killed")] = {**BUCKETIZE, "ledger.off": True}
    driver = cluster.start_driver(people, releases, stops=made / "killed")
    wait_until(lambda: (made / "killed.stopped").exists() or driver.poll() is not None)
    assert driver.poll() is None, cluster.last_words()
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    return made


@pytest.mark.parametrize("kind", rest_slow(MECHANISMS, soak="spark"))
def test_tables_are_written_by_workers(tmp_path: Path, folder: Path, kind: str) -> None:
    """They are those that DuckDB makes of the file."""
    more: dict[str, Any] = {
        "format": "parquet",
        "release.order": "portable",
        "release.name": "r",
        "ledger.off": True,
        "seed": 7,
    }
    names = ["age", "zip", "sex"]
    privsql.publish(folder / "people.parquet", to=tmp_path / "r", qi=names, **by_keys({**MECHANISMS[kind], **more}))
    assert differing(tmp_path / "r", folder / kind) == 0
    assert privsql.verify(folder / kind).ok
    assert (folder / kind / f"{'perturbed' if kind == 'randomize' else 'qit'}.parquet").is_dir()


def test_a_driver_that_is_killed_leaves_no_release(folder: Path) -> None:
    """It leaves tables in a hidden folder, which the next publication sweeps."""
    target, more = folder / "killed", {"release.name": "r", "format": "parquet", "ledger.off": True}
    assert any(folder.glob(".killed.draft-*/spill/written-*/part-*.parquet"))
    assert not target.exists()
    privsql.publish(folder / "people.parquet", to=target, qi=["age"], **by_keys({**BUCKETIZE, **more}))
    assert privsql.verify(target).ok
    assert not any(folder.glob(".killed.draft-*"))


@pytest.mark.soak(part="spark")
@pytest.mark.parametrize("rows", [10**6, 5 * 10**6, 10**7])
def test_a_cluster_in_trouble_makes_the_same_release(tmp_path: Path, cluster: Cluster, rows: int) -> None:
    """A driver of 512 MB, 60 % of one value, an executor that is killed, and one that stalls: its tasks run twice."""
    people = write(tmp_path / "people.parquet", PEOPLE.format(rows=rows, share=6))
    how = {"sensitive": "disease", "algorithm": "two-size", "threshold": "f + 0.1"}
    (tmp_path / "events").mkdir()
    (tmp_path / "troubled").mkdir()
    hurried = {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.efficiency.enabled": "false",
        "spark.sql.shuffle.partitions": "16",
        "spark.sql.codegen.wholeStage": "true",
        "spark.driver.maxResultSize": "64m",  # Spark broadcasts tables of 10 MB
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    target = tmp_path / "troubled" / "r"
    driver = cluster.start_driver(people, {str(target): {**how, "ledger.off": True}}, **hurried)
    written = (tmp_path / "troubled").glob
    wait_until(lambda: any(written(".r.draft-*/spill/spark-*/_temporary/0/task_*")) or driver.poll() is not None)
    assert driver.poll() is None, cluster.last_words()
    cluster.kill_executor()
    while driver.poll() is None:
        cluster.stall_executor(3)
        time.sleep(5)
    assert driver.wait() == 0, cluster.last_words()
    (events,) = (path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file())
    ended = [json.loads(line) for line in events.splitlines() if line.startswith('{"Event":"SparkListenerTaskEnd"')]
    again = sum(one["Task Info"]["Speculative"] for one in ended)
    print(f"{rows} records, {len(ended)} tasks, {again} of them again;", cluster.last_words().strip().splitlines()[-1])
    assert again > 0
    assert '"SparkListenerExecutorRemoved"' in events
    more: dict[str, Any] = {
        "format": "parquet",
        "release.order": "portable",
        "release.name": "r",
        "ledger.off": True,
        "seed": 7,
    }
    privsql.publish(people, to=tmp_path / "here", qi=["age", "zip", "sex"], **by_keys({**how, **more}))
    assert differing(tmp_path / "here", target) == 0
    assert privsql.verify(target).ok
