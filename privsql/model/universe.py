"""The values that there can be: a public list or query, or those that occur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, model_validator
from sqlglot import exp

from privsql.engine.roles import canonical
from privsql.engine.sqlfiles import DIALECT, Holes, column, fill, temp
from privsql.errors import UsageError

if TYPE_CHECKING:
    from privsql.engine.database import Relations


class Universe(BaseModel):
    """The items that a record may hold, in the order in which the taxonomy groups them.

    A public list of ``items``, or a ``query`` whose first column lists them; or ``data``: those that occur, which tells
    of an item in a single record that it occurs, and is no part of the guarantee.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: tuple[str, ...] | None = None
    query: str | None = None
    data: bool = False

    @property
    def sources(self) -> int:
        """How many sources are given; one is needed."""
        return (self.items is not None) + (self.query is not None) + self.data

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {"items": tuple(str(item) for item in given)}
        if given == "data":
            return {"data": True}
        return given

    @model_validator(mode="after")
    def _one_source(self) -> Universe:
        if self.sources != 1:
            raise ValueError("give a list of items, { query = ... }, or 'data' (which the guarantee does not cover)")
        if self.items is not None and (not self.items or len(set(self.items)) < len(self.items)):
            raise ValueError("the list of items is empty" if not self.items else "an item stands twice in the list")
        return self


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
