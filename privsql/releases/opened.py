"""A release opened alone: the only way in which an analyst's SQL meets one. A release is a stranger's file.

It is attached read-only, under a name of privsql's own, to a locked session that can reach nothing else, and refused
unless it holds what its manifest states and no other table, view or metadata.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from sqlglot import exp

from privsql import markup
from privsql.answers.answer import Answer
from privsql.answers.evaluation import Asking
from privsql.answers.hints import find_unknown
from privsql.answers.present import Presented
from privsql.answers.question import LOOKUPS
from privsql.calls import as_path, as_paths, between
from privsql.engine import sqlfiles
from privsql.engine.open import locked, released
from privsql.engine.sqlfiles import table
from privsql.errors import GuaranteeError, UsageError
from privsql.mechanisms.registry import of
from privsql.model.checks import BROKEN
from privsql.releases.contents import admitted
from privsql.releases.examine import examine
from privsql.releases.lines import lines
from privsql.releases.lookups import Lookups, plain
from privsql.releases.stored import holders, stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pandas as pd

    from privsql.answers.limits import Limits
    from privsql.answers.question import Lookup
    from privsql.calls import PathLike
    from privsql.engine.database import Locked, Relations
    from privsql.engine.progress import Options
    from privsql.model.checks import Result
    from privsql.model.manifest import Manifest
    from privsql.model.told import Structure

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
