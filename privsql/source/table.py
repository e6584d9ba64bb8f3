"""The records of a table, counted: canonical order, codes of the sensitive values, digests of contents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from privsql.engine.database import numbered
from privsql.engine.names import fold
from privsql.engine.roles import Field, Roles, canonical, comparable
from privsql.engine.sqlfiles import Holes, column, fill, named, same, temp
from privsql.model.records import History, changed
from privsql.source.binding import fingerprinted, hashed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privsql.engine.database import Warehouse
    from privsql.model.parameters import Order
    from privsql.model.records import Persons
    from privsql.noise import Key

AS_TEXT = ("ENUM", "JSON")  # an ENUM would carry the names of values that are not published


def read_as(kind: str) -> str:
    """The type as which columns of a type are read and published.

    >>> read_as("ENUM('a', 'b')"), read_as("DATE")
    ('VARCHAR', 'DATE')
    """
    return "VARCHAR" if kind.split("(", maxsplit=1)[0] in AS_TEXT else kind


@dataclass(frozen=True)
class TableRecords:
    """The source, mounted and counted: relation ``domain``, and what Python needs to know."""

    db: Warehouse
    roles: Roles
    labels: tuple[str, ...]  # (m,) text of every sensitive value, canonical order
    counts: tuple[int, ...]  # (m,) o_i
    source_records: int
    suppressed: int
    reading: Reading
    known_by: Mapping[str, exp.Expr] = field(default_factory=dict)
    has_ids: bool = False
    persons: Persons | None = None
    order: Order = "stream"
    history: History = field(default_factory=History)
    _made: set[str] = field(default_factory=set)

    @property
    def records(self) -> int:
        """Records that are published, n."""
        return sum(self.counts)

    def sort(self) -> None:
        """Make relation ``records``: value by value, each in canonical order.

        Raises ``GuaranteeError`` if the values are not those that were counted: a layout is matched by position.
        """
        if "records" in self._made:
            return
        roles = self.roles
        holes: Holes = {
            "source": temp("source"),
            "sa": self.reading.sa,
            "qi": [*self.reading.qi, *(named(text, key) for key, text in self._names().items())],
            "keep": self.reading.keep,
            "sa_order": roles.sa(),
            "qi_order": roles.qi(),
        }
        self.db.make("records", fill("core/records", holes), title="Sorting the source")
        holes = {"records": temp("records"), "sa": roles.sa(), "position": numbered(self.db).position("r")}
        blocks = self.db.rows(fill("core/blocks", holes))
        ends = np.cumsum(self.counts).tolist()
        expected = [(o, end - o, end - 1) for o, end in zip(self.counts, ends, strict=True)]
        if [tuple(map(int, block)) for block in blocks] != expected:
            raise changed()
        self._made.add("records")

    def coded(self, *, ordered: bool) -> exp.Query:
        """Quasi-identifiers and rank of the sensitive value of every record, in canonical order if it is asked for."""
        coded = self._coded(self.roles.qi("r"))
        if not ordered:
            return coded
        order = [exp.Ordered(this=item, nulls_first=False) for item in (column("code"), *self.roles.qi())]
        return exp.select("*").from_(coded.subquery("coded")).order_by(*order)

    def _coded(self, columns: list[exp.Expr]) -> exp.Query:
        """``columns`` of every record, from the source, or in ``records`` where they have numbers."""
        roles, sorted_ = self.roles, "records" in self._made
        position = [named(numbered(self.db).position(temp("records").name), "pos")] if sorted_ else []
        holes: Holes = {
            "source": temp("records" if sorted_ else "source"),
            "domain": temp("domain"),
            "sa": roles.sa() if sorted_ else self.reading.sa,
            "qi": [*roles.qi(), *position] if sorted_ else self.reading.qi,
            "keep": exp.true() if sorted_ else self.reading.keep,
            "columns": columns,
            "same_value": same("r", "d", roles.sa_keys),
        }
        return fill("core/coded", holes)

    def bound(self, key: Key) -> Key:
        """The key for these records alone; ``hashed`` where their order is portable."""
        roles, kept = self.roles, self.roles.qi("r")
        fields = zip((*roles.qi_keys, *roles.sa_keys), (*roles.quasi_identifiers, *roles.sensitive), strict=True)
        everywhere = self.order == "portable"
        if everywhere and self.has_ids:
            self.sort()
            kept.append(column("pos", "r"))
        coded, kept = self._coded([*kept, *roles.sa("r")]), [*kept, column("code", "r")]
        made = hashed(self.db, coded, kept, dict(fields), key, everywhere=everywhere)
        if not everywhere:
            return fingerprinted(self.db, made.subquery(), key)
        self.db.make("hashed", made, title="Hashing the records")
        return fingerprinted(self.db, temp("hashed"), key)

    @property
    def keep(self) -> exp.Expr:
        """The predicate of the NULL policy over relation ``source``."""
        return self.reading.keep

    def _names(self) -> Mapping[str, exp.Expr]:
        """The names that relation ``records`` holds."""
        return self.known_by if self.has_ids else {}

    def traces(self, *, values: bool) -> exp.Query:
        """What the records are known by in other releases: names, and a digest of what is published of them."""
        roles = self.roles
        fields = dict(zip((*roles.qi_keys, *roles.sa_keys), (*roles.quasi_identifiers, *roles.sensitive), strict=True))
        if not self.has_ids:
            return self._counted({one.name: one for one in fields.values()}, self.known_by)
        self.sort()
        texts = [comparable(column(key, "r"), one.type) for key, one in fields.items()]
        value = exp.cast(roles.sa("r")[0] if values else exp.null(), "VARCHAR")
        person = column("person", "r") if "person" in self.known_by else exp.cast(exp.null(), "VARCHAR")
        holes: Holes = {
            "records": temp("records"),
            "trace": self.db.digest(texts),
            "value": value,
            "person": person,
        }
        return fill("ledger/traces", holes)

    def seen_as(self, columns: Sequence[str]) -> exp.Query | None:
        """The same by other columns of the source, without names; None where it has no such."""
        fields = self._fields(columns)
        return self._counted(dict(fields), {}) if fields and None not in fields.values() else None

    def values_of(self, columns: Sequence[str]) -> dict[str, tuple[exp.Expr, str]]:
        """By column, of those that the source has, its value over relation ``source``, and its type."""
        kinds = {name: (one.name, read_as(one.type)) for name, one in self._fields(columns).items() if one is not None}
        return {name: (canonical(column(own), kind), kind) for name, (own, kind) in kinds.items()}

    def _fields(self, columns: Sequence[str]) -> dict[str, Field | None]:
        available = {fold(one.name): one for one in self.db.fields(temp("source"))}
        return {name: available.get(fold(name)) for name in columns}

    def _counted(self, fields: Mapping[str, Field | None], names: Mapping[str, exp.Expr]) -> exp.Query:
        kinds = {one.name: read_as(one.type) for one in fields.values() if one is not None}
        texts = [comparable(canonical(column(name), kind), kind) for name, kind in kinds.items()]
        nobody = exp.cast(exp.null(), "VARCHAR")
        holes: Holes = {
            "source": temp("source"),
            "trace": self.db.digest(texts),
            "keep": self.keep,
            "id": names.get("id", nobody),
            "person": names.get("person", nobody),
        }
        return fill("ledger/counted_traces", holes)

    def done(self) -> None:
        """Forget ``records``."""
        self.db.drop("records")
        self._made.discard("records")

    def named(self, name: str) -> None:
        """Make the sorted records readable as ``name``, under the publisher's own column names."""
        self.db.publish_as(name, exp.select(*self.roles.qi_out(), *self.roles.sa_out()).from_(temp("records")))


@dataclass(frozen=True)
class Reading:
    """How the columns are read from ``source`` under internal names, and which records are kept."""

    qi: list[exp.Expr]
    sa: list[exp.Expr]
    keep: exp.Expr
