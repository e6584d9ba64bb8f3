"""Check that a release on disk holds exactly the objects that its manifest lists, before anything of it is opened.

The same goes for the order of labels and for the names of privsql's own columns.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from sqlglot import exp

from privsql.engine import parquet, sqlfiles
from privsql.engine.open import log_of
from privsql.engine.roles import Field
from privsql.engine.sqlfiles import all_rows, column, fill, table
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError
from privsql.mechanisms.registry import get_mechanism
from privsql.model.manifest import MANIFEST, Check, CheckResult, Manifest, run_checks
from privsql.releases.draft import MAIN, find_schema, sweep_drafts
from privsql.source.places import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from privsql.engine.database import Container, Relations
    from privsql.engine.parquet import ParquetLayout
    from privsql.engine.sqlfiles import Holes
    from privsql.mechanisms.contract import Columns

# Orders ---------------------------------------------------------------------------------------------------------------
# The order of labels whose type has one (ENUM): which of them a release may name, and whether it names just these.
#
# A label that no published record has is nobody's business, so an order lists those that the release shows anyway.
# Columns of one type share one list, so that they compare as in the source. Releases whose budget is all that is
# promised name none: which labels occur is what they hide.

MOST_LABELS = 1000  # labels of an order


def stored_orders(
    db: Relations, manifest: Manifest, orders: Mapping[str, Sequence[str]], database: str
) -> dict[str, list[str]]:
    """By column the labels that the release's tables show, in the order of the source's type."""
    if not get_mechanism(manifest.mechanism).states_counts:
        return {}
    published = {}
    for name, labels in orders.items():
        alike = [other for other, theirs in orders.items() if theirs == labels]
        visible = _orders_text(db, manifest, alike, database)
        named = [label for label in labels if label in visible]
        if named and len(named) <= MOST_LABELS:
            published[name] = named
    return published


def wrong_orders(db: Relations, manifest: Manifest, database: str) -> list[str]:
    """Labels that an order names and the release does not show, or that it should name."""
    wrong = []
    for name, labels in manifest.orders.items():
        alike = [other for other, theirs in manifest.orders.items() if theirs == labels]
        visible = _orders_text(db, manifest, alike, database)
        wrong += [f"orders: {name}: {label!r} is not in the release" for label in labels if label not in visible]
        wrong += [f"orders: {name}: {label!r} is missing" for label in sorted(visible - set(labels))]
    return wrong


def differ_from_source(manifest: Manifest, orders: Mapping[str, Sequence[str]]) -> list[str]:
    """Orders that are not those of the source."""
    return [
        f"orders: {name}"
        for name, labels in manifest.orders.items()
        if labels != [label for label in orders.get(name, ()) if label in set(labels)]
    ]


def _orders_text(db: Relations, manifest: Manifest, columns: Sequence[str], database: str) -> set[str]:
    """The labels that stand in some columns of the release's tables."""
    texts: set[str] = set()
    for name, listed in get_mechanism(manifest.mechanism).tables(manifest).items():
        for shared in [one for one, _ in listed if one in columns]:
            rows = db.rows(fill("verify/different", {"table": table(name, database), "column": column(shared)}))
            texts |= {row[0] for row in rows}
    return texts


# Reserved columns -----------------------------------------------------------------------------------------------------
# The columns of privsql's own in the tables and the view of a release, and how they are called there.
#
# Where a column of the publisher's in the same table has its name (ASCII letters in either case are the same),
# privsql's gives way: an underscore is appended, as often as needed. Nothing chooses a name, so a manifest can't choose
# one.

Table = list[tuple[str, str, str]]  # (name inside, name in the table, type) of each column


def list_reserved_columns(manifest: Manifest) -> dict[str, Table]:
    """Privsql's own columns of every table."""
    placeholder, mechanism = _with_placeholder_names(manifest), get_mechanism(manifest.mechanism)
    others = {field.name for field in (*placeholder.quasi_identifiers, *placeholder.sensitive)}
    inside = mechanism.tables(placeholder)
    return {
        table: [
            (internal, called, kind)
            for (internal, _), (called, kind) in zip(inside[table], columns, strict=True)
            if internal not in others
        ]
        for table, columns in mechanism.tables(manifest).items()
    }


def renamed_columns(manifest: Manifest) -> dict[str, dict[str, str]]:
    """By table or view, the own columns that are called otherwise: name inside -> name there."""
    renamed = {
        table: {internal: called for internal, called, _ in columns if internal != called}
        for table, columns in list_reserved_columns(manifest).items()
    }
    view = get_mechanism(manifest.mechanism).view
    names = zip(view(_with_placeholder_names(manifest)).named_selects, view(manifest).named_selects, strict=True)
    others = {
        field.name
        for field in (
            *_with_placeholder_names(manifest).quasi_identifiers,
            *_with_placeholder_names(manifest).sensitive,
        )
    }
    renamed[manifest.name] = {
        internal: called for internal, called in names if internal not in others and internal != called
    }
    return {table: names for table, names in renamed.items() if names}


def _with_placeholder_names(manifest: Manifest) -> Manifest:
    """The same with columns of the publisher's under names that are nobody's."""
    numbers = iter(range(len(manifest.quasi_identifiers) + len(manifest.sensitive)))
    roles = ("quasi_identifiers", "sensitive")
    return manifest.model_copy(
        update={role: [Field(f"column {next(numbers)}", one.type) for one in getattr(manifest, role)] for role in roles}
    )


# Files on disk --------------------------------------------------------------------------------------------------------
# A release as it lies on disk: what is there is looked at before anything of it is opened.
#
# A file must be a plain file without a write-ahead file beside it, which attaching would replay. A folder must hold
# plain Parquet files and nothing else, or for a table a folder of its parts, in their order: a symbolic link would read
# somebody else's file, a pipe would wait for ever. Of a file of which a schema is meant nothing else is read.

ENDING = ".parquet"
MOST_ENTRIES = 10_000  # entries of a folder that are looked at
WAL_ENDINGS = ("", ".checkpoint", ".recovery")  # endings of the files that DuckDB writes ahead


@dataclass(frozen=True)
class StoredRelease:
    """A release on disk. ``files``: of a folder, the Parquet files of each table; ``strange``: what else is there."""

    path: Path
    place: Path  # resolved
    is_folder: bool
    files: dict[str, tuple[Path, ...]]
    strange: tuple[str, ...] = ()
    schema: str | None = None  # of the file, if the release is no more of it

    @property
    def database_file(self) -> Path | None:
        """The file to attach as the release; None for what views show: a folder, or a schema."""
        return None if self.is_folder or self.schema is not None else self.place

    @property
    def holder_file(self) -> Path | None:
        """The file of which it is a schema, which is attached besides; None for any other."""
        return None if self.schema is None else self.place

    @property
    def readable_files(self) -> list[Path]:
        """The files of a folder."""
        return [file for parts in self.files.values() for file in parts]


def name_holders(releases: Iterable[StoredRelease]) -> dict[str, Path | None]:
    """The files of which releases are schemas, each once, by the names under which they are attached."""
    files = dict.fromkeys(one.holder_file for one in releases if one.holder_file is not None)
    return {f"holder{i}": file for i, file in enumerate(files)}


def locate_release(path: Path) -> StoredRelease:
    """Look at a release; ``EngineError`` if it is none, ``GuaranteeError`` for a file with another one beside it."""
    sweep_drafts(path)
    file, schema = split_address(path)
    try:
        place = file.resolve()
        mode = place.stat().st_mode
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise EngineError(f"{path}: {'no such release' if missing else error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # no text of a path, or links in a circle
        raise EngineError(f"{str(path)!r} leads nowhere") from error
    if stat.S_ISDIR(mode):
        if schema is not None:
            raise EngineError(f"{file}: is a folder, which has no schemas")
        return _scan_folder(path, place)
    if not stat.S_ISREG(mode):
        raise EngineError(f"{file}: is neither a file nor a folder")
    for ending in WAL_ENDINGS:
        log = f"{log_of(place)}{ending}"
        if os.path.lexists(log):
            raise GuaranteeError(
                f"{path}: {log} lies beside it and may change what it holds; close the release where it is open"
            )
    return StoredRelease(path, place, is_folder=False, files={}, schema=schema)


def _scan_folder(path: Path, place: Path) -> StoredRelease:
    files: dict[str, tuple[Path, ...]] = {}
    strange: list[str] = []
    for entry in _list_entries(path, place):
        name = entry.name.removesuffix(ENDING)
        if name == entry.name or entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            strange.append(entry.name)
        elif entry.is_dir():
            parts = _list_entries(path, place / entry.name)
            strange += [f"{entry.name}/{part.name}" for part in parts if not _is_part(part)]
            files[name] = tuple(place / entry.name / part.name for part in parts if _is_part(part))
        else:
            files[name] = (place / entry.name,)
    return StoredRelease(path, place, is_folder=True, files=files, strange=tuple(sorted(strange)))


def _is_part(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and entry.name.endswith(ENDING)


def _list_entries(path: Path, place: Path) -> list[os.DirEntry[str]]:
    """What a folder of release ``path`` holds, by name; ``EngineError`` if that is too much, or can't be read."""
    try:
        with os.scandir(place) as entries:
            listing = list(islice(entries, MOST_ENTRIES + 1))
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    if len(listing) > MOST_ENTRIES:
        raise EngineError(f"{path}: holds more than {MOST_ENTRIES:,} files")
    return sorted(listing, key=lambda entry: entry.name)


# Leftovers ------------------------------------------------------------------------------------------------------------
# Checks that the files of a release hold nothing beside its tables: no free blocks, deleted rows or other metadata.
#
# Who makes a file by hand can put bytes where no reader looks: into the unused end of a block, into a packed page.
# These checks do not find them; a copy that is written from the tables alone has none. A schema of a database is not
# looked at.

LEFTOVERS = "its files hold no free blocks, deleted rows or other metadata"
WIDEST = 16  # bytes of a value that is no text
UNUSED = "statistics and dictionaries of its files name only values of its tables"


def check_layout(db: Container, release: StoredRelease, database: str) -> list[CheckResult]:
    """Check the layout of a release's files; nothing is decoded."""
    return run_checks(db, [Check(LEFTOVERS, lambda: _find_leftovers(db, release, database))])


def _find_leftovers(db: Container, release: StoredRelease, database: str) -> list[str]:
    if not release.is_folder:
        return db.find_leftovers(db.attached_name(release.place) or database)  # a release that is named twice is one
    return [
        f"{file.relative_to(release.place).as_posix()}: {line}"
        for file in release.readable_files
        for line in parquet.read_layout(file).wrong
    ]


def check_statistics(db: Container, release: StoredRelease, stated: Columns, database: str) -> list[CheckResult]:
    """Compare the statistics and dictionaries of Parquet files with the values of their columns."""
    if not release.is_folder:
        return []
    return run_checks(db, [Check(UNUSED, lambda: [
        line for name, files in release.files.items() for file in files
        for line in _find_unused_statistics(db, parquet.read_layout(file), name, stated.get(name, []), database)
    ])])  # fmt: skip


def _find_unused_statistics(
    db: Container, layout: ParquetLayout, name: str, columns: Sequence[tuple[str, str]], database: str
) -> list[str]:
    """Return what a file states of columns that no row of the table has; the parts of lists are not looked at."""
    rows, wrong = table(name, database), []
    for each_column, kind in columns:
        read: Holes = {"table": rows, "column": sqlfiles.column(each_column)}
        named = layout.texts.get(each_column, set())
        if kind == "VARCHAR":
            strange = named - _find_present_texts(db, read, each_column, named)
        else:
            strange = {one for one in named if len(one) > WIDEST}
        if strange:
            wrong.append(f"{name}: statistics of {each_column} name {len(strange)} values that no row has")
        entries = layout.entries.get(each_column, 0)
        if entries and entries > int(db.rows(fill("verify/values_counted", read))[0][0]):
            wrong.append(
                f"{name}: a dictionary of {each_column} has {entries:,} entries, more than the column has values"
            )
    return wrong


def _find_present_texts(db: Container, read: Holes, column: str, texts: set[bytes]) -> set[bytes]:
    """Return those of some texts that a column holds."""
    if not texts:
        return set()
    among = sqlfiles.column(column).isin(*(exp.Literal.string(text.decode(errors="replace")) for text in texts))
    return {row[0].encode() for row in db.rows(fill("verify/texts_found", read | {"among": among}))}


# Contents -------------------------------------------------------------------------------------------------------------
# Checks that a release holds exactly the tables and the view that its manifest states, on which all others stand.

MANIFEST_COLUMNS = [("key", "VARCHAR"), ("value", "VARCHAR")]
HOLDS = "holds the stated tables and no other table, view or metadata"
FOLDER_HOLDS = "the folder holds the files of the stated tables and no others"
ORDERS = "orders name just the labels that it holds"
WITHIN = "its numbers refer to what it holds"
ITEM = "item"  # a column of items, which are the publisher's
STATED = "stated"  # the database in memory that shows how the engine writes down what a manifest states
REMEMBERED = 64  # definitions
_DEFINITIONS: dict[object, dict[tuple[str, str], str]] = {}
ENTRIES, BYTES = 100, 2**24  # of a manifest; sql/duckdb/extent stops behind so many


def admit_release(db: Container, release: StoredRelease, database: str) -> tuple[Manifest, list[CheckResult]]:
    """The manifest of a release, and whether the release holds what that states and no other table, view or metadata.

    A file is attached as ``database`` already; for a folder, or a schema of a file that is attached under any name,
    this is an empty database, in which views show its tables if they are the stated ones. Nothing that the release
    holds is evaluated: its manifest must be a plain table, its view is compared as text. Raises ``UsageError`` if there
    is no manifest, ``EngineError`` for one that is not valid.
    """
    try:
        place = _locate_tables(db, release, database)
        manifest = _read_manifest(db, release, place)
    except PrivsqlError as error:
        raise type(error)(f"{release.path} is not a release of privsql: {error}") from error
    if release.schema is not None:
        return manifest, _check_schema(db, manifest, place, database)
    if not release.is_folder:
        return manifest, check_contents(db, manifest, database) + check_layout(db, release, database)
    stated = list_stated_tables(manifest)
    more = [*release.strange, *(f"{name}{ENDING}" for name in release.files if name not in stated)]
    wrong = _attach_folder(db, release, manifest, database)
    return manifest, [
        *_run_contents_checks(db, manifest, database, lambda: wrong),
        *run_checks(db, [Check(FOLDER_HOLDS, lambda: [f"{name} does not belong here" for name in more])]),
        *check_layout(db, release, database),
    ]


def check_contents(db: Container, manifest: Manifest, database: str) -> list[CheckResult]:
    """The checks that all others stand on, up to the first that does not hold."""
    return _run_contents_checks(db, manifest, database, lambda: _compare_contents(db, manifest, (database, MAIN)))


def _check_schema(db: Container, manifest: Manifest, place: tuple[str, str], database: str) -> list[CheckResult]:
    """The same of a schema: what else its database holds is not looked at."""
    wrong = _compare_contents(db, manifest, place)
    if not wrong:
        for name in list_stated_tables(manifest):
            db.create_view(name, all_rows(table(name, *place)), into=database)
        db.create_view(manifest.name, get_mechanism(manifest.mechanism).view(manifest), into=database)
    return _run_contents_checks(db, manifest, database, lambda: wrong)


def _locate_tables(db: Container, release: StoredRelease, database: str) -> tuple[str, str]:
    """The database and the schema in which its tables lie; ``UsageError`` if there is no such schema."""
    if release.schema is None:
        return database, MAIN
    holder = db.attached_name(release.place) or database
    schema = find_schema(db, holder, release.schema)
    if schema is None:
        raise UsageError(f"there is no schema {release.schema!r}")
    return holder, schema


def _run_contents_checks(
    db: Container, manifest: Manifest, database: str, wrong: Callable[[], list[str]]
) -> list[CheckResult]:
    holds = run_checks(db, [Check(HOLDS, wrong)])
    if not holds[0].ok:
        return holds
    more = [Check(WITHIN, lambda: _find_numbers_beyond(db, manifest, database))]
    if manifest.orders:
        more.append(Check(ORDERS, lambda: wrong_orders(db, manifest, database)))
    return holds + run_checks(db, more)


def _read_manifest(db: Container, release: StoredRelease, place: tuple[str, str]) -> Manifest:
    """The manifest, read from a plain table of its two columns that is not too large."""
    database, schema = place
    if release.is_folder:
        wrong = _attach_table(db, release, MANIFEST, MANIFEST_COLUMNS, database)
    else:
        stated = list_definitions(db, {MANIFEST: MANIFEST_COLUMNS}, schema=schema)
        present = {(kind, name): text for kind, inside, name, text in db.list_relations(database) if inside == schema}
        wrong = [] if stated.items() <= present.items() else ["its manifest is missing, or no plain table"]
    if wrong:
        raise UsageError(wrong[0])
    stored = table(MANIFEST, *place)
    entries, length = db.rows(fill("duckdb/extent", {"table": stored}))[0]
    if entries > ENTRIES or length > BYTES:
        raise EngineError("its manifest is too large")
    manifest = Manifest.from_rows(db.rows(all_rows(stored)))
    try:
        mechanism = get_mechanism(manifest.mechanism)
        mechanism.read(manifest)
    except UsageError as error:
        raise EngineError(str(error)) from error
    if manifest.own_columns != renamed_columns(manifest):
        raise EngineError("its manifest calls columns of privsql's own otherwise than they are")
    counts = (manifest.records, manifest.published, manifest.suppressed)
    if mechanism.states_counts and None in counts:
        raise EngineError("its manifest does not state how many records are published")
    return manifest


def list_stated_tables(manifest: Manifest) -> Columns:
    """Return the tables that a manifest states, its own with them: names and types of their columns."""
    return get_mechanism(manifest.mechanism).tables(manifest) | {MANIFEST: MANIFEST_COLUMNS}


def _find_numbers_beyond(db: Container, manifest: Manifest, database: str) -> list[str]:
    """Numbers of groups, values, nodes and the like that lie beyond what the release holds.

    They are ranks, so none exceeds the rows of the longest table: what is as long as they are large then is no longer
    than the release.
    """
    rows, ends = 1, []
    for name, columns in {**list_reserved_columns(manifest), MANIFEST: []}.items():
        numbered = [called for inside, called, kind in columns if kind == "INTEGER" and inside != ITEM]
        extremes = [function(this=sqlfiles.column(one)) for one in numbered for function in (exp.Min, exp.Max)]
        count, *numbers = db.rows(fill("verify/reach", {"table": table(name, database), "ends": extremes}))[0]
        rows = max(rows, int(count))
        ends += [
            (name, one, number)
            for one, number in zip([c for c in numbered for _ in range(2)], numbers, strict=True)
            if number
        ]
    wrong = [f"{column} of {name} is {number:,}, of {rows:,} rows" for name, column, number in ends if number > rows]
    return wrong + [f"{column} of {name} is {number:,}" for name, column, number in ends if number < -1]


def _compare_contents(db: Container, manifest: Manifest, place: tuple[str, str]) -> list[str]:
    """Tables, columns, types and the view: nothing missing, nothing more, no other definition.

    ``place``: a database and a schema of it; of main the whole database.
    """
    database, schema = place
    expected = list_stated_tables(manifest)
    kinds = list_definitions(db, expected, manifest, schema=schema)
    present = {(kind, name): text for kind, name, text in db.list_objects(database, schema if schema != MAIN else None)}
    wrong = [f"{kind} {name!r} does not belong here" for kind, name in sorted(present.keys() - kinds.keys())]
    wrong += [f"{kind} {name!r} is missing" for kind, name in sorted(kinds.keys() - present.keys())]
    wrong += [f"{k} {name!r} is defined otherwise" for (k, name), t in kinds.items() if present.get((k, name), t) != t]
    for name, columns in expected.items():
        if ("table", name) in present:
            wrong += _compare_columns(name, columns, db.list_fields(table(name, *place)))
    return wrong


def _attach_folder(db: Container, release: StoredRelease, manifest: Manifest, database: str) -> list[str]:
    """Show the stated tables of a folder and make its view; or what of them is missing or otherwise."""
    stated = {name: columns for name, columns in list_stated_tables(manifest).items() if name != MANIFEST}
    wrong = [line for name, columns in stated.items() for line in _attach_table(db, release, name, columns, database)]
    if not wrong:
        db.create_view(manifest.name, get_mechanism(manifest.mechanism).view(manifest), into=database)
    return wrong


def _attach_table(
    db: Container, release: StoredRelease, name: str, columns: list[tuple[str, str]], database: str
) -> list[str]:
    """Make a view of one table of a folder if its columns are the stated ones; what is wrong with them if not.

    The manifest is read at once: what is damaged is no release.
    """
    files = release.files.get(name)
    if not files:
        return [f"table {name!r} is missing"]
    try:
        rows = db.scan_files(files, "parquet")
        wrong = _compare_columns(name, columns, db.list_fields(rows))
        if not wrong and name == MANIFEST:
            db.create_table(name, rows, into=database)
        elif not wrong:
            db.create_view(name, rows, into=database)
    except PrivsqlError as error:
        raise EngineError(f"{name}{ENDING}: can't be read: {error}") from error
    return wrong


def _compare_columns(name: str, columns: list[tuple[str, str]], fields: list[Field]) -> list[str]:
    stated = [Field(*column) for column in columns]
    extra = [f"column {f.name!r} ({f.type}) of {name} is not among the stated ones" for f in fields if f not in stated]
    missing = [f"column {f.name!r} ({f.type}) of {name} is missing" for f in stated if f not in fields]
    order = [] if extra or missing or fields == stated else [f"the columns of {name} lie in another order"]
    return extra + missing + order


def list_definitions(
    db: Container, tables: Columns, manifest: Manifest | None = None, *, schema: str = MAIN
) -> dict[tuple[str, str], str]:
    """List what a release of these tables and its view holds, by kind and name, as the engine writes it down.

    The engine writes the same down in every session, so the latest are remembered.
    """
    view = None if manifest is None else (manifest.name, get_mechanism(manifest.mechanism).view(manifest))
    columns = tuple((name, *map(tuple, fields)) for name, fields in tables.items())
    key = (schema, columns, view and (view[0], sqlfiles.render_sql(view[1])))
    definitions = _DEFINITIONS.get(key)
    if definitions is None:
        definitions = _write_definitions(db, tables, view, schema)
        if len(_DEFINITIONS) >= REMEMBERED:
            _DEFINITIONS.clear()
        _DEFINITIONS[key] = definitions
    return definitions


def _write_definitions(
    db: Container, tables: Columns, view: tuple[str, exp.Query] | None, schema: str
) -> dict[tuple[str, str], str]:
    """Let the engine write down empty tables and a view, in a database that is thrown away."""
    db.create_database(STATED)
    try:
        if schema != MAIN:
            db.create_schema(schema, into=STATED)
        for name, columns in tables.items():
            db.define_table(name, [Field(*column) for column in columns], into=STATED, schema=schema)
        if view is not None:
            db.create_view(*view, into=STATED, schema=schema)
        return {(kind, name): text for kind, _, name, text in db.list_relations(STATED)}
    finally:
        db.detach(STATED)
