"""``verify``: a release alone, against its source, and beside other releases of the same subjects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql._version import __version__
from privsql.attacks import absence
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import Groups, Kept, Together
from privsql.mechanisms.registry import of
from privsql.model.checks import Check, run
from privsql.releases.contents import examine
from privsql.releases.ledger.keeping import needed
from privsql.releases.ledger.storage import known_values, reading, subjects
from privsql.releases.ledger.wish import digest
from privsql.releases.opened import RELEASE, seen, together
from privsql.releases.statements import told
from privsql.verbs.room import beside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from privsql.engine.database import Container, Relations
    from privsql.engine.progress import Options
    from privsql.model.checks import Result
    from privsql.model.manifest import Manifest
    from privsql.releases.statements import Told
    from privsql.source.spec import Spec


@dataclass(frozen=True)
class Verified:
    """The outcome of ``verify``; ``notes`` are no violations but should be known.

    ``told``: what the release's tables tell, facts and bounds, if every check holds.
    """

    checks: list[Result]
    notes: list[str]
    manifest: Manifest
    told: Told | None = None

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        checks = [check.as_json() for check in self.checks]
        return {"ok": self.ok, "checks": checks, "notes": self.notes, **(self.told.as_json() if self.told else {})}


def verify(
    path: Path, spec: Spec | None = None, *, against: Sequence[Path] = (), options: Options | None = None
) -> Verified:
    """Check a release from its published file, against its source if ``spec`` is given, and beside other releases.

    ``against`` are other releases of the same subjects: what an adversary who has them all can tell, and with ``spec``
    what its ledger says of their records.
    """
    found: Told | None = None
    with seen(path, options=options) as (alone, release):
        manifest, results = release.manifest, list(release.held)
        held = all(result.ok for result in results)
        if held and spec is None:  # against a source all other checks run there, where both are open
            results += examine(alone, manifest, RELEASE)
            found = _told(alone, manifest, results)
    if held and spec is not None:
        with beside(path, spec, manifest, options) as (db, source):
            results += examine(db, manifest, RELEASE, source=source, spec=spec)
            found = _told(db, manifest, results)
    if against and all(result.ok for result in results):
        results += _together([*against, path], spec)
    return Verified(results, _notes(manifest), manifest, found if all(result.ok for result in results) else None)


def _told(db: Relations, manifest: Manifest, results: list[Result]) -> Told | None:
    """What the tables of a release that passed its checks tell, compared with what is stated."""
    if not all(result.ok for result in results):
        return None
    found = told(db, manifest, RELEASE)
    results += run(None, [Check("what the tables tell is as stated", lambda: found.differs(manifest))])
    return found


def _together(paths: Sequence[Path], spec: Spec | None) -> list[Result]:
    """What several releases tell together, and what the ledger of a specification says of their records."""
    names = [other.name for other in paths]
    ledger = needed(spec) if spec is not None else None
    with together(paths, [ledger] if ledger is not None else []) as (db, manifests):
        compared = _compared(manifests[0])
        compared.comparable(names, manifests)
        results = run(db, compared.published(db, names, manifests))
        if ledger is not None:
            results += _by_record(db, paths, ledger, manifests[-1])
    return results


def _by_record(db: Container, paths: Sequence[Path], ledger: Path, manifest: Manifest) -> list[Result]:
    """The same by the records that the ledger knows; ``UsageError`` for a release that it does not."""
    with reading(db, ledger) as book:
        by_digest = {entry.digest: entry for entry in book.entries}
        found = [by_digest.get(digest(path)) for path in paths]
        strange = next((path for path, entry in zip(paths, found, strict=True) if entry is None), None)
        if strange is not None:
            raise UsageError(f"{strange} is not in the ledger {ledger}")
        entries = sorted({entry.number: entry for entry in found if entry}.values(), key=lambda entry: entry.number)
        for entry in entries:
            db.view(f"members_{entry.number}", subjects(entry))
        kept = [Kept(entry.number, temp(f"members_{entry.number}")) for entry in entries]
        known = known_values(entries, manifest.sensitive[0].type)
        return run(db, _compared(manifest).by_record(db, kept, known, manifest))


def _compared(manifest: Manifest) -> Together:
    """How a release is compared with others; ``UsageError`` where no guarantee covers several."""
    composition = of(manifest.mechanism).composition
    if not isinstance(composition, Groups):
        raise UsageError(f"--against: nothing is promised of several releases that are made by {manifest.mechanism}")
    return composition.together


def _notes(manifest: Manifest) -> list[str]:
    notes = []
    if manifest.randomness == "seed":
        notes.append("made with a seed: whoever knows or guesses it can undo the assignment; for tests only")
    notes += manifest.composition
    notes += absence.told(manifest)
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes
