"""Killed, interrupted, out of space, torn: a release is whole or is not there, and what is broken is said to be."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

import privsql
from privsql import system
from privsql.errors import PrivsqlError
from privsql.model.manifest import FORMAT
from privsql.releases.draft import Draft
from privsql.releases.opened import attach_release
from privsql.source.targets import Target
from support.commands import ROLES, left_over, refused, rows, run, specification, succeeded, tables, write
from support.loops import each, rest_slow
from support.statements import command as in_a_process
from support.statements import counted
from support.tampering import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGE = """
SELECT CAST(18 + (i * 7919) % 61 AS INTEGER) AS age, CASE WHEN (i * 31) % 7 < 3 THEN 'F' ELSE 'M' END AS sex,
  CAST((i * 104729) % 977 AS INTEGER) AS zip, 'v' || ((i * i + i * 13) % 97) % 40 AS disease
FROM range(300000) t(i)
"""
FLAGS = [*ROLES, "--threshold", "2*f + 0.05", "--algorithm", "two-size", "--set", "release.name=ill"]
QUESTION = "SELECT COUNT(*) FROM ill WHERE age < 30 AND disease = 'flu'"


def command(*arguments: object) -> list[str]:
    """A command in a process of its own."""
    return [sys.executable, "-m", "privsql", *map(str, arguments)]


@pytest.fixture
def place(ward: Path, tmp_path: Path) -> Path:
    """A folder with a source, its specification and a release."""
    for name in ("people.parquet", "spec.toml", "ill.duckdb"):
        shutil.copy(ward / name, tmp_path / name)
    return tmp_path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a source that takes a while, and a release of it."""
    folder = tmp_path_factory.mktemp("large")
    write(folder / "people.parquet", LARGE)
    succeeded("publish", folder / "people.parquet", *FLAGS, "--to", folder / "old.duckdb")
    return folder


@pytest.fixture(scope="module")
def statements(large: Path) -> int:
    """How many statements a publication of the large source takes."""
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, seen.append)
        succeeded("publish", large / "people.parquet", *FLAGS, "--to", large / "counted.duckdb")
    return len(seen)


# Killed ---


def killed(large: Path, target: str, number: int, seconds: float) -> None:
    """A publication that is killed some seconds after it has begun a statement."""
    arguments = ["publish", large / "people.parquet", *FLAGS, "--to", large / target, "--replace"]
    given = in_a_process("kill", number, seconds, *arguments)
    subprocess.run(**given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


@pytest.mark.soak(part="kills")
def test_kill_at_any_moment_leaves_the_old_release_or_the_new(large: Path, statements: int) -> None:
    moments = np.random.default_rng(20)
    known = (large / "old.duckdb").read_bytes()
    for number in np.linspace(1, statements, 7).astype(int).tolist():
        killed(large, "old.duckdb", number, moments.uniform(0, 0.1))
        content = (large / "old.duckdb").read_bytes()
        if content != known:
            assert succeeded("verify", large / "old.duckdb", "--json").json["ok"]
            known = content
    succeeded("publish", large / "people.parquet", *FLAGS, "--to", large / "old.duckdb", "--replace")
    assert left_over(large) == []


@pytest.mark.soak(part="kills")
def test_kill_at_any_moment_leaves_no_release_or_a_whole_one(large: Path, statements: int) -> None:
    moments = np.random.default_rng(21)
    target = large / "new.duckdb"
    for number in np.linspace(statements // 4, statements, 5).astype(int).tolist():
        killed(large, "new.duckdb", number, moments.uniform(0, 0.1))
        if target.exists():
            assert succeeded("verify", target, "--json").json["ok"]
            target.unlink()
    succeeded("publish", large / "people.parquet", *FLAGS, "--to", target)
    assert left_over(large) == []


class Crash(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, number: int, *, before: bool) -> Iterator[list[int]]:
    """The process ends at one of the calls that flush or rename; nothing is cleaned up after it."""
    calls = [0]

    def ending(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == number and before:
                raise Crash
            result = real(*arguments, **options)
            if calls[0] == number:
                raise Crash
            return result

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Draft, "__exit__", lambda draft, *_: draft._room.let_go())
        for name in ("fsync", "replace", "rename", "link"):
            patch.setattr(os, name, ending(getattr(os, name)))
        yield calls


@pytest.mark.slow
@pytest.mark.parametrize(("form", "existing"), rest_slow([("duckdb", True), ("parquet", True), ("duckdb", False)]))
def test_a_crash_between_any_two_steps_of_the_commit(
    ward: Path, tmp_path: Path, form: str, existing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = ".duckdb" if form == "duckdb" else ""
    source = privsql.load(ward / "spec.toml")
    for number in range(1, 20):
        target = tmp_path / f"r{number}{ending}"
        if existing:
            shutil.copytree(ward / "ill", target) if form == "parquet" else shutil.copy(ward / "ill.duckdb", target)
        release = source.release.model_copy(update={"to": target, "format": form})
        spec = source.model_copy(update={"release": release})
        with crashing(monkeypatch, number, before=True) as calls, contextlib.suppress(Crash):
            privsql.publish(spec, replace=existing)
        if target.exists() or existing:
            assert target.exists(), f"the old release is gone after step {number - 1}"
            assert succeeded("verify", target, "--json").json["ok"]
        if calls[0] < number:
            break
    else:
        pytest.fail("the commit has more steps than this test expects")


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["ill.duckdb", "ill[1].duckdb", "it's ill.duckdb"]))
def test_the_next_publication_sweeps_the_drafts_of_the_dead(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = privsql.load(place / "spec.toml")
    spec = spec.model_copy(update={"release": spec.release.model_copy(update={"to": place / name})})
    with crashing(monkeypatch, 1, before=True), pytest.raises(Crash):
        privsql.publish(spec, replace=True)
    assert len(left_over(place)) == 1
    succeeded("publish", place / "spec.toml", "--to", place / name, "--replace")
    assert left_over(place) == []


@pytest.mark.slow
def test_a_draft_of_the_living_is_not_swept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Draft.commit

    def overtaken(draft: Draft, made: Path) -> None:
        monkeypatch.setattr(Draft, "commit", commit)
        succeeded("publish", place / "spec.toml", "--replace")
        assert made.exists()
        commit(draft, made)

    monkeypatch.setattr(Draft, "commit", overtaken)
    succeeded("publish", place / "spec.toml", "--replace")
    assert succeeded("verify", place / "ill.duckdb", "--json").json["ok"]
    assert left_over(place) == []


@pytest.mark.slow
def test_a_release_that_came_meanwhile_is_not_replaced_unasked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = place / "late.duckdb"
    commit = Draft.commit

    def overtaken(draft: Draft, made: Path) -> None:
        shutil.copy(place / "ill.duckdb", target)
        commit(draft, made)

    monkeypatch.setattr(Draft, "commit", overtaken)
    done = run("publish", place / "spec.toml", "--to", target)
    refused(done, 2, "late.duckdb", "option replace")
    assert target.read_bytes() == (place / "ill.duckdb").read_bytes()
    assert left_over(place) == []


@pytest.mark.soak(part="kills")
def test_two_publications_at_once_leave_one_whole_release(place: Path) -> None:
    arguments = command("publish", place / "spec.toml", "--to", place / "both.duckdb", "--replace")
    processes = [subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    told = [process.communicate()[1].decode() for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes[0] == 0, told
    assert codes[1] == 0 or any("published these people meanwhile" in text for text in told), told
    assert succeeded("verify", place / "both.duckdb", "--json").json["ok"]
    assert left_over(place) == []


# Interrupted ---


@pytest.mark.slow
@each("share", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1], few=3)
def test_ctrl_c_between_two_statements_leaves_nothing_behind(
    ward: Path, tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("people.parquet", "spec.toml"):
        shutil.copy(ward / name, tmp_path)
    seen: list[int] = []
    with monkeypatch.context() as patch:
        counted(patch, seen.append)
        succeeded("publish", tmp_path / "spec.toml", "--seed", 1)
    before = (tmp_path / "ill.duckdb").read_bytes()

    def stop(number: int) -> None:
        if number == 1 + int(share * (len(seen) - 1)):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        counted(patch, stop)
        with pytest.raises(KeyboardInterrupt):
            run("publish", tmp_path / "spec.toml", "--seed", 1, "--replace")
    assert left_over(tmp_path) == []
    assert (tmp_path / "ill.duckdb").read_bytes() == before


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, list[bytes]]]:
    """The end of a terminal that a process writes to, and what it has written once it is closed."""
    master, slave = pty.openpty()
    seen: list[bytes] = []

    def drain() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(master, 65536):
                seen.append(part)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield slave, seen
    finally:
        os.close(slave)
        reader.join()
        os.close(master)


@pytest.mark.slow
@pytest.mark.parametrize("watched", [True, False])
def test_ctrl_c_ends_a_statement_that_runs(tmp_path: Path, watched: bool) -> None:
    """One that would take days; with a bar on a terminal, and without."""
    write(tmp_path / "people.parquet", "SELECT 1 AS age, 'flu' AS disease")
    endless = "SELECT sum(range % 7) % 7 AS age, 'flu' AS disease FROM range(100000000000000)"
    source = f'file = "people.parquet"\nquery = "{endless}"'
    spec = specification(tmp_path, source=source, columns='quasi_identifiers = ["age"]\nsensitive = "disease"')
    told, tell = os.pipe()
    with terminal() as (screen, seen):
        process = subprocess.Popen(
            **in_a_process("tell", "range(100000000000000)", tell, "publish", spec),
            pass_fds=[tell],
            stdout=subprocess.DEVNULL,
            stderr=screen if watched else subprocess.PIPE,
        )
        os.close(tell)
        try:
            begun = os.read(told, 1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        finally:
            process.kill()
            process.wait()
            os.close(told)
    text = (b"".join(seen) if watched else errors).decode()
    assert begun == b".", text
    assert left_over(tmp_path) == []
    assert "Traceback" not in text
    assert "interrupted" in text
    assert process.returncode == 130, text


# Out of space ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "form"),
    [
        (0.99, "duckdb"),
        pytest.param(0.0, "duckdb", marks=pytest.mark.slow),
        pytest.param(0.5, "parquet", marks=pytest.mark.slow),
    ],
)
def test_a_limit_on_files_leaves_the_old_release(place: Path, share: float, form: str) -> None:
    before = (place / "ill.duckdb").read_bytes()
    limit = int(len(before) * share)
    done = subprocess.run(
        command("publish", place / "spec.toml", "--to", place / "ill.duckdb", "--format", form, "--replace"),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 4, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert (place / "ill.duckdb").read_bytes() == before
    assert left_over(place) == []


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_release(place: Path) -> None:
    disk = place / "disk"
    disk.mkdir()
    size = (place / "ill.duckdb").stat().st_size * 3 // 2
    script = (
        f"mount -t tmpfs -o size={size} tmpfs {disk} && echo mounted && cp ill.duckdb {disk}/ill.duckdb && "
        f"{sys.executable} -m privsql publish spec.toml --to {disk}/ill.duckdb --replace; echo $?; "
        f"cmp ill.duckdb {disk}/ill.duckdb && ls -A {disk}"
    )
    try:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script], cwd=place, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare to mount a ward disk with")
    if not done.stdout.startswith("mounted"):
        pytest.skip("a ward disk can't be mounted here")
    assert done.stdout.split() == ["mounted", "4", "ill.duckdb"], done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_slow(["fsync", "replace"]))
def test_a_failure_of_the_commit_leaves_the_old_release(
    place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = (place / "ill.duckdb").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        done = run("publish", place / "spec.toml", "--replace")
    refused(done, 4, os.strerror(errno.ENOSPC))
    assert (place / "ill.duckdb").read_bytes() == before
    assert left_over(place) == []


@pytest.mark.slow
def test_a_draft_that_can_not_be_locked_leaves_nothing_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(system, "locked", fail)
    refused(run("publish", place / "spec.toml", "--replace"), 4, os.strerror(errno.ENOLCK))
    assert left_over(place) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_folder_that_can_not_be_written(place: Path) -> None:
    folder = place / "shut"
    folder.mkdir(mode=0o555)
    refused(run("publish", place / "spec.toml", "--to", folder / "ill.duckdb"), 4, "shut")


@pytest.mark.slow
def test_too_little_memory_is_said_in_one_line(place: Path) -> None:
    before = (place / "ill.duckdb").read_bytes()
    refused(run("publish", place / "spec.toml", "--replace", "--memory-limit", "1MB"), 4, "memory")
    assert (place / "ill.duckdb").read_bytes() == before
    assert left_over(place) == []


# Torn ---


def questioned(release: Path, *, whole: Callable[[], bool]) -> None:
    """Every command fails in one line, or verify is right to say that all is as it was."""
    for arguments in (["verify", release], ["query", release, QUESTION]):
        done = run(*arguments)
        assert done.crash is None, (arguments[0], repr(done.crash))
        if done.code == 0:
            assert arguments[0] != "verify" or whole()
        else:
            assert done.code in {1, 2, 4}
            assert done.code == 1 or len(done.err.strip().splitlines()) == 1, done.err


def test_a_file_of_a_folder_that_breaks_off_is_said_to_be_damaged(ward: Path, tmp_path: Path) -> None:
    shutil.copytree(ward / "ill", tmp_path / "ill")
    file = tmp_path / "ill" / "qit.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    refused(run("query", tmp_path / "ill", "SELECT COUNT(*) FROM ill"), 1, "qit.parquet has other bytes than")
    refused(
        run("verify", seal(tmp_path / "ill")), 4, "qit.parquet: can't be read: is no Parquet file, or a damaged one"
    )


@pytest.mark.slow
@each("share", [0, 11, 12, 4096, 12289, 0.3, 0.6, -4096, -1], few=4)
def test_a_release_that_breaks_off(ward: Path, tmp_path: Path, share: float) -> None:
    content = (ward / "ill.duckdb").read_bytes()
    length = int(share * len(content)) if 0 < share < 1 else int(share) % len(content)
    release = tmp_path / "ill.duckdb"
    release.write_bytes(content[:length])
    questioned(release, whole=lambda: False)


def test_a_torn_release_is_not_said_to_be_open_elsewhere(ward: Path, tmp_path: Path) -> None:
    content = bytearray((ward / "ill.duckdb").read_bytes())
    content[4096 + 100] ^= 0xFF
    content[8192 + 100] ^= 0xFF
    (tmp_path / "ill.duckdb").write_bytes(content)
    for arguments in (["verify", tmp_path / "ill.duckdb"],):
        done = run(*arguments)
        refused(done, 4, "ill.duckdb")
        assert "another process" not in done.err


@pytest.mark.slow
@each("seed", range(24), few=6)
def test_a_flipped_bit_of_a_release(ward: Path, tmp_path: Path, seed: int) -> None:
    content = bytearray((ward / "ill.duckdb").read_bytes())
    place = np.random.default_rng(seed)
    content[place.integers(12_288 if seed < 8 else len(content))] ^= 1 << int(place.integers(8))
    release = tmp_path / "ill.duckdb"
    release.write_bytes(content)
    questioned(release, whole=lambda: tables(release) == tables(ward / "ill.duckdb"))


@pytest.mark.slow
@each("name", ["qit", "st", "privsql_manifest"], few=3)
@each("seed", range(3))
def test_a_flipped_bit_of_a_folder(ward: Path, tmp_path: Path, name: str, seed: int) -> None:
    shutil.copytree(ward / "ill", tmp_path / "ill")
    path = tmp_path / "ill" / f"{name}.parquet"
    content = bytearray(path.read_bytes())
    place = np.random.default_rng(seed)
    content[place.integers(len(content))] ^= 1 << int(place.integers(8))
    path.write_bytes(content)
    done = run("verify", tmp_path / "ill", "--source", ward / "spec.toml")
    assert done.crash is None, repr(done.crash)
    if done.code == 0:
        query = f"SELECT * FROM read_parquet('{{}}/{name}.parquet')"
        with duckdb.connect() as db:
            found, true = (db.execute(query.format(folder / "ill")).fetchall() for folder in (tmp_path, ward))
        assert name == "privsql_manifest" or found == true
    else:
        assert done.code in {1, 2, 4}
        assert done.code == 1 or len(done.err.strip().splitlines()) == 1, done.err


# Of another format ----------------------------------------------------------------------------------------------------


def test_a_release_of_another_format_is_refused(place: Path) -> None:
    release = place / "ill.duckdb"
    with duckdb.connect(str(release)) as db:
        db.execute(f"UPDATE privsql_manifest SET value = '{FORMAT + 1}' WHERE key = 'format'")
    for command in (["verify", release], ["query", release, QUESTION]):
        refused(run(*command), 4, f"format {FORMAT + 1}", f"reads format {FORMAT}", "publish anew")


# Locked ---


@each(
    "statement",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_parquet('{folder}/people.parquet')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{file}')",
        "SELECT * FROM parquet_metadata('{folder}/people.parquet')",
        "FROM '{file}'",
        "FROM '{folder}/people.parquet'",
        "ATTACH '{folder}/other.duckdb'",
        "COPY release.qit TO '{folder}/stolen.csv'",
        "COPY (SELECT 1) TO '{folder}/stolen.csv'",
        "EXPORT DATABASE '{folder}/stolen'",
        "IMPORT DATABASE '{folder}/stolen'",
        "INSTALL httpfs",
        "FORCE INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{folder}/people.parquet'",
        "SET threads = 1",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET python_enable_replacements = true",
        "SET autoinstall_known_extensions = true",
        "SET memory_limit = '1TB'",
        "SET temp_directory = '{folder}'",
        "RESET lock_configuration",
        "RESET enable_external_access",
        "PRAGMA enable_profiling",
        "PRAGMA memory_limit = '1TB'",
        "CREATE SECRET s (TYPE s3)",
        "CREATE TABLE release.more AS SELECT 1 AS a",
        "INSERT INTO release.qit SELECT * FROM release.qit",
        "UPDATE release.st SET count = 1",
        "DELETE FROM release.st",
        "DROP TABLE release.qit",
        "ALTER TABLE release.qit ADD COLUMN person INTEGER",
        "SELECT * FROM secret_rows",
        "SELECT * FROM 'https://example.invalid/x.csv'",
    ],
)
@each("form", ["duckdb", "parquet"])
def test_a_locked_release_can_not_reach_outside_or_change(
    ward: Path, tmp_path: Path, statement: str, form: str
) -> None:
    secret_rows = [1, 2, 3]
    (tmp_path / "secret.csv").write_text("a\n1\n", encoding="utf-8")
    shutil.copy(ward / "people.parquet", tmp_path)
    if form == "parquet":
        if (
            statement.split(maxsplit=1)[0] in {"CREATE", "INSERT", "UPDATE", "DELETE", "DROP", "ALTER"}
            and "SECRET" not in statement
        ):
            pytest.skip("a folder is read into memory, where it may be changed")
        release = ward / "ill"
    else:
        release = ward / "ill.duckdb"
    with attach_release(Target.parse(release)) as (engine, _):
        with pytest.raises(PrivsqlError) as refusal:
            engine.connection.rows(statement.format(file=tmp_path / "secret.csv", folder=tmp_path))
        assert len(str(refusal.value).splitlines()) == 1
    assert secret_rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.parquet", "secret.csv"]


@pytest.mark.slow
def test_asking_leaves_a_release_as_it_was(ward: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in ward.rglob("*") if path.is_file()}
    succeeded("query", ward / "ill.duckdb", QUESTION)
    succeeded("verify", ward / "ill", "--source", ward / "spec.toml")
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in ward.rglob("*") if path.is_file()} == before
    assert rows(ward / "ill.duckdb", "SELECT count(*) FROM qit") == [(400,)]
