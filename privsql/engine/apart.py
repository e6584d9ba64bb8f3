"""What ``Relations`` of every engine beside DuckDB share: names of their own, hashes as it says them, rows by Arrow."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from privsql.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import exp

    from privsql.engine.rendering import Engine

_NUMBERS = itertools.count()  # of what stores relations in this process: several may share a session


class RelationsApart(ABC):
    """Relations in another process, whose tables lie in no order."""

    engine: ClassVar[Engine]
    keeps_order = False

    def __init__(self) -> None:
        self.number = next(_NUMBERS)

    @abstractmethod
    def close(self) -> None:
        """Forget all that was made."""

    @abstractmethod
    def arrow(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run a query and fetch an Arrow table."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self, query: exp.Expr, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a query and fetch all rows."""
        return tuples(self.arrow(query, values))

    def reserve(self, size: int, what: str) -> None:  # noqa: B027 (it holds for all of them)
        """Nothing: that memory is another process's."""

    def digest(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """63 bits of the MD5 of texts, side by side: those of every other engine."""
        return self.engine.digest(texts)

    def hashed(self, texts: Sequence[exp.Expr]) -> exp.Expr:
        """The first 60 bits of SHA-256 of texts, side by side."""
        return self.engine.hashed(texts)

    def _own(self, name: str) -> str:
        """Under which name a temporary relation stands in the session."""
        return f"privsql_{self.number}_{name}"

    def _only_own(self, name: str, into: str | None) -> None:
        if into is not None:
            raise EngineError(f"{self.engine.name} attaches no databases: {name!r} can't be made in {into!r}")


def whole(data: pa.Table | pa.RecordBatchReader) -> pa.Table:
    """A table; a stream is read."""
    return data.read_all() if isinstance(data, pa.RecordBatchReader) else data


def tuples(found: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table, as Python's values."""
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))
