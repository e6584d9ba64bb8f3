"""Intervals by a model of a release, pooled over tables and keys: samples of the real tables, and four made ones.

Samples, made tables and questions have fixed seeds; releases differ by key.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks import modelling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    WriteTable = Callable[[Path], tuple[Path, list[str], str]]
    Made = tuple[dict[str, NDArray[Any]], NDArray[Any]]

SAMPLES, RULES = (8_000, 40_000, 0), ("1/4", "1/8", "8*f + 0.02")  # records, 0 is all of them
BANDS = (1, 50, 200, 1_000, np.inf)
SAMPLED, SEED, CONDITIONS = 5, 7, 120


def draw_labels(rng: np.random.Generator, logits: NDArray[Any]) -> NDArray[Any]:
    """Draw a value for each record from log-odds (n, K)."""
    return np.asarray(np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))


def make_strong(rng: np.random.Generator, records: int = 20_000, values: int = 10) -> Made:
    """Three columns, one of them strong."""
    strong, weak, number = (
        rng.zipf(1.6, records).clip(max=12),
        rng.integers(0, 5, records),
        rng.integers(0, 60, records),
    )
    effects = [rng.normal(0, sigma, (levels, values)) for levels, sigma in ((13, 1.6), (5, 0.2))]
    wave = np.sin(np.arange(60)[:, None] / 9 + np.arange(values)) * 0.3
    logits = rng.normal(0, 0.5, values) + effects[0][strong] + effects[1][weak] + wave[number]
    return {"strong": strong, "weak": weak, "number": number}, draw_labels(rng, logits)


def make_ordered(rng: np.random.Generator, records: int = 30_000, values: int = 16) -> Made:
    """Sixteen ordered values, as classes of an income are."""
    levels = {"age": 74, "degree": 14, "sex": 2, "job": 9, "work": 6}
    columns = {name: rng.integers(0, number, records) for name, number in levels.items()}
    columns["region"] = rng.zipf(1.4, records).clip(max=50)
    amount = 0.05 * columns["degree"] + 0.8 * np.exp(-(((columns["age"] - 32) / 20.0) ** 2)) - 0.3 * columns["sex"]
    amount += rng.normal(0, 0.35, 9)[columns["job"]] + rng.normal(0, 0.15, 51)[columns["region"]]
    amount += rng.normal(0, 0.2, (9, 6))[columns["job"], columns["work"]] + rng.normal(0, 0.8, records)
    ends = np.quantile(amount, np.cumsum(rng.dirichlet(np.full(values, 6.0)))[:-1])
    return columns, np.searchsorted(ends, amount)


def make_skewed(rng: np.random.Generator, records: int = 20_000) -> Made:
    """Thirteen columns and seven values, of which one has 38 and one 2 %."""
    logits = np.log([0.38, 0.25, 0.15, 0.1, 0.06, 0.04, 0.02]) + np.zeros((records, 7))
    columns = {f"c{i}": rng.integers(0, int(rng.integers(2, 14)), records) for i in range(13)}
    for i, column in enumerate(columns.values()):
        logits += rng.normal(0, (0.5, 0.3, 0.2, 0.1, 0.05)[i % 5], (14, 7))[column]
    logits += rng.normal(0, 0.3, (14, 14, 7))[columns["c0"], columns["c1"]]
    return columns, draw_labels(rng, logits)


def make_twins(rng: np.random.Generator, records: int = 20_000, values: int = 12) -> Made:
    """Two columns that nearly determine each other, and three more."""
    one = rng.zipf(1.5, records).clip(max=20)
    other = np.where(rng.random(records) < 0.97, one * 7 % 21, rng.integers(0, 21, records))
    columns = {"one": one, "other": other} | {f"c{k}": rng.integers(0, k, records) for k in (40, 3, 8)}
    logits = np.cos(columns["c40"][:, None] / 8 + np.arange(values)) * 0.3
    for name, sigma in (("one", 0.6), ("other", 0.6), ("c3", 0.3), ("c8", 0.2)):
        logits += rng.normal(0, sigma, (21, values))[columns[name]]
    return columns, draw_labels(rng, logits)


MADE: dict[str, tuple[Callable[[np.random.Generator], Made], tuple[str, ...]]] = {
    "one strong column": (make_strong, ("4*f + 0.02", "1/3")),
    "ordered values": (make_ordered, ("4*f + 0.02", "1/8")),
    "13 columns, skewed": (make_skewed, ("2*f + 0.05",)),
    "twin columns": (make_twins, ("1/4",)),
}


def list_tables(
    real: dict[str, tuple[Path, list[str], str]],
) -> Iterator[tuple[str, bool, str, WriteTable]]:
    """Yield the name of a release, whether it is of a whole table, its threshold, and what writes its table."""
    for name, (file, names, sensitive) in real.items():
        for records in SAMPLES:
            for rule in RULES:
                label = f"{name}, {records or 'all'}, {rule}"
                yield label, not records, rule, _sample(file, names, sensitive, records)
    for name, (make, rules) in MADE.items():
        for rule in rules:
            yield f"{name}, {rule}", False, rule, _write(make)


def _sample(file: Path, names: list[str], sensitive: str, records: int) -> WriteTable:
    def write(folder: Path) -> tuple[Path, list[str], str]:
        with duckdb.connect() as db:
            chosen = ", ".join([*names, sensitive])
            rows = db.sql(f"SELECT {chosen} FROM read_parquet('{file}')").to_arrow_table()
        kept = np.sort(np.random.default_rng(SAMPLED).permutation(len(rows))[: records or None])
        pq.write_table(rows.take(kept), folder / "sample.parquet")
        return folder / "sample.parquet", names, sensitive

    return write


def _write(make: Callable[[np.random.Generator], Made]) -> WriteTable:
    def write(folder: Path) -> tuple[Path, list[str], str]:
        columns, labels = make(np.random.default_rng(SEED))
        pq.write_table(pa.table(columns | {"label": labels}), folder / "made.parquet")
        return folder / "made.parquet", list(columns), "label"

    return write


def measure(table: WriteTable, rule: str, keys: range) -> list[tuple[str, float, float, float]]:
    """Return the answers of ``modelling.intervals`` to releases of a table by some keys."""
    found = []
    for key in keys:
        with tempfile.TemporaryDirectory() as place:
            world = modelling.open_world(table(Path(place)), {"threshold": rule}, Path(place), key)
        beliefs = modelling.fit_bucket_model(world.arrays, modelling.DIGEST).find_beliefs()
        found += list(modelling.intervals(world, beliefs, CONDITIONS, SEED))
    return found


def show_bands(found: list[tuple[str, float, float, float]]) -> list[object]:
    """Return mean relative error and coverage in percent of counts, by band, and the coverage of sums and means."""
    parts = []
    counts = np.array([row[1:] for row in found if row[0] not in ("sum", "avg")])
    for low, high in pairwise(BANDS):
        part = counts[(counts[:, 0] >= low) & (counts[:, 0] < high)]
        parts.append(f"{part[:, 1].mean():.3f} {100 * (np.abs(part[:, 2]) < 1).mean():.0f}" if len(part) else "")
    amounts = np.array([row[3] for row in found if row[0] in ("sum", "avg") and row[1] >= BANDS[1]])
    return [*parts, f"{100 * (np.abs(amounts) < 1).mean():.0f}" if len(amounts) else ""]
