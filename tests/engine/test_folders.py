"""Folders for what is not finished: private, locked as long as their process lives, and swept by the next one."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

import pytest

from privsql import system
from privsql.engine import files
from privsql.engine.files import LOCK, ROOM, Folder, private, sweep_folders, temporary_folder
from privsql.errors import EngineError
from support.rights import mode

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = ".r.draft-"


def of_the_dead(parent: Path, name: str = "x") -> Path:
    """A folder whose process is gone, with something in it."""
    folder = parent / f"{PREFIX}{name}"
    folder.mkdir(mode=0o700)
    for file in (LOCK, "data"):
        (folder / file).touch()
    return folder


@pytest.mark.usefixtures("lax")
def test_what_is_made_for_one_is_private(tmp_path: Path) -> None:
    made = Folder(PREFIX, tmp_path)
    (made.path / "inside").touch()
    (made.path / "below").mkdir()
    (tmp_path / "beside").touch()
    assert mode(made.path) == mode(made.path / "below") == 0o700
    assert mode(made.path / "inside") == mode(made.path / LOCK) == mode(tmp_path / "beside") == 0o600
    made.remove()
    (tmp_path / "afterwards").touch()
    assert mode(tmp_path / "afterwards") == 0o666
    assert sorted(path.name for path in tmp_path.iterdir()) == ["afterwards", "beside"]


@pytest.mark.usefixtures("lax")
def test_where_a_users_own_files_are_made_meanwhile_they_are_as_ever(tmp_path: Path) -> None:
    made = Folder(PREFIX, tmp_path, masked=False)
    (tmp_path / "beside").touch()
    assert (mode(made.path), mode(tmp_path / "beside")) == (0o700, 0o666)
    made.remove()


def test_the_umask_is_as_it_was_whichever_thread_ends_first() -> None:
    before = os.umask(0o022)
    try:
        private.__enter__()
        private.__enter__()
        private.__exit__()
        assert os.umask(0o077) == 0o077
        private.__exit__()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


@pytest.mark.parametrize("inside", [True, False])
def test_rights_that_are_left(inside: bool) -> None:
    before = os.umask(0o026)
    try:
        if inside:
            with private:
                assert private.spare_rights(0o644) == 0o640
        assert private.spare_rights(0o755) == 0o751
        assert os.umask(0o026) == 0o026
    finally:
        os.umask(before)


def test_folders_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    living, dead = Folder(PREFIX, tmp_path), of_the_dead(tmp_path)
    empty, older, other = (tmp_path / name for name in (f"{PREFIX}empty", f"{PREFIX}older", "r.draft-y"))
    for folder in (empty, older, other):
        folder.mkdir()
    (older / "spill").touch()  # without a lock: nobody knows whose it is
    sweep_folders(PREFIX, tmp_path)
    assert not dead.exists()
    assert not empty.exists()
    assert all(folder.exists() for folder in (living.path, older, other))
    living.let_go()
    sweep_folders(PREFIX, tmp_path)
    assert not living.path.exists()


def test_what_must_come_first_and_fails_leaves_the_folder(tmp_path: Path) -> None:
    dead = of_the_dead(tmp_path)

    def fail(folder: Path) -> None:
        assert folder == dead
        raise PermissionError

    sweep_folders(PREFIX, tmp_path, fail)
    assert (dead / "data").exists()


def test_what_a_stranger_has_put_there_is_not_followed(tmp_path: Path) -> None:
    """Beside a release of somebody else's may lie links that lead to what is one's own."""
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in (LOCK, "data"):
        (precious / name).write_text("mine")
    (tmp_path / f"{PREFIX}linked").symlink_to(precious)
    trap = of_the_dead(tmp_path, "trap")
    (trap / LOCK).unlink()
    (trap / LOCK).symlink_to(precious / LOCK)
    inner = of_the_dead(tmp_path, "inner")
    (inner / "link").symlink_to(precious)
    sweep_folders(PREFIX, tmp_path)
    assert not inner.exists()
    assert trap.exists()
    assert {path.read_text() for path in precious.iterdir()} == {"mine"}


def test_folders_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = of_the_dead(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: dead.stat().st_uid + 1)
        sweep_folders(PREFIX, tmp_path)
    assert dead.exists()
    sweep_folders(PREFIX, tmp_path / "nowhere")


def test_one_that_is_swept_before_it_is_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = system.locked
    swept: list[Path] = []

    def late(descriptor: int, *, alone: bool) -> bool:
        if not swept:
            swept.extend(tmp_path.iterdir())
            monkeypatch.setattr(system, "locked", locked)
            sweep_folders(PREFIX, tmp_path)
        return locked(descriptor, alone=alone)

    monkeypatch.setattr(system, "locked", late)
    made = Folder(PREFIX, tmp_path)
    assert list(tmp_path.iterdir()) == [made.path]
    assert made.path != swept[0]
    made.remove()


def test_temporary_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = of_the_dead(tmp_path)
    dead = dead.rename(tmp_path / f"{ROOM}dead")
    with temporary_folder() as folder:
        assert folder.parent == tmp_path
        assert not dead.exists()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(files, "_taken", lambda *_: None)
    with pytest.raises(EngineError, match="no temporary folder"), temporary_folder():
        pass
    assert list(tmp_path.iterdir()) == []
