"""``publish`` and ``plan``: from a specification to a release that has passed its checks."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privsql._version import __version__
from privsql.attacks import absence
from privsql.engine import sqlfiles
from privsql.engine.names import fold
from privsql.engine.open import is_database, log_of
from privsql.engine.progress import Options
from privsql.engine.sqlfiles import table, temp
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.mechanisms.contract import Budget
from privsql.mechanisms.registry import of
from privsql.model.manifest import MANIFEST, Manifest
from privsql.noise import Key, key_file, system_key
from privsql.releases import budget as budgets
from privsql.releases import ledger as ledgers
from privsql.releases.contents import contents, examine
from privsql.releases.draft import Draft
from privsql.releases.opened import inspect
from privsql.releases.statements import learning_risk
from privsql.source.records import prepared
from privsql.verbs.room import workroom, workshop_in
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from privsql.engine.database import Workshop
    from privsql.engine.roles import Roles
    from privsql.mechanisms.contract import Mechanism
    from privsql.model.checks import Result
    from privsql.model.records import Records
    from privsql.source.spec import Spec


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
    with Draft(spec.target, replace=replace) as draft, workshop_in(draft.spill, options) as db:
        source = _prepared(db, spec)
        with _ledger(db, spec, source) as ledger:
            if ledger is not None:
                ledger.check(key, allow=allow_composition)
            composed = list(ledger.composition) if ledger else []
            facts, results, made, warnings = _made(db, spec, source, key, draft, composed)
            if ledger is not None:
                ledger.record(made, key, facts)
            draft.commit(made)
    return Published(spec.target, _shown(spec, source, facts), results, time.monotonic() - clock, warnings)


def _made(
    db: Workshop, spec: Spec, source: Records, key: Key, draft: Draft, composition: list[str]
) -> tuple[dict[str, Any], list[Result], Path, list[str]]:
    """The release in its draft, checked: its facts, the checks, its file or folder, and what to warn of."""
    mechanism = of(spec.mechanism.kind)
    db.attach(draft.database, "release", read_only=False)
    facts = mechanism.publish(db, source, spec.mechanism, key)
    manifest = _manifest(db, spec, source, key, facts).model_copy(update={"composition": composition})
    risk = learning_risk(db, manifest, "release")
    manifest = manifest.model_copy(update={"learning_risk": risk.as_facts() if risk else None})
    db.view(manifest.name, mechanism.view(manifest), into="release")
    db.put("manifest", manifest.as_table())
    db.make(MANIFEST, sqlfiles.all_rows(temp("manifest")), into="release", title="Checking the release")
    results = [*contents(db, manifest, "release"), *examine(db, manifest, "release", whole=False)]
    _must_hold(results)
    if spec.release.format == "parquet":
        for name in (*mechanism.tables(manifest), MANIFEST):
            db.export(table(name, "release"), draft.parquet / f"{name}.parquet")
    db.detach("release")
    made = draft.parquet if spec.release.format == "parquet" else draft.database
    if made.is_dir():
        _must_hold(verify(made).checks)  # what Parquet made of the types
    warnings = [risk.warning()] if risk is not None and risk.exceeds() else []
    return facts, results, made, [*warnings, *absence.told(manifest)]


def _ledger(
    db: Workshop, spec: Spec, source: Records
) -> AbstractContextManager[ledgers.Ledger | budgets.Spending | None]:
    """The ledger of a source, open: of records and groups, or of budgets."""
    if isinstance(of(spec.mechanism.kind).composition, Budget):
        return budgets.opened(db, spec)
    return ledgers.opened(db, spec, source)


def _key(spec: Spec) -> Key:
    """Fresh, or the one beside the ledger, so that a repeat gives the same release."""
    ledger = None if isinstance(of(spec.mechanism.kind).composition, Budget) else ledgers.path_of(spec)
    return key_file(ledger.with_suffix(".key")) if ledger is not None else system_key()


def _prepared(db: Workshop, spec: Spec) -> Records:
    """The source, ready to be published under the specification's names."""
    source = prepared(db, spec, named_records=ledgers.path_of(spec) is not None)
    _refuse_collisions(of(spec.mechanism.kind), source.roles, spec.name)
    return source


def _refuse_collisions(mechanism: Mechanism[Any], roles: Roles, name: str) -> None:
    """``UsageError`` if a column or the release is called like something that a release holds."""
    for role, taken in mechanism.reserved.items():
        for column in getattr(roles, role):
            if fold(column.name) in taken:
                raise UsageError(
                    f"column {column.name!r} would collide with a column of the release; rename it in source.query"
                )
    if fold(name) in {*mechanism.relations, MANIFEST}:
        raise UsageError(f"release.name {name!r} is the name of a table of the release; choose another")


def _planned(db: Workshop, spec: Spec, source: Records) -> dict[str, Any]:
    """The facts of the next release, beside those that a ledger knows of."""
    mechanism, path = of(spec.mechanism.kind), ledgers.path_of(spec)
    if path is None or not path.exists() or isinstance(mechanism.composition, Budget):
        return mechanism.plan(db, source, spec.mechanism)
    with ledgers.opened(db, spec, source) as ledger:
        if ledger is not None:
            ledger.check(_key(spec), allow=True)
        notes = {"composition": ledger.composition} if ledger and ledger.composition else {}
        return mechanism.plan(db, source, spec.mechanism) | notes


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
        _look_at(target)
    except (PrivsqlError, OSError) as error:
        if isinstance(error, EngineError | OSError) and is_database(target):  # it may well be one
            raise EngineError(f"{target}: can't be looked at, so it is not replaced: {error}") from error
        raise UsageError(f"{target} is not a release of privsql; it is not replaced") from error


def _look_at(target: Path) -> None:
    """Raise unless the target is a release; what another process may have left beside it goes with it."""
    if target.is_dir() or not log_of(target).exists():
        inspect(target)
        return
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.look-", dir=target.parent) as folder:
        alone = Path(folder) / target.name
        alone.hardlink_to(target)
        inspect(alone)


def plan(spec: Spec, *, options: Options | None = None) -> Published:
    """What ``publish`` would do: feasibility, setting, loss and bound; nothing is written."""
    clock = time.monotonic()
    with workroom(options) as db:
        source = _prepared(db, spec)
        facts = _planned(db, spec, source)
    return Published(None, _shown(spec, source, facts), [], time.monotonic() - clock)


def _manifest(db: Workshop, spec: Spec, source: Records, key: Key, facts: dict[str, Any]) -> Manifest:
    return Manifest(
        format=1,
        privsql=__version__,
        duckdb=db.version(),
        name=spec.name,
        mechanism=spec.mechanism.kind,
        algorithm=spec.mechanism.algorithm,
        parameters=spec.mechanism.model_dump(mode="json", exclude_none=True),
        quasi_identifiers=list(source.roles.quasi_identifiers),
        sensitive=list(source.roles.sensitive),
        nulls={f.name: spec.columns.policy(f.name) for f in (*source.roles.quasi_identifiers, *source.roles.sensitive)},
        **_counts(spec, source, facts),
        randomness=key.origin,
        facts=facts,
        sql=sqlfiles.digests(of(spec.mechanism.kind).sql),
    )


def _shown(spec: Spec, source: Records, facts: dict[str, Any]) -> dict[str, Any]:
    """What ``publish`` and ``plan`` say of a release."""
    return {
        "mechanism": spec.mechanism.kind,
        "algorithm": spec.mechanism.algorithm,
        **_counts(spec, source, facts),
        **facts,
    }


def _counts(spec: Spec, source: Records, facts: dict[str, Any]) -> dict[str, Any]:
    """Records of the source, and what became of them: nothing where an exact number is no part of the guarantee."""
    if not of(spec.mechanism.kind).states_counts:
        return dict.fromkeys(("records", "published", "suppressed"))
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
