"""How good a release's answers are: relative error and coverage of the intervals, by size of the true answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql import markup, plot
from privsql.answers.channel import quality
from privsql.answers.reconstruct import LARGE
from privsql.answers.workload import questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from privsql.answers.answer import Answer
    from privsql.answers.base import Answers
    from privsql.answers.workload import Question, Workload
    from privsql.engine.database import Ordered
    from privsql.engine.progress import Reporter
    from privsql.model.estimate import Number
    from privsql.model.records import Records

BANDS = (0, 1, 50, 200, 1000, 5000, float("inf"))  # true answers from .. up to, not including
SANITY = 0.001  # share of the records below which a true answer counts as that
SHARES = (0, 0.0001, 0.001, 0.01, 0.1, float("inf"))  # true answers by share of the records, from .. up to
Truth = dict[tuple[Any, ...], float]


@dataclass
class Score:
    """True answers, estimates and bounds of one estimator, one entry per query and group."""

    truth: list[float] = field(default_factory=list)
    estimate: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, truth: float, figures: tuple[Number | None, Number | None, Number | None]) -> None:
        """One answer: estimate, low, high; None where there is no such bound."""
        estimate, low, high = figures
        self.truth.append(truth)
        self.estimate.append(0.0 if estimate is None else float(estimate))
        self.low.append(np.nan if low is None else float(low))
        self.high.append(np.nan if high is None else float(high))

    def extend(self, other: Score) -> None:
        """All answers of another one."""
        for one in fields(self):
            getattr(self, one.name).extend(getattr(other, one.name))

    def figures(self, records: float, low: float = -np.inf, high: float = np.inf) -> dict[str, Any]:
        """Answers whose truth lies in [low, high): how many, mean error, coverage and half-width; None where there are
        none, or none with bounds.

        error: |estimate - truth| / max(truth, SANITY * records); half-width: mean of (high - low)/2, in records.
        """
        truth, estimate, least, most = (np.array(getattr(self, one.name)) for one in fields(self))
        inside = (truth >= low) & (truth < high)
        bounded = inside & ~np.isnan(least) & ~np.isnan(most)
        errors = np.abs(estimate - truth) / np.maximum(truth, max(SANITY * records, np.finfo(float).tiny))
        covered = (least <= truth + 1e-9) & (truth <= most + 1e-9)
        return {
            "queries": int(inside.sum()),
            "mean_error": float(errors[inside].mean()) if inside.any() else None,
            "coverage": float(covered[bounded].mean()) if bounded.any() else None,
            "half_width": float(((most - least) / 2)[bounded].mean()) if bounded.any() else None,
        }

    def by_share(self, records: float) -> list[dict[str, Any]]:
        """The same by share of the records that the true answer has; bands without an answer are left out."""
        found = [
            {
                "low": low,
                "high": None if np.isinf(high) else high,
                **self.figures(records, low * records, high * records),
            }
            for low, high in pairwise(SHARES)
        ]
        return [band for band in found if band["queries"]]

    def summary(self) -> dict[str, Any]:
        """The figures of ``--json``; true answers of 0 are left out of relative errors."""
        every = self._band(-np.inf, np.inf)
        bands = [self._band(low, high) | {"low": low, "high": high} for low, high in pairwise(BANDS)]
        shown = [
            {**band, "high": None if band["high"] == np.inf else band["high"]} for band in bands if band["queries"]
        ]
        return {**every, "bands": shown}

    def _band(self, low: float, high: float) -> dict[str, Any]:
        truth, estimate = np.array(self.truth), np.array(self.estimate)
        inside = (truth >= low) & (truth < high)
        covered = (np.array(self.low) <= truth + 1e-9) & (truth <= np.array(self.high) + 1e-9)
        known = inside & (truth != 0)
        bounded = inside & ~np.isnan(self.low) & ~np.isnan(self.high)
        errors = np.abs(estimate[known] - truth[known]) / np.abs(truth[known])
        return {
            "queries": int(inside.sum()),
            "mean_relative_error": float(errors.mean()) if len(errors) else None,
            "median_relative_error": float(np.median(errors)) if len(errors) else None,
            "coverage": float(covered[bounded].mean()) if bounded.any() else None,
        }


@dataclass(frozen=True)
class Evaluated:
    """Scores by estimator, and what the release's channel can tell.

    ``extras``, by estimator: what a kind of releases is measured by besides; its keys stand beside the score's own.
    """

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)

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
    scores = score(asked, number, given.answer, given.truth, given.report)
    seen = given.answers.channel if given.records.roles.quasi_identifiers else None
    told = quality(seen) if seen is not None and len(seen.records) <= LARGE else {}
    return Evaluated(scores, told, given.confidence)


def score(
    questions: Iterable[Question],
    number: int,
    answer: Callable[[str, str], Answer],
    truth: Callable[[str], Truth],
    report: Reporter,
) -> dict[str, Score]:
    """Ask every question of both estimators and of the source; ``number`` of them, for the progress bar."""
    scores: dict[str, Score] = defaultdict(Score)
    report.step("Answering the workload")
    for done, question in enumerate(questions):
        true = truth(question.sql)
        for estimator in ("baseline", "reconstructed"):
            given = answer(question.sql, estimator).by_group()
            groups = question.groups if question.groups is not None else tuple(dict.fromkeys((*true, *given)))
            for group in groups:
                scores[estimator].add(true.get(group, 0.0), given.get(group, (0.0, 0.0, 0.0)))
        report.update(100 * (done + 1) / number)
    return scores
