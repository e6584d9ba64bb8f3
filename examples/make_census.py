"""Make a census-like table: seeded, with the domain sizes and frequency ranges of the papers' OCC and EDU extracts.

Occupation (50 values, 0.18 % to 7.5 %) and education (14 values, 0.44 % to 27.3 %) depend on age, sex and each other,
so that there is something to estimate. Every record is invented.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

AGES = np.arange(16, 95)  # 79 values
RACES, MARITAL, WORK_CLASSES, BIRTHPLACES = 9, 6, 10, 83
JOBS = [
    f"{field} {level}"
    for field in (
        "care",
        "sales",
        "farming",
        "teaching",
        "transport",
        "building",
        "office",
        "law",
        "science",
        "service",
    )
    for level in ("assistant", "clerk", "worker", "specialist", "manager")
]


def frequencies(number: int, most: float, least: float) -> np.ndarray:
    """A geometric fall from ``most`` to ``least``, scaled to sum to one."""
    shape = np.geomspace(most, least, number)
    return shape / shape.sum()


def dependent(rng: np.random.Generator, cells: np.ndarray, shares: np.ndarray, strength: float) -> np.ndarray:
    """One value per record such that values lean on the record's cell and have the given shares overall."""
    number = int(cells.max()) + 1
    weight = np.bincount(cells, minlength=number) / len(cells)
    table = np.exp(strength * rng.standard_normal((number, len(shares))))
    for _ in range(60):  # fit the margins
        table /= table.sum(axis=1, keepdims=True)
        table *= shares / (weight @ table)
    table /= table.sum(axis=1, keepdims=True)
    drawn = (rng.random(len(cells))[:, None] > np.cumsum(table, axis=1)[cells]).sum(axis=1)
    return np.minimum(drawn, len(shares) - 1)


def census(rows: int, seed: int) -> pa.Table:
    """The table."""
    rng = np.random.default_rng(seed)
    age = AGES[dependent(rng, np.zeros(rows, dtype=int), frequencies(len(AGES), 2.0, 0.3), 0.0)]
    sex = rng.integers(1, 3, rows)
    decade = (age - 16) // 10
    education = dependent(rng, decade * 2 + sex - 1, frequencies(14, 0.273, 0.0044), 0.6) + 1
    occupation = dependent(rng, (decade * 2 + sex - 1) * 14 + education - 1, frequencies(50, 0.075, 0.0018), 1.0)
    marital = dependent(rng, decade, frequencies(MARITAL, 0.5, 0.02), 0.8) + 1
    work_class = dependent(rng, occupation, frequencies(WORK_CLASSES, 0.6, 0.01), 0.8) + 1
    columns = {
        "person_id": pa.array(rng.permutation(rows) + 1, pa.int32()),
        "age": pa.array(age, pa.int16()),
        "sex": pa.array(sex, pa.int8()),
        "education": pa.array(education, pa.int8()),
        "marital": pa.array(marital, pa.int8()),
        "race": pa.array(rng.choice(RACES, rows, p=frequencies(RACES, 0.6, 0.005)) + 1, pa.int8()),
        "work_class": pa.array(work_class, pa.int8()),
        "birthplace": pa.array(rng.choice(BIRTHPLACES, rows, p=frequencies(BIRTHPLACES, 0.6, 0.0005)), pa.int16()),
        "occupation": pa.array([JOBS[code] for code in occupation]),
    }
    pay = rng.normal(10.2, 0.5, len(JOBS))[occupation] + 0.05 * education + rng.normal(0, 0.4, rows)
    income = np.where(rng.random(rows) < 0.08, 0, np.round(np.exp(pay), -2))
    return pa.table({**columns, "income": pa.array(income, pa.int32())})


def main() -> None:
    """Write the table beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, default=Path(__file__).with_name("census.parquet"))
    asked = parser.parse_args()
    pq.write_table(census(asked.rows, asked.seed), asked.to)
    print(f"wrote {asked.to.name}: {asked.rows:,} records")


if __name__ == "__main__":
    main()
