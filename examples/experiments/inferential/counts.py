"""Relative error of counts (Figure 5), and by the number of attributes."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

import privsql
from experiments.common import Axes, Point, experiment
from experiments.inferential.tables import ALGORITHMS, PANELS, THETAS, columns, mechanism

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench


@experiment(
    name="inferential-error",
    paper_name="inferential",
    places=("Figure 5",),
    title="relative error of counts",
    says="For OCC the largest error is slightly over 10 %, for EDU all are at most 10 %. The three algorithms are "
    "close to each other; for EDU MultiSize is about 2 points better than TwoSize, and Optimal about 2 "
    "better than MultiSize. Anatomy is left out, as most of its diversities do not exist.",
    differs="For OCC the largest error by the paper's formula is 10.8 %, as there; the algorithms are within a point "
    "of each other up to θ = 8, and TwoSize is 1 to 2 points worse at θ = 16 and 32. For EDU errors are "
    "larger than the paper's up to θ = 8, 14.5 % at most: the survey has one attribute less and fewer people "
    "with the commonest education. MultiSize is 0.3 to 3.6 points better than TwoSize, Optimal is within "
    "half a point of MultiSize: less loss is not always less error. Reconstruction, which the paper does not "
    "have, leaves 0.8 to 10 %; with it TwoSize is often the best of the three for OCC. Every point is the "
    "mean of 70 queries (60 for EDU), the same for all algorithms, in place of 5,000: differences below a "
    "point are within chance.",
    parameters="Queries over qd random attributes, qd = 1 to 7 equally often, of an expected selectivity of 1 %, each "
    "attribute restricted to random values; questions whose true answer is 0 are left out",
    data=("acs_occ", "acs_edu"),
    axes=Axes("privacy coefficient θ", "mean relative error", x_scale="log2", percent=True),
    over={"table": ("acs_occ", "acs_edu"), "theta": THETAS, "algorithm": ("two-size", "multi-size", "optimal")},
    small={"table": ("acs_occ",), "theta": (8,), "algorithm": ("two-size",)},
    counted=True,
)
def error(bench: Bench, table: str, theta: int, algorithm: str) -> Iterator[Point]:
    """The mean of |act - est|/act by the paper's formula and by reconstruction."""
    found, panel = bench.table(table), PANELS[table]
    spec = bench.spec(found, mechanism(theta, algorithm), columns(table, found))
    bench.fit(privsql.publish(spec, seed=bench.seed))
    errors = relative_errors(bench, spec)
    for estimator, shown in ESTIMATORS.items():
        every = [one for by in errors.values() for one in by.get(estimator, [])]
        if not every:
            continue
        yield Point(ALGORITHMS[algorithm], theta, float(np.mean(every)), f"{panel}, {shown}", note=spread(every))


ESTIMATORS = {"baseline": "the paper's formula", "linear": "linear estimator", "model": "model"}
QUERIES = 5000  # of a point


def relative_errors(bench: Bench, spec: privsql.Spec) -> dict[int, dict[str, list[float]]]:
    """|act - est|/act by number of attributes and estimator, of as many queries of each number."""
    found: dict[int, dict[str, list[float]]] = {}
    every = range(1, len(spec.columns.quasi_identifiers) + 1)
    each = ceil(bench.queries(QUERIES, 2 * len(every)) / len(every))
    for attributes in every[::3] if bench.small else every:
        asked = {"queries": each, "attributes": attributes, "selectivity": 0.01, "seed": bench.seed}
        points = privsql.evaluate(spec.target, spec, "random", **asked).points()
        known = [point for point in points if point["truth"]]
        found[attributes] = {
            estimator: [abs(one[estimator]["estimate"] - one["truth"]) / one["truth"] for one in known]
            for estimator in ESTIMATORS
            if all(estimator in one for one in known)
        }
    return found


def spread(errors: list[float]) -> str:
    """What else there is to say of errors."""
    return f"{len(errors)} queries, median {np.median(errors):.3g}"


@experiment(
    name="inferential-dimensions",
    paper_name="inferential",
    places=("Section 7.2.2",),
    title="relative error by the number of attributes in a query",
    says="The number of attributes is drawn from 1 to 7 for every query; errors by that number are not shown.",
    differs="The paper's formula takes a bucket's values to be spread evenly over its records, so its answers lean "
    "towards independence: 4 to 17 % of error. Reconstruction, which undoes what the buckets are known to "
    "have mixed, takes 45 to 73 % of that away: 2 to 8 % remain. Errors fall with more attributes because of "
    "how the questions are made: for a selectivity of 1 % over many attributes each is restricted to most of "
    "its values, and the answers grow.",
    parameters="θ = 8, TwoSize, queries as in Figure 5",
    data=("acs_occ", "acs_edu"),
    axes=Axes("attributes in the query, qd", "mean relative error", percent=True, bound="lines: two standard errors"),
    over={"table": ("acs_occ", "acs_edu")},
    small={"table": ("acs_occ",)},
    counted=True,
)
def dimensions(bench: Bench, table: str) -> Iterator[Point]:
    """The same, by qd."""
    found = bench.table(table)
    spec = bench.spec(found, mechanism(8, "two-size"), columns(table, found))
    bench.fit(privsql.publish(spec, seed=bench.seed))
    for number, by in relative_errors(bench, spec).items():
        for estimator, shown in ESTIMATORS.items():
            errors = by.get(estimator, [])
            if not errors:
                yield Point(shown, number, None, PANELS[table], note="every true answer was 0")
                continue
            mean, off = float(np.mean(errors)), 2 * float(np.std(errors)) / len(errors) ** 0.5
            yield Point(shown, number, mean, PANELS[table], low=mean - off, high=mean + off, note=spread(errors))
