"""``publish`` and ``plan``: from a specification to a release that has passed its checks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from privsql import keyed_random, markup
from privsql._version import __version__
from privsql.attacks import adversaries
from privsql.calls import as_path, known, whole
from privsql.engine import sqlfiles
from privsql.engine.files import fold, temporary
from privsql.engine.open import is_database, log_of
from privsql.engine.progress import running
from privsql.engine.sqlfiles import table, temp
from privsql.errors import EngineError, GuaranteeError, InfeasibleError, PrivsqlError, UsageError
from privsql.mechanisms.registry import of
from privsql.model.manifest import MANIFEST, Manifest
from privsql.releases.contents import contents, renamed_columns, stored_orders
from privsql.releases.draft import Draft, aside, digest, exists, sweep
from privsql.releases.ledger.keeping import chosen_for, publication, ready
from privsql.releases.ledger.publication import Wish
from privsql.releases.opened import Housed, inspect, settle, write_afresh
from privsql.releases.statements import examine, learning_risk
from privsql.source.keywords import Publishing, apart, specified
from privsql.source.places import parted
from privsql.source.records import overlaps, prepared
from privsql.source.table import coarser
from privsql.verbs.session import source_in, workshop_in
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Unpack

    from privsql.engine.database import Elsewhere, Warehouse, Workshop
    from privsql.engine.progress import Options
    from privsql.engine.roles import Roles
    from privsql.keyed_random import Key
    from privsql.model.manifest import Result
    from privsql.model.records import Records
    from privsql.releases.ledger.publication import Publication
    from privsql.source.keywords import Given, Planning
    from privsql.source.spec import Spec

# Results --------------------------------------------------------------------------------------------------------------
# What ``publish`` and ``plan`` give back.


@dataclass(frozen=True, repr=False)
class Published:
    """A release that was written, or (``release`` None) that could be; ``ledger``: what the publisher's ledger says.

    ``spec``: the whole specification, with its table where that lies in Python: what ``verify``, ``evaluate`` and
    ``attack`` take as ``source``. Where a path of a release is wanted, this may stand for it. ``search_seconds``: of a
    processor that a plan's search took, where the mechanism says so.
    """

    release: Path | None
    facts: dict[str, Any]
    ledger: dict[str, Any] = field(default_factory=dict)
    checks: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    spec: Spec | None = field(default=None, repr=False)
    search_seconds: float | None = None

    def __fspath__(self) -> str:
        """The path of the release; ``UsageError`` for a plan."""
        if self.release is None:
            raise UsageError("this is a plan; publish it first")
        return str(self.release)

    @property
    def lines(self) -> list[tuple[str, object]]:
        """What a person is told of it: names, and what they stand for."""
        facts = self.facts
        rows: list[tuple[str, object]] = [("mechanism", f"{facts['mechanism']}, {facts['algorithm']}")]
        if facts["published"] is not None:
            rows.append(("records", f"{facts['published']:,} published, {facts['suppressed']:,} suppressed"))
        rows += [*of(facts["mechanism"]).figures(facts), *self._kept()]
        if self.checks:
            rows.append(("checks", f"{len(self.checks)} passed"))
        return [*rows, ("time", f"{self.seconds:.2f} s")]

    def _kept(self) -> list[tuple[str, object]]:
        """What the publisher's ledger says of a release, or of one that there could be."""
        told = self.ledger
        rows: list[tuple[str, object]] = []
        if "spent" in told:
            here = " with this one" if self.release is not None else ""
            rows.append(("budget", f"epsilon {told['spent']} spent{here}, {capped(told['cap'])}"))
        if told.get("off"):
            rows.append(("ledger", "none is kept, and the release says so"))
        if "release" in told:
            replaced = f"; release {told['withdrawn']}, which it replaces, is withdrawn" if "withdrawn" in told else ""
            rows.append(("ledger", f"release {told['release']}{replaced}"))
        return rows

    def __repr__(self) -> str:
        told = f"release={str(self.release)!r}" if self.release is not None else "a plan"
        return f"<Published {told}: {self.facts['mechanism']}, {self.facts['algorithm']}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        title = "Plan: nothing is written" if self.release is None else f"Release {self.release}"
        warned = [markup.line(f"warning: {one}") for one in self.warnings]
        return markup.page(title, markup.pairs(self.lines), *warned)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {"release": str(self.release) if self.release else None, **self.facts}
        return {
            **shown,
            "ledger": self.ledger,
            "checks": [check.as_json() for check in self.checks],
            "seconds": round(self.seconds, 3),
            **({} if self.search_seconds is None else {"search_seconds": self.search_seconds}),
            "warnings": self.warnings,
        }


def capped(cap: str | None) -> str:
    """The most that may be spent, in words."""
    return "no cap is set" if cap is None else f"of at most {cap}"


# Publish --------------------------------------------------------------------------------------------------------------
# ``publish`` and ``plan``: from a specification to a release that has passed its checks.

OWN = ("key", "key_file", "seed", "replace", "allow_composition")  # keywords of publish alone


def publish(spec: Given, **how: Unpack[Publishing]) -> Published:
    """Publish the release that ``spec`` asks for; it exists only once every check has passed.

    ``spec``: a TOML path, plain data or a ``Spec``; or a source, which is a table in Python (of pandas, Polars, DuckDB
    or Arrow) or the path of one, with keywords for the rest, which are called as the flags of the command line are:
    ``publish(df, sensitive="disease", quasi_identifiers=["age", "sex"], threshold=0.1, to="release.duckdb")``.

    ``key`` makes every random choice (default: one that follows from the ledger's key, the records and the request, or
    fresh from the operating system where there is no ledger); the same key and the same records give the same release.
    ``key_file`` holds one, ``seed`` makes one for tests. Subjects that the ledger knows are only published again if a
    guarantee covers both, or if ``allow_composition``, which the release says. ``replace``: a release that is there is
    replaced. Raises ``InfeasibleError``, ``UsageError``, ``EngineError``, ``GuaranteeError``.
    """
    known(how, Publishing.__annotations__, "publish")
    own = {name: value for name, value in how.items() if name in OWN}
    asked, rest = apart({name: value for name, value in how.items() if name not in own})
    meant, key = specified(spec, asked, verb="publish"), _key(own)
    with running(rest, "publish") as options:
        return _published(
            meant,
            key,
            replace=bool(own.get("replace")),
            allow_composition=bool(own.get("allow_composition")),
            options=options,
        )


def _key(own: Mapping[str, Any]) -> Key | None:
    """The key of a release, if its publisher names one."""
    given = {name: own[name] for name in ("key", "key_file", "seed") if own.get(name) is not None}
    if len(given) > 1:
        raise UsageError(f"give {' or '.join(given)}, not both")
    if "seed" in given:
        return keyed_random.seed_key(whole(given["seed"], "seed", None))
    if "key_file" in given:
        return keyed_random.key_file(as_path(given["key_file"], "key_file"))
    key = given.get("key")
    if key is not None and not isinstance(key, keyed_random.Key):
        raise UsageError("key: give a key of privsql.keyed_random, or key_file, the path of a file that holds one")
    return key


def _published(spec: Spec, key: Key | None, *, replace: bool, allow_composition: bool, options: Options) -> Published:
    clock = time.monotonic()
    settle(spec.target)
    _may_write(spec, replace=replace)
    with (
        (Draft if spec.release.schema_ is None else Housed)(spec.target, replace=replace) as draft,
        workshop_in(draft.spill, options) as db,
        source_in(spec, db, draft.spill, options) as there,
    ):
        replaces = digest(spec.target) if exists(spec.target) else None
        kept = _kept(
            db, there, Wish(spec, ready(db, spec, publishing=True), key, allow_composition, replaces), publishing=True
        )
        kept.check()
        try:
            facts, results, made, warnings = _made(kept, draft)
        except InfeasibleError:
            kept.refused()
            raise
        with kept.recorded(made, facts):
            db.let_go()
            draft.commit(made)
    shown = _shown(spec, kept.source, facts)
    warnings += _of_the_table(spec) + _of_the_place(spec)
    return Published(spec.target, shown, kept.told(), results, time.monotonic() - clock, warnings, spec)


def _made(kept: Publication, draft: Draft) -> tuple[dict[str, Any], list[Result], Path, list[str]]:
    """The release in its draft, checked: its facts, the checks, its file or folder, and what to warn of."""
    db, spec, key = kept.db, kept.wish.spec, kept.key
    mechanism = of(spec.mechanism.kind)
    db.attach(draft.database, "release", read_only=False)
    bound = kept.source.bound(key) if kept.binds else key
    facts = _dealt(kept, draft, bound)
    manifest = _manifest(db, spec, kept.source, key, facts).model_copy(update={"composition": kept.said})
    manifest = manifest.model_copy(update={"own_columns": renamed_columns(manifest)})
    named = stored_orders(db, manifest, kept.source.roles.orders, "release")
    manifest = manifest.model_copy(update={"orders": named})
    risk = learning_risk(db, manifest, "release")
    manifest = manifest.model_copy(update={"learning_risk": risk.as_facts() if risk else None})
    db.view(manifest.name, mechanism.view(manifest), into="release")
    db.put("manifest", manifest.as_table())
    db.make(MANIFEST, sqlfiles.all_rows(temp("manifest")), into="release", title="Checking the release")
    held = (
        [] if kept.source.db is not db else contents(db, manifest, "release")
    )  # else they are views, until it is done
    results = [*held, *examine(db, manifest, "release", whole=False)]
    _must_hold(results)
    kept.read(mechanism.tables(manifest))
    if spec.format == "parquet":
        for name in (*mechanism.tables(manifest), MANIFEST):  # which comes last
            if not (draft.parquet / f"{name}.parquet").exists():
                db.export(table(name, "release"), draft.parquet / f"{name}.parquet")
    db.detach("release")
    made = draft.parquet if spec.format == "parquet" else write_afresh(draft.database, manifest)
    if made.is_dir():
        _must_hold(verify(made).checks)  # what Parquet made of the types
    warnings = [risk.warning()] if risk is not None and risk.exceeds() else []
    warnings += [f"persons: {manifest.persons}"] if manifest.persons is not None and manifest.persons.several else []
    warnings += _collated(cast("Warehouse", kept.source.db), kept.source.roles)
    return (
        facts,
        results,
        made,
        [*warnings, *mechanism.warnings(manifest.described()), *adversaries.explain_absence(manifest)],
    )


def _dealt(kept: Publication, draft: Draft, key: Key) -> dict[str, Any]:
    """The tables of the release, made where the source lies, in database ``release``; returns the facts."""
    db, source, asked = kept.db, kept.source, kept.wish.spec.mechanism
    if source.db is db:
        return of(asked.kind).publish(db, source, asked, key)
    there, parts = cast("Elsewhere", source.db), draft.parquet
    there.released(parts)
    facts = of(asked.kind).publish(there, source, asked, key)
    keep = db.view if kept.wish.spec.format == "parquet" else db.make
    for folder in sorted(parts.iterdir()):
        keep(folder.stem, db.scanned(sorted(folder.iterdir()), "parquet"), into="release")
    return facts


def _collated(db: Warehouse, roles: Roles) -> list[str]:
    """What the publisher should know of columns whose values are compared by a collation in the source."""
    texts = [field.name for field in (*roles.quasi_identifiers, *roles.sensitive) if field.type == "VARCHAR"]
    found = db.collated(temp("source"), texts) if texts else {}
    return [
        f"column {name!r} is compared by the collation {collation} in the source and as plain text in the release, "
        "where values that are equal by it are different ones; write them alike in source.query if that is not meant"
        for name, collation in found.items()
    ]


def _kept(db: Workshop, there: Warehouse, wish: Wish, *, publishing: bool) -> Publication:
    """The source, ready to be published under the specification's names, and what the ledger asks of that."""
    spec = wish.spec
    choice = chosen_for(db, wish, publishing=publishing)
    source = prepared(there, spec, for_ledger=wish.path is not None, choice=choice)
    if fold(spec.name) in {*of(spec.mechanism.kind).relations, MANIFEST}:
        raise UsageError(f"release.name {spec.name!r} is the name of a table of the release; choose another")
    return publication(db, source, wish)


def _may_write(spec: Spec, *, replace: bool) -> None:
    """``UsageError`` unless the target is free, or a release that may be replaced. It is never the source."""
    target = spec.target
    if overlaps(spec.source, target):
        what = "is the source, not a release" if target.is_file() else "is, or would be, among the files of the source"
        raise UsageError(f"{target} {what}; give another target")
    if not exists(target):
        return
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
    if target.is_dir() or parted(target)[1] is not None or not log_of(target).exists():
        inspect(target)
        return
    with aside(target) as folder:
        alone = folder / target.name
        alone.hardlink_to(target)
        inspect(alone)


def plan(spec: Given, **how: Unpack[Planning]) -> Published:
    """What ``publish`` would do: feasibility, setting, loss and bound; nothing is written.

    ``spec`` and keywords: as of ``publish``. Raises the same.
    """
    asked, rest = apart(how)
    written = next((name for name in OWN if asked.get(name) is not None), None)
    if written is not None:
        raise UsageError(f"plan has no keyword {written!r}: it writes nothing; publish has it")
    meant = specified(spec, asked, verb="plan")
    with running(rest, "plan") as options:
        return _planned(meant, options)


def _planned(spec: Spec, given: Options) -> Published:
    clock = time.monotonic()
    sweep(spec.target)
    with temporary() as folder, workshop_in(folder, given) as db, source_in(spec, db, folder, given) as there:
        kept = _kept(db, there, Wish(spec, ready(db, spec)), publishing=False)
        if kept.wish.path is not None and kept.wish.path.exists():
            kept.look()
        facts = of(spec.mechanism.kind).plan(there, kept.source, spec.mechanism)
        facts |= {"composition": kept.said} if kept.said else {}
    searched = facts.pop("search_seconds", None)  # facts follow from what is asked alone
    shown, seconds = _shown(spec, kept.source, facts), time.monotonic() - clock
    return Published(None, shown, kept.told(), [], seconds, _of_the_table(spec), spec, searched)


def _of_the_table(spec: Spec) -> list[str]:
    """What should be known of how a table in Python was read."""
    read = spec.source.frame
    return [] if read is None else read.said(spec.columns.names, queried=spec.source.query is not None)


def _of_the_place(spec: Spec) -> list[str]:
    """What should be known of a database that holds other things as well."""
    if spec.release.schema_ is None:
        return []
    beside = spec.source.database is not None and overlaps(spec.source, spec.place)
    what = "the source, and what" if beside else "what"
    return [f"{spec.place} also holds {what} else lies in its other schemas: do not hand that file out"]


def _manifest(db: Workshop, spec: Spec, source: Records, key: Key, facts: dict[str, Any]) -> Manifest:
    coarse = coarser(source.roles.quasi_identifiers, spec.columns)
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
        bins=coarse["bins"],
        groups=coarse["groups"],
        place="schema" if spec.release.schema_ is not None else None,
        persons=source.persons,
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
