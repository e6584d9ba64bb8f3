"""Publish noisy tables, read them back, and describe them."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.dp_random import PURE, NoiseLaw, deviation_of
from privsql.engine.sqlfiles import all_rows, column, table, temp_table
from privsql.exact import fraction_text
from privsql.mechanisms.dp.noisy_tables import NoisyTable
from privsql.model.explanations import Structure, make_structure
from privsql.model.parameters import LARGEST_EPSILON
from privsql.model.tables import ReleaseTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from privsql.engine.database import Relations


def write_release_table(
    db: Relations, name: str, data: pa.Table | pa.RecordBatchReader, query: exp.Query | None = None, *, title: str = ""
) -> None:
    """Create a table of the release from data, or from a query over the data.

    Args:
        db: Where the release is made.
        name: The name of the table.
        data: The rows.
        query: A query over the rows as relation ``given``; None to write the rows as they are.
        title: The title of this step in progress reports.
    """
    db.register_arrow("given", data)
    db.create_table(name, query or all_rows(temp_table("given")), into="release", title=title)
    db.drop("given")


# Tables ---------------------------------------------------------------------------------------------------------------
# Noisy tables are published in two tables of the release, one for the tables and one for their cells.
#
# ``privsql_cliques`` has a row for each noisy table, in the order in which they were counted (``clique`` 0, 1, ..). It
# holds the names of the table's ``columns``, the ``budget`` of its counts (a fraction of epsilon or rho), the ``scale``
# of its noise, and the budget of choosing it (``choice``; NULL if it was not chosen). ``privsql_marginals`` has the
# noisy ``count`` of each ``cell``; cells are numbered in row-major order over the columns.

CLIQUES, MARGINALS = "privsql_cliques", "privsql_marginals"
NOISY_TABLES = {
    CLIQUES: ReleaseTable(("clique INTEGER", "columns VARCHAR[]", "budget VARCHAR", "scale DOUBLE", "choice VARCHAR")),
    MARGINALS: ReleaseTable(("clique INTEGER", "cell BIGINT", "count BIGINT")),
}
CELL_COLUMNS = ("clique", "cell", "count")
TABLE_ORDERS = {
    "cliques": ["clique"],
    "marginals": ["clique", "cell"],
}  # by view, the columns by which its rows are sorted
SMALLEST_BUDGET = Fraction(1, 10**15)
MOST_CELLS = 50_000_000  # most cells that are read


def write_noisy_tables(db: Relations, tables: Sequence[NoisyTable], names: Sequence[str]) -> None:
    """Write noisy tables into the release: columns and budgets (``privsql_cliques``), counts (``privsql_marginals``).

    Args:
        db: Where the release is made.
        tables: The noisy tables, in the order in which they were counted.
        names: The names of all columns, by position.
    """
    numbers = np.arange(len(tables))
    columns = [[names[i] for i in one.columns] for one in tables]
    cliques = {
        "clique": pa.array(numbers, pa.int32()),
        "columns": pa.array(columns, pa.list_(pa.string())),
        "budget": pa.array([fraction_text(one.budget) for one in tables], pa.string()),
        "scale": pa.array([one.law.scale(one.budget) for one in tables], pa.float64()),
        "choice": pa.array([None if one.choice is None else fraction_text(one.choice) for one in tables], pa.string()),
    }
    sizes = [one.counts.size for one in tables]
    marginals = {
        "clique": pa.array(np.repeat(numbers, sizes), pa.int32()),
        "cell": pa.array(np.concatenate([np.arange(size) for size in sizes]), pa.int64()),
        "count": pa.array(np.concatenate([one.counts.reshape(-1) for one in tables]), pa.int64()),
    }
    write_release_table(db, CLIQUES, pa.table(cliques))
    write_release_table(db, MARGINALS, pa.table(marginals), title="Writing the tables")


def read_noisy_tables(
    cliques: pa.Table, marginals: pa.Table, names: Sequence[str], sizes: Sequence[int], law: NoiseLaw = PURE
) -> list[NoisyTable]:
    """Return the noisy tables that a release holds.

    Args:
        cliques: The rows of ``privsql_cliques``, which has the columns and the budget of each noisy table.
        marginals: The rows of ``privsql_marginals``, which has the noisy count of each cell of these tables.
        names: The names of all columns, by position.
        sizes: The number of values of every column.
        law: The law of the noise.

    Raises:
        ValueError: A cell is missing, repeated or out of order, or a budget is invalid.
    """
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
    if any(marginals[name].null_count for name in CELL_COLUMNS):
        raise ValueError("a count is missing")
    edges = np.cumsum([0, *cells])
    clique, cell, count = (marginals[name].to_numpy().astype(np.int64) for name in CELL_COLUMNS)
    whose = np.repeat(np.arange(len(cells)), cells)
    if not np.array_equal(clique, whose) or not np.array_equal(cell, np.arange(len(cell)) - edges[whose]):
        raise ValueError("cells are missing, or out of order")
    budgets = [parse_budget(one) for one in cliques["budget"].to_pylist()]
    choices = [None if one is None else parse_budget(one) for one in cliques["choice"].to_pylist()]
    return [
        NoisyTable(columns[k], budgets[k], count[edges[k] : edges[k + 1]].reshape(shape), choices[k], law)
        for k, shape in enumerate(shapes)
    ]


def parse_budget(value: str) -> Fraction:
    """Parse the budget that a release states for a table, and check its range.

    Raises:
        ValueError: The text is no number, or below ``SMALLEST_BUDGET``, or above ``LARGEST_EPSILON``.
    """
    result = Fraction(value)
    if not SMALLEST_BUDGET <= result <= LARGEST_EPSILON:
        raise ValueError("a budget is no positive number")
    return result


# Explanations ---------------------------------------------------------------------------------------------------------
# Noisy tables for people: what was counted, in how many cells, and with how much noise.

NAMED = 4  # most columns of a table that are shown by name


def describe_noisy_tables(db: Relations, *, concentrated: bool) -> list[Structure]:
    """Describe every noisy table for people: its columns, counts, budget and noise.

    Args:
        db: Where the open release is.
        concentrated: Whether noise is Gaussian, so that budgets are in rho (zero-concentrated differential privacy);
            otherwise they are in epsilon.
    """
    cliques = db.arrow(all_rows(table(CLIQUES)).order_by(column("clique"))).to_pylist()
    cells = np.bincount(db.arrow(all_rows(table(MARGINALS)))["clique"].to_numpy(), minlength=len(cliques))
    scales = np.array([one["scale"] for one in cliques], dtype=np.float64)
    rows = []
    for one, number, noise in zip(cliques, cells, scales if concentrated else deviation_of(scales), strict=True):
        columns = one["columns"]
        more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
        name = (" \u00d7 ".join(columns[:NAMED]) or "all records") + more
        rows.append((name, int(number), one["budget"], float(f"{noise:.4g}")))
    sentence = (
        f"{len(rows):,} tables with {int(cells.sum()):,} counts were made of the records, and noise was added to every "
        "count. All else that is answered follows from these counts."
    )
    head = ("table by", "counts", "rho" if concentrated else "epsilon", "standard deviation of the noise")
    return [make_structure("The noisy tables", sentence, head, rows)]
