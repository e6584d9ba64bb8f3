"""Open a release for an analyst's SQL, with lookup tables beside it, and commit one into a schema of a database."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sqlglot import exp

from privsql import markup
from privsql.answers.answer import Answer, find_unknown
from privsql.answers.evaluate_select import Asking
from privsql.answers.present import Presented
from privsql.answers.question import LOOKUPS
from privsql.calls import as_path, as_paths, between
from privsql.engine import sqlfiles
from privsql.engine.files import PACKED, fold, kind_of, private
from privsql.engine.open import locked, released, scratch
from privsql.engine.sqlfiles import all_rows, fill, table, temp
from privsql.errors import EngineError, GuaranteeError, LateError, PrivsqlError, UsageError
from privsql.mechanisms.registry import of
from privsql.model.manifest import BROKEN, MANIFEST
from privsql.releases.contents import ENDING, admitted, holders, stored
from privsql.releases.draft import MAIN, Draft, exists, folded, schema_of
from privsql.releases.statements import examine, lines
from privsql.source.places import parted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    import pandas as pd

    from privsql.answers.present import Limits
    from privsql.answers.question import Lookup
    from privsql.calls import PathLike
    from privsql.engine.database import Locked, Relations, Workshop
    from privsql.engine.progress import Options
    from privsql.model.manifest import Manifest, Result, Structure
    from privsql.releases.contents import Stored

# Lookups --------------------------------------------------------------------------------------------------------------
# An analyst's own tables beside a release: found by the names that SQL gives them, read when a query names them.
#
# What is attached is somebody else's file as well. It is opened after the lock, its tables are copied under names of
# privsql's own into a database of their own, and a view of it is bounded in rows and seconds and can read no file.

ROWS = 10_000_000  # of a lookup
OWN = {"memory", "temp", "system", "release", LOOKUPS}  # databases of the session


@dataclass(frozen=True)
class Known:
    """A table of an attached file: by what it can be called, from the file down, and what reads it."""

    path: Path
    names: tuple[str, str, str]
    rows: exp.Select

    def answers_to(self, names: tuple[str, ...]) -> bool:
        """Whether it is meant: by its own name where it is in schema main, with its schema, its file, or both."""
        file, schema, own = map(fold, self.names)
        called = {(file, schema, own), (schema, own)}
        if schema == "main":
            called |= {(file, own), (own,)}
        return tuple(map(fold, names)) in called

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return ".".join(self.names[1:] if fold(self.names[1]) != "main" else self.names[2:])


class Lookups:
    """The tables of attached files; nothing of them is read before ``find``."""

    def __init__(self, db: Locked, paths: Sequence[Path]) -> None:
        self._db = db
        self._known = [known for number, path in enumerate(paths) for known in self._of(path, f"attached{number}")]
        self._copied: dict[tuple[str, str, str], tuple[str, tuple[str, ...]]] = {}

    def _of(self, path: Path, database: str) -> list[Known]:
        kind = kind_of(path.name) if path.suffix else None
        if kind is not None:
            called = (Path(path.stem) if path.suffix.lower() in PACKED else path).stem
            return [Known(path, (called, "main", called), self._db.scanned([path.resolve()], kind))]
        self._db.attach(path.resolve(), database, read_only=True)
        listed = [(schema, name) for _, schema, name, _ in self._db.listed(database)]
        return [Known(path, (path.stem, *names), all_rows(table(names[1], database, names[0]))) for names in listed]

    def find(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The table in database ``lookups`` that a query names, and its columns.

        ``UsageError`` if there is none or more than one or it has too many rows; ``EngineError`` if it can't be read.
        """
        shown = ".".join(names)
        found = [one for one in self._known if one.answers_to(names)]
        if not found:
            known = ", ".join(one.shown for one in self._known) or "none is attached"
            raise UsageError(f"JOIN: there is no lookup table {shown!r} ({known}); attach it with --attach")
        if len(found) > 1:
            files = ", ".join(str(one.path) for one in found)
            raise UsageError(f"JOIN: {shown!r} is in {files}; write the file's name before it")
        if len(names) == 3 and fold(names[0]) in OWN:
            raise UsageError(f"JOIN: {names[0]!r} can't be a file's name here; rename {found[0].path}")
        one = found[0]
        if one.names not in self._copied:
            self._copied[one.names] = self._copy(one, f"l{len(self._copied)}")
        return self._copied[one.names]

    def _copy(self, one: Known, name: str) -> tuple[str, tuple[str, ...]]:
        bounded = one.rows.copy().limit(ROWS + 1)
        try:
            with self._db.limited():
                self._db.make(name, bounded, into=LOOKUPS)
        except PrivsqlError as error:
            instead = "; store what it yields in a table" if isinstance(error, LateError) else ""
            raise EngineError(f"{one.path}: {one.shown} can't be read: {error}{instead}") from error
        made = table(name, LOOKUPS)
        if self._db.rows(fill("core/size", {"table": made}))[0][0] > ROWS:
            raise UsageError(f"{one.path}: {one.shown} has more than {ROWS:,} rows, too many for a lookup table")
        return name, tuple(field.name for field in self._db.fields(made))


def plain(paths: Sequence[Path]) -> list[Path]:
    """The files that an analyst names; ``EngineError`` for what is no plain file."""
    for path in paths:
        if not path.is_file():
            raise EngineError(f"{path}: no such file")
    return [path.resolve() for path in paths]


# Opened ---------------------------------------------------------------------------------------------------------------
# A release opened alone: the only way in which an analyst's SQL meets one. A release is a stranger's file.
#
# It is attached read-only, under a name of privsql's own, to a locked session that can reach nothing else, and refused
# unless it holds what its manifest states and no other table, view or metadata.

RELEASE = "release"  # the database as which a release is attached


@dataclass(frozen=True)
class Seen:
    """A release that is attached. ``held``: whether it holds what it states; if not, nothing of it may be used."""

    manifest: Manifest
    held: list[Result]

    def refuse(self, path: Path) -> None:
        """``GuaranteeError`` unless it holds what it states and no other table, view or metadata."""
        for result in self.held:
            if not result.ok:
                raise GuaranteeError(f"{path}: {result.offending[0]}; verify it")


@contextmanager
def seen(path: Path, attach: Sequence[Path] = (), options: Options | None = None) -> Iterator[tuple[Locked, Seen]]:
    """A release, looked at; ``attach``: files of an analyst's own that may be read besides."""
    found, files = stored(path), plain(attach)
    databases = {RELEASE: found.database, LOOKUPS: None, **holders([found])}
    with locked(databases, [*found.readable, *files], home=RELEASE, options=options) as db:
        yield db, Seen(*admitted(db, found, RELEASE))


@contextmanager
def opened(
    path: Path, attach: Sequence[Path] = (), options: Options | None = None
) -> Iterator[tuple[Locked, Manifest]]:
    """A release that holds what it states and no other table, view or metadata; ``GuaranteeError`` for any other."""
    with seen(path, attach, options) as (db, release):
        release.refuse(path)
        yield db, release.manifest


@contextmanager
def explained(*paths: Path) -> Iterator[None]:
    """Let arithmetic that fails on a damaged release say so: ``GuaranteeError`` with the check that does not hold.

    An error on releases whose checks hold stays what it is.
    """
    try:
        yield
    except BROKEN as error:
        for path in paths:
            with seen(path) as (db, release):
                release.refuse(path)
                failed = next((one for one in examine(db, release.manifest, RELEASE) if not one.ok), None)
            if failed is not None:
                raise GuaranteeError(f"{path}: {failed.name}: {failed.offending[0]}; verify it") from error
        raise


@contextmanager
def together(paths: Sequence[Path], readable: Sequence[Path] = ()) -> Iterator[tuple[Locked, list[Manifest]]]:
    """Several releases, the i-th attached as database ``r<i>``; ``GuaranteeError`` as for one."""
    found = [stored(path) for path in paths]
    databases = {f"r{i}": one.database for i, one in enumerate(found)}
    files = [file for one in found for file in one.readable]
    with locked(databases | holders(found), [*files, *readable], home="r0") as db:
        manifests = []
        for one, name in zip(found, databases, strict=True):
            release = Seen(*admitted(db, one, name))
            release.refuse(one.path)
            manifests.append(release.manifest)
        yield db, manifests


class Release:
    """A release opened alone, read-only and locked; a context manager.

    ``release.sql("SELECT sex, COUNT(*) FROM people WHERE disease = 'flu' GROUP BY sex")`` gives a pandas DataFrame.
    ``attach`` names Parquet, CSV or DuckDB files of the analyst's own, whose tables may be joined on quasi-identifiers.
    Any number of them may be open at once, of one file too; threads may share one, and take turns.
    With a session of Spark's in ``options`` that counts the rows of a release in Parquet, which its workers must see;
    what is on disk is looked at and questions are read by DuckDB all the same.
    """

    def __init__(
        self, path: PathLike, attach: Sequence[PathLike] | PathLike = (), options: Options | None = None
    ) -> None:
        self.path = as_path(path, "release")
        self._turn, self._closed = threading.RLock(), False
        files = as_paths(attach, "attach")
        with ExitStack() as stack:
            self._db, self.manifest = stack.enter_context(opened(self.path, files, options))
            self._lookups = Lookups(self._db, files)
            self._counts = self._counting(stack, options)
            mechanism = of(self.manifest.mechanism)
            self._db.stand_in([self.manifest.name], mechanism.view(self.manifest))
            with explained(self.path):
                self.answers = mechanism.answers(self._counts, self.manifest)
            self._open = stack.pop_all()

    def _counting(self, stack: ExitStack, options: Options | None) -> Relations:
        """What counts the rows of the release."""
        if options is None or options.session is None:
            return self._db
        found = stored(self.path)
        if not found.is_folder:
            raise UsageError(f"{self.path}: Spark reads releases in Parquet; publish with format = 'parquet'")
        return stack.enter_context(released(options.session, found.files))

    def sql(self, sql: str, *, confidence: float = 0.95, estimator: str = "reconstructed") -> pd.DataFrame:
        """Answer a count query: the groups, estimate, std_error, low, high."""
        return self.query(sql, confidence=confidence, estimator=estimator).frame()

    def query(
        self, sql: str, *, confidence: float = 0.95, estimator: str = "reconstructed", limits: Limits | None = None
    ) -> Answer:
        """Answer a count query; ``UsageError`` for whatever is not supported, which is never answered.

        ``EngineError`` for what takes longer than ``limits`` allow, and ``UsageError`` for more rows.
        """
        sure = between(confidence)
        with self._asked(), self._within(limits):
            return self._answer(sql, sure, estimator, limits)

    def shown(self, name: str, most: int = 1_000) -> list[str | None]:
        """Texts of the values that a column has in the release, in the order of its type; of NULL None."""
        with self._asked():
            return self.answers.shown(name, most)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """The turn of one question; ``UsageError`` once the release is closed."""
        with self._turn:
            if self._closed:
                raise UsageError(f"{self.path} was closed; open it again")
            with explained(self.path):
                yield

    def _within(self, limits: Limits | None) -> AbstractContextManager[None]:
        return nullcontext() if limits is None else self._db.limited(limits.seconds, limits.stop)

    def _answer(self, sql: str, confidence: float, estimator: str, limits: Limits | None) -> Answer:
        asked = self.answers.read(sql, self._lookups)
        for lookup in asked.scope.lookups:
            self._db.stand_in(lookup.names, sqlfiles.all_rows(table(lookup.table, LOOKUPS, "main")))
        fields = self._db.binds(sql)  # the parser understands some things that the engine does not
        if asked.scope.lookups and self._counts is not self._db:
            raise UsageError("JOIN: Spark counts the rows of a release alone; open it without a session")
        asking = Asking(self._counts, self.answers, self.manifest, asked, estimator, confidence)
        if limits is not None:
            limits.refuse(asking)
        explained = tuple(self.answers.statement(question, estimator) for question in asking.asked)
        self._keys_are_unique(asked.scope.lookups)
        shown = Presented(asking, fields)
        columns, figures = shown.columns()
        return Answer(
            columns,
            shown.rows(),
            figures,
            confidence,
            estimator,
            explained,
            self.manifest.suppressed,
            shown.may_be_empty(),
            find_unknown(asked, self.answers, self.manifest.roles),
        )

    def structure(self) -> list[Structure]:
        """What the release is made of, such as its buckets or its noisy tree."""
        with self._asked():
            return of(self.manifest.mechanism).structure(self._db, self.manifest)

    def _keys_are_unique(self, lookups: Sequence[Lookup]) -> None:
        """A lookup with two rows that equal one value of the release would count records twice."""
        for lookup in lookups:
            ours = list(dict.fromkeys(own for _, own in lookup.keys))
            met = (sqlfiles.column(theirs, "l").eq(sqlfiles.column(own, "r")) for theirs, own in lookup.keys)
            holes: sqlfiles.Holes = {
                "records": table(self.answers.records),
                "table": table(lookup.table, LOOKUPS, "main"),
                "own": [sqlfiles.column(own) for own in ours],
                "columns": [sqlfiles.column(own, "r") for own in ours],
                "met": exp.and_(*met),
            }
            twice = self._db.rows(sqlfiles.fill("query/duplicates", holes))
            if twice:
                raise UsageError(f"JOIN {lookup.alias}: the key {twice[0][:-1]} stands in {twice[0][-1]} rows of it")

    def __repr__(self) -> str:
        return f"<Release {str(self.path)!r}: {self.manifest.name}, {self.manifest.mechanism}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what the release says of itself."""
        asked = markup.line(f"release.sql answers counts over {self.manifest.name}")
        return markup.page(f"Release {self.path}", markup.pairs(lines(self.manifest)), asked)

    def __fspath__(self) -> str:
        """Its path: an open release may stand for it, where a verb takes one."""
        return str(self.path)

    def close(self) -> None:
        """Close the release, once the question that is being answered has been."""
        with self._turn:
            self._closed = True
            self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def query(
    release: PathLike,
    sql: str,
    *,
    confidence: float = 0.95,
    estimator: str = "reconstructed",
    attach: Sequence[PathLike] | PathLike = (),
) -> Answer:
    """Answer one count query from a release alone; ``UsageError`` for whatever is not supported."""
    with Release(release, attach) as found:
        return found.query(sql, confidence=confidence, estimator=estimator)


def inspect(release: PathLike) -> Manifest:
    """What a release says of itself."""
    with opened(as_path(release, "release")) as (_, manifest):
        return manifest


# Copies ---------------------------------------------------------------------------------------------------------------
# Copies of a release that are written from its tables, its view and its manifest alone.

MADE, COPY = "made", "copy"  # the databases as which a release and its copy are attached


def list_relations(manifest: Manifest) -> list[tuple[str, str]]:
    """Return (kind, name) of what a release holds."""
    tables = [("table", name) for name in (*of(manifest.mechanism).tables(manifest), MANIFEST)]
    return [*tables, ("view", manifest.name)]


def copy_tables(
    db: Workshop, manifest: Manifest, place: tuple[str, str], former: Sequence[tuple[str, str]] = ()
) -> None:
    """Copy a release that is attached as ``MADE`` into ``place``, (database, schema), where ``former`` goes before.

    It happens as a whole or not at all. ``UsageError`` if there is anything else, ``GuaranteeError`` if the copy has
    another digest.
    """
    names = [name for kind, name in list_relations(manifest) if kind == "table"]
    view = (manifest.name, of(manifest.mechanism).view(manifest))
    with db.housed(MADE, place, names, view, former):
        if folded(db, *place) != folded(db, MADE, MAIN):
            raise GuaranteeError("what was copied is not what was checked; nothing written")


def write_afresh(made: Path, manifest: Manifest) -> Path:
    """Return the file of a release without leftovers: itself, or a new one beside it where it has any."""
    with scratch() as db:
        db.attach(made, MADE, read_only=True)
        if not db.leftovers(MADE):
            return made
    copy = made.with_name(f"afresh-{made.name}")
    _write_file(made, manifest, copy)
    return copy


def _write_file(file: Path, manifest: Manifest, to: Path) -> None:
    with scratch() as db:
        db.attach(file, MADE, read_only=True, strange=True)
        db.attach(to, COPY, read_only=False)
        copy_tables(db, manifest, (COPY, MAIN))
        db.detach(COPY)


def _write_folder(found: Stored, to: Path) -> None:
    with scratch() as db:
        db.distrust()
        for name, files in found.files.items():
            db.view(name, db.scanned(files, "parquet"))
            db.export(temp(name), to / f"{name}{ENDING}")


def write_copy(release: Path, manifest: Manifest, to: Path) -> None:
    """Write a copy of a release whose checks hold: a file of a file, a folder of a folder.

    ``UsageError`` for a target that is there already and for a release that is a schema, ``GuaranteeError`` if the copy
    does not pass every check: nothing is written then.
    """
    refuse_target(release, to)
    found = stored(release)
    with Draft(to, replace=False) as draft:
        made = draft.parquet if found.is_folder else draft.database
        if found.is_folder:
            _write_folder(found, made)
        else:
            _write_file(found.place, manifest, made)
        with seen(made) as (db, copy):
            copy.refuse(made)
            failed = next((one for one in examine(db, copy.manifest, RELEASE) if not one.ok), None)
        if failed is not None or copy.manifest != manifest:
            raise GuaranteeError(f"{release}: the copy is not what was checked; nothing written")
        draft.commit(made)


def refuse_target(release: Path, to: Path) -> None:
    """``UsageError`` unless a copy of a release may be written to a path."""
    if stored(release).schema is not None:
        raise UsageError(f"{release} is a schema of a database, of which no copy is made; publish to a file instead")
    if to.exists() or to.is_symlink():
        raise UsageError(f"{to} exists; nothing is copied over it")
    if to.resolve().is_relative_to(release.resolve()):
        raise UsageError(f"{to} lies in the release; choose another place for the copy")


# Releases in a schema -------------------------------------------------------------------------------------------------
# A release that becomes a schema of a database, which may hold anything else: in one transaction, or not at all.
#
# It is made, and passes its checks, in a file of its own in a draft's folder. What is copied is compared with it before
# the transaction ends.

HOUSE = "house"


class Housed(Draft):
    """A draft of a release that goes into a schema, of a database that is settled."""

    def commit(self, made: Path) -> None:
        """Copy the release in database file ``made`` into its schema; a failure leaves what was there.

        Raises ``UsageError`` if something else lies there by now, ``EngineError`` on trouble, ``GuaranteeError`` if
        what was copied is not what was checked.
        """
        file, asked = parted(self.target)
        schema = asked or MAIN
        manifest = inspect(made)
        former = list_relations(inspect(self.target)) if self._replace and exists(self.target) else []
        new = not file.exists()
        with scratch() as db:
            db.attach(made, MADE, read_only=True)
            db.attach(file, HOUSE, read_only=False)
            place = (HOUSE, schema_of(db, HOUSE, schema) or schema)
            try:
                copy_tables(db, manifest, place, former)
            except UsageError as error:
                raise UsageError(f"{self.target}: {error}; nothing written") from error
            db.detach(HOUSE)
        if new:
            file.chmod(private.spare(0o644))


def settle(target: Path) -> None:
    """Let a killed process's last transaction, if it was whole, be part of the publisher's database.

    ``EngineError`` for one that is open elsewhere, or no database.
    """
    file, schema = parted(target)
    if schema is None or not file.exists():
        return
    try:
        with scratch() as db:
            db.attach(file, HOUSE, read_only=False)
            db.detach(HOUSE)
    except UsageError as error:
        raise EngineError(f"{file}: {error}") from error
