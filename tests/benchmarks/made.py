"""Tables that stand in for public ones which are not at hand: baskets, web sessions, and census records.

What is bought, or looked at, together has themes: few staples that everybody has, and a long tail in which near items
go together. Independent draws would leave nothing to find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

BASKETS = (88_000, 16_470)  # records and items of a retailer's
SESSIONS = (77_512, 3_340)  # and of a shop in the web
PEOPLE = 32_561
HOURS = (0, 20, 35, 40, 41, 50)  # lower ends of bins
INCOME = (1, 10_000, 20_000, 30_000, 45_000, 60_000, 90_000, 150_000)
COLUMNS = (
    "age", "sex", "education", "marital", "race", "work_class", "birthplace", "occupation", "hours", "earned", "field"
)  # fmt: skip


def sets(shape: tuple[int, int], mean: float, staple: float, themes: int, seed: int = 1) -> pa.Table:
    """``items``: a list for each of ``shape[0]`` records, of ``shape[1]`` items, so many on average before repeats.

    A pick is a ``staple`` with that chance, by Zipf's law over all items; else it is of one of the record's themes,
    near its centre.
    """
    records, items = shape
    draw = np.random.default_rng(seed)
    record = np.repeat(np.arange(records), np.minimum(draw.geometric(1 / mean, records), 75))
    zipf = 1 / np.arange(1, items + 1) ** 1.1
    common = draw.choice(items, len(record), p=zipf / zipf.sum())
    popular = 1 / np.arange(1, themes + 1)
    own = draw.choice(themes, (records, 2), p=popular / popular.sum())
    centre = draw.integers(0, items, themes)[own[record, draw.integers(0, 2, len(record))]]
    near = (centre + draw.geometric(0.08, len(record))) % items
    item = np.where(draw.random(len(record)) < staple, common, near)
    key = np.unique(record * items + item)
    starts = np.searchsorted(key // items, np.arange(records + 1)).astype(np.int32)
    return pa.table({"items": pa.ListArray.from_arrays(pa.array(starts), pa.array(key % items, pa.int32()))})


def baskets(to: Path) -> None:
    """A retailer's baskets."""
    pq.write_table(sets(BASKETS, mean=12, staple=0.5, themes=400), to)


def sessions(to: Path) -> None:
    """Pages that were looked at in sessions."""
    pq.write_table(sets(SESSIONS, mean=6, staple=0.25, themes=300), to)


def people(source: Path, to: Path) -> None:
    """A census table of eleven columns and few records: a sample of ``acs_occ``, hours and income in public bins."""
    bins = {"hours": ("work_hours", HOURS), "earned": ("income", INCOME)}
    made = {
        name: " + ".join(f"(coalesce({column}, -1) >= {end})::INTEGER" for end in ends)
        for name, (column, ends) in bins.items()
    } | {"field": "(occupation_detail // 10)::INTEGER"}
    columns = ", ".join(f"{made[name]} AS {name}" if name in made else f"{name}::INTEGER AS {name}" for name in COLUMNS)
    duckdb.sql(
        f"COPY (SELECT {columns} FROM '{source}' ORDER BY hash(person_id), person_id LIMIT {PEOPLE}) "
        f"TO '{to}' (FORMAT parquet)"
    )
