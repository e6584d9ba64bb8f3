"""Checks that the files of a release hold nothing beside its tables: no free blocks, deleted rows or other metadata.

Who makes a file by hand can put bytes where no reader looks: into the unused end of a block, into a packed page. These
checks do not find them; a copy that is written from the tables alone has none. A schema of a database is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine import parquet, sqlfiles
from privsql.engine.sqlfiles import fill, table
from privsql.model.checks import Check, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.engine.database import Container
    from privsql.engine.parquet import Layout
    from privsql.engine.sqlfiles import Holes
    from privsql.mechanisms.contract import Columns
    from privsql.model.checks import Result
    from privsql.releases.stored import Stored

LEFTOVERS = "its files hold no free blocks, deleted rows or other metadata"
WIDEST = 16  # bytes of a value that is no text
UNUSED = "statistics and dictionaries of its files name only values of its tables"


def look(db: Container, found: Stored, database: str) -> list[Result]:
    """Check the layout of a release's files; nothing is decoded."""
    return run(db, [Check(LEFTOVERS, lambda: _beside(db, found, database))])


def _beside(db: Container, found: Stored, database: str) -> list[str]:
    if not found.is_folder:
        return db.leftovers(database)
    return [
        f"{file.relative_to(found.place).as_posix()}: {line}"
        for file in found.readable
        for line in parquet.read_layout(file).wrong
    ]


def look_closer(db: Container, found: Stored, stated: Columns, database: str) -> list[Result]:
    """Compare the statistics and dictionaries of Parquet files with the values of their columns."""
    if not found.is_folder:
        return []
    return run(db, [Check(UNUSED, lambda: [
        line for name, files in found.files.items() for file in files
        for line in _unused(db, parquet.read_layout(file), name, stated.get(name, []), database)
    ])])  # fmt: skip


def _unused(db: Container, layout: Layout, name: str, columns: Sequence[tuple[str, str]], database: str) -> list[str]:
    """Return what a file states of columns that no row of the table has; the parts of lists are not looked at."""
    rows, wrong = table(name, database), []
    for column, kind in columns:
        read: Holes = {"table": rows, "column": sqlfiles.column(column)}
        named = layout.texts.get(column, set())
        if kind == "VARCHAR":
            strange = named - _found(db, read, column, named)
        else:
            strange = {one for one in named if len(one) > WIDEST}
        if strange:
            wrong.append(f"{name}: statistics of {column} name {len(strange)} values that no row has")
        entries = layout.entries.get(column, 0)
        if entries and entries > int(db.rows(fill("verify/values_counted", read))[0][0]):
            wrong.append(f"{name}: a dictionary of {column} has {entries:,} entries, more than the column has values")
    return wrong


def _found(db: Container, read: Holes, column: str, texts: set[bytes]) -> set[bytes]:
    """Return those of some texts that a column holds."""
    if not texts:
        return set()
    among = sqlfiles.column(column).isin(*(exp.Literal.string(text.decode(errors="replace")) for text in texts))
    return {row[0].encode() for row in db.rows(fill("verify/texts_found", read | {"among": among}))}
