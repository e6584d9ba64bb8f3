"""``verify``: a release alone, against its source, and beside others; ``test``: its answers against expected ones."""

from __future__ import annotations

import difflib
import math
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from privsql import markup
from privsql.attacks import adversaries
from privsql.calls import as_optional_path, as_paths
from privsql.engine.database import Options, options_from
from privsql.engine.files import temporary_folder
from privsql.engine.open import open_engine, open_spark
from privsql.engine.sqlfiles import temp_table
from privsql.errors import EngineError, UsageError
from privsql.mechanisms.base import BudgetComposition, GroupComposition, LedgerRelease
from privsql.model.manifest import Check, run_checks
from privsql.releases.contents import LEFTOVERS, admit_release, check_statistics, digest_release, locate_release
from privsql.releases.draft import HOLDER
from privsql.releases.ledger.book import SUBJECTS, known_values, open_for_reading, path_of, rows_of
from privsql.releases.ledger.composition import make_choice, repeat_choice, require_ledger
from privsql.releases.ledger.publication import PublicationRequest
from privsql.releases.opened import RELEASE, Release, attach_release, open_releases, refuse_target, write_copy
from privsql.releases.statements import SCHEMA_NOTE, examine_release, has_same_choice, measure_facts
from privsql.source.keywords import spec_from_manifest
from privsql.source.records import prepare_records
from privsql.source.targets import Target, as_target, as_targets
from privsql.system import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.answers.answer import Answer
    from privsql.calls import PathLike
    from privsql.engine.database import EngineSession, RunKeywords, Warehouse
    from privsql.model.manifest import CheckResult, Manifest, VerifiedBound
    from privsql.model.records import Records
    from privsql.releases.contents import AttachedRelease
    from privsql.releases.statements import MeasuredFacts
    from privsql.source.keywords import SpecLike
    from privsql.source.spec import Spec

# Sessions -------------------------------------------------------------------------------------------------------------
# Open an engine for a verb, with its source, or with a release and its source.


@contextmanager
def open_session(options: Options | None = None) -> Iterator[EngineSession]:
    """Open an empty engine for the time of a verb, with a folder to spill to."""
    with temporary_folder() as folder, open_engine(folder, options or Options()) as db:
        yield db


@contextmanager
def open_records(spec: Spec, options: Options) -> Iterator[tuple[EngineSession, Records]]:
    """Open an engine with the records that ``publish`` would take, for a verb that no ledger writes down."""
    with open_session(options) as db:
        choice = make_choice(db, PublicationRequest(spec, path_of(spec)), publishing=False)
        yield db, prepare_records(db, spec, choice=choice)


@contextmanager
def open_release_with_source(
    target: Target, spec: Spec, manifest: Manifest, options: Options | None = None, *, key_file: Path | None = None
) -> Iterator[tuple[AttachedRelease, Records]]:
    """Open a release in database ``release`` beside the records of its source.

    ``key_file``: holds the key that the release was made with, if that is not the ledger's. Raises ``UsageError`` if
    the specification is not for such a release.
    """
    with open_session(options) as db:
        source = prepare_records(db, spec, choice=repeat_choice(db, spec, target, manifest, key_file))
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
            if db.attached_name(stored.holder_file) is None:  # it may hold the source, too
                db.attach(stored.holder_file, HOLDER, read_only=True)
        release = admit_release(db, stored, RELEASE)
        release.require_intact(target)
        yield release, source


def counts_in_place(spec: Spec) -> bool:
    """Return whether the engine of a source makes the tables of the release."""
    return spec.source.traits.assigns and not isinstance(spec.implementation.composition, BudgetComposition)


@contextmanager
def source_session(spec: Spec, db: EngineSession, spill: Path, options: Options) -> Iterator[Warehouse]:
    """Open the engine that counts a source and assigns its records: that of the release, or the source's own.

    A release that composes by budget is published from counts in the engine of the release.
    """
    if not counts_in_place(spec):
        yield db
        return
    with open_spark(spill, options, spec.source.origin) as there:
        yield there


def require_same_roles(manifest: Manifest, source: Records) -> None:
    """Refuse a source whose columns have other roles than a release states.

    Raises:
        UsageError: A role differs; the message names it.
    """
    if manifest.roles != source.roles:
        why = source.roles.explain_difference(manifest.roles)
        raise UsageError(f"the specification's columns are not those of the release: {why}")


def require_same_persons(manifest: Manifest, source: Records) -> None:
    """Raise ``UsageError`` unless both hold the same record of each person, or neither is reduced: counts differ."""
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


# Verify ---------------------------------------------------------------------------------------------------------------

UNCHECKED = (
    "the key that chose one record of each person is missing (in a key file, or the ledger), so the choice was not "
    "checked; persons were matched to the published records"
)


WORDS = "the publisher's own words"


@dataclass(frozen=True)
class Verified:
    """The outcome of ``verify``; ``notes`` are no violations but should be known.

    ``recomputed``: facts and bounds from the release's tables, if every check holds; ``copy``: the copy that was
    written of it.
    """

    checks: list[CheckResult]
    notes: list[str]
    manifest: Manifest
    recomputed: MeasuredFacts | None = None
    copy: Path | None = None

    @property
    def ok(self) -> bool:
        """Return whether every check holds."""
        return all(check.ok for check in self.checks)

    @property
    def bounds(self) -> list[VerifiedBound]:
        """Return the bounds that were verified; none where a check does not hold."""
        return self.recomputed.bounds if self.recomputed is not None else []

    def __bool__(self) -> bool:
        """Return ``ok``, since ``assert privsql.verify(release)`` must not pass for any outcome."""
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
        promised = [(one.value, one.bound, one.found) for one in self.bounds]
        summary = self.recomputed.summary.list_rows() if self.recomputed is not None else []
        tables = (
            markup.html_table((), summary, width=markup.WIDE),
            markup.html_table((WORDS, ""), list(self.manifest.words.items()), width=markup.WIDE),
            markup.html_table(("verified of", "bound", "found"), promised),
            markup.html_table(("check", "holds", ""), rows),
        )
        return markup.html_page(title, *tables, *(f"note: {one}" for one in self.notes))

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        checks = [check.as_json() for check in self.checks]
        copy = {"copy": str(self.copy)} if self.copy is not None else {}
        return {
            "ok": self.ok,
            "checks": checks,
            "notes": self.notes,
            "words": self.manifest.words,
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
    connection = how.get("connection")
    target, others = as_target(release, connection), as_targets(against, "against", connection)
    ledger = as_optional_path(database, "database")
    if ledger is not None and (source is None or not others):
        raise UsageError("the ledger compares the records of several releases; give source and against as well")
    key = as_optional_path(key_file, "key_file")
    to = as_optional_path(copy_to, "copy_to")
    if to is not None:
        refuse_target(target, to)
    with options_from(how, verify) as options:
        outcome, attached, spec = _check_release(target, source, key, options, connection)
        if others and outcome.ok:
            together = _check_together([*others, target], spec, ledger)
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
    options: Options,
    connection: object | None = None,
) -> tuple[Verified, AttachedRelease, Spec | None]:
    """Check a release alone, or against its source, whose specification is returned, in an engine that has both."""
    recomputed: MeasuredFacts | None = None
    unchecked: list[str] = []
    in_place = source_input is None and _can_check_in_place(target)
    with attach_release(target, options=options, in_place=in_place) as (_, release):
        manifest = release.manifest
        results = [*release.checks, *_check_place(target, manifest)]
        held = all(result.ok for result in results if result.name != LEFTOVERS)  # which hides no table from the rest
        if held and not in_place:
            results += check_statistics(release, locate_release(target))
        known = held and source_input is not None
        spec = spec_from_manifest(source_input, manifest, connection) if known and source_input is not None else None
        if held and source_input is None:
            results += examine_release(release)
            recomputed = _recompute_facts(release, results)
    if held and spec is not None:
        with open_release_with_source(target, spec, manifest, options, key_file=key_file) as (with_source, source):
            unchecked = [] if has_same_choice(manifest, source) else [UNCHECKED]
            results += examine_release(with_source, source=source, spec=spec)
            recomputed = _recompute_facts(with_source, results)
    limits = [f"{one.name}: {one.limit}" for one in results if one.limit]
    return Verified(results, _list_notes(manifest) + unchecked + limits, manifest, recomputed), release, spec


def _can_check_in_place(target: Target) -> bool:
    """Return whether an engine checks a release where it lies; one that composes by budget is small, and copied."""
    if target.catalog is None:
        return False
    with attach_release(replace(target, opened=target.catalog.without_rows())) as (_, release):
        return not isinstance(release.mechanism.composition, BudgetComposition)


def _check_place(target: Target, manifest: Manifest) -> list[CheckResult]:
    """Check that a release that is a schema, or a folder, says so, and no other does."""
    stated = "a schema" if manifest.place is not None else "a folder" if manifest.files else "a whole file"
    is_ = "a schema" if target.is_schema else "a folder" if target.path.is_dir() else "a whole file"
    if stated == is_:
        return []
    return run_checks(None, [Check("it is of the kind that it states", lambda: [f"it states {stated}, and is {is_}"])])


def _recompute_facts(release: AttachedRelease, results: list[CheckResult]) -> MeasuredFacts | None:
    """Recompute the facts of a release that passed its checks, and compare them with what is stated."""
    if not all(result.ok for result in results):
        return None
    measured = measure_facts(release)
    compared = Check("stated facts follow from the tables", lambda: measured.list_differences(release.manifest))
    results += run_checks(None, [compared])
    return measured


def _check_together(targets: Sequence[Target], spec: Spec | None, database: Path | None) -> list[CheckResult]:
    """Check what several releases reveal together, with a specification also about the records in its ledger."""
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
    """Check the records that the ledger knows; ``UsageError`` for a release that it does not know."""
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
    """Return the rule, with checks, of several releases; ``UsageError`` where no guarantee covers several."""
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
    notes += adversaries.explain_absence(manifest)
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes


# Records --------------------------------------------------------------------------------------------------------------
# A file in the form of sqllogictest: records between blank lines, each a header, SQL, ---- and what is expected.
#
#     query estimate | query within 5% | query covers [99%] | statement error
#
# Values of a row stand between tabs, or between blanks where a row has no tab; NULL is NULL and (empty) an empty text.
# ``estimate`` compares six digits, ``within`` the estimates with numbers, ``covers`` the intervals with them.

HEADER = re.compile(r"query (estimate|within (?P<within>[0-9.]+) ?%|covers( (?P<covers>[0-9.]+) ?%)?)|statement error")
RULE, COMMENT = "----", "#"
DIGITS, CLOSE = ".6g", 1e-5
NULL, EMPTY = "NULL", "(empty)"


@dataclass(frozen=True)
class QueryRecord:
    """A query and what is expected of it; ``line``: its header, from 1; ``place``: the lines of what is expected."""

    file: Path
    line: int
    header: str
    sql: str
    expected: tuple[str, ...]
    place: tuple[int, int]

    @property
    def name(self) -> str:
        """Return where it stands."""
        return f"{self.file}:{self.line}"

    def find_share(self, key: str) -> float | None:
        """Return the share of a header that has one."""
        matched = HEADER.fullmatch(self.header)
        share = matched[key] if matched else None
        return None if share is None else float(share) / 100


def read_records(file: Path) -> Iterator[QueryRecord]:
    """Yield the records of a file; ``UsageError`` for what is none, ``EngineError`` for an unreadable file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EngineError(f"{file}: can't be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{file}: can't be read: {error}; save it as UTF-8") from error
    start = 0
    while start < len(lines):
        if not lines[start].strip() or lines[start].startswith(COMMENT):
            start += 1
            continue
        end = next((i for i in range(start, len(lines)) if not lines[i].strip()), len(lines))
        header, block = lines[start].strip(), lines[start + 1 : end]
        if not HEADER.fullmatch(header):
            forms = "query estimate, query within 5%, query covers or statement error"
            raise UsageError(f"{file}:{start + 1}: {header!r} is not a test record; write {forms}")
        rule = block.index(RULE) if RULE in block else len(block)
        sql = "\n".join(block[:rule])
        if not sql.strip():
            raise UsageError(f"{file}:{start + 1}: the record has no query; write it below the header")
        yield QueryRecord(file, start + 1, header, sql, tuple(block[rule + 1 :]), (start + 1 + rule, end))
        start = end


# Comparison -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueryResult:
    """A record and its answer; ``difference``: lines with - for what is expected, and with + for the answer."""

    record: QueryRecord
    answered: tuple[str, ...]
    difference: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether the answer is as expected."""
        return not self.difference

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        record = self.record
        return {"at": record.name, "sql": record.sql, "ok": self.ok, "difference": list(self.difference)}


def run_record(release: Release, record: QueryRecord) -> QueryResult:
    """Put a query to a release and compare what comes back."""
    try:
        answer = release.query(record.sql, confidence=record.find_share("covers") or 0.95)
    except UsageError as refusal:
        text = str(refusal)
        fine = record.header == "statement error" and all(one in text for one in record.expected)
        return QueryResult(record, (text,), () if fine else _compare_lines(record.expected, (f"refused: {refusal}",)))
    answered = tuple("\t".join(map(_as_text, row)) for row in answer.plain_rows)
    if record.header == "statement error":
        return QueryResult(record, answered, _compare_lines((*record.expected, "an error"), answered))
    rows = [line.split("\t") if "\t" in line else line.split() for line in record.expected]
    fine = len(rows) == len(answer.rows) and all(
        _matches_row(record, answer, *pair) for pair in zip(rows, answer.rows, strict=True)
    )
    if not fine and record.header.startswith("query covers"):
        interval_lines = tuple("\t".join(_describe_row(answer, row)) for row in answer.rows)
        return QueryResult(record, answered, _compare_lines(record.expected, interval_lines))
    return QueryResult(record, answered, () if fine else _compare_lines(record.expected, answered))


def _matches_row(record: QueryRecord, answer: Answer, expected: Sequence[str], row: Sequence[Any]) -> bool:
    """Return whether a row is as expected: figures as the header says, groups as they are."""
    figures = {one.at for one in answer.figures}
    if len(expected) != len(answer.plain_columns):
        return False
    for text, at in zip(expected, answer.plain_columns, strict=True):
        value, number = row[at], _as_number(text)
        if at not in figures or number is None or value is None:
            if not _is_same_text(text, value):
                return False
        elif record.header.startswith("query covers"):
            low, high = row[at + 2], row[at + 3]
            if (low is not None and number < low) or (high is not None and number > high):
                return False
        elif not math.isclose(float(value), number, rel_tol=record.find_share("within") or CLOSE):
            return False
    return True


def _is_same_text(text: str, value: object) -> bool:
    answered = _as_text(value)
    numbers = _as_number(text), _as_number(answered)
    if isinstance(value, int | float) and None not in numbers:
        return math.isclose(float(numbers[0] or 0), float(numbers[1] or 0), rel_tol=CLOSE)
    return text == answered


def _describe_row(answer: Answer, row: Sequence[Any]) -> Iterator[str]:
    """Yield the values of a row, each figure as its interval."""
    figures = {one.at for one in answer.figures}
    for at in answer.plain_columns:
        yield f"{_as_text(row[at + 2])} to {_as_text(row[at + 3])}" if at in figures else _as_text(row[at])


def _as_text(value: object) -> str:
    if value is None:
        return NULL
    text = format(value, DIGITS) if isinstance(value, float) else str(value)
    return " ".join(text.split()) or EMPTY


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compare_lines(expected: Sequence[str], answered: Sequence[str]) -> tuple[str, ...]:
    lines = difflib.ndiff(list(expected), list(answered))
    return tuple(line for line in lines if not line.startswith("?")) or ("+ another number of rows",)


# Test -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tested:
    """The outcome of ``test``: a result for each record; true where all are as expected."""

    results: list[QueryResult]

    def __bool__(self) -> bool:
        return all(one.ok for one in self.results)

    @property
    def lines(self) -> list[str]:
        """Return the differences for people, and how many records are as expected."""
        failed = [one for one in self.results if not one.ok]
        lines = [
            line for one in failed for line in (one.record.name, *one.record.sql.splitlines(), *one.difference, "")
        ]
        return [*lines, f"{len(self.results) - len(failed)} of {len(self.results)} queries are answered as expected"]

    def as_json(self) -> dict[str, Any]:
        """Return the object of ``--json``."""
        return {"ok": bool(self), "results": [one.as_json() for one in self.results]}

    def _repr_html_(self) -> str:
        rows = [(one.record.name, "as expected" if one.ok else "\n".join(one.difference)) for one in self.results]
        return markup.html_page("Tested queries", markup.html_table((), rows))


def run_tests(
    release: PathLike,
    files: Sequence[PathLike] | PathLike,
    *,
    record: bool = False,
    attach: Sequence[PathLike] | PathLike = (),
    connection: object | None = None,
) -> Tested:
    """Put the queries of files to a release and compare the answers with what the files expect.

    ``record``: write answers that differ into the files; a refusal stays a difference. ``connection``: an open one of
    DuckDB's, in whose database ``release`` is a schema. Raises ``UsageError`` for a file
    in another form.
    """
    paths = as_paths(files, "files")
    records = [(path, list(read_records(path))) for path in paths]
    if not any(listed for _, listed in records):
        raise UsageError("the files have no query; write one below a line 'query estimate'")
    with Release(release, attach, connection=connection) as opened:
        results = [[run_record(opened, one) for one in listed] for _, listed in records]
    if record:
        results = [_record_results(path, listed) for path, listed in zip(paths, results, strict=True)]
    return Tested([one for listed in results for one in listed])


def _record_results(path: Path, results: Sequence[QueryResult]) -> list[QueryResult]:
    """Write what differs into a file; return the results, without difference where that was written."""
    lines, recorded = path.read_text(encoding="utf-8").splitlines(), []
    for one in reversed(results):
        refused = any(line.startswith("+ refused: ") for line in one.difference)
        if one.ok or refused or one.record.header == "statement error":
            recorded.append(one)
            continue
        start, end = one.record.place
        lines[start:end] = [RULE, *one.answered]
        recorded.append(QueryResult(one.record, one.answered, ()))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return recorded[::-1]
