"""Errors of count queries by L and by the number of records, estimates against the truth, and times: Figures 2 to 5."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

import privsql
from experiments.common import Axes, Point, experiment
from experiments.counting import ESTIMATORS, error, measured, pairs
from experiments.small_domain.settings import OCC, PANELS, SIZES, mechanism

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench

QUASI = ("age", "sex", "education", "marital", "race", "work_class", "birthplace")
RHO1 = dict.fromkeys(OCC, Fraction(1, 13)) | {"acs_edu": Fraction(1, 30)}
SELECTIVITIES = (0.001, 0.005, 0.01)
CONDITIONS = 200
WAYS = ("PP", "PP, bound", "PP-paper", "UP", "Anatomy")
SOME = ("PP", "PP-paper", "UP", "Anatomy")
SHOWN = 80  # points of a panel of Figure 3


def columns(table: str) -> tuple[list[str], str]:
    """Quasi-identifiers and the sensitive column of a table."""
    sensitive = "occupation" if table.endswith("occ") else "education"
    return [name for name in QUASI if name != sensitive], sensitive


def errors(bench: Bench, table: str, x: float, way: str, level: int, records: int | None) -> Iterator[Point]:
    """The mean error of each estimator, by selectivity."""
    found = bench.table(table, records)
    scores = measured(bench, found, mechanism(way, RHO1[table], level), columns(table), CONDITIONS)
    for least in SELECTIVITIES:
        for estimator, truth, estimate in pairs(scores, least * found.records):
            panel = f"{PANELS[table]}, s = {100 * least:g} %"
            note = f"{len(truth):,} queries" if len(truth) else "no such query"
            yield Point(f"{way}{ESTIMATORS[estimator]}", x, error(truth, estimate), panel, note=note)


@experiment(
    name="small-domain-occ-by-l",
    paper_name="small_domain",
    places=("Figure 2, above",),
    title="OCC, error by L",
    says="PP errs less than Anatomy and UP, and gains from a weaker requirement and larger s.",
    differs="At s = 0.1 % UP errs by 98 % and PP by 26 % at L = 6, by 30 and 11 % at L = 3. Anatomy by its "
    "formula errs less than PP on the generated table from L = 5 on; by the linear estimator it errs by 6"
    " to 12 %, by the model by 3 to 7 %, PP reconstructed by 9 to 18 %. But whoever knows some records of"
    " a bucket learns about the others.",
    parameters="rho1 = 1/13, rho2 = 1/L",
    data=OCC,
    axes=Axes("L", "mean relative error", percent=True),
    over={"table": OCC, "level": (3, 4, 5, 6), "way": WAYS},
    small={"table": ("acs_occ",), "level": (6,), "way": ("PP", "Anatomy")},
    table=False,
)
def occ_by_l(bench: Bench, table: str, level: int, way: str) -> Iterator[Point]:
    """All records."""
    yield from errors(bench, table, level, way, level, None)


@experiment(
    name="small-domain-occ-by-size",
    paper_name="small_domain",
    places=("Figure 2, below",),
    title="OCC, error by number of records",
    says="PP errs less than Anatomy and UP at every size.",
    differs="At s = 0.1 % PP errs by 62 % at 100,000 records and by 18 % at 500,000, UP by 141 and 68 %, Anatomy "
    "by 33 % at every size. Reconstructed PP errs by 14 to 8 %.",
    parameters="rho1 = 1/13, rho2 = 1/6",
    data=("acs_occ",),
    axes=Axes("records", "mean relative error", percent=True),
    over={"table": ("acs_occ",), "records": SIZES, "way": SOME},
    small={"records": (100_000,), "way": ("PP", "Anatomy")},
    table=False,
)
def occ_by_size(bench: Bench, table: str, records: int, way: str) -> Iterator[Point]:
    """L = 6."""
    yield from errors(bench, table, records, way, 6, records)


@experiment(
    name="small-domain-estimates",
    paper_name="small_domain",
    places=("Figure 3",),
    title="estimated against actual counts, OCC",
    says="PP's points lie nearest to the diagonal.",
    differs="Mean errors by the papers' formulas: PP 23 %, Anatomy 34 %, UP 89 %; Anatomy by the model 6 "
    "%, linear 11 %; PP reconstructed 17 %.",
    parameters=f"L = 6, s = 0.1 %; {SHOWN} random ones of the queries in every panel",
    data=("acs_occ",),
    axes=Axes("actual count", "estimated count", mark="points"),
    over={"way": ("Anatomy", "UP", "PP-paper", "PP")},
    small={"way": ("PP",)},
    table=False,
)
def estimates(bench: Bench, way: str) -> Iterator[Point]:
    """A point for every query."""
    found = bench.table("acs_occ")
    scores = measured(bench, found, mechanism(way, RHO1["acs_occ"], 6), columns("acs_occ"), CONDITIONS)
    for estimator, truth, estimate in pairs(scores, 0.001 * found.records):
        chosen = np.random.default_rng(bench.seed).permutation(len(truth))[:SHOWN]
        for at in np.sort(chosen).tolist():
            panel = f"{way}{ESTIMATORS[estimator]}"
            yield Point("query", float(truth[at]), float(estimate[at]), panel)


@experiment(
    name="small-domain-edu-by-l",
    paper_name="small_domain",
    places=("Figure 4, above",),
    title="EDU, error by L",
    says="PP becomes UP. Anatomy leaves out records of frequent values, and errs significantly more.",
    differs="The same: PP errs by 5 to 13 %, Anatomy by 19 to 50 % (s = 0.1 %), by the model by 17 to 37 % from L"
    " = 6 on, and by 4 % at L = 4, where it leaves out none.",
    parameters="rho1 = 1/30, rho2 = 1/L",
    data=("acs_edu",),
    axes=Axes("L", "mean relative error", percent=True),
    over={"level": (4, 6, 8, 10), "way": SOME},
    small={"level": (10,), "way": ("PP", "Anatomy")},
    table=False,
)
def edu_by_l(bench: Bench, level: int, way: str) -> Iterator[Point]:
    """All records."""
    yield from errors(bench, "acs_edu", level, way, level, None)


@experiment(
    name="small-domain-edu-by-size",
    paper_name="small_domain",
    places=("Figure 4, below",),
    title="EDU, error by number of records",
    says="As above, at every size.",
    differs="The same: Anatomy's error does not depend on the size, PP's falls from 24 to 14 % (s = 0.1 %).",
    parameters="rho1 = 1/30, rho2 = 1/10",
    data=("acs_edu",),
    axes=Axes("records", "mean relative error", percent=True),
    over={"records": SIZES[::2], "way": SOME},
    small={"records": (100_000,), "way": ("PP", "Anatomy")},
    table=False,
)
def edu_by_size(bench: Bench, records: int, way: str) -> Iterator[Point]:
    """L = 10."""
    yield from errors(bench, "acs_edu", records, way, 10, records)


@experiment(
    name="small-domain-time",
    table=False,
    paper_name="small_domain",
    places=("Figure 5",),
    title="time by number of records",
    says="PP takes at most 30 seconds (C++, 3 GHz), about as long as Anatomy and UP.",
    differs="At most 5 seconds, checks of the release included.",
    parameters="OCC at L = 6, EDU at L = 10; two cores of a busy server",
    data=("acs_occ", "acs_edu"),
    axes=Axes("records", "seconds"),
    over={"table": ("acs_occ", "acs_edu"), "records": SIZES[::2], "way": SOME},
    small={"records": (100_000,), "way": ("PP",)},
)
def seconds(bench: Bench, table: str, records: int, way: str) -> Iterator[Point]:
    """Of a publication."""
    quasi, sensitive = columns(table)
    level = 6 if table in OCC else 10
    roles = {"quasi_identifiers": quasi, "sensitive": sensitive}
    spec = bench.spec(bench.table(table, records), mechanism(way, RHO1[table], level), roles)
    begin = time.perf_counter()
    privsql.publish(spec, seed=bench.seed)
    yield Point(way, records, time.perf_counter() - begin, PANELS[table])
