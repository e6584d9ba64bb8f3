"""The tables of a release of marginals and its view: columns, and what the answers need of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.roles import Roles
from privsql.engine.sqlfiles import DIALECT, Holes, column, fill, named, table, temp
from privsql.mechanisms.noisytables.tables import COLUMNS
from privsql.mechanisms.private import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.mechanisms.contingency.domains import Column
    from privsql.mechanisms.contract import Columns
    from privsql.mechanisms.noisytables.measured import Ints, Reals
    from privsql.model.manifest import Manifest

DOMAINS, ROWS = "privsql_domains", "privsql_rows"


def tables(manifest: Manifest) -> Columns:
    """The tables that a release holds, with their columns and types."""
    fields, own = [(field.name, field.type) for field in manifest.sensitive], manifest.roles.by_sa
    return {
        **COLUMNS,
        DOMAINS: [("place", "INTEGER"), ("code", "INTEGER"), ("value", "VARCHAR"), ("share", "DOUBLE")],
        ROWS: [*fields, *own.typed(("weight", "DOUBLE"))],
    }


def view(manifest: Manifest) -> exp.Query:
    """The view whose sums of weights are about the estimates."""
    columns: list[exp.Expr] = [column(field.name) for field in manifest.sensitive]
    weight = manifest.roles.by_sa.column("weight")
    return fill("contingency/synthetic", {"rows": table(ROWS), "columns": columns, "weight": weight})


def domains_table(columns: Sequence[Column]) -> pa.Table:
    """``privsql_domains``: the values of every column (by its ``place``), or what stands for its bins, by ``code``."""
    points = [(place, *(one.code, one.value, one.share)) for place, own in enumerate(columns) for one in own.points]
    names, types = ("place", "code", "value", "share"), (pa.int32(), pa.int32(), pa.string(), pa.float64())
    arrays = [pa.array([row[k] for row in points], kind) for k, kind in enumerate(types)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def write_rows(db: Relations, fields: Sequence[Field], columns: Sequence[Column], made: tuple[Ints, Reals]) -> None:
    """``privsql_rows``: rows of codes with weights, in the columns' own types; of a bin a value in its middle."""
    codes, weights = made
    texts = {}
    for place, own in enumerate(columns):
        points = own.points
        middle = [[one.value for one in points if one.code == code] for code in range(len(own))]
        texts[f"s{place}"] = pa.array([each[len(each) // 2] for each in middle], pa.string()).take(
            pa.array(codes[:, place])
        )
    given = pa.table({**texts, "weight": pa.array(weights, pa.float64())})
    roles = Roles((), tuple(fields))
    order: list[exp.Expr] = [one.this for one in roles.sa_typed("g")]
    holes: Holes = {"given": temp("given"), "columns": roles.sa_typed("g"), "order": order}
    query = fill("contingency/rows", {**holes, **roles.by_sa.names("weight")})
    write(db, ROWS, given, query, title="Writing the rows")


def read_domains(rows: pa.Table, number: int) -> tuple[int, ...]:
    """How many values each column has; ``ValueError`` unless the table counts them up for ``number`` columns."""
    place, code = (rows[name].to_numpy() for name in ("place", "code"))
    if rows["share"].null_count or not len(rows):
        raise ValueError("a value is missing")
    sizes = [int(code[place == k].max(initial=-1)) + 1 for k in range(number)]
    different = {(int(p), int(c)) for p, c in zip(place, code, strict=True)}
    if min(sizes) < 1 or different != {(k, c) for k in range(number) for c in range(sizes[k])}:
        raise ValueError("the values of a column are not numbered 0, 1, ..")
    total = np.bincount(place, weights=rows["share"].to_numpy())
    if not np.allclose(total, sizes):
        raise ValueError("the shares of a value do not add up")
    return tuple(sizes)


def codes_of(db: Relations, manifest: Manifest, rows: exp.Table, domains: exp.Table) -> Ints:
    """The codes of all ``rows``(s0..), (R, d); -1 for a value that is in no domain."""
    columns = list(zip(manifest.roles.sa_keys, manifest.sensitive, strict=True))
    texts = db.arrow(exp.select(*(_text(column(key), one.type, key) for key, one in columns)).from_(rows))
    found = np.full((len(texts), len(manifest.sensitive)), -1, dtype=np.int64)
    for place, (key, field) in enumerate(columns):
        listed = [column("code"), _text(column("value"), field.type, "value")]
        points = db.arrow(
            fill("contingency/points", {"domains": domains, "columns": listed, "place": exp.Literal.number(place)})
        )
        at = pc.index_in(texts[key].combine_chunks(), value_set=points["value"].combine_chunks())
        known = np.asarray(pc.is_valid(at))
        found[known, place] = points["code"].to_numpy()[np.asarray(at.fill_null(0))[known]]
    return found


def _text(value: exp.Expr, kind: str, name: str) -> exp.Expr:
    """A value of a type as its text, whichever of its texts it was given as."""
    return named(exp.cast(exp.cast(value, exp.DataType.build(kind, dialect=DIALECT)), "VARCHAR"), name)
