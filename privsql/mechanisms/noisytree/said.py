"""A noisy tree for people: how many partitions were kept at every level, and how much noise their counts have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from privsql.dpnoise import deviation_of
from privsql.engine.sqlfiles import all_rows, column, table
from privsql.mechanisms.noisytree.tables import ints
from privsql.model.told import Structure
from privsql.model.told import structure as part

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.noisytree.tree import Ints
    from privsql.model.manifest import Manifest


def structure(db: Relations, _: Manifest) -> list[Structure]:
    """Partitions by level of the tree; the root is counted nowhere."""
    rows = db.arrow(all_rows(table("privsql_tree")).order_by(column("part")))
    parent, scale = ints(rows["parent"], -1), pc.fill_null(rows["scale"], 0.0).to_numpy()
    level = depths(parent)
    inner = np.zeros(len(parent), dtype=bool)
    inner[parent[1:]] = True
    found = []
    for depth in range(1, int(level.max(initial=0)) + 1):
        own = level == depth
        noise = deviation_of(scale[own])
        found.append((f"level {depth}", int(own.sum()), int((own & ~inner).sum()), _between(noise)))
    said = (
        f"All records are one partition, which is divided again and again; {len(parent) - 1:,} partitions were kept. "
        "Where the noisy count of one is small, it is not divided further, and most often dropped."
    )
    head = ("level of the tree", "partitions kept", "not divided further", "standard deviation of the noise")
    return [part("The noisy tree", said, head, found, 1)]


def depths(parent: Ints) -> Ints:
    """How far every partition lies below the root, whose row comes first; parents ascend.

    >>> depths(np.array([-1, 0, 0, 1, 3])).tolist()
    [0, 1, 1, 2, 3]
    """
    found = np.zeros(len(parent), dtype=np.int64)
    for row in range(1, len(parent)):
        found[row] = found[parent[row]] + 1
    return found


def _between(noise: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    least, most = float(noise.min()), float(noise.max())
    return f"{least:.3g}" if most - least < 0.005 * most else f"{least:.3g} to {most:.3g}"
