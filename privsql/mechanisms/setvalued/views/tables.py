"""The tables of a release of views: their columns, what was chosen and synthetic records as tables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from privsql.dpnoise import scale
from privsql.engine.sqlfiles import column, fill, named, table
from privsql.exact import text
from privsql.mechanisms.noisytables.tables import CLIQUES, COLUMNS, MARGINALS
from privsql.mechanisms.setvalued.weights import weight_of
from privsql.model.arrays import copies

if TYPE_CHECKING:
    from sqlglot import exp

    from privsql.mechanisms.contract import Columns
    from privsql.mechanisms.noisytables.measured import Ints, Reals
    from privsql.model.manifest import Manifest

UNIVERSE, CHOSEN, SETS = "privsql_universe", "privsql_chosen", "privsql_sets"
NAMES = (UNIVERSE, CHOSEN, CLIQUES, MARGINALS, SETS)


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    kind = manifest.sensitive[0].type
    return {
        UNIVERSE: [("code", "INTEGER"), ("item", kind[:-2])],
        CHOSEN: [("place", "INTEGER"), ("item", kind[:-2]), ("budget", "VARCHAR"), ("scale", "DOUBLE")],
        **COLUMNS,
        SETS: [("items", kind), ("weight", "BIGINT")],
    }


def view(manifest: Manifest) -> exp.Query:
    """The view: sets of items, each with the number of synthetic records that have just these."""
    own = named(column("items", "sets"), manifest.sensitive[0].name)
    return fill("setvalued/weighted", {"sets": table(SETS), "items": [own], "weight": weight_of(manifest)})


@dataclass(frozen=True)
class Choice:
    """The measured items: their codes in order (m,), and the budget of each one's choice; None where it was public."""

    codes: Ints
    budgets: tuple[Fraction | None, ...]

    @property
    def spent(self) -> Fraction:
        """On all choices together."""
        return sum((one for one in self.budgets if one is not None), Fraction(0))


def choice_table(choice: Choice) -> pa.Table:
    """``privsql_chosen``, by code."""
    return pa.table(
        {
            "place": pa.array(np.arange(len(choice.codes)), pa.int32()),
            "code": pa.array(choice.codes, pa.int32()),
            "budget": pa.array([None if one is None else text(one) for one in choice.budgets], pa.string()),
            "scale": pa.array([None if one is None else scale(one) for one in choice.budgets], pa.float64()),
        }
    )


def sets_table(population: Reals, choice: Choice, items: pa.Array) -> pa.Table:
    """``privsql_sets``; ``items``: the universe's, by code."""
    records = copies(population)
    kept = np.flatnonzero(records)
    number = len(choice.codes)
    order = np.argsort(choice.codes)  # a set lists its items in the order of the universe
    which, place = np.nonzero(kept[:, None] >> (number - 1 - order)[None, :] & 1)
    offsets = np.searchsorted(which, np.arange(len(kept) + 1)).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), items.take(pa.array(choice.codes[order][place])))
    return pa.table({"items": lists, "weight": pa.array(records[kept], pa.int64())})
