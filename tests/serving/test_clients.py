"""Tools ask releases over the Postgres protocol; what they send is recorded, and replayed without them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import privsql
from support import wires
from support.places import ROOT
from test_docs import blocks, page

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


# Superset -------------------------------------------------------------------------------------------------------------
# In an environment of its own: pip install apache-superset==6.1.0 rich flask-caching==2.3.1 cachelib==0.13.0 cachetools
# psycopg2-binary; PRIVSQL_SUPERSET names its folder of programs.

SETTINGS = """
SECRET_KEY = "a-key-of-the-tests-that-is-long-enough-for-it"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = TALISMAN_ENABLED = False
"""
ADMIN = "--username admin --firstname a --lastname b --email a@b.c --password admin"


@pytest.mark.soak(part="clients")
@pytest.mark.skipif("PRIVSQL_SUPERSET" not in os.environ, reason="PRIVSQL_SUPERSET names no installation of Superset")
def test_superset_connects_lists_and_draws_a_chart(release: Path, tmp_path: Path) -> None:
    """Through its API: a database, a dataset, a chart with a filter, a group and a bound, and SQL of its own."""
    program = str(Path(os.environ["PRIVSQL_SUPERSET"]) / "superset")
    (tmp_path / "superset_config.py").write_text(SETTINGS.format(folder=tmp_path), encoding="utf-8")
    environment = os.environ | {"SUPERSET_CONFIG_PATH": str(tmp_path / "superset_config.py"), "PYTHONPATH": ""}
    environment |= {"FLASK_APP": "superset.app:create_app()", "SUPERSET_HOME": str(tmp_path)}
    for step in ("db upgrade", f"fab create-admin {ADMIN}", "init"):
        subprocess.run([program, *step.split()], env=environment, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    with wires.served(release) as port, subprocess.Popen(
        [program, "run", "-p", str(number)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process, httpx.Client(base_url=f"http://localhost:{number}", timeout=120) as api:  # fmt: skip
        try:
            ask_superset(api, port, release)
        finally:
            process.terminate()


def ask_superset(api: httpx.Client, port: int, release: Path) -> None:
    """Ask it, and compare with ``privsql query``."""
    for _ in range(120):
        with suppress(httpx.TransportError):
            if api.get("/health").status_code == 200:
                break
        time.sleep(1)

    def send(path: str, body: dict[str, Any]) -> Any:
        reply = api.post(f"/api/v1{path}", json=body)
        assert reply.is_success, reply.text
        return reply.json()

    who = {"username": "admin", "password": "admin", "provider": "db"}
    api.headers["Authorization"] = f"Bearer {send('/security/login', who)['access_token']}"
    address = f"postgresql+psycopg2://reader@127.0.0.1:{port}/privsql"
    made = send("/database/", {"database_name": "releases", "sqlalchemy_uri": address, "expose_in_sqllab": True})
    listed = api.get(f"/api/v1/database/{made['id']}/tables/?q=(schema_name:public)").json()["result"]
    assert [one["value"] for one in listed] == ["people"]
    dataset = send("/dataset/", {"database": made["id"], "schema": "public", "table_name": "people"})
    assert [one["description"] for one in dataset["data"]["columns"]] == [*["quasi-identifier"] * 3, "sensitive"]
    metrics = [{"expressionType": "SQL", "sqlExpression": sql, "label": label}
               for label, sql in (("n", "COUNT(*)"), ("low", "low(COUNT(*))"))]  # fmt: skip
    chart = {"columns": ["sex"], "metrics": metrics, "filters": [{"col": "disease", "op": "==", "val": "flu"}]}
    source = {"datasource": {"id": dataset["id"], "type": "table"}, "result_format": "json", "result_type": "full"}
    drawn = send("/chart/data", source | {"queries": [chart | {"orderby": [["n", False]], "row_limit": 100}]})
    sql = (
        "SELECT sex, COUNT(*) AS n, low(COUNT(*)) AS low FROM people WHERE disease = 'flu' GROUP BY sex ORDER BY n DESC"
    )
    expected = [dict(zip(("sex", "n", "low"), row, strict=True)) for row in privsql.query(release, sql).plain_rows]
    assert [one | {"n": pytest.approx(one["n"]), "low": pytest.approx(one["low"])} for one in expected] == (
        drawn["result"][0]["data"]
    )
    counted = send("/sqllab/execute/", {"database_id": made["id"], "sql": COUNT, "schema": "public", "runAsync": False})
    assert [[one["sex"], f"{one['n']:g}"] for one in counted["data"]] == as_texts(release, COUNT)
