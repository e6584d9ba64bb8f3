"""``evaluate``: the answers of a release beside those of its source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from privsql.answers.accuracy import Evaluated, Measuring, Truth
from privsql.answers.workload import Workload
from privsql.engine.folders import temporary
from privsql.engine.progress import Options, Silent
from privsql.mechanisms.registry import of
from privsql.releases.opened import Release, explained
from privsql.source.records import prepared
from privsql.verbs.room import same_roles, workshop_in

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.answers.answer import Answer
    from privsql.source.spec import Spec

__all__ = ["Evaluated", "Workload", "evaluate"]


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
    with (
        temporary() as folder,
        workshop_in(folder, replace(options, report=None)) as db,
        Release(path) as release,
    ):
        source, name = prepared(db, spec), release.manifest.name
        same_roles(release.manifest, source)
        source.sort()
        source.named(name)

        def truth(sql: str) -> Truth:
            return {tuple(row[:-1]): float(row[-1] or 0) for row in db.ask(sql)}

        def answer(sql: str, estimator: str) -> Answer:
            return release.query(sql, confidence=confidence, estimator=estimator)

        report = options.report or Silent()
        given = Measuring(db, source, name, release.answers, asked, confidence, answer, truth, db.ask, report)
        with explained(path):
            return of(release.manifest.mechanism).evaluate(given)
