"""Columns known again by their values: by how often each of them stands there, in whatever order, under any name.

Of a column the ledger keeps a digest of its histogram, and how likely other people have exactly the same one.
"""

from __future__ import annotations

from itertools import islice, product
from typing import TYPE_CHECKING

from privsql.engine.roles import comparable
from privsql.engine.sqlfiles import Holes, column, fill, temp
from privsql.releases.ledger.evidence import EqualColumns, Histogram, log_chance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from privsql.model.records import Records

MOST = 64  # columns of a release whose histograms are taken
TRIED = 6  # ways to tell which column is which, where several have one histogram


def take_histograms(source: Records, columns: Sequence[str]) -> tuple[Histogram, ...]:
    """Count how often the values of published columns stand in the source."""
    found = []
    for name, (value, kind) in source.values_of(columns[:MOST]).items():
        digest = source.db.digest([comparable(column("value"), kind)])
        holes: Holes = {"source": temp("source"), "value": value, "digest": digest, "keep": source.keep}
        rows = source.db.rows(fill("ledger/histogram", holes))
        likely = log_chance({int(times): int(kinds) for times, kinds, _ in rows})
        found.append(Histogram(name, str(sum(int(part) for _, _, part in rows)), likely))
    return tuple(found)


def pair_columns(ours: Sequence[Histogram], theirs: Sequence[Histogram]) -> tuple[EqualColumns, ...]:
    """List the pairs of columns with equal histograms."""
    return tuple(
        EqualColumns(one.column, other.column, one.log_chance)
        for one, other in product(ours, theirs)
        if one.digest == other.digest
    )


def propose_columns(ours: Sequence[Histogram], theirs: Sequence[Histogram]) -> Iterator[list[str]]:
    """Yield our columns in the order of theirs, by equal histograms; a few times where several have the same one."""
    fitting = [[one.column for one in ours if one.digest == other.digest] for other in theirs]
    chosen = (list(names) for names in product(*fitting) if len(set(names)) == len(names))
    return islice(chosen, TRIED)
