"""Run statements in one session of DuckDB, with progress, deadlines and privsql's own errors."""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from privsql.engine.database import SILENT, Reporter, TracedStatement
from privsql.engine.files import PACKED, redact_secrets
from privsql.errors import HIDDEN, EngineError, LateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    import pyarrow as pa

# Remedies -------------------------------------------------------------------------------------------------------------
# The advice for an error of DuckDB, by a pattern of its text: what is wrong, and what works instead. {0} and {1} are
# groups of the pattern, {name} is all groups together, and ``_csv_facts`` fills {line}, {encoded} and {reason}.

MEGABYTES = 2**22  # bytes of a file from which its encoding is guessed
BEGINNING = 4096  # bytes in which a zero byte shows text of two bytes a character
EXTENSION = (
    "{what} needs DuckDB's extension {name}, and privsql installs none by itself: run python -c \"import duckdb; "
    "duckdb.execute('INSTALL {name}')\" once, or {instead}"
)
# fmt: off
REMEDIES = {
    "Invalid unicode":
        "{line} is not UTF-8; {encoded}",
    "File is not latin-1 encoded":
        "it is not latin-1 either: it may be Windows-1252; write it anew (iconv -f CP1252 -t UTF-8)",
    'does not support the encoding: "([^"]*)"':
        "there is no encoding {0!r}; write the file anew (iconv -f {0} -t UTF-8)",
    "(?s)Error when converting column \"([^\"]*)\".*? to '([^']*)'":
        "{line}: column {0!r} is {1} by the lines before, and this value is not; say source.options = {{ types = {{ "
        '{0} = "VARCHAR" }} }}, or which text means NULL (nullstr), or sample_size = -1',
    r"Expected Number of Columns: (\d+) Found: (\d+)":
        "{line} has {1} columns, not {0}; mend the line, or say how the file is written: source.options = {{ "
        "delimiter = .., quote = .. }}",
    r"Maximum line size of .*? bytes exceeded. Actual Size: ?(\d+)":
        "{line} is {0} bytes long; a quote may be missing, or say source.options = {{ max_line_size = {0} }}",
    "No magic bytes found|too small to be a Parquet file":
        "is no Parquet file, or a damaged one",
    "CSV Error on Line:":
        "{line}: {reason}; say how the file is written: source.options = {{ delimiter = .., quote = .., skip = .. }}",
    "Error when sniffing file|not possible to automatically detect the CSV":
        "no table is found in it; say how it is written: "
        "source.options = {{ delimiter = .., quote = .., header = .. }}",
    "Input is not a GZIP stream|not a valid gzip|ZSTD Decompression failed|Unknown frame":
        'is not packed as its ending says; say source.options = {{ compression = "none" }}, or rename it',
    r"requires the extension (\w+) to be loaded|it exists in the (\w+) extension"
    r'|/(\w+?)(?:_scanner)?\.duckdb_extension" not found':
        EXTENSION.format(what="this", name="{name}", instead="give the file or address as source.file, or copy the "
                         "rows into a Parquet file"),
    "write-write conflict|Conflict on tuple":
        "another transaction changes the same; commit it or roll it back, then try again",
    "not a valid DuckDB database file":
        "it is neither a DuckDB nor a SQLite database; a release is a .duckdb file or a folder; a source may also be a "
        "file that ends in .parquet or .csv, and a text file with another ending needs source.reader = 'csv'",
    "Could not read enough bytes": "it is shorter than a whole database; copy it again",
    "Corrupt database file: computed checksum": "it is damaged: a checksum differs; copy it again",
    "Table with name (\\S+) does not exist!":
        "there is no table {0!r}; 'privsql init' with the file names those that it has",
    'Table with name "([^"]*)" does not exist because schema "([^"]*)" does not exist':
        "table {0!r} lies in database or schema {1!r}, which is not in this file; a view over it can't be read here: "
        "store what it yields (CREATE TABLE .. AS FROM ..)",
}
# fmt: on


def find_remedy(text: str) -> str:
    """Return privsql's advice for an error message of DuckDB; empty if it has none for this error."""
    for pattern, remedy in REMEDIES.items():
        match = re.search(pattern, text)
        if match:
            groups = match.groups(default="")
            return remedy.format(*groups, name="".join(groups), **_csv_facts(text))
    return ""


def _csv_facts(text: str) -> dict[str, str]:
    """Return the parts of privsql's error message about a CSV file, from DuckDB's message and the file's beginning.

    Returns:
        "line" (its number, and the file's name), "encoded" (what to do about the file's encoding) and "reason" (what is
        wrong with the line). The message has placeholders of these names.
    """
    found, file = re.search(r"CSV Error on Line: (\d+)", text), re.search(r"(?m)^ *file = (.*)$", text)
    lines = text[found.end() :].strip().split("\n") if found else []
    reason = next((one for one in lines if one and not one.startswith("Original Line")), "can't be read")
    begun, path = b"", Path(file[1]) if file else Path()
    with suppress(OSError):
        if path.is_file() and path.suffix not in PACKED:
            with path.open("rb") as opened:
                begun = opened.read(MEGABYTES)
    of_two = begun[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in begun[:BEGINNING]
    how = f'say how the file is written: source.options = {{ encoding = "{"utf-16" if of_two else "latin-1"}" }}'
    # These bytes are no letters in latin-1.
    if not of_two and re.search(rb"[\x80-\x9f]", begun) and not _is_unicode(begun):
        how = "it may be Windows-1252: write it anew (iconv -f CP1252 -t UTF-8)"
    return {
        "line": f"line {found[1] if found else '?'}{f' of {path.name}' if file else ''}",
        "encoded": how,
        "reason": reason.rstrip(". "),
    }


def _is_unicode(beginning: bytes) -> bool:
    """Return whether the first bytes of a file are UTF-8, up to a character at their end that may be cut off."""
    try:
        beginning.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(beginning) - 4
    return True


# Connection -----------------------------------------------------------------------------------------------------------
# One session of DuckDB: statements run one after the other, with progress, time limits and privsql's own errors.
#
# DuckDB forgets an interruption that comes between two statements. So after a time limit it is interrupted again and
# again, and ``_raise_if_late`` is called before every statement.

MISTAKES = (
    duckdb.BinderException, duckdb.ConversionException, duckdb.ParserException, duckdb.CatalogException,
    duckdb.InvalidInputException, duckdb.SyntaxException, duckdb.OutOfRangeException,
)  # fmt: skip
OF_VALUES = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
STOPS = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM") if name in signal.Signals.__members__
]
POLL = 0.1  # seconds between two reports of progress, and between two interruptions
Settings = dict[str, str | bool | int | float | list[str]]
HARDENED: Settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
VERSION = duckdb.__version__


class Connection:
    """A connection to a DuckDB instance in memory, which reports progress and raises privsql's errors.

    If ``discreet`` is true, no error message shows a value of the data.
    """

    discreet = False

    def __init__(
        self,
        settings: Settings | None = None,
        report: Reporter = SILENT,
        *,
        ducks: tuple[duckdb.DuckDBPyConnection, ...] = (),
    ) -> None:
        """Open a connection, or use one that is open.

        Args:
            settings: Settings of DuckDB for a new instance.
            report: Receives the progress of statements.
            ducks: Open connections. The first one is used, and an interruption also stops the others. If empty, a new
                instance is made.
        """
        self._report = report
        with translate_duck_errors():
            self._ducks = ducks or (duckdb.connect(config=HARDENED | (settings or {})),)
        self._duck = self._ducks[0]
        self._limits: list[Callable[[], bool]] = []  # the time limits in force, which may be nested; true if late
        # The text of a timestamp must not depend on the machine's time zone.
        self.run("SET TimeZone = 'UTC'")

    def open_sibling(self) -> Connection:
        """Return a second connection to the same instance; an interruption stops the statements of both."""
        with translate_duck_errors():
            return Connection(report=self._report, ducks=(self._duck.cursor(), *self._ducks))

    def close(self) -> None:
        """Close the connection, which removes its temporary tables."""
        with suppress(duckdb.Error):  # an interrupted statement may still be ending
            self._duck.close()

    def start_step(self, title: str) -> None:
        """Report that the next step of the command begins."""
        self._report.start_step(title)

    @property
    def traces(self) -> bool:
        """Return whether the reporter records every statement."""
        return self._report.traces

    def note_statement(self, relation: str, file: str, rows: int | None, begun: float) -> None:
        """Report a statement that has run.

        Args:
            relation: The table or view that the statement made; empty if its rows were read.
            file: The file of ``sql/`` that holds the statement; empty if there is none.
            rows: The number of rows; None if it is not known.
            begun: The time of ``time.perf_counter`` at which it began.
        """
        self._report.note_statement(TracedStatement("", relation, file, rows, time.perf_counter() - begun))

    def run(self, sql: str, values: Mapping[str, Any] | None = None) -> None:
        """Run one statement without fetching rows; ``values`` are its parameters by name."""
        with translate_duck_errors(discreet=self.discreet), interrupt_on_signal(*self._ducks):
            self._execute(sql, values)

    def _execute(self, sql: str, values: Mapping[str, Any] | None) -> None:
        self._raise_if_late()
        with call_meanwhile(self._report_progress) if self._report.watched else nullcontext():
            self._duck.execute(sql, values or None)

    def rows(self, sql: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; ``values`` are its parameters by name."""
        with translate_duck_errors(discreet=self.discreet), interrupt_on_signal(*self._ducks):
            self._execute(sql, values)
            return self._duck.fetchall()

    def refusal_of(self, sql: str) -> str:
        """Return DuckDB's complete message for a statement that it refuses.

        The message for a wrong call of a function lists the function's parameters, which DuckDB's catalog does not show
        completely. The statement runs on a separate cursor, so the current transaction is not affected.

        Raises:
            EngineError: DuckDB does not refuse the statement.
        """
        with self._duck.cursor() as apart:
            try:
                apart.execute(sql)
            except duckdb.Error as error:
                return str(error)
        raise EngineError(f"DuckDB does not refuse {sql}")

    def arrow(self, sql: str, values: Mapping[str, Any] | None = None) -> pa.Table:
        """Run one query and return its rows as an Arrow table; ``values`` are its parameters by name."""
        self._raise_if_late()
        with translate_duck_errors(discreet=self.discreet), interrupt_on_signal(*self._ducks):
            return self._duck.sql(sql, params=dict(values) if values else None).to_arrow_table()

    @contextmanager
    def stream_batches(self, sql: str, rows: int) -> Iterator[pa.RecordBatchReader]:
        """Run a query and yield a stream of its rows in order, in batches of ``rows`` rows.

        No other statement can run on this connection until the stream is closed.
        """
        with translate_duck_errors(discreet=self.discreet), interrupt_on_signal(*self._ducks):
            reader = self._duck.sql(sql).to_arrow_reader(rows)
        with reader:
            yield reader

    def register_table(self, name: str, data: pa.Table | pa.RecordBatchReader) -> None:
        """Make an Arrow table readable under a name, without copying it."""
        with translate_duck_errors():
            self._duck.register(name, data)

    def unregister_table(self, name: str) -> None:
        """Remove the name of a table that ``register_table`` made readable."""
        with translate_duck_errors():
            self._duck.unregister(name)

    @contextmanager
    def limit_time(self, seconds: float, stop: threading.Event | None = None) -> Iterator[None]:
        """Stop the statements of the block if together they take more than ``seconds``, or once ``stop`` is set.

        Raises:
            LateError: The statements were stopped.
        """
        end = time.monotonic() + seconds

        def is_over() -> bool:
            return time.monotonic() >= end or (stop is not None and stop.is_set())

        def interrupt() -> None:
            if is_over():
                self._duck.interrupt()

        self._limits.append(is_over)
        try:
            with call_meanwhile(interrupt):
                yield
        except KeyboardInterrupt as error:
            if not is_over():
                raise
            was_stopped = stop is not None and stop.is_set()
            raise LateError("was stopped" if was_stopped else f"takes longer than {seconds:g} s") from error
        finally:
            self._limits.remove(is_over)

    def _raise_if_late(self) -> None:
        """Raise ``KeyboardInterrupt`` if a time limit is over, as DuckDB does when it interrupts a statement."""
        if any(is_over() for is_over in self._limits):
            raise KeyboardInterrupt

    def _report_progress(self) -> None:
        with suppress(duckdb.Error):  # the connection may be closed already
            self._report.update_statement(self._duck.query_progress())


@contextmanager
def call_meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Call a function every ``POLL`` seconds while the block runs, such as one that reports a statement's progress.

    The calls come from another thread.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL):
            act()

    watcher = threading.Thread(target=watch, daemon=True)
    try:
        watcher.start()
        yield
    finally:
        ended.set()
        if watcher.is_alive():  # the thread may not have begun when an interruption came
            watcher.join()


def one_select(query: str) -> str:
    """Return the text of a query, if it is a single SELECT.

    Raises:
        UsageError: The text is not exactly one SELECT.
    """
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise UsageError(f"query: {_error_line(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError("query: must be one SELECT")
    return statements[0].query


@contextmanager
def interrupt_on_signal(*ducks: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt the connections' statements if a signal such as Ctrl-C raises an error in the main thread.

    Without this, DuckDB notices a signal, but then waits until the running tasks of its other threads are done. If the
    signal's handler raises nothing, the statement goes on.
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
def translate_duck_errors(*, discreet: bool = False) -> Iterator[None]:
    """Turn DuckDB's errors in the block into privsql's errors with a message of one line.

    If ``discreet`` is true, messages do not show the value that caused the error.
    """
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except MISTAKES as error:
        if discreet and isinstance(error, OF_VALUES):
            raise UsageError(HIDDEN) from error
        kind = EngineError if "CSV Error on Line:" in str(error) else UsageError
        raise kind(_error_line(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise EngineError(f"out of memory or disk space: {_error_line(error)}") from error
    except (duckdb.Error, RuntimeError) as error:
        if "nterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise EngineError(_error_line(error)) from error


@contextmanager
def name_file_in_errors(path: Path | str, *, query: bool = False, whole: bool = False) -> Iterator[None]:
    """Put the name of a file into errors that the block raises, and explain when another process has locked the file.

    Args:
        path: The file, or what messages call it.
        query: Whether the block runs the publisher's ``source.query``; messages then mention it.
        whole: Whether every error in the block is a fault of the file. Each then becomes an ``EngineError``.
    """
    try:
        yield
    except EngineError as error:
        if "set lock on file" in str(error) or "lock is held" in str(error):
            raise EngineError(f"{path} is open for writing in another process; close it there") from error
        if "Unique file handle conflict" in str(error):  # the engine opens a file once per process if it is written
            raise EngineError(f"{path} is open for writing in this process; open it read-only there") from error
        raise EngineError(f"{path}: can't be read: {error}") from error
    except UsageError as error:
        if whole:
            raise EngineError(f"{path}: can't be read: {error}") from error
        raise UsageError(f"{path}: {'source.query: ' if query else ''}{error}") from error


def _error_line(error: BaseException) -> str:
    """Return one line for an error: privsql's advice if there is any, else the first line of DuckDB's message."""
    message = str(error).strip()
    return redact_secrets(find_remedy(message) or message.split("\n")[0].split(" Error: ", 1)[-1])
