"""``Opened`` of ``privsql.engine.database``: a release of somebody else, and an analyst's own tables beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.database import FILE_KINDS
from privsql.engine.duck.connection import Connection, about, one_select
from privsql.engine.duck.container import reader
from privsql.engine.duck.relations import identifier
from privsql.engine.duck.warehouse import DuckWorkshop
from privsql.engine.sqlfiles import render, table
from privsql.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

    from privsql.engine.progress import Reporter


class DuckOpened(DuckWorkshop):
    """A release opened alone."""

    def binds(self, sql: str) -> None:
        """``UsageError`` unless the text is one SELECT that the engine itself would run."""
        self.connection.run(f"EXPLAIN {one_select(sql)}")

    def lookups(self, path: Path) -> dict[str, list[str]]:
        """Copy an analyst's tables into memory: those of a DuckDB file, or a Parquet or CSV file named by its stem."""
        if not path.is_file():
            raise EngineError(f"{path}: no such file")
        kind = FILE_KINDS.get(path.suffix.lower())
        copied = {}
        with about(path):
            if kind is None:
                self.attach(path, "attached", read_only=True)
                names = [name for sort, name, _ in self.objects("attached") if sort in ("table", "view")]
                sources = {name: f"{identifier('attached')}.main.{identifier(name)}" for name in names}
            else:
                sources = {path.stem: reader(kind, path)}
            for name, source in sources.items():
                copy = table(name, "temp")
                self.connection.run(f"CREATE TEMP TABLE {render(copy)} AS SELECT * FROM {source}")
                copied[name] = [field.name for field in self.fields(copy)]
            if kind is None:
                self.connection.run(f"DETACH {identifier('attached')}")
        return copied

    def lock(self) -> None:
        """From now on: no other file, no extension, no setting can be changed."""
        self.connection.run("SET enable_external_access = false")
        self.connection.run("SET python_enable_replacements = false")
        self.connection.run("SET lock_configuration = true")


def opened(path: Path, report: Reporter | None) -> DuckOpened:
    """A release opened read-only: a file, or a folder of Parquet files, which is read into memory."""
    if not path.exists():
        raise EngineError(f"{path}: no such release")
    inside = path.is_dir()
    with about(path):
        engine = DuckOpened(Connection(report=report, path=":memory:" if inside else str(path)))
    if inside:
        engine.load(path, None)
    return engine
