"""Several specifications for one table, published and measured with one workload: a comparison on equal terms."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from privsql import markup, plot
from privsql.answers.workload import Workload
from privsql.calls import as_path, between
from privsql.engine.folders import temporary
from privsql.engine.progress import RUNNING, Part, running
from privsql.errors import InfeasibleError, UsageError
from privsql.mechanisms.registry import of
from privsql.noise import seed_key, system_key
from privsql.source.frames import is_table
from privsql.source.given import specified
from privsql.source.persons import Choice
from privsql.source.spec import Ledger, Spec, redirected
from privsql.verbs.evaluate import measure_answers, workload_of
from privsql.verbs.finished import Finished, Outcome
from privsql.verbs.grid import combinations
from privsql.verbs.publish import publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

    from privsql.calls import PathLike
    from privsql.engine.progress import Options
    from privsql.source.given import Given
    from privsql.verbs.evaluate import Evaluated, Measured
    from privsql.verbs.grid import Combination, Grid
    from privsql.verbs.published import Published


@dataclass(frozen=True)
class Candidate:
    """A specification with what became of it: the release's facts, its scores, and the seconds of each; ``values``:
    those of a grid.
    """

    name: str
    spec: Spec
    published: Published
    evaluated: Evaluated
    seconds: float
    values: dict[str, str] = field(default_factory=dict)

    @property
    def promise(self) -> str:
        """The bound on the posterior, in words."""
        return of(self.spec.mechanism.kind).promise(self.spec.mechanism)

    def as_json(self) -> dict[str, Any]:
        """An entry of ``--json``."""
        return {
            "spec": self.name,
            **({"grid": self.values} if self.values else {}),
            "promise": self.promise,
            **{key: value for key, value in self.published.as_json().items() if key not in ("release", "checks")},
            "evaluation": self.evaluated.as_json(),
            "evaluation_seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Refused:
    """A combination of a grid that there can't be, and why."""

    name: str
    reason: str
    exit_code: int
    values: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """An entry of ``--json``."""
        return {"spec": self.name, "grid": self.values, "refused": self.reason, "exit_code": self.exit_code}


class Compared(list[Candidate]):
    """What became of each specification, in their order; ``rows``: the same with combinations that there can't be."""

    def __init__(self, rows: Iterable[Candidate | Refused] = ()) -> None:
        self.rows = list(rows)
        super().__init__(one for one in self.rows if isinstance(one, Candidate))

    @property
    def refused(self) -> list[Refused]:
        """The combinations of a grid that there can't be."""
        return [one for one in self.rows if isinstance(one, Refused)]

    def as_json(self, *, points: bool = False) -> dict[str, Any]:
        """The object of ``--json``; ``points``: with every question of every release."""
        return {"specs": [one.as_json() | (_points(one) if points else {}) for one in self.rows]}

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
        lines = [markup.line(f"{one.name}: {one.reason}") for one in self.refused]
        return markup.page(f"{len(self)} specifications", markup.table(head, rows, len(rows)), *lines)


def _points(one: Candidate | Refused) -> dict[str, Any]:
    return {"points": one.evaluated.points()} if isinstance(one, Candidate) else {}


def _shown(figure: float | None) -> str | None:
    return None if figure is None else f"{figure:.3f}"


def compare(
    specs: Mapping[str, Given] | Sequence[Given | tuple[str, Given]],
    workload: Workload | PathLike | None = None,
    *,
    confidence: float = 0.95,
    seed: int | None = 1,
    grid: Grid | None = None,
    resume: PathLike | None = None,
    **how: Unpack[Measured],
) -> Compared:
    """Publish every specification into a temporary folder and evaluate it against the source.

    ``specs``: by name, as (name, specification), or alone: a file's name is then its own. They differ in their
    mechanisms alone: source and columns must be the same, so that the same queries are asked of each. ``seed`` repeats
    queries and releases; None: releases by a fresh key. The other keywords: as of ``evaluate``.

    ``grid``: values by key of ``[mechanism]``, {"threshold": ["1/4", "1/8"]}, or texts such as "threshold=1/4,1/8":
    every specification is taken with every combination of those that its mechanism has, and one that there can't be is
    among ``rows`` and ``refused`` of what is returned. ``resume``: a folder for what is finished, which holds true
    answers; a comparison that was stopped goes on from there. Raises ``UsageError`` and, without a grid, what
    publishing raises, naming the specification.
    """
    drawn = {} if seed is None or isinstance(workload, Workload) else {"seed": seed}
    asked = workload_of(workload, {**how, **drawn}, compare)
    rest = {name: value for name, value in how.items() if name in RUNNING}
    with running(rest, "compare") as options:
        pairs = _named(specs)
        _comparable(pairs)
        folder = None if resume is None else as_path(resume, "resume")
        finished = Finished.at(folder, asked, between(confidence), seed)
        trial = _Trial(pairs[0][1].name, asked, between(confidence), seed, finished)
        return Compared(_rows(combinations(pairs, grid), trial, options, refuse=grid is None))


def _named(given: Mapping[str, Given] | Sequence[Given | tuple[str, Given]]) -> list[tuple[str, Spec]]:
    """The specifications with their names; a number where nothing names one."""
    alone = isinstance(given, str | os.PathLike | Spec) or is_table(given) or not isinstance(given, Iterable)
    if alone or (isinstance(given, Mapping) and {"source", "mechanism"} <= set(given)):
        raise UsageError("compare takes several specifications, by name or in a list; put one into a list: [spec]")
    pairs: list[tuple[str, Given]] = []
    for at, one in enumerate(given.items() if isinstance(given, Mapping) else given, 1):
        if isinstance(one, tuple):
            pairs.append((str(one[0]), one[1]))
        else:
            pairs.append((as_path(one).stem if isinstance(one, str | os.PathLike) else str(at), one))
    return [(name, specified(spec)) for name, spec in pairs]


@dataclass(frozen=True)
class _Trial:
    """What every specification goes through; ``called``: the name of all releases."""

    called: str
    asked: Workload
    confidence: float
    seed: int | None
    finished: Finished

    def measured(self, spec: Spec, options: Options) -> Outcome:
        """Published into a temporary folder and evaluated, or found finished; raises what publishing raises."""
        known = self.finished.found(spec)
        if known is not None:
            return known
        with temporary() as folder:
            own = redirected(spec, folder / "release.duckdb", "duckdb")
            own = own.model_copy(
                update={"release": own.release.model_copy(update={"name": self.called, "schema_": None})}
            )
            own = own.model_copy(update={"ledger": Ledger(off=True)})  # trials are no releases: no ledger knows of them
            key = system_key() if self.seed is None else seed_key(self.seed)
            try:
                published = publish(own, key=key, options=options)
            except (UsageError, InfeasibleError) as error:
                raise _RefusedError(error) from error
            clock = time.monotonic()
            choice = Choice.by(key, own.name)
            answers = measure_answers(own.target, own, self.asked, self.confidence, options, choice)
            found = Outcome(published, answers, time.monotonic() - clock)
        self.finished.keep(spec, found)
        return found


class _RefusedError(Exception):
    """What publishing refused, apart from what a workload is refused for."""

    def __init__(self, error: UsageError | InfeasibleError) -> None:
        super().__init__(str(error))
        self.error = error


def _rows(
    wanted: Sequence[Combination], trial: _Trial, options: Options, *, refuse: bool
) -> Iterator[Candidate | Refused]:
    """What becomes of each; ``refuse``: what there can't be ends it."""
    for number, one in enumerate(wanted, 1):
        if one.refused is not None:
            yield Refused(one.name, one.refused, UsageError.exit_code, one.values)
            continue
        name = one.name if len(wanted) == 1 else f"{number}/{len(wanted)} {one.name}"
        shown = options if options.report is None else replace(options, report=Part(options.report, name))
        try:
            found = trial.measured(one.spec, shown)
        except _RefusedError as refused:
            error = refused.error
            if refuse:
                error.args = (f"{one.name}: {error}", *error.args[1:])
                raise error from None
            yield Refused(one.name, str(error), error.exit_code, one.values)
        else:
            yield Candidate(one.name, one.spec, found.published, found.evaluated, found.seconds, one.values)


def _comparable(specs: Sequence[tuple[str, Spec]]) -> None:
    if not specs:
        raise UsageError("give at least one specification")
    first = specs[0][1]
    for name, spec in specs[1:]:
        for part in ("source", "columns"):
            if getattr(spec, part) != getattr(first, part):
                raise UsageError(f"{name}: its [{part}] is not that of {specs[0][0]}; compare needs one table")
