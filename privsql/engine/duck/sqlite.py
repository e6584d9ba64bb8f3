"""A publisher's SQLite file, read by Python's own module: its rows as Arrow, in the types that its values have.

In SQLite a type belongs to a value, and a column's is a wish. So the values are asked first: a column of numbers that
holds texts is refused by its name. (A driver that tells types by the first rows fails where these are NULL.)
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine.sqlfiles import all_rows, table
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SQLITE = "sqlite"  # the dialect
BEGINNING = b"SQLite format 3\0"
ROWS = 2**16  # that come over at a time
TYPES = {
    frozenset[str](): pa.string(),
    frozenset({"integer"}): pa.int64(),
    frozenset({"real"}): pa.float64(),
    frozenset({"integer", "real"}): pa.float64(),
    frozenset({"text"}): pa.string(),
}


def is_sqlite(path: Path) -> bool:
    """Whether a file says of itself that it is a SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING
    except OSError:
        return False


class SQLiteFile:
    """One file, as it was at one moment; nothing is written to it."""

    def __init__(self, path: Path) -> None:
        """``EngineError`` where it can't be opened."""
        with _translated():
            place = f"{path.resolve().as_uri()}?mode=ro"
            self._file = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False)
            self._file.execute("BEGIN")

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def tables(self) -> list[str]:
        """Its tables and views, by name."""
        listed = exp.select("name").from_("sqlite_master").where(exp.column("type").isin("table", "view"))
        with _translated():
            names = [str(name) for (name,) in self._file.execute(listed.order_by("name").sql(SQLITE)).fetchall()]
        return [name for name in names if not name.startswith("sqlite_")]

    def whole(self, name: str) -> str:
        """The query for a table or view by its dotted name."""
        try:
            given = exp.to_table(name, dialect=SQLITE)
        except SqlglotError as error:
            raise UsageError(f"table {name!r} is not a name; quote its parts") from error
        return all_rows(table(given.name, schema=given.db)).sql(SQLITE)

    def stream(self, query: str) -> pa.RecordBatchReader:
        """The rows of a SELECT; ``UsageError`` for columns whose values are of several types, or bytes."""
        with _translated():
            found = self._file.execute(query)
            names = [column[0] for column in found.description]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(f"two columns are called {twice!r}; name them apart in source.query")
            schema = pa.schema([(name, self._type(query, name)) for name in names])
        return pa.RecordBatchReader.from_batches(schema, _batches(found, schema))

    def _type(self, query: str, name: str) -> pa.DataType:
        value = exp.func("typeof", exp.column(exp.to_identifier(name, quoted=True)))
        rows = cast("exp.Query", sqlglot.parse_one(query, dialect=SQLITE))
        asked = exp.select(value.as_("kind")).distinct().from_(rows.subquery("q")).sql(SQLITE)
        kinds = {str(kind) for (kind,) in self._file.execute(asked).fetchall()} - {"null"}
        found = TYPES.get(frozenset(kinds))
        if found is None:
            raise UsageError(
                f"column {name!r} holds values of type {' and '.join(sorted(kinds))}, which can't be published as one; "
                "cast it in source.query"
            )
        return found


def _batches(rows: sqlite3.Cursor, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while True:
        with _translated():
            some = rows.fetchmany(ROWS)
        if not some:
            return
        columns = zip(*some, strict=True)
        yield pa.RecordBatch.from_arrays(list(map(_array, columns, schema)), schema=schema)


def _array(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
        raise EngineError(f"column {field.name!r}: a value is no {field.type}: {error}") from error


@contextmanager
def _translated() -> Iterator[None]:
    """SQLite's errors as privsql's, one line each."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = EngineError if "open" in str(error) or "lock" in str(error) or "decode" in str(error) else UsageError
        raise kind(f"SQLite: {error}") from error
    except sqlite3.Error as error:
        raise EngineError(f"SQLite: {error}") from error
