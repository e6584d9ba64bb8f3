"""Translate queries for engines other than DuckDB, and convert the data that they exchange with privsql."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError

from privsql.engine.sqlfiles import PREFIX, foreign_nodes, qualify_tables, unordered_windows
from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from privsql.engine.database import ViewDefinition

# Arrow tables ---------------------------------------------------------------------------------------------------------
# Arrow tables between DuckDB and engines that have other types.

WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def widen_types(data: pa.Table) -> pa.Table:
    """Return an Arrow table with its columns in types that every engine has.

    Unsigned integers become wider, times get microseconds, and columns that hold only NULL become texts.

    >>> widen_types(pa.table({"a": pa.array([255], pa.uint8())})).schema.field("a").type
    DataType(int16)
    """
    columns = []
    for field, values in zip(data.schema, data.columns, strict=True):
        kind = pa.string() if pa.types.is_null(field.type) else WIDER.get(field.type, field.type)
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", kind.tz)
        try:
            columns.append(values.cast(kind.value_type if pa.types.is_dictionary(kind) else kind))
        except pa.ArrowInvalid as error:
            wrong = f"column {field.name!r} holds times between two microseconds, or beyond the years of a TIMESTAMP"
            raise EngineError(f"{wrong}; cast it in source.query, as in CAST({field.name} AS DATE)") from error
    return pa.table(columns, names=data.column_names)


# Positions ------------------------------------------------------------------------------------------------------------
# One or two numbers for each record, by its position in sorted order, as a stream that SQL reads.

POSITIONS = pa.schema([("pos", pa.int64()), ("bid", pa.int32()), ("code", pa.int32())])
BATCH = 2**20  # rows that are handed over at a time, so that not all rows are copied


def stream_positions(*numbers: NDArray[Any]) -> pa.RecordBatchReader:
    """Return a stream of rows that SQL can join to records by position, to give each record a bucket.

    The rows are (pos, bid) or (pos, bid, code), where ``pos`` counts records from 0.

    Args:
        numbers: The bucket ids of all records (records,), and optionally the codes of their sensitive values
            (records,).
    """
    schema = pa.schema(list(POSITIONS)[: 1 + len(numbers)])

    def batches() -> Iterator[pa.RecordBatch]:
        for begin in range(0, len(numbers[0]), BATCH):
            parts = [one[begin : begin + BATCH] for one in numbers]
            yield pa.record_batch([np.arange(begin, begin + len(parts[0])), *parts], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


# Rendering ------------------------------------------------------------------------------------------------------------
# Queries for engines other than DuckDB: checked again once their holes are filled, and written in the dialect.

# Functions that an engine calls by another name.
TRANSLATED = frozenset({"encode", "decode", "regexp_replace"})
ALIKE = frozenset(
    {"Avg", "BitwiseAnd", "BitwiseRightShift", "BitwiseXor", "DPipe", "Length", "Lower", "Substring", "Trim"}
)  # not portable, but the same in these engines, or translated so that it is the same


@dataclass(frozen=True)
class RemoteDialect:
    """The SQL dialect of an engine other than DuckDB.

    Attributes:
        name: The engine's name in messages.
        dialect: The dialect's name in sqlglot.
        allowed: The engine's own functions and kinds of syntax nodes that queries may use, in addition to the portable
            ones.
        collation: The collation in which texts are compared byte by byte.
    """

    name: str
    dialect: str
    allowed: frozenset[str]
    collation: exp.Expr

    def render_sql(self, tree: exp.Expr, place: Callable[[exp.Table], str | None] | None = None) -> str:
        """Return the SQL text of a query for this engine.

        Args:
            tree: The query.
            place: A function that returns the name of a table in that engine, or None if the table keeps its name.
                Without the function all tables keep their names.

        Raises:
            EngineError: The query uses SQL that is not portable between engines.
        """
        foreign = foreign_nodes(tree, TRANSLATED | ALIKE | self.allowed) | unordered_windows(tree)
        if foreign:
            wrong = ", ".join(sorted(foreign))
            raise EngineError(f"{self.name} can't run what is outside the portable subset: {wrong}")
        copied = tree.copy()
        for table in list(copied.find_all(exp.Table)):
            named = place(table) if place is not None else None
            if named is not None:
                for part in ("catalog", "db"):
                    table.set(part, None)
                table.set("this", exp.to_identifier(named, quoted=True))
        for node in reversed(list(copied.walk())):  # inner nodes first
            node.replace(self.translate_node(node))
        try:
            return copied.sql(dialect=self.dialect, comments=False, unsupported_level=ErrorLevel.RAISE, copy=False)
        except UnsupportedError as error:
            raise EngineError(f"{self.name}: {error}") from error

    def translate_node(self, node: exp.Expr) -> exp.Expr:
        """Return a part of a query's syntax tree in the form that this engine understands."""
        match node:
            case exp.DataType(this=exp.DType.INT128):
                return exp.DataType.build("DECIMAL(38, 0)")
            case exp.Window(this=exp.DenseRank()) if not node.args.get("order"):  # all rows have rank 1
                node.set("order", exp.Order(expressions=[exp.Ordered(this=exp.Literal.number(1))]))
            case exp.Avg():  # the average of decimals would be a decimal
                node.set("this", exp.cast(node.this, "DOUBLE"))
            case exp.Anonymous() if node.name.lower() == "decode":  # decoded text has no collation of its own
                return exp.Collate(this=node.expressions[0].expressions[0], expression=self.collation.copy())
        return node

    def write_view(self, view: ViewDefinition, schema: str) -> str:
        """Return the SELECT of a release's view for this engine; its tables are those of ``schema``."""
        query = qualify_tables(view.query, schema)
        for one in query.find_all(exp.Table):
            if one.catalog:
                one.set("db", one.args["catalog"])
                one.set("catalog", None)
        return self.render_sql(query)


def temporary_name(table: exp.Table) -> str | None:
    """Return the name of a table that privsql made, without privsql's prefix; None for any other table."""
    return table.name.removeprefix(PREFIX) if "temp" in (table.catalog, table.db) else None


def call_function(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Return an SQL call of an engine's own function by its name, which sqlglot writes without translating it."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def as_tuples(data: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of an Arrow table as tuples of Python values."""
    return list(zip(*(column.to_pylist() for column in data.columns), strict=True))
