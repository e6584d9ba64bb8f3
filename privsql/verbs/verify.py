"""``verify``: a release alone, against its source, and beside other releases of the same subjects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsql import markup
from privsql._version import __version__
from privsql.attacks import adversaries
from privsql.calls import as_path, as_paths
from privsql.engine.progress import options_from
from privsql.engine.sqlfiles import temp_table
from privsql.errors import UsageError
from privsql.mechanisms.contract import CrossReleaseChecks, GroupComposition, LedgerRelease
from privsql.mechanisms.registry import get_mechanism
from privsql.model.manifest import Check, run_checks
from privsql.releases.contents import LEFTOVERS, check_statistics, list_stated_tables, locate_release
from privsql.releases.draft import digest_release
from privsql.releases.ledger.book import known_values, open_for_reading, subjects_query
from privsql.releases.ledger.keeping import require_ledger
from privsql.releases.opened import RELEASE, attach_release, open_releases, refuse_target, write_copy
from privsql.releases.statements import SCHEMA_NOTE, examine_release, has_same_choice, measure_facts
from privsql.source.keywords import spec_from_manifest as sourced
from privsql.source.places import split_address
from privsql.verbs.session import open_release_with_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.calls import PathLike
    from privsql.engine.database import Container, Relations
    from privsql.engine.progress import Options, RunKeywords
    from privsql.model.manifest import CheckResult, Manifest
    from privsql.releases.statements import MeasuredFacts
    from privsql.source.keywords import SpecLike
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

    checks: list[CheckResult]
    notes: list[str]
    manifest: Manifest
    recomputed: MeasuredFacts | None = None
    copy: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def __bool__(self) -> bool:
        """The same: ``assert privsql.verify(release)`` must not pass because there is an outcome at all."""
        return self.ok

    def _repr_html_(self) -> str:
        rows = [
            (one.name, "yes" if one.ok else f"NO ({one.violations})", "; ".join((*one.offending, one.compared)))
            for one in sorted(self.checks, key=lambda one: one.ok)
        ]
        failed = sum(not one.ok for one in self.checks)
        title = (
            f"NOT verified: {failed} of {len(rows)} checks do not hold" if failed else f"verified, {len(rows)} checks"
        )
        bounds = self.recomputed.bounds if self.recomputed is not None else ()
        promised = [(one.value, one.bound, one.found) for one in bounds]
        tables = (
            markup.html_table(("verified of", "bound", "found"), promised),
            markup.html_table(("check", "holds", ""), rows),
        )
        return markup.html_page(title, *tables, *(f"note: {one}" for one in self.notes))

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        checks = [check.as_json() for check in self.checks]
        copy = {"copy": str(self.copy)} if self.copy is not None else {}
        return {
            "ok": self.ok,
            "checks": checks,
            "notes": self.notes,
            **copy,
            **(self.recomputed.as_json() if self.recomputed else {}),
        }


def verify(
    release: PathLike,
    source: SpecLike | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    database: PathLike | None = None,
    key_file: PathLike | None = None,
    copy_to: PathLike | None = None,
    **how: Unpack[RunKeywords],
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
    with options_from(how, verify) as options:
        outcome = _check_release(path, source, others, _Keys(ledger, key), options)
        return outcome if target is None else _copy_release(path, outcome, target)


def _copy_release(path: Path, outcome: Verified, target: Path) -> Verified:
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


def _check_release(
    path: Path, source_input: SpecLike | None, against: Sequence[Path], keys: _Keys, options: Options
) -> Verified:
    recomputed: MeasuredFacts | None = None
    unchecked: list[str] = []
    with attach_release(path, options=options) as (alone, release):
        manifest, results = release.manifest, list(release.checks)
        results += _check_place(path, manifest)
        held = all(result.ok for result in results if result.name != LEFTOVERS)  # which hides no table from the rest
        if held:
            results += check_statistics(alone, locate_release(path), list_stated_tables(manifest), RELEASE)
        spec = sourced(source_input, manifest) if held and source_input is not None else None
        if held and source_input is None:  # against a source all other checks run there, where both are open
            results += examine_release(alone, manifest, RELEASE)
            recomputed = _recompute_facts(alone, manifest, results)
    if held and spec is not None:
        with open_release_with_source(path, spec, manifest, options, key_file=keys.file) as (db, source):
            unchecked = [] if has_same_choice(manifest, source) else [UNCHECKED]
            results += examine_release(db, manifest, RELEASE, source=source, spec=spec)
            recomputed = _recompute_facts(db, manifest, results)
    if against and all(result.ok for result in results):
        results += _check_together([*against, path], spec, keys.ledger)
    return Verified(
        results,
        _list_notes(manifest) + unchecked,
        manifest,
        recomputed if all(result.ok for result in results) else None,
    )


def _check_place(path: Path, manifest: Manifest) -> list[CheckResult]:
    """Whether a release that is a schema says so, and no other does."""
    schema = split_address(path)[1]
    if (schema is None) == (manifest.place is None):
        return []
    stated, is_ = ("a schema", "a whole file or folder") if schema is None else ("a whole file or folder", "a schema")
    return run_checks(None, [Check("it lies where it says", lambda: [f"it says that it is {stated}, and is {is_}"])])


def _recompute_facts(db: Relations, manifest: Manifest, results: list[CheckResult]) -> MeasuredFacts | None:
    """What the tables of a release that passed its checks tell, compared with what is stated."""
    if not all(result.ok for result in results):
        return None
    recomputed = measure_facts(db, manifest, RELEASE)
    results += run_checks(
        None, [Check("what the tables tell is as stated", lambda: recomputed.list_differences(manifest))]
    )
    return recomputed


def _check_together(paths: Sequence[Path], spec: Spec | None, database: Path | None) -> list[CheckResult]:
    """What several releases tell together, and what the ledger of a specification says of their records."""
    names = [other.name for other in paths]
    ledger = require_ledger(spec, database) if spec is not None else None
    with open_releases(paths, [ledger] if ledger is not None else []) as (db, manifests):
        compared = _comparison_rule(manifests[0])
        compared.comparable(names, manifests)
        results = run_checks(db, compared.published(db, names, manifests))
        if ledger is not None:
            results += _check_by_record(db, paths, ledger, manifests[-1])
    return results


def _check_by_record(db: Container, paths: Sequence[Path], ledger: Path, manifest: Manifest) -> list[CheckResult]:
    """The same by the records that the ledger knows; ``UsageError`` for a release that it does not."""
    with open_for_reading(db, ledger) as book:
        by_digest = {entry.digest: entry for entry in book.entries}
        listed = [by_digest.get(digest_release(path)) for path in paths]
        strange = next((path for path, entry in zip(paths, listed, strict=True) if entry is None), None)
        if strange is not None:
            raise UsageError(f"{strange} is not in the ledger {ledger}")
        entries = sorted({entry.number: entry for entry in listed if entry}.values(), key=lambda entry: entry.number)
        for entry in entries:
            db.create_view(f"members_{entry.number}", subjects_query(entry))
        members = [LedgerRelease(entry.number, temp_table(f"members_{entry.number}")) for entry in entries]
        known = known_values(entries, manifest.sensitive[0].type)
        return run_checks(db, _comparison_rule(manifest).by_record(db, members, known, manifest))


def _comparison_rule(manifest: Manifest) -> CrossReleaseChecks:
    """How a release is compared with others; ``UsageError`` where no guarantee covers several."""
    composition = get_mechanism(manifest.mechanism).composition
    if not isinstance(composition, GroupComposition):
        raise UsageError(f"--against: nothing is promised of several releases that are made by {manifest.mechanism}")
    return composition.together


def _list_notes(manifest: Manifest) -> list[str]:
    notes = []
    if manifest.randomness == "seed":
        notes.append("made with a seed: whoever knows or guesses it can undo the assignment; for tests only")
    notes += manifest.composition
    notes += [f"it is {SCHEMA_NOTE}"] if manifest.place is not None else []
    notes += adversaries.explain_absence(manifest)
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes
