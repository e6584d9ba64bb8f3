"""A table at a Spark Connect address: the server's workers write the release that DuckDB makes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

import privsql
from privsql.engine.database import Options, Origin
from privsql.engine.open import open_spark as opened
from privsql.errors import EngineError
from privsql.keyed_random import seed_key
from support import engines
from support.commands import write
from support.mixed import PEOPLE
from support.parts import tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.soak(part="services")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE = 120.0  # seconds in which a server has to be there


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own, on this machine."""
    if reason := engines.without_spark():
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {**engines.SMALL, "spark.connect.grpc.binding.port": str(port), "spark.ui.enabled": "false"}
    given |= {"spark.eventLog.enabled": "false", "spark.local.dir": str(tmp_path / "server")}
    settings = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
    command = [str(engines.home() / "bin" / "spark-submit"), "--master", "local[2]", *settings]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--class", SERVER, "spark-internal"],
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < until:
            with socket.socket() as tried:
                if not tried.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_release_from_an_address(tmp_path: Path, address: str) -> None:
    people = write(tmp_path / "people.parquet", PEOPLE)
    places = {
        "here": {"file": people},
        "there": {"spark": {"query": f"SELECT * FROM parquet.`{people}`", "remote": address}},
    }
    for name, source in places.items():
        spec = privsql.build(
            {
                "source": source,
                "columns": {"quasi_identifiers": ["age", "sex", "seen", "at", "part", "odd"], "sensitive": "disease"},
                "release": {"name": "r", "to": tmp_path / name, "format": "parquet", "order": "portable"},
                "mechanism": {"kind": "bucketize", "threshold": "2*f + 0.1", "algorithm": "multi-size"},
                "ledger": {"off": True},
            }
        )
        privsql.publish(spec, key=seed_key(7))
        assert privsql.verify(tmp_path / name, spec).ok
    assert tables(tmp_path / "there") == tables(tmp_path / "here")
    assert (tmp_path / "there" / "qit.parquet").is_dir()  # as workers write it that see the folder
    engines.java()  # a session of this machine's own is still to be had
    assert engines.session().range(3).count() == 3
    assert address not in str((tmp_path / "there" / "privsql_manifest.parquet").read_bytes())


def test_an_address_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := engines.without_spark():
        pytest.skip(reason)
    from privsql.engine import spark

    monkeypatch.setattr(spark, "CALLS", 0)
    dead = opened(tmp_path, Options(), Origin("spark", address="sc://127.0.0.1:9/;token=secret"))
    with pytest.raises(EngineError, match=r"^sc://127.0.0.1:9: failed to connect"), dead:
        pass
