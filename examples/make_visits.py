"""Make tables with several records of one person: visits with a test result, a panel, and adverse events."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def people(rng: np.random.Generator, number: int) -> dict[str, np.ndarray]:
    """What a person is for life, or nearly so."""
    return {
        "age": rng.integers(18, 97, number),
        "sex": rng.choice(["female", "male"], number),
        "region": rng.choice([f"region {i}" for i in range(12)], number),
    }


def visits(rng: np.random.Generator, number: int) -> pa.Table:
    """Visits: one to five of each patient, each with a date and the result of a test; the income of the patient."""
    each, several = people(rng, number), rng.integers(1, 6, number)
    at = np.repeat(np.arange(number), several)
    infected = 0.04 + 0.1 * (each["age"] > 60) + 0.06 * (each["region"] == "region 3")
    days = np.datetime64("2023-01-01") + rng.integers(0, 700, len(at))
    columns = {
        "patient_id": np.array([f"P{i:06d}" for i in range(number)])[at],
        **{name: values[at] for name, values in each.items()},
        "income": rng.lognormal(10.3, 0.6, number).round(2)[at],
        "visited_on": days,
        "result": np.where(rng.random(len(at)) < infected[at], "positive", "negative"),
    }
    return pa.table(columns).take(rng.permutation(len(at)))


def panel(rng: np.random.Generator, number: int) -> pa.Table:
    """A panel: four waves of each person, whose diagnosis stays the same."""
    each = people(rng, number)
    diagnosis = rng.choice(["none", "asthma", "diabetes", "cancer"], number, p=[0.6, 0.2, 0.15, 0.05])
    at = np.repeat(np.arange(number), 4)
    columns = {
        "pidp": at * 7 + 3,
        "wave": np.tile(np.arange(1, 5), number),
        **{name: values[at] for name, values in each.items()},
        "diagnosis": diagnosis[at],
    }
    return pa.table(columns)


def events(rng: np.random.Generator, number: int) -> pa.Table:
    """Adverse events: none to five of each subject of a trial with two arms."""
    each = people(rng, number) | {"arm": rng.choice(["drug", "placebo"], number)}
    names = ["headache", "nausea", "rash", "fatigue", "dizziness", "fever"]
    at = np.repeat(np.arange(number), rng.integers(1, 6, number))
    columns = {
        "USUBJID": np.array([f"ST-{i:05d}" for i in range(number)])[at],
        **{name: values[at] for name, values in each.items()},
        "event": rng.choice(names, len(at), p=[0.3, 0.2, 0.1, 0.2, 0.12, 0.08]),
    }
    return pa.table(columns)


def main() -> None:
    """Write the three tables into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, default=Path())
    given = parser.parse_args()
    for make in (visits, panel, events):
        table = make(np.random.default_rng(given.seed), given.people)
        pq.write_table(table, given.to / f"{make.__name__}.parquet")


if __name__ == "__main__":
    main()
