"""How good a release's answers are, as far as the release itself tells: by the size of the answer."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from privsql.answers.base import THEIRS
from privsql.answers.scores import BANDS
from privsql.engine.progress import counted
from privsql.errors import UsageError
from privsql.pages.facts import Foreseen
from privsql.verbs.reporting.asking import ROWS, asked, questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.progress import Reporter
    from privsql.releases.opened import Release

MEAN = math.sqrt(2 / math.pi)  # E|x| of a normal x with deviation 1


def foreseen(release: Release, report: Reporter) -> tuple[Foreseen, ...]:
    """Typical questions put to the release alone, by the size of the answer.

    The expected error of an estimate with standard error s is sqrt(2/pi) s. Answers that the release holds exactly,
    and those without an interval, tell nothing here and are left out.
    """
    report.step("Asking typical questions")
    found: list[tuple[float, float, float, float | None]] = []
    for query in counted(report, asking := list(questions(release)), len(asking)):
        with suppress(UsageError):  # what the release can't be asked
            found += _answers(release, query)
    return tuple(_band(found, low, high) for low, high in pairwise(BANDS) if any(low <= one[0] < high for one in found))


def _answers(release: Release, query: Any) -> list[tuple[float, float, float, float | None]]:
    """(estimate, standard error, half of the interval, half of the literature's bounds) of every group."""
    ours = asked(release, query)
    if len(ours) > ROWS:
        return []
    theirs = {row[:-4]: _half(row) for row in asked(release, query, THEIRS)}
    return [
        (max(0.0, float(row[-4])), float(row[-3]), half, theirs.get(row[:-4]))
        for row in ours
        if row[-4] is not None and row[-3] and (half := _half(row)) is not None
    ]


def _half(row: Sequence[Any]) -> float | None:
    low, high = row[-2:]
    return None if low is None or high is None else (float(high) - float(low)) / 2


def _band(found: Sequence[tuple[float, float, float, float | None]], low: float, high: float) -> Foreseen:
    own = [one for one in found if low <= one[0] < high]
    bounds = [one[3] for one in own if one[3] is not None]
    return Foreseen(
        low,
        None if math.isinf(high) else high,
        len(own),
        MEAN * median(one[1] for one in own),
        median(one[2] for one in own),
        median(bounds) if bounds else None,
        median(one[0] for one in own),
    )
