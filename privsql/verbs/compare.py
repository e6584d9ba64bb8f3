"""``evaluate`` measures one release against its source; ``compare`` several specifications on equal terms."""

from __future__ import annotations

import hashlib
import json
import os
import time
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Any

from privsql import markup, plot
from privsql._version import __version__
from privsql.answers.accuracy import KINDS, Evaluated, Measuring, Put, Score, Truth, Workload
from privsql.calls import as_path, between, ends, exactly, known, names, share, whole
from privsql.engine import files
from privsql.engine.files import private, temporary
from privsql.engine.open import scratch
from privsql.engine.progress import RUNNING, Options, Part, Running, Silent, running
from privsql.errors import EngineError, InfeasibleError, UsageError
from privsql.keyed_random import seed_key, system_key
from privsql.mechanisms.registry import of, parameters
from privsql.releases.ledger.book import path_of
from privsql.releases.ledger.keeping import chosen_again, chosen_for
from privsql.releases.ledger.publication import Wish
from privsql.releases.opened import Release, explained, inspect
from privsql.source.keywords import apart, spec_from_manifest, specified
from privsql.source.places import is_table
from privsql.source.records import prepared
from privsql.source.spec import Ledger, Spec, redirected
from privsql.source.table import Choice
from privsql.verbs.publish import Published, publish
from privsql.verbs.session import same_persons, same_roles, workroom, workshop_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Unpack

    from privsql.answers.answer import Answer
    from privsql.calls import PathLike
    from privsql.mechanisms.contract import Alternatives
    from privsql.source.keywords import Given, Names, Planning
    from privsql.source.places import Source

__all__ = ["Evaluated", "Workload", "evaluate"]

# Algorithms -----------------------------------------------------------------------------------------------------------
# ``plan --algorithms``: the algorithms of a mechanism beside each other, for one specification.


def algorithms(spec: Given, **how: Unpack[Planning]) -> Alternatives:
    """What each algorithm of the mechanism would cost and tell; nothing is written, and no ledger is asked.

    ``spec`` and keywords: as of ``publish``. Raises ``UsageError`` where a mechanism's algorithms are not to be
    compared.
    """
    asked, rest = apart(how)
    whole = specified(spec, asked, verb="algorithms")
    with running(rest, "algorithms") as options, workroom(options) as db:
        choice = chosen_for(db, Wish(whole, path_of(whole)), publishing=False)
        return of(whole.mechanism.kind).algorithms(db, prepared(db, whole, choice=choice), whole.mechanism)


# Evaluate -------------------------------------------------------------------------------------------------------------
# ``evaluate``: the answers of a release beside those of its source.


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
        spec = spec_from_manifest(source, manifest)
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


# Checkpoints ----------------------------------------------------------------------------------------------------------
# What a comparison has finished, kept in a folder: one that was stopped goes on from there.
#
# A file for each specification, named by a digest of all that its figures follow from: the specification, the workload,
# the seed, the version and the files of the source. It holds true answers, so only its owner may read it.


@dataclass(frozen=True)
class Outcome:
    """A release's facts, its scores and the seconds that these took."""

    published: Published
    evaluated: Evaluated
    seconds: float


@dataclass(frozen=True)
class Finished:
    """``folder``: None keeps nothing; ``asked``: what was asked of each release."""

    folder: Path | None
    asked: str

    @classmethod
    def at(cls, folder: Path | None, workload: Workload, confidence: float, seed: int | None) -> Finished:
        """The folder is made if it is not there; ``UsageError`` without a seed, by which alone figures come again."""
        if folder is None:
            return cls(None, "")
        if seed is None:
            raise UsageError("--resume needs a seed: releases by fresh keys are others every time")
        try:
            with private:
                folder.mkdir(parents=True, exist_ok=True)
            text = workload.file.read_bytes() if workload.file is not None else b""
        except OSError as error:
            raise EngineError(f"{error.filename}: {error.strerror}") from error
        told = {**asdict(workload), "file": hashlib.sha256(text).hexdigest()}
        if told["estimators"] is None:
            del told["estimators"]  # as folders of earlier versions have it
        return cls(folder, json.dumps([__version__, told, confidence, seed], sort_keys=True, default=str))

    def file(self, spec: Spec) -> Path | None:
        """Where its figures lie, if any are kept."""
        if self.folder is None:
            return None
        parts = spec.model_dump_json(exclude={"ledger": True, "release": True})
        known = json.dumps([self.asked, parts, _stamps(spec.source)])
        return self.folder / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"

    def found(self, spec: Spec) -> Outcome | None:
        """What is kept of a specification; ``EngineError`` for a file that can't be read."""
        file = self.file(spec)
        if file is None or not file.exists():
            return None
        try:
            return _outcome(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise EngineError(f"{file}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"{file}: nothing that compare has written; remove it") from error

    def keep(self, spec: Spec, found: Outcome) -> None:
        """Write it; a comparison that is stopped leaves all of a file or nothing."""
        file = self.file(spec)
        if file is None:
            return
        part = file.with_suffix(".part")
        try:
            with private:
                part.write_text(json.dumps(_plain(found)), encoding="utf-8")
            part.replace(file)
        except OSError as error:
            raise EngineError(f"{file}: {error.strerror}") from error


def _stamps(source: Source) -> list[tuple[str, int, int]]:
    """Path, size and time of the files of a source; ``UsageError`` for one whose changes can't be seen."""
    if source.database is not None:
        there = [source.database]
    elif source.file is not None:
        names = (source.file,) if isinstance(source.file, str) else source.file
        there = [] if any(files.scheme(name) for name in names) else files.found(names)
    else:
        there = []
    if not there:
        raise UsageError("--resume needs a source of files on this machine: of others it is not seen when they change")
    try:
        return [(str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in there]
    except OSError as error:
        raise EngineError(f"{error.filename}: {error.strerror}") from error


def _plain(found: Outcome) -> dict[str, Any]:
    """As JSON has it; groups of questions are texts."""
    published, evaluated = found.published, found.evaluated
    return {
        "published": {key: getattr(published, key) for key in ("facts", "ledger", "seconds", "warnings")},
        "scores": {name: asdict(score) | {"put": _puts(score)} for name, score in evaluated.scores.items()},
        "evaluated": {key: getattr(evaluated, key) for key in ("channel", "confidence", "extras")},
        "seconds": found.seconds,
    }


def _puts(score: Score) -> list[list[Any]]:
    return [[put.question, put.texts, put.of] for put in score.put]


def _outcome(kept: dict[str, Any]) -> Outcome:
    scores = {
        name: Score(**{**score, "put": [Put(question, tuple(group), of) for question, group, of in score["put"]]})
        for name, score in kept["scores"].items()
    }
    published = Published(None, **kept["published"])
    return Outcome(published, Evaluated(scores, **kept["evaluated"]), float(kept["seconds"]))


# Grids ----------------------------------------------------------------------------------------------------------------
# A grid of specifications: every combination of values of some keys of ``[mechanism]``, each a specification.

SECTION = "mechanism."
OPENING, CLOSING, QUOTES = "[{", "]}", "\"'"
Grid = Mapping[str, Sequence[Any]] | Sequence[str]


@dataclass(frozen=True)
class Combination:
    """A specification with its name; ``values``: those of the grid, as texts; ``refused``: why there can't be one."""

    name: str
    spec: Spec
    values: dict[str, str] = field(default_factory=dict)
    refused: str | None = None


def combinations(specs: Sequence[tuple[str, Spec]], given: Grid | None) -> list[Combination]:
    """Every specification with every combination of those values that its mechanism has keys for.

    ``given``: values by key, "threshold" or "mechanism.threshold", or texts such as "threshold=1/4,1/8". Raises
    ``UsageError`` for a key that no specification has.
    """
    wanted = {} if given is None else _read(given)
    owned = [set(parameters(spec.mechanism.kind).model_fields) for _, spec in specs]
    known([key.partition(".")[0] for key in wanted], set().union(*owned), "the grid: a mechanism")
    return [
        combination
        for (name, spec), keys in zip(specs, owned, strict=True)
        for combination in _of(name, spec, {key: wanted[key] for key in wanted if key.partition(".")[0] in keys})
    ]


def _of(name: str, spec: Spec, wanted: Mapping[str, Sequence[Any]]) -> Iterator[Combination]:
    if not wanted:
        yield Combination(name, spec)
        return
    for values in product(*wanted.values()):
        chosen = dict(zip(wanted, values, strict=True))
        texts = {key: str(value) for key, value in chosen.items()}
        called = ", ".join([name, *(f"{key}={text}" for key, text in texts.items())])
        try:
            yield Combination(called, _with(spec, chosen), texts)
        except UsageError as error:
            yield Combination(called, spec, texts, str(error))


def _with(spec: Spec, chosen: Mapping[str, Any]) -> Spec:
    """A specification with other values of its mechanism; ``UsageError`` if it can't have them."""
    raw: dict[str, Any] = spec.mechanism.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    for key, value in chosen.items():
        *path, last = key.split(".")
        place = raw
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UsageError(f"the grid's {key}: {part} is no table of keys")
        place[last] = value
    parts = {one: getattr(spec, one) for one in Spec.model_fields}
    return Spec.model_validate(parts | {"mechanism": {"kind": spec.mechanism.kind, **raw}})


def _read(given: Grid) -> dict[str, list[Any]]:
    """Values by key, each once, the keys without their section."""
    pairs = given.items() if isinstance(given, Mapping) else (_parted(text) for text in given)
    found: dict[str, list[Any]] = {}
    for name, values in pairs:
        key = name.strip().removeprefix(SECTION)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UsageError(f"the grid's {key}: give a list of values")
        if key in found:
            raise UsageError(f"the grid has {key} twice")
        found[key] = list({str(one): one for one in exactly({key: list(values)})[key]}.values())
        if not found[key]:
            raise UsageError(f"the grid's {key} has no value")
    return found


def _parted(text: str) -> tuple[str, list[Any]]:
    """The key and the values of "key=value,value"; a comma within brackets or quotes parts nothing.

    >>> _parted("mechanism.threshold=1/4, {default = 0.1, HIV = 0.05}")
    ('mechanism.threshold', ['1/4', {'default': Decimal('0.1'), 'HIV': Decimal('0.05')}])
    """
    key, equals, rest = text.partition("=")
    if not (equals and key.strip()):
        raise UsageError(f"the grid's {text!r}: write key=value,value")
    parts, depth, quote = [""], 0, ""
    for sign in rest:
        if sign == "," and not depth and not quote:
            parts.append("")
            continue
        if sign in QUOTES and quote in ("", sign):
            quote = "" if quote else sign
        elif not quote:
            depth += (sign in OPENING) - (sign in CLOSING)
        parts[-1] += sign
    return key.strip(), [_value(part.strip()) for part in parts if part.strip()]


def _value(text: str) -> Any:
    """What TOML makes of a text, or the text."""
    try:
        found = tomllib.loads(f"value = {text}", parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    return found["value"] if len(found) == 1 else text


# Compare --------------------------------------------------------------------------------------------------------------
# Several specifications for one table, published and measured with one workload: a comparison on equal terms.


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
