"""The verbs: the only place where engine, mechanism and release meet."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql import budgets, sqlfiles
from privsql import ledger as ledgers
from privsql._version import __version__
from privsql.against import comparable, published_checks, record_checks
from privsql.attacks.risk import Risk, quick_learning_risk
from privsql.channel import quality
from privsql.checks import Check, run
from privsql.database import FILE_KINDS
from privsql.engine.duck import Engine, scratch, unlocked, workshop
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.examine import contents, examine
from privsql.itemsource import PreparedSets, prepare_sets
from privsql.mechanism import refuse_collisions
from privsql.mechanisms.setvalued.measure import SHARES, by_class, classes, tops
from privsql.mechanisms.setvalued.parameters import PROPOSED
from privsql.noise import Key, key_file, seed_key, system_key
from privsql.prepare import Prepared, prepare
from privsql.progress import Silent
from privsql.propose import feasible, propose, propose_cells, propose_sets
from privsql.reader import Release, inspect, opened, query
from privsql.registry import of
from privsql.release import MANIFEST, Draft, Manifest
from privsql.scores import Score, Truth, score
from privsql.sqlfiles import table, temp
from privsql.workload import equality, from_file, random, ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from privsql.answer import Answer
    from privsql.checks import Result
    from privsql.progress import Reporter
    from privsql.spec import Spec
    from privsql.workload import Question


__all__ = [
    "Options",
    "Release",
    "Workload",
    "evaluate",
    "init",
    "inspect",
    "itemsets",
    "ledger",
    "plan",
    "publish",
    "query",
    "synthesize",
    "verify",
]


@dataclass(frozen=True)
class Options:
    """How a verb runs, not what it does."""

    memory_limit: str | None = None
    threads: int | None = None
    report: Reporter | None = None


@dataclass(frozen=True)
class Published:
    """A release that was written, or (``release`` None) that could be."""

    release: Path | None
    facts: dict[str, Any]
    checks: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {"release": str(self.release) if self.release else None, **self.facts}
        return {
            **shown,
            "checks": [check.as_json() for check in self.checks],
            "seconds": round(self.seconds, 3),
            "warnings": self.warnings,
        }


@dataclass(frozen=True)
class Verified:
    """The outcome of ``verify``; ``notes`` are no violations but should be known."""

    checks: list[Result]
    notes: list[str]

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        return {"ok": self.ok, "checks": [check.as_json() for check in self.checks], "notes": self.notes}


def publish(
    spec: Spec,
    *,
    key: Key | None = None,
    replace: bool = False,
    allow_composition: bool = False,
    options: Options | None = None,
) -> Published:
    """Publish the release that ``spec`` asks for; it exists only once every check has passed.

    ``key`` makes every random choice (default: fresh from the operating system, or kept beside the ledger where there
    is one); the same key and the same records give the same release. Where a ledger is kept, subjects that were
    published before are only published again if a guarantee covers both, or if ``allow_composition``, which the
    release says. Raises ``InfeasibleError``, ``UsageError``, ``EngineError``, ``GuaranteeError``.
    """
    options, key, clock = options or Options(), key or _key(spec), time.monotonic()
    _may_write(spec, replace=replace)
    with Draft(spec.target, replace=replace) as draft, _workshop(draft.spill, options) as db:
        source = _prepared(db, spec)
        with _ledger(db, spec, source) as ledger:
            if ledger is not None:
                ledger.check(key, allow=allow_composition)
            composed = list(ledger.composition) if ledger else []
            facts, results, made, risk = _made(db, spec, source, key, draft, composed)
            if ledger is not None:
                ledger.record(made, key, facts)
            draft.commit(made)
    warnings = [risk.warning()] if risk is not None and risk.exceeds() else []
    return Published(spec.target, _shown(spec, source, facts), results, time.monotonic() - clock, warnings)


def _made(
    db: Engine, spec: Spec, source: Prepared | PreparedSets, key: Key, draft: Draft, composition: list[str]
) -> tuple[dict[str, Any], list[Result], Path, Risk | None]:
    """The release in its draft, checked: its facts, the checks, its file or folder, and what can be learnt from it."""
    mechanism = of(spec.mechanism.kind)
    db.attach(draft.database, "release", read_only=False)
    facts = mechanism.publish(db, source, spec.mechanism, key)
    manifest = _manifest(db, spec, source, key, facts).model_copy(update={"composition": composition})
    risk = quick_learning_risk(db, manifest, "release")
    manifest = manifest.model_copy(update={"learning_risk": risk.as_facts() if risk else None})
    db.view(manifest.name, mechanism.view(manifest), into="release")
    db.put("manifest", manifest.as_table())
    db.make(MANIFEST, sqlfiles.all_rows(temp("manifest")), into="release", title="Checking the release")
    results = examine(db, manifest, "release", whole=False)
    _must_hold(results)
    if spec.release.format == "parquet":
        for name in (*mechanism.tables(manifest), MANIFEST):
            db.export(table(name, "release"), draft.parquet / f"{name}.parquet")
    db.detach("release")
    made = draft.parquet if spec.release.format == "parquet" else draft.database
    if made.is_dir():
        _must_hold(verify(made).checks)  # what Parquet made of the types
    return facts, results, made, risk


def _ledger(
    db: Engine, spec: Spec, source: Prepared | PreparedSets
) -> AbstractContextManager[ledgers.Ledger | budgets.Budget | None]:
    """The ledger of a source, open: of records and groups, or of budgets."""
    if isinstance(source, PreparedSets) or spec.is_private:
        return budgets.opened(db, spec, source)
    return ledgers.opened(db, spec, source)


def _key(spec: Spec) -> Key:
    """Fresh, or the one beside the ledger, so that a repeat gives the same release."""
    ledger = None if spec.is_private else ledgers.path_of(spec)
    return key_file(ledger.with_suffix(".key")) if ledger is not None else system_key()


def _source(db: Engine, spec: Spec, *, named_records: bool = False) -> Prepared | PreparedSets:
    """The source, mounted and counted."""
    if spec.columns.sets:
        return prepare_sets(db, spec)
    return prepare(db, spec, named_records=named_records and not spec.is_private)


def _prepared(db: Engine, spec: Spec) -> Prepared | PreparedSets:
    """The source, ready to be published under the specification's names."""
    source = _source(db, spec, named_records=ledgers.path_of(spec) is not None)
    refuse_collisions(source.roles, spec.name, of(spec.mechanism.kind))
    return source


def _may_write(spec: Spec, *, replace: bool) -> None:
    """``UsageError`` unless the target is free, or a release that may be replaced. It is never the source."""
    target = spec.target
    if not target.exists():
        return
    if target.resolve() == spec.source.path.resolve():
        raise UsageError(f"{target} is the source, not a release; give another target")
    if not replace:
        raise UsageError(f"{target} exists; give --replace to publish over it")
    try:
        inspect(target)
    except PrivsqlError as error:
        raise UsageError(f"{target} is not a release of privsql; it is not replaced") from error


def plan(spec: Spec, *, options: Options | None = None) -> Published:
    """What ``publish`` would do: feasibility, setting, loss and bound; nothing is written."""
    clock = time.monotonic()
    with workroom(options) as db:
        source = _prepared(db, spec)
        facts = of(spec.mechanism.kind).plan(db, source, spec.mechanism)
    return Published(None, _shown(spec, source, facts), [], time.monotonic() - clock)


def verify(
    path: Path, spec: Spec | None = None, *, against: Sequence[Path] = (), options: Options | None = None
) -> Verified:
    """Check a release from its published file, against its source if ``spec`` is given, and beside other releases.

    ``against`` are other releases of the same subjects: what an adversary who has them all can tell, and with ``spec``
    what its ledger says of their records.
    """
    with opened(path) as (db, manifest, _):
        # Against a source all checks run there, where both are open; here only what makes that safe.
        results = examine(db, manifest, None) if spec is None else contents(db, manifest, None)
    if spec is not None and results[0].ok:
        with beside(path, spec, manifest, options) as (db, source):
            results = examine(db, manifest, "release", source=source, asked=spec.mechanism)
    if path.is_dir():
        results += run(
            None, [Check("the folder holds the stated tables and nothing else", lambda: _strangers(path, manifest))]
        )
    if against and all(result.ok for result in results):
        results += _together([*against, path], spec)
    return Verified(results, _notes(manifest))


def _together(paths: Sequence[Path], spec: Spec | None) -> list[Result]:
    """What several releases tell together; each is seen to hold what it states before it is read."""
    manifests = []
    for other in paths:
        with opened(other) as (db, manifest, _):
            held = contents(db, manifest, None)
            if not held[0].ok:
                raise GuaranteeError(f"{other}: {held[0].name}: {'; '.join(held[0].offending)}")
            manifests.append(manifest)
    names = [other.name for other in paths]
    comparable(names, manifests)
    with scratch() as db:
        for i, other in enumerate(paths):
            db.load(other, f"r{i}") if other.is_dir() else db.attach(other, f"r{i}", read_only=True)
        results = run(db, published_checks(db, names, manifests))
        if spec is not None:
            results += _by_record(db, paths, spec, manifests[-1])
    return results


def _by_record(db: Engine, paths: Sequence[Path], spec: Spec, manifest: Manifest) -> list[Result]:
    """The same by the records that the ledger knows; ``UsageError`` for a release that it does not."""
    with ledgers.read(db, spec) as entries:
        by_digest = {entry.digest: entry for entry in entries}
        found = [by_digest.get(ledgers.digest(path)) for path in paths]
        strange = next((path for path, entry in zip(paths, found, strict=True) if entry is None), None)
        if strange is not None:
            raise UsageError(f"{strange} is not in the ledger of {spec.source.path}")
        listed = sorted({entry.number: entry for entry in found if entry}.values(), key=lambda entry: entry.number)
        return run(db, record_checks(db, entries, listed, manifest))


@contextmanager
def workroom(options: Options | None = None) -> Iterator[Engine]:
    """An empty engine for the time of a verb, with a folder to spill to."""
    with (
        tempfile.TemporaryDirectory(prefix="privsql-") as folder,
        _workshop(Path(folder), options or Options()) as db,
    ):
        yield db


@contextmanager
def beside(
    path: Path, spec: Spec, manifest: Manifest, options: Options | None = None
) -> Iterator[tuple[Engine, Prepared | PreparedSets]]:
    """A release, its tables in database ``release``, beside the sorted records of its source.

    Raises ``UsageError`` if the specification is not for such a release.
    """
    with workroom(options) as db:
        source = _source(db, spec)
        _same_roles(manifest, source)
        _same_mechanism(manifest, spec)
        source.sort()
        _attach(db, path, manifest)
        yield db, source


def _strangers(path: Path, manifest: Manifest) -> list[str]:
    """Files of a release's folder that do not belong there."""
    own = {path / f"{name}.parquet" for name in (*of(manifest.mechanism).tables(manifest), MANIFEST)}
    return [f"{file.relative_to(path)} does not belong here" for file in sorted(path.rglob("*")) if file not in own]


@dataclass(frozen=True)
class Evaluated:
    """Scores by estimator, and what the release's channel can tell."""

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)  # by estimator: what item sets have besides

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {name: found.summary() | self.extras.get(name, {}) for name, found in self.scores.items()}
        return {**shown, "channel": self.channel, "confidence": self.confidence}


@dataclass(frozen=True)
class Workload:
    """What to evaluate with: ``equality``, ``random`` or ``ranges`` predicates, or the queries of ``file``."""

    kind: str = "equality"
    queries: int = 1200
    attributes: int = 3
    selectivity: float = 0.05
    seed: int = 1
    file: Path | None = None


def evaluate(
    path: Path,
    spec: Spec,
    workload: Workload | None = None,
    *,
    confidence: float = 0.95,
    options: Options | None = None,
) -> Evaluated:
    """Compare a release's answers with those of its source."""
    asked, options = workload or Workload(), options or Options()
    report = options.report or Silent()
    with (
        tempfile.TemporaryDirectory(prefix="privsql-") as folder,
        _workshop(Path(folder), replace(options, report=None)) as db,
        Release(path) as release,
    ):
        source = _source(db, spec)
        _same_roles(release.manifest, source)
        source.sort()
        source.named(release.manifest.name)
        if isinstance(source, PreparedSets) and asked.file is None:
            return _evaluated_sets(release, source, asked, confidence)
        questions, number = _questions(db, source, release.manifest.name, asked)

        def truth(sql: str) -> Truth:
            return {tuple(row[:-1]): float(row[-1] or 0) for row in db.ask(sql)}

        def answer(sql: str, estimator: str) -> Answer:
            return release.query(sql, confidence=confidence, estimator=estimator)

        scores = score(questions, number, answer, truth, report)
        channel = quality(release.channel) if source.roles.quasi_identifiers else {}
        return Evaluated(scores, channel, confidence)


def _evaluated_sets(release: Release, source: PreparedSets, asked: Workload, confidence: float) -> Evaluated:
    """Counting queries over random items by length, and the most frequent item sets."""
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r}: a release of item sets takes a file, or queries by length")
    sets, true = release.item_sets, source.holdings()
    if sets.labels != source.labels:
        raise UsageError("the specification's universe is not that of the release")
    draw = seed_key(asked.seed).stream("workload", "items")
    scores: dict[str, Score] = {}
    extras: dict[str, dict[str, Any]] = {}
    queries = classes(true.longest, max(1, asked.queries // len(SHARES)), true.items, draw)
    truth = {share: [float(true.weights[true.holding(q)].sum()) for q in questions] for share, questions in queries}
    for name, holdings in (("baseline", sets.counted), ("reconstructed", sets.holdings)):
        scores[name], found = Score(), []
        for share, questions in queries:
            answers = [sets.containing(question, name, confidence) for question in questions]
            for one, value in zip(answers, truth[share], strict=True):
                scores[name].add(value, (one.estimate or 0.0, one.low or 0.0, one.high or 0.0))
            found.append(by_class(share, truth[share], answers, source.records))
        extras[name] = {"classes": found, "top": tops(true, holdings)}
    return Evaluated(scores, {}, confidence, extras)


def itemsets(path: Path, *, top: int = 20, estimator: str = "reconstructed") -> list[tuple[list[str], float]]:
    """The ``top`` most frequent item sets of a release, each with its estimated number of records.

    Raises ``UsageError`` for a release of another kind.
    """
    if top < 1:
        raise UsageError(f"--top {top} must be at least 1")
    with Release(path) as release:
        sets = release.item_sets
        if estimator not in ("reconstructed", "baseline"):
            raise UsageError(f"estimator {estimator!r} is not one of reconstructed, baseline")
        holdings = sets.counted if estimator == "baseline" else sets.holdings
        return [([sets.labels[code] for code in chosen], support) for chosen, support in holdings.top(top)]


def synthesize(path: Path, to: Path) -> int:
    """Write (record, item) rows of synthetic records that give about a release's estimates, as Parquet; how many rows.

    They are made from the release alone. Raises ``UsageError`` for a release of another kind, or if ``to`` exists.
    """
    if to.suffix != ".parquet" or to.exists():
        raise UsageError(f"--synthetic {to}: must be a new file that ends in .parquet")
    with Release(path) as release, scratch() as db:
        made = release.item_sets.synthetic()
        db.put("synthetic", made)
        db.export(temp("synthetic"), to)
        return int(made.num_rows)


def _questions(
    db: Engine, source: Prepared | PreparedSets, name: str, asked: Workload
) -> tuple[Iterable[Question], int]:
    noise = seed_key(asked.seed).stream("workload", asked.kind)
    if asked.file is not None:
        questions = from_file(asked.file)
        return questions, len(questions)
    if not source.roles.quasi_identifiers and asked.kind != "random":
        raise UsageError(f"workload {asked.kind!r} needs quasi-identifiers; take --workload random, or a file")
    if asked.kind == "random":
        shape = (asked.queries, asked.attributes, asked.selectivity)
        return random(db, source.roles, name, shape, noise), asked.queries
    if asked.kind == "ranges":
        if len(source.roles.sensitive) != 1:
            raise UsageError("workload 'ranges' needs one sensitive column")
        return ranges(db, source.roles, name, asked.queries, noise), asked.queries
    if asked.kind != "equality":
        raise UsageError(f"workload {asked.kind!r} is neither 'equality', 'random', 'ranges' nor a file")
    conditions = max(1, asked.queries // 4)
    return equality(db, source.roles, name, conditions, noise), conditions


def ledger(spec: Spec) -> list[ledgers.Entry]:
    """What the ledger of a source holds, oldest release first; ``UsageError`` if there is none."""
    return ledgers.listed(spec)


def init(
    path: Path,
    *,
    table: str | None = None,
    sensitive: str | None = None,
    kind: str = "bucketize",
    options: Options | None = None,
) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and feasible parameters."""
    of(kind)
    options = options or Options()
    if table is None and path.suffix.lower() not in FILE_KINDS:
        table = _only_table(path)
    with tempfile.TemporaryDirectory(prefix="privsql-") as folder:
        with _workshop(Path(folder), options) as db:
            if kind == PROPOSED["kind"]:
                return propose_sets(db, path, table, sensitive)
            if kind == "contingency":
                return propose_cells(db, path, table)
            proposed = propose(db, path, table, sensitive)
        with _workshop(Path(folder), options) as db:
            return feasible(db, proposed, kind)


def _only_table(path: Path) -> str:
    if not path.is_file():
        raise EngineError(f"{path}: no such file")
    with unlocked(path) as db:
        names = [name for kind, name, _ in db.objects(None) if kind in ("table", "view")]
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]


def _workshop(spill: Path, options: Options) -> Engine:
    return workshop(spill, memory_limit=options.memory_limit, threads=options.threads, report=options.report)


def _manifest(db: Engine, spec: Spec, source: Prepared | PreparedSets, key: Key, facts: dict[str, Any]) -> Manifest:
    return Manifest(
        privsql=__version__,
        duckdb=db.version(),
        name=spec.name,
        mechanism=spec.mechanism.kind,
        algorithm=spec.mechanism.algorithm,
        parameters=spec.mechanism.model_dump(mode="json", exclude_none=True),
        quasi_identifiers=list(source.roles.quasi_identifiers),
        sensitive=list(source.roles.sensitive),
        nulls={f.name: spec.columns.policy(f.name) for f in (*source.roles.quasi_identifiers, *source.roles.sensitive)},
        **_stated(spec, source, facts),
        randomness=key.origin,
        facts=facts,
        sql=sqlfiles.digests(of(spec.mechanism.kind).SQL),
    )


def _shown(spec: Spec, source: Prepared | PreparedSets, facts: dict[str, Any]) -> dict[str, Any]:
    """What ``publish`` and ``plan`` say of a release."""
    return {
        "mechanism": spec.mechanism.kind,
        "algorithm": spec.mechanism.algorithm,
        **_counts(source, facts),
        **facts,
    }


def _stated(spec: Spec, source: Prepared | PreparedSets, facts: dict[str, Any]) -> dict[str, Any]:
    """What the manifest says of them: nothing where an exact number would be no part of the guarantee."""
    return {} if spec.is_private else _counts(source, facts)


def _counts(source: Prepared | PreparedSets, facts: dict[str, Any]) -> dict[str, int]:
    """Records of the source, and what became of them."""
    left_out = facts.get("left_out", 0)
    return {
        "records": source.source_records,
        "published": source.records - left_out,
        "suppressed": source.suppressed + left_out,
    }


def _must_hold(results: list[Result]) -> None:
    failed = next((result for result in results if not result.ok), None)
    if failed is not None:
        offending = "; ".join(failed.offending)
        raise GuaranteeError(f"check failed, nothing written: {failed.name} ({failed.violations} rows: {offending})")


def _same_roles(manifest: Manifest, source: Prepared | PreparedSets) -> None:
    if manifest.roles != source.roles:
        raise UsageError("the specification's columns are not those of the release")


def _same_mechanism(manifest: Manifest, spec: Spec) -> None:
    if manifest.mechanism != spec.mechanism.kind:
        raise UsageError(f"the release is made by {manifest.mechanism}, the specification is for {spec.mechanism.kind}")


def _attach(db: Engine, path: Path, manifest: Manifest) -> None:
    """Make the release's tables readable in database ``release`` beside the source."""
    if path.is_file():
        db.attach(path, "release", read_only=True)
    else:
        db.load(path, "release")
        db.view(manifest.name, of(manifest.mechanism).view(manifest), into="release")


def _notes(manifest: Manifest) -> list[str]:
    notes = []
    if manifest.randomness == "seed":
        notes.append("made with a seed: whoever knows or guesses it can undo the assignment; for tests only")
    notes += manifest.composition
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes
