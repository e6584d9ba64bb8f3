"""Count queries over a release and over its source: the papers' pools of conditions, and how far answers are off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

import privsql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from experiments.bench import Bench
    from experiments.data import Table

ESTIMATORS = {name: f", {name}" for name in ("model", "linear", "reconstructed")} | {"baseline": ""}  # what a series is


def conditions(bench: Bench, table: Table, quasi: Sequence[str], number: int) -> list[str]:
    """Equality on one to three columns, each with a random one of all values that it has (Small Domain, 10.9)."""
    draw = np.random.default_rng(bench.seed)
    with duckdb.connect() as db:
        values = {name: [row[0] for row in db.execute(_values(table.path, name)).fetchall()] for name in quasi}
    found = []
    for _ in range(number):
        own = draw.choice(quasi, draw.integers(1, min(3, len(quasi)) + 1), replace=False).tolist()
        found.append(" AND ".join(f"{name} = {values[name][draw.integers(len(values[name]))]}" for name in own))
    return found


def _values(path: Path, name: str) -> str:
    return f"SELECT DISTINCT {name} FROM '{path}' WHERE {name} IS NOT NULL ORDER BY 1"


Array = np.ndarray[Any, Any]


def measured(
    bench: Bench, table: Table, mechanism: Mapping[str, Any], columns: tuple[Sequence[str], str], number: int
) -> dict[str, tuple[Array, Array]]:
    """Publish a table and ask the same questions of release and source: every sensitive value of each condition.

    True answers and estimates by estimator; a bucketized release is given its model.
    """
    quasi, sensitive = columns
    workload = bench.releases / f"{table.path.stem}_{sensitive}.sql"
    asked = conditions(bench, table, quasi, min(number, 10) if bench.small else number)
    count = f"SELECT {sensitive}, COUNT(*) FROM people WHERE {{}} GROUP BY {sensitive};\n"
    workload.write_text("".join(count.format(one) for one in asked), encoding="utf-8")
    spec = bench.spec(table, mechanism, {"quasi_identifiers": list(quasi), "sensitive": sensitive})
    made = privsql.publish(spec, seed=bench.seed)
    bench.fit(made)
    scores = privsql.evaluate(made, spec, workload).scores
    return {estimator: (np.array(score.truth), np.array(score.estimate)) for estimator, score in scores.items()}


def pairs(found: dict[str, tuple[Array, Array]], least: float) -> Iterator[tuple[str, Array, Array]]:
    """True answers of at least ``least`` records and the estimates of them, by estimator."""
    for estimator, (truth, estimate) in found.items():
        yield estimator, truth[truth >= max(least, 1)], estimate[truth >= max(least, 1)]


def error(truth: Array, estimate: Array) -> float | None:
    """Mean relative error; None of nothing."""
    return float((np.abs(estimate - truth) / truth).mean()) if len(truth) else None
