"""The server itself: where it listens, whom it waits for and how long, and how it ends."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import httpx
import pytest

import privsql
from privsql import system
from privsql.errors import EngineError, UsageError
from privsql.serving import server
from support import shelf as shelves
from support.commands import refused, run
from support.serving import served
from test_docs import blocks, page

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def release(shelf: Path) -> Path:
    return shelf / "setvalued.duckdb"


def closes(connection: socket.socket) -> bool:
    """Whether the other side ends a connection within a while; what it said before is read."""
    connection.settimeout(20)
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


# Doors ----------------------------------------------------------------------------------------------------------------


def test_this_machine_needs_no_token_unless_it_is_asked_for() -> None:
    with closing(server.open_listener("127.0.0.1", 0).socket) as one:
        door = server.Listener("127.0.0.1", one, None)
        port = one.getsockname()[1]
        assert door.address == f"http://127.0.0.1:{port}/"
        assert {"localhost", "127.0.0.1", "::1"} <= door.host_names
        assert not door.is_everywhere
    door = server.open_listener("localhost", 0, token=True)
    with door.socket:
        assert door.token is not None
        assert len(door.token) >= 43
        assert door.address.endswith(f"/?token={door.token}")


def test_other_addresses_need_one() -> None:
    doors = [server.open_listener("0.0.0.0", 0, hosts=["Box.lan"]) for _ in range(2)]  # noqa: S104 (that is what is tested)
    assert len({door.token for door in doors} - {None}) == 2
    for door in doors:
        with door.socket:
            assert door.is_everywhere
            assert {"box.lan", "localhost"} <= door.host_names


def test_names_are_those_that_a_host_can_say() -> None:
    door = server.open_listener("127.0.0.1", 0, hosts=["Stats.Example.org.", "fe80::1"])
    with door.socket:
        assert {"stats.example.org", "fe80::1"} <= door.host_names
    for name in ("stats.example.org:8317", "http://stats.example.org", "", "a b", "a/b", "[::1]", "*"):
        with pytest.raises(UsageError, match="a bare host name"):
            server.open_listener("127.0.0.1", 0, hosts=[name])


def test_pages_of_one_machine_have_a_cookie_each() -> None:
    """Browsers send the cookies of all ports: the token of one page took the place of the other's."""
    doors = [server.open_listener("127.0.0.1", 0, token=True) for _ in range(2)]
    assert len({server.make_app({}, door, None, verified=False)._cookie for door in doors}) == 2  # type: ignore[arg-type]
    for door in doors:
        door.socket.close()


def test_a_port_that_is_taken_is_one_line(release: Path) -> None:
    with server.open_listener("127.0.0.1", 0).socket as taken:
        port = taken.getsockname()[1]
        refused(run("serve", release, "--port", port), 4, f"{port} of 127.0.0.1 is in use", "0 for any free one")


def test_wrong_wishes_are_one_line(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such address"):
        server.open_listener("no such host", 0)
    with pytest.raises(EngineError, match="can't listen"):
        server.open_listener("192.0.2.1", 0)
    refused(run("serve", tmp_path / "nothing.duckdb"), 4, "nothing.duckdb")
    with pytest.raises(UsageError, match="at least one release"):
        privsql.serve([])
    refused(run("serve", release, "--port", 0, "--token", "--open"), 2, "option open would show the token")
    with pytest.raises(UsageError, match="at_once 0"):
        privsql.serve(release, at_once=0)
    monkeypatch.setattr(system, "find_spec", lambda name: None if name == "starlette" else find_spec(name))
    refused(run("serve", release), 4, "pip install 'privsql[serve]'")


# Served ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_is_served_and_the_slow_are_not_waited_for(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request, a trickle of one, an idle connection: each is closed; whoever asks is answered meanwhile."""
    monkeypatch.setattr(server, "PATIENCE", 0.5)
    with served(release) as address:
        place = address.removeprefix("http://").rstrip("/").split(":")
        half, trickle, idle = (socket.create_connection((place[0], int(place[1]))) for _ in range(3))
        with half, trickle, idle:
            half.sendall(b"GET /setvalued HTTP/1.1\r\nHost: 127")
            for letter in b"GET / HT":
                trickle.sendall(bytes([letter]))
            answer = httpx.get(f"{address}setvalued/answer.json?all=news")
            assert answer.status_code == 200
            assert answer.json()["rows"]
            assert "server" not in answer.headers
            assert closes(half)
            assert closes(trickle)
            assert closes(idle)


def test_what_is_far_too_long_is_not_read(release: Path) -> None:
    """A million characters are refused by a line, and what goes on after that by the end of the connection."""
    with served(release) as address:
        place = address.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((place[0], int(place[1])), timeout=30) as long:
            long.sendall(b"GET /?" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b" 414 " in long.recv(1_000)
        with socket.create_connection((place[0], int(place[1])), timeout=30) as endless, suppress(ConnectionError):
            for _ in range(20):
                endless.sendall(b"x" * server.HEAD)
            pytest.fail("it goes on reading")


@pytest.mark.slow
def test_a_token_gets_in_once_and_a_cookie_after_it(release: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with served(release, token=True) as address, httpx.Client(follow_redirects=True) as browser:
        bare = address.split("?")[0]
        assert httpx.get(bare).status_code == 401
        first = browser.get(address)
        assert first.status_code == 200
        assert str(first.url) == f"{bare}setvalued"
        assert browser.get(f"{bare}setvalued?all=news").status_code == 200
    said = capfd.readouterr()
    assert address.split("=")[1] not in said.out + said.err


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(release: Path) -> None:
    command = [sys.executable, "-m", "privsql", "serve", str(release), "--port", "0", "--json", "--verify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = json.loads(process.stdout.readline())
        assert told["releases"] == [str(release)]
        shown = httpx.get(f"{told['address']}setvalued")
        assert "was verified when this page was started" in shown.text
        with httpx.Client() as kept:  # a connection that stays open keeps nobody
            kept.get(f"{told['address']}setvalued")
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            assert process.wait(30) == 0
            assert time.monotonic() - begun < 20
        assert process.stderr.read() == ""
        assert process.stdout.read() == ""


@pytest.mark.soak(part="long")
def test_an_interruption_ends_what_is_being_answered(ward: Path) -> None:
    """A question that would go on for long does not hold up the end."""
    command = [sys.executable, "-m", "privsql", "serve", str(ward / "ill.duckdb"), "--port", "0"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split(" at ")[1].split(" ")[0]
        sql = "SELECT age, sex, zip, disease, COUNT(*) FROM ill GROUP BY ALL"
        asking = threading.Thread(target=lambda: httpx.get(f"{address}ill", params={"sql": sql}, timeout=60))
        asking.start()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        asking.join(60)


@pytest.mark.soak(part="long")
def test_the_commands_of_the_page_of_the_documentation_run(shelf: Path, tmp_path: Path) -> None:
    """Each of them serves, at a free port and without showing a browser."""
    told = [block for kind, block in blocks(page("serve")) if kind == "sh"]
    given = [shlex.split(line)[1:] for block in told for line in block.splitlines()]
    assert len(given) >= 3
    for name in ("people", "others"):
        shutil.copy(shelf / "setvalued.duckdb", tmp_path / f"{name}.duckdb")
    for arguments in given:
        command = [sys.executable, "-m", "privsql", *(one for one in arguments if one != "--open"), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split(" at ")[1].split(" ")[0]
            assert httpx.get(address, follow_redirects=True).status_code in (200, 401), arguments
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


@pytest.mark.slow
def test_a_release_that_does_not_hold_is_not_served(shelf: Path, tmp_path: Path) -> None:
    release = shelves.altered(shelf, tmp_path, "UPDATE st SET count = count + 1 WHERE bid = 0")
    refused(run("serve", release, "--verify", "--port", 0), 1, "does not keep its promise")
