"""``publish`` and ``plan``: from a specification to a release that has passed its checks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from privsql import keyed_random, markup
from privsql._version import __version__
from privsql.attacks import adversaries
from privsql.calls import as_path, as_whole_number, refuse_unknown_keywords
from privsql.engine import sqlfiles
from privsql.engine.files import fold_name, temporary_folder
from privsql.engine.open import is_database, log_of
from privsql.engine.progress import options_from
from privsql.engine.sqlfiles import table, temp_table
from privsql.errors import EngineError, GuaranteeError, InfeasibleError, PrivsqlError, UsageError
from privsql.mechanisms.registry import get_mechanism
from privsql.model.manifest import FORMAT, MANIFEST, Manifest
from privsql.releases.contents import check_contents, renamed_columns, stored_orders
from privsql.releases.draft import Draft, digest_release, is_occupied, private_folder, sweep_drafts
from privsql.releases.ledger.keeping import make_choice, make_publication, prepare_ledger
from privsql.releases.ledger.publication import PublicationRequest
from privsql.releases.opened import SchemaDraft, inspect, replay_target_wal, rewrite_without_leftovers
from privsql.releases.statements import estimate_learning_risk, examine_release
from privsql.source.keywords import Publishing, as_spec, split_keywords
from privsql.source.places import split_address
from privsql.source.records import overlaps_source, prepare_records
from privsql.source.table import describe_coarsening
from privsql.verbs.session import open_workshop, source_session
from privsql.verbs.verify import verify

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Unpack

    from privsql.engine.database import DetachedWarehouse, EngineSession, Warehouse
    from privsql.engine.progress import Options
    from privsql.engine.roles import Roles
    from privsql.keyed_random import Key
    from privsql.model.manifest import CheckResult
    from privsql.model.records import Records
    from privsql.releases.ledger.publication import Publication
    from privsql.source.keywords import Planning, SpecLike
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
    checks: list[CheckResult] = field(default_factory=list)
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
        rows += [*get_mechanism(facts["mechanism"]).figures(facts), *self._ledger_lines()]
        if self.checks:
            rows.append(("checks", f"{len(self.checks)} passed"))
        return [*rows, ("time", f"{self.seconds:.2f} s")]

    def _ledger_lines(self) -> list[tuple[str, object]]:
        """What the publisher's ledger says of a release, or of one that there could be."""
        entry = self.ledger
        rows: list[tuple[str, object]] = []
        if "spent" in entry:
            here = " with this one" if self.release is not None else ""
            rows.append(("budget", f"epsilon {entry['spent']} spent{here}, {describe_cap(entry['cap'])}"))
        if entry.get("off"):
            rows.append(("ledger", "none is kept, and the release says so"))
        if "release" in entry:
            replaced = (
                f"; release {entry['withdrawn']}, which it replaces, is withdrawn" if "withdrawn" in entry else ""
            )
            rows.append(("ledger", f"release {entry['release']}{replaced}"))
        return rows

    def __repr__(self) -> str:
        what = f"release={str(self.release)!r}" if self.release is not None else "a plan"
        return f"<Published {what}: {self.facts['mechanism']}, {self.facts['algorithm']}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        title = "Plan: nothing is written" if self.release is None else f"Release {self.release}"
        warned = [markup.html_line(f"warning: {one}") for one in self.warnings]
        return markup.html_page(title, markup.html_pairs(self.lines), *warned)

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        head = {"release": str(self.release) if self.release else None, **self.facts}
        return {
            **head,
            "ledger": self.ledger,
            "checks": [check.as_json() for check in self.checks],
            "seconds": round(self.seconds, 3),
            **({} if self.search_seconds is None else {"search_seconds": self.search_seconds}),
            "warnings": self.warnings,
        }


def describe_cap(cap: str | None) -> str:
    """The most that may be spent, in words."""
    return "no cap is set" if cap is None else f"of at most {cap}"


# Publish --------------------------------------------------------------------------------------------------------------
# ``publish`` and ``plan``: from a specification to a release that has passed its checks.

PUBLISH_KEYWORDS = ("key", "key_file", "seed", "replace", "allow_composition")  # keywords of publish alone


def publish(spec: SpecLike, **how: Unpack[Publishing]) -> Published:
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
    refuse_unknown_keywords(how, Publishing.__annotations__, "publish")
    publish_keywords = {name: value for name, value in how.items() if name in PUBLISH_KEYWORDS}
    source_keywords, rest = split_keywords({name: value for name, value in how.items() if name not in publish_keywords})
    meant, key = as_spec(spec, source_keywords, verb="publish"), _release_key(publish_keywords)
    with options_from(rest, "publish") as options:
        return _publish_spec(
            meant,
            key,
            replace=bool(publish_keywords.get("replace")),
            allow_composition=bool(publish_keywords.get("allow_composition")),
            options=options,
        )


def _release_key(keywords: Mapping[str, Any]) -> Key | None:
    """The key of a release, if its publisher names one."""
    chosen = {name: keywords[name] for name in ("key", "key_file", "seed") if keywords.get(name) is not None}
    if len(chosen) > 1:
        raise UsageError(f"give {' or '.join(chosen)}, not both")
    if "seed" in chosen:
        return keyed_random.seed_key(as_whole_number(chosen["seed"], "seed", None))
    if "key_file" in chosen:
        return keyed_random.key_file(as_path(chosen["key_file"], "key_file"))
    key = chosen.get("key")
    if key is not None and not isinstance(key, keyed_random.Key):
        raise UsageError("key: give a key of privsql.keyed_random, or key_file, the path of a file that holds one")
    return key


def _publish_spec(
    spec: Spec, key: Key | None, *, replace: bool, allow_composition: bool, options: Options
) -> Published:
    clock = time.monotonic()
    replay_target_wal(spec.target)
    _require_writable(spec, replace=replace)
    with (
        (Draft if spec.release.schema_ is None else SchemaDraft)(spec.target, replace=replace) as draft,
        open_workshop(draft.spill_folder, options) as db,
        source_session(spec, db, draft.spill_folder, options) as there,
    ):
        replaces = digest_release(spec.target) if is_occupied(spec.target) else None
        prepared_publication = _prepare_publication(
            db,
            there,
            PublicationRequest(spec, prepare_ledger(db, spec, publishing=True), key, allow_composition, replaces),
            publishing=True,
        )
        prepared_publication.require_covered()
        try:
            facts, results, written, warnings = _make_release(prepared_publication, draft)
        except InfeasibleError:
            prepared_publication.record_refusal()
            raise
        with prepared_publication.record_commit(written, facts):
            db.let_go()
            draft.commit(written)
    summary = _release_facts(spec, prepared_publication.source, facts)
    warnings += _table_warnings(spec) + _place_warnings(spec)
    return Published(
        spec.target, summary, prepared_publication.as_facts(), results, time.monotonic() - clock, warnings, spec
    )


def _make_release(
    prepared_publication: Publication, draft: Draft
) -> tuple[dict[str, Any], list[CheckResult], Path, list[str]]:
    """The release in its draft, checked: its facts, the checks, its file or folder, and what to warn of."""
    db, spec, key = prepared_publication.db, prepared_publication.request.spec, prepared_publication.key
    mechanism = get_mechanism(spec.mechanism.kind)
    db.attach(draft.database_file, "release", read_only=False)
    bound = prepared_publication.source.bind_key(key) if prepared_publication.must_bind_key else key
    facts = _publish_tables(prepared_publication, draft, bound)
    manifest = _make_manifest(db, spec, prepared_publication.source, key, facts).model_copy(
        update={"composition": prepared_publication.statements}
    )
    manifest = manifest.model_copy(update={"own_columns": renamed_columns(manifest)})
    named = stored_orders(db, manifest, prepared_publication.source.roles.orders, "release")
    manifest = manifest.model_copy(update={"orders": named})
    risk = estimate_learning_risk(db, manifest, "release")
    manifest = manifest.model_copy(update={"learning_risk": risk.as_facts() if risk else None})
    db.create_view(manifest.name, mechanism.view(manifest), into="release")
    db.register_arrow("manifest", manifest.as_table())
    db.create_table(MANIFEST, sqlfiles.all_rows(temp_table("manifest")), into="release", title="Checking the release")
    held = (
        [] if prepared_publication.source.db is not db else check_contents(db, manifest, "release")
    )  # else they are views, until it is done
    results = [*held, *examine_release(db, manifest, "release", whole=False)]
    _require_checks_hold(results)
    prepared_publication.read_tables(mechanism.tables(manifest))
    if spec.format == "parquet":
        for name in (*mechanism.tables(manifest), MANIFEST):  # which comes last
            if not (draft.parquet_folder / f"{name}.parquet").exists():
                db.export_parquet(table(name, "release"), draft.parquet_folder / f"{name}.parquet")
    db.detach("release")
    if spec.format == "parquet":
        written = draft.parquet_folder
    else:
        written = rewrite_without_leftovers(db, draft.database_file, manifest)
    if written.is_dir():
        _require_checks_hold(verify(written).checks)  # what Parquet made of the types
    warnings = [risk.explain_risk()] if risk is not None and risk.exceeds_share() else []
    warnings += [f"persons: {manifest.persons}"] if manifest.persons is not None and manifest.persons.several else []
    warnings += _collation_warnings(
        cast("Warehouse", prepared_publication.source.db), prepared_publication.source.roles
    )
    return (
        facts,
        results,
        written,
        [*warnings, *mechanism.warnings(manifest.as_description()), *adversaries.explain_absence(manifest)],
    )


def _publish_tables(prepared_publication: Publication, draft: Draft, key: Key) -> dict[str, Any]:
    """The tables of the release, made where the source lies, in database ``release``; returns the facts."""
    db, source, params = (
        prepared_publication.db,
        prepared_publication.source,
        prepared_publication.request.spec.mechanism,
    )
    if source.db is db:
        return get_mechanism(params.kind).publish(db, source, params, key)
    there, parts = cast("DetachedWarehouse", source.db), draft.parquet_folder
    there.set_release_folder(parts)
    facts = get_mechanism(params.kind).publish(there, source, params, key)
    keep = db.create_view if prepared_publication.request.spec.format == "parquet" else db.create_table
    for folder in sorted(parts.iterdir()):
        keep(folder.stem, db.scan_files(sorted(folder.iterdir()), "parquet"), into="release")
    return facts


def _collation_warnings(db: Warehouse, roles: Roles) -> list[str]:
    """What the publisher should know of columns whose values are compared by a collation in the source."""
    texts = [field.name for field in (*roles.quasi_identifiers, *roles.sensitive) if field.type == "VARCHAR"]
    collations = db.list_collations(temp_table("source"), texts) if texts else {}
    return [
        f"column {name!r} is compared by the collation {collation} in the source and as plain text in the release, "
        "where values that are equal by it are different ones; write them alike in source.query if that is not meant"
        for name, collation in collations.items()
    ]


def _prepare_publication(
    db: EngineSession, there: Warehouse, request: PublicationRequest, *, publishing: bool
) -> Publication:
    """The source, ready to be published under the specification's names, and what the ledger asks of that."""
    spec = request.spec
    choice = make_choice(db, request, publishing=publishing)
    source = prepare_records(there, spec, for_ledger=request.path is not None, choice=choice)
    if fold_name(spec.name) in {*get_mechanism(spec.mechanism.kind).relations, MANIFEST}:
        raise UsageError(f"release.name {spec.name!r} is the name of a table of the release; choose another")
    return make_publication(db, source, request)


def _require_writable(spec: Spec, *, replace: bool) -> None:
    """``UsageError`` unless the target is free, or a release that may be replaced. It is never the source."""
    target = spec.target
    if overlaps_source(spec.source, target):
        what = "is the source, not a release" if target.is_file() else "is, or would be, among the files of the source"
        raise UsageError(f"{target} {what}; give another target")
    if not is_occupied(target):
        return
    if not replace:
        raise UsageError(f"{target} exists; give --replace to publish over it")
    try:
        _require_release(target)
    except (PrivsqlError, OSError) as error:
        if isinstance(error, EngineError | OSError) and is_database(target):  # it may well be one
            raise EngineError(f"{target}: can't be looked at, so it is not replaced: {error}") from error
        raise UsageError(f"{target} is not a release of privsql; it is not replaced") from error


def _require_release(target: Path) -> None:
    """Raise unless the target is a release; what another process may have left beside it goes with it."""
    if target.is_dir() or split_address(target)[1] is not None or not log_of(target).exists():
        inspect(target)
        return
    with private_folder(target) as folder:
        alone = folder / target.name
        alone.hardlink_to(target)
        inspect(alone)


def plan(spec: SpecLike, **how: Unpack[Planning]) -> Published:
    """What ``publish`` would do: feasibility, setting, loss and bound; nothing is written.

    ``spec`` and keywords: as of ``publish``. Raises the same.
    """
    source_keywords, rest = split_keywords(how)
    written = next((name for name in PUBLISH_KEYWORDS if source_keywords.get(name) is not None), None)
    if written is not None:
        raise UsageError(f"plan has no keyword {written!r}: it writes nothing; publish has it")
    meant = as_spec(spec, source_keywords, verb="plan")
    with options_from(rest, "plan") as options:
        return _plan_spec(meant, options)


def _plan_spec(spec: Spec, options: Options) -> Published:
    clock = time.monotonic()
    sweep_drafts(spec.target)
    with (
        temporary_folder() as folder,
        open_workshop(folder, options) as db,
        source_session(spec, db, folder, options) as there,
    ):
        prepared_publication = _prepare_publication(
            db, there, PublicationRequest(spec, prepare_ledger(db, spec)), publishing=False
        )
        if prepared_publication.request.path is not None and prepared_publication.request.path.exists():
            prepared_publication.compare_earlier()
        facts = get_mechanism(spec.mechanism.kind).plan(there, prepared_publication.source, spec.mechanism)
        facts |= {"composition": prepared_publication.statements} if prepared_publication.statements else {}
    searched = facts.pop("search_seconds", None)  # facts follow from what is asked alone
    summary, seconds = _release_facts(spec, prepared_publication.source, facts), time.monotonic() - clock
    return Published(None, summary, prepared_publication.as_facts(), [], seconds, _table_warnings(spec), spec, searched)


def _table_warnings(spec: Spec) -> list[str]:
    """What should be known of how a table in Python was read."""
    read = spec.source.frame
    return [] if read is None else read.list_remarks(spec.columns.names, queried=spec.source.query is not None)


def _place_warnings(spec: Spec) -> list[str]:
    """What should be known of a database that holds other things as well."""
    if spec.release.schema_ is None:
        return []
    shares_file = spec.source.database is not None and overlaps_source(spec.source, spec.place)
    what = "the source, and what" if shares_file else "what"
    return [f"{spec.place} also holds {what} else lies in its other schemas: do not hand that file out"]


def _make_manifest(db: EngineSession, spec: Spec, source: Records, key: Key, facts: dict[str, Any]) -> Manifest:
    coarse = describe_coarsening(source.roles.quasi_identifiers, spec.columns)
    return Manifest(
        format=FORMAT,
        privsql=__version__,
        duckdb=db.engine_version(),
        name=spec.name,
        mechanism=spec.mechanism.kind,
        algorithm=spec.mechanism.algorithm,
        parameters=spec.mechanism.model_dump(mode="json", exclude_none=True),
        quasi_identifiers=list(source.roles.quasi_identifiers),
        sensitive=list(source.roles.sensitive),
        nulls={
            f.name: spec.columns.null_policy(f.name) for f in (*source.roles.quasi_identifiers, *source.roles.sensitive)
        },
        bins=coarse["bins"],
        groups=coarse["groups"],
        place="schema" if spec.release.schema_ is not None else None,
        persons=source.persons,
        **_record_counts(spec, source, facts),
        randomness=key.origin,
        facts=facts,
        sql=sqlfiles.sql_digests(get_mechanism(spec.mechanism.kind).sql),
    )


def _release_facts(spec: Spec, source: Records, facts: dict[str, Any]) -> dict[str, Any]:
    """What ``publish`` and ``plan`` say of a release."""
    return {
        "mechanism": spec.mechanism.kind,
        "algorithm": spec.mechanism.algorithm,
        **_record_counts(spec, source, facts),
        **facts,
    }


def _record_counts(spec: Spec, source: Records, facts: dict[str, Any]) -> dict[str, Any]:
    """Records of the source, and what became of them: nothing where an exact number is no part of the guarantee."""
    if not get_mechanism(spec.mechanism.kind).states_counts:
        return dict.fromkeys(("records", "published", "suppressed"))
    left_out = facts.get("left_out", 0)
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
