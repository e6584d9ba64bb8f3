"""The base class of objects that answer questions from an open private release."""

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
    """Raise ``UsageError`` if tables that are read inside this context can't belong to a valid release."""
    try:
        yield
    except BROKEN as error:
        raise UsageError(f"{DAMAGED}: {error}") from error


class PrivateAnswers(answer.Answers):
    """An open differentially private release, which answers questions from noisy counts.

    No answer has a certain bound.
    """

    certain = frozenset()
    measures = frozenset()
    formulas: ClassVar[Mapping[str, str]]
    """The formula of each estimator, in words."""

    def __init__(self, db: Relations, manifest: Manifest, database: str | None = None) -> None:
        super().__init__(db, manifest)
        self._database = database

    def _read_table(self, name: str, *order: str) -> pa.Table:
        """Return the rows of a table of the release, sorted by the given columns."""
        return self._db.arrow(all_rows(table(name, self._database)).order_by(*map(column, order)))

    def parse_sql(self, sql: str, lookups: Lookups) -> Statement:
        """Parse the analyst's SQL.

        Raises:
            UsageError: It asks for SUM or AVG of a column that is not in ``measured_columns``, or for another aggregate
                than COUNT(*).
        """
        statement = super().parse_sql(sql, lookups)
        for one in statement.calls:
            if one.measure.kind != "count" and one.measure.column not in self.measured_columns:
                of = f"SUM and AVG are of {', '.join(self.measured_columns)}" if self.measured_columns else ""
                raise UsageError(f"{one.written}: {of or 'the release answers counts only; use COUNT(*)'}")
        return statement

    @property
    def measured_columns(self) -> tuple[str, ...]:
        """Return the names of the columns for which SUM and AVG are answered; by default there are none."""
        return ()

    @property
    def channel(self) -> None:
        """Return None: no matrix (channel) tells how often each true value of a record becomes each published value.

        A private release publishes noisy counts, and no sensitive value record by record.
        """
