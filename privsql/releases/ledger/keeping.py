"""Open the right ledger for the verbs that publish, list or verify, and choose keys by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql.engine.files import fold
from privsql.engine.open import scratch
from privsql.engine.sqlfiles import fill
from privsql.errors import EngineError, UsageError
from privsql.keyed_random import key_file, system_key
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.releases.draft import digest
from privsql.releases.ledger.book import (
    SUBJECTS,
    among,
    default,
    key_of,
    open_for_reading,
    open_for_writing,
    path_of,
    reachable,
    replay_wal,
    secret,
    write_events,
)
from privsql.releases.ledger.composition import BudgetLedger, GroupLedger
from privsql.releases.ledger.publication import Publication
from privsql.source.records import known_as, listed
from privsql.source.table import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from privsql.engine.database import Workshop
    from privsql.keyed_random import Key
    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Book, Entry
    from privsql.releases.ledger.publication import Wish
    from privsql.source.spec import Spec

# Keeping --------------------------------------------------------------------------------------------------------------
# The way in for whoever publishes, lists or verifies: the right ledger.

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
    replay_wal(path)
    named = spec.ledger is not None and spec.ledger.database is not None
    if not named or reachable():  # who has no state folder names a place
        _one_place(db, path, spec, publishing=publishing)
    return path


def _one_place(db: Workshop, path: Path, spec: Spec, *, publishing: bool) -> None:
    """Releases of one source stand in one ledger; the user's own knows in which, if that is another."""
    user, names = default(), known_as(spec.source)
    with open_for_reading(db, user) as book:
        pass
    other = book.place(names)
    here = [entry for entry in book.of_source(names) if not entry.withdrawn or entry.epsilon is not None]
    kept = other if other is not None and other.exists() else user if here else None
    if kept is not None and kept != path:
        raise UsageError(f"releases of {listed(names)} are written down in {kept}; set ledger.database to it")
    if publishing and path not in (user, other):
        with open_for_writing(db, user) as book, db.together():
            write_events(db, book, ("elsewhere", {"source": list(names), "database": str(path)}))


def needed(spec: Spec | None, database: Path | None = None, *, exists: bool = True) -> Path:
    """The ledger at ``database``, or of a specification, or of the user; ``UsageError`` if there is none."""
    path: Path | None = database or default()
    if spec is not None and database is None:
        with scratch() as db:
            path = ready(db, spec)
    elif path is not None:
        replay_wal(path)
    if path is None:
        raise UsageError("there is no ledger: the specification says ledger.off")
    if exists and not path.exists():
        raise UsageError(f"there is no ledger yet; the first release will make {path}")
    return path


# Choosing -------------------------------------------------------------------------------------------------------------
# The key that chooses one record of each person: the publisher's own, else one that follows from the ledger's secret.
#
# It follows neither from the records nor from the request, so that every release of the same people shows the same
# record of each. Records that an earlier release in the ledger holds are chosen again as long as they are there.


def chosen_for(db: Workshop, wish: Wish, *, publishing: bool) -> Choice | None:
    """Return how a publication chooses; None unless it publishes one record of each person.

    The ledger's secret is made only in ``publishing``; a plan before the first release chooses by a fresh key.
    """
    spec, path = wish.spec, wish.path
    if spec.source.persons != "one":
        return None
    key = wish.key
    if key is None and path is not None and (publishing or key_of(path).exists()):
        key = secret(path)
    return Choice.by(key or system_key(), spec.name, _earlier(db, spec, path, None))


def chosen_again(db: Workshop, spec: Spec, release: Path | None, manifest: Manifest, own: Path | None) -> Choice | None:
    """Return how a release has chosen, if a key at hand is the one: that of a key file, or else of the ledger.

    Else a choice by another key, whose reference is not what the manifest states. None where none was made.
    """
    if spec.source.persons != "one":
        return None
    path = path_of(spec)
    keys = [existing(own)] if own is not None else []
    keys += [secret(path)] if path is not None and key_of(path).exists() else []
    stated = manifest.persons.choice if manifest.persons is not None else None
    key = next((one for one in keys if Choice.by(one, manifest.name).reference == stated), None)
    if key is None:
        return Choice.by(system_key(), manifest.name)
    return Choice.by(key, manifest.name, _earlier(db, spec, path, release))


def existing(path: Path) -> Key:
    """Return the key in a file; ``EngineError`` if there is none: who reads a release makes no key."""
    if not path.exists():
        raise EngineError(f"key file {path}: No such file or directory")
    return key_file(path)


def _earlier(db: Workshop, spec: Spec, path: Path | None, release: Path | None) -> pa.Table | None:
    """Return (id, trace) of the records that releases of the source hold, those before ``release`` if that is given.

    Withdrawn releases count, so that what was chosen can be found again from the same ledger later.
    """
    if path is None or spec.source.id is None:
        return None
    with open_for_reading(db, path) as book:
        entries = _before(book, spec, release)
        if not entries:
            return None
        return db.arrow(fill("ledger/chosen", {"subjects": SUBJECTS, "among": among(entries)}))


def _before(book: Book, spec: Spec, release: Path | None) -> Sequence[Entry]:
    """Return the releases of a source with the same ids and persons, up to one that is among them."""
    named, person = fold(spec.source.id or ""), fold(spec.source.person or "")
    own = [one for one in book.of_source(known_as(spec.source)) if one.subject == named and one.person == person]
    if release is None:
        return own
    found = digest(release)
    numbers = [one.number for one in own if one.digest == found]
    return [one for one in own if numbers and one.number < numbers[-1]]
