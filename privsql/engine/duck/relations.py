"""``Relations`` of ``privsql.engine.database``: named relations of a session, made from trees or put from arrays."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from sqlglot import exp

from privsql.engine.duck.connection import one_select
from privsql.engine.roles import Field
from privsql.engine.sqlfiles import PREFIX, all_rows, fill, render, table, temp
from privsql.engine.texts import DIGITS, beside_each_other, first
from privsql.errors import EngineError, PrivsqlError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from privsql.engine.duck.connection import Connection


BASE, LEAST = 200 * 2**20, 60 * 2**20  # bytes that the process takes before it does anything, and the engine at least
UNITS = {unit: 1024**power for power, unit in enumerate(("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"))}


class DuckRelations:
    """What was made in one connection."""

    keeps_order = True

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._neighbours = "memory"  # the database whose tables a publisher's own SELECT reads
        self._registered: set[str] = set()
        self._limit: int | None = None  # bytes that the process may take
        self._fault: BaseException | None = None  # of a stream of ours while a statement read it

    def close(self) -> None:
        """End the session and forget all that is temporary."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading ---

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""
        return self.connection.rows(self._sql(query), values)

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""
        return self.connection.arrow(self._sql(query), values)

    @contextmanager
    def streamed(self, query: exp.Expr, rows: int) -> Iterator[pa.RecordBatchReader]:
        """The rows of a query, so many at a time and in its order; meanwhile only sessions ``beside`` can be asked."""
        with self.connection.streamed(self._sql(query), rows) as reader:
            yield reader

    @contextmanager
    def beside(self) -> Iterator[DuckRelations]:
        """A session with temporary relations of its own over the same attached databases."""
        other = DuckRelations(self.connection.beside())
        try:
            yield other
        finally:
            other.close()

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""
        query = all_rows(source) if isinstance(source, exp.Table) else source
        return self._columns(query)

    def _columns(self, query: exp.Expr) -> list[Field]:
        return self._described(self._sql(query))

    def _described(self, sql: str) -> list[Field]:
        return [Field(row[0], row[1]) for row in self.connection.rows(f"DESCRIBE {sql}")]

    def reserve(self, size: int, what: str) -> None:
        """Leave so many bytes of the memory limit to arrays beside the engine; ``EngineError`` for too many.

        Without a limit it is the engine's own, four fifths of the machine's memory.
        """
        if self._limit is None:
            self._limit = _bytes(self.rows(fill("duckdb/memory", {}))[0][0])
        left = self._limit - BASE - size
        if left < LEAST:
            raise EngineError(
                f"{what} takes about {size / 1e9:.2f} GB beside the engine and {(BASE + LEAST) / 1e9:.2f} GB for all "
                f"else; the memory limit is {self._limit / 1e9:.2f} GB"
            )
        self.connection.run(f"SET memory_limit = '{left}B'")

    def position(self, table: str) -> exp.Expr:
        """Rows of a table made here are numbered 0, 1, .. in the order in which they were inserted."""
        return exp.column("rowid", table=table)

    def dealt(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` and ``code`` from ``positions`` (pos, bid, code)."""
        self.view("dealt", fill("duckdb/dealt", {"records": records, "positions": positions}))
        return all_rows(temp("dealt"))

    def matched(self, records: exp.Table, positions: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` from ``positions`` (pos, bid)."""
        self.view("matched", fill("duckdb/matched", {"records": records, "positions": positions}))
        return all_rows(temp("matched"))

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """63 bits of the MD5 of texts, side by side: the same in every version, unlike the engine's own hash."""
        number = exp.Anonymous(this="md5_number", expressions=[beside_each_other(texts)])
        return exp.cast(exp.BitwiseRightShift(this=number, expression=exp.Literal.number(65)), "BIGINT")

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """The first 60 bits of SHA-256 of these texts side by side."""
        hexadecimal = exp.Anonymous(this="sha256", expressions=[beside_each_other(texts)])
        return exp.cast(exp.DPipe(this=exp.Literal.string("0x"), expression=first(hexadecimal, DIGITS)), "BIGINT")

    # Making ---

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as a table: temporary, or in the attached database ``into``."""
        if title:
            self.connection.step(title)
        kind, target = ("TABLE", table(name, into)) if into else ("TEMP TABLE", temp(name))
        try:
            self.connection.run(f"CREATE {kind} {render(target)} AS {self._sql(query)}")
        except PrivsqlError as error:
            fault, self._fault = self._fault, None
            raise fault or error from None

    def append(self, name: str, query: exp.Expr, *, into: str) -> None:
        """Add the rows of a query to a table of the attached database ``into``."""
        self.connection.run(render(exp.insert(query, table(name, into))))

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's as temporary table ``name``."""
        with self._at(self._neighbours):
            self.connection.run(f"CREATE TEMP TABLE {render(temp(name))} AS {one_select(query)}")

    def view(self, name: str, query: exp.Expr, *, into: str | None = None, schema: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``, in its first schema or another."""
        if into is None:
            self.connection.run(f"CREATE OR REPLACE TEMP VIEW {render(temp(name))} AS {self._sql(query)}")
            return
        with self._at(into, schema):  # so that its text names no database and survives a renamed file
            self.connection.run(f"CREATE VIEW {render(table(name))} AS {render(query)}")

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable (a stream: once) under ``name``, without a copy."""
        if isinstance(data, pa.RecordBatchReader):
            data = pa.RecordBatchReader.from_batches(data.schema, self._heard(data))
        self.connection.register(PREFIX + name, data)
        self._registered.add(name)

    def _heard(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The batches; of our own errors, and of Ctrl-C, the engine would tell the text in a line of its own."""
        try:
            yield from stream
        except GeneratorExit:  # nobody reads on
            raise
        except BaseException as error:
            self._fault = error
            raise

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""
        for name in names:
            if name in self._registered:
                self.connection.unregister(PREFIX + name)
                self._registered.discard(name)
            else:
                self.connection.run(f"DROP TABLE IF EXISTS {render(temp(name))}")

    def _sql(self, query: exp.Expr) -> str:
        """The text of a tree, as it is run here."""
        return render(query)

    @contextmanager
    def _at(self, database: str, schema: str | None = None) -> Iterator[None]:
        """Let names that say no database mean those of ``database``. Else none is current but the session's own."""
        self.connection.run(f"USE {identifier(database)}" + (f".{identifier(schema)}" if schema else ""))
        try:
            yield
        finally:
            self.connection.run(f"USE {identifier('memory')}")


def _bytes(shown: str) -> int:
    """A size as the engine shows it."""
    number, unit = shown.split()
    return int(float(number) * UNITS[unit])


def identifier(name: str) -> str:
    """A name as SQL writes it."""
    return render(exp.to_identifier(name, quoted=True))


def text(value: object) -> str:
    """A value as a text constant of SQL."""
    return render(exp.Literal.string(str(value)))
