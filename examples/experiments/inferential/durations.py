"""Times of the search by pruning, by records and by values (Figures 6 and 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql
from experiments.common import Axes, Point, experiment
from experiments.inferential.pruning import pruned_search_seconds, read_problem
from experiments.inferential.tables import PANELS, SENSITIVE, mechanism

if TYPE_CHECKING:
    from collections.abc import Iterator

    from experiments.bench import Bench
    from experiments.data import Table

LONG = 2.0  # seconds
SEARCHES: dict[str, str | dict[str, Any]] = {
    "No-pruning": "none",
    "Loss-pruning": "loss",
    "Full-pruning": "full",
    "closed form": {"algorithm": "two-size"},
    "optimum of all sizes": {"algorithm": "optimal"},
}


def search_seconds(bench: Bench, table: Table, given: dict[str, Any], search: str | dict[str, Any]) -> float:
    """The least of three searches in seconds of a processor, or of one that takes long; without reading the table.

    ``search``: the paper's pruning, or an algorithm of privsql.
    """
    times: list[float] = []
    while len(times) < (1 if bench.small else 3) and sum(times) < LONG:
        times.append(_measure_search(bench, table, given, search))
    return min(times)


def _measure_search(bench: Bench, table: Table, given: dict[str, Any], search: str | dict[str, Any]) -> float:
    if isinstance(search, str):
        return pruned_search_seconds(read_problem(table.path, given["sensitive"], "8*f + 0.02"), search)
    return privsql.plan(bench.spec(table, mechanism(8, **search), given)).search_seconds or 0.0


@experiment(
    name="inferential-time-records",
    table=False,
    paper_name="inferential",
    places=("Figure 6",),
    title="time of the search by the number of records",
    says="Full-pruning takes the least time, No-pruning the most.",
    differs="The same order. The closed form of `two-size` needs no search.",
    parameters="θ = 8; the least of three times of a processor",
    data=("acs_occ", "acs_edu"),
    axes=Axes("records, |T|", "seconds", y_scale="log"),
    over={"table": ("acs_occ", "acs_edu"), "records": tuple(range(100_000, 500_001, 100_000))},
    small={"table": ("acs_occ",), "records": (2000, 3000)},
)
def time_by_records(bench: Bench, table: str, records: int) -> Iterator[Point]:
    """Seconds of each search."""
    found = bench.table(table, records)
    given = {"quasi_identifiers": ["sex"], "sensitive": SENSITIVE[table]}
    for name, asked in SEARCHES.items():
        yield Point(name, records, search_seconds(bench, found, given, asked), PANELS[table])


def widened(bench: Bench, table: Table, column: str, factor: int) -> Table:
    """The table with ``factor`` times as many sensitive values: x becomes factor x + r, r from 0 to factor - 1."""
    path = bench.made / f"{table.path.stem}_by_{factor}.parquet"
    if not path.exists():
        draw = np.random.default_rng(bench.seed)
        read = pq.read_table(table.path, columns=["sex", column])
        codes = read[column].combine_chunks().dictionary_encode().indices.to_numpy()
        wide = codes.astype(np.int64) * factor + draw.integers(0, factor, len(codes))
        pq.write_table(pa.table({"sex": read["sex"], column: wide}), path)
    return replace(table, path=path, says=f"{table.says}, {factor} times as many values")


@experiment(
    name="inferential-time-values",
    table=False,
    paper_name="inferential",
    places=("Figure 7",),
    title="time of the search by the number of sensitive values",
    says="Optimal is exponential in the number of values; the others rise little.",
    differs="Our optimum takes at most 0.21 seconds: its linear program has a variable for each size, not for "
    "each value.",
    parameters="500,000 records, θ = 8, 2 to 64 times as many values; the least of three times of a processor",
    data=("acs_occ", "acs_edu"),
    axes=Axes("scale-up factor of |SA|", "seconds", x_scale="log2", y_scale="log"),
    over={"table": ("acs_occ", "acs_edu"), "gamma": (2, 4, 8, 16, 32, 64)},
    small={"table": ("acs_edu",), "gamma": (2, 4)},
)
def time_by_values(bench: Bench, table: str, gamma: int) -> Iterator[Point]:
    """Seconds of each search."""
    found = widened(bench, bench.table(table, 500_000), SENSITIVE[table], gamma)
    given = {"quasi_identifiers": ["sex"], "sensitive": SENSITIVE[table]}
    for name, asked in SEARCHES.items():
        yield Point(name, gamma, search_seconds(bench, found, given, asked), PANELS[table])
