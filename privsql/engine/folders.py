"""Folders for what is not finished: private whatever the umask, and swept once the process that made them is gone.

Each holds a lock for as long as its process lives. What is made for it has mode 0600 from the first byte, by the engine
too, because it is made under a stricter umask; where a user's own files are made meanwhile, the folder's mode must do.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privsql import system
from privsql.errors import EngineError
from privsql.system import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCK = "lock"
ROOM = "privsql-room-"  # what the names of temporary folders begin with
TRIES = 100  # another process may sweep a folder in the moment between its making and its locking


class _Mask:
    """The process's umask, stricter while anybody is inside: threads come and go in any order."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = os.umask(OTHERS)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                os.umask(self._before)

    def spare(self, rights: int) -> int:
        """What of some rights the umask leaves that the process has outside."""
        with self._lock:
            if self._inside:
                return rights & ~self._before
            before = os.umask(OTHERS)
            os.umask(before)
            return rights & ~before


private = _Mask()  # whatever file is made inside, by the engine too, can be read by its owner alone


class Folder:
    """A folder of this process's own; ``path`` is its place."""

    def __init__(self, prefix: str, parent: Path, *, masked: bool = True) -> None:
        """``masked``: as long as it is there, whatever is made is private. ``OSError`` if none can be made there."""
        self._held = ExitStack()
        for _ in range(TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            descriptor = _taken(self.path, os.O_CREAT)
            if descriptor is not None:
                break
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        self._held.callback(os.close, descriptor)
        if masked:
            self._held.enter_context(private)

    def let_go(self) -> None:
        """Leave it to whoever sweeps."""
        self._held.close()

    def remove(self) -> None:
        """Remove it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()
        if self.path.exists():  # there are systems that remove no file that is open, such as the lock
            shutil.rmtree(self.path, ignore_errors=True)


def sweep(prefix: str, parent: Path, first: Callable[[Path], object] = bool) -> None:
    """Remove the folders whose processes are gone; none that is not one's own, and none for which ``first`` fails.

    A folder that somebody else has put there, or a link to one, is not looked into.
    """
    for path in _alike(prefix, parent):
        descriptor = _taken(path)
        if descriptor is None:
            with suppress(OSError):
                path.rmdir()  # its process was gone before it could lock it: nothing is in it
            continue
        try:
            with suppress(OSError):
                first(path)
                shutil.rmtree(path)
        finally:
            os.close(descriptor)


@contextmanager
def temporary(*, masked: bool = True) -> Iterator[Path]:
    """A folder for a while, where the system has its temporary files; ``masked``: as in ``Folder``.

    Raises ``EngineError`` if there is no room for one.
    """
    parent = Path(tempfile.gettempdir())
    sweep(ROOM, parent)
    try:
        made = Folder(ROOM, parent, masked=masked)
    except OSError as error:
        raise EngineError(f"{parent}: no temporary folder can be made: {error.strerror}") from error
    try:
        yield made.path
    finally:
        made.remove()


def _alike(prefix: str, parent: Path) -> list[Path]:
    """Folders of this user's with such names; none where ``parent`` can't be read."""
    found = []
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    if system.is_own(entry.stat(follow_symlinks=False)):
                        found.append(Path(entry.path))
    return found


def _taken(folder: Path, flags: int = 0) -> int | None:
    """The open lock of a folder, held alone; None where another process has it, or has removed the folder."""
    lock = folder / LOCK
    try:
        descriptor = system.opened(lock, os.O_RDWR | flags)
    except OSError:
        return None
    try:
        if system.locked(descriptor, alone=True) and _is(lock, os.fstat(descriptor)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _is(path: Path, seen: os.stat_result) -> bool:
    """Whether an open file is the one that lies at a path by now."""
    there = path.stat(follow_symlinks=False)
    return stat.S_ISREG(seen.st_mode) and (seen.st_dev, seen.st_ino) == (there.st_dev, there.st_ino)
