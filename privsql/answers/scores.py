"""True answers beside the estimates of one estimator: errors, coverage, by size of the true answer."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from privsql.model.estimate import Number

BANDS = (0, 1, 50, 200, 1000, 5000, float("inf"))  # true answers from .. up to, not including
SANITY = 0.001  # share of the records below which a true answer counts as that
SHARES = (0, 0.0001, 0.001, 0.01, 0.1, float("inf"))  # true answers by share of the records, from .. up to


class Put(NamedTuple):
    """What was asked: SQL, the group of its answer, and the class of the question where there are classes."""

    question: str = ""
    group: tuple[Any, ...] = ()
    of: str = ""

    @property
    def texts(self) -> list[str | None]:
        """The group as texts; None is NULL."""
        return [None if value is None else str(value) for value in self.group]


UNNAMED = Put()


@dataclass
class Score:
    """True answers, estimates and bounds of one estimator, one entry per query and group; ``put``: what was asked."""

    truth: list[float] = field(default_factory=list)
    estimate: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    put: list[Put] = field(default_factory=list)

    def add(
        self, truth: float, figures: tuple[Number | None, Number | None, Number | None], put: Put = UNNAMED
    ) -> None:
        """One answer: estimate, low, high; None where there is no such bound."""
        estimate, low, high = figures
        self.put.append(put)
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
        truth, estimate, least, most = map(np.array, (self.truth, self.estimate, self.low, self.high))
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

    def points(self) -> list[tuple[Put, float, dict[str, float | None]]]:
        """What was asked, what is true, and the answer: estimate, low, high; None where there is no such bound."""
        known = ((None if np.isnan(end) else end for end in ends) for ends in zip(self.low, self.high, strict=True))
        figures = zip(self.estimate, known, strict=True)
        answers = ({"estimate": estimate, "low": low, "high": high} for estimate, (low, high) in figures)
        return list(zip(self.put, self.truth, answers, strict=True))

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
