"""Write a release atomically, and find out whether its target is occupied."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.engine import files
from privsql.engine.files import Folder, private
from privsql.engine.open import open_locked
from privsql.engine.sqlfiles import FLOATS, alias_as, all_rows, column, injective_text, table
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from privsql.engine.database import Container, Relations
    from privsql.source.targets import Target

# Draft ----------------------------------------------------------------------------------------------------------------
# Write a release in a private folder beside its target, and rename it into place at the end.
#
# A crash at any moment leaves the old release or none. The next process removes drafts of dead processes.

OLD = "old"  # the name to which a draft moves a folder that it replaces


class Draft:
    """A release in the making, in a private folder beside its target, which is the place where it will lie.

    It is a context manager; on exit it removes everything that was not committed.
    """

    def __init__(self, target: Target, *, replace: bool = True) -> None:
        """Prepare a draft; the folder is made on entry.

        Args:
            target: Where the release will lie.
            replace: Whether the release may replace what lies at the target.

        Raises:
            EngineError: The folder of the target can't be written.
        """
        self.target, self._path, self._replace = target, target.path, replace
        sweep_drafts(target)
        parent = _draft_folder(target)
        try:
            self._room = Folder(_draft_prefix(target), parent)
        except OSError as error:
            is_long = error.errno == errno.ENAMETOOLONG
            instead = "choose a shorter name" if is_long else "create the folder, or choose another"
            why = f"can't be written: {error.strerror}; {instead}"
            raise EngineError(f"{parent}: {why}") from error
        self.folder = self._room.path

    @property
    def database_file(self) -> Path:
        """Return the database file that becomes the release."""
        return self.folder / "release.duckdb"

    @property
    def parquet_folder(self) -> Path:
        """Return the folder that becomes the release. It is made on first use."""
        path = self.folder / "release"
        path.mkdir(exist_ok=True)
        return path

    @property
    def spill_folder(self) -> Path:
        """Return the folder for the engine's temporary data that does not fit into memory."""
        return self.folder / "spill"

    def commit(self, content: Path) -> None:
        """Flush ``content`` to disk and move it to the target; a failure leaves in place what lies there.

        After the move, others may read the release as far as the umask allows.

        Raises:
            UsageError: Meanwhile something has appeared at the target that may not be replaced.
            EngineError: The target can't be written.
        """
        try:
            for path in [*content.rglob("*"), content]:
                path.chmod(private.spare_rights(0o755 if path.is_dir() else 0o644))
                _flush_path(path)
            self._move_into_place(content)
            _flush_path(self._path.parent)
        except FileExistsError as error:
            raise UsageError(f"{self.target} exists; option replace publishes over it") from error
        except OSError as error:
            raise EngineError(f"{self.target}: can't be written: {error.strerror}") from error

    def _move_into_place(self, content: Path) -> None:
        if not self._replace:
            if content.is_dir():
                self._path.mkdir()  # fails if anything is there; the empty folder is replaced in the next step
                content.replace(self._path)
            else:
                os.link(content, self._path)
            return
        log = self._path.with_name(f"{self._path.name}.wal")  # of what is replaced; a new release has none
        moved = [(path, self.folder / name) for path, name in ((self._path, OLD), (log, "log")) if path.exists()]
        if not (content.is_dir() or self._path.is_dir()):
            moved = [(path, aside) for path, aside in moved if path == log]  # a file is replaced in one step
        if self._path.exists() and content.is_dir() and _swap_paths(content, self._path):
            return  # what was there is in the draft's folder now, and goes with it
        done = []
        try:
            for path, aside in moved:
                path.replace(aside)
                done.append((path, aside))
            content.replace(self._path)
        except OSError:
            for path, aside in done:
                aside.replace(path)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._room.remove()


def _swap_paths(one: Path, other: Path) -> bool:
    """Exchange what lies at two paths in one atomic step.

    Returns:
        Whether it was done. If the operating system (other than Linux) or the file system can't do it, nothing changes.
    """
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of Linux
    return bool(swap(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _draft_prefix(target: Target) -> str:
    return f".{target.path.name.replace(':', '_')}.draft-"  # of a schema, too, where a name may not hold colons


def _draft_folder(target: Target) -> Path:
    """Return the folder in which drafts of a target are made.

    It is the folder of the target, or that of temporary files if the target is no file.
    """
    return Path(tempfile.gettempdir()) if target.has_no_file else target.path.parent


def sweep_drafts(target: Target) -> None:
    """Remove drafts that ended processes left beside a target, and put back a release that one of them moved aside."""
    path = target.path

    def restore(folder: Path) -> None:
        if (folder / OLD).exists() and not path.exists():
            (folder / OLD).replace(path)

    files.sweep_folders(_draft_prefix(target), _draft_folder(target), restore)


def private_folder(target: Target) -> Folder:
    """Return a context manager that creates and removes a private folder beside a release."""
    return Folder(_draft_prefix(target), target.file.parent)


def _flush_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Identity -------------------------------------------------------------------------------------------------------------
# Check whether a target is occupied, and compute the digest that identifies the tables of a release.

MAIN = "main"  # the schema of a file that is a release
COUNTED = "release"  # the database name in an engine that counts a release where it lies
HOLDER = "holder"  # the name under which a file is attached to read one of its schemas
BATCH = 2**18  # rows that are hashed at a time
LENGTH = 16  # bytes of a table's hash


def is_occupied(target: Target) -> bool:
    """Return whether anything lies at a target, the place where a release is to lie.

    Raises:
        EngineError: The target is a schema of a file that is not a database.
    """
    if target.opened is not None and target.schema is not None:
        with target.sink.open_for_writing() as (db, database):
            known = db.find_schema(database, target.schema)
            return known is not None and bool(db.list_objects(database, known))
    if target.schema is None or not target.file.exists():
        return target.path.exists()
    with open_locked({HOLDER: target.file.resolve()}, home=HOLDER) as db:
        known = db.find_schema(HOLDER, target.schema)
        return known is not None and bool(db.list_objects(HOLDER, known))


def digest_tables(
    db: Relations, tables: Iterable[str], database: str, schema: str | None = None, *, ordered: bool = True
) -> str:
    """Return the SHA-256 of several tables together, including their names.

    Args:
        db: The engine that has the tables.
        tables: Their names.
        database: The database that holds them.
        schema: Their schema; None for the default one.
        ordered: Whether the order of the stored rows counts. If not, the digest is the same on every engine; columns of
            doubles are then left out, because engines print doubles differently.
    """
    digest = digest_table if ordered else _sum_rows
    digests = {name: digest(db, table(name, database, schema)) for name in sorted(tables)}
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def digest_schema(db: Container, database: str, schema: str) -> str:
    """Return the SHA-256 of all tables of a schema together: of their names, and of their rows in stored order."""
    listed = [name for kind, place, name, _ in db.list_relations(database) if (kind, place) == ("table", schema)]
    return digest_tables(db, listed, database, schema)


def _sum_rows(db: Relations, rows: exp.Table) -> str:
    """Return a text "rows:sum" by which a table is recognized whatever the order of its rows.

    It has the number of rows and the sum of their hashes. Columns of doubles are left out,
    because engines print doubles differently.
    """
    exact = [one for one in db.list_fields(rows) if one.type not in FLOATS]
    hashed = db.hashed([injective_text(column(one.name), one.type) for one in exact])
    hashes = exp.select(alias_as(exp.cast(hashed, "HUGEINT"), "h")).from_(rows).subquery("hashes")
    counted = exp.select(exp.Count(this=exp.Star()), exp.Sum(this=column("h"))).from_(hashes)
    return ":".join(map(str, db.rows(counted)[0]))


def digest_table(db: Relations, rows: exp.Table | exp.Subquery) -> str:
    """Return a text with the number of rows of a table and the BLAKE2b hash of its rows, in their order.

    The digest does not depend on how the engine divides the rows into batches. Each column is a set of byte streams,
    such as the lengths of its texts, and each stream is hashed separately.
    """
    number, streams = 0, dict[tuple[int, ...], Any]()
    with db.stream_batches(all_rows(rows), BATCH) as batches:
        for batch in filter(len, batches):
            number += len(batch)
            for place, content in enumerate_streams(batch.columns):
                streams.setdefault(place, hashlib.blake2b(digest_size=LENGTH)).update(content)
    whole = hashlib.blake2b(digest_size=LENGTH, person=b"privsql-content")
    for place, stream in sorted(streams.items()):
        whole.update(f"{place} {stream.hexdigest()}\n".encode())
    return f"{number}:{whole.hexdigest()}"


def enumerate_streams(
    columns: Iterable[pa.Array], inside: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], bytes | memoryview | np.ndarray[Any, Any]]]:
    """Yield (place, bytes) for every byte stream of some columns, for ``digest_table`` to hash.

    The streams of a column are the NULL flags, then the lengths of texts or lists, then the values. If rows come in
    several arrays, the bytes of a stream in all of them, put together, are the same as in a single array. This holds
    for every memory layout of the arrays.

    Args:
        columns: The columns, as Arrow arrays.
        inside: The place of the list column whose items the columns are; empty for columns of the table.

    Yields:
        ``place`` is the position of the column, and of the stream in it, which is the same for all arrays.
    """
    for number, values in enumerate(columns):
        place, kind = (*inside, number), values.type
        nulls = values.null_count  # the functions of pyarrow for NULLs take long to import
        yield (*place, 0), np.asarray(values.is_null()).view(np.uint8) if nulls else bytes(len(values))
        values = values.drop_null() if nulls else values
        first, last = values.offset, values.offset + len(values)
        buffers = [memoryview(one) if one is not None else memoryview(b"") for one in values.buffers()]
        if pa.types.is_list(kind) or pa.types.is_string(kind):
            ends = np.frombuffer(buffers[1], np.int32)[first : last + 1] if len(values) else np.zeros(1, np.int32)
            yield (*place, 1), np.diff(ends)
            if pa.types.is_list(kind):
                yield from enumerate_streams([values.flatten()], (*place, 2))
            else:
                yield (*place, 2), buffers[2][ends[0] : ends[-1]]
        elif pa.types.is_boolean(kind):
            yield (*place, 2), np.asarray(values).view(np.uint8)
        elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
            width = kind.bit_width // 8
            yield (*place, 2), buffers[1][first * width : last * width]
        else:
            raise TypeError(f"no release holds values of type {kind}")
