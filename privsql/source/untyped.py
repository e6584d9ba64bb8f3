"""Read a Python table value by value, so that no value decides how others are read.

Releases that spend a privacy budget need this. A column of pandas without a single type (object, category) is treated
as text, as in a text file. Each value is then cast by itself to the type that the specification determines. Bytes, and
objects that have no text, become NULL.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa


def read_untyped(values: Any, *, as_lists: bool) -> pa.Array:
    """Return a column without a single type as texts.

    Args:
        values: The column, of pandas or Arrow.
        as_lists: Whether each value is a list of texts.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.cast(pa.string())
    import pandas as pd

    missing = values.isna().to_numpy()
    if as_lists:
        return pa.array([_read_list(one) for one in values], pa.list_(pa.string()))
    if pd.api.types.infer_dtype(values, skipna=True) in ("string", "empty"):
        with suppress(UnicodeEncodeError):
            return pa.array(values.astype(object).where(~missing, None), pa.string())
    each = zip(values, missing, strict=True)
    return pa.array([None if is_missing else _as_text(one) for one, is_missing in each], pa.string())


def read_decimals(values: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return texts as numbers of an Arrow type; a text that the type can't hold becomes NULL."""

    def read(text: str | None) -> Any:
        with suppress(pa.ArrowInvalid):
            return pa.scalar(text, pa.string()).cast(kind)
        return None

    return pa.array([read(text) for text in values.cast(pa.string()).to_pylist()], kind)


def _read_list(value: Any) -> list[str | None] | None:
    """Return the items of a list as texts; None for a value that is no list."""
    import pandas as pd

    items = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(items, list | tuple | set | frozenset):
        return None
    return [None if one is None or (pd.api.types.is_scalar(one) and pd.isna(one)) else _as_text(one) for one in items]


def _as_text(value: Any) -> str | None:
    """Return a value as the text that would stand for it in a text file; None if no text can."""
    if isinstance(value, bytes | bytearray | memoryview):
        return None
    try:
        text = str(value)
    except Exception:  # a number may be too long to print, and any object may raise an error
        return None
    text = text.lower() if type(value).__name__ in ("bool", "bool_") else text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
