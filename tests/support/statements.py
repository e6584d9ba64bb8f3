"""Something happens before a certain statement of privsql's: in this process, or in one that ends there.

    python -m support.statements tell WORD DESCRIPTOR publish ..    a byte is written before a statement with a word
    python -m support.statements kill NUMBER SECONDS publish ..     killed so many seconds after a statement has begun

The second runs from the folder of the tests; no test can tell when a statement ends, so it must hold whenever that is.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import duckdb

from privsql.engine.duck.connection import Connection
from support.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Before = Callable[[str], object]


class Watched:
    """A connection that calls ``before`` with the text of every statement that it is given."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, before: Before) -> None:
        self._connection, self._before = connection, before

    def execute(self, sql: str, *values: Any) -> duckdb.DuckDBPyConnection:
        """Run a statement."""
        self._before(sql)
        return self._connection.execute(sql, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def watched(before: Before) -> Callable[..., Watched]:
    """What stands for ``duckdb.connect``."""
    connect = duckdb.connect
    return lambda *arguments, **options: Watched(connect(*arguments, **options), before)


def counted(patch: pytest.MonkeyPatch, before: Callable[[int], object]) -> None:
    """From now on ``before`` is called with the number of each statement, 1, 2, .."""
    numbers = itertools.count(1)
    patch.setattr(duckdb, "connect", watched(lambda _: before(next(numbers))))


def noted(patch: pytest.MonkeyPatch) -> list[str]:
    """The statements of all sessions from now on, as they are run."""
    seen: list[str] = []
    for name in ("_execute", "arrow", "stream_batches"):
        real = getattr(Connection, name)

        def note(self: Connection, sql: str, *rest: Any, real: Any = real) -> Any:
            seen.append(sql)
            return real(self, sql, *rest)

        patch.setattr(Connection, name, note)
    return seen


def command(kind: str, what: object, more: object, *arguments: object) -> dict[str, Any]:
    """The arguments of ``subprocess.Popen`` for one of the two."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH", str(ROOT))]))
    given = map(str, (kind, what, more, *arguments))
    return {"args": [sys.executable, "-m", "support.statements", *given], "env": os.environ | {"PYTHONPATH": paths}}


def _main() -> None:
    kind, what, more = sys.argv[1:4]
    numbers = itertools.count(1)

    def tell(sql: str) -> None:
        if what in sql:
            os.write(int(more), b".")

    def kill(_: str) -> None:
        if next(numbers) == int(what):
            threading.Timer(float(more), os.kill, [os.getpid(), signal.SIGKILL]).start()

    duckdb.connect = watched({"tell": tell, "kill": kill}[kind])
    sys.argv[1:] = sys.argv[4:]

    from privsql.__main__ import main

    main()


if __name__ == "__main__":
    _main()
