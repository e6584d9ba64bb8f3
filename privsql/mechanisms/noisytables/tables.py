"""The two tables in which noisy tables are published, and back: what was measured, and every cell of it.

``privsql_cliques``: ``clique`` 0, 1, .. in the order in which they were measured, the names of its ``columns``, what it
spent (``epsilon``, a fraction), the ``scale`` of its noise, and what choosing it spent (``choice``; NULL where nothing
was chosen). ``privsql_marginals``: the ``count`` of each ``cell`` of a clique, numbered row by row over its columns.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.dpnoise import scale
from privsql.exact import text
from privsql.mechanisms.noisytables.measured import Measured
from privsql.mechanisms.private import write
from privsql.model.parameters import LARGEST_EPSILON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations

CLIQUES, MARGINALS = "privsql_cliques", "privsql_marginals"
COLUMNS = {
    CLIQUES: [
        ("clique", "INTEGER"), ("columns", "VARCHAR[]"), ("epsilon", "VARCHAR"), ("scale", "DOUBLE"),
        ("choice", "VARCHAR"),
    ],
    MARGINALS: [("clique", "INTEGER"), ("cell", "BIGINT"), ("count", "BIGINT")],
}  # fmt: skip
SMALLEST_BUDGET = Fraction(1, 10**15)
MOST_CELLS = 50_000_000  # that are read


def publish(db: Relations, tables: Sequence[Measured], names: Sequence[str]) -> None:
    """Write both tables into the release; ``names``: of all columns."""
    numbers = np.arange(len(tables))
    columns = [[names[i] for i in one.columns] for one in tables]
    cliques = {
        "clique": pa.array(numbers, pa.int32()),
        "columns": pa.array(columns, pa.list_(pa.string())),
        "epsilon": pa.array([text(one.epsilon) for one in tables], pa.string()),
        "scale": pa.array([scale(one.epsilon) for one in tables], pa.float64()),
        "choice": pa.array([None if one.choice is None else text(one.choice) for one in tables], pa.string()),
    }
    sizes = [one.counts.size for one in tables]
    marginals = {
        "clique": pa.array(np.repeat(numbers, sizes), pa.int32()),
        "cell": pa.array(np.concatenate([np.arange(size) for size in sizes]), pa.int64()),
        "count": pa.array(np.concatenate([one.counts.reshape(-1) for one in tables]), pa.int64()),
    }
    write(db, CLIQUES, pa.table(cliques))
    write(db, MARGINALS, pa.table(marginals), title="Writing the tables")


def read(cliques: pa.Table, marginals: pa.Table, names: Sequence[str], sizes: Sequence[int]) -> list[Measured]:
    """What was measured; ``ValueError`` unless every cell of every clique is there once, in order."""
    if cliques["clique"].to_pylist() != list(range(len(cliques))):
        raise ValueError("cliques are not numbered 0, 1, ..")
    places = {name: place for place, name in enumerate(names)}
    columns = [tuple(places[name] for name in row) for row in cliques["columns"].to_pylist()]
    if any(list(one) != sorted(set(one)) for one in columns):
        raise ValueError("the columns of a clique are out of order")
    shapes = [tuple(sizes[i] for i in one) for one in columns]
    cells = [prod(shape) for shape in shapes]
    if sum(cells) != len(marginals) or sum(cells) > MOST_CELLS:
        raise ValueError(f"{len(marginals):,} cells are published, the cliques have {sum(cells):,}")
    if any(marginals[name].null_count for name, _ in COLUMNS[MARGINALS]):
        raise ValueError("a count is missing")
    edges = np.cumsum([0, *cells])
    clique, cell, count = (marginals[name].to_numpy().astype(np.int64) for name, _ in COLUMNS[MARGINALS])
    whose = np.repeat(np.arange(len(cells)), cells)
    if not np.array_equal(clique, whose) or not np.array_equal(cell, np.arange(len(cell)) - edges[whose]):
        raise ValueError("cells are missing, or out of order")
    budgets = [_budget(one) for one in cliques["epsilon"].to_pylist()]
    choices = [None if one is None else _budget(one) for one in cliques["choice"].to_pylist()]
    counts = [count[edges[k] : edges[k + 1]].reshape(shape) for k, shape in enumerate(shapes)]
    return [Measured(*one) for one in zip(columns, budgets, counts, choices, strict=True)]


def _budget(given: str) -> Fraction:
    found = Fraction(given)
    if not SMALLEST_BUDGET <= found <= LARGEST_EPSILON:
        raise ValueError("a budget is no positive number")
    return found
