"""SIGINT, SIGTERM and SIGHUP at any moment: one line, 128 + n, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.commands import PEOPLE, left_over, specification, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
RUN = "import runpy; runpy.run_module('privsql', run_name='__main__', alter_sys=True)\n"
AT_IMPORT = """
import os, sys
seen = 0
class Count:
    @staticmethod
    def find_spec(name, *_):
        global seen
        seen += 'privsql.cli' in sys.modules  # from here on main() has begun
        if seen == {number}:
            os.kill(os.getpid(), {signal})
    @staticmethod
    def report():
        print(seen, file=sys.stderr)
sys.meta_path.insert(0, Count)
"""
INSIDE = """
import os, sys, time
import privsql
from pathlib import Path
def verb(release, **_):
{body}
privsql.export = verb
"""


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source, its specification and a release; read only."""
    folder = tmp_path_factory.mktemp("ward")
    write(folder / "people.parquet", PEOPLE.format(n=400))
    succeeded("publish", specification(folder))
    return folder


def started(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A process in which the command line runs after ``program``."""
    command = [sys.executable, "-c", program + RUN, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def inside(*lines: str) -> str:
    """A program whose ``export`` is these lines."""
    return INSIDE.format(body="\n".join(f"    {line}" for line in lines))


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """What stdout held of a process that was stopped as it should be."""
    out, errors = process.communicate(timeout=60)
    assert errors == f"privsql: {WORDS[number]}\n"
    assert process.returncode == 128 + number
    return out


# While it starts ---


def imports(*arguments: object) -> int:
    """How many modules a command looks for once ``main`` has begun."""
    program = AT_IMPORT.format(number=-1, signal=0) + "import atexit; atexit.register(Count.report)\n"
    _, errors = started(program, *arguments).communicate(timeout=60)
    return int(errors.split()[-1])


@pytest.mark.slow
def test_a_signal_during_the_imports_of_help() -> None:
    for place in range(1, imports("--help"), 4):
        stopped(started(AT_IMPORT.format(number=place, signal=int(signal.SIGINT)), "--help"), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("number", rest_slow(WORDS))
def test_a_signal_during_the_imports_of_a_query(ward: Path, number: signal.Signals) -> None:
    query = ["query", ward / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE sex = 'F' AND disease = 'flu'"]
    count = imports(*query)
    for place in range(1 + WORDS[number].count("t"), count, count // 4):
        assert stopped(started(AT_IMPORT.format(number=place, signal=int(number)), *query), number) == ""


@pytest.mark.soak(part="kills")
def test_a_signal_at_every_25th_import_of_a_query(ward: Path) -> None:
    query = ["query", ward / "ill.duckdb", "SELECT COUNT(*) FROM ill WHERE sex = 'F' AND disease = 'flu'", "--json"]
    ended = 0
    for place in range(1, imports(*query), 25):
        process = started(AT_IMPORT.format(number=place, signal=int(signal.SIGINT)), *query)
        if process.wait(timeout=60) == 0:  # the import was a library's, which makes do without the module
            assert json.load(process.stdout)["rows"]
            process.communicate()
            ended += 1
            continue
        assert json.loads(stopped(process, signal.SIGINT)) == {"error": "interrupted", "exit_code": 130}
    assert ended <= 1


# While it runs ---


@pytest.mark.slow
@pytest.mark.parametrize("number", WORDS)
def test_a_verb_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    mark = tmp_path / "mark"
    process = started(
        inside(
            f"mark = Path({str(mark)!r})",
            "try:",
            "    mark.write_text('begun')",
            "    time.sleep(60)",
            "finally:",
            "    time.sleep(0.3)",
            "    mark.unlink()",
        ),
        "export",
        "r",
        "--json",
    )
    while not mark.exists():
        time.sleep(0.01)
    for _ in range(3):  # timeout(1) sends it twice
        process.send_signal(number)
        time.sleep(0.05)
    assert json.loads(stopped(process, number)) == {"error": WORDS[number], "exit_code": 128 + number}
    assert not mark.exists()


def test_an_interruption_where_exceptions_are_dropped_is_not_lost() -> None:
    process = started(
        inside(
            "class Loud:",
            "    def __del__(self):",
            f"        os.kill(os.getpid(), {int(signal.SIGINT)})",
            "        time.sleep(0.01)",
            "Loud()",
            "time.sleep(60)",
        ),
        "export",
        "r",
    )
    stopped(process, signal.SIGINT)


def test_other_exceptions_that_are_dropped_are_shown() -> None:
    process = started(
        inside("class Loud:", "    def __del__(self):", "        1 / 0", "Loud()", "sys.exit(0)"), "export", "r"
    )
    assert "ZeroDivisionError" in process.communicate(timeout=60)[1]
    assert process.returncode == 0


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    lines = inside(f"os.kill(os.getpid(), {int(signal.SIGHUP)})", "sys.exit(0)")
    ignoring = f"import signal; signal.signal({int(signal.SIGHUP)}, signal.SIG_IGN)\n"
    process = started(ignoring + lines, "export", "r")
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


def test_what_is_done_is_done() -> None:
    """A signal after the last word changes nothing."""
    late = f"import atexit, os; atexit.register(os.kill, os.getpid(), {int(signal.SIGINT)})\n"
    process = started(late, "--version")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("number", rest_slow(WORDS))
def test_publish_leaves_nothing_behind(ward: Path, tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import os, time\n"
        "from privsql.verbs import publish\n"
        "def examine(*_, **__):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    time.sleep(60)\n"
        "publish.examine_release = examine\n"
    )
    before = sorted(os.listdir(tmp_path))
    stopped(started(program, "publish", ward / "spec.toml", "--to", tmp_path / "r.duckdb"), number)
    assert sorted(os.listdir(tmp_path)) == before
    assert left_over(tmp_path) == []
