"""Statements that end when their time is over, or when nobody waits for them any more."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from privsql.errors import LateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

POLL = 0.1  # seconds between two looks, and two interruptions


class Deadlines:
    """The deadlines of one connection, which may lie inside each other.

    The engine forgets an interruption that comes between two statements. So one that is late is interrupted again and
    again, and ``check`` stands before every statement.
    """

    def __init__(self, duck: duckdb.DuckDBPyConnection) -> None:
        self._duck = duck
        self._late: list[threading.Event] = []

    def check(self) -> None:
        """``KeyboardInterrupt``, as from a statement that is interrupted, once it is too late."""
        if any(late.is_set() for late in self._late):
            raise KeyboardInterrupt

    @contextmanager
    def within(self, seconds: float, stop: threading.Event | None = None) -> Iterator[None]:
        """``LateError`` for statements that take longer, together, or once ``stop`` is set."""
        late, ended = threading.Event(), threading.Event()
        end = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() >= end or (stop is not None and stop.is_set())

        def watch() -> None:
            while not ended.wait(POLL if late.is_set() else max(0.0, min(POLL, end - time.monotonic()))):
                if is_over():
                    late.set()
                    self._duck.interrupt()

        if is_over():
            late.set()  # nothing is begun

        watcher = threading.Thread(target=watch, daemon=True)
        self._late.append(late)
        watcher.start()
        try:
            yield
        except KeyboardInterrupt as error:
            if not late.is_set():
                raise
            was_stopped = stop is not None and stop.is_set()
            raise LateError("was stopped" if was_stopped else f"takes longer than {seconds:g} s") from error
        finally:
            ended.set()
            watcher.join()
            self._late.remove(late)
