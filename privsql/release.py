"""A release on disk: its manifest, and the atomic way in which it comes to be.

A draft grows in a private folder beside its target and is renamed into place when all is done, so a crash at any
moment leaves the old release or none. Drafts of dead processes are swept away by the next one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privsql.errors import EngineError, UsageError
from privsql.noise import Origin
from privsql.roles import Field as Column
from privsql.roles import Roles

if TYPE_CHECKING:
    from collections.abc import Iterable

MANIFEST = "privsql_manifest"


class Manifest(BaseModel):
    """What a release says of itself. Nothing in it is secret: no key, no raw value that is not published."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    privsql: str
    duckdb: str
    name: str = Field(min_length=1)
    mechanism: Literal["bucketize"]
    algorithm: str
    parameters: dict[str, Any]
    quasi_identifiers: list[Column]
    sensitive: list[Column]
    nulls: dict[str, str]
    records: int = Field(ge=0)
    published: int = Field(ge=1)
    suppressed: int = Field(ge=0)
    randomness: Origin
    facts: dict[str, Any]
    sql: dict[str, str]

    @property
    def roles(self) -> Roles:
        """The published columns."""
        return Roles(tuple(self.quasi_identifiers), tuple(self.sensitive))

    def as_table(self) -> pa.Table:
        """(key, value): one row per entry, values as JSON."""
        entries = self.model_dump(mode="json")
        return pa.table({"key": list(entries), "value": [json.dumps(value) for value in entries.values()]})

    @staticmethod
    def of_rows(rows: Iterable[tuple[Any, ...]]) -> Manifest:
        """The manifest from its table; ``UsageError`` if it is not one."""
        try:
            entries = [(key, json.loads(value)) for key, value in rows]
            if len(dict(entries)) < len(entries):
                raise ValueError("an entry stands twice")
            found = Manifest.model_validate(dict(entries))
            if not all(column.is_scalar for column in (*found.quasi_identifiers, *found.sensitive)):
                raise ValueError("a column has no type that is published")
        except (ValidationError, ValueError, TypeError, RecursionError) as error:
            raise UsageError("its manifest is damaged or of another version of privsql") from error
        return found


class Draft:
    """A private folder beside the target in which a release grows; a context manager that leaves nothing behind."""

    def __init__(self, target: Path) -> None:
        """Raise ``EngineError`` if the target's folder can't be written."""
        self.target = target
        _sweep(target)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
            self._lock = _locked(self.folder)
        except OSError as error:
            raise EngineError(f"{target.parent}: can't be written: {error.strerror}") from error

    @property
    def database(self) -> Path:
        """The database file that becomes the release."""
        return self.folder / "release.duckdb"

    @property
    def parquet(self) -> Path:
        """The folder that becomes the release, made on first use."""
        path = self.folder / "release"
        path.mkdir(exist_ok=True)
        return path

    @property
    def spill(self) -> Path:
        """Where the engine may spill."""
        return self.folder / "spill"

    def commit(self, made: Path) -> None:
        """Flush ``made`` to disk and rename it to the target."""
        for path in [made, *made.glob("*")]:
            _flush(path)
        self.target.with_name(f"{self.target.name}.wal").unlink(missing_ok=True)  # the log of what is replaced
        if self.target.exists() and (made.is_dir() or self.target.is_dir()):
            self.target.replace(self.folder / "old")
        made.replace(self.target)
        _flush(self.target.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def _prefix(target: Path) -> str:
    return f".{target.name}.draft-"


def _sweep(target: Path) -> None:
    """Remove drafts whose process is gone: nobody holds their lock."""
    for folder in target.parent.glob(f"{_prefix(target)}*"):
        try:
            lock = _locked(folder)
        except OSError:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _locked(folder: Path) -> IO[str]:
    file = (folder / "lock").open("w", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
