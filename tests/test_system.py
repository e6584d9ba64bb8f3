"""Files, locks and memory as systems have them; the package where much of POSIX is missing, and without its extras."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING, Any

import pytest

from privsql import calls, dp_random, system
from privsql.errors import EngineError
from support.commands import PEOPLE, refused, run, write
from support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import os, sys
from pathlib import Path
from privsql import system
descriptor = system.open_descriptor(Path(sys.argv[1]), os.O_RDWR | os.O_CREAT)
print(system.locked(descriptor, alone=sys.argv[2] == "alone"), flush=True)
sys.stdin.read()
"""
ELSEWHERE = """
import importlib, json, os, pkgutil, signal, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "readline", "syslog"):
    sys.modules[name] = None
for name in ("geteuid", "getuid", "getgid", "getegid", "sysconf", "setsid", "fork", "killpg", "getpgid", "chown",
             "mkfifo", "statvfs", "getloadavg", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY"):
    delattr(os, name)
for one in list(signal.Signals):
    if one.name not in ("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"):
        delattr(signal, one.name)
        del signal.Signals._member_map_[one.name]
for name in ("setitimer", "pthread_sigmask", "alarm", "pause"):
    delattr(signal, name)
import privsql
for module in pkgutil.walk_packages(privsql.__path__, "privsql."):
    if not module.name.startswith(("privsql.engine.spark", "privsql.engine.postgres")):  # extras
        importlib.import_module(module.name)
"""
VERBS = """
from contextlib import suppress
from privsql import system
from privsql.__main__ import main
system.locked = lambda descriptor, *, alone: True  # what locks there is another system's
system.total_memory = lambda: 2**32
for line in json.loads(sys.argv[1]):
    sys.argv = ["privsql", *line]
    try:
        main()
    except SystemExit as done:
        assert not done.code, line
"""


def held(lock: Path, kind: str) -> subprocess.Popen[str]:
    """Another process that has a lock until it ends."""
    command = [sys.executable, "-c", HOLDER, str(lock), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


TOGETHER = [("alone", "shared", False), ("shared", "alone", False), ("shared", "shared", True)]


@pytest.mark.parametrize(("theirs", "ours", "granted"), TOGETHER)
def test_who_reads_shares_and_who_writes_does_not(tmp_path: Path, theirs: str, ours: str, granted: bool) -> None:
    """A lock ends with its process, even one that is killed."""
    lock = tmp_path / "lock"
    other = held(lock, theirs)
    descriptor = system.open_descriptor(lock, os.O_RDWR)
    assert system.locked(descriptor, alone=ours == "alone") is granted
    other.kill()
    other.communicate()
    assert system.locked(descriptor, alone=ours == "alone")
    os.close(descriptor)


def test_what_can_not_be_locked_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="descriptor"):
        system.locked(10**6, alone=True)


def test_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic link"):
        system.open_descriptor(tmp_path / "link", os.O_RDWR)


def test_the_machine_has_memory() -> None:
    assert 2**26 < system.total_memory() < 2**50


def test_where_nobody_owns_files_none_is_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.for_others(0o644) == 0o044
    seen = tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: seen.st_uid + 1)
    assert not system.is_users_file(seen)
    monkeypatch.delattr(os, "geteuid")
    assert system.is_users_file(seen)
    assert system.for_others(0o644) == 0


def elsewhere(program: str, *lines: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ELSEWHERE + program, json.dumps(lines)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


@pytest.mark.slow
def test_all_of_it_is_imported_without_posix() -> None:
    done = elsewhere("")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_it_publishes_without_posix(tmp_path: Path) -> None:
    """All but the locks, which are a library's on either system; in a folder for temporary files of its own.

    A process that sees no locks takes the folders of others for those of the dead, and sweeps them away.
    """
    (tmp_path / "temporary").mkdir()
    write(tmp_path / "people.parquet", PEOPLE.format(n=400))
    made = ["publish", "people.parquet", "--qi", "age,sex", "--sensitive", "disease", "--threshold", "0.5", "--to", "r"]
    lines = [made, ["verify", "r"], ["query", "r", "SELECT COUNT(*) FROM people WHERE disease = 'flu'"], ["ledger"]]
    done = elsewhere(
        VERBS, *lines, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")}
    )
    assert done.returncode == 0, done.stderr
    for word in ("400 published", "verified", "estimate", "no earlier release of these people"):
        assert word in done.stdout


# Without the extras ---------------------------------------------------------------------------------------------------


def without(_: str) -> str:
    raise PackageNotFoundError


def test_noise_without_opendp_names_the_extra(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_random, "version", without)
    done = run("publish", shop / "spec.toml", "--to", shop / "another.duckdb", "--allow-composition")
    refused(done, 4, "pip install 'privsql[dp]'")
    assert not (shop / "another.duckdb").exists()


def test_draws_without_opendp_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(EngineError, match=r"privsql\[dp\]"):
        dp_random.laplace(1.0, 1)


def test_what_was_released_is_verified_without_opendp(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_random, "version", without)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    assert run("verify", shop / "shop.duckdb").code == 0


@pytest.mark.parametrize("verb", ["evaluate", "attack"])
def test_a_picture_without_altair_names_the_extra_before_it_measures(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "find_spec", lambda name: None if name == "altair" else name)
    refused(
        run(verb, "nowhere.duckdb", "--source", "nowhere.toml", "--plot", "p.png"), 4, "pip install 'privsql[plot]'"
    )


@pytest.mark.parametrize("running", [True, False])
def test_garbage_is_collected_again_once_an_answer_is_there(*, running: bool) -> None:
    assert gc.isenabled()
    if not running:
        gc.disable()
    try:
        with suppress(ValueError), calls.pause_collection():
            assert not gc.isenabled()
            raise ValueError
        assert gc.isenabled() == running
    finally:
        gc.enable()
