"""Intervals hold as often as they say, over releases of every family that states any: one statistical test.

Each release is drawn with a seed of its own. Its share of intervals that hold the truth is a number from 0 to 1, whose
expectation is at least .95 if intervals keep their confidence. Shares of different releases are independent, answers of
one release need not be. So Chernoff's bound for means of such numbers (Hoeffding 1963, Theorem 1) gives the least mean
that chance explains: ``FALSE_ALARM`` is the probability that correct intervals fail the test.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
import scipy.optimize

from public import test_bucketize as bucketize
from public import test_contingency as contingency
from public import test_randomize as randomize
from public import test_setvalued as setvalued
from public.made import NAME, Case, Shelf
from public.steps import compare_answers
from public.surface import Asker, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIDENCE = 0.95
FALSE_ALARM = 1e-3

DISTRICTS = "SELECT district, COUNT(*) AS n FROM {name} WHERE {where} GROUP BY district"
SEXES = "SELECT sex, COUNT(*) AS n FROM {name} WHERE {where} GROUP BY sex"
WARDS = "SELECT ward, COUNT(*) AS n FROM {name} WHERE {where} GROUP BY ward"
JOBS = "SELECT job, COUNT(*) AS n FROM {name} WHERE {where} AND job IS NOT NULL GROUP BY job"
COUNT = "SELECT COUNT(*) AS n FROM {name} WHERE {where}"

DISEASES = [
    *((DISTRICTS, f"disease = '{one}'") for one in ("flu", "cold", "asthma")),
    (SEXES, "disease IN ('HIV', 'lupus') AND age < 40"),
    (SEXES, "age BETWEEN 30 AND 49 AND disease <> 'flu'"),
]
ILLS = [
    *((WARDS, f"disease = '{one}'") for one in ("d0", "d1")),
    (SEXES, "disease IN ('d2', 'd3') AND age < 45"),
    (SEXES, "age >= 30 AND disease = 'd0'"),
]
GOODS = [
    *((COUNT, f"list_contains(goods, '{one}')") for one in ("ale", "bread", "cheese", "figs")),
    (COUNT, "list_has_all(goods, ['ale', 'bread'])"),
    (COUNT, "list_has_all(goods, ['dates', 'figs']) AND NOT list_contains(goods, 'ale')"),
]
CELLS = [
    *((JOBS, f"sex = '{one}'") for one in ("F", "M")),
    (JOBS, "region = 'south'"),
    (SEXES, "sex IN ('F', 'M') AND region IN ('north', 'east')"),
    (SEXES, "sex IN ('F', 'M') AND job = 2 AND region = 'west'"),
]
QUESTIONS: Mapping[Case, list[tuple[str, str]]] = {
    bucketize.TWO_SIZE: DISEASES,
    bucketize.INFORMATIVE: DISEASES,
    randomize.UP: ILLS,
    randomize.PP: ILLS,
    randomize.TABLES: ILLS,
    setvalued.VIEWS: GOODS,
    setvalued.DIFFPART: GOODS,
    contingency.MARGINALS: CELLS,
    contingency.DIFFPART: CELLS,
}


def ask_all(shelf: Shelf, case: Case, questions: list[tuple[str, str]]) -> list[tuple[Figure, float]]:
    """Return every figure that rests on an interval, with its true answer."""
    made, figures = shelf.get(case), []
    with Asker(made.release) as asker:
        for query, where in questions:
            figures += compare_answers(asker, made, query.format(name=NAME, where=where))
    return [(figure, truth) for figure, truth in figures if figure.std_error != 0]


def share_held(figures: list[tuple[Figure, float]], width: float = 1.0) -> float:
    """Return the share of intervals that hold the truth, each shrunk about its estimate to a part of its width."""
    held = [
        one.estimate - width * (one.estimate - one.low) - 1e-6
        <= truth
        <= one.estimate + width * (one.high - one.estimate) + 1e-6
        for one, truth in figures
    ]
    return sum(held) / len(held)


def least_mean(releases: int, expectation: float = CONFIDENCE) -> float:
    """Return the mean that so many shares fall below with a probability of at most ``FALSE_ALARM``."""

    def divergence(mean: float) -> float:
        rest = (1 - mean) * math.log((1 - mean) / (1 - expectation))
        return mean * math.log(mean / expectation) + rest + math.log(FALSE_ALARM) / releases

    return float(scipy.optimize.brentq(divergence, 1e-9, expectation)) if divergence(1e-9) > 0 else 0.0


@pytest.mark.parametrize(
    "releases", [pytest.param(3, marks=pytest.mark.slow), pytest.param(12, marks=pytest.mark.soak(part="coverage"))]
)
def test_intervals_hold_over_releases_and_are_no_wider_than_they_need_to_be(shelf: Shelf, releases: int) -> None:
    """So many releases of each case."""
    held, narrow = defaultdict(list), defaultdict(list)
    for case, questions in QUESTIONS.items():
        for number in range(releases):
            figures = ask_all(shelf, dataclasses.replace(case, name=f"{case.name}-{number}"), questions)
            for kind in ("all", case.mechanism["kind"]):
                held[kind].append(share_held(figures))
                narrow[kind].append(share_held(figures, 1 / 4))
    for kind, shares in held.items():
        assert sum(shares) / len(shares) >= least_mean(len(shares)), (kind, shares)
    # A quarter of the width holds about half of the truths; were intervals four times too wide, it would hold 95 %.
    missed = [1 - share for share in narrow["all"]]
    assert sum(missed) / len(missed) >= least_mean(len(missed), 0.3)
