"""All checks of a release: from the published file, and against the source if that is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.errors import UsageError
from privsql.mechanisms.registry import of
from privsql.model.checks import BROKEN, Check, Result, run
from privsql.releases import matching, statements

if TYPE_CHECKING:
    from privsql.engine.database import Container
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records
    from privsql.source.spec import Spec

ASKED = "parameters are those of the specification"  # the one check of a source that needs no record
READABLE = "its tables can be checked"


def examine(
    db: Container,
    manifest: Manifest,
    database: str,
    *,
    source: Records | None = None,
    spec: Spec | None = None,
    whole: bool = True,
) -> list[Result]:
    """All checks of a release whose tables lie in ``database``, and which holds what it states and no more.

    ``source`` and ``spec``, of which it is, add the checks against the source; ``whole`` adds those that take long and
    that publishing implies.
    """
    try:
        return run(db, _checks(db, manifest, database, source=source, spec=spec, whole=whole))
    except UsageError as error:
        wrong = str(error)
    except BROKEN as error:
        wrong = f"{type(error).__name__} on what the release holds"
    return run(db, [Check(READABLE, lambda: [wrong])])


def _checks(
    db: Container, manifest: Manifest, database: str, *, source: Records | None, spec: Spec | None, whole: bool
) -> list[Check]:
    mechanism = of(manifest.mechanism)
    checks = [
        *mechanism.checks(db, manifest, database),
        *statements.checks(db, manifest, database),
    ]
    if whole:
        checks += mechanism.long_checks(manifest)
    if source is not None and spec is not None:
        own = mechanism.source_checks(db, manifest, source, spec.mechanism)
        if not matching.same_choice(manifest, source):
            own = [one for one in own if one.name == ASKED] + matching.checks(db, manifest, database)
        checks += own
        checks += statements.source_checks(manifest, source, spec)
    return checks
