"""Open an engine's session for a verb: empty, with a source, or with a release and its source."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from privsql.engine.database import Options
from privsql.engine.files import temporary_folder
from privsql.engine.open import open_engine, open_spark
from privsql.errors import UsageError
from privsql.mechanisms.base import BudgetComposition
from privsql.releases.contents import admit_release, locate_release
from privsql.releases.draft import HOLDER
from privsql.releases.ledger.book import path_of
from privsql.releases.ledger.composition import make_choice, repeat_choice
from privsql.releases.ledger.publication import PublicationRequest
from privsql.releases.opened import RELEASE
from privsql.releases.statements import has_same_choice
from privsql.source.records import prepare_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from privsql.engine.database import DetachedWarehouse, EngineSession
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.releases.contents import AttachedRelease
    from privsql.source.spec import Spec
    from privsql.source.targets import Target


@contextmanager
def open_session(options: Options | None = None) -> Iterator[EngineSession]:
    """Yield a session of DuckDB without any data; what does not fit into memory goes to a temporary folder."""
    with temporary_folder() as folder, open_engine(folder, options or Options()) as db:
        yield db


@contextmanager
def open_records(spec: Spec, options: Options) -> Iterator[tuple[EngineSession, Records]]:
    """Yield a session with the records that ``publish`` would take, and these records. No ledger is written."""
    with open_session(options) as db:
        choice = make_choice(db, PublicationRequest(spec, path_of(spec)), publishing=False)
        yield db, prepare_records(db, spec, choice=choice)


@contextmanager
def open_release_with_source(
    target: Target,
    spec: Spec,
    manifest: Manifest,
    options: Options | None = None,
    *,
    key_file: Path | None = None,
    for_ledger: bool = False,
) -> Iterator[tuple[AttachedRelease, Records]]:
    """Yield a release in a session that also holds the records of its source, and these records.

    Queries call the release's database ``release``.

    Args:
        target: The place of the release.
        spec: The specification of the source.
        manifest: The manifest of the release.
        options: How the engine runs.
        key_file: A file with the key of the release; None for the ledger's key.
        for_ledger: Whether to read the ids of the records, too, by which a ledger knows them.

    Raises:
        UsageError: The source has other roles or persons than the release states.
    """
    with open_session(options) as db:
        choice = repeat_choice(db, spec, target, manifest, key_file)
        source = prepare_records(db, spec, choice=choice, for_ledger=for_ledger)
        require_same_roles(manifest, source)
        if manifest.mechanism != spec.mechanism.kind:
            kinds = f"the release is made by {manifest.mechanism}, the specification is for {spec.mechanism.kind}"
            raise UsageError(kinds)
        stored = locate_release(target)
        if stored.database_file is None:
            db.create_database(RELEASE)
        else:
            db.attach(stored.database_file, RELEASE, read_only=True, strange=True)
        if stored.holder_file is not None:
            db.distrust_statistics()
            # The file may hold the source, too, and be attached already.
            if db.attached_name(stored.holder_file) is None:
                db.attach(stored.holder_file, HOLDER, read_only=True)
        release = admit_release(db, stored, RELEASE)
        release.require_intact(target)
        yield release, source


def counts_in_place(spec: Spec) -> bool:
    """Return whether the engine that holds the source also makes the tables of the release."""
    return spec.source.traits.assigns and not isinstance(spec.implementation.composition, BudgetComposition)


@contextmanager
def source_session(spec: Spec, spill: Path, options: Options) -> Iterator[DetachedWarehouse | None]:
    """Yield a session of the source's own engine, if that engine makes the tables of the release; otherwise None.

    The tables of a release that spends a privacy budget are always made in DuckDB, from counts.

    Args:
        spec: The specification.
        spill: A temporary folder in which that engine may store tables.
        options: How the engine runs.
    """
    if not counts_in_place(spec):
        yield None
        return
    with open_spark(spill, options, spec.source.origin) as detached:
        yield detached


def require_same_roles(manifest: Manifest, source: Records) -> None:
    """Check that the source's columns have the roles that the release states.

    Raises:
        UsageError: A role differs; the message names it.
    """
    if manifest.roles != source.roles:
        why = source.roles.explain_difference(manifest.roles)
        raise UsageError(f"the specification's columns are not those of the release: {why}")


def require_same_persons(manifest: Manifest, source: Records) -> None:
    """Check that the source and the release hold the same records of each person.

    Otherwise their counts can't be compared.

    Raises:
        UsageError: They hold different records, or the key that chose them is missing.
    """
    taken = [one.taken if one is not None else None for one in (manifest.persons, source.persons)]
    if taken[0] != taken[1]:
        holds, other = ("the source", "release") if taken[0] is None else ("the release", "source")
        records = "one record" if 1 in taken else "some records"
        raise UsageError(f"{holds} holds {records} of each person, and the {other} does not; see source.persons")
    if not has_same_choice(manifest, source):
        raise UsageError(
            "the key that chose one record of each person is missing; give the release's ledger, or the key "
            "file that it was made with"
        )
