"""What two noisy counts tell (Theorem 2, Corollary 2.4)."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import privsql
from experiments.common import Axes, Point, experiment
from experiments.inferential.tables import QUASI, SENSITIVE, columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench
    from experiments.data import Table


def telling(table: Table, sensitive: str, least: int) -> tuple[str, str]:
    """Of all conditions on two columns that so many records meet, that of the most certain sensitive value."""
    read = pq.read_table(table.path)
    best: tuple[float, str, str] = (0.0, "", "")
    for pair in combinations([name for name in QUASI if name in read.schema.names and name != sensitive], 2):
        rows = read.group_by([*pair, sensitive]).aggregate([([], "count_all")]).to_pylist()
        sizes: dict[tuple[object, ...], int] = {}
        for row in rows:
            at = tuple(row[name] for name in pair)
            sizes[at] = sizes.get(at, 0) + row["count_all"]
        for row in rows:
            size = sizes[tuple(row[name] for name in pair)]
            if size >= least and None not in row.values() and row["count_all"] / size > best[0]:
                condition = " AND ".join(f"{name} = {quoted(row[name])}" for name in pair)
                best = (row["count_all"] / size, condition, f"{sensitive} = {quoted(row[sensitive])}")
    return best[1:]


def quoted(value: object) -> str:
    """A value as SQL has it."""
    return f"'{value}'" if isinstance(value, str) else str(value)


def noisy_ratios(bench: Bench, epsilon: str) -> Any:
    """What two noisy counts tell of the most telling condition of the table."""
    found = bench.table("acs_edu")
    spec = bench.spec(found, {"threshold": "1/2"}, columns("acs_edu", found))
    condition, sensitive = telling(found, SENSITIVE["acs_edu"], 20 if bench.small else 200)
    return privsql.attack(source=spec, differential=(condition, sensitive), epsilon=epsilon)


@experiment(
    name="inferential-ratio",
    paper_name="inferential",
    places=("Theorem 2",),
    title="the ratio of two noisy counts",
    says="With Laplace noise of scale b = 1/ε on both counts E[Y/X] is about (y/x)(1 + 2b²/x²): for ε "
    "= 0.1 1.02 y/x at x = 100, and 1.0002 y/x at x = 1,000.",
    differs="Simulated 1.02 and 1.000, and within 0.01 of the formula for other x of at least 10b.",
    parameters="Laplace noise of scale b = 1/ε on each of two counts; sizes of at least 10b",
    data=("acs_edu",),
    axes=Axes(
        "records that meet the condition, x",
        "E[Y/X] in shares of y/x",
        x_scale="log",
        bound="lines: two standard deviations of Y/X",
    ),
    over={"epsilon": ("0.01", "0.1", "1")},
    small={"epsilon": ("0.1",)},
    paper={("ε = 0.1", "Theorem 2", 100.0): 1.02, ("ε = 0.1", "Theorem 2", 1000.0): 1.0002},
    table=False,
)
def ratio(bench: Bench, epsilon: str) -> Iterator[Point]:
    """Mean and deviation of Y/X in theory and simulated, by x."""
    found = noisy_ratios(bench, epsilon)
    for row in found.rows:
        if row.x < 10 / found.epsilon or row.asked:
            continue
        share = row.ratio
        yield Point("Theorem 2", row.x, row.mean / share, f"ε = {epsilon}")
        mean, off = row.simulated_mean / share, 2 * row.simulated_deviation / share
        yield Point("simulated", row.x, mean, f"ε = {epsilon}", low=mean - off, high=mean + off)


@experiment(
    name="inferential-disclosure",
    paper_name="inferential",
    places=("Corollary 2.4",),
    title="how often two noisy counts give the ratio away",
    says="As x grows, Y/X comes arbitrarily close to y/x, whatever ε is.",
    differs="What counts is x ε alone: at 50, 87 % of the ratios are within 0.05, at 100, 99 %. The most telling "
    "condition has 223 records: 7, 56 and 100 % for ε = 0.01, 0.1 and 1. That breaks no promise of "
    "differential privacy.",
    parameters="Share of 20,000 draws of OpenDP's noise with |Y/X - y/x| at most 0.05",
    data=("acs_edu",),
    axes=Axes("records that meet the condition, x", "share within 0.05 of y/x", x_scale="log", percent=True),
    over={"epsilon": ("0.01", "0.1", "1")},
    small={"epsilon": ("0.1",)},
    table=False,
)
def disclosure(bench: Bench, epsilon: str) -> Iterator[Point]:
    """The share of noisy ratios that come near the true one."""
    for row in noisy_ratios(bench, epsilon).rows:
        note = f"asked of {row.x:,.0f} records, y/x = {row.ratio:.3f}" if row.asked else ""
        yield Point(f"ε = {epsilon}", row.x, row.near, note=note)
