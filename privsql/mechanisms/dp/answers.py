"""Answer from an open private release: what all of them share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from privsql.answers import answer
from privsql.engine.sqlfiles import all_rows, column, table
from privsql.errors import UsageError
from privsql.model.checks import BROKEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from privsql.answers.sql.question import Lookups, Statement
    from privsql.engine.database import Relations
    from privsql.model.manifest import Manifest

DAMAGED = "the release is damaged (run privsql verify for details)"


@contextmanager
def refuse_damaged() -> Iterator[None]:
    """Raise ``UsageError`` if the tables that are read inside this context can't be those of a release."""
    try:
        yield
    except BROKEN as error:
        raise UsageError(f"{DAMAGED}: {error}") from error


class PrivateAnswers(answer.Answers):
    """An open differentially private release.

    None of its answers has a certain bound. It has no buckets and no perturbed values.
    """

    certain = frozenset()
    measures = frozenset()
    formulas: ClassVar[Mapping[str, str]]
    """By estimator, in words."""

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest)
        self._database = database

    def _read_table(self, name: str, *order: str) -> pa.Table:
        """Return the rows of a table of the release, sorted by the columns ``order``."""
        return self._db.arrow(all_rows(table(name, self._database)).order_by(*map(column, order)))

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Parse the analyst's SQL.

        Raises:
            UsageError: It asks for more than counts of records, and sums or means of measured columns.
        """
        statement = super().parse_sql(sql, lookups)
        for one in statement.calls:
            if one.measure.kind != "count" and one.measure.column not in self.measured_columns:
                of = f"SUM and AVG are of {', '.join(self.measured_columns)}" if self.measured_columns else ""
                raise UsageError(f"{one.written}: {of or 'the release answers counts only; use COUNT(*)'}")
        return statement

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Return the columns whose sums are published."""
        return ()

    @property
    def channel(self) -> None:
        """Return None: no sensitive value is published record by record."""
