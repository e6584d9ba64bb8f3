"""Hide differences between operating systems (folders, owners, locks, memory), and know the version and the extras.

On systems whose files have no owners and rights, a user's own folders are taken to be private.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from privsql.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path


__version__ = "0.2.0"
OTHERS = 0o077  # the rights of everybody but the owner
OPENED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # do not wait for a pipe or a device when it is opened


FOLDERS = {  # where a system keeps a user's files; other systems follow the XDG standard
    "darwin": {"STATE": "Library/Application Support", "CACHE": "Library/Caches"},
    "win32": {"STATE": "AppData/Local", "CACHE": "AppData/Local"},
}
XDG_FOLDERS = {"STATE": ".local/state", "CACHE": ".cache"}


def user_folder(kind: Literal["STATE", "CACHE"]) -> Path | None:
    """Return privsql's folder for a user's files of this kind; None if the user has no home."""
    from pathlib import Path

    stated = Path(os.environ.get(f"XDG_{kind}_HOME", ""))  # the standard says to ignore a relative path
    try:
        folder = stated if stated.is_absolute() else Path.home() / FOLDERS.get(sys.platform, XDG_FOLDERS)[kind]
    except RuntimeError:
        return None
    return folder / "privsql"


def open_descriptor(path: Path, flags: int) -> int:
    """Open a file and return its descriptor, which no other program inherits.

    Raises:
        OSError: The file can't be opened, or is a link.
    """
    return os.open(path, flags | OPENED, 0o600)


def is_users_file(status: os.stat_result) -> bool:
    """Return True if the current user owns the file, or if the system does not know owners."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def for_others(mode: int) -> int:
    """Return those bits of a file's mode that give other users rights to the file; 0 if only its owner has any.

    Files with secrets must have none. A system without such rights always gives 0.
    """
    return mode & OTHERS if hasattr(os, "geteuid") else 0


def locked(descriptor: int, *, alone: bool) -> bool:
    """Lock an open file without waiting, and return whether that worked; False means another process holds it.

    The lock ends when the descriptor is closed, so it also ends with the process.

    Args:
        descriptor: The descriptor of the open file.
        alone: Whether the lock is exclusive; else other processes can hold it at the same time.

    Raises:
        OSError: The file system has no locks.
    """
    import portalocker

    kind = portalocker.LockFlags.EXCLUSIVE if alone else portalocker.LockFlags.SHARED
    try:
        portalocker.lock(descriptor, kind | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as error:
        raise OSError(*getattr(error.__cause__, "args", (0, str(error)))) from error
    return True


def total_memory() -> int:
    """Return the memory of the machine in bytes."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil

    return int(psutil.virtual_memory().total)


# Extras ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extra:
    """A group of optional packages for one purpose, which ``pip install 'privsql[NAME]'`` installs.

    Attributes:
        name: The name of the group (NAME).
        modules: The modules that must be installed.
        does: The first words of the message about a missing package: which packages serve which purpose.
    """

    name: str
    modules: tuple[str, ...]
    does: str

    @property
    def is_installed(self) -> bool:
        """Return True if all modules are installed; none of them is imported."""
        return all(find_spec(module) is not None for module in self.modules)

    def require_installed(self) -> None:
        """Raise ``EngineError`` if a module is not installed, so that callers find out before long work begins."""
        if not self.is_installed:
            raise self.missing_error()

    def missing_error(self) -> EngineError:
        """Return the error that says which extra to install.

        >>> print(SPARK.missing_error())
        tables in Spark are read by pyspark, which is not installed; run: pip install 'privsql[spark]'
        """
        which = "which is not installed" if len(self.modules) == 1 else "which are not all installed"
        return EngineError(f"{self.does}, {which}; run: pip install 'privsql[{self.name}]'")


NOISE = Extra("dp", ("opendp",), "differentially private noise is drawn by OpenDP")
PICTURES = Extra("plot", ("altair", "vl_convert"), "pictures are drawn by altair and vl-convert")
PAGES = Extra("plot", ("jinja2",), "pages are made by Jinja2")
SERVING = Extra("serve", ("jinja2", "starlette", "uvicorn"), "the page is served by Jinja2, starlette and uvicorn")
SPARK = Extra("spark", ("pyspark",), "tables in Spark are read by pyspark")
POSTGRES = Extra("postgres", ("adbc_driver_postgresql",), "a Postgres server is read through its ADBC driver")
