"""Open the right ledger for the verbs that publish, list or verify, and choose keys by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql.engine.files import fold_name
from privsql.engine.open import open_scratch
from privsql.engine.sqlfiles import fill
from privsql.errors import EngineError, UsageError
from privsql.keyed_random import key_file, system_key
from privsql.mechanisms.contract import BudgetComposition
from privsql.releases.draft import digest_release
from privsql.releases.ledger.book import (
    SUBJECTS,
    default_path,
    get_secret,
    is_default_writable,
    key_of,
    open_for_reading,
    open_for_writing,
    path_of,
    replay_wal,
    select_releases,
    write_events,
)
from privsql.releases.ledger.composition import BudgetLedger, GroupLedger
from privsql.releases.ledger.publication import Publication
from privsql.source.records import join_names, known_as
from privsql.source.table import PersonChoice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from privsql.engine.database import EngineSession
    from privsql.keyed_random import Key
    from privsql.model.manifest import Manifest
    from privsql.model.parameters import Facts
    from privsql.model.records import Records
    from privsql.releases.ledger.book import Book, LedgerEntry
    from privsql.releases.ledger.publication import PublicationRequest
    from privsql.source.places import Target
    from privsql.source.spec import Spec

# Keeping --------------------------------------------------------------------------------------------------------------
# Find the ledger of a specification for the verbs that publish, list or verify.

NO_LEDGER = (
    "published without a ledger: whether these subjects were published before, and what they may add up to, is unknown"
)


@dataclass
class NoLedger(Publication):
    """A publication that no ledger knows of."""

    fresh: Key = field(default_factory=system_key, init=False)

    @property
    def key(self) -> Key:
        """Return the publisher's key, or a fresh one."""
        return self.request.key or self.fresh

    def compare_earlier(self) -> None:
        """State that there is no ledger."""
        self.statements = [NO_LEDGER]

    def require_covered(self) -> None:
        """State that there is no ledger."""
        self.compare_earlier()

    def record_release(self, path: Path, facts: Facts) -> None:
        """Write nothing down."""

    def as_facts(self) -> dict[str, Any]:
        """Return that there is no ledger."""
        return {"off": True}


def make_publication(db: EngineSession, source: Records, request: PublicationRequest) -> Publication:
    """Return a publication and what its ledger asks of it."""
    if request.path is None:
        return NoLedger(db, source, request)
    private = isinstance(request.spec.implementation.composition, BudgetComposition)
    return (BudgetLedger if private else GroupLedger)(db, source, request)


def prepare_ledger(db: EngineSession, spec: Spec, *, publishing: bool = False) -> Path | None:
    """Return the ledger of a specification; None without a ledger.

    Raises ``UsageError`` if the releases of the source are written down elsewhere. ``publishing``: from now on it is
    here.
    """
    path = path_of(spec)
    if path is None:
        return None
    replay_wal(path)
    named = spec.ledger is not None and spec.ledger.database is not None
    if not named or is_default_writable():  # who has no state folder names a place
        _require_one_place(db, path, spec, publishing=publishing)
    return path


def _require_one_place(db: EngineSession, path: Path, spec: Spec, *, publishing: bool) -> None:
    """Releases of one source stand in one ledger; the user's own knows in which, if that is another."""
    user, names = default_path(), known_as(spec.source)
    with open_for_reading(db, user) as book:
        pass
    other = book.find_other_ledger(names)
    here = [entry for entry in book.list_of_source(names) if not entry.withdrawn or entry.epsilon is not None]
    ledger = other if other is not None and other.exists() else user if here else None
    if ledger is not None and ledger != path:
        raise UsageError(f"releases of {join_names(names)} are written down in {ledger}; set ledger.database to it")
    if publishing and path not in (user, other):
        with open_for_writing(db, user) as book, db.in_transaction():
            write_events(db, book, ("elsewhere", {"source": list(names), "database": str(path)}))


def require_ledger(spec: Spec | None, database: Path | None = None, *, exists: bool = True) -> Path:
    """Return the ledger at ``database``, or of a specification, or of the user; ``UsageError`` if there is none."""
    path: Path | None = database or default_path()
    if spec is not None and database is None:
        with open_scratch() as db:
            path = prepare_ledger(db, spec)
    elif path is not None:
        replay_wal(path)
    if path is None:
        raise UsageError("there is no ledger: the specification says ledger.off")
    if exists and not path.exists():
        raise UsageError(f"there is no ledger yet; the first release will make {path}")
    return path


# Choosing -------------------------------------------------------------------------------------------------------------
# The key that chooses one record of each person: the publisher's, else one derived from the ledger's secret.
#
# It depends neither on the records nor on the request, so that every release of the same people shows the same record
# of each. Records that an earlier release in the ledger holds are chosen again as long as they are there.


def make_choice(
    db: EngineSession, request: PublicationRequest, *, publishing: bool, otherwise: Key | None = None
) -> PersonChoice | None:
    """Return how a publication chooses; None unless it publishes one record of each person.

    The ledger's secret is made only in ``publishing``; a plan before the first release chooses by the key
    ``otherwise``, or a fresh one.
    """
    spec, path = request.spec, request.path
    if spec.source.persons != "one" or request.choice is not None:
        return request.choice
    key = request.key
    if key is None and path is not None and (publishing or key_of(path).exists()):
        key = get_secret(path)
    key = key or otherwise or system_key()
    return PersonChoice.from_key(key, spec.name, _fetch_earlier_records(db, spec, path, None))


def repeat_choice(
    db: EngineSession, spec: Spec, release: Target | None, manifest: Manifest, key_path: Path | None
) -> PersonChoice | None:
    """Return how a release has chosen, if a key at hand is the one: that of a key file, or else of the ledger.

    Else a choice by another key, whose reference is not what the manifest states. None where none was made.
    """
    if spec.source.persons != "one":
        return None
    path = path_of(spec)
    keys = [read_key(key_path)] if key_path is not None else []
    keys += [get_secret(path)] if path is not None and key_of(path).exists() else []
    stated = manifest.persons.choice if manifest.persons is not None else None
    key = next((one for one in keys if PersonChoice.from_key(one, manifest.name).reference == stated), None)
    if key is None:
        return PersonChoice.from_key(system_key(), manifest.name)
    return PersonChoice.from_key(key, manifest.name, _fetch_earlier_records(db, spec, path, release))


def read_key(path: Path) -> Key:
    """Return the key in a file; ``EngineError`` if there is none, since reading a release makes no key."""
    if not path.exists():
        raise EngineError(f"key file {path}: No such file or directory")
    return key_file(path)


def _fetch_earlier_records(db: EngineSession, spec: Spec, path: Path | None, release: Target | None) -> pa.Table | None:
    """Return (id, trace) of the records that releases of the source hold, those before ``release`` if that is given.

    Withdrawn releases count, so that what was chosen can be found again from the same ledger later.
    """
    if path is None or spec.source.id is None:
        return None
    with open_for_reading(db, path) as book:
        entries = _list_earlier_releases(book, spec, release)
        if not entries:
            return None
        return db.arrow(fill("ledger/chosen", {"subjects": SUBJECTS, "among": select_releases(entries)}))


def _list_earlier_releases(book: Book, spec: Spec, release: Target | None) -> Sequence[LedgerEntry]:
    """Return the releases of a source with the same ids and persons, up to one that is among them."""
    named, person = fold_name(spec.source.id or ""), fold_name(spec.source.person or "")
    releases = [
        one
        for one in book.list_of_source(known_as(spec.source))
        if one.subject == named and one.promised_person == person
    ]
    if release is None:
        return releases
    release_digest = digest_release(release)
    numbers = [one.number for one in releases if one.digest == release_digest]
    return [one for one in releases if numbers and one.number < numbers[-1]]
