"""An open release of views as arrays, read from its tables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, all_rows, column, fill, table
from privsql.mechanisms.noisytables.tables import read as read_tables
from privsql.mechanisms.setvalued.views import model, squares
from privsql.mechanisms.setvalued.views.patterns import sizes
from privsql.mechanisms.setvalued.views.tables import NAMES, UNIVERSE, Choice

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from privsql.engine.database import Relations
    from privsql.mechanisms.noisytables.measured import Ints, Measured, Reals
    from privsql.mechanisms.setvalued.views.squares import Squares

ORDER = {"universe": "code", "chosen": "place", "cliques": "clique", "sets": "items"}


@dataclass(frozen=True)
class Published:
    """The tables of a release; ``ValueError``, ``KeyError`` where they can't be what was published."""

    rows: Mapping[str, pa.Table]
    labels: tuple[str, ...]
    """Text of the items, in the order of the universe."""

    @property
    def universe(self) -> int:
        """Number of items that there can be."""
        return len(self.labels)

    @cached_property
    def choice(self) -> Choice:
        """The measured items."""
        chosen = self.rows["chosen"]
        items = self.rows["universe"]["item"].combine_chunks()
        codes = pc.index_in(chosen["item"].combine_chunks(), value_set=items)
        if codes.null_count or not np.array_equal(chosen["place"].to_numpy(), np.arange(len(codes))):
            raise ValueError("the measured items are not of the universe, or not numbered 0, 1, ..")
        budgets = tuple(None if one is None else Fraction(one) for one in chosen["budget"].to_pylist())
        return Choice(codes.to_numpy().astype(np.int64), budgets)

    @cached_property
    def measured(self) -> list[Measured]:
        """The tables with noise."""
        own = [self.labels[code] for code in self.choice.codes.tolist()]
        if any(column.null_count for column in self.rows["marginals"].columns):
            raise ValueError("a cell has no number, or no count")
        return read_tables(self.rows["cliques"], self.rows["marginals"], own, [2] * len(own))

    @cached_property
    def squares(self) -> Squares:
        """All parities by least squares."""
        return squares.fitted(self.measured, len(self.choice.codes))

    @cached_property
    def patterns(self) -> tuple[Ints, Ints]:
        """The pattern of each published set, and the number of its records."""
        sets, number = self.rows["sets"], len(self.choice.codes)
        lists = sets["items"].combine_chunks()
        items = self.rows["universe"]["item"].combine_chunks().take(self.choice.codes)
        place = pc.index_in(lists.flatten(), value_set=items)
        if place.null_count or lists.null_count or sets["weight"].null_count:
            raise ValueError("a set holds an item that was not measured")
        owner = pc.list_parent_indices(lists).to_numpy()
        bits = np.left_shift(np.int64(1), number - 1 - place.to_numpy().astype(np.int64))
        found = np.bincount(owner, weights=bits, minlength=len(lists)).astype(np.int64)
        if not np.array_equal(sizes(number)[found % (1 << number)], pc.list_value_length(lists).to_numpy()):
            raise ValueError("a set holds an item twice")
        return found, sets["weight"].to_numpy().astype(np.int64)

    @cached_property
    def population(self) -> Reals:
        """Synthetic records by pattern (2^m,)."""
        found, weight = self.patterns
        return np.bincount(found, weights=weight, minlength=1 << len(self.choice.codes)).astype(np.float64)

    @cached_property
    def spectrum(self) -> tuple[Reals, Reals]:
        """All parities between those of least squares and those of the synthetic records, and what they keep."""
        return model.spectrum(self.squares, self.population)


def read(db: Relations, database: str | None) -> Published:
    """The tables of a release that lies in ``database``."""
    rows = {}
    for name in NAMES:
        own = table(name, database)
        short = name.removeprefix("privsql_")
        by = ["clique", "cell"] if short == "marginals" else [ORDER[short]]
        rows[short] = db.arrow(all_rows(own).order_by(*map(column, by)))
    holes: Holes = {"domain": table(UNIVERSE, database), "labels": [exp.cast(column("item"), "VARCHAR")]}
    found = db.rows(fill("core/labels", holes))
    return Published(rows, tuple(str(row[0]) for row in found))
