"""What mechanisms may ask of a database; the engines provide it. No mechanism imports an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from sqlglot import exp

    from privsql.engine.roles import Field, Roles

FILE_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv"}  # by the ending; else a database


class Database(Protocol):
    """Named relations, made from trees of ``sql/`` or put from arrays, and read back."""

    def make(self, name: str, query: exp.Expr, *, into: str | None = None, title: str = "") -> None:
        """Materialise a query as table ``name``: temporary, or in the attached database ``into``."""

    def view(self, name: str, query: exp.Expr, *, into: str | None = None) -> None:
        """Create a view: temporary, or in the attached database ``into``."""

    def put(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable (a stream: once) under ``name``."""

    def drop(self, *names: str) -> None:
        """Forget temporary relations."""

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""

    def own(self, name: str, query: str) -> None:
        """Materialise a SELECT of the publisher's as temporary table ``name``."""

    def fields(self, source: exp.Expr) -> list[Field]:
        """Columns of a table or query."""

    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""

    def position(self, table: str) -> exp.Expr:
        """The engine's number (0, 1, ..) of a stored row of ``table``, in the order in which it was made."""

    def dealt(self, records: exp.Table, slots: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` and ``code`` from ``slots`` (pos, bid, code), by position."""

    def matched(self, records: exp.Table, slots: exp.Table) -> exp.Query:
        """The rows of a table made here with ``bid`` from ``slots`` (pos, bid), by position."""


class Domain(Protocol):
    """The prepared source as a mechanism sees it."""

    @property
    def roles(self) -> Roles:
        """Columns by role."""

    @property
    def labels(self) -> Sequence[str]:
        """Text of every sensitive value, in canonical order (m,)."""

    @property
    def counts(self) -> Sequence[int]:
        """Records of every sensitive value (m,)."""

    @property
    def releases(self) -> int:
        """How many earlier releases of the same subjects a guarantee has to take in."""

    def earlier(self, last: int) -> NDArray[np.int64]:
        """Group of every record of ``records`` in so many of the last releases (last, n), -1 where it was not in it."""

    def assigned(self, groups: NDArray[np.integer[Any]]) -> None:
        """Keep the group of every record of ``records`` (n,), for the publisher's own ledger."""

    def done(self) -> None:
        """Forget relation ``records``."""

    def sort(self) -> None:
        """Make relation ``records``: the kept records, value by value in the order of ``labels``."""
