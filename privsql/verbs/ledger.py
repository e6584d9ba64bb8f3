"""``ledger``: what the publisher's ledger holds, which releases never left the house, and what a source may spend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql.calls import as_path, number
from privsql.engine.open import scratch
from privsql.errors import UsageError
from privsql.exact import text
from privsql.releases.identity import digest, exists
from privsql.releases.ledger import storage
from privsql.releases.ledger.book import spent
from privsql.releases.ledger.budget import require_names
from privsql.releases.ledger.keeping import needed
from privsql.source.address import resolved
from privsql.source.given import specified
from privsql.source.names import known_as

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal
    from fractions import Fraction

    from privsql.calls import PathLike
    from privsql.releases.ledger.book import Book, Entry
    from privsql.source.given import Given
    from privsql.source.spec import Spec


@dataclass(frozen=True)
class Listed:
    """A ledger, or what it holds of one source: its releases, oldest first.

    ``spent``: by all differentially private ones together, and ``cap``, the most that they may (None: nothing says);
    both are None where all sources are listed.
    """

    database: Path
    releases: tuple[Entry, ...]
    source: tuple[str, ...] = ()
    spent: Fraction | None = None
    cap: Fraction | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.releases)

    def __len__(self) -> int:
        return len(self.releases)

    def __getitem__(self, number: int) -> Entry:
        return self.releases[number]

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        return {
            "releases": [entry.as_json() for entry in self.releases],
            "database": str(self.database),
            "source": list(self.source),
            "spent": None if self.spent is None else text(self.spent),
            "cap": None if self.cap is None else text(self.cap),
        }


def ledger(spec: Given | None = None, *, database: PathLike | None = None) -> Listed:
    """What the ledger holds of the source of a specification; without one, of all sources.

    ``database``: the ledger, by default that of the specification, or the user's own. Raises ``UsageError`` if there
    is none.
    """
    asked = specified(spec) if spec is not None else None
    path = needed(asked, _place(database))
    with scratch() as db, storage.reading(db, path) as book:
        return _listed(path, book, asked)


def _place(database: PathLike | None) -> Path | None:
    return as_path(database, "database") if database is not None else None


def _listed(path: Path, book: Book, spec: Spec | None) -> Listed:
    if spec is None:
        return Listed(path, book.entries)
    source = known_as(spec.source)
    entries = book.of_source(source)
    return Listed(path, tuple(entries), source, spent(entries), book.cap(source))


def withdraw(release: PathLike | int, *, database: PathLike | None = None) -> Entry:
    """Record that a release, named by its file or its number, never left the house: it frees all but a budget.

    Raises ``UsageError`` if the ledger does not hold it, or has it as withdrawn already.
    """
    path, named = needed(None, _place(database)), str(release if isinstance(release, int) else as_path(release))
    with scratch() as db, storage.writing(db, path) as book:
        found = _found(book, named)
        with db.together():
            storage.write(db, book, ("withdrawn", {"number": found.number, "why": "never left the house"}))
    return found


def _found(book: Book, release: str) -> Entry:
    """The release that is out, by its number, its file, or where it went: the last one there."""
    path = Path(release)
    if exists(path):
        own = digest(path)
        alike = [entry for entry in book.live if entry.digest == own]
        alike = [entry for entry in alike if entry.target == str(resolved(path))] or alike
    elif release.isdecimal():
        alike = [entry for entry in book.live if entry.number == int(release)]
    else:
        alike = [entry for entry in book.live if entry.target == str(resolved(path))]
    if not alike:
        raise UsageError(f"{release} is no release in the ledger that is out; 'privsql ledger' lists them")
    return alike[-1]


def cap(spec: Given, epsilon: Fraction | Decimal | str | float, *, database: PathLike | None = None) -> Listed:
    """Set the most that all differentially private releases of a source may spend together, and record it.

    The only way to raise it: a specification that still asks for less lowers it again. ``database``: as of
    ``ledger``. Raises ``UsageError`` unless it is a positive number, and the source names its records or persons.
    """
    asked, most = specified(spec), number(epsilon, "cap")
    if most <= 0:
        raise UsageError(f"cap: {text(most)} is not above 0")
    require_names(asked)
    path = needed(asked, _place(database), exists=False)
    source = known_as(asked.source)
    with scratch() as db:
        with storage.writing(db, path) as book, db.together():
            told = {"source": list(source), "epsilon": text(most), "by": "publisher"}
            storage.write(db, book, ("cap", told))
        with storage.reading(db, path) as book:
            return _listed(path, book, asked)
