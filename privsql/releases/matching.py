"""Check a release of one record of each person without the key that chose: every person can have a published record.

Persons are matched to the published rows, each row as often as it is published: a flow from the persons, through the
rows that one of their records could be, that fills every row. Quasi-identifiers and sensitive values are matched by
themselves, which a true release always passes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.sqlfiles import Holes, column, fill, same, table, temp
from privsql.mechanisms.registry import of
from privsql.model.checks import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.attacks.block import Ints
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest
    from privsql.model.records import Records

LISTED = "st"  # the table of sensitive values, by mechanisms that publish these as they are


def same_choice(manifest: Manifest, source: Records) -> bool:
    """Return whether the records of persons were chosen by the key of the release, if any were chosen."""
    stated, found = manifest.persons, source.persons
    return stated is None or found is None or stated.choice == found.choice


def checks(db: Relations, manifest: Manifest, database: str) -> list[Check]:
    """Return the checks of what is published against all records of all persons, relation ``people``."""
    roles = manifest.roles
    if not roles.quasi_identifiers or not roles.sensitive:
        return []
    tables = of(manifest.mechanism).tables(manifest)
    wanted = {field.name for field in roles.quasi_identifiers}
    name = next(name for name, columns in tables.items() if wanted <= {column for column, _ in columns})
    rows = exp.select(*roles.qi_in()).from_(table(name, database))
    one = exp.Literal.number(1)
    found = [_check(db, "quasi-identifiers", rows, roles.qi_keys, one)]
    if LISTED in tables:
        listed = exp.select(*roles.sa_in(), *roles.by_sa.read("count")).from_(table(LISTED, database))
        total = int(db.rows(exp.select(exp.Sum(this=column("count"))).from_(listed.subquery("listed")))[0][0])
        if total == int(db.rows(exp.select(exp.Count(this=exp.Star())).from_(rows.subquery("published")))[0][0]):
            found.append(_check(db, "sensitive values", listed, roles.sa_keys, column("count")))
    return found


def _check(db: Relations, what: str, published: exp.Query, keys: Sequence[str], count: exp.Expr) -> Check:
    name = f"every person can have one of the published {what}"
    return Check(name, partial(_unmatched, db, published, keys, count))


def _unmatched(db: Relations, published: exp.Query, keys: Sequence[str], count: exp.Expr) -> list[str]:
    columns = [column(key) for key in keys]
    counted: Holes = {"published": published.subquery("published"), "columns": columns, "count": count}
    db.make("matched_rows", fill("verify/rows", counted))
    holes: Holes = {"people": temp("people"), "rows": temp("matched_rows"), "same_row": same("p", "r", keys)}
    pairs = db.arrow(fill("verify/options", holes))
    listed = db.arrow(exp.select("row", "records").from_(temp("matched_rows")).order_by("row"))
    db.drop("matched_rows")
    rows = pairs["row"].fill_null(-1).to_numpy().astype(np.int64)
    missing = unfilled(pairs["person"].to_numpy().astype(np.int64), rows, listed["records"].to_numpy().astype(np.int64))
    return [f"{missing:,} published records that no person's can be, one of each"] if missing else []


def unfilled(persons: Ints, rows: Ints, records: Ints) -> int:
    """Return how many of the published records can't be filled by different persons.

    ``persons``, ``rows``: which row each person could fill, -1 for none; ``records``: of each row. Persons who could
    fill the same rows are one node of the flow.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 (takes long to import)
    from scipy.sparse.csgraph import maximum_flow  # noqa: PLC0415

    order = np.lexsort((rows, persons))
    persons, rows = persons[order][rows[order] >= 0], rows[order][rows[order] >= 0]
    starts = np.flatnonzero(np.diff(persons, prepend=-1))
    kinds: dict[bytes, tuple[Ints, int]] = {}
    for options in np.split(rows, starts[1:]) if len(rows) else []:
        known = kinds.get(options.tobytes(), (options, 0))
        kinds[options.tobytes()] = (options, known[1] + 1)
    groups, sizes = [group for group, _ in kinds.values()], np.array([size for _, size in kinds.values()], np.int64)
    first, end = 1 + len(groups), 1 + len(groups) + len(records)
    lengths = np.array([len(group) for group in groups], np.int64)
    middle = np.repeat(np.arange(1, first), lengths)
    heads = np.concatenate([np.zeros(len(groups), np.int64), middle, np.arange(first, end)])
    tails = np.concatenate([np.arange(1, first), *(first + group for group in groups), np.full(len(records), end)])
    limits = np.concatenate([sizes, np.repeat(sizes, lengths), records]).astype(np.int32)
    graph = coo_array((limits, (heads.astype(np.int32), tails.astype(np.int32))), shape=(end + 1, end + 1)).tocsr()
    return int(records.sum()) - int(maximum_flow(graph, 0, end).flow_value)
