"""Open sessions of all engines; other packages use them through the protocols of ``privsql.engine.database``.

To add an engine, write a module beside ``spark.py`` and import it here inside the function that needs it.
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

__all__ = ["log_of", "translate_errors", "unique_name"]  # they are imported for other packages


def open_engine(spill: Path, options: Options) -> EngineSession:
    """Open a session of DuckDB without any data, for a command.

    Args:
        spill: The folder to which DuckDB writes what does not fit into memory.
        options: How the command runs.
    """

    def write_parquet(origin: Origin) -> list[Path]:
        with open_spark(spill, options, origin) as there:
            return there.write_parquet_files(origin)

    return DuckSession(Connection({**options.engine_settings(spill)}, options.report), write_parquet)


def open_scratch() -> EngineSession:
    """Open a session of DuckDB without any data, for small tasks that need no folder and no options."""
    return DuckSession(Connection())


class FileSink:
    """A DuckDB file that takes releases as schemas; it is created if it does not exist."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def open_for_writing(self) -> Iterator[tuple[Container, str]]:
        """Yield a session with the file attached, and the name as which it is attached.

        All changes are written to the file at the end.
        """
        with open_scratch() as db:
            db.attach(self._file, "house", read_only=False)
            yield db, "house"
            db.detach("house")


def find_open_database(caller: object, file: Path | None = None) -> ReleaseDatabase | None:
    """Return a database that a caller's connection has open, or the catalog of a caller's session of Spark.

    Args:
        caller: The connection or session.
        file: The file of the database; None for the connection's current database.

    Returns:
        The database; None if the connection does not have ``file`` open. A session of Spark has no file open.

    Raises:
        UsageError: ``caller`` is not an open connection, or the settings of its session can't be trusted.
    """
    if not is_spark_session(caller):
        return find_duck_database(caller, file)
    return _load_spark("spark_release").find_catalog(caller) if file is None else None


def find_folder(address: str, session: object | None) -> ReleaseDatabase:
    """Return the database (``ReleaseDatabase``) that holds one release in a folder of Parquet files, read by Spark.

    Args:
        address: The address of the folder.
        session: A session of Spark; None starts one on this machine.
    """
    folder: ReleaseDatabase = _load_spark("spark_release").find_catalog(session, address)
    return folder


def find_server_database(address: str, label: str) -> ReleaseDatabase:
    """Return a database on a Postgres server, which takes releases as schemas.

    Args:
        address: The address, which may hold a password.
        label: What messages call the database.

    Raises:
        EngineError: The extra ``privsql[postgres]`` is not installed.
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
    """Yield a session for files that other people made; it can read nothing else.

    Args:
        attached: Database files by the name as which they are attached, read-only. None stands for an empty database in
            memory.
        readable: Further files that queries may read.
        home: The attached database that is meant by table names without a database.
        options: How the command runs.

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
    """Yield a session of Spark that can read a source.

    It is the session of the source's DataFrame, else that of the options. Otherwise it is a new one, at the source's
    address or on this machine.

    Args:
        spill: A folder for stored tables. It is used if the session's workers see the files of this machine.
        options: How the command runs.
        origin: The source; None for no source.

    Raises:
        EngineError: pyspark or Java is missing.
        UsageError: The session's settings can't be trusted.
    """
    session = options.session if origin is None or origin.data is None else origin.data.sparkSession
    address = None if origin is None or session is not None else origin.address
    with _load_spark().open_warehouse(spill, options, session, address) as warehouse:
        yield warehouse


def list_tables(path: Path) -> list[str]:
    """Return the tables and views of a DuckDB or SQLite file, by the names that ``source.table`` takes.

    Raises:
        EngineError: The file is neither.
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
    """Yield a session of Spark that reads the tables of a release from Parquet files.

    Args:
        session: The caller's session.
        tables: The Parquet files of each table, by the table's name.

    Raises:
        EngineError: pyspark is missing.
        UsageError: The session's settings can't be trusted.
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
    """Return whether the first bytes of a file are those of a DuckDB database."""
    return sniff_kind(path) == "duckdb"
