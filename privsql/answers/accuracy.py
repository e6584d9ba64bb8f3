"""How good a release's answers are: relative error and coverage of the intervals, by size of the true answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from privsql.answers.channel import quality
from privsql.answers.reconstruct import LARGE
from privsql.answers.workload import questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from privsql.answers.answer import Answer
    from privsql.answers.base import Answers
    from privsql.answers.workload import Question, Workload
    from privsql.engine.database import Relations
    from privsql.engine.progress import Reporter
    from privsql.model.records import Records

BANDS = (0, 1, 50, 200, 1000, 5000, float("inf"))  # true answers from .. up to, not including
Truth = dict[tuple[Any, ...], float]


@dataclass
class Score:
    """True answers, estimates and bounds of one estimator, one entry per query and group."""

    truth: list[float] = field(default_factory=list)
    estimate: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, truth: float, figures: tuple[float | None, float | None, float | None]) -> None:
        """One answer: estimate, low, high; None where there is no such bound."""
        estimate, low, high = figures
        self.truth.append(truth)
        self.estimate.append(0.0 if estimate is None else estimate)
        self.low.append(np.nan if low is None else low)
        self.high.append(np.nan if high is None else high)

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
    """Scores by estimator, and what the release's channel can tell."""

    scores: dict[str, Score]
    channel: dict[str, float]
    confidence: float
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)  # by estimator: what item sets have besides

    def as_json(self) -> dict[str, Any]:
        """The object of ``--json``."""
        shown = {name: found.summary() | self.extras.get(name, {}) for name, found in self.scores.items()}
        return {**shown, "channel": self.channel, "confidence": self.confidence}


@dataclass(frozen=True)
class Measuring:
    """A release beside its source: ``records`` lie in ``db``, under the release's name as well.

    ``answer``: what the release says of a query, by estimator; ``truth``: what the source says.
    """

    db: Relations
    records: Records
    name: str
    answers: Answers
    workload: Workload
    confidence: float
    answer: Callable[[str, str], Answer]
    truth: Callable[[str], Truth]
    report: Reporter


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
