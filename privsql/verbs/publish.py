"""Make a release from a specification and check it (``publish``), or predict that release (``plan``)."""

from __future__ import annotations

import dataclasses
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql import keyed_random
from privsql.calls import as_path, as_whole_number, refuse_unknown_keywords
from privsql.engine import sqlfiles
from privsql.engine.database import COMPARING, READING, RUNNING, TracedStatement, TraceReporter, options_from
from privsql.engine.files import fold_name, temporary_folder
from privsql.engine.open import is_database, log_of, open_engine
from privsql.engine.sqlfiles import table, temp_table
from privsql.errors import EngineError, GuaranteeError, InfeasibleError, PrivsqlError, UsageError
from privsql.mechanisms.base import BudgetComposition
from privsql.model.checks import VerifiedBound
from privsql.model.explanations import explain_absence
from privsql.model.manifest import FORMAT, MANIFEST, Manifest
from privsql.model.records import StaleSettingError
from privsql.outcomes import Outcome, Part, Table, pairs
from privsql.releases.contents import AttachedRelease, check_contents, complete_folder, digest_release
from privsql.releases.draft import Draft, digest_tables, is_occupied, private_folder, sweep_drafts
from privsql.releases.ledger.budget import describe_cap
from privsql.releases.ledger.composition import find_ledger, make_choice, make_publication, prepare_ledger
from privsql.releases.ledger.publication import PublicationRequest
from privsql.releases.opened import (
    SchemaDraft,
    StagedDraft,
    attach_clean_file,
    read_manifest,
    replay_target_wal,
    require_rights,
)
from privsql.releases.statements import (
    ReleaseSummary,
    examine_release,
    list_bounds,
    refuse_learning,
)
from privsql.source.keywords import SETTINGS, as_spec, split_keywords
from privsql.source.records import prepare_records
from privsql.source.table import describe_coarsening
from privsql.source.targets import Target, overlaps_source
from privsql.system import __version__
from privsql.verbs.sessions import counts_in_place, source_session
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.engine.database import DetachedWarehouse, EngineSession, Options, Relations, Warehouse
    from privsql.engine.sqlfiles import Roles
    from privsql.keyed_random import Key
    from privsql.model.checks import CheckResult
    from privsql.model.parameters import Facts
    from privsql.model.records import Records
    from privsql.releases.ledger.publication import Publication
    from privsql.source.keywords import SpecLike
    from privsql.source.spec import Spec
    from privsql.source.typed_keywords import Planning, Publishing

# Results --------------------------------------------------------------------------------------------------------------
# The outcome of ``publish`` and ``plan``.

MOST_ROWS = 40  # most rows of the table of a plan
PLANNING = "Planning the release"  # a step of both verbs


@dataclass(frozen=True, repr=False)
class Published(Outcome):
    """The outcome of ``publish`` or ``plan``. Other verbs accept it in place of the path of a release.

    Attributes:
        release: Where the release was written; None for a plan.
        facts: Facts by name, as plain data: the mechanism, its algorithm, the numbers of records, and all of
            ``stated``.
        stated: The facts that the mechanism states in the manifest, such as the number of buckets.
        spec: The complete specification. ``verify``, ``evaluate`` and ``attack`` accept it as ``source``, also if the
            source is a table in Python.
        ledger: What the publisher's ledger says about the release.
        checks: The results of the checks.
        seconds: How long it took.
        warnings: What the publisher should know.
        search_seconds: The CPU seconds that the search for buckets took; None if they were not measured.
        summary: A summary for people, without the attacker and the errors that take long to measure; ``summarize``
            returns all of it.
        changes: For a plan, (id, "deleted" or "changed") of records that an earlier release holds and the source no
            longer holds as they were. The guarantee for several releases does not allow that.
        trace: The SQL statements that ran, if the caller asked for them.
    """

    release: Path | None
    facts: dict[str, Any]
    stated: Facts = field(repr=False)
    spec: Spec = field(repr=False)
    ledger: dict[str, Any] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    search_seconds: float | None = None
    summary: ReleaseSummary | None = field(default=None, repr=False)
    changes: Sequence[tuple[str, str]] = field(default=(), repr=False)
    trace: Sequence[TracedStatement] = field(default=(), repr=False)

    @property
    def target(self) -> Target:
        """Return the place where the release was written.

        Raises:
            UsageError: This is the outcome of ``plan``, which writes no release.
        """
        if self.release is None:
            raise UsageError("this is a plan; publish it first")
        return self.spec.target

    def __fspath__(self) -> str:
        """Return the path of the release.

        Raises:
            UsageError: This is the outcome of ``plan``, which writes no release.
        """
        return str(self.target)

    @property
    def lines(self) -> list[tuple[str, object]]:
        """Return all facts of the release as (name, value) lines for people."""
        return self.list_lines(verbose=True)

    def list_lines(self, *, verbose: bool) -> list[tuple[str, object]]:
        """Return the facts of the release as (name, value) lines for people.

        Args:
            verbose: Whether to return all facts. Otherwise the outcome of ``plan`` leaves out details. That of
                ``publish`` leaves out the facts that its mechanism states, since the summary is shown in place of them.
        """
        facts = self.facts
        rows: list[tuple[str, object]] = [("mechanism", f"{facts['mechanism']}, {facts['algorithm']}")]
        if facts["published"] is not None:
            rows.append(("records", f"{facts['published']:,} published, {facts['suppressed']:,} suppressed"))
        if self.spec.record_limit > 1:
            rows.append(("promise", self.spec.implementation.promise(self.spec.mechanism)))
        stated = self.stated.describe() if verbose or self.release is None else []
        rows += [one for one in stated if verbose or one[0] not in self.stated.details]
        rows += self._ledger_lines()
        if self.checks:
            rows.append(("checks", f"{len(self.checks)} of {len(self.checks)} hold"))
        return [*rows, ("time", f"{self.seconds:.2f} s")]

    def _ledger_lines(self) -> list[tuple[str, object]]:
        """Return what the ledger says about the release, as (name, value) lines for people."""
        entry = self.ledger
        rows: list[tuple[str, object]] = []
        if entry.get("population"):
            rows.append(("population", ", ".join(entry["population"])))
        if "spent" in entry:
            here = " with this one" if self.release is not None else ""
            rows.append(
                ("budget", f"epsilon {entry['spent']} spent{here}, {describe_cap(entry['cap'], entry['delta'])}")
            )
        if entry.get("off"):
            rows.append(("ledger", "none is kept, and the release says so"))
        if "release" in entry:
            replaced = ""
            if "withdrawn" in entry:
                replaced = f"; release {entry['withdrawn']}, which it replaces, is withdrawn"
            elif "replaced" in entry:
                replaced = f"; release {entry['replaced']}, which it replaces, counts as received"
            rows.append(("ledger", f"release {entry['release']}{replaced}"))
        return rows

    def __repr__(self) -> str:
        what = f"release={str(self.target)!r}" if self.release is not None else "a plan"
        return f"<Published {what}: {self.facts['mechanism']}, {self.facts['algorithm']}>"

    @property
    def title(self) -> str:
        """Return the title that a notebook shows above the outcome."""
        return "Plan: nothing is written" if self.release is None else f"Release {self.target}"

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: the summary and the facts; a plan, or ``verbose``, also shows a table of facts."""
        if self.summary is not None:
            yield from self.summary.show()
        yield pairs(self.list_lines(verbose=verbose))
        head, *rows = (self.stated.tabulate() if verbose or self.release is None else []) or [()]
        if rows:
            yield Table([str(one) for one in head], rows, range(len(head)), most=MOST_ROWS)
        if self.trace:
            steps = [(one.step, one.relation, one.file, one.rows, f"{one.seconds:.3f}") for one in self.trace]
            yield Table(("step", "relation", "file of sql/", "rows", "s"), steps, (3, 4))
        if self.release is not None:
            yield f"wrote {self.target}"

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as the object that ``--json`` prints."""
        return {
            "release": str(self.target) if self.release else None,
            **self.facts,
            "ledger": self.ledger,
            "checks": [check.as_json() for check in self.checks],
            "seconds": round(self.seconds, 3),
            **({} if self.search_seconds is None else {"search_seconds": self.search_seconds}),
            "warnings": self.warnings,
            **({} if self.summary is None else {"summary": self.summary.as_json()}),
            **({"trace": [one.as_json() for one in self.trace]} if self.trace else {}),
        }


# Publish --------------------------------------------------------------------------------------------------------------
# ``publish`` and ``plan``: from a specification to a release that has passed its checks.

# Keywords that only ``publish`` has.
PUBLISH_KEYWORDS = (
    "key",
    "key_file",
    "seed",
    "replace",
    "repeat",
    "nobody_has_it",
    "allow_composition",
    "allow_useless",
    "trace",
)


def publish(spec: SpecLike | None = None, **how: Unpack[Publishing]) -> Published:
    """Publish the release that ``spec`` asks for; it is written only after every check has passed.

    ``spec`` is a whole specification, or a source with keywords that have the names of the command line's options:
    ``publish(df, sensitive="disease", qi=["age", "sex"], threshold=0.1, to="release.duckdb")``. An open connection can
    also hold the source: ``publish(connection=con, set={"source": {"table": "people"}, "release": {"schema":
    "released"}}, ..)``. Its uncommitted changes are not read.

    If the ledger knows that a record was published before, it is published again only under a guarantee that covers
    both releases, or with ``allow_composition``.

    Args:
        spec: The path of a TOML file, plain data or a ``Spec``; or a source, which is a table in Python (of pandas,
            Polars, DuckDB or Arrow) or the path of one.
        **how: Keywords for parts of the specification, those of every verb (``RunKeywords``), and the following.
            ``set``: any other keys of a specification, by section: ``set={"columns": {"nulls": {"age": "suppress"}}}``.
            ``connection``: an open connection of DuckDB, or a session of Spark. Its database is the source if
            source.table or source.query is given without ``spec``, or if ``spec`` names its file. With release.schema
            it takes the release.
            ``key``: the key that makes every random choice. The same key and records give the same release. By default
            it follows from the ledger's key, the records and the request; without a ledger it is drawn afresh.
            ``key_file``: a file that holds such a key. ``seed``: a seed in its place, for tests only.
            ``allow_composition``: publish known records where no guarantee covers both releases; the release says so.
            ``allow_useless``: publish even if counts of 500 would be off by more than a fifth.
            ``replace``: replace an existing release. The ledger still counts that one as received, and the new release
            says so.
            ``nobody_has_it``: with ``replace``, state that nobody has received the existing release.
            ``repeat``: replace an existing release only by the same one, or by one that a guarantee covers together
            with it. A job that may run twice needs this.
            ``trace``: list the statements that DuckDB ran, in order, each with its file of ``sql/``.

    Raises:
        InfeasibleError: The records can't be published under these parameters.
        UsageError: The specification or a keyword is wrong, or the release is not allowed.
        EngineError: A database or file can't be read or written.
        GuaranteeError: A check of the release fails, or the source changed meanwhile.
    """
    refuse_unknown_keywords(how, (*SETTINGS, *RUNNING, *PUBLISH_KEYWORDS), "publish")
    source_keywords, rest = split_keywords({name: value for name, value in how.items() if name not in PUBLISH_KEYWORDS})
    meant = as_spec(spec, source_keywords, verb="publish", connection=rest.get("connection"))
    replace, repeat = bool(how.get("replace")), bool(how.get("repeat"))
    allow, unreceived = bool(how.get("allow_composition")), bool(how.get("nobody_has_it"))
    if unreceived and not replace:
        raise UsageError("option nobody_has_it is about the release that is replaced; give option replace, too")
    request = PublicationRequest(meant, None, _release_key(how), allow, repeat=repeat, nobody_has_it=unreceived)
    with options_from(rest, "publish") as options:
        how_published: dict[str, Any] = {"replace": replace, "useless": bool(how.get("allow_useless"))}
        if not how.get("trace"):
            return publish_spec(request, options, **how_published)
        noted = TraceReporter(options.report)
        done = publish_spec(request, dataclasses.replace(options, report=noted), **how_published)
        return dataclasses.replace(done, trace=noted.statements)


def _release_key(keywords: Mapping[str, Any]) -> Key | None:
    """Return the key that the publisher gives as ``key``, ``key_file`` or ``seed``; None if none of them is given.

    Raises:
        UsageError: Several of these are given, or one is not valid.
    """
    chosen = {name: keywords[name] for name in ("key", "key_file", "seed") if keywords.get(name) is not None}
    if len(chosen) > 1:
        raise UsageError(f"give only one of the options {' and '.join(chosen)}")
    if "seed" in chosen:
        return keyed_random.seed_key(as_whole_number(chosen["seed"], "seed", None))
    if "key_file" in chosen:
        return keyed_random.key_file(as_path(chosen["key_file"], "key_file"))
    key = chosen.get("key")
    if key is not None and not isinstance(key, keyed_random.Key):
        raise UsageError("key: give a key of privsql.keyed_random, or key_file, the path of a file that holds one")
    return key


def publish_spec(
    request: PublicationRequest, options: Options, *, replace: bool = False, useless: bool = True
) -> Published:
    """Publish a release, and record it in the publisher's ledger.

    Args:
        request: The specification, the key and what the publisher allows.
        options: How the engine runs.
        replace: Whether an existing release may be replaced.
        useless: Whether to publish even if counts of 500 would be off by more than a fifth.
    """
    # The specification: it is valid, and its target may be written.
    spec, over = request.spec, replace or request.repeat
    clock, target, report = time.monotonic(), spec.target, options.report
    replay_target_wal(target)
    if request.repeat and isinstance(spec.implementation.composition, BudgetComposition):
        raise UsageError("a differentially private release is drawn afresh, so option repeat can't give the same again")
    if request.repeat and replace:
        raise UsageError("give only one of the options repeat and replace")
    _require_writable(spec, replace=over)
    if not useless:
        _refuse_useless(spec)
    with (
        _choose_draft(spec)(target, replace=over) as draft,
        open_engine(draft.spill_folder, options) as db,
        source_session(spec, draft.spill_folder, options) as detached,
    ):
        # The records: the source is read and counted, and the ledger permits a release of its people.
        report.start_step(READING)
        replaces = digest_release(target) if is_occupied(target) else None
        request = dataclasses.replace(request, path=prepare_ledger(db, spec), replaces=replaces)
        publication = _prepare_publication(db, detached, request, publishing=True)
        report.start_step(COMPARING)
        publication.require_covered()
        if request.repeat and replaces is not None and not publication.repeats:
            raise GuaranteeError(
                f"{target} holds another release, so option repeat does not replace it; option replace does, and the "
                "new one says so"
            )
        source, mechanism = publication.source, spec.implementation
        try:
            # The plan and the tables: the mechanism makes both, in database ``release`` of an engine.
            report.start_step(PLANNING)
            key = source.bind_key(publication.key) if publication.must_bind_key else publication.key
            engine: Relations = draft.stage if isinstance(draft, StagedDraft) else db
            if not isinstance(draft, StagedDraft):
                db.attach(draft.database_file, "release", read_only=False)
            with _explain_stale_setting(source):
                if detached is None:
                    facts = mechanism.publish(db, source, spec.mechanism, key)
                else:
                    facts = _publish_detached(detached, publication, draft, key)

            # The manifest states facts that follow from the tables.
            report.start_step("Measuring the release")
            manifest, entries = _make_manifest(publication, facts), dict[str, Any]()

            def state() -> AttachedRelease:
                attached = AttachedRelease(db, "release", manifest.model_copy(update=entries), mechanism)
                return attached if engine is db else attached.counted_by(engine)

            entries |= {"own_columns": state().renamed_columns, "groups": state().list_groups(manifest.groups)}
            entries["orders"] = state().stored_orders(source.roles.orders)
            release = state()
            if not isinstance(draft, StagedDraft):
                db.define_objects(release.definitions, into="release")
            engine.register_arrow("manifest", release.manifest.as_table())
            rows = sqlfiles.all_rows(temp_table("manifest"))
            engine.create_table(MANIFEST, rows, into="release")

            # The proof: every check holds, on the tables and on the files that are handed out.
            checks = examine_release(release, whole=False, report=report)
            _require_checks_hold(checks)
            report.start_step("Writing the release")
            bounds = list_bounds(release, examined=True)
            if not useless:
                _refuse_useless(spec, bounds)
            summary = ReleaseSummary.make(release, bounds, refuse_learning(release, report))
            summary = summary.tell_precision(facts.describe_precision())
            publication.read_tables(engine, release.tables)
            if isinstance(draft, StagedDraft):
                draft.release, written = release, draft.folder / spec.name
                digest = digest_tables(draft.stage, release.stated_tables, "release", ordered=False)
                publication.request = dataclasses.replace(publication.request, digest=digest)
            elif spec.format == "parquet":
                written = draft.parquet_folder
                for name in release.tables:
                    if not (written / f"{name}.parquet").exists():
                        db.export_parquet(table(name, "release"), written / f"{name}.parquet")
                complete_folder(db, release, written)
                db.detach("release")
                _require_checks_hold(verify(written).checks)  # Parquet may have changed types
            else:
                db.detach("release")
                with attach_clean_file(db, draft.database_file, release) as written:
                    contents = check_contents(release)
                _require_checks_hold(contents)
                checks = [*contents, *checks]
        except InfeasibleError:
            publication.record_refusal()
            raise

        # The commit: the release is moved to its place and recorded in the ledger.
        stated = release.manifest
        warnings = [str(stated.persons)] if stated.persons is not None and stated.persons.several else []
        warnings += _collation_warnings(detached or db, source.roles)
        warnings += [*mechanism.read_facts(stated).list_warnings(), *explain_absence(stated)]
        with publication.record_commit(written, facts):
            db.let_go()
            draft.commit(written)
    return Published(
        target.path,
        _release_facts(spec, source, facts),
        facts,
        spec,
        publication.as_facts(),
        checks,
        time.monotonic() - clock,
        [*warnings, *publication.warnings, *_table_warnings(spec), *_place_warnings(spec)],
        summary=summary,
    )


def _refuse_useless(spec: Spec, bounds: Sequence[VerifiedBound] = ()) -> None:
    """Refuse a release whose counts would be too imprecise to use.

    The errors are predicted by a formula. Without ``bounds`` it uses only figures that are public, so that a refused
    release spends no privacy budget.

    Args:
        spec: The specification.
        bounds: How sure an attacker can be of each value at most, computed from the release; empty before there is one.

    Raises:
        InfeasibleError: Counts of 500 would be off by more than a fifth.
    """
    columns = len(spec.columns.quasi_identifiers)
    precision = spec.implementation.foresee_precision(spec.mechanism, bounds, columns)
    if precision is not None and precision.is_useless:
        raise InfeasibleError(f"{precision.warning} To publish it all the same, give option allow_useless")


def _choose_draft(spec: Spec) -> type[Draft]:
    """Return the class of draft, which makes and checks a release in a temporary place before it becomes visible.

    It depends on the place of the release and on the engine that makes its tables.

    Raises:
        UsageError: Only Spark can write to the place, and Spark does not read this source.
    """
    target, in_place = spec.target, counts_in_place(spec)
    if target.schema is None:
        return Draft
    if not (in_place or target.is_schema):
        raise UsageError(f"{target}: only Spark writes there, of sources that it reads; give a folder without file:")
    return StagedDraft if target.catalog is not None and in_place else SchemaDraft


def _publish_detached(detached: DetachedWarehouse, publication: Publication, draft: Draft, key: Key) -> Facts:
    """Make the tables of a release in the engine that holds the source, such as Spark.

    If the release becomes a schema of that engine, the tables stay there. Otherwise they become readable in database
    ``release`` of the DuckDB session of ``publication``.

    Args:
        detached: The session of the source's engine.
        publication: The records to publish, with a session of DuckDB.
        draft: The temporary place in which the release is made.
        key: The key for all random choices.

    Returns:
        The facts of the release.
    """
    spec, db = publication.request.spec, publication.db
    if isinstance(draft, StagedDraft):
        detached.set_release_stage(draft.stage)
    else:
        detached.set_release_folder(draft.parquet_folder)
    facts = spec.implementation.publish(detached, publication.source, spec.mechanism, key)
    detached.require_unchanged()
    if not isinstance(draft, StagedDraft):
        keep = db.create_view if spec.format == "parquet" else db.create_table
        for folder in sorted(draft.parquet_folder.iterdir()):
            keep(folder.stem, db.scan_files(sorted(folder.iterdir()), "parquet"), into="release")
    return facts


@contextmanager
def _explain_stale_setting(source: Records) -> Iterator[None]:
    """Add a remedy to the error that the block raises if the ledger's stored search result does not fit the records.

    If the same request was published before, the ledger holds the result of the mechanism's search, such as its
    buckets, and the block uses it again. The new message says what the publisher can do.

    Raises:
        GuaranteeError: The stored result does not fit.
    """
    try:
        yield
    except StaleSettingError as error:
        remedy = f"restore the ledger, or, if nobody has received that release, run {source.history.withdraw}"
        raise GuaranteeError(f"{error}; {remedy}") from error


def _collation_warnings(db: Warehouse, roles: Roles) -> list[str]:
    """Return a warning for each text column that the source compares by a collation.

    A release compares plain text, so values that were equal in the source are different there.
    """
    texts = [field.name for field in roles.columns if field.type == "VARCHAR"]
    collations = db.list_collations(temp_table("source"), texts) if texts else {}
    return [
        f"column {name!r} is compared by the collation {collation} in the source and as plain text in the release, "
        "where values that are equal by it are different ones; write them alike in source.query if that is not meant"
        for name, collation in collations.items()
    ]


def _prepare_publication(
    db: EngineSession, detached: DetachedWarehouse | None, request: PublicationRequest, *, publishing: bool
) -> Publication:
    """Read the records of the source, and find out what the ledger requires of their publication.

    Args:
        db: The session.
        detached: The session of the source's own engine, if that makes the tables; None if ``db`` does.
        request: The request.
        publishing: Whether the release is published, and not only planned.

    Raises:
        UsageError: The release has the same name as one of its tables.
    """
    spec = request.spec
    choice = make_choice(db, request, publishing=publishing)
    source = prepare_records(detached or db, spec, for_ledger=request.path is not None, choice=choice)
    if fold_name(spec.name) in {*spec.implementation.layout, MANIFEST}:
        raise UsageError(f"release.name {spec.name!r} is the name of a table of the release; choose another")
    return make_publication(db, source, request)


def _require_writable(spec: Spec, *, replace: bool) -> None:
    """Check that the place of a release is free, or that the release there may be replaced.

    Args:
        spec: The specification.
        replace: Whether an existing release may be replaced.

    Raises:
        UsageError: The place may not be written.
    """
    target = spec.target
    if overlaps_source(spec.source, target):
        here = "is the source, not a release" if target.file.is_file() else "would be among the files of the source"
        raise UsageError(f"{target} {here}; give another target")
    if not is_occupied(target):
        if target.opened is not None and target.catalog is None:
            require_rights(target)
        return
    if not replace:
        raise UsageError(f"{target} exists; option replace publishes over it")
    try:
        _require_release(target)
    except (PrivsqlError, OSError) as error:
        # An error may hide that the file is a database.
        if isinstance(error, EngineError | OSError) and is_database(target.file):
            raise EngineError(f"{target}: can't be read, so it is not replaced: {error}") from error
        raise UsageError(f"{target} is not a release of privsql; it is not replaced") from error


def _require_release(target: Target) -> None:
    """Check that a place holds a release; a write-ahead log that a killed process left beside it does not matter.

    Raises:
        PrivsqlError: The place holds no release.
    """
    file = target.file
    if file.is_dir() or target.schema is not None or not log_of(file).exists():
        read_manifest(target)
        return
    with private_folder(target) as folder:
        (folder / file.name).hardlink_to(file)
        read_manifest(Target(folder / file.name))


def plan(spec: SpecLike | None = None, **how: Unpack[Planning]) -> Published:
    """Predict the release that ``publish`` would make, without writing anything.

    The outcome states the release's parameters, the loss of information and the bounds on an attacker's belief.

    Args:
        spec: The path of a TOML file, plain data or a ``Spec``; or a source: a table in Python or the path of one.
        **how: Keywords for keys of the specification, such as ``sensitive``, ``qi`` and ``threshold``. They complete a
            source, or change a specification. Others say how the engine runs (``RunKeywords``).

    Raises:
        InfeasibleError: The records can't be published under these parameters.
        UsageError: The specification or a keyword is wrong, or the release is not allowed.
        EngineError: A database or file can't be read.
        GuaranteeError: The source changed while it was read.
    """
    source_keywords, rest = split_keywords(how)
    written = next((name for name in PUBLISH_KEYWORDS if source_keywords.get(name) is not None), None)
    if written is not None:
        raise UsageError(f"plan has no keyword {written!r}, because it writes nothing; use publish")
    meant = as_spec(spec, source_keywords, verb="plan", connection=rest.get("connection"))
    with options_from(rest, "plan") as options:
        clock = time.monotonic()
        sweep_drafts(meant.target)
        with (
            temporary_folder() as folder,
            open_engine(folder, options) as db,
            source_session(meant, folder, options) as detached,
        ):
            request = PublicationRequest(meant, find_ledger(db, meant))
            options.report.start_step(READING)
            publication = _prepare_publication(db, detached, request, publishing=False)
            if request.path is not None and request.path.exists():
                options.report.start_step(COMPARING)
                publication.compare_earlier()
            options.report.start_step(PLANNING)
            with _explain_stale_setting(publication.source):
                facts = meant.implementation.plan(detached or db, publication.source, meant.mechanism)
                facts.require_records(publication.source.records)
        source, seconds = publication.source, time.monotonic() - clock
        stated = _release_facts(meant, source, facts)
        summary = ReleaseSummary.foresee(
            meant.implementation,
            meant.mechanism,
            source.roles,
            [VerifiedBound(*one) for one in facts.list_bounds()],
            source.persons,
            (stated["records"], stated["suppressed"]),
        ).tell_precision(facts.describe_precision())
        stated |= {"composition": [*map(str, publication.statements)]} if publication.statements else {}
        ledger, searched = publication.as_facts(), facts.count_search_seconds()
        warnings, changes = [*publication.warnings, *_table_warnings(meant)], publication.changes
        if request.path is not None and not request.stated.population:
            warnings.append("nothing says whom the table is about, and publish needs source.population")
        return Published(None, stated, facts, meant, ledger, [], seconds, warnings, searched, summary, changes)


def _table_warnings(spec: Spec) -> list[str]:
    """Return warnings on how a table in Python was read; empty for any other source."""
    read = spec.frame
    return [] if read is None else read.list_remarks(spec.columns.names, queried=spec.source.query is not None)


def _place_warnings(spec: Spec) -> list[str]:
    """Return a warning if the release is a schema of a file that may also hold other tables; empty if not."""
    if spec.release.schema_ is None or spec.target.has_no_file:
        return []
    file = spec.target.file
    shares_file = spec.source.database is not None and overlaps_source(spec.source, Target(file))
    what = "the source and perhaps other schemas" if shares_file else "other schemas, or may later"
    return [f"{file} holds {what}: do not hand that file out"]


def _make_manifest(publication: Publication, facts: Facts) -> Manifest:
    spec, source = publication.request.spec, publication.source
    coarse = describe_coarsening(source.roles.quasi_identifiers, spec.columns)
    return Manifest(
        format=FORMAT,
        privsql=__version__,
        duckdb=publication.db.engine_version(),
        name=spec.name,
        mechanism=spec.mechanism.kind,
        algorithm=spec.mechanism.algorithm,
        parameters=spec.mechanism.as_stated(),
        quasi_identifiers=list(source.roles.quasi_identifiers),
        sensitive=list(source.roles.sensitive),
        nulls={one.name: spec.columns.null_policy(one.name) for one in source.roles.columns},
        bins=coarse["bins"],
        groups={name: [] for name in coarse["groups"]},
        place="schema" if spec.release.schema_ is not None else None,
        persons=source.persons,
        record=spec.columns.record,
        wording=spec.release.wording,
        sampling_rate=spec.release.sampling_rate,
        **_record_counts(spec, source, facts),
        randomness=publication.key.origin,
        composition=publication.statements,
        beside=publication.beside,
        facts=facts.as_json(),
    )


def _release_facts(spec: Spec, source: Records, facts: Facts) -> dict[str, Any]:
    """Return what ``publish`` and ``plan`` tell about a release, by name, as the first part of their outcome.

    These are the mechanism, its algorithm, the numbers of records, and the facts that the mechanism states.
    """
    return {
        "mechanism": spec.mechanism.kind,
        "algorithm": spec.mechanism.algorithm,
        **_record_counts(spec, source, facts),
        **facts.as_json(),
    }


def _record_counts(spec: Spec, source: Records, facts: Facts) -> dict[str, Any]:
    """Return the numbers of records in the source, in the release and left out, by name.

    They are None if the guarantee does not permit exact numbers.
    """
    if not spec.implementation.states_counts:
        return dict.fromkeys(("records", "published", "suppressed"))
    left_out = facts.count_left_out()
    return {
        "records": source.source_records,
        "published": source.records - left_out,
        "suppressed": source.suppressed + left_out,
    }


def _require_checks_hold(results: list[CheckResult]) -> None:
    failed = next((result for result in results if not result.ok), None)
    if failed is not None:
        offending = "; ".join(failed.offending)
        raise GuaranteeError(f"check failed, nothing written: {failed.name} ({failed.violations} rows: {offending})")
