"""The values of all columns with their taxonomies, and the source's cells as nodes of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privsql.mechanisms.contingency import domains
from privsql.mechanisms.contingency.diffpart.taxonomy import Taxonomy, assembled, grouped
from privsql.mechanisms.contingency.diffpart.tree import Cells

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.contingency.domains import Column
    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.model.records import Records


@dataclass(frozen=True)
class Domains:
    """All columns, and their taxonomies in one: of each the values are the first nodes, then come the inner ones."""

    columns: tuple[Column, ...]
    taxonomy: Taxonomy

    @property
    def names(self) -> list[str | None]:
        """The text of every node of the taxonomy, None where it has none."""
        sizes = np.bincount(self.taxonomy.column, minlength=len(self.columns)).tolist()
        return [
            name
            for one, size in zip(self.columns, sizes, strict=True)
            for name in (*one.labels, *(one.inner or (None,) * (size - len(one.labels))))
        ]


def read(db: Relations, source: Records, asked: Contingency) -> Domains:
    """The domains of a prepared source; ``UsageError`` for a taxonomy that is none."""
    columns = domains.read(db, source, asked)
    own = [grouped(len(one), asked.fan_out) if one.parents is None else one.parents for one in columns]
    sizes = [len(parents) for parents in own]
    first = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    parents = np.concatenate(own)
    parents = np.where(parents < 0, -1, parents + first)
    return Domains(columns, assembled(np.repeat(np.arange(len(columns)), sizes), parents))


def cells(db: Relations, source: Records, given: Domains) -> Cells:
    """The source's different cells."""
    codes, records = domains.coded(db, source, given.columns)
    nodes = [given.taxonomy.values(number)[own] for number, own in enumerate(codes.T)]
    return Cells(np.stack(nodes, axis=1), records)
