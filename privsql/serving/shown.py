"""An answer as a page shows it: a headline, a table with bars, and how to ask the same elsewhere."""

from __future__ import annotations

import csv
import io
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privsql import markup
from privsql.answers.base import OURS
from privsql.serving.asked import CONFIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privsql.answers.answer import Answer, Figure
    from privsql.serving.shelf import Served

ROWS = 500  # that a page shows; downloads have all
FORMULA = (
    *"=+-@\t\r\n",
    *"\uff1d\uff0b\uff0d\uff20",
)  # what a spreadsheet takes for one where a cell begins so; wide, too
MISSING = markup.Html('<i class="quiet">NULL</i>')  # told from a text that is the same
WORDS = {"std_error": "standard error"}


@dataclass(frozen=True)
class Bar:
    """An interval on a line: its low end, its middle and its high end, from 0 to 100; None for what there is not."""

    low: float | None
    middle: float | None
    high: float | None
    text: str


@dataclass(frozen=True)
class Shown:
    """The table of an answer: ``numeric`` are the columns of numbers; ``left_out`` rows stand in downloads alone."""

    head: tuple[str, ...]
    rows: list[list[object]]
    numeric: tuple[int, ...]
    left_out: int


def shown(answer: Answer) -> Shown:
    """The columns in their order; of a figure the estimate, its ends, a bar for these, and the standard error."""
    rows = answer.rows[:ROWS]
    figures = {one.at: one for one in answer.figures}
    scales = answer.scales(rows)
    inside = {at + k for at in figures for k in (1, 2, 3)}
    places = [at for at in range(len(answer.columns)) if at not in inside]
    head: list[str] = []
    numeric: list[int] = []
    for at in places:
        if at in figures:
            numeric += [len(head) + k for k in (0, 1, 2, 4)]
            names = [answer.columns[at + k] for k in (0, 2, 3, 1)]
            head += [*names[:3], "interval", WORDS.get(names[3], names[3])]
        else:
            numeric += (
                [len(head)] if rows and all(markup.is_number(row[at]) for row in rows) and places[0] != at else []
            )
            head.append(answer.columns[at])
    made = [[cell for at in places for cell in _cells(row, at, figures, scales)] for row in rows]
    if answer.marks:
        head.append("may be empty")
        made = [[*row, mark] for row, mark in zip(made, answer.marks, strict=False)]
    return Shown(tuple(head), made, tuple(numeric), len(answer.rows) - len(rows))


def _cells(
    row: tuple[Any, ...], at: int, figures: dict[int, Figure], scales: dict[int, tuple[float, float]]
) -> list[object]:
    if at not in figures:
        value = row[at]
        return [MISSING if value is None else value if isinstance(value, str) else markup.cell(value)]
    estimate, error, low, high = figures[at].of(row)
    ends = scales[at]
    left, middle, right = (markup.place(one, ends) for one in (low, estimate, high))
    bar = Bar(left, middle, right, _said(estimate, low, high))
    return [*(markup.cell(one) for one in (estimate, low, high)), bar, markup.cell(error)]


def _said(estimate: object, low: object, high: object) -> str:
    if low is None or high is None:
        return f"{markup.cell(estimate)}, without an interval"
    return f"{markup.cell(estimate)}, from {markup.cell(low)} to {markup.cell(high)}"


def headline(answer: Answer) -> tuple[str, str] | None:
    """One row's one figure in words, and its interval; None for any other answer."""
    if len(answer.rows) != 1 or len(answer.figures) != 1:
        return None
    estimate, error, low, high = answer.figures[0].of(answer.rows[0])
    if estimate is None:
        return "No answer", "no record meets the question, or nothing can be told of those that do"
    number = str(markup.cell(_rounded(estimate)))
    if error == 0 and low == high:
        return number, "exactly"
    if any(answer.may_be_empty) and low == high:
        return number, "if any record meets the question, which is not certain"
    if low is None or high is None:
        return f"about {number}", "an estimate without an interval"
    ends = f"between {markup.cell(_rounded(low))} and {markup.cell(_rounded(high))}"
    sure = "certainly" if answer.certain else f"{100 * answer.confidence:.10g} % sure:"
    return f"about {number}", f"{sure} {ends}"


def _rounded(value: Any) -> Any:
    """A figure as a person says it: a whole number where it is large."""
    return round(value) if isinstance(value, float) and abs(value) >= 100 else value


# The same elsewhere ---


def shell(served: Served, sql: str, confidence: float, estimator: str = OURS) -> str:
    """The command that gives the same answer, for a file that lies in the folder where it runs."""
    how = [] if confidence == CONFIDENCE else ["--confidence", f"{confidence!r}"]
    how += [] if estimator == OURS else ["--estimator", estimator]
    asked = [served.path.name, sql]
    if any(one.startswith("-") for one in asked):  # a comment, say, which would be taken for an option
        return shlex.join(["privsql", "query", *how, "--", *asked])
    return shlex.join(["privsql", "query", *asked, *how])


def python(served: Served, sql: str, confidence: float, estimator: str = OURS) -> str:
    """The same in Python."""
    how = "" if confidence == CONFIDENCE else f", confidence={confidence!r}"
    how += "" if estimator == OURS else f", estimator={estimator!r}"
    return f"import privsql\n\nprivsql.query({served.path.name!r}, {sql!r}{how}).frame()"


def as_csv(answer: Answer) -> str:
    """The rows as CSV. A text that a spreadsheet would take for a formula has an apostrophe before it."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(_harmless(answer.columns))
    writer.writerows(_harmless(row) for row in answer.rows)
    return file.getvalue()


def _harmless(cells: Sequence[object]) -> list[object]:
    return [f"'{one}" if isinstance(one, str) and one.startswith(FORMULA) else one for one in cells]
