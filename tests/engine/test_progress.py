"""The bar: what is counted is not moved by the statements in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.progress import Progress

from privsql.engine.database import BarReporter, report_steps

if TYPE_CHECKING:
    from rich.progress import Task


@pytest.fixture
def shown() -> tuple[BarReporter, Task]:
    """A bar, and what it shows."""
    progress = Progress(disable=True)
    progress.add_task("", total=None)
    return BarReporter(progress), progress.tasks[0]


def test_a_statement_moves_a_step_that_nobody_counts(shown: tuple[BarReporter, Task]) -> None:
    bar, task = shown
    bar.start_step("Reading the source")
    assert (task.description, task.total, task.completed) == ("Reading the source", None, 0)
    bar.update_statement(40)
    assert (task.total, task.completed) == (100, 40)
    bar.update_statement(-1)
    assert (task.total, task.completed) == (100, 40)


def test_it_moves_no_step_that_is_counted(shown: tuple[BarReporter, Task]) -> None:
    """Else the time left is that of a statement, and there is none where the engine does not know."""
    bar, task = shown
    bar.start_step("Looking at 4 columns")
    seen = []
    for _ in report_steps(bar, "abcd", 4):
        bar.update_statement(-1)
        bar.update_statement(99)
        seen.append((task.total, task.completed))
    assert seen == [(100, 0), (100, 25), (100, 50), (100, 75)]
    assert task.finished
    bar.start_step("Looking again")
    bar.update_statement(10)
    assert (task.total, task.completed) == (100, 10)
