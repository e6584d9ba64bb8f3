"""Describe where records lie: databases, files, servers or tables in Python, and their addresses."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from privsql.engine import files
from privsql.engine.database import FRAME, HERE, SERVERS, SPARK, TRAITS, EngineTraits, Origin, ReleaseDatabase, Scan
from privsql.engine.files import fold_name, temporary_folder
from privsql.errors import HIDDEN, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa


# CSV files ------------------------------------------------------------------------------------------------------------
# The format of a CSV file, in DuckDB's terms.

SAME = {"utf8": "utf-8", "utf16": "utf-16", "latin1": "latin-1", "iso-8859-1": "latin-1", "iso8859-1": "latin-1"}


class Csv(BaseModel):
    """Options of a CSV file, in place of what DuckDB would guess. None of them skips lines that can't be read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoding: str | None = Field(default=None, description="utf-8, utf-16 or latin-1. [default: utf-8]")
    delimiter: str | None = Field(default=None, min_length=1, max_length=4, description="Separator of columns.")
    quote: str | None = Field(default=None, max_length=1, description="Quote around values; empty: none.")
    escape: str | None = Field(default=None, max_length=1, description="Escape before a quote in a value.")
    header: bool | None = Field(default=None, description="Whether the first line names the columns.")
    names: tuple[str, ...] | None = Field(default=None, description="Names of the columns, in their order.")
    skip: int | None = Field(default=None, ge=0, description="Lines to skip before the header.")
    comment: str | None = Field(default=None, max_length=1, description="Beginning of a comment line.")
    nullstr: tuple[str, ...] | None = Field(default=None, description="Texts that mean NULL. [default: the empty text]")
    allow_quoted_nulls: bool | None = Field(default=None, description="Whether these mean NULL in quotes, too.")
    null_padding: bool | None = Field(default=None, description="Whether missing columns of a line become NULL.")
    decimal_separator: Literal[".", ","] | None = Field(default=None, description="Decimal separator of numbers.")
    thousands: str | None = Field(default=None, min_length=1, max_length=1, description="Separator of thousands.")
    dateformat: str | None = Field(default=None, description="Format as of strftime: %d.%m.%Y.")
    timestampformat: str | None = Field(default=None, description="Format as of strftime.")
    types: dict[str, str] | None = Field(default=None, description="Types of columns by DuckDB's names.")
    all_varchar: bool | None = Field(default=None, description="Whether every column is text.")
    sample_size: int | None = Field(default=None, ge=-1, description="Lines from which types are guessed; -1: all.")
    max_line_size: int | None = Field(default=None, gt=0, description="Longest line in bytes. [default: 2000000]")
    compression: Literal["none", "gzip", "zstd"] | None = Field(default=None, description="[default: by the ending]")

    @field_validator("encoding")
    @classmethod
    def _normalize_encoding(cls, value: str | None) -> str | None:
        return SAME.get(value.lower(), value.lower()) if value is not None else None

    @field_validator("nullstr", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("types")
    @classmethod
    def _require_known_types(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError

        for name, kind in (value or {}).items():
            try:
                sqlglot.parse_one(kind, into=exp.DataType, dialect="duckdb")
            except SqlglotError as error:
                raise ValueError(f"{name}: {kind!r} is no type") from error
        return value


# Frames ---------------------------------------------------------------------------------------------------------------
# A table in Python as a source: of pandas, Polars, DuckDB, Arrow, or any library with Arrow streams
# (``__arrow_c_stream__``), which lies in memory; or of pyspark, which stays in its session.
#
# Its columns are converted to Arrow, so that the same rows give the same release. Missing values of pandas (None, NaN,
# NaT, NA) become NULL; NaN in any other table is a number. Categories become their labels, and points in time
# microseconds where nothing is lost. The table is read once, when it is handed over; later changes have no effect.
# A stream is read batch by batch. A long stream is kept in a private file whose name is removed at once, so that the
# system deletes the file when the process ends.
#
# The types of some columns follow from their values. They are also kept as they came, and a release that spends a
# privacy budget reads them by ``Frame.by_value``.

HELD = 2**28  # bytes of a stream beyond which it is written to a file
UNTYPED = ("object", "category")  # types of pandas whose values are of any type
READ = ("arrow.uuid", "arrow.json")  # extensions of Arrow that the engine knows
STREAM, ARRAY = "__arrow_c_stream__", "__arrow_c_array__"


@dataclass(frozen=True, eq=False)
class Frame:
    """A table that a caller of Python handed over.

    Attributes:
        table: The rows, as a table of Arrow, or as a DataFrame of pyspark whose rows are not fetched.
        left_out: Why a column can't be read, by the column's name.
        remarks: Warnings as (column, text); the column is None if the warning is about the whole table.
        index: The names of the index of a pandas DataFrame. They are not columns of the table.
        given: Columns that have no single type, such as "object" in pandas, as the caller gave them.
        texts: The names, in lower case, of columns that are held as texts although their values may have other
            types. The specification says which types these are.
    """

    table: Any = field(repr=False)
    left_out: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[tuple[str | None, str], ...] = ()
    index: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)
    texts: frozenset[str] = frozenset()
    _read: dict[str | None, Frame] = field(default_factory=dict, repr=False)  # results of ``by_value``

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame) or self.in_spark or other.in_spark:
            return isinstance(other, Frame) and self.table is other.table
        return bool(self.table.equals(other.table))

    def __hash__(self) -> int:
        return hash(tuple(self.column_names))

    @property
    def in_spark(self) -> bool:
        """Return whether the rows lie in a session of Spark."""
        return is_of_spark(self.table)

    @property
    def column_names(self) -> list[str]:
        """Return the names of the table's columns."""
        return list(self.table.columns if self.in_spark else self.table.column_names)

    def list_remarks(self, names: Iterable[str], *, queried: bool) -> list[str]:
        """Return the warnings about the table and some of its columns.

        Args:
            names: The columns that the specification names.
            queried: Whether a query reads the table. It may read any column, so warnings about all are returned.
        """
        wanted = set(map(fold_name, names))
        remarks = [text for name, text in self.remarks if queried or name is None or fold_name(name) in wanted]
        return [*remarks, *(f"column {name!r} {why}; it is left out" for name, why in self.left_out.items())]

    def by_value(self, items: str | None) -> Frame:
        """Return the table as a release that spends a privacy budget must read it.

        The type of a column may then not depend on its values, since a single record could change it. Columns without
        a single type become texts.

        Args:
            items: The column that holds lists of items; None if there is none.
        """
        if self.in_spark:
            return self
        if items in self._read:
            return self._read[items]
        import pyarrow as pa

        from privsql.engine.values import fit_column
        from privsql.source.untyped import read_decimals, read_untyped

        lists = {fold_name(items)} if items is not None else set()
        found = {name: fit_column(self.table[name]) for name in self.column_names if name not in self.given}
        texts = set()
        for name, values in self.given.items():
            if isinstance(values, tuple):  # a column of Postgres, with the type of its numbers
                found[name] = read_decimals(*values)
            else:
                found[name] = read_untyped(values, as_lists=fold_name(name) in lists)
                texts |= {fold_name(name)} - lists
        left_out = {name: why for name, why in self.left_out.items() if name not in self.given}
        remarks = tuple(one for one in self.remarks if one[0] is None)  # warnings about values of a column are dropped
        self._read[items] = Frame(pa.table(found), left_out, remarks, self.index, texts=frozenset(texts))
        return self._read[items]

    def refuse_unreadable(self, names: Iterable[str], *, queried: bool) -> None:
        """Check that none of the columns ``names`` was left out because it can't be read.

        Args:
            names: The columns.
            queried: Whether these are columns of a query over the table, and not of the table itself.

        Raises:
            UsageError: A column can't be read, or is the index of pandas in a table without a query.
        """
        index = dict.fromkeys(self.index, "is of the index, which is no column; df.reset_index() makes it one")
        wrong = {fold_name(name): why for name, why in (({} if queried else index) | dict(self.left_out)).items()}
        present = set(map(fold_name, self.column_names))
        for name in names:
            if fold_name(name) in wrong.keys() - present:
                raise UsageError(f"column {name!r} {wrong[fold_name(name)]}")


def is_table(value: object) -> bool:
    """Return whether a value is a table: it offers an Arrow stream, or belongs to a known library of tables."""
    if isinstance(value, type | Frame):
        return isinstance(value, Frame)
    home = type(value).__module__.partition(".")[0]
    return hasattr(value, STREAM) or hasattr(value, ARRAY) or home in ("pandas", "polars", "pyarrow", "duckdb")


def is_of_spark(value: object) -> bool:
    """Return whether a value is a DataFrame of pyspark.

    It also offers an Arrow stream, which would fetch all of its rows into this process.
    """
    return type(value).__module__.startswith("pyspark.sql.") and type(value).__name__ == "DataFrame"


def as_frame(value: Any, *, discreet: bool = False) -> Frame:
    """Return a table that a caller gives, in the form in which privsql reads it.

    Args:
        value: The table.
        discreet: Whether the release spends a privacy budget. The table may then be empty, and no message quotes an
            error of its library, because the error may show a value.

    Raises:
        UsageError: The value is not a table, or two column names are the same to SQL.
    """
    if isinstance(value, Frame):
        return value
    pandas = sys.modules.get("pandas")
    if isinstance(value, type):
        raise UsageError(f"{value.__name__} is a class, not a table")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return _frame_from_pandas(value)
    kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
    if pandas is not None and isinstance(value, pandas.Series):
        raise UsageError("a pandas Series is one column; give a DataFrame, such as series.to_frame()")
    if kind == "polars.LazyFrame":
        raise UsageError("a polars LazyFrame has no rows yet; call .collect()")
    if kind == "pyspark.DataFrame":
        if not is_of_spark(value):
            raise UsageError("a DataFrame of pyspark.pandas would come to the driver; give its .to_spark()")
        if value.isStreaming:
            raise UsageError("a streaming DataFrame of Spark has no end; write it to a table, and publish that")
        _require_distinct_names(value.columns)
        return Frame(value)
    if not (hasattr(value, STREAM) or hasattr(value, ARRAY)):
        raise UsageError(f"{kind} is not a table; give a DataFrame, or anything with {STREAM}")
    return _frame_from_arrow(value, kind, discreet=discreet)


def _frame_from_arrow(value: Any, kind: str, *, discreet: bool) -> Frame:
    import pyarrow as pa

    from privsql.engine.open import translate_errors
    from privsql.engine.values import numeric_digits

    try:
        with translate_errors():  # if the table is a lazy query, it runs here
            table = _read_stream(value) if hasattr(value, STREAM) else pa.Table.from_batches([pa.record_batch(value)])
    except Exception as error:  # the library of the table may raise any error
        why = HIDDEN if discreet else str(error).partition(" Detail: ")[0]  # without the traceback
        raise UsageError(f"{kind} can't be read as a table: {why}") from error
    _require_distinct_names(table.column_names)
    if not table.num_rows and isinstance(value, pa.RecordBatchReader) and not discreet:
        raise UsageError(
            "the stream has no rows, or was read before; a stream can be read once, so pass its read_all()"
        )
    columns: list[Any] = []
    given: dict[str, Any] = {}
    for one, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_null(one.type):
            given[one.name] = column
        elif _is_numeric(one.type) and (digits := numeric_digits(one)) is not None:  # ADBC returns numeric as texts
            kind = pa.decimal128(*digits)
            given[one.name] = (column, kind)
            with suppress(pa.ArrowInvalid):  # fails for NaN
                column = column.cast(pa.string()).cast(kind)
        columns.append(column)
    return _make_frame(table.column_names, columns, {}, [], given)


def _read_stream(value: Any) -> pa.Table:
    """Return the rows of an Arrow stream.

    Once they take more than 256 MiB (``HELD``), they are written to a file that is mapped into memory.
    """
    import pyarrow as pa

    if isinstance(value, pa.Table) or type(value).__module__.startswith("polars."):  # in memory already
        return pa.table(value)
    # A table of Ibis; its Arrow stream would be in memory as a whole.
    batched = getattr(value, "to_pyarrow_batches", None)
    reader = pa.RecordBatchReader.from_stream(value) if batched is None else batched()
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        held.append(batch)
        size += batch.nbytes
        if size > HELD and os.name == "posix":
            break
    else:
        return pa.Table.from_batches(held, reader.schema)
    with temporary_folder() as folder:  # the file loses its name at the end
        path = str(folder / "rows.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, reader.schema) as writer:
            for batch in chain(held, reader):
                writer.write_batch(batch)
        return pa.ipc.open_stream(pa.memory_map(path)).read_all()


def _is_numeric(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is the one by which Postgres's driver ADBC describes the type ``numeric``."""
    return getattr(kind, "extension_name", "") == "arrow.opaque" and kind.type_name == "numeric"


def _frame_from_pandas(df: pd.DataFrame) -> Frame:
    import pandas as pd
    import pyarrow as pa

    names = list(df.columns)
    _require_distinct_names(names)
    columns: list[Any] = []
    given: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    remarks: list[tuple[str | None, str]] = []
    index = [str(name) for name in df.index.names if name is not None]
    if index or df.index.nlevels > 1 or df.index.dtype.kind not in "iu":  # the index holds data
        in_brackets = f" ({', '.join(index)})" if index else ""
        text = f"the index{in_brackets} is no column and is left out; df.reset_index() makes it one"
        remarks.append((None, text))
    for at, name in enumerate(names):
        series = df.iloc[:, at].copy(deep=True)  # otherwise the caller's later changes would show
        kind = series.dtype
        if isinstance(kind, pd.CategoricalDtype) and isinstance(kind.categories.dtype, pd.IntervalDtype):
            series = series.cat.rename_categories(kind.categories.astype(str).tolist())  # Arrow has no intervals
        if str(series.dtype) in UNTYPED:
            given[name] = series
        try:
            columns.append(pa.Array.from_pandas(series))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            why = str(error).splitlines()[0]
            left_out[name] = (
                f"can't be read ({series.dtype}): {why}; make it one type, such as df[{name!r}].astype(str)"
            )
            continue
        has_gaps = str(series.dtype) in ("float64", "float32") and series.hasnans
        if has_gaps and len(present := series.dropna()) and (present % 1 == 0).all():
            whole = f"pandas holds whole numbers as {series.dtype} where some are missing, and so they are published"
            remarks.append((name, f"column {name!r}: {whole}; df.convert_dtypes() keeps them whole"))
    frame = _make_frame([name for name in names if name not in left_out], columns, left_out, remarks, given)
    return replace(frame, index=tuple(name for name in df.index.names if isinstance(name, str)))


def _require_distinct_names(names: Sequence[Any]) -> None:
    """Check that every column has a text as its name, and that no two names are the same to SQL.

    Raises:
        UsageError: The check fails.
    """
    by_name: dict[str, str] = {}
    for name in names:
        if isinstance(name, tuple):
            raise UsageError(f"column {name!r} has a name with several levels; join them, for example with '_'.join")
        if not isinstance(name, str) or not name:
            raise UsageError(f"column {name!r} has a name that is not text; use df.columns = df.columns.astype(str)")
        other = by_name.setdefault(fold_name(name), name)
        if other != name:
            raise UsageError(f"columns {other!r} and {name!r} differ only in case, and SQL ignores case")
    if len(by_name) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise UsageError(f"column {twice!r} appears twice in the table; rename one")
    if not names:
        raise UsageError("the table has no columns")


def _make_frame(
    names: Sequence[str],
    columns: Sequence[Any],
    left_out: dict[str, str],
    remarks: Sequence[tuple[str | None, str]],
    given: Mapping[str, Any],
) -> Frame:
    import pyarrow as pa

    readable: dict[str, Any] = {}
    for name, one in zip(names, columns, strict=True):
        try:
            column = _normalize_column(one)
        except pa.ArrowException:  # Arrow can't decode every dictionary
            column = one
        if _is_readable(column.type):
            readable[name] = column
        else:
            left_out[name] = f"has the type {column.type} of Arrow, which can't be read"
            if _is_numeric(column.type):
                left_out[name] = "is numeric without digits, or holds NaN; cast it in the query, as in x::numeric(9, 2)"
    return Frame(pa.table(readable), left_out, tuple(remarks), given=given)


def _normalize_column(column: Any) -> Any:
    """Convert an Arrow column whose type the engines lack; any other column is returned as it is.

    Floats of 16 bits get 32 bits. Times become microseconds if nothing is lost. A column of NULL alone becomes text,
    and a dictionary of other values than texts is decoded. A dictionary of texts stays, since the engine reads it.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_dictionary(kind):
        inner = kind.value_type
        is_text = pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)
        column = column if is_text else column.cast(inner)
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    with suppress(pa.ArrowInvalid):  # times between two microseconds stay as they are
        if pa.types.is_time(kind):
            return column.cast(pa.time64("us"))
        if pa.types.is_timestamp(kind):
            return column.cast(pa.timestamp("us", "UTC" if kind.tz else None))
    return column


def _is_readable(kind: pa.DataType) -> bool:
    """Return whether DuckDB can read columns of an Arrow type."""
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return all(_is_readable(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_decimal(kind):
        return bool(kind.bit_width <= 128)
    if pa.types.is_dictionary(kind):
        return _is_readable(kind.value_type)
    return not isinstance(kind, pa.BaseExtensionType) or kind.extension_name in READ


# Sources --------------------------------------------------------------------------------------------------------------
# Where a publisher's records lie: in a database file, in Parquet or CSV, in Spark, in a server, or in Python.

ENDINGS = f"{', '.join(files.FILE_KINDS)}, .csv.gz or .csv.zst"
WHEREVER = ("id", "person", "persons", "order", "population", "query")  # keys that any kind of source may have


class SpecPart(BaseModel):
    """A section of a specification."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _opened: ReleaseDatabase | None = PrivateAttr(default=None)

    @property
    def opened(self) -> ReleaseDatabase | None:
        """Return the database that this section names, if the caller has given an open connection; None otherwise."""
        return self._opened

    def with_open_database(self, opened: ReleaseDatabase | None) -> Self:
        """Return the section with a database that a caller has open; None makes a section without one."""
        copy = self.model_copy()
        copy._opened = opened
        return copy


def optional_key(description: str, **more: Any) -> Any:
    """Return pydantic's field for an optional key of a specification; ``more`` are further arguments of ``Field``."""
    return Field(default=None, description=description, **more)


class Relation(SpecPart):
    """A table, a view or a query in an engine other than DuckDB."""

    table: str | None = optional_key("Table or view.")
    query: str | None = optional_key("Query in that engine's SQL, in place of a table.")

    @model_validator(mode="after")
    def _require_one(self) -> Relation:
        if (self.table is None) == (self.query is None):
            raise ValueError("give either table or query")
        return self


class Spark(Relation):
    """A table, view or query of Spark."""

    remote: str | None = optional_key("Address of Spark Connect. [default: Spark on this machine]")


class ServerRelation(Relation):
    """A table, view or query on a database server, or in a DuckLake catalogue."""

    uri: SecretStr = Field(description="Address, such as postgresql://user@host/database; never written anywhere.")


class Source(SpecPart):
    """The section ``[source]``: where the records lie and how they are read.

    They are in a table, view or query of a DuckDB or SQLite file, in Parquet or CSV files, in another engine, or in
    Python. A ``query`` over files or a Python table calls these ``source``.
    """

    database: Path | None = optional_key("A DuckDB or SQLite file.")
    file: str | tuple[str, ...] | None = optional_key(
        "A Parquet or CSV file, a list of them, a pattern (data/*.parquet), a folder, or an address (s3://.., https://..)."
    )
    spark: Spark | None = optional_key("A table of Spark, in place of a file.")
    postgres: ServerRelation | None = optional_key("A table of a Postgres server, in place of a file.")
    mysql: ServerRelation | None = optional_key("A table of a MySQL server, by DuckDB's extension mysql.")
    ducklake: ServerRelation | None = optional_key("A table of a DuckLake, by DuckDB's extension ducklake.")
    frame: SkipJsonSchema[Annotated[InstanceOf[Frame], BeforeValidator(as_frame)] | None] = optional_key(
        "A table in Python, in place of a file.", exclude=True, repr=False
    )
    reader: Literal["parquet", "csv", "delta", "iceberg"] | None = optional_key(
        "File format of the source. [default: by the ending]"
    )
    options: Csv | None = optional_key("Options of a CSV file: { encoding = 'latin-1' }.")
    union_by_name: bool = Field(
        default=False, description="Allow files with different columns; missing columns become NULL."
    )
    hive_partitioning: bool = Field(
        default=False, description="Read folders named column=value as columns of the files in them."
    )
    engine: Literal["duckdb", "spark"] = Field(
        default="duckdb", description="Engine that reads a Parquet file (duckdb) or also a folder of them (spark)."
    )
    table: str | None = optional_key("Table or view of a database file.")
    query: str | None = optional_key("A SELECT over the source, in place of a table.")
    id: str | None = optional_key("Column with a unique record id, for the ledger.")
    person: str | None = optional_key("Column of persons, who may have several records.")
    persons: Literal["refuse", "one", "first", "some", "count"] | None = optional_key(
        "Persons with several records: refuse them, publish one record of each, the first by order, or some (at most "
        "max_records), or count all (bounds then hold per record). [default: refuse]"
    )
    order: str | None = optional_key(
        "With persons = 'first': the column whose smallest value chooses; neither sensitive nor derived from that."
    )
    population: str | None = optional_key(
        "Whom the table is about: the same population is the same people to the ledger. [default: folder and file "
        "without dates and endings, or catalog.schema.table]",
        min_length=1,
    )

    @property
    def chooses_records(self) -> bool:
        """Return whether only some of each person's records are published."""
        return self.persons in ("one", "first", "some")

    @field_validator("file", mode="before")
    @classmethod
    def _paths_as_texts(cls, value: Any) -> Any:
        """Return the files as texts, where a caller may have given ``Path`` objects."""
        listed = value if isinstance(value, list | tuple) else (value,)
        texts = tuple(os.fspath(one) if isinstance(one, Path) else one for one in listed)
        if value is not None and not (texts and all(isinstance(one, str) and one for one in texts)):
            raise ValueError("must be a path, a pattern or an address, or a list of them")
        return texts if isinstance(value, list | tuple) else texts[0]

    @model_validator(mode="after")
    def _require_one_source(self) -> Source:
        if self.persons is not None and self.person is None:
            raise ValueError("persons needs person, the column that names them")
        if self.persons == "first" and self.order is None:
            raise ValueError("persons = 'first' needs order, the column whose smallest value chooses, such as a date")
        if self.order is not None and self.persons != "first":
            raise ValueError("order chooses a record of each person; say persons = 'first', or leave it out")
        if self.frame is not None:
            others = {name for name in self.model_fields_set if getattr(self, name)} - {"frame", *WHEREVER}
            if others - ({"engine"} if self.engine == HERE else set()):
                raise ValueError(f"a Python table can't be combined with {', '.join(sorted(others))}")
            return self
        external = [one for one in (self.spark, self.postgres, self.mysql, self.ducklake) if one is not None]
        if (self.database is not None) + (self.file is not None) + len(external) != 1:
            raise ValueError(
                "give either database (a DuckDB or SQLite file) or file (Parquet or CSV), or one of spark, postgres, "
                "mysql and ducklake"
            )
        reading = self.options or self.union_by_name or self.hive_partitioning
        if self.file is None and (self.reader or reading):
            raise ValueError("reader, options, union_by_name and hive_partitioning say how file is read")
        if external:
            if self.table or self.query or self.engine != HERE:
                raise ValueError(f"{self.kind} has its own table and query, and no engine")
        elif self.engine != HERE:
            parquet = len(self.files) == 1 and files.kind_of(self.files[0]) == "parquet"
            if not parquet or reading or self.reader not in (None, "parquet"):
                raise ValueError(f"engine = {self.engine!r} reads a Parquet file or a folder of them")
        elif self.database is not None and (self.table is None) == (self.query is None):
            raise ValueError("a database needs either table or query")
        elif self.files:
            self._require_one_kind()
            if self.table:
                raise ValueError("table is for databases; a file is one table")
        return self

    def _require_one_kind(self) -> None:
        """Check that all files are of one kind and that the other keys fit that kind.

        Raises:
            ValueError: The check fails.
        """
        for name in self.files:
            label = files.redact_secrets(name)
            start = files.url_scheme(name)
            if start and start not in files.REMOTE:
                what = f"{start}:// is no address of files ({', '.join(files.REMOTE)})"
                raise ValueError(f"{label}: {what}; 'privsql init' writes a specification of a server")
            if self.reader is None and files.kind_of(name) is None:
                why = f"the ending must be one of {ENDINGS}; or say source.reader = 'csv' or 'parquet'"
                if Path(label).suffix.lower() in files.DATABASES:
                    why = "is a database by its ending; give database = .., with a table"
                raise ValueError(f"{Path(label).name}: {why}")
        kinds = dict.fromkeys(self.reader or files.kind_of(name) for name in self.files)
        if len(kinds) > 1:
            raise ValueError(f"files of one source are of one kind, not {' and '.join(map(str, kinds))}")
        if self.options is not None and self.kind != "csv":
            raise ValueError("options are for CSV files, and these are not; if they are, set source.reader = 'csv'")
        several = len(self.files) > 1 or self.union_by_name or self.hive_partitioning
        if self.reader in ("delta", "iceberg") and several:
            raise ValueError(f"a {self.reader} table is one folder or address; name that, not its files")

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files as the specification writes them: names, patterns, folders or addresses."""
        return (self.file,) if isinstance(self.file, str) else self.file or ()

    @property
    def path(self) -> Path:
        """Return the only local file or folder with the records; an empty path if there is no such one."""
        if self.database is not None:
            return self.database
        alone = len(self.files) == 1 and not files.url_scheme(self.files[0])
        return Path(self.files[0]) if alone else Path()

    @property
    def kind(self) -> str:
        """Return what holds the records: "duckdb" for a database file, "parquet", "csv", "frame", or another engine."""
        if self.spark is not None or self.engine != HERE or (self.frame is not None and self.frame.in_spark):
            return SPARK
        for kind in (*SERVERS, FRAME):
            if getattr(self, kind) is not None:
                return kind
        return HERE if self.database is not None else self.reader or files.kind_of(self.files[0]) or "csv"

    @property
    def traits(self) -> EngineTraits:
        """Return what is known of the engine that holds the source, such as its SQL dialect."""
        return TRAITS.get(self.kind, EngineTraits())

    @property
    def relation(self) -> str | None:
        """Return the name of the table or view that holds the records; None for queries, files and Python tables."""
        return (self.external_relation or self).table

    @property
    def default_name(self) -> str:
        """Return the name that a release of this source has by default: that of the table or file."""
        if self.relation:
            return self.relation.split(".")[-1].strip('"`')
        if self.frame is not None:
            return self.population if self.population and self.population.isidentifier() else "data"
        return files.default_release_name(self.files[0]) if self.files else self.path.stem or "release"

    @property
    def external_relation(self) -> Spark | ServerRelation | None:
        """Return the table or query in another engine; None if the source lies in a file or in Python."""
        return self.spark or self.postgres or self.mysql or self.ducklake

    @property
    def origin(self) -> Origin:
        """Return all that an engine needs to read the records, such as the file, the table or query, or an address."""
        there = self.external_relation
        if there is not None:
            address = there.uri.get_secret_value() if isinstance(there, ServerRelation) else there.remote
            return Origin(self.kind, None, there.table, there.query, address)
        if self.frame is not None:
            return Origin(self.kind, None, None, self.query, data=self.frame.table, texts=self.frame.texts)
        if self.database is not None:
            return Origin(self.kind, self.database, self.table, self.query, opened=self.opened)
        options = self.options.model_dump(exclude_none=True) if self.options is not None else {}
        scan = Scan(self.files, self.union_by_name, self.hive_partitioning, options)
        return Origin(self.kind, Path(self.files[0]), None, self.query, scan=scan)
