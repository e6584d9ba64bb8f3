"""Where a release lies: a file, a folder, or a schema of a database that holds other things as well.

An address is a path: ``warehouse.duckdb::released`` is schema ``released`` of that file, unless a file is called so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from privsql.engine.names import fold

if TYPE_CHECKING:
    from pathlib import Path

MARK = "::"  # between a database file and a schema
TAKEN = ("main", "temp", "pg_catalog", "information_schema")  # schemas that are every database's own


def _fitting(name: str) -> str:
    if fold(name) in TAKEN:
        raise ValueError(f"{name!r} is a schema of every database's; give one of the release's own")
    if not name.strip() or not name.isprintable() or any(part in name for part in (MARK, "/", "\\")):
        raise ValueError(f"{name!r} can't be a schema here; take letters and digits")
    return name


SchemaName = Annotated[str, AfterValidator(_fitting)]


def address(file: Path, schema: str | None) -> Path:
    """The address of a schema; the file's own path without one."""
    return file if schema is None else file.with_name(f"{file.name}{MARK}{schema}")


def parted(path: Path) -> tuple[Path, str | None]:
    """The file or folder of an address, and the schema that is meant in it.

    >>> from pathlib import Path
    >>> parted(Path("warehouse.duckdb::released"))[1]
    'released'
    """
    name, mark, schema = path.name.rpartition(MARK)
    if not (mark and name and schema) or os.path.lexists(path):
        return path, None
    return path.with_name(name), schema


def resolved(path: Path) -> Path:
    """The address without links and relative parts."""
    file, schema = parted(path)
    return address(file.resolve(), schema)
