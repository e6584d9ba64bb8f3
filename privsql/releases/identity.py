"""What lies at the address of a release: whether anything does, and a digest that tells one release from another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from privsql.engine.names import fold
from privsql.engine.open import locked
from privsql.engine.sqlfiles import fill, table
from privsql.source.address import parted

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.engine.database import Container

MAIN = "main"  # the schema of a file that is a release
HOLDER = "holder"  # the database as which a file is attached of which a schema is meant


def exists(path: Path) -> bool:
    """Whether anything lies there; ``EngineError`` for a file that is no database."""
    file, schema = parted(path)
    if schema is None or not file.exists():
        return path.exists()
    with locked({HOLDER: file.resolve()}, home=HOLDER) as db:
        known = schema_of(db, HOLDER, schema)
        return known is not None and bool(db.objects(HOLDER, known))


def schema_of(db: Container, database: str, name: str) -> str | None:
    """The schema of an attached database that the engine takes ``name`` for; None if there is none."""
    return next((one for one in [MAIN, *db.schemas(database)] if fold(one) == fold(name)), None)


def digest(made: Path) -> str:
    """SHA-256 of a release: of its file, of the files of its folder in order, or of a schema's tables."""
    file, schema = parted(made)
    if schema is not None:
        with locked({HOLDER: file.resolve()}, home=HOLDER) as db:
            return folded(db, HOLDER, schema_of(db, HOLDER, schema) or schema)
    found = hashlib.sha256()
    for path in sorted(one for one in made.rglob("*.parquet") if one.is_file()) if made.is_dir() else [made]:
        with path.open("rb") as content:
            found.update(hashlib.file_digest(content, "sha256").digest())
    return found.hexdigest()


def folded(db: Container, database: str, schema: str) -> str:
    """SHA-256 of the tables of a schema, by their names, rows in the order in which they are stored."""
    found = hashlib.sha256()
    for name in sorted(name for kind, place, name, _ in db.listed(database) if (kind, place) == ("table", schema)):
        found.update(hashlib.sha256(name.encode()).digest())
        for (part,) in db.rows(fill("duckdb/folded", {"table": table(name, database, schema)})):
            found.update(bytes.fromhex(part))
        found.update(b"\0")
    return found.hexdigest()
