"""The bar: what is counted is not moved by the statements in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.progress import Progress

from privsql.engine.progress import Bar, report_steps

if TYPE_CHECKING:
    from rich.progress import Task


@pytest.fixture
def shown() -> tuple[Bar, Task]:
    """A bar, and what it shows."""
    progress = Progress(disable=True)
    progress.add_task("", total=None)
    return Bar(lambda: progress), progress.tasks[0]


def test_a_statement_moves_a_step_that_nobody_counts(shown: tuple[Bar, Task]) -> None:
    bar, task = shown
    bar.step("Reading the source")
    assert (task.description, task.total, task.completed) == ("Reading the source", None, 0)
    bar.running(40)
    assert (task.total, task.completed) == (100, 40)
    bar.running(-1)
    assert (task.total, task.completed) == (100, 40)


def test_it_moves_no_step_that_is_counted(shown: tuple[Bar, Task]) -> None:
    """Else the time left is that of a statement, and there is none where the engine does not know."""
    bar, task = shown
    bar.step("Looking at 4 columns")
    seen = []
    for _ in report_steps(bar, "abcd", 4):
        bar.running(-1)
        bar.running(99)
        seen.append((task.total, task.completed))
    assert seen == [(100, 0), (100, 25), (100, 50), (100, 75)]
    assert task.finished
    bar.step("Looking again")
    bar.running(10)
    assert (task.total, task.completed) == (100, 10)
