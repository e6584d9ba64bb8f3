"""A release opened alone: the only way in which an analyst's SQL meets one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from privsql.answers.answer import Answer, present
from privsql.engine import sqlfiles
from privsql.engine.open import unlocked
from privsql.engine.sqlfiles import table
from privsql.errors import PrivsqlError, UsageError
from privsql.mechanisms.registry import of
from privsql.model.manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from privsql.answers.question import CountQuery
    from privsql.engine.database import Opened


@contextmanager
def opened(path: Path, attach: Sequence[Path] = ()) -> Iterator[tuple[Opened, Manifest, dict[str, list[str]]]]:
    """A release opened alone, read-only and locked, with its manifest and the columns of attached lookups."""
    with unlocked(path) as db:
        lookups = {name: columns for extra in attach for name, columns in db.lookups(extra).items()}
        db.lock()  # before anything of the release is read: its manifest may be a view
        manifest = _read_manifest(db, path)
        if path.is_dir():
            db.view(manifest.name, of(manifest.mechanism).view(manifest), into="memory")
        yield db, manifest, lookups


class Release:
    """A release opened alone, read-only and locked; a context manager.

    ``release.sql("SELECT sex, COUNT(*) FROM people WHERE disease = 'flu' GROUP BY sex")`` gives a pandas DataFrame.
    ``attach`` names Parquet, CSV or DuckDB files of the analyst's own, whose tables may be joined on quasi-identifiers.
    """

    def __init__(self, path: Path | str, attach: Sequence[Path | str] = ()) -> None:
        self.path = Path(path)
        self._open = opened(self.path, [Path(extra) for extra in attach])
        self._db, self.manifest, self._lookups = self._open.__enter__()
        self.answers = of(self.manifest.mechanism).answers(self._db, self.manifest)

    def sql(self, sql: str, *, confidence: float = 0.95, estimator: str = "reconstructed") -> pd.DataFrame:
        """Answer a count query: the groups, estimate, std_error, low, high."""
        return self.query(sql, confidence=confidence, estimator=estimator).frame()

    def query(self, sql: str, *, confidence: float = 0.95, estimator: str = "reconstructed") -> Answer:
        """Answer a count query; ``UsageError`` for whatever is not supported, which is never answered."""
        if not 0 < confidence < 1:
            raise UsageError(f"confidence {confidence} lies outside (0, 1)")
        asked = self.answers.read(sql, self._lookups)
        self._db.binds(sql)  # the parser understands some things that the engine does not
        statement, formula = self.answers.statement(asked, estimator)
        self._keys_are_unique(asked)
        found = self.answers.answer(asked, estimator, confidence)
        columns, rows = present(self._db, asked, found)
        rests_on = self.answers.rests_on(asked, estimator)
        return Answer(columns, rows, confidence, rests_on, estimator, sqlfiles.render(statement), formula)

    def _keys_are_unique(self, asked: CountQuery) -> None:
        """A lookup with two rows for one key would count records twice."""
        for lookup in asked.lookups:
            holes: sqlfiles.Holes = {
                "table": table(lookup.table, "temp"),
                "columns": [sqlfiles.column(theirs) for theirs, _ in lookup.keys],
            }
            twice = self._db.rows(sqlfiles.fill("query/duplicates", holes))
            if twice:
                raise UsageError(f"JOIN {lookup.alias}: {lookup.table} has {twice[0][-1]} rows for {twice[0][:-1]}")

    def close(self) -> None:
        """Close the release."""
        self._open.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def query(
    path: Path,
    sql: str,
    *,
    confidence: float = 0.95,
    estimator: str = "reconstructed",
    attach: Sequence[Path | str] = (),
) -> Answer:
    """Answer one count query from a release alone."""
    with Release(path, attach) as release:
        return release.query(sql, confidence=confidence, estimator=estimator)


def inspect(path: Path) -> Manifest:
    """What a release says of itself."""
    with opened(path) as (_, manifest, _):
        return manifest


def _read_manifest(db: Opened, path: Path) -> Manifest:
    try:
        manifest = Manifest.of_rows(db.rows(sqlfiles.all_rows(table(MANIFEST))))
        of(manifest.mechanism).read(manifest)
    except UsageError as error:
        raise UsageError(f"{path} is not a release of privsql: {error}") from error
    except PrivsqlError as error:
        raise type(error)(f"{path}: {error}") from error
    return manifest
