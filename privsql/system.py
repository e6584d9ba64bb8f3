"""The version, differences of operating systems (folders, owners of files, locks, memory), and extras.

Files have owners and rights where the system knows of any; elsewhere a user's own folders are taken to be private.
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
AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # a pipe or a device is not waited for when it is opened


FOLDERS = {  # of a user's files on a system, elsewhere those of the XDG standard
    "darwin": {"STATE": "Library/Application Support", "CACHE": "Library/Caches"},
    "win32": {"STATE": "AppData/Local", "CACHE": "AppData/Local"},
}
XDG_FOLDERS = {"STATE": ".local/state", "CACHE": ".cache"}


def user_folder(kind: Literal["STATE", "CACHE"]) -> Path | None:
    """Return privsql's folder for a user's files of this kind; None if the user has no home."""
    from pathlib import Path

    stated = Path(os.environ.get(f"XDG_{kind}_HOME", ""))  # a relative one is to be ignored
    try:
        folder = stated if stated.is_absolute() else Path.home() / FOLDERS.get(sys.platform, XDG_FOLDERS)[kind]
    except RuntimeError:
        return None
    return folder / "privsql"


def open_descriptor(path: Path, flags: int) -> int:
    """Return the descriptor of a file that is no link, and that no other program inherits. Raises ``OSError``."""
    return os.open(path, flags | OPENED, 0o600)


def is_users_file(status: os.stat_result) -> bool:
    """Return True for a file of this user, or where the system does not know owners of files."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def for_others(mode: int) -> int:
    """Return the rights of other users in a file's mode; none on a system whose modes do not tell."""
    return mode & OTHERS if hasattr(os, "geteuid") else 0


def locked(descriptor: int, *, alone: bool) -> bool:
    """Lock an open file, ``alone`` or beside others, without waiting; False if another process has it.

    The lock ends with the descriptor, and so with the process, however that ends. Raises ``OSError`` where the file's
    system has no locks.
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
    """Bytes of the machine's memory."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    import psutil

    return int(psutil.virtual_memory().total)


# Extras ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extra:
    """The packages of ``pip install 'privsql[name]'`` that one purpose needs.

    Attributes:
        name: The name of the extra.
        modules: The modules that must be installed.
        does: The beginning of the message about a missing one: the purpose, and what serves it.
    """

    name: str
    modules: tuple[str, ...]
    does: str

    @property
    def is_installed(self) -> bool:
        """Return True if all of them are installed; import nothing."""
        return all(find_spec(module) is not None for module in self.modules)

    def require_installed(self) -> None:
        """Raise ``EngineError`` where one is missing; called before long work begins."""
        if not self.is_installed:
            raise self.missing_error()

    def missing_error(self) -> EngineError:
        """Return the error where it is missing.

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
