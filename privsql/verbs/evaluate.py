"""``evaluate``: the answers of a release beside those of its source."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from privsql.answers.accuracy import Evaluated, Measuring, Truth
from privsql.answers.workload import KINDS, Workload
from privsql.calls import as_path, between, ends, known, names, share, whole
from privsql.engine.folders import temporary
from privsql.engine.open import scratch
from privsql.engine.progress import RUNNING, Options, Running, Silent, running
from privsql.mechanisms.registry import of
from privsql.releases.ledger.choosing import chosen_again
from privsql.releases.opened import Release, explained, inspect
from privsql.source.given import beside as sourced
from privsql.source.records import prepared
from privsql.verbs.room import same_persons, same_roles, workshop_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    from privsql.answers.answer import Answer
    from privsql.calls import PathLike
    from privsql.source.given import Given
    from privsql.source.keywords import Names
    from privsql.source.persons import Choice
    from privsql.source.spec import Spec

__all__ = ["Evaluated", "Workload", "evaluate"]


class Measured(Running, total=False):
    """Keywords in place of the fields of a ``Workload``, and those of every verb that works for a while."""

    queries: int | None
    attributes: int
    selectivity: float
    ways: int
    cells: int | None
    true_answers: str | Sequence[float | None] | None
    estimators: Names | None


class Asked(Measured, total=False):
    """The same, and where the questions come from."""

    seed: int


def evaluate(
    release: PathLike,
    source: Given,
    workload: Workload | PathLike | None = None,
    *,
    confidence: float = 0.95,
    key_file: PathLike | None = None,
    **how: Unpack[Asked],
) -> Evaluated:
    """Compare a release's answers with those of its source.

    ``source``: as of ``verify``. ``workload``: "equality" (the default), "random", "ranges", a file of SQL, or a whole
    ``Workload``, of which the other keywords are fields; ``true_answers``: "100:5000", or a pair. ``key_file``:
    as of ``verify``. Raises ``UsageError`` for a workload that is unknown or that such columns can't have.
    """
    path, asked = as_path(release, "release"), workload_of(workload, how, evaluate)
    rest = {name: value for name, value in how.items() if name in RUNNING}
    own = as_path(key_file, "key_file") if key_file is not None else None
    with running(rest, "evaluate") as options:
        manifest = inspect(path)
        spec = sourced(source, manifest)
        with scratch() as db:
            choice = chosen_again(db, spec, path, manifest, own)
        return measure_answers(path, spec, asked, between(confidence), options, choice)


def workload_of(given: Workload | PathLike | None, how: Mapping[str, Any], verb: str | Callable[..., Any]) -> Workload:
    """The workload that is meant; ``UsageError`` for keywords that neither it nor a verb has."""
    own = [one.name for one in fields(Workload) if one.name not in ("kind", "file")]
    known(how, [*own, *RUNNING], verb)
    chosen = {name: _chosen(name, how[name]) for name in own if name in how}
    if isinstance(given, Workload):
        return replace(given, **chosen)
    if given is None or given in KINDS:
        return Workload(kind=str(given or KINDS[0]), **chosen)
    file = as_path(given, "workload")
    return Workload(kind=str(file), file=file, **chosen)


def _chosen(name: str, given: Any) -> Any:
    """A field of a ``Workload``: a whole number, a share of the records, a pair, or None where nothing is chosen."""
    if given is None:
        return None
    if name == "true_answers":
        return ends(given, "true_answers")
    if name == "estimators":
        return names(given, "estimators")
    return share(given, name) if name == "selectivity" else whole(given, name, None if name == "seed" else 1)


def measure_answers(
    path: Path, spec: Spec, asked: Workload, confidence: float, options: Options, choice: Choice | None
) -> Evaluated:
    """Return the answers of a release beside those of its source; ``choice``: which record of each person it takes."""
    with (
        temporary() as folder,
        workshop_in(folder, replace(options, report=None)) as db,
        Release(path) as release,
    ):
        source, name = prepared(db, spec, choice=choice), release.manifest.name
        same_roles(release.manifest, source)
        same_persons(release.manifest, source)
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
