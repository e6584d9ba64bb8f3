"""Noisy tables for people: what was counted, in how many cells, and with how much noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privsql.dpnoise import deviation_of
from privsql.engine.sqlfiles import all_rows, column, table
from privsql.mechanisms.noisytables.tables import CLIQUES, MARGINALS
from privsql.model.told import Structure
from privsql.model.told import structure as part

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

NAMED = 4  # columns of a table that are named


def structure(db: Relations, _: Manifest) -> list[Structure]:
    """Every table that was counted."""
    cliques = db.arrow(all_rows(table(CLIQUES)).order_by(column("clique"))).to_pylist()
    cells = np.bincount(db.arrow(all_rows(table(MARGINALS)))["clique"].to_numpy(), minlength=len(cliques))
    scales = np.array([one["scale"] for one in cliques], dtype=np.float64)
    rows = [
        (_name(one["columns"]), int(number), one["epsilon"], float(f"{noise:.4g}"))
        for one, number, noise in zip(cliques, cells, deviation_of(scales), strict=True)
    ]
    said = (
        f"{len(rows):,} tables with {int(cells.sum()):,} counts were made of the records, and noise was added to every "
        "count. All else that is answered follows from these counts."
    )
    return [part("The noisy tables", said, ("table by", "counts", "epsilon", "standard deviation of the noise"), rows)]


def _name(columns: list[str]) -> str:
    more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
    return (" \u00d7 ".join(columns[:NAMED]) or "all records") + more
