"""A universe as a relation: its items in order, each with a code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from privsql.engine.roles import canonical
from privsql.engine.sqlfiles import DIALECT, Holes, column, fill, temp
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.model.universe import Universe


def listed(db: Relations, asked: Universe, kind: str, occurring: exp.Query) -> tuple[str, ...]:
    """Make relation ``universe``(code, item of type ``kind``); returns the text of its items.

    ``occurring``: query for the column ``item`` of those that occur. Raises ``UsageError`` for an empty universe, or an
    item that stands in it twice.
    """
    cast = _typed(column("item"), kind)
    if asked.items is not None:
        db.put("given", pa.table({"code": range(len(asked.items)), "item": list(asked.items)}))
        db.make("universe", fill("core/listed", {"given": temp("given"), "item": cast}))
    else:
        if asked.query is not None:
            db.own("given", asked.query)
            first = column(db.fields(temp("given"))[0].name)
            cast = _typed(first, kind)
        else:
            db.make("given", occurring)
        db.make("universe", fill("core/ranked", {"given": temp("given"), "item": cast}))
    db.drop("given")
    holes: Holes = {"domain": temp("universe"), "labels": [exp.cast(column("item"), "VARCHAR")]}
    labels = tuple(str(row[0]) for row in db.rows(fill("core/labels", holes)))
    if not labels:
        raise UsageError("the universe has no items")
    if len(set(labels)) < len(labels):
        raise UsageError("an item stands twice in the universe")
    return labels


def _typed(item: exp.Expr, kind: str) -> exp.Expr:
    return canonical(exp.cast(item, exp.DataType.build(kind, dialect=DIALECT)), kind)
