"""Code that engines other than DuckDB share: rendering, streams of positions, Arrow tables, hashes."""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from privsql.engine.sqlfiles import PREFIX, all_rows, foreign_nodes, qualify_tables, unordered_windows
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from privsql.engine.database import ViewDefinition
    from privsql.engine.sqlfiles import Field

# Arrow tables ---------------------------------------------------------------------------------------------------------
# Arrow tables between DuckDB and engines that have other types.

WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def widen_types(data: pa.Table) -> pa.Table:
    """Return the values in types of all engines: unsigned integers wider, times in microseconds, NULLs as text.

    >>> widen_types(pa.table({"a": pa.array([255], pa.uint8())})).schema.field("a").type
    DataType(int16)
    """
    return data.cast(pa.schema([field.with_type(_wider_type(field.type)) for field in data.schema]))


def _wider_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.string() if pa.types.is_null(kind) else WIDER.get(kind, kind)


def as_plain_batches(
    batches: pa.RecordBatchReader, rows: int, reading: Callable[[], AbstractContextManager[None]]
) -> pa.RecordBatchReader:
    """Return the rows, at most so many at a time; values of opaque types as they are stored.

    ``reading``: what says an engine's errors as privsql's, while rows come over.
    """
    schema = pa.schema([(field.name, _storage_type(field.type)) for field in batches.schema])

    def pieces() -> Iterator[pa.RecordBatch]:
        with reading():
            for batch in batches:
                columns = [one.storage if isinstance(one.type, pa.OpaqueType) else one for one in batch.columns]
                whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                yield from (whole.slice(at, rows) for at in range(0, len(whole), rows))

    return pa.RecordBatchReader.from_batches(schema, pieces())


def parse_numbers(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | pa.Array:
    """Return decimals that came as text, in the width of their type, ``DECIMAL(9,2)``, or in the width they need."""
    if not isinstance(column.type, pa.OpaqueType):
        return column
    texts = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.string()).to_pylist()
    known = [None if text is None else Decimal(text) for text in texts]
    widths = [int(width) for width in re.findall(r"\d+", kind)] or ([] if any(known) else [38])
    return pa.array(known, pa.decimal128(*widths) if widths else None)


def _storage_type(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.OpaqueType) else kind


# Positions ------------------------------------------------------------------------------------------------------------
# One number for each of the sorted records, by its position, as a stream that SQL reads.

POSITIONS = pa.schema([("pos", pa.int64()), ("bid", pa.int32())])
BATCH = 2**20  # rows that are handed over at a time, so that nothing of n rows is copied


def stream_positions(bids: NDArray[Any]) -> pa.RecordBatchReader:
    """Return (pos, bid) of every position, as a stream."""

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(bids), BATCH):
            part = bids[begin : begin + BATCH]
            yield pa.record_batch([np.arange(begin, begin + len(part)), part], schema=POSITIONS)

    return pa.RecordBatchReader.from_batches(POSITIONS, batches())


# Rendering ------------------------------------------------------------------------------------------------------------
# Filled trees as the SQL of an engine other than DuckDB: checked again, and written in its dialect.

TRANSLATED = frozenset({"encode", "decode", "regexp_replace"})  # how trees spell what an engine has its own words for
ALIKE = frozenset(
    {"Avg", "BitwiseAnd", "BitwiseRightShift", "BitwiseXor", "DPipe", "Length", "Lower", "Substring", "Trim"}
)  # outside the subset, and the same or made the same


@dataclass(frozen=True)
class RemoteDialect:
    """An engine's name, sqlglot's name of its dialect, its own functions and kinds, and how it writes a node.

    ``digest``, ``hashed``: 63 bits of the MD5 and 60 of the SHA-256 of texts, side by side.
    """

    name: str
    dialect: str
    allowed: frozenset[str]
    says: Callable[[exp.Expr], exp.Expr]
    collation: exp.Expr  # by which texts compare as their bytes do
    digest: Callable[[Sequence[exp.Expr]], exp.Expr]
    hashed: Callable[[Sequence[exp.Expr]], exp.Expr]

    def render_sql(self, tree: exp.Expr, place: Callable[[exp.Table], str | None]) -> str:
        """Return the SQL of a tree; ``place``: under which name a table stands there, None for its own.

        Raises ``EngineError`` for what is outside the portable subset.
        """
        foreign = foreign_nodes(tree, TRANSLATED | ALIKE | self.allowed) | unordered_windows(tree)
        if foreign:
            wrong = ", ".join(sorted(foreign))
            raise EngineError(f"{self.name} can't run what is outside the portable subset: {wrong}")
        copied = tree.copy()
        for table in list(copied.find_all(exp.Table)):
            named = place(table)
            if named is not None:
                for part in ("catalog", "db"):
                    table.set(part, None)
                table.set("this", exp.to_identifier(named, quoted=True))
        for node in reversed(list(copied.walk())):  # what is inside first
            node.replace(self._translate_node(node))
        try:
            return copied.sql(dialect=self.dialect, comments=False, unsupported_level=ErrorLevel.RAISE, copy=False)
        except UnsupportedError as error:
            raise EngineError(f"{self.name}: {error}") from error

    def _translate_node(self, node: exp.Expr) -> exp.Expr:
        match node:
            case exp.DataType(this=exp.DType.INT128):
                return exp.DataType.build("DECIMAL(38, 0)")
            case exp.Window(this=exp.DenseRank()) if not node.args.get("order"):  # all rows are alike
                node.set("order", exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1))]))
            case exp.Avg():  # of decimals it would be one
                node.set("this", exp.cast(node.this, "DOUBLE"))
            case exp.Anonymous() if node.name.lower() == "decode":  # of encoded text: without a collation of its own
                return exp.Collate(this=node.expressions[0].expressions[0], expression=self.collation.copy())
        return self.says(node)


def write_view(engine: RemoteDialect, view: ViewDefinition, schema: str) -> str:
    """Return the SELECT of a view over the tables of a schema, in an engine's SQL."""
    query = qualify_tables(view.query, schema)
    for one in query.find_all(exp.Table):
        if one.catalog:
            one.set("db", one.args["catalog"])
            one.set("catalog", None)
    return engine.render_sql(query, lambda _: None)


def temporary_name(table: exp.Table) -> str | None:
    """Return the name of a temporary relation of privsql's own, without the prefix."""
    return table.name.removeprefix(PREFIX) if "temp" in (table.catalog, table.db) else None


def call_function(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return a function of an engine's own."""
    return exp.Anonymous(this=name, expressions=list(arguments))


# Engines beside DuckDB ------------------------------------------------------------------------------------------------
# Code of ``Relations`` that all engines beside DuckDB share: names, hashes in their dialect, rows by Arrow.

_NUMBERS = itertools.count()  # of what stores relations in this process: several may share a session


class RemoteRelations(ABC):
    """Relations in another process, whose tables lie in no order."""

    engine: ClassVar[RemoteDialect]
    keeps_order = False

    def __init__(self) -> None:
        self.number = next(_NUMBERS)

    @abstractmethod
    def close(self) -> None:
        """Forget all that was made."""

    @abstractmethod
    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _describe_query(self, query: exp.Expr) -> list[Field]:
        """Return the columns of a query."""

    def list_fields(self, source: exp.Expr) -> list[Field]:
        return self._describe_query(all_rows(source) if isinstance(source, exp.Table) else source)

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        return as_tuples(self.arrow(query, values))

    def reserve_memory(self, size: int, what: str) -> None:  # noqa: B027 (it holds for all of them)
        """Do nothing: the memory is another process's."""

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        return self.engine.digest(texts)

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        return self.engine.hashed(texts)

    def _session_name(self, name: str) -> str:
        """Under which name a temporary relation stands in the session."""
        return f"privsql_{self.number}_{name}"

    def _refuse_database(self, name: str, into: str | None) -> None:
        if into is not None:
            raise EngineError(f"{self.engine.name} attaches no databases: {name!r} can't be made in {into!r}")


def as_arrow_table(data: pa.Table | pa.RecordBatchReader) -> pa.Table:
    """Return a table; a stream is read."""
    return data.read_all() if isinstance(data, pa.RecordBatchReader) else data


def as_tuples(data: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table, as Python's values."""
    return list(zip(*(column.to_pylist() for column in data.columns), strict=True))
