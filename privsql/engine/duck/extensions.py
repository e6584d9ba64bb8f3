"""What DuckDB reads by an extension: loaded where it is installed, and never installed from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.duck.relations import text
from privsql.engine.duck.remedies import missing
from privsql.engine.files import REMOTE, scheme, shown
from privsql.errors import EngineError, PrivsqlError

if TYPE_CHECKING:
    from privsql.engine.duck.connection import Connection

ATTACHED = ("mysql", "ducklake")  # kinds of origin that are attached like a database
TABLES = {"delta": "delta_scan", "iceberg": "iceberg_scan"}  # kinds of files that know which of them count


def load(connection: Connection, name: str, what: str, instead: str = "copy the rows into a Parquet file") -> None:
    """Load an extension; ``EngineError`` that says how it is installed, where it is not."""
    try:
        connection.run(f"LOAD {name}")
    except PrivsqlError as error:
        if "needs DuckDB's extension" not in str(error):
            raise EngineError(f"DuckDB's extension {name} can't be loaded: {error}") from error
        raise EngineError(missing(name, what, instead)) from None


def reach(connection: Connection, name: str) -> None:
    """Load what an address needs; nothing for a path."""
    start = scheme(name)
    if start:
        load(connection, REMOTE[start], shown(name), "copy the file to this machine")


def attach(connection: Connection, kind: str, address: str, name: str) -> None:
    """Attach a server or a catalogue, to be read. What it says of its address is told to nobody."""
    load(connection, kind, f"source.{kind}")
    given = f"ducklake:{address.removeprefix('ducklake:')}" if kind == "ducklake" else address
    options = "READ_ONLY" if kind == "ducklake" else f"TYPE {kind}, READ_ONLY"
    try:
        connection.run(f"ATTACH {text(given)} AS {name} ({options})")
    except PrivsqlError as error:
        told = str(error).replace(given, "..").replace(address, "..")
        why = told if _tells_nothing(told, address) else f"nothing answers at source.{kind}.uri"
        raise EngineError(f"{kind}: {why}") from None


def _tells_nothing(told: str, address: str) -> bool:
    """Whether no word of an address that may be a secret stands in a text."""
    words = [word for word in address.replace("@", " ").replace(":", " ").replace("=", " ").split() if len(word) > 2]
    return not any(word in told for word in words)
