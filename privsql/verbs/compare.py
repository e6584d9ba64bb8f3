"""Several specifications for one table, published and measured with one workload: a comparison on equal terms."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql import markup, plot
from privsql.answers.workload import Workload
from privsql.calls import as_path
from privsql.engine.folders import temporary
from privsql.engine.progress import RUNNING, running
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.registry import of
from privsql.noise import seed_key, system_key
from privsql.releases.opened import between
from privsql.source.given import specified
from privsql.source.spec import Ledger, redirected
from privsql.verbs.evaluate import evaluate, workload_of
from privsql.verbs.publish import publish

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from privsql.calls import PathLike
    from privsql.engine.progress import Options
    from privsql.source.given import Given
    from privsql.source.spec import Spec
    from privsql.verbs.evaluate import Evaluated, Measured
    from privsql.verbs.published import Published


@dataclass(frozen=True)
class Candidate:
    """A specification with what became of it: the release's facts, its scores, and the seconds of each."""

    name: str
    spec: Spec
    published: Published
    evaluated: Evaluated
    seconds: float

    @property
    def promise(self) -> str:
        """The bound on the posterior, in words."""
        return of(self.spec.mechanism.kind).promise(self.spec.mechanism)

    def as_json(self) -> dict[str, Any]:
        """An entry of ``--json``."""
        return {
            "spec": self.name,
            "promise": self.promise,
            **{key: value for key, value in self.published.as_json().items() if key not in ("release", "checks")},
            "evaluation": self.evaluated.as_json(),
            "evaluation_seconds": round(self.seconds, 3),
        }


class Compared(list[Candidate]):
    """What became of each specification, in their order."""

    def plot(self) -> Any:
        """A picture, of altair: error by size of the true answer, of each release."""
        return plot.shown(plot.comparison, {one.name: one.evaluated.scores for one in self})

    def _repr_html_(self) -> str:
        """What a notebook shows: what each promises, and how far its answers are from the truth."""
        head = ("specification", "posterior", "estimator", "mean error", "coverage")
        rows = [
            (one.name, one.promise, estimator, *(_shown(summary[key]) for key in ("mean_relative_error", "coverage")))
            for one in self
            for estimator, summary in ((name, score.summary()) for name, score in one.evaluated.scores.items())
        ]
        return markup.page(f"{len(self)} specifications", markup.table(head, rows, len(rows)))


def _shown(figure: float | None) -> str | None:
    return None if figure is None else f"{figure:.3f}"


def compare(
    specs: Mapping[str, Given] | Sequence[Given | tuple[str, Given]],
    workload: Workload | PathLike | None = None,
    *,
    confidence: float = 0.95,
    seed: int | None = 1,
    **how: Unpack[Measured],
) -> Compared:
    """Publish every specification into a temporary folder and evaluate it against the source.

    ``specs``: by name, as (name, specification), or alone: a file's name is then its own. They differ in their
    mechanisms alone: source and columns must be the same, so that the same queries are asked of each. ``seed`` repeats
    queries and releases; None: releases by a fresh key. The other keywords: as of ``evaluate``. Raises ``UsageError``
    and what publishing raises, naming the specification.
    """
    drawn = {} if seed is None or isinstance(workload, Workload) else {"seed": seed}
    asked = workload_of(workload, {**how, **drawn}, "compare")
    rest = {name: value for name, value in how.items() if name in RUNNING}
    with running(rest, "compare") as options:
        return _compared(_named(specs), asked, between(confidence), seed, options)


def _named(given: Mapping[str, Given] | Sequence[Given | tuple[str, Given]]) -> list[tuple[str, Spec]]:
    """The specifications with their names; a number where nothing names one."""
    pairs: list[tuple[str, Given]] = []
    for at, one in enumerate(given.items() if isinstance(given, Mapping) else given, 1):
        if isinstance(one, tuple):
            pairs.append((str(one[0]), one[1]))
        else:
            pairs.append((as_path(one).stem if isinstance(one, str | os.PathLike) else str(at), one))
    return [(name, specified(spec)) for name, spec in pairs]


def _compared(
    specs: Sequence[tuple[str, Spec]], asked: Workload, confidence: float, seed: int | None, options: Options
) -> Compared:
    _comparable(specs)
    found = Compared()
    with temporary() as folder:
        for number, (name, spec) in enumerate(specs):
            own = redirected(spec, folder / f"{number}.duckdb", "duckdb")
            own = own.model_copy(update={"release": own.release.model_copy(update={"name": specs[0][1].name})})
            own = own.model_copy(update={"ledger": Ledger(off=True)})  # trials are no releases: no ledger knows of them
            key = system_key() if seed is None else seed_key(seed)
            try:
                published = publish(own, key=key, options=options)
            except (UsageError, InfeasibleError) as error:
                error.args = (f"{name}: {error}", *error.args[1:])
                raise
            clock = time.monotonic()
            evaluated = evaluate(own.target, own, asked, confidence=confidence, options=options)
            found.append(Candidate(name, spec, published, evaluated, time.monotonic() - clock))
    return found


def _comparable(specs: Sequence[tuple[str, Spec]]) -> None:
    if not specs:
        raise UsageError("give at least one specification")
    first = specs[0][1]
    for name, spec in specs[1:]:
        for part in ("source", "columns"):
            if getattr(spec, part) != getattr(first, part):
                raise UsageError(f"{name}: its [{part}] is not that of {specs[0][0]}; compare needs one table")
