"""``Relations`` of ``privsql.engine.database`` in a Postgres server: temporary tables of one session."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from privsql.engine.apart import RelationsApart, whole
from privsql.engine.arrows import numbers, plain, widened
from privsql.engine.portable import one_select
from privsql.engine.postgres import dialect
from privsql.engine.postgres.server import Server, translated
from privsql.engine.rendering import temporary
from privsql.engine.sqlfiles import all_rows, table
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from privsql.engine.roles import Field


class PostgresRelations(RelationsApart):
    """What was made in one session; what a publisher has there, as it was at one moment, if that is all."""

    engine = dialect.ENGINE

    def __init__(self, server: Server, source: str = "") -> None:
        """``source``: a SELECT that is read as relation ``source``."""
        super().__init__()
        self._server, self._source = server, source
        self._made: dict[str, str] = {}

    def close(self) -> None:
        """End the session."""
        self._server.close()

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table; numbers without a declared width are read one by one."""
        if values:
            raise EngineError("Postgres: no values are bound here")
        found = self._server.arrow(self._sql(query))
        kinds = [field.type for field in dialect.fields(found.schema)]
        return pa.table(list(map(numbers, found.columns, kinds)), names=found.column_names)

    @contextmanager
    def streamed(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query, so many at a time at most and in its order, decimals as text."""
        with self._server.batches(self._sql(query)) as batches:
            yield plain(batches, rows, translated)

    def beside(self) -> AbstractContextManager[PostgresRelations]:
        """Relations of their own in the same session, as long as that."""
        return nullcontext(PostgresRelations(self._server, self._source))

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        query = all_rows(source) if isinstance(source, exp.Table) else source
        return dialect.fields(self._server.schema(self._sql(query)))

    def reading(self, query: str) -> PostgresRelations:
        """The same session, in which ``source`` is what another SELECT yields."""
        return PostgresRelations(self._server, one_select(query, dialect.POSTGRES))

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:  # noqa: ARG002
        """Materialise a query as a temporary table."""
        self._create("TABLE", name, self._sql(query), into)

    def view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a temporary view."""
        self.drop(name)
        self._create("VIEW", name, self._sql(query), into)

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's, in Postgres' SQL, as a temporary table."""
        self._create("TABLE", name, one_select(query, dialect.POSTGRES), None)

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Copy an Arrow table to a temporary one."""
        self.drop(name)
        self._server.put(self._place(name), widened(whole(data)), self._quoted(name))
        self._made[name] = "TABLE"

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""
        for name in [name for name in names if name in self._made]:
            self._server.run(f"DROP {self._made.pop(name)} {self._quoted(name)}")

    def _create(self, kind: str, name: str, sql: str, into: str | None) -> None:
        self._only_own(name, into)
        self._server.run(f"CREATE TEMP {kind} {self._quoted(name)} AS {sql}")
        self._made[name] = kind

    def _place(self, name: str) -> str:
        return name if name == "source" and self._source else self._own(name)

    def _quoted(self, name: str) -> str:
        return table(self._place(name)).sql(dialect.POSTGRES)

    def _sql(self, query: exp.Expr) -> str:
        sql = self.engine.render(query, lambda one: (name := temporary(one)) and self._place(name))
        within = ("WITH", "source", "AS", f"({self._source}\n)", "SELECT", "*", "FROM", f"({sql})", "AS", "q")
        return " ".join(within) if self._source else sql


def opened(address: str, relation: str | None, query: str | None) -> PostgresRelations:
    """A publisher's table or view by its dotted name, or what a SELECT yields; the session writes nothing."""
    named = all_rows(exp.to_table(relation, dialect=dialect.POSTGRES)).sql(dialect.POSTGRES) if relation else ""
    source = named or one_select(query or "", dialect.POSTGRES)
    return PostgresRelations(Server(address, read_only=True), source)
