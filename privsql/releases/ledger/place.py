"""Where a publisher's ledger lies, who may read it, and who has it for the moment.

One file per user, in a folder of mode 0700. It and whatever lies beside it (its write-ahead file, its lock, its key)
have mode 0600 from the first byte, whatever the umask is, because they are made under a stricter one.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from privsql import system
from privsql.engine.open import log_of
from privsql.errors import EngineError
from privsql.noise import key_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.noise import Key
    from privsql.source.spec import Spec

VARIABLE = "PRIVSQL_LEDGER"
NAME = "ledger.duckdb"
STATE = {"darwin": "Library/Application Support", "win32": "AppData/Local"}  # elsewhere that of the XDG standard
PATIENCE = 60.0  # seconds that a process waits for another one to let go
PAUSE = 0.02  # seconds between two tries


def path_of(spec: Spec) -> Path | None:
    """The ledger that a publication is written down in; None where it is switched off."""
    asked = spec.ledger
    if asked is not None and asked.off:
        return None
    return asked.database.resolve() if asked is not None and asked.database is not None else default()


def default() -> Path:
    """The user's own ledger: ``PRIVSQL_LEDGER``, a file or a folder, or in the state folder of the system."""
    given = os.environ.get(VARIABLE)
    if given:
        path = Path(given).expanduser().resolve()
        return path / NAME if path.is_dir() else path
    state = Path(os.environ.get("XDG_STATE_HOME", ""))  # a relative one is to be ignored
    try:
        folder = state if state.is_absolute() else Path.home() / STATE.get(sys.platform, ".local/state")
        return (folder / "privsql" / NAME).resolve()
    except RuntimeError as error:
        raise EngineError(f"there is no home folder for the ledger; set {VARIABLE}, or ledger.database") from error


def key_of(path: Path) -> Path:
    """The file with the secret from which the keys of releases follow."""
    return path.with_suffix(".key")


def secret(path: Path) -> Key:
    """The secret of a ledger, made if there is none. Who makes it may not have the ledger yet."""
    key = key_of(path)
    if key.exists():
        return key_file(key)
    with held(path, alone=True):
        return key_file(key)


def half_made(path: Path) -> list[Path]:
    """What processes have made so far of the secret of a ledger; it is left over, unless one of them has the ledger."""
    beginning = f".{key_of(path).name}."
    return [one for one in path.parent.glob(".*") if one.name.startswith(beginning)]


@contextmanager
def held(path: Path, *, alone: bool) -> Iterator[None]:
    """The ledger for this process: ``alone`` to write, or beside others that read. Waits for those who have it.

    Raises ``EngineError`` after ``PATIENCE``, or where the ledger's folder can't be written.
    """
    descriptor = _lock(path)
    try:
        _wait(descriptor, path, alone=alone)
        _tighten(path)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def reachable() -> bool:
    """Whether there is a place for the user's own ledger, and it can be written to."""
    try:
        os.close(_lock(default()))
    except EngineError:
        return False
    return True


def _lock(path: Path) -> int:
    """The open file beside a ledger that processes lock."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        _folder(path.parent)
        return system.opened(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise EngineError(
            f"ledger {path}: {error.strerror}; set {VARIABLE}, or ledger.database, to a place that can be written"
        ) from error


def _folder(folder: Path) -> None:
    """Make the ledger's folder, for its owner alone; one that is there already stays as it is."""
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def _wait(descriptor: int, path: Path, *, alone: bool) -> None:
    end = time.monotonic() + PATIENCE
    while not system.locked(descriptor, alone=alone):
        if time.monotonic() > end:
            raise EngineError(f"ledger {path}: another process has it; wait for that one to end")
        time.sleep(PAUSE)


def _tighten(path: Path) -> None:
    """Take away the rights of others that an earlier version, or a copy, has left."""
    for file in (path, log_of(path)):
        try:
            mode = file.stat().st_mode
            if system.for_others(mode):
                file.chmod(mode & ~system.OTHERS & 0o777)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise EngineError(f"ledger {file}: {error.strerror}") from error
