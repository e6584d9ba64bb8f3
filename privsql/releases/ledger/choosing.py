"""The key that chooses one record of each person: the publisher's own, else one that follows from the ledger's secret.

It follows neither from the records nor from the request, so that every release of the same people shows the same record
of each. Records that an earlier release in the ledger holds are chosen again as long as they are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.names import fold
from privsql.engine.sqlfiles import fill
from privsql.errors import EngineError
from privsql.noise import key_file, system_key
from privsql.releases.identity import digest
from privsql.releases.ledger.place import key_of, path_of, secret
from privsql.releases.ledger.storage import SUBJECTS, among, reading
from privsql.source.names import known_as
from privsql.source.persons import Choice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from privsql.engine.database import Workshop
    from privsql.model.manifest import Manifest
    from privsql.noise import Key
    from privsql.releases.ledger.book import Book, Entry
    from privsql.releases.ledger.wish import Wish
    from privsql.source.spec import Spec


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
    with reading(db, path) as book:
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
