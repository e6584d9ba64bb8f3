"""The verbs: the only place where engine, mechanism and release meet."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql import sqlfiles
from privsql._version import __version__
from privsql.answer import Answer, present
from privsql.countquery import read
from privsql.engine.duck import Engine, locked, locked_folder, workshop
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.mechanisms.bucketize import checks, estimate, mechanism
from privsql.noise import Key, system_key
from privsql.prepare import Prepared, prepare
from privsql.propose import feasible_threshold, propose
from privsql.release import MANIFEST, Draft, Manifest
from privsql.spec import FILE_KINDS
from privsql.sqlfiles import table, temp
from privsql.verify import examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privsql.checks import Result
    from privsql.progress import Reporter
    from privsql.spec import Spec


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

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {"release": str(self.release) if self.release else None, **self.facts}
        return {
            **shown,
            "checks": [check.as_json() for check in self.checks],
            "seconds": round(self.seconds, 3),
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


def publish(spec: Spec, *, key: Key | None = None, replace: bool = False, options: Options | None = None) -> Published:
    """Publish the release that ``spec`` asks for; it exists only once every check has passed.

    ``key`` makes every random choice (default: fresh from the operating system); the same key and the same
    records give the same release. Raises ``InfeasibleError``, ``UsageError``, ``EngineError``, ``GuaranteeError``.
    """
    options, key, clock = options or Options(), key or system_key(), time.monotonic()
    with Draft(spec.target, replace=replace) as draft, _workshop(draft.spill, options) as db:
        source = prepare(db, spec)
        db.attach(draft.database, "release", read_only=False)
        facts = mechanism.publish(db, source, spec.mechanism, key, spec.name)
        manifest = _manifest(db, spec, source, key, facts)
        db.view(manifest.name, mechanism.view(manifest.roles, facts), into="release")
        db.put("manifest", manifest.as_table())
        db.make(MANIFEST, sqlfiles.all_rows(temp("manifest")), into="release", title="Checking the release")
        results = examine(db, manifest, "release")
        _must_hold(results)
        if spec.release.format == "parquet":
            for name in (*checks.tables(manifest.roles), MANIFEST):
                db.export(table(name, "release"), draft.parquet / f"{name}.parquet")
        db.detach("release")
        made = draft.parquet if spec.release.format == "parquet" else draft.database
        if made.is_dir():
            _must_hold(verify(made).checks)  # what Parquet made of the types
        draft.commit(made)
    return Published(spec.target, _shown(manifest), results, time.monotonic() - clock)


def plan(spec: Spec, *, options: Options | None = None) -> Published:
    """What ``publish`` would do: feasibility, setting, loss and bound; nothing is written."""
    clock = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="privsql-") as folder,
        _workshop(Path(folder), options or Options()) as db,
    ):
        source = prepare(db, spec)
        found, _ = mechanism.plan(db, source, spec.mechanism)
        head = _head(spec, source.source_records, source.records, source.suppressed)
    return Published(None, head | mechanism.summary(found), [], time.monotonic() - clock)


def verify(path: Path, spec: Spec | None = None, *, options: Options | None = None) -> Verified:
    """Check a release from its published file, and against its source if ``spec`` is given."""
    with opened(path) as (db, manifest):
        results = examine(db, manifest, None)
    if spec is not None and results[0].ok:
        with (
            tempfile.TemporaryDirectory(prefix="privsql-") as folder,
            _workshop(Path(folder), options or Options()) as db,
        ):
            source = prepare(db, spec)
            _same_roles(manifest, source)
            source.sort()
            _attach(db, path, manifest)
            results = examine(db, manifest, "release", source)
    return Verified(results, _notes(manifest))


@contextmanager
def opened(path: Path) -> Iterator[tuple[Engine, Manifest]]:
    """A release opened alone, read-only and locked, with its manifest."""
    with locked_folder(path) if path.is_dir() else locked(path) as db:
        manifest = _read_manifest(db, path)
        if path.is_dir():
            db.view(manifest.name, mechanism.view(manifest.roles, manifest.facts), into="memory")
        yield db, manifest


def query(path: Path, sql: str, *, confidence: float = 0.95, estimator: str = "baseline") -> Answer:
    """Answer a count query from a release alone.

    Raises ``UsageError`` for whatever is not supported, and never answers it.
    """
    if not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence} lies outside (0, 1)")
    with opened(path) as (db, manifest):
        asked = read(sql, manifest.roles, manifest.name)
        found = estimate.baseline(db, asked, manifest.facts)
        columns, rows = present(db, asked, found)
        text = sqlfiles.render(estimate.statement(asked, manifest.facts))
    exact = "QIT answers this exactly" if asked.is_exact else estimate.FORMULA
    return Answer(columns, rows, 1.0, estimator, text, exact)


def inspect(path: Path) -> Manifest:
    """What a release says of itself."""
    with opened(path) as (_, manifest):
        return manifest


def init(path: Path, *, table: str | None = None, sensitive: str | None = None, options: Options | None = None) -> str:
    """TOML of a proposed specification for a source: roles, domain sizes and a threshold that is feasible."""
    options = options or Options()
    if table is None and path.suffix.lower() not in FILE_KINDS:
        table = _only_table(path)
    with tempfile.TemporaryDirectory(prefix="privsql-") as folder:
        with _workshop(Path(folder), options) as db:
            proposed = propose(db, path, table, sensitive)
        with _workshop(Path(folder), options) as db:
            return feasible_threshold(db, proposed)


def _only_table(path: Path) -> str:
    if not path.is_file():
        raise EngineError(f"{path}: no such file")
    with locked(path) as db:
        names = [name for kind, name, _ in db.objects(None) if kind in ("table", "view")]
    if len(names) != 1:
        raise UsageError(f"{path} holds {', '.join(names) or 'no table'}; choose one with --table")
    return names[0]


def _read_manifest(db: Engine, path: Path) -> Manifest:
    try:
        return Manifest.of_rows(db.rows(sqlfiles.all_rows(table(MANIFEST))))
    except UsageError as error:
        raise UsageError(f"{path} is not a release of privsql: {error}") from error
    except PrivsqlError as error:
        raise type(error)(f"{path}: {error}") from error


def _workshop(spill: Path, options: Options) -> Engine:
    return workshop(spill, memory_limit=options.memory_limit, threads=options.threads, report=options.report)


def _manifest(db: Engine, spec: Spec, source: Prepared, key: Key, facts: dict[str, Any]) -> Manifest:
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
        records=source.source_records,
        published=source.records,
        suppressed=source.suppressed,
        randomness=key.origin,
        facts=facts,
        sql=sqlfiles.digests(mechanism.SQL),
    )


def _head(spec: Spec, records: int, published: int, suppressed: int) -> dict[str, Any]:
    return {
        "mechanism": spec.mechanism.kind,
        "algorithm": spec.mechanism.algorithm,
        "records": records,
        "published": published,
        "suppressed": suppressed,
    }


def _shown(manifest: Manifest) -> dict[str, Any]:
    head = {name: getattr(manifest, name) for name in ("mechanism", "algorithm", "records", "published", "suppressed")}
    return head | manifest.facts


def _must_hold(results: list[Result]) -> None:
    failed = next((result for result in results if not result.ok), None)
    if failed is not None:
        offending = "; ".join(failed.offending)
        raise GuaranteeError(f"check failed, nothing written: {failed.name} ({failed.violations} rows: {offending})")


def _same_roles(manifest: Manifest, source: Prepared) -> None:
    if manifest.roles != source.roles:
        raise UsageError("the specification's columns are not those of the release")


def _attach(db: Engine, path: Path, manifest: Manifest) -> None:
    """Make the release's tables readable in database ``release`` beside the source."""
    if path.is_file():
        db.attach(path, "release", read_only=True)
    else:
        db.load(path, "release")
        db.view(manifest.name, mechanism.view(manifest.roles, manifest.facts), into="release")


def _notes(manifest: Manifest) -> list[str]:
    notes = []
    if manifest.randomness == "seed":
        notes.append("made with a seed: whoever knows or guesses it can undo the assignment; for tests only")
    if manifest.privsql != __version__:
        notes.append(f"made by privsql {manifest.privsql}; this is {__version__}")
    return notes
