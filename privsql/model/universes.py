"""Universes: all values that a column or an item can have, from a public list, from a query, or from the data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import ceil
from typing import TYPE_CHECKING, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    model_validator,
)

from privsql.engine.files import unused_name
from privsql.errors import UsageError
from privsql.model.bins import is_decimal, number_range
from privsql.model.parameters import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from sqlglot import exp

    from privsql.engine.database import Relations


class Universe(BaseModel):
    """The items that a record may hold; algorithm ``diffpart`` puts neighbours in this list into one group.

    They are a public list of ``items``, the first column of a ``query``, or the items that occur in the ``data``. The
    last choice reveals that an item occurs, even if only one record has it; the guarantee does not cover that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: tuple[str, ...] | None = None
    query: Query | None = None
    data: bool = False

    @property
    def source_count(self) -> int:
        """Return how many of ``items``, ``query`` and ``data`` are given; exactly one is allowed."""
        return (self.items is not None) + (self.query is not None) + self.data

    @property
    def listed_type(self) -> str | None:
        """Return the SQL type of the listed items; None if a query or the data lists them."""
        from privsql.engine.sqlfiles import infer_type

        return None if self.items is None else infer_type(self.items)

    @property
    def listing(self) -> tuple[str, bool] | None:
        """Return the query that lists the items, and whether values of its second column are not items themselves.

        That is so for the query of a taxonomy, whose second column has the parents of items. The result is None if no
        query lists the items.
        """
        return None if self.query is None else (self.query, False)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return {"items": tuple(str(item) for item in value)}
        if value == "data":
            return {"data": True}
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Universe:
        if self.source_count != 1:
            raise ValueError("give a list of items, { query = ... }, or 'data' (which the guarantee does not cover)")
        if self.items is not None and (not self.items or len(set(self.items)) < len(self.items)):
            raise ValueError("the list of items is empty" if not self.items else "an item appears twice in the list")
        return self


OTHER = "other"  # the text that stands for all values that are not listed
SECOND = timedelta(seconds=1)


NO_BINS = Fraction(0), Fraction(0)


def find_unlisted(kind: str, known: Collection[str], bins: tuple[Fraction, Fraction] = NO_BINS) -> str | None:
    """Return some value of a type, as text, that is not ``known``; None if all of its values are known.

    It stands for all values that are not known, in a release or to find out whether a condition holds for them.

    Args:
        kind: The SQL type.
        known: The known values as text.
        bins: A range of numbers that are known, too: the first one, and the one after the last.

    >>> find_unlisted("TINYINT", ["0", "1"]), find_unlisted("DECIMAL(3,2)", ["0.00"]), find_unlisted("DATE", [])
    ('2', '0.01', '0001-01-01')
    >>> find_unlisted("BOOLEAN", ["true"]), find_unlisted("BOOLEAN", ["true", "false"]), find_unlisted("VARCHAR", ["a"])
    ('false', None, 'other')
    """
    if kind == "VARCHAR":
        return unused_name(OTHER, known)
    if kind == "BOOLEAN":
        candidates: Iterable[str] = ("true", "false")
    elif kind == "UUID":
        candidates = (f"00000000-0000-0000-0000-{number:012x}" for number in range(len(known) + 1))
    elif kind == "TIME":
        candidates = ((datetime.min + number * SECOND).time().isoformat() for number in range(len(known) + 1))
    elif kind.startswith(("DATE", "TIMESTAMP")):
        known = {text[:10] for text in known}
        candidates = (date.fromordinal(number + 1).isoformat() for number in range(len(known) + 1))
    else:
        return _find_unlisted_number(kind, {Decimal(text) for text in known if is_decimal(text)}, bins)
    return next((one for one in candidates if one not in known), None)


def _find_unlisted_number(kind: str, known: Collection[Decimal], bins: tuple[Fraction, Fraction]) -> str | None:
    try:
        least, most, scale = number_range(kind)
    except ValueError:
        least, most, scale = Fraction(-(10**15)), Fraction(10**15), 0
    low, high, last, lowest = (ceil(one * 10**scale) for one in (*bins, most, least))
    numbers = (Decimal(one).scaleb(-scale) for one in chain(range(high, last + 1), range(low - 1, lowest - 1, -1)))
    return next((f"{one:f}" for one in numbers if one not in known), None)


@dataclass(frozen=True)
class ListedValues:
    """A public list of sensitive values. The code of a value is its position in the list.

    The next code stands for all values that are not listed. A text column publishes it as ``other``, and any other
    column as NULL.

    Attributes:
        values: The listed values as text.
        other: The text that stands for all other values.
        holds_null: Whether NULL has a code of its own, the last one; else NULL counts as a value that is not listed.
    """

    values: tuple[str, ...]
    other: str
    holds_null: bool

    def __len__(self) -> int:
        """Return the number of codes: those of listed values, that of all others, and that of NULL if it has one."""
        return len(self.values) + 1 + self.holds_null

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {value: code for code, value in enumerate(self.values)}

    def find_code(self, text: str | None) -> int:
        """Return the number that stands for a value, given as text; None stands for NULL.

        All values that are not listed have the same number.
        """
        return len(self) - 1 if text is None else self._codes.get(text, len(self.values))

    def list_texts(self, kind: str) -> list[str | None]:
        """Return the texts that a column of SQL type ``kind`` publishes, in the order of their codes; None for NULL.

        After the listed values comes the text for all other values, and NULL if it has a code of its own.
        """
        return [*self.values, self.other if kind == "VARCHAR" else None, *[None] * self.holds_null]


def create_universe(db: Relations, universe: Universe, kind: str, occurring: exp.Query) -> tuple[str, ...]:
    """Create relation ``universe`` (code, item) with all items that a record may hold, and return them as text.

    The codes number the items from 0.

    Args:
        db: The engine that holds the relation.
        universe: Where the items come from.
        kind: The SQL type of an item.
        occurring: The query for the items that occur in the data, in column ``item``.

    Raises:
        UsageError: The universe is empty, has an item twice, or has one that is not written as SQL prints it.
    """
    import pyarrow as pa
    from sqlglot import exp

    from privsql.engine.sqlfiles import DIALECT, canonical_value, column, fill, temp_table

    name = "item"
    if universe.items is not None:
        db.register_arrow("given", pa.table({"code": range(len(universe.items)), "item": list(universe.items)}))
    elif universe.query is not None:
        db.create_from_sql("given", universe.query)
        name = db.list_fields(temp_table("given"))[0].name
    else:
        db.create_table("given", occurring)
    item = canonical_value(exp.cast(column(name), exp.DataType.build(kind, dialect=DIALECT)), kind)
    order = "core/ranked" if universe.items is None else "core/listed"
    db.create_table("universe", fill(order, {"given": temp_table("given"), "item": item}))
    db.drop("given")
    texts = [exp.cast(column("item"), "VARCHAR")]
    rows = db.rows(fill("core/labels", {"domain": temp_table("universe"), "labels": texts}))
    labels = tuple(str(row[0]) for row in rows)
    if not labels:
        raise UsageError("the universe has no items")
    if len(set(labels)) < len(labels):
        raise UsageError("an item appears twice in the universe")
    pairs = zip(universe.items or labels, labels, strict=True)
    if other := next((pair for pair in pairs if pair[0] != pair[1]), None):
        raise UsageError(f"{other[0]!r} is not how SQL prints a value of type {kind}; write {other[1]!r}")
    return labels
