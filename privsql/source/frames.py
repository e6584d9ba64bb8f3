"""A table in Python's memory as a publisher's source: of pandas, Polars, DuckDB, Arrow, or anything else with an Arrow
stream (``__arrow_c_stream__``).

Whatever it comes from, its columns are those of Arrow, so that the same rows give the same release. What is missing in
pandas (None, NaN, NaT, NA) is NULL; NaN in anything else is a number of its own. Categories are their labels, and
points in time are counted in microseconds where nothing is lost by that. The table is read once, when it is handed
over: what becomes of it later changes nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from privsql.engine.names import fold
from privsql.errors import PrivsqlError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

READ = ("arrow.uuid", "arrow.json")  # extensions of Arrow that the engine knows
STREAM, ARRAY = "__arrow_c_stream__", "__arrow_c_array__"


@dataclass(frozen=True, eq=False)
class Frame:
    """A table as it was handed over. ``left_out``: why some of its columns can't be read; ``remarks``: what else
    should be known, of a column by its name; ``index``: names that are no columns of pandas'.
    """

    table: pa.Table = field(repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[tuple[str | None, str], ...] = ()
    index: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and (self.table is other.table or self.table.equals(other.table))

    def __hash__(self) -> int:
        return hash(tuple(self.table.column_names))

    @property
    def known_as(self) -> str:
        """What a table is called that nobody names: its columns."""
        return ",".join(sorted(self.table.column_names))

    def said(self, names: Iterable[str], *, queried: bool) -> list[str]:
        """What should be known of the table where these columns are published; ``queried``: any may be meant."""
        asked = set(map(fold, names))
        return [text for name, text in self.remarks if queried or name is None or fold(name) in asked]

    def refuse(self, names: Iterable[str], *, queried: bool) -> None:
        """``UsageError`` if one of these columns can't be read; ``queried``: they are those of a query."""
        index: dict[str, str] = {}
        if not queried:
            index = dict.fromkeys(self.index, "is of the index, which is no column; df.reset_index() makes it one")
        wrong = {fold(name): why for name, why in (index | dict(self.left_out)).items()}
        for name in self.table.column_names:
            wrong.pop(fold(name), None)
        for name in names:
            if fold(name) in wrong:
                raise UsageError(f"column {name!r} {wrong[fold(name)]}")


def is_table(given: object) -> bool:
    """Whether something is meant as a table: it has Arrow's interface, or is of a library of tables."""
    if isinstance(given, type | Frame):
        return isinstance(given, Frame)
    home = type(given).__module__.partition(".")[0]
    return hasattr(given, STREAM) or hasattr(given, ARRAY) or home in ("pandas", "polars", "pyarrow", "duckdb")


def frame(given: object) -> Frame:
    """The table, read; ``UsageError`` for what is no table, or has columns without names that SQL could tell apart."""
    if isinstance(given, Frame):
        return given
    pandas = sys.modules.get("pandas")
    if isinstance(given, type):
        raise UsageError(f"{given.__name__} is a class of tables, and no table")
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return _of_pandas(given)
    kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    if pandas is not None and isinstance(given, pandas.Series):
        raise UsageError("a pandas Series is one column; give a DataFrame, such as series.to_frame()")
    if kind == "polars.LazyFrame":
        raise UsageError("a polars LazyFrame has no rows yet; call .collect()")
    if not (hasattr(given, STREAM) or hasattr(given, ARRAY)):
        raise UsageError(f"{kind} is no table; give a DataFrame, or anything with {STREAM}")
    return _of_arrow(given, kind)


def _of_arrow(given: Any, kind: str) -> Frame:
    import pyarrow as pa  # noqa: PLC0415 (who publishes a file does not wait for it)

    from privsql.engine.open import told  # noqa: PLC0415

    try:
        with told():  # a query of the engine's is run now
            table = pa.table(given) if hasattr(given, STREAM) else pa.Table.from_batches([pa.record_batch(given)])
    except (PrivsqlError, pa.ArrowException, OSError, TypeError, ValueError) as error:
        why = str(error).partition(" Detail: ")[0]  # of what a stream's maker did, its traceback
        raise UsageError(f"{kind} can't be read as a table: {why}") from error
    _distinct(table.column_names)
    if not table.num_rows and isinstance(given, pa.RecordBatchReader):
        raise UsageError("the stream has no rows, or was read before: one can be read once; keep its read_all()")
    return _frame(table.column_names, table.columns, {}, [])


def _of_pandas(given: pd.DataFrame) -> Frame:
    import pyarrow as pa  # noqa: PLC0415

    names = list(given.columns)
    _distinct(names)
    columns: list[Any] = []
    left_out: dict[str, str] = {}
    remarks: list[tuple[str | None, str]] = [(None, said) for said in _index(given)]
    for at, name in enumerate(names):
        own = _labelled(given.iloc[:, at].copy(deep=True))  # Arrow would share its numbers with who changes the table
        try:
            columns.append(pa.Array.from_pandas(own))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            why = str(error).splitlines()[0]
            left_out[name] = f"can't be read ({own.dtype}): {why}; make it one type, such as df[{name!r}].astype(str)"
            continue
        if _became_floats(own):
            whole = f"pandas holds whole numbers as {own.dtype} where some are missing, and so they are published"
            remarks.append((name, f"column {name!r}: {whole}; df.convert_dtypes() keeps them whole"))
    made = _frame([name for name in names if name not in left_out], columns, left_out, remarks)
    return replace(made, index=tuple(name for name in given.index.names if isinstance(name, str)))


def _labelled(own: pd.Series[Any]) -> pd.Series[Any]:
    """A column with the labels of intervals, as ``pandas.cut`` makes them, as texts: Arrow has no such values."""
    import pandas as pd  # noqa: PLC0415

    kind = own.dtype
    if isinstance(kind, pd.CategoricalDtype) and isinstance(kind.categories.dtype, pd.IntervalDtype):
        return own.cat.rename_categories(kind.categories.astype(str).tolist())
    return own


def _index(given: pd.DataFrame) -> list[str]:
    """What is said of an index that tells something: it is no column."""
    index = given.index
    names = [str(name) for name in index.names if name is not None]
    if names or index.nlevels > 1 or index.dtype.kind not in "iu":
        shown = f" ({', '.join(names)})" if names else ""
        return [f"the index{shown} is no column and is left out; df.reset_index() makes it one"]
    return []


def _became_floats(own: pd.Series[Any]) -> bool:
    """Whether pandas made floats of whole numbers, as it does where some are missing."""
    if str(own.dtype) not in ("float64", "float32") or not own.hasnans:
        return False
    kept = own.dropna()
    return len(kept) > 0 and bool((kept % 1 == 0).all())


def _distinct(names: Sequence[Any]) -> None:
    """``UsageError`` unless every column has a name of its own, which is a text."""
    seen: dict[str, str] = {}
    for name in names:
        if isinstance(name, tuple):
            raise UsageError(f"column {name!r} has a name of several levels; join them, such as with '_'.join")
        if not isinstance(name, str) or not name:
            raise UsageError(f"column {name!r} has a name that is no text; df.columns = df.columns.astype(str)")
        other = seen.setdefault(fold(name), name)
        if other != name:
            raise UsageError(f"columns {other!r} and {name!r} differ only in case, which SQL does not tell apart")
    if len(seen) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise UsageError(f"column {twice!r} stands twice in the table; rename one")
    if not names:
        raise UsageError("the table has no columns")


def _frame(
    names: Sequence[str], columns: Sequence[Any], left_out: dict[str, str], remarks: Sequence[tuple[str | None, str]]
) -> Frame:
    import pyarrow as pa  # noqa: PLC0415

    kept: dict[str, Any] = {}
    for name, one in zip(names, columns, strict=True):
        try:
            found = _plain(one)
        except pa.ArrowException:  # a dictionary of values that Arrow does not know
            found = one
        if _is_readable(found.type):
            kept[name] = found
        else:
            left_out[name] = f"has the type {found.type} of Arrow, which can't be read"
    lost = [(None, f"column {name!r} {why}; it is left out") for name, why in left_out.items()]
    return Frame(pa.table(kept), left_out, (*remarks, *lost))


def _plain(column: Any) -> Any:
    """A column without what is Arrow's own: short floats, nanoseconds that are none, nothing but NULL.

    The engine reads the texts of a dictionary as they are; Arrow can't decode all of them.
    """
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        column = column.cast(kind.value_type)
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    exact = _to_microseconds(column.type)
    try:
        return column if exact is None else column.cast(exact)
    except pa.ArrowInvalid:  # what stands between two microseconds is kept
        return column


def _to_microseconds(kind: pa.DataType) -> pa.DataType | None:
    """The type of points in time, or of times of a day, in microseconds; None for others."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_time(kind):
        return pa.time64("us")
    return pa.timestamp("us", "UTC" if kind.tz else None) if pa.types.is_timestamp(kind) else None


def _is_text(kind: pa.DataType) -> bool:
    from pyarrow import types  # noqa: PLC0415

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_readable(kind: pa.DataType) -> bool:
    """Whether the engine knows columns of a type."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_nested(kind):
        return all(_is_readable(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_decimal(kind):
        return bool(kind.bit_width <= 128)
    if pa.types.is_dictionary(kind):
        return _is_readable(kind.value_type)
    return not isinstance(kind, pa.BaseExtensionType) or kind.extension_name in READ
