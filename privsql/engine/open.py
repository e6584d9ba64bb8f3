"""Open engines: all other rooms get their sessions here, by the protocols of ``privsql.engine.database``.

A further engine is a module beside ``spark.py``, and its line here, which imports it where it is asked for.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from privsql.engine.database import Options, is_spark_session
from privsql.engine.duck.connection import Connection
from privsql.engine.duck.connection import translate_duck_errors as translate_errors
from privsql.engine.duck.container import log_of, open_locked_session, unique_name
from privsql.engine.duck.files import SQLiteFile
from privsql.engine.duck.warehouse import DuckSession
from privsql.engine.duck.warehouse import find_open_database as find_duck_database
from privsql.engine.files import explain_disguise, sniff_kind, temporary_folder
from privsql.errors import EngineError, suggest_file
from privsql.system import POSTGRES, SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from privsql.engine.database import (
        Container,
        DetachedWarehouse,
        EngineSession,
        LockedSession,
        Origin,
        Relations,
        ReleaseDatabase,
    )

__all__ = ["log_of", "translate_errors", "unique_name"]  # beside the functions of this module


def open_engine(spill: Path, options: Options) -> EngineSession:
    """Return an empty session that spills to ``spill``."""

    def write_parquet(origin: Origin) -> list[Path]:
        with open_spark(spill, options, origin) as there:
            return there.write_parquet_files(origin)

    return DuckSession(Connection({**options.engine_settings(spill)}, options.report), write_parquet)


def open_scratch() -> EngineSession:
    """Return an empty session for small things."""
    return DuckSession(Connection())


class FileSink:
    """A database file as a ``Sink``; it is made if it is missing."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def open_for_writing(self) -> Iterator[tuple[Container, str]]:
        """Yield a session to which the file is attached; it is written out at the end."""
        with open_scratch() as db:
            db.attach(self._file, "house", read_only=False)
            yield db, "house"
            db.detach("house")


def find_open_database(caller: object, file: Path | None = None) -> ReleaseDatabase | None:
    """Return the current database of a connection, or a file that it has open; None if it does not have the file open.

    A session of Spark gives its catalog, and no file.

    Raises:
        UsageError: The object is no open connection, or can't be trusted.
    """
    if not is_spark_session(caller):
        return find_duck_database(caller, file)
    return _load_spark("spark_release").find_catalog(caller) if file is None else None


def find_folder(address: str, session: object | None) -> ReleaseDatabase:
    """Return the database at the address of a folder; without a session of Spark this machine's own is started."""
    folder: ReleaseDatabase = _load_spark("spark_release").find_catalog(session, address)
    return folder


def find_server_database(address: str, label: str) -> ReleaseDatabase:
    """Return a Postgres database that takes releases as schemas; messages call it ``label``.

    Raises ``EngineError`` where the extra is missing.
    """
    try:
        from privsql.engine.postgres import PostgresDatabase
    except ImportError as error:
        raise POSTGRES.missing_error() from error
    return PostgresDatabase(address, label)


@contextmanager
def open_locked(
    attached: Mapping[str, Path | None], readable: Sequence[Path] = (), *, home: str, options: Options | None = None
) -> Iterator[LockedSession]:
    """Yield a session for files that others made.

    Args:
        attached: Database files by the names under which they are attached, read-only; None for an empty database in
            memory.
        readable: Further files that may be attached or scanned.
        home: The database of tables that name none.
        options: How the verb runs.

    Raises:
        EngineError: A file can't be read.
    """
    with (
        temporary_folder(masked=False) as spill,
        open_locked_session(attached, readable, home, spill, options or Options()) as db,
    ):
        yield db


@contextmanager
def open_spark(spill: Path, options: Options, origin: Origin | None = None) -> Iterator[DetachedWarehouse]:
    """Yield Spark for a source: the session of a DataFrame, one of the options, at an address, or on this machine.

    Args:
        spill: A folder for stored relations, used if the session's workers see the files of this machine.
        options: How the verb runs.
        origin: The source; None for no source.

    Raises:
        EngineError: pyspark or Java is missing.
        UsageError: The session can't be trusted.
    """
    session = options.session if origin is None or origin.data is None else origin.data.sparkSession
    address = None if origin is None or session is not None else origin.address
    with _load_spark().open_warehouse(spill, options, session, address) as warehouse:
        yield warehouse


def list_tables(path: Path) -> list[str]:
    """Return the tables and views of a DuckDB or SQLite file, by the names under which they are mounted.

    Raises ``EngineError`` for a file that is neither.
    """
    if not path.is_file():
        raise EngineError(f"{path}: no such file{suggest_file(path)}")
    wrong = "" if sniff_kind(path) in ("duckdb", "sqlite") else explain_disguise(path, "database", "none")
    if wrong:
        raise EngineError(f"{path}: {wrong}")
    if sniff_kind(path) == "sqlite":
        with closing(SQLiteFile(path)) as file:
            return file.list_tables()
    with open_scratch() as db:
        db.attach(path, "warehouse", read_only=True)
        return [
            name if schema == "main" else f"{schema}.{name}" for _, schema, name, _ in db.list_relations("warehouse")
        ]


@contextmanager
def open_release_tables(session: object, tables: Mapping[str, Sequence[Path]]) -> Iterator[Relations]:
    """Yield the tables of a release, by name the Parquet files of each, in a session of Spark's.

    Raises ``EngineError`` where pyspark is missing and ``UsageError`` for a session that can't be trusted.
    """
    with _load_spark("spark_release").open_spark_release(session, tables) as relations:
        yield relations


def _load_spark(name: str = "spark") -> ModuleType:
    try:
        import privsql.engine.spark_release as release
        from privsql.engine import spark
    except ImportError as error:
        raise SPARK.missing_error() from error
    return release if name == "spark_release" else spark


def is_database(path: Path) -> bool:
    """Return True for a file that begins as a database of the engine that releases are made with."""
    return sniff_kind(path) == "duckdb"
