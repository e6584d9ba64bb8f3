"""The sensitive attributes, and what becomes of OCC: Figure 6, Tables 2 and 3."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

import privsql
from experiments.common import Axes, Point, experiment
from experiments.inferential.tables import frequencies
from experiments.small_domain.settings import OCC, PANELS, SIZES, mechanism

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench


@experiment(
    name="small-domain-frequencies",
    paper_name="small_domain",
    places=("Figure 6",),
    title="frequency distributions",
    says="OCC's largest frequency is 7 %, EDU's 27 %; nine of EDU's 14 values have less than 3.33 %.",
    differs="The survey's education has 23 % at most, and seven values below 3.33 %.",
    parameters="All records",
    data=(*OCC, "acs_edu", "like_edu"),
    axes=Axes("value, by rank", "share of the records", mark="bar", percent=True),
    over={"table": ("acs_occ", "acs_edu", "like_occ", "like_edu")},
    paper={(PANELS[name], "frequency", 1.0): 0.07 if name.endswith("occ") else 0.27 for name in PANELS},
    table=False,
)
def distribution(bench: Bench, table: str) -> Iterator[Point]:
    """f_i by rank."""
    found = bench.table(table)
    counted = frequencies(found, "occupation" if table.endswith("occ") else "education")
    for rank, (_, number) in enumerate(counted, 1):
        yield Point("frequency", rank, number / found.records, PANELS[table])


def occupations(bench: Bench, table: str, level: int, way: str, records: int | None = None) -> dict[str, Any]:
    """The facts of a plan for OCC."""
    asked = mechanism(way, Fraction(1, 13), level)
    columns = {"quasi_identifiers": ["sex"], "sensitive": "occupation"}  # a partition depends on nothing else
    return privsql.plan(bench.spec(bench.table(table, records), asked, columns)).facts


@experiment(
    name="small-domain-retention",
    paper_name="small_domain",
    places=("Table 2",),
    title="retention probability, OCC",
    says="PP retains a value about three times as often as UP.",
    differs="The same but for L = 3 on the survey, where the paper's order finds nothing better than the whole table.",
    parameters="rho1 = 1/13, rho2 = 1/L; means over the records",
    data=OCC,
    axes=Axes("L", "mean retention probability p", mark="bar", x_scale="names", percent=True),
    over={"table": OCC, "level": (6, 5, 4, 3), "way": ("UP", "PP-paper", "PP, bound", "PP")},
    small={"level": (6, 3)},
    paper={
        (PANELS[table], series, float(level)): value
        for table in OCC
        for series, values in {"UP": (0.029, 0.040, 0.059, 0.094), "PP-paper": (0.090, 0.123, 0.173, 0.257)}.items()
        for level, value in zip((6, 5, 4, 3), values, strict=True)
    },
)
def retention(bench: Bench, table: str, level: int, way: str) -> Iterator[Point]:
    """Sum over sub-tables of |T_j|/n p_j."""
    yield Point(way, level, occupations(bench, table, level, way)["retention"], PANELS[table])


@experiment(
    name="small-domain-partition",
    table=False,
    paper_name="small_domain",
    places=("Table 3",),
    title="statistics of PP's partition, OCC",
    says="17 to 20 initial groups; 8 to 15 sub-tables of 15 to 21 values with a gamma of 2.6 to 2.8.",
    differs="Mostly more and smaller sub-tables: ties in the order are open in the paper, and decide much.",
    parameters="rho1 = 1/13, rho2 = 1/6; plain means over sub-tables",
    data=OCC,
    axes=Axes("records", "number, or mean", x_scale="names", mark="bar"),
    over={"table": OCC, "records": SIZES, "way": ("PP-paper", "PP, bound", "PP")},
    small={"records": (100_000,)},
    paper={
        (f"{what}, {PANELS['like_occ']}", "PP-paper", float(size)): value
        for what, values in {
            "initial groups": (17, 18, 19, 20, 20),
            "sub-tables": (15, 8, 10, 11, 12),
            "mean m_j": (15.0, 20.9, 17.3, 17.0, 18.4),
            "mean gamma_j": (2.6, 2.7, 2.6, 2.6, 2.8),
        }.items()
        for size, value in zip(SIZES, values, strict=True)
    },
)
def partition(bench: Bench, table: str, records: int, way: str) -> Iterator[Point]:
    """Numbers of groups and sub-tables, and means of m_j and gamma_j."""
    facts = occupations(bench, table, 6, way, records)
    parts = facts["partition"]
    found = {
        "initial groups": facts["groups"],
        "sub-tables": len(parts),
        "mean m_j": np.mean([part["values"] for part in parts]),
        "mean gamma_j": np.mean([float(Fraction(part["gamma"])) for part in parts]),
    }
    for what, value in found.items():
        yield Point(way, records, float(value), f"{what}, {PANELS[table]}")
