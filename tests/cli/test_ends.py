"""How a command ends: one line, one object under ``--json``, an exit code, whatever becomes of its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import duckdb
import pytest

from support.commands import PEOPLE, ROLES, refused, run, specification, succeeded, write
from support.loops import rest_slow

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "\x1b[2J\x9b31m\u202e"  # clears a terminal, colours it, turns the reading round


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source, its specification, a release, and one of which rows are missing; read only."""
    folder = tmp_path_factory.mktemp("ward")
    write(folder / "people.parquet", PEOPLE.format(n=400))
    succeeded("publish", specification(folder))
    (folder / "torn.duckdb").write_bytes((folder / "ill.duckdb").read_bytes())
    with duckdb.connect(str(folder / "torn.duckdb")) as db:
        db.execute("DELETE FROM qit WHERE bid = 0")
    return folder


def process(*arguments: object, **streams: object) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own."""
    command = [sys.executable, "-m", "privsql", *map(str, arguments)]
    return subprocess.run(command, text=True, check=False, **streams)  # type: ignore[call-overload, no-any-return]


# Usage ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["publish"], ["Missing argument", "privsql publish --help"]),
        (["publsh"], ["publsh", "privsql --help"]),
        (["verify", "r", "--no-such"], ["--no-such", "privsql verify --help"]),
        (["query", "r"], ["SQL", "option itemsets"]),
        (["query", "r", "--itemsets", "0"], ["--itemsets", "equal to 1"]),
        (["query", "r", "--itemsets", "many"], ["--itemsets", "integer"]),
        (["evaluate", "r"], ["option source"]),
        (["export", "r", "s"], ["extra", "s"]),
        (["query", "r", "SELECT 1", "--confidence"], ["--confidence"]),
        (["attack", "r", "--plot", "picture.jpg"], ["--plot picture.jpg", ".png"]),
        (["verify", "r", "s"], ["--against"]),
        (["--no-such"], ["--no-such"]),
    ],
)
def test_a_usage_error_is_one_line_and_one_object(arguments: list[str], words: list[str]) -> None:
    refused(run(*arguments), 2, *words)
    done = run(*arguments, "--json")
    refused(done, 2, *words)
    assert done.json == {"error": done.err.strip().removeprefix("privsql: "), "exit_code": 2}


def test_a_source_without_roles_names_the_key_that_is_missing(ward: Path) -> None:
    refused(run("publish", ward / "people.parquet"), 2, "so columns.sensitive is needed")


def test_json_alone_is_an_error_in_json() -> None:
    assert run("--json").json["exit_code"] == 2


def test_no_arguments_is_help() -> None:
    assert run().out == succeeded("--help").out


def test_every_other_error_is_an_object_too(ward: Path) -> None:
    for code, arguments in (
        (4, ["verify", ward / "nowhere.duckdb"]),
        (3, ["plan", ward / "people.parquet", *ROLES, "--threshold", "0.2"]),
        (2, ["query", ward / "ill.duckdb", "SELEC"]),
    ):
        shown = run(*arguments, "--json").json
        assert shown["exit_code"] == code
        assert shown["error"]


# Output ---


def gone(*arguments: object) -> tuple[int, str]:
    """Exit code and stderr of a command whose reader has gone before it begins."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = process(*arguments, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.soak(part="long")
def test_a_reader_who_has_gone_does_not_change_the_verdict(ward: Path) -> None:
    groups = "SELECT age, sex, zip, disease, COUNT(*) FROM ill GROUP BY age, sex, zip, disease"
    for code, arguments in (
        (0, ["verify", ward / "ill.duckdb"]),
        (1, ["verify", ward / "torn.duckdb"]),
        (1, ["verify", ward / "torn.duckdb", "--json"]),
        (0, ["query", ward / "ill.duckdb", groups, "--estimator", "baseline", "--csv"]),
        (0, ["--help"]),
    ):
        assert gone(*arguments) == (code, ""), arguments
    code, said = gone("verify", ward / "nowhere.duckdb", "--json")
    assert (code, said.count("\n")) == (4, 1)


@pytest.mark.soak(part="long")
def test_half_of_the_output_is_read_as_by_head(ward: Path) -> None:
    line = f"{sys.executable} -m privsql verify {ward / 'ill.duckdb'} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", rest_slow([["verify"], ["verify", "--json"], ["--help"], ["init", "--schema"]]))
def test_a_full_device_is_one_line(ward: Path, arguments: list[str]) -> None:
    release = [str(ward / "ill.duckdb")] if arguments[0] == "verify" else []
    with open("/dev/full", "w") as full:
        done = process(*arguments, *release, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 4
    assert done.stderr == "privsql: standard output: No space left on device\n"


@pytest.mark.slow
def test_nobody_reads_stderr(ward: Path) -> None:
    with open("/dev/full", "w") as full:
        done = process("verify", ward / "nowhere.duckdb", "--json", stdout=subprocess.PIPE, stderr=full)
    assert done.returncode == 4
    assert json.loads(done.stdout)["exit_code"] == 4


@pytest.mark.slow
def test_streams_that_are_closed(ward: Path) -> None:
    line = f"{sys.executable} -m privsql verify {ward / 'torn.duckdb'} >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 1
    line = f"{sys.executable} -m privsql verify {ward / 'ill.duckdb'} >&-"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_output_that_is_not_utf_8(ward: Path) -> None:
    accents = ward / "accents.duckdb"
    source = write(ward / "s.parquet", "SELECT i % 5 AS âge, ['é', 'è', 'ê'][1 + i % 3] AS mal FROM range(90) t(i)")
    succeeded("publish", source, "--qi", "âge", "--sensitive", "mal", "--threshold", "0.5", "--to", accents)
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    for arguments in (["verify", accents], ["query", accents, "SELECT mal, COUNT(*) FROM s GROUP BY mal", "--json"]):
        done = process(*arguments, capture_output=True, env=environment)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert [row["mal"] for row in json.loads(done.stdout)["rows"]] == ["è", "é", "ê"]


@pytest.mark.slow
def test_what_a_release_holds_does_not_steer_a_terminal(tmp_path: Path) -> None:
    names = f"SELECT i % 5 AS \"age{HOSTILE}\", '{HOSTILE}' || i % 4 AS disease FROM range(80) t(i)"
    source = write(tmp_path / "ward.parquet", names)
    flags = ["--qi", f"age{HOSTILE}", "--sensitive", "disease", "--threshold", "0.5", "--to", tmp_path / "r.duckdb"]
    printed = [succeeded("publish", source, *flags)]
    printed.append(succeeded("verify", tmp_path / "r.duckdb", "--verbose"))
    printed.append(succeeded("query", tmp_path / "r.duckdb", "SELECT disease, COUNT(*) FROM ward GROUP BY disease"))
    printed.append(run("query", tmp_path / "r.duckdb", f'SELECT COUNT(*) FROM ward WHERE "{HOSTILE}" = 1'))
    for one in printed:
        assert not set(HOSTILE[0] + HOSTILE[4] + HOSTILE[-1]) & set(one.out + one.err)
    assert "\\x1b[2J" in printed[1].out
    assert "\\u202e" in printed[3].err


# What a shell asks ---


def test_a_shell_is_told_verbs_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_PRIVSQL_COMPLETE", "complete_bash")
    for words, place, found in (
        ("privsql ver", 1, ["verify"]),
        ("privsql publish --thr", 2, ["--threshold", "--threads"]),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(place))
        assert succeeded().out.split() == found
