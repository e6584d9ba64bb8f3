"""The bar: what is counted is not moved by the statements in between, and every verb names its stages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.progress import Progress

import privsql
from privsql.engine import database
from privsql.engine.database import BarReporter, Options, Reporter, open_reporter, report_steps
from support.commands import specification, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def test_it_appears_though_nothing_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Progress] = []
    monkeypatch.setattr(database, "PATIENCE", 0.01)
    monkeypatch.setattr(Progress, "start", lambda self: begun.append(self))
    with open_reporter(enabled=True):
        assert not begun
        time.sleep(0.2)
        assert begun
    with open_reporter(enabled=True):
        pass
    time.sleep(0.05)
    assert len(begun) == 1  # what is over before shows none


class Titles(Reporter):
    """Notes the stages."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start_step(self, title: str) -> None:
        self.seen += [title.split(",")[0]] if title.split(",")[0] not in self.seen else []


STAGES: dict[str, tuple[Callable[[Path, Path, Options], object], list[str]]] = {
    "plan": (
        lambda spec, _, options: privsql.plan(spec, options=options),
        ["Reading the source", "Comparing with earlier releases", "Planning the release"],
    ),
    "publish": (
        lambda spec, _, options: privsql.publish(spec, options=options, replace=True),
        [
            "Reading the source",
            "Comparing with earlier releases",
            "Planning the release",
            "Assigning records to buckets",
            "Measuring the release",
            "Checking the release",
            "Writing the release",
        ],
    ),
    "verify": (
        lambda _, release, options: privsql.verify(release, options=options),
        ["Opening the release", "Checking the release", "Recomputing what it states"],
    ),
    "verify --source": (
        lambda spec, release, options: privsql.verify(release, spec, options=options),
        ["Opening the release", "Reading the source", "Recomputing what it states", "Publishing again"],
    ),
    "fit": (
        lambda _, release, options: privsql.fit(release, options=options),
        ["Reading the release", "Fitting the model", "Drawing completed tables"],
    ),
    "attack": (
        lambda spec, release, options: privsql.attack(release, source=spec, options=options),
        ["Opening the release", "Reading the source", "Attacking the release"],
    ),
    "report": (
        lambda _, release, options: privsql.report(release, to=release.with_suffix(".html"), options=options),
        ["Checking the release", "Asking typical questions", "Attacking the release", "Drawing the page"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", STAGES)
def test_a_verb_names_its_stages_in_order(tmp_path: Path, verb: str) -> None:
    rows = "SELECT i % 20 AS age, i // 20 % 2 AS sex, i % 7 AS zip, i % 40 // 8 + i * 7919 // 80 % 2 AS disease"
    write(tmp_path / "people.parquet", f"{rows} FROM range(1600) t(i)")
    spec = specification(tmp_path, mechanism='threshold = "1/2"')
    release: Any = privsql.publish(spec).release
    titles, (run, stages) = Titles(), STAGES[verb]
    run(spec, release, Options(report=titles))
    assert [one for one in titles.seen if one in stages] == stages, titles.seen
