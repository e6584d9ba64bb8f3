"""Copies of a release that are written from its tables, its view and its manifest alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.open import scratch
from privsql.engine.sqlfiles import temp
from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.registry import of
from privsql.model.manifest import MANIFEST
from privsql.releases.draft import Draft
from privsql.releases.examine import examine
from privsql.releases.identity import MAIN, folded
from privsql.releases.opened import RELEASE, seen
from privsql.releases.stored import ENDING, stored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from privsql.engine.database import Workshop
    from privsql.model.manifest import Manifest
    from privsql.releases.stored import Stored

MADE, COPY = "made", "copy"  # the databases as which a release and its copy are attached


def list_relations(manifest: Manifest) -> list[tuple[str, str]]:
    """Return (kind, name) of what a release holds."""
    tables = [("table", name) for name in (*of(manifest.mechanism).tables(manifest), MANIFEST)]
    return [*tables, ("view", manifest.name)]


def copy_tables(
    db: Workshop, manifest: Manifest, place: tuple[str, str], former: Sequence[tuple[str, str]] = ()
) -> None:
    """Copy a release that is attached as ``MADE`` into ``place``, (database, schema), where ``former`` goes before.

    It happens as a whole or not at all. ``UsageError`` if there is anything else, ``GuaranteeError`` if the copy has
    another digest.
    """
    names = [name for kind, name in list_relations(manifest) if kind == "table"]
    view = (manifest.name, of(manifest.mechanism).view(manifest))
    with db.housed(MADE, place, names, view, former):
        if folded(db, *place) != folded(db, MADE, MAIN):
            raise GuaranteeError("what was copied is not what was checked; nothing written")


def write_afresh(made: Path, manifest: Manifest) -> Path:
    """Return the file of a release without leftovers: itself, or a new one beside it where it has any."""
    with scratch() as db:
        db.attach(made, MADE, read_only=True)
        if not db.leftovers(MADE):
            return made
    copy = made.with_name(f"afresh-{made.name}")
    _write_file(made, manifest, copy)
    return copy


def _write_file(file: Path, manifest: Manifest, to: Path) -> None:
    with scratch() as db:
        db.attach(file, MADE, read_only=True, strange=True)
        db.attach(to, COPY, read_only=False)
        copy_tables(db, manifest, (COPY, MAIN))
        db.detach(COPY)


def _write_folder(found: Stored, to: Path) -> None:
    with scratch() as db:
        db.distrust()
        for name, files in found.files.items():
            db.view(name, db.scanned(files, "parquet"))
            db.export(temp(name), to / f"{name}{ENDING}")


def write_copy(release: Path, manifest: Manifest, to: Path) -> None:
    """Write a copy of a release whose checks hold: a file of a file, a folder of a folder.

    ``UsageError`` for a target that is there already and for a release that is a schema, ``GuaranteeError`` if the copy
    does not pass every check: nothing is written then.
    """
    refuse_target(release, to)
    found = stored(release)
    with Draft(to, replace=False) as draft:
        made = draft.parquet if found.is_folder else draft.database
        if found.is_folder:
            _write_folder(found, made)
        else:
            _write_file(found.place, manifest, made)
        with seen(made) as (db, copy):
            copy.refuse(made)
            failed = next((one for one in examine(db, copy.manifest, RELEASE) if not one.ok), None)
        if failed is not None or copy.manifest != manifest:
            raise GuaranteeError(f"{release}: the copy is not what was checked; nothing written")
        draft.commit(made)


def refuse_target(release: Path, to: Path) -> None:
    """``UsageError`` unless a copy of a release may be written to a path."""
    if stored(release).schema is not None:
        raise UsageError(f"{release} is a schema of a database, of which no copy is made; publish to a file instead")
    if to.exists() or to.is_symlink():
        raise UsageError(f"{to} exists; nothing is copied over it")
    if to.resolve().is_relative_to(release.resolve()):
        raise UsageError(f"{to} lies in the release; choose another place for the copy")
