"""The way in for whoever publishes, lists or verifies: the right ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql.engine.open import scratch
from privsql.errors import UsageError
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.noise import system_key
from privsql.releases.ledger import storage
from privsql.releases.ledger.budget import BudgetLedger
from privsql.releases.ledger.groups import GroupLedger
from privsql.releases.ledger.place import default, path_of, reachable
from privsql.releases.ledger.publication import Publication
from privsql.source.names import known_as, listed

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.engine.database import Workshop
    from privsql.mechanisms.contract import Columns
    from privsql.model.records import Records
    from privsql.noise import Key
    from privsql.releases.ledger.wish import Wish
    from privsql.source.spec import Spec

UNKEPT = (
    "published without a ledger: whether these subjects were published before, and what they may add up to, is unknown"
)


@dataclass
class Unkept(Publication):
    """A publication that no ledger knows of."""

    fresh: Key = field(default_factory=system_key, init=False)

    @property
    def key(self) -> Key:
        """The publisher's, or a fresh one."""
        return self.wish.key or self.fresh

    def look(self) -> None:
        """Nothing to compare with."""
        self.said = [UNKEPT]

    def check(self) -> None:
        """The same."""
        self.look()

    def read(self, tables: Columns) -> None:
        """Nothing."""

    def record(self, made: Path, facts: dict[str, Any]) -> None:
        """Nothing."""

    def told(self) -> dict[str, Any]:
        """That there is none."""
        return {"off": True}


def publication(db: Workshop, source: Records, wish: Wish) -> Publication:
    """A publication and what its ledger asks of it."""
    if wish.path is None:
        return Unkept(db, source, wish)
    private = isinstance(of(wish.spec.mechanism.kind).composition, Budget)
    return (BudgetLedger if private else GroupLedger)(db, source, wish)


def ready(db: Workshop, spec: Spec, *, publishing: bool = False) -> Path | None:
    """The ledger of a specification; None without a ledger.

    Raises ``UsageError`` if the releases of the source are written down elsewhere. ``publishing``: from now on it is
    here.
    """
    path = path_of(spec)
    if path is None:
        return None
    storage.settle(path)
    named = spec.ledger is not None and spec.ledger.database is not None
    if not named or reachable():  # who has no state folder names a place
        _one_place(db, path, spec, publishing=publishing)
    return path


def _one_place(db: Workshop, path: Path, spec: Spec, *, publishing: bool) -> None:
    """Releases of one source stand in one ledger; the user's own knows in which, if that is another."""
    user, names = default(), known_as(spec.source)
    with storage.reading(db, user) as book:
        pass
    other = book.place(names)
    here = [entry for entry in book.of_source(names) if not entry.withdrawn or entry.epsilon is not None]
    kept = other if other is not None and other.exists() else user if here else None
    if kept is not None and kept != path:
        raise UsageError(f"releases of {listed(names)} are written down in {kept}; set ledger.database to it")
    if publishing and path not in (user, other):
        with storage.writing(db, user) as book, db.together():
            storage.write(db, book, ("elsewhere", {"source": list(names), "database": str(path)}))


def needed(spec: Spec | None, database: Path | None = None, *, exists: bool = True) -> Path:
    """The ledger at ``database``, or of a specification, or of the user; ``UsageError`` if there is none."""
    path: Path | None = database or default()
    if spec is not None and database is None:
        with scratch() as db:
            path = ready(db, spec)
    elif path is not None:
        storage.settle(path)
    if path is None:
        raise UsageError("there is no ledger: the specification says ledger.off")
    if exists and not path.exists():
        raise UsageError(f"there is no ledger yet; the first release will make {path}")
    return path
