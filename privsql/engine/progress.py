"""Report progress on stderr: a bar for all that takes over a second, nothing where nobody watches."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

from privsql.calls import as_whole_number, refuse_unknown_keywords
from privsql.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from rich.progress import Progress

Item = TypeVar("Item")
PATIENCE = 1.0  # seconds before a bar appears


class Reporter(Protocol):
    """Receives titles of steps and how far they are."""

    watched: bool

    def start_step(self, title: str) -> None:
        """Begin a step with a time of its own."""

    def update(self, percent: float) -> None:
        """Take note that the step is ``percent`` done, as counted; until the next step no statement moves it."""

    def update_statement(self, percent: float) -> None:
        """Take note that a statement of the step is ``percent`` done; negative if unknown."""


@dataclass(frozen=True)
class Options:
    """How a verb runs, not what it does. ``session``: one of Spark's, in place of one of privsql's own."""

    memory_limit: str | None = None
    threads: int | None = None
    report: Reporter | None = None
    session: object | None = None

    def engine_settings(self, spill: Path) -> dict[str, str]:
        """Return them as settings of DuckDB, which spills to ``spill``."""
        chosen = {"temp_directory": spill, "memory_limit": self.memory_limit, "threads": self.threads}
        return {name: str(value) for name, value in chosen.items() if value}


class RunKeywords(TypedDict, total=False):
    """Keywords of every verb that works for a while: ``options``, or what they consist of.

    ``memory_limit``: how much memory may be taken, such as "2GB"; ``threads``: the engine's; ``progress``: a bar on
    stderr for whatever takes over a second.
    """

    options: Options | None
    memory_limit: str | None
    threads: int | None
    progress: bool


RUNNING = tuple(RunKeywords.__annotations__)


@contextmanager
def options_from(keywords: Mapping[str, Any], verb: str | Callable[..., Any]) -> Iterator[Options]:
    """Yield the options that the keywords of a verb say; ``UsageError`` for keywords that it does not have."""
    refuse_unknown_keywords(keywords, RUNNING, verb)
    options = keywords.get("options") or Options()
    limit, threads = keywords.get("memory_limit"), keywords.get("threads")
    if not isinstance(options, Options):
        raise UsageError(f"options: {type(options).__name__} is not a privsql.Options")
    if limit is not None:
        options = replace(options, memory_limit=str(limit))
    if threads is not None:
        options = replace(options, threads=as_whole_number(threads, "threads", most=1024))
    if not keywords.get("progress"):
        yield options
        return
    with open_reporter(enabled=True) as report:
        yield replace(options, report=report)


class SilentReporter:
    """Reports nothing."""

    watched = False

    def start_step(self, title: str) -> None: ...
    def update(self, percent: float) -> None: ...
    def update_statement(self, percent: float) -> None: ...


class PartReporter:
    """Reports one of several parts of a piece of work, with its name before the titles of its steps."""

    def __init__(self, whole: Reporter, name: str) -> None:
        self._whole, self._name = whole, name
        self.watched, self.update, self.update_statement = whole.watched, whole.update, whole.update_statement

    def start_step(self, title: str) -> None:
        self._whole.start_step(f"{self._name}: {title}")


class BarReporter:
    """One rich progress bar that shows the current step once the whole has lasted ``PATIENCE``."""

    watched = True

    def __init__(self, show: Callable[[], Progress]) -> None:
        self._show = show
        self._begun = time.monotonic()
        self._counted = False

    def start_step(self, title: str) -> None:
        progress = self._show()
        progress.reset(progress.tasks[0].id, total=None, description=title)
        self._counted = False
        self.update_statement(-1)

    def update(self, percent: float) -> None:
        self._counted = True
        self._move_bar(percent)

    def update_statement(self, percent: float) -> None:
        self._move_bar(None if self._counted or percent < 0 else percent)

    def _move_bar(self, percent: float | None) -> None:
        """Move the bar, and show it if it is time."""
        progress = self._show()
        if percent is not None:
            progress.update(progress.tasks[0].id, total=100, completed=percent)
        if time.monotonic() > self._begun + PATIENCE and not progress.live.is_started:
            progress.start()


def report_steps(report: Reporter, items: Iterable[Item], number: int) -> Iterator[Item]:
    """Yield ``number`` items, and report how many are finished."""
    report.update(0)
    for done, item in enumerate(items):
        yield item
        report.update(100 * (done + 1) / number)


@contextmanager
def open_reporter(*, enabled: bool | None = None) -> Iterator[Reporter]:
    """Yield a bar on stderr if that is a terminal (or ``enabled`` says so), else silence."""
    if not (sys.stderr.isatty() if enabled is None else enabled):
        yield SilentReporter()
        return
    from rich.console import Console  # noqa: PLC0415 (only where somebody watches)
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415

    left = TimeRemainingColumn(), TextColumn("left")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), *left)
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task("", total=None)
    try:
        yield BarReporter(lambda: progress)
    finally:
        progress.stop()
