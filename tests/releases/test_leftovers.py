"""What is left of a process that was killed: nobody else can read it, and the next verb on that target sweeps it.

A release itself is never written with more rights than the umask and 0644 allow.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from privsql.releases.draft import OLD, Draft
from privsql.releases.ledger import book as ledgers
from privsql.source.targets import Target
from support.commands import left_over, run, succeeded
from support.loops import each, rest_slow
from support.rights import mode
from support.statements import command, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTION = "SELECT COUNT(*) FROM ill WHERE age < 30 AND disease = 'flu'"
VERBS: dict[str, list[object]] = {
    "query": ["query", "ill.duckdb", QUESTION],
    "publish": ["publish", "spec.toml", "--replace"],
    "verify": ["verify", "ill.duckdb"],
    "verify --source": ["verify", "ill.duckdb", "--source", "spec.toml"],
    "plan": ["plan", "spec.toml"],
    "attack": ["attack", "ill.duckdb"],
    "evaluate": ["evaluate", "ill.duckdb", "--source", "spec.toml", "--queries", "3"],
}


@pytest.fixture
def place(ward: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a source, its specification and a release, where the work is done; temporary files lie in tmp."""
    folder = tmp_path / "place"
    folder.mkdir()
    for name in ("people.parquet", "spec.toml", "ill.duckdb"):
        shutil.copy(ward / name, folder / name)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(params=rest_slow([0o000, 0o022, 0o077, 0o027]))
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask, which is the same afterwards."""
    before = os.umask(request.param)
    yield request.param
    assert os.umask(before) == request.param


def exposed(*folders: Path) -> list[tuple[str, str]]:
    """Whatever in some folders others have a right to."""
    found = [path for folder in folders if folder.exists() for path in (folder, *folder.rglob("*"))]
    return [(str(path), oct(mode(path))) for path in found if mode(path) & 0o077]


def killed(number: int, *arguments: object) -> int:
    """A process whose umask takes nothing away, killed at a statement; its exit code."""
    given: dict[str, Any] = command("kill", number, 0, *arguments)
    return subprocess.run(
        **given, umask=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode


# Rights of a release --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("form", rest_slow(["duckdb", "parquet"]))
def test_a_release_has_the_rights_that_umask_and_0644_allow(place: Path, form: str, umask: int) -> None:
    target = place / "new"
    for _ in range(2):
        succeeded("publish", "spec.toml", "--to", target, "--format", form, "--replace")
        files = [target] if form == "duckdb" else list(target.iterdir())
        assert {mode(file) for file in files} == {0o644 & ~umask}
        if form == "parquet":
            assert mode(target) == 0o755 & ~umask
        for file in files:  # what replaces it has no more rights because it had some
            file.chmod(0o666)
    ledger = ledgers.default_path()
    assert exposed(ledger.parent) == []


# Killed ---------------------------------------------------------------------------------------------------------------


def dead_draft(target: Path) -> Path:
    """A draft of a release whose process is gone, in which a release has grown."""
    draft = Draft(Target(target))
    draft.database_file.write_bytes(b"half of it")
    draft._room.let_go()
    return draft.folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", rest_slow(VERBS, 2))
def test_any_verb_on_a_target_sweeps_the_drafts_of_the_dead(place: Path, verb: str) -> None:
    draft, another = dead_draft(place / "ill.duckdb"), dead_draft(place / "other.duckdb")
    succeeded(*VERBS[verb])
    assert not draft.exists()
    assert left_over(place) == [another.name]


def test_a_release_that_a_dead_process_had_put_aside_comes_back(place: Path) -> None:
    draft = dead_draft(place / "ill.duckdb")
    before = (place / "ill.duckdb").read_bytes()
    (place / "ill.duckdb").rename(draft / OLD)
    succeeded(*VERBS["query"])
    assert (place / "ill.duckdb").read_bytes() == before
    assert left_over(place) == []


def test_what_can_not_be_swept_stays_and_stands_in_nobodys_way(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = dead_draft(place / "ill.duckdb")
    (place / "ill.duckdb").rename(draft / OLD)
    replace = Path.replace

    def fail(path: Path, target: Path) -> Path:
        if path.name == OLD:
            raise PermissionError
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail)
    assert run(*VERBS["query"]).code == 4
    assert (draft / OLD).exists()


@pytest.mark.slow
def test_half_a_secret_is_swept(place: Path) -> None:
    ledger = ledgers.default_path()
    ledger.parent.mkdir(mode=0o700)
    half = ledger.parent / f".{ledgers.key_of(ledger).name}.0123"
    half.write_text("01")
    succeeded(*VERBS["publish"])
    assert sorted(path.name for path in ledger.parent.iterdir()) == [
        "ledger.duckdb",
        "ledger.duckdb.lock",
        "ledger.key",
    ]
    assert left_over(place) == []


@pytest.fixture(scope="module")
def statements(ward: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many statements each verb takes."""
    folder = shutil.copytree(ward, tmp_path_factory.mktemp("counted"), dirs_exist_ok=True)
    found = {}
    for verb, arguments in VERBS.items():
        seen: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            counted(patch, seen.append)
            succeeded(*arguments)
        found[verb] = len(seen)
    return found


@pytest.mark.soak(part="kills")
@each("share", [0.05, 0.85])
@each("verb", ["publish", "verify --source", "evaluate", "query"])
def test_what_a_killed_process_leaves_is_private_and_the_next_verb_sweeps_it(
    ward: Path, statements: dict[str, int], verb: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("people.parquet", "spec.toml", "ill.duckdb"):
        shutil.copy(ward / name, tmp_path / name)
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
    ledger = ledgers.default_path()
    before = {path.name for path in tmp_path.iterdir()}
    assert killed(max(1, int(share * statements[verb])), *VERBS[verb]) == -signal.SIGKILL
    left = [path for path in tmp_path.iterdir() if path.name not in before]
    assert exposed(*left, temporary, ledger.parent) == []
    succeeded(*VERBS["query"])
    assert left_over(tmp_path) == []
    assert list(temporary.iterdir()) == []
    succeeded(*VERBS["publish"])
    assert {path.name for path in tmp_path.iterdir()} == before
    assert {path.name for path in ledger.parent.iterdir()} == {"ledger.duckdb", "ledger.duckdb.lock", "ledger.key"}
