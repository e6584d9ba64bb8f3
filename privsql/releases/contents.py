"""Check that a release on disk holds exactly the objects that its manifest lists, before anything of it is read."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from privsql.engine import sqlfiles
from privsql.engine.database import ViewDefinition
from privsql.engine.files import find_hidden_parts
from privsql.engine.open import log_of, open_locked
from privsql.engine.sqlfiles import Field, Holes, all_rows, column, fill, table, temp_table
from privsql.errors import EngineError, GuaranteeError, PrivsqlError, UsageError, suggest_file
from privsql.mechanisms.registry import get_mechanism
from privsql.model.checks import Check, CheckedRelease, CheckResult, run_checks
from privsql.model.manifest import MANIFEST, Manifest, StatedFile
from privsql.releases.draft import COUNTED, HOLDER, MAIN, digest_schema, digest_tables, sweep_drafts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from privsql.engine.database import Container, Definition, Relations
    from privsql.mechanisms.base import Columns, Mechanism
    from privsql.model.arrays import ReleaseArrays
    from privsql.source.targets import Target

# Attached releases ----------------------------------------------------------------------------------------------------
# A release whose tables an engine can read, with its manifest and the mechanism that made it.

MANIFEST_COLUMNS = [("key", "VARCHAR"), ("value", "VARCHAR")]
MOST_LABELS = 1000  # texts of a column with an order of its own


@dataclass(frozen=True)
class AttachedRelease:
    """A release whose tables lie in one database of an open session.

    Attributes:
        db: The session; or another engine that has the rows of the tables and evaluates queries on them.
        database: The name of the database that holds the tables.
        manifest: What the release states about itself.
        mechanism: The mechanism that made the release.
        checks: The results of comparing what the release holds with what its manifest states.
    """

    db: Container
    database: str
    manifest: Manifest
    mechanism: Mechanism[Any, Any]
    checks: list[CheckResult] = field(default_factory=list)

    def require_intact(self, path: object) -> None:
        """Check that the release holds what its manifest states, and no other table, view or metadata.

        Args:
            path: Where the release lies, for messages.

        Raises:
            GuaranteeError: It does not.
        """
        for result in self.checks:
            if not result.ok:
                raise GuaranteeError(f"{path}: {result.offending[0]}; verify it")

    def counted_by(self, engine: Relations) -> AttachedRelease:
        """Return the same release, with its tables queried in the engine that holds their rows, such as Spark.

        Args:
            engine: The engine, which has the rows of the tables in its own database ``release``.
        """
        return replace(self, db=cast("Container", engine), database=COUNTED)

    @cached_property
    def checked(self) -> CheckedRelease[Any, Any]:
        """Return the release with its stated parameters and facts, as the mechanism's checks take it."""
        return self.mechanism.read_release(self.db, self.manifest, self.database)

    def read_arrays(self) -> ReleaseArrays:
        """Read the tables of the release as arrays, which models and attackers use."""
        return self.mechanism.answers(self.db, self.manifest).read_arrays(self.database)

    @property
    def tables(self) -> Columns:
        """Return the (name, type) pairs of the columns of every table except the manifest."""
        return self.mechanism.tables(self.manifest)

    @property
    def stated_tables(self) -> Columns:
        """Return the (name, type) pairs of the columns of every table, including the manifest."""
        return self.tables | {MANIFEST: MANIFEST_COLUMNS}

    @cached_property
    def views(self) -> list[ViewDefinition]:
        """Return the views that the mechanism defines over the tables of the release."""
        return self.mechanism.define_views(self.manifest)

    @property
    def definitions(self) -> list[Definition]:
        """Return all that a release stores besides its tables: views, and SQL functions that count their rows.

        These functions return counts with intervals, so that people can query a release without privsql.
        """
        functions = self.mechanism.functions(self.manifest)
        return [*self.views, *([functions] if functions else [])]

    # privsql's own columns: where a column of the publisher's has the name of one (letters of either case are the
    # same), privsql's is renamed by appended underscores. Names are derived, never read from the manifest.

    @cached_property
    def reserved_columns(self) -> dict[str, list[tuple[str, str, str]]]:
        """Return the columns that privsql adds to each table, such as the number of the bucket.

        Returns:
            For each table, triples (name in privsql's code, name in the table, type).
        """
        return {name: one.list_reserved(self.manifest.roles) for name, one in self.mechanism.layout.items()}

    @property
    def renamed_columns(self) -> dict[str, dict[str, str]]:
        """Return the columns of privsql that have another name because a column of the publisher already has theirs.

        Returns:
            For each table or view, the name in privsql's code -> the name in the release.
        """
        published = {one.name for one in self.manifest.roles.columns}
        every = {table: [pair[:2] for pair in columns] for table, columns in self.reserved_columns.items()}
        for view in self.views:
            every[view.name] = [(one.rstrip("_"), one) for one in view.query.named_selects if one not in published]
        renamed = {table: {one: other for one, other in pairs if one != other} for table, pairs in every.items()}
        return {table: pairs for table, pairs in renamed.items() if pairs}

    # Orders of labels (ENUM): a release lists only the labels that its tables show. Columns of one type share a list,
    # so that they compare as in the source. Releases whose only promise is a budget list none, because they hide which
    # labels occur.

    def stored_orders(self, orders: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return for each column those of the given texts that occur in the tables, in the given order.

        A manifest states this order. The result is empty if the release protects the presence of records, and so hides
        which texts occur.

        Args:
            orders: The texts of each column with an order of its own, such as an ENUM, in that order.
        """
        if not self.mechanism.states_counts:
            return {}
        published = {}
        for name, labels in orders.items():
            visible = self._list_labels([other for other, theirs in orders.items() if theirs == labels])
            named = [label for label in labels if label in visible]
            if named and len(named) <= MOST_LABELS:
                published[name] = named
        return published

    def wrong_orders(self) -> list[str]:
        """Check the order that the manifest states for the texts of a column, such as an ENUM.

        Returns:
            A line for each stated text that no table holds, and for each text in a table that is not stated.
        """
        wrong, orders = [], self.manifest.orders
        for name, labels in orders.items():
            visible = self._list_labels([other for other, theirs in orders.items() if theirs == labels])
            wrong += [f"orders: {name}: {label!r} is not in the release" for label in labels if label not in visible]
            wrong += [f"orders: {name}: {label!r} is missing" for label in sorted(visible - set(labels))]
        return wrong

    def list_groups(self, columns: Iterable[str]) -> dict[str, list[str]]:
        """Return the different texts in each of some columns, sorted; a manifest states them for grouped columns."""
        return {name: sorted(self._list_labels([name])) for name in columns}

    def _list_labels(self, columns: Sequence[str]) -> set[str]:
        """Return the different texts in some columns of the publisher, in all tables that have them."""
        labels: set[str] = set()
        for name, listed in self.tables.items():
            own = {one for _, one, _ in self.reserved_columns.get(name, [])}
            for shared in [one for one, _ in listed if one in columns and one not in own]:
                holes: Holes = {"table": table(name, self.database), "column": column(shared)}
                labels |= {row[0] for row in self.db.rows(fill("verify/different", holes))}
        return labels


# Files on disk --------------------------------------------------------------------------------------------------------
# A release as it lies on disk, examined before anything of it is opened.
#
# A file must be a plain file without a write-ahead file beside it, which attaching would replay. A folder must hold
# plain Parquet files and nothing else, or for a table a folder of its parts in their order: a symbolic link would read
# somebody else's file, a pipe would wait for ever. Of a database with a release in a schema nothing else is read.

ENDING = ".parquet"
VIEWS_FILE = "views.sql"  # the script in a folder that creates the views
MOST_ENTRIES = 10_000  # a folder with more entries is refused
WAL_ENDINGS = ("", ".checkpoint", ".recovery")  # endings of the files that DuckDB writes ahead


@dataclass(frozen=True)
class StoredRelease:
    """Where a release lies on disk, and which files it consists of; nothing in them has been read.

    Attributes:
        target: The place that the caller gave.
        place: The file or folder with all links resolved. For a schema on a caller's open connection, it is the file to
            which the schema was copied.
        is_folder: Whether the release is a folder of Parquet files.
        files: The Parquet files of each table, if the release is a folder.
        strange: The entries of the folder that belong to no table.
        objects: All objects (kind, name, definition) of a schema on a caller's open connection; None for other
            releases.
    """

    target: Target
    place: Path
    is_folder: bool = False
    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    objects: Sequence[tuple[str, str, str]] | None = None

    @property
    def database_file(self) -> Path | None:
        """Return the release's own database file to attach.

        The result is None for a folder or a schema, which is read through views.
        """
        return None if self.is_folder or self.target.schema is not None else self.place

    @property
    def holder_file(self) -> Path | None:
        """Return the database file in which the release is a schema, and which must be attached.

        The result is None for other releases.
        """
        return None if self.target.schema is None else self.place

    @property
    def readable_files(self) -> list[Path]:
        """Return the files of the folder that the engine may read."""
        return [file for parts in self.files.values() for file in parts]

    @property
    def parts(self) -> dict[str, Path]:
        """Return the files of the folder, by their paths relative to the folder."""
        return {file.relative_to(self.place).as_posix(): file for file in self.readable_files}


def name_holders(releases: Iterable[StoredRelease]) -> dict[str, Path | None]:
    """Choose a name under which to attach each database file that holds a release as one of its schemas.

    Returns:
        The name -> the file. A file that holds several releases occurs once.
    """
    files = dict.fromkeys(one.holder_file for one in releases if one.holder_file is not None)
    return {f"holder{i}": file for i, file in enumerate(files)}


def locate_release(target: Target) -> StoredRelease:
    """Find a release on disk, after restoring what an interrupted publication left behind.

    Raises:
        EngineError: There is no release at the target, or its path can't be read.
        GuaranteeError: A write-ahead log lies beside the file and may change what the file holds.
        UsageError: The target is a schema on an open connection that holds no release.
    """
    sweep_drafts(target)
    if target.opened is not None and target.schema is not None:
        try:
            place, objects = target.opened.copy_schema(target.schema, MANIFEST, _read_contents)
        except UsageError as error:
            raise UsageError(f"{target} is not a release of privsql: {error}") from error
        return StoredRelease(target, place, objects=objects)
    try:
        place = target.file.resolve()
        mode = place.stat().st_mode
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        gone = f"no such release{suggest_file(target.file)}"
        raise EngineError(f"{target}: {gone if missing else error.strerror}") from error
    except (ValueError, RuntimeError) as error:  # no text of a path, or links in a circle
        raise EngineError(f"{str(target)!r} is a broken link") from error
    if stat.S_ISDIR(mode):
        if target.schema is not None:
            raise EngineError(f"{target.file} is a folder; folders have no schemas")
        return _scan_folder(target, place)
    if not stat.S_ISREG(mode):
        raise EngineError(f"{target.file} is neither a file nor a folder")
    for ending in WAL_ENDINGS:
        log = f"{log_of(place)}{ending}"
        if os.path.lexists(log):
            may_change = f"{log} lies beside it and may change what it holds; close the release where it is open"
            raise GuaranteeError(f"{target}: {may_change}")
    return StoredRelease(target, place)


def digest_release(target: Target) -> str:
    """Return the SHA-256 of a release.

    It is that of its file, of all files of its folder in order, or of its schema's tables.
    """
    place, schema = target.file, target.schema
    if schema is not None:
        if target.catalog is not None:
            with target.catalog.open_tables(schema) as (db, names):
                if MANIFEST not in names:
                    raise UsageError(f"schema {schema!r} has no table {MANIFEST!r}")
                return digest_tables(db, names, COUNTED, ordered=False)
        if target.opened is not None:
            target = replace(target, opened=target.opened.renew())  # as it is now; the copy goes with this object
            place = locate_release(target).place
        with open_locked({HOLDER: place.resolve()}, home=HOLDER) as db:
            return digest_schema(db, HOLDER, db.find_schema(HOLDER, schema) or schema)
    hasher = hashlib.sha256()
    for path in sorted(one for one in place.rglob("*.parquet") if one.is_file()) if place.is_dir() else [place]:
        with path.open("rb") as content:
            hasher.update(hashlib.file_digest(content, "sha256").digest())
    return hasher.hexdigest()


def _scan_folder(target: Target, place: Path) -> StoredRelease:
    files: dict[str, tuple[Path, ...]] = {}
    strange: list[str] = []
    for entry in _list_entries(target, place):
        name = entry.name.removesuffix(ENDING)
        if entry.name == VIEWS_FILE and entry.is_file(follow_symlinks=False):
            continue  # its text is compared with the views
        if name == entry.name or entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            strange.append(entry.name)
        elif entry.is_dir():
            parts = _list_entries(target, place / entry.name)
            strange += [f"{entry.name}/{part.name}" for part in parts if not _is_part(part)]
            files[name] = tuple(place / entry.name / part.name for part in parts if _is_part(part))
        else:
            files[name] = (place / entry.name,)
    return StoredRelease(target, place, is_folder=True, files=files, strange=tuple(sorted(strange)))


def _is_part(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and entry.name.endswith(ENDING)


def _list_entries(target: Target, place: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a release's folder, sorted by name.

    Raises:
        EngineError: The folder has too many entries, or can't be read.
    """
    try:
        with os.scandir(place) as entries:
            listing = list(islice(entries, MOST_ENTRIES + 1))
    except OSError as error:
        raise EngineError(f"{target}: {error.strerror}") from error
    if len(listing) > MOST_ENTRIES:
        raise EngineError(f"{target} holds more than {MOST_ENTRIES:,} files")
    return sorted(listing, key=lambda entry: entry.name)


# Leftovers ------------------------------------------------------------------------------------------------------------
# Checks that the files of a release hold nothing besides its tables: no free blocks, deleted rows or other metadata.
#
# Somebody who makes a file by hand can put bytes where no reader looks: into the unused end of a block, or among the
# pages of a column. These checks do not find them; a copy that is written from the tables alone has none. Schemas are
# not searched.

LEFTOVERS = "its files hold no free blocks, deleted rows or other metadata"
UNUSED = "the footers of its files name only values of its tables"
CUT, LONGEST_CHARACTER = 256, 4  # bytes at which DuckDB cuts a text in statistics, without dividing a character


def check_layout(db: Container, stored: StoredRelease, database: str) -> list[CheckResult]:
    """Check which files a release consists of and how they are laid out, without decoding any of them.

    Args:
        db: The session that has attached the release.
        stored: The release on disk.
        database: The name of the release's database; empty for a folder.
    """

    def find_leftovers() -> list[str]:
        if not stored.is_folder:
            return db.find_leftovers(db.attached_name(stored.place) or database)  # a release that is named twice is one
        return [f"{name}: holds {line}" for name, path in stored.parts.items() for line in find_hidden_parts(path)]

    return run_checks(db, [Check(LEFTOVERS, find_leftovers)])


def check_statistics(release: AttachedRelease, stored: StoredRelease) -> list[CheckResult]:
    """Check that the statistics in Parquet files name only values that occur in the tables.

    Statistics could reveal values that the publisher removed. Columns of lists are not checked.
    """
    if not stored.is_folder:
        return []

    def find_unused() -> list[str]:
        db, wrong = release.db, []
        for name, files in stored.files.items():
            rows, stated = table(name, release.database), db.list_statistics(files)
            wrong += [f"{name}: metadata {text[:40]!r}" for about, text in stated if about is None]
            for one in (one for one, kind in release.stated_tables[name] if not kind.endswith("[]")):
                strange = {text for about, text in stated if about == one}
                if strange:
                    value = exp.cast(column(one), "VARCHAR")
                    holes: Holes = {"table": rows, "column": value}
                    holes |= {"among": value.isin(*map(exp.Literal.string, strange))}
                    strange -= {row[0] for row in db.rows(fill("verify/texts_found", holes))}
                strange = {text for text in strange if not _is_cut_text(db, rows, one, text)}
                wrong += [f"{name}: statistics of {one} name {len(strange)} values that no row has"] if strange else []
        return wrong

    return run_checks(release.db, [Check(UNUSED, find_unused)])


def _is_cut_text(db: Container, rows: exp.Table, name: str, text: str) -> bool:
    """Return whether ``text`` may be the beginning of a longer value in a column.

    Parquet statistics store long texts cut to a fixed length, so such a text need not occur in the column itself.

    Args:
        db: The session.
        rows: The table.
        name: The column.
        text: The text in the statistics.
    """
    if not CUT - LONGEST_CHARACTER < len(text.encode()) <= CUT:
        return False
    begins = sqlfiles.first_characters(column(name), len(text))
    least, most = text, text[:-1] + chr(max(ord(text[-1]) - 1, 0))  # an upper bound ends with the next character
    among = begins.isin(exp.Literal.string(least), exp.Literal.string(most))
    return bool(db.rows(fill("verify/texts_found", {"table": rows, "column": begins, "among": among})))


# Contents -------------------------------------------------------------------------------------------------------------
# Checks that a release holds exactly the tables and the view that its manifest states, on which all others stand.

HOLDS = "holds the stated tables and no other table, view or metadata"
FOLDER_HOLDS = "the folder holds the stated files, byte for byte, and no others"
ORDERS = "orders name just the labels that it holds"
WITHIN = "codes and numbers refer to rows of the release"
ITEM = "item"  # the publisher's column of items
STATED = "stated"  # a database in memory, in which the engine writes stated definitions in its own words
REMEMBERED = 64  # definitions that are kept
_DEFINITIONS: dict[object, dict[tuple[str, str], str]] = {}
ENTRIES, BYTES = 100, 2**24  # of a manifest; sql/duckdb/extent stops behind so many


def admit_release(
    db: Container, stored: StoredRelease, database: str, counts: Relations | None = None
) -> AttachedRelease:
    """Check that a release holds exactly what its manifest states, and return it with the results of these checks.

    Nothing in the release is evaluated: its manifest must be a plain table, and its views are compared as text.

    Args:
        db: A session that has attached the release's file.
        stored: The release on disk.
        database: The name of the release's database. It is empty for a folder or a schema; if these are as stated,
            views of their tables are created in ``db``.
        counts: Another engine, such as Spark, that has the rows of the tables in its own database ``release``. None if
            ``db`` has them.

    Raises:
        UsageError: There is no manifest.
        EngineError: The manifest is invalid.
    """
    try:
        holder, schema = _locate_tables(db, stored, database)
        release = _read_manifest(db, holder, schema, database)
    except PrivsqlError as error:
        raise type(error)(f"{stored.target} is not a release of privsql: {error}") from error
    if stored.target.schema is not None:
        objects = db.list_objects(holder, schema) if stored.objects is None else stored.objects
        wrong = _compare_contents(release, holder, schema, objects)
        if not wrong:  # the rest of its database is not examined
            for name in release.stated_tables:
                db.create_view(name, all_rows(table(name, holder, schema)), into=database)
            db.define_objects(release.views, into=database)
        counted = release if counts is None else release.counted_by(counts)
        counted.checks.extend(_run_contents_checks(counted, lambda: wrong))
        return counted
    if not stored.is_folder:
        release.checks.extend([*check_contents(release), *check_layout(db, stored, database)])
        return release
    release.checks.extend(run_checks(db, [Check(FOLDER_HOLDS, lambda: _compare_files(release, stored))]))
    if release.checks[0].ok:  # whatever else lies there is not read
        wrong = []
        for name, columns in release.stated_tables.items():
            wrong += [] if name == MANIFEST else _attach_table(db, stored, name, columns, database)
        if not wrong:
            db.define_objects(release.views, into=database)
        release.checks.extend(_run_contents_checks(release, lambda: wrong))
        release.checks.extend(check_layout(db, stored, database))
    return release


def state_file(path: Path) -> StatedFile:
    """Return the size in bytes and the SHA-256 of a file."""
    with path.open("rb") as content:
        return StatedFile(size=path.stat().st_size, sha256=hashlib.file_digest(content, "sha256").hexdigest())


def _compare_files(release: AttachedRelease, stored: StoredRelease) -> list[str]:
    """Return a line for each file of a folder that the manifest does not state, or whose bytes differ from it."""
    stated, present, tables = release.manifest.files, stored.parts, release.stated_tables
    present.pop(f"{MANIFEST}{ENDING}", None)
    strange = [*stored.strange, *(name for name in stored.files if name not in tables)]
    wrong = [f"{name} does not belong here" for name in [*strange, *sorted(present.keys() - stated.keys())]]
    wrong += [f"{name} is missing" for name in sorted(stated.keys() - present.keys())]
    wrong += [
        f"{name} has other bytes than the manifest states"
        for name, path in present.items()
        if name in stated and (path.stat().st_size != stated[name].size or state_file(path) != stated[name])
    ]
    if wrong:
        return wrong
    script, expected = stored.place / VIEWS_FILE, view_script(release, stored.place).encode()
    if script.is_file():
        with script.open("rb") as file:
            if file.read(len(expected) + 1) == expected:
                return []
    return [f"{VIEWS_FILE} is not that of this manifest"]


def complete_folder(db: Container, release: AttachedRelease, folder: Path) -> None:
    """Add to a folder of tables a script that creates the views, and a manifest that states every file."""
    files = {path.relative_to(folder).as_posix(): state_file(path) for path in sorted(folder.rglob(f"*{ENDING}"))
             if path.is_file()}  # fmt: skip
    db.register_arrow("stated", release.manifest.model_copy(update={"files": files}).as_table())
    db.export_parquet(temp_table("stated"), folder / f"{MANIFEST}{ENDING}")
    db.drop("stated")
    (folder / VIEWS_FILE).write_text(view_script(release, folder), encoding="utf-8", newline="\n")


def create_view(name: str, query: exp.Query) -> exp.Create:
    """Return the SQL statement that creates a view."""
    return exp.Create(this=table(name), kind="VIEW", expression=query)


def view_of_parquet(name: str, path: str) -> exp.Create:
    """Return DuckDB's SQL statement that creates a view of Parquet files."""
    return create_view(name, exp.select("*").from_(exp.func("read_parquet", exp.Literal.string(path))))


def view_script(release: AttachedRelease, folder: Path) -> str:
    """Return a DuckDB script that creates the tables and views of a release.

    It must run inside the release's folder.
    """
    files = [f"{name}{ENDING}" for name in release.stated_tables]
    paths = [f"{file}/*{ENDING}" if (folder / file).is_dir() else file for file in files]
    shown = [view_of_parquet(*one) for one in zip(release.stated_tables, paths, strict=True)]
    made = [*shown, *(create_view(view.name, view.query) for view in release.views)]
    lines = [f"-- Tables and views of this release, for DuckDB in this folder: .read {VIEWS_FILE}"]
    lines += [f"-- SHA-256 of {MANIFEST}{ENDING}, which states those of the other files:"]
    lines += [f"-- {state_file(folder / f'{MANIFEST}{ENDING}').sha256}"]
    return "\n".join([*lines, *(f"{sqlfiles.render_sql(one)};" for one in made), ""])


def check_contents(release: AttachedRelease) -> list[CheckResult]:
    """Check what a release holds against its manifest, in order, and stop at the first check that fails.

    All other checks of the release rely on these.
    """
    database, objects = release.database, release.db.list_objects
    return _run_contents_checks(release, lambda: _compare_contents(release, database, MAIN, objects(database)))


def _locate_tables(db: Container, stored: StoredRelease, database: str) -> tuple[str, str]:
    """Find the tables of a release. For a folder, also load its manifest as a table.

    Args:
        db: The session that has attached the release.
        stored: The release on disk.
        database: The name of the release's database; empty for a folder or a schema.

    Returns:
        The names of the database and of the schema that hold the tables.

    Raises:
        UsageError: There is no such schema, or no manifest.
    """
    if stored.is_folder:
        wrong = _attach_table(db, stored, MANIFEST, MANIFEST_COLUMNS, database)
        if wrong:
            raise UsageError(wrong[0])
    if stored.target.schema is None:
        return database, MAIN
    holder = db.attached_name(stored.place) or database
    return holder, db.require_schema(holder, stored.target.schema)


def _run_contents_checks(release: AttachedRelease, wrong: Callable[[], list[str]]) -> list[CheckResult]:
    holds = run_checks(release.db, [Check(HOLDS, wrong)])
    if not holds[0].ok:
        return holds
    more = [Check(WITHIN, lambda: _find_numbers_beyond(release))]
    if release.manifest.orders:
        more.append(Check(ORDERS, release.wrong_orders))
    return holds + run_checks(release.db, more)


def _read_manifest(db: Container, holder: str, schema: str, database: str) -> AttachedRelease:
    """Read the manifest from a schema, and return the release that it describes.

    Args:
        db: The session.
        holder: The database in which the manifest lies.
        schema: The schema in which it lies.
        database: The database in which the tables of the release will be read. For a folder or a schema, views of the
            tables are created there later.

    Raises:
        UsageError: The schema has no manifest, or the manifest is not a plain table.
        EngineError: The manifest is too large or invalid.
    """
    stated = list_definitions(db, {MANIFEST: MANIFEST_COLUMNS}, schema=schema)
    present = {(kind, name): text for kind, place, name, text in db.list_relations(holder) if place == schema}
    if not stated.items() <= present.items():
        raise UsageError(f"it has no table {MANIFEST}; 'privsql publish' makes releases")
    rows = table(MANIFEST, holder, schema)
    entries, length = db.rows(fill("duckdb/extent", {"table": rows}))[0]
    if entries > ENTRIES or length > BYTES:
        raise EngineError("its manifest is too large")
    manifest = Manifest.from_rows(db.rows(all_rows(rows)))
    try:
        mechanism = get_mechanism(manifest.mechanism, manifest.algorithm)
        mechanism.read(manifest)
    except UsageError as error:
        raise EngineError(str(error)) from error
    release = AttachedRelease(db, database, manifest, mechanism)
    if manifest.own_columns != release.renamed_columns:
        raise EngineError("its manifest gives privsql's columns wrong names")
    if mechanism.states_counts and None in (manifest.records, manifest.published, manifest.suppressed):
        raise EngineError("its manifest does not state how many records are published")
    return release


def _read_contents(db: Container, database: str, schema: str) -> tuple[Columns, Sequence[Definition]]:
    """Read the manifest in a schema.

    Returns:
        The columns of all tables that the manifest states, and its views and functions.
    """
    release = _read_manifest(db, database, schema, database)
    return release.stated_tables, release.definitions


def _find_numbers_beyond(release: AttachedRelease) -> list[str]:
    """Return a line for each column with a number of a bucket, value or node above the longest table's number of rows.

    These numbers count from the first bucket, value or node, so a larger one is wrong. Code that indexes arrays by them
    relies on this check to keep the arrays small.
    """
    rows, ends = 1, []
    for name, columns in {**release.reserved_columns, MANIFEST: []}.items():
        numbered = [one for inside, one, kind in columns if kind == "INTEGER" and inside != ITEM]
        extremes = [(one, function) for one in numbered for function in (exp.Min, exp.Max)]
        holes: Holes = {"table": table(name, release.database)}
        holes |= {"ends": [function(this=column(one)) for one, function in extremes]}
        length, *numbers = release.db.rows(fill("verify/reach", holes))[0]
        rows = max(rows, int(length))
        ends += [(f"{one} of {name}", number) for (one, _), number in zip(extremes, numbers, strict=True) if number]
    wrong = [f"{where} is {number:,}, of {rows:,} rows" for where, number in ends if number > rows]
    return wrong + [f"{where} is {number:,}" for where, number in ends if number < -1]


def _compare_contents(
    release: AttachedRelease, database: str, schema: str, objects: Sequence[tuple[str, str, str]]
) -> list[str]:
    """Compare the tables, columns, types and views that exist with those the release states.

    Args:
        release: The release, for what it states.
        database: The database that holds the tables.
        schema: The schema that holds them. If it is ``main``, the whole database is compared.
        objects: The objects that exist, as (kind, name, definition).

    Returns:
        A line for each difference.
    """
    db, expected = release.db, release.stated_tables
    kinds = list_definitions(db, expected, release.definitions, schema=schema)
    present = {(kind, name): text for kind, name, text in objects}
    wrong = [f"{kind} {name!r} does not belong here" for kind, name in sorted(present.keys() - kinds.keys())]
    wrong += [f"{kind} {name!r} is missing" for kind, name in sorted(kinds.keys() - present.keys())]
    for (kind, name), text in kinds.items():
        if present.get((kind, name), text) != text:
            wrong.append(f"{kind} {name!r} is defined otherwise")
            if kind == "table":
                wrong += _compare_columns(name, expected[name], db.list_fields(table(name, database, schema)))
    return wrong


def _attach_table(
    db: Container, stored: StoredRelease, name: str, columns: list[tuple[str, str]], database: str
) -> list[str]:
    """Create a view of one table of a folder, if the table has the columns that are stated.

    The manifest is copied into a table instead, so that a damaged file is found at once.

    Args:
        db: The session.
        stored: The release on disk.
        name: The table.
        columns: Its stated columns as (name, type).
        database: The database in which the view is created.

    Returns:
        A line for each difference from the stated columns; empty if the view was created.
    """
    files = stored.files.get(name)
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
    db: Container, tables: Columns, more: Sequence[Definition] = (), *, schema: str = MAIN
) -> dict[tuple[str, str], str]:
    """Return the definitions of tables, views and functions as the engine writes them.

    They are compared as text with the definitions in a release. To get them, the objects are created in a temporary
    database, and the engine's text is read. Recent results are kept, because they are the same in every session.

    Args:
        db: The session.
        tables: The columns of each table.
        more: The views and functions.
        schema: The schema in which the objects are created.

    Returns:
        (kind, name) -> definition.
    """
    columns = tuple((name, *map(tuple, fields)) for name, fields in tables.items())
    beside = tuple(
        (one.name, sqlfiles.render_sql(one.query), one.comment) if isinstance(one, ViewDefinition) else one
        for one in more
    )
    key = (schema, columns, beside)
    definitions = _DEFINITIONS.get(key)
    if definitions is not None:
        return definitions
    db.create_database(STATED)
    try:
        if schema != MAIN:
            db.create_schema(schema, into=STATED)
        for name, fields in tables.items():
            db.define_table(name, [Field(*one) for one in fields], into=STATED, schema=schema)
        db.define_objects(more, into=STATED, schema=schema)
        if more:
            definitions = {(kind, name): text for kind, name, text in db.list_objects(STATED, schema)}
        else:  # listing functions takes most of the time
            definitions = {(kind, name): text for kind, _, name, text in db.list_relations(STATED)}
    finally:
        db.detach(STATED)
    if len(_DEFINITIONS) >= REMEMBERED:
        _DEFINITIONS.clear()
    _DEFINITIONS[key] = definitions
    return definitions
