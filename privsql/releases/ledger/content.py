"""A fingerprint of a table of a release: the same release again has the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from privsql.engine.sqlfiles import column, table

if TYPE_CHECKING:
    from privsql.engine.database import Relations
    from privsql.mechanisms.contract import Columns

BATCH = 2**18  # rows that are read at a time; another number gives other fingerprints
LENGTH = 16  # bytes of a digest


def contents(db: Relations, tables: Columns, database: str) -> dict[str, str]:
    """By the name of every table its rows and a digest of them, in the order in which they are stored."""
    found = {}
    for name, columns in tables.items():
        stored = exp.select(*(column(key) for key, _ in columns)).from_(table(name, database))
        with db.streamed(stored, BATCH) as rows:
            found[name] = fingerprint(rows)
    return found


def fingerprint(rows: pa.RecordBatchReader) -> str:
    """The number of rows and BLAKE2b over them: of every column which are NULL, and the values of the others."""
    told, number = hashlib.blake2b(digest_size=LENGTH, person=b"privsql-content"), 0
    for batch in rows:
        number += batch.num_rows
        for values in batch.columns:
            told.update(_bytes(values.is_null()))
            told.update(_bytes(values.drop_null() if values.null_count else values))
    return f"{number}:{told.hexdigest()}"


def _bytes(values: pa.Array) -> memoryview:
    """Values as Arrow sends them, which is the same however they lie in memory."""
    return memoryview(pa.record_batch([values], names=["v"]).serialize())
