"""Independent re-check of a release from the published file, and against the source if that is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privsql._version import __version__
from privsql.engine import sqlfiles
from privsql.engine.open import scratch
from privsql.engine.roles import Field
from privsql.engine.sqlfiles import table
from privsql.mechanisms.registry import of
from privsql.model.checks import Check, Result, run
from privsql.model.manifest import MANIFEST

if TYPE_CHECKING:
    from privsql.engine.database import Workshop
    from privsql.mechanisms.contract import Columns
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

MANIFEST_COLUMNS = [("key", "VARCHAR"), ("value", "VARCHAR")]


def examine(
    db: Workshop,
    manifest: Manifest,
    database: str | None,
    *,
    source: Records | None = None,
    asked: Any = None,
    whole: bool = True,
) -> list[Result]:
    """All checks of a release that is open in ``db``, its tables in ``database`` (None: the open file itself).

    ``source`` and ``asked``, the parameters of its specification, add the checks against the source; ``whole`` adds
    those that take long and that publishing implies. If the contents are not what a release holds, the others would
    have nothing to stand on and are not run.
    """
    first = contents(db, manifest, database)
    if not first[0].ok:
        return first
    mechanism = of(manifest.mechanism)
    checks = [
        *mechanism.checks(db, manifest, database),
        Check("SQL files are as stated", lambda: _digests(manifest)),
    ]
    if whole:
        checks += mechanism.long_checks(manifest)
    if source is not None:
        checks += mechanism.source_checks(db, manifest, source, asked)
        checks.append(Check("suppressed records are as stated", lambda: _suppressed(manifest, source)))
    return first + run(db, checks)


def contents(db: Workshop, manifest: Manifest, database: str | None) -> list[Result]:
    """The check that all others stand on: the release holds what it states and nothing else."""
    return run(db, [Check("holds the stated tables and nothing else", lambda: _contents(db, manifest, database))])


def _contents(db: Workshop, manifest: Manifest, database: str | None) -> list[str]:
    """Tables, columns, types and the view: nothing missing, nothing more, no other definition."""
    expected = of(manifest.mechanism).tables(manifest) | {MANIFEST: MANIFEST_COLUMNS}
    kinds = definitions(manifest, expected)
    found = {(kind, name): text for kind, name, text in db.objects(database)}
    wrong = [f"{kind} {name!r} does not belong here" for kind, name in sorted(found.keys() - kinds.keys())]
    wrong += [f"{kind} {name!r} is missing" for kind, name in sorted(kinds.keys() - found.keys())]
    wrong += [f"{k} {name!r} is defined otherwise" for (k, name), t in kinds.items() if found.get((k, name), t) != t]
    for name, columns in expected.items():
        if ("table", name) in found:
            fields = db.fields(table(name, database))
            wrong += _columns(name, columns, fields)
    return wrong


def _columns(name: str, columns: list[tuple[str, str]], fields: list[Field]) -> list[str]:
    stated = [Field(*column) for column in columns]
    extra = [f"column {f.name!r} ({f.type}) of {name} is not among the stated ones" for f in fields if f not in stated]
    missing = [f"column {f.name!r} ({f.type}) of {name} is missing" for f in stated if f not in fields]
    order = [] if extra or missing or fields == stated else [f"the columns of {name} lie in another order"]
    return extra + missing + order


def definitions(manifest: Manifest, tables: Columns) -> dict[tuple[str, str], str]:
    """What a release holds, by kind and name, as the engine writes it down: from the manifest's columns and setting."""
    with scratch() as db:
        for name, columns in tables.items():
            db.define(name, [Field(*column) for column in columns])
        db.view(manifest.name, of(manifest.mechanism).view(manifest), into="memory")
        return {(kind, name): text for kind, name, text in db.objects(None)}


def _digests(manifest: Manifest) -> list[str]:
    """The SQL that made the release, if this is the version of privsql that did."""
    if manifest.privsql != __version__:
        return []
    present = sqlfiles.digests(of(manifest.mechanism).sql)
    return [f"sql/{name}.sql differs" for name in present if manifest.sql.get(name) != present[name]]


def _suppressed(manifest: Manifest, source: Records) -> list[str]:
    stated = (manifest.records, manifest.published, manifest.suppressed)
    left_out = manifest.facts.get("left_out", 0)
    found = (source.source_records, source.records - left_out, source.suppressed + left_out)
    names = ("records", "published", "suppressed")
    return [
        f"{name}: stated {s}, the source has {f}"
        for name, s, f in zip(names, stated, found, strict=True)
        if s != f and s is not None
    ]
