"""``Container`` of ``privsql.engine.database``: database files attached beside the session's own relations."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine.duck.connection import VERSION, about
from privsql.engine.duck.relations import DuckRelations, identifier, text
from privsql.engine.sqlfiles import fill, render, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from privsql.engine.roles import Field

READERS = {"parquet": "read_parquet", "csv": "read_csv"}


class DuckContainer(DuckRelations):
    """Files that the session has attached."""

    def attach(self, path: Path, name: str, *, read_only: bool) -> None:
        """Attach a database file under ``name``."""
        mode = " (READ_ONLY)" if read_only else ""
        with about(path):
            self.connection.run(f"ATTACH {text(path)} AS {identifier(name)}{mode}")

    def detach(self, name: str) -> None:
        """Write everything to an attached file and let go of it."""
        self.connection.run(f"CHECKPOINT {identifier(name)}")
        self.connection.run(f"DETACH {identifier(name)}")

    def load(self, folder: Path, into: str | None) -> None:
        """Read every Parquet file of a folder as a table, into a new in-memory database if ``into`` names one."""
        if into:
            self.connection.run(f"ATTACH ':memory:' AS {identifier(into)}")
        for file in sorted(folder.glob("*.parquet")):
            with about(file):
                target = render(table(file.stem, into))
                self.connection.run(f"CREATE TABLE {target} AS SELECT * FROM {reader('parquet', file)}")

    def define(self, name: str, columns: Sequence[Field]) -> None:
        """Create an empty table."""
        listed = ", ".join(f"{identifier(field.name)} {field.type}" for field in columns)
        self.connection.run(f"CREATE TABLE {render(table(name))} ({listed})")

    def export(self, source: exp.Table, path: Path) -> None:
        """Write a table to a Parquet file, rows in order."""
        written = f"TO {text(path)} (FORMAT parquet, COMPRESSION zstd)"
        self.connection.run(f"COPY (SELECT * FROM {render(source)}) {written}")

    def objects(self, database: str | None) -> list[tuple[str, str, str]]:
        """Everything a user has put into a database (None: the current one): (kind, name, SQL), sorted."""
        name = exp.Literal.string(database) if database else exp.Anonymous(this="current_database")
        return [(kind, name, sql) for kind, name, sql in self.rows(fill("duckdb/objects", {"database": name}))]

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is made inside is there as a whole or not at all; in one database only."""
        self.connection.run("BEGIN TRANSACTION")
        try:
            yield
        except BaseException:
            self.connection.run("ROLLBACK")
            raise
        self.connection.run("COMMIT")

    def version(self) -> str:
        """DuckDB's version."""
        return VERSION


def reader(kind: str, path: Path) -> str:
    """The call that reads exactly this file: its name is no pattern, its folders say nothing of columns."""
    literal = "".join(f"[{character}]" if character in "*?[" else character for character in str(path))
    return f"{READERS[kind]}({text(literal)}, hive_partitioning = false)"
