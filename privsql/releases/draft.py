"""Write a release atomically, and tell what lies at its address."""

from __future__ import annotations

import ctypes
import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from privsql.engine import files
from privsql.engine.files import Folder, fold, private
from privsql.engine.open import locked
from privsql.engine.sqlfiles import fill, table
from privsql.errors import EngineError, UsageError
from privsql.source.places import parted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.database import Container

# Draft ----------------------------------------------------------------------------------------------------------------
# A release on disk: its manifest, and the atomic way in which it comes to be.
#
# A draft grows in a private folder beside its target and is renamed into place when all is done, so a crash at any
# moment leaves the old release or none. Drafts of dead processes are swept away by the next one.

OLD = "old"  # where a draft puts the folder that it replaces


class Draft:
    """A private folder beside the target in which a release grows; a context manager that leaves nothing behind."""

    def __init__(self, target: Path, *, replace: bool = True) -> None:
        """Raise ``EngineError`` if the target's folder can't be written; ``replace`` a target that is there or not."""
        self.target, self._replace = target, replace
        sweep(target)
        try:
            self._room = Folder(_prefix(target), target.parent)
        except OSError as error:
            raise EngineError(f"{target.parent}: can't be written: {error.strerror}") from error
        self.folder = self._room.path

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
        """Flush ``made`` to disk and move it to the target; a failure leaves what was there.

        From now on others may read it, as far as the umask lets them. Raises ``UsageError`` if a target that may not be
        replaced has come meanwhile, ``EngineError`` on trouble.
        """
        try:
            for path in [*made.rglob("*"), made]:
                path.chmod(private.spare(0o755 if path.is_dir() else 0o644))
                _flush(path)
            self._move(made)
            _flush(self.target.parent)
        except FileExistsError as error:
            raise UsageError(f"{self.target} exists; give --replace to publish over it") from error
        except OSError as error:
            raise EngineError(f"{self.target}: can't be written: {error.strerror}") from error

    def _move(self, made: Path) -> None:
        if not self._replace:
            if made.is_dir():
                self.target.mkdir()  # fails if there is anything; an empty folder is then replaced
                made.replace(self.target)
            else:
                os.link(made, self.target)
            return
        log = self.target.with_name(f"{self.target.name}.wal")  # of what is replaced; a new release has none
        moved = [(path, self.folder / name) for path, name in ((self.target, OLD), (log, "log")) if path.exists()]
        if not (made.is_dir() or self.target.is_dir()):
            moved = [(path, aside) for path, aside in moved if path == log]  # a file is replaced in one step
        if self.target.exists() and made.is_dir() and _exchanged(made, self.target):
            return  # what was there is in the draft's folder now, and goes with it
        done = []
        try:
            for path, aside in moved:
                path.replace(aside)
                done.append((path, aside))
            made.replace(self.target)
        except OSError:
            for path, aside in done:
                aside.replace(path)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._room.remove()


def _exchanged(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; False where the system (not Linux) or the file system can't."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(swap(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _prefix(target: Path) -> str:
    return f".{target.name.replace(':', '_')}.draft-"  # of a schema, too, where a name may not hold colons


def sweep(target: Path) -> None:
    """Remove drafts whose process is gone. A release that one had put aside comes back."""

    def restore(folder: Path) -> None:
        if (folder / OLD).exists() and not target.exists():
            (folder / OLD).replace(target)

    files.sweep_folders(_prefix(target), target.parent, restore)


@contextmanager
def aside(target: Path) -> Iterator[Path]:
    """A private folder beside a release, for a moment."""
    made = Folder(_prefix(target), target.parent)
    try:
        yield made.path
    finally:
        made.remove()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Identity -------------------------------------------------------------------------------------------------------------
# What lies at the address of a release: whether anything does, and a digest that tells one release from another.

MAIN = "main"  # the schema of a file that is a release
HOLDER = "holder"  # the database as which a file is attached of which a schema is meant


def exists(path: Path) -> bool:
    """Whether anything lies there; ``EngineError`` for a file that is no database."""
    file, schema = parted(path)
    if schema is None or not file.exists():
        return path.exists()
    with locked({HOLDER: file.resolve()}, home=HOLDER) as db:
        known = schema_of(db, HOLDER, schema)
        return known is not None and bool(db.objects(HOLDER, known))


def schema_of(db: Container, database: str, name: str) -> str | None:
    """The schema of an attached database that the engine takes ``name`` for; None if there is none."""
    return next((one for one in [MAIN, *db.schemas(database)] if fold(one) == fold(name)), None)


def digest(made: Path) -> str:
    """SHA-256 of a release: of its file, of the files of its folder in order, or of a schema's tables."""
    file, schema = parted(made)
    if schema is not None:
        with locked({HOLDER: file.resolve()}, home=HOLDER) as db:
            return folded(db, HOLDER, schema_of(db, HOLDER, schema) or schema)
    found = hashlib.sha256()
    for path in sorted(one for one in made.rglob("*.parquet") if one.is_file()) if made.is_dir() else [made]:
        with path.open("rb") as content:
            found.update(hashlib.file_digest(content, "sha256").digest())
    return found.hexdigest()


def folded(db: Container, database: str, schema: str) -> str:
    """SHA-256 of the tables of a schema, by their names, rows in the order in which they are stored."""
    found = hashlib.sha256()
    for name in sorted(name for kind, place, name, _ in db.listed(database) if (kind, place) == ("table", schema)):
        found.update(hashlib.sha256(name.encode()).digest())
        for (part,) in db.rows(fill("duckdb/folded", {"table": table(name, database, schema)})):
            found.update(bytes.fromhex(part))
        found.update(b"\0")
    return found.hexdigest()
