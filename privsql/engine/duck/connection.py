"""One session of DuckDB: statements run one after the other, traced, with progress and with privsql's own errors."""

from __future__ import annotations

import signal
import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import duckdb

from privsql.engine.duck.deadline import Deadlines
from privsql.engine.duck.remedies import of_a_file, remedy
from privsql.engine.files import shown
from privsql.engine.progress import Silent
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import FrameType

    import pyarrow as pa

    from privsql.engine.progress import Reporter

MISTAKES = (
    duckdb.BinderException, duckdb.ConversionException, duckdb.ParserException, duckdb.CatalogException,
    duckdb.InvalidInputException, duckdb.SyntaxException, duckdb.OutOfRangeException,
)  # fmt: skip
STOPS = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM") if name in signal.Signals.__members__
]
TRACED = 1_000  # statements: a release that is asked for days must not grow by them
POLL = 0.1  # seconds between two looks at a running statement
Settings = dict[str, str | bool | int | float | list[str]]
HARDENED: Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
VERSION = duckdb.__version__


class Connection:
    """A connection of its own to an instance of its own, in memory. ``trace`` holds the last statements that ran."""

    def __init__(
        self,
        settings: Settings | None = None,
        report: Reporter | None = None,
        *,
        ducks: tuple[duckdb.DuckDBPyConnection, ...] = (),
    ) -> None:
        """``ducks``: DuckDB's own connection, if there is one already, and others that are interrupted with it."""
        self._report = report or Silent()
        self.trace: deque[str] = deque(maxlen=TRACED)
        with translated():
            self._ducks = ducks or (duckdb.connect(config=HARDENED | (settings or {})),)
        self._duck = self._ducks[0]
        self._deadlines = Deadlines(self._duck)
        # Text of a timestamp must not depend on where it is written.
        self.run("SET TimeZone = 'UTC'")

    def beside(self) -> Connection:
        """A further one to the same instance; what interrupts it interrupts this one as well."""
        with translated():
            other = Connection(report=self._report, ducks=(self._duck.cursor(), *self._ducks))
        other.trace = self.trace
        return other

    def close(self) -> None:
        """Close the connection and forget all that is temporary."""
        with suppress(duckdb.Error):  # an interrupted statement may still be ending
            self._duck.close()

    def step(self, title: str) -> None:
        """Tell whoever watches what comes next."""
        self._report.step(title)

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        """Run one statement, traced, with progress and translated errors."""
        self._deadlines.check()
        self.trace.append(sql)
        with translated(), interruptible(*self._ducks):
            if self._report.watched:
                self._watched(sql, values)
            else:
                self._duck.execute(sql, values or None)

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and fetch its rows."""
        self.run(sql, values)
        with translated(), interruptible(*self._ducks):
            return self._duck.fetchall()

    def arrow(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one query and fetch an Arrow table."""
        self._deadlines.check()
        self.trace.append(sql)
        with translated(), interruptible(*self._ducks):
            return self._duck.sql(sql, params=dict(values) if values else None).to_arrow_table()

    @contextmanager
    def streamed(self, sql: str, rows: int) -> Iterator[pa.RecordBatchReader]:
        """Run one query and hand its rows over so many at a time, in order; nothing else can run here meanwhile."""
        self.trace.append(sql)
        with translated(), interruptible(*self._ducks):
            reader = self._duck.sql(sql).to_arrow_reader(rows)
        with reader:
            yield reader

    def register(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable under a name, without a copy."""
        with translated():
            self._duck.register(name, data)

    def unregister(self, name: str) -> None:
        """Forget a registered table."""
        with translated():
            self._duck.unregister(name)

    def limited(self, seconds: float, stop: threading.Event | None = None) -> AbstractContextManager[None]:
        """``LateError`` for statements that take longer, together, or once ``stop`` is set."""
        return self._deadlines.within(seconds, stop)

    def _watched(self, sql: str, values: Mapping[str, Any] | None) -> None:
        """Run, and report progress meanwhile from a thread; Ctrl-C interrupts the statement as it does unwatched."""
        ended = threading.Event()

        def watch() -> None:
            with suppress(duckdb.Error):  # the connection may be closed already
                while not ended.wait(POLL):
                    self._report.running(self._duck.query_progress())

        watcher = threading.Thread(target=watch, daemon=True)
        try:
            watcher.start()
            self._duck.execute(sql, values or None)
        finally:
            ended.set()
            if watcher.is_alive():  # not where the interruption came before it had begun
                watcher.join()


def one_select(query: str) -> str:
    """The text of a query if it is exactly one SELECT; ``UsageError`` for anything else."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise UsageError(f"query: {_line(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError("query: must be one SELECT")
    return statements[0].query


@contextmanager
def interruptible(*ducks: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """What unwinds the main thread ends its statements too.

    DuckDB's binding looks for signals in between, but then waits, without telling the engine, for what other threads
    have begun: a task that takes for ever was waited for that long. Handlers that raise nothing let the statement run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.getsignal(number) for number in STOPS}

    def end(number: int, frame: FrameType | None) -> None:
        handler = former[signal.Signals(number)]
        try:
            if callable(handler):
                handler(number, frame)
        except BaseException:
            for duck in ducks:
                duck.interrupt()
            raise

    heard = {number: handler for number, handler in former.items() if callable(handler)}
    try:
        for number in heard:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


@contextmanager
def translated() -> Iterator[None]:
    """DuckDB's errors as privsql's, one line each."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except MISTAKES as error:
        kind = EngineError if of_a_file(str(error)) else UsageError
        raise kind(_line(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise EngineError(f"out of memory or disk space: {_line(error)}") from error
    except (duckdb.Error, RuntimeError) as error:
        if "nterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise EngineError(_line(error)) from error


@contextmanager
def about(path: Path | str, *, query: bool = False, whole: bool = False) -> Iterator[None]:
    """Name the file in errors, and say what a lock means; ``whole``: any error is the file's."""
    try:
        yield
    except EngineError as error:
        if "set lock on file" in str(error) or "lock is held" in str(error):
            raise EngineError(f"{path}: is open for writing in another process; close it there") from error
        if "Unique file handle conflict" in str(error):  # the engine opens a file once per process if it is written
            raise EngineError(f"{path}: is open for writing in this process; open it read-only there") from error
        raise EngineError(f"{path}: can't be read: {error}") from error
    except UsageError as error:
        if whole:
            raise EngineError(f"{path}: can't be read: {error}") from error
        raise UsageError(f"{path}: {'source.query: ' if query else ''}{error}") from error


def _line(error: BaseException) -> str:
    """One line of an error: what would work, where that is known, or its first, without the class before it."""
    told = str(error).strip()
    return shown(remedy(told) or told.split("\n")[0].split(" Error: ", 1)[-1])
