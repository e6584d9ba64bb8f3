"""``verify``: a release alone, against its source, and beside other releases of the same subjects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsql import markup
from privsql._version import __version__
from privsql.attacks import adversaries
from privsql.calls import as_path, as_paths
from privsql.engine.progress import running
from privsql.engine.sqlfiles import temp
from privsql.errors import UsageError
from privsql.mechanisms.contract import Groups, Kept, Together
from privsql.mechanisms.registry import of
from privsql.model.manifest import Check, run
from privsql.releases.contents import LEFTOVERS, look_closer, stated_tables, stored
from privsql.releases.draft import digest
from privsql.releases.ledger.book import known_values, open_for_reading, subjects_query
from privsql.releases.ledger.keeping import needed
from privsql.releases.opened import RELEASE, refuse_target, seen, together, write_copy
from privsql.releases.statements import APART, examine, same_choice, told
from privsql.source.keywords import spec_from_manifest as sourced
from privsql.source.places import parted
from privsql.verbs.session import beside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.calls import PathLike
    from privsql.engine.database import Container, Relations
    from privsql.engine.progress import Options, Running
    from privsql.model.manifest import Manifest, Result
    from privsql.releases.statements import Told
    from privsql.source.keywords import Given
    from privsql.source.spec import Spec


UNCHECKED = (
    "which record of each person is published was not checked, since the key that chose is not at hand (--key-file, or "
    "the ledger), nor what follows from that; persons were matched to what is published"
)


@dataclass(frozen=True)
class Verified:
    """The outcome of ``verify``; ``notes`` are no violations but should be known.

    ``told``: what the release's tables tell, facts and bounds, if every check holds; ``copy``: the copy that was
    written of it.
    """

    checks: list[Result]
    notes: list[str]
    manifest: Manifest
    told: Told | None = None
    copy: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        """The same: ``assert privsql.verify(release)`` must not pass because there is an outcome at all."""
        return self.ok

    def _repr_html_(self) -> str:
        """What a notebook shows: whether it holds, the checks that do not first, and the bounds that were verified."""
        rows = [
            (one.name, "yes" if one.ok else f"NO ({one.violations})", "; ".join((*one.offending, one.compared)))
            for one in sorted(self.checks, key=lambda one: one.ok)
        ]
        failed = sum(not one.ok for one in self.checks)
        title = (
            f"NOT verified: {failed} of {len(rows)} checks do not hold" if failed else f"verified, {len(rows)} checks"
        )
        bounds = self.told.bounds if self.told is not None else ()
        promised = [(one.value, one.bound, one.found) for one in bounds]
        parts = [markup.table(("verified of", "bound", "found"), promised, len(promised))] if promised else []
        notes = [markup.line(f"note: {one}") for one in self.notes]
        return markup.page(title, *parts, markup.table(("check", "holds", ""), rows, len(rows)), *notes)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        checks = [check.as_json() for check in self.checks]
        copy = {"copy": str(self.copy)} if self.copy is not None else {}
        return {
            "ok": self.ok,
            "checks": checks,
            "notes": self.notes,
            **copy,
            **(self.told.as_json() if self.told else {}),
        }


def verify(
    release: PathLike,
    source: Given | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    database: PathLike | None = None,
    key_file: PathLike | None = None,
    copy_to: PathLike | None = None,
    **how: Unpack[Running],
) -> Verified:
    """Check a release from its published file, against its source if that is given, and beside other releases.

    ``source``: the specification of the source, or the source itself: a table, or a file of one, whose columns have
    the roles that the release states. ``against`` are other releases of the same subjects: what an adversary who has
    them all can tell, and with a specification what its ledger, or that at ``database``, says of their records.
    ``key_file``: holds the key that chose one record of each person, if the ledger's did not. With ``copy_to`` a
    release whose checks all hold is written there anew, from its tables alone. Raises ``UsageError`` for
    a source of other columns and ``EngineError`` for files that can't be read; checks that do not hold are part of what
    it returns.
    """
    path, others = as_path(release, "release"), as_paths(against, "against")
    ledger = as_path(database, "database") if database is not None else None
    if ledger is not None and (source is None or not others):
        raise UsageError("the ledger is asked of records of several releases: give source and against with it")
    key = as_path(key_file, "key_file") if key_file is not None else None
    target = as_path(copy_to, "copy_to") if copy_to is not None else None
    if target is not None:
        refuse_target(path, target)
    with running(how, verify) as options:
        outcome = _verified(path, source, others, _Keys(ledger, key), options)
        return outcome if target is None else _copied(path, outcome, target)


def _copied(path: Path, outcome: Verified, target: Path) -> Verified:
    """Write a clean copy of a release that is verified."""
    if not outcome.ok:
        return replace(outcome, notes=[*outcome.notes, "no copy is written of a release that is not verified"])
    write_copy(path, outcome.manifest, target)
    return replace(outcome, copy=target)


@dataclass(frozen=True)
class _Keys:
    """Where the publisher's secrets lie, if not where the specification says."""

    ledger: Path | None = None
    file: Path | None = None


def _verified(path: Path, given: Given | None, against: Sequence[Path], keys: _Keys, options: Options) -> Verified:
    found: Told | None = None
    unchecked: list[str] = []
    with seen(path, options=options) as (alone, release):
        manifest, results = release.manifest, list(release.held)
        results += _placed(path, manifest)
        held = all(result.ok for result in results if result.name != LEFTOVERS)  # which hides no table from the rest
        if held:
            results += look_closer(alone, stored(path), stated_tables(manifest), RELEASE)
        spec = sourced(given, manifest) if held and given is not None else None
        if held and given is None:  # against a source all other checks run there, where both are open
            results += examine(alone, manifest, RELEASE)
            found = _told(alone, manifest, results)
    if held and spec is not None:
        with beside(path, spec, manifest, options, key_file=keys.file) as (db, source):
            unchecked = [] if same_choice(manifest, source) else [UNCHECKED]
            results += examine(db, manifest, RELEASE, source=source, spec=spec)
            found = _told(db, manifest, results)
    if against and all(result.ok for result in results):
        results += _together([*against, path], spec, keys.ledger)
    return Verified(
        results, _notes(manifest) + unchecked, manifest, found if all(result.ok for result in results) else None
    )


def _placed(path: Path, manifest: Manifest) -> list[Result]:
    """Whether a release that is a schema says so, and no other does."""
    schema = parted(path)[1]
    if (schema is None) == (manifest.place is None):
        return []
    said, is_ = ("a schema", "a whole file or folder") if schema is None else ("a whole file or folder", "a schema")
    return run(None, [Check("it lies where it says", lambda: [f"it says that it is {said}, and is {is_}"])])


def _told(db: Relations, manifest: Manifest, results: list[Result]) -> Told | None:
    """What the tables of a release that passed its checks tell, compared with what is stated."""
    if not all(result.ok for result in results):
        return None
    found = told(db, manifest, RELEASE)
    results += run(None, [Check("what the tables tell is as stated", lambda: found.differs(manifest))])
    return found


def _together(paths: Sequence[Path], spec: Spec | None, database: Path | None) -> list[Result]:
    """What several releases tell together, and what the ledger of a specification says of their records."""
    names = [other.name for other in paths]
    ledger = needed(spec, database) if spec is not None else None
    with together(paths, [ledger] if ledger is not None else []) as (db, manifests):
        compared = _compared(manifests[0])
        compared.comparable(names, manifests)
        results = run(db, compared.published(db, names, manifests))
        if ledger is not None:
            results += _by_record(db, paths, ledger, manifests[-1])
    return results


def _by_record(db: Container, paths: Sequence[Path], ledger: Path, manifest: Manifest) -> list[Result]:
    """The same by the records that the ledger knows; ``UsageError`` for a release that it does not."""
    with open_for_reading(db, ledger) as book:
        by_digest = {entry.digest: entry for entry in book.entries}
        found = [by_digest.get(digest(path)) for path in paths]
        strange = next((path for path, entry in zip(paths, found, strict=True) if entry is None), None)
        if strange is not None:
            raise UsageError(f"{strange} is not in the ledger {ledger}")
        entries = sorted({entry.number: entry for entry in found if entry}.values(), key=lambda entry: entry.number)
        for entry in entries:
            db.view(f"members_{entry.number}", subjects_query(entry))
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
    notes += [f"it is {APART}"] if manifest.place is not None else []
    notes += adversaries.explain_absence(manifest)
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes
