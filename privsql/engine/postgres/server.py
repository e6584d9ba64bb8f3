"""A connection to a Postgres server: statements one by one, tables as Arrow, privsql's own errors of one line.

An address may hold a password. It is handed to libpq and told to nobody: of what libpq says when no connection can be
had only what the server answered is passed on.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from sqlglot import exp

from privsql.engine.postgres.dialect import POSTGRES
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

MISTAKES = (adbc_driver_manager.ProgrammingError, adbc_driver_manager.DataError)


class Server:
    """One session, with texts in UTC."""

    def __init__(self, address: str, *, read_only: bool = False) -> None:
        """``read_only``: all is read as it was at one moment, and nothing can be written."""
        try:
            self._connection = dbapi.connect(address, autocommit=True)
        except adbc_driver_manager.Error as error:
            why = str(error).partition("FATAL:")[2].strip().split("\n")[0] or "no server answers at source.postgres.uri"
            raise EngineError(f"Postgres: {why}") from None  # the text may quote the address
        self.run("SET TimeZone = 'UTC'")
        self.run("SET standard_conforming_strings = on")
        if read_only:
            self.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def close(self) -> None:
        """End the session, and with it all that is temporary."""
        with suppress(RuntimeError), translated():  # a stream that nobody has read to its end
            self._connection.close()

    def run(self, sql: str) -> None:
        """Run a statement that yields nothing."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(sql)

    def put(self, name: str, data: pa.Table, place: str) -> None:
        """Make a temporary table ``name``, written ``place`` in SQL; decimals keep their width."""
        with translated(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(name, data, mode="create", temporary=True)
            for number, kind in enumerate(data.schema.types):
                if pa.types.is_decimal(kind):
                    column = exp.to_identifier(data.column_names[number], quoted=True).sql(POSTGRES)
                    cursor.execute(f"ALTER TABLE {place} ALTER {column} TYPE numeric({kind.precision}, {kind.scale})")

    def schema(self, sql: str) -> pa.Schema:
        """What a query yields."""
        with translated(), self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(sql)

    def arrow(self, sql: str) -> pa.Table:
        """Run a query and fetch all."""
        with self.batches(sql) as found:
            return found.read_all()

    @contextmanager
    def batches(self, sql: str) -> Iterator[pa.RecordBatchReader]:
        """Run a query and fetch it piece by piece; nothing else can run here meanwhile."""
        with translated(), self._connection.cursor() as cursor:
            cursor.execute(sql)
            yield cursor.fetch_record_batch()


@contextmanager
def translated() -> Iterator[None]:
    """ADBC's errors as privsql's, one line each."""
    try:
        yield
    except MISTAKES as error:
        raise UsageError(_line(error)) from error
    except (adbc_driver_manager.Error, OSError) as error:  # of a stream that has begun it is the latter
        raise EngineError(_line(error)) from error


def _line(error: BaseException) -> str:
    """What the server says, without the statement that it says it of."""
    return "Postgres: " + str(error).split("\n\nQuery was:")[0].rpartition("ERROR:")[2].strip().splitlines()[0]
