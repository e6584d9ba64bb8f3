"""Clean Arrow columns for engines: a value that an engine can't read becomes NULL, or U+FFFD inside a text.

A column keeps its type. Points in time get microseconds, and categories are replaced by their labels.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

LAST_MOMENT, DAY = 9_223_372_022_399_999_999, 86_400_000_000  # microseconds
LAST_DATE = 2**31 - 2  # days
TYPMOD, MOST_DIGITS = 4, 38  # Postgres adds 4 to its precision and scale; DECIMAL has 38 digits
MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1}


def fit_rows(rows: pa.Table) -> pa.Table:
    """Return a table without the values that some engine can't read, such as times too far in the future.

    They become NULL, or U+FFFD inside a text.
    """
    return pa.table({name: fit_column(rows[name]) for name in rows.column_names})


def fit_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without the values that some engine can't read: they become NULL, or U+FFFD inside a text."""
    return pa.chunked_array([_fit(chunk) for chunk in [*column.chunks, pa.array([], column.type)]])


def numeric_digits(field: pa.Field) -> tuple[int, int] | None:
    """Return the precision and scale of a Postgres column ``numeric(p, s)``; None for any other column.

    The driver ADBC states them in the metadata of the field.
    """
    precision, scale = divmod(int((field.metadata or {}).get(b"POSTGRESQL:typmod", -1)) - TYPMOD, 2**16)
    return (precision, scale) if scale <= precision <= MOST_DIGITS else None


def decode_text(value: bytes | None) -> str | None:
    """Return bytes as text, with U+FFFD in place of bytes that are not UTF-8; None stays None."""
    return None if value is None else value.decode(errors="replace")


def _fit(values: Any) -> Any:
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _fit(values.dictionary_decode())
    if pa.types.is_timestamp(kind):
        moments = values if kind.unit == "ns" else _keep(values, LAST_MOMENT // MICROSECONDS[kind.unit])
        return moments.cast(pa.timestamp("us", kind.tz), safe=False)
    if pa.types.is_time(kind):
        return _keep(values.cast(pa.time64("us"), safe=False), DAY, least=0)
    if pa.types.is_date64(kind):
        return _keep(values, LAST_DATE * (DAY // 1000)).cast(pa.date32(), safe=False)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    inner = kind.value_type if is_list else kind
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        if pa.types.is_decimal(inner) and not is_list:
            each = [values[i].as_py() for i in range(len(values))]
            return pa.array(
                [one if one is None or len(one.as_tuple().digits) <= kind.precision else None for one in each], kind
            )
        if pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner):
            stored = pa.binary_view() if pa.types.is_string_view(inner) else pa.large_binary()
            each = values.cast(pa.large_list(stored) if is_list else stored).to_pylist()
            decoded = (
                [None if one is None else [*map(decode_text, one)] for one in each]
                if is_list
                else map(decode_text, each)
            )
            return pa.array(list(decoded), kind)
    return values


def _keep(values: Any, most: int, *, least: int | None = None) -> Any:
    """Return dates or times, with NULL in place of those that engines can't hold.

    Args:
        values: The column, in any unit.
        most: The latest value that engines can hold, in that unit.
        least: The earliest such value; None for ``-most``.
    """
    import pyarrow.compute as pc

    numbers = values.cast(pa.int64())
    within = pc.and_(pc.less_equal(numbers, most), pc.greater_equal(numbers, -most if least is None else least))
    return pc.if_else(within, numbers, pa.scalar(None, pa.int64())).cast(values.type)
