"""What a source is called where its releases are written down, and when two names mean the same source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from privsql.engine import files
from privsql.engine.names import fold
from privsql.errors import EngineError
from privsql.source.address import parted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlglot import exp

    from privsql.source.places import Source

WITHIN = ":"  # between a database and its table
PYTHON = f"python{WITHIN}"  # before the columns of a table in memory
SHOWN = 120  # characters of a name in a message
OWN_SCHEMA = {"duckdb": "main", "spark": "default", "postgres": "public"}  # of tables that name none
DIALECTS = {"spark": "spark", "postgres": "postgres", "mysql": "duckdb", "ducklake": "duckdb", "duckdb": "duckdb"}


def known_as(source: Source) -> tuple[str, ...]:
    """The name that the publisher gives a source, or its file with each of the tables that are read from it.

    A file, or a query that can't be taken apart, is the whole file. A pattern is the files that it meets now, an
    address what of it is no secret, and a table in Python its columns.
    """
    if source.name is not None:
        return (source.name,)
    if source.files:
        return _files(source.files)
    if source.frame is not None:
        return (f"{PYTHON}{source.frame.known_as}",)
    path = os.path.realpath(source.path)
    if source.spark is not None:
        path = f"spark{WITHIN}{(source.spark.remote or '').partition('/;')[0]}"
    elif source.elsewhere is not None:
        path = source.kind  # its address may hold secrets
    return tuple(sorted({f"{path}{WITHIN}{table}" for table in _tables(source)})) or (path,)


def listed(names: Iterable[str]) -> str:
    """What a source is called, for a message: a table in Python by as many of its columns as a line takes.

    >>> len(listed([f"python:{'wide,' * 100}"]))
    122
    """
    return ", ".join(name if len(name) <= SHOWN else f"{name[:SHOWN]}.." for name in names)


def same_source(names: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two sources have a table in common: a file holds all of its tables, a folder all of its files.

    A table in Python is all that is known of one; if its columns are among those of another it may be a part of it.

    >>> same_source(["python:age,ill"], ["python:age,ill,zip"]), same_source(["python:age,ill"], ["python:age,zip"])
    (True, False)
    """
    return any(one == other or _holds(one, other) or _holds(other, one) for one in names for other in others)


def overlaps(source: Source, target: Path) -> bool:
    """Whether a release would be among the files of its source, or replace one of them."""
    if source.elsewhere is not None or source.frame is not None or parted(target)[1] is not None:
        return False  # a schema replaces nothing but a release, whatever else its file holds
    places, place = known_as(source.model_copy(update={"name": None})), os.path.realpath(target)
    if source.database is not None:
        return os.path.realpath(source.database) == place
    return any(one == place or _holds(place, one) or (_holds(one, place) and not target.suffix) for one in places)


def _holds(one: str, other: str) -> bool:
    if one.startswith(PYTHON) and other.startswith(PYTHON):
        ours, theirs = ({fold(part) for part in name.removeprefix(PYTHON).split(",")} for name in (one, other))
        return theirs <= ours
    return other.startswith(one + WITHIN) or (Path(one).is_absolute() and other.startswith(one + os.sep))


def _files(given: Sequence[str]) -> tuple[str, ...]:
    """Every file by its place; a folder by its own."""
    places: set[str] = set()
    for name in given:
        if files.scheme(name):
            places.add(files.shown(name))
            continue
        try:
            met = [Path(name)] if Path(name).is_dir() else files.found([name])
        except EngineError:  # said where it is read
            met = [Path(name)]
        places.update(map(os.path.realpath, met))
    return tuple(sorted(places))


def _tables(source: Source) -> list[str]:
    """The tables of a database that are read: names as the engine compares them, without a schema that need not be."""
    import sqlglot  # noqa: PLC0415 (who only reads a specification does not wait for it)
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    dialect = DIALECTS[source.kind]
    try:
        if source.relation is not None:
            return [_name(exp.to_table(source.relation, dialect=dialect), dialect)]
        query = sqlglot.parse_one(source.origin.query or "", dialect=dialect)
    except SqlglotError:
        return []
    own = {fold(one.alias) for one in query.find_all(exp.CTE)}
    return [
        _name(one, dialect)
        for one in query.find_all(exp.Table)
        if one.name and not (fold(one.name) in own and not one.db)
    ]


def _name(table: exp.Table, dialect: str) -> str:
    schema = fold(table.db)
    return fold(table.name) if schema in ("", OWN_SCHEMA[dialect]) else f"{schema}.{fold(table.name)}"
