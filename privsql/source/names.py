"""What a source is called where its releases are written down, and when two names mean the same source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privsql.engine.names import fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

    from privsql.source.places import Source

WITHIN = ":"  # between a database and its table
OWN_SCHEMA = {"duckdb": "main", "spark": "default", "postgres": "public"}  # of tables that name none


def known_as(source: Source) -> tuple[str, ...]:
    """The name that the publisher gives a source, or its file with each of the tables that are read from it.

    A file, or a query that can't be taken apart, is the whole file.
    """
    if source.name is not None:
        return (source.name,)
    path = str(source.path.resolve())
    if source.spark is not None:
        path = f"spark{WITHIN}{(source.spark.remote or '').partition('/;')[0]}"
    elif source.postgres is not None:
        path = source.kind  # its address may hold secrets
    elif source.kind != "duckdb":
        return (path,)
    return tuple(sorted({f"{path}{WITHIN}{table}" for table in _tables(source)})) or (path,)


def same_source(names: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two sources have a table in common: a file holds all of its tables."""
    return any(
        one == other or one.startswith(other + WITHIN) or other.startswith(one + WITHIN)
        for one in names
        for other in others
    )


def _tables(source: Source) -> list[str]:
    """The tables of a database that are read: names as the engine compares them, without a schema that need not be."""
    import sqlglot  # noqa: PLC0415 (who only reads a specification does not wait for it)
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    dialect = "duckdb" if source.elsewhere is None else source.kind
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
