"""A workshop whose source may lie in a server: what reads nothing but the source is run there, in its order, and all
else on the columns that it needs, brought here.

Nothing is written there, and everything is read as it was when the source was mounted. Digests and keyed hashes are
made here: no key leaves this machine.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from privsql import extras
from privsql.engine.duck.warehouse import DuckWorkshop
from privsql.engine.sqlfiles import DIALECT, PREFIX, all_rows, column, named, temp
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from privsql.engine.database import Origin
    from privsql.engine.duck.connection import Connection
    from privsql.engine.postgres.relations import PostgresRelations
    from privsql.engine.roles import Field

POSTGRES, SOURCE = "postgres", "source"
ROWS = 2**17  # that come over at a time


class FarWorkshop(DuckWorkshop):
    """A publisher's source, here or in a server, beside the releases that are made of it."""

    def __init__(self, connection: Connection, brought: Callable[[Origin], list[Path]] | None = None) -> None:
        super().__init__(connection, brought)
        self._far: PostgresRelations | None = None
        self._stream = ExitStack()  # what comes over just now
        self._numbers, self._brought_here = itertools.count(), dict[frozenset[str], exp.Table]()

    def close(self) -> None:
        """End the session, and that with the server."""
        super().close()
        self._stream.close()
        if self._far is not None:
            self._far.close()

    def mount(self, name: str, origin: Origin) -> None:
        """Make the publisher's table readable as ``name``."""
        if origin.kind != POSTGRES:
            super().mount(name, origin)
            return
        try:
            from privsql.engine.postgres.relations import opened  # noqa: PLC0415 (an extra)
        except ImportError as error:
            raise extras.POSTGRES.missing() from error
        self._far = opened(origin.address or "", origin.relation, origin.query)

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in the SQL of where the source lies, as temporary table ``name``."""
        if self._far is None:
            super().own(name, query)
        else:
            self.make(name, self._fetched(self._far.reading(query), all_rows(temp(SOURCE))))

    def view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view; of what lies elsewhere, a table."""
        if into is None and self._reads(query):
            self.make(name, query)
        else:
            super().view(name, query, into=into, schema=schema)

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        if self._far is not None and isinstance(source, exp.Table) and self._reads(source):
            return self._far.fields(source)
        return super().fields(source)

    def collated(self, source: exp.Table, columns: Sequence[str]) -> dict[str, str]:
        """Collations by which different texts are equal; those of a server that are deterministic only sort them."""
        return {} if self._far is not None else super().collated(source, columns)

    def _sql(self, query: exp.Expr) -> str:
        return super()._sql(self._here(query) if self._reads(query) else query)

    def _reads(self, query: exp.Expr) -> bool:
        return self._far is not None and any(map(_is_source, query.find_all(exp.Table)))

    def _here(self, query: exp.Expr) -> exp.Expr:
        """The same rows from relations that are here."""
        if self._far is None:
            return query
        within = {one.alias for one in query.find_all(exp.CTE)}
        if all(_is_source(one) or one.name in within for one in query.find_all(exp.Table)):
            try:
                return self._fetched(self._far, query)
            except EngineError:
                pass
        return self._pulled(self._far, query)

    def _fetched(self, far: PostgresRelations, query: exp.Expr) -> exp.Select:
        """What a query yields there, once, in its order and in the types that it has there."""
        columns, name = far.fields(query), f"far_{next(self._numbers)}"
        self._stream.close()
        rows = self._stream.enter_context(far.streamed(query, ROWS))

        def all_of_them() -> Iterator[pa.RecordBatch]:
            with self._stream:
                yield from rows

        self.put(name, pa.RecordBatchReader.from_batches(rows.schema, all_of_them()))
        return exp.select(*map(_typed, columns)).from_(temp(name))

    def _pulled(self, far: PostgresRelations, query: exp.Expr) -> exp.Expr:
        """The query over a table here that has the columns of the source that it names."""
        known = far.fields(temp(SOURCE))
        named_there = {one.name for one in query.find_all(exp.Column)}
        whole = any(isinstance(one, exp.Select) and one.is_star for one in query.find_all(exp.Select))
        kept = [one for one in known if whole or one.name in named_there] or known[:1]
        asked = frozenset(one.name for one in kept)
        if asked not in self._brought_here:
            name = f"brought_{len(self._brought_here)}"
            self.make(name, exp.select(*(column(one.name) for one in kept)).from_(temp(SOURCE)))
            self._brought_here[asked] = temp(name)
        changed = query.copy()
        for one in list(changed.find_all(exp.Table)):
            if _is_source(one):
                here = self._brought_here[asked].copy()
                here.set("alias", one.args.get("alias"))
                one.replace(here)
        return changed


def _is_source(one: exp.Table) -> bool:
    return one.name == PREFIX + SOURCE


def _typed(field: Field) -> exp.Expr:
    """A column in the type that it has there; a sum of whole numbers has no width."""
    value: exp.Expr = column(field.name)
    kind = "HUGEINT" if field.type == "numeric" else field.type
    if field.is_published or kind != field.type:
        value = exp.cast(value, exp.DataType.build(kind, dialect=DIALECT))
    return named(value, field.name)
