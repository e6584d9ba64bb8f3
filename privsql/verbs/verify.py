"""Check a release by itself, against its source, and together with other releases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsql.calls import as_optional_path
from privsql.engine.database import READING, Options, options_from
from privsql.engine.sqlfiles import temp_table
from privsql.errors import EngineError, UsageError
from privsql.exact import readable_text
from privsql.mechanisms.base import BudgetComposition, GroupComposition, LedgerRelease
from privsql.model.checks import Check, run_checks
from privsql.model.explanations import explain_absence
from privsql.outcomes import Outcome, Part, Table, pairs
from privsql.releases.contents import LEFTOVERS, check_statistics, digest_release, locate_release
from privsql.releases.opened import attach_release, open_releases, refuse_target, write_copy
from privsql.releases.statements import SCHEMA_NOTE, describe_manifest, examine_release, has_same_choice, measure_facts
from privsql.source.targets import Target, as_target, as_targets
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.calls import PathLike
    from privsql.engine.database import Reporter, RunKeywords
    from privsql.model.checks import CheckResult, VerifiedBound
    from privsql.model.manifest import Manifest
    from privsql.releases.contents import AttachedRelease
    from privsql.releases.statements import MeasuredFacts
    from privsql.source.keywords import SpecLike
    from privsql.source.spec import Spec

UNCHECKED = (
    "the key that chose one record of each person is missing (in a key file, or the ledger), so the choice was not "
    "checked; persons were matched to the published records"
)


UNPROVED = "not proved that the source gives this release, since it can't be published again"

MOST_BOUNDS = 8  # most bounds that are shown to people


@dataclass(frozen=True)
class Verified(Outcome):
    """The outcome of ``verify``; it is true if every check holds.

    Attributes:
        checks: The results of the checks.
        notes: What a reader should know although it violates nothing.
        manifest: The manifest of the release.
        recomputed: The facts that the manifest states and the bounds on beliefs, computed again from the release's
            tables; None unless every check holds.
        copy: The copy of the release that was written; None if there is none.
        release: Where the release is.
        proved: Whether the source and the key gave the same tables again. None without a source, and for a
            differentially private release, whose noise is drawn afresh.
    """

    json_keys = ("ok", "proved?", "checks", "notes", "words=manifest.words", "copy?", "recomputed*", "manifest")

    checks: list[CheckResult]
    notes: list[str]
    manifest: Manifest
    recomputed: MeasuredFacts | None = None
    copy: Path | None = None
    release: str = ""
    proved: bool | None = None

    @property
    def ok(self) -> bool:
        """Return whether every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def bounds(self) -> list[VerifiedBound]:
        """Return the verified bounds on an attacker's belief; empty if a check does not hold."""
        return self.recomputed.bounds if self.recomputed is not None else []

    def __bool__(self) -> bool:
        """Return whether every check holds, so that ``assert privsql.verify(release)`` works."""
        return self.ok

    @property
    def title(self) -> str:
        """Return the title that a notebook shows above the outcome."""
        failed = sum(not one.ok for one in self.checks)
        number = len(self.checks)
        return f"NOT verified: {failed} of {number} checks do not hold" if failed else f"verified, {number} checks"

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: the summary and failed checks; with ``verbose`` also all checks, facts and bounds."""
        if self.recomputed is not None:
            yield from self.recomputed.summary.show()
        listed = [
            (
                one.name,
                "yes" if one.ok else f"NO ({one.violations})",
                "\n".join(filter(None, (*one.offending, one.compared))),
            )
            for one in sorted(self.checks, key=lambda one: one.ok)
            if verbose or not one.ok
        ]
        if listed:
            yield Table(("check", "holds", "details"), listed)
        if self.recomputed is not None and verbose:
            yield pairs(describe_manifest(self.manifest))
            bounds = [(one.value, one.bound, readable_text(one.found)) for one in self.bounds]
            yield Table(("verified of", "bound", "found"), bounds, (1, 2), most=MOST_BOUNDS)
        words = "; ".join(f"{name} {text!r}" for name, text in self.manifest.words.items())
        yield f"the publisher's own words: {words}"
        others = self.recomputed.summary.lines["others"].text if self.recomputed is not None else ""
        yield from (f"note: {note}" for note in self.notes if note not in others)
        held = sum(check.ok for check in self.checks)
        if self.proved:
            yield "proved: its source and its key give the same tables again"
        counted = f"{held} of {len(self.checks)} checks hold{'' if verbose else ' (--verbose lists them)'}"
        yield f"{self.release}: {'verified' if self.ok else 'NOT verified'}; {counted}"
        if self.copy is not None:
            yield f"wrote {self.copy}: a copy from its tables alone"


def verify(
    release: PathLike,
    source: SpecLike | None = None,
    *,
    against: Sequence[PathLike] | PathLike = (),
    ledger: PathLike | None = None,
    key_file: PathLike | None = None,
    copy_to: PathLike | None = None,
    **how: Unpack[RunKeywords],
) -> Verified:
    """Check a release by itself, and also against its source and other releases if these are given.

    A check that fails raises no error; it is part of the result.

    Args:
        release: The release.
        source: The specification of the source; or the source itself, as a table or its file, whose columns have the
            roles that the release states.
        against: Other releases of the same people. It is checked what an adversary can tell who has all of them. With a
            specification as ``source``, this is also checked for each record that its ledger has followed.
        ledger: The file of the ledger; None for that of the specification.
        key_file: The file with the key of the release. With it, or if the ledger knows the release, the release is made
            again, and ``proved`` says whether its tables are the same.
        copy_to: The path for a copy made from the release's tables alone. It is written if every check holds.
        **how: How the engine runs (``RunKeywords``).

    Raises:
        UsageError: The source has other columns.
        EngineError: A file can't be read.
    """
    connection = how.get("connection")
    target, others = as_target(release, connection), as_targets(against, "against", connection)
    ledger_file = as_optional_path(ledger, "ledger")
    if ledger_file is not None and source is None:
        raise UsageError("the ledger knows the records of releases; give option source as well")
    key = as_optional_path(key_file, "key_file")
    to = as_optional_path(copy_to, "copy_to")
    if to is not None:
        refuse_target(target, to)
    with options_from(how, verify) as options:
        outcome, attached, spec = _check_release(target, source, key, ledger_file, options, connection)
        if others and outcome.ok:
            options.report.start_step("Comparing with other releases")
            together = _check_together([*others, target], spec, ledger_file)
            outcome = replace(outcome, checks=[*outcome.checks, *together])
    if to is not None and not outcome.ok:
        notes = [*outcome.notes, "no copy is written of a release that is not verified"]
        return replace(outcome, notes=notes, recomputed=None)
    if to is not None:
        write_copy(target, attached, to)
    return replace(outcome, copy=to, recomputed=outcome.recomputed if outcome.ok else None)


def _check_release(
    target: Target,
    source_input: SpecLike | None,
    key_file: Path | None,
    ledger: Path | None,
    options: Options,
    connection: object | None = None,
) -> tuple[Verified, AttachedRelease, Spec | None]:
    """Check a release alone, or against its source in a session that has both.

    Args:
        target: The place of the release.
        source_input: The specification of the source, or the source itself, as a table or its file. None checks the
            release alone.
        key_file: The file with the key of the release; None for the ledger's key.
        ledger: The file of the ledger; None for that of the specification.
        options: How the engine runs.
        connection: An open connection that may hold the source; None for none.

    Returns:
        The outcome; the release; and the specification of the source, or None without a source.
    """
    recomputed: MeasuredFacts | None = None
    spec: Spec | None = None
    unchecked: list[str] = []
    unread: list[str] = []
    proved: bool | None = None
    in_place, report = source_input is None and _can_check_in_place(target), options.report
    report.start_step("Opening the release")
    with attach_release(target, options=options, in_place=in_place) as (_, release):
        manifest = release.manifest
        results = [*release.checks, *_check_place(target, manifest)]
        # Leftovers do not hinder the other checks.
        held = all(result.ok for result in results if result.name != LEFTOVERS)
        if held and not in_place:
            results += check_statistics(release, locate_release(target))
        if held and source_input is None:
            results += examine_release(release, report=report)
            recomputed = _recompute_facts(release, results, report)
    if held and source_input is not None:
        from privsql.releases.ledger.repeat import find_record, prove_release
        from privsql.source.keywords import spec_from_manifest
        from privsql.verbs.sessions import open_release_with_source

        spec = spec_from_manifest(source_input, manifest, connection)
        report.start_step(READING)
        try:
            record = find_record(spec, target, ledger)
        except EngineError as error:  # a reviewer may have the source without the ledger
            if ledger is not None:
                raise
            record, unread = None, [f"the ledger can't be read: {error}"]
        with open_release_with_source(
            target, spec, manifest, options, key_file=key_file, for_ledger=record is not None
        ) as (with_source, source):
            unchecked = unread + ([] if has_same_choice(manifest, source) else [UNCHECKED])
            results += examine_release(with_source, source=source, spec=spec, report=report)
            recomputed = _recompute_facts(with_source, results, report)
            report.start_step("Publishing again")
            proof = prove_release(with_source, source, spec, record, key_file)
            unchecked += [f"{UNPROVED}: {proof.unproved}"] if proof.unproved else []
            compared = run_checks(None, [] if proof.check is None else [proof.check])
            results += compared
            if proof.check is not None or proof.unproved:
                proved = proof.proves and compared[0].ok
    limits = [f"{one.name}: {one.limit}" for one in results if one.limit]
    notes = _list_notes(manifest) + unchecked + limits
    return Verified(results, notes, manifest, recomputed, release=str(target), proved=proved), release, spec


def _can_check_in_place(target: Target) -> bool:
    """Return whether the engine that holds the release can also check it, without copying its rows.

    A release that spends a privacy budget is small, so it is always copied.
    """
    if target.catalog is None:
        return False
    with attach_release(replace(target, opened=target.catalog.without_rows())) as (_, release):
        return not isinstance(release.mechanism.composition, BudgetComposition)


def _check_place(target: Target, manifest: Manifest) -> list[CheckResult]:
    """Check that a release is stored as its manifest states: as a file of its own, a folder, or a schema of a database.

    The result is empty if it is.
    """
    stated = "a schema" if manifest.place is not None else "a folder" if manifest.files else "a whole file"
    is_ = "a schema" if target.is_schema else "a folder" if target.path.is_dir() else "a whole file"
    if stated == is_:
        return []
    return run_checks(None, [Check("it is of the kind that it states", lambda: [f"it states {stated}, and is {is_}"])])


def _recompute_facts(release: AttachedRelease, results: list[CheckResult], report: Reporter) -> MeasuredFacts | None:
    """Compute the facts of a release from its tables, and append a check to ``results`` that they equal the stated
    ones.

    Returns:
        The computed facts; None if a check in ``results`` has failed.
    """
    if not all(result.ok for result in results):
        return None
    report.start_step("Recomputing what it states")
    measured = measure_facts(release)
    compared = Check("stated facts follow from the tables", lambda: measured.list_differences(release.manifest))
    results += run_checks(None, [compared])
    return measured


def _check_together(targets: Sequence[Target], spec: Spec | None, database: Path | None) -> list[CheckResult]:
    """Check what several releases of the same people reveal together.

    Args:
        targets: The places of the releases.
        spec: The specification of their source. With it, the records that its ledger knows are checked, too. None for
            none.
        database: The file of the ledger; None for that of the specification.
    """
    from privsql.releases.ledger.composition import require_ledger

    names = [one.path.name for one in targets]
    ledger = require_ledger(spec, database) if spec is not None else None
    with open_releases(targets, [ledger] if ledger is not None else []) as (db, releases):
        manifests, rule = [one.manifest for one in releases], _comparison_rule(releases[0])
        rule.comparable(names, manifests)
        results = run_checks(db, rule.published(db, names, manifests))
        if ledger is not None:
            results += _check_by_record(targets, ledger, releases[-1])
    return results


def _check_by_record(targets: Sequence[Target], ledger: Path, last: AttachedRelease) -> list[CheckResult]:
    """Check what several releases reveal together about each record that a ledger knows.

    Args:
        targets: The places of the releases.
        ledger: The file of the ledger.
        last: The last of these releases, already open; its session runs the checks.

    Raises:
        UsageError: The ledger does not know one of the releases.
    """
    from privsql.releases.ledger.book import SUBJECTS, known_values, open_for_reading, rows_of

    db, manifest = last.db, last.manifest
    with open_for_reading(db, ledger) as book:
        by_digest = {entry.digest: entry for entry in book.entries}
        listed = [by_digest.get(digest_release(target)) for target in targets]
        strange = next((target for target, entry in zip(targets, listed, strict=True) if entry is None), None)
        if strange is not None:
            raise UsageError(f"{strange} is not in the ledger {ledger}")
        entries = sorted({entry.number: entry for entry in listed if entry}.values(), key=lambda entry: entry.number)
        for entry in entries:
            db.create_view(f"members_{entry.number}", rows_of(entry, SUBJECTS))
        members = [LedgerRelease(entry.number, temp_table(f"members_{entry.number}")) for entry in entries]
        known = known_values(entries, manifest.sensitive[0].type)
        return run_checks(db, _comparison_rule(last).by_record(db, members, known, manifest))


def _comparison_rule(release: AttachedRelease) -> GroupComposition[Any]:
    """Return the rules that say what several releases of this mechanism guarantee together, and how that is checked.

    Raises:
        UsageError: No guarantee covers several releases of this mechanism.
    """
    composition = release.mechanism.composition
    if not isinstance(composition, GroupComposition):
        raise UsageError(f"against: no guarantee covers several releases made by {release.mechanism.kind}")
    return composition


def _list_notes(manifest: Manifest) -> list[str]:
    notes = []
    if manifest.randomness == "seed":
        notes.append("made with a seed, for tests only: anyone who knows or guesses it can undo the assignment")
    notes += manifest.together
    notes += [f"it is {SCHEMA_NOTE}"] if manifest.place is not None else []
    notes += explain_absence(manifest)
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes
