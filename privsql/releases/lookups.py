"""An analyst's own tables beside a release: found by the names that SQL gives them, read when a query names them.

What is attached is somebody else's file as well. It is opened after the lock, its tables are copied under names of
privsql's own into a database of their own, and a view of it is bounded in rows and seconds and can read no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.answers.question import LOOKUPS
from privsql.engine.files import PACKED, kind_of
from privsql.engine.names import fold
from privsql.engine.sqlfiles import all_rows, fill, table
from privsql.errors import EngineError, LateError, PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.engine.database import Locked

ROWS = 10_000_000  # of a lookup
OWN = {"memory", "temp", "system", "release", LOOKUPS}  # databases of the session


@dataclass(frozen=True)
class Known:
    """A table of an attached file: by what it can be called, from the file down, and what reads it."""

    path: Path
    names: tuple[str, str, str]
    rows: exp.Select

    def answers_to(self, names: tuple[str, ...]) -> bool:
        """Whether it is meant: by its own name where it is in schema main, with its schema, its file, or both."""
        file, schema, own = map(fold, self.names)
        called = {(file, schema, own), (schema, own)}
        if schema == "main":
            called |= {(file, own), (own,)}
        return tuple(map(fold, names)) in called

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return ".".join(self.names[1:] if fold(self.names[1]) != "main" else self.names[2:])


class Lookups:
    """The tables of attached files; nothing of them is read before ``find``."""

    def __init__(self, db: Locked, paths: Sequence[Path]) -> None:
        self._db = db
        self._known = [known for number, path in enumerate(paths) for known in self._of(path, f"attached{number}")]
        self._copied: dict[tuple[str, str, str], tuple[str, tuple[str, ...]]] = {}

    def _of(self, path: Path, database: str) -> list[Known]:
        kind = kind_of(path.name) if path.suffix else None
        if kind is not None:
            called = (Path(path.stem) if path.suffix.lower() in PACKED else path).stem
            return [Known(path, (called, "main", called), self._db.scanned([path.resolve()], kind))]
        self._db.attach(path.resolve(), database, read_only=True)
        listed = [(schema, name) for _, schema, name, _ in self._db.listed(database)]
        return [Known(path, (path.stem, *names), all_rows(table(names[1], database, names[0]))) for names in listed]

    def find(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The table in database ``lookups`` that a query names, and its columns.

        ``UsageError`` if there is none or more than one or it has too many rows; ``EngineError`` if it can't be read.
        """
        shown = ".".join(names)
        found = [one for one in self._known if one.answers_to(names)]
        if not found:
            known = ", ".join(one.shown for one in self._known) or "none is attached"
            raise UsageError(f"JOIN: there is no lookup table {shown!r} ({known}); attach it with --attach")
        if len(found) > 1:
            files = ", ".join(str(one.path) for one in found)
            raise UsageError(f"JOIN: {shown!r} is in {files}; write the file's name before it")
        if len(names) == 3 and fold(names[0]) in OWN:
            raise UsageError(f"JOIN: {names[0]!r} can't be a file's name here; rename {found[0].path}")
        one = found[0]
        if one.names not in self._copied:
            self._copied[one.names] = self._copy(one, f"l{len(self._copied)}")
        return self._copied[one.names]

    def _copy(self, one: Known, name: str) -> tuple[str, tuple[str, ...]]:
        bounded = one.rows.copy().limit(ROWS + 1)
        try:
            with self._db.limited():
                self._db.make(name, bounded, into=LOOKUPS)
        except PrivsqlError as error:
            instead = "; store what it yields in a table" if isinstance(error, LateError) else ""
            raise EngineError(f"{one.path}: {one.shown} can't be read: {error}{instead}") from error
        made = table(name, LOOKUPS)
        if self._db.rows(fill("core/size", {"table": made}))[0][0] > ROWS:
            raise UsageError(f"{one.path}: {one.shown} has more than {ROWS:,} rows, too many for a lookup table")
        return name, tuple(field.name for field in self._db.fields(made))


def plain(paths: Sequence[Path]) -> list[Path]:
    """The files that an analyst names; ``EngineError`` for what is no plain file."""
    for path in paths:
        if not path.is_file():
            raise EngineError(f"{path}: no such file")
    return [path.resolve() for path in paths]
