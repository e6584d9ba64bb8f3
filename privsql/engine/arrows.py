"""Arrow tables between DuckDB and engines that have other types."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}


def widened(data: pa.Table) -> pa.Table:
    """The same values: whole numbers without a sign in wider types, points in time in us, nothing as text.

    >>> widened(pa.table({"a": pa.array([255], pa.uint8())})).schema.field("a").type
    DataType(int16)
    """
    return data.cast(pa.schema([field.with_type(_wider(field.type)) for field in data.schema]))


def _wider(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.string() if pa.types.is_null(kind) else WIDER.get(kind, kind)


def plain(
    batches: pa.RecordBatchReader, rows: int, reading: Callable[[], AbstractContextManager[None]]
) -> pa.RecordBatchReader:
    """The same rows, so many at a time at most; values of types that Arrow does not know as what they are stored as.

    ``reading``: what says an engine's errors as privsql's, while rows come over.
    """
    schema = pa.schema([(field.name, _storage(field.type)) for field in batches.schema])

    def pieces() -> Iterator[pa.RecordBatch]:
        with reading():
            for batch in batches:
                columns = [one.storage if isinstance(one.type, pa.OpaqueType) else one for one in batch.columns]
                whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                yield from (whole.slice(at, rows) for at in range(0, len(whole), rows))

    return pa.RecordBatchReader.from_batches(schema, pieces())


def numbers(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | pa.Array:
    """Numbers that came as text: in the width that their type has, ``DECIMAL(9,2)``, or in what they need."""
    if not isinstance(column.type, pa.OpaqueType):
        return column
    texts = pa.chunked_array([chunk.storage for chunk in column.chunks], pa.string()).to_pylist()
    known = [None if text is None else Decimal(text) for text in texts]
    widths = [int(width) for width in re.findall(r"\d+", kind)] or ([] if any(known) else [38])
    return pa.array(known, pa.decimal128(*widths) if widths else None)


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.OpaqueType) else kind
