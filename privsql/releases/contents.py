"""Checks that a release holds exactly the tables and the view that its manifest states, on which all others stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine import sqlfiles
from privsql.engine.roles import Field
from privsql.engine.sqlfiles import all_rows, fill, table
from privsql.errors import EngineError, PrivsqlError, UsageError
from privsql.mechanisms.registry import of
from privsql.model.checks import Check, Result, run
from privsql.model.manifest import MANIFEST, Manifest
from privsql.releases import leftovers, orders, own
from privsql.releases.identity import MAIN, schema_of
from privsql.releases.stored import ENDING

if TYPE_CHECKING:
    from collections.abc import Callable

    from privsql.engine.database import Container
    from privsql.mechanisms.contract import Columns
    from privsql.releases.stored import Stored

MANIFEST_COLUMNS = [("key", "VARCHAR"), ("value", "VARCHAR")]
HOLDS = "holds the stated tables and no other table, view or metadata"
FOLDER_HOLDS = "the folder holds the files of the stated tables and no others"
ORDERS = "orders name just the labels that it holds"
WITHIN = "its numbers refer to what it holds"
ITEM = "item"  # a column of items, which are the publisher's
STATED = "stated"  # the database in memory that shows how the engine writes down what a manifest states
ENTRIES, BYTES = 100, 2**24  # of a manifest; sql/duckdb/extent stops behind so many


def admitted(db: Container, found: Stored, database: str) -> tuple[Manifest, list[Result]]:
    """The manifest of a release, and whether the release holds what that states and no other table, view or metadata.

    A file is attached as ``database`` already; for a folder, or a schema of a file that is attached under any name,
    this is an empty database, in which views show its tables if they are the stated ones. Nothing that the release
    holds is evaluated: its manifest must be a plain table, its view is compared as text. Raises ``UsageError`` if there
    is no manifest, ``EngineError`` for one that is not valid.
    """
    try:
        place = _place(db, found, database)
        manifest = _manifest(db, found, place)
    except PrivsqlError as error:
        raise type(error)(f"{found.path} is not a release of privsql: {error}") from error
    if found.schema is not None:
        return manifest, _of_a_schema(db, manifest, place, database)
    if not found.is_folder:
        return manifest, contents(db, manifest, database) + leftovers.look(db, found, database)
    stated = stated_tables(manifest)
    more = [*found.strange, *(f"{name}{ENDING}" for name in found.files if name not in stated)]
    wrong = _read_in(db, found, manifest, database)
    return manifest, [
        *_holding(db, manifest, database, lambda: wrong),
        *run(db, [Check(FOLDER_HOLDS, lambda: [f"{name} does not belong here" for name in more])]),
        *leftovers.look(db, found, database),
    ]


def contents(db: Container, manifest: Manifest, database: str) -> list[Result]:
    """The checks that all others stand on, up to the first that does not hold."""
    return _holding(db, manifest, database, lambda: _contents(db, manifest, (database, MAIN)))


def _of_a_schema(db: Container, manifest: Manifest, place: tuple[str, str], database: str) -> list[Result]:
    """The same of a schema: what else its database holds is not looked at."""
    wrong = _contents(db, manifest, place)
    if not wrong:
        for name in stated_tables(manifest):
            db.view(name, all_rows(table(name, *place)), into=database)
        db.view(manifest.name, of(manifest.mechanism).view(manifest), into=database)
    return _holding(db, manifest, database, lambda: wrong)


def _place(db: Container, found: Stored, database: str) -> tuple[str, str]:
    """The database and the schema in which its tables lie; ``UsageError`` if there is no such schema."""
    if found.schema is None:
        return database, MAIN
    holder = db.attached(found.place) or database
    schema = schema_of(db, holder, found.schema)
    if schema is None:
        raise UsageError(f"there is no schema {found.schema!r}")
    return holder, schema


def _holding(db: Container, manifest: Manifest, database: str, wrong: Callable[[], list[str]]) -> list[Result]:
    holds = run(db, [Check(HOLDS, wrong)])
    if not holds[0].ok:
        return holds
    more = [Check(WITHIN, lambda: _beyond(db, manifest, database))]
    if manifest.orders:
        more.append(Check(ORDERS, lambda: orders.wrong(db, manifest, database)))
    return holds + run(db, more)


def _manifest(db: Container, found: Stored, place: tuple[str, str]) -> Manifest:
    """The manifest, read from a plain table of its two columns that is not too large."""
    database, schema = place
    if found.is_folder:
        wrong = _shown(db, found, MANIFEST, MANIFEST_COLUMNS, database)
    else:
        stated = definitions(db, {MANIFEST: MANIFEST_COLUMNS}, schema=schema)
        kept = {(kind, name): text for kind, inside, name, text in db.listed(database) if inside == schema}
        wrong = [] if stated.items() <= kept.items() else ["its manifest is missing, or no plain table"]
    if wrong:
        raise UsageError(wrong[0])
    stored = table(MANIFEST, *place)
    entries, length = db.rows(fill("duckdb/extent", {"table": stored}))[0]
    if entries > ENTRIES or length > BYTES:
        raise EngineError("its manifest is too large")
    manifest = Manifest.of_rows(db.rows(all_rows(stored)))
    try:
        mechanism = of(manifest.mechanism)
        mechanism.read(manifest)
    except UsageError as error:
        raise EngineError(str(error)) from error
    if manifest.own_columns != own.gave_way(manifest):
        raise EngineError("its manifest calls columns of privsql's own otherwise than they are")
    counts = (manifest.records, manifest.published, manifest.suppressed)
    if mechanism.states_counts and None in counts:
        raise EngineError("its manifest does not state how many records are published")
    return manifest


def stated_tables(manifest: Manifest) -> Columns:
    """Return the tables that a manifest states, its own with them: names and types of their columns."""
    return of(manifest.mechanism).tables(manifest) | {MANIFEST: MANIFEST_COLUMNS}


def _beyond(db: Container, manifest: Manifest, database: str) -> list[str]:
    """Numbers of groups, values, nodes and the like that lie beyond what the release holds.

    They are ranks, so none exceeds the rows of the longest table: what is as long as they are large then is no longer
    than the release.
    """
    rows, ends = 1, []
    for name, columns in {**own.own_columns(manifest), MANIFEST: []}.items():
        numbered = [called for inside, called, kind in columns if kind == "INTEGER" and inside != ITEM]
        asked = [made(this=sqlfiles.column(one)) for one in numbered for made in (exp.Min, exp.Max)]
        found, *numbers = db.rows(fill("verify/reach", {"table": table(name, database), "ends": asked}))[0]
        rows = max(rows, int(found))
        ends += [
            (name, one, number)
            for one, number in zip([c for c in numbered for _ in range(2)], numbers, strict=True)
            if number
        ]
    wrong = [f"{column} of {name} is {number:,}, of {rows:,} rows" for name, column, number in ends if number > rows]
    return wrong + [f"{column} of {name} is {number:,}" for name, column, number in ends if number < -1]


def _contents(db: Container, manifest: Manifest, place: tuple[str, str]) -> list[str]:
    """Tables, columns, types and the view: nothing missing, nothing more, no other definition.

    ``place``: a database and a schema of it; of main the whole database.
    """
    database, schema = place
    expected = stated_tables(manifest)
    kinds = definitions(db, expected, manifest, schema=schema)
    found = {(kind, name): text for kind, name, text in db.objects(database, schema if schema != MAIN else None)}
    wrong = [f"{kind} {name!r} does not belong here" for kind, name in sorted(found.keys() - kinds.keys())]
    wrong += [f"{kind} {name!r} is missing" for kind, name in sorted(kinds.keys() - found.keys())]
    wrong += [f"{k} {name!r} is defined otherwise" for (k, name), t in kinds.items() if found.get((k, name), t) != t]
    for name, columns in expected.items():
        if ("table", name) in found:
            wrong += _columns(name, columns, db.fields(table(name, *place)))
    return wrong


def _read_in(db: Container, found: Stored, manifest: Manifest, database: str) -> list[str]:
    """Show the stated tables of a folder and make its view; or what of them is missing or otherwise."""
    stated = {name: columns for name, columns in stated_tables(manifest).items() if name != MANIFEST}
    wrong = [line for name, columns in stated.items() for line in _shown(db, found, name, columns, database)]
    if not wrong:
        db.view(manifest.name, of(manifest.mechanism).view(manifest), into=database)
    return wrong


def _shown(db: Container, found: Stored, name: str, columns: list[tuple[str, str]], database: str) -> list[str]:
    """Make a view of one table of a folder if its columns are the stated ones; what is wrong with them if not.

    The manifest is read at once: what is damaged is no release.
    """
    files = found.files.get(name)
    if not files:
        return [f"table {name!r} is missing"]
    try:
        rows = db.scanned(files, "parquet")
        wrong = _columns(name, columns, db.fields(rows))
        if not wrong and name == MANIFEST:
            db.make(name, rows, into=database)
        elif not wrong:
            db.view(name, rows, into=database)
    except PrivsqlError as error:
        raise EngineError(f"{name}{ENDING}: can't be read: {error}") from error
    return wrong


def _columns(name: str, columns: list[tuple[str, str]], fields: list[Field]) -> list[str]:
    stated = [Field(*column) for column in columns]
    extra = [f"column {f.name!r} ({f.type}) of {name} is not among the stated ones" for f in fields if f not in stated]
    missing = [f"column {f.name!r} ({f.type}) of {name} is missing" for f in stated if f not in fields]
    order = [] if extra or missing or fields == stated else [f"the columns of {name} lie in another order"]
    return extra + missing + order


def definitions(
    db: Container, tables: Columns, manifest: Manifest | None = None, *, schema: str = MAIN
) -> dict[tuple[str, str], str]:
    """What a release of these tables and its view holds, by kind and name, as the engine writes it down."""
    db.create(STATED)
    try:
        if schema != MAIN:
            db.schema(schema, into=STATED)
        for name, columns in tables.items():
            db.define(name, [Field(*column) for column in columns], into=STATED, schema=schema)
        if manifest is not None:
            db.view(manifest.name, of(manifest.mechanism).view(manifest), into=STATED, schema=schema)
        return {(kind, name): text for kind, _, name, text in db.listed(STATED)}
    finally:
        db.detach(STATED)
