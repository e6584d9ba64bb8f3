"""A release as it lies on disk: what is there is looked at before anything of it is opened.

A file must be a plain file without a write-ahead file beside it, which attaching would replay. A folder must hold plain
Parquet files and nothing else, or for a table a folder of its parts, in their order: a symbolic link would read
somebody else's file, a pipe would wait for ever. Of a file of which a schema is meant nothing else is read.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from privsql.engine.open import log_of
from privsql.errors import EngineError, GuaranteeError
from privsql.releases.draft import sweep
from privsql.source.address import parted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ENDING = ".parquet"
MOST = 10_000  # entries of a folder that are looked at
BESIDE = ("", ".checkpoint", ".recovery")  # endings of the files that DuckDB writes ahead


@dataclass(frozen=True)
class Stored:
    """A release on disk. ``files``: of a folder, the Parquet files of each table; ``strange``: what else is there."""

    path: Path
    place: Path  # resolved
    is_folder: bool
    files: dict[str, tuple[Path, ...]]
    strange: tuple[str, ...] = ()
    schema: str | None = None  # of the file, if the release is no more of it

    @property
    def database(self) -> Path | None:
        """The file to attach as the release; None for what views show: a folder, or a schema."""
        return None if self.is_folder or self.schema is not None else self.place

    @property
    def holder(self) -> Path | None:
        """The file of which it is a schema, which is attached besides; None for any other."""
        return None if self.schema is None else self.place

    @property
    def readable(self) -> list[Path]:
        """The files of a folder."""
        return [file for parts in self.files.values() for file in parts]


def holders(found: Iterable[Stored]) -> dict[str, Path | None]:
    """The files of which releases are schemas, each once, by the names under which they are attached."""
    files = dict.fromkeys(one.holder for one in found if one.holder is not None)
    return {f"holder{i}": file for i, file in enumerate(files)}


def stored(path: Path) -> Stored:
    """Look at a release; ``EngineError`` if it is none, ``GuaranteeError`` for a file with another one beside it."""
    sweep(path)
    file, schema = parted(path)
    try:
        place = file.resolve()
        mode = place.stat().st_mode
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise EngineError(f"{path}: {'no such release' if missing else error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # no text of a path, or links in a circle
        raise EngineError(f"{str(path)!r} leads nowhere") from error
    if stat.S_ISDIR(mode):
        if schema is not None:
            raise EngineError(f"{file}: is a folder, which has no schemas")
        return _folder(path, place)
    if not stat.S_ISREG(mode):
        raise EngineError(f"{file}: is neither a file nor a folder")
    for ending in BESIDE:
        log = f"{log_of(place)}{ending}"
        if os.path.lexists(log):
            raise GuaranteeError(
                f"{path}: {log} lies beside it and may change what it holds; close the release where it is open"
            )
    return Stored(path, place, is_folder=False, files={}, schema=schema)


def _folder(path: Path, place: Path) -> Stored:
    files: dict[str, tuple[Path, ...]] = {}
    strange: list[str] = []
    for entry in _entries(path, place):
        name = entry.name.removesuffix(ENDING)
        if name == entry.name or entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            strange.append(entry.name)
        elif entry.is_dir():
            parts = _entries(path, place / entry.name)
            strange += [f"{entry.name}/{part.name}" for part in parts if not _is_part(part)]
            files[name] = tuple(place / entry.name / part.name for part in parts if _is_part(part))
        else:
            files[name] = (place / entry.name,)
    return Stored(path, place, is_folder=True, files=files, strange=tuple(sorted(strange)))


def _is_part(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and entry.name.endswith(ENDING)


def _entries(path: Path, place: Path) -> list[os.DirEntry[str]]:
    """What a folder of release ``path`` holds, by name; ``EngineError`` if that is too much, or can't be read."""
    try:
        with os.scandir(place) as entries:
            found = list(islice(entries, MOST + 1))
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    if len(found) > MOST:
        raise EngineError(f"{path}: holds more than {MOST:,} files")
    return sorted(found, key=lambda entry: entry.name)
