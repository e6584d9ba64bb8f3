"""Compare a release's answers with those of its source, or compare several specifications on equal terms."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from privsql import plot
from privsql.answers.accuracy import KINDS, Evaluated, EvaluationContext, TrueAnswers, Workload
from privsql.calls import (
    PathLike,
    as_confidence,
    as_exact_data,
    as_names,
    as_optional_path,
    as_path,
    as_range,
    as_share,
    as_whole_number,
    refuse_unknown_keywords,
)
from privsql.engine.database import RUNNING, SILENT, Options, PartReporter, RunKeywords, options_from
from privsql.engine.files import temporary_folder
from privsql.engine.open import open_scratch
from privsql.errors import InfeasibleError, UsageError
from privsql.figures import format_percent
from privsql.keyed_random import Key, seed_key, system_key
from privsql.mechanisms.registry import get_parameters
from privsql.outcomes import JsonObject, Outcome, Part, Table
from privsql.releases.ledger.book import path_of
from privsql.releases.ledger.composition import make_choice, read_key, repeat_choice
from privsql.releases.ledger.publication import PublicationRequest
from privsql.releases.opened import Release, explain_failures, read_manifest
from privsql.source.keywords import SpecLike, as_spec, parse_toml_value, spec_from_manifest
from privsql.source.places import is_table
from privsql.source.records import prepare_records
from privsql.source.spec import Ledger, ReleaseSection, Spec
from privsql.source.targets import Target, as_target
from privsql.verbs.publish import Published, publish_spec
from privsql.verbs.sessions import open_session, require_same_persons, require_same_roles

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.answers.answer import Answer
    from privsql.source.table import PersonChoice
    from privsql.source.typed_keywords import Names


Grid = Mapping[str, Sequence[Any]] | Sequence[str]
SeveralSpecs = Mapping[str, SpecLike] | Sequence[SpecLike | tuple[str, SpecLike]]

# Evaluate -------------------------------------------------------------------------------------------------------------
# ``evaluate``: compare the answers of a release with those of its source.


class EvaluationKeywords(RunKeywords, total=False):
    """The keywords of ``evaluate``: the fields of a ``Workload`` (the questions to ask), and how the engine runs."""

    queries: int | None
    attributes: int
    selectivity: float
    seed: int | None
    ways: int
    cells: int | None
    true_answers: str | Sequence[float | None] | None
    estimators: Names | None


@overload
def evaluate(
    release: PathLike,
    source: SpecLike,
    workload: Workload | PathLike | None = ...,
    *,
    confidence: float = ...,
    key_file: PathLike | None = ...,
    **how: Unpack[EvaluationKeywords],
) -> Evaluated: ...


@overload
def evaluate(
    release: SeveralSpecs,
    source: None = ...,
    workload: Workload | PathLike | None = ...,
    *,
    grid: Grid | None = ...,
    confidence: float = ...,
    key_file: PathLike | None = ...,
    **how: Unpack[EvaluationKeywords],
) -> Comparison: ...


def evaluate(
    release: PathLike | SeveralSpecs,
    source: SpecLike | None = None,
    workload: Workload | PathLike | None = None,
    *,
    grid: Grid | None = None,
    confidence: float = 0.95,
    key_file: PathLike | None = None,
    **how: Unpack[EvaluationKeywords],
) -> Evaluated | Comparison:
    """Compare a release's answers with those of its source, or compare several ways to publish one table.

    Args:
        release: A release; or several specifications: a mapping by name, pairs (name, specification), or a list. Each
            specification is published into a temporary folder and measured. They may differ only in their mechanisms.
        source: The specification of the release's source; or the source itself, as a table or its file. None with
            several specifications, which name their own source.
        workload: The questions: the form of their conditions, which is "equality" (the default), "random" or "ranges";
            a file of SQL; or a whole ``Workload``. The other keywords are the fields of a ``Workload``. Its field
            ``true_answers``, the least and greatest true answer of questions that count, is "100:5000" or a pair.
        grid: Values for keys of ``[mechanism]``, such as {"threshold": ["1/4", "1/8"]}, or texts such as
            "threshold=1/4,1/8". Every specification is combined with every combination of the values for keys that its
            mechanism has. Combinations that can't be published are in ``rows`` and ``refused`` of the result.
        confidence: The confidence of the intervals.
        key_file: The file with the key of the release. If only some records of each person are published, the key
            determines which, both for a release and for specifications. By default the ledger's key does so. For
            specifications without either, ``seed`` does.
        **how: ``seed`` makes the questions repeatable; by default it is 1. For specifications it makes the releases
            repeatable, too; with None they get a fresh key.

    Raises:
        UsageError: The workload is unknown, or does not fit the columns.
        InfeasibleError: Without a grid, a specification can't be published. The message names it.
    """
    if source is None:
        return _evaluate_specs(release, workload, grid, confidence, key_file, how)
    if isinstance(release, Mapping | list | tuple):
        raise UsageError(
            "specifications name their sources; leave out option source, and name a workload by option workload"
        )
    if grid is not None:
        raise UsageError("option grid is of several specifications, and a release with its source is given")
    connection = how.get("connection")
    target, questions = as_target(cast("PathLike", release), connection), make_workload(workload, how, evaluate)
    rest = {name: value for name, value in how.items() if name in RUNNING}
    key_path = as_optional_path(key_file, "key_file")
    with options_from(rest, "evaluate") as options:
        manifest = read_manifest(target)
        spec = spec_from_manifest(source, manifest, connection)
        with open_scratch() as db:
            choice = repeat_choice(db, spec, target, manifest, key_path)
        return measure_answers(target, spec, questions, as_confidence(confidence), options, choice)


def make_workload(
    workload: Workload | PathLike | None, how: Mapping[str, Any], verb: str | Callable[..., Any]
) -> Workload:
    """Return the workload, which says what questions to ask a release, from a caller's keywords.

    Args:
        workload: The workload, the name of its kind, or a file of SQL; None for the default.
        how: The fields of the workload as keywords; other keywords may only say how the engine runs.
        verb: The public function that the user called, for messages.

    Raises:
        UsageError: A keyword is unknown.
    """
    keywords = [one.name for one in fields(Workload) if one.name not in ("kind", "file")]
    refuse_unknown_keywords(how, [*keywords, *RUNNING], verb)
    chosen = {name: _parse_workload_field(name, how[name]) for name in keywords if name in how}
    if isinstance(workload, Workload):
        return replace(workload, **chosen)
    if workload is None or workload in KINDS:
        return Workload(kind=str(workload or KINDS[0]), **chosen)
    file = as_path(workload, "workload")
    return Workload(kind=str(file), file=file, **chosen)


def _parse_workload_field(name: str, value: Any) -> Any:
    """Return what a caller gives for the field ``name`` of a ``Workload``, converted to the field's type.

    It is None if the caller asks for the default.
    """
    if value is None:
        return None
    if name == "true_answers":
        return as_range(value, name)
    if name == "estimators":
        return as_names(value, "estimators")
    if name == "selectivity":
        return as_share(value, name)
    return as_whole_number(value, name, None if name == "seed" else 1)


def measure_answers(
    target: Target, spec: Spec, workload: Workload, confidence: float, options: Options, choice: PersonChoice | None
) -> Evaluated:
    """Ask a release and its source the questions of a workload, and return both sets of answers.

    Args:
        target: The place of the release.
        spec: The specification of its source.
        workload: The questions.
        confidence: The confidence of the intervals.
        options: How the engine runs.
        choice: Which records of each person the release holds; None if it holds all.
    """
    with open_session(replace(options, report=SILENT)) as db, Release(target) as release:
        source, name = prepare_records(db, spec, choice=choice), release.manifest.name
        require_same_roles(release.manifest, source)
        require_same_persons(release.manifest, source)
        source.sort_records()
        source.expose_as(name)

        def truth(sql: str) -> TrueAnswers:
            return {tuple(row[:-1]): float(row[-1] or 0) for row in db.run_select(sql)}

        def answer(sql: str, estimator: str) -> Answer:
            return release.query(sql, confidence=confidence, estimator=estimator)

        measured = db, source, name, release.answers, workload, confidence
        measuring = EvaluationContext(*measured, answer, truth, options.report)
        with explain_failures(target):
            return release.mechanism.evaluate(measuring)


# Grids ----------------------------------------------------------------------------------------------------------------
# A grid: a specification for every combination of values of some keys of ``[mechanism]``.

SECTION = "mechanism."


@dataclass(frozen=True)
class Combination:
    """A specification with one combination of a grid's values.

    Attributes:
        name: The name of the specification.
        spec: The specification with these values.
        values: The values as texts, by key.
        refused: Why the mechanism can't have these values; None if it can.
    """

    name: str
    spec: Spec
    values: dict[str, str] = field(default_factory=dict)
    refused: str | None = None


def combine_grid(specs: Sequence[tuple[str, Spec]], grid: Grid | None) -> list[Combination]:
    """Combine every specification with every combination of a grid's values for keys that its mechanism has.

    Args:
        specs: The specifications as (name, specification).
        grid: Values by key ("threshold" or "mechanism.threshold"), or texts such as "threshold=1/4,1/8"; None for no
            grid.

    Raises:
        UsageError: No specification has one of the keys.
    """
    wanted = {} if grid is None else _read_grid(grid)
    owned = [set(get_parameters(spec.mechanism.kind).model_fields) for _, spec in specs]
    refuse_unknown_keywords([key.partition(".")[0] for key in wanted], set().union(*owned), "the grid: a mechanism")
    return [
        combination
        for (name, spec), keys in zip(specs, owned, strict=True)
        for combination in _combine_values(
            name, spec, {key: wanted[key] for key in wanted if key.partition(".")[0] in keys}
        )
    ]


def _combine_values(name: str, spec: Spec, wanted: Mapping[str, Sequence[Any]]) -> Iterator[Combination]:
    if not wanted:
        yield Combination(name, spec)
        return
    for values in product(*wanted.values()):
        chosen = dict(zip(wanted, values, strict=True))
        texts = {key: str(value) for key, value in chosen.items()}
        called = ", ".join([name, *(f"{key}={text}" for key, text in texts.items())])
        try:
            yield Combination(called, _with_values(spec, chosen), texts)
        except UsageError as error:
            yield Combination(called, spec, texts, str(error))


def _with_values(spec: Spec, chosen: Mapping[str, Any]) -> Spec:
    """Return a specification with other values for keys of its mechanism.

    Args:
        spec: The specification.
        chosen: The new values by key, such as {"threshold": "1/4"}; a key in an inner table is written with dots.

    Raises:
        UsageError: The mechanism can't have these values.
    """
    raw: dict[str, Any] = spec.mechanism.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    for key, value in chosen.items():
        *path, last = key.split(".")
        place = raw
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise UsageError(f"the grid's {key}: {part} is not a table of keys")
        place[last] = value
    parts = {one: getattr(spec, one) for one in Spec.model_fields}
    return Spec.model_validate(parts | {"mechanism": {"kind": spec.mechanism.kind, **raw}})


def _read_grid(grid: Grid) -> dict[str, list[Any]]:
    """Return the values of each key of a grid, without repetitions. Keys lose their prefix "mechanism."."""
    pairs = grid.items() if isinstance(grid, Mapping) else (_split_pair(text) for text in grid)
    by_key: dict[str, list[Any]] = {}
    for name, values in pairs:
        key = name.strip().removeprefix(SECTION)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UsageError(f"the grid's {key}: give a list of values")
        if key in by_key:
            raise UsageError(f"the grid has {key} twice")
        by_key[key] = list({str(one): one for one in as_exact_data({key: list(values)})[key]}.values())
        if not by_key[key]:
            raise UsageError(f"the grid's {key} has no value")
    return by_key


def _split_pair(text: str) -> tuple[str, list[Any]]:
    """Split "key=value,value" into the key and its values. Commas inside brackets or quotes do not separate values.

    >>> _split_pair("mechanism.threshold=1/4, {default = 0.1, HIV = 0.05}")
    ('mechanism.threshold', ['1/4', {'default': Decimal('0.1'), 'HIV': Decimal('0.05')}])
    """
    key, equals, rest = text.partition("=")
    if not (equals and key.strip()):
        raise UsageError(f"the grid's {text!r}: write key=value,value")
    parts: list[str] = []
    for piece in rest.split(","):
        if parts and _is_open(parts[-1]):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return key.strip(), [parse_toml_value(part.strip()) for part in parts if part.strip()]


def _is_open(text: str) -> bool:
    """Return whether a text has an unclosed bracket or quote."""
    brackets = sum(map(text.count, "[{")) > sum(map(text.count, "]}"))
    return brackets or any(text.count(quote) % 2 for quote in "\"'")


# Several specifications -----------------------------------------------------------------------------------------------
# Publish one table by several specifications, and measure each with the same workload.


@dataclass(frozen=True)
class Candidate:
    """A specification that was published for a comparison, and how its release answers.

    Attributes:
        name: The name of the specification.
        spec: The specification.
        published: The outcome of publishing it.
        evaluated: The errors of its release's answers.
        seconds: How long the evaluation took.
        values: The values of the grid that it has, as texts by key.
    """

    name: str
    spec: Spec
    published: Published
    evaluated: Evaluated
    seconds: float
    values: dict[str, str] = field(default_factory=dict)

    @property
    def promise(self) -> str:
        """Return the promised bound on an attacker's belief, in words."""
        return self.spec.implementation.promise(self.spec.mechanism)

    def as_json(self) -> dict[str, Any]:
        """Return this specification's entry in the object that ``--json`` prints."""
        return {
            "spec": self.name,
            **({"grid": self.values} if self.values else {}),
            "promise": self.promise,
            **{key: value for key, value in self.published.as_json().items() if key not in ("release", "checks")},
            "evaluation": self.evaluated.as_json(),
            "evaluation_seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class RefusedCombination(JsonObject):
    """A combination of a grid's values with which a specification can't be published, and the reason."""

    json_keys = ("spec=name", "grid=values", "refused=reason", "exit_code")

    name: str
    reason: str
    exit_code: int
    values: dict[str, str]


class Comparison(Outcome, list[Candidate]):
    """The outcome of comparing several specifications, as a list of those that were published, in order.

    The attribute ``rows`` lists all: also the combinations of a grid's values that can't be published.
    """

    def __init__(self, rows: Iterable[Candidate | RefusedCombination] = ()) -> None:
        self.rows = list(rows)
        super().__init__(one for one in self.rows if isinstance(one, Candidate))

    @property
    def refused(self) -> list[RefusedCombination]:
        """Return the combinations of a grid that can't be published."""
        return [one for one in self.rows if isinstance(one, RefusedCombination)]

    def as_json(self, *, points: bool = False) -> dict[str, Any]:
        """Return the comparison as the object that ``--json`` prints.

        Args:
            points: Whether it includes every question to every release.
        """
        specs = [one.as_json() for one in self.rows]
        if points:
            for entry, one in zip(specs, self.rows, strict=True):
                entry.update({"points": one.evaluated.points()} if isinstance(one, Candidate) else {})
        return {"specs": specs}

    def plot(self) -> Any:
        """Return an altair chart of each release's errors, by the size of the true answer."""
        return plot.draw_picture(plot.draw_comparison, {one.name: one.evaluated.scores for one in self})

    @property
    def title(self) -> str:
        """Return the title that a notebook shows above the comparison."""
        return f"{len(self)} specifications"

    @property
    def exit_code(self) -> int:
        """Return 0, or 3 if none of the specifications can be published."""
        return 0 if self else InfeasibleError.exit_code

    def show(self, *, verbose: bool = False) -> Iterator[Part]:
        """Yield what people see: a table of the releases' promises and errors, by the size of the true answer."""
        labels = self._list_bands()
        columns = ("spec", "posterior", "estimator", *labels, "covered", "published", "retained", "seconds")
        rows = []
        for one in self:
            facts, summaries = one.published.facts, [score.summary() for score in one.evaluated.scores.values()]
            published = None if facts["records"] is None else facts["published"] / max(1, facts["records"])
            rows.append(
                (
                    f"{one.name}\n{facts['mechanism']}, {facts['algorithm']}",
                    one.promise.replace(" if ", "\nif "),
                    "\n".join(one.evaluated.scores),
                    *("\n".join(_format_error(summary, label) for summary in summaries) for label in labels),
                    "\n".join(format_percent(summary["coverage"]) or "-" for summary in summaries),
                    format_percent(published),
                    format_percent(facts.get("retention")),
                    f"{one.published.seconds:.1f}",
                )
            )
        if rows:
            yield Table(columns, rows, range(3, len(columns)), wide=True, ruled=True)
        yield from (f"{one.name}: {one.reason}" for one in self.refused)
        if rows:
            yield "mean relative error by size of the true answer; covered: true answers within the bounds"

    def _list_bands(self) -> list[str]:
        """Return the column heads of the table of errors: ranges of true answers, such as "100-1,000", and last "all".

        Only ranges in which some release has a known error are listed, the smallest answers first.
        """
        summaries = [score.summary() for one in self for score in one.evaluated.scores.values()]
        bands = [band for one in summaries for band in one["bands"] if band["mean_relative_error"] is not None]
        return [*dict.fromkeys(plot.band_label(band) for band in sorted(bands, key=lambda band: band["low"])), "all"]


def _format_error(summary: dict[str, Any], label: str) -> str:
    """Return the mean relative error of one release's answers as text; "-" if it is not known.

    Args:
        summary: The errors of the release, also for each range of true answers.
        label: The range whose answers count, such as "100-1,000"; "all" for all answers.
    """
    bands = {plot.band_label(band): band for band in summary["bands"]} | {"all": summary}
    error = bands.get(label, {}).get("mean_relative_error")
    return "-" if error is None else f"{error:.3f}"


def _evaluate_specs(
    specs: Any,
    workload: Workload | PathLike | None,
    grid: Grid | None,
    confidence: float,
    key_file: PathLike | None,
    how: EvaluationKeywords,
) -> Comparison:
    """Publish every specification into a temporary folder, and compare each release's answers with its source.

    Args:
        specs: The specifications: a mapping by name, pairs (name, specification), or a list.
        workload: The questions, or the form of their conditions, or a file of SQL.
        grid: Values for keys of ``[mechanism]``, with which every specification is combined; None for no grid.
        confidence: The confidence of the intervals.
        key_file: The file with the key that chooses records of each person; None for the ledger's key.
        how: The fields of the workload, the seed, and how the engine runs.
    """
    seed = how.get("seed", 1)
    drawn = {} if seed is None or isinstance(workload, Workload) else {"seed": seed}
    asked = {name: value for name, value in how.items() if name != "seed"}
    questions = make_workload(workload, asked | drawn, evaluate)
    rest = {name: value for name, value in how.items() if name in RUNNING}
    key_path = as_optional_path(key_file, "key_file")
    with options_from(rest, "evaluate") as options:
        pairs = _name_specs(specs)
        _require_comparable(pairs)
        trial = _Trial(pairs[0][1].name, questions, as_confidence(confidence), seed, key_path)
        return Comparison(_run_trials(combine_grid(pairs, grid), trial, options, refuse=grid is None))


def _name_specs(specs: Any) -> list[tuple[str, Spec]]:
    """Return the specifications as (name, specification). One without a name is called by its file or its number.

    Raises:
        UsageError: The argument is a release or a single specification.
    """
    if isinstance(specs, str | os.PathLike) and not str(specs).lower().endswith(".toml"):
        raise UsageError(f"{specs}: evaluate compares a release with its source; give option source")
    alone = isinstance(specs, str | os.PathLike | Spec) or is_table(specs) or not isinstance(specs, Iterable)
    if alone or (isinstance(specs, Mapping) and {"source", "mechanism"} <= set(specs)):
        raise UsageError("evaluate takes specifications by name or in a list; put one into a list: [spec]")
    pairs: list[tuple[str, SpecLike]] = []
    for at, one in enumerate(specs.items() if isinstance(specs, Mapping) else specs, 1):
        if isinstance(one, tuple):
            pairs.append((str(one[0]), one[1]))
        else:
            pairs.append((as_path(one).stem if isinstance(one, str | os.PathLike) else str(at), one))
    return [(name, as_spec(spec)) for name, spec in pairs]


@dataclass(frozen=True)
class _Trial:
    """The settings that all specifications of a comparison share.

    Attributes:
        called: The name of all releases.
        workload: The questions.
        confidence: The confidence of the intervals.
        seed: Makes releases repeatable; None for fresh keys.
        key_path: The file with the key that chooses records of each person; None for the ledger's key.
    """

    called: str
    workload: Workload
    confidence: float
    seed: int | None
    key_path: Path | None

    def redirect_spec(self, spec: Spec, folder: Path) -> Spec:
        """Return the specification for a trial: its release goes into ``folder``, and no ledger is written."""
        to = folder / "release.duckdb"
        release = ReleaseSection(name=self.called, to=to, format="duckdb", order=spec.release.order)
        return spec.model_copy(update={"release": release, "ledger": Ledger(off=True)})

    def choose_records(self, spec: Spec, key: Key) -> PersonChoice | None:
        """Return which records of each person a trial publishes and compares; None if it publishes all of them.

        These are the records that ``publish`` would choose: by the key file, else by the ledger's key, else by ``key``.
        """
        own = None if self.key_path is None else read_key(self.key_path)
        with open_scratch() as db:
            return make_choice(db, PublicationRequest(spec, path_of(spec), own), publishing=False, otherwise=key)


def _run_trials(
    wanted: Sequence[Combination], trial: _Trial, options: Options, *, refuse: bool
) -> Iterator[Candidate | RefusedCombination]:
    """Publish each specification, and compare its release's answers with the source.

    Args:
        wanted: The specifications.
        trial: The settings.
        options: How the engine runs.
        refuse: Whether a specification that can't be published raises an error; otherwise a ``RefusedCombination`` is
            yielded.
    """
    for number, one in enumerate(wanted, 1):
        if one.refused is not None:
            yield RefusedCombination(one.name, one.refused, UsageError.exit_code, one.values)
            continue
        name = one.name if len(wanted) == 1 else f"{number}/{len(wanted)} {one.name}"
        reported = replace(options, report=PartReporter(options.report, name))
        key, refused = system_key() if trial.seed is None else seed_key(trial.seed), None
        choice = trial.choose_records(one.spec, key)
        with temporary_folder() as folder:
            try:
                request = PublicationRequest(trial.redirect_spec(one.spec, folder), None, key, choice=choice)
                published = publish_spec(request, reported)
            except (UsageError, InfeasibleError) as error:
                if refuse:
                    error.args = (f"{one.name}: {error}", *error.args[1:])
                    raise
                refused = RefusedCombination(one.name, str(error), error.exit_code, one.values)
            if refused is not None:
                yield refused
                continue
            clock = time.monotonic()
            answers = measure_answers(
                published.target, published.spec, trial.workload, trial.confidence, reported, choice
            )
        yield Candidate(one.name, one.spec, published, answers, time.monotonic() - clock, one.values)


def _require_comparable(specs: Sequence[tuple[str, Spec]]) -> None:
    if not specs:
        raise UsageError("give at least one specification")
    first = specs[0][1]
    for name, spec in specs[1:]:
        for part in ("source", "columns"):
            if getattr(spec, part) != getattr(first, part):
                raise UsageError(f"{name}: its [{part}] is not that of {specs[0][0]}; evaluate needs one table")
