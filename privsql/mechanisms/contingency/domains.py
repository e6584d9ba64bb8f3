"""The values of every column, as the specification has them, and the records of a source by these.

The last one of every column is the cell of all that the specification does not list, NULL included: it is there
whatever the records are, so that no record changes what columns, cells and messages there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from privsql.engine.names import beside
from privsql.engine.sqlfiles import all_rows, column, fill, named, temp
from privsql.errors import UsageError
from privsql.exact import text
from privsql.mechanisms.contingency.parameters import WITHIN, Values, is_number, is_whole
from privsql.mechanisms.contingency.taxonomies import stated
from privsql.model.listing import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from privsql.engine.database import Relations
    from privsql.engine.roles import Field
    from privsql.mechanisms.contingency.parameters import Contingency
    from privsql.mechanisms.noisytables.measured import Ints
    from privsql.model.records import Records

OTHER = "other"


@dataclass(frozen=True)
class Point:
    """A value, as text, that stands for a ``share`` of the records of value or bin ``code``."""

    code: int
    value: str | None
    share: float


@dataclass(frozen=True)
class Column:
    """A column: its ``field``, the m ``values`` in its own type and their texts (``labels``), or the edges of m bins.

    Their last value is ``other_value``, which follows the bins too. ``inner``, ``parents``: the inner nodes of a stated
    taxonomy and the parent of every node; None where none is.
    """

    field: Field
    values: pa.Array | None
    labels: tuple[str | None, ...]
    edges: tuple[Fraction, ...] = ()
    inner: tuple[str, ...] = ()
    parents: Ints | None = None

    def __len__(self) -> int:
        """How many values or bins there are."""
        return len(self.edges) if self.edges else len(self.labels)

    @property
    def points(self) -> list[Point]:
        """Its values, each for itself; of a bin the whole numbers in it, or some values evenly spread over it."""
        if not self.edges:
            return [Point(code, label, 1.0) for code, label in enumerate(self.labels)]
        found = []
        for code, (low, high) in enumerate(zip(self.edges[:-1], self.edges[1:], strict=True)):
            inside = (
                _whole(low, high)
                if is_whole(self.field.type)
                else [low + (high - low) * (2 * k + 1) / 32 for k in range(16)]
            )
            if not inside:
                raise UsageError(
                    f"mechanism.domains.{self.field.name}: no whole number lies in [{text(low)}, {text(high)})"
                )
            found += [Point(code, decimal(value), 1 / len(inside)) for value in inside]
        return [*found, Point(len(self.edges) - 1, other_value(self.field.type), 1.0)]


def other_value(kind: str, known: Iterable[str] = ()) -> str | None:
    """The text of the cell of all values that are not ``known``: NULL but of text, which has a label that is none.

    >>> other_value("VARCHAR", ["other", "x"]), other_value("INTEGER")
    ('other_', None)
    """
    return beside(OTHER, known) if kind == "VARCHAR" else None


def decimal(value: Fraction) -> str:
    """A number as SQL reads it: exactly, or the nearest double where it has no end."""
    exact = text(value)
    return repr(float(value)) if "/" in exact else exact


def _whole(low: Fraction, high: Fraction) -> list[Fraction]:
    """The whole numbers in [low, high), or some of them, evenly spread, the first and the last among them."""
    first, number = ceil(low), ceil(high) - ceil(low)
    some = min(number, WITHIN)
    return [Fraction(first + k * (number - 1) // max(some - 1, 1)) for k in range(some)]


def read(db: Relations, source: Records, asked: Contingency) -> tuple[Column, ...]:
    """The columns of a prepared source; ``UsageError`` for a taxonomy that is none, or bins of what is no number."""
    roles = source.roles
    return tuple(_column(db, *pair, asked) for pair in zip(roles.sensitive, roles.sa_keys, strict=True))


def _column(db: Relations, field: Field, key: str, asked: Contingency) -> Column:
    domain = asked.domain(field.name) or Values(data=True)
    inner: list[str] = []
    parents: Ints | None = None
    if domain.bins is not None:
        if not is_number(field.type):
            raise UsageError(f"mechanism.domains.{field.name}: bins are of numbers; the column is {field.type}")
        return Column(field, None, (), domain.bins)
    if domain.taxonomy is not None:
        values, inner, parents = stated(_pairs(db, domain.taxonomy, field.name), field.name)
        domain = Values(items=tuple(values))
    occurring = exp.select(named(column(key), "item")).from_(temp("domain"))
    try:
        labels = listed(db, domain, field.type, occurring)
    except UsageError as error:
        raise UsageError(f"mechanism.domains.{field.name}: {error}") from error
    found = db.arrow(all_rows(temp("universe")).order_by("code"))["item"].combine_chunks()
    db.drop("universe")
    other = other_value(field.type, labels)
    last = pa.nulls(1, found.type) if other is None else pa.array([other], found.type)
    values = pa.concat_arrays([found, last])
    return Column(field, values, (*labels, other), (), tuple(inner), parents)


def _pairs(db: Relations, query: str, name: str) -> list[tuple[str, str | None]]:
    """The rows (value, parent) of a publisher's taxonomy, as text."""
    db.own("given", query)
    fields = db.fields(temp("given"))
    if len(fields) != 2:
        raise UsageError(f"mechanism.domains.{name}: a taxonomy has two columns, value and parent, not {len(fields)}")
    texts = [exp.cast(column(field.name), "VARCHAR") for field in fields]
    rows = [(value, parent) for value, parent in db.rows(exp.select(*texts).from_(temp("given")))]
    db.drop("given")
    if any(value is None for value, _ in rows):
        raise UsageError(f"mechanism.domains.{name}: the taxonomy holds NULL as a value")
    return rows


def coded(db: Relations, source: Records, columns: Sequence[Column]) -> tuple[Ints, Ints]:
    """The source's n different cells, (n, d), and the records of each; no record is outside of all cells."""
    roles = source.roles
    texts = [named(exp.cast(column(key), "VARCHAR"), key) for key in roles.sa_keys]
    rows = db.arrow(fill("core/domain_labels", {"domain": temp("domain"), "labels": texts}))
    codes = [_codes(rows[key].combine_chunks(), one) for key, one in zip(roles.sa_keys, columns, strict=True)]
    return np.stack(codes, axis=1), rows["records"].to_numpy().astype(np.int64)


def _codes(texts: pa.Array, one: Column) -> Ints:
    """The code of every value; NULL, and whatever no value and no bin holds, has the last one."""
    other = len(one) - 1
    if one.edges:
        numbers = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
        found = np.searchsorted([float(edge) for edge in one.edges], numbers, side="right") - 1
        return np.where((found >= 0) & (found < other), found, other).astype(np.int64)
    places = pc.index_in(texts, value_set=pa.array(one.labels[:-1], pa.string()))
    return np.asarray(places.fill_null(other)).astype(np.int64)
