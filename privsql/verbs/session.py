"""Open an engine for a verb, with its source, or with a release and its source."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from privsql.engine.files import temporary
from privsql.engine.open import spark, workshop
from privsql.engine.progress import Options
from privsql.errors import UsageError
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.releases.contents import admitted, stored
from privsql.releases.draft import HOLDER
from privsql.releases.ledger.keeping import chosen_again
from privsql.releases.opened import RELEASE, Seen
from privsql.releases.statements import same_choice
from privsql.source.records import prepared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.database import Warehouse, Workshop
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.source.spec import Spec


@contextmanager
def workroom(options: Options | None = None) -> Iterator[Workshop]:
    """An empty engine for the time of a verb, with a folder to spill to."""
    with temporary() as folder, workshop_in(folder, options or Options()) as db:
        yield db


@contextmanager
def beside(
    path: Path, spec: Spec, manifest: Manifest, options: Options | None = None, *, key_file: Path | None = None
) -> Iterator[tuple[Workshop, Records]]:
    """A release, its tables in database ``release``, beside the sorted records of its source.

    ``key_file``: holds the key that it was made with, if that is not the ledger's. Raises ``UsageError`` if the
    specification is not for such a release.
    """
    with workroom(options) as db:
        source = prepared(db, spec, choice=chosen_again(db, spec, path, manifest, key_file))
        same_roles(manifest, source)
        same_mechanism(manifest, spec)
        source.sort()
        attach(db, path)
        yield db, source


def workshop_in(spill: Path, options: Options) -> Workshop:
    return workshop(spill, options)


@contextmanager
def source_in(spec: Spec, db: Workshop, spill: Path, options: Options) -> Iterator[Warehouse]:
    """Where a source is counted and dealt: beside its release, or where it lies.

    What composes by budget is published from counts of what was brought here.
    """
    if spec.source.kind != "spark" or isinstance(of(spec.mechanism.kind).composition, Budget):
        yield db
        return
    with spark(spill, options, remote=spec.source.origin.address) as there:
        yield there


def same_roles(manifest: Manifest, source: Records) -> None:
    if manifest.roles != source.roles:
        why = source.roles.unlike(manifest.roles)
        raise UsageError(f"the specification's columns are not those of the release: {why}")


def same_persons(manifest: Manifest, source: Records) -> None:
    """``UsageError`` unless both hold the same record of each person, or neither is reduced: else counts differ."""
    rules = [one.rule if one is not None else None for one in (manifest.persons, source.persons)]
    if (rules[0] == "one") != (rules[1] == "one"):
        holds, other = ("the release", "source") if rules[0] == "one" else ("the source", "release")
        raise UsageError(f"{holds} holds one record of each person, and the {other} does not; see source.persons")
    if not same_choice(manifest, source):
        raise UsageError(
            "the key that chose one record of each person is not at hand; give the ledger of the release, or the key "
            "file that it was made with"
        )


def same_mechanism(manifest: Manifest, spec: Spec) -> None:
    if manifest.mechanism != spec.mechanism.kind:
        raise UsageError(f"the release is made by {manifest.mechanism}, the specification is for {spec.mechanism.kind}")


def attach(db: Workshop, path: Path) -> None:
    """Make the tables of a release readable in database ``release`` beside the source, if it holds what it states."""
    found = stored(path)
    db.create(RELEASE) if found.database is None else db.attach(found.database, RELEASE, read_only=True, strange=True)
    if found.holder is not None:
        db.distrust()
        if db.attached(found.holder) is None:  # it may hold the source, too
            db.attach(found.holder, HOLDER, read_only=True)
    Seen(*admitted(db, found, RELEASE)).refuse(path)
