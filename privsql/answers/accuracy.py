"""How good a release's answers are: relative error and coverage of the intervals, by size of the true answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from privsql import markup, plot
from privsql.answers.channel import quality
from privsql.answers.reconstruct import LARGE
from privsql.answers.scores import Put, Score
from privsql.answers.workload import questions
from privsql.engine.progress import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from privsql.answers.answer import Answer
    from privsql.answers.base import Answers
    from privsql.answers.workload import Question, Workload
    from privsql.engine.database import Ordered
    from privsql.engine.progress import Reporter
    from privsql.model.records import Records

Truth = dict[tuple[Any, ...], float]


@dataclass(frozen=True)
class Evaluated:
    """Scores by estimator, and what the release's channel can tell.

    ``extras``, by estimator: what a kind of releases is measured by besides; its keys stand beside the score's own.
    """

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every question with its true answer, and what each estimator says: estimate, low and high.

        ``question``: SQL; ``group``: of its answer, as text; ``class``: of the question, where there are classes. An
        estimator that refuses a question is left out of its point, a bound that it does not have is None.
        """
        found: dict[tuple[Put, int], dict[str, Any]] = {}
        for name, score in self.scores.items():
            times: dict[Put, int] = defaultdict(int)
            for put, truth, answer in score.points():
                times[put] += 1  # a question that was drawn twice is two points
                if (put, times[put]) not in found:
                    found[put, times[put]] = _pointed(put) | {"truth": truth}
                found[put, times[put]][name] = answer
        return list(found.values())

    def plot(self) -> Any:
        """A picture, of altair: errors by size of the true answer, and estimated against true answers."""
        return plot.shown(plot.evaluation, self.scores)

    def _repr_html_(self) -> str:
        """What a notebook shows: error and coverage by size of the true answer, or by class of question."""
        head = ("estimator", "questions", "asked", "mean error", "coverage")
        rows = [
            (name, label, figures["queries"], *(_shown(figures[key]) for key in (error, "coverage")))
            for name, score in self.scores.items()
            for label, error, figures in _parts(score, self.extras.get(name, {}))
        ]
        said = f"coverage is that of the {self.confidence:.0%} intervals; baseline's bounds are certain"
        return markup.page("Answers beside those of the source", markup.table(head, rows, len(rows)), markup.line(said))

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {name: found.summary() | self.extras.get(name, {}) for name, found in self.scores.items()}
        return {**shown, "channel": self.channel, "confidence": self.confidence}


def _pointed(put: Put) -> dict[str, Any]:
    """What was asked, as JSON has it."""
    group, of = put.texts, put.of
    return {"question": put.question, **({"group": group} if group else {}), **({"class": of} if of else {})}


def _parts(score: Score, extra: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """What is shown of one estimator: a label, the name of the error, and the figures."""
    for one in extra.get("questions", []):
        yield one["class"], "mean_error", one
    if "questions" not in extra:
        for band in (summary := score.summary())["bands"]:
            yield f"true answer {plot.band_label(band)}", "mean_relative_error", band
        yield "all", "mean_relative_error", summary


def _shown(figure: float | None) -> str | None:
    return None if figure is None else f"{figure:.3f}"


@dataclass(frozen=True)
class Measuring:
    """A release beside its source: ``records`` lie in ``db``, under the release's name as well.

    ``answer``: what the release says of a query, by estimator; ``truth``: what the source says, by group; ``rows``: the
    source's rows for a query.
    """

    db: Ordered
    records: Records
    name: str
    answers: Answers
    workload: Workload
    confidence: float
    answer: Callable[[str, str], Answer]
    truth: Callable[[str], Truth]
    rows: Callable[[str], list[tuple[Any, ...]]]
    report: Reporter

    @property
    def estimators(self) -> tuple[str, ...]:
        """Those of the release's that are asked; ``UsageError`` for others."""
        known, asked = self.answers.estimators, self.workload.estimators
        for name in asked or ():
            self.answers.known(name)
        return tuple(name for name in known if asked is None or name in asked)


def by_class(scores: Mapping[str, Score], records: float) -> dict[str, Any]:
    """Figures of one estimator by class of question, and of all of these by share of the records."""
    every = Score()
    for one in scores.values():
        every.extend(one)
    found = [{"class": name, **one.figures(records)} for name, one in scores.items()]
    return {"questions": found, "shares": every.by_share(records)}


def by_questions(given: Measuring) -> Evaluated:
    """The answers to a workload of queries."""
    asked, number = questions(given.db, given.records.roles, given.name, given.workload)
    scores = score(asked, number, given)
    seen = given.answers.channel if given.records.roles.quasi_identifiers else None
    told = quality(seen) if seen is not None and len(seen.records) <= LARGE else {}
    return Evaluated(scores, told, given.confidence)


def score(questions: Iterable[Question], number: int, given: Measuring) -> dict[str, Score]:
    """Ask every question of the estimators and of the source; ``number`` of them, for the progress bar.

    What has no group whose true answer the workload wants is not asked of the release.
    """
    scores = {name: Score() for name in sorted(given.estimators)}
    given.report.step("Answering the workload")
    for question in counted(given.report, questions, number):
        true = given.truth(question.sql)
        if question.groups is None or any(given.workload.wants(true.get(group, 0.0)) for group in question.groups):
            for estimator, found in scores.items():
                found.extend(_scored(given, question, true, estimator))
    return scores


def _scored(given: Measuring, question: Question, true: Truth, estimator: str) -> Score:
    """The answers of one estimator to one question."""
    known, found = given.answer(question.sql, estimator).by_group(), Score()
    groups = question.groups if question.groups is not None else tuple(dict.fromkeys((*true, *known)))
    for group in groups:
        truth = true.get(group, 0.0)
        if given.workload.wants(truth):
            found.add(truth, known.get(group, (0.0, 0.0, 0.0)), Put(question.sql, group))
    return found
