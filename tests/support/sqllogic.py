"""Runs ``.test`` files in sqllogictest form: records separated by blank lines, comments begin with ``#``.

``statement ok`` | ``statement error [regex]``, ``query <types> [nosort|rowsort] [label]`` with ``----`` and the rows
that are expected; types are T (text), I (integer) and R (number, compared to 1e-9), NULL is NULL, the empty string is
(empty), and a row is split at tabs if it has any, else at blanks. One record more makes temporary table <name> of a
file of ``sql/``, filled as in production:

    relation <name> <folder/file> [error [regex]]
    <hole> = <SQL>

``gap <engine> <reason>`` says that the record after it fails on that engine; once it does not, that is a failure.
With ``--engine`` the relations are made there and everything else in DuckDB; ``sql/duckdb/`` is DuckDB's alone.

A list hole takes its items separated by commas, perhaps none; a table hole a table or a subquery in parentheses. A line
that begins with a blank continues the one before it.
"""

from __future__ import annotations

import functools
import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.engine import sqlfiles
from privsql.engine.duck.connection import HARDENED
from privsql.errors import PrivsqlError
from support import engines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from support.elsewhere import Elsewhere

ENDING = ".test"
TYPES: dict[str, tuple[type, ...]] = {"T": (object,), "I": (int, Decimal), "R": (float, int, Decimal)}
HEADER = re.compile(
    r"statement ok|statement error( .+)?|query [TIR]+( (nosort|rowsort)( \S+)?)?|relation \w+ \w+/\w+( error( .+)?)?"
    r"|gap (spark|postgres) .+"
)
CLOSE = 1e-9


class File(pytest.File):
    """A ``.test`` file."""

    def collect(self) -> Iterator[Item]:
        """One item with all records: they share a database."""
        try:
            yield Item.from_parent(self, name=self.path.stem, records=read(self.path))
        except ValueError as error:
            raise self.CollectError(str(error)) from error


class Item(pytest.Item):
    """The records of one file, run in order; one that fails does not stop the others."""

    def __init__(self, *, records: list[Record], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._records = records

    def runtest(self) -> None:
        """Run them all and report file and line of each that fails, with expected and actual rows."""
        place = self.path.relative_to(self.config.rootpath)
        engine = self.config.getoption("engine")
        shared = engine == "duckdb" and self.path.parent.name != "duckdb"  # those look at the instance itself
        found = run(self._records, engine, shared=shared)
        failures = [f"{place}:{line}: {problem}" for line, problem in found]
        if failures:
            pytest.fail("\n\n".join(failures), pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the test stands."""
        return self.path, 0, self.name


@dataclass(frozen=True)
class Record:
    """One record: where it begins, its header, the lines below it, and the rows that a query expects."""

    line: int
    header: str
    body: tuple[str, ...]
    expected: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The header's words."""
        return self.header.split()


class MismatchError(Exception):
    """What a record expects is not what happened."""


def read(path: Path) -> list[Record]:
    """The records of a file; ``ValueError`` names the line of one that is not understood."""
    records: list[Record] = []
    for line, (header, *rest) in _blocks(path.read_text(encoding="utf-8")):
        query = header.startswith("query")
        if not HEADER.fullmatch(header):
            raise ValueError(f"{path}:{line}: not a record: {header}")
        if query and "----" not in rest:
            raise ValueError(f"{path}:{line}: a query needs ---- and its rows")
        end = rest.index("----") if query else len(rest)
        records.append(Record(line, header, tuple(rest[:end]), tuple(rest[end + 1 :])))
    if not records:
        raise ValueError(f"{path}: no records")
    return records


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.strip() and (block or not line.startswith("#")):
            block.append(line)
        elif not line.strip() and block:
            yield number - len(block), block
            block = []


@functools.cache
def _shared_instance() -> duckdb.DuckDBPyConnection:
    """An instance for all files: starting one takes longer than most of them."""
    return duckdb.connect(config=HARDENED)


@contextmanager
def _open_database(*, shared: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that nobody has used, in an instance of its own unless that is ``shared``."""
    if not shared:
        with duckdb.connect(config=HARDENED) as connection:
            yield connection
        return
    with _shared_instance().cursor() as connection:
        connection.execute("ATTACH ':memory:' AS fresh; USE fresh")
        try:
            yield connection
        finally:
            connection.execute("USE memory; DETACH fresh")


def run(records: Sequence[Record], engine: str = "duckdb", *, shared: bool = False) -> list[tuple[int, str]]:
    """Run records in a fresh database; returns the line and the problem of each that fails.

    ``engine``: what makes the relations.
    """
    failures, elsewhere, gap = [], engines.elsewhere(engine), ""
    with _open_database(shared=shared) as connection:
        for record in records:
            if record.words[0] == "gap":
                gap = " ".join(record.words[2:]) if record.words[1] == engine else ""
                continue
            try:
                _run(connection, record, elsewhere)
            except (MismatchError, PrivsqlError, duckdb.Error, SqlglotError, ValueError, OSError) as problem:
                if not gap:
                    failures.append((record.line, f"{record.header}\n{type(problem).__name__}: {problem}"))
            else:
                if gap:
                    failures.append((record.line, f"{record.header}\nthe gap has closed: {gap}"))
            gap = ""
    return failures


def _run(connection: duckdb.DuckDBPyConnection, record: Record, elsewhere: Elsewhere | None) -> None:
    kind, *words = record.words
    if kind == "query":
        return _query(connection, record)
    refusal = re.search(r" error( .+)?$", record.header)
    try:
        if kind == "statement":
            connection.execute("\n".join(record.body))
        else:
            _relation(connection, words[0], words[1], record.body, elsewhere)
    except (duckdb.Error, PrivsqlError, ValueError) as problem:
        if refusal is None:
            raise
        if not isinstance(problem, PrivsqlError) and not re.search((refusal[1] or "").strip(), str(problem)):
            raise MismatchError(f"expected an error like {refusal[1]}, got {problem}") from problem
    else:
        if refusal is not None:
            raise MismatchError("expected an error, but it succeeded")


def _relation(
    connection: duckdb.DuckDBPyConnection, name: str, file: str, lines: Sequence[str], elsewhere: Elsewhere | None
) -> None:
    """Make a table of a filled file; no older one is left where that fails."""
    tree = sqlfiles.parse_file(file)
    given = [line.partition("=") for line in re.split(r"\n(?! )", "\n".join(lines)) if line]
    holes: sqlfiles.Holes = {hole.strip(): _filling(tree, hole.strip(), sql.strip()) for hole, _, sql in given}
    if elsewhere is not None:
        elsewhere.make(connection, name, file, holes)
        return
    query = sqlfiles.render_sql(sqlfiles.fill(file, holes))
    connection.execute(f"DROP TABLE IF EXISTS temp.{name}; CREATE TEMP TABLE {name} AS {query}")


def _filling(tree: exp.Expr, hole: str, sql: str) -> sqlfiles.Hole:
    if any(node.alias == f"__{hole}__" for node in tree.find_all(exp.Alias)):
        return sqlfiles.quoted_identifier(sql)
    places = [node for node in tree.find_all(exp.Table, exp.Column) if node.name == f"__{hole}__"]
    if any(isinstance(place, exp.Table) for place in places):
        source: exp.Expr = sqlglot.parse_one(f"SELECT * FROM {sql}", dialect=sqlfiles.DIALECT).args["from_"].this
        return source
    items: list[exp.Expr] = sqlglot.parse_one(f"SELECT {sql}", dialect=sqlfiles.DIALECT).expressions if sql else []
    single = not all(isinstance(place.parent, exp.Select | exp.Group | exp.Ordered) for place in places)
    if single and len(items) != 1:
        raise ValueError(f"hole {hole} takes one expression")
    return items[0] if single else items


def _query(connection: duckdb.DuckDBPyConnection, record: Record) -> None:
    types, sorting = record.words[1], record.words[2:3]
    actual = connection.execute("\n".join(record.body)).fetchall()
    expected = [tuple(line.split("\t") if "\t" in line else line.split()) for line in record.expected]
    if sorting == ["rowsort"]:
        actual, expected = sorted(actual, key=_shown), sorted(expected)
    if len(actual) != len(expected) or not all(_same(types, *rows) for rows in zip(expected, actual, strict=True)):
        wanted, found = (["  " + "\t".join(row) for row in rows] for rows in (expected, map(_shown, actual)))
        raise MismatchError("\n".join([f"types {types}, expected:", *wanted, "actual:", *found]))


def _same(types: str, expected: Sequence[str], actual: Sequence[object]) -> bool:
    if not len(types) == len(expected) == len(actual):
        return False
    return all(_equal(*cell) for cell in zip(types, expected, actual, strict=True))


def _equal(kind: str, expected: str, actual: object) -> bool:
    if actual is None or expected == "NULL":
        return actual is None and expected == "NULL"
    if not isinstance(actual, TYPES[kind]) or (kind != "T" and isinstance(actual, bool)):
        return False
    if kind == "R":
        return math.isclose(float(expected), float(str(actual)), rel_tol=CLOSE, abs_tol=CLOSE)
    return _shown([actual]) == (expected,)


def _shown(row: Sequence[object]) -> tuple[str, ...]:
    named = {"None": "NULL", "": "(empty)", "True": "true", "False": "false"}
    return tuple(str(value) if isinstance(value, str) and value else named.get(str(value), str(value)) for value in row)
