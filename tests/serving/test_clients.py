"""Tools ask releases over the Postgres protocol; what they send is recorded, and replayed without them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

import privsql
from support import wires
from support.places import ROOT
from test_docs import blocks, page

if TYPE_CHECKING:
    from pathlib import Path

CLIENTS = ("psql", "psycopg", "sqlalchemy", "adbc", "asyncpg", "odbc", "jdbc", "duckdb")
RECORDED = ROOT / "tests" / "serving" / "statements"
PYTHON = os.environ.get("PRIVSQL_CLIENTS", "")
COUNT = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"
CHOSEN = "SELECT COUNT(*) AS n FROM people WHERE age >= 30 AND sex = 'f'"
TOKEN = "a-token-of-the-tests"  # noqa: S105 (no secret)


@pytest.fixture(scope="module")
def release(shelf: Path) -> Path:
    return shelf / "bucketize.duckdb"


def as_texts(release: Path, sql: str) -> list[list[str]]:
    """What ``privsql query`` answers, without errors and bounds."""
    rows = privsql.query(release, sql).plain_rows
    return [[f"{one:g}" if isinstance(one, float) else str(one) for one in row] for row in rows]


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="sh tests/clients.sh runs them")
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_list_describe_and_ask(release: Path, client: str, request: pytest.FixtureRequest) -> None:
    with wires.served(release, token=TOKEN) as port, wires.Recorder(port).running() as proxy:
        address = f"postgresql://reader:{TOKEN}@127.0.0.1:{proxy.own}/privsql"
        command = [PYTHON, str(ROOT / "tests" / "clients"), client, address]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        time.sleep(0.2)
        if request.config.getoption("regenerate"):
            store(client, port, [[one for one in sent if one[0] != "p"] for sent in proxy.sent if len(sent) > 2])
    count, chosen = as_texts(release, COUNT), as_texts(release, CHOSEN)
    for name, rows in found.items():
        if name.startswith("count") or name in ("copied", "fetched"):
            assert rows == count, name
        elif name in ("chosen", "prepared", "binary"):
            assert rows[:1] == chosen, name
        elif name == "pipeline":
            assert rows == [*count, ["1"]]
    if client == "jdbc":
        assert found["columns"][0] == ["age", "int8", "quasi-identifier"]
        assert found["refused"] == "refused 42703"
    elif client in ("odbc", "sqlalchemy", "duckdb"):
        assert [one[0] for one in found["columns"]] == ["age", "sex", "region", "disease"]
    elif client == "adbc":
        assert found["tables"] == {"people": ["age", "sex", "region", "disease"]}
    elif client == "psql":
        assert "disease,text,,,,,,,sensitive" in found["shown"][r"\d+ people"].replace("x,,,", ",,,").replace(
            "extended", ""
        )
        assert not [one for one in found["shown"].values() if "ERROR" in one]


def store(client: str, port: int, connections: list[list[wires.Message]]) -> None:
    """Store what a client sends, and the kinds of what it gets."""
    lines = []
    for sent in connections:
        there = wires.Client.connected(port, TOKEN)
        lines.append({"connection": [{"sent": group, "got": got} for group, got in exchange(there, sent)]})
        there.close()
    RECORDED.mkdir(exist_ok=True)
    text = "\n".join(json.dumps(one) for line in lines for one in ({"connect": True}, *line["connection"]))
    (RECORDED / f"{client}.jsonl").write_text(text + "\n", encoding="utf-8")


def exchange(there: wires.Client, sent: list[wires.Message]) -> list[tuple[list[list[str]], str]]:
    """Send messages, each group up to the one that asks for an answer, and return the kinds of the answers."""
    found, group = [], []
    for kind, body in sent:
        if kind == "X":
            break
        there.send(kind, body)
        group.append([kind, body.decode("latin-1")])
        if kind in "QS":
            found.append((group, wires.Reply(there.until_ready()).kinds))
            group = []
    return found


@pytest.mark.parametrize(
    "client", ["asyncpg", *(pytest.param(one, marks=pytest.mark.slow) for one in CLIENTS if one != "asyncpg")]
)
def test_what_clients_send_is_answered_as_when_it_was_recorded(release: Path, client: str) -> None:
    lines = [json.loads(line) for line in (RECORDED / f"{client}.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(lines) >= 3
    there: wires.Client | None = None
    with wires.served(release) as port:
        for line in lines:
            if "connect" in line:
                if there is not None:
                    there.close()
                there = wires.Client.connected(port)
                continue
            assert there is not None
            for kind, body in line["sent"]:
                there.send(kind, body.encode("latin-1"))
            assert wires.Reply(there.until_ready()).kinds == line["got"], line["sent"]
        assert there is not None
        there.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_commands_of_the_page_of_the_documentation_run(release: Path, tmp_path: Path) -> None:
    """The page's server and its questions, at a free port."""
    shutil.copy(release, tmp_path / "people.duckdb")
    lines = [line for kind, block in blocks(page("clients")) if kind == "sh" for line in block.splitlines()]
    (serve, _), asked = [one for one in lines if "serve" in one], [one for one in lines if one.startswith("psql")]
    assert len(asked) == 3
    with wires.served(tmp_path / "people.duckdb") as port:
        assert serve == "privsql serve people.duckdb --postgres 5433"
        for line in asked:
            command = [*shlex.split(line.replace("5433", str(port))), "-XAt"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert not done.returncode, done.stderr
            assert done.stdout
